"""Show what the broker told in the form a program works with: sessions, messages, receipts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, convert
from msgspec.json import decode

from intercom.client.composing import PROGRESS_OF
from intercom.wire.codec import parse_message
from intercom.wire.frames import Attachment, GroupEntry, MessageFrame, SessionInfo, trim
from intercom.wire.invocations import CONTEXT
from intercom.wire.invocations import Execution as WireExecution
from intercom.wire.mail import MailInfo

if TYPE_CHECKING:
    from intercom.client.flowsteps import FlowStep
    from intercom.wire.frames import Message
    from intercom.wire.invocations import InvokedInfo

__all__ = [
    "Attachment",
    "Execution",
    "GroupView",
    "IncomingMessage",
    "Mail",
    "Malformed",
    "Notice",
    "Receipt",
    "SessionView",
    "may_mean",
    "message_of",
    "view_of",
]

GroupView = GroupEntry
ListedState: TypeAlias = Literal["active", "reconnecting"]


class Malformed(Exception):
    """Say that the broker wrote a session or message object that breaks protocol section 4."""


class SessionView(Struct, frozen=True, kw_only=True):
    """Describe a session as the broker shows it; ``raw`` holds every member as it came.

    ``pid`` is what the session claims, ``peer_pid`` what the kernel says of it, where the broker knows; times are
    epoch milliseconds. ``state`` is ``"reconnecting"`` for one that lost its connection at ``state_since`` and may come
    back.
    """

    id: str
    name: str | None
    cwd: str
    model: str
    pid: int | float
    peer_pid: int | None
    status: str | None
    group: str | None
    groups: tuple[str, ...]
    started_at: int | float
    last_activity: int | float
    raw: dict[str, Any]
    state: ListedState = "active"
    state_since: int | float | None = None
    unconfirmed_since: int | float | None = None
    """Since when it has confirmed nothing of what it was sent, once that is long; it may be at work, or deaf."""
    is_person: bool = False
    """Whether it acts as ``@me``, the person; the broker says so, and no session can say it of itself."""


class Mail(Struct, frozen=True):
    """Say of a message that it waited in a mailbox; times are epoch milliseconds."""

    entry: int
    """Its place in the order of the mailbox; it grows for ever."""
    queued_at: int
    age_ms: int
    """How long it had waited when it was handed over, by the broker's clock."""
    offers: int
    """How often it was handed over, this time included; from 2 on an earlier holder may have seen it."""
    sends: int = 1
    """How often its sender wrote it, word for word, while it waited; it is shown once."""
    last_queued_at: int | None = None
    """When the last of those came, where there is more than one."""


class Notice(Struct, frozen=True):
    """Say that the broker itself wrote a message, and which message of this session it is about."""

    kind: Literal["undeliverable", "expired"]
    message_id: str
    target: str
    """The target as it was named."""
    reason: str


class Execution(Struct, frozen=True, kw_only=True):
    """Say how the target of an invocation is wished to do its task; the target need not follow it.

    ``kind``: in what way, as its host calls it. ``model``: with which model. ``session``: in which session of that
    host, one it begins, the one it is in, the one that ``target_session_id`` names, or a copy of that or of its own.
    """

    kind: str | None = None
    model: str | None = None
    session: Literal["new", "reuse", "existing", "fork"] | None = None
    target_session_id: str | None = None


class Invoked(Struct, frozen=True):
    """Say of a message that it brings the task of an invocation, or that the task is not wanted any more."""

    id: str
    run_id: str
    action: Literal["consult", "execute", "summarize", "status", "wake"]
    is_cancelled: bool
    context: str | None = None
    """What whoever asked says to know for it; among the attachments of the message, too."""
    execution: Execution | None = None
    labels: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    """Of whoever asked, as it was given."""
    stream: bool = False
    """Reports are wished while it goes on."""
    about: str | None = None
    """Id of the message out of which it came."""


