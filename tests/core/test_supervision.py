"""Test the supervisor line: capabilities, who may claim them, and what may cross groups because of them."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.clock import Instant
from intercom.core.supervision import Capabilities, Crossings
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.capability import capability_for, is_made_with
from tests.core.harness import INFO, Client, World, answers, is_delivered, only, reason, types

TOKEN, CHILD, NONCE = "owner-token-1", "reviewer", "5b8f0d0a-2c44-4d7e-8f11-0a9b8c7d6e5f"
MAC = "qeVCJeYelAvEVzM9ayNSagKBox8e_JGwtjLx28UqbIo"


def supervisor(world: World, name: str = "parent", token: str = TOKEN, **members: Any) -> Client:
    return world.register(name, supervisorOwnerToken=token, **members)


def capability_of(parent: Client, child_name: str = CHILD, **members: Any) -> str:
    answer = only(parent.write("authorize_supervisor", requestId="s", childName=child_name, **members))
    assert answer["supervisorSessionId"] == parent.id
    return str(answer["capability"])


def claim(capability: Any, supervisor_id: Any = "x") -> dict[str, Any]:
    return {"supervisor": {"capability": capability, "supervisorSessionId": supervisor_id}}


def child_of(world: World, capability: str, name: str = CHILD, group: str = "far", **members: Any) -> Client:
    return world.register(name, info={"group": group}, **claim(capability), **members)


def refused(world: World, name: str | None = CHILD, **members: Any) -> bool:
    """Tell whether a registration is refused and ended."""
    conn = world.connect()
    session = INFO if name is None else {**INFO, "name": name}
    got = world.send(conn, type="register", session=session, **members)
    if types(got) == ["registered"]:
        world.end(conn)
        return False
    assert got == [{"type": "registration_failed", "reason": "Invalid supervisor authorization"}]
    assert conn in world.finished and conn not in world.destroyed
    assert world.send(conn, type="register", session=session) == [], "frames behind it are ignored"
    return True


# --- the capability (6.6) -------------------------------------------------------------------------------


# --- authorize_supervisor (4.11) ------------------------------------------------------------------------


def test_a_supervisor_gets_one_capability_per_child() -> None:
    """protocol 4.11, 5.8: the name trimmed"""
    world = World()
    parent = supervisor(world)
    answer = only(parent.write("authorize_supervisor", requestId="s", childName=f" {CHILD}\t"))
    assert answer == {
        "type": "supervisor_authorized",
        "requestId": "s",
        "capability": answer["capability"],
        "supervisorSessionId": parent.id,
        "childName": CHILD,
    }
    assert is_made_with(answer["capability"], TOKEN, CHILD)
    assert capability_of(parent) != capability_of(parent)


@pytest.mark.parametrize(
    "capability",
    [
        *("", "x", f"{NONCE}.{MAC[:-1]}"),
        *(capability_for("other-token", CHILD, NONCE), capability_for(TOKEN, "other", NONCE)),
    ],
)
def test_a_foreign_capability_cannot_be_restored(capability: str) -> None:
    """protocol 4.11: any violation is a protocol error; F57"""
    world = World()
    parent = supervisor(world)
    assert parent.write("authorize_supervisor", requestId="s", childName=CHILD, capability=capability) == []
    assert parent.conn in world.destroyed


def test_only_who_registered_with_an_owner_token_may_ask() -> None:
    """protocol 4.11"""
    world = World()
    client = world.register("a")
    assert client.write("authorize_supervisor", requestId="s", childName=CHILD) == []
    assert client.conn in world.destroyed


def test_a_capability_bound_to_another_owner_or_name_is_refused() -> None:
    """protocol 4.11, 6.6"""
    capabilities = Capabilities(Limits())
    assert capabilities.authorize("c", "s1", CHILD, TOKEN)
    assert not capabilities.authorize("c", "s2", "other", TOKEN)
    assert not capabilities.authorize("c", "s2", CHILD, "other")
    assert capabilities.claim("c", CHILD) == "s1"
    assert capabilities.authorize("c", "s2", CHILD, TOKEN)
    assert capabilities.claim("c", CHILD) == "s2"


def test_the_broker_refuses_it_as_a_protocol_error() -> None:
    """protocol 4.11: one already bound to another owner or name"""
    world = World()
    parent = supervisor(world)
    world.broker._supervising.capabilities.authorize(f"{NONCE}.{MAC}", "somebody", CHILD, "another owner")
    assert parent.write("authorize_supervisor", requestId="s", childName=CHILD, capability=f"{NONCE}.{MAC}") == []
    assert parent.conn in world.destroyed


def test_a_session_may_hold_so_many_capabilities() -> None:
    """design 4 "Charge before you link": capabilities 1 000 per session; refreshing one it holds always fits"""
    world = World(limits=Limits(capabilities_per_session=2))
    parent, other = supervisor(world), supervisor(world, "other")
    held = [capability_of(parent) for _ in range(2)]
    assert capability_of(parent, capability=held[0]) == held[0]
    assert capability_of(other, capability=held[0]) == held[0], "taken over: the first one has room again"
    assert capability_of(parent)
    assert parent.write("authorize_supervisor", requestId="s", childName=CHILD) == []
    assert parent.conn in world.destroyed


def test_the_oldest_issued_or_refreshed_capability_is_dropped_first() -> None:
    """protocol 6.6: at most 10 000, no expiry"""
    world = World(limits=Limits(capabilities=3))
    parent = supervisor(world)
    first, second, third = (capability_of(parent) for _ in range(3))
    capability_of(parent, capability=first)
    fourth = capability_of(parent)
    world.pass_time(30 * 24 * 3_600_000)
    assert [refused(world, **claim(known)) for known in (first, second, third, fourth)] == [False, True, False, False]
    assert Limits().capabilities == 10_000


def test_dropped_capabilities_are_not_charged_any_more() -> None:
    """design 4 "Charge before you link" """
    limits = Limits(capabilities=2, capabilities_per_session=2)
    capabilities = Capabilities(limits)
    for number in range(2):
        capabilities.authorize(f"a{number}", "a", CHILD, TOKEN)
    assert not capabilities.has_room("a", None) and capabilities.has_room("a", "a0")
    assert not capabilities.has_room("a", "unknown")
    capabilities.authorize("b0", "b", CHILD, TOKEN)
    assert capabilities.has_room("a", None) and len(capabilities) == 2
    capabilities.authorize("b1", "b", CHILD, TOKEN)
    assert not capabilities.has_room("b", None) and capabilities.has_room("a", None)


# --- claiming it at register (4.1, 6.6) -----------------------------------------------------------------


def test_a_child_is_told_its_supervisor() -> None:
    """protocol 5.1, 4.1: the id the child sends is not compared with anything"""
    world = World()
    parent = supervisor(world)
    child = child_of(world, capability_of(parent), f" {CHILD} ")
    assert child.first[0]["supervisorSessionId"] == parent.id


@pytest.mark.parametrize(
    "value",
    [
        *(None, "x", 1, [], {}, {"capability": "x"}, {"supervisorSessionId": "x"}),
        *({"capability": known, "supervisorSessionId": "x"} for known in (1, None, "", "x")),
    ],
    ids=str,
)
def test_a_wrong_claim_is_refused_and_ended(value: Any) -> None:
    """protocol 4.1: if the key is present, even null; refuse and end, no protocol error"""
    assert refused(World(), supervisor=value)


def test_a_claim_needs_a_string_for_the_supervisor() -> None:
    """protocol 4.1: the object must have the shape"""
    world = World()
    capability = capability_of(supervisor(world))
    assert refused(world, **claim(capability, None)) and refused(world, **claim(capability, 7))
    assert refused(world, supervisor={"capability": capability})
    assert not refused(world, **claim(capability, ""))


@pytest.mark.parametrize("name", [None, "", "  ", "Reviewer", "reviewer2"])
def test_a_claim_needs_the_right_name(name: str | None) -> None:
    """protocol 4.1, 6.6: non-empty, equal, case-sensitive, trimmed; F57: a capability of another child"""
    world = World()
    assert refused(world, name, **claim(capability_of(supervisor(world))))


def test_a_claim_needs_the_supervisor_to_be_here() -> None:
    """protocol 4.1: must be connected now; F90: never another session"""
    world = World()
    parent = supervisor(world)
    capability = capability_of(parent)
    parent.leave()
    supervisor(world)
    assert refused(world, **claim(capability))


def test_a_refused_registration_is_noted_and_leaves_nothing() -> None:
    """protocol 0 "refuse and end" """
    world = World()
    peer = world.register("peer")
    assert refused(world, supervisor=None)
    assert peer.got() == [] and world.broker.session_count == 1
    assert [note.event for note in world.notes] == ["registration_refused"]


def test_a_dynamic_slot_takes_the_name_of_its_first_claimer() -> None:
    """protocol 4.11, 6.6"""
    world = World()
    capability = capability_of(supervisor(world), "*")
    child = child_of(world, capability, "first")
    child.leave()
    assert refused(world, "second", **claim(capability))
    assert not refused(world, "first", **claim(capability))


@pytest.mark.parametrize("name", [None, "", " "])
def test_a_dynamic_slot_needs_a_name_too(name: str | None) -> None:
    """protocol 4.1: the child must have a non-empty one"""
    world = World()
    capability = capability_of(supervisor(world), "*")
    assert refused(world, name, **claim(capability)) and not refused(world, "first", **claim(capability))


def test_a_claim_that_failed_binds_no_slot() -> None:
    """protocol 6.6: the first claimer's name is bound"""
    world = World()
    parent = supervisor(world, returnAddress="r")
    capability = capability_of(parent, "*")
    parent.leave()
    assert refused(world, "first", **claim(capability))
    parent = supervisor(world, returnAddress="r", preferredSessionId=parent.id)
    assert not refused(world, "second", **claim(capability))
    assert capability_of(parent, "*", capability=capability) == capability
    assert refused(world, "first", **claim(capability)), "refreshing keeps the bound name"


