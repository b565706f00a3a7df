"""An answer that was sent instead of given as a reply (F67): what is taken for one, and what is not."""

from __future__ import annotations

import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.client import commands
from intercom.client.owing import Owing
from intercom.client.sending import SendOperation
from intercom.client.views import IncomingMessage, Receipt, view_of
from intercom.errors import NoBroker, SendRefused, TargetNotFound
from intercom.limits import ASK_MS, SEND_MS
from intercom.testing import MemoryBroker, MemorySession
from intercom.wire import reasons
from intercom.wire.frames import DeliveryFailed
from tests.support.client import PEER


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def planner(broker: MemoryBroker) -> MemorySession:
    return broker.connect("planner")


@pytest.fixture
def worker(broker: MemoryBroker) -> MemorySession:
    return broker.connect("worker")


def texts(session: MemorySession) -> list[str]:
    return [message.text for message in session.messages()]


@pytest.mark.parametrize("named", ["planner", " Planner ", "id", "prefix"])
def test_with_one_open_question_a_send_is_its_answer(planner: MemorySession, worker: MemorySession, named: str) -> None:
    question = planner.ask("worker", "2+2", message_id="q1")
    assert texts(worker) == ["2+2"]
    target = {"id": planner.id, "prefix": planner.id[:8]}.get(named, named)
    receipt = worker.send(target, "4").result()
    assert (receipt.state, receipt.inferred_reply_to, receipt.hint) == ("delivered", "q1", "")
    assert question.result().text == "4"
    assert texts(planner) == []
    later = worker.send(target, "and thanks")
    assert texts(planner) == ["and thanks"], "it owes nothing any more"
    assert later.result().inferred_reply_to is None


def test_while_the_question_is_in_hand(planner: MemorySession, worker: MemorySession) -> None:
    """The consumer has it and has not asked for the next one, which would confirm it."""
    question = planner.ask("worker", "2+2", message_id="q1")
    message = worker.receive()
    assert message is not None
    assert worker.send("planner", "4").result().inferred_reply_to == "q1"
    assert question.result().text == "4"
    assert worker.receive() is None


