"""Put entries into JSON texts and take them out: nothing else may change, whatever the text looks like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.hosts.jsonedit import Entry, Taken, holds, lookup, put, take_out
from intercom.hosts.jsontext import Dialect, Malformed, parse

ALL = Dialect(comments=True, trailing_commas=True, bom=True)
VALUE = {"command": "/opt/bin/x", "args": ["mcp", "--host", "claude"]}


def is_ours(value: Any) -> bool:
    return isinstance(value, dict) and value.get("command") == "/opt/bin/x"


SERVER = Entry(("mcpServers", "intercom"), VALUE, is_ours)
GROUP = Entry(("hooks", "Stop"), {"hooks": [VALUE]}, lambda group: is_ours((group.get("hooks") or [None])[0]), True)

TEXTS = {
    "two spaces": '{\n  "a": 1,\n  "mcpServers": {\n    "other": {"command": "y"}\n  }\n}\n',
    "no servers": '{\n  "a": {"b": [1, 2]}\n}\n',
    "no last line end": '{\n  "a": 1\n}',
    "three spaces": '{\n   "mcpServers": {\n      "other": {}\n   },\n   "z": null\n}\n',
    "tabs": '{\n\t"mcpServers": {\n\t\t"other": {}\n\t}\n}\n',
    "no indent": '{\n"mcpServers": {\n"other": {}\n}\n}\n',
    "one line": '{"mcpServers":{"other":{"command":"y"}},"b":2}',
    "one line with spaces": '{ "mcpServers": { "other": { "command": "y" } }, "b": 2 }\n',
    "first on the line of the bracket": '{"a": 1,\n "mcpServers": {"b": 2,\n  "c": 3}}\n',
    "crlf": '{\r\n  "a": 1,\r\n  "mcpServers": {\r\n    "other": {}\r\n  }\r\n}\r\n',
    "bom": '\ufeff{\n  "a": 1\n}\n',
    "bom in one line": '\ufeff{"a": 1}',
    "comments": '// mine\n{ // first\n  // about a\n  "a": 1, /* b */ "b": 2, // last\n  // end\n}\n',
    "comment behind a bracket": '{\n  "mcpServers": { // servers\n    "other": {} // the other\n  }\n}\n',
    "trailing commas": '{\n  "a": [1, 2,],\n  "mcpServers": {\n    "other": {},\n  },\n}\n',
    "slashes and brackets in strings": '{\n  "a": "// no { comment }, /* no */",\n  "b": "\\"\\\\"\n}\n',
    "other alphabets": '{\n  "名": "é\\u00e9 \U0001f600"\n}\n',
    "groups": '{\n  "hooks": {\n    "Stop": [\n      {"hooks": [{"command": "y"}]}\n    ],\n    "Start": []\n  }\n}\n',
    "groups in one line": '{"hooks": {"Stop": [{"hooks": []}]}}',
    "groups with trailing comma": '{\n  "hooks": {\n    "Stop": [\n      {"hooks": []},\n    ],\n  },\n}\n',
    "groups with comments": '{\n  "hooks": {\n    "Stop": [\n      {"a": []} // mine\n      // end\n    ]\n  }\n}\n',
}
"""Texts of which every entry put in can be taken out by looking at the text alone."""


@pytest.mark.parametrize("entry", [SERVER, GROUP], ids=["member", "item"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_was_put_in_can_be_taken_out_byte_for_byte(text: str, entry: Entry) -> None:
    before = parse(text, ALL).data
    edited = put(text, entry, ALL)
    assert holds(text, entry, ALL) is False
    assert holds(edited, entry, ALL) is True
    assert put(edited, entry, ALL) == edited
    assert text.count("\r\n") == 0 or edited.count("\n") == edited.count("\r\n")
    after = take_out(edited, entry, ALL, lambda path: lookup(text, path, ALL))
    assert after == text
    assert parse(after, ALL).data == before


@pytest.mark.parametrize("text", [text for text in TEXTS.values() if "{\n" in text])
def test_every_line_that_was_there_is_still_there(text: str) -> None:
    """A member of ours takes lines of its own."""
    lines = put(text, SERVER, ALL).splitlines()
    assert [line for line in text.splitlines() if line not in lines] == []


def test_it_is_laid_out_like_its_surroundings() -> None:
    assert put('{\n\t"mcpServers": {\n\t\t"other": {}\n\t}\n}\n', SERVER._replace(value={"command": "x"}), ALL) == (
        '{\n\t"mcpServers": {\n\t\t"intercom": {\n\t\t\t"command": "x"\n\t\t},\n\t\t"other": {}\n\t}\n}\n'
    )
    assert put('{"mcpServers":{"b":1}}', SERVER._replace(value={"c": 1}), ALL) == (
        '{"mcpServers":{"intercom": {"c": 1}, "b":1}}'
    )
    assert put("{}\n", SERVER._replace(value=1), ALL) == '{\n  "mcpServers": {\n    "intercom": 1\n  }\n}\n'
    item = Entry(("list",), "ours", lambda value: value == "ours", is_item=True)
    assert put('{\n  "list": [\n    "a"\n  ]\n}', item, ALL) == '{\n  "list": [\n    "a",\n    "ours"\n  ]\n}'
    assert put('{"list": ["a"]}', item, ALL) == '{"list": ["a", "ours"]}'
    assert put('{"list": []}', item, ALL) == '{"list": [\n  "ours"\n]}'


@pytest.mark.parametrize("entry", [SERVER, GROUP], ids=["member", "item"])
def test_an_earlier_version_of_ours_is_replaced_in_its_place(entry: Entry) -> None:
    older = entry._replace(value=json.loads(json.dumps(entry.value).replace('"mcp"', '"old"')))
    text = put(put(TEXTS["comments"], older, ALL), SERVER._replace(path=("z",)), ALL)
    assert holds(text, entry, ALL) is None
    edited = put(text, entry, ALL)
    assert holds(edited, entry, ALL) is True
    assert edited == text.replace('"old"', '"mcp"')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"mcpServers": {"intercom": {"command": "z"}}}', "mcpServers.intercom is there already and is not ours"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ("[1]", "it is not an object"),
        ("7", "it is not an object"),
    ],
)
def test_what_is_not_ours_is_left(text: str, reason: str) -> None:
    with pytest.raises(Taken, match=reason):
        put(text, SERVER, ALL)
    assert take_out(text, SERVER, ALL, lambda path: False) == text
    assert put('{"hooks": {"Stop": []}}', GROUP, ALL) != text
    with pytest.raises(Taken, match=r"hooks\.Stop is not a list"):
        put('{"hooks": {"Stop": {}}}', GROUP, ALL)


def test_what_is_empty_afterwards_goes_unless_it_was_there_before() -> None:
    text = put("{}", SERVER, ALL)
    assert take_out(text, SERVER, ALL, lambda path: False) == "{}"
    assert json.loads(take_out(text, SERVER, ALL, lambda path: path == ("mcpServers",))) == {"mcpServers": {}}
    text = put("{}", GROUP, ALL)
    assert json.loads(take_out(text, GROUP, ALL, lambda path: path == ("hooks",))) == {"hooks": {}}


def test_what_was_written_around_ours_since_stays() -> None:
    text = put('{\n  "a": 1\n}\n', SERVER, ALL)
    text = text.replace('  "mcpServers"', '  // servers\n  "mcpServers"').replace('"a": 1', '"a": 1, // one\n  "b": 2')
    assert take_out(text, SERVER, ALL, lambda path: False) == '{\n  // servers\n  "a": 1, // one\n  "b": 2\n}\n'
    last = '{\n  "a": 1, // one\n  "mcpServers": {"intercom": {"command": "/opt/bin/x"}} // ours\n}\n'
    assert parse(take_out(last, SERVER, ALL, lambda path: False), Dialect(comments=True)).data == {"a": 1}


OURS = '"intercom": {"command": "/opt/bin/x"}'
OTHER, THIRD = '"other": {}', '"third": []'


@pytest.mark.parametrize(
    "servers",
    [
        f"{OTHER} /* , one */, {OURS}",
        f"{OTHER} // , one\n, {OURS}",
        f"{OTHER}, // one\n {OURS}, {THIRD}",
        f"{OTHER}, /* one */ {OURS} /* , */, {THIRD}",
        f"{OURS} // one, {{\n, {OTHER}",
        f"{OTHER}, /* one */ // , two\n {OURS}, // three\n",
        f"{OURS}, // , one\n",
        f"{OTHER}, // one\n{OURS}",
        f"{OTHER}, // one\n{OURS} /* two\n */",
        f"{OTHER}, // one\n{OURS} // two\n,",
        f"{OTHER}, // one\n{OURS} /* two\n, */,\n{THIRD}",
        f"// one\n{OURS}",
        f"// one\n{OURS} /* two\n */, // three\n",
        f"{OURS} /*/, one */, {OTHER}",
    ],
)
def test_a_comma_in_a_comment_is_none(servers: str) -> None:
    """Whoever wrote comments in between finds the others as they were, and a text that the host can read."""
    text = f'{{"mcpServers": {{{servers}}}}}'
    wanted = parse(text, ALL).data["mcpServers"]
    del wanted["intercom"]
    left = take_out(text, SERVER, ALL, lambda path: path == ("mcpServers",))
    assert parse(left, ALL).data == {"mcpServers": wanted}


@pytest.mark.parametrize(
    ("text", "dialect", "reason"),
    [
        ('{"a": 1,}', Dialect(), "line 1: a comma before }, which the host does not take"),
        ('{\n// x\n"a": 1}', Dialect(), "line 2: a comment, which the host does not take"),
        ("\ufeff{}", Dialect(), "byte order mark"),
        ('{"a": 1', ALL, "line 1: a comma or } is missing"),
        ('{"a" 1}', ALL, "a colon is missing"),
        ('{"a": }', ALL, "a value is missing"),
        ("{a: 1}", ALL, "a string is missing"),
        ('{"a": "\\x"}', ALL, "a string has a wrong escape"),
        ('{"a": 01}', ALL, "a number is wrong"),
        ('{"a": 1-2}', ALL, "a number is wrong"),
        ('{"a": NaN}', ALL, "a value is missing"),
        ('{"a": "b', ALL, "a string is missing or does not end"),
        ('{"a": 1} x', ALL, "something follows the end"),
        ("{} /* x", ALL, "a comment that does not end"),
        ("", ALL, "a value is missing"),
        ("[" * 100_000, ALL, "nested too deeply"),
        ('{"mcpServers": {}, "mcpServers": {"intercom": {"command": "/opt/bin/x"}}}', ALL, "a name stands in it twice"),
    ],
)
def test_what_the_host_could_not_read_is_refused(text: str, dialect: Dialect, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        take_out(text, SERVER, dialect, lambda path: False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["a", "b", "mcpServers", "hooks"]), JSON, max_size=4).map(
    lambda found: {
        key: value if isinstance(value, dict) or key in "ab" else {"x": value} for key, value in found.items()
    }
)


@settings(deadline=None)
@given(DOCUMENTS, st.sampled_from([None, 1, 2, 3, "\t"]), st.booleans())
def test_any_document_comes_back(document: dict[str, Any], indent: int | str | None, is_ascii: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    edited = put(text, SERVER, Dialect())
    expected = {**document, "mcpServers": {**document.get("mcpServers", {}), "intercom": VALUE}}
    assert json.loads(edited) == expected
    assert take_out(edited, SERVER, Dialect(), lambda path: lookup(text, path, Dialect())) == text
