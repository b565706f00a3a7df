"""Find the adapter of the agent-host session a process belongs to, and ask it something.

An adapter is the process ``intercom mcp`` that a host started. What else the host runs, such as a hook, is another
process; both are the same session to others, so the hook asks the adapter instead of being a session of its own. They
find each other by the process of the host: it is the parent of the adapter and an ancestor of the hook.

Each adapter keeps one small file in ``adapters`` of the home, and listens on a socket beside the broker's. A request is
a JSON object on one line, and so is the answer.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from intercom.client.who import start_of
from intercom.limits import DOOR_ANSWER_BYTES, SESSION_NOTE_AGE_MS
from intercom.paths import Paths, drafted, make_private_directory, prepare_home, read_ordinary_file

_MOST_ANCESTORS = 64


class SeatRecord(NamedTuple):
    """Name one identity an adapter holds: the session in its host, its address and its visible name."""

    session: str | None
    address: str | None
    name: str | None


class AdapterRecord(NamedTuple):
    """Describe an adapter that is there."""

    file: Path
    host: str
    host_pid: int
    pid: int
    socket: str
    directory: str
    seats: tuple[SeatRecord, ...]


class Note(NamedTuple):
    """Hold what a hook knew of its session before an adapter listened."""

    session: str
    source: str


class AdapterFiles:
    """Keep the file by which one adapter is found, and name its socket."""

    def __init__(self, paths: Paths, host: str, host_pid: int, pid: int) -> None:
        """Name the files; nothing is made yet."""
        self._paths = paths
        self._file = paths.adapters / f"{host}-{host_pid}-{pid}.json"
        self._about = {"host": host, "hostPid": host_pid, "hostStarted": start_of(host_pid), "pid": pid}
        self.note_file = _note_file(paths, host, host_pid)
        self.socket = paths.socket.parent / f"a{pid}.s"
        """Where the adapter listens: no longer than the path of the broker's socket."""
        self.listens = False
        """Whether anybody can be told where: a file without its socket is taken for a leftover."""

    def prepare(self) -> None:
        """Make the directories for file and socket; raises ``HomeError``."""
        prepare_home(self._paths)
        make_private_directory(self._file.parent)

    def write(self, directory: str, seats: list[SeatRecord]) -> None:
        """Say who is here, once the socket is there; raises ``OSError``."""
        if not self.listens:
            return
        document = {
            **self._about,
            "socket": os.fspath(self.socket),
            "directory": directory,
            "seats": [seat._asdict() for seat in seats],
        }
        _write(self._file, json.dumps(document).encode())

    def remove(self) -> None:
        """Be found no more."""
        for file in (self._file, self.socket):
            with suppress(OSError):
                file.unlink()

    def note(self) -> Note | None:
        """Return what a hook of this host process noted last."""
        try:
            found = json.loads(read_ordinary_file(self.note_file))
            note = Note(found["session"], found["source"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        is_ours = found.get("hostStarted") == self._about["hostStarted"]
        return note if is_ours and isinstance(note.session, str) and isinstance(note.source, str) else None


def records(paths: Paths) -> list[AdapterRecord]:
    """Return the adapters that are there; the files of those that are gone are removed on the way."""
    found = []
    for file in sorted(paths.adapters.glob("*.json")):
        record = _record_of(file)
        if record is not None:
            found.append(record)
    return found


def nearest_adapter(paths: Paths, host: str | None = None, session: str | None = None) -> AdapterRecord | None:
    """Return the adapter of the nearest ancestor that is a host; ``None`` when there is none.

    One process of a host may have several adapters. Then it is the one that holds ``session``, else one that holds none
    yet, if possible in the working directory of this process.
    """
    present = [record for record in records(paths) if host is None or record.host == host]
    if not present:
        return None
    for pid in ancestors():
        near = [record for record in present if record.host_pid == pid]
        if near:
            return _best(near, session)
    return None


def ask_adapter(record: AdapterRecord, request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Ask one thing; ``timeout`` is in seconds.

    Raises ``OSError`` (``TimeoutError`` too) or ``ValueError``: then the adapter is as good as not there.
    """
    with Asking(record, timeout) as door:
        return door.ask(request)


class Asking:
    """Be connected to an adapter for several requests; ``timeout`` in seconds is for each step.

    What ``collect`` handed over counts as shown only when ``done`` was asked on the same connection.
    """

    def __init__(self, record: AdapterRecord, timeout: float) -> None:
        """Connect; raises ``OSError``."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._read = b""
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(record.socket)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Asking:
        """Return the connection itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; raises ``OSError`` or ``ValueError``."""
        self.begin(request)
        return self.line()

    def begin(self, request: dict[str, Any]) -> None:
        """Ask without waiting for the answer; raises ``OSError``."""
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def wait_for_ever(self) -> None:
        """Let ``line`` wait without end from now on."""
        self._socket.settimeout(None)

    def line(self) -> dict[str, Any]:
        """Return the next line; raises ``OSError`` when the adapter has gone, or ``ValueError``."""
        while b"\n" not in self._read:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the adapter has gone")
            self._read += data
            if len(self._read) > DOOR_ANSWER_BYTES:
                raise ValueError("the answer of the adapter is too long")
        line, self._read = self._read.split(b"\n", 1)
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("the answer of the adapter is no object")
        return answer


def note_session(paths: Paths, host: str, host_pid: int, session: str, source: str) -> None:
    """Tell an adapter that does not listen yet which session it is in; raises ``HomeError`` or ``OSError``."""
    prepare_home(paths)
    make_private_directory(paths.adapters)
    file = _note_file(paths, host, host_pid)
    document = {"session": session, "source": source, "hostStarted": start_of(host_pid)}
    _write(file, json.dumps(document).encode())
    _forget_old_notes(paths)


def ancestors() -> Iterator[int]:
    """Yield the process ids above this process, the parent first, as far as the kernel tells."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 0:
            return
        yield pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return


def _best(records: list[AdapterRecord], session: str | None) -> AdapterRecord:
    here = _working_directory()

    def rank(record: AdapterRecord) -> tuple[bool, bool, bool]:
        held = {seat.session for seat in record.seats} - {None}
        return session is not None and session in held, not held, record.directory == here

    return max(records, key=rank)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _note_file(paths: Paths, host: str, host_pid: int) -> Path:
    return paths.adapters / f"{host}-{host_pid}.session"


def _record_of(file: Path) -> AdapterRecord | None:
    try:
        found = json.loads(read_ordinary_file(file))
        record = AdapterRecord(
            file,
            str(found["host"]),
            int(found["hostPid"]),
            int(found["pid"]),
            str(found["socket"]),
            str(found["directory"]),
            tuple(SeatRecord(seat["session"], seat["address"], seat["name"]) for seat in found["seats"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        record = None
    if record is not None and os.path.lexists(record.socket) and _is_there(record.pid):
        return record
    for leftover in (file, *(() if record is None else (Path(record.socket),))):
        with suppress(OSError):
            leftover.unlink()
    return None


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _write(file: Path, content: bytes) -> None:
    draft = file.with_suffix(f".{os.getpid()}.new")
    with drafted(draft) as descriptor:
        os.write(descriptor, content)
        draft.replace(file)


def _forget_old_notes(paths: Paths) -> None:
    for file in paths.adapters.glob("*.session"):
        with suppress(OSError, ValueError):
            is_old = time.time() - file.stat().st_mtime > SESSION_NOTE_AGE_MS / 1000
            if is_old and not _is_there(int(file.stem.rpartition("-")[2])):
                file.unlink()
