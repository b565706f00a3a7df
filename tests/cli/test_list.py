from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from intercom.cli.list import rows_of, until_all_are_back
from intercom.client.views import SessionView
from intercom.limits import COMING_BACK_MS, CONTEXT_FRESH_MS
from intercom.paths import Paths
from tests.support.commands import INTERCOM, Shell
from tests.support.processes import stop
from tests.support.raw import PATIENCE_S
from tests.support.terminals import shown

EVIL = "evil\x1b]52;c;Zm9v\x07\n\u202e\u200b"


def test_nobody_is_here_and_a_broker_was_started(shell: Shell) -> None:
    result = shell.run("list")
    assert (result.status, result.text, result.errors) == (0, "nobody is here\n", "")
    assert shell.broker_pid() > 1


def test_the_first_call_prints_one_document_although_it_started_a_broker(shell: Shell) -> None:
    """F118."""
    result = shell.run("list", "--json")
    assert result.document == {"ok": True, "sessions": [], "stages": [], "possibleStages": []}
    assert result.status == 0


def test_sessions_are_rows_with_a_usable_id(shell: Shell) -> None:
    shell.listen("worker")
    head, row = shell.run("list").text.splitlines()
    assert head.split() == ["NAME", "ID", "STATUS", "SINCE", "PID", "MODEL", "GROUPS", "DIRECTORY"]
    [session] = shell.run("list", "--json").document["sessions"]
    name, short, status, _, seconds, pid, *rest = row.split()
    assert (name, short, status, seconds) == ("worker", session["id"][:8], "-", "s")
    assert int(pid) == session["pid"] == session["peer"]["pid"]
    assert rest == ["intercom", "listen", "default", str(shell.cwd), "(here)"]
    assert shell.run("send", session["id"][:8], "--as", "planner", "hello").status == 0


def test_idle_and_busy_and_since_when(shell: Shell) -> None:
    """A status and its time are the session's claim: they stand there as it told them, whatever they are."""
    shell.serve()
    with shell.connect() as idle, shell.connect() as odd:
        idle.register("idle one", session={"status": "idle", "lastActivity": time.time() * 1000 - 7_530_000})
        odd.register("odd one", session={"status": "busy: x", "lastActivity": time.time() * 1000 + 1e9})
        head, *rows = shell.run("list").text.splitlines()
        cells = [re.split(" {2,}", row) for row in (head, *rows)]
        assert [cell[2:4] for cell in cells] == [["STATUS", "SINCE"], ["idle", "2 h 5 min"], ["busy: x", "0 s"]]
        idle.send({"type": "presence", "requestId": "p", "status": "busy"})
        idle.expect("presence_ack")
        assert re.search(r"idle one .* busy +0 s", shell.run("list").text)


def test_only_the_group_that_was_named_is_shown(shell: Shell) -> None:
    shell.listen("worker", "--group", "alpha")
    assert shell.run("list").text == "nobody is here\n"
    assert "worker" in shell.run("list", "--group", "alpha").text
    assert [each["name"] for each in shell.run("list", "--group", "alpha", "--json").document["sessions"]] == ["worker"]


