"""Hold tests/vectors against the wire: every frame is there, in both directions, valid and refused."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any, get_args

import pytest

from intercom.wire.codec import ProtocolError, decode_answer, decode_request
from intercom.wire.frames import Malformed
from intercom.wire.unions import Answer, Request
from tests.support.vectors import VECTORS
from tests.support.wire import payload_of

FILES = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(VECTORS.glob("*.json"))}
STEPS = [step for vector in FILES.values() for step in vector.get("steps", [])]
WRITTEN = [step["frame"] for step in STEPS if "from" in step]
READ = [step["frame"] for step in STEPS if "to" in step]
BREAKS = [each["frame"] for vector in FILES.values() for each in vector.get("breaks", [])]
FRAMES = [each for vector in FILES.values() for each in vector.get("frames", [])]
PAGE = (files("intercom") / "docs" / "protocol.md").read_text("utf-8")

NOT_SHOWN = {"A8", "D1", "D10", "D11", "D13", "D14", "D15", "D16", "D17", "D18", "E4"}
"""Rules that need a broken disk or socket, thousands of frames, another machine, or that refuse nothing."""
NEVER_REFUSED = {"message_receipt", "cancel_message"}
"""Frames of another client that cost it nothing, whatever they hold (protocol 15.4)."""
NEVER_WRITTEN = {
    "request_failed": {"outcomeUnknown", "retryAfterMs"},
    "watching": {"leftOut"},
    "invocation_snapshot": {"deliveries"},
    "queued": {"delivery", "retryable", "outcomeKnown"},
}
"""Members that need a thousand things, a crash, another machine, or a command that the settings name."""
NOT_PLAYED = {"watch_alive", "spawn_status", "link_drain", "outbox_changed"}
"""Frames that take 15 s, a command that the settings name, the end of the broker, or another machine."""


def verdict(frame: Any) -> str:
    try:
        return "in-band" if isinstance(decode_request(payload_of(frame)), Malformed) else "valid"
    except ProtocolError:
        return "error"


def members_of(frames: list[dict[str, Any]], kind: str) -> set[str]:
    return {name for frame in frames if frame.get("type") == kind for name in frame}


@pytest.mark.parametrize("frame", get_args(Request), ids=lambda frame: frame.__struct_config__.tag)
def test_a_request_is_there_with_every_member_and_refused(frame: Any) -> None:
    """protocol 4"""
    kind = frame.__struct_config__.tag
    assert "valid" in {verdict(each) for each in WRITTEN if each["type"] == kind}
    assert members_of(WRITTEN, kind) >= {"type", *frame.__struct_encode_fields__}
    refused = {verdict(each) for each in (*WRITTEN, *BREAKS) if each["type"] == kind} - {"valid"}
    assert refused or kind in NEVER_REFUSED


@pytest.mark.parametrize("frame", get_args(Answer), ids=lambda frame: frame.__struct_config__.tag)
def test_an_answer_is_there_with_every_member_and_in_wrong_forms(frame: Any) -> None:
    """protocol 5; ``error`` is never written by this broker"""
    kind = frame.__struct_config__.tag
    if kind != "error" and kind not in NOT_PLAYED:
        written = {"type", *frame.__struct_encode_fields__} - NEVER_WRITTEN.get(kind, set())
        assert members_of(READ, kind) >= written
    valid = [each["frame"] for each in FRAMES if each["valid"]]
    assert members_of(valid, kind) >= {"type", *frame.__struct_encode_fields__}
    wrong = {each["why"] for each in FRAMES if not each["valid"] and each["frame"].get("type") == kind}
    assert {f"{name} is missing" for name in _required(frame)} <= wrong


def _required(frame: Any) -> set[str]:
    defaults = len(frame.__struct_fields__) - len(frame.__struct_defaults__)
    return set(frame.__struct_encode_fields__[:defaults])


@pytest.mark.parametrize("each", FRAMES, ids=lambda each: each["frame"].get("type"))
def test_our_client_reads_what_is_valid_and_nothing_else(each: dict[str, Any]) -> None:
    """protocol 5"""
    if each["valid"]:
        decode_answer(payload_of(each["frame"]))
    else:
        with pytest.raises(ProtocolError):
            decode_answer(payload_of(each["frame"]))


def test_every_rule_of_a_send_that_can_be_shown_is_shown() -> None:
    """protocol 4.8"""
    shown = {step["rule"] for step in STEPS if "rule" in step}
    rules = set(re.findall(r"^\| ([ABDE]\d+) \|", PAGE, re.MULTILINE))
    assert {"A1", "E6"} <= rules
    assert shown == rules - NOT_SHOWN


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_it_shows(name: str) -> None:
    vector = FILES[name]
    assert vector["what"]
    for section in re.findall(r"\d+(?:\.\d+)*", re.sub(r"[A-E]\d+", "", vector["protocol"])):
        assert re.search(rf"^#+ {re.escape(section)}\.? ", PAGE, re.MULTILINE), section
    for part in ("breaks", "streams"):
        assert all(each["why"] for each in vector.get(part, []))
