"""Make the requests about invocations, and know how far one is; time-outs are in seconds.

Every request that changes something names itself, so repeating it, over lost connections and restarts, takes effect
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from msgspec import UNSET, Struct
from msgspec.json import decode

from intercom.client.composing import clean_id, clean_number, clean_text, milliseconds, object_bytes
from intercom.client.lifecycle import Lifecycle
from intercom.client.operations import RequestOperation, Result
from intercom.client.patience import PatientRequest
from intercom.client.views import Execution, Invoked, Malformed, execution_of
from intercom.client.watches import Watched, WatchSnapshot
from intercom.client.workviews import ProcessingState
from intercom.errors import RequestRefused, RouteUnclear, RunFailed, RunUnfinished, UsageError
from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, WORK_PAGE_CEILING
from intercom.wire import invocations as wire
from intercom.wire.invocations import Action, DeliveryStatus, ReportedState, RunState

if TYPE_CHECKING:
    from intercom.wire.unions import Request

ENDED = frozenset({"completed", "failed", "cancelled"})
"""States of a run that has ended."""
Reported: TypeAlias = Literal["running", "waiting", "completed", "failed", "cancelled"]


class Route(Struct, frozen=True, kw_only=True):
    """Describe somebody who can be invoked; ``label`` leads to it alone."""

    target_id: str
    name: str
    label: str
    state: Literal["active", "reconnecting", "away", "closed"]
    workspace: str | None
    harness: str | None
    model: str | None
    node: str | None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Say why a label led to nobody; times are epoch milliseconds."""

    kind: Literal["ambiguous", "unknown", "unparseable", "unavailable"]
    asked: str
    detail: str
    candidates: tuple[Route, ...]
    at: int


class InvocationDelivery(Struct, frozen=True, kw_only=True):
    """Describe how an invocation gets to another machine (protocol 13.7); times are epoch milliseconds."""

    id: str
    broker_id: str
    """The broker that answers for the target."""
    status: DeliveryStatus
    attempts: int
    first_queued_at: int
    next_attempt_at: int | None = None
    acked_at: int | None = None
    """When the other broker said that it has it."""
    run_id: str | None = None
    """Of the run there."""
    failure: str | None = None
    """Why it failed, or why the last attempt did: ``peer_unreachable``, ``peer_rejected`` or ``timeout``."""
    failure_detail: str | None = None


class InvocationView(Struct, frozen=True, kw_only=True):
    """Describe an invocation and how far its run is; times are epoch milliseconds.

    Texts are ``None`` in lists, and a day after its end.
    """

    id: str
    number: int
    run_id: str
    state: RunState
    action: Action
    target: str
    """The target as it was named."""
    target_id: str
    target_name: str
    requester_id: str
    """The session that asked."""
    created_at: int
    task: str | None = None
    take_until: int | None = None
    summary: str | None = None
    output: str | None = None
    error: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    attempts: int | None = None
    placement: str | None = None
    cancel_asked_at: int | None = None
    reconciled: bool = False
    """The broker had to assume that it failed; what its target reports after all still counts."""
    diagnoses: tuple[Diagnosis, ...] = ()
    context: str | None = None
    metadata: dict[str, Any] | None = None
    execution: Execution | None = None
    labels: tuple[str, ...] = ()
    stream: bool = False
    about: str | None = None
    """Id of the message out of which it came."""
    deliveries: tuple[InvocationDelivery, ...] = ()
    """How it gets to another machine; none while its target is on this one, and none in lists."""

    @property
    def is_over(self) -> bool:
        """Tell whether the run has ended."""
        return self.state in ENDED


class Asked(Struct, frozen=True, kw_only=True):
    """Hold what is said of a task beside its text and its target."""

    context: str | None = None
    execution: Execution | None = None
    labels: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    stream: bool = False
    about: str | None = None


