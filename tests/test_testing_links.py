"""Durable workers with the broker in memory: the rules of the broker and the client of the library."""

from __future__ import annotations

import pytest

from intercom.errors import AddressHeld, RequestRefused, UsageError
from intercom.limits import LINK_AHEAD_FRAMES, NESTING
from intercom.testing import MemoryBroker, MemorySession


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def worker_of(broker: MemoryBroker) -> MemorySession:
    return broker.connect("worker", address=True, durable=True)


def person_of(broker: MemoryBroker) -> MemorySession:
    return broker.connect(purpose="control")


def floor(person: MemorySession) -> int:
    return person.links()[0].event_floor


def test_from_the_command_to_its_outcome(broker: MemoryBroker) -> None:
    worker, person = worker_of(broker), person_of(broker)
    sent = person.send_command({"do": "build"}, address="worker")
    assert (sent.state, sent.seq) == ("pending", 1)
    [command] = list(worker.commands())
    assert (command.id, command.seq, command.body) == (sent.id, 1, {"do": "build"})
    assert person.command(sent.id).state == "received"
    command.done("built")
    told = person.command(sent.id)
    assert (told.state, told.detail, told.body) == ("applied", "built", {"do": "build"})
    assert list(worker.commands()) == []
    with pytest.raises(UsageError, match="already"):
        command.fail()


def test_a_block_says_what_became_of_it(broker: MemoryBroker) -> None:
    worker, person = worker_of(broker), person_of(broker)
    ids = [person.send_command({}, address="worker").id for _ in range(2)]
    commands = worker.commands()
    with next(commands):
        pass
    with pytest.raises(RuntimeError), next(commands):
        raise RuntimeError("no disk")
    assert [(each.state, each.error_code, each.detail) for each in map(person.command, ids)] == [
        ("applied", None, None),
        ("failed", "exception", "RuntimeError: no disk"),
    ]


def test_events_are_stored_in_their_order(broker: MemoryBroker) -> None:
    worker, person = worker_of(broker), person_of(broker)
    assert [worker.report_event("built", {"n": number}) for number in range(3)] == [1, 2, 3]
    assert worker.unstored_events == 0
    events = person.link_events(person.links()[0].id)
    assert [(event.seq, event.kind, event.body) for event in events] == [
        (number + 1, "built", {"n": number, "kind": "built"}) for number in range(3)
    ]


def test_events_reported_while_the_broker_is_gone_come_later(broker: MemoryBroker) -> None:
    worker = worker_of(broker)
    broker.stop()
    for number in range(3 * LINK_AHEAD_FRAMES):
        worker.report_event("built", {"n": number})
    assert worker.unstored_events == 3 * LINK_AHEAD_FRAMES
    drained = worker.drain()
    assert not drained.done
    broker.restart()
    broker.advance(60_000)
    drained.result()
    assert worker.unstored_events == 0
    assert floor(person_of(broker)) == 3 * LINK_AHEAD_FRAMES


def test_nothing_is_lost_or_done_twice_when_both_end(broker: MemoryBroker) -> None:
    """A4.2, A4.10: the broker dies with everything that was not committed; the worker ends while it works."""
    worker, person = worker_of(broker), person_of(broker)
    first = person.send_command({}, address="worker").id
    second = person.send_command({}, address="worker").id
    next(worker.commands())
    worker.report_event("one")
    broker.crash()
    worker.report_event("two")
    worker.close()
    broker.restart()
    back = worker_of(broker)
    assert [command.id for command in back.commands()] == [second], "the first one was begun"
    person = person_of(broker)
    assert (person.command(first).state, person.command(first).error_code) == ("failed", "interrupted")
    assert [event.kind for event in person.link_events(person.links()[0].id)] == ["one", "two", "command_failed"]


