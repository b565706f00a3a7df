"""Test who has a task: while nobody does, a run that is not wanted ends at once (FE 3.4 Cancel; protocol 13.4)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from intercom.core.invocation_targets import Targets
from intercom.core.records import StoreIdentity
from intercom.limits import Limits
from tests.core.harness import World
from tests.core.invoking import INVOKER, invoke, invoker, kinds, run_of, task_worker, tasks, update
from tests.core.mail import Agent, enter, holder, operator, reattach
from tests.core.work import ask, begin, coordinator, items

LIMITS = Limits()


def hired(world: World, **members: str) -> Agent:
    """Register whoever holds the address that is invoked."""
    return holder(world, "builder", features=INVOKER, **members)


def cancel(client: Agent, invocation_id: str = "inv-1") -> str:
    """Ask that an invocation is not carried out; return the state of its run."""
    state: str = ask(client, "invocation_cancel", invocationId=invocation_id)["state"]
    return state


def ids(client: Agent) -> list[str]:
    """Return the ids of the messages that came, with the registration too."""
    frames = [*client.first[1:], *client.mail()]
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


@pytest.mark.parametrize("has_begun", [False, True])
def test_what_its_holder_left_with_is_cancelled_at_once(has_begun: bool) -> None:
    """protocol 13.4: one that left without having confirmed a task has it not, and the next one gets none of it."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    invoke(asker)
    invoke(asker, invocation_id="inv-2")
    assert len(first.mail()) == 2
    if has_begun:
        update(first, "running")
    first.leave()
    assert (cancel(asker), cancel(asker, "inv-2")) == ("cancelled", "cancelled")
    assert ids(hired(world, token=token)) == [] and world.disk.mail == {}
    assert kinds(world)[-1] == ("run.updated", "cancelled")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_run_that_is_to_stop_is_cancelled_when_its_holder_leaves(is_restarted: bool) -> None:
    """protocol 13.4: nobody else is handed it, nor told of it; what else waits is handed over as ever."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    invoke(asker)
    invoke(asker, invocation_id="inv-2")
    assert cancel(asker, "inv-2") == "queued"
    assert len(first.mail()) == 3
    if is_restarted:
        world.start()
        asker = reattach(world, asker)
    else:
        first.leave()
    assert run_of(asker, "inv-2")["state"] == "cancelled"
    second = hired(world, token=token)
    assert ids(second) == [f"run:{run_of(asker)['runId']}"]


def test_who_is_here_and_has_not_confirmed_is_asked_to_stop() -> None:
    """protocol 13.4: whoever has it reports what became of it, confirmed or not."""
    world = World()
    asker, builder = invoker(world), hired(world)
    invoke(asker)
    world.pass_time(LIMITS.push_receipt_ms)
    assert cancel(asker) == "queued"
    assert ids(builder)[-1] == f"cancel:{run_of(asker)['runId']}"
    update(builder, "cancelled")
    assert run_of(asker)["state"] == "cancelled"


def test_who_cannot_have_mail_and_does_not_confirm_may_have_it_as_long_as_it_is_here() -> None:
    """protocol 13.3: it is written the task again, which says by now that it is not wanted."""
    world = World()
    asker, builder = invoker(world), enter(world, "builder", features=("push.receipts", "invoke"))
    invoke(asker)
    assert "cancelled" not in builder.mail()[0]["invocation"]
    world.pass_time(LIMITS.push_receipt_ms)
    assert cancel(asker) == "queued"
    world.pass_time(2 * LIMITS.job_retry_ms)
    notice, again = builder.mail()
    assert notice["message"]["id"].startswith("cancel:") and again["message"]["id"].startswith("run:")
    assert again["invocation"]["cancelled"] is True
    builder.leave()
    world.pass_time(2 * LIMITS.job_retry_ms)
    assert run_of(asker)["state"] == "cancelled"


def test_what_an_older_process_was_writing_nobody_has() -> None:
    """FE 3.6: a lease of an older epoch is void."""
    world = World()
    asker = invoker(world)
    enter(world, "builder", features=("push.receipts", "invoke"), returnAddress="b")
    invoke(asker)
    world.kwargs["identity"] = StoreIdentity("b", "j", 2)
    world.start()
    asker = reattach(world, asker)
    assert cancel(asker) == "cancelled"


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_work_that_is_given_back_is_not_handed_out_again_when_it_is_to_stop(is_confirmed: bool) -> None:
    """protocol 13.4: with its assignment given back, nobody has the task of a worker that left."""
    world = World()
    asker, builder, boss = invoker(world), task_worker(world), coordinator(world)
    invoke(asker)
    inbox_id = items(boss)[0]["inboxId"]
    begin(boss, "inbox_dispatch", inboxId=inbox_id, targetSessionId=builder.id)
    assert len(builder.mail()) == 1
    if is_confirmed:
        builder.confirm(inbox_id)
    assert cancel(asker) == "queued"
    builder.leave()
    world.pass_time(LIMITS.accept_ms if is_confirmed else 0)
    boss.got()
    assert (run_of(asker)["state"], items(boss), world.disk.mail) == ("cancelled", [], {})


def test_a_cancellation_that_cannot_be_recorded_leaves_everything_as_it_was() -> None:
    """design section 3.6: the run, its message and the notice come back together, and end together later."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    first.leave()
    invoke(asker)
    first = hired(world, token=token)
    cancel(asker)
    assert len(ids(first)) == 2
    world.auto = False
    first.leave()
    world.fail_commit()
    world.auto = True
    world.settle()
    assert run_of(asker)["state"] == "queued" and len(world.disk.mail) == 2
    world.pass_time(LIMITS.job_retry_ms)
    assert run_of(asker)["state"] == "cancelled" and world.disk.mail == {}
    assert ids(hired(world, token=token)) == []


