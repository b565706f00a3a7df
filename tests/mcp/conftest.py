"""Give adapters under hosts that speak by hand; the broker answers already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.adapters import RawHost
from tests.support.brokers import BrokerProcess, limited

BUSY_MS = 300
"""How long these brokers wait for the receipt of a model that has not looked yet."""


@pytest.fixture
def anyio_backend() -> str:
    """Run under asyncio, as adapters do."""
    return "asyncio"


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Give a broker that answers, and does not wait long for models."""
    return start_broker(fault=limited(busy_ms=BUSY_MS))


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[Callable[..., RawHost]]:
    """Give a function that starts adapters; they end with the test."""
    hosts: list[RawHost] = []

    def start(*options: str, **more: Any) -> RawHost:
        hosts.append(RawHost(broker.home, *options, **more))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()
