"""Say what JSON a frame may be, beyond what msgspec looks at (protocol 1.3).

msgspec checks the grammar of all it reads. It does not look at the encoding, the depth and the size of numbers of
what it skips or hands on as bytes, and it refuses lone surrogates, which Node clients write when they cut an emoji
in half. The functions here look at the former cheaply and read the latter with the standard parser.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from math import isinf
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from intercom.limits import NESTING, NUMBER_DIGITS

HARMLESS_BYTES = 2 * NESTING
"""A payload of this length has nothing in it for ``flaw_of``: every level takes two bytes."""

# Patterns are compiled when they are used first, which hardly a process does.

_SAMPLE_STRIDE = 499
"""Odd, or a list of digits would have digits alone in its sample."""
_SAMPLED_RUN = rb"[0-9]{%d}" % (NUMBER_DIGITS // _SAMPLE_STRIDE)
"""What any run of more than NUMBER_DIGITS digits looks like to a reader of every 499th byte."""
_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_LONG_RUN = b"0" * (NUMBER_DIGITS + 1)
_LARGE_BYTES = 64 * 1024
_BRACKETS = b"[{]}"
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\x01\xff\xff")
_NO_SHAPE = bytes(byte for byte in range(256) if byte not in _BRACKETS + b'"')
_BLOCK = NESTING
"""Brackets that are counted at once; to look at each of them takes many times as long."""
_NUMERALS = bytes.maketrans(b"123456789E", b"000000000e")
_NO_NUMERAL = bytes.maketrans(bytes(set(range(256)) - set(b"0123456789eE+")), b" " * (256 - 13))
_NUMBERS = _NO_NUMERAL.translate(_NUMERALS)
_HUNDREDS = (b"0e000", b"0e+000")
"""How an exponent of three digits looks, whatever it is."""
_GREAT_EXPONENT = rb"[0-9][eE]\+?0*(?:[1-9][0-9]{3}|[2-9][0-9]{2})"
_FEW_DIGITS = b"0" * 100
"""What a number has at least that is beyond a double without a great exponent."""
_ESCAPES = rb"\\(?:\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2}))"
"""Escaped backslashes and whole pairs, which stay, or, as its group, a surrogate that is alone."""
_UNKNOWN = rb"\ufffd"
_SURROGATE = "[\ud800-\udfff]"


def as_utf8(payload: bytes) -> bytes:
    """Return ``payload`` with U+FFFD for every byte that is not UTF-8 (protocol 1.3.4)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return payload.decode(errors="replace").encode()
    return payload


def flaw_of(payload: bytes, levels: int = NESTING) -> str | None:
    """Name what is beyond so many levels or NUMBER_DIGITS in a JSON text; of other texts nothing is said.

    The exact look costs more than decoding, so it is taken only where the number of brackets, or the digits in a
    sample, allow for a flaw. Deleting a byte is the fastest way there is to count it where it is rare; where it is not
    it takes milliseconds in a large payload.
    """
    if len(payload) < _LARGE_BYTES:
        openings = 2 * len(payload) - len(payload.replace(b"[", b"")) - len(payload.replace(b"{", b""))
    else:
        openings = len(payload) - len(payload.translate(None, b"[{"))
    if (
        len(payload) > NUMBER_DIGITS
        and re.search(_SAMPLED_RUN, payload[::_SAMPLE_STRIDE])
        and _LONG_RUN in payload.translate(_DIGITS)
        and _LONG_RUN in _outside(_unescaped(payload)).translate(_DIGITS)
    ):
        return f"a number has more than {NUMBER_DIGITS} digits"
    if openings > levels and _is_deep(payload, levels):
        return f"it is nested deeper than {levels} levels"
    return None


def _unescaped(payload: bytes) -> bytes:
    return payload.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in payload else payload


def _outside(payload: bytes) -> bytes:
    """Return what is outside of strings: without its escapes a JSON text changes sides at every quote."""
    return b'"'.join(payload.split(b'"')[::2])


def _is_deep(payload: bytes, levels: int) -> bool:
    shape = _unescaped(payload).translate(None, _NO_SHAPE).replace(b'""', b"")
    if b'"' in shape:  # there are strings with brackets in them
        shape = _outside(shape).replace(b'"', b"")
    steps = shape.translate(_STEPS)
    level = 0
    for begin in range(0, len(steps), _BLOCK):
        block = steps[begin : begin + _BLOCK]
        ups = block.count(1)
        if level + ups > levels and max(accumulate(memoryview(block).cast("b"), initial=level)) > levels:
            return True
        level += 2 * ups - len(block)
    return False


def may_hold_beyond_double(text: bytes) -> bool:
    """Tell whether a JSON text may hold a number that is beyond a double; far cheaper than to read it."""
    numbers = text.translate(_NUMBERS)
    if any(exponent in numbers for exponent in _HUNDREDS) and re.search(_GREAT_EXPONENT, text):
        return True
    return _FEW_DIGITS in numbers


def with_whole_characters(payload: bytes) -> bytes:
    """Return a JSON text with U+FFFD for every escape of half a character: Node clients cut emoji in half."""
    if b"\\ud" not in payload and b"\\uD" not in payload:
        return payload
    return re.sub(_ESCAPES, lambda found: _UNKNOWN if found[1] else found[0], payload)


def read(payload: bytes) -> Any:
    """Read JSON strictly, of duplicate keys the last; lone surrogates stay in.

    Raises:
        ValueError: it is not JSON, or a number is beyond a double.
        RecursionError: the caller's stack has no room for its depth.
    """
    return _PARSER.decode(payload.decode())


def written(value: Any) -> bytes:
    """Write what ``read`` returned, with U+FFFD for every lone surrogate; ``read`` has joined the pairs."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub(_SURROGATE, "\ufffd", text).encode()


def without_surrogates(value: Any) -> Any:
    """Copy a struct, or a value made of Python's containers, with U+FFFD for every lone surrogate."""
    if isinstance(value, str):
        return re.sub(_SURROGATE, "\ufffd", value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(member) for member in value]
    if isinstance(value, Struct):
        return replace(value, **{name: without_surrogates(getattr(value, name)) for name in value.__struct_fields__})
    return value


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no number")


def _real(literal: str) -> float:
    value = float(literal)
    if isinf(value):
        raise ValueError("a number is out of range")
    return value


def _integer(literal: str) -> int:
    _real(literal)
    return int(literal)


_PARSER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_real, parse_int=_integer)
