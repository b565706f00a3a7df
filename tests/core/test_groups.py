"""Test presence and memberships: what is refused with which words, what changes, and who is told."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.harness import Client, World, is_delivered, only, reason, types
from tests.core.mail import enter, holder
from tests.core.runs import group_of, owned, stage

KINDS = ["presence", "join_group", "leave_group"]


def refused(client: Client, kind: str, **members: Any) -> str:
    return str(only(client.write(kind, requestId="q", **members), "presence_failed")["reason"])


def groups_of(client: Client) -> list[str]:
    """Return all memberships, by an operation that changes none of them."""
    watcher = client.world.register("watcher", info={"recipientPurpose": "control", "group": "watching"})
    for entry in only(watcher.write("list_groups", requestId="q"))["groups"]:
        for session in only(watcher.write("list", requestId="q", group=entry["group"]))["sessions"]:
            if session["id"] == client.id:
                watcher.leave()
                return list(session["groups"])
    raise AssertionError("not listed")


# --- what is refused (protocol 4.5) ---------------------------------------------------------------------


@pytest.mark.parametrize("value", ["g", None, 1, {}, [1], ["g", None]])
def test_groups_must_be_an_array_of_strings(value: Any) -> None:
    """protocol 4.5"""
    assert refused(World().register("a"), "presence", groups=value) == "Invalid presence groups"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, 1, True, ["g"], {}])
def test_group_must_be_a_string(kind: str, value: Any) -> None:
    """protocol 4.5 to 4.7"""
    assert refused(World().register("a"), kind, group=value) == "Invalid presence group"


def test_joining_needs_a_group() -> None:
    """protocol 4.6: group is required"""
    assert refused(World().register("a"), "join_group") == "Invalid presence group"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["true", "auto", "TRUE", "Auto", "aUtO", "  auto\t"])
def test_reserved_names_are_refused_in_any_case(kind: str, name: str) -> None:
    """protocol 4.5, 6.3, 5.29: the exact text, with the name as sent (trimmed)"""
    expected = f'Invalid presence group: Intercom group name "{name.strip()}" is reserved; choose another name'
    client = World().register("a")
    assert refused(client, kind, group=name) == expected
    assert refused(client, "presence", groups=["g", name]) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", "  ", "\u3000\ufeff"])
def test_blank_names_are_refused(kind: str, name: str) -> None:
    """protocol 4.5, OP-18"""
    client = World().register("a")
    assert refused(client, kind, group=name).startswith("Invalid presence group: ")
    assert refused(client, "presence", groups=["g", name]).startswith("Invalid presence group: ")


@pytest.mark.parametrize("kind", ["presence", "join_group"])
@pytest.mark.parametrize("member", ["name", "status", "model"])
@pytest.mark.parametrize("value", [None, 1, False, ["x"]])
def test_name_status_and_model_must_be_strings(kind: str, member: str, value: Any) -> None:
    """protocol 4.5, 4.6"""
    assert refused(World().register("a"), kind, group="g", **{member: value}) == f"Invalid presence {member}"


@pytest.mark.parametrize("value", ["dead", "", None, True])
def test_only_two_reply_capabilities_are_known(value: Any) -> None:
    """protocol 4.5"""
    assert "replyCapability" in refused(World().register("a"), "presence", replyCapability=value)


@pytest.mark.parametrize("value", ["never", "", None, True])
def test_only_four_ways_to_be_told_are_known(value: Any) -> None:
    """protocol 4.5"""
    assert "push" in refused(World().register("a"), "presence", push=value)


def test_how_soon_a_session_is_told_is_shown_and_changes() -> None:
    """protocol 4.5, 6.4; F135."""
    world = World()
    peer, client = world.register("p"), world.register("a", info={"push": "pull"})
    [joined] = peer.got()
    assert joined["session"]["push"] == "pull"
    assert only(client.write("presence", requestId="q", push="now"), "presence_ack")
    [update] = peer.got()
    assert (update["type"], update["session"]["push"]) == ("presence_update", "now")


@pytest.mark.parametrize("value", ["", "x" * 33, None, 1, ["hooks"]])
def test_a_way_is_one_short_word(value: Any) -> None:
    """protocol 4.5, 15.5"""
    expected = "Invalid presence pushWay: it is a text of 1 to 32 characters"
    assert refused(World().register("a"), "presence", push="now", pushWay=value) == expected


def test_by_what_a_session_is_told_is_shown_and_changes_with_how_soon() -> None:
    """protocol 15.5"""
    world = World()
    peer, client = world.register("p"), world.register("a", info={"push": "now", "pushWay": "monitor"})
    shown = [peer.got()[0]["session"]]
    for change in ({"pushWay": "x" * 32}, {"status": "busy"}, {"push": "idle", "pushWay": "queue"}, {"push": "pull"}):
        assert only(client.write("presence", requestId="q", **change), "presence_ack")
        shown += [frame["session"] for frame in peer.got()]
    assert [(session["push"], session.get("pushWay")) for session in shown] == [
        ("now", "monitor"),
        ("now", "x" * 32),
        ("now", "x" * 32),
        ("idle", "queue"),
        ("pull", None),
    ]


def test_terminal_is_one_way() -> None:
    """protocol 4.5, 6.4"""
    client = World().register("a", info={"replyCapability": "terminal"})
    assert "terminal" in refused(client, "presence", replyCapability="live")
    assert only(client.write("presence", requestId="q", replyCapability="terminal"), "presence_ack")
    live = World().register("b")
    assert only(live.write("presence", requestId="q", replyCapability="live"), "presence_ack")


def test_the_first_broken_rule_is_named() -> None:
    """protocol 4.5: checks, in order"""
    client = World().register("a", info={"replyCapability": "terminal"})
    broken: dict[str, Any] = {
        "groups": 1,
        "group": 1,
        "name": 1,
        "status": 1,
        "model": 1,
        "replyCapability": "live",
    }
    said = []
    for member in list(broken):
        said.append(refused(client, "presence", **broken))
        del broken[member]
    assert said == [
        "Invalid presence groups",
        "Invalid presence group",
        "Invalid presence name",
        "Invalid presence status",
        "Invalid presence model",
        "Invalid presence replyCapability: a terminal session cannot become live again",
    ]
    assert "reserved" in refused(client, "presence", group="auto", name=1)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_request_id_a_refusal_is_a_protocol_error(kind: str) -> None:
    """protocol 4.5, failure rule"""
    world = World()
    client = world.register("a")
    assert client.write(kind, group="auto") == []
    assert client.conn in world.destroyed and world.broker.session_count == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("request_id", [None, 1, {}])
def test_a_request_id_must_be_a_string(kind: str, request_id: Any) -> None:
    """protocol 4.5: wrong type is a protocol error"""
    world = World()
    client = world.register("a")
    assert client.write(kind, requestId=request_id, group="g") == []
    assert client.conn in world.destroyed


def test_a_refused_change_changes_nothing_and_tells_nobody() -> None:
    """protocol 4.5"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    client.got()
    refused(client, "presence", name="new", status="new", groups=["g", "auto"])
    assert peer.got() == []
    assert is_delivered(peer.message("a", "m1")) and groups_of(client) == ["default"]


