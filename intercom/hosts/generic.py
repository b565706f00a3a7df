"""Any other host that reads ``{"mcpServers": {NAME: {"command", "args"}}}``: the person names its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom.errors import UsageError
from intercom.hosts.facts import Facts, Wish

if TYPE_CHECKING:
    from intercom.hosts.parts import Part


def directory(wish: Wish) -> Path:
    """Return the directory of the file the person named."""
    if wish.file is None:
        raise UsageError("which file is meant is missing", hint="`intercom install mcp --file FILE`.")
    return wish.file.parent


def parts(wish: Wish) -> list[Part]:
    """Return the entry of the server."""
    from intercom.hosts.jsonedit import Entry
    from intercom.hosts.jsontext import Dialect
    from intercom.hosts.parts import SERVER, JsonPart, runs_us

    program, *arguments = wish.run("mcp")

    def is_ours(found: Any) -> bool:
        return isinstance(found, dict) and runs_us(found.get("command"), found.get("args"), "mcp")

    file = directory(wish) / (wish.file or Path()).name
    # which dialect the host reads is not known: what plain JSON does not hold is kept and nothing of it is added
    dialect = Dialect(comments=True, trailing_commas=True, bom=True)
    entry = Entry(("mcpServers", SERVER), {"command": program, "args": arguments}, is_ours)
    return [JsonPart(file, dialect, (entry,))]


FACTS = Facts(
    name="mcp",
    title="the host",
    directory=directory,
    program=None,
    parts=parts,
    after="The host sees it when it is started again.",
)
