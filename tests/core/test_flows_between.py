"""Play flows whose worker is at another broker: the scenarios of A2 that need a peer, and what cuts them off."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode

from intercom.core.records import Post
from intercom.core.step_letters import (
    DISPATCH,
    DISPATCHED,
    INQUIRE,
    OVER,
    REPORT,
    REPORTED,
    DispatchedLetter,
    OverLetter,
    ReportedLetter,
    ReportLetter,
)
from intercom.core.steps_out import NOT_KNOWN
from intercom.limits import MINUTE_MS, Limits
from tests.core.cluster import IDS
from tests.core.flow_play import TODO_WORKER, WORKER, gated, todo
from tests.core.flows_between import Between
from tests.core.mail import PEER, PeerCredentials, enter

LIMITS = Limits()
PASS = LIMITS.flow_reconcile_ms
WAIT = LIMITS.receipt_wait_ms


def born_again(play: Between, features: tuple[str, ...] = WORKER, **more: Any) -> Any:
    """Let the process of the worker start again and come back under its id."""
    peer = PeerCredentials(pid=PEER.pid + 1, uid=1000, gid=1000, started=8)
    worker = play.worker
    members = {"preferredSessionId": worker.id, "ownerToken": worker.token, **more}
    return enter(worker.world, "worker", features=features, peer=peer, **members)


def drain(play: Between) -> None:
    """Let the broker of the worker finish what is open, and take nothing new."""
    world = play.cluster["b"]
    world.send(world.connect(), type="broker_drain", requestId="d", timeoutMs=60 * MINUTE_MS)


# --- A2 by number ---------------------------------------------------------------------------------------


def test_a_step_is_sent_when_the_one_before_was_reported() -> None:
    """A2.1 across machines; cluster 4: the exact match names the broker of the worker."""
    play = Between()
    play.begin()
    (frame,) = play.dispatches()
    dispatch = frame["message"]["flowDispatch"]
    assert frame["message"]["id"] == f"flow-dispatch/{dispatch['dispatchId']}"
    assert (dispatch["flowId"], dispatch["stepId"], dispatch["attempt"]) == ("f", "one", 1)
    assert frame["message"]["content"]["text"] == "do one"
    assert play.states() == ("active", ["dispatching", "pending"])
    identity = play.flow()["flow"]["targetIdentity"]
    assert (identity["brokerId"], identity["sessionId"]) == (IDS["b"], play.worker.id)
    assert identity["incarnation"] == play.worker.registered["incarnation"]
    play.worker.confirm(frame["message"]["id"])
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["awaiting_result", "pending"]) and play.dispatches() == []
    answer = play.report(dispatch["dispatchId"])
    assert (answer["type"], answer["state"], answer["stepState"]) == ("flow_report_recorded", "accepted", "completed")
    assert answer["reportMessageId"] == f"flow-report/{dispatch['dispatchId']}"
    assert play.states() == ("active", ["completed", "dispatching"])
    play.report(play.take())
    assert play.states() == ("completed", ["completed", "completed"]) and play.dispatches() == []


def test_a_receipt_completes_nothing() -> None:
    """A2.2 across machines."""
    play = Between()
    play.begin()
    dispatch_id = play.take()
    for _ in range(3):
        play.worker.confirm(f"flow-dispatch/{dispatch_id}")
        play.run(10 * MINUTE_MS)
    assert play.states() == ("active", ["awaiting_result", "pending"]) and play.dispatches() == []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nobody@b", "nobody in group default is called nobody@b, nor nobody on machine b"),
        ("worker@a", "nobody in group default is called worker@a, nor worker on this machine"),
        ("worker@c", "nobody in group default is called worker@c, and no machine called c can be reached"),
        ("plain@b", "plain cannot be told from its next start: it did not ask for session.lifecycle"),
        ("deaf@b", "deaf cannot report: it did not ask for flow.report"),
        ("done@b", "done has finished and takes nothing more"),
        ("far@b", "nobody in group default is called far@b, nor far on machine b"),
    ],
)
def test_who_cannot_be_handed_a_step_there_fails_the_flow_and_is_said_truly(target: str, said: str) -> None:
    """A2.3, first half, across machines: five vain attempts, and the reason is so."""
    play = Between()
    play.cluster["b"].register("plain")
    enter(play.cluster["b"], "deaf")
    enter(play.cluster["b"], "done", features=WORKER, info={"replyCapability": "terminal"})
    enter(play.cluster["b"], "far", features=WORKER, info={"group": "elsewhere"})
    play.run(LIMITS.announce_ms)
    play.begin(target=target)
    play.run(6 * PASS)
    assert play.flow()["flow"]["reason"] == f"not reachable after 5 attempts: {said}"


def test_a_name_with_a_machine_means_nobody_where_there_is_no_other_machine() -> None:
    """A2.3: without a cluster the text says so."""
    from tests.core.flow_play import Play

    play = Play()
    play.begin(target="worker@b")
    reason = "nobody in group default is called worker@b, and this broker knows no other machines"
    assert play.flow()["flow"]["lastAdmitReason"] == reason


def test_a_name_that_two_machines_have_is_not_guessed() -> None:
    """Cluster 3: ambiguous, with what tells them apart."""
    play = Between()
    enter(play.cluster["a"], "worker", features=WORKER)
    play.begin()
    reason = play.flow()["flow"]["lastAdmitReason"]
    assert reason.endswith("name one by its id, or by its machine: worker@MACHINE")
    enter(play.cluster["b"], "worker", features=WORKER)
    play.run(2 * PASS)
    assert play.flow()["flow"]["lastAdmitReason"].endswith("name one by its id")


@pytest.mark.parametrize("target", ["worker", "worker@b", "WORKER@B", "session:"])
def test_a_worker_elsewhere_is_named_as_it_is_anywhere(target: str) -> None:
    """Cluster 3 and FE 2.2: a name, a name with its machine, or an id."""
    play = Between()
    if target.endswith("@b"):
        enter(play.cluster["a"], "worker", features=WORKER)
    play.begin(target=target + play.worker.id if target == "session:" else target)
    assert play.report(play.take())["stepState"] == "completed"


def test_a_success_begins_the_count_anew() -> None:
    """A2.3, second half: it is one when the other broker has the step."""
    play = Between()
    play.begin(target="late")
    play.run(2 * PASS)
    assert play.flow()["flow"]["admitAttempts"] == 3
    late = enter(play.cluster["b"], "late", features=WORKER)
    play.run(LIMITS.announce_ms + PASS)
    flow = play.flow()["flow"]
    assert flow.get("admitAttempts", 0) == 0 and "lastAdmitReason" not in flow
    assert len(play.dispatches(late)) == 1


POINTS = [
    "intent stored",
    "posted",
    "stored there",
    "handed over",
    "accepted",
    "reported",
    "recorded",
]


@pytest.mark.parametrize("crashed", ["a", "b"])
@pytest.mark.parametrize("lease", ["expired", "renewed", "given back"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_of_either_side_costs_nothing_and_repeats_nothing(crashed: str, lease: Any, point: str) -> None:
    """A2.4 across machines: one dispatchId, and one effective message, whichever side ends where."""
    play = Between()
    a, b = play.cluster["a"], play.cluster["b"]
    seen: list[str] = []

    def look() -> None:
        for frame in play.dispatches():
            seen.append(frame["message"]["id"])
            play.worker.confirm(frame["message"]["id"])
        play.run()

    if point in ("intent stored", "posted"):
        play.cluster.nodes["a" if point == "intent stored" else "b"].is_cut = True
    play.begin("one")
    if point == "stored there":
        b.deaf.add(play.worker.conn)
    elif point not in ("intent stored", "posted", "handed over"):
        look()
    if point in ("reported", "recorded"):
        play.cluster.nodes["a"].is_cut = point == "reported"
        play.write(play.worker, "flow_report", dispatchId=seen[0].partition("/")[2], outcome="completed", summary="ok")
        play.run()
    for node in play.cluster.nodes.values():
        node.is_cut = False
    b.deaf.clear()
    play.crash(crashed, lease=lease)
    play.run(MINUTE_MS)
    look()
    play.run(MINUTE_MS)
    assert len(set(seen)) == 1
    step = play.flow()["flow"]["steps"][0]
    assert len(step["attempts"]) == 1 and a.wall == b.wall
    if point not in ("reported", "recorded"):
        assert step["state"] == "awaiting_result"
        play.report(step["attempts"][0])
    assert play.states() == ("completed", ["completed"])


def test_a_worker_that_starts_again_makes_the_step_ambiguous() -> None:
    """A2.5 across machines."""
    play = Between()
    play.begin()
    first = play.take()
    play.worker = born_again(play)
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["ambiguous", "pending"]) and play.dispatches() == []
    assert "was replaced or has ended" in play.flow()["dispatch"]["reason"]
    assert play.report(first)["code"] == "not_flow_target"
    assert play.control("retry", stepId="one", reason="once more")["type"] == "flow"
    play.run(PASS)
    second = play.take()
    assert second != first and play.flow()["flow"]["steps"][0]["attempts"] == [first, second]
    assert play.report(second)["stepState"] == "completed"


def test_a_worker_that_does_not_come_back_makes_the_step_ambiguous() -> None:
    """FE 2.4, rule 5: its broker says so; as long as it may come back the step waits."""
    play = Between()
    play.begin("one")
    play.take()
    play.worker.leave()
    play.run(PASS)
    assert play.states() == ("active", ["awaiting_result"])
    assert "away" in play.flow()["flow"]["waiting"]["what"]
    play.run(60 * MINUTE_MS)
    assert play.states() == ("active", ["ambiguous"])


def test_only_the_exact_worker_reports() -> None:
    """A2.6 across machines."""
    play = Between("abc")
    play.begin("one")
    dispatch_id = play.take()
    other = enter(play.cluster["b"], "other", features=WORKER)
    third = enter(play.cluster["c"], "third", features=WORKER)
    own = enter(play.cluster["a"], "own", features=WORKER)
    assert play.report(dispatch_id, by=other)["code"] == "not_flow_target"
    assert play.report(dispatch_id, by=own)["code"] == "not_flow_target"
    assert play.report(dispatch_id, by=third)["code"] == "dispatch_unknown"
    assert play.report("unheard-of")["code"] == "dispatch_unknown"
    assert play.states() == ("active", ["awaiting_result"])


def test_a_worker_that_has_finished_has_some_time_to_report() -> None:
    """A2.7 across machines: evidence at T, a report at T + 3 s counts, one at T + 6 s does not."""
    for is_late in (False, True):
        play = Between()
        play.begin("one")
        dispatch_id = play.take()
        play.worker.write("presence", replyCapability="terminal")
        play.run(LIMITS.announce_ms + PASS)
        assert "evidence" in play.flow()["dispatch"]
        play.run(LIMITS.flow_end_grace_ms if is_late else PASS // 2)
        answer = play.report(dispatch_id)
        if is_late:
            assert answer["code"] == "dispatch_closed" and play.states() == ("active", ["ambiguous"])
            assert "ignoredReportAt" in play.flow()["dispatch"]
        else:
            assert answer["stepState"] == "completed" and play.states() == ("completed", ["completed"])


def test_gates_are_judged_by_the_broker_of_the_flow() -> None:
    """A2.8 across machines: conflict at once; missing evidence waits and may follow; without a list no gates."""
    play = Between(features=TODO_WORKER)
    play.begin(gated(conflictCheck=True))
    (frame,) = play.dispatches()
    assert frame["message"]["flowDispatch"]["todoBinding"] == {"conflictCheck": True}
    play.worker.confirm(frame["message"]["id"])
    play.run()
    answer = play.report(frame["message"]["flowDispatch"]["dispatchId"], **todo("in_progress"))
    assert answer["stepState"] == "ambiguous" and play.states() == ("active", ["ambiguous"])

    play = Between(features=TODO_WORKER)
    play.begin(gated(requireCompleted=True))
    dispatch_id = play.take()
    assert play.report(dispatch_id)["stepState"] == "awaiting_result"
    assert play.report(dispatch_id, **todo("in_progress"))["stepState"] == "awaiting_result"
    assert play.report(dispatch_id, **todo(item="t2"))["code"] == "binding_conflict"
    assert play.report(dispatch_id, **todo())["stepState"] == "completed"

    play = Between(features=TODO_WORKER)
    play.begin(gated(requireCompleted=True))
    play.report(play.take())
    play.run(LIMITS.flow_todo_gate_ms)
    assert play.states() == ("active", ["ambiguous"])

    play = Between()
    play.begin(gated(requireCompleted=True))
    assert play.report(play.take())["stepState"] == "completed"


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_cancelled_step_is_let_go_of_there(is_cut: bool) -> None:
    """A2.9 across machines: nothing is sent any more, a late report is told so, also where its end came late."""
    play = Between()
    play.begin()
    dispatch_id = play.take()
    if is_cut:
        play.cluster.cut("a")
    play.control("cancel", reason="enough")
    if is_cut:
        play.cluster.crash("a")
        play.boss = play.back(play.boss)
    play.run(MINUTE_MS)
    assert play.states() == ("cancelled", ["cancelled", "cancelled"]) and play.dispatches() == []
    answer = play.report(dispatch_id)
    assert answer["code"] == "dispatch_closed" and "enough" in answer["reason"]
    assert "ignoredReportAt" in play.flow()["dispatch"]


def test_a_cancelled_step_that_was_not_taken_is_taken_back() -> None:
    """A2.9, FE 2.4 Cancel: what is in the mailbox there is withdrawn."""
    play = Between()
    play.worker.leave()
    play.begin("one")
    play.worker = play.back(play.worker)
    play.run(LIMITS.announce_ms + PASS)
    play.worker.leave()
    play.control("cancel", reason="enough")
    play.run(MINUTE_MS)
    back = play.back(play.worker)
    assert play.dispatches(back) == []


def test_a_paused_flow_takes_the_report_of_what_is_open() -> None:
    """A2.10 across machines."""
    play = Between()
    play.begin()
    dispatch_id = play.take()
    play.control("pause")
    assert play.report(dispatch_id)["stepState"] == "completed"
    play.run(MINUTE_MS)
    assert play.states() == ("paused", ["completed", "pending"]) and play.dispatches() == []
    play.control("resume")
    play.report(play.take())
    assert play.states() == ("completed", ["completed", "completed"])


def test_one_step_is_under_way_at_a_worker_whoever_wrote_the_flows() -> None:
    """A2.11 across three brokers: each waits its turn, none counts that as vain, none always wins."""
    play = Between("abc")
    third, own = play.coordinator("c", "third"), play.coordinator("b", "own")
    steps = ("one", "two", "three")
    play.begin(*steps, flow_id="fa")
    play.begin(*steps, flow_id="fc", by=third)
    play.begin(*steps, flow_id="fb", by=own)
    order = []
    for _ in range(9):
        play.run(MINUTE_MS)
        (frame,) = play.dispatches()
        order.append(frame["message"]["flowDispatch"]["flowId"])
        play.worker.confirm(frame["message"]["id"])
        play.run(MINUTE_MS)
        assert play.dispatches() == []
        for flow_id, by in (("fa", play.boss), ("fc", third), ("fb", own)):
            assert play.flow(flow_id, by)["flow"].get("admitAttempts", 0) == 0
        play.report(frame["message"]["flowDispatch"]["dispatchId"])
    assert sorted(order) == ["fa"] * 3 + ["fb"] * 3 + ["fc"] * 3
    assert set(order[:3]) == {"fa", "fb", "fc"}, order


def test_a_step_whose_broker_does_not_come_in_time_has_lost_its_turn() -> None:
    """A2.11: nobody keeps a worker free for somebody who is away."""
    play = Between("abc")
    own = play.coordinator("b", "own")
    play.begin("one", flow_id="fb", by=own)
    play.begin("one", flow_id="fa")
    first = play.take()
    play.begin("one", flow_id="fb2", by=own)
    play.cluster.cut("a")
    play.report(first)
    assert play.dispatches() == []
    play.run(WAIT)
    assert play.report(play.take())["stepState"] == "completed"
    play.cluster.join("a")
    play.run(2 * MINUTE_MS)
    assert play.report(play.take())["stepState"] == "completed"
    assert play.states("fa") == ("completed", ["completed"])


@pytest.mark.parametrize("why", ["replaced", "left", "group"])
def test_a_worker_that_changed_meanwhile_is_handed_nothing(why: str) -> None:
    """A2.12 across machines: its broker judges by its own state; the attempt does not count."""
    play = Between()
    play.cluster.nodes["b"].is_cut = True
    if why == "replaced":
        born_again(play)
    elif why == "left":
        play.worker.write("unregister")
    else:
        play.worker.write("presence", group="secret")
    play.begin("one")
    play.cluster.nodes["b"].is_cut = False
    play.run()
    flow = play.flow()["flow"]
    assert flow["state"] == "active" and flow["steps"][0].get("attempts") in (None, [])
    assert flow["admitAttempts"] >= 1 and "refused it: its session" in flow["lastAdmitReason"]
    assert play.dispatches() == []


def test_a_worker_that_is_gone_before_the_intent_is_recorded_was_never_sent_anything() -> None:
    """A2.12, second half: its machine is cut off while the commit waits."""
    play = Between()
    play.cluster["a"].auto = False
    play.write(play.boss, "flow_create", flowId="f", target="worker", steps=[{"stepId": "one", "prompt": "p"}])
    play.write(play.boss, "flow_start", flowId="f")
    play.cluster["a"].commit()
    play.run()
    play.cluster.end_leases("b")
    play.cluster["a"].auto = True
    play.cluster["a"].settle()
    play.run()
    assert play.posted("dispatch") == 0
    assert play.flow()["flow"]["steps"][0]["attempts"] == []
    assert play.states() == ("active", ["pending"])


def test_a_report_survives_both_ends_and_the_absence_of_the_engine() -> None:
    """A2.14 across machines: stored here at once, and said so; brought once, whoever ends meanwhile."""
    play = Between()
    play.begin()
    dispatch_id = play.take()
    play.cluster.cut("b")
    answer = play.report(dispatch_id)
    assert (answer["state"], answer["stepState"]) == ("stored", "awaiting_result")
    assert play.report(dispatch_id, "failed")["code"] == "report_conflict"
    play.cluster.crash("b")
    play.cluster.nodes["b"].is_cut = True
    play.worker = play.back(play.worker)
    play.cluster.crash("a")
    play.boss = play.back(play.boss)
    play.cluster.join("b")
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["completed", "dispatching"])
    posted = play.posted("report")
    again = play.report(dispatch_id)
    assert (again["state"], again["stepState"]) == ("accepted", "completed") and play.posted("report") == posted
    assert play.report(dispatch_id, "failed")["code"] == "report_conflict"


def test_a_report_is_brought_by_whoever_acts_under_the_address_of_the_worker() -> None:
    """A2.14: a command is a process of its own; the step was handed to a session that has left."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.begin("one")
    dispatch_id = play.take()
    play.worker.write("unregister")
    play.run(PASS)
    assert play.states() == ("active", ["awaiting_result"])
    token = play.worker.registered["addressToken"]
    bringer = play.work_as("b", None, address={"name": "worker", "hold": "none", "token": token})
    assert play.report(dispatch_id, by=bringer, attempt=2, preparedAt=5)["stepState"] == "completed"
    report = play.flow()["dispatch"]["report"]
    assert (report["attempts"], report["preparedAt"]) == (2, 5)


