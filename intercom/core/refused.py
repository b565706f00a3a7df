"""Remember which letters were refused, so that a copy which the engine hands out again is refused as well.

What is refused leaves no row, and may be possible by then: its sender was told that nothing took effect, and nothing
will. A newer attempt of the same process is decided anew.
"""

from __future__ import annotations

from msgspec.structs import replace

from intercom.core.letters import OutcomeLetter, SendLetter


class RefusedLetters:
    """Hold the latest of them; ``most``: so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._refused: dict[tuple[str, str, str], tuple[tuple[int, str], OutcomeLetter]] = {}
        """By broker, message id and process: the newest attempt that was refused, and what was said."""

    def note(self, peer: str, said: OutcomeLetter) -> None:
        """Take note of what was said of a letter."""
        process, place = place_of(said.attempt)
        key = peer, said.message_id, process
        self._refused.pop(key, None)
        self._refused[key] = place, said
        if len(self._refused) > self._most:
            del self._refused[next(iter(self._refused))]

    def of_copy(self, peer: str, letter: SendLetter) -> OutcomeLetter | None:
        """Return what is to be said of a letter that was refused, or is older than one that was, else None."""
        process, place = place_of(letter.attempt)
        found = self._refused.get((peer, letter.message_id, process))
        if found is None or place > found[0]:
            return None
        return replace(found[1], attempt=letter.attempt, mark=letter.mark)


def place_of(attempt: str) -> tuple[str, tuple[int, str]]:
    """Return of which process an attempt is, and what orders it among those of the same one."""
    process, _, number = attempt.rpartition(".")
    return process, (len(number), number)
