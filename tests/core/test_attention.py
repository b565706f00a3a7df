"""Test who sees who waits for whom (protocol 4.90, 15.1); policies have tests of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.harness import World, only
from tests.core.mail import AGENT, Agent, enter, holder

WAITER = (*AGENT, "waits")


def waits(agent: Agent) -> list[tuple[str, str, str, str]]:
    """Return what a session is told: message id, state, who asks and who is asked."""
    told = only([frame for frame in agent.write("waits", requestId="w") if frame["type"] == "waits"])
    assert told["total"] == len(told["waits"])
    return [(each["messageId"], each["state"], each["asker"], each["target"]) for each in told["waits"]]


def test_a_session_is_shown_what_it_and_its_groups_wait_for() -> None:
    """protocol 4.90: itself, and whom it shares a group with"""
    world = World()
    a, b = enter(world, "a", features=WAITER), enter(world, "b", features=WAITER)
    other = enter(world, "other", features=WAITER, info={"groups": ["elsewhere"]})
    a.ask("b", "q1")
    assert waits(a) == waits(b) == [("q1", "under_way", "a", "b")]
    b.confirm("q1")
    assert waits(a) == waits(b) == [("q1", "open", "a", "b")]
    assert waits(other) == []


def test_what_an_address_owes_is_shown_to_who_may_write_to_it() -> None:
    """protocol 4.90: a question that nobody holds is owed by its mailbox"""
    world = World()
    a = enter(world, "a", features=WAITER)
    other = enter(world, "other", features=WAITER, info={"groups": ["elsewhere"]})
    desk = holder(world, "@me", features=WAITER)
    a.ask("@me", "q1")
    desk.confirm("q1")
    desk.write("unregister", keepsQuestions=True)
    assert waits(a) == [("q1", "open", "a", "@me")]
    assert waits(other) == []


def test_an_ask_that_waits_as_mail_is_shown_to_its_sender() -> None:
    """protocol 4.90: nobody has read it"""
    world = World()
    a = enter(world, "a", features=WAITER)
    a.ask("@me", "q1", extra={"queueIfAway": True})
    assert waits(a) == [("q1", "queued", "a", "@me")]


def test_who_was_not_granted_the_feature_is_shown_nothing() -> None:
    """FE 0.6"""
    world = World()
    plain = enter(world, "plain")
    refused = only(plain.write("waits", requestId="w"), "request_failed")
    assert (refused["code"], refused["requestId"]) == ("feature_not_granted", "w")


@pytest.mark.parametrize(
    ("kind", "members"),
    [("policies", {}), ("policy_set", {"policy": {"rules": []}}), ("mail_fetch", {})],
)
def test_while_the_store_is_shut_only_who_waits_is_shown(kind: str, members: dict[str, Any]) -> None:
    """design 5 "Fail closed": lists, groups, presence and status go on"""
    world = World()
    agent = enter(world, "a", features=(*WAITER, "policy"))
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    refused = only(agent.write(kind, requestId="p", **members), "request_failed")
    assert refused["code"] == "store_unusable" and "disk gone" in refused["reason"]
    assert waits(agent) == []
