"""Turn samples into one table: medians, spread, and how our broker stands beside each engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from scripts.bench.effort import (
    AGENTS,
    AGENTS_TAIL,
    BIG_FRAME,
    COLD_START,
    CROWDED,
    DRAINED,
    FEW,
    FULL_START,
    HOOK,
    HOOK_MEMORY,
    IDLE_MEMORY,
    INVOKED,
    LARGE,
    LIST,
    LIST_MEMORY,
    ONE_CPU,
    ONE_WAY,
    PIPELINED,
    PIPELINED_TAIL,
    PRESENCE,
    SEND,
    SEND_MEMORY,
    SLOW_DISK,
    Measurement,
    Sample,
)
from scripts.bench.engines import OTHER, Engine, Promise
from scripts.bench.stalls import FORMS

OURS = "intercom"
OURS_IN_MEMORY = "intercom-memory"
OURS_CONFIRMED = "intercom-receipts"
FULL_GENERATOR = 0.9
"""Share of its processor from which the generator may be what limits a throughput."""
HEADINGS = ("measured", "engine", "promise", "median", "lowest to highest", "CPU µs/message", "intercom", "must", "aim")
PROMISES: Mapping[Promise, str] = {"disk": "on disk", "memory": "in memory", "none": "-"}


@dataclass(frozen=True)
class Aim:
    """Name what our broker is to reach: a share of an engine's figure, or a figure of its own."""

    measurement: Measurement
    must: float
    aim: float | None = None
    engine: str = OURS
    """In whose row of the table it stands."""
    of: Measurement | None = None
    """The figure is a share of this one, of the same engine."""
    beside: str | None = None
    """The figure of the engine, a variant of ours, is a share of that of this one."""

    @property
    def is_share(self) -> bool:
        """Tell whether it is about a ratio."""
        return self.engine != OURS or self.of is not None

    def texts(self, value: float) -> tuple[str, str]:
        """Say what must be and what is aimed at, and whether ``value`` reaches it."""
        return self._text(self.must, value), "-" if self.aim is None else self._text(self.aim, value)

    def _text(self, wanted: float, value: float) -> str:
        least = self.is_share and self.measurement.more_is_better
        is_reached = value >= wanted if least else value <= wanted
        bound = f"{wanted:g} ×" if self.is_share else f"{wanted:g} {self.measurement.unit}"
        if self.of is not None:
            bound += f" {self.of.key}"
        if self.beside is not None:
            bound += f" {self.beside}"
        return f"{'at least' if least else 'at most'} {bound}: {'reached' if is_reached else 'missed'}"


AIMS = (
    Aim(PIPELINED, 0.55, 1.0, "redis-always"),
    Aim(PIPELINED, 8, 15, "jetstream"),
    Aim(PIPELINED, 0.6, 1.0, "dbus-daemon"),
    Aim(AGENTS, 0.8, 1.2, "redis-always"),
    Aim(AGENTS, 0.5, 0.8, "redis"),
    Aim(LARGE, 0.8, 1.3, "redis-always"),
    Aim(PIPELINED_TAIL, 6, 3),
    Aim(AGENTS_TAIL, 6, 3),
    Aim(ONE_CPU, 1.15, 0.9, "redis-always"),
    Aim(ONE_CPU, 1.4, 1.0, OURS_CONFIRMED, beside="redis-always"),
    Aim(ONE_CPU, 4.5, 2.5, "forwarder"),
    Aim(INVOKED, 0.5, None, OURS_CONFIRMED, of=ONE_WAY),
    Aim(DRAINED, 0.4, 0.8, OURS_CONFIRMED, of=ONE_WAY),
    Aim(CROWDED, 0.9, 0.97, of=FEW),
    Aim(PRESENCE, 3, 1),
    Aim(IDLE_MEMORY, 20, 8),
    Aim(BIG_FRAME, 20, 5),
    Aim(SLOW_DISK, 20, 5),
    Aim(COLD_START, 170, 110),
    Aim(FULL_START, 350, 170),
    *(Aim(one, 80, 60) for one in (LIST, SEND, HOOK)),
    *(Aim(one, 22, 18) for one in (LIST_MEMORY, SEND_MEMORY, HOOK_MEMORY)),
    Aim(PIPELINED, 0.97, None, OTHER),
    Aim(AGENTS, 0.97, None, OTHER),
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
    aim = _aim(measurement, engine)
    if aim is not None and aim.of is not None:
        return _share(results.get((measurement.key, engine.key)), results.get((aim.of.key, engine.key)))
    if aim is not None and aim.beside is not None:
        return _share(results.get((measurement.key, engine.key)), results.get((measurement.key, aim.beside)))
    base = OURS if engine.promise == "disk" else OURS_IN_MEMORY
    ours, theirs = results.get((measurement.key, base)), results.get((measurement.key, engine.key))
    return None if engine.is_ours and engine.key != OTHER else _share(ours, theirs)


def _share(part: Series | None, whole: Series | None) -> float | None:
    if part is None or whole is None or not part.values or not whole.values or not whole.median:
        return None
    return part.median / whole.median


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
                    *_aims(measurement, engine, series.median, compared),
                )
            )
    return found


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    marks = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, marks, *lines))