class IncomingMessage:
    """Hold a message somebody sent to this session.

    ``reply_to`` is the id of the message it answers, ``reply_error`` is set when it says that there will be no
    answer, ``timestamp`` is the sender's clock in epoch milliseconds, ``channel`` is ``"supervisor"`` or ``None``,
    ``raw`` the message object as it came, ``progress_of`` the id of the question of which it tells the progress.
    ``is_notification`` marks what the host of a workflow run tells of the message ``reply_to`` names, which this
    session sent to a stage. ``mail`` is set when it waited in a mailbox, ``notice`` when the broker wrote it to say
    what became of a message of this session. ``valid_until`` is when, by its sender's word, it
    stops being of use. ``flow`` is set when it brings a step of a flow, ``invoked`` when it brings the task of an
    invocation. ``withdrawn`` is true while nobody waits for the answer to a question any more: who asked took it
    back, or left; it may change while the message is held.
    """

    __slots__ = (
        "attachments",
        "channel",
        "expects_reply",
        "flow",
        "id",
        "invoked",
        "is_notification",
        "mail",
        "notice",
        "progress_of",
        "raw",
        "reply_error",
        "reply_to",
        "sender",
        "text",
        "timestamp",
        "valid_until",
        "withdrawn",
    )

    def __init__(
        self,
        *,
        id: str,
        text: str,
        sender: SessionView,
        attachments: tuple[Attachment, ...] = (),
        expects_reply: bool = False,
        reply_to: str | None = None,
        reply_error: str | None = None,
        timestamp: int | float = 0,
        channel: Literal["supervisor"] | None = None,
        raw: dict[str, Any] | None = None,
        is_notification: bool = False,
        mail: Mail | None = None,
        notice: Notice | None = None,
        valid_until: int | None = None,
        invoked: Invoked | None = None,
    ) -> None:
        self.id = id
        self.text = text
        self.sender = sender
        self.attachments = attachments
        self.expects_reply = expects_reply
        self.reply_to = reply_to
        self.reply_error = reply_error
        self.timestamp = timestamp
        self.channel = channel
        self.raw: dict[str, Any] = raw if raw is not None else {}
        progress_of = self.raw.get(PROGRESS_OF)
        self.progress_of = progress_of if isinstance(progress_of, str) else None
        self.is_notification = is_notification
        self.mail = mail
        self.notice = notice
        self.valid_until = valid_until
        self.flow: FlowStep | None = None
        if "flowDispatch" in self.raw:
            from intercom.client.flowsteps import step_in  # few messages bring a step

            self.flow = step_in(self.raw, id)
        self.invoked = invoked
        self.withdrawn = False

    @property
    def age(self) -> float:
        """Return the seconds it had waited when it was handed over; 0 for what never waited."""
        return 0.0 if self.mail is None else self.mail.age_ms / 1000

    @property
    def is_out_of_date(self) -> bool:
        """Tell whether its time is over now: it was handed over in time and waited here since."""
        return self.out_of_date_ms > 0

    @property
    def out_of_date_ms(self) -> float:
        """Return for how many milliseconds its time has been over; 0 while it is of use."""
        return 0 if self.valid_until is None else max(0.0, time.time() * 1000 - self.valid_until)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} from {self.sender.name or self.sender.id!r}>"


class Receipt(Struct, frozen=True):
    """Say what became of a message that was sent.

    ``delivered``: the recipient has it. ``queued``: it waits durably at ``position``; ``is_known`` is false when no
    known stage of its run matches the target. ``held``: it waits in the broker for a recipient that is being brought
    back, for ``held_ms`` milliseconds at most; that is not the end, the session's ``outcome`` tells it.
    """

    state: Literal["delivered", "queued", "held"]
    message_id: str
    target: str
    """The target as it was named."""
    position: int | None = None
    is_known: bool = True
    held_ms: int | None = None
    inferred_reply_to: str | None = None
    """Id of the question it was taken as the answer to, although it was sent as an ordinary message."""
    kept: Literal["quiet", "hold"] | None = None
    """Why it waits although its target is here: the target is not to be woken, or the person has to let it through."""
    joined: str | None = None
    """Id of an older message of this session that waits there and says the same: they are shown as one."""
    hint: str = ""
    """How to answer, where the target asked questions and this message answers none of them."""


def may_mean(target: str, session: SessionView) -> bool:
    """Tell whether a target can mean a session: by its id, its name, or eight digits of its id (protocol 6.2.1)."""
    wanted = trim(target)
    named = session.name is not None and session.name.lower() == wanted.lower()
    return session.id == wanted or named or (len(wanted) == 8 and session.id.lower().startswith(wanted.lower()))


_LACKING = {"cwd": "", "model": "", "pid": 0, "startedAt": 0, "lastActivity": 0}
"""Members of a session object that the broker's own need not have."""


