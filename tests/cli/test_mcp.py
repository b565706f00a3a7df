from __future__ import annotations

import subprocess
import sys

import pytest

from intercom.client import bell
from tests.support.adapters import hook, record_of
from tests.support.commands import INTERCOM, Shell


def test_without_the_package_it_says_how_to_get_it(shell: Shell) -> None:
    """design section 10: an extra."""
    code = (
        "import sys\nsys.modules['mcp'] = None\nfrom intercom.cli.main import main\nsys.exit(main(['mcp', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=shell.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert '"code":"no_mcp"' in done.stdout
    assert "intercom-broker[mcp]" in done.stdout


def test_a_wrong_host_and_a_wrong_name(shell: Shell) -> None:
    for words in (["--host", "emacs"], ["--as", " "], ["--as", "@me"]):
        result = shell.run("mcp", *words, "--json")
        assert (result.status, result.document["code"]) == (2, "usage")


def test_a_bell_needs_an_adapter(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "BELL_FIND_MS", 1)
    result = shell.run("mcp", "--bell", "--json")
    assert (result.status, result.document["code"]) == (5, "no_adapter")


def test_the_bell_of_a_monitor(shell: Shell) -> None:
    """spec: hosts 3.3: a line for each event; it ends with the adapter."""
    shell.serve()
    code = (
        "import subprocess, sys\n"
        f"words = {[*INTERCOM, 'mcp', '--host', 'claude', '--no-inbox']!r}\n"
        "adapter = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        f"line = {' '.join([*INTERCOM, 'mcp', '--bell', '--json'])!r}\n"
        "bell = subprocess.Popen(['/bin/sh', '-c', line + '; exit $?'])\n"
        "sys.stdin.readline()\nadapter.stdin.close()\nsys.exit(bell.wait())\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=shell.environment({"CLAUDE_CODE_SESSION_ID": "s-1"}),
        cwd=shell.cwd,
    )
    try:
        record = record_of(shell.home)
        name = record.seats[0].name
        assert name is not None
        shell.wait_for_sessions(1)
        shell.wait_for(lambda: "at once" in shell.run("list").text)
        shell.run("send", name, "hello", "--as", "bob")
        assert host.stdout is not None
        line = host.stdout.readline()
        assert b'"event":"bell"' in line
        assert b"hello" not in line
        with hook(record) as door:
            assert "hello" in door.ask({"op": "collect", "session": "s-1"})["text"]
        assert host.stdin is not None
        host.stdin.write(b"\n")
        host.stdin.close()
        assert host.wait(20) == 0
    finally:
        host.kill()
        host.wait()
        assert host.stdout is not None
        host.stdout.close()
