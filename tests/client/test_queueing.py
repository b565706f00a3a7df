"""What a host is asked and what it may answer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.json import encode

from intercom.client.queueing import StageAnswer, asked, checked_answer, reached, result_of
from intercom.client.views import Malformed
from intercom.errors import UsageError
from intercom.wire import reasons
from intercom.wire.codec import decode_answer
from intercom.wire.frames import PendingStageMessage, StickyLiveDelivered
from tests.support.client import PEER, Frame

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"


def asking(**members: Any) -> PendingStageMessage:
    frame: Frame = {
        "type": "pending_stage_message",
        "requestId": "x1",
        "from": PEER,
        "runId": RUN,
        "target": f"workflow:{RUN}/a",
        "message": {"id": "w1", "timestamp": 11, "content": {"text": "first"}},
        **members,
    }
    decoded = decode_answer(encode(frame))
    assert isinstance(decoded, PendingStageMessage)
    return decoded


def test_what_is_asked() -> None:
    """Protocol 5.22."""
    item = asked(asking(senderRegistrationName="worker", senderReturnAddress="ret", live=True), 3)
    request = item.request
    assert (item.request_id, item.connection) == ("x1", 3)
    assert (request.id, request.text, request.run_id, request.target) == ("w1", "first", RUN, f"workflow:{RUN}/a")
    assert (request.sender.id, request.sender_name, request.return_address) == (PEER["id"], "worker", "ret")
    assert (request.is_live, request.expects_reply, request.reply_to) == (True, False, None)
    assert request.raw == {"id": "w1", "timestamp": 11, "content": {"text": "first"}}


def test_what_need_not_be_there() -> None:
    request = asked(asking(), 0).request
    assert (request.sender_name, request.return_address, request.is_live) == (None, None, False)
    with pytest.raises(Malformed):
        asked(asking(message={"id": "w1"}), 0)


@pytest.mark.parametrize(
    ("answer", "members"),
    [
        (StageAnswer.queued(2), {"outcome": "queued", "position": 2}),
        (
            StageAnswer.queued(1, forward_to=["t1", "t2"], is_known=False),
            {"outcome": "queued", "position": 1, "forwardTargets": ["t1", "t2"], "notInKnownSet": True},
        ),
        (StageAnswer.forward("t"), {"outcome": "forward", "target": "t"}),
        (StageAnswer.delivered(), {"outcome": "delivered"}),
        (StageAnswer.refused("full"), {"outcome": "refused", "reason": "full"}),
        (
            StageAnswer.refused("other", is_conflict=True),
            {"outcome": "refused", "reason": "other", "reasonCode": "message_id_conflict"},
        ),
        (StageAnswer.not_started(), {"outcome": "refused", "reason": reasons.STAGE_ASK}),
    ],
)
def test_every_answer(answer: StageAnswer, members: Frame) -> None:
    """Protocol 4.16."""
    expected = {"type": "pending_stage_message_result", "requestId": "x1", **members}
    assert to_builtins(result_of("x1", answer)) == expected


@pytest.mark.parametrize("position", [0, -1, 1.5, True, "1"])
def test_positions_that_are_none(position: Any) -> None:
    """Protocol 4.16: above 0."""
    with pytest.raises(UsageError):
        StageAnswer.queued(position)


def test_answers_that_are_none() -> None:
    """Design section 7, Queueing: a question is never queued for a stage."""
    question = asked(asking(message={"id": "q", "timestamp": 1, "expectsReply": True, "content": {"text": "?"}}), 0)
    with pytest.raises(UsageError, match="question"):
        checked_answer(question.request, StageAnswer.queued(1))
    with pytest.raises(UsageError, match="StageAnswer"):
        checked_answer(question.request, None)
    assert checked_answer(question.request, StageAnswer.forward("t")).outcome == "forward"


def test_what_a_broadcast_reached() -> None:
    """Protocol 5.23."""
    told = reached(StickyLiveDelivered(RUN, "w1", f"workflow:{RUN}/**", [f"workflow:{RUN}/a"]))
    assert (told.run_id, told.message_id, told.stages) == (RUN, "w1", (f"workflow:{RUN}/a",))
