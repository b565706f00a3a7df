"""Judge reports by their gates, row by row (FE 2.4, protocol 12.6)."""

from __future__ import annotations

import pytest

from intercom.core.flow_records import BindingRecord, DispatchRecord, GatesRecord, ReportRecord, TargetIdentity
from intercom.core.flow_settling import binding_after, judge
from intercom.limits import Limits
from tests.core.flow_play import TODO_WORKER, WORKER, Play, gated
from tests.core.mail import holder
from tests.core.test_flow_reconcile import PASS

REQUIRE = GatesRecord(require_completed=True)
CONFLICT = GatesRecord(conflict_check=True)
BOTH = GatesRecord(require_completed=True, conflict_check=True)
NEITHER = GatesRecord("a label")


def reported(outcome: str, status: str | None, *, is_bound: bool) -> DispatchRecord:
    """Return an attempt with a report that says so of its to-do item; None: it says nothing."""
    report = ReportRecord(outcome, 1, "x", 1, None if status is None else "t", status)
    binding = BindingRecord("bound" if status else "pending", None if status is None else "t", status)
    return DispatchRecord(
        number=1,
        dispatch_id="d",
        flow_id="f",
        step_id="s",
        group="g",
        revision=1,
        identity=TargetIdentity("b", "s", "i"),
        created_at=1,
        negotiated=is_bound,
        report=report,
        binding=binding if is_bound else None,
    )


@pytest.mark.parametrize(
    ("gates", "is_bound", "outcome", "status", "end"),
    [
        (None, False, "completed", None, "completed"),
        (None, False, "completed", "completed", "ambiguous"),
        (None, False, "failed", "completed", "ambiguous"),
        (None, False, "failed", None, "failed"),
        (BOTH, False, "completed", None, "completed"),
        (BOTH, False, "completed", "in_progress", "ambiguous"),
        (NEITHER, True, "completed", None, "completed"),
        (NEITHER, True, "completed", "in_progress", "completed"),
        (REQUIRE, True, "completed", None, None),
        (CONFLICT, True, "completed", None, None),
        (REQUIRE, True, "completed", "in_progress", None),
        (REQUIRE, True, "completed", "blocked", None),
        (REQUIRE, True, "completed", "completed", "completed"),
        (CONFLICT, True, "completed", "pending", "ambiguous"),
        (CONFLICT, True, "completed", "failed", "ambiguous"),
        (CONFLICT, True, "completed", "completed", "completed"),
        (BOTH, True, "completed", "in_progress", "ambiguous"),
        (BOTH, True, "completed", "completed", "completed"),
        (BOTH, True, "failed", None, "failed"),
        (BOTH, True, "failed", "in_progress", "failed"),
    ],
)
def test_a_row_of_the_table(
    gates: GatesRecord | None, is_bound: bool, outcome: str, status: str | None, end: str | None
) -> None:
    """FE 2.4, gates, with design section 7: evidence without a binding makes a failed report ambiguous, too."""
    found, reason = judge(reported(outcome, status, is_bound=is_bound), gates)
    assert found == end
    assert (reason is None) == (end == "completed")


@pytest.mark.parametrize(
    ("status", "outcome", "state"),
    [
        (None, "completed", "pending"),
        (None, "ambiguous", "ambiguous"),
        (None, "retired", "ambiguous"),
        ("completed", "completed", "completed"),
        ("in_progress", "completed", "bound"),
        ("blocked", "failed", "failed"),
        ("completed", "ambiguous", "ambiguous"),
    ],
)
def test_what_becomes_of_a_binding(status: str | None, outcome: str, state: str) -> None:
    """FE 2.3, todo binding."""
    after = binding_after(reported("completed", status, is_bound=True), outcome, "because")
    assert after is not None and after.state == state


def test_a_retry_ends_the_binding_of_an_attempt_that_failed_without_a_word_of_its_item() -> None:
    """protocol 12.6: nobody will say any more what became of the item"""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    play.report(play.take(), "failed")
    assert play.ask("flow_retry", flowId="f", stepId="one", reason="again")["type"] == "flow"
    [first, *_] = sorted(play.world.disk.dispatches.values(), key=lambda record: record.number)
    assert first.binding is not None
    assert (first.binding.state, first.binding.reason) == ("ambiguous", "retried: again")


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_worker_that_leaves_after_another_sign_of_its_end_is_still_waited_for(is_confirmed: bool) -> None:
    """A2.7, A2.12: the first sign counts; what was not confirmed is withdrawn, so that nobody else does it"""
    play = Play()
    desk = holder(play.world, "desk", features=WORKER)
    play.begin("f", "one", target="desk")
    if is_confirmed:
        play.take(desk)
    desk.write("presence", replyCapability="terminal")
    play.world.pass_time(PASS)
    evidence = play.flow()["dispatch"]["evidence"]
    desk.write("unregister")
    play.world.pass_time(0)
    assert play.flow()["dispatch"]["evidence"] == evidence
    assert play.world.disk.mail == {}
    play.world.pass_time(Limits().flow_end_grace_ms)
    assert play.states() == ("active", ["ambiguous"])
