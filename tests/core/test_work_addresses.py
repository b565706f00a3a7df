"""What becomes of a message to the name of an address that takes work while nobody holds it (protocol 10.2.1)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.addresses import ME
from intercom.limits import ADDRESS_LEFT_MS
from tests.core.harness import World, answers, only
from tests.core.mail import AGENT, QUEUE, Agent, enter, holder, reattach
from tests.core.work import ask, begin, coordinator, items, later, reply, report

COMMAND = ("push.receipts", "address", "queue", "work.assignments")
TOKEN = "t" * 64


def command(world: World, name: str = "w") -> Agent:
    """Register what a command that takes work is: it acts under the address and receives nothing for it."""
    return holder(world, name, TOKEN, "none", features=COMMAND, workMode="managed_turn", runtimeSessionId=name)


def library(world: World) -> Agent:
    """Register a worker that holds the address."""
    return holder(world, "w", TOKEN, features=(*AGENT, "work.assignments"), workMode="resident")


def reader(world: World, name: str = "w") -> Agent:
    """Register somebody who receives the mail of the address and takes no work."""
    return holder(world, name, TOKEN)


def sent(sender: Agent, message_id: str = "m1", to: str = "w", **more: Any) -> dict[str, Any]:
    sender.got()
    return only(answers(sender.message(to, message_id, extra=QUEUE, **more)), "queued")


def test_a_send_to_the_name_of_a_command_that_waits_is_its_work() -> None:
    """Protocol 10.2.1, A1.5: it is parked for the address, and who waits under the address gets it at once."""
    world = World()
    worker, sender = command(world), enter(world, "a")
    begin(worker, "inbox_await", timeoutMs=60_000, claim=True)
    assert sent(sender)["position"] == 1
    granted = later(worker)
    assert (granted["type"], granted["message"]["id"]) == ("assignment_granted", "m1")
    assert world.disk.mail == {}
    assert sent(sender)["position"] == 1, "a retry is the same message"


@pytest.mark.parametrize("restarted", [False, True])
def test_between_two_commands_that_wait_it_is_kept_for_the_next(restarted: bool) -> None:
    """Protocol 10.2.1: the address is remembered as one that takes work, over a restart too."""
    world = World()
    command(world).write("unregister")
    if restarted:
        world.crash()
    sender = enter(world, "a")
    sent(sender)
    [item] = items(coordinator(world))
    assert (item["reason"], item["claimPolicy"], item["originalTargetAddress"]) == (
        "unaddressed",
        "bound_session",
        "w",
    )
    assert "originalTargetSessionId" not in item
    worker = command(world)
    granted = ask(worker, "inbox_await", timeoutMs=0, claim=True)
    assert granted["message"]["id"] == "m1"
    assert report(worker, granted["assignment"], "accepted")["type"] == "assignment_recorded"
    assert reply(worker, granted["assignment"])["status"] == "sent"


def test_whoever_came_last_to_take_something_decides() -> None:
    """Protocol 10.2.1: after somebody received its mail, the address is one for mail again."""
    world = World()
    command(world).write("unregister")
    reader(world).write("unregister")
    sender = enter(world, "a")
    sent(sender, "m1")
    assert [mail.message_id for mail in world.disk.mail.values()] == ["m1"]
    assert world.disk.inbox == {}
    holder(world, "w", TOKEN, "none").write("unregister")
    sent(sender, "m2")
    assert world.disk.inbox == {}, "who only speaks takes nothing"


def test_a_worker_that_is_there_gets_it_whoever_received_last() -> None:
    world = World()
    worker = command(world)
    sender = enter(world, "a")
    mailman = reader(world)
    sender.queue("w", "m1")
    assert [frame["message"]["id"] for frame in mailman.mail()] == ["m1"], "who holds the address is found by its name"
    mailman.confirm("m1")
    mailman.write("unregister")
    sent(sender, "m2")
    assert ask(worker, "inbox_claim", inboxId="m2")["type"] == "assignment_granted"


def test_a_worker_that_holds_its_address_and_lost_its_connection_keeps_its_work() -> None:
    """Protocol 10.2.1: a send to a worker that is reconnecting is parked, by its name as by its id."""
    world = World()
    worker, sender, boss = library(world), enter(world, "a"), coordinator(world)
    worker.leave()
    sent(sender, "m1")
    sent(sender, "m2", to=worker.id)
    assert [(item["inboxId"], item["originalTargetSessionId"]) for item in items(boss)] == [
        ("m1", worker.id),
        ("m2", worker.id),
    ]
    again = reattach(world, worker)
    assert again.mail() == []
    assert ask(again, "inbox_await", timeoutMs=0, claim=True)["message"]["id"] == "m1"


def test_so_it_does_after_a_restart() -> None:
    world = World()
    library(world)
    world.crash()
    sent(enter(world, "a"))
    worker = library(world)
    assert worker.mail() == []
    assert ask(worker, "inbox_claim", inboxId="m1")["type"] == "assignment_granted"


def test_what_goes_on_with_what_was_sent_under_the_address_is_mail() -> None:
    """Protocol 10.2.1: an answer is no work; it waits where `receive` finds it."""
    world = World()
    peer = enter(world, "a")
    worker = command(world)
    worker.queue("a", "q1")
    peer.confirm("q1")
    worker.write("unregister")
    sent(peer, "r1", replyTo="q1")
    sent(peer, "r2", to=worker.id, replyTo="q1")
    assert [mail.message_id for mail in world.disk.mail.values()] == ["r1", "r2"]
    sent(peer, "m1", replyTo="something else")
    assert [row.inbox_id for row in world.disk.inbox.values()] == ["m1"]


def test_what_is_for_the_person_is_mail() -> None:
    """Protocol 10.2.1: nothing to `@me` becomes work."""
    world = World()
    holder(world, ME, TOKEN, "none", features=COMMAND, workMode="managed_turn", runtimeSessionId="me")
    sent(enter(world, "a"), to=ME)
    assert world.disk.inbox == {}


def test_one_that_only_acts_under_an_address_is_away_under_its_id_alone() -> None:
    """Protocol 9.3.3: of those who act under an address only the holder is found by a name."""
    world = World()
    features = (*AGENT, "work.assignments")
    more = {"features": features, "workMode": "resident", "info": {"name": "w"}}
    helper = holder(world, "w", TOKEN, "none", **more)
    helper.leave()
    assert sent(enter(world, "a"))["target"] == "w"
    assert [row.target_session for row in world.disk.inbox.values()] == [None]


def test_an_order_for_another_command_of_the_same_worker_is_the_same_order() -> None:
    """Protocol 10.5, FE 1.9: repeated by name it finds the next command; the first answer holds, also after the end."""
    world = World()
    boss, sender = coordinator(world), enter(world, "a")
    worker = command(world)
    sent(sender)
    order = {"inboxId": "m1", "idempotencyKey": "k"}
    first = ask(boss, "inbox_dispatch", targetSessionId=worker.id, **order)
    granted = ask(worker, "inbox_await", timeoutMs=0)
    report(worker, granted["assignment"], "accepted")
    assert reply(worker, granted["assignment"])["status"] == "sent"
    worker.write("unregister")
    following = command(world)
    assert items(boss) == []
    for target in (worker, following):
        again = ask(boss, "inbox_dispatch", targetSessionId=target.id, **order)
        assert again | {"requestId": ""} == first | {"requestId": ""}
    other = holder(world, "x", features=COMMAND, workMode="managed_turn", runtimeSessionId="x")
    refused = ask(boss, "inbox_dispatch", targetSessionId=other.id, **order)
    assert refused["code"] == "order_key_conflict"


def test_an_address_that_is_used_for_work_alone_is_used() -> None:
    """Protocol 9.3.1: it does not count as one that nobody came to since it was made."""
    world = World()
    command(world).write("unregister")
    world.pass_time(ADDRESS_LEFT_MS)
    command(world)
    [row] = world.disk.addresses.values()
    assert row.last_held_at - row.created_at >= ADDRESS_LEFT_MS
