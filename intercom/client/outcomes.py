"""Turn the broker's refusals into errors, and decide what each of them means for a retry."""

from __future__ import annotations

import re
from typing import TypeVar

from msgspec import UNSET

from intercom.errors import (
    AmbiguousTarget,
    AssignmentLost,
    IntercomError,
    MessageConflict,
    NotNow,
    OutcomeUnknown,
    RequestRefused,
    Retry,
    SendError,
    SendRefused,
    TargetAway,
    TargetNotFound,
)
from intercom.wire.frames import DeliveryFailed
from intercom.wire.mail import RequestFailed
from intercom.wire.reasons import (
    DIFFERENT_RUN,
    INVALID_POSSIBLE_ROSTER,
    INVALID_ROSTER,
    ROUTE_NOT_AUTHORIZED,
    SEVERAL_AWAY,
    code_of,
)

UNCERTAIN_CODES = frozenset(
    {"receipt_missing", "not_confirmed", "under_way", "owner_silent", "notification_unanswered"}
)
"""Refusals after which the message may have arrived."""
RETRIED_CODES = UNCERTAIN_CODES | {"not_recorded", "broker_draining"}
"""Refusals after which the same message id is sent again without asking the caller."""
RETURNING_CODES = frozenset({"not_found", "no_open_question", "away"})
"""Refusals that may only mean, shortly after a reconnect, that the other side is not back yet."""

_CLASSES: dict[str, type[SendError]] = {
    "not_found": TargetNotFound,
    "away": TargetAway,
    "undisturbed": TargetAway,
    "rate": NotNow,
    "ambiguous": AmbiguousTarget,
    "conflict": MessageConflict,
    "capacity": NotNow,
    "not_recorded": NotNow,
    "outcome_unknown": OutcomeUnknown,
    "receipt_missing": OutcomeUnknown,
    "not_confirmed": OutcomeUnknown,
    "under_way": OutcomeUnknown,
    "owner_silent": OutcomeUnknown,
    "notification_unanswered": OutcomeUnknown,
    "not_restored": NotNow,
    "cluster_unavailable": NotNow,
}
_REASON_CODES = {"message_id_conflict": "conflict", "session_not_found": "not_found", "away": "away"}
_HINTS = {
    "outcome_unknown": "Ask the target whether it arrived before you send it under a new id.",
    "self_target": "`intercom list` shows the others.",
    "different_group": "Join a group of the target, or let it join yours.",
    "undisturbed": "A message that may wait (`send`, without `queue=False` or `--no-queue`) is put into its mailbox.",
    "refused_by_policy": "Only the recipient or the person can change that.",
    "expired": "It was shown as out of date. Send a new message if it still matters.",
    "loop": "Stop answering; if it matters, tell the person: `intercom send @me TEXT`.",
    "would_deadlock": "`intercom waits` shows who waits for whom, `intercom pending` what you were asked.",
    "cluster_unavailable": "`intercom cluster check` looks for the cause; on this machine everything works meanwhile.",
    "terminal": "Start a fresh session with the context it needs; this one will not answer.",
    "route_lost": "Ask again under a new message id.",
    "no_open_question": "The question was answered, withdrawn, or its asker is gone; send an ordinary message instead.",
    "store_unusable": "`intercom status` says what is wrong with the store.",
    "stage_ask": "Send it as a message instead of asking: it waits until the stage starts.",
}
_OTHER_RUN = "Join the group workflow:<root run id> of the target; `--group` or `intercom join` does that."

_ONE_GROUP = "`--group GROUP` acts in that group alone; `intercom addresses` shows who can be meant."

STAGE_HINTS: dict[str, tuple[str, Retry]] = {
    "owner_missing": ("Let the host of the run announce it first.", "after"),
    "duplicate_live_owner": ("Wait until the session that is this stage has left.", "after"),
    "owner_not_workflow": ("The host of the run must be in the group workflow:<root run id>.", "never"),
    "registrant_not_agent": ("Connect with purpose='agent'.", "never"),
    "capability_mismatch": ("Use the capability that the run has now.", "never"),
    "group_mismatch": ("Connect with the group of the run, or one below it, as the home group.", "never"),
    "invalid_stage_key": ("Use the id and the name that the roster has.", "never"),
    "non_agent_stage_key": ("The roster says that this node takes no messages.", "never"),
}
"""What helps against each refusal to go live, and whether it may pass (protocol 6.12.5)."""
RUN_CODES: dict[str, tuple[str, str]] = {
    ROUTE_NOT_AUTHORIZED: (
        "run_not_authorized",
        "Own the run from a session whose home group is the run's, and only once: another session may own it already.",
    ),
    INVALID_ROSTER: ("invalid_roster", "Check targets and groups of the stages: all must lie in this run."),
    INVALID_POSSIBLE_ROSTER: ("invalid_possible_stages", "Check the targets of the possible stages."),
}
"""Codes of the refusals of an announcement, and what helps (protocol 4.14)."""
_LOST_CODES = frozenset({"assignment_unknown", "assignment_target_mismatch"})
_RETRIES: dict[str, Retry] = {"outcome_unknown": "never"}
_AFTER = re.compile(r"after (\d{1,6}) s$", re.ASCII)

Problem = TypeVar("Problem", bound=IntercomError)


def refusal(answer: DeliveryFailed) -> SendError:
    """Return the error a ``delivery_failed`` stands for; its ``code`` says which rule refused."""
    code = code_of(answer.reason) if answer.reason_code is UNSET else _REASON_CODES[answer.reason_code]
    later = _AFTER.search(answer.reason)
    error = _CLASSES.get(code, SendRefused)(
        answer.reason,
        code=code,
        hint=_hint(code, answer.reason),
        retry=_RETRIES.get(code),
        retry_after_ms=int(later[1]) * 1000 if later else None,
    )
    error.message_id = answer.message_id
    return error


def _hint(code: str, reason: str) -> str | None:
    if reason == DIFFERENT_RUN:
        return _OTHER_RUN
    return _ONE_GROUP if reason.startswith(SEVERAL_AWAY) else _HINTS.get(code)


def refusal_of(answer: RequestFailed) -> RequestRefused:
    """Return the error a ``request_failed`` stands for."""
    kind = AssignmentLost if answer.code in _LOST_CODES else RequestRefused
    pause_ms = None if answer.retry_after_ms is UNSET else answer.retry_after_ms
    retry: Retry = "after" if answer.retryable else "never"
    return kind(answer.reason, code=answer.code, retry=retry, retry_after_ms=pause_ms)


def unknown(reason: str, message_id: str, *, code: str, cause: BaseException | None = None) -> OutcomeUnknown:
    """Return the error for a message that may or may not have arrived; a retry under its id is safe."""
    hint = f"Sending it again under the message id {message_id} is safe: it cannot arrive twice."
    error = OutcomeUnknown(reason, code=code, hint=hint)
    error.message_id = message_id
    error.__cause__ = cause
    return error


def again(error: Problem) -> Problem:
    """Return a copy of an error that several callers are told, so that each raises its own."""
    copy = type(error)(
        error.reason, code=error.code, hint=error.hint, retry=error.retry, retry_after_ms=error.retry_after_ms
    )
    if isinstance(error, SendError) and isinstance(copy, SendError):
        copy.message_id = error.message_id
    copy.__cause__ = error.__cause__
    return copy
