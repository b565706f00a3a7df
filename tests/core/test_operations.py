"""Test what is remembered of every message id: when two sends are one, for how long, and within which bounds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intercom.core.records import DropOperation, OperationRecord, OperationsPage, OperationState, Recovered
from intercom.limits import SECOND_MS, Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, answers, is_delivered, only, reason

CONFLICT = "message_id_conflict"


def rows(world: World) -> list[str]:
    """Return the message ids on disk, in the order of their reservation."""
    return [world.disk.operations[number].message_id for number in sorted(world.disk.operations)]


def code(frames: list[dict[str, Any]]) -> str | None:
    answer = only(answers(frames))
    return answer.get("reasonCode") if answer["type"] == "delivery_failed" else None


# --- the signature (6.9.1) ------------------------------------------------------------------------------

FILE = {"type": "file", "name": "n", "content": "c"}
SOURCE = {"subagentRunId": "r", "subagentAgent": "s", "subagentIndex": 1}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"timestamp": 9}),
        ({}, {"unknown": [1]}),
        ({}, {"expectsReply": False}),
        ({}, {"content": {"text": "x", "attachments": []}}),
        ({}, {"content": {"text": "x", "more": 1}}),
        (
            {"content": {"text": "x", "attachments": [FILE]}},
            {"content": {"attachments": [{"content": "c", "name": "n", "z": 1, "type": "file"}], "text": "x"}},
        ),
        ({"source": SOURCE}, {"source": {"subagentIndex": 1.0, "subagentAgent": "s", "subagentRunId": "r", "z": 0}}),
        ({}, {"extra": {"resolveReplyTarget": True}}),
        ({}, {"extra": {"awaitRestoringRecipient": True}}),
        ({}, {"extra": {"logicalTarget": "b"}}),
    ],
    ids=str,
)
def test_these_are_the_same_operation(first: dict[str, Any], second: dict[str, Any]) -> None:
    """protocol 6.9.1: not part of it; F71: key order, number spelling, transport attempt, timestamps"""
    world = World()
    a, b = world.register("a"), world.register("b")
    assert is_delivered(a.message("b", "m1", **first)) and is_delivered(a.message("b", "m1", **second))
    assert b.texts() == ["x"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"text": "x "}),
        ({}, {"expectsReply": True}),
        ({}, {"replyTo": ""}),
        ({"replyTo": "p"}, {"replyTo": "q"}),
        ({}, {"replyError": ""}),
        ({}, {"content": {"text": "x", "attachments": [FILE]}}),
        (
            {"content": {"text": "x", "attachments": [FILE]}},
            {"content": {"text": "x", "attachments": [FILE, FILE]}},
        ),
        (
            {"content": {"text": "x", "attachments": [FILE]}},
            {"content": {"text": "x", "attachments": [{**FILE, "language": "py"}]}},
        ),
        (
            {"content": {"text": "x", "attachments": [FILE]}},
            {"content": {"text": "x", "attachments": [{**FILE, "type": "context"}]}},
        ),
        ({}, {"source": {"subagentRunId": "r"}}),
        ({"source": {"subagentRunId": "r"}}, {"source": {"subagentRunId": "r", "subagentAgent": ""}}),
        ({"source": {"subagentRunId": "r"}}, {"source": {"subagentRunId": "r", "subagentIndex": 0}}),
        ({"source": SOURCE}, {"source": {**SOURCE, "subagentIndex": 1.5}}),
        ({}, {"extra": {"logicalTarget": "B"}}),
    ],
    ids=str,
)
def test_these_are_different_operations(first: dict[str, Any], second: dict[str, Any]) -> None:
    """protocol 6.9.1; F71: one byte, a flag"""
    world = World()
    a, b = world.register("a"), world.register("b")
    assert is_delivered(a.message("b", "m1", **first))
    assert code(a.message("b", "m1", **second)) == CONFLICT
    assert len(b.texts()) == 1


def test_the_target_is_taken_as_sent() -> None:
    """protocol 6.9.1: to is not trimmed; 6.2.4: bound to logicalTarget where there is one"""
    world = World()
    a, b = world.register("a"), world.register("b", returnAddress="r")
    assert is_delivered(a.message("b", "m1"))
    assert code(a.message(" b", "m1")) == CONFLICT
    assert is_delivered(a.message(b.id, "m2", extra={"logicalTarget": "b"}))
    assert is_delivered(a.message("b", "m2")), "another transport id, the same wording"
    b.leave()
    b = world.register("b2", returnAddress="r")
    assert is_delivered(a.message(b.id, "m2", extra={"logicalTarget": "b"})) and b.texts() == []


def test_the_sender_is_part_of_it_where_it_has_a_return_address() -> None:
    """protocol 6.9.1 sender identity; F71: the sender"""
    world = World()
    first, other = world.register("a", returnAddress="r1"), world.register("b", returnAddress="r2")
    target = world.register("t")
    assert is_delivered(first.message("t", "m1"))
    assert code(other.message("t", "m1")) == CONFLICT
    first.leave()
    again = world.register("renamed", returnAddress="r1")
    assert is_delivered(again.message("t", "m1")) and target.texts() == ["x"]


def test_an_older_client_that_reconnects_is_still_the_same_sender() -> None:
    """protocol OP-7: without a return address the sender identity is left out"""
    world = World()
    older, target = world.register("a"), world.register("t")
    assert is_delivered(older.message("t", "m1"))
    older.leave()
    older = world.register("a")
    assert is_delivered(older.message("t", "m1")) and target.texts() == ["x"]


def test_a_target_keeps_its_identity_by_return_address_and_group_or_by_its_id() -> None:
    """protocol 6.9.1 target identity"""
    world = World()
    a = world.register("a", info={"groups": ["default", "g"]})
    kept = {"returnAddress": "r", "registrationGroup": "home"}
    target = world.register("t", **kept)
    assert is_delivered(a.message("t", "m1"))
    target.leave()
    target = world.register("t", **kept)
    assert is_delivered(a.message("t", "m1")) and target.texts() == [], "another id, the same identity"
    target.leave()
    target = world.register("t", returnAddress="r", registrationGroup="elsewhere")
    assert code(a.message("t", "m1")) == CONFLICT
    target.leave()
    target = world.register("t", returnAddress="other", registrationGroup="home")
    assert code(a.message("t", "m1")) == CONFLICT
    target.leave()
    plain = world.register("t")
    assert code(a.message("t", "m1")) == CONFLICT
    assert is_delivered(a.message("t", "m2"))
    plain.leave()
    world.register("t")
    assert code(a.message("t", "m2")) == CONFLICT, "no return address, another id"


def test_signatures_on_disk_are_keyed_digests() -> None:
    """protocol 6.9.4: text never reaches the database and cannot be guessed from it"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m1", "secret text")
    (record,) = world.disk.operations.values()
    assert len(record.signature) == 32 and "secret" not in repr(record)


