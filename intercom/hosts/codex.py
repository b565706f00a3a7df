"""Codex CLI: the server is a table in ``config.toml``, hooks stand in ``hooks.json``.

Hooks go into a file of their own kind and to the end of each list: the host remembers by their place which of them the
person has reviewed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom.hosts.facts import Facts, Moment, Wish
from intercom.limits import HOOK_ENTRY_S, HOOK_LAST_ENTRY_S, HOST_TOOL_S

if TYPE_CHECKING:
    from intercom.hosts.parts import Part

MOMENTS: dict[str, Moment] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PostToolUse": "tool",
    "Stop": "stop",
    "SessionEnd": "end",
}


def directory(wish: Wish) -> Path:
    """Return where Codex keeps its settings."""
    return wish.place("CODEX_HOME", ".codex")


def parts(wish: Wish) -> list[Part]:
    """Return the table of the server, the hooks, and the skill."""
    from intercom.hosts.hookentries import handler, is_our_group
    from intercom.hosts.jsonedit import Entry
    from intercom.hosts.jsontext import Dialect
    from intercom.hosts.parts import SERVER, JsonPart, TomlPart, runs_us
    from intercom.hosts.skill import skill_file
    from intercom.paths import HOME_VARIABLE

    program, *arguments = wish.run("mcp", "--host", "codex")
    table: dict[str, Any] = {"command": program, "args": arguments, "tool_timeout_sec": HOST_TOOL_S}
    if wish.environ.get(HOME_VARIABLE):
        table["env_vars"] = [HOME_VARIABLE]  # the host hands on next to nothing else
    if wish.approve:
        table["default_tools_approval_mode"] = "approve"

    def is_ours(found: Any) -> bool:
        return isinstance(found, dict) and runs_us(found.get("command"), found.get("args"), "mcp")

    ours = partial(is_our_group, "codex")
    entries = []
    for event in MOMENTS:
        timeout = HOOK_LAST_ENTRY_S if event == "SessionEnd" else HOOK_ENTRY_S
        group = {"hooks": [handler(wish, "codex", event, timeout=timeout)]}
        entries.append(Entry(("hooks", event), group, ours, is_item=True))
    return [
        TomlPart(directory(wish) / "config.toml", ("mcp_servers", SERVER), table, is_ours),
        JsonPart(directory(wish) / "hooks.json", Dialect(), tuple(entries)),
        skill_file(directory(wish) / "skills" / SERVER / "SKILL.md", wish),
    ]


def output(event: str, moment: Moment, text: str) -> dict[str, Any]:
    """Return what a hook prints; the host takes no other member than these."""
    if moment == "stop":
        return {"decision": "block", "reason": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


FACTS = Facts(
    name="codex",
    title="Codex CLI",
    directory=directory,
    program="codex",
    parts=parts,
    after="Codex runs new hooks only after you reviewed them: start it and choose to trust them, or type /hooks.",
    moments=MOMENTS,
    output=output,
    agent_is_session=True,
)
