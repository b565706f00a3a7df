"""Test held sends: which sends wait for a restoring recipient, how their waiting ends, and what it may cost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.json import decode as from_json

from intercom.core.effects import Write
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import MessageFrame
from tests.core.family import (
    CHILD,
    GROUP,
    OLD_ID,
    OTHER_ID,
    Family,
    capability_of,
    hold,
    ids,
    older,
    release,
)
from tests.core.harness import (
    Client,
    World,
    answers,
    is_delivered,
    only,
    reason,
    types,
    without_announcements,
)

UNDERSTANDS = {"awaitRestoringRecipient": True}


def held(world: World) -> int:
    """Return how many sends are held."""
    ours = only(world.send(world.connect(), type="broker_status", requestId="s"))["report"]["broker"]
    count: int = ours["heldSends"]
    return count


# --- admission (E3, 6.11) -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CHILD, "ReViewer", f" {CHILD}\t", OLD_ID, OLD_ID.upper(), f"\n{OLD_ID} ", OTHER_ID])
def test_a_send_waits_that_means_an_alias_or_the_name(target: str) -> None:
    """protocol 6.11 admission: trimmed, case-insensitive"""
    family = Family()
    family.reserve(aliases=[OLD_ID, OTHER_ID])
    writer = family.sender()
    assert only(writer.message(target, "m1", extra=UNDERSTANDS)) == {
        "type": "send_held",
        "messageId": "m1",
        "attemptId": f"{writer.conn}.1",
        "timeoutMs": 120_000,
    }
    child = family.child()
    assert ids(child.first + child.got()) == ["m1"]
    assert is_delivered(writer.got())


@pytest.mark.parametrize("target", ["review", "reviewer2", OLD_ID[:8], OLD_ID[:-1], ""])
def test_a_send_that_means_somebody_else_does_not_wait(target: str) -> None:
    """protocol 6.11 admission: none matches, ordinary handling goes on"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    assert reason(family.sender().message(target, "m1", extra=UNDERSTANDS)) == "Session not found"


