"""Test what becomes of everything that rests on a commit that fails."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.clock import Instant
from intercom.core.effects import Append
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import AddressRecord, DropOperation, Happened, OperationState
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import INFO, Client, World, answers, is_delivered, only, reason, types

NOW = Instant(0, 0)


def states(world: World) -> dict[str, OperationState]:
    return {record.message_id: record.state for record in world.disk.operations.values()}


def two(**limits: Any) -> tuple[World, Client, Client]:
    """Return a world of two that commits and takes only when told to."""
    world = World(limits=Limits(**limits))
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    a.got(), b.got()
    world.auto = False
    return world, a, b


def forwarded(world: World, sender: Client, to: str, message_id: str, **more: Any) -> None:
    """Bring a send to the point at which only the commit of its acceptance is missing."""
    sender.message(to, message_id, **more)
    world.commit()
    world.take()
    assert len(world.appends) == 1


def register_again(world: World, name: str, return_address: str) -> Client:
    """Register without waiting for a commit."""
    conn = world.connect()
    world.send(conn, type="register", session={**INFO, "name": name}, returnAddress=return_address)
    return Client(world, conn, "", [])


# --- the ledger itself ----------------------------------------------------------------------------------


def happening(seq: int) -> Happened:
    row = AddressRecord(1, "n", "g", None, (), 1, 1)
    return Happened(seq, 0, "address:1", "address.held", f"e:{seq}", row)


def test_events_are_told_in_their_order_once_they_are_committed() -> None:
    """FE 5.1: every effect after the commit that justifies it."""
    ledger, told = Ledger(Outbox()), []
    ledger.on_event = lambda event, now: told.append(event.seq)
    for first in (1, 3, 5):
        ledger.append((DropOperation(1), happening(first), happening(first + 1)))
    assert (told, ledger.last_sequence) == ([], 6)
    ledger.committed(2, NOW)
    assert told == [1, 2, 3, 4]
    ledger.append((happening(7),))
    ledger.failed(4, NOW)
    assert (told, ledger.last_sequence) == ([1, 2, 3, 4], 6), "what failed is forgotten, what is before it is not"
    ledger.committed(3, NOW)
    assert (told, ledger.last_sequence) == ([1, 2, 3, 4, 5, 6], 0)


def test_tickets_grow_and_appends_come_out_in_order() -> None:
    """effects: tickets only grow"""
    outbox = Outbox()
    ledger = Ledger(outbox)
    change = (DropOperation(1),)
    assert [ledger.append(change), ledger.append(change)] == [1, 2]
    assert outbox.take() == [Append(1, change), Append(2, change)]


def test_inverses_run_newest_first_from_the_failed_ticket_on() -> None:
    """design 3.6: undoes newest first every change with that or a later ticket"""
    ledger = Ledger(Outbox())
    undone: list[str] = []
    for name in "abcd":
        ledger.append((), lambda subject, now: undone.append(subject), name)
    ledger.append(())
    ledger.committed(1, NOW)
    ledger.failed(3, NOW)
    assert undone == ["d", "c"]
    ledger.failed(1, NOW)
    assert undone == ["d", "c", "b"], "what is committed has no inverse any more"
    assert ledger.append(()) == 6


def test_who_rests_on_a_ticket_is_told_after_the_inverses_when_it_fails() -> None:
    """design 3.6: every answer that rests on the row"""
    ledger = Ledger(Outbox())
    told: list[str] = []

    def tell(subject: str, now: Instant) -> None:
        told.append(subject)

    first, second = ledger.append((), tell, "undo 1"), ledger.append((), tell, "undo 2")
    ledger.rest(second, tell, "on 2")
    ledger.rest(first, tell, "on 1")
    ledger.rest(0, tell, "on nothing")
    ledger.committed(first, NOW)
    ledger.rest(first, tell, "on a committed one")
    ledger.failed(second, NOW)
    assert told == ["undo 2", "on 2"]
    third = ledger.append(())
    ledger.rest(third, tell, "on 3")
    ledger.rest(second, tell, "on a failed one")
    ledger.failed(third, NOW)
    assert told == ["undo 2", "on 2", "on 3"]
    fourth, fifth = ledger.append(()), ledger.append(())
    ledger.rest(fourth, tell, "on 4")
    ledger.failed(fifth, NOW)
    assert told == ["undo 2", "on 2", "on 3"], "what came before the failure is durable"


# --- a reservation --------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirms", [False, True])
@pytest.mark.parametrize("ask", [False, True])
def test_a_reservation_that_fails_sends_nothing(confirms: bool, ask: bool) -> None:
    """design 3.6: not recorded, retry the same id"""
    world, a, _ = two(asks=1)
    world.auto = True
    target = world.register("t", **({"acknowledgesReceipt": True} if confirms else {}))
    world.auto = False
    more = {"expectsReply": True, "extra": {"resolveReplyTarget": True}} if ask else {}
    a.message("t", "m1", **more)
    world.fail_commit()
    world.settle()
    told = [frame for frame in a.got() if frame["type"] != "session_joined"]
    assert reason(told) == reasons.NOT_RECORDED and types(told) == ["delivery_failed"]
    assert target.texts() == [] and world.disk.operations == {}
    a.message("t", "m1", **more)
    world.settle()
    assert target.texts() == ["x"]
    if confirms:
        target.write("received", messageId="m1")
        world.settle()
    assert is_delivered(a.got())


def test_only_the_newest_attempt_is_answered() -> None:
    """design 4: one final answer per operation and connection, given to its newest attempt"""
    world, a, _ = two()
    world.auto = True
    target = world.register("t", acknowledgesReceipt=True)
    world.auto = False
    for _ in range(3):
        a.ask("t", "q1")
    world.fail_commit()
    world.settle()
    assert [frame["attemptId"] for frame in answers(a.got())] == [f"{a.conn}.3"]
    assert target.texts() == []


def test_everything_queued_behind_is_undone_and_what_was_before_stays() -> None:
    """design 3.6: the writer commits nothing queued behind it"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    a.message("b", "m2")
    b.message("a", "m3")
    world.fail_commit()
    world.settle()
    assert states(world) == {"m1": OperationState.ACCEPTED}
    assert [(frame["messageId"], frame["type"]) for frame in answers(a.got())] == [
        ("m2", "delivery_failed"),
        ("m1", "delivered"),
    ]
    assert b.texts() == ["x"] and [note.event for note in world.notes] == ["commit_failed"]


