"""Hooks ask the adapter of their session: real adapters, and connections as hooks make them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from intercom.client import blocking
from intercom.client.adapters import AdapterRecord, Asking, note_session
from intercom.client.who import host_identity
from intercom.limits import STOP_REMINDERS, STOPS
from intercom.paths import Paths
from tests.support.adapters import RawHost, hook, record_of
from tests.support.brokers import POLL_S, BrokerProcess
from tests.support.raw import PATIENCE_S

Start = Callable[..., RawHost]
NOTHING = {"ok": True, "text": "", "messages": 0, "questions": 0, "left": 0}


def address_of(session: str, host: str = "claude") -> str:
    address = host_identity(host, session).address
    assert address is not None
    return address


def listening(record: AdapterRecord) -> bool:
    """An adapter whose door is open, whether it knows its session or not."""
    return True


def claude(raw: Start, broker: BrokerProcess, session: str = "s-1", **env: str) -> tuple[RawHost, AdapterRecord]:
    """Start an adapter as Claude Code does, in a session that its environment names."""
    host = raw("--host", "claude", env={"CLAUDE_CODE_SESSION_ID": session, "CLAUDE_PROJECT_DIR": "/src/web", **env})
    host.shake_hands("claude-code")
    return host, record_of(broker.home)


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(POLL_S)
    return found


def others(session: blocking.Session) -> dict[str | None, str | None]:
    """Return the names of the others with how soon they see a message."""
    return {view.name: view.raw.get("push") for view in session.list() if view.id != session.id}


def ways_of_others(session: blocking.Session) -> list[tuple[str | None, str | None]]:
    """Return how soon the others see a message, and by what."""
    return [(view.raw.get("push"), view.raw.get("pushWay")) for view in session.list() if view.id != session.id]


def test_hooks_adapter_and_commands_are_one_session(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 1.2; issue: one identity per host session."""
    host, record = claude(raw, broker)
    host.tool("status")
    [seat] = record.seats
    assert (record.host, record.host_pid, seat.session) == ("claude", os.getpid(), "s-1")
    assert seat.address == address_of("s-1")
    with hook(record) as door:
        hello = door.ask({"op": "hello", "session": "s-1", "source": "startup"})
    digits = address_of("s-1").removeprefix("host-")[:4]
    assert (hello["name"], hello["address"], hello["groups"]) == (f"web-{digits}", seat.address, ["default"])
    assert hello["name"] in hello["text"]
    assert hello["id"] in host.tool("status")


def test_messages_are_put_before_the_model_by_a_hook_and_count_when_it_says_so(
    raw: Start, broker: BrokerProcess
) -> None:
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob:
        bob.send(record.seats[0].name or "", "hello")
        with hook(record) as door:
            given = door.ask({"op": "collect", "session": "s-1", "event": "UserPromptSubmit"})
            assert (given["messages"], given["left"]) == (1, 0)
            assert "hello" in given["text"]
        with hook(record) as door:
            again = until(lambda: next((a for a in [door.ask({"op": "collect", "session": "s-1"})] if a["text"]), None))
            assert "hello" in again["text"]
            assert door.ask({"op": "done", "batch": again["batch"]}) == {"ok": True}
            assert door.ask({"op": "collect", "session": "s-1"}) == NOTHING
        until(lambda: {address.mailbox_count for address in bob.addresses()} == {0})
    assert host.tool("receive") == "No messages."


def test_a_hook_gets_as_much_as_it_has_room_for(raw: Start, broker: BrokerProcess) -> None:
    """F37: whole messages, and how many are left."""
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob:
        for number in range(4):
            bob.send(record.seats[0].name or "", f"{number}" * 500)
        until(lambda: "4 messages wait now" in host.tool("status"))
        with hook(record) as door:
            given = door.ask({"op": "collect", "session": "s-1", "limit": 1_700})
            assert (given["messages"], given["left"]) == (2, 2)
            assert "2 more wait" in given["text"]


