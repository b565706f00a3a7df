"""Test that steps and reports on their way to other brokers are shown, and hurried (protocol 4.150 to 4.152)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.cluster import IDS
from tests.core.flows_between import Between
from tests.core.mail import operator


@pytest.mark.parametrize("kind", ["step", "report"])
def test_what_is_on_its_way_is_listed_hurried_and_not_given_up(kind: str) -> None:
    """FE 3.2 and 3.11: depth, age and entries say the same; a flow is ended by its own request."""
    play = Between()
    here, other = ("a", "b") if kind == "step" else ("b", "a")
    if kind == "step":
        play.cluster.nodes["b"].is_cut = True
        play.begin("one")
        dispatch_id = play.flow()["dispatch"]["dispatchId"]
    else:
        play.begin("one")
        dispatch_id = play.take()
        play.cluster.nodes["a"].is_cut = True
        play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done")
        play.run()
    play.cluster.nodes[other].queue.clear()
    person = operator(play.cluster[here])

    def listed() -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = play.ask(person, "outbox_list")["entries"]
        return entries

    (entry,) = listed()
    delivery_id = f"flow-{'dispatch' if kind == 'step' else 'report'}/{dispatch_id}"
    shown = {key: entry[key] for key in ("deliveryId", "messageId", "kind", "status", "peer", "node", "attempts")}
    named = {"deliveryId": delivery_id, "messageId": delivery_id, "kind": kind, "status": "posted"}
    assert shown == {**named, "peer": IDS[other], "node": other, "attempts": 1}
    assert entry["target"] == ("worker" if kind == "step" else "flow f")
    assert play.ask(person, "broker_status")["report"]["multiNode"]["outbox"] == 1
    refused = play.ask(person, "outbox_cancel", deliveryId=delivery_id)
    assert refused["code"] == "not_a_message" and "`intercom flow cancel f`" in refused["reason"]
    play.cluster.nodes[other].is_cut = False
    assert play.ask(person, "outbox_retry", deliveryId=delivery_id)["type"] == "outbox_changed"
    play.run()
    assert listed() == []
    if kind == "step":
        play.report(play.take())
    assert play.states() == ("completed", ["completed"])


def test_a_step_of_an_earlier_process_waits_as_well() -> None:
    """12.11.1: what nobody looked at yet since the start is on its way, not lost."""
    play = Between()
    play.cluster.nodes["b"].is_cut = True
    play.begin("one")
    play.cluster.nodes["a"].world.crash()
    world = play.cluster["a"]
    assert world.broker._meshing is not None
    (entry,) = world.broker._meshing.steps_on_their_way()
    assert (entry.kind, entry.flow_id, entry.attempts) == ("step", "f", 0)