# --- supervisor_send and crossings (4.9, 6.6) -----------------------------------------------------------


def family(world: World | None = None) -> tuple[World, Client, Client]:
    """Return a supervisor and its child, in different groups."""
    world = world or World()
    parent = supervisor(world, returnAddress="rp")
    return world, parent, child_of(world, capability_of(parent), returnAddress="rc")


def up(child: Client, to: str, message_id: str, text: str = "x", **more: Any) -> list[dict[str, Any]]:
    return child.message(to, message_id, text, kind="supervisor_send", **more)


def test_a_child_reaches_its_supervisor_across_groups_on_a_marked_channel() -> None:
    """protocol 4.9, 5.10, D7"""
    _, parent, child = family()
    assert is_delivered(up(child, f" {parent.id} ", "k1"))
    frame = only(parent.got())
    assert frame["channel"] == "supervisor" and frame["from"]["id"] == child.id
    assert is_delivered(up(child, f" {parent.id} ", "k1")) and parent.got() == []


def test_the_line_leads_to_the_own_supervisor_only() -> None:
    """protocol B2, 5.29: trimmed `to` is the supervisor's id, no name, no prefix; F90"""
    world, parent, child = family()
    other = supervisor(world, "parent", "other-token")
    for target in (other.id, "parent", parent.id[:8], parent.id.upper() + "x", ""):
        refusal = reason(up(child, target, "k1"))
        assert refusal == "Supervisor target does not match the authorized relationship"
    assert answers(parent.got()) == [] and other.texts() == []


