from __future__ import annotations

import pytest

from intercom.limits import FIRST_VISIT_MS, IDLE_MS, IDLE_RECHECK_MS, UNCLASSIFIED_PROTECTS_MS
from intercom.server.lifecycle import IdleCheck

START = 1_000


@pytest.fixture
def idle() -> IdleCheck:
    return IdleCheck(START)


def test_a_broker_nobody_uses_leaves(idle: IdleCheck) -> None:
    """Protocol 3.6; F2 (a)."""
    assert idle.next_check == START + IDLE_MS
    assert not idle.is_over(START + IDLE_MS - 1, 0)
    assert idle.is_over(START + IDLE_MS, 0)


def test_a_session_keeps_it(idle: IdleCheck) -> None:
    """Protocol 3.6."""
    idle.opened(1, START)
    idle.first_frame(1, is_health=False, now=START)
    idle.registered()
    assert idle.next_check is None
    assert not idle.is_over(START + 100 * IDLE_MS, 1, awaited=lambda: pytest.fail("nobody asks while somebody is here"))


def test_it_leaves_after_the_last_session_left(idle: IdleCheck) -> None:
    """Protocol 3.6."""
    idle.registered()
    later = START + 60_000
    idle.ended(1, later)
    assert idle.next_check == later + IDLE_MS
    assert idle.is_over(later + IDLE_MS, 0)


def test_a_check_that_finds_a_session_does_nothing_until_the_next_end(idle: IdleCheck) -> None:
    """Protocol 3.6."""
    assert not idle.is_over(START + IDLE_MS, 1)
    assert idle.next_check is None
    idle.ended(1, START + 9_000)
    assert idle.next_check == START + 9_000 + IDLE_MS


def test_connect_and_close_is_activity(idle: IdleCheck) -> None:
    """Protocol 3.5; F2 (b): the check starts anew, once."""
    idle.opened(1, START + 1_000)
    idle.ended(1, START + 2_000)
    assert idle.next_check == START + 2_000 + IDLE_MS
    idle.ended(1, START + 3_000)
    assert idle.next_check == START + 2_000 + IDLE_MS, "armed already"


def test_a_health_probe_is_no_activity(idle: IdleCheck) -> None:
    """Protocol 3.5, 3.6: it neither resets nor postpones anything."""
    for at in range(START, START + IDLE_MS, 500):
        idle.opened(at, at)
        idle.first_frame(at, is_health=True, now=at)
        idle.ended(at, at + 1)
    assert idle.next_check == START + IDLE_MS
    assert idle.is_over(START + IDLE_MS, 0)


def test_only_the_first_frame_classifies(idle: IdleCheck) -> None:
    idle.opened(1, START)
    idle.first_frame(1, is_health=True, now=START + 1)
    idle.first_frame(1, is_health=False, now=START + 2)
    assert idle.next_check == START + IDLE_MS


def test_a_young_connection_that_said_nothing_protects_the_broker(idle: IdleCheck) -> None:
    """Protocol 3.6."""
    at = START + IDLE_MS - 1
    idle.opened(1, START)
    idle.opened(2, at)
    due = START + IDLE_MS
    assert not idle.is_over(due, 0)
    assert idle.next_check == due + IDLE_RECHECK_MS
    assert not idle.is_over(at + UNCLASSIFIED_PROTECTS_MS - 1, 0)
    assert idle.is_over(at + UNCLASSIFIED_PROTECTS_MS + IDLE_RECHECK_MS, 0)


def test_activity_during_the_recheck_gives_the_full_delay(idle: IdleCheck) -> None:
    """Protocol 3.5: it restarts an armed check with the full delay."""
    idle.opened(1, START + IDLE_MS - 1)
    assert not idle.is_over(START + IDLE_MS, 0)
    idle.first_frame(1, is_health=False, now=START + IDLE_MS + 50)
    assert idle.next_check == START + IDLE_MS + 50 + IDLE_MS


def test_the_delay_is_a_setting() -> None:
    assert IdleCheck(START, 1_700).next_check == START + 1_700


def test_a_short_delay_leaves_time_for_the_first_visit() -> None:
    """F1, F2: whoever started a broker looks in pauses, and must find it; a visit shortens nothing."""
    idle = IdleCheck(START, 60)
    assert idle.next_check == START + FIRST_VISIT_MS
    idle.opened(1, START)
    idle.ended(1, START + 10)
    assert idle.next_check == START + FIRST_VISIT_MS
    idle.registered()
    idle.ended(1, START + 20)
    assert idle.next_check == START + 20 + 60


def test_sessions_that_may_come_back_keep_the_broker(idle: IdleCheck) -> None:
    """FE 5.5: idle exit is postponed while any session is reconnecting."""
    due = START + IDLE_MS
    assert not idle.is_over(due, 0, awaited=lambda: 1)
    assert idle.next_check == due + IDLE_MS
    assert idle.is_over(due + IDLE_MS, 0, awaited=lambda: 0)