def test_only_members_of_its_group_wait_for_a_recipient() -> None:
    """protocol 6.11 admission: the sender is in the reservation's group"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    outsider = family.sender("outsider", "teamB")
    for number, target in enumerate((CHILD, OLD_ID)):
        assert reason(outsider.message(target, f"m{number}", extra=UNDERSTANDS)) == "Session not found"
    outsider.write("join_group", requestId="j", group=GROUP)
    hold(outsider, "m3")


@pytest.mark.parametrize(
    ("extra", "is_dormant", "outcome"),
    [
        (UNDERSTANDS, False, 120_000),
        (UNDERSTANDS, True, 120_000),
        ({}, False, 8_000),
        ({}, True, 0),
    ],
)
def test_how_long_a_send_waits(extra: dict[str, Any], is_dormant: bool, outcome: int) -> None:
    """protocol 6.11: the table of flag and reservation; the time limit"""
    family = Family()
    family.reserve(dormant=is_dormant)
    writer = family.sender()
    got = without_announcements(writer.message(CHILD, "m1", extra=extra))
    assert types(got) == {120_000: ["send_held"], 8_000: [], 0: ["delivery_failed"]}[outcome]
    if outcome:
        family.world.pass_time(outcome - 1)
        assert writer.got() == []
        family.world.pass_time(1)
        assert reason(writer.got()) == reasons.RESTORING_TIMED_OUT
    else:
        assert reason(got) == reasons.RESTORING_DORMANT
    assert held(family.world) == 0
    child = family.child()
    assert ids(child.first + child.got()) == []


@pytest.mark.parametrize("flag", [False, None, 1, "true", [], {"a": 1}])
def test_only_true_says_that_a_sender_understands(flag: Any) -> None:
    """protocol 4.8: only the value ``true`` matters; 5.30: no ``send_held`` to others"""
    family = Family()
    family.reserve()
    writer = family.sender()
    assert writer.message(CHILD, "m1", extra={"awaitRestoringRecipient": flag}) == []
    assert held(family.world) == 1


def test_an_older_client_waits_in_silence_and_gets_its_answer() -> None:
    """protocol 5.30: what old clients must never see; legacy clients have no attempt id"""
    family = Family()
    family.reserve()
    old = older(family.world, "old")
    legacy = older(family.world, "legacy")
    old.got()
    assert old.message(CHILD, "m1") == []
    message = {"id": "m2", "timestamp": 5, "content": {"text": "x"}}
    assert legacy.write("send", to=CHILD, message=message) == []
    child = family.child()
    assert ids(child.first + child.got()) == ["m1", "m2"]
    assert types(old.got()) == ["session_joined", "delivered"]
    assert without_announcements(legacy.got()) == [{"type": "delivered", "messageId": "m2"}]


def test_nothing_goes_up_the_supervisor_line_into_a_hold() -> None:
    """protocol 4.9: not held for a restoring recipient"""
    family = Family()
    grandparent = family.supervisor("grandparent", token="another", info={"group": GROUP})
    middle = capability_of(grandparent, "middle")
    claim = {"capability": middle, "supervisorSessionId": "x"}
    parent = family.supervisor("middle", supervisor=claim, info={"group": GROUP}, returnAddress="ret-middle")
    capability = capability_of(parent)
    child = family.child(capability)
    parent.leave()
    family.reserve(middle, by=grandparent, aliases=[parent.id])
    got = child.message(parent.id, "m1", kind="supervisor_send", extra=UNDERSTANDS)
    assert reason(got) == "Session not found"
    hold(child, "m2", parent.id)


def test_a_control_session_of_that_name_comes_first() -> None:
    """protocol 4.8: E1 before E3"""
    family = Family()
    family.reserve()
    family.world.register(CHILD, info={"group": GROUP, "recipientPurpose": "control"})
    assert reason(family.sender().message(CHILD, "m1", extra=UNDERSTANDS)) == reasons.NOT_AN_AGENT


def test_an_ambiguous_name_is_not_not_found() -> None:
    """protocol 4.8: E3 only when nothing was found"""
    family = Family()
    family.reserve()
    for address in ("one", "two"):
        family.sender(CHILD, returnAddress=address)
    assert reason(family.sender().message(CHILD, "m1", extra=UNDERSTANDS)) == reasons.ambiguous_name(CHILD)


def test_two_recipients_that_may_be_meant_are_ambiguous() -> None:
    """protocol 6.11: two matching reservations"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    family.reserve(capability_of(family.parent), aliases=[OTHER_ID, OLD_ID])
    writer = family.sender()
    for number, target in enumerate((CHILD, OLD_ID)):
        failed = only(answers(writer.message(target, f"m{number}", extra=UNDERSTANDS)))
        assert failed["reason"] == reasons.ambiguous_restoring(target) and "reasonCode" not in failed
    hold(writer, "m3", OTHER_ID)


def test_the_form_is_judged_before_anything_waits() -> None:
    """protocol 4.8: A before E"""
    family = Family()
    family.reserve()
    writer = family.sender()
    assert reason(writer.message(CHILD, "m1", extra={**UNDERSTANDS, "channel": "x"})) == "Invalid channel"
    assert reason(writer.write("send", to=CHILD, message={"id": "m2"}, **UNDERSTANDS)) == "Invalid message format"


def test_a_pending_reply_that_fails_says_that_the_asker_is_not_there() -> None:
    """protocol 4.8, 6.7: code ``session_not_found`` if ``requirePendingReply``"""
    family = Family()
    family.reserve(dormant=True)
    writer = family.sender()
    assert only(answers(writer.reply(CHILD, "m1", "q")))["reasonCode"] == "session_not_found"
    family.reserve()
    writer.reply(CHILD, "m2", "q")
    family.world.pass_time(8_000)
    assert only(writer.got())["reasonCode"] == "session_not_found"
    writer.reply(CHILD, "m3", "q")
    release(family.parent, family.capability, gone="cancelled")
    assert only(writer.got())["reasonCode"] == "session_not_found"
    assert only(writer.reply(CHILD, "m4", "q"))["reasonCode"] == "session_not_found"


