"""Test messages between brokers: two cores, and an engine that is played (protocol 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode

from intercom.core.letters import (
    NOTICE,
    OUTCOME,
    SEND,
    WITHDRAWN,
    NoticeLetter,
    OutcomeLetter,
    SendLetter,
    WithdrawnLetter,
)
from intercom.core.peer_records import AddressHome, AddressSeen, RemoteName
from intercom.core.records import Arrived, PeerLost, Post, Settle
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import Client, answers, only, reason
from tests.core.mail import Agent, enter, reattach
from tests.core.work import WORKER, coordinator, push, reply, report

QUEUE = {"features": ["queue", "session.lifecycle", "push.receipts"], "clientProtocolVersion": "1.0", "kind": "custom"}


def client(cluster: Cluster, broker: str, name: str, **more: Any) -> Client:
    found = cluster[broker].register(name, returnAddress=f"return-{name}", acknowledgesReceipt=True, **more)
    cluster.run(Limits().announce_ms)
    return found


def message_in(frames: list[dict[str, Any]]) -> dict[str, Any]:
    return only([frame for frame in frames if frame["type"] == "message"])


def sent(cluster: Cluster, who: Client, to: str, message_id: str, text: str = "x", **more: Any) -> list[dict[str, Any]]:
    """Send a message, let everything move, and return the answers to it."""
    frames = who.message(to, message_id, text, **more)
    cluster.run()
    return answers([*frames, *who.got()])


def confirm(cluster: Cluster, who: Client, message_id: str) -> None:
    who.write("received", messageId=message_id)
    cluster.run()


def test_sessions_of_all_machines_see_each_other_come_and_go() -> None:
    """They are listed with their node, and their groups wall them off as everywhere."""
    cluster = Cluster()
    a = client(cluster, "a", "alice", info={"node": "forged"})
    b = client(cluster, "b", "bob")
    assert [frame["session"]["name"] for frame in a.got() if frame["type"] == "session_joined"] == ["bob"]
    client(cluster, "b", "carol", info={"groups": ["other"]})
    listed = only(a.write("list", requestId="1"), "sessions")["sessions"]
    assert [(each["name"], each.get("node")) for each in listed] == [("alice", None), ("bob", "b")]
    b.leave()
    cluster.run(2 * Limits().announce_ms)
    assert [frame["sessionId"] for frame in a.got() if frame["type"] == "session_left"] == [b.id]


def test_a_message_is_delivered_when_its_recipient_confirmed_it() -> None:
    """B is the authority; A commits the outcome, then answers (protocol 6.13)."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "hello")
    cluster.run()
    frame = message_in(b.got())
    assert frame["message"]["content"]["text"] == "hello"
    assert (frame["from"]["name"], frame["from"]["node"], frame["from"]["id"]) == ("alice", "a", a.id)
    assert answers(a.got()) == []
    confirm(cluster, b, "m1")
    assert only(answers(a.got()))["type"] == "delivered"
    assert only(sent(cluster, a, "bob", "m1", "hello"))["type"] == "delivered" and b.texts() == []


def test_an_answer_comes_although_its_question_could_not_be_asked_again_meanwhile() -> None:
    """6.10.6: the ask was shown late, and while it was answered its sender was kept from trying it again."""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    cluster.cut("b", leases_end=False)
    alice.ask("bob", "q")
    cluster.run(Limits().receipt_wait_ms)
    assert reason(alice.got()) == reasons.RECEIPT_MISSING
    cluster.cut("a", leases_end=False)
    assert reason(alice.ask("bob", "q")) == reasons.unconfirmed(reasons.CLUSTER_UNAVAILABLE_TO_ASK)
    cluster.join("a")
    cluster.join("b")
    assert message_in(bob.got())["message"]["id"] == "q"
    confirm(cluster, bob, "q")
    bob.reply(alice.id, "r", "q", "because")
    cluster.run()
    told = [frame for frame in alice.got() if frame["type"] in ("question_target", "message")]
    assert [frame["type"] for frame in told] == ["question_target", "message"]
    assert (told[0]["sessionId"], told[1]["message"]["replyTo"]) == (bob.id, "q")
    confirm(cluster, alice, "r")
    assert only(answers(bob.got()))["type"] == "delivered"
    assert reason(bob.reply(alice.id, "r2", "q", "again")) == reasons.NO_OPEN_QUESTION


