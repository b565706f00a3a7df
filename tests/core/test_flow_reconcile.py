"""Look at the passes themselves: when they run, what they cost, and what one fault does to others (protocol 12.5)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.flow import Flow
from intercom.core.flow_admission import Admission
from intercom.core.flow_book import FlowBook
from intercom.limits import Limits
from tests.core.flow_play import TODO_WORKER, Play, gated, steps_of
from tests.core.harness import World

LIMITS = Limits()
PASS = LIMITS.flow_reconcile_ms


def passes(play: Play) -> int:
    broker: Any = play.world.broker
    count: int = broker._flows.reconciler.passes
    return count


def test_nothing_runs_while_nothing_is_to_do() -> None:
    """Issue: no work per pass that grows with finished flows, and none at all for those that wait for a person."""
    play = Play()
    play.create("draft")
    play.begin("done", "one")
    play.report(play.take())
    play.begin("blocked", "one", "two")
    play.report(play.take(), "failed")
    play.world.pass_time(0)
    before = passes(play)
    play.world.pass_time(100 * PASS)
    assert passes(play) == before
    assert play.states("blocked") == ("active", ["failed", "pending"])


def test_a_pass_does_not_look_at_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: no work per pass that grows with finished flows."""
    play = Play()
    for number in range(3):
        play.begin(f"over{number}", "one")
        play.report(play.take())
    play.begin("live", "one", "two")
    looked: list[str] = []
    monkeypatch.setattr(FlowBook, "flows", lambda self: pytest.fail("a pass went through all flows"))
    for name in ("open_of", "is_committed", "dispatches_of"):
        honest = getattr(FlowBook, name)

        def seen(self: FlowBook, what: Any, honest: Any = honest) -> Any:
            looked.append(what.id if isinstance(what, Flow) else what.record.flow_id)
            return honest(self, what)

        monkeypatch.setattr(FlowBook, name, seen)
    before = passes(play)
    play.report(play.take())
    play.world.pass_time(3 * PASS)
    assert passes(play) > before + 2
    assert set(looked) == {"live"}


def test_many_requests_for_a_pass_are_one() -> None:
    """FE 2.4: a request during a pass causes exactly one more."""
    play = Play()
    play.begin(target="nobody")
    before = passes(play)
    play.world.auto = False
    for number in range(5):
        play.work_as_unheard(f"w{number}")
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert passes(play) == before + 1


def test_the_fault_of_one_flow_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 2.4 (the source lets unexpected errors end the pass)."""
    play = Play()
    other = play.work_as("other")
    honest = Admission.admit

    def faulty(self: Admission, flow: Flow, now: Any) -> None:
        if flow.id == "bad":
            self._book.begin(now).flow(flow, "flow.test", detail={}, reason="half a move")
            raise RuntimeError("broken")
        honest(self, flow, now)

    monkeypatch.setattr(Admission, "admit", faulty)
    play.begin("bad", "one")
    play.begin("good", "one", target="other")
    play.report(play.take(other), by=other)
    assert play.states("good")[0] == "completed"
    assert [note.fields["flow"] for note in play.world.notes if note.event == "flow_trouble"]
    assert "reason" not in play.flow("bad")["flow"]
    monkeypatch.undo()
    play.world.pass_time(PASS)
    play.report(play.take())
    assert play.states("bad")[0] == "completed"


def test_time_in_which_the_broker_stood_still_is_given_back() -> None:
    """F106: after a gap everybody has a fresh window; the worker could not report."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    play.report(dispatch_id)
    play.world.mono += 600_000
    play.world.wall += 600_000
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(LIMITS.flow_todo_gate_ms - PASS - 1)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_what_began_behind_a_standstill_gets_no_more_than_its_time() -> None:
    """Protocol 12.5, F106: given back is the time that was lost, which is none of a window that began later."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    play.world.pass_time(PASS)
    play.world.mono += 600_000
    play.world.wall += 600_000
    play.report(dispatch_id)
    play.world.pass_time(LIMITS.flow_todo_gate_ms - 1)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_a_worker_that_ends_behind_a_standstill_may_be_reported_for_no_longer_than_its_time() -> None:
    """Protocol 12.5.2: found by the simulator, where the step was under way for ever."""
    play = Play()
    play.worker.write("unregister")
    play.worker = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.begin("f", "one", target="desk")
    play.take()
    play.world.pass_time(PASS)
    play.world.mono += 600_000
    play.world.wall += 600_000
    play.worker.write("unregister")
    play.world.pass_time(LIMITS.flow_end_grace_ms - 1)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_a_step_that_is_taken_behind_a_standstill_has_no_more_than_its_time() -> None:
    """Protocol 12.5: the time a step has of its own is counted from when the worker has it."""
    play = Play()
    play.begin("f", {"stepId": "one", "prompt": "p", "reportTimeoutMs": 90_000})
    play.world.pass_time(PASS)
    play.world.mono += 600_000
    play.world.wall += 600_000
    play.take()
    play.world.pass_time(89_999)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


@pytest.mark.parametrize("shift", [-7_200_000, 86_400_000], ids=["back two hours", "forward a day"])
def test_a_clock_that_jumps_ends_nothing(shift: int) -> None:
    """F104, F106: windows are measured with the monotonic clock."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    play.report(dispatch_id)
    play.world.wall += shift
    play.world.pass_time(LIMITS.flow_todo_gate_ms - 1)
    assert play.states() == ("active", ["awaiting_result"])
    assert play.report(dispatch_id, todoOutcome={"todoId": "t", "todoStatus": "completed"})["stepState"] == "completed"