def test_what_could_not_be_ended_is_looked_at_again_where_nothing_else_is_open() -> None:
    """design section 3.6: a look at what is open may find nothing before it is known that an end was not recorded."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    first.leave()
    invoke(asker)
    first = hired(world, token=token)
    cancel(asker)
    world.auto = False
    first.leave()
    world.pass_time(LIMITS.job_retry_ms)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert run_of(asker)["state"] == "queued"
    world.pass_time(2 * LIMITS.job_retry_ms)
    assert run_of(asker)["state"] == "cancelled"


def test_a_run_that_goes_on_after_all_is_looked_after_where_nothing_else_is_open() -> None:
    """protocol 13.3: what undid an end that was only assumed may be lost too, with no end of its own."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    invoke(asker)
    tasks(first)
    first.leave()
    world.judge(first.id, is_alive=False)
    world.pass_time(LIMITS.run_stale_ms + 2 * LIMITS.job_retry_ms)
    assert run_of(asker)["reconciled"] is True
    second = hired(world, token=token)
    update(second, "running")
    assert run_of(asker)["state"] == "running"
    second.leave()
    world.judge(second.id, is_alive=False)
    world.pass_time(LIMITS.run_stale_ms + 3 * LIMITS.job_retry_ms)
    run = run_of(asker)
    assert (run["state"], run["reconciled"]) == ("failed", True)


def test_the_next_one_to_begin_a_task_is_the_one_that_has_it() -> None:
    """protocol 13.3: a task that comes again is reported on by whoever has it then."""
    world = World()
    asker, first = invoker(world), hired(world)
    token = first.registered["addressToken"]
    invoke(asker)
    update(first, "running")
    first.leave()
    second = hired(world, token=token)
    assert len(ids(second)) == 1
    assert update(second, "running", key="a")["changed"] is True
    assert update(second, "running", key="b")["changed"] is False
    assert world.disk.invocations[next(iter(world.disk.invocations))].worker == second.id
    tasks(second)
    assert run_of(asker)["state"] == "running"


def test_a_look_at_what_is_open_looks_for_its_holders_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 3.3, stale runs: what somebody has costs nothing while they are there, however much it is."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    asked: list[str] = []
    is_gone = Targets.is_gone

    def watched(self: Targets, target: str) -> bool:
        asked.append(target)
        return is_gone(self, target)

    monkeypatch.setattr(Targets, "is_gone", watched)
    for number in range(20):
        invoke(asker, invocation_id=f"inv-{number}")
        tasks(builder)
    world.pass_time(LIMITS.job_retry_ms)
    assert asked == [builder.id]
    builder.write("unregister")
    assert world.broker.due_soon_count(world.now) == 0
    world.pass_time(LIMITS.job_retry_ms)
    assert world.broker.due_soon_count(world.now) == 20, "the broker stays until they have failed"
    world.pass_time(LIMITS.run_stale_ms)
    assert {run_of(asker, f"inv-{number}")["state"] for number in range(20)} == {"failed"}
    assert world.broker.due_soon_count(world.now) == 0


# --- what cannot be handed over, or recorded ------------------------------------------------------------


def full() -> tuple[World, Agent, Agent]:
    """Return a world in which one task waits for somebody who is away, and a second one has no room."""
    world = World(limits=Limits(mailbox_entries=1))
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    invoke(asker)
    invoke(asker, invocation_id="inv-2", timeoutMs=600_000)
    assert "placement" not in run_of(asker, "inv-2")
    return world, asker, builder


