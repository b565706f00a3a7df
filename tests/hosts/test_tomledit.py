"""Put a table into TOML texts and take it out: nothing else may change."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from intercom.hosts.jsontext import Malformed
from intercom.hosts.tomledit import put, table_at, take_out

PATH = ("mcp_servers", "intercom")
TABLE: dict[str, Any] = {
    "command": "/opt/a \\ b/python",
    "args": ["-P", "-m", "intercom", "mcp"],
    "tool_timeout_sec": 300,
    "env": {"A B": "c"},
    "on": True,
}
TEXTS = {
    "empty": "",
    "keys only": 'model = "x"\n',
    "comments": '# mine\nmodel = "x"   # odd    spacing\n\n\n[tools]\nweb = true # yes\n# end\n',
    "other servers": '[mcp_servers.other]\ncommand = "y"\nargs = [\n  "a", # b\n  "[mcp_servers.intercom]",\n]\n',
    "blank lines at the end": "a = 1\n\n\n",
    "headers in strings": 'a = """\n[mcp_servers.intercom]\n\\""" x"""\nb = \'\'\'\n[mcp_servers.intercom]\n\'\'\'\n',
    "arrays of tables": "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = 'command'\n",
    "quoted names": '[mcp_servers."a.b"]\nx = 1\n[ "mcp_servers" . c ] # spaced\nx = 2\n',
    "crlf": 'a = 1\r\n[b]\r\nc = "d"\r\n',
    "bom": "\ufeffa = 1\n",
    "dotted keys": "[mcp_servers]\nother.command = 'y'\n",
    "an empty parent": "[mcp_servers]\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_was_put_in_can_be_taken_out_byte_for_byte(text: str) -> None:
    edited = put(text, PATH, TABLE)
    assert edited.startswith(text)
    assert table_at(edited, PATH) == TABLE
    assert put(edited, PATH, TABLE) == edited
    assert "\r\n" not in text or edited.count("\n") == edited.count("\r\n")
    assert take_out(edited, PATH) == text
    assert take_out(text, PATH) == text


def test_how_it_looks() -> None:
    assert put("a = 1", PATH, {"command": "x", "args": ["y"]}) == (
        'a = 1\n\n[mcp_servers.intercom]\ncommand = "x"\nargs = ["y"]\n'
    )


def test_another_version_is_replaced_and_what_the_host_added_below_goes_with_it() -> None:
    text = put("a = 1\n", PATH, {"command": "old"})
    text += '\n[mcp_servers.intercom.tools.send]\napproval_mode = "approve"\n\n[other]\nb = 2\n'
    assert take_out(text, PATH) == "a = 1\n\n[other]\nb = 2\n"
    edited = put(text, PATH, TABLE)
    assert tomllib.loads(edited) == {"a": 1, "other": {"b": 2}, "mcp_servers": {"intercom": TABLE}}


def test_what_was_written_behind_it_stays() -> None:
    edited = put("a = 1\n", PATH, TABLE) + "\n[[hooks.Stop]]\nb = 1\n"
    assert take_out(edited, PATH) == "a = 1\n\n[[hooks.Stop]]\nb = 1\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('mcp_servers = { other = { command = "y" } }\n', "cannot be written as a table of its own"),
        ("mcp_servers = 1\n", "mcp_servers is not a table"),
        ("a = \n", "line 1"),
        ("a = 1\na = 2\n", "Cannot overwrite"),
        ("a = " + "[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_done_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        put(text, PATH, TABLE)


def test_a_table_written_inline_cannot_be_taken_out() -> None:
    text = 'mcp_servers.intercom = { command = "x" }\n'
    with pytest.raises(Malformed, match="written in a way that cannot be edited"):
        take_out(text, PATH)
