"""Cut frames out of streams split at every place (protocol 1.2, 1.3; F35, F40, F42)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.limits import FRAME_BYTES, UNREGISTERED_FRAME_BYTES
from intercom.wire.framing import FrameReader, FramingError, ProtocolError, frame


def drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (payload := reader.next_frame()) is not None:
        frames.append(payload)
    return frames


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]


PAYLOADS = st.lists(st.binary(max_size=40), max_size=8)
CUTS = st.lists(st.integers(min_value=0, max_value=1_000), max_size=12)


def test_a_frame_is_a_big_endian_length_and_its_payload() -> None:
    """protocol 1.2"""
    assert frame(b'{"type":"list"}') == b'\x00\x00\x00\x0f{"type":"list"}'
    assert frame(b"") == b"\x00\x00\x00\x00"
    assert frame(b"x" * 0x010203)[:4] == b"\x00\x01\x02\x03"


@given(payloads=PAYLOADS, cuts=CUTS)
@settings(database=None, deadline=None)
def test_frames_come_out_in_order_however_the_stream_is_split(payloads: list[bytes], cuts: list[int]) -> None:
    """protocol 1.2, F40"""
    stream = b"".join(map(frame, payloads))
    reader = FrameReader(64)
    out = []
    for piece in pieces_of(stream, cuts):
        reader.feed(piece)
        out += drain(reader)
    assert out == payloads
    assert reader.buffered == 0
    assert not reader.mid_frame


@given(payloads=PAYLOADS, cuts=CUTS, calls=st.lists(st.integers(min_value=0, max_value=3), max_size=12))
@settings(database=None, deadline=None)
def test_frames_may_be_taken_later_than_they_come(payloads: list[bytes], cuts: list[int], calls: list[int]) -> None:
    """design 3.1: the reader is lazy, and counts what it still holds"""
    stream = b"".join(map(frame, payloads))
    reader = FrameReader(64)
    out: list[bytes] = []
    fed = 0
    for index, piece in enumerate(pieces_of(stream, cuts)):
        reader.feed(piece)
        fed += len(piece)
        for _ in range(calls[index] if index < len(calls) else 0):
            payload = reader.next_frame()
            if payload is not None:
                out.append(payload)
        assert reader.buffered == fed - sum(len(frame(payload)) for payload in out)
        ends = {len(b"".join(map(frame, payloads[:count]))) for count in range(len(payloads) + 1)}
        assert reader.mid_frame == (fed not in ends)
    assert out + drain(reader) == payloads


def test_a_character_split_across_reads_stays_whole() -> None:
    """F40"""
    payload = '{"text":"ä€😀"}'.encode()
    reader = FrameReader(64)
    for byte in frame(payload)[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next_frame() is None
    reader.feed(payload[-1:])
    assert reader.next_frame() == payload


def test_a_long_frame_in_many_portions_is_not_lost_behind_a_short_one() -> None:
    first, second, third = b"a", bytes(range(256)) * 4096, b"c"
    stream = frame(first) + frame(second) + frame(third)
    reader = FrameReader(FRAME_BYTES)
    out = []
    for start in range(0, len(stream), 4096):
        reader.feed(stream[start : start + 4096])
        out += drain(reader)
    assert out == [first, second, third]


@pytest.mark.parametrize("length", [0, 1, 64])
def test_lengths_up_to_the_limit_pass(length: int) -> None:
    """F35"""
    reader = FrameReader(64)
    reader.feed(frame(b"x" * length))
    assert reader.next_frame() == b"x" * length


@pytest.mark.parametrize("length", [65, 2**31, 2**32 - 1])
@pytest.mark.parametrize("portion", [1, 3, 4])
def test_a_length_above_the_limit_is_refused_by_its_prefix_alone(length: int, portion: int) -> None:
    """F35: before any byte of the payload came"""
    prefix = length.to_bytes(4, "big")
    reader = FrameReader(64)
    for start in range(0, 4, portion):
        assert reader.next_frame() is None
        reader.feed(prefix[start : start + portion])
    with pytest.raises(FramingError, match=f"{length} bytes is announced and at most 64"):
        reader.next_frame()


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", r"47 45 54 20, as text 'GET '"),
        (b"\x16\x03\x01\x02\x00\x01", r"16 03 01 02, as text '\x16\x03\x01\x02'"),
        (b'{"type":"list"}\n', r"""7b 22 74 79, as text '{"ty'"""),
        (b"\xff\xfe\xfd\xfc", r"ff fe fd fc, as text '\xff\xfe\xfd\xfc'"),
    ],
)
def test_the_error_shows_the_prefix_in_hex_and_as_text(start: bytes, shown: str) -> None:
    """F42"""
    reader = FrameReader(FRAME_BYTES)
    reader.feed(start)
    with pytest.raises(ProtocolError) as caught:
        reader.next_frame()
    assert str(caught.value).endswith(shown)


def test_a_frame_before_a_bad_prefix_is_handed_out_and_nothing_after_it() -> None:
    """F42: no attempt to find the stream again"""
    reader = FrameReader(64)
    reader.feed(frame(b"good") + b"GET /" + frame(b"lost"))
    assert reader.next_frame() == b"good"
    errors = []
    for _ in range(2):
        with pytest.raises(FramingError) as caught:
            reader.next_frame()
        errors.append(str(caught.value))
        reader.feed(frame(b"later"))
    assert errors[0] == errors[1]
    assert reader.buffered == 0
    assert not reader.mid_frame


def test_a_frame_that_was_put_back_comes_first_again() -> None:
    reader = FrameReader(100)
    reader.feed(frame(b"one") + frame(b"two") + frame(b"three")[:5])
    assert reader.next_frame() == b"one"
    buffered = reader.buffered
    reader.put_back(b"one")
    assert reader.buffered == buffered + len(frame(b"one"))
    reader.feed(frame(b"three")[5:] + frame(b"four"))
    assert [reader.next_frame() for _ in range(5)] == [b"one", b"two", b"three", b"four", None]


def test_the_limit_may_grow_between_two_frames() -> None:
    """design OP-1: 1 MiB before ``register``, 4 MiB after"""
    reader = FrameReader(UNREGISTERED_FRAME_BYTES)
    large = b"x" * (UNREGISTERED_FRAME_BYTES + 1)
    reader.feed(frame(b"register") + frame(large))
    assert reader.next_frame() == b"register"
    reader.limit_bytes = FRAME_BYTES
    assert reader.next_frame() == large


def test_an_unfinished_frame_is_told_from_a_pause_between_two() -> None:
    reader = FrameReader(64)
    assert not reader.mid_frame
    reader.feed(frame(b"one") + b"\x00")
    assert reader.mid_frame
    assert reader.next_frame() == b"one"
    assert reader.mid_frame
    assert reader.next_frame() is None
    assert reader.buffered == 1
    reader.feed(b"\x00\x00\x00")
    assert not reader.mid_frame
    assert reader.next_frame() == b""
    assert reader.next_frame() is None
    assert reader.buffered == 0
