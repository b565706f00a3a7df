"""Put a table of ours at the end of a TOML text and take it out again; every other character stays where it was.

The text is read before and after with the standard parser and must differ by that table alone: what could not be added
at the end, because the names above it were written as an inline table, is refused and stays as it is.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from intercom.hosts.jsontext import BOM, Malformed

_HEADER = re.compile(r"[ \t]*\[(?!\[)[ \t]*([^\]\r\n]*?)[ \t]*\][ \t]*(?:#[^\r\n]*)?\r?\Z")
_ARRAY_HEADER = re.compile(r"[ \t]*\[\[")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+\Z")


def parse(text: str) -> dict[str, Any]:
    """Return what a text says; a byte order mark is passed over, as the host does. Raises ``Malformed``."""
    try:
        return tomllib.loads(text.removeprefix(BOM).replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise Malformed(str(error)) from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def put(text: str, path: tuple[str, ...], table: dict[str, Any]) -> str:
    """Return a text with a table in it, in the place of an earlier one under this path; raises ``Malformed``."""
    wanted = parse(text)
    if _lookup(wanted, path) == table:
        return text
    edited = take_out(text, path)
    parent = wanted
    for name in path[:-1]:
        parent = parent.setdefault(name, {})
        if not isinstance(parent, dict):
            raise Malformed(f"{name} is not a table")
    parent[path[-1]] = table
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [_header(path), *(f"{_key(name)} = {_rendered(value)}" for name, value in table.items())]
    between = "" if not edited.removeprefix(BOM) else newline if edited.endswith("\n") else newline * 2
    edited += between + "".join(line + newline for line in lines)
    return _checked(edited, wanted, path)


def take_out(text: str, path: tuple[str, ...]) -> str:
    """Return a text without the table of a path and those below it; raises ``Malformed``.

    One blank line before each goes too: it was put there with the table.
    """
    wanted = parse(text)
    if _lookup(wanted, path) is None:
        return text
    places: list[dict[str, Any]] = [wanted]
    for name in path[:-1]:
        places.append(places[-1][name])
    del places[-1][path[-1]]
    for depth in range(len(path) - 1, 0, -1):
        if not places[depth] and not _has_header(text, path[:depth]):
            del places[depth - 1][path[depth - 1]]
    kept: list[str] = []
    behind: list[str] = []
    """Blank lines and comments at the end of ours, which belong to what follows."""
    is_inside = False
    for line, is_code in _lines(text):
        header = _name_of(line) if is_code else None
        if header is not None or (is_code and _ARRAY_HEADER.match(line)):
            was_inside, is_inside = is_inside, header is not None and header[: len(path)] == path
            if was_inside and not is_inside:
                kept += behind
            elif is_inside and not was_inside and kept and not kept[-1].strip():
                kept.pop()
            behind = []
        if not is_inside:
            kept.append(line)
        elif is_code and (not line.strip() or line.lstrip().startswith("#")):
            behind.append(line)
        else:
            behind = []
    kept += behind
    return _checked("".join(kept), wanted, path)


def holds(text: str, path: tuple[str, ...], table: dict[str, Any]) -> bool | None:
    """Tell whether exactly this table stands in a text; ``None`` when another one does."""
    found = _lookup(parse(text), path)
    return False if found is None else found == table or None


def table_at(text: str, path: tuple[str, ...]) -> Any:
    """Return what stands at a path, ``None`` when nothing does; raises ``Malformed``."""
    return _lookup(parse(text), path)


def _checked(edited: str, wanted: dict[str, Any], path: tuple[str, ...]) -> str:
    name = ".".join(path)
    try:
        found = parse(edited)
    except Malformed:
        raise Malformed(f"{name} cannot be written as a table of its own there") from None
    if found != wanted:
        raise Malformed(f"{name} is written in a way that cannot be edited")
    return edited


def _lookup(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return None
        data = data[name]
    return data


def _has_header(text: str, path: tuple[str, ...]) -> bool:
    return any(is_code and _name_of(line) == path for line, is_code in _lines(text))


def _name_of(line: str) -> tuple[str, ...] | None:
    """Return the name in the header of a table, ``None`` for any other line."""
    found = _HEADER.match(line.removeprefix(BOM).removesuffix("\n"))
    if found is None:
        return None
    try:
        data: Any = tomllib.loads(f"[{found[1]}]")
    except tomllib.TOMLDecodeError:
        return None
    names = []
    while data:
        [(name, data)] = data.items()
        names.append(name)
    return tuple(names)


def _lines(text: str) -> list[tuple[str, bool]]:
    """Return the lines with their ends, and of each whether it begins outside of a string and of an array."""
    lines, start, depth, place = [], 0, 0, 0
    begins_outside = True
    closing = ""
    while place < len(text):
        if text[place] == "\n":
            lines.append((text[start : place + 1], begins_outside))
            start = place + 1
            begins_outside = not closing and depth == 0
            if len(closing) == 1:
                closing = ""  # an ordinary string ends with its line at the latest
        if closing:
            if closing[0] == '"' and text[place] == "\\":
                place += 1
            elif text.startswith(closing, place):
                place += len(closing) - 1
                closing = ""
        elif text.startswith(('"""', "'''"), place):
            closing = text[place : place + 3]
            place += 2
        elif text[place] in "\"'":
            closing = text[place]
        elif text[place] == "#":
            end = text.find("\n", place)
            place = (len(text) if end < 0 else end) - 1
        elif text[place] in "[{":
            depth += 1
        elif text[place] in "]}":
            depth -= 1
        place += 1
    if start < len(text):
        lines.append((text[start:], begins_outside))
    return lines


def _header(path: tuple[str, ...]) -> str:
    return f"[{'.'.join(map(_key, path))}]"


def _key(name: str) -> str:
    return name if _PLAIN.match(name) else json.dumps(name)


def _rendered(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_rendered(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_rendered, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
