"""Test that a message which an owner decided about can be traced (protocol 4.32, 6.12.4, 9.6.3)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import Client, World, only
from tests.core.runs import RUN, asked, decide, group_of, live, member, own, owned, path, stage, worker
from tests.core.runs import host as workflow_host
from tests.core.test_abroad import QUEUE

LIMITS = Limits()
OWNER = f"the owner of workflow run {RUN}"


def writer(world: World) -> Client:
    """Connect one that is a member of the invocation, and may trace."""
    return world.register(
        "writer", info={"groups": ["default", group_of()]}, returnAddress="ret-w", acknowledgesReceipt=True, **QUEUE
    )


def traced(who: Client, message_id: str = "m1") -> dict[str, Any]:
    return only([frame for frame in who.write("trace", requestId="t", messageId=message_id) if "requestId" in frame])


def seen(who: Client, message_id: str = "m1") -> tuple[str, str]:
    """Return the state and the place of a message."""
    answer = traced(who, message_id)
    assert answer["type"] == "trace", answer
    return answer["state"], answer["where"]


@pytest.mark.parametrize(
    ("outcome", "members", "state", "where"),
    [
        ("delivered", {}, "delivered", f"where {OWNER} brought it"),
        (
            "queued",
            {"position": 3},
            "queued",
            f"kept by {OWNER} for {path('st-1')}, at position 3 when that was said",
        ),
        (
            "refused",
            {"reason": "no"},
            "undeliverable",
            f"nowhere any more: {OWNER} refused it, and its sender was told why",
        ),
    ],
)
def test_what_an_owner_decided_is_told_to_those_who_had_a_part_in_it(
    outcome: str, members: dict[str, Any], state: str, where: str
) -> None:
    """9.6.3: before it has decided, and after, for as long as a row would live; nobody else is told."""
    world = World()
    host, sender = owned(world, stages=[stage()]), writer(world)
    stranger = world.register("stranger", **QUEUE)
    sender.message(path("st-1"), "m1")
    assert seen(sender) == ("reserved", f"with {OWNER}, who has not said what becomes of it")
    request = asked(host)
    world.pass_time(5)
    decide(host, request, outcome, **members)
    sender.got()
    assert seen(sender) == (state, where)
    answer = traced(sender)
    assert [(event["state"], event["at"]) for event in answer["events"]] == [
        ("reserved", world.wall - 5),
        (state, world.wall),
    ]
    assert (answer["sender"], "recipient" in answer) == (sender.id, False)
    assert traced(stranger)["code"] == "not_allowed"
    world.pass_time(LIMITS.operation_ttl_ms)
    assert seen(sender)[0] == "unknown"


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_an_owner_that_did_not_say_leaves_it_uncertain(how: str) -> None:
    """6.12.4: the timer, its departure; asked again the newest attempt counts."""
    world = World()
    host, sender = owned(world, stages=[stage()]), writer(world)
    sender.message(path("st-1"), "m1")
    if how == "silent":
        world.pass_time(LIMITS.owner_answer_ms)
        host.got()
    else:
        host.leave()
        host = owned(world, stages=[stage()])
    sender.got()
    assert seen(sender) == ("uncertain", f"not known: {OWNER} was asked and did not answer")
    sender.message(path("st-1"), "m1")
    assert seen(sender)[0] == "reserved"
    decide(host, asked(host), "queued", position=1)
    sender.got()
    assert seen(sender)[0] == "queued"


def test_only_the_newest_decisions_are_remembered() -> None:
    """Design 4: every memory has its bound."""
    world = World(limits=Limits(owner_decisions=2))
    host, sender = owned(world, stages=[stage()]), writer(world)
    for message_id in ("m1", "m2", "m3"):
        sender.message(path("st-1"), message_id)
        decide(host, asked(host), "delivered")
    sender.got()
    assert [seen(sender, message_id)[0] for message_id in ("m1", "m2", "m3")] == ["unknown", "delivered", "delivered"]


def test_what_was_forwarded_to_a_live_stage_has_a_row() -> None:
    """6.12.4 forward: from then on it is a message as any other."""
    world = World()
    host, sender = owned(world, stages=[stage()]), writer(world)
    session = worker(world, acknowledgesReceipt=True)
    live(session, "st-1", "reviewer")
    sender.message(path("st-1"), "m1")
    decide(host, asked(host), "forward", target=path("st-1"))
    session.write("received", messageId="m1")
    sender.got()
    assert seen(sender) == ("delivered", "with its recipient")


def test_a_message_for_a_stage_elsewhere_is_traced_to_its_end() -> None:
    """6.13.13: here on its way, then with the owner on that machine; there, what the owner said."""
    cluster = Cluster()
    host = workflow_host(cluster["b"], **QUEUE)
    own(host, stages=[stage()])
    sender = writer(cluster["a"])
    near = member(cluster["b"], "near", **QUEUE)
    cluster.run(LIMITS.peer_return_ms)
    host.got()
    sender.message(path("st-1"), "m1")
    assert seen(sender) == ("reserved", "on its way to b, which has not said what became of it")
    cluster.run()
    decide(host, asked(host), "queued", position=2)
    cluster.run()
    sender.got()
    assert seen(sender) == (
        "handed_on",
        f"with {OWNER} on b, which keeps it or brought it to its stage since: `intercom trace` there tells",
    )
    assert traced(near)["code"] == "not_allowed"
    assert seen(host) == ("queued", f"kept by {OWNER} for {path('st-1')}, at position 2 when that was said")
    host.leave()
    owned(cluster["b"], stages=[stage()])
    cluster.run(LIMITS.announce_ms)
    cluster.cut("a", leases_end=False)
    sender.message(path("st-1"), "m2", extra={"queueIfAway": True})
    state, where = seen(sender, "m2")
    assert (state, where) == ("queued", f"kept here until b says that it has it, at position 1 for {OWNER} on b")


def test_of_several_undecided_messages_the_one_with_the_id_is_told_and_of_its_attempts_the_newest() -> None:
    """9.6.3, D8: each message by itself; of one that was sent again the newest attempt stands for it."""
    world = World()
    host, sender = owned(world, stages=[stage()]), writer(world)
    for message_id in ("m1", "m2", "m2"):
        sender.message(path("st-1"), message_id)
        world.pass_time(5)
    requests = host.got()
    assert [frame["message"]["id"] for frame in requests] == ["m1", "m2", "m2"]
    undecided = ("reserved", f"with {OWNER}, who has not said what becomes of it")
    assert seen(sender, "m2") == undecided
    assert [event["at"] for event in traced(sender, "m2")["events"]] == [world.wall - 5], "when the newest was sent"
    decide(host, requests[0], "delivered")
    sender.got()
    assert (seen(sender, "m1")[0], seen(sender, "m2")) == ("delivered", undecided)
    assert seen(sender, "m3")[0] == "unknown"