def test_a_closed_store_refuses_at_once() -> None:
    """protocol D10: fail closed; nobody waits for a refusal"""
    family = Family(store_trouble="the key is missing")
    family.reserve()
    got = family.sender().message(CHILD, "m1", extra=UNDERSTANDS)
    assert reason(got) == reasons.authority_invalid("the key is missing")


# --- the child returns ----------------------------------------------------------------------------------


def test_what_waits_follows_everything_a_registration_brings() -> None:
    """protocol 4.1: effects 6, 7, 8, 10 in this order; arrival order"""
    family = Family()
    writers = [family.sender(name) for name in ("one", "two", "three")]
    child = family.child(returnAddress="ret-c", acknowledgesReceipt=True)
    writers[0].message(CHILD, "m0")
    child.leave()
    family.reserve()
    for number in range(1, 7):
        hold(writers[number % 3], f"m{number}")
    for writer in writers:
        writer.got()
    child = family.child(returnAddress="ret-c", acknowledgesReceipt=True, preferredSessionId=child.id)
    frames = child.first + child.got()
    assert types(frames) == ["registered", *["message"] * 7]
    assert ids(frames) == [f"m{number}" for number in range(7)]
    assert types(writers[0].got()) == ["session_joined"], "the answer waits for the receipt"
    for number in range(7):
        child.write("received", messageId=f"m{number}")
    assert [answer["messageId"] for answer in answers(writers[0].got())] == ["m0", "m3", "m6"]


def test_a_message_leaves_the_hold_byte_for_byte() -> None:
    """protocol 4: forwarded exactly as received, unknown keys included"""
    family = Family()
    family.reserve()
    writer = family.sender()
    message = b'{"id":"m1",  "timestamp":5.0,"content":{"text":"caf\\u00e9"},"more":[1,{"x":null}]}'
    writer.world.feed(writer.conn, b'{"type":"send","to":"reviewer","message":' + message + b"}")
    family.world.auto = False
    claim = {"capability": family.capability, "supervisorSessionId": "x"}
    conn = family.world.connect()
    info = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": CHILD, "group": GROUP}
    family.world.send(conn, type="register", session=info, supervisor=claim)
    forwarded = [write.frame for write in family.world.waiting if isinstance(write.frame, MessageFrame)]
    assert [bytes(frame.message) for frame in forwarded] == [message]


def test_from_is_the_sender_as_it_is_when_the_message_leaves() -> None:
    """protocol 6.11: dispatch with the sender's current session"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    writer.write("presence", requestId="p", name="renamed")
    child = family.child()
    message = only(child.first[1:], "message")
    assert (message["from"]["name"], message["from"]["id"]) == ("renamed", writer.id)


def test_the_whole_decision_is_made_again() -> None:
    """protocol 6.11: dispatch means the complete decision list, as if received now"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    mover, writer, picky = family.sender("mover"), family.sender("writer"), family.sender("picky")
    hold(mover, "m1", OLD_ID)
    hold(mover, "m2")
    hold(picky, "m3", extra={"expectedRecipientId": OTHER_ID})
    hold(writer, "m4", expectsReply=True)
    mover.write("leave_group", requestId="l", group=GROUP)
    for client in (mover, writer, picky):
        client.got()
    claim = {"capability": family.capability, "supervisorSessionId": "x"}
    terminal = family.world.register(CHILD, info={"group": GROUP, "replyCapability": "terminal"}, supervisor=claim)
    assert ids(terminal.first + terminal.got()) == []
    assert [answer["reason"] for answer in answers(mover.got())] == [reasons.DIFFERENT_GROUP, "Session not found"]
    assert reason(picky.got()) == reasons.OTHER_RECIPIENT
    assert reason(writer.got()) == reasons.TERMINAL


