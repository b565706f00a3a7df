"""Test decisions about sends, rule by rule: form, line, target, what is known of the message id, limits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core.connections import Connection
from intercom.core.effects import Write
from intercom.core.records import Recovered
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.codec import decode_request
from intercom.wire.frames import Malformed
from tests.core.harness import Client, Disk, World, answers, is_delivered, only, reason, types, without_announcements

OK: dict[str, Any] = {"id": "m1", "timestamp": 5, "content": {"text": "x"}}
NOT_STRINGS = [None, 1, True, ["x"], {"x": 1}]
NOT_TRUE = [None, False, 1, "true", []]


def world_of_two(**second: Any) -> tuple[World, Client, Client]:
    world = World()
    return world, world.register("a"), world.register("b", **second)


def sent(client: Client, kind: str = "send", **members: Any) -> dict[str, Any]:
    """Write a raw send and return its only answer."""
    return only(client.write(kind, **members))


# --- A. Form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["send", "supervisor_send"])
@pytest.mark.parametrize("value", NOT_STRINGS)
def test_a_wrong_attempt_id_is_refused_without_one(kind: str, value: Any) -> None:
    """protocol 4.8 A1, 4.9"""
    _, a, _ = world_of_two()
    assert sent(a, kind, to="b", message=OK, attemptId=value) == {
        "type": "delivery_failed",
        "messageId": "m1",
        "reason": "Invalid attemptId format",
    }


@pytest.mark.parametrize("value", NOT_STRINGS)
def test_a_wrong_logical_target_is_refused(value: Any) -> None:
    """protocol 4.8 A2"""
    _, a, _ = world_of_two()
    answer = sent(a, to="b", message=OK, attemptId="t", logicalTarget=value)
    assert answer["reason"] == reasons.INVALID_LOGICAL_TARGET and answer["attemptId"] == "t"


BAD_MESSAGES: list[Any] = [
    *(None, "x", 1, [], {}),
    {**OK, "id": None},
    {**OK, "id": 1},
    {**OK, "timestamp": "5"},
    {**OK, "timestamp": True},
    {**OK, "timestamp": None},
    {**OK, "content": None},
    {**OK, "content": "x"},
    {**OK, "content": {}},
    {**OK, "content": {"text": 1}},
    {**OK, "content": {"text": "x", "attachments": None}},
    {**OK, "content": {"text": "x", "attachments": [{}]}},
    {**OK, "content": {"text": "x", "attachments": [{"type": "image", "name": "n", "content": "c"}]}},
    {**OK, "content": {"text": "x", "attachments": [{"type": "file", "name": "n"}]}},
    {**OK, "content": {"text": "x", "attachments": [{"type": "file", "name": "n", "content": "c", "language": None}]}},
    {**OK, "replyTo": None},
    {**OK, "expectsReply": None},
    {**OK, "expectsReply": 1},
    {**OK, "replyError": False},
    {**OK, "source": None},
    {**OK, "source": {}},
    {**OK, "source": {"subagentRunId": "r", "subagentIndex": "0"}},
    {**OK, "source": {"subagentRunId": "r", "subagentAgent": None}},
    {key: OK[key] for key in ("timestamp", "content")},
    {key: OK[key] for key in ("id", "content")},
    {key: OK[key] for key in ("id", "timestamp")},
]


@pytest.mark.parametrize("message", BAD_MESSAGES, ids=str)
def test_an_invalid_message_is_refused(message: Any) -> None:
    """protocol 4.8 A3, message object of 4; the id is `unknown` unless it is a string"""
    world, a, b = world_of_two()
    known = message["id"] if isinstance(message, dict) and isinstance(message.get("id"), str) else "unknown"
    assert sent(a, to="b", message=message, attemptId="t") == {
        "type": "delivery_failed",
        "messageId": known,
        "attemptId": "t",
        "reason": "Invalid message format",
    }
    assert b.texts() == [] and world.disk.operations == {} and a.conn in world.open


def test_a_missing_message_or_target_is_refused() -> None:
    """protocol 4.8 A3"""
    _, a, _ = world_of_two()
    assert sent(a, to="b")["messageId"] == "unknown"
    assert sent(a, message=OK)["reason"] == "Invalid message format"
    assert sent(a)["reason"] == "Invalid message format"
    for value in NOT_STRINGS:
        assert sent(a, to=value, message=OK)["reason"] == "Invalid message format"


def test_optional_members_of_a_message_may_be_there() -> None:
    """protocol 4, message object"""
    _, a, b = world_of_two()
    message = {
        **OK,
        "timestamp": 1.5,
        "expectsReply": False,
        "replyError": "",
        "source": {"subagentRunId": "r", "subagentAgent": "s", "subagentIndex": 0},
        "content": {
            "text": "",
            "attachments": [
                {"type": "file", "name": "n", "content": "c", "language": "py", "extra": 1},
                {"type": "snippet", "name": "n", "content": "c"},
                {"type": "context", "name": "", "content": ""},
            ],
        },
    }
    assert is_delivered(a.write("send", to="b", message=message))
    assert only(b.got())["message"] == message


@pytest.mark.parametrize("value", NOT_TRUE)
def test_a_wrong_pending_reply_flag_is_refused(value: Any) -> None:
    """protocol 4.8 A4"""
    _, a, _ = world_of_two()
    assert sent(a, to="b", message=OK, requirePendingReply=value)["reason"] == reasons.INVALID_PENDING_REPLY


@pytest.mark.parametrize("value", NOT_STRINGS)
def test_a_wrong_expected_recipient_is_refused(value: Any) -> None:
    """protocol 4.8 A5"""
    _, a, _ = world_of_two()
    assert sent(a, to="b", message=OK, expectedRecipientId=value)["reason"] == reasons.INVALID_EXPECTED_RECIPIENT


@pytest.mark.parametrize("value", NOT_TRUE)
def test_a_wrong_reply_target_flag_is_refused(value: Any) -> None:
    """protocol 4.8 A5"""
    _, a, _ = world_of_two()
    assert sent(a, to="b", message=OK, resolveReplyTarget=value)["reason"] == reasons.INVALID_REPLY_TARGET


@pytest.mark.parametrize("kind", ["send", "supervisor_send"])
@pytest.mark.parametrize("value", ["supervisor", "", None, 0, {}])
def test_no_client_may_claim_a_channel(kind: str, value: Any) -> None:
    """protocol 4.8 A6: whatever its value; F57"""
    _, a, b = world_of_two()
    assert sent(a, kind, to="b", message=OK, channel=value)["reason"] == "Invalid channel"
    assert b.texts() == []


def test_a_pending_reply_must_be_a_reply() -> None:
    """protocol 4.8 A7, 6.7"""
    _, a, _ = world_of_two()
    flag = {"requirePendingReply": True}
    for kind, message in (
        ("send", OK),
        ("send", {**OK, "replyTo": "q", "expectsReply": True}),
        ("supervisor_send", {**OK, "replyTo": "q"}),
    ):
        assert sent(a, kind, to="b", message=message, **flag)["reason"] == reasons.PENDING_REPLY_FORM
    plain = {**OK, "replyTo": "q", "expectsReply": False}
    assert sent(a, to="b", message=plain, **flag)["reason"] == reasons.NO_OPEN_QUESTION


def test_the_first_broken_rule_of_form_is_named() -> None:
    """protocol 4.8 A: first match wins"""
    _, a, _ = world_of_two()
    broken: dict[str, Any] = {
        "attemptId": 1,
        "logicalTarget": 1,
        "message": {**OK, "id": 1},
        "requirePendingReply": 1,
        "expectedRecipientId": 1,
        "resolveReplyTarget": 1,
        "channel": "supervisor",
    }
    mended = {
        "attemptId": "t",
        "logicalTarget": "b",
        "message": OK,
        "requirePendingReply": True,
        "expectedRecipientId": "b",
        "resolveReplyTarget": True,
    }
    said = []
    for member in broken:
        said.append(sent(a, **{"to": "b", **broken})["reason"])
        broken[member] = mended.get(member)
    del broken["channel"]
    said.append(sent(a, **{"to": "b", **broken})["reason"])
    assert said == [
        reasons.INVALID_ATTEMPT_ID,
        reasons.INVALID_LOGICAL_TARGET,
        reasons.INVALID_MESSAGE,
        reasons.INVALID_PENDING_REPLY,
        reasons.INVALID_EXPECTED_RECIPIENT,
        reasons.INVALID_REPLY_TARGET,
        reasons.INVALID_CHANNEL,
        reasons.PENDING_REPLY_FORM,
    ]


@pytest.mark.parametrize("kind", ["send", "supervisor_send"])
@pytest.mark.parametrize("more", [{}, {"validFor": 5}, {"attemptId": "t", "requirePendingReply": False}])
def test_nobody_passes_as_a_flow(kind: str, more: dict[str, Any]) -> None:
    """protocol 4.8 A3, 12.4: a worker believes what comes under such an id"""
    _, a, b = world_of_two()
    message = {**OK, "id": "flow-dispatch/d", "flowDispatch": {"flowId": "f", "stepId": "s", "dispatchId": "d"}}
    assert sent(a, kind, to="b", message=message, **more)["reason"] == reasons.RESERVED_MESSAGE_ID
    assert b.got() == []
    assert is_delivered(a.write("send", to="b", message={**OK, "id": "flow-dispatch"})), "an id that only looks alike"


def test_form_comes_before_the_rest() -> None:
    """protocol 4.8: A before B and C"""
    _, a, _ = world_of_two()
    assert sent(a, "supervisor_send", to="nobody", message={})["reason"] == "Invalid message format"


def test_a_sender_without_a_session_is_told_so() -> None:
    """protocol 4.8 A8: where such a send gets this far"""
    world = World()
    stranger = Connection(99, None)
    for frame in ({"type": "send", "to": "b", "message": OK}, {"type": "supervisor_send", "to": "b", "message": OK}):
        request = decode_request(encode(frame))
        assert not isinstance(request, Malformed)
        world.broker._sending.deciding.send(stranger, request, world.now)  # type: ignore[arg-type]
        (write,) = world.broker._outbox.take()
        assert isinstance(write, Write) and write.frame.reason == "Sender session not found"  # type: ignore[union-attr]


def test_a_send_is_never_a_protocol_error() -> None:
    """protocol 4.8: everything is answered in-band with exactly one final answer"""
    world, a, _ = world_of_two()
    members = {
        "to": "b",
        "message": OK,
        "attemptId": "t",
        "logicalTarget": "b",
        "requirePendingReply": True,
        "expectedRecipientId": "b",
        "resolveReplyTarget": True,
        "channel": "c",
        "awaitRestoringRecipient": True,
        "unknown": 1,
    }
    for member in members:
        for value in [*NOT_STRINGS, False, 1.5, "", "b"]:
            got = a.write("send", **{**members, member: value})
            assert types(without_announcements(got)) == ["delivery_failed"], (member, value)
    assert a.conn in world.open


def test_a_number_beyond_a_double_is_an_invalid_message() -> None:
    """protocol 4.8 A3, 1.3: not every recipient could read it"""
    world, a, b = world_of_two()
    payload = b'{"type":"send","to":"b","message":{"id":"m1","timestamp":1e999,"content":{"text":"x"}}}'
    assert reason(world.feed(a.conn, payload)) == "Invalid message format"
    assert b.texts() == [] and a.conn in world.open


# --- B. The supervisor line -----------------------------------------------------------------------------


def test_only_a_child_has_a_line() -> None:
    """protocol 4.8 B1"""
    _, a, b = world_of_two()
    assert reason(a.message(b.id, "m1", kind="supervisor_send")) == "Supervisor channel is not authorized"


# --- D. A session was found -----------------------------------------------------------------------------


def test_two_sessions_without_a_common_group_cannot_talk() -> None:
    """protocol D7, 5.29; F57: nothing is recorded or delivered"""
    world, a, b = world_of_two(info={"group": "g"})
    for more in ({}, {"replyTo": "guess"}, {"expectsReply": True}):
        assert reason(a.message(b.id, "m1", **more)) == "Target session is in a different intercom group"
    assert b.got() == [] and world.disk.operations == {}


def test_an_answer_carries_the_attempt_id_exactly_when_the_request_had_one() -> None:
    """protocol 5.11, 5.12, 6.8"""
    _, a, _ = world_of_two()
    assert sent(a, to="b", message=OK) == {"type": "delivered", "messageId": "m1"}
    assert sent(a, to="b", message=OK, attemptId="") == {"type": "delivered", "messageId": "m1", "attemptId": ""}
    assert "attemptId" not in sent(a, to="nobody", message=OK)


def test_a_repeated_operation_is_answered_and_not_forwarded_again() -> None:
    """protocol D8, 6.8; F71"""
    _, a, b = world_of_two()
    for number in range(20):
        assert is_delivered(a.message("b", "m1", timestamp=number))
    assert b.texts() == ["x"]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "y"},
        {"replyTo": "q"},
        {"expectsReply": True},
        {"replyError": ""},
        {"source": {"subagentRunId": "r"}},
        {"content": {"text": "x", "attachments": [{"type": "file", "name": "n", "content": "c"}]}},
    ],
    ids=str,
)
def test_the_same_id_with_other_content_is_a_conflict(change: dict[str, Any]) -> None:
    """protocol D9, 5.29 exact text; F71: the record stays"""
    _, a, b = world_of_two()
    assert is_delivered(a.message("b", "it's"))
    answer = only(answers(a.message("b", "it's", **change)))
    assert answer == {
        "type": "delivery_failed",
        "messageId": "it's",
        "attemptId": "1.2",
        "reason": "Intercom message ID 'it's' was already delivered with a different target or payload",
        "reasonCode": "message_id_conflict",
    }
    assert b.texts() == ["x"] and is_delivered(a.message("b", "it's"))


def test_the_same_id_to_another_target_is_a_conflict() -> None:
    """protocol D9, 6.9.2"""
    world, a, _ = world_of_two()
    world.register("c")
    assert is_delivered(a.message("b", "m1"))
    assert only(a.message("c", "m1"))["reasonCode"] == "message_id_conflict"


def test_the_conflict_comes_after_the_group() -> None:
    """protocol 4.8: D7 before D8 and D9"""
    _, a, b = world_of_two()
    assert is_delivered(a.message("b", "m1"))
    b.write("presence", group="g")
    for text in ("x", "y"):
        assert reason(a.message(b.id, "m1", text)) == "Target session is in a different intercom group"


def test_an_unusable_store_refuses_every_send_and_nothing_else() -> None:
    """protocol D10, 6.9.4; design 5 "Fail closed" """
    world = World(store_trouble="the key is missing")
    a, b = world.register("a"), world.register("b")
    refusal = only(a.message("b", "m1"))
    assert "authority is invalid" in refusal["reason"] and "the key is missing" in refusal["reason"]
    assert "reasonCode" not in refusal and b.texts() == []
    assert only(a.write("list", requestId="q"), "sessions") and only(a.write("list_groups", requestId="q"))
    assert only(a.write("join_group", requestId="q", group="g"), "membership_ack")
    a.leave()
    assert world.last_ticket == 0, "nothing is ever appended"


def test_a_damaged_row_refuses_its_message_id_only() -> None:
    """protocol 6.9.4: a row that fails validation is invalid"""

    class HurtDisk(Disk):
        def recovered(self, wall: int, limits: Limits) -> Recovered:
            return replace(super().recovered(wall, limits), damaged=frozenset({"m1"}))

    world = World(disk=HurtDisk())
    a, _ = world.register("a"), world.register("b")
    assert "authority is invalid" in reason(a.message("b", "m1"))
    assert is_delivered(a.message("b", "m2"))


@pytest.mark.parametrize("pending", [False, True])
def test_a_second_attempt_beside_the_first_is_uncertain(pending: bool) -> None:
    """protocol OP-20, D11, D5: the client's next retry finds match"""
    world, a, b = world_of_two()
    if pending:
        b.ask("a", "q1")
    more: dict[str, Any] = {"replyTo": "q1", "extra": {"requirePendingReply": True}} if pending else {}
    world.auto = False
    world.deaf.add(b.conn)
    a.message("b", "m1", **more)
    world.commit()
    assert answers(a.message("b", "m1", **more)) == []
    world.settle()
    refused = only(answers(a.got()))
    assert refused["attemptId"] == "1.2" and refused["reason"] == reasons.UNDER_WAY and "reasonCode" not in refused
    world.deaf.clear()
    world.settle()
    assert only(answers(a.got()))["attemptId"] == "1.1"
    world.auto = True
    assert is_delivered(a.message("b", "m1", **more)) and b.texts() == ["x"]


