"""Play clients with features: sessions that come back, holders of addresses, senders that let messages wait."""

from __future__ import annotations

from typing import Any

from intercom.core.connections import PeerCredentials
from tests.core.harness import INFO, Client, World

AGENT = ("session.lifecycle", "push.receipts", "address", "queue")
QUEUE = {"queueIfAway": True}
PEER = PeerCredentials(pid=10, uid=1000, gid=1000, started=7)


class Agent(Client):
    """Be a client that asked for features."""

    @property
    def registered(self) -> dict[str, Any]:
        """Return the answer to the registration."""
        return self.first[0]

    @property
    def token(self) -> str:
        token: str = self.registered["ownerToken"]
        return token

    def mail(self) -> list[dict[str, Any]]:
        """Return the messages that came since the last look."""
        return [frame for frame in self.got() if frame["type"] == "message"]

    def confirm(self, *message_ids: str) -> list[dict[str, Any]]:
        """Confirm messages; return what came meanwhile."""
        return [frame for message_id in message_ids for frame in self.write("received", messageId=message_id)]

    def queue(self, to: str, message_id: str, text: str = "x", **extra: Any) -> list[dict[str, Any]]:
        """Send a message that may wait."""
        return self.message(to, message_id, text, extra={**QUEUE, **extra})


def enter(
    world: World,
    name: str | None = None,
    *,
    features: tuple[str, ...] = AGENT,
    peer: PeerCredentials | None = PEER,
    info: dict[str, Any] | None = None,
    **members: Any,
) -> Agent:
    """Register a client with features."""
    conn = world.connect(peer)
    session = {**INFO, **({} if name is None else {"name": name}), **(info or {})}
    request = {
        "returnAddress": f"return-{conn}",
        "acknowledgesReceipt": True,
        "features": list(features),
        "clientProtocolVersion": "1.0",
        "kind": "custom",
        **members,
    }
    answers = world.send(conn, type="register", session=session, **request)
    assert answers and answers[0]["type"] == "registered", answers
    return Agent(world, conn, answers[0]["sessionId"], answers)


def operator(world: World) -> Agent:
    """Register a person's connection."""
    return enter(world, features=("operator",), info={"recipientPurpose": "control"})


def reattach(world: World, session: Agent, *, peer: PeerCredentials | None = PEER, **more: Any) -> Agent:
    """Come back on a new connection; the answer is ``first[0]``."""
    conn = world.connect(peer)
    request = {
        "type": "session_reattach",
        "requestId": "r",
        "sessionId": session.id,
        **({} if "ownerToken" in more else {"ownerToken": session.token}),
        **more,
    }
    answers = world.send(conn, **request)
    return Agent(world, conn, session.id, answers)


def holder(world: World, name: str, token: str | None = None, hold: str = "take", **more: Any) -> Agent:
    """Register under an address of this name."""
    address = {"name": name, "hold": hold, **({} if token is None else {"token": token})}
    return enter(world, name if hold != "none" else None, address=address, **more)
