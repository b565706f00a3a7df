"""Try one thing after the other with a real host: is it installed, told, reached, asked, and left as it was?

Each trial raises ``Failed`` with what was seen instead, or returns a sentence about what was seen.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from intercom.client import blocking
from scripts.hosts.lab import Lab

LONGEST_S = 240
"""How long one run of a host may take."""
PATIENT_S = 100
"""How long a tool waits for an answer or a question: within what every host allows."""
SHORTLY_S = 15
"""How long a tool waits for what may have been shown already by another way."""
SETTLE_S = 8
"""How long a screen may take to come back after a question; one with text in its prompt may not look ready."""
WOKEN_S = 120
"""How long a session may take to be woken where far more runs than there are processors."""
PARENT = "PARENT-TASK"
CHILD = "CHILD-TASK"
_DELEGATED = {"description": "look", "prompt": f"{CHILD}: please look"}
SUBAGENTS: dict[str, dict[str, Any]] = {
    "claude": {
        "tool": "Agent",
        "args": {**_DELEGATED, "subagent_type": "general-purpose", "run_in_background": False},
    },
    "codex": {"tool": "multi_agent_v1__spawn_agent", "args": {"message": f"{CHILD}: please look"}},
    "opencode": {"tool": "task", "args": {**_DELEGATED, "subagent_type": "general"}},
}
"""How a model begins a subagent in each host that has them."""
AFTER_SUBAGENT: dict[str, list[dict[str, Any]]] = {
    "codex": [
        {
            "tool": "multi_agent_v1__wait_agent",
            "args": {"targets": [{"find": r"agent_id\\?\": ?\\?\"([0-9a-f-]+)"}], "timeout_ms": 60_000},
        }
    ]
}
"""What it does then, where the subagent goes on beside it."""
BUSY_STEPS = 5
"""How many tools a busy model runs at most until the message reaches it; it stops when it does."""
THINKING_S = 6
"""How long the model thinks while a message comes."""
_RECEIVE: dict[str, Any] = {"tool": "intercom/receive", "args": {"wait_s": PATIENT_S}}
TOP = Path(__file__).resolve().parents[2]
PUSHED = "PUSHED-MESSAGE"
WAIT = "please wait for a message"
SEEN = "I have seen it."
SETTINGS = {
    "claude": (".claude/settings.json", '{\n    "includeCoAuthoredBy": false\n}\n'),
    "codex": (".codex/hooks.json", '{\n   "hooks": {}\n}\n'),
    "opencode": (".config/opencode/opencode.jsonc", '// mine\n{\n  "share": "disabled", // no\n}\n'),
    "gemini": (".gemini/settings.json", '{\n  "ui": {"hideTips": true}\n}\n'),
}
"""A file of each host as a person may have it, below the home."""
WARM_UP: dict[str, list[Any]] = {"codex": [{"tool": "exec_command", "args": {"cmd": "sleep 5"}}]}
"""What a model does first in a host that does not wait for its MCP servers."""


class Failed(Exception):
    """Say what was seen instead."""


class Place:
    """Be a throw-away home for one host, beside those of the others, all with one broker."""

    def __init__(self, lab: Lab, top: Path, host: str) -> None:
        self.lab = lab
        self.host = host
        self.home = top / host
        self.broker = top / "ic"
        self.enter("work")

    def enter(self, what: str) -> None:
        """Go on in a folder of its own: sessions are named after it, and none of a trial is taken for one before."""
        self.project = self.home / f"{self.host}{what}"
        self.project.mkdir(parents=True, exist_ok=True)

    @property
    def warm_up(self) -> list[Any]:
        """Return what a model does first here."""
        return WARM_UP.get(self.host, [])

    def intercom(self, *words: str) -> dict[str, Any]:
        """Run a command in the home of the host, and return its document."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(TOP)}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "intercom", *words, "--json"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"intercom {' '.join(words)}: {done.stdout}{done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def install(self) -> dict[str, Any]:
        """Enter intercom into the host."""
        return self.intercom("install", self.host, "--approve", "--home", str(self.broker))

    def run(self, steps: list[Any]) -> Any:
        """Return a run of the host."""
        return self.lab.run(self.host, self.home, self.project, steps)

    @contextmanager
    def peer(self, name: str) -> Iterator[blocking.Session]:
        """Be another session at the same broker."""
        with blocking.connect(name, home=self.broker) as session:
            yield session

    def wait_for_session(self, session: blocking.Session) -> str:
        """Return the id of the session of the host, once it is there."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            for view in session.list():
                if (view.name or "").startswith(self.project.name):
                    return view.id
            time.sleep(0.2)
        raise Failed("no session of the host appeared")


def start(place: Place) -> str:
    """The model is told who it is before it does anything, and has the tools."""
    place.enter("start")
    with place.run([*place.warm_up, {"tool": "intercom/status", "args": {}}, {"text": "ok"}]) as lab:
        document = lab.document(lab.run("who are you?", LONGEST_S))
        shown = _shown(lab)
    _check(document["exit"] == 0 and not document["problems"], document)
    _check(place.project.name in str(document["tool_calls"][-1]["result"]), document)
    named = (
        f"{place.project.name}-",
        "reach this session as ",
    )  # the second by a hook that was there before the adapter
    told = [line for line in shown.splitlines() if "intercom" in line and any(name in line for name in named)]
    _check(bool(told), f"nothing told the session who it is:\n{shown[-3000:]}")
    left = [process for process in document["left_running"] if " serve " not in process["command"]]
    _check(not left, f"left running: {left}")
    return f"told {told[0].strip()[:100]!r}"


def subagent(place: Place) -> str:
    """A subagent is a session of its own, beside the one that began it."""
    place.enter("subs")
    ours: dict[str, Any] = {"when": PARENT}
    theirs: dict[str, Any] = {"when": CHILD, "unless": [PARENT]}
    steps = [
        *({**step, **ours} for step in place.warm_up),
        {"tool": "intercom/status", "args": {"doing": "parent"}, **ours},
        {**SUBAGENTS[place.host], **ours},
        {"tool": "intercom/status", "args": {"doing": "child"}, **theirs},
        {"text": "CHILD-DONE", **theirs},
        *({**step, **ours} for step in AFTER_SUBAGENT.get(place.host, ())),
        {"text": "ok", **ours},
    ]
    with place.run(steps) as lab:
        document = lab.document(lab.run(f"{PARENT}: please delegate", LONGEST_S))
    _check(document["steps_left"] == 0 and not document["problems"], document)
    names = [
        found[1]
        for call in document["tool_calls"]
        if (found := re.search(r"You are (\S+) \(id", str(call["result"]))) is not None
    ]
    _check(len(set(names)) == 2, {"names": names, "tool_calls": document["tool_calls"]})
    return f"parent {names[0]}, subagent {names[1]}"


def rewake(place: Place) -> str:
    """Without monitor and inbox, the hook in the background wakes an idle session of Claude Code."""
    folder = place.home / ".claude" / "skills" / "intercom"
    files = [folder / ".claude-plugin" / "plugin.json", folder / ".mcp.json"]
    before = [file.read_bytes() for file in files]
    plugin, server = (json.loads(content) for content in before)
    del plugin["experimental"]
    server["mcpServers"]["intercom"]["args"].append("--no-inbox")
    try:
        for file, content in zip(files, (plugin, server), strict=True):
            file.write_text(json.dumps(content))
        return idle(place, "rewake")
    finally:
        for file, kept in zip(files, before, strict=True):
            file.write_bytes(kept)


def busy(place: Place) -> str:
    """A message reaches a model that is at work."""
    place.enter("busy")
    steps = [
        *place.warm_up,
        {"tool": "intercom/status", "args": {}},
        {"text": SEEN, "when": PUSHED},
        *({"tool": "intercom/list", "args": {}, "delay": THINKING_S} for _ in range(BUSY_STEPS)),
        {"text": "I give up."},
    ]
    with place.run(steps) as lab:
        told = _meanwhile(lambda: _send(place))
        document = lab.document(lab.run("please work", LONGEST_S))
        state = told()
        how = _where(lab, PUSHED)
    _check(how != "nothing", {"send": state, **document})
    return f"{state}; shown as {how}"


def idle(place: Place, folder: str = "idle") -> str:
    """A message wakes a session in which nobody does anything."""
    place.enter(folder)
    steps = [{"text": "I wait."}, {"text": SEEN, "when": PUSHED}]
    with place.run(steps) as lab, WAITING[place.host](place, lab) as waiting:

        def waits() -> bool:
            waiting.attend()
            return bool(lab.model.script.left == 1 and lab.quiet())

        if not _until(waits):
            raise Failed(f"it never waited: {waiting.seen()}")
        state = _send(place)
        if not _until(lambda: bool(lab.model.script.left == 0), WOKEN_S):
            raise Failed(f"{state}, and the model was not woken: {waiting.seen()}")
        return f"{state}; shown as {_where(lab, PUSHED)}"


def each_other(place: Place, other: Place) -> str:
    """A session of one host asks one of another, which answers and asks back."""
    place.enter("asks")
    other.enter("asked")
    one, two = place.project.name, other.project.name
    asking = [
        *place.warm_up,
        {"tool": "intercom/list", "args": {}},
        {
            "tool": "intercom/ask",
            "args": {"to": {"find": f"({two}-[0-9a-f]{{4}})"}, "text": "FIRST-QUESTION?", "wait_s": PATIENT_S},
        },
        {
            "tool": "intercom/receive",
            "args": {"wait_s": PATIENT_S},
            "when": "FIRST-ANSWER",
            "unless": "SECOND-QUESTION?",
        },
        {
            "tool": "intercom/reply",
            "args": {"question": {"find": "question ([0-9a-f]{8}) from"}, "text": "SECOND-ANSWER"},
            "when": "SECOND-QUESTION?",
        },
    ]
    answering = [
        *other.warm_up,
        {**_RECEIVE, "unless": "FIRST-QUESTION?"},
        {
            "tool": "intercom/reply",
            "args": {"question": {"find": "question ([0-9a-f]{8}) from"}, "text": "FIRST-ANSWER"},
            "when": "FIRST-QUESTION?",
        },
        {
            "tool": "intercom/ask",
            "args": {"to": {"find": f"({one}-[0-9a-f]{{4}})"}, "text": "SECOND-QUESTION?", "wait_s": PATIENT_S},
            "when": "FIRST-QUESTION?",
        },
    ]
    with other.run(answering) as second, place.run(asking) as first:
        answered = _meanwhile(lambda: second.document(second.run("please answer", 2 * LONGEST_S)))
        with place.peer("tester") as session:
            other.wait_for_session(session)
        document = first.document(first.run("please ask", 2 * LONGEST_S))
        counterpart = answered()
        are_answered = "FIRST-ANSWER" in _shown(first) and "SECOND-ANSWER" in _shown(second)
    _check(are_answered, {"asked": document["tool_calls"], "answered": counterpart["tool_calls"]})
    return f"{place.host} asked {other.host} and was asked back; both had their answers"


# --- how a host waits -----------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """Hold a session that waits: what it shows, and what answers questions it may ask meanwhile."""

    seen: Callable[[], str]
    attend: Callable[[], object]


@contextmanager
def _in_a_terminal(place: Place, lab: Any) -> Iterator[Waiting]:
    del place

    def attend() -> None:
        # a question about hooks may come after the prompt was on the screen, and takes what was typed
        screen = terminal.screen()
        if "t trust all" in screen:
            terminal.keys("t", "Escape")
        elif keys := lab.host.keys(screen):
            terminal.keys(*keys)
        else:
            return
        terminal.wait(lambda: lab.ready(terminal), SETTLE_S)
        if WAIT in terminal.screen():
            terminal.keys("Enter")
        else:
            terminal.type(WAIT)

    with lab.terminal() as terminal:
        if not terminal.wait(lambda: lab.ready(terminal), LONGEST_S):
            raise Failed(f"it never took a prompt: {terminal.screen()}")
        terminal.type(WAIT)
        yield Waiting(terminal.screen, attend)


@contextmanager
def _as_a_server(place: Place, lab: Any) -> Iterator[Waiting]:
    """OpenCode as a server: what its terminal talks to as well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (place.home / "serve.log").open("w+b")
    process = subprocess.Popen(
        [*lab.host.program(lab.installed), "serve", "--port", str(port)],
        cwd=place.project,
        env=lab.env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    url = f"http://127.0.0.1:{port}"

    def post(path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=LONGEST_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def said() -> str:
        return (place.home / "serve.log").read_text(errors="replace")

    try:
        if not _until(lambda: f"listening on {url}" in said()):
            raise Failed(f"the server did not listen: {said()}")
        session = post("/session", {})["id"]
        parts = [{"type": "text", "text": WAIT}]
        post(f"/session/{session}/prompt_async", {"parts": parts})
        yield Waiting(said, lambda: None)
    finally:
        process.terminate()
        process.wait(10)
        log.close()


WAITING = {"claude": _in_a_terminal, "codex": _in_a_terminal, "opencode": _as_a_server}
"""How a session of a host is kept waiting; the others have no way to be woken."""


# --- small things ---------------------------------------------------------------------------------------


def _send(place: Place) -> str:
    with place.peer("tester") as session:
        target = place.wait_for_session(session)
        return f"the send was {session.send(target, f'{PUSHED}: the build is green').state}"


def _meanwhile(do: Callable[[], Any]) -> Callable[[], Any]:
    """Begin something in a thread, and return what waits for its result."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(do())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(2 * LONGEST_S)
        if not results:
            raise Failed("it did not end in time")
        if isinstance(results[0], Exception):
            raise Failed(f"{results[0]!r}") from results[0]
        return results[0]

    return result


def _until(holds: Callable[[], bool], seconds: float = LONGEST_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.2)
    return holds()


def _shown(lab: Any) -> str:
    shown: str = lab.shown()
    return shown


def _where(lab: Any, mark: str) -> str:
    """Return the line that brought a text to the model, with the kind of message it stood in."""
    for request in lab.requests():
        for message in request["messages"]:
            if mark in message["text"] and request["agent"]:
                before, _, _ = message["text"].partition(mark)
                lines = [line for line in before.splitlines() if line.strip()][-2:]
                return f"{message['type']} {' | '.join(lines)[-160:]!r}"
    return "nothing"


def _check(holds: bool, story: Any) -> None:
    if not holds:
        if isinstance(story, dict):
            story = json.dumps({key: value for key, value in story.items() if key != "requests"}, indent=1)
        raise Failed(story)
