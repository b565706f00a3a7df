"""Hold every reason text the broker writes, so that broker, client and tests share one spelling.

Texts of protocol 5.29 are exact. The others are ours: one sentence, safe to follow literally, beginning with a
part that never varies, by which a client recognises them (``code_of``).
"""

from __future__ import annotations

from collections.abc import Sequence

SESSION_NOT_FOUND = "Session not found"
SENDER_NOT_FOUND = "Sender session not found"
SELF_TARGET = "Cannot message the current session"
DIFFERENT_GROUP = "Target session is in a different intercom group"
INVALID_ATTEMPT_ID = "Invalid attemptId format"
INVALID_MESSAGE = "Invalid message format"
RESERVED_MESSAGE_ID = "Invalid message id: those that begin with flow-dispatch/ are the broker's own"
INVALID_CHANNEL = "Invalid channel"
INVALID_LOGICAL_TARGET = "Invalid logicalTarget format"
INVALID_PENDING_REPLY = "Invalid requirePendingReply: only true is allowed"
INVALID_EXPECTED_RECIPIENT = "Invalid expectedRecipientId format"
INVALID_REPLY_TARGET = "Invalid resolveReplyTarget: only true is allowed"
PENDING_REPLY_FORM = (
    "Invalid requirePendingReply: it needs replyTo, and goes neither with expectsReply nor with supervisor_send"
)
NOT_A_CHILD = "Supervisor channel is not authorized"
OTHER_SUPERVISOR = "Supervisor target does not match the authorized relationship"
NOT_AN_AGENT = "Target is an internal connection, not an agent, and cannot receive messages"
TERMINAL = (
    "Target is a non-interactive child that has finished and cannot reply; "
    "start a fresh child with explicit context instead"
)
CANNOT_BE_TOLD = "Target cannot be shown a question and would not answer; send a message instead"
OTHER_RECIPIENT = "Target is no longer the expected recipient; list the sessions and address it again"
NO_OPEN_QUESTION = "No open question authorizes this reply"
UNCERTAIN = (
    "Outcome unknown: an earlier attempt of this message may have arrived, and the target does not confirm "
    "receipts; ask the target before sending it under a new id"
)
UNCERTAIN_ELSEWHERE = (
    "Outcome unknown: an earlier attempt of this message may have arrived at another session, which its target meant "
    "then; find out before sending it under a new id"
)
ROUTE_LOST = "The question's route cannot be securely rebound; ask again under a new message id"
ALREADY_ANSWERED = (
    "Already answered: the answer went to who asked under this message id before; ask under a new one to ask again"
)
UNDER_WAY = (
    "Outcome not yet known: an earlier attempt of this message is still being written; retry with the same message id"
)
CAPACITY = "Capacity reached"
NOT_RECORDED = "Not recorded: the broker could not write its store; nothing was sent, retry with the same message id"
NOT_STORED = "Not recorded: the broker could not write its store; nothing has changed, try again"
NOT_CONFIRMED_DURABLY = (
    "Outcome not durably confirmed: the message went out but the store could not record it; "
    "retry with the same message id"
)
CLUSTER_UNAVAILABLE = "Other machines cannot be reached now; retry with the same message id, or let the message wait"
CLUSTER_UNAVAILABLE_TO_ASK = (
    "Other machines cannot be reached now, and a question cannot wait; ask again with the same message id later"
)
DRAINING = "Broker is about to stop and takes no new questions; retry with the same message id in a moment"
RECEIPT_MISSING = (
    "Recipient has not confirmed the message; the outcome is uncertain, a retry with the same message id is safe"
)
QUESTION_OUT_OF_REACH = (
    "Outcome not yet known: the question arrived at another machine, which cannot be reached now; "
    "retry with the same message id"
)
TOO_LATE = "Not valid any more: the time for which it was valid was over before it was handed over"
OUT_OF_DATE = (
    "Out of date: its reader was shown the message after the time it was valid for, and told so; "
    "send a new one if it still matters"
)
INVALID_QUEUEING = "Invalid queueIfAway or validFor: true or false, and whole milliseconds"
MAILBOX_FULL = "Mailbox full"
LOOP_REPEATS = (
    "Loop guard: in a long chain of messages that cause each other this one says the same again, and it was not sent; "
    "stop, unless you have something new to say"
)
REFUSED_BY_POLICY = (
    "Refused by the recipient's policy: it, or the person, does not let messages of this sender in; "
    "do not send it again"
)
SEVERAL_AWAY = "Several are away that can be meant by"
INBOX_FULL = "Inbox full"
INVALID_SUPERVISOR = "Invalid supervisor authorization"

# --- workflow stages ------------------------------------------------------------------------------------

