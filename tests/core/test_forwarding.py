"""Test what has to reach another machine: A3.7 to A3.9 and the rest of FE 3.3, against a fake peer."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.forwarding import pause_ms
from intercom.core.records import Follow, Forward, Forwarded, Mirrored, PeerSeen, Recall, RemoteName, RemoteRun
from intercom.limits import Limits
from intercom.wire import notices
from tests.core.harness import World
from tests.core.invoking import invoke, invoker, kinds, run_of, snapshot
from tests.core.mail import Agent, enter, reattach
from tests.core.peers import FAR, PEER, FakePeer
from tests.core.work import ask, begin

LIMITS = Limits()


def scene(**members: Any) -> tuple[World, Agent, FakePeer]:
    """Return a world with somebody who asks, and a peer that answers for a builder and is there."""
    world = World()
    peer = FakePeer(world, **members)
    peer.come()
    return world, invoker(world), peer


def delivery_of(asker: Agent, invocation_id: str = "inv-1") -> dict[str, Any]:
    """Return how an invocation gets to the peer."""
    deliveries: list[dict[str, Any]] = snapshot(asker, invocation_id)["deliveries"]
    assert len(deliveries) == 1
    return deliveries[0]


# --- what goes well -------------------------------------------------------------------------------------


def test_an_invocation_for_another_machine_is_accepted_here_and_done_there() -> None:
    """FE 3.2, 3.3: one commit with its outbox entry; peer_acked when the peer has it; its run sets ours."""
    world, asker, peer = scene()
    answer = invoke(asker, "@builder", timeoutMs=600_000)
    assert (answer["state"], answer["targetId"], answer["run"]["placement"]) == ("queued", FAR, "outbox")
    assert delivery_of(asker)["status"] == "accepted"
    [task, follow] = peer.serve()
    assert isinstance(task, Forward) and isinstance(follow, Follow)
    assert (task.peer, task.task.target_id, task.task.asked) == (PEER, FAR, "@builder")
    assert b"build it" in task.task.message and task.task.take_until == world.wall + 600_000
    shown = delivery_of(asker)
    assert (shown["status"], shown["attempts"], shown["peerRunId"]) == ("peer_acked", 1, "run-there-1")
    peer.report(task.delivery_id, "running")
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("running", "running")
    peer.report(task.delivery_id, "waiting", summary="needs a key")
    assert (run_of(asker)["state"], run_of(asker)["summary"]) == ("waiting", "needs a key")
    peer.report(task.delivery_id, "completed", output="built")
    assert (run_of(asker)["state"], run_of(asker)["output"]) == ("completed", "built")
    assert delivery_of(asker)["status"] == "completed"


def test_nothing_is_sent_before_its_lease_is_stored() -> None:
    """FE 3.3: lease 30,000 ms stored before sending; 5.1 commit then act."""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    assert peer.serve() == [] and asker.got() == []
    world.commit(1)
    world.read()
    assert peer.serve() == [], "accepted, and its lease is not stored"
    world.commit(1)
    world.read()
    [record] = world.disk.deliveries.values()
    assert record.lease_until == world.wall + 30_000 == world.wall + LIMITS.job_lease_ms
    assert len(peer.serve()) == 1


def test_an_acceptance_that_fails_leaves_nothing_to_send() -> None:
    """design section 3.6"""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert peer.serve() == [] and world.disk.deliveries == {} and snapshot(asker)["known"] is False


# --- A3.7 -----------------------------------------------------------------------------------------------


def test_a_peer_that_is_down_delays_its_invocations_within_the_bounds() -> None:
    """A3.7: accepted -> deferred with growing nextAttemptAt inside the jitter bounds."""
    world, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    pauses = []
    for attempt in range(1, 9):
        assert len(peer.serve()) == 1
        shown = delivery_of(asker)
        assert (shown["status"], shown["attempts"]) == ("deferred", attempt)
        pauses.append(shown["nextAttemptAt"] - world.wall)
        world.pass_time(pauses[-1] - 1)
        assert peer.serve() == []
        world.pass_time(1)
    for pause, plain in zip(pauses, [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000], strict=True):
        assert max(2_000, plain * 0.75) <= pause <= plain * 1.25
    assert len(set(pauses)) > 3, "they are spread"
    assert run_of(asker)["state"] == "queued"


def test_a_peer_that_is_seen_again_is_sent_to_at_once() -> None:
    """A3.7: it comes up after 10 minutes and is seen: sent at once, and the run follows the peer's."""
    world, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    peer.serve()
    peer.go()
    world.pass_time(600_000)
    assert all(isinstance(work, Forward) for work in peer.serve())
    attempts = delivery_of(asker)["attempts"]
    assert delivery_of(asker)["nextAttemptAt"] > world.wall
    peer.come()
    [task, _] = peer.serve()
    assert isinstance(task, Forward) and task.attempt == attempts + 1
    peer.report(task.delivery_id, "completed", output="built")
    assert run_of(asker)["output"] == "built"