def test_what_finds_no_room_again_is_not_written_again() -> None:
    """Rule 2: it is tried again, and the reason is told once"""
    world, asker, _ = full()
    before = len(kinds(world, "inv-2"))
    world.pass_time(3 * LIMITS.mailbox_full_retry_ms)
    assert len(kinds(world, "inv-2")) == before
    assert run_of(asker, "inv-2")["state"] == "queued"


def test_what_finds_no_room_in_its_time_has_failed() -> None:
    """FE 3.3: nothing is obeyed hours too late"""
    world = World(limits=Limits(mailbox_entries=1))
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    invoke(asker)
    invoke(asker, invocation_id="inv-2", timeoutMs=60_000)
    world.pass_time(60_000 + 2 * LIMITS.job_retry_ms)
    assert run_of(asker, "inv-2")["state"] == "failed" and run_of(asker)["state"] == "queued"


def test_what_finds_no_room_until_its_target_is_gone_has_failed() -> None:
    """FE 3.3: target gone, 120,000 ms grace over"""
    world, asker, builder = full()
    ask(operator(world), "session_force_close", sessionId=builder.id)
    world.pass_time(LIMITS.run_stale_ms + 3 * LIMITS.job_retry_ms)
    run = run_of(asker, "inv-2")
    assert (run["state"], run["reconciled"]) == ("failed", True)


def test_while_the_store_is_shut_nothing_is_given_up() -> None:
    """design 5 "Fail closed" """
    world, asker, _ = full()
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    before = len(world.disk.journal)
    world.pass_time(LIMITS.run_stale_ms)
    assert len(world.disk.journal) == before and not world.appends
    assert invoke(asker, invocation_id="inv-3")["code"] == "store_unusable"


def pushed_later() -> tuple[World, Agent, Agent]:
    """Return a world in which a task is about to be pushed again to somebody without a mailbox who did not confirm."""
    world = World()
    asker, builder = invoker(world), enter(world, "builder", features=("push.receipts", "invoke"))
    invoke(asker)
    assert len(ids(builder)) == 1
    world.pass_time(LIMITS.push_receipt_ms)
    world.auto = False
    return world, asker, builder


def test_a_hand_over_whose_lease_could_not_be_recorded_is_made_later() -> None:
    """FE 3.6, design 3.6"""
    world, _, builder = pushed_later()
    world.pass_time(2 * LIMITS.job_retry_ms)
    assert world.appends
    world.fail_commit()
    world.auto = True
    world.settle()
    assert ids(builder) == []
    world.pass_time(3 * LIMITS.job_retry_ms)
    assert len(ids(builder)) == 1


def test_a_lease_ends_in_time_whatever_becomes_of_the_time_of_day() -> None:
    """FE 3.6: a job is handed over again once its lease is over; promises "the clock is moved"."""
    world = World()
    asker, builder = invoker(world), hired(world)
    token = builder.registered["addressToken"]
    invoke(asker)
    world.auto = False
    world.pass_time(LIMITS.push_receipt_ms)
    assert world.appends, "what was not confirmed goes into the mailbox"
    world.fail_commit()
    world.auto = True
    world.wall -= 3_600_000
    builder.leave()
    world.pass_time(LIMITS.job_lease_ms + 2 * LIMITS.job_retry_ms)
    assert len(ids(hired(world, token=token))) == 1


@pytest.mark.parametrize("what", ["fails", "lost", "ended"])
def test_a_task_that_cannot_be_read(what: str) -> None:
    """FE 3.6: tried again, given up, or over by then"""
    world, asker, builder = pushed_later()
    world.pass_time(2 * LIMITS.job_retry_ms)
    world.commit()
    assert world.reads
    if what == "lost":
        world.disk.bodies.clear()
    if what == "ended":
        update_later(builder)
    world.read(fails=what == "fails")
    world.auto = True
    world.settle()
    assert [each for each in ids(builder) if each.startswith("run:")] == []
    run = run_of(asker)
    assert run["state"] == {"fails": "queued", "lost": "failed", "ended": "completed"}[what]
    if what == "fails":
        world.pass_time(3 * LIMITS.job_retry_ms)
        assert len(ids(builder)) == 1


def update_later(builder: Agent) -> None:
    """Report the end of the run, also while nothing is committed."""
    builder.write("run_update", requestId="u", invocationId="inv-1", updateId="u", state="completed")


def test_a_receipt_is_not_recorded_while_the_store_is_shut() -> None:
    """design 5 "Fail closed" """
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    [task] = [frame["message"]["id"] for frame in builder.mail()]
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    builder.confirm(task)
    assert kinds(world)[-1][1] == "queued" and not world.appends


