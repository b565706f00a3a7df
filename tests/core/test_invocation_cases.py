"""The acceptance scenarios of invocations: A3.1 to A3.6 and A3.10 to A3.13, in the core alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intercom.core.connections import PeerCredentials
from intercom.core.labels import resolve
from intercom.core.records import StoreIdentity
from intercom.limits import Limits
from tests.core.harness import INFO, World
from tests.core.invoking import INVOKER, invoke, invoker, kinds, run_of, snapshot, task_worker, tasks, update
from tests.core.mail import PEER, Agent, enter, holder, operator, reattach
from tests.core.work import ask, begin, coordinator, later, reply, report

LIMITS = Limits()


def scene() -> tuple[World, Agent, Agent]:
    """Return a world with somebody who asks, and a builder who does not take assignments."""
    world = World()
    return world, invoker(world), invoker(world, "builder")


# --- A3.1: the target is away ---------------------------------------------------------------------------


def test_who_is_away_gets_the_task_once_when_it_comes_back() -> None:
    """A3.1"""
    world, asker, builder = scene()
    builder.leave()
    answer = invoke(asker)
    assert answer["type"] == "invocation_accepted" and answer["runId"] and answer["state"] == "queued"
    assert "handed over when" in answer["detail"]
    back = reattach(world, builder)
    [task] = tasks(back)
    assert task["message"]["content"]["text"] == "build it"
    assert task["from"]["id"] == asker.id
    assert task["invocation"] == {"invocationId": "inv-1", "runId": answer["runId"], "action": "execute"}
    assert run_of(asker)["state"] == "running"
    back.leave()
    conn = world.connect()
    again = world.send(conn, type="session_reattach", requestId="r", sessionId=builder.id, ownerToken=builder.token)
    assert [frame["type"] for frame in again] == ["session_reattached"]


def test_an_address_nobody_holds_keeps_the_task() -> None:
    """A3.1"""
    world = World()
    asker, first = invoker(world), holder(world, "builder")
    first.write("unregister")
    answer = invoke(asker, ensureAwake=True)
    assert (answer["state"], answer["targetId"]) == ("waking", "address:1")
    again = holder(world, "builder", first.registered["addressToken"])
    [task] = tasks(again)
    assert "invocation" not in task, "it did not ask for the feature"
    assert run_of(asker)["state"] == "running"


# --- A3.2, 3.6: a broker that dies ----------------------------------------------------------------------


@pytest.mark.parametrize("committed", [1, 2, 3])
def test_after_the_answer_the_job_runs_whatever_the_broker_does(committed: int) -> None:
    """A3.2: killed after the accept commit, after the hand-over was recorded, and after it was offered."""
    world, asker, builder = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    for _ in range(committed):
        world.commit(1)
        world.take()
        world.read()
    [answer] = [frame for frame in asker.got() if frame["type"] == "invocation_accepted"]
    world.auto = True
    world.start()
    back, asker = reattach(world, builder), reattach(world, asker)
    assert [task["message"]["id"] for task in tasks(back)] == [f"run:{answer['runId']}"]
    assert run_of(asker)["state"] == "running"


def test_before_the_commit_nothing_was_accepted() -> None:
    """FE 3.6, first row."""
    world, asker, builder = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    assert asker.got() == []
    world.auto = True
    world.start()
    back, asker = reattach(world, builder), reattach(world, asker)
    assert tasks(back) == [] and snapshot(asker)["known"] is False
    assert invoke(asker)["state"] == "queued"
    assert len(tasks(back)) == 1


def test_a_commit_that_fails_is_told_and_undone() -> None:
    world, asker, builder = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    world.fail_commit()
    world.auto = True
    world.settle()
    [answer] = [frame for frame in asker.got() if frame.get("requestId") == "r"]
    assert (answer["type"], answer["code"], answer["retryable"]) == ("request_failed", "not_recorded", True)
    assert tasks(builder) == [] and snapshot(asker)["known"] is False
    assert invoke(asker)["state"] == "queued" and len(tasks(builder)) == 1


def test_nobody_is_refused_for_an_end_that_could_not_be_recorded() -> None:
    """Design section 3.6: a refusal rests on what the rows say too, and they may say something else after a commit"""
    world, asker, builder = scene()
    builder.leave()
    invoke(asker)
    world.auto = False
    asker.write("invocation_cancel", requestId="c", invocationId="inv-1")
    builder = reattach(world, builder)
    asker.write("invocation_cancel", requestId="again", invocationId="inv-1")
    assert asker.got() == []
    world.fail_commit()
    world.auto = True
    world.settle()
    told = {frame["requestId"]: frame["code"] for frame in asker.got() if "requestId" in frame}
    assert told == {"c": "not_recorded", "again": "not_recorded"}
    assert run_of(asker)["state"] == "queued"


# --- A3.3: the same id again ----------------------------------------------------------------------------


def test_an_invocation_made_again_has_the_same_run() -> None:
    """A3.3, 3.8"""
    world, asker, builder = scene()
    first = invoke(asker)
    again = invoke(asker)
    assert (again["runId"], len(tasks(builder))) == (first["runId"], 1)
    world.start()
    asker = reattach(world, asker)
    assert invoke(asker)["runId"] == first["runId"]
    refused = invoke(asker, task="something else")
    assert (refused["code"], refused["retryable"]) == ("invocation_conflict", False)
    assert invoke(asker, action="consult")["code"] == "invocation_conflict"
    assert tasks(reattach(world, builder)) == []


def test_a_repetition_is_answered_with_the_result() -> None:
    """FE 3.8: equal content returns the existing run."""
    _, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "completed", output="built")
    again = invoke(asker)
    assert (again["state"], again["run"]["output"]) == ("completed", "built")


# --- A3.4, A3.5: labels ---------------------------------------------------------------------------------


def test_an_ambiguous_label_is_answered_with_labels_that_lead_to_one_each() -> None:
    """A3.4"""
    world = World()
    asker = invoker(world)
    one = enter(world, "builder", info={"cwd": "/src/main"})
    two = enter(world, "builder", info={"cwd": "/src/side"})
    answer = invoke(asker)
    assert "runId" not in answer
    diagnosis = answer["diagnosis"]
    assert diagnosis["kind"] == "ambiguous"
    labels = [candidate["label"] for candidate in diagnosis["candidates"]]
    assert labels == ["@builder.main", "@builder.side"]
    found = [ask(asker, "route_resolve", target=label)["target"]["targetId"] for label in labels]
    assert found == [one.id, two.id]
    assert snapshot(asker).get("run") is None
    assert ask(asker, "route_resolve", target="@builder")["diagnosis"]["kind"] == "ambiguous"


def test_two_of_one_kind_are_told_apart_by_their_ids() -> None:
    """A3.4: also when nothing that can be said tells them apart."""
    world = World()
    asker, one, two = invoker(world), enter(world, "builder"), enter(world, "builder")
    labels = [candidate["label"] for candidate in invoke(asker)["diagnosis"]["candidates"]]
    assert labels == [one.id, two.id]
    assert invoke(asker, labels[1])["targetId"] == two.id


def test_diagnoses_are_kept_and_shown() -> None:
    """A3.5"""
    world, asker, _ = scene()
    asked = ["", "@a.b.c.d", "@nobody"]
    expected = ["unparseable", "unparseable", "unknown"]
    assert [invoke(asker, target)["diagnosis"]["kind"] for target in asked] == expected
    shown = snapshot(asker)
    assert [each["kind"] for each in shown["diagnoses"]] == expected
    assert (shown["known"], "invocation" in shown, "run" in shown) == (True, False, False)
    world.start()
    asker = reattach(world, asker)
    assert [each["askedLabel"] for each in snapshot(asker)["diagnoses"]] == asked
    assert invoke(asker)["state"] == "queued", "the id is not used up"


def test_an_unknown_id_is_no_error() -> None:
    """FE 3.4 Snapshot, open point 16."""
    _, asker, _ = scene()
    shown = snapshot(asker, "never")
    assert (shown["known"], shown["diagnoses"], "run" in shown) == (False, [], False)


def test_who_is_out_of_reach_is_unknown() -> None:
    """FE 3.7"""
    world = World()
    asker = invoker(world)
    other = enter(world, "builder", info={"groups": ["elsewhere"]})
    assert invoke(asker)["diagnosis"]["kind"] == "unknown"
    assert invoke(asker, other.id)["diagnosis"]["kind"] == "unknown"


def test_nobody_invokes_without_the_feature_or_a_target() -> None:
    """FE 0.6, 3.10"""
    world, asker, _ = scene()
    assert invoke(enter(world, "plain"))["code"] == "feature_not_granted"
    assert ask(asker, "invoke", invocationId="i", task="x")["code"] == "target_required"
    assert ask(asker, "invoke", invocationId="i", task=" \n", target="@builder")["code"] == "invalid_invocation"
    big = "x" * (LIMITS.invocation_bytes + 1)
    assert ask(asker, "invoke", invocationId="i", task=big, target="@builder")["code"] == "invalid_invocation"


# --- A3.6: the diagnosis as a message -------------------------------------------------------------------


def test_a_diagnosis_reaches_the_requester_as_a_message_of_the_broker() -> None:
    """A3.6, as design section 7 corrects it: to the requester's session or mailbox, recorded with the diagnosis."""
    world, asker, _ = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@nobody", task="x")
    world.commit(1)
    world.auto = True
    world.start()
    asker = reattach(world, asker)
    [message] = asker.mail() or [frame for frame in asker.first if frame["type"] == "message"]
    assert message["from"]["name"] == "@intercom"
    assert (message["notice"]["kind"], message["notice"]["messageId"]) == ("undeliverable", "inv-1")
    assert [each["kind"] for each in snapshot(asker)["diagnoses"]] == ["unknown"]


