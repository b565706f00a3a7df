"""Run real NATS servers on loopback, in directories of their own, and end exactly those."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.raw import PATIENCE_S

POLL_S = 0.01


def server_program() -> str:
    """Return the path of the server, which comes with a development dependency; skip where that is not installed."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server is not installed")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class NatsServer:
    """Hold one server, from its start to its end; ``start`` begins it again on the same port and directory."""

    def __init__(self, directory: Path, port: int, *, more: str = "") -> None:
        self.port = port
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{directory}/stream", max_mem: 64MB, max_file: 256MB }}\n{more}'
        )
        self._command = [server_program(), "-c", str(settings)]
        self.process: subprocess.Popen[bytes]
        self.start()

    @property
    def url(self) -> str:
        """Return where it is reached."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin, and return once it can be connected to."""
        with (self.directory / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.directory / "nats.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(POLL_S)
        raise AssertionError("the server cannot be connected to")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Let it stand still."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.kill()


def one_server(directory: Path) -> NatsServer:
    """Return a server by itself."""
    return NatsServer(directory, free_ports(1)[0])


def three_servers(directory: Path) -> list[NatsServer]:
    """Return three servers that are one cluster."""
    ports = free_ports(6)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[3:])
    return [
        NatsServer(
            directory / f"n{number}",
            ports[number],
            more=f'server_name: n{number}\ncluster {{ name: c, listen: "127.0.0.1:{ports[3 + number]}", '
            f"routes: [{routes}] }}\n",
        )
        for number in range(3)
    ]
