"""What happens around a session is kept for those who listen, within bounds, and for nobody else."""

from __future__ import annotations

import gc

from intercom.client.feeds import Feed, Feeds, SessionEvent
from intercom.client.notices import News
from intercom.limits import EVENTS_KEPT


def left(number: int) -> SessionEvent:
    return SessionEvent(kind="left", session_id=str(number))


def test_events_come_in_order() -> None:
    feed = Feed()
    assert feed.take() is None
    assert not feed.has_news
    feed.put(left(1))
    feed.put(left(2))
    assert feed.has_news
    assert [feed.take(), feed.take(), feed.take()] == [left(1), left(2), None]


def test_the_oldest_go_first_and_are_counted() -> None:
    feed = Feed()
    for number in range(EVENTS_KEPT + 3):
        feed.put(left(number))
    assert feed.take() == SessionEvent(kind="missed", count=3)
    taken = [feed.take() for _ in range(EVENTS_KEPT)]
    assert taken == [left(number) for number in range(3, EVENTS_KEPT + 3)]
    assert feed.take() is None


def test_every_listener_has_all_of_them_from_its_beginning_on() -> None:
    feeds = Feeds(News())
    first = feeds.open()
    feeds.put(left(1))
    second = feeds.open()
    feeds.put(left(2))
    assert [first.take(), first.take(), first.take()] == [left(1), left(2), None]
    assert [second.take(), second.take()] == [left(2), None]


def test_a_listener_that_is_gone_costs_nothing() -> None:
    feeds = Feeds(News())
    assert not feeds
    feed = feeds.open()
    assert feeds
    del feed
    gc.collect()
    assert not feeds
