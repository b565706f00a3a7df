"""Test what is kept of messages on their way to other brokers (FE 3.2, protocol 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode, encode

from intercom.core.effects import Append
from intercom.core.letters import OUTCOME
from intercom.core.records import Arrived, Happened, OperationState, Post, SaveBody, SaveOperation
from intercom.limits import Limits
from intercom.testing.disk import Body
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster, Node
from tests.core.harness import Client, World, answers, only, reason
from tests.core.test_abroad import QUEUE, client, confirm, sent


def two() -> tuple[Cluster, Client, Client]:
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    return cluster, a, b


def outcome(cluster: Cluster, by: str, result: str, **more: Any) -> None:
    """Let a broker say of the message that was posted last what became of it."""
    post = [each for each in cluster.posts if each.kind == "send"][-1]
    letter = decode(post.body)
    told = {"message_id": letter["message_id"], "mark": letter["mark"], "attempt": letter["attempt"], "result": result}
    delivery_id = more.pop("delivery_id", post.delivery_id)
    body = encode({**told, **more})
    cluster["a"].peer_told(Arrived(9_000 + len(cluster.posts), IDS[by], "outcome", delivery_id, body))
    cluster.run()


def test_a_message_and_its_letter_are_stored_in_the_append_of_its_reservation() -> None:
    """One commit, and nothing is posted before it."""
    cluster, a, _ = two()
    world = cluster["a"]
    world.auto = False
    effects: list[Any] = []
    perform = world.perform
    world.perform = lambda found: (effects.extend(found), perform(found))[1]  # type: ignore[method-assign,func-returns-value]
    a.message("bob", "m1")
    [append] = [each for each in effects if isinstance(each, Append)]
    assert [type(change) for change in append.changes] == [SaveOperation, SaveBody, Happened]
    cluster.run()
    assert not [post for post in cluster.posts if post.kind == "send"]
    world.commit()
    cluster.run()
    assert [post.kind for post in cluster.posts if post.kind == "send"] == ["send"]


def test_whoever_is_told_at_once_who_will_answer_does_not_part_the_two() -> None:
    """protocol 4.8 D16: the answer stands before the letter, and rests on the same append."""
    cluster, a, b = two()
    world = cluster["a"]
    world.auto = False
    a.ask("bob", "q1", extra={"resolveReplyTarget": True})
    [append] = world.appends
    assert [type(change) for change in append.changes] == [SaveOperation, SaveBody, Happened]
    assert a.got() == []
    world.auto = True
    world.settle()
    cluster.run()
    told = [frame for frame in a.got() if frame["type"] == "question_target"]
    assert only(told)["sessionId"] == b.id and b.texts() == ["?"]


def test_what_is_kept_elsewhere_is_brought_there_again_in_an_append_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol 6.13.2, 6.13.8: it had its time here, and no room as mail, before that was heard; its row is stored."""
    cluster = Cluster(limits=Limits(mailbox_entries=1))
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob", **QUEUE)
    world, posted, slow = cluster["a"], cluster.post, list[tuple[Node, Post]]()
    monkeypatch.setattr(
        cluster, "post", lambda node, post: slow.append((node, post)) if post.kind == OUTCOME else posted(node, post)
    )
    a.message("bob", "m0", extra={"queueIfAway": True})
    a.message("bob", "m1", "once", extra={"queueIfAway": True, "validFor": 5_000})
    cluster.run()
    assert b.texts() == ["x", "once"]
    confirm(cluster, b, "m0")
    cluster.run(Limits().receipt_wait_ms)
    told = answers(a.got())
    assert [(each["messageId"], each["type"]) for each in told] == [("m0", "queued"), ("m1", "delivery_failed")]
    assert told[1]["reason"] == reasons.RECEIPT_MISSING and not world.disk.outbox
    monkeypatch.undo()
    for node, post in slow:
        posted(node, post)
    cluster.run()
    [row] = [row for row in world.disk.operations.values() if row.message_id == "m1"]
    assert (row.state, row.position) == (OperationState.RESERVED, 1)
    world.auto = False
    posts = len(cluster.posts)
    a.message("bob", "m1", "once", extra={"queueIfAway": True})
    [append] = world.appends
    assert [type(change) for change in append.changes] == [SaveBody, Happened]
    cluster.run()
    assert len(cluster.posts) == posts, "nothing is posted before its letter is stored"
    world.auto = True
    world.settle()
    cluster.run()
    assert (cluster.posts[posts].kind, cluster.posts[posts].after) == ("send", append.ticket)
    assert only(answers(a.got()))["type"] == "queued"
    assert b.texts() == [] and not world.disk.outbox, "it waits there for bob's receipt"