class Brought:
    """Know of a task what its message told."""

    def __init__(self, invoked: Invoked) -> None:
        self.id = invoked.id
        """Of the invocation."""
        self.run_id = invoked.run_id
        self.action = invoked.action
        self.is_cancelled = invoked.is_cancelled
        """The message says that it is not wanted any more; then there is nothing of what follows."""
        self.context = invoked.context
        """What whoever asked says to know for it."""
        self.execution = invoked.execution
        """How it is wished to be done."""
        self.labels = invoked.labels
        self.metadata = invoked.metadata
        """Of whoever asked, as it was given."""
        self.stream = invoked.stream
        """Whoever asked wishes ``update`` while it goes on."""
        self.about = invoked.about
        """Id of the message out of which it came."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"


class Accepted(Struct, frozen=True):
    """Hold what the broker answered to an invocation."""

    id: str
    run_id: str
    target_id: str
    state: RunState
    detail: str | None


class Following:
    """Know of one invocation what was told of it."""

    def __init__(self, accepted: Accepted) -> None:
        self.id = accepted.id
        self.run_id = accepted.run_id
        self.target_id = accepted.target_id
        self.state: RunState = accepted.state
        """As far as this program was told; asking for more tells more."""
        self.detail = accepted.detail
        """Why it is not handed over at once, where the broker said so."""

    @property
    def is_over(self) -> bool:
        """Tell whether the run is known to have ended."""
        return self.state in ENDED

    def told(self, watched: Watched) -> bool:
        """Take notice of what a watch told; return whether it is an event of the run."""
        if isinstance(watched, WatchSnapshot):
            for state in watched.states:
                if state.kind == "invocation" and state.state in get_args(RunState):
                    self.state = cast("RunState", state.state)
            return False
        reached = watched.detail.get("state")
        if reached in get_args(RunState):
            self.state = cast("RunState", reached)
        return True

    def outcome(self, view: InvocationView) -> InvocationView:
        """Return how it is, once it is completed; raise ``RunFailed`` or ``RunUnfinished``."""
        self.state = view.state
        if view.state == "completed":
            return view
        if not view.is_over:
            raise self.unfinished()
        why = view.error or view.summary or "no reason was given"
        error = RunFailed(f"The run is {view.state}: {why}", code=f"run_{view.state}")
        error.invocation_id = view.id
        raise error

    def unfinished(self) -> RunUnfinished:
        """Return the error for a wait that was over before the run."""
        error = RunUnfinished(
            f"The wait is over, and the work goes on: the run is {self.state}",
            hint=f"`intercom invocation show {self.id}` tells how far it is; `intercom invocation cancel {self.id}` "
            "asks that it stops.",
        )
        error.invocation_id = self.id
        return error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} {self.state}>"


class InvocationRequests:
    """Make the requests for one session; ``now`` tells the time in monotonic milliseconds, ``ids`` gives new ids."""

    def __init__(self, lifecycle: Lifecycle, now: Callable[[], int], ids: Callable[[], str]) -> None:
        self._lifecycle = lifecycle
        self._now = now
        self._ids = ids

    def invoke(
        self,
        target: str,
        task: str,
        action: str,
        ensure_awake: bool,
        take_within: float | None,
        invocation_id: str | None,
        asked: Asked,
        timeout: float,
    ) -> RequestOperation[Accepted | Diagnosis]:
        """Have something done; the result is a diagnosis when the target leads to nobody."""
        if action not in get_args(Action):
            raise UsageError(f"{action!r} is no action", hint=f"One of {', '.join(get_args(Action))}.")
        wanted, text = clean_text(self._lifecycle.present(target), "target"), clean_text(task, "task")
        name = self._ids() if invocation_id is None else _new_name(invocation_id, "invocation_id")
        within = UNSET if take_within is None else milliseconds(take_within, "take_within")
        beside = _beside(asked)

        def read(answer: wire.InvocationAccepted) -> Accepted | Diagnosis:
            if answer.diagnosis is not UNSET:
                return _diagnosis(answer.diagnosis)
            detail = None if answer.detail is UNSET else answer.detail
            return Accepted(
                answer.invocation_id, str(answer.run_id), str(answer.target_id), cast("RunState", answer.state), detail
            )

        return self._request(
            lambda request_id: wire.Invoke(
                request_id,
                name,
                text,
                wanted,
                action=cast("Action", action),
                ensure_awake=ensure_awake,
                timeout_ms=within,
                **beside,
            ),
            wire.InvocationAccepted,
            read,
            timeout,
        )

    def invocation(
        self, invocation_id: str, timeout: float
    ) -> RequestOperation[InvocationView | tuple[Diagnosis, ...]]:
        """Ask how an invocation is; of one that led to nobody its diagnoses, none of one that is not known."""
        wanted = _name(invocation_id, "invocation_id")

        def read(answer: wire.InvocationSnapshot) -> InvocationView | tuple[Diagnosis, ...]:
            diagnoses = tuple(_diagnosis(each) for each in answer.diagnoses)
            if answer.invocation is UNSET:
                return diagnoses
            deliveries = () if answer.deliveries is UNSET else tuple(_delivery(each) for each in answer.deliveries)
            return view_of(answer.invocation, answer.run, diagnoses, deliveries)

        return self._request(
            lambda request_id: wire.InvocationGet(request_id, wanted), wire.InvocationSnapshot, read, timeout
        )

    def invocations(
        self,
        before: int | None,
        limit: int,
        open_only: bool,
        as_target: bool,
        labels: Sequence[str],
        timeout: float,
    ) -> RequestOperation[list[InvocationView]]:
        """Ask which invocations there are, the newest first."""
        if not 0 < limit <= WORK_PAGE_CEILING:
            raise UsageError(f"limit must be a number from 1 to {WORK_PAGE_CEILING}, not {limit!r}")
        below = UNSET if before is None else clean_number(before, "before")
        known_by = _labels(labels) if labels else UNSET

        def read(answer: wire.Invocations) -> list[InvocationView]:
            return [view_of(info) for info in answer.invocations]

        return self._request(
            lambda request_id: wire.InvocationList(request_id, below, limit, open_only, as_target, known_by),
            wire.Invocations,
            read,
            timeout,
        )

    def cancel(self, invocation_id: str, reason: str | None, timeout: float) -> RequestOperation[RunState]:
        """Ask that an invocation is not carried out; the result is the state of its run."""
        wanted = _name(invocation_id, "invocation_id")
        why = UNSET if reason is None else clean_text(reason, "reason")

        def read(answer: wire.InvocationCancelled) -> RunState:
            return answer.state

        return self._request(
            lambda request_id: wire.InvocationCancel(request_id, wanted, why), wire.InvocationCancelled, read, timeout
        )

    def update(
        self,
        invocation_id: str,
        state: str,
        summary: str | None,
        output: str | None,
        error: str | None,
        update_id: str | None,
        timeout: float,
    ) -> RequestOperation[RunState]:
        """Say how far a run is; the result is its state, which is another one when it has ended before."""
        if state not in get_args(ReportedState):
            known = ", ".join(get_args(ReportedState))
            raise UsageError(f"{state!r} is no state that is reported", hint=f"One of {known}.")
        wanted = _name(invocation_id, "invocation_id")
        name = self._ids() if update_id is None else _new_name(update_id, "update_id")
        texts = [
            UNSET if text is None else clean_text(text, what)
            for text, what in ((summary, "summary"), (output, "output"), (error, "error"))
        ]

        def read(answer: wire.RunRecorded) -> RunState:
            return answer.state

        return self._request(
            lambda request_id: wire.RunUpdate(request_id, wanted, name, cast("ReportedState", state), *texts),
            wire.RunRecorded,
            read,
            timeout,
        )

    def resolve(self, target: str, timeout: float) -> RequestOperation[Route | Diagnosis]:
        """Ask whom a label means; the result is a diagnosis when that is nobody."""
        wanted = clean_text(target, "target")

        def read(answer: wire.RouteResolved) -> Route | Diagnosis:
            if answer.target is not UNSET:
                return _route(answer.target)
            if answer.diagnosis is UNSET:
                raise Malformed("a route leads neither to somebody nor to nobody")
            return _diagnosis(answer.diagnosis)

        return self._request(
            lambda request_id: wire.RouteResolve(request_id, wanted), wire.RouteResolved, read, timeout
        )

    def _request(
        self, make: Callable[[str], Request], answers: type[Any], read: Callable[[Any], Result], timeout: float
    ) -> PatientRequest[Result]:
        return PatientRequest(make, answers, read, self._now() + milliseconds(timeout, "timeout"))


def state_of_work(state: str) -> ProcessingState:
    """Return what a reported state of a run says of the assignment that brought its task."""
    if state not in ENDED:
        return "accepted"
    return "reply_emitted" if state == "completed" else "failed"


def _labels(labels: Sequence[str]) -> list[str]:
    if isinstance(labels, str):
        raise UsageError("labels must be several texts, not one")
    return [clean_text(label, "a label") for label in labels]


def _beside(asked: Asked) -> dict[str, Any]:
    """Return the members of the request that hold what goes with its task."""
    members: dict[str, Any] = {"stream": asked.stream}
    if asked.context is not None:
        members["context"] = clean_text(asked.context, "context")
    if asked.execution is not None:
        members["execution"] = wire.Execution(**_texts(asked.execution))
    if asked.labels:
        members["labels"] = _labels(asked.labels)
    if asked.metadata is not None:
        members["metadata"] = _json_object(asked.metadata)
    if asked.about is not None:
        members["message_id"] = clean_id(asked.about, "about")
    return members


def _texts(execution: Execution) -> dict[str, Any]:
    if execution.session is not None and execution.session not in get_args(wire.ExecutionSession):
        known = ", ".join(get_args(wire.ExecutionSession))
        raise UsageError(f"{execution.session!r} is no session of an execution", hint=f"One of {known}.")
    said = {name: getattr(execution, name) for name in execution.__struct_fields__}
    return {name: clean_text(text, f"execution.{name}") for name, text in said.items() if text is not None}


def _json_object(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of what can be written as a JSON object."""
    copied: dict[str, Any] = decode(object_bytes(metadata, "metadata"))
    return copied