def test_a_session_is_in_at_most_so_many_groups() -> None:
    """design 4 "Charge before you link": groups 64"""
    client = World(limits=Limits(groups=2)).register("a")
    assert only(client.write("join_group", requestId="q", group="g"))["groups"] == ["default", "g"]
    assert "at most 2" in refused(client, "join_group", group="h")
    assert "at most 2" in refused(client, "presence", groups=["a", "b", "c"])
    assert only(client.write("join_group", requestId="q", group="g"))["groups"] == ["default", "g"]


# --- what changes ---------------------------------------------------------------------------------------


def test_presence_changes_what_peers_see() -> None:
    """protocol 4.5: name, status, model; lastActivity is now"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    world.pass_time(1_000)
    client.write("presence", name="A2", status="busy", model="m2")
    seen = only(peer.got(), "presence_update")["session"]
    assert (seen["name"], seen["status"], seen["model"]) == ("A2", "busy", "m2")
    assert seen["lastActivity"] == world.wall and seen["id"] == client.id


def test_presence_without_request_id_is_not_answered() -> None:
    """protocol 4.5"""
    client = World().register("a")
    assert client.write("presence", status="busy") == []


def test_group_moves_and_groups_win_over_group() -> None:
    """protocol 4.5: group replaces all memberships; it is ignored when groups is present"""
    client = World().register("a", info={"groups": ["g", "h"]})
    assert only(client.write("presence", requestId="q", group=" x "), "presence_ack")["group"] == "x"
    assert groups_of(client) == ["x"]
    assert only(client.write("presence", requestId="q", groups=["h", "g", "h "], group="x"))["group"] == "h"
    assert groups_of(client) == ["h", "g"]
    assert only(client.write("presence", requestId="q", groups=["h", "g"], group="auto"))["group"] == "h"
    assert only(client.write("presence", requestId="q", groups=[]))["group"] == "default"
    assert groups_of(client) == ["default"], "a session is never without a group"


def test_joining_adds_one_group() -> None:
    """protocol 4.6"""
    client = World().register("a", info={"group": "g"})
    assert only(client.write("join_group", requestId="q", group=" teamA "), "membership_ack") == {
        "type": "membership_ack",
        "requestId": "q",
        "groups": ["g", "teamA"],
    }
    assert only(client.write("join_group", requestId="q", group="teamA"))["groups"] == ["g", "teamA"]
    assert only(client.write("join_group", requestId="q", group="default"))["groups"] == ["g", "teamA", "default"]
    assert client.write("join_group", group="more") == []
    assert only(client.write("presence", requestId="q"))["group"] == "g", "the legacy group stays"


def test_joining_honours_the_members_of_presence() -> None:
    """protocol 4.6"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    client.write("join_group", requestId="q", group="g", name="a2", status="s", model="m2", replyCapability="terminal")
    seen = only(peer.got(), "presence_update")["session"]
    assert [seen[key] for key in ("name", "status", "model", "replyCapability")] == ["a2", "s", "m2", "terminal"]


