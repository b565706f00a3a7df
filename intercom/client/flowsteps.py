"""Hold what a message brings that is a step of a flow."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, ValidationError, convert

from intercom.wire.flows import DISPATCH_PREFIX, FlowDispatch, TodoGates


class FlowStep:
    """Hold a step of a flow that a message brought; reported by ``report`` of the session's own kind.

    ``instruction`` tells whoever does the step how to report it; ``todo`` what is asked of an item of its to-do list;
    ``attempt`` counts from 1.
    """

    __slots__ = ("attempt", "dispatch_id", "flow_id", "instruction", "step_id", "todo")

    def __init__(self, carried: FlowDispatch) -> None:
        self.flow_id = carried.flow_id
        self.step_id = carried.step_id
        self.dispatch_id = carried.dispatch_id
        self.attempt = carried.attempt
        self.instruction = carried.instruction
        self.todo: TodoGates | None = None if carried.todo_binding is UNSET else carried.todo_binding

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.step_id!r} of {self.flow_id!r}, {self.dispatch_id}>"


def step_in(raw: dict[str, Any], message_id: str) -> FlowStep | None:
    """Return the step a message brings under the id that belongs to it; ``None``: it is a message like any."""
    member = raw.get("flowDispatch")
    if not isinstance(member, dict) or not message_id.startswith(DISPATCH_PREFIX):
        return None
    try:
        carried = convert(member, FlowDispatch)
    except ValidationError:
        return None
    return FlowStep(carried) if message_id == DISPATCH_PREFIX + carried.dispatch_id else None
