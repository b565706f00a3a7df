"""Run the plugin for OpenCode under node, with an adapter and a host that do what a test says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.hosts.opencode import PLUGIN_MARK, plugin
from tests.support.commands import Running, strict
from tests.support.fake_adapter import FakeAdapter
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

HOST = """
import { createInterface } from "node:readline"
import { Intercom } from "./plugin.mjs"
const say = (document) => process.stdout.write(JSON.stringify(document) + "\\n")
let works = true
const promptAsync = async (request) => {
  say({ prompt: request })
  return works ? {} : { error: "no" }
}
const client = { session: { promptAsync } }
const hooks = await Intercom({ client })
say({ hooks: Object.keys(hooks), pid: process.pid })
for await (const line of createInterface({ input: process.stdin })) {
  const { name, input, fails, args } = JSON.parse(line)
  if (fails !== undefined) { works = !fails; continue }
  const output = { system: [], env: {}, ...(args ? { args } : {}) }
  await hooks[name](input, output)
  say({ done: name, output })
}
"""
SESSION = "ses-1"
BELL = {"ok": True, "text": "a message", "messages": 1, "questions": 0, "batch": "b1"}


class Host(Running):
    """Be a host with the plugin in it."""

    def call(self, name: str, value: Any, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"name": name, "input": value, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def fail(self, fails: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"fails": fails}).encode() + b"\n")
        self.process.stdin.flush()

    def said(self) -> dict[str, Any]:
        document: dict[str, Any] = strict(self.line(2 * PATIENCE_S))
        return document


@pytest.fixture
def host(home: Path, tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "plugin.mjs").write_text(plugin(str(home)))
    (tmp_path / "host.mjs").write_text(HOST)
    process = subprocess.Popen(
        ["node", str(tmp_path / "host.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    running = Host(process)
    started = running.said()
    assert started["pid"] == process.pid
    assert {"event", "chat.message", "experimental.chat.system.transform", "shell.env"} <= set(started["hooks"])
    yield running
    running.close()


def prompted(host: Host) -> str:
    request = host.said()["prompt"]
    assert request["path"] == {"id": SESSION}
    [part] = request["body"]["parts"]
    assert part["type"] == "text"
    text: str = part["text"]
    return text


def answers(request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "bell":
        return BELL
    return {"ok": True, "text": "you are web-1" if request["op"] == "hello" else ""}


def asked(adapter: FakeAdapter, op: str) -> dict[str, Any]:
    return next(request for request in adapter.requests if request["op"] == op)


def test_it_is_a_file_of_ours() -> None:
    assert plugin(None).startswith(PLUGIN_MARK)
    assert "const HOME = null\n" in plugin(None)
    assert 'const HOME = "/a \\"b"\n' in plugin('/a "b')


def test_without_an_adapter_it_does_nothing(host: Host) -> None:
    host.call("chat.message", {"sessionID": SESSION})
    assert host.said() == {"done": "chat.message", "output": {"system": [], "env": {}}}
    host.call("experimental.chat.system.transform", {"sessionID": SESSION})
    assert host.said()["output"]["system"] == []
    host.call("shell.env", {})
    assert host.said()["output"]["env"] == {}


def test_what_comes_is_shown_in_the_session_and_then_confirmed(host: Host, home: Path) -> None:
    with FakeAdapter(home, "opencode", answers, host_pid=host.process.pid) as adapter:
        host.call("chat.message", {"sessionID": SESSION})
        documents = [host.said(), host.said()]
        [shown] = [document for document in documents if "prompt" in document]
        assert shown["prompt"]["body"]["parts"] == [{"type": "text", "text": "a message"}]
        assert shown["prompt"]["path"] == {"id": SESSION}
        assert adapter.wait_for("done") == {"op": "done", "batch": "b1"}
        assert asked(adapter, "bell") == {"op": "bell", "kind": "plugin", "carry": True, "session": SESSION}
        assert asked(adapter, "hello")["session"] == SESSION


def test_what_the_host_did_not_take_is_not_confirmed_and_asked_for_again(host: Host, home: Path) -> None:
    with FakeAdapter(home, "opencode", answers, host_pid=host.process.pid) as adapter:
        host.fail(True)
        host.call("chat.message", {"sessionID": SESSION})
        documents = [host.said(), host.said()]
        assert sum("prompt" in document for document in documents) == 1
        host.fail(False)
        assert prompted(host) == "a message"
        adapter.wait_for("done")
        assert adapter.asked.count("bell") >= 2


def test_the_model_is_told_who_it_is_and_the_shell_acts_as_the_session(host: Host, home: Path) -> None:
    with FakeAdapter(home, "opencode", lambda _: {"ok": True, "text": "you are web-1"}, host_pid=host.process.pid):
        host.call("experimental.chat.system.transform", {"sessionID": SESSION})
        assert host.said()["output"]["system"] == ["you are web-1"]
        host.call("shell.env", {})
        assert host.said()["output"]["env"] == {"INTERCOM_NAME": "host-1"}


def test_a_child_session_gets_nothing(host: Host, home: Path) -> None:
    with FakeAdapter(home, "opencode", answers, host_pid=host.process.pid) as adapter:
        created = {"type": "session.created", "properties": {"info": {"id": "child", "parentID": SESSION}}}
        host.call("event", {"event": created})
        assert host.said()["done"] == "event"
        host.call("chat.message", {"sessionID": "child"})
        assert host.said()["done"] == "chat.message"
        host.call("experimental.chat.system.transform", {"sessionID": "child"})
        assert host.said()["output"]["system"] == []
        assert adapter.requests == []


@pytest.mark.parametrize("answer", [None, b"no json\n", {"ok": False}, {"text": 7}])
def test_an_adapter_that_does_not_answer_well_costs_nothing(host: Host, home: Path, answer: Any) -> None:
    with FakeAdapter(home, "opencode", lambda _: answer, host_pid=host.process.pid):
        host.call("experimental.chat.system.transform", {"sessionID": SESSION})
        assert [text for text in host.said()["output"]["system"] if isinstance(text, str)] == []


def test_a_call_of_a_subagent_says_so(host: Host, home: Path) -> None:
    """Issue: a subagent has an identity of its own where the host makes that possible; its end is told, too."""
    with FakeAdapter(home, "opencode", answers, host_pid=host.process.pid) as adapter:
        created = {"type": "session.created", "properties": {"info": {"id": "child", "parentID": SESSION}}}
        host.call("event", {"event": created})
        assert host.said()["done"] == "event"
        for session, tool, expected in (
            ("child", "intercom_status", {"doing": "x", "_subagent": "child"}),
            (SESSION, "intercom_status", {"doing": "x"}),
            ("child", "bash", {"doing": "x"}),
        ):
            host.call("tool.execute.before", {"tool": tool, "sessionID": session, "callID": "c"}, args={"doing": "x"})
            assert host.said()["output"]["args"] == expected
        host.call("event", {"event": {"type": "session.idle", "properties": {"sessionID": "child"}}})
        assert host.said()["done"] == "event"
        assert asked(adapter, "agent") == {"op": "agent", "what": "stop", "agent": "child"}
