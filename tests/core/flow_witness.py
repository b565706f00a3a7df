"""Watch a world with flows: hold what was told and what is on disk against the rules that hold always."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from intercom.core.effects import Write
from intercom.core.flow_tables import FLOW, LIVE, OUTCOME, STEP
from intercom.core.records import DispatchRecord, FlowRecord
from intercom.limits import Limits
from tests.core.harness import Disk, Watcher, World


class FlowDisk(Disk):
    """Check every flow and attempt as it is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = defaultdict(list)
        """Rows by stream, the oldest first."""

    def commit(self, append: Any) -> None:
        super().commit(append)
        for change in append.changes:
            row = getattr(change, "row", None)
            if isinstance(row, FlowRecord | DispatchRecord):
                rows = self.history[change.stream]
                assert row.revision == (rows[-1].revision + 1 if rows else 1), (change.kind, row)
                if rows:
                    (check_flow if isinstance(row, FlowRecord) else check_dispatch)(rows[-1], row)
                rows.append(row)
        self.check_open()

    def check_open(self) -> None:
        """At most one attempt is under way for a flow, and one at a session (A2.11)."""
        rows = [row for row in self.dispatches.values() if row.outcome == "pending"]
        flows = [row.flow_id for row in rows]
        targets = [(row.identity.session_id, row.identity.incarnation) for row in rows]
        assert len(set(flows)) == len(flows), flows
        assert len(set(targets)) == len(targets), targets


def check_flow(before: FlowRecord, after: FlowRecord) -> None:
    """Object to a flow whose past was changed (A2.13), and to a move that is not in the tables."""
    assert before.state == after.state or any(
        FLOW.moves[move] == after.state for move in FLOW.moves if move[0] == before.state
    ), (before.state, after.state)
    assert before.state not in FLOW.ends() or (after.state == before.state and before.steps == after.steps)
    order = [step.step_id for step in after.steps]
    assert [step_id for step_id in order if before_step(before, step_id)] == [step.step_id for step in before.steps]
    for step in after.steps:
        old = before_step(before, step.step_id)
        if old is None:
            assert (step.state, step.attempts) == (STEP.begins, ())
            continue
        assert (old.body, old.gates, old.report_timeout_ms) == (step.body, step.gates, step.report_timeout_ms)
        is_longer = step.attempts[: len(old.attempts)] == old.attempts
        assert is_longer or (step.attempts == old.attempts[:-1] and step.state == "pending"), "attempts were altered"
        assert old.state != "completed" or step == old, "a completed step was altered"


def before_step(flow: FlowRecord, step_id: str) -> Any:
    return next((step for step in flow.steps if step.step_id == step_id), None)


def check_dispatch(before: DispatchRecord, after: DispatchRecord) -> None:
    """Object to an outcome that changes, an intent that changes, and a report that is replaced."""
    assert before.outcome in ("pending", after.outcome), (before.outcome, after.outcome)
    assert before.outcome == "pending" or (before.completed_at, before.reason) == (after.completed_at, after.reason)
    intent = ("dispatch_id", "flow_id", "step_id", "identity", "created_at", "correlation", "negotiated", "address")
    assert all(getattr(before, name) == getattr(after, name) for name in intent)
    if before.report is not None:
        assert after.report is not None and before.report.digest == after.report.digest
    for name in ("published_at", "accepted_at", "ignored_at"):
        assert getattr(before, name) in (None, getattr(after, name)), name
    if before.binding is not None and before.binding.todo_id is not None:
        assert after.binding is not None and after.binding.todo_id == before.binding.todo_id


