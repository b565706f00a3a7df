"""Let a session work on one step at a time, whoever's flow it is of: who came first comes next (protocol 12.11).

Rule 1: where flows of several brokers want the same session, each that found it busy is in line, our own ones too. Rule
2: a session is kept free for the first in line for some time; who does not come in that time has lost its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intercom.core.clock import Instant

if TYPE_CHECKING:
    from intercom.core.deadlines import Deadline, Deadlines
    from intercom.core.flow_book import FlowBook
    from intercom.core.hosted import Hosting

_OURS = ""
"""In place of the broker of a flow."""


class Turns:
    """Know which sessions are busy, and who comes next.

    Args:
        book: the flows of this broker.
        hosting: the attempts of flows of others.
        tell: tells a broker that the session is free for which it brought an attempt.
        kick: has our own flows looked at.
        kept_ms: how long a session is kept free.
    """

    def __init__(
        self,
        book: FlowBook,
        hosting: Hosting,
        deadlines: Deadlines,
        tell: Callable[[str, str], None],
        kick: Callable[[], None],
        kept_ms: int,
    ) -> None:
        self._book = book
        self._hosting = hosting
        self._deadlines = deadlines
        self._tell = tell
        self._kick = kick
        self._kept_ms = kept_ms
        self._asking: dict[str, dict[str, str]] = {}
        """Who found a session busy, the first one first: dispatches of others with their brokers, flows of our own."""
        self._reserved: dict[str, tuple[str, Deadline]] = {}
        """For which of those a session is kept free."""

    def is_taken(self, session_id: str) -> bool:
        """Tell whether a session works on a step of another broker's flow, or is kept free for one."""
        return self._hosting.at(session_id) is not None or session_id.lower() in self._reserved

    def is_busy(self, session_id: str, wanted: str) -> bool:
        """Tell whether a session cannot be handed a step because of another than the ``wanted`` one."""
        session_id = session_id.lower()
        if self._book.open_at(session_id) is not None or self._hosting.at(session_id) is not None:
            return True
        reserved = self._reserved.get(session_id)
        return reserved is not None and reserved[0] != wanted

    def ask(self, session_id: str, dispatch_id: str, peer: str) -> None:
        """Let an attempt of another broker be in line."""
        self._asking.setdefault(session_id.lower(), {})[dispatch_id] = peer

    def must_wait(self, session_id: str, flow_id: str) -> bool:
        """Tell whether a flow of our own cannot have a session now; it is in line then."""
        if not self.is_busy(session_id, flow_id):
            return False
        self._asking.setdefault(session_id.lower(), {}).setdefault(flow_id, _OURS)
        return True

    def took(self, session_id: str, flow_id: str) -> None:
        """Note that a flow of our own had its turn."""
        self.forget(flow_id, session_id)

    def forget(self, wanted: str, session_id: str | None = None) -> None:
        """Let a flow or an attempt wait no more: it had its turn, or is over; None: wherever it waited."""
        for waited_for in list({*self._asking, *self._reserved}) if session_id is None else [session_id.lower()]:
            asking = self._asking.get(waited_for, {})
            asking.pop(wanted, None)
            if not asking:
                self._asking.pop(waited_for, None)
            reserved = self._reserved.get(waited_for)
            if reserved is not None and reserved[0] == wanted:
                self._release(waited_for)

    def _release(self, session_id: str) -> None:
        reserved = self._reserved.pop(session_id, None)
        if reserved is not None:
            self._deadlines.cancel(reserved[1])

    def session_ended(self, session_id: str) -> None:
        """Let all who wait for a session that will not come back ask anew, and hear so."""
        session_id = session_id.lower()
        for wanted, peer in self._asking.pop(session_id, {}).items():
            if peer != _OURS:
                self._tell(wanted, peer)
        self._release(session_id)

    def freed(self, session_id: str, now: Instant) -> None:
        """Keep a session free for the first in line; without flows of others our own know their turns themselves."""
        session_id = session_id.lower()
        asking = self._asking.get(session_id, {})
        if session_id in self._reserved or self._hosting.at(session_id) is not None:
            return
        if all(peer == _OURS for peer in asking.values()):
            self._asking.pop(session_id, None)
            self._kick()
            return
        wanted, peer = next(iter(asking.items()))
        del asking[wanted]
        deadline = self._deadlines.add(now.mono + self._kept_ms, self._did_not_come, session_id)
        self._reserved[session_id] = wanted, deadline
        if peer == _OURS:
            self._kick()
        else:
            self._tell(wanted, peer)

    def _did_not_come(self, session_id: str, now: Instant) -> None:
        del self._reserved[session_id]
        self.freed(session_id, now)
