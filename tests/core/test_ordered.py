"""Test the ordered bounded inbox of a link (FE 4.3), in every order of events."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import permutations, product

import pytest

from intercom.core.ordered import InboxOverflow, OrderedInbox
from intercom.limits import MIB


class Desk:
    """Handle frames as a test wants it, and remember everything."""

    def __init__(self, frames: int = 128, size: int = 4 * MIB, *, at_once: bool = False) -> None:
        self.handled: list[object] = []
        self.failures: list[Exception] = []
        self.drained: list[Exception | None] = []
        self.at_once = at_once
        self.raises: dict[object, Exception] = {}
        self.inbox: OrderedInbox[object] = OrderedInbox(self.handle, self.failures.append, frames=frames, size=size)

    def handle(self, frame: object) -> bool:
        self.handled.append(frame)
        if frame in self.raises:
            raise self.raises[frame]
        return self.at_once


def test_one_frame_too_many() -> None:
    """A4.3: 129 frames while the first is handled: one failure, none of the waiting is handled."""
    desk = Desk()
    taken = [desk.inbox.push(number, 1) for number in range(129)]
    assert taken == [True] * 128 + [False]
    assert desk.handled == [0]
    assert [type(error) for error in desk.failures] == [InboxOverflow]
    desk.inbox.done()
    assert (desk.inbox.push(200, 1), desk.handled, len(desk.failures)) == (False, [0], 1)
    assert (desk.inbox.is_over, desk.inbox.frames, desk.inbox.bytes) == (True, 0, 0)


def test_the_frame_being_handled_counts() -> None:
    """A4.4: 3 MiB and 2 MiB: too much while the first is handled, and not once it is done."""
    desk = Desk()
    assert (desk.inbox.push("a", 3 * MIB), desk.inbox.push("b", 2 * MIB)) == (True, False)
    desk = Desk()
    assert desk.inbox.push("a", 3 * MIB)
    desk.inbox.done()
    assert desk.inbox.push("b", 2 * MIB)
    assert (desk.handled, desk.failures, desk.inbox.bytes) == (["a", "b"], [], 2 * MIB)


def test_the_bounds_are_reached_and_not_passed() -> None:
    """FE 4.3: frames + 1 <= 128 and bytes + size <= 4 MiB."""
    desk = Desk()
    assert desk.inbox.push("a", 4 * MIB)
    assert not desk.inbox.push("b", 1)


def test_a_handler_that_fails() -> None:
    """A4.5: an error on frame 3 of 5: 4 and 5 are never handled, and draining raises that error."""
    desk = Desk()
    error = desk.raises[3] = RuntimeError("three")
    for number in range(1, 6):
        assert desk.inbox.push(number, 1)
    desk.inbox.done()
    desk.inbox.done()
    assert (desk.handled, desk.failures) == ([1, 2, 3], [error])
    desk.inbox.drain(desk.drained.append)
    assert desk.drained == [error]


def test_both_errors_are_kept_when_telling_fails() -> None:
    """FE 4.3: the callback itself fails."""
    error, another = ValueError("first"), KeyError("second")

    def refuse(_: Exception) -> None:
        raise another

    inbox: OrderedInbox[int] = OrderedInbox(lambda frame: False, refuse, frames=1, size=1)
    inbox.fail(error)
    drained: list[Exception | None] = []
    inbox.drain(drained.append)
    [combined] = drained
    assert isinstance(combined, ExceptionGroup)
    assert combined.exceptions == (error, another)


def test_draining_awaits_what_comes_meanwhile() -> None:
    """FE 4.4: frames scheduled during the drain are awaited too."""
    desk = Desk()
    desk.inbox.push(1, 1)
    desk.inbox.drain(desk.drained.append)
    desk.inbox.push(2, 1)
    desk.inbox.done()
    assert desk.drained == []
    desk.inbox.done()
    assert desk.drained == [None]


def test_an_idle_inbox_is_drained_at_once() -> None:
    desk = Desk(at_once=True)
    desk.inbox.push(1, 1)
    desk.inbox.drain(desk.drained.append)
    desk.inbox.close()
    desk.inbox.drain(desk.drained.append)
    assert desk.drained == [None, None]


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "8", None])
def test_bounds_are_positive_whole_numbers(bound: object) -> None:
    """FE 4.3: construction is refused."""
    for bounds in ({"frames": bound, "size": 1}, {"frames": 1, "size": bound}):
        with pytest.raises(ValueError, match="positive whole numbers"):
            OrderedInbox(lambda frame: True, lambda error: None, **bounds)  # type: ignore[arg-type]  # on purpose


def test_a_handler_may_push_and_be_done_itself() -> None:
    seen: list[int] = []

    def handle(frame: int) -> bool:
        seen.append(frame)
        if frame == 1:
            inbox.push(2, 1)
            inbox.done()
        return True

    inbox: OrderedInbox[int] = OrderedInbox(handle, lambda error: None, frames=4, size=4)
    inbox.push(1, 1)
    assert (seen, inbox.frames) == ([1, 2], 0)


EVENTS = ("push", "done", "fail", "close", "overflow", "drain")


@pytest.mark.parametrize(
    "order", [*permutations(EVENTS, 3), *((each, each, other) for each, other in product(EVENTS, EVENTS))]
)
@pytest.mark.parametrize("at_once", [False, True])
def test_every_order_of_three_events(order: tuple[str, ...], at_once: bool) -> None:
    """Whatever comes in which order: frames in order and once, one failure at most, nothing after an end."""
    desk = Desk(frames=6, at_once=at_once)
    pushed: list[int] = []
    ended_at: int | None = None
    ended_by: str | None = None
    acts = {
        "push": lambda: desk.inbox.push(pushed[-1], 1),
        "overflow": lambda: desk.inbox.push("much", 4 * MIB + 1),
        "done": desk.inbox.done,
        "fail": lambda: desk.inbox.fail(RuntimeError("told")),
        "close": desk.inbox.close,
        "drain": lambda: desk.inbox.drain(desk.drained.append),
    }
    for event in ("push", *order, "push"):
        if event == "push":
            pushed.append(len(pushed))
        taken = acts[event]()
        if event in ("push", "overflow"):
            assert taken is (ended_at is None and event == "push")
        if event in ("fail", "close", "overflow") and ended_by is None:
            ended_by, ended_at = event, len(desk.handled)
        assert desk.handled == pushed[: len(desk.handled)]
        assert ended_at is None or len(desk.handled) == ended_at
        assert desk.inbox.is_over is (ended_by is not None)
        assert len(desk.failures) == (1 if ended_by in ("fail", "overflow") else 0)
    desk.inbox.done()
    desk.inbox.done()
    desk.inbox.done()
    desk.inbox.done()
    assert len(desk.drained) == order.count("drain"), "every drain comes to its end"
    if ended_by is None:
        assert desk.handled == pushed


class Owner:
    """Have an inbox that calls it."""

    def __init__(self) -> None:
        self.inbox: OrderedInbox[str] = OrderedInbox(self.handle, self.failed, frames=1, size=9)

    def handle(self, frame: str) -> bool:
        return True

    def failed(self, error: Exception) -> None:
        self.error = error


@pytest.mark.parametrize("end", [OrderedInbox.close, lambda inbox: inbox.fail(ValueError("it broke"))])
def test_an_inbox_that_is_over_keeps_nobody(end: Callable[[OrderedInbox[str]], None]) -> None:
    """An inbox lives as long as a connection, and pairs that old are not looked for"""
    owner = Owner()
    there = weakref.ref(owner)
    gc.disable()
    try:
        end(owner.inbox)
        del owner
        assert there() is None
    finally:
        gc.enable()
