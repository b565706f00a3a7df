"""What the broker tells of mail, as a program sees it."""

from __future__ import annotations

import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.client.mailviews import (
    AddressView,
    MailboxEntry,
    PendingAsk,
    SessionRecord,
    address_of,
    mailbox_of,
    pending_of,
    record_of,
    trace_of,
)
from intercom.client.views import Malformed
from intercom.wire import mail
from tests.support.client import PEER


def test_a_session_record() -> None:
    entry = mail.SessionRecordEntry(
        "s", "reconnecting", 5, "inc", 3, 7, ["g"], "label", 2, name="n", kind="k", grace_deadline=9, address="a",
        task_hint="h", work_mode="resident",
    )  # fmt: skip
    assert record_of(entry) == SessionRecord(
        id="s", name="n", state="reconnecting", since=5, groups=("g",), pid=7, kind="k", address="a", mailbox_count=2,
        task_hint="h", grace_deadline=9, closed_reason=None, generation=3, incarnation="inc", label="label",
        work_mode="resident",
    )  # fmt: skip
    bare = record_of(mail.SessionRecordEntry("s", "closed", 5, "inc", 1, 7, [], "l", 0, closed_reason="unregister"))
    assert (bare.name, bare.kind, bare.address, bare.closed_reason) == (None, None, None, "unregister")


def test_an_address() -> None:
    entry = mail.AddressEntry("a", "g", ["g", "h"], 1, 2, 3, 4, holder="s", holder_state="active", oldest_at=5)
    assert address_of(entry) == AddressView(
        name="a", group="g", groups=("g", "h"), created_at=1, last_held_at=2, holder="s", holder_state="active",
        mailbox_count=3, mailbox_bytes=4, oldest_at=5,
    )  # fmt: skip
    assert address_of(mail.AddressEntry("a", "", [], 1, 2, 0, 0)).holder is None


def test_a_mailbox() -> None:
    entries = [
        mail.MailEntry(4, "m", 1, Raw(encode(PEER)), 5, 6, 7, 0, "queued", valid_until=8, expects_reply=True),
        mail.MailEntry(9, "n", 2, Raw(b'{"id":"b"}'), 5, 6, 7, 2, "offered", notice="expired"),
    ]
    box = mailbox_of(mail.MailboxEntries("r", "o", 2, 14, entries))
    assert (box.owner, box.count, box.bytes) == ("o", 2, 14)
    first, second = box.entries
    assert first == MailboxEntry(
        entry=4, position=1, message_id="m", sender=first.sender, queued_at=5, expires_at=6, valid_until=8, size=7,
        offers=0, state="queued", expects_reply=True, notice=None,
    )  # fmt: skip
    assert first.sender.name == PEER["name"]
    assert (second.sender.id, second.expects_reply, second.valid_until, second.notice) == ("b", False, None, "expired")


@pytest.mark.parametrize("sender", [b"3", b"{}", b'{"id":3}'])
def test_a_sender_that_is_none(sender: bytes) -> None:
    entry = mail.MailEntry(4, "m", 1, Raw(sender), 5, 6, 7, 0, "queued")
    with pytest.raises(Malformed):
        mailbox_of(mail.MailboxEntries("r", "o", 1, 7, [entry]))


def test_a_question_that_is_owed() -> None:
    assert pending_of(mail.PendingAsk("m", "a", 1, 2, asker_here=False)) == PendingAsk(
        message_id="m", asker_id="a", asker_name=None, asker_is_here=False, asked_at=1, deadline=2
    )


def test_a_trace() -> None:
    events = [mail.TraceEvent(1, "queued"), mail.TraceEvent(2, "delivered", {"by": "s"})]
    trace = trace_of(mail.Trace("r", "m", "delivered", "with its recipient", events, sender="a"))
    assert (trace.message_id, trace.state, trace.where, trace.sender, trace.recipient) == (
        "m", "delivered", "with its recipient", "a", None,
    )  # fmt: skip
    assert [(event.at, event.state, event.detail) for event in trace.events] == [
        (1, "queued", {}),
        (2, "delivered", {"by": "s"}),
    ]