def test_ask_and_reply() -> None:
    """The open question exists at both brokers."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    a.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, b, "q")
    assert only(answers(a.got()))["type"] == "delivered"
    b.got()
    b.reply(a.id, "r", "q", "because")
    cluster.run()
    reply = message_in(a.got())
    assert (reply["message"]["replyTo"], reply["message"]["content"]["text"]) == ("q", "because")
    confirm(cluster, a, "r")
    assert only(answers(b.got()))["type"] == "delivered"
    assert reason(b.reply(a.id, "r2", "q", "again")) == reasons.NO_OPEN_QUESTION


def test_who_is_meant_is_decided_as_everywhere() -> None:
    """A name here and there is ambiguous; ``name@node`` picks one; another group is refused; ids lead on."""
    cluster = Cluster()
    a = client(cluster, "a", "alice")
    here, there = client(cluster, "a", "bob"), client(cluster, "b", "bob")
    said = reason(a.message("bob", "m1"))
    assert said == 'Multiple sessions named "bob" are connected. Use bob@a, bob@b or the session ID instead.'
    assert reasons.code_of(said) == "ambiguous"
    a.message("bob@b", "m2", "there")
    a.message("Bob@A", "m3", "here")
    cluster.run()
    assert (here.texts(), there.texts()) == (["here"], ["there"])
    assert reason(a.message("bob@c", "m4")) == reasons.SESSION_NOT_FOUND
    other = client(cluster, "b", "dora", info={"groups": ["other"]})
    assert reason(a.message(other.id, "m5")) == reasons.DIFFERENT_GROUP


def test_whoever_has_just_joined_a_group_is_judged_as_a_member_of_it() -> None:
    """protocol 6.13.2: its broker answers for that, and says so with the message before it tells everybody."""
    cluster = Cluster()
    a = client(cluster, "a", "alice")
    b = client(cluster, "b", "bob", info={"groups": ["team"]})
    a.got()
    a.write("join_group", requestId="j", group="team")
    a.ask("bob", "q1", "why?")
    cluster.run()
    assert message_in(b.got())["message"]["id"] == "q1"
    confirm(cluster, b, "q1")
    assert only(answers(a.got()))["type"] == "delivered"
    cluster.run(Limits().announce_ms)
    b.reply(a.id, "r1", "q1")
    cluster.run()
    assert message_in(a.got())["message"]["replyTo"] == "q1"
    confirm(cluster, a, "r1")
    a.write("leave_group", requestId="l", group="team")
    assert reason(a.message(b.id, "m2")) == reasons.DIFFERENT_GROUP


def test_the_other_broker_judges_again() -> None:
    """B is the authority: what A does not know, such as a policy, is refused there with the reason told here."""
    cluster = Cluster()
    a = client(cluster, "a", "alice")
    b = client(
        cluster,
        "b",
        "bob",
        **{**QUEUE, "features": [*QUEUE["features"], "policy"]},
        info={"inboundPolicy": {"rules": [{"action": "refuse"}]}},
    )
    a.message("bob", "m1")
    cluster.run()
    assert reason(a.got()) == reasons.REFUSED_BY_POLICY and b.texts() == []


def test_without_an_outcome_the_sender_is_told_that_it_is_not_known_and_may_retry() -> None:
    """8 s without an outcome: not confirmed; the same id may be sent again, and arrives once."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    cluster.cut("b", leases_end=False)
    a.message("bob", "m1", "once")
    cluster.run(Limits().receipt_wait_ms)
    assert reason(a.got()) == reasons.RECEIPT_MISSING
    a.message("bob", "m1", "once")
    cluster.join("b")
    assert b.texts() == ["once"] or b.texts() == []
    confirm(cluster, b, "m1")
    assert only(answers(a.got()))["type"] == "delivered"


