"""Put entries of ours into a JSON text and take them out again; every other character stays where it was.

A text is cut at one place and joined again. The result is read and compared with what was meant before it is
returned, so that a text in which that does not work is refused and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from intercom.hosts.jsontext import Container, Dialect, Malformed, Member, Node, line_of, parse

INDENT = "  "
"""What a level is indented by in a text that does not show it."""


class Taken(Exception):
    """Say that something else stands where an entry of ours would go; the sentence names the place."""


class Entry(NamedTuple):
    """Hold what is to stand in a text: a member at ``path``, or with ``is_item`` one item of the array there."""

    path: tuple[str, ...]
    value: Any
    is_ours: Callable[[Any], bool]
    """Tells whether a value that is there was put there by us, perhaps by an earlier version."""
    is_item: bool = False


def put(text: str, entry: Entry, dialect: Dialect) -> str:
    """Return a text with an entry in it; the same one when it stands there already.

    Raises ``Malformed`` when the text is not what its host reads, and ``Taken`` when the place is used otherwise.
    """
    root = parse(text, dialect)
    wanted = deepcopy(root.data)
    edited = _put(text, root, entry)
    _put_plain(wanted, entry)
    return _checked(text, edited, wanted, dialect)


def take_out(text: str, entry: Entry, dialect: Dialect, keep: Callable[[tuple[str, ...]], bool]) -> str:
    """Return a text without an entry, and without what is empty then, unless ``keep`` says that it was there before.

    Raises ``Malformed``. What stands there and is not ours stays.
    """
    wanted = deepcopy(parse(text, dialect).data)
    edited = text
    while (found := _find(parse(edited, dialect), entry)) is not None:
        edited = _without(edited, *found)
    if edited == text:
        return text
    for length in range(len(entry.path) - (not entry.is_item), 0, -1):
        path = entry.path[:length]
        at = _at(parse(edited, dialect), path)
        if at is None or not isinstance(at[1], Container) or at[1].children or keep(path):
            break
        edited = _without(edited, at[0], at[2])
    _take_out_plain(wanted, entry, keep)
    return _checked(text, edited, wanted, dialect)


def holds(text: str, entry: Entry, dialect: Dialect) -> bool | None:
    """Tell whether exactly this entry stands in a text; ``None`` when one of ours stands there that differs."""
    found = _find(parse(text, dialect), entry)
    if found is None:
        return False
    child = found[0].children[found[1]]
    value = child.value.data if isinstance(child, Member) else child.data
    return True if value == entry.value else None


def lookup(text: str, path: Sequence[str], dialect: Dialect) -> bool:
    """Tell whether something stands at a path."""
    return _at(parse(text, dialect), path) is not None


def _checked(text: str, edited: str, wanted: Any, dialect: Dialect) -> str:
    if edited == text:
        return text
    if parse(edited, dialect).data != wanted:
        raise Malformed("a name stands in it twice")
    return edited


def _put(text: str, root: Node, entry: Entry) -> str:
    node, value = root, entry.value
    for depth, key in enumerate(entry.path):
        if not isinstance(node, Container) or node.members is None:
            raise Taken(f"line {line_of(text, node.start)}: {'.'.join(entry.path[:depth]) or 'it'} is not an object")
        member = node.member(key)
        if member is None:
            nested: Any = [value] if entry.is_item else value
            for below in reversed(entry.path[depth + 1 :]):
                nested = {below: nested}
            return _with_member(text, root, node, key, nested)
        node = member.value
    if not entry.is_item:
        if node.data == value:
            return text
        if not entry.is_ours(node.data):
            raise Taken(f"line {line_of(text, node.start)}: {'.'.join(entry.path)} is there already and is not ours")
        return _replaced(text, root, node, value)
    if not isinstance(node, Container) or node.members is not None:
        raise Taken(f"line {line_of(text, node.start)}: {'.'.join(entry.path)} is not a list")
    for item in node.items:
        if item.data == value:
            return text
        if entry.is_ours(item.data):
            return _replaced(text, root, item, value)
    return _with_item(text, root, node, value)


def _put_plain(data: Any, entry: Entry) -> None:
    *above, last = entry.path
    for key in above:
        data = data.setdefault(key, {})
    if not entry.is_item:
        data[last] = entry.value
        return
    items = data.setdefault(last, [])
    if entry.value not in items:
        ours = next((place for place, item in enumerate(items) if entry.is_ours(item)), None)
        items[len(items) if ours is None else ours : None if ours is None else ours + 1] = [entry.value]


def _take_out_plain(data: Any, entry: Entry, keep: Callable[[tuple[str, ...]], bool]) -> None:
    places = [data]
    for key in entry.path[:-1]:
        places.append(places[-1][key])
    last = entry.path[-1]
    if entry.is_item:
        places.append([item for item in places[-1][last] if not entry.is_ours(item)])
        places[-2][last] = places[-1]
    else:
        del places[-1][last]
    for depth in range(len(places) - 1, 0, -1):
        if places[depth] or keep(entry.path[:depth]):
            return
        del places[depth - 1][entry.path[depth - 1]]


def _find(root: Node, entry: Entry) -> tuple[Container, int] | None:
    """Return the container and the number of the child that is ours, ``None`` when there is none."""
    at = _at(root, entry.path)
    if at is None:
        return None
    parent, node, place = at
    if not entry.is_item:
        return (parent, place) if entry.is_ours(node.data) else None
    if not isinstance(node, Container) or node.members is not None:
        return None
    return next(((node, number) for number, item in enumerate(node.items) if entry.is_ours(item.data)), None)


def _at(root: Node, path: Sequence[str]) -> tuple[Container, Node, int] | None:
    """Return what stands at a path: the object above it, the value, and the number of the member."""
    found: tuple[Container, Node, int] | None = None
    node = root
    for key in path:
        member = node.member(key) if isinstance(node, Container) else None
        if member is None:
            return None
        assert isinstance(node, Container) and node.members is not None
        found = node, member.value, node.members.index(member)
        node = member.value
    return found


# --- where a text is cut --------------------------------------------------------------------------------


def _with_member(text: str, root: Node, parent: Container, key: str, value: Any) -> str:
    layout = _Layout(text, root, parent)
    member = f"{json.dumps(key, ensure_ascii=False)}: {layout.rendered(value)}"
    if not parent.members:
        return layout.filled(member)
    first = parent.members[0].start
    if "\n" not in text[parent.start : first]:
        return f"{text[:first]}{member}, {text[first:]}"
    place = _line_end(text, parent.start + 1)
    return f"{text[:place]}{layout.newline}{layout.inner}{member},{text[place:]}"


def _with_item(text: str, root: Node, parent: Container, value: Any) -> str:
    layout = _Layout(text, root, parent)
    if not parent.items:
        return layout.filled(layout.rendered(value))
    last = parent.items[-1]
    before = f"{layout.newline}{layout.inner}" if layout.is_tall else " "
    return f"{text[: last.end]},{before}{layout.rendered(value)}{text[last.end :]}"


def _replaced(text: str, root: Node, node: Node, value: Any) -> str:
    layout = _Layout(text, root, node if isinstance(node, Container) else None)
    rendered = layout.rendered(value, at=_indent_of(text, node.start))
    return text[: node.start] + rendered + text[node.end :]


def _without(text: str, parent: Container, number: int) -> str:
    children = parent.children
    child = children[number]
    before = parent.start + 1 if number == 0 else children[number - 1].end
    space = before + len(text[before : child.start].rstrip(" \t\r\n"))
    follower = children[number + 1].start if number + 1 < len(children) else None
    if follower is not None:
        comma = _comma(text, child.end, follower)
        after_space = _space_end(text, comma + 1)
        begin, tail = space, comma + 1
        has_own_line = "\n" in text[space : child.start]
        goes_on = text[child.end : comma].strip() or text[after_space] not in "\r\n"
        if not has_own_line or (goes_on and _ends_in_line_comment(text[before:space])):
            # of children in one line the space behind the comma goes; a line comment keeps its line break
            begin, tail = child.start, after_space
        return text[:begin] + _followed(text, child.end, comma, text[tail:])
    if number > 0 and parent.trailing_comma is None:
        comma = _comma(text, before, child.start)
        return text[:comma] + _followed(text, comma + 1, max(space, comma + 1), text[child.end :])
    if number > 0:
        assert parent.trailing_comma is not None
        tail = parent.trailing_comma
        return text[:before] + _followed(text, before, space, _followed(text, child.end, tail, text[tail + 1 :]))
    end = child.end if parent.trailing_comma is None else parent.trailing_comma + 1
    if not (text[before:space] + text[end : parent.end - 1]).strip():
        return text[:before] + text[parent.end - 1 :]
    return text[:before] + _followed(text, before, space, text[end:])


def _followed(text: str, begin: int, end: int, rest: str) -> str:
    """Return what stands between children, and what comes behind it now; a ``//`` comment stays in its own line."""
    gap = text[begin:end].rstrip()
    if _ends_in_line_comment(gap) and rest.lstrip(" \t")[:1] not in ("\r", "\n"):
        return gap + _newline(text) + rest
    return gap + rest


