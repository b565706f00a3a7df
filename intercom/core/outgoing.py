"""Keep what is on its way to other brokers until it is known what became of it (FE 3.2, design section 5).

    reserved here, and stored with its letter in one append --commit--> posted --outcome--> gone
                                                      ^                   |
                                                      +-- nothing heard --+

Rule 1: nothing is posted before it is stored, and what was stored when a process ended is posted again by the next one.
Rule 2: an entry lives no longer than the row of its message id: what that row says is what counts. Rule 3: that the
engine has a letter is known to this process only; posted once more it meets the same message id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.forwarding import pause_ms
from intercom.core.letters import SendLetter
from intercom.core.peer_records import OutboxRecord
from intercom.core.records import Change, DropBody, OperationState, ReadBodies, SaveBody

if TYPE_CHECKING:
    from intercom.core.attempts import Attempt
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.operations import Operations


class OnItsWay:
    """Hold one message that is on its way, and what only this process knows of it."""

    __slots__ = ("attempt", "attempts", "deadline", "due_at", "is_posted", "record")

    def __init__(self, record: OutboxRecord, attempt: str) -> None:
        self.record = record
        self.attempt = attempt
        """The newest one."""
        self.attempts = 0
        self.is_posted = False
        """The engine has it."""
        self.deadline: Deadline | None = None
        self.due_at: int | None = None
        """When it is looked at again, epoch ms."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the target's mark and the message id."""
        return self.record.mark, self.record.message_id

    @property
    def status(self) -> Literal["accepted", "posted"]:
        """Return how far it is known to be."""
        return "posted" if self.is_posted else "accepted"


class PostAgain(Struct, frozen=True):
    """Remember for what letters are read."""

    entries: tuple[Any, ...]


