"""Tell which mail says the same, so that its reader is shown it once (protocol 15.3.2).

Two say the same when one sender wrote both to one mailbox and they differ in nothing but their ids, their times and
what caused them. Asks, answers, and what is valid for a time only are never joined. Rule: nothing is lost by it and
nothing kept back: each of them stays an entry of the mailbox, with a fate and an end of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.json import decode

from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.mailboxes import Mail

_OWN = frozenset({"id", "timestamp", "causedBy"})
"""Members in which messages that say the same may differ."""
_PLAIN = _OWN | {"content", "expectsReply"}


def is_plain(message: bytes) -> bool:
    """Tell whether a message holds nothing but what its signature covers, and what may differ."""
    members: dict[str, Any] = decode(message)
    return _PLAIN.issuperset(members) and {"text", "attachments"}.issuperset(members["content"])


def joinable(alike: list[Mail], mail: Mail, is_committed: Callable[[int], bool], limits: Limits) -> list[Mail]:
    """Return what waits and may go with ``mail``, the oldest first: as many as are handed over as one."""
    found: list[Mail] = []
    size = 0
    for other in alike:
        size += other.record.size
        if len(found) >= limits.mail_joined or size > limits.mail_offer_bytes:
            break
        if other is not mail and other.waits and is_committed(other.ticket):
            found.append(other)
    return found


def say_the_same(mail: Mail, other: Mail, bodies: dict[int, bytes]) -> bool:
    """Tell whether two messages that were read say the same; one that was not is another one."""
    first, second = bodies.get(mail.record.body_number), bodies.get(other.record.body_number)
    return first is not None and second is not None and _said(first) == _said(second)


def _said(message: bytes) -> dict[str, Any]:
    return {name: value for name, value in decode(message).items() if name not in _OWN}
