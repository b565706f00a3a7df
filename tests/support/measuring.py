"""Measure how much of the core and of the wire their own tests run, and fail the run where something is left out.

A pytest plugin: ``-p tests.support.measuring``. Only the tests below ``tests/core`` and ``tests/wire`` are measured,
and of those none that hypothesis feeds: what chance reaches today it may miss tomorrow, and the verdict must not
depend on it.
"""

from __future__ import annotations

import io
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

PACKAGES = ("intercom.core", "intercom.wire")
TOP = Path(__file__).resolve().parent.parent.parent
SOURCES = tuple(TOP.joinpath(*package.split(".")) for package in PACKAGES)
PLACES = tuple(TOP / "tests" / source.name for source in SOURCES)
REQUIRED = 100
"""Percent of the lines and branches."""
FAILED = 1
"""Exit status of a run that leaves out something."""


class Measure:
    """Trace the measured tests of one process, and judge what all processes of a run have seen.

    Args:
        config: of the run, or of one worker of it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._own = _coverage()
        self._seen = _coverage()
        self._gaps = ""
        self._own.start()
        # Otherwise a module counts as loaded by whichever test needs it first, measured or not.
        for package in map(import_module, PACKAGES):
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                import_module(module.name)
        self._own.stop()

    def _runs_tests(self) -> bool:
        return hasattr(self._config, "workerinput") or not self._config.getoption("numprocesses", None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Trace a test that counts, with its fixtures."""
        if not counts(item):
            return (yield)
        self._own.start()
        try:
            return (yield)
        finally:
            self._own.stop()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take in what a worker has seen; one that crashed says nothing."""
        self._add(getattr(node, "workeroutput", {}).get("coverage"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what this process has seen, or judge the whole."""
        own = self._own.get_data().dumps() if self._runs_tests() else None
        self._own.get_data().close(force=True)
        if hasattr(self._config, "workerinput"):
            self._config.workeroutput["coverage"] = own
            return
        self._add(own)
        self._gaps = gaps(self._seen)
        self._seen.get_data().close(force=True)
        if self._gaps and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = FAILED

    def _add(self, dumped: bytes | None) -> None:
        if dumped is not None:
            data = CoverageData(no_disk=True)
            data.loads(dumped)
            self._seen.get_data().update(data)
            data.close(force=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is left out."""
        if self._gaps:
            terminalreporter.section("lines and branches of the core and of the wire that none of their tests runs")
            terminalreporter.write(self._gaps)


def counts(item: pytest.Item) -> bool:
    """Tell whether what a test runs counts as tested."""
    return any(place in item.path.parents for place in PLACES) and item.get_closest_marker("hypothesis") is None


def gaps(seen: Coverage) -> str:
    """Return what was not run of the measured packages, as a table; empty when nothing was left out."""
    table = io.StringIO()
    share = seen.report(show_missing=True, skip_covered=True, precision=2, file=table)
    return table.getvalue() if share < REQUIRED else ""


def _coverage() -> Coverage:
    return Coverage(data_file=None, config_file=False, branch=True, source_dirs=[str(source) for source in SOURCES])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything of ours is loaded."""
    early_config.pluginmanager.register(Measure(early_config), "measure")