def test_who_waits_for_a_machine_that_is_lost_is_told_when_its_lease_has_ended() -> None:
    """A lost lease gives the asker ``peer_disconnected``, not before."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    a.ask("bob", "q")
    cluster.run()
    confirm(cluster, b, "q")
    a.got()
    cluster.cut("b", leases_end=False)
    assert a.got() == []
    cluster.end_leases("b")
    assert only(a.got(), "peer_disconnected")["replyTo"] == "q"


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_answer_that_is_given_while_the_engine_is_gone_arrives_when_it_is_back(is_killed: bool) -> None:
    """protocol 6.13.4, 9.5.2: queued, counts as the answer, arrives once; without leave to wait it is refused"""
    cluster = Cluster()
    alice, bob = asked(cluster)
    cluster.cut("b", leases_end=False)
    assert reason(bob.reply(alice.id, "r0", "q", "because")) == reasons.CLUSTER_UNAVAILABLE
    may_wait = {"requirePendingReply": True, "queueIfAway": True}
    assert only(answers(bob.message(alice.id, "r", "because", extra=may_wait, replyTo="q")))["type"] == "queued"
    assert reason(bob.reply(alice.id, "r2", "q", "again")) == reasons.NO_OPEN_QUESTION
    if is_killed:
        cluster.crash("b", "renewed")
    else:
        cluster.join("b")
    message = message_in(alice.got())["message"]
    assert (message["id"], message["replyTo"], message["content"]["text"]) == ("r", "q", "because")
    confirm(cluster, alice, "r")
    assert not cluster["b"].disk.mail and alice.texts() == []
    assert reason(alice.ask("bob", "q", "why?")) == reasons.ALREADY_ANSWERED


REPLACED: tuple[Any, ...] = ("renewed", "given back")
"""What becomes of the lease of a broker that is killed, or stopped, and begins anew at once."""


def asked(cluster: Cluster) -> tuple[Agent, Agent]:
    """Return an asker at the first broker and who has its question at the second; both hold no address."""
    alice, bob = enter(cluster["a"], "alice"), enter(cluster["b"], "bob")
    cluster.run(Limits().announce_ms)
    alice.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, bob, "q")
    alice.got(), bob.got()
    return alice, bob


def again(cluster: Cluster, broker: str, who: Agent, name: str) -> Agent:
    """Register anew after the death of the broker, as the same session."""
    back = enter(
        cluster[broker], name, preferredSessionId=who.id, ownerToken=who.token, returnAddress=f"return-{who.conn}"
    )
    assert back.id == who.id
    return back


def assert_answered(cluster: Cluster, alice: Agent, bob: Agent) -> None:
    bob.reply(alice.id, "r", "q", "because")
    cluster.run()
    frames = [*alice.first, *alice.got()]
    assert [frame for frame in frames if frame["type"] == "peer_disconnected"] == []
    message = message_in(frames)["message"]
    assert (message["replyTo"], message["content"]["text"]) == ("q", "because")
    confirm(cluster, alice, "r")
    assert only(answers(bob.got()))["type"] == "delivered"
    assert reason(bob.reply(alice.id, "r2", "q", "again")) == reasons.NO_OPEN_QUESTION


@pytest.mark.parametrize("lease", REPLACED)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_question_survives_the_broker_of_who_was_asked(lease: Any, is_known: bool) -> None:
    """protocol 6.13.3, 6.5: nothing is told while it begins anew; the answer may come before its sender is known."""
    cluster = Cluster()
    alice, bob = asked(cluster)
    cluster.crash("b", lease)
    assert {frame["type"] for frame in alice.got()} <= {"session_left"}
    bob = again(cluster, "b", bob, "bob")
    if is_known:
        cluster.run(Limits().announce_ms)
    assert_answered(cluster, alice, bob)


@pytest.mark.parametrize("lease", REPLACED)
@pytest.mark.parametrize("repeats", [True, False])
def test_a_question_survives_the_broker_of_who_asked(lease: Any, repeats: bool) -> None:
    """protocol 6.13.3, 6.5: who was asked hears nothing meanwhile, and answers who is back"""
    cluster = Cluster()
    alice, bob = asked(cluster)
    cluster.crash("a", lease)
    alice = again(cluster, "a", alice, "alice")
    told = alice.ask("bob", "q", "why?") if repeats else []
    cluster.run(Limits().announce_ms)
    assert [frame["type"] for frame in bob.got() if frame["type"] == "question_withdrawn"] == []
    assert [frame["type"] for frame in answers(told)] == ["delivered"] * repeats
    assert_answered(cluster, alice, bob)


@pytest.mark.parametrize("lease", REPLACED)
def test_who_does_not_come_back_with_its_broker_has_left(lease: Any) -> None:
    """protocol 6.5, 6.13.3: after ``Limits.dormant_target_ms`` on both sides"""
    cluster = Cluster()
    alice, _ = asked(cluster)
    cluster.crash("b", lease)
    cluster.run(Limits().dormant_target_ms - 1)
    assert [frame for frame in alice.got() if frame["type"] == "peer_disconnected"] == []
    cluster.run(1)
    assert only(alice.got(), "peer_disconnected")["replyTo"] == "q"
    cluster = Cluster()
    _, bob = asked(cluster)
    cluster.crash("a", lease)
    cluster.run(Limits().dormant_target_ms - 1)
    assert [frame for frame in bob.got() if frame["type"] == "question_withdrawn"] == []
    cluster.run(1)
    assert only([frame for frame in bob.got() if frame["type"] == "question_withdrawn"])["messageId"] == "q"


def test_what_may_wait_for_a_machine_that_is_away_arrives_once_when_it_is_back() -> None:
    """Away with ``queueIfAway``: queued at once; without: refused, code away."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    cluster.cut("b")
    assert reason(a.message("bob", "m0")) == reasons.away_unqueued("bob")
    assert only(answers(a.message("bob", "m1", "later", extra={"queueIfAway": True})))["type"] == "queued"
    assert only(answers(a.message("bob@b", "m2", "then", extra={"queueIfAway": True})))["position"] == 2
    traced = only(a.write("trace", requestId="1", messageId="m1"))
    assert f"session {b.id} on b" in traced["where"]
    cluster.join("b")
    assert b.texts() == ["later", "then"]
    confirm(cluster, b, "m1")
    confirm(cluster, b, "m2")
    assert only(answers(a.message("bob", "m1", "later", extra={"queueIfAway": True})))["type"] == "delivered"
    assert b.texts() == []


def test_what_waits_survives_the_death_of_either_broker() -> None:
    """A killed with mail that waits, B killed before it settled: once at the target, in order."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    cluster.cut("b")
    a.message("bob", "m1", "later", extra={"queueIfAway": True})
    cluster.crash("a")
    cluster.join("b")
    assert b.texts() == ["later"]
    confirm(cluster, b, "m1")
    assert not cluster.nodes["a"].world.disk.mail


def test_while_the_engine_cannot_be_reached_what_may_wait_waits_and_the_rest_is_refused() -> None:
    """Engine unreachable: queued, or ``cluster_unavailable``; local delivery never waits."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    near = client(cluster, "a", "near")
    cluster.cut("a", leases_end=False)
    assert reason(a.message("bob", "m1")) == reasons.CLUSTER_UNAVAILABLE
    assert reason(a.ask("bob", "q", extra={"queueIfAway": True})) == reasons.CLUSTER_UNAVAILABLE_TO_ASK
    assert only(answers(a.message("bob", "m2", "later", extra={"queueIfAway": True})))["type"] == "queued"
    a.message("near", "m3", "at once")
    assert near.texts() == ["at once"]
    cluster.join("a")
    assert b.texts() == ["later"]