def test_a_supervisor_that_is_gone_is_not_found() -> None:
    """protocol 4.9, OP-25; F90: never another session"""
    world, parent, child = family()
    parent.leave()
    again = supervisor(world, returnAddress="rp")
    assert again.id != parent.id
    assert reason(up(child, parent.id, "k1")) == "Session not found" and again.texts() == []


def test_a_supervisor_that_reclaimed_its_id_is_found() -> None:
    """protocol 6.6: id reclaim avoids that"""
    world, parent, child = family()
    parent.leave()
    parent = supervisor(world, returnAddress="rp", preferredSessionId=parent.id)
    assert is_delivered(up(child, parent.id, "k1")) and parent.texts() == ["x"]


def test_a_supervisor_may_answer_what_came_up_the_line_and_nothing_else() -> None:
    """protocol 6.6 crossing: exactly that direction, repeated replies are allowed; F93"""
    world, parent, child = family()
    brother = child_of(world, capability_of(parent, "brother"), "brother", "farther")
    assert is_delivered(up(child, parent.id, "k1"))
    for number in range(2):
        assert is_delivered(parent.message(child.id, f"a{number}", replyTo="k1"))
    for sender, target, more in (
        (parent, child, {}),
        (parent, child, {"replyTo": "k2"}),
        (parent, brother, {"replyTo": "k1"}),
        (brother, child, {"replyTo": "k1"}),
        (child, parent, {"replyTo": "k1"}),
    ):
        refusal = reason(sender.message(target.id, f"m{sender.attempts}-{sender.conn}", **more))
        assert refusal == "Target session is in a different intercom group"