def test_a_peer_that_is_not_there_costs_no_attempt() -> None:
    """FE 3.3: no address known: deferred, next in 5,000 ms, no attempt counted; nothing is written meanwhile."""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    peer.go()
    world.auto = True
    world.settle()
    shown = delivery_of(asker)
    assert (shown["status"], shown["attempts"], shown["nextAttemptAt"]) == ("deferred", 0, world.wall + 5_000)
    before = len(world.disk.journal)
    world.pass_time(60_000)
    assert peer.serve() == [] and len(world.disk.journal) == before


def test_an_answer_that_never_comes_counts_as_not_reached() -> None:
    """FE 3.5: forward timeout 5,000 ms."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    world.pass_time(LIMITS.forward_ms - 1)
    assert delivery_of(asker)["status"] == "accepted"
    world.pass_time(1)
    assert (delivery_of(asker)["status"], delivery_of(asker)["failureReason"]) == ("deferred", "peer_unreachable")


# --- A3.8 -----------------------------------------------------------------------------------------------


def test_a_peer_that_stays_down_for_the_window_fails_its_invocations() -> None:
    """A3.8: down for 30 minutes: delivery failed(peer_unreachable), run failed with the attempt count."""
    world, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    began = world.wall
    while delivery_of(asker)["status"] != "failed":
        peer.serve()
        assert world.wall - began <= 1_800_000 + LIMITS.peer_retry_most_ms * 1.25
        world.pass_time(1_000)
    assert world.wall - began >= 1_800_000
    shown, run = delivery_of(asker), run_of(asker)
    assert (shown["failureReason"], run["state"]) == ("peer_unreachable", "failed")
    assert f"{shown['attempts']} attempts" in run["error"] and "seconds" in run["error"]
    assert peer.serve() == [] and peer.tasks == []


def test_a_peer_that_refuses_is_asked_once() -> None:
    """A3.8: a peer that refuses: failed(peer_rejected) after one attempt; never retried."""
    world, asker, peer = scene(refuses="target_unknown")
    invoke(asker)
    peer.serve()
    world.pass_time(3_600_000)
    peer.serve()
    assert len(peer.tasks) == 1
    assert (delivery_of(asker)["status"], delivery_of(asker)["failureReason"]) == ("failed", "peer_rejected")
    assert run_of(asker)["state"] == "failed" and "target_unknown" in run_of(asker)["error"]


def test_what_a_peer_says_after_all_undoes_an_assumed_failure_only() -> None:
    """FE 3.3: a later real update of its delivery may undo only a reconciled delivery failure."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    peer.go()
    world.pass_time(LIMITS.peer_window_ms + LIMITS.peer_retry_most_ms * 2)
    assert (run_of(asker)["state"], run_of(asker)["reconciled"]) == ("failed", True)
    [delivery_id] = peer.runs
    world.peer_told(Forwarded(delivery_id, 1, "accepted", RemoteRun("there", "running")))
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("running", "running")
    world, asker, refusing = scene(refuses="no")
    invoke(asker)
    refusing.serve()
    world.peer_told(Forwarded(refusing.tasks[0].delivery_id, 1, "accepted", RemoteRun("there", "running")))
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("failed", "failed")


