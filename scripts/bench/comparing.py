"""Compare the ratios of a run with those that were written down last, so that a change that slows the path is seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from scripts.bench.engines import Engine
from scripts.bench.measuring import Measurement
from scripts.bench.report import HEADINGS, Results, measured, number, ratio

NOISE = 0.2
"""Share by which a ratio may be worse without meaning anything."""

_MEASURED, _ENGINE, _RATIO = (HEADINGS.index(heading) for heading in ("measured", "engine", "intercom"))

Ratios = Mapping[tuple[str, str], float]
"""By what was measured and the title of the engine."""


def recorded(page: str) -> Ratios:
    """Return the ratios in the table of a page that ``report.page`` made; what is no ratio is left out."""
    found: dict[tuple[str, str], float] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == len(HEADINGS) and cells[_RATIO].endswith("×"):
            figure = cells[_RATIO].removesuffix("×").replace(" ", "")
            found[cells[_MEASURED], cells[_ENGINE]] = float(figure)
    return found


def warnings(
    results: Results, measurements: Iterable[Measurement], engines: Collection[Engine], before: Ratios
) -> list[str]:
    """Return a sentence with figures for every ratio that is worse than ``before`` by more than noise."""
    found = []
    for measurement in measurements:
        for engine in engines:
            now, then = ratio(results, measurement, engine), before.get((measured(measurement), engine.title))
            if now is None or then is None:
                continue
            is_worse = now < then * (1 - NOISE) if measurement.more_is_better else now > then * (1 + NOISE)
            if is_worse:
                found.append(f"{measured(measurement)} against {engine.title}: {number(now)} ×, was {number(then)} ×")
    return found
