"""The requests about mail: what is written for each call, and what is refused before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import to_builtins

from intercom.client import mailing
from intercom.client.operations import RequestOperation
from intercom.errors import UsageError
from intercom.limits import MAILBOX_PAGE, REQUEST_MS


def frame(operation: RequestOperation[Any]) -> dict[str, Any]:
    assert operation.needs_features, "a broker that granted nothing would not know it"
    assert operation.deadline == 1_000 + REQUEST_MS
    written: dict[str, Any] = to_builtins(operation.attempt("r1"))
    assert written.pop("requestId") == "r1"
    return written


@pytest.mark.parametrize(
    ("operation", "written"),
    [
        (mailing.pending(now=1_000), {"type": "pending"}),
        (mailing.addresses(now=1_000), {"type": "addresses"}),
        (mailing.session_records(now=1_000), {"type": "session_records"}),
        (mailing.trace("m", now=1_000), {"type": "trace", "messageId": "m"}),
        (mailing.task_hint("h\udfff", now=1_000), {"type": "task_hint", "taskHint": "h\ufffd"}),
        (mailing.force_close("s", None, now=1_000), {"type": "session_force_close", "sessionId": "s"}),
        (mailing.force_close("s", "r", now=1_000), {"type": "session_force_close", "sessionId": "s", "reason": "r"}),
        (mailing.mailbox(now=1_000), {"type": "mailbox"}),
        (
            mailing.mailbox(address="a", group="g", after=3, limit=5, now=1_000),
            {"type": "mailbox", "of": {"address": "a", "group": "g"}, "after": 3, "limit": 5},
        ),
        (mailing.mailbox(session_id="s", now=1_000), {"type": "mailbox", "of": {"sessionId": "s"}}),
        (mailing.purge(now=1_000), {"type": "purge"}),
        (
            mailing.purge(older_than_ms=7, address="a", now=1_000),
            {"type": "purge", "olderThanMs": 7, "of": {"address": "a"}},
        ),
    ],
)
def test_what_is_written(operation: RequestOperation[Any], written: dict[str, Any]) -> None:
    """FE 1.11; a member at its default is left out."""
    assert frame(operation) == written


def test_a_page_of_a_mailbox_has_its_default_on_the_wire() -> None:
    assert "limit" not in frame(mailing.mailbox(limit=MAILBOX_PAGE, now=1_000))


@pytest.mark.parametrize(
    "call",
    [
        lambda: mailing.trace("", now=0),
        lambda: mailing.force_close(" ", None, now=0),
        lambda: mailing.task_hint(3, now=0),  # type: ignore[arg-type]
        lambda: mailing.mailbox(address=" ", now=0),
        lambda: mailing.mailbox(address="a", session_id="s", now=0),
        lambda: mailing.mailbox(group="g", now=0),
        lambda: mailing.mailbox(limit=0, now=0),
        lambda: mailing.purge(group="g", now=0),
    ],
)
def test_what_can_never_work_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()