@pytest.mark.parametrize("spare_ms", [-1, 0, 1])
def test_the_time_that_a_send_is_held_counts_for_how_long_it_is_valid(spare_ms: int) -> None:
    """protocol 9.5.5: it counts from the send."""
    family = Family()
    family.reserve()
    writer = family.sender()
    assert types(writer.message(CHILD, "m1", extra={**UNDERSTANDS, "validFor": 1_000 + spare_ms})) == ["send_held"]
    family.world.pass_time(1_000)
    child = family.child()
    assert ids(child.first + child.got()) == (["m1"] if spare_ms > 0 else [])
    [answer] = answers(writer.got())
    assert answer.get("reason") == (None if spare_ms > 0 else reasons.TOO_LATE)


def test_an_alias_finds_the_child_under_its_new_id() -> None:
    """protocol 6.11: dispatch to the restored session's id, the original wording stays the identity"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer = family.sender()
    hold(writer, "m1", OLD_ID)
    hold(writer, "m2", OLD_ID, extra={"logicalTarget": OLD_ID[:8]})
    child = family.child()
    assert child.id != OLD_ID
    assert ids(child.first + child.got()) == ["m1", "m2"]
    assert types(answers(writer.got())) == ["delivered", "delivered"]
    retry = writer.message(child.id, "m1", extra={"logicalTarget": OLD_ID})
    assert is_delivered(retry) and child.got() == []
    retry = writer.message(child.id, "m2", extra={"logicalTarget": OLD_ID[:8]})
    assert is_delivered(retry) and child.got() == []


def test_a_name_is_resolved_again_when_the_child_returns() -> None:
    """protocol 6.11: only an alias stands for the session that came back"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    namesake = family.sender(CHILD)
    child = family.child()
    assert ids(child.first + child.got() + namesake.got()) == []
    assert reason(writer.got()) == reasons.ambiguous_name(CHILD)


def test_a_held_ask_opens_its_question_when_it_arrives() -> None:
    """protocol 6.5, D16: the question is open from the finish on"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer = family.sender()
    hold(writer, "q1", OLD_ID, expectsReply=True, extra={"resolveReplyTarget": True})
    child = family.child(returnAddress="ret-c", preferredSessionId=OLD_ID)
    got = without_announcements(writer.got())
    assert types(got) == ["question_target", "delivered"] and got[0]["sessionId"] == child.id == OLD_ID
    assert is_delivered(child.reply(writer.id, "a1", "q1"))
    assert ids(writer.got()) == ["a1"]


def test_a_reply_waits_for_an_asker_that_is_brought_back() -> None:
    """protocol 6.5, design 5 "Asks survive": the question of a returned asker is open before what waits is decided"""
    family = Family()
    child = family.child(returnAddress="ret-c")
    writer = family.sender()
    child.ask(writer.id, "q1")
    writer.got()
    family.world.crash()
    family.parent = family.supervisor("parent")
    capability_of(family.parent, capability=family.capability)
    family.reserve(aliases=[child.id])
    writer = family.sender("writer", preferredSessionId=writer.id)
    hold(writer, "a1", child.id, replyTo="q1", extra={"requirePendingReply": True})
    child = family.child(returnAddress="ret-c", preferredSessionId=child.id)
    assert ids(child.first + child.got()) == ["a1"]
    assert is_delivered(writer.got())


# --- the other ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leave", "unregister"])
def test_what_a_departing_sender_wanted_to_send_is_dropped(how: str) -> None:
    """protocol 6.11, 6.15.1: the sender departs"""
    family = Family()
    family.reserve()
    leaver, stayer = family.sender("leaver"), family.sender("stayer")
    hold(leaver, "m1")
    hold(stayer, "m2")
    leaver.leave() if how == "leave" else leaver.write("unregister")
    assert held(family.world) == 1
    child = family.child()
    assert ids(child.first + child.got()) == ["m2"]
    if how == "unregister":
        assert leaver.got() == [], "nobody is told"


def test_a_session_that_registers_anew_on_the_connection_inherits_nothing() -> None:
    """protocol 6.15.1"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    writer.write("unregister")
    info = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "group": GROUP}
    writer.write("register", session=info, returnAddress="ret-writer")
    child = family.child()
    assert ids(child.first + child.got()) == []
    assert answers(writer.got()) == []


