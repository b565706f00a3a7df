from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

import intercom.server.perform as perform
from intercom.core.clock import Instant
from intercom.core.effects import (
    Append,
    Broadcast,
    Destroy,
    Discard,
    Effect,
    Finish,
    ForgetProcess,
    Note,
    Spawn,
    Stop,
    WatchProcess,
    Write,
)
from intercom.core.records import (
    Change,
    DropOperation,
    Forward,
    PeerFact,
    PeerLost,
    PeerWork,
    Post,
    ReadBodies,
    ReadHistory,
    Reading,
    ReadJournal,
    RemoteTask,
    Settle,
)
from intercom.limits import UNCOMMITTED_FRAMES, UNSENT_BYTES
from intercom.server.link import Link, Stepped
from intercom.server.perform import Performer
from intercom.store.reader import Read
from intercom.store.writer import Committed, Failed
from intercom.wire.codec import encode
from intercom.wire.frames import SessionLeft
from tests.support.loops import HandLoop

NOW = Instant(5, 5_000)
CHANGES: tuple[Change, ...] = (DropOperation(1),)


def note(text: str) -> SessionLeft:
    return SessionLeft(text)


class Core:
    """Stand for the broker: note what it is told, answer what a test prepared."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.answers: dict[tuple[Any, ...], list[Effect]] = {}
        self.muted = False

    def _hear(self, *event: Any) -> list[Effect]:
        self.told.append(event)
        return self.answers.pop(event, [])

    def frames_taken(self, tokens: Sequence[object], now: Instant) -> list[Effect]:
        return [effect for token in tokens for effect in self._hear("taken", token)]

    def frame_lost(self, token: object, now: Instant) -> list[Effect]:
        return self._hear("lost", token)

    def connection_ended(self, conn: int, now: Instant) -> list[Effect]:
        return self._hear("ended", conn)

    def committed(self, ticket: int, now: Instant) -> list[Effect]:
        return self._hear("committed", ticket)

    def commit_failed(self, first: int, reason: str, final: bool, now: Instant) -> list[Effect]:
        return self._hear("failed", first, final)

    def stop(self, now: Instant) -> list[Effect]:
        return self._hear("stop")

    def bodies_read(self, token: object, numbers: Any, bodies: Any, now: Instant) -> list[Effect]:
        return self._hear("bodies", token, numbers, None if bodies is None else tuple(bodies))

    def history_read(self, token: object, events: Any, now: Instant) -> list[Effect]:
        return self._hear("history", token)

    def peer_told(self, fact: PeerFact, now: Instant) -> list[Effect]:
        return self._hear("peer", fact)

    def journal_read(self, token: object, page: Any, now: Instant) -> list[Effect]:
        return self._hear("journal", token, page)


class Disk:
    """Stand for the writer; a test says when something is committed."""

    def __init__(self) -> None:
        self.queued: list[int] = []
        self.kicks: list[list[int]] = []
        self.ready: list[Committed | Failed] = []
        self.at_once = False
        self.resumed = 0

    def submit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        assert changes == CHANGES
        self.queued.append(ticket)

    def kick(self) -> None:
        self.kicks.append(self.queued)
        if self.at_once and self.queued:
            self.ready.append(Committed(self.queued[-1]))
        self.queued = []

    def outcomes(self) -> list[Committed | Failed]:
        ready, self.ready = self.ready, []
        return ready

    def resume(self) -> None:
        self.resumed += 1


class Shelf:
    """Stand for the reader; a test says what was read."""

    def __init__(self) -> None:
        self.asked: list[Reading] = []
        self.ready: list[Read] = []
        self.closed = False

    def submit(self, request: Reading) -> None:
        self.asked.append(request)

    def done(self) -> list[Read]:
        ready, self.ready = self.ready, []
        return ready

    def close(self, timeout_s: float) -> None:
        self.closed = True


class Court:
    """Stand for the watch over processes."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def watch(self, ref: str, pid: int, started: int | None) -> None:
        self.told.append(("watch", ref, pid, started))

    def forget(self, ref: str) -> None:
        self.told.append(("forget", ref))

    def close(self) -> None:
        self.told.append(("close",))


