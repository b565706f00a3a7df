from __future__ import annotations

import sys
from threading import Event, Thread, get_native_id
from time import sleep

import pytest

import intercom.server.watchdog as watchdog_module
from intercom.limits import WATCHDOG_LATE_MS, WATCHDOG_TICK_MS, WATCHDOG_TICKS
from intercom.server.watchdog import Watchdog, runnable, stacks

TICK_S = WATCHDOG_TICK_MS / 1000
LATE_S = WATCHDOG_LATE_MS / 1000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ticks(watchdog: Watchdog, clock: Clock, count: int, pause: float = TICK_S) -> list[bool]:
    results = []
    for _ in range(count):
        clock.now += pause
        results.append(watchdog.tick())
    return results


def make(*, is_runnable: bool = False) -> tuple[Watchdog, Clock]:
    clock = Clock()
    return Watchdog(lambda stacks: None, clock, lambda: 0.0, lambda thread: is_runnable), clock


def test_a_loop_without_a_sign_for_so_many_ticks_has_stalled() -> None:
    """Design OP-3."""
    watchdog, clock = make()
    assert ticks(watchdog, clock, WATCHDOG_TICKS) == [False] * (WATCHDOG_TICKS - 1) + [True]


def test_a_sign_begins_the_count_anew() -> None:
    watchdog, clock = make()
    for _ in range(5):
        assert not any(ticks(watchdog, clock, WATCHDOG_TICKS - 1))
        watchdog.sign()


def test_late_ticks_are_not_counted() -> None:
    """Design OP-3: a stopped or suspended process is not judged."""
    watchdog, clock = make()
    assert not any(ticks(watchdog, clock, 10 * WATCHDOG_TICKS, TICK_S + LATE_S + 0.001))
    ticks(watchdog, clock, WATCHDOG_TICKS - 1)
    assert ticks(watchdog, clock, 1, 600) == [False]
    assert ticks(watchdog, clock, 1) == [True]


def test_a_tick_somewhat_late_counts() -> None:
    watchdog, clock = make()
    assert ticks(watchdog, clock, WATCHDOG_TICKS, TICK_S + LATE_S - 0.001)[-1]


@pytest.mark.parametrize(("share", "longest"), [(1.0, WATCHDOG_TICKS), (0.5, 2 * WATCHDOG_TICKS)])
def test_a_loop_that_computes_without_end_has_stalled(share: float, longest: int) -> None:
    """Design OP-3: the time counts that it could compute in."""
    clock = Clock()
    watchdog = Watchdog(lambda stacks: None, clock, lambda: clock.now * share)
    assert ticks(watchdog, clock, longest) == [False] * (longest - 1) + [True]


def test_a_process_that_gets_little_of_the_processor_is_not_judged() -> None:
    """Design OP-3, F10: on a machine that is busy with something else a long turn of the loop is no stall."""
    clock = Clock()
    watchdog = Watchdog(lambda stacks: None, clock, lambda: clock.now * 0.02)
    assert not any(ticks(watchdog, clock, 10 * WATCHDOG_TICKS))


def test_a_process_that_gets_nearly_nothing_of_the_processor_is_not_judged() -> None:
    """Design OP-3: at the lowest priority on a busy machine it got less than 5 ms a second, as if it waited"""
    watchdog, clock = make(is_runnable=True)
    assert not any(ticks(watchdog, clock, 10 * WATCHDOG_TICKS))


def test_a_long_turn_that_gets_something_done_is_no_stall() -> None:
    """Design OP-3: a thousand connections may have something to be served at once"""
    clock, done = Clock(), [0]
    watchdog = Watchdog(lambda stacks: None, clock, lambda: clock.now, progress=lambda: done[0])
    for _ in range(5):
        done[0] += 1
        assert not any(ticks(watchdog, clock, WATCHDOG_TICKS - 1))
    assert ticks(watchdog, clock, 1) == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not say it")
def test_the_kernel_says_which_threads_want_a_processor() -> None:
    assert runnable(get_native_id())
    waiting, ended, number = Event(), Event(), []

    def wait() -> None:
        number.append(get_native_id())
        waiting.set()
        ended.wait()

    thread = Thread(target=wait)
    thread.start()
    assert waiting.wait(10)
    while runnable(number[0]):
        sleep(0.001)
    ended.set()
    thread.join()
    assert not runnable(0), "no thread has that number"


def test_the_thread_reports_a_stall_once_with_all_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_module, "WATCHDOG_TICK_MS", 1)
    monkeypatch.setattr(watchdog_module, "WATCHDOG_LATE_MS", 10_000)
    reported = Event()
    reports: list[list[str]] = []

    def on_stall(found: list[str]) -> None:
        reports.append(found)
        reported.set()

    watchdog = Watchdog(on_stall)
    watchdog.start()
    assert reported.wait(10)
    watchdog.stop()
    (found,) = reports
    assert any("reported.wait(10)" in stack for stack in found)


def test_it_can_be_stopped_at_once_and_before_it_started() -> None:
    watchdog = Watchdog(lambda stacks: None)
    watchdog.start()
    watchdog.stop()
    Watchdog(lambda stacks: None).stop()


def test_stacks_name_the_running_function() -> None:
    assert any("test_stacks_name_the_running_function" in stack for stack in stacks())