def test_what_was_stored_and_not_posted_is_posted_by_the_next_process() -> None:
    """A killed after its commit, before it published: once at the target, whoever sent it may be gone."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    assert cluster["a"].disk.outbox
    cluster.crash("a")
    assert b.texts() == ["once"]
    confirm(cluster, b, "m1")
    assert not cluster["a"].disk.outbox
    a = client(cluster, "a", "alice", preferredSessionId=a.id)
    assert only(sent(cluster, a, "bob", "m1", "once"))["type"] == "delivered" and b.texts() == []


@pytest.mark.parametrize("result", ["delivered", "failed"])
def test_the_row_goes_with_the_outcome_and_its_text_too(result: str) -> None:
    cluster, a, b = two()
    a.message("bob", "m1", "secret")
    cluster.run()
    assert len(cluster["a"].disk.outbox) == 1
    if result == "delivered":
        confirm(cluster, b, "m1")
    else:
        outcome(cluster, "b", "failed", reason=reasons.REFUSED_BY_POLICY)
    disk = cluster["a"].disk
    assert only(answers(a.got()))["type"] == ("delivered" if result == "delivered" else "delivery_failed")
    assert not disk.outbox
    assert not disk.bodies


def test_a_commit_that_fails_takes_both_back() -> None:
    cluster, a, _ = two()
    world = cluster["a"]
    world.auto = False
    a.message("bob", "m1")
    world.peer_work.clear()  # whoever performs effects drops what rests on a commit that failed
    world.fail_commit()
    world.auto = True
    world.settle()
    cluster.run()
    assert reason(a.got()) == reasons.NOT_RECORDED
    assert not world.disk.outbox


def test_what_waits_as_mail_is_not_on_its_way_any_more() -> None:
    """Its sender was told ``queued``, and the mailbox keeps it from then on."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", extra={"queueIfAway": True})
    cluster.run()
    cluster.cut("b")
    disk = cluster["a"].disk
    assert only(answers(a.got()))["type"] == "queued"
    assert not disk.outbox and [row.message_id for row in disk.mail.values()] == ["m1"]