def _comma(text: str, begin: int, end: int) -> int:
    """Return the place of the one comma between two children, which no comment hides."""
    place = begin
    while text[place] != ",":
        if text.startswith("//", place):
            place = text.index("\n", place)
        elif text.startswith("/*", place):
            place = text.index("*/", place + 2) + 1
        place += 1
    assert place < end
    return place


def _ends_in_line_comment(gap: str) -> bool:
    """Tell whether the last line of what stands between two children ends in a ``//`` comment."""
    place = 0
    while place < len(gap):
        if gap.startswith("//", place):
            found = gap.find("\n", place)
            if found < 0:
                return True
            place = found
        elif gap.startswith("/*", place):
            place = gap.index("*/", place + 2) + 1
        place += 1
    return False


def _space_end(text: str, place: int) -> int:
    while text[place] in " \t":
        place += 1
    return place


def _line_end(text: str, place: int) -> int:
    """Return where a line ends of which only space and a ``//`` comment are left, else ``place``."""
    end = text.find("\n", place)
    rest = text[place:end]
    if end < 0 or not rest.strip().startswith("//"):
        return place
    return end - 1 if rest.endswith("\r") else end


def _indent_of(text: str, place: int) -> str:
    """Return the space at the beginning of the line of a place."""
    start = text.rfind("\n", 0, place) + 1
    line = text[start:place].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _begins_its_line(text: str, place: int) -> bool:
    return not text[text.rfind("\n", 0, place) + 1 : place].strip()