def view_of(raw: Raw, *, is_partial: bool = False) -> SessionView:
    """Return the session a session object describes; raise ``Malformed`` for one that breaks the protocol.

    ``is_partial`` allows one that has nothing but an id, as the broker has where it is a sender itself.
    """
    try:
        members = decode(raw)
        info = convert({**_LACKING, **members} if is_partial and isinstance(members, dict) else members, SessionInfo)
    except (DecodeError, ValidationError) as error:
        raise Malformed(f"a session object is wrong: {error}") from error
    session_id = members.get("id")
    if not isinstance(session_id, str):
        raise Malformed("a session object has no id")
    group = _known(info.group)
    groups = info.groups if info.groups is not UNSET else [] if group is None else [group]
    standing = members.get("unconfirmedSince")
    is_away, since = members.get("state") == "reconnecting", members.get("stateSince")
    return SessionView(
        id=session_id,
        name=_known(info.name),
        cwd=info.cwd,
        model=info.model,
        pid=info.pid,
        peer_pid=_peer_pid(members),
        status=_known(info.status),
        group=group,
        groups=tuple(groups),
        started_at=info.started_at,
        last_activity=info.last_activity,
        raw=members,
        state="reconnecting" if is_away else "active",
        state_since=since if is_away and type(since) in (int, float) else None,
        unconfirmed_since=standing if type(standing) in (int, float) else None,
        is_person=members.get("person") is True,
    )


def message_of(
    frame: MessageFrame, kind: type[IncomingMessage] = IncomingMessage, *, is_notification: bool = False
) -> IncomingMessage:
    """Return the message a frame brought, as a ``kind``; raise ``Malformed`` for one that breaks the protocol."""
    message = parse_message(frame.message)
    if message is None:
        raise Malformed("a message object is wrong")
    mail, notice, invoked = frame.mail, frame.notice, frame.invocation
    return kind(
        id=message.id,
        text=message.content.text,
        sender=view_of(frame.sender, is_partial=frame.notice is not UNSET or frame.invocation is not UNSET),
        attachments=tuple(
            Attachment(carried.type, carried.name, carried.content, carried.language)
            for carried in ([] if message.content.attachments is UNSET else message.content.attachments)
        ),
        expects_reply=message.expects_reply is True,
        reply_to=_known(message.reply_to),
        reply_error=_known(message.reply_error),
        timestamp=message.timestamp,
        channel=None if frame.channel is UNSET else frame.channel,
        raw=decode(frame.message),
        is_notification=is_notification,
        mail=None if mail is UNSET else _mail_of(mail),
        notice=None if notice is UNSET else Notice(notice.kind, notice.message_id, notice.target, notice.reason),
        valid_until=_known(frame.valid_until),
        invoked=None if invoked is UNSET else _invoked_of(invoked, message, frame.message),
    )


class _Beside(Struct):
    metadata: dict[str, Any] | UnsetType = UNSET


def _invoked_of(info: InvokedInfo, message: Message, raw: Raw) -> Invoked:
    """Return the task a message brings: some of it is told beside the message, its texts in it."""
    carried = [] if info.cancelled or message.content.attachments is UNSET else message.content.attachments
    try:
        metadata = None if info.cancelled else _known(decode(raw, type=_Beside).metadata)
    except (DecodeError, ValidationError) as error:
        raise Malformed(f"the metadata of a task is wrong: {error}") from error
    return Invoked(
        info.invocation_id,
        info.run_id,
        info.action,
        info.cancelled,
        next((each.content for each in carried if each.type == CONTEXT), None),
        execution_of(info.execution),
        () if info.labels is UNSET else tuple(info.labels),
        metadata,
        info.stream,
        _known(info.message_id),
    )


def execution_of(wished: WireExecution | UnsetType) -> Execution | None:
    """Return how a task is wished to be done."""
    if wished is UNSET:
        return None
    named = {name: _known(getattr(wished, name)) for name in Execution.__struct_fields__}
    return Execution(**named)


def _mail_of(mail: MailInfo) -> Mail:
    sends = 1 if mail.sends is UNSET else mail.sends
    return Mail(mail.entry, mail.queued_at, mail.age_ms, mail.offers, sends, _known(mail.last_queued_at))


def _known(value: Any) -> Any:
    return None if value is UNSET else value


def _peer_pid(members: dict[str, Any]) -> int | None:
    peer = members.get("peer")
    pid = peer.get("pid") if isinstance(peer, dict) else None
    return pid if isinstance(pid, int) else None
