"""Run the short forms of the fuzzers, and see that each of them would notice what it looks for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.core import Fuzz, Objection
from tests.fuzz.mutations import encoded, mutated, spoilt_bytes
from tests.fuzz.runner import examine
from tests.fuzz.shapes import Known, makers
from tests.fuzz.tally import Tally, TooSlow
from tests.support.wire import REQUESTS


@pytest.mark.parametrize(
    ("target", "number"),
    [
        ("framing", 1),
        ("codec", 1),
        ("core", 2),
        ("core", 9),
        ("targets", 1),
        ("editors", 1),
        ("files", 1),
        ("store", 1),
    ],
)
def test_a_world_holds(target: str, number: int) -> None:
    """P 1.2 to 1.5, 4.22: whatever comes, it is answered or refused, and costs nobody else anything."""
    played = examine(target, number)
    assert played.failure is None, played.failure
    assert played.frames > 0


def test_every_type_of_frame_is_made() -> None:
    made = makers()
    assert {frame["type"] for frame in REQUESTS} <= made.keys()
    chance, known = random.Random(0), Known()
    for kind, make in made.items():
        assert make(chance, known)["type"] == kind


def test_a_number_always_gives_the_same_input() -> None:
    def spoilt(number: int) -> list[bytes]:
        chance, known = random.Random(number), Known()
        frames = [mutated(make(chance, known), chance, known) for make in makers().values()]
        return [spoilt_bytes(encoded(frame), chance) for frame in frames]

    assert spoilt(1) == spoilt(1)
    assert spoilt(1) != spoilt(2)


def test_a_core_that_loses_a_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Fuzz(2, frames=1)
    monkeypatch.setattr(world, "show", lambda conn, frame: None)
    with pytest.raises(Objection, match="was not registered"):
        world.play()


def test_a_witness_that_hears_nothing_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    world, show = Fuzz(2, frames=1), Fuzz.show
    monkeypatch.setattr(
        world, "show", lambda conn, frame: None if hasattr(frame, "sender") else show(world, conn, frame)
    )
    with pytest.raises(Objection, match="got witnessed-1 0 times"):
        world.play()


def test_a_request_without_an_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Fuzz(2, frames=0)
    world._come_in()
    monkeypatch.setitem(world.owed, (world.witnesses[0].conn, "r"), b"a request")
    with pytest.raises(Objection, match="no answer to"):
        world._expect_answers()


def test_what_takes_too_long_is_noticed() -> None:
    tally = Tally()
    tally.count(0.5, b"x", 1.0)
    with pytest.raises(TooSlow, match=r"2\.0 s"):
        tally.count(2.0, b"y", 1.0)
    assert (tally.frames, tally.slowest) == (2, 2.0)


def test_a_world_that_does_not_end_says_where_it_is() -> None:
    """The time counts that it computes: on a busy machine a world may take minutes"""
    spin = """
from tests.fuzz import runner

def stand_still(number):
    while True:
        pass

runner.HANGS_S = 0.1
runner.player = lambda target: stand_still
runner.examine("core", 1)
"""
    top = Path(__file__).parents[2]
    ended = subprocess.run(
        (sys.executable, "-c", spin),
        cwd=top,
        env={**os.environ, "PYTHONPATH": str(top)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -signal.SIGPROF
    assert "in stand_still" in ended.stderr
