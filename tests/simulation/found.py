"""Name the worlds that found something, and what it was; every suite lives through them again.

What a number stands for changes with every change of the worlds themselves, so each fault has a test of its own too.
"""

from __future__ import annotations

FOUND: dict[int, str] = {
    29: "a retry whose name meant another session by then was told that it was delivered",
    78: "a message that was given up twice was told once: the second notice had the id of the first, as a copy has",
    244: "a notice said `not delivered` of mail that was done with, whose receipt was lost before its session ended",
    260: "a send that was tried again arrived, while a notice said that it had not",
}
