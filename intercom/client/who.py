"""Decide whose process this is: what the commands and adapters of one agent, terminal or name have in common.

A command ends long before the work it belongs to, so what it is to remember, such as groups it joined, is kept under
an identity that its successors find again: (1) the name given by ``--as`` or ``INTERCOM_NAME``; (2) the session
variable of the nearest agent host; (3) on a terminal, the leader of the terminal session, told apart from later
processes of its number by its start time; (4) else none: a guest, of whom nothing is remembered. The first three are
addresses: mail waits for them, also where others see no name.

A host that gives its subagents no variable of their own lends them the identity of the session.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from intercom.client.profile import checked_name
from intercom.errors import UsageError
from intercom.limits import ADDRESS_DIGITS, SEAT_DIGITS, SEAT_FOLDER_CHARACTERS

Rule: TypeAlias = Literal["name", "host", "terminal", "guest"]

NAME_VARIABLE = "INTERCOM_NAME"
SESSION_VARIABLES = {
    "CLAUDE_CODE_SESSION_ID": "Claude Code",
    "CODEX_THREAD_ID": "Codex CLI",
    "ATOMIC_SESSION_ID": "Atomic",
    "PI_SESSION_ID": "Pi",
    "GEMINI_SESSION_ID": "Gemini CLI",
}
"""Variables that name a session of an agent host; of those set by one host the first counts."""
HOST_VARIABLES = {
    "claude": "CLAUDE_CODE_SESSION_ID",
    "codex": "CODEX_THREAD_ID",
    "atomic": "ATOMIC_SESSION_ID",
    "pi": "PI_SESSION_ID",
    "gemini": "GEMINI_SESSION_ID",
}
"""The variable of each host; the value is what its hooks and MCP calls name the session, too."""
HOST_MARKERS = (
    *SESSION_VARIABLES,
    "CLAUDECODE",
    "CLAUDE_PID",
    "CODEX_SESSION_ID",
    "OPENCODE",
    "OPENCODE_PID",
    "GEMINI_CLI",
)
"""Variables whose presence says that an agent host runs this process."""
_MOST_ANCESTORS = 64
_OF_PROCESS = "process\0"


class Identity(NamedTuple):
    """Say by which rule a command has which identity; ``key`` is ``None`` for a guest."""

    rule: Rule
    key: str | None
    name: str | None
    about: str
    """What the identity rests on, for people."""

    @property
    def is_of_process(self) -> bool:
        """Tell whether it is over with one process, so that nobody comes back to its address."""
        return self.key is not None and self.key.startswith(_OF_PROCESS)

    @property
    def address(self) -> str | None:
        """Return the name of its address; one without a name of its own has one that tells nothing of it."""
        if self.key is None or self.name is not None:
            return self.name
        from hashlib import sha256

        return f"{self.rule}-{sha256(self.key.encode('utf-8', 'surrogatepass')).hexdigest()[:ADDRESS_DIGITS]}"


def given_name(name: str | None) -> str | None:
    """Return the name a process acts under: ``name``, else ``INTERCOM_NAME``; raise ``UsageError`` for a bad one."""
    if name is None:
        name = os.environ.get(NAME_VARIABLE, "").strip()
        return checked_name(name) if name else None
    if not name.strip():
        raise UsageError("--as needs a name", hint="Leave --as out to act as a guest.")
    return checked_name(name)


def identity(name: str | None = None) -> Identity:
    """Return the identity of this process, ``name`` being what it was told by ``--as``.

    Raises ``UsageError`` for a bad name.
    """
    found = given_name(name)
    if found is not None:
        return named_identity(found, "--as" if name is not None else NAME_VARIABLE)
    markers = host_markers(os.environ)
    if markers:
        variable = nearest(os.environ)
        if variable is None:
            return Identity("guest", None, None, f"{markers[0]} is set, but no session of one host can be told")
        return _of_variable(variable, os.environ[variable])
    if on_a_terminal():
        leader = os.getsid(0)
        started = start_of(leader)
        if started is not None:
            return Identity("terminal", f"terminal\0{leader}\0{started}", None, f"the terminal session of {leader}")
    return Identity("guest", None, None, "no name, no session of an agent host, no terminal")


def named_identity(name: str, origin: str) -> Identity:
    """Return the identity of who was given a name; ``origin`` says by what."""
    return Identity("name", f"name\0{name.lower()}", name, f"the name given by {origin}")


def host_identity(host: str, session_id: str) -> Identity:
    """Return the identity of a session of an agent host: the one that commands run in it have.

    ``host`` is one of ``HOST_VARIABLES``, ``session_id`` the value its variable has there.
    """
    return _of_variable(HOST_VARIABLES[host], session_id)


def process_identity(host: str, pid: int) -> Identity | None:
    """Return the identity of whatever one process of a host holds, for hosts that name no session.

    ``None`` where the kernel does not tell when the process began.
    """
    started = start_of(pid)
    if started is None:
        return None
    return Identity("host", f"{_OF_PROCESS}{host}\0{pid}\0{started}", None, f"process {pid} of {host}")


def seat_name(directory: str, address: str) -> str:
    """Return a visible name for a session of a host: its folder and a few digits that tell it from others there."""
    folder = re.sub(r"[^A-Za-z0-9_.]+", "-", os.path.basename(os.path.normpath(directory))).strip("-.")
    digits = address.rpartition("-")[2][:SEAT_DIGITS]
    return f"{folder[:SEAT_FOLDER_CHARACTERS].strip('-.') or 'session'}-{digits}"


def _of_variable(variable: str, value: str) -> Identity:
    return Identity("host", f"host\0{variable}\0{value}", None, f"{variable} of {SESSION_VARIABLES[variable]}")


def host_markers(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that tell of an agent host."""
    found = [variable for variable in HOST_MARKERS if environ.get(variable)]
    return [*found, "AGENT"] if environ.get("AGENT") == "1" else found


def nearest(environ: Mapping[str, str]) -> str | None:
    """Return the session variable that the nearest host set, or ``None`` when that cannot be told.

    Hosts run inside one another, and a process inherits the variables of all of them. Seen from here upwards, those
    of the nearest host are the first that an ancestor does not have.
    """
    mine = {variable: environ[variable] for variable in SESSION_VARIABLES if environ.get(variable)}
    if len(mine) < 2 or set(mine) == {"ATOMIC_SESSION_ID", "PI_SESSION_ID"}:
        return next(iter(mine), None)
    for ancestor in _environments_above():
        for variable, value in mine.items():
            if ancestor.get(variable) != value:
                return variable
    return None


def on_a_terminal() -> bool:
    """Tell whether one of the standard streams is a terminal."""
    return any(os.isatty(descriptor) for descriptor in range(3))


def start_of(pid: int) -> str | None:
    """Return a text that no other process of this number shares, now or later; ``None`` when there is none."""
    if not sys.platform.startswith("linux"):
        return _start_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19]
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip()
    except (OSError, IndexError):
        return None
    return f"{started.decode('ascii')}@{boot.decode('ascii')}"


def _start_by_ps(pid: int) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            ["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=2, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _environments_above() -> Iterator[dict[str, str]]:
    """Yield what the ancestors were started with, the parent first, as far as the kernel tells."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 0:
            return
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                above = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return
        pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
        yield {name: value for name, _, value in pairs}
        pid = above
