"""Play a workflow around a broker: hosts that own runs, stages that go live, and senders that joined."""

from __future__ import annotations

from typing import Any

from tests.core.harness import Client, World, only

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
CHILD = "22222222-2222-4222-8222-222222222222"
GRANDCHILD = "33333333-3333-4333-8333-333333333333"
OTHER = "44444444-4444-4444-8444-444444444444"


def group_of(run: str = RUN) -> str:
    return f"workflow:{run}"


def path(*segments: str, run: str = RUN) -> str:
    return "/".join((group_of(run), *segments))


def stage(stage_id: str = "st-1", name: str = "reviewer", *, target: str | None = None, **more: Any) -> dict[str, Any]:
    """Announce a stage; ``more`` are other members, those that are None are left out."""
    row: dict[str, Any] = {
        "stageId": stage_id,
        "stageName": name,
        "target": target or path(stage_id),
        "lifecycle": "pending",
        "routeEligible": True,
        "group": group_of(),
        **more,
    }
    return {name: value for name, value in row.items() if value is not None}


def possible(target: str, **more: Any) -> dict[str, Any]:
    return {"target": target, "queuedCount": 0, **more}


def host(world: World, run: str = RUN, *, group: str | None = None, **members: Any) -> Client:
    """Connect a workflow host: a control session whose home is the invocation group."""
    info = {"recipientPurpose": "control", "group": "hosts"}
    return world.register("host", info=info, registrationGroup=group or group_of(run), **members)


def own(
    client: Client, run: str = RUN, *, group: str | None = None, capability: str = "cap", **members: Any
) -> list[dict[str, Any]]:
    """Register or update the route of a run; return what the owner got."""
    return client.write(
        "register_pending_stage_route", runId=run, group=group or group_of(), capability=capability, **members
    )


def owned(world: World, run: str = RUN, **members: Any) -> Client:
    """Connect a host that owns a run."""
    client = host(world, run)
    own(client, run, group=group_of(run), **members)
    return client


def member(world: World, name: str = "sender", run: str = RUN, **members: Any) -> Client:
    """Connect an ordinary agent that joined the invocation."""
    client = world.register(name, **{"returnAddress": f"ret-{name}", **members})
    client.write("join_group", group=group_of(run))
    client.got()
    return client


def worker(world: World, name: str = "worker", home: str | None = None, **members: Any) -> Client:
    """Connect the session of a stage: at home in the invocation, member of nothing that others are in."""
    info = {"group": f"own-{name}"}
    return world.register(
        name,
        info=info,
        **{"registrationGroup": home or group_of(), "returnAddress": f"ret-{name}", **members},
    )


def live(
    client: Client, *keys: str, run: str = RUN, capability: str = "cap", request: str = "live"
) -> list[dict[str, Any]]:
    """Ask to go live under these keys; return what came."""
    return client.write(
        "register_live_workflow_stage_route",
        requestId=request,
        runId=run,
        stageKeys=list(keys),
        capability=capability,
    )


def went_live(frames: list[dict[str, Any]]) -> bool:
    return [frame["type"] for frame in frames] == ["live_workflow_stage_route_registered"]


def asked(owner: Client) -> dict[str, Any]:
    """Return what the owner is asked; nothing else may have come."""
    return only(owner.got(), "pending_stage_message")


def decide(owner: Client, request: dict[str, Any] | str, outcome: str, **members: Any) -> list[dict[str, Any]]:
    """Let the owner answer what it was asked; return what it gets."""
    request_id = request if isinstance(request, str) else request["requestId"]
    return owner.write("pending_stage_message_result", requestId=request_id, outcome=outcome, **members)


def lead(world: World, target: str) -> int | None:
    """Return the connection a target leads to: its owner is asked with a mark, and forwards to it."""
    sender = member(world, "prober")
    sender.message(target, f"probe-{world.connections}")
    for conn, frames in world.received.items():
        for frame in frames:
            if frame["type"] == "pending_stage_message" and frame["from"]["id"] == sender.id:
                frames.remove(frame)
                answer = {"outcome": "forward", "target": target} if frame.get("live") else {"outcome": "refused"}
                world.send(conn, type="pending_stage_message_result", requestId=frame["requestId"], **answer)
                break
        else:
            continue
        break
    sender.leave()
    for conn, frames in world.received.items():
        for frame in frames:
            if frame["type"] == "message" and frame["from"]["id"] == sender.id:
                frames.remove(frame)
                return conn
    return None
