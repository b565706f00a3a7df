"""Take requests about invocations: who may ask what, and what follows (protocol 13).

Rule 1: what is asked is recorded, and answered, before anything of it is done. Rule 2: a label that leads to nobody is
an answer, not an error: its diagnosis is recorded. Rule 3: one id stands for one request for ever; its repetition is
answered with the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.giving import Giving, No
from intercom.core.idempotency import RUNS, Register, Standing
from intercom.core.invocation_dispatch import Dispatching
from intercom.core.invocation_records import SESSION, DiagnosisRecord, InvocationRecord
from intercom.core.invocation_targets import Targets, stored
from intercom.core.invocation_texts import (
    checked,
    fingerprint,
    invocation_info,
    is_same,
    labels_of,
    task_message,
    wishes,
)
from intercom.core.invocations import ENDED, Invocation, Invocations, Texts, texts_of
from intercom.core.mailboxes import Mailbox
from intercom.core.mailing import Letter, Mailing
from intercom.core.move import Move, take_back
from intercom.core.records import ReadBodies
from intercom.core.replies import identity_of
from intercom.limits import Limits
from intercom.wire.frames import MessageFrame
from intercom.wire.invocations import (
    RUN_PREFIX,
    DeliveryInfo,
    InvocationAccepted,
    InvocationCancel,
    InvocationCancelled,
    InvocationGet,
    InvocationInfo,
    InvocationList,
    InvocationSnapshot,
    Invoke,
    RouteDiagnosis,
    RouteResolve,
    RouteResolved,
    RunInfo,
    RunRecorded,
    RunUpdate,
)
from intercom.wire.invocations import Invocations as InvocationsAnswer
from intercom.wire.mail import Notice

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.journal import Journal
    from intercom.core.labels import Candidate, Found
    from intercom.core.ledger import Ledger
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.outbox import Outbox
    from intercom.core.peer_records import DeliveryRecord
    from intercom.core.sessions import Session

_STORED_LATER = "It is recorded, and handed over when the target is here"
_UNKNOWN = No("invocation_unknown", "No such invocation is known, or this session may not see it")
_CONFLICT = No("invocation_conflict", "Another invocation was made under this invocationId; choose another one")
_OTHER_UPDATE = No("update_conflict", "Another update was made under this updateId; choose another one")
_SECRET = "[removed]"


class Showing(Struct, frozen=True):
    """Remember who is told of an invocation once its texts are read."""

    connection: Any
    frame: Any
    invocation: Any
    make: Any
    is_certain: bool = False
    """Nothing waited for its commit when the texts were asked for: what is not there is lost."""


class InvocationRequests:
    """Answer requests about invocations: every one gets exactly one answer."""

    def __init__(
        self,
        book: Invocations,
        targets: Targets,
        dispatching: Dispatching,
        mailing: Mailing,
        boxes: Mailboxes,
        register: Register,
        journal: Journal,
        ledger: Ledger,
        outbox: Outbox,
        limits: Limits,
        ids: Callable[[], str],
        next_number: Callable[[], int],
        journal_id: str,
        broker_info: bytes,
    ) -> None:
        self._book = book
        self._targets = targets
        self._dispatching = dispatching
        self._mailing = mailing
        self._boxes = boxes
        self._register = register
        self._journal = journal
        self._ledger = ledger
        self._outbox = outbox
        self._limits = limits
        self._ids = ids
        self._next_number = next_number
        self._journal_id = journal_id
        self._broker_info = broker_info
        self._giving = Giving(outbox, ledger)

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if features.INVOKE not in session.features:
            no = No("feature_not_granted", f"This needs the feature {features.INVOKE}")
            return self._giving.refuse(connection, frame.request_id, no)
        if self._ledger.is_closed:
            no = No("store_unusable", "The store cannot be used, so nothing can be accepted")
            return self._giving.refuse(connection, frame.request_id, no)
        refused = _HANDLERS[type(frame)](self, connection, session, frame, now)
        if refused is not None:
            self._giving.decline(connection, frame.request_id, refused)
        return None

    def _for(self, session: Session, invocation_id: str) -> Invocation | No:
        """Return an invocation a session may see: its own, one for it, and the operator any."""
        invocation = self._book.get(invocation_id)
        return invocation if invocation is not None and self._may_see(session, invocation) else _UNKNOWN

    def _may_see(self, session: Session, invocation: Invocation) -> bool:
        return self._is_requester(session, invocation) or self._dispatching.is_worker(session, invocation)

    def _is_requester(self, session: Session, invocation: Invocation) -> bool:
        return features.OPERATOR in session.features or identity_of(session) == invocation.record.requester

    # --- to invoke --------------------------------------------------------------------------------------

    def _invoke(self, connection: Connection, session: Session, frame: Invoke, now: Instant) -> No | None:
        if wrong := checked(frame, self._limits):
            return wrong
        asked = frame.target_id if frame.target_id is not UNSET else frame.target
        if asked is UNSET:
            return No("target_required", "Name whom to invoke: target or targetId")
        wished = wishes(frame)
        same = fingerprint(identity_of(session), frame, wished)
        known = self._book.get(frame.invocation_id)
        if known is not None:
            if not is_same(known.record.fingerprint, same):
                return _CONFLICT
            self._show(connection, frame, known, _accepted, now)
            return None
        found = self._targets.find(asked, session)
        target = found.candidate
        if target is None:
            diagnosis = self._targets.diagnosis(asked, found, session, now)
            self._diagnosed(connection, session, frame, diagnosis, now)
            return None
        if self._book.open_count >= self._limits.invocations:
            reason = f"{self._limits.invocations} invocations are open; cancel one, or wait until one has ended"
            return No("capacity", reason, retryable=True)
        self._accept(connection, session, frame, asked, found, target, same, wished, now)
        return None

    def _accept(
        self,
        connection: Connection,
        session: Session,
        frame: Invoke,
        asked: str,
        found: Found,
        target: Candidate,
        same: str,
        wished: bytes | None,
        now: Instant,
    ) -> None:
        """Record an invocation with its run and its job, and go on once that is done."""
        run_id, identity = self._ids(), identity_of(session)
        info = session.written()
        planned = self._dispatching.planned(found, info, now)
        is_pushed = planned.lease_until is not None
        body = task_message(f"{RUN_PREFIX}{run_id}", frame, now.wall)
        record = InvocationRecord(
            self._next_number(),
            frame.invocation_id,
            run_id,
            identity,
            target.target_id,
            target.name,
            same,
            len(body) + len(info),
            now.wall,
            frame.action,
            frame.ensure_awake,
            "waking" if frame.ensure_awake and target.state != "active" else "queued",
            None if frame.timeout_ms is UNSET else now.wall + frame.timeout_ms,
            job="running" if is_pushed else "pending",
            attempts=1 if is_pushed else 0,
            lease_epoch=planned.epoch if is_pushed else None,
            lease_until=planned.lease_until,
            placement="session" if is_pushed else None,
            authority=target.authority,
            wishes=wished,
            acted_as=None if identity == SESSION + session.id else session.id,
            has_mailbox=session.return_mailbox is not None,
            asked_as=None if asked == target.target_id else asked,
        )
        invocation = self._dispatching.accept(record, planned, body, info, now)
        record = invocation.record
        run = RunInfo(run_id, invocation.id, session.id, record.target, record.state, record.attempts)  # type: ignore[arg-type]  # a state
        if record.placement is not None:
            run.placement = record.placement  # type: ignore[assignment]  # a placement
        answer = InvocationAccepted(frame.request_id, invocation.id, run_id, record.target, run.state, run)
        if target.state != "active":
            answer.detail = _STORED_LATER
        self._giving.give(connection, answer, invocation.ticket)

    def _diagnosed(
        self, connection: Connection, session: Session, frame: Invoke, diagnosis: RouteDiagnosis, now: Instant
    ) -> None:
        """Record why a label led to nobody, together with the message that tells it."""
        record = DiagnosisRecord(
            self._next_number(),
            self._ids(),
            frame.invocation_id,
            identity_of(session),
            session.id,
            diagnosis.kind,
            diagnosis.asked_label,
            diagnosis.detail,
            stored(diagnosis.candidates),
            now.wall,
        )
        move = Move()
        self._book.diagnose(record, move, now)
        told = self._targets.recorded(record)
        labels = ", ".join(candidate.label for candidate in told.candidates)
        text = f"Invocation {frame.invocation_id} went to nobody: {told.detail}" + (f" ({labels})" if labels else "")
        message_id = f"diagnosis:{record.diagnosis_id}"
        body = encode({"id": message_id, "timestamp": now.wall, "content": {"text": text}})
        notice = Notice("undeliverable", frame.invocation_id, diagnosis.asked_label, told.detail)
        key = session.return_mailbox
        if key is not None and self._boxes.has_room(self._boxes.get(key) or Mailbox(key), len(body)):
            letter = Letter(key, message_id, body, self._broker_info, None, "", "", notice=encode(notice))
            ticket = self._mailing.put(letter, None, now, take_back, move, *move.changes).ticket
        else:
            ticket = move.append(self._ledger)
            if features.QUEUE in session.features:
                direct = MessageFrame(Raw(self._broker_info), Raw(body), notice=notice)
                self._outbox.write(connection, direct, ticket)
        answer = InvocationAccepted(frame.request_id, frame.invocation_id, diagnosis=told)
        self._giving.give(connection, answer, ticket)

    def _resolve(self, connection: Connection, session: Session, frame: RouteResolve, now: Instant) -> No | None:
        found = self._targets.find(frame.target, session)
        if found.candidate is None:
            diagnosis = self._targets.diagnosis(frame.target, found, session, now)
            answer = RouteResolved(frame.request_id, diagnosis=diagnosis)
        else:
            answer = RouteResolved(frame.request_id, self._targets.shown(found.candidate, session))
        self._giving.give(connection, answer, self._ledger.last_ticket)
        return None

    # --- to look ----------------------------------------------------------------------------------------

    def _get(self, connection: Connection, session: Session, frame: InvocationGet, now: Instant) -> No | None:
        invocation = self._for(session, frame.invocation_id)
        if isinstance(invocation, No):
            diagnoses = self._diagnoses(session, frame.invocation_id)
            sequence = self._journal.last_sequence
            answer = InvocationSnapshot(
                frame.request_id, frame.invocation_id, bool(diagnoses), self._journal_id, sequence, diagnoses
            )
            self._giving.give(connection, answer, self._ledger.last_ticket)
            return None
        self._show(connection, frame, invocation, _snapshot, now)
        return None

    def _diagnoses(self, session: Session, invocation_id: str) -> list[RouteDiagnosis]:
        sees_all = features.OPERATOR in session.features
        return [
            self._targets.recorded(record)
            for record in self._book.diagnoses_of(invocation_id)
            if sees_all or record.requester == identity_of(session)
        ]

    def _list(self, connection: Connection, session: Session, frame: InvocationList, now: Instant) -> No | None:
        entries: list[InvocationInfo] = []
        labels = frozenset(() if frame.labels is UNSET else frame.labels)
        for invocation in self._book.newest_first():
            is_before = frame.before is UNSET or invocation.record.number < frame.before
            is_wanted = is_before and (invocation.is_open or not frame.open_only)
            may_see = self._dispatching.is_worker if frame.as_target else self._may_see
            if is_wanted and may_see(session, invocation) and labels <= labels_of(invocation.record):
                entries.append(invocation_info(invocation.record))
                if len(entries) == frame.limit:
                    break
        self._giving.give(connection, InvocationsAnswer(frame.request_id, entries), self._ledger.last_ticket)
        return None

    def _show(self, connection: Connection, frame: Any, invocation: Invocation, make: Any, now: Instant) -> None:
        """Read the texts of an invocation, once all it rests on is recorded, and answer with them."""
        showing = Showing(connection, frame, invocation, make)
        ticket = self._ledger.last_ticket
        if self._ledger.is_committed(ticket):
            self._read(showing, now)
        else:
            self._ledger.when_committed(ticket, self._read, showing)
            self._giving.rest(connection, frame.request_id, ticket)

    def _read(self, showing: Showing, now: Instant) -> None:
        record = showing.invocation.record
        numbers = (record.number,) if record.result is None else (record.number, record.result)
        is_certain = self._ledger.is_committed(self._ledger.last_ticket)
        self._outbox.add(ReadBodies(replace(showing, is_certain=is_certain), numbers))

    def read(self, showing: Showing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Go on after texts were read; ``None``: they could not be."""
        frame, invocation = showing.frame, showing.invocation
        if bodies is None:
            return self._giving.refuse(showing.connection, frame.request_id, self._giving.not_read)
        if invocation.record.result not in (None, *(numbers if showing.is_certain else bodies)):
            return self._show(showing.connection, frame, invocation, showing.make, now)  # it went on meanwhile
        answer = showing.make(self, frame, invocation, bodies)
        self._giving.give(showing.connection, answer, self._ledger.last_ticket)
        return None

    def snapshot(self, frame: InvocationGet, invocation: Invocation, bodies: dict[int, bytes]) -> InvocationSnapshot:
        """Return how an invocation is."""
        record = invocation.record
        delivery = self._dispatching.delivery_of(invocation)
        return InvocationSnapshot(
            frame.request_id,
            record.invocation_id,
            True,
            self._journal_id,
            self._journal.last_sequence,
            [self._targets.recorded(one) for one in self._book.diagnoses_of(record.invocation_id)],
            invocation_info(record, bodies.get(record.number)),
            _run(record, bodies),
            UNSET if delivery is None else [_delivery(delivery)],
        )

    # --- to change --------------------------------------------------------------------------------------

    def _cancel(self, connection: Connection, session: Session, frame: InvocationCancel, now: Instant) -> No | None:
        invocation = self._for(session, frame.invocation_id)
        if isinstance(invocation, No):
            return invocation
        if not self._is_requester(session, invocation):
            return No("not_allowed", "Only who asked for it may cancel it; its target reports cancelled instead")
        if not invocation.is_open:
            return No("run_terminal", f"The run is {invocation.record.state}")
        reason = "" if frame.reason is UNSET else frame.reason[: self._limits.run_text_characters]
        if self._dispatching.nobody_has(invocation):
            self._dispatching.take_out(invocation, reason, now)
        elif invocation.record.cancel_asked_at is None:
            self._dispatching.ask_to_stop(invocation, reason, now)
        answer = InvocationCancelled(frame.request_id, invocation.id, invocation.record.state)  # type: ignore[arg-type]  # a state
        self._giving.give(connection, answer, self._ledger.last_ticket)
        return None

    def _update(self, connection: Connection, session: Session, frame: RunUpdate, now: Instant) -> No | None:
        invocation = self._for(session, frame.invocation_id)
        if isinstance(invocation, No):
            return invocation
        sees_all = features.OPERATOR in session.features
        if not (sees_all or self._dispatching.is_worker(session, invocation)):
            return No("not_allowed", "Only the target of an invocation may say how far it is")
        texts = self._texts(session, frame)
        if isinstance(texts, No):
            return texts
        key = f"{invocation.record.run_id} {frame.update_id}"
        standing, entry = self._register.begin(RUNS, key, encode([frame.state, texts.digest]).decode(), now)
        if standing is Standing.CONFLICT:
            is_second_end = frame.state in ENDED and not invocation.is_open
            return _ended(invocation) if is_second_end else _OTHER_UPDATE
        if standing is not Standing.NEW:
            outcome = self._register.outcome(entry)
            state, changed = outcome.result["state"], outcome.result["changed"]
            self._giving.give(connection, RunRecorded(frame.request_id, invocation.id, state, changed), outcome.ticket)
            return None
        move = Move()
        move.inverse(lambda now: self._register.withdraw(entry))
        refused = self._apply(invocation, session, frame, texts, move, now)
        if refused is not None:
            self._register.withdraw(entry)
            return refused
        state, changed = invocation.record.state, bool(move.changes)
        move.changes.append(self._register.done(entry, {"state": state, "changed": changed}, now))
        invocation.ticket = move.append(self._ledger)
        self._register.settle(entry, invocation.ticket, now)
        self._dispatching.reported(invocation, now)
        answer = RunRecorded(frame.request_id, invocation.id, state, changed)  # type: ignore[arg-type]  # a state
        self._giving.give(connection, answer, entry.ticket)
        return None

    def _apply(
        self, invocation: Invocation, session: Session, frame: RunUpdate, texts: Texts, move: Move, now: Instant
    ) -> No | None:
        record = invocation.record
        is_end = frame.state in ENDED
        if not invocation.is_open and not (record.reconciled and invocation.allows(frame.state)):
            is_same = frame.state == record.state and texts.digest == record.result_hash
            if is_end and not is_same:
                return _ended(invocation)
            self._outbox.note("late_run_update", invocation=invocation.id, state=frame.state, run=record.state)
            return None
        if is_end:
            self._book.end(invocation, frame.state, texts, move, now, self._next_number())
            self._dispatching.close(invocation, frame.state, move, now)
        else:
            self._dispatching.take_on(invocation, move, now)
            worker = session.id if self._dispatching.is_worker(session, invocation) else invocation.record.worker
            if (frame.state, worker) != (invocation.record.state, invocation.record.worker):
                self._book.take(invocation, worker, move, now, frame.state, is_confirmed=False)
            self._book.keep_texts(invocation, texts, move, now, self._next_number())
        return None

    def _texts(self, session: Session, frame: RunUpdate) -> Texts | No:
        """Return what an update says, without the secrets of whoever says it."""
        secrets = [secret for secret in (session.owner_token, session.return_address) if secret]

        def clean(text: Any) -> str | None:
            if text is UNSET:
                return None
            for secret in secrets:
                text = text.replace(secret, _SECRET)
            return text  # type: ignore[no-any-return]  # it is a text

        texts = Texts(clean(frame.summary), clean(frame.output), clean(frame.error))
        if len((texts.output or "").encode("utf-8", "surrogatepass")) > self._limits.run_result_bytes:
            return No("invalid_update", f"An output may have {self._limits.run_result_bytes} bytes at most")
        if max(len(texts.summary or ""), len(texts.error or "")) > self._limits.run_text_characters:
            return No(
                "invalid_update", f"Summary and error may have {self._limits.run_text_characters} characters at most"
            )
        return texts


