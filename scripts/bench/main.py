"""Measure our broker against other engines in alternating repetitions, and print one Markdown table.

Every engine is private: started in a temporary directory, reached from this machine only, ended by its process id.
A whole and clean run (no part chosen, at least five repetitions, nothing lost, the engines of the aims at hand) also
writes the page of the documentation.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import FrameType

from intercom import __version__
from scripts.bench import comparing, generator, machine, report
from scripts.bench.commands import PEERS
from scripts.bench.effort import FULL, MEASUREMENTS, QUICK, QUICK_MEASUREMENTS, Effort, Sample
from scripts.bench.engines import ENGINES, OTHER, TOP, Engine, Programs, other_checkout, version_of
from scripts.bench.measuring import OURS, measure, measure_alone
from scripts.bench.running import EngineFailed
from scripts.bench.scene import Scene

PAGE = TOP / "intercom" / "docs" / "benchmarks.md"
REPETITIONS = 7
"""Least number of a run that may be written down."""
QUICK_REPETITIONS = 2
QUICK_ENGINES = ("intercom", "intercom-receipts", "intercom-memory", "redis-always", "jetstream", "forwarder")
TEXT_BYTES = 256
LEAST_TEXT_BYTES = 16
"""What the generator needs to tell messages apart."""
MOST_TEXT_BYTES = 1024 * 1024
BUSY = 0.5
"""Load of a machine above which its figures deserve a warning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when all was clean, 1 when a message or an engine was lost, 2 when nothing can be measured."""
    options = parse(arguments)
    if not sys.platform.startswith("linux"):
        print("The load generator needs Linux.", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    place = machine.work_place(options.directory)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place, ignore_cleanup_errors=True) as directory:
        try:
            programs = Programs(generator.build(Path(directory)))
        except generator.NotBuilt as error:
            print(f"The load generator cannot be built: {error}", file=sys.stderr)
            return 2
        found = {engine.key: program for engine in options.engines if (program := find(engine, programs))}
        if options.list:
            for engine in options.engines:
                if engine.key in found:
                    print(f"{engine.key:18} {engine.title}")
            return 0
        return Run(options, programs, found, Path(directory)).run()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; ends the process with status 2 when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    engines, measurements = [engine.key for engine in ENGINES], [one.key for one in MEASUREMENTS]
    parser.add_argument(
        "--quick",
        action="store_true",
        help="under a minute: few engines; warns of ratios worse than recorded",
    )
    parser.add_argument("--repetitions", type=int, help=f"default {REPETITIONS}, quick {QUICK_REPETITIONS}")
    parser.add_argument("--engines", type=NameList(engines), help="comma-separated; some of " + ", ".join(engines))
    parser.add_argument(
        "--measure", type=NameList(measurements), help="comma-separated; some of " + ", ".join(measurements)
    )
    parser.add_argument(
        "--against",
        type=_checkout,
        help="another checkout of this project: measures its broker beside ours, nothing else",
    )
    parser.add_argument("--size", type=int, default=TEXT_BYTES, help=f"bytes of each text (default {TEXT_BYTES})")
    parser.add_argument("--directory", help="where temporary files are made, on the disk that is to be measured")
    parser.add_argument("--list", action="store_true", help="say which engines are there, and measure nothing")
    parser.add_argument("--no-write", action="store_true", help="do not write the page of the documentation")
    options = parser.parse_args(arguments)
    if options.repetitions is None:
        options.repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    if not LEAST_TEXT_BYTES <= options.size <= MOST_TEXT_BYTES:
        parser.error(f"--size must be from {LEAST_TEXT_BYTES} to {MOST_TEXT_BYTES}")
    is_part = options.quick or options.engines or options.measure or options.against
    options.is_whole = not is_part and options.size == TEXT_BYTES
    wished = options.engines or (QUICK_ENGINES if options.quick else engines)
    options.engines = [engine for engine in ENGINES if engine.key in wished]
    if options.against is not None:
        options.engines = [ENGINES[0], other_checkout(options.against)]
    usual = QUICK_MEASUREMENTS if options.quick else MEASUREMENTS
    options.measurements = [
        one for one in MEASUREMENTS if (one.key in options.measure if options.measure else one in usual)
    ]
    return options


def find(engine: Engine, programs: Programs) -> str | None:
    """Return the program of an engine; when this machine has none, say what would bring it."""
    program = engine.program(programs)
    if program is None:
        _say(f"{engine.title}: skipped; {engine.source}")
    return program


class Run:
    """Hold one run over all repetitions."""

    def __init__(self, options: argparse.Namespace, programs: Programs, found: dict[str, str], place: Path) -> None:
        self._options = options
        self._programs = programs
        self._found = found
        self._place = place
        self._engines = [engine for engine in options.engines if engine.key in found]
        self._effort: Effort = QUICK if options.quick else FULL
        self._results: report.Results = {}
        self._troubles: list[str] = []

    def run(self) -> int:
        """Measure, print, and write the page when the run was a whole one."""
        if not self._engines:
            print("There is nothing to measure.", file=sys.stderr)
            return 2
        load = machine.load()
        if load > BUSY:
            _say(f"the machine is not idle (load {load:.1f}): figures will be too low and ratios uncertain")
        facts = [*machine.describe(self._place), f"load before the run: {load:.1f}", *self._versions()]
        for engine in self._engines:  # the first start of each finds cold files; it is thrown away
            self._measure(engine, "warming up", keep=False)
        for repetition in range(self._options.repetitions):
            turn = repetition % len(self._engines)
            for engine in (*self._engines[turn:], *self._engines[:turn]):
                self._measure(engine, f"{repetition + 1}/{self._options.repetitions}")
            if not self._options.quick or repetition == 0:
                self._measure_alone(repetition)
        table = report.table(report.HEADINGS, report.rows(self._results, self._options.measurements, self._engines))
        print(table)
        print()
        print("\n".join(f"- {fact}" for fact in facts))
        for trouble in self._troubles:
            print(f"- not clean: {trouble}")
        self._compare()
        self._write(table, facts)
        return 1 if self._troubles else 0

    def _measure(self, engine: Engine, when: str, *, keep: bool = True) -> None:
        wanted = [one.key for one in self._options.measurements] if keep else []
        loadgen = self._programs.built["loadgen"]
        try:
            samples = measure(
                engine, self._found[engine.key], loadgen, wanted, self._effort, self._options.size, self._place
            )
        except EngineFailed as error:
            self._troubles.append(f"{engine.title}, {when}: {error}")
            return
        self._take({(key, engine.key): sample for key, sample in samples.items()}, engine.title, when)

    def _measure_alone(self, repetition: int) -> None:
        """Take what concerns our broker alone."""
        ours = next((engine for engine in self._engines if engine.key == OURS), None)
        if ours is None or self._options.against is not None:
            return
        built, program = self._programs.built, self._found[OURS]
        scene = Scene(ours, program, built, self._effort, self._place, repetition)
        when = f"{repetition + 1}/{self._options.repetitions}"
        samples, troubles = measure_alone([one.key for one in self._options.measurements], self._found, scene)
        self._troubles += [f"{when}: {trouble}" for trouble in troubles]
        self._take(samples, "alone", when)

    def _take(self, samples: dict[tuple[str, str], Sample], who: str, when: str) -> None:
        for (key, engine), sample in samples.items():
            self._results.setdefault((key, engine), report.Series()).add(sample)
            self._troubles += [f"{who}, {key}, {when}: {fault}" for fault in sample.faults]
            if sample.early:
                self._troubles.append(f"{who}, {key}, {when}: {sample.early} answers before the receipt")
            if sample.note:
                _say(f"{when} {key}: {sample.note}")
        if samples:
            shown = " ".join(f"{key}={report.number(median(one.values))}" for (key, _), one in samples.items())
            _say(f"{when} {who}: {shown}")

    def _versions(self) -> list[str]:
        versions: dict[str, None] = {}
        for engine in self._engines:
            name = "dbus-broker" if engine.key == "dbus-broker" else self._found[engine.key]
            if not engine.is_ours and engine.key != "forwarder":
                versions[version_of(name)] = None
        return [version for version in versions if version]

    def _compare(self) -> None:
        """Warn of every ratio that is worse than the one on the page; figures of another size say nothing of it."""
        if not PAGE.exists() or self._options.size != TEXT_BYTES:
            return
        before = comparing.recorded(PAGE.read_text(encoding="utf-8"))
        slower = comparing.warnings(self._results, self._options.measurements, self._engines, before)
        for sentence in slower:
            print(f"- slower than recorded: {sentence}")
        if not slower:
            print(f"- no ratio is more than {comparing.NOISE:.0%} worse than in {PAGE.relative_to(TOP)}")

    def _write(self, table: str, facts: list[str]) -> None:
        if self._options.no_write:
            return
        wanted = {aim.engine for aim in report.AIMS if aim.engine != OTHER}
        is_whole = self._options.is_whole and self._options.repetitions >= REPETITIONS and wanted <= set(self._found)
        if not is_whole or self._troubles:
            _say(f"{PAGE.relative_to(TOP)} is left as it is: only a whole and clean run is written down")
            return
        PAGE.write_text(
            report.page(
                version=__version__,
                repetitions=self._options.repetitions,
                size=self._options.size,
                table=table,
                facts=facts,
                peers=PEERS,
            ),
            encoding="utf-8",
        )
        _say(f"wrote {PAGE.relative_to(TOP)}")


class NameList:
    """Parse a comma-separated list of known names."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in self._known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown) or 'an empty list'} is none of {', '.join(self._known)}"
            )
        return names


def _checkout(text: str) -> Path:
    top = Path(text).resolve()
    if not (top / "intercom" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no checkout of intercom")
    return top


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