def test_a_worker_that_left_without_a_report_has_its_time() -> None:
    """FE 2.4, rule 5: whoever acts under the address may bring it, for the grace; then it is ambiguous."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.begin("one")
    play.take()
    play.worker.write("unregister")
    play.run(LIMITS.flow_end_grace_ms + PASS)
    assert play.states() == ("active", ["ambiguous"])


# --- what cuts them off ---------------------------------------------------------------------------------


def test_a_machine_that_stays_away_makes_the_step_ambiguous_after_the_window() -> None:
    """Cluster 3, Window over; 5: leases expire. Until then the step waits and says for what."""
    play = Between()
    play.begin("one")
    play.take()
    play.cluster.cut("b")
    play.run(LIMITS.peer_window_ms - MINUTE_MS)
    assert play.states() == ("active", ["awaiting_result"])
    assert "away" in play.flow()["flow"]["waiting"]["what"]
    play.run(2 * MINUTE_MS)
    assert play.states() == ("active", ["ambiguous"])
    assert "machine b, on which its session is, was not reached for 30 minutes" in play.flow()["dispatch"]["reason"]
    play.cluster.join("b")
    play.run(PASS)
    answer = play.report(play.flow()["dispatch"]["dispatchId"])
    assert answer["code"] == "dispatch_closed"


def test_a_lost_lease_and_its_return_change_nothing() -> None:
    """Cluster 5: a cut of ten minutes; the worker never noticed, and reports behind it."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.cut("b")
    play.run(10 * MINUTE_MS)
    play.cluster.join("b")
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["awaiting_result"]) and play.dispatches() == []
    assert play.report(dispatch_id)["stepState"] == "completed"


