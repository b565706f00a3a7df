from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

import intercom.server.intake as intake_module
from intercom.core.clock import Instant
from intercom.core.effects import Append, Destroy, Effect, Finish
from intercom.limits import (
    FRAME_BYTES,
    STEPPED_BYTES,
    UNCOMMITTED_BYTES,
    UNCOMMITTED_FRAMES,
    UNREGISTERED_FRAME_BYTES,
)
from intercom.server.intake import Intake
from intercom.server.lifecycle import IdleCheck
from intercom.server.link import Link
from intercom.wire.frames import Register, Unregister
from tests.support.loops import HandLoop
from tests.support.raw import packed
from tests.support.wire import example

NOW = Instant(100, 100_000)
LIST = {"type": "list", "requestId": "1"}
HEALTH = {"type": "health", "requestId": "1"}
SEND = example("send")
REGISTER = example("register")


class Core:
    """Stand for the broker: every ``send`` makes an append."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.violations: list[str] = []
        self.ended: list[int] = []
        self.registered: set[int] = set()
        self.ticket = 0
        self.answers: dict[str, list[Effect]] = {}
        self.is_recalling = False

    def frame_received(self, conn: int, frame: Any, now: Instant) -> list[Effect]:
        self.frames.append(frame)
        if isinstance(frame, Register):
            self.registered.add(conn)
        if isinstance(frame, Unregister):
            self.registered.discard(conn)
        kind = frame.__struct_config__.tag
        if kind == "send":
            self.ticket += 1
            return [Append(self.ticket, ())]
        return self.answers.get(kind, [])

    def protocol_error(self, conn: int, reason: str, now: Instant) -> list[Effect]:
        self.violations.append(reason)
        return [Destroy(conn, reason)]

    def connection_ended(self, conn: int, now: Instant) -> list[Effect]:
        self.ended.append(conn)
        return [Finish(conn)]

    def is_registered(self, conn: int) -> bool:
        return conn in self.registered


class Effects:
    """Stand for the performer."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.charges: list[tuple[int, int]] = []

    def run(self, effects: list[Effect], now: Instant) -> int:
        ticket = 0
        for effect in effects:
            link = self.stage.links.get(getattr(effect, "to", 0))
            if isinstance(effect, Append):
                ticket = effect.ticket
            elif isinstance(effect, Destroy):
                assert link is not None
                link.close()
                self.stage.intake.forget(link)
            elif isinstance(effect, Finish):
                assert link is not None
                link.finish()
                link.flush(0)
                self.stage.intake.forget(link)
        return ticket

    def charge(self, link: Link, ticket: int, frames: int, size: int) -> None:
        link.uncommitted_frames += frames
        link.uncommitted_bytes += size

    def commit(self, link: Link) -> None:
        link.uncommitted_frames = link.uncommitted_bytes = 0
        link.paused = False
        self.stage.intake.resume(link, NOW)

    def resume_soon(self, link: Link) -> None:
        self.stage.loop.call_soon(lambda: None if link.closed else self.stage.intake.resume(link, NOW))

    def broke(self, link: Link) -> None:
        raise AssertionError(link.broken)

    def writable(self, link: Link) -> None:
        raise AssertionError("no output is expected here")

    def released(self, link: Link, lost: object) -> None:
        pass


class Stage:
    """Put an intake between real sockets and a fake core."""

    def __init__(self) -> None:
        self.core, self.loop = Core(), HandLoop()
        self.effects = Effects(self)
        self.idle = IdleCheck(0)
        self.links: dict[int, Link] = {}
        self.peers: dict[int, socket.socket] = {}
        self.intake = Intake(
            cast(Any, self.core),
            cast(Any, self.effects),
            self.idle,
            clock=lambda: NOW,
            frame_bytes=FRAME_BYTES,
        )

    def connect(self) -> tuple[Link, socket.socket]:
        number = len(self.links) + 1
        ours, peer = socket.socketpair()
        peer.settimeout(5)
        link = Link(number, ours, cast(Any, self.loop), self.intake, self.effects)
        self.links[number], self.peers[number] = link, peer
        self.idle.opened(number, 0)
        return link, peer

    def write(self, peer: socket.socket, *frames: Any) -> None:
        """Write frames (or bytes) while the loop turns, as a large write needs it."""
        data = b"".join(frame if isinstance(frame, bytes) else packed(frame) for frame in frames)
        peer.setblocking(False)
        while data:
            try:
                data = data[peer.send(data) :]
            except BlockingIOError:
                assert self.loop.turn(), "nobody reads"
            except BrokenPipeError:
                break
        self.loop.settle()

    @property
    def kinds(self) -> list[str]:
        return [frame.__struct_config__.tag for frame in self.core.frames]


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    for link in stage.links.values():
        link.close()
    for peer in stage.peers.values():
        peer.close()


