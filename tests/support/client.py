"""Drive a ``ClientSession`` by hand: a clock that moves when told, frames as dicts, nothing of a socket."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

from intercom.client.lifecycle import Keeper
from intercom.client.mailing import MailRequests
from intercom.client.operations import Operation
from intercom.client.profile import Profile
from intercom.client.session import ClientSession, Event, Link, Settled
from intercom.errors import BrokerBusy, IntercomError
from tests.support.raw import packed

Frame = dict[str, Any]

PEER: Frame = {
    "id": "b1111111-1111-4111-8111-111111111111",
    "name": "worker",
    "cwd": "/p",
    "model": "m",
    "pid": 11,
    "startedAt": 2,
    "lastActivity": 2,
    "group": "default",
    "groups": ["default"],
}
"""The session the tests talk to."""
OTHER: Frame = {**PEER, "id": "c2222222-2222-4222-8222-222222222222", "name": "other"}
"""A session that has no part in it."""
WALL = 1_700_000_000_000
UNANSWERED = "The broker accepts and does not answer"


def unpacked(data: bytes) -> list[Frame]:
    """Return the frames in some bytes, which must hold nothing but whole frames."""
    frames = []
    while data:
        (length,) = struct.unpack_from(">I", data)
        assert len(data) >= 4 + length, "half a frame"
        frames.append(json.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    return frames


def message(message_id: str, text: str = "hi", *, sender: Frame = PEER, **members: Any) -> Frame:
    """Return a ``message`` frame; further members go into the message object."""
    return {
        "type": "message",
        "from": sender,
        "message": {"id": message_id, "timestamp": 5, "content": {"text": text}, **members},
    }


GRANTED: Frame = {
    "features": ["address", "invoke", "policy", "push.receipts", "queue", "session.lifecycle", "waits", "watch"],
    "ownerToken": "owner",
    "incarnation": "one",
    "generation": 1,
    "mailboxCount": 0,
}
"""Members of a ``registered`` by which a broker grants an agent all it asks for."""


class Keeps:
    """Keep in memory what a session with an address keeps in files; ``log`` says in which order."""

    def __init__(self, token: str | None = None) -> None:
        self.held = token
        self.seen: set[str] = set()
        self.log: list[str] = []

    def prepare(self) -> None:
        self.log.append("prepare")

    def token(self) -> str | None:
        return self.held

    def keep_token(self, token: str) -> None:
        self.held = token

    def knows(self, message_id: str) -> bool:
        return message_id in self.seen

    def note(self, message_ids: Iterable[str]) -> None:
        self.seen.update(message_ids)

    def refresh(self) -> None:
        self.log.append("refresh")


class Rig:
    """Hold a session with its clock; ids are ``id1``, ``id2`` and so on."""

    def __init__(self, *, keeper: Keeper | None = None, **profile: Any) -> None:
        profile.setdefault("cwd", "/here")
        made = Profile(**profile)
        if "return_address" not in profile:
            made.return_address = "ret"
        self.now = 1_000_000
        self._ids = 0
        self.young_for: int | None = None
        """Time for which the next broker counts as just started, in ms."""
        self.core = ClientSession(made, ids=self._id, chance=lambda: 0.0, clock=lambda: self.now, keeper=keeper)
        self.mail = MailRequests(self.core.lifecycle, lambda: self.now)

    def _id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def connect(self) -> Frame:
        """Make a connection and return the ``register`` frame."""
        register = self.dial()
        assert register["type"] == "register"
        return register

    def dial(self) -> Frame:
        """Make a connection and return its first frame."""
        self.core.connecting()
        young_until = None if self.young_for is None else self.now + self.young_for
        self.core.connected(self.now, WALL, BrokerBusy(UNANSWERED), young_until)
        [first] = self.written()
        return first

    def reattach(self, session_id: str = "me", **members: Any) -> list[Frame]:
        """Make a connection, take the session back, and return what it writes then."""
        first = self.dial()
        assert first["type"] == "session_reattach", first
        answer = {"requestId": first["requestId"], "sessionId": session_id, "incarnation": "one", "generation": 2}
        told = {"features": GRANTED["features"], "mailboxCount": 0, **members}
        return self.feed({"type": "session_reattached", **answer, **told})

    def register(self, session_id: str = "me", **members: Any) -> list[Frame]:
        """Make a connection, answer ``registered``, and return what the session writes then."""
        self.connect()
        return self.feed({"type": "registered", "sessionId": session_id, "acknowledgesReceipt": True, **members})

    def feed(self, *frames: Frame) -> list[Frame]:
        """Hand over frames of the broker and return what the session writes."""
        self.core.receive(b"".join(map(packed, frames)), self.now)
        return self.written()

    def lose(self) -> None:
        """End the connection."""
        self.core.eof(self.now)

    def fail(self, error: IntercomError) -> None:
        """Let the next attempt to connect fail."""
        self.core.connecting()
        self.core.connect_failed(error, self.now)

    def pass_time(self, milliseconds: int) -> list[Frame]:
        """Move the clock, stopping wherever something is due, and return what the session writes."""
        end = self.now + milliseconds
        frames: list[Frame] = []
        while (due := self.core.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.tick(self.now)
            frames += self.written()
        self.now = end
        self.core.tick(self.now)
        return frames + self.written()

    def written(self) -> list[Frame]:
        """Return the frames the session wants written."""
        return unpacked(self.core.outgoing())

    def begin(self, operation: Operation[Any]) -> list[Frame]:
        """Start an operation and return what the session writes."""
        self.core.begin(operation, self.now)
        return self.written()

    def settled(self) -> list[Operation[Any]]:
        """Return the operations that were settled since the last look."""
        return [event.operation for event in self.events() if isinstance(event, Settled)]

    def events(self) -> list[Event]:
        """Return what happened since the last look."""
        return self.core.events()

    @property
    def is_broken(self) -> bool:
        """Tell whether the session wants its connection closed."""
        return self.core.link is Link.BROKEN
