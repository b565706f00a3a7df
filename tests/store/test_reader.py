"""Test the reader thread: requests in order, what is committed only, trouble told and survived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from intercom.core.records import ReadBodies, ReadHistory, ReadJournal, SaveBody
from intercom.paths import Paths
from intercom.store.database import Store
from intercom.store.reader import Read, Reader
from tests.support.records import event, letter

BOUND_S = 10


class Desk:
    """Collect what a reader has read."""

    def __init__(self, paths: Paths) -> None:
        self.told = Event()
        self.reader = Reader(paths.database, self.told.set)

    def wait(self, count: int) -> list[Read]:
        found: list[Read] = []
        while len(found) < count:
            assert self.told.wait(BOUND_S)
            self.told.clear()
            found.extend(self.reader.done())
        return found


@pytest.fixture
def desk(paths: Paths) -> Iterator[Desk]:
    desk = Desk(paths)
    yield desk
    desk.reader.close(BOUND_S)


def test_it_reads_what_is_committed(open_store: Callable[..., Store], desk: Desk) -> None:
    store = open_store()
    store.commit([(1, (SaveBody(1, b"one"), event(1, letter(1), "mail.queued")))])
    desk.reader.submit(ReadBodies("a", (1, 2)))
    desk.reader.submit(ReadHistory("b", "mail:message-1"))
    desk.reader.submit(ReadJournal("j", 0, 10))
    bodies, events, page = desk.wait(3)
    assert (bodies.request.token, bodies.result) == ("a", {1: b"one"})
    assert [found.kind for found in events.result] == ["mail.queued"]
    assert (page.result.events, page.result.last) == ([event(1, letter(1), "mail.queued")], 1)
    store.commit([(2, (SaveBody(2, b"two"),))])
    desk.reader.submit(ReadBodies("c", (2,)))
    assert desk.wait(1)[0].result == {2: b"two"}


def test_trouble_is_told_and_the_next_request_tries_again(open_store: Callable[..., Store], desk: Desk) -> None:
    desk.reader.submit(ReadBodies("early", (1,)))
    [failed] = desk.wait(1)
    assert failed.result is None
    assert failed.trouble
    open_store().commit([(1, (SaveBody(1, b"one"),))])
    desk.reader.submit(ReadBodies("again", (1,)))
    assert desk.wait(1)[0].result == {1: b"one"}


def test_a_closed_reader_takes_nothing(open_store: Callable[..., Store], desk: Desk) -> None:
    open_store()
    desk.reader.submit(ReadBodies("a", (1,)))
    desk.wait(1)
    desk.reader.close(BOUND_S)
    desk.reader.submit(ReadBodies("b", (1,)))
    assert list(desk.reader.done()) == []
