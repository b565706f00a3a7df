from __future__ import annotations

from typing import Any, cast

from intercom.server.alarm import Alarm
from tests.support.loops import HandLoop


def make() -> tuple[HandLoop, Alarm, list[float]]:
    loop = HandLoop()
    rings: list[float] = []
    return loop, Alarm(cast(Any, loop), lambda: rings.append(loop.time())), rings


def test_it_rings_not_before_the_time_counted_in_whole_milliseconds() -> None:
    loop, alarm, rings = make()
    due = int(loop.time() * 1000) + 500
    alarm.set(due)
    loop.advance(0.5)
    assert rings == []
    loop.advance(0.002)
    assert len(rings) == 1 and int(rings[0] * 1000) >= due


def test_an_earlier_time_moves_it_and_a_later_one_does_not() -> None:
    loop, alarm, _ = make()
    base = int(loop.time() * 1000)
    alarm.set(base + 500)
    (timer,) = loop.timers
    alarm.set(base + 900)
    assert loop.timers == [timer]
    alarm.set(base + 100)
    assert [timer.due for timer in loop.timers] == [(base + 101) / 1000]


def test_none_asks_for_nothing_and_cancel_takes_back() -> None:
    loop, alarm, rings = make()
    alarm.set(None)
    assert loop.timers == []
    alarm.set(int(loop.time() * 1000) + 5)
    alarm.cancel()
    alarm.cancel()
    loop.advance(1)
    assert rings == [] and loop.timers == []


def test_it_can_be_set_again_while_it_rings() -> None:
    loop = HandLoop()
    rings: list[float] = []
    start = int(loop.time() * 1000)

    def ring() -> None:
        rings.append(loop.time())
        alarm.set(start + 50)

    alarm = Alarm(cast(Any, loop), ring)
    alarm.set(start + 10)
    loop.advance(0.02)
    assert len(rings) == 1 and len(loop.timers) == 1
