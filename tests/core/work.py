"""Play workers, coordinators and the senders of work."""

from __future__ import annotations

from typing import Any

from tests.core.harness import World, without_announcements
from tests.core.mail import Agent, enter

WORKER = ("session.lifecycle", "push.receipts", "queue", "work.assignments")
COORDINATOR = ("session.lifecycle", "push.receipts", "queue", "flow.control", "inbox")


def worker(world: World, name: str = "w", mode: str = "resident", **members: Any) -> Agent:
    """Register a worker; a managed one with an id of its host's."""
    if mode == "managed_turn":
        members.setdefault("runtimeSessionId", f"run-{name}")
    return enter(world, name, features=members.pop("features", WORKER), workMode=mode, **members)


def coordinator(world: World, name: str = "c", **members: Any) -> Agent:
    """Register a session that hands out work."""
    return enter(world, name, features=COORDINATOR, **members)


def ask(client: Agent, kind: str, **members: Any) -> dict[str, Any]:
    """Make a request of a feature and return its answer; other frames stay unread."""
    request_id = f"r{client.attempts}"
    client.attempts += 1
    frames = client.write(kind, requestId=request_id, **members)
    found = [frame for frame in frames if frame.get("requestId") == request_id]
    client.world.received[client.conn] = [frame for frame in frames if frame not in found]
    assert len(found) == 1, frames
    return found[0]


def later(client: Agent) -> dict[str, Any]:
    """Return the one answer to an earlier request that came by now."""
    frames = client.got()
    found = [frame for frame in frames if "requestId" in frame]
    client.world.received[client.conn] = [frame for frame in frames if frame not in found]
    assert len(found) == 1, frames
    return found[0]


def begin(client: Agent, kind: str, **members: Any) -> list[dict[str, Any]]:
    """Make a request whose answer comes later; return what came at once."""
    client.attempts += 1
    return without_announcements(client.write(kind, requestId=f"r{client.attempts}", **members))


def items(client: Agent) -> list[dict[str, Any]]:
    """Return what a client sees in the inbox."""
    found: list[dict[str, Any]] = ask(client, "inbox_list")["items"]
    return found


def parked(world: World, target: Agent, message_id: str = "m1", text: str = "do it") -> Agent:
    """Let a new sender send a message to a worker; it is parked."""
    sender = enter(world, "sender")
    [answer] = [frame for frame in sender.queue(target.id, message_id, text) if "messageId" in frame]
    assert answer["type"] == "queued", answer
    return sender


def push(world: World, boss: Agent, target: Agent, inbox_id: str = "m1", **more: Any) -> dict[str, Any]:
    """Hand a parked message to a resident worker that confirms it; return the assignment it got."""
    assert begin(boss, "inbox_dispatch", inboxId=inbox_id, targetSessionId=target.id, **more) == []
    [frame] = target.mail()
    target.confirm(frame["message"]["id"])
    answer = later(boss)
    assert answer["type"] == "inbox_dispatched", answer
    assignment: dict[str, Any] = frame["assignment"]
    assert answer["assignmentId"] == assignment["assignmentId"]
    return assignment


def report(client: Agent, assignment: dict[str, Any], state: str, event: str | None = None, **more: Any) -> Any:
    """Report a state of an assignment."""
    return ask(
        client,
        "assignment_report",
        sourceMessageId=assignment["sourceMessageId"],
        assignmentId=assignment["assignmentId"],
        stateEventId=event or f"{state}-{client.attempts}",
        state=state,
        **more,
    )


def reply(client: Agent, assignment: dict[str, Any], text: str = "done", key: str = "q1") -> dict[str, Any]:
    """Answer the sender of an assigned message."""
    return ask(
        client,
        "assignment_reply",
        sourceMessageId=assignment["sourceMessageId"],
        assignmentId=assignment["assignmentId"],
        replyRequestId=key,
        content={"text": text},
    )


def events_of(world: World, message_id: str) -> list[str]:
    """Return what the journal tells of a message."""
    return [event.kind for event in world.disk.journal if event.stream == f"mail:{message_id}"]
