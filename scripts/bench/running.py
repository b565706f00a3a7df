"""Run one engine: start it, know when it answers, place it on a processor, count its time, end it."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from scripts.bench.engines import Engine, clean_environment

START_S = 15.0
"""Longest wait for an engine's first answer."""
ANSWER_S = 5.0
"""Longest wait for one answer of an engine that listens."""
END_S = 3.0
"""How long an engine may take to end when it is asked to."""
POLL_S = 0.001
"""Pause between two attempts to reach an engine that is starting."""
LOG_CHARACTERS = 300
"""How much of a failed engine's output is shown."""


class EngineFailed(Exception):
    """Say why an engine could not be started or measured."""


class Running:
    """Hold one private engine; a context manager that ends it, and nothing but it.

    Args:
        engine: which one.
        program: its executable.
        directory: an empty directory for all its files.
        environment: variables it gets beside those of the engine.
    """

    def __init__(
        self, engine: Engine, program: str, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        launch = engine.launch(program, directory)
        self.engine = engine
        self.directory = directory
        self.address = launch.address
        self.environment = clean_environment(os.environ, {**launch.environment, **(environment or {})})
        self._log = directory / "output"
        with self._log.open("wb") as log:
            self._started = time.perf_counter()
            self._process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env=self.environment,
                start_new_session=True,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_until_it_answers(self) -> float:
        """Return the time from the start of the process to its first useful answer, in ms."""
        while True:
            try:
                with reach(self.address) as connection:
                    greet(self.engine.protocol, connection)
                    return (time.perf_counter() - self._started) * 1_000
            except OSError as error:
                if self._process.poll() is not None or time.perf_counter() - self._started > START_S:
                    raise EngineFailed(f"it did not start: {error}; it said: {self.said()}") from error
                time.sleep(POLL_S)

    def said(self) -> str:
        """Return the end of what the engine printed."""
        return self._log.read_text(errors="replace")[-LOG_CHARACTERS:].strip()

    @property
    def pid(self) -> int:
        """Return the number of the process that was started."""
        return self._process.pid

    def resident_kib(self) -> int:
        """Return the memory that its first process holds now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise EngineFailed(f"it ended; it said: {self.said()}")

    def busy_ms(self) -> float:
        """Return the processor time of its first process with the precision of the scheduler."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def cpu_seconds(self) -> float:
        """Return the processor time its processes have used."""
        return sum(seconds for _, seconds in self._processes())

    @contextmanager
    def on_one_cpu(self) -> Iterator[None]:
        """Keep the engine and this process, with what it starts meanwhile, on one processor."""
        everywhere = os.sched_getaffinity(0)
        one = {min(everywhere)}
        self._place(one)
        os.sched_setaffinity(0, one)
        try:
            yield
        finally:
            os.sched_setaffinity(0, everywhere)
            self._place(everywhere)

    def _place(self, processors: set[int]) -> None:
        for pid, _ in self._processes():
            with suppress(OSError):  # it ended just now
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), processors)

    def _processes(self) -> list[tuple[int, float]]:
        """Return the processes of the engine's own session with the seconds each has used."""
        found = []
        ticks = os.sysconf("SC_CLK_TCK")
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError):
                    fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self._process.pid:
                        found.append((int(entry), (int(fields[11]) + int(fields[12])) / ticks))
        return found


def reach(address: str) -> socket.socket:
    """Return a connection to ``unix:PATH`` or ``tcp:HOST:PORT``; raises ``OSError``."""
    kind, _, place = address.partition(":")
    if kind == "tcp":
        host, _, port = place.rpartition(":")
        return socket.create_connection((host, int(port)), ANSWER_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_S)
    try:
        connection.connect(place)
    except OSError:
        connection.close()
        raise
    return connection


def greet(protocol: str, connection: socket.socket) -> None:
    """Wait for the first answer a client can work with; raises ``OSError`` when none comes."""
    _exchange(connection, *_greeting(protocol))


def enter(connection: socket.socket, name: str, *, group: str | None = None, **members: Any) -> bytes:
    """Register a session of this name with an intercom and return what it said; raises ``OSError`` when it does not.

    ``members`` are added to the frame.
    """
    return _exchange(connection, _registration(name, group, members), b'"registered"')


def _exchange(connection: socket.socket, hello: bytes, answer: bytes) -> bytes:
    connection.sendall(hello)
    received = b""
    while answer not in received:
        data = connection.recv(65_536)
        if not data:
            raise ConnectionResetError(f"closed before {answer!r} came")
        received += data
    return received


def _greeting(protocol: str) -> tuple[bytes, bytes]:
    if protocol == "intercom":
        return _registration("first", None, {}), b'"registered"'
    if protocol == "redis":
        return b"PING\r\n", b"+PONG"
    if protocol == "dbus":
        return b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n", b"OK "
    if protocol.startswith("echo"):
        return b"\0\0\0\x03\x0f\xff\x00", b"ok"  # the last pair there is; the generator's pairs begin at 0
    return b"", b"INFO"


def _registration(name: str, group: str | None, members: Mapping[str, Any]) -> bytes:
    moment = int(time.time() * 1_000)
    session = {
        **({} if group is None else {"group": group}),
        "name": name,
        "cwd": "/",
        "model": "bench",
        "pid": os.getpid(),
        "startedAt": moment,
        "lastActivity": moment,
    }
    payload = json.dumps({"type": "register", "session": session, **members}).encode()
    return struct.pack(">I", len(payload)) + payload
