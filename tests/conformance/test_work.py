"""Work with real brokers: what a stop gives back, and what an idle broker leaves behind (FE 1.7, 5.5)."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.test_work_kills import Party
from tests.support.brokers import BrokerProcess


def parties() -> tuple[Party, Party, Party]:
    """Return a coordinator, a worker that comes for its work, and a sender."""
    worker = Party("worker", "work.assignments", workMode="managed_turn", runtimeSessionId="host-1")
    return Party("boss", "flow.control", "inbox"), worker, Party("sender", "inbox")


def send(sender: Party, worker: Party, message_id: str) -> None:
    message = {"id": message_id, "timestamp": 1, "content": {"text": "do it"}}
    sender.write({"type": "send", "to": worker.id, "message": message, "queueIfAway": True, "attemptId": message_id})
    assert sender.next("queued", "delivered", "delivery_failed")["type"] == "queued"


def test_a_stop_gives_back_what_is_not_accepted(start_broker: Callable[..., BrokerProcess]) -> None:
    """FE 1.7: graceful stop; accepted work stays"""
    broker = start_broker()
    boss, worker, sender = parties()
    for party in (boss, worker, sender):
        party.come(broker)
    given = {}
    for message_id in ("m1", "m2"):
        send(sender, worker, message_id)
        answer = boss.ask("inbox_dispatch", inboxId=message_id, targetSessionId=worker.id, acceptWithinMs=0)
        assert answer["handedTo"] == "staging"
        given[message_id] = answer["assignmentId"]
    report = {"sourceMessageId": "m1", "assignmentId": given["m1"], "stateEventId": "e"}
    assert worker.ask("assignment_report", **report, state="accepted")["stateSequence"] == 2
    assert broker.stop() == 0
    broker = start_broker()
    for party in (boss, worker):
        party.come(broker)
    first, second = boss.ask("inbox_list")["items"]
    assert (first["inboxId"], first["claimPolicy"], first["assignmentId"]) == ("m1", "assigned", given["m1"])
    assert (second["inboxId"], second["claimPolicy"]) == ("m2", "bound_session")
    assert second["returnReason"] == "broker_shutdown"
    report["stateEventId"] = "e2"
    assert worker.ask("assignment_report", **report, state="started")["stateSequence"] == 3


def test_a_broker_with_parked_messages_only_leaves_and_the_next_one_lists_them(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """A5.8, FE 5.5"""
    broker = start_broker(settings={"idle_ms": 100})
    boss, worker, sender = parties()
    for party in (boss, worker, sender):
        party.come(broker)
    send(sender, worker, "m1")
    for party in (boss, worker, sender):
        party.write({"type": "unregister"})
        party.leave()
    assert broker.wait() == 0
    broker = start_broker()
    boss, _, _ = parties()
    boss.come(broker)
    [item] = boss.ask("inbox_list")["items"]
    assert (item["inboxId"], item["claimPolicy"]) == ("m1", "session_unavailable")
