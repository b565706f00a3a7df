"""Every verb under every condition: no broker, one that is silent, one that dies in the middle, no permission.

Each runs with ``--json``, and ``document`` holds what it prints against the schema of the verb (F118, F119).
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from intercom.cli.main import VERBS, main
from tests.support.brokers import BrokerProcess
from tests.support.commands import Result, Shell
from tests.support.processes import OTHER_USER, in_child, needs_root, stop
from tests.support.raw import PATIENCE_S

CALLS: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "send": ("send", "worker", "hello"),
    "ask": ("ask", "worker", "why"),
    "listen": ("listen", "--timeout", "0.2"),
    "join": ("join", "alpha", "--as", "planner"),
    "leave": ("leave", "--as", "planner"),
    "groups": ("groups",),
    "whoami": ("whoami",),
    "receive": ("receive", "--as", "planner"),
    "reply": ("reply", "m-1", "because", "--as", "planner"),
    "pending": ("pending", "--as", "planner"),
    "trace": ("trace", "m-1"),
    "mailbox": ("mailbox", "--as", "planner"),
    "addresses": ("addresses",),
    "watch": ("watch", "--timeout", "0.2"),
    "spawn": ("spawn", "reviewer", "read this"),
    "skill": ("skill",),
    "inbox": ("inbox", "list"),
    "assignment": ("assignment", "list"),
    "flow": ("flow", "list"),
    "link": ("link", "list"),
    "command": ("command", "list"),
    "invoke": ("invoke", "reviewer", "read this", "--as", "planner"),
    "invocation": ("invocation", "list"),
    "resolve": ("resolve", "reviewer"),
    "session": ("session", "list"),
    "waits": ("waits",),
    "me": ("me",),
    "policy": ("policy", "list"),
    "purge": ("purge",),
    "outbox": ("outbox", "list"),
    "peer": ("peer", "list"),
    "cluster": ("cluster", "check"),
    "status": ("status",),
    "doctor": ("doctor",),
    "log": ("log",),
    "restart": ("restart",),
    "stop": ("stop",),
    "broker": ("broker", "drain"),
    "store": ("store", "check"),
    "docs": ("docs",),
    "schema": ("schema",),
    "completion": ("completion", "words"),
    "serve": ("serve", "--idle-ms", "100"),
    "install": ("install", "atomic"),
    "uninstall": ("uninstall", "atomic"),
    "demo": ("demo", "empty"),
}
"""How each verb is called."""
FOR_HOSTS = ("hook", "mcp")
"""Verbs that hosts start and whose end is theirs to decide: they are held against such conditions elsewhere."""
PURE = ("cluster", "join", "leave", "whoami", "docs", "schema", "skill", "install", "uninstall", "demo")
"""Verbs that never speak with a broker of the home."""
SERVE = """
from intercom import limits
limits.LOCK_WAIT_MS = 300
from intercom.__main__ import run
run()
"""


@pytest.fixture(autouse=True)
def empty(shell: Shell) -> None:
    """Let the demo have little to count."""
    (shell.cwd / "empty").mkdir()


def called(shell: Shell, verb: str, *options: str) -> Result:
    """Call a verb with --json; ``serve`` is a process of its own that waits less for a lock."""
    if verb != "serve":
        return shell.run(*CALLS[verb], "--json", *options)
    done = subprocess.run(
        [sys.executable, "-c", SERVE, *CALLS[verb], "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=shell.environment(),
        cwd=shell.cwd,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr, verb)


def test_no_verb_is_forgotten() -> None:
    assert set(CALLS) == set(VERBS) - set(FOR_HOSTS)


def ends_with(result: Result, status: int, code: str | None) -> None:
    """Fail unless a verb ended so; with --json nothing is lost on standard error that a program must know."""
    documents = result.documents
    assert result.status == status, result
    assert b"Traceback" not in result.err
    if code is None:
        assert all(document["ok"] for document in documents), documents
    else:
        assert (documents[-1]["ok"], documents[-1]["code"]) == (False, code)


@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb not in ("listen", "watch")])
def test_no_broker(shell: Shell, verb: str) -> None:
    """Design section 9: 5, unless the verb starts one or needs none; F130: looking starts none."""
    starts: dict[str, tuple[int, str | None]] = {
        **dict.fromkeys(
            (
                "list",
                "receive",
                "pending",
                "mailbox",
                "addresses",
                "session",
                "inbox",
                "assignment",
                "flow",
                "link",
                "command",
                "invocation",
                "waits",
                "policy",
                "restart",
                "outbox",
            ),
            (0, None),
        ),
        **dict.fromkeys(("send", "ask"), (3, "not_found")),
        "reply": (3, "unknown_question"),
        "trace": (3, "unknown_message"),
        "spawn": (1, "spawn_unavailable"),
        **dict.fromkeys(("invoke", "resolve"), (3, "route_unknown")),
    }
    needs_none = {
        **dict.fromkeys((*PURE, "doctor", "completion", "store", "serve"), (0, None)),
        "log": (3, "no_log"),
        **dict.fromkeys(("purge", "me"), (7, "not_a_person")),
    }
    status, code = {**starts, **needs_none}.get(verb, (5, "no_broker"))
    ends_with(called(shell, verb), status, code)
    assert (shell.home / "broker.sock").exists() is (verb in starts)


def test_no_broker_to_listen_at(shell: Shell) -> None:
    """It starts one, and goes on until it is interrupted."""
    running = shell.start("listen", "--json")
    running.event("listening")
    assert shell.broker_pid() > 1
    running.signal(signal.SIGINT)
    ends_with(running.finish()._replace(verb="listen"), 130, "interrupted")


def test_another_broker_serves_already(shell: Shell) -> None:
    """Protocol 3.1: that is no failure."""
    shell.serve()
    pid = shell.broker_pid()
    ends_with(called(shell, "serve"), 0, None)
    assert shell.broker_pid() == pid


@pytest.mark.parametrize("verb", CALLS)
def test_a_broker_that_is_silent(shell: Shell, verb: str) -> None:
    """F6: said within the time that was given, and never replaced."""
    shell.serve()
    pid = shell.broker_pid()
    socket = (shell.home / "broker.sock").stat().st_ino
    stop(pid)
    try:
        quick = () if verb in (*PURE, "log", "listen") else ("--timeout", "0.4")
        result = called(shell, verb, *quick)
    finally:
        os.kill(pid, signal.SIGCONT)
    expected = {
        **dict.fromkeys((*PURE, "log", "completion"), (0, None)),
        "doctor": (1, "unhealthy"),
        "serve": (5, "held_elsewhere"),
        **dict.fromkeys(("purge", "me"), (7, "not_a_person")),
    }
    ends_with(result, *expected.get(verb, (5, "busy")))
    if expected.get(verb) is None:
        assert f"(pid {pid})" in result.documents[-1]["reason"]
    assert (shell.home / "broker.sock").stat().st_ino == socket
    assert shell.broker_pid() == pid


DIES = """
from intercom.core.broker import Broker
taken = Broker.frame_received
def die(self, connection, frame, now):
    if type(frame).__name__ in {frames}:
        os._exit(9)
    return taken(self, connection, frame, now)
