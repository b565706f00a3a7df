"""Count how often in a row a host was kept from stopping, for hooks that run without an adapter.

Each hook is a process of its own, so the count is in a small file of the home. Hosts say that they go on because of a
hook, but not all do, and some never stop asking.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from intercom.errors import HomeError
from intercom.limits import STOPS
from intercom.paths import Paths, make_private_directory


class Stops:
    """Hold the count of one session of a host; a file that cannot be written lets the host stop."""

    def __init__(self, paths: Paths, host: str, session: str) -> None:
        """Name the file; nothing is read yet."""
        name = hashlib.sha256(f"{host}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._file: Path = paths.stops / name

    def may_hold(self) -> bool:
        """Tell whether the host may be kept from stopping once more, and count that it is."""
        count = self._count()
        if count >= STOPS:
            return False
        try:
            make_private_directory(self._file.parent)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(str(count + 1))
        except (OSError, HomeError):
            return False
        return True

    def end(self) -> None:
        """Begin anew: somebody prompted, or the session is over."""
        with suppress(OSError):
            os.unlink(self._file)

    def _count(self) -> int:
        try:
            text = self._file.read_text(encoding="ascii")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            return STOPS
        return int(text) if text.isdecimal() and len(text) < 4 else 0
