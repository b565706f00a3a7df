"""Define the frames by which messages wait for a session that is being brought back (protocol 4.12, 4.13)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from intercom.limits import RESTORING_ALIASES
from intercom.wire.shapes import AnswerFrame, NonEmpty, Number, OptionalText, RequestFrame


class ReserveRestoringRecipient(RequestFrame, tag="reserve_restoring_recipient"):
    """Let messages to a child that is being brought back wait for it (protocol 4.12)."""

    request_id: str
    capability: NonEmpty
    group: OptionalText = UNSET
    dormant: bool | UnsetType = UNSET
    aliases: Annotated[list[str], Meta(max_length=RESTORING_ALIASES)] | UnsetType = UNSET


class ReleaseRestoringRecipient(RequestFrame, tag="release_restoring_recipient"):
    """End that wait, with or without a text for those who wait (protocol 4.13)."""

    request_id: str
    capability: str
    gone: OptionalText = UNSET
    refusal: OptionalText = UNSET


class RestoringRecipientAck(AnswerFrame, tag="restoring_recipient_ack"):
    """Answer both requests (protocol 5.9)."""

    request_id: str
    error: OptionalText = UNSET


class SendHeld(AnswerFrame, tag="send_held"):
    """Say that a send waits for its recipient to be brought back; not a final answer (protocol 5.14)."""

    message_id: str
    timeout_ms: Number
    attempt_id: OptionalText = UNSET