def test_a_host_is_kept_from_stopping_only_so_often(raw: Start, broker: BrokerProcess) -> None:
    """issue: stop lets unanswered asks be answered, and always leaves room so that it cannot block for ever."""
    host, record = claude(raw, broker)
    host.tool("status")
    name = record.seats[0].name or ""
    stop = {"op": "stop", "session": "s-1", "active": True}
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        assert door.ask(stop) == {"ok": True, "text": "", "questions": 0}
        asks = []
        texts = []
        for number in range(STOPS):
            asks.append(Thread(target=_ask, args=(broker.home, name, f"question {number}?")))
            asks[-1].start()
            assert "question" in host.tool("receive", {"wait_s": 10})
            texts += [door.ask(stop)["text"] for _ in range(STOP_REMINDERS)]
        assert "reply" in texts[0]
        assert [bool(text) for text in texts] == [True] * STOPS + [False] * (len(texts) - STOPS)
        asked = door.ask({**stop, "active": False})
        assert bool(asked["text"]), "the count begins anew with what the user wants"
        for ask in bob.pending():
            assert ask
        while "question" in (owed := host.tool("pending")) and "You owe no answer" not in owed:
            question = owed.splitlines()[1].split()[1]
            host.tool("reply", {"text": "yes", "question": question})
        assert door.ask({**stop, "active": False})["text"] == ""
        for each in asks:
            each.join(PATIENCE_S)


def test_a_host_that_says_nothing_of_going_on_is_kept_only_so_often(raw: Start, broker: BrokerProcess) -> None:
    """hosts 1.9: a Stop hook counts for itself, whatever comes meanwhile; the row ends with the next prompt."""
    host, record = claude(raw, broker)
    host.tool("status")
    collect = {"op": "collect", "session": "s-1", "moment": "stop"}
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:

        def stopping(number: int) -> str:
            bob.send(record.seats[0].name or "", f"message {number}")
            until(lambda: door.ask({"op": "hello", "session": "s-1"})["waiting"])
            given = door.ask(collect)
            if given["text"]:
                door.ask({"op": "done", "batch": given["batch"]})
            asked: str = door.ask({"op": "stop", "session": "s-1", "active": False})["text"]
            return str(given["text"]) + asked

        kept = [bool(stopping(number)) for number in range(STOPS + 2)]
        assert kept == [True] * STOPS + [False] * 2
        shown = door.ask({**collect, "moment": "prompt"})
        assert f"message {STOPS}" in shown["text"]
        door.ask({"op": "done", "batch": shown["batch"]})
        assert stopping(STOPS + 2)


def _ask(home: Path, name: str, text: str) -> None:
    with blocking.connect(home=home) as asker:
        assert asker.ask(name, text).text == "yes"


def test_a_question_that_was_answered_keeps_nobody(raw: Start, broker: BrokerProcess) -> None:
    host, record = claude(raw, broker)
    host.tool("status")
    ask = Thread(target=_ask, args=(broker.home, record.seats[0].name or "", "well?"))
    ask.start()
    host.tool("receive", {"wait_s": 10})
    host.tool("reply", {"text": "yes"})
    ask.join(PATIENCE_S)
    with hook(record) as door:
        assert door.ask({"op": "stop", "session": "s-1"})["text"] == ""