def test_what_nobody_has_read_is_not_being_answered(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    sent = worker.send("planner", "good morning")
    assert texts(planner) == ["good morning"]
    assert sent.result().inferred_reply_to is None and not question.done


def test_with_no_open_question_it_stays_plain(planner: MemorySession, worker: MemorySession) -> None:
    sent = worker.send("planner", "hello")
    assert texts(planner) == ["hello"]
    assert (sent.result().inferred_reply_to, sent.result().hint) == (None, "")


def test_with_several_it_stays_plain_and_tells_how_to_answer(planner: MemorySession, worker: MemorySession) -> None:
    first, second = (planner.ask("worker", text, message_id=text) for text in ("q1", "q2"))
    assert texts(worker) == ["q1", "q2"]
    sent = worker.send("planner", "4")
    assert texts(planner) == ["4"]
    receipt = sent.result()
    assert receipt.inferred_reply_to is None
    assert "planner asked 2 questions that are open" in receipt.hint and "(q1, q2)" in receipt.hint
    assert not first.done and not second.done
    worker.send("planner", "2", reply_to="q2")
    assert second.result().text == "2", "as the hint says"
    assert worker.send("planner", "1").result().inferred_reply_to == "q1"
    assert first.result().text == "1"


def test_questions_of_others_do_not_count(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    other = broker.connect("other")
    theirs, ours = other.ask("worker", "q1"), planner.ask("worker", "q2")
    assert texts(worker) == ["q1", "q2"]
    assert worker.send("planner", "2").result().inferred_reply_to is not None
    assert ours.result().text == "2" and not theirs.done


def test_progress_is_never_the_answer(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    sent = worker.send("planner", "still counting", progress=True)
    assert texts(planner) == ["still counting"]
    assert sent.result().inferred_reply_to is None and not question.done
    assert worker.send("planner", "4").result().inferred_reply_to is not None
    assert question.result().text == "4"


def test_the_supervisor_line_is_for_progress(broker: MemoryBroker) -> None:
    """Progress messages from a child are not taken as the answer, also of a supervisor that asked it."""
    boss = broker.connect("boss")
    child = broker.connect("child", supervisor=boss.authorize_child("child"))
    question = boss.ask("child", "how far?")
    assert texts(child) == ["how far?"]
    child.send_supervisor("half of it")
    assert texts(boss) == ["half of it"] and not question.done


def test_a_message_that_refers_to_another_says_so_itself(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    worker.send("planner", "about that", reply_to="something else")
    assert texts(planner) == ["about that"] and not question.done


def test_a_question_that_was_answered_is_not_owed(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    for message in worker.messages():
        message.reply("4")
    assert question.result().text == "4"
    sent = worker.send("planner", "bye")
    assert texts(planner) == ["bye"] and sent.result().hint == ""


@pytest.mark.parametrize("withdrawn", ["before it was read", "after it was read"])
def test_a_question_that_was_withdrawn_is_owed_by_nobody(
    planner: MemorySession, worker: MemorySession, withdrawn: str
) -> None:
    """F67, protocol 5.42: the message after it is what it says, and no question of another is in doubt."""
    question = planner.ask("worker", "2+2")
    if withdrawn == "before it was read":
        question.withdraw()
    assert texts(worker) == ["2+2"]
    question.withdraw()
    sent = worker.send("planner", "4")
    assert texts(planner) == ["4"]
    receipt = sent.result()
    assert (receipt.inferred_reply_to, receipt.hint) == (None, "")
    again = worker.send("planner", "5")
    assert texts(planner) == ["5"] and again.result().hint == ""


def test_a_reply_to_a_withdrawn_question_is_refused_once(planner: MemorySession, worker: MemorySession) -> None:
    """Design section 9: a reply says what it is, so it never becomes something else."""
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    assert message is not None and worker.receive() is None
    question.withdraw()
    with pytest.raises(SendRefused) as refused:
        message.reply("4").result()
    assert refused.value.code == "no_open_question"
    sent = worker.send("planner", "4")
    assert texts(planner) == ["4"] and sent.result().hint == ""


def test_a_namesake_of_the_asker_gets_what_is_addressed_to_it(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """F47, F51: a name leads to whoever has it now, and an answer meant for another never goes there as one."""
    question = planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    planner.set_presence(name="elder")
    other = broker.connect("planner")
    sent = worker.send("planner", "welcome")
    assert texts(other) == ["welcome"] and texts(planner) == []
    assert sent.result().inferred_reply_to is None and not question.done
    assert worker.send(planner.id, "4").result().inferred_reply_to is not None
    assert question.result().text == "4"


def test_an_asker_that_is_gone(planner: MemorySession, worker: MemorySession) -> None:
    planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    planner.close()
    with pytest.raises(TargetNotFound):
        worker.send("planner", "4").result()


def test_the_answer_may_be_repeated_under_its_id(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """F76: the connection breaks before the outcome is known; the second call means the same."""
    question = planner.ask("worker", "2+2", message_id="q1")
    assert texts(worker) == ["2+2"]
    broker.restart()
    sent = worker.send("planner", "4", message_id="a1")
    broker.advance(SEND_MS)
    assert sent.result().inferred_reply_to == "q1" and question.result().text == "4"
    assert texts(planner) == []


def test_a_message_that_is_repeated_does_not_become_the_answer(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """F76: it went out before the question came, so under its id it means what it meant then."""
    first = worker.send("planner", "hello", message_id="m1")
    assert texts(planner) == ["hello"] and first.result().state == "delivered"
    question = planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    again = worker.send("planner", "hello", message_id="m1").result()
    assert (again.state, again.inferred_reply_to, again.hint) == ("delivered", None, "")
    assert texts(planner) == [] and not question.done


def test_an_answer_that_is_repeated_after_its_question_is_the_same_answer(
    planner: MemorySession, worker: MemorySession
) -> None:
    """F76: the question is closed by then, and a plain message under that id would be another one."""
    question = planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    assert worker.send("planner", "4", message_id="a1").result().inferred_reply_to is not None
    assert question.result().text == "4"
    assert worker.send("planner", "4", message_id="a1").result().state == "delivered"
    assert texts(planner) == []


def test_nobody_waits_longer_than_an_ask_may(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    planner.ask("worker", "2+2")
    assert texts(worker) == ["2+2"]
    broker.advance(ASK_MS)
    sent = worker.send("planner", "too late")
    assert texts(planner) == ["too late"] and sent.result().hint == ""


def test_a_question_that_is_asked_again_is_owed_again(planner: MemorySession, worker: MemorySession) -> None:
    """F67, protocol 5.43: withdrawn, and asked again under its id"""
    planner.ask("worker", "2+2", message_id="q1").withdraw()
    message = worker.receive()
    assert message is not None and message.withdrawn
    sent = worker.send("planner", "good morning")
    assert texts(planner) == ["good morning"]
    assert sent.result().inferred_reply_to is None
    assert texts(worker) == [], "and it is confirmed by now"
    again = planner.ask("worker", "2+2", message_id="q1")
    assert texts(worker) == [] and not message.withdrawn
    assert worker.send("planner", "4").result().inferred_reply_to == "q1"
    assert again.result().text == "4"


def test_a_question_nobody_has_read_is_marked(planner: MemorySession, worker: MemorySession) -> None:
    """Protocol 5.42, 6.10.8: withdrawn and asked again before anybody took it"""
    asked = planner.ask("worker", "2+2", message_id="q1")
    asked.withdraw()
    again = planner.ask("worker", "2+2", message_id="q1")
    message = worker.receive()
    assert message is not None and not message.withdrawn
    again.withdraw()
    assert message.withdrawn, "what a consumer holds says so too"


def test_a_question_whose_asker_left_is_marked(broker: MemoryBroker, worker: MemorySession) -> None:
    """Protocol 6.5: the asker departs"""
    broker.connect("other").ask("worker", "2+2")
    passer = broker.connect("passer")
    passer.ask("worker", "3+3")
    passer.close()
    first, second = worker.messages()
    assert (first.withdrawn, second.withdrawn) == (False, True)


def test_what_went_out_as_an_answer_never_goes_out_as_a_plain_message_under_its_id() -> None:
    """Protocol 6.9.1: the same id with another meaning is a conflict, and the first may have arrived (F67)"""
    owing = Owing()
    owing.note(IncomingMessage(id="q1", text="ok?", sender=view_of(Raw(encode(PEER))), expects_reply=True), 0)
    refusal = DeliveryFailed("m1", reasons.OTHER_RECIPIENT)

    def begun() -> SendOperation[Receipt]:
        operation = commands.send(PEER["name"], "yes", message_id="m1", now=0, wall=0)
        owing.infer(operation, 0)
        operation.attempt("a", 0)
        return operation

    first = begun()
    first.abandon(NoBroker("gone"))
    again = begun()
    assert first.is_reply and again.is_reply
    again.refused(refusal, 0, None)
    assert again.is_reply and isinstance(again.error, SendRefused) and again.error.code == "other_recipient"


def test_what_stayed_plain_is_no_answer_when_it_is_sent_again() -> None:
    """Protocol 6.9.1: a message keeps the meaning under which it took effect (F67)"""
    owing = Owing()
    owing.note(IncomingMessage(id="q1", text="ok?", sender=view_of(Raw(encode(PEER))), expects_reply=True), 0)
    first = commands.send(PEER["name"], "yes", message_id="m1", now=0, wall=0)
    owing.infer(first, 0)
    first.attempt("a", 0)
    first.refused(DeliveryFailed("m1", reasons.NO_OPEN_QUESTION), 0, None)
    owing.learn(first)
    again = commands.send(PEER["name"], "yes", message_id="m1", now=0, wall=0)
    owing.infer(again, 0)
    assert not first.is_reply and not again.is_reply