Broker.frame_received = die
"""


@pytest.mark.parametrize(
    ("verb", "frames", "status", "code"),
    [
        ("list", ("ListSessions",), 0, None),
        ("send", ("Send",), 0, None),
        ("ask", ("Send",), 0, None),
        ("groups", ("ListGroups",), 5, "no_broker"),
        ("status", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("doctor", ("BrokerStatusRequest",), 1, "unhealthy"),
        ("peer", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("restart", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("restart", ("Shutdown",), 0, None),
        ("stop", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("stop", ("Shutdown",), 0, None),
        ("broker", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("broker", ("BrokerDrain",), 6, "left_meanwhile"),
        ("store", ("BrokerStatusRequest",), 6, "connection_lost"),
        ("completion", ("ListSessions",), 0, None),
        ("receive", ("MailboxRequest",), 0, None),
        ("pending", ("PendingRequest",), 0, None),
        ("reply", ("PendingRequest",), 3, "unknown_question"),
        ("trace", ("TraceRequest",), 3, "unknown_message"),
        ("mailbox", ("MailboxRequest",), 0, None),
        ("addresses", ("AddressesRequest",), 0, None),
        ("outbox", ("OutboxList",), 0, None),
        ("session", ("SessionRecordsRequest",), 0, None),
        ("inbox", ("InboxList",), 0, None),
        ("assignment", ("AssignmentList",), 0, None),
        ("waits", ("WaitsRequest",), 0, None),
        ("policy", ("PoliciesRequest",), 0, None),
    ],
)
def test_a_broker_that_dies_in_the_middle(
    shell: Shell,
    start_broker: Callable[..., BrokerProcess],
    verb: str,
    frames: tuple[str, ...],
    status: int,
    code: str | None,
) -> None:
    """Who may start a broker goes on with a new one, `stop` has what it wanted, all others say they do not know."""
    broker = start_broker(fault=DIES.format(frames=frames))
    if verb in ("send", "ask"):
        shell.listen("worker", "--answer", "cat")
    result = called(shell, verb, *(("--timeout", "1") if verb == "groups" else ()))
    ends_with(result, status, code)
    assert broker.wait() == 9


@pytest.mark.parametrize("frames", [("Register",), ("Send",)])
def test_a_broker_that_dies_while_somebody_listens(
    shell: Shell, start_broker: Callable[..., BrokerProcess], frames: tuple[str, ...]
) -> None:
    """While it comes, or while a message is on its way to it: it goes on with a new one and gets the message once."""
    broker = start_broker(fault=DIES.format(frames=frames))
    worker = shell.listen("worker")
    assert shell.run("send", "worker", "hello").status == 0
    assert broker.wait() == 9
    assert worker.event("message")["text"] == "hello"
    worker.signal(signal.SIGTERM)
    ends_with(worker.finish()._replace(verb="listen"), 143, "interrupted")


@pytest.mark.parametrize(
    "place", ["intercom.toml", "config.json", "installed.json", "broker.pid", "identities", "identities/command.key"]
)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_no_file_where_one_is_expected(shell: Shell, place: str, make: Callable[[Path], None]) -> None:
    """A pipe is never waited for, whatever the verb; and nothing of it is a fault of the command's own."""
    shell.serve()
    (shell.home / place).unlink(missing_ok=True)
    (shell.home / place).parent.mkdir(mode=0o700, exist_ok=True)
    if not (shell.home / place).exists():
        make(shell.home / place)
    for verb in CALLS:
        if verb not in ("serve", "demo", "restart", "stop", "broker"):
            result = called(shell, verb)
            assert b"Traceback" not in result.err, result
            assert result.documents[-1].get("code") != "internal", result
    if place != "installed.json":
        findings = called(shell, "doctor").documents[-1]["checks"]
        if make is os.mkfifo or place != "identities":
            assert [each["id"] for each in findings if str(shell.home / place) in each["found"]], findings


