"""Read a flow out of a small TOML or JSON file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from intercom.errors import AccessDenied, TooLarge, UsageError
from intercom.limits import MIB, WHOLE_NUMBER_MAX, Limits

_MEMBERS = {"id", "target", "group", "steps"}
_STEP_MEMBERS = {"id", "prompt", "todo", "report_timeout_s"}
_MOST_BYTES = Limits().flow_bytes + 1 * MIB
"""Prompts, and what is written around them."""


def read_flow(place: str) -> dict[str, Any]:
    """Return the members of the flow in a file; ``-`` reads standard input.

    Steps are as the library takes them. Raises ``UsageError`` for what is no flow, naming file and member.
    """
    name = "standard input" if place == "-" else place
    content = _content(place)
    flow = _parsed(content, name, is_json=place.endswith(".json") or content.lstrip()[:1] == b"{")
    if not isinstance(flow, dict):
        raise UsageError(f"{name} does not hold a flow")
    _check(flow, _MEMBERS, name)
    for member in ("id", "target", "group"):
        if member in flow and not isinstance(flow[member], str):
            raise UsageError(f"{name}: {member} must be a text")
    steps = flow.get("steps", [])
    if not isinstance(steps, list):
        raise UsageError(f"{name}: steps must be a list")
    return {**flow, "steps": [_step(step, f"{name}: step {place}") for place, step in enumerate(steps, 1)]}


def _step(step: Any, where: str) -> dict[str, Any]:
    if not isinstance(step, dict):
        raise UsageError(f"{where} is no table")
    _check(step, _STEP_MEMBERS, where)
    if not isinstance(step.get("id"), str) or not isinstance(step.get("prompt"), str):
        raise UsageError(f"{where} needs an id and a prompt")
    members: dict[str, Any] = {"step_id": step["id"], "prompt": step["prompt"]}
    if "todo" in step:
        if not isinstance(step["todo"], dict):
            raise UsageError(f"{where}: todo must be a table")
        members["todo_binding"] = step["todo"]
    if "report_timeout_s" in step:
        seconds = step["report_timeout_s"]
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 < seconds <= WHOLE_NUMBER_MAX / 1000:
            raise UsageError(f"{where}: report_timeout_s must be a number of seconds above 0")
        members["report_timeout_ms"] = max(1, round(seconds * 1000))
    return members


def _check(members: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(members.keys() - known)
    if unknown:
        raise UsageError(f"{where}: {unknown[0]} is not known", hint="Known are: " + ", ".join(sorted(known)) + ".")


def _content(place: str) -> bytes:
    try:
        if place == "-":
            if sys.stdin is None:
                raise UsageError("standard input is closed, there is no flow to read")
            content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(place).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
    except PermissionError as error:
        raise AccessDenied(f"{place} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise TooLarge(f"{place} is larger than a flow may be")
    return content


def _parsed(content: bytes, name: str, *, is_json: bool) -> Any:
    import tomllib

    kind = "JSON" if is_json else "TOML"
    try:
        text = content.decode()
        return json.loads(text) if is_json else tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{name} is no {kind}: it is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{name} is no {kind}: {error}") from error
