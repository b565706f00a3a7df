"""Define every error that crosses the public API.

    IntercomError
    ├── UsageError              usage                 called with something that can never work
    ├── ConfigError             config                a setting is unknown or out of range
    ├── HomeError               home                  the home cannot be used
    ├── BrokerError             not_recorded          no conversation with a broker, or its disk is full
    │   ├── NoBroker            no_broker             nothing answers, and nothing was to be started
    │   ├── BrokerBusy          busy                  it accepts but does not answer, or its backlog is full
    │   ├── BrokerStarting      starting              somebody is still starting it
    │   ├── StartFailed         start_failed          a started broker ended before it answered
    │   ├── AccessDenied        denied                this process may not use the socket
    │   ├── ConnectionLost      connection_lost       the connection ended before the answer
    │   ├── RequestTimeout      request_timeout       no answer in time
    │   └── ProtocolViolation   protocol              the other side broke the protocol
    ├── RegistrationRefused     registration_refused, supervisor_refused, address_limit and every other code
    │   │                                             the broker refused this session
    │   ├── RunRefused          run_not_authorized, invalid_roster, invalid_possible_stages
    │   ├── StageRefused        owner_missing, owner_not_workflow, registrant_not_agent, capability_mismatch,
    │   │                       group_mismatch, invalid_stage_key, non_agent_stage_key, duplicate_live_owner
    │   ├── AddressTaken        address_taken         the address was made by somebody else
    │   └── AddressHeld         address_held          another session receives for the address
    ├── ReservationRefused      not_supervised, reservation_refused   a child's place was not kept
    ├── SessionReplaced         replaced              another session took the place of this one
    ├── SessionClosed           force_closed          the person closed this session
    ├── PresenceRefused         presence_refused      a presence or membership change was refused
    ├── RequestRefused          feature_not_granted, unknown_session, unknown_address, ambiguous_address,
    │   │                       watch_limit, not_read, unknown_kind, spawn_unavailable, spawn_rate_limited,
    │   │                       spawn_timeout, spawn_failed, spawn_outcome_unknown,
    │   │                       inbox_unknown, source_mismatch, target_unknown, target_not_capable,
    │   │                       target_not_writable, assignment_in_progress, assignment_not_accepted,
    │   │                       state_broker_owned, sequence_stale, state_event_conflict, order_key_conflict,
    │   │                       reply_idempotency_conflict, send_outcome_unknown, unknown_link,
    │   │                       unknown_command, ambiguous_link, ambiguous_command, already_pinned,
    │   │                       flow_unknown, step_unknown, dispatch_unknown, flow_exists, flow_conflict,
    │   │                       report_conflict, request_key_conflict, not_flow_target
    │   │                       and every other code
    │   │                                             a request about mail, sessions or work was refused
    │   ├── AssignmentLost      assignment_unknown, assignment_target_mismatch   an assignment is not this session's
    │   ├── RouteUnclear        route_ambiguous, route_unknown, route_unparseable, route_unavailable
    │   │                                             a label leads to nobody
    │   └── RunError                                  of what was invoked
    │       ├── RunFailed       run_failed, run_cancelled   it was not done
    │       └── RunUnfinished   run_unfinished        the wait ended first, and it goes on
    ├── SendError                                     a message was not delivered
    │   ├── TargetNotFound      not_found, supervisor_gone  nobody in reach has that name or id
    │   ├── TargetAway          away                  the target is known and not here; nothing was sent
    │   ├── AmbiguousTarget     ambiguous             several sessions match
    │   ├── MessageConflict     conflict              the message id was used for something else
    │   ├── NotNow              capacity, not_recorded, not_restored
    │   │                                             nothing took effect; retry with the same id
    │   ├── OutcomeUnknown      outcome_unknown, under_way, receipt_missing, not_confirmed, owner_silent,
    │   │                       notification_unanswered, still_held, send_timeout,
    │   │                       connection_lost
    │   └── SendRefused         refused and every other code     it will not work as asked
    ├── TooLarge                too_large             a message or request above the limit, checked before sending
    └── AskError                                      an ask ended without an answer
        ├── PeerGone            peer_gone, undeliverable, expired  the other side left, or was never there
        ├── AskTimeout          ask_timeout           no answer in time
        └── ReplyFailed         reply_error           the other side answered with an error

Each has ``code`` (stable, for programs), ``reason`` (one sentence), ``hint`` (safe to follow literally, may be
empty), ``retry`` and ``exit_status`` (design: 0 done, 1 refused, 2 usage, 3 no such target, 4 conflict or
ambiguous, 5 not now, 6 not known or still going on, 7 not allowed here).
"""

from __future__ import annotations