def test_a_reply_down_the_line_may_use_the_childs_name() -> None:
    """protocol OP-9: a recorded crossing makes a candidate"""
    _, parent, child = family()
    assert reason(parent.message(CHILD, "a0", replyTo="k1")) == "Session not found"
    assert is_delivered(up(child, parent.id, "k1"))
    assert is_delivered(parent.message(CHILD, "a1", replyTo="k1"))
    assert reason(parent.message(CHILD, "a2")) == "Session not found"


def test_a_child_may_reply_to_its_supervisor_by_name() -> None:
    """protocol OP-9, 6.2.2: the sender's supervisor is a candidate of a reply; D7 still decides"""
    _, _, child = family()
    assert reason(child.message("parent", "r1", replyTo="x")) == "Target session is in a different intercom group"
    assert reason(child.message("parent", "r2")) == "Session not found"


def test_a_question_up_the_line_is_answered_once_as_its_answer() -> None:
    """protocol 4.9, 6.5, 8.5; F93: reply and plain answer settle the call"""
    _, parent, child = family()
    assert is_delivered(up(child, parent.id, "k1", expectsReply=True))
    assert is_delivered(parent.reply(child.id, "a1", "k1"))
    assert reason(parent.reply(child.id, "a2", "k1")) == reasons.NO_OPEN_QUESTION
    assert is_delivered(parent.reply(child.id, "a3", "k1", pending=False)), "the crossing lives on"


def test_a_crossing_lasts_ten_minutes() -> None:
    """protocol 6.6, 7"""
    world, parent, child = family()
    assert is_delivered(up(child, parent.id, "k1"))
    world.pass_time(599_999)
    assert is_delivered(parent.message(child.id, "a1", replyTo="k1"))
    world.pass_time(2)
    assert reason(parent.message(child.id, "a2", replyTo="k1")) == reasons.DIFFERENT_GROUP
    assert reason(parent.message(CHILD, "a3", replyTo="k1")) == "Session not found"


def test_the_oldest_crossing_goes_first() -> None:
    """protocol 6.6: at most 10 000"""
    crossings, now = Crossings(Limits(crossings=2)), Instant(0, 0)
    for message_id in ("k1", "k2", "k1", "k3"):
        crossings.record(message_id, "child", "parent", now)
    assert len(crossings) == 2
    assert [crossings.allows(known, "parent", "child", now) for known in ("k1", "k2", "k3")] == [True, False, True]
    crossings.withdraw("k1", "child", "parent")
    crossings.withdraw("k1", "child", "parent")
    assert not crossings.allows("k1", "parent", "child", now) and crossings.connects("parent", "child", now)
    assert not crossings.connects("child", "parent", now) and Limits().crossings == 10_000


def test_a_receipt_from_a_returned_supervisor_records_the_crossing_for_it() -> None:
    """protocol 6.10.5, 6.6: with that session as the recipient"""
    world = World()
    parent = supervisor(world, returnAddress="rp", acknowledgesReceipt=True)
    child = child_of(world, capability_of(parent))
    up(child, parent.id, "k1")
    parent.leave()
    parent = supervisor(world, returnAddress="rp", acknowledgesReceipt=True)
    assert parent.first[-1]["channel"] == "supervisor"
    parent.write("received", messageId="k1")
    assert is_delivered(child.got())
    assert is_delivered(parent.message(child.id, "a1", replyTo="k1"))


# --- families -------------------------------------------------------------------------------------------