def test_what_an_owner_wanted_to_send_to_its_own_child_goes_with_it() -> None:
    """protocol 6.15.1: its held sends first, then what waits for its reservations"""
    family = Family()
    family.reserve(group="default")
    writer = family.sender(group="default")
    hold(family.parent, "m1")
    hold(writer, "m2")
    family.parent.leave()
    assert [answer["messageId"] for answer in answers(writer.got())] == ["m2"]
    assert held(family.world) == 0


def test_a_dispatch_that_finds_another_reservation_waits_on() -> None:
    """protocol 6.11: ordinary routing includes E3; the deadline stays and nobody is told twice"""
    family = Family()
    other = family.supervisor("other", token="another")
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    family.world.pass_time(100_000)
    capability = capability_of(other)
    family.reserve(capability, by=other)
    writer.got()
    release(family.parent, family.capability)
    assert writer.got() == [] and held(family.world) == 1
    family.world.pass_time(19_999)
    assert answers(writer.got()) == []
    family.world.pass_time(1)
    assert reason(writer.got()) == reasons.RESTORING_TIMED_OUT


def test_at_a_stop_nobody_is_told() -> None:
    """protocol 6.11, 3.8: shutdown drops what waits silently and records nothing"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    family.world.stop()
    family.parent.leave()
    family.world.settle()
    assert writer.got() == []
    assert not family.world.disk.operations
    assert family.world.broker.next_deadline() is None


def test_a_restart_forgets_what_waited() -> None:
    """protocol 6.11: a hold is of this process; the retry of its sender is a new send"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    family.world.crash()
    family.parent = family.supervisor("parent")
    capability_of(family.parent, capability=family.capability)
    writer = family.sender()
    child = family.child()
    assert ids(child.first + child.got()) == []
    assert is_delivered(writer.message(CHILD, "m1")) and ids(child.got()) == ["m1"]


def test_an_ask_that_is_taken_back_leaves_the_hold() -> None:
    """protocol OP-6: the recipient is not bothered with a question nobody waits for; one final answer"""
    family = Family()
    family.reserve()
    writer, other = family.sender(), family.sender("other")
    hold(writer, "q1", expectsReply=True)
    hold(writer, "m1")
    other.write("cancel_ask", messageId="q1")
    writer.write("cancel_ask", messageId="m1")
    assert held(family.world) == 2
    writer.got()
    assert reason(writer.write("cancel_ask", messageId="q1")) == reasons.RESTORING_WITHDRAWN
    child = family.child()
    assert ids(child.first + child.got()) == ["m1"]


# --- retries --------------------------------------------------------------------------------------------


def test_a_retry_takes_the_place_of_what_it_repeats() -> None:
    """protocol 6.11: in place, and it keeps its deadline; the earlier attempt gets no answer"""
    family = Family()
    family.reserve()
    writer = family.sender()
    for message_id in ("m1", "m2", "m3"):
        hold(writer, message_id)
    family.world.pass_time(70_000)
    assert hold(writer, "m1")["timeoutMs"] == 50_000
    assert held(family.world) == 3
    child = family.child()
    assert ids(child.first + child.got()) == ["m1", "m2", "m3"]
    assert [answer["attemptId"].split(".")[1] for answer in answers(writer.got())] == ["4", "2", "3"]


