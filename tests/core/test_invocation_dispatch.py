"""Test who has a task: while nobody does, a run that is not wanted ends at once (FE 3.4 Cancel; protocol 13.4)."""

from __future__ import annotations

import pytest

from intercom.core.invocation_targets import Targets
from intercom.core.records import StoreIdentity
from intercom.limits import Limits
from tests.core.harness import World
from tests.core.invoking import INVOKER, invoke, invoker, kinds, run_of, task_worker, tasks, update
from tests.core.mail import Agent, enter, holder, reattach
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
