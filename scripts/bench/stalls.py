"""Measure for how long the event loop serves nobody: because of one large frame, or of a slow disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from intercom.limits import GREAT_NUMBERS
from scripts.bench.effort import BIG_FRAME, SLOW_DISK, Sample
from scripts.bench.engines import Launch
from scripts.bench.generator import Load
from scripts.bench.peers import Peer
from scripts.bench.running import EngineFailed
from scripts.bench.scene import Scene, sample
from scripts.bench.turns import VARIABLE, Turns

FRAME_BYTES = 2 * 1024 * 1024
SYNC_US = 20_000
"""Time that each sync of the slow disk takes beside what it really takes."""
PAUSE_S = 0.02
"""What the loop did for a frame is over by then."""


def _message(number: int, content: bytes) -> bytes:
    head = b'{"type":"send","to":"worker","attemptId":"t-%d","message":{"id":"m-%d","timestamp":1,"content":{"text":"'
    return head % (number, number) + content + b'"}}}'


def _with_member(number: int, member: bytes) -> bytes:
    head = b'{"type":"send","to":"worker","attemptId":"t-%d","message":{"id":"m-%d","timestamp":1,"extra":'
    return head % (number, number) + member + b',"content":{"text":"short"}}}'


FORMS: dict[str, Callable[[int], bytes]] = {
    "plain text": lambda number: _message(number, b"x" * FRAME_BYTES),
    "text that is not ASCII": lambda number: _message(number, "ä".encode() * (FRAME_BYTES // 2)),
    "text of escapes": lambda number: _message(number, b"\\u00e4" * (FRAME_BYTES // 6)),
    "text of half characters": lambda number: _message(number, b"\\ud83d" * (FRAME_BYTES // 6)),
    "text with half a character": lambda number: _message(number, b"x" * FRAME_BYTES + b"\\ud83d"),
    "a list nobody knows": lambda number: _with_member(number, b"[" + b"0," * (FRAME_BYTES // 2) + b"0]"),
    "a list of large numbers": lambda number: _with_member(number, b"[" + b"1e100," * (FRAME_BYTES // 6) + b"0]"),
    "a list of numbers, as many as may be within a hundredth of what a double holds": lambda number: _with_member(
        number, b"[" + b"1.79e308," * GREAT_NUMBERS + b"1e100," * ((FRAME_BYTES - 9 * GREAT_NUMBERS) // 6) + b"0]"
    ),
    "deep lists": lambda number: _with_member(
        number, b"[" + (b"[" * 250 + b"]" * 250 + b",") * (FRAME_BYTES // 500) + b"0]"
    ),
    "objects nobody knows": lambda number: _with_member(number, b"[" + b'{"a":[1]},' * (FRAME_BYTES // 10) + b'"x"]'),
    "objects and half a character": lambda number: _with_member(
        number, b"[" + b'{"a":[1]},' * (FRAME_BYTES // 10) + b'"\\ud83d"]'
    ),
}
"""Frames of one size that are as different as possible to read."""
REFUSED_FORMS: dict[str, Callable[[int], bytes]] = {
    "a list for a target": lambda number: (
        b'{"type":"send","message":{"id":"m-%d"},"attemptId":"t-%d","to":[' % (number, number)
        + b"0," * (FRAME_BYTES // 2)
        + b"0]}"
    ),
    "a message without a text": lambda number: _with_member(
        number, b"[" + b'{"a":[1]},' * (FRAME_BYTES // 10) + b'0],"content":{"text":0},"x":{}'
    ).replace(b',"content":{"text":"short"}', b""),
}
"""Frames of that size that nobody is handed."""


def _watched(scene: Scene) -> Callable[[str, Path], Launch]:
    def launch(program: str, directory: Path) -> Launch:
        usual = scene.engine.launch(program, directory)
        command = ["scripts.bench.turns" if word == "intercom" else word for word in usual.command]
        variables = {**usual.environment, VARIABLE: str(directory / "turns")}
        return replace(usual, command=command, environment=variables)

    return launch


def big_frames(scene: Scene) -> dict[str, Sample]:
    """Measure the busiest turn of the loop while frames of 2 MiB pass through, one at a time."""
    watched = replace(scene.engine, launch=_watched(scene))
    found: dict[str, float] = {}
    with (
        scene.broker(engine=watched) as running,
        Peer(running.address, "sender") as sender,
        Peer(running.address, "worker") as worker,
    ):
        sender.read("session_joined", 1)  # what it reads from now on are the answers to its frames
        turns = Turns(running.directory / "turns")
        number = 0
        for form, made in {**FORMS, **REFUSED_FORMS}.items():
            times = []
            for _ in range(max(3, scene.effort.changes // 10)):
                number += 1
                payload = made(number)
                time.sleep(PAUSE_S)
                turns.take()
                sender.write_bytes([payload])
                if form in FORMS:
                    worker.read_bytes()
                sender.read_bytes()
                time.sleep(PAUSE_S)
                times.append(turns.take().busy_ms)
            found[form] = median(times)
    worst = max(found, key=lambda form: found[form])
    shown = ", ".join(f"{form} {took:.1f} ms" for form, took in found.items())
    return {BIG_FRAME.key: Sample((found[worst],), note=shown)}


def slow_disk(scene: Scene) -> dict[str, Sample]:
    """Measure the longest turn of the loop on a disk whose syncs take 20 ms, from its start on."""
    library = scene.built.get("slowsync")
    if library is None:
        raise EngineFailed("the library that makes a disk slow was not built")
    watched = replace(scene.engine, launch=_watched(scene))
    environment = {"LD_PRELOAD": library, "SLOW_SYNC_US": str(SYNC_US)}
    load = Load("latency", ("--rounds", str(scene.effort.slow_rounds), "--warm-rounds", "1"), 256)
    with scene.broker(engine=watched, environment=environment) as running:
        turns = Turns(running.directory / "turns")
        turns.take()
        result = scene.load(running, load)
        if result.median_us < SYNC_US:
            raise EngineFailed(f"the slow disk is not slow: a round trip takes {result.median_us:.0f} µs")
        return {SLOW_DISK.key: sample(result, turns.take().wall_ms)}
