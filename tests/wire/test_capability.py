from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest

from intercom.wire.capability import capability_for, is_made_with

TOKEN, CHILD, NONCE = "owner-token-1", "reviewer", "5b8f0d0a-2c44-4d7e-8f11-0a9b8c7d6e5f"
MAC = "qeVCJeYelAvEVzM9ayNSagKBox8e_JGwtjLx28UqbIo"


def test_a_capability_is_made_as_the_test_vector_says() -> None:
    """protocol 6.6"""
    assert capability_for(TOKEN, CHILD, NONCE) == f"{NONCE}.{MAC}"
    assert is_made_with(f"{NONCE}.{MAC}", TOKEN, CHILD)


def test_padding_and_the_standard_alphabet_are_tolerated() -> None:
    """protocol 6.6"""
    standard = MAC.replace("-", "+").replace("_", "/")
    assert standard != MAC
    for encoded in (f"{MAC}=", standard, f"{standard}="):
        assert is_made_with(f"{NONCE}.{encoded}", TOKEN, CHILD)


@pytest.mark.parametrize(
    "capability",
    [
        *("", ".", NONCE, f"{NONCE}.", f".{MAC}", f"{NONCE}.{MAC[:-1]}", f"{NONCE}.{MAC[:-2]}", f"{NONCE}.x"),
        *(f"{NONCE}.{MAC}AAAA", f"{NONCE}.{MAC}.x", f"x.{NONCE}.{MAC}", f"{NONCE}x.{MAC}", f"{NONCE}.\u00e9{MAC}"),
        f"{NONCE}.{MAC.lower()}",
    ],
)
def test_anything_else_is_no_capability(capability: str) -> None:
    """protocol 6.6: split at the first dot, not at position 0, not the last character"""
    assert not is_made_with(capability, TOKEN, CHILD)


def test_the_nonce_may_be_any_text_and_the_mac_binds_owner_and_name() -> None:
    """protocol 6.6: HMAC over nonce, NUL and child name, all UTF-8"""
    assert is_made_with(capability_for("t\u00f6ken", "kind \u2713", "n"), "t\u00f6ken", "kind \u2713")
    made = capability_for(TOKEN, CHILD, NONCE)
    assert not is_made_with(made, TOKEN, "Reviewer") and not is_made_with(made, "owner-token-2", CHILD)
    assert not is_made_with(capability_for(TOKEN, "c", "a\0b"), TOKEN, "b\0c")
    assert len(urlsafe_b64decode(made.partition(".")[2] + "=")) == 32
