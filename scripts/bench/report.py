"""Turn samples into one table: medians, spread, and how our broker stands beside each engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from scripts.bench.engines import OTHER, Engine, Promise
from scripts.bench.measuring import (
    AGENTS,
    COLD_START,
    INVOKED,
    LIST,
    ONE_CPU,
    ONE_WAY,
    PIPELINED,
    Measurement,
    Sample,
)

OURS = "intercom"
OURS_IN_MEMORY = "intercom-memory"
FULL_GENERATOR = 0.9
"""Share of its processor from which the generator may be what limits a throughput."""
HEADINGS = ("measured", "engine", "promise", "median", "lowest to highest", "CPU µs/message", "intercom", "aim")
PROMISES: Mapping[Promise, str] = {"disk": "on disk", "memory": "in memory", "none": "-"}


@dataclass(frozen=True)
class Aim:
    """Name what our broker is to reach: a share of an engine's figure, or a figure of its own."""

    measurement: Measurement
    bound: float
    engine: str | None = None
    of: Measurement | None = None
    """The figure is a share of this one, of the same engine."""

    def text(self, value: float) -> str:
        """Say the aim and whether ``value`` reaches it."""
        is_share = self.engine is not None or self.of is not None
        least = is_share and self.measurement.more_is_better
        is_reached = value >= self.bound if least else value <= self.bound
        bound = f"{self.bound:g} ×" if is_share else f"{self.bound:g} {self.measurement.unit}"
        bound += "" if self.of is None else f" {self.of.unit}"
        return f"{'at least' if least else 'at most'} {bound}: {'reached' if is_reached else 'missed'}"


AIMS = (
    Aim(PIPELINED, 0.3, "redis-always"),
    Aim(PIPELINED, 4.5, "jetstream"),
    Aim(AGENTS, 0.5, "redis-always"),
    Aim(ONE_CPU, 1.4, "redis-always"),
    Aim(INVOKED, 0.5, "intercom-receipts", of=ONE_WAY),
    Aim(PIPELINED, 0.97, OTHER),
    Aim(AGENTS, 0.97, OTHER),
    Aim(COLD_START, 250),
    Aim(LIST, 100),
)


@dataclass
class Series:
    """Collect the samples of one measurement of one engine over all repetitions."""

    values: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Take one repetition; one that was not clean is no figure."""
        if sample.faults:
            return
        self.values += sample.values
        if sample.cpu_us is not None:
            self.cpu_us.append(sample.cpu_us)
        if sample.generator_share is not None:
            self.shares.append(sample.generator_share)

    @property
    def median(self) -> float:
        """Return the median; there is at least one value."""
        return median(self.values)

    @property
    def is_bounded_by_generator(self) -> bool:
        """Tell whether the engine might do more than the generator could ask of it."""
        return bool(self.shares) and median(self.shares) >= FULL_GENERATOR


Results = dict[tuple[str, str], Series]
"""By the keys of measurement and engine."""


def number(value: float) -> str:
    """Return a figure with three digits or more, thousands set apart."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f}".replace(",", " ")


def measured(measurement: Measurement) -> str:
    """Return what a row of the table calls a measurement."""
    return f"{measurement.title}, {measurement.unit}"


def ratio(results: Results, measurement: Measurement, engine: Engine) -> float | None:
    """Return our median divided by that of another engine, comparing what promises the same.

    Our memory variant stands beside the engines that promise less than the disk; our variants are not compared with
    each other, but another checkout is. For a measurement that is a share of another one of the same engine, that
    share. None when there is nothing to compare.
    """
    of = next((aim.of for aim in AIMS if aim.measurement is measurement and aim.engine == engine.key), None)
    if of is not None:
        part, whole = results.get((measurement.key, engine.key)), results.get((of.key, engine.key))
        return part.median / whole.median if part and whole and part.values and whole.values else None
    base = OURS if engine.promise == "disk" else OURS_IN_MEMORY
    ours, theirs = results.get((measurement.key, base)), results.get((measurement.key, engine.key))
    is_variant = engine.is_ours and engine.key != OTHER
    if is_variant or ours is None or theirs is None or not ours.values or not theirs.values or not theirs.median:
        return None
    return ours.median / theirs.median


