"""Define what two brokers tell each other about the steps of flows: bodies of what is posted, JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from intercom.core.flow_records import TargetIdentity

DISPATCH = "dispatch"
DISPATCHED = "dispatched"
INQUIRE = "inquire"
OVER = "over"
REPORT = "report"
REPORTED = "reported"


class DispatchLetter(Struct, frozen=True):
    """Hold an attempt for a session that the peer answers for; the peer decides about it with its own state."""

    dispatch_id: str
    flow_id: str
    step_id: str
    group: str
    identity: TargetIdentity
    target: str
    """What the flow calls it."""
    message: Raw
    """The same in every copy."""


class InquireLetter(Struct, frozen=True):
    """Ask how an attempt is that the peer has."""

    dispatch_id: str


class DispatchedLetter(Struct, frozen=True, omit_defaults=True):
    """Say how an attempt is at the broker of its session.

    ``stored``: there, and handed over as far as ``transport`` says; ``busy``: another step is under way at its session;
    ``free``: none is any more; ``refused``: it will not be handed over, and never was; ``unreachable``: not now;
    ``lost``: its message was given up; ``gone``: its session will not come back; ``unknown``: it is not known there.
    """

    dispatch_id: str
    state: Literal["stored", "busy", "free", "refused", "unreachable", "lost", "gone", "unknown"]
    transport: Literal["prepared", "published", "accepted"] = "prepared"
    offers: int = 1
    """How often its message was handed over."""
    may_be_brought: bool = False
    """Of one that is gone: somebody acts under its address and may bring its report."""
    reason: str = ""


class OverLetter(Struct, frozen=True):
    """Say that an attempt is over, or that it is not known to the broker of its flow."""

    dispatch_id: str
    outcome: str
    reason: str = ""


class ReportLetter(Struct, frozen=True, omit_defaults=True):
    """Hold what the worker reported."""

    dispatch_id: str
    outcome: Literal["completed", "failed"]
    summary: str
    resources: tuple[str, ...]
    version: str
    """Tells it from one with other evidence about the to-do item."""
    by: str
    """Id of the session that brought it."""
    todo_id: str | None = None
    todo_status: Literal["pending", "in_progress", "completed", "blocked", "failed"] | None = None
    prepared_at: int | None = None
    attempt: int = 1
    """How often the worker sent it."""
    offers: int = 1
    """How often the message was handed over."""
    is_brought: bool = False
    """Not by the session that was handed the step."""


class ReportedLetter(Struct, frozen=True, omit_defaults=True):
    """Say what became of a report: the state of the step, or why it does not count."""

    dispatch_id: str
    version: str
    step_state: str | None = None
    code: str | None = None
    reason: str = ""
