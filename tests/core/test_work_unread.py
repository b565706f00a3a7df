"""What becomes of work when a text cannot be read: once more a little later, or never."""

from __future__ import annotations

import pytest

from intercom.limits import Limits
from intercom.wire import notices
from tests.core.harness import World, answers, only
from tests.core.mail import Agent, enter, operator, reattach
from tests.core.work import ask, begin, coordinator, items, later, parked, push, reply, report, worker

ACCEPT_MS = Limits().accept_ms


def scene() -> tuple[World, Agent, Agent, Agent]:
    """Return a world with a parked message: world, worker, coordinator, sender."""
    world = World()
    target, boss = worker(world), coordinator(world)
    return world, target, boss, parked(world, target)


def unread(world: World, client: Agent, kind: str, **members: object) -> dict[str, object]:
    """Make a request whose texts cannot be read; return its answer."""
    world.auto = False
    begin(client, kind, **members)
    world.commit()
    world.read(fails=True)
    world.auto = True
    world.settle()
    return later(client)


@pytest.mark.parametrize("kind", ["inbox_show", "inbox_claim"])
def test_what_cannot_be_read_now_is_asked_for_again(kind: str) -> None:
    """FE 1.5: the answer says that it may be repeated, and the next one has the text."""
    world, target, _boss, _sender = scene()
    refused = unread(world, target, kind, inboxId="m1")
    assert (refused["code"], refused["retryable"]) == ("not_read", True)
    assert "do it" in str(ask(target, kind, inboxId="m1"))


def test_a_list_whose_previews_cannot_be_read_is_asked_for_again() -> None:
    """FE 1.5"""
    world, _target, boss, sender = scene()
    gone = enter(world, "gone")
    gone.leave()
    sender.queue("gone", "m2", "read me")
    world.judge(gone.id, is_alive=False)
    refused = unread(world, boss, "inbox_list")
    assert (refused["code"], refused["retryable"]) == ("not_read", True)
    assert [item["contentPreview"] for item in items(boss)] == ["do it", "read me"]


def test_what_is_not_recorded_yet_is_not_shown() -> None:
    """A5.4: nothing is told of what the disk does not hold."""
    world, target, boss, sender = scene()
    world.auto = False
    sender.queue(target.id, "m2")
    begin(boss, "inbox_show", inboxId="m2")
    world.take()
    assert [frame for frame in boss.got() if "requestId" in frame] == []
    world.settle()
    assert later(boss)["code"] == "not_read"
    assert ask_settled(world, boss, "m2")["type"] == "inbox_item"


def ask_settled(world: World, client: Agent, inbox_id: str) -> dict[str, object]:
    world.auto = True
    return ask(client, "inbox_show", inboxId=inbox_id)


def test_nobody_is_shown_what_is_not_there() -> None:
    """FE 1.5"""
    _world, target, boss, _sender = scene()
    assert ask(boss, "inbox_show", inboxId="m9")["code"] == "inbox_unknown"
    assert ask(target, "assignment_show", assignmentId="none")["code"] == "assignment_unknown"


def test_the_text_of_a_claim_is_lost() -> None:
    """FE 1.4: the sender is told once, and nobody gets an empty message."""
    world, target, boss, sender = scene()
    world.disk.bodies.clear()
    assert ask(target, "inbox_claim", inboxId="m1")["code"] == "inbox_unknown"
    assert [frame["notice"]["reason"] for frame in sender.mail()] == [notices.BODY_LOST]
    assert items(boss) == [] and world.disk.assignments == {}


def test_the_text_of_accepted_work_is_lost() -> None:
    """FE 1.3: what was accepted stays with its worker although its text cannot be granted again."""
    world, target, _boss, sender = scene()
    world.auto = False
    begin(target, "inbox_claim", inboxId="m1")
    world.commit()
    [record] = world.disk.assignments.values()
    assignment = {"sourceMessageId": "m1", "assignmentId": record.assignment_id}
    begin(target, "assignment_report", **assignment, stateEventId="e", state="accepted")
    world.commit()
    world.disk.bodies.clear()
    world.auto = True
    world.settle()
    assert "inbox_unknown" in [frame.get("code") for frame in target.got()]
    assert len(world.disk.assignments) == 1
    assert sender.mail() == []


