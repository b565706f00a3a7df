"""Workers and coordinators with the broker in memory: the rules of the broker and the client of the library."""

from __future__ import annotations

import pytest

from intercom.errors import AssignmentLost, RequestRefused
from intercom.limits import Limits
from intercom.testing import Assignment, MemoryBroker, MemorySession

ACCEPT_MS = Limits().accept_ms


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def lead_of(broker: MemoryBroker) -> MemorySession:
    return broker.connect("lead", coordinator=True)


def parked(planner: MemorySession, text: str = "count the words", target: str = "worker") -> str:
    """Send a message to a worker and return its id: it waits in the inbox."""
    receipt = planner.send(target, text).result()
    assert receipt.state == "queued"
    return receipt.message_id


def next_work(worker: MemorySession, **options: bool) -> Assignment:
    return next(iter(worker.assignments(**options)))


def texts(session: MemorySession) -> list[str]:
    return [message.text for message in session.messages()]


def test_from_the_message_to_the_answer(broker: MemoryBroker) -> None:
    """FE 1.1: whoever hands over work can see whether it was taken, is in progress, or was answered."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    message_id = parked(planner)
    [item] = lead.inbox().items
    assert (item.id, item.preview, item.target, item.claim_policy) == (
        message_id, "count the words", "worker", "bound_session",
    )  # fmt: skip
    assert lead.inbox_message(item.id).text == "count the words"
    assert (worker.inbox_presence().bound, worker.inbox_presence().assigned) == (1, 0)
    order = lead.dispatch(item.id, worker.id)
    assert order.handed_to == "session"
    [seen] = lead.open_assignments()
    assert (seen.id, seen.session_id, seen.accepted) == (order.assignment_id, worker.id, False)
    for work in worker.assignments():
        assert (work.id, work.text, work.source_message_id) == (order.assignment_id, "count the words", message_id)
        work.accept()
        work.started()
        assert lead.assignment(work.id).state == "started"
        answer = work.reply("3")
        [reply] = planner.messages()
        assert (reply.text, reply.reply_to) == ("3", message_id)
        assert answer.result().state == "delivered"
    assert lead.open_assignments() == []
    assert lead.inbox().items == ()


def test_a_worker_takes_what_is_parked_for_it(broker: MemoryBroker) -> None:
    planner, worker = broker.connect("planner"), broker.connect("worker", work_mode="resident")
    for text in ("one", "two"):
        parked(planner, text)
    done = []
    for work in worker.assignments(accept=True, claim=True):
        done.append(work.text)
        work.reply(work.text.upper())
        assert texts(planner) == [work.text.upper()]
    assert done == ["one", "two"]


def test_a_worker_with_turns(broker: MemoryBroker) -> None:
    """FE 1.5, staged delivery."""
    planner, lead = broker.connect("planner"), lead_of(broker)
    worker = broker.connect("worker", work_mode="managed_turn", runtime_session_id="host-1")
    assert worker.wait_for_assignment(timeout=60) is None
    assert list(worker.assignments()) == []
    order = lead.dispatch(parked(planner), worker.id)
    assert order.handed_to == "staging"
    work = next_work(worker)
    assert (work.id, work.view.mode) == (order.assignment_id, "staged")
    with work:
        work.reply("3")
        assert texts(planner) == ["3"]


def test_what_is_not_accepted_goes_back(broker: MemoryBroker) -> None:
    """A1.7, and FE 1.3: a late report -> assignment_unknown."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    message_id = parked(planner)
    lead.dispatch(message_id, worker.id)
    work = next_work(worker)
    broker.advance(ACCEPT_MS)
    with pytest.raises(AssignmentLost) as caught:
        work.accept()
    assert caught.value.code == "assignment_unknown"
    [item] = lead.inbox().items
    assert (item.returns, item.return_reason, item.assignment_id) == (1, "acceptance_timeout", None)


def test_what_comes_back_is_not_shown_any_more(broker: MemoryBroker) -> None:
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    lead.dispatch(parked(planner), worker.id)
    broker.advance(ACCEPT_MS)
    assert list(worker.assignments()) == []


def test_work_that_is_refused_goes_to_somebody_else(broker: MemoryBroker) -> None:
    planner, lead = broker.connect("planner"), lead_of(broker)
    first, second = broker.connect("worker", work_mode="resident"), broker.connect("other", work_mode="resident")
    message_id = parked(planner)
    lead.dispatch(message_id, first.id)
    next_work(first).fail("not my department", retryable=True)
    lead.dispatch(message_id, second.id)
    with next_work(second) as work:
        work.reply("3")
        assert texts(planner) == ["3"]


def test_work_for_who_is_away_waits_in_its_mailbox(broker: MemoryBroker) -> None:
    """FE 1.3: reconnecting -> mailbox append with the assignment inside; A1.8 without the deadline."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    message_id = parked(planner)
    lead.dispatch(message_id, worker.id)
    work = next_work(worker)
    work.accept()
    worker.cut()
    broker.advance(0)
    work.started()
    work.reply("3")
    assert texts(planner) == ["3"]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_broker_that_dies_loses_no_work(broker: MemoryBroker, accepted: bool) -> None:
    """A1.13 and FE 1.7: the same assignment is offered again, and shown once; what is accepted stays so."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    order = lead.dispatch(parked(planner), worker.id)
    work = next_work(worker)
    if accepted:
        work.accept()
    broker.crash()
    broker.restart()
    broker.advance(2_000)
    assert worker.online
    work.accept()
    assert list(worker.assignments()) == [], "the copy is known as a copy"
    assert [view.id for view in lead.open_assignments()] == [order.assignment_id]
    answer = work.reply("3")
    assert texts(planner) == ["3"]
    assert answer.result().state == "delivered"


