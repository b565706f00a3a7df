"""Be a stage as a process: ``python -m tests.support.workflow_stage HOME DIRECTORY TARGET NAME CAPABILITY``.

When everything sent before is settled it takes its first turn: what the host has queued for it. Then it answers
questions with its id. What happens is printed, one JSON object a line; it ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from intercom import blocking
from intercom.wire.targets import parse_target


def say(event: str, **members: Any) -> None:
    """Print what happened."""
    print(json.dumps({"event": event, **members}), flush=True)


def queued_for(place: Path, target: str) -> list[str]:
    """Return the texts that wait for the stage with this target, oldest first, each once."""
    wanted = parse_target(target)
    assert wanted is not None
    lines = [json.loads(line) for line in (place / "queue.jsonl").read_text().splitlines()]
    done = {line["of"] for line in lines if "of" in line and target in line["reached"]}
    found = []
    for line in lines:
        if "id" in line and line["id"] not in done:
            sent = parse_target(line["target"])
            assert sent is not None
            if sent.matches(wanted):
                found.append(line["text"])
    return found


def main(home: str, directory: str, target: str, name: str, capability: str) -> None:
    """Live until standard input ends."""
    parsed = parse_target(target)
    assert parsed is not None
    run_id = parsed.segments[-2] if len(parsed.segments) > 1 else parsed.run_id
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with (
        blocking.connect(f"stage {parsed.last}", home=home, group=parsed.invocation_group, start=False) as session,
        session.stage(run_id, parsed.last, name, capability=capability),
    ):
        say("turn", texts=queued_for(Path(directory), target), id=session.id)
        while not ended.is_set():
            for message in session.messages(timeout=0.05):
                say("message", text=message.text, sender=message.sender.name)
                if message.expects_reply:
                    message.reply(f"{parsed.last} answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
