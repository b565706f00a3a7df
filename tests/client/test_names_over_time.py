"""Names and ids that change while others use them, as a program sees it."""

from __future__ import annotations

import pytest

from intercom.errors import PeerGone, TargetNotFound
from intercom.limits import SEND_MS
from intercom.testing import MemoryBroker, MemorySession


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def planner(broker: MemoryBroker) -> MemorySession:
    return broker.connect("planner")


def texts(session: MemorySession) -> list[str]:
    return [message.text for message in session.messages()]


def test_a_send_by_name_reaches_who_has_it_or_nobody(broker: MemoryBroker, planner: MemorySession) -> None:
    """F47: rename in a loop while a peer sends by both names; the new one works at once, the old one no more."""
    worker, other = broker.connect("worker-0"), broker.connect("other")
    for number in range(20):
        old, new = f"worker-{number}", f"worker-{number + 1}"
        worker.set_presence(name=new)
        assert [view.name for view in planner.list()] == ["planner", new, "other"]
        with pytest.raises(TargetNotFound):
            planner.send(old, "stale").result()
        sent = planner.send(new, str(number))
        assert texts(worker) == [str(number)]
        assert sent.result().target == new
    assert texts(other) == []
    assert worker.id in {view.id for view in planner.list()}, "its id never changed"


def test_two_sessions_that_change_places(broker: MemoryBroker, planner: MemorySession) -> None:
    """F47: at no moment does a name lead to both, and in between it leads to nobody."""
    first, second = broker.connect("a"), broker.connect("b")
    first.set_presence(name="moving")
    with pytest.raises(TargetNotFound):
        planner.send("a", "?").result()
    second.set_presence(name="a")
    first.set_presence(name="b")
    sent = [planner.send("a", "to the new a"), planner.send("b", "to the new b")]
    assert (texts(second), texts(first)) == (["to the new a"], ["to the new b"])
    assert [each.result().state for each in sent] == ["delivered"] * 2


def test_who_comes_back_under_another_id_is_there_once_and_nobody_waits_for_it(
    broker: MemoryBroker, planner: MemorySession
) -> None:
    """F49: the asker is told at once, and the list has no ghost."""
    worker = broker.connect("worker")
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    assert message is not None and worker.receive() is None
    worker.close()
    again = broker.connect("worker")
    assert again.id != worker.id
    with pytest.raises(PeerGone):
        question.result()
    assert [view.id for view in planner.list() if view.name == "worker"] == [again.id]


def test_who_rebinds_to_its_id_answers_what_it_was_asked_before(broker: MemoryBroker, planner: MemorySession) -> None:
    """F49: with the return address of the session before; protocol 6.1, 6.10."""
    worker = broker.connect("worker", return_address="secret")
    question = planner.ask("worker", "2+2")
    assert worker.receive() is not None
    worker.close(finished=False)
    again = broker.connect("worker", return_address="secret", session_id=worker.id)
    assert [view.id for view in planner.list() if view.name == "worker"] == [worker.id]
    for message in again.messages():
        message.reply("4")
    broker.advance(SEND_MS)
    assert question.result().text == "4"


def test_a_reply_goes_to_who_asked_whatever_it_is_called_now(broker: MemoryBroker, planner: MemorySession) -> None:
    """F51: also when the name belongs to another session by now."""
    worker = broker.connect("worker")
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    assert message is not None
    planner.set_presence(name="elder")
    namesake = broker.connect("planner")
    message.reply("4")
    assert question.result().text == "4"
    assert texts(namesake) == []
