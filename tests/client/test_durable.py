"""Test the worker's side of a link: nothing said that is not written down, nothing begun twice (FE 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.client.durable import Command, Durable
from intercom.client.session import ClientSession, Link
from intercom.client.watches import WatchSnapshot
from intercom.client.workerjournal import WorkerJournal
from intercom.errors import HomeError, RequestRefused
from intercom.limits import LINK_AHEAD_BYTES, LINK_AHEAD_FRAMES, LINK_CONFIRM_MS, LINK_HEARTBEAT_MS
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.client import GRANTED, WALL, Frame, Rig
from tests.support.orders import interleavings
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Full(WorkerJournal):
    """Be a journal whose disk may be full."""

    is_full = False

    def _append(self, fact: dict[str, Any], *, is_synced: bool = True) -> None:
        if self.is_full:
            raise HomeError("no space left")


class LinkRig(Rig):
    """Hold a durable session."""

    def __init__(self) -> None:
        super().__init__(name="w", address=True, durable=True)
        self.journal = Full(self._id)
        profile = self.core.profile
        self.core = ClientSession(
            profile, ids=self._id, chance=lambda: 0.0, clock=lambda: self.now, journal=self.journal
        )
        self.core.prepare(WALL)

    @property
    def durable(self) -> Durable:
        return self.core.durable

    def online(self) -> None:
        frames = self.register(**{**GRANTED, "features": [*GRANTED["features"], "link.durable"]})
        assert frames == []

    def begin(self, floor: int = 0, generation: int = 1) -> Frame:
        """Give the session its link, and return what it answers."""
        bootstrap = {
            "type": "link_bootstrap",
            "linkId": "L",
            "generation": generation,
            "connectionId": "c",
            "commandMode": "individual",
            "brokerJournalId": "b",
            "eventFloor": floor,
            "body": {},
        }
        [ready] = self.feed(bootstrap)
        assert ready["type"] == "link_ready"
        return ready

    def confirm(self, ready: Frame) -> list[Frame]:
        told = {"linkId": "L", "generation": ready["generation"]}
        return self.feed({"type": "link_confirmed", "requestId": ready["requestId"], **told})

    def ack(self, high_water: int) -> list[Frame]:
        return self.feed({"type": "event_ack", "linkId": "L", "highWater": high_water})

    def command(self, command_id: str = "c1", seq: int = 1) -> list[Frame]:
        return self.feed({"type": "command", "commandId": command_id, "commandSeq": seq, "body": {"do": command_id}})


def seqs(frames: list[Frame]) -> list[int]:
    return [frame["seq"] for frame in frames if frame["type"] == "durable_event"]


def test_it_asks_for_the_feature() -> None:
    rig = LinkRig()
    assert "link.durable" in rig.connect()["features"]
    assert "link.durable" not in Rig(name="w", address=True).connect()["features"]


def test_events_wait_for_the_link_and_go_on_behind_the_floor() -> None:
    """FE 4.6: repeated from the acknowledged floor."""
    rig = LinkRig()
    for number in range(3):
        rig.durable.report("x", {"n": number})
    rig.online()
    ready = rig.begin(floor=1)
    assert (ready["journalId"], ready["lastReceivedCommandSeq"]) == (rig.journal.id, 0)
    assert seqs(rig.confirm(ready)) == [2, 3]
    rig.durable.report("x", {})
    assert seqs(rig.written()) == [4]
    rig.ack(3)
    assert rig.durable.unstored == 1
    rig.lose()
    rig.durable.report("x", {})
    assert rig.written() == []


def test_so_many_events_are_written_ahead() -> None:
    """FE 4.3: a worker that writes more than the broker's inbox takes would lose its connection."""
    rig = LinkRig()
    for _ in range(LINK_AHEAD_FRAMES + 5):
        rig.durable.report("x", {})
    rig.online()
    assert seqs(rig.confirm(rig.begin())) == list(range(1, LINK_AHEAD_FRAMES + 1))
    assert seqs(rig.ack(2)) == [LINK_AHEAD_FRAMES + 1, LINK_AHEAD_FRAMES + 2]
    assert seqs(rig.ack(LINK_AHEAD_FRAMES)) == [LINK_AHEAD_FRAMES + number for number in (3, 4, 5)]


