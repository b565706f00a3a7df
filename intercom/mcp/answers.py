"""Keep answers until a model was shown them, in small files beside the identities, readable by the user alone.

An answer is written down before it is confirmed: who answered is told at once that it arrived, and it is not lost with
this process. The next adapter of the session finds it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import decode, encode

from intercom.client.aio import IncomingMessage
from intercom.client.keeping import digest, read_private, write_all
from intercom.client.views import Malformed, message_of
from intercom.errors import IntercomError
from intercom.limits import ANSWER_FILE_BYTES, ANSWER_KEPT_MS
from intercom.paths import Paths, drafted, make_private_directory, prepare_home, sync_directories
from intercom.wire.frames import MessageFrame

_SUFFIX = ".answer"


class KeptAnswer(IncomingMessage):
    """Be an answer that was read from its file."""

    __slots__ = ()

    def confirm(self, *, out_of_date: bool = False) -> None:
        """Do nothing: it was confirmed when it was written down."""


class _Written(Struct):
    """Hold what is in a file; ``at`` is when it was written, in epoch milliseconds."""

    at: int
    sender: Raw
    message: Raw


class AnswerFiles:
    """Be the place of the answers of one address."""

    def __init__(self, paths: Paths, address: str, group: str) -> None:
        """Name the files; nothing is read or made yet."""
        self._paths = paths
        self._place = paths.answers
        self._begin = digest(f"{address.lower()}\0{group}")

    def save(self, answer: IncomingMessage) -> bool:
        """Write an answer down, durably; tell whether that worked. What nobody came for in time is dropped."""
        written = _Written(_now(), Raw(encode(answer.sender.raw)), Raw(encode(answer.raw)))
        path = self._path(answer.id)
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            prepare_home(self._paths)
            for directory in (self._paths.identities, self._place):
                make_private_directory(directory)
            self._drop_old()
            with drafted(draft) as descriptor:
                write_all(descriptor, encode(written))
                os.fsync(descriptor)
                draft.replace(path)
            sync_directories(self._place, self._paths.identities)
        except (OSError, IntercomError):
            return False
        return True

    def load(self) -> list[KeptAnswer]:
        """Return what waits, the oldest first; what cannot be read is left out."""
        found: list[tuple[int, KeptAnswer]] = []
        for path in self._files():
            if path.name.startswith(self._begin):
                with suppress(OSError, MsgspecError, RecursionError, Malformed):
                    written = decode(read_private(path, ANSWER_FILE_BYTES), type=_Written)
                    answer = message_of(MessageFrame(written.sender, written.message), KeptAnswer)
                    assert isinstance(answer, KeptAnswer), "it is made as one"
                    found.append((written.at, answer))
        return [answer for _, answer in sorted(found, key=lambda entry: entry[0])]

    def has(self, message_id: str) -> bool:
        """Tell whether an answer waits here."""
        return self._path(message_id).exists()

    def drop(self, message_id: str) -> None:
        """Keep it no longer."""
        with suppress(OSError):
            self._path(message_id).unlink()

    def _drop_old(self) -> None:
        for path in self._files():
            with suppress(OSError):
                if _now() - path.lstat().st_mtime * 1000 >= ANSWER_KEPT_MS:
                    path.unlink()

    def _files(self) -> list[Path]:
        try:
            return [path for path in self._place.iterdir() if path.suffix == _SUFFIX]
        except OSError:
            return []

    def _path(self, message_id: str) -> Path:
        return self._place / f"{self._begin}-{digest(message_id)}{_SUFFIX}"


def _now() -> int:
    return time.time_ns() // 1_000_000
