"""Test recipients that confirm receipts: who waits, what is written again, and who settles it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from intercom.core.receipts import Receipts, Unconfirmed
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import MessageFrame
from tests.core.harness import (
    INFO,
    Client,
    World,
    answers,
    is_delivered,
    only,
    operation_of,
    reason,
    types,
    without_announcements,
)

UNTIL_UNCONFIRMED = Limits().receipt_wait_ms


def pair(**limits: Any) -> tuple[World, Client, Client]:
    """Return a sender and a recipient that confirms receipts."""
    world = World(limits=Limits(**limits))
    return world, world.register("a", returnAddress="ra"), confirming(world)


def confirming(world: World, name: str = "t", **members: Any) -> Client:
    return world.register(name, **{"returnAddress": "rt", "acknowledgesReceipt": True, **members})


def received(client: Client, message_id: str) -> None:
    """Confirm a message; this is never answered."""
    client.got()
    assert client.write("received", messageId=message_id) == []


# --- 6.10, steps 1 to 5 ---------------------------------------------------------------------------------


def test_the_sender_is_answered_when_the_recipient_confirms() -> None:
    """protocol 6.10.4, 6.10.5"""
    world, a, t = pair()
    assert answers(a.message("t", "m1")) == [] and t.texts() == ["x"]
    world.pass_time(UNTIL_UNCONFIRMED - 1)
    assert answers(a.got()) == []
    received(t, "m1")
    assert only(answers(a.got())) == {"type": "delivered", "messageId": "m1", "attemptId": f"{a.conn}.1"}


def test_a_second_receipt_and_unknown_ids_are_ignored() -> None:
    """protocol 4.10"""
    _, a, t = pair()
    a.message("t", "m1")
    for message_id in ("m0", "m1", "m1", "M1", ""):
        received(t, message_id)
    assert is_delivered(a.got())


def test_a_receipt_of_somebody_else_settles_nothing() -> None:
    """protocol 6.10.5: from a session with that target identity"""
    world, a, _ = pair()
    other = confirming(world, "other", returnAddress="ro")
    plain = world.register("plain")
    a.message("t", "m1")
    received(other, "m1")
    received(plain, "m1")
    assert answers(a.got()) == []


def test_a_session_without_the_capability_confirms_nothing() -> None:
    """protocol 4.10: frames from sessions without that capability are ignored; 6.10: they need not confirm"""
    world, a, t = pair()
    a.message("t", "m1")
    t.leave()
    again = world.register("t", returnAddress="rt")
    assert again.texts() == []
    received(again, "m1")
    assert answers(a.got()) == []


def test_a_frame_that_was_not_written_is_forgotten() -> None:
    """protocol 6.10.3"""
    world, a, t = pair()
    world.deaf.add(t.conn)
    a.message("t", "m1")
    t.leave()
    assert reason(a.got()) == "Session not found" and world.disk.operations == {}
    t = confirming(world)
    assert t.texts() == []
    a.message("t", "m1")
    received(t, "m1")
    assert is_delivered(a.got())


def test_a_receipt_may_come_before_the_broker_knows_that_the_frame_left() -> None:
    """protocol 6.10.2: the wait is registered before writing"""
    world, a, t = pair()
    world.auto = False
    a.message("t", "m1")
    world.commit()
    token = next(write.token for write in world.waiting if write.token is not None)
    world.waiting.clear()
    t.write("received", messageId="m1")
    world.settle()
    assert is_delivered(a.got())
    assert world.broker.frames_taken([token], world.now) == []
    world.settle()
    assert answers(a.got()) == []


# --- step 6: the receipt does not come in time -----------------------------------------------------------


def test_without_a_receipt_the_outcome_is_uncertain_and_a_retry_is_safe() -> None:
    """protocol 6.10.6: 8 s, below the clients' 10 s; no code"""
    world, a, t = pair()
    a.message("t", "m1")
    world.pass_time(8_000)
    answer = only(answers(a.got()))
    assert answer["reason"] == reasons.RECEIPT_MISSING and "reasonCode" not in answer
    assert all(words in answer["reason"] for words in ("not confirmed", "uncertain", "same message id is safe"))
    assert answers(a.message("t", "m1")) == [] and t.texts() == ["x", "x"]
    received(t, "m1")
    assert is_delivered(a.got())


