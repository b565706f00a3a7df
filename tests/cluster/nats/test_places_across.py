"""Test who is where on two machines with real brokers: stages of workflows, children that come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.runs import RUN, group_of, path, stage
from tests.support.hazards import Machines, until
from tests.support.raw import RawClient

QUEUE = {
    "features": ["queue", "session.lifecycle", "push.receipts"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    made.until_joined()
    yield made
    made.close()


def enter(machines: Machines, where: str, name: str, **more: Any) -> RawClient:
    """Return a session that confirms what it receives."""
    return machines.brokers[where].registered(
        name, returnAddress=f"return-{name}", acknowledgesReceipt=True, **{**QUEUE, **more}
    )


def stages_of(client: RawClient) -> list[str]:
    client.send({"type": "list", "requestId": "stages"})
    return [each["target"] for each in client.expect("sessions", requestId="stages")["workflowStages"]]


def take(client: RawClient, message_id: str) -> None:
    """Receive a message, and confirm it."""
    assert client.expect("message")["message"]["id"] == message_id
    client.send({"type": "received", "messageId": message_id})


def test_a_message_for_a_stage_reaches_the_owner_on_the_other_machine(machines: Machines) -> None:
    """cluster.md 2, routes and rosters: listed here, decided there, answered here; 4.17: and told what became of it."""
    host = machines.brokers["studio"].registered(
        "host", session={"recipientPurpose": "control"}, registrationGroup=group_of()
    )
    route = {"type": "register_pending_stage_route", "runId": RUN, "group": group_of(), "capability": "secret"}
    host.send({**route, "stages": [stage()], "requestId": "r"})
    host.expect("pending_stage_route_registered")
    alice = enter(machines, "laptop", "alice", session={"group": group_of()}, registrationGroup=group_of())
    near = enter(machines, "studio", "near", session={"group": group_of()}, registrationGroup=group_of())
    until(lambda: [each["name"] for each in near.list()], lambda names: "alice" in names)
    until(lambda: stages_of(alice), lambda found: found == [path("st-1")])
    alice.send_message(path("st-1"), "m1", attemptId="t")
    request = host.expect("pending_stage_message", target=path("st-1"))
    assert (request["from"]["name"], request["from"]["node"]) == ("alice", "laptop")
    answer = {"type": "pending_stage_message_result", "requestId": request["requestId"], "outcome": "queued"}
    host.send({**answer, "position": 2})
    alice.expect("queued", messageId="m1", target=path("st-1"), position=2)
    message = {"id": "n1", "timestamp": 1, "content": {"text": "done"}}
    told = {"type": "send_pending_stage_notification", "runId": RUN, "capability": "secret", "attemptId": "t"}
    host.send({**told, "to": request["from"]["id"], "message": message})
    notification = alice.expect("pending_stage_notification", message=message)
    result = {"type": "pending_stage_notification_result", "requestId": notification["requestId"]}
    alice.send({**result, "delivered": True})
    host.expect("delivered", messageId="n1")
    host.close()
    until(lambda: stages_of(alice), lambda found: not found)


def test_what_is_sent_to_a_child_that_comes_back_on_the_other_machine_waits_for_it(machines: Machines) -> None:
    """cluster.md 2, restoring: held here, and delivered once the child is there."""
    parent = machines.brokers["studio"].registered("parent", supervisorOwnerToken="a token of its own")
    parent.send({"type": "authorize_supervisor", "requestId": "a", "childName": "reviewer"})
    capability = parent.expect("supervisor_authorized")["capability"]
    parent.send({"type": "reserve_restoring_recipient", "requestId": "v", "capability": capability})
    parent.expect("restoring_recipient_ack")
    alice = enter(machines, "laptop", "alice")
    numbers = iter(range(1, 10_000))

    def answer() -> str:
        """Send again until it is known here that the child is expected."""
        alice.send_message("reviewer", f"m{next(numbers)}", attemptId="t", awaitRestoringRecipient=True)
        frame = alice.receive()
        while frame["type"] not in ("send_held", "delivery_failed"):
            frame = alice.receive()
        found: str = frame["messageId"] if frame["type"] == "send_held" else ""
        return found

    held = until(answer, bool)
    child = enter(machines, "studio", "reviewer", supervisor={"capability": capability, "supervisorSessionId": "x"})
    take(child, held)
    alice.expect("delivered", messageId=held)