# --- A3.10: leases --------------------------------------------------------------------------------------


def older(world: World, **members: Any) -> Any:
    """Register a session of an older client: it has no mailbox."""
    return world.register("builder", acknowledgesReceipt=True, **members)


def pushed(client: Any) -> list[dict[str, Any]]:
    """Return the messages that came to it."""
    return [frame for frame in client.got() if frame["type"] == "message"]


def test_a_push_under_a_lease_is_made_once() -> None:
    """A3.10: two looks at once forward once."""
    world = World()
    asker, builder = invoker(world), older(world)
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    world.settle()
    world.pass_time(LIMITS.push_receipt_ms - 1)
    world.settle()
    frames = [frame for frame in builder.got() if frame["type"] == "message"]
    assert len(frames) == 1 and "invocation" not in frames[0]
    builder.write("received", messageId=frames[0]["message"]["id"])
    world.auto = True
    world.settle()
    assert (run_of(asker)["state"], run_of(asker)["attempts"], run_of(asker)["placement"]) == ("running", 1, "session")


def test_a_push_without_a_receipt_is_made_again_under_the_same_id() -> None:
    """A3.10, 3.6: the hand-over is idempotent by invocationId."""
    world = World()
    asker, builder = invoker(world), older(world)
    invoke(asker)
    [first] = [frame for frame in builder.got() if frame["type"] == "message"]
    world.pass_time(LIMITS.push_receipt_ms + LIMITS.job_retry_ms * 2)
    again = [frame for frame in builder.got() if frame["type"] == "message"]
    assert again and {frame["message"]["id"] for frame in again} == {first["message"]["id"]}
    builder.write("received", messageId=first["message"]["id"])
    assert run_of(asker)["state"] == "running"