def _delivery(info: wire.DeliveryInfo) -> InvocationDelivery:
    return InvocationDelivery(
        id=info.delivery_id,
        broker_id=info.target_broker_id,
        status=info.status,
        attempts=info.attempts,
        first_queued_at=info.first_queued_at,
        next_attempt_at=_known(info.next_attempt_at),
        acked_at=_known(info.peer_acked_at),
        run_id=_known(info.peer_run_id),
        failure=_known(info.failure_reason),
        failure_detail=_known(info.failure_detail),
    )


def view_of(
    info: wire.InvocationInfo,
    run: Any = UNSET,
    diagnoses: tuple[Diagnosis, ...] = (),
    deliveries: tuple[InvocationDelivery, ...] = (),
) -> InvocationView:
    """Return an invocation as a program sees it."""
    more: dict[str, Any] = {}
    if run is not UNSET:
        names = ("summary", "output", "error", "started_at", "attempts", "placement", "cancel_asked_at", "reconciled")
        more = {name: _known(getattr(run, name)) for name in names}
    return InvocationView(
        id=info.invocation_id,
        number=info.number,
        run_id=info.run_id,
        state=info.state,
        action=info.action,
        target=info.target,
        target_id=info.target_id,
        target_name=info.target_name,
        requester_id=info.requester_id,
        created_at=info.created_at,
        task=_known(info.task),
        take_until=_known(info.take_until),
        completed_at=_known(info.completed_at),
        diagnoses=diagnoses,
        context=_known(info.context),
        metadata=_known(info.metadata),
        execution=execution_of(info.execution),
        labels=() if info.labels is UNSET else tuple(info.labels),
        stream=info.stream,
        about=_known(info.message_id),
        deliveries=deliveries,
        **more,
    )


