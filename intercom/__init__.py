"""Let coding-agent sessions on one machine find each other and talk."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing costs more than everything a command needs of this module
if TYPE_CHECKING:
    from intercom.client import blocking
    from intercom.client.aio import (
        Assignment,
        Assignments,
        Command,
        Commands,
        Connection,
        Events,
        FlowCalls,
        FlowStep,
        IncomingMessage,
        LiveStage,
        Messages,
        Run,
        Session,
        Watching,
        connect,
    )
    from intercom.client.attending import KeptMessage, Policies, PolicyRule, PolicyView, Wait, Waits
    from intercom.client.feeds import SessionEvent
    from intercom.client.flowviews import (
        Flow,
        FlowDispatch,
        FlowList,
        FlowReported,
        FlowSummary,
        Step,
        StepReport,
        TodoOutcome,
    )
    from intercom.client.linkviews import CommandView, EventView, LinkView
    from intercom.client.mailviews import (
        AddressView,
        Mailbox,
        MailboxEntry,
        PendingAsk,
        Purged,
        SessionRecord,
        Trace,
        TraceEvent,
        UnconfirmedMessage,
    )
    from intercom.client.queueing import AsyncStageQueue, StageAnswer, StageQueue, StageRequest
    from intercom.client.rosters import DeliveryState, PossibleStage, RosterStage
    from intercom.client.stage_views import StageView
    from intercom.client.views import Attachment, GroupView, Mail, Notice, Receipt, SessionView
    from intercom.client.watches import WatchedState, WatchEvent, WatchSnapshot
    from intercom.client.workviews import AssignmentView, Dispatched, InboxPage, InboxPresence, ParkedMessage
    from intercom.errors import (
        AccessDenied,
        AddressHeld,
        AddressTaken,
        AmbiguousTarget,
        AskError,
        AskTimeout,
        AssignmentLost,
        BrokerBusy,
        BrokerError,
        BrokerStarting,
        ConfigError,
        ConnectionLost,
        HomeError,
        IntercomError,
        MessageConflict,
        NoBroker,
        NotNow,
        OutcomeUnknown,
        PeerGone,
        PresenceRefused,
        ProtocolViolation,
        RegistrationRefused,
        ReplyFailed,
        RequestRefused,
        RequestTimeout,
        ReservationRefused,
        RunRefused,
        SendError,
        SendRefused,
        SessionClosed,
        SessionReplaced,
        StageRefused,
        StartFailed,
        TargetAway,
        TargetNotFound,
        TooLarge,
        UsageError,
    )
    from intercom.server.embedded import EmbeddedBroker, serve

__all__ = [
    "AccessDenied",
    "AddressHeld",
    "AddressTaken",
    "AddressView",
    "AmbiguousTarget",
    "AskError",
    "AskTimeout",
    "Assignment",
    "AssignmentLost",
    "AssignmentView",
    "Assignments",
    "AsyncStageQueue",
    "Attachment",
    "BrokerBusy",
    "BrokerError",
    "BrokerStarting",
    "Command",
    "CommandView",
    "Commands",
    "ConfigError",
    "Connection",
    "ConnectionLost",
    "DeliveryState",
    "Dispatched",
    "EmbeddedBroker",
    "EventView",
    "Events",
    "Flow",
    "FlowCalls",
    "FlowDispatch",
    "FlowList",
    "FlowReported",
    "FlowStep",
    "FlowSummary",
    "GroupView",
    "HomeError",
    "InboxPage",
    "InboxPresence",
    "IncomingMessage",
    "IntercomError",
    "KeptMessage",
    "LinkView",
    "LiveStage",
    "Mail",
    "Mailbox",
    "MailboxEntry",
    "MessageConflict",
    "Messages",
    "NoBroker",
    "NotNow",
    "Notice",
    "OutcomeUnknown",
    "ParkedMessage",
    "PeerGone",
    "PendingAsk",
    "Policies",
    "PolicyRule",
    "PolicyView",
    "PossibleStage",
    "PresenceRefused",
    "ProtocolViolation",
    "Purged",
    "Receipt",
    "RegistrationRefused",
    "ReplyFailed",
    "RequestRefused",
    "RequestTimeout",
    "ReservationRefused",
    "RosterStage",
    "Run",
    "RunRefused",
    "SendError",
    "SendRefused",
    "Session",
    "SessionClosed",
    "SessionEvent",
    "SessionRecord",
    "SessionReplaced",
    "SessionView",
    "StageAnswer",
    "StageQueue",
    "StageRefused",
    "StageRequest",
    "StageView",
    "StartFailed",
    "Step",
    "StepReport",
    "TargetAway",
    "TargetNotFound",
    "TodoOutcome",
    "TooLarge",
    "Trace",
    "TraceEvent",
    "UnconfirmedMessage",
    "UsageError",
    "Wait",
    "Waits",
    "WatchEvent",
    "WatchSnapshot",
    "WatchedState",
    "Watching",
    "__version__",
    "blocking",
    "connect",
    "serve",
]

_HOMES = {
    "intercom.client.aio": (
        "Assignment",
        "Assignments",
        "Command",
        "Commands",
        "Connection",
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
    ),
    "intercom.client.attending": ("KeptMessage", "Policies", "PolicyRule", "PolicyView", "Wait", "Waits"),
    "intercom.client.feeds": ("SessionEvent",),
    "intercom.client.flowviews": (
        "Flow",
        "FlowDispatch",
        "FlowList",
        "FlowReported",
        "FlowSummary",
        "Step",
        "StepReport",
        "TodoOutcome",
    ),
    "intercom.client.queueing": ("AsyncStageQueue", "StageAnswer", "StageQueue", "StageRequest"),
    "intercom.client.rosters": ("DeliveryState", "PossibleStage", "RosterStage"),
    "intercom.client.stage_views": ("StageView",),
    "intercom.client.linkviews": ("CommandView", "EventView", "LinkView"),
    "intercom.client.mailviews": (
        "AddressView",
        "Mailbox",
        "MailboxEntry",
        "PendingAsk",
        "Purged",
        "SessionRecord",
        "Trace",
        "TraceEvent",
        "UnconfirmedMessage",
    ),
    "intercom.client.watches": ("WatchEvent", "WatchSnapshot", "WatchedState"),
    "intercom.client.views": ("Attachment", "GroupView", "Mail", "Notice", "Receipt", "SessionView"),
    "intercom.client.workviews": ("AssignmentView", "Dispatched", "InboxPage", "InboxPresence", "ParkedMessage"),
    "intercom.server.embedded": ("EmbeddedBroker", "serve"),
}
"""Where public names live that are not errors."""


if not TYPE_CHECKING:  # for a type checker a name that is not listed above is an error

    def __getattr__(name: str) -> object:
        """Load a public name on first use: a command that needs none of them pays for none."""
        from importlib import import_module

        if name == "blocking":
            return import_module("intercom.client.blocking")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((module for module, names in _HOMES.items() if name in names), "intercom.errors")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
