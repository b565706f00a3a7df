"""Read JSON with the places of everything in it, so that it can be edited without touching the rest.

What a host's file may hold beside JSON differs from host to host; a ``Dialect`` says it. A file the host itself could
not read is refused rather than edited: whatever is entered there would be without effect.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias

BOM = "\ufeff"


class Dialect(NamedTuple):
    """Say what a host takes beside JSON."""

    comments: bool = False
    trailing_commas: bool = False
    bom: bool = False


class Malformed(Exception):
    """Say why a text is not what its host can read; the sentence names the line."""


class Value(NamedTuple):
    """Hold a string, a number, ``true``, ``false`` or ``null``, and where it stands."""

    start: int
    end: int
    data: Any


class Member(NamedTuple):
    """Hold one member of an object: where its key begins, the key, and its value."""

    start: int
    key: str
    value: Node

    @property
    def end(self) -> int:
        """Return the place behind the value."""
        return self.value.end


class Container(NamedTuple):
    """Hold an object or an array: ``start`` is at its opening bracket, ``end`` behind its closing one."""

    start: int
    end: int
    members: tuple[Member, ...] | None
    """Of an object, in their order; ``None`` for an array."""
    items: tuple[Node, ...]
    """Of an array."""
    trailing_comma: int | None
    """Place of a comma before the closing bracket."""

    @property
    def children(self) -> tuple[Member | Node, ...]:
        """Return the members or the items."""
        return self.items if self.members is None else self.members

    @property
    def data(self) -> Any:
        """Return the plain value; of a key that stands there twice the last counts."""
        if self.members is None:
            return [item.data for item in self.items]
        return {member.key: member.value.data for member in self.members}

    def member(self, key: str) -> Member | None:
        """Return the last member of a name, ``None`` without one or in an array."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


Node: TypeAlias = Value | Container

_NO_COMMA: int | None = None
_SCALAR = re.compile(r"-?[0-9][0-9+\-.eE]*|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SPACE = re.compile(r"[ \t\r\n]*")


def parse(text: str, dialect: Dialect) -> Node:
    """Return the value that fills ``text``; raise ``Malformed``."""
    reader = _Reader(text, dialect)
    try:
        node = reader.value(reader.skip(_after_bom(text, dialect)))
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    end = reader.skip(node.end)
    if end != len(text):
        raise Malformed(f"line {line_of(text, end)}: something follows the end")
    return node


def is_blank(text: str) -> bool:
    """Tell whether there is nothing in a file but space."""
    return not text.removeprefix(BOM).strip()


def line_of(text: str, place: int) -> int:
    """Return the number of the line of a place, from 1."""
    return text.count("\n", 0, place) + 1


def _after_bom(text: str, dialect: Dialect) -> int:
    if not text.startswith(BOM):
        return 0
    if not dialect.bom:
        raise Malformed("it begins with a byte order mark, which the host does not take")
    return 1


class _Reader:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect

    def skip(self, place: int) -> int:
        """Return the next place that is neither space nor comment."""
        while True:
            place = _SPACE.match(self._text, place).end()  # type: ignore[union-attr]  # it matches everywhere
            if not self._text.startswith(("//", "/*"), place):
                return place
            if not self._dialect.comments:
                raise self._wrong(place, "a comment, which the host does not take")
            if self._text.startswith("//", place):
                end = self._text.find("\n", place)
                place = len(self._text) if end < 0 else end
            else:
                end = self._text.find("*/", place + 2)
                if end < 0:
                    raise self._wrong(place, "a comment that does not end")
                place = end + 2

    def value(self, place: int) -> Node:
        character = self._text[place : place + 1]
        if character == "{":
            return self._object(place)
        if character == "[":
            return self._array(place)
        if character == '"':
            return self._string(place)
        found = _SCALAR.match(self._text, place)
        if found is None:
            raise self._wrong(place, "a value is missing")
        try:
            return Value(place, found.end(), json.loads(found[0]))
        except ValueError:
            raise self._wrong(place, "a number is wrong") from None

    def _string(self, place: int) -> Value:
        found = _STRING.match(self._text, place)
        if found is None:
            raise self._wrong(place, "a string is missing or does not end")
        try:
            return Value(place, found.end(), json.loads(found[0]))
        except ValueError:
            raise self._wrong(place, "a string has a wrong escape") from None

    def _object(self, start: int) -> Container:
        members: list[Member] = []
        place, comma = self.skip(start + 1), _NO_COMMA
        while self._text[place : place + 1] != "}":
            key = self._string(place)
            colon = self.skip(key.end)
            if self._text[colon : colon + 1] != ":":
                raise self._wrong(colon, "a colon is missing")
            member = Member(place, key.data, self.value(self.skip(colon + 1)))
            members.append(member)
            place, comma = self._next(member.end, "}")
        return Container(start, place + 1, tuple(members), (), comma)

    def _array(self, start: int) -> Container:
        items: list[Node] = []
        place, comma = self.skip(start + 1), _NO_COMMA
        while self._text[place : place + 1] != "]":
            items.append(self.value(place))
            place, comma = self._next(items[-1].end, "]")
        return Container(start, place + 1, None, tuple(items), comma)

    def _next(self, end: int, closing: str) -> tuple[int, int | None]:
        """Return where the next child or the closing bracket is, and the place of a comma before the latter."""
        place = self.skip(end)
        if self._text[place : place + 1] == closing:
            return place, None
        if self._text[place : place + 1] != ",":
            raise self._wrong(place, f"a comma or {closing} is missing")
        following = self.skip(place + 1)
        if self._text[following : following + 1] != closing:
            return following, None
        if not self._dialect.trailing_commas:
            raise self._wrong(place, f"a comma before {closing}, which the host does not take")
        return following, place

    def _wrong(self, place: int, what: str) -> Malformed:
        return Malformed(f"line {line_of(self._text, place)}: {what}")
