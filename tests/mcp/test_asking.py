"""What becomes of questions whose call has returned."""

from __future__ import annotations

from typing import Any, cast

import pytest

from intercom.client.aio import IncomingMessage, Session
from intercom.errors import IntercomError, OutcomeUnknown, TargetNotFound
from intercom.mcp.asking import Asking, OpenQuestion
from intercom.mcp.repeating import Repeats
from intercom.mcp.tray import Tray

pytestmark = pytest.mark.anyio


class Broken:
    """Be a session whose asks end as a test wants."""

    def __init__(self, error: IntercomError) -> None:
        self.error = error

    async def ask(self, target: str, text: str, **members: Any) -> IncomingMessage:
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (OutcomeUnknown("The broker did not say", code="send_timeout"), True),
        (TargetNotFound("Session not found"), False),
    ],
)
async def test_an_unknown_outcome_is_remembered_after_the_call(error: IntercomError, *, is_kept: bool) -> None:
    """Protocol 6.9: asked again in the same words it is the same question, and the news of it says so."""
    tray, repeats = Tray(lambda: None, lambda item: None), Repeats()
    asking = Asking(tray, None, repeats)
    question = OpenQuestion("q1", "bob", 60, ("ask", "bob", "why?"))
    question.is_watched = False
    await asking.ask(cast("Session", Broken(error)), question, "bob", "why?")
    assert (repeats.take(("ask", "bob", "why?")) == "q1") is is_kept
    batch = tray.take()
    assert batch is not None
    assert "your question q1 to bob got no answer" in batch.text
    assert ("it is the same question" in batch.text) is is_kept
