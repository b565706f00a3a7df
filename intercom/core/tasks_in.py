"""Take tasks that others were asked for and this broker answers for, and report how their runs are (FE 3.3, 3.4).

    a letter --judged with our own state, recorded--> accepted;  --known--> duplicate;  --never--> refused
    the run changes --recorded--> reported

Rule 1: what is answered is recorded before. Rule 2: an invocation id with the same content is one run, however often
its letter comes. Rule 3: a report says how the run is by then, so one that is lost costs nothing that the next does not
say; its number is of our journal and only grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from intercom.core.claims import Claims
from intercom.core.clock import Instant
from intercom.core.deliveries import delivery_id
from intercom.core.invocation_dispatch import Dispatching
from intercom.core.invocation_records import LET_GO, InvocationRecord
from intercom.core.invocation_targets import Targets, is_address_id, key_of_address
from intercom.core.invocation_texts import is_same
from intercom.core.invocations import Invocation, Invocations, texts_of
from intercom.core.letters_in import LettersIn
from intercom.core.move import Move
from intercom.core.peer_records import PEER, Arrived, RemoteName, RemoteRun
from intercom.core.records import ReadBodies
from intercom.core.task_letters import (
    FOLLOW,
    INVOKE,
    INVOKED,
    RECALL,
    RUN,
    FollowLetter,
    InvokedLetter,
    InvokeLetter,
    RecallLetter,
    RunLetter,
)
from intercom.wire.codec import parse_message
from intercom.wire.invocations import RUN_PREFIX

if TYPE_CHECKING:
    from intercom.core.ground import Ground
    from intercom.core.sessions import Session
    from intercom.core.tasks_out import Postman

NOT_KNOWN = "It is not known any more where it was handed to: the store there was replaced by an older copy, or rebuilt"


class Reporting(Struct, frozen=True):
    """Remember which run is to be told of while its texts are read.

    ``asked`` and ``letter`` hold what is answered with it, if it is an answer, and ``after`` what that asked for.
    """

    invocation: Any
    asked: Any = None
    letter: Any = None
    after: int | None = None
    is_certain: bool = False
    """Nothing waited for its commit when the texts were asked for: what is not there is lost."""


class TasksIn:
    """Take tasks from other brokers.

    Args:
        shape_of: gives a stand-in by which whoever asked is judged.
        next_number: gives the key of a new row.
    """

    kinds = frozenset({INVOKE, FOLLOW, RECALL})
    """The letters it takes."""

    def __init__(
        self,
        ground: Ground,
        book: Invocations,
        targets: Targets,
        dispatching: Dispatching,
        postman: Postman,
        claims: Claims,
        shape_of: Callable[[str, RemoteName], Session],
        next_number: Callable[[], int],
    ) -> None:
        self._own = ground.identity.broker_id
        self._ledger = ground.ledger
        self._journal = ground.journal
        self._outbox = ground.outbox
        self._letters = LettersIn(ground)
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._book = book
        self._targets = targets
        self._dispatching = dispatching
        self._postman = postman
        self._claims = claims
        self._shape_of = shape_of
        self._next_number = next_number
        self._told: dict[str, int] = {}
        """The number of the newest report of each run, as far as this process made one."""
        self._changed: dict[str, Invocation] = {}
        book.on_foreign = self._mark

    # --- letters ----------------------------------------------------------------------------------------

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take a letter about a task; what cannot be read is let go of."""
        try:
            if fact.kind == INVOKE:
                return self._take(fact, decode(fact.body, type=InvokeLetter), now)
            if fact.kind == FOLLOW:
                self._followed(fact, decode(fact.body, type=FollowLetter), now)
            else:
                self._recalled(fact, decode(fact.body, type=RecallLetter), now)
        except DecodeError:
            pass
        return self._letters.settle_when_recorded(fact.arrival, now)

    def _take(self, fact: Arrived, letter: InvokeLetter, now: Instant) -> None:
        """Answer an attempt: behind its commit if the task is new, with how far it is if it is known."""
        identity = f"{PEER}{fact.peer}:{letter.requester.identity}"
        known = self._book.get(letter.invocation_id)
        if self._ledger.is_closed:
            self._answer(fact, letter, InvokedLetter(letter.attempt, "unreachable", reason="its store cannot be used"))
        elif known is None:
            self._answer(fact, letter, self._decide(fact, letter, identity, now))
        elif known.record.requester != identity or not is_same(known.record.fingerprint, letter.fingerprint):
            reason = "another invocation was made there under this invocationId; choose another one"
            self._answer(fact, letter, InvokedLetter(letter.attempt, "refused", reason=reason))
        elif known.record.placement == LET_GO and known.record.turn < letter.turn:
            self._forget(known, now)  # it has come back, with its address
            self._answer(fact, letter, self._decide(fact, letter, identity, now))
        else:
            self._report(Reporting(known, fact, letter), now)

    def _forget(self, known: Invocation, now: Instant) -> None:
        move = Move()
        self._book.forget(known, move, now)
        move.append(self._ledger)

    def _answer(self, fact: Arrived, letter: InvokeLetter, answer: InvokedLetter) -> None:
        ticket = self._ledger.last_ticket
        answer = replace(answer, turn=letter.turn)
        self._postman.post(fact.peer, INVOKED, fact.delivery_id, answer, ticket, settles=fact.arrival)

    def _decide(self, fact: Arrived, letter: InvokeLetter, identity: str, now: Instant) -> InvokedLetter:
        """Judge a new task with our own state, as if it had been asked for here; record it where it is taken."""
        refused = self._wrong(fact, letter)
        if refused is not None:
            return InvokedLetter(letter.attempt, "refused", reason=refused)
        if self._dispatching.is_shut:
            return InvokedLetter(letter.attempt, "unreachable", reason="it is about to leave")
        if is_address_id(letter.to) and self._claims.is_old(key_of_address(letter.to), letter.claim):
            reason = "the address it is for has been elsewhere since"
            return InvokedLetter(letter.attempt, "unreachable", reason=reason)
        asker = self._shape_of(fact.peer, letter.requester)
        found = self._targets.find(letter.to, asker)
        target = found.candidate
        if target is None:
            reason = "nobody there within reach has this id"
            is_elsewhere = self._targets.is_address_elsewhere(letter.to)
            return InvokedLetter(letter.attempt, "refused", reason=reason, is_elsewhere=is_elsewhere)
        if target.authority is not None:
            reason = f"not_authority: broker {target.authority} answers for it"
            return InvokedLetter(letter.attempt, "refused", reason=reason, is_elsewhere=is_address_id(letter.to))
        if self._book.open_count >= self._limits.invocations:
            reason = f"{self._limits.invocations} invocations are open there"
            return InvokedLetter(letter.attempt, "unreachable", reason=reason)
        info = asker.written()
        planned = self._dispatching.planned(found, info, now)
        is_pushed = planned.lease_until is not None
        record = InvocationRecord(
            self._next_number(),
            letter.invocation_id,
            letter.run_id,
            identity,
            target.target_id,
            target.name,
            letter.fingerprint,
            len(letter.message) + len(info),
            now.wall,
            letter.action,
            letter.ensure_awake,
            "waking" if letter.ensure_awake and target.state != "active" else "queued",
            None if letter.take_within is None else now.wall + letter.take_within,
            job="running" if is_pushed else "pending",
            attempts=1 if is_pushed else 0,
            lease_epoch=planned.epoch if is_pushed else None,
            lease_until=planned.lease_until,
            placement="session" if is_pushed else None,
            wishes=None if letter.wishes is UNSET else bytes(letter.wishes),
            acted_as=letter.requester.target_id,
            asked_as=None if letter.asked == target.target_id else letter.asked,
            turn=letter.turn,
        )
        invocation = self._dispatching.accept(record, planned, bytes(letter.message), info, now)
        run = RemoteRun(record.run_id, invocation.record.state, turn=letter.turn)  # type: ignore[arg-type]  # a state
        return InvokedLetter(letter.attempt, "accepted", run)

    def _wrong(self, fact: Arrived, letter: InvokeLetter) -> str | None:
        """Return what is wrong with a letter, whoever it is for."""
        if letter.requester.home != fact.peer:
            return "it was asked for by somebody that its broker does not answer for"
        if fact.delivery_id != delivery_id(letter.requester.identity, letter.invocation_id, self._own):
            return "its delivery is another one"
        message = parse_message(letter.message)
        if message is None or message.id != f"{RUN_PREFIX}{letter.run_id}":
            return "its message cannot be read"
        if self._book.of_message(message.id) is not None:
            return "its run is one of another invocation"
        return None

    def _known(self, fact: Arrived, invocation_id: str) -> Invocation | None:
        """Return an invocation as far as the broker that writes of it is the one that asked for it."""
        invocation = self._book.get(invocation_id)
        return invocation if invocation is not None and invocation.record.asked_at_peer == fact.peer else None

    def _followed(self, fact: Arrived, letter: FollowLetter, now: Instant) -> None:
        invocation = self._known(fact, letter.invocation_id)
        if invocation is not None:
            self._report(Reporting(invocation, after=letter.after), now)
        elif not self._ledger.is_closed:
            lost = RunLetter(letter.after, letter.after + 1, RemoteRun("", "failed", error=NOT_KNOWN))
            self._postman.post(fact.peer, RUN, fact.delivery_id, lost, self._ledger.last_ticket)

    def _recalled(self, fact: Arrived, letter: RecallLetter, now: Instant) -> None:
        invocation = self._known(fact, letter.invocation_id)
        if invocation is None or not invocation.is_open or self._ledger.is_closed:
            return
        reason = letter.reason[: self._limits.run_text_characters]
        if self._dispatching.nobody_has(invocation):
            self._dispatching.take_out(invocation, reason, now)
        elif invocation.record.cancel_asked_at is None:
            self._dispatching.ask_to_stop(invocation, reason, now)

    # --- reports ----------------------------------------------------------------------------------------

    def _mark(self, invocation: Invocation) -> None:
        """Report in this turn what has changed, behind its commit."""
        if not self._changed:
            self._deadlines.add(0, self._report_changed)
        self._changed[invocation.id] = invocation

    def _report_changed(self, subject: None, now: Instant) -> None:
        changed, self._changed = self._changed, {}
        for invocation in changed.values():
            self._report(Reporting(invocation), now)

    def _report(self, reporting: Reporting, now: Instant) -> None:
        """Read the texts of a run once all that was said of it is recorded."""
        invocation = reporting.invocation
        if invocation.is_open and self._book.get(invocation.id) is not invocation:
            return  # that it was taken could not be recorded: who asked must not believe that it is here
        ticket = self._ledger.last_ticket
        if self._ledger.is_committed(ticket):
            self._read(reporting, now)
        else:
            self._ledger.when_committed(ticket, self._read, reporting)
            self._ledger.rest(ticket, self._report_again, reporting)

    def _report_again(self, reporting: Reporting, now: Instant) -> None:
        """Report what did not leave since an append failed that came after it: nobody else may ask for it."""
        if not self._ledger.is_closed:
            self._report(reporting, now)

    def _read(self, reporting: Reporting, now: Instant) -> None:
        result = reporting.invocation.record.result
        if result is None:
            self._post(reporting, {})
        else:
            is_certain = self._ledger.is_committed(self._ledger.last_ticket)
            self._outbox.add(ReadBodies(replace(reporting, is_certain=is_certain), (result,)))

    def read(
        self, reporting: Reporting, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Report with texts that were read; None: they could not be, and who asked asks again."""
        if bodies is None:
            self._deadlines.add(now.mono + self._limits.job_retry_ms, self._report, reporting)
        elif reporting.invocation.record.result not in (bodies if not reporting.is_certain else numbers):
            self._report(reporting, now)  # it went on meanwhile
        else:
            self._post(reporting, bodies)

    def _post(self, reporting: Reporting, bodies: dict[int, bytes]) -> None:
        invocation: Invocation = reporting.invocation
        record = invocation.record
        self._ledger.rest(self._ledger.last_ticket, self._report_again, reporting)
        texts = texts_of(None if record.result is None else bodies.get(record.result))
        run = RemoteRun(
            record.run_id,
            record.state,  # type: ignore[arg-type]  # a state
            texts.summary,
            texts.output,
            texts.error,
            record.reconciled,
            record.placement == LET_GO,
            record.turn,
        )
        if reporting.asked is not None:
            letter: InvokeLetter = reporting.letter
            self._answer(reporting.asked, letter, InvokedLetter(letter.attempt, "duplicate", run))
            return
        before = self._told.get(record.run_id, 0)
        after = before if reporting.after is None else reporting.after
        self._told[record.run_id] = number = max(self._journal.last_sequence, before + 1, after + 1)
        peer = str(record.asked_at_peer)
        identity = record.requester.removeprefix(f"{PEER}{peer}:")
        same = delivery_id(identity, record.invocation_id, self._own)
        # Every number that was given so far is on the disk when this leaves, so a process after this one gives no
        # smaller one.
        self._postman.post(peer, RUN, same, RunLetter(after, number, run), self._ledger.last_ticket)
        if not invocation.is_open:
            self._told.pop(record.run_id, None)
