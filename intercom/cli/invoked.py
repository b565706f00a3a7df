"""Show invocations, and follow one: what the verbs about them share."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from intercom.cli.identity import MOMENT_S
from intercom.cli.render import Output, visible, visible_block
from intercom.client.lifecycle import INVOKE
from intercom.client.texts import said_beside, wishes
from intercom.client.watches import WatchEvent
from intercom.limits import WORK_PAGE_CEILING

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.invoking import Following, InvocationView, Route
    from intercom.wire.invocations import RunState

NAMES = (
    ("invocationId", "id"),
    ("runId", "run_id"),
    ("state", "state"),
    ("action", "action"),
    ("target", "target"),
    ("targetId", "target_id"),
    ("targetName", "target_name"),
    ("requesterId", "requester_id"),
    ("createdAt", "created_at"),
    ("startedAt", "started_at"),
    ("completedAt", "completed_at"),
    ("takeUntil", "take_until"),
    ("placement", "placement"),
    ("attempts", "attempts"),
    ("cancelAskedAt", "cancel_asked_at"),
    ("task", "task"),
    ("context", "context"),
    ("metadata", "metadata"),
    ("messageId", "about"),
    ("summary", "summary"),
    ("output", "output"),
    ("error", "error"),
)
"""Members of a document, with the attributes they hold."""
DELIVERY = (
    ("deliveryId", "id"),
    ("targetBrokerId", "broker_id"),
    ("status", "status"),
    ("attempts", "attempts"),
    ("firstQueuedAt", "first_queued_at"),
    ("nextAttemptAt", "next_attempt_at"),
    ("peerAckedAt", "acked_at"),
    ("peerRunId", "run_id"),
    ("failureReason", "failure"),
    ("failureDetail", "failure_detail"),
)


def described(view: InvocationView) -> dict[str, Any]:
    """Return an invocation as a document; what is not known is left out."""
    members = {name: getattr(view, attribute) for name, attribute in NAMES}
    known = {name: value for name, value in members.items() if value is not None}
    flags = {name: True for name in ("reconciled", "stream") if getattr(view, name)}
    lists: dict[str, Any] = {"labels": list(view.labels)} if view.labels else {}
    if view.execution is not None:
        lists["execution"] = wishes(view.execution)
    if view.deliveries:
        lists["deliveries"] = [_members(each, DELIVERY) for each in view.deliveries]
    return {**known, **flags, **lists}


def _members(found: Any, names: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    members = {name: getattr(found, attribute) for name, attribute in names}
    return {name: value for name, value in members.items() if value is not None}


def described_route(route: Route) -> dict[str, Any]:
    """Return somebody who can be invoked as a document."""
    more = {name: getattr(route, name) for name in ("workspace", "harness", "model", "node")}
    known = {name: value for name, value in more.items() if value is not None}
    return {"targetId": route.target_id, "name": route.name, "label": route.label, "state": route.state, **known}


def open_tasks(session: Session, left: Callable[[], float]) -> list[InvocationView]:
    """Return what a session, or its address, was given to do and has not ended, the newest first.

    ``left`` tells the seconds there are for the next answer. A broker that knows no invocations has none.
    """
    if INVOKE not in session.features:
        return []
    found: list[InvocationView] = []
    while True:
        below = found[-1].number if found else None
        page = session.invocations(
            before=below, limit=WORK_PAGE_CEILING, open_only=True, as_target=True, timeout=left()
        )
        found += page
        if len(page) < WORK_PAGE_CEILING:
            return found


def show(view: InvocationView, output: Output) -> None:
    """Print how an invocation is, the result last."""
    output.line(f"{view.state}: {visible(view.id)} for {visible(view.target_name)}")
    if view.summary:
        output.line(visible(view.summary))
    if view.error:
        output.line(f"error: {visible(view.error)}")
    if view.output:
        output.line(visible_block(view.output))


def tell_state(invocation_id: str, state: RunState, output: Output) -> None:
    """Print how an invocation is after something was said of it."""
    output.document({"ok": True, "invocationId": invocation_id, "state": state})
    output.line(f"{state}: {visible(invocation_id)}")


def show_asked(view: InvocationView, output: Output) -> None:
    """Print what was asked for, for a person."""
    if output.as_json:
        return
    if view.task:
        output.line(f"task: {visible(view.task)}")
    if view.context:
        output.line(f"context: {visible(view.context)}")
    if beside := said_beside(view):
        output.line(f"with: {beside}")
    if view.metadata:
        output.line(f"metadata: {visible(encode(view.metadata).decode())}")
    for delivery in view.deliveries:
        why = f": {visible(delivery.failure_detail)}" if delivery.failure_detail else ""
        output.line(f"delivery: {delivery.status} after {delivery.attempts} attempts{why}")


def follow(session: Session, told: Following, arguments: Namespace, output: Output) -> None:
    """Print where a run stands, and each change until it has ended, or the time is over."""
    until = None if arguments.timeout is None else arguments.began + arguments.timeout
    left = None if until is None else max(MOMENT_S, until - time.monotonic())
    for event in session.watch(invocations=[told.id], timeout=left):
        if told.told(event):
            assert isinstance(event, WatchEvent), "a snapshot is no event"
            _show_event(told, event, output)
        else:
            output.document({"ok": True, "event": "snapshot", "invocationId": told.id, "state": told.state})
            output.line(f"now       {told.state}")
        if told.is_over or output.closed or (until is not None and time.monotonic() >= until):
            return


def _show_event(told: Following, event: WatchEvent, output: Output) -> None:
    output.document(
        {
            "ok": True,
            "event": "happened",
            "invocationId": told.id,
            "state": told.state,
            "kind": event.kind,
            "at": event.at,
            "detail": {name: value for name, value in event.detail.items() if name != "state"},
        }
    )
    moment = datetime.fromtimestamp(event.at / 1000).astimezone().strftime("%H:%M:%S")
    output.line(f"{moment}  {told.state:<10} {visible(event.kind)}")
