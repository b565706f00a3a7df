"""Stop messages that cause each other for ever (protocol 15.3).

A message that names another one in ``replyTo`` or ``causedBy`` is one hop further in the chain of that one; a message
that names none begins a chain. Short chains are not looked at. In longer ones the guard counts, per pair and per first
message, and refuses what comes too fast, what only repeats, and what is beyond the longest chain. What is refused was
not sent: the same message may be sent later.

Rule: a message that begins a chain costs nothing here, and nothing is remembered of it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from msgspec import Struct

from intercom.core.clock import Instant
from intercom.limits import Limits
from intercom.wire import reasons


class Link(Struct, frozen=True):
    """Remember where in which chain a message stands."""

    first: str
    """Id of the message that began the chain."""
    hops: int
    said: int
    """Hash of who said what to whom."""
    before: int | None
    """That of the message one hop before."""


class _Window:
    __slots__ = ("began", "count")

    def __init__(self, began: int) -> None:
        self.began = began
        self.count = 0


class LoopGuard:
    """Judge messages that were caused by others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._links: OrderedDict[str, Link] = OrderedDict()
        self._pairs: OrderedDict[Any, _Window] = OrderedDict()
        self._firsts: OrderedDict[Any, _Window] = OrderedDict()
        self.refused = 0
        """How many messages were refused."""

    def __len__(self) -> int:
        return len(self._links)

    def judge(
        self, message_id: str, cause: str, sender: str, target: str, text: str, now: Instant, *, is_answer: bool
    ) -> str | None:
        """Take a message into its chain and return None, or the reason why it is refused.

        ``cause`` is the id of the message that caused it, ``sender`` and ``target`` are parties. The answer to an open
        question is never refused: whoever asked waits for it. A retry is not counted again.
        """
        if message_id in self._links:
            return None
        link = self._links.get(cause)
        if link is None:
            if not is_answer:  # what was asked and is answered goes no further than that, mostly
                self._remember(message_id, Link(cause, 1, hash((sender, target, text)), None))
            return None
        said = hash((sender, target, text))
        hops = link.hops + 1
        if hops > self._limits.loop_free_hops and not is_answer:
            refusal = self._refusal(link, hops, sender, target, said, now)
            if refusal is not None:
                self.refused += 1
                return refusal
        self._remember(message_id, Link(link.first, hops, said, link.said))
        return None

    def _refusal(self, link: Link, hops: int, sender: str, target: str, said: int, now: Instant) -> str | None:
        limits = self._limits
        if said == link.before:  # when two talk, its sender wrote that one too
            return reasons.LOOP_REPEATS
        if hops > limits.loop_hops:
            return reasons.loop_too_long(limits.loop_hops)
        pair = self._window(self._pairs, (sender, target), now)
        first = self._window(self._firsts, link.first, now)
        if pair.count >= limits.loop_pair_messages or first.count >= limits.loop_root_messages:
            window = pair if pair.count >= limits.loop_pair_messages else first
            return reasons.loop_too_fast(window.began + limits.loop_window_ms - now.mono)
        pair.count += 1
        first.count += 1
        return None

    def _window(self, windows: OrderedDict[Any, _Window], key: Any, now: Instant) -> _Window:
        window = windows.get(key)
        if window is None or window.began + self._limits.loop_window_ms <= now.mono:
            window = windows[key] = _Window(now.mono)
        windows.move_to_end(key)
        if len(windows) > self._limits.loop_entries:
            windows.popitem(last=False)
        return window

    def _remember(self, message_id: str, link: Link) -> None:
        self._links[message_id] = link
        if len(self._links) > self._limits.loop_entries:
            self._links.popitem(last=False)
