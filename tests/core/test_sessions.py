"""Test who gets which id, what a registration fixes for ever, and what peers see of it."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.connections import PeerCredentials
from intercom.core.sessions import is_uuid
from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import INFO, Client, World, is_delivered, only, reason
from tests.core.mail import enter, holder

WISH = "AAAAAAAA-bbbb-4ccc-8ddd-eeeeeeeeeeee"


def info_of(world: World, client: Client) -> dict[str, Any]:
    """Return the session info of a client as its peers see it."""
    watcher = world.register("watcher", info={"groups": ["default", "g", "h", "home"]})
    for group in ("default", "g", "h", "home"):
        for session in only(watcher.write("list", requestId="q", group=group))["sessions"]:
            if session["id"] == client.id:
                watcher.leave()
                return dict(session)
    raise AssertionError("not listed")


# --- ids ------------------------------------------------------------------------------------------------


def test_every_registration_gets_an_id_of_its_own() -> None:
    """protocol 4.1, 6.1: without a wish the id is random"""
    world = World()
    ids = {world.register("same").id for _ in range(5)}
    assert len(ids) == 5 and all(is_uuid(session_id) for session_id in ids)


def test_a_wish_unknown_here_is_granted() -> None:
    """protocol 6.1: for instance after a restart of the broker"""
    assert World().register(preferredSessionId=WISH).id == WISH
    assert World().register(preferredSessionId=WISH, returnAddress="r").id == WISH


@pytest.mark.parametrize("wish", ["", "worker", "aaaaaaaa", "workflow:x/y", WISH + "\n", WISH[:-1] + "g", f" {WISH}"])
def test_a_wish_that_is_no_uuid_is_ignored(wish: str) -> None:
    """protocol OP-4: nobody can take a name or a stage target as an id"""
    assert World().register(preferredSessionId=wish).id == "00000001-0000-4000-8000-000000000001"


@pytest.mark.parametrize("wish", [WISH, WISH.lower(), WISH.upper()])
def test_the_id_of_a_live_session_is_never_granted(wish: str) -> None:
    """protocol 6.1; F107"""
    world = World()
    world.register(preferredSessionId=WISH, returnAddress="r")
    assert world.register(preferredSessionId=wish, returnAddress="r").id.lower() != WISH.lower()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "is_granted"),
    [("r", "r", True), ("r", "other", False), ("r", None, False), (None, "r", False), (None, None, False)],
)
def test_a_retired_id_is_granted_to_the_same_return_address_only(
    first: str | None, second: str | None, is_granted: bool, restart: bool
) -> None:
    """protocol 6.1, design 7 "Addresses": a restart opens no door; F107"""
    world = World()
    owner = world.register(preferredSessionId=WISH, **({} if first is None else {"returnAddress": first}))
    owner.leave()
    if restart:
        world.crash()
    again = world.register(preferredSessionId=WISH.lower(), **({} if second is None else {"returnAddress": second}))
    assert (again.id == WISH.lower()) is is_granted


def test_an_id_in_use_when_the_broker_died_is_guarded_too() -> None:
    """protocol 6.1, design 7 "Addresses": it is remembered from the registration on"""
    world = World()
    world.register(preferredSessionId=WISH, returnAddress="r")
    world.crash()
    assert world.register(preferredSessionId=WISH).id != WISH
    assert world.register(preferredSessionId=WISH, returnAddress="r").id == WISH


def test_unregistering_retires_the_id() -> None:
    """protocol 1.6, 6.15.8"""
    world = World()
    client = world.register(preferredSessionId=WISH, returnAddress="r")
    assert client.write("unregister") == []
    assert world.register(preferredSessionId=WISH).id != WISH


def ids(count: int) -> list[str]:
    return [f"aaaaaaaa-0000-4000-8000-{number:012x}" for number in range(count)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_the_oldest_retired_id_is_forgotten_first(number: int, restart: bool) -> None:
    """protocol OP-4"""
    world = World(limits=Limits(retired_ids=3))
    for wish in ids(4):
        world.register(preferredSessionId=wish, returnAddress="r").leave()
    if restart:
        world.crash()
    assert len(world.disk.retired) == 3
    wish = ids(4)[number]
    assert (world.register(preferredSessionId=wish).id == wish) is (number == 0)


def test_an_id_is_remembered_however_many_came_and_went_while_it_was_in_use() -> None:
    """protocol 6.1: every departing session is retired"""
    world = World(limits=Limits(retired_ids=3))
    old = world.register(preferredSessionId=WISH, returnAddress="r")
    for wish in ids(5):
        world.register(preferredSessionId=wish, returnAddress="other").leave()
    old.leave()
    assert world.register(preferredSessionId=WISH).id != WISH
    world.crash()
    assert world.register(preferredSessionId=WISH).id != WISH
    assert world.register(preferredSessionId=WISH, returnAddress="r").id == WISH


def test_leaving_makes_an_id_the_newest_of_the_retired() -> None:
    """protocol OP-4: the oldest retired goes first, not the oldest registered"""
    world = World(limits=Limits(retired_ids=2))
    old = world.register(preferredSessionId=WISH, returnAddress="r")
    world.register(preferredSessionId=ids(2)[0]).leave()
    old.leave()
    world.register(preferredSessionId=ids(2)[1]).leave()
    assert world.register(preferredSessionId=WISH).id != WISH


@pytest.mark.parametrize("then", ["somebody registers", "it leaves"])
def test_an_id_that_could_not_be_recorded_is_recorded_later(then: str) -> None:
    """design 7 "Addresses": a restart opens no door; a full disk is tried again with the next append"""
    world = World(auto=False)
    conns = [world.connect() for _ in range(2)]
    for conn, wish in zip(conns, (WISH, ids(1)[0]), strict=True):
        world.send(conn, type="register", session=INFO, preferredSessionId=wish, returnAddress="r")
    world.fail_commit()
    assert world.disk.retired == {}
    world.auto = True
    if then == "it leaves":
        world.end(conns[0])
    else:
        world.register("next")
    assert {WISH.lower(), ids(1)[0]} <= world.disk.retired.keys()
    world.auto = False
    world.send(world.connect(), type="register", session=INFO)
    assert [len(append.changes) for append in world.appends] == [1], "and then not again"
    world.auto = True
    world.settle()
    world.crash()
    assert world.register(preferredSessionId=WISH).id != WISH
    assert world.register(preferredSessionId=WISH, returnAddress="r").id == WISH


def test_an_id_that_was_never_recorded_and_is_forgotten_is_not_recorded_any_more() -> None:
    """protocol OP-4: the oldest are dropped"""
    world = World(auto=False, limits=Limits(retired_ids=2))
    for wish in ids(3):
        world.send(world.connect(), type="register", session=INFO, preferredSessionId=wish)
    world.fail_commit()
    world.auto = True
    world.register("next")
    assert sorted(world.disk.retired)[1:] == ids(3)[2:] and len(world.disk.retired) == 2


def test_taking_an_id_again_makes_it_the_newest() -> None:
    """protocol OP-4: oldest dropped"""
    world = World(limits=Limits(retired_ids=2))
    for wish in (WISH, ids(1)[0]):
        world.register(preferredSessionId=wish, returnAddress="r").leave()
    world.register(preferredSessionId=WISH, returnAddress="r")
    world.register("next")
    world.crash()
    assert world.register(preferredSessionId=WISH).id != WISH


def test_a_supervising_control_session_keeps_its_id() -> None:
    """protocol 6.1, 6.6: who takes the id of a supervisor takes its children"""
    world = World()
    control = world.register(
        info={"recipientPurpose": "control"}, supervisorOwnerToken="token", preferredSessionId=WISH
    )
    control.leave()
    assert world.register(preferredSessionId=WISH).id != WISH


def test_nothing_of_a_return_address_reaches_the_disk() -> None:
    """design 5 "Privacy": SHA-256 only"""
    world = World()
    sender = world.register("a", returnAddress="secret-return-address", supervisorOwnerToken="secret-token")
    world.register("b", returnAddress="another-secret")
    assert is_delivered(sender.ask("b", "m1", "secret text"))
    assert world.disk.operations and world.disk.retired
    assert "secret" not in repr(world.disk.operations) + repr(world.disk.retired)


# --- what peers see -------------------------------------------------------------------------------------


def test_unknown_members_are_shown_and_the_id_is_the_brokers() -> None:
    """protocol 4: session object; a client-supplied id is overwritten"""
    world = World()
    client = world.register("n", info={"id": "mine", "colour": ["red", None], "status": "busy"})
    info = info_of(world, client)
    assert info["id"] == client.id != "mine"
    assert info["colour"] == ["red", None] and info["status"] == "busy" and info["name"] == "n"
    assert {key: info[key] for key in INFO} == INFO


def test_the_kernels_word_on_the_peer_is_shown_and_nobody_elses() -> None:
    """design 7 "Claimed pids"; F57, F107"""
    world = World()
    conn = world.connect(PeerCredentials(pid=4711, uid=1000, gid=100))
    session = {**INFO, "name": "n", "peer": {"pid": 1, "uid": 0}}
    registered = only(world.send(conn, type="register", session=session))
    info = info_of(world, Client(world, conn, registered["sessionId"], []))
    assert info["peer"] == {"pid": 4711, "uid": 1000} and info["pid"] == INFO["pid"]
    unknown = world.register("m", info={"peer": {"pid": 1, "uid": 0}})
    assert "peer" not in info_of(world, unknown)


@pytest.mark.parametrize(
    ("wished", "groups", "legacy"),
    [
        ({}, ["default"], "default"),
        ({"groups": []}, ["default"], "default"),
        ({"group": "g"}, ["g"], "g"),
        ({"group": " g "}, ["g"], "g"),
        ({"group": "  "}, ["default"], "default"),
        ({"groups": ["g", " h", "g"]}, ["g", "h"], "g"),
        ({"groups": ["g"], "group": "h"}, ["g", "h"], "h"),
        ({"groups": ["g", "h"], "group": "h"}, ["g", "h"], "h"),
        ({"groups": ["", "h"]}, ["default", "h"], "default"),
        ({"groups": ["g", "AUTO"]}, ["g", "AUTO"], "g"),
    ],
)
def test_memberships_come_from_groups_then_group(wished: dict[str, Any], groups: list[str], legacy: str) -> None:
    """protocol 4.1 effect 2, 6.3: never empty, reserved names are not checked at registration"""
    world = World()
    client = world.register("n", info=wished)
    info = info_of(world, client)
    assert (info["groups"], info["group"]) == (groups, legacy)
    assert only(client.write("leave_group", requestId="q"), "membership_ack")["groups"] == [legacy]


def test_the_home_group_is_the_registration_group_where_one_was_given() -> None:
    """protocol 4.1 effect 3, 6.3"""
    world = World()
    client = world.register("n", info={"groups": ["g", "h"]}, registrationGroup=" home ")
    assert info_of(world, client)["groups"] == ["g", "h"]
    assert only(client.write("leave_group", requestId="q"))["groups"] == ["home"]
    assert info_of(world, client)["group"] == "home"


def test_return_address_and_tokens_are_never_shown() -> None:
    """protocol 6.1: the return address is never shown to peers"""
    world = World()
    client = world.register("n", returnAddress="secret-r", supervisorOwnerToken="secret-t", registrationGroup="home")
    assert "secret" not in repr(info_of(world, client))


# --- registering ----------------------------------------------------------------------------------------


def test_registered_is_the_first_frame_and_tells_what_is_understood() -> None:
    """protocol 5.1"""
    world = World()
    older = world.register("older")
    assert older.first == [
        {
            "type": "registered",
            "sessionId": older.id,
            "acknowledgesPendingStageRoutes": True,
            "brokerStatus": True,
        }
    ]
    newest = world.register("newest", acknowledgesReceipt=True)
    assert only(newest.first)["acknowledgesReceipt"] is True


def test_a_session_is_announced_to_every_other_that_shares_a_group() -> None:
    """protocol 4.1 effect 7, 6.3: once each, and never to itself"""
    world = World()
    both = world.register("both", info={"groups": ["g", "h"]})
    other = world.register("other", info={"group": "elsewhere"})
    control = world.register("control", info={"group": "g", "recipientPurpose": "control"})
    assert both.got() == [], "an internal connection is not announced"
    new = world.register("new", info={"groups": ["g", "h"]})
    joined = only(both.got(), "session_joined")["session"]
    assert joined["id"] == new.id and joined["groups"] == ["g", "h"]
    assert only(control.got(), "session_joined")["session"]["id"] == new.id
    assert new.got() == [] and other.got() == []


def test_the_registration_is_the_only_source_of_purpose() -> None:
    """protocol 6.1, 6.4; F61: presence cannot turn an internal connection into an agent"""
    world = World()
    control = world.register("control", info={"recipientPurpose": "control"})
    agent = world.register("agent")
    assert only(control.write("presence", requestId="q", recipientPurpose="agent"), "presence_ack")
    assert "internal connection" in reason(agent.message(control.id, "m1"))


def test_more_groups_than_the_limit_are_no_registration() -> None:
    """design 4 "Charge before you link": groups 64"""
    world = World(limits=Limits(groups=2))
    world.register("n", info={"groups": ["a", "b"]})
    conn = world.connect()
    assert world.send(conn, type="register", session={**INFO, "groups": ["a", "b", "c"]}) == []
    assert conn in world.destroyed and world.broker.session_count == 1


def test_who_speaks_for_an_address_is_not_found_by_the_name_it_takes() -> None:
    """design section 7, Addresses: of those who act under an address only the holder is found"""
    world = World()
    sender = enter(world, "s")
    desk = holder(world, "desk")
    command = holder(world, "desk", desk.registered["addressToken"], hold="none")
    command.write("presence", name="desk")
    sender.queue("desk", "m1")
    assert [frame["message"]["id"] for frame in desk.mail()] == ["m1"] and command.mail() == []


def test_a_session_that_moves_to_this_machine_is_one() -> None:
    """protocol 6.13: the stand-in gives way to the session itself"""
    cluster = Cluster()
    there = cluster["b"].register("bob", returnAddress="rb")
    cluster.run(cluster["a"].limits.announce_ms)
    cluster.cut("b", leases_end=False)
    here = cluster["a"].register("bob", returnAddress="rb", preferredSessionId=there.id)
    assert here.id == there.id
    sender = cluster["a"].register("s")
    told = sender.message("bob", "m1")
    cluster.run(cluster["a"].limits.look_ms)  # who held the target before is asked, and cannot say
    assert is_delivered([*told, *sender.got()]) and here.texts() == ["x"]
