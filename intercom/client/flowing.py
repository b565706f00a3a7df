"""Make the requests about flows; time-outs are in seconds.

Requests that change a flow name themselves, so repeating one over a lost connection takes effect once. A report is
written down before it is sent, and sent until the broker has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType, ValidationError, convert

from intercom.client.composing import clean_target, clean_text, milliseconds
from intercom.client.flowviews import Flow, FlowList, FlowReported, TodoOutcome, flow_of, shown
from intercom.client.operations import Operation, RequestOperation, Result
from intercom.client.patience import PatientRequest
from intercom.client.reporting import Outbox, ReportRecord
from intercom.errors import RequestRefused, UsageError
from intercom.limits import FLOW_RESOURCE_BYTES, FLOW_RESOURCES, FLOW_SUMMARY_BYTES, KIB
from intercom.wire import flows
from intercom.wire.frames import is_blank
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.wire.unions import Request

StepLike: TypeAlias = Mapping[str, Any] | tuple[str, str]
"""An id and a prompt; or a mapping with ``step_id``, ``prompt``, and as it likes ``todo_binding`` and
``report_timeout_ms``, by these names or by those of the wire."""
TodoLike: TypeAlias = TodoOutcome | tuple[str, str]
"""The id of a to-do item and its state."""

_KNOWN = {"step_id": "stepId", "todo_binding": "todoBinding", "report_timeout_ms": "reportTimeoutMs"}
_STEP_MEMBERS = {"stepId", "prompt", "todoBinding", "reportTimeoutMs"}
_KNOWN_GATES = {"require_completed": "requireCompleted", "conflict_check": "conflictCheck"}


class FlowRequest(PatientRequest[Result]):
    """Wait for an answer about flows, and say what a session lacks that may not ask."""

    wish = "coordinator=True to control flows"
    """With what such a session is connected."""

    def turned_down(self, answer: RequestFailed, now: int) -> None:
        """Take the broker's refusal."""
        if answer.code != "feature_not_granted":
            super().turned_down(answer, now)
            return
        hint = f"Connect with {self.wish}; `intercom doctor` compares the versions of this client and its broker."
        self.fail(RequestRefused(answer.reason, code=answer.code, hint=hint))


class ReportOperation(FlowRequest[FlowReported]):
    """Send a report that is written down until the broker has it, or says that it never will."""

    wish = "flows=True to report steps"

    def __init__(self, outbox: Outbox, record: ReportRecord, deadline: int | None) -> None:
        def make(request_id: str) -> Request:
            outbox.sent(record)
            return _report_frame(record, request_id)

        def read(answer: flows.FlowReportRecorded) -> FlowReported:
            reported = shown(answer, FlowReported)
            outbox.accepted(record, reported.step_state, is_stored=reported.state == "stored")
            return reported

        super().__init__(make, flows.FlowReportRecorded, read, deadline)
        self._outbox = outbox
        self._record = record

    def turned_down(self, answer: RequestFailed, now: int) -> None:
        """Give the report up where the broker will never take it."""
        super().turned_down(answer, now)
        if self.done:
            self._outbox.refused(self._record, answer.code)

    def fail(self, error: Exception) -> None:
        """Settle with an error: who waited has gone, and what is written down is sent again."""
        super().fail(error)
        self._outbox.left(self._record)


