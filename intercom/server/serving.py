"""Compose a running broker from its parts, run its event loop, and stop it (design section 5, "Stop")."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Timer
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from intercom.cluster.local import Alone
from intercom.config import Settings
from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.core.connections import PeerCredentials
from intercom.core.records import Change, ClusterState, Recovered, StoreIdentity
from intercom.limits import (
    COLLECT_MIDDLE,
    COLLECT_OLD,
    COLLECT_YOUNG,
    KEY_BYTES,
    LINGER_US,
    OWNERSHIP_CHECK_MS,
    STOP_FLUSH_MS,
    STOP_RESERVE_MS,
    STOP_TOTAL_MS,
)
from intercom.paths import Paths
from intercom.server.alarm import Alarm
from intercom.server.ids import random_ids
from intercom.server.intake import Intake
from intercom.server.lifecycle import IdleCheck
from intercom.server.link import Link
from intercom.server.listener import Listener
from intercom.server.log import Log
from intercom.server.ownership import LockHeld, Territory
from intercom.server.perform import Performer
from intercom.server.processes import Processes
from intercom.server.spawning import CommandSpawner
from intercom.server.watchdog import Watchdog
from intercom.store.checkpointer import Checkpointer
from intercom.store.database import Store, StoreUnusable
from intercom.store.reader import Reader
from intercom.store.writer import Outcome, Writer

if TYPE_CHECKING:
    from intercom.cluster.directory import Directory


def now() -> Instant:
    """Return the present moment on both clocks."""
    return Instant(monotonic_ns() // 1_000_000, time_ns() // 1_000_000)


def _spare_collections() -> None:
    """Let the cyclic collector look at young objects only, and rarely.

    Messages leave no cycles behind, and what the table of operations holds would be walked through again and again:
    a tenth of a second each time, in which nobody is served.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(COLLECT_YOUNG, COLLECT_MIDDLE, COLLECT_OLD)


class NoWriter:
    """Stand where the writer would be while the store cannot be used: the core appends nothing then."""

    def submit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        """Refuse: nothing may claim to be recorded."""
        raise RuntimeError("an append without a store")

    def kick(self) -> None:
        """Do nothing: nothing is queued."""

    def outcomes(self) -> list[Outcome]:
        """Return nothing."""
        return []

    def resume(self) -> None:
        """Do nothing: nothing failed."""

    def close(self, timeout_s: float) -> bool:
        """Tell that nothing is left to do."""
        return True


class StorePart(NamedTuple):
    """Hold what a broker needs of its store, or why it has none."""

    store: Store | None
    key: bytes
    recovered: Recovered
    trouble: str | None
    identity: StoreIdentity | None

    def facts(self) -> dict[str, Any]:
        """Return what the status report tells of it beside the core."""
        is_restored = self.store is not None and self.store.was_restored
        return {"journalRestored": True} if is_restored else {}


def open_store(paths: Paths, settings: Settings, log: Log) -> StorePart:
    """Open the store; one that cannot be used leaves a broker that refuses every send and says why.

    Raises ``LockHeld`` while another program holds it, which can only be for a time: a broker whose lock was deleted,
    or somebody who looks into the database. Who began all the same would refuse for as long as it lives.
    """
    try:
        store = Store.open(paths, now().wall, durability=settings.durability, limits=settings.limits())
    except StoreUnusable as error:
        if error.code == "held":
            raise LockHeld(error.reason) from error
        log.write("store_unusable", level="error", code=error.code, reason=error.reason)
        return StorePart(None, os.urandom(KEY_BYTES), Recovered(), error.reason, None)
    if store.was_restored:
        reason = "the database is an older copy; what happened since it was made is lost"
        log.write("store_restored", level="warning", reason=reason)
    identity = StoreIdentity(store.broker_id, store.journal_id, store.epoch)
    return StorePart(store, store.key, store.recovered, None, identity)


