"""Check what requests about flows hold, strictly: nothing is cut, nothing guessed (protocol 12.1)."""

from __future__ import annotations

from unicodedata import category

from msgspec import UNSET, Struct

from intercom.core.flow_records import GatesRecord
from intercom.core.giving import No
from intercom.core.sessions import is_uuid
from intercom.limits import FLOW_RESOURCE_BYTES, FLOW_RESOURCES, FLOW_SUMMARY_BYTES, KIB, Limits
from intercom.wire.flows import SESSION_PREFIX, FlowReport, NewStep
from intercom.wire.frames import is_blank, trim
from intercom.wire.targets import SCHEME

_OF_NO_NAME = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that break a line, steer a terminal, or are none."""
_OF_NO_WORKER = ("@", SCHEME)
"""How what is addressed begins that is no single worker."""
_OF_PATTERNS = "*"
"""What no name of a target holds; a session that has it in its name is meant by its id."""


class CheckedStep(Struct, frozen=True):
    """Hold a step that may be written down."""

    step_id: str
    prompt: str
    gates: GatesRecord | None
    report_timeout_ms: int | None


def normalised(text: str) -> str:
    """Return the text with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def checked_target(target: str) -> str | No:
    """Return whom a flow is for as it is written down; what no session can ever be called is refused."""
    target = trim(normalised(target))
    if not target or target == SESSION_PREFIX:
        return No("invalid_flow", "The target names nobody")
    if any(category(character) in _OF_NO_NAME for character in target):
        return No("invalid_flow", "The target has a character that cannot be seen")
    if target.startswith(SESSION_PREFIX) and not is_uuid(target.removeprefix(SESSION_PREFIX)):
        return No("invalid_flow", f"What follows {SESSION_PREFIX} in the target is no session id")
    if target.startswith(_OF_NO_WORKER) or _OF_PATTERNS in target:
        return No("invalid_flow", "The target is no worker: persons, patterns and stages take no steps")
    return target


def checked_steps(steps: list[NewStep], taken: frozenset[str], limits: Limits) -> list[CheckedStep] | No:
    """Return the steps as they are written down; ``taken`` holds the ids the flow has already."""
    if not steps:
        return No("invalid_flow", "A flow needs at least one step")
    if len(steps) + len(taken) > limits.flow_steps:
        return No("flow_limit", f"A flow has at most {limits.flow_steps} steps")
    seen = set(taken)
    checked = []
    for step in steps:
        if step.step_id in seen:
            return No("invalid_flow", f"Two steps have the id {step.step_id}")
        seen.add(step.step_id)
        prompt = normalised(step.prompt)
        if is_blank(prompt):
            return No("invalid_flow", f"The prompt of step {step.step_id} is blank")
        if size(prompt) > limits.flow_prompt_bytes:
            longest = limits.flow_prompt_bytes // KIB
            return No("invalid_flow", f"The prompt of step {step.step_id} is longer than {longest} KiB")
        gates = None
        if step.todo_binding is not UNSET:
            label = None if step.todo_binding.label is UNSET else step.todo_binding.label
            if label is not None and not 0 < len(label) <= limits.flow_label_characters:
                longest = limits.flow_label_characters
                return No("invalid_flow", f"The label of step {step.step_id} is empty or longer than {longest}")
            gates = GatesRecord(label, step.todo_binding.require_completed, step.todo_binding.conflict_check)
        timeout = None if step.report_timeout_ms is UNSET else step.report_timeout_ms
        checked.append(CheckedStep(step.step_id, prompt, gates, timeout))
    return checked


def checked_reason(reason: str) -> str | No:
    """Return the reason of a retry or cancellation as it is written down."""
    reason = normalised(reason)
    if is_blank(reason):
        return No("invalid_flow", "The reason is blank")
    if size(reason) > FLOW_SUMMARY_BYTES:
        return No("invalid_flow", f"The reason is longer than {FLOW_SUMMARY_BYTES // KIB} KiB")
    return reason


def checked_report(frame: FlowReport) -> tuple[str, list[str]] | No:
    """Return summary and references of a report as they are written down."""
    summary = normalised(frame.summary)
    if is_blank(summary):
        return No("invalid_flow", "The summary is blank")
    if size(summary) > FLOW_SUMMARY_BYTES:
        return No("invalid_flow", f"The summary is longer than {FLOW_SUMMARY_BYTES // KIB} KiB")
    if len(frame.resources) > FLOW_RESOURCES:
        return No("invalid_flow", f"A report holds at most {FLOW_RESOURCES} resources")
    resources = [normalised(resource) for resource in frame.resources]
    for place, resource in enumerate(resources, 1):
        if is_blank(resource) or size(resource) > FLOW_RESOURCE_BYTES:
            longest = FLOW_RESOURCE_BYTES // KIB
            return No("invalid_flow", f"Resource {place} is blank or longer than {longest} KiB")
    return summary, resources