class FlowRequests:
    """Make them for one session; ``now`` tells the time in monotonic milliseconds."""

    def __init__(self, now: Callable[[], int], ids: Callable[[], str], outbox: Outbox) -> None:
        self._now = now
        self._ids = ids
        self.outbox = outbox

    # --- coordinators -----------------------------------------------------------------------------------

    def create(
        self,
        flow_id: str,
        target: str,
        steps: Iterable[StepLike],
        group: str | None,
        key: str | None,
        timeout: float,
    ) -> RequestOperation[Flow]:
        """Write a flow down."""
        wanted, whom = _id(flow_id, "flow_id"), clean_target(target)
        written, named = _steps(steps), self._key(key)
        where = UNSET if group is None else clean_text(group, "group")
        return self._changing(
            lambda request_id: flows.FlowCreate(request_id, wanted, whom, written, named, where), timeout
        )

    def start(self, flow_id: str, key: str | None, timeout: float) -> RequestOperation[Flow]:
        """Begin a draft."""
        return self._simple(flows.FlowStart, flow_id, key, timeout)

    def pause(self, flow_id: str, key: str | None, timeout: float) -> RequestOperation[Flow]:
        """Begin no further step."""
        return self._simple(flows.FlowPause, flow_id, key, timeout)

    def resume(self, flow_id: str, target: str | None, key: str | None, timeout: float) -> RequestOperation[Flow]:
        """Go on, perhaps with another target."""
        wanted, named = _id(flow_id, "flow_id"), self._key(key)
        whom = UNSET if target is None else clean_target(target)
        return self._changing(lambda request_id: flows.FlowResume(request_id, wanted, whom, named), timeout)

    def append(
        self, flow_id: str, after: str, steps: Iterable[StepLike], key: str | None, timeout: float
    ) -> RequestOperation[Flow]:
        """Insert steps behind one."""
        wanted, behind = _id(flow_id, "flow_id"), _id(after, "after")
        written, named = _steps(steps), self._key(key)
        return self._changing(lambda request_id: flows.FlowAppend(request_id, wanted, behind, written, named), timeout)

    def retry(self, flow_id: str, step_id: str, reason: str, key: str | None, timeout: float) -> RequestOperation[Flow]:
        """Let a step be tried again."""
        wanted, step = _id(flow_id, "flow_id"), _id(step_id, "step_id")
        because, named = _bounded(reason, "reason", FLOW_SUMMARY_BYTES), self._key(key)
        return self._changing(lambda request_id: flows.FlowRetry(request_id, wanted, step, because, named), timeout)

    def cancel(self, flow_id: str, reason: str, key: str | None, timeout: float) -> RequestOperation[Flow]:
        """End a flow for good."""
        wanted, named = _id(flow_id, "flow_id"), self._key(key)
        because = _bounded(reason, "reason", FLOW_SUMMARY_BYTES)
        return self._changing(lambda request_id: flows.FlowCancel(request_id, wanted, because, named), timeout)

    def list(self, timeout: float) -> RequestOperation[FlowList]:
        """Ask for the flows the session may control."""

        def read(answer: flows.Flows) -> FlowList:
            return shown(answer, FlowList)

        return self._asking(flows.FlowList, flows.Flows, read, timeout)

    def status(self, flow_id: str, timeout: float) -> RequestOperation[Flow]:
        """Ask for everything about one flow."""
        wanted = _id(flow_id, "flow_id")
        return self._asking(lambda request_id: flows.FlowStatus(request_id, wanted), flows.Flow, flow_of, timeout)

    def collect(self, dry_run: bool, timeout: float) -> RequestOperation[tuple[str, ...]]:
        """Delete what has been over for long; the result tells which flows."""

        def read(answer: flows.FlowsCollected) -> tuple[str, ...]:
            return tuple(answer.flow_ids)

        return self._asking(
            lambda request_id: flows.FlowCollect(request_id, dry_run), flows.FlowsCollected, read, timeout
        )

    # --- workers ----------------------------------------------------------------------------------------

    def report(
        self,
        dispatch_id: str,
        outcome: str,
        summary: str,
        resources: Iterable[str],
        todo: TodoLike | None,
        timeout: float,
    ) -> Operation[FlowReported]:
        """Write a report down and send it; one that the broker has already is not sent again."""
        if outcome not in ("completed", "failed"):
            raise UsageError(f"{outcome!r} is no outcome", hint="One of completed and failed.")
        named = clean_text(dispatch_id, "dispatch_id")
        said = _bounded(summary, "summary", FLOW_SUMMARY_BYTES)
        if isinstance(resources, str):
            raise UsageError("resources is one text; a list of texts is needed", hint="Put it in a list.")
        made = [_bounded(one, "a resource", FLOW_RESOURCE_BYTES) for one in resources]
        if len(made) > FLOW_RESOURCES:
            raise UsageError(f"a report holds at most {FLOW_RESOURCES} resources")
        record = self.outbox.prepare(named, outcome, said, made, _todo(todo))
        if record is None:
            raise RequestRefused("Another report of this dispatch was made; that one stays", code="report_conflict")
        deadline = self._now() + milliseconds(timeout, "timeout")
        operation = ReportOperation(self.outbox, record, deadline)
        if record.step_state is not None and not record.is_stored:
            operation.succeed(FlowReported(report_message_id=record.message_id, step_state=record.step_state))
        return operation

    def replayed(self) -> Sequence[ReportOperation]:
        """Return the operations for what is written down and not known to have arrived; nobody waits for them."""
        return [ReportOperation(self.outbox, record, None) for record in self.outbox.unsent()]

    # --- inner works ------------------------------------------------------------------------------------

    def _key(self, key: str | None) -> str:
        return self._ids() if key is None else clean_text(key, "key")

    def _simple(self, kind: type[Any], flow_id: str, key: str | None, timeout: float) -> RequestOperation[Flow]:
        wanted, named = _id(flow_id, "flow_id"), self._key(key)
        return self._changing(lambda request_id: kind(request_id, wanted, named), timeout)

    def _changing(self, make: Callable[[str], Request], timeout: float) -> RequestOperation[Flow]:
        return FlowRequest(make, flows.Flow, flow_of, self._now() + milliseconds(timeout, "timeout"))

    def _asking(
        self, make: Callable[[str], Request], answers: type[Any], read: Callable[[Any], Result], timeout: float
    ) -> RequestOperation[Result]:
        return FlowRequest(make, answers, read, self._now() + milliseconds(timeout, "timeout"))


