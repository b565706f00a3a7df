"""Keep in memory what a session keeps of its address in files: for all sessions of one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class MemoryKeeper:
    """Keep the token of one address, and the ids of messages it was done with."""

    def __init__(self, ids: Callable[[], str]) -> None:
        """Begin without a token; ``ids`` gives texts that nobody else has."""
        self._ids = ids
        self._token: str | None = None
        self._seen: set[str] = set()

    def prepare(self) -> None:
        """Make the token if there is none."""
        if self._token is None:
            self._token = self._ids()

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
        """Take notice of messages that are done with."""
        self._seen.update(message_ids)

    def refresh(self) -> None:
        """Do nothing: all sessions share what is here."""
