"""Hold the schema against example frames, with a small reader of the JSON Schema words it uses."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from intercom.wire.schema import DIALECT, schema
from intercom.wire.unions import Answer, Request
from tests.support.wire import ANSWERS, MESSAGE, REQUESTS, changed, example, without

SCHEMA = schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
KNOWN_WORDS = {
    "$ref", "anyOf", "allOf", "not", "type", "const", "enum", "required", "properties", "items", "minLength",
    "minItems", "maxItems", "pattern", "title", "description", "discriminator", "$schema", "$defs",
    "additionalProperties", "default",
    "maxLength", "minimum", "maximum",
}  # fmt: skip


def fits(value: Any, rule: dict[str, Any]) -> bool:
    """Validate ``value``; an unknown word in a rule is an error, so nothing is passed by oversight."""
    assert set(rule) <= KNOWN_WORDS, rule
    kind = rule.get("type")
    if kind is not None and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return False
    return (
        ("$ref" not in rule or fits(value, SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")]))
        and ("anyOf" not in rule or any(fits(value, part) for part in rule["anyOf"]))
        and all(fits(value, part) for part in rule.get("allOf", []))
        and ("not" not in rule or not fits(value, rule["not"]))
        and ("const" not in rule or (value == rule["const"] and type(value) is type(rule["const"])))
        and ("enum" not in rule or value in rule["enum"])
        and ("minLength" not in rule or len(value) >= rule["minLength"])
        and ("maxLength" not in rule or len(value) <= rule["maxLength"])
        and ("minimum" not in rule or value >= rule["minimum"])
        and ("maximum" not in rule or value <= rule["maximum"])
        and (rule.get("additionalProperties", True) or set(value) <= set(rule["properties"]))
        and ("pattern" not in rule or re.search(rule["pattern"], value) is not None)
        and all(name in value for name in rule.get("required", []))
        and all(fits(value[name], part) for name, part in rule.get("properties", {}).items() if name in value)
        and rule.get("minItems", 0) <= len(value if "minItems" in rule else "")
        and ("maxItems" not in rule or len(value) <= rule["maxItems"])
        and ("items" not in rule or all(fits(item, rule["items"]) for item in value))
    )


def is_frame(value: Any, direction: str) -> bool:
    return fits(value, {"$ref": f"#/$defs/{direction}"})


def test_it_is_json_and_says_its_dialect() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == DIALECT


@pytest.mark.parametrize(("direction", "union"), [("Request", Request), ("Answer", Answer)])
def test_every_frame_has_a_definition_with_its_tag(direction: str, union: Any) -> None:
    frames = get_args(union)
    assert SCHEMA["$defs"][direction]["anyOf"] == [{"$ref": f"#/$defs/{frame.__name__}"} for frame in frames]
    for frame in frames:
        definition = SCHEMA["$defs"][frame.__name__]
        assert definition["properties"]["type"] == {"enum": [frame.__struct_config__.tag]}
        assert set(definition["properties"]) == {"type", *frame.__struct_encode_fields__}
        assert definition["description"]


@pytest.mark.parametrize("members", REQUESTS, ids=lambda members: members["type"])
def test_every_well_formed_request_fits(members: dict[str, Any]) -> None:
    """protocol 4; unknown members are no error (1.3)"""
    assert is_frame(members, "Request")
    assert is_frame(changed(members, futureMember=None), "Request")
    assert fits(members, SCHEMA)


@pytest.mark.parametrize("members", ANSWERS, ids=lambda members: members["type"])
def test_every_well_formed_answer_fits(members: dict[str, Any]) -> None:
    """protocol 5"""
    assert is_frame(members, "Answer")
    assert fits(members, SCHEMA)


@pytest.mark.parametrize(
    "members",
    [
        {"type": "nonsense"},
        {"type": "list"},
        changed(example("register"), session={}),
        changed(example("register"), registrationGroup=" "),
        changed(example("register"), returnAddress=""),
        changed(example("register"), acknowledgesReceipt=False),
        changed(example("register"), supervisor=None),
        changed(example("send"), message=without(MESSAGE, "content")),
        changed(example("send"), message=changed(MESSAGE, timestamp=True)),
        changed(example("send"), channel=None),
        changed(example("send"), requirePendingReply=False),
        changed(example("supervisor_send"), requirePendingReply=True),
        changed(example("authorize_supervisor"), childName=""),
        changed(example("presence"), replyCapability="gone"),
    ],
)
def test_what_protocol_section_4_refuses_does_not_fit(members: dict[str, Any]) -> None:
    assert not is_frame(members, "Request")


def test_a_session_that_is_shown_has_an_id() -> None:
    """protocol 4: ``id`` is set by the broker"""
    joined = next(frame for frame in ANSWERS if frame["type"] == "session_joined")
    assert not is_frame(changed(joined, session=without(joined["session"], "id")), "Answer")


def test_each_call_returns_a_copy_of_its_own() -> None:
    for definition in (mine := schema())["$defs"].values():
        for member in definition.get("properties", {}).values():
            member.clear()
    mine["$defs"].clear()
    assert schema() == SCHEMA