def test_only_of_an_end_that_is_assumed_a_peer_that_is_seen_again_is_asked() -> None:
    """FE 3.3: a failure that the peer had said is one; one that it only assumed gives way to what it learns later."""
    world, asker, peer = scene()
    invoke(asker, invocation_id="said"), invoke(asker, invocation_id="assumed")
    peer.serve()
    for delivery_id, run, reconciled in zip(list(peer.runs), peer.runs.values(), (False, True), strict=True):
        failed = RemoteRun(run.run_id, "failed", error="no", reconciled=reconciled)
        world.peer_told(Mirrored(delivery_id, 0, 1, failed))
    peer.go()
    peer.serve()
    peer.come()
    assumed = delivery_of(asker, "assumed")["deliveryId"]
    asked = [(work.delivery_id, work.after) for work in peer.serve() if isinstance(work, Follow)]
    assert asked == [(assumed, 1)]
    world.peer_told(Mirrored(assumed, 1, 2, RemoteRun("run-there-2", "completed", output="built")))
    assert [run_of(asker, each)["state"] for each in ("said", "assumed")] == ["failed", "completed"]


# --- A3.9, 3.6: a broker that dies -----------------------------------------------------------------------


def test_a_task_the_peer_has_and_we_did_not_note_is_sent_again_and_known_there() -> None:
    """A3.9: the second forward is answered duplicate, the peer has one run, the delivery is peer_acked."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    world.start()
    peer.loses_answers = False
    peer.come()
    asker = reattach(world, asker)
    world.pass_time(0)
    peer.serve()
    assert len(peer.runs) == 1 and [task.delivery_id for task in peer.tasks] == [peer.tasks[0].delivery_id] * 2
    assert delivery_of(asker)["status"] == "peer_acked"
    [attempted] = [event for event in world.disk.journal if event.kind == "delivery.attempted"]
    assert (attempted.detail["duplicate"], attempted.detail["attempt"]) == (True, 2)


@pytest.mark.parametrize("committed", [1, 2])
def test_what_is_in_the_outbox_is_sent_whenever_the_broker_dies(committed: int) -> None:
    """FE 3.6: outbox stored, not sent; and: the lease of an older epoch is void, due at once."""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    for _ in range(committed):
        world.commit(1)
        world.read()
    world.auto = True
    world.start()
    peer.come()
    world.pass_time(0)
    peer.serve()
    assert len(peer.runs) == 1
    assert run_of(reattach(world, asker))["state"] == "queued"


def test_a_mirror_is_opened_again_from_the_last_report() -> None:
    """FE 3.6: peer_acked, mirror lost: re-opened from the last mirrored sequence."""
    world, asker, peer = scene()
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    peer.report(delivery_id, "running")
    world.start()
    peer.come()
    peer.report(delivery_id, "completed", is_lost=True, output="built")
    [follow] = peer.serve()
    assert isinstance(follow, Follow) and follow.after == 1
    assert run_of(reattach(world, asker))["output"] == "built"


def test_a_gap_between_reports_is_filled_and_a_repetition_says_nothing() -> None:
    """FE 3.3 Mirror; A3.12: equal updates vanish."""
    world, asker, peer = scene()
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    peer.report(delivery_id, "running")
    peer.report(delivery_id, "waiting", is_lost=True)
    peer.report(delivery_id, "running", summary="on")
    assert run_of(asker)["state"] == "running" and "summary" not in run_of(asker)
    peer.serve()
    assert run_of(asker)["summary"] == "on"
    before = len(world.disk.journal)
    world.peer_told(Mirrored(delivery_id, 0, 1, RemoteRun("run-there-1", "running")))
    assert len(world.disk.journal) == before
    peer.report(delivery_id, "completed", output="built")
    world.peer_told(Mirrored(delivery_id, 4, 5, RemoteRun("run-there-1", "running")))
    assert run_of(asker)["state"] == "completed"


@pytest.mark.parametrize(
    ("state", "expected"), [("running", "running"), ("queued", "peer_acked"), ("completed", "completed")]
)
def test_a_report_may_overtake_the_answer_to_an_attempt(state: str, expected: str) -> None:
    """FE 3.3: the peer has it, whoever says so; what waits for the answer is not tried again."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    peer.report(delivery_id, state)
    assert (delivery_of(asker)["status"], run_of(asker)["state"]) == (expected, state)
    world.pass_time(60_000)
    peer.serve()
    assert (delivery_of(asker)["status"], len(peer.tasks)) == (expected, 1)


