"""Name the kinds of things that are installed: entries in a host's file, a table in one, and files of our own.

Each kind says how a text becomes one with it and without it; reading and writing files is done elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from intercom.hosts import jsonedit, tomledit
from intercom.hosts.jsonedit import Entry
from intercom.hosts.jsontext import Dialect, is_blank

SERVER = "intercom"
"""Name of the MCP server in every host."""


class JsonPart(NamedTuple):
    """Hold entries for one JSON file of a host."""

    path: Path
    dialect: Dialect
    entries: tuple[Entry, ...]

    def put(self, text: str | None) -> str:
        """Return the text of the file with the entries; ``None`` is a file that is not there."""
        edited = "{}\n" if text is None else text
        if is_blank(edited):
            edited = edited.rstrip() + "{}\n"
        for entry in self.entries:
            edited = jsonedit.put(edited, entry, self.dialect)
        return edited

    def take_out(self, text: str, before: str | None) -> str:
        """Return the text without the entries; what was empty in the text ``before`` stays, though it is empty."""

        def was_there(path: tuple[str, ...]) -> bool:
            return before is not None and not is_blank(before) and jsonedit.lookup(before, path, self.dialect)

        if is_blank(text):
            return text
        for entry in self.entries:
            if before is not None and not is_blank(before) and jsonedit.holds(before, entry, self.dialect):
                continue  # the person wrote it
            text = jsonedit.take_out(text, entry, self.dialect, was_there)
        return text

    def state(self, text: str | None) -> bool | None:
        """Tell whether all entries stand there; ``None`` when only some do, or such of another version."""
        if text is None or is_blank(text):
            return False
        found = {jsonedit.holds(text, entry, self.dialect) for entry in self.entries}
        return found.pop() if len(found) == 1 else None

    def is_empty(self, text: str) -> bool:
        """Tell whether a file says nothing at all."""
        return is_blank(text) or text.strip() == "{}"

    @property
    def trace(self) -> str:
        """Return what stands in every text in which there is anything of ours."""
        values = [entry.value for entry in self.entries]
        return values[0] if len(values) == 1 and isinstance(values[0], str) else SERVER


class TomlPart(NamedTuple):
    """Hold a table for one TOML file of a host."""

    path: Path
    names: tuple[str, ...]
    table: dict[str, Any]
    is_ours: Callable[[Any], bool]

    def put(self, text: str | None) -> str:
        """Return the text of the file with the table; ``None`` is a file that is not there."""
        present = tomledit.table_at(text or "", self.names)
        if present is not None and not self.is_ours(present):
            raise jsonedit.Taken(f"{'.'.join(self.names)} is there already and is not ours")
        return tomledit.put(text or "", self.names, self.table)

    def take_out(self, text: str, before: str | None) -> str:
        """Return the text without the table, if it is ours."""
        del before
        return tomledit.take_out(text, self.names) if self.is_ours(tomledit.table_at(text, self.names)) else text

    def state(self, text: str | None) -> bool | None:
        """Tell whether exactly the table stands there; ``None`` when one of ours does that differs."""
        present = tomledit.table_at(text or "", self.names)
        return present == self.table or (None if self.is_ours(present) else False)

    def is_empty(self, text: str) -> bool:
        """Tell whether a file says nothing at all."""
        return is_blank(text)

    @property
    def trace(self) -> str:
        """Return what stands in every text in which there is anything of ours."""
        return SERVER


class OwnFile(NamedTuple):
    """Hold a file that is ours as a whole."""

    path: Path
    text: str
    mark: str
    """What stands in every file of ours of this kind, whatever its version."""

    def put(self, text: str | None) -> str:
        """Return what the file holds; raises ``Taken`` when another one is there."""
        if text is not None and self.mark not in text:
            raise jsonedit.Taken("a file of somebody else is there")
        return self.text

    def take_out(self, text: str, before: str | None) -> str:
        """Return nothing, or the text if it is somebody else's."""
        del before
        return "" if self.mark in text else text

    def state(self, text: str | None) -> bool | None:
        """Tell whether exactly this is there; ``None`` for another version."""
        if text is None or self.mark not in text:
            return False
        return text == self.text or None

    def is_empty(self, text: str) -> bool:
        """Tell whether a file says nothing at all."""
        return not text

    @property
    def trace(self) -> str:
        """Return what stands in every text in which there is anything of ours."""
        return self.mark


Part: TypeAlias = JsonPart | TomlPart | OwnFile


def runs_us(command: Any, arguments: Any, *words: str) -> bool:
    """Tell whether a command line is one of ours, of whatever version and wherever it was installed.

    ``words`` are what it runs us with, one behind the other.
    """
    line = command if isinstance(command, list) else [command, *(arguments if isinstance(arguments, list) else [])]
    if not line or not all(isinstance(word, str) for word in line):
        return False
    joined = " ".join(line)
    return "intercom" in joined and f" {' '.join(words)}" in joined


def own_json(path: Path, content: Any) -> OwnFile:
    """Return a JSON file of our own."""
    return OwnFile(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n", "intercom")
