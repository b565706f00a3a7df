"""Know who waits for whom, and find the circle that one more wait would close (protocol 15.1).

Who waits is a *party*: an address, or a session without one, over its reconnects. All sessions that act under an
address are one party: what one of them waits for keeps the agent behind them from answering.

Rule: the waits of parties that are here never form a circle. A question that sleeps because its asker is gone is no
wait; before it wakes it is looked at like a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from intercom.core.operation import Operation


class Wait(Protocol):
    """Be an ask that is under way, or an open question."""

    asker_party: str
    target_party: str
    message_id: str
    is_open: bool
    """The question is open: who was asked has it."""

    @property
    def operation(self) -> Operation | None:
        """Return the row of the ask, once it is reserved."""

    @property
    def asker_id(self) -> str:
        """Return the session id of who asked."""

    @property
    def target_id(self) -> str:
        """Return the session id, or the key of the mailbox, of who was asked."""

    @property
    def dormant(self) -> bool:
        """Tell whether nobody waits now: the asker has still to return."""


class Waits:
    """Hold every wait by who waits."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Wait, None]] = {}

    def __len__(self) -> int:
        return sum(len(waits) for waits in self._of.values())

    def __iter__(self) -> Iterator[Wait]:
        for waits in self._of.values():
            yield from waits

    def begin(self, wait: Wait) -> None:
        """Enter a wait; once it is there this has no effect."""
        self._of.setdefault(wait.asker_party, {})[wait] = None

    def end(self, wait: Wait) -> None:
        """Take a wait out; one that is not there is fine."""
        waits = self._of.get(wait.asker_party)
        if waits is not None:
            waits.pop(wait, None)
            if not waits:
                del self._of[wait.asker_party]

    def chain(self, first: str, last: str, without: Wait | None = None) -> list[Wait] | None:
        """Return the shortest chain of waits from party ``first`` to party ``last``; None when there is none.

        ``without`` is a wait that is about to end.
        """
        if first == last:
            return []
        if first not in self._of:
            return None
        reached_by: dict[str, Wait] = {}
        ahead = deque([first])
        while ahead:
            for wait in self._of.get(ahead.popleft(), ()):
                party = wait.target_party
                if wait.dormant or wait is without or party in reached_by or party == first:
                    continue
                reached_by[party] = wait
                if party == last:
                    return _back(reached_by, first, last)
                ahead.append(party)
        return None


def _back(reached_by: dict[str, Wait], first: str, last: str) -> list[Wait]:
    chain: list[Wait] = []
    party = last
    while party != first:
        wait = reached_by[party]
        chain.append(wait)
        party = wait.asker_party
    chain.reverse()
    return chain
