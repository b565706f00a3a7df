"""The requests about mail: what is written for each call, and what is refused before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import to_builtins

from intercom.client.lifecycle import Lifecycle, Nothing
from intercom.client.mailing import MailRequests
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile
from intercom.errors import UsageError
from intercom.limits import MAILBOX_PAGE
from intercom.wire.frames import Registered

MAIL = MailRequests(Lifecycle(Profile(), Nothing()), lambda: 1_000)
IN = 5.0
"""Seconds for the answer."""


def frame(operation: RequestOperation[Any]) -> dict[str, Any]:
    assert operation.needs_features, "a broker that granted nothing would not know it"
    assert operation.deadline == 1_000 + 5_000
    written: dict[str, Any] = to_builtins(operation.attempt("r1"))
    assert written.pop("requestId") == "r1"
    return written


@pytest.mark.parametrize(
    ("operation", "written"),
    [
        (MAIL.pending(IN), {"type": "pending"}),
        (MAIL.addresses(IN), {"type": "addresses"}),
        (MAIL.session_records(IN), {"type": "session_records"}),
        (MAIL.trace("m", IN), {"type": "trace", "messageId": "m"}),
        (MAIL.task_hint("h\udfff", None, IN), {"type": "task_hint", "taskHint": "h\ufffd"}),
        (MAIL.force_close("s", None, IN), {"type": "session_force_close", "sessionId": "s"}),
        (MAIL.force_close("s", "r", IN), {"type": "session_force_close", "sessionId": "s", "reason": "r"}),
        (MAIL.mailbox(None, None, None, 0, MAILBOX_PAGE, IN), {"type": "mailbox"}),
        (
            MAIL.mailbox("a", "g", None, 3, 5, IN),
            {"type": "mailbox", "of": {"address": "a", "group": "g"}, "after": 3, "limit": 5},
        ),
        (MAIL.mailbox(None, None, "s", 0, MAILBOX_PAGE, IN), {"type": "mailbox", "of": {"sessionId": "s"}}),
        (MAIL.purge(None, None, None, None, IN), {"type": "purge"}),
        (
            MAIL.purge(0.007, "a", None, None, IN),
            {"type": "purge", "olderThanMs": 7, "of": {"address": "a"}},
        ),
    ],
)
def test_what_is_written(operation: RequestOperation[Any], written: dict[str, Any]) -> None:
    """FE 1.11; a member at its default is left out."""
    assert frame(operation) == written


def test_a_page_of_a_mailbox_has_its_default_on_the_wire() -> None:
    assert "limit" not in frame(MAIL.mailbox(None, None, None, 0, MAILBOX_PAGE, IN))


@pytest.mark.parametrize(
    "call",
    [
        lambda: MAIL.trace("", IN),
        lambda: MAIL.force_close(" ", None, IN),
        lambda: MAIL.task_hint(3, None, IN),  # type: ignore[arg-type]
        lambda: MAIL.mailbox(" ", None, None, 0, 5, IN),
        lambda: MAIL.mailbox("a", None, "s", 0, 5, IN),
        lambda: MAIL.mailbox(None, "g", None, 0, 5, IN),
        lambda: MAIL.mailbox(None, None, None, 0, 0, IN),
        lambda: MAIL.purge(None, None, "g", None, IN),
        lambda: MAIL.purge(0, None, None, None, IN),
        lambda: MAIL.pending(0),
    ],
)
def test_what_can_never_work_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()


def test_an_id_it_had_before_is_taken_for_the_present_one() -> None:
    """FE 1.5, client library: ids stay usable although the broker granted another one."""
    profile = Profile()
    lifecycle = Lifecycle(profile, Nothing())
    for session_id in ("old", "new"):
        lifecycle.registered(Registered(session_id=session_id))
    requests = MailRequests(lifecycle, lambda: 1_000)
    assert frame(requests.mailbox(None, None, "old", 0, MAILBOX_PAGE, IN))["of"] == {"sessionId": "new"}
    assert frame(requests.force_close("old", None, IN))["sessionId"] == "new"
    assert frame(requests.purge(None, None, None, "old", IN))["of"] == {"sessionId": "new"}
