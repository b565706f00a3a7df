"""A command that an agent calls is a process: what it imports is what it costs (design section 6)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import shell
from tests.support.commands import Shell

__all__ = ["shell"]

pytestmark = pytest.mark.loads

SLOW = {
    *("asyncio", "anyio", "logging", "rich", "filelock", "concurrent.futures", "multiprocessing", "email", "http"),
    *("typing_extensions", "inspect"),
    *("mcp", "pydantic"),
}
"""Modules that cost milliseconds or bring an event loop, a logger or a renderer along."""
STOOD_IN_FOR = {"platform", "locale", "gettext", "textwrap", "ipaddress"}
"""Modules that others import for what is rarely needed."""
OF_THE_BROKER = {"intercom.core", "intercom.store", "intercom.server", "sqlite3"}

A_SESSION = {
    *("errors", "limits", "loading", "paths", "cli", "cli.arguments", "cli.main", "cli.render", "client"),
    *("client.activity", "client.announcing", "client.asking", "client.assignment", "client.attempts"),
    *("client.blocking", "client.blocking_attention", "client.blocking_engine", "client.blocking_invoke"),
    *("client.blocking_links", "client.blocking_mail", "client.blocking_watch", "client.blocking_work"),
    *("client.commands", "client.commitments", "client.composing", "client.contact", "client.dialing"),
    *("client.failed_start", "client.feeds", "client.heartbeat", "client.held", "client.inbox", "client.invoking"),
    *("client.launch", "client.lifecycle", "client.mailing", "client.mailviews", "client.memberships"),
    *("client.notices", "client.operations", "client.ordering", "client.outcomes", "client.owing", "client.patience"),
    *("client.profile", "client.pursuing", "client.receiving", "client.recovery", "client.restoring"),
    *("client.sending", "client.session", "client.setup", "client.stage_views", "client.staging", "client.supervision"),
    *("client.texts", "client.unsent", "client.views", "client.waiting", "client.watches", "client.who"),
    *("client.working", "client.worklist", "client.workviews"),
    *("wire", "wire.codec", "wire.frames", "wire.framing", "wire.invocations", "wire.jsontext", "wire.mail"),
    *("wire.reasons", "wire.restoring_frames", "wire.shapes", "wire.stage_frames", "wire.targets", "wire.watching"),
    *("wire.work",),
}
"""What a command loads to be a session for a moment. Whoever adds a module here adds to every command's time: what only
some sessions use is loaded where it is used."""
BUDGETS = {
    "list": {"cli.identity", "cli.list", "cli.stages", "cli.tables", "cli.who"},
    "send": {
        *("cli.attaching", "cli.identity", "cli.naming", "cli.send", "cli.tables", "cli.who"),
        *("client.choosing", "client.keeping"),
    },
    "hook": {
        *("cli.hook", "hosts", "hosts.alone", "hosts.call", "hosts.claude", "hosts.events", "hosts.facts"),
        *("hosts.hook", "hosts.stops"),
        *("client.adapters", "client.keeping", "client.peertext", "client.program", "wire.notices"),
    },
}
"""What each of the commands that agents call all the time may load beside that."""
NOT_OF_A_BROKER = {"ssl", "_ssl", "filelock", "tempfile", "bz2", "rich", "anyio"}

WITNESS = """
import json, sys
from intercom.__main__ import make_haste
make_haste(sys.argv[1:])
from intercom import limits
limits.HOOK_MS = 60_000  # a hook that takes too long says nothing, and a busy machine is slow
from intercom.cli.main import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(
    shell: Shell, *arguments: str, env: dict[str, str] | None = None, told: dict[str, str] | None = None
) -> set[str]:
    """Run a command in a process of its own and return what it had imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, *arguments],
        input=json.dumps(told).encode(),
        capture_output=True,
        env=shell.environment(env),
        cwd=shell.cwd,
        timeout=20,
        check=True,
    )
    return witnessed(done.stderr)


def witnessed(errors: bytes) -> set[str]:
    """Return the modules a process tells of at its end, which was a good one."""
    status, modules = json.loads(errors.splitlines()[-1])
    assert status == 0, errors
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--json"],
        ["send", "worker", "hello"],
        ["send", "worker", "hello", "--as", "planner"],
        ["hook", "claude", "UserPromptSubmit"],
    ],
    ids=" ".join,
)
def test_what_agents_call_all_the_time_loads_only_what_it_uses(shell: Shell, arguments: list[str]) -> None:
    """Design section 6; a budget by name, not by time, so that nothing creeps in unseen."""
    shell.listen("worker", "--answer", "cat")
    modules = imported(shell, *arguments, told={"session_id": "s", "prompt": "p", "cwd": "/"})
    ours = {name.removeprefix("intercom.") for name in modules if name.startswith("intercom.")} - {"__main__"}
    assert "client.session" in ours
    assert not modules & STOOD_IN_FOR
    assert sorted(ours - A_SESSION - BUDGETS[arguments[0]]) == []


def test_a_broker_loads_nothing_it_does_without(shell: Shell) -> None:
    command = [sys.executable, "-c", WITNESS, "serve"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=shell.environment(), cwd=shell.cwd) as serving:
        shell.wait_for(lambda: shell.broker_pid() == serving.pid)
        with shell.connect() as client:
            client.register("one")
        serving.terminate()
        assert serving.stderr is not None
        modules = witnessed(serving.stderr.read())
    assert "intercom.core.broker" in modules
    assert not modules & NOT_OF_A_BROKER
    among_others = {"meshing", "abroad", "letters", "standins", "remote_sessions"}
    assert not modules & {f"intercom.core.{name}" for name in among_others}
    assert not [name for name in modules if name.startswith(("nats", "intercom.cluster.nats"))]


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