def test_listing_is_not_seen_by_those_who_are_listed(shell: Shell) -> None:
    """Design section 7, Identity of a command: ``list`` connects as control."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("peer")
        shell.run("list", "--as", "me")
        peer.send({"type": "health", "requestId": "h"})
        assert peer.receive()["type"] == "health"


def test_what_peers_write_reaches_a_terminal_only_spelled_out(shell: Shell) -> None:
    """F110: one row per session, no raw ESC; the JSON has the exact text."""
    shell.serve()
    with shell.connect() as peer:
        peer.register(EVIL, session={"cwd": "/\x1b[2J", "status": "a\rb" + "\u0301" * 4_000})
        result = shell.run("list")
        assert len(result.text.splitlines()) == 2
        assert not {"\x1b", "\r", "\x07", "\u202e", "\u200b"} & set(result.text)
        assert "evil\\x1b]52;c;Zm9v\\x07\\n\\u202e\\u200b" in result.text
        [session] = shell.run("list", "--json").document["sessions"]
        assert session["name"] == EVIL


def test_any_name_can_be_shown_by_any_stream(shell: Shell) -> None:
    """F117: never a traceback because of a character, never a colour on a pipe."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("日本🙂")
        for extra in (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"PYTHONIOENCODING": "ascii"},
            {"PYTHONIOENCODING": "cp1252", "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        ):
            result = shell.run_apart("list", env=extra)
            assert (result.status, result.errors) == (0, "")
            assert b"\x1b" not in result.out
            assert b"\\u65e5\\u672c\\U0001f642" in result.out
            assert shell.run_apart("list", "--json", env=extra).document["sessions"][0]["name"] == "日本🙂"


def test_the_call_that_starts_the_broker_returns_at_once(shell: Shell) -> None:
    """F14: the broker holds neither the caller's pipes nor any other descriptor of its."""
    script = f"out=$({INTERCOM[0]} -m intercom list 2>&1); echo \"$out\"; printf 'end of nine' >&9"
    done = subprocess.run(
        ["sh", "-c", f"({script}) 9>&1 | cat"],
        capture_output=True,
        text=True,
        cwd=shell.cwd,
        env=shell.environment(),
        timeout=20,
        check=True,
    )
    assert done.stdout == "nobody is here\nend of nine"
    assert shell.broker_pid() > 1


def test_the_broker_survives_the_terminal_it_was_started_from(shell: Shell) -> None:
    """F15: signals to the launcher's group do not reach it."""
    launcher = shell.start("listen", "--json", start_new_session=True)
    launcher.event("listening")
    broker = shell.broker_pid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.killpg(launcher.process.pid, number)
    launcher.finish()
    assert shell.broker_pid() == broker


def test_a_broker_that_is_stopped_is_busy_and_not_replaced(shell: Shell) -> None:
    """F6: a silent broker is not "no broker"; nothing is unlinked or started."""
    shell.serve()
    broker = shell.broker_pid()
    stop(broker)
    try:
        result = shell.run("list", "--json", "--timeout", "0.5")
        assert (result.status, result.document["code"]) == (5, "busy")
    finally:
        os.kill(broker, signal.SIGCONT)
    assert shell.run("list").status == 0
    assert shell.broker_pid() == broker


def test_a_home_that_cannot_be_one(shell: Shell) -> None:
    result = shell.run("list", "--home", "/dev/null/x", "--json")
    assert (result.status, result.document["code"]) == (7, "home")
    result = shell.run("list", "--home", "/dev/null/x")
    assert result.status == 7
    assert result.out == b""
    assert result.errors.startswith("intercom: ")
    assert result.errors.count("\n") == 1


def test_what_the_kernel_says_stands_beside_a_claim(shell: Shell) -> None:
    """Design section 7, claimed pids; only sessions of the same directory are marked."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("host", session={"pid": 7, "cwd": "/elsewhere", "status": "busy"})
        _, row = shell.run("list").text.splitlines()
    assert f" {os.getpid()} (says 7) " in row
    assert " busy " in row
    assert row.endswith(" /elsewhere")


def test_how_long_a_session_says_the_same(shell: Shell) -> None:
    view = SessionView(
        id="0f0f0f0f-0000-4000-8000-000000000001",
        name=None,
        cwd="/x",
        model="",
        pid=5,
        peer_pid=None,
        status=None,
        group="a",
        groups=("a", "b"),
        started_at=0,
        last_activity=1_000,
        raw={},
    )
    [row] = rows_of([view], 1_000 + 65_000, "/x")
    assert row == ("-", "0f0f0f0f", "-", "1 min 5 s", "says 5", "-", "a,b", "/x (here)")
    rows = rows_of([view, replace(view, id="1f", raw={"node": "studio"})], 1_000, "/x", "laptop")
    assert [row[-1] for row in rows] == ["laptop:/x (here)", "studio:/x"]
    [row] = rows_of([replace(view, unconfirmed_since=1_000)], 301_000, "/x")
    assert row[2] == "confirms nothing for 5 min 0 s", "F81"
    [row] = rows_of([replace(view, status="busy", state="reconnecting", state_since=61_000)], 66_000, "/x")
    assert row[2:4] == ("away (busy)", "5 s")


def test_how_soon_a_message_is_seen(shell: Shell) -> None:
    """F135; protocol 6.4: shown where a session declares it."""
    shell.serve()
    with shell.connect() as peer, shell.connect() as other:
        peer.register("agent", session={"push": "idle"})
        other.register("plain")
        head, *rows = shell.run("list").text.splitlines()
        assert head.split() == ["NAME", "ID", "STATUS", "SINCE", "SEES", "PID", "MODEL", "GROUPS", "DIRECTORY"]
        cells = {row.split()[0]: re.split(r" {2,}", row) for row in rows}
        assert cells["agent"][4] == "when idle"
        assert cells["plain"][4] == "-"
        pushes = {view["name"]: view.get("push") for view in shell.run("list", "--json").document["sessions"]}
        assert pushes == {"agent": "idle", "plain": None}


def test_by_what_a_message_is_shown(shell: Shell) -> None:
    """Issue: says in `list` which way is in use; protocol 15.5; F110: the word is a peer's."""
    shell.serve()
    with shell.connect() as one, shell.connect() as two:
        one.register("agent", session={"push": "now", "pushWay": "monitor"})
        two.register("odd", session={"push": "pull", "pushWay": "\x1b[2Jhooks"})
        cells = {row.split()[0]: re.split(r" {2,}", row) for row in shell.run("list").text.splitlines()}
        assert cells["agent"][4] == "at once (monitor)"
        assert cells["odd"][4].startswith("when it looks (")
        assert "\x1b" not in cells["odd"][4]
        ways = {view["name"]: view["pushWay"] for view in shell.run("list", "--json").document["sessions"]}
        assert ways == {"agent": "monitor", "odd": "\x1b[2Jhooks"}


@pytest.mark.parametrize(
    ("told", "shown_as"),
    [
        ({"contextPercent": 12.4, "contextTokens": 7}, "- (context 12 % full)"),
        ({"contextTokens": 50_000, "contextWindow": 200_000}, "- (context 25 % full)"),
        ({"contextTokens": 50_000}, "- (context 50000 tokens)"),
        ({"contextTokens": "many", "contextPercent": True, "contextWindow": -1}, "-"),
        ({}, "-"),
    ],
)
@pytest.mark.parametrize("age_ms", [0, CONTEXT_FRESH_MS + 1])
def test_how_full_a_context_is_is_shown_while_it_is_fresh(told: dict[str, Any], shown_as: str, age_ms: int) -> None:
    """Protocol 15.4: the pi-intercom client tells it; what is old says nothing any more."""
    now = 10_000_000
    raw = {**told, "contextAt": now - age_ms}
    view = SessionView(
        id="1a2b3c4d",
        name="pi",
        cwd="/p",
        model="m",
        pid=1,
        peer_pid=1,
        status=None,
        group="default",
        groups=("default",),
        started_at=0,
        last_activity=0,
        raw=raw,
    )
    [row] = rows_of([view], now, "/")
    assert row[2] == ("-" if age_ms else shown_as)


def test_who_lost_the_connection_is_away(shell: Shell) -> None:
    """FE 1.2: listed while it may come back, and since when it is away; the document is the broker's own."""
    shell.serve()
    with shell.connect() as peer:
        asked = {"features": ["push.receipts", "session.lifecycle"], "clientProtocolVersion": "1.0", "kind": "custom"}
        peer.register("worker", session={"status": "busy"}, acknowledgesReceipt=True, **asked)
    result = shell.run("list")
    away = re.compile(r"^worker +[0-9a-f]+ +away \(busy\) +0 s ", re.MULTILINE)
    deadline = time.monotonic() + PATIENCE_S
    while not away.search(result.text):
        assert time.monotonic() < deadline, result.text
        result = shell.run("list")
    [session] = shell.run("list", "--json").document["sessions"]
    assert (session["state"], session["status"]) == ("reconnecting", "busy")
    assert shell.run("send", "worker", "hello", "--as", "planner", "--json").document["state"] == "queued"


def test_the_groups_that_were_joined_are_those_that_are_shown(shell: Shell) -> None:
    shell.listen("worker", "--group", "alpha")
    assert shell.run("join", "alpha", "--as", "planner").status == 0
    assert "worker" in shell.run("list", "--as", "planner").text
    assert shell.run("list", "--as", "planner", "--group", "default").text == "nobody is here\n"
    assert shell.run("list").text == "nobody is here\n"


def test_sessions_on_their_way_back_to_a_new_broker_are_listed(shell: Shell) -> None:
    """The broker was killed; a client that comes back a little later than the command is not overlooked."""
    shell.listen("worker")
    os.utime(shell.home / "intercom.key", (0, 0))
    os.kill(shell.broker_pid(), signal.SIGKILL)
    assert "worker" in shell.run("list").text


def test_only_a_young_broker_of_an_old_home_is_waited_for(home: Path) -> None:
    paths = Paths(home)
    home.mkdir(parents=True, exist_ok=True)
    assert until_all_are_back(paths) == 0
    now = time.time()
    for name, age in (("intercom.key", 10), ("broker.pid", 0)):
        (home / name).touch()
        os.utime(home / name, (now - age, now - age))
    assert 0 < until_all_are_back(paths) <= COMING_BACK_MS / 1000
    os.utime(home / "intercom.key", (now - 1, now - 1))
    assert until_all_are_back(paths) == 0
    os.utime(home / "intercom.key", (0, 0))
    os.utime(home / "broker.pid", (now - 2, now - 2))
    assert until_all_are_back(paths) == 0


def test_a_terminal_shows_one_line_a_session_that_can_be_copied(shell: Shell) -> None:
    """F46: names and ids stay in one piece, whatever the width, with colours and without."""
    names = ("backend-worker-1", "reviewer", "planner")
    shell.serve()
    with ExitStack() as peers:
        ids = {}
        for name in names:
            about = {"cwd": f"/home/somebody/projects/{name}/checkout", "model": "provider/some-model-4.5"}
            peer = peers.enter_context(shell.connect())
            ids[name] = peer.register(name, session={**about, "pid": os.getpid()})["sessionId"]
        for columns, heads in {
            60: ["NAME", "ID", "SINCE", "PID", "DIRECTORY"],
            80: ["NAME", "ID", "STATUS", "SINCE", "PID", "MODEL", "DIRECTORY"],
        }.items():
            for extra in ({}, {"NO_COLOR": "1"}):
                env = {**shell.environment(extra), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
                lines = shown((*INTERCOM, "list"), columns=columns, cwd=shell.cwd, env=env)
                assert all(len(line) <= columns for line in lines), lines
                assert lines[0].split() == heads
                rows = {line.split()[0]: line.split() for line in lines}
                for name in names:
                    assert rows[name][1] == ids[name][:8]
                    assert str(os.getpid()) in rows[name]
                    assert rows[name][-1].endswith("checkout")
