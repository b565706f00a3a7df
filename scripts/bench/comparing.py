"""Compare the ratios of a run with those that were written down last, so that a change that slows the path is seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from scripts.bench.effort import Measurement
from scripts.bench.engines import Engine
from scripts.bench.report import HEADINGS, Results, measured, number, ratio

NOISE = 0.2
"""Share by which a ratio may be worse without meaning anything."""

STEADY = ("KiB", "MB")
"""Units of figures that do not depend on how fast a machine is."""

_MEASURED, _ENGINE, _MEDIAN, _RATIO = map(HEADINGS.index, ("measured", "engine", "median", "intercom"))

Ratios = Mapping[tuple[str, str], float]
"""By what was measured and the title of the engine; figures of our own in a steady unit are there too."""


def recorded(page: str) -> Ratios:
    """Return what a later run is compared with in the table of a page that ``report.page`` made."""
    found: dict[tuple[str, str], float] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != len(HEADINGS):
            continue
        if cells[_RATIO].endswith("×"):
            figure = cells[_RATIO].removesuffix("×")
        elif cells[_MEASURED].rpartition(", ")[2] in STEADY:
            figure = cells[_MEDIAN]
        else:
            continue
        found[cells[_MEASURED], cells[_ENGINE]] = float(figure.replace(" ", ""))
    return found


def warnings(
    results: Results, measurements: Iterable[Measurement], engines: Collection[Engine], before: Ratios
) -> list[str]:
    """Return a sentence with figures for all that is worse than ``before`` by more than noise."""
    found = []
    for measurement in measurements:
        for engine in engines:
            now, then = _compared(results, measurement, engine), before.get((measured(measurement), engine.title))
            if now is None or then is None:
                continue
            is_worse = now < then * (1 - NOISE) if measurement.more_is_better else now > then * (1 + NOISE)
            if is_worse:
                unit = measurement.unit if measurement.unit in STEADY else "×"
                who = f"{measured(measurement)} against {engine.title}"
                found.append(f"{who}: {number(now)} {unit}, was {number(then)} {unit}")
    return found


def _compared(results: Results, measurement: Measurement, engine: Engine) -> float | None:
    if measurement.unit not in STEADY:
        return ratio(results, measurement, engine)
    series = results.get((measurement.key, engine.key))
    return series.median if engine.is_ours and series is not None and series.values else None