def test_the_lease_of_an_older_process_is_void() -> None:
    """FE 3.6: lease of an older epoch is void: job due at once, and a lease that is over is taken over."""
    world = World()
    asker = invoker(world)
    builder = older(world, returnAddress="b")
    invoke(asker)
    [first] = pushed(builder)
    world.kwargs["identity"] = StoreIdentity("b", "j", 2)
    world.start()
    builder = older(world, returnAddress="b", preferredSessionId=builder.id)
    world.pass_time(LIMITS.job_retry_ms)
    assert LIMITS.job_retry_ms < LIMITS.job_lease_ms
    [again] = pushed(builder)
    assert again["message"] == first["message"]
    builder.write("received", messageId=again["message"]["id"])
    run = run_of(reattach(world, asker))
    assert (run["state"], run["attempts"]) == ("running", 2)


# --- A3.11: watches -------------------------------------------------------------------------------------


def test_a_watch_tells_every_change_once() -> None:
    """A3.11"""
    world, asker, builder = scene()
    invoke(asker)
    invoke(asker, invocation_id="inv-2")
    begun = ask(asker, "watch", of=[{"invocationId": "inv-1"}])
    [state] = begun["snapshot"]
    assert (state["kind"], state["state"], state["about"]["invocationId"]) == ("invocation", "queued", "inv-1")
    tasks(builder)
    update(builder, "waiting")
    update(builder, "waiting")
    update(builder, "running", summary="half")
    update(builder, "completed", output="all")
    events = [frame for frame in asker.got() if frame["type"] == "watch_event"]
    states = [frame["event"]["detail"]["state"] for frame in events if frame["event"]["kind"] == "run.updated"]
    assert [state for place, state in enumerate(states) if place == 0 or states[place - 1] != state] == [
        "running",
        "waiting",
        "running",
        "completed",
    ]
    assert {frame["event"]["about"]["invocationId"] for frame in events} == {"inv-1"}
    sequences = [frame["seq"] for frame in events]
    assert sequences == sorted(set(sequences)) and sequences[0] > begun["seq"]
    assert all("output" not in frame["event"]["detail"] for frame in events)
    ended = ask(asker, "unwatch", watchId=begun["watchId"])
    assert ended["type"] == "watch_ended" and len(world.broker._following.watches) == 0


def test_a_snapshot_and_a_watch_behind_it_leave_no_gap() -> None:
    """A3.11, FE 3.4 Watch: the first event has a greater sequence."""
    _, asker, builder = scene()
    invoke(asker)
    seen = snapshot(asker)
    tasks(builder)
    begin(asker, "watch", of=[{"invocationId": "inv-1"}], afterSeq=seen["seq"], journalId=seen["journalId"])
    states = [frame["event"]["detail"]["state"] for frame in asker.got() if frame["type"] == "watch_event"]
    assert states == [] or states[0] == "running"


def test_others_see_nothing_of_it() -> None:
    """FE 3.7"""
    world, asker, _ = scene()
    invoke(asker)
    stranger = invoker(world, "stranger")
    assert snapshot(stranger)["known"] is False
    assert ask(stranger, "watch", of=[{"invocationId": "inv-1"}])["code"] == "not_allowed"
    assert ask(stranger, "invocation_cancel", invocationId="inv-1")["code"] == "invocation_unknown"
    assert update(stranger, "completed")["code"] == "invocation_unknown"
    assert ask(stranger, "invocation_list")["invocations"] == []
    boss = enter(world, features=("operator", "invoke"), info={"recipientPurpose": "control"})
    assert [each["invocationId"] for each in ask(boss, "invocation_list")["invocations"]] == ["inv-1"]


# --- A3.12, A3.13: terminal wins, equal vanishes --------------------------------------------------------


def test_a_late_update_changes_nothing() -> None:
    """A3.12"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "completed", output="built")
    late = update(builder, "running")
    assert (late["state"], late["changed"]) == ("completed", False)
    assert [note.fields["state"] for note in world.notes if note.event == "late_run_update"] == ["running"]
    other = update(builder, "failed", error="no")
    assert (other["type"], other["code"]) == ("request_failed", "run_terminal")
    assert (run_of(asker)["state"], run_of(asker)["output"]) == ("completed", "built")


def test_what_says_nothing_new_is_not_written() -> None:
    """A3.13"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "waiting", summary="needs a key")
    before = kinds(world)
    assert update(builder, "waiting", summary="needs a key")["changed"] is False
    assert kinds(world) == before