def test_an_operation_whose_outcome_nobody_knows_is_not_repeated() -> None:
    """protocol D11, 6.9.2: at most once beats possibly twice"""
    world = World()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    world.auto = False
    a.message("b", "m1")
    world.commit()
    world.take(told=False)
    assert b.texts() == ["x"]
    world.auto = True
    world.crash()
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    answer = only(a.message("b", "m1"))
    assert answer["reason"] == reasons.UNCERTAIN and "reasonCode" not in answer
    assert b.texts() == []
    assert only(answers(a.message("b", "m1", "y")))["reasonCode"] == "message_id_conflict", "6.9.2: reserved, other"


def test_an_ask_to_a_finished_child_is_refused_and_a_plain_send_is_not() -> None:
    """protocol D12, 6.4"""
    world, a, b = world_of_two(info={"replyCapability": "terminal"})
    answer = only(a.ask("b", "q1"))
    assert answer["reason"] == reasons.TERMINAL and "reasonCode" not in answer
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]
    assert [record.message_id for record in world.disk.operations.values()] == ["m1"]


def test_an_ask_to_who_cannot_be_shown_one_is_refused_and_a_plain_send_is_not() -> None:
    """protocol D12, 6.4; F135."""
    _, a, b = world_of_two(info={"push": "none"})
    answer = only(a.ask("b", "q1"))
    assert answer["reason"] == reasons.CANNOT_BE_TOLD and "reasonCode" not in answer
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]
    b.write("presence", push="pull")
    a.got()
    assert is_delivered(a.ask("b", "q2"))


