"""Own runs without a broker: announced, asked, refused, and announced again."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.client.feeds import SessionEvent
from intercom.client.owning import Run, ask_host
from intercom.client.queueing import Asked, Reached, StageAnswer, StageRequest
from intercom.client.session import HostAsked
from intercom.errors import RunRefused, UsageError
from intercom.limits import STAGE_REQUESTS
from intercom.wire import reasons
from tests.support.client import PEER, Frame, Rig
from tests.support.hosting import GROUP, NESTED, ROOT, Host, acknowledge, announcing, host, owned, run_of


def refuse(rig: Rig, reason: str = reasons.ROUTE_NOT_AUTHORIZED) -> None:
    rig.feed({"type": "registration_failed", "reason": reason})
    assert rig.is_broken
    rig.lose()


def ask(rig: Rig, run_id: str = ROOT, message_id: str = "w1", **members: Any) -> list[Frame]:
    message = {"id": message_id, "timestamp": 11, "content": {"text": "first"}, **members}
    frame = {"type": "pending_stage_message", "requestId": f"x-{message_id}", "from": PEER, "runId": run_id}
    return rig.feed({**frame, "target": f"{GROUP}/a", "message": message})


def serve(rig: Rig, run: Run, queue: Host) -> list[Frame]:
    ask_host(rig.core.commitments.runs, run, queue)
    return rig.written()


def stage_ids(frame: Frame) -> list[str]:
    return [stage["stageId"] for stage in frame["stages"]]


def test_a_run_is_announced_and_asked() -> None:
    """Protocol 8.6, the host's side."""
    rig = host()
    run = run_of(rig)
    operation = announcing(rig, run, "a")
    [frame] = rig.begin(operation)
    assert (frame["type"], frame["runId"], frame["group"]) == ("register_pending_stage_route", ROOT, GROUP)
    assert (frame["capability"], stage_ids(frame), frame["possibleStages"]) == ("cap-7f", ["a"], [])
    acknowledge(rig, frame)
    assert operation.done
    assert ask(rig) == []
    assert HostAsked() in rig.events()
    [result] = serve(rig, run, queue := Host())
    assert result == {"type": "pending_stage_message_result", "requestId": "x-w1", "outcome": "queued", "position": 1}
    assert queue.kept == ["w1"]


def test_what_a_broadcast_reached_comes_in_its_place() -> None:
    """Protocol 5.23: told before anything that is asked later."""
    rig = host()
    run = owned(rig)
    told = {"runId": ROOT, "messageId": "w1", "target": f"{GROUP}/**", "deliveredTargets": [f"{GROUP}/a"]}
    rig.feed({"type": "sticky_live_delivered", **told})
    ask(rig, message_id="w2")
    assert [type(item) for item in run.waiting] == [Reached, Asked]
    serve(rig, run, queue := Host())
    assert queue.told == [("w1", (f"{GROUP}/a",))]
    rig.feed({"type": "sticky_live_delivered", **told, "runId": NESTED})
    assert rig.events().count(HostAsked()) == 2, "one for each that has a host"


def test_runs_are_announced_again_as_they_are_now() -> None:
    """After a reconnect: in the order in which they were announced, with the newest roster."""
    rig = host()
    root = owned(rig, ROOT, "a")
    owned(rig, NESTED, "b", parent=ROOT, boundary=["child-boundary"])
    operation = announcing(rig, root, "c")
    acknowledge(rig, rig.begin(operation)[0])
    rig.lose()
    first, second = rig.register()
    assert [(frame["runId"], stage_ids(frame)) for frame in (first, second)] == [(ROOT, ["c"]), (NESTED, ["b"])]
    assert second["parent"] == {"runId": ROOT, "stageKeys": ["child-boundary"]}
    assert acknowledge(rig, first) == acknowledge(rig, second) == []


def test_what_was_under_way_is_announced_once_more() -> None:
    rig = host()
    run = owned(rig, ROOT, "a")
    operation = announcing(rig, run, "b")
    rig.begin(operation)
    rig.lose()
    known, changed = rig.register()
    assert (stage_ids(known), stage_ids(changed)) == (["a"], ["b"])
    acknowledge(rig, known)
    assert not operation.done
    acknowledge(rig, changed)
    assert operation.done


def test_only_the_run_that_was_refused_is_dropped() -> None:
    """Protocol 4.14: refused and ended; the broker means the first announcement it has not answered."""
    rig = host()
    feed = rig.core.feed()
    owned(rig, ROOT, "a")
    lost = owned(rig, NESTED, "b")
    rig.lose()
    first, _ = rig.register()
    acknowledge(rig, first)
    refuse(rig)
    told = [feed.take() for _ in range(4)]
    assert SessionEvent(kind="run_lost", run_id=NESTED, reason=lost.lost) in told
    assert reasons.ROUTE_NOT_AUTHORIZED in (lost.lost or "")
    assert rig.core.recovery.at == rig.now, "at once"
    [again] = rig.register()
    assert again["runId"] == ROOT


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.ROUTE_NOT_AUTHORIZED, "run_not_authorized"),
        (reasons.INVALID_ROSTER, "invalid_roster"),
        (reasons.INVALID_POSSIBLE_ROSTER, "invalid_possible_stages"),
    ],
)
def test_a_change_that_was_refused_changes_nothing(reason: str, code: str) -> None:
    """Protocol 4.14: the reasons of 5.29; the run is announced again as it was."""
    rig = host()
    run = owned(rig, ROOT, "a")
    operation = announcing(rig, run, "b")
    rig.begin(operation)
    refuse(rig, reason)
    assert isinstance(operation.error, RunRefused)
    assert (operation.error.code, operation.error.retry, bool(operation.error.hint)) == (code, "never", True)
    [again] = rig.register()
    assert stage_ids(again) == ["a"]
    assert run.lost is None


