"""Test reports at the edges of an attempt: before it is handed over, after it is over, and brought by others (12.5)."""

from __future__ import annotations

from intercom.core.records import DispatchRecord, Happened
from intercom.limits import Limits
from tests.core.flow_play import TODO_WORKER, WORKER, Play, gated, todo
from tests.core.mail import holder
from tests.core.test_flow_admission import reading


def test_a_step_that_is_not_handed_over_yet_cannot_be_reported() -> None:
    """protocol 12.5: nobody can know its dispatch"""
    play = Play()
    reading(play)
    play.world.read()
    [dispatch] = {
        change.row.dispatch_id
        for append in play.world.appends
        for change in append.changes
        if isinstance(change, Happened) and isinstance(change.row, DispatchRecord)
    }
    members = {"dispatchId": dispatch, "outcome": "completed", "summary": "done"}
    play.worker.write("flow_report", requestId="r", **members)
    play.world.auto = True
    play.world.settle()
    play.world.pass_time(0)
    came = play.worker.got()
    [refused] = [frame for frame in came if frame.get("requestId") == "r"]
    assert (refused["type"], refused["code"]) == ("request_failed", "dispatch_unknown")
    play.kept[play.worker.conn] = came
    assert play.take() == dispatch
    assert play.report(dispatch)["type"] == "flow_report_recorded"


def test_a_report_that_comes_too_late_is_noted_once() -> None:
    """A2.7: it does not move the flow, however often it comes"""
    play = Play()
    play.begin("f", "one")
    dispatch = play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(Limits().flow_end_grace_ms)
    assert play.states() == ("active", ["ambiguous"])
    assert [play.report(dispatch)["code"] for _ in range(2)] == ["dispatch_closed"] * 2
    assert [event.kind for event in play.world.disk.journal].count("dispatch.report_ignored") == 1


def test_the_same_report_may_say_nothing_new_of_its_item_once_it_was_decided() -> None:
    """protocol 12.5: what was decided rests on what was said then"""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch = play.take()
    assert play.report(dispatch, **todo())["stepState"] == "completed"
    assert play.report(dispatch, **todo())["type"] == "flow_report_recorded"
    assert play.report(dispatch, **todo(item="t2"))["code"] == "report_conflict"


def test_a_report_that_another_session_of_the_address_brings_stands_for_the_receipt() -> None:
    """protocol 12.5: a worker may have died between the work and the receipt"""
    play = Play()
    desk = holder(play.world, "desk", features=WORKER)
    play.begin("f", "one", target="desk")
    [frame] = play.dispatches(desk)
    dispatch = frame["message"]["flowDispatch"]["dispatchId"]
    command = holder(play.world, "desk", desk.registered["addressToken"], hold="none", features=WORKER)
    assert play.report(dispatch, by=command)["stepState"] == "completed"
    assert play.world.disk.mail == {}
