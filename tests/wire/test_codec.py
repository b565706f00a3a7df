"""Tell frames from protocol errors and in-band refusals, whatever comes (protocol 1.3, 1.4, 4; F35 to F44)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import example as tried
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from intercom.limits import NESTING, NESTING_ADDED, NUMBER_DIGITS, QUOTED_CHARS, RARE_FRAMES
from intercom.wire import codec
from intercom.wire.codec import (
    ProtocolError,
    decode_answer,
    decode_request,
    encode,
    message_of,
    parse_message,
)
from intercom.wire.frames import (
    Attachment,
    BrokerStatus,
    Content,
    Delivered,
    DeliveryFailed,
    ListGroups,
    ListSessions,
    Malformed,
    Message,
    MessageFrame,
    Presence,
    Queued,
    Received,
    Register,
    Send,
    Source,
    SupervisorSend,
    Unregister,
)
from intercom.wire.shapes import AnswerFrame, FeatureAnswer, FeatureRequest, RequestFrame
from intercom.wire.unions import Answer, Request
from tests.support.wire import (
    ANSWERS,
    FULL_MESSAGE,
    MESSAGE,
    REQUESTS,
    SESSION,
    changed,
    example,
    payload_of,
    without,
)


def sentence_of(payload: bytes, decode: Callable[[bytes], object] = decode_request) -> str:
    """Return the sentence of the protocol error that ``payload`` must be."""
    with pytest.raises(ProtocolError) as caught:
        decode(payload)
    return str(caught.value)


def sent(payload: bytes) -> Send:
    request = decode_request(payload)
    assert type(request) is Send
    return request


def with_message(message: bytes) -> bytes:
    """Write a ``send`` around the bytes of a message."""
    return b'{"type":"send","to":"bob","message":' + message + b"}"


def message_with(member: bytes) -> bytes:
    """Write a message with one more member."""
    return payload_of(MESSAGE)[:-1] + b"," + member + b"}"


# What is decoded ----------------------------------------------------------------------------------------


def test_a_send_keeps_the_bytes_of_its_message() -> None:
    """design 3.1: byte for byte, unknown members, spaces and order included"""
    message = b'{ "zz" : [1,\t2.50],"content":{"text":"a\\u0062 \xc3\xa4"} ,"id":"m","timestamp":1E3, "zz":null }'
    assert bytes(sent(with_message(message)).message) == message


def test_of_duplicate_members_the_last_wins() -> None:
    """F38, F39; the first one may be of a wrong type"""
    assert decode_request(b'{"type":"list","requestId":"a","requestId":"b"}') == ListSessions("b")
    assert decode_request(b'{"type":"list","requestId":1,"requestId":"b"}') == ListSessions("b")
    assert decode_request(b'{"type":"list","type":"list_groups","requestId":"r"}') == ListGroups("r")
    assert decode_request(b'{"type":null,"type":"unregister"}') == Unregister()
    assert sent(b'{"type":"send","to":5,"to":"x","message":1,"message":{"id":"m"}}').to == "x"


def test_a_repeated_type_may_make_another_frame_of_it() -> None:
    """F38: the last one counts, and its members are missing"""
    frame = decode_request(b'{"type":"list","type":"send"}')
    assert frame == Malformed("send", {"type": "send"})


def test_a_type_may_stand_anywhere_and_be_escaped() -> None:
    """protocol 1.2: the payload is any JSON"""
    assert decode_request(rb' {"requestId":"r", "ty\u0070e":"l\u0069st"} ') == ListSessions("r")


def test_a_cancelled_ask_of_a_legacy_client_is_known() -> None:
    """protocol 4.24, OP-6"""
    assert type(decode_request(b'{"type":"cancel_ask","messageId":"m"}')).__name__ == "CancelAsk"


# What is malformed and answered in-band -----------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"type": "send"},
        {"type": "send", "to": 1, "message": MESSAGE},
        {"type": "send", "to": "bob", "message": MESSAGE, "attemptId": None},
        {"type": "send", "to": "bob", "message": MESSAGE, "requirePendingReply": "yes"},
        {"type": "supervisor_send", "message": MESSAGE},
        {"type": "presence", "requestId": "r", "groups": ["a", 1]},
        {"type": "presence", "requestId": "r", "replyCapability": "gone"},
        {"type": "presence", "name": None},
        {"type": "join_group", "requestId": "r"},
        {"type": "leave_group", "requestId": "r", "group": 1},
    ],
    ids=lambda members: payload_of(members).decode(),
)
def test_wrong_members_of_these_frames_are_answered(members: dict[str, Any]) -> None:
    """protocol 4.5 to 4.9: a send is never a protocol error"""
    assert decode_request(payload_of(members)) == Malformed(members["type"], members)


def test_the_members_of_a_malformed_frame_are_valid_text() -> None:
    """F39"""
    frame = decode_request(rb'{"type":"send","to":"\ud83d","message":{"id":"\udfff"},"attemptId":1}')
    assert frame == Malformed("send", {"type": "send", "to": "\ufffd", "message": {"id": "\ufffd"}, "attemptId": 1})


def test_wrong_json_is_a_protocol_error_in_these_frames_too() -> None:
    """protocol 1.3"""
    assert sentence_of(b'{"type":"send","to":1,}').startswith("The payload is not valid JSON: ")
    assert sentence_of(b'{"type":"presence","name":1e999}') == (
        "The payload is not valid JSON: a number is out of range"
    )


# What is a protocol error -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"\x00",
        b"{",
        b'{"type":"list","requestId":"r"',
        b'{"type":"list","requestId":"r"}}',
        b'{"type":"list","requestId":"r"}\x00',
        b'{"type":"list","requestId":"r","x":"\x00"}',
        b'{"type":"list","requestId":"r","x":"\n"}',
        b'{"type":"list","requestId":"r",}',
        b'{"type":"list","requestId":"r","x":NaN}',
        b'{"type":"list","requestId":"r","x":Infinity}',
        b'{"type":"list","requestId":"r","x":-Infinity}',
        b'{"type":"list","requestId":"r"/* no */}',
        b"{'type':'list'}",
        b"NaN",
        b"1e999",
        b'\xef\xbb\xbf{"type":"list","requestId":"r"}',
        '{"type":"list","requestId":"r"}'.encode("utf-16"),
        '{"type":"list","requestId":"r"}'.encode("utf-16-le"),
        '{"type":"list","requestId":"r"}'.encode("utf-16-be"),
        '{"type":"list","requestId":"r"}'.encode("utf-32"),
        with_message(b"1" + b"0" * 5_000),
        with_message(b'{"a":NaN}'),
        b'{"type":"register","session":{"cwd":1e999}}',
    ],
)
def test_invalid_json(payload: bytes) -> None:
    """protocol 1.3, F38"""
    assert sentence_of(payload).startswith("The payload is not valid JSON: ")
    assert sentence_of(payload, decode_answer).startswith("The payload is not valid JSON: ")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"[]", "an array"),
        (b'[{"type":"list"}]', "an array"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"0", "a number"),
        (b"1.5", "a number"),
        (b'"list"', "a string"),
    ],
)
def test_json_that_is_no_object(payload: bytes, kind: str) -> None:
    """protocol 1.3.5, F38"""
    assert sentence_of(payload) == f"The payload is not a JSON object but {kind}"


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"{}", "no type"),
        (b'{"Type":"list"}', "no type"),
        (b'{"type":null}', "null as its type"),
        (b'{"type":1}', "a number as its type"),
        (b'{"type":true}', "a boolean as its type"),
        (b'{"type":["list"]}', "an array as its type"),
        (b'{"type":{}}', "an object as its type"),
        (b'{"type":"list","type":2}', "a number as its type"),
    ],
)
def test_an_object_without_a_type(payload: bytes, found: str) -> None:
    """protocol 1.3.5"""
    assert sentence_of(payload) == f"The payload has {found}; a frame names its type in a string"


def test_an_unknown_type() -> None:
    """protocol 1.3.6; the sentence is fit for a log and a terminal, however long or strange the type is"""
    assert sentence_of(b'{"type":"LIST"}') == "Unknown frame type 'LIST'"
    assert sentence_of(b'{"type":"delivered","messageId":"m"}') == "Unknown frame type 'delivered'"
    assert sentence_of(rb'{"type":"\u001b[31m\n\ud83d"}') == "Unknown frame type '\ufffd[31m\ufffd\ufffd'"
    shown = sentence_of(payload_of({"type": "x" * 100_000}))
    assert shown == f"Unknown frame type '{'x' * QUOTED_CHARS}...'"


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b'{"type":"list"}', "A list frame breaks its rules: Object missing required field `requestId`"),
        (
            b'{"type":"received","messageId":5}',
            "A received frame breaks its rules: Expected `str`, got `int` - at `$.messageId`",
        ),
        (
            payload_of(changed(example("register"), registrationGroup=" ")),
            "A register frame breaks its rules: registrationGroup is blank",
        ),
    ],
)
def test_a_frame_that_breaks_its_rules(payload: bytes, sentence: str) -> None:
    """protocol 4: *protocol error*; the sentence names the rule"""
    assert sentence_of(payload) == sentence


def test_an_answer_is_never_malformed() -> None:
    """protocol 0: an unknown type from a broker is fatal"""
    assert sentence_of(b'{"type":"send"}', decode_answer) == "Unknown frame type 'send'"
    assert sentence_of(b'{"type":"delivered"}', decode_answer).startswith("A delivered frame breaks its rules: ")
    assert decode_answer(b'{"type":"delivered","messageId":1,"messageId":"m"}') == Delivered("m")


# Encoding, depth and numbers ----------------------------------------------------------------------------


def test_invalid_utf8_becomes_a_replacement_character_everywhere() -> None:
    """protocol 1.3.4, F38"""
    assert decode_request(b'{"type":"list","requestId":"\xff"}') == ListSessions("\ufffd")
    send = sent(b'{"type":"send","to":"\xc3","message":{"id":"\xed\xa0\x80","\xfe":1}}')
    assert send.to == "\ufffd"
    assert bytes(send.message).decode() == '{"id":"\ufffd\ufffd\ufffd","\ufffd":1}'
    assert decode_answer(b'{"type":"error","error":"\xff"}').error == "\ufffd"  # type: ignore[union-attr]


@pytest.mark.parametrize("half", [r"\ud83d", r"\udfff", r"\ud83dx", r"\ud83d\n", r"\ud83d\ud83d", r"\ude00\ud83d"])
def test_half_an_emoji_is_replaced_once_and_the_frame_goes_on(half: str) -> None:
    """F39: Node clients cut emoji in half, and would resend a refused frame for ever"""
    text = f'{{"id":"m","timestamp":1,"content":{{"text":"a{half}"}},"keep":[1.50,"{half}"],"big":{10**300}}}'
    send = sent(f'{{"type":"send","to":"{half}","message":{text}}}'.encode())
    expected = json.loads(re.sub(r"\\ud83d|\\udfff|\\ude00", "\ufffd", text))
    assert json.loads(bytes(send.message).decode()) == expected
    message = parse_message(send.message)
    assert message is not None
    assert message.content.text == expected["content"]["text"]
    message.content.text.encode()


def test_a_whole_emoji_in_escapes_is_left_alone() -> None:
    message = rb'{"id":"m","timestamp":1,"content":{"text":"\ud83d\ude00"}}'
    assert bytes(sent(with_message(message)).message) == message


@pytest.mark.parametrize("before", ['{"type":"list","requestId":"r","x":', '{"type":"send","to":"x","message":'])
@pytest.mark.parametrize("levels", [NESTING, 900, 10_000, 100_000])
def test_deep_nesting_is_invalid_json(before: str, levels: int) -> None:
    """design 3.1, F38: also in members that are ignored or passed on"""
    frame = before.encode() + b"[" * levels + b"]" * levels + b"}"
    assert sentence_of(frame) == "The payload is not valid JSON: it is nested deeper than 256 levels"
    fine = before.encode() + b"[" * (NESTING - 1) + b"]" * (NESTING - 1) + b"}"
    decode_request(fine)
    answer = before.encode() + b"[" * (levels + NESTING_ADDED) + b"]" * (levels + NESTING_ADDED) + b"}"
    assert "nested" in sentence_of(answer.replace(b'"list"', b'"error"'), decode_answer)


@pytest.mark.parametrize("frame", [with_message(b"%s"), b'{"type":"unregister","x":[-%s]}'])
def test_a_number_without_end_is_invalid_json(frame: bytes) -> None:
    """F38: 5,000-digit int"""
    assert sentence_of(frame.replace(b"%s", b"9" * (NUMBER_DIGITS + 1))) == (
        "The payload is not valid JSON: a number has more than 4000 digits"
    )
    decode_request(frame.replace(b"%s", b"9" * NUMBER_DIGITS))


def test_a_text_of_digits_and_brackets_is_no_such_number() -> None:
    """F37: what a person wrote passes whole"""
    text = "7" * 20_000 + '[{"' * 5_000
    message = parse_message(
        sent(payload_of(changed(example("send"), message=changed(MESSAGE, content={"text": text})))).message
    )
    assert message is not None
    assert message.content.text == text


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400, "1" + "0" * 300 + "e99", "1.5E+310"])
def test_a_session_shows_no_number_beyond_a_double(number: str) -> None:
    """F38: peers are shown unknown members, and not every parser could read this one"""
    session = payload_of(SESSION)[:-1] + f',"x":[{number}]}}'.encode()
    assert sentence_of(b'{"type":"register","session":' + session + b"}") == (
        "The payload is not valid JSON: a number is out of range"
    )


def at_depth(frames_left: int, call: Callable[[], object]) -> object:
    """Call with at most ``frames_left`` frames of stack to go."""
    used = 0
    frame: Any = sys._getframe()
    while frame is not None:
        used += 1
        frame = frame.f_back

    def down(levels: int) -> object:
        return call() if levels <= 0 else down(levels - 1)

    return down(sys.getrecursionlimit() - used - frames_left)


@pytest.mark.parametrize("frames_left", [40, 60, 100, 200, 300])
def test_a_deep_stack_of_the_caller_never_shows(frames_left: int) -> None:
    """F38: a refusal for want of stack is a protocol error like any other"""
    deep = b"[" * 250 + b"]" * 250

    def decode() -> object:
        for payload in (with_message(deep), b'{"type":"send","to":1,"message":' + deep + b"}"):
            try:
                assert isinstance(decode_request(payload), Send | Malformed)
            except ProtocolError as error:
                assert "does not fit into stack or memory" in str(error)
        return parse_message(b'{"id":' + deep + b"}")

    assert at_depth(frames_left, decode) is None


class _Exhausted:
    """Stand for a parser that finds no memory."""

    def decode(self, payload: bytes) -> object:
        raise MemoryError

    def decode_rare(self, payload: bytes) -> None:
        return None

    def widen(self) -> bool:
        return False


def test_want_of_memory_is_a_protocol_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_REQUESTS", _Exhausted())
    assert sentence_of(payload_of(example("list"))).endswith("does not fit into stack or memory")


PLAIN = [example("register"), example("send"), example("list"), example("unregister")]
WITNESS = """
import sys
from intercom.wire.codec import decode_request
for payload in sys.argv[1:]:
    print(type(decode_request(payload.encode())).__name__, "intercom.wire.unions" in sys.modules)
