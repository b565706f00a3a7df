"""Make whole what events of the journal tell that hold nothing but what changed.

The event before such an event that is about the same row, or one before that, tells the rest. What becomes of a message
is one stream, whatever rows it comes to: there, what tells a change of a row names its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec.json import decode, encode

from intercom.core.records import Row


class Partly(NamedTuple):
    """Say how rows of one kind are told in part."""

    sign: str
    """A member that only a whole row has."""
    key: str | None
    """The member that tells which row of the stream it is; None: the stream is about one."""


class Telling:
    """Follow events in their order.

    Args:
        partly: the kinds of rows that may be told in part.
        before: returns what a stream tells before the first event that is given, oldest first, with the kinds of rows;
            left out, nothing.
    """

    def __init__(
        self,
        partly: Mapping[type[Row], Partly],
        before: Callable[[str], Iterable[tuple[type[Row], Any]]] | None = None,
    ) -> None:
        self._partly = partly
        self._before = before
        self._known: dict[tuple[str, type[Row]], dict[Any, dict[str, Any]]] = {}
        """Rows by stream and kind, and by their keys."""

    def whole(self, stream: str, kind: type[Row], told: Any) -> Any:
        """Return the whole row of this kind that the next event of a stream tells, as JSON.

        Raises ``KeyError`` for one whose row is not known, because an earlier event is damaged or not there, and
        ``ValueError`` or ``TypeError`` for one that is damaged itself.
        """
        partly = self._partly.get(kind)
        if partly is None:
            return told
        rows = self._known.get((stream, kind))
        if rows is None:
            rows = self._known[stream, kind] = {}
            for earlier, said in () if self._before is None else self._before(stream):
                if earlier is kind:
                    with suppress(KeyError, TypeError, ValueError):
                        _follow(rows, partly, said)
        return encode(_follow(rows, partly, told))


def _follow(rows: dict[Any, dict[str, Any]], partly: Partly, told: Any) -> dict[str, Any]:
    """Bring a row to what an event tells, and return it; after one that is damaged no row is known any more."""
    try:
        members = decode(told)
        key = None if partly.key is None else members[partly.key]
        if partly.sign not in members:
            members = {**rows[key], **members}
    except (KeyError, TypeError, ValueError):
        rows.clear()
        raise
    rows[key] = members
    return members  # type: ignore[no-any-return]  # only an object has members