def test_a_letter_of_which_nothing_is_heard_is_posted_again_under_the_same_name() -> None:
    """The engine tells the copy; if it has lost the first one it stores the second, and it arrives."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster._take_work(cluster.nodes["a"])
    cluster.nodes["b"].queue.clear()
    cluster.seen_ids.clear()
    cluster.run(Limits().receipt_wait_ms)
    assert reason(a.got()) == reasons.RECEIPT_MISSING
    assert b.texts() == ["once"]
    first, second = [post for post in cluster.posts if post.kind == "send"]
    assert (first.attempt, first.delivery_id) == (second.attempt, second.delivery_id)
    confirm(cluster, b, "m1")
    assert not cluster["a"].disk.outbox
    assert only(sent(cluster, a, "bob", "m1", "once"))["type"] == "delivered"


def test_what_is_not_valid_any_more_is_not_posted_again() -> None:
    cluster = Cluster()
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", extra={"validFor": 5_000})
    cluster._take_work(cluster.nodes["a"])
    cluster.nodes["b"].queue.clear()
    cluster.seen_ids.clear()
    cluster.run(Limits().receipt_wait_ms)
    assert b.texts() == [] and not cluster["a"].disk.outbox


@pytest.mark.parametrize(
    ("by", "kind", "more"),
    [("c", "delivered", {}), ("b", "delivered", {"delivery_id": "another"}), ("b", "failed", {"attempt": "0.0"})],
    ids=["another broker", "another message", "an attempt before"],
)
def test_an_outcome_counts_only_from_whom_it_was_sent_to(by: str, kind: str, more: dict[str, Any]) -> None:
    """F127: forged, of another message, or late: nothing changes, and the true one is taken after it."""
    cluster = Cluster("abc")
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once")
    cluster.run()
    outcome(cluster, by, kind, **more)
    assert answers(a.got()) == [] and cluster["a"].disk.outbox
    confirm(cluster, b, "m1")
    assert only(answers(a.got()))["type"] == "delivered"
    outcome(cluster, "b", "failed", reason="too late")
    assert answers(a.got()) == []
    assert only(sent(cluster, a, "bob", "m1", "once"))["type"] == "delivered"


def posted_again(cluster: Cluster, **members: Any) -> Client:
    """Send what is stored and not posted when its broker dies; return the session it is for."""
    a, b = client(cluster, "a", "alice", **QUEUE), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once", extra=members)
    assert cluster["a"].disk.outbox
    return b


def restart(cluster: Cluster) -> World:
    """Start the broker of the sender again; what it reads is read when the test says so."""
    node = cluster.nodes["a"]
    node.world.kwargs["identity"] = node.identity(node.world.epoch + 1)
    node.names, node.shared = {}, {}
    node.world.auto = False
    node.world.start()
    assert node.world.reads
    return node.world


def test_what_is_known_to_be_over_when_its_letter_was_read_is_not_posted_again() -> None:
    """protocol 6.13: the outcome comes while the next process reads the letter."""
    cluster = Cluster()
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once")
    cluster.run()
    posted = len(cluster.posts)
    world = restart(cluster)
    outcome_to(cluster, "delivered")
    world.commit()
    world.read()
    world.auto = True
    world.settle()
    cluster._connect(cluster.nodes["a"])
    cluster.run()
    assert not [post for post in cluster.posts[posted:] if post.kind == "send"] and not world.disk.outbox


@pytest.mark.parametrize("result", ["failed", "uncertain", "queued"])
def test_what_became_of_what_an_earlier_process_sent_is_kept_in_its_row(result: str) -> None:
    """protocol 6.13: what never arrived may be sent anew, what another broker keeps is said to be there."""
    said: dict[str, dict[str, Any]] = {
        "failed": {"reason": reasons.REFUSED_BY_POLICY},
        "uncertain": {"result": "failed", "reason": reasons.RECEIPT_MISSING, "is_known": True},
        "queued": {"position": 3},
    }
    kept = {"failed": [], "uncertain": [("m1", None)], "queued": [("m1", 3)]}
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = restart(cluster)
    outcome_to(cluster, **{"result": result, **said[result]})
    world.commit()
    rows = [(row.message_id, row.position) for row in world.disk.operations.values()]
    assert rows == kept[result] and not world.disk.outbox and b.texts() == ["once"]


def test_what_had_its_time_while_its_broker_was_away_is_not_posted() -> None:
    """F87: a message is never obeyed too late."""
    cluster = Cluster()
    b = posted_again(cluster, validFor=5_000)
    cluster["a"].pass_time(0)
    cluster["a"].wall += 5_000
    cluster.crash("a")
    assert b.texts() == [] and not cluster["a"].disk.outbox


@pytest.mark.parametrize("result", ["delivered", "queued"])
def test_an_outcome_of_an_earlier_process_that_was_not_recorded_is_not_taken(result: str) -> None:
    """design section 3.6: its row is what it was, and the letter is posted again."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = restart(cluster)
    world.commit()
    outcome_to(cluster, result, **({"position": 3} if result == "queued" else {}))
    world.fail_commit()
    world.auto = True
    world.settle()
    [row] = world.disk.operations.values()
    assert (row.state, row.position) == (OperationState.RESERVED, None) and len(world.disk.outbox) == 1
    cluster._connect(cluster.nodes["a"])
    cluster.run(Limits().mail_retry_ms)
    again = client(cluster, "a", "alice", preferredSessionId=a.id)
    told = answers(again.message("bob", "m1", "once"))
    confirm(cluster, b, "m1")
    told += sent(cluster, again, "bob", "m1", "once")
    assert {each["type"] for each in told} == {"delivered"}


def test_an_outcome_that_comes_after_its_row_expired_is_told_and_stored_nowhere() -> None:
    """protocol 6.9.2: the message id is forgotten."""
    cluster, a, _ = two()
    a.message("bob", "m1", "once")
    cluster.run(Limits().operation_ttl_ms + Limits().receipt_wait_ms)
    assert cluster["a"].disk.operations == {}
    outcome(cluster, "b", "queued", position=1)
    assert cluster["a"].disk.operations == {}


