"""Gemini CLI: server and hooks stand in one ``settings.json``, which may hold comments but no trailing commas."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom.hosts.facts import Facts, Moment, Wish
from intercom.limits import HOOK_ENTRY_S, SECOND_MS

if TYPE_CHECKING:
    from intercom.hosts.parts import Part

MOMENTS: dict[str, Moment] = {
    "SessionStart": "start",
    "BeforeAgent": "prompt",
    "AfterTool": "tool",
    "AfterAgent": "stop",
    "SessionEnd": "end",
}


def directory(wish: Wish) -> Path:
    """Return where Gemini CLI keeps its settings."""
    return wish.user / ".gemini"


def parts(wish: Wish) -> list[Part]:
    """Return server, hooks and skill."""
    from intercom.hosts.hookentries import handler, is_our_group
    from intercom.hosts.jsonedit import Entry
    from intercom.hosts.jsontext import Dialect
    from intercom.hosts.parts import SERVER, JsonPart, runs_us
    from intercom.hosts.skill import skill_file

    program, *arguments = wish.run("mcp", "--host", "gemini")
    server: dict[str, Any] = {"command": program, "args": arguments}
    if wish.approve:
        server["trust"] = True

    def is_ours(found: Any) -> bool:
        return isinstance(found, dict) and runs_us(found.get("command"), found.get("args"), "mcp")

    ours = partial(is_our_group, "gemini")
    entries = [Entry(("mcpServers", SERVER), server, is_ours)]
    for event in MOMENTS:
        group = {"hooks": [handler(wish, "gemini", event, timeout=HOOK_ENTRY_S * SECOND_MS, name=SERVER)]}
        entries.append(Entry(("hooks", event), group, ours, is_item=True))
    return [
        JsonPart(directory(wish) / "settings.json", Dialect(comments=True), tuple(entries)),
        skill_file(directory(wish) / "skills" / SERVER / "SKILL.md", wish),
    ]


def output(event: str, moment: Moment, text: str) -> dict[str, Any]:
    """Return what a hook prints: context for the model, or a refusal to end, which goes on with the reason."""
    if moment == "stop":
        return {"decision": "deny", "reason": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


FACTS = Facts(
    name="gemini",
    title="Gemini CLI",
    directory=directory,
    program="gemini",
    parts=parts,
    after="Sessions of Gemini CLI that run now see it when they are started again.",
    moments=MOMENTS,
    output=output,
    session_variable="GEMINI_SESSION_ID",
)
