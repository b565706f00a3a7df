"""Make out of the notes of a process what a disk may hold when the power fails in the middle of them.

What was synced is there. Of what was written to a file since, any part may be missing: each write, and of the last one
each sector. Names that were made, changed or deleted are as a moment since the directory was last synced left them. The
notes are those of ``power_shim.c``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

SECTOR_BYTES = 512
LOST, KEPT, TORN = "all of it lost", "all of it kept", "some of it lost"
FATES = (LOST, KEPT, TORN)


class Note(NamedTuple):
    """Hold one thing a process did; ``end`` is where its note ends in the file of the notes."""

    what: str
    name: str
    offset: int
    data: bytes
    end: int


@dataclass
class File:
    """Hold the content of one file that is on disk for sure, and what was done to it since."""

    durable: bytes = b""
    pending: list[Note] = field(default_factory=list)


def notes(trace: Path) -> Iterator[Note]:
    """Yield what was noted, in order; the last note may be cut off."""
    text = trace.read_bytes()
    place = 0
    while (line_end := text.find(b"\n", place)) >= 0:
        what, offset, size, name_size = text[place:line_end].decode().split()
        name_end = line_end + 1 + int(name_size)
        end = name_end + int(size)
        if end > len(text):
            return
        yield Note(what, os.fsdecode(text[line_end + 1 : name_end]), int(offset), text[name_end:end], end)
        place = end


def applied(content: bytes, note: Note) -> bytes:
    """Return what a file holds after a write or a change of its length."""
    if note.what == "truncate":
        return content[: note.offset].ljust(note.offset, b"\0")
    before = content[: note.offset].ljust(note.offset, b"\0")
    return before + note.data + content[note.offset + len(note.data) :]


Change: TypeAlias = "dict[str, File | None]"
"""What one call made of names: what they lead to now, or that they are gone."""


class Disk:
    """Follow what processes do below a directory, and say what may be left of it."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._names: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        """The names that are on disk for sure."""
        self._since: list[Change] = []
        """What became of names since, in order."""

    @property
    def unsynced(self) -> int:
        """Return how many things were done that the power may undo."""
        return sum(len(file.pending) for file in self._names.values()) + len(self._since)

    def follow(self, note: Note) -> None:
        """Take notice of what was done."""
        if note.what == "sync" and note.name not in self._names:
            self._sync_names(note.name)
        elif note.what == "sync":
            file = self._names[note.name]
            for each in file.pending:
                file.durable = applied(file.durable, each)
            file.pending = []
        elif note.what in ("write", "truncate"):
            if note.name not in self._names:
                self._change({note.name: File()})
            self._names[note.name].pending.append(note)
        elif note.what == "create":
            self._change({note.name: File()})
        elif note.what == "unlink":
            self._change({note.name: None})
        elif note.name in self._names:
            other = {note.name: None} if note.what == "rename" else {}
            self._change({**other, os.fsdecode(note.data): self._names[note.name]})

    def left(self, fate: str, chance: random.Random) -> dict[str, bytes]:
        """Return the files, by the rest of their paths, that are there after the power has failed now."""
        done = {LOST: 0, KEPT: len(self._since)}.get(fate, chance.randint(0, len(self._since)))
        names = dict(self._durable)
        for change in self._since[:done]:
            _apply(change, names)
        return {
            os.path.relpath(name, self._home): self._content(file, fate, chance) for name, file in sorted(names.items())
        }

    def _change(self, change: Change) -> None:
        _apply(change, self._names)
        self._since.append(change)

    def _sync_names(self, directory: str) -> None:
        left = []
        for change in self._since:
            if all(os.path.dirname(name) == directory for name in change):
                _apply(change, self._durable)
            else:
                left.append(change)
        self._since = left

    @staticmethod
    def _content(file: File, fate: str, chance: random.Random) -> bytes:
        content = file.durable
        for note in file.pending:
            if fate == KEPT or (fate == TORN and chance.random() < 0.5):
                content = applied(content, note)
            elif fate == TORN and note.what == "write":
                for begin in range(0, len(note.data), SECTOR_BYTES):
                    if chance.random() < 0.5:
                        part = note.data[begin : begin + SECTOR_BYTES]
                        content = applied(content, note._replace(offset=note.offset + begin, data=part))
        return content


def _apply(change: Change, names: dict[str, File]) -> None:
    for name, file in change.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