def test_what_an_earlier_process_sent_can_be_given_up() -> None:
    """protocol 4.152: nobody waits for it here."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = restart(cluster)
    world.auto = True
    operator = world.register("op", info={"recipientPurpose": "control"}, **{**QUEUE, "features": ["operator"]})
    [row] = world.disk.outbox.values()
    done = operator.write("outbox_cancel", requestId="r", deliveryId=row.delivery_id)
    assert only([frame for frame in done if frame["type"] == "outbox_changed"])["deliveryId"] == row.delivery_id
    assert not world.disk.outbox and b.texts() == ["once"]


def outcome_to(cluster: Cluster, result: str, **more: Any) -> None:
    """Say what became of the message that was posted last, without anything else being moved."""
    post = [each for each in cluster.posts if each.kind == "send"][-1]
    letter = decode(post.body)
    told = {"message_id": letter["message_id"], "mark": letter["mark"], "attempt": letter["attempt"], "result": result}
    cluster["a"].peer_told(Arrived(9_999, post.peer, "outcome", post.delivery_id, encode({**told, **more})))


def test_a_letter_that_cannot_be_read_is_read_again() -> None:
    """FE 3.2: nothing that is stored is given up for a moment's trouble."""
    cluster = Cluster()
    b = posted_again(cluster)
    world = restart(cluster)
    world.read(fails=True)
    world.auto = True
    cluster._connect(cluster.nodes["a"])
    cluster.run()
    assert b.texts() == []
    cluster.run(Limits().peer_retry_most_ms)
    assert b.texts() == ["once"]


@pytest.mark.parametrize("letter", [None, b"{"])
def test_a_letter_that_is_lost_is_over(letter: bytes | None) -> None:
    """design section 5: a store that was rebuilt holds states, not bodies; whoever sent it repeats it."""
    cluster = Cluster()
    b = posted_again(cluster)
    disk = cluster["a"].disk
    disk.bodies = {} if letter is None else {number: Body(letter) for number in disk.bodies}
    cluster.crash("a")
    assert b.texts() == [] and not disk.outbox


def test_how_long_a_message_is_of_use_counts_on_while_its_broker_is_away() -> None:
    """protocol 9.5.5"""
    cluster = Cluster()
    b = posted_again(cluster, validFor=60_000)
    restart(cluster)
    cluster["a"].pass_time(10_000)
    cluster["a"].auto = True
    cluster.crash("a")
    [post] = [post for post in cluster.posts if post.kind == "send"]
    assert decode(post.body)["valid_for"] == 50_000 and b.texts() == ["once"]


def test_an_outcome_that_cannot_be_recorded_leaves_its_row_to_the_next_process() -> None:
    """design section 5: a store that is closed keeps what it has."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = cluster["a"]
    world.auto = False
    a.message("bob", "m2")
    world.peer_work.clear()  # whoever performs effects drops what rests on a commit that failed
    world.fail_commit(final=True)
    world.auto = True
    outcome(cluster, "b", "failed", reason=reasons.REFUSED_BY_POLICY)
    assert [row.message_id for row in world.disk.outbox.values()] == ["m1"] and b.texts() == ["once"]


def test_an_end_that_was_not_recorded_comes_again() -> None:
    """design section 3.6: the row is still on disk, so it is looked at again."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = cluster["a"]
    world.auto = False
    outcome_to(cluster, "failed", reason=reasons.REFUSED_BY_POLICY)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert len(world.disk.outbox) == 1 and b.texts() == ["once"]
    cluster.run(Limits().mail_retry_ms)
    assert not world.disk.outbox
    assert cluster["a"].broker.due_soon_count(world.now) == 0


def test_a_broker_does_not_leave_while_something_is_on_its_way() -> None:
    """protocol 3.5: its outcome is heard in a moment; without the way to other machines nothing is."""
    cluster, a, b = two()
    a.message("bob", "m1", "once")
    cluster.run()
    world = cluster["a"]
    assert world.broker.due_soon_count(world.now) == 1
    cluster.cut("a", leases_end=False)
    assert world.broker.due_soon_count(world.now) == 0
    cluster.join("a")
    confirm(cluster, b, "m1")
    assert world.broker.due_soon_count(world.now) == 0


def test_who_does_not_know_of_mail_is_told_that_what_another_broker_keeps_was_delivered() -> None:
    """Protocol 5.30: of a message to a stage that has not started: the queue of its run has it."""
    cluster = Cluster()
    a, b = cluster["a"].register("alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once")
    cluster.run()
    outcome(cluster, "b", "queued", position=1)
    assert only(answers(a.got())) == {"type": "delivered", "messageId": "m1", "attemptId": f"{a.conn}.1"}


def test_that_a_message_may_have_arrived_is_told_without_the_code_of_the_refusal() -> None:
    """Protocol 5.29: a code says that nothing took effect, which nobody knows of what is known there."""
    cluster, a, _ = two()
    a.message("bob", "m1", "once")
    cluster.run()
    outcome(cluster, "b", "failed", reason=reasons.away("bob"), code="away", is_known=True)
    assert only(answers(a.got())) == {
        "type": "delivery_failed",
        "messageId": "m1",
        "attemptId": f"{a.conn}.1",
        "reason": reasons.unconfirmed(reasons.away("bob")),
    }
