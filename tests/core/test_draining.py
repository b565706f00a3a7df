"""Test that a broker that drains finishes what is open, takes nothing new, and leaves (FE 4.5, 5.5; protocol 3.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.flow_play import Play
from tests.core.harness import World, answers, only, reason
from tests.core.invoking import invoke, invoker, task_worker, update
from tests.core.mail import enter, operator
from tests.core.test_links import again, commands, ready, send, worker
from tests.core.work import ask, coordinator, items, parked, push, reply, report
from tests.core.work import worker as assignee

LOOK_MS = Limits().drain_look_ms


class Drainer:
    """Ask a broker to drain, on a connection without a session."""

    def __init__(self, world: World, within_ms: int = 60_000) -> None:
        self.world = world
        self.conn = world.connect()
        self.first = world.send(self.conn, type="broker_drain", requestId="d", timeoutMs=within_ms)

    def answer(self) -> dict[str, Any] | None:
        frames = [*self.first, *self.world.got(self.conn)]
        self.first = []
        assert len(frames) <= 1
        return frames[0] if frames else None

    def wait(self) -> dict[str, Any] | None:
        """Let the time pass in which the broker looks twice."""
        self.world.pass_time(LOOK_MS)
        self.world.pass_time(LOOK_MS)
        return self.answer()


def drained(*, finished: bool = True, failed: tuple[str, ...] = (), **left: int) -> dict[str, Any]:
    members = {"requestId": "d", "finished": finished, "open": left, "failed": list(failed)}
    return {"type": "broker_drained", **members}


def a_question(world: World) -> tuple[str, Callable[[], object]]:
    one, two = enter(world, "one"), enter(world, "two")
    one.ask("two", "q")
    two.confirm("q")

    def finish() -> None:
        two.reply("one", "a", "q")
        one.confirm("a")

    return "questions", finish


def an_assignment(world: World) -> tuple[str, Callable[[], object]]:
    boss, hand = coordinator(world), assignee(world, "hand")
    parked(world, hand)
    given = push(world, boss, hand)
    report(hand, given, "accepted")
    return "assignments", lambda: reply(hand, given)


def a_step(world: World) -> tuple[str, Callable[[], object]]:
    play = Play(world)
    play.begin("f", "one")
    dispatch = play.take()
    return "steps", lambda: play.report(dispatch)


def a_run(world: World) -> tuple[str, Callable[[], object]]:
    asker, builder = invoker(world), invoker(world, "builder")
    assert invoke(asker)["type"] == "invocation_accepted"
    [mail] = builder.mail()
    builder.confirm(mail["message"]["id"])
    assert update(builder, "running")["type"] == "run_recorded"
    return "runs", lambda: update(builder, "completed", output="it is there")


def a_task(world: World) -> tuple[str, Callable[[], object]]:
    asker, builder = invoker(world), invoker(world, "builder")
    assert invoke(asker)["type"] == "invocation_accepted"
    assert len(builder.mail()) == 1
    return "runs", lambda: update(builder, "completed", output="it is there")


def a_late_task(world: World) -> tuple[str, Callable[[], object]]:
    kind, finish = a_task(world)
    world.pass_time(Limits().push_receipt_ms)
    return kind, finish


def a_command(world: World) -> tuple[str, Callable[[], object]]:
    one, boss = ready(world), operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    return "commands", lambda: one.event(1, "command_applied", commandId="c1")


WORK = [a_question, an_assignment, a_step, a_run, a_task, a_late_task, a_command]


def test_an_idle_broker_drains_at_once() -> None:
    world = World()
    enter(world, "one")
    assert Drainer(world).wait() == drained()
    assert world.stopped == ["it was drained"]


@pytest.mark.parametrize("begin", WORK)
def test_what_was_begun_is_finished_first(begin: Callable[[World], Any]) -> None:
    """FE 5.5: refuse new work, finish what is open, then stop."""
    world = World()
    kind, finish = begin(world)
    drainer = Drainer(world)
    world.pass_time(10_000)
    assert (drainer.answer(), world.stopped) == (None, [])
    boss = operator(world)
    report = only(boss.write("broker_status", requestId="s"), "broker_status")["report"]
    assert report["broker"]["draining"]["open"] == {kind: 1}
    finish()
    assert drainer.wait() == drained()
    assert world.stopped == ["it was drained"]


@pytest.mark.parametrize("begin", WORK)
def test_when_the_time_is_up_it_leaves_and_says_what_is_left(begin: Callable[[World], Any]) -> None:
    """FE 4.5: a bound, then the end."""
    world = World()
    kind, _ = begin(world)
    drainer = Drainer(world, within_ms=5_000)
    world.pass_time(4_999)
    assert drainer.answer() is None
    world.pass_time(1)
    assert drainer.answer() == drained(finished=False, **{kind: 1})
    assert world.stopped == ["it was drained"]


@pytest.mark.parametrize("begin", WORK)
def test_what_waits_for_somebody_who_is_away_holds_nobody_up(begin: Callable[[World], Any]) -> None:
    world = World()
    begin(world)
    for connection in list(world.open):
        world.lose(connection)
        world.end(connection)
    assert Drainer(world).wait() == drained()


def test_no_question_is_asked_any_more_and_everything_else_is_delivered() -> None:
    """FE 5.5: refuse new work, retryable; a message is none."""
    world = World()
    one, two = enter(world, "one"), enter(world, "two")
    one.ask("two", "q")
    two.confirm("q")
    Drainer(world)
    two.got()
    one.got()
    assert reason(one.ask("two", "late")) == reasons.DRAINING
    assert two.mail() == []
    one.message("two", "plain")
    two.confirm("plain")
    assert [frame["type"] for frame in answers(one.got())] == ["delivered"]
    [again] = answers(one.ask("two", "q"))
    assert again["type"] == "delivered", "what was asked before may be asked again"
    two.reply("one", "a", "q")
    one.confirm("a")
    assert [frame["type"] for frame in answers(two.got())] == ["delivered"]


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("invoke", {"invocationId": "i", "target": "@w", "task": "t"}),
        ("inbox_dispatch", {"inboxId": "m1", "targetSessionId": "s"}),
        ("command_send", {"commandId": "c9", "of": {"address": "w"}, "body": {}}),
        ("flow_create", {"flowId": "f", "target": "w", "steps": [{"stepId": "a", "prompt": "p"}]}),
        ("flow_start", {"flowId": "f"}),
        ("flow_resume", {"flowId": "f"}),
    ],
)
def test_new_work_is_refused(kind: str, members: dict[str, Any]) -> None:
    """FE 5.5: broker_draining, retryable."""
    world = World()
    a_question(world)
    boss = enter(world, "boss", features=("session.lifecycle", "push.receipts", "flow.control", "invoke", "inbox"))
    Drainer(world)
    [refused] = [each for each in boss.write(kind, requestId="r", **members) if each.get("requestId") == "r"]
    assert (refused["type"], refused["code"], refused["retryable"]) == ("request_failed", "broker_draining", True)


def test_the_next_step_waits_for_the_next_broker() -> None:
    play = Play()
    play.begin("f", "one", "two")
    dispatch = play.take()
    drainer = Drainer(play.world)
    play.report(dispatch)
    assert play.dispatches() == []
    assert drainer.wait() == drained()


@pytest.mark.parametrize("is_drained", [False, True])
def test_an_invocation_that_was_not_handed_over_waits_for_the_next_broker(is_drained: bool) -> None:
    """One that found the inbox full is handed over later, and not any more once the broker drains."""
    world = World(limits=Limits(inbox_entries=1))
    hand, asker = task_worker(world), invoker(world)
    parked(world, hand)
    assert invoke(asker)["type"] == "invocation_accepted"
    a_question(world)
    if is_drained:
        Drainer(world, within_ms=24 * 60 * 60_000)
    boss = coordinator(world)
    settled = ask(boss, "inbox_settle", inboxId="m1")
    assert settled["type"] == "inbox_settled", settled
    world.pass_time(Limits().mailbox_full_retry_ms + Limits().job_retry_ms)
    assert [each["inboxId"].startswith("run:") for each in items(boss)] == ([] if is_drained else [True])


def test_a_task_that_waits_in_a_mailbox_waits_for_the_next_broker_and_holds_nothing_up() -> None:
    world = World(limits=Limits(mail_offers=1))
    asker, builder = invoker(world), invoker(world, "builder")
    runs = [invoke(asker, invocation_id=f"i{number}")["runId"] for number in range(3)]
    asker.queue(builder.id, "m1")
    assert [frame["message"]["id"] for frame in builder.mail()] == [f"run:{run}" for run in runs[:2]]
    drainer = Drainer(world)
    came = [frame for run in runs[:2] for frame in builder.confirm(f"run:{run}")]
    assert [frame["message"]["id"] for frame in came if frame["type"] == "message"] == ["m1"]
    builder.confirm("m1")
    assert drainer.wait() is None
    for number in range(2):
        assert update(builder, "completed", f"i{number}")["type"] == "run_recorded"
    assert drainer.wait() == drained()
    assert [mail.message_id for mail in world.disk.mail.values()] == [f"run:{runs[2]}"]


def test_a_worker_that_asks_for_parked_work_gets_none() -> None:
    world = World()
    hand = assignee(world, "hand")
    a_question(world)
    parked(world, hand)
    Drainer(world)
    frames = hand.write("inbox_await", requestId="w", timeoutMs=1_000, claim=True, markAttempt=True)
    assert "assignment_granted" not in [frame["type"] for frame in frames]


def test_two_may_ask_and_the_newest_says_how_long() -> None:
    world = World()
    a_question(world)
    first = Drainer(world, within_ms=60_000)
    second = Drainer(world, within_ms=0)
    assert first.answer() == second.answer() == drained(finished=False, questions=1)
    assert len(world.stopped) == 1


def test_a_drain_goes_on_without_the_one_who_asked() -> None:
    world = World()
    _, finish = a_question(world)
    drainer = Drainer(world)
    world.end(drainer.conn)
    world.pass_time(LOOK_MS)
    assert world.stopped == []
    finish()
    world.pass_time(LOOK_MS)
    world.pass_time(LOOK_MS)
    assert world.stopped == ["it was drained"]


# --- links ----------------------------------------------------------------------------------------------


def test_workers_are_told_and_offered_nothing() -> None:
    """FE 4.10: link_drain, with the time there is."""
    world = World()
    one, boss = ready(world), operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    send(boss, one, "c2")
    assert commands(one.got()) == [("c2", 2)]
    Drainer(world, within_ms=9_000)
    assert only(one.got()) == {"type": "link_drain", "deadlineMs": 9_000, "reason": "broker_shutdown"}
    assert commands(one.received("c2", 2)) == []


@pytest.mark.parametrize(
    ("waiting", "left"),
    [
        (["c2"], {"commands": 1}),
        (["c1", "c2"], {}),
        (["c3"], {"commands": 2}),
        ("c1", {"commands": 2}),
        (None, {"commands": 2}),
    ],
)
def test_what_a_worker_puts_off_holds_nobody_up(waiting: Any, left: dict[str, int]) -> None:
    """Protocol 14.7: the broker waits for what was begun; what the worker says that says nothing is left aside."""
    world = World()
    one, boss = ready(world), operator(world)
    for seq, command_id in enumerate(("c1", "c2"), 1):
        send(boss, one, command_id)
        one.received(command_id, seq)
    body = {"kind": "draining", "waiting": waiting}
    one.write("ephemeral_event", occurredAt=5, body=body)
    drainer = Drainer(world, within_ms=9_000)
    one.write("ephemeral_event", occurredAt=5, body=body)
    answer = drainer.wait()
    if left:
        assert answer is None
        world.pass_time(9_000)
        answer = drainer.answer()
    assert answer == drained(finished=not left, **left)
    world.crash()
    two = worker(world, token=one.agent.registered["addressToken"])
    assert commands(two.ready(last=2)) == [], "they are on the disk of the worker"


def test_what_was_put_off_before_the_broker_left_counts_for_nothing() -> None:
    world = World()
    one, boss = ready(world), operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    one.write("ephemeral_event", occurredAt=5, body={"kind": "draining", "waiting": ["c1"]})
    assert Drainer(world).wait() is None


def test_a_command_whose_body_is_being_read_is_not_offered_any_more() -> None:
    """Protocol 5.100: nothing comes behind link_drain, and nobody waits for its receipt."""
    world = World()
    one, boss = ready(world), operator(world)
    world.auto = False
    boss.write("command_send", requestId="r", commandId="c1", linkId=one.link, body={})
    world.commit()
    assert len(world.reads) == 1
    drainer = Drainer(world)
    world.auto = True
    world.settle()
    assert [frame["type"] for frame in one.got()] == ["link_drain"]
    assert drainer.wait() == drained()


def test_a_worker_that_comes_back_meanwhile_is_told_too() -> None:
    world = World()
    one = ready(world)
    _, _ = a_question(world)
    one.agent.leave()
    Drainer(world)
    two = again(world, one)
    assert [frame["type"] for frame in two.ready()] == ["link_confirmed", "link_drain"]
    assert only(two.event(1))["highWater"] == 1


def test_every_inbox_is_emptied_and_every_receipt_awaited() -> None:
    """FE 4.4: all drains together; frames that come meanwhile are awaited too."""
    world = World()
    one, other, boss = ready(world, "a"), ready(world, "b"), operator(world)
    send(boss, one, "c1")
    world.auto = False
    drainer = Drainer(world)
    other.event(1)
    world.commit(0)
    world.pass_time(LOOK_MS)
    world.take()
    world.pass_time(LOOK_MS)
    world.take()
    assert drainer.answer() is None
    other.event(2)
    world.auto = True
    world.settle()
    assert drainer.answer() is None, "the command has no receipt"
    one.received("c1", 1)
    assert drainer.wait() is None, "nobody said what became of it"
    one.event(1, "command_applied", commandId="c1")
    assert drainer.wait() == drained()
    assert sorted(row.seq for row in world.disk.events.values()) == [1, 1, 2]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_links_that_fail_while_they_are_drained(order: str) -> None:
    """A4.13: both are awaited, both errors are told, and only then the broker leaves."""
    world = World()
    both = {name: ready(world, name) for name in "ab"}
    world.auto = False
    for one in both.values():
        one.event(1)
    drainer = Drainer(world)
    world.pass_time(LOOK_MS)
    world.take()
    for name in order:
        assert world.stopped == []
        for seq in range(2, 131):
            both[name].event(seq)
    world.take()
    answer = drainer.answer()
    assert answer is not None
    assert (answer["finished"], len(answer["failed"])) == (False, 2)
    assert all(f"link {one.link} failed: more than 128 frames" in str(answer["failed"]) for one in both.values())
    assert world.stopped == ["it was drained"]


def test_a_worker_whose_readiness_is_under_way_is_awaited() -> None:
    world = World()
    one = worker(world)
    world.auto = False
    one.ready()
    drainer = Drainer(world)
    world.pass_time(LOOK_MS)
    world.take()
    assert drainer.answer() is None
    world.auto = True
    world.settle()
    assert drainer.wait() == drained()


def test_a_link_that_is_emptied_after_the_time_was_over_changes_nothing_any_more() -> None:
    """protocol 3.10: whoever asked is told once how it ended"""
    world = World()
    one = ready(world)
    world.auto = False
    one.event(1)
    drainer = Drainer(world, within_ms=3 * LOOK_MS)
    world.pass_time(3 * LOOK_MS)
    world.take()
    assert drainer.answer() is not None
    for seq in range(2, 131):
        one.event(seq)
    world.take()
    assert drainer.answer() is None and world.stopped == ["it was drained"]
