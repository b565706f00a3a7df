"""Hold the frames of inbox and assignments against protocol 4.40 to 4.50 and 5.50 to 5.60."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, INBOX_WAIT_MAX_MS, WORK_DETAIL_CHARACTERS
from intercom.wire.codec import ProtocolError, decode_request
from intercom.wire.frames import BadRequest
from tests.support.wire import payload_of

REPORT = {
    "type": "assignment_report",
    "requestId": "r",
    "sourceMessageId": "m",
    "assignmentId": "a",
    "stateEventId": "e",
    "state": "accepted",
}


@pytest.mark.parametrize(
    ("frame", "member"),
    [
        ({"type": "inbox_list", "limit": 0}, "limit"),
        ({"type": "inbox_list", "limit": 1_001}, "limit"),
        ({"type": "inbox_show", "inboxId": ""}, "inboxId"),
        ({"type": "inbox_presence", "more": 1}, "more"),
        ({"type": "inbox_dispatch", "inboxId": "i"}, "targetSessionId"),
        ({"type": "inbox_dispatch", "inboxId": "i", "targetSessionId": "s", "idempotencyKey": ""}, "idempotencyKey"),
        ({"type": "inbox_claim", "inboxId": None}, "inboxId"),
        ({"type": "inbox_await", "timeoutMs": -1}, "timeoutMs"),
        ({"type": "inbox_await", "timeoutMs": INBOX_WAIT_MAX_MS + 1}, "timeoutMs"),
        ({"type": "inbox_settle"}, "inboxId"),
        ({**REPORT, "state": "done"}, "state"),
        ({**REPORT, "stateEventId": "e" * (IDEMPOTENCY_KEY_CHARACTERS + 1)}, "stateEventId"),
        ({**REPORT, "detail": "d" * (WORK_DETAIL_CHARACTERS + 1)}, "detail"),
        (
            {
                "type": "assignment_reply",
                "sourceMessageId": "m",
                "assignmentId": "a",
                "replyRequestId": "q",
                "content": "text",
            },
            "content",
        ),
        ({"type": "assignment_list", "after": "1"}, "after"),
        ({"type": "assignment_show"}, "assignmentId"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["type"],
)
def test_a_request_with_a_wrong_member_is_refused_in_band_and_named(frame: dict[str, Any], member: str) -> None:
    """FE 0.3: durable requests are validated strictly; unknown members are refused by name."""
    refused = decode_request(payload_of({"requestId": "r", **frame}))
    assert isinstance(refused, BadRequest)
    assert member in refused.reason


def test_without_a_request_id_nobody_could_be_answered() -> None:
    with pytest.raises(ProtocolError):
        decode_request(payload_of({"type": "inbox_list"}))


def test_what_may_be_left_out_has_its_default() -> None:
    """protocol 4.40, 4.45"""
    listed: Any = decode_request(payload_of({"type": "inbox_list", "requestId": "r"}))
    assert (listed.after, listed.limit) == (0, 50)
    waiting: Any = decode_request(payload_of({"type": "inbox_await", "requestId": "r", "timeoutMs": 0}))
    assert (waiting.mark_attempt, waiting.claim) == (True, False)
