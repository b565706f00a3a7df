"""Take the reports of steps whose flow is at another broker, and bring them there (protocol 12.11).

    reported --stored here--> posted --the broker of the flow--> answered
                                ^            |
                                +-- nothing --+

Rule 1: a report is stored here before anybody is told so, and brought until the broker of the flow has said what became
of it. Rule 2: its worker is told that in the answer, or that it is stored, whichever is so in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow_records import AnswerRecord, HostedRecord, ReportRecord
from intercom.core.flow_reports import Kept, digest_of, report_of
from intercom.core.flow_validation import checked_report
from intercom.core.forwarding import pause_ms
from intercom.core.giving import Giving, No
from intercom.core.hosted import Hosted, Hosting, version_of
from intercom.core.records import ReadBodies, ReleaseBody, SaveBody
from intercom.core.step_letters import REPORT, ReportedLetter, ReportLetter
from intercom.wire.flows import DISPATCH_PREFIX, REPORT_PREFIX, FlowReport, FlowReportRecorded

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.flow_targets import FlowTargets
    from intercom.core.ground import Ground
    from intercom.core.mailing import Mailing
    from intercom.core.sessions import Session
    from intercom.core.tasks_out import Postman


class BringingReport(Struct, frozen=True):
    """Remember whose report is brought while its text is read."""

    hosted: Any


class _Reporter(Struct, frozen=True):
    """Remember who waits for what becomes of a report."""

    connection: Any
    session: Any
    request_id: str


class HostedReports:
    """Hold the reports.

    Args:
        accept: records that the worker has a step that was handed over so often.
        freed: is told of every change after which the session may be free.
    """

    def __init__(
        self,
        ground: Ground,
        hosting: Hosting,
        targets: FlowTargets,
        mailing: Mailing,
        postman: Postman,
        next_number: Callable[[], int],
        accept: Callable[[Hosted, int, Instant], None],
        freed: Callable[[Hosted, Instant], None],
    ) -> None:
        self._ledger = ground.ledger
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._hosting = hosting
        self._targets = targets
        self._mailing = mailing
        self._postman = postman
        self._next_number = next_number
        self._accept = accept
        self._freed = freed
        self._giving = Giving(ground.outbox, ground.ledger)

    def take(self, connection: Connection, session: Session, frame: FlowReport, now: Instant) -> No | None:
        """Take the report of an attempt that is of no flow here; return why it is refused."""
        hosted = self._hosting.get(frame.dispatch_id)
        if hosted is None:
            return No("dispatch_unknown", f"No dispatch {frame.dispatch_id} is known here")
        record = hosted.record
        if not self._targets.may_report(session, record.identity, record.address):
            reason = "Only the session that was handed this step, or one that acts under its address, may report it"
            return No("not_flow_target", reason)
        content = checked_report(frame)
        if isinstance(content, No):
            return content
        if record.report is None and record.transport == tables.TRANSPORT.begins:
            return No("dispatch_unknown", f"Dispatch {frame.dispatch_id} has not been handed over yet")
        digest = digest_of(frame.outcome, *content)
        report = report_of(frame, self._next_number(), digest, now)
        is_brought = not self._targets.is_exactly(session, record.identity)
        if record.report is None and record.over_at is not None:
            # It is told to the broker of the flow all the same, which notes that it came.
            self._post_report(hosted, report, Kept(*content), session.id, is_brought)
            why = f": {record.reason}" if record.reason else ""
            return No("dispatch_closed", f"This attempt is over already{why}; do not report it again")
        if record.report is None:
            self._prove_arrival(hosted, session, now)
            self._keep_report(hosted, report, encode(Kept(*content)), now)
        elif record.report.digest != digest:
            return No("report_conflict", "Another report of this dispatch was recorded; that one stays")
        elif report.todo_id is not None and version_of(report) != version_of(record.report):
            if record.over_at is not None:
                return No("report_conflict", "The dispatch was decided about with what its first report said")
            self._keep_report(hosted, replace(report, at=record.report.at), encode(Kept(*content)), now)
        elif record.answer is not None and record.answer.step_state != "awaiting_result":
            self._give(_Reporter(connection, session, frame.request_id), record, record.answer)
            return None
        assert hosted.record.report is not None, "it was stored by now"
        reporter = _Reporter(connection, session, frame.request_id)
        if self._postman.is_cut_off(hosted.record.peer):
            self._arm(hosted, self._limits.peer_absent_ms, now)
            self._say_stored(hosted, reporter)
            return None
        self._post_report(hosted, hosted.record.report, Kept(*content), session.id, is_brought)
        self._arm(hosted, pause_ms(hosted.id, hosted.attempts, self._limits), now)
        hosted.waiting.append(reporter)
        self._ledger.rest(self._ledger.last_ticket, self._append_failed, (hosted, reporter, hosted.record.report))
        self._deadlines.add(now.mono + self._limits.receipt_wait_ms, self._waited, (hosted, reporter))
        return None

    def _prove_arrival(self, hosted: Hosted, session: Session, now: Instant) -> None:
        """Let the report stand for a receipt that has not come."""
        if hosted.record.transport == "published":
            self._mailing.received(session, DISPATCH_PREFIX + hosted.id, now)
        if hosted.record.transport == "published":
            mail = hosted.mail
            self._accept(hosted, 1 if mail is None else mail.offers, now)
            self._hosting.withdraw(mail, "the worker reported it before it confirmed it", now)

    def _keep_report(self, hosted: Hosted, report: ReportRecord, text: bytes, now: Instant) -> None:
        """Store a report, and from now on bring it until it is answered."""
        before = hosted.record.report
        released = () if before is None else (ReleaseBody(before.body, now.wall),)
        changes = (SaveBody(report.body, text), *released)
        self._hosting.change(hosted, f"hosted.reported_{report.outcome}", now, *changes, report=report, answer=None)
        hosted.attempts = 0
        self._freed(hosted, now)

    def _post_report(self, hosted: Hosted, report: ReportRecord, kept: Kept, by: str, is_brought: bool) -> None:
        letter = ReportLetter(
            hosted.id,
            report.outcome,  # type: ignore[arg-type]  # came from the wire
            kept.summary,
            tuple(kept.resources),
            version_of(report),
            by,
            report.todo_id,
            report.todo_status,  # type: ignore[arg-type]  # came from the wire
            report.prepared_at,
            report.attempts,
            max(1, hosted.record.offers),
            is_brought,
        )
        hosted.attempts += 1
        self._postman.post(hosted.record.peer, REPORT, hosted.id, letter, self._ledger.last_ticket)

    def _waited(self, subject: tuple[Hosted, _Reporter], now: Instant) -> None:
        """Answer that a report is stored, where the broker of the flow has not answered in time."""
        hosted, reporter = subject
        if reporter in hosted.waiting:
            hosted.waiting.remove(reporter)
            self._say_stored(hosted, reporter)

    def _append_failed(self, subject: tuple[Hosted, _Reporter, ReportRecord], now: Instant) -> None:
        """Refuse a report that could not be stored; one that was before is still brought."""
        hosted, reporter, report = subject
        if reporter in hosted.waiting and hosted.record.report is not report:
            hosted.waiting.remove(reporter)
            if reporter.connection.session is reporter.session:
                self._giving.refuse(reporter.connection, reporter.request_id, self._giving.not_recorded)

    def _say_stored(self, hosted: Hosted, reporter: _Reporter) -> None:
        if reporter.connection.session is reporter.session:
            report_id = REPORT_PREFIX + hosted.id
            answer = FlowReportRecorded(reporter.request_id, report_id, "stored", "awaiting_result")
            self._giving.promise(reporter.connection, answer)

    def _give(self, reporter: _Reporter, record: HostedRecord, answer: AnswerRecord) -> None:
        """Answer with what the broker of the flow said."""
        if reporter.connection.session is not reporter.session:
            return
        if answer.step_state is None:
            no = No(answer.code or "dispatch_unknown", answer.reason)
            self._giving.decline(reporter.connection, reporter.request_id, no)
            return
        report_id, state = REPORT_PREFIX + record.dispatch_id, answer.step_state
        recorded = FlowReportRecorded(reporter.request_id, report_id, "accepted", state)  # type: ignore[arg-type]
        self._giving.promise(reporter.connection, recorded)

    def answered(self, hosted: Hosted, letter: ReportedLetter, now: Instant) -> None:
        """Take what the broker of a flow said to a report."""
        report = hosted.record.report
        if report is None or version_of(report) != letter.version:
            return
        answer = AnswerRecord(letter.step_state, letter.code, letter.reason)
        if answer != hosted.record.answer:
            released = ReleaseBody(report.body, now.wall + self._limits.bodies_kept_ms)
            self._hosting.change(hosted, "hosted.answered", now, released, answer=answer)
            self._freed(hosted, now)
        self.forget(hosted)
        waiting, hosted.waiting = hosted.waiting, []
        for reporter in waiting:
            self._give(reporter, hosted.record, answer)

    def _arm(self, hosted: Hosted, in_ms: int, now: Instant) -> None:
        self._deadlines.cancel(hosted.deadline)
        hosted.deadline = self._deadlines.add(now.mono + in_ms, self._is_due, hosted)

    def _is_due(self, hosted: Hosted, now: Instant) -> None:
        """Bring a report that was not answered once more, as soon as its broker can be reached."""
        hosted.deadline = None
        report = hosted.record.report
        if report is None or not hosted.owes_report or self._ledger.is_closed:
            return
        if self._postman.is_cut_off(hosted.record.peer):
            self._arm(hosted, self._limits.peer_absent_ms, now)
            return
        self._arm(hosted, pause_ms(hosted.id, hosted.attempts + 1, self._limits), now)
        self._outbox.add(ReadBodies(BringingReport(hosted), (report.body,)))

    def read(
        self, token: BringingReport, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Bring a report whose text was read; None: it could not be, and is read again later."""
        hosted: Hosted = token.hosted
        report = hosted.record.report
        if bodies is None or report is None or not hosted.owes_report or report.body not in numbers:
            return
        if report.body not in bodies:
            if self._ledger.is_committed(self._ledger.last_ticket):
                self._text_lost(hosted, report, now)
            return
        self._post_report(hosted, report, decode(bodies[report.body], type=Kept), hosted.session_id, False)

    def _text_lost(self, hosted: Hosted, report: ReportRecord, now: Instant) -> None:
        """Let a report be none whose text a rebuilt store does not hold: its worker may make it again."""
        self.forget(hosted)
        self._hosting.change(hosted, "hosted.report_lost", now, report=None)

    def try_now(self, hosted: Hosted, now: Instant) -> None:
        """Bring a report that was not answered once more."""
        if hosted.owes_report:
            self._deadlines.cancel(hosted.deadline)
            self._is_due(hosted, now)

    def forget(self, hosted: Hosted) -> None:
        """Bring its report no more."""
        self._deadlines.cancel(hosted.deadline)
        hosted.deadline = None
