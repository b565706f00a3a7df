"""Test in which order a session takes its leave of everything it had a part in (protocol 6.15)."""

from __future__ import annotations

import pytest

from intercom.wire import reasons
from tests.core.harness import World, types
from tests.core.runs import group_of, live, member, own, path, stage, worker


@pytest.mark.parametrize("how", ["fin", "unregister", "protocol error", "refusal"])
def test_everything_ends_in_order(how: str) -> None:
    """protocol 6.15: 3 questions to it, 5 what it was asked as an owner, 6 notifications to it, 9 who saw it"""
    world = World()
    leaver = world.register(
        "leaver", info={"groups": [group_of(), "default"]}, registrationGroup=group_of(), returnAddress="ret-leaver"
    )
    own(leaver, stages=[stage("st-1")])
    witness = world.register(
        "witness", info={"groups": [group_of(), "default"]}, registrationGroup=group_of(), returnAddress="ret-witness"
    )
    run = "11111111-1111-4111-8111-111111111111"
    own(witness, run, capability="w")
    witness.ask("leaver", "question")
    witness.message(path("a"), "to-owner")
    witness.write(
        "send_pending_stage_notification",
        runId=run,
        capability="w",
        to=leaver.id,
        message={"id": "fate", "timestamp": 5, "content": {"text": "x"}},
    )
    stage_session = worker(world)
    assert live(stage_session, "a") == []
    late = member(world, "late")
    late.write("presence", groups=["elsewhere", group_of()])
    witness.got()
    match how:
        case "fin":
            world.end(leaver.conn)
        case "unregister":
            leaver.write("unregister")
        case "protocol error":
            world.feed(leaver.conn, b"{}")
        case "refusal":
            own(leaver, capability="wrong")
    frames = witness.got()
    assert types(frames) == ["peer_disconnected", "delivery_failed", "delivery_failed", "session_left"]
    assert [frame.get("reason") for frame in frames[1:3]] == [
        reasons.STAGE_OWNER_LEFT,
        reasons.NOTIFICATION_RECIPIENT_LEFT,
    ]
    assert types(stage_session.got()) == ["live_workflow_stage_route_registered"]
    assert world.disk.operations.keys() == {row.number for row in world.disk.operations.values() if row.question}


def test_a_sender_that_leaves_is_told_nothing_and_hurts_nobody() -> None:
    """protocol 6.15: its requests to owners stay until they are decided"""
    world = World()
    owner = worker(world, "owner")
    own(owner)
    sender = member(world)
    sender.message(path("a"), "m")
    sender.leave()
    assert types(owner.got()) == ["pending_stage_message"]
    world.pass_time(10_000)
    assert owner.got() == []


def test_a_broker_that_stops_tells_nobody_anything() -> None:
    """protocol 3.8"""
    world = World()
    owner = worker(world, "owner")
    own(owner)
    sender = member(world)
    sender.message(path("a"), "m")
    world.stop()
    world.end(owner.conn)
    assert sender.got() == []
