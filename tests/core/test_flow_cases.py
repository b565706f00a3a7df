"""Play the acceptance scenarios of flows against the core (A2.1 to A2.15)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intercom.limits import Limits
from tests.core.flow_play import TODO_WORKER, Play, gated, todo
from tests.core.harness import World
from tests.core.mail import reattach

LIMITS = Limits()
PASS = LIMITS.flow_reconcile_ms


def test_a_step_is_sent_when_the_one_before_was_reported() -> None:
    """A2.1."""
    play = Play()
    play.begin()
    (frame,) = play.dispatches()
    dispatch = frame["message"]["flowDispatch"]
    assert frame["message"]["id"] == f"flow-dispatch/{dispatch['dispatchId']}"
    assert (dispatch["flowId"], dispatch["stepId"], dispatch["attempt"]) == ("f", "one", 1)
    assert frame["message"]["content"]["text"] == "do one"
    assert play.states() == ("active", ["dispatching", "pending"])
    play.worker.confirm(frame["message"]["id"])
    assert play.states() == ("active", ["awaiting_result", "pending"])
    play.world.pass_time(60_000)
    assert play.dispatches() == []
    answer = play.report(dispatch["dispatchId"])
    assert answer["type"] == "flow_report_recorded"
    assert answer["reportMessageId"] == f"flow-report/{dispatch['dispatchId']}"
    assert (answer["state"], answer["stepState"]) == ("accepted", "completed")
    assert play.states() == ("active", ["completed", "dispatching"])
    play.report(play.take())
    assert play.states() == ("completed", ["completed", "completed"])
    assert play.dispatches() == []


def test_a_receipt_completes_nothing() -> None:
    """A2.2."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    for _ in range(3):
        play.worker.confirm(f"flow-dispatch/{dispatch_id}")
        play.world.pass_time(600_000)
    assert play.states() == ("active", ["awaiting_result", "pending"])
    assert play.dispatches() == []


def test_who_cannot_be_reached_fails_the_flow_in_the_end() -> None:
    """A2.3, first half; open point 10: one vain attempt a pause is counted, whatever happens meanwhile."""
    play = Play()
    play.begin(target="nobody")
    for count in range(1, 5):
        flow = play.flow()["flow"]
        assert (flow["state"], flow["admitAttempts"]) == ("active", count)
        assert flow["lastAdmitReason"] == "nobody in group default is called nobody"
        play.work_as(f"another {count}")
        play.world.pass_time(PASS)
    flow = play.flow()["flow"]
    assert flow["state"] == "failed"
    assert flow["reason"] == "not reachable after 5 attempts: nobody in group default is called nobody"


def test_a_success_begins_the_count_anew() -> None:
    """A2.3, second half."""
    play = Play()
    play.begin("f", "one", "two", target="late")
    play.world.pass_time(2 * PASS)
    assert play.flow()["flow"]["admitAttempts"] == 3
    late = play.work_as("late")
    play.world.pass_time(0)
    flow = play.flow()["flow"]
    assert flow.get("admitAttempts", 0) == 0
    assert "lastAdmitReason" not in flow
    assert flow["steps"][0]["state"] == "dispatching"
    play.report(play.take(late), by=late)
    late.write("unregister")
    assert play.states() == ("active", ["completed", "ambiguous"])


