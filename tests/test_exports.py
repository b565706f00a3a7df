"""The public names: which there are, where they come from, and that they cost nothing before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import intercom
from intercom import errors

NAMES = {
    "AddressView", "Assignment", "AssignmentView", "Assignments", "AsyncStageQueue", "Attachment", "Command",
    "CommandView", "Commands", "Connection", "DeliveryState", "Diagnosis", "Dispatched", "EmbeddedBroker",
    "EventView", "Events", "Execution", "Flow", "FlowCalls", "FlowDispatch", "FlowList", "FlowReported", "FlowStep",
    "FlowSummary", "GroupView", "InboxPage", "InboxPresence", "IncomingMessage", "Invocation", "InvocationDelivery",
    "InvocationView", "Invoked", "KeptMessage", "LinkView", "LiveStage", "Mail", "Mailbox", "MailboxEntry", "Messages",
    "Notice", "OutboxItem", "OutboxPage",
    "ParkedMessage", "Peeked", "PendingAsk", "Policies", "PolicyRule", "PolicyView", "PossibleStage",
    "Purged", "Receipt", "RosterStage", "Route", "Run", "Session", "SessionEvent", "SessionRecord", "SessionView",
    "StageAnswer", "StageQueue", "StageRequest", "StageView", "Step", "StepReport", "Task", "TodoOutcome", "Trace",
    "TraceEvent", "UnconfirmedMessage", "Wait", "Waits", "WatchEvent", "WatchSnapshot", "WatchedState", "Watching",
    "__version__", "blocking", "connect", "serve",
}  # fmt: skip

SESSION = {
    "addresses", "announce", "answer", "ask", "ask_supervisor", "assignment", "assignments", "authorize_child",
    "busy", "cancel_invocation", "claim", "command", "command_list", "commands", "dispatch", "drain", "events",
    "features", "fetch", "flows", "force_close", "former_ids", "groups", "id", "inbox", "inbox_message",
    "inbox_presence", "invocation", "invocations", "invoke", "join", "leave", "link_events", "links", "list",
    "list_groups", "list_stages", "mailbox", "messages", "model", "name", "open_assignments", "outcome",
    "pending", "policies", "purge", "receive", "release_child", "repin_link", "reply_to", "report",
    "report_event", "reserve_child", "resolve", "send", "send_command", "send_supervisor", "session_records",
    "set_policy", "set_presence", "settle", "settle_held", "spawn", "stage", "status", "supervisor_id",
    "task_hint", "trace", "unstored_events", "update_run", "wait_for_assignment", "waiting", "waits", "watch",
    "workflow",
"peek", "settle_mail", "outbox", "retry_outbox", "cancel_outbox",
}  # fmt: skip

ASSIGNMENT = {"accept", "fail", "invocation", "reply", "report", "started", "waiting"}
RUN = {"announce", "capability", "group", "id", "lost", "notify", "target"}


def test_the_public_names() -> None:
    error_names = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert set(intercom.__all__) == NAMES | error_names
    assert dir(intercom) == sorted(intercom.__all__)
    assert intercom.__all__ == sorted(intercom.__all__)


@pytest.mark.parametrize("name", intercom.__all__)
def test_every_name_is_there(name: str) -> None:
    value = getattr(intercom, name)
    assert value is getattr(intercom, name)


def test_names_are_the_ones_of_their_modules() -> None:
    from intercom.client import aio, blocking, feeds, queueing, rosters, stage_views, views

    assert intercom.connect is aio.connect
    assert intercom.Session is aio.Session
    assert intercom.IncomingMessage is aio.IncomingMessage
    assert intercom.blocking is blocking
    assert intercom.Events is aio.Events
    assert intercom.SessionEvent is feeds.SessionEvent
    assert intercom.Receipt is views.Receipt
    assert intercom.Run is aio.Run
    assert intercom.StageAnswer is queueing.StageAnswer
    assert intercom.RosterStage is rosters.RosterStage
    assert intercom.StageView is stage_views.StageView
    assert intercom.NoBroker is errors.NoBroker


def test_both_shells_have_the_same_calls() -> None:
    from intercom.client import aio, assignment, blocking, views
    from intercom.client.owning import RunShell

    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(aio.Session) == calls(blocking.Session) == SESSION
    assert (
        calls(aio.IncomingMessage)
        == calls(blocking.IncomingMessage)
        == {"confirm", "invocation", "reply", *calls(views.IncomingMessage)}
    )
    assert calls(aio.Run) | {"serve"} == calls(blocking.Run)
    assert calls(blocking.Run) | calls(RunShell) == RUN | {"serve"}
    assert calls(aio.LiveStage) == calls(blocking.LiveStage) == {"lost"}
    assert calls(aio.Assignment) == calls(blocking.Assignment) == ASSIGNMENT | calls(assignment.Assignment)
    public = {
        "Assignment",
        "Assignments",
        "Command",
        "Commands",
        "Events",
        "FlowCalls",
        "FlowStep",
        "IncomingMessage",
        "LiveStage",
        "Messages",
        "Run",
        "Session",
        "Watching",
        "connect",
    }
    assert set(blocking.__all__) == public


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'surprise'"):
        _ = intercom.surprise  # type: ignore[attr-defined]


@pytest.mark.loads
def test_the_package_alone_loads_nothing() -> None:
    """Names are loaded on first use; the version is a literal."""
    code = (
        "import sys, importlib; before = set(sys.modules); import intercom; intercom.__version__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["__future__", "intercom"]


@pytest.mark.loads
def test_the_errors_cost_no_event_loop() -> None:
    code = (
        "import sys, intercom; intercom.IntercomError; intercom.blocking; "
        "print({'asyncio', 'anyio'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