class Nursery:
    """Stand for what starts sessions."""

    kinds = ("reviewer",)

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def spawn(self, ref: str, kind: str, prompt: str, token: str) -> None:
        self.told.append((ref, kind, prompt, token))

    def close(self) -> None:
        self.told.append(("close",))


class Elsewhere:
    """Stand for the directory of other machines; a test says what was heard."""

    def __init__(self) -> None:
        self.asked: list[PeerWork] = []
        self.heard: list[PeerFact] = []
        self.closed = False

    def submit(self, work: PeerWork) -> None:
        self.asked.append(work)

    def done(self) -> list[PeerFact]:
        heard, self.heard = self.heard, []
        return heard

    def close(self, timeout_s: float) -> None:
        self.closed = True


class Lines:
    """Stand for the log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **members: Any) -> None:
        self.lines.append((event, members))


class Stage:
    """Put a performer between a fake core, a fake disk and real sockets."""

    def __init__(self) -> None:
        self.core, self.disk, self.log, self.loop = Core(), Disk(), Lines(), HandLoop()
        self.shelf, self.court, self.nursery = Shelf(), Court(), Nursery()
        self.elsewhere = Elsewhere()
        self.stops: list[str] = []
        self.ended: list[int] = []
        self.resumed: list[int] = []
        self.turns = 0
        self.lingered = 0
        self.arrives: list[Effect] = []
        """What a frame asks for that comes while the performer lingers."""
        self.peers: dict[int, socket.socket] = {}
        self.links: dict[int, Link] = {}
        self.performer = Performer(
            cast(Any, self.core),
            self.disk,
            clock=lambda: NOW,
            schedule=self.loop.call_soon,
            linger=self._linger,
            log=cast(Any, self.log),
            on_stop=self.stops.append,
            on_ended=lambda link, now: self.ended.append(link.number),
            on_resume=lambda link, now: self.resumed.append(link.number),
            after_turn=self._after_turn,
            reader=self.shelf,
            processes=self.court,
            spawner=self.nursery,
            directory=self.elsewhere,
        )

    def _after_turn(self) -> None:
        self.turns += 1

    def _linger(self) -> None:
        self.lingered += 1
        if self.arrives:
            effects, self.arrives = self.arrives, []
            self.run(*effects)

    def arrived(self, link: Link) -> None:
        assert link.eof, "no input is expected here"

    def connect(self, *numbers: int) -> None:
        for number in numbers:
            ours, peer = socket.socketpair()
            peer.setblocking(False)
            self.peers[number] = peer
            self.links[number] = Link(number, ours, cast(Any, self.loop), self, self.performer)
            self.performer.add(self.links[number])

    def run(self, *effects: Effect) -> int:
        return self.performer.run(effects, NOW)

    def commit(self, ticket: int) -> None:
        self.disk.ready.append(Committed(ticket))
        self.performer.commit_ready()
        self.loop.settle()

    def fail(self, first: int, final: bool = False) -> None:
        self.disk.ready.append(Failed(first, "the disk is full", final))
        self.performer.commit_ready()
        self.loop.settle()

    def read(self, number: int) -> list[str]:
        """Return the session ids in the frames that arrived; "END" for FIN."""
        data = b""
        found = []
        try:
            while True:
                part = self.peers[number].recv(1 << 20)
                if not part:
                    found.append("END")
                    break
                data += part
        except BlockingIOError:
            pass
        texts = []
        while data:
            size = int.from_bytes(data[:4], "big")
            texts.append(json.loads(data[4 : 4 + size])["sessionId"])
            data = data[4 + size :]
        return texts + found

    def close(self) -> None:
        for link in self.links.values():
            if not link.closed:
                link.close()
        for peer in self.peers.values():
            peer.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    stage.connect(1, 2, 3)
    yield stage
    stage.close()


def test_frames_leave_in_the_order_of_the_effects_and_once_a_turn(stage: Stage) -> None:
    stage.run(Write(1, note("a")), Write(2, note("b")))
    stage.run(Write(1, note("c")))
    assert stage.read(1) == [], "nothing leaves before the turn"
    stage.loop.settle()
    assert stage.turns == 1
    assert stage.read(1) == ["a", "c"]
    assert stage.read(2) == ["b"]


def test_run_returns_the_last_ticket_of_its_own_effects(stage: Stage) -> None:
    assert stage.run(Append(1, CHANGES), Append(2, CHANGES), Write(1, note("a"))) == 2
    assert stage.run(Write(1, note("a"))) == 0


def test_all_appends_of_a_turn_are_committed_together(stage: Stage) -> None:
    """Design section 5: nobody commits alone."""
    stage.run(Append(1, CHANGES))
    stage.run(Append(2, CHANGES))
    stage.loop.settle()
    assert stage.disk.kicks == [[1, 2]]


def test_a_frame_leaves_after_its_append_is_committed_and_others_do_not_wait(stage: Stage) -> None:
    """Design section 3, step 4."""
    stage.run(Append(1, CHANGES), Write(1, note("gated"), after=1, token="t"), Write(1, note("behind")))
    stage.run(Write(2, note("free")))
    stage.loop.settle()
    assert stage.read(1) == []
    assert stage.read(2) == ["free"]
    stage.commit(1)
    assert stage.read(1) == ["gated", "behind"]
    assert stage.core.told == [("committed", 1), ("taken", "t")]


def test_a_frame_that_waits_for_an_earlier_ticket_leaves_with_it(stage: Stage) -> None:
    stage.run(Append(1, CHANGES), Append(2, CHANGES))
    stage.run(Write(1, note("one"), after=1), Write(2, note("two"), after=2))
    stage.commit(1)
    assert (stage.read(1), stage.read(2)) == (["one"], [])
    stage.commit(2)
    assert stage.read(2) == ["two"]


def test_what_follows_from_a_taken_frame_is_committed_in_the_next_turn(stage: Stage) -> None:
    """Design section 3, step 5: reserved, forwarded, accepted, answered."""
    stage.disk.at_once = True
    stage.core.answers["taken", "m"] = [Append(2, CHANGES), Write(2, note("delivered"), after=2)]
    stage.run(Append(1, CHANGES), Write(1, note("message"), after=1, token="m"))
    stage.loop.settle()
    assert stage.disk.kicks == [[1], [2]]
    assert (stage.turns, stage.lingered) == (2, 1)
    assert (stage.read(1), stage.read(2)) == (["message"], ["delivered"])


def test_an_acceptance_waits_a_moment_for_a_reply_and_shares_its_commit(stage: Stage) -> None:
    stage.disk.at_once = True
    stage.core.answers["taken", "m"] = [Append(2, CHANGES), Write(2, note("delivered"), after=2)]
    stage.arrives = [Append(3, CHANGES), Write(2, note("reply"), after=3)]
    stage.run(Append(1, CHANGES), Write(1, note("message"), after=1, token="m"))
    stage.loop.settle()
    assert stage.disk.kicks == [[1], [2, 3]]
    assert stage.lingered == 1
    assert stage.read(2) == ["delivered", "reply"]


def test_an_acceptance_waits_for_a_reply_on_a_slow_disk_too(stage: Stage) -> None:
    """There the writer's thread reports a commit between two turns."""
    stage.core.answers["taken", "m"] = [Append(2, CHANGES)]
    stage.arrives = [Append(3, CHANGES)]
    stage.run(Append(1, CHANGES), Write(1, note("message"), after=1, token="m"))
    stage.loop.settle()
    stage.commit(1)
    assert stage.disk.kicks == [[1], [2, 3]]
    assert stage.lingered == 1


