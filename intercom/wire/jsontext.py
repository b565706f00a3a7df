"""Say what JSON a frame may be, beyond what msgspec looks at (protocol 1.3).

msgspec checks the grammar of all it reads. It does not look at the encoding, the depth and the size of numbers of
what it skips or hands on as bytes, and it refuses lone surrogates, which Node clients write when they cut an emoji
in half. The functions here look at the former cheaply and read the latter with the standard parser.
"""

from __future__ import annotations

import json
import re
from binascii import unhexlify
from functools import cache
from itertools import accumulate
from math import isinf
from operator import add
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
_STEPS = bytes.maketrans(_BRACKETS, b"1100")
_NO_SHAPE = bytes(byte for byte in range(256) if byte not in _BRACKETS + b'"')
_TWO_BITS = bytes.maketrans(b"\x00\x01\x10\x11", b"0123")
_FOUR_BITS = bytes.maketrans(bytes(16 * (two // 4) + two % 4 for two in range(16)), b"0123456789abcdef")
"""Make one hexadecimal digit of two of one bit each, and of two of two bits each."""
_BLOCK = NESTING
"""Brackets that are counted at once; to look at each of them takes many times as long."""
_BLOCKS = 512
"""Blocks that are looked at closely together."""
_QUOTE_BYTES = 64
"""Bytes for each quote, or fewer, of which it takes long to take the strings out."""
_SURROGATES = (b"\\ud", b"\\uD")
_ESCAPE_BYTES = len(b"\\udddd")
_MARKS = b"\x01\x02\x03\x04\x05"
"""What stands for escaped backslashes, escapes of surrogates, other escapes, quotes and question marks meanwhile."""
_HIDDEN = bytes.maketrans(b'\\"?', _MARKS[2:])
_HIDDEN_QUOTES = bytes.maketrans(b'"?', _MARKS[3:])
_SHOWN = bytes.maketrans(_MARKS, b'\\\\\\"?')
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
        and _LONG_RUN in outside(unescaped(payload)).translate(_DIGITS)
    ):
        return f"a number has more than {NUMBER_DIGITS} digits"
    if openings > levels and _is_deep(payload, levels):
        return f"it is nested deeper than {levels} levels"
    return None


def unescaped(payload: bytes) -> bytes:
    """Return a JSON text without the backslashes and quotes that are escaped in its strings."""
    return payload.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in payload else payload


def outside(payload: bytes) -> bytes:
    """Return what is outside of strings: without its escapes a JSON text changes sides at every quote."""
    return b'"'.join(payload.split(b'"')[::2])


def has_many_quotes(payload: bytes) -> bool:
    """Tell whether it takes longer than anything else to take the strings out of a text."""
    return payload.count(b'"') * _QUOTE_BYTES > len(payload)


def _is_deep(payload: bytes, levels: int) -> bool:
    steps = unescaped(payload).translate(_STEPS, _NO_SHAPE)
    if has_many_quotes(steps):
        steps = steps.replace(b'""', b"")
    if b'"' in steps:  # there are strings with brackets in them
        steps = b"".join(steps.split(b'"')[::2])
    level = begin = 0
    while begin < len(steps):
        end = begin + _BLOCK
        if level + steps.count(b"1", begin, end) > levels:
            end = begin + _BLOCK * _BLOCKS
            if _leads_above(steps[begin:end], levels - level):
                return True
        level += 2 * steps.count(b"1", begin, end) - len(steps[begin:end])
        begin = end
    return False


def _leads_above(steps: bytes, room: int) -> bool:
    """Tell whether the steps, a digit each, lead more than so many levels above where they begin: eight at a time."""
    eights = _packed(steps.ljust(-(-len(steps) // 8) * 8, b"0"))
    ways, peaks = _eight_steps()
    moves = memoryview(eights.translate(ways)).cast("b")
    if max(accumulate(moves, initial=0)) + 4 <= room:  # to go higher between and be back takes more than eight
        return False
    highest: int = max(map(add, accumulate(moves, initial=0), eights.translate(peaks)))
    return highest > room


def _packed(bits: bytes) -> bytes:
    """Return eight bits, a digit each, as one byte, the first as its highest."""
    twos = unhexlify(bits).translate(_TWO_BITS)
    return unhexlify(unhexlify(twos).translate(_FOUR_BITS))


@cache
def _eight_steps() -> tuple[bytes, bytes]:
    """Return how far every eight steps lead, and how high between."""
    ways, peaks = bytearray(), bytearray()
    for eight in range(256):
        levels = list(accumulate((1 if eight >> bit & 1 else -1 for bit in range(7, -1, -1)), initial=0))
        ways.append(levels[-1] % 256)
        peaks.append(max(levels))
    return bytes(ways), bytes(peaks)


def with_whole_characters(payload: bytes) -> bytes:
    """Return a JSON text with U+FFFD for every escape of half a character: Node clients cut emoji in half.

    The standard parser joins the pairs, which are no escapes any more then: to it the whole text is one string, in
    which nothing but surrogates is escaped.
    """
    first = payload.find(_SURROGATES[0])
    other = payload.find(_SURROGATES[1], 0, first if first >= 0 else len(payload))
    first = other if other >= 0 else first
    if first < 0:
        return payload
    begin, end = len(payload[:first].rstrip(b"\\")), payload.rfind(b"\\") + _ESCAPE_BYTES
    text = payload[begin:end]
    if any(mark in text for mark in _MARKS):
        return payload  # it is no JSON
    if _has_surrogates_alone(text):
        text = text.translate(_HIDDEN_QUOTES)
    else:
        text = text.replace(b"\\\\", b"\x01\x01").replace(b"\\ud", b"\x02d").replace(b"\\uD", b"\x02D")
        text = text.translate(_HIDDEN).replace(b"\x02", b"\\u")
    try:
        joined: str = json.loads(f'"{text.decode()}"', strict=False)
    except ValueError:
        return payload
    text = joined.encode(errors="replace")
    if b"?" not in text:
        return payload
    return payload[:begin] + text.replace(b"?", _UNKNOWN).translate(_SHOWN) + payload[end:]


def _has_surrogates_alone(text: bytes) -> bool:
    """Tell whether nothing but surrogates is escaped; they are not counted where too much is."""
    escapes = text.count(b"\\")
    return escapes * _ESCAPE_BYTES <= len(text) and escapes in accumulate(map(text.count, _SURROGATES))


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