class Serving:
    """Be one broker process from the first connection to the last.

    Args:
        paths: the files of the home, whose lock the caller holds.
        settings: the settings in force.
        sock: the listening socket; closed at the end.
        territory: what this process owns of the home; given back at the end.
        log: the log; the caller closes it.
        facts: members for the status report beside those named here.
        end_process: ends the process at once with a status; called when an orderly end takes too long. None when the
            process is another program's: then nothing ends it, its garbage collector and standard error are left
            alone, and the broker stays until it is stopped, whether somebody is here or not.
    """

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        sock: socket.socket,
        territory: Territory,
        log: Log,
        facts: dict[str, Any],
        end_process: Callable[[int], object] | None = os._exit,
    ) -> None:
        self._log = log
        self._end_process = end_process
        self._is_meshed = bool(settings.cluster.url)
        self._territory = territory
        self._store = open_store(paths, settings, log)
        selector = selectors.DefaultSelector()
        self._selector = selector.fileno()
        # Named, because a program may have set a policy for its own loops.
        self._loop = asyncio.SelectorEventLoop(selector)
        self._loop.set_exception_handler(self._on_exception)
        self._checkpointer = Checkpointer(paths.database)
        self._writer: Writer | NoWriter = NoWriter()
        if self._store.store is not None:
            opening_us, committed = self._store.store.opening_us, self._checkpointer.committed
            self._writer = Writer(self._store.store, self._on_notify, opening_us, committed)
        started = now()
        self._broker = Broker(
            key=self._store.key,
            ids=random_ids().__next__,
            instance_id=str(uuid4()),
            pid=os.getpid(),
            now=started,
            limits=settings.limits(),
            recovered=self._store.recovered,
            store_trouble=self._store.trouble,
            facts={"startedAt": started.wall, **self._store.facts(), **facts},
            identity=self._store.identity,
            spawn_kinds=settings.spawn,
            node=settings.cluster.node or os.uname().nodename.partition(".")[0] or "local",
            cluster=self._cluster(settings),
        )
        self._idle = IdleCheck(started.mono, None if end_process is None else settings.idle_ms)
        self._alarm = Alarm(self._loop, self._on_deadline)
        self._performer = Performer(
            self._broker,
            self._writer,
            clock=now,
            # Timers that are due come after the readers of the same turn of the loop, other callbacks before them.
            schedule=partial(self._loop.call_at, 0),
            linger=self._linger,
            log=log,
            on_stop=self.stop,
            on_ended=self._on_ended,
            on_resume=self._on_resume,
            after_turn=self._after_turn,
            reader=Reader(paths.database, self._on_read),
            processes=Processes(self._loop, self._on_judged),
            spawner=CommandSpawner(settings.spawn, paths, os.environ, self._loop, self._on_spawn_failed),
            directory=self._directory(settings, facts, started),
        )
        self._intake = Intake(self._broker, self._performer, self._idle, clock=now, frame_bytes=settings.frame_bytes)
        self._listener = Listener(sock, self._loop, log, self._on_connection)
        self._connections = 0
        self._watchdog = Watchdog(self._on_stall, progress=self._progress) if settings.watchdog else None
        self._guard: Timer | None = None
        self._drain_task: asyncio.Task[None] | None = None
        self._turned = asyncio.Event()
        self._exit_status = 0
        self.stop_reason: str | None = None
        """Why it began to shut down."""

    def _cluster(self, settings: Settings) -> ClusterState | None:
        """Return how the way to other machines is at first; None: nobody asked for one."""
        if settings.cluster.url:
            if self._store.identity is None:
                return ClusterState("off", f"the store cannot be used: {self._store.trouble}")
            return ClusterState("starting")
        if "ATOMIC_STORAGE" in os.environ:
            return ClusterState(
                "off", "ATOMIC_STORAGE selects a database, which is not used: [cluster] in intercom.toml names servers"
            )
        return None

    def _directory(self, settings: Settings, facts: dict[str, Any], started: Instant) -> Directory:
        identity = self._store.identity
        if not settings.cluster.url or identity is None:
            return Alone(lambda: self._loop.call_soon(self._performer.peers_told))
        from intercom.cluster.nats.mesh import Mesh

        return Mesh(
            settings.cluster,
            identity,
            str(facts.get("version", "")),
            started.wall,
            loop=self._loop,
            notify=lambda: self._performer.peers_told(),
            log=self._log.write,
        )

    # --- life

    def run(self) -> int:
        """Serve until something stops the broker; return the exit status of the process."""
        if self._watchdog is not None:
            self._watchdog.start()
        if self._end_process is not None:
            _spare_collections()
        self._performer.run(self._broker.started(), now())
        self._loop.call_soon(self._tick)
        self._loop.call_soon(self._after_turn)
        try:
            self._loop.run_forever()
        except SystemExit:
            self._exit_status = 1
        if not self._close():
            # A thread is in the kernel with the store, and taking the interpreter down would wait for it.
            self._end_late(self._exit_status)
            self._outwait_writer()
        return self._exit_status

    def stop(self, reason: str) -> None:
        """Begin to shut down; later calls are ignored."""
        if self._is_stopping:
            return
        self.stop_reason = reason
        self._log.write("stopping", reason=reason)
        # Whatever hangs, be it the disk or a bug: clients wait for a successor.
        self._guard = Timer(STOP_TOTAL_MS / 1000, self._end_late, (0,))
        self._guard.daemon = True
        self._guard.start()
        self._drain_task = self._loop.create_task(self._drain())

    def stop_soon(self, reason: str) -> None:
        """Begin to shut down; may be called from any thread, also when it has ended."""
        with suppress(RuntimeError):  # of a closed loop
            self._loop.call_soon_threadsafe(self.stop, reason)

    @property
    def _is_stopping(self) -> bool:
        return self._guard is not None

    def stop_on(self, number: signal.Signals) -> None:
        """Begin to shut down when this signal comes."""
        # Not a plain handler: the kernel may hand the signal to another thread, and the loop would sleep on.
        self._loop.add_signal_handler(number, self.stop, number.name)

    async def _drain(self) -> None:
        """Read nothing more, let out what is committed, forget what did not leave, and say goodbye."""
        begin = self._loop.time()
        self._listener.stop()
        self._intake.stop()
        self._alarm.cancel()
        for link in self._performer.links():
            link.stop_reading()
        moment = now()
        self._performer.run(self._broker.draining(moment), moment)
        await self._turns_until(lambda: self._performer.is_quiet, begin + STOP_FLUSH_MS / 1000)
        self._performer.fall_silent(now())
        last_moment = begin + (STOP_TOTAL_MS - STOP_RESERVE_MS) / 1000
        await self._turns_until(lambda: not self._performer.has_uncommitted, last_moment)
        for link in self._performer.links():
            link.shut_down()
        self._loop.stop()

    async def _turns_until(self, is_done: Callable[[], bool], deadline: float) -> None:
        self._performer.wake()
        while not is_done() and (left := deadline - self._loop.time()) > 0:
            self._turned.clear()
            try:
                async with asyncio.timeout(left):
                    await self._turned.wait()
            except TimeoutError:
                return

    def _close(self) -> bool:
        """Give everything back; return whether the store was closed in time."""
        if self._watchdog is not None:
            self._watchdog.stop()
        for link in list(self._performer.links()):
            link.close()
        self._territory.give_back()
        self._listener.close()
        self._performer.close(STOP_RESERVE_MS / 1000)
        is_closed = self._writer.close(STOP_RESERVE_MS / 1000)
        self._checkpointer.close(STOP_RESERVE_MS / 1000)
        if is_closed and self._store.store is not None:
            self._store.store.close()
        self._loop.close()
        self._log.write("stopped", status=self._exit_status, store_closed=is_closed)
        if is_closed:
            self._dismiss_guard()
        return is_closed

    def _outwait_writer(self) -> None:
        """Return when the store is closed, however long the disk takes: until then the lock must not be given away."""
        while not self._writer.close(STOP_TOTAL_MS / 1000):
            pass
        if self._store.store is not None:
            self._store.store.close()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
            self._guard.join()

    # --- events

    def _on_connection(self, sock: socket.socket, peer: PeerCredentials) -> None:
        self._connections += 1
        number, moment = self._connections, now()
        try:
            link = Link(number, sock, self._loop, self._intake, self._performer, peer.pid)
        except OSError as error:  # the kernel has a limit for what one user may watch, too
            self._log.write("accept_failed", level="warning", reason=error.strerror or str(error))
            sock.close()
            return
        self._performer.add(link)
        self._idle.opened(number, moment.mono)
        self._performer.run(self._broker.connection_opened(number, peer, moment), moment)

    def _on_ended(self, link: Link, moment: Instant) -> None:
        self._intake.forget(link)
        self._idle.ended(link.number, moment.mono)

    def _on_resume(self, link: Link, moment: Instant) -> None:
        self._intake.resume(link, moment)

    def _on_notify(self) -> None:
        """Fetch outcomes; called in the writer's thread."""
        self._loop.call_soon_threadsafe(self._performer.commit_ready)

    def _on_read(self) -> None:
        """Fetch what was read; called in the reader's thread."""
        with suppress(RuntimeError):  # of a closed loop
            self._loop.call_soon_threadsafe(self._performer.read_ready)

    def _on_judged(self, ref: str, is_alive: bool) -> None:
        moment = now()
        self._performer.run(self._broker.process_judged(ref, is_alive, moment), moment)

    def _on_spawn_failed(self, ref: str, reason: str) -> None:
        moment = now()
        self._performer.run(self._broker.spawn_ended(ref, reason, moment), moment)

    def _linger(self) -> None:
        try:
            # The selector is readable when something in it is; its own wait counts in milliseconds.
            select.select((self._selector,), (), (), LINGER_US / 1_000_000)
        except ValueError:  # the descriptor is too high a number: the program has a thousand open files
            return

    def _on_deadline(self) -> None:
        moment = now()
        self._performer.run(self._broker.deadline_passed(moment), moment)
        if self._idle.is_over(moment.mono, self._broker.session_count, partial(self._awaited, moment)):
            self.stop("nobody needs the broker")

    def _awaited(self, moment: Instant) -> int:
        return self._broker.away_count + self._broker.due_soon_count(moment)

    def _after_turn(self) -> None:
        if self._guard is not None:  # it is stopping
            self._turned.set()
            return
        due, check = self._broker.next_deadline(), self._idle.next_check
        self._alarm.set(check if due is None else due if check is None else min(due, check))

    def _tick(self) -> None:
        if self._watchdog is not None:
            self._watchdog.sign()
        if not self._is_stopping and (lost := self._territory.lost()) is not None:
            self.stop(f"{lost} was removed or belongs to another broker")
        self._loop.call_later(OWNERSHIP_CHECK_MS / 1000, self._tick)

    def _progress(self) -> tuple[int, int, int]:
        """Return numbers that change with what is recorded, who comes and who goes; called in the watchdog's thread."""
        return self._broker.last_ticket, self._broker.session_count, self._connections

    def _on_stall(self, stacks: list[str]) -> None:
        """End the process, or only tell if it is another program's; called in the watchdog's thread."""
        self._log.write("stalled", level="error", reason="the event loop stands still", stacks=stacks)
        if self._end_process is not None:
            self._end_late(1)

    def _end_late(self, status: int) -> None:
        """End the process without an orderly end; may be called from any thread."""
        self._territory.give_back()
        if self._end_process is not None:
            self._end_process(status)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the loop at once: after a bug no state can be trusted, and nothing half-done may be told to anybody."""
        error = context.get("exception")
        if self._is_meshed and "handle" not in context:
            # Tasks and connections of the client library of the engine, which is no part of what must be right here.
            self._log.write("cluster_error", level="warning", reason=f"{context.get('message')}: {error!r}")
            return
        text = "".join(traceback.format_exception(error)) if error is not None else str(context.get("message"))
        self._log.write("fatal", level="error", reason=repr(error), traceback=text)
        if self._end_process is not None:
            sys.stderr.write(text)
        raise SystemExit(1)
