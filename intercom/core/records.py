"""Define what is stored: immutable records, and the changes an append makes to them.

What must outlive a connection (addresses, known sessions, mail) changes only by an event of the journal, which carries
the row as it is from then on, or what changed of it: whoever replays the journal gets the rows.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intercom.core.flow_records import AnswerRecord as AnswerRecord
from intercom.core.flow_records import BindingRecord as BindingRecord
from intercom.core.flow_records import DispatchRecord as DispatchRecord
from intercom.core.flow_records import EvidenceRecord as EvidenceRecord
from intercom.core.flow_records import FlowRecord as FlowRecord
from intercom.core.flow_records import GatesRecord as GatesRecord
from intercom.core.flow_records import HostedRecord as HostedRecord
from intercom.core.flow_records import ReportRecord as ReportRecord
from intercom.core.flow_records import StepRecord as StepRecord
from intercom.core.flow_records import TargetIdentity as TargetIdentity
from intercom.core.invocation_records import DiagnosisRecord as DiagnosisRecord
from intercom.core.invocation_records import InvocationRecord as InvocationRecord
from intercom.core.peer_records import AddressClaimed as AddressClaimed
from intercom.core.peer_records import AddressesKnown as AddressesKnown
from intercom.core.peer_records import AddressHome as AddressHome
from intercom.core.peer_records import AddressSeen as AddressSeen
from intercom.core.peer_records import Announce as Announce
from intercom.core.peer_records import Arrived as Arrived
from intercom.core.peer_records import ClaimAddress as ClaimAddress
from intercom.core.peer_records import ClusterState as ClusterState
from intercom.core.peer_records import DeliveryRecord as DeliveryRecord
from intercom.core.peer_records import DropAddress as DropAddress
from intercom.core.peer_records import Follow as Follow
from intercom.core.peer_records import Forward as Forward
from intercom.core.peer_records import Forwarded as Forwarded
from intercom.core.peer_records import HoldTargets as HoldTargets
from intercom.core.peer_records import Mirrored as Mirrored
from intercom.core.peer_records import OutboxRecord as OutboxRecord
from intercom.core.peer_records import PeerFact as PeerFact
from intercom.core.peer_records import PeerLost as PeerLost
from intercom.core.peer_records import PeerRecord as PeerRecord
from intercom.core.peer_records import PeerSeen as PeerSeen
from intercom.core.peer_records import PeerWork as PeerWork
from intercom.core.peer_records import Post as Post
from intercom.core.peer_records import Posted as Posted
from intercom.core.peer_records import Recall as Recall
from intercom.core.peer_records import RemoteName as RemoteName
from intercom.core.peer_records import RemoteReservation as RemoteReservation
from intercom.core.peer_records import RemoteRoute as RemoteRoute
from intercom.core.peer_records import RemoteRun as RemoteRun
from intercom.core.peer_records import RemoteTask as RemoteTask
from intercom.core.peer_records import Settle as Settle
from intercom.core.peer_records import Shelf as Shelf
from intercom.core.peer_records import TargetHeld as TargetHeld


class OperationState(str, Enum):
    """Name the states an operation can have on disk (protocol 6.9.2; queued: design section 7)."""

    RESERVED = "reserved"
    ACCEPTED = "accepted"
    QUEUED = "queued"


class QuestionRecord(Struct, frozen=True):
    """Describe the question an ask opened, as far as it must survive a restart."""

    asker_session: str
    asker_return: str | None
    """SHA-256 (hex) of the asker's return address."""
    target_session: str
    sender_groups: str
    """Sender group identity at the time of the ask (protocol 6.9.1)."""
    deadline: int
    """End of the question, epoch ms."""
    answered: bool = False