def test_clear_moves_the_adapter_to_the_new_session(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 3.2, 3.4: after /clear the process is the same, and its variable names the old session."""
    host, record = claude(raw, broker)
    host.tool("status")
    name = record.seats[0].name
    with blocking.connect("bob", home=broker.home) as bob:
        with hook(record) as door:
            hello = door.ask({"op": "hello", "session": "s-2", "source": "clear"})
        assert (hello["name"], hello["address"]) == (name, address_of("s-2"))
        host.tool("status")
        assert list(others(bob)) == [name]
        [seat] = record_of(broker.home, lambda record: record.seats[0].session == "s-2").seats
        assert seat.address == address_of("s-2")
        with hook(record) as door:
            assert door.ask({"op": "collect", "session": "s-2"}) == NOTHING


def test_events_of_sessions_may_come_twice_and_late(raw: Start, broker: BrokerProcess) -> None:
    """F134: start and start; the end of the old one after the start of the new one."""
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        [before] = [view.id for view in bob.list() if view.id != bob.id]
        door.ask({"op": "hello", "session": "s-1", "source": "startup"})
        door.ask({"op": "hello", "session": "s-1", "source": "resume"})
        assert [view.id for view in bob.list() if view.id != bob.id] == [before]
        door.ask({"op": "hello", "session": "s-2", "source": "clear"})
        door.ask({"op": "bye", "session": "s-1"})
        host.tool("status")
        [after] = [view.id for view in bob.list() if view.id != bob.id]
        assert after != before
        assert record_of(broker.home).seats[0].session == "s-2"


def test_a_note_of_a_hook_counts_more_than_the_variable(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 3.4: with --continue the variable is an id that never was a session."""
    note_session(Paths(broker.home.resolve()), "claude", os.getpid(), "s-real", "resume")
    host, record = claude(raw, broker, "s-wrong")
    assert record.seats[0].address == address_of("s-real")
    with hook(record) as door:
        door.ask({"op": "hello", "session": "s-next", "source": "clear"})
    host.tool("status")
    assert record_of(broker.home).seats[0].address == address_of("s-next"), "what a hook said later counts more"


def test_what_claude_says_of_its_process_counts_more_than_the_variable(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 3.3, the files of its processes."""
    place = broker.home.parent / ".claude" / "sessions"
    place.mkdir(parents=True)
    file = place / f"{os.getpid()}.json"
    file.write_text('{"pid": 1, "sessionId": "s-real"}')
    host, record = claude(raw, broker, "s-wrong")
    assert record.seats[0].address == address_of("s-real")
    with blocking.connect("bob", home=broker.home) as bob:
        host.tool("status")
        [before] = [view.id for view in bob.list() if view.id != bob.id]
        file.write_text('{"pid": 1, "sessionId": "s-next"}')
        until(lambda: [view.id for view in bob.list() if view.id not in (bob.id, before)])
    assert record_of(broker.home).seats[0].address == address_of("s-next"), "without a call of a tool"


def before_its_session_is_known(raw: Start, broker: BrokerProcess) -> tuple[RawHost, AdapterRecord, str]:
    """Start an adapter whose host tells the session only through hooks, none of which came in time."""
    host = raw("--host", "gemini")
    host.shake_hands("gemini-cli-mcp-client")
    record = record_of(broker.home)
    [seat] = record.seats
    assert (seat.session, seat.address) == (None, None)
    assert seat.name is not None
    host.tool("status")
    return host, record, seat.name


def test_one_that_waits_for_nothing_is_in_the_session_that_a_hook_names(raw: Start, broker: BrokerProcess) -> None:
    """hosts 1.2: one identity per host session, the one its hooks and commands have."""
    _host, record, name = before_its_session_is_known(raw, broker)
    with hook(record) as door:
        hello = door.ask({"op": "hello", "session": "s-1", "source": "startup"})
    assert (hello["address"], hello["name"]) == (address_of("s-1", "gemini"), name)
    assert hello["address"] == record_of(broker.home).seats[0].address


def test_what_was_sent_before_the_session_was_known_is_shown_in_it(raw: Start, broker: BrokerProcess) -> None:
    """A late hook of the start costs no message: it is not given up, and its sender learns when it was shown."""
    _host, record, name = before_its_session_is_known(raw, broker)
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        receipt = bob.send(name, "came first")
        assert receipt.state == "queued"
        for moment in ("startup", "resume"):
            assert door.ask({"op": "hello", "session": "s-1", "source": moment})["address"] is None
        given = until(lambda: next((a for a in [door.ask({"op": "collect", "session": "s-1"})] if a["text"]), None))
        assert "came first" in given["text"]
        assert door.ask({"op": "hello", "session": "s-1"})["address"] is None, "it is on its way to the model"
        assert door.ask({"op": "done", "batch": given["batch"]}) == {"ok": True}
        until(lambda: bob.trace(receipt.message_id).state == "delivered")
        assert door.ask({"op": "collect", "session": "s-1"}) == NOTHING
        assert record_of(broker.home).seats[0].address == address_of("s-1", "gemini"), "any hook moves it then"
        assert bob.send(name, "came then").state == "queued"
        assert "came then" in until(lambda: door.ask({"op": "collect", "session": "s-1"})["text"])


def test_a_question_of_before_the_session_was_known_is_answered(raw: Start, broker: BrokerProcess) -> None:
    """Who asked the first seat has its answer; the seat moves after it."""
    host, record, name = before_its_session_is_known(raw, broker)
    asking = Thread(target=_ask, args=(broker.home, name, "which port?"))
    asking.start()
    until(lambda: "1 message" in host.tool("status"))
    with hook(record) as door:
        assert door.ask({"op": "hello", "session": "s-1", "source": "startup"})["address"] is None
        given = door.ask({"op": "collect", "session": "s-1"})
        door.ask({"op": "done", "batch": given["batch"]})
        assert "which port?" in given["text"]
        assert "question" in door.ask({"op": "stop", "session": "s-1"})["text"]
        assert "has your answer" in host.tool("reply", {"text": "yes"})
        asking.join(PATIENCE_S)
        assert not asking.is_alive()
        assert door.ask({"op": "hello", "session": "s-1"})["address"] == address_of("s-1", "gemini")


def test_a_session_that_ends_before_its_seat_has_moved_says_goodbye(raw: Start, broker: BrokerProcess) -> None:
    """Nobody takes it for one that still reads, and the sender of what it did not read is told."""
    _host, record, name = before_its_session_is_known(raw, broker)
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        receipt = bob.send(name, "too late")
        door.ask({"op": "hello", "session": "s-1", "source": "startup"})
        assert door.ask({"op": "bye", "session": "another"}) == {"ok": True}
        assert list(others(bob)) == [name]
        assert door.ask({"op": "bye", "session": "s-1"}) == {"ok": True}
        until(lambda: not others(bob))
        until(lambda: bob.trace(receipt.message_id).state == "undeliverable")


def test_a_subagent_is_a_session_of_its_own_where_a_hook_tells(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 3.4; issue: a subagent gets its own identity where the host makes that possible."""
    host, record = claude(raw, broker)
    mine = host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        assert door.ask({"op": "call", "toolUseId": "toolu_1", "agent": "a1b2c3d4e5"}) == {"ok": True}
        theirs = host.tool("status", **{"claudecode/toolUseId": "toolu_1"})
        name = f"{record.seats[0].name}-agent-a1b2c3d4"
        assert name in theirs
        assert host.tool("status", **{"claudecode/toolUseId": "toolu_2"}) == mine
        assert name in others(bob)
        bob.send(name, "for the subagent")
        given = until(
            lambda: next(
                (a for a in [door.ask({"op": "collect", "session": "s-1", "agent": "a1b2c3d4e5"})] if a["text"]), None
            )
        )
        assert "for the subagent" in given["text"]
        door.ask({"op": "done", "batch": given["batch"]})
        assert door.ask({"op": "agent", "agent": "a1b2c3d4e5", "what": "stop"}) == {"ok": True}
        until(lambda: name not in others(bob))
        assert host.tool("status") == mine.replace("(tools)", "(hooks)"), "hooks were seen meanwhile"


def test_codex_says_with_each_call_whose_it_is(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 4.4: the thread is the key; before the first call nobody knows it."""
    host = raw("--host", "codex")
    host.shake_hands("codex-mcp-client", "2025-06-18")
    record = record_of(broker.home, listening)
    assert record.seats == ()
    assert "error no_session" in host.tool("status")
    first = host.tool("status", threadId="t-1", sessionId="t-1", callId="c")
    second = host.tool("status", threadId="t-2", sessionId="t-1", callId="d")
    assert first != second
    assert host.tool("status", threadId="t-1", sessionId="t-1", callId="e") == first
    seats = record_of(broker.home, lambda record: len(record.seats) == 2).seats
    assert {seat.address for seat in seats} == {address_of("t-1", "codex"), address_of("t-2", "codex")}
    with hook(record) as door:
        assert door.ask({"op": "hello", "session": "t-1", "agent": "t-2"})["address"] == address_of("t-2", "codex")
        assert door.ask({"op": "collect", "session": "t-3"}) == NOTHING
        assert door.ask({"op": "agent", "agent": "t-2", "what": "stop"}) == {"ok": True}
        [seat] = record_of(broker.home, lambda record: len(record.seats) == 1).seats
        assert seat.session == "t-1"


def test_a_name_that_was_given_is_that_of_every_thread(raw: Start, broker: BrokerProcess) -> None:
    host = raw("--host", "codex", "--as", "ada")
    host.shake_hands("codex-mcp-client", "2025-06-18")
    first = host.tool("status", threadId="t-1")
    assert "You are ada " in first
    assert host.tool("status", threadId="t-2") == first


def test_the_session_that_ends_says_goodbye(raw: Start, broker: BrokerProcess) -> None:
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as door:
        assert len(others(bob)) == 1
        assert door.ask({"op": "bye", "session": "another"}) == {"ok": True}
        assert len(others(bob)) == 1
        assert door.ask({"op": "bye", "session": "s-1"}) == {"ok": True}
        until(lambda: not others(bob))


def test_others_see_which_way_is_in_use(raw: Start, broker: BrokerProcess) -> None:
    """Issue: falls back in a stated order, and says in `list` which one is in use; protocol 15.5."""
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob:
        assert ways_of_others(bob) == [("pull", "tools")]
        with hook(record) as rewake:
            rewake.begin({"op": "bell", "kind": "rewake"})
            until(lambda: ways_of_others(bob) == [("idle", "rewake")])
            with hook(record) as monitor:
                monitor.begin({"op": "bell", "kind": "monitor"})
                until(lambda: ways_of_others(bob) == [("now", "monitor")])
                assert "(monitor)" in host.tool("status")
                other = raw("--host", "claude", "--as", "other")
                other.shake_hands("claude-code")
                assert "sees messages at once (monitor)" in other.tool("list")
            until(lambda: ways_of_others(bob)[0] == ("idle", "rewake"))
        until(lambda: ways_of_others(bob)[0] == ("pull", "tools"))
        with hook(record) as door:
            assert door.ask({"op": "collect", "session": "s-1"}) == NOTHING
        until(lambda: ways_of_others(bob)[0] == ("pull", "hooks"))


def test_a_way_that_takes_no_bell_is_not_the_one_in_use(raw: Start, broker: BrokerProcess, tmp_path: Path) -> None:
    """Protocol 15.5: the socket of the host is there, and nobody listens on it any more."""
    place = tmp_path / "claude.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(place))
    host, record = claude(raw, broker, CLAUDE_CODE_MESSAGING_SOCKET=os.fspath(place))
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob:
        assert ways_of_others(bob) == [("now", "inbox")]
        bob.send(record.seats[0].name or "", "hello")
        until(lambda: ways_of_others(bob) == [("pull", "tools")])
        assert "hello" in host.tool("receive")


def test_bells_ring_for_whoever_listens_and_others_see_that(raw: Start, broker: BrokerProcess) -> None:
    """F135: capabilities are declared, change, and are shown."""
    host, record = claude(raw, broker)
    host.tool("status")
    name = record.seats[0].name
    with blocking.connect("bob", home=broker.home) as bob:
        assert others(bob) == {name: "pull"}
        with hook(record) as rewake:
            rewake.begin({"op": "bell", "kind": "rewake"})
            until(lambda: others(bob) == {name: "idle"})
            with hook(record) as monitor:
                monitor.begin({"op": "bell", "kind": "monitor"})
                until(lambda: others(bob) == {name: "now"})
                bob.send(name or "", "hello")
                bell = monitor.line()
                assert (bell["messages"], bell["questions"]) == (1, 0)
                assert "bob" in bell["text"]
                assert "hello" not in bell["text"]
                with pytest.raises(ConnectionResetError):
                    rewake.line()
            until(lambda: others(bob) == {name: "pull"})
    assert "hello" in host.tool("receive")


def test_a_rewake_hook_is_told_once_and_a_later_one_takes_its_place(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 3.2: one shot per hook run."""
    host, record = claude(raw, broker)
    host.tool("status")
    with blocking.connect("bob", home=broker.home) as bob, hook(record) as first, hook(record) as second:
        first.begin({"op": "bell", "kind": "rewake"})
        until(lambda: others(bob)[record.seats[0].name] == "idle")
        second.begin({"op": "bell", "kind": "rewake"})
        with pytest.raises(ConnectionResetError):
            first.line()
        bob.send(record.seats[0].name or "", "hello")
        assert "bob" in second.line()["text"]
        with pytest.raises(ConnectionResetError):
            second.line()


def test_what_ends_with_the_process_of_its_host_leaves_no_address(raw: Start, broker: BrokerProcess) -> None:
    """Nobody would ever come back to it: its mail would wait for days, and its senders with it."""
    host = raw("--host", "opencode")
    host.shake_hands("opencode")
    host.tool("status")
    record = record_of(broker.home)
    assert record.seats[0].address is None
    with blocking.connect("bob", home=broker.home, address=True) as bob:
        assert bob.send(record.seats[0].name or "", "too late").state == "queued"
        assert host.process.stdin is not None
        host.process.stdin.close()
        host.wait()
        notice = bob.receive(timeout=PATIENCE_S)
        assert notice is not None
        assert notice.notice is not None
        assert notice.notice.kind == "undeliverable"
        assert [address.name for address in bob.addresses()] == ["bob"]


def test_a_plugin_is_handed_the_messages(raw: Start, broker: BrokerProcess) -> None:
    """spec: hosts 5.3: the plugin is the adapter of OpenCode."""
    host = raw("--host", "opencode")
    host.shake_hands("opencode")
    host.tool("status")
    record = record_of(broker.home)
    with blocking.connect("bob", home=broker.home) as bob:
        name = record.seats[0].name or ""
        with hook(record) as plugin:
            plugin.begin({"op": "bell", "kind": "plugin", "carry": True})
            until(lambda: others(bob) == {name: "now"})
            bob.send(name, "one")
            assert "one" in plugin.line()["text"]
        with hook(record) as plugin:
            plugin.begin({"op": "bell", "kind": "plugin", "carry": True})
            bell = plugin.line()
            assert "one" in bell["text"]
            assert plugin.ask({"op": "done", "batch": bell["batch"]}) == {"ok": True}
            assert "whoever" not in plugin.ask({"op": "hello", "session": "any", "source": "x"})["text"]
    assert host.tool("receive") == "No messages."


WRONG_REQUESTS = [
    b"nonsense",
    b"[1]",
    b"{}",
    b'{"op": "no_such"}',
    b'{"op": ["hello"]}',
    b'{"op": "hello"}',
    b'{"op": "hello", "session": 7}',
    b'{"op": "collect", "session": "s-1", "limit": "many"}',
    b'{"op": "bell", "kind": "gong"}',
    b'{"op": "call", "agent": "a"}',
    b"\xff\xfe",
]


def test_a_wrong_request_is_said_and_harms_nobody(raw: Start, broker: BrokerProcess) -> None:
    _, record = claude(raw, broker)
    for line in WRONG_REQUESTS:
        with hook(record) as door:
            door._socket.sendall(line + b"\n")
            answer = door.line()
            assert (answer["ok"], answer["code"]) == (False, "usage"), line
            assert door.ask({"op": "collect", "session": "s-1"}) == NOTHING


def test_a_line_without_end_ends_the_connection_alone(raw: Start, broker: BrokerProcess) -> None:
    host, record = claude(raw, broker)
    with hook(record) as door, pytest.raises(OSError):
        door._socket.sendall(b"x" * (1 << 20))
        door.line()
    assert "You are" in host.tool("status")


def test_hooks_in_the_middle_of_nothing(raw: Start, broker: BrokerProcess) -> None:
    host, record = claude(raw, broker)
    for _ in range(20):
        with Asking(record, PATIENCE_S) as door:
            door._socket.sendall(b'{"op": "coll')
    assert "You are" in host.tool("status")


def test_a_step_that_is_not_reported_keeps_the_host_from_stopping(raw: Start, broker: BrokerProcess) -> None:
    """Issue: for flows what a worker needs; a stop always leaves room."""
    host = raw("--host", "claude", "--worker", "--as", "worker", env={"CLAUDE_CODE_SESSION_ID": "s-1"})
    host.shake_hands("claude-code")
    record = record_of(broker.home)
    host.tool("status")
    stop = {"op": "stop", "session": "s-1", "active": True}
    with blocking.connect("boss", home=broker.home, coordinator=True) as boss, hook(record) as door:
        boss.flows.create("release", "worker", [("verify", "Do it.")])
        boss.flows.start("release")
        given = until(lambda: (got := door.ask({"op": "collect", "session": "s-1"}))["messages"] and got)
        assert "step verify of flow release" in given["text"]
        assert "call finish with work " in given["text"]
        assert door.ask(stop)["text"] == "", "nobody was shown it yet"
        door.ask({"op": "done", "batch": given["batch"]})
        for _ in range(STOP_REMINDERS):
            said = door.ask(stop)["text"]
            assert "step verify of flow release" in said
            assert "finish" in said
        assert door.ask(stop)["text"] == ""
        assert host.tool("finish", {"text": "done"}) == "step verify was reported as completed"
        assert boss.flows.status("release").step("verify").state == "completed"


def test_a_task_that_is_not_ended_keeps_the_host_from_stopping(raw: Start, broker: BrokerProcess) -> None:
    """Issue: for invocations what a worker needs; a stop always leaves room."""
    host = raw("--host", "claude", "--as", "ada", env={"CLAUDE_CODE_SESSION_ID": "s-1"})
    host.shake_hands("claude-code")
    record = record_of(broker.home)
    host.tool("status")
    stop = {"op": "stop", "session": "s-1", "active": True}
    with blocking.connect("boss", home=broker.home) as boss, hook(record) as door:
        task = boss.invoke("ada", "count", invocation_id="i-1")
        given = until(lambda: (got := door.ask({"op": "collect", "session": "s-1"}))["messages"] and got)
        named = f"run:{task.run_id[:8]}"
        assert f"call reply with question {named} " in given["text"]
        assert door.ask(stop)["text"] == "", "nobody was shown it yet"
        door.ask({"op": "done", "batch": given["batch"]})
        host.tool("reply", {"text": "for a key", "question": named, "state": "waiting"})
        assert door.ask(stop)["text"] == "", "whoever asked knows that it waits"
        host.tool("reply", {"text": "got it", "question": named, "state": "running"})
        for _ in range(STOP_REMINDERS):
            said = door.ask(stop)["text"]
            assert f"- {named} (execute, invocation i-1), running" in said
            assert "reply" in said
        assert door.ask(stop)["text"] == ""
        assert "as completed" in host.tool("reply", {"text": "three", "question": named})
        assert task.result(PATIENCE_S).output == "three"
