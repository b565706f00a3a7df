"""What becomes of work and mail when sessions end, who may take what, waiting for work, and disks that fail."""

from __future__ import annotations

import pytest

from intercom.core.connections import PeerCredentials
from intercom.core.records import SessionState
from intercom.limits import Limits
from intercom.wire import notices
from tests.core.harness import World, answers, only
from tests.core.mail import AGENT, enter, holder, operator, reattach
from tests.core.work import (
    ask,
    begin,
    coordinator,
    events_of,
    items,
    later,
    parked,
    push,
    reply,
    report,
    worker,
)

GRACE_MS = Limits().grace_ms


# --- the end of sessions --------------------------------------------------------------------------------


def test_a_session_whose_grace_is_over() -> None:
    """A1.2: closed with grace_timeout; what is not accepted is parked again, what is accepted is ambiguous."""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    sender.queue(target.id, "m2")
    report(target, push(world, boss, target, "m1", acceptWithinMs=0), "accepted")
    push(world, boss, target, "m2", acceptWithinMs=0)
    target.leave()
    world.pass_time(GRACE_MS)
    assert world.disk.known_sessions[target.id].closed_reason == "grace_timeout"
    [item] = items(boss)
    assert (item["inboxId"], item["claimPolicy"], item["returnReason"]) == (
        "m2",
        "session_unavailable",
        "session_lost",
    )
    assert events_of(world, "m1")[-2:] == ["assignment.interrupted", "inbox.ambiguous"]
    other = worker(world, "other")
    assert ask(other, "inbox_claim", inboxId="m2")["code"] == "inbox_unknown"
    assert push(world, boss, other, "m2")["sourceMessageId"] == "m2"


def test_mail_of_a_closed_session_is_parked_for_its_groups() -> None:
    """FE 1.3, closing procedure; design section 7"""
    world = World()
    boss, sender, target = coordinator(world), enter(world, "a"), enter(world, "b")
    far = worker(world, "far", info={"groups": ["far"]})
    target.leave()
    sender.queue("b", "m1", "read me")
    world.judge(target.id, is_alive=False)
    [item] = items(boss)
    assert (item["reason"], item["claimPolicy"], item["contentPreview"]) == (
        "closed_session_continuation",
        "any_session",
        "read me",
    )
    assert sender.mail() == [] and world.disk.mail == {}
    assert items(far) == []
    near = worker(world, "near")
    granted = ask(near, "inbox_claim", inboxId="m1")
    assert granted["message"]["content"] == {"text": "read me"}
    assert granted["from"]["id"] == sender.id
    assert events_of(world, "m1")[:3] == ["mail.queued", "mail.parked", "inbox.parked"]


@pytest.mark.parametrize("takes_work", [False, True])
def test_a_retry_of_what_waits_in_the_inbox_finds_it_when_its_target_is_gone(takes_work: bool) -> None:
    """Protocol 9.5.2, 10.2.1: the same message is where it was, whatever became of who it was for."""
    world = World()
    boss, sender = coordinator(world), enter(world, "a")
    target = worker(world, "b") if takes_work else enter(world, "b")
    target.leave()
    sender.queue(target.id, "m1", "read me")
    world.judge(target.id, is_alive=False)
    assert [item["inboxId"] for item in items(boss)] == ["m1"]
    sender.got()
    again = only(answers(sender.queue(target.id, "m1", "read me")))
    assert (again["type"], again["messageId"]) == ("queued", "m1")
    other = only(answers(sender.queue(target.id, "m1", "something else")))
    assert other["type"] == "delivery_failed"
    assert [item["inboxId"] for item in items(boss)] == ["m1"]


def test_mail_that_does_not_fit_is_given_up_and_told() -> None:
    """FE open point 1: if the inbox is full, the sender is told."""
    world = World(limits=Limits(inbox_entries=1))
    boss, sender, target = coordinator(world), enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    world.judge(target.id, is_alive=False)
    assert [item["inboxId"] for item in items(boss)] == ["m1"]
    [told] = sender.mail()
    assert told["notice"]["messageId"] == "m2"
    assert told["notice"]["reason"] == notices.session_closed("process_exit")


def test_mail_that_may_have_been_seen_is_not_parked() -> None:
    """Only what was never written to the session goes to somebody else."""
    world = World()
    boss, sender, target = coordinator(world), enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    reattach(world, target)
    world.end(world.connections)
    world.judge(target.id, is_alive=False)
    assert items(boss) == []
    assert [frame["notice"]["messageId"] for frame in sender.mail()] == ["m1"]