def test_a_first_announcement_that_was_refused() -> None:
    rig = host()
    operation = announcing(rig, run_of(rig), "a")
    rig.begin(operation)
    refuse(rig)
    assert isinstance(operation.error, RunRefused)
    assert rig.register() == []


def test_others_are_not_hurt_by_a_refusal() -> None:
    """What is under way on the same connection is sent again."""
    rig = host()
    rig.begin(announcing(rig, run_of(rig), "a"))
    listing = commands.list_stages(None, now=rig.now)
    rig.begin(listing)
    refuse(rig)
    assert not listing.done
    [asked] = rig.register()
    assert asked["type"] == "list"


def test_requests_of_a_connection_that_ended_are_dropped() -> None:
    """Protocol 6.15.5: their senders were told; they come again under the same message id."""
    rig = host()
    run = owned(rig)
    ask(rig)
    item = run.waiting[0]
    assert isinstance(item, Asked)
    rig.lose()
    assert not run.waiting
    rig.register()
    rig.core.commitments.runs.answer(item, StageAnswer.queued(1))
    assert rig.written() == []


def test_a_run_that_was_taken_over() -> None:
    """Protocol 5.21 and 6.12.3."""
    rig = host()
    feed = rig.core.feed()
    run = owned(rig, dormant=True)
    ask(rig)
    rig.feed({"type": "pending_stage_route_revoked", "runId": ROOT})
    event = feed.take()
    assert event is not None
    assert (event.kind, event.run_id, event.reason) == ("run_lost", ROOT, run.lost)
    assert not run.waiting
    rig.lose()
    assert rig.register() == []
    rig.feed({"type": "pending_stage_route_revoked", "runId": ROOT})
    assert run.lost


def test_the_end_of_a_run() -> None:
    """Protocol 6.12.3: empty lists take its rows away; the route stays, so what is asked of it is refused."""
    rig = host()
    run = owned(rig, ROOT, "a")
    ask(rig)
    rig.core.commitments.runs.end(run, is_online=True)
    refused, emptied = rig.written()
    assert (refused["outcome"], emptied["stages"], emptied["possibleStages"]) == ("refused", [], [])
    assert "requestId" not in emptied
    [refused] = ask(rig, message_id="w2")
    assert refused["reason"].startswith(reasons.STAGE_REFUSED)
    rig.core.commitments.runs.end(run, is_online=True)
    assert rig.written() == []
    rig.lose()
    assert rig.register() == []


def test_a_host_that_fails_refuses() -> None:
    """The sender is not left without an answer."""
    rig = host()
    run = owned(rig)

    class Broken(Host):
        def admit(self, request: StageRequest) -> StageAnswer:
            raise OSError("the disk is full")

    ask(rig)
    with pytest.raises(OSError, match="disk"):
        serve(rig, run, Broken())
    [result] = rig.written()
    assert (result["outcome"], result["requestId"]) == ("refused", "x-w1")
    ask(rig, message_id="q1", expectsReply=True)
    with pytest.raises(UsageError, match="question"):
        serve(rig, run, Host())
    [result] = rig.written()
    assert result["outcome"] == "refused"


def test_runs_a_session_cannot_own() -> None:
    rig = host()
    owned(rig)
    for mistake in ({"run_id": ROOT}, {"run_id": "run-1"}, {"run_id": NESTED, "capability": ""}):
        with pytest.raises(UsageError):
            run_of(rig, **mistake)
    with pytest.raises(UsageError, match="home group"):
        run_of(Rig(group="default"))


def test_targets_of_a_run() -> None:
    rig = host()
    assert run_of(rig).target(["reviewer-a"]) == f"{GROUP}/reviewer-a"
    assert run_of(rig, NESTED).target(["boundary", "*"]) == f"{GROUP}/{NESTED}/boundary/*"


def test_a_capability_is_made() -> None:
    rig = host()
    assert run_of(rig, capability=None).capability != run_of(rig, NESTED, capability=None).capability


def test_an_announcement_nobody_waits_for() -> None:
    """The broker may have taken it: its rows are taken back, unless it was refused or never written."""
    rig = host()
    run = run_of(rig)
    operation = announcing(rig, run, "a")
    rig.core.commitments.runs.give_up(run, is_online=True)
    assert rig.written() == []
    [frame] = rig.begin(operation)
    rig.core.withdraw(operation, rig.now)
    rig.core.commitments.runs.give_up(run, is_online=True)
    [emptied] = rig.written()
    assert (emptied["runId"], emptied["stages"]) == (ROOT, [])
    acknowledge(rig, frame)
    rig.lose()
    assert rig.register() == []


def test_a_host_that_looks_at_nothing() -> None:
    """What waits for it is bounded; who comes too late is told."""
    rig = host()
    run = owned(rig)
    for number in range(STAGE_REQUESTS):
        assert ask(rig, message_id=f"m{number}") == []
    [refused] = ask(rig, message_id="late")
    assert (refused["outcome"], refused["reason"].startswith(reasons.STAGE_REFUSED)) == ("refused", True)
    assert len(run.waiting) == STAGE_REQUESTS
