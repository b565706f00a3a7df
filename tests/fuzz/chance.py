"""Draw texts, numbers and JSON values that people do not think of; one number decides everything."""

from __future__ import annotations

import random
from typing import Any

ODD_TEXTS = (
    "",
    " ",
    "\t\n",
    "\ufeff",
    "\x00",
    "a\x00b",
    "\x1b[31mred\x1b[0m",
    "\u202eright to left",
    "e\u0301",
    "\U0001f600",
    "../../etc/passwd",
    "workflow:",
    "workflow:/",
    "*",
    "**",
    "@me",
    "@",
    "__proto__",
    "null",
    "-",
    "--help",
    "%s%n",
    "default",
    "DEFAULT",
    "\u0130",
    "\xdf",
    "x" * 65,
    "y" * 129,
    "z" * 513,
)
ODD_NUMBERS = (
    0,
    -1,
    1,
    2,
    -0.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    2**31,
    2**53 - 1,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    10**30,
)
LONG_TEXT = 20_000
HUGE_TEXT = 300_000
DEEPEST = 300


def odd_text(chance: random.Random) -> str:
    """Return a text; a long one seldom."""
    draw = chance.random()
    if draw < 0.01:
        return chance.choice("ab\u00e9\U0001f600") * (HUGE_TEXT if draw < 0.0005 else LONG_TEXT)
    if draw < 0.7:
        return chance.choice(ODD_TEXTS)
    return "".join(chance.choices('aB9-_./:*@ \u00e9\u3042\n"\\{[', k=chance.randrange(1, 12)))


def odd_value(chance: random.Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    draw = chance.randrange(10 if depth < 3 else 7)
    if draw < 3:
        return odd_text(chance)
    if draw < 5:
        return chance.choice(ODD_NUMBERS)
    if draw == 5:
        return chance.choice((True, False))
    if draw == 6:
        return None
    if draw == 7:
        return [odd_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if draw == 8:
        return {odd_text(chance): odd_value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return deep(chance.randrange(1, DEEPEST), chance.random() < 0.5)


def deep(levels: int, in_objects: bool) -> Any:
    """Return a value that is nested so deep."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if in_objects else [value]
    return value
