"""Make the requests of those who do work and of those who hand it out; time-outs are in seconds.

Each request names itself, so repeating it takes effect once: what a worker can say only once of an assignment has the
name of its state, the answer to an assignment is called ``REPLY``, and everything else gets a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from msgspec import UNSET, Raw, UnsetType

from intercom.client.assignment import Assignment
from intercom.client.composing import checked_content, clean_id, clean_text, milliseconds
from intercom.client.lifecycle import Lifecycle
from intercom.client.operations import RequestOperation, Result
from intercom.client.patience import AwaitOperation, PatientRequest
from intercom.client.views import Attachment, IncomingMessage, Receipt, message_of
from intercom.client.workviews import (
    AssignmentView,
    Dispatched,
    InboxPage,
    InboxPresence,
    ParkedMessage,
    ProcessingState,
    assignment_of,
    dispatched_of,
    item_of,
    page_of,
    presence_of,
)
from intercom.errors import UsageError
from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, WORK_DETAIL_CHARACTERS, WORK_PAGE_CEILING
from intercom.wire import work
from intercom.wire.frames import MessageFrame
from intercom.wire.invocations import InvokedInfo

if TYPE_CHECKING:
    from intercom.wire.unions import Request

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]


class AssignmentName(NamedTuple):
    """Name an assignment by its id and the id of its message, for who has nothing else of it."""

    id: str
    source_message_id: str


AnyAssignment: TypeAlias = Assignment | AssignmentView | AssignmentName
"""What a report or a reply is about: work in hand, what any session of the address is told of it, or its name."""

REPLY = "reply"
"""Name of the answer to an assignment; there is one."""
ONCE = frozenset({"accepted", "failed", "expired"})
"""States a worker can report once; repeating the report repeats nothing."""
REPORTABLE = frozenset({"accepted", "started", "waiting_for_capability", "failed", "expired", "interrupted"})
"""States a worker may report; the others are the broker's."""
GIVING_BACK = frozenset({"waiting_for_capability"})


