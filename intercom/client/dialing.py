"""Connect to the socket of a home, and tell apart: nobody there, busy, not allowed.

Only ENOENT and ECONNREFUSED mean that no broker is there; only they may lead to starting one (F26, F27).
"""

from __future__ import annotations

import errno
import os
import socket
import stat

from intercom.errors import AccessDenied, BrokerBusy, HomeError, IntercomError, NoBroker
from intercom.paths import Paths, check_socket_directory, read_ordinary_file

_ABSENT = frozenset({errno.ENOENT, errno.ECONNREFUSED})
_BUSY = frozenset({errno.EAGAIN, errno.EINPROGRESS, errno.ETIMEDOUT})
_DENIED = frozenset({errno.EACCES, errno.EPERM})


def dial(paths: Paths) -> socket.socket:
    """Return a connected, non-blocking, close-on-exec socket; this never waits.

    Raises ``NoBroker`` when nobody listens, ``BrokerBusy`` when the backlog is full, ``AccessDenied`` when the
    kernel refuses, ``HomeError`` when the path cannot hold a socket.
    """
    check_socket_directory(paths)
    try:
        return _connect(paths)
    except NoBroker as error:
        if not _is_hidden(error, paths):
            raise
    try:
        return _connect(paths)  # a broker may have made it between the two looks
    except NoBroker as error:
        if not _is_hidden(error, paths):
            raise
        raise AccessDenied(f"{paths.socket} exists, but this process is told that it does not") from error


def _connect(paths: Paths) -> socket.socket:
    try:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise told(error, paths) from error
    try:
        link.setblocking(False)
        link.connect(os.fspath(paths.socket))
    except OSError as error:
        link.close()
        raise told(error, paths) from error
    except BaseException:
        link.close()
        raise
    return link


def told(error: OSError, paths: Paths) -> IntercomError:
    """Return the public error for one of the system while talking to the socket of ``paths``."""
    if error.errno in _ABSENT:
        return NoBroker(f"No broker answers on {paths.socket}")
    if error.errno in _BUSY:
        return BrokerBusy(f"The broker on {paths.socket} has too many connections waiting to be accepted")
    if error.errno in _DENIED:
        return AccessDenied(f"This process may not use the socket {paths.socket} ({error.strerror})")
    return HomeError(f"The socket {paths.socket} cannot be used: {error.strerror or error}")


def not_answering(paths: Paths) -> BrokerBusy:
    """Return the error for a broker that accepts connections and does not answer, naming its process."""
    try:
        record = read_ordinary_file(paths.pid)[:20].decode("ascii").strip()
    except (OSError, ValueError):
        record = ""
    who = f"The broker (pid {record})" if record.isdigit() else "The broker"
    return BrokerBusy(f"{who} accepts connections on {paths.socket} but does not answer")


def _is_hidden(error: NoBroker, paths: Paths) -> bool:
    """Tell whether the kernel calls a socket missing that can be seen; some sandboxes do that."""
    cause = error.__cause__
    if not isinstance(cause, OSError) or cause.errno != errno.ENOENT:
        return False
    try:
        return stat.S_ISSOCK(os.lstat(paths.socket).st_mode)
    except OSError:
        return False
