"""Measure what depends on what is on disk: a start with many operations, a mailbox that is emptied."""

from __future__ import annotations

import time
from uuid import UUID

from intercom.core.records import OperationRecord, OperationState, SaveOperation
from intercom.paths import Paths, prepare_home
from intercom.store.database import Store
from scripts.bench.effort import DRAINED, FULL_START, Sample
from scripts.bench.peers import Peer
from scripts.bench.running import EngineFailed, Running
from scripts.bench.scene import Scene

OPERATIONS = 100_000
SENDERS = 8
BATCH = 5_000
MAIL = 10_000
TEXT_BYTES = 256
AHEAD = 100
"""Messages that are queued before the first answer is awaited."""
TOKEN = "token of the one whose mail waits here"
READS_MAIL = {
    "features": ["session.lifecycle", "push.receipts", "address", "queue"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
    "acknowledgesReceipt": True,
}
_ID = b'"message":{"id":"'


def full_start(scene: Scene) -> dict[str, Sample]:
    """Measure a start, from the process to the first ``registered``, on a store that holds many operations."""
    with scene.directory() as directory:
        fill(Paths(directory / "home"))
        running = Running(scene.engine, scene.program, directory)
        with running:
            took = running.wait_until_it_answers()
            with Peer(running.address, "looks") as peer:
                # Who sends waits until all are known, and so does this answer behind it.
                peer.write([{"type": "cancel_ask", "messageId": "none"}, {"type": "broker_status", "requestId": "s"}])
                held = peer.read("broker_status", 1)[0]["report"]["broker"]["store"]["operations"]
        if held < OPERATIONS:
            raise EngineFailed(f"the broker knows {held} operations instead of {OPERATIONS}")
    return {FULL_START.key: Sample((took,))}


def fill(paths: Paths) -> None:
    """Make a store with many operations that are all younger than they live."""
    prepare_home(paths)
    moment = int(time.time() * 1_000)
    store = Store.open(paths, moment)
    try:
        for first in range(1, OPERATIONS + 1, BATCH):
            changes = tuple(SaveOperation(_settled(number, moment)) for number in range(first, first + BATCH))
            store.commit([(first, changes)])
    finally:
        store.close()


def _settled(number: int, moment: int) -> OperationRecord:
    sender, recipient = (str(UUID(int=number % SENDERS + half * SENDERS)) for half in range(2))
    return OperationRecord(
        number=number,
        message_id=str(UUID(int=number << 64 | number)),
        state=OperationState.ACCEPTED,
        signature=number.to_bytes(32, "big"),
        sender=f"session:{sender}",
        target=f"session:{recipient}",
        sender_session=sender,
        recipient_session=recipient,
        reserved_at=moment,
        accepted_at=moment,
    )


def drained(scene: Scene) -> dict[str, Sample]:
    """Measure how fast the mail of an address reaches who comes for it and confirms each message."""
    address = {"name": "away", "token": TOKEN}
    with scene.broker() as running:
        with Peer(running.address, "away", returnAddress="first", address=address, **READS_MAIL) as peer:
            peer.write([{"type": "unregister"}, {"type": "health", "requestId": "gone"}])
            peer.read("health", 1)
        with Peer(running.address, "sender", returnAddress="sender", **READS_MAIL) as sender:
            for first in range(0, MAIL, AHEAD):
                sender.write([_mail(number) for number in range(first, first + AHEAD)])
                sender.read("queued", AHEAD)
        began = time.perf_counter()
        with Peer(running.address, "reader", returnAddress="second", address=address, **READS_MAIL) as reader:
            seen = reader.confirm_all(MAIL, _ID)
            reader.write([{"type": "mailbox", "requestId": "left"}])
            left = reader.read("mailbox", 1)[0]["count"]
        took = time.perf_counter() - began
    faults = [f"{MAIL - seen} lost or twice"] if seen != MAIL else []
    faults += [f"{left} left in the mailbox"] if left else []
    return {DRAINED.key: Sample((MAIL / took,), faults=tuple(faults))}


def _mail(number: int) -> dict[str, object]:
    text = f"{number:0{TEXT_BYTES}}"  # mail that says the same is joined
    message = {"id": f"mail-{number:05}", "timestamp": 1, "content": {"text": text}}
    return {"type": "send", "to": "away", "queueIfAway": True, "attemptId": f"t-{number}", "message": message}
