"""Test that a copy of what was refused is refused, too, whatever has become possible (protocol 6.13.2)."""

from __future__ import annotations

import pytest
from msgspec import Raw

from intercom.core.letters import OutcomeLetter, SendLetter
from intercom.core.peer_records import RemoteName
from intercom.core.refused import RefusedLetters

WHO = RemoteName("s", "alice", (), "active", "a")


def letter(attempt: str, message_id: str = "m1") -> SendLetter:
    return SendLetter(message_id, "t", "mark", attempt, WHO, Raw(b"{}"))


def said(attempt: str, message_id: str = "m1") -> OutcomeLetter:
    return OutcomeLetter(message_id, "mark", attempt, "failed", "no")


@pytest.mark.parametrize(
    ("attempt", "is_copy"),
    [("1.j.9", True), ("1.j.10", True), ("1.j.11", False), ("2.j.1", False)],
)
def test_what_is_not_newer_is_a_copy(attempt: str, *, is_copy: bool) -> None:
    """Another process of that broker counts anew."""
    refused = RefusedLetters(10)
    refused.note("a", said("1.j.10"))
    found = refused.of_copy("a", letter(attempt))
    assert (found is not None) is is_copy
    assert found is None or (found.attempt, found.reason) == (attempt, "no")
    assert refused.of_copy("b", letter("1.j.10")) is None


def test_the_latest_are_remembered() -> None:
    """``Limits.letters_refused``"""
    refused = RefusedLetters(2)
    for message_id in ("m1", "m2", "m1", "m3"):
        refused.note("a", said("1.j.1", message_id))
    known = [message_id for message_id in ("m1", "m2", "m3") if refused.of_copy("a", letter("1.j.1", message_id))]
    assert known == ["m1", "m3"]