def test_a_broker_that_lost_its_store_does_not_know_the_step() -> None:
    """Cluster 5, a restored old copy: what it had is ambiguous, not handed out anew."""
    play = Between()
    play.begin("one")
    play.take()
    play.cluster["b"].disk = type(play.cluster["b"].disk)()
    play.cluster.crash("b")
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["ambiguous"]) and play.flow()["dispatch"]["reason"] == NOT_KNOWN


def test_a_flow_whose_store_was_lost_lets_its_worker_go() -> None:
    """Cluster 5: the broker of the flow knows nothing of it, and says so; the worker is free for others."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster["a"].disk = type(play.cluster["a"].disk)()
    play.cluster.crash("a")
    play.run(MINUTE_MS)
    assert play.report(dispatch_id)["code"] == "dispatch_closed"
    own = play.coordinator("b", "own")
    play.begin("one", flow_id="mine", by=own)
    assert play.report(play.take())["stepState"] == "completed"


def test_a_broker_that_cannot_store_hands_nothing_out() -> None:
    """A2.4 with a full disk at either side: nothing is answered that is not recorded."""
    play = Between()
    play.cluster["b"].auto = False
    play.begin("one")
    play.cluster["b"].fail_commit()
    play.cluster["b"].auto = True
    play.cluster["b"].settle()
    play.run(MINUTE_MS)
    assert play.report(play.take())["stepState"] == "completed"


def test_a_report_that_cannot_be_stored_is_refused_and_taken_again() -> None:
    """A2.14: not recorded, same again."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.cut("b", leases_end=False)
    play.cluster["b"].auto = False
    asked = play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="ok")
    play.cluster["b"].fail_commit()
    play.cluster["b"].auto = True
    play.cluster["b"].settle()
    answer = play.answer(play.worker, asked)
    assert (answer["code"], answer["retryable"]) == ("not_recorded", True)
    play.cluster.join("b")
    assert play.report(dispatch_id)["stepState"] == "completed"


