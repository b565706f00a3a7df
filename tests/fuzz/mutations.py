"""Spoil frames: members dropped, retyped, swapped and added, bytes cut, doubled and turned."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec

from tests.fuzz.chance import deep, odd_text, odd_value
from tests.fuzz.shapes import Known

_encode = msgspec.json.Encoder().encode
_PIECES = (
    b"null", b"true", b"{}", b"[]", b'""', b"-", b"1e999", b"-1e999", b"NaN", b"Infinity", b"1" * 400, b"0.1e-999",
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\\",
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"/*x*/", b"\xef\xbb\xbf", b'"type":"send",', b'"requestId":1,',
)  # fmt: skip


def mutated(frame: dict[str, Any], chance: random.Random, known: Known) -> dict[str, Any]:
    """Return the frame with one to three members spoilt, however deep they lie; the frame itself is used up."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        where: Any = frame
        while True:
            inner = [value for value in (where.values() if isinstance(where, dict) else where) if _has_members(value)]
            if not inner or chance.random() < 0.5:
                break
            where = chance.choice(inner)
        _spoil(where, chance, known)
    return frame


def encoded(frame: Any) -> bytes:
    """Write a frame as JSON; what msgspec does not write, such as whole numbers beyond 64 bits, the slower way."""
    try:
        return _encode(frame)
    except (OverflowError, UnicodeEncodeError, RecursionError):
        return json.dumps(frame, separators=(",", ":")).encode()


def spoilt_bytes(payload: bytes, chance: random.Random) -> bytes:
    """Return a JSON text with one to three places spoilt, so that it may be no JSON any more."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        payload = chance.choice(_BYTE_SPOILERS)(payload, chance)
    return payload


def _has_members(value: Any) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def _spoil(where: Any, chance: random.Random, known: Known) -> None:
    place: Any = None
    if isinstance(where, list):
        if not where:
            where.append(odd_value(chance))
            return
        place = chance.randrange(len(where))
    elif where:
        place = chance.choice(list(where))
    draw = chance.randrange(9)
    if place is None or draw == 0:
        if isinstance(where, dict):
            where[odd_text(chance)] = odd_value(chance)
        else:
            where.append(odd_value(chance))
    elif draw < 3:
        del where[place]
    elif draw < 5:
        where[place] = odd_value(chance)
    elif draw == 5:
        values = known.values[chance.choice(list(known.values))]
        where[place] = chance.choice(values) if values else None
    elif draw == 6:
        where[place] = _near(where[place], chance)
    elif draw == 7:
        other = chance.choice(list(where) if isinstance(where, dict) else range(len(where)))
        where[place], where[other] = where[other], where[place]
    else:
        where[place] = [where[place]] if chance.random() < 0.5 else {"a": where[place]}


def _near(value: Any, chance: random.Random) -> Any:
    """Return something of the same kind that is a little different."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return chance.choice((value + 1, value - 1, -value, float(value) if abs(value) < 2**60 else 0.5, str(value)))
    if isinstance(value, str):
        return chance.choice(
            (value + "x", value[:-1], value.upper(), f" {value}", value * 2, f"{value}\n", value + "\0")
        )
    if isinstance(value, list):
        return value * chance.choice((0, 2, 40))
    return deep(chance.randrange(1, 40), True)


def _cut(payload: bytes, chance: random.Random) -> bytes:
    return payload[: chance.randrange(len(payload) + 1)]


def _insert(payload: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(payload) + 1)
    return payload[:at] + chance.choice(_PIECES) + payload[at:]


def _turn(payload: bytes, chance: random.Random) -> bytes:
    if not payload:
        return b"\x01"
    at = chance.randrange(len(payload))
    return payload[:at] + bytes((payload[at] ^ (1 << chance.randrange(8)),)) + payload[at + 1 :]


def _drop(payload: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(payload) + 1)
    return payload[:at] + payload[at + chance.randrange(1, 9) :]


def _replace_value(payload: bytes, chance: random.Random) -> bytes:
    """Put a piece in the place of what stands behind a colon."""
    begin = payload.find(b":", chance.randrange(len(payload) + 1)) + 1
    if not begin:
        return payload
    end = min((at for at in (payload.find(b",", begin), payload.find(b"}", begin)) if at >= 0), default=len(payload))
    return payload[:begin] + chance.choice(_PIECES) + payload[end:]


def _double_member(payload: bytes, chance: random.Random) -> bytes:
    """Say a member twice; the last one counts."""
    end = payload.rfind(b"}")
    begin = payload.find(b'"')
    colon = payload.find(b",", begin)
    if end < 0 or begin < 0 or colon < 0:
        return payload
    return payload[:end] + b"," + payload[begin:colon] + payload[end:]


def _nest(payload: bytes, chance: random.Random) -> bytes:
    levels = chance.choice((3, 64, 100, 2_000, 100_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")))
    return _wrapped(payload, opening * levels, closing * levels)


def _wrapped(payload: bytes, before: bytes, behind: bytes) -> bytes:
    end = payload.rfind(b"}")
    return payload[: max(end, 0)] + b',"deep":' + before + b"1" + behind + b"}" if end > 1 else before + b"1" + behind


_BYTE_SPOILERS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut,
    _insert,
    _insert,
    _turn,
    _turn,
    _drop,
    _replace_value,
    _replace_value,
    _replace_value,
    _double_member,
    _nest,
)
