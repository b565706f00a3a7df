from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from intercom.client import who
from intercom.client.profile import checked_name
from intercom.client.who import (
    HOST_VARIABLES,
    SESSION_VARIABLES,
    Identity,
    host_identity,
    host_markers,
    identity,
    nearest,
    process_identity,
    seat_name,
    start_of,
)
from tests.cli.conftest import shell
from tests.support.commands import Shell
from tests.support.processes import in_child

__all__ = ["shell"]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what would say who runs the tests."""
    for variable in (*who.HOST_MARKERS, "AGENT", "INTERCOM_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(who, "on_a_terminal", lambda: False)


def test_a_name_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 7, Identity of a command: 1."""
    monkeypatch.setenv("CODEX_THREAD_ID", "t-1")
    given = identity("Planner")
    assert (given.rule, given.name, given.about) == ("name", "Planner", "the name given by --as")
    monkeypatch.setenv("INTERCOM_NAME", "planner")
    assert identity().key == given.key
    assert identity("other").key != given.key


@pytest.mark.parametrize("variable", SESSION_VARIABLES)
def test_then_the_session_of_the_host(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Design section 7, Identity of a command: 2."""
    monkeypatch.setenv(variable, "s-1")
    one = identity()
    assert (one.rule, one.name) == ("host", None)
    assert variable in one.about
    monkeypatch.setenv(variable, "s-2")
    assert identity().key != one.key


def test_then_the_terminal_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 7, Identity of a command: 3, told apart by the start of its leader (F10)."""
    monkeypatch.setattr(who, "on_a_terminal", lambda: True)

    def of_a_leader() -> None:
        os.setsid()
        one = identity()
        assert (one.rule, one.about) == ("terminal", f"the terminal session of {os.getpid()}")
        assert identity().key == one.key
        monkeypatch.setattr(who, "start_of", lambda pid: "another time")
        assert identity().key != one.key

    in_child(of_a_leader)


def test_a_terminal_session_without_its_leader_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be given to another process; outside this process namespace it is 0."""
    monkeypatch.setattr(who, "on_a_terminal", lambda: True)
    monkeypatch.setattr(who, "start_of", lambda pid: None)
    assert identity().rule == "guest"


def test_else_a_guest() -> None:
    """Design section 7, Identity of a command: 4; F55: nothing is guessed from the directory."""
    assert (identity().rule, identity().key) == ("guest", None)


def test_a_host_that_names_no_session_makes_a_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal belongs to the person, not to the agent that runs in it."""
    monkeypatch.setattr(who, "on_a_terminal", lambda: True)
    monkeypatch.setenv("OPENCODE", "1")
    assert identity().rule == "guest"


def test_markers_are_found() -> None:
    assert host_markers({"CLAUDECODE": "1", "AGENT": "1"}) == ["CLAUDECODE", "AGENT"]
    assert host_markers({"AGENT": "smith", "GEMINI_CLI": ""}) == []


NEAREST = "import os; from intercom.client.who import nearest; print(nearest(os.environ))"


def chain(shell: Shell, *environments: dict[str, str]) -> str:
    """Return the nearest host as a process sees it whose ancestors were started with these variables, oldest first."""
    command = [sys.executable, "-c", NEAREST]
    for added in reversed(environments[1:]):
        code = (
            "import os, subprocess, sys\n"
            f"sys.exit(subprocess.run({command!r}, env={{**os.environ, **{added!r}}}).returncode)"
        )
        command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=shell.environment(environments[0]), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_of_hosts_within_hosts_the_nearest_counts(shell: Shell) -> None:
    """spec: hosts 1.2, "of the nearest host among the ancestors"."""
    outer, inner = {"CODEX_THREAD_ID": "outer"}, {"CLAUDE_CODE_SESSION_ID": "inner"}
    assert chain(shell, {}, outer, {}, inner, {}) == "CLAUDE_CODE_SESSION_ID"
    assert chain(shell, {}, inner, {}, outer, {}) == "CODEX_THREAD_ID"
    assert chain(shell, {}, {"PI_SESSION_ID": "1"}, {}, {"ATOMIC_SESSION_ID": "2", "PI_SESSION_ID": "2"}) == (
        "ATOMIC_SESSION_ID"
    )


def test_two_hosts_that_cannot_be_told_apart_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(who, "_environments_above", lambda: iter(()))
    monkeypatch.setenv("CODEX_THREAD_ID", "a")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "b")
    assert nearest(os.environ) is None
    found = identity()
    assert (found.rule, found.key) == ("guest", None)


