"""Give tests homes of their own, brokers that end with the test, and bounded waits."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.brokers import TOP, BrokerProcess

BYTECODE = TOP / ".venv" / "cache" / "bytecode"
WORKERS_PER_CORE = 2
"""Most tests wait for processes and their answers more than they compute."""

# What is collected stays to the end. Walking through it again and again takes a third of the time of collecting, and a
# fork that does so gets a copy of it all.
gc.disable()

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Hundreds of interpreters are started; each would compile the package anew where bytecode is not kept.
if "PYTHONPYCACHEPREFIX" not in os.environ:
    with suppress(OSError):
        BYTECODE.mkdir(parents=True, exist_ok=True)
        (BYTECODE / ".gitignore").write_text("*\n")
    os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers ``--numprocesses auto`` means."""
    return WORKERS_PER_CORE * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each worker begin with some of the tests that are marked as long, so that none is left for the end.

    Every worker gets a piece of the list to begin with, one after another, and later what others have not begun.
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.get_closest_marker("long")]
    short = [item for item in items if not item.get_closest_marker("long")]
    size = -(-len(short) // count)
    items[:] = [item for at in range(count) for item in (*long[at::count], *short[at * size : (at + 1) * size])]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was collected alone from now on."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Give a private directory whose path is short enough for sockets below it."""
    directory = Path(tempfile.mkdtemp(prefix="ic-")).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def home(short_path: Path) -> Path:
    """Give the path of a home that does not exist yet."""
    return short_path / "home"


@pytest.fixture
def start_broker(home: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Give a function that starts brokers, in ``home`` unless told otherwise; all of them end with the test."""
    started: list[BrokerProcess] = []

    def start(where: Path = home, **options: Any) -> BrokerProcess:
        broker = BrokerProcess(where, **{"wait": False, **options})
        started.append(broker)
        if options.get("wait", True):
            broker.wait_until_it_answers()
        return broker

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Give a broker that answers."""
    return start_broker()
