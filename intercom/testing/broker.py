"""Turn a whole broker by hand: the core, its disk, its clock, and the wires to its sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from intercom.client.profile import DEFAULT_KIND, AddressWish, Profile, Purpose, Push, TakesFlows
from intercom.client.workerjournal import WorkerJournal
from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.core.connections import PeerCredentials
from intercom.core.effects import Append, Broadcast, Destroy, Discard, Effect, Finish, Stop, WatchProcess, Write
from intercom.core.records import ReadBodies, ReadHistory, Reading, ReadJournal, StoreIdentity
from intercom.errors import NoBroker, UsageError
from intercom.limits import CONNECT_MS, KEY_BYTES, Limits
from intercom.testing.disk import MemoryDisk, counted_ids
from intercom.testing.keeping import MemoryKeeper
from intercom.testing.session import IncomingMessage, MemorySession
from intercom.testing.wire import Wire
from intercom.wire.codec import ProtocolError, decode_request, encode
from intercom.wire.framing import FramingError
from intercom.wire.mail import Hold
from intercom.wire.work import ExecutionSurface, WorkMode

_FIRST = Instant(mono=1_000_000, wall=1_700_000_000_000)
_KEY = bytes(range(KEY_BYTES))
_PID = 1
_BROKER_ID = "b0000000-0000-4000-8000-000000000000"
_JOURNAL_ID = "d0000000-0000-4000-8000-000000000000"


class MemoryBroker:
    """Be a broker in memory, together with its disk, its clock and the wires to its sessions.

    Args:
        limits: the numbers the core decides by.
    """

    def __init__(self, *, limits: Limits | None = None) -> None:
        """Begin with an empty disk."""
        self._limits = limits or Limits()
        self._now = _FIRST
        self._disk = MemoryDisk()
        self._ids = counted_ids()
        self._wires: dict[int, Wire] = {}
        self._connections = 0
        self._sessions: list[MemorySession] = []
        self._keepers: dict[tuple[str, str], MemoryKeeper] = {}
        self._journals: dict[tuple[str, str], WorkerJournal] = {}
        self._failures: deque[tuple[str, bool]] = deque()
        self._core: Broker | None = None
        self._appends: deque[Append] = deque()
        self._reads: deque[Reading] = deque()
        self._judgements: deque[str] = deque()
        self._last_ticket = self._committed = 0
        self._is_turning = False
        self._stop_reason: str | None = None
        self._starts = 0
        self.restart()

    @property
    def now(self) -> Instant:
        """Return the time on both clocks, in milliseconds."""
        return self._now

    @property
    def running(self) -> bool:
        """Tell whether the broker is there."""
        return self._core is not None

    def connect(
        self,
        name: str | None = None,
        *,
        group: str | None = None,
        groups: Iterable[str] | None = None,
        model: str = "",
        status: str | None = None,
        purpose: Purpose = "agent",
        return_address: str | None = None,
        session_id: str | None = None,
        cwd: str = "/",
        supervisor: str | None = None,
        owner_token: str | None = None,
        address: bool | str = False,
        hold: Hold = "take",
        keep_questions: bool = False,
        kind: str = DEFAULT_KIND,
        work_mode: WorkMode | None = None,
        runtime_session_id: str | None = None,
        surface: ExecutionSurface | None = None,
        coordinator: bool = False,
        push: Push | None = None,
        push_way: str | None = None,
        flows: TakesFlows = False,
        durable: bool = False,
        answer: Callable[[IncomingMessage], str | None] | None = None,
    ) -> MemorySession:
        """Register a session; what all but ``answer`` mean is told by ``intercom.blocking.connect``.

        ``answer`` is called with every message as soon as it comes, which confirms it; the text it returns is the
        reply. Raises ``UsageError`` and ``RegistrationRefused``, and ``NoBroker`` while there is none.
        """
        profile = Profile(
            name,
            group=group,
            groups=groups,
            model=model,
            status=status,
            purpose=purpose,
            return_address=return_address,
            session_id=session_id,
            cwd=cwd,
            supervisor=supervisor,
            owner_token=owner_token or (self._ids() if purpose == "agent" else None),
            address=address,
            hold=hold,
            keep_questions=keep_questions,
            kind=kind,
            work_mode=work_mode,
            runtime_session_id=runtime_session_id,
            surface=surface,
            coordinator=coordinator,
            push=push,
            push_way=push_way,
            flows=flows,
            durable=durable,
        )
        profile.pid, profile.started_at = _PID, self._now.wall
        if return_address is None:
            profile.return_address = self._ids()
        journal = self._journal(profile.address) if durable else None
        session = MemorySession(self, profile, self._ids, answer, self._keeper(profile.address), journal)
        session._core.prepare(self._now.wall)
        self._sessions.append(session)
        opening = session._begin(session._core.opening(self._now.mono, CONNECT_MS))
        try:
            opening.result()
        except BaseException:
            session.close()
            raise
        return session

    def wire(self) -> Wire:
        """Open a connection that carries bytes, for a client that is not ours; raises ``NoBroker``."""
        if self._core is None:
            raise NoBroker("The broker in memory was stopped and not restarted")
        self._connections += 1
        wire = Wire(self, self._connections)
        self._wires[wire.number] = wire
        self._perform(self._core.connection_opened(wire.number, PeerCredentials(_PID, 0, 0), self._now))
        self._turn()
        return wire

    def _keeper(self, wish: AddressWish | None) -> MemoryKeeper | None:
        """Return who keeps an address; names are the same whatever their case, as for the broker."""
        if wish is None:
            return None
        keeper = self._keepers.setdefault((wish.name.lower(), wish.group), MemoryKeeper(self._ids))
        keeper.prepare()
        return keeper

    def _journal(self, wish: AddressWish | None) -> WorkerJournal | None:
        """Return the journal of the durable sessions of an address."""
        if wish is None:
            return None
        return self._journals.setdefault((wish.name.lower(), wish.group), WorkerJournal(self._ids))

    # --- time and trouble -------------------------------------------------------------------------------

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks; everything that is due meanwhile happens at its time.

        Raises ``UsageError`` for anything but whole milliseconds, and for negative ones: time does not run backwards.
        """
        if not isinstance(milliseconds, int) or isinstance(milliseconds, bool):
            raise UsageError(f"advance takes whole milliseconds, not {milliseconds!r}")
        if milliseconds < 0:
            raise UsageError(f"advance takes 0 or more milliseconds, not {milliseconds}: time does not run backwards")
        self._advance(milliseconds, lambda: False)

    def _advance(self, milliseconds: int, until: Callable[[], bool]) -> None:
        """Let time pass, at most until something holds."""
        end = self._now.mono + milliseconds
        self._turn()
        while not until() and (due := self._next_due()) is not None and due <= end:
            self._set(max(due, self._now.mono))
            if self._core is not None:
                self._perform(self._core.deadline_passed(self._now))
            for session in list(self._sessions):
                session._core.tick(self._now.mono)
            self._turn()
        if not until():
            self._set(end)

    def fail_next_commit(self, reason: str = "the disk is full", *, final: bool = False) -> None:
        """Let the next commit fail, once; called again, the one after it too.

        ``final`` closes the store for the life of this broker, as a failed sync does.
        """
        self._failures.append((reason, final))

    def crash(self) -> None:
        """End the broker without a word: what was not committed is lost, every connection breaks."""
        self._fall_down()
        self._turn()

    def stop(self) -> None:
        """End the broker in order: what is on its way arrives, reservations that did not leave are forgotten."""
        if self._core is None:
            return
        self._turn()
        core = self._core
        self._perform(core.draining(self._now))
        self._turn()
        self._perform(core.stop(self._now))
        for wire in list(self._wires.values()):
            for write in wire._drop():
                if write.token is not None:
                    self._perform(core.frame_lost(write.token, self._now))
        self._commit()
        self._fall_down()
        self._turn()

    def restart(self) -> None:
        """Start a broker on what was committed; one that is there dies at this moment.

        Sessions return when their next attempt is due: at once when their broker died just now, else in ``advance``.
        """
        self._fall_down()
        self._last_ticket = self._committed = 0
        self._starts += 1
        self._core = Broker(
            key=_KEY,
            ids=self._ids,
            instance_id=self._ids(),
            pid=_PID,
            now=self._now,
            limits=self._limits,
            recovered=self._disk.recovered(self._now.wall, self._limits),
            identity=StoreIdentity(_BROKER_ID, _JOURNAL_ID, self._starts),
        )
        self._perform(self._core.started())
        self._turn()

    # --- effects ----------------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        """Put effects where ``_turn`` finds them."""
        lost: list[object] = []
        for effect in effects:
            if isinstance(effect, Append):
                self._last_ticket = effect.ticket
                self._appends.append(effect)
            elif isinstance(effect, Write):
                wire = self._wires.get(effect.to)
                if wire is not None:
                    wire._queue.append(effect)
                elif effect.token is not None:
                    lost.append(effect.token)
            elif isinstance(effect, Broadcast):
                for number in effect.to:
                    if number in self._wires:
                        self._wires[number]._queue.append(Write(number, effect.frame))
            elif isinstance(effect, Discard):
                if (wire := self._wires.get(effect.to)) is not None:
                    lost += [write.token for write in wire._drop() if write.token is not None]
            elif isinstance(effect, Finish):
                self._wires[effect.to]._finishing = True
            elif isinstance(effect, Destroy):
                lost += [write.token for write in self._end(effect.to) if write.token is not None]
            elif isinstance(effect, Stop):
                self._stop_reason = effect.reason
            elif isinstance(effect, ReadBodies | ReadHistory | ReadJournal):
                self._reads.append(effect)
            elif isinstance(effect, WatchProcess):
                self._judgements.append(effect.ref)
        for token in lost:
            if self._core is not None:
                self._perform(self._core.frame_lost(token, self._now))

    def _turn(self) -> None:
        """Move bytes, commit, and let sessions act until nothing moves any more."""
        if self._is_turning:
            return
        self._is_turning = True
        try:
            while any(
                [self._run_due(), self._commit(), self._read_disk(), self._let_out(), self._take_in(), self._drive()]
            ):
                pass
        finally:
            self._is_turning = False

    def _run_due(self) -> bool:
        """Let the broker do what is due already: it asks for some things to be done as soon as it can."""
        due = None if self._core is None else self._core.next_deadline()
        if self._core is None or due is None or due > self._now.mono:
            return False
        self._perform(self._core.deadline_passed(self._now))
        return True

    def _commit(self) -> bool:
        if not self._appends or self._core is None:
            return False
        appends, self._appends = self._appends, deque()
        if self._failures:
            reason, final = self._failures.popleft()
            first = appends[0].ticket
            for wire in self._wires.values():
                wire._queue = deque(write for write in wire._queue if write.after < first)
            self._committed = self._last_ticket
            self._perform(self._core.commit_failed(first, reason, final, self._now))
            return True
        for append in appends:
            self._disk.commit(append)
        self._committed = appends[-1].ticket
        self._perform(self._core.committed(self._committed, self._now))
        return True

    def _read_disk(self) -> bool:
        """Answer what the core asked to be read, and let every process live."""
        moved = False
        while self._core is not None and self._judgements:
            self._perform(self._core.process_judged(self._judgements.popleft(), True, self._now))
            moved = True
        while self._core is not None and self._reads:
            read = self._reads.popleft()
            if isinstance(read, ReadBodies):
                bodies = self._disk.read_bodies(read.numbers)
                self._perform(self._core.bodies_read(read.token, read.numbers, bodies, self._now))
            elif isinstance(read, ReadHistory):
                self._perform(self._core.history_read(read.token, self._disk.read_history(read.stream), self._now))
            elif isinstance(read, ReadJournal):
                page = self._disk.read_page(read.after, read.limit)
                self._perform(self._core.journal_read(read.token, page, self._now))
            moved = True
        return moved

    def _let_out(self) -> bool:
        """Let every frame reach its client whose append is committed, in order per connection."""
        moved = False
        for wire in list(self._wires.values()):
            while wire._queue and wire._queue[0].after <= self._committed:
                write = wire._queue.popleft()
                wire._incoming += encode(write.frame)
                moved = True
                if write.token is not None and self._core is not None:
                    self._perform(self._core.frames_taken((write.token,), self._now))
            if wire._finishing and not wire._queue:
                self._end(wire.number)
                moved = True
        if self._stop_reason is not None and not any(wire._queue for wire in self._wires.values()):
            self._stop_reason = None
            self.stop()
        return moved

    def _take_in(self) -> bool:
        """Hand to the core what clients wrote."""
        moved = False
        for wire in list(self._wires.values()):
            if wire._outgoing:
                data, wire._outgoing = bytes(wire._outgoing), bytearray()
                self._read(wire, data)
                moved = True
        return moved

    def _read(self, wire: Wire, data: bytes) -> None:
        try:
            wire._reader.feed(data)
            while self._core is not None and (payload := wire._reader.next_frame()) is not None:
                self._perform(self._core.frame_received(wire.number, decode_request(payload), self._now))
        except (FramingError, ProtocolError) as error:
            if self._core is not None:
                self._perform(self._core.protocol_error(wire.number, str(error), self._now))

    def _drive(self) -> bool:
        return any([session._drive() for session in self._sessions])  # noqa: C419 - every session gets its turn

    # --- ends -------------------------------------------------------------------------------------------

    def _end(self, number: int) -> list[Write]:
        """Close a connection for its client and return what never left."""
        wire = self._wires.pop(number, None)
        if wire is None:
            return []
        wire.is_open = False
        return wire._drop()

    def _client_ended(self, wire: Wire) -> None:
        """Take notice that a client closed its end: what was written before is read, what waits for it is lost."""
        self._take_in()
        dropped = self._end(wire.number)
        if self._core is None:
            return
        self._perform([effect for effect in self._core.connection_ended(wire.number, self._now) if not _ends(effect)])
        for write in dropped:
            if write.token is not None and self._core is not None:
                self._perform(self._core.frame_lost(write.token, self._now))

    def _fall_down(self) -> None:
        self._core = None
        self._appends.clear()
        self._reads.clear()
        self._judgements.clear()
        for number in list(self._wires):
            self._end(number)

    def _next_due(self) -> int | None:
        dues = [session._next_due() for session in self._sessions]
        if self._core is not None:
            dues.append(self._core.next_deadline())
        return min((due for due in dues if due is not None), default=None)

    def _set(self, mono: int) -> None:
        self._now = Instant(mono, self._now.wall + mono - self._now.mono)


def _ends(effect: Effect) -> bool:
    return isinstance(effect, Finish | Destroy)
