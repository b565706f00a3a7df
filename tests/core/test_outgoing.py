"""Test what is kept of messages on their way to other brokers (FE 3.2, protocol 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode, encode

from intercom.core.effects import Append
from intercom.core.records import Arrived, Happened, SaveBody, SaveOperation
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import Client, answers, only, reason
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
    ("by", "more"),
    [("c", {}), ("b", {"delivery_id": "another"}), ("b", {"attempt": "0.0", "kind": "failed"})],
    ids=["another broker", "another message", "an attempt before"],
)
def test_an_outcome_counts_only_from_whom_it_was_sent_to(by: str, more: dict[str, Any]) -> None:
    """F127: forged, of another message, or late: nothing changes, and the true one is taken after it."""
    cluster = Cluster("abc")
    a, b = client(cluster, "a", "alice"), client(cluster, "b", "bob")
    b.got()
    a.message("bob", "m1", "once")
    cluster.run()
    outcome(cluster, by, more.pop("kind", "delivered"), **more)
    assert answers(a.got()) == [] and cluster["a"].disk.outbox
    confirm(cluster, b, "m1")
    assert only(answers(a.got()))["type"] == "delivered"
    outcome(cluster, "b", "failed", reason="too late")
    assert answers(a.got()) == []
    assert only(sent(cluster, a, "bob", "m1", "once"))["type"] == "delivered"