class WorkRequests:
    """Make them for one session; ``now`` tells the time in monotonic milliseconds, ``ids`` gives new unique ids."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        now: Callable[[], int],
        ids: Callable[[], str],
        kind: type[Assignment] = Assignment,
    ) -> None:
        self._lifecycle = lifecycle
        self._now = now
        self._ids = ids
        self._kind = kind

    # --- looking ----------------------------------------------------------------------------------------

    def inbox(self, after: int, limit: int, timeout: float) -> RequestOperation[InboxPage]:
        """Ask what is parked."""
        _check_page(limit)
        return self._request(
            lambda request_id: work.InboxList(request_id, after, limit), work.InboxItems, page_of, timeout
        )

    def inbox_message(self, inbox_id: str, timeout: float) -> RequestOperation[ParkedMessage]:
        """Ask for a parked message with its text."""
        wanted = clean_id(inbox_id, "inbox_id")
        return self._request(lambda request_id: work.InboxShow(request_id, wanted), work.InboxItem, item_of, timeout)

    def inbox_presence(self, timeout: float) -> RequestOperation[InboxPresence]:
        """Ask how much waits for this session."""
        return self._request(work.InboxPresence, work.InboxPresenceReport, presence_of, timeout)

    def open_assignments(self, after: int, limit: int, timeout: float) -> RequestOperation[list[AssignmentView]]:
        """Ask which assignments are open."""
        _check_page(limit)

        def read(answer: work.Assignments) -> list[AssignmentView]:
            return [assignment_of(info) for info in answer.assignments]

        return self._request(
            lambda request_id: work.AssignmentList(request_id, after, limit), work.Assignments, read, timeout
        )

    def assignment(self, assignment_id: str, timeout: float) -> RequestOperation[AssignmentView]:
        """Ask for one open assignment."""
        wanted = clean_id(assignment_id, "assignment_id")

        def read(answer: work.AssignmentShown) -> AssignmentView:
            return assignment_of(answer.assignment)

        return self._request(
            lambda request_id: work.AssignmentShow(request_id, wanted), work.AssignmentShown, read, timeout
        )

    # --- handing out ------------------------------------------------------------------------------------

    def dispatch(
        self,
        inbox_id: str,
        session_id: str,
        key: str | None,
        source_message_id: str | None,
        accept_within: float | None,
        timeout: float,
    ) -> RequestOperation[Dispatched]:
        """Hand a parked message to a worker; ``accept_within`` of 0 sets no limit for accepting it."""
        wanted, to = clean_id(inbox_id, "inbox_id"), clean_id(self._lifecycle.present(session_id), "session_id")
        name = self._ids() if key is None else _key(key, "key")
        source: str | UnsetType = UNSET
        if source_message_id is not None:
            source = clean_id(source_message_id, "source_message_id")
        within: int | UnsetType = UNSET
        if accept_within is not None:
            if isinstance(accept_within, int | float) and accept_within < 0:
                raise UsageError(f"accept_within must be a number of seconds, or 0 for no limit, not {accept_within!r}")
            within = 0 if accept_within == 0 else milliseconds(accept_within, "accept_within")
        return self._request(
            lambda request_id: work.InboxDispatch(request_id, wanted, to, name, source, within),
            work.InboxDispatched,
            dispatched_of,
            timeout,
        )

    def settle(self, inbox_id: str, timeout: float) -> RequestOperation[None]:
        """Say that a parked message needs nobody any more."""
        wanted = clean_id(inbox_id, "inbox_id")
        return self._request(
            lambda request_id: work.InboxSettle(request_id, wanted), work.InboxSettled, lambda answer: None, timeout
        )

    # --- working ----------------------------------------------------------------------------------------

    def claim(self, inbox_id: str, timeout: float) -> RequestOperation[Assignment]:
        """Take a parked message as this session's work."""
        wanted = clean_id(inbox_id, "inbox_id")
        return self._request(
            lambda request_id: work.InboxClaim(request_id, wanted), work.AssignmentGranted, self.granted, timeout
        )

    def awaiting(
        self, until: int | None, *, claims: bool, is_known: Callable[[str], bool] = lambda _: False
    ) -> AwaitOperation[Assignment | None]:
        """Wait for work until a time, for ever without one; ``claims`` takes also what is parked and may be claimed.

        Until it is accepted the broker gives the same work again; what ``is_known`` counts as nothing.
        """

        def read(answer: work.AssignmentGranted | work.InboxNothing) -> Assignment | None:
            if isinstance(answer, work.InboxNothing) or is_known(answer.assignment.assignment_id):
                return None
            return self.granted(answer)

        return AwaitOperation(
            lambda request_id, wait_ms: work.InboxAwait(request_id, wait_ms, claim=claims),
            (work.AssignmentGranted, work.InboxNothing),
            read,
            until,
            self._now,
        )

    def wait(self, timeout: float | None, *, claims: bool) -> AwaitOperation[Assignment | None]:
        """Wait for work, at most ``timeout`` seconds."""
        until = None if timeout is None else self._now() + milliseconds(timeout, "timeout")
        return self.awaiting(until, claims=claims)

    def report(
        self,
        assignment: AnyAssignment,
        state: str,
        detail: str | None,
        code: str | None,
        retryable: bool,
        event_id: str | None,
        timeout: float | None,
    ) -> RequestOperation[int]:
        """Say how far an assignment is, for as long as it takes without ``timeout``; return the number of the state."""
        if state not in REPORTABLE:
            known = ", ".join(sorted(REPORTABLE))
            raise UsageError(f"{state!r} is no state a worker reports", hint=f"One of {known}.")
        if retryable and state != "failed":
            raise UsageError("only what failed is retryable")
        frame = self._report(assignment, cast("ProcessingState", state), detail, code, retryable, event_id)

        def read(answer: work.AssignmentRecorded) -> int:
            if isinstance(assignment, Assignment):
                assignment.noted(frame.state, answer.state_sequence, gives_back=state in GIVING_BACK)
            return answer.state_sequence

        return self._request(lambda request_id: _named(frame, request_id), work.AssignmentRecorded, read, timeout)

    def accept(self, assignment: Assignment) -> RequestOperation[int]:
        """Accept an assignment, however long the broker is away; it ends by its own time, which the broker keeps."""
        return self.report(assignment, "accepted", None, None, False, None, None)

    def last_words(self, assignment: Assignment) -> Request:
        """Return the report of a worker that leaves: what it accepted is cut off, anything else it gives back."""
        state: ProcessingState = "interrupted" if assignment.accepted else "failed"
        frame = self._report(
            assignment,
            state,
            detail="The worker left",
            code="worker_left",
            retryable=not assignment.accepted,
            event_id=None,
        )
        return _named(frame, self._ids())

    def reply(
        self,
        assignment: AnyAssignment,
        text: str,
        attachments: Attachments,
        reply_id: str | None,
        timeout: float,
    ) -> RequestOperation[Receipt]:
        """Answer who sent the message; the result says whether it has the answer or finds it in its mailbox."""
        content = checked_content(text, attachments)
        name = REPLY if reply_id is None else _key(reply_id, "reply_id")
        target = ""
        if isinstance(assignment, Assignment):
            target = assignment.sender.name or assignment.sender.id

        def read(answer: work.AssignmentReplied) -> Receipt:
            if isinstance(assignment, Assignment):
                assignment.noted("reply_emitted")
            return Receipt("delivered" if answer.status == "sent" else "queued", answer.message_id, target)

        return self._request(
            lambda request_id: work.AssignmentReply(
                request_id, assignment.source_message_id, assignment.id, name, content
            ),
            work.AssignmentReplied,
            read,
            timeout,
        )

    def granted(self, answer: work.AssignmentGranted) -> Assignment:
        """Return the work an answer gives."""
        return self.pushed(answer.assignment, answer.sender, answer.message, answer.invocation)

    def pushed(
        self, info: work.AssignmentInfo, sender: Raw, message: Raw, invoked: InvokedInfo | UnsetType
    ) -> Assignment:
        """Return the work that came; raise ``Malformed`` when it breaks the protocol."""
        frame = MessageFrame(sender, message, invocation=invoked)
        return self._kind(assignment_of(info), message_of(frame, IncomingMessage))

    # --- inner works ------------------------------------------------------------------------------------

    def _report(
        self,
        assignment: AnyAssignment,
        state: ProcessingState,
        detail: str | None,
        code: str | None,
        retryable: bool,
        event_id: str | None,
    ) -> work.AssignmentReport:
        name = event_id or (state if state in ONCE else self._ids())
        return work.AssignmentReport(
            request_id="-",
            source_message_id=assignment.source_message_id,
            assignment_id=assignment.id,
            state_event_id=_key(name, "event_id"),
            state=state,
            retryable=True if retryable else UNSET,
            reason_code=UNSET if code is None else _detail(code, "code"),
            detail=UNSET if detail is None else _detail(detail, "detail"),
        )

    def _request(
        self, make: Callable[[str], Request], answers: type[Any], read: Callable[[Any], Result], timeout: float | None
    ) -> PatientRequest[Result]:
        deadline = None if timeout is None else self._now() + milliseconds(timeout, "timeout")
        return PatientRequest(make, answers, read, deadline)


