"""Reach hosts through what they offer themselves: the inbox socket of Claude Code, the queue of Codex."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

import anyio

from intercom.client.profile import Push
from intercom.limits import HOST_PUSH_MS
from intercom.mcp.hosts import environment_of
from intercom.mcp.seat import Seat

SOCKET_VARIABLE = "CLAUDE_CODE_MESSAGING_SOCKET"
TOKEN_VARIABLE = "CLAUDE_CODE_MESSAGING_TOKEN"


class ClaudeInbox:
    """Write to the socket on which Claude Code takes messages of its own sessions.

    Its frame is not documented; it was seen to work at 2.1.332, where an idle session wakes and a busy one takes the
    message after the tool that runs. The model is told that another session sent it and that it has no authority. There
    is no answer, so what is written is a bell and never the message itself.
    """

    name = "inbox"

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take the place and the token from the environment the host gave."""
        self._socket = environ.get(SOCKET_VARIABLE)
        self._token = environ.get(TOKEN_VARIABLE)

    def level(self, seat: Seat) -> Push | None:
        """Return ``now`` while the socket is there; subagents have none."""
        if seat.place.is_subagent or self._socket is None:
            return None
        return "now" if os.path.exists(self._socket) else None

    async def ring(self, seat: Seat, text: str) -> bool:
        """Write one bell."""
        lines: list[dict[str, object]] = []
        if self._token:
            lines.append({"type": "auth", "token": self._token})
        lines.append({"type": "user", "message": {"role": "user", "content": text}, "from": "intercom"})
        assert self._socket is not None, "level was asked before"
        try:
            with anyio.fail_after(HOST_PUSH_MS / 1000):
                async with await anyio.connect_unix(self._socket) as stream:
                    await stream.send("".join(json.dumps(line) + "\n" for line in lines).encode())
        except (OSError, TimeoutError, anyio.BrokenResourceError):
            return False
        return True


class CodexQueue:
    """Put a bell into the queue of a Codex thread: an idle one takes it at once, a busy one in its next turn.

    That is a command of Codex itself, found as the program of the daemon that started this adapter; without a daemon,
    as in ``codex exec``, there is no queue.
    """

    name = "queue"

    def __init__(self, host_pid: int) -> None:
        """Find the program and its home."""
        self._environ = environment_of(host_pid)
        self._program = _program_of(host_pid)
        self._is_daemon = "app-server" in _words_of(host_pid)

    def level(self, seat: Seat) -> Push | None:
        """Return ``idle`` where there is a daemon and the thread is known."""
        return "idle" if self._is_daemon and self._program is not None and seat.place.session else None

    async def ring(self, seat: Seat, text: str) -> bool:
        """Queue one bell."""
        assert self._program is not None
        assert seat.place.session is not None
        command = [self._program, "queue", "--thread", seat.place.session, "--message", text]
        try:
            with anyio.fail_after(HOST_PUSH_MS / 1000):
                done = await anyio.run_process(
                    command, stdin=subprocess.DEVNULL, check=False, env=self._environ or None
                )
        except (OSError, TimeoutError):
            return False
        return done.returncode == 0


def _program_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _words_of(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")]
    except OSError:
        return []