def test_an_equal_row_of_an_address_is_not_written() -> None:
    """A3.13: equal upserts."""
    world = World()
    ada = holder(world, "ada")

    def told() -> list[str]:
        return [event.kind for event in world.disk.journal if event.stream == "address:1"]

    before = told()
    ada.write("join_group", group="default", requestId="g")
    assert told() == before
    ada.write("join_group", group="other", requestId="g")
    assert told() == [*before, "address.moved"]


def test_an_update_made_again_has_the_same_answer() -> None:
    """FE 3.8; under one updateId there is one update, and the first end counts (protocol 13.3)."""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "waiting", key="w", summary="x")
    assert update(builder, "waiting", key="w", summary="y")["code"] == "update_conflict"
    first = update(builder, "completed", key="u", output="x")
    world.start()
    builder = reattach(world, builder)
    again = update(builder, "completed", key="u", output="x")
    assert (again["state"], again["changed"]) == (first["state"], True)
    assert update(builder, "completed", key="u", output="y")["code"] == "run_terminal"
    assert update(builder, "failed", key="u", error="y")["code"] == "run_terminal"
    assert update(builder, "running", key="u")["code"] == "update_conflict"


# --- what becomes of it ---------------------------------------------------------------------------------


def test_a_consultation_needs_an_answer() -> None:
    """FE 3.3: a consult that completes without any output is stored as failed."""
    _, asker, builder = scene()
    invoke(asker, action="consult")
    tasks(builder)
    assert update(builder, "completed", output=" ")["state"] == "failed"
    assert "without an answer" in run_of(asker)["error"]


def test_secrets_are_taken_out() -> None:
    """FE 3.3: known secrets are removed."""
    _, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "completed", output=f"see return-{builder.conn}", summary="ok")
    assert run_of(asker)["output"] == "see [removed]"


def test_a_plain_answer_to_the_task_is_its_result() -> None:
    """FE 5.6: a session without the feature answers as it answers messages."""
    world = World()
    asker, builder = invoker(world), enter(world, "builder")
    invoke(asker)
    [task] = tasks(builder)
    builder.message(asker.id, "m9", "it is built", replyTo=task["message"]["id"])
    [answer] = asker.mail()
    asker.confirm("m9")
    assert answer["message"]["content"]["text"] == "it is built"
    assert (run_of(asker)["state"], run_of(asker)["output"]) == ("completed", "it is built")


def test_a_worker_gets_it_as_an_assignment_whose_end_sets_the_run() -> None:
    """FE 5.6: an inbox item with claimPolicy bound_session; answered -> completed."""
    world = World()
    asker, builder, boss = invoker(world), task_worker(world), coordinator(world)
    answer = invoke(asker)
    assert run_of(asker)["placement"] == "inbox"
    [item] = ask(boss, "inbox_list")["items"]
    assert (item["reason"], item["claimPolicy"], item["inboxId"]) == (
        "invocation",
        "bound_session",
        f"run:{answer['runId']}",
    )
    granted = ask(builder, "inbox_claim", inboxId=item["inboxId"])
    assert run_of(asker)["state"] == "queued"
    report(builder, granted["assignment"], "accepted")
    assert run_of(asker)["state"] == "running"
    report(builder, granted["assignment"], "waiting_for_capability")
    assert run_of(asker)["state"] == "waiting"
    reply(builder, granted["assignment"], "built")
    run = run_of(asker)
    assert (run["state"], run["output"]) == ("completed", "built")
    assert ask(boss, "inbox_list")["items"] == []


@pytest.mark.parametrize(
    ("reported", "state", "said"),
    [
        ({"state": "failed", "detail": "no compiler"}, "failed", "no compiler"),
        ({"state": "expired"}, "failed", "expired"),
    ],
)
def test_a_worker_that_fails_lets_the_run_fail(reported: dict[str, Any], state: str, said: str) -> None:
    """FE 5.6: failed -> failed"""
    world = World()
    asker, builder = invoker(world), task_worker(world)
    answer = invoke(asker)
    granted = ask(builder, "inbox_claim", inboxId=f"run:{answer['runId']}")
    report(builder, granted["assignment"], "accepted")
    report(builder, granted["assignment"], **reported)
    assert (run_of(asker)["state"], run_of(asker)["error"]) == (state, said)


def test_a_worker_may_report_on_the_run_instead() -> None:
    """FE 3.7: the target session may update runs handed to it; its assignment follows."""
    world = World()
    asker, builder = invoker(world), task_worker(world)
    answer = invoke(asker)
    inbox_id = f"run:{answer['runId']}"
    granted = ask(builder, "inbox_claim", inboxId=inbox_id)
    assert update(builder, "running", summary="begun")["state"] == "running"
    shown = ask(builder, "assignment_show", assignmentId=granted["assignment"]["assignmentId"])
    assert shown["assignment"]["accepted"] is True
    update(builder, "completed", output="built")
    assert ask(builder, "assignment_list")["assignments"] == []
    assert run_of(asker)["output"] == "built"