def test_what_a_frame_asked_for_never_waits(stage: Stage) -> None:
    stage.disk.at_once = True
    stage.core.answers["taken", "free"] = [Append(2, CHANGES)]
    stage.run(Append(1, CHANGES), Write(1, note("free"), token="free"))
    stage.loop.settle()
    assert stage.disk.kicks == [[1, 2]]
    assert (stage.turns, stage.lingered) == (1, 0)


def test_a_broadcast_is_encoded_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []

    def counted(frame: Any) -> bytes:
        encoded.append(frame)
        return encode(frame)

    monkeypatch.setattr(perform, "encode", counted)
    stage.run(Broadcast((1, 2, 3, 99), note("all")))
    stage.loop.settle()
    assert [stage.read(number) for number in (1, 2, 3)] == [["all"]] * 3
    assert len(encoded) == 1


def test_a_write_to_nobody_is_lost(stage: Stage) -> None:
    stage.run(Write(99, note("x"), token="t"), Write(99, note("y")))
    assert stage.core.told == [("lost", "t")]


# --- ends


def test_the_core_hears_of_a_dead_link_first_and_of_its_frames_next(stage: Stage) -> None:
    """Design section 4: the end of a link is reported before any later frame."""
    stage.core.answers["ended", 1] = [Finish(1), Broadcast((2,), note("left")), Write(1, note("late"), token="late")]
    stage.run(Append(1, CHANGES), Write(1, note("free"), token="free"), Write(1, note("gated"), after=1, token="g"))
    stage.peers[1].close()
    stage.loop.settle()
    assert stage.core.told == [("ended", 1), ("lost", "free"), ("lost", "g"), ("lost", "late")]
    assert stage.ended == [1]
    assert stage.read(2) == ["left"]