@pytest.mark.parametrize("is_ask", [False, True])
def test_what_may_have_arrived_stays_in_doubt_while_the_engine_cannot_be_reached(is_ask: bool) -> None:
    """D13, 6.9.2: it went out before, and is or may be shown there; only what never went out was not sent."""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    more: dict[str, Any] = {"expectsReply": True} if is_ask else {}
    assert sent(cluster, alice, "bob", "m1", **more) == []
    cluster.run(Limits().receipt_wait_ms)
    assert reason(alice.got()) == reasons.RECEIPT_MISSING
    cluster.cut("a", leases_end=False)
    unavailable = reasons.CLUSTER_UNAVAILABLE_TO_ASK if is_ask else reasons.CLUSTER_UNAVAILABLE
    assert reason(alice.message("bob", "m1", **more)) == reasons.unconfirmed(unavailable)
    assert reason(alice.message("bob", "m2", **more)) == unavailable
    cluster.join("a")
    assert bob.texts() == ["x"]
    bob.write("received", messageId="m1")
    cluster.run()
    alice.got()
    assert only(sent(cluster, alice, "bob", "m1", **more))["type"] == "delivered"
    assert bob.texts() == []


@pytest.mark.parametrize("is_ask", [False, True])
@pytest.mark.parametrize("is_received", [False, True])
def test_who_repeats_after_the_broker_began_anew_without_the_engine_is_not_told_not_found(
    is_ask: bool, is_received: bool
) -> None:
    """D13, 6.9.2: the new process does not know who is on other machines, but what went there it has on disk."""
    cluster = Cluster()
    alice, bob = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    more: dict[str, Any] = {"expectsReply": True} if is_ask else {}
    assert sent(cluster, alice, "bob", "m1", **more) == []
    if is_received:
        confirm(cluster, bob, "m1")
    cluster.crash("a", is_cut=True)
    alice = client(cluster, "a", "alice", preferredSessionId=alice.id, **QUEUE)
    told = only(answers(alice.message("bob", "m1", **more)))
    if is_received and not is_ask:
        assert told["type"] == "delivered"
    else:
        assert told["reason"] == (reasons.QUESTION_OUT_OF_REACH if is_received else reasons.RECEIPT_MISSING)
    assert reason(alice.message("bob", "m2", **more)) == reasons.SESSION_NOT_FOUND
    cluster.join("a")
    cluster.run(Limits().announce_ms)
    assert set(bob.texts()) == (set() if is_received else {"x"}), "until it is confirmed it may come again"
    if not is_received:
        bob.write("received", messageId="m1")
        cluster.run()
    alice.got()
    assert only(sent(cluster, alice, "bob", "m1", **more))["type"] == "delivered"
    assert bob.texts() == []


def test_a_command_that_has_ended_when_its_message_arrives_has_sent_it_all_the_same() -> None:
    """Who sends may be a session for a moment, of which the other broker never heard."""
    cluster = Cluster()
    b = client(cluster, "b", "bob")
    a = cluster["a"].register("hasty")
    a.message("bob", "m1", "bye")
    a.leave()
    cluster.run()
    assert b.texts() == ["bye"]


@pytest.mark.parametrize("killed", ["a", "b"])
@pytest.mark.parametrize(
    "when", ["before it is posted", "before it arrives", "before the receipt", "before the outcome"]
)
def test_a_broker_that_is_killed_in_the_middle_costs_nothing_and_nothing_comes_twice(killed: str, when: str) -> None:
    """F123: once at the target, and a true answer to a retry under the same id."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once")
    if when == "before it arrives":
        cluster._take_work(cluster.nodes["a"])
    elif when != "before it is posted":
        cluster.run()
        assert b.texts() == ["once"]
    if when == "before the outcome":
        b.write("received", messageId="m1")
    cluster.crash(killed)
    if killed == "a":
        a = client(cluster, "a", "alice", preferredSessionId=a.id)
    else:
        b = client(cluster, "b", "bob", preferredSessionId=b.id)
    told = sent(cluster, a, "bob", "m1", "once")
    assert set(b.texts()) <= {"once"}, "it may be shown again under its id until it was confirmed"
    confirm(cluster, b, "m1")
    told += answers(a.got())
    assert {each["type"] for each in told} == {"delivered"}, told
    assert only(sent(cluster, a, "bob", "m1", "once"))["type"] == "delivered"
    assert b.texts() == []


def test_the_report_tells_how_much_has_no_outcome() -> None:
    """protocol 6.14"""
    cluster = Cluster()
    a = client(cluster, "a", "alice")
    client(cluster, "b", "bob")
    a.message("bob", "m1")
    cluster.run()
    [told] = cluster["a"].send(cluster["a"].connect(), type="broker_status", requestId="1")
    report = told["report"]
    assert report["multiNode"]["outbox"] == 1 and report["multiNode"]["peers"][0]["brokerId"] == IDS["b"]
    assert report["sessions"] == 1


def test_who_leaves_as_soon_as_it_has_the_answer_was_answered() -> None:
    """The departure of an asker may overtake the outcome of the reply: it was delivered all the same."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob", **QUEUE)
    a.ask("bob", "q")
    cluster.run()
    confirm(cluster, b, "q")
    b.message(a.id, "r", "!", extra={"queueIfAway": True}, replyTo="q")
    cluster.run()
    a.write("received", messageId="r")
    held = cluster["a"].peer_work[:]
    del cluster["a"].peer_work[:]
    a.leave()
    cluster.run(2 * Limits().announce_ms)
    assert cluster["b"].disk.mail, "it waits for who has left"
    cluster["a"].peer_work[:0] = held
    cluster.run()
    assert not cluster["b"].disk.mail
    b.got()
    retried = b.message(a.id, "r", "!", extra={"queueIfAway": True}, replyTo="q")
    assert only(answers(retried))["type"] == "delivered"