@pytest.mark.parametrize("point", ["intent", "sent", "accepted", "reported", "completed"])
@pytest.mark.parametrize("who", ["broker", "worker", "both"])
def test_a_crash_leaves_one_dispatch_and_one_effective_message(point: str, who: str) -> None:
    """A2.4 for the core: the broker is killed, the worker, and both."""
    world = World()
    play = Play(world)
    assert play.create("f", "one")["type"] == "flow"
    world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    world.perform(world.broker.deadline_passed(world.now))
    world.commit()
    world.read()
    world.commit()
    dispatch_id = None
    if point != "intent":
        world.auto = True
        world.settle()
        (frame,) = play.dispatches()
        dispatch_id = frame["message"]["flowDispatch"]["dispatchId"]
        if point != "sent":
            play.worker.confirm(frame["message"]["id"])
        if point == "reported":
            world.auto = False
            play.worker.write("flow_report", requestId="x", dispatchId=dispatch_id, outcome="completed", summary="done")
            assert world.appends
        elif point == "completed":
            play.report(dispatch_id)
    if who != "worker":
        play.restart()
    else:
        world.auto = True
        world.settle()
    world.auto = True
    if who == "broker":
        play.boss, play.worker = play.back(play.boss), play.back(play.worker)
    elif who == "worker":
        play.worker.leave()
        play.worker = play.born_again(play.worker)
    else:
        play.boss, play.worker = play.back(play.boss), play.born_again(play.worker)
    world.pass_time(PASS)
    seen = [frame["message"]["flowDispatch"]["dispatchId"] for frame in play.dispatches()]
    status = play.flow()
    attempts = status["flow"]["steps"][0]["attempts"]
    assert len(attempts) == 1
    assert set(seen) <= set(attempts)
    assert dispatch_id in (None, attempts[0])
    state = status["flow"]["steps"][0]["state"]
    if point == "completed" or (point == "reported" and who == "worker"):
        assert (state, seen) == ("completed", [])
    elif who == "broker":
        assert len(seen) == (0 if point in ("accepted", "reported") else 1), "once more only what was not confirmed"
        if state == "dispatching":
            play.worker.confirm(f"flow-dispatch/{attempts[0]}")
        assert play.states()[1] == ["awaiting_result"]
        play.report(attempts[0])
        assert play.states() == ("completed", ["completed"])
    else:
        assert (state, seen) == ("ambiguous", [])


def test_a_restarted_worker_makes_the_step_ambiguous_until_somebody_asks_for_a_retry() -> None:
    """A2.5."""
    play = Play()
    play.begin()
    first = play.take()
    play.worker = play.born_again(play.worker)
    play.world.pass_time(10 * PASS)
    assert play.states() == ("active", ["ambiguous", "pending"])
    assert play.dispatches() == []
    assert play.ask("flow_retry", flowId="f", stepId="one", reason="it is idle again")["type"] == "flow"
    second = play.take()
    assert play.flow()["flow"]["steps"][0]["attempts"] == [first, second]
    assert play.states() == ("active", ["awaiting_result", "pending"])


def test_only_an_exact_report_moves_the_flow() -> None:
    """A2.6."""
    play = Play()
    other = play.work_as("other")
    play.begin()
    dispatch_id = play.take()
    assert play.report(dispatch_id, by=other)["code"] == "not_flow_target"
    assert play.report("00000000-0000-4000-8000-000000000000")["code"] == "dispatch_unknown"
    named = play.report(dispatch_id, stepId="two")
    assert (named["code"], "stepId" in named["reason"]) == ("bad_request", True)
    assert play.states() == ("active", ["awaiting_result", "pending"])
    play.worker = play.born_again(play.worker)
    assert play.report(dispatch_id)["code"] == "not_flow_target"
    assert play.states() == ("active", ["ambiguous", "pending"])


def test_a_report_for_a_retired_dispatch_is_refused() -> None:
    """A2.6, A2.9: the late report answers dispatch_closed and is recorded as ignored."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    cancelled = play.ask("flow_cancel", flowId="f", reason="plans changed")
    assert cancelled["flow"]["state"] == "cancelled"
    answer = play.report(dispatch_id)
    assert (answer["code"], answer["retryable"]) == ("dispatch_closed", False)
    status = play.flow()
    assert [step["state"] for step in status["flow"]["steps"]] == ["cancelled", "cancelled"]
    assert status["dispatch"]["outcome"] == "retired"
    assert status["dispatch"]["ignoredReportAt"] == play.world.wall


def test_a_report_within_the_grace_beats_other_signs_of_the_end() -> None:
    """A2.7, first half."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(0)
    assert play.flow()["dispatch"]["evidence"]["deadline"] == play.world.wall + 5_000
    play.world.pass_time(3_000)
    play.report(dispatch_id)
    assert play.states() == ("completed", ["completed"])


