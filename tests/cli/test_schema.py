from __future__ import annotations

import json

import pytest

from intercom.cli.documents import schema_of
from intercom.cli.main import VERBS
from intercom.wire.schema import schema as schema_of_the_wire
from tests.support.commands import Shell
from tests.support.schemas import fits


def test_the_schema_of_a_verb(shell: Shell) -> None:
    result = shell.run("schema", "list")
    assert (result.status, result.errors) == (0, "")
    assert json.loads(result.text) == schema_of("list", VERBS["list"])
    assert shell.run("schema", "list", "--json").document["schema"] == json.loads(result.text)
    assert not shell.home.exists()


def test_the_frames(shell: Shell) -> None:
    assert json.loads(shell.run("schema", "wire").text) == schema_of_the_wire()


def test_one_schema_for_all(shell: Shell) -> None:
    schema = json.loads(shell.run("schema").text)
    assert set(VERBS) < set(schema["$defs"])
    assert [part["$ref"] for part in schema["anyOf"]] == [f"#/$defs/{verb}" for verb in VERBS]
    assert fits({"ok": True, "pid": 5}, schema["$defs"]["stop"], schema["$defs"])
    assert not fits({"ok": True, "pid": 5}, schema["$defs"]["join"], schema["$defs"])


@pytest.mark.parametrize(
    ("words", "hint"), [(["lst"], "Did you mean list?"), (["x"], "lists the verbs"), (["a", "b"], "")]
)
def test_mistakes(shell: Shell, words: list[str], hint: str) -> None:
    result = shell.run("schema", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert hint in result.document["hint"]
