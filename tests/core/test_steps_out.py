"""Test that steps are brought to other brokers, and what those say of them is taken, whatever comes between."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode, encode

from intercom.core.flow_reconcile import NO_CLUSTER
from intercom.core.records import Post
from intercom.core.step_letters import (
    DISPATCHED,
    REPORT,
    REPORTED,
    DispatchedLetter,
    ReportedLetter,
    ReportLetter,
)
from intercom.core.steps_out import NOT_KNOWN
from intercom.limits import MINUTE_MS, Limits
from tests.core.cluster import IDS
from tests.core.flow_play import TODO_WORKER, gated
from tests.core.flows_between import Between
from tests.core.mail import enter

LIMITS = Limits()
PASS = LIMITS.flow_reconcile_ms


def say(play: Between, dispatch_id: str, state: Any, **more: Any) -> None:
    """Let the broker of the worker say something."""
    letter = DispatchedLetter(dispatch_id, state, **more)
    number = len(play.cluster.posts)
    post = Post(number, IDS["a"], DISPATCHED, dispatch_id, f"said {number}", encode(letter))
    play.cluster.post(play.cluster.nodes["b"], post)
    play.run()


def attempt(play: Between) -> str:
    """Return the id of the attempt under way."""
    found: str = play.flow()["dispatch"]["dispatchId"]
    return found


def test_who_is_on_a_machine_that_cannot_be_reached_is_not_handed_a_step() -> None:
    """12.11.2: as long as it is shown it is said why."""
    play = Between()
    play.cluster.cut("a", leases_end=False)
    play.begin("one")
    assert play.flow()["flow"]["lastAdmitReason"] == "worker is on machine b, which cannot be reached now"
    assert play.flow()["flow"]["steps"][0]["attempts"] == []


def test_what_is_cancelled_while_its_commit_waits_is_never_posted() -> None:
    """A2.9: nothing is sent."""
    play = Between()
    a = play.cluster["a"]
    play.control("create", target="worker", steps=[{"stepId": "one", "prompt": "p"}])
    a.auto = False
    play.write(play.boss, "flow_start", flowId="f")
    a.commit()
    a.pass_time(0)
    a.read()
    a.pass_time(PASS)
    play.write(play.boss, "flow_cancel", flowId="f", reason="enough")
    a.auto = True
    a.settle()
    play.run(MINUTE_MS)
    assert play.posted("dispatch") == 0 and play.states() == ("cancelled", ["cancelled"])


def test_a_text_that_cannot_be_read_is_read_again() -> None:
    """12.11.1: posted until it is answered."""
    play = Between()
    a = play.cluster["a"]
    play.control("create", target="worker", steps=[{"stepId": "one", "prompt": "p"}])
    a.auto = False
    play.write(play.boss, "flow_start", flowId="f")
    for fails in (False, True):
        a.commit()
        a.pass_time(0)
        a.read(fails=fails)
    a.auto = True
    a.settle()
    play.run(MINUTE_MS)
    assert play.report(play.take())["stepState"] == "completed"


@pytest.mark.parametrize("has_left", [False, True])
def test_a_text_that_is_lost_is_never_brought(has_left: bool) -> None:
    """12.3.5: what never left does not count and fails the flow; what may have left is ambiguous."""
    play = Between()
    a = play.cluster["a"]
    play.cluster.nodes["b"].is_cut = True
    play.control("create", target="worker", steps=[{"stepId": "one", "prompt": "p"}])
    if has_left:
        play.control("start")
        play.run()
        play.cluster.nodes["b"].queue.clear()
        a.disk.bodies.clear()
    else:
        a.auto = False
        play.write(play.boss, "flow_start", flowId="f")
        a.commit()
        a.pass_time(0)
        a.read()
        a.commit()
        a.disk.bodies.clear()
        a.auto = True
        a.settle()
    play.run(MINUTE_MS)
    flow = play.flow()["flow"]
    found = flow["state"], flow["steps"][0]["state"], len(flow["steps"][0]["attempts"])
    assert found == (("active", "ambiguous", 1) if has_left else ("failed", "pending", 0))
    assert "the text of step one is lost" in flow["reason"]


def test_an_attempt_that_is_on_its_way_is_counted() -> None:
    """FE 3.2: depth and age of the outbox, until the other broker has it."""
    play = Between()
    person = enter(play.cluster["a"], features=("operator",), info={"recipientPurpose": "control"})

    def waiting() -> Any:
        return play.ask(person, "broker_status")["report"]["multiNode"].get("outbox", 0)

    play.worker.leave()
    play.cluster.nodes["b"].is_cut = True
    play.begin("one")
    assert waiting() == 1
    play.cluster.nodes["b"].is_cut = False
    play.run()
    assert play.flow()["dispatch"]["transport"] == "prepared" and waiting() == 0
    play.worker = play.back(play.worker)
    play.take()
    assert waiting() == 0


def test_a_broker_that_records_nothing_takes_no_word() -> None:
    """Design 5, fail closed: it is said again to a process that can."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster["a"].auto = False
    play.boss.write("presence", status="busy")
    play.run(LIMITS.presence_stored_ms)
    play.cluster["a"].fail_commit(final=True)
    play.cluster["a"].auto = True
    say(play, dispatch_id, "gone")
    answer = play.report(dispatch_id, ms=LIMITS.receipt_wait_ms)
    assert answer["state"] == "stored"
    play.cluster.crash("a")
    play.boss = play.back(play.boss)
    play.run(2 * MINUTE_MS)
    assert play.states() == ("completed", ["completed"])


