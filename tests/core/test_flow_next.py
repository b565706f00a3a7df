"""Follow literally what is said may be done next, in every state of a flow (design section 9; FE 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intercom.core.flow_tables import FLOW
from intercom.limits import Limits
from tests.core.flow_play import Play
from tests.core.harness import World

LIMITS = Limits()
FEW = Limits(flow_attempts=2, flow_steps=3, flows=2)


def draft() -> Play:
    play = Play()
    play.create()
    return play


def full_draft() -> Play:
    play = Play(World(limits=FEW))
    play.create("f", "one", "two", "three")
    return play


def waits_for_its_target() -> Play:
    play = Play()
    play.begin(target="nobody")
    return play


def waits_for_another_flow() -> Play:
    play = Play()
    play.begin("other")
    play.begin()
    return play


def on_its_way() -> Play:
    play = Play()
    play.begin()
    return play


def at_work() -> Play:
    play = on_its_way()
    play.take()
    return play


def away() -> Play:
    play = at_work()
    play.worker.leave()
    return play


def failed_step() -> Play:
    play = on_its_way()
    play.report(play.take(), "failed")
    return play


def ambiguous_step() -> Play:
    play = on_its_way()
    play.take()
    play.worker.write("unregister")
    return play


def tried_too_often() -> Play:
    play = Play(World(limits=FEW))
    play.begin()
    play.report(play.take(), "failed")
    play.ask("flow_retry", flowId="f", stepId="one", reason="again")
    play.report(play.take(), "failed")
    return play


def paused_between() -> Play:
    play = on_its_way()
    dispatch_id = play.take()
    play.ask("flow_pause", flowId="f")
    play.report(dispatch_id)
    return play


def paused_at_work() -> Play:
    play = at_work()
    play.ask("flow_pause", flowId="f")
    return play


def paused_and_failed() -> Play:
    play = failed_step()
    play.ask("flow_pause", flowId="f")
    return play


def completed() -> Play:
    play = Play()
    play.begin("f", "one")
    play.report(play.take())
    return play


def cancelled() -> Play:
    play = at_work()
    play.ask("flow_cancel", flowId="f", reason="enough")
    return play


def failed() -> Play:
    play = waits_for_its_target()
    play.world.pass_time(60_000)
    return play


def failed_long_ago() -> Play:
    play = waits_for_its_target()
    play.world.pass_time(LIMITS.bodies_kept_ms + LIMITS.tidy_ms + 60_000)
    return play


def failed_and_purged() -> Play:
    play = failed()
    play.ask("purge", by=play.person())
    return play


def failed_without_room() -> Play:
    play = Play(World(limits=FEW))
    play.begin(target="nobody")
    play.world.pass_time(60_000)
    play.create("g")
    play.create("h")
    return play


def rebuilt(play: Play) -> Play:
    """Lose the texts, as a store does that was built again from its journal."""
    play.world.disk.bodies.clear()
    play.restart()
    play.boss = play.back(play.boss)
    return play


def rebuilt_draft() -> Play:
    return rebuilt(draft())


def rebuilt_and_active() -> Play:
    return rebuilt(on_its_way())


def rebuilt_and_paused() -> Play:
    return rebuilt(paused_between())


def rebuilt_and_failed_step() -> Play:
    return rebuilt(failed_step())


EXPECTED: dict[Callable[[], Play], list[str]] = {
    draft: ["start", "append", "cancel"],
    full_draft: ["start", "cancel"],
    waits_for_its_target: ["pause", "append", "cancel"],
    waits_for_another_flow: ["pause", "append", "cancel"],
    on_its_way: ["pause", "append", "cancel"],
    at_work: ["pause", "append", "cancel"],
    away: ["pause", "append", "cancel"],
    failed_step: ["pause", "retry one", "append", "cancel"],
    ambiguous_step: ["pause", "retry one", "append", "cancel"],
    tried_too_often: ["pause", "append", "cancel"],
    paused_between: ["resume", "append", "cancel"],
    paused_at_work: ["resume", "append", "cancel"],
    paused_and_failed: ["resume", "retry one", "append", "cancel"],
    completed: [],
    cancelled: [],
    failed: ["resume"],
    failed_long_ago: [],
    failed_and_purged: [],
    failed_without_room: [],
    rebuilt_draft: ["append", "cancel"],
    rebuilt_and_active: ["pause", "append", "cancel"],
    rebuilt_and_paused: ["append", "cancel"],
    rebuilt_and_failed_step: ["pause", "append", "cancel"],
}
STATES = pytest.mark.parametrize("begin", EXPECTED, ids=lambda begin: begin.__name__)


def follow(play: Play, action: str, *, by_key: bool = False) -> dict[str, Any]:
    """Do what an action says."""
    verb, _, step = action.partition(" ")
    last = play.flow()["flow"]["steps"][-1]["stepId"]
    more: dict[str, Any] = {
        "retry": {"stepId": step, "reason": "again"},
        "append": {"afterStepId": last, "steps": [{"stepId": "more", "prompt": "p"}]},
        "cancel": {"reason": "enough"},
    }.get(verb, {})
    return play.ask(f"flow_{verb}", flowId="f", **more)


@STATES
def test_what_may_be_done_next_is_done(begin: Callable[[], Play]) -> None:
    """Design section 9: each works as it stands."""
    assert begin().flow()["flow"]["nextActions"] == EXPECTED[begin]
    for action in EXPECTED[begin]:
        play = begin()
        assert play.flow()["flow"]["nextActions"] == EXPECTED[begin]
        answer = follow(play, action)
        assert answer["type"] == "flow", (action, answer)
        told = answer["flow"]["nextActions"]
        assert told == play.flow()["flow"]["nextActions"], "the answer to a change offers what its status offers"


@STATES
def test_what_is_not_offered_is_refused(begin: Callable[[], Play]) -> None:
    """FE 2.3: any other action is refused and changes nothing."""
    offered = {action.partition(" ")[0] for action in EXPECTED[begin]}
    for verb in sorted({"start", "pause", "resume", "retry", "append", "cancel"} - offered):
        play = begin()
        before = play.flow()["flow"]
        answer = follow(play, f"{verb} one")
        assert answer["type"] == "request_failed", (verb, answer)
        assert answer["code"] in ("flow_conflict", "step_attempt_limit", "flow_limit")
        assert play.flow()["flow"] == before


@STATES
def test_who_is_waited_for_is_who_can_do_something(begin: Callable[[], Play]) -> None:
    """Issue: what it waits for is true: nobody is asked for what would be refused."""
    flow = begin().flow()["flow"]
    waits = flow.get("waiting", {}).get("what", "")
    assert bool(waits) == (flow["state"] in ("draft", "active", "paused"))
    actions = {action.partition(" ")[0] for action in flow["nextActions"]}
    for verb in ("start", "retry", "resume", "cancel"):
        if f"somebody to {verb}" in waits:
            assert verb in actions, waits


def test_every_state_is_looked_at() -> None:
    states = {begin().flow()["flow"]["state"] for begin in EXPECTED}
    assert states == {state for state, _ in FLOW.moves} | set(FLOW.moves.values())


def test_a_text_that_is_lost_ends_the_waiting_for_it() -> None:
    """Design section 5: rebuilding restores states, not bodies."""
    play = rebuilt_and_paused()
    flow = play.flow()["flow"]
    assert flow["waiting"]["what"] == "somebody to cancel it, for the text of step two is lost"
    refused = play.ask("flow_resume", flowId="f")
    assert refused["reason"] == "The text of step two is lost, so the flow cannot go on"
