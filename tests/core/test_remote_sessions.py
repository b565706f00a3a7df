"""Test who is taken to be elsewhere: as their brokers say, whatever order that comes in (protocol 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core.letters import SEND, SendLetter
from intercom.core.peer_records import RemoteName
from intercom.core.records import Arrived, PeerLost, PeerSeen, Post
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import INFO, Client, answers, only, reason
from tests.core.mail import enter
from tests.core.test_abroad import asked, client, confirm, message_in
from tests.core.test_homes import AWAY, asker, claim, holder, send
from tests.core.work import WORKER, coordinator, push, reply, report

LIMITS = Limits()


def listed(cluster: Cluster, who: Client) -> list[tuple[str | None, str | None]]:
    """Return names and machines of those that a session sees beside itself."""
    sessions = only(who.write("list", requestId="1"), "sessions")["sessions"]
    return [(each.get("name"), each.get("node")) for each in sessions if each["id"] != who.id]


def name_of(session_id: str, name: str, broker: str = "c", **more: Any) -> RemoteName:
    """Return a session as its broker tells others of it."""
    info = encode({**INFO, "id": session_id, "name": name})
    return RemoteName(session_id, name, ("default",), "active", IDS[broker], session=info, **more)


def ask_from(session_id: str, to: str, number: int = 99) -> Arrived:
    """Return a question that somebody of the third broker asks a session of the first one."""
    body = {"id": "q", "timestamp": 1, "expectsReply": True, "content": {"text": "why?"}}
    letter = SendLetter("q", to, "mark", f"c.{number}", name_of(session_id, "eve"), Raw(encode(body)), is_ask=True)
    return Arrived(number, IDS["c"], SEND, "d", encode(letter))


# --- who is there ---------------------------------------------------------------------------------------


def test_a_session_that_moves_to_another_machine_is_seen_there_only() -> None:
    """protocol 6.1, 6.13: the machine it left may still speak of it for a moment."""
    cluster = Cluster("abc")
    alice, bob = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    moved = cluster["a"].register("bob", returnAddress="return-bob", preferredSessionId=bob.id)
    told = PeerSeen(IDS["b"], "b", None, tuple(cluster.nodes["b"].names.values()), 1)
    assert moved.id == bob.id and told.names
    for _ in range(2):
        cluster["a"].peer_told(told)
        assert listed(cluster, alice) == [("bob", None)]
    cluster["a"].peer_told(PeerLost(IDS["b"]))
    assert listed(cluster, alice) == [("bob", None)]
    alice.message("bob", "m1", "hello")
    cluster.run()
    assert moved.texts() == ["hello"]


def test_a_machine_that_goes_before_it_says_that_a_session_has_moved_takes_nothing_along() -> None:
    """protocol 6.13"""
    cluster = Cluster("abc")
    alice, bob = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    moved = cluster["a"].register("bob", returnAddress="return-bob", preferredSessionId=bob.id)
    cluster["a"].peer_told(PeerLost(IDS["b"]))
    assert moved.id == bob.id and listed(cluster, alice) == [("bob", None)]


def test_changes_elsewhere_are_seen_here() -> None:
    """protocol 5.21: a name, a status, groups; each once, also of who has no name."""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    nameless = cluster["b"].register(info={"groups": ["default"]})
    cluster.run(LIMITS.announce_ms)
    alice.got()
    bob.write("presence", name="robert", status="busy")
    nameless.write("presence", status="idle")
    cluster.run(LIMITS.announce_ms)
    told = {frame["session"]["id"]: frame["session"] for frame in alice.got() if frame["type"] == "presence_update"}
    assert (told[bob.id]["name"], told[bob.id]["status"]) == ("robert", "busy")
    assert told[nameless.id]["status"] == "idle"
    alice.message("robert", "m1", "hello")
    cluster.run()
    assert bob.texts() == ["hello"]
    assert reason(alice.message("bob", "m2")) == reasons.SESSION_NOT_FOUND


def test_whoever_joins_or_leaves_a_group_elsewhere_is_seen_by_those_in_it() -> None:
    """protocol 6.2"""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice", info={"groups": ["g"]}), client(cluster, "b", "bob")
    assert listed(cluster, alice) == []
    bob.write("join_group", requestId="j", group="g")
    cluster.run(LIMITS.announce_ms)
    assert listed(cluster, alice) == [("bob", "b")]
    bob.write("leave_group", requestId="l", group="g")
    cluster.run(LIMITS.announce_ms)
    assert listed(cluster, alice) == []


def test_who_was_asked_elsewhere_and_will_not_answer_any_more_is_told_of() -> None:
    """protocol 6.4: its execution has ended."""
    cluster = Cluster()
    alice, bob = asked(cluster)
    alice.got()
    bob.write("presence", replyCapability="terminal")
    cluster.run(LIMITS.announce_ms)
    frame = message_in(alice.got())
    assert (frame["message"]["replyTo"], frame["message"]["replyError"]) == ("q", reasons.TERMINAL)
    assert frame["from"]["name"] == "bob"


# --- one address is one target --------------------------------------------------------------------------


def holder_of(session_id: str, broker: str = "c", name: str = "bob", *, is_old: bool = False) -> RemoteName:
    """Return a session that holds the address ``bob``, as its broker tells others of it."""
    place = None if is_old else ("default", "bob")
    return name_of(session_id, name, broker, is_address=True, address=place, home_group="default")


def reaches(cluster: Cluster, sender: Client, to: str, whom: Client, number: int = 1) -> bool:
    """Tell whether a message comes to somebody."""
    assert answers(sender.message(to, f"m{number}", f"m{number}", extra=AWAY)) == []
    cluster.run()
    return whom.texts() == [f"m{number}"]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_name_means_who_holds_the_address_here_while_an_earlier_holder_is_still_told_of(is_old: bool) -> None:
    """protocol 6.13: an address has one holder; of a broker that does not say which one is held, its group says so."""
    cluster = Cluster("abc")
    alice = asker(cluster)
    bob = holder(cluster, "a")
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (holder_of("old", is_old=is_old),), 1))
    assert set(listed(cluster, alice)) == {("bob", "c"), ("bob", None)}, "both are told of"
    assert reaches(cluster, alice, "bob", bob)


def test_a_name_means_the_newest_of_whom_others_tell_that_it_holds_an_address_at_home_here() -> None:
    """protocol 6.13: that its home has moved is told in a moment."""
    cluster = Cluster("abc")
    alice, bob = asker(cluster), holder(cluster, "a")
    bob.leave()
    cluster.run(LIMITS.announce_ms)
    for broker in "bc":
        cluster["a"].peer_told(PeerSeen(IDS[broker], broker, None, (holder_of(f"at-{broker}", broker),), 1))
    assert answers(alice.message("bob", "m1", extra=AWAY)) == []
    assert [work.peer for work in cluster["a"].peer_work if isinstance(work, Post)] == [IDS["c"]]


def test_namesakes_that_hold_addresses_of_two_groups_are_still_two() -> None:
    """protocol 4.8 E5: never guess."""
    cluster = Cluster("abc")
    alice = asker(cluster)
    holder(cluster, "a")
    other = name_of("x", "bob", is_address=True, address=("team", "bob"))
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (other,), 1))
    assert "Multiple sessions named" in reason(alice.message("bob", "m1"))


def test_who_goes_by_the_name_and_holds_another_address_does_not_hold_the_name() -> None:
    """protocol 6.2: whoever holds the address of a name has more of it than others who call themselves so."""
    cluster = Cluster("abc")
    alice, bob = asker(cluster), holder(cluster, "a")
    other = name_of("x", "bob", is_address=True, address=("default", "robert"))
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (other,), 1))
    assert reaches(cluster, alice, "bob", bob)


def test_of_two_of_whom_a_broker_tells_that_they_hold_an_address_the_newer_one_is_there() -> None:
    """protocol 6.13: that the earlier one has left is told a moment later; nobody comes or goes again for it."""
    cluster = Cluster("abc")
    alice = asker(cluster)
    seen = (holder_of("old"),)
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, seen, 1))
    alice.got()
    for status in ("idle", "busy"):
        newer = replace(holder_of("new"), session=encode({**INFO, "id": "new", "name": "bob", "status": status}))
        cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (*seen, newer), 1))
    came = [(frame["type"], frame.get("sessionId") or frame["session"]["id"]) for frame in alice.got()]
    assert sorted(came) == [("presence_update", "new"), ("session_joined", "new"), ("session_left", "old")]
    assert listed(cluster, alice) == [("bob", "c")]


def test_who_held_an_address_elsewhere_before_does_not_take_it_from_whoever_holds_it_at_its_home() -> None:
    """protocol 6.13: what a third machine still says of it changes nothing."""
    cluster = Cluster("abc")
    alice, bob = asker(cluster), holder(cluster, "b")
    assert listed(cluster, alice) == [("bob", "b")]
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (holder_of("old"),), 1))
    assert ("bob", "b") in listed(cluster, alice)
    assert reaches(cluster, alice, "bob", bob)
    cluster["a"].peer_told(PeerSeen(IDS["c"], "c", None, (), 1))
    assert listed(cluster, alice) == [("bob", "b")]


# --- who is known by what it sent -----------------------------------------------------------------------


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_an_asker_its_broker_has_not_told_of_is_there_for_its_question(is_confirmed: bool) -> None:
    """protocol 6.13: for ``Limits.peer_confirm_ms``, or as its broker says by then."""
    cluster = Cluster("abc")
    alice = client(cluster, "a", "alice")
    cluster.run(LIMITS.peer_return_ms)
    alice.got()
    world = cluster["a"]
    world.peer_told(ask_from("eve-1", alice.id))
    cluster.run()
    assert message_in(alice.got())["from"]["id"] == "eve-1"
    world.peer_told(PeerSeen(IDS["c"], "c", None, (), 1))
    assert listed(cluster, alice) == [("eve", "c")]
    if is_confirmed:
        world.peer_told(PeerSeen(IDS["c"], "c", None, (name_of("eve-1", "eve"),), 1))
    world.pass_time(LIMITS.peer_confirm_ms)
    assert listed(cluster, alice) == ([("eve", "c")] if is_confirmed else [])


# --- who was there --------------------------------------------------------------------------------------


def test_who_was_elsewhere_is_found_by_its_id_and_two_of_a_name_by_nothing_else() -> None:
    """protocol 4.8 E3: mail waits for one that is away; several are ambiguous."""
    cluster = Cluster()
    alice = asker(cluster)
    first, second = client(cluster, "b", "bob"), client(cluster, "b", "bob")
    cluster.cut("b")
    assert send(cluster, alice, "m1", first.id) == "queued"
    answer = reason(alice.message("bob", "m2", extra=AWAY))
    assert first.id in answer and second.id in answer
    cluster.join("b")
    assert first.texts() == ["m1"] and second.texts() == []


def test_of_too_many_that_were_elsewhere_the_first_to_go_is_forgotten() -> None:
    """Charge before you link"""
    cluster = Cluster(limits=Limits(peer_sessions=2))
    alice = asker(cluster)
    gone = []
    for name in ("bob", "carol", "dora"):
        session = client(cluster, "b", name)
        session.leave()
        cluster.run(2 * LIMITS.announce_ms)
        gone.append(session.id)
    assert reason(alice.message(gone[0], "m1", extra=AWAY)) == reasons.SESSION_NOT_FOUND
    assert [send(cluster, alice, f"n{number}", gone[number]) for number in (1, 2)] == ["queued"] * 2


def test_an_asker_that_came_back_on_another_machine_has_not_left_with_its_broker() -> None:
    """protocol 6.5: whoever has its question is not told that it was taken back."""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    alice.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, bob, "q")
    cluster.crash("a", "given back")
    members = {"returnAddress": "return-alice", "acknowledgesReceipt": True}
    moved = cluster["b"].register("alice", preferredSessionId=alice.id, **members)
    assert moved.id == alice.id
    cluster.run(LIMITS.dormant_target_ms)
    assert [frame for frame in bob.got() if frame["type"] == "question_withdrawn"] == []


def test_what_waits_for_a_session_waits_for_its_address_when_that_turns_out_to_be_known() -> None:
    """protocol 6.13: the session came to act for an address that is at home here, as far as is known."""
    cluster = Cluster("abc")
    claim(cluster, "a").leave()
    alice = asker(cluster)
    world = cluster["a"]
    holder = name_of("eve-1", "eve", address=("default", "bob"))
    world.peer_told(PeerSeen(IDS["c"], "c", None, (name_of("eve-1", "eve"),), 1))
    assert ("eve", "c") in listed(cluster, alice)
    cluster.cut("a", leases_end=False)
    assert only(answers(alice.message("eve-1", "m1", "m1", extra=AWAY)))["type"] == "queued"
    world.peer_told(PeerLost(IDS["c"]))
    world.peer_told(PeerSeen(IDS["c"], "c", None, (holder,), 1))
    world.auto = False
    world.peer_told(PeerLost(IDS["c"]))
    world.fail_commit()
    world.auto = True
    world.settle()
    [row] = world.disk.mail.values()
    assert row.mailbox.endswith("eve-1"), "what was not recorded is taken back"
    world.peer_told(PeerSeen(IDS["c"], "c", None, (holder,), 1))
    world.peer_told(PeerLost(IDS["c"]))
    [row] = world.disk.mail.values()
    address = world.broker._registry.addresses.at("default", "bob")
    assert address is not None and row.mailbox == address.key


def test_the_reply_to_handed_over_work_follows_its_asker_to_its_address() -> None:
    """protocol 10.7, 6.13: it has no row of its own, and waits as mail like any other"""
    cluster = Cluster("abc")
    claim(cluster, "a").leave()
    world = cluster["a"]
    worker, boss = enter(world, "worker", features=(*WORKER, "inbox"), workMode="resident"), coordinator(world)
    cluster.run(LIMITS.peer_return_ms)
    asker = name_of("eve-1", "eve", address=("default", "bob"))
    world.peer_told(PeerSeen(IDS["c"], "c", None, (asker,), 1))
    body = {"id": "m1", "timestamp": 1, "content": {"text": "do it"}}
    letter = SendLetter("m1", worker.id, "mark", "c.1", asker, Raw(encode(body)), may_queue=True)
    world.peer_told(Arrived(99, IDS["c"], SEND, "d", encode(letter)))
    worker.got()
    assignment = push(world, boss, worker)
    report(worker, assignment, "accepted")
    cluster.cut("a", leases_end=False)
    reply(worker, assignment)
    [before] = world.disk.mail.values()
    world.peer_told(PeerLost(IDS["c"]))
    [after] = world.disk.mail.values()
    assert before.mailbox.endswith("eve-1") and after.mailbox.startswith("address:")
