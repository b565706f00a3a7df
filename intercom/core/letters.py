"""Define what two brokers tell each other about messages: bodies of what is posted, JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from intercom.core.peer_records import RemoteName

SEND = "send"
OUTCOME = "outcome"
WITHDRAWN = "withdrawn"
NOTICE = "notice"
NOTIFY = "notify"
NOTIFIED = "notified"


class SendLetter(Struct, frozen=True, omit_defaults=True):
    """Hold a message for a session that the peer answers for; the peer decides about it as about any send."""

    message_id: str
    to: str
    """Session id of its target."""
    mark: str
    """What the outcome brings back: the identity by which the target is known here."""
    attempt: str
    sender: RemoteName
    message: Raw
    """Byte for byte as its sender wrote it."""
    is_ask: bool = False
    pending_reply: bool = False
    may_queue: bool = False
    valid_for: int | None = None
    """Milliseconds from when it was posted, when the letter was written; how much is left, ``Arrived`` says."""
    address: tuple[str, str] | None = None
    """Group and name of the address it is for, in place of a session id."""
    was_forwarded: bool = False
    """It came from a third broker, which took this one's for its home: it is not passed on once more."""
    wording: str = ""
    """What its sender called the target."""
    claim: int | None = None
    """The newest claim of the home of its address that was known when it was posted, 0: none; None: it is not said."""
    maybe_at: tuple[str, ...] = ()
    """The other brokers that it was brought to before, and that have not said what became of it."""


class OutcomeLetter(Struct, frozen=True, omit_defaults=True):
    """Say what became of such a message."""

    message_id: str
    mark: str
    attempt: str
    result: Literal["delivered", "queued", "failed"]
    reason: str = ""
    code: str | None = None
    recipient: str = ""
    """Id of the session that has it."""
    position: int = 1
    is_known: bool = False
    """Of one that failed: its row is there, so it may have arrived."""


class WithdrawnLetter(Struct, frozen=True):
    """Say that nobody waits any more for the answer to a question."""

    message_id: str
    asker: str


class NoticeLetter(Struct, frozen=True):
    """Hold what the peer's broker tells a session of ours about a message that it sent."""

    to: str
    sender: Raw
    message: Raw
    notice: Raw


class NotifyLetter(Struct, frozen=True):
    """Hold what the owner of a workflow run tells a session of ours about a message of that."""

    request: str
    """The answer brings it back."""
    to: str
    """Session id of its recipient."""
    group: str
    """Of the run: the recipient has to be at home in it."""
    owner: RemoteName
    message: Raw
    signature: str
    """By which the broker of the owner tells this notification from others; hex."""


class NotifiedLetter(Struct, frozen=True, omit_defaults=True):
    """Say whether its recipient took it."""

    request: str
    is_delivered: bool
    reason: str = ""
    code: str | None = None
