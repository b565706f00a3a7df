"""Kill the real broker right before and right after each of its commits while mail lives its life (A5.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers import BrokerProcess
from tests.support.raw import EndOfStream, Frame, RawClient

pytestmark = pytest.mark.long

KILLING = """
import signal
from intercom.store import database
moment, left = "MOMENT", [COUNT]
original = database.Store._commit
def commit(store, batch):
    def die(): os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    if left[0] == 0 and moment == "before":
        store.before_commit = die
    took = original(store, batch)
    if left[0] == 0:
        die()
    return took
database.Store._commit = commit
"""
FEATURES = {
    "features": ["session.lifecycle", "push.receipts", "address", "queue"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
    "acknowledgesReceipt": True,
}
TOKEN = "t" * 64
NOT_NOW = ("Not recorded", "Outcome not durably confirmed", "Recipient has not confirmed")
MESSAGES = ("m1", "m2", "m3", "m4")


class Killed(Exception):
    """Say that the broker died."""


def met(broker: BrokerProcess) -> RawClient:
    """Return a connection to a broker that may have died just now."""
    try:
        return broker.connect()
    except OSError:
        raise Killed from None


class Party:
    """Play one client that comes back after every death of the broker."""

    def __init__(self, name: str, *, holds: bool) -> None:
        self.name = name
        self.address = {"address": {"name": name, "token": TOKEN}} if holds else {}
        self.client: RawClient | None = None
        self.id = self.token = ""
        self.seen: Counter[str] = Counter()
        self.first_offers: dict[str, int] = {}

    def come(self, broker: BrokerProcess) -> None:
        self.client = met(broker)
        if self.token:
            self.client.send(
                {"type": "session_reattach", "requestId": "r", "sessionId": self.id, "ownerToken": self.token}
            )
            answer = self.next("session_reattached", "request_failed")
            if answer["type"] == "session_reattached":
                return
        wish = {"preferredSessionId": self.id, "ownerToken": self.token} if self.id else {}
        session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": self.name}
        self.client.send(
            {
                "type": "register",
                "session": session,
                "returnAddress": f"return-{self.name}",
                **FEATURES,
                **self.address,
                **wish,
            }
        )
        answer = self.next("registered")
        self.id, self.token = answer["sessionId"], answer["ownerToken"]

    def next(self, *types: str) -> Frame:
        """Return the next frame of these types; confirm the messages that come before it."""
        assert self.client is not None
        try:
            while True:
                frame = self.client.receive()
                if frame["type"] == "message":
                    self.take(frame)
                if frame["type"] in types:
                    return frame
        except (EndOfStream, ConnectionError):
            raise Killed from None

    def take(self, frame: Frame) -> None:
        message_id = frame["message"]["id"]
        self.seen[message_id] += 1
        self.first_offers.setdefault(message_id, frame["mail"]["offers"] if "mail" in frame else 1)
        self.write({"type": "received", "messageId": message_id})

    def write(self, *frames: Frame) -> None:
        assert self.client is not None
        try:
            self.client.send(*frames)
        except ConnectionError:
            raise Killed from None

    def leave(self) -> None:
        """Lose the connection."""
        if self.client is not None:
            self.client.close()

    def send(self, target: str, message_id: str) -> str:
        """Send a message and return the final answer."""
        message = {"id": message_id, "timestamp": 1, "content": {"text": f"text of {message_id}"}}
        self.write({"type": "send", "to": target, "message": message, "queueIfAway": True, "attemptId": message_id})
        answer = self.next("queued", "delivered", "delivery_failed")
        if answer["type"] == "delivery_failed":
            assert answer["reason"].startswith(NOT_NOW), answer
            return self.send(target, message_id)
        kind: str = answer["type"]
        return kind


def play(start: Callable[[], BrokerProcess]) -> tuple[Party, Party, dict[str, str], int]:
    """Let two clients go through the life of mail; every step is tried again after a death of the broker."""
    sender, receiver = Party("sender", holds=False), Party("receiver", holds=True)
    answers: dict[str, str] = {}
    broker, deaths = start(), 0

    def both() -> None:
        sender.come(broker)
        receiver.come(broker)

    def queue(*message_ids: str) -> Callable[[], None]:
        def step() -> None:
            receiver.leave()
            for message_id in message_ids:
                answers[message_id] = sender.send("receiver", message_id)

        return step

    def fetch(*message_ids: str) -> Callable[[], None]:
        def step() -> None:
            receiver.come(broker)
            while any(receiver.seen[message_id] == 0 for message_id in message_ids):
                receiver.next("message")
            settle()

        return step

    def settle() -> None:
        """Let the receiver take what comes, and the broker hear of it."""
        for _ in range(2):
            receiver.write({"type": "list_groups", "requestId": "g"})
            receiver.next("groups")

    def check() -> None:
        settle()
        person = met(broker)
        control = {"recipientPurpose": "control"}
        try:
            person.register(session=control, features=["operator"], clientProtocolVersion="1.0", kind="test")
            person.send({"type": "mailbox", "requestId": "m", "of": {"address": "receiver"}})
            assert person.expect("mailbox")["count"] == 0, "everything was handed over"
            for message_id in answers:
                person.send({"type": "trace", "requestId": "t", "messageId": message_id})
                assert person.expect("trace")["state"] == "delivered"
        except (EndOfStream, ConnectionError):
            raise Killed from None
        finally:
            person.close()

    steps = [both, queue("m1", "m2"), fetch("m1", "m2"), queue("m3"), queue("m4"), fetch("m3", "m4"), check]
    while steps:
        try:
            steps[0]()
            steps.pop(0)
        except Killed:
            deaths += 1
            broker.wait()
            broker = start()
            for party in (sender, receiver):
                party.leave()
            try:
                both()
            except Killed:
                raise AssertionError("only one death is asked for") from None
    if broker.process.poll() is None:
        assert broker.stop() == 0
    return sender, receiver, answers, deaths


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """A5.1, F72: no item lost, none with two outcomes, no second effect at the receiver that it could not recognise."""
    commits = 0
    while True:
        commits += 1
        faults = [KILLING.replace("MOMENT", moment).replace("COUNT", str(commits))]

        def start(faults: list[str] = faults, home: Path = tmp_path / str(commits)) -> BrokerProcess:
            return start_broker(home, fault=faults.pop() if faults else "")

        _, receiver, answers, deaths = play(start)
        assert sorted(answers) == list(MESSAGES)
        assert set(answers.values()) <= {"queued", "delivered"}
        assert all(receiver.seen[message_id] >= 1 for message_id in MESSAGES)
        again = [message_id for message_id, count in receiver.seen.items() if count > 1]
        assert deaths or not again, "a copy comes only after a death"
        if not deaths:
            break
    assert commits > len(MESSAGES), "every message takes a commit at least"