def test_the_conflict_comes_before_the_finished_child() -> None:
    """protocol 4.8: D9 before D12"""
    _, a, b = world_of_two()
    assert is_delivered(a.message("b", "m1"))
    b.write("presence", replyCapability="terminal")
    assert only(answers(a.ask("b", "m1")))["reasonCode"] == "message_id_conflict"


def test_the_asker_learns_who_will_answer_before_the_ask_leaves() -> None:
    """protocol D16, 5.15"""
    world, a, b = world_of_two()
    world.auto = False
    a.ask("b", "q1", extra={"resolveReplyTarget": True})
    order = [(write.to, type(write.frame).__name__) for write in world.waiting if write.after]
    assert order == [(a.conn, "QuestionTarget"), (b.conn, "MessageFrame")]
    world.settle()
    told = a.got()
    assert types(told)[-2:] == ["question_target", "delivered"]
    assert told[-2] == {"type": "question_target", "messageId": "q1", "attemptId": "1.1", "sessionId": b.id}


def test_question_target_needs_an_ask_the_flag_and_an_attempt_id() -> None:
    """protocol D16, 5.30: only when the send carried the matching flag"""
    _, a, _ = world_of_two()
    flag = {"resolveReplyTarget": True}
    assert types(a.message("b", "m1", extra=flag))[-1:] == ["delivered"]
    assert "question_target" not in types(a.ask("b", "q1"))
    assert sent(a, to="b", message={**OK, "id": "q2", "expectsReply": True}, **flag)["type"] == "delivered"


