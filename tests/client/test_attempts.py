"""Test that one attempt counts at a time and that late ones do no harm (FE 4.3), in every order of events."""

from __future__ import annotations

from itertools import product

import pytest

from intercom.client.attempts import Attempts
from tests.support.orders import interleavings

WITHIN_MS = 100


class Socket:
    """Count how often it was closed; closing a broken one raises."""

    def __init__(self, of: str, *, is_broken: bool) -> None:
        self.of = of
        self.is_broken = is_broken
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.is_broken:
            raise OSError("the late one is broken, too")


class Dials:
    """Apply events to attempts, and tell from the events alone what must be."""

    def __init__(self, *, is_broken: bool) -> None:
        self.attempts: Attempts[Socket] = Attempts(Socket.close)
        self.is_broken = is_broken
        self.now = 0
        self.sockets: list[Socket] = []
        self.told: list[str] = []
        """Attempts whose outcome was told, by names."""
        self.counting: str | None = None
        """The attempt that must be under way."""
        self.held: str | None = None

    def apply(self, event: str) -> None:
        what, _, of = event.partition(" ")
        getattr(self, f"_{what}")(of)
        assert self.attempts.is_trying is (self.counting is not None)
        assert (self.attempts.thing and self.attempts.thing.of) == self.held
        assert (self.attempts.due is None) is (self.counting is None)
        for socket in self.sockets:
            assert socket.closed == (0 if socket is self.attempts.thing else 1), (
                "closed once, at once, unless it is held"
            )
        assert len(self.told) == len(set(self.told)), "one outcome each"

    def _begin(self, of: str) -> None:
        if self.counting is not None or self.held is not None:
            with pytest.raises(RuntimeError):
                self.attempts.begin(of, self.now, WITHIN_MS)
            return
        self.attempts.begin(of, self.now, WITHIN_MS)
        self.counting = of

    def _brings(self, of: str) -> None:
        socket = Socket(of, is_broken=self.is_broken)
        self.sockets.append(socket)
        is_taken = self.attempts.won(of, socket, self.now)
        assert is_taken is (self.counting == of)
        if is_taken:
            self.counting, self.held = None, of
            self.told.append(of)

    def _fails(self, of: str) -> None:
        is_told = self.attempts.failed(of)
        assert is_told is (self.counting == of)
        if is_told:
            self.counting = None
            self.told.append(of)

    def _time(self, _: str) -> None:
        self.now += WITHIN_MS
        assert self.attempts.is_late(self.now) is (self.counting is not None)
        assert not self.attempts.is_late(self.now), "told once"
        self.counting = None

    def _cancel(self, _: str) -> None:
        assert self.attempts.cancel() is (self.counting is not None)
        self.counting = None

    def _lost(self, _: str) -> None:
        assert self.attempts.let_go() is (self.held is not None)
        self.held = None


ENDS = ("brings", "fails")


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize(("first", "second"), [*product(ENDS, ENDS)])
@pytest.mark.parametrize(
    "other", [("time",), ("cancel",), ("lost",), ("cancel", "time"), ("lost", "time"), ("time", "lost")]
)
def test_every_order_of_two_attempts_and_what_ends_them(
    first: str, second: str, other: tuple[str, ...], is_broken: bool
) -> None:
    """A4.6: what a late attempt brings is closed within one turn and never used, and no error of it is told."""
    orders = set(interleavings(("begin a", f"{first} a"), ("begin b", f"{second} b"), other))
    assert len(orders) >= 30
    for order in orders:
        dials = Dials(is_broken=is_broken)
        for event in order:
            dials.apply(event)


def test_an_attempt_that_brings_something_twice() -> None:
    """A4.6: never two closes, and what is held stays."""
    for order in interleavings(("begin a", "brings a"), ("brings a",), ("lost",)):
        dials = Dials(is_broken=False)
        for event in order:
            dials.apply(event)


def test_what_comes_at_the_deadline_is_late_before_anybody_looked_at_the_clock() -> None:
    """FE 4.3: connected before the deadline is the guard, not that a timer has gone off."""
    attempts: Attempts[Socket] = Attempts(Socket.close)
    attempts.begin("a", 0, WITHIN_MS)
    late = Socket("a", is_broken=False)
    assert not attempts.won("a", late, WITHIN_MS)
    assert (late.closed, attempts.is_trying) == (1, False)
    attempts.begin("b", WITHIN_MS, WITHIN_MS)
    in_time = Socket("b", is_broken=False)
    assert attempts.won("b", in_time, 2 * WITHIN_MS - 1)
    assert (in_time.closed, attempts.thing) == (0, in_time)