def test_a_link_that_dies_while_another_is_told_of_its_neighbours_death(stage: Stage) -> None:
    stage.peers[1].close()
    stage.peers[2].close()
    stage.core.answers["ended", 1] = [Broadcast((2, 3), note("1 left"))]
    stage.core.answers["ended", 2] = [Broadcast((3,), note("2 left"))]
    stage.run(Write(1, note("x")))
    stage.loop.settle()
    assert stage.core.told == [("ended", 1), ("ended", 2)]
    assert stage.read(3) == ["1 left", "2 left"]


def test_destroy_closes_at_once_and_loses_what_is_queued(stage: Stage) -> None:
    """Protocol 0, protocol error."""
    stage.run(Write(1, note("queued"), token="q"), Destroy(1, "no JSON"), Broadcast((2,), note("left")))
    assert stage.core.told == [("lost", "q")], "the core made this end itself"
    assert stage.ended == [1]
    stage.loop.settle()
    assert stage.read(1) == ["END"]
    assert stage.read(2) == ["left"]
    assert stage.log.lines == [("connection_destroyed", {"peer_pid": None, "reason": "no JSON"})]


def test_discard_loses_what_is_queued_and_the_link_goes_on(stage: Stage) -> None:
    stage.run(Write(1, note("queued"), token="q"), Discard(1), Write(1, note("refused")), Discard(77))
    assert stage.core.told == [("lost", "q")]
    stage.loop.settle()
    assert stage.read(1) == ["refused"]


def test_discard_also_reaches_a_link_that_finishes(stage: Stage) -> None:
    stage.run(Append(1, CHANGES), Write(1, note("gated"), after=1, token="g"), Finish(1), Discard(1))
    assert stage.core.told == [("lost", "g")]
    stage.loop.settle()
    assert stage.read(1) == ["END"]


def test_finish_flushes_first_and_reports_what_the_kernel_took(stage: Stage) -> None:
    stage.run(Append(1, CHANGES), Write(1, note("last"), after=1, token="l"), Finish(1))
    assert stage.ended == [1]
    stage.loop.settle()
    assert stage.read(1) == []
    stage.commit(1)
    assert stage.read(1) == ["last", "END"]
    assert ("taken", "l") in stage.core.told
    assert list(stage.performer.links()) == [stage.links[2], stage.links[3], stage.links[1]]
    stage.peers[1].close()
    stage.loop.settle()
    assert list(stage.performer.links()) == [stage.links[2], stage.links[3]]


def test_a_finishing_link_that_breaks_loses_its_frames_and_ends_once(stage: Stage) -> None:
    stage.run(Append(1, CHANGES), Write(1, note("last"), after=1, token="l"), Finish(1))
    stage.peers[1].close()
    stage.commit(1)
    assert stage.core.told == [("committed", 1), ("lost", "l")]
    assert stage.ended == [1]


