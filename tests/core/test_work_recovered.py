"""Work in mailboxes, and what an earlier process left: commits that fail, full mailboxes, rows without partners."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from intercom.core.records import OperationState
from intercom.limits import Limits
from intercom.wire import notices
from tests.core.harness import World, answers, only
from tests.core.mail import AGENT, Agent, enter, holder, operator, reattach
from tests.core.work import (
    COORDINATOR,
    ask,
    begin,
    coordinator,
    events_of,
    items,
    later,
    parked,
    push,
    report,
    worker,
)

ACCEPT_MS = Limits().accept_ms
ORDER_MS = Limits().order_ttl_ms


def scene(limits: Limits | None = None) -> tuple[World, Agent, Agent, Agent]:
    """Return a world with a parked message: world, worker, coordinator, sender."""
    world = World(limits=limits)
    target, boss = worker(world), coordinator(world)
    return world, target, boss, parked(world, target)


def failing(world: World, client: Agent, kind: str, **members: Any) -> None:
    """Make a request whose append fails."""
    world.auto = False
    begin(client, kind, **members)
    world.fail_commit()
    world.auto = True
    world.settle()


# --- orders ---------------------------------------------------------------------------------------------


def test_an_order_whose_outcome_was_lost_finds_what_it_did() -> None:
    """A1.9: the broker died between the assignment and its answer; the same key means the same assignment."""
    world, target, boss, _sender = scene()
    order = {"inboxId": "m1", "targetSessionId": target.id, "idempotencyKey": "k"}
    begin(boss, "inbox_dispatch", **order)
    [record] = world.disk.assignments.values()
    world.crash()
    boss = reattach(world, boss)
    told = ask(boss, "inbox_dispatch", **order)
    assert (told["assignmentId"], told["handedTo"]) == (record.assignment_id, "mailbox")
    assert ask(boss, "inbox_dispatch", **{**order, "idempotencyKey": "k2"})["code"] == "assignment_in_progress"


def test_an_order_that_is_forgotten_finds_what_it_did() -> None:
    """FE 1.5: outcomes are remembered for a time; an assignment that is still open says who ordered it."""
    world = World()
    target, boss = worker(world, mode="managed_turn"), coordinator(world)
    parked(world, target)
    order = {"inboxId": "m1", "targetSessionId": target.id, "idempotencyKey": "k", "acceptWithinMs": 0}
    first = ask(boss, "inbox_dispatch", **order)
    world.pass_time(ORDER_MS)
    assert world.disk.idempotency == {}
    failing(world, boss, "inbox_dispatch", **order)
    assert later(boss)["code"] == "not_recorded"
    again = ask(boss, "inbox_dispatch", **order)
    assert (again["assignmentId"], again["handedTo"]) == (first["assignmentId"], "staging")


def test_who_only_sent_a_message_hands_it_out_in_no_group_it_left() -> None:
    """FE 1.8"""
    world = World()
    target = worker(world)
    boss = coordinator(world, info={"groups": ["default", "far"]})
    far = worker(world, "far", info={"groups": ["far"]})
    boss.queue(target.id, "m1")
    boss.got()
    boss.write("leave_group", requestId="leave", group="default")
    boss.got()
    assert ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=far.id)["code"] == "not_allowed"


def test_work_for_another_session_is_not_claimed() -> None:
    """FE 1.4: the bound session only; who sent it sees it."""
    world = World()
    target, other = worker(world), worker(world, "other")
    other.queue(target.id, "m1")
    other.got()
    assert ask(other, "inbox_claim", inboxId="m1")["code"] == "not_allowed"


def test_what_is_in_progress_is_not_settled() -> None:
    """FE 1.5"""
    world, target, boss, _sender = scene()
    push(world, boss, target)
    assert ask(boss, "inbox_settle", inboxId="m1")["code"] == "assignment_in_progress"


def test_what_its_worker_gave_back_before_its_receipt_fails_the_order() -> None:
    """A1.10: the receipt that comes afterwards changes nothing."""
    _world, target, boss, _sender = scene()
    begin(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    [frame] = target.mail()
    report(target, frame["assignment"], "failed", retryable=True)
    assert later(boss)["code"] == "target_not_writable"
    target.confirm("m1")
    assert boss.got() == []
    assert items(boss)[0]["claimPolicy"] == "bound_session"


# --- mailboxes ------------------------------------------------------------------------------------------


def test_work_does_not_fit_into_a_full_mailbox() -> None:
    """FE 1.5: the order fails, and the message is parked as before."""
    world, target, boss, _sender = scene(Limits(mailbox_entries=1))
    target.leave()
    fill_mailbox(world, target)
    refused = ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    assert (refused["code"], refused["retryable"]) == ("target_not_writable", True)
    assert "mailbox is full" in refused["reason"]
    assert [item["claimPolicy"] for item in items(boss)] == ["bound_session"]
    assert world.disk.assignments == {}


def fill_mailbox(world: World, target: Agent) -> None:
    """Fill the mailbox of a worker that is away with what goes on with its own message."""
    peer = enter(world, "peer")
    back = reattach(world, target)
    back.queue(peer.id, "mine")
    peer.confirm("mine")
    back.leave()
    peer.message(target.id, "full", replyTo="mine", extra={"queueIfAway": True})
    assert [mail.message_id for mail in world.disk.mail.values()] == ["full"]


def test_an_order_to_a_mailbox_that_could_not_be_recorded_has_not_happened() -> None:
    """A5.4"""
    world, target, boss, _sender = scene()
    target.leave()
    order = {"inboxId": "m1", "targetSessionId": target.id}
    failing(world, boss, "inbox_dispatch", **order)
    assert later(boss)["code"] == "not_recorded"
    back = reattach(world, target)
    assert back.first[0]["mailboxCount"] == 0
    begin(boss, "inbox_dispatch", **order)
    back.confirm("m1")
    assert later(boss)["handedTo"] == "session"


def test_an_acceptance_that_could_not_be_recorded_leaves_the_mail() -> None:
    """A5.4: the worker is handed its work again, a little later."""
    world, target, boss, _sender = scene()
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    back = reattach(world, target)
    [message] = [frame for frame in back.first if frame["type"] == "message"]
    report_failing(world, back, message["assignment"], "accepted")
    world.pass_time(Limits().mail_retry_ms)
    assert [frame["message"]["id"] for frame in back.mail()] == ["m1"]
    assert report(back, message["assignment"], "accepted")["type"] == "assignment_recorded"


def report_failing(world: World, client: Agent, assignment: dict[str, Any], state: str, **more: Any) -> None:
    """Report a state that is not recorded."""
    members = {name: assignment[name] for name in ("sourceMessageId", "assignmentId")}
    failing(world, client, "assignment_report", **members, stateEventId="lost", state=state, **more)
    assert later(client)["code"] == "not_recorded"


def test_a_return_that_could_not_be_recorded_leaves_the_deadline() -> None:
    """A1.7: what is still assigned goes back when its time is over."""
    world, target, boss, _sender = scene()
    assignment = push(world, boss, target)
    report_failing(world, target, assignment, "failed", retryable=True)
    assert items(boss)[0]["claimPolicy"] == "assigned"
    world.pass_time(ACCEPT_MS)
    assert items(boss)[0]["returnReason"] == "acceptance_timeout"


def test_the_text_of_work_in_a_mailbox_is_lost() -> None:
    """FE 1.3: its sender is told, and the assignment ends."""
    world, target, boss, sender = scene()
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.disk.bodies.clear()
    back = reattach(world, target)
    assert [frame["type"] for frame in back.first if frame["type"] == "message"] == []
    [told] = sender.mail()
    assert told["notice"]["reason"] == notices.BODY_LOST
    assert world.disk.assignments == {} and items(boss) == []


# --- the end of sessions and of time --------------------------------------------------------------------


def test_work_of_an_address_outlives_its_session() -> None:
    """Design section 7, Addresses: whoever acts under it goes on."""
    world = World()
    host = holder(world, "box", features=(*AGENT, "work.assignments"), workMode="resident")
    boss = coordinator(world)
    parked(world, host)
    report(host, push(world, boss, host), "accepted")
    host.leave()
    world.judge(host.id, is_alive=False)
    assert items(boss)[0]["claimPolicy"] == "assigned"
    assert len(world.disk.assignments) == 1


def test_what_was_handed_over_in_time_is_not_given_up_for_its_age() -> None:
    """A message that is valid for a time reached its worker in time; what the worker does with it is its own matter."""
    for accepts in (True, False):
        world = World()
        target, boss, sender = worker(world), coordinator(world), enter(world, "s")
        sender.queue(target.id, "m1", validFor=1_000)
        assignment = push(world, boss, target, acceptWithinMs=0)
        if accepts:
            report(target, assignment, "accepted")
        world.pass_time(1_000)
        assert len(world.disk.assignments) == 1 and len(world.disk.inbox) == 1


def test_a_sender_that_fills_the_memory_parks_nothing_more() -> None:
    """Protocol 6.9.3: it is refused for itself only."""
    world = World(limits=Limits(operations=4, sender_share=4))
    target, sender, other = worker(world), enter(world, "s"), enter(world, "o")
    assert only(answers(sender.queue(target.id, "m1")))["type"] == "queued"
    assert only(answers(sender.queue(target.id, "m2")))["reason"].startswith("Capacity")
    assert only(answers(other.queue(target.id, "m3")))["type"] == "queued"


def test_a_newer_text_that_could_not_be_recorded_leaves_the_older() -> None:
    """A1.6, A5.4"""
    world, target, boss, sender = scene()
    operation = world.broker._messages.operations.by_id("m1")
    assert operation is not None
    world.broker._messages.operations.withdraw(operation)
    world.auto = False
    sender.queue(target.id, "m1", "newer")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(answers(sender.got()))["type"] == "delivery_failed"
    assert ask(boss, "inbox_show", inboxId="m1")["message"]["content"] == {"text": "do it"}


# --- what an earlier process left -----------------------------------------------------------------------


def test_work_in_a_mailbox_is_there_after_a_crash() -> None:
    """FE 1.7"""
    world, target, boss, _sender = scene()
    target.leave()
    handed = ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.crash()
    back = reattach(world, target)
    [message] = [frame for frame in back.first if frame["type"] == "message"]
    assert message["assignment"]["assignmentId"] == handed["assignmentId"]
    assert report(back, message["assignment"], "accepted")["type"] == "assignment_recorded"
    assert world.disk.mail == {}


def test_an_assignment_without_its_message_ends_at_the_start() -> None:
    """Design section 5: an older copy of the store may have been put back."""
    world, target, boss, _sender = scene()
    push(world, boss, target)
    world.disk.inbox.clear()
    world.crash()
    world.settle()
    assert world.disk.assignments == {}


def test_a_message_without_its_assignment_is_free_at_the_start() -> None:
    """Design section 5"""
    world, target, boss, _sender = scene()
    target.leave()
    ask(boss, "inbox_dispatch", inboxId="m1", targetSessionId=target.id)
    world.disk.assignments.clear()
    world.crash()
    [item] = items(reattach(world, boss))
    assert (item["claimPolicy"], item["returnReason"]) == ("bound_session", "assignment_lost")
    assert world.disk.mail == {}


def test_work_of_a_worker_nobody_knows_goes_back_at_the_start() -> None:
    """FE 1.7: the same assignment, or back to the inbox."""
    world, target, boss, _sender = scene()
    push(world, boss, target)
    del world.disk.known_sessions[target.id]
    world.crash()
    assert items(operator(world))[0]["returnReason"] == "session_lost"
    assert world.disk.assignments == {}


def test_a_message_that_was_delivered_by_its_row_keeps_its_row() -> None:
    """Protocol 6.9.3: what a row remembers of another send under the id is not touched by what is parked."""
    world, _target, boss, _sender = scene()
    [number] = world.disk.operations
    world.disk.operations[number] = replace(
        world.disk.operations[number], state=OperationState.ACCEPTED, accepted_at=world.wall
    )
    world.crash()
    boss = reattach(world, boss)
    assert ask(boss, "inbox_settle", inboxId="m1")["type"] == "inbox_settled"
    assert number in world.disk.operations
    assert events_of(world, "m1")[-1] == "inbox.settled"


def test_features_of_a_coordinator_alone_show_the_parked() -> None:
    """FE 1.8: it sees what is in its groups."""
    world, _target, _boss, _sender = scene()
    assert [item["inboxId"] for item in items(enter(world, "c2", features=COORDINATOR))] == ["m1"]