def test_the_next_append_is_tried_again() -> None:
    """design 3.6: a full disk is tried again with the next append"""
    world, a, b = two()
    for number in range(3):
        a.message("b", "m1")
        world.fail_commit()
        world.settle()
        assert reason(a.got()) == reasons.NOT_RECORDED, number
    a.message("b", "m1")
    world.settle()
    assert is_delivered(a.got()) and b.texts() == ["x"]


# --- an acceptance --------------------------------------------------------------------------------------


def test_an_acceptance_that_fails_is_not_confirmed_and_the_retry_is_uncertain() -> None:
    """protocol 4.8 finish: outcome not durably confirmed; 6.9.2: the row is reserved"""
    world, a, b = two()
    forwarded(world, a, "b", "m1")
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY and states(world) == {"m1": OperationState.RESERVED}
    a.message("b", "m1")
    world.take()
    assert reason(a.got()) == reasons.UNCERTAIN, "at once: it rests on nothing that is under way"
    assert b.texts() == ["x"]


def test_the_retry_goes_to_a_recipient_that_confirms_receipts_again() -> None:
    """protocol 6.9.2: for it the message is simply sent again"""
    world, a, _ = two()
    world.auto = True
    target = world.register("t", acknowledgesReceipt=True)
    world.auto = False
    a.message("t", "m1")
    world.settle()
    target.write("received", messageId="m1")
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY
    assert target.texts() == []
    a.message("t", "m1")
    world.settle()
    assert target.texts() == ["x"]
    target.write("received", messageId="m1")
    world.settle()
    assert is_delivered(a.got())
    assert states(world) == {"m1": OperationState.ACCEPTED}


