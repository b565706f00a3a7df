"""Run the real command in a home of its own, and end what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from intercom.cli.main import main
from tests.support.brokers import POLL_S, UNHURRIED_MS, environment
from tests.support.forking import end, forked_broker
from tests.support.processes import complaints
from tests.support.raw import PATIENCE_S, EndOfStream, RawClient
from tests.support.schemas import assert_described, verb_of

INTERCOM = (sys.executable, "-m", "intercom")


class Result(NamedTuple):
    """Hold how a command ended and what it wrote."""

    status: int
    out: bytes
    err: bytes
    verb: str | None = None

    @property
    def text(self) -> str:
        """Return standard output as text."""
        return self.out.decode()

    @property
    def errors(self) -> str:
        """Return standard error as text, but for what says how busy the machine is."""
        return complaints(self.err)

    @property
    def document(self) -> dict[str, Any]:
        """Return the one JSON document on standard output; fail when there is anything else (F118).

        The schema of the verb must describe it; only ``--help`` and ``--version`` have none.
        """
        line = self.out.decode("ascii")
        assert line.count("\n") == 1, self
        assert line.endswith("\n"), self
        document: dict[str, Any] = strict(line)
        if self.verb is not None or not document["ok"]:
            assert_described(document, self.verb)
        return document

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Return all documents of a verb that prints one a line; the schema must describe each."""
        found = [strict(line) for line in self.out.decode("ascii").splitlines()]
        for document in found:
            assert_described(document, self.verb)
        return found


def strict(text: str) -> Any:
    """Parse JSON that holds nothing but JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


class Running:
    """Hold a command that goes on running; its output is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._read = b""

    def line(self, timeout: float = PATIENCE_S) -> str:
        """Return the next line of standard output."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no line within {timeout} s; so far {self._read!r}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the command ended: {self.finish()}"
            self._read += data
        line, self._read = self._read.split(b"\n", 1)
        return line.decode()

    @property
    def rest(self) -> bytes:
        """Return what was read and not given out as a line yet."""
        return self._read

    def event(self, name: str, verb: str = "listen") -> dict[str, Any]:
        """Return the next JSON document; fail unless it is this event."""
        document: dict[str, Any] = strict(self.line())
        assert document["event"] == name, document
        assert_described(document, verb)
        return document

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    def finish(self, timeout: float = PATIENCE_S) -> Result:
        """Wait for the end and return the rest of the output."""
        out, err = self.process.communicate(timeout=timeout)
        return Result(self.process.returncode, self._read + out, err)

    def close(self) -> None:
        """End it if it still runs."""
        end(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def listen_to_signals() -> None:
    """Undo what a shell does to its background jobs, so that tests can be run in one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Shell:
    """Run commands in one home; whatever they started ends with ``close``."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home = home
        self.cwd = cwd
        self._running: list[Running] = []
        self._forked: list[int] = []

    def serve(self, env: Mapping[str, str] | None = None) -> None:
        """Have a broker that answers, unless there is one; quicker than a command that starts it.

        It counts as one that has run for a while: whom it does not know is not waited for. Unless ``env`` says
        otherwise it stays however long the commands take to come.
        """
        given = {"INTERCOM_IDLE_MS": str(UNHURRIED_MS), **(env or {})}
        try:
            self.connect().close()
        except OSError:
            self._forked.append(forked_broker(self.home, self.environment(given)))
            self.wait_for(lambda: self.broker_pid() > 0)
            os.utime(self.home / "broker.pid", (0, 0))

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment commands run in."""
        return environment(self.home, extra)

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a command to its end in this process, which saves the time in which an interpreter starts.

        It finds environment, directory and standard streams as a process of its own would.
        """
        argv = [os.fsdecode(argument) for argument in arguments]
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        with (
            patch.dict(os.environ, self.environment(env), clear=True),
            patch("os.isatty", lambda _: False),
            patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
            redirect_stdout(out),
            redirect_stderr(err),
            chdir(self.cwd),
        ):
            try:
                status = main(argv)
            except SystemExit as end:  # of a help text
                status = int(end.code or 0)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        verb = None if "--help" in arguments else verb_of(arguments)
        return Result(status, out.buffer.getvalue(), err.buffer.getvalue(), verb)  # type: ignore[attr-defined]

    def run_apart(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = 3 * PATIENCE_S,
    ) -> Result:
        """Run a command to its end as a process of its own, both outputs on pipes that must reach their end."""
        done = subprocess.run(
            (*INTERCOM, *arguments),
            input=stdin,
            capture_output=True,
            cwd=self.cwd,
            env=self.environment(env),
            timeout=timeout,
            check=False,
        )
        verb = None if "--help" in arguments else verb_of(arguments)
        return Result(done.returncode, done.stdout, done.stderr, verb)

    def start(self, *arguments: str, **options: Any) -> Running:
        """Start a command and return at once."""
        settings: dict[str, Any] = {"cwd": self.cwd, "env": self.environment(), "stdin": subprocess.DEVNULL, **options}
        process = subprocess.Popen(
            (*INTERCOM, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=listen_to_signals,
            **settings,
        )
        running = Running(process)
        self._running.append(running)
        return running

    def listen(self, name: str, *arguments: str, **options: Any) -> Running:
        """Start ``listen --json`` and return once it is registered; there is a broker before."""
        self.serve()
        running = self.start("listen", "--as", name, "--json", *arguments, **options)
        running.event("listening")
        return running

    def connect(self) -> RawClient:
        """Return a connection to the broker that is there."""
        return RawClient(self.home / "broker.sock")

    def broker_pid(self) -> int:
        """Return the process id of the broker that answers."""
        with self.connect() as client:
            pid: int = client.status()["pid"]
            return pid

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; a broker that is not there yet is no error."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError, EndOfStream):
                if condition():
                    return
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(POLL_S)

    def wait_for_sessions(self, wanted: int) -> None:
        """Wait until the broker has this many sessions."""

        def are_there() -> bool:
            with self.connect() as client:
                return bool(client.status()["sessions"] == wanted)

        self.wait_for(are_there)

    def wait_for_questions(self, wanted: int) -> None:
        """Wait until this many questions are open: the other side has confirmed them."""

        def are_open() -> bool:
            with self.connect() as client:
                return bool(client.status()["broker"]["openQuestions"] == wanted)

        self.wait_for(are_open)

    def close(self) -> None:
        """End every command that still runs, and the broker."""
        for running in self._running:
            running.close()
        with suppress(OSError), self.connect() as client:
            client.send({"type": "shutdown", "requestId": "end"})
            client.expect("shutdown_ack")
            client.expect_end()
        for broker in self._forked:
            reap(broker)


def asked(shell: Shell, *, name: str = "worker") -> tuple[Running, str]:
    """Ask a question that another process of the identity receives and prints; return the asker and its id."""
    shell.serve()
    reader = shell.start("receive", "--as", name, "--wait", "--json")
    shell.wait_for_sessions(1)
    asker = shell.start("ask", name, "why?", "--as", "planner", "--json")
    [question] = strict(reader.finish().text)["messages"]
    assert question["expectsReply"] is True
    return asker, question["id"]


def reap(child: int) -> None:
    """Wait for a child that is about to end; one that does not is killed."""
    deadline = time.monotonic() + PATIENCE_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
