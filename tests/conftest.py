"""Give tests homes of their own, brokers that end with the test, and bounded waits."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import BrokerProcess


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