def _aim(measurement: Measurement, engine: Engine) -> Aim | None:
    return next((aim for aim in AIMS if aim.measurement is measurement and aim.engine == engine.key), None)


def _aims(measurement: Measurement, engine: Engine, own: float, compared: float | None) -> tuple[str, str]:
    aim = _aim(measurement, engine)
    value = compared if aim is not None and aim.is_share else own
    return ("-", "-") if aim is None or value is None else aim.texts(value)


PAGE = """# Benchmarks

Made by `scripts/bench/run` with intercom {version}: {repetitions} repetitions in one run, in each of which every engine
was started afresh, measured and ended, in changing order. Texts have {size} bytes. `scripts/bench/run --help` says how
to repeat it.

{table}

## How to read it

- **intercom** is our median divided by that engine's: for messages/s more is better, for times less. Engines that
  promise the disk are compared with intercom as it is, the others with `durability = "memory"`. Figures of two runs, or
  of two machines, cannot be compared. Ratios within one run can; differences under 20 % are noise.
- What crosses machines is measured by `scripts/bench/across`: see [what a cluster costs](cluster.md#what-it-costs).
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
  to the partner in the same commit, who confirms it.
- **must** and **aim** say what intercom is to reach. Where they name a measurement (`few`, `one-way`) or an engine, the
  figure of this row is divided by that one, and the share stands under **intercom**.
- "p99 by p50" divides the round trip that 99 of 100 requests stay below by that of every second one. There is a
  checkpoint of the write-ahead log several times a second meanwhile.
- The mailbox holds 10 000 messages of {size} bytes for an address nobody acts under. One session comes, gets them and
  confirms them; the time ends when its mailbox is told to be empty.
- "1 000 there" are connections of sessions in 50 groups of 20; those of one group talk. They are compared with 8
  pairs that are alone with the same broker. A change of presence is told to 499 sessions; what is given is the
  processor time of the broker, the kernel's included.
- "Turn of the loop": the time from the end of one wait for input to the beginning of the next, in which nobody else is
  served. Of large frames ({forms})
  the one that takes most counts, by the processor's time. For the slow disk each sync of the broker takes 20 ms more.
- Peak memory is what the kernel counts of the whole process, a MB being a million bytes.
- Redis: one stream per direction, `XADD` and a blocking `XREAD`; the answer to `XADD` is the sender's answer.
  JetStream: one stream in a file, push consumers without acknowledgement, each message answered by its publish
  acknowledgement. NATS core: `PUB` with a reply subject. D-Bus: method call and return. The forwarder passes frames on
  unread and answers each with a constant: no broker can be faster.
- "Start to first answer" counts from the start of the process in an empty directory, or on the store of a broker that
  was stopped; intercom's is `registered`. Commands are whole processes with {peers} sessions there.

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
        forms=", ".join(FORMS),
    )