def test_an_ask_whose_acceptance_fails_has_no_open_question() -> None:
    """design 3.6: each append carries its inverse"""
    world, a, b = two(asks=1)
    forwarded(world, a, "b", "q1", expectsReply=True)
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY
    b.reply("a", "r1", "q1")
    world.settle()
    assert reason(b.got()) == reasons.NO_OPEN_QUESTION
    a.ask("b", "q2")
    world.settle()
    assert is_delivered(a.got()), "nor is it charged"


def test_a_reply_whose_acceptance_fails_leaves_its_question_open() -> None:
    """protocol 6.5; design 3.6: the reply is not recorded as the answer"""
    world, a, b = two()
    a.ask("b", "q1")
    world.settle()
    b.reply("a", "r1", "q1")
    world.commit()
    world.take()
    (append,) = world.appends
    assert len(append.changes) == 2, "the reply and the mark of its ask are one append"
    world.fail_commit()
    world.settle()
    assert reason(b.got()) == reasons.NOT_CONFIRMED_DURABLY
    assert [record.question.answered for record in world.disk.operations.values() if record.question] == [False]
    b.reply("a", "r2", "q1")
    world.settle()
    assert is_delivered(b.got())
    assert [record.question.answered for record in world.disk.operations.values() if record.question] == [True]


def test_a_reply_and_its_ask_may_fail_together() -> None:
    """design 3.6: newest first"""
    world, a, b = two()
    forwarded(world, a, "b", "q1", expectsReply=True)
    b.got()
    world.perform([])
    b.reply("a", "r1", "q1")
    assert len(world.appends) == 2
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY and reason(b.got()) == reasons.NOT_RECORDED
    b.reply("a", "r1", "q1")
    world.settle()
    assert reason(b.got()) == reasons.NO_OPEN_QUESTION and states(world) == {"q1": OperationState.RESERVED}


def reply_under_way() -> tuple[World, Client, Client]:
    """Return a world in which only the acceptance of the answer to q1 is not committed."""
    world, a, b = two()
    a.ask("b", "q1")
    world.settle()
    a.got(), b.got()
    b.reply("a", "r1", "q1")
    world.commit()
    world.take()
    return world, a, b


def test_a_question_reopens_only_for_an_asker_that_is_here() -> None:
    """protocol 6.5: the asker departs, its questions are dropped silently"""
    world, a, b = reply_under_way()
    a.leave()
    world.fail_commit()
    world.auto = True
    world.settle()
    a = world.register("a", returnAddress="ra", preferredSessionId=a.id)
    assert reason(b.got()) == reasons.NOT_CONFIRMED_DURABLY
    assert reason(b.reply("a", "r2", "q1")) == reasons.NO_OPEN_QUESTION


def test_a_reopened_question_whose_target_left_is_settled() -> None:
    """protocol 6.5: peer_disconnected"""
    world, a, b = reply_under_way()
    b.leave()
    world.fail_commit()
    world.settle()
    told = [frame for frame in a.got() if frame["type"] == "peer_disconnected"]
    assert told == [{"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": b.id}]


def test_a_reopened_question_whose_target_finished_is_settled() -> None:
    """protocol 6.4, 6.5"""
    world, a, b = reply_under_way()
    b.write("presence", replyCapability="terminal")
    world.fail_commit()
    world.settle()
    messages = [frame["message"] for frame in a.got() if frame["type"] == "message"]
    assert [message["id"] for message in messages] == ["r1", "terminal:q1"]


def test_a_reopened_question_whose_row_expired_can_still_be_answered() -> None:
    """protocol 6.5, 6.9.2: the mark goes with the row"""
    world = World(limits=Limits(ask_ms=1_000_000))
    a, b = world.register("a"), world.register("b")
    a.ask("b", "q1")
    world.pass_time(719_900)
    world.auto = False
    b.reply("a", "r1", "q1")
    world.commit()
    world.take()
    world.pass_time(800)
    a.message("b", "m1")
    assert DropOperation(1) in [change for append in world.appends for change in append.changes]
    world.fail_commit()
    world.settle()
    b.got()
    b.reply("a", "r2", "q1")
    world.settle()
    assert is_delivered(b.got())