def test_lost_work_is_failed_until_it_is_reported_after_all() -> None:
    """FE 5.6: ambiguous -> failed with reason unless reported later."""
    world = World()
    asker, builder = invoker(world), task_worker(world)
    answer = invoke(asker)
    granted = ask(builder, "inbox_claim", inboxId=f"run:{answer['runId']}")
    report(builder, granted["assignment"], "accepted")
    builder.write("unregister")
    run = run_of(asker)
    assert (run["state"], run["reconciled"]) == ("failed", True)


def test_a_push_of_an_assignment_tells_of_the_invocation() -> None:
    world = World()
    asker, builder, boss = invoker(world), task_worker(world), coordinator(world)
    answer = invoke(asker)
    inbox_id = f"run:{answer['runId']}"
    assert begin(boss, "inbox_dispatch", inboxId=inbox_id, targetSessionId=builder.id) == []
    [frame] = builder.mail()
    assert frame["assignment"]["inboxId"] == inbox_id
    assert frame["invocation"]["invocationId"] == "inv-1"
    builder.confirm(inbox_id)
    later(boss)


# --- cancel ---------------------------------------------------------------------------------------------


def test_what_nobody_has_is_cancelled_at_once() -> None:
    """FE 3.4 Cancel"""
    world, asker, builder = scene()
    builder.leave()
    invoke(asker)
    assert ask(asker, "invocation_cancel", invocationId="inv-1", reason="not needed")["state"] == "cancelled"
    assert tasks(reattach(world, builder)) == []
    assert (run_of(asker)["state"], run_of(asker)["error"]) == ("cancelled", "not needed")
    assert ask(asker, "invocation_cancel", invocationId="inv-1")["code"] == "run_terminal"


def test_what_is_parked_is_cancelled_at_once() -> None:
    """FE 3.4 Cancel"""
    world = World()
    asker, _, boss = invoker(world), task_worker(world), coordinator(world)
    invoke(asker)
    assert ask(asker, "invocation_cancel", invocationId="inv-1")["state"] == "cancelled"
    assert ask(boss, "inbox_list")["items"] == []


def test_who_has_it_is_asked_once_to_stop() -> None:
    """FE 3.4 Cancel"""
    _, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    for _ in range(2):
        assert ask(asker, "invocation_cancel", invocationId="inv-1", reason="not needed")["state"] == "running"
    [notice] = builder.mail()
    assert notice["invocation"]["cancelled"] is True and "not needed" in notice["message"]["content"]["text"]
    builder.confirm(notice["message"]["id"])
    assert run_of(asker)["cancelAskedAt"]
    update(builder, "cancelled")
    assert run_of(asker)["state"] == "cancelled"


def test_only_who_asked_may_cancel() -> None:
    """FE 3.7"""
    _, asker, builder = scene()
    invoke(asker)
    assert ask(builder, "invocation_cancel", invocationId="inv-1")["code"] == "not_allowed"
    assert update(asker, "completed")["code"] == "not_allowed"


# --- time -----------------------------------------------------------------------------------------------


def test_a_run_whose_target_is_gone_fails_after_a_while() -> None:
    """FE 3.3: evidence target is gone, 120,000 ms grace over."""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    builder.write("unregister")
    world.pass_time(LIMITS.run_stale_ms)
    assert run_of(asker)["state"] == "running"
    world.pass_time(2 * LIMITS.job_retry_ms)
    run = run_of(asker)
    assert (run["state"], run["reconciled"]) == ("failed", True)
    assert "did not finish" in run["error"]
    assert not world.broker._invoking.dispatching._gone_since, "nobody is looked for any more"


@pytest.mark.parametrize("end", ["killed", "restarted broker"])
def test_a_run_whose_worker_was_lost_fails_until_somebody_reports_under_its_address(end: str) -> None:
    """FE 3.3: no active work here, 120,000 ms grace over: reconciled, so that a later real update undoes it."""
    world = World()
    asker, first = invoker(world), holder(world, "builder", features=INVOKER)
    token = first.registered["addressToken"]
    invoke(asker)
    tasks(first)
    first.leave()
    if end == "killed":
        world.judge(first.id, is_alive=False)
    else:
        world.start()
        asker = reattach(world, asker)
        world.pass_time(LIMITS.grace_ms - LIMITS.job_retry_ms)
    world.pass_time(LIMITS.run_stale_ms)
    assert run_of(asker)["state"] == "running", "somebody may come back under its address"
    world.pass_time(2 * LIMITS.job_retry_ms)
    run = run_of(asker)
    assert (run["state"], run["reconciled"]) == ("failed", True)
    assert "ended without a report" in run["error"]
    second = holder(world, "builder", token, features=INVOKER)
    assert tasks(second) == [], "it was confirmed: nobody is handed it again"
    assert update(second, "completed", output="built")["state"] == "completed"
    run = run_of(asker)
    assert (run["state"], run["output"], run.get("reconciled", False)) == ("completed", "built", False)


@pytest.mark.parametrize("said", ["failed", "completed"])
def test_what_was_assumed_may_turn_out_to_be_so(said: str) -> None:
    """FE 3.3: a real update counts whatever it says; a consultation that ends without an answer has failed"""
    world = World()
    asker, first = invoker(world), holder(world, "builder", features=INVOKER)
    invoke(asker, action="consult")
    tasks(first)
    first.leave()
    world.judge(first.id, is_alive=False)
    world.pass_time(LIMITS.run_stale_ms + 2 * LIMITS.job_retry_ms)
    assert run_of(asker)["reconciled"] is True
    second = holder(world, "builder", first.registered["addressToken"], features=INVOKER)
    assert update(second, said, error="the build broke")["state"] == "failed"
    run = run_of(asker)
    assert (run["state"], run["error"], run.get("reconciled", False)) == ("failed", "the build broke", False)
    assert update(second, "completed", output="built")["code"] == "run_terminal"


