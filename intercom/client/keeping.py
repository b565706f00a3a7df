"""Keep what an address needs beyond one process: its token, and the ids of messages that were done with.

Two small files an address in ``identities/addresses`` of the home, readable by the user alone. Whatever lies there and
is no ordinary file of this user, a link or a pipe, is never opened or followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from _thread import get_ident
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from intercom.errors import AccessDenied, HomeError, IntercomError, unusable_file
from intercom.limits import ADDRESS_SEEN_IDS, IDENTITY_FILE_BYTES, KEY_BYTES
from intercom.paths import Paths, drafted, make_private_directory, open_private_file, prepare_home, sync_directories

_DIGITS = 32
_LINE_BYTES = _DIGITS + 1


class AddressKeeper:
    """Keep the files of one address; the methods are those of ``lifecycle.Keeper``."""

    def __init__(self, paths: Paths, name: str, group: str) -> None:
        """Name the files; nothing is read or made yet. Names are the same whatever their case, as for the broker."""
        self._paths = paths
        self._place = paths.addresses
        key = key_of(name, group)
        self._token_file = self._place / f"{key}.json"
        self._seen_file = self._place / f"{key}.seen"
        self._about = {"name": name, "group": group}
        self._seen: set[str] = set()

    def token(self) -> str | None:
        """Return the token of the address, ``None`` while there is none.

        Raises ``AccessDenied`` or ``HomeError`` when its file cannot be used: to go on without it would lock the owner
        out.
        """
        try:
            content = read_private(self._token_file, IDENTITY_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise home_trouble(error, self._token_file) from error
        try:
            token = json.loads(content)["token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token:
            raise HomeError(
                f"{self._token_file} is damaged: it does not hold the token of the address {self._about['name']}",
                code="identity_damaged",
                hint="Restore the file from a copy, or act under another name: without it nobody receives there.",
            )
        return token

    def keep_token(self, token: str) -> None:
        """Keep the token the broker gave; raises ``AccessDenied`` or ``HomeError``."""
        self._write(token, os.replace)

    def prepare(self) -> None:
        """Make the token where there is none, before the broker makes an address nobody could use again.

        Of several processes that do so at once one is the first, and all show the same. Raises ``AccessDenied`` or
        ``HomeError``.
        """
        if self.token() is None:
            self._write(os.urandom(KEY_BYTES).hex(), os.link)

    def _write(self, token: str, publish: Callable[[Path, Path], None]) -> None:
        prepare_home(self._paths)
        make_private_directory(self._paths.identities)
        make_private_directory(self._place)
        draft = self._token_file.with_suffix(f".{os.getpid()}.{get_ident()}")
        try:
            with drafted(draft) as descriptor:
                write_all(descriptor, json.dumps({**self._about, "token": token}).encode())
                os.fsync(descriptor)
                with suppress(FileExistsError):
                    publish(draft, self._token_file)
            # The broker will know the address even when the power fails now, and nobody who cannot show its token.
            sync_directories(self._place, self._paths.identities, self._paths.home)
        except OSError as error:
            raise home_trouble(error, self._token_file) from error

    def knows(self, message_id: str) -> bool:
        """Tell whether an earlier session of the address was done with this message."""
        return bool(self._seen) and digest(message_id) in self._seen

    def note(self, message_ids: Iterable[str]) -> None:
        """Remember messages that are about to be confirmed; where that fails, only a copy may be shown again."""
        new = [each for each in map(digest, message_ids) if each not in self._seen]
        if not new:
            return
        self._seen.update(new)
        with suppress(OSError):
            self._append("".join(f"{each}\n" for each in new).encode("ascii"))

    def refresh(self) -> None:
        """Look again at what other processes of the address noted; a line that was torn counts for nothing."""
        try:
            content = read_private(self._seen_file, 4 * ADDRESS_SEEN_IDS * _LINE_BYTES)
        except OSError:
            return
        self._seen.update(line for line in content.decode("ascii", "replace").split("\n") if len(line) == _DIGITS)

    def _append(self, lines: bytes) -> None:
        while True:
            descriptor = open_private_file(self._seen_file, os.O_RDWR | os.O_APPEND)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                status = os.fstat(descriptor)
                if status.st_nlink == 0:
                    continue  # another process has just put a shorter one in its place
                write_all(descriptor, lines)
                if status.st_size + len(lines) > 2 * ADDRESS_SEEN_IDS * _LINE_BYTES:
                    self._shorten(descriptor, status.st_size + len(lines))
                return
            finally:
                os.close(descriptor)

    def _shorten(self, descriptor: int, size: int) -> None:
        """Put a file with the newest half in the place of this one, which is locked."""
        kept = os.pread(descriptor, ADDRESS_SEEN_IDS * _LINE_BYTES, size - ADDRESS_SEEN_IDS * _LINE_BYTES)
        draft = self._seen_file.with_suffix(".new")
        shorter = open_private_file(draft, os.O_WRONLY | os.O_TRUNC)
        try:
            write_all(shorter, kept)
        finally:
            os.close(shorter)
        draft.replace(self._seen_file)


def key_of(name: str, group: str) -> str:
    """Return what the files of an address are called by; names are the same whatever their case."""
    return digest(f"{name.lower()}\0{group}")


def digest(text: str) -> str:
    """Return what a file is called, or a line holds, for a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def read_private(path: Path, most: int) -> bytes:
    """Return the beginning of an ordinary file of this user."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EINVAL, "it is not an ordinary file of this user", str(path))
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(descriptor, data) :]


def home_trouble(error: OSError, path: Path) -> IntercomError:
    """Return the error for a file of the home that cannot be used."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"This process may not use {path} ({error.strerror})")
    return unusable_file(f"{path} cannot be used", error, "Choose another name.")
