"""Keep the open questions: who asked whom what, until it is answered or one of them leaves (protocol 6.5).

A question read back from the store is dormant: it counts as open for the ids it names, and it waits for both
sessions to register again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from msgspec import Struct

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.operation import Operation
from intercom.core.waits import Waits


class Question(Struct, eq=False):
    """Stand for one (asker, target, message id); ``operation`` is the ask's row, while there is one."""

    is_open = True

    asker_id: str
    target_id: str
    message_id: str
    operation: Operation
    asker_party: str
    target_party: str
    asker_return: str | None = None
    dormant: bool = False
    """The asker has not registered since the broker started."""
    deadline: Deadline | None = None
    target_wait: Deadline | None = None
    """Set while a returned asker waits for the other side to return."""

    @property
    def is_waiting(self) -> bool:
        """Tell whether one of the two sides has still to return after a restart."""
        return self.dormant or self.target_wait is not None


class Questions:
    """Find questions by both sides; ends them at their deadline.

    ``party_of`` tells for a session id, or the key of a mailbox, who that is.
    """

    def __init__(self, deadlines: Deadlines, waits: Waits, party_of: Callable[[str], str]) -> None:
        self._deadlines = deadlines
        self._waits = waits
        self._party_of = party_of
        self._by_asker: dict[str, dict[tuple[str, str], Question]] = {}
        self._by_target: dict[str, dict[tuple[str, str], Question]] = {}

    def __iter__(self) -> Iterator[Question]:
        return chain.from_iterable(asked.values() for asked in self._by_asker.values())

    def __len__(self) -> int:
        return sum(len(asked) for asked in self._by_asker.values())

    def open(self, asker_id: str, target_id: str, operation: Operation) -> Question:
        """Record a question and return it. The same triple twice has no effect."""
        known = self.find(asker_id, target_id, operation.message_id)
        if known is not None:
            return known
        asker_party, target_party = self._party_of(asker_id), self._party_of(target_id)
        question = Question(asker_id, target_id, operation.message_id, operation, asker_party, target_party)
        self._waits.begin(question)
        self._by_asker.setdefault(asker_id, {})[target_id, question.message_id] = question
        self._by_target.setdefault(target_id, {})[asker_id, question.message_id] = question
        operation.questions += (question,)
        question.deadline = self._deadlines.add(operation.question_due, self._expire, question)
        return question

    def find(self, asker_id: str, target_id: str, message_id: str) -> Question | None:
        """Return the open question of this triple."""
        asked = self._by_asker.get(asker_id)
        return asked.get((target_id, message_id)) if asked else None

    def close(self, question: Question) -> None:
        """Remove a question; one that is closed already is fine."""
        asked = self._by_asker.get(question.asker_id)
        if asked is None or asked.get((question.target_id, question.message_id)) is not question:
            return
        self._waits.end(question)
        del asked[question.target_id, question.message_id]
        if not asked:
            del self._by_asker[question.asker_id]
        owed = self._by_target[question.target_id]
        del owed[question.asker_id, question.message_id]
        if not owed:
            del self._by_target[question.target_id]
        others = list(question.operation.questions)
        others.remove(question)
        question.operation.questions = tuple(others)
        self._deadlines.cancel(question.deadline)
        self._deadlines.cancel(question.target_wait)

    def asked_by(self, session_id: str) -> list[Question]:
        """Return what this session waits for, oldest first."""
        return list(self._by_asker.get(session_id, {}).values())

    def owed_by(self, session_id: str) -> list[Question]:
        """Return what this session has not answered, oldest first."""
        return list(self._by_target.get(session_id, {}).values())

    def parties(self) -> set[str]:
        """Return who waits for an answer, and who owes one."""
        asked = [question for questions in self._by_asker.values() for question in questions.values()]
        return {question.asker_party for question in asked} | {question.target_party for question in asked}

    def count_asked_by(self, session_id: str) -> int:
        """Return how many questions this session has open."""
        return len(self._by_asker.get(session_id, ()))

    def wait_for_target(self, question: Question, due: int, action: Callable[[Question, Instant], None]) -> None:
        """Call ``action`` at ``due`` (monotonic ms) unless the other side has returned by then."""
        question.target_wait = self._deadlines.add(due, action, question)

    def target_returned(self, questions: Iterable[Question]) -> None:
        """Take those waits back."""
        for question in questions:
            self._deadlines.cancel(question.target_wait)
            question.target_wait = None

    def _expire(self, question: Question, now: Instant) -> None:
        question.deadline = None
        self.close(question)
