"""When the next attempt is made, and when the callers are told instead."""

from __future__ import annotations

import pytest

from intercom.client.recovery import Recovery
from intercom.errors import (
    AccessDenied,
    BrokerBusy,
    BrokerStarting,
    ConnectionLost,
    HomeError,
    IntercomError,
    NoBroker,
    ProtocolViolation,
    RegistrationRefused,
    StartFailed,
)
from intercom.limits import RECONNECT_DELAYS_MS, RECONNECT_LOOK_MS, RECONNECT_PATIENCE, STABLE_MS


def planned() -> Recovery:
    return Recovery(lambda: 0.0)


def pause_before_start(recovery: Recovery, now: int, error: IntercomError | None) -> int:
    """Lose the connection and look in vain until an attempt may start a broker; return how long that took."""
    recovery.lost(now, error)
    while True:
        assert recovery.at is not None
        at, may_start = recovery.at, recovery.may_start
        recovery.begun()
        assert recovery.may_start is may_start
        if may_start:
            return at - now
        assert not recovery.lost(at, NoBroker("nobody"))


def test_in_between_it_looks_for_a_broker_of_somebody_else() -> None:
    """F77: a healthy broker does not stay without its listeners for the whole pause."""
    recovery = planned()
    for _ in range(8):
        pause_before_start(recovery, 0, BrokerBusy("full"))
    recovery.lost(100_000, BrokerBusy("full"))
    assert (recovery.at, recovery.may_start) == (100_000 + RECONNECT_LOOK_MS, False)
    recovery.begun()
    recovery.lost(100_500, NoBroker("nobody"))
    assert (recovery.at, recovery.may_start) == (100_500 + RECONNECT_LOOK_MS, False)
    recovery.hurry(100_600)
    assert (recovery.at, recovery.may_start) == (100_600, True)


def test_the_first_attempt_is_due_at_once() -> None:
    recovery = planned()
    assert recovery.at == 0
    recovery.begun()
    assert recovery.at is None


def test_after_a_good_connection_the_first_attempt_is_due_at_once() -> None:
    """F83: the client comes back."""
    recovery = planned()
    recovery.begun()
    recovery.registered(10_000)
    assert not recovery.lost(10_000 + STABLE_MS, None)
    assert recovery.at == 10_000 + STABLE_MS


def test_pauses_grow_and_the_last_one_repeats() -> None:
    """Protocol 7: reconnect delays 1, 2, 5, 10, 30 s."""
    recovery = planned()
    attempts = range(len(RECONNECT_DELAYS_MS) + 3)
    pauses = [pause_before_start(recovery, 50_000, BrokerBusy("full")) for _ in attempts]
    assert pauses[0] == RECONNECT_DELAYS_MS[0]
    assert pauses[1:6] == list(RECONNECT_DELAYS_MS)
    assert set(pauses[6:]) == {RECONNECT_DELAYS_MS[-1]}


def test_connections_that_end_at_once_are_not_retried_in_a_loop() -> None:
    recovery = planned()
    pauses = []
    for _ in range(4):
        recovery.begun()
        recovery.registered(1_000)
        pauses.append(pause_before_start(recovery, 1_001, None))
    assert pauses == [0, 1_000, 2_000, 5_000]


def test_pauses_vary_by_a_quarter() -> None:
    """F8: back-off is jittered."""
    assert pause_before_start(Recovery(lambda: 1.0), 0, BrokerBusy("full")) == 750


def test_a_call_of_the_user_makes_the_attempt_due_now() -> None:
    """F8: a user call forces an attempt now."""
    recovery = planned()
    recovery.lost(1_000, BrokerBusy("full"))
    recovery.hurry(1_100)
    assert recovery.at == 1_100


def test_hurrying_during_an_attempt_changes_nothing() -> None:
    recovery = planned()
    recovery.begun()
    recovery.hurry(1_000)
    assert recovery.at is None


@pytest.mark.parametrize("error", [AccessDenied("no"), HomeError("no"), RegistrationRefused("no")])
def test_what_waiting_does_not_cure_is_told_at_once(error: IntercomError) -> None:
    """F27: no retry loop on a denial; the one timer goes on without starting anything."""
    recovery = planned()
    assert recovery.lost(0, error)
    assert not recovery.may_start
    assert recovery.at is not None


@pytest.mark.parametrize("error", [StartFailed("no"), ProtocolViolation("no")])
def test_doubtful_failures_are_told_after_some(error: IntercomError) -> None:
    """F7: consecutive real deaths trip a breaker."""
    recovery = planned()
    told = [recovery.lost(0, error) for _ in range(RECONNECT_PATIENCE)]
    assert told == [False] * (RECONNECT_PATIENCE - 1) + [True]
    assert not recovery.may_start


def test_after_the_breaker_a_call_gets_one_attempt() -> None:
    """F8: a failed attempt leaves no cached result."""
    recovery = planned()
    for _ in range(RECONNECT_PATIENCE):
        recovery.lost(0, StartFailed("no"))
    recovery.hurry(100)
    assert recovery.may_start
    assert recovery.lost(200, StartFailed("no"))
    assert not recovery.may_start
    recovery.hurry(300)
    recovery.registered(400)
    assert recovery.may_start
    assert not recovery.lost(400 + STABLE_MS, None)
    assert not recovery.lost(500 + STABLE_MS, StartFailed("no"))


@pytest.mark.parametrize("error", [BrokerBusy("no"), BrokerStarting("no"), NoBroker("no"), ConnectionLost("no"), None])
def test_what_passes_is_not_told(error: IntercomError | None) -> None:
    recovery = planned()
    for _ in range(20):
        pause_before_start(recovery, 0, error)
        assert not recovery.lost(0, error)


def test_a_pause_for_a_reason_of_its_own_is_not_a_failure() -> None:
    recovery = Recovery(lambda: 0.0)
    recovery.wait(1_000, 200)
    assert recovery.at == 1_200
    assert recovery.may_start
    recovery.lost(1_200, None)
    assert recovery.at == 1_200, "the first failure is tried again at once"
