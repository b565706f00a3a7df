"""Test that reports of steps at another broker's flow are stored, brought and answered truly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intercom.limits import MINUTE_MS, Limits
from tests.core.flow_play import TODO_WORKER, gated, todo
from tests.core.flows_between import Between
from tests.core.harness import INFO
from tests.core.mail import AGENT

LIMITS = Limits()
WAIT = LIMITS.receipt_wait_ms


def test_what_breaks_a_rule_is_refused_at_once() -> None:
    """12.1 and 12.6: nothing of it is stored or brought."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    assert play.report(dispatch_id, summary=" ")["code"] == "invalid_flow"
    assert play.posted("report") == 0


def test_a_step_that_was_not_handed_over_is_not_reported() -> None:
    """12.6.1: by whoever acts under the address of its worker."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.worker.leave()
    play.cluster.nodes["b"].is_cut = True
    play.begin("one", target=f"session:{play.worker.id}")
    play.cluster.nodes["b"].is_cut = False
    play.run()
    [record] = play.cluster["b"].disk.hosted.values()
    token = play.worker.registered["addressToken"]
    bringer = play.work_as("b", None, address={"name": "worker", "hold": "none", "token": token})
    answer = play.report(record.dispatch_id, by=bringer)
    assert answer["code"] == "dispatch_unknown" and "has not been handed over" in answer["reason"]


@pytest.mark.parametrize("is_brought", [False, True])
def test_a_report_stands_for_a_receipt(is_brought: bool) -> None:
    """12.6.1: it overtakes that, or another session brings it; the message does not come once more."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.begin("one", target=f"session:{play.worker.id}")
    (frame,) = play.dispatches()
    token = play.worker.registered["addressToken"]
    bringer = play.work_as("b", None, address={"name": "worker", "hold": "none", "token": token})
    dispatch_id = frame["message"]["flowDispatch"]["dispatchId"]
    assert play.report(dispatch_id, by=bringer if is_brought else None)["stepState"] == "completed"
    play.worker.leave()
    assert play.dispatches(play.back(play.worker)) == []