def test_an_internal_connection_may_send() -> None:
    """protocol 6.4: they may send; what comes back to them is refused"""
    world = World()
    control, b = world.register("host", info={"recipientPurpose": "control"}), world.register("b")
    assert is_delivered(control.ask("b", "q1"))
    assert only(b.got())["from"]["recipientPurpose"] == "control"
    assert reason(b.reply(control.id, "r1", "q1")) == reasons.NOT_AN_AGENT


# --- E. No session was found ----------------------------------------------------------------------------


def test_nobody_there_carries_a_code_for_pending_replies_only() -> None:
    """protocol E6, D1, 6.7"""
    _, a, _ = world_of_two()
    assert only(a.message("nobody", "m1")) == {
        "type": "delivery_failed",
        "messageId": "m1",
        "attemptId": "1.1",
        "reason": "Session not found",
    }
    answer = only(a.reply("nobody", "r1", "q1"))
    assert (answer["reason"], answer["reasonCode"]) == ("Session not found", "session_not_found")


def test_a_gone_target_is_not_found_even_for_a_retry() -> None:
    """protocol E6, D1: C comes before D8"""
    _, a, b = world_of_two()
    assert is_delivered(a.message("b", "m1"))
    b.leave()
    assert reason(a.message("b", "m1")) == reason(a.message(b.id, "m1")) == "Session not found"