class OperationRecord(Struct, frozen=True):
    """Describe one operation: a message id with its signature and fate (protocol 6.9.4)."""

    number: int
    """Key of the row: grows with every reservation in the life of the store."""
    message_id: str
    state: OperationState
    signature: bytes
    """HMAC-SHA256 of the canonical text under the store's key, 32 bytes."""
    sender: str
    """Sender identity; a return address only as its SHA-256."""
    target: str | None
    """Target identity, likewise."""
    sender_session: str
    recipient_session: str | None
    reserved_at: int
    """Epoch ms."""
    accepted_at: int | None = None
    """Epoch ms."""
    position: int | None = None
    """Place in the mailbox, of a queued one."""
    question: QuestionRecord | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether it only serves to know a message that is sent again."""
        return self.state is OperationState.ACCEPTED and (self.question is None or self.question.answered)


class RetiredIdRecord(Struct, frozen=True):
    """Remember who may take a session id again (protocol 6.1)."""

    session_id: str
    return_hash: str | None
    """SHA-256 (hex) of the return address the id was registered with."""
    number: int
    """Order in which ids were remembered; the oldest are dropped first."""
    address: int | None = None
    """Number of the address under which the session acted: what is sent to the id goes to its mailbox."""


class AddressRecord(Struct, frozen=True):
    """Describe one address: who may hold it, and where it is reachable."""

    number: int
    """Key of the row: grows with every address in the life of the store."""
    name: str
    group: str
    """The home group; empty for the broker's own."""
    token_hash: str | None
    """SHA-256 (hex) of the token; ``None`` until somebody holds it."""
    groups: tuple[str, ...]
    """The groups its holder was in last."""
    created_at: int
    last_held_at: int
    """Epoch ms, both."""
    takes_work: bool = False
    """Whoever came to take something under it last takes assignments."""
    home: str | None = None
    """The broker at which its mailbox is; ``None``: here."""


class SessionState(str, Enum):
    """Name the states of a session with a lifecycle."""

    ACTIVE = "active"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"


class KnownSessionRecord(Struct, frozen=True):
    """Describe a session that may come back, or was closed and is remembered."""

    session_id: str
    number: int
    """Order of registration in the life of the store."""
    state: SessionState
    state_since: int
    incarnation: str
    generation: int
    token_hash: str
    """SHA-256 (hex) of the owner token."""
    return_hash: str | None
    pid: int
    started: int | None
    """When the process started, in the kernel's ticks since boot."""
    home_group: str
    features: tuple[str, ...]
    info: bytes
    """The session object as peers saw it last, JSON."""
    needs_registration: bool
    """Something of it lives in the broker's memory only, so after a restart it must register again."""
    grace_deadline: int | None = None
    closed_reason: str | None = None
    address: int | None = None
    """Number of the address under which it acts."""
    holds_address: bool = False
    """It receives the mail of that address."""
    kind: str | None = None
    runtime_session_id: str | None = None
    tracking_ref: str | None = None
    task_hint: str | None = None
    work_mode: str | None = None
    """How it takes assignments; ``None``: it takes none."""
    execution_surface: str | None = None
    workspace: str | None = None
    """Where it works, a JSON object."""


class Elsewhere(Struct, frozen=True):
    """Tell which brokers of other machines may have a mail, by their ids."""

    posted_to: tuple[str, ...] = ()
    """Those that may have it."""
    left_for: tuple[str, ...] = ()
    """Those that were away when it was posted, and find it when they are back."""


class MailRecord(Struct, frozen=True):
    """Describe one message that waits in a mailbox; its body is stored beside it."""

    number: int
    """Key of the row, and the order of a mailbox: the number of its operation, or one out of the same count."""
    mailbox: str
    """Target identity of whoever may open it."""
    message_id: str
    sender_info: bytes
    """The sender's session object at the time, JSON."""
    sender_mailbox: str | None
    """Where its sender is told if it cannot be handed over."""
    sender_session: str
    target: str
    """What the sender called the target."""
    size: int
    """Bytes it is charged for."""
    queued_at: int
    expires_at: int
    valid_until: int | None = None
    is_ask: bool = False
    reply_to: str | None = None
    offers: int = 0
    """How often it was written to somebody."""
    notice: bytes | None = None
    """The ``notice`` of a message the broker itself wrote, JSON."""
    kept: Literal["quiet", "hold", "released"] | None = None
    """Why a policy keeps it: it must not wake its recipient, or the person has to let it through. Or it was fetched or
    let through, and is not kept again."""
    assignment: str | None = None
    """Id of the assignment it brings; the message stays in the inbox until that has ended."""
    body: int | None = None
    """Number under which its message is stored, when that is not its own."""
    elsewhere: Elsewhere | None = None
    """Who else may have it, as of its last offer; None: nobody ever."""

    @property
    def is_kept(self) -> bool:
        """Tell whether a policy keeps it from being handed over."""
        return self.kept is not None and self.kept != "released"

    @property
    def body_number(self) -> int:
        """Return the number under which its message is stored."""
        return self.number if self.body is None else self.body


