"""Compute HMAC-SHA256 under one key, many times."""

from __future__ import annotations

from hashlib import sha256

_BLOCK_BYTES = 64
_INNER, _OUTER = 0x36, 0x5C
"""What RFC 2104 pads the key with."""


class KeyedDigest:
    """Hold what HMAC derives from a key, so that a digest costs only the text.

    The standard library's one-shot function looks the algorithm up and pads the key anew for every message, which
    takes longer than hashing a message does.

    Args:
        key: any number of bytes.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK_BYTES:
            key = sha256(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha256(bytes(byte ^ _INNER for byte in key))
        self._outer = sha256(bytes(byte ^ _OUTER for byte in key))

    def of(self, text: bytes) -> bytes:
        """Return the 32 bytes of HMAC-SHA256 of ``text`` (protocol 6.9.1)."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()