def test_a_reader_that_does_not_read_is_destroyed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design OP-1; frames that wait for a commit count."""
    monkeypatch.setattr(perform, "UNSENT_BYTES", 150)
    for _ in range(5):
        stage.run(Append(1, CHANGES), Write(1, note("x" * 20), after=1, token="t"))
    assert stage.core.told[0] == ("ended", 1)
    assert set(stage.core.told[1:]) == {("lost", "t")} and len(stage.core.told) == 6
    assert stage.log.lines[0][0] == "connection_overrun"
    assert UNSENT_BYTES == 64 * 1024 * 1024


# --- commits that fail


def test_a_failed_commit_drops_its_frames_before_the_core_hears_of_it(stage: Stage) -> None:
    """Design section 3, step 6."""
    stage.core.answers["failed", 2, False] = [Write(2, note("not recorded")), Append(4, CHANGES)]
    stage.run(Append(1, CHANGES), Write(1, note("kept"), after=1, token=1))
    stage.run(Append(2, CHANGES), Write(1, note("dropped"), after=2, token=2))
    stage.run(Append(3, CHANGES), Write(3, note("dropped"), after=3, token=3), Write(3, note("free")))
    stage.loop.settle()
    stage.disk.ready.append(Committed(1))
    stage.fail(2)
    assert stage.core.told == [("committed", 1), ("failed", 2, False), ("taken", 1)]
    assert [stage.read(number) for number in (1, 2, 3)] == [["kept"], ["not recorded"], ["free"]]
    assert stage.disk.resumed == 1
    assert stage.disk.kicks[-1] == [4], "the next generation is submitted after resume"


def test_after_a_final_failure_the_writer_stays_closed(stage: Stage) -> None:
    stage.run(Append(1, CHANGES), Write(1, note("dropped"), after=1, token=1))
    stage.fail(1, final=True)
    assert stage.core.told == [("failed", 1, True)]
    assert stage.disk.resumed == 0
    stage.run(Write(1, note("rests on a withdrawn row"), after=1))
    stage.loop.settle()
    assert stage.read(1) == ["rests on a withdrawn row"]


# --- back-pressure


@pytest.mark.parametrize("outcome", [lambda s: s.commit(UNCOMMITTED_FRAMES), lambda s: s.fail(1)])
def test_a_link_reads_on_when_its_frames_were_committed_or_given_up(
    stage: Stage, outcome: Callable[[Stage], None]
) -> None:
    """Design OP-1."""
    link = stage.links[1]
    for ticket in range(1, UNCOMMITTED_FRAMES + 1):
        stage.performer.charge(link, stage.run(Append(ticket, CHANGES)), 1, 100)
    link.paused = True
    assert link.uncommitted_frames == UNCOMMITTED_FRAMES
    assert link.uncommitted_bytes == 100 * UNCOMMITTED_FRAMES
    outcome(stage)
    assert link.uncommitted_frames == link.uncommitted_bytes == 0
    assert stage.resumed == [1]


def test_a_link_goes_on_in_the_next_turn(stage: Stage) -> None:
    stage.performer.resume_soon(stage.links[1])
    assert stage.resumed == []
    stage.loop.settle()
    assert stage.resumed == [1]


def test_a_commit_does_not_hurry_a_frame_that_is_decoded_in_steps(stage: Stage) -> None:
    link = stage.links[1]
    link.paused, link.stepped = True, Stepped(b"{}", iter([None]))
    stage.performer.charge(link, stage.run(Append(1, CHANGES)), 1, 10)
    stage.commit(1)
    assert link.paused and stage.resumed == []


def test_a_link_stays_paused_while_too_much_is_uncommitted(stage: Stage) -> None:
    link = stage.links[1]
    for ticket in range(1, UNCOMMITTED_FRAMES + 2):
        stage.performer.charge(link, stage.run(Append(ticket, CHANGES)), 1, 1)
    link.paused = True
    stage.commit(1)
    assert (link.uncommitted_frames, stage.resumed) == (UNCOMMITTED_FRAMES, [])
    stage.commit(2)
    assert stage.resumed == [1]


# --- the rest


def test_stop_and_note_are_handed_on(stage: Stage) -> None:
    stage.run(Note("refused", {"reason": "r"}), Stop("asked"))
    assert stage.stops == ["asked"]
    assert stage.log.lines == [("refused", {"reason": "r"})]


def test_quiet_is_when_everything_is_committed_and_taken(stage: Stage) -> None:
    assert stage.performer.is_quiet
    stage.run(Append(1, CHANGES), Write(1, note("x"), after=1))
    stage.loop.settle()
    assert stage.performer.has_uncommitted and not stage.performer.is_quiet
    stage.commit(1)
    assert not stage.performer.has_uncommitted and stage.performer.is_quiet
    stage.links[1].put(b"x" * 5_000_000, 0, None)
    stage.performer.writable(stage.links[1])
    stage.loop.soon.pop()()
    assert not stage.performer.is_quiet


def test_falling_silent_forgets_what_did_not_leave(stage: Stage) -> None:
    """Design section 5, Stop."""
    stage.core.answers["lost", "t"] = [Append(2, CHANGES)]
    stage.run(Append(1, CHANGES), Write(1, note("x"), after=1, token="t"), Write(2, note("y")))
    stage.performer.fall_silent(NOW)
    assert stage.core.told == [("stop",), ("lost", "t")]
    stage.commit(2)
    assert not stage.performer.has_uncommitted
    assert (stage.read(1), stage.read(2)) == ([], [])


def test_what_was_read_goes_to_the_core_and_what_follows_is_done(stage: Stage) -> None:
    bodies, history, journal = ReadBodies("t", (1, 2)), ReadHistory("h", "mail:m"), ReadJournal("j", 3, 4)
    stage.run(bodies, history, journal)
    assert stage.shelf.asked == [bodies, history, journal]
    stage.core.answers["bodies", "t", (1, 2), (1,)] = [Write(1, note("read"))]
    stage.shelf.ready = [Read(bodies, {1: b"x"}), Read(history, None, "disk gone"), Read(journal, "page")]
    stage.performer.read_ready()
    assert stage.core.told == [("bodies", "t", (1, 2), (1,)), ("history", "h"), ("journal", "j", "page")]
    assert ("store_unread", {"level": "warning", "reason": "disk gone"}) in stage.log.lines
    stage.loop.settle()
    assert stage.read(1) == ["read"]


def test_processes_are_watched_as_the_core_says(stage: Stage) -> None:
    stage.run(WatchProcess("r", 5, 7), ForgetProcess("r"))
    stage.performer.close(1)
    assert stage.court.told == [("watch", "r", 5, 7), ("forget", "r"), ("close",)]
    assert stage.shelf.closed


def test_what_other_machines_are_to_do_and_say_goes_through_the_directory(stage: Stage) -> None:
    """FE 3.2 as cluster/directory.py has it: the core's effects and facts about peers go through one interface."""
    forward = Forward("b", "d", 1, RemoteTask("i", "t", "@t", "execute", False, "session:a", b"{}", b"{}", 1, None))
    stage.run(forward)
    assert stage.elsewhere.asked == [forward] and stage.shelf.asked == []
    stage.core.answers["peer", PeerLost("b")] = [Write(1, note("lost"))]
    stage.elsewhere.heard = [PeerLost("b")]
    stage.performer.peers_told()
    stage.loop.settle()
    assert stage.read(1) == ["lost"]
    stage.performer.close(1)
    assert stage.elsewhere.closed


