"""Test requests about links: who may see and send what, and what is not there or not recorded yet."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.harness import World
from tests.core.mail import enter, operator
from tests.core.test_links import Worker, again, commands, link_of, ready, send, states, worker
from tests.core.work import COORDINATOR, ask, later


@pytest.mark.parametrize(
    ("kind", "members", "code"),
    [
        ("links", {"linkId": "L"}, "unknown_link"),
        ("link_repin", {"linkId": "L", "journalId": "J2"}, "unknown_link"),
        ("commands", {"linkId": "L"}, "unknown_link"),
        ("commands", {"commandId": "C"}, "unknown_command"),
        ("link_events", {"linkId": "L"}, "unknown_link"),
    ],
)
def test_what_is_not_there(kind: str, members: dict[str, Any], code: str) -> None:
    """FE 4.5"""
    world = World()
    ready(world)
    assert ask(operator(world), kind, **members)["code"] == code


def test_workers_see_their_own_link_only() -> None:
    """FE 0.5"""
    world = World()
    one, two = ready(world, "a"), ready(world, "b")
    assert [link["linkId"] for link in ask(one.agent, "links")["links"]] == [one.link]
    assert ask(one.agent, "links", linkId=two.link)["code"] == "unknown_link"


def test_an_address_that_is_ambiguous_is_named_with_its_group() -> None:
    """Design section 7, Addresses: two matches are ambiguous."""
    world = World()
    ready(world)
    far = worker(world, "w", info={"group": "far"})
    far.ready()
    boss = operator(world)
    answer = ask(boss, "command_send", commandId="c", of={"address": "w"}, body={})
    assert answer["code"] == "ambiguous_address" and "default, far" in answer["reason"]
    stored = ask(boss, "command_send", commandId="c", of={"address": "w", "group": "far"}, body={})
    assert stored["command"]["linkId"] == far.link


def test_a_worker_without_an_address_has_a_link_of_its_session() -> None:
    """FE 4.2: a session that comes back is somebody, too."""
    world = World()
    features = ("session.lifecycle", "push.receipts", "link.durable")
    one = Worker(enter(world, "x", features=features))
    one.ready()
    there = enter(world, "boss", features=COORDINATOR)
    assert send(there, one, "c1")["commandSeq"] == 1
    assert commands(one.got()) == [("c1", 1)]


def test_a_link_whose_worker_is_away_is_given_to_another_journal() -> None:
    """A4.8: it is dialed with the new one when it comes."""
    world = World()
    one = ready(world)
    one.agent.leave()
    boss = operator(world)
    assert ask(boss, "link_repin", linkId=one.link, journalId="J2")["type"] == "link_repinned"
    two = again(world, one)
    assert [frame["type"] for frame in two.ready("J2")] == ["link_confirmed"]


def test_what_is_not_recorded_yet_is_not_shown() -> None:
    """Design section 5: bodies are read up to what is committed."""
    world = World()
    one = ready(world)
    boss = operator(world)
    boss.got()
    world.auto = False
    boss.write("command_send", requestId="s", commandId="c1", linkId=one.link, body={})
    boss.write("commands", requestId="c", commandId="c1")
    boss.write("link_events", requestId="e", linkId=one.link)
    world.settle()
    refused = [(frame["requestId"], frame["code"]) for frame in boss.got() if "code" in frame]
    assert refused == [("c", "not_read"), ("e", "not_read")]


def test_a_body_with_a_number_nobody_can_read_is_none() -> None:
    """FE 4.4, 4.6: the body of a command and of an event is an object that its reader can decode."""
    world = World()
    one = ready(world)
    boss = operator(world)
    boss.got()
    frame = f'{{"type":"command_send","requestId":"r","commandId":"c","linkId":"{one.link}","body":{{"x":1e999}}}}'
    [refused] = world.feed(boss.conn, frame.encode())
    assert refused["code"] == "bad_request"
    event = (
        f'{{"type":"durable_event","linkId":"{one.link}","seq":1,"eventId":"e","occurredAt":5,"body":{{"kind":1e999}}}}'
    )
    world.feed(one.agent.conn, event.encode())
    assert not one.is_connected and world.disk.events == {}


# --- commands -------------------------------------------------------------------------------------------


def test_commands_of_a_link_that_is_not_there_are_left_alone() -> None:
    """Design section 5: an older copy of the store may have been put back."""
    world = World()
    one = ready(world)
    one.agent.leave()
    boss = operator(world)
    send(boss, one, "c1")
    world.disk.links.clear()
    world.crash()
    assert states(operator(world)) == {}


def test_the_oldest_command_comes_back_when_the_newest_is_not_recorded() -> None:
    """A5.4"""
    world = World(limits=Limits(link_commands=1))
    one = ready(world)
    boss = operator(world)
    for seq, name in enumerate(("c1", "c2", "c3"), 1):
        send(boss, one, name)
        one.rejected(name, seq)
    before = states(boss)
    world.auto = False
    boss.write("command_send", requestId="r", commandId="c9", linkId=one.link, body={})
    world.fail_commit()
    world.auto = True
    world.settle()
    assert later(boss)["code"] == "not_recorded"
    assert states(boss) == before


def test_a_link_that_makes_room_takes_its_commands_along() -> None:
    """FE 4.2: only one without open commands does."""
    world = World(limits=Limits(links=1))
    one = ready(world, "a")
    boss = operator(world)
    send(boss, one, "c1")
    one.rejected("c1", 1)
    one.agent.write("unregister")
    worker(world, "b")
    assert states(boss) == {} and world.disk.commands == {}


def test_a_command_that_was_read_for_a_claim_that_is_over_is_not_offered() -> None:
    """A4.7"""
    world = World()
    one = ready(world)
    boss = operator(world)
    world.auto = False
    boss.write("command_send", requestId="r", commandId="c1", linkId=one.link, body={})
    world.commit()
    one.agent.leave()
    world.auto = True
    world.settle()
    assert commands(world.got(one.agent.conn)) == []
    assert link_of(boss, one)["openCommands"] == 1


def test_an_outcome_of_a_command_nobody_knows_is_noted() -> None:
    """FE 4.6: the event is stored all the same; the broker may have lost what the worker has."""
    world = World()
    one = ready(world)
    one.event(1, "command_applied", commandId="nobody", detail="done")
    assert "unknown_command" in [note.event for note in world.notes]
    assert len(world.disk.events) == 1


def test_a_receipt_that_could_not_be_recorded_settles_nothing() -> None:
    """A5.4: the command counts as open, and comes again."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    world.auto = False
    one.rejected("c1", 1)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert link_of(boss, one)["openCommands"] == 1
    two = again(world, one)
    assert commands(two.ready()) == [("c1", 1)]


def test_what_became_of_a_command_is_told_once_that_is_recorded() -> None:
    """A5.4: by its state and when it is sent again; a commit that fails may make it otherwise."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    boss.got()
    world.auto = False
    one.event(1, "command_failed", commandId="c1")
    boss.write("commands", requestId="c", commandId="c1")
    world.read()
    boss.write("command_send", requestId="s", commandId="c1", linkId=one.link, body={"do": "c1"})
    assert [frame for frame in boss.got() if "requestId" in frame] == [], "the outcome is not recorded"
    world.fail_commit()
    world.auto = True
    world.settle()
    refused = [(frame["requestId"], frame["code"]) for frame in boss.got() if "code" in frame]
    assert refused == [("c", "not_recorded"), ("s", "not_recorded")]
    assert states(boss) == {"c1": "received"}
