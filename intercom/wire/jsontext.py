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

_SAMPLE_STRIDE = 500
_SAMPLED_RUN = re.compile(rb"[0-9]{%d}" % (NUMBER_DIGITS // _SAMPLE_STRIDE))
"""What any run of more than NUMBER_DIGITS digits looks like to a reader of every 500th byte."""
_LONG_RUN = re.compile(rb"(?<![0-9])[0-9]{%d}" % (NUMBER_DIGITS + 1))
_BRACKETS = b"[{]}"
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_SURROGATE = re.compile("[\ud800-\udfff]")


def as_utf8(payload: bytes) -> bytes:
    """Return ``payload`` with U+FFFD for every byte that is not UTF-8 (protocol 1.3.4)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return payload.decode(errors="replace").encode()
    return payload


def flaw_of(payload: bytes) -> str | None:
    """Name what is beyond NESTING or NUMBER_DIGITS in a JSON text; of other texts nothing is said.

    The exact look costs more than decoding, so it is taken only where the number of brackets, or the digits in a
    sample, allow for a flaw. Deleting a byte is the fastest way there is to count it where it is rare.
    """
    openings = 2 * len(payload) - len(payload.replace(b"[", b"")) - len(payload.replace(b"{", b""))
    deep = openings > NESTING
    long = len(payload) > NUMBER_DIGITS and _SAMPLED_RUN.search(payload[::_SAMPLE_STRIDE])
    if not deep and not long:
        return None
    # Without its escapes a JSON text changes at every quote between inside and outside of a string.
    outside = b'"'.join(payload.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    if long and _LONG_RUN.search(outside):
        return f"a number has more than {NUMBER_DIGITS} digits"
    if deep:
        steps = memoryview(outside.translate(_STEPS, _NO_BRACKETS)).cast("b")
        if max(accumulate(steps), default=0) > NESTING:
            return f"it is nested deeper than {NESTING} levels"
    return None


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
    return _SURROGATE.sub("\ufffd", text).encode()


def without_surrogates(value: Any) -> Any:
    """Copy a struct, or a value made of Python's containers, with U+FFFD for every lone surrogate."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
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
