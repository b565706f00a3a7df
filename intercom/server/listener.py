"""Accept connections: who may connect, and what happens when the process runs out of descriptors.

Only processes of the broker's own user are served; the kernel says who they are. That holds for root too: a process
with other rights must not end up in one room with this user's agents, in either direction.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from intercom.core.connections import PeerCredentials
from intercom.limits import ACCEPT_BATCH, ACCEPT_PAUSE_MS
from intercom.server.log import Log
from intercom.server.processes import start_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Watch a listening socket and hand every acceptable connection on.

    Args:
        sock: the listening socket; the listener closes it.
        loop: the running event loop.
        log: takes refusals and shortages.
        on_connection: called with each accepted socket and what the kernel says of its peer.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: AbstractEventLoop,
        log: Log,
        on_connection: Callable[[socket.socket, PeerCredentials], None],
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._log = log
        self._on_connection = on_connection
        self._reserve = _open_reserve()
        self._pause: TimerHandle | None = None
        self._accepting = False
        self._start()

    def stop(self) -> None:
        """Accept nobody any more; who connects now waits in the kernel until ``close``."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._accepting:
            self._loop.remove_reader(self._sock)
            self._accepting = False

    def close(self) -> None:
        """Close the listening socket; its path is the business of whoever bound it."""
        self.stop()
        self._sock.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _start(self) -> None:
        self._pause = None
        self._accepting = True
        self._loop.add_reader(self._sock, self._accept_waiting)

    def _accept_waiting(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                self._run_short(error)
                return
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        try:
            peer = peer_of(sock)
        except OSError:
            sock.close()
            return
        if peer.uid != os.geteuid():
            self._log.write("peer_refused", level="warning", uid=peer.uid, reason="it runs as another user")
            sock.close()
            return
        self._on_connection(sock, peer)

    def _run_short(self, error: OSError) -> None:
        """Turn one connection away, so that its client knows at once, and let the others wait a moment."""
        self._log.write("accept_failed", level="warning", reason=error.strerror or str(error))
        if error.errno in _OUT_OF_RESOURCES and self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
            with suppress(OSError):
                sock, _ = self._sock.accept()
                sock.close()
        if self._reserve is None:
            self._reserve = _open_reserve()
        self._loop.remove_reader(self._sock)
        self._accepting = False
        self._pause = self._loop.call_later(ACCEPT_PAUSE_MS / 1000, self._start)


def peer_of(sock: socket.socket) -> PeerCredentials:
    """Return what the kernel says of the process that connected; raises ``OSError`` when it says nothing."""
    if sys.platform == "darwin":
        level, credentials, process = 0, 1, 2  # SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID
        layout = struct.Struct("=IIh2xI")
        data = sock.getsockopt(level, credentials, layout.size + 15 * 4)
        _, uid, _, gid = layout.unpack_from(data)
        return PeerCredentials(sock.getsockopt(level, process), uid, gid)
    layout = struct.Struct("iII")
    pid, uid, gid = layout.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    return PeerCredentials(pid, uid, gid, start_of(pid))


def _open_reserve() -> int | None:
    """Keep one descriptor in hand for the moment in which there is no other."""
    with suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return None
