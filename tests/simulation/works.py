"""Let somebody have things done, workers take them out of the inbox, and a coordinator hand out what lies there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intercom.client import commands
from intercom.client.assignment import Assignment
from intercom.client.operations import Operation
from intercom.client.views import IncomingMessage, Receipt
from intercom.client.workviews import AssignmentView
from intercom.core.records import AssignmentRecord, InboxRecord
from intercom.errors import AssignmentLost, IntercomError, MessageConflict, OutcomeUnknown, SendError
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_JOBS = 8
_TIMEOUT = 20.0
_LISTED = 50
_ENDING = frozenset({"failed", "expired", "reply"})


@dataclass(eq=False)
class Job:
    """Hold one message that is work."""

    id: str
    is_kept: bool = False
    """Its sender was told that it is on disk."""
    was_refused: bool = False
    taken_by: list[str] = field(default_factory=list)
    """Assignments of which a worker was told that it has taken them."""
    ended_by: dict[str, str] = field(default_factory=dict)
    """How an assignment ended, as its worker was told."""
    may_have_ended: bool = False
    """A worker that had taken it has gone, or was not told what became of its last word."""
    replies: set[str] = field(default_factory=set)
    is_noticed: bool = False


class Works(Part):
    """Hold one who has things done, two workers and a coordinator."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.jobs: dict[str, Job] = {}
        self.answers: dict[str, set[str]] = {}
        """What workers wrote as the answer to each, from the moment they sent it."""
        self.sessions: list[str] = []
        """Ids of sessions that take work, or did."""
        self.sender = self.add(Role("pat", address=True), Sender)
        resident = (("work_mode", "resident"),)
        turns = (("work_mode", "managed_turn"), ("runtime_session_id", "wim"))
        self.workers = [
            self.add(Role("wes", address=True, takes_work=True, also=resident), Worker),
            self.add(Role("wim", takes_work=True, also=turns), Worker),
        ]
        self.add(Role("cora", address=True, also=(("coordinator", True),)), Coordinator)

    def handed(self, work: Assignment) -> Job:
        """Take notice that a worker is given work, perhaps so late that it is somebody else's by now."""
        job = self.jobs.get(work.message.id)
        if job is None or work.message.text != f"do {job.id}":
            raise Broken("as-it-was-sent", f"{work.id} brings {work.message.id} {work.message.text!r}")
        if job.was_refused:
            raise Broken("refused-is-true", f"{job.id} was refused, and then handed over as {work.id}")
        return job

    def said(self, work: Assignment | AssignmentView, word: str, operation: Operation[Any]) -> None:
        """Take notice of what a worker was told of what it said."""
        job = self.jobs[work.source_message_id]
        error = operation.error
        self.tell(f"the word {word} of {work.id} ({job.id}): {operation.result or repr(error)}")
        if error is None:
            if word != "given back":
                self._taken(job, work.id)
            if word in _ENDING:
                if job.ended_by.get(work.id, word) != word:
                    raise Broken("one-outcome", f"{work.id} was {job.ended_by}, and then {word}")
                job.ended_by[work.id] = word
        elif not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        elif not isinstance(error, AssignmentLost):
            job.may_have_ended |= word in _ENDING

    def _taken(self, job: Job, assignment_id: str) -> None:
        if assignment_id not in job.taken_by:
            job.taken_by.append(assignment_id)
        if len(job.taken_by) > 1:
            raise Broken("one-worker", f"{job.id} was taken by several: {job.taken_by}")

    def answered(self, message: IncomingMessage) -> None:
        """Take notice that the sender sees an answer to its work."""
        assert message.reply_to is not None
        job = self.jobs[message.reply_to]
        if message.text not in self.answers.get(job.id, ()):
            raise Broken("answers-are-answers", f"{job.id} was answered by {message.text!r}")
        job.replies.add(message.id)
        if len(job.replies) > 1:
            raise Broken("one-outcome", f"{job.id} was answered by several: {job.replies}")

    def at_rest(self) -> None:
        """Hold that no work is lost, and that every answer arrived."""
        if left := [row.inbox_id for row in self.rows(InboxRecord)] + [
            row.assignment_id for row in self.rows(AssignmentRecord)
        ]:
            raise Broken("comes-to-rest", f"it is nobody's for ever: {left}")
        for job in self.jobs.values():
            is_over = job.ended_by or job.taken_by or job.may_have_ended or job.is_noticed
            if job.is_kept and not is_over:
                raise Broken("queued-arrives", f"the work {job.id} is lost: {job}")
            if "reply" in job.ended_by.values() and not job.replies:
                raise Broken("queued-arrives", f"the answer to {job.id} is lost: {job}")


