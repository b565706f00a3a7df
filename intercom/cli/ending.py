"""End a broker and watch it until it is gone: its process, or, of one inside another program, its socket."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

from intercom.cli.identity import MOMENT_S
from intercom.client.control import shutdown
from intercom.errors import ConnectionLost, NoBroker, RequestTimeout
from intercom.limits import GONE_POLL_MS
from intercom.paths import Paths


class Watched:
    """Hold a process so that its end is seen even if its number is given to another one.

    Where the kernel has no descriptors for processes, the number is all there is.
    """

    def __init__(self, pid: int) -> None:
        """Begin to watch; a process that is gone already is no error."""
        self._pid = pid
        self._descriptor: int | None = None
        self._gone = False
        try:
            if hasattr(os, "pidfd_open"):
                self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
        except OSError:
            pass  # an old kernel, or a sandbox that forbids it

    def __enter__(self) -> Watched:
        """Return the watch itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended, at most ``seconds``; tell whether it has."""
        if self._descriptor is not None and not self._gone:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            self._gone = bool(poll.poll(max(0, round(seconds * 1000))))
            return self._gone
        until = time.monotonic() + seconds
        while not self._gone:
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                self._gone = True
            except PermissionError:
                pass
            if time.monotonic() >= until:
                break
            if not self._gone:
                time.sleep(GONE_POLL_MS / 1000)
        return self._gone


class WatchedSocket:
    """Hold the socket of a broker whose process goes on without it."""

    def __init__(self, paths: Paths) -> None:
        """Begin to watch."""
        self._path = paths.socket
        self._inode = self._found()

    def __enter__(self) -> WatchedSocket:
        """Return the watch itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Let go; nothing is held."""

    def wait(self, seconds: float) -> bool:
        """Wait until the socket is gone or another one, at most ``seconds``; tell whether it is."""
        until = time.monotonic() + seconds
        while self._inode is not None and self._found() == self._inode:
            if time.monotonic() >= until:
                return False
            time.sleep(GONE_POLL_MS / 1000)
        return True

    def _found(self) -> int | None:
        try:
            return os.lstat(self._path).st_ino
        except OSError:
            return None


def watched(report: dict[str, Any], paths: Paths) -> Watched | WatchedSocket:
    """Return the watch for the broker that gave this report, for use in a ``with`` block."""
    broker = report.get("broker")
    if isinstance(broker, dict) and broker.get("embedded") is True:
        return WatchedSocket(paths)
    return Watched(int(report["pid"]))


def end(paths: Paths, report: dict[str, Any], seconds: float) -> None:
    """Ask the broker that gave this report to leave, and wait until it is gone, also when it goes by itself.

    ``seconds`` bounds it all. Raises ``RequestTimeout`` when it is still there, ``BrokerBusy`` or ``AccessDenied``.
    """
    until = time.monotonic() + seconds
    with watched(report, paths) as process:
        with suppress(ConnectionLost, NoBroker):
            shutdown(paths, timeout=seconds)
        if not process.wait(max(MOMENT_S, until - time.monotonic())):
            raise RequestTimeout(
                f"The broker (pid {report['pid']}) was asked to leave and is still there",
                hint="`intercom status` shows whether it still answers.",
            )
