from __future__ import annotations

import hmac

import pytest

from intercom.core.keyed import KeyedDigest


@pytest.mark.parametrize("size", [0, 1, 32, 63, 64, 65, 200])
def test_it_is_hmac_sha256_whatever_the_length_of_the_key(size: int) -> None:
    """protocol 6.9.1"""
    key = bytes(range(size))
    digest = KeyedDigest(key)
    for text in (b"", b"a text", b"x" * 1_000):
        assert digest.of(text) == hmac.digest(key, text, "sha256")


def test_one_text_leaves_nothing_behind_for_the_next() -> None:
    digest = KeyedDigest(b"key")
    first = digest.of(b"one")
    assert digest.of(b"two") != first
    assert digest.of(b"one") == first
