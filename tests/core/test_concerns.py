"""Test whom events concern, and what is shown of them."""

from __future__ import annotations

from typing import Any

from intercom.core.concerns import Concern, key
from intercom.limits import Limits
from intercom.store.history import TABLES
from tests.core.harness import World
from tests.core.invoking import invoke, invoker, tasks
from tests.core.mail import AGENT, Agent, enter, operator
from tests.core.test_links import ready, send
from tests.core.test_watches import person, told, watch
from tests.core.work import WORKER, ask, coordinator, push, worker


def test_every_kind_of_row_is_followed() -> None:
    """What is in the journal can be told: a kind of row without a concern would be one that nobody can follow."""
    assert World().broker._following.watches.followed == set(TABLES)


def test_a_preview_is_cut() -> None:
    """FE 0.3: previews to 80 code points."""
    detail = {"preview": "é" * 81, "reason": "x" * 100}
    shown = Concern((), {}, (), detail).shown
    assert shown == {"preview": "é" * 80, "reason": "x" * 100}
    assert Concern((), {}, (), {"preview": "é" * 80}).shown == {"preview": "é" * 80}


def test_keys() -> None:
    assert key("session", "ABC") == "session:abc"
    assert key("message", "ABC") == "message:ABC"


# --- what the person is shown of everything (protocol 11.1) ---------------------------------------------


def followed(world: World) -> Agent:
    """Return a person who follows everything."""
    me = person(world)
    assert watch(me)["type"] == "watching"
    return me


def events(me: Agent, *kinds: str) -> list[dict[str, Any]]:
    """Return the events of these kinds that came."""
    return [frame["event"] for frame in told(me) if frame["type"] == "watch_event" and frame["event"]["kind"] in kinds]


def test_a_notice_of_the_broker_has_no_target() -> None:
    """Whom it is for is said by its mailbox alone"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    me = followed(world)
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    first, notice = events(me, "mail.queued")
    assert first["about"] == {"messageId": "m1", "target": "b"}
    assert list(notice["about"]) == ["messageId"]


def test_what_the_person_lets_through_is_followed() -> None:
    """protocol 15.2: it concerns whom it holds for"""
    world = World()
    bob = enter(world, "bob", features=(*AGENT, "policy"))
    me = followed(world)
    boss = enter(world, features=("operator", "policy"), info={"recipientPurpose": "control"})
    boss.write("policy_set", requestId="p", policy={"rules": [{"action": "hold"}]}, of={"sessionId": bob.id})
    [event] = events(me, "policy.set")
    assert event["detail"] == {"state": "set"}


def test_work_for_an_address_is_followed_from_the_inbox_on() -> None:
    """FE 1.4: also of a sender that nobody can answer by mail"""
    world = World()
    hand = worker(world, "hand", features=(*WORKER, "address"), address={"name": "hand"})
    boss, me = coordinator(world), followed(world)
    sender = enter(world, "s", features=("queue",))
    sender.message("hand", "m1", "do it", extra={"queueIfAway": True})
    push(world, boss, hand)
    [parked] = events(me, "inbox.parked")
    assert (parked["about"]["inboxId"], parked["about"]["target"]) == ("m1", "hand")


def test_links_and_commands_are_followed() -> None:
    """protocol 14: before a journal is known, and with the reason of a rejection"""
    world = World()
    me, boss = followed(world), operator(world)
    one = ready(world)
    send(boss, one, "c1")
    one.rejected("c1", 1)
    dialing, opened, *_ = events(me, "link.dialing", "link.ready", "command.rejected")
    assert "journalId" not in dialing["detail"] and opened["detail"]["journalId"] == "J1"
    send(boss, one, "c2")
    one.rejected("c2", 2)
    [rejected] = events(me, "command.rejected")
    assert (rejected["about"]["commandId"], rejected["detail"]["errorCode"]) == ("c2", "no")


def test_invocations_are_followed_with_what_was_assumed_and_asked() -> None:
    """FE 3.3: reconciled, and asked to stop; a diagnosis concerns who asked"""
    world = World()
    asker, builder, me = invoker(world), invoker(world, "builder"), followed(world)
    invoke(asker, "@nobody", "inv-0")
    [diagnosis] = events(me, "route.diagnosed")
    assert diagnosis["about"]["invocationId"] == "inv-0"
    assert {"kind", "asked", "reason"} == diagnosis["detail"].keys()
    invoke(asker)
    tasks(builder)
    ask(asker, "invocation_cancel", invocationId="inv-1")
    [asked] = events(me, "invocation.cancel_asked")
    assert asked["detail"]["cancelAskedAt"] == world.wall
    builder.write("unregister")
    world.pass_time(Limits().run_stale_ms + 3 * Limits().job_retry_ms)
    [failed] = [event for event in events(me, "run.updated") if event["detail"]["state"] == "failed"]
    assert failed["detail"]["reconciled"] is True