def test_the_message_id_is_compared_exactly() -> None:
    """F74: exact field look-up"""
    world = World()
    a, b = world.register("a"), world.register("b")
    ids = ["m1", "M1", "m1 ", " m1", "xm1", "m", ""]
    for message_id in ids:
        assert is_delivered(a.message("b", message_id, xMessageId="m1", messageid="m1", meta={"messageId": "m1"}))
    assert b.texts() == ["x"] * len(ids)


# --- states on disk (6.9.2) -----------------------------------------------------------------------------


def test_reserved_is_on_disk_before_forwarding_and_accepted_before_the_answer() -> None:
    """protocol 6.9.2, design 5: one rule, no exception"""
    world = World()
    a, b = world.register("a"), world.register("b", acknowledgesReceipt=True)
    world.auto = False
    a.ask("b", "q1")
    world.commit()
    (record,) = world.disk.operations.values()
    assert record.state is OperationState.RESERVED and record.accepted_at is None
    assert record.question is not None and record.question.target_session == b.id
    world.take()
    world.pass_time(2_000)
    b.write("received", messageId="q1")
    assert answers(a.got()) == []
    world.commit()
    (record,) = world.disk.operations.values()
    assert record.state is OperationState.ACCEPTED and record.accepted_at == world.wall
    assert (record.sender_session, record.recipient_session) == (a.id, b.id)
    world.take()
    assert is_delivered(a.got())


