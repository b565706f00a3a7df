"""Give the client's tests a home whose broker, whoever started it, is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.client import control
from intercom.errors import IntercomError
from intercom.paths import Paths
from tests.support.brokers import TOP
from tests.support.launching import until


@pytest.fixture
def paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    """Give the files of a home of its own; a broker that runs there at the end is asked to leave."""
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.delenv("INTERCOM_HOME", raising=False)
    found = Paths(home)
    yield found
    try:
        control.shutdown(found)
    except IntercomError:
        return
    until(lambda: not os.path.exists(found.socket))
