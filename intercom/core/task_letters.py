"""Define what two brokers tell each other about invocations: bodies of what is posted, JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from intercom.core.peer_records import RemoteName, RemoteRun
from intercom.wire.invocations import Action

INVOKE = "invoke"
INVOKED = "invoked"
RUN = "run"
FOLLOW = "follow"
RECALL = "recall"


class InvokeLetter(Struct, frozen=True, omit_defaults=True):
    """Hold a task for somebody the peer answers for."""

    attempt: int
    invocation_id: str
    to: str
    """Id of its target at the peer."""
    asked: str
    action: Action
    requester: RemoteName
    fingerprint: str
    """SHA-256 (hex) of everything that makes two requests the same."""
    run_id: str
    """The same at both brokers: it is in the id of the message, by which a reply is known."""
    message: Raw
    """With its context and metadata."""
    ensure_awake: bool = False
    take_within: int | None = None
    """The task is not handed over later; milliseconds from when it was posted."""
    wishes: Raw | UnsetType = UNSET
    """What is said of it beside."""
    turn: int = 0
    """How often it has gone on to another machine."""
    claim: int | None = None
    """The newest claim of the home of its address that was known when it was posted, 0: none; None: it is not said."""


class InvokedLetter(Struct, frozen=True, omit_defaults=True):
    """Say what became of such an attempt."""

    attempt: int
    verdict: Literal["accepted", "duplicate", "refused", "unreachable"]
    run: RemoteRun | None = None
    reason: str = ""
    turn: int = 0
    """That of what it answers."""
    is_elsewhere: bool = False
    """It was refused because the address that it is for is not at home here."""


class RunLetter(Struct, frozen=True):
    """Say how a run is; the number is of the journal there, and ``after`` that of the report before."""

    after: int
    seq: int
    run: RemoteRun


class FollowLetter(Struct, frozen=True):
    """Ask for what was reported of a run behind a number."""

    invocation_id: str
    after: int


class RecallLetter(Struct, frozen=True):
    """Say that a run is not wanted any more."""

    invocation_id: str
    reason: str