@pytest.mark.skipif(not os.access("/bin/ps", os.X_OK), reason="there is no ps")
def test_a_process_has_a_start_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(who.sys, "platform", "darwin")
    started = start_of(os.getpid())
    assert started is not None and started == start_of(os.getpid())
    assert start_of(2**22 + 1) is None
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError()))
    assert start_of(os.getpid()) is None


def test_a_process_has_a_start() -> None:
    assert start_of(os.getpid()) == start_of(os.getpid())
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert start_of(other.pid) != start_of(os.getpid())
    assert start_of(2**22 + 1) is None


def test_a_terminal_is_seen(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    leader, follower = pty.openpty()
    try:
        code = "import sys; from intercom.client.who import on_a_terminal; sys.exit(on_a_terminal())"
        for stdin, status in ((follower, 1), (subprocess.DEVNULL, 0)):
            done = subprocess.run(
                [sys.executable, "-c", code], env=shell.environment(), stdin=stdin, capture_output=True, check=False
            )
            assert done.returncode == status
    finally:
        os.close(leader)
        os.close(follower)


def test_every_identity_but_a_guest_has_an_address() -> None:
    """Design section 7, Identity of a command: 1 to 3 are addresses."""
    assert Identity("name", "name\0ada", "Ada", "").address == "Ada"
    host, other = (Identity("host", f"host\0V\0{value}", None, "").address for value in ("a", "b"))
    assert host is not None
    assert re.fullmatch(r"host-[0-9a-f]{16}", host)
    assert host != other
    terminal = Identity("terminal", "terminal\0001\0002", None, "").address
    assert terminal is not None
    assert terminal.startswith("terminal-")
    assert checked_name(terminal) == terminal, "a session could have that name"
    assert Identity("guest", None, None, "").address is None


@pytest.mark.parametrize("host", HOST_VARIABLES)
def test_an_adapter_of_a_session_is_who_its_commands_are(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """spec: hosts 1.2; one identity per host session."""
    monkeypatch.setenv(HOST_VARIABLES[host], "s-1")
    assert host_identity(host, "s-1").address == identity().address
    assert host_identity(host, "s-2").address != identity().address


def test_a_host_that_names_no_session_has_one_identity_a_process() -> None:
    """spec: hosts 5.1 and 8; F10: a later process of the same number is another one."""
    mine = process_identity("opencode", os.getpid())
    assert mine is not None
    assert mine == process_identity("opencode", os.getpid())
    assert mine.is_of_process
    assert not host_identity("claude", "s-1").is_of_process
    assert mine.key != getattr(process_identity("opencode", os.getppid()), "key", None)
    assert process_identity("opencode", 2**22 + 1) is None


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("/home/ada/web", "web-3f2a"),
        ("/home/ada/my project (2)/", "my-project-2-3f2a"),
        ("/", "session-3f2a"),
        ("/x/--", "session-3f2a"),
        ("/x/" + "a" * 300, "a" * 40 + "-3f2a"),
        ("/x/\u65e5\u672c", "session-3f2a"),
    ],
)
def test_a_seat_has_a_name_that_can_be_typed(directory: str, name: str) -> None:
    assert seat_name(directory, "host-3f2a998877665544") == name
    assert checked_name(name) == name
