"""Show flows to a person at a glance: steps, attempts, what is waited for and since when, what to do next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from intercom.cli.render import Output, clipped, duration, visible, who
from intercom.cli.tables import Fit, show_table
from intercom.limits import FLOW_TEXT_COLUMNS

if TYPE_CHECKING:
    from intercom.client.flowviews import Flow, FlowDispatch, FlowList, FlowWait, Step, TodoBinding
    from intercom.client.reporting import ReportRecord

HEAD = ("FLOW", "STATE", "STEPS", "TARGET", "AGE", "WAITS FOR")
STEP_HEAD = ("STEP", "STATE", "TRIED", "SINCE", "WHAT")
REPORT_HEAD = ("DISPATCH", "STATE", "OUTCOME", "SENT", "AGE", "SUMMARY")
_SIGNS = {
    "completed": "done",
    "awaiting_result": "running",
    "dispatching": "on its way",
    "pending": "pending",
    "failed": "FAILED",
    "ambiguous": "AMBIGUOUS",
    "cancelled": "cancelled",
}


def show_all(listed: FlowList, output: Output) -> None:
    """Show a list of flows."""
    now = time.time() * 1000
    rows = [
        (
            flow.flow_id,
            flow.state,
            f"{flow.steps_completed}/{flow.steps}",
            flow.target,
            duration(now - flow.created_at),
            "-" if flow.waiting is None else flow.waiting.what,
        )
        for flow in listed.flows
    ]
    if not rows:
        output.line("no flows")
        return
    show_table(
        output, HEAD, rows, Fit(whole=("FLOW",), names=("TARGET",), start_first=("WAITS FOR",), left_out=("AGE",))
    )
    if listed.total > len(rows):
        output.line(f"and {listed.total - len(rows)} older ones")


def show_flow(flow: Flow, output: Output, options: str) -> None:
    """Show one flow; ``options`` are those that make a command act as this one does, each after a space."""
    now = time.time() * 1000
    output.line(
        f"flow {visible(flow.flow_id)} is {flow.state}; for {visible(flow.target)}{_presence(flow)}, "
        f"group {visible(flow.group)}, by {_creator(flow)}"
    )
    attempts = {one.dispatch_id: one for one in flow.dispatches or ()}
    if flow.dispatch is not None:
        attempts.setdefault(flow.dispatch.dispatch_id, flow.dispatch)
    rows = [
        (
            step.step_id,
            _SIGNS.get(step.state, step.state),
            str(len(step.attempts)) if step.attempts else "-",
            _since(step, attempts, now),
            _what(step, attempts),
        )
        for step in flow.steps
    ]
    show_table(output, STEP_HEAD, rows, Fit(whole=("STEP",), start_first=("WHAT",), left_out=("SINCE",)))
    for step in flow.steps:
        last = attempts.get(step.current_dispatch_id or "")
        if last is not None and last.binding is not None:
            output.line(f"to-do item of step {visible(step.step_id)}: {_item(last.binding)}")
    if flow.reason is not None and flow.state != "completed":
        last_one = "" if flow.state in ("failed", "cancelled") else "last "
        output.line(f"{last_one}reason: {visible(flow.reason)}")
    if flow.waiting is not None:
        output.line(f"waits for {visible(flow.waiting.what)}, for {_waited(flow.waiting, now)}")
    if flow.dispatch is not None and flow.dispatch.waits_until is not None:
        output.line(f"ambiguous in {duration(flow.dispatch.waits_until - now)} unless something comes first")
    if flow.next_actions:
        output.line("next:")
    for action in flow.next_actions:
        output.line(f"  {_command(action, flow, options)}")


def show_reports(reports: list[ReportRecord], output: Output) -> None:
    """Show what a worker has written down to report, the oldest first."""
    now = time.time() * 1000
    rows = [
        (
            report.dispatch_id,
            report.state if report.last_error is None else f"{report.state}, {report.last_error}",
            report.outcome,
            str(report.attempts),
            duration(now - report.prepared_at),
            _first_line(report.summary),
        )
        for report in reports
    ]
    if not rows:
        output.line("no reports")
        return
    show_table(output, REPORT_HEAD, rows, Fit(whole=("DISPATCH",), start_first=("SUMMARY",), left_out=("AGE",)))


def _creator(flow: Flow) -> str:
    """Return what the creator was called; of one without a name and an address only its id is known."""
    name = flow.created_by
    return who(None, name) if flow.creator_address is None else visible(name)


def _presence(flow: Flow) -> str:
    target = flow.target_state
    if target is None:
        return ""
    if target.found:
        return " (here)"
    return f" (not reachable: {visible(target.reason or 'not here')})"


def _since(step: Step, attempts: dict[str, FlowDispatch], now: float) -> str:
    last = attempts.get(step.current_dispatch_id or "")
    if last is None:
        return "-"
    at = last.completed_at or last.accepted_at or last.published_at or last.created_at
    return duration(now - at)


def _what(step: Step, attempts: dict[str, FlowDispatch]) -> str:
    """Return the summary of what was reported, why it came to nothing, or what is to be done."""
    last = attempts.get(step.current_dispatch_id or "")
    if last is not None and last.report is not None and last.report.summary is not None:
        text = last.report.summary
    elif last is not None and last.reason is not None:
        text = last.reason
    else:
        text = step.prompt or "-"
    return _first_line(text)


def _first_line(text: str) -> str:
    first, _, more = text.strip().partition("\n")
    cut = clipped(visible(first), FLOW_TEXT_COLUMNS)
    return cut if not more or cut.endswith("...") else f"{cut} ..."


def _item(binding: TodoBinding) -> str:
    """Say what is known of the to-do item a step is bound to."""
    if not binding.negotiated:
        return "not asked for, the worker keeps no to-do list for the broker"
    named = "" if binding.todo_id is None else f", {visible(binding.todo_id)} is {binding.todo_status}"
    why = "" if binding.reason is None else f": {visible(binding.reason)}"
    return f"{binding.state}{named}{why}"


def _waited(waiting: FlowWait, now: float) -> str:
    return duration(now - waiting.since)


def _command(action: str, flow: Flow, options: str) -> str:
    """Return the command for an action, as it can be typed; what is in capitals is for its reader to say."""
    verb, _, step = action.partition(" ")
    last = flow.steps[-1].step_id
    more = {"retry": f" {step} --reason TEXT", "cancel": " --reason TEXT", "append": f" --after {last} --step ID=TEXT"}
    return f"intercom flow {verb}{options} {visible(flow.flow_id)}{visible(more.get(verb, ''))}"