def test_a_push_that_cannot_be_read_goes_back() -> None:
    """FE 1.3: hand-over failed"""
    world, target, boss, _sender = scene()
    refused = unread(world, boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    assert (refused["code"], refused["retryable"]) == ("target_not_writable", True)
    assert target.mail() == []
    assert items(boss)[0]["claimPolicy"] == "bound_session"


def test_what_went_back_while_it_was_read_is_not_pushed() -> None:
    """A1.3: the deadline of an order passes before its text was read."""
    world, target, boss, _sender = scene()
    world.auto = False
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.commit()
    world.pass_time(ACCEPT_MS)
    world.auto = True
    world.settle()
    assert target.mail() == []
    assert later(boss)["code"] == "target_not_writable"
    assert items(boss)[0]["returnReason"] == "acceptance_timeout"


def test_an_acceptance_that_may_take_longer_than_anything_is_refused() -> None:
    """FE 1.5: acceptWithinMs"""
    _world, target, boss, _sender = scene()
    order = {"inboxId": "m1", "targetSessionId": target.id, "acceptWithinMs": 2**53 - 1}
    assert ask(boss, "inbox_dispatch", **order)["code"] == "bad_request"


def test_no_deadline_of_work_moves_anything_in_a_store_that_cannot_be_used() -> None:
    """Design section 5, fail closed: what was handed out, pushed or parked stays as the disk has it."""
    world, target, boss, sender = scene()
    sender.queue(target.id, "m2")
    sender.queue(target.id, "m3")
    push(world, boss, target, "m1")
    begin(boss, "inbox_dispatch", inboxId="m2", targetSessionId=target.id)
    before = dict(world.disk.inbox), dict(world.disk.assignments)
    world.auto = False
    sender.queue(target.id, "m4")
    world.fail_commit(final=True)
    world.auto = True
    world.settle()
    target.leave()
    world.pass_time(Limits().mail_ttl_ms + 1)
    assert (world.disk.inbox, world.disk.assignments) == before
    assert only(answers(sender.got()))["reason"].startswith("Not recorded")


# --- replies --------------------------------------------------------------------------------------------


REPLIED = {"replyRequestId": "q1", "content": {"text": "done"}}


def accepted() -> tuple[World, Agent, Agent, dict[str, object]]:
    """Return a world in which a worker has accepted a message of a sender without mailbox."""
    world = World()
    target, boss = worker(world), coordinator(world)
    sender = enter(world, "sender", features=("push.receipts", "queue"))
    sender.queue(target.id, "m1", "do it")
    sender.got()
    assignment = push(world, boss, target)
    report(target, assignment, "accepted")
    return world, target, sender, assignment


def request(assignment: dict[str, object]) -> dict[str, object]:
    return {**REPLIED, "sourceMessageId": "m1", "assignmentId": assignment["assignmentId"]}


def test_a_reply_that_is_asked_for_twice_meanwhile_leaves_once() -> None:
    """A1.11: both requests get the one outcome."""
    _world, target, sender, assignment = accepted()
    assert begin(target, "assignment_reply", **request(assignment)) == []
    assert begin(target, "assignment_reply", **request(assignment)) == []
    [message] = sender.mail()
    sender.confirm(message["message"]["id"])
    told = [frame for frame in target.got() if "requestId" in frame]
    assert [frame["messageId"] for frame in told] == [message["message"]["id"]] * 2


def test_a_reply_that_is_confirmed_after_its_work_ended_otherwise() -> None:
    """A1.11: it was sent, and that is what is answered."""
    _world, target, sender, assignment = accepted()
    begin(target, "assignment_reply", **request(assignment))
    [message] = sender.mail()
    report(target, assignment, "failed")
    sender.confirm(message["message"]["id"])
    assert later(target)["status"] == "sent"


def test_a_reply_to_a_connection_that_breaks_is_unknown() -> None:
    """A1.12: nobody can say whether the frame arrived, so it is not sent again."""
    world, target, sender, assignment = accepted()
    world.break_off(sender.conn)
    refused = ask(target, "assignment_reply", **request(assignment))
    assert (refused["code"], refused["outcomeUnknown"]) == ("send_outcome_unknown", True)
    assert ask(target, "assignment_reply", **request(assignment))["code"] == "send_outcome_unknown"


def test_a_reply_whose_outcome_was_not_recorded_needs_its_work() -> None:
    """A1.11: a key of which only the beginning is recorded does what a new one does; not once its work is over."""
    world, target, sender, assignment = accepted()
    begin(target, "assignment_reply", **request(assignment))
    [message] = sender.mail()
    world.auto = False
    sender.confirm(message["message"]["id"])
    world.fail_commit()
    world.auto = True
    world.settle()
    assert later(target)["code"] == "not_recorded"
    report(target, assignment, "failed")
    assert ask(target, "assignment_reply", **request(assignment))["code"] == "assignment_unknown"


def test_a_reply_that_could_not_be_recorded_was_not_sent() -> None:
    """A5.4: of a reply to a sender without mailbox; the next request sends it."""
    world, target, sender, assignment = accepted()
    world.auto = False
    begin(target, "assignment_reply", **request(assignment))
    world.fail_commit()
    world.auto = True
    world.settle()
    refused = later(target)
    assert (refused["code"], refused["retryable"]) == ("not_recorded", True)
    assert sender.mail() == []
    begin(target, "assignment_reply", **request(assignment))
    [message] = sender.mail()
    sender.confirm(message["message"]["id"])
    assert later(target)["status"] == "sent"


def test_a_reply_into_a_full_mailbox_is_refused_for_now() -> None:
    """FE 1.5: the assignment stays, and the request may be repeated."""
    world = World(limits=Limits(mailbox_entries=1))
    target, boss = worker(world), coordinator(world)
    sender = parked(world, target)
    assignment = push(world, boss, target)
    report(target, assignment, "accepted")
    sender.leave()
    other = enter(world, "other")
    other.queue("sender", "full")
    refused = reply(target, assignment)
    assert refused["retryable"] is True
    back = reattach(world, sender)
    back.confirm("full")
    assert reply(target, assignment)["type"] == "assignment_replied"


def test_a_reply_is_not_the_answer_of_other_work() -> None:
    """FE 1.5: a plain message ends the accepted assignment it answers, and no other."""
    world, target, boss, sender = scene()
    sender.queue(target.id, "m2")
    report(target, push(world, boss, target, "m1"), "accepted")
    report(target, push(world, boss, target, "m2"), "accepted")
    target.message(sender.id, "plain", replyTo="m2")
    sender.confirm("plain")
    assert [item["inboxId"] for item in items(boss)] == ["m1"]
    target.message(sender.id, "other", replyTo="m3")
    sender.confirm("other")
    assert [item["inboxId"] for item in items(boss)] == ["m1"]


def test_a_reply_whose_receipt_could_not_be_recorded_is_sent_again_under_its_id() -> None:
    """A1.11: its recipient knows it"""
    world, target, sender, assignment = accepted()
    assert begin(target, "assignment_reply", **request(assignment)) == []
    [message] = sender.mail()
    world.auto = False
    sender.write("received", messageId=message["message"]["id"])
    world.fail_commit()
    world.auto = True
    world.settle()
    assert later(target)["code"] == "not_recorded"
    assert begin(target, "assignment_reply", **request(assignment)) == []
    [again] = sender.mail()
    assert again["message"]["id"] == message["message"]["id"]
    sender.confirm(again["message"]["id"])
    assert later(target)["status"] == "sent"


def test_work_for_somebody_who_is_away_is_in_nobodys_mailbox_when_it_could_not_be_recorded() -> None:
    """Design 3.6: handed out into a mailbox, and taken back"""
    world = World()
    target, boss = worker(world), coordinator(world)
    parked(world, target)
    target.leave()
    world.auto = False
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    assert world.appends
    world.fail_commit()
    world.auto = True
    world.settle()
    assert later(boss)["code"] == "not_recorded" and world.disk.mail == {}
    assert ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)["handedTo"] == "mailbox"


def test_work_that_went_back_before_its_dispatch_could_be_recorded_is_in_no_mailbox() -> None:
    """Design 3.6: the newest change is taken back first"""
    world = World()
    target, boss, person = worker(world), coordinator(world), operator(world)
    parked(world, target)
    target.leave()
    world.auto = False
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    person.write("session_force_close", requestId="c", sessionId=target.id)
    world.fail_commit()
    world.auto = True
    world.settle()
    world.pass_time(Limits().mail_retry_ms)
    assert world.disk.mail == {} and len(world.broker._post.boxes) == 0
