"""OpenCode: the server is an entry in ``opencode.json`` or ``opencode.jsonc``; a plugin of ours does what hooks do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom.hosts.facts import Facts, Wish
from intercom.limits import HOST_TOOL_LONG_S, SECOND_MS

if TYPE_CHECKING:
    from intercom.hosts.parts import Part


def directory(wish: Wish) -> Path:
    """Return where OpenCode keeps its settings."""
    return wish.place("XDG_CONFIG_HOME", ".config") / "opencode"


def parts(wish: Wish) -> list[Part]:
    """Return the entry of the server, the plugin, and the skill."""
    from intercom.hosts.jsonedit import Entry
    from intercom.hosts.jsontext import Dialect
    from intercom.hosts.parts import SERVER, JsonPart, OwnFile, runs_us
    from intercom.hosts.skill import skill_file

    server = {
        "type": "local",
        "command": wish.run("mcp", "--host", "opencode"),
        "timeout": HOST_TOOL_LONG_S * SECOND_MS,
        "enabled": True,
    }

    def is_ours(found: Any) -> bool:
        return isinstance(found, dict) and runs_us(found.get("command"), None, "mcp")

    dialect = Dialect(comments=True, trailing_commas=True, bom=True)
    return [
        JsonPart(_settings(directory(wish)), dialect, (Entry(("mcp", SERVER), server, is_ours),)),
        OwnFile(directory(wish) / "plugins" / f"{SERVER}.js", plugin(wish.home), PLUGIN_MARK),
        skill_file(directory(wish) / "skills" / SERVER / "SKILL.md", wish),
    ]


PLUGIN_MARK = "// intercom plugin for OpenCode"


def plugin(home: str | None) -> str:
    """Return the text of the plugin; it looks for the adapter in the home of the installation, if one was named."""
    text = Path(__file__).with_name("opencode.js").read_text(encoding="utf-8")
    return text.replace("const HOME = null\n", f"const HOME = {json.dumps(home)}\n")


def _settings(folder: Path) -> Path:
    """Return the file that counts: of two the one that the host reads last."""
    names = ("opencode.jsonc", "opencode.json")
    return next((folder / name for name in names if (folder / name).exists()), folder / names[1])


FACTS = Facts(
    name="opencode",
    title="OpenCode",
    directory=directory,
    program="opencode",
    parts=parts,
    after="Sessions of OpenCode that run now see it when they are started again.",
)
