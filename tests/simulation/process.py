"""Be the process of one broker: everything ``server.serving`` puts together, but for sockets, threads and signals."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from intercom.cluster.local import Alone
from intercom.config import Durability
from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.core.connections import PeerCredentials
from intercom.core.records import Recovered, StoreIdentity
from intercom.limits import FRAME_BYTES, KEY_BYTES, Limits
from intercom.server.intake import Intake
from intercom.server.lifecycle import IdleCheck
from intercom.server.link import Link
from intercom.server.perform import Performer
from intercom.server.serving import NoWriter
from intercom.store.database import StoreUnusable
from tests.simulation.disk import Disk, HandReader, HandWriter
from tests.simulation.machine import Clock, Doom, Loop
from tests.simulation.wire import Wire, WireLink

_PID = 1


class Silent:
    """Take the notes of a broker; the world needs none."""

    def write(self, event: str, *, level: str = "info", **members: object) -> None:
        """Forget it."""


class NoSpawner:
    """Start nothing: no world asks for it."""

    kinds: tuple[str, ...] = ()

    def spawn(self, ref: str, kind: str, prompt: str, token: str) -> None:
        """Refuse."""
        raise AssertionError("no kind is named")

    def close(self) -> None:
        """Do nothing."""


class Watched:
    """Watch processes: judge them when the world says so."""

    def __init__(self, is_alive: Callable[[int], bool]) -> None:
        self._is_alive = is_alive
        self.refs: dict[str, int] = {}
        self.told: dict[str, bool] = {}

    def watch(self, ref: str, pid: int, started: int | None) -> None:
        """Judge a process, and tell of its end."""
        self.refs[ref] = pid
        self.told.pop(ref, None)

    def forget(self, ref: str) -> None:
        """Watch it no longer."""
        self.refs.pop(ref, None)
        self.told.pop(ref, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self.refs.clear()

    def news(self) -> list[tuple[str, bool]]:
        """Return what the broker was not told yet."""
        if not self.refs:
            return []
        found = [(ref, self._is_alive(pid)) for ref, pid in self.refs.items()]
        return [(ref, is_alive) for ref, is_alive in found if self.told.get(ref) is not is_alive]


class Process:
    """Run one broker over the disk it finds, one step of its event loop after another."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        doom: Doom,
        chance: random.Random,
        is_alive: Callable[[int], bool],
        limits: Limits,
        durability: Durability = "full",
    ) -> None:
        self.clock = clock
        self.doom = doom
        self.disk = disk
        self.started_at = clock.now.mono
        self.loop = Loop(clock)
        self.links: dict[int, WireLink] = {}
        self.wires: list[Wire] = []
        """All it ever had: its kernel closes them when it ends, whatever it knows of them."""
        self.stop_reason: str | None = None
        self.writer: HandWriter | NoWriter = NoWriter()
        self.trouble: str | None = None
        self.recovered = Recovered()
        identity: StoreIdentity | None = None
        key = bytes(KEY_BYTES)
        try:
            store = disk.open(limits, durability)
        except StoreUnusable as error:
            self.trouble = error.reason
        else:
            self.writer = HandWriter(store, disk, self._notified)
            self.recovered, key = store.recovered, store.key
            identity = StoreIdentity(store.broker_id, store.journal_id, store.epoch)
        ids = clock.ids(random.Random(chance.getrandbits(64)))
        self.broker = Broker(
            key=key,
            ids=ids,
            instance_id=ids(),
            pid=_PID,
            now=clock.now,
            limits=limits,
            recovered=self.recovered,
            store_trouble=self.trouble,
            identity=identity,
        )
        self.idle = IdleCheck(clock.now.mono, None)
        self.watched = Watched(is_alive)
        self.reader = HandReader(disk.paths.database, self._read_ready, disk)
        self.performer = Performer(
            self.broker,
            self.writer,
            clock=clock,
            schedule=self.loop.soon.append,
            linger=lambda: None,
            log=Silent(),  # type: ignore[arg-type]
            on_stop=self._stop_asked,
            on_ended=self._ended,
            on_resume=self._resumed,
            after_turn=lambda: None,
            reader=self.reader,
            processes=self.watched,
            spawner=NoSpawner(),
            directory=Alone(lambda: self.loop.soon.append(self.performer.peers_told)),
        )
        self.intake = Intake(self.broker, self.performer, self.idle, clock=clock, frame_bytes=FRAME_BYTES)
        self.performer.run(self.broker.started(), clock.now)

    @property
    def is_closed(self) -> bool:
        """Tell whether its store takes nothing any more."""
        return self.trouble is not None or self.broker._ledger.is_closed

    def accept(self, wire: Wire) -> None:
        """Take a new connection."""
        now = self.clock.now
        link = WireLink(wire, self.loop, self.intake, self.performer, wire.pid)
        self.links[wire.number] = link
        self.wires = [each for each in self.wires if not each.broker_gone] + [wire]
        self.performer.add(link)
        self.idle.opened(wire.number, now.mono)
        peer = PeerCredentials(wire.pid, 0, 0, wire.pid)
        self.performer.run(self.broker.connection_opened(wire.number, peer, now), now)

    def steps(self) -> list[Callable[[], object]]:
        """Return what the process could do next."""
        loop = self.loop
        found: list[Callable[[], object]] = []
        if loop.soon:
            found.append(self._next_call)
        found += [read for wire, read in loop.readers.items() if wire.can_be_read]
        found += [write for wire, write in loop.writers.items() if wire.room or wire.client_gone]
        found += [partial(loop.run, timer) for timer in loop.due()]
        due = self.broker.next_deadline()
        if due is not None and due <= self.clock.now.mono:
            found.append(self._deadline)
        if isinstance(self.writer, HandWriter) and self.writer.has_work:
            found.append(self.writer.work)
        if self.reader.has_work:
            found.append(self.reader.work)
        found += [partial(self._judged, ref, is_alive) for ref, is_alive in self.watched.news()]
        return found

    def next_due(self) -> int | None:
        """Return when time alone makes the process do something."""
        dues = (self.broker.next_deadline(), self.loop.next_due())
        return min((due for due in dues if due is not None), default=None)

    def die(self, *, power_fails: bool) -> None:
        """Be gone: every connection ends with what was sent, the disk keeps what it has."""
        for wire in self.wires:
            wire.close()
        self.reader.close(0)
        self.disk.die(power_fails=power_fails)

    def leave(self) -> None:
        """Stop in order, as ``Serving`` does: let out what is committed, forget what did not leave, say goodbye."""
        self.intake.stop()
        for link in self.performer.links():
            link.stop_reading()
        now = self.clock.now
        self.performer.run(self.broker.draining(now), now)
        self._turn_until(lambda: self.performer.is_quiet)
        self.performer.fall_silent(self.clock.now)
        self._turn_until(lambda: not self.performer.has_uncommitted)
        for link in self.performer.links():
            link.shut_down()
        for link in list(self.performer.links()):
            link.close()
        self.performer.close(0)
        self.writer.close(0)
        self.disk.close()
        for wire in self.wires:
            wire.close()

    def _turn_until(self, is_done: Callable[[], bool]) -> None:
        self.performer.wake()
        for _ in range(40):
            if is_done():
                return
            if isinstance(self.writer, HandWriter) and self.writer.has_work:
                self.writer.work()
            self.performer.wake()
            self._next_call()

    def _next_call(self) -> None:
        if self.loop.soon:
            self.loop.soon.pop(0)()

    def _deadline(self) -> None:
        now = self.clock.now
        self.performer.run(self.broker.deadline_passed(now), now)

    def _judged(self, ref: str, is_alive: bool) -> None:
        self.watched.told[ref] = is_alive
        now = self.clock.now
        self.performer.run(self.broker.process_judged(ref, is_alive, now), now)

    def _notified(self) -> None:
        self.loop.soon.append(self.performer.commit_ready)

    def _read_ready(self) -> None:
        self.loop.soon.append(self.performer.read_ready)

    def _stop_asked(self, reason: str) -> None:
        self.stop_reason = reason

    def _ended(self, link: Link, now: Instant) -> None:
        self.intake.forget(link)
        self.idle.ended(link.number, now.mono)
        self.links.pop(link.number, None)

    def _resumed(self, link: Link, now: Instant) -> None:
        self.intake.resume(link, now)