def _ended(invocation: Invocation) -> No:
    return No("run_terminal", f"The run is {invocation.record.state} already; the first end counts")


def _accepted(
    requests: InvocationRequests, frame: Invoke, invocation: Invocation, bodies: dict[int, bytes]
) -> InvocationAccepted:
    run = _run(invocation.record, bodies)
    return InvocationAccepted(frame.request_id, invocation.id, run.run_id, run.target_id, run.state, run)


def _snapshot(
    requests: InvocationRequests, frame: InvocationGet, invocation: Invocation, bodies: dict[int, bytes]
) -> InvocationSnapshot:
    return requests.snapshot(frame, invocation, bodies)


def _delivery(record: DeliveryRecord) -> DeliveryInfo:
    return DeliveryInfo(
        record.delivery_id,
        record.peer,
        record.status,  # type: ignore[arg-type]  # a status
        record.attempts,
        record.first_queued_at,
        _or_unset(record.next_attempt_at),
        _or_unset(record.acked_at),
        _or_unset(record.peer_run),
        _or_unset(record.failure),
        _or_unset(record.detail),
    )


def _run(record: InvocationRecord, bodies: dict[int, bytes]) -> RunInfo:
    texts = Texts() if record.result is None else texts_of(bodies.get(record.result))
    return RunInfo(
        record.run_id,
        record.invocation_id,
        record.requester_session,
        record.target,
        record.state,  # type: ignore[arg-type]  # a state
        record.attempts,
        _or_unset(record.placement),
        _or_unset(texts.summary),
        _or_unset(texts.output),
        _or_unset(texts.error),
        _or_unset(record.started_at),
        _or_unset(record.completed_at),
        _or_unset(record.cancel_asked_at),
        record.reconciled,
    )


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


_HANDLERS: dict[type, Callable[..., No | None]] = {
    Invoke: InvocationRequests._invoke,
    InvocationGet: InvocationRequests._get,
    InvocationList: InvocationRequests._list,
    InvocationCancel: InvocationRequests._cancel,
    RunUpdate: InvocationRequests._update,
    RouteResolve: InvocationRequests._resolve,
}

REQUESTS = frozenset(_HANDLERS)
"""The frames it takes."""