def test_without_a_report_the_end_makes_it_ambiguous_for_good() -> None:
    """A2.7, second half."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(4_999)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    status = play.flow()
    assert status["flow"]["steps"][0]["state"] == "ambiguous"
    assert status["dispatch"]["reason"] == "its session says that it has finished, and no report came in time"
    play.world.pass_time(1_000)
    assert play.report(dispatch_id)["code"] == "dispatch_closed"
    assert play.states() == ("active", ["ambiguous"])


def test_the_answer_to_the_one_open_question_is_such_a_sign() -> None:
    """A2.7 with a correlation: captured when exactly one question of the creator is open."""
    play = Play()
    play.boss.ask("worker", "q")
    play.worker.confirm("q")
    play.begin("f", "one")
    dispatch_id = play.take()
    assert play.flow()["dispatch"]["correlation"] == "q"
    play.worker.reply(play.boss.id, "a", "q")
    play.boss.confirm("a")
    play.world.pass_time(PASS)
    evidence = play.flow()["dispatch"]["evidence"]["detail"]
    assert evidence == "question q, which the work was to end with, was answered"
    play.world.pass_time(5_000)
    assert play.states() == ("active", ["ambiguous"])
    assert play.report(dispatch_id)["code"] == "dispatch_closed"


def test_two_open_questions_correlate_with_nothing() -> None:
    """FE 2.2: only when exactly one exists."""
    play = Play()
    for question in ("q", "r"):
        play.boss.ask("worker", question)
        play.worker.confirm(question)
    play.begin("f", "one")
    assert "correlation" not in play.flow()["dispatch"]


def test_a_conflict_check_is_ambiguous_at_once() -> None:
    """A2.8."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(conflictCheck=True))
    assert play.report(play.take(), **todo("in_progress"))["stepState"] == "ambiguous"
    status = play.flow()
    assert status["dispatch"]["reason"] == "reported as completed, and its to-do item t1 is in_progress"
    assert status["dispatch"]["binding"]["state"] == "ambiguous"


def test_missing_evidence_is_waited_for_and_then_ambiguous() -> None:
    """A2.8."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    assert play.report(play.take())["stepState"] == "awaiting_result"
    play.world.pass_time(29_999)
    assert play.states() == ("active", ["awaiting_result"])
    play.world.pass_time(1)
    assert play.states() == ("active", ["ambiguous"])


def test_evidence_may_follow_a_report_while_it_is_waited_for() -> None:
    """Open point 8."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    assert play.report(dispatch_id, **todo("in_progress"))["stepState"] == "awaiting_result"
    assert play.report(dispatch_id, **todo("completed", "t2"))["code"] == "binding_conflict"
    assert play.report(dispatch_id, summary="something else")["code"] == "report_conflict"
    assert play.report(dispatch_id)["type"] == "flow_report_recorded"
    play.world.pass_time(20_000)
    assert play.report(dispatch_id, **todo("completed"))["stepState"] == "completed"
    status = play.flow()
    assert status["flow"]["state"] == "completed"
    assert status["dispatch"]["binding"] == {
        "negotiated": True,
        "state": "completed",
        "todoId": "t1",
        "todoStatus": "completed",
    }


def test_a_worker_without_a_todo_list_has_no_gates() -> None:
    """A2.8."""
    play = Play()
    play.begin("f", gated(requireCompleted=True, conflictCheck=True))
    dispatch_id = play.take()
    assert play.flow()["dispatch"]["binding"] == {"negotiated": False}
    assert play.report(dispatch_id)["stepState"] == "completed"
    assert play.states() == ("completed", ["completed"])


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_evidence_without_a_binding_makes_every_report_ambiguous(outcome: str) -> None:
    """FE 2.4, corrected by design section 7: a failed report too."""
    play = Play()
    play.begin("f", "one")
    assert play.report(play.take(), outcome, **todo())["stepState"] == "ambiguous"


