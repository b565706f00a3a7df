"""Know the hosts: how each names its sessions and subagents in what it gives an MCP server (spec of each host)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HOSTS = ("claude", "codex", "opencode", "gemini", "pi", "atomic", "generic")
KINDS = {"claude": "claude-code", "opencode": "opencode", "gemini": "gemini-cli", "generic": "mcp"}
"""What hosts a session, as others are shown it, where that is not the name of the host."""
_CLIENTS = {
    "claude": "claude-code",
    "codex": "codex-mcp-client",
    "opencode": "opencode",
    "gemini": "gemini-cli-mcp-client",
}
"""What the MCP client of each host calls itself."""


SUBAGENT_ARGUMENT = "_subagent"
"""Argument by which the plugin for OpenCode says that a subagent calls."""


class Caller(NamedTuple):
    """Say on whose behalf a tool was called; members that a host does not tell are ``None``."""

    session: str | None = None
    tool_use: str | None = None
    """The id of the call by which a hook may know more."""
    agent: str | None = None
    """The subagent, where the plugin of the host says so."""


def kind_of(host: str) -> str:
    """Return what hosts the session, as others are shown it."""
    return KINDS.get(host, host)


def host_of(client: str | None) -> str:
    """Return the host whose MCP client has this name."""
    named = (client or "").lower()
    return next((host for host, its_client in _CLIENTS.items() if its_client == named), "generic")


def caller_of(host: str, meta: Mapping[str, Any]) -> Caller:
    """Return who calls, from the ``_meta`` of ``tools/call``."""
    if host == "codex":
        return Caller(session=_text(meta.get("threadId")), tool_use=_text(meta.get("callId")))
    return Caller(tool_use=_text(meta.get("claudecode/toolUseId")))


def told_by_plugin(host: str, arguments: Any) -> tuple[Any, str | None]:
    """Return the arguments of a call without what our plugin added, and the subagent it named by that.

    OpenCode says nothing of who calls, but lets a plugin change the arguments of a call that is about to be made.
    """
    if host != "opencode" or not isinstance(arguments, dict) or SUBAGENT_ARGUMENT not in arguments:
        return arguments, None
    rest = {name: value for name, value in arguments.items() if name != SUBAGENT_ARGUMENT}
    return rest, _text(arguments[SUBAGENT_ARGUMENT])


def names_sessions_itself(host: str) -> bool:
    """Tell whether each call of a tool says in which session it is made, so that nothing has to be guessed."""
    return host == "codex"


def claude_session(environ: Mapping[str, str], host_pid: int) -> str | None:
    """Return the session that Claude Code says its process is in; ``None`` where it says nothing.

    The variable it gives to servers names the older one after ``/clear``, and none at all after ``--continue``.
    """
    place = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(environ.get("HOME", "/"), ".claude")
    try:
        found = json.loads((Path(place) / "sessions" / f"{host_pid}.json").read_bytes())
        return _text(found["sessionId"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def directory_of(host: str, environ: Mapping[str, str]) -> str:
    """Return the folder that a session of this host works in."""
    if host == "claude" and environ.get("CLAUDE_PROJECT_DIR"):
        return environ["CLAUDE_PROJECT_DIR"]
    try:
        return os.getcwd()
    except OSError:
        return "/"


def environment_of(pid: int) -> dict[str, str]:
    """Return what a process was started with, as far as the kernel tells."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
