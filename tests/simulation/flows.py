"""Let somebody write flows and control them, and workers do their steps and report them."""

from __future__ import annotations

from typing import Any

from msgspec.json import decode, encode

from intercom.client.flowsteps import FlowStep
from intercom.client.flowviews import Flow, FlowReported
from intercom.client.operations import Operation
from intercom.client.reporting import ReportRecord
from intercom.client.views import IncomingMessage
from intercom.core.records import DispatchRecord, FlowRecord
from intercom.errors import IntercomError, RequestRefused
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_FLOWS = 3
_MOST_ATTEMPTS = 4
"""After so many a step is left as it is."""
_TIMEOUT = 30.0
_OVER = frozenset({"completed", "cancelled"})
_ENDED = frozenset({"completed", "failed", "ambiguous", "retired"})
_WAITS_FOR_SOMEBODY = frozenset({"failed", "ambiguous"})


class Shelf:
    """Keep reports beyond the process that wrote them, each on disk when ``save`` returns."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    def load(self) -> list[ReportRecord]:
        """Return what is kept, in the order in which it was written."""
        found = [decode(record, type=ReportRecord) for record in self._records.values()]
        return sorted(found, key=lambda record: record.written_at)

    def save(self, record: ReportRecord) -> None:
        """Keep a record."""
        self._records[record.dispatch_id] = encode(record)

    def drop(self, dispatch_id: str) -> None:
        """Keep it no longer."""
        self._records.pop(dispatch_id, None)


class Flows(Part):
    """Hold one who writes flows, and two who do their steps."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.boss = self.add(Role("boss", address=True, also=(("coordinator", True),)), Boss)
        self.workers = [
            self.add(Role("fay", address=True, also=(("flows", True),)), Worker),
            self.add(Role("finn", also=(("flows", True),)), Worker),
        ]
        self.workers[0].shelf = Shelf()
        self.steps: dict[str, list[str]] = {}
        """The steps every flow was created with, in order."""
        self.created: set[str] = set()
        """Flows of which their writer was told that they are there."""
        self.dispatches: dict[str, tuple[str, str, int]] = {}
        self.outcomes: dict[str, str] = {}
        """What was reported of each dispatch, from the moment it was written down."""
        self.recorded: dict[str, str] = {}
        """What the broker said became of the step by that report."""
        self.ended: dict[str, str] = {}
        """What was seen to have become of a dispatch."""
        self.over: dict[str, str] = {}

    def handed(self, step: FlowStep, message: IncomingMessage) -> None:
        """Take notice that a worker sees a step."""
        what = (step.flow_id, step.step_id, step.attempt)
        if self.dispatches.setdefault(step.dispatch_id, what) != what:
            raise Broken("steps-are-named", f"{step.dispatch_id} is {self.dispatches[step.dispatch_id]}, now {what}")
        if list(self.dispatches.values()).count(what) > 1:
            raise Broken("steps-are-named", f"{what} has several dispatches: {self.dispatches}")
        if f"do {step.step_id} of {step.flow_id}" not in message.text:
            raise Broken("as-it-was-sent", f"{what} says {message.text!r}")
        known = self.steps[step.flow_id]
        if step.step_id in known:
            for earlier in known[: known.index(step.step_id)]:
                self._was_reported(step.flow_id, earlier)

    def looked(self, flow: Flow) -> None:
        """Take notice of what a flow is said to be."""
        if flow.flow_id in self.over and self.over[flow.flow_id] != flow.state:
            raise Broken("one-outcome", f"{flow.flow_id} was {self.over[flow.flow_id]}, and is {flow.state}")
        if flow.state in _OVER:
            self.over[flow.flow_id] = flow.state
        for step in flow.steps:
            if step.state == "completed":
                self._was_reported(flow.flow_id, step.step_id)
        for dispatch in flow.dispatches or (flow.dispatch,):
            if dispatch is not None:
                self._ended(dispatch.dispatch_id, dispatch.outcome)

    def _ended(self, dispatch_id: str, outcome: str) -> None:
        if self.ended.get(dispatch_id, outcome) != outcome:
            raise Broken("one-outcome", f"{dispatch_id} was {self.ended[dispatch_id]}, and is {outcome}")
        if outcome in _ENDED:
            self.ended[dispatch_id] = outcome
        if outcome in ("completed", "failed") and self.outcomes.get(dispatch_id) != outcome:
            raise Broken("steps-by-reports", f"{dispatch_id} is {outcome}, and {self.outcomes.get(dispatch_id)}")

    def _was_reported(self, flow_id: str, step_id: str) -> None:
        reports = [
            self.outcomes.get(dispatch) for dispatch, what in self.dispatches.items() if what[:2] == (flow_id, step_id)
        ]
        if "completed" not in reports:
            raise Broken("steps-by-reports", f"nobody reported {step_id} of {flow_id}: {reports}")

    def at_rest(self) -> None:
        """Hold that every flow is over, or waits for somebody, and that what was reported counts."""
        flows = {flow.flow_id: flow for flow in self.rows(FlowRecord)}
        for flow_id in self.created - flows.keys():
            raise Broken("accepted-is-kept", f"the flow {flow_id} is lost")
        dispatches = {row.dispatch_id: row for row in self.rows(DispatchRecord)}
        for row in dispatches.values():
            self._ended(row.dispatch_id, row.outcome)
            if row.outcome == "pending":
                raise Broken("comes-to-rest", f"{row.dispatch_id} is under way for ever: {row}")
        for dispatch_id, state in self.recorded.items():
            if dispatches[dispatch_id].outcome != state:
                raise Broken("accepted-is-kept", f"{dispatch_id} was reported {state}: {dispatches[dispatch_id]}")
        for flow in flows.values():
            todo = next((step.state for step in flow.steps if step.state != "completed"), None)
            is_over = flow.state in _OVER or (flow.state == "active" and todo in _WAITS_FOR_SOMEBODY)
            if not is_over:
                raise Broken("comes-to-rest", f"{flow.flow_id} goes on for ever: {flow}")


