"""Drive the core without sockets, sleep or chance: a hand-turned clock, counted ids, and a wire of Python lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec.json import decode as from_json
from msgspec.json import encode as to_json
from msgspec.structs import replace

from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.core.connections import PeerCredentials
from intercom.core.effects import (
    Append,
    Broadcast,
    Destroy,
    Discard,
    Effect,
    Finish,
    ForgetProcess,
    Note,
    Spawn,
    Stop,
    WatchProcess,
    Write,
)
from intercom.core.operation import Operation
from intercom.core.records import (
    Announce,
    ClaimAddress,
    DropAddress,
    Follow,
    Forward,
    Happened,
    HoldTargets,
    OperationsPage,
    OperationState,
    PeerFact,
    PeerWork,
    Post,
    ReadBodies,
    ReadHistory,
    Reading,
    ReadJournal,
    ReadOperations,
    Recall,
    Settle,
    StoreIdentity,
)
from intercom.limits import HEADER_BYTES, Limits
from intercom.testing.disk import MemoryDisk
from intercom.wire.codec import ProtocolError, decode_request, encode

KEY = bytes(range(32))
INSTANCE = "11111111-1111-4111-8111-111111111111"
INFO = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1}


def operation_of(message_id: str, target: str | None = None, question_due: int = 0) -> Operation:
    """Return a row of which a test needs no more than this."""
    return Operation(
        number=1,
        message_id=message_id,
        state=OperationState.RESERVED,
        signature=b"",
        sender="",
        sender_session="",
        target=target,
        recipient_session=None,
        reserved_at=0,
        is_ask=True,
        asker_return=None,
        sender_groups="",
        born=0,
        question_due=question_due,
        expires=0,
    )


def counted_ids() -> Any:
    """Give UUIDs that count up; the first eight digits differ."""
    count = 0

    def next_id() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-4000-8000-{count:012x}"

    return next_id


class Disk(MemoryDisk):
    """Hold what was committed, by the rules the store follows."""


class Watcher:
    """See everything that passes between a broker and its world; the tests of all rules at once watch with it."""

    def written(self, write: Write) -> None:
        """The core wants a frame written."""

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        """The kernel took a frame; the client has it."""

    def gone(self, write: Write) -> None:
        """A frame can never leave any more: its connection died or its append failed."""

    def ended(self, conn: int) -> None:
        """The core has done with a connection."""


class World:
    """Play everything around a broker: disk, kernel, clients.

    ``auto`` commits and takes everything at once; with ``auto = False`` the test says when. Whatever happens, tickets
    must grow and nothing may be written to a connection that has ended.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        auto: bool = True,
        disk: Disk | None = None,
        watcher: Watcher | None = None,
        leaves: bool = False,
        **kwargs: Any,
    ) -> None:
        self.mono = 1_000_000
        self.wall = 1_700_000_000_000
        self.ids = counted_ids()
        self.limits = limits or Limits()
        self.disk = disk or Disk()
        self.auto = auto
        self.watcher = watcher or Watcher()
        self.leaves = leaves
        """A start leaves settled operations on the disk."""
        self.kwargs = kwargs
        self.connections = 0
        self.epoch = 0
        self.start()

    def start(self) -> None:
        """Start a broker process on what the disk holds; connections of an earlier one are gone."""
        self.epoch += 1
        self.appends: deque[Append] = deque()
        self.waiting: deque[Write] = deque()
        self.committed = 0
        self.last_ticket = 0
        self.last_sequence = self.disk.sequence
        self.open: set[int] = set()
        self.broken: set[int] = set()
        self.unnoticed: set[int] = set()
        self.received: dict[int, list[dict[str, Any]]] = {}
        self.finished: set[int] = set()
        self.destroyed: dict[int, str] = {}
        self.deaf: set[int] = set()
        self.stopped: list[str] = []
        self.notes: list[Note] = []
        self.reads: deque[Reading] = deque()
        self.watched: dict[str, WatchProcess] = {}
        self.spawned: list[Spawn] = []
        self.peer_work: list[PeerWork] = []
        """What other brokers are to do."""
        recovered = self.disk.recovered(self.wall, self.limits)
        if self.leaves:
            needed = [record for record in recovered.operations if not record.is_settled]
            recovered = replace(recovered, operations=needed, left_until=max(self.disk.operations, default=0))
        self.broker = Broker(
            key=KEY,
            ids=self.ids,
            instance_id=INSTANCE,
            pid=77,
            limits=self.limits,
            recovered=recovered,
            now=self.now,
            **{"identity": StoreIdentity(INSTANCE, INSTANCE, self.epoch), **self.kwargs},
        )
        self.perform(self.broker.started())

    @property
    def now(self) -> Instant:
        return Instant(self.mono, self.wall)

    # --- clients ----------------------------------------------------------------------------------------

    def connect(self, peer: PeerCredentials | None = None) -> int:
        self.connections += 1
        conn = self.connections
        self.received[conn] = []
        self.open.add(conn)
        self.perform(self.broker.connection_opened(conn, peer, self.now))
        return conn

    def send(self, conn: int, **members: Any) -> list[dict[str, Any]]:
        """Write one frame and return what this client has got since it last looked."""
        return self.feed(conn, to_json(members))

    def feed(self, conn: int, payload: bytes) -> list[dict[str, Any]]:
        """Write the bytes of one frame and return what this client has got since it last looked."""
        try:
            frame = decode_request(payload)
        except ProtocolError as error:
            self.perform(self.broker.protocol_error(conn, str(error), self.now))
        else:
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
        """Let the client send FIN; what is queued for it can still be taken."""
        self.perform(self.broker.connection_ended(conn, self.now))

    def break_off(self, conn: int) -> None:
        """Let a socket fail; the core hears of it after the next thing that happens to it."""
        self.broken.add(conn)
        self.unnoticed.add(conn)

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

    def peer_told(self, fact: PeerFact) -> None:
        """Tell the broker something of another one."""
        self.perform(self.broker.peer_told(fact, self.now))

    def perform(self, effects: list[Effect]) -> None:
        lost: list[Write] = []
        for effect in effects:
            match effect:
                case Append():
                    assert effect.ticket > self.last_ticket, "tickets grow"
                    self.last_ticket = effect.ticket
                    for change in effect.changes:
                        if isinstance(change, Happened):
                            assert change.seq > self.last_sequence, "events are numbered in the order of their appends"
                            self.last_sequence = change.seq
                    self.appends.append(effect)
                case Write():
                    self._put(effect, lost)
                case Broadcast(numbers, frame):
                    for number in numbers:
                        self._put(Write(number, frame), lost)
                case Discard(number):
                    lost.extend(self._drop(number))
                case Finish(number):
                    self.open.remove(number)
                    self.finished.add(number)
                    self.watcher.ended(number)
                case Destroy(number, reason):
                    self.open.remove(number)
                    self.destroyed[number] = reason
                    self.watcher.ended(number)
                    lost.extend(self._drop(number))
                case Stop(reason):
                    self.stopped.append(reason)
                case Note():
                    self.notes.append(effect)
                case ReadBodies() | ReadHistory() | ReadJournal() | ReadOperations():
                    self.reads.append(effect)
                case WatchProcess():
                    self.watched[effect.ref] = effect
                case Spawn():
                    self.spawned.append(effect)
                case Forward() | Follow() | Recall() | Announce() | Post() | Settle():
                    self.peer_work.append(effect)
                case ClaimAddress() | DropAddress() | HoldTargets():
                    self.peer_work.append(effect)
                case ForgetProcess(ref):
                    self.watched.pop(ref, None)
        self._tell_lost(lost)
        if self.auto:
            self.settle()

    def _put(self, write: Write, lost: list[Write]) -> None:
        assert write.to in self.open, "nothing is written to a connection that has ended"
        assert write.after <= self.last_ticket, "a frame waits for an append that was made"
        self.watcher.written(write)
        if write.to in self.broken:
            lost.append(write)
        else:
            self.waiting.append(write)

    def _drop(self, conn: int) -> list[Write]:
        dropped = [write for write in self.waiting if write.to == conn]
        self.waiting = deque(write for write in self.waiting if write.to != conn)
        return dropped

    def _tell_lost(self, lost: list[Write]) -> None:
        """Tell the core of broken connections first, then of the frames that went down with them."""
        while self.unnoticed:
            conn = self.unnoticed.pop()
            lost.extend(self._drop(conn))
            if conn in self.open:
                self.perform(self.broker.connection_ended(conn, self.now))
        for write in lost:
            self.watcher.gone(write)
            if write.token is not None:
                self.perform(self.broker.frame_lost(write.token, self.now))

    def settle(self) -> None:
        """Commit and take until nothing moves any more."""
        while self.appends or self.reads or any(True for _ in self._ready_places(None)):
            self.commit()
            self.take()
            self.read()

    def read(self, *, fails: bool = False) -> None:
        """Carry out what the core asked to be read so far."""
        auto, self.auto = self.auto, False
        for _ in range(len(self.reads)):
            read = self.reads.popleft()
            if isinstance(read, ReadBodies):
                bodies = None if fails else self.disk.read_bodies(read.numbers)
                self.perform(self.broker.bodies_read(read.token, read.numbers, bodies, self.now))
            elif isinstance(read, ReadJournal):
                page = None if fails else self.disk.read_page(read.after, read.limit)
                self.perform(self.broker.journal_read(read.token, page, self.now))
            elif isinstance(read, ReadOperations):
                self.perform(self.broker.operations_read(None if fails else self._operations(read), self.now))
            else:
                events = None if fails else self.disk.read_history(read.stream)
                self.perform(self.broker.history_read(read.token, events, self.now))
        self.auto = auto

    def _operations(self, read: ReadOperations) -> OperationsPage:
        numbers = [number for number in sorted(self.disk.operations) if read.after < number <= read.until]
        records = [self.disk.operations[number] for number in numbers[: read.limit]]
        stale = [record.number for record in records if record.reserved_at + read.ttl_ms < read.now_ms]
        last = read.until if len(records) < read.limit else records[-1].number
        return OperationsPage([record for record in records if record.number not in stale], set(), stale, last)

    def judge(self, session_id: str, *, is_alive: bool) -> None:
        """Tell the core what became of the process behind a lost connection."""
        for ref in list(self.watched):
            if ref.startswith(session_id):
                self.perform(self.broker.process_judged(ref, is_alive, self.now))

    def commit(self, count: int | None = None) -> None:
        """Commit the next ``count`` appends, or all; the core hears of it when there was one."""
        if not self.appends:
            return
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
        dropped = [write for write in self.waiting if write.after >= first]
        self.waiting = deque(write for write in self.waiting if write.after < first)
        self.peer_work = [work for work in self.peer_work if not isinstance(work, Post) or work.after < first]
        for write in dropped:
            self.watcher.gone(write)
        self.committed = self.last_ticket
        self.perform(self.broker.commit_failed(first, "disk full", final, self.now))

    def take(self, conn: int | None = None, count: int | None = None, *, told: bool = True) -> None:
        """Let the kernel take every frame whose append is committed, in order per connection.

        Args:
            conn: only frames to this connection.
            count: at most so many.
            told: False when the broker dies before it learns what the kernel took.
        """
        auto, self.auto = self.auto, False
        while count is None or count > 0:
            place = next(self._ready_places(conn), None)
            if place is None:
                break
            write = self.waiting[place]
            del self.waiting[place]
            frame = from_json(encode(write.frame)[HEADER_BYTES:])
            if write.to in self.received:
                self.received[write.to].append(frame)
            self.watcher.taken(write, frame)
            if write.token is not None and told:
                self.perform(self.broker.frames_taken([write.token], self.now))
            count = None if count is None else count - 1
        self.auto = auto

    def _ready_places(self, conn: int | None) -> Iterator[int]:
        blocked = self.deaf | self.broken
        for place, write in enumerate(self.waiting):
            if write.to not in blocked and write.after <= self.committed and conn in (None, write.to):
                yield place
            blocked = blocked | {write.to}

    def lose(self, conn: int) -> None:
        """Drop what waits for a connection that is gone, and tell the core."""
        self._tell_lost(self._drop(conn))

    def stop(self) -> None:
        """Stop gracefully: commit, flush who takes anything, forget what did not leave, commit that (design 5)."""
        self.auto = False
        self.perform(self.broker.draining(self.now))
        self.settle()
        self.perform(self.broker.stop(self.now))
        for conn in {write.to for write in self.waiting}:
            self.lose(conn)
        self.commit()

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

    def ask(self, to: str, message_id: str, text: str = "?", **more: Any) -> list[dict[str, Any]]:
        """Send a message that expects a reply."""
        return self.message(to, message_id, text, expectsReply=True, **more)

    def reply(
        self, to: str, message_id: str, question: str, text: str = "!", *, pending: bool = True, **more: Any
    ) -> list[dict[str, Any]]:
        """Answer a question; ``pending`` allows the reply only while the question is open."""
        extra = {"requirePendingReply": True} if pending else {}
        return self.message(to, message_id, text, extra=extra, replyTo=question, **more)

    def leave(self) -> None:
        """Let the connection break: what the kernel has not taken is lost."""
        self.world.lose(self.conn)
        self.world.end(self.conn)


ANNOUNCEMENTS = frozenset({"session_joined", "session_left", "presence_update"})


def without_announcements(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what was said about who is here."""
    return [frame for frame in frames if frame["type"] not in ANNOUNCEMENTS]


def only(frames: list[dict[str, Any]], type: str | None = None) -> dict[str, Any]:
    """Return the one frame that came, of this type; announcements count only when one is looked for."""
    frames = frames if type in ANNOUNCEMENTS else without_announcements(frames)
    assert len(frames) == 1, frames
    assert type is None or frames[0]["type"] == type, frames
    return frames[0]


def answers(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the final answers to sends among these frames."""
    return [frame for frame in frames if frame["type"] in ("delivered", "delivery_failed", "queued")]


def reason(frames: list[dict[str, Any]]) -> str:
    """Return why a send failed whose only answer is a refusal."""
    return str(only(answers(frames), "delivery_failed")["reason"])


def is_delivered(frames: list[dict[str, Any]]) -> bool:
    """Tell whether the only answer to a send is ``delivered``."""
    return types(answers(frames)) == ["delivered"]


def types(frames: list[dict[str, Any]]) -> list[str]:
    """Return the types of these frames, in order."""
    return [str(frame["type"]) for frame in frames]
