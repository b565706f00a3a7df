"""A silent broker is asked; only looks that come in time count against it."""

from __future__ import annotations

from intercom.client.heartbeat import Heartbeat, Pulse
from intercom.limits import HEARTBEAT_LATE_MS, HEARTBEAT_LOOK_MS, HEARTBEAT_LOOKS, HEARTBEAT_MS


def asked() -> tuple[Heartbeat, int]:
    """Return a heartbeat that has just asked, and the time."""
    heartbeat = Heartbeat()
    heartbeat.begin(0)
    assert heartbeat.due == HEARTBEAT_MS
    assert heartbeat.look(HEARTBEAT_MS - 1, is_reading=True) is Pulse.WAIT
    assert heartbeat.look(HEARTBEAT_MS, is_reading=True) is Pulse.ASK
    return heartbeat, HEARTBEAT_MS


def looks(heartbeat: Heartbeat, now: int, number: int, *, late: int = 0, is_reading: bool = True) -> int:
    """Look ``number`` times, each time ``late``, and return the time of the last look; none of them finds it dead."""
    for _ in range(number):
        assert heartbeat.due is not None
        now = heartbeat.due + late
        assert heartbeat.look(now, is_reading=is_reading) is Pulse.WAIT
    return now


def test_a_broker_that_does_not_answer_is_dead() -> None:
    heartbeat, now = asked()
    now = looks(heartbeat, now, HEARTBEAT_LOOKS - 1)
    assert heartbeat.look(now + HEARTBEAT_LOOK_MS, is_reading=True) is Pulse.DEAD


def test_anything_that_comes_is_a_sign_of_life() -> None:
    heartbeat, now = asked()
    now = looks(heartbeat, now, HEARTBEAT_LOOKS - 1)
    heartbeat.heard(now)
    assert heartbeat.due == now + HEARTBEAT_MS
    assert heartbeat.look(now + HEARTBEAT_MS, is_reading=True) is Pulse.ASK


def test_a_gap_of_this_process_is_not_held_against_the_broker() -> None:
    """F106: after a gap of the loop every peer has a fresh window."""
    heartbeat, now = asked()
    now = looks(heartbeat, now, 3 * HEARTBEAT_LOOKS, late=HEARTBEAT_LATE_MS)
    now = looks(heartbeat, now, 1, late=600_000)
    now = looks(heartbeat, now, HEARTBEAT_LOOKS - 1)
    assert heartbeat.look(now + HEARTBEAT_LOOK_MS, is_reading=True) is Pulse.DEAD


def test_the_question_itself_may_be_late() -> None:
    """A session that did nothing for an hour asks first."""
    heartbeat = Heartbeat()
    heartbeat.begin(0)
    assert heartbeat.look(3_600_000, is_reading=True) is Pulse.ASK
    assert heartbeat.look(3_600_000 + HEARTBEAT_LOOK_MS, is_reading=True) is Pulse.WAIT


def test_who_does_not_read_cannot_judge() -> None:
    heartbeat, now = asked()
    looks(heartbeat, now, 3 * HEARTBEAT_LOOKS, is_reading=False)


def test_without_a_connection_nothing_is_watched() -> None:
    heartbeat, now = asked()
    heartbeat.stop()
    heartbeat.heard(now)
    assert heartbeat.due is None
    assert heartbeat.look(now + 10 * HEARTBEAT_MS, is_reading=True) is Pulse.WAIT