def test_frames_are_handled_in_order_and_the_end_after_them(stage: Stage) -> None:
    """Protocol 1.3, 1.6."""
    link, peer = stage.connect()
    peer.send(packed(REGISTER) + packed(LIST) + packed(SEND))
    peer.shutdown(socket.SHUT_WR)
    stage.loop.settle()
    assert stage.kinds == ["register", "list", "send"]
    assert stage.core.ended == [1]
    assert link.closed


def test_nothing_behind_a_protocol_error_is_handled(stage: Stage) -> None:
    """Protocol 1.3.3."""
    link, peer = stage.connect()
    stage.write(peer, REGISTER, packed(LIST)[:4] + b"x" * (len(packed(LIST)) - 4), LIST)
    assert stage.kinds == ["register"]
    assert len(stage.core.violations) == 1 and "JSON" in stage.core.violations[0]
    assert link.closed


def test_nothing_behind_a_refusal_is_handled(stage: Stage) -> None:
    """Protocol 1.3.2, 4.23."""
    stage.core.answers["register"] = [Finish(1)]
    _, peer = stage.connect()
    stage.write(peer, REGISTER, LIST, b"\xff\xff\xff\xff")
    assert stage.kinds == ["register"]
    assert stage.core.violations == []


@pytest.mark.parametrize("behind", [b"", packed({"type": "unregister"}), b"\0\0"])
@pytest.mark.parametrize("kind", ["register", "session_reattach"])
def test_who_closed_before_it_was_read_is_not_registered(stage: Stage, kind: str, behind: bytes) -> None:
    """Protocol 1.6: nobody hears the answer, and the client has said that nothing took effect."""
    link, peer = stage.connect()
    reattach = {"type": "session_reattach", "requestId": "1", "sessionId": "s", "ownerToken": "t"}
    peer.send(packed(REGISTER if kind == "register" else reattach) + behind)
    peer.close()
    stage.loop.settle()
    assert stage.kinds == [] and stage.core.ended == [1]
    assert link.closed


def test_what_was_written_behind_a_registration_counts_with_it(stage: Stage) -> None:
    """Protocol 1.6: the frames that came are handled first."""
    _, peer = stage.connect()
    peer.send(packed(REGISTER) + packed(SEND) + packed({"type": "unregister"}))
    peer.close()
    _, other = stage.connect()
    other.send(packed(REGISTER) + packed([])[:4] + b"[]")
    other.close()
    stage.loop.settle()
    assert stage.kinds == ["register", "send", "unregister", "register"] and stage.core.ended == [1]
    assert len(stage.core.violations) == 1


def test_who_only_closed_its_writing_side_is_registered(stage: Stage) -> None:
    """Protocol 1.6: it still reads its answers."""
    _, peer = stage.connect()
    peer.send(packed(REGISTER))
    peer.shutdown(socket.SHUT_WR)
    stage.loop.settle()
    assert stage.kinds == ["register"] and stage.core.ended == [1]


def test_who_sends_waits_until_all_operations_are_read_back(stage: Stage) -> None:
    """Design section 5: everybody else is served from the start on; the order of a connection is kept."""
    stage.core.is_recalling = True
    link, peer = stage.connect()
    stage.write(peer, REGISTER, LIST, SEND, HEALTH)
    peer.shutdown(socket.SHUT_WR)
    _, other = stage.connect()
    stage.write(other, REGISTER, {"type": "presence", "status": "here"})
    assert stage.kinds == ["register", "list", "register", "presence"]
    assert link.paused and stage.core.ended == []
    stage.core.is_recalling = False
    stage.effects.commit(link)
    stage.loop.settle()
    assert stage.kinds[4:] == ["send", "health"]
    assert stage.core.ended == [1]


def test_half_a_frame_at_the_end_is_dropped(stage: Stage) -> None:
    _, peer = stage.connect()
    peer.send(packed(LIST)[:-1])
    peer.shutdown(socket.SHUT_WR)
    stage.loop.settle()
    assert stage.kinds == [] and stage.core.ended == [1]


