"""Have messages wait in the inbox of a real broker, for commands and programs to take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from intercom.client import blocking
from tests.support.commands import Running, Shell, strict


@contextmanager
def desk(shell: Shell) -> Iterator[blocking.Session]:
    """Be a worker to whom messages are sent, and who takes none of them."""
    shell.serve()
    with blocking.connect("desk", home=shell.home, start=False, work_mode="resident") as session:
        yield session


def park(shell: Shell, text: str = "count the words") -> str:
    """Send a message to the desk and return its id in the inbox."""
    sent = shell.run("send", "desk", text, "--as", "planner", "--json").document
    assert sent["state"] == "queued", sent
    inbox_id: str = sent["messageId"]
    return inbox_id


def waiting(shell: Shell, name: str = "ada", *options: str) -> Running:
    """Start a command that waits for work under a name, and return once it is there."""
    running = shell.start("inbox", "wait", "--as", name, "--json", *options)
    shell.wait_for(lambda: any(one["name"] == name for one in sessions(shell)))
    return running


def sessions(shell: Shell) -> list[dict[str, Any]]:
    """Return the sessions that are here."""
    found: list[dict[str, Any]] = shell.run("session", "list", "--json").document["sessions"]
    return found


def handed(shell: Shell, *options: str) -> dict[str, Any]:
    """Park a message, hand it to a command of ``ada`` that waits, and return what that printed."""
    inbox_id = park(shell)
    running = waiting(shell, "ada", *options)
    order = shell.run("inbox", "dispatch", inbox_id, "ada", "--json").document
    assert order["handedTo"] == "staging", order
    ended = running.finish()
    assert ended.status == 0, ended
    document: dict[str, Any] = strict(ended.text)
    assert document["assignment"]["assignmentId"] == order["assignmentId"]
    return document
