"""Find numbers that are beyond a double in a JSON text: not every recipient could read them (protocol 1.3).

A number is beyond a double only if it has very many digits or a great exponent. Both are looked for in the whole text
at once, without a step per number: hundreds of thousands fit into a frame.
"""

from __future__ import annotations

from math import isinf

from intercom.limits import GREAT_NUMBERS, NUMBER_DIGITS
from intercom.wire.jsontext import outside, unescaped

OUT_OF_RANGE = "a number is out of range"
"""Says so of a text that holds one."""
TOO_MANY = f"more than {GREAT_NUMBERS} numbers are close to what a double holds, or have a hundred digits"
"""Says so of a text that holds so many."""
_DIGITS = b"0123456789"
_SIGNS = b".-"
_CLASSES = bytes.maketrans(_DIGITS + b"eE+" + _SIGNS, b"0123333388ee+..")
_NO_NUMBER = bytes(set(range(256)) - set(_DIGITS + b"eE+" + _SIGNS))
_NUMBERS_ALONE = bytes.maketrans(_NO_NUMBER, b" " * len(_NO_NUMBER))
_SHAPES = _NUMBERS_ALONE.translate(_CLASSES)
"""Leaves of digits what tells great exponents, and the same of both letters for one."""
_ALIKE = bytes.maketrans(b"1238", b"0000")
_NUMBERS = _SHAPES.translate(_ALIKE)
_HUNDREDS = (b"0e000", b"0e+000")
"""How an exponent of three digits looks, whatever it is."""
_ZEROS = tuple(b"0" * 2**power for power in range(NUMBER_DIGITS.bit_length() - 1, -1, -1))
"""Moved once each, they move as many zeros as any number has."""
_GREAT_EXPONENTS = (b"0e0000", b"0g000")
"""How an exponent looks that is from 1000 on, or below and marked: from 280 on, from 200 on where many digits are."""
_SOME_DIGITS = b"0" * 28
_MANY_DIGITS = b"0" * 100
"""What a number has at least that is beyond a double with an exponent below 280, or below 200."""


def flaw_of_numbers(text: bytes) -> str | None:
    """Name what is wrong with the numbers in a text that is JSON; None when nothing is."""
    looked = _great_ones(text)
    if looked is None:
        return None
    text, shape, marks = looked
    if _are_too_many(shape, marks):
        return TOO_MANY
    return OUT_OF_RANGE if any(_is_beyond(text, shape, mark) for mark in marks) else None


def has_too_many(text: bytes) -> bool:
    """Tell whether a text, which need not be JSON, holds so many great numbers that none of them should be read."""
    looked = _great_ones(text)
    return looked is not None and _are_too_many(*looked[1:])


def _great_ones(text: bytes) -> tuple[bytes, bytes, tuple[bytes, ...]] | None:
    """Return what of a text is outside of strings, its shape, and what marks great numbers there; None: none is."""
    shape = text.translate(_NUMBERS)
    if _MANY_DIGITS in shape:
        marks: tuple[bytes, ...] = (*_GREAT_EXPONENTS, _MANY_DIGITS)
    elif any(each in shape for each in _HUNDREDS):
        marks = _GREAT_EXPONENTS
    else:
        return None
    least = b"e2" if _SOME_DIGITS in shape else b"e28"
    text = outside(unescaped(text))
    return text, _marked(text, least), marks


def _are_too_many(shape: bytes, marks: tuple[bytes, ...]) -> bool:
    return sum(map(shape.count, marks)) > GREAT_NUMBERS


def _marked(text: bytes, least: bytes) -> bytes:
    """Return the shape of a text, as long as it is, with a mark at exponents of three digits from ``least`` on."""
    shape = text.translate(_SHAPES)
    if b"e+" in shape:
        shape = shape.replace(b"e+", b"0e")
    if b"e0" in shape:
        for zeros in _ZEROS:
            shape = shape.replace(b"e" + zeros, zeros + b"e")
    for great in (b"e3", b"e8", least):
        if great in shape:
            shape = shape.replace(great, b"g" + b"0" * (len(great) - 1))
    return shape.translate(_ALIKE)


def _is_beyond(text: bytes, shape: bytes, mark: bytes) -> bool:
    """Tell whether a number whose shape has this mark is beyond a double."""
    end = 0
    while (at := shape.find(mark, end)) >= 0:
        begin = max(shape.rfind(b" ", end, at) + 1, end)
        end = shape.find(b" ", at)
        if end < 0:
            end = len(text)
        if isinf(float(text[begin:end])):
            return True
    return False
