"""Give the tests of the store a home, and close what they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import Paths
from intercom.store.database import Store
from tests.support.records import NOW


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def open_store(paths: Paths) -> Iterator[Callable[..., Store]]:
    """Open the store of the test's home; what is still open at the end is closed."""
    opened: list[Store] = []

    def open_now(now_ms: int = NOW, **options: Any) -> Store:
        store = Store.open(paths, now_ms, **options)
        opened.append(store)
        return store

    yield open_now
    for store in opened:
        store.close()