@pytest.mark.parametrize("recipient", ["same", "another"])
def test_a_crossing_is_taken_back(recipient: str) -> None:
    """protocol 6.6: a finished supervisor_send records it; an unfinished one does not"""
    world = World()
    parent = world.register("p", supervisorOwnerToken="t", returnAddress="rp", acknowledgesReceipt=True)
    capability = only(parent.write("authorize_supervisor", requestId="q", childName="c"))["capability"]
    child = world.register(
        "c", info={"group": "far"}, supervisor={"capability": capability, "supervisorSessionId": parent.id}
    )
    child.message(parent.id, "k1", kind="supervisor_send")
    if recipient == "another":
        parent.leave()
        parent = world.register("p", returnAddress="rp", acknowledgesReceipt=True)
    world.auto = False
    parent.write("received", messageId="k1")
    world.fail_commit()
    world.settle()
    assert reason(child.got()) == reasons.NOT_CONFIRMED_DURABLY
    parent.message(child.id, "k2", replyTo="k1")
    world.settle()
    assert reason(parent.got()) == reasons.DIFFERENT_GROUP


# --- forgetting -----------------------------------------------------------------------------------------


def test_a_frame_that_never_left_stays_forgotten_whatever_the_disk_says() -> None:
    """protocol 6.9.2 forget, D17: its retry is delivered; the row on disk is deleted as soon as that can be"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    b.leave()
    for _ in range(3):
        world.fail_commit()
        world.settle()
        assert states(world) == {"m1": OperationState.RESERVED}
        world.pass_time(1_500)
    assert reason(a.got()) == "Session not found"
    world.auto = True
    b = world.register("b", returnAddress="rb")
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]
    assert states(world) == {"m1": OperationState.ACCEPTED} and len(world.disk.operations) == 1


def test_several_deletions_that_failed_are_tried_again_together() -> None:
    """design 3.6: a full disk is tried again with the next append"""
    world, a, b = two()
    for message_id in ("m1", "m2"):
        a.message("b", message_id)
    world.commit()
    b.leave()
    world.fail_commit()
    assert len(world.disk.operations) == 2
    world.auto = True
    world.pass_time(1_000)
    assert world.disk.operations == {}


def test_a_late_receipt_that_cannot_be_recorded_leaves_the_row_reserved_and_answers_nobody() -> None:
    """protocol 6.10.6, design 3.6"""
    world, a, _ = two()
    world.auto = True
    target = world.register("t", acknowledgesReceipt=True)
    a.message("t", "m1")
    world.pass_time(8_000)
    assert reason(a.got()) == reasons.RECEIPT_MISSING
    world.auto = False
    target.write("received", messageId="m1")
    world.fail_commit()
    world.settle()
    assert answers(a.got()) == [] and states(world) == {"m1": OperationState.RESERVED}


def test_a_stop_deletes_what_could_not_be_deleted_before() -> None:
    """design 5 "Stop": forget every reservation whose frame did not leave"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    b.leave()
    world.fail_commit()
    world.stop()
    assert world.disk.operations == {}