# --- 6.7 Replies with requirePendingReply ---------------------------------------------------------------


def asked(**info: Any) -> tuple[World, Client, Client]:
    """Return a world in which ``a`` asked ``b`` q1."""
    world = World()
    a, b = world.register("a", info=info.get("a")), world.register("b", info=info.get("b"))
    assert is_delivered(a.ask("b", "q1"))
    b.got()
    return world, a, b


def test_a_pending_reply_to_an_open_question_is_delivered_across_groups() -> None:
    """protocol 6.7 row 1, D7"""
    _, a, b = asked()
    b.write("presence", group="far")
    assert is_delivered(b.reply(a.id, "r1", "q1")) and a.texts() == ["!"]


def test_the_same_pending_reply_again_is_delivered_without_forwarding() -> None:
    """protocol 6.7 row 2: D5 comes before D6, and before D7"""
    _, a, b = asked()
    b.write("presence", group="far")
    for _ in range(3):
        assert is_delivered(b.reply(a.id, "r1", "q1"))
    assert a.texts() == ["!"]


@pytest.mark.parametrize("change", [{"text": "other"}, {"groups": ["default", "g"]}], ids=str)
def test_the_same_id_with_other_content_or_groups_is_a_conflict(change: dict[str, Any]) -> None:
    """protocol 6.7 row 3: the signature holds the sender group identity"""
    _, _, b = asked()
    assert is_delivered(b.reply("a", "r1", "q1"))
    if "groups" in change:
        b.write("presence", requestId="p", **change)
    answer = only(answers(b.reply("a", "r1", "q1", change.get("text", "!"))))
    assert answer["reasonCode"] == "message_id_conflict"