def test_a_retried_hold_fails_at_its_first_deadline() -> None:
    """protocol 6.11: keeps its deadline"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    family.world.pass_time(119_000)
    hold(writer, "m1")
    family.world.pass_time(999)
    assert answers(writer.got()) == []
    family.world.pass_time(1)
    assert only(answers(writer.got()))["attemptId"] == f"{writer.conn}.2"
    assert hold(writer, "m1")["timeoutMs"] == 120_000, "after its end it is a new send"


def test_a_retry_without_the_flag_waits_no_longer_than_its_sender_does() -> None:
    """protocol 6.11: not set, at most 8 000 ms"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    assert answers(writer.message(CHILD, "m1")) == []
    family.world.pass_time(8_000)
    assert reason(writer.got()) == reasons.RESTORING_TIMED_OUT


@pytest.mark.parametrize("change", [{"text": "other"}, {"to": OLD_ID}, {"replyTo": "x"}, {"expectsReply": True}])
def test_other_content_under_a_held_id_is_a_conflict(change: dict[str, Any]) -> None:
    """protocol 6.11: ``message_id_conflict``; what waits is not touched"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer = family.sender()
    hold(writer, "m1")
    failed = only(answers(writer.message(**{"to": CHILD, "message_id": "m1", "extra": UNDERSTANDS, **change})))
    assert failed["reasonCode"] == "message_id_conflict" and failed["reason"] == reasons.conflict("m1")
    child = family.child()
    assert ids(child.first + child.got()) == ["m1"]
    assert only(answers(writer.got()))["attemptId"] == f"{writer.conn}.1"


def test_a_held_id_is_taken_for_everybody_and_every_target() -> None:
    """protocol 6.9, 6.11: a message id names one operation"""
    family = Family()
    family.reserve()
    writer, other = family.sender(), family.sender("other")
    hold(writer, "m1")
    for sender, to in ((other, CHILD), (other, writer.id), (writer, other.id)):
        sender.got()
        assert only(answers(sender.message(to, "m1")))["reasonCode"] == "message_id_conflict"
    assert held(family.world) == 1


def test_a_retry_that_finds_somebody_ends_the_hold() -> None:
    """protocol 6.11: the newest attempt is the one that is answered, once"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    namesake = family.sender(CHILD)
    writer.got()
    assert is_delivered(writer.message(CHILD, "m1", extra=UNDERSTANDS))
    assert ids(namesake.got()) == ["m1"] and held(family.world) == 0
    family.child()
    assert answers(writer.got()) == [] and namesake.texts() == []


def test_a_client_that_came_back_beside_its_old_connection_takes_its_hold_over() -> None:
    """protocol 6.9.1, 6.11: the same sender by its return address"""
    family = Family()
    family.reserve()
    before = family.sender()
    hold(before, "m1")
    after = family.sender()
    hold(after, "m1")
    before.leave()
    assert held(family.world) == 1
    child = family.child()
    assert ids(child.first + child.got()) == ["m1"]
    assert is_delivered(after.got())


def test_a_send_known_from_before_waits_and_is_delivered_once() -> None:
    """protocol D8: the row decides when the recipient is back"""
    family = Family()
    writer = family.sender()
    child = family.child(returnAddress="ret-c")
    assert is_delivered(writer.message(CHILD, "m1")) and ids(child.got()) == ["m1"]
    child.leave()
    family.reserve()
    hold(writer, "m1")
    child = family.child(returnAddress="ret-c")
    assert ids(child.first + child.got()) == []
    assert is_delivered(writer.got())


def test_other_content_than_before_is_a_conflict_at_once() -> None:
    """protocol D9"""
    family = Family()
    writer = family.sender()
    child = family.child(returnAddress="ret-c")
    writer.message(CHILD, "m1")
    child.leave()
    family.reserve()
    writer.got()
    failed = only(answers(writer.message(CHILD, "m1", "other", extra=UNDERSTANDS)))
    assert failed["reasonCode"] == "message_id_conflict"


