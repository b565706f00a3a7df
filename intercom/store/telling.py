"""Make whole what events of the journal tell that hold nothing but what changed.

Such an event lacks the key of its row; the one before it in its stream, or one before that, tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.json import decode, encode


class Telling:
    """Follow events in their order.

    Args:
        keys: the keys of rows that may be told in part, by what their streams begin with.
        before: returns what a stream tells before the first event that is given, oldest first; left out, nothing.
    """

    def __init__(self, keys: Mapping[str, str], before: Callable[[str], list[Any]] | None = None) -> None:
        self._keys = keys
        self._before = before
        self._known: dict[str, dict[str, Any]] = {}

    def whole(self, stream: str, told: Any) -> Any:
        """Return the whole row that the next event of a stream tells, as JSON.

        Raises ``KeyError`` for one whose row is not known, because an earlier event is damaged or not there, and
        ``ValueError`` or ``TypeError`` for one that is damaged itself.
        """
        key = self._keys.get(stream.partition(":")[0])
        if key is None:
            return told
        known = self._known.pop(stream, None)
        members = decode(told)
        if key not in members:
            for earlier in self._before(stream) if known is None and self._before is not None else ():
                known = {**(known or {}), **decode(earlier)}
            members = {**(known or {}), **members}
            members[key]
        self._known[stream] = members
        return encode(members)
