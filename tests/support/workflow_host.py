"""Host workflow runs as a process of its own: ``python -m tests.support.workflow_host HOME DIRECTORY [dormant]``.

Standard input takes one JSON object a line: ``{"run": id, "capability": text, "roster": [[id, name, running], ...]}``
announces a run, or changes one; ``{"notify": [message, text]}`` reports to a sender; ``{"end": true}`` ends. What
happens is printed the same way. What it queues is in ``DIRECTORY/queue.jsonl``, on disk before it is answered.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import intercom
from intercom import RosterStage, StageAnswer, StageRequest
from intercom.wire.targets import parse_target

MOST = 50
"""Messages that one stage may have waiting (protocol section 7)."""


class DurableQueue:
    """Keep messages for stages in a file that outlives the host; a message id is kept once."""

    def __init__(self, place: Path) -> None:
        self._place = place / "queue.jsonl"
        self._place.touch()
        lines = [json.loads(line) for line in self._place.read_text().splitlines()]
        self.entries: list[dict[str, Any]] = [line for line in lines if "id" in line]

    def position(self, request: StageRequest, target: str) -> int | None:
        """Keep a message for a target and return its place; ``None`` when too many wait there."""
        waiting = [entry for entry in self.entries if entry["target"] == target]
        for place, entry in enumerate(waiting, 1):
            if entry["id"] == request.id:
                return place
        if len(waiting) >= MOST:
            return None
        self.write(
            {
                "id": request.id,
                "target": target,
                "text": request.text,
                "sender": request.sender.id,
                "name": request.sender_name,
                "address": request.return_address,
                "reached": [],
            }
        )
        return len(waiting) + 1

    def reached(self, message_id: str, stages: tuple[str, ...]) -> None:
        """Note which stages have a broadcast already."""
        self.write({"reached": list(stages), "of": message_id})

    def write(self, entry: dict[str, Any]) -> None:
        """Put a line on disk."""
        if "id" in entry:
            self.entries.append(entry)
        with self._place.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


class Host:
    """Answer for all runs of one invocation."""

    def __init__(self, queue: DurableQueue) -> None:
        self._queue = queue
        self.roster: dict[str, list[tuple[str, str, bool]]] = {}
        """Id, name and whether it runs, of each stage, by the beginning of its targets."""

    def admit(self, request: StageRequest) -> StageAnswer:
        """Forward to the stage that runs, queue for one that does not, refuse what several stages may mean."""
        target = parse_target(request.target)
        assert target is not None
        if target.kind != "path":
            return self._broadcast(request)
        stages = self.roster.get(request.target.rpartition("/")[0], [])
        found = [stage for stage in stages if stage[0] == target.last] or [
            stage for stage in stages if stage[1] == target.last
        ]
        if len(found) > 1:
            return StageAnswer.refused(f"several stages are called {target.last}: use the id of one")
        if not found:
            return StageAnswer.refused(f"the run has no stage {target.last}")
        stage_id, _, is_running = found[0]
        if is_running or request.is_live:
            return StageAnswer.forward(target.with_last(stage_id))
        if request.expects_reply:
            return StageAnswer.not_started()
        position = self._queue.position(request, target.with_last(stage_id))
        if position is None:
            return StageAnswer.refused(f"{MOST} messages wait for this stage already")
        return StageAnswer.queued(position)

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        """Note it on disk."""
        self._queue.reached(message_id, stages)
        say("reached", message=message_id, stages=list(stages))

    def _broadcast(self, request: StageRequest) -> StageAnswer:
        position = self._queue.position(request, request.target)
        if position is None:
            return StageAnswer.refused(f"{MOST} broadcasts wait already")
        pattern = parse_target(request.target)
        assert pattern is not None
        wanted = []
        for base, stages in self.roster.items():
            for stage_id, _, is_running in stages:
                found = parse_target(f"{base}/{stage_id}")
                if is_running and found is not None and pattern.matches(found):
                    wanted.append(f"{base}/{stage_id}")
        return StageAnswer.queued(position, forward_to=wanted)


def say(event: str, **members: Any) -> None:
    """Print what happened."""
    print(json.dumps({"event": event, **members}), flush=True)


async def main(home: str, directory: str, *options: str) -> None:
    """Take commands until the end."""
    queue = DurableQueue(Path(directory))
    host = Host(queue)
    runs: dict[str, intercom.Run] = {}
    first = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline))
    connection = intercom.connect(home=home, group=f"workflow:{first['run']}", purpose="control", start=False)
    async with connection as session, anyio.create_task_group() as tasks:
        events = session.events()

        async def tell() -> None:
            async for event in events:
                if event.kind in ("run_lost", "reconnected"):
                    say(event.kind, run=event.run_id, reason=event.reason)

        async def own(run: intercom.Run, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with run:
                task_status.started()
                await anyio.sleep_forever()

        tasks.start_soon(tell)
        command = first
        while "end" not in command:
            if "notify" in command:
                message_id, text = command["notify"]
                [entry] = [entry for entry in queue.entries if entry["id"] == message_id]
                receipt = await runs[first["run"]].notify(
                    entry["sender"],
                    text,
                    reply_to=message_id,
                    sender_name=entry["name"],
                    return_address=entry["address"],
                    message_id=f"about-{message_id}",
                )
                say("notified", state=receipt.state)
            else:
                run_id = command["run"]
                roster = [RosterStage(id=key, name=name, running=running) for key, name, running in command["roster"]]
                base = run_id if run_id == first["run"] else f"{first['run']}/{run_id}"
                host.roster[f"workflow:{base}"] = command["roster"]
                if run_id in runs:
                    await runs[run_id].announce(roster=roster, possible=command.get("possible", ()))
                else:
                    runs[run_id] = session.workflow(
                        run_id,
                        host,
                        roster=roster,
                        possible=command.get("possible", ()),
                        parent=None if run_id == first["run"] else first["run"],
                        boundary=() if run_id == first["run"] else ("child-boundary",),
                        capability=command["capability"],
                        dormant="dormant" in options,
                    )
                    await tasks.start(own, runs[run_id])
                say("announced", run=run_id)
            command = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
