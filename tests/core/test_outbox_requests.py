"""Test what the operator is told of the outbox, and may do there (protocol 4.150 to 4.152)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import notices, reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import Client, answers, only, reason
from tests.core.test_abroad import QUEUE, client, confirm
from tests.core.test_homes import holder

MAY_WAIT = {"queueIfAway": True}


def operator(cluster: Cluster, broker: str = "a") -> Client:
    info = {"recipientPurpose": "control"}
    return cluster[broker].register("op", info=info, **{**QUEUE, "features": ["operator"]})


def asked(cluster: Cluster, who: Client, kind: str, **members: Any) -> dict[str, Any]:
    answer = only([frame for frame in who.write(kind, requestId="r", **members) if frame.get("requestId") == "r"])
    cluster.run()
    return answer


def entries(cluster: Cluster, who: Client, **members: Any) -> list[dict[str, Any]]:
    return list(asked(cluster, who, "outbox_list", **members)["entries"])


def on_its_way() -> tuple[Cluster, Client, Client, Client]:
    """Return a cluster in which one message is on its way and one waits, with who sends, the operator, and bob."""
    cluster = Cluster("abc")
    alice = client(cluster, "a", "alice", **QUEUE)
    bob = client(cluster, "b", "bob")
    holder(cluster, "c", "depot").leave()
    cluster.cut("c")
    alice.message("bob", "m1", "one")
    alice.message("depot", "m2", "two", extra=MAY_WAIT)
    cluster.run()
    alice.got()
    return cluster, alice, operator(cluster), bob


def test_what_is_on_its_way_is_shown_until_its_outcome_is_known() -> None:
    """FE 3.11; the report tells depth and age (protocol 6.14)."""
    cluster, _, op, bob = on_its_way()
    first, second = entries(cluster, op)
    assert (first["kind"], first["status"], first["messageId"], first["node"]) == ("message", "posted", "m1", "b")
    assert (second["status"], second["messageId"], second["target"], second["peer"]) == (
        *("posted", "m2", "depot"),
        IDS["c"],
    )
    assert first["entry"] < second["entry"] and first["attempts"] == 1
    report = only(op.write("broker_status", requestId="s"))["report"]["multiNode"]
    assert (report["outbox"], report["outboxOldestAt"]) == (2, first["queuedAt"])
    assert [each["messageId"] for each in entries(cluster, op, peer="c")] == ["m2"]
    assert [each["messageId"] for each in entries(cluster, op, peer=IDS["b"])] == ["m1"]
    assert entries(cluster, op, status="deferred") == []
    assert [each["messageId"] for each in entries(cluster, op, deliveryId=second["deliveryId"])] == ["m2"]
    page = asked(cluster, op, "outbox_list", limit=1)
    assert ([each["messageId"] for each in page["entries"]], page["left"]) == (["m1"], 1)
    assert [each["messageId"] for each in entries(cluster, op, after=first["entry"])] == ["m2"]
    confirm(cluster, bob, "m1")
    assert [each["messageId"] for each in entries(cluster, op)] == ["m2"]


def test_what_is_retried_is_brought_away_now_and_arrives_once() -> None:
    cluster, _, op, bob = on_its_way()
    bob.got()
    for entry in entries(cluster, op):
        posted = len(cluster.posts)
        assert asked(cluster, op, "outbox_retry", deliveryId=entry["deliveryId"])["type"] == "outbox_changed"
        cluster.run()
        assert len(cluster.posts) > posted
    assert set(bob.texts()) <= {"one"}, "it may be shown again under its id until it was confirmed"
    confirm(cluster, bob, "m1")
    cluster.join("c")
    depot = holder(cluster, "c", "depot")
    shown = [f["message"]["content"]["text"] for f in [*depot.first, *depot.got()] if f["type"] == "message"]
    assert set(shown) == {"two"}
    confirm(cluster, depot, "m2")
    cluster.run(Limits().peer_outcome_ms)
    assert entries(cluster, op) == [] and bob.texts() == [] and depot.texts() == []


def test_what_is_given_up_is_gone_and_its_sender_hears_the_truth() -> None:
    """Of what was posted nobody says that it did not arrive."""
    cluster, alice, op, bob = on_its_way()
    for entry in entries(cluster, op):
        assert asked(cluster, op, "outbox_cancel", deliveryId=entry["deliveryId"])["type"] == "outbox_changed"
    assert entries(cluster, op) == []
    got = alice.got()
    assert reason(got) == reasons.RECEIPT_MISSING
    [notice] = [frame["notice"] for frame in got if frame["type"] == "message"]
    assert (notice["messageId"], notice["reason"]) == ("m2", notices.GIVEN_UP_ON_ITS_WAY)
    assert f"may not have been delivered: {notices.GIVEN_UP_ON_ITS_WAY}" in str(got)
    assert asked(cluster, op, "outbox_cancel", deliveryId="d")["code"] == "unknown_delivery"
    confirm(cluster, bob, "m1")
    assert answers(alice.got()) == []


def test_of_what_never_left_nobody_says_that_it_may_arrive() -> None:
    """protocol 9.5.6"""
    cluster = Cluster(limits=Limits(mail_offers=1))
    alice = client(cluster, "a", "alice", **QUEUE)
    holder(cluster, "b", "depot").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.cut("b")
    for message_id in ("m1", "m2"):
        alice.message("depot", message_id, extra=MAY_WAIT)
    alice.got()
    op = operator(cluster)
    left, entry = entries(cluster, op)
    assert (left["attempts"], entry["attempts"]) == (1, 0)
    asked(cluster, op, "outbox_cancel", deliveryId=entry["deliveryId"])
    [told] = [frame for frame in alice.got() if frame["type"] == "message"]
    assert told["notice"]["reason"] == notices.GIVEN_UP
    assert f"was not delivered: {notices.GIVEN_UP}" in told["message"]["content"]["text"]


def test_a_task_is_shown_and_hurried_and_ended_by_its_invocation() -> None:
    cluster = Cluster()
    features = ["invoke", *QUEUE["features"]]
    alice = client(cluster, "a", "alice", **{**QUEUE, "features": features})
    client(cluster, "b", "bob")
    op = operator(cluster)
    cluster.cut("b", leases_end=False)
    alice.write("invoke", requestId="i", invocationId="i-1", target="bob", task="do it")
    cluster.run()
    [entry] = entries(cluster, op)
    assert (entry["kind"], entry["invocationId"], entry["node"], entry["attempts"]) == ("task", "i-1", "b", 1)
    cluster.run(Limits().forward_ms)
    [entry] = entries(cluster, op)
    assert (entry["status"], entry["detail"]) == ("deferred", "no answer came in time")
    assert asked(cluster, op, "outbox_cancel", deliveryId=entry["deliveryId"])["code"] == "not_a_message"
    assert asked(cluster, op, "outbox_retry", deliveryId=entry["deliveryId"])["type"] == "outbox_changed"
    assert entries(cluster, op)[0]["attempts"] == 2


def test_a_task_that_its_machine_has_is_not_sent_once_more() -> None:
    """protocol 4.151: there is nothing to hurry."""
    cluster = Cluster()
    alice = client(cluster, "a", "alice", **{**QUEUE, "features": ["invoke", *QUEUE["features"]]})
    client(cluster, "b", "bob", **{**QUEUE, "features": ["invoke", *QUEUE["features"]]})
    op = operator(cluster)
    alice.write("invoke", requestId="i", invocationId="i-1", target="bob", task="do it")
    cluster.run()
    [entry] = entries(cluster, op)
    assert (entry["kind"], entry["status"], entry["attempts"]) == ("task", "peer_acked", 1)
    posted = len(cluster.posts)
    assert asked(cluster, op, "outbox_retry", deliveryId=entry["deliveryId"])["type"] == "outbox_changed"
    assert entries(cluster, op) == [entry] and len(cluster.posts) == posted


def test_of_an_outbox_that_cannot_be_read_nothing_is_shown() -> None:
    """design section 5: fail closed."""
    cluster, alice, op, _ = on_its_way()
    world = cluster["a"]
    world.auto = False
    alice.message("bob", "m3", "three")
    world.fail_commit(final=True)
    world.auto = True
    assert asked(cluster, op, "outbox_list")["code"] == "store_unusable"


def test_the_outbox_is_the_operators() -> None:
    cluster, alice, _, _ = on_its_way()
    assert asked(cluster, alice, "outbox_list")["code"] == "feature_not_granted"


@pytest.mark.parametrize("many", [3])
def test_a_machine_that_is_away_fills_its_own_mailbox_and_nothing_else(many: int) -> None:
    """F126: bounds hold, the sender is told, the report counts, and those here are sent to as ever."""
    cluster = Cluster(limits=Limits(mailbox_entries=many))
    alice, near = client(cluster, "a", "alice", **QUEUE), client(cluster, "a", "near", **QUEUE)
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.cut("b")
    for number in range(many):
        assert only(answers(alice.message("bob", f"m{number}", extra=MAY_WAIT)))["type"] == "queued"
    assert reasons.code_of(reason(alice.message("bob", "more", extra=MAY_WAIT))) == "capacity"
    near.got()
    alice.message("near", "n", "hello", extra=MAY_WAIT)
    assert near.texts() == ["hello"]
    op = operator(cluster)
    assert only(op.write("broker_status", requestId="s"))["report"]["multiNode"]["outbox"] == many