def test_an_unconfirmed_send_that_is_held_again_gets_one_answer() -> None:
    """protocol 6.10.8, 6.11: the earlier attempt is replaced, also while it waits for a receipt"""
    family = Family()
    writer = family.sender()
    child = family.child(returnAddress="ret-c", acknowledgesReceipt=True)
    writer.message(CHILD, "m1")
    child.leave()
    family.reserve()
    hold(writer, "m1")
    family.world.pass_time(20_000)
    assert answers(writer.got()) == [], "the receipt of the first attempt is nobody's any more"
    child = family.child(returnAddress="ret-c", acknowledgesReceipt=True)
    assert set(ids(child.first + child.got())) == {"m1"}
    child.write("received", messageId="m1")
    assert only(answers(writer.got()))["attemptId"] == f"{writer.conn}.2"


# --- commits --------------------------------------------------------------------------------------------


def returning(family: Family, writers: list[Client]) -> int:
    """Let the child come back while the disk does nothing by itself; return its connection."""
    family.world.auto = False
    conn = family.world.connect()
    claim = {"capability": family.capability, "supervisorSessionId": "x"}
    info = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": CHILD, "group": GROUP}
    family.world.send(conn, type="register", session=info, supervisor=claim)
    for writer in writers:
        assert answers(writer.got()) == []
    return conn


def test_what_leaves_a_hold_is_reserved_before_it_is_forwarded() -> None:
    """protocol D15, 6.9.2: reserved durably before forwarding"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    conn = returning(family, [writer])
    family.world.take()
    assert ids(family.world.got(conn)) == []
    family.world.settle()
    assert ids(family.world.got(conn)) == ["m1"] and is_delivered(writer.got())


def test_a_commit_that_fails_answers_every_sender_once() -> None:
    """design 3.6: not recorded, retry the same id; nothing was sent"""
    family = Family()
    family.reserve()
    writers = [family.sender("one"), family.sender("two")]
    for number in range(4):
        hold(writers[number % 2], f"m{number}")
    conn = returning(family, writers)
    family.world.commit(2)
    family.world.fail_commit()
    family.world.settle()
    assert ids(family.world.got(conn)) == ["m0"]
    outcomes = [(a["messageId"], a.get("reason")) for writer in writers for a in answers(writer.got())]
    assert outcomes == [
        ("m2", reasons.NOT_RECORDED),
        ("m0", None),
        ("m3", reasons.NOT_RECORDED),
        ("m1", reasons.NOT_RECORDED),
    ]
    family.world.auto = True
    assert is_delivered(writers[0].message(CHILD, "m2")) and ids(family.world.got(conn)) == ["m2"]


def test_a_child_that_leaves_before_it_took_anything_costs_its_senders_nothing() -> None:
    """protocol D17: forget the reservation"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    conn = returning(family, [writer])
    family.world.commit()
    family.world.break_off(conn)
    family.world.perform([])
    family.world.auto = True
    family.world.settle()
    assert reason(writer.got()) == "Session not found"
    assert not family.world.disk.operations


# --- limits ---------------------------------------------------------------------------------------------


def refused_for_room(client: Client, message_id: str, to: str = CHILD, text: str = "x") -> bool:
    client.got()
    got = client.message(to, message_id, text, extra=UNDERSTANDS)
    return reasons.code_of(answers(got)[0]["reason"]) == "capacity" if answers(got) else False