@pytest.mark.parametrize("how", ["comes back", "left by itself"])
def test_a_run_stays_with_an_address_whose_worker_comes_back_or_has_left(how: str) -> None:
    """Design section 7: a command acts under an address and ends; what it was given is the address's."""
    world = World()
    asker, first = invoker(world), holder(world, "builder", features=INVOKER)
    token = first.registered["addressToken"]
    invoke(asker)
    tasks(first)
    if how == "comes back":
        first.leave()
        world.judge(first.id, is_alive=False)
        world.pass_time(LIMITS.run_stale_ms - LIMITS.job_retry_ms)
        holder(world, "builder", token, features=INVOKER)
    else:
        first.write("unregister")
    world.pass_time(3 * LIMITS.run_stale_ms)
    assert run_of(asker)["state"] == "running"


def test_what_nobody_took_in_its_time_has_failed() -> None:
    """A task is not obeyed hours too late."""
    world, asker, builder = scene()
    builder.leave()
    invoke(asker, timeoutMs=60_000)
    world.pass_time(60_001)
    assert run_of(asker)["state"] == "failed"
    assert tasks(reattach(world, builder)) == []


def test_what_ended_long_ago_is_forgotten() -> None:
    """FE open point 24: invocations and diagnoses 14 days."""
    world, asker, builder = scene()
    invoke(asker)
    invoke(asker, "@nobody", "inv-2")
    tasks(builder)
    update(builder, "completed")
    world.start()
    world.pass_time(LIMITS.invocation_kept_ms + 2 * LIMITS.tidy_ms)
    assert world.disk.invocations == {} and world.disk.diagnoses == {}


def test_texts_are_deleted_a_day_after_the_end() -> None:
    """design section 5, Privacy"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "completed", output="secret plan")
    world.start()
    world.pass_time(LIMITS.bodies_kept_ms + 2 * LIMITS.tidy_ms)
    shown = snapshot(operator_of(world))
    assert shown["run"]["state"] == "completed"
    assert "output" not in shown["run"] and "task" not in shown["invocation"]


def operator_of(world: World) -> Agent:
    """Register a person's connection that may look at invocations."""
    return enter(world, features=("operator", "invoke"), info={"recipientPurpose": "control"})


@pytest.mark.parametrize(
    ("action", "state", "is_there"),
    [("refuse", "failed", False), ("hold", "queued", False), ("accept", "running", True)],
)
def test_a_policy_of_the_target_holds_for_tasks(action: str, state: str, is_there: bool) -> None:
    """protocol 15.2: what the recipient does not let through is not handed over."""
    world = World()
    asker = invoker(world)
    builder = enter(world, "builder", features=("session.lifecycle", "push.receipts", "queue", "policy"))
    ask(builder, "policy_set", policy={"rules": [{"action": action}]})
    invoke(asker)
    assert bool(tasks(builder)) is is_there
    assert run_of(asker)["state"] == state


def test_a_task_of_a_session_that_ended_waits_in_the_inbox() -> None:
    """protocol 10.2.1: mail of a session that was closed is parked; any worker may do it, and it can be cancelled."""
    world, asker, builder = scene()
    builder.leave()
    invoke(asker)
    invoke(asker, invocation_id="inv-2", target=builder.id)
    world.pass_time(LIMITS.grace_ms + 1)
    worker = task_worker(world, "w")
    items = ask(operator(world), "inbox_list")["items"]
    assert [item["reason"] for item in items] == ["closed_session_continuation"] * 2
    assert ask(asker, "invocation_cancel", invocationId="inv-2")["state"] == "cancelled"
    granted = ask(worker, "inbox_claim", inboxId=items[0]["inboxId"])
    assert granted["invocation"]["invocationId"] == "inv-1"
    assert granted["message"]["content"]["text"] == "build it"
    update(worker, "completed", output="built")
    assert run_of(asker)["output"] == "built"
    assert ask(operator(world), "inbox_list")["items"] == []


def test_mail_whose_end_cannot_be_recorded_leaves_the_run_as_it_was() -> None:
    """design section 3.6: what could not be recorded is taken back, the run with its message."""
    world, asker, builder = scene()
    invoke(asker)
    [message] = builder.mail()
    world.auto = False
    builder.write("received", messageId=message["message"]["id"])
    world.fail_commit()
    world.auto = True
    world.settle()
    assert run_of(asker)["state"] == "queued"
    world.pass_time(LIMITS.mail_retry_ms)
    assert run_of(asker)["state"] == "running", "the receipt is recorded a little later"


def test_the_oldest_that_ended_gives_way() -> None:
    """Charge before you link: what is remembered is bounded."""
    world = World(limits=Limits(invocations_kept=2))
    asker, builder = invoker(world), invoker(world, "builder")
    for number in range(3):
        invoke(asker, invocation_id=f"i{number}")
        tasks(builder)
        update(builder, "completed", f"i{number}")
    assert [each["invocationId"] for each in ask(asker, "invocation_list")["invocations"]] == ["i2", "i1"]
    assert len(world.disk.invocations) == 2