class _Layout:
    """Know how a container is laid out: tall, a child a line, or all in one line."""

    def __init__(self, text: str, root: Node, container: Container | None) -> None:
        self._text = text
        self._container = container
        self.newline = _newline(text)
        self._unit = _unit(text, root)
        children = container.children if container is not None else ()
        start = container.start if container is not None else 0
        self.is_tall = not children or any("\n" in text[start : child.start] for child in children)
        on_own_line = [
            child for child in children if not text[text.rfind("\n", 0, child.start) + 1 : child.start].strip()
        ]
        self.inner = _indent_of(text, on_own_line[0].start) if on_own_line else _indent_of(text, start) + self._unit

    def rendered(self, value: Any, at: str | None = None) -> str:
        """Return a value as it stands in a line indented like the children, or by ``at``."""
        if not self.is_tall:
            return json.dumps(value, ensure_ascii=False)
        lines = json.dumps(value, indent=self._unit or None, ensure_ascii=False).split("\n")
        return (self.newline + (self.inner if at is None else at)).join(lines)

    def filled(self, child: str) -> str:
        """Return the text with a first child in an empty container; a comment in it stays."""
        assert self._container is not None
        begin, end = self._container.start + 1, self._container.end - 1
        interior = self._text[begin:end]
        outer = _indent_of(self._text, self._container.start)
        if interior.strip():
            return f"{self._text[:begin]}{self.newline}{self.inner}{child}{interior}{self._text[end:]}"
        return f"{self._text[:begin]}{self.newline}{self.inner}{child}{self.newline}{outer}{self._text[end:]}"


def _newline(text: str) -> str:
    first_break = text.find("\n")
    return "\r\n" if first_break > 0 and text[first_break - 1] == "\r" else "\n"


def _unit(text: str, root: Node) -> str:
    children = root.children if isinstance(root, Container) else ()
    for child in children:
        if "\n" in text[root.start : child.start]:
            return _indent_of(text, child.start)
    return INDENT
