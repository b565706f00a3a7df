"""Watch a process of somebody else until it is gone."""

from __future__ import annotations

import os
import select
import time
from types import TracebackType

from intercom.limits import GONE_POLL_MS


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