def test_a_report_whose_commit_fails_is_asked_for_again() -> None:
    """design section 3.6"""
    world, asker, peer = scene()
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    world.auto = False
    peer.report(delivery_id, "completed", output="built")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert run_of(asker)["state"] == "queued"
    peer.serve()
    assert run_of(asker)["output"] == "built"


# --- A3.10 ----------------------------------------------------------------------------------------------


def test_one_forward_for_each_attempt() -> None:
    """A3.10: whatever makes it due meanwhile; a lease that expired is taken over."""
    world, asker, peer = scene()
    invoke(asker)
    peer.come()
    world.pass_time(0)
    peer.go()
    peer.come()
    forwards = [work for work in world.peer_work if isinstance(work, Forward)]
    assert [work.attempt for work in forwards] == [1]
    world.pass_time(LIMITS.forward_ms)
    world.pass_time(delivery_of(asker)["nextAttemptAt"] - world.wall)
    forwards = [work for work in world.peer_work if isinstance(work, Forward)]
    assert [work.attempt for work in forwards] == [1, 2]


def test_a_slow_peer_delays_nobody_else() -> None:
    """FE 3.3: all due ones in parallel, so that a slow peer blocks nobody."""
    world, asker, _ = scene()
    invoke(asker)
    other = RemoteName("other", "tester", ("default",), "active", "b3")
    world.peer_told(PeerSeen("b3", "attic", None, (other,)))
    invoke(asker, "@tester", "inv-2")
    assert [work.peer for work in world.peer_work if isinstance(work, Forward)] == [PEER, "b3"]


# --- events ---------------------------------------------------------------------------------------------


def test_a_watch_tells_what_becomes_of_a_delivery() -> None:
    """FE 3.4 Watch, 3.9: planned, attempted, state changed with previousStatus; only real changes, not leases."""
    _, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    journal_id = snapshot(asker)["journalId"]
    peer.serve()
    peer.go()
    peer.come()
    peer.serve()
    [delivery_id] = peer.runs
    frames = begin(asker, "watch", of=[{"invocationId": "inv-1"}], afterSeq=0, journalId=journal_id)
    peer.report(delivery_id, "running")
    told = [frame["event"] for frame in [*frames, *asker.got()] if frame["type"] == "watch_event"]
    deliveries = [event for event in told if event["kind"].startswith("delivery.")]
    assert [event["kind"].removeprefix("delivery.") for event in deliveries] == [
        "planned",
        "attempted",
        "state_changed",
        "attempted",
        "state_changed",
        "state_changed",
    ]
    changes = [event["detail"] for event in deliveries if event["kind"] == "delivery.state_changed"]
    assert [(detail["previousStatus"], detail["deliveryStatus"]) for detail in changes] == [
        ("accepted", "deferred"),
        ("deferred", "peer_acked"),
        ("peer_acked", "running"),
    ]
    attempts = [event["detail"] for event in deliveries if event["kind"] == "delivery.attempted"]
    assert [(detail["attempt"], detail["status"]) for detail in attempts] == [(1, "failed"), (2, "acknowledged")]
    assert {event["about"]["invocationId"] for event in deliveries} == {"inv-1"}


# --- cancel ---------------------------------------------------------------------------------------------


def test_what_never_left_is_cancelled_with_its_delivery() -> None:
    """FE 3.4 Cancel: nothing handed over: cancelled, job and open deliveries cancelled."""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    peer.go()
    world.auto = True
    world.settle()
    asker.got()
    assert ask(asker, "invocation_cancel", invocationId="inv-1", reason="not needed")["state"] == "cancelled"
    assert (delivery_of(asker)["status"], run_of(asker)["state"]) == ("cancelled", "cancelled")
    peer.come()
    world.pass_time(60_000)
    assert peer.serve() == [] and peer.runs == {}


def test_what_a_peer_has_is_recalled_once_and_goes_on_until_it_reports() -> None:
    """FE 3.4 Cancel: already at a peer: a cancel notice is sent once, and the run stays until it reports."""
    world, asker, peer = scene()
    invoke(asker)
    peer.serve()
    for _ in range(2):
        assert ask(asker, "invocation_cancel", invocationId="inv-1", reason="not needed")["state"] == "queued"
    [recall] = world.peer_work
    assert isinstance(recall, Recall) and recall.reason == "not needed"
    peer.serve()
    peer.report(recall.delivery_id, "cancelled")
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("cancelled", "cancelled")


