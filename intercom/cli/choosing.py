"""Find what a person means by an id, or by the beginning of one that nothing else has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from intercom.errors import RequestRefused
from intercom.limits import PREFIX_CHARACTERS

Item = TypeVar("Item")


def chosen(
    items: Iterable[Item],
    id_of: Callable[[Item], str],
    wanted: str,
    *,
    none: Callable[[], RequestRefused],
    many: Callable[[int], RequestRefused],
) -> Item:
    """Return the item with this id, or the only one whose id begins so; raise what ``none`` or ``many`` return."""
    plain = wanted.strip().lower()
    found = []
    for item in items:
        item_id = id_of(item).lower()
        if item_id == plain:
            return item
        if len(plain) >= PREFIX_CHARACTERS and item_id.startswith(plain):
            found.append(item)
    if len(found) == 1:
        return found[0]
    raise many(len(found)) if found else none()