def test_open_invocations_are_bounded() -> None:
    world = World(limits=Limits(invocations=1))
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker)
    refused = invoke(asker, invocation_id="i2")
    assert (refused["code"], refused["retryable"]) == ("capacity", True)
    tasks(builder)
    update(builder, "completed")
    assert invoke(asker, invocation_id="i2")["state"] == "queued"


def test_a_full_mailbox_lets_the_task_wait() -> None:
    """Rule 2: one that could not be handed over is tried again."""
    world = World(limits=Limits(mailbox_entries=1))
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    invoke(asker)
    invoke(asker, invocation_id="i2")
    assert "placement" not in run_of(asker, "i2")
    back = reattach(world, builder)
    assert len(tasks(back)) == 1
    world.pass_time(LIMITS.mailbox_full_retry_ms + LIMITS.job_retry_ms)
    assert len(tasks(back)) == 1
    assert run_of(asker, "i2")["state"] == "running"


# --- what is pushed -------------------------------------------------------------------------------------


def test_who_is_here_is_handed_the_task_with_the_commit_that_accepts_it() -> None:
    """FE 5.6: push if the session is active and does not pull; one append carries invocation, run and job."""
    world, asker, builder = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    assert asker.got() == [] and builder.mail() == []
    world.commit(1)
    world.take()
    [answer] = asker.got()
    assert (answer["state"], answer["run"]["placement"], answer["run"]["attempts"]) == ("queued", "session", 1)
    [task] = builder.mail()
    assert task["message"]["content"]["text"] == "build it" and "mail" not in task
    assert world.disk.mail == {}


def test_a_task_that_is_not_confirmed_in_time_becomes_mail_its_holder_has() -> None:
    """A3.10: who is busy for long is not written it again and again; its receipt counts whenever it comes."""
    world, asker, builder = scene()
    invoke(asker)
    [task] = builder.mail()
    world.pass_time(LIMITS.push_receipt_ms)
    run = run_of(asker)
    assert (run["state"], run["placement"]) == ("queued", "mailbox")
    world.pass_time(10 * LIMITS.job_lease_ms)
    assert builder.mail() == []
    builder.confirm(task["message"]["id"])
    assert run_of(asker)["state"] == "running" and world.disk.mail == {}


def test_a_task_whose_session_leaves_before_it_confirms_comes_again_when_it_is_back() -> None:
    """A3.1, FE 5.6: a mailbox entry if it is away; under the same id."""
    world, asker, builder = scene()
    invoke(asker)
    [task] = builder.mail()
    builder.leave()
    assert run_of(asker)["placement"] == "mailbox"
    [again] = tasks(reattach(world, builder))
    assert again["message"] == task["message"] and run_of(asker)["state"] == "running"


def test_a_task_does_not_overtake_what_waits() -> None:
    """design section 7: mail is handed over in its order, and nothing that may wait overtakes it."""
    world = World(limits=Limits(mail_offers=1))
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    for number in range(2):
        asker.queue(builder.id, f"m{number}")
    back = reattach(world, builder)
    assert invoke(asker)["run"]["placement"] == "mailbox"
    seen: list[str] = []
    came = [*back.first[1:], *back.mail()]
    while messages := [frame["message"]["id"] for frame in came if frame["type"] == "message"]:
        seen += messages
        came = back.confirm(*messages)
    assert seen == ["m0", "m1", f"run:{run_of(asker)['runId']}"]


def test_no_more_is_written_ahead_of_receipts_than_of_mail() -> None:
    """Charge before you link: what is on its way to one session is bounded."""
    world = World(limits=Limits(mail_offers=2))
    asker, builder = invoker(world), invoker(world, "builder")
    placements = [invoke(asker, invocation_id=f"i{number}")["run"]["placement"] for number in range(3)]
    assert placements == ["session", "session", "mailbox"]
    got = [task["message"]["id"] for _ in range(3) for task in tasks(builder)]
    assert len(got) == len(set(got)) == 3


def test_a_task_that_may_have_arrived_goes_to_nobody_else() -> None:
    """FE 5.7: no second effect; what was written to a session that then left for good is not parked for any worker."""
    world, asker, builder = scene()
    invoke(asker)
    assert len(builder.mail()) == 1
    world.start()
    [mail] = world.disk.mail.values()
    assert mail.offers == 1


def test_an_acceptance_that_fails_pushes_nothing() -> None:
    """design section 3.6: nothing that rested on a failed commit has left."""
    world, asker, builder = scene()
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    world.fail_commit()
    world.auto = True
    world.settle()
    world.pass_time(LIMITS.push_receipt_ms + LIMITS.job_retry_ms)
    assert builder.mail() == [] and world.disk.mail == {} and world.disk.invocations == {}
    assert len(world.broker._sending.offers) == 0