def test_what_may_have_arrived_is_recalled_when_the_peer_says_that_it_has() -> None:
    """FE 3.4 Cancel"""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    assert ask(asker, "invocation_cancel", invocationId="inv-1")["state"] == "queued"
    assert peer.recalled == []
    peer.loses_answers = False
    world.pass_time(LIMITS.forward_ms)
    world.pass_time(delivery_of(asker)["nextAttemptAt"] - world.wall)
    peer.serve()
    assert peer.recalled == ["inv-1"]


def test_what_nobody_took_in_its_time_is_not_sent_late() -> None:
    """A task is not obeyed hours too late."""
    world, asker, peer = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="x", timeoutMs=60_000)
    peer.go()
    world.auto = True
    world.settle()
    world.pass_time(60_000)
    peer.come()
    world.pass_time(5_000)
    assert peer.serve() == []
    assert (run_of(asker)["state"], delivery_of(asker)["failureReason"]) == ("failed", "timeout")


# --- names ----------------------------------------------------------------------------------------------


def test_the_one_on_this_machine_is_meant_before_one_elsewhere() -> None:
    """A3.4: two agents matching, one local: the local one is used."""
    world, asker, _ = scene()
    near = enter(world, "builder")
    assert invoke(asker)["targetId"] == near.id
    far = ask(asker, "route_resolve", target="@builder.node:studio")["target"]
    assert (far["targetId"], far["scope"], far["authorityBrokerId"], far["node"]) == (FAR, "mesh", PEER, "studio")


def test_a_diagnosis_names_candidates_elsewhere_by_labels_that_lead_to_them() -> None:
    """FE 3.2: label is the shortest one that resolves to it alone; several, none of them local: all are listed."""
    world, asker, _ = scene()
    other = RemoteName("other", "builder", ("default",), "active", "b3")
    world.peer_told(PeerSeen("b3", "attic", None, (other,)))
    candidates = invoke(asker)["diagnosis"]["candidates"]
    assert [each["scope"] for each in candidates] == ["mesh", "mesh"]
    found = [ask(asker, "route_resolve", target=each["label"])["target"]["targetId"] for each in candidates]
    assert found == [FAR, "other"]


def test_names_a_peer_may_not_answer_for_are_not_taken_from_it() -> None:
    """FE 3.4 Peer discovery: not our own, nor those whose home is not that peer."""
    world, asker, _ = scene()
    names = (
        RemoteName(asker.id, "asker", ("default",), "active", PEER),
        RemoteName("x", "lent", ("default",), "active", "somebody-else"),
        RemoteName("y", "hidden", ("elsewhere",), "active", PEER),
        RemoteName("z", "seen", ("default",), "active", PEER),
    )
    world.peer_told(PeerSeen(PEER, "studio", "journal-2", names))
    assert ask(asker, "route_resolve", target=asker.id)["target"]["scope"] == "local"
    for name in ("lent", "hidden", "builder"):
        assert ask(asker, "route_resolve", target=f"@{name}")["diagnosis"]["kind"] == "unknown"
    assert ask(asker, "route_resolve", target="z")["target"]["displayName"] == "seen"
    assert invoke(asker, "y")["diagnosis"]["kind"] == "unknown"


def test_a_peer_told_again_writes_nothing() -> None:
    """A3.13: equal upserts of a peer record: the journal does not grow."""
    world, _, peer = scene()
    before = len(world.disk.journal)
    peer.come()
    peer.go()
    peer.come()
    assert len(world.disk.journal) == before
    peer.name = "attic"
    peer.come()
    assert len(world.disk.journal) == before + 1
    [record] = world.disk.peers.values()
    assert (record.name, record.broker_id) == ("attic", PEER)


def test_what_ended_long_ago_is_forgotten_with_its_delivery() -> None:
    """FE open point 24"""
    world, asker, peer = scene()
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    peer.report(delivery_id, "completed", output="built")
    world.start()
    world.pass_time(LIMITS.invocation_kept_ms + 2 * LIMITS.tidy_ms)
    assert world.disk.invocations == {} and world.disk.deliveries == {}