def test_what_was_written_to_a_session_that_left_is_not_parked() -> None:
    """It may have been seen, although it never was mail before."""
    world = World()
    boss, sender, target = coordinator(world), enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    target.leave()
    world.judge(target.id, is_alive=False)
    assert items(boss) == []
    assert [frame["notice"]["messageId"] for frame in sender.mail()] == ["m1"]


def test_mail_of_an_address_that_nobody_fetched_is_parked() -> None:
    """Design section 7: mail of an address nobody claimed in time"""
    world = World(limits=Limits(mail_ttl_ms=1_000))
    first, sender, boss = holder(world, "box"), enter(world, "a"), coordinator(world)
    first.write("unregister")
    sender.queue("box", "m1")
    world.pass_time(1_000)
    [item] = items(boss)
    assert (item["reason"], item["originalTargetAddress"]) == ("unaddressed", "box")
    assert sender.mail() == []
    world.pass_time(1_000)
    assert [frame["notice"]["reason"] for frame in sender.mail()] == [notices.NEVER_TAKEN]
    assert items(boss) == [] and world.disk.inbox == {}


def test_mail_for_the_person_is_for_nobody_else() -> None:
    world = World(limits=Limits(mail_ttl_ms=1_000))
    sender = enter(world, "a")
    sender.queue("@me", "m1")
    world.pass_time(1_000)
    assert items(operator(world)) == []
    assert [frame["notice"]["reason"] for frame in sender.mail()] == [notices.NEVER_FETCHED]


def test_another_process_does_not_have_the_work_of_the_one_before() -> None:
    """FE open point 6"""
    world = World()
    target, boss = worker(world), coordinator(world)
    parked(world, target)
    assignment = push(world, boss, target)
    report(target, assignment, "accepted")
    target.leave()
    peer = PeerCredentials(pid=99, uid=1000, gid=1000, started=8)
    again = worker(world, peer=peer, preferredSessionId=target.id, ownerToken=target.token)
    assert again.id == target.id
    assert report(again, assignment, "started")["code"] == "assignment_unknown"
    assert events_of(world, "m1")[-1] == "inbox.ambiguous"


def test_the_same_process_that_registers_again_goes_on() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    parked(world, target)
    assignment = push(world, boss, target)
    report(target, assignment, "accepted")
    target.leave()
    again = worker(world, preferredSessionId=target.id, ownerToken=target.token)
    assert report(again, assignment, "started")["type"] == "assignment_recorded"


def test_what_is_valid_for_a_time_is_never_handed_over_later() -> None:
    """Design section 7, Freshness"""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = enter(world, "s")
    sender.queue(target.id, "m1", validFor=5_000)
    sender.queue(target.id, "m2", validFor=5_000)
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.pass_time(5_000)
    assert [frame["notice"]["kind"] for frame in sender.mail()] == ["expired", "expired"]
    assert items(boss) == []
    assert reattach(world, target).first[0]["mailboxCount"] == 0


# --- who may --------------------------------------------------------------------------------------------


def test_a_coordinator_hands_out_in_its_groups_only() -> None:
    """FE 1.8"""
    world = World()
    target = worker(world)
    far = coordinator(world, "far", info={"groups": ["far"]})
    parked(world, target)
    assert items(far) == []
    assert ask(far, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)["code"] == "inbox_unknown"
    boss = coordinator(world, "boss")
    distant = worker(world, "distant", info={"groups": ["far"]})
    assert ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=distant.id)["code"] == "target_unknown"
    assert len(items(operator(world))) == 1


def test_a_session_without_the_feature_takes_nothing() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    plain = enter(world, "plain")
    parked(world, target)
    refused = ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=plain.id)
    assert (refused["code"], refused["category"]) == ("target_not_capable", "target_unavailable_before_acceptance")
    assert ask(plain, "inbox_claim", inboxId="m1")["code"] == "feature_not_granted"


def test_who_acts_under_the_address_of_a_worker_goes_on_with_its_work() -> None:
    """Commands of an agent are sessions of their own under one address (design section 7, Identity of a command)."""
    world = World()
    features = (*AGENT, "work.assignments")
    host = holder(world, "box", features=features, workMode="resident")
    boss = coordinator(world)
    parked(world, host)
    assignment = push(world, boss, host)
    command = holder(
        world,
        "box",
        host.registered["addressToken"],
        "none",
        features=("push.receipts", *features[2:]),
        workMode="resident",
    )
    assert report(command, assignment, "accepted")["type"] == "assignment_recorded"
    command.write("unregister")
    assert report(host, assignment, "started")["type"] == "assignment_recorded"
    again = holder(
        world,
        "box",
        host.registered["addressToken"],
        "none",
        features=("push.receipts", *features[2:]),
        workMode="resident",
    )
    assert reply(again, assignment)["type"] == "assignment_replied"