def test_two_of_a_name_on_one_machine_are_ambiguous_there_too() -> None:
    """protocol 6.13: ``name@node`` names a machine, and on it whoever is meant"""
    cluster = Cluster()
    a = client(cluster, "a", "alice")
    for _ in range(2):
        cluster["b"].register("bob", returnAddress="return-bob")
    cluster.run(Limits().announce_ms)
    assert reason(a.message("bob@b", "m1")) == reasons.ambiguous_name("bob@b")
    cluster["a"].register("bob", returnAddress="return-bob")
    assert reason(a.message("bob", "m2")) == reasons.ambiguous_name("bob", ["bob@a"]), "what leads to one alone"


def test_what_is_sent_to_a_worker_elsewhere_is_parked_there_and_its_reply_comes_back() -> None:
    """Chapter 10 across machines: the inbox is at the broker of the worker, and the answer goes where it was asked."""
    cluster = Cluster()
    a = client(cluster, "a", "alice", **QUEUE)
    worker = enter(cluster["b"], "worker", features=(*WORKER, "inbox"), workMode="resident")
    boss = coordinator(cluster["b"])
    cluster.run(Limits().announce_ms)
    [answer] = sent(cluster, a, "worker", "m1", "do it", extra={"queueIfAway": True})
    assert answer["type"] == "queued"
    a.got()
    assignment = push(cluster["b"], boss, worker)
    report(worker, assignment, "accepted")
    assert reply(worker, assignment)["status"] == "sent"
    cluster.run()
    answered = message_in(a.got())
    assert (answered["message"]["content"]["text"], answered["message"]["replyTo"]) == ("done", "m1")
    confirm(cluster, a, answered["message"]["id"])
    assert cluster["b"].disk.mail == {}


# --- what else is brought ------------------------------------------------------------------------------


def two(names: str = "ab", **limits: Any) -> tuple[Cluster, Agent, Agent]:
    """Return a cluster that has run for a while, with a session at each of the first two brokers."""
    more: dict[str, Any] = {"limits": Limits(**limits)} if limits else {}
    cluster = Cluster(names, **more)
    alice, bob = enter(cluster["a"], "alice"), enter(cluster["b"], "bob")
    cluster.run(Limits().peer_return_ms)
    alice.got(), bob.got()
    return cluster, alice, bob


def come_back(cluster: Cluster, session: Agent) -> Agent:
    """Let a session of the second broker reattach, and everybody hear of it."""
    back = reattach(cluster["b"], session)
    cluster.run(Limits().announce_ms)
    return back


def test_who_was_asked_elsewhere_hears_that_the_question_was_taken_back() -> None:
    """protocol 5.42, 6.13"""
    cluster, alice, bob = two()
    alice.ask("bob", "q1")
    cluster.run()
    confirm(cluster, bob, "q1")
    bob.got()
    alice.write("cancel_ask", messageId="q1")
    cluster.run()
    withdrawn = only([frame for frame in bob.got() if frame["type"] == "question_withdrawn"])
    assert (withdrawn["messageId"], withdrawn["sessionId"]) == ("q1", alice.id)
    assert reason(bob.reply(alice.id, "r1", "q1")) == reasons.NO_OPEN_QUESTION


def test_nobody_takes_back_what_a_session_of_another_broker_asked() -> None:
    """protocol 6.13: only the broker of the asker speaks for it"""
    cluster, alice, bob = two()
    alice.ask("bob", "q1")
    cluster.run()
    confirm(cluster, bob, "q1")
    bob.got()
    body = encode(WithdrawnLetter("q1", alice.id))
    cluster["b"].peer_told(Arrived(99, IDS["c"], WITHDRAWN, "x", body))
    assert [frame for frame in bob.got() if frame["type"] == "question_withdrawn"] == []