def test_a_late_receipt_accepts_the_operation_and_answers_nobody() -> None:
    """protocol 6.10.6: no open question is recorded until the sender retries"""
    world, a, t = pair()
    a.ask("t", "q1", extra={"resolveReplyTarget": True})
    world.pass_time(8_000)
    a.got()
    received(t, "q1")
    assert a.got() == []
    assert reason(t.reply("a", "r1", "q1")) == reasons.NO_OPEN_QUESTION
    assert is_delivered(a.ask("t", "q1")) and t.texts() == []
    assert is_delivered(t.reply("a", "r1", "q1"))


def test_an_answer_behind_a_late_receipt_reaches_who_will_ask_again() -> None:
    """protocol 6.10.6: who knows the feature ``queue`` asks again until it has it"""
    world = World()
    a = world.register("a", returnAddress="ra", features=["queue"], clientProtocolVersion="1.0", kind="custom")
    t = confirming(world)
    a.ask("t", "q1")
    world.pass_time(8_000)
    received(t, "q1")
    a.got()
    t.reply("a", "r1", "q1")
    assert [frame["message"]["replyTo"] for frame in a.got() if frame["type"] == "message"] == ["q1"]
    assert reason(t.reply("a", "r2", "q1")) == reasons.NO_OPEN_QUESTION


@pytest.mark.parametrize("over", ["withdrawn", "in time", "whose"])
def test_no_answer_behind_a_late_receipt_reaches_who_wants_none(over: str) -> None:
    """protocol 6.10.6: it was taken back, its time is over, or somebody else was asked"""
    world = World()
    a = world.register("a", returnAddress="ra", features=["queue"], clientProtocolVersion="1.0", kind="custom")
    t = confirming(world)
    a.ask("t", "q1")
    world.pass_time(8_000)
    received(t, "q1")
    if over == "withdrawn":
        a.write("cancel_ask", messageId="q1")
    elif over == "in time":
        world.pass_time(Limits().ask_ms)
    else:
        t = confirming(world, "u", returnAddress="ru")
    a.got()
    assert reason(t.reply("a", "r1", "q1")) == reasons.NO_OPEN_QUESTION
    assert "message" not in types(a.got())


def test_a_late_receipt_under_another_id_tells_the_asker_nothing() -> None:
    """protocol 6.10.6: nobody is answered then"""
    world, a, t = pair()
    a.ask("t", "q1", extra={"resolveReplyTarget": True})
    world.pass_time(8_000)
    t.leave()
    t = confirming(world)
    a.got()
    received(t, "q1")
    assert a.got() == []


def test_a_reply_proves_the_arrival_of_its_question() -> None:
    """F65: a reply that overtakes the receipt, or that comes when the asker was told of uncertainty"""
    world, a, t = pair()
    a.ask("t", "q1")
    assert is_delivered(t.reply("a", "r1", "q1"))
    assert types(without_announcements(a.got())) == ["delivered", "message"]
    a.ask("t", "q2")
    world.pass_time(8_000)
    assert reason(a.got()) == reasons.RECEIPT_MISSING
    assert is_delivered(t.reply("a", "r2", "q2"))
    assert a.texts() == ["!"]
    received(t, "q1")
    received(t, "q2")
    assert a.got() == []


def test_a_reply_to_somebody_else_proves_nothing() -> None:
    """F70: the exact pair"""
    world, a, t = pair()
    world.register("other")
    a.ask("t", "q1")
    assert reason(t.reply("other", "r1", "q1")) == reasons.NO_OPEN_QUESTION
    assert answers(a.got()) == []


# --- step 7: the recipient returns -----------------------------------------------------------------------