def test_a_full_mailbox_there_is_a_vain_attempt() -> None:
    """12.3: who has no room cannot be reached; counted once a pause, and the attempt does not count."""
    play = Between(limits=Limits(mailbox_entries=1))
    near = enter(play.cluster["b"], "near")
    play.worker.leave()
    near.queue("worker", "m1")
    play.run(0)
    play.worker = play.back(play.worker)
    play.run(LIMITS.announce_ms)
    play.begin("one")
    play.run(PASS)
    flow = play.flow()["flow"]
    assert (flow["admitAttempts"], flow["steps"][0]["attempts"]) == (2, [])
    assert flow["lastAdmitReason"] == "the broker of machine b refused it: the mailbox of its session is full"
    play.worker.confirm("m1")
    play.run(PASS)
    assert play.report(play.take())["stepState"] == "completed"


def test_nothing_goes_on_while_nothing_is_to_do() -> None:
    """Design 6: a step that waits for its worker costs no letter."""
    play = Between()
    play.begin("one")
    play.take()
    play.run(MINUTE_MS)
    posted = len(play.cluster.posts)
    play.run(60 * MINUTE_MS)
    assert len(play.cluster.posts) == posted


def test_what_is_on_its_way_is_counted() -> None:
    """FE 3.2, cluster 1: the depth of the outbox, and since when."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster.cut("b")
    play.report(dispatch_id)
    person = enter(play.cluster["b"], features=("operator",), info={"recipientPurpose": "control"})
    status = play.ask(person, "broker_status")["report"]
    assert status["multiNode"]["outbox"] == 1


def test_a_worker_elsewhere_is_not_counted_as_busy_here_but_there() -> None:
    """3.10: a broker that is drained waits for the steps of those who are connected to it."""
    play = Between()
    play.begin("one")
    play.take()
    drain(play)
    person = enter(play.cluster["b"], features=("operator",), info={"recipientPurpose": "control"})
    status = play.ask(person, "broker_status")["report"]["broker"]
    assert status["draining"]["open"] == {"steps": 1}


def test_a_step_is_not_handed_out_by_a_broker_that_leaves() -> None:
    """3.10: what begins is refused for now, and brought to the one that follows."""
    play = Between()
    drain(play)
    play.begin("one")
    play.run(MINUTE_MS)
    assert play.dispatches() == [] and play.states() == ("active", ["dispatching"])
    play.crash("b")
    play.run(MINUTE_MS)
    assert play.report(play.take())["stepState"] == "completed"


def test_what_is_over_is_forgotten_there() -> None:
    """Design 5, bounds: what a flow is done with is kept for a day."""
    play = Between()
    play.begin("one")
    play.report(play.take())
    assert len(play.cluster["b"].disk.hosted) == 1
    play.run(LIMITS.bodies_kept_ms + LIMITS.tidy_ms)
    assert len(play.cluster["b"].disk.hosted) == 0


def test_a_broker_whose_store_is_closed_says_that_it_cannot() -> None:
    """Design 5, fail closed: a step waits for a process that can record it."""
    play = Between()
    play.cluster["b"].auto = False
    enter_later = play.cluster["b"].connect()
    assert enter_later
    play.begin("one")
    play.cluster["b"].fail_commit(final=True)
    play.cluster["b"].auto = True
    play.run(MINUTE_MS)
    assert play.dispatches() == [] and play.states() == ("active", ["dispatching"])


def test_no_other_broker_has_a_say_in_it() -> None:
    """Cluster 3 and 4: only the broker of the worker speaks of an attempt, and only that of the flow ends it."""
    play = Between("abc")
    play.begin("one")
    dispatch_id = play.take()
    said = [
        ("a", DISPATCHED, DispatchedLetter(dispatch_id, "gone")),
        ("a", REPORT, ReportLetter(dispatch_id, "completed", "ok", (), "v", "c")),
        ("b", OVER, OverLetter(dispatch_id, "retired")),
        ("b", REPORTED, ReportedLetter(dispatch_id, "v", step_state="completed")),
    ]
    for number, (to, kind, letter) in enumerate(said):
        post = Post(number, IDS[to], kind, dispatch_id, f"x{number}", encode(letter))
        play.cluster.post(play.cluster.nodes["c"], post)
    play.run(MINUTE_MS)
    assert play.states() == ("active", ["awaiting_result"])
    assert play.report(dispatch_id)["stepState"] == "completed"


@pytest.mark.parametrize("kind", [DISPATCH, DISPATCHED, INQUIRE, OVER, REPORT, REPORTED])
def test_what_cannot_be_read_is_let_go_of(kind: str) -> None:
    """Cluster 3: it is settled, and changes nothing."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    for to in "ab":
        post = Post(1, IDS[to], kind, dispatch_id, "x", b'{"dispatch_id":7}')
        play.cluster.post(play.cluster.nodes["b" if to == "a" else "a"], post)
    play.run()
    assert all(not node.handed_out for node in play.cluster.nodes.values())
    assert play.report(dispatch_id)["stepState"] == "completed"


def test_a_copy_that_comes_when_a_step_is_over_hands_out_nothing() -> None:
    """A2.9: what the engine brings late, or twice, of a step that was cancelled or refused reaches nobody."""
    play = Between()
    node = play.cluster.nodes["b"]
    node.is_cut = True
    play.begin("one")
    (copy,) = node.queue
    node.queue.clear()
    play.control("cancel", reason="enough")
    node.queue.append(copy)
    node.is_cut = False
    play.run()
    assert play.dispatches() == [] and play.cluster["b"].disk.hosted == {}