def step_of(step: StepLike) -> flows.NewStep:
    """Return a step as it goes on the wire; raise ``UsageError`` for one that breaks its rules."""
    members: dict[str, Any]
    if isinstance(step, tuple) and len(step) == 2:
        members = dict(zip(("stepId", "prompt"), step, strict=True))
    elif not isinstance(step, Mapping):
        raise UsageError(f"a step is a pair of id and prompt, or a mapping, not {type(step).__name__}")
    else:
        members = {_KNOWN.get(name, name): value for name, value in step.items()}
        gates = members.get("todoBinding")
        if isinstance(gates, Mapping):
            members["todoBinding"] = {_KNOWN_GATES.get(name, name): value for name, value in gates.items()}
    unknown = sorted(str(name) for name in members.keys() - _STEP_MEMBERS)
    if unknown:
        raise UsageError(f"a step has no {unknown[0]}", hint=f"It has {', '.join(_KNOWN)}.")
    named = _id(members.get("stepId"), "the id of a step")
    prompt = members.get("prompt")
    if not isinstance(prompt, str):
        raise UsageError(f"the prompt of step {named} must be a text")
    if is_blank(prompt):
        raise UsageError(f"the prompt of step {named} is blank")
    if clean_text(prompt) != prompt:
        raise UsageError(f"the prompt of step {named} holds half a character, which no UTF-8 can carry")
    try:
        return convert({**members, "stepId": named}, flows.NewStep)
    except ValidationError as error:
        hint = "A number of milliseconds from 1; a mapping with label, require_completed and conflict_check."
        what = f"report_timeout_ms or todo_binding of step {named}"
        raise UsageError(f"{what} breaks its rules", hint=hint) from error


def _steps(steps: Iterable[StepLike]) -> list[flows.NewStep]:
    written = [step_of(step) for step in steps]
    ids: set[str] = set()
    for step in written:
        if step.step_id in ids:
            raise UsageError(f"two steps have the id {step.step_id}")
        ids.add(step.step_id)
    return written


def _report_frame(record: ReportRecord, request_id: str) -> flows.FlowReport:
    todo: TodoOutcome | UnsetType = UNSET
    if record.todo_id is not None and record.todo_status is not None:
        todo = TodoOutcome(record.todo_id, record.todo_status)
    return flows.FlowReport(
        request_id,
        record.dispatch_id,
        record.outcome,
        record.summary,
        list(record.resources),
        todo,
        record.prepared_at or UNSET,
        max(1, record.attempts),
    )


def _todo(todo: TodoLike | None) -> TodoOutcome | None:
    if todo is None or isinstance(todo, TodoOutcome):
        return todo
    try:
        todo_id, status = todo
        return convert({"todoId": todo_id, "todoStatus": status}, TodoOutcome)
    except (ValidationError, TypeError, ValueError) as error:
        hint = "The id of the item, and pending, in_progress, completed, blocked or failed."
        raise UsageError("todo breaks its rules", hint=hint) from error


def _id(value: Any, what: str) -> str:
    cleaned = clean_text(value, what)
    try:
        return convert(cleaned, flows.Identifier)
    except ValidationError as error:
        hint = "A letter or digit, then letters, digits, dot, underscore and hyphen; 64 characters in all."
        raise UsageError(f"{what} {cleaned!r} is no id", hint=hint) from error


def _bounded(value: str, what: str, most: int) -> str:
    cleaned = clean_text(value, what).replace("\r\n", "\n").replace("\r", "\n")
    if not cleaned.strip():
        raise UsageError(f"{what} is blank")
    if len(cleaned.encode()) > most:
        raise UsageError(f"{what} is longer than {most // KIB} KiB")
    return cleaned
