"""Hold JSON documents against schemas, with a small reader of the JSON Schema words that are used."""

from __future__ import annotations

from typing import Any

from intercom.cli.documents import DOCUMENTS, schema_of

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KNOWN_WORDS = {
    "$defs", "$ref", "$schema", "allOf", "anyOf", "const", "description", "enum", "items", "properties", "required",
    "title", "type",
}  # fmt: skip


def fits(value: Any, rule: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Validate ``value``; an unknown word in a rule is an error, so nothing is passed by oversight."""
    assert set(rule) <= KNOWN_WORDS, rule
    kind = rule.get("type")
    if kind is not None and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return False
    named = value if isinstance(value, dict) else {}
    return (
        ("$ref" not in rule or fits(value, definitions[rule["$ref"].removeprefix("#/$defs/")], definitions))
        and ("anyOf" not in rule or any(fits(value, part, definitions) for part in rule["anyOf"]))
        and all(fits(value, part, definitions) for part in rule.get("allOf", []))
        and ("const" not in rule or (value == rule["const"] and type(value) is type(rule["const"])))
        and ("enum" not in rule or value in rule["enum"])
        and all(name in named for name in rule.get("required", []))
        and all(
            fits(named[name], part, definitions) for name, part in rule.get("properties", {}).items() if name in named
        )
        and ("items" not in rule or all(fits(item, rule["items"], definitions) for item in value))
    )


def verb_of(arguments: tuple[str | bytes, ...]) -> str | None:
    """Return the verb among the arguments of a command, if it has one."""
    return next((word for word in arguments if isinstance(word, str) and word in DOCUMENTS), None)


def assert_described(document: Any, verb: str | None) -> None:
    """Fail unless the schema of the verb describes the document; a failure without a verb must be a failure."""
    schema = schema_of(verb or "list", "")
    rule = schema if verb is not None else schema["$defs"]["Failure"]
    assert fits(document, rule, schema["$defs"]), f"the schema of {verb} does not describe {document}"