class Outgoing:
    """Hold what is on its way.

    Args:
        post: posts a letter to a peer, behind an append and of use until then (monotonic ms).
        next_attempt: gives the name of the next attempt.
    """

    def __init__(
        self,
        ground: Ground,
        operations: Operations,
        post: Callable[[str, str, SendLetter, int, int | None], int],
        next_attempt: Callable[[], str],
    ) -> None:
        self._outbox = ground.outbox
        self._ledger = ground.ledger
        self._journal = ground.journal
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._operations = operations
        self._post = post
        self._next_attempt = next_attempt
        self._entries: dict[tuple[str, str], OnItsWay] = {}
        self._by_post: dict[int, OnItsWay] = {}
        """By the number under which the engine is to get them."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OnItsWay]:
        return iter(list(self._entries.values()))

    def has(self, mark: str, message_id: str) -> bool:
        """Tell whether a message is on its way."""
        return (mark, message_id) in self._entries

    # --- begin ------------------------------------------------------------------------------------------

    def begin(self, attempt: Attempt, peer: str, delivery_id: str, letter: SendLetter, after: int) -> tuple[int, int]:
        """Keep a message that is reserved by the append with ticket ``after``, in that append where it can be.

        Returns the ticket behind which it may be posted, and the number under which it is kept.
        """
        operation = attempt.operation
        assert operation is not None
        entry = self._entries.get((letter.mark, letter.message_id))
        if entry is not None:
            entry.attempt = letter.attempt
            return after, entry.record.number
        body = encode(letter)
        until = attempt.valid_until
        record = OutboxRecord(
            self._operations.next_number(),
            delivery_id,
            letter.message_id,
            peer,
            letter.mark,
            attempt.wording,
            attempt.sender.id,
            attempt.sender.return_mailbox,
            len(body),
            operation.reserved_at,
            None if until is None else until.wall,
            letter.is_ask,
        )
        entry = self._enter(OnItsWay(record, letter.attempt))
        born = Instant(operation.born, operation.reserved_at)
        event = self._journal.event("outbox.stored", record, born)
        ticket = self._ledger.join(after, (SaveBody(record.number, body), event), self._undo_begin, entry)
        self._arm(entry, self._limits.receipt_wait_ms, born)
        return max(after, ticket), record.number

    def _enter(self, entry: OnItsWay) -> OnItsWay:
        self._entries[entry.key] = entry
        return entry

    def _undo_begin(self, entry: OnItsWay, now: Instant) -> None:
        self._leave(entry)

    def _leave(self, entry: OnItsWay) -> None:
        self._deadlines.cancel(entry.deadline)
        entry.deadline = None
        self._entries.pop(entry.key, None)

    # --- on its way -------------------------------------------------------------------------------------

    def given(self, post: int, mark: str, message_id: str) -> None:
        """Note under which number an attempt was given away."""
        entry = self._by_post[post] = self._entries[mark, message_id]
        entry.attempts += 1

    def posted(self, post: int) -> None:
        """Note that the engine has what was given away under this number."""
        entry = self._by_post.pop(post, None)
        if entry is not None:
            entry.is_posted = True

    def _arm(self, entry: OnItsWay, in_ms: int, now: Instant) -> None:
        self._deadlines.cancel(entry.deadline)
        entry.deadline = self._deadlines.add(now.mono + in_ms, self._is_due, entry)
        entry.due_at = now.wall + in_ms

    def _is_due(self, entry: OnItsWay, now: Instant) -> None:
        entry.deadline = None
        if self._is_over(entry, now):
            self._end(entry, now)
            return
        self._again([entry], now)

    def _is_over(self, entry: OnItsWay, now: Instant) -> bool:
        """Tell whether nothing hangs on it any more: its message waits as mail now, arrived, or had its time."""
        record = entry.record
        operation = self._operations.by_id(record.message_id)
        if operation is None or operation.state is not OperationState.RESERVED or operation.target != record.mark:
            return True
        return record.valid_until is not None and record.valid_until <= now.wall

    def look(self, peer: str, now: Instant) -> None:
        """Let go of what waits as mail now, since the sessions of a broker are gone."""
        for entry in self:
            if entry.record.peer == peer and self._is_over(entry, now):
                self._end(entry, now)

    def _again(self, entries: list[OnItsWay], now: Instant) -> None:
        """Post letters once more: the engine tells a copy of an attempt by its name while it still has that."""
        if not entries or self._ledger.is_closed:
            return
        for entry in entries:
            self._arm(entry, pause_ms(entry.record.delivery_id, entry.attempts + 2, self._limits), now)
        self._outbox.add(ReadBodies(PostAgain(tuple(entries)), tuple(entry.record.number for entry in entries)))

    def read(self, token: PostAgain, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Post letters that were read; one that is lost is over, and so is what nobody may be given any more."""
        entry: OnItsWay
        for entry in token.entries:
            if self._entries.get(entry.key) is not entry or bodies is None:
                continue
            record = entry.record
            try:
                letter = decode(bodies[record.number], type=SendLetter)
            except (KeyError, DecodeError):
                self._end(entry, now)
                continue
            until = None
            if record.valid_until is not None:
                left_ms = max(0, record.valid_until - now.wall)
                letter, until = replace(letter, valid_for=left_ms), now.mono + left_ms
            post = self._post(record.peer, record.delivery_id, replace(letter, attempt=entry.attempt), 0, until)
            self.given(post, *entry.key)

    # --- the end ----------------------------------------------------------------------------------------

    def settled(self, mark: str, message_id: str, now: Instant) -> None:
        """Let go of a message whose outcome is known."""
        entry = self._entries.get((mark, message_id))
        if entry is not None:
            self._end(entry, now)

    def _end(self, entry: OnItsWay, now: Instant) -> None:
        if self._ledger.is_closed:
            return
        self._leave(entry)
        number = entry.record.number
        event = self._journal.event("outbox.settled", entry.record, now, is_gone=True)
        changes: tuple[Change, ...] = (event, DropBody(number))
        self._ledger.append(changes, self._undo_end, entry)

    def _undo_end(self, entry: OnItsWay, now: Instant) -> None:
        self._arm(self._enter(entry), self._limits.mail_retry_ms, now)

    # --- what a person wants ----------------------------------------------------------------------------

    def retry(self, entry: OnItsWay, now: Instant) -> None:
        """Post an entry now, as a new attempt."""
        entry.attempt = self._next_attempt()
        self._again([entry], now)

    # --- start ------------------------------------------------------------------------------------------

    def recover(self, records: list[OutboxRecord], now: Instant) -> list[OnItsWay]:
        """Post what an earlier process had stored and knew no outcome of; return it."""
        entries = [self._enter(OnItsWay(record, self._next_attempt())) for record in records]
        over = [entry for entry in entries if self._is_over(entry, now)]
        for entry in over:
            self._end(entry, now)
        left = [entry for entry in entries if entry not in over]
        for entry in left:
            operation = self._operations.by_id(entry.record.message_id)
            assert operation is not None, "it is over with its row"
            operation.posted_to = entry.record.peer
        self._again(left, now)
        return left