class InboxRecord(Struct, frozen=True):
    """Describe one message that is parked, or was handed to a worker out of the inbox; its body is stored beside it."""

    number: int
    """Key of the row and of the body, and the place in the inbox."""
    inbox_id: str
    """The id of the message."""
    sender_info: bytes
    """The sender's session object at the time, JSON."""
    sender_mailbox: str | None
    """Where its sender is told, and gets the reply."""
    sender_session: str
    target: str
    """What the sender called the target."""
    size: int
    """Bytes of message and sender."""
    parked_at: int
    expires_at: int
    reason: str
    claim: str
    """Who may claim it while its target can: a ``ClaimPolicy``."""
    groups: tuple[str, ...]
    """Whose coordinators and workers may deal with it."""
    valid_until: int | None = None
    target_session: str | None = None
    target_address: int | None = None
    reply_to: str | None = None
    assignment: str | None = None
    """Id of the assignment while somebody has it."""
    returns: int = 0
    return_reason: str | None = None


class AssignmentRecord(Struct, frozen=True):
    """Describe one open assignment."""

    assignment_id: str
    number: int
    """The order in which they were made."""
    inbox: int
    """Number of the message in the inbox."""
    message_id: str
    session_id: str
    incarnation: str | None
    address: int | None
    """Number of the address under which the worker acts."""
    mode: str
    assigned_at: int
    accept_deadline: int | None
    state: str
    """The newest processing state."""
    sequence: int
    """Its number."""
    accepted: bool = False
    attempts: int = 0
    """How often it was offered to a worker that asked."""
    push_id: str | None = None
    order_key: str | None = None
    """Idempotency key of the order that made it."""


class IdempotencyState(str, Enum):
    """Name what is known of a request with a key."""

    IN_FLIGHT = "in_flight"
    DONE = "done"
    UNKNOWN = "unknown"


class IdempotencyRecord(Struct, frozen=True):
    """Describe one request that carries a key, and its outcome."""

    number: int
    scope: str
    key: str
    fingerprint: str
    state: IdempotencyState
    result: bytes
    """JSON object."""
    expires_at: int


class PolicyRecord(Struct, frozen=True):
    """Describe what the person lets through to somebody."""

    number: int
    """Key of the row."""
    party: str
    """Whose messages it is about: the key of an address, or the sender identity of a session."""
    policy: bytes
    """JSON."""
    set_at: int
    """Epoch ms."""


class LinkRecord(Struct, frozen=True):
    """Describe one link: the durable side of the connections of one worker."""

    link_id: str
    number: int
    """The order in which they were made."""
    mailbox: str
    """Whose it is: the target identity of an address or a session."""
    generation: int
    """Grows with every connection that gets the link."""
    journal_id: str | None
    """The worker's journal, pinned at its first readiness."""
    floor: int
    """Events of that journal up to here are stored."""
    last_command: int
    """Number of its newest command."""
    created_at: int
    refused: str | None = None
    """Code of the refusal that stands."""


class CommandRecord(Struct, frozen=True):
    """Describe one command for the worker of a link; its body is stored beside it."""

    command_id: str
    number: int
    """Number of its body."""
    link_id: str
    seq: int
    """Its place among the commands of the link."""
    state: str
    fingerprint: str
    """SHA-256 (hex) of the body."""
    size: int
    created_at: int
    changed_at: int
    error_code: str | None = None
    detail: str | None = None


class EventRecord(Struct, frozen=True):
    """Describe one durable event of a link; its body is stored beside it."""

    number: int
    """Key of the row and of the body."""
    link_id: str
    journal_id: str
    """The worker's journal that numbered it."""
    seq: int
    event_id: str
    kind: str
    fingerprint: str
    """SHA-256 (hex) of the body."""
    occurred_at: int
    stored_at: int


