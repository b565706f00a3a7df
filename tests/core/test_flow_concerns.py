"""Follow flows: who is told what, live, in a snapshot and from the journal (protocol 12.9)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.flow_admission import Admission
from intercom.core.watches import Watches
from intercom.limits import Limits
from tests.core.flow_play import COORDINATOR, TODO_WORKER, WORKER, Play, gated, todo
from tests.core.harness import World
from tests.core.mail import Agent, enter
from tests.core.test_flow_reconcile import PASS, passes

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
    return [event for event in everything(session) if event.get("kept", True)]


def everything(session: Agent) -> list[dict[str, Any]]:
    """Return what a session was told, that which no journal keeps included."""
    return [frame["event"] for frame in session.got() if frame["type"] == "watch_event"]


def mentioned(session: Agent) -> list[tuple[str, dict[str, Any]]]:
    """Return what it was told that no journal keeps."""
    return [(event["kind"], event.get("detail", {})) for event in everything(session) if not event.get("kept", True)]


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


def follows(play: Play, *, of: str = "f") -> Agent:
    """Return a coordinator that follows a flow, and has read what it was told."""
    boss = watcher(play)
    assert play.ask("watch", by=boss, of=[{"flowId": of}])["type"] == "watching"
    play.kept.clear()
    boss.got()
    return boss


def test_a_look_that_did_something_is_told_and_kept_nowhere() -> None:
    """FE 2.9: reconcile_start, what was recorded, reconcile_finish, in this order."""
    play = Play()
    play.create("f", "one", target="nobody")
    boss = follows(play)
    play.ask("flow_start", flowId="f")
    assert [event["kind"] for event in everything(boss)] == [
        "flow.started",
        "reconcile_start",
        "flow.admission_deferred",
        "reconcile_finish",
    ]
    play.world.pass_time(PASS)
    events = everything(boss)
    assert [event["kind"] for event in events] == ["reconcile_start", "flow.admission_deferred", "reconcile_finish"]
    assert events[0]["about"] == {"flowId": "f"}
    assert events[0]["detail"] == events[2]["detail"]
    assert "reconcile" not in str([event.kind for event in play.world.disk.journal])


def test_a_look_that_did_nothing_is_not_told() -> None:
    """FE 2.4: there is one every two seconds, and nobody wants to read that."""
    play = Play()
    play.begin("f", "one")
    play.take()
    boss = follows(play)
    journal = len(play.world.disk.journal)
    before = passes(play)
    play.world.pass_time(100 * PASS)
    assert passes(play) >= before + 100
    assert everything(boss) == []
    assert len(play.world.disk.journal) == journal


def test_a_look_tells_which_attempt_it_is_about() -> None:
    """FE 2.9: each with flowId, dispatchId, detail."""
    play = Play()
    play.begin("f", {"stepId": "one", "prompt": "p", "reportTimeoutMs": 10_000})
    dispatch_id = play.take()
    boss = follows(play)
    play.world.pass_time(10_000)
    events = [event for event in everything(boss) if not event.get("kept", True)]
    assert [event["kind"] for event in events] == ["reconcile_start", "reconcile_finish"]
    assert all(event["about"] == {"flowId": "f", "dispatchId": dispatch_id, "stepId": "one"} for event in events)


def test_what_nobody_follows_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of watches: without followers nothing is even made; who follows another flow hears nothing of this one."""
    play = Play()
    play.create("g")
    made: list[str] = []
    honest = Watches.mention

    def seen(self: Watches, kind: str, *rest: Any) -> None:
        made.append(kind)
        honest(self, kind, *rest)

    monkeypatch.setattr(Watches, "mention", seen)
    play.begin("f", "one")
    play.take()
    assert made == []
    boss = follows(play, of="g")
    play.begin("h", "one", target="nobody")
    assert everything(boss) == []


def test_an_attempt_without_a_question_is_diagnosed() -> None:
    """FE 2.2: a dispatch that goes out uncorrelated is told, once it is recorded."""
    play = Play()
    play.create("f", "one", "two")
    boss = follows(play)
    play.ask("flow_start", flowId="f")
    ((kind, detail),) = [each for each in mentioned(boss) if not each[0].startswith("reconcile")]
    assert (kind, "no question" in detail["reason"]) == ("diagnostic", True)
    dispatch_id = play.take()
    play.boss.ask("worker", "q")
    play.worker.confirm("q")
    play.report(dispatch_id)
    assert not [each for each in mentioned(boss) if each[0] == "diagnostic"], "one question is one"