def test_a_sender_elsewhere_hears_that_its_message_expired() -> None:
    """F87, protocol 9.5.6: once, wherever it is"""
    cluster, alice, bob = two()
    alice.queue("bob", "m1", validFor=60_000)
    bob.leave()
    cluster.run()
    assert only(answers(alice.got()))["type"] == "queued"
    cluster.run(60_000)
    [notice] = [frame for frame in alice.got() if frame["type"] == "message"]
    assert (notice["notice"]["kind"], notice["notice"]["messageId"]) == ("expired", "m1")


def test_how_long_a_message_is_of_use_is_told_elsewhere_too() -> None:
    """protocol 9.5.5: live, and after it waited here"""
    cluster, alice, bob = two()
    alice.message("bob", "m1", extra={"validFor": 60_000})
    cluster.run()
    assert message_in(bob.got())["validUntil"] == cluster["b"].wall + 60_000
    confirm(cluster, bob, "m1")
    alice.got()
    cluster.cut("b")
    alice.queue("bob", "m2", validFor=60_000)
    cluster.run(10_000)
    cluster.join("b")
    assert message_in(bob.got())["validUntil"] <= cluster["b"].wall + 60_000


@pytest.mark.parametrize("kind", [SEND, OUTCOME, WITHDRAWN, NOTICE, "of a later version"])
def test_what_cannot_be_read_is_let_go_of(kind: str) -> None:
    """protocol 6.13: it would come again for ever"""
    cluster, _, _ = two()
    cluster["b"].peer_told(Arrived(99, IDS["a"], kind, "x", b"{"))
    assert [work for work in cluster["b"].peer_work if isinstance(work, Settle)] == [Settle(99)]


def posted_mail(**validity: int) -> tuple[Cluster, Agent, Agent]:
    """Return a cluster in which a message that waited for another machine is on its way there."""
    cluster, alice, bob = two()
    cluster.cut("b")
    assert only(answers(alice.queue("bob", "m1", "later", **validity)))["type"] == "queued"
    cluster._connect(cluster.nodes["b"])
    world = cluster["a"]
    while world.reads:
        world.read()
    world.settle()
    return cluster, alice, bob


def test_mail_whose_recipient_left_before_it_came_waits_here_and_comes_when_it_is_back() -> None:
    """protocol 6.13: code away"""
    cluster, alice, bob = posted_mail()
    bob.leave()
    cluster.run()
    assert len(cluster["a"].disk.mail) == 1
    back = come_back(cluster, bob)
    cluster.run(2 * Limits().peer_absent_ms)
    frames = [frame for frame in [*back.first, *back.got()] if frame["type"] == "message"]
    assert [frame["message"]["id"] for frame in frames] == ["m1"]
    confirm(cluster, back, "m1")
    assert cluster["a"].disk.mail == {} and alice.mail() == []


def test_mail_that_is_of_no_use_by_the_time_it_could_not_be_given_is_told_so() -> None:
    """F87: expired, once"""
    cluster, alice, bob = posted_mail(validFor=1_000)
    bob.leave()
    cluster.run()
    cluster.run(2 * Limits().peer_absent_ms)
    [notice] = alice.mail()
    assert notice["notice"]["kind"] == "expired" and notice["notice"]["messageId"] == "m1"


def test_mail_for_a_session_that_is_gone_for_good_is_given_up() -> None:
    """protocol 6.13: the broker of the recipient knows that nobody is there under that id; the sender is told"""
    cluster, alice, bob = two()
    cluster.cut("b")
    alice.queue("bob", "m1", "later")
    bob.write("unregister")
    another = enter(cluster["b"], "bob", preferredSessionId=bob.id)
    cluster.join("b")
    cluster.run(2 * Limits().peer_absent_ms)
    [notice] = [mail["notice"] for mail in alice.mail()]
    assert (notice["kind"], notice["reason"]) == ("undeliverable", reasons.SESSION_NOT_FOUND)
    assert another.mail() == []


# --- letters that no broker of ours would write, or that come at a bad moment --------------------------


def letter(message_id: str = "m1", to: str = "", **more: Any) -> SendLetter:
    """Return a message that somebody of the third broker sends to a session of the first one."""
    name = RemoteName("x", "eve", ("default",), "active", IDS["c"], session=b'{"id":"x"}', identity="session:x")
    body = {"id": message_id, "timestamp": 1, "content": {"text": "hello"}}
    return SendLetter(message_id, to, "mark", "c.1", name, Raw(encode(more.pop("message", body))), **more)


def bring(cluster: Cluster, what: SendLetter, number: int = 99, valid_until: int | None = None) -> list[OutcomeLetter]:
    """Bring a letter to the first broker, and return what is said of it."""
    world = cluster["a"]
    world.peer_told(Arrived(number, IDS["c"], SEND, "d", encode(what), valid_until))
    posted = [work for work in world.peer_work if isinstance(work, Post) and work.kind == OUTCOME]
    return [decode(post.body, type=OutcomeLetter) for post in posted]