def test_the_number_of_a_row_grows_with_every_reservation() -> None:
    """records: key of the row, over restarts as well"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m1")
    world.crash()
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m2")
    assert sorted(world.disk.operations) == [1, 2]


def test_new_numbers_stay_above_rows_that_were_not_recovered() -> None:
    """records: damaged and stale rows keep their numbers"""
    world = World()
    world.broker = type(world.broker)(
        key=bytes(32),
        ids=world.ids,
        instance_id="i",
        pid=1,
        now=world.now,
        recovered=Recovered(last_number=41),
    )
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m1")
    assert list(world.disk.operations) == [42]


@pytest.mark.parametrize("point", ["reserved", "forwarded", "accepted", "answered"])
def test_a_retry_after_a_crash_finds_what_was_committed(point: str) -> None:
    """F72, F76; protocol 6.9.2"""
    world = World()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    world.auto = False
    a.message("b", "m1")
    if point != "reserved":
        world.commit()
        world.take(told=point != "forwarded")
    if point in ("accepted", "answered"):
        world.commit()
    if point == "answered":
        world.take()
    arrived = b.texts()
    world.auto = True
    world.crash()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    retry = a.message("b", "m1")
    if point == "forwarded":
        assert reason(retry) == reasons.UNCERTAIN
    else:
        assert is_delivered(retry)
    assert len(arrived) + len(b.texts()) == 1


def queued_world(sender: str) -> World:
    """Return a world whose disk holds one message in a mailbox."""
    world = World()
    probe, target = world.register("probe", returnAddress=sender), world.register("t", returnAddress="rt")
    world.auto = False
    probe.message("t", "m1")
    world.commit()
    world.auto = True
    (record,) = world.disk.operations.values()
    world.disk.operations = {1: queued(record)}
    world.crash()
    assert target.id
    return world


def queued(record: OperationRecord) -> OperationRecord:
    return OperationRecord(
        *(record.number, record.message_id, OperationState.QUEUED, record.signature, record.sender, record.target),
        *(record.sender_session, None, record.reserved_at, None, 7, None),
    )


def test_a_queued_operation_is_answered_queued_again() -> None:
    """design 7 "Queueing": a fourth state; conflict as for accepted"""
    world = queued_world("r")
    a, t = world.register("a", returnAddress="r"), world.register("t", returnAddress="rt")
    assert only(answers(a.message(" t", "m1", extra={"logicalTarget": "t"}))) == {
        "type": "queued",
        "messageId": "m1",
        "attemptId": f"{a.conn}.1",
        "target": "t",
        "position": 7,
    }
    assert code(a.message("t", "m1", "other")) == CONFLICT and t.texts() == []


def test_an_older_client_is_never_told_queued() -> None:
    """protocol 5.30, OP-5; design 7 "Queueing": Session not found, never delivered"""
    world = World()
    a, _ = world.register("a"), world.register("t", returnAddress="rt")
    world.auto = False
    a.message("t", "m1")
    world.commit()
    world.auto = True
    (record,) = world.disk.operations.values()
    world.disk.operations = {1: queued(record)}
    world.crash()
    a, t = world.register("a"), world.register("t", returnAddress="rt")
    assert reason(a.message("t", "m1")) == "Session not found" and t.texts() == []


# --- how long (6.9.3) -----------------------------------------------------------------------------------


def test_an_operation_is_remembered_from_its_reservation_for_the_ttl() -> None:
    """protocol 6.9.3, 6.9.2 "older than the TTL"; F73: the window begins at first sight, repeats do not move it"""
    world = World()
    a, b = world.register("a"), world.register("b")
    ttl = 720 * SECOND_MS
    assert world.limits.operation_ttl_ms == ttl
    assert is_delivered(a.message("b", "m1"))
    for _ in range(3):
        world.pass_time(ttl // 4)
        assert is_delivered(a.message("b", "m1"))
    world.pass_time(ttl // 4 - 1)
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]
    world.pass_time(2)
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_wall_clock_jumps_do_not_change_how_long() -> None:
    """F73: time is monotonic"""
    world = World()
    a, b = world.register("a"), world.register("b")
    a.message("b", "m1")
    world.wall -= 3_600_000
    assert is_delivered(a.message("b", "m1"))
    world.wall += 100 * 3_600_000
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_age_counts_over_a_restart() -> None:
    """protocol 6.9.3; F72"""
    world = World()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    a.message("b", "m1")
    world.pass_time(700 * SECOND_MS)
    world.crash()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    assert is_delivered(a.message("b", "m1")) and b.texts() == []
    world.pass_time(21 * SECOND_MS)
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_expired_rows_leave_the_disk_though_nobody_asks() -> None:
    """protocol 6.9.3: pruned; deadlines are data"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    for number in range(5):
        a.message("b", f"m{number}")
        world.pass_time(400)
    assert len(rows(world)) == 5
    world.pass_time(720 * SECOND_MS)
    assert len(rows(world)) <= 2
    world.pass_time(2 * SECOND_MS)
    assert rows(world) == [] and world.broker.next_deadline() is None