def test_what_was_said_before_says_nothing_now() -> None:
    """12.11: whatever comes twice, or late, changes nothing that is further."""
    play = Between()
    play.begin("one", "two")
    dispatch_id = play.take()
    for state in ("busy", "free", "refused", "unreachable", "stored"):
        say(play, dispatch_id, state)
    say(play, dispatch_id, "lost", reason="it was purged")
    assert play.states() == ("active", ["awaiting_result", "pending"])
    play.report(dispatch_id)
    for state in ("refused", "unknown", "gone", "stored"):
        say(play, dispatch_id, state)
    assert play.states() == ("active", ["completed", "dispatching"])
    say(play, "made-up", "refused")
    say(play, "made-up", "gone")
    assert play.states() == ("active", ["completed", "dispatching"])


def test_a_report_that_waits_for_evidence_is_decided_about_by_its_own_rule() -> None:
    """12.5.1: whatever becomes of the session, or of what its broker knows."""
    play = Between(features=TODO_WORKER)
    play.begin(gated(requireCompleted=True))
    dispatch_id = play.take()
    play.report(dispatch_id)
    for state in ("gone", "unknown"):
        say(play, dispatch_id, state)
    assert play.states() == ("active", ["awaiting_result"])
    play.worker.write("unregister")
    play.run(LIMITS.flow_todo_gate_ms)
    assert "nothing else came in time" in play.flow()["dispatch"]["reason"]


def test_what_a_paused_flow_was_refused_counts_when_it_goes_on() -> None:
    """12.3.3: a flow that is halted makes no vain attempts."""
    play = Between()
    play.cluster.nodes["b"].is_cut = True
    play.worker.write("unregister")
    play.begin("one")
    play.control("pause")
    play.cluster.nodes["b"].is_cut = False
    play.run(MINUTE_MS)
    flow = play.flow()["flow"]
    assert (flow["state"], flow["steps"][0]["state"], flow.get("admitAttempts", 0)) == ("paused", "pending", 0)


def test_a_broker_that_does_not_know_it_any_more_makes_it_ambiguous() -> None:
    """12.11.7."""
    play = Between()
    play.begin("one")
    say(play, attempt(play), "unknown")
    assert play.states() == ("active", ["ambiguous"]) and play.flow()["dispatch"]["reason"] == NOT_KNOWN


def test_a_broker_that_is_in_no_cluster_any_more_says_so() -> None:
    """12.11: the setting was taken out while a step was under way elsewhere."""
    play = Between()
    play.begin("one")
    play.take()
    a = play.cluster["a"]
    a.kwargs["cluster"] = None
    a.crash()
    play.boss = play.back(play.boss)
    a.pass_time(PASS)
    asked = play.write(play.boss, "flow_status", flowId="f")
    flow = play.answer(play.boss, asked)
    assert (flow["dispatch"]["outcome"], flow["dispatch"]["reason"]) == ("ambiguous", NO_CLUSTER)


def test_a_session_of_another_group_is_named_truly() -> None:
    """12.3.2: in the group of the flow."""
    play = Between()
    far = play.work_as("b", "far")
    far.write("presence", group="secret")
    play.run(LIMITS.announce_ms)
    play.begin("one", target=f"session:{far.id}")
    assert play.flow()["flow"]["lastAdmitReason"] == f"session {far.id} is not in group default"


def test_a_report_that_breaks_a_rule_is_refused_with_it() -> None:
    """12.6.1: whatever the broker of the worker let through; the step waits for one that breaks none."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    letter = ReportLetter(dispatch_id, "completed", " ", (), "v", play.worker.id)
    number = len(play.cluster.posts)
    post = Post(number, IDS["a"], REPORT, dispatch_id, "brought", encode(letter))
    play.cluster.post(play.cluster.nodes["b"], post)
    play.run()
    [said] = [decode(post.body, type=ReportedLetter) for post in play.cluster.posts[number:] if post.kind == REPORTED]
    assert (said.dispatch_id, said.code, said.step_state) == (dispatch_id, "invalid_flow", None)
    assert play.states() == ("active", ["awaiting_result"])
    assert play.report(dispatch_id)["stepState"] == "completed"
