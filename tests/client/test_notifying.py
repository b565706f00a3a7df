"""Reports of a host to the senders of queued messages, on both sides, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client.notifying import notify
from intercom.errors import IntercomError, OutcomeUnknown, SendRefused, TargetNotFound, UsageError
from intercom.limits import INCOMING_MESSAGES, RETRY_IDENTITY_MS, SEND_MS
from intercom.wire import reasons
from tests.support.client import PEER, WALL, Frame, Rig
from tests.support.client import message as plain_message
from tests.support.hosting import ROOT, host, owned


class Consumer:
    """Take messages."""


def notifying(rig: Rig, **options: Any) -> Any:
    given = {"message_id": "n1", "now": rig.now, "wall": WALL, **options}
    return notify(owned(rig), PEER["id"], "it was cancelled", **given)


def arrived(message_id: str = "n1", request_id: str = "x1") -> Frame:
    message = {"id": message_id, "timestamp": 5, "replyTo": "w1", "content": {"text": "it was cancelled"}}
    return {"type": "pending_stage_notification", "requestId": request_id, "from": PEER, "message": message}


def result(request_id: str, delivered: bool) -> Frame:
    return {"type": "pending_stage_notification_result", "requestId": request_id, "delivered": delivered}


# --- the host -------------------------------------------------------------------------------------------


def test_a_report_and_its_end() -> None:
    """Protocol 4.17."""
    rig = host()
    operation = notifying(rig, reply_to="w1", sender_name="worker", return_address="ret")
    [frame] = rig.begin(operation)
    assert frame == {
        "type": "send_pending_stage_notification",
        "runId": ROOT,
        "capability": "cap-7f",
        "to": PEER["id"],
        "message": {"id": "n1", "timestamp": WALL, "replyTo": "w1", "content": {"text": "it was cancelled"}},
        "attemptId": frame["attemptId"],
        "senderRegistrationName": "worker",
        "senderReturnAddress": "ret",
    }
    rig.feed({"type": "delivered", "messageId": "n1", "attemptId": frame["attemptId"]})
    assert operation.result.state == "delivered"


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        (reasons.SESSION_NOT_FOUND, TargetNotFound, "not_found"),
        (reasons.NOT_THE_ROUTE_OWNER, SendRefused, "not_route_owner"),
        (reasons.NOTIFICATION_REFUSED, SendRefused, "notification_refused"),
    ],
)
def test_reports_that_fail(reason: str, kind: type[IntercomError], code: str) -> None:
    rig = host()
    [frame] = rig.begin(operation := notifying(rig))
    failed = {"messageId": "n1", "attemptId": frame["attemptId"], "reason": reason}
    rig.feed({"type": "delivery_failed", **failed})
    assert isinstance(operation.error, kind)
    assert operation.error.code == code


def test_a_report_nobody_acknowledged() -> None:
    """Protocol 4.17.8: the same id may be tried again; it arrives once."""
    rig = host()
    [frame] = rig.begin(operation := notifying(rig))
    failed = {"messageId": "n1", "attemptId": frame["attemptId"], "reason": reasons.NOTIFICATION_UNACKNOWLEDGED}
    rig.feed({"type": "delivery_failed", **failed})
    rig.pass_time(SEND_MS)
    assert isinstance(operation.error, OutcomeUnknown)
    assert operation.error.retry == "same_id"


@pytest.mark.parametrize("options", [{"timeout_ms": 0}, {"timeout_ms": RETRY_IDENTITY_MS + 1}, {"return_address": ""}])
def test_reports_that_can_never_be_sent(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        notifying(host(), **options)


# --- the sender -----------------------------------------------------------------------------------------


def test_a_report_is_a_message_that_is_marked() -> None:
    """Protocol 4.18 and 5.25: it is taken when its consumer has finished with it, as any message."""
    rig = Rig()
    rig.register()
    assert rig.feed(arrived()) == []
    consumer = Consumer()
    found = rig.core.take_message(consumer, rig.now)
    assert found is not None
    assert (found.is_notification, found.reply_to, found.text) == (True, "w1", "it was cancelled")
    assert rig.written() == []
    rig.core.take_message(consumer, rig.now)
    assert rig.written() == [result("x1", True)]


def test_a_report_that_is_repeated_arrives_once() -> None:
    """Protocol 4.17: the broker asks anew each time; a copy is answered, not shown."""
    rig = Rig()
    rig.register()
    rig.feed(arrived())
    assert rig.feed(arrived(request_id="x2")) == []
    consumer = Consumer()
    assert rig.core.take_message(consumer, rig.now) is not None
    assert rig.core.take_message(consumer, rig.now) is None
    assert rig.written() == [result("x2", True)], "the newest question is the one that is still asked"
    assert rig.feed(arrived(request_id="x3")) == [result("x3", True)]


def test_there_is_no_room_for_a_report() -> None:
    rig = Rig()
    rig.register()
    for number in range(2 * INCOMING_MESSAGES):
        rig.feed(plain_message(f"m{number}"))
    assert rig.feed(arrived()) == [result("x1", False)]


def test_a_report_in_hand_while_the_connection_is_lost() -> None:
    rig = Rig()
    rig.register()
    rig.feed(arrived())
    consumer = Consumer()
    rig.core.take_message(consumer, rig.now)
    rig.lose()
    rig.core.take_message(consumer, rig.now)
    rig.register()
    assert rig.feed(arrived(request_id="x2")) == [result("x2", True)]