def test_unconfirmed_frames_are_written_again_right_after_registered_oldest_first() -> None:
    """protocol 6.10.7, 4.1 effect 8, 8.9"""
    world, a, t = pair()
    b = world.register("b")
    a.message("t", "m1", "one")
    b.message("t", "m2", "two")
    a.message("t", "m3", "three")
    received(t, "m2")
    t.leave()
    b.got()
    t = confirming(world)
    assert types(t.first)[0] == "registered"
    assert [frame["message"]["content"]["text"] for frame in t.first[1:]] == ["one", "three"]
    assert only(b.got(), "session_joined"), "the others hear of it before"
    received(t, "m1")
    received(t, "m3")
    assert types(answers(a.got())) == ["delivered", "delivered"]


def test_the_departure_does_not_end_the_wait() -> None:
    """protocol 6.10.9"""
    world, a, t = pair()
    a.message("t", "m1")
    t.leave()
    assert answers(a.got()) == []
    world.pass_time(8_000)
    assert reason(a.got()) == reasons.RECEIPT_MISSING


def test_an_ask_confirmed_under_another_id_moves_its_question() -> None:
    """protocol 6.10.5: recorded for the new id, question_target again where it was asked for"""
    world, a, t = pair()
    told = a.ask("t", "q1", extra={"resolveReplyTarget": True})
    old = t.id
    t.leave()
    t = confirming(world)
    told += a.ask("t", "q2")
    received(t, "q1")
    received(t, "q2")
    told += a.got()
    targets = [(frame["sessionId"], frame["attemptId"]) for frame in told if frame["type"] == "question_target"]
    assert t.id != old and targets == [(old, f"{a.conn}.1"), (t.id, f"{a.conn}.1")]
    assert is_delivered(t.reply("a", "r1", "q1")) and is_delivered(t.reply("a", "r2", "q2"))


def test_a_question_keeps_its_target_when_the_id_was_reclaimed() -> None:
    """protocol 6.1, 6.10.5"""
    world, a, t = pair()
    a.ask("t", "q1", extra={"resolveReplyTarget": True})
    t.leave()
    t = confirming(world, preferredSessionId=t.id)
    a.got()
    received(t, "q1")
    assert types(a.got()) == ["delivered"]
    assert is_delivered(t.reply("a", "r1", "q1"))


def test_another_group_or_return_address_is_another_recipient() -> None:
    """protocol 6.9.1 target identity: return address and registration group"""
    world, a, t = pair()
    a.message("t", "m1")
    t.leave()
    assert confirming(world, registrationGroup="home").first[1:] == []
    assert confirming(world, returnAddress="other").first[1:] == []
    assert types(confirming(world).first) == ["registered", "message"]


def test_a_recipient_without_a_return_address_is_known_by_its_id() -> None:
    """protocol 6.9.1: ("session", id); the id can be reclaimed only with a return address"""
    world = World()
    a, t = world.register("a"), world.register("t", acknowledgesReceipt=True)
    a.message("t", "m1")
    t.leave()
    again = world.register("t", acknowledgesReceipt=True, preferredSessionId=t.id)
    assert again.first[1:] == [] and again.id != t.id


def test_a_second_live_session_with_the_same_return_address_has_no_part_in_it() -> None:
    """design 7 "Receipts in our library": it neither receives nor settles the first one's frames"""
    world, a, first = pair()
    a.message("t", "m1")
    second = confirming(world, "second")
    assert second.first[1:] == []
    received(second, "m1")
    assert answers(a.got()) == []
    a.message("second", "m2")
    assert second.texts() == ["x"]
    received(first, "m2")
    assert answers(a.got()) == []
    received(second, "m2")
    received(first, "m1")
    assert [frame["messageId"] for frame in answers(a.got())] == ["m2", "m1"]
    a.message("second", "m3")
    second.leave()
    third = confirming(world, "third")
    assert third.first[1:] == [], "the second's frames were its own"


def test_the_identity_is_free_again_when_its_holder_left() -> None:
    """design 7 "Receipts in our library" """
    world, a, first = pair()
    second = confirming(world, "second")
    a.message("t", "m1")
    first.leave()
    received(second, "m1")
    assert answers(a.got()) == [], "the second keeps the identity it got"
    third = confirming(world, "third")
    assert types(third.first) == ["registered", "message"]
    received(third, "m1")
    assert is_delivered(a.got())


