"""A supervisor that brings its child back, and those who write to the child meanwhile."""

from __future__ import annotations

from typing import Any

from intercom.limits import Limits
from tests.core.harness import INFO, Client, World, only, without_announcements

TOKEN, CHILD, GROUP = "owner-token-1", "reviewer", "teamA"
OLD_ID = "e1000000-0000-4000-8000-000000000001"
OTHER_ID = "e2000000-0000-4000-8000-000000000002"


class Family:
    """Hold a world with one supervisor, in another group than its child, and the capability of that child."""

    def __init__(self, limits: Limits | None = None, **world: Any) -> None:
        self.world = World(limits=limits, **world)
        self.parent = self.supervisor("parent")
        self.capability = capability_of(self.parent)

    def supervisor(self, name: str, **members: Any) -> Client:
        return self.world.register(name, supervisorOwnerToken=members.pop("token", TOKEN), **members)

    def sender(self, name: str = "writer", group: str = GROUP, **members: Any) -> Client:
        """Register a client of the newest generation."""
        members.setdefault("returnAddress", f"ret-{name}")
        return self.world.register(name, info={"group": group}, **members)

    def reserve(self, capability: str | None = None, by: Client | None = None, **members: Any) -> None:
        members.setdefault("group", GROUP)
        assert reserved(by or self.parent, capability or self.capability, **members) is None

    def child(self, capability: str | None = None, group: str = GROUP, name: str = CHILD, **members: Any) -> Client:
        """Register the child under its capability; what comes with the registration is in ``first``."""
        claim = {"capability": capability or self.capability, "supervisorSessionId": "x"}
        return self.world.register(name, info={"group": group}, supervisor=claim, **members)


def capability_of(parent: Client, child_name: str = CHILD, **members: Any) -> str:
    answer = only(parent.write("authorize_supervisor", requestId="s", childName=child_name, **members))
    return str(answer["capability"])


def reserved(by: Client, capability: str, **members: Any) -> str | None:
    """Reserve and return the error, None when it was done."""
    got = without_announcements(
        by.write("reserve_restoring_recipient", requestId="v", capability=capability, **members)
    )
    assert got[0]["type"] == "restoring_recipient_ack" and got[0]["requestId"] == "v" and len(got) == 1
    error: str | None = got[0].get("error")
    return error


def release(by: Client, capability: str, **members: Any) -> list[dict[str, Any]]:
    """Release and return what the releasing client got."""
    return without_announcements(
        by.write("release_restoring_recipient", requestId="v", capability=capability, **members)
    )


def hold(sender: Client, message_id: str, to: str = CHILD, text: str = "x", **more: Any) -> dict[str, Any]:
    """Send what is to be held, by a client that understands it, and return ``send_held``; forget what came before."""
    extra = {"awaitRestoringRecipient": True, **more.pop("extra", {})}
    sender.got()
    return only(sender.message(to, message_id, text, extra=extra, **more), "send_held")


def ids(frames: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the messages among these frames, in order."""
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def older(world: World, name: str, group: str = GROUP) -> Client:
    """Register a client of the older generation."""
    return world.register(name, info={**INFO, "group": group})