DIFFERENT_RUN = "Target workflow run is in a different intercom group"
ROUTE_NOT_AUTHORIZED = "Pending-stage route is not authorized"
INVALID_ROSTER = "Invalid workflow-stage roster"
INVALID_POSSIBLE_ROSTER = "Invalid workflow possible-stage roster"
DUPLICATE_LIVE_OWNER = "Live workflow-stage route is owned by another active session"
LIVE_INVALID_KEY = "Live workflow-stage route is invalid: a stage key contains / or *"
LIVE_NO_OWNER = "Live workflow-stage route has no registered owner: the run has no pending-stage route at this broker"
LIVE_NOT_AN_AGENT = "Live workflow-stage route is refused: the registering session is not an agent"
LIVE_OTHER_CAPABILITY = "Live workflow-stage route is refused: the capability is not the run's"
LIVE_OTHER_GROUP = "Live workflow-stage route is refused: the session's home group does not belong to the run's group"
LIVE_NOT_A_WORKFLOW = "Live workflow-stage route is refused: the group of the run's owner is no workflow group"
LIVE_NON_AGENT_KEY = "Live workflow-stage route is refused: a stage key names a node that is not an agent"
STAGE_ASK = (
    "Only a live stage with its exact target can be asked; send the message without waiting for a reply instead, "
    "and it will be queued"
)
STAGE_REFUSED = "Workflow refused the message"
STAGE_UNACKNOWLEDGED = (
    "Workflow route did not acknowledge the message in time; the outcome is uncertain, retry with the same message id"
)
STAGE_OWNER_LEFT = (
    "Workflow route disconnected before acknowledging the message; the outcome is uncertain, "
    "retry with the same message id"
)
NOT_THE_ROUTE_OWNER = "Workflow notification is not authorized: it takes the run's owner, its capability and its group"
NOTIFICATION_REFUSED = "Workflow notification was not taken by its recipient"
NOTIFICATION_UNACKNOWLEDGED = "Workflow notification was not acknowledged in time; retry with the same message id"
NOTIFICATION_RECIPIENT_LEFT = "Workflow notification was not acknowledged: its recipient disconnected"

# --- restoring recipients -------------------------------------------------------------------------------

RESTORING_NOT_SUPERVISED = "Only the authorized supervisor may reserve this recipient"
RESTORING_INVALID_ALIAS = "Invalid alias: a restoring recipient is reserved under session ids"
RESTORING_UNCLAIMED = "Invalid capability: no child has claimed it yet, so there is nobody to be restored"
RESTORING_LONG_GROUP = "Invalid group: its name is too long to reserve a recipient in it"
RESTORING_CAPACITY = f"{CAPACITY}: too many recipients are reserved; release those that are back or gone, then reserve"
RESTORING_TIMED_OUT = "Recipient is being restored and did not come back in time; retry later under the same message id"
RESTORING_DORMANT = "Recipient belongs to an interrupted run that is not being restored now"
RESTORING_WITHDRAWN = "Withdrawn: its sender took the ask back before anything was sent"


def conflict(message_id: str) -> str:
    """Say that ``message_id`` was used before for something else (protocol 4.8 D9)."""
    return f"Intercom message ID '{message_id}' was already delivered with a different target or payload"


_BEHIND = "; now it was answered: "


def unconfirmed(reason: str) -> str:
    """Say that the repetition of a message that may have arrived was refused for a reason that passes."""
    return RECEIPT_MISSING if reason == SESSION_NOT_FOUND else f"{RECEIPT_MISSING}{_BEHIND}{reason}"


def unknown(reason: str) -> str:
    """Say that the repetition of a message that may have arrived was refused, and will be again."""
    return (
        "Outcome unknown: an earlier attempt of this message may have arrived; find out before sending it under a new "
        f"id{_BEHIND}{reason}"
    )


def behind(reason: str) -> str:
    """Return why the repetition of a message was refused that may have arrived; of any other refusal, its reason."""
    return reason.rpartition(_BEHIND)[2]


def conflict_waiting(message_id: str) -> str:
    """Say that the message that waits under ``message_id`` is another one (protocol 4.8 D9)."""
    return f"Intercom message ID '{message_id}' belongs to a message that waits, with a different target or payload"


def ambiguous_away(target: str, groups: Sequence[str], session_ids: Sequence[str], alone: Sequence[str] = ()) -> str:
    """Say that several who are away can be meant, and how each is named alone (protocol 9.5.1).

    ``alone``: names with their machines that lead to one each.
    """
    meant = [f"the address in group {group}" for group in groups] + [f"the session {each}" for each in session_ids]
    ways = [
        *([f"name {' or '.join(alone)}"] if alone else []),
        *(["send from only one of these groups"] if groups else []),
        *(["use the session ID"] if session_ids else []),
    ]
    return f'{SEVERAL_AWAY} "{target}": {", ".join(meant)}; {" or ".join(ways)}'