# --- limits (design OP-1)


def test_the_frame_limit_grows_with_register_and_shrinks_with_unregister(stage: Stage) -> None:
    link, peer = stage.connect()
    assert link.reader.limit_bytes == UNREGISTERED_FRAME_BYTES
    stage.write(peer, REGISTER)
    assert link.reader.limit_bytes == FRAME_BYTES
    stage.write(peer, {"type": "unregister"})
    assert link.reader.limit_bytes == UNREGISTERED_FRAME_BYTES


def test_a_registration_that_had_to_wait_counts_from_when_it_is_done(stage: Stage) -> None:
    """protocol 6.13.6: for its claim; 4.25: until what waits for a session that takes itself back is read."""
    link, peer = stage.connect()
    stage.write(peer, LIST)
    assert link.reader.limit_bytes == UNREGISTERED_FRAME_BYTES
    stage.core.registered.add(link.number)
    stage.write(peer, {**LIST, "x": "y" * (2 * UNREGISTERED_FRAME_BYTES)})
    assert stage.kinds == ["list", "list"] and link.registered and not link.counted_input


def test_a_large_frame_may_follow_register_in_one_write(stage: Stage) -> None:
    _, peer = stage.connect()
    big = {**LIST, "x": "y" * (2 * UNREGISTERED_FRAME_BYTES)}
    stage.write(peer, REGISTER, big)
    assert stage.kinds == ["register", "list"]


def test_others_are_served_while_a_large_frame_is_decoded(stage: Stage) -> None:
    """protocol 1.3.1: the frames behind it wait, and the end of its connection"""
    link, peer = stage.connect()
    _, other_peer = stage.connect()
    stage.write(other_peer, REGISTER)
    stage.write(peer, REGISTER)
    data = packed({**LIST, "x": "y" * STEPPED_BYTES})
    while data:
        try:
            data = data[peer.send(data) :]
        except BlockingIOError:
            stage.loop.poll()
    peer.send(packed(HEALTH))
    peer.shutdown(socket.SHUT_WR)
    while link.stepped is None:
        assert stage.loop.poll()
    other_peer.send(packed({"type": "presence", "status": "here"}))
    assert stage.loop.poll()
    assert stage.kinds == ["register", "register", "presence"] and link.paused
    stage.loop.settle()
    assert stage.kinds[3:] == ["list", "health"]
    assert link.stepped is None and stage.core.ended == [1]


def test_a_large_frame_that_is_wrong_ends_its_connection(stage: Stage) -> None:
    """protocol 1.3"""
    link, peer = stage.connect()
    stage.write(peer, REGISTER, packed({**LIST, "x": "y" * STEPPED_BYTES})[:-1] + b"]", LIST)
    assert stage.kinds == ["register"] and link.closed
    assert stage.core.violations[0].startswith("The payload is not valid JSON: ")


def test_a_frame_that_is_decoded_in_steps_counts_as_buffered(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design OP-1; F35."""
    monkeypatch.setattr(intake_module, "UNREGISTERED_TOTAL_BYTES", STEPPED_BYTES)
    link, peer = stage.connect()
    stage.write(peer, {**REGISTER, "x": "y" * STEPPED_BYTES})
    assert link.closed and stage.kinds == []


@pytest.mark.parametrize("excess", [1, 2**31 - UNREGISTERED_FRAME_BYTES, 2**32 - 1 - UNREGISTERED_FRAME_BYTES])
def test_an_announced_length_above_the_limit_ends_the_connection_at_once(stage: Stage, excess: int) -> None:
    """F35, F42."""
    link, peer = stage.connect()
    stage.write(peer, (UNREGISTERED_FRAME_BYTES + excess).to_bytes(4, "big"))
    assert link.closed
    assert str(UNREGISTERED_FRAME_BYTES) in stage.core.violations[0]


def test_all_unregistered_connections_together_buffer_only_so_much(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design OP-1; F35."""
    monkeypatch.setattr(intake_module, "UNREGISTERED_TOTAL_BYTES", 250_000)
    part = (200_000).to_bytes(4, "big") + b" " * 100_000
    first, first_peer = stage.connect()
    second, second_peer = stage.connect()
    third, third_peer = stage.connect()
    stage.write(first_peer, part)
    stage.write(second_peer, part)
    stage.write(third_peer, part)
    assert (first.closed, second.closed, third.closed) == (False, False, True)
    first_peer.close()
    stage.loop.settle()
    fourth, fourth_peer = stage.connect()
    stage.write(fourth_peer, part)
    assert not fourth.closed and not second.closed


def test_a_registered_connection_does_not_count_against_the_unregistered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "UNREGISTERED_TOTAL_BYTES", 50_000)
    first, first_peer = stage.connect()
    stage.write(first_peer, packed(REGISTER)[:-1])
    stage.write(first_peer, packed(REGISTER)[-1:], (200_000).to_bytes(4, "big") + b" " * 100_000)
    assert first.registered and not first.closed
    second, second_peer = stage.connect()
    stage.write(second_peer, (45_000).to_bytes(4, "big") + b" " * 40_000)
    assert not second.closed


