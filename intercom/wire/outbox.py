"""Define the frames about what is on its way to other brokers, or waits for them (protocol 4.150 to 4.152)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty

OutboxKind: TypeAlias = Literal["message", "task", "step", "report"]
OutboxStatus: TypeAlias = Literal["accepted", "posted", "deferred", "peer_acked", "running"]


class OutboxList(FeatureRequest, tag="outbox_list"):
    """Ask what is on its way to other brokers, or waits for them (protocol 4.150)."""

    peer: NonEmpty | UnsetType = UNSET
    """Only what is for this broker, by its id or by what its machine is called."""
    status: OutboxStatus | UnsetType = UNSET
    delivery_id: NonEmpty | UnsetType = UNSET
    after: int = 0
    """Entries behind this one only."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class OutboxRetry(FeatureRequest, tag="outbox_retry"):
    """Bring an entry away now (protocol 4.151)."""

    delivery_id: NonEmpty


class OutboxCancel(FeatureRequest, tag="outbox_cancel"):
    """Give a message up that is in the outbox (protocol 4.152)."""

    delivery_id: NonEmpty


OutboxRequest: TypeAlias = OutboxList | OutboxRetry | OutboxCancel


class OutboxEntry(Struct, rename="camel", omit_defaults=True):
    """Describe what is on its way to another broker, or waits for it."""

    entry: int
    """Its number: the order in which they were stored."""
    delivery_id: str
    kind: OutboxKind
    status: OutboxStatus
    peer: str
    """Id of the broker it is for."""
    node: str
    """What its machine is called."""
    target: str
    """What the sender called whom it is for."""
    attempts: int
    queued_at: int
    """Epoch ms."""
    message_id: str | UnsetType = UNSET
    invocation_id: str | UnsetType = UNSET
    next_attempt_at: int | UnsetType = UNSET
    size: int | UnsetType = UNSET
    """Bytes of a message."""
    detail: str | UnsetType = UNSET
    """Why the last attempt failed."""


class OutboxEntries(FeatureAnswer, tag="outbox"):
    """Answer ``outbox_list`` (protocol 5.150)."""

    entries: list[OutboxEntry]
    left: int
    """How many entries are behind these."""


class OutboxChanged(FeatureAnswer, tag="outbox_changed"):
    """Say that ``outbox_retry`` or ``outbox_cancel`` was done (protocol 5.151)."""

    delivery_id: str


OutboxAnswer: TypeAlias = OutboxEntries | OutboxChanged