def ambiguous_name(target: str, alone: Sequence[str] = ()) -> str:
    """Say that several sessions have this name (protocol 5.29).

    ``alone``: names with their machines that lead to one each.
    """
    ways = f"{', '.join(alone)} or the session ID" if alone else "the session ID"
    return f'Multiple sessions named "{target}" are connected. Use {ways} instead.'


def ambiguous_prefix(target: str) -> str:
    """Say that several session ids begin like this (protocol 4.8 E5)."""
    return f'Multiple session IDs begin with "{target}". Use the full session ID instead.'


def authority_invalid(trouble: str | None) -> str:
    """Say that the store cannot be used, and why (protocol 4.8 D10)."""
    return f"Accepted-delivery authority is invalid: {trouble or 'the record of this message ID is damaged'}"


def removed_target_form(target: str | None) -> str:
    """Say that ``<run>:<stage>`` is understood no more, and the stage's ``target`` where exactly one is known."""
    hint = "" if target is None else f"; the stage is {target}"
    return "Workflow target form <run id>:<stage> is no longer supported, use workflow:<root run id>/<segment>" + hint


def too_many_routes(limit: int) -> str:
    """Say that a session owns as many runs as it may."""
    return f"Pending-stage route limit reached: one session owns at most {limit} runs"


def roster_too_large(limit: int) -> str:
    """Say that an owner announces more than is kept of it."""
    return f"{INVALID_ROSTER}: all runs of one owner may announce {limit} characters"