def test_one_timer_is_enough_for_all_rows() -> None:
    """design 6: no timer per message"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    for number in range(50):
        assert is_delivered(a.message("b", f"m{number}"))
    assert len(world.broker._deadlines) == 1


def test_a_look_up_prunes_too() -> None:
    """protocol 6.9.3: at every look-up and reservation"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    a.message("b", "m1")
    world.mono += 721 * SECOND_MS
    a.message("b", "m2")
    assert rows(world) == ["m2"]
    world.mono += 10 * SECOND_MS
    a.message("b", "m3")
    world.mono += 711 * SECOND_MS
    assert is_delivered(a.message("b", "m3")) and rows(world) == ["m3"], "a retry reserves nothing"


def test_a_row_that_expires_while_its_frame_is_still_queued_is_not_accepted() -> None:
    """protocol 6.9.2: accepting answers invalid when there is no such entry"""
    world = World()
    a, b = world.register("a"), world.register("b")
    world.deaf.add(b.conn)
    a.message("b", "m1")
    world.pass_time(725 * SECOND_MS)
    assert rows(world) == []
    world.deaf.clear()
    world.settle()
    assert b.texts() == ["x"] and reason(a.got()) == reasons.NOT_CONFIRMED_DURABLY and rows(world) == []


def test_a_frame_lost_after_its_row_expired_is_reported_and_changes_nothing() -> None:
    """protocol 6.9.2: forget removes only the entry it means"""
    world = World()
    a, b = world.register("a"), world.register("b", returnAddress="r")
    world.deaf.add(b.conn)
    a.message("b", "m1")
    world.pass_time(725 * SECOND_MS)
    last = world.last_ticket
    b.leave()
    assert reason(a.got()) == "Session not found" and world.last_ticket == last


def test_a_row_that_expires_before_its_own_commit_fails_harms_nobody() -> None:
    """design 3.6: a reservation that is gone already is withdrawn without a trace"""
    world = World()
    a, b = world.register("a"), world.register("b")
    world.auto = False
    a.message("b", "m1")
    world.pass_time(725 * SECOND_MS)
    world.fail_commit()
    world.settle()
    assert reason(a.got()) == reasons.NOT_RECORDED and b.texts() == []
    world.auto = True
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_a_row_whose_question_is_open_does_not_expire() -> None:
    """design 5 "Asks survive": the ask's deadline ends it"""
    world = World(limits=Limits(ask_ms=3_600 * SECOND_MS))
    a, b = world.register("a"), world.register("b")
    assert is_delivered(a.ask("b", "q1")) and is_delivered(a.message("b", "m1"))
    world.pass_time(1_800 * SECOND_MS)
    assert rows(world) == ["q1"]
    assert is_delivered(a.ask("b", "q1")) and b.texts() == ["?", "x"]
    assert is_delivered(b.reply("a", "r1", "q1"))
    world.pass_time(1_900 * SECOND_MS)
    assert is_delivered(a.ask("b", "q1")) and b.texts() == ["?"], "answered, and its time is over: a new operation"


def test_a_row_leaves_with_its_question_at_the_deadline() -> None:
    """design 5 "Asks survive": the ask's deadline ends it"""
    world = World(limits=Limits(ask_ms=3_600 * SECOND_MS))
    a, b = world.register("a"), world.register("b")
    a.ask("b", "q1")
    world.pass_time(3_602 * SECOND_MS)
    assert rows(world) == [] and "No open question" in reason(b.reply("a", "r1", "q1"))