def test_a_worker_that_lost_its_journal(broker: MemoryBroker) -> None:
    """A4.8"""
    worker, person = worker_of(broker), person_of(broker)
    sent = person.send_command({}, address="worker")
    worker.report_event("one")
    worker.close()
    broker._journals.clear()
    back = worker_of(broker)
    with pytest.raises(RequestRefused) as caught:
        next(back.commands())
    assert caught.value.code == "journal_identity_changed"
    back.report_event("first of the new one")
    [link] = person.links()
    assert (link.state, link.event_floor, back.unstored_events) == ("refused", 1, 1)
    journal = broker._journals["worker", "default"].id
    assert person.repin_link(link.id, journal) == [sent.id]
    broker.advance(0)
    assert (floor(person), back.unstored_events, person.command(sent.id).state) == (1, 0, "ambiguous")


def test_a_journal_that_was_put_back_is_another_one(broker: MemoryBroker) -> None:
    """FE 5.5: a worker that is behind what the broker knows must not count from there."""
    worker, person = worker_of(broker), person_of(broker)
    for _ in range(3):
        worker.report_event("one")
    worker.close()
    journal = broker._journals["worker", "default"]
    journal.last_seq = journal.floor = 1
    was = journal.id
    back = worker_of(broker)
    assert journal.id != was
    with pytest.raises(RequestRefused, match="another journal"):
        next(back.commands())
    assert person.links()[0].journal_id == was


def test_who_can_be_durable(broker: MemoryBroker) -> None:
    for wrong in ({}, {"address": True, "hold": "none"}, {"purpose": "control"}):
        with pytest.raises(UsageError):
            broker.connect("worker", durable=True, **wrong)  # type: ignore[arg-type]  # on purpose
    plain = broker.connect("plain")
    for call in (lambda: plain.report_event("x"), plain.commands().__next__, lambda: plain.unstored_events):
        with pytest.raises(UsageError, match="not durable"):
            call()
    worker_of(broker)
    with pytest.raises(AddressHeld):
        worker_of(broker)


@pytest.mark.parametrize(
    ("kind", "body"),
    [("", None), ("command_applied", None), ("x", {"n": object()}), ("x", {"n": "y" * 262_144}), ("x", [1])],
)
def test_events_that_are_none(broker: MemoryBroker, kind: str, body: object) -> None:
    worker = worker_of(broker)
    with pytest.raises(UsageError):
        worker.report_event(kind, body)  # type: ignore[arg-type]  # on purpose
    assert worker.report_event("fine") == 1


@pytest.mark.parametrize("members", [{}, {"address": "a", "link_id": "l"}, {"session_id": "s", "group": "g"}])
def test_commands_that_are_for_nobody(broker: MemoryBroker, members: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        person_of(broker).send_command({}, **members)  # type: ignore[arg-type]  # on purpose


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf")], {"deep": (None, -float("inf"))}, 10**400, nested(NESTING - 4), object()],
    ids=lambda value: type(value).__name__,
)
def test_what_json_has_no_word_for_is_refused(broker: MemoryBroker, value: object) -> None:
    """Protocol 1.3: it is never stored as null, which is another value; a null is."""
    worker, person = worker_of(broker), person_of(broker)
    with pytest.raises(UsageError):
        worker.report_event("built", {"n": value})
    with pytest.raises(UsageError):
        person.send_command({"n": value}, address="worker")
    assert worker.report_event("built", {"n": None, "text": "null", "deep": [1.5, {"a": None}]}) == 1
    assert person.send_command({"n": None}, address="worker").seq == 1
    assert [dict(event.body) for event in person.link_events(person.links()[0].id)] == [
        {"kind": "built", "n": None, "text": "null", "deep": [1.5, {"a": None}]}
    ]


def test_an_event_has_one_kind(broker: MemoryBroker) -> None:
    worker = worker_of(broker)
    with pytest.raises(UsageError, match="kind"):
        worker.report_event("built", {"kind": "other"})
    assert worker.report_event("built", {"kind": "built"}) == 1
