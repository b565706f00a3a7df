"""Tell letters for an address that are older than its present home from those that its broker has posted since.

    claim 5, home b --a letter for b says 5, and gets late--> claim 6, home a --> claim 7, home b: the letter is old

Rule 1: the engine numbers the claims of all homes: a later one has a higher number wherever it was heard, and each says
which one it took the place of, so that who did not hear of all knows it. Rule 2: what is old may have been shown where
the address was meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from intercom.core.peer_records import AddressHome


class Claims:
    """Hold the claims of all addresses, by their keys; ``own``: id of this broker."""

    def __init__(self, own: str) -> None:
        self._own = own
        self.on_news: Callable[[str], None] = lambda key: None
        """Is told of each address of which something new is known."""
        self._newest: dict[str, int] = {}
        self._since: dict[str, int] = {}
        """With which claim each address came here last, as far as this process knows."""
        self._own_newest: dict[str, int] = {}
        """The last claim with which each address was at home here."""
        self._gave: set[str] = set()
        """Addresses that went from here straight to where they are at home now."""

    def noted(self, seen: AddressHome, before: str) -> None:
        """Take note of a claim; ``before`` is the home until then, as far as is known."""
        key = seen.key
        if seen.revision > self._newest.get(key, 0):
            self.on_news(key)
        is_next = seen.after == self._newest.get(key, 0)
        self._newest[key] = seen.revision
        if seen.home == self._own:
            if before != self._own:
                self._since[key] = seen.revision
            self._own_newest[key] = seen.revision
            self._gave.discard(key)
        elif seen.after == self._own_newest.get(key):
            self._gave.add(key)
        elif seen.home != before or not is_next:
            self._gave.discard(key)

    def forgotten(self, key: str) -> None:
        """Take note that the engine holds an address no more."""
        self._newest.pop(key, None)
        self._since.pop(key, None)
        self._own_newest.pop(key, None)
        self._gave.discard(key)

    def newest(self, key: str) -> int:
        """Return the newest claim that is known; 0: none."""
        return self._newest.get(key, 0)

    def is_ahead(self, key: str, claim: int | None) -> bool:
        """Tell whether who posted a letter knew of a newer claim than is known here: it will be heard in a moment."""
        return claim is not None and claim > self._newest.get(key, 0)

    def is_old(self, key: str, claim: int | None) -> bool:
        """Tell whether an address came here, maybe once more, after a letter was posted that says this claim.

        A letter that says none is of a broker that knows none.
        """
        return claim is not None and claim < self._since.get(key, 0)

    def may_be_passed_on(self, key: str, claim: int | None) -> bool:
        """Tell whether nobody but this broker can have had a letter whose address is not at home here any more."""
        return claim is None or (key in self._gave and not self.is_old(key, claim))
