"""Let somebody have tasks done by others, now or when they can, and others do them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intercom.client.invoking import Accepted, Asked, Diagnosis, InvocationView
from intercom.client.operations import Operation
from intercom.client.views import IncomingMessage
from intercom.core.invocation_records import InvocationRecord
from intercom.errors import IntercomError, RequestRefused
from intercom.wire.invocations import CANCEL_PREFIX
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_TASKS = 8
_TIMEOUT = 20.0
_ENDED = frozenset({"completed", "failed", "cancelled"})
_NOT_ITS_OWN = frozenset({"run_terminal", "invocation_unknown"})
"""Refusals after which nobody says anything again: it is over, or belonged to a session that has ended."""


@dataclass(eq=False)
class Task:
    """Hold one invocation."""

    id: str
    target: str
    run_id: str | None = None
    is_accepted: bool = False
    ended: str | None = None
    """How it ended, as somebody was told."""
    said: str | None = None
    """What its target said the end is, from the moment it sent that."""
    done_by: str | None = None
    """Who was told that its last word counts."""


class Invocations(Part):
    """Hold one who has tasks done, and two who do them."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.requested: dict[str, Task] = {}
        self.unsaid: dict[str, list[str]] = {}
        """Tasks of which somebody has said the last word, and does not know whether it counts."""
        self.requester = self.add(Role("rita", address=True), Requester)
        self.doers = [self.add(Role("doug", address=True), Doer), self.add(Role("dora"), Doer)]

    def looked(self, task: Task, state: str, *, may_be_undone: bool) -> None:
        """Take notice of what a run is said to be; what the broker only assumed may turn out otherwise."""
        if task.ended is not None and task.ended != state:
            raise Broken("one-outcome", f"{task.id} was {task.ended}, and is {state}")
        if state in _ENDED and not may_be_undone:
            task.ended = state
        if state == "completed" and task.said != "completed":
            raise Broken("done-is-true", f"{task.id} is completed, and its target said {task.said}")

    def at_rest(self) -> None:
        """Hold that every task is over, and none is lost."""
        rows = {row.invocation_id: row for row in self.rows(InvocationRecord)}
        for task in self.requested.values():
            row = rows.get(task.id)
            if row is None:
                if task.is_accepted:
                    raise Broken("accepted-is-kept", f"the invocation {task.id} is lost")
                continue
            if row.state not in _ENDED:
                raise Broken("comes-to-rest", f"{task.id} goes on for ever: {row}")
            self.looked(task, row.state, may_be_undone=row.reconciled)
            if task.done_by is not None and row.state != task.said:
                raise Broken("accepted-is-kept", f"{task.id} was ended by {task.done_by} as {task.said}: {row}")