def rows(results: Results, measurements: Iterable[Measurement], engines: Collection[Engine]) -> list[tuple[str, ...]]:
    """Return the cells of the table, one row per measurement and engine that has a figure."""
    found: list[tuple[str, ...]] = []
    for measurement in measurements:
        for engine in engines:
            series = results.get((measurement.key, engine.key))
            if series is None or not series.values:
                continue
            compared = ratio(results, measurement, engine)
            prefix = "≥ " if series.is_bounded_by_generator else ""
            found.append(
                (
                    measured(measurement),
                    engine.title,
                    PROMISES[engine.promise],
                    f"{prefix}{number(series.median)}",
                    f"{number(min(series.values))} to {number(max(series.values))}",
                    number(median(series.cpu_us)) if series.cpu_us else "-",
                    "-" if compared is None else f"{number(compared)} ×",
                    _aim(measurement, engine, series.median if engine.key == OURS else compared),
                )
            )
    return found


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    marks = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, marks, *lines))


def _aim(measurement: Measurement, engine: Engine, value: float | None) -> str:
    against = None if engine.key == OURS else engine.key
    for aim in AIMS:
        if value is not None and aim.measurement is measurement and aim.engine == against:
            return aim.text(value)
    return "-"


PAGE = """# Benchmarks

Made by `scripts/bench/run` with intercom {version}: {repetitions} repetitions in one run, in each of which every engine
was started afresh, measured and ended, in changing order. Texts have {size} bytes. `scripts/bench/run --help` says how
to repeat it.

{table}

## How to read it

- **intercom** is our median divided by that engine's: for messages/s more is better, for times less. Engines that
  promise the disk are compared with intercom as it is, the others with `durability = "memory"`. Figures of two runs, or
  of two machines, cannot be compared. Ratios within one run can; differences under 20 % are noise.
- **promise**: what the sender's answer means. "On disk": the message is synced before the answer is given. "In memory":
  it is recorded by the engine. "-": there is no such answer, or an empty one.
- **≥**: the load generator used up its own CPU; the engine could do more.
- A round trip is a request and its reply: from just before the request is written until the reply was received and
  compared. The recipient answers at once. "On one CPU" keeps generator and engine on the same one and shows the
  engine's own path; with several, the wake-up of another CPU is in it, four times.
- Messages/s counts requests received and replies received. With 16 requests in flight on each of 16 connections an
  engine gets whole batches; 32 pairs with one request each are the shape of real agents.
- The generator is one C process that plays both ends of every pair and speaks each engine's own wire; no client library
  is measured. Each message must arrive once, byte for byte, and where the engine answers senders it must be answered
  once. A run in which anything was lost, doubled or wrong gives no figure.
- "Recipients confirm": every recipient confirms each message and the sender is answered after that. Our own library
  and the Atomic clients work like this.
- Sends without a reply are answered once the recipient has confirmed, invocations once they are recorded; the task goes
  to the partner in the same commit, who confirms it. The share of one in the other stands under **intercom**.
- Redis: one stream per direction, `XADD` and a blocking `XREAD`; the answer to `XADD` is the sender's answer.
  JetStream: one stream in a file, push consumers without acknowledgement, each message answered by its publish
  acknowledgement. NATS core: `PUB` with a reply subject. D-Bus: method call and return. The forwarder passes frames on
  unread and answers each with a constant: no broker can be faster.
- "Start to first answer" counts from the start of the process in an empty directory; intercom's is `registered`.
  `intercom list --json` is a whole run of the command with {peers} sessions there.

## The machine

{facts}
"""


def page(*, version: str, repetitions: int, size: int, table: str, facts: Iterable[str], peers: int) -> str:
    """Return the page of the documentation."""
    return PAGE.format(
        version=version,
        repetitions=repetitions,
        size=size,
        table=table,
        facts="\n".join(f"- {fact}" for fact in facts),
        peers=peers,
    )
