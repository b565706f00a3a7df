"""Cut streams of frames at any byte, with prefixes that lie, and compare with what the rule of the wire says."""

from __future__ import annotations

import random
import time

from intercom.limits import HEADER_BYTES
from intercom.wire.framing import FrameReader, FramingError
from tests.fuzz.tally import Tally

STREAMS = 150
LONGEST_S = 1.0
LENGTHS = (0, 1, 2, 3, 4, 5, 63, 64, 65, 1_000, 70_000)
LIMITS = (0, 1, 64, 1_000, 100_000)


def play(number: int) -> Tally:
    """Read streams; every frame must come whole and in order, up to the first that is too long."""
    chance, tally = random.Random(number), Tally()
    for _ in range(STREAMS):
        limit = chance.choice(LIMITS)
        stream = b"".join(_piece(chance) for _ in range(chance.randrange(1, 8)))
        expected, is_refused, rest = _cut(stream, limit)
        begun = time.thread_time()
        reader, found, refused = FrameReader(limit), [], None
        for portion in _portions(stream, chance):
            reader.feed(portion)
            try:
                while refused is None and (payload := reader.next_frame()) is not None:
                    found.append(payload)
                    if chance.random() < 0.1:
                        reader.put_back(payload)
                        assert reader.next_frame() == payload
            except FramingError as error:
                refused = str(error)
        assert found == expected
        assert (refused is not None) == is_refused
        assert reader.buffered == (0 if is_refused else len(rest)), "what is kept is what was not handed out"
        assert reader.mid_frame == (bool(rest) and not is_refused)
        tally.count(time.thread_time() - begun, stream, LONGEST_S)
    return tally


def _piece(chance: random.Random) -> bytes:
    draw = chance.random()
    if draw < 0.1:
        return chance.randbytes(chance.randrange(12))
    length = chance.choice(LENGTHS)
    content = chance.randbytes(length)
    if draw < 0.2:
        length = chance.choice((2**32 - 1, 2**31, length + 1, max(length - 1, 0)))
    return length.to_bytes(HEADER_BYTES, "big") + content


def _portions(stream: bytes, chance: random.Random) -> list[bytes]:
    longest = chance.choice((1, 3, 5, 70, 100_000))
    if longest * 2_000 < len(stream):
        longest = 100_000
    portions, at = [], 0
    while at < len(stream):
        length = chance.randint(1, longest)
        portions.append(stream[at : at + length])
        at += length
    return portions


def _cut(stream: bytes, limit: int) -> tuple[list[bytes], bool, bytes]:
    """Return the frames of a stream, whether the next one is too long, and what is left."""
    frames = []
    while len(stream) >= HEADER_BYTES:
        length = int.from_bytes(stream[:HEADER_BYTES], "big")
        if length > limit:
            return frames, True, b""
        if len(stream) < HEADER_BYTES + length:
            break
        frames.append(stream[HEADER_BYTES : HEADER_BYTES + length])
        stream = stream[HEADER_BYTES + length :]
    return frames, False, stream