# --- step 8: the sender retries --------------------------------------------------------------------------


def test_a_retry_sends_the_frame_again_and_takes_the_place_of_the_earlier_attempt() -> None:
    """protocol 6.10.8"""
    world, a, t = pair()
    a.message("t", "m1")
    world.pass_time(5_000)
    a.message("t", "m1")
    assert t.texts() == ["x", "x"]
    world.pass_time(7_999)
    assert answers(a.got()) == [], "the time counts from the retry"
    received(t, "m1")
    assert [frame["attemptId"] for frame in answers(a.got())] == [f"{a.conn}.2"]
    world.pass_time(20_000)
    assert answers(a.got()) == []


def test_a_lost_copy_changes_nothing_while_another_may_have_arrived() -> None:
    """protocol 6.10.9: the recipient's departure does not end the wait"""
    world, a, t = pair()
    a.message("t", "m1")
    assert t.texts() == ["x"]
    world.deaf.add(t.conn)
    a.message("t", "m1")
    t.leave()
    assert answers(a.got()) == [] and len(world.disk.operations) == 1
    t = confirming(world)
    received(t, "m1")
    assert [frame["attemptId"] for frame in answers(a.got())] == [f"{a.conn}.2"]


def test_when_every_copy_was_lost_the_newest_attempt_is_told() -> None:
    """protocol 6.10.3: not written, forget"""
    world, a, t = pair()
    world.deaf.add(t.conn)
    a.message("t", "m1")
    a.message("t", "m1")
    t.leave()
    answer = only(answers(a.got()))
    assert (answer["reason"], answer["attemptId"]) == ("Session not found", f"{a.conn}.2")
    assert world.disk.operations == {}


def test_a_retry_shows_the_sender_as_it_is_now() -> None:
    """protocol 5.10: the sender as it is now"""
    world, a, t = pair()
    a.message("t", "m1")
    t.got()
    a.write("presence", status="a longer status than before")
    a.message("t", "m1")
    shown = [frame["from"].get("status") for frame in t.got() if frame["type"] == "message"]
    assert shown == ["a longer status than before"]
    t.leave()
    t = confirming(world)
    assert t.first[1]["from"]["status"] == "a longer status than before"


def test_the_retry_may_come_from_the_next_connection_of_the_sender() -> None:
    """protocol 6.10.8, 6.9.1 sender identity"""
    world, a, t = pair()
    a.ask("t", "q1")
    a.leave()
    a = world.register("a", returnAddress="ra")
    a.ask("t", "q1")
    received(t, "q1")
    assert is_delivered(a.got())
    assert is_delivered(t.reply("a", "r1", "q1")) and a.texts() == ["!"]


def test_a_retry_with_other_content_is_a_conflict_and_changes_nothing() -> None:
    """protocol 6.9.2: reserved, other signature"""
    _, a, t = pair()
    a.message("t", "m1")
    assert only(answers(a.message("t", "m1", "y")))["reasonCode"] == "message_id_conflict"
    assert t.texts() == ["x"]
    received(t, "m1")
    assert is_delivered(a.got())


def test_a_reservation_of_unknown_outcome_is_sent_again_after_a_restart() -> None:
    """protocol 6.9.2: a recipient that confirms receipts ignores a copy it already saved"""
    world, a, t = pair()
    a.message("t", "m1")
    world.crash()
    a, t = world.register("a", returnAddress="ra"), confirming(world)
    assert t.first[1:] == [], "frames are not kept over a restart"
    assert answers(a.message("t", "m1")) == [] and t.texts() == ["x"]
    received(t, "m1")
    assert is_delivered(a.got())


