"""Run real broker processes in homes of their own, and end exactly those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from intercom.paths import Paths
from tests.support.forking import MEASURED, Child, end, serving_child
from tests.support.processes import complaints, stop
from tests.support.raw import PATIENCE_S, RawClient

TOP = Path(__file__).resolve().parents[2]
SERVE = (sys.executable, "-m", "intercom", "serve")
POLL_S = 0.005
UNHURRIED_MS = 60_000
"""How long a broker waits for whom a slow machine lets come late, unless a test says otherwise."""


_PASSED_ON = ("PATH", "LANG", *MEASURED, "PYTHONPYCACHEPREFIX", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG")


def limited(**changes: int) -> str:
    """Return the fault of a broker whose core decides by other numbers; see the fields of ``Limits``."""
    return (
        "import msgspec\nfrom intercom import config\noriginal = config.Settings.limits\n"
        f"changed = lambda settings: msgspec.structs.replace(original(settings), **{changes!r})\n"
        "config.Settings.limits = changed\n"
    )


def patched(code: str) -> tuple[str, ...]:
    """Return a command that runs Python code, then serves: a broker with a fault, or with shorter times.

    The code finds the limits as ``limits`` and runs before anything else of the package is imported.
    """
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom intercom import limits\n"
        f"{code}\nfrom intercom.server.app import main\n"
        "sys.exit(main(Path(os.environ['INTERCOM_HOME']).resolve()))\n"
    )
    return (sys.executable, "-c", program)


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a small environment in which commands find the package and the home, and nothing of this machine."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **kept,
        "HOME": str(home.parent),
        "PYTHONPATH": str(TOP),
        "INTERCOM_HOME": str(home),
        **(extra or {}),
    }


class BrokerProcess:
    """Hold one broker process, from its start to its end.

    Args:
        home: its home; need not exist.
        settings: settings by name, handed over in the environment.
        arguments: further arguments of ``serve``.
        command: what to run instead of ``serve``.
        fault: Python code that it runs before it serves, see ``forking.serving_child``.
        apart: run ``serve`` as a program; a broker that only has to be there is a fork of the test.
        wait: return only when it answers.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: tuple[str, ...] = (),
        command: tuple[str, ...] = SERVE,
        fault: str = "",
        apart: bool = False,
        wait: bool = True,
    ) -> None:
        self.home = home
        self.socket = Paths(home.resolve()).socket
        wanted = {"idle_ms": UNHURRIED_MS, **(settings or {})}
        given = {f"INTERCOM_{name.upper()}": str(value).lower() for name, value in wanted.items()}
        self.process: subprocess.Popen[bytes] | Child
        if apart or command != SERVE or arguments:
            assert not fault, "a program cannot be given a fault"
            self.process = subprocess.Popen(
                (*command, *arguments),
                env=environment(home, given),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        else:
            self.process = serving_child(home, environment(home, given), fault)
        self.errors = ""
        self._clients: list[RawClient] = []
        if wait:
            self.wait_until_it_answers()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    def wait_until_it_answers(self, timeout: float = PATIENCE_S) -> str:
        """Return the instance id as soon as ``health`` is answered; fail when the process ends before."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                with self.connect() as client:
                    return client.health()
            except (FileNotFoundError, ConnectionRefusedError):
                pass
            if self.process.poll() is not None:
                raise AssertionError(f"the broker ended with {self.process.returncode}: {self._read_errors()}")
            time.sleep(POLL_S)
        raise AssertionError("the broker did not answer in time")

    def connect(self) -> RawClient:
        """Return a new connection to it; ``close`` closes those a test leaves open."""
        client = RawClient(self.socket)
        self._clients.append(client)
        return client

    def registered(self, name: str | None = None, **extra: object) -> RawClient:
        """Return a new connection with a session."""
        client = self.connect()
        client.register(name, **extra)
        return client

    def signal(self, number: int) -> None:
        """Send it a signal; one that stops it has done so when this returns."""
        if number == signal.SIGSTOP:
            stop(self.process.pid)
        else:
            self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Return its exit status; fail when it does not end in time. ``errors`` holds its standard error then."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker is still there after {timeout} s") from None
        self._read_errors()
        return status

    def stop(self, timeout: float = PATIENCE_S) -> int:
        """Ask it to stop and return its exit status."""
        self.process.terminate()
        return self.wait(timeout)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.wait()

    def close(self) -> None:
        """End it if it still runs; for the end of a test."""
        end(self.process)
        for client in self._clients:
            client.close()
        self._read_errors()

    @property
    def log(self) -> str:
        """Return the text of its log."""
        return (self.home / "intercom.log").read_text()

    def _read_errors(self) -> str:
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.errors += complaints(self.process.stderr.read())
            self.process.stderr.close()
        return self.errors