Row: TypeAlias = (
    AddressRecord
    | KnownSessionRecord
    | MailRecord
    | InboxRecord
    | AssignmentRecord
    | IdempotencyRecord
    | PolicyRecord
    | FlowRecord
    | DispatchRecord
    | LinkRecord
    | CommandRecord
    | EventRecord
    | InvocationRecord
    | DiagnosisRecord
    | DeliveryRecord
    | PeerRecord
    | OutboxRecord
    | HostedRecord
)


class SaveOperation(Struct, frozen=True):
    """Insert the row, or replace the one with the same number."""

    record: OperationRecord


class AcceptOperation(Struct, frozen=True):
    """Move the reserved row with this number to accepted; a missing one is fine."""

    number: int
    recipient_session: str | None
    """Also the target of its question, when it has one; None: whoever it was reserved for."""
    accepted_at: int
    """Epoch ms."""


class AnswerQuestion(Struct, frozen=True):
    """Mark the question of the row with this number as answered; a missing one is fine."""

    number: int


class DropOperation(Struct, frozen=True):
    """Delete the row with this number; a missing one is fine."""

    number: int


class SaveRetiredId(Struct, frozen=True):
    """Insert or replace the row of this session id."""

    record: RetiredIdRecord


class DropRetiredId(Struct, frozen=True):
    """Delete the row of this session id; a missing one is fine."""

    session_id: str


class Happened(Struct, gc=False):
    """Write an event of the journal and bring its row to what the event says, together."""

    seq: int
    """Grows with every event in the life of the journal; 0 until it is appended."""
    at: int
    """Epoch ms."""
    stream: str
    """What it is about, such as ``session:ID``, ``address:NUMBER``, ``mail:MESSAGE-ID``, ``idempotency:NUMBER``,
    ``policy:NUMBER``, ``flow:NUMBER``, ``dispatch:ID``, ``link:ID``, ``command:NUMBER``,
    ``event:NUMBER``, ``invocation:NUMBER``, ``route:DIAGNOSIS-ID``, ``delivery:ID``,
    ``peer:ID``, ``outbox:NUMBER`` or ``hosted:DISPATCH-ID``."""
    kind: str
    event_id: str | None
    """Unique in the journal; None: its sequence number is all that names it."""
    row: Row
    is_gone: bool = False
    """The row is deleted; it says what it was last."""
    detail: dict[str, Any] = {}
    changed: tuple[str, ...] | None = None
    """The members of the row in which it differs from what the event before it said; the journal holds only those.
    None: it holds all."""


class HistoryEvent(Struct, frozen=True):
    """Hold an event read back from the journal."""

    seq: int
    at: int
    kind: str
    row: dict[str, Any]
    """The members of its row by their names here; bytes are left out."""
    detail: dict[str, Any]


class SaveBody(Struct, frozen=True, gc=False):
    """Store the message of a mail, or a text of a flow."""

    number: int
    message: bytes
    sender: bytes | None = None
    """The session object of who wrote it, JSON, where no row holds that."""


class ReleaseBody(Struct, frozen=True):
    """Keep a body only until then (epoch ms)."""

    number: int
    until: int | None
    """None: as long as it is needed, after all."""


class DropBody(Struct, frozen=True):
    """Delete a body at once; a missing one is fine."""

    number: int


class DropBodies(Struct, frozen=True):
    """Delete the bodies whose time is over at this moment (epoch ms)."""

    before: int


class DropHistory(Struct, frozen=True):
    """Delete events older than this moment (epoch ms) without which the journal still tells all rows.

    What is told of a row that is gone is deleted as a whole, once all of it is older; of sessions, addresses, flows
    and dispatches that are there the newest event stays, of mail all.
    """

    before: int


Change: TypeAlias = (
    SaveOperation
    | AcceptOperation
    | AnswerQuestion
    | DropOperation
    | SaveRetiredId
    | DropRetiredId
    | Happened
    | SaveBody
    | ReleaseBody
    | DropBody
    | DropBodies
    | DropHistory
)
"""One change of one row. Changes of one append are committed together; appends in the order of their tickets."""