def test_a_copy_that_got_lost_after_a_restart_says_nothing_of_the_first_one() -> None:
    """protocol 6.10.3: forget the reservation only if this attempt recorded it; 6.9.2"""
    world, a, t = pair()
    a.message("t", "m1")
    world.crash()
    a, t = world.register("a", returnAddress="ra"), confirming(world)
    world.deaf.add(t.conn)
    a.message("t", "m1")
    t.leave()
    world.pass_time(8_000)
    assert types(answers(a.got())) == ["delivery_failed"] and len(world.disk.operations) == 1
    plain = world.register("t", returnAddress="rt")
    assert reason(a.message("t", "m1")) == reasons.UNCERTAIN and plain.texts() == []


def test_the_sender_may_leave_and_the_receipt_still_counts() -> None:
    """protocol 6.10.5; 6.5: the asker departs, no question is recorded"""
    world, a, t = pair()
    a.ask("t", "q1")
    a.leave()
    received(t, "q1")
    a = world.register("a", returnAddress="ra")
    assert a.got() == [] and reason(t.reply("a", "r1", "q1")) == reasons.NO_OPEN_QUESTION
    assert only(a.write("broker_status", requestId="q"))["report"]["broker"]["openQuestions"] == 0
    assert is_delivered(a.ask("t", "q1")) and t.texts() == []
    assert is_delivered(t.reply("a", "r1", "q1"))


# --- how long and how many ------------------------------------------------------------------------------


def test_a_frame_is_kept_as_long_as_its_operation() -> None:
    """protocol 6.10, not visible: the idempotency TTL"""
    world, a, t = pair()
    a.message("t", "m1")
    t.leave()
    world.pass_time(719_000)
    t = confirming(world)
    assert types(t.first) == ["registered", "message"]
    t.leave()
    world.pass_time(3_000)
    t = confirming(world)
    assert types(t.first) == ["registered"]
    received(t, "m1")
    assert types(answers(a.got())) == ["delivery_failed"]


def test_a_retry_that_waits_when_its_operation_expires_is_answered() -> None:
    """design 4: one final answer per operation and connection"""
    world, a, _ = pair()
    a.message("t", "m1")
    world.pass_time(718_000)
    assert reason(a.got()) == reasons.RECEIPT_MISSING
    assert answers(a.message("t", "m1")) == []
    world.pass_time(20_000)
    assert reason(a.got()) == reasons.RECEIPT_MISSING


@pytest.mark.parametrize(
    "limits",
    [
        {"unconfirmed_frames": 2},
        {"unconfirmed_total_frames": 2},
        {"unconfirmed_bytes": 600},
        {"unconfirmed_total_bytes": 600},
    ],
    ids=str,
)
def test_too_many_unconfirmed_frames_are_refused_for_lack_of_room(limits: dict[str, int]) -> None:
    """protocol OP-11, design 4 "Charge before you link": 1 000 or 8 MiB per session, and in all"""
    world, a, t = pair(**limits)
    u = confirming(world, "u", returnAddress="ru")
    a.message("t", "m1")
    a.message("t", "m2")
    answer = only(answers(a.message("t", "m3")))
    assert answer["reason"].startswith(reasons.CAPACITY) and "retry" in answer["reason"] and "reasonCode" not in answer
    assert answers(a.message("t", "m2")) == [], "a retry needs no room"
    refused = answers(a.message("u", "m4"))
    assert bool(refused) is any("total" in limit for limit in limits)
    received(t, "m1")
    received(u, "m4")
    a.got()
    assert answers(a.message("t", "m3")) == []
    assert t.texts() == ["x"]


def test_bytes_are_counted_per_recipient_and_in_all() -> None:
    """protocol OP-11, design 4 "Charge before you link" """
    receipts = Receipts(Limits(unconfirmed_bytes=100, unconfirmed_total_bytes=150))

    def waiting(message_id: str, identity: str, size: int) -> Unconfirmed:
        operation = operation_of(message_id, target=identity)
        frame = MessageFrame(Raw(b"s"), Raw(b"m" * (size - 1)))
        unconfirmed = Unconfirmed(operation, frame, None)  # type: ignore[arg-type]  # nobody waits
        receipts.add(unconfirmed)
        return unconfirmed

    def room(identity: str) -> int:
        return max(size for size in range(151) if receipts.has_room(identity, size))

    first, second = waiting("m1", "a", 20), waiting("m2", "a", 30)
    assert (room("a"), room("b"), len(receipts)) == (50, 100, 2)
    receipts.renew(first, MessageFrame(Raw(b"ss"), Raw(b"m" * 58)))
    assert (room("a"), room("b")) == (10, 60)
    assert receipts.awaited_from("a") == [first, second] and receipts.find("a", "m1") is first
    receipts.remove(first)
    receipts.remove(second)
    assert (room("a"), room("b"), len(receipts)) == (100, 100, 0)
    assert receipts.find("a", "m1") is None and receipts.awaited_from("a") == []