import errno
from typing import Any, Literal, TypeAlias

Retry: TypeAlias = Literal["never", "same_id", "after"]
"""``never`` as asked; ``same_id`` at once under the same message id; ``after`` a pause."""


class IntercomError(Exception):
    """Carry what went wrong in a form for people and for programs."""

    code: str = "error"
    hint: str = ""
    retry: Retry = "never"
    exit_status: int = 1

    def __init__(
        self,
        reason: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        retry: Retry | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_ms = retry_after_ms
        if code is not None:
            self.code = code
        if hint is not None:
            self.hint = hint
        if retry is not None:
            self.retry = retry

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``code``, ``reason``, ``retry`` and, where there is one, ``hint``."""
        document: dict[str, Any] = {"code": self.code, "reason": self.reason, "retry": self.retry}
        if self.hint:
            document["hint"] = self.hint
        if self.retry_after_ms is not None:
            document["retryAfterMs"] = self.retry_after_ms
        return document


class UsageError(IntercomError):
    """Say that a call can never work as it was made."""

    code = "usage"
    exit_status = 2


class ConfigError(IntercomError):
    """Say that a setting is unknown, of the wrong type or out of range."""

    code = "config"
    exit_status = 2


class HomeError(IntercomError):
    """Say that the home directory cannot be used, and why."""

    code = "home"
    exit_status = 7


def unusable_file(what: str, error: OSError, hint: str = "") -> HomeError:
    """Return the error for a file of the home of which the kernel says something; ``hint`` is for any other reason."""
    reason = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HomeError(reason, hint="Free some space, and try again.", retry="after")
    if error.errno == errno.EROFS:
        hint = "Make its file system writable, or choose another home by INTERCOM_HOME, for all who are to talk."
    return HomeError(reason, hint=hint)


class BrokerError(IntercomError):
    """Say that there is no conversation with a broker."""

    exit_status = 5
    retry: Retry = "after"


class NoBroker(BrokerError):
    """Say that no broker answers on the socket."""

    code = "no_broker"
    hint = "Any command that sends or listens starts one; so does `intercom serve`."


class BrokerBusy(BrokerError):
    """Say that a broker holds the socket but does not answer."""

    code = "busy"
    hint = "Wait and try again; `intercom doctor` tells more."


class BrokerStarting(BrokerError):
    """Say that a broker is being started and does not answer yet."""

    code = "starting"
    hint = "Try again in a few seconds."


class StartFailed(BrokerError):
    """Say that a broker was started and ended before it answered."""

    code = "start_failed"
    hint = "Run `intercom serve` to see why it ends."


class AccessDenied(BrokerError):
    """Say that the kernel does not let this process use the socket or the home."""

    code = "denied"
    retry = "never"
    exit_status = 7
    hint = "If this process runs in a sandbox, allow Unix sockets and the path above."


class ConnectionLost(BrokerError):
    """Say that the connection ended before an answer came."""

    code = "connection_lost"
    retry = "same_id"
    exit_status = 6
    hint = "`intercom status` shows whether a broker runs; a message may be sent again under its message id."


class RequestTimeout(BrokerError):
    """Say that the broker did not answer a request in time; ``key`` names an order that can be repeated by it."""

    code = "request_timeout"
    exit_status = 6
    key: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Add ``key`` to the JSON form where there is one."""
        return {**super().as_dict(), **({"key": self.key} if self.key else {})}


class ProtocolViolation(BrokerError):
    """Say that the other side broke the protocol; the connection was closed."""

    code = "protocol"
    retry = "never"
    exit_status = 1


class RegistrationRefused(IntercomError):
    """Say that the broker refused to register this session."""

    code = "registration_refused"


class RunRefused(RegistrationRefused):
    """Say that the broker did not take what a session announced of a workflow run; nothing of it holds."""

    code = "run_not_authorized"


class StageRefused(RegistrationRefused):
    """Say that the broker did not let a session go live as a workflow stage; ``code`` says why."""

    code = "owner_missing"


class ReservationRefused(IntercomError):
    """Say that the broker does not keep the place of a child that is being brought back."""

    code = "reservation_refused"


class AddressTaken(RegistrationRefused):
    """Say that an address belongs to whoever made it, and that this process cannot show its token."""

    code = "address_taken"
    hint = "Choose another name."
    exit_status = 4


class AddressHeld(RegistrationRefused):
    """Say that another session receives for an address; nothing was changed."""

    code = "address_held"
    hint = "Its mail goes to that session; end that one first, or take its place on purpose."
    exit_status = 4


class SessionReplaced(IntercomError):
    """Say that another session took the place of this one, which is over and does not come back by itself."""

    code = "replaced"
    hint = "Mail that was not confirmed goes to the other one. Go on here only if the other one is to end."
    exit_status = 4


class SessionClosed(IntercomError):
    """Say that the person closed this session, which is over and does not come back by itself."""

    code = "force_closed"
    hint = "Ask the person before you open another one."


class PresenceRefused(IntercomError):
    """Say that the broker refused a presence or membership change; nothing changed."""

    code = "presence_refused"


_REQUEST_STATUSES = {
    "unknown_session": 3,
    "unknown_address": 3,
    "unknown_question": 3,
    "unknown_message": 3,
    "unknown_delivery": 3,
    "ambiguous_address": 4,
    "ambiguous_question": 4,
    "ambiguous_session": 4,
    "not_allowed": 7,
    "inbox_unknown": 3,
    "assignment_unknown": 3,
    "assignment_target_mismatch": 4,
    "target_unknown": 3,
    "source_mismatch": 4,
    "assignment_in_progress": 4,
    "sequence_stale": 4,
    "state_event_conflict": 4,
    "order_key_conflict": 4,
    "reply_idempotency_conflict": 4,
    "ambiguous_inbox": 4,
    "ambiguous_assignment": 4,
    "send_outcome_unknown": 6,
    "unknown_kind": 3,
    "spawn_outcome_unknown": 6,
    "spawn_timeout": 6,
    "unknown_link": 3,
    "unknown_command": 3,
    "ambiguous_link": 4,
    "ambiguous_command": 4,
    "conflict": 4,
    "capacity": 5,
    "route_ambiguous": 4,
    "route_unknown": 3,
    "route_unparseable": 2,
    "route_unavailable": 3,
    "invocation_unknown": 3,
    "invocation_conflict": 4,
    "update_conflict": 4,
    "run_terminal": 4,
    "run_unfinished": 6,
    "invalid_flow": 2,
    "flow_unknown": 3,
    "step_unknown": 3,
    "dispatch_unknown": 3,
    "flow_exists": 4,
    "flow_conflict": 4,
    "report_conflict": 4,
    "request_key_conflict": 4,
    "binding_conflict": 4,
}
_REQUEST_HINTS = {
    "feature_not_granted": "`intercom doctor` compares the versions of this client and its broker.",
    "store_unusable": "`intercom status` says what is wrong with the store.",
    "unknown_session": "`intercom session list` shows the sessions that are known.",
    "unknown_address": "`intercom addresses` shows the addresses there are.",
    "unknown_delivery": "`intercom outbox list` shows what is there; what became of a message, `intercom trace`.",
    "not_a_message": "`intercom invocation list` shows the tasks.",
    "inbox_unknown": "`intercom inbox list` shows what is there; somebody may have taken or settled it.",
    "target_unknown": "`intercom session list` shows the sessions that are known.",
    "target_not_capable": "Hand it to a session that takes work.",
    "target_not_writable": "Try again, or hand it to another session; it is still in the inbox.",
    "assignment_in_progress": "`intercom assignment list` shows who has it.",
    "assignment_unknown": "Stop working on it: it ended, or somebody else may have it by now.",
    "assignment_target_mismatch": "Act under the address it was handed to, with `--as NAME`.",
    "assignment_not_accepted": "Accept it first: `intercom assignment report ID accepted`.",
    "state_broker_owned": "Report accepted, started, waiting_for_capability, interrupted, failed or expired.",
    "state_event_conflict": "Report it under another event id.",
    "order_key_conflict": "Give the order another key.",
    "reply_idempotency_conflict": "It was answered, or an answer is under way; the first text counts.",
    "unknown_link": "`intercom link list` shows the workers that have ever connected.",
    "unknown_command": "`intercom command list` shows the commands that are kept.",
    "watch_limit": "End a watch that is not needed.",
    "spawn_unavailable": "Name the command in intercom.toml: `intercom docs configuration` says how, under spawn.",
    "unknown_kind": "Take one of those, or name it in intercom.toml and `intercom restart`.",
    "spawn_rate_limited": "Wait before you order another one.",
    "spawn_outcome_unknown": "`intercom list` shows whether it is there; order another one only if it is not.",
    "spawn_timeout": "`intercom list` shows whether it came late; if it did not, order another one, under another key.",
    "spawn_failed": "Run its command by hand to see why; `intercom docs configuration` says what it finds.",
    "send_outcome_unknown": "Ask who sent the message whether the answer arrived; do not send another one.",
    "ambiguous_address": "Name its group too; `intercom addresses` shows it.",
    "invalid_flow": "Nothing was changed; `intercom docs flows` shows how a flow is written.",
    "flow_unknown": "`intercom flow list` shows all flows; one of another group takes `--group GROUP`.",
    "step_unknown": "`intercom flow status ID` shows the steps of a flow.",
    "dispatch_unknown": "`intercom flow status ID --json` shows the dispatches of a flow.",
    "flow_exists": "Choose another id; `intercom flow list` shows those that are taken.",
    "flow_conflict": "`intercom flow status ID` shows how the flow is, and what may be done with it.",
    "report_conflict": "Do not report it again: the report that was made first stays.",
    "dispatch_closed": "`intercom flow status ID` shows what became of the step.",
    "request_key_conflict": "Make the request under another key.",
    "not_flow_target": "Report under the name that was handed the step, with `--as NAME`.",
}


class RequestRefused(IntercomError):
    """Say that a request about mail, sessions or work was refused; ``code`` says by which rule."""

    code = "request_refused"

    def __init__(
        self,
        reason: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        retry: Retry | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        wanted = _REQUEST_HINTS.get(code or self.code) if hint is None else hint
        super().__init__(reason, code=code, hint=wanted, retry=retry, retry_after_ms=retry_after_ms)
        self.exit_status = _REQUEST_STATUSES.get(self.code, 1 if self.retry == "never" else 5)


class AssignmentLost(RequestRefused):
    """Say that an assignment is not this session's: it ended, went back to the inbox, or is somebody else's."""

    code = "assignment_unknown"


class RouteUnclear(RequestRefused):
    """Say that a label leads to nobody; each of ``labels`` leads to one who may have been meant."""

    code = "route_unknown"
    labels: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Add ``labels`` to the JSON form."""
        return {**super().as_dict(), **({"labels": list(self.labels)} if self.labels else {})}


class RunError(RequestRefused):
    """Tell of the run of an invocation; ``invocation_id`` names it."""

    invocation_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Add ``invocationId`` to the JSON form."""
        return {**super().as_dict(), "invocationId": self.invocation_id}


class RunFailed(RunError):
    """Say that what was invoked failed or was cancelled."""

    code = "run_failed"


class RunUnfinished(RunError):
    """Say that a wait ended before the run did, which goes on."""

    code = "run_unfinished"


class SendError(IntercomError):
    """Say that a message was not delivered; ``message_id`` names the operation."""

    code = "refused"
    message_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Add ``messageId`` to the JSON form."""
        return {**super().as_dict(), "messageId": self.message_id}


class TargetNotFound(SendError):
    """Say that nobody in reach has that name or id."""

    code = "not_found"
    hint = "`intercom list` shows who can be reached."
    exit_status = 3


class TargetAway(SendError):
    """Say that the target is known and not here; nothing was sent."""

    code = "away"
    hint = "A message that may wait (`send`, without `queue=False` or `--no-queue`) reaches it when it is back."
    retry: Retry = "after"
    exit_status = 5


class AmbiguousTarget(SendError):
    """Say that several sessions match the target."""

    code = "ambiguous"
    hint = "Use the full session id from `intercom list`."
    exit_status = 4


class MessageConflict(SendError):
    """Say that the message id was used before with other content or another target."""

    code = "conflict"
    hint = "Send it under a new message id."
    exit_status = 4


class NotNow(SendError):
    """Say that nothing took effect and that a retry under the same id may pass."""

    retry = "after"
    exit_status = 5


class OutcomeUnknown(SendError):
    """Say that the message may or may not have arrived."""

    code = "outcome_unknown"
    retry = "same_id"
    exit_status = 6


class SendRefused(SendError):
    """Say that the send will not work as asked."""


class TooLarge(IntercomError):
    """Say that a message, or any other request, is above the size limit; nothing was sent."""

    code = "too_large"
    hint = "Send the path of a file instead of its content."


class AskError(IntercomError):
    """Say that an ask ended without an answer; ``message_id`` names the question."""

    exit_status = 6
    message_id: str = ""
    answer: Any = None
    """The ``IncomingMessage`` that says so, where the other side wrote the reason: that is its word, not intercom's."""

    def as_dict(self) -> dict[str, Any]:
        """Add ``messageId`` to the JSON form."""
        return {**super().as_dict(), "messageId": self.message_id}


class PeerGone(AskError):
    """Say that the asked session left before it answered."""

    code = "peer_gone"
    hint = "Ask again once it is back; `intercom list` shows it then."


class AskTimeout(AskError):
    """Say that no answer came in time; the question was delivered."""

    code = "ask_timeout"
    hint = "The question was withdrawn; ask again with a longer timeout, or send a message and go on."


class ReplyFailed(AskError):
    """Say that the other side answered that it could not answer."""

    code = "reply_error"
    exit_status = 1
