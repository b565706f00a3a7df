"""Keep the attempts that sessions here were handed of flows at other brokers: one at a session at most (12.11).

stored --handed over--> published --confirmed--> accepted --reported--> answered by the broker of the flow
   |                        |                        |
   +------------------------+-- lost, gone, or over as the broker of the flow says
refused: never handed over
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow_records import HostedRecord, ReportRecord
from intercom.core.mailboxes import Mail
from intercom.core.records import Change

if TYPE_CHECKING:
    from intercom.core.deadlines import Deadline
    from intercom.core.journal import Journal
    from intercom.core.ledger import Ledger
    from intercom.core.mailing import Mailing


class Hosted:
    """Hold one attempt, and what only this process knows of it."""

    __slots__ = ("attempts", "deadline", "mail", "record", "waiting")

    def __init__(self, record: HostedRecord) -> None:
        self.record = record
        self.mail: Mail | None = None
        """The message that brings it, as long as it is not confirmed."""
        self.attempts = 0
        """How often this process posted its report."""
        self.deadline: Deadline | None = None
        """When its report is posted again."""
        self.waiting: list[Any] = []
        """Those who reported it and were not answered."""

    @property
    def id(self) -> str:
        """Return the id of the dispatch."""
        return self.record.dispatch_id

    @property
    def session_id(self) -> str:
        """Return the id of its session."""
        return self.record.identity.session_id

    @property
    def owed_report(self) -> ReportRecord | None:
        """Return its report, as long as the broker of the flow has not said that it has it."""
        return None if self.record.answer is not None else self.record.report

    @property
    def owes_report(self) -> bool:
        """Tell whether the broker of the flow has not said that it has the report."""
        return self.owed_report is not None

    @property
    def occupies(self) -> bool:
        """Tell whether its session works on it: no other step is handed to that."""
        record = self.record
        if record.end is not None:
            return False
        waits = record.answer is not None and record.answer.step_state == "awaiting_result"
        return record.report is None or waits


class Hosting:
    """Find them and change them; a change that cannot be recorded is taken back."""

    def __init__(self, journal: Journal, ledger: Ledger, mailing: Mailing) -> None:
        self._journal = journal
        self._ledger = ledger
        self._mailing = mailing
        self._all: dict[str, Hosted] = {}
        self._of_session: dict[str, dict[str, Hosted]] = {}

    def __iter__(self) -> Iterator[Hosted]:
        return iter(list(self._all.values()))

    def get(self, dispatch_id: str) -> Hosted | None:
        """Return the attempt with this id."""
        return self._all.get(dispatch_id)

    def at(self, session_id: str) -> Hosted | None:
        """Return the attempt that this session works on."""
        mine = self._of_session.get(session_id.lower(), {}).values()
        return next((hosted for hosted in mine if hosted.occupies), None)

    def enter(self, hosted: Hosted) -> None:
        """Put one in."""
        self._all[hosted.id] = hosted
        self._of_session.setdefault(hosted.session_id.lower(), {})[hosted.id] = hosted

    def leave(self, hosted: Hosted) -> None:
        """Take one out."""
        self._all.pop(hosted.id, None)
        key = hosted.session_id.lower()
        mine = self._of_session.get(key, {})
        mine.pop(hosted.id, None)
        if not mine:
            self._of_session.pop(key, None)

    def begun(self, hosted: Hosted, now: Instant) -> Change:
        """Return the event of a new one, for the append that stores its message."""
        return self._journal.event("hosted.stored", hosted.record, now)

    def refuse(self, hosted: Hosted, undo: Callable[[Hosted, Instant], None], now: Instant) -> None:
        """Keep one that is not taken; ``undo`` is called if that cannot be recorded."""
        self.enter(hosted)
        self._ledger.append((self._journal.event("hosted.refused", hosted.record, now),), undo, hosted)

    def change(self, hosted: Hosted, kind: str, now: Instant, *more: Change, **members: Any) -> int:
        """Change one together with ``more``; return the ticket."""
        before, mail = hosted.record, hosted.mail
        hosted.record = replace(before, **members)
        if hosted.record.end is not None or hosted.record.transport == "accepted":
            hosted.mail = None
        event = self._journal.event(kind, hosted.record, now)
        return self._ledger.append((*more, event), self._undo, (hosted, before, mail))

    def _undo(self, subject: tuple[Hosted, HostedRecord, Mail | None], now: Instant) -> None:
        hosted, record, mail = subject
        hosted.record, hosted.mail = record, mail

    def withdraw(self, mail: Mail | None, reason: str, now: Instant) -> None:
        """Take back the message of an attempt, as far as it is not confirmed, after the change that lets go of it."""
        if mail is not None and mail.confirmed_by is None:
            self._mailing.withdraw(mail, reason, now)

    def delete(self, hosted: Hosted, now: Instant) -> None:
        """Forget one; only its history stays."""
        self.leave(hosted)
        event = self._journal.event("hosted.deleted", hosted.record, now, is_gone=True)
        self._ledger.append((event,), self._undo_delete, hosted)

    def _undo_delete(self, hosted: Hosted, now: Instant) -> None:
        self.enter(hosted)


def after(record: HostedRecord, event: str) -> str:
    """Return how far the message of an attempt has got after this."""
    return tables.TRANSPORT.after(record.transport, event)


def version_of(report: ReportRecord) -> str:
    """Return what tells a report from one with other evidence about the to-do item."""
    return f"{report.digest} {report.todo_id or ''} {report.todo_status or ''}"
