"""Be the directory of a broker that knows no other machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intercom.core.records import Forward, Forwarded, PeerFact, PeerWork


class Alone:
    """Reach nobody, and say so: a store may hold what an earlier broker on it, which was not alone, had to send.

    Args:
        notify: called when ``done`` has something.
    """

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self._facts: list[PeerFact] = []

    def submit(self, work: PeerWork) -> None:
        """Say of a task that it reached nobody; nothing else needs an answer."""
        if isinstance(work, Forward):
            self._facts.append(
                Forwarded(work.delivery_id, work.attempt, "unreachable", reason="this broker reaches no other machine")
            )
            self._notify()

    def done(self) -> Sequence[PeerFact]:
        """Return what is to be told of such tasks."""
        facts, self._facts = self._facts, []
        return facts

    def close(self, timeout_s: float) -> None:
        """Do nothing: there is no contact to end."""