class Sender(Actor):
    """Have things done."""

    part: Works

    def act(self) -> bool:
        """Send something to a worker."""
        if self.chance.random() < 0.3 or len(self.part.jobs) >= _JOBS:
            return False
        assert self.core is not None
        job = Job(self.part.name("job"))
        self.part.jobs[job.id] = job
        target = self.chance.choice(self.part.workers).name
        self.part.tell(f"{self.name} sends {job.id} to {target}")
        operation = commands.send(
            target,
            f"do {job.id}",
            message_id=self.core.new_id(job.id),
            now=self.clock.now.mono,
            wall=self.clock.now.wall,
            queue=True,
            valid_for_ms=None,
        )
        self.does(operation, lambda operation: self._told(job, operation))
        return True

    def _told(self, job: Job, operation: Operation[Receipt]) -> None:
        receipt, error = operation.result, operation.error
        self.part.tell(f"{self.name} is told of {job.id}: {receipt.state if receipt is not None else repr(error)}")
        job.is_kept = receipt is not None
        job.was_refused = isinstance(error, SendError) and not isinstance(error, OutcomeUnknown | MessageConflict)
        if job.was_refused and job.taken_by:
            raise Broken("refused-is-true", f"{job.id} was taken by {job.taken_by}, and then: {error!r}")

    def sees(self, message: IncomingMessage) -> None:
        """Be shown an answer, a notice, or a letter."""
        about = message.notice.message_id if message.notice is not None else message.reply_to
        if about not in self.part.jobs:
            super().sees(message)
            return
        self.is_handed(message)
        if message.notice is None:
            self.part.answered(message)
        else:
            self.part.jobs[about].is_noticed = True