def known_view(found: InvocationView | tuple[Diagnosis, ...], invocation_id: str) -> InvocationView:
    """Return an invocation that was asked for; raise ``RouteUnclear`` or ``RequestRefused`` for none."""
    if isinstance(found, InvocationView):
        return found
    if found:
        raise unclear(found[-1])
    raise RequestRefused(
        f"No invocation {invocation_id} is known",
        code="invocation_unknown",
        hint="`intercom invocation list` shows those of this identity.",
    )


def unclear(diagnosis: Diagnosis) -> RouteUnclear:
    """Return the error for a label that led to nobody, or to several."""
    leads_to = "several" if diagnosis.kind == "ambiguous" else "nobody"
    error = RouteUnclear(f"{diagnosis.asked!r} leads to {leads_to}: {diagnosis.detail}", code=f"route_{diagnosis.kind}")
    labels = [candidate.label for candidate in diagnosis.candidates]
    error.labels = tuple(labels)
    if labels and diagnosis.kind in ("ambiguous", "unknown"):
        error.hint = f"Name one of them: {', '.join(labels)}."
    return error


def clear(found: Result | Diagnosis) -> Result:
    """Return what a label led to; raise ``RouteUnclear`` for nobody."""
    if isinstance(found, Diagnosis):
        raise unclear(found)
    return found


def _diagnosis(diagnosis: wire.RouteDiagnosis) -> Diagnosis:
    return Diagnosis(
        kind=diagnosis.kind,
        asked=diagnosis.asked_label,
        detail=diagnosis.detail,
        candidates=tuple(_route(each) for each in diagnosis.candidates),
        at=diagnosis.at,
    )


def _route(candidate: wire.RouteCandidate) -> Route:
    return Route(
        target_id=candidate.target_id,
        name=candidate.display_name,
        label=candidate.label,
        state=candidate.session_state,
        workspace=_known(candidate.workspace),
        harness=_known(candidate.harness),
        model=_known(candidate.model),
        node=_known(candidate.node),
    )


def _name(value: str, what: str) -> str:
    cleaned = clean_id(value, what)
    if len(cleaned) > IDEMPOTENCY_KEY_CHARACTERS:
        raise UsageError(f"{what} must have 1 to {IDEMPOTENCY_KEY_CHARACTERS} characters")
    return cleaned


def _new_name(value: str, what: str) -> str:
    """Return an id that is given to something; one that cannot be shown could not be named again."""
    cleaned = _name(value, what)
    if not cleaned.isprintable():
        raise UsageError(f"{what} must be one line of characters that can be shown")
    return cleaned


def _known(value: Any) -> Any:
    return None if value is UNSET else value
