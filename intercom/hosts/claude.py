"""Claude Code: one folder that it loads as a plugin holds server, hooks, monitor and skill; nothing else is touched.

A permission rule, if the person wants one, is the only thing that goes into a file of the person.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom import __version__
from intercom.hosts.facts import Facts, Moment, Wish
from intercom.limits import HOOK_ENTRY_S, REWAKE_ENTRY_S

if TYPE_CHECKING:
    from intercom.hosts.parts import Part

PLUGIN = "intercom"
TOOLS = f"mcp__plugin_{PLUGIN}_{PLUGIN}"
"""What the names of our tools begin with in a plugin."""
MOMENTS: dict[str, Moment] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PostToolBatch": "tool",
    "PostToolUse": "tool",
    "SubagentStart": "agent",
    "SubagentStop": "agent",
    "Stop": "stop",
    "Rewake": "rewake",
    "SessionEnd": "end",
}


def directory(wish: Wish) -> Path:
    """Return where Claude Code keeps its settings."""
    return wish.place("CLAUDE_CONFIG_DIR", ".claude")


def parts(wish: Wish) -> list[Part]:
    """Return the files of the plugin, and the permission rule if it is wanted."""
    from intercom.hosts.jsonedit import Entry
    from intercom.hosts.jsontext import Dialect
    from intercom.hosts.parts import JsonPart, own_json
    from intercom.hosts.skill import skill_file

    folder = directory(wish) / "skills" / PLUGIN
    program, *arguments = wish.run("mcp", "--host", "claude")
    bell = shlex.join(wish.run("mcp", "--bell", "--host", "claude"))
    plugin = {
        "name": PLUGIN,
        "version": __version__,
        "description": "intercom: talk with other agent sessions on this machine",
        "experimental": {"monitors": [{"name": "mail", "command": bell, "description": PLUGIN}]},
    }
    server = {"command": program, "args": arguments, "alwaysLoad": True}
    found: list[Part] = [
        own_json(folder / ".claude-plugin" / "plugin.json", plugin),
        own_json(folder / ".mcp.json", {"mcpServers": {PLUGIN: server}}),
        own_json(folder / "hooks" / "hooks.json", {"hooks": _hooks(wish)}),
        skill_file(folder / "skills" / PLUGIN / "SKILL.md", wish),
    ]
    if wish.approve:
        rule = Entry(("permissions", "allow"), TOOLS, lambda value: value == TOOLS, is_item=True)
        found.append(JsonPart(directory(wish) / "settings.json", Dialect(bom=True), (rule,)))
    return found


def _hooks(wish: Wish) -> dict[str, Any]:
    from intercom.hosts.hookentries import handler

    def one(event: str, **more: Any) -> dict[str, Any]:
        return handler(wish, "claude", event, as_shell=False, **{"timeout": HOOK_ENTRY_S, **more})

    always = ("SessionStart", "UserPromptSubmit", "PostToolBatch", "SubagentStart", "SubagentStop", "SessionEnd")
    groups: dict[str, Any] = {event: [{"hooks": [one(event)]}] for event in always}
    groups["PreToolUse"] = [{"matcher": f"{TOOLS}__.*", "hooks": [one("PreToolUse")]}]
    rewake = one("Rewake", timeout=REWAKE_ENTRY_S, asyncRewake=True, **{"async": True})
    # In groups of their own: of two handlers of one group that have the same program Claude Code runs only the first.
    groups["Stop"] = [{"hooks": [one("Stop")]}, {"hooks": [rewake]}]
    return groups


def output(event: str, moment: Moment, text: str) -> dict[str, Any]:
    """Return what a hook prints: context for the model, or a reason to go on."""
    if moment == "stop":
        return {"decision": "block", "reason": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


FACTS = Facts(
    name="claude",
    title="Claude Code",
    directory=directory,
    program="claude",
    parts=parts,
    after="Sessions of Claude Code that run now see it after /reload-plugins, or when they are started again.",
    moments=MOMENTS,
    output=output,
    session_variable="CLAUDE_CODE_SESSION_ID",
)