class Worker(Actor):
    """Take work, and say how far it is."""

    part: Works
    hands: dict[str, Assignment | AssignmentView]
    claimed: set[str]
    """Assignments of which it said that it accepts them, whether it was heard or not."""
    unheard: dict[str, Assignment | AssignmentView]
    """What it said that it ended, and was not told of yet."""
    has_looked: bool
    """It knows what those had accepted that acted under its address before."""

    def start(self) -> None:
        """Begin with nothing in hand."""
        self.hands = {}
        self.claimed = set()
        self.unheard = {}
        self.has_looked = self.role.address is False
        super().start()

    def die(self) -> None:
        """Leave what was taken to be cut off."""
        for work in self.hands.values():
            self.part.jobs[work.source_message_id].may_have_ended |= work.accepted or work.id in self.claimed
        for work in self.unheard.values():
            self.part.jobs[work.source_message_id].may_have_ended = True
        self.hands, self.unheard = {}, {}
        super().die()

    def act(self) -> bool:
        """Take something, or go on with what is in hand."""
        assert self.core is not None
        if self.is_online and self.core.session_id not in self.part.sessions:
            self.part.sessions.append(self.core.session_id)
        if not self.hands or self.chance.random() < 0.3:
            return self._take(claims=self.chance.random() < 0.6)
        work = self.hands[self.chance.choice(sorted(self.hands))]
        self._say(work, self.chance.choice(("accepted", "started", "reply", "failed", "expired", "given back")))
        return True

    def end_matters(self) -> bool:
        """Take and answer everything."""
        if self.core is None or self.tasks:
            return False
        if self.hands:
            work = next(iter(self.hands.values()))
            self._say(work, "reply" if work.accepted else "accepted")
            return True
        if not self.has_looked:
            self.does(self.core.work.open_assignments(0, _LISTED, _TIMEOUT), self._looked)
            return True
        return self.core.has_work(self.clock.now.wall, claims=True) and self._take(claims=True)

    def _looked(self, operation: Operation[list[AssignmentView]]) -> None:
        """Go on with what somebody had accepted who acted under the same address."""
        self.part.tell(f"{self.name} is told of its assignments: {operation.result or repr(operation.error)}")
        if operation.result is not None:
            self.has_looked = True
            self.hands |= {view.id: view for view in operation.result if view.accepted}

    def _take(self, *, claims: bool) -> bool:
        assert self.core is not None
        try:
            work = self.core.take_work(self.clock.now.wall, self.clock.now.mono + 5_000, claims=claims)
        except IntercomError as error:
            self.part.tell(f"{self.name} is told: {error!r}")
            work = None
        self._look()
        if work is not None:
            self.part.tell(f"{self.name} {self.pid} is handed {work.id} ({work.source_message_id})")
            self.part.handed(work)
            self.hands[work.id] = work
        return True

    def _say(self, work: Assignment | AssignmentView, word: str) -> None:
        assert self.core is not None
        self.part.tell(f"{self.name} {self.pid} says {word} of {work.id} ({work.source_message_id})")
        if word == "reply" and not work.accepted:
            word = "accepted"
        if word == "accepted":
            self.claimed.add(work.id)
        if word == "reply":
            text = f"answer of {work.id}"
            self.part.answers.setdefault(work.source_message_id, set()).add(text)
            operation: Operation[Any] = self.core.work.reply(work, text, (), None, _TIMEOUT)
        elif word == "given back":
            if work.accepted:
                return
            # Acceptance it was not told of may have been heard: then this is its end.
            self.part.jobs[work.source_message_id].may_have_ended |= work.id in self.claimed
            operation = self.core.work.report(work, "failed", None, None, True, None, _TIMEOUT)
        else:
            operation = self.core.work.report(work, word, None, None, False, None, _TIMEOUT)
        if word in _ENDING or word == "given back":
            self.hands.pop(work.id, None)
        if word in _ENDING:
            self.unheard[work.id] = work
        self.does(operation, lambda operation: self._told(work, word, operation))

    def _told(self, work: Assignment | AssignmentView, word: str, operation: Operation[Any]) -> None:
        self.unheard.pop(work.id, None)
        self.part.said(work, word, operation)
        if isinstance(operation.error, AssignmentLost):
            self.hands.pop(work.id, None)
        elif operation.error is not None:
            self.hands[work.id] = work  # it is to be said again


class Coordinator(Actor):
    """Hand out what lies in the inbox."""

    part: Works

    def act(self) -> bool:
        """Hand out something, to somebody who is there or was."""
        return self.chance.random() < 0.6 and self._hand_out(self.part.sessions)

    def end_matters(self) -> bool:
        """Hand out everything that nobody claims."""
        here = [worker.core.session_id for worker in self.part.workers if worker.core is not None and worker.is_online]
        return not self.tasks and self._hand_out(here)

    def _hand_out(self, sessions: list[str]) -> bool:
        parked = [row for row in self.part.rows(InboxRecord) if row.assignment is None]
        if self.core is None or not parked or not sessions:
            return False
        inbox_id, session_id = self.chance.choice(parked).inbox_id, self.chance.choice(sessions)
        self.part.tell(f"{self.name} hands out {inbox_id} to {session_id}")
        operation = self.core.work.dispatch(inbox_id, session_id, None, None, None, _TIMEOUT)
        self.does(operation, lambda operation: self._told(inbox_id, operation))
        return True

    def _told(self, inbox_id: str, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} is told of {inbox_id}: {operation.result or repr(operation.error)}")
        if operation.error is not None and not isinstance(operation.error, IntercomError):
            raise Broken("errors-are-ours", repr(operation.error))
