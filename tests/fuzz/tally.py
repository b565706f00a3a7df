"""Count what was tried, and how long the longest of it took."""

from __future__ import annotations


class TooSlow(AssertionError):
    """Say which input took longer than anything may."""


class Tally:
    """Count inputs; seconds are those of the processor, so that a busy machine makes nothing slow."""

    def __init__(self) -> None:
        self.frames = 0
        self.slowest = 0.0

    def count(self, seconds: float, what: object, longest: float) -> None:
        """Count one input; raise ``TooSlow`` when it took more than ``longest`` seconds."""
        self.frames += 1
        if seconds > self.slowest:
            self.slowest = seconds
            if seconds > longest:
                raise TooSlow(f"{seconds:.1f} s for {what!r:.500}")
