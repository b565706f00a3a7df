"""Let coding-agent sessions on one machine find each other and talk."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing costs more than everything a command needs of this module
if TYPE_CHECKING:
    from typing import Any

    from intercom.client import blocking
    from intercom.client.aio import Connection, IncomingMessage, Messages, Session, connect
    from intercom.client.views import Attachment, GroupView, Receipt, SessionView
    from intercom.errors import (
        AccessDenied,
        AmbiguousTarget,
        AskError,
        AskTimeout,
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
        RequestTimeout,
        SendError,
        SendRefused,
        StartFailed,
        TargetNotFound,
        TooLarge,
        UsageError,
    )

__all__ = [
    "AccessDenied",
    "AmbiguousTarget",
    "AskError",
    "AskTimeout",
    "Attachment",
    "BrokerBusy",
    "BrokerError",
    "BrokerStarting",
    "ConfigError",
    "Connection",
    "ConnectionLost",
    "GroupView",
    "HomeError",
    "IncomingMessage",
    "IntercomError",
    "MessageConflict",
    "Messages",
    "NoBroker",
    "NotNow",
    "OutcomeUnknown",
    "PeerGone",
    "PresenceRefused",
    "ProtocolViolation",
    "Receipt",
    "RegistrationRefused",
    "ReplyFailed",
    "RequestTimeout",
    "SendError",
    "SendRefused",
    "Session",
    "SessionView",
    "StartFailed",
    "TargetNotFound",
    "TooLarge",
    "UsageError",
    "__version__",
    "blocking",
    "connect",
]

_HOMES = {
    "intercom.client.aio": ("Connection", "IncomingMessage", "Messages", "Session", "connect"),
    "intercom.client.views": ("Attachment", "GroupView", "Receipt", "SessionView"),
}
"""Where public names live that are not errors."""


def __getattr__(name: str) -> Any:
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