def test_without_other_machines_nothing_tells_of_them() -> None:
    """FE 3.2: nothing pretends that remote delivery exists where there is none."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    assert "deliveries" not in snapshot(asker) and world.disk.deliveries == {}
    assert builder.mail() and kinds(world)


@pytest.mark.parametrize("attempt", [1, 2, 3, 5, 6, 7, 40])
def test_pauses_double_within_their_bounds(attempt: int) -> None:
    """FE 3.3: min(2,000 x 2^(n-1), 60,000) with +-25 % jitter, never below 2,000 ms."""
    plain = min(2_000 * 2 ** (attempt - 1), 60_000)
    found = {pause_ms(f"d{number}", attempt, LIMITS) for number in range(200)}
    assert all(max(2_000, plain * 0.75) <= pause <= plain * 1.25 for pause in found)
    assert len(found) > 50
    assert pause_ms("d", attempt, LIMITS) == pause_ms("d", attempt, LIMITS)


def test_a_broker_that_is_about_to_leave_sends_nothing_more() -> None:
    """FE 5.5 Stop: refuse new work; what is in the outbox is sent by the next process."""
    world, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    peer.serve()
    peer.is_up = True
    world.broker._invoking.shut(1_000)
    world.pass_time(60_000)
    assert peer.serve() == []
    world.start()
    peer.come()
    world.pass_time(60_000)
    peer.serve()
    assert len(peer.runs) == 1


# --- what goes wrong on the way -------------------------------------------------------------------------


def is_read(world: World, asker: Agent) -> None:
    """Accept an invocation, and stop where its text is about to be read."""
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    while not world.reads:
        world.commit(1)


def test_what_a_peer_turns_out_to_have_is_not_sent_once_more() -> None:
    """FE 3.3: the report of an earlier attempt comes while the next one is being prepared."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    world.auto = False
    world.pass_time(LIMITS.forward_ms)
    world.pass_time(LIMITS.peer_retry_most_ms)
    while not world.reads:
        world.commit(1)
    [delivery_id] = peer.runs
    peer.report(delivery_id, "running")
    world.read()
    assert not [work for work in world.peer_work if isinstance(work, Forward)]
    world.auto = True
    world.settle()
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("running", "running")


def test_a_task_that_cannot_be_read_is_read_again_later() -> None:
    """FE 3.3: it waits as for a machine that is not there."""
    world, asker, peer = scene()
    is_read(world, asker)
    world.read(fails=True)
    world.auto = True
    world.settle()
    assert peer.serve() == []
    assert (delivery_of(asker)["status"], delivery_of(asker)["nextAttemptAt"]) == ("deferred", world.wall + 5_000)
    world.pass_time(LIMITS.peer_absent_ms)
    peer.serve()
    assert delivery_of(asker)["status"] == "peer_acked"


def test_a_task_whose_text_is_lost_fails() -> None:
    """design section 5: a store that was rebuilt holds states, not bodies."""
    world, asker, peer = scene()
    is_read(world, asker)
    world.disk.bodies.clear()
    world.auto = True
    world.settle()
    assert peer.serve() == []
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("failed", "failed")
    assert run_of(asker)["error"] == f"It was not handed over: {notices.BODY_LOST}"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_delivery_whose_invocation_a_rebuilt_store_has_lost_ends(is_there: bool) -> None:
    """design section 5: nothing can be sent for it, and what its peer says of it is of nobody."""
    world, asker, peer = scene()
    if not is_there:
        peer.is_up = False
    invoke(asker)
    peer.serve()
    peer.go()
    world.disk.invocations.clear()
    world.start()
    peer.come()
    world.pass_time(LIMITS.peer_retry_most_ms)
    peer.serve()
    [record] = world.disk.deliveries.values()
    if is_there:
        assert len(peer.tasks) == 1 and record.status == "peer_acked"
        peer.report(record.delivery_id, "completed", output="built")
        [record] = world.disk.deliveries.values()
        assert record.status == "completed"
    else:
        assert peer.tasks == [] and (record.status, record.detail) == ("failed", "its invocation is over")