def test_a_reservation_and_its_forgetting_may_fail_together() -> None:
    """design 3.6: newest first"""
    world, a, b = two()
    a.message("b", "m1")
    b.leave()
    assert len(world.appends) == 2
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == "Session not found" and world.disk.operations == {}
    world.auto = True
    b = world.register("b", returnAddress="rb")
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_an_id_that_was_forgotten_can_be_used_again_before_that_is_on_disk() -> None:
    """design 3.6: newest first"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    b.leave()
    fresh = register_again(world, "b", "rb")
    a.message("b", "m1", "another text")
    world.fail_commit()
    world.settle()
    assert [frame["reason"] for frame in answers(a.got())] == ["Session not found", reasons.NOT_RECORDED]
    a.message("b", "m1", "another text")
    world.settle()
    assert is_delivered(a.got()) and fresh.texts() == ["another text"]


# --- answers that rest on somebody's row (design 3.6) ----------------------------------------------------


def test_a_conflict_waits_for_the_reservation_it_rests_on() -> None:
    """design 3.6: every answer that rests on the row carries that ticket"""
    world, a, b = two()
    a.message("b", "m1")
    a.message("b", "m1", "other")
    world.take()
    assert answers(a.got()) == []
    world.settle()
    assert [frame["type"] for frame in answers(a.got())] == ["delivery_failed", "delivered"]
    assert b.texts() == ["x"]


@pytest.mark.parametrize("other", ["conflict", "under way"])
def test_who_was_refused_because_of_a_reservation_is_answered_when_it_fails(other: str) -> None:
    """design 3.6: answers each waiting sender; nobody waits in vain"""
    world, a, b = two()
    world.auto = True
    c = world.register("c")
    world.auto = False
    a.message("b", "m1")
    (a if other == "under way" else c).message("b", "m1", "x" if other == "under way" else "other")
    world.fail_commit()
    world.settle()
    told = answers(a.got()) + answers(c.got())
    assert [frame["reason"] for frame in told] == [reasons.NOT_RECORDED] * 2
    assert len({frame["attemptId"] for frame in told}) == 2
    assert b.texts() == []
    c.message("b", "m1", "other")
    world.settle()
    assert is_delivered(c.got()) and b.texts() == ["other"]


def test_a_repeated_delivered_waits_for_the_acceptance_and_fails_with_it() -> None:
    """design 3.6: a repeated `delivered` too"""
    world, a, b = two()
    forwarded(world, a, "b", "m1")
    a.message("b", "m1")
    world.take()
    assert answers(a.got()) == []
    world.fail_commit()
    world.settle()
    assert [(frame["attemptId"], frame["reason"]) for frame in answers(a.got())] == [
        (f"{a.conn}.1", reasons.NOT_CONFIRMED_DURABLY),
        (f"{a.conn}.2", reasons.NOT_CONFIRMED_DURABLY),
    ]
    assert b.texts() == ["x"]


def test_a_repeated_ask_of_a_returned_asker_fails_with_the_acceptance() -> None:
    """protocol 6.9.5, design 3.6: neither an answer nor a question is left over"""
    world, a, b = two()
    forwarded(world, a, "b", "q1", expectsReply=True)
    a.leave()
    a = register_again(world, "a", "ra")
    a.ask("b", "q1", "x")
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY
    b.got()
    b.reply("a", "r1", "q1")
    world.settle()
    assert reason(b.got()) == reasons.NO_OPEN_QUESTION


def test_a_conflict_with_an_acceptance_that_fails_invites_to_retry() -> None:
    """design 3.6"""
    world, a, _ = two()
    forwarded(world, a, "b", "m1")
    a.message("b", "m1", "other")
    world.fail_commit()
    world.settle()
    assert [frame["reason"] for frame in answers(a.got())] == [reasons.NOT_CONFIRMED_DURABLY, reasons.NOT_RECORDED]
    a.message("b", "m1", "other")
    world.settle()
    assert only(answers(a.got()))["reasonCode"] == "message_id_conflict", "the row is reserved"


@pytest.mark.parametrize("pending", [True, False])
def test_a_refused_second_answer_rests_on_the_first(pending: bool) -> None:
    """protocol D6, D7; design 3.6: the question was closed by an answer that is not committed"""
    world, a, b = reply_under_way()
    b.got()
    b.write("presence", group="far")
    b.reply(a.id, "r2", "q1", pending=pending)
    world.take()
    assert answers(b.got()) == []
    world.fail_commit()
    world.settle()
    assert [frame["reason"] for frame in answers(b.got())] == [reasons.NOT_CONFIRMED_DURABLY, reasons.NOT_RECORDED]
    b.reply(a.id, "r2", "q1", pending=pending)
    world.settle()
    assert is_delivered(b.got())


def test_a_departure_is_told_only_with_the_question_behind_it() -> None:
    """protocol 6.5: peer_disconnected speaks of a question that is recorded"""
    world, a, b = two()
    forwarded(world, a, "b", "q1", expectsReply=True)
    b.leave()
    world.take()
    assert a.got() == []
    world.settle()
    assert types(a.got()) == ["delivered", "peer_disconnected", "session_left"]


def test_a_departure_is_not_told_when_the_question_fails() -> None:
    """design 3.6: drops their frames"""
    world, a, b = two()
    forwarded(world, a, "b", "q1", expectsReply=True)
    b.leave()
    world.fail_commit()
    world.settle()
    told = [frame for frame in a.got() if frame["type"] != "session_left"]
    assert reason(told) == reasons.NOT_CONFIRMED_DURABLY and len(told) == 1


# --- the store is closed for good -----------------------------------------------------------------------


def test_a_final_failure_closes_the_store_for_the_life_of_the_process() -> None:
    """design 3.6: sends are refused, lists, groups, presence and status go on"""
    world, a, b = two()
    a.message("b", "m1")
    world.fail_commit(final=True)
    world.settle()
    assert reason(a.got()) == reasons.NOT_RECORDED
    world.auto = True
    last = world.last_ticket
    assert "authority is invalid: disk full" in reason(a.message("b", "m1"))
    assert only(a.write("list", requestId="q"), "sessions") and only(a.write("list_groups", requestId="q"))
    assert only(a.write("presence", requestId="q", status="s"), "presence_ack")
    report = only(a.write("broker_status", requestId="q"))["report"]["broker"]["store"]
    assert report["usable"] is False and report["trouble"] == "disk full"
    c = world.register("c")
    c.leave()
    assert world.last_ticket == last and b.texts() == [], "nothing is appended any more"
    world.crash()
    a, _ = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    assert is_delivered(a.message("b", "m1"))


def test_what_was_under_way_when_the_store_closed_is_not_confirmed() -> None:
    """protocol 4.8 finish, design 3.6"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    b.message("a", "m2")
    world.fail_commit(final=True)
    world.take()
    assert b.texts() == ["x"]
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY


