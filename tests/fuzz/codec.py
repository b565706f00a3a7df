"""Decode JSON that no client writes, in both directions; what comes out is a frame, or a sentence about the rule."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from msgspec import Raw

from intercom.limits import HEADER_BYTES
from intercom.wire.codec import (
    BadRequest,
    Malformed,
    ProtocolError,
    decode_answer,
    decode_request,
    encode,
    parse_message,
    request_in_steps,
)
from intercom.wire.jsontext import HARMLESS_BYTES
from tests.fuzz.chance import odd_value
from tests.fuzz.mutations import encoded, mutated, spoilt_bytes
from tests.fuzz.shapes import Known, makers
from tests.fuzz.tally import Tally
from tests.support.wire import ANSWERS

FRAMES = 400
LONGEST_S = 1.0
MAKERS = makers()
KINDS = list(MAKERS)


def play(number: int) -> Tally:
    """Decode frames, whole ones and spoilt ones."""
    chance, known, tally = random.Random(number), Known(), Tally()
    for _ in range(FRAMES):
        is_answer = chance.random() < 0.3
        if chance.random() < 0.05:
            frame: Any = odd_value(chance)
        elif is_answer:
            frame = json.loads(json.dumps(chance.choice(ANSWERS)))
        else:
            frame = MAKERS[chance.choice(KINDS)](chance, known)
        if isinstance(frame, dict) and chance.random() < 0.6:
            frame = mutated(frame, chance, known)
        payload = encoded(frame)
        if chance.random() < 0.5:
            payload = spoilt_bytes(payload, chance)
        begun = time.thread_time()
        _decode(payload, is_answer)
        tally.count(time.thread_time() - begun, payload, LONGEST_S)
    return tally


def _in_steps(payload: bytes) -> Any:
    """Return what a large request would be taken for, or the sentence that refuses it."""
    try:
        *_, frame = request_in_steps(payload)
    except ProtocolError as error:
        return str(error)
    return frame


def _decode(payload: bytes, is_answer: bool) -> None:
    try:
        frame: Any = decode_answer(payload) if is_answer else decode_request(payload)
    except ProtocolError as error:
        text = str(error)
        assert text and text.isprintable() and len(text) < 1_000, f"{text!r} is not a sentence to show"
        assert is_answer or len(payload) <= HARMLESS_BYTES or _in_steps(payload) == text
        return
    assert is_answer or _in_steps(payload) == frame
    assert _is_json(payload), f"{payload!r} is not JSON and was decoded as {frame!r:.300}"
    if isinstance(frame, (Malformed, BadRequest)):
        return
    for name in frame.__struct_fields__:
        value = getattr(frame, name)
        if isinstance(value, Raw):
            json.loads(bytes(value).decode())  # every recipient can read what is handed on
            if name == "message":
                parse_message(value)
    json.loads(encode(frame)[HEADER_BYTES:].decode())


def _is_json(payload: bytes) -> bool:
    """Tell what the standard parser makes of it; invalid UTF-8 was replaced before it was looked at."""
    try:
        json.loads(payload.decode(errors="replace"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(name)
