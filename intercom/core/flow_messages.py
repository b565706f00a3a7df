"""Write the message that carries a dispatch: the prompt, and how its outcome is reported (protocol 12.4)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw
from msgspec.json import encode

from intercom.core.flow_records import DispatchRecord, FlowRecord, GatesRecord, StepRecord
from intercom.wire.flows import DISPATCH_PREFIX, FlowDispatch, TodoGates


def message_of(
    flow: FlowRecord, step: StepRecord, dispatch: DispatchRecord, prompt: str, attempt: int
) -> dict[str, Any]:
    """Return the message; its id is made from the id of the dispatch alone, and it is the same every time."""
    gates = None if dispatch.binding is None else step.gates
    carried = FlowDispatch(
        flow.flow_id,
        step.step_id,
        dispatch.dispatch_id,
        attempt,
        _instruction(flow, step, dispatch, gates),
        {"type": "flow_report", "dispatchId": dispatch.dispatch_id},
        todo_binding=UNSET if gates is None else shown_gates(gates),
    )
    return {
        "id": DISPATCH_PREFIX + dispatch.dispatch_id,
        "timestamp": dispatch.created_at,
        "content": {"text": prompt},
        "flowDispatch": Raw(encode(carried)),
    }


def _instruction(flow: FlowRecord, step: StepRecord, dispatch: DispatchRecord, gates: GatesRecord | None) -> str:
    text = (
        f"This is step {step.step_id} of flow {flow.flow_id}. When it is done, or cannot be done, report dispatch "
        f"{dispatch.dispatch_id} once as completed or failed, with a summary; an answer to this message is no report."
    )
    if gates is not None:
        item = "" if gates.label is None else f" called {gates.label}"
        text += f" Keep an item{item} in your to-do list for it, and report its id and its state with the outcome."
    return text


def shown_gates(gates: GatesRecord) -> TodoGates:
    """Return what a step asks of its to-do item as it goes on the wire."""
    label = UNSET if gates.label is None else gates.label
    return TodoGates(label, gates.require_completed, gates.conflict_check)