def test_a_receipt_after_the_store_closed_is_not_confirmed_either() -> None:
    """protocol 4.8 finish"""
    world, a, b = two()
    world.auto = True
    t = world.register("t", acknowledgesReceipt=True)
    world.auto = False
    a.ask("t", "q1")
    world.settle()
    b.message("a", "m2")
    world.fail_commit(final=True)
    t.write("received", messageId="q1")
    world.settle()
    assert reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY
    t.reply("a", "r1", "q1")
    world.settle()
    assert "authority is invalid" in reason(t.got())


def test_a_frame_lost_after_the_store_closed_appends_nothing() -> None:
    """design 3.6"""
    world, a, b = two()
    a.message("b", "m1")
    world.commit()
    b.message("a", "m2")
    world.fail_commit(final=True)
    last = world.last_ticket
    b.leave()
    world.settle()
    assert reason(a.got()) == "Session not found" and world.last_ticket == last


def test_rows_expire_from_memory_after_the_store_closed() -> None:
    """design 3.6: nothing is appended any more"""
    world, a, b = two()
    a.message("b", "m1")
    world.settle()
    b.message("a", "m2")
    world.fail_commit(final=True)
    last = world.last_ticket
    world.auto = True
    world.settle()
    world.pass_time(725_000)
    assert world.last_ticket == last and world.broker.next_deadline() is None


def test_a_closed_ledger_takes_no_row_either() -> None:
    """design 5 "Fail closed": what rests on ticket 0 rests on nothing"""
    outbox = Outbox()
    ledger = Ledger(outbox, Journal(0))
    ledger.is_closed = True
    assert ledger.append_row(DropOperation(1), lambda subject, now: None, None) == 0
    assert outbox.take() == []


def test_events_are_numbered_in_the_order_of_their_appends() -> None:
    """Design section 4, FE 5.1: whoever follows misses one that comes behind a later number"""
    ledger, outer, inner = Ledger(Outbox(), Journal(6)), happening(0), happening(0)
    ledger.append((inner,))
    ledger.append((outer,))
    assert (inner.seq, outer.seq, ledger.last_sequence) == (7, 8, 8)