def test_a_look_up_finds_no_row_that_is_over_behind_younger_ones() -> None:
    """protocol 6.9.2 "older than the TTL": a row that was kept for its question stands behind younger ones"""
    limits = Limits(ask_ms=800 * SECOND_MS)
    world = World(limits=limits)
    a, b = world.register("a"), world.register("b")
    a.ask("b", "q1")
    world.pass_time(700 * SECOND_MS)
    a.message("b", "m1")
    world.pass_time(25 * SECOND_MS)
    assert b.texts() == ["?", "x"]
    b.reply("a", "r1", "q1")
    world.mono += 80 * SECOND_MS
    assert is_delivered(a.ask("b", "q1"))
    assert b.texts() == ["?"] and rows(world) == ["m1", "r1", "q1"]


# --- how many (6.9.3, design 5 "Bounds") ----------------------------------------------------------------


def capacity(refusal: str) -> int:
    """Return the seconds after which a refusal for lack of room invites to retry."""
    assert refusal.startswith(reasons.CAPACITY) and refusal.endswith(" s"), refusal
    return int(refusal.split()[-2])


def test_one_sender_may_hold_a_quarter_of_the_rows() -> None:
    """design 5 "Bounds": beyond it only that sender is refused, with the time until a retry may pass"""
    world = World(limits=Limits(operations=40))
    a, other, b = world.register("a", returnAddress="ra"), world.register("o"), world.register("b")
    for number in range(10):
        assert is_delivered(a.message("b", f"m{number}"))
        world.pass_time(SECOND_MS)
    answer = only(answers(a.message("b", "m10")))
    assert capacity(answer["reason"]) == 720 - 10 and "reasonCode" not in answer
    assert is_delivered(a.message("b", "m3")), "what is known stays known"
    assert is_delivered(other.message("b", "o1")) and is_delivered(b.message("a", "b1"))
    a.leave()
    a = world.register("a", returnAddress="ra")
    assert capacity(reason(a.message("b", "m10"))) == 710, "it is the identity that is charged"
    world.pass_time(711 * SECOND_MS)
    assert is_delivered(a.message("b", "m10"))


def test_a_refused_sender_is_told_the_time_of_its_own_oldest_row() -> None:
    """design 5 "Bounds": retry after N"""
    world = World(limits=Limits(operations=8))
    a, b = world.register("a"), world.register("b")
    b.message("a", "b1")
    world.pass_time(100 * SECOND_MS)
    a.message("b", "a1")
    world.pass_time(10 * SECOND_MS)
    a.message("b", "a2")
    assert [capacity(reason(a.message("b", "a3"))) for _ in range(2)] == [710, 710]
    world.pass_time(700 * SECOND_MS)
    assert capacity(reason(a.message("b", "a3"))) == 10
    world.pass_time(10 * SECOND_MS + 1)
    assert is_delivered(a.message("b", "a3"))


def test_one_sender_may_hold_a_quarter_of_the_bytes() -> None:
    """design 5 "Bounds": of both"""
    world = World(limits=Limits(operation_bytes=40_000))
    a, b = world.register("a"), world.register("b")
    for number in range(9):
        assert is_delivered(a.message("b", f"{number}" * 900))
    for number in range(2):
        a.message("b", f"last {number}" * 150)
    assert capacity(reason(a.message("b", "one more"))) == 720
    assert is_delivered(b.message("a", "small"))
    world.pass_time(725 * SECOND_MS)
    assert is_delivered(a.message("b", "one more"))


def full_world(**sender: Any) -> tuple[World, Client, Client]:
    """Return a world of four rows, three of which ``a`` has written and one ``b``."""
    world = World(limits=Limits(operations=4, sender_share=1))
    a, b = world.register("a", **sender), world.register("b")
    for number in range(3):
        a.message("b", f"a{number}")
    b.message("a", "b0")
    return world, a, b


def test_when_all_is_full_rows_nobody_needs_go_first() -> None:
    """design 5 "Bounds": accepted plain sends whose answer was taken, older than 15 s, connection still open"""
    world, a, _ = full_world()
    world.pass_time(15 * SECOND_MS - 1)
    assert capacity(reason(a.message("b", "late"))) == 706
    world.pass_time(1)
    assert is_delivered(a.message("b", "late"))
    assert rows(world) == ["a1", "a2", "b0", "late"]


