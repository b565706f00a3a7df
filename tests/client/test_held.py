"""Held sends, kept until somebody asks for their outcome."""

from __future__ import annotations

import pytest
from msgspec import Raw

from intercom.client.held import HeldSends
from intercom.client.sending import SendOperation
from intercom.client.views import Receipt
from intercom.errors import UsageError
from intercom.limits import HELD_SENDS_KEPT


def operation(message_id: str) -> SendOperation[Receipt]:
    return SendOperation(message_id, "worker", Raw(b"{}"), deadline=1)


def test_a_send_is_kept_until_its_outcome_is_known() -> None:
    held, sent = HeldSends(), operation("m1")
    held.keep(sent)
    assert held.find("m1") is sent
    held.forget(sent)
    with pytest.raises(UsageError, match="m1"):
        held.find("m1")
    held.forget(sent)


def test_the_oldest_outcome_nobody_asked_for_goes_first() -> None:
    held = HeldSends()
    sends = [operation(f"m{number}") for number in range(HELD_SENDS_KEPT)]
    for sent in sends:
        held.keep(sent)
    sends[1].succeed(Receipt("delivered", "m1", "worker"))
    held.keep(operation("more"))
    assert held.find("m0") is sends[0]
    assert held.find("more").message_id == "more"
    with pytest.raises(UsageError):
        held.find("m1")


def test_when_all_are_under_way_the_newest_is_not_kept() -> None:
    held = HeldSends()
    for number in range(HELD_SENDS_KEPT + 1):
        held.keep(operation(f"m{number}"))
    assert held.find("m0").message_id == "m0"
    with pytest.raises(UsageError):
        held.find(f"m{HELD_SENDS_KEPT}")
