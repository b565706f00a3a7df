from __future__ import annotations

from typing import Any

from tests.core.harness import World, only
from tests.core.mail import Agent, enter


def standing(client: Agent, name: str) -> Any:
    client.got()
    [row] = [row for row in only(client.write("list", requestId="l"))["sessions"] if row.get("name") == name]
    return row.get("unconfirmedSince")


def test_the_oldest_counts_until_it_is_confirmed() -> None:
    """Protocol 4.3: the time at which the oldest of what is not confirmed was sent"""
    world = World()
    sender, busy = enter(world, "a"), enter(world, "b")
    first = world.wall
    sender.message("b", "m1")
    world.pass_time(world.limits.standstill_ms)
    second = world.wall
    sender.message("b", "m2")
    assert standing(sender, "b") == first
    busy.confirm("m1")
    assert standing(sender, "b") is None, "the other one has not waited for long"
    world.pass_time(world.limits.standstill_ms)
    assert standing(sender, "b") == second


def test_who_has_confirmed_everything_stands_still_by_no_account() -> None:
    world = World()
    sender, idle = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    idle.confirm("m1")
    world.pass_time(10 * world.limits.standstill_ms)
    assert standing(sender, "b") is None


def test_a_session_keeps_what_it_says_of_itself() -> None:
    """Protocol 4.3: a member more, and none less"""
    world = World()
    sender, _ = enter(world, "a"), enter(world, "b", info={"status": "thinking"})
    sender.message("b", "m1")
    world.pass_time(world.limits.standstill_ms)
    sender.got()
    [row] = [row for row in only(sender.write("list", requestId="l"))["sessions"] if row.get("name") == "b"]
    assert row["status"] == "thinking" and row["unconfirmedSince"] > 0
