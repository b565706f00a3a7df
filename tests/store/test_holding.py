"""Test who is said to hold a database."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.paths import Paths
from intercom.store.database import Store
from intercom.store.holding import held_by, holder_of
from intercom.store.inspection import inspect
from tests.support.holding import database_held

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked")


@linux
@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT * FROM meta"])
def test_whoever_reads_or_writes_is_named(open_store: Callable[..., Store], paths: Paths, statement: str) -> None:
    """F128: also by who only looks."""
    open_store().close()
    assert holder_of(paths.database) is None
    with database_held(paths.database, statement) as holder:
        assert holder_of(paths.database) == holder
        trouble = inspect(paths).trouble
        assert trouble is not None
        assert (trouble.code, trouble.reason) == ("held", f"{paths.database} is held by process {holder}")
    assert holder_of(paths.database) is None
    assert inspect(paths).trouble is None


@pytest.mark.parametrize("what", ["missing", "directory", "database"])
def test_where_nobody_is_nobody_is_named(tmp_path: Path, what: str) -> None:
    database = tmp_path / "db"
    if what == "directory":
        database.mkdir()
    elif what == "database":
        sqlite3.connect(database).close()
    assert holder_of(database) is None
    assert held_by(database, None) == f"{database} is held by another program"