@pytest.mark.parametrize("shift", [-7_200_000, 0, 10_000, 86_400_000])
def test_a_restart_counts_the_time_it_can_vouch_for(shift: int) -> None:
    """F104: what is left of a window after a restart is never more than the whole, and an overdue one ends at once."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    play.report(play.take())
    play.world.wall += shift
    play.restart()
    play.boss = play.back(play.boss)
    left = LIMITS.flow_todo_gate_ms - min(max(shift, 0), LIMITS.flow_todo_gate_ms)
    if left > 1:
        play.world.pass_time(left - 1)
        assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_a_step_may_have_a_time_of_its_own() -> None:
    """Open point 7: off unless the step names it; counted from when the worker has it."""
    play = Play()
    play.begin("f", {"stepId": "one", "prompt": "p", "reportTimeoutMs": 90_000})
    play.world.pass_time(500_000)
    assert play.states() == ("active", ["dispatching"])
    play.take()
    assert play.flow()["dispatch"]["waitsUntil"] == play.world.wall + 90_000
    play.world.pass_time(89_999)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    status = play.flow()
    assert status["flow"]["steps"][0]["state"] == "ambiguous"
    assert status["dispatch"]["reason"] == "no report came in the time the step has"


def test_an_attempt_that_cannot_be_recorded_is_made_later() -> None:
    """Design section 3.6."""
    play = Play()
    play.create("f", "one")
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    play.world.read()
    play.world.fail_commit()
    play.world.auto = True
    play.world.pass_time(PASS)
    play.report(play.take())
    assert play.states() == ("completed", ["completed"])
    assert len(play.world.disk.dispatches) == 1


def test_a_flow_needs_the_broker_as_long_as_it_goes_on_by_itself() -> None:
    """A5.8, FE 5.5: a flow that waits for a person does not keep the broker."""
    play = Play()
    assert not play.world.broker.due_soon_count(play.world.now)
    play.create("f", "one", "two")
    assert not play.world.broker.due_soon_count(play.world.now)
    play.ask("flow_start", flowId="f")
    assert play.world.broker.due_soon_count(play.world.now)
    dispatch_id = play.take()
    play.boss.leave()
    assert play.world.broker.due_soon_count(play.world.now)
    play.report(dispatch_id, "failed")
    assert not play.world.broker.due_soon_count(play.world.now)


def test_mail_that_is_given_up_makes_the_attempt_ambiguous() -> None:
    """FE 2.4, publish: rejected."""
    play = Play(World(limits=Limits(mail_ttl_ms=30_000)))
    play.begin("f", "one")
    play.worker.leave()
    play.world.pass_time(30_000)
    status = play.flow()
    assert status["flow"]["steps"][0]["state"] == "ambiguous"
    assert (status["dispatch"]["transport"], status["dispatch"]["outcome"]) == ("rejected", "ambiguous")


def test_texts_that_are_lost_are_said() -> None:
    """Design section 5: rebuilding restores states, not bodies; what never comes back is not waited for."""
    play = Play()
    play.create("f", "one")
    play.world.disk.bodies.clear()
    play.ask("flow_start", flowId="f")
    flow = play.flow()["flow"]
    assert (flow["state"], flow["reason"], flow["nextActions"]) == ("failed", "the text of step one is lost", [])
    assert "prompt" not in flow["steps"][0]


def test_a_text_that_comes_while_others_are_read_is_not_lost() -> None:
    """Design section 5: lost is what was on disk and is not there any more; found by the simulator."""
    play = Play()
    play.create("f", "one")
    play.world.auto = False
    play.boss.write("flow_status", requestId="s", flowId="f")
    play.boss.write("flow_append", requestId="a", flowId="f", afterStepId="one", steps=steps_of("two"))
    play.world.auto = True
    play.world.settle()
    assert play.ask("flow_start", flowId="f")["type"] == "flow"


def test_a_text_whose_commit_is_under_way_is_not_lost() -> None:
    """Design section 5: the disk may be slow; whoever looks at a flow meanwhile does not end it."""
    play = Play()
    play.world.auto = False
    play.boss.write("flow_create", requestId="c", flowId="f", target="worker", steps=steps_of("one"))
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.boss.write("flow_status", requestId="l", flowId="f")
    play.world.pass_time(0)
    play.world.read()
    play.world.auto = True
    play.world.settle()
    play.world.pass_time(Limits().flow_reconcile_ms)
    assert [frame["message"]["flowDispatch"]["stepId"] for frame in play.dispatches()] == ["one"]
    assert play.states() == ("active", ["dispatching"])


def test_only_who_had_to_report_is_given_time_back() -> None:
    """F106: a flow that waits for its target has no window"""
    play = Play(features=TODO_WORKER)
    play.begin("waiting", "one", target="nobody")
    play.begin("f", gated(requireCompleted=True))
    play.report(play.take())
    play.world.mono += 600_000
    play.world.wall += 600_000
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.states() == ("active", ["awaiting_result"])


def test_a_sign_that_the_work_has_ended_outlives_the_broker() -> None:
    """A2.7, F104: what is left of its window after a restart is never more than the whole"""
    play = Play()
    play.begin("f", "one")
    play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(LIMITS.flow_end_grace_ms - 1_000)
    play.restart()
    play.boss = play.back(play.boss)
    play.world.pass_time(999)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_a_session_that_has_finished_and_owes_the_answer_is_a_sign_of_its_own() -> None:
    """A2.7 with a correlation: the reason says that the question is not answered"""
    play = Play()
    play.boss.ask("worker", "q")
    play.worker.confirm("q")
    play.begin("f", "one")
    play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(PASS)
    evidence = play.flow()["dispatch"]["evidence"]["detail"]
    assert evidence == "its session says that it has finished, although question q is not answered"


def test_a_step_whose_message_is_lost_is_ambiguous() -> None:
    """FE 2.4: rejected; rebuilding restores states, not what lay in mailboxes"""
    play = Play()
    play.begin("f", "one")
    play.world.disk.mail.clear()
    play.restart()
    play.boss = play.back(play.boss)
    play.world.pass_time(PASS)
    assert play.states() == ("active", ["ambiguous"])
    assert play.flow()["dispatch"]["reason"] == "its message is lost"


def test_a_step_of_a_session_nobody_knows_any_more_is_ambiguous() -> None:
    """A2.12: it will not come back"""
    play = Play()
    play.begin("f", "one")
    play.take()
    del play.world.disk.known_sessions[play.worker.id]
    play.restart()
    play.boss = play.back(play.boss)
    play.world.pass_time(PASS)
    assert play.states() == ("active", ["ambiguous"])


def test_what_was_reported_is_decided_by_its_own_rule_though_its_session_has_left() -> None:
    """protocol 12.6: the report waits for word of the to-do item"""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    play.report(play.take())
    play.worker.write("unregister")
    play.world.pass_time(PASS)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(LIMITS.flow_todo_gate_ms)
    assert play.states() == ("active", ["ambiguous"])
