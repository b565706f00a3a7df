"""The acceptance scenarios of work: A1.5 to A1.16, A1.18, in the core alone."""

from __future__ import annotations

import pytest

from intercom.limits import Limits
from tests.core.harness import World, answers, only, reason
from tests.core.mail import Agent, enter, operator, reattach
from tests.core.work import (
    WORKER,
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

ACCEPT_MS = Limits().accept_ms


def scene(mode: str = "resident") -> tuple[World, Agent, Agent]:
    """Return a world with a worker and a coordinator."""
    world = World()
    return world, worker(world, mode=mode), coordinator(world)


# --- A1.5: what is parked -------------------------------------------------------------------------------


def test_a_first_message_to_a_worker_is_parked_with_the_hint() -> None:
    """A1.5"""
    world, target, boss = scene()
    parked(world, target, "m1", "please\nreview")
    assert target.mail() == []
    [item] = items(boss)
    assert (item["inboxId"], item["reason"], item["claimPolicy"]) == ("m1", "unaddressed", "bound_session")
    assert (item["originalTargetSessionId"], item["contentPreview"]) == (target.id, "please\nreview")


def test_a_continuation_is_pushed() -> None:
    """A1.5: a message with a correlation that the session itself issued."""
    world = World()
    target, sender = worker(world, executionSurface="headless"), enter(world, "s")
    target.queue(sender.id, "mine")
    sender.confirm("mine")
    sender.queue(target.id, "m1", replyTo="unknown")
    assert target.mail() == []
    sender.attempts += 1
    frame = {"id": "m2", "timestamp": 5, "content": {"text": "x"}, "replyTo": "mine"}
    assert answers(sender.write("send", to=target.id, message=frame, queueIfAway=True)) == []
    [message] = target.mail()
    assert message["message"]["id"] == "m2" and "assignment" not in message


@pytest.mark.parametrize(
    ("surface", "feature", "is_pushed"),
    [("headless", False, True), ("owner_attached", True, True), ("owner_attached", False, False)],
)
def test_a_continuation_where_somebody_sits(surface: str, feature: bool, is_pushed: bool) -> None:
    """FE 1.4.5"""
    world = World()
    features = (*WORKER, "push.foreground") if feature else WORKER
    target, sender = worker(world, executionSurface=surface, features=features), enter(world, "s")
    target.queue(sender.id, "mine")
    frame = {"id": "m2", "timestamp": 5, "content": {"text": "x"}, "replyTo": "mine"}
    sender.write("send", to=target.id, message=frame, queueIfAway=True)
    assert bool(target.mail()) is is_pushed
    assert [item["reason"] for item in items(coordinator(world))] == [] if is_pushed else ["correlated_continuation"]


def test_only_the_newest_ids_of_a_worker_make_a_continuation() -> None:
    """A1.5, FE 1.2: a ring; the oldest is evicted."""
    world = World(limits=Limits(sent_ids=2))
    target, sender = worker(world, executionSurface="headless"), enter(world, "s")
    for number in range(3):
        target.queue(sender.id, f"mine{number}")
    for number in range(3):
        frame = {"id": f"m{number}", "timestamp": 5, "content": {"text": "x"}, "replyTo": f"mine{number}"}
        sender.write("send", to=target.id, message=frame, queueIfAway=True)
    assert [frame["message"]["id"] for frame in target.mail()] == ["m1", "m2"]
    assert [item["inboxId"] for item in items(operator(world))] == ["m0"]


def test_an_ask_and_what_must_not_wait_reach_a_worker_at_once() -> None:
    """Nobody waits for the answer to something parked, and who lets nothing wait is not told that it does."""
    world, target, boss = scene()
    sender = enter(world, "s")
    sender.ask(target.id, "q1")
    sender.message(target.id, "m1")
    assert [frame["message"]["id"] for frame in target.mail()] == ["q1", "m1"]
    assert items(boss) == []


def test_a_send_to_a_worker_that_is_away_is_parked_too() -> None:
    """FE 1.4.4"""
    world, target, boss = scene()
    target.leave()
    parked(world, target)
    assert [item["inboxId"] for item in items(boss)] == ["m1"]
    back = reattach(world, target)
    assert back.first[0]["mailboxCount"] == 0


def test_a_retry_of_what_is_parked_is_answered_again() -> None:
    world, target, boss = scene()
    sender = parked(world, target)
    assert only(answers(sender.queue(target.id, "m1", "do it")), "queued")["position"] == 1
    assert reason(sender.queue(target.id, "m1", "something else")).startswith("Intercom message ID 'm1'")
    assert len(items(boss)) == 1


# --- A1.6: the full inbox -------------------------------------------------------------------------------


def full(entries: int = 2) -> tuple[World, Agent, Agent, Agent]:
    world = World(limits=Limits(inbox_entries=entries))
    target, boss, sender = worker(world), coordinator(world), enter(world, "s")
    for number in range(entries):
        sender.queue(target.id, f"m{number}")
    sender.got()
    return world, target, boss, sender


def test_a_full_inbox_refuses_and_evicts_nothing() -> None:
    """A1.6"""
    _world, target, boss, sender = full()
    assert reason(sender.queue(target.id, "more")).startswith("Inbox full")
    assert [item["inboxId"] for item in items(boss)] == ["m0", "m1"]


def test_a_return_into_a_full_inbox_succeeds_at_the_old_place() -> None:
    """A1.6"""
    world, target, boss, sender = full()
    assignment = push(world, boss, target, "m0")
    assert reason(sender.queue(target.id, "more")).startswith("Inbox full")
    world.pass_time(ACCEPT_MS)
    assert [(item["inboxId"], item["claimPolicy"]) for item in items(boss)] == [
        ("m0", "bound_session"),
        ("m1", "bound_session"),
    ]
    assert items(boss)[0]["returnReason"] == "acceptance_timeout"
    assert report(target, assignment, "accepted")["code"] == "assignment_unknown"


def test_a_known_id_replaces_its_slot_even_when_full() -> None:
    """A1.6: here, when nothing is remembered of the first send any more."""
    world, target, boss, sender = full()
    operation = world.broker._messages.operations.by_id("m0")
    assert operation is not None
    world.broker._messages.operations.withdraw(operation)
    assert only(answers(sender.queue(target.id, "m0", "newer")), "queued")
    assert [(item["inboxId"], item["contentPreview"]) for item in items(boss)] == [("m0", "newer"), ("m1", "x")]
    assert ask(boss, "inbox_show", inboxId="m0")["message"]["content"] == {"text": "newer"}


def test_pressure() -> None:
    """FE 1.3: under pressure when count >= floor(0.9 x capacity)."""
    world = World(limits=Limits(inbox_entries=20))
    target, boss, sender = worker(world), coordinator(world), enter(world, "s")
    seen = []
    for number in range(20):
        sender.queue(target.id, f"m{number}")
        seen.append(ask(boss, "inbox_list", limit=1)["underPressure"])
    assert seen == [False] * 17 + [True] * 3


# --- A1.7 and A1.8: not accepted in time ----------------------------------------------------------------


def test_what_is_not_accepted_in_time_goes_back_once() -> None:
    """A1.7"""
    world, target, boss = scene()
    parked(world, target)
    assignment = push(world, boss, target)
    world.pass_time(ACCEPT_MS - 1)
    assert items(boss)[0]["claimPolicy"] == "assigned"
    world.pass_time(1)
    assert items(boss)[0]["claimPolicy"] == "bound_session"
    late = report(target, assignment, "accepted")
    assert (late["code"], late["category"], late["retryable"]) == ("assignment_unknown", "reply_handle_stale", False)
    world.pass_time(10 * ACCEPT_MS)
    assert events_of(world, "m1").count("assignment.target_lost") == 1
    [lost] = [event for event in world.disk.journal if event.kind == "assignment.target_lost"]
    assert lost.detail["reason"] == "acceptance_timeout"


def test_only_the_one_that_timed_out_goes_back() -> None:
    """FE open point 2"""
    world, target, boss = scene()
    sender = parked(world, target)
    sender.queue(target.id, "m2")
    push(world, boss, target)
    world.pass_time(ACCEPT_MS // 2)
    push(world, boss, target, "m2")
    world.pass_time(ACCEPT_MS // 2)
    assert [item["claimPolicy"] for item in items(boss)] == ["bound_session", "assigned"]


def test_a_deadline_of_the_order_and_none() -> None:
    """FE 1.3: unless configured <= 0; FE open point 3: per dispatch."""
    world, target, boss = scene()
    sender = parked(world, target)
    sender.queue(target.id, "m2")
    assert push(world, boss, target, acceptWithinMs=90_000)["acceptDeadline"] == world.wall + 90_000
    assert "acceptDeadline" not in push(world, boss, target, "m2", acceptWithinMs=0)
    world.pass_time(89_999)
    assert [item["claimPolicy"] for item in items(boss)] == ["assigned", "assigned"]
    world.pass_time(1)
    assert [item["claimPolicy"] for item in items(boss)] == ["bound_session", "assigned"]


def test_what_went_back_is_not_handed_to_the_first_when_it_returns() -> None:
    """A1.8"""
    world, target, boss = scene()
    other = worker(world, "other")
    parked(world, target)
    target.leave()
    handed = ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    assert handed["handedTo"] == "mailbox"
    world.pass_time(ACCEPT_MS)
    push(world, boss, other)
    back = reattach(world, target)
    assert back.first[0]["mailboxCount"] == 0
    world.pass_time(1_000)
    assert back.mail() == []


def test_work_handed_over_in_a_mailbox_comes_with_its_assignment() -> None:
    """FE 1.5: a mailbox entry that belongs to an assignment carries it."""
    world, target, boss = scene()
    parked(world, target)
    target.leave()
    handed = ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    back = reattach(world, target)
    [message] = [frame for frame in back.first if frame["type"] == "message"]
    assert message["assignment"]["assignmentId"] == handed["assignmentId"]
    assert message["mail"]["offers"] == 1 and message["pushId"]
    back.confirm("m1")
    assert report(back, message["assignment"], "accepted")["type"] == "assignment_recorded"
    assert world.disk.mail == {}
    assert world.disk.bodies[next(iter(world.disk.inbox))].until is None


def test_an_acceptance_proves_that_the_mail_arrived() -> None:
    world, target, boss = scene()
    parked(world, target)
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    back = reattach(world, target)
    [message] = [frame for frame in back.first if frame["type"] == "message"]
    report(back, message["assignment"], "accepted")
    assert world.disk.mail == {}
    back.leave()
    assert reattach(world, back_of(target, back)).first[0]["mailboxCount"] == 0


def back_of(first: Agent, back: Agent) -> Agent:
    """Return a session under its newest connection with the token it was told first."""
    return Agent(back.world, back.conn, back.id, first.first)


# --- A1.9: orders ---------------------------------------------------------------------------------------


def test_two_orders_with_one_key_are_one() -> None:
    """A1.9"""
    world, target, boss = scene()
    parked(world, target)
    order = {"inboxId": "m1", "targetSessionId": target.id, "idempotencyKey": "k"}
    assert begin(boss, "inbox_dispatch", **order) == []
    assert begin(boss, "inbox_dispatch", **order) == []
    [frame] = target.mail()
    target.confirm("m1")
    first, second = boss.got()
    assert {**first, "requestId": 0} == {**second, "requestId": 0}
    assert first["assignmentId"] == frame["assignment"]["assignmentId"]
    assert ask(boss, "inbox_dispatch", **order)["assignmentId"] == first["assignmentId"]
    assert target.mail() == []
    assert ask(boss, "inbox_dispatch", **{**order, "inboxId": "m2"})["code"] == "order_key_conflict"


def test_after_a_failure_the_same_key_may_succeed() -> None:
    """A1.9"""
    world, target, boss = scene()
    parked(world, target)
    order = {"inboxId": "m1", "targetSessionId": target.id, "idempotencyKey": "k"}
    begin(boss, "inbox_dispatch", **order)
    target.mail()
    world.pass_time(Limits().push_receipt_ms)
    assert later(boss)["code"] == "target_not_writable"
    begin(boss, "inbox_dispatch", **order)
    target.confirm("m1")
    assert later(boss)["type"] == "inbox_dispatched"


def test_an_order_that_was_carried_out_is_known_after_a_restart() -> None:
    """FE 1.5: control orders"""
    world, target, boss = scene()
    parked(world, target)
    assignment = push(world, boss, target, idempotencyKey="k")
    world.crash()
    boss = reattach(world, boss)
    order = {"inboxId": "m1", "targetSessionId": target.id, "idempotencyKey": "k"}
    assert ask(boss, "inbox_dispatch", **order)["assignmentId"] == assignment["assignmentId"]


# --- A1.10: pushes without receipt ----------------------------------------------------------------------


def test_a_push_without_receipt_fails_the_order_and_parks_the_message() -> None:
    """A1.10"""
    world, target, boss = scene()
    parked(world, target)
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.pass_time(Limits().push_receipt_ms - 1)
    assert boss.got() == []
    world.pass_time(1)
    refused = later(boss)
    assert (refused["code"], refused["retryable"]) == ("target_not_writable", True)
    assert refused["category"] == "target_unavailable_before_acceptance"
    assert items(boss)[0]["returnReason"] == "push_not_received"


def test_who_accepted_has_received() -> None:
    """A1.10: but if the session reported accepted meanwhile, it stays accepted."""
    world, target, boss = scene()
    parked(world, target)
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    [frame] = target.mail()
    assert report(target, frame["assignment"], "accepted")["type"] == "assignment_recorded"
    assert later(boss)["handedTo"] == "session"
    world.pass_time(10 * ACCEPT_MS)
    assert ask(target, "assignment_list")["assignments"][0]["accepted"] is True


def test_a_worker_that_leaves_before_its_receipt() -> None:
    """FE 1.3: hand-over failed"""
    world, target, boss = scene()
    parked(world, target)
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    target.leave()
    assert later(boss)["code"] == "target_not_writable"
    assert items(boss)[0]["claimPolicy"] == "bound_session"


# --- A1.11 and A1.12: replies ---------------------------------------------------------------------------


def accepted(sender_features: tuple[str, ...] | None = None) -> tuple[World, Agent, Agent, Agent, dict[str, object]]:
    """Return a world in which a worker has accepted a message: world, worker, coordinator, sender, assignment."""
    world, target, boss = scene()
    if sender_features is None:
        sender = parked(world, target)
    else:
        sender = enter(world, "sender", features=sender_features)
        sender.queue(target.id, "m1", "do it")
    sender.got()
    assignment = push(world, boss, target)
    assert report(target, assignment, "accepted")["stateSequence"] == 2
    return world, target, boss, sender, assignment


def test_one_reply_leaves_however_often_it_is_asked_for() -> None:
    """A1.11"""
    world, target, _boss, sender, assignment = accepted()
    first = [reply(target, assignment) for _ in range(3)]
    assert len({answer["messageId"] for answer in first}) == 1
    [message] = sender.mail()
    assert message["message"]["id"] == first[0]["messageId"]
    assert (message["message"]["replyTo"], message["message"]["content"]) == ("m1", {"text": "done"})
    assert message["from"]["id"] == target.id
    fourth = reply(target, assignment, "other text")
    assert fourth["code"] == "reply_idempotency_conflict"
    world.pass_time(5_000)
    assert sender.mail() == []


def test_a_reply_ends_the_assignment_and_the_message() -> None:
    world, target, boss, sender, assignment = accepted()
    reply(target, assignment)
    assert items(boss) == [] and ask(target, "assignment_list")["assignments"] == []
    assert report(target, assignment, "started")["code"] == "assignment_unknown"
    assert reply(target, assignment, key="q2")["code"] == "assignment_unknown"
    assert only(answers(sender.queue(target.id, "m1", "do it")), "delivered")
    assert world.disk.inbox == {} and world.disk.assignments == {}
    assert events_of(world, "m1")[-2:] == ["assignment.reply_emitted", "inbox.answered"]


def test_a_reply_to_a_sender_that_is_away_waits_for_it() -> None:
    world, target, _boss, sender, assignment = accepted()
    sender.leave()
    assert reply(target, assignment)["status"] == "queued"
    back = reattach(world, sender)
    assert [frame["message"]["replyTo"] for frame in back.first if frame["type"] == "message"] == ["m1"]


def test_the_outcome_of_a_reply_survives_a_restart() -> None:
    """A1.11, FE 1.7"""
    world, target, _boss, _sender, assignment = accepted()
    first = reply(target, assignment)
    world.crash()
    back = reattach(world, target)
    again = reply(back, assignment)
    assert (again["messageId"], again["status"]) == (first["messageId"], first["status"])


def test_a_reply_that_nobody_confirms_is_unknown_and_not_sent_again() -> None:
    """A1.12: a sender that has no mailbox."""
    world, target, _boss, sender, assignment = accepted(("push.receipts", "queue"))
    request = {
        "sourceMessageId": "m1",
        "assignmentId": assignment["assignmentId"],
        "replyRequestId": "q1",
        "content": {"text": "done"},
    }
    assert begin(target, "assignment_reply", **request) == []
    [message] = sender.mail()
    assert message["message"]["replyTo"] == "m1" and "pushId" not in message
    world.pass_time(Limits().push_receipt_ms)
    unknown = later(target)
    assert (unknown["code"], unknown["outcomeUnknown"], unknown["retryable"]) == ("send_outcome_unknown", True, False)
    assert reply(target, assignment)["code"] == "send_outcome_unknown"
    assert sender.mail() == []


def test_a_reply_that_is_confirmed_is_sent() -> None:
    _world, target, boss, sender, assignment = accepted(("push.receipts", "queue"))
    assert (
        begin(
            target,
            "assignment_reply",
            sourceMessageId="m1",
            assignmentId=assignment["assignmentId"],
            replyRequestId="q1",
            content={"text": "done"},
        )
        == []
    )
    [message] = sender.mail()
    sender.confirm(message["message"]["id"])
    answer = later(target)
    assert (answer["status"], answer["messageId"]) == ("sent", message["message"]["id"])
    assert items(boss) == []


def test_a_sender_without_mailbox_that_has_gone_gets_no_reply() -> None:
    _world, target, _boss, sender, assignment = accepted(("push.receipts", "queue"))
    sender.leave()
    assert reply(target, assignment)["code"] == "target_unknown"
    assert ask(target, "assignment_show", assignmentId=assignment["assignmentId"])["assignment"]["accepted"]


def test_a_reply_needs_acceptance() -> None:
    """FE 1.5: reply requires accepted"""
    world, target, boss = scene()
    parked(world, target)
    assignment = push(world, boss, target)
    assert reply(target, assignment)["code"] == "assignment_not_accepted"


def test_a_plain_message_that_answers_ends_it_too() -> None:
    """FE 1.5: a plain send that replies to an accepted assignment also emits reply_emitted"""
    world, target, boss, sender, _assignment = accepted()
    target.message(sender.id, "plain", replyTo="m1")
    assert items(boss)[0]["claimPolicy"] == "assigned"
    sender.confirm("plain")
    assert items(boss) == []
    [emitted] = [event for event in world.disk.journal if event.kind == "assignment.reply_emitted"]
    assert emitted.detail["message"] == "plain"


# --- A1.13: a broker that dies --------------------------------------------------------------------------


def test_what_was_assigned_and_not_pushed_is_offered_again_or_goes_back() -> None:
    """A1.13"""
    for waits in (True, False):
        world, target, boss = scene()
        parked(world, target)
        world.auto = False
        begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
        world.commit()
        [record] = world.disk.assignments.values()
        world.crash()
        world.auto = True
        world.settle()
        if waits:
            world.pass_time(ACCEPT_MS)
        back = reattach(world, target)
        offered = [frame for frame in back.first if frame["type"] == "message"]
        assert [frame["assignment"]["assignmentId"] for frame in offered] == ([] if waits else [record.assignment_id])
        boss = reattach(world, boss)
        assert items(boss)[0]["claimPolicy"] == ("bound_session" if waits else "assigned")


def test_what_was_accepted_stays_accepted() -> None:
    """FE 1.7: after acceptance"""
    world, target, _boss, sender, assignment = accepted()
    world.crash()
    back = reattach(world, target)
    world.pass_time(ACCEPT_MS)
    assert report(back, assignment, "started")["stateSequence"] == 3
    assert reply(back, assignment)["type"] == "assignment_replied"
    assert [frame["message"]["replyTo"] for frame in reattach(world, sender).first if frame["type"] == "message"] == [
        "m1"
    ]


def test_a_graceful_stop_gives_back_what_is_not_accepted() -> None:
    """FE 1.7"""
    world, target, boss, sender, _assignment = accepted()
    sender.queue(target.id, "m2")
    push(world, boss, target, "m2")
    world.stop()
    world.crash()
    world.auto = True
    boss = reattach(world, boss)
    assert [(item["inboxId"], item["claimPolicy"]) for item in items(boss)] == [
        ("m1", "assigned"),
        ("m2", "bound_session"),
    ]
    assert items(boss)[1]["returnReason"] == "broker_shutdown"


# --- A1.14: who may report ------------------------------------------------------------------------------


def test_others_report_nothing() -> None:
    """A1.14"""
    world, target, boss = scene()
    other = worker(world, "other")
    parked(world, target)
    assignment = push(world, boss, target)
    refused = report(other, assignment, "accepted")
    assert (refused["code"], refused["category"]) == ("assignment_target_mismatch", "acceptance_rejected")
    for state in ("assigned", "delivery_attempted", "reply_requested", "reply_emitted", "target_lost"):
        assert report(target, assignment, state)["code"] == "state_broker_owned"
    assert reply(other, assignment)["code"] == "assignment_target_mismatch"
    assert ask(boss, "assignment_show", assignmentId=assignment["assignmentId"])["assignment"]["stateSequence"] == 1
    conn = world.connect()
    answers = world.send(conn, type="session_reattach", requestId="r", sessionId=target.id, ownerToken="wrong")
    assert answers[0]["code"] == "not_owner"


def test_sequences_and_repeated_reports() -> None:
    """FE 1.5, 1.9"""
    _world, target, _boss, _sender, assignment = accepted()
    assert report(target, assignment, "started", "e1", stateSequence=9)["stateSequence"] == 9
    assert report(target, assignment, "started", "e2", stateSequence=9)["code"] == "sequence_stale"
    assert report(target, assignment, "started", "e1", stateSequence=9)["stateSequence"] == 9
    assert report(target, assignment, "interrupted", "e1")["code"] == "state_event_conflict"
    assert report(target, assignment, "interrupted", "e3")["stateSequence"] == 10


def test_a_repeated_last_report_is_answered_as_the_first() -> None:
    world, target, _boss, _sender, assignment = accepted()
    first = report(target, assignment, "failed", "end", reasonCode="broken")
    assert report(target, assignment, "failed", "end", reasonCode="broken")["stateSequence"] == first["stateSequence"]
    assert world.disk.inbox == {}


@pytest.mark.parametrize(
    ("state", "more", "is_parked"),
    [
        ("failed", {"retryable": True}, True),
        ("failed", {}, False),
        ("waiting_for_capability", {}, True),
        ("expired", {}, False),
    ],
)
def test_reports_before_acceptance(state: str, more: dict[str, bool], is_parked: bool) -> None:
    """FE 1.3; design section 7: failed(retryable) returns"""
    world, target, boss = scene()
    parked(world, target)
    assignment = push(world, boss, target)
    assert report(target, assignment, state, **more)["type"] == "assignment_recorded"
    assert [item["claimPolicy"] for item in items(boss)] == (["bound_session"] if is_parked else [])
    assert report(target, assignment, "accepted")["code"] == "assignment_unknown"


@pytest.mark.parametrize("state", ["started", "interrupted"])
def test_work_that_is_not_accepted_has_not_begun(state: str) -> None:
    world, target, boss = scene()
    parked(world, target)
    assert report(target, push(world, boss, target), state)["code"] == "assignment_not_accepted"


@pytest.mark.parametrize("state", ["failed", "expired"])
def test_reports_that_end_accepted_work(state: str) -> None:
    """FE 1.3: accepted work that fails is not returned, retryable or not"""
    world, target, boss, _sender, assignment = accepted()
    report(target, assignment, state, retryable=True)
    assert items(boss) == []
    assert events_of(world, "m1")[-1] == f"inbox.{state}"


# --- A1.15 and A1.16: mailboxes and second connections --------------------------------------------------


def test_work_does_not_overtake_the_mailbox() -> None:
    """A1.15: two entries wait; a third message comes while they are read."""
    world, target, boss = scene()
    sender = parked(world, target)
    target.leave()
    for number in (2, 3):
        sender.queue(target.id, f"m{number}")
    for name in ("m1", "m2"):
        assert ask(boss, "inbox_dispatch", inboxId=name, targetSessionId=target.id)["handedTo"] == "mailbox"
    world.auto = False
    back = reattach(world, target)
    begin(boss, "inbox_dispatch", inboxId="m3", targetSessionId=target.id)
    world.auto = True
    world.settle()
    frames = [*back.first, *back.got()]
    assert [frame["message"]["id"] for frame in frames if frame["type"] == "message"] == ["m1", "m2", "m3"]


def test_the_receipts_of_a_replaced_connection_do_not_count() -> None:
    """A1.16"""
    world, target, boss = scene()
    parked(world, target)
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    [frame] = target.mail()
    back = reattach(world, target)
    assert later(boss)["code"] == "target_not_writable"
    assert [known.state.value for known in world.disk.known_sessions.values() if known.session_id == target.id] == [
        "active"
    ]
    back.confirm("m1")
    assert report(back, frame["assignment"], "accepted")["code"] == "assignment_unknown"


# --- A1.18: clients without features --------------------------------------------------------------------


def test_an_older_client_meets_none_of_it() -> None:
    """A1.18"""
    world, target, boss = scene()
    old = world.register("old")
    sent = answers(old.message(target.id, "m1"))
    [message] = target.mail()
    assert set(message) == {"type", "from", "message"}
    assert sent == [] and answers(old_after(target, old, "m1")) == [
        {"type": "delivered", "messageId": "m1", "attemptId": f"{old.conn}.1"}
    ]
    old.message(target.id, "m2", extra={"queueIfAway": True})
    assert [frame["message"]["id"] for frame in target.mail()] == ["m2"]
    assert items(boss) == []
    for kind in ("inbox_list", "inbox_presence", "assignment_list"):
        [refused] = old.write(kind, requestId="r")
        assert refused["code"] == "feature_not_granted"


def old_after(target: Agent, old: object, message_id: str) -> list[dict[str, object]]:
    target.confirm(message_id)
    return old.got()  # type: ignore[attr-defined, no-any-return]


def test_a_worker_needs_its_mode() -> None:
    """FE 1.2: work.assignments and a valid workMode"""
    for members in (
        {},
        {"workMode": "sometimes"},
        {"workMode": "managed_turn"},
        {"workMode": "resident", "executionSurface": "x"},
    ):
        world = World()
        conn = world.connect()
        session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}
        request = {
            "features": list(WORKER),
            "clientProtocolVersion": "1.0",
            "kind": "custom",
            "acknowledgesReceipt": True,
            "returnAddress": "r",
        }
        [refused] = world.send(conn, type="register", session=session, **request, **members)
        assert (refused["type"], refused["code"]) == ("registration_failed", "bad_request")
