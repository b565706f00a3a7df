"""Let the editors of other programs' files, and the reader of ours, meet texts that nobody would write.

A file is either refused with a reason, and stays as it is, or edited so that everything else says what it said; what
was put in can be taken out again, and then the text says what it said at first.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from intercom.config import load_settings, settings_table
from intercom.errors import ConfigError
from intercom.hosts import jsonedit, jsontext, tomledit
from intercom.hosts.jsonedit import Entry, Taken
from intercom.hosts.jsontext import Dialect, Malformed
from intercom.paths import Paths
from tests.fuzz.chance import odd_value
from tests.fuzz.mutations import spoilt_bytes
from tests.fuzz.tally import Tally

TEXTS = 60
LONGEST_S = 1.0
JSON_TEXTS = (
    "",
    "{}",
    '{\n  "mcpServers": {\n    "other": {"command": "x"} // mine\n  },\n  "a": [1, 2,],\n}\n',
    '{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"other"}]}]}, "\\u0061": null}',
    '\ufeff{\r\n\t"mcpServers": {},\r\n\t/* text */ "hooks": {"Stop": []}\r\n}',
    '{"mcpServers": {"intercom": {"command": "intercom", "args": ["mcp"]}}, "mcpServers2": 1e5}',
)
TOML_TEXTS = (
    "",
    'model = "m"\n\n[mcp_servers.other]\ncommand = "x" # mine\nargs = [\n  "[mcp_servers.intercom]",\n]\n',
    'a = """\n[mcp_servers.intercom]\n"""\n[mcp_servers]\n',
    '[mcp_servers.intercom]\ncommand = "intercom"\n[mcp_servers.intercom.env]\nA = "b"\n[z]\ny = 1\n',
    "mcp_servers = { other = { command = 'x' } }\r\n",
    "[[mcp_servers]]\nname = 'x'\n",
)
SETTINGS = ('idle_ms = 1000\n[spawn.a]\ncommand = ["x"]\n', 'log_level = "info"\n', "")
DIALECTS = (Dialect(), Dialect(comments=True), Dialect(comments=True, trailing_commas=True, bom=True))
SERVER = {"command": "intercom", "args": ["mcp"]}
HOOK = {"hooks": [{"type": "command", "command": "intercom hook"}]}
ENTRIES = (
    Entry(("mcpServers", "intercom"), SERVER, lambda value: isinstance(value, dict) and value.get("args") == ["mcp"]),
    Entry(("hooks", "Stop"), HOOK, lambda value: "intercom" in json.dumps(value), is_item=True),
)
TOML_PATH = ("mcp_servers", "intercom")


def play(number: int) -> Tally:
    """Edit texts."""
    chance, tally = random.Random(number), Tally()
    with tempfile.TemporaryDirectory(prefix="ic-fuzz-") as place:
        paths = Paths(Path(place).resolve())
        for _ in range(TEXTS):
            for edit in (_edit_json, _edit_toml):
                begun = time.thread_time()
                text = edit(chance)
                tally.count(time.thread_time() - begun, text, LONGEST_S)
            begun = time.thread_time()
            content = _read_settings(chance, paths)
            tally.count(time.thread_time() - begun, content, LONGEST_S)
    return tally


def _spoilt(text: str, chance: random.Random) -> str:
    if chance.random() < 0.2:
        return text
    return spoilt_bytes(text.encode(), chance).decode(errors="replace")


def _edit_json(chance: random.Random) -> str:
    text, dialect, entry = _spoilt(chance.choice(JSON_TEXTS), chance), chance.choice(DIALECTS), chance.choice(ENTRIES)
    try:
        before = jsontext.parse(text, dialect).data
        edited = jsonedit.put(text, entry, dialect)
    except (Malformed, Taken) as error:
        assert str(error)
        return text
    assert jsonedit.holds(edited, entry, dialect), "what was put in is there"
    assert jsonedit.put(edited, entry, dialect) == edited, "putting it in again changes nothing"
    there = {path for length in (1, 2) if jsonedit.lookup(text, path := entry.path[:length], dialect)}
    try:
        restored = jsonedit.take_out(edited, entry, dialect, lambda path: path in there)
    except Malformed:
        return text
    after = jsontext.parse(restored, dialect).data
    assert _less(after, entry) == _less(before, entry), "everything else says what it said"
    return text


def _less(data: Any, entry: Entry) -> Any:
    """Return what a text says beside our entry, whatever was there of it before."""
    data = json.loads(json.dumps(data))
    above = data
    for key in entry.path[:-1]:
        above = above.get(key, {}) if isinstance(above, dict) else {}
    if isinstance(above, dict) and entry.path[-1] in above:
        last = above[entry.path[-1]]
        if not entry.is_item and entry.is_ours(last):
            del above[entry.path[-1]]
        elif entry.is_item and isinstance(last, list):
            above[entry.path[-1]] = [item for item in last if not entry.is_ours(item)]
    return data


def _edit_toml(chance: random.Random) -> str:
    text = _spoilt(chance.choice(TOML_TEXTS), chance)
    try:
        before = tomledit.parse(text)
        edited = tomledit.put(text, TOML_PATH, SERVER)
    except Malformed as error:
        assert str(error)
        return text
    assert tomledit.holds(edited, TOML_PATH, SERVER), "what was put in is there"
    assert tomledit.put(edited, TOML_PATH, SERVER) == edited, "putting it in again changes nothing"
    assert _without_server(tomledit.parse(edited)) == _without_server(before), "everything else says what it said"
    try:
        restored = tomledit.take_out(edited, TOML_PATH)
    except Malformed:
        return text
    assert _without_server(tomledit.parse(restored)) == _without_server(before)
    return text


def _without_server(data: dict[str, Any]) -> str:
    servers = data.get("mcp_servers")
    if isinstance(servers, dict):
        servers = {name: server for name, server in servers.items() if name != "intercom"}
        data = {name: value for name, value in data.items() if name != "mcp_servers"}
        data.update({"mcp_servers": servers} if servers else {})
    return repr(sorted(data.items()))  # what is not a number is equal to itself in a text


def _read_settings(chance: random.Random, paths: Paths) -> bytes:
    content = spoilt_bytes(chance.choice(SETTINGS).encode(), chance)
    if chance.random() < 0.3:
        name, value = chance.choice(list(settings_table())), odd_value(chance)
        content += f"\n{name} = {json.dumps(value)}\n".encode(errors="replace")
    paths.settings.write_bytes(content)
    environ = {}
    if chance.random() < 0.3:
        setting = settings_table()[chance.choice(list(settings_table()))]
        environ[setting.variable] = str(odd_value(chance)).replace("\0", "")[:200]
    try:
        settings = load_settings(paths, environ, {})
    except ConfigError as error:
        assert str(error)
    else:
        assert environ or tomllib.loads(content.decode()) is not None
        settings.limits()
    assert paths.settings.read_bytes() == content, "a settings file is only read"
    return content