def accepted(record: OperationRecord, change: AcceptOperation) -> OperationRecord:
    """Return the row after it was accepted."""
    record = replace(record, state=OperationState.ACCEPTED, accepted_at=change.accepted_at)
    if change.recipient_session is None:
        return record
    question = record.question
    if question is not None:
        question = replace(question, target_session=change.recipient_session)
    return replace(record, recipient_session=change.recipient_session, question=question)


def answered(record: OperationRecord) -> OperationRecord:
    """Return the row after its question was answered."""
    return record if record.question is None else replace(record, question=replace(record.question, answered=True))


class Recovered(Struct, frozen=True, kw_only=True):
    """Hold everything a new broker process reads from the store at start, in order of their numbers."""

    operations: list[OperationRecord] = []
    retired_ids: list[RetiredIdRecord] = []
    damaged: frozenset[str] = frozenset()
    """Message ids whose rows cannot be read: every operation under them is *invalid* (protocol 6.9.2)."""
    left_until: int = 0
    """Up to this number settled operations were left on disk, for ``ReadOperations`` to bring; 0: none."""
    last_number: int = 0
    """Greatest number a row of operations or mail has, damaged and stale ones included; new rows take greater ones."""
    addresses: list[AddressRecord] = []
    known_sessions: list[KnownSessionRecord] = []
    mail: list[MailRecord] = []
    policies: list[PolicyRecord] = []
    inbox: list[InboxRecord] = []
    assignments: list[AssignmentRecord] = []
    idempotency: list[IdempotencyRecord] = []
    flows: list[FlowRecord] = []
    dispatches: list[DispatchRecord] = []
    links: list[LinkRecord] = []
    commands: list[CommandRecord] = []
    events: list[EventRecord] = []
    invocations: list[InvocationRecord] = []
    senders: dict[int, bytes] = {}
    """Session objects stored beside bodies, by their numbers."""
    diagnoses: list[DiagnosisRecord] = []
    deliveries: list[DeliveryRecord] = []
    peers: list[PeerRecord] = []
    outbox: list[OutboxRecord] = []
    hosted: list[HostedRecord] = []
    lost_texts: frozenset[int] = frozenset()
    """Numbers of the prompts that are not there of flows that may go on: a rebuilt store has states, not texts."""
    last_sequence: int = 0
    """Of the journal."""


class StoreIdentity(Struct, frozen=True):
    """Tell one store, its journal and one process on it from all others."""

    broker_id: str
    journal_id: str
    epoch: int


class ReadBodies(Struct, frozen=True):
    """Read the messages of these mails, as far as they are committed; tell the core with ``bodies_read``."""

    token: object
    numbers: tuple[int, ...]


class ReadHistory(Struct, frozen=True):
    """Read the events of this stream, as far as they are committed; tell the core with ``history_read``."""

    token: object
    stream: str


class ReadJournal(Struct, frozen=True):
    """Read the events behind a sequence, at most ``limit``, as far as they are committed; tell with ``journal_read``.

    All of the answer is of one moment.
    """

    token: object
    after: int
    limit: int


class ReadOperations(Struct, frozen=True):
    """Read at most ``limit`` operations behind the number ``after``, up to ``until``; tell with ``operations_read``."""

    after: int
    until: int
    limit: int
    now_ms: int
    """Epoch ms: what had its time by then is not told but counted as stale."""
    ttl_ms: int


class OperationsPage(Struct, frozen=True):
    """Hold operations read back after the start, in order of their numbers."""

    records: list[OperationRecord]
    damaged: set[str]
    """Message ids whose rows cannot be read."""
    stale: list[int]
    """Numbers of rows to delete."""
    last: int
    """Up to here everything was read."""


class JournalPage(Struct, frozen=True):
    """Hold events read back from the journal, oldest first."""

    events: list[Happened]
    last: int
    """Up to here everything is in ``events``, as far as it is there and can be read."""
    is_whole: bool
    """Nothing was behind ``last`` at that moment."""
    compacted: int
    """Up to here events may be missing: what had its time was deleted."""


Reading: TypeAlias = ReadBodies | ReadHistory | ReadJournal | ReadOperations
"""What the outside world is asked to read."""