def capacity(what: str, retry_after_ms: int) -> str:
    """Say which limit was reached and when a retry with the same id may pass.

    ``retry_after_ms`` is in milliseconds and is shown in whole seconds, at least one.
    """
    seconds = max(1, -(-retry_after_ms // 1000))
    return f"{CAPACITY}: {what}; retry with the same message id after {seconds} s"


def ambiguous_restoring(target: str) -> str:
    """Say that several sessions that are being restored answer to this name or id (protocol 6.11)."""
    return f'Multiple sessions that are being restored answer to "{target}"; send again when they are back'


def away(label: str) -> str:
    """Say that somebody is away who cannot be asked now, and what to do instead (design section 7, Queueing)."""
    return f"Target is away: {label} cannot answer now; send it a message without expecting a reply, it will wait there"


def away_unqueued(label: str) -> str:
    """Say that somebody is away and that the sender wanted nothing to wait."""
    return f"Target is away: {label} is not connected, and without queueing nothing was sent"


def would_deadlock(target: str, between: Sequence[str]) -> str:
    """Say that an ask would close a circle of waits, and name it: the target and whom it waits for, in order."""
    circle = ", which waits for ".join((target, *between, "you"))
    return (
        f"Would deadlock: you would wait for {circle}; answer first what you were asked, "
        "or send a message that expects no reply"
    )


def loop_too_long(hops: int) -> str:
    """Say that a message would be one too many in a chain of messages that cause each other."""
    return (
        f"Loop guard: a chain of {hops} messages, each caused by the one before, ends here and this one was not sent; "
        "stop, unless you have something new to say: then send it as a message that answers none"
    )


def loop_too_fast(retry_after_ms: int) -> str:
    """Say that too many messages of a long chain came within a short time."""
    seconds = max(1, -(-retry_after_ms // 1000))
    return (
        "Loop guard: too many messages caused each other in a short time, and this one was not sent; if it says "
        f"something new, retry with the same message id after {seconds} s"
    )


_KEPT = {"quiet": "without waking it", "hold": "until the person lets them through"}


def kept_unqueued(kept: str) -> str:
    """Say that messages to this recipient wait, and that this one was not allowed to."""
    return f"Recipient is not disturbed now: messages to it wait {_KEPT[kept]}; send one that may wait"


def kept_ask(kept: str) -> str:
    """Say that messages to this recipient wait, so that nobody would answer a question soon."""
    return (
        f"Recipient is not disturbed now: messages to it wait {_KEPT[kept]}, so it cannot be asked; "
        "send it a message that expects no reply, it will wait there"
    )


def mailbox_full(label: str, retry_after_ms: int) -> str:
    """Say that nothing more may wait for this target now."""
    seconds = max(1, -(-retry_after_ms // 1000))
    return f"{MAILBOX_FULL}: too much waits for {label} already; retry with the same message id after {seconds} s"


def inbox_full(retry_after_ms: int) -> str:
    """Say that nothing more may be parked now."""
    seconds = max(1, -(-retry_after_ms // 1000))
    return f"{INBOX_FULL}: too much is parked already; retry with the same message id after {seconds} s"


def reserved_group(name: str) -> str:
    """Say that a group name is reserved (protocol 4.5)."""
    return f'Invalid presence group: Intercom group name "{name}" is reserved; choose another name'


OUTCOME_UNKNOWN = frozenset(
    {"outcome_unknown", "under_way", "receipt_missing", "not_confirmed", "owner_silent", "notification_unanswered"}
)
"""Codes of refusals after which the message may have arrived."""
_SETTLED = frozenset({"conflict", "not_recorded", "already_answered", "withdrawn", "expired"})
"""Codes of refusals that say of an earlier attempt, too, what became of it."""
_PASSING = frozenset(
    {
        "not_found",
        "away",
        "cluster_unavailable",
        "capacity",
        "rate",
        "not_restored",
        "undisturbed",
    }
)
"""Codes of refusals after which the same message may be taken later."""
_CODES = (
    (SESSION_NOT_FOUND, "not_found"),
    (SENDER_NOT_FOUND, "not_registered"),
    (SELF_TARGET, "self_target"),
    (DIFFERENT_GROUP, "different_group"),
    (DIFFERENT_RUN, "different_group"),
    (DUPLICATE_LIVE_OWNER, "route_refused"),
    ("Live workflow-stage route", "route_refused"),
    ("Pending-stage route", "route_refused"),
    (STAGE_ASK, "stage_ask"),
    (STAGE_REFUSED, "stage_refused"),
    ("Workflow route ", "owner_silent"),
    (NOT_THE_ROUTE_OWNER, "not_route_owner"),
    (NOTIFICATION_REFUSED, "notification_refused"),
    ("Workflow notification was not acknowledged", "notification_unanswered"),
    ("Workflow target form", "removed_target_form"),
    (RESTORING_NOT_SUPERVISED, "not_supervised"),
    ("Recipient is being restored", "not_restored"),
    (RESTORING_DORMANT, "not_restored"),
    ("Withdrawn", "withdrawn"),
    (NOT_AN_AGENT, "not_an_agent"),
    (TERMINAL, "terminal"),
    (CANNOT_BE_TOLD, "cannot_be_told"),
    (OTHER_RECIPIENT, "other_recipient"),
    (NO_OPEN_QUESTION, "no_open_question"),
    ("Outcome unknown", "outcome_unknown"),
    ("Outcome not yet known", "under_way"),
    (ROUTE_LOST, "route_lost"),
    ("Already answered", "already_answered"),
    ("Accepted-delivery authority is invalid", "store_unusable"),
    (CAPACITY, "capacity"),
    ("Not recorded", "not_recorded"),
    ("Outcome not durably confirmed", "not_confirmed"),
    ("Recipient has not confirmed", "receipt_missing"),
    ("Out of date", "expired"),
    (DRAINING, "broker_draining"),
    (CLUSTER_UNAVAILABLE, "cluster_unavailable"),
    (CLUSTER_UNAVAILABLE_TO_ASK, "cluster_unavailable"),
    ("Intercom message ID '", "conflict"),
    ("Target is away", "away"),
    (TOO_LATE, "too_late"),
    ("Would deadlock", "would_deadlock"),
    ("Recipient is not disturbed", "undisturbed"),
    ("Refused by the recipient's policy", "refused_by_policy"),
    ("Loop guard: too many", "rate"),
    ("Loop guard", "loop"),
    (MAILBOX_FULL, "capacity"),
    (INBOX_FULL, "capacity"),
    ("Multiple session", "ambiguous"),
    (SEVERAL_AWAY, "ambiguous"),
    (NOT_A_CHILD, "no_supervisor"),
    (OTHER_SUPERVISOR, "other_supervisor"),
    ("Invalid ", "invalid"),
)


def code_of(reason: str) -> str:
    """Return the stable code of a ``delivery_failed`` reason; ``refused`` for one that is not ours."""
    for beginning, code in _CODES:
        if reason.startswith(beginning):
            return code
    return "refused"


def is_unknown(reason: str) -> bool:
    """Tell whether a reason says that it is not known what became of the message."""
    return code_of(reason) in OUTCOME_UNKNOWN


def in_doubt(reason: str, *, is_left_ask: bool = False) -> str:
    """Return what is said of a message that may have arrived instead of why its repetition is refused.

    A reason that itself says what became of it, or that this is not known, stays. ``is_left_ask``: it is a question to
    somebody who may be gone for good, for whom its asker is not to wait.
    """
    code = code_of(reason)
    if code in OUTCOME_UNKNOWN or code in _SETTLED:
        return reason
    is_final = code not in _PASSING or (is_left_ask and code in ("not_found", "away"))
    return unknown(reason) if is_final else unconfirmed(reason)