def test_joining_ignores_groups() -> None:
    """protocol 4.6: it adds one group; groups is a member of presence only"""
    client = World().register("a")
    assert only(client.write("join_group", requestId="q", group="g", groups=["x"]))["groups"] == ["default", "g"]


def test_leaving_removes_one_group() -> None:
    """protocol 4.7"""
    client = World().register("a", info={"groups": ["g", "h", "i"]})
    assert only(client.write("leave_group", requestId="q", group=" h "), "membership_ack")["groups"] == ["g", "i"]
    assert only(client.write("leave_group", requestId="q", group="h"))["groups"] == ["g", "i"], "not in it: succeeds"
    assert only(client.write("presence", requestId="q"))["group"] == "g"
    assert only(client.write("leave_group", requestId="q", group="g"))["groups"] == ["i"]
    assert only(client.write("presence", requestId="q"))["group"] == "i", "the first that remains"
    assert only(client.write("leave_group", requestId="q", group="i"))["groups"] == ["default"]
    assert only(client.write("presence", requestId="q"))["group"] == "default"


def test_leaving_without_a_group_goes_home() -> None:
    """protocol 4.7, 6.3: home never changes"""
    client = World().register("a", info={"groups": ["g", "h"]}, registrationGroup="home")
    client.write("presence", requestId="q", groups=["x", "y"])
    assert only(client.write("leave_group", requestId="q"))["groups"] == ["home"]
    assert only(client.write("presence", requestId="q"))["group"] == "home"


def test_group_names_are_compared_by_case() -> None:
    """protocol 6.3"""
    world = World()
    upper, lower = world.register("a", info={"group": "Team"}), world.register("b", info={"group": "team"})
    assert reason(upper.message("b", "m1")) == "Session not found"
    assert reason(upper.message(lower.id, "m2")) == "Target session is in a different intercom group"


def test_a_new_name_resolves_at_once_and_the_old_one_no_more() -> None:
    """F47; protocol 6.2.1"""
    world = World()
    client, peer = world.register("old"), world.register("peer")
    client.write("presence", name="new")
    assert is_delivered(peer.message("NEW", "m1"))
    peer.got()
    assert reason(peer.message("old", "m2")) == "Session not found"
    taker = world.register("old")
    peer.got()
    assert is_delivered(peer.message("old", "m3"))
    assert (client.texts(), taker.texts()) == (["x"], ["x"])


def test_an_unnamed_session_can_take_a_name() -> None:
    """protocol 4.5"""
    world = World()
    client, peer = world.register(), world.register("peer")
    assert reason(peer.message("late", "m1")) == "Session not found"
    client.write("presence", name="late")
    peer.got()
    assert is_delivered(peer.message("late", "m2"))


# --- who is told (protocol 6.3) -------------------------------------------------------------------------


