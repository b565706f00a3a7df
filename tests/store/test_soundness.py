"""Find a damaged page: before a small store is opened, and before anybody sends with a large one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from intercom.core.records import OperationState, ReadOperations, SaveBody, SaveOperation
from intercom.limits import RECALL_ROWS
from intercom.paths import Paths
from intercom.store.database import Store, StoreUnusable
from intercom.store.pair import read_only
from intercom.store.reader import Reader
from intercom.store.soundness import expect_sound
from tests.support.records import NOW, operation

BOUND_S = 10
TTL = 60_000
PAGE_BYTES = 4_096
MIDDLE = b"the middle"
BODY = b"x" * 20_000 + MIDDLE + b"x" * 20_000
"""Longer than a few pages, so that some of them are read by nothing at a start."""


def fill(store: Store, operations: int) -> None:
    """Commit a body and settled operations, and close."""
    settled = (
        SaveOperation(operation(number, state=OperationState.ACCEPTED, accepted_at=NOW - 1))
        for number in range(2, operations + 2)
    )
    store.commit([(1, (SaveBody(1, BODY), *settled))])
    store.close()


def spoil(database: Path) -> None:
    """Overwrite a page in the middle of the body with zeros."""
    content = database.read_bytes()
    begin = content.index(MIDDLE) // PAGE_BYTES * PAGE_BYTES
    database.write_bytes(content[:begin] + bytes(PAGE_BYTES) + content[begin + PAGE_BYTES :])


def test_a_sound_database_is_passed(open_store: Callable[..., Store], paths: Paths) -> None:
    fill(open_store(), 1)
    connection = read_only(paths.database)
    expect_sound(connection)
    connection.close()
    spoil(paths.database)
    connection = read_only(paths.database)
    with pytest.raises(StoreUnusable, match="is damaged"):
        expect_sound(connection)
    connection.close()


def test_a_small_store_is_looked_at_before_it_is_opened(open_store: Callable[..., Store], paths: Paths) -> None:
    """Design section 5, fail closed."""
    fill(open_store(), RECALL_ROWS)
    spoil(paths.database)
    before = paths.database.read_bytes()
    with pytest.raises(StoreUnusable, match="is damaged"):
        open_store()
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_large_one_is_looked_at_before_its_operations_come_back(
    open_store: Callable[..., Store], paths: Paths, is_damaged: bool
) -> None:
    """Whoever registers does not wait for it; whoever sends does."""
    fill(open_store(), RECALL_ROWS + 1)
    if is_damaged:
        spoil(paths.database)
    recovered = open_store().recovered
    assert (recovered.operations, recovered.left_until) == ([], RECALL_ROWS + 2)
    told = Event()
    reader = Reader(paths.database, told.set)
    reader.submit(ReadOperations(0, recovered.left_until, RECALL_ROWS, NOW, TTL))
    assert told.wait(BOUND_S)
    [read] = reader.done()
    reader.close(BOUND_S)
    assert (read.result is None) == is_damaged
    assert ("is damaged" in (read.trouble or "")) == is_damaged


def test_without_a_later_look_it_is_looked_at_at_once(open_store: Callable[..., Store], paths: Paths) -> None:
    """In memory nothing is read back later."""
    fill(open_store(), RECALL_ROWS + 1)
    spoil(paths.database)
    with pytest.raises(StoreUnusable, match="is damaged"):
        open_store(durability="memory")
