"""Read frames and messages of very many values by what stands outermost in them (protocol 1.3, 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from intercom.core.form import form_refusal, identify, members_of
from intercom.limits import READ_VALUES
from intercom.wire import codec
from intercom.wire.codec import ProtocolError, decode_request, parse_message, request_in_steps
from intercom.wire.frames import BadRequest, ListSessions, Malformed, Presence, Register, Send
from intercom.wire.outline import has_many_values, last_members, outline_of, value_of
from intercom.wire.outline import members_of as raw_members_of
from intercom.wire.shapes import Content, Message

MANY = b"[" + b"0," * READ_VALUES + b"0]"
MESSAGE = b'{"id":"m","timestamp":1,"content":{"text":"t"}}'
SESSION = b'"session":{"cwd":"/","model":"m","pid":1,"startedAt":1,"lastActivity":1,"extra":%b}'


def decoded(payload: bytes) -> object:
    """Decode a frame at once and in steps, which makes no difference."""
    at_once = decode_request(payload)
    assert stepped(payload) == at_once
    return at_once


def stepped(payload: bytes) -> object:
    *_, frame = request_in_steps(payload)
    return frame


def refused(payload: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_request(payload)
    with pytest.raises(ProtocolError) as again:
        stepped(payload)
    assert str(again.value) == str(caught.value)
    return str(caught.value)


class TestParts:
    @pytest.mark.parametrize(
        ("value", "many"),
        [(b"0," * READ_VALUES, False), (b"0," * (READ_VALUES + 1), True), (b"[{" * READ_VALUES, True), (b"0", False)],
    )
    def test_values_are_counted_by_what_stands_before_them(self, value: bytes, many: bool) -> None:
        assert has_many_values(value) is many
        assert not has_many_values(b"x" * len(value))

    def test_of_repeated_members_the_last_is_returned_as_it_is_written(self) -> None:
        """F38, F39"""
        text = rb'{"a":[ 1 ],"b":2,"\u0061":{"x" :1}, "a":3.50}'
        assert raw_members_of(text, ("a", "c")) == {"a": Raw(b"3.50")}
        assert raw_members_of(MANY, ("a",)) is None

    def test_what_has_many_values_is_replaced_by_its_kind(self) -> None:
        assert value_of(b' {"a":[1,"\\u00e4"]}') == {"a": [1, "ä"]}
        assert value_of(b" " + MANY) == [None]
        assert value_of(b'{"a":%b}' % MANY) == {"": None}

    def test_a_message_of_many_values_keeps_its_small_members(self) -> None:
        text = b'{"type":"send","to":%b,"message":{"id":"m","x":%b,"replyTo":"r","content":{"x":%b}},"y":1}'
        assert outline_of(text % (MANY, MANY, MANY), Send) == {
            "type": "send",
            "to": [None],
            "message": {"id": "m", "replyTo": "r", "content": {"": None}},
        }
        assert outline_of(MANY, Send) is None

    def test_repeated_parts_of_a_message_are_left_out(self) -> None:
        text = b'{"id":1,"id":"m","content":{"text":1,"text":"t","x":[]},"source":5}'
        assert json.loads(bytes(last_members(text, Message))) == {"id": "m", "content": {"text": "t"}, "source": 5}
        assert last_members(MANY, Content) == Raw(MANY)


class TestFrames:
    """A wrong frame is named and answered as if it were small"""

    @pytest.mark.parametrize(
        ("payload", "sentence"),
        [
            (MANY, "The payload is not a JSON object but an array"),
            (b'{"x":%b}' % MANY, "The payload has no type; a frame names its type in a string"),
            (b'{"type":%b}' % MANY, "The payload has an array as its type; a frame names its type in a string"),
            (b'{"type":"zzz","x":%b}' % MANY, "Unknown frame type 'zzz'"),
            (b'{"type":"zzz","x":[%b,1e999]}' % MANY, "The payload is not valid JSON: a number is out of range"),
            (b'{"type":"health","requestId":5,"x":%b}' % MANY, "A health frame breaks its rules: Expected `str`"),
            (
                b'{"type":"register",' + SESSION % (b"[%b,1e309]" % MANY) + b"}",
                "The payload is not valid JSON: a number",
            ),
            (b'{"type":zzz,"x":%b}' % MANY, "The payload is not valid JSON: Expecting value: line 1 column 9 (char 8)"),
            (MANY[:-1], "The payload is not valid JSON: "),
            (b"[01,%b]" % MANY, "The payload is not valid JSON: "),
            (MANY + b",", "The payload is not valid JSON: "),
        ],
    )
    def test_what_ends_the_connection(self, payload: bytes, sentence: str) -> None:
        """protocol 1.3, 5.27"""
        assert refused(payload).startswith(sentence)

    def test_a_request_of_a_feature_is_answered(self) -> None:
        frame = decoded(b'{"type":"mail_peek","requestId":"r","x":%b}' % MANY)
        assert frame == BadRequest("mail_peek", "r", "Object contains unknown field `x`")

    @pytest.mark.parametrize(
        ("members", "fields"),
        [
            (b'"to":1,"message":%b', {"to": 1, "message": [None]}),
            (b'"to":%b,"attemptId":"a"', {"to": [None], "attemptId": "a"}),
            (
                b'"attemptId":1,"to":"x","message":{"id":"m"},"y":%b',
                {"attemptId": 1, "to": "x", "message": {"id": "m"}},
            ),
        ],
    )
    def test_a_wrong_send_is_answered(self, members: bytes, fields: dict[str, Any]) -> None:
        """protocol 4.8: never a protocol error"""
        frame = decoded(b'{"type":"send",%b}' % (members % MANY))
        assert frame == Malformed("send", {"type": "send", **fields})

    def test_of_repeated_members_the_last_counts(self) -> None:
        """F38, F39; the first one may be of a wrong type"""
        frame = decoded(b'{"type":5,"type":"send","to":%b,"to":"x","message":1,"message":%b}' % (MANY, MESSAGE))
        assert isinstance(frame, Send)
        assert (frame.to, bytes(frame.message)) == ("x", MESSAGE)

    def test_a_list_of_many_wrong_groups_stays_wrong(self) -> None:
        """protocol 4.5: what stands for it must not be taken for a list of none"""
        frame = decoded(b'{"type":"presence","requestId":"r","groups":%b}' % MANY)
        assert frame == Malformed("presence", {"type": "presence", "requestId": "r", "groups": [None]})

    def test_it_is_decoded_in_steps(self) -> None:
        """Others are served after each look at it, and before it is handled"""
        fine = b'{"type":"presence","x":%b}' % MANY
        *steps, frame = request_in_steps(fine)
        assert steps == [None] * 3 and isinstance(frame, Presence)
        *steps, frame = request_in_steps(fine.replace(b"[", rb'["\ud83d",', 1))
        assert steps == [None] * 5 and isinstance(frame, Presence)
        deep = request_in_steps(b"[" * 1_000)
        assert next(deep) is None
        with pytest.raises(ProtocolError, match="nested"):
            next(deep)

    def test_it_may_be_no_utf8(self) -> None:
        """protocol 1.3.4"""
        assert decoded(b'{"type":"list","requestId":"\xff","x":%b}' % MANY) == ListSessions("\ufffd")

    def test_want_of_memory_is_a_protocol_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def exhausted(payload: bytes) -> None:
            raise MemoryError

        monkeypatch.setattr(codec, "flaw_of", exhausted)
        with pytest.raises(ProtocolError, match="does not fit into stack or memory"):
            next(request_in_steps(MANY))

    @pytest.mark.parametrize("half", [b"0", rb'"\ud83d"'])
    def test_a_right_frame_is_decoded(self, half: bytes) -> None:
        assert isinstance(decoded(b'{"type":"register",' + SESSION % MANY + b',"x":%b}' % half), Register)
        assert isinstance(decoded(b'{"type":"presence","x":[%b,%b]}' % (MANY, half)), Presence)


class TestMessages:
    """protocol 4: what is wrong with a message is told from what stands outermost in it"""

    @pytest.mark.parametrize(
        "message",
        [
            b'{"id":"m","timestamp":1,"content":{"text":"t"},"x":%b}',
            b'{"id":%b,"id":"m","timestamp":1,"content":1,"content":{"text":2,"text":"t"}}',
            b'{"id":"m","timestamp":1,"content":{"text":"t"},"x":[%b,1e308,"1e999"]}',
        ],
    )
    def test_it_is_valid(self, message: bytes) -> None:
        assert parse_message(message % MANY) == Message("m", 1, Content("t"))

    @pytest.mark.parametrize(
        "message",
        [
            b'{"id":"m","timestamp":1,"content":{"text":%b}}',
            b'{"id":"m","timestamp":1,"content":{"text":"t"},"x":[%b,1e309]}',
            b"[%b]",
        ],
    )
    def test_it_is_not(self, message: bytes) -> None:
        assert parse_message(message % MANY) is None

    def test_its_send_is_refused_under_its_id(self) -> None:
        """protocol 4.8 A3"""
        message = b'{"id":"m","timestamp":1,"content":{"text":%b},"x":1e999}' % MANY
        frame = decoded(b'{"type":"send","to":"x","attemptId":"a","message":%b}' % message)
        assert isinstance(frame, Send)
        refusal = form_refusal(False, members_of(frame), False)
        assert refusal is not None and refusal.rule == "A3"
        assert identify(frame) == ("m", "a")
