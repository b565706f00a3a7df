"""Hold each struct against the tables of protocol 4 and 5, member by member (F38, F44)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, ValidationError
from msgspec.json import encode as to_json

from intercom.wire.codec import ProtocolError, decode_answer, decode_request
from intercom.wire.frames import HealthRequest, Malformed, Register, Send, is_blank, trim
from tests.support.wire import ANSWERS, MESSAGE, REQUESTS, SESSION, changed, example, payload_of, without


def refused(frame: dict[str, Any]) -> bool:
    """Tell whether a frame is a protocol error or, where that is the rule, malformed."""
    try:
        return isinstance(decode_request(payload_of(frame)), Malformed)
    except ProtocolError:
        return True


@pytest.mark.parametrize("members", REQUESTS, ids=lambda members: members["type"])
def test_a_request_keeps_every_member_under_its_name(members: dict[str, Any]) -> None:
    """protocol 4"""
    assert json.loads(to_json(decode_request(payload_of(members)))) == members


@pytest.mark.parametrize("members", ANSWERS, ids=lambda members: members["type"])
def test_an_answer_keeps_every_member_under_its_name(members: dict[str, Any]) -> None:
    """protocol 5"""
    assert json.loads(to_json(decode_answer(payload_of(members)))) == members


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        ("register", {"session"}),
        ("list", {"requestId"}),
        ("list_groups", {"requestId"}),
        ("join_group", {"group"}),
        ("send", {"to", "message"}),
        ("supervisor_send", {"to", "message"}),
        ("received", {"messageId"}),
        ("authorize_supervisor", {"requestId", "childName"}),
        ("broker_status", {"requestId"}),
        ("health", {"requestId"}),
        ("shutdown", {"requestId"}),
        ("cancel_ask", {"messageId"}),
        ("reserve_restoring_recipient", {"requestId", "capability"}),
        ("release_restoring_recipient", {"requestId", "capability"}),
        ("register_pending_stage_route", {"runId", "group", "capability"}),
        ("register_live_workflow_stage_route", {"requestId", "runId", "stageKeys", "capability"}),
        ("send_pending_stage_notification", {"runId", "capability", "to", "message"}),
        ("pending_stage_notification_result", {"requestId", "delivered"}),
        ("unregister", set()),
        ("presence", set()),
        ("leave_group", set()),
    ],
)
def test_a_frame_needs_its_required_members_and_no_other(kind: str, required: set[str]) -> None:
    """protocol 4, the column *required*"""
    largest = max((frame for frame in REQUESTS if frame["type"] == kind), key=len)
    needed = {name for name in largest if name != "type" and refused(without(largest, name))}
    assert needed == required
    assert not refused({name: largest[name] for name in ("type", *required)})


NUMBERS = {("position", "pending_stage_message_result"), ("timeoutMs", "broker_drain")}
"""Members for which 7 is no wrong type."""


@pytest.mark.parametrize("members", REQUESTS, ids=lambda members: members["type"])
def test_null_and_a_wrong_type_are_never_absence(members: dict[str, Any]) -> None:
    """protocol 0 (*optional*), F44; the members excepted here are judged by the core"""
    later = {"supervisor", "message", "type", "awaitRestoringRecipient"}
    if members["type"] == "register_pending_stage_route":
        later |= {"dormant", "stages", "possibleStages", "parent"}
    for name in set(members) - later:
        assert refused(changed(members, **{name: None})), name
        if (name, members["type"]) not in NUMBERS:
            assert refused(changed(members, **{name: 7})), name


@pytest.mark.parametrize("members", REQUESTS, ids=lambda members: members["type"])
def test_unknown_members_are_ignored(members: dict[str, Any]) -> None:
    """protocol 1.3"""
    known = decode_request(payload_of(members))
    assert to_json(decode_request(payload_of(changed(members, futureMember={"deep": [None]})))) == to_json(known)


class TestRegister:
    """protocol 4.1 and the table of the session object"""

    @pytest.mark.parametrize("name", ["cwd", "model", "pid", "startedAt", "lastActivity"])
    def test_the_session_needs(self, name: str) -> None:
        assert refused({"type": "register", "session": without(SESSION, name)})

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("cwd", 1),
            ("pid", "1"),
            ("pid", True),
            ("startedAt", None),
            ("lastActivity", False),
            ("name", None),
            ("status", 1),
            ("group", []),
            ("groups", "a"),
            ("groups", ["a", 1]),
            ("recipientPurpose", "robot"),
            ("replyCapability", ""),
        ],
    )
    def test_the_session_refuses(self, name: str, wrong: object) -> None:
        assert refused({"type": "register", "session": changed(SESSION, **{name: wrong})})

    @pytest.mark.parametrize("session", [None, [], "x", 1])
    def test_the_session_is_an_object(self, session: object) -> None:
        assert refused({"type": "register", "session": session})

    def test_unknown_members_of_the_session_are_kept(self) -> None:
        session = changed(SESSION, id=7, host="box", tags=[None, {"a": 1.5}])
        request = decode_request(payload_of({"type": "register", "session": session}))
        assert isinstance(request, Register)
        assert request.session == session

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("registrationGroup", ""),
            ("registrationGroup", " \ufeff\t"),
            ("returnAddress", ""),
            ("supervisorOwnerToken", ""),
            ("acknowledgesReceipt", False),
            ("acknowledgesReceipt", "true"),
        ],
    )
    def test_it_refuses(self, name: str, wrong: object) -> None:
        assert refused(changed(example("register"), **{name: wrong}))

    @pytest.mark.parametrize("value", [None, "x", {}, {"capability": 1}])
    def test_a_wrong_supervisor_is_left_to_an_answer(self, value: object) -> None:
        """protocol 4.1: *if the key supervisor is present (even null)*: refuse and end, no protocol error"""
        request = decode_request(payload_of(changed(example("register"), supervisor=value)))
        assert isinstance(request, Register)
        assert request.supervisor == value

    def test_an_absent_supervisor_is_not_null(self) -> None:
        request = decode_request(payload_of(example("register")))
        assert isinstance(request, Register)
        assert request.supervisor is UNSET

    def test_the_wish_of_a_legacy_client_is_ignored(self) -> None:
        """protocol OP-6"""
        assert not refused(changed(example("register"), sessionId=17))


class TestSend:
    """protocol 4.8 A"""

    @pytest.mark.parametrize("value", [None, "supervisor", {"a": [1]}])
    def test_the_presence_of_a_channel_is_seen_whatever_its_value(self, value: object) -> None:
        request = decode_request(payload_of(changed(example("send"), channel=value)))
        assert isinstance(request, Send)
        assert request.channel is not UNSET

    def test_an_absent_channel_is_seen_too(self) -> None:
        request = decode_request(payload_of(example("send")))
        assert isinstance(request, Send)
        assert request.channel is UNSET

    @pytest.mark.parametrize("flag", ["requirePendingReply", "resolveReplyTarget"])
    def test_false_is_left_to_an_answer(self, flag: str) -> None:
        request = decode_request(payload_of(changed(example("send"), **{flag: False})))
        assert isinstance(request, Send)

    @pytest.mark.parametrize("message", [None, 1, "x", [], {}, MESSAGE])
    def test_any_json_may_stand_for_the_message(self, message: object) -> None:
        request = decode_request(payload_of(changed(example("send"), message=message)))
        assert isinstance(request, Send)
        assert json.loads(bytes(request.message)) == message


class TestHealth:
    """protocol 4.20: at most 128 UTF-16 units"""

    @pytest.mark.parametrize("request_id", ["", "x" * 128, "😀" * 64])
    def test_an_id_that_fits(self, request_id: str) -> None:
        assert decode_request(payload_of({"type": "health", "requestId": request_id})) == HealthRequest(request_id)

    @pytest.mark.parametrize("request_id", ["x" * 129, "😀" * 64 + "x"])
    def test_an_id_that_is_too_long(self, request_id: str) -> None:
        with pytest.raises(ProtocolError, match="requestId is too long"):
            decode_request(payload_of({"type": "health", "requestId": request_id}))

    def test_half_an_emoji_counts_as_one_unit(self) -> None:
        with pytest.raises(ValidationError):
            HealthRequest("\ud83d" * 129)
        assert HealthRequest("\ud83d" * 128)


@pytest.mark.parametrize("name", ["", " ", "\ufeff"])
def test_a_child_has_a_name(name: str) -> None:
    """protocol 4.11"""
    with pytest.raises(ProtocolError, match="childName is blank"):
        decode_request(payload_of({"type": "authorize_supervisor", "requestId": "r", "childName": name}))


@pytest.mark.parametrize("code", ["message_id_conflict", "session_not_found"])
def test_a_failure_may_carry_the_two_codes_and_no_other(code: str) -> None:
    """protocol 5.12"""
    frame = {"type": "delivery_failed", "messageId": "m", "reason": "no", "reasonCode": code}
    decode_answer(payload_of(frame))
    with pytest.raises(ProtocolError):
        decode_answer(payload_of(changed(frame, reasonCode="full")))


@pytest.mark.parametrize(
    ("text", "trimmed"),
    [
        ("", ""),
        ("a b", "a b"),
        (" \t\r\n\v\fa\u00a0\u2003\u3000", "a"),
        ("\ufeff \ufeff\u2029 a \ufeff\u1680\ufeff", "a"),
        ("\x00a\u200b", "\x00a\u200b"),
        ("\x85\u2028\u202f\u205f", ""),
    ],
)
def test_trimming_takes_white_space_and_the_byte_order_mark(text: str, trimmed: str) -> None:
    """protocol OP-18"""
    assert trim(text) == trimmed
    assert is_blank(text) == (trimmed == "")