def test_a_fault_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 2.9: whoever follows the flow hears of it, not only the log."""
    play = Play()
    play.create("f", "one")
    boss = follows(play)

    def faulty(*arguments: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Admission, "admit", faulty)
    play.ask("flow_start", flowId="f")
    assert ("diagnostic", {"reason": "a fault of the broker: RuntimeError: broken"}) in mentioned(boss)


def test_what_is_not_kept_moves_no_position() -> None:
    """P11: a watch goes on from the sequence it was told, and misses nothing kept."""
    play = Play()
    play.create("f", "one", target="nobody")
    boss = follows(play)
    play.ask("flow_start", flowId="f")
    frames = [frame for frame in boss.got() if frame["type"] == "watch_event"]
    sequences = [frame["seq"] for frame in frames]
    assert sequences == sorted(sequences)
    kept = {frame["event"]["kind"]: frame["seq"] for frame in frames if frame["event"].get("kept", True)}
    assert sequences[-1] == kept["flow.admission_deferred"]


def events_of(play: Play, dispatch_id: str) -> list[str]:
    """Return the kinds of the events of an attempt."""
    return [event.kind for event in play.world.disk.journal if event.stream == f"dispatch:{dispatch_id}"]


def test_what_a_binding_becomes_is_told() -> None:
    """FE 2.9: capabilities_recorded, binding_recorded."""
    play = Play(features=TODO_WORKER)
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    play.report(dispatch_id, **todo("in_progress"))
    play.report(dispatch_id, **todo())
    assert events_of(play, dispatch_id) == [
        "dispatch.prepared",
        "dispatch.capabilities_recorded",
        "dispatch.binding_recorded",
        "dispatch.published",
        "dispatch.accepted",
        "work.reported_completed",
        "dispatch.binding_recorded",
        "work.reported_completed",
        "dispatch.binding_recorded",
        "dispatch.binding_recorded",
        "dispatch.completed",
    ]
    states = [event.detail["binding"] for event in play.world.disk.journal if event.kind == "dispatch.binding_recorded"]
    assert states == ["pending", "bound", "bound", "completed"]


def test_a_worker_without_a_list_is_told_apart() -> None:
    """A2.8: not negotiated."""
    play = Play()
    play.begin("f", gated(requireCompleted=True))
    dispatch_id = play.take()
    assert events_of(play, dispatch_id)[:3] == [
        "dispatch.prepared",
        "dispatch.capabilities_recorded",
        "dispatch.published",
    ]


def test_an_end_without_a_report_is_an_event_of_its_own() -> None:
    """FE 2.9: generic_end_observed, ended_unreported."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    play.worker.write("presence", replyCapability="terminal")
    play.world.pass_time(5_000)
    assert events_of(play, dispatch_id)[-3:] == [
        "work.generic_end_observed",
        "work.ended_unreported",
        "dispatch.ambiguous",
    ]


def test_a_message_that_was_given_up_is_an_event_of_its_own() -> None:
    """FE 2.9: rejected."""
    play = Play(World(limits=Limits(mail_ttl_ms=30_000)))
    play.begin("f", "one")
    dispatch_id = play.flow()["dispatch"]["dispatchId"]
    play.worker.leave()
    play.world.pass_time(30_000)
    assert events_of(play, dispatch_id)[-2:] == ["dispatch.rejected", "dispatch.ambiguous"]


def test_who_reads_slowly_misses_what_no_journal_keeps_and_nothing_else() -> None:
    """FE 2.9, protocol 5.66: a mention is not worth the end of a watch"""
    play = Play(World(limits=Limits(watch_unsent_frames=1)))
    play.create("f", "one")
    boss = follows(play)
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.world.commit()
    play.world.take()
    assert [event["kind"] for event in everything(boss)] == ["flow.started"]
    play.world.deaf.add(boss.conn)
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.world.reads, "a look that did something"
    play.world.deaf.clear()
    play.world.take()
    assert [event["kind"] for event in everything(boss)] == ["reconcile_start"]
