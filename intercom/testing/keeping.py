"""Keep in memory what a home would keep of an address: its token, and the ids of messages that were done with."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class MemoryKeeper:
    """Keep one address for all sessions that act under it; the methods are those of ``lifecycle.Keeper``."""

    def __init__(self, ids: Callable[[], str]) -> None:
        """Begin without a token; ``ids`` makes one when it is needed."""
        self._ids = ids
        self._token: str | None = None
        self._seen: set[str] = set()

    def prepare(self) -> None:
        """Make the token if there is none."""
        self._token = self._token or self._ids()

    def token(self) -> str | None:
        """Return the token."""
        return self._token

    def keep_token(self, token: str) -> None:
        """Keep the token the broker gave."""
        self._token = token

    def knows(self, message_id: str) -> bool:
        """Tell whether an earlier session of the address was done with this message."""
        return message_id in self._seen

    def note(self, message_ids: Iterable[str]) -> None:
        """Remember messages that are about to be confirmed."""
        self._seen.update(message_ids)

    def refresh(self) -> None:
        """Do nothing: what is kept is the same for all."""
