"""What a caller asks for becomes an operation, or is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET, Raw
from msgspec.json import decode, encode

from intercom.client import commands
from intercom.client.mailviews import PendingAsk
from intercom.client.profile import Profile
from intercom.client.views import IncomingMessage, view_of
from intercom.errors import UsageError
from intercom.limits import ASK_MS, LONGEST_VALIDITY_MS, PENDING_REPLY_RETRY_MS, REQUEST_MS, SEND_MS
from tests.support.client import PEER, WALL

QUESTION = IncomingMessage(id="q1", text="ok?", sender=view_of(Raw(encode(PEER))), expects_reply=True)
COMMON: dict[str, Any] = {"message_id": "m1", "now": 1_000, "wall": WALL}


def test_default_times() -> None:
    """Protocol 7: send answer 10 s, ask reply 600 s, requests 5 s; replies 15 s (design section 5)."""
    assert commands.send("worker", "hi", **COMMON).deadline == 1_000 + SEND_MS
    assert commands.ask("worker", "hi", **COMMON).deadline == 1_000 + ASK_MS
    assert commands.reply(QUESTION, "yes", **COMMON).deadline == 1_000 + PENDING_REPLY_RETRY_MS
    assert commands.list_sessions(None, now=1_000).deadline == 1_000 + REQUEST_MS


def test_a_reply_finishes_its_question() -> None:
    reply = commands.reply(QUESTION, "yes", **COMMON)
    assert (reply.finishes, reply.target, reply.is_reply) == ("q1", PEER["id"], True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: commands.send("", "hi", **COMMON),
        lambda: commands.send("worker", 3, **COMMON),  # type: ignore[arg-type]
        lambda: commands.send("worker", "hi", timeout_ms=0, **COMMON),
        lambda: commands.send("worker", "hi", valid_for_ms=LONGEST_VALIDITY_MS + 1, **COMMON),
        lambda: commands.ask(" ", "hi", **COMMON),
        lambda: commands.ask("worker", "hi", timeout_ms=ASK_MS + 1, **COMMON),
        lambda: commands.reply(QUESTION, "yes", timeout_ms=-1, **COMMON),
        lambda: commands.join(Profile(), "auto", now=0, wall=WALL),
        lambda: commands.leave(Profile(), " ", now=0, wall=WALL),
        lambda: commands.set_presence(Profile(), now=0, wall=WALL),
        lambda: commands.set_presence(Profile(), now=0, wall=WALL, name="broker"),
    ],
)
def test_what_can_never_work_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()


def test_the_person_may_be_given_any_time() -> None:
    """Design section 5: an ask has any length for @me."""
    assert commands.ask(" @Me ", "?", timeout_ms=10 * ASK_MS, **COMMON).deadline == 1_000 + 10 * ASK_MS


def test_an_answer_to_what_is_pending_is_a_reply() -> None:
    question = PendingAsk(
        message_id="q1", asker_id=PEER["id"], asker_name="worker", asker_is_here=True, asked_at=1, deadline=2
    )
    answer = commands.answer(question, "yes", **COMMON)
    frame = answer.attempt("a1", 1_000, queues=True)
    assert (frame.to, frame.require_pending_reply, frame.queue_if_away) == (PEER["id"], True, True)
    assert frame.logical_target is UNSET, "a repeated answer finds its asker by the id alone"
    assert answer.named == "worker"
    assert decode(frame.message)["replyTo"] == "q1"
    assert answer.deadline == 1_000 + PENDING_REPLY_RETRY_MS