def test_one_session_may_have_so_many_held_sends() -> None:
    """design 4: held sends 100 per session; a retry of one that waits needs no more room"""
    family = Family(Limits(held_per_session=2))
    family.reserve()
    tester = capability_of(family.parent, "tester")
    family.reserve(tester)
    writer, other = family.sender(), family.sender("other")
    assert not refused_for_room(writer, "m1")
    assert not refused_for_room(writer, "m2", "tester")
    assert refused_for_room(writer, "m3") and refused_for_room(writer, "m3", "tester")
    assert not refused_for_room(writer, "m1")
    assert not refused_for_room(other, "m4")
    release(family.parent, tester, refusal="no")
    assert not refused_for_room(writer, "m3")


def test_so_many_may_wait_for_one_recipient_and_so_many_in_all() -> None:
    """protocol 6.11: limits"""
    family = Family(Limits(held_per_reservation=2, held=3))
    family.reserve()
    family.reserve(capability_of(family.parent, "tester"))
    writers = [family.sender(name) for name in ("one", "two", "three")]
    assert not refused_for_room(writers[0], "m1") and not refused_for_room(writers[1], "m2")
    assert refused_for_room(writers[2], "m3")
    assert not refused_for_room(writers[2], "m3", "tester")
    assert refused_for_room(writers[2], "m4", "tester")
    writers[0].leave()
    assert not refused_for_room(writers[2], "m4", "tester")


def test_what_waits_may_weigh_so_much() -> None:
    """design 4: charge before you link"""
    family = Family(Limits(held_bytes_per_session=1_000, held_bytes=1_500))
    family.reserve()
    writer, other = family.sender(), family.sender("other")
    assert refused_for_room(writer, "m1", text="x" * 1_000)
    assert not refused_for_room(writer, "m1", text="x" * 700)
    assert refused_for_room(writer, "m2", text="x" * 300)
    assert not refused_for_room(other, "m2", text="x" * 500)
    assert refused_for_room(other, "m3", text="x" * 300)
    family.world.pass_time(120_000)
    assert not refused_for_room(other, "m3", text="x" * 700)


def test_the_documented_limits() -> None:
    """protocol 6.11, 7; design 4"""
    limits = Limits()
    assert (limits.held_per_session, limits.held_per_reservation, limits.held) == (100, 100, 1_000)
    assert (limits.hold_ms, limits.silent_hold_ms) == (120_000, 8_000)
    assert limits.reservations_per_session == 1_000


def test_a_full_hold_is_no_obstacle_to_other_sends() -> None:
    """protocol 6.11: limits; what reached them leaves in order"""
    family = Family()
    family.reserve()
    flooder, writer = family.sender("flooder"), family.sender()
    for number in range(100):
        hold(flooder, f"m{number}")
    assert refused_for_room(flooder, "m100")
    assert is_delivered(flooder.message(writer.id, "n1")) and ids(writer.got()) == ["n1"]
    child = family.child()
    assert ids(child.first + child.got()) == [f"m{number}" for number in range(100)]


def test_frames_held_do_not_keep_the_bytes_they_came_in() -> None:
    """design 4: what is charged is what is kept"""
    family = Family()
    family.reserve()
    writer = family.sender()
    message = b'{"id":"m1","timestamp":5,"content":{"text":"x"}}'
    flag = b"[" + b"1," * 500 + b"1]"
    payload = b'{"type":"send","to":"reviewer","message":' + message + b',"awaitRestoringRecipient":' + flag + b"}"
    writer.world.feed(writer.conn, payload)
    waiting = family.world.broker._supervising.holding.find("m1")
    assert waiting is not None and from_json(waiting.frame.message) == from_json(message)
    assert waiting.bytes == len(message) + len(CHILD)
    assert waiting.frame.await_restoring_recipient is UNSET


def test_writes_to_a_sender_that_is_gone_are_not_made() -> None:
    """protocol 1.4: a sender whose connection ended is told nothing, and nothing of it is left"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    writer.world.feed(writer.conn, b"no frame")
    assert writer.conn in family.world.destroyed
    effects = family.world.broker.deadline_passed(family.world.now)
    assert not [effect for effect in effects if isinstance(effect, Write)]
    assert held(family.world) == 0