# --- back-pressure (design OP-1)


def test_reading_stops_at_so_many_uncommitted_frames_and_goes_on_with_what_is_buffered(stage: Stage) -> None:
    link, peer = stage.connect()
    stage.write(peer, REGISTER, *[SEND] * (UNCOMMITTED_FRAMES + 10), LIST)
    assert stage.kinds == ["register"] + ["send"] * UNCOMMITTED_FRAMES
    assert link.paused
    stage.effects.commit(link)
    assert stage.kinds[UNCOMMITTED_FRAMES + 1 :] == ["send"] * 10 + ["list"]
    assert not link.paused


def test_a_paused_link_reads_again_after_the_commit(stage: Stage) -> None:
    link, peer = stage.connect()
    stage.write(peer, REGISTER, *[SEND] * UNCOMMITTED_FRAMES, LIST)
    peer.send(packed(LIST))
    stage.loop.settle()
    assert stage.kinds[-1] == "send" and stage.loop.readers == {}
    stage.effects.commit(link)
    stage.loop.settle()
    assert stage.kinds[-2:] == ["list", "list"]


def test_the_end_of_a_paused_peer_waits_for_its_frames(stage: Stage) -> None:
    link, peer = stage.connect()
    peer.send(packed(REGISTER) + packed(SEND) * UNCOMMITTED_FRAMES + packed(LIST))
    peer.shutdown(socket.SHUT_WR)
    stage.loop.settle()
    assert link.paused and stage.core.ended == []
    stage.effects.commit(link)
    stage.loop.settle()
    assert stage.kinds[-1] == "list" and stage.core.ended == [1]


def test_bytes_count_too_and_one_frame_is_always_admitted(stage: Stage) -> None:
    link, peer = stage.connect()
    size = FRAME_BYTES - 1_000
    big = {**SEND, "x": "y" * size}
    assert size < UNCOMMITTED_BYTES < 2 * size
    stage.write(peer, REGISTER, big, big, LIST)
    assert stage.kinds == ["register", "send", "send"], "the second is admitted, the limit was not reached"
    assert link.paused
    stage.effects.commit(link)
    assert stage.kinds[-1] == "list"


def test_frames_that_append_nothing_never_stop_a_link(stage: Stage) -> None:
    link, peer = stage.connect()
    stage.write(peer, REGISTER, *[LIST] * (3 * UNCOMMITTED_FRAMES))
    assert stage.kinds.count("list") == 3 * UNCOMMITTED_FRAMES
    assert not link.paused


# --- classification (protocol 3.5)


def test_the_first_frame_classifies_and_only_health_is_no_activity(stage: Stage) -> None:
    stage.idle.arm(0)
    first_check = stage.idle.next_check
    _, peer = stage.connect()
    stage.write(peer, HEALTH, LIST)
    assert stage.idle.next_check == first_check
    _, peer = stage.connect()
    stage.write(peer, LIST)
    assert stage.idle.next_check == NOW.mono + (first_check or 0)


def test_register_cancels_the_idle_check_and_unregister_arms_it(stage: Stage) -> None:
    """Protocol 3.6."""
    _, peer = stage.connect()
    stage.write(peer, REGISTER)
    assert stage.idle.next_check is None
    stage.write(peer, {"type": "unregister"})
    assert stage.idle.next_check is not None


def test_after_stop_nothing_is_looked_at(stage: Stage) -> None:
    """Design section 5, Stop."""
    _, peer = stage.connect()
    stage.write(peer, REGISTER)
    stage.intake.stop()
    stage.write(peer, LIST)
    assert stage.kinds == ["register"]