def test_a_failed_report_fails_the_step_and_its_binding() -> None:
    """FE 2.3: a failed report passes no gate."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True, conflictCheck=True), "two")
    assert play.report(play.take(), "failed", **todo("blocked"))["stepState"] == "failed"
    assert play.flow()["dispatch"]["binding"]["state"] == "failed"
    play.world.pass_time(10 * PASS)
    assert play.states() == ("active", ["failed", "pending"])
    assert play.dispatches() == []


def test_a_cancel_retires_what_is_under_way_whatever_crashes() -> None:
    """A2.9: the cancel and the retirement are one commit."""
    play = Play()
    play.begin()
    (frame,) = play.dispatches()
    play.world.auto = False
    play.boss.write("flow_cancel", requestId="c", flowId="f", reason="enough")
    play.world.commit()
    play.restart()
    play.world.auto = True
    play.boss, play.worker = play.back(play.boss), play.back(play.worker)
    assert play.dispatches() == []
    assert play.states() == ("cancelled", ["cancelled", "cancelled"])
    assert play.flow()["dispatch"]["outcome"] == "retired"
    dispatch_id = frame["message"]["flowDispatch"]["dispatchId"]
    assert play.report(dispatch_id)["code"] == "dispatch_closed"


@pytest.mark.parametrize("is_taken", [False, True], ids=["on its way", "at work"])
def test_a_cancel_that_was_cut_off_is_finished_at_the_start(is_taken: bool) -> None:
    """A2.9: a store in which the cancel is there and the retirement is not, as another broker may have left it."""
    play = Play()
    play.begin()
    dispatch_id = play.take() if is_taken else play.flow()["dispatch"]["dispatchId"]
    disk = play.world.disk
    [(number, row)] = disk.flows.items()
    disk.flows[number] = replace(row, state="cancelled", over_at=play.world.wall, reason="enough")
    play.restart()
    play.boss, play.worker = play.back(play.boss), play.back(play.worker)
    assert play.dispatches() == []
    assert play.states() == ("cancelled", ["cancelled", "cancelled"])
    dispatch = play.flow()["dispatch"]
    assert (dispatch["outcome"], dispatch["reason"]) == ("retired", "flow cancelled: enough")
    assert play.report(dispatch_id)["code"] == "dispatch_closed"
    assert "flow.projection_repaired" in [event.kind for event in disk.journal]


def test_a_paused_flow_takes_reports_and_begins_nothing() -> None:
    """A2.10."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    assert play.ask("flow_pause", flowId="f")["flow"]["state"] == "paused"
    play.report(dispatch_id)
    play.world.pass_time(10 * PASS)
    assert play.states() == ("paused", ["completed", "pending"])
    assert play.dispatches() == []
    play.ask("flow_resume", flowId="f")
    dispatch_id = play.take()
    play.ask("flow_pause", flowId="f")
    play.report(dispatch_id)
    assert play.states() == ("completed", ["completed", "completed"])


def test_one_target_works_on_one_step_whatever_the_flow() -> None:
    """A2.11."""
    play = Play()
    play.begin("f", "one", "two")
    play.begin("g", "one", "two", target=f"session:{play.worker.id}")
    done: list[str] = []
    for _ in range(4):
        play.world.pass_time(20 * PASS)
        (frame,) = play.dispatches()
        step = frame["message"]["flowDispatch"]
        done.append(step["flowId"])
        for flow_id in ("f", "g"):
            flow = play.flow(flow_id)["flow"]
            assert flow.get("admitAttempts", 0) == 0
            if flow_id != step["flowId"] and flow["state"] == "active":
                assert flow["waiting"]["what"].endswith(f"to end step {step['stepId']} of flow {step['flowId']}")
        play.worker.confirm(frame["message"]["id"])
        play.report(step["dispatchId"])
    assert sorted(done) == ["f", "f", "g", "g"]
    assert play.states("f")[0] == play.states("g")[0] == "completed"


def test_a_target_that_is_replaced_before_the_intent_gets_nothing() -> None:
    """A2.12, first half: it is looked at again after its text was read."""
    play = Play()
    play.create("f", "one")
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.world.reads
    play.worker = play.born_again_unheard(play.worker)
    play.world.commit()
    play.world.auto = True
    play.world.settle()
    assert play.world.disk.dispatches == {}
    assert play.flow()["flow"]["lastAdmitReason"] == "worker was replaced meanwhile"
    play.world.pass_time(PASS)
    play.report(play.take())
    assert play.states() == ("completed", ["completed"])


def test_a_target_that_is_replaced_while_the_intent_is_written_gets_nothing() -> None:
    """A2.12, second half, as design section 7 says: retired, nothing sent, the attempt does not count."""
    play = Play()
    play.create("f", "one")
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    play.world.read()
    assert play.world.appends
    old = play.worker
    play.world.end(old.conn)
    play.worker = play.born_again_unheard(old)
    play.world.auto = True
    play.world.settle()
    (retired,) = play.world.disk.dispatches.values()
    assert retired.outcome == "retired"
    play.world.pass_time(PASS)
    dispatch_id = play.take()
    assert dispatch_id != retired.dispatch_id
    assert play.flow()["flow"]["steps"][0]["attempts"] == [dispatch_id]
    assert not [frame for frame in old.got() if frame["type"] == "message"]


