"""Keep the reports of an address in small files beside its token, one a report, readable by the user alone."""

from __future__ import annotations

import os
from _thread import get_ident
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError
from msgspec.json import decode, encode

from intercom.client.keeping import digest, home_trouble, read_private, write_all
from intercom.client.reporting import ReportRecord
from intercom.limits import REPORT_FILE_BYTES
from intercom.paths import Paths, drafted, make_private_directory, prepare_home, sync_directories

_SUFFIX = ".report"


class ReportFiles:
    """Be the place of the reports of one address."""

    def __init__(self, paths: Paths, name: str, group: str) -> None:
        """Name the files; nothing is read or made yet."""
        self._paths = paths
        self._above = paths.reports
        self._place = self._above / digest(f"{name.lower()}\0{group}")

    def load(self) -> list[ReportRecord]:
        """Return what is kept, in the order in which it was written; what cannot be read is left out."""
        found = []
        with suppress(OSError):
            for path in sorted(self._place.iterdir()):
                if path.suffix == _SUFFIX:
                    with suppress(OSError, MsgspecError, RecursionError):
                        found.append(decode(read_private(path, REPORT_FILE_BYTES), type=ReportRecord))
        return sorted(found, key=lambda record: record.written_at)

    def save(self, record: ReportRecord) -> None:
        """Keep a record, durably; raise ``HomeError`` or ``AccessDenied`` where that cannot be."""
        prepare_home(self._paths)
        path = self._path(record.dispatch_id)
        draft = path.with_suffix(f".{os.getpid()}.{get_ident()}")
        is_new = not self._place.exists()
        try:
            for directory in (self._paths.identities, self._above, self._place):
                make_private_directory(directory)
            with drafted(draft) as descriptor:
                write_all(descriptor, encode(record))
                os.fsync(descriptor)
                draft.replace(path)
            sync_directories(self._place, *((self._above, self._paths.identities, self._paths.home) if is_new else ()))
        except OSError as error:
            raise home_trouble(error, path) from error

    def drop(self, dispatch_id: str) -> None:
        """Keep it no longer."""
        with suppress(OSError):
            self._path(dispatch_id).unlink()

    def _path(self, dispatch_id: str) -> Path:
        return self._place / f"{digest(dispatch_id)}{_SUFFIX}"
