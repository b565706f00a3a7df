"""Count what the broker executes for a message: steps of the interpreter, calls of Python and of C functions.

A broker runs in a thread of this process, with its real socket and store; one session asks and another answers. Times
on a busy machine say little. These counts hardly change from run to run, and show which function a change made longer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import intercom
from scripts.bench.across import SEEN_AFTER_S, Homes, wait_until_on
from scripts.bench.main import TEXT_BYTES
from scripts.bench.peers import Peer

ROUNDS = 300
WARM_ROUNDS = 100
"""The interpreter replaces steps by faster ones while a function is new."""
SHOWN = 40
BROKER = "intercom-broker"
"""Name of the thread that is counted."""


class Counts:
    """Hold the counts of the broker's thread, while ``is_on``."""

    def __init__(self) -> None:
        self.is_on = False
        self.steps: Counter[CodeType] = Counter()
        self.calls: Counter[str] = Counter()

    def trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        """Count one step, but for those of generators; for ``threading.settrace``."""
        # CPython 3.12 may crash when it ends a generator that was left waiting while its steps were counted.
        if threading.current_thread().name != BROKER or frame.f_code.co_flags & CO_GENERATOR:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if self.is_on and event == "opcode":
            self.steps[frame.f_code] += 1
        return self.trace

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count one call; for ``threading.setprofile``."""
        if self.is_on and event in ("call", "c_call") and threading.current_thread().name == BROKER:
            self.calls[event] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and print; return 0."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.path", description=__doc__)
    parser.add_argument("--window", type=int, default=1, help="requests that are written at once (default 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"times they are (default {ROUNDS})")
    parser.add_argument("--cluster", action="store_true", help="with the broker in a cluster, and another one in that")
    options = parser.parse_args(arguments)
    counts = Counts()
    rounds = range(WARM_ROUNDS + options.rounds)
    messages = 2 * options.window * options.rounds
    for watch in (threading.settrace, threading.setprofile):
        watch(counts.trace if watch is threading.settrace else counts.profile)
        try:
            with conversation(is_joined=options.cluster) as (asker, worker):
                for number in rounds:
                    counts.is_on = number >= WARM_ROUNDS
                    talk(asker, worker, number, options.window)
                counts.is_on = False
        finally:
            watch(None)
    steps = sum(counts.steps.values()) / messages
    python, native = counts.calls["call"] / messages, counts.calls["c_call"] / messages
    print(f"per message: {steps:.0f} steps, {python:.1f} calls of Python, {native:.1f} of C")
    for code, count in counts.steps.most_common(SHOWN):
        print(f"{count / messages:8.1f}  {Path(code.co_filename).name}: {code.co_qualname}")
    return 0


@contextmanager
def conversation(*, is_joined: bool = False) -> Iterator[tuple[Peer, Peer]]:
    """Start a broker in a thread and bring two sessions to it; ``is_joined``: it is in a cluster with another one."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="path-")))
        home = place / "here"
        home.mkdir(mode=0o700)
        if is_joined:
            homes = stack.enter_context(closing(Homes(place)))
            homes.broker("peer")
            homes.join(home)
        broker = stack.enter_context(intercom.serve(home, settings={"watchdog": False}))
        if is_joined:
            wait_until_on(Path(broker.socket))
        with Peer(f"unix:{broker.socket}", "asker") as asker, Peer(f"unix:{broker.socket}", "worker") as worker:
            if is_joined:
                time.sleep(SEEN_AFTER_S)
            yield asker, worker


def talk(asker: Peer, worker: Peer, number: int, window: int) -> None:
    """Let one session ask ``window`` questions and the other answer them."""
    text = "x" * TEXT_BYTES
    ids = [f"q-{number}-{place}" for place in range(window)]
    asker.write([_send("worker", {"id": one, "expectsReply": True}, text) for one in ids])
    came = worker.read("message", window)
    back = came[0]["from"]["id"]
    worker.write([_send(back, {"id": f"a-{one}", "replyTo": one}, text) for one in ids])
    asker.read("message", window)


def _send(to: str, members: dict[str, Any], text: str) -> dict[str, Any]:
    message = {"timestamp": 1, "content": {"text": text}, **members}
    return {"type": "send", "to": to, "attemptId": f"t-{members['id']}", "message": message}


if __name__ == "__main__":
    sys.exit(main())