def test_each_peer_is_judged_by_what_it_shared_before_and_shares_now() -> None:
    """protocol 6.3, table"""
    world = World()
    mover = world.register("mover", info={"groups": ["g", "h"]})
    peers = {
        name: world.register(name, info={"groups": name.split("+")}) for name in ("g", "h", "i", "g+h", "h+i", "z")
    }
    for client in (mover, *peers.values()):
        client.got()
    assert types(mover.write("presence", requestId="q", groups=["h", "i"])) == ["presence_ack"]
    told = {name: peer.got() for name, peer in peers.items()}
    assert told["g"] == [{"type": "session_left", "sessionId": mover.id}]
    assert types(told["i"]) == ["session_joined"] and told["i"][0]["session"]["groups"] == ["h", "i"]
    for name in ("h", "g+h", "h+i"):
        assert types(told[name]) == ["presence_update"], name
        assert told[name][0]["session"]["groups"] == ["h", "i"]
    assert told["z"] == []


def test_one_group_sessions_see_a_move_as_leaving_and_joining() -> None:
    """protocol 6.3: the older broker's rule gives the same"""
    world = World()
    mover = world.register("mover", info={"group": "g"})
    stayer, waiter = world.register("stayer", info={"group": "g"}), world.register("waiter", info={"group": "h"})
    mover.write("presence", requestId="q", group="h")
    assert types(stayer.got()) == ["session_left"] and types(waiter.got()) == ["session_joined"]
    mover.write("presence", requestId="q", status="s")
    assert stayer.got() == [] and types(waiter.got()) == ["presence_update"]


def test_nobody_is_told_about_an_internal_connection() -> None:
    """protocol 6.3, 6.4; F61"""
    world = World()
    peer = world.register("peer")
    control = world.register("control", info={"recipientPurpose": "control"})
    assert only(control.write("presence", requestId="q", status="s"), "presence_ack")
    assert only(control.write("join_group", requestId="q", group="g"))["groups"] == ["default", "g"]
    control.leave()
    assert peer.got() == []


def test_internal_connections_are_told_about_agents() -> None:
    """protocol 6.3: to sessions that share a group with the subject"""
    world = World()
    control = world.register("control", info={"recipientPurpose": "control"})
    agent = world.register("agent")
    agent.write("presence", status="s")
    agent.leave()
    assert types(control.got()) == ["session_joined", "presence_update", "session_left"]


def test_turning_terminal_settles_questions_before_peers_hear_of_it() -> None:
    """protocol 4.5: effects, in order"""
    world = World()
    asker, target = world.register("asker"), world.register("target")
    asker.got()
    assert is_delivered(asker.ask("target", "q1"))
    assert types(target.write("presence", requestId="q", replyCapability="terminal", group="g"))[-1] == "presence_ack"
    told = asker.got()
    assert types(told) == ["message", "session_left"]
    assert told[0]["message"]["replyTo"] == "q1"


def test_the_answer_comes_after_the_peers_are_told() -> None:
    """protocol 4.5: notify peers, then answer"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    world.auto = False
    client.write("presence", requestId="q", status="s")
    assert [write.to for write in world.waiting] == [peer.conn, client.conn]


def test_who_is_away_in_an_invocation_is_shown_to_its_members_only() -> None:
    """protocol 4.3, 6.12.6: for everybody else there is nobody in it"""
    world = World()
    owned(world, stages=[stage()])
    gone, member, outsider = (enter(world, name) for name in ("gone", "member", "outsider"))
    for session in (gone, member):
        session.write("join_group", group=group_of())
    gone.leave()
    member.got(), outsider.got()
    assert only(outsider.write("list", requestId="l", group=group_of()), "sessions")["sessions"] == []
    shown = only(member.write("list", requestId="l", group=group_of()), "sessions")["sessions"]
    assert [entry["name"] for entry in shown] == ["member", "gone"]


def test_nobody_is_told_what_a_control_session_does() -> None:
    """protocol 4.5: presence is that of agents"""
    world = World()
    agent = world.register("a")
    control = world.register("c", info={"recipientPurpose": "control"})
    agent.got()
    control.write("presence", status="busy")
    assert agent.got() == []


def test_the_groups_of_an_address_without_a_lasting_session_are_kept_too() -> None:
    """protocol 9.3: an address is found in the groups it last had"""
    world = World()
    desk = holder(world, "desk", features=("address", "push.receipts", "queue"))
    desk.write("presence", requestId="p", groups=["default", "more"])
    [record] = world.disk.addresses.values()
    assert record.groups == ("default", "more")