def test_an_answer_to_who_is_away_waits(broker: MemoryBroker) -> None:
    lead, worker = lead_of(broker), broker.connect("worker", work_mode="resident")
    planner = broker.connect("planner", address=True)
    lead.dispatch(parked(planner), worker.id)
    planner.close()
    with next_work(worker) as work:
        assert work.reply("3").result().state == "queued"
    assert texts(broker.connect("planner", address=True)) == ["3"]


def test_an_answer_is_sent_once(broker: MemoryBroker) -> None:
    """A1.11: three times the same, one message leaves; a fourth with changed text is a conflict."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    lead.dispatch(parked(planner), worker.id)
    work = next_work(worker)
    work.accept()
    first = work.reply("3")
    assert texts(planner) == ["3"]
    ids = {first.result().message_id, work.reply("3").result().message_id, work.reply("3").result().message_id}
    assert len(ids) == 1
    assert texts(planner) == []
    with pytest.raises(RequestRefused) as caught:
        work.reply("4").result()
    assert caught.value.code == "reply_idempotency_conflict"


def test_an_order_is_carried_out_once(broker: MemoryBroker) -> None:
    """A1.9: one key, one assignment, equal answers."""
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    message_id = parked(planner)
    assert lead.dispatch(message_id, worker.id, key="k") == lead.dispatch(message_id, worker.id, key="k")
    assert len(lead.open_assignments()) == 1


def test_others_may_not_report(broker: MemoryBroker) -> None:
    """A1.14."""
    planner, lead = broker.connect("planner"), lead_of(broker)
    worker, other = broker.connect("worker", work_mode="resident"), broker.connect("other", work_mode="resident")
    lead.dispatch(parked(planner), worker.id)
    work = next_work(worker)
    with pytest.raises(AssignmentLost):
        other.report(work, "accepted")
    assert not lead.assignment(work.id).accepted
    work.accept()


def test_whoever_acts_under_the_address_goes_on(broker: MemoryBroker) -> None:
    """Design section 7, identity: one claims, another reports, a third answers; each ends before the next begins."""
    planner, lead = broker.connect("planner"), lead_of(broker)
    desk = broker.connect("desk", work_mode="resident")
    message_id = parked(planner, target="desk")

    def command() -> MemorySession:
        return broker.connect("ada", address=True, hold="none", work_mode="managed_turn", runtime_session_id="ada")

    waiting = command()
    order = lead.dispatch(message_id, waiting.id)
    work = waiting.wait_for_assignment()
    assert work is not None
    assert work.id == order.assignment_id
    waiting.close()
    for state in ("accepted", "started"):
        session = command()
        [view] = session.open_assignments()
        session.report(view, state)
        session.close()
    session = command()
    answer = session.reply_to(session.assignment(order.assignment_id), "3")
    assert texts(planner) == ["3"]
    assert answer.result().state == "delivered"
    desk.close()


def test_a_worker_that_leaves_gives_back_at_once(broker: MemoryBroker) -> None:
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    first, second = parked(planner, "one"), parked(planner, "two")
    lead.dispatch(first, worker.id)
    lead.dispatch(second, worker.id)
    works = [next_work(worker), next_work(worker)]
    works[0].accept()
    worker.close()
    assert lead.open_assignments() == [], "what was accepted is over too: nobody is left who could go on"
    [item] = lead.inbox().items
    assert (item.id, item.assignment_id) == (second, None)


def test_what_a_worker_says_in_a_block(broker: MemoryBroker) -> None:
    planner, lead, worker = broker.connect("planner"), lead_of(broker), broker.connect("worker", work_mode="resident")
    lead.dispatch(parked(planner), worker.id)
    with pytest.raises(ZeroDivisionError), next_work(worker) as work:
        raise ZeroDivisionError
    assert (work.state, work.is_over) == ("failed", True)
    assert lead.open_assignments() == []


def test_what_needs_nobody_any_more(broker: MemoryBroker) -> None:
    planner, worker = broker.connect("planner"), broker.connect("worker", work_mode="resident")
    worker.settle(parked(planner))
    assert worker.inbox_presence().claimable == 0
    with pytest.raises(RequestRefused) as caught:
        worker.claim("never-there")
    assert caught.value.code == "inbox_unknown"


def test_questions_and_answers_reach_a_worker_as_ever(broker: MemoryBroker) -> None:
    """A1.5: a continuation is pushed; design section 7: so is an ask."""
    planner, worker = broker.connect("planner"), broker.connect("worker", work_mode="resident")
    question = planner.ask("worker", "ready?")
    for message in worker.messages():
        message.reply("yes")
    assert question.result().text == "yes"
    worker.send("planner", "how many?")
    [asked] = planner.messages()
    answer = planner.send("worker", "three", reply_to=asked.id)
    assert texts(worker) == ["three"]
    assert answer.result().state == "delivered"