class Requester(Actor):
    """Have tasks done, and look what became of them."""

    part: Invocations

    def act(self) -> bool:
        """Ask for something, ask again, look, or cancel."""
        luck, known = self.chance.random(), sorted(self.part.requested)
        if luck < 0.15:
            return False
        if len(known) < _TASKS and luck < 0.6:
            doer = self.chance.choice(self.part.doers).name
            task = Task(self.part.name("task"), doer)
            self.part.requested[task.id] = task
            self._invoke(task)
        elif known and luck < 0.7:
            self._invoke(self.part.requested[self.chance.choice(known)])
        elif known and luck < 0.9:
            self._look_at(self.part.requested[self.chance.choice(known)])
        elif known:
            self._cancel(self.part.requested[self.chance.choice(known)])
        return True

    def _invoke(self, task: Task) -> None:
        assert self.core is not None
        self.part.tell(f"{self.name} invokes {task.target} for {task.id}")
        operation = self.core.invoking.invoke(
            f"@{task.target}", f"do {task.id}", "execute", False, None, task.id, Asked(), _TIMEOUT
        )
        self.does(operation, lambda operation: self._invoked(task, operation))

    def _invoked(self, task: Task, operation: Operation[Accepted | Diagnosis]) -> None:
        found, error = operation.result, operation.error
        self.part.tell(f"{self.name} is told of {task.id}: {found or repr(error)}")
        if isinstance(found, Accepted):
            if task.run_id not in (None, found.run_id):
                raise Broken("one-id-one-message", f"{task.id} has two runs: {task.run_id} and {found.run_id}")
            task.run_id, task.is_accepted = found.run_id, True
            self.part.looked(task, found.state, may_be_undone=True)
        else:
            self._refused(task, error)

    def _look_at(self, task: Task) -> None:
        assert self.core is not None
        operation = self.core.invoking.invocation(task.id, _TIMEOUT)
        self.does(operation, lambda operation: self._looked(task, operation))

    def _looked(self, task: Task, operation: Operation[InvocationView | tuple[Diagnosis, ...]]) -> None:
        found = operation.result
        if isinstance(found, InvocationView):
            self.part.tell(f"{self.name} sees that {task.id} is {found.state}")
            self.part.looked(task, found.state, may_be_undone=found.reconciled)
        elif found == () and task.is_accepted:
            raise Broken("accepted-is-kept", f"the invocation {task.id} is lost")
        else:
            self._refused(task, operation.error)

    def _cancel(self, task: Task) -> None:
        assert self.core is not None
        self.part.tell(f"{self.name} cancels {task.id}")
        operation = self.core.invoking.cancel(task.id, None, _TIMEOUT)
        self.does(operation, lambda operation: self._cancelled(task, operation))

    def _cancelled(self, task: Task, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} is told of the end of {task.id}: {operation.result or repr(operation.error)}")
        if operation.result is None:
            self._refused(task, operation.error)
        elif operation.result == "cancelled":
            self.part.looked(task, operation.result, may_be_undone=False)

    def _refused(self, task: Task, error: Exception | None) -> None:
        if error is not None and not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        if isinstance(error, RequestRefused) and error.code == "invocation_conflict":
            raise Broken("one-id-one-message", f"{task.id} was asked for once: {error}")
        if isinstance(error, RequestRefused) and error.code == "invocation_unknown" and task.is_accepted:
            raise Broken("accepted-is-kept", f"the invocation {task.id} is lost")

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a notice about a task, an answer to it, or a letter."""
        if _is_about_a_run(message):
            self.is_handed(message)
        else:
            super().sees(message)


class Doer(Actor):
    """Do tasks, and say how far they are."""

    part: Invocations
    todo: list[str]

    def start(self) -> None:
        """Begin with what the address was handed, which is written down, or with nothing."""
        unsaid = self.part.unsaid.pop(self.name, [])
        has_list = self.role.address is not False and self.incarnation > 0
        self.todo = self.todo + unsaid if has_list else []
        super().start()

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a task, or a letter."""
        if message.invoked is None:
            if _is_about_a_run(message):
                self.is_handed(message)
            else:
                super().sees(message)
            return
        self.is_handed(message)
        task = self.part.requested.get(message.invoked.id)
        if task is None or task.target != self.name:
            raise Broken("only-its-recipient", f"{message.invoked} came to {self.name}")
        if message.id.startswith(CANCEL_PREFIX):
            return
        if not message.invoked.is_cancelled and message.text != f"do {task.id}":
            raise Broken("as-it-was-sent", f"{task.id} says {message.text!r}")
        self.todo.append(task.id)

    def act(self) -> bool:
        """Go on with something."""
        if not self.todo or self.chance.random() < 0.4:
            return False
        self._say(self.chance.choice(("running", "waiting", "completed", "completed", "failed")))
        return True

    def end_matters(self) -> bool:
        """Complete everything."""
        if self.core is None or self.tasks or not self.todo:
            return False
        self._say("completed")
        return True

    def _say(self, state: str) -> None:
        assert self.core is not None
        task = self.part.requested[self.chance.choice(self.todo)]
        if state in _ENDED:
            state = task.said or state
            task.said = state
            self.todo.remove(task.id)
            self.part.unsaid.setdefault(self.name, []).append(task.id)
        update_id = "end" if state in _ENDED else None
        self.part.tell(f"{self.name} {self.pid} says that {task.id} is {state}")
        output = f"{task.id} is done" if state == "completed" else None
        operation = self.core.invoking.update(task.id, state, None, output, None, update_id, _TIMEOUT)
        self.does(operation, lambda operation: self._said(task, state, operation))

    def _said(self, task: Task, state: str, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} is told of {task.id}: {operation.result or repr(operation.error)}")
        error = operation.error
        if state in _ENDED:
            self.part.unsaid[self.name].remove(task.id)
        if error is None:
            if state in _ENDED and operation.result == state:
                task.done_by = f"{self.name} {self.pid}"
        elif not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        elif state in _ENDED and error.code not in _NOT_ITS_OWN and task.id not in self.todo:
            self.todo.append(task.id)  # it is to be said again


def _is_about_a_run(message: IncomingMessage) -> bool:
    about = (message.id, message.reply_to or "", "" if message.notice is None else message.notice.message_id)
    return any(each.startswith(("run:", "diagnosis:")) or ":run:" in each for each in about)
