"""Test the verb ``outbox`` on two machines: what waits is shown, given up, hurried, and arrives once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom import blocking
from tests.cli.test_me import person
from tests.support.commands import Shell
from tests.support.hazards import Listener, Machines, until, until_seen
from tests.support.raw import PATIENCE_S


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def entries(shell: Shell, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell.run("outbox", "list", *more, "--json").document["entries"]
    return found


def test_what_is_on_its_way_is_shown_given_up_and_hurried(machines: Machines, tmp_path: Path) -> None:
    """FE 3.11, the outbox; protocol 4.150: nothing arrives that was given up before it was posted."""
    bob = Listener("bob", machines.home("studio"))
    shell = Shell(machines.home("laptop"), tmp_path)
    with blocking.connect("alice", home=machines.home("laptop"), start=False, timeout=2 * PATIENCE_S) as alice:
        until_seen(alice, "bob")
        assert alice.send("bob", "first").state in ("delivered", "queued")
        assert bob.next() == "first"
        until(lambda: entries(shell), lambda found: not found)
        machines.brokers["studio"].kill()
        machines.until("laptop", lambda found: found["status"] == "on" and not found["peers"])
        assert [str(alice.send("bob", text, queue=True).state) for text in ("wrong", "right")] == ["queued"] * 2
        assert machines.report("laptop")["outbox"] == 2
        found = entries(shell, "--node", "studio")
        assert [(each["target"], each["node"], each["kind"]) for each in found] == [("bob", "studio", "message")] * 2
        assert entries(shell, "--node", "attic") == []
        wrong, right = (each["id"] for each in found)
        shown = shell.run("outbox", "show", wrong, "--json").document["entry"]
        assert (shown["id"], shown["state"]) == (wrong, "deferred")
        assert "studio" in shell.run("outbox").text
        status, text = person(shell, "outbox", "cancel", wrong)
        assert status == 0 and "given up" in text
        assert [each["id"] for each in entries(shell)] == [right]
        assert shell.run("outbox", "show", wrong, "--json").document["code"] == "unknown_delivery"
        assert shell.run("outbox", "retry", right).text == "it is brought away now\n"
        machines.start("studio")
        assert bob.next() == "right"
        until(lambda: entries(shell), lambda found: not found)
        alice.send("bob", "leave")
        bob.join()
        assert bob.shown == {"first": 1, "right": 1}
