"""Find numbers that are beyond a double in a JSON text: not every recipient could read them (protocol 1.3).

A number is beyond a double only if it has very many digits or a great exponent. Both are looked for in the whole text
at once, without a step per number: hundreds of thousands fit into a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf

from intercom.limits import GREAT_NUMBERS
from intercom.wire.jsontext import has_many_quotes, outside, unescaped

OUT_OF_RANGE = "a number is out of range"
"""Says so of a text that holds one."""
TOO_MANY = (
    f"more than {GREAT_NUMBERS} numbers are close to what a double holds,"
    " or have a hundred digits, or four in their exponent"
)
"""Says so of a text that holds so many."""
_DIGITS = b"0123456789"
_NO_NUMBER = bytes(set(range(256)) - set(_DIGITS + b"eE.-"))
_NUMBERS_ALONE = bytes.maketrans(_NO_NUMBER, b" " * len(_NO_NUMBER))
_NUMBERS = _NUMBERS_ALONE.translate(bytes.maketrans(_DIGITS + b"E-", b"0" * 10 + b"e."))
"""Leaves what is alike in all numbers."""
_CLASSES = _NUMBERS_ALONE.translate(bytes.maketrans(_DIGITS + b"E-", b"0022222222e."))
"""Tells also exponents that begin with 2 or more."""
_ALIKE = bytes.maketrans(b"2", b"0")
_HUNDREDS = b"0e000"
_THOUSANDS = b"0e0000"
"""How exponents of so many digits look, whatever they are."""
_BEGIN = b"e2"
_GREAT = b"0g000"
"""How an exponent begins that begins with 2 or more, and how one looks that has three digits as well."""
_MANY_DIGITS = (b" " + b"0" * 100, b"." + b"0" * 100)
"""How a number begins that is beyond a double with an exponent below 200, with a sign or without."""


def flaw_of_numbers(text: bytes) -> str | None:
    """Name what is wrong with the numbers in a text that is JSON; None when nothing is."""
    return _flaw_of(text, _beyond_or_too_many)


def has_too_many(text: bytes) -> bool:
    """Tell whether a text, which need not be JSON, holds so many great numbers that none of them should be read."""
    return _flaw_of(text, _too_many) is not None


def _flaw_of(text: bytes, look: Callable[[bytes], str | None]) -> str | None:
    if b"+" in text:
        text = text.translate(None, b"+")  # no value depends on it
    text = b" " + text  # no number is at its very beginning
    if has_many_quotes(text) and look(text) is None:
        return None  # neither within strings
    return look(outside(unescaped(text)))


def _too_many(text: bytes) -> str | None:
    shape, marks = _great_ones(text)
    return TOO_MANY if _are_too_many(shape, marks) else None


def _beyond_or_too_many(text: bytes) -> str | None:
    shape, marks = _great_ones(text)
    if _are_too_many(shape, marks):
        return TOO_MANY
    return OUT_OF_RANGE if any(_is_beyond(text, shape, mark) for mark in marks) else None


def _great_ones(text: bytes) -> tuple[bytes, list[bytes]]:
    """Return the shape of a text, as long as it is, and what marks great numbers there; nothing where none is."""
    shape = text.translate(_NUMBERS)
    marks = [digits for digits in _MANY_DIGITS if digits in shape]
    if _HUNDREDS in shape:
        if _THOUSANDS in shape:
            marks.append(_THOUSANDS)
        classes = text.translate(_CLASSES)
        begins = classes.count(_BEGIN)
        if begins and not marks and begins <= GREAT_NUMBERS:
            return classes, [_BEGIN]  # not all are great, but few enough to be looked at
        if begins:
            shape = classes.replace(_BEGIN, b"g0").translate(_ALIKE)
            marks.append(_GREAT)
    return shape, marks


def _are_too_many(shape: bytes, marks: list[bytes]) -> bool:
    return sum(map(shape.count, marks)) > GREAT_NUMBERS


def _is_beyond(text: bytes, shape: bytes, mark: bytes) -> bool:
    """Tell whether a number whose shape has this mark is beyond a double, or is none, as may be in strings."""
    end = 0
    while (at := shape.find(mark, end)) >= 0:
        begin = max(shape.rfind(b" ", end, at + 1) + 1, end)
        end = shape.find(b" ", at + 1)
        if end < 0:
            end = len(text)
        try:
            if isinf(float(text[begin:end])):
                return True
        except ValueError:
            return True
    return False
