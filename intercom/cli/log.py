"""Show the last lines of the broker's log, and follow it."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from argparse import ArgumentTypeError, Namespace
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.identity import paths_of
from intercom.cli.render import Output, visible
from intercom.errors import AccessDenied, HomeError, IntercomError
from intercom.limits import LOG_FILES, LOG_LINES, LOG_LINES_CEILING, LOG_POLL_MS, READ_BYTES
from intercom.paths import not_ordinary, read_ordinary_file

USAGE = ""
DESCRIPTION = """Show the last lines of the broker's log, the oldest first. No broker is needed, nothing is changed.

The log tells of starts and ends, of connections that were refused, and of trouble with lock, store and disk. It never
holds what sessions say to each other. With --json each line is one document; with --follow it goes on until it is
interrupted, or for --timeout seconds, also into the next file when the log is put aside.

Ends with 3 when there is no log yet.
"""


class NoLog(IntercomError):
    """Say that no broker has written a log in this home."""

    code = "no_log"
    exit_status = 3
    hint = "A broker makes it when it starts; `intercom status` shows whether one runs, and in which home."


def configure(parser: Parser) -> None:
    """Add the options of ``log``."""
    parser.add_argument("--lines", metavar="N", type=_count, default=LOG_LINES, help=f"how many (default {LOG_LINES})")
    parser.add_argument("--follow", action="store_true", help="go on with what is written from now on")
    add_json(parser)
    add_timeout(parser, "how long to follow (default: until interrupted)")
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print the lines and return 0."""
    path = paths_of(arguments).log
    try:
        with _Tail(path) as tail:
            for line in _last(path, tail, arguments.lines):
                _show(line, output)
            until = None if arguments.timeout is None else arguments.began + arguments.timeout
            while arguments.follow and not output.closed and (until is None or time.monotonic() < until):
                for line in tail.lines():
                    _show(line, output)
                time.sleep(LOG_POLL_MS / 1000)
    except FileNotFoundError as error:
        raise NoLog(f"There is no log at {path}") from error
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise AccessDenied(f"This process may not read {path} ({error.strerror})") from error
        raise HomeError(f"{path} cannot be read: {error.strerror or error}") from error
    return 0


class _Tail:
    """Read whole lines as they are written; when the file is put aside, its rest and then the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._rest = b""

    def __enter__(self) -> _Tail:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise not_ordinary(self._path)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def lines(self) -> Iterator[bytes]:
        """Yield what is there now and was not read before."""
        moved = self._was_moved()
        while data := os.read(self._descriptor, READ_BYTES):
            *whole, self._rest = (self._rest + data).split(b"\n")
            yield from whole
        if moved is not None:
            os.close(self._descriptor)
            self._descriptor, self._rest = moved, b""
            yield from self.lines()

    def _was_moved(self) -> int | None:
        """Return the file that has the name now when it is another one."""
        try:
            other = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        found = os.fstat(other)
        if not stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.fstat(self._descriptor)):
            os.close(other)
            return None
        return other


def _last(path: Path, tail: _Tail, wanted: int) -> list[bytes]:
    """Return the last lines of the log and, as far as they do not suffice, of the files put aside."""
    found: deque[bytes] = deque(tail.lines(), maxlen=wanted)
    for number in range(1, LOG_FILES):
        if len(found) >= wanted:
            break
        try:
            older = read_ordinary_file(path.with_name(f"{path.name}.{number}")).splitlines()
        except OSError:
            break
        found.extendleft(reversed(older[-(wanted - len(found)) :]))
    return list(found)


def _show(line: bytes, output: Output) -> None:
    text = line.decode("utf-8", "replace")
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = None
    if isinstance(entry, dict):
        output.document({"ok": True, "entry": entry})
        output.line(_sentence(entry))
    else:
        output.document({"ok": True, "text": text})
        output.line(visible(text))


def _sentence(entry: dict[str, Any]) -> str:
    """Return one line for a person: local time, process, what happened, and the members that tell more."""
    members = {name: value for name, value in entry.items() if name not in ("time", "pid", "event", "level")}
    level = f" {str(entry['level']).upper()}" if "level" in entry else ""
    told = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in members.items()
    )
    return visible(f"{_local(entry.get('time'))} [{entry.get('pid')}]{level} {entry.get('event')} {told}".rstrip())


def _local(stamp: object) -> str:
    try:
        return datetime.fromisoformat(str(stamp)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(stamp)


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number <= LOG_LINES_CEILING:
        raise ArgumentTypeError(f"not a whole number from 1 to {LOG_LINES_CEILING}: {clean(text)}")
    return number
