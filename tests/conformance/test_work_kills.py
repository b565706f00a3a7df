"""Kill the real broker right before and right after each of its commits while work is done (FE 1.7, A5.1, A1.13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.test_mail_kills import KILLING, Killed, met
from tests.support.brokers import BrokerProcess
from tests.support.raw import EndOfStream, Frame, RawClient

pytestmark = pytest.mark.long

LIFE = ("session.lifecycle", "push.receipts", "queue")
LOOKS = 2_000
"""Round trips in which a message that is read from disk and pushed is bound to come."""
ACCEPT_MS = 600_000
"""Nothing goes back because the machine is slow."""


class Party:
    """Play one client that comes back after every death of the broker, as the same session."""

    def __init__(self, name: str, *features: str, **members: str) -> None:
        self.name = name
        self.features = [*LIFE, *features]
        self.members = members
        self.client: RawClient | None = None
        self.id = self.token = ""
        self.requests = 0
        self.assignments: dict[str, str] = {}
        """Messages by the assignments that brought them."""
        self.seen: Counter[str] = Counter()

    def come(self, broker: BrokerProcess) -> None:
        self.client = met(broker)
        if self.token:
            self.write({"type": "session_reattach", "requestId": "re", "sessionId": self.id, "ownerToken": self.token})
            if self.next("session_reattached", "request_failed")["type"] == "session_reattached":
                return
        wish = {"preferredSessionId": self.id, "ownerToken": self.token} if self.id else {}
        session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": self.name}
        self.write(
            {
                "type": "register",
                "session": session,
                "returnAddress": f"return-{self.name}",
                "acknowledgesReceipt": True,
                "features": self.features,
                "clientProtocolVersion": "1.0",
                "kind": "custom",
                **self.members,
                **wish,
            }
        )
        answer = self.next("registered")
        self.id, self.token = answer["sessionId"], answer["ownerToken"]

    def next(self, *types: str, request_id: str | None = None) -> Frame:
        """Return the next frame of these types; take the messages that come before it."""
        assert self.client is not None
        try:
            while True:
                frame = self.client.receive()
                if frame["type"] == "message":
                    self.take(frame)
                if frame["type"] in types and (request_id is None or frame.get("requestId") == request_id):
                    return frame
        except (EndOfStream, ConnectionError):
            raise Killed from None

    def take(self, frame: Frame) -> None:
        message_id = frame["message"]["id"]
        self.seen[message_id] += 1
        if "assignment" in frame:
            self.assignments[frame["assignment"]["assignmentId"]] = message_id
        receipt = {"type": "received", "messageId": message_id}
        self.write(receipt if "pushId" not in frame else {**receipt, "pushId": frame["pushId"]})

    def write(self, *frames: Frame) -> None:
        assert self.client is not None
        try:
            self.client.send(*frames)
        except ConnectionError:
            raise Killed from None

    def ask(self, kind: str, **members: object) -> Frame:
        """Make a request until it was recorded, and return its answer."""
        while True:
            self.requests += 1
            request_id = f"r{self.requests}"
            self.write({"type": kind, "requestId": request_id, **members})
            answer = self.next(*ANSWERS, request_id=request_id)
            if answer.get("code") not in ("not_recorded", "not_read"):
                return answer

    def leave(self) -> None:
        """Close the connection."""
        if self.client is not None:
            self.client.close()

    def look(self) -> None:
        """Let everything come that is on its way, and the broker read the receipts."""
        for _ in range(2):
            self.write({"type": "list_groups", "requestId": "g"})
            self.next("groups")


ANSWERS = ("request_failed", "inbox_items", "inbox_dispatched", "assignment_recorded", "assignment_replied", "trace")


def play(start: Callable[[], BrokerProcess]) -> tuple[Party, Party, int]:
    """Park a message, hand it out, accept it, answer it; every step is tried again after a death of the broker."""
    boss = Party("boss", "flow.control", "inbox")
    worker = Party("worker", "work.assignments", workMode="resident", executionSurface="headless")
    sender = Party("sender")
    parties = (boss, worker, sender)
    broker, deaths = start(), 0

    def come() -> None:
        for party in parties:
            party.come(broker)

    def park() -> None:
        message = {"id": "m1", "timestamp": 1, "content": {"text": "do it"}}
        while True:
            sender.write({"type": "send", "to": worker.id, "message": message, "queueIfAway": True, "attemptId": "a"})
            answer = sender.next("queued", "delivered", "delivery_failed")
            if answer["type"] == "queued":
                return
            assert answer["type"] == "delivery_failed" and answer["reason"].startswith("Not recorded"), answer

    def hand_out() -> None:
        for _ in range(3):
            boss.requests += 1
            request_id = f"r{boss.requests}"
            order = {"inboxId": "m1", "targetSessionId": worker.id, "acceptWithinMs": ACCEPT_MS}
            boss.write({"type": "inbox_dispatch", "requestId": request_id, "idempotencyKey": "order", **order})
            for _ in range(LOOKS):
                if worker.assignments:
                    break
                worker.look()
            answer = boss.next(*ANSWERS, request_id=request_id)
            if answer["type"] == "inbox_dispatched":
                worker.look()
                assert answer["assignmentId"] in worker.assignments
                worker.assignments = {answer["assignmentId"]: "m1"}
                return
            assert answer["code"] in ("not_recorded", "target_not_writable"), answer
        raise AssertionError("it is never handed over")

    def handle() -> dict[str, str]:
        [assignment_id] = worker.assignments
        return {"sourceMessageId": "m1", "assignmentId": assignment_id}

    def accept() -> None:
        answer = worker.ask("assignment_report", **handle(), stateEventId="e1", state="accepted")
        assert answer.get("stateSequence") == 2, answer

    def begin() -> None:
        answer = worker.ask("assignment_report", **handle(), stateEventId="e2", state="started")
        assert answer.get("stateSequence") == 3, answer

    replied: set[str] = set()

    def answer_it() -> None:
        answer = worker.ask("assignment_reply", **handle(), replyRequestId="q1", content={"text": "done"})
        assert answer["type"] == "assignment_replied", answer
        replied.add(answer["messageId"])

    def check() -> None:
        answer_it()  # once more: the same answer, and nothing is sent
        [reply] = replied
        for _ in range(LOOKS):
            if sender.seen[reply]:
                break
            sender.look()
        assert sender.seen[reply] >= 1
        assert boss.ask("inbox_list")["items"] == []
        assert sender.ask("trace", messageId="m1")["state"] == "answered"
        late = worker.ask("assignment_report", **handle(), stateEventId="e3", state="started")
        assert late["code"] == "assignment_unknown"

    steps = [come, park, hand_out, accept, begin, answer_it, check]
    while steps:
        try:
            steps[0]()
            steps.pop(0)
        except Killed:
            deaths += 1
            broker.wait()
            broker = start()
            for party in parties:
                party.leave()
            if steps[0] is not come:
                come()
    if broker.process.poll() is None:
        assert broker.stop() == 0
    return worker, sender, deaths


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """FE 1.7, A1.13, A5.1: the same assignment, one reply, nothing lost and nothing with two ends."""
    commits = 0
    while True:
        commits += 1
        faults = [KILLING.replace("MOMENT", moment).replace("COUNT", str(commits))]

        def start(faults: list[str] = faults, home: Path = tmp_path / str(commits)) -> BrokerProcess:
            return start_broker(home, fault=faults.pop() if faults else "")

        _, sender, deaths = play(start)
        copies = [message_id for message_id, count in sender.seen.items() if count > 1]
        assert deaths or not copies, "a copy comes only after a death"
        if not deaths:
            break
    assert commits > 6, "every step takes a commit at least"
