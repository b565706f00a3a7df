"""Find numbers that are beyond a double in a JSON text: not every recipient could read them (protocol 1.3).

A number is beyond a double only if it has very many digits or a great exponent. Both are looked for in the whole text
at once, without a step per number: hundreds of thousands fit into a frame.
"""

from __future__ import annotations

from math import isinf

from intercom.limits import NUMBER_DIGITS
from intercom.wire.jsontext import outside, unescaped

OUT_OF_RANGE = "a number is out of range"
"""Says so of a text that holds one."""
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
_FEW_NUMBERS = 4_096
"""So many are looked at one by one; of more the whole text is read."""


def holds_beyond_double(text: bytes) -> bool:
    """Tell whether a text that is JSON holds a number that is beyond a double."""
    shape = text.translate(_NUMBERS)
    if _MANY_DIGITS in shape:
        marks: tuple[bytes, ...] = (*_GREAT_EXPONENTS, _MANY_DIGITS)
    elif any(each in shape for each in _HUNDREDS):
        marks = _GREAT_EXPONENTS
    else:
        return False
    shape = _marked(text, b"e2" if _SOME_DIGITS in shape else b"e28")
    return any(_is_beyond(text, shape, mark) for mark in marks)


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
    if shape.count(mark) > _FEW_NUMBERS:
        return any(map(isinf, map(float, _numerals(text))))
    end, is_outside = 0, True
    while (at := shape.find(mark, end)) >= 0:
        begin = max(shape.rfind(b" ", end, at) + 1, end)
        is_outside ^= _quotes(text[end:begin]) % 2 == 1
        end = shape.find(b" ", at)
        if end < 0:
            end = len(text)
        if is_outside and isinf(float(text[begin:end])):
            return True
    return False


def _quotes(text: bytes) -> int:
    return unescaped(text).count(b'"')


def _numerals(text: bytes) -> list[bytes]:
    """Return all numbers in a JSON text as they are written."""
    words = outside(unescaped(text)).replace(b"true", b"").replace(b"false", b"")
    return words.translate(_NUMBERS_ALONE).split()
