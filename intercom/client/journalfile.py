"""Keep the journal of a durable worker in a file beside the token of its address, readable by the user alone.

A fact is on disk when the call that writes it returns; only what the broker acknowledged may be written later.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import decode, encode

from intercom.client.workerjournal import Reported, Told, WorkerJournal, held
from intercom.errors import AccessDenied, HomeError, IntercomError
from intercom.limits import JOURNAL_SHORTENED_BYTES
from intercom.paths import (
    Paths,
    make_private_directory,
    open_private_file,
    prepare_home,
    read_ordinary_file,
    sync_directories,
)

SUFFIX = ".link"
"""Ends the name of the file of a journal."""


class _Fact(Struct):
    """Hold one line of the file."""

    j: str | UnsetType = UNSET
    f: int | UnsetType = UNSET
    e: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    at: int | UnsetType = UNSET
    b: Raw | UnsetType = UNSET
    c: str | UnsetType = UNSET
    n: int | UnsetType = UNSET
    s: bool = False
    d: str | UnsetType = UNSET


class JournalFile(WorkerJournal):
    """Keep the journal of an address in a file beside its token, readable by the user alone."""

    def __init__(self, paths: Paths, key: str, ids: Callable[[], str]) -> None:
        """Name the files; nothing is read or made yet. ``key`` tells the address from others."""
        super().__init__(ids)
        self._paths = paths
        self._place = paths.addresses
        self._file = self._place / f"{key}{SUFFIX}"
        self._lock_file = self._place / f"{key}.link.lock"
        self._lock: int | None = None
        self._descriptor: int | None = None
        self._size = 0

    def open(self, wall: int) -> None:
        """Lock and read the file; a line that was torn by the end of a process counts for nothing."""
        try:
            prepare_home(self._paths)
            make_private_directory(self._paths.identities)
            make_private_directory(self._place)
            self._lock = open_private_file(self._lock_file, os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = open_private_file(self._file, os.O_RDWR | os.O_APPEND)
            self._read(self._descriptor)
        except BlockingIOError as error:
            self.close()
            raise held() from error
        except OSError as error:
            self.close()
            raise _refused(error, self._file) from error
        is_new = self._size == 0
        try:
            super().open(wall)
            if is_new:
                sync_directories(self._place, self._paths.identities, self._paths.home)
        except OSError as error:
            self.close()
            raise _refused(error, self._file) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another session have it."""
        super().close()
        for descriptor in (self._descriptor, self._lock):
            if descriptor is not None:
                with suppress(OSError):
                    os.close(descriptor)
        self._descriptor = self._lock = None

    def _read(self, descriptor: int) -> None:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            file.seek(0)
            content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(descriptor, whole)
        self._size = whole
        try:
            self._take_all(content[:whole])
        except HomeError:
            self.close()
            raise

    def check(self) -> None:
        """Read the file without using it, whoever has it; raise ``HomeError`` when it is damaged."""
        content = read_ordinary_file(self._file)
        self._take_all(content[: content.rfind(b"\n") + 1])

    def _take_all(self, lines: bytes) -> None:
        self.id, self.last_seq, self.floor = "", 0, 0
        self.reported.clear()
        self.commands.clear()
        for number, line in enumerate(lines.splitlines(), 1):
            try:
                self._take(line)
            except (MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise HomeError(
                    f"{self._file} is damaged in line {number}",
                    code="identity_damaged",
                    hint="Put it aside: the worker goes on with a new journal once `intercom link repin` takes that.",
                ) from error

    def _take(self, line: bytes) -> None:
        fact = decode(line, type=_Fact)
        body = b"" if fact.b is UNSET else bytes(fact.b)
        if fact.j is not UNSET:
            self.id = fact.j
            self._take_floor(0 if fact.f is UNSET else fact.f)
            self.last_seq = self.floor
        elif fact.e is not UNSET and fact.id is not UNSET and fact.at is not UNSET:
            self._take_event(Reported(fact.e, fact.id, fact.at, body))
        elif fact.c is not UNSET and fact.n is not UNSET:
            self.commands[fact.c] = Told(fact.c, fact.n, body, fact.s, fact.s)
        elif fact.d is not UNSET:
            self.commands[fact.d].is_begun = True
        elif fact.f is not UNSET:
            self._take_floor(fact.f)
        else:
            raise KeyError("it says nothing")

    def _append(self, fact: dict[str, Any], *, is_synced: bool = True) -> None:
        if self._descriptor is None:
            raise HomeError(f"{self._file} is not open", hint="Report within the block of the session.")
        line = encode(fact) + b"\n"
        try:
            _write(self._descriptor, line)
            if is_synced:
                os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise _refused(error, self._file) from error
        self._size += len(line)
        if "f" in fact and self._size > JOURNAL_SHORTENED_BYTES and not self.reported:
            self._rewrite()

    def _rewrite(self) -> None:
        draft = self._file.with_suffix(".link.new")
        content = b"".join(encode(fact) + b"\n" for fact in self._facts())
        try:
            descriptor = open_private_file(draft, os.O_RDWR | os.O_APPEND | os.O_TRUNC)
            try:
                _write(descriptor, content)
                os.fsync(descriptor)
                draft.replace(self._file)
            except BaseException:
                os.close(descriptor)
                raise
            # Before anything else can fail: what is written to the former file now would be lost with it.
            former, self._descriptor, self._size = self._descriptor, descriptor, len(content)
            if former is not None:
                os.close(former)
            sync_directories(self._place)
        except OSError as error:
            raise _refused(error, self._file) from error


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _refused(error: OSError, path: Path) -> IntercomError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"This process may not use {path} ({error.strerror})")
    return HomeError(f"{path} cannot be used: {error.strerror or error}")


def damaged(paths: Paths) -> list[IntercomError]:
    """Return what is wrong with the journals of the durable workers of a home."""
    found: list[IntercomError] = []
    for file in sorted(paths.addresses.glob(f"*{SUFFIX}")):
        try:
            JournalFile(paths, file.name.removesuffix(SUFFIX), str).check()
        except FileNotFoundError:
            continue  # it was taken away meanwhile
        except OSError as error:
            found.append(_refused(error, file))
        except HomeError as error:
            found.append(error)
    return found