# --- claims and waiting ---------------------------------------------------------------------------------


def test_a_claim_repeats_until_it_is_accepted() -> None:
    """FE 1.5"""
    world = World()
    target = worker(world)
    other = worker(world, "other")
    parked(world, target)
    assert ask(other, "inbox_claim", inboxId="m1")["code"] == "inbox_unknown"
    first = ask(target, "inbox_claim", inboxId="m1")
    again = ask(target, "inbox_claim", inboxId="m1")
    assert first["assignment"] == again["assignment"]
    assert first["assignment"]["mode"] == "staged"
    report(target, first["assignment"], "accepted")
    refused = ask(target, "inbox_claim", inboxId="m1")
    assert (refused["code"], refused["category"]) == ("assignment_in_progress", "assignment_in_progress")


def test_an_answer_that_got_lost_costs_only_time() -> None:
    """FE 1.5: the assignment stays and expires by its deadline"""
    world = World()
    target, boss = worker(world), coordinator(world)
    parked(world, target)
    world.auto = False
    begin(target, "inbox_claim", inboxId="m1")
    world.commit()
    target.leave()
    world.auto = True
    world.settle()
    assert items(boss)[0]["claimPolicy"] == "assigned"
    world.pass_time(Limits().accept_ms)
    assert items(boss)[0]["claimPolicy"] == "bound_session"


def test_waiting_for_work_ends_with_work_or_with_time() -> None:
    """FE 1.5: staged delivery"""
    world = World()
    target, boss = worker(world, mode="managed_turn"), coordinator(world)
    assert ask(target, "inbox_await", timeoutMs=0)["type"] == "inbox_nothing"
    assert begin(target, "inbox_await", timeoutMs=60_000) == []
    world.pass_time(Limits().inbox_hold_ms - 1)
    assert target.got() == []
    world.pass_time(1)
    assert later(target)["type"] == "inbox_nothing"
    assert begin(target, "inbox_await", timeoutMs=60_000) == []
    parked(world, target)
    assert ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)["handedTo"] == "staging"
    granted = later(target)
    assert (granted["assignment"]["state"], granted["assignment"]["stateSequence"]) == ("delivery_attempted", 2)
    assert granted["assignment"]["deliveryAttempts"] == 1


def test_a_look_is_no_attempt() -> None:
    """FE 1.5: markAttempt false is a pure look"""
    world = World()
    target, boss = worker(world, mode="managed_turn"), coordinator(world)
    parked(world, target)
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    for _ in range(2):
        looked = ask(target, "inbox_await", timeoutMs=0, markAttempt=False)["assignment"]
        assert (looked["stateSequence"], looked["deliveryAttempts"]) == (1, 0)
    for attempt in (1, 2):
        given = ask(target, "inbox_await", timeoutMs=0)["assignment"]
        assert (given["stateSequence"], given["deliveryAttempts"]) == (1 + attempt, attempt)
    assert report(target, given, "accepted", stateSequence=2)["stateSequence"] == 4
    assert ask(target, "inbox_await", timeoutMs=0)["type"] == "inbox_nothing"


def test_who_waits_with_claim_gets_what_is_parked() -> None:
    world = World()
    target = worker(world)
    begin(target, "inbox_await", timeoutMs=60_000, claim=True)
    parked(world, target)
    granted = later(target)
    assert granted["type"] == "assignment_granted"
    assert ask(target, "inbox_presence") | {"requestId": 0} == {
        "type": "inbox_presence_report",
        "requestId": 0,
        "boundCount": 0,
        "claimableCount": 0,
        "assignedCount": 1,
        "underPressure": False,
    }


def test_what_goes_back_is_given_to_who_waits() -> None:
    world = World()
    first, sender = worker(world, "first"), enter(world, "s")
    gone = enter(world, "gone")
    gone.leave()
    sender.queue("gone", "m1")
    world.judge(gone.id, is_alive=False)
    second = worker(world, "second")
    granted = ask(first, "inbox_claim", inboxId="m1")
    begin(second, "inbox_await", timeoutMs=60_000, claim=True)
    report(first, granted["assignment"], "failed", retryable=True)
    assert later(second)["message"]["id"] == "m1"


