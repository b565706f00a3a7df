"""Make an operation of what a caller asks for; whatever can never work is refused here, before anything is sent.

``now`` is monotonic, ``wall`` epoch; both in milliseconds, as all time-outs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from msgspec import UNSET, Raw, UnsetType

from intercom.client.asking import AskOperation, OnProgress
from intercom.client.composing import clean_target, clean_text, compose
from intercom.client.mailviews import PendingAsk
from intercom.client.operations import RequestOperation
from intercom.client.profile import (
    PERSON,
    PUSHES,
    Profile,
    Push,
    checked_claim,
    checked_group,
    checked_name,
    checked_push_way,
)
from intercom.client.sending import SendOperation
from intercom.client.stage_views import StageView, stage_views
from intercom.client.supervision import authorize_child, claimed
from intercom.client.views import Attachment, GroupView, IncomingMessage, Receipt, SessionView, view_of
from intercom.errors import UsageError
from intercom.limits import ASK_MS, LONGEST_VALIDITY_MS, PENDING_REPLY_RETRY_MS, REQUEST_MS, RETRY_IDENTITY_MS, SEND_MS
from intercom.wire.frames import (
    Groups,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSessions,
    MembershipAck,
    Presence,
    PresenceAck,
    Sessions,
    trim,
)
from intercom.wire.targets import SCHEME

__all__ = [
    "Attachments",
    "answer",
    "ask",
    "ask_supervisor",
    "authorize_child",
    "join",
    "leave",
    "list_groups",
    "list_sessions",
    "list_stages",
    "reply",
    "send",
    "send_supervisor",
    "set_presence",
]

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]


def send(
    target: str,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    reply_to: str | None = None,
    timeout_ms: int | None = None,
    logical_target: str | None = None,
    hold: bool = False,
    queue: bool = True,
    valid_for_ms: int | None = None,
    progress: bool | str = False,
    caused_by: str | None = None,
) -> SendOperation[Receipt]:
    """Send a message; the result is a ``Receipt``.

    The time-out is at most ``RETRY_IDENTITY_MS``, by default ``SEND_MS``. ``logical_target`` is what the user wrote
    when the caller found out that it means ``target`` (protocol 6.2.4). With ``hold`` it may wait longer for a target
    that is being brought back, which ``SendOperation.held`` tells. ``queue`` lets the message wait for who is away,
    ``valid_for_ms`` bounds how long. With neither ``reply_to`` nor ``progress`` the message may turn out to be the
    answer to the only question the target asked (F67), unless the target is a stage. ``progress`` is true, or the id of
    the question whose progress the message tells, ``caused_by`` that of the message its sender was at work on.
    """
    if progress == "":
        raise UsageError("progress is an empty id", hint="Give the id of the question, or True.")
    if progress and reply_to is not None:
        raise UsageError("a message that tells progress answers nothing", hint="Leave out reply_to or progress.")
    deadline = _send_deadline(timeout_ms, now)
    if valid_for_ms is not None and valid_for_ms > LONGEST_VALIDITY_MS:
        raise UsageError(f"a message is valid for at most {LONGEST_VALIDITY_MS // 1000} s")
    wanted = clean_target(target)
    carried = list(attachments)

    def referring(to: str | None, progress_of: str | None = None) -> Raw:
        return compose(
            message_id=message_id,
            timestamp=wall,
            text=text,
            attachments=carried,
            reply_to=to,
            progress_of=progress_of,
            caused_by=caused_by,
        )

    # What a run is told at a stage is for whoever the stage will be: it answers nobody.
    may_refer = reply_to is None and not trim(wanted).startswith(SCHEME)
    return SendOperation(
        message_id,
        wanted,
        referring(reply_to, progress if isinstance(progress, str) else None),
        deadline=deadline,
        logical_target=_wording(logical_target),
        may_be_held=hold,
        queue=queue,
        valid_until=None if valid_for_ms is None else now + valid_for_ms,
        answers=reply_to,
        as_answer=referring if may_refer and not progress else None,
        as_progress=partial(referring, None) if may_refer and progress is True else None,
    )


def ask(
    target: str,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    timeout_ms: int = ASK_MS,
    logical_target: str | None = None,
    patience_ms: int | None = None,
    on_progress: OnProgress | None = None,
    on_open: Callable[[], object] | None = None,
    confirm: bool = True,
) -> AskOperation:
    """Ask a question; the result is the answer, which its taker confirms without ``confirm``.

    The time-out is at most ``ASK_MS``, for the person any; ``logical_target`` as in ``send``. Every sign of progress
    gives the other side ``patience_ms`` from then on, within the longest time, and goes to ``on_progress`` (F93).
    ``on_open`` is called once, when the other side has the question or will get it.
    """
    wanted = clean_target(target)
    longest_ms = max(ASK_MS, timeout_ms) if trim(wanted).lower() == PERSON else ASK_MS
    deadline = now + _bounded(timeout_ms, longest_ms, "an ask")
    message = compose(message_id=message_id, timestamp=wall, text=text, attachments=attachments, expects_reply=True)
    operation = AskOperation(
        message_id, wanted, message, deadline=deadline, logical_target=_wording(logical_target), queue=True
    )
    operation.on_progress = on_progress
    operation.on_open = on_open
    operation.confirms = confirm
    operation.be_patient(patience_ms, now + longest_ms)
    return operation


def send_supervisor(
    profile: Profile,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    reply_to: str | None = None,
    timeout_ms: int | None = None,
) -> SendOperation[Receipt]:
    """Send a message up the supervisor line (protocol 4.9), whatever the groups; else as ``send``."""
    claimed(profile)
    message = compose(message_id=message_id, timestamp=wall, text=text, attachments=attachments, reply_to=reply_to)
    return SendOperation(message_id, "", message, deadline=_send_deadline(timeout_ms, now), is_supervised=True)


def ask_supervisor(
    profile: Profile,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    timeout_ms: int = ASK_MS,
    patience_ms: int | None = None,
    on_progress: OnProgress | None = None,
) -> AskOperation:
    """Ask the supervisor a question; else as ``ask``."""
    claimed(profile)
    deadline = now + _bounded(timeout_ms, ASK_MS, "an ask")
    message = compose(message_id=message_id, timestamp=wall, text=text, attachments=attachments, expects_reply=True)
    operation = AskOperation(message_id, "", message, deadline=deadline, is_supervised=True)
    operation.on_progress = on_progress
    operation.be_patient(patience_ms, now + ASK_MS)
    return operation


def reply(
    to: IncomingMessage,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    error: bool = False,
    timeout_ms: int | None = None,
) -> SendOperation[Receipt]:
    """Answer a message; a question is answered only while it is open.

    The default time-out is ``PENDING_REPLY_RETRY_MS``: shortly after a reconnect the asker may not be back yet.
    """
    deadline = now + (
        PENDING_REPLY_RETRY_MS if timeout_ms is None else _bounded(timeout_ms, RETRY_IDENTITY_MS, "a reply")
    )
    message = compose(
        message_id=message_id, timestamp=wall, text=text, attachments=attachments, reply_to=to.id, error=error
    )
    return SendOperation(
        message_id,
        to.sender.id,
        message,
        deadline=deadline,
        is_reply=to.expects_reply,
        answers=to.id,
        expected_recipient=to.sender.id,
        finishes=to.id,
        label=to.sender.name,
        queue=True,
    )


def answer(
    question: PendingAsk,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    attachments: Attachments = (),
    error: bool = False,
    timeout_ms: int | None = None,
) -> SendOperation[Receipt]:
    """Answer a question that ``pending`` told of, whoever of the identity received it; else as ``reply``."""
    deadline = now + (
        PENDING_REPLY_RETRY_MS if timeout_ms is None else _bounded(timeout_ms, RETRY_IDENTITY_MS, "a reply")
    )
    message = compose(
        message_id=message_id,
        timestamp=wall,
        text=text,
        attachments=attachments,
        reply_to=question.message_id,
        error=error,
    )
    return SendOperation(
        message_id,
        question.asker_id,
        message,
        deadline=deadline,
        is_reply=True,
        answers=question.message_id,
        finishes=question.message_id,
        label=question.asker_name,
        queue=True,
    )


def list_sessions(group: str | None, *, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[SessionView]]:
    """Ask who is in reach, or in one group; the result is a list of ``SessionView``."""
    wanted: str | UnsetType = UNSET if group is None else clean_text(group, "group")
    return RequestOperation(
        lambda request_id: ListSessions(request_id, wanted),
        Sessions,
        lambda answer: [view_of(session) for session in answer.sessions],
        now + timeout_ms,
    )


def list_stages(group: str | None, *, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[StageView]]:
    """Ask which workflow stages are in sight, or those of one group; the result is a list of ``StageView``."""
    wanted: str | UnsetType = UNSET if group is None else clean_text(group, "group")
    return RequestOperation(
        lambda request_id: ListSessions(request_id, wanted), Sessions, stage_views, now + timeout_ms
    )


def list_groups(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[GroupView]]:
    """Ask which groups there are; the result is a list of ``GroupView``."""

    def read(answer: Groups) -> list[GroupView]:
        return list(answer.groups)

    return RequestOperation(ListGroups, Groups, read, now + timeout_ms)


def join(
    profile: Profile, group: str, *, now: int, wall: int, timeout_ms: int = REQUEST_MS
) -> RequestOperation[tuple[str, ...]]:
    """Join a group; the result is the tuple of all memberships."""
    wanted = checked_group(group)
    return RequestOperation(
        lambda request_id: JoinGroup(wanted, request_id),
        MembershipAck,
        lambda answer: profile.regroup(answer.groups, wall),
        now + timeout_ms,
    )


def leave(
    profile: Profile, group: str | None, *, now: int, wall: int, timeout_ms: int = REQUEST_MS
) -> RequestOperation[tuple[str, ...]]:
    """Leave a group, or all but the home group; the result is the tuple of all memberships."""
    wanted: str | UnsetType = UNSET if group is None else checked_group(group)
    return RequestOperation(
        lambda request_id: LeaveGroup(request_id, wanted),
        MembershipAck,
        lambda answer: profile.regroup(answer.groups, wall),
        now + timeout_ms,
    )


def set_presence(
    profile: Profile,
    *,
    now: int,
    wall: int,
    name: str | None = None,
    status: str | None = None,
    model: str | None = None,
    push: Push | None = None,
    push_way: str | None = None,
    timeout_ms: int = REQUEST_MS,
) -> RequestOperation[None]:
    """Change what peers see; ``None`` leaves a member as it is. The result is ``None``."""
    if push not in (None, *PUSHES):
        raise UsageError(f"push must be one of {', '.join(PUSHES)}, not {push!r}")
    way = None if push_way is None else checked_push_way(push_way)
    if name is None and status is None and model is None and push is None and way is None:
        raise UsageError("set_presence was called without a change")
    new_name = None if name is None else checked_name(name)
    new_status = None if status is None else checked_claim(status, "status")
    new_model = None if model is None else checked_claim(model, "model")

    announcements = profile.announcements

    def make(request_id: str) -> Presence:
        nonlocal announcements
        announcements = profile.announcements
        return Presence(
            request_id=request_id,
            name=UNSET if new_name is None else new_name,
            status=UNSET if new_status is None else new_status,
            model=UNSET if new_model is None else new_model,
            push=UNSET if push is None else push,
            push_way=UNSET if way is None else way,
        )

    def read(answer: PresenceAck) -> None:
        profile.name = profile.name if new_name is None else new_name
        if new_status is not None and announcements == profile.announcements:
            profile.status = new_status
        profile.last_activity = wall
        profile.model = profile.model if new_model is None else new_model
        if push is not None or way is not None:
            profile.push_way = way
        profile.push = profile.push if push is None else push

    return RequestOperation(make, PresenceAck, read, now + timeout_ms)


def _send_deadline(timeout_ms: int | None, now: int) -> int:
    return now + (SEND_MS if timeout_ms is None else _bounded(timeout_ms, RETRY_IDENTITY_MS, "a send"))


def _wording(logical_target: str | None) -> str | None:
    return None if logical_target is None else clean_target(logical_target)


def _bounded(timeout_ms: int, longest_ms: int, what: str) -> int:
    if timeout_ms > longest_ms:
        raise UsageError(f"{what} waits at most {longest_ms // 1000} s, not {timeout_ms / 1000:g} s")
    if timeout_ms <= 0:
        raise UsageError(f"the timeout of {what} must be more than 0 s")
    return timeout_ms
