"""Test ``intercom spawn`` with commands that open sessions, and with such that do not."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from intercom.client import blocking
from intercom.errors import RequestRefused
from tests.support.commands import Shell

CHILD = """
import os, sys
from intercom import blocking
with blocking.connect("child", start=False, address=True) as session:
    session.set_presence(status=sys.stdin.read())
    session.receive(timeout=60)
"""


def settings(shell: Shell, place: Path) -> None:
    """Name two kinds: one that opens a session, and one that fails."""
    program = place / "child.py"
    program.write_text(CHILD)
    shell.home.mkdir(mode=0o700, exist_ok=True)
    (shell.home / "intercom.toml").write_text(
        f"[spawn.child]\ncommand = [{sys.executable!r}, {str(program)!r}]\n"
        f"[spawn.broken]\ncommand = [{sys.executable!r}, '-c', 'raise SystemExit(4)']\n"
    )


def test_a_session_is_started_and_named(shell: Shell, short_path: Path) -> None:
    """FE 1.12, design 7 Trust"""
    settings(shell, short_path)
    result = shell.run_apart("spawn", "child", "-", "--key", "k", "--json", stdin=b"review it\n")
    assert result.status == 0, result
    document = result.document
    [child] = [each for each in shell.run("list", "--json").document["sessions"] if each["name"] == "child"]
    assert (document["id"], document["kind"]) == (child["id"], "child")
    shell.wait_for(lambda: shell.run("list", "--json").document["sessions"][0].get("status") == "review it")
    again = shell.run("spawn", "child", "review it", "--key", "k")
    assert (again.status, again.text) == (0, f"started child: {child['id']}\n")
    other = shell.run("spawn", "child", "something else", "--key", "k", "--json")
    assert (other.status, other.document["code"]) == (4, "order_key_conflict")
    os.kill(child["peer"]["pid"], signal.SIGTERM)


def test_failures_say_why(shell: Shell, short_path: Path) -> None:
    settings(shell, short_path)
    failed = shell.run_apart("spawn", "broken", "--json")
    assert (failed.status, failed.document["code"]) == (1, "spawn_failed")
    assert failed.document["reason"] == "The command ended with status 4"
    unknown = shell.run("spawn", "reviewer", "--json")
    assert (unknown.status, unknown.document["code"]) == (3, "unknown_kind")
    assert "broken, child" in unknown.document["reason"]
    hint = shell.run("spawn", "--json").document["hint"]
    assert "intercom status" in hint
    assert "broken, child" in shell.run("status").text


def test_an_order_that_takes_longer_than_the_command_waits(shell: Shell, short_path: Path) -> None:
    """Protocol 11.2.3: what is printed can be followed, and starts nothing a second time."""
    settings(shell, short_path)
    started = short_path / "started"
    program = f"import time; open({str(started)!r}, 'a').write('x'); time.sleep(3)"
    with (shell.home / "intercom.toml").open("a") as file:
        file.write(f"[spawn.slow]\ncommand = [{sys.executable!r}, '-c', {json.dumps(program)}]\n")
    late = shell.run_apart("spawn", "slow", "--timeout", "2", "--json")
    assert (late.status, late.document["code"], late.document["retry"]) == (6, "request_timeout", "same_id")
    key = late.document["key"]
    assert f"--key {key}" in late.document["hint"]
    again = shell.run_apart("spawn", "slow", "--timeout", "2", "--key", key, "--json")
    assert (again.status, again.document["key"]) == (6, key)
    shell.wait_for(started.exists)
    assert started.read_text() == "x"


def test_a_coordinator_orders_sessions_and_nobody_else(shell: Shell, short_path: Path) -> None:
    """Protocol 11.2.1."""
    settings(shell, short_path)
    shell.serve()
    with blocking.connect("lead", home=shell.home, start=False, coordinator=True) as lead:
        with pytest.raises(RequestRefused) as caught:
            lead.spawn("broken")
        assert caught.value.code == "spawn_failed", "it was started"
    with blocking.connect("ada", home=shell.home, start=False) as other:
        with pytest.raises(RequestRefused) as caught:
            other.spawn("broken")
        assert caught.value.code == "feature_not_granted"


def test_without_settings_nothing_can_be_started(shell: Shell) -> None:
    """design 7, Trust: spawning is off unless the settings name kinds."""
    shell.serve()
    refused = shell.run("spawn", "reviewer", "look", "--json")
    assert (refused.status, refused.document["code"]) == (1, "spawn_unavailable")
    for words in ((), (" ",)):
        assert shell.run("spawn", *words, "--json").document["code"] == "usage"
