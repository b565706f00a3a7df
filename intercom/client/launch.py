"""Find the broker of a home, or start one.

``Launch.steps`` is a generator, so that it can wait in any way: it yields the seconds to pause and returns the
connected socket. One client at a time starts a broker (``intercom.spawn.lock``); the others watch for whoever wins
(F1), and share its failure (F7). A started broker counts when it answers ``health``, not when it accepts a connection
(F6).
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from intercom.client.dialing import dial, not_answering
from intercom.client.failed_start import mark_of, note, noted
from intercom.errors import BrokerBusy, BrokerStarting, IntercomError, NoBroker, StartFailed, unusable_file
from intercom.limits import (
    FRAME_CEILING_BYTES,
    PROBE_MS,
    READ_BYTES,
    READY_POLL_MAX_MS,
    READY_POLL_MS,
    RECONNECT_PATIENCE,
    START_GRACE_MS,
    STARTING_MS,
)
from intercom.paths import Paths, prepare_home
from intercom.wire.codec import ProtocolError, decode_answer, encode
from intercom.wire.frames import Health, HealthRequest
from intercom.wire.framing import FrameReader

if TYPE_CHECKING:
    from intercom.client.spawning import Starting
    from intercom.locks import FileLock

Steps: TypeAlias = Generator[float, None, socket.socket]

LOCK_HELD_ELSEWHERE = 5
"""Exit status of a broker that could not get the lock of its home (design section 9)."""


class Launch:
    """Hold one attempt to get a connection; ``standing`` is what it fails with if it is given up now."""

    def __init__(self, paths: Paths, *, start: bool, now: Callable[[], int], wait_ms: int = STARTING_MS) -> None:
        """Prepare an attempt of at most ``wait_ms``; without ``start`` only a broker that is there will do.

        ``now`` is the monotonic clock in milliseconds.
        """
        self._paths = paths
        self._start = start
        self._now = now
        self._deadline = now() + wait_ms
        self._is_absent = False
        self.standing: IntercomError = NoBroker(f"No broker answers on {paths.socket}")

    def steps(self) -> Steps:
        """Yield pauses in seconds; return a connected, non-blocking socket.

        Raises ``NoBroker``, ``BrokerBusy``, ``BrokerStarting``, ``StartFailed``, ``AccessDenied`` or ``HomeError``.
        """
        for pause in self._pauses():
            try:
                return dial(self._paths)
            except BrokerBusy as error:
                self.standing = error
            except NoBroker:
                if not self._start:
                    raise
                break
            yield pause
        else:
            raise self.standing
        prepare_home(self._paths)
        return (yield from self._start_or_join())

    def _start_or_join(self) -> Steps:
        from intercom.locks import FileLock  # most connections need none

        lock = FileLock(self._paths.spawn_lock)
        has_waited = False
        earlier = mark_of(self._paths)
        try:
            for pause in self._pauses():
                if _taken(lock):
                    failure = noted(self._paths, earlier) if has_waited else None
                    if failure is not None:
                        raise failure
                    return (yield from self._start_noting_failure())
                has_waited = True
                self.standing = BrokerStarting(f"Another process is starting the broker of {self._paths.home}")
                link = yield from self._answering()
                if link is not None:
                    return link
                yield pause
        finally:
            lock.release()
        raise self.standing

    def _start_noting_failure(self) -> Steps:
        try:
            return (yield from self._start_one())
        except StartFailed as error:
            note(self._paths, error)
            raise

    def _start_one(self) -> Steps:
        from intercom.client.spawning import Starting  # most connections need none

        for _ in range(RECONNECT_PATIENCE):
            link = yield from self._unless_absent()
            if link is not None:
                return link
            starting = Starting(self._paths, os.environ)
            try:
                link = yield from self._await(starting)
            finally:
                starting.let_go()
            if link is not None:
                return link
        raise self.standing

    def _unless_absent(self) -> Generator[float, None, socket.socket | None]:
        """Wait while a broker is there and silent; ``None`` when there is none: only then one may be started."""
        for pause in self._pauses():
            link = yield from self._answering()
            if link is not None or self._is_absent:
                return link
            yield pause
        raise self.standing

    def _await(self, starting: Starting) -> Generator[float, None, socket.socket | None]:
        """Wait for the broker that was started, or another, to answer; ``None`` when it left for one that is gone."""
        self.standing = BrokerStarting(f"The broker of {self._paths.home} was started and does not answer yet")
        ended_at: int | None = None
        for pause in self._pauses():
            status = starting.ended()
            link = yield from self._answering()
            if link is not None:
                return link
            if status is not None:
                ended_at = self._now() if ended_at is None else ended_at
                is_over = self._now() - ended_at >= START_GRACE_MS
                failure = starting.failure(status)
                if status == LOCK_HELD_ELSEWHERE:
                    self.standing = BrokerBusy(failure.reason)
                elif status != 0:
                    self.standing = failure
                    if is_over:
                        raise failure
                elif is_over:
                    return None
            yield pause
        raise self.standing

    def _answering(self) -> Generator[float, None, socket.socket | None]:
        """Return a connection on which the broker answers ``health``, or ``None`` after at most ``PROBE_MS``."""
        self._is_absent = False
        try:
            link = dial(self._paths)
        except NoBroker:
            self._is_absent = True
            return None
        except BrokerBusy as error:
            self.standing = error
            return None
        probe = Probe(link)
        until = self._now() + PROBE_MS
        try:
            for pause in self._pauses():
                if (answered := probe.look()) is not None:
                    return probe.release() if answered else None
                if self._now() >= until:
                    self.standing = not_answering(self._paths)
                    return None
                yield pause
            return None
        finally:
            probe.close()

    def _pauses(self) -> Generator[float]:
        """Yield growing pauses in seconds until the deadline."""
        pause = READY_POLL_MS
        while True:
            left = self._deadline - self._now()
            yield max(0, min(pause, left)) / 1000
            if left <= 0:
                return
            pause = min(2 * pause, READY_POLL_MAX_MS)


class Probe:
    """Ask a broker for ``health`` on a fresh connection without ever waiting."""

    def __init__(self, link: socket.socket) -> None:
        self._link: socket.socket | None = link
        self._request = str(uuid.uuid4())
        self._unsent = encode(HealthRequest(self._request))
        self._reader = FrameReader(FRAME_CEILING_BYTES)
        self.instance_id: str | None = None

    def look(self) -> bool | None:
        """Return whether a broker answered, or ``None`` while nothing came."""
        link = self._link
        if link is None:
            return False
        try:
            if self._unsent:
                self._unsent = self._unsent[os.write(link.fileno(), self._unsent) :]
            data = os.read(link.fileno(), READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return False
        if not data:
            return False
        try:
            self._reader.feed(data)
            payload = self._reader.next_frame()
            answer = None if payload is None else decode_answer(payload)
        except ProtocolError:
            return False
        if answer is None:
            return None
        if isinstance(answer, Health) and answer.request_id == self._request:
            self.instance_id = answer.instance_id
            return True
        return False

    def release(self) -> socket.socket | None:
        """Hand the connection over."""
        link, self._link = self._link, None
        return link

    def close(self) -> None:
        """Close the connection, unless it was handed over."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _taken(lock: FileLock) -> bool:
    try:
        return lock.try_acquire()
    except OSError as error:
        raise unusable_file(f"{lock.path} cannot be locked", error) from error
