"""Make records for tests, and hypothesis strategies for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from intercom.core.flow_records import (
    AnswerRecord,
    BindingRecord,
    DispatchRecord,
    EvidenceRecord,
    FlowRecord,
    GatesRecord,
    HostedRecord,
    ReportRecord,
    StepRecord,
    TargetIdentity,
)
from intercom.core.journal import stream_of
from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    Elsewhere,
    EventRecord,
    Happened,
    IdempotencyRecord,
    IdempotencyState,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    OperationRecord,
    OperationState,
    OutboxRecord,
    PeerRecord,
    QuestionRecord,
    RetiredIdRecord,
    Row,
    SessionState,
)

NOW = 1_700_000_000_000
"""A wall clock for tests, epoch ms."""

LARGEST = 2**63 - 1
"""Greatest integer a column takes."""


def operation(number: int, message_id: str | None = None, **changes: object) -> OperationRecord:
    """Return a plain send that was reserved just before ``NOW``."""
    values: dict[str, object] = {
        "number": number,
        "message_id": message_id or f"message-{number}",
        "state": OperationState.RESERVED,
        "signature": bytes([number % 256]) * 32,
        "sender": "session:a",
        "target": "session:b",
        "sender_session": "a",
        "recipient_session": "b",
        "reserved_at": NOW - 1,
    }
    return OperationRecord(**{**values, **changes})  # type: ignore[arg-type]


def question(**changes: object) -> QuestionRecord:
    """Return an open question whose deadline lies a second after ``NOW``."""
    values: dict[str, object] = {
        "asker_session": "a",
        "asker_return": None,
        "target_session": "b",
        "sender_groups": "default",
        "deadline": NOW + 1_000,
    }
    return QuestionRecord(**{**values, **changes})  # type: ignore[arg-type]


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
counts = st.integers(0, LARGEST)
questions = st.builds(
    QuestionRecord,
    asker_session=texts,
    asker_return=st.none() | texts,
    target_session=texts,
    sender_groups=texts,
    deadline=counts,
    answered=st.booleans(),
)
operations = st.builds(
    OperationRecord,
    number=counts,
    message_id=st.text(st.characters(codec="utf-8"), max_size=20),
    state=st.sampled_from(OperationState),
    signature=st.binary(min_size=32, max_size=32),
    sender=texts,
    target=st.none() | texts,
    sender_session=texts,
    recipient_session=st.none() | texts,
    reserved_at=counts,
    accepted_at=st.none() | counts,
    position=st.none() | counts,
    question=st.none() | questions,
)
retired_ids = st.builds(
    RetiredIdRecord, session_id=texts, return_hash=st.none() | texts, number=counts, address=st.none() | counts
)

counted = st.integers(1, LARGEST)
addresses = st.builds(
    AddressRecord,
    number=counted,
    name=texts,
    group=st.text(st.characters(codec="utf-8"), max_size=8),
    token_hash=st.none() | texts,
    groups=st.lists(texts, max_size=3).map(tuple),
    created_at=counts,
    last_held_at=counts,
    home=st.none() | texts,
)
known_sessions = st.builds(
    KnownSessionRecord,
    session_id=texts,
    number=counts,
    state=st.sampled_from(SessionState),
    state_since=counts,
    incarnation=texts,
    generation=counts,
    token_hash=texts,
    return_hash=st.none() | texts,
    pid=counts,
    started=st.none() | counts,
    home_group=texts,
    features=st.lists(texts, max_size=3).map(tuple),
    info=st.binary(max_size=30),
    needs_registration=st.booleans(),
    grace_deadline=st.none() | counts,
    closed_reason=st.none() | texts,
    address=st.none() | counts,
    kind=st.none() | texts,
    runtime_session_id=st.none() | texts,
    tracking_ref=st.none() | texts,
    task_hint=st.none() | texts,
    work_mode=st.none() | texts,
    execution_surface=st.none() | texts,
    workspace=st.none() | texts,
)
mail = st.builds(
    MailRecord,
    number=counted,
    mailbox=texts,
    message_id=texts,
    sender_info=st.binary(max_size=30),
    sender_mailbox=st.none() | texts,
    sender_session=st.text(st.characters(codec="utf-8"), max_size=8),
    target=st.text(st.characters(codec="utf-8"), max_size=8),
    size=counts,
    queued_at=counts,
    expires_at=counts,
    valid_until=st.none() | counts,
    is_ask=st.booleans(),
    reply_to=st.none() | texts,
    offers=counts,
    notice=st.none() | st.binary(max_size=30),
    assignment=st.none() | texts,
    body=st.none() | counts,
    elsewhere=st.none() | st.builds(Elsewhere, st.tuples(texts), st.just(()) | st.tuples(texts, texts)),
)
parked = st.builds(
    InboxRecord,
    number=counted,
    inbox_id=texts,
    sender_info=st.binary(max_size=30),
    sender_mailbox=st.none() | texts,
    sender_session=texts,
    target=texts,
    size=counts,
    parked_at=counts,
    expires_at=counts,
    reason=texts,
    claim=texts,
    groups=st.lists(texts, max_size=3).map(tuple),
    valid_until=st.none() | counts,
    target_session=st.none() | texts,
    target_address=st.none() | counts,
    reply_to=st.none() | texts,
    assignment=st.none() | texts,
    returns=counts,
    return_reason=st.none() | texts,
)
assignments = st.builds(
    AssignmentRecord,
    assignment_id=texts,
    number=counts,
    inbox=counted,
    message_id=texts,
    session_id=texts,
    incarnation=st.none() | texts,
    address=st.none() | counts,
    mode=texts,
    assigned_at=counts,
    accept_deadline=st.none() | counts,
    state=texts,
    sequence=counts,
    accepted=st.booleans(),
    attempts=counts,
    push_id=st.none() | texts,
    order_key=st.none() | texts,
)
keys = st.builds(
    IdempotencyRecord,
    number=counted,
    scope=texts,
    key=texts,
    fingerprint=texts,
    state=st.sampled_from(IdempotencyState),
    result=st.binary(max_size=30),
    expires_at=counts,
)
targets = st.builds(
    TargetIdentity,
    broker_id=texts,
    session_id=texts,
    incarnation=texts,
    runtime_session_id=st.none() | texts,
)
steps = st.builds(
    StepRecord,
    step_id=texts,
    body=counts,
    state=texts,
    attempts=st.lists(texts, max_size=3).map(tuple),
    current=st.none() | texts,
    gates=st.none()
    | st.builds(GatesRecord, label=st.none() | texts, require_completed=st.booleans(), conflict_check=st.booleans()),
    report_timeout_ms=st.none() | counts,
)
flows = st.builds(
    FlowRecord,
    number=counted,
    flow_id=texts,
    revision=counts,
    state=texts,
    target=texts,
    group=texts,
    created_by=texts,
    creator=texts,
    creator_session=texts,
    created_at=counts,
    updated_at=counts,
    steps=st.lists(steps, max_size=3).map(tuple),
    active_step=st.none() | texts,
    identity=st.none() | targets,
    reason=st.none() | texts,
    admit_reason=st.none() | texts,
    admit_at=st.none() | counts,
    admit_attempts=counts,
    over_at=st.none() | counts,
)
reports = st.builds(
    ReportRecord,
    outcome=texts,
    body=counts,
    digest=texts,
    at=counts,
    todo_id=st.none() | texts,
    todo_status=st.none() | texts,
    prepared_at=st.none() | counts,
    attempts=counts,
)
dispatches = st.builds(
    DispatchRecord,
    number=counted,
    dispatch_id=texts,
    flow_id=texts,
    step_id=texts,
    group=texts,
    revision=counts,
    identity=targets,
    created_at=counts,
    negotiated=st.booleans(),
    address=st.none() | counted,
    transport=texts,
    outcome=texts,
    correlation=st.none() | texts,
    published_at=st.none() | counts,
    accepted_at=st.none() | counts,
    delivery_state=st.none() | texts,
    report=st.none() | reports,
    evidence=st.none() | st.builds(EvidenceRecord, detail=texts, at=counts, deadline=counts),
    binding=st.none()
    | st.builds(
        BindingRecord,
        state=texts,
        todo_id=st.none() | texts,
        todo_status=st.none() | texts,
        reason=st.none() | texts,
    ),
    reason=st.none() | texts,
    completed_at=st.none() | counts,
    ignored_at=st.none() | counts,
)
links = st.builds(
    LinkRecord,
    link_id=texts,
    number=counts,
    mailbox=texts,
    generation=counts,
    journal_id=st.none() | texts,
    floor=counts,
    last_command=counts,
    created_at=counts,
    refused=st.none() | texts,
)
commands = st.builds(
    CommandRecord,
    command_id=texts,
    number=counted,
    link_id=texts,
    seq=counts,
    state=texts,
    fingerprint=texts,
    size=counts,
    created_at=counts,
    changed_at=counts,
    error_code=st.none() | texts,
    detail=st.none() | texts,
)
durable_events = st.builds(
    EventRecord,
    number=counted,
    link_id=texts,
    journal_id=texts,
    seq=counts,
    event_id=texts,
    kind=texts,
    fingerprint=texts,
    occurred_at=counts,
    stored_at=counts,
)
invocations = st.builds(
    InvocationRecord,
    number=counted,
    invocation_id=texts,
    run_id=texts,
    requester=texts,
    target=texts,
    target_name=texts,
    action=texts,
    ensure_awake=st.booleans(),
    fingerprint=texts,
    size=counts,
    created_at=counts,
    state=texts,
    take_until=st.none() | counts,
    result=st.none() | counts,
    result_hash=st.none() | texts,
    started_at=st.none() | counts,
    completed_at=st.none() | counts,
    job=texts,
    attempts=counts,
    lease_epoch=st.none() | counts,
    lease_until=st.none() | counts,
    last_error=st.none() | texts,
    placement=st.none() | texts,
    held_by=st.none() | texts,
    cancel_asked_at=st.none() | counts,
    reconciled=st.booleans(),
    authority=st.none() | texts,
    wishes=st.none() | st.binary(max_size=30),
    acted_as=st.none() | texts,
    has_mailbox=st.booleans(),
    asked_as=st.none() | texts,
)
diagnoses = st.builds(
    DiagnosisRecord,
    number=counted,
    diagnosis_id=texts,
    invocation_id=texts,
    requester=texts,
    requester_session=texts,
    kind=texts,
    asked=texts,
    detail=texts,
    candidates=st.binary(max_size=30),
    at=counts,
)
deliveries = st.builds(
    DeliveryRecord,
    number=counted,
    delivery_id=texts,
    invocation_id=texts,
    requester=texts,
    requester_session=texts,
    target=texts,
    peer=texts,
    status=texts,
    first_queued_at=counts,
    attempts=counts,
    next_attempt_at=st.none() | counts,
    lease_epoch=st.none() | counts,
    lease_until=st.none() | counts,
    failure=st.none() | texts,
    detail=st.none() | texts,
    acked_at=st.none() | counts,
    peer_run=st.none() | texts,
    mirrored=counts,
)
peers = st.builds(
    PeerRecord, number=counted, broker_id=texts, name=texts, journal_id=st.none() | texts, first_seen_at=counts
)
on_their_way = st.builds(
    OutboxRecord,
    number=counted,
    delivery_id=texts,
    message_id=texts,
    peer=texts,
    mark=texts,
    target=texts,
    sender_session=texts,
    sender_mailbox=st.none() | texts,
    size=counts,
    queued_at=counts,
    valid_until=st.none() | counts,
    is_ask=st.booleans(),
)
hosted = st.builds(
    HostedRecord,
    number=counted,
    dispatch_id=texts,
    peer=texts,
    flow_id=texts,
    step_id=texts,
    group=texts,
    identity=targets,
    stored_at=counts,
    address=st.none() | counted,
    transport=texts,
    offers=counts,
    report=st.none() | reports,
    answer=st.none() | st.builds(AnswerRecord, step_state=st.none() | texts, code=st.none() | texts, reason=texts),
    end=st.none() | texts,
    reason=st.none() | texts,
    over_at=st.none() | counts,
)
rows = st.one_of(
    hosted,
    on_their_way,
    addresses,
    known_sessions,
    mail,
    parked,
    assignments,
    keys,
    flows,
    dispatches,
    links,
    commands,
    durable_events,
    invocations,
    diagnoses,
    deliveries,
    peers,
)
"""Every kind of row that the journal tells of."""
_KINDS: dict[type, str] = {InboxRecord: "inbox.test", AssignmentRecord: "assignment.test"}


def letter(number: int, mailbox: str = "address:1", **changes: object) -> MailRecord:
    """Return a mail that was queued just before ``NOW``."""
    values: dict[str, object] = {
        "number": number,
        "mailbox": mailbox,
        "message_id": f"message-{number}",
        "sender_info": b"{}",
        "sender_mailbox": None,
        "sender_session": "a",
        "target": "b",
        "size": 10,
        "queued_at": NOW - 1,
        "expires_at": NOW + 1_000_000,
    }
    return MailRecord(**{**values, **changes})  # type: ignore[arg-type]


def event(seq: int, row: Row, kind: str | None = None, *, is_gone: bool = False, **detail: object) -> Happened:
    """Return an event of the journal."""
    kind = kind or _KINDS.get(type(row), "test")
    return Happened(seq, NOW, stream_of(row), kind, f"{kind}:{seq}", row, is_gone, dict(detail))
