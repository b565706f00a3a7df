from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Shell


@pytest.fixture
def shell(home: Path, tmp_path: Path) -> Iterator[Shell]:
    """Give a place to run commands in; no broker runs yet."""
    made = Shell(home, tmp_path)
    yield made
    made.close()
