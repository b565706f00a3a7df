"""Remember what became of every message id (protocol 6.9, design section 5).

    (none) --reserve--> reserved --accept--> accepted --expiry, eviction--> (none)
                           |
                           +----forget----> (none)          the frame provably never left

A move is made in memory at once and appended to the store under a ticket; a commit that fails moves it back. A row
remembers the ticket of its last change, and whoever rests an answer on the row waits for that ticket.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.json import encode

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.keyed import KeyedDigest
from intercom.core.ledger import Ledger
from intercom.core.operation import Operation, Standing
from intercom.core.records import (
    AcceptOperation,
    AnswerQuestion,
    Change,
    DropOperation,
    OperationRecord,
    OperationsPage,
    OperationState,
    Recovered,
    SaveOperation,
)
from intercom.limits import Limits
from intercom.wire.frames import Message

if TYPE_CHECKING:
    from intercom.core.attempts import AnswerTaken
    from intercom.core.connections import Connection
    from intercom.core.sessions import Session

_RESERVED, _ACCEPTED, _QUEUED = OperationState
# Every message asks for these, and looking a member of an enum up takes as long as ten names of a module.
_ROW_OVERHEAD_BYTES = 96
"""What a row costs beside its strings: signature, numbers, times."""
_SWEEP_MS = 1_000
"""Shortest pause between two sweeps for expired rows."""


class _Share:
    """Count what one sender identity holds."""

    __slots__ = ("bytes", "retry_at", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.retry_at = 0
        """Not before this time (monotonic ms) does any of its rows expire."""


class Operations:
    """Look up, reserve, accept and forget operations within the bounds of rows, bytes and age."""

    def __init__(
        self,
        key: bytes,
        limits: Limits,
        ledger: Ledger,
        deadlines: Deadlines,
        connections: Mapping[int, Connection],
        recovered: Recovered,
        trouble: str | None,
    ) -> None:
        self._connections = connections
        self._digest = KeyedDigest(key)
        self._limits = limits
        self._ledger = ledger
        self._deadlines = deadlines
        self._rows: OrderedDict[str, Operation] = OrderedDict()
        self.by_id: Callable[[str], Operation | None] = self._rows.get
        """Returns the row of a message id, whatever its age."""
        self._bytes = 0
        self._swept_at: int | None = None
        """When expired rows were last looked for (monotonic ms): twice within a millisecond finds nothing new."""
        self._shares: dict[str, _Share] = {}
        self._evictable: deque[AnswerTaken] = deque()
        self._last_number = recovered.last_number
        self._sweep_is_set = False
        self._leftovers: list[int] = []
        self._damaged = set(recovered.damaged)
        self.recovered_at: int | None = None
        """When rows of an earlier process were last entered (monotonic ms): whom they name may be on the way back."""
        self.trouble = trouble
        """Why the store cannot be used, in one sentence; None while it can."""
        self.on_expiry: Callable[[Operation], None] = lambda operation: None
        """Told of every row that leaves the table for good."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def charged_bytes(self) -> int:
        """Return the bytes charged for all rows."""
        return self._bytes

    # --- signature (protocol 6.9.1) ---------------------------------------------------------------------

    def signature(self, to: str, message: Message, sender: Session, *, pending_reply: bool) -> bytes:
        """Return the keyed digest that says whether two sends are the same operation.

        Sessions without a return address leave their identity out: it changes when they reconnect (protocol 6.9.1).
        Of what comes from another broker only the message counts: that one has compared the target that its sender
        named, and by which id, or for which address, it arrives here is another thing each time (6.13).
        """
        identity = sender.sender_identity if sender.return_hash is not None else None
        if sender.is_remote:
            return self.signature_elsewhere(message, sender)
        return self.digest(to, message, identity, sender.group_identity if pending_reply else None)

    def signature_elsewhere(self, message: Message, sender: Session) -> bytes:
        """Return that of what another broker brings, also where somebody here sent it and it comes back."""
        identity = sender.sender_identity if sender.return_hash is not None else None
        return self.digest("", message, identity, None)

    def digest(self, to: str, message: Message, sender_identity: str | None, group_identity: str | None) -> bytes:
        """Return the keyed digest of a message to ``to`` from whoever the two identities stand for."""
        content = message.content
        attachments = [] if content.attachments is UNSET else content.attachments
        source = None
        if message.source is not UNSET:
            agent, index = message.source.subagent_agent, message.source.subagent_index
            source = (
                message.source.subagent_run_id,
                None if agent is UNSET else agent,
                None if index is UNSET else int(index) if index == int(index) else index,
            )
        canonical = encode(
            (
                to,
                content.text,
                attachments,
                None if message.reply_to is UNSET else message.reply_to,
                message.expects_reply is True,
                None if message.reply_error is UNSET else message.reply_error,
                sender_identity,
                source,
                group_identity,
            )
        )
        return self._digest.of(canonical)

    # --- look-up ----------------------------------------------------------------------------------------

    def find(self, message_id: str, now: Instant) -> Operation | None:
        """Return the row of this message id unless it is older than the TTL."""
        if now.mono != self._swept_at:
            self._drop_expired(now)
        operation = self.by_id(message_id)
        if (
            operation is not None
            and operation.expires <= now.mono
            and not operation.questions
            and operation.state is not _QUEUED
        ):
            self._drop(operation, now)
            return None
        return operation

    def standing(
        self, operation: Operation | None, message_id: str, signature: bytes, target: str | None
    ) -> Standing | None:
        """Compare a send with the row of its message id; None: there is none, or it is forgotten (protocol 6.9.2)."""
        if self.trouble is not None or message_id in self._damaged:
            return Standing.INVALID
        if operation is None:
            return None
        if operation.signature != signature or operation.target != target:
            is_moved = operation.signature == signature and operation.state is _RESERVED
            return Standing.MOVED if is_moved else Standing.CONFLICT
        if operation.state is _ACCEPTED:
            return Standing.MATCH
        if operation.state is _QUEUED:
            return Standing.QUEUED
        return Standing.UNCERTAIN

    def is_unusable(self, message_id: str) -> bool:
        """Tell whether nothing can be decided about this message id: the store or its row cannot be read."""
        return self.trouble is not None or message_id in self._damaged

    # --- moves ------------------------------------------------------------------------------------------

    def retry_after_ms(self, sender: str, now: Instant) -> int | None:
        """Return None when ``sender`` may reserve one more row, else how long until one may fit, in ms.

        Makes room first by the rows whose sender cannot need them any more; what expired went when the caller looked
        the message id up.
        """
        limits = self._limits
        share = self._shares.get(sender)
        if share is not None and (
            share.rows * limits.sender_share >= limits.operations
            or share.bytes * limits.sender_share >= limits.operation_bytes
        ):
            if share.retry_at <= now.mono:
                share.retry_at = self._oldest_of(sender).expires
            return max(1, share.retry_at - now.mono)
        while len(self._rows) >= limits.operations or self._bytes >= limits.operation_bytes:
            if not self._evict_one(now):
                oldest = next(iter(self._rows.values()))
                return max(1, oldest.expires - now.mono)
        return None

    def _oldest_of(self, sender: str) -> Operation:
        return next(row for row in self._rows.values() if row.sender == sender)

    def reserve(
        self,
        message_id: str,
        signature: bytes,
        sender: Session,
        target: str | None,
        recipient_session: str | None,
        is_ask: bool,
        ask_ms: int,
        now: Instant,
    ) -> Operation:
        """Enter a reserved row; the caller has asked ``retry_after_ms`` and found a miss.

        ``target`` is the identity of the target; a row without one is bound to whoever its signature names.

        The append is made by ``append_reservation``, so that its inverse can be the caller's.
        """
        self._last_number = number = self._last_number + 1
        operation = Operation(
            number,
            message_id,
            _RESERVED,
            signature,
            sender.sender_identity,
            sender.id,
            target,
            recipient_session,
            now.wall,
            is_ask,
            sender.return_hash,
            sender.group_identity if is_ask else "",
            now.mono,
            now.mono + ask_ms,
            now.mono + self._limits.operation_ttl_ms,
        )
        self._enter(operation, now)
        return operation

    def enqueue(
        self, message: Message, signature: bytes, sender: Session, target: str, position: int, ask_ms: int, now: Instant
    ) -> Operation:
        """Enter a queued row for the mailbox ``target``; the caller appends its record."""
        is_ask = message.expects_reply is True
        operation = self.reserve(message.id, signature, sender, target, None, is_ask, ask_ms, now)
        operation.state = _QUEUED
        operation.position = position
        return operation

    def append_reservation(self, operation: Operation, undo: Callable[[object, Instant], None], subject: object) -> int:
        """Append the row; ``undo(subject, now)`` must call ``withdraw``."""
        operation.ticket = self._ledger.append_row(SaveOperation(operation.record()), undo, subject)
        return operation.ticket

    def next_number(self) -> int:
        """Return a number greater than that of every row so far."""
        self._last_number += 1
        return self._last_number

    def is_present(self, operation: Operation) -> bool:
        """Tell whether the row is still in the table."""
        return self.by_id(operation.message_id) is operation

    def drop(self, operation: Operation) -> tuple[Change, ...]:
        """Take a row out whose message was given up; returns the change the caller appends."""
        if self.by_id(operation.message_id) is not operation:
            return ()
        self._remove(operation)
        return (DropOperation(operation.number),)

    def put_back(self, operation: Operation) -> None:
        """Enter a row again whose removal could not be recorded, unless its id is used by now."""
        if operation.message_id not in self._rows:
            self._put(operation)

    def withdraw(self, operation: Operation) -> None:
        """Take back a reservation that was never committed, unless it grew too old meanwhile."""
        if self.by_id(operation.message_id) is operation:
            self._remove(operation)

    def accept(
        self,
        operation: Operation,
        recipient: Session,
        answers: Operation | None,
        undo: Callable[[object, Instant], None],
        subject: object,
        now: Instant,
    ) -> int | None:
        """Move a reserved row to accepted and mark the ask ``answers`` as answered, in one append.

        Returns the ticket, or None when there is no such reservation any more or the store is closed (protocol:
        invalid). ``undo(subject, now)`` must call ``unaccept``.
        """
        if (
            self.trouble is not None
            or operation.state is not _RESERVED
            or self.by_id(operation.message_id) is not operation
        ):
            return None
        operation.state = _ACCEPTED
        operation.accepted_at = now.wall
        moved_to = None
        if operation.recipient_session != recipient.id:
            moved_to = operation.recipient_session = recipient.id
        change = AcceptOperation(operation.number, moved_to, now.wall)
        if answers is None:
            operation.ticket = self._ledger.append_row(change, undo, subject)
            return operation.ticket
        answers.answered = True
        is_there = self.by_id(answers.message_id) is answers
        changes = (change, AnswerQuestion(answers.number)) if is_there else (change,)
        operation.ticket = answers.ticket = self._ledger.append(changes, undo, subject)
        return operation.ticket

    def accept_unwaited(self, operation: Operation, now: Instant) -> None:
        """Move a reserved row to accepted for whose answer nobody waits now."""
        operation.state, operation.accepted_at = _ACCEPTED, now.wall
        change = AcceptOperation(operation.number, None, now.wall)
        operation.ticket = self._ledger.append_row(change, self._undo_unwaited, operation)

    def keep_elsewhere(self, operation: Operation, position: int, place: str) -> None:
        """Note that the broker of another machine keeps a reserved message for its recipient, at this position.

        ``place`` marks the target as it is known there.
        """
        before = (operation, operation.position, operation.target)
        operation.position, operation.target = position, place
        if before[1] is None or before[2] != place:
            change = SaveOperation(operation.record())
            operation.ticket = self._ledger.append((change,), self._undo_elsewhere, before)

    def _undo_elsewhere(self, before: tuple[Operation, int | None, str | None], now: Instant) -> None:
        operation, position, target = before
        operation.position, operation.target = position, target

    def _undo_unwaited(self, operation: Operation, now: Instant) -> None:
        self.unaccept(operation, None)

    def unaccept(self, operation: Operation, answers: Operation | None) -> None:
        """Move an accepted row whose commit failed back to reserved, and the ask it answered to unanswered."""
        operation.state = _RESERVED
        operation.accepted_at = None
        if answers is not None:
            answers.answered = False

    def forget(self, operation: Operation) -> None:
        """Remove a reservation whose frame provably never left; anything else stays as it is."""
        if self.by_id(operation.message_id) is operation and operation.state is _RESERVED:
            self._remove(operation)
            self._append_drop(operation.number)

    def ask_anew(self, operation: Operation) -> None:
        """Remove the row of an ask that was confirmed on another machine, and is asked where its target is now."""
        self._remove(operation)
        self._append_drop(operation.number)

    def rest(self, ticket: int, told: Callable[[object, Instant], None], subject: object) -> None:
        """Call ``told(subject, now)`` if the append with this ticket fails: an answer rests on that row."""
        self._ledger.rest(ticket, told, subject)

    def withdraw_question(self, operation: Operation) -> None:
        """Let the question of an ask have no time any more; a later process will not open it again."""
        operation.question_due = operation.born
        self._save(operation)

    def note_recipient(self, operation: Operation) -> None:
        """Store who owes the answer to an ask."""
        self._save(operation)

    def renew_question(self, operation: Operation, ask_ms: int, now: Instant) -> None:
        """Give an ask that is sent again after its question had ended its full time."""
        if operation.question_due <= now.mono:
            operation.question_due = now.mono + ask_ms
            self._save(operation)

    def _save(self, operation: Operation) -> None:
        if self.trouble is None and self.by_id(operation.message_id) is operation:
            self._ledger.append((SaveOperation(operation.record()),))

    def answer_taken(self, answer: AnswerTaken, now: Instant) -> None:
        """Note that the sender of a plain message has its final answer: its row may give way while it is connected."""
        if self._answered_row(answer) is not None:
            self._evictable.append(answer)

    def _answered_row(self, answer: AnswerTaken) -> Operation | None:
        """Return the row of an answer; None: it is gone, whatever has its message id now."""
        operation = self.by_id(answer.message_id)
        return operation if operation is not None and operation.number == answer.number else None

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(self, record: OperationRecord, now: Instant) -> Operation:
        """Enter a row read from the store."""
        self.recovered_at = now.mono
        age = max(0, now.wall - record.reserved_at)
        question = record.question
        born = now.mono - age
        operation = Operation(
            record.number,
            record.message_id,
            record.state,
            record.signature,
            record.sender,
            record.sender_session,
            record.target,
            record.recipient_session,
            record.reserved_at,
            question is not None,
            None,
            "",
            born,
            now.mono,
            born + self._limits.operation_ttl_ms,
            record.accepted_at,
            record.position,
            copies=1,  # as far as this process knows
        )
        if question is not None:
            operation.asker_return = question.asker_return
            operation.sender_groups = question.sender_groups
            operation.answered = question.answered
            operation.question_due = born + max(0, question.deadline - record.reserved_at)
        self._enter(operation, now)
        return operation

    def recall(self, page: OperationsPage, now: Instant) -> None:
        """Enter rows that were left on disk at the start, and delete what had its time or is not the newest of its id.

        Among rows that were entered before, those of this page are not in the order of their age: some of them are
        forgotten later than they could be, none is found when it is too old.
        """
        stale = page.stale
        for record in page.records:
            if not record.is_settled:
                continue  # it was entered at the start, and what became of it since may not be on disk yet
            present = self.by_id(record.message_id)
            if present is not None and present.number < record.number:
                stale.append(present.number)
                self._remove(present)
                present = None
            if present is None:
                self.recover(record, now)
            elif present.number > record.number:
                stale.append(record.number)
        self._damaged |= page.damaged
        if stale:
            self._append_drop(*stale)

    # --- the table --------------------------------------------------------------------------------------

    def _enter(self, operation: Operation, now: Instant) -> None:
        operation.charge = (
            _ROW_OVERHEAD_BYTES
            + len(operation.message_id)
            + len(operation.sender)
            + len(operation.sender_session)
            + len(operation.target or "")
            + len(operation.recipient_session or "")
            + len(operation.sender_groups)
        )
        self._put(operation)
        if not self._sweep_is_set:
            self._set_sweep(now)

    def _put(self, operation: Operation) -> None:
        self._rows[operation.message_id] = operation
        self._bytes += operation.charge
        share = self._shares.get(operation.sender)
        if share is None:
            share = self._shares[operation.sender] = _Share()
        share.rows += 1
        share.bytes += operation.charge

    def _remove(self, operation: Operation) -> None:
        del self._rows[operation.message_id]
        self._bytes -= operation.charge
        share = self._shares[operation.sender]
        share.rows -= 1
        share.bytes -= operation.charge
        share.retry_at = 0
        if not share.rows:
            del self._shares[operation.sender]

    def _evict_one(self, now: Instant) -> bool:
        evictable = self._evictable
        while evictable:
            operation = self._answered_row(evictable[0])
            connection = self._connections.get(evictable[0].connection)
            if operation is None or connection is None or not connection.open:
                evictable.popleft()
                continue
            if now.mono - operation.born < self._limits.evictable_after_ms:
                return False
            evictable.popleft()
            self._drop(operation, now)
            return True
        return False

    def _drop_expired(self, now: Instant) -> None:
        self._swept_at = now.mono
        rows = self._rows
        while rows:
            operation = next(iter(rows.values()))
            if operation.expires > now.mono:
                break
            if operation.questions:
                operation.expires = max(operation.question_due, now.mono + 1)
                rows.move_to_end(operation.message_id)
            elif operation.state is _QUEUED:
                operation.expires = now.mono + self._limits.operation_ttl_ms
                rows.move_to_end(operation.message_id)
            else:
                self._drop(operation, now)
        evictable = self._evictable
        while evictable and self._answered_row(evictable[0]) is None:
            evictable.popleft()

    def _drop(self, operation: Operation, now: Instant) -> None:
        self._remove(operation)
        self.on_expiry(operation)
        self._append_drop(operation.number)

    def _append_drop(self, *numbers: int) -> None:
        if self.trouble is None:
            changes = tuple(DropOperation(number) for number in numbers)
            self._ledger.append(changes, self._keep_for_dropping, numbers)

    def _keep_for_dropping(self, numbers: tuple[int, ...], now: Instant) -> None:
        """Try again later to delete rows that are gone from memory for good, whatever the disk says."""
        if not self._leftovers:
            self._deadlines.add(now.mono + _SWEEP_MS, self._drop_leftovers)
        self._leftovers.extend(numbers)

    def _drop_leftovers(self, _: None, now: Instant) -> None:
        self.drop_leftovers()

    def drop_leftovers(self) -> None:
        """Delete the rows again whose deletion could not be recorded."""
        leftovers, self._leftovers = self._leftovers, []
        if leftovers:
            self._append_drop(*leftovers)

    def _set_sweep(self, now: Instant) -> None:
        self._sweep_is_set = True
        oldest = next(iter(self._rows.values()))
        self._deadlines.add(max(oldest.expires, now.mono + _SWEEP_MS), self._sweep)

    def _sweep(self, _: None, now: Instant) -> None:
        self._sweep_is_set = False
        self._drop_expired(now)
        if self._rows:
            self._set_sweep(now)
