"""Say what a measurement that concerns our broker alone gets to work with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.bench import generator
from scripts.bench.effort import Effort, Sample
from scripts.bench.engines import Engine
from scripts.bench.running import Running


@dataclass(frozen=True)
class Scene:
    """Hold the tools of one repetition.

    ``engine`` is our broker, ``program`` the interpreter that runs it, ``built`` the C programs by name, ``place`` a
    directory for temporary files.
    """

    engine: Engine
    program: str
    built: Mapping[str, str]
    effort: Effort
    place: Path
    turn: int
    """Number of the repetition; what is compared with one another changes its order with it."""

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """Give a directory of its own for the length of the block."""
        with tempfile.TemporaryDirectory(prefix="bench-", dir=self.place, ignore_cleanup_errors=True) as directory:
            yield Path(directory)

    @contextmanager
    def broker(
        self,
        *options: str,
        engine: Engine | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Running]:
        """Run a broker that answers, in a new directory; ``options`` are the generator's."""
        chosen = replace(engine or self.engine, generator_options=options)
        with (
            self.directory() as fresh,
            Running(chosen, self.program, fresh, environment) as running,
        ):
            running.wait_until_it_answers()
            yield running

    def load(self, running: Running, load: generator.Load) -> generator.Result:
        """Put a load on a broker."""
        return generator.run(self.built["loadgen"], running.engine, running.address, load)


def sample(result: generator.Result, value: float) -> Sample:
    """Return a figure out of what the generator found."""
    return Sample((value,), early=result.early, faults=result.faults)
