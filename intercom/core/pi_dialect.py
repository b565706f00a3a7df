"""Speak with the pi-intercom client as recent versions of it speak (protocol 15.4).

What it sends beyond the frames of every client is taken without ending the connection. What only it reads is written
only to connections that have shown to be of its kind.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from intercom.wire.frames import Delivered, DeliveryFailed, Queued, Register
from intercom.wire.reasons import OUTCOME_UNKNOWN, code_of

RETRYABLE = OUTCOME_UNKNOWN | {"capacity", "rate", "not_recorded", "not_restored"}
"""Codes of refusals after which the same message may be sent again."""


def shows_itself(frame: Register) -> bool:
    """Tell whether a registration is one of this client: it wishes for a session id as no other does.

    Other clients wish with ``preferredSessionId``, and ours say which version of the features they speak.
    """
    return (
        isinstance(frame.session_id, str)
        and frame.return_address is UNSET
        and frame.preferred_session_id is UNSET
        and frame.client_protocol_version is UNSET
    )


def dressed(frame: Any) -> Any:
    """Return an answer with what this client reads in it; every other frame as it is."""
    kind = type(frame)
    if kind is Delivered:
        return replace(frame, delivery="delivered", retryable=False, outcome_known=True)
    if kind is Queued:
        return replace(frame, delivery="queued", retryable=False, outcome_known=True)
    if kind is DeliveryFailed:
        code = code_of(frame.reason)
        return replace(frame, delivery="failed", retryable=code in RETRYABLE, outcome_known=code not in OUTCOME_UNKNOWN)
    return frame
