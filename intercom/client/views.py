"""Show what the broker told in the form a program works with: sessions, messages, receipts."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, ValidationError, convert
from msgspec.json import decode

from intercom.client.composing import PROGRESS_OF
from intercom.wire.codec import parse_message
from intercom.wire.frames import Attachment, GroupEntry, MessageFrame, SessionInfo, trim

__all__ = [
    "Attachment",
    "GroupView",
    "IncomingMessage",
    "Malformed",
    "Receipt",
    "SessionView",
    "may_mean",
    "message_of",
    "view_of",
]

GroupView = GroupEntry


class Malformed(Exception):
    """Say that the broker wrote a session or message object that breaks protocol section 4."""


class SessionView(Struct, frozen=True, kw_only=True):
    """Describe a session as the broker shows it; ``raw`` holds every member as it came.

    ``pid`` is what the session claims, ``peer_pid`` what the kernel says of it, where the broker knows; times are
    epoch milliseconds.
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


class IncomingMessage:
    """Hold a message somebody sent to this session.

    ``reply_to`` is the id of the message it answers, ``reply_error`` is set when it says that there will be no
    answer, ``timestamp`` is the sender's clock in epoch milliseconds, ``channel`` is ``"supervisor"`` or ``None``,
    ``raw`` the message object as it came, ``progress_of`` the id of the question of which it tells the progress.
    """

    __slots__ = (
        "attachments",
        "channel",
        "expects_reply",
        "id",
        "progress_of",
        "raw",
        "reply_error",
        "reply_to",
        "sender",
        "text",
        "timestamp",
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} from {self.sender.name or self.sender.id!r}>"


class Receipt(Struct, frozen=True):
    """Say what became of a message that was sent: the recipient has it, or it waits durably at ``position``."""

    state: Literal["delivered", "queued"]
    message_id: str
    target: str
    """The target as it was named."""
    position: int | None = None
    inferred_reply_to: str | None = None
    """Id of the question it was taken as the answer to, although it was sent as an ordinary message."""
    hint: str = ""
    """How to answer, where the target asked questions and this message answers none of them."""


def may_mean(target: str, session: SessionView) -> bool:
    """Tell whether a target can mean a session: by its id, its name, or eight digits of its id (protocol 6.2.1)."""
    wanted = trim(target)
    named = session.name is not None and session.name.lower() == wanted.lower()
    return session.id == wanted or named or (len(wanted) == 8 and session.id.lower().startswith(wanted.lower()))


def view_of(raw: Raw) -> SessionView:
    """Return the session a session object describes; raise ``Malformed`` for one that breaks the protocol."""
    try:
        members = decode(raw)
        info = convert(members, SessionInfo)
    except (DecodeError, ValidationError) as error:
        raise Malformed(f"a session object is wrong: {error}") from error
    session_id = members.get("id")
    if not isinstance(session_id, str):
        raise Malformed("a session object has no id")
    group = _known(info.group)
    groups = info.groups if info.groups is not UNSET else [] if group is None else [group]
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
    )


def message_of(frame: MessageFrame, kind: type[IncomingMessage] = IncomingMessage) -> IncomingMessage:
    """Return the message a frame brought, as a ``kind``; raise ``Malformed`` for one that breaks the protocol."""
    message = parse_message(frame.message)
    if message is None:
        raise Malformed("a message object is wrong")
    return kind(
        id=message.id,
        text=message.content.text,
        sender=view_of(frame.sender),
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
    )


def _known(text: Any) -> str | None:
    return None if text is UNSET else text


def _peer_pid(members: dict[str, Any]) -> int | None:
    peer = members.get("peer")
    pid = peer.get("pid") if isinstance(peer, dict) else None
    return pid if isinstance(pid, int) else None
