"""Drive the core without sockets, sleep or chance: a hand-turned clock, counted ids, and a wire of Python lists."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec.json import decode as from_json
from msgspec.json import encode as to_json

from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.core.effects import Append, Broadcast, Destroy, Effect, Finish, Note, Stop, Write
from intercom.core.records import (
    DropOperation,
    DropRetiredId,
    OperationRecord,
    Recovered,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
)
from intercom.core.sessions import PeerCredentials
from intercom.limits import HEADER_BYTES, Limits
from intercom.wire.codec import decode_request, encode

KEY = bytes(range(32))
INFO = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1}


def counted_ids() -> Any:
    """Give UUIDs that count up; the first eight digits differ."""
    count = 0

    def next_id() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-4000-8000-{count:012x}"

    return next_id


class Disk:
    """Hold what was committed, by the rules the store follows."""

    def __init__(self) -> None:
        self.operations: dict[int, OperationRecord] = {}
        self.retired: dict[str, RetiredIdRecord] = {}

    def commit(self, append: Append) -> None:
        for change in append.changes:
            match change:
                case SaveOperation(record):
                    self.operations[record.number] = record
                case DropOperation(number):
                    self.operations.pop(number, None)
                case SaveRetiredId(record):
                    self.retired[record.session_id] = record
                case DropRetiredId(session_id):
                    self.retired.pop(session_id, None)

    def recovered(self) -> Recovered:
        rows = [self.operations[number] for number in sorted(self.operations)]
        return Recovered(operations=rows, retired_ids=sorted(self.retired.values(), key=lambda row: row.number))


class World:
    """Play everything around a broker: disk, kernel, clients.

    ``auto`` commits and takes everything at once; with ``auto = False`` the test says when.
    """

    def __init__(self, *, limits: Limits | None = None, auto: bool = True, disk: Disk | None = None, **kwargs: Any):
        self.mono = 1_000_000
        self.wall = 1_700_000_000_000
        self.ids = counted_ids()
        self.limits = limits or Limits()
        self.disk = disk or Disk()
        self.auto = auto
        self.kwargs = kwargs
        self.connections = 0
        self.start()

    def start(self) -> None:
        """Start a broker process on what the disk holds; connections of an earlier one are gone."""
        self.appends: deque[Append] = deque()
        self.waiting: deque[Write] = deque()
        self.committed = 0
        self.received: dict[int, list[dict[str, Any]]] = {}
        self.finished: set[int] = set()
        self.destroyed: dict[int, str] = {}
        self.deaf: set[int] = set()
        self.stopped: list[str] = []
        self.notes: list[Note] = []
        self.broker = Broker(
            key=KEY,
            ids=self.ids,
            instance_id="11111111-1111-4111-8111-111111111111",
            pid=77,
            limits=self.limits,
            recovered=self.disk.recovered(),
            now=self.now,
            **self.kwargs,
        )

    @property
    def now(self) -> Instant:
        return Instant(self.mono, self.wall)

    # --- clients ----------------------------------------------------------------------------------------

    def connect(self, peer: PeerCredentials | None = None) -> int:
        self.connections += 1
        conn = self.connections
        self.received[conn] = []
        self.perform(self.broker.connection_opened(conn, peer, self.now))
        return conn

    def send(self, conn: int, **members: Any) -> list[dict[str, Any]]:
        """Write one frame and return what this client has got since it last looked."""
        frame = decode_request(to_json(members))
        self.perform(self.broker.frame_received(conn, frame, self.now))
        return self.got(conn)

    def register(self, name: str | None = None, *, info: dict[str, Any] | None = None, **members: Any) -> Client:
        conn = self.connect()
        session = {**INFO, **({} if name is None else {"name": name}), **(info or {})}
        answers = self.send(conn, type="register", session=session, **members)
        assert answers and answers[0]["type"] == "registered", answers
        return Client(self, conn, answers[0]["sessionId"], answers)

    def got(self, conn: int) -> list[dict[str, Any]]:
        frames, self.received[conn] = self.received[conn], []
        return frames

    def end(self, conn: int) -> None:
        self.perform(self.broker.connection_ended(conn, self.now))

    def pass_time(self, ms: int) -> None:
        """Turn both clocks and run what is due, in steps, as a server would."""
        end = self.mono + ms
        while (due := self.broker.next_deadline()) is not None and due <= end:
            self._turn(max(due, self.mono))
            self.perform(self.broker.deadline_passed(self.now))
        self._turn(end)

    def _turn(self, mono: int) -> None:
        self.wall += mono - self.mono
        self.mono = mono

    # --- disk and kernel --------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    assert effect.ticket > self.committed
                    self.appends.append(effect)
                case Write():
                    self.waiting.append(effect)
                case Broadcast(numbers, frame):
                    self.waiting.extend(Write(number, frame) for number in numbers)
                case Finish(number):
                    self.finished.add(number)
                case Destroy(number, reason):
                    self.destroyed[number] = reason
                    self.lose(number)
                case Stop(reason):
                    self.stopped.append(reason)
                case Note():
                    self.notes.append(effect)
        if self.auto:
            self.settle()

    def settle(self) -> None:
        """Commit and take until nothing moves any more."""
        while self.appends or any(self._is_ready(write) for write in self.waiting):
            self.commit()
            self.take()

    def commit(self, count: int | None = None) -> None:
        """Commit the next ``count`` appends, or all."""
        for _ in range(len(self.appends) if count is None else min(count, len(self.appends))):
            append = self.appends.popleft()
            self.disk.commit(append)
            self.committed = append.ticket
        auto, self.auto = self.auto, False
        self.perform(self.broker.committed(self.committed, self.now))
        self.auto = auto

    def fail_commit(self, *, final: bool = False) -> None:
        """Let the next append fail, with everything queued behind it."""
        first = self.appends[0].ticket
        self.appends.clear()
        self.waiting = deque(write for write in self.waiting if write.after < first)
        self.perform(self.broker.commit_failed(first, "disk full", final, self.now))

    def _is_ready(self, write: Write) -> bool:
        return write.after <= self.committed and write.to not in self.deaf

    def take(self) -> None:
        """Let the kernel take every frame whose append is committed, in order per connection."""
        blocked: set[int] = set()
        waiting, self.waiting = self.waiting, deque()
        auto, self.auto = self.auto, False
        kept: list[Write] = []
        for write in waiting:
            if write.to in blocked or not self._is_ready(write):
                blocked.add(write.to)
                kept.append(write)
                continue
            if write.to in self.received:
                self.received[write.to].append(from_json(encode(write.frame)[HEADER_BYTES:]))
            if write.token is not None:
                self.perform(self.broker.frame_taken(write.token, self.now))
        self.waiting.extendleft(reversed(kept))
        self.auto = auto

    def lose(self, conn: int) -> None:
        """Drop what waits for a connection that is gone, and tell the core."""
        lost = [write for write in self.waiting if write.to == conn]
        self.waiting = deque(write for write in self.waiting if write.to != conn)
        for write in lost:
            if write.token is not None:
                self.perform(self.broker.frame_lost(write.token, self.now))

    def crash(self) -> None:
        """Kill the broker and start a new one on what was committed."""
        self.start()


class Client:
    """Write frames as one client, and see what comes."""

    def __init__(self, world: World, conn: int, session_id: str, first: list[dict[str, Any]]) -> None:
        self.world = world
        self.conn = conn
        self.id = session_id
        self.first = first
        self.attempts = 0

    def write(self, type: str, **members: Any) -> list[dict[str, Any]]:
        return self.world.send(self.conn, type=type, **members)

    def message(
        self,
        to: str,
        message_id: str,
        text: str = "x",
        kind: str = "send",
        extra: dict[str, Any] | None = None,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """Send a message; ``more`` are members of the message object, ``extra`` of the frame."""
        self.attempts += 1
        message = {"id": message_id, "timestamp": 5, "content": {"text": text}, **more}
        attempt = f"{self.conn}.{self.attempts}"
        return self.write(kind, to=to, message=message, attemptId=attempt, **(extra or {}))

    def got(self) -> list[dict[str, Any]]:
        return self.world.got(self.conn)

    def texts(self) -> list[str]:
        """Return the texts of the messages that came since the last look."""
        return [frame["message"]["content"]["text"] for frame in self.got() if frame["type"] == "message"]

    def leave(self) -> None:
        self.world.lose(self.conn)
        self.world.end(self.conn)
