"""Make a supervisor capability and tell whether one is genuine, as both ends of the wire must (protocol 6.6)."""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode


def capability_for(owner_token: str, child_name: str, nonce: str) -> str:
    """Make the capability of one child: the nonce and its HMAC under the owner token."""
    return f"{nonce}.{_encode(_mac(owner_token, child_name, nonce))}"


def is_made_with(capability: str, owner_token: str, child_name: str) -> bool:
    """Tell whether ``capability`` was made with this owner token for this child name."""
    nonce, dot, encoded = capability.partition(".")
    if not nonce or not dot or not encoded:
        return False
    try:
        mac = urlsafe_b64decode(
            encoded.replace("+", "-").replace("/", "_").rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4)
        )
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(mac, _mac(owner_token, child_name, nonce))


def _mac(owner_token: str, child_name: str, nonce: str) -> bytes:
    return hmac.digest(utf8(owner_token), utf8(nonce) + b"\0" + utf8(child_name), "sha256")


def utf8(text: str) -> bytes:
    """Return the bytes a secret or a name is compared by."""
    return text.encode("utf-8", "replace")


def _encode(mac: bytes) -> str:
    return urlsafe_b64encode(mac).rstrip(b"=").decode()