def test_what_crosses_machines_waits_for_its_commit_and_keeps_its_order(stage: Stage) -> None:
    """Sections 2 and 3 of the cluster: nothing is published, and nothing let go of, before our own commit."""
    first, second, third = (
        Post(number, "b", "send", "d", "1", b"{}", after) for number, after in ((1, 1), (2, 0), (3, 2))
    )
    stage.run(first, Append(1, CHANGES), Settle(7), Append(2, CHANGES), second, third, Settle(8))
    stage.loop.settle()
    assert stage.elsewhere.asked == []
    stage.commit(1)
    assert stage.elsewhere.asked == [first, Settle(7), second]
    stage.commit(2)
    assert stage.elsewhere.asked[3:] == [third, Settle(8)]
    stage.run(Settle(9))
    assert stage.elsewhere.asked[5:] == [Settle(9)]


def test_what_came_from_another_machine_is_not_let_go_of_when_its_commit_fails(stage: Stage) -> None:
    """Section 2 of the cluster: the engine brings it again."""
    kept = Post(1, "b", "send", "d", "1", b"{}", 1)
    stage.run(Append(1, CHANGES), kept, Append(2, CHANGES), Settle(7))
    stage.fail(2)
    assert stage.elsewhere.asked == [kept]


def test_sessions_are_started_as_the_core_says(stage: Stage) -> None:
    stage.run(Spawn("1", "reviewer", "look", "t"))
    stage.performer.close(1)
    assert stage.nursery.told == [("1", "reviewer", "look", "t"), ("close",)]
