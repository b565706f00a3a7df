"""Define what is stored of invocations."""

from __future__ import annotations

from msgspec import Struct

from intercom.core.peer_records import PEER

SESSION = "session:"
"""Begins the identity of a session that has no other."""
ITSELF = "="
"""Stands for the id of the target: a row that grows by little stays in its place on the disk."""
LET_GO = "moved"
"""Where a task is put that follows its address to another machine, at the broker that does not have it any more."""


class InvocationRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """Describe one invocation with its run and the job that hands it over.

    The task, and the session object of who asked, are stored beside it. The journal holds it without what is not known
    yet, which is most of it for most of its life, and without what its other members tell.
    """

    number: int
    """Key of the row and of the message that brings the task."""
    invocation_id: str
    run_id: str
    requester: str
    """Identity of who asked, which outlives a connection."""
    target: str
    """Id of the target: of a session, or the key of an address."""
    target_name: str
    fingerprint: str
    """Half of the SHA-256 (hex) of everything that makes two requests the same."""
    size: int
    """Bytes of the message and the session object."""
    created_at: int
    action: str = "execute"
    ensure_awake: bool = False
    state: str = "queued"
    """Of the run."""
    take_until: int | None = None
    """The task is not handed over later, epoch ms."""
    result: int | None = None
    """Number under which summary, output and error are stored."""
    result_hash: str | None = None
    """SHA-256 (hex) of those."""
    started_at: int | None = None
    completed_at: int | None = None
    job: str = "pending"
    attempts: int = 0
    lease_epoch: int | None = None
    """The process that hands it over; the lease of an older one is void."""
    lease_until: int | None = None
    last_error: str | None = None
    """Why the last hand-over was not made."""
    placement: str | None = None
    held_by: str | None = None
    """Id of the session that has it; ``ITSELF``: that of its target."""
    cancel_asked_at: int | None = None
    reconciled: bool = False
    """The broker itself found that it failed."""
    authority: str | None = None
    """The broker that answers for the target, when that is another one."""
    wishes: bytes | None = None
    """What was said of the task beside its texts, JSON."""
    acted_as: str | None = None
    """Id of the session that asked, where its identity does not hold it."""
    has_mailbox: bool = False
    """Who asked has a mailbox under its identity."""
    asked_as: str | None = None
    """What the target was called, where that was not its id."""
    turn: int = 0
    """How often it went on to another machine: what is said of an earlier time counts no more."""

    @property
    def requester_session(self) -> str:
        """Return the id that the session which asked had."""
        return self.requester.removeprefix(SESSION) if self.acted_as is None else self.acted_as

    @property
    def requester_mailbox(self) -> str | None:
        """Return where who asked is told, and gets replies."""
        return self.requester if self.has_mailbox else None

    @property
    def asked(self) -> str:
        """Return what the target was called."""
        return self.target if self.asked_as is None else self.asked_as

    @property
    def worker(self) -> str | None:
        """Return the id of the session that has it."""
        return self.target if self.held_by == ITSELF else self.held_by

    @property
    def message_id(self) -> str:
        """Return the id of the message that brings the task."""
        return f"run:{self.run_id}"

    @property
    def asked_at_peer(self) -> str | None:
        """Return the broker at which it was asked for, when that is another one."""
        return self.requester.split(":", 2)[1] if self.requester.startswith(PEER) else None


class DiagnosisRecord(Struct, frozen=True):
    """Describe why a label led to nobody."""

    number: int
    diagnosis_id: str
    invocation_id: str
    requester: str
    requester_session: str
    kind: str
    asked: str
    detail: str
    candidates: bytes
    """JSON array."""
    at: int