@pytest.mark.parametrize(
    "message",
    [{"id": "other", "timestamp": 1, "content": {"text": "x"}}, {"id": "m1"}, "m1"],
    ids=["id", "form", "text"],
)
def test_a_letter_whose_message_is_not_the_one_it_names_is_let_go_of(message: Any) -> None:
    """protocol 6.13: it would come again for ever, as nothing is ever said of it"""
    cluster, alice, _ = two()
    assert bring(cluster, letter(to=alice.id, message=message)) == []
    assert [work for work in cluster["a"].peer_work if isinstance(work, Settle)] == [Settle(99)]
    assert alice.mail() == []


@pytest.mark.parametrize("pending_reply", [False, True])
def test_what_is_for_a_session_that_has_moved_on_is_not_passed_on(pending_reply: bool) -> None:
    """protocol 6.13: nothing goes from broker to broker; a reply is told so by its code"""
    cluster, _, bob = two("abc")
    [told] = bring(cluster, letter(to=bob.id, pending_reply=pending_reply))
    assert (told.result, told.reason) == ("failed", reasons.SESSION_NOT_FOUND)
    assert told.code == ("session_not_found" if pending_reply else None)
    cluster.run()
    assert bob.mail() == []


def test_the_time_that_a_message_lay_in_the_engine_counts() -> None:
    """protocol 9.5.5: what is over is not handed over, and what is not has only left what it has left."""
    for lay_ms in (3_000, 5_000):
        cluster = Cluster()
        alice, bob = client(cluster, "a", "alice"), enter(cluster["b"], "bob")
        cluster.run(Limits().announce_ms)
        cluster.nodes["b"].is_up = False  # its process stands still
        alice.message("bob", "m1", "now or never", extra={"validFor": 4_000})
        cluster.run(lay_ms)
        cluster.nodes["b"].is_up = True
        cluster.run()
        shown = bob.mail()
        if lay_ms < 4_000:
            assert only(shown)["validUntil"] == cluster["b"].now.wall + 4_000 - lay_ms
        else:
            cluster.run(Limits().receipt_wait_ms)
            told = only(answers(alice.got()))
            assert shown == [] == bob.mail() and (told["type"], told["reason"]) == ("delivery_failed", reasons.TOO_LATE)


@pytest.mark.parametrize(("left_ms", "is_over"), [(1, False), (0, True), (-9, True), (None, True)])
def test_what_is_left_of_its_time_is_what_counts_and_not_to_know_is_none(left_ms: int | None, is_over: bool) -> None:
    """protocol 6.13: what its sender wrote says only that it is limited"""
    cluster, alice, _ = two()
    until = None if left_ms is None else cluster["a"].now.mono + left_ms
    told = bring(cluster, letter(to=alice.id, valid_for=60_000), valid_until=until)
    assert [each.reason for each in told] == ([reasons.TOO_LATE] if is_over else [])


BACK = "b0000000-0000-4000-8000-00000000000b"


def test_what_waits_for_its_recipient_to_return_loses_that_time() -> None:
    """protocol 6.13: in the first moments of a process a message waits for a session that is not there"""
    cluster = Cluster("abc")
    world = cluster["a"]
    assert bring(cluster, letter(to=BACK, valid_for=60_000), valid_until=world.now.mono + 1) == []
    back = enter(world, "back", preferredSessionId=BACK)
    assert back.id == BACK
    cluster.run(2 * Limits().announce_ms)
    [post] = [post for post in cluster.posts if post.kind == OUTCOME]
    assert decode(post.body, type=OutcomeLetter).reason == reasons.TOO_LATE and back.mail() == []


def test_a_letter_that_names_somebody_elsewhere_is_not_passed_on_either() -> None:
    """protocol 6.13: a letter is for an id; a name in its place leads nowhere but here"""
    cluster, _, bob = two("abc")
    [told] = bring(cluster, letter(to="bob"))
    assert told.result == "failed"
    cluster.run()
    assert bob.mail() == [] and not [post for post in cluster.posts if post.kind == SEND]


def test_mail_for_an_address_that_was_never_here_is_refused() -> None:
    """protocol 6.13"""
    cluster, _, _ = two()
    [told] = bring(cluster, letter(address=("default", "nobody"), may_queue=True))
    assert (told.result, told.reason) == ("failed", reasons.SESSION_NOT_FOUND)


def test_mail_whose_senders_broker_is_the_home_of_its_address_is_not_sent_back() -> None:
    """F122: each takes the other for the home; whoever has it keeps it."""
    cluster, _, _ = two("abc")
    cluster["a"].peer_told(AddressSeen("k", AddressHome("k", "depot", "default", ("default",), "h", IDS["c"])))
    alice = client(cluster, "a", "anna", **QUEUE)
    assert only(answers(alice.message("depot", "m0", extra={"queueIfAway": True})))["type"] == "queued"
    [told] = bring(cluster, letter(address=("default", "depot"), may_queue=True))
    assert (told.result, told.reason, told.code) == ("failed", reasons.away("depot"), "away")


