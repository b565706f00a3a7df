"""Tell letters for an address that are older than its present home from those that its broker has posted since.

    claim 5, home b --a letter for b says 5, and gets late--> claim 6, home a --> claim 7, home b: the letter is old

Rule 1: the engine numbers the claims of all homes, so that a later one has a higher number wherever it was heard. Rule
2: what is old may have been shown where the address was meanwhile; its own broker knows, and others that it names.
"""

from __future__ import annotations

from intercom.core.peer_records import AddressHome


class Claims:
    """Hold the claims of all addresses, by their keys; ``own``: id of this broker."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._newest: dict[str, int] = {}
        self._since: dict[str, int] = {}
        """With which claim each address came here last, as far as this process knows."""
        self._gave: set[str] = set()
        """Addresses that went from here straight to where they are at home now."""

    def noted(self, seen: AddressHome, before: str) -> None:
        """Take note of a claim; ``before`` is the home until then, as far as is known."""
        key, home = seen.key, seen.home
        self._newest[key] = seen.revision
        if home == before:
            return
        if home == self._own:
            self._since[key] = seen.revision
        if before == self._own:
            self._gave.add(key)
        else:
            self._gave.discard(key)

    def forgotten(self, key: str) -> None:
        """Take note that the engine holds an address no more."""
        self._newest.pop(key, None)
        self._since.pop(key, None)
        self._gave.discard(key)

    def newest(self, key: str) -> int:
        """Return the newest claim that is known; 0: none."""
        return self._newest.get(key, 0)

    def is_old(self, key: str, claim: int | None) -> bool:
        """Tell whether an address came here, maybe once more, after a letter was posted that says this claim.

        A letter that says none is of a broker that knows none.
        """
        return claim is not None and claim < self._since.get(key, 0)

    def may_be_passed_on(self, key: str, claim: int | None) -> bool:
        """Tell whether nobody but this broker can have had a letter whose address is not at home here any more."""
        return claim is None or (key in self._gave and not self.is_old(key, claim))
