"""Follow flows: who is told what, live, in a snapshot and from the journal (protocol 12.9)."""

from __future__ import annotations

from typing import Any

from tests.core.flow_play import COORDINATOR, WORKER, Play
from tests.core.mail import Agent, enter

EVENTS = [
    "flow.started",
    "dispatch.prepared",
    "flow.dispatch_admitted",
    "dispatch.published",
    "dispatch.accepted",
    "flow.dispatch_accepted",
    "work.reported_completed",
    "dispatch.completed",
    "flow.dispatch_completed",
]


def watcher(play: Play, name: str = "watcher", **more: Any) -> Agent:
    return enter(play.world, name, features=(*COORDINATOR, "watch"), **more)


def told(session: Agent) -> list[dict[str, Any]]:
    return [frame["event"] for frame in session.got() if frame["type"] == "watch_event"]


def test_a_flow_is_followed_from_how_it_is() -> None:
    """FE 2.9, P11: a snapshot, then everything behind it, once committed."""
    play = Play()
    play.create("f", "one")
    boss = watcher(play)
    play.ask("watch", by=boss, of=[{"flowId": "f"}])
    play.kept.clear()
    boss.got()
    play.ask("flow_start", flowId="f")
    play.report(play.take())
    events = told(boss)
    assert [event["kind"] for event in events] == EVENTS
    assert events[-1]["about"] == {"flowId": "f"}
    assert events[-1]["detail"]["state"] == "completed"
    dispatch = next(event for event in events if event["kind"] == "dispatch.accepted")
    assert dispatch["about"].keys() == {"flowId", "dispatchId", "stepId", "sessionId"}
    assert "do one" not in str(events) and "done" not in str(events), "no text of prompt or summary"


def test_the_snapshot_and_the_journal_tell_the_same() -> None:
    """P11."""
    play = Play()
    play.create("f", "one")
    boss = watcher(play)
    snapshot = play.ask("watch", by=boss, of=[{"flowId": "f"}])
    assert [state["state"] for state in snapshot["snapshot"]] == ["draft"]
    play.ask("flow_start", flowId="f")
    play.report(play.take())
    play.kept.clear()
    live = told(boss)
    play.ask("watch", by=boss, of=[{"flowId": "f"}], afterSeq=snapshot["seq"])
    again = [frame["event"] for frame in play.kept.pop(boss.conn) if frame["type"] == "watch_event"] + told(boss)
    assert again == live


def test_whoever_is_in_another_group_follows_nothing() -> None:
    """FE 2.7."""
    play = Play()
    play.create("f", "one")
    stranger = watcher(play, "stranger", info={"group": "far"})
    assert play.ask("watch", by=stranger, of=[{"flowId": "f"}])["code"] == "not_allowed"


def test_a_worker_hears_of_its_own_attempts() -> None:
    """Contract of watches: who is one of the keys may see it."""
    play = Play()
    worker = enter(play.world, "far worker", features=(*WORKER, "watch"))
    play.ask("watch", by=worker, of=[{"sessionId": worker.id}])
    play.begin("f", "one", target="far worker")
    kinds = [event["kind"] for event in told(worker)]
    assert "dispatch.published" in kinds and "flow.started" not in kinds
