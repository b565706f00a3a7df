"""Answer what sessions and people ask about sessions, addresses, mailboxes, open questions and single messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import UNSET, Raw, Struct

from intercom.core import features
from intercom.core.addresses import ME, NO_GROUP, Address
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.giving import Giving, No
from intercom.core.ground import Ground
from intercom.core.inbox import Parked
from intercom.core.journal import mail_stream
from intercom.core.lifecycle import FORCE_CLOSE, Known
from intercom.core.mailboxes import Mail, Mailbox
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.operation import Operation
from intercom.core.owners import Owners
from intercom.core.part import Handler, Part
from intercom.core.post import Post
from intercom.core.records import (
    DropBodies,
    DropHistory,
    HistoryEvent,
    MailRecord,
    OperationState,
    ReadHistory,
    SessionState,
)
from intercom.core.registry import Registry
from intercom.core.sessions import Session
from intercom.limits import TASK_HINT_CHARACTERS
from intercom.wire.frames import BadRequest, trim
from intercom.wire.mail import (
    AddressEntry,
    AddressesRequest,
    MailboxEntries,
    MailboxOf,
    MailboxRequest,
    MailEntry,
    Pending,
    PendingAsk,
    PendingRequest,
    Purged,
    PurgeRequest,
    SessionForceClose,
    SessionForceClosed,
    SessionRecordEntry,
    SessionRecords,
    SessionRecordsRequest,
    TaskHint,
    TaskHintStored,
    Trace,
    TraceEvent,
    TraceRequest,
    UnconfirmedEntry,
)
from intercom.wire.mail import (
    Addresses as AddressesAnswer,
)
from intercom.wire.targets import SCHEME

_EVERY = frozenset({features.LIFECYCLE, features.ADDRESS, features.QUEUE, features.OPERATOR})
_NEEDED: dict[type, frozenset[str]] = {
    TaskHint: frozenset({features.LIFECYCLE}),
    SessionRecordsRequest: frozenset({features.LIFECYCLE, features.OPERATOR}),
    SessionForceClose: frozenset({features.OPERATOR}),
    AddressesRequest: _EVERY,
    MailboxRequest: frozenset({features.LIFECYCLE, features.ADDRESS, features.OPERATOR}),
    PendingRequest: frozenset({features.LIFECYCLE, features.ADDRESS, features.QUEUE}),
    TraceRequest: _EVERY,
    PurgeRequest: frozenset({features.OPERATOR}),
}
"""Of which features one at least must have been granted."""


class Tracing(Struct, frozen=True):
    """Remember who asked what became of which message."""

    connection: Any
    session: Any
    request_id: str
    message_id: str


class Machines(Protocol):
    """Know of other machines where messages are."""

    def machine_of(self, mark: str) -> str | None:
        """Return what the machine is called at whose broker a target of this identity is; None: at this one."""

    def is_on_its_way(self, operation: Operation) -> bool:
        """Tell whether a message is brought to another broker, and what became of it there is not known."""


class Inquiries(Part):
    """Answer requests of features."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        membership: Membership,
        owners: Owners,
    ) -> None:
        self._owners = owners
        self._inbox = post.inbox
        self._sessions = registry.sessions
        self._addresses = registry.addresses
        self._lifecycle = registry.lifecycle
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._operations = messages.operations
        self._asking = messages.asking
        self._receipts = messages.receipts
        self._ledger = ground.ledger
        self._outbox = ground.outbox
        self.giving = Giving(ground.outbox, ground.ledger)
        self._limits = ground.limits
        self._on_force_close = membership.departing.force_close
        self.machines: Machines | None = None
        """Of a broker among others."""
        self.on_unreadable: dict[str, Callable[[Connection, BadRequest, Instant], bool]] = {}
        """By types: who may know more of a request that cannot be read than how to refuse it, and tells whether."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes these requests, and those of other features that cannot be read."""
        return dict.fromkeys((*_HANDLERS, BadRequest), self.answer)

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if isinstance(frame, BadRequest):
            knows_better = self.on_unreadable.get(frame.type)
            if knows_better is not None and knows_better(connection, frame, now):
                return None
            return self.giving.refuse(connection, frame.request_id, No("bad_request", f"{frame.type}: {frame.reason}"))
        trouble = self._operations.trouble
        if trouble is not None and not isinstance(frame, SessionForceClose):
            # What is kept cannot be read: that nothing is there would be a lie.
            no = No("store_unusable", f"The store cannot be used, so nothing it keeps is shown or changed: {trouble}")
            return self.giving.refuse(connection, frame.request_id, no)
        needed = _NEEDED[type(frame)]
        if not needed & session.features:
            names = " or ".join(sorted(needed))
            return self.giving.refuse(
                connection, frame.request_id, No("feature_not_granted", f"This needs the feature {names}")
            )
        refused = _HANDLERS[type(frame)](self, connection, session, frame, now)
        if refused is not None:
            self.giving.decline(connection, frame.request_id, refused)
        return None

    @property
    def store_trouble(self) -> str | None:
        """Return why the store cannot be used; None while it can."""
        return self._operations.trouble

    def person_key(self, now: Instant) -> str:
        """Return the key of the person's mailbox."""
        return self._addresses.me(now).key

    # --- sessions ---------------------------------------------------------------------------------------

    def _task_hint(self, connection: Connection, session: Session, frame: TaskHint, now: Instant) -> No | None:
        known = session.known if frame.session_id is UNSET else self._lifecycle.get(frame.session_id)
        if known is None or known.state is SessionState.CLOSED:
            return No("unknown_session", f"No session {frame.session_id} is here or may come back")
        address = None if session.address is None else session.address.number
        if known is not session.known and (address is None or known.record.address != address):
            return No("not_allowed", "Only who acts under the same address may say what another session works on")
        hint = trim(frame.task_hint)[:TASK_HINT_CHARACTERS]
        self._lifecycle.hint(known, hint or None, now)
        self.giving.promise(connection, TaskHintStored(frame.request_id, hint))
        return None

    def _records(
        self, connection: Connection, session: Session, frame: SessionRecordsRequest, now: Instant
    ) -> No | None:
        sees_all = features.OPERATOR in session.features
        entries = [
            self._entry_of(known)
            for known in self._lifecycle
            if sees_all or any(group in session.groups for group in known.groups)
        ]
        self._outbox.write(connection, SessionRecords(frame.request_id, entries))
        return None

    def _entry_of(self, known: Known) -> SessionRecordEntry:
        record = known.record
        info = known.info if known.session is None else known.session.info
        address = self._addresses.get(record.address)
        box = self._boxes.get(known.mailbox_key)
        return SessionRecordEntry(
            record.session_id,
            record.state.value,
            record.state_since,
            record.incarnation,
            record.generation,
            record.pid,
            list(info["groups"]),
            _label(record.kind, info.get("cwd", ""), record.tracking_ref, record.pid),
            0 if box is None or record.state is SessionState.CLOSED else len(box),
            name=_or_unset(info.get("name")),
            kind=_or_unset(record.kind),
            runtime_session_id=_or_unset(record.runtime_session_id),
            grace_deadline=_or_unset(record.grace_deadline),
            closed_reason=_or_unset(record.closed_reason),
            address=UNSET if address is None else address.name,
            tracking_ref=_or_unset(record.tracking_ref),
            task_hint=_or_unset(record.task_hint),
            work_mode=_or_unset(record.work_mode),
            execution_surface=_or_unset(record.execution_surface),
            workspace=UNSET if record.workspace is None else Raw(record.workspace.encode()),
        )

    def _force_close(
        self, connection: Connection, session: Session, frame: SessionForceClose, now: Instant
    ) -> No | None:
        known = self._lifecycle.get(frame.session_id)
        reason = FORCE_CLOSE if frame.reason is UNSET else f"{FORCE_CLOSE}: {trim(frame.reason)}"
        is_there = known is not None and known.state is not SessionState.CLOSED
        if known is not None and is_there:
            if known.session is not None:
                self._on_force_close(known.session, reason, now)
            self._lifecycle.close(known, reason, now)
        self.giving.promise(connection, SessionForceClosed(frame.request_id, frame.session_id, is_there))
        return None

    # --- addresses and mailboxes ------------------------------------------------------------------------

    def _list_addresses(
        self, connection: Connection, session: Session, frame: AddressesRequest, now: Instant
    ) -> No | None:
        sees_all = features.OPERATOR in session.features
        away = {known.record.address: known for known in self._lifecycle.away() if known.record.holds_address}
        entries = []
        for address in self._addresses.here:
            if not (sees_all or address is session.address or address.is_reachable_from(session.groups)):
                continue
            box = self._boxes.get(address.key)
            holder = address.holder
            known = away.get(address.number)
            mail = [] if box is None else box.in_order()
            entries.append(
                AddressEntry(
                    address.name,
                    address.group,
                    list(address.groups),
                    address.created_at,
                    address.last_held_at,
                    len(mail),
                    0 if box is None else box.bytes,
                    holder=holder.id if holder is not None else _or_unset(None if known is None else known.id),
                    holder_state="active" if holder is not None else UNSET if known is None else "reconnecting",
                    oldest_at=mail[0].record.queued_at if mail else UNSET,
                )
            )
        self._outbox.write(connection, AddressesAnswer(frame.request_id, entries))
        return None

    def _mailbox(self, connection: Connection, session: Session, frame: MailboxRequest, now: Instant) -> No | None:
        if frame.of is UNSET:
            key = session.return_mailbox
            if key is None:
                return No("unknown_mailbox", "This session has no mailbox: it has neither an address nor a lifecycle")
        else:
            found = self._key_of(frame.of)
            if isinstance(found, No):
                return found
            key = found
            if key != session.return_mailbox and features.OPERATOR not in session.features:
                return No("not_allowed", "Only the operator may look into the mailbox of somebody else")
        box = self._boxes.get(key) or Mailbox(key)
        entries: list[MailEntry] = []
        for position, mail in enumerate(box.in_order(), 1):
            record = mail.record
            if position > frame.after and len(entries) < frame.limit:
                entries.append(
                    MailEntry(
                        record.number,
                        record.message_id,
                        position,
                        Raw(record.sender_info),
                        record.queued_at,
                        record.expires_at,
                        record.size,
                        mail.offers,
                        "offered" if self._is_with_holder(mail) else "queued",
                        valid_until=_or_unset(record.valid_until),
                        expects_reply=True if record.is_ask else UNSET,
                        notice=UNSET if record.notice is None else record.message_id,
                        kept=_kept(record) if features.POLICY in session.features else UNSET,
                    )
                )
        kept = box.kept if features.POLICY in session.features else UNSET
        unconfirmed = [
            UnconfirmedEntry(
                waiting.operation.message_id,
                Raw(waiting.frame.sender),
                waiting.operation.reserved_at,
                waiting.bytes,
                True if waiting.operation.is_ask else UNSET,
            )
            for waiting in self._receipts.awaited_from(key)
            if not waiting.operation.was_withdrawn
        ]
        answer = MailboxEntries(
            frame.request_id, self._owner(key), len(box), box.bytes, entries, unconfirmed or UNSET, kept=kept
        )
        self._outbox.write(connection, answer)
        return None

    def _key_of(self, of: MailboxOf) -> str | No:
        if of.session_id is not UNSET:
            known = self._lifecycle.get(of.session_id)
            return No("unknown_session", f"No session {of.session_id} is known") if known is None else known.mailbox_key
        found = self.address_named(of)
        return found if isinstance(found, No) else found.key

    def address_named(self, of: MailboxOf) -> Address | No:
        """Return the address that is meant, or why that cannot be told."""
        if of.address is UNSET:
            return No("bad_request", "Name an address or a sessionId")
        found = list(self._addresses.named(of.address))
        if of.group is not UNSET:
            found = [address for address in found if address.group == of.group]
        if not found:
            return No("unknown_address", f"No address {of.address} is known")
        if len(found) > 1:
            groups = ", ".join(sorted(address.group for address in found))
            return No("ambiguous_address", f"Several addresses are named {of.address}; name the group: {groups}")
        return found[0]

    def _owner(self, key: str) -> str:
        kind, _, rest = key.partition(":")
        address = self._addresses.get(int(rest)) if kind == "address" else None
        if kind == "peer" and f":{SCHEME}" in rest:
            run_id = rest.partition(f":{SCHEME}")[2]
            return f"the owner of workflow run {run_id} on {self._machine_of(key) or 'another machine'}"
        if kind == "peer":
            return f"session {rest.rpartition(':')[2]} on {self._machine_of(key) or 'another machine'}"
        if address is None:
            return f"session {rest}"
        if address.home is not None:  # FE 3.7: its own mail is for those at its home to see
            machine = self._machine_of(key) or "another machine"
            return (
                f"{address.name} in {address.group} (at home on {machine}; here waits only what is to be brought there)"
            )
        return ME if address.group == NO_GROUP else f"{address.name} in {address.group}"

    # --- questions and messages -------------------------------------------------------------------------

    def _pending(self, connection: Connection, session: Session, frame: PendingRequest, now: Instant) -> No | None:
        identities, mailbox = [session.id], None
        if session.address is not None:
            mailbox = session.address.key
            identities.append(mailbox)
            if session.address.holder is not None:
                identities.append(session.address.holder.id)
        asks = []
        for question in self._asking.owed(*identities, mailbox=mailbox):
            operation = question.operation
            asker = self._sessions.get(question.asker_id)
            left = max(0, operation.question_due - now.mono)
            name = None if asker is None else asker.name
            asks.append(
                PendingAsk(
                    question.message_id,
                    question.asker_id,
                    operation.reserved_at,
                    now.wall + left,
                    asker_name=_or_unset(name),
                    asker_here=asker is not None,
                )
            )
        self._outbox.write(connection, Pending(frame.request_id, asks))
        return None

    def _trace(self, connection: Connection, session: Session, frame: TraceRequest, now: Instant) -> No | None:
        token = Tracing(connection, session, frame.request_id, frame.message_id)
        self._outbox.add(ReadHistory(token, mail_stream(frame.message_id)))
        return None

    def history_read(self, tracing: Tracing, events: list[HistoryEvent] | None, now: Instant) -> None:
        """Answer a trace with the history of its message; ``None`` says that it could not be read."""
        if events is None:
            no = No("not_read", "The store could not be read; ask again", retryable=True)
            return self.giving.refuse(tracing.connection, tracing.request_id, no)
        session: Session = tracing.session
        operation = self._operations.by_id(tracing.message_id)
        mine = {session.id, session.sender_identity, session.target_identity, session.return_mailbox} - {None}
        involved: set[Any] = {event.detail.get("session") for event in events}
        involved |= {
            event.row.get(name)
            for event in events
            for name in ("mailbox", "sender_mailbox", "sender_session", "target_session", "session_id")
        }
        decision = None if operation is not None or events else self._owners.decision_about(tracing.message_id, now)
        if decision is not None:
            involved |= decision.involved
        if operation is not None:
            involved |= {operation.sender, operation.sender_session, operation.target, operation.recipient_session}
        is_known = operation is not None or bool(events) or decision is not None
        if features.OPERATOR not in session.features and is_known and not mine & involved:
            no = No("not_allowed", "Only its sender, its recipient and the operator may trace a message")
            return self.giving.refuse(tracing.connection, tracing.request_id, no)
        told = [TraceEvent(event.at, _word_of(event.kind), event.detail or UNSET, event.seq) for event in events]
        state = told[-1].state if told else "unknown"
        sender: Any = UNSET
        recipient: Any = UNSET
        if operation is not None:
            sender, recipient = operation.sender_session, _or_unset(operation.recipient_session)
            if not events or events[0].at > operation.reserved_at:
                told.insert(0, TraceEvent(operation.reserved_at, "reserved"))
            was_parked = any(event.kind.startswith("inbox.") for event in events)
            is_accepted = operation.state is OperationState.ACCEPTED and not was_parked
            if is_accepted and not any(event.state == "delivered" for event in told):
                told.append(TraceEvent(operation.accepted_at or operation.reserved_at, "delivered"))
            state = state if was_parked and operation.mail is None else self._fate_of(operation)
        if decision is not None:
            state, sender = decision.outcome, decision.sender_session
            told = [TraceEvent(decision.asked_at, "reserved")]
            if decision.decided_at is not None:
                told.append(TraceEvent(decision.decided_at, state))
        parked = self._inbox.get(tracing.message_id)
        deeds = [_word_of(event.kind) for event in events if event.kind.startswith("assignment.")]
        if parked is not None:
            state = "parked" if parked.is_free else deeds[-1] if deeds else "assigned"
        if decision is not None:
            where = decision.where
        else:
            where = self._where(state, operation, deeds) if parked is None else _where_parked(parked)
        answer = Trace(
            tracing.request_id,
            tracing.message_id,
            state,
            where,
            told,
            sender=sender,
            recipient=recipient,
        )
        self.giving.promise(tracing.connection, answer)
        return None

    def _machine_of(self, mark: str) -> str | None:
        return None if self.machines is None else self.machines.machine_of(mark)

    def _is_with_holder(self, mail: Mail) -> bool:
        """Tell whether mail was written to who receives it: what is brought to another broker still waits here."""
        box = self._boxes.get(mail.record.mailbox)
        return mail.is_offered and (box is None or box.holder is None or not box.holder.is_remote)

    def _fate_of(self, operation: Operation) -> str:
        """Return what became of a message; one on its way to another broker was not written to anybody yet."""
        fate = operation.fate
        if fate == "offered" and operation.mail is not None and not self._is_with_holder(operation.mail):
            return "queued"
        is_on_its_way = self.machines is not None and self.machines.is_on_its_way(operation)
        return "reserved" if fate in ("unconfirmed", "uncertain", "handed_on") and is_on_its_way else fate

    def _where(self, state: str, operation: Operation | None, deeds: list[str]) -> str:
        """Say in a sentence where a message is; ``deeds`` are the states of its assignments."""
        if state == "expired" and deeds[-1:] == [state]:
            return f"nowhere any more: its worker said that it is too old to be of use{_UNTOLD}"
        mail = None if operation is None else operation.mail
        if mail is not None:
            box = self._boxes.get(mail.record.mailbox)
            position = 1 if box is None else box.position_of(mail)
            owner = self._owner(mail.record.mailbox)
            machine = self._machine_of(mail.record.mailbox)
            if mail.record.kept == "hold":
                return f"in the mailbox of {owner}, until the person lets it through"
            if mail.record.kept == "quiet":
                return f"in the mailbox of {owner}, until that is read: it must not wake anybody"
            if machine is not None:
                on_its_way = f"on its way to {machine}, " if mail.is_offered else ""
                return f"{on_its_way}kept here until {machine} says that it has it, at position {position} for {owner}"
            if mail.is_offered:
                return f"written to who receives the mail of {owner}, which has not confirmed it"
            return f"in the mailbox of {owner}, at position {position}"
        if state == "unconfirmed":
            assert operation is not None, "it was in its row that it is not confirmed"
            return self._where_unconfirmed(operation)
        machine = None if operation is None else self._machine_of(operation.target or "")
        if state == "reserved" and machine is not None:
            return f"on its way to {machine}, which has not said what became of it"
        if state == "handed_on" and operation is not None and f":{SCHEME}" in (operation.target or ""):
            owner = self._owner(operation.target or "")
            return f"with {owner}, which keeps it or brought it to its stage since: `intercom trace` there tells"
        if state == "handed_on":
            return (
                f"handed over to {machine or 'another machine'}, where it waits for its recipient or reached it since: "
                "`intercom trace` there tells"
            )
        return {
            "unknown": "nowhere: this broker does not know it, or no longer",
            "reserved": "on its way to its recipient",
            "uncertain": "not known: it may have arrived, and nobody confirmed it",
            "delivered": "with its recipient",
            "answered": "with its recipient, who has answered it",
            "settled": "nowhere any more: somebody said that it needs nobody",
            "failed": f"nowhere any more: its worker could not do it{_UNTOLD}",
            "ambiguous": f"nowhere any more: its worker was cut off, and nobody knows how far it was{_UNTOLD}",
            "purged": "nowhere any more: its mailbox was emptied, and its sender was told",
            "withdrawn": f"{_place_of_withdrawn(operation)}; its sender took the question back",
        }.get(state, "nowhere any more: it was given up and its sender was told")

    def _where_unconfirmed(self, operation: Operation) -> str:
        """Say where a message is that was written to somebody who has not confirmed it (protocol 6.10.7)."""
        recipient = operation.unconfirmed.waiter.target if operation.unconfirmed is not None else None
        assert recipient is not None, "that is the state"
        key = operation.target or ""
        who = self._owner(key) if key.startswith("address:") else recipient.name or f"session {recipient.id}"
        if self._is_here(recipient, key):
            return f"written to {who}, which has not confirmed it"
        return (
            f"in the memory of this broker: {who} left without confirming it, and it is written again to whoever is "
            "that next; if this broker ends before, nobody has it"
        )

    def _is_here(self, recipient: Session, key: str) -> bool:
        box = self._boxes.get(key)
        return recipient.connection.session is recipient or (box is not None and box.holder is not None)

    # --- purge ------------------------------------------------------------------------------------------

    def _purge(self, connection: Connection, session: Session, frame: PurgeRequest, now: Instant) -> No | None:
        before = now.wall - (0 if frame.older_than_ms is UNSET else frame.older_than_ms)
        count = 0
        if frame.of is not UNSET:
            key = self._key_of(frame.of)
            if isinstance(key, No):
                return key
            count = self._mailing.purge(key, before, now)
        self._ledger.append((DropBodies(before + self._limits.bodies_kept_ms), DropHistory(before)))
        self.giving.promise(connection, Purged(frame.request_id, count))
        return None


