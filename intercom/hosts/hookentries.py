"""Make the entries that have a host run ``intercom hook`` at its events; three hosts share their form."""

from __future__ import annotations

import shlex
from typing import Any

from intercom.hosts.facts import Wish
from intercom.hosts.parts import runs_us


def handler(wish: Wish, host: str, event: str, *, timeout: int, as_shell: bool = True, **more: Any) -> dict[str, Any]:
    """Return one handler; ``timeout`` is in the host's own unit, ``as_shell`` for hosts that want one shell line."""
    program, *arguments = wish.run("hook", host, event)
    if as_shell:
        return {"type": "command", "command": shlex.join([program, *arguments]), "timeout": timeout, **more}
    return {"type": "command", "command": program, "args": arguments, "timeout": timeout, **more}


def is_our_group(host: str, group: Any) -> bool:
    """Tell whether a group of handlers under an event is ours as a whole."""
    handlers = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(handlers, list) or not handlers:
        return False
    return all(
        isinstance(each, dict) and runs_us(each.get("command"), each.get("args"), "hook", host) for each in handlers
    )