class Worker(Actor):
    """Do steps, and report them."""

    part: Flows
    shelf: Shelf | None = None
    todo: dict[str, FlowStep]

    def start(self) -> None:
        """Begin without anything to do."""
        self.todo = {}
        super().start()

    def places(self, ids: Any) -> dict[str, Any]:
        """Keep what it reports, where it acts under an address."""
        return {"reports": self.shelf}

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a step, or a letter."""
        step = message.flow
        if step is None:
            super().sees(message)
            return
        self.part.handed(step, message)
        self.is_handed(message)
        self.todo[step.dispatch_id] = step

    def act(self) -> bool:
        """Report something it was handed, perhaps while it still looks at the message."""
        return bool(self.todo) and self.chance.random() < 0.3 and self._report()

    def end_matters(self) -> bool:
        """Report all of it."""
        return self.core is not None and bool(self.todo) and self._report()

    def _report(self) -> bool:
        assert self.core is not None
        dispatch_id = self.chance.choice(sorted(self.todo))
        del self.todo[dispatch_id]
        outcome = self.part.outcomes.setdefault(dispatch_id, self.chance.choice(("completed", "completed", "failed")))
        self.part.tell(f"{self.name} {self.pid} reports {dispatch_id} {outcome}")
        operation = self.core.flows.report(dispatch_id, outcome, f"{outcome} it", (), None, _TIMEOUT)
        self.does(operation, lambda operation: self._reported(dispatch_id, operation))
        return True

    def _reported(self, dispatch_id: str, operation: Operation[FlowReported]) -> None:
        self.part.tell(f"{self.name} is told of {dispatch_id}: {operation.result or repr(operation.error)}")
        if operation.result is not None:
            self.part.recorded[dispatch_id] = operation.result.step_state
        elif not isinstance(operation.error, IntercomError):
            raise Broken("errors-are-ours", repr(operation.error))
        elif isinstance(operation.error, RequestRefused) and operation.error.code == "report_conflict":
            raise Broken("one-outcome", f"{dispatch_id} was reported once, and then: {operation.error}")


class Boss(Actor):
    """Write flows, and control them."""

    part: Flows

    def act(self) -> bool:
        """Write one, or do something about one."""
        if self.chance.random() < 0.1:
            return False
        if len(self.part.steps) < _FLOWS and self.chance.random() < 0.5:
            self._create()
        elif self.part.steps:
            verb = self.chance.choice(("start", "start", "pause", "resume", "retry", "append", "status", "cancel"))
            self._control(self.chance.choice(sorted(self.part.steps)), verb)
        return True

    def end_matters(self) -> bool:
        """Let every flow go on that only waits for a word."""
        if self.core is None or self.tasks:
            return False
        for flow in self.part.rows(FlowRecord):
            tried = [step for step in flow.steps if step.state in _WAITS_FOR_SOMEBODY]
            if flow.state in ("draft", "paused", "failed"):
                self._control(flow.flow_id, "start" if flow.state == "draft" else "resume")
                return True
            if flow.state == "active" and tried and len(tried[0].attempts) < _MOST_ATTEMPTS:
                self._control(flow.flow_id, "retry", tried[0].step_id)
                return True
        return False

    def _create(self) -> None:
        assert self.core is not None
        flow_id = self.part.name("flow")
        steps = [(f"s{number}", f"do s{number} of {flow_id}") for number in range(self.chance.randint(1, 3))]
        self.part.steps[flow_id] = [step_id for step_id, _ in steps]
        target = self.chance.choice(self.part.workers).name
        self._ask("create", flow_id, self.core.flows.create(flow_id, target, steps, None, None, _TIMEOUT))

    def _control(self, flow_id: str, verb: str, step_id: str | None = None) -> None:
        assert self.core is not None
        flows = self.core.flows
        step_id = step_id or self.chance.choice(self.part.steps[flow_id])
        new = self.part.name("extra")
        verbs: dict[str, Any] = {
            "start": lambda: flows.start(flow_id, None, _TIMEOUT),
            "pause": lambda: flows.pause(flow_id, None, _TIMEOUT),
            "resume": lambda: flows.resume(flow_id, None, None, _TIMEOUT),
            "retry": lambda: flows.retry(flow_id, step_id, "it may go better", None, _TIMEOUT),
            "append": lambda: flows.append(flow_id, step_id, [(new, f"do {new} of {flow_id}")], None, _TIMEOUT),
            "status": lambda: flows.status(flow_id, _TIMEOUT),
            "cancel": lambda: flows.cancel(flow_id, "it is not needed", None, _TIMEOUT),
        }
        self._ask(verb, flow_id, verbs[verb]())

    def _ask(self, verb: str, flow_id: str, operation: Operation[Flow]) -> None:
        self.part.tell(f"{self.name} asks to {verb} {flow_id}")
        self.does(operation, lambda operation: self._told(verb, flow_id, operation))

    def _told(self, verb: str, flow_id: str, operation: Operation[Flow]) -> None:
        flow, error = operation.result, operation.error
        self.part.tell(f"{self.name} is told of {verb} {flow_id}: {flow.state if flow is not None else repr(error)}")
        if verb == "create" and flow is not None:
            self._control(flow_id, "start")
        if flow is not None:
            self.part.created.add(flow_id)
            self.part.looked(flow)
        elif not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        elif error.code == "flow_unknown" and flow_id in self.part.created:
            raise Broken("accepted-is-kept", f"the flow {flow_id} is lost")
        elif error.code == "flow_exists":
            raise Broken("one-id-one-message", f"the flow {flow_id} was created once: {error}")
