"""Do what an agent host runs at its events: ask the adapter of the session, and put its answer into the host's form.

A hook is a process of its own beside the adapter (the MCP server of the same session). The adapter knows what waits and
what is owed; without one the hook acts by itself (``alone``). A message counts as shown when the hook's output was
written whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from intercom.client.adapters import (
    AdapterRecord,
    Asking,
    ancestors,
    ask_adapter,
    nearest_adapter,
    note_session,
)
from intercom.errors import IntercomError
from intercom.hosts.call import Call
from intercom.hosts.stops import Stops
from intercom.limits import HOOK_ANSWER_MS, HOOK_TEXT_CHARACTERS, REWAKE_LOOK_MS, REWAKE_LOOK_PAUSE_MS

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
"""What may stand between a host and its hook."""
REWOKEN = 2
"""Exit status by which a hook in the background wakes a session of Claude Code."""
ANSWER_S = HOOK_ANSWER_MS / 1000
"""How long one answer of an adapter is waited for."""


def run(call: Call, say: Callable[[dict[str, Any]], bool], wake: Callable[[str], bool]) -> int:
    """Do what an event asks for and return the exit status.

    ``say`` writes a document for the host and ``wake`` a text to standard error; both tell whether it was written
    whole. Raises what the broker or the adapter refuses.
    """
    record = _adapter_of(call)
    if record is None:
        _without_adapter(call, say)
        return 0
    with suppress(OSError, ValueError):  # an adapter that goes or does not answer is as good as none
        match call.moment:
            case "start":
                answer = ask_adapter(record, call.request("hello", source=call.event.source), ANSWER_S)
                _say(call, say, _text(answer))
            case "prompt" | "tool":
                _collect(call, record, say)
            case "stop":
                _stop(call, record, say)
            case "rewake":
                return _rewake(call, record, wake)
            case "call":
                if call.event.agent and call.event.tool_use:
                    ask_adapter(record, call.request("call", toolUseId=call.event.tool_use), ANSWER_S)
            case "agent":
                what = "stop" if call.name.endswith("Stop") else "start"
                if call.event.agent:
                    ask_adapter(record, call.request("agent", what=what, type=call.event.agent_type), ANSWER_S)
            case "end":
                ask_adapter(record, call.request("bye", reason=call.event.reason), ANSWER_S)
    return 0


def _adapter_of(call: Call) -> AdapterRecord | None:
    """Return the adapter of the session.

    A first turn may be over before the adapter listens; the hook that wakes the session has time to wait for it.
    """
    until = time.monotonic() + REWAKE_LOOK_MS / 1000
    while True:
        record = nearest_adapter(call.paths, call.facts.name, call.seat or None)
        is_expected = call.moment == "rewake" and call.paths.adapters.is_dir()
        if record is not None or not is_expected or time.monotonic() > until:
            return record
        time.sleep(REWAKE_LOOK_PAUSE_MS / 1000)


def host_process(environ: Mapping[str, str]) -> int:
    """Return the process of the host that runs this hook, perhaps through a shell."""
    named = environ.get("CLAUDE_PID", "")
    if named.isdecimal():
        return int(named)
    for pid in ancestors():
        if _program(pid) not in SHELLS:
            return pid
    return os.getppid()


def _collect(call: Call, record: AdapterRecord, say: Callable[[dict[str, Any]], bool]) -> None:
    with Asking(record, ANSWER_S) as door:
        _show(call, door, say)


def _stop(call: Call, record: AdapterRecord, say: Callable[[dict[str, Any]], bool]) -> None:
    """Show what came during the last step; if nothing did, what is still owed. The adapter counts how often."""
    with Asking(record, ANSWER_S) as door:
        if call.event.goes_on or not _show(call, door, say):
            answer = door.ask(call.request("stop", active=call.event.goes_on))
            _say(call, say, _text(answer))


def _show(call: Call, door: Asking, say: Callable[[dict[str, Any]], bool]) -> bool:
    answer = door.ask(call.request("collect", limit=HOOK_TEXT_CHARACTERS, event=call.name, moment=call.moment))
    text, batch = _text(answer), answer.get("batch")
    if not text:
        return False
    if _say(call, say, text) and isinstance(batch, str):
        door.ask({"op": "done", "batch": batch})
    return True


def _rewake(call: Call, record: AdapterRecord, wake: Callable[[str], bool]) -> int:
    with Asking(record, ANSWER_S) as door:
        door.wait_for_ever()
        text = _text(door.ask(call.request("bell", kind="rewake")))
    return REWOKEN if text and wake(text) else 0


def _without_adapter(call: Call, say: Callable[[dict[str, Any]], bool]) -> None:
    if not call.seat or (call.event.agent and not call.facts.agent_is_session):
        return  # nobody could say whose mail it is, or it is that of another than this subagent
    if call.moment == "start" and call.session:
        with suppress(IntercomError, OSError):  # an adapter that comes finds out by itself
            note_session(call.paths, call.facts.name, host_process(call.environ), call.session, call.event.source)
    stops = Stops(call.paths, call.facts.name, call.seat)
    if call.moment in ("start", "prompt", "end"):
        stops.end()
    if call.moment == "start" or (
        call.moment in ("prompt", "tool", "stop") and os.path.lexists(call.paths.socket) and not call.event.goes_on
    ):
        from intercom.hosts import alone

        def tell(text: str) -> bool:
            return (call.moment != "stop" or stops.may_hold()) and _say(call, say, text)

        alone.act(call, tell)


def _say(call: Call, say: Callable[[dict[str, Any]], bool], text: str) -> bool:
    return bool(text) and say(call.output(text))


def _text(answer: dict[str, Any]) -> str:
    text = answer.get("text")
    return text if isinstance(text, str) else ""


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