def test_the_order_of_memberships_is_no_change_of_groups() -> None:
    """protocol 6.9.1: sorted list of memberships"""
    _, _, b = asked(b={"groups": ["g", "default"]})
    assert is_delivered(b.reply("a", "r1", "q1"))
    b.write("presence", requestId="p", groups=["default", "g"])
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_without_the_flag_groups_are_no_part_of_the_operation() -> None:
    """protocol 6.9.1: only requirePendingReply wraps the sender group identity"""
    _, _, b = asked()
    assert is_delivered(b.message("a", "m1"))
    b.write("presence", requestId="p", groups=["default", "g"])
    assert is_delivered(b.message("a", "m1"))


def test_a_reply_whose_question_is_not_open_is_refused() -> None:
    """protocol D6, 6.7 row 4: answered, somebody else's, never existed; F57"""
    world, a, b = asked()
    c = world.register("c")
    for replier, question in ((c, "q1"), (b, "q2"), (a, "q1")):
        answer = only(answers(replier.reply("b" if replier is a else "a", f"r-{replier.conn}", question)))
        assert answer["reason"] == reasons.NO_OPEN_QUESTION and "reasonCode" not in answer
    assert is_delivered(b.reply("a", "r1", "q1"))
    assert reason(b.reply("a", "r2", "q1")) == reasons.NO_OPEN_QUESTION
    assert a.texts() == ["!"]


def test_a_pending_reply_to_somebody_gone_is_not_found_with_a_code() -> None:
    """protocol 6.7 row 5"""
    _, a, b = asked()
    a.leave()
    for target in (a.id, "a"):
        answer = only(answers(b.reply(target, "r1", "q1")))
        assert (answer["reason"], answer["reasonCode"]) == ("Session not found", "session_not_found")


def test_a_pending_reply_is_known_before_it_is_judged() -> None:
    """protocol D5: conflict and invalid come before the open-question test"""
    world, _, b = asked()
    assert is_delivered(b.message("a", "m1"))
    assert only(answers(b.reply("a", "m1", "unknown")))["reasonCode"] == "message_id_conflict"
    world.broker.commit_failed(world.last_ticket + 1, "the disk died", True, world.now)
    assert "authority is invalid" in reason(b.reply("a", "m9", "unknown"))


