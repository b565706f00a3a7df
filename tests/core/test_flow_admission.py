"""Hand out steps: what may change while the text of a step is read, and who cannot be handed one (protocol 12.3)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.flow_play import Play
from tests.core.harness import World
from tests.core.mail import AGENT, enter

PASS = Limits().flow_reconcile_ms


def reading(play: Play) -> None:
    """Let a flow be started, so that the text of its step is being read."""
    play.create()
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.world.reads


def go_on(play: Play) -> None:
    play.world.auto = True
    play.world.settle()


@pytest.mark.parametrize(
    ("kind", "more", "state"), [("flow_pause", {}, "paused"), ("flow_cancel", {"reason": "enough"}, "cancelled")]
)
def test_who_stops_a_flow_while_its_text_is_read_wins(kind: str, more: dict[str, Any], state: str) -> None:
    """FE 2.4: any concurrent transition wins silently: nothing is handed out, and nothing is counted."""
    play = Play()
    reading(play)
    play.boss.write(kind, requestId="x", flowId="f", **more)
    go_on(play)
    flow = play.flow()["flow"]
    assert (flow["state"], flow.get("admitAttempts", 0)) == (state, 0)
    assert play.dispatches() == []


def test_a_target_that_is_changed_while_the_text_is_read_is_the_one_that_counts() -> None:
    """FE 2.4: guard inside the commit, the target still matches; nobody was replaced, so nothing is counted."""
    play = Play()
    other = play.work_as("other")
    reading(play)
    play.boss.write("flow_pause", requestId="p", flowId="f")
    play.boss.write("flow_resume", requestId="r", flowId="f", target="other")
    go_on(play)
    assert play.dispatches() == []
    play.report(play.take(other), by=other)
    assert play.flow()["flow"].get("admitAttempts", 0) == 0


def test_steps_put_in_before_the_next_one_are_the_next_ones() -> None:
    """FE 2.4: guard inside the commit, the step is still the next one."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    play.world.auto = False
    play.worker.write("flow_report", requestId="x", dispatchId=dispatch_id, outcome="completed", summary="done")
    play.world.commit()
    play.world.perform(play.world.broker.deadline_passed(play.world.now))
    assert play.world.reads
    play.boss.write(
        "flow_append", requestId="a", flowId="f", afterStepId="one", steps=[{"stepId": "mid", "prompt": "m"}]
    )
    go_on(play)
    (frame,) = play.dispatches()
    assert frame["message"]["flowDispatch"]["stepId"] == "mid"


def test_a_text_that_could_not_be_read_is_read_again() -> None:
    play = Play()
    reading(play)
    play.world.read(fails=True)
    go_on(play)
    assert play.dispatches() == []
    play.world.pass_time(PASS)
    play.report(play.take())


def test_a_full_mailbox_is_no_place_for_a_step() -> None:
    """protocol 12.3.2"""
    play = Play(World(limits=Limits(mailbox_entries=1)))
    play.boss.write(
        "send",
        to="worker",
        message={"id": "m", "timestamp": 1, "content": {"text": "x"}},
        attemptId="t",
        queueIfAway=True,
    )
    play.worker.leave()
    play.boss.write(
        "send", to=play.worker.id, message={"id": "n", "timestamp": 1, "content": {"text": "x"}}, attemptId="u",
        queueIfAway=True,
    )  # fmt: skip
    play.worker = play.back(play.worker)
    play.begin(target=f"session:{play.worker.id}")
    assert play.flow()["flow"]["lastAdmitReason"] == "the mailbox of worker is full"


def test_flows_that_wait_for_the_same_target_take_turns() -> None:
    """FE 2.4, round robin: whoever was served goes to the end of the line, so that none is always behind the others."""
    play = Play()
    for flow_id in "abc":
        play.begin(flow_id, "one", "two", "three")
    done = []
    for _ in range(6):
        (frame,) = play.dispatches()
        step = frame["message"]["flowDispatch"]
        done.append(step["flowId"])
        play.worker.confirm(frame["message"]["id"])
        play.report(step["dispatchId"])
    assert done == list("abcabc")


@pytest.mark.parametrize(
    ("features", "more", "reason"),
    [
        (AGENT, {}, "other cannot report: it did not ask for flow.report"),
        (
            ("push.receipts", "queue"),
            {},
            "other cannot be told from its next start: it did not ask for session.lifecycle",
        ),
    ],
    ids=["cannot report", "no lifecycle"],
)
def test_who_cannot_do_a_step_is_handed_none(features: tuple[str, ...], more: dict[str, Any], reason: str) -> None:
    """FE 2.4, admit: a live session that accepts messages and reports; the reason is said."""
    play = Play()
    enter(play.world, "other", features=features, **more)
    play.begin(target="other")
    assert play.flow()["flow"]["lastAdmitReason"] == reason


def test_who_is_there_and_who_is_not() -> None:
    """FE 2.2: one exact session or one exact name; nothing is guessed."""
    play = Play()
    twin = play.work_as("worker")
    far = play.work_as("far", info={"group": "far"})
    gone = play.work_as("gone")
    gone.write("unregister")
    away = play.work_as("away")
    away.leave()
    ended = play.work_as("ended")
    ended.write("presence", replyCapability="terminal")
    reasons = {
        "worker": "several sessions in group default are called worker; name one by its id",
        "far": "nobody in group default is called far",
        f"session:{far.id}": f"session {far.id} is not in group default",
        f"session:{gone.id}": f"session {gone.id} is closed",
        f"session:{away.id}": f"session {away.id} is reconnecting",
        f"session:{'0' * 8}-0000-4000-8000-{'0' * 12}": f"session {'0' * 8}-0000-4000-8000-{'0' * 12} is not here",
        "ended": "ended has finished and takes nothing more",
    }
    for number, (target, reason) in enumerate(reasons.items()):
        play.begin(f"f{number}", "one", target=target)
        assert play.flow(f"f{number}")["flow"]["lastAdmitReason"] == reason, target
    play.begin("exact", "one", target=f"session:{twin.id}")
    assert len(play.dispatches(twin)) == 1


def test_a_broker_that_leaves_soon_begins_nothing_not_even_what_is_read() -> None:
    """protocol 4.120: the step goes out when the next broker looks."""
    play = Play()
    reading(play)
    play.world.send(play.world.connect(), type="broker_drain", requestId="d", timeoutMs=60_000)
    go_on(play)
    assert play.states() == ("active", ["pending", "pending"])
    assert play.dispatches() == []
    play.restart()
    play.boss, play.worker = play.back(play.boss), play.back(play.worker)
    play.report(play.take())
    assert play.states() == ("active", ["completed", "dispatching"])


def test_who_takes_no_steps_is_named_with_the_reason() -> None:
    """FE 2.3: an agent of this machine that can report"""
    play = Play()
    control = enter(play.world, "ctl", features=("operator",), info={"recipientPurpose": "control"})
    play.begin("f", "one", target=f"session:{control.id}")
    assert "is an internal connection" in str(play.flow()["flow"]["waiting"])


def test_a_target_that_left_while_the_text_of_its_step_was_read_is_waited_for() -> None:
    """FE 2.4: it is looked at again before anything is recorded"""
    play = Play()
    reading(play)
    play.worker.write("unregister")
    play.world.auto = True
    play.world.settle()
    assert play.states()[1][0] == "pending" and play.world.disk.dispatches == {}