@pytest.mark.parametrize("how", ["confirmed", "left"])
def test_a_run_that_ended_before_its_task_was_confirmed_stays_ended(how: str) -> None:
    """protocol 13.4: the first end counts"""
    world = World()
    asker, builder = invoker(world), enter(world, "builder", features=("push.receipts", "invoke"))
    invoke(asker)
    [task] = ids(builder)
    assert update(builder, "completed", output="built")["state"] == "completed"
    if how == "left":
        builder.leave()
    else:
        builder.confirm(task)
    run = run_of(asker)
    assert (run["state"], run["output"]) == ("completed", "built")


def test_who_leaves_with_a_task_that_is_not_wanted_any_more_ends_it() -> None:
    """protocol 13.4: nobody has it then"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    assert cancel(asker) == "queued"
    builder.leave()
    assert run_of(asker)["state"] == "cancelled" and world.disk.mail == {}


@pytest.mark.parametrize("how", ["settled", "expired"])
def test_what_leaves_the_inbox_without_an_assignment_ends_its_run(how: str) -> None:
    """protocol 10.2: settled by hand, or nobody took it"""
    limits = Limits(mail_ttl_ms=LIMITS.tidy_ms)
    world = World(limits=limits)
    asker, _, boss = invoker(world), task_worker(world), coordinator(world)
    invoke(asker)
    [item] = items(boss)
    if how == "settled":
        assert ask(boss, "inbox_settle", inboxId=item["inboxId"])["type"] == "inbox_settled"
        run = run_of(asker)
        assert (run["state"], run["summary"]) == ("completed", "Settled in the inbox, without a reply")
    else:
        world.pass_time(limits.mail_ttl_ms + limits.tidy_ms)
        run = run_of(asker)
        assert run["state"] == "failed" and "was not handed over" in run["error"]


def test_an_answer_of_somebody_else_is_no_result_and_a_second_one_changes_nothing() -> None:
    """FE 3.4: only who has the task says what became of it"""
    world = World()
    asker, builder, other = invoker(world), invoker(world, "builder"), enter(world, "other")
    invoke(asker)
    [task] = [frame["message"]["id"] for frame in tasks(builder)]
    other.message("asker", "m1", "mine", replyTo=task)
    assert run_of(asker)["state"] == "running"
    builder.message("asker", "m2", "first", replyTo=task)
    asker.confirm("m1", "m2")
    builder.message("asker", "m3", "second", replyTo=task)
    asker.confirm("m3")
    run = run_of(asker)
    assert (run["state"], run["output"]) == ("completed", "first")


def test_what_waits_in_the_inbox_is_in_nobodys_work() -> None:
    """protocol 3.10: a drain does not wait for it"""
    world = World()
    asker, _ = invoker(world), task_worker(world)
    invoke(asker)
    conn = world.connect()
    world.send(conn, type="broker_drain", requestId="d", timeoutMs=60_000)
    world.pass_time(2 * LIMITS.drain_look_ms)
    [told] = world.got(conn)
    assert (told["finished"], told["open"]) == (True, {})


def test_a_task_whose_run_had_ended_is_not_handed_over_by_the_next_broker() -> None:
    """protocol 13.4: its message was to leave with it"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    invoke(asker)
    [row] = world.disk.invocations.values()
    world.disk.invocations[row.number] = replace(row, state="completed", job="completed")
    world.start()
    asker = reattach(world, asker)
    assert ids(reattach(world, builder)) == [] and world.disk.mail == {}


@pytest.mark.parametrize("features", [INVOKER, ("push.receipts", "invoke")])
def test_a_task_that_is_not_wanted_ends_with_the_connection_it_was_written_to(features: tuple[str, ...]) -> None:
    """protocol 13.4: whoever breaks the protocol is gone at once, and nobody has its task"""
    world = World()
    asker, builder = invoker(world), enter(world, "builder", features=features)
    invoke(asker)
    assert cancel(asker) == "queued"
    world.perform(world.broker.protocol_error(builder.conn, "no JSON", world.now))
    assert run_of(asker)["state"] == "cancelled"


def test_who_is_gone_is_not_asked_to_stop() -> None:
    """protocol 13.4: the run stays as it is until it is looked for"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    tasks(builder)
    builder.write("unregister")
    assert cancel(asker) in ("running", "cancelled")
    assert world.disk.mail == {}


def test_what_says_that_a_forgotten_task_is_not_wanted_is_handed_over_without_it() -> None:
    """protocol 13.4: the message stands by itself"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    tasks(builder)
    builder.leave()
    assert cancel(asker) == "running"
    world.disk.invocations.clear()
    world.start()
    [notice] = [each for each in ids(reattach(world, builder)) if each.startswith("cancel:")]
    assert notice