def test_requests_reach_the_own_parent_whatever_parents_are_called() -> None:
    """F90: two parents, one name, one directory"""
    world = World()
    parents = [supervisor(world, "twin", f"token-{number}") for number in range(2)]
    children = [
        (parent, child_of(world, capability_of(parent, f"c{number}"), f"c{number}"))
        for parent in parents
        for number in range(3)
    ]
    for parent, child in children:
        assert is_delivered(up(child, parent.id, f"k-{child.conn}", f"from {child.conn}"))
    for parent in parents:
        assert parent.texts() == [f"from {child.conn}" for owner, child in children if owner is parent]


@pytest.mark.parametrize("first", range(3))
def test_one_childs_exit_does_not_touch_the_others(first: int) -> None:
    """F92"""
    world = World()
    parent = supervisor(world)
    children = [child_of(world, capability_of(parent, f"c{n}"), f"c{n}", returnAddress=f"r{n}") for n in range(3)]
    for number in (first, (first + 1) % 3):
        children[number].leave()
        for child in children:
            if child.conn in world.open:
                assert is_delivered(up(child, parent.id, f"k-{child.conn}-{number}"))


@pytest.mark.parametrize("parent_first", [True, False])
def test_a_family_finds_together_after_a_restart_in_any_order(parent_first: bool) -> None:
    """protocol 6.6: re-authorising restores the children; F94"""
    world, parent, child = family()
    capability = capability_of(parent)
    world.crash()
    if not parent_first:
        assert refused(world, **claim(capability)), "refused, not dropped: the child tries again"
    parent = supervisor(world, returnAddress="rp", preferredSessionId=parent.id)
    assert refused(world, **claim(capability))
    assert capability_of(parent, capability=capability) == capability
    child = child_of(world, capability, returnAddress="rc", preferredSessionId=child.id)
    assert is_delivered(up(child, parent.id, "k1")) and parent.texts() == ["x"]


def test_a_refreshed_capability_points_to_the_requesting_session() -> None:
    """protocol 6.6: re-points it"""
    world, parent, child = family()
    capability = capability_of(parent)
    successor = supervisor(world, "successor")
    assert capability_of(successor, capability=capability) == capability
    other = child_of(world, capability, returnAddress="rc2")
    assert other.first[0]["supervisorSessionId"] == successor.id
    assert is_delivered(up(other, successor.id, "k1"))
    assert is_delivered(up(child, parent.id, "k2")), "the child's supervisor is fixed at registration"
    assert reason(up(child, successor.id, "k3")) == reasons.OTHER_SUPERVISOR


def test_a_capability_is_never_shown() -> None:
    """F107: secrets are never in lists"""
    world, parent, _ = family()
    capability = capability_of(parent)
    peer = world.register("peer", info={"groups": ["far", "default"]})
    shown = repr(peer.write("list", requestId="q")) + repr(peer.write("list", requestId="q", group="far"))
    assert capability not in shown and TOKEN not in shown


def test_the_child_of_a_capability_is_named_to_its_present_supervisor_only() -> None:
    """protocol 6.6: supervised child name, the bound one for a dynamic slot"""
    capabilities = Capabilities(Limits())
    capabilities.authorize("c", "s1", "reviewer", TOKEN)
    capabilities.authorize("slot", "s1", "*", TOKEN)
    assert capabilities.supervised_child("c", "s1") == "reviewer"
    assert capabilities.supervised_child("c", "s2") is None
    assert capabilities.supervised_child("unknown", "s1") is None
    assert capabilities.supervised_child("slot", "s1") == "*"
    capabilities.bind("slot", " helper ")
    assert capabilities.supervised_child("slot", "s1") == "helper"
    capabilities.authorize("c", "s2", "reviewer", TOKEN)
    assert capabilities.supervised_child("c", "s1") is None
    assert capabilities.supervised_child("c", "s2") == "reviewer"


@pytest.mark.parametrize("members", [{"childName": "x" * 4_097}, {"childName": "x", "capability": "x" * 4_097}])
def test_nobody_has_long_texts_kept(members: dict[str, str]) -> None:
    """A thousand of them, as long as a frame, would be kept for one session."""
    world = World()
    boss = world.register("boss", supervisorOwnerToken="o")
    boss.write("authorize_supervisor", requestId="r", **members)
    assert "too long" in world.destroyed[boss.conn]
