"""Test whose turn it is at a worker that flows of several brokers want (protocol 12.11.3)."""

from __future__ import annotations

from intercom.limits import MINUTE_MS, Limits
from tests.core.flows_between import Between

LIMITS = Limits()


def busy(names: str = "abc") -> tuple[Between, str]:
    """Return a worker that has a step of its own broker's flow, which a third flow there waits behind."""
    play = Between(names)
    own = play.coordinator("b", "own")
    play.begin("one", flow_id="own-1", by=own)
    dispatch_id = play.take()
    play.begin("one", flow_id="own-2", by=own)
    return play, dispatch_id


def test_who_came_first_comes_next() -> None:
    """12.11.3: a flow at home that found the worker busy is in line as well."""
    play, first = busy()
    play.begin("one", flow_id="fa")
    play.begin("one", flow_id="fc", by=play.coordinator("c", "third"))
    order = []
    dispatch_id = first
    for _ in range(3):
        play.report(dispatch_id)
        play.run(MINUTE_MS)
        (frame,) = play.dispatches()
        play.worker.confirm(frame["message"]["id"])
        order.append(frame["message"]["flowDispatch"]["flowId"])
        dispatch_id = frame["message"]["flowDispatch"]["dispatchId"]
    assert order == ["own-2", "fa", "fc"]


def test_a_worker_that_ends_is_waited_for_by_nobody() -> None:
    """12.11.2: who waited asks again, and hears that it is gone."""
    play, _ = busy()
    play.begin("one", flow_id="fa")
    assert play.flow("fa")["dispatch"]["transport"] == "prepared"
    play.worker.write("unregister")
    play.run(MINUTE_MS)
    flow = play.flow("fa")["flow"]
    assert (flow["state"], flow["steps"][0]["attempts"]) == ("failed", [])


def test_a_flow_that_is_cancelled_waits_no_more() -> None:
    """12.11.6: its turn goes to the next one, without a pause for it."""
    play, first = busy()
    play.begin("one", flow_id="fa")
    play.begin("one", flow_id="fc", by=play.coordinator("c", "third"))
    play.control("cancel", flow_id="fa", reason="enough")
    play.report(first)
    play.report(play.take())
    (frame,) = play.dispatches()
    assert frame["message"]["flowDispatch"]["flowId"] == "fc"


def test_a_flow_says_for_whom_it_waits() -> None:
    """12.3.4: the step that is under way is of a flow on another machine."""
    play = Between()
    own = play.coordinator("b", "own")
    play.begin("one", flow_id="fa")
    play.take()
    play.begin("one", flow_id="own-1", by=own)
    waiting = play.flow("own-1", own)["flow"]["waiting"]["what"]
    assert waiting == "worker to end a step of a flow on another machine"


def test_a_turn_that_is_kept_for_a_flow_that_is_over_passes_on() -> None:
    """12.11.3: after the time in which it would have come."""
    play, first = busy()
    play.begin("one", flow_id="fa")
    play.ask(play.coordinator("b", "other"), "flow_cancel", flowId="own-2", reason="enough")
    play.report(first)
    assert play.dispatches() == []
    play.run(LIMITS.receipt_wait_ms)
    (frame,) = play.dispatches()
    assert frame["message"]["flowDispatch"]["flowId"] == "fa"