def test_rows_whose_sender_may_still_need_them_never_go() -> None:
    """design 5 "Bounds": the connection that took the answer must still be open"""
    world, a, b = full_world()
    a.leave()
    world.pass_time(20 * SECOND_MS)
    c = world.register("c")
    assert is_delivered(c.message("b", "c0"))
    assert rows(world) == ["a0", "a1", "a2", "c0"], "only the row of b may go"
    b.leave()
    d = world.register("d")
    assert capacity(reason(d.message("c", "d0"))) == 700
    assert rows(world) == ["a0", "a1", "a2", "c0"]


def test_an_answer_that_was_not_taken_keeps_its_row() -> None:
    """design 5 "Bounds": whose answer was taken"""
    world = World(limits=Limits(operations=1, sender_share=1))
    a, b = world.register("a"), world.register("b")
    world.deaf.add(a.conn)
    a.message("b", "m1")
    world.pass_time(20 * SECOND_MS)
    assert capacity(reason(b.message("a", "b1"))) == 700
    world.deaf.clear()
    world.settle()
    assert is_delivered(b.message("a", "b1")) and rows(world) == ["b1"]


def test_asks_and_reserved_rows_never_go() -> None:
    """design 5 "Bounds" """
    world = World(limits=Limits(operations=3, sender_share=1))
    a, b = world.register("a"), world.register("b", acknowledgesReceipt=True)
    a.message("b", "unconfirmed")
    assert is_delivered(b.ask("a", "open"))
    assert is_delivered(b.ask("a", "another"))
    world.pass_time(60 * SECOND_MS)
    assert capacity(reason(b.message("a", "m1"))) == 660
    b.write("received", messageId="unconfirmed")
    world.pass_time(60 * SECOND_MS)
    assert capacity(reason(b.message("a", "m1"))) == 600, "accepted late, but its sender was not told so"


def test_an_answered_ask_does_not_go_either() -> None:
    """design 5 "Bounds": asks never go"""
    world = World(limits=Limits(operations=2, sender_share=1))
    a, b = world.register("a"), world.register("b")
    assert is_delivered(b.ask("a", "q1")) and is_delivered(a.reply("b", "r1", "q1"))
    world.pass_time(60 * SECOND_MS)
    assert is_delivered(b.message("a", "m1")) and rows(world) == ["q1", "m1"]
    assert capacity(reason(b.message("a", "m2"))) == 660


def test_a_full_table_never_forgets_somebody_elses_operation_for_a_lookup() -> None:
    """protocol 6.9.3: a retry needs no room"""
    world, a, b = full_world()
    assert is_delivered(a.message("b", "a0")) and b.texts() == []
    assert len(rows(world)) == 4


def test_bytes_in_all_are_bounded_as_rows_are() -> None:
    """design 5 "Bounds": 96 MiB; what its sender cannot need goes first"""
    world = World(limits=Limits(operation_bytes=3_000, sender_share=2))
    a, b, c = (world.register(name) for name in "abc")
    for number, (sender, to) in enumerate(((a, "b"), (b, "a"), (a, "b"))):
        assert is_delivered(sender.message(to, f"{number}" * 900))
    assert capacity(reason(c.message("a", "m1"))) == 720
    world.pass_time(15 * SECOND_MS)
    assert is_delivered(c.message("a", "m1")) and len(rows(world)) == 3


def test_rows_that_left_make_room() -> None:
    """protocol 6.9.3"""
    world = World(limits=Limits(operations=2, sender_share=1))
    a, _ = world.register("a"), world.register("b")
    a.ask("b", "q1")
    a.ask("b", "q2")
    assert capacity(reason(a.message("b", "m1"))) == 720
    world.pass_time(721 * SECOND_MS)
    assert is_delivered(a.message("b", "m1"))


def test_what_was_recovered_is_charged() -> None:
    """design 5 "Bounds" """
    world = World(limits=Limits(operations=8))
    a, _ = world.register("a", returnAddress="r"), world.register("b")
    a.message("b", "m1")
    a.message("b", "m2")
    world.crash()
    a, _ = world.register("a", returnAddress="r"), world.register("b")
    assert capacity(reason(a.message("b", "m3"))) == 720