def test_one_request_for_work_waits_at_a_time() -> None:
    world = World()
    target = worker(world)
    begin(target, "inbox_await", timeoutMs=60_000)
    ended = begin(target, "inbox_await", timeoutMs=60_000)
    assert [frame["type"] for frame in ended] == ["inbox_nothing"]
    target.leave()
    assert not world.broker._work.handing._waiting


# --- disks that fail ------------------------------------------------------------------------------------


def test_a_send_that_could_not_be_parked_is_not_there() -> None:
    """A5.4"""
    world = World()
    target, boss, sender = worker(world), coordinator(world), enter(world, "s")
    world.auto = False
    sender.queue(target.id, "m1")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(answers(sender.got()))["reason"].startswith("Not recorded")
    assert items(boss) == []
    assert only(answers(sender.queue(target.id, "m1")))["type"] == "queued"


@pytest.mark.parametrize("deed", ["dispatch", "claim", "report", "reply", "settle"])
def test_what_could_not_be_recorded_has_not_happened(deed: str) -> None:
    """A5.4: nothing is acknowledged; the same request succeeds later."""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    who, kind = target, f"inbox_{deed}"
    members: dict[str, object] = {"inboxId": "m1"}
    if deed == "dispatch":
        who, members["targetSessionId"] = boss, target.id
    if deed in ("report", "reply"):
        assignment = push(world, boss, target)
        kind = f"assignment_{deed}"
        members = {"sourceMessageId": "m1", "assignmentId": assignment["assignmentId"]}
        if deed == "report":
            members |= {"stateEventId": "e", "state": "accepted"}
        else:
            report(target, assignment, "accepted")
            members |= {"replyRequestId": "q", "content": {"text": "done"}}
    sender.got()
    before = (dict(world.disk.inbox), dict(world.disk.assignments))
    world.auto = False
    begin(who, kind, **members)
    world.fail_commit()
    world.auto = True
    world.settle()
    refused = later(who)
    assert (refused["code"], refused["retryable"]) == ("not_recorded", True)
    assert (world.disk.inbox, world.disk.assignments) == before
    assert sender.mail() == [] and target.mail() == []
    frames = begin(who, kind, **members)
    if deed == "dispatch":
        target.confirm("m1")
        frames = [later(who)]
    assert "request_failed" not in [frame["type"] for frame in frames]
    assert any("requestId" in frame for frame in frames)


def test_a_deadline_that_could_not_be_recorded_passes_again() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    parked(world, target)
    push(world, boss, target)
    world.auto = False
    world.pass_time(Limits().accept_ms)
    world.fail_commit()
    assert len(world.disk.assignments) == 1
    world.auto = True
    world.pass_time(Limits().mail_retry_ms)
    assert world.disk.assignments == {}
    assert items(boss)[0]["returnReason"] == "acceptance_timeout"


def test_a_closing_that_could_not_be_recorded_is_done_again_with_its_work() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    push(world, boss, target, acceptWithinMs=0)
    sender.queue(target.id, "m2")
    target.leave()
    world.auto = False
    world.judge(target.id, is_alive=False)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert len(world.disk.assignments) == 1
    world.pass_time(Limits().mail_retry_ms)
    assert world.disk.known_sessions[target.id].state is SessionState.CLOSED
    assert world.disk.assignments == {}
    assert [item["claimPolicy"] for item in items(boss)] == ["session_unavailable", "session_unavailable"]


def test_a_text_that_is_lost_is_said() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    world.disk.bodies.clear()
    assert ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)["code"] == "target_not_writable"
    assert [frame["notice"]["reason"] for frame in sender.mail()] == [notices.BODY_LOST]
    assert items(boss) == []


def test_nothing_is_promised_with_a_store_that_cannot_be_used() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    world.auto = False
    begin(boss, "inbox_settle", inboxId="m1")
    world.fail_commit(final=True)
    world.auto = True
    world.settle()
    boss.got()
    assert ask(boss, "inbox_list")["code"] == "store_unusable"
    assert only(answers(sender.queue(target.id, "m9")))["type"] == "delivery_failed"
    world.pass_time(10 * GRACE_MS)


# --- what is told ---------------------------------------------------------------------------------------


def trace(client: object, message_id: str) -> tuple[str, str]:
    answer = ask(client, "trace", messageId=message_id)  # type: ignore[arg-type]
    return answer["state"], answer["where"]


