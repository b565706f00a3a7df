from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.limits import FINISH_MS, SEND_BYTES
from intercom.server.link import Link
from intercom.wire.framing import frame
from tests.support.loops import HandLoop

FINISH_S = FINISH_MS / 1000


class Owner:
    """Note what a link tells."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.ends = 0
        self.broken: list[Link] = []
        self.writables = 0
        self.lost: list[object] | None = None

    def arrived(self, link: Link) -> None:
        while (payload := link.reader.next_frame()) is not None:
            self.payloads.append(payload)
        self.ends += link.eof

    def broke(self, link: Link) -> None:
        self.broken.append(link)

    def writable(self, link: Link) -> None:
        self.writables += 1

    def released(self, link: Link, lost: Sequence[object]) -> None:
        assert self.lost is None, "released twice"
        self.lost = list(lost)


class Pair:
    """Join a link to a plain socket."""

    def __init__(self, kind: int = socket.SOCK_STREAM) -> None:
        self.loop = HandLoop()
        self.owner = Owner()
        ours, self.peer = socket.socketpair(socket.AF_UNIX, kind)
        self.peer.settimeout(5)
        self.link = Link(1, ours, cast(Any, self.loop), self.owner, self.owner)

    def received(self) -> bytes:
        """Return all that has arrived at the peer."""
        self.peer.setblocking(False)
        data = b""
        try:
            while part := self.peer.recv(1 << 20):
                data += part
        except BlockingIOError:
            pass
        return data

    def fill(self, token: object = "big") -> bytes:
        """Put a frame that the kernel cannot take at once."""
        data = frame(b"x" * 4_000_000)
        self.link.put(data, 0, token)
        return data

    def close(self) -> None:
        self.peer.close()
        if not self.link.closed:
            self.link.close()
        assert self.loop.readers == {} and self.loop.writers == {} and self.loop.timers == []


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


# --- input


def test_frames_come_however_the_stream_is_split(pair: Pair) -> None:
    """F40."""
    data = frame(b'{"a":1}') + frame(b"") + frame("é".encode())
    for byte in data:
        pair.peer.send(bytes([byte]))
        pair.loop.settle()
    assert pair.owner.payloads == [b'{"a":1}', b"", "é".encode()]


def test_the_end_comes_after_what_was_sent_before_it(pair: Pair) -> None:
    """Protocol 1.6."""
    pair.peer.send(frame(b"1") + frame(b"2"))
    pair.peer.shutdown(socket.SHUT_WR)
    pair.loop.settle()
    assert pair.owner.payloads == [b"1", b"2"]
    assert pair.owner.ends == 1
    assert pair.link.eof and pair.loop.readers == {}


def test_a_paused_link_leaves_its_input_in_the_kernel(pair: Pair) -> None:
    """Design OP-1."""
    pair.link.paused = True
    pair.peer.send(frame(b"1"))
    pair.loop.settle()
    assert pair.owner.payloads == [] and pair.loop.readers == {}
    pair.link.paused = False
    pair.link.resume_reading()
    pair.loop.settle()
    assert pair.owner.payloads == [b"1"]


def test_a_reset_breaks_the_link(pair: Pair) -> None:
    pair.link.put(frame(b"unread"), 0, None)
    pair.link.flush(0)
    pair.peer.close()  # with unread input: the kernel reports a reset
    pair.loop.settle()
    assert pair.owner.broken == [pair.link]
    assert isinstance(pair.link.broken, ConnectionResetError)
    assert pair.link.broken.__traceback__ is None, "its frames hold the link: nobody would ever free it"


# --- output


def test_what_is_released_in_one_turn_leaves_in_one_send() -> None:
    """Design section 6."""
    pair = Pair(socket.SOCK_SEQPACKET)
    frames = [frame(b"%d" % number) for number in range(5)]
    for data in frames:
        pair.link.put(data, 0, None)
    pair.link.flush(0)
    assert pair.peer.recv(1000) == b"".join(frames)
    pair.close()


def test_a_frame_waits_for_its_commit_and_holds_back_what_is_behind_it(pair: Pair) -> None:
    """Design section 3, step 4."""
    one, two, three = frame(b"1"), frame(b"2"), frame(b"3")
    pair.link.put(one, 0, "one")
    pair.link.put(two, 7, "two")
    pair.link.put(three, 0, "three")
    assert pair.link.flush(6) == ["one"]
    assert pair.link.gated
    assert pair.received() == one
    assert pair.link.flush(7) == ["two", "three"]
    assert not pair.link.gated
    assert pair.received() == two + three
    assert pair.link.unsent == 0


def test_a_frame_taken_in_part_is_not_written(pair: Pair) -> None:
    """Design section 3, step 5."""
    first, last = frame(b"first"), frame(b"last")
    pair.link.put(first, 0, "first")
    big = pair.fill()
    pair.link.put(last, 0, "last")
    assert pair.link.flush(0) == ["first"]
    assert pair.link.blocked and pair.owner.writables == 0
    assert 0 < pair.link.unsent < len(big) + len(last)

    taken: list[object] = []
    data = b""
    for _ in range(1_000):
        data += pair.received()
        pair.loop.poll()
        taken += pair.link.flush(0)
        if not pair.link.has_output:
            break
    assert taken == ["big", "last"]
    assert data + pair.received() == first + big + last
    assert pair.loop.writers == {}


def test_the_frames_a_dead_link_loses_are_exactly_those_the_kernel_did_not_take(pair: Pair) -> None:
    """Design section 3, step 5."""
    pair.link.put(frame(b"1"), 0, "taken")
    assert pair.link.flush(0) == ["taken"]
    pair.fill("in part")
    assert list(pair.link.flush(0)) == []
    pair.link.put(frame(b"2"), 0, "behind")
    pair.link.put(frame(b"3"), 9, "gated")
    pair.link.put(frame(b"4"), 0, None)
    pair.peer.close()
    pair.loop.poll()
    assert list(pair.link.flush(0)) == []
    assert pair.link.broken is not None and pair.link.broken.__traceback__ is None
    assert pair.link.close() == ["in part", "behind", "gated"]
    assert pair.link.close() == []


def test_frames_of_a_failed_commit_are_dropped_and_others_stay(pair: Pair) -> None:
    """Design section 3, step 6."""
    for ticket in (3, 4, 5, 0):
        pair.link.put(frame(b"%d" % ticket), ticket, ticket)
    pair.link.drop_from(4)
    assert pair.link.unsent == len(frame(b"3")) + len(frame(b"0"))
    assert pair.link.flush(3) == [3, 0]
    assert pair.received() == frame(b"3") + frame(b"0")


def test_discarded_frames_are_lost_but_for_the_rest_of_one_that_was_begun(pair: Pair) -> None:
    pair.link.put(frame(b"1"), 0, "whole")
    assert list(pair.link.discard()) == ["whole"]
    assert (pair.link.unsent, pair.link.has_output) == (0, False)
    pair.fill("in part")
    pair.link.flush(0)
    pair.link.put(frame(b"2"), 0, "behind")
    pair.link.put(frame(b"3"), 9, None)
    assert list(pair.link.discard()) == ["behind"]
    assert pair.link.has_output and pair.link.unsent > 0


def test_frames_larger_than_one_send_are_not_copied_together(pair: Pair) -> None:
    frames = [frame(bytes([65 + number]) * SEND_BYTES) for number in range(3)]
    for data in frames:
        pair.link.put(data, 0, data[4])
    taken: list[object] = []
    data = b""
    for _ in range(1_000):
        taken += pair.link.flush(0)
        data += pair.received()
        pair.loop.poll()
        if not pair.link.has_output:
            break
    assert taken == [65, 66, 67]
    assert data + pair.received() == b"".join(frames)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 4), st.booleans()), max_size=12),
    st.lists(st.integers(1, 400_000), max_size=40),
)
def test_any_stream_arrives_whole_and_in_order(frames: list[tuple[int, int, bool]], reads: list[int]) -> None:
    pair = Pair()
    pair.peer.setblocking(False)
    expected = b""
    tokens = []
    for number, (size, after, has_token) in enumerate(frames):
        data = frame(bytes([number]) * size)
        expected += data
        pair.link.put(data, after, number if has_token else None)
        if has_token:
            tokens.append(number)
    taken: list[object] = []
    arrived = b""
    committed = 0
    while pair.link.has_output:
        taken += pair.link.flush(committed)
        assert len(arrived) + pair.link.unsent <= len(expected)
        if pair.link.gated:
            assert all(frames[token][1] <= committed for token in taken)  # type: ignore[call-overload]
            committed += 1
        with suppress(BlockingIOError):
            arrived += pair.peer.recv(reads.pop() if reads else 1 << 20)
        pair.loop.poll()
    assert taken == tokens
    assert arrived + pair.received() == expected
    assert pair.link.unsent == 0
    pair.close()


# --- the end


def test_finish_sends_what_is_queued_then_fin_and_closes_with_its_peer(pair: Pair) -> None:
    """Protocol 0, refuse and end."""
    last = frame(b"no")
    pair.link.put(last, 0, "no")
    pair.link.finish()
    assert pair.link.flush(0) == ["no"]
    assert pair.peer.recv(100) == last
    assert pair.peer.recv(100) == b""
    assert pair.owner.lost is None, "closed before its peer"
    pair.peer.close()
    pair.loop.settle()
    assert pair.owner.lost == []
    assert pair.link.closed


def test_finish_after_the_peers_fin_closes_at_once(pair: Pair) -> None:
    """Protocol 1.6."""
    pair.peer.shutdown(socket.SHUT_WR)
    pair.loop.settle()
    pair.link.put(frame(b"bye"), 0, None)
    pair.link.finish()
    pair.link.flush(0)
    assert pair.owner.lost == [] and pair.link.closed
    assert pair.received() == frame(b"bye")


def test_a_finished_link_reads_its_peer_dry_and_looks_at_nothing(pair: Pair) -> None:
    """Protocol 1.3.2; unread input would reach the peer as a reset instead of our FIN."""
    pair.link.paused = True
    pair.peer.send(frame(b"1"))
    pair.link.finish()
    pair.link.flush(0)
    pair.peer.send(frame(b"2") * 1000)
    pair.peer.shutdown(socket.SHUT_WR)
    pair.loop.settle()
    assert pair.owner.payloads == []
    assert pair.owner.lost == []
    assert pair.peer.recv(10) == b""


def test_finish_lets_frames_wait_for_their_commit(pair: Pair) -> None:
    pair.link.put(frame(b"1"), 5, "gated")
    pair.link.finish()
    pair.link.flush(4)
    pair.loop.advance(FINISH_S * 1.5)
    assert not pair.link.closed
    assert pair.link.flush(5) == ["gated"]
    assert pair.peer.recv(100) == frame(b"1")
    assert pair.peer.recv(100) == b""


def test_a_finished_peer_that_takes_nothing_and_stays_is_cut_off(pair: Pair) -> None:
    pair.fill("big")
    pair.link.finish()
    pair.link.flush(0)
    pair.loop.advance(FINISH_S * 0.9)
    assert not pair.link.closed
    pair.loop.advance(FINISH_S * 0.2)
    assert pair.owner.lost == ["big"]


def test_a_finished_peer_that_goes_on_taking_is_served(pair: Pair) -> None:
    big = pair.fill("big")
    pair.link.finish()
    taken = list(pair.link.flush(0))
    data = b""
    while not taken:
        data += pair.peer.recv(100_000)
        pair.loop.poll()
        taken += pair.link.flush(0)
        pair.loop.advance(FINISH_S * 0.9)
        assert not pair.link.closed
    assert taken == ["big"]
    assert data + pair.received() == big


def test_abandon_drops_what_is_queued_and_tells_which(pair: Pair) -> None:
    """Design section 5, Stop."""
    pair.fill("in part")
    pair.link.put(frame(b"2"), 9, "gated")
    pair.link.flush(0)
    assert pair.link.abandon() == ["in part", "gated"]
    pair.link.shut_down()
    assert not pair.link.has_output and not pair.link.accepting
    assert pair.loop.readers == {} and pair.loop.writers == {}
