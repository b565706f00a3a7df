"""Play the conversations of ``tests/vectors`` against any broker."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any, Protocol

VECTORS = Path(__file__).parent.parent / "vectors"


class Player(Protocol):
    """Carry out the steps of a conversation."""

    def write(self, client: str, frame: dict[str, Any]) -> None: ...

    def write_bytes(self, client: str, data: bytes) -> None: ...

    def read(self, client: str) -> dict[str, Any] | None:
        """Return the next frame, or None at the end of the stream."""

    def end(self, client: str) -> None: ...

    def exit_status(self) -> int: ...


def conversations() -> list[Path]:
    """Return the files that can be played against a broker."""
    playable = {"steps", "streams", "breaks"}
    return [path for path in sorted(VECTORS.glob("*.json")) if playable & json.loads(path.read_text()).keys()]


def play(path: Path, player: Player) -> None:
    """Play one file and fail at the first frame that does not match."""
    vector = json.loads(path.read_text())
    _play_steps(path, vector.get("steps", []), player)
    for number, stream in enumerate(vector.get("streams", []), 1):
        _play_stream(f"{path.name} stream {number}: {stream['why']}", f"stream {number}", stream, player)
    for number, each in enumerate(vector.get("breaks", []), 1):
        where, client = f"{path.name} break {number}: {each['why']}", f"breaker {number}"
        if vector["as"] is not None:
            player.write(client, vector["as"])
            frame = player.read(client)
            assert frame is not None and frame["type"] == "registered", f"{where}: got {json.dumps(frame)}"
        player.write(client, each["frame"])
        frame = player.read(client)
        assert frame is None, f"{where}: got {json.dumps(frame)}"


def _play_stream(where: str, client: str, stream: dict[str, Any], player: Player) -> None:
    for chunk in stream["chunks"]:
        player.write_bytes(client, _bytes_of(chunk))
    for answer in stream["answers"]:
        frame = player.read(client)
        assert _matches(answer, frame, {}), f"{where}: got {json.dumps(frame)}"
    if stream["ends"]:
        frame = player.read(client)
        assert frame is None, f"{where}: got {json.dumps(frame)}"


def _bytes_of(chunk: dict[str, str]) -> bytes:
    if "hex" in chunk:
        return bytes.fromhex(chunk["hex"])
    payload = chunk["payload"].encode()
    return struct.pack(">I", len(payload)) + payload


def _play_steps(path: Path, steps: list[dict[str, Any]], player: Player) -> None:
    variables: dict[str, Any] = {}
    for number, step in enumerate(steps, 1):
        where = f"{path.name} step {number}: {json.dumps(step)}"
        if "from" in step:
            player.write(step["from"], _filled(step["frame"], variables))
        elif "to" in step:
            frame = player.read(step["to"])
            assert frame is not None, f"{where}: the stream ended"
            assert _matches(step["frame"], frame, variables), f"{where}: got {json.dumps(frame)}"
        elif "end" in step:
            player.end(step["end"])
        elif "closed" in step:
            frame = player.read(step["closed"])
            assert frame is None, f"{where}: got {json.dumps(frame)}"
        elif "silent" in step:
            player.write(step["silent"], {"type": "list", "requestId": "silence"})
            frame = player.read(step["silent"])
            assert frame is not None and frame.get("requestId") == "silence", f"{where}: got {json.dumps(frame)}"
        else:
            assert player.exit_status() == step["exit"], where


def _filled(value: Any, variables: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return variables[value]
    if isinstance(value, dict):
        return {key: _filled(member, variables) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, variables) for member in value]
    return value


def _matches(pattern: Any, value: Any, variables: dict[str, Any]) -> bool:
    if isinstance(pattern, str) and pattern.startswith("$"):
        return bool(variables.setdefault(pattern, value) == value)
    if isinstance(pattern, dict):
        if "$any" in pattern:
            kinds: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float)}
            return isinstance(value, kinds[pattern["$any"]]) and not isinstance(value, bool)
        if not isinstance(value, dict) or not ("..." in pattern or pattern.keys() == value.keys()):
            return False
        members = {key: member for key, member in pattern.items() if key != "..."}
        return members.keys() <= value.keys() and all(
            _matches(member, value[key], variables) for key, member in members.items()
        )
    if isinstance(pattern, list):
        return (
            isinstance(value, list)
            and len(pattern) == len(value)
            and all(_matches(*pair, variables) for pair in zip(pattern, value, strict=True))
        )
    return type(pattern) is type(value) and pattern == value


def transcript(path: Path) -> list[str]:
    """Write a conversation down for people: ``A> frame`` to the broker, ``>A frame`` from it.

    Of session objects only what matters is shown; ``...`` stands for what is left out, ``RUN`` and ``CAPABILITY`` for
    the run and the capability that most conversations use.
    """
    return [_line(step) for step in json.loads(path.read_text())["steps"]]


_ABBREVIATIONS = {
    "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f": "RUN",
    "5b8f0d0a-2c44-4d7e-8f11-0a9b8c7d6e5f.qeVCJeYelAvEVzM9ayNSagKBox8e_JGwtjLx28UqbIo": "CAPABILITY",
}
_EVERY_SESSION = frozenset({"cwd", "model", "pid", "startedAt", "lastActivity"})


def _line(step: dict[str, Any]) -> str:
    if "frame" in step:
        frame = dict(step["frame"])
        if frame["type"] == "register":
            session = {name: value for name, value in frame["session"].items() if name not in _EVERY_SESSION}
            frame["session"] = {**session, "...": True}
        text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
        text = re.sub(r'"\.\.\.":true|\{"\$any":"\w+"\}', "...", text)
        for long, short in _ABBREVIATIONS.items():
            text = text.replace(long, short)
        return f"{step['from']}> {text}" if "from" in step else f">{step['to']} {text}"
    if "end" in step:
        return f"{step['end']} closes its connection"
    if "closed" in step:
        return f"the broker closes the connection of {step['closed']}"
    if "silent" in step:
        return f"{step['silent']} gets nothing"
    return f"the broker ends with status {step['exit']}"
