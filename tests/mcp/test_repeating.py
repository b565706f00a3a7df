"""What is sent again after an unknown outcome is the same message."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from intercom.errors import OutcomeUnknown, SendRefused
from intercom.limits import KNOWN_MESSAGES, RETRY_IDENTITY_MS, TOOL_REPEATS
from intercom.mcp import repeating
from intercom.mcp.repeating import Known, Repeats


def failing(repeats: Repeats, what: object, error: Exception) -> str:
    with pytest.raises(type(error)), repeats.attempt(what) as message_id:
        raise error
    return message_id


def test_an_unknown_outcome_is_repeated_under_its_id_and_no_other() -> None:
    """Protocol 6.9: the same id with the same content cannot arrive twice."""
    repeats = Repeats()
    first = failing(repeats, "a", OutcomeUnknown("silence", code="send_timeout"))
    with repeats.attempt("b") as other:
        assert other != first
    assert failing(repeats, "a", OutcomeUnknown("silence", code="send_timeout")) == first
    with repeats.attempt("a") as again:
        assert again == first
    with repeats.attempt("a") as fresh:
        assert fresh != first, "its fate is known: the next one is another message"


def test_what_is_known_to_have_failed_is_not_repeated() -> None:
    repeats = Repeats()
    assert failing(repeats, "a", SendRefused("no")) != repeats.take("a")
    unclear = OutcomeUnknown("it was lost", retry="never")
    assert failing(repeats, "a", unclear) != repeats.take("a"), "never under this id again"


def test_ids_are_kept_for_a_time_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats = Repeats()
    for number in range(TOOL_REPEATS + 1):
        repeats.keep(number, f"id-{number}")
    assert repeats.take(0) != "id-0"
    assert repeats.take(1) == "id-1"
    now = repeating.time.monotonic()
    monkeypatch.setattr(repeating.time, "monotonic", lambda: now + RETRY_IDENTITY_MS / 1000 + 1)
    assert repeats.take(2) != "id-2"


def test_the_oldest_id_is_forgotten_first() -> None:
    known = Known()
    for number in range(KNOWN_MESSAGES):
        known.add(str(number))
    known.add("0")
    known.add("more")
    assert len(list(known)) == KNOWN_MESSAGES
    assert "0" in known
    assert "1" not in known


@pytest.mark.anyio
async def test_a_call_that_the_host_cancelled_may_have_sent_it() -> None:
    repeats = Repeats()
    ids: list[str] = []
    with anyio.CancelScope() as scope, repeats.attempt("a") as message_id:
        ids.append(message_id)
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert repeats.take("a") == ids[0]