@pytest.mark.parametrize("asked", ["id", "address", "session under an address", "away", "nobody", "control"])
def test_an_exact_id_is_found_as_among_all_candidates(asked: str) -> None:
    """FE 3.4 Resolve target: an exact id of a non-stale target wins."""
    world = World()
    asker, plain, named = invoker(world), invoker(world, "builder"), holder(world, "builder")
    away = invoker(world, "away")
    away.leave()
    control = enter(world, features=("operator", "invoke"), info={"recipientPurpose": "control"})
    ids = {
        "id": plain.id,
        "address": "address:1",
        "session under an address": named.id,
        "away": away.id,
        "nobody": "no-such-id",
        "control": control.id,
    }
    targets = world.broker._invoking._requests._targets
    session = world.broker._registry.sessions.get(asker.id)
    assert session is not None
    found = targets.find(ids[asked], session)
    assert found.session is (world.broker._registry.sessions.get(plain.id) if asked == "id" else None)
    assert replace(found, session=None) == resolve(ids[asked], targets.candidates(session))
    assert (found.candidate is None) is (asked in ("nobody", "control"))


# --- what is reported after all, and what the operator may ----------------------------------------------


def test_a_report_undoes_what_the_broker_had_to_assume() -> None:
    """FE 3.3: a target that was gone reports after all; a failure that somebody reported stays."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder", address={"name": "builder", "token": "t" * 64})
    builder.leave()
    invoke(asker)
    builder = reattach(world, builder)
    tasks(builder)
    builder.write("unregister")
    world.pass_time(LIMITS.run_stale_ms + 2 * LIMITS.job_retry_ms)
    assert run_of(asker)["state"] == "running", "its address is there, and may be held again"
    again = invoker(world, "builder", address={"name": "builder", "token": "t" * 64})
    update(again, "completed", output="built")
    assert (run_of(asker)["state"], run_of(asker)["output"]) == ("completed", "built")


def test_interrupted_work_that_is_reported_after_all_counts() -> None:
    """FE 5.6: ambiguous -> failed with reason unless reported later."""
    world = World()
    asker = invoker(world)
    builder = task_worker(world)
    answer = invoke(asker)
    granted = ask(builder, "inbox_claim", inboxId=f"run:{answer['runId']}")
    report(builder, granted["assignment"], "accepted")
    builder.leave()
    peer = PeerCredentials(pid=99, uid=1000, gid=1000, started=8)
    again = task_worker(world, peer=peer, preferredSessionId=builder.id, ownerToken=builder.token)
    assert again.id == builder.id, "it was restarted under its old id"
    run = run_of(asker)
    assert (run["state"], run["reconciled"]) == ("failed", True) and "not known how far" in run["error"]
    assert update(again, "completed", output="built")["state"] == "completed"
    run = run_of(asker)
    assert (run["state"], run["output"], run.get("reconciled", False)) == ("completed", "built", False)
    assert update(again, "failed", error="no")["code"] == "run_terminal"


def test_the_operator_may_do_all() -> None:
    """FE 3.7"""
    world, asker, builder = scene()
    boss = operator_of(world)
    invoke(asker)
    tasks(builder)
    assert snapshot(boss)["run"]["state"] == "running"
    assert update(boss, "waiting", summary="held")["state"] == "waiting"
    assert ask(boss, "invocation_cancel", invocationId="inv-1")["state"] == "waiting"
    assert run_of(asker)["cancelAskedAt"]


def test_one_who_stops_to_wait_changes_nothing() -> None:
    """FE 3.4 Requester wait: a caller that leaves never changes the run, and finds it when it is back."""
    world, asker, builder = scene()
    invoke(asker)
    asker.leave()
    tasks(builder)
    update(builder, "completed", output="built")
    assert run_of(reattach(world, asker))["output"] == "built"


def test_a_view_has_the_texts_also_of_what_is_still_being_recorded() -> None:
    """design section 4: texts are read up to what was committed when they were asked for."""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    world.auto = False
    builder.write("run_update", requestId="1", invocationId="inv-1", updateId="1", state="waiting")
    asker.write("invocation_get", requestId="g", invocationId="inv-1")
    builder.write("run_update", requestId="2", invocationId="inv-1", updateId="2", state="completed", output="built")
    world.commit(1)
    world.read()
    world.commit()
    world.auto = True
    world.settle()
    [shown] = [frame for frame in asker.got() if frame.get("requestId") == "g"]
    assert (shown["run"]["state"], shown["run"]["output"]) == ("completed", "built")


def test_a_task_waits_in_no_mailbox_of_a_session_that_was_never_told_that_it_is_one() -> None:
    """FE 3.3: its target is gone, and nobody would ever open that mailbox"""
    world = World()
    asker = invoker(world)
    world.auto = False
    conn = world.connect(PEER)
    session = {**INFO, "name": "builder"}
    request = {"acknowledgesReceipt": True, "features": list(INVOKER), "clientProtocolVersion": "1.0", "kind": "custom"}
    world.send(conn, type="register", session=session, **request)
    asker.write("invoke", requestId="r", invocationId="inv-1", target="@builder", task="build it")
    world.commit()
    world.perform(world.broker.stop(world.now))
    world.lose(conn)
    world.commit()
    assert [one.closed_reason for one in world.disk.known_sessions.values() if one.session_id != asker.id] == [
        "never_told"
    ]
    assert world.disk.mail == {}
    world.auto = True
    world.start()
    asker = reattach(world, asker)
    world.pass_time(LIMITS.run_stale_ms + 2 * LIMITS.job_retry_ms)
    assert run_of(asker)["state"] == "failed"
