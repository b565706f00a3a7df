"""Play those who invoke, and those who are invoked."""

from __future__ import annotations

from typing import Any

from intercom.core.records import InvocationRecord
from tests.core.harness import World
from tests.core.mail import AGENT, Agent, enter
from tests.core.work import WORKER, ask

INVOKER = (*AGENT, "invoke", "watch")


def invoker(world: World, name: str = "asker", **members: Any) -> Agent:
    """Register a session that invokes, and understands tasks."""
    return enter(world, name, features=members.pop("features", INVOKER), **members)


def task_worker(world: World, name: str = "builder", **members: Any) -> Agent:
    """Register a worker that understands tasks."""
    return enter(world, name, features=(*WORKER, "invoke"), workMode="resident", **members)


def invoke(client: Agent, target: str = "@builder", invocation_id: str = "inv-1", **members: Any) -> dict[str, Any]:
    """Invoke somebody; return the answer."""
    members = {"task": "build it", **members}
    return ask(client, "invoke", invocationId=invocation_id, target=target, **members)


def snapshot(client: Agent, invocation_id: str = "inv-1") -> dict[str, Any]:
    """Return how an invocation is."""
    return ask(client, "invocation_get", invocationId=invocation_id)


def run_of(client: Agent, invocation_id: str = "inv-1") -> dict[str, Any]:
    """Return how its run is."""
    run: dict[str, Any] = snapshot(client, invocation_id)["run"]
    return run


def update(client: Agent, state: str, invocation_id: str = "inv-1", key: str | None = None, **texts: Any) -> Any:
    """Say how far a run is."""
    update_id = key or f"u{client.attempts}"
    return ask(client, "run_update", invocationId=invocation_id, updateId=update_id, state=state, **texts)


def tasks(client: Agent) -> list[dict[str, Any]]:
    """Return the tasks that came since the last look, also with the registration; each is confirmed."""
    came, client.first = [*client.first[1:], *client.mail()], client.first[:1]
    messages = [frame for frame in came if frame["type"] == "message"]
    found = [frame for frame in messages if frame["message"]["id"].startswith("run:")]
    client.confirm(*(frame["message"]["id"] for frame in found))
    return found


def kinds(world: World, invocation_id: str = "inv-1") -> list[tuple[str, str]]:
    """Return what the journal tells of an invocation: kinds of events, with the state of the run."""
    return [
        (event.kind, getattr(event.row, "state", ""))
        for event in world.disk.journal
        if isinstance(event.row, InvocationRecord) and event.row.invocation_id == invocation_id
    ]
