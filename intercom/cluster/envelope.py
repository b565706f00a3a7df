"""Put what brokers tell each other into envelopes that only a broker with the same key can make.

Rule 1: nothing of an envelope is believed before its mac was found right. Rule 2: an envelope says for whom it is, so
that one that was seen elsewhere is nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest, digest

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import decode, encode
from msgspec.structs import replace

VERSION = 1


class Envelope(Struct, frozen=True):
    """Hold one thing that a broker tells."""

    v: int
    kind: str
    delivery_id: str
    """The same in every copy."""
    from_broker: str
    to_broker: str
    """Empty: everybody's."""
    epoch: int
    """Of the process that wrote it."""
    body: Raw
    until: int | UnsetType = UNSET
    """When it is of no use any more, epoch ms by the clock of the engine; left out: that is not known, or never."""
    mac: str = ""


class Enclosed(Struct, frozen=True, array_like=True):
    """Hold one of several letters in one envelope."""

    kind: str
    delivery_id: str
    body: Raw
    until: int | None = None


SEVERAL = "several"
"""The kind of an envelope whose body is a list of ``Enclosed``."""


class Foreign(Exception):
    """Say that something is no envelope of this cluster, and why."""


def seal(
    key: bytes,
    kind: str,
    body: bytes,
    *,
    from_broker: str,
    epoch: int,
    to_broker: str = "",
    delivery_id: str = "",
    until: int | None = None,
) -> bytes:
    """Return an envelope as bytes.

    Args:
        key: what the brokers of the cluster share.
        kind: what ``body`` is.
        body: JSON.
        from_broker: id of this broker.
        epoch: of this process.
        to_broker: id of the broker it is for.
        delivery_id: by which a copy of it is told.
        until: when it is of no use any more, epoch ms by the clock of the engine; None: not known, or never.
    """
    limit = UNSET if until is None else until
    bare = encode(Envelope(VERSION, kind, delivery_id, from_broker, to_broker, epoch, Raw(body), limit))
    return b'%b,"mac":"%b"}' % (_open_end(bare), digest(key, bare, "sha256").hex().encode())


def unseal(key: bytes, data: bytes, *, to_broker: str = "") -> Envelope:
    """Return what is in an envelope; raise ``Foreign`` unless it was made under this key for ``to_broker``."""
    head, sign, tail = data.rpartition(b',"mac":"')
    if not sign or not tail.endswith(b'"}'):
        raise Foreign("it is no envelope")
    bare = head + b',"mac":""}'
    if not compare_digest(digest(key, bare, "sha256").hex().encode(), tail[:-2]):
        raise Foreign("it was made under another key")
    try:
        envelope = decode(data, type=Envelope)
    except DecodeError as error:
        raise Foreign(f"it cannot be read: {error}") from None
    if envelope.v != VERSION:
        raise Foreign(f"it is of version {envelope.v}")
    if envelope.to_broker != to_broker:
        raise Foreign("it is for another broker")
    return envelope


def writer_of(data: bytes) -> str:
    """Return whom an envelope names as its broker, whatever key it was made under; empty: it names none."""
    try:
        return decode(data, type=Envelope).from_broker
    except DecodeError:
        return ""


def _open_end(bare: bytes) -> bytes:
    """Return an envelope without its empty mac and its end."""
    return bare[: -len(b',"mac":""}')]


def enclose(letters: Iterable[Enclosed]) -> bytes:
    """Return letters as the body of one envelope."""
    return encode(list(letters))


def enclosed(envelope: Envelope) -> list[Envelope]:
    """Return an envelope as one for each letter in it, in order; raise ``Foreign`` if it cannot be read."""
    if envelope.kind != SEVERAL:
        return [envelope]
    try:
        letters = decode(envelope.body, type=list[Enclosed])
    except DecodeError as error:
        raise Foreign(f"it cannot be read: {error}") from None
    return [
        replace(
            envelope,
            kind=each.kind,
            delivery_id=each.delivery_id,
            body=each.body,
            until=UNSET if each.until is None else each.until,
        )
        for each in letters
    ]
