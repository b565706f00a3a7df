"""A command that an agent calls is a process: what it imports is what it costs (design section 6)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import shell
from tests.support.commands import Shell

__all__ = ["shell"]

SLOW = {
    *("asyncio", "anyio", "logging", "rich", "filelock", "concurrent.futures", "multiprocessing", "email", "http"),
    *("typing_extensions", "inspect"),
    *("mcp", "pydantic"),
}
"""Modules that cost milliseconds or bring an event loop, a logger or a renderer along."""
OF_THE_BROKER = {"intercom.core", "intercom.store", "intercom.server", "sqlite3"}

WITNESS = """
import json, sys
from intercom.__main__ import make_haste
make_haste(sys.argv[1:])
from intercom.cli.main import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(shell: Shell, *arguments: str, env: dict[str, str] | None = None) -> set[str]:
    """Run a command in a process of its own and return what it had imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, *arguments],
        capture_output=True,
        env=shell.environment(env),
        cwd=shell.cwd,
        timeout=20,
        check=True,
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0, done
    return set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["send", "worker", "hello"],
        ["send", "worker", "hello", "--json", "--as", "planner"],
        ["ask", "worker", "why"],
        ["status"],
        ["listen", "--timeout", "0.1"],
        ["join", "alpha", "--as", "planner"],
        ["whoami"],
        ["groups"],
        ["log"],
        ["docs"],
        ["completion", "words"],
        ["--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_commands_import_no_loop_no_logger_and_no_renderer(shell: Shell, arguments: list[str]) -> None:
    shell.listen("worker", "--answer", "cat")
    modules = imported(shell, *arguments)
    assert not modules & SLOW
    assert not modules & OF_THE_BROKER


def test_a_terminal_is_needed_for_colours(shell: Shell) -> None:
    """Design section 10: rich only for a person at a terminal."""
    shell.listen("worker")
    assert "rich" not in imported(shell, "list", env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})


def test_the_package_itself_imports_nothing_of_its_own(shell: Shell) -> None:
    code = "import intercom, sys; print(*(name for name in sys.modules if name.startswith('intercom.')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=shell.environment(), check=True
    )
    assert done.stdout.split() == []


def test_what_a_command_does_without_can_still_be_imported() -> None:
    code = "import sys, intercom.__main__ as m; m.make_haste([]); print('typing_extensions' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
