"""The public names: which there are, where they come from, and that they cost nothing before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import intercom
from intercom import errors

NAMES = {
    "Attachment", "Connection", "EmbeddedBroker", "Events", "GroupView", "IncomingMessage", "Messages", "Receipt",
    "Session", "SessionEvent", "SessionView", "__version__", "blocking", "connect", "serve",
}  # fmt: skip

SESSION = {
    "announce", "ask", "ask_supervisor", "authorize_child", "busy", "events", "groups", "id", "join", "leave", "list",
    "list_groups", "messages", "model", "name", "receive", "send", "send_supervisor", "set_presence", "status",
    "supervisor_id",
}  # fmt: skip


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
    from intercom.client import aio, blocking, feeds, views

    assert intercom.connect is aio.connect
    assert intercom.Session is aio.Session
    assert intercom.IncomingMessage is aio.IncomingMessage
    assert intercom.blocking is blocking
    assert intercom.Events is aio.Events
    assert intercom.SessionEvent is feeds.SessionEvent
    assert intercom.Receipt is views.Receipt
    assert intercom.NoBroker is errors.NoBroker


def test_both_shells_have_the_same_calls() -> None:
    from intercom.client import aio, blocking

    def calls(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert calls(aio.Session) == calls(blocking.Session) == SESSION
    assert calls(aio.IncomingMessage) == calls(blocking.IncomingMessage) == {"reply"}
    assert set(blocking.__all__) == {"Events", "IncomingMessage", "Messages", "Session", "connect"}


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'surprise'"):
        _ = intercom.surprise  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing() -> None:
    """Names are loaded on first use; the version is a literal."""
    code = (
        "import sys, importlib; before = set(sys.modules); import intercom; intercom.__version__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["__future__", "intercom"]


def test_the_errors_cost_no_event_loop() -> None:
    code = (
        "import sys, intercom; intercom.IntercomError; intercom.blocking; "
        "print({'asyncio', 'anyio'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