def test_an_address_that_moves_to_the_machine_of_the_flow_brings_the_report_there() -> None:
    """12.6.1: whoever acts under the address of the worker, on whatever machine that is by now."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.begin("one")
    dispatch_id = play.take()
    token = play.worker.registered["addressToken"]
    moved = play.work_as("a", "worker", address={"name": "worker", "hold": "take", "token": token})
    assert play.report(dispatch_id, by=moved, attempt=2)["stepState"] == "completed"
    play.run(MINUTE_MS)
    assert play.states() == ("completed", ["completed"])


def test_a_broker_that_does_not_answer_in_time_leaves_it_stored() -> None:
    """12.11.5: the worker hears that it is stored; the same again later is answered with what was decided."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.nodes["a"].is_cut = True
    asked = play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done")
    play.run(WAIT // 2)
    assert not play.is_answered(play.worker, asked)
    play.run(WAIT)
    assert play.answer(play.worker, asked)["state"] == "stored"
    play.cluster.nodes["a"].is_cut = False
    play.run(MINUTE_MS)
    assert play.report(dispatch_id)["stepState"] == "completed"


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_worker_that_left_meanwhile_is_told_nothing(is_cut: bool) -> None:
    """Design 4: one final answer, on the connection that asked."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.nodes["a"].is_cut = True
    play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done")
    play.worker.leave()
    play.cluster.nodes["a"].is_cut = is_cut
    play.run(WAIT)
    play.cluster.nodes["a"].is_cut = False
    play.worker = play.back(play.worker)
    play.run(MINUTE_MS)
    assert play.states() == ("completed", ["completed"])


def test_evidence_that_comes_too_late_is_refused() -> None:
    """12.6.3: what was decided rested on what the first report said."""
    play = Between(features=TODO_WORKER)
    play.begin(gated(conflictCheck=True))
    dispatch_id = play.take()
    assert play.report(dispatch_id, **todo("in_progress"))["stepState"] == "ambiguous"
    play.run()
    assert play.report(dispatch_id, **todo())["code"] == "report_conflict"
    assert play.report(dispatch_id)["stepState"] == "ambiguous"


def test_the_answer_to_an_earlier_version_says_nothing_of_the_newer() -> None:
    """12.6.3: evidence followed before the first answer came."""
    play = Between(features=TODO_WORKER)
    play.begin(gated(requireCompleted=True))
    dispatch_id = play.take()
    play.cluster.nodes["b"].is_cut = False
    play.cluster.nodes["a"].is_cut = True
    first: dict[str, Any] = {"dispatchId": dispatch_id, "outcome": "completed", "summary": "done"}
    one = play.write(play.worker, "flow_report", **first)
    two = play.write(play.worker, "flow_report", **first, **todo())
    play.cluster.nodes["a"].is_cut = False
    play.run()
    assert [play.answer(play.worker, asked)["stepState"] for asked in (one, two)] == ["completed"] * 2


@pytest.mark.parametrize("what", ["unread", "lost", "answered"])
def test_a_report_whose_text_is_read_for_another_try(what: str) -> None:
    """12.11.5: read again later; one whose text is lost may be made again; one that was answered is not brought."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.cut("b")
    assert play.report(dispatch_id)["state"] == "stored"
    b = play.cluster["b"]
    play.cluster.nodes["b"].is_cut = False
    if what == "lost":
        b.disk.bodies.clear()
    b.auto = False
    play.cluster._connect(play.cluster.nodes["b"])
    assert b.reads
    if what == "unread":
        b.read(fails=True)
    b.auto = True
    b.settle()
    play.run(MINUTE_MS)
    if what == "lost":
        assert play.states() == ("active", ["awaiting_result"])
        assert play.report(dispatch_id)["stepState"] == "completed"
    assert play.states() == ("completed", ["completed"])


def test_a_report_is_not_brought_by_a_broker_that_records_nothing() -> None:
    """Design 5, fail closed: it is brought by the next process."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.cut("b")
    play.report(dispatch_id)
    play.cluster["b"].auto = False
    play.worker.write("presence", status="busy")
    play.cluster["b"].pass_time(LIMITS.presence_stored_ms)
    play.cluster["b"].fail_commit(final=True)
    play.cluster["b"].auto = True
    play.cluster.join("b")
    play.run(MINUTE_MS)
    assert play.posted("report") == 0
    play.crash("b")
    play.run(MINUTE_MS)
    assert play.states() == ("completed", ["completed"])


def test_a_report_whose_text_is_not_recorded_yet_is_not_taken_for_lost() -> None:
    """12.11.5: it is read before its commit; it is brought once it is there, and its worker need not make it again."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    b = play.cluster["b"]
    play.cluster.cut("b")
    b.auto = False
    asked = play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done")
    play.cluster._connect(play.cluster.nodes["b"])
    assert b.reads
    b.read()
    assert not play.is_answered(play.worker, asked)
    b.auto = True
    b.settle()
    assert play.answer(play.worker, asked)["state"] == "stored"
    play.run(MINUTE_MS)
    assert play.states() == ("completed", ["completed"])


def fail_its_append(play: Between, request: Callable[[], str]) -> str:
    """Let the broker of the worker not record what a request asks for; return the id of that."""
    b = play.cluster["b"]
    b.auto = False
    asked = request()
    b.fail_commit()
    b.auto = True
    b.settle()
    return asked


@pytest.mark.parametrize("has_left", [False, True])
def test_a_report_that_could_not_be_stored_is_not_said_to_be(has_left: bool) -> None:
    """12.11.5, design 3.6: it is refused at once, and may be made again; nobody hears of it who has left."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()

    def reported() -> str:
        members = {"dispatchId": dispatch_id, "outcome": "completed", "summary": "done"}
        asked = play.write(play.worker, "flow_report", **members)
        if has_left:
            play.worker.leave()
        return asked

    asked = fail_its_append(play, reported)
    if has_left:
        play.worker = play.back(play.worker)
    else:
        answer = play.answer(play.worker, asked)
        assert (answer["code"], answer["retryable"]) == ("not_recorded", True)
    play.run(WAIT)
    assert not play.is_answered(play.worker, asked) and play.states()[1] == ["awaiting_result"]
    assert play.report(dispatch_id)["stepState"] == "completed"


def test_a_report_that_is_stored_is_brought_though_something_else_could_not_be_recorded() -> None:
    """12.11.5, design 3.6: what fails is of somebody else."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.nodes["a"].is_cut = True
    assert play.report(dispatch_id, ms=WAIT)["state"] == "stored"
    b = play.cluster["b"]
    b.auto = False
    granted = {"features": list(AGENT), "clientProtocolVersion": "1.0", "acknowledgesReceipt": True, "kind": "custom"}
    b.send(b.connect(), type="register", session={**INFO, "name": "other"}, returnAddress="other", **granted)
    assert b.appends
    asked = fail_its_append(
        play,
        lambda: play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done"),
    )
    assert not play.is_answered(play.worker, asked)
    play.cluster.nodes["a"].is_cut = False
    play.run(MINUTE_MS)
    assert play.states() == ("completed", ["completed"])
