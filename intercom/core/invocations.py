"""Hold invocations, and move their runs and jobs from state to state (protocol 13.3).

    run:  queued, waking --taken--> running <--> waiting --> completed, failed, cancelled
    job:  pending --> running --> completed, failed, cancelled; running --not made, lease over--> pending

Rule 1: the first end of a run counts; only one that the broker itself had to assume gives way to what is reported.
Rule 2: a run and its job are one row: what they do together is one append. Rule 3: what says nothing new is not
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.invocation_records import ITSELF, DiagnosisRecord, InvocationRecord
from intercom.core.journal import Journal
from intercom.core.move import Move
from intercom.core.records import Change, Happened, ReleaseBody, SaveBody
from intercom.limits import Limits
from intercom.wire.invocations import RUN_PREFIX

if TYPE_CHECKING:
    from intercom.core.mailboxes import Mail
    from intercom.core.offers import Offered

ENDED = frozenset({"completed", "failed", "cancelled"})
_REPORTED = frozenset({"running", "waiting"}) | ENDED
RUN: dict[str, frozenset[str]] = {
    "queued": _REPORTED,
    "waking": _REPORTED,
    "running": _REPORTED - {"running"},
    "waiting": _REPORTED - {"waiting"},
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""To which states a run may go from each."""
REVIVED = _REPORTED
"""The same of a run of which the broker assumed that it failed."""
JOB: dict[str, frozenset[str]] = {
    "pending": frozenset({"running", "completed", "failed", "cancelled"}),
    "running": frozenset({"pending", "completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""To which states a job may go from each."""


Holders: TypeAlias = tuple[str, str | None]
"""Target and worker of an invocation."""

_BROKER: Holders = ("", None)
NOBODY = b"{}"
"""The session object of who asked, once it is deleted with the task."""


class IllegalMove(Exception):
    """Say that a run or a job cannot go there; nothing has changed."""


class Texts(Struct, frozen=True):
    """Hold what is said of a run."""

    summary: str | None = None
    output: str | None = None
    error: str | None = None

    @property
    def digest(self) -> str:
        """Return what tells these texts from others."""
        return sha256(encode(self)).hexdigest()


class Invocation(Struct, eq=False):
    """Hold one invocation, and what only this process knows of it."""

    record: InvocationRecord
    info: bytes
    """The session object of who asked, at the time, JSON."""
    id: str
    place: Holders | None = None
    """Under whom it is found among the open ones."""
    ticket: int = 0
    """Of its newest change."""
    mail: Mail | None = None
    """The message that brings the task, while it is in a mailbox."""
    notice: Mail | None = None
    """The message that says it is not wanted any more, while it is in a mailbox."""
    offered: Offered | None = None
    """The same on its way to a session without one."""
    retry_at: int = 0
    """The hand-over is not tried before, monotonic ms."""
    leased_until: int = 0
    """When a lease of this process is over, monotonic ms, whatever becomes of the time of day."""
    gone_since: int | None = None
    """When its target was first found gone while its job goes on, monotonic ms."""

    @property
    def is_open(self) -> bool:
        """Tell whether its run has not ended."""
        return self.record.state not in ENDED

    def allows(self, state: str) -> bool:
        """Tell whether its run may go to this state."""
        allowed = REVIVED if self.record.reconciled else RUN[self.record.state]
        return state in allowed


class Invocations:
    """Find invocations and diagnoses, and change them together with their rows."""

    def __init__(self, journal: Journal, limits: Limits) -> None:
        self._journal = journal
        self._limits = limits
        self._by_id: dict[str, Invocation] = {}
        self._by_run: dict[str, Invocation] = {}
        self._open: dict[str, Invocation] = {}
        self._held: dict[Holders, dict[str, Invocation]] = {}
        """The open ones of this broker by who has them, and those with something left to do under ``_BROKER``."""
        self._diagnoses: dict[int, DiagnosisRecord] = {}
        self.on_forgetting: Callable[[Invocation, Move, Instant], None] = lambda invocation, move, now: None
        """Is told of every invocation that is forgotten, in the same append."""
        self.on_foreign: Callable[[Invocation], None] | None = None
        """Is told when one has changed that another broker was asked for."""
        self.on_opened_again: Callable[[], None] = lambda: None
        """Is told when a run goes on after all: its end was only assumed, or could not be recorded."""

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def open_count(self) -> int:
        """Return how many have not ended."""
        return len(self._open)

    @property
    def diagnosis_count(self) -> int:
        """Return how many diagnoses are remembered."""
        return len(self._diagnoses)

    def get(self, invocation_id: str) -> Invocation | None:
        """Return the invocation with this id."""
        return self._by_id.get(invocation_id)

    def of_message(self, message_id: str) -> Invocation | None:
        """Return the invocation whose task this message brings."""
        return self._by_run.get(message_id.removeprefix(RUN_PREFIX)) if message_id.startswith(RUN_PREFIX) else None

    def open_ones(self) -> list[Invocation]:
        """Return those that have not ended, the oldest first."""
        return list(self._open.values())

    def going_ones(self) -> list[Invocation]:
        """Return the open ones with something left to do: their jobs go on, or they are to stop."""
        return self.held_by(_BROKER)

    def held(self) -> list[Holders]:
        """Return who has to end all the others."""
        return [holders for holders in self._held if holders is not _BROKER]

    def held_by(self, holders: Holders) -> list[Invocation]:
        """Return what these have to end."""
        return list(self._held.get(holders, {}).values())

    def newest_first(self) -> Iterable[Invocation]:
        """Return all, the newest first."""
        return reversed(list(self._by_id.values()))

    def diagnoses_of(self, invocation_id: str) -> list[DiagnosisRecord]:
        """Return the newest diagnoses made under an id, the oldest of them first."""
        found = [record for record in self._diagnoses.values() if record.invocation_id == invocation_id]
        return found[-self._limits.diagnoses_shown :]

    # --- rows -------------------------------------------------------------------------------------------

    def create(self, record: InvocationRecord, message: bytes, info: bytes, move: Move, now: Instant) -> Invocation:
        """Enter a new invocation with its run and its job; the oldest that ended gives way when there are too many."""
        if self.is_full:
            oldest = next((one for one in self._by_id.values() if not one.is_open), None)
            if oldest is not None:
                self.forget(oldest, move, now)
        invocation = Invocation(record, info, record.invocation_id)
        move.inverse(lambda now: self.leave(invocation))
        move.changes += self.enter(invocation, message, now)
        return invocation

    def enter(self, invocation: Invocation, message: bytes, now: Instant) -> tuple[Change, ...]:
        """Enter a new invocation, and return what is recorded of it; ``leave`` is the inverse."""
        record = invocation.record
        self._enter(invocation)
        requested = self._journal.event("invocation.requested", record, now)
        return SaveBody(record.number, message, invocation.info), requested

    @property
    def is_full(self) -> bool:
        """Tell whether the oldest that ended gives way to a new one."""
        return len(self._by_id) >= self._limits.invocations_kept

    def pushed(self, invocation: Invocation, worker: str, now: Instant) -> Happened:
        """Note that a task which nobody had begun was confirmed where it was written; ``put_back`` is the inverse.

        It says what ``take`` would, which most runs go through, without a look at what else there might be.
        """
        before = invocation.record
        record = replace(
            before,
            state="running",
            started_at=now.wall,
            held_by=ITSELF if worker == before.target else worker,
            job="completed",
            lease_epoch=None,
            lease_until=None,
        )
        self._set(invocation, record)
        return self._journal.changed("run.updated", record, _PUSHED, now, {"previousState": before.state})

    def put_back(self, invocation: Invocation, record: InvocationRecord) -> None:
        """Take a change of an invocation back that could not be recorded."""
        self._set(invocation, record)

    def recover(self, record: InvocationRecord, info: bytes) -> Invocation:
        """Enter an invocation read from the store."""
        invocation = Invocation(record, info, record.invocation_id)
        self._enter(invocation)
        return invocation

    def recover_diagnosis(self, record: DiagnosisRecord) -> None:
        """Enter a diagnosis read from the store."""
        self._diagnoses[record.number] = record

    def _enter(self, invocation: Invocation) -> None:
        self._by_id[invocation.id] = invocation
        record = invocation.record
        self._by_run[record.run_id] = invocation
        if record.state not in ENDED:
            self._open[invocation.id] = invocation
        self._move(invocation, _place_of(record))

    def _move(self, invocation: Invocation, place: Holders | None) -> None:
        before, invocation.place = invocation.place, place
        if before is not None:
            held = self._held[before]
            del held[invocation.id]
            if not held:
                del self._held[before]
        if place is not None:
            self._held.setdefault(place, {})[invocation.id] = invocation

    def leave(self, invocation: Invocation) -> None:
        """Take an invocation out again."""
        self._by_id.pop(invocation.id, None)
        self._by_run.pop(invocation.record.run_id, None)
        self._open.pop(invocation.id, None)
        self._move(invocation, None)

    def _set(self, invocation: Invocation, record: InvocationRecord) -> None:
        before, invocation.record = invocation.record, record
        if self._by_id.get(invocation.id) is not invocation:
            return
        if self.on_foreign is not None and record.asked_at_peer is not None:
            self.on_foreign(invocation)
        place = _place_of(record)
        if place != invocation.place:
            self._move(invocation, place)
        if record.state in ENDED:
            self._open.pop(invocation.id, None)
        elif before.state in ENDED:
            self._open[invocation.id] = invocation
            self.on_opened_again()

    def change(self, invocation: Invocation, kind: str, move: Move, now: Instant, **members: Any) -> None:
        """Change the row of an invocation; raises ``IllegalMove`` before anything has changed."""
        before = invocation.record
        state, job = members.get("state", before.state), members.get("job", before.job)
        if state != before.state and not invocation.allows(state):
            raise IllegalMove(f"a run that is {before.state} cannot become {state}")
        if job != before.job and job not in JOB[before.job]:
            raise IllegalMove(f"a job that is {before.job} cannot become {job}")
        changed = tuple([name for name, value in members.items() if value != getattr(before, name)])
        if not changed:
            return
        record = replace(before, **members)
        self._set(invocation, record)
        move.inverse(lambda now: self._set(invocation, before))
        detail = {} if state == before.state else {"previousState": before.state}
        move.changes.append(self._journal.changed(kind, record, changed, now, detail))

    def take(
        self,
        invocation: Invocation,
        worker: str | None,
        move: Move,
        now: Instant,
        state: str = "running",
        *,
        is_confirmed: bool = True,
    ) -> None:
        """Note that somebody has the task and works on it, or waits for something.

        Unless ``is_confirmed`` its message may still come again, and the job that writes it goes on.
        """
        record = invocation.record
        members: dict[str, Any] = {"state": state}
        if record.reconciled:
            members["reconciled"] = False
        if record.started_at is None:
            members["started_at"] = now.wall
        if worker is not None:
            members["held_by"] = ITSELF if worker == record.target else worker
        if JOB[record.job] and (is_confirmed or record.placement != "session"):
            members |= {"job": "completed", "lease_epoch": None, "lease_until": None}
        if record.completed_at is not None:
            members["completed_at"] = None
        self.change(invocation, "run.updated", move, now, **members)

    def end(
        self,
        invocation: Invocation,
        state: str,
        texts: Texts,
        move: Move,
        now: Instant,
        number: int,
        *,
        reconciled: bool = False,
    ) -> None:
        """End a run; ``number`` is a new one under which its texts are stored.

        A consultation that ends without an answer has failed. What the broker only assumed may be told to be so.
        """
        record = invocation.record
        if state == "completed" and record.action == "consult" and not (texts.output or "").strip():
            state, texts = "failed", replace(texts, error=texts.error or _NO_ANSWER)
        members: dict[str, Any] = {
            "state": state,
            "completed_at": now.wall,
            "reconciled": reconciled,
            "result": number,
            "result_hash": texts.digest,
        }
        if JOB[record.job]:
            job = "completed" if state == "completed" else state
            members |= {"job": job, "lease_epoch": None, "lease_until": None}
        until = now.wall + self._limits.bodies_kept_ms
        if state == record.state and not record.reconciled:
            raise IllegalMove(f"a run that is {state} ends once")
        self.change(invocation, "run.updated", move, now, **members)
        move.changes += [
            SaveBody(number, encode(texts)),
            ReleaseBody(number, until),
            ReleaseBody(record.number, until),
        ]

    def keep_texts(self, invocation: Invocation, texts: Texts, move: Move, now: Instant, number: int) -> None:
        """Store what is said of a run that goes on."""
        record = invocation.record
        if texts == Texts() or texts.digest == record.result_hash:
            return
        move.changes.append(SaveBody(number, encode(texts)))
        if record.result is not None:
            move.changes.append(ReleaseBody(record.result, now.wall))
        self.change(invocation, "run.updated", move, now, result=number, result_hash=texts.digest)

    def diagnose(self, record: DiagnosisRecord, move: Move, now: Instant) -> None:
        """Enter a diagnosis; the oldest gives way when there are too many."""
        if len(self._diagnoses) >= self._limits.diagnoses:
            self._forget_diagnosis(next(iter(self._diagnoses.values())), move, now)
        self._diagnoses[record.number] = record
        move.inverse(lambda now: self._drop_diagnosis(record))
        move.changes.append(self._journal.event("route.diagnosed", record, now))

    def _drop_diagnosis(self, record: DiagnosisRecord) -> None:
        self._diagnoses.pop(record.number, None)

    def _forget_diagnosis(self, record: DiagnosisRecord, move: Move, now: Instant) -> None:
        self._drop_diagnosis(record)
        move.inverse(lambda now: self._diagnosis_back(record))
        move.changes.append(self._journal.event("route.forgotten", record, now, is_gone=True))

    def _diagnosis_back(self, record: DiagnosisRecord) -> None:
        self._diagnoses[record.number] = record
        self._diagnoses = dict(sorted(self._diagnoses.items()))

    # --- what had its time ------------------------------------------------------------------------------

    def tidy(self, move: Move, now: Instant) -> None:
        """Forget what ended long ago."""
        before = now.wall - self._limits.invocation_kept_ms
        for invocation in list(self._by_id.values()):
            if not invocation.is_open and (invocation.record.completed_at or 0) <= before:
                self.forget(invocation, move, now)
        for record in list(self._diagnoses.values()):
            if record.at <= before:
                self._forget_diagnosis(record, move, now)

    def forget(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """Forget an invocation, with what belongs to it."""
        self.leave(invocation)
        move.inverse(lambda now: self._enter(invocation))
        self.on_forgetting(invocation, move, now)
        move.changes.append(
            self._journal.event("invocation.forgotten", invocation.record, now, is_gone=True, changed=())
        )


def _place_of(record: InvocationRecord) -> Holders | None:
    """Return who has to do something about an invocation; None: it has ended, or its delivery has times of its own."""
    if record.state in ENDED or record.authority is not None:
        return None
    if JOB[record.job] or record.cancel_asked_at is not None:
        return _BROKER
    return record.target, record.worker


def texts_of(body: bytes | None) -> Texts:
    """Return what is stored of a run; nothing once it is deleted."""
    return Texts() if body is None else decode(body, type=Texts)


_PUSHED = ("state", "started_at", "held_by", "job", "lease_epoch", "lease_until")
"""What a receipt changes."""
_NO_ANSWER = "The consultation ended without an answer"
