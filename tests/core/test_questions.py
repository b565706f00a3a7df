"""Test the register of open questions: pairs, both ways to find them, and the deadline that ends them."""

from __future__ import annotations

from typing import Any

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.questions import Question, Questions
from intercom.core.waits import Waits
from tests.core.harness import operation_of


def ask(message_id: str, due: int = 100) -> Any:
    return operation_of(message_id, question_due=due)


def register(deadlines: Deadlines | None = None) -> Questions:
    return Questions(Deadlines() if deadlines is None else deadlines, Waits(), str)


def ids(questions: list[Question]) -> list[tuple[str, str, str]]:
    return [(question.asker_id, question.target_id, question.message_id) for question in questions]


def test_a_question_is_a_triple_and_the_same_triple_twice_is_one() -> None:
    """protocol 6.5: one message id may have several pairs"""
    questions, operation = register(), ask("q")
    first = questions.open("a", "b", operation)
    assert questions.open("a", "b", operation) is first and len(questions) == 1
    questions.open("a", "c", operation)
    questions.open("d", "b", operation)
    assert len(questions) == 3 and len(operation.questions) == 3
    assert questions.find("a", "b", "q") is first
    for asker, target, message_id in (("b", "a", "q"), ("a", "b", "Q"), ("a", "d", "q"), ("x", "b", "q")):
        assert questions.find(asker, target, message_id) is None


def test_questions_are_found_from_both_sides_oldest_first() -> None:
    """protocol 6.15: asked by it, and to it"""
    questions = register()
    for asker, target, message_id in (("a", "b", "1"), ("a", "c", "2"), ("d", "b", "3"), ("a", "b", "4")):
        questions.open(asker, target, ask(message_id))
    assert ids(questions.asked_by("a")) == [("a", "b", "1"), ("a", "c", "2"), ("a", "b", "4")]
    assert ids(questions.owed_by("b")) == [("a", "b", "1"), ("d", "b", "3"), ("a", "b", "4")]
    assert questions.count_asked_by("a") == 3 and questions.count_asked_by("b") == 0
    assert questions.asked_by("b") == [] and questions.owed_by("a") == []


def test_closing_removes_one_pair_and_its_deadline() -> None:
    """protocol 6.5: that one pair is removed; closing twice is fine"""
    deadlines = Deadlines()
    questions, operation = register(deadlines), ask("q")
    closed, kept = questions.open("a", "b", operation), questions.open("a", "c", operation)
    for _ in range(2):
        questions.close(closed)
    assert operation.questions == (kept,) and ids(questions.asked_by("a")) == [("a", "c", "q")]
    assert questions.owed_by("b") == [] and len(deadlines) == 1
    again = questions.open("a", "b", operation)
    questions.close(closed)
    assert questions.find("a", "b", "q") is again, "a closed question cannot close its successor"


def test_the_deadline_ends_a_question() -> None:
    """design 5 "Asks survive": the ask's deadline ends it"""
    deadlines = Deadlines()
    questions = register(deadlines)
    questions.open("a", "b", ask("q", 100))
    questions.open("a", "b", ask("r", 200))
    deadlines.run(Instant(99, 0))
    assert len(questions) == 2
    deadlines.run(Instant(100, 0))
    assert ids(questions.asked_by("a")) == [("a", "b", "r")]


def test_a_wait_for_the_target_ends_with_its_return_or_the_question() -> None:
    """design 5 "Asks survive" """
    deadlines = Deadlines()
    questions = register(deadlines)
    called: list[Question] = []
    returned, closed, waiting = (questions.open("a", target, ask("q", 1_000)) for target in "bcd")
    for question in (returned, closed, waiting):
        questions.wait_for_target(question, 50, lambda question, now: called.append(question))
    questions.target_returned([returned])
    questions.close(closed)
    deadlines.run(Instant(60, 0))
    assert called == [waiting]