def test_append_never_alters_what_was() -> None:
    """A2.13."""
    play = Play()
    play.begin("f", "one", "two")
    first = play.take()
    appended = play.ask("flow_append", flowId="f", afterStepId="one", steps=[{"stepId": "mid", "prompt": "m"}])
    assert [step["stepId"] for step in appended["flow"]["steps"]] == ["one", "mid", "two"]
    play.report(first)
    second = play.take()
    refused = play.ask("flow_append", flowId="f", afterStepId="one", steps=[{"stepId": "no", "prompt": "n"}])
    assert refused["code"] == "flow_conflict"
    steps = play.flow()["flow"]["steps"]
    assert [(step["stepId"], step["prompt"], step["attempts"]) for step in steps] == [
        ("one", "do one", [first]),
        ("mid", "m", [second]),
        ("two", "do two", []),
    ]


def test_an_equal_report_is_taken_again_and_another_one_is_not() -> None:
    """A2.14, the broker's half."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    resources = ["file:a", "file:b"]
    first = play.report(dispatch_id, resources=resources)
    assert not [event for event in play.world.disk.journal if event.kind.startswith("report_outbox")]
    journal = len(play.world.disk.journal)
    again = play.report(dispatch_id, resources=resources, attempt=2)
    assert {**first, "requestId": 0} == {**again, "requestId": 0}
    assert len(play.world.disk.journal) == journal
    assert play.report(dispatch_id, resources=resources[:1])["code"] == "report_conflict"
    assert play.report(dispatch_id, "failed", resources=resources)["code"] == "report_conflict"


def test_the_journal_tells_every_row() -> None:
    """A2.15 and A5.5 for the core: replaying the events gives the rows."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True), "two", "three")
    play.report(play.take(), **todo())
    play.report(play.take(), "failed")
    play.ask("flow_retry", flowId="f", stepId="two", reason="again")
    play.take()
    play.begin("g", "one")
    play.ask("flow_cancel", flowId="g", reason="no")
    rows: dict[tuple[str, int], Any] = {}
    revisions: dict[str, int] = {}
    for event in play.world.disk.journal:
        kind = event.stream.partition(":")[0]
        if kind in ("flow", "dispatch"):
            rows[kind, event.row.number] = event.row
            assert event.row.revision == revisions.get(event.stream, 0) + 1, event.kind
            revisions[event.stream] = event.row.revision
    disk = play.world.disk
    live = {("flow", number): row for number, row in disk.flows.items()}
    live |= {("dispatch", number): row for number, row in disk.dispatches.items()}
    assert rows == live