def test_what_comes_soon_after_a_start_waits_for_those_who_come_back() -> None:
    """protocol 6.13: sessions reattach in the first seconds; who is not back by then is not there"""
    cluster = Cluster("abc")
    alice = enter(cluster["a"], "alice")
    cluster.crash("a")
    assert bring(cluster, letter("m1", to=alice.id), 98) == bring(cluster, letter("m2", to=alice.id), 99) == []
    back = reattach(cluster["a"], alice)
    cluster.run(Limits().announce_ms)
    assert sorted(frame["message"]["id"] for frame in back.mail()) == ["m1", "m2"]


def test_a_question_whose_answer_was_not_recorded_waits_for_a_broker_that_begins_anew() -> None:
    """protocol 6.5, 6.13.3: it is open again, and who was asked may be back in a moment"""
    cluster = Cluster()
    alice, bob = asked(cluster)
    bob.reply(alice.id, "r", "q", "because")
    cluster.run()
    assert alice.texts() == ["because"]
    world = cluster["a"]
    world.auto = False
    alice.write("received", messageId="r")
    world.peer_work.clear()
    world.peer_told(PeerLost(IDS["b"], said_goodbye=True))
    world.fail_commit()
    world.auto = True
    world.settle()
    assert [frame for frame in alice.got() if frame["type"] == "peer_disconnected"] == []
    world.pass_time(Limits().dormant_target_ms)
    assert only(alice.got(), "peer_disconnected")["replyTo"] == "q"


def test_an_outcome_that_was_not_recorded_is_not_posted() -> None:
    """design section 3.6: who sent it is told nothing that may not be so, and asks again under its id"""
    cluster, alice, bob = two()
    alice.message("bob", "m1", "once")
    cluster.run()
    assert bob.texts() == ["once"]
    world = cluster["b"]
    world.auto = False
    bob.write("received", messageId="m1")
    world.peer_work.clear()  # whoever performs effects drops what rests on a commit that failed
    world.fail_commit()
    world.auto = True
    world.settle()
    cluster.run(Limits().receipt_wait_ms)
    assert reason(alice.got()) == reasons.RECEIPT_MISSING
    told = sent(cluster, alice, "bob", "m1", "once")
    confirm(cluster, bob, "m1")
    told += sent(cluster, alice, "bob", "m1", "once")
    assert {each["type"] for each in told} == {"delivered"}


@pytest.mark.parametrize("result", ["delivered", "queued"])
def test_the_end_of_mail_that_was_not_recorded_is_taken_when_it_is_told_again(result: str) -> None:
    """design section 3.6: it waits here until it is recorded that another broker has it"""
    cluster, alice, bob = posted_mail()
    world = cluster["a"]
    post = [each for each in world.peer_work if isinstance(each, Post) and each.kind == SEND][-1]
    told = decode(post.body)
    outcome = OutcomeLetter("m1", told["mark"], told["attempt"], result, recipient=bob.id, position=1)  # type: ignore[arg-type]  # one of them
    world.auto = False
    for number in (98, 99):
        world.peer_told(Arrived(number, IDS["b"], OUTCOME, post.delivery_id, encode(outcome)))
    world.peer_work.clear()
    world.fail_commit()
    world.auto = True
    world.settle()
    assert [row.message_id for row in world.disk.mail.values()] == ["m1"]
    world.peer_told(Arrived(100, IDS["b"], OUTCOME, post.delivery_id, encode(outcome)))
    world.pass_time(Limits().mail_retry_ms)
    assert world.disk.mail == {} and alice.mail() == []


def test_mail_that_waits_again_by_now_is_not_put_off_by_a_late_refusal() -> None:
    """protocol 6.13: it is offered again anyhow"""
    cluster, alice, bob = posted_mail()
    post = [each for each in cluster["a"].peer_work if isinstance(each, Post) and each.kind == SEND][-1]
    cluster.cut("b")
    told = decode(post.body)
    refused = OutcomeLetter("m1", told["mark"], told["attempt"], "failed", reasons.REFUSED_BY_POLICY)
    cluster["a"].peer_work.clear()
    cluster["a"].peer_told(Arrived(99, IDS["b"], OUTCOME, post.delivery_id, encode(refused)))
    assert len(cluster["a"].disk.mail) == 1 and alice.mail() == []
    cluster.join("b")
    cluster.run(2 * Limits().peer_absent_ms)
    assert bob.texts() == ["later"]


@pytest.mark.parametrize("who", ["nobody", "elsewhere", "without the feature"])
def test_a_notice_for_somebody_who_cannot_take_it_says_nothing(who: str) -> None:
    """protocol 4.34: only who asked for them is told"""
    cluster, _, bob = two()
    plain = cluster["a"].register("plain")
    to = {"nobody": "x", "elsewhere": bob.id, "without the feature": plain.id}[who]
    body = {"id": "n", "timestamp": 1, "content": {"text": "expired"}}
    notice = NoticeLetter(to, Raw(b"{}"), Raw(encode(body)), Raw(b'{"kind":"expired","messageId":"m1"}'))
    cluster["a"].peer_told(Arrived(99, IDS["b"], NOTICE, "x", encode(notice)))
    cluster.run()
    assert plain.texts() == [] and bob.mail() == []
