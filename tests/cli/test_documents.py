from __future__ import annotations

import json

import pytest

from intercom.cli.documents import DOCUMENTS, schema_of
from intercom.cli.main import VERBS
from tests.support.schemas import assert_described, fits

FAILURE = {"ok": False, "code": "usage", "reason": "r", "retry": "never"}


def test_every_verb_is_described() -> None:
    assert set(DOCUMENTS) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_is_json_and_knows_failures(verb: str) -> None:
    schema = schema_of(verb, "summary")
    assert json.loads(json.dumps(schema)) == schema
    assert_described(FAILURE, verb)


@pytest.mark.parametrize(
    ("verb", "document"),
    [
        ("send", {"ok": True}),
        ("send", {"ok": True, "state": "sent", "messageId": "m", "target": "t", "guest": True}),
        ("list", {"ok": True, "sessions": [{"name": "no id"}]}),
        ("stop", {"ok": True, "pid": "5"}),
        ("stop", {"ok": 1, "pid": 5}),
        ("join", {**FAILURE, "retry": "later"}),
        ("listen", {"ok": True, "event": "message", "id": "m"}),
    ],
)
def test_what_breaks_a_promise_does_not_fit(verb: str, document: object) -> None:
    schema = schema_of(verb, "")
    assert not fits(document, schema, schema["$defs"])


def test_members_may_be_added() -> None:
    """A program that was written for an older version goes on working."""
    assert_described({"ok": True, "pid": 5, "later": [1]}, "stop")