def _place_of_withdrawn(operation: Operation | None) -> str:
    if operation is None:
        return "nowhere any more"
    if operation.state is OperationState.ACCEPTED:
        return "with its recipient"
    if operation.unconfirmed is not None:
        return "written to its recipient, which has not confirmed it, and not written again"
    return "not known: it may have arrived, and nobody confirmed it"


def _label(kind: str | None, cwd: str, tracking_ref: str | None, pid: int) -> str:
    """Return how a person may recognise a session."""
    place = cwd.rstrip("/").rpartition("/")[2]
    parts = [kind or "session", *filter(None, (place, tracking_ref))]
    return " · ".join(parts) if len(parts) > 1 else f"{parts[0]} {str(pid)[-4:]}"


def _kept(record: MailRecord) -> Any:
    return record.kept if record.is_kept else UNSET


_EVENTS_OF_MESSAGES = ("mail.", "inbox.", "assignment.")


def _word_of(kind: str) -> str:
    """Return how a trace calls an event."""
    for beginning in _EVENTS_OF_MESSAGES:
        kind = kind.removeprefix(beginning)
    return kind


_UNTOLD = "; it was not answered, and no message told its sender"
"""Ends what is said of work that has ended otherwise than by a reply."""


def _where_parked(parked: Parked) -> str:
    """Say where a message is that the inbox keeps."""
    if parked.is_free:
        return f"in the inbox, at place {parked.record.number}, until somebody takes it"
    return f"in the hands of a worker, by the assignment {parked.record.assignment}"


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


_HANDLERS: dict[type, Callable[..., No | None]] = {
    TaskHint: Inquiries._task_hint,
    SessionRecordsRequest: Inquiries._records,
    SessionForceClose: Inquiries._force_close,
    AddressesRequest: Inquiries._list_addresses,
    MailboxRequest: Inquiries._mailbox,
    PendingRequest: Inquiries._pending,
    TraceRequest: Inquiries._trace,
    PurgeRequest: Inquiries._purge,
}
"""The types of frames that ``Inquiries`` answers."""