def test_reattached_workers_go_on() -> None:
    """FE 2.6: a connection that was lost is no restart."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    play.worker.leave()
    waiting = play.flow()["flow"]["waiting"]["what"]
    assert waiting == "the report of worker, which is away and may come back"
    again = reattach(play.world, play.worker)
    again.first = play.worker.first
    play.worker = again
    play.report(dispatch_id)
    assert play.states() == ("completed", ["completed"])


def test_what_a_worker_wrote_down_before_it_died_is_taken_from_its_next_start() -> None:
    """A2.14: whoever acts under the address brings the report of the session that died, within the grace."""
    play = Play()
    play.worker = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.begin("f", "one", target=f"session:{play.worker.id}")
    dispatch_id = play.take()
    play.worker.leave()
    play.world.judge(play.worker.id, is_alive=False)
    assert play.states() == ("active", ["awaiting_result"])
    again = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    assert again.id != play.worker.id
    assert play.dispatches(again) == []
    wrote = {"preparedAt": play.world.wall - 9_000, "attempt": 3}
    assert play.report(dispatch_id, by=again, **wrote)["stepState"] == "completed"
    assert play.report(dispatch_id, by=again, **wrote)["stepState"] == "completed"
    (brought,) = [event for event in play.world.disk.journal if event.kind == "report_outbox.accepted"]
    assert brought.detail == {"attempts": 3, "preparedAt": wrote["preparedAt"], "by": again.id}
    shown = play.flow()["dispatch"]["report"]
    assert (shown["attempts"], shown["preparedAt"]) == (3, wrote["preparedAt"])
    assert play.report(dispatch_id, "failed", by=again)["code"] == "report_conflict"
    assert play.states() == ("completed", ["completed"])


def test_without_a_report_its_next_start_does_not_go_on() -> None:
    """A2.5 for a worker with an address: the grace over, the step is ambiguous."""
    play = Play()
    play.worker = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.begin("f", "one", target=f"session:{play.worker.id}")
    dispatch_id = play.take()
    play.worker.write("unregister")
    again = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.world.pass_time(LIMITS.flow_end_grace_ms)
    status = play.flow()
    assert status["flow"]["steps"][0]["state"] == "ambiguous"
    assert status["dispatch"]["reason"] == "its session was replaced or has ended, and no report came in time"
    assert play.dispatches(again) == []
    assert play.report(dispatch_id, by=again)["code"] == "dispatch_closed"


def test_a_command_under_the_address_of_the_worker_reports_for_it() -> None:
    """Design section 7, Identity of a command: it acts under the address and receives nothing."""
    play = Play()
    token = {"name": "desk", "token": "t" * 32}
    play.worker = play.work_as("worker", address=token)
    play.begin("f", "one", target="desk")
    dispatch_id = play.take()
    command = play.work_as("command", address={**token, "hold": "none"})
    assert play.report(dispatch_id, by=command)["stepState"] == "completed"


def test_a_step_that_was_not_written_in_time_is_work_for_nobody() -> None:
    """protocol 12.4, 9.5.5: mail of an address that was never written is parked for whoever works; a step never is."""
    play = Play(World(limits=Limits(mail_ttl_ms=30_000)))
    play.worker = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.create("f", "one", target=f"session:{play.worker.id}")
    world = play.world
    world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    world.commit()
    world.perform(world.broker.deadline_passed(world.now))
    world.read()
    world.wall += 86_400_000
    world.auto = True
    world.settle()
    assert world.disk.inbox == {}
    status = play.flow()
    assert (status["dispatch"]["transport"], status["dispatch"]["outcome"]) == ("rejected", "ambiguous")
    assert status["flow"]["steps"][0]["state"] == "ambiguous"
    assert play.dispatches() == []


def test_mail_for_a_session_that_is_gone_reaches_no_other_holder_of_its_address() -> None:
    """protocol 12.4"""
    play = Play()
    play.worker = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.begin("f", "one", target=f"session:{play.worker.id}")
    assert len(play.dispatches()) == 1
    again = play.work_as("worker", address={"name": "desk", "token": "t" * 32})
    play.world.pass_time(LIMITS.flow_end_grace_ms)
    assert play.dispatches(again) == []
    assert play.states() == ("active", ["ambiguous"])


def test_a_receipt_that_waits_to_be_recorded_is_not_taken_back_by_the_report() -> None:
    """Design section 3.6: it is recorded as soon as that can be"""
    play = Play()
    play.begin("f", "one")
    [frame] = play.dispatches()
    play.world.auto = False
    play.worker.write("received", messageId=frame["message"]["id"])
    play.world.fail_commit()
    play.world.auto = True
    play.world.settle()
    assert play.report(frame["message"]["flowDispatch"]["dispatchId"])["stepState"] == "completed"
    play.world.pass_time(Limits().mail_retry_ms)
    assert play.world.disk.mail == {} and play.states() == ("completed", ["completed"])


def test_a_step_behind_other_mail_is_shown_as_on_its_way() -> None:
    """FE 2.6: what a flow waits for"""
    play = Play(World(limits=Limits(mail_offers=1)))
    play.worker.leave()
    play.boss.queue("worker", "m1")
    play.worker = play.back(play.worker)
    play.begin("f", "one")
    assert "step one to reach worker" in str(play.flow())


def test_a_message_of_a_step_that_was_taken_is_not_handed_over_by_the_next_broker() -> None:
    """FE 2.4: it was to leave with the receipt"""
    play = Play()
    play.begin("f", "one")
    mail = dict(play.world.disk.mail)
    play.take()
    play.world.disk.mail.update(mail)
    play.restart()
    play.boss = play.back(play.boss)
    assert play.dispatches(play.back(play.worker)) == [] and play.world.disk.mail == {}
    assert play.states() == ("active", ["awaiting_result"])


def test_the_second_attempt_that_could_not_be_recorded_leaves_the_first_where_it_was() -> None:
    """Design section 3.6"""
    play = Play()
    play.begin("f", "one", "two")
    dispatch = play.take()
    play.world.auto = False
    play.worker.write("flow_report", requestId="r", dispatchId=dispatch, outcome="completed", summary="done")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    play.world.read()
    assert play.world.appends
    play.world.fail_commit()
    play.world.auto = True
    play.world.settle()
    assert len(play.world.disk.dispatches) == 1
    play.world.pass_time(PASS)
    play.report(play.take())
    assert play.states() == ("completed", ["completed", "completed"])
