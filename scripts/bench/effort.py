"""Say what is measured, how long, and what one measurement gives."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.bench import generator
from scripts.bench.engines import Engine

LARGE_BYTES = 16 * 1024
"""Size of the texts of the measurement with large ones."""


@dataclass(frozen=True)
class Measurement:
    """Describe one thing that is measured."""

    key: str
    title: str
    unit: str
    more_is_better: bool = False


@dataclass(frozen=True)
class Sample:
    """Hold what one measurement of one repetition gave."""

    values: tuple[float, ...]
    cpu_us: float | None = None
    """Processor time of the engine per message."""
    generator_share: float | None = None
    early: int = 0
    note: str = ""
    """What is worth telling of it beside the figure."""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """Say how long each measurement lasts."""

    seconds: float
    warm_seconds: float
    rounds: int
    commands: int
    """Runs of each command a repetition."""
    requests: int
    """Sends without a reply, and invocations, a repetition: what is invoked stays open, and a broker bounds that."""
    changes: int
    """Changes of presence a repetition; large frames of each form are a tenth of it, but three at least."""
    slow_rounds: int
    """Round trips on the slow disk."""

    def throughput(self, pairs: int, window: int, size: int) -> generator.Load:
        """Return the load of some pairs with a window of requests each."""
        options = ("--pairs", str(pairs), "--window", str(window))
        times = ("--secs", str(self.seconds), "--warm-secs", str(self.warm_seconds))
        return generator.Load("throughput", (*options, *times), size)

    def round_trip(self, engine: Engine, size: int) -> generator.Load:
        """Return the load of one request at a time; syncs take long, so there are fewer."""
        rounds = self.rounds // 3 if engine.promise == "disk" else self.rounds
        return generator.Load("latency", ("--rounds", str(rounds), "--warm-rounds", str(rounds // 10)), size)

    def one_way(self, size: int, *more: str) -> generator.Load:
        """Return the load of 8 pairs of which one side asks, with 16 requests that wait for the broker's answer each.

        Both sides are registered as sessions that may invoke, and be invoked.
        """
        options = ("--pairs", "8", "--window", "16", "--register-extra", INVOKERS, *more)
        times = ("--rounds", str(self.requests), "--warm-rounds", str(self.requests // 10))
        return generator.Load("one-way", (*options, *times), size)


INVOKERS = (
    '"features":["session.lifecycle","push.receipts","queue","invoke"],"clientProtocolVersion":"1.0","kind":"custom"'
)
"""What sessions register with that have things done, and do them."""
FULL = Effort(seconds=1.5, warm_seconds=0.4, rounds=3_600, commands=5, requests=6_000, changes=40, slow_rounds=60)
QUICK = Effort(seconds=0.5, warm_seconds=0.2, rounds=900, commands=3, requests=1_500, changes=20, slow_rounds=25)

PIPELINED = Measurement("pipelined", "8 pairs, 16 in flight each", "messages/s", more_is_better=True)
AGENTS = Measurement("agents", "32 pairs, 1 in flight each", "messages/s", more_is_better=True)
LARGE = Measurement("large", "8 pairs, 16 in flight each, 16 KiB", "messages/s", more_is_better=True)
PIPELINED_TAIL = Measurement("pipelined-tail", "8 pairs, 16 in flight each, p99 by p50", "times")
AGENTS_TAIL = Measurement("agents-tail", "32 pairs, 1 in flight each, p99 by p50", "times")
ONE_CPU = Measurement("one-cpu", "round trip on one CPU", "µs")
ROUND_TRIP = Measurement("round-trip", "round trip", "µs")
ONE_WAY = Measurement("one-way", "8 pairs, 16 sends in flight, answered", "sends/s", more_is_better=True)
INVOKED = Measurement("invoked", "8 pairs, 16 invocations in flight, accepted", "invocations/s", more_is_better=True)
DRAINED = Measurement("drained", "mailbox of 10 000, handed over and confirmed", "messages/s", more_is_better=True)
FEW = Measurement("few", "16 sessions there, 16 in flight each pair", "messages/s", more_is_better=True)
CROWDED = Measurement("crowded", "1 000 there in 50 groups, 20 talk", "messages/s", more_is_better=True)
PRESENCE = Measurement("presence", "change of presence in a group of 500, processor time", "ms")
IDLE_MEMORY = Measurement("idle-memory", "memory of an idle session", "KiB")
BIG_FRAME = Measurement("big-frame", "turn of the loop with a frame of 2 MiB, the worst form, processor time", "ms")
SLOW_DISK = Measurement("slow-disk", "longest turn of the loop, syncs of 20 ms", "ms")
COLD_START = Measurement("cold-start", "start to first answer", "ms")
FULL_START = Measurement("full-start", "start to first answer, 100 000 operations", "ms")
LIST = Measurement("list", "`intercom list --json`", "ms")
SEND = Measurement("send", "`intercom send`", "ms")
HOOK = Measurement("hook", "`intercom hook`, nothing to say", "ms")
LIST_MEMORY = Measurement("list-memory", "`intercom list --json`, peak memory", "MB")
SEND_MEMORY = Measurement("send-memory", "`intercom send`, peak memory", "MB")
HOOK_MEMORY = Measurement("hook-memory", "`intercom hook`, peak memory", "MB")
MEASUREMENTS = (
    *(PIPELINED, AGENTS, LARGE, PIPELINED_TAIL, AGENTS_TAIL, ONE_CPU, ROUND_TRIP, ONE_WAY, INVOKED, DRAINED),
    *(FEW, CROWDED, PRESENCE, IDLE_MEMORY, BIG_FRAME, SLOW_DISK, COLD_START, FULL_START),
    *(LIST, SEND, HOOK, LIST_MEMORY, SEND_MEMORY, HOOK_MEMORY),
)
"""In the order of the table."""
QUICK_MEASUREMENTS = tuple(one for one in MEASUREMENTS if one is not ROUND_TRIP)
"""What a quick run leaves out says nothing that the round trip on one CPU does not say better."""
