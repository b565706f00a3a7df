"""Do what the core decided, in the order in which it decided it.

Appends go to the writer, frames to links, and what becomes of both comes back into the core as further calls. Nothing
recurses: effects only fill queues, and one ``turn`` per turn of the event loop empties them. It sends what is free to
go, commits all that was appended, sends what the commit released, and lets links read again that waited for it. So
all frames of a loop turn to one connection leave in one write, and all appends of a loop turn in one commit.

Per message there are look-ups, appends to lists and, per link and turn, one system call; no task, timer or lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from intercom.cluster.directory import Directory
from intercom.core.broker import Broker
from intercom.core.clock import Instant
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
from intercom.core.records import Change, Post, ReadBodies, ReadHistory, Reading, ReadOperations, Settle
from intercom.limits import UNCOMMITTED_BYTES, UNCOMMITTED_FRAMES, UNSENT_BYTES
from intercom.server.link import Link
from intercom.server.log import Log
from intercom.server.spawning import Spawner
from intercom.store.reader import Read
from intercom.store.writer import Committed, Failed
from intercom.wire.codec import encode


class Committer(Protocol):
    """Commit appends in order; ``store.writer.Writer`` is the one that does it on disk."""

    def submit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        """Queue one append."""

    def kick(self) -> None:
        """Start committing all that is queued."""

    def outcomes(self) -> list[Committed | Failed]:
        """Return what became of appends since the last call."""

    def resume(self) -> None:
        """Take appends again after a failure."""


class Reads(Protocol):
    """Read what is on disk; ``store.reader.Reader`` is the one that does it."""

    def submit(self, request: Reading) -> None:
        """Queue a request."""

    def done(self) -> Sequence[Read]:
        """Return what was read since the last call."""

    def close(self, timeout_s: float) -> None:
        """End reading."""


class Watches(Protocol):
    """Watch processes; ``server.processes.Processes`` is the one that does it."""

    def watch(self, ref: str, pid: int, started: int | None) -> None:
        """Judge a process, and tell of its end."""

    def forget(self, ref: str) -> None:
        """Watch it no longer."""

    def close(self) -> None:
        """Watch nothing any more."""


class Performer:
    """Own the links and the bookkeeping between them, the writer and the core.

    Args:
        broker: the core.
        writer: where appends go.
        clock: gives the present moment.
        schedule: calls a function once in the next turn of the event loop, after what arrived for that turn.
        linger: waits for input, for less time than a sync takes.
        log: takes notes.
        on_stop: called with the reason when the core wants the broker to shut down.
        on_ended: called with every connection that the core does not know any more.
        on_resume: called with every link that may go on with the frames it has.
        after_turn: called at the end of every turn.
        reader: reads what the core does not keep in memory.
        processes: watches the processes behind lost connections.
        spawner: starts sessions.
        directory: reaches brokers on other machines.
    """

    def __init__(
        self,
        broker: Broker,
        writer: Committer,
        *,
        clock: Callable[[], Instant],
        schedule: Callable[[Callable[[], None]], object],
        linger: Callable[[], object],
        log: Log,
        on_stop: Callable[[str], None],
        on_ended: Callable[[Link, Instant], None],
        on_resume: Callable[[Link, Instant], None],
        after_turn: Callable[[], None],
        reader: Reads,
        processes: Watches,
        spawner: Spawner,
        directory: Directory,
    ) -> None:
        self._spawner = spawner
        self._directory = directory
        self._reader = reader
        self._processes = processes
        self._broker = broker
        self._writer = writer
        self._clock = clock
        self._schedule = schedule
        self._linger = linger
        self._log = log
        self._on_stop = on_stop
        self._on_ended = on_ended
        self._on_resume = on_resume
        self._after_turn = after_turn
        self._links: dict[int, Link] = {}
        self._finishing: set[Link] = set()
        self._committed = 0
        self._last_ticket = 0
        self._must_commit = False
        self._may_linger = True
        """Nothing that must be committed was asked for by a frame, and it has not waited yet."""
        self._scheduled = False
        self._dirty: list[Link] = []
        self._waiting: dict[Link, None] = {}
        self._charges: deque[tuple[int, Link, int, int]] = deque()
        self._resumable: list[Link] = []
        self._posts: deque[tuple[int, Post | Settle]] = deque()
        """What waits for its commit before it is brought to other machines, and what came after that; what came from
        there is settled behind all that was appended by then."""
        self._broken: deque[Link] = deque()
        self._lost: deque[object] = deque()

    # --- links

    def add(self, link: Link) -> None:
        """Take a new connection; the core hears of it from the caller."""
        self._links[link.number] = link

    def links(self) -> Iterator[Link]:
        """Return every open link, those included that only send what is left."""
        yield from self._links.values()
        yield from self._finishing

    def broke(self, link: Link) -> None:
        """End this link, whose socket failed; the core hears of it before any later frame of anybody."""
        self._broken.append(link)
        self._settle(self._clock())
        self.wake()

    def writable(self, link: Link) -> None:
        """Flush this link in the next turn."""
        self._mark(link)

    def released(self, link: Link, lost: Sequence[object]) -> None:
        """Forget a finished link that is closed now."""
        self._forget(link, lost)
        self.wake()

    # --- effects

    def run(self, effects: Sequence[Effect], now: Instant) -> int:
        """Perform effects in order, and what follows from links that turned out to be dead.

        Returns the last ticket appended by ``effects`` themselves, 0 if there was none.
        """
        ticket = self._perform(effects, now)
        if ticket:
            self._may_linger = False
        if self._broken or self._lost:
            self._settle(now)
        if not self._scheduled:
            self.wake()
        return ticket

    def _perform(self, effects: Sequence[Effect], now: Instant) -> int:
        ticket = 0
        links = self._links
        for effect in effects:
            if type(effect) is Write:
                link = links.get(effect.to)
                if link is not None and link.broken is None:
                    self._put(link, encode(effect.frame), effect.after, effect.token)
                elif effect.token is not None:
                    self._lost.append(effect.token)
            elif type(effect) is Append:
                ticket = effect.ticket
                self._writer.submit(ticket, effect.changes)
            elif type(effect) is Post:
                self._post(effect.after, effect)
            elif type(effect) is Settle:
                self._post(ticket or self._last_ticket, effect)
            elif isinstance(effect, Broadcast):
                data = encode(effect.frame)
                for number in effect.to:
                    link = links.get(number)
                    if link is not None and link.broken is None:
                        self._put(link, data, 0, None)
            elif isinstance(effect, Discard):
                ending = (each for each in self._finishing if each.number == effect.to)
                link = links.get(effect.to) or next(ending, None)
                if link is not None:
                    self._lost.extend(link.discard())
            elif isinstance(effect, Finish):
                link = links.pop(effect.to, None)
                if link is not None:
                    self._finishing.add(link)
                    link.finish()
                    self._mark(link)
                    self._on_ended(link, now)
            elif isinstance(effect, Destroy):
                link = links.get(effect.to)
                if link is not None:
                    self._log.write("connection_destroyed", peer_pid=link.peer_pid, reason=effect.reason)
                    self._end(link, now)
            elif isinstance(effect, Stop):
                self._on_stop(effect.reason)
            elif isinstance(effect, Note):
                self._log.write(effect.event, **effect.fields)
            elif isinstance(effect, WatchProcess):
                self._processes.watch(effect.ref, effect.pid, effect.started)
            elif isinstance(effect, ForgetProcess):
                self._processes.forget(effect.ref)
            elif isinstance(effect, Spawn):
                self._spawner.spawn(effect.ref, effect.kind, effect.prompt, effect.token)
            elif isinstance(effect, Reading):
                self._reader.submit(effect)
            else:
                self._directory.submit(effect)
        if ticket:
            self._last_ticket = ticket
            self._must_commit = True
        return ticket

    def _post(self, after: int, effect: Post | Settle) -> None:
        """Bring something to other machines behind a commit, in order."""
        if after > self._committed or self._posts:
            self._posts.append((after, effect))
        else:
            self._directory.submit(effect)

    def peers_told(self) -> None:
        """Tell the core what was heard of other machines."""
        now = self._clock()
        for fact in self._directory.done():
            self.run(self._broker.peer_told(fact, now), now)

    def read_ready(self) -> None:
        """Tell the core what was read: the reader's thread has finished something."""
        now = self._clock()
        for read in self._reader.done():
            if read.trouble is not None:
                self._log.write("store_unread", level="warning", reason=read.trouble)
            request = read.request
            if isinstance(request, ReadBodies):
                effects = self._broker.bodies_read(request.token, request.numbers, read.result, now)
            elif isinstance(request, ReadHistory):
                effects = self._broker.history_read(request.token, read.result, now)
            elif isinstance(request, ReadOperations):
                effects = self._broker.operations_read(read.result, now)
                if not self._broker.is_recalling:
                    self._let_go_on(self._links.values())
            else:
                effects = self._broker.journal_read(request.token, read.result, now)
            self.run(effects, now)

    def close(self, timeout_s: float) -> None:
        """Stop reading and watching."""
        self._spawner.close()
        self._processes.close()
        self._directory.close(timeout_s)
        self._reader.close(timeout_s)

    def resume_soon(self, link: Link) -> None:
        """Let a paused link go on in the next turn."""
        self._resumable.append(link)
        self.wake()

    def charge(self, link: Link, ticket: int, frames: int, size: int) -> None:
        """Count frames of ``size`` bytes in all against their link until ``ticket`` is committed (protocol 1.5)."""
        link.uncommitted_frames += frames
        link.uncommitted_bytes += size
        self._charges.append((ticket, link, frames, size))

    def _put(self, link: Link, data: bytes, after: int, token: object | None) -> None:
        link.put(data, after, token)
        if link.unsent > UNSENT_BYTES:
            link.broken = OSError(f"its peer left {link.unsent} bytes unread")
            self._log.write("connection_overrun", peer_pid=link.peer_pid, reason="its peer does not read")
            self._broken.append(link)
        elif link.dirty:
            return  # its flush finds out what waits
        elif after > self._committed or link.gated:
            self._waiting[link] = None
        elif not link.blocked:
            link.dirty = True
            self._dirty.append(link)

    def _mark(self, link: Link) -> None:
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)
        self.wake()

    # --- ends

    def fall_silent(self, now: Instant) -> None:
        """Send nothing more on any link and forget every reservation whose frame did not leave (design, "Stop")."""
        self._perform(self._broker.stop(now), now)
        for link in self.links():
            self._lost.extend(link.abandon())
        self._dirty.clear()
        self._waiting.clear()
        self._settle(now)
        self.wake()

    def _settle(self, now: Instant) -> None:
        """Tell the core of dead links and lost frames until there are none."""
        while self._broken or self._lost:
            if self._broken:
                link = self._broken.popleft()
                if not link.closed:
                    known = link.number in self._links
                    self._end(link, now)
                    if known:
                        self._perform(self._broker.connection_ended(link.number, now), now)
            else:
                self._perform(self._broker.frame_lost(self._lost.popleft(), now), now)

    def _end(self, link: Link, now: Instant) -> None:
        lost = link.close()
        known = self._links.pop(link.number, None) is not None
        self._forget(link, lost)
        if known:
            self._on_ended(link, now)

    def _forget(self, link: Link, lost: Sequence[object]) -> None:
        self._finishing.discard(link)
        self._waiting.pop(link, None)
        self._lost.extend(lost)

    # --- the turn

    def wake(self) -> None:
        """See to it that a turn comes; fine when one is due already."""
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self.turn)

    def turn(self) -> None:
        """Send, commit, send what was released, and let links read on; does nothing unless ``wake`` asked for it."""
        if not self._scheduled:
            return
        self._scheduled = False
        now = self._clock()
        self._flush(now)
        if self._must_commit and not self._may_linger:
            self._must_commit = False
            self._may_linger = True
            self._writer.kick()
        self._take_outcomes(now)
        self._flush(now)
        if self._resumable:
            resumable, self._resumable = self._resumable, []
            for link in resumable:
                if not link.closed:
                    self._on_resume(link, now)
        if self._dirty or self._must_commit or self._broken or self._lost:
            self.wake()
        self._after_turn()
        if self._must_commit and self._may_linger:
            # Only acceptances of frames that just left: the replies will be here in a moment and share their sync.
            self._may_linger = False
            self._linger()

    def commit_ready(self) -> None:
        """Take outcomes at once: the writer's thread finished a commit."""
        self._scheduled = True
        self.turn()

    @property
    def has_uncommitted(self) -> bool:
        """Tell whether an append waits for its commit."""
        return self._last_ticket > self._committed

    @property
    def is_quiet(self) -> bool:
        """Tell whether every append is committed and every frame was taken by the kernel."""
        if self.has_uncommitted or self._dirty or self._broken or self._lost:
            return False
        return not any(link.has_output for link in self.links())

    def _flush(self, now: Instant) -> None:
        if self._broken or self._lost:
            self._settle(now)
        dirty, self._dirty = self._dirty, []
        taken: list[object] = []
        for link in dirty:
            link.dirty = False
            if link.closed:
                continue
            taken += link.flush(self._committed)
            if link.gated:
                self._waiting[link] = None
            if link.broken is not None:
                self._broken.append(link)
        if taken:
            self._perform(self._broker.frames_taken(taken, now), now)
        if self._broken or self._lost:
            self._settle(now)

    def _take_outcomes(self, now: Instant) -> None:
        for outcome in self._writer.outcomes():
            if isinstance(outcome, Committed):
                self._commit(outcome.ticket, now)
            else:
                self._fail(outcome, now)
            if self._broken or self._lost:
                self._settle(now)

    def _commit(self, ticket: int, now: Instant) -> None:
        self._committed = ticket
        self._uncharge(ticket)
        for link in self._waiting:
            if not link.dirty and not link.blocked:
                link.dirty = True
                self._dirty.append(link)
        self._waiting.clear()
        while self._posts and self._posts[0][0] <= ticket:
            self._directory.submit(self._posts.popleft()[1])
        self._perform(self._broker.committed(ticket, now), now)

    def _fail(self, failed: Failed, now: Instant) -> None:
        for link in self.links():
            link.drop_from(failed.first)
            link.gated = False
            if not link.dirty and not link.blocked:
                link.dirty = True
                self._dirty.append(link)
        self._waiting.clear()
        posts, self._posts = self._posts, deque()
        for after, effect in posts:
            if after < failed.first:
                self._directory.submit(effect)
        # Nothing that was appended is under way any more: tickets up to here are done with, one way or the other.
        self._committed = self._last_ticket
        self._uncharge(self._last_ticket)
        effects = self._broker.commit_failed(failed.first, failed.reason, failed.final, now)
        if not failed.final:
            self._writer.resume()
        self._perform(effects, now)

    def _uncharge(self, ticket: int) -> None:
        charges = self._charges
        while charges and charges[0][0] <= ticket:
            _, link, frames, size = charges.popleft()
            link.uncommitted_frames -= frames
            link.uncommitted_bytes -= size
            if link.paused:
                self._let_go_on((link,))

    def _let_go_on(self, links: Iterable[Link]) -> None:
        """Resume those in the next turn that are paused and whose frames do not fill what may wait for a commit."""
        for link in links:
            if (
                link.paused
                and link.stepped is None
                and link.uncommitted_frames < UNCOMMITTED_FRAMES
                and link.uncommitted_bytes < UNCOMMITTED_BYTES
            ):
                link.paused = False
                self._resumable.append(link)
