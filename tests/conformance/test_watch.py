"""Hold the real broker against protocol 11.1: who reads slowly, and who goes on behind a sequence."""

from __future__ import annotations

from typing import Any

from tests.support.brokers import BrokerProcess
from tests.support.raw import INFO, Frame, RawClient

CONTROL = {"session": {"recipientPurpose": "control"}, "features": ["operator", "watch"]}
AGENT = {"features": ["session.lifecycle", "push.receipts"], "acknowledgesReceipt": True, "returnAddress": "ret"}
VERSION = {"clientProtocolVersion": "1.0", "kind": "custom"}
HINTS = 4_000
"""Events that no socket holds together with what a watcher may leave unread."""


def watcher(broker: BrokerProcess) -> RawClient:
    return broker.registered(**CONTROL, **VERSION)


def events_until(client: RawClient, seq: int) -> list[int]:
    """Return the sequences of the events that come up to one."""
    seen: list[int] = []
    while seen[-1:] != [seq]:
        seen.append(client.expect("watch_event")["seq"])
    return seen


def hint(client: RawClient, count: int) -> None:
    """Let ``count`` things happen."""
    for begin in range(0, count, 100):
        hints: list[Frame] = [
            {"type": "task_hint", "requestId": str(number), "taskHint": f"step {number}"}
            for number in range(begin, begin + 100)
        ]
        client.send(*hints)
        for number in range(begin, begin + 100):
            client.expect("task_hint_stored", requestId=str(number))


def test_who_reads_slowly_is_ended_and_told_why_and_goes_on_without_gap(broker: BrokerProcess) -> None:
    """issue 7: a slow watcher is ended and told why; what it missed is on the disk."""
    agent = broker.connect()
    agent.send({"type": "register", "session": {**INFO, "name": "busy"}, **AGENT, **VERSION})
    agent.expect("registered")
    slow, quick = watcher(broker), watcher(broker)
    slow.send({"type": "watch", "requestId": "s"})
    begun = slow.expect("watching")
    hint(agent, HINTS)
    last = begun["seq"] + HINTS
    quick.send({"type": "watch", "requestId": "q", "afterSeq": begun["seq"], "journalId": begun["journalId"]})
    assert quick.expect("watching")["seq"] == begun["seq"]
    assert events_until(quick, last) == list(range(begun["seq"] + 1, last + 1))
    seen: list[int] = []
    frame: dict[str, Any] = slow.receive()
    while frame["type"] == "watch_event":
        seen.append(frame["seq"])
        frame = slow.receive()
    assert (frame["type"], frame["reason"], frame["seq"]) == ("watch_ended", "too_slow", seen[-1])
    assert seen[-1] < last
    slow.send({"type": "watch", "requestId": "again", "afterSeq": frame["seq"]})
    slow.expect("watching")
    seen += events_until(slow, last)
    assert seen == list(range(begun["seq"] + 1, last + 1))


def test_the_journal_goes_on_after_a_crash(broker: BrokerProcess, start_broker: Any) -> None:
    """FE 5.5: what was recorded is told by the next broker, under the same journal."""
    boss = watcher(broker)
    boss.send({"type": "watch", "requestId": "r"})
    begun = boss.expect("watching")
    agent = broker.connect()
    agent.send({"type": "register", "session": {**INFO, "name": "busy"}, **AGENT, **VERSION})
    agent.expect("registered")
    hint(agent, 100)
    broker.kill()
    boss = watcher(start_broker())
    boss.send({"type": "watch", "requestId": "r", "afterSeq": begun["seq"], "journalId": begun["journalId"]})
    again = boss.expect("watching")
    assert (again["journalId"], "snapshot" in again) == (begun["journalId"], False)
    kinds = [boss.expect("watch_event")["event"]["kind"] for _ in range(102)]
    assert kinds == ["session.active", *["session.hint"] * 100, "session.reconnecting"]