def test_a_trace_tells_where_a_message_is() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    state, where = trace(sender, "m1")
    assert state == "parked" and where.startswith("in the inbox, at place")
    assignment = push(world, boss, target)
    assert trace(sender, "m1")[0] == "assigned"
    assert trace(target, "m1")[1].startswith("in the hands of a worker")
    report(target, assignment, "accepted")
    assert trace(sender, "m1")[0] == "accepted"
    reply(target, assignment)
    assert trace(sender, "m1") == ("answered", "with its recipient, who has answered it")
    [told] = sender.mail()
    assert trace(target, told["message"]["id"])[0] == "offered"


def test_a_trace_of_work_that_came_as_mail() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    reattach(world, target)
    world.send(world.connections, type="received", messageId="m1")
    assert trace(sender, "m1")[0] == "assigned"


@pytest.mark.parametrize(("state", "why"), [("failed", "could not do it"), ("expired", "too old to be of use")])
def test_a_trace_of_work_that_did_not_succeed(state: str, why: str) -> None:
    """Protocol 9.6.3: it is the only place where its sender finds that, so it says so in words."""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    assignment = push(world, boss, target)
    report(target, assignment, "accepted")
    report(target, assignment, state)
    found, where = trace(sender, "m1")[:2]
    assert found == state
    assert why in where and "no message told its sender" in where
    assert sender.mail() == []


def test_what_settled_means() -> None:
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    assert ask(sender, "inbox_settle", inboxId="m1")["code"] == "feature_not_granted"
    assert ask(boss, "inbox_settle", inboxId="m1")["removeReason"] == "handled_no_reply"
    assert ask(boss, "inbox_settle", inboxId="m1")["code"] == "inbox_unknown"
    assert trace(sender, "m1")[0] == "settled"
    assert world.disk.bodies[world.disk.journal[-1].row.number].until is not None  # type: ignore[union-attr]


def test_who_sent_a_message_sees_it_and_settles_nothing() -> None:
    world = World()
    target = worker(world)
    sender = enter(world, "s", features=(*AGENT, "inbox"))
    other = enter(world, "o", features=(*AGENT, "inbox"))
    sender.queue(target.id, "m1", "do it")
    assert [item["contentPreview"] for item in items(sender)] == ["do it"]
    assert items(other) == []
    assert ask(sender, "inbox_settle", inboxId="m1")["code"] == "not_allowed"
    assert ask(other, "inbox_settle", inboxId="m1")["code"] == "inbox_unknown"
    assert len(items(sender)) == 1


def test_a_broker_stays_for_what_is_due_soon() -> None:
    """FE 5.5, A5.8: only parked messages let it leave."""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    assert world.broker.due_soon_count(world.now) == 0
    assignment = push(world, boss, target)
    assert world.broker.due_soon_count(world.now) == 1
    report(target, assignment, "accepted")
    assert world.broker.due_soon_count(world.now) == 0
    sender.queue(target.id, "m2")
    push(world, boss, target, "m2", acceptWithinMs=Limits().due_soon_ms + 1)
    assert world.broker.due_soon_count(world.now) == 0


def test_what_a_worker_says_of_itself_is_shown_and_kept() -> None:
    """FE 1.2"""
    world = World()
    target = worker(world, executionSurface="headless", workspace=" /src ")
    world.crash()
    back = reattach(world, target)
    [entry] = ask(back, "session_records")["sessions"]
    assert (entry["workMode"], entry["executionSurface"]) == ("resident", "headless")
    assert entry["workspace"] == {"root": "/src", "cwd": "/src"}
    sender = enter(world, "s")
    assert only(answers(sender.queue(target.id, "m1")))["type"] == "queued"
    assert back.mail() == []


def test_the_previews_of_mail_are_read_once() -> None:
    world = World()
    boss, sender, target = coordinator(world), enter(world, "a"), enter(world, "b")
    target.leave()
    for number in range(40):
        sender.queue("b", f"m{number}", f"text {number} " + "x" * 100)
    world.judge(target.id, is_alive=False)
    listed = ask(boss, "inbox_list", limit=50)["items"]
    assert [item["contentPreview"][:8].strip() for item in listed[:2]] == ["text 0 x", "text 1 x"]
    assert {len(item["contentPreview"]) for item in listed} == {80}
    world.disk.bodies.clear()
    assert {len(item["contentPreview"]) for item in ask(boss, "inbox_list")["items"]} == {80}
