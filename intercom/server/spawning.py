"""Start the commands that the settings name, so that sessions come (design section 7, Trust).

What a request holds never becomes part of a command line: the prompt is the standard input, the token a variable. A
command has a session and process group of its own, nothing of ours open, and outlives the broker, which waits for
none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Protocol

from intercom.config import SpawnKind
from intercom.limits import SPAWN_LOOK_MS
from intercom.paths import HOME_VARIABLE, Paths

TOKEN_VARIABLE = "INTERCOM_SPAWN_TOKEN"
"""Where a command finds its token."""
NOT_HANDED_ON = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PID",
    "CODEX_THREAD_ID",
    "CODEX_SESSION_ID",
    "ATOMIC_SESSION_ID",
    "PI_SESSION_ID",
    "GEMINI_SESSION_ID",
    "GEMINI_CLI",
    "OPENCODE",
    "OPENCODE_PID",
    "AGENT",
)
"""Variables that tell of the agent host that happened to start the broker: what is started now is no part of that."""


class Spawner(Protocol):
    """Start sessions; whoever asked is told of failures by a callback, never from within ``spawn``."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return what can be started."""

    def spawn(self, ref: str, kind: str, prompt: str, token: str) -> None:
        """Start a session of this kind."""

    def close(self) -> None:
        """Watch nothing any more; what was started goes on."""


class CommandSpawner:
    """Run the commands of the settings.

    Args:
        kinds: the commands by what they are called.
        paths: of the home; commands find it in their environment.
        environ: what commands inherit, without what is the broker's own or that of an agent host.
        loop: tells when a command ends.
        on_failed: called with the reference and a reason when a command could not be started or ended with a failure.
    """

    def __init__(
        self,
        kinds: Mapping[str, SpawnKind],
        paths: Paths,
        environ: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        on_failed: Callable[[str, str], None],
    ) -> None:
        self._kinds = dict(kinds)
        self._paths = paths
        self._environ = environ
        self._loop = loop
        self._on_failed = on_failed
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._descriptors: dict[str, int] = {}
        self._look: asyncio.TimerHandle | None = None
        """Set while commands run whose end the kernel does not announce."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return what can be started."""
        return tuple(self._kinds)

    def spawn(self, ref: str, kind: str, prompt: str, token: str) -> None:
        """Start a command; the loop tells of its end."""
        directory = os.path.expanduser(self._kinds[kind].cwd)
        try:
            with _holding(prompt) as standard_input:
                process = subprocess.Popen(
                    self._kinds[kind].command,
                    stdin=standard_input,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=directory,
                    env=self._environment(token),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            if not os.path.isdir(directory):
                why = f"its directory {directory} is not there"
            self._loop.call_soon(self._on_failed, ref, f"The command of {kind} cannot be started: {why}")
            return
        self._running[ref] = process
        self._await_end(ref, process)

    def close(self) -> None:
        """Watch nothing any more; commands go on, and belong to nobody once this process has ended."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for ref in list(self._descriptors):
            self._forget_descriptor(ref)
        for process in self._running.values():
            process.returncode = process.poll() or 0  # it is waited for no more, and that is no fault
        self._running.clear()

    # --- inner works ------------------------------------------------------------------------------------

    def _environment(self, token: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environ.items()
            if not name.startswith("INTERCOM_") and name not in NOT_HANDED_ON
        }
        return {**kept, HOME_VARIABLE: str(self._paths.home), TOKEN_VARIABLE: token}

    def _await_end(self, ref: str, process: subprocess.Popen[bytes]) -> None:
        descriptor = _announced(process.pid)
        if descriptor is not None:
            try:
                self._loop.add_reader(descriptor, self._ended, ref)
            except OSError:  # the kernel has a limit for what one user may watch
                os.close(descriptor)
            else:
                self._descriptors[ref] = descriptor
                return
        self._look_again()

    def _look_again(self) -> None:
        if self._look is None:
            self._look = self._loop.call_later(SPAWN_LOOK_MS / 1000, self._look_around)

    def _look_around(self) -> None:
        self._look = None
        for ref in [ref for ref in self._running if ref not in self._descriptors]:
            self._ended(ref)
        if len(self._running) > len(self._descriptors):
            self._look_again()

    def _ended(self, ref: str) -> None:
        """Take the exit status of a command, if it has ended."""
        status = self._running[ref].poll()
        if status is None:
            return
        del self._running[ref]
        self._forget_descriptor(ref)
        if status:
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            self._on_failed(ref, f"The command ended {how}")

    def _forget_descriptor(self, ref: str) -> None:
        descriptor = self._descriptors.pop(ref, None)
        if descriptor is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)


def _holding(prompt: str) -> IO[bytes]:
    """Return a file without a name that holds the prompt, to be read from its start."""
    data = prompt.encode("utf-8", "replace")
    file: IO[bytes]
    if sys.platform.startswith("linux"):
        file = open(os.memfd_create("intercom-prompt", os.MFD_CLOEXEC), "w+b", buffering=0)  # noqa: SIM115
    else:
        import tempfile  # it brings the compression modules along

        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    file.write(data)
    file.seek(0)
    return file


def _announced(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a child ends, where the kernel has such."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
