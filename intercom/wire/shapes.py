"""Define what the frames of the wire are made of: text rules, the objects inside frames, and their common base."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from intercom.limits import PUSH_WAY_CHARACTERS, REQUEST_ID_CHARACTERS

OptionalText: TypeAlias = str | UnsetType
NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]
Number: TypeAlias = int | float
RequestId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=REQUEST_ID_CHARACTERS)]
PushWay: TypeAlias = Annotated[str, Meta(min_length=1, max_length=PUSH_WAY_CHARACTERS)]


WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The characters with the Unicode property White_Space, and U+FEFF."""


def is_blank(text: str) -> bool:
    """Tell whether nothing is left of ``text`` after trimming."""
    return not trim(text)


def trim(text: str) -> str:
    """Remove leading and trailing Unicode white space and U+FEFF (protocol 0)."""
    return text.strip(WHITE_SPACE)


# --- objects inside frames ------------------------------------------------------------------------------


class Source(Struct, rename="camel"):
    """Name the subagent run a message comes from."""

    subagent_run_id: str
    subagent_agent: OptionalText = UNSET
    subagent_index: Number | UnsetType = UNSET


class Attachment(Struct, rename="camel", omit_defaults=True):
    """Carry a file, snippet or context beside a text."""

    type: Literal["file", "snippet", "context"]
    name: str
    content: str
    language: OptionalText = UNSET


class Content(Struct, omit_defaults=True):
    """Hold the text and attachments of a message."""

    text: str
    attachments: list[Attachment] | UnsetType = UNSET


class Message(Struct, rename="camel", omit_defaults=True):
    """Describe the message object; it is validated by this shape and forwarded as the bytes that came."""

    id: str
    timestamp: Number
    content: Content
    reply_to: OptionalText = UNSET
    expects_reply: bool | UnsetType = UNSET
    reply_error: OptionalText = UNSET
    source: Source | UnsetType = UNSET
    caused_by: OptionalText = UNSET
    """Id of the message its sender was at work on when it wrote this one."""


class SessionInfo(Struct, rename="camel", omit_defaults=True):
    """Describe the known members of a session object; unknown ones are kept and shown as they came."""

    cwd: str
    model: str
    pid: Number
    started_at: Number
    last_activity: Number
    name: OptionalText = UNSET
    status: OptionalText = UNSET
    group: OptionalText = UNSET
    groups: list[str] | UnsetType = UNSET
    recipient_purpose: Literal["agent", "control"] | UnsetType = UNSET
    reply_capability: Literal["live", "terminal"] | UnsetType = UNSET
    push: Literal["now", "idle", "pull", "none"] | UnsetType = UNSET
    push_way: PushWay | UnsetType = UNSET


# --- frames ---------------------------------------------------------------------------------------------


class RequestFrame(Struct, tag_field="type", rename="camel", omit_defaults=True):
    """Give all frames of clients their tag and naming."""


class AnswerFrame(Struct, tag_field="type", rename="camel", omit_defaults=True):
    """Give all frames of the broker their tag and naming; optional members that are absent are left out."""


class FeatureRequest(Struct, tag_field="type", rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Give all requests of features their tag and naming; an unknown member is refused by name."""

    request_id: RequestId


class FeatureAnswer(Struct, tag_field="type", rename="camel", omit_defaults=True):
    """Give the answers to them their tag and naming; optional members that are absent are left out."""

    request_id: str