def test_a_delivery_whose_run_has_ended_in_a_rebuilt_store_ends_with_it() -> None:
    """design section 5: rows of two moments met; the run keeps its end."""
    world, asker, peer = scene()
    peer.is_up = False
    invoke(asker)
    peer.serve()
    waiting = dict(world.disk.deliveries)
    peer.go()
    peer.come()
    peer.serve()
    [delivery_id] = peer.runs
    peer.report(delivery_id, "completed", output="built")
    world.disk.deliveries.update(waiting)
    world.start()
    peer.come()
    world.pass_time(LIMITS.peer_retry_most_ms)
    peer.serve()
    assert len(peer.tasks) == 1
    assert (run_of(reattach(world, asker))["state"], run_of(reattach(world, asker))["output"]) == ("completed", "built")
    assert [record.status for record in world.disk.deliveries.values()] == ["failed"]


def test_what_is_said_of_a_delivery_that_nobody_knows_changes_nothing() -> None:
    """F127: forged, or of a store that is gone"""
    world, _, _ = scene()
    before = len(world.disk.journal)
    world.peer_told(Forwarded("d" * 32, 1, "accepted", RemoteRun("there", "running")))
    world.peer_told(Mirrored("d" * 32, 0, 1, RemoteRun("there", "running")))
    assert len(world.disk.journal) == before


def test_a_peer_that_says_of_a_task_only_that_it_has_it_is_followed() -> None:
    """FE 3.3: its reports tell the run."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    [task] = peer.tasks
    world.peer_told(Forwarded(task.delivery_id, 1, "accepted"))
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("queued", "peer_acked")
    assert [work.after for work in peer.serve() if isinstance(work, Follow)] == [0]


def test_what_ended_before_its_acceptance_was_recorded_is_not_followed() -> None:
    """FE 3.3 Mirror"""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    [delivery_id] = peer.runs
    world.auto = False
    world.peer_told(Forwarded(delivery_id, 1, "accepted", RemoteRun("there", "queued")))
    peer.report(delivery_id, "completed", output="built")
    world.auto = True
    world.settle()
    assert peer.serve() == [] and run_of(asker)["output"] == "built"


def assumed_failed() -> tuple[World, Agent, FakePeer, str]:
    """Return a scene in which a run is taken for failed since its peer stayed silent, and its delivery."""
    world, asker, peer = scene()
    peer.loses_answers = True
    invoke(asker)
    peer.serve()
    peer.go()
    world.pass_time(LIMITS.peer_window_ms + LIMITS.peer_retry_most_ms * 2)
    [delivery_id] = peer.runs
    assert (run_of(asker)["state"], run_of(asker)["reconciled"]) == ("failed", True)
    return world, asker, peer, delivery_id


def test_an_assumed_failure_that_the_peer_confirms_stays_one() -> None:
    """FE 3.3"""
    world, asker, _, delivery_id = assumed_failed()
    world.peer_told(Forwarded(delivery_id, 1, "accepted", RemoteRun("there", "failed", error="no disk")))
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("failed", "failed")


def test_an_assumed_failure_of_what_waits_at_the_peer_is_taken_back() -> None:
    """FE 3.3: a failure that was only assumed goes to running or an end, to nothing before that."""
    world, asker, _, delivery_id = assumed_failed()
    world.peer_told(Forwarded(delivery_id, 1, "accepted", RemoteRun("there", "queued")))
    assert (run_of(asker)["state"], delivery_of(asker)["status"]) == ("running", "peer_acked")
    assert not run_of(asker).get("reconciled")


def test_an_assumed_failure_that_the_peer_assumes_too_changes_nothing_and_stays_open_to_what_is_so() -> None:
    """FE 3.3: the peer does not know better yet; what it hears later undoes both."""
    world, asker, peer, delivery_id = assumed_failed()
    before = snapshot(asker)["run"]
    world.peer_told(Forwarded(delivery_id, 1, "accepted", RemoteRun("there", "failed", reconciled=True)))
    assert snapshot(asker)["run"] == before
    peer.report(delivery_id, "completed", output="built")
    assert (run_of(asker)["state"], run_of(asker)["output"]) == ("completed", "built")
