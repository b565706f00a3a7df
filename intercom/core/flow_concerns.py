"""Say whom the events of flows concern, and what of them is shown (protocol 12.9).

A flow concerns the coordinators of its group; an attempt concerns its worker as well. No text is shown but reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from intercom.core.clock import Instant
from intercom.core.concerns import Concern, State, key
from intercom.core.flow_book import FlowBook
from intercom.core.flow_records import DispatchRecord, FlowRecord, HostedRecord
from intercom.core.records import Happened
from intercom.core.watches import Watches


def of_flow(event: Happened) -> Concern:
    """Say it of a flow."""
    row = event.row
    assert isinstance(row, FlowRecord)
    return flow_concern(row, event.detail)


def flow_concern(row: FlowRecord, detail: dict[str, Any]) -> Concern:
    """Say whom a flow concerns; ``detail`` is what is shown beside its state."""
    shown = {**detail, "state": row.state}
    if row.reason is not None and "reason" not in shown:
        shown["reason"] = row.reason
    return Concern((key("flow", row.flow_id),), {"flowId": row.flow_id}, (row.group,), shown)


def of_dispatch(event: Happened) -> Concern:
    """Say it of an attempt."""
    row = event.row
    assert isinstance(row, DispatchRecord)
    session_id = row.identity.session_id
    about = {"flowId": row.flow_id, "dispatchId": row.dispatch_id, "stepId": row.step_id, "sessionId": session_id}
    shown = {**event.detail, "transport": row.transport, "outcome": row.outcome}
    if row.reason is not None:
        shown["reason"] = row.reason
    return Concern((key("flow", row.flow_id), key("session", session_id)), about, (row.group,), shown)


def of_hosted(event: Happened) -> Concern:
    """Say it of an attempt whose flow is at another broker: here it concerns its worker."""
    row = event.row
    assert isinstance(row, HostedRecord)
    session_id = row.identity.session_id
    about = {"flowId": row.flow_id, "dispatchId": row.dispatch_id, "stepId": row.step_id, "sessionId": session_id}
    shown = {**event.detail, "transport": row.transport, "brokerId": row.peer}
    if row.reason is not None:
        shown["reason"] = row.reason
    return Concern((key("session", session_id),), about, (row.group,), shown)


class Mentions:
    """Mention to those who follow a flow what no journal keeps of it."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches

    @property
    def is_heard(self) -> bool:
        """Tell whether anybody may follow."""
        return self._watches.is_any

    def mention(self, kind: str, flow: FlowRecord, dispatch: DispatchRecord | None, now: Instant, **more: Any) -> None:
        """Mention it, with more detail; ``dispatch`` is the attempt it is about."""
        about = {"flowId": flow.flow_id}
        keys = [key("flow", flow.flow_id)]
        if dispatch is not None:
            about |= {"dispatchId": dispatch.dispatch_id, "stepId": dispatch.step_id}
            keys.append(key("session", dispatch.identity.session_id))
        self._watches.mention(kind, Concern(tuple(keys), about, (flow.group,), more), now)


class FlowStates:
    """Tell how flows are."""

    def __init__(self, book: FlowBook) -> None:
        self._book = book

    def one(self, flow_id: str) -> State | None:
        """Return how one flow is."""
        flow = self._book.flow(flow_id)
        return None if flow is None else _state(flow.record)

    def every(self) -> Iterable[State]:
        """Return how all flows are that are not over."""
        return [_state(flow.record) for flow in self._book.live()]


def _state(record: FlowRecord) -> State:
    steps = {step.step_id: step.state for step in record.steps}
    return State("flow", record.state, flow_concern(record, {"steps": steps}))