def test_a_pending_reply_of_unknown_outcome_goes_to_who_confirms_receipts() -> None:
    """protocol D5, last part: continue, and D6 still decides"""
    world = World()
    a = world.register("a", returnAddress="ra", acknowledgesReceipt=True)
    b = world.register("b", returnAddress="rb")
    a.ask("b", "q1")
    b.reply("a", "r1", "q1")
    assert a.texts() == ["!"]
    world.pass_time(world.limits.receipt_wait_ms)
    assert reason(b.got()) == reasons.RECEIPT_MISSING
    assert answers(b.reply("a", "r1", "q1")) == [] and a.texts() == ["!"]
    a.write("received", messageId="r1")
    assert is_delivered(b.got())


def test_an_ordinary_reply_is_a_plain_send_when_its_question_is_not_open() -> None:
    """protocol 6.7, end"""
    _, a, b = asked()
    assert is_delivered(b.reply("a", "r1", "q1", pending=False))
    assert is_delivered(b.reply("a", "r2", "q1", pending=False))
    b.write("presence", group="far")
    assert reason(b.reply(a.id, "r3", "q1", pending=False)) == "Target session is in a different intercom group"
    assert a.texts() == ["!", "!"]


# --- limits ---------------------------------------------------------------------------------------------


def test_a_session_may_have_so_many_asks_open() -> None:
    """design 4 "Charge before you link": asks 256; the refusal is of capacity"""
    world = World(limits=Limits(asks=2))
    a, b = world.register("a"), world.register("b")
    assert is_delivered(a.ask("b", "q1")) and is_delivered(a.ask("b", "q2"))
    refusal = reason(a.ask("b", "q3"))
    assert refusal.startswith(reasons.CAPACITY) and "2 asks" in refusal and "600 s" in refusal
    assert is_delivered(a.message("b", "m1")) and is_delivered(world.register("c").ask("a", "q4"))
    assert is_delivered(a.ask("b", "q2")), "a retry charges nothing"
    b.reply("a", "r1", "q1")
    assert is_delivered(a.ask("b", "q3"))


def test_asks_under_way_count() -> None:
    """design 4 "Charge before you link" """
    world = World(limits=Limits(asks=2))
    a, b = world.register("a"), world.register("b", acknowledgesReceipt=True)
    a.ask("b", "q1")
    a.ask("b", "q2")
    assert reason(a.ask("b", "q3")).startswith(reasons.CAPACITY)
    a.ask("b", "q2")
    world.pass_time(world.limits.receipt_wait_ms)
    assert [frame["reason"] for frame in answers(a.got())] == [reasons.RECEIPT_MISSING] * 2
    assert answers(a.ask("b", "q3")) == []
    b.write("received", messageId="q3")
    assert is_delivered(a.got())
    assert answers(a.ask("b", "q4")) == [] and reason(a.ask("b", "q5")).startswith(reasons.CAPACITY)


def test_many_questions_at_once_do_not_disturb_each_other() -> None:
    """F63"""
    world = World()
    a = world.register("a", returnAddress="r")
    peers = [world.register(f"p{number}") for number in range(3)]
    for number in range(9):
        assert is_delivered(a.ask(f"p{number % 3}", f"q{number}"))
    peers[0].leave()
    for number in reversed(range(9)):
        if number % 3:
            assert is_delivered(peers[number % 3].reply("a", f"r{number}", f"q{number}", f"answer {number}"))
    told = a.got()
    assert sorted(frame["replyTo"] for frame in told if frame["type"] == "peer_disconnected") == ["q0", "q3", "q6"]
    replies = {f["message"]["replyTo"]: f["message"]["content"]["text"] for f in told if f["type"] == "message"}
    assert replies == {f"q{number}": f"answer {number}" for number in range(9) if number % 3}


def test_all_time_passes_through_the_deadlines_of_the_core() -> None:
    """design 4 "Deadlines are data" """
    world, a, _ = world_of_two()
    assert world.broker.next_deadline() is None
    a.ask("b", "q1")
    assert world.broker.next_deadline() == world.mono + world.limits.ask_ms