def test_the_bytes_of_a_row_come_back_when_it_goes() -> None:
    """design 5 "Bounds" """
    world = World()
    a, b = world.register("a"), world.register("b")
    operations = world.broker._messages.operations
    assert operations.charged_bytes == 0
    a.message("b", "m1")
    world.deaf.add(b.conn)
    a.message("b", "m2")
    charged = operations.charged_bytes
    world.lose(b.conn)
    assert 0 < operations.charged_bytes < charged and len(operations) == 1
    world.pass_time(725 * SECOND_MS)
    assert operations.charged_bytes == len(operations) == 0


def test_bounds_are_those_of_the_design() -> None:
    """design 5 "Bounds", protocol 7"""
    limits = Limits()
    assert limits.operations == 300_000 and limits.operation_bytes == 96 * 1024 * 1024
    assert limits.sender_share == 4 and limits.evictable_after_ms == 15_000


def test_a_question_that_is_taken_back_while_the_store_is_shut_is_not_written() -> None:
    """design 5 "Fail closed" """
    world = World()
    a, _ = world.register("a"), world.register("b")
    assert is_delivered(a.ask("b", "q1"))
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    a.write("cancel_ask", messageId="q1")
    assert not world.appends


def test_of_two_rows_of_one_message_the_newest_counts() -> None:
    """protocol 6.9.3: a row that could not be deleted before its id was used again is deleted now"""
    world = World(leaves=True)
    a, _ = world.register("a"), world.register("b")
    assert is_delivered(a.message("b", "m1"))
    [row] = world.disk.operations.values()
    world.disk.operations[row.number + 5] = replace(row, number=row.number + 5)
    world.crash()
    assert list(world.disk.operations) == [row.number + 5]


def test_an_older_row_of_a_message_that_is_known_already_is_deleted() -> None:
    """protocol 6.9.3"""
    world = World(leaves=True)
    a, _ = world.register("a"), world.register("b", acknowledgesReceipt=True)
    a.message("b", "m1")
    [row] = world.disk.operations.values()
    assert row.state is OperationState.RESERVED
    newer = replace(row, number=row.number + 5)
    older = replace(row, state=OperationState.ACCEPTED, accepted_at=world.wall)
    world.disk.operations = {older.number: older, newer.number: newer}
    world.crash()
    assert list(world.disk.operations) == [newer.number]


def test_a_row_that_is_not_there_any_more_is_not_dropped_twice_and_takes_nobodys_place() -> None:
    """protocol 6.9.1: an id belongs to the newest row"""
    world = World()
    a, _ = world.register("a"), world.register("b")
    assert is_delivered(a.message("b", "m1"))
    operations = world.broker._messages.operations
    first = operations.by_id("m1")
    assert first is not None and len(operations.drop(first)) == 1
    assert operations.drop(first) == ()
    assert is_delivered(a.message("b", "m1"))
    second = operations.by_id("m1")
    operations.put_back(first)
    assert operations.by_id("m1") is second is not first


def test_a_settled_row_on_disk_gives_way_to_a_newer_one_that_is_known() -> None:
    """protocol 6.9.3: nothing older than what is known is entered"""
    world = World(leaves=True)
    a, _ = world.register("a"), world.register("b", acknowledgesReceipt=True)
    a.message("b", "m0")
    a.message("b", "m1")
    first, second = world.disk.operations.values()
    older = replace(second, number=first.number, state=OperationState.ACCEPTED, accepted_at=world.wall)
    world.crash()
    world.auto = False
    world.perform(world.broker.operations_read(OperationsPage([older], set(), [], second.number), world.now))
    assert [change for append in world.appends for change in append.changes] == [DropOperation(older.number)]


def test_a_row_that_was_settled_since_the_start_is_met_again_on_disk() -> None:
    """protocol 6.9.3: it is the one that is known"""
    world = World(leaves=True)
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb", acknowledgesReceipt=True)
    assert is_delivered(b.message("a", "m0"))
    a.message("b", "m1")
    world.auto = False
    world.crash()
    assert world.reads
    row = next(row for row in world.disk.operations.values() if row.message_id == "m1")
    settled = replace(row, state=OperationState.ACCEPTED, accepted_at=world.wall)
    known = world.broker._messages.operations.by_id("m1")
    page = OperationsPage([settled], set(), [], row.number)
    world.perform(world.broker.operations_read(page, world.now))
    assert world.broker._messages.operations.by_id("m1") is known is not None
    assert not [append for append in world.appends for change in append.changes if isinstance(change, DropOperation)]
