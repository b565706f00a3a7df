"""Name the worlds that found something, one word each on what it was; every suite lives through them again."""

from __future__ import annotations

FOUND: dict[int, str] = {
    13: "a notice said `not delivered` of mail that was done with, whose receipt was lost before its session ended",
    29: "a retry whose name meant another session by then was told that it was delivered",
    42: "a message that was given up twice was told once: the second notice had the id of the first, as a copy has",
    73: "a retry handed over a message that was not valid any more, and had been given up",
    260: "a send that was tried again arrived, while a notice said that it had not",
    422: "a message that was sent again under its id became an answer, and was refused as another message",
}