class FlowWitness(Watcher):
    """Remember what each session was told of flows."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.disk = FlowDisk()
        self.seen: dict[str, set[str]] = defaultdict(set)
        """Message objects a dispatch was handed over as, by its id: one, however often it came."""
        self.takers: dict[str, set[tuple[str, str]]] = defaultdict(set)
        """Sessions and incarnations that were handed it."""
        self.told_of: dict[int, tuple[str, str]] = {}
        """Session and incarnation by connection."""
        self.under: dict[int, str] = {}
        """Names of addresses by the connections that registered under them."""
        self.said: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        """Reports that were written, by dispatch, with their connection."""
        self.world = World(limits=limits, disk=self.disk, watcher=self, auto=False)

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        if frame["type"] in ("registered", "session_reattached") and "incarnation" in frame:
            self.told_of[write.to] = (frame["sessionId"], frame["incarnation"])
        carried = frame.get("message", {}).get("flowDispatch") if frame["type"] == "message" else None
        if carried is not None:
            dispatch_id = carried["dispatchId"]
            assert frame["message"]["id"] == f"flow-dispatch/{dispatch_id}"
            rows = [row for row in self.disk.dispatches.values() if row.dispatch_id == dispatch_id]
            assert rows, "a step was handed over before its intent was on disk"
            assert rows[0].published_at is not None, "a step was handed over before that was on disk"
            self.seen[dispatch_id].add(repr(frame["message"]))
            self.takers[dispatch_id].add(self.told_of[write.to])
            assert len(self.seen[dispatch_id]) == 1, "one dispatch was two messages"
            identity = rows[0].identity
            assert self.takers[dispatch_id] == {(identity.session_id, identity.incarnation)}, "another was handed it"
        if frame["type"] == "flow_report_recorded":
            dispatch_id = frame["reportMessageId"].removeprefix("flow-report/")
            assert any(row.report for row in self.disk.history[f"dispatch:{dispatch_id}"]), "told before it was on disk"

    def may_report(self, conn: int, row: DispatchRecord) -> bool:
        """Tell whether a connection is the very session that was handed it, or acts under the address of that one."""
        identity = row.identity
        if self.told_of.get(conn) == (identity.session_id, identity.incarnation):
            return True
        address = None if row.address is None else self.disk.addresses.get(row.address)
        return address is not None and self.under.get(conn) == address.name

    def check_disk(self) -> None:
        """Object to a step that is completed without an exact report, and to events that tell other rows."""
        disk = self.disk
        by_id = {row.dispatch_id: row for row in disk.dispatches.values()}
        for flow in disk.flows.values():
            open_here = [row for row in by_id.values() if row.flow_id == flow.flow_id and row.outcome == "pending"]
            assert not open_here or flow.state in LIVE, "a flow that is over has an attempt under way"
            for step in flow.steps:
                if step.state in ("completed", "failed"):
                    row = by_id[step.current or ""]
                    assert row.outcome == step.state and row.report is not None
                    assert row.report.outcome == step.state
                    assert any(
                        frame["outcome"] == step.state and self.may_report(conn, row)
                        for conn, frame in self.said[row.dispatch_id]
                    ), "a step ended as nobody reported who may"
                if step.state in ("dispatching", "awaiting_result"):
                    assert by_id[step.current or ""].outcome == "pending"
                    assert flow.active_step == step.step_id
            live_steps = [step.state for step in flow.steps]
            assert flow.state != "completed" or set(live_steps) == {"completed"}
            assert flow.state != "cancelled" or set(live_steps) <= {"completed", "cancelled"}
        for row in by_id.values():
            if row.outcome in ("completed", "failed"):
                who = self.takers[row.dispatch_id]
                assert (row.identity.session_id, row.identity.incarnation) in who, "reported and never handed over"
        rows: dict[tuple[str, int], Any] = {}
        for event in disk.journal:
            if isinstance(event.row, FlowRecord | DispatchRecord):
                key = (type(event.row).__name__, event.row.number)
                if event.is_gone:
                    rows.pop(key, None)
                else:
                    rows[key] = event.row
        live: dict[tuple[str, int], Any] = {("FlowRecord", number): flow for number, flow in disk.flows.items()}
        live |= {("DispatchRecord", number): row for number, row in disk.dispatches.items()}
        assert rows == live

    def check_memory(self) -> None:
        """Object to memory that says something else than the disk although nothing is under way."""
        broker: Any = self.world.broker
        book = broker._flows.book
        assert {flow.record.number: flow.record for flow in book.flows()} == self.disk.flows
        assert {one.record.number: one.record for one in book._dispatches.values()} == self.disk.dispatches
        open_rows = {row.dispatch_id for row in self.disk.dispatches.values() if row.outcome == OUTCOME.begins}
        assert {one.id for one in book._open.values()} == open_rows
        assert {one.id for one in book._open_by_session.values()} == open_rows
        mail = {
            row.message_id.removeprefix("flow-dispatch/") for row in self.disk.mail.values() if not row.sender_session
        }
        for dispatch in book._dispatches.values():
            waits = dispatch.is_open and dispatch.record.transport in ("prepared", "published")
            is_there = broker._flows.finder.known_as(dispatch.record.identity) is not None
            assert dispatch.id not in mail or (waits and is_there), "a message waits for nobody"
            assert dispatch.id in mail or not (waits and is_there and dispatch.record.evidence is None), "it is lost"
            assert (dispatch.mail is not None) == (dispatch.id in mail)
