"""Composing a message: what is replaced, what is refused, what comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.client.composing import clean_id, clean_target, clean_text, compose
from intercom.errors import TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES
from intercom.wire.frames import Attachment


def composed(**arguments: Any) -> dict[str, Any]:
    given = {"message_id": "m1", "timestamp": 5, "text": "hi", **arguments}
    document: dict[str, Any] = json.loads(bytes(compose(**given)))
    return document


def test_absent_members_are_left_out() -> None:
    """Protocol 1.4: undefined keys are left out, never null."""
    assert composed() == {"id": "m1", "timestamp": 5, "content": {"text": "hi"}}


def test_all_members() -> None:
    """Protocol 4: the message table."""
    attachment = Attachment("file", "a.py", "x = 1", "python")
    assert composed(attachments=[attachment], reply_to="q1", expects_reply=True, error=True) == {
        "id": "m1",
        "timestamp": 5,
        "replyTo": "q1",
        "expectsReply": True,
        "replyError": "hi",
        "content": {
            "text": "hi",
            "attachments": [{"type": "file", "name": "a.py", "content": "x = 1", "language": "python"}],
        },
    }


def test_an_attachment_may_be_a_mapping() -> None:
    given = {"type": "snippet", "name": "s", "content": "\udc80"}
    assert composed(attachments=[given])["content"]["attachments"] == [
        {"type": "snippet", "name": "s", "content": "\ufffd"}
    ]


@pytest.mark.parametrize(
    "attachment", [{"type": "picture", "name": "a", "content": ""}, {"type": "file", "name": "a"}, "a.py", 3]
)
def test_an_attachment_of_the_wrong_form_is_refused(attachment: Any) -> None:
    with pytest.raises(UsageError):
        composed(attachments=[attachment])


def test_an_attachment_object_with_a_wrong_type_is_refused() -> None:
    wrong: Any = "picture"
    with pytest.raises(UsageError):
        composed(attachments=[Attachment(wrong, "a", "")])


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("grün 🙂", "grün 🙂"),
        ("\ud83d", "\ufffd"),
        ("a\udc80b", "a\ufffdb"),
        ("\ud83d\ude42", "🙂"),
        ("\ude42\ud83d", "\ufffd\ufffd"),
        ("\ud83dx", "\ufffdx"),
    ],
)
def test_lone_surrogates_become_the_replacement_character(text: str, cleaned: str) -> None:
    """F39: a lone surrogate must not stop a send for ever."""
    assert clean_text(text) == cleaned


@given(st.text(alphabet=st.characters(codec=None, categories=None) | st.sampled_from("\ud800\udbff\udc00\udfff")))
def test_cleaned_text_is_valid_and_cleaning_it_again_changes_nothing(text: str) -> None:
    cleaned = clean_text(text)
    assert clean_text(cleaned) == cleaned
    cleaned.encode()


@pytest.mark.parametrize("wrong", [None, 3, b"bytes"])
def test_text_must_be_text(wrong: Any) -> None:
    with pytest.raises(UsageError, match="target must be a string"):
        clean_target(wrong)


@pytest.mark.parametrize("blank", ["", "  ", "\ufeff\n"])
def test_a_blank_target_is_refused(blank: str) -> None:
    with pytest.raises(UsageError):
        clean_target(blank)


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(UsageError):
        clean_id("")
    assert clean_id("m1") == "m1"


def test_the_size_counts_bytes_of_text_and_attachments() -> None:
    half = "ü" * (ATTACHMENTS_BYTES // 4)
    attachment = Attachment("file", "", half)
    composed(text=half, attachments=[attachment])
    with pytest.raises(TooLarge, match=str(ATTACHMENTS_BYTES + 1)):
        composed(text=half + "x", attachments=[attachment])


def test_text_that_json_makes_too_large_is_refused() -> None:
    """A control character takes six bytes in JSON, and a frame holds 4 MiB (design OP-1)."""
    with pytest.raises(TooLarge, match="as JSON"):
        composed(text="\0" * (1024 * 1024))