def test_receipts_that_came_leave_nothing_behind() -> None:
    """design 4 "Charge before you link" """
    world, a, t = pair()
    for number in range(5):
        a.message("t", f"m{number}")
        received(t, f"m{number}")
        assert is_delivered(a.got())
    report = only(world.send(world.connect(), type="broker_status", requestId="q"))["report"]["broker"]
    assert report["unconfirmedFrames"] == 0
    world.pass_time(725_000)
    assert world.disk.operations == {} and answers(a.got()) == [] and world.broker.next_deadline() is None


def test_a_shutdown_ends_the_waits_silently() -> None:
    """protocol 6.10.9"""
    world, a, _ = pair()
    a.message("t", "m1")
    a.got()
    world.stop()
    assert a.got() == [] and len(world.disk.operations) == 1, "the frame left: its outcome is unknown"


# --- what is written again ------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", [("wall",), ("mono",), ("wall", "mono")], ids=str)
def test_what_is_not_valid_any_more_is_not_written_again(clocks: tuple[str, ...]) -> None:
    """Protocol 4.1 effect 8, 9.5.5: by whichever clock its time is over; what came after it is."""
    world, a, t = pair()
    a.message("t", "m1", "one", extra={"validFor": 1_000})
    a.message("t", "m2", "two")
    a.message("t", "m3", "three", extra={"validFor": 1_001})
    t.leave()
    for clock in clocks:
        setattr(world, clock, getattr(world, clock) + 1_000)
    written = confirming(world).first[1:]
    assert [frame["message"]["content"]["text"] for frame in written] == ["two", "three"]
    assert not any("validUntil" in frame for frame in written), "it did not say that it understands that"


def test_a_copy_that_is_lost_does_not_end_the_wait_for_the_one_that_left() -> None:
    """Protocol 6.10.9: the recipient has had the frame since before it came back."""
    world, a, t = pair()
    a.message("t", "m1")
    for _ in range(2):
        t.leave()
        world.auto = False
        t = confirming_unread(world)
    t.leave()
    world.auto = True
    world.settle()
    assert answers(a.got()) == []
    received(confirming(world), "m1")
    assert is_delivered(a.got())


def confirming_unread(world: World) -> Client:
    """Register the recipient on a connection whose kernel takes nothing after the registration."""
    conn = world.connect()
    request = {"type": "register", "session": {**INFO, "name": "t"}, "returnAddress": "rt"}
    world.send(conn, **request, acknowledgesReceipt=True)
    world.commit()
    world.take(conn, 1)
    [answer] = world.got(conn)
    return Client(world, conn, answer["sessionId"], [answer])


def test_a_refusal_for_want_of_receipts_says_what_it_waits_for() -> None:
    """Protocol 5.13: the sentence is what an agent goes by."""
    world = World(limits=Limits(unconfirmed_frames=1))
    a, _ = world.register("a"), confirming(world)
    a.message("t", "m1")
    sentence = reasons.capacity("too many messages wait for the recipient's receipt", world.limits.receipt_wait_ms)
    assert reason(a.message("t", "m2")) == sentence


def test_a_refusal_for_want_of_memory_says_what_is_remembered() -> None:
    """Protocol 5.13, 6.9.3"""
    world = World(limits=Limits(operations=1, sender_share=1))
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m1")
    sentence = reasons.capacity("too many recent messages are remembered", world.limits.operation_ttl_ms)
    assert reason(a.message("b", "m2")) == sentence