@needs_root
@pytest.mark.parametrize("verb", CALLS)
def test_no_permission(shell: Shell, verb: str) -> None:
    """F27: another user's process is told so within a moment; nothing is started, unlinked or tried again.

    The demo has a home of its own: it may not look into the directory it is to tell about.
    """
    shell.serve()
    pid = shell.broker_pid()
    before = sorted(path.name for path in shell.home.iterdir())
    call = CALLS[verb] if verb != "demo" else ("demo", str(shell.cwd / "empty"))
    result = as_other_user(shell, *call, "--json")
    expected = {
        **dict.fromkeys(("docs", "schema", "skill", "whoami", "completion"), (0, None)),
        "doctor": (1, "unhealthy"),
        "serve": (1, "cannot_serve"),
        "cluster": (2, "config"),
        **dict.fromkeys(("purge", "me"), (7, "not_a_person")),
    }
    if verb in expected:
        ends_with(result, *expected[verb])
    else:
        assert result.status == 7, result
        assert result.documents[-1]["code"] in ("denied", "home")
    assert shell.broker_pid() == pid
    assert sorted(path.name for path in shell.home.iterdir()) == before


def as_other_user(shell: Shell, *arguments: str) -> Result:
    """Run a command as a user who may not even look into the directory of the home.

    That user may not be able to read the interpreter's files either, so what the command needs is loaded before.
    """

    def run() -> tuple[int, str, str]:
        os.environ.clear()
        os.environ.update(shell.environment())
        os.chdir("/")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main([*arguments, "--home", "/dev/null/none"])
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main(arguments)
        return status, out.getvalue(), err.getvalue()

    status, out, err = in_child(run)
    return Result(status, out.encode(), err.encode(), arguments[0])


@needs_root
def test_a_home_of_another_user_is_not_used(shell: Shell, short_path: Path) -> None:
    """F108: also one that everybody may look into."""
    shell.serve()
    short_path.chmod(0o755)
    shell.home.chmod(0o777)
    for verb in ("list", "send", "join", "status", "groups"):
        result = as_other_user(shell, *CALLS[verb], "--json")
        assert (result.status, result.documents[-1]["code"]) == (7, "home")


WINDOWS = """
import os, socket, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
del os.geteuid, os.getuid, os.getsid, os.fork, socket.AF_UNIX
from intercom.__main__ import run
run()
"""
"""Takes away what a Python of Windows does not have."""


@pytest.mark.parametrize("verb", CALLS)
def test_a_system_that_is_no_unix(shell: Shell, verb: str) -> None:
    """F34; design section 10: one clear line, no trace of a crash."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, *CALLS[verb], "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=shell.environment(),
        cwd=shell.cwd,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    result = Result(done.returncode, done.stdout, done.stderr, verb)
    if verb in ("docs", "schema", "skill", "completion"):
        ends_with(result, 0, None)
    else:
        assert "needs Unix sockets" in result.documents[-1]["reason"]
        ends_with(result, 7, "home")
