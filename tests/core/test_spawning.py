"""Test how sessions are started on behalf of others (FE 1.5 Spawn; protocol 4.57, 5.69, 11.2)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core import spawning
from intercom.core.effects import Spawn
from intercom.limits import Limits
from tests.core.harness import World, only
from tests.core.mail import AGENT, Agent, enter
from tests.core.test_watches import kinds, person, watch
from tests.core.work import coordinator

KINDS = ("reviewer", "tester")


def world_with(*names: str, **more: Any) -> World:
    return World(spawn_kinds=names or KINDS, **more)


def operator(world: World) -> Agent:
    return enter(world, features=("operator",), info={"recipientPurpose": "control"})


def spawn(client: Agent, key: str = "k1", kind: str = "reviewer", prompt: str = "look", **more: Any) -> Any:
    """Order a session and return what came."""
    request = {"requestId": f"r-{key[:9]}", "idempotencyKey": key, "kind": kind, "prompt": prompt, **more}
    return [frame for frame in client.write("spawn_session", **request) if frame["type"] in FRAMES]


FRAMES = ("spawn_status", "request_failed")


def statuses(client: Agent) -> list[tuple[str, str]]:
    """Return status and code of what came since the last look."""
    return [
        (frame["requestId"], frame.get("code") or frame["status"]) for frame in client.got() if frame["type"] in FRAMES
    ]


def notes(world: World) -> list[str]:
    return [note.event for note in world.notes if note.event.startswith("spawn")]


def test_it_is_applied_when_a_session_registers_with_the_token() -> None:
    """FE 1.5: received on success, applied only when a session registers with the token."""
    world = world_with()
    boss = operator(world)
    assert spawn(boss) == [{"type": "spawn_status", "requestId": "r-k1", "status": "received"}]
    [order] = world.spawned
    assert (order.kind, order.prompt) == ("reviewer", "look")
    assert len(order.token) >= 64
    child = enter(world, "child", spawnToken=order.token)
    assert only(boss.got()) == {
        "type": "spawn_status",
        "requestId": "r-k1",
        "status": "applied",
        "sessionId": child.id,
    }
    assert notes(world) == ["spawn_started", "spawn_applied"]
    world.pass_time(60_000)
    assert statuses(boss) == []
    assert order.token not in str(world.disk), "the token is nowhere on disk"
    assert "look" not in str(world.disk.journal), "nor is the prompt"


def test_nothing_is_started_before_the_order_is_on_disk() -> None:
    """FE 5.1, commit then act: no spawn before the commit that justifies it."""
    world = world_with()
    boss = operator(world)
    world.auto = False
    spawn(boss)
    world.take()
    assert (world.spawned, boss.got()) == ([], [])
    world.commit()
    world.take()
    assert len(world.spawned) == 1
    assert statuses(boss) == [("r-k1", "received")]


def test_an_order_that_cannot_be_recorded_is_refused_and_starts_nothing() -> None:
    world = world_with()
    boss = operator(world)
    world.auto = False
    spawn(boss)
    world.fail_commit()
    world.settle()
    [refused] = boss.got()
    assert (refused["code"], refused["retryable"], world.spawned) == ("not_recorded", True, [])
    world.auto = True
    assert spawn(boss)[0]["status"] == "received"


def test_nobody_registers_in_time() -> None:
    """FE 1.5, protocol 11.2.3: no registration within 30 s is failed, spawn_timeout; the key stays with that."""
    world = world_with(limits=Limits(order_ttl_ms=100_000))
    boss = operator(world)
    spawn(boss)
    world.pass_time(29_999)
    assert statuses(boss) == []
    world.pass_time(1)
    assert statuses(boss) == [("r-k1", "spawn_timeout")]
    late = enter(world, "late", spawnToken=world.spawned[0].token)
    assert late.registered["type"] == "registered", "it is an ordinary session"
    assert notes(world)[-1] == "spawn_token_unknown"
    assert statuses(boss) == []
    for crashed in (False, True):
        if crashed:
            world.crash()
            boss = operator(world)
        again = spawn(boss)
        assert [frame.get("code") or frame["status"] for frame in again] == ["received", "spawn_timeout"]
        assert again[1]["reason"] == "No session has registered within 30 s; the command may still run"
        assert len(world.spawned) == (0 if crashed else 1), "it may be at work"
    world.pass_time(100_000)
    assert [frame["status"] for frame in spawn(boss)] == ["received"]
    assert len(world.spawned) == 1


def test_a_time_that_is_over_and_could_not_be_recorded_is_over_again() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    world.auto = False
    world.pass_time(30_000)
    world.fail_commit()
    world.settle()
    assert statuses(boss) == []
    world.auto = True
    child = enter(world, "child", spawnToken=world.spawned[0].token)
    applied = only(boss.got())
    assert (applied["status"], applied["sessionId"]) == ("applied", child.id)


def test_a_command_that_failed_is_started_again_under_its_key() -> None:
    """Protocol 11.2.3: it is known that nothing of it is at work."""
    world = world_with()
    boss = operator(world)
    spawn(boss)
    world.perform(world.broker.spawn_ended(world.spawned[0].ref, "The command ended with status 3", world.now))
    assert statuses(boss) == [("r-k1", "spawn_failed")]
    assert [frame["status"] for frame in spawn(boss)] == ["received"]
    assert len(world.spawned) == 2


def test_a_command_that_fails_is_told_at_once() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    world.perform(world.broker.spawn_ended(world.spawned[0].ref, "The command ended with status 3", world.now))
    [failed] = boss.got()
    assert (failed["status"], failed["code"], failed["reason"]) == (
        "failed",
        "spawn_failed",
        "The command ended with status 3",
    )
    world.pass_time(60_000)
    assert statuses(boss) == []


def test_a_command_that_ends_after_its_session_came_is_no_failure() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    world.auto = False
    conn = world.connect()
    session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}
    more = {"features": list(AGENT), "clientProtocolVersion": "1.0", "kind": "custom", "acknowledgesReceipt": True}
    world.send(conn, type="register", session=session, returnAddress="x", spawnToken=world.spawned[0].token, **more)
    world.perform(world.broker.spawn_ended(world.spawned[0].ref, "The command ended with status 3", world.now))
    world.settle()
    assert [frame["status"] for frame in boss.got() if frame["type"] == "spawn_status"] == ["applied"]


def test_so_many_in_so_much_time() -> None:
    """FE 1.5, 1.6: at most 3 per 30 s, else spawn_rate_limited."""
    world = world_with()
    boss = operator(world)
    for number in range(3):
        assert spawn(boss, f"k{number}")[0]["status"] == "received"
        world.pass_time(1_000)
    [refused] = spawn(boss, "k3")
    assert (refused["code"], refused["retryable"], refused["retryAfterMs"]) == ("spawn_rate_limited", True, 27_000)
    assert spawn(boss, "k0")[0]["status"] == "received", "a repetition starts nothing, so it is not counted"
    world.pass_time(26_999)
    assert spawn(boss, "k3")[0]["code"] == "spawn_rate_limited"
    world.pass_time(1)
    boss.got()
    assert spawn(boss, "k3")[0]["status"] == "received"
    assert len(world.spawned) == 4


def test_two_orders_under_one_key_start_one_session() -> None:
    """FE 1.9, A1.9: the same key in flight shares one execution; one that succeeded answers without work."""
    world = world_with()
    boss, other = operator(world), operator(world)
    spawn(boss)
    assert spawn(other)[0]["status"] == "received"
    child = enter(world, "child", spawnToken=world.spawned[0].token)
    assert statuses(boss) == statuses(other) == [("r-k1", "applied")]
    again = spawn(other)
    assert [frame["status"] for frame in again] == ["received", "applied"]
    assert again[1]["sessionId"] == child.id
    assert [frame["code"] for frame in spawn(other, prompt="something else")] == ["order_key_conflict"]
    assert len(world.spawned) == 1


def test_the_outcome_is_known_to_the_next_broker() -> None:
    """FE 5.2 P9: the register outlives the process."""
    world = world_with()
    spawn(operator(world))
    child = enter(world, "child", spawnToken=world.spawned[0].token)
    world.crash()
    again = spawn(operator(world))
    assert [frame.get("sessionId") for frame in again] == [None, child.id]
    assert world.spawned == []


def test_what_was_under_way_when_the_broker_died_is_not_done_again() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    token = world.spawned[0].token
    world.crash()
    boss = operator(world)
    [refused] = spawn(boss)
    assert (refused["code"], refused["outcomeUnknown"], refused["retryable"]) == ("spawn_outcome_unknown", True, False)
    assert world.spawned == []
    enter(world, "child", spawnToken=token)
    assert notes(world) == ["spawn_token_unknown"]


def test_who_waits_is_told_when_the_broker_stops() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    world.stop()
    assert statuses(boss) == [("r-k1", "spawn_outcome_unknown")]


def test_a_token_is_good_for_one_registration() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    token = world.spawned[0].token
    enter(world, "one", spawnToken=token)
    enter(world, "two", spawnToken=token)
    assert [status for _, status in statuses(boss)] == ["applied"]
    assert "spawn_token_unknown" not in notes(world), "one that was used is no news"
    for odd in ("nobody's", 7, None, "x" * 200_000, ""):
        assert enter(world, spawnToken=odd).registered["type"] == "registered"
    world.register("older", spawnToken=token)


def test_a_session_that_could_not_be_recorded_comes_with_its_token_again() -> None:
    world = world_with()
    boss = operator(world)
    spawn(boss)
    token = world.spawned[0].token
    world.auto = False
    conn = world.connect()
    session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}
    more = {"features": list(AGENT), "clientProtocolVersion": "1.0", "kind": "custom", "acknowledgesReceipt": True}
    world.send(conn, type="register", session=session, returnAddress="x", spawnToken=token, **more)
    world.fail_commit()
    world.settle()
    assert statuses(boss) == []
    world.auto = True
    child = enter(world, "child", spawnToken=token)
    applied = only(boss.got())
    assert (applied["status"], applied["sessionId"]) == ("applied", child.id)


@pytest.mark.parametrize(
    ("names", "frame", "code"),
    [
        ((), {}, "spawn_unavailable"),
        (KINDS, {"kind": "rm -rf /"}, "unknown_kind"),
        (KINDS, {"key": "x" * 129}, "bad_request"),
        (KINDS, {"prompt": "x" * 262_145}, "bad_request"),
        (KINDS, {"command": "rm"}, "bad_request"),
        (KINDS, {"prompt": None}, "bad_request"),
    ],
)
def test_it_is_refused(names: tuple[str, ...], frame: dict[str, Any], code: str) -> None:
    world = World(spawn_kinds=names)
    [refused] = spawn(operator(world), **frame)
    assert (refused["code"], refused["retryable"], world.spawned) == (code, False, [])


def test_only_the_operator_and_coordinators_may_ask() -> None:
    """design 7, Trust"""
    world = world_with()
    assert spawn(enter(world, "ada"))[0]["code"] == "feature_not_granted"
    assert only(enter(world, "ann").write("spawn_session", requestId="r"))["code"] == "bad_request"
    assert spawn(coordinator(world))[0]["status"] == "received"
    damaged = World(spawn_kinds=KINDS, store_trouble="damaged")
    assert spawn(operator(damaged))[0]["code"] == "store_unusable"


def test_it_can_be_followed() -> None:
    """FE 1.10: spawn.started, applied, failed."""
    world = world_with(limits=Limits(order_ttl_ms=100_000))
    boss = person(world)
    watch(boss)
    spawn(boss, "k1")
    assert kinds(boss) == [], "they came with the answer"
    world.pass_time(1_000)
    spawn(boss, "k2", "tester")
    child = enter(world, "child", spawnToken=world.spawned[0].token)
    events = [frame["event"] for frame in boss.got() if frame["type"] == "watch_event"]
    applied = next(event for event in events if event["kind"] == "spawn.applied")
    assert applied["about"] == {"kind": "reviewer", "sessionId": child.id}
    world.pass_time(30_000)
    assert kinds(boss) == ["spawn.failed"]
    world.pass_time(200_000)
    assert kinds(boss) == [], "that it is forgotten is no news"


def test_the_status_report_names_what_can_be_started() -> None:
    world = world_with("b", "a")
    report = only(operator(world).write("broker_status", requestId="s"))["report"]
    assert report["broker"]["spawnKinds"] == ["a", "b"]


def test_an_effect_is_made_for_each_kind() -> None:
    world = world_with()
    spawn(operator(world), kind="tester", prompt="")
    assert [(type(each), each.kind, each.prompt) for each in world.spawned] == [(Spawn, "tester", "")]


def test_an_order_that_is_carried_out_while_the_store_is_shut_has_no_known_outcome() -> None:
    """design 5 "Fail closed": whoever ordered is told that"""
    world = world_with()
    boss = operator(world)
    spawn(boss)
    [order] = world.spawned
    boss.got()
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    world.register("child", spawnToken=order.token, features=["queue"], kind="custom", clientProtocolVersion="1.0")
    assert statuses(boss) == [("r-k1", "spawn_outcome_unknown")]


def test_only_the_newest_spent_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 1.5: a token that is shown again is no news, as long as it is remembered"""
    monkeypatch.setattr(spawning, "SPENT_TOKENS", 1)
    world = world_with()
    boss = operator(world)
    for number in range(2):
        spawn(boss, f"k{number}")
        enter(world, f"child{number}", spawnToken=world.spawned[number].token)
    for order in world.spawned:
        enter(world, "again", spawnToken=order.token)
    assert notes(world).count("spawn_token_unknown") == 1