def test_so_many_bytes_are_written_ahead() -> None:
    rig = LinkRig()
    big = "y" * (LINK_AHEAD_BYTES // 5)
    for _ in range(7):
        rig.durable.report("x", {"text": big})
    rig.online()
    assert seqs(rig.confirm(rig.begin())) == [1, 2, 3, 4]
    assert seqs(rig.ack(1)) == [5]


def test_a_command_that_comes_again_has_a_receipt_and_is_not_given_out_again() -> None:
    """FE 4.3: the worker deduplicates by commandId."""
    rig = LinkRig()
    rig.online()
    rig.confirm(rig.begin())
    receipt = {"type": "command_received", "commandId": "c1", "commandSeq": 1}
    assert rig.command() == [receipt]
    taken = rig.core.take_command(Command)
    assert taken is not None
    assert (taken.id, taken.seq, taken.body) == ("c1", 1, {"do": "c1"})
    assert rig.command() == [receipt]
    assert rig.core.take_command(Command) is None


def test_what_cannot_be_written_down_has_no_receipt() -> None:
    """FE 4.1: nothing is confirmed too early."""
    rig = LinkRig()
    rig.online()
    rig.confirm(rig.begin())
    rig.journal.is_full = True
    assert rig.command() == []
    with pytest.raises(HomeError, match="no space"):
        rig.core.take_command(Command)
    with pytest.raises(HomeError, match="no space"):
        rig.durable.report("x", {})
    assert rig.written() == []
    rig.journal.is_full = False
    rig.lose()
    rig.now += 60_000
    rig.reattach(features=[*GRANTED["features"], "link.durable"])
    rig.confirm(rig.begin(generation=2))
    assert [frame["type"] for frame in rig.command()] == ["command_received"]


def test_a_refusal_is_told_once() -> None:
    rig = LinkRig()
    rig.online()
    ready = rig.begin()
    refused = {"type": "link_refused", "linkId": "L", "code": "journal_identity_changed", "reason": "no"}
    rig.feed({**refused, "retryable": False, "requestId": ready["requestId"]})
    with pytest.raises(RequestRefused) as caught:
        rig.core.take_command(Command)
    assert caught.value.code == "journal_identity_changed"
    assert rig.core.take_command(Command) is None
    rig.durable.report("x", {})
    assert rig.written() == [], "there is no link"
    assert seqs(rig.confirm(rig.begin(generation=2))) == [1]


def test_a_confirmation_that_comes_too_late_ends_the_connection() -> None:
    """FE 4.3: its time is up, whoever notices that first, the clock or the confirmation; found by the simulator."""
    rig = LinkRig()
    rig.online()
    ready = rig.begin()
    rig.now += LINK_CONFIRM_MS
    rig.confirm(ready)
    assert rig.core.link is Link.BROKEN


def refuse(rig: LinkRig, ready: Frame | None) -> None:
    told = {"linkId": "L", "code": "journal_identity_missing", "reason": "no", "retryable": False}
    rig.feed({"type": "link_refused", **told, **({} if ready is None else {"requestId": ready["requestId"]})})


@pytest.mark.parametrize("end", ["confirmed", "refused"])
@pytest.mark.parametrize("other", ["refused", "late", "nothing"])
def test_every_order_of_two_bootstraps_on_one_connection(end: str, other: str) -> None:
    """A4.6, FE 4.6: only the answer to the newest readiness counts, however they cross."""
    extra = {"refused": [("no link", 0)], "late": [("time", 0)], "nothing": []}[other]
    for order in interleavings([("begin", 1), (end, 1)], [("begin", 2), ("confirmed", 2)], extra):
        if order.index(("begin", 2)) < order.index(("begin", 1)):
            continue  # generations grow on a connection
        rig = LinkRig()
        rig.durable.report("x", {})
        rig.online()
        readies: dict[int, Frame] = {}
        newest = holder = 0
        for what, generation in order:
            if what == "begin":
                readies[generation] = rig.begin(generation=generation)
                newest, holder = generation, 0
            elif what == "confirmed":
                frames = rig.confirm(readies[generation])
                is_first = generation == newest
                assert (1 in seqs(frames)) is is_first, order
                holder = generation if is_first else holder
            elif what == "refused":
                refuse(rig, readies[generation])
            elif what == "no link":
                refuse(rig, None)
                newest = holder = 0
            else:
                rig.now += LINK_CONFIRM_MS
                rig.core.tick(rig.now)
                if newest and not holder:
                    assert rig.core.link is Link.BROKEN, "the broker does not answer"
                    break
            if what == "refused" and generation == newest:
                newest = 0
            rig.durable.report("x", {})
            assert bool(seqs(rig.written())) is bool(holder), order


def test_a_worker_shows_that_it_lives() -> None:
    """FE 4.2, 4.9: heartbeats, while it has the link."""

    def beats() -> list[Any]:
        rig.core.tick(rig.now)
        return [frame["body"] for frame in rig.written() if frame["type"] == "ephemeral_event"]

    rig = LinkRig()
    rig.online()
    ready = rig.begin()
    assert [frame["type"] for frame in rig.confirm(ready)] == ["ephemeral_event"]
    due = rig.core.deadline()
    assert due is not None
    assert due <= rig.now + LINK_HEARTBEAT_MS
    rig.now += LINK_HEARTBEAT_MS
    assert beats() == [{"kind": "heartbeat"}]
    assert beats() == []
    refuse(rig, None)
    rig.now += LINK_HEARTBEAT_MS
    assert beats() == []


def test_a_journal_that_cannot_be_written_rejects_the_link() -> None:
    """FE 4.3: a rejection before readiness."""
    rig = LinkRig()
    rig.durable.report("x", {})
    rig.online()
    rig.journal.is_full = True
    bootstrap = {"linkId": "L", "generation": 3, "connectionId": "c", "commandMode": "individual"}
    [rejected] = rig.feed({"type": "link_bootstrap", **bootstrap, "brokerJournalId": "b", "eventFloor": 1, "body": {}})
    assert (rejected["type"], rejected["errorCode"], rejected["generation"]) == (
        "link_rejected",
        "journal_unusable",
        3,
    )
    with pytest.raises(HomeError, match="no space"):
        rig.core.take_command(Command)


def test_what_the_disk_cannot_take_for_a_while_stops_nothing_for_ever() -> None:
    """FE 4.6: what was acknowledged is told again; what was reported meanwhile goes on."""
    rig = LinkRig()
    rig.online()
    rig.confirm(rig.begin())
    for _ in range(LINK_AHEAD_FRAMES + 1):
        rig.durable.report("x", {})
    rig.written()
    rig.journal.is_full = True
    assert seqs(rig.ack(1)) == [LINK_AHEAD_FRAMES + 1]
    with pytest.raises(HomeError, match="no space"):
        rig.core.take_command(Command)
    rig.journal.is_full = False
    rig.durable.report("x", {})
    assert seqs(rig.ack(2)) == [LINK_AHEAD_FRAMES + 2]


@pytest.mark.parametrize("wrong", [{"generation": 3}, {"generation": 2}, {"eventFloor": -1}])
def test_a_bootstrap_that_cannot_be_is_rejected(wrong: dict[str, int]) -> None:
    """FE 4.3, 4.10: bootstrap_invalid; nothing is written down or reported, and the program is told."""
    rig = LinkRig()
    rig.durable.report("x", {})
    rig.online()
    rig.confirm(rig.begin(generation=3))
    known = (rig.journal.id, rig.journal.floor)
    bootstrap = {"linkId": "L", "generation": 4, "connectionId": "c", "commandMode": "individual"}
    members = {**bootstrap, "brokerJournalId": "b", "eventFloor": 0, "body": {}, **wrong}
    [rejected] = rig.feed({"type": "link_bootstrap", **members})
    assert (rejected["type"], rejected["errorCode"]) == ("link_rejected", "bootstrap_invalid")
    with pytest.raises(RequestRefused) as caught:
        rig.core.take_command(Command)
    assert caught.value.code == "bootstrap_invalid"
    assert (rig.journal.id, rig.journal.floor) == known
    rig.durable.report("x", {})
    assert rig.written() == [], "there is no link"
    rig.lose()
    rig.now += 60_000
    rig.reattach(features=[*GRANTED["features"], "link.durable"])
    assert seqs(rig.confirm(rig.begin(generation=1))) == [1, 2], "generations are compared within a connection"


LEAVING = {"type": "link_drain", "deadlineMs": 5_000, "reason": "broker_shutdown"}


@pytest.mark.parametrize("end", ["confirmed", "refused"])
def test_every_order_around_a_broker_that_leaves(end: str) -> None:
    """FE 4.10, link_drain: no command is begun before the next link, events go on, and every command is begun once."""
    for order in interleavings(("command", "leaving", "lose", "begin", end), ("take",), ("report", "ack")):
        rig = LinkRig()
        rig.online()
        rig.confirm(rig.begin())
        ready: Frame = {}
        is_leaving, begun, link = False, 0, True
        for what in order:
            if what == "command":
                assert [frame["type"] for frame in rig.command()] == ["command_received"]
            elif what == "leaving":
                [told] = rig.feed(LEAVING)
                waiting = [] if begun else ["c1"]
                assert (told["type"], told["body"]) == ("ephemeral_event", {"kind": "draining", "waiting": waiting})
                is_leaving = True
            elif what == "lose":
                rig.lose()
                rig.now += 60_000
                rig.reattach(features=[*GRANTED["features"], "link.durable"])
                link = False
            elif what == "begin":
                ready = rig.begin(generation=2)
            elif what == "confirmed":
                rig.confirm(ready)
                is_leaving, link = False, True
            elif what == "refused":
                refuse(rig, ready)
                with pytest.raises(RequestRefused):
                    while rig.core.take_command(Command) is not None:
                        begun += 1
                is_leaving = False
            elif what == "report":
                rig.durable.report("x", {})
                assert seqs(rig.written()) == ([1] if link else []), order
            elif what == "ack" and link:
                rig.ack(1)
            elif what == "take":
                is_there = rig.journal.waiting != []
                taken = rig.core.take_command(Command)
                assert (taken is not None) is (is_there and not is_leaving), order
                begun += taken is not None
        begun += rig.core.take_command(Command) is not None
        assert (begun, rig.core.take_command(Command)) == (1, None), order


def test_a_command_that_crossed_with_the_end_waits_too() -> None:
    """Protocol 14.7: whatever comes late is on disk, and holds nobody up."""
    rig = LinkRig()
    rig.online()
    rig.confirm(rig.begin())
    rig.feed(LEAVING)
    receipt, told = rig.command()
    assert (receipt["type"], told["body"]["waiting"]) == ("command_received", ["c1"])
    assert rig.core.take_command(Command) is None


def events_of(home: Path) -> tuple[str, list[tuple[str, Any]]]:
    """Return what became of the command, and what was reported."""
    with blocking.connect(purpose="control", home=home, start=False) as person:
        command = person.command("c1")
        events = person.link_events(person.links()[0].id)
        return f"{command.state} {command.error_code}", [(event.kind, event.body) for event in events]


async def stored(person: aio.Session, floor: int) -> None:
    """Wait until the broker has the events up to a number."""
    [link] = await person.links()
    async for told in person.watch(links=[link.id]):
        if isinstance(told, WatchSnapshot):
            [state] = told.states
            if state.detail["eventFloor"] >= floor:
                return
        elif told.kind == "event.stored" and told.detail["seq"] >= floor:
            return


async def test_a_worker_under_anyio(broker: BrokerProcess, anyio_backend: Any) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with (
            aio.connect("w", address=True, durable=True, home=broker.home, start=False) as worker,
            aio.connect(purpose="control", home=broker.home, start=False) as person,
        ):
            assert (await person.send_command({"do": "it"}, address="w", command_id="c1")).state == "pending"
            async for command in worker.commands():
                async with command:
                    assert (command.id, command.body) == ("c1", {"do": "it"})
                    assert await worker.report_event("built", {"n": 1}) == 1
                break
            await stored(person, 2)
            [link] = await person.links()
            assert (link.address, link.event_floor, link.journal_id is not None) == ("w", 2, True)
            assert [each.id for each in await person.command_list(link.id)] == ["c1"]
    state, events = await anyio.to_thread.run_sync(events_of, broker.home)
    assert (state, [kind for kind, _ in events]) == ("applied None", ["built", "command_applied"])


async def test_a_block_that_is_cancelled(broker: BrokerProcess, anyio_backend: Any) -> None:
    """What was begun and broken off is called so."""
    with anyio.fail_after(PATIENCE_S):
        async with (
            aio.connect("w", address=True, durable=True, home=broker.home, start=False) as worker,
            aio.connect(purpose="control", home=broker.home, start=False) as person,
        ):
            await person.send_command({}, address="w", command_id="c1")
            with anyio.CancelScope() as scope:
                async with await anext(worker.commands()):
                    scope.cancel()
                    await anyio.sleep_forever()
            await stored(person, 1)
    state, _ = await anyio.to_thread.run_sync(events_of, broker.home)
    assert state == "failed interrupted"


def test_a_worker_with_nothing_but_calls(broker: BrokerProcess) -> None:
    """What it could not say in one session it says in the next."""
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False) as worker:
        assert list(worker.commands(timeout=0.01)) == []
        with blocking.connect(purpose="control", home=broker.home, start=False) as person:
            person.send_command({}, address="w", command_id="c1")
        command = next(worker.commands(timeout=PATIENCE_S))
    with pytest.raises(HomeError):
        command._durable.report("late", {})
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False) as worker:
        while worker.unstored_events:
            list(worker.commands(timeout=0.01))
    assert events_of(broker.home)[0] == "failed interrupted"
    kept = [path.suffix for path in (Paths(broker.home).identities / "addresses").iterdir()]
    assert ".link" in kept


def test_blocks_say_what_became_of_a_command(broker: BrokerProcess) -> None:
    """A block is done with its command at its end, unless an exception ended it or it was said within."""
    with (
        blocking.connect("w", address=True, durable=True, home=broker.home, start=False) as worker,
        blocking.connect(purpose="control", home=broker.home, start=False) as person,
    ):
        for number in range(1, 5):
            person.send_command({}, address="w", command_id=f"c{number}")
        commands = worker.commands(timeout=PATIENCE_S)
        with next(commands):
            pass
        with pytest.raises(ZeroDivisionError), next(commands):
            raise ZeroDivisionError("no")
        with pytest.raises(KeyboardInterrupt), next(commands):
            raise KeyboardInterrupt
        with next(commands) as command:
            command.fail("not here", code="elsewhere")
        while worker.unstored_events:
            list(worker.commands(timeout=0.01))
        became = [person.command(f"c{number}") for number in range(1, 5)]
    assert [(command.state, command.error_code) for command in became] == [
        ("applied", None),
        ("failed", "exception"),
        ("failed", "interrupted"),
        ("failed", "elsewhere"),
    ]
