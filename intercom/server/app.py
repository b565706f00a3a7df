"""Be the broker process: prepare it, own the home, serve, and leave with the exit status of protocol 3.9.

What costs time to import is imported only once this process knows that it will serve.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from intercom import __version__
from intercom.config import Settings, load_settings
from intercom.errors import IntercomError
from intercom.limits import DESCRIPTORS, DESCRIPTORS_LOW, LARGEST_FILE_BYTES
from intercom.loading import without
from intercom.paths import PRIVATE_DIRECTORY, Paths, prepare_home
from intercom.server import ownership, stderr

if TYPE_CHECKING:
    from intercom.server.serving import Serving


def main(home: Path, *, overrides: Mapping[str, Any] | None = None, foreign: bool = False) -> int:
    """Serve the home until the broker is not needed any more.

    Changes the process: working directory, signal handlers, standard error, mode of new files.

    Args:
        home: real path of the home.
        overrides: settings given as flags, by name.
        foreign: another program's launcher started this process and chose the home by its own rules.

    Returns:
        0 stopped, or another broker answers; 1 cannot listen, or a fatal error; 5 the lock is held elsewhere.
    """
    gc.disable()  # while modules are loaded there is nothing to collect; serving enables it
    stderr.secure_standard_descriptors()
    capped = stderr.cap_stderr()
    signals = Signals()
    os.chdir("/")
    os.umask(0o777 & ~PRIVATE_DIRECTORY)
    paths = Paths(home)
    try:
        if ownership.probe(paths.socket) is ownership.Presence.ANSWERS:
            raise ownership.AnotherServes(f"a broker answers on {paths.socket}")
        prepare_home(paths)
        return _serve(paths, overrides or {}, foreign, signals)
    except ownership.StartRefused as refused:
        capped.write(f"intercom: {refused}\n")
        return refused.exit_status
    except IntercomError as error:
        capped.write(f"intercom: {error.reason}\n" + (f"{error.hint}\n" if error.hint else ""))
        return 1


def _serve(paths: Paths, overrides: Mapping[str, Any], foreign: bool, signals: Signals) -> int:
    settings = load_settings(paths, os.environ, overrides)
    _require_room()
    with ownership.held(paths, gave_up=lambda: signals.received is not None) as (sock, territory):
        return _run(paths, settings, sock, territory, foreign, signals)


def _run(
    paths: Paths,
    settings: Settings,
    sock: socket.socket,
    territory: ownership.Territory,
    foreign: bool,
    signals: Signals,
) -> int:
    from intercom.server.log import Log

    # Nothing here is encrypted: the kernel keeps others out. asyncio would load TLS, which takes 2 ms and 3 MB. Only
    # the way to other machines may be.
    with without("ssl") if not settings.cluster.url else nullcontext():
        from intercom.server.serving import Serving

    log = Log(paths.log, level=settings.log_level)
    facts = facts_of(paths, settings)
    if foreign:
        facts["startedBy"] = "another program, which chose the home"
    try:
        serving = Serving(paths, settings, sock, territory, log, facts)
        log.write("started", **facts)
        signals.hand_over(serving)
        return serving.run()
    finally:
        log.close()


def facts_of(paths: Paths, settings: Settings) -> dict[str, Any]:
    """Return what the status report and the first line of the log tell about a broker."""
    return {
        "version": __version__,
        "home": str(paths.home),
        "socket": str(paths.socket),
        "durability": settings.durability,
    }


class Signals:
    """Remember SIGTERM and SIGINT until the event loop takes them; ignore SIGHUP: no terminal owns the broker."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in _STOPPING:
            signal.signal(number, self._receive)

    def hand_over(self, serving: Serving) -> None:
        """Let ``serving`` stop when a signal comes, or at once when one came already."""
        for number in _STOPPING:
            serving.stop_on(number)
        if self.received is not None:
            serving.stop(self.received.name)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _require_room() -> None:
    """Raise what this process may have to what a broker can use; refuse to be one that would fail in the middle."""
    import resource

    for what, wanted, least, words in (
        (resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS_LOW, "files may be open in this process (`ulimit -Hn`)"),
        (resource.RLIMIT_FSIZE, LARGEST_FILE_BYTES, LARGEST_FILE_BYTES, "bytes may be in one file (`ulimit -Hf`)"),
    ):
        soft, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with suppress(OSError, ValueError):
                resource.setrlimit(what, (wanted, hard))
        if wanted < least:
            raise ownership.StartRefused(f"only {hard} {words}, a broker needs {least}")