def ended_without_word() -> dict[str, Any]:
    """Return the arguments of the report for a block that was left without one."""
    return {"state": "failed", "detail": "The worker left it without a reply", "code": "no_reply"}


def ended_by(error: BaseException) -> dict[str, Any]:
    """Return the arguments of the report for a block that was left by an exception.

    Only an ordinary one says that the work failed; a cancelled worker was cut off at a point nobody knows.
    """
    if isinstance(error, Exception):
        return {"state": "failed", "detail": f"{type(error).__name__}: {error}", "code": "exception"}
    return {"state": "interrupted", "detail": "The worker was stopped", "code": "cancelled"}


def _named(frame: work.AssignmentReport, request_id: str) -> work.AssignmentReport:
    frame.request_id = request_id
    return frame


def _key(value: str, what: str) -> str:
    cleaned = clean_text(value, what)
    if not 0 < len(cleaned) <= IDEMPOTENCY_KEY_CHARACTERS:
        raise UsageError(f"{what} must have 1 to {IDEMPOTENCY_KEY_CHARACTERS} characters")
    return cleaned


def _detail(value: str, what: str) -> str:
    """Return a reason, cut to what the broker keeps of one."""
    return clean_text(value, what)[:WORK_DETAIL_CHARACTERS]


def _check_page(limit: int) -> None:
    if not 0 < limit <= WORK_PAGE_CEILING:
        raise UsageError(f"limit must be a number from 1 to {WORK_PAGE_CEILING}, not {limit!r}")
