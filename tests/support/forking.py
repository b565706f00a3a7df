"""Start brokers as forks of the test process: an interpreter that loads everything anew takes ten times as long."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from intercom.paths import Paths, open_private_file, prepare_home
from intercom.server import app, serving  # noqa: F401 - what a broker needs is to be there before the fork

_DEFAULT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


def forked_broker(home: Path, environ: Mapping[str, str]) -> int:
    """Start a broker as a client would: of a session of its own, without descriptors of ours; return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        paths = Paths(home.resolve())
        prepare_home(paths)
        places = (
            os.open(os.devnull, os.O_RDONLY),
            os.open(os.devnull, os.O_WRONLY),
            open_private_file(paths.stderr_log, os.O_WRONLY | os.O_TRUNC | os.O_APPEND),
        )
        for number, place in enumerate(places):
            os.dup2(place, number)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        for number in _DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environ)
        status = app.main(paths.home)
    finally:
        os._exit(status)