"""


def test_frames_of_features_are_loaded_when_one_comes() -> None:
    """design section 6: what a plain session does is not slowed by what it does without"""
    rare = {"type": "list_groups", "requestId": "r"}
    frames = [*PLAIN, *[rare] * RARE_FRAMES, *PLAIN, rare, {"type": "inbox_presence", "requestId": "r"}, *PLAIN]
    payloads = [payload_of(frame).decode() for frame in frames]
    done = subprocess.run([sys.executable, "-c", WITNESS, *payloads], capture_output=True, text=True, check=True)
    names = ["Register", "Send", "ListSessions", "Unregister"]
    assert done.stdout.splitlines() == [
        *(f"{name} False" for name in names),
        *["ListGroups False"] * RARE_FRAMES,
        *(f"{name} False" for name in names),
        "ListGroups True",
        "InboxPresence True",
        *(f"{name} True" for name in names),
    ]


@pytest.mark.parametrize(
    ("name", "everything", "decode", "frame"),
    [
        ("_REQUESTS", codec._all_requests, decode_request, {"type": "list_groups", "requestId": "r"}),
        ("_ANSWERS", codec._all_answers, decode_answer, {"type": "groups", "requestId": "r", "groups": []}),
    ],
)
def test_the_first_frames_of_features_are_read_one_by_one(
    name: str, everything: Any, decode: Any, frame: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """design section 6: a decoder for every frame is made when there are more of them"""
    used = getattr(codec, name)
    fresh: codec._Direction[Any] = codec._Direction(used._kind, used._bases, everything)
    monkeypatch.setattr(codec, name, fresh)
    for _ in range(RARE_FRAMES):
        assert decode(payload_of(frame)).__class__.__struct_config__.tag == frame["type"]
    assert not fresh.types
    assert decode(payload_of(frame)).__class__.__struct_config__.tag == frame["type"]
    assert frame["type"] in fresh.types


def test_frames_whose_type_is_not_loaded_are_decoded_all_the_same() -> None:
    payload = payload_of({"type": "flow_list", "requestId": "r"}).decode()
    done = subprocess.run([sys.executable, "-c", WITNESS, payload], capture_output=True, text=True, check=True)
    assert done.stdout == "FlowList True\n"


@pytest.mark.parametrize("name", ["RequestFrame", "FeatureRequest", "AnswerFrame", "SendHeld", "LinkFrame"])
def test_the_name_of_a_class_is_no_type_of_a_frame(name: str) -> None:
    """protocol 4.23: also among the first frames, which are read one by one"""
    code = f'from intercom.wire.codec import *\ntry: decode_request(b\'{{"type":"{name}","requestId":"r"}}\')\n'
    code += "except ProtocolError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"Unknown frame type '{name}'\n"


@pytest.mark.parametrize(
    ("bases", "union"), [((RequestFrame, FeatureRequest), Request), ((AnswerFrame, FeatureAnswer), Answer)]
)
def test_what_is_read_one_by_one_is_a_frame(bases: tuple[type[Struct], ...], union: Any) -> None:
    assert set(codec._loaded(bases)) <= set(get_args(union))


# The message inside -------------------------------------------------------------------------------------


def test_a_message_has_these_members() -> None:
    """protocol 4, the table of the message object"""
    message = parse_message(payload_of(FULL_MESSAGE))
    assert isinstance(message, Message)
    assert (message.id, message.timestamp, message.reply_to) == (FULL_MESSAGE["id"], 1_700_000_000_000, "q-1")
    assert (message.expects_reply, message.reply_error) == (False, "no idea")
    assert isinstance(message.source, Source)
    assert (message.source.subagent_run_id, message.source.subagent_agent) == ("run", "scout")
    assert message.source.subagent_index == 3
    assert isinstance(message.content.attachments, list)
    assert [part.type for part in message.content.attachments] == ["file", "snippet", "context"]


WRONG_MEMBERS: list[tuple[str, Any]] = [
    ("id", None),
    ("id", 1),
    ("timestamp", "1"),
    ("timestamp", True),
    ("timestamp", None),
    ("replyTo", None),
    ("replyTo", 1),
    ("expectsReply", None),
    ("expectsReply", 1),
    ("expectsReply", "true"),
    ("replyError", {}),
    ("source", None),
    ("source", {}),
    ("source", {"subagentRunId": 1}),
    ("source", {"subagentRunId": "r", "subagentAgent": None}),
    ("source", {"subagentRunId": "r", "subagentIndex": "1"}),
    ("source", {"subagentRunId": "r", "subagentIndex": False}),
    ("content", None),
    ("content", "text"),
    ("content", {}),
    ("content", {"text": None}),
    ("content", {"text": "t", "attachments": None}),
    ("content", {"text": "t", "attachments": {}}),
    ("content", {"text": "t", "attachments": [None]}),
    ("content", {"text": "t", "attachments": [{"type": "image", "name": "n", "content": "c"}]}),
    ("content", {"text": "t", "attachments": [{"type": "file", "content": "c"}]}),
    ("content", {"text": "t", "attachments": [{"type": "file", "name": 1, "content": "c"}]}),
    ("content", {"text": "t", "attachments": [{"type": "file", "name": "n"}]}),
    ("content", {"text": "t", "attachments": [{"type": "file", "name": "n", "content": "c", "language": None}]}),
]


@pytest.mark.parametrize(("name", "wrong"), WRONG_MEMBERS)
@pytest.mark.parametrize("more", [{}, {"unknown": 1}])
def test_a_message_with_a_wrong_member_is_none(name: str, wrong: Any, more: dict[str, Any]) -> None:
    """protocol 4, the table of the message object; F44"""
    message = {**FULL_MESSAGE, **more, name: wrong}
    assert parse_message(payload_of(message)) is None
    assert message_of(message) is None


@pytest.mark.parametrize("name", ["id", "timestamp", "content"])
def test_a_message_needs_these(name: str) -> None:
    assert parse_message(payload_of(without(MESSAGE, name))) is None


@pytest.mark.parametrize("other", [b"null", b"1", b"[]", b'"x"', b"{}", b"", b"{", b"\xff"])
def test_other_json_is_no_message(other: bytes) -> None:
    assert parse_message(other) is None


def test_unknown_members_at_every_place_are_allowed() -> None:
    """protocol 4: forwarded exactly as received, unknown keys included"""
    message = changed(FULL_MESSAGE, future=[1])
    message["source"] = {**FULL_MESSAGE["source"], "future": 1}
    message["content"] = {
        "text": "t",
        "future": {},
        "attachments": [{"type": "file", "name": "n", "content": "c", "future": None}],
    }
    for parsed in (parse_message(payload_of(message)), message_of(message)):
        assert parsed is not None
        assert parsed.content == Content("t", [Attachment("file", "n", "c")])


def test_a_member_more_or_less_changes_nothing_of_what_is_known() -> None:
    """The parts that identify a message (protocol 6.9.1) are written alike, whichever way they were read"""
    plain, other = parse_message(payload_of(FULL_MESSAGE)), parse_message(payload_of(changed(FULL_MESSAGE, x=1)))
    assert plain is not None
    assert other is not None
    assert encode(plain.content) == encode(other.content)
    assert isinstance(plain.source, Source)
    assert isinstance(other.source, Source)
    assert encode(plain.source) == encode(other.source)


def test_of_duplicate_members_of_a_message_the_last_wins() -> None:
    """design 3.1"""
    message = parse_message(b'{"id":1,"id":"a","timestamp":2,"content":7,"content":{"text":"x","text":"y"},"id":"b"}')
    assert message is not None
    assert (message.id, message.content.text) == ("b", "y")


@pytest.mark.parametrize(
    "member",
    [
        b'"x":1e999',
        b'"x":[{"y":-2.5E+400}]',
        b'"timestamp":1e999',
        b'"x":1' + b"0" * 309,
        b'"timestamp":1' + b"0" * 400,
        b'"source":{"subagentRunId":"r","subagentIndex":1' + b"0" * 400 + b"}",
    ],
)
def test_a_message_with_a_number_beyond_a_double_is_none(member: bytes) -> None:
    """F38: what is forwarded is read by every recipient"""
    assert parse_message(sent(with_message(message_with(member))).message) is None


@pytest.mark.parametrize(
    ("member", "timestamp"),
    [
        (b'"timestamp":18446744073709551616', 2**64),
        (b'"timestamp":1' + b"0" * 308, 10**308),
        (b'"timestamp":1e-999', 0.0),
        (b'"timestamp":-1.5E2', -150.0),
        (b'"timestamp":1,"x":"1e999"', 1),
    ],
)
def test_large_numbers_within_a_double_pass(member: bytes, timestamp: float) -> None:
    message = parse_message(message_with(member))
    assert message is not None
    assert message.timestamp == timestamp


# What is written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", REQUESTS + ANSWERS, ids=lambda members: members["type"])
def test_a_frame_is_written_with_its_header(members: dict[str, Any]) -> None:
    """protocol 1.2, 1.4"""
    decode = decode_request if members in REQUESTS else decode_answer
    data = encode(decode(payload_of(members)))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert json.loads(data[4:]) == members


def test_absent_members_are_left_out() -> None:
    """protocol 1.4: never written as null"""
    assert encode(Delivered("m"))[4:] == b'{"type":"delivered","messageId":"m"}'
    assert encode(Presence(name="n"))[4:] == b'{"type":"presence","name":"n"}'


def test_numbers_that_are_not_finite_are_null() -> None:
    """protocol 1.4"""
    report = {"a": float("inf"), "b": [float("nan")]}
    assert json.loads(encode(BrokerStatus("r", report))[4:]) == {
        "type": "broker_status",
        "requestId": "r",
        "report": {"a": None, "b": [None]},
    }


def test_an_undecodable_byte_of_an_argument_is_replaced() -> None:
    """F39: CLI arg containing an undecodable byte"""
    argument = b"caf\xe9".decode("utf-8", "surrogateescape")
    raw = Raw(payload_of(MESSAGE))
    sending = Send(to=argument, message=raw)
    assert json.loads(encode(sending)[4:]) == {"type": "send", "to": "caf\ufffd", "message": MESSAGE}
    message = Message(argument, 1, Content(argument, [Attachment("file", argument, argument)]))
    assert json.loads(encode(message)[4:])["content"]["attachments"][0]["name"] == "caf\ufffd"
    assert json.loads(encode(DeliveryFailed("m", argument))[4:])["reason"] == "caf\ufffd"


def test_bytes_of_a_message_go_out_as_they_came() -> None:
    """protocol 5.10: unchanged"""
    message = b'{ "id" : "m","timestamp":1.0, "content":{"text":"\\u0041"},"x":[ ] }'
    send = sent(with_message(message))
    data = encode(MessageFrame(sender=Raw(b'{"id":"s"}'), message=send.message))
    assert data[4:] == b'{"type":"message","from":{"id":"s"},"message":' + message + b"}"


# Whatever comes -----------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**63, 2**64, 10**30, 10**400, 1.5, -0.0, 1e308]),
    st.text(st.characters(codec=None), max_size=6),
    st.sampled_from(["", " ", "send", "list", "live", "agent", "file", "é", "😀", "\ud83d", "\udfff", "\x00"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "text", "x", "\ud800"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LITERALS = st.sampled_from(
    ["NaN", "Infinity", "1e999", "-1e999", "01", ".5", "1.", "+1", "1e", "0x1", "'a'", '"\t"', '"\\x"', '"\\ud83d"',
     '"\\ud83d\\ude00"', "9" * 4001, "[" * 300 + "]" * 300, "[" * 2000, "", ",", "}", "/**/", '"']
)  # fmt: skip
NAMES = sorted({name for frame in REQUESTS + ANSWERS for name in frame} | {"channel", "x", "typ\u00e9", "content"})


class Literal(str):
    """Stand for text that is written into a document as it is."""


def written(draw: st.DrawFn, value: Any) -> str:
    """Write JSON by hand: spaces, escapes, literals, members that come twice."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        pairs = list(value.items())
        if pairs and draw(st.integers(0, 9)) == 0:
            pairs.insert(draw(st.integers(0, len(pairs))), (draw(st.sampled_from(pairs))[0], draw(VALUES)))
        return "{" + ",".join(f"{json.dumps(name)}:{written(draw, member)}" for name, member in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(draw, item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def mutated(draw: st.DrawFn, value: Any, changes: int) -> Any:
    """Copy a value with some of its members replaced, removed, added or turned into a literal."""
    for _ in range(changes):
        path = value
        while True:
            inner = [
                item for item in (path.values() if isinstance(path, dict) else path) if isinstance(item, dict | list)
            ]
            if not inner or draw(st.booleans()):
                break
            path = draw(st.sampled_from(inner))
        new = draw(st.one_of(VALUES, LITERALS.map(Literal)))
        if isinstance(path, list):
            path.insert(draw(st.integers(0, len(path))), new)
        elif path and draw(st.booleans()):
            name = draw(st.sampled_from(sorted(path)))
            if draw(st.booleans()):
                path[name] = new
            else:
                del path[name]
        else:
            path[draw(st.sampled_from(NAMES))] = new
    return value


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Make a payload from a well-formed frame by changing members, then perhaps bytes."""
    frame = json.loads(json.dumps(draw(st.sampled_from(REQUESTS + ANSWERS))))
    text = written(draw, mutated(draw, frame, draw(st.integers(0, 3))))
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
    return data


def plain(frame: Any) -> Any:
    """Turn a decoded frame into something that can be compared: raw members are parsed."""
    if isinstance(frame, Raw):
        return json.loads(bytes(frame))
    if isinstance(frame, Struct):
        return type(frame), {name: plain(getattr(frame, name)) for name in frame.__struct_fields__}
    return [plain(item) for item in frame] if isinstance(frame, list) else frame


def outcome(payload: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return plain(decode(payload))
    except ProtocolError as error:
        assert str(error).isprintable()
        return str(error).partition(":")[0]


@given(payload=payloads())
@settings(database=None, deadline=None, max_examples=200)
def test_any_payload_is_a_frame_or_a_protocol_error(payload: bytes) -> None:
    """F38: never another exception, and what is passed on is read by any parser"""
    for decode in (decode_request, decode_answer):
        try:
            frame = decode(payload)
        except ProtocolError:
            continue
        for member in (getattr(frame, name) for name in frame.__struct_fields__):
            if isinstance(member, Raw):
                json.loads(bytes(member).decode("utf-8", "strict"), parse_constant=pytest.fail)
        if isinstance(frame, Malformed):
            assert frame.type in codec.ANSWERED_IN_BAND
            message_of(frame.fields.get("message"))
            json.dumps(frame.fields, ensure_ascii=False).encode("utf-8", "strict")
        else:
            encode(frame)
        if isinstance(frame, Send):
            message = parse_message(frame.message)
            if message is not None:
                assert "Infinity" not in json.dumps(json.loads(bytes(frame.message), parse_int=float))
                assert message_of(json.loads(bytes(frame.message))) is not None
                encode(message)


@given(payload=payloads())
@settings(database=None, deadline=None, max_examples=200)
def test_the_fast_way_and_the_standard_parser_agree(payload: bytes) -> None:
    """design 3.1: one meaning, whichever way a frame was read"""
    try:
        value = json.loads(payload.decode("utf-8", "strict"), parse_constant=int)
        again = json.dumps(value, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return
    for decode in (decode_request, decode_answer):
        first, second = outcome(payload, decode), outcome(again, decode)
        if first != second:
            # With a member that comes twice the whole frame is read, ignored members and their large numbers too.
            assert "The payload is not valid JSON" in (first, second)


@given(payload=st.binary(max_size=60).filter(lambda payload: b"type" not in payload))
@tried(payload=b"{}")
@settings(database=None, deadline=None)
def test_any_bytes_are_refused_in_a_sentence(payload: bytes) -> None:
    """protocol 4.23: chance may find an object, too, but hardly one that is a frame"""
    assert sentence_of(payload).startswith(("The payload is not ", "The payload has no type; "))


def test_the_types_answered_in_band_are_requests() -> None:
    kinds = {frame["type"] for frame in REQUESTS}
    assert kinds >= codec.ANSWERED_IN_BAND
    assert type(decode_request(payload_of(example("supervisor_send")))) is SupervisorSend
    assert type(decode_request(payload_of(example("register")))) is Register
    assert type(decode_request(payload_of(example("received")))) is Received


def test_an_answer_whose_type_is_loaded_is_decoded_without_all_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 6: a command that waits for one such answer needs no decoder for every frame there is."""
    answers: codec._Direction[Any] = codec._Direction(Delivered, (AnswerFrame,), codec._all_answers)
    monkeypatch.setattr(codec, "_ANSWERS", answers)
    frame = decode_answer(b'{"type":"queued","messageId":"m","target":"t","position":1}')
    assert isinstance(frame, Queued)
    assert answers._everything is not None


class _Base(Struct, tag_field="type", tag="_Base"):
    """Be what frames of a feature have in common."""


class _Middle(_Base, tag="_Middle"):
    """Be what some of them have in common."""


class _Leaf(_Middle, tag="leaf"):
    """Be a frame."""


class _Plain(Struct, tag_field="type", tag="plain"):
    """Be a frame of every session."""


def test_a_rare_frame_whose_type_is_loaded_is_decoded_alone() -> None:
    """design 6: a command that waits for it needs no decoder for all the others; a base is no frame"""
    direction: codec._Direction[Any] = codec._Direction(_Plain, (_Base,), lambda: (_Plain | _Leaf, _Plain | _Leaf))
    assert direction.decode_rare(b'{"type":"leaf"}') == _Leaf()
    assert direction.decode_rare(b'{"type":"_Middle"}') is None
    assert direction.decode_rare(b'{"type":5}') is None
    assert not direction.types
    for _ in range(RARE_FRAMES):
        direction.decode_rare(b'{"type":"leaf"}')
    assert direction.decode_rare(b'{"type":"leaf"}') is None, "there are too many for that"
    assert direction.widen() and not direction.widen()
    assert direction.decode_rare(b'{"type":"leaf"}') is None
    assert direction.decode(b'{"type":"leaf"}') == _Leaf() and set(direction.types) == {"plain", "leaf"}


def test_half_characters_in_a_registration_are_mended_like_all_others() -> None:
    """protocol 1.2: what is shown of a session may be anything, so it is read by the standard parser"""
    frame = decode_request(
        rb'{"type":"register","session":{"cwd":"/p","model":"m","pid":1,"startedAt":1,"lastActivity":1,'
        rb'"name":"a\ud83d","more":[1.50]}}'
    )
    assert isinstance(frame, Register)
    assert frame.session["name"] == "a\ufffd" and frame.session["more"] == [1.5]
