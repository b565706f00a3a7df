"""The blocking shell, against brokers that do odd things and against the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from intercom.client import blocking, control, recovery, spawning
from intercom.errors import (
    AccessDenied,
    AskTimeout,
    BrokerBusy,
    BrokerError,
    NoBroker,
    OutcomeUnknown,
    PeerGone,
    ProtocolViolation,
    RegistrationRefused,
    ReplyFailed,
    RequestTimeout,
    SendRefused,
    StartFailed,
    TargetNotFound,
    UsageError,
)
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.client import PEER, message
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.processes import in_child
from tests.support.raw import PATIENCE_S, Frame


class Interrupted:
    """Be the poll during which Ctrl-C comes, once."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll
        self._came = False

    def poll(self, timeout: float | None) -> Any:
        if not self._came:
            self._came = True
            raise KeyboardInterrupt
        return self._poll.poll(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)


def fake_session(paths: Paths, **options: Any) -> Any:
    return blocking.connect("ada", home=paths.home, start=False, **options)


@contextmanager
def answering(session: blocking.Session, answer: str) -> Iterator[None]:
    """Let another thread answer one question of ``session``."""

    def run() -> None:
        found = session.receive(timeout=PATIENCE_S)
        assert found is not None
        found.reply(answer)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


# --- with the real broker -------------------------------------------------------------------------------


def test_two_sessions_talk(broker: BrokerProcess) -> None:
    """Protocol 8.1 to 8.3."""
    with blocking.connect("ada", home=broker.home, model="m1", status="idle") as ada:
        with blocking.connect("bob", home=broker.home) as bob:
            assert {view.name for view in ada.list()} == {"ada", "bob"}
            assert ada.id != bob.id
            with answering(bob, "in ten minutes"):
                reply = ada.ask("bob", "when?", attachments=[{"type": "snippet", "name": "s", "content": "c"}])
            assert (reply.text, reply.sender.name, reply.sender.id) == ("in ten minutes", "bob", bob.id)
            assert reply.sender.peer_pid == os.getpid()
        with pytest.raises(TargetNotFound) as caught:
            ada.send("bob", "hi")
        assert caught.value.exit_status == 3


def test_a_message_goes_both_ways(broker: BrokerProcess) -> None:
    with blocking.connect("ada", home=broker.home) as ada, blocking.connect("bob", home=broker.home) as bob:
        receipts: list[Any] = []
        thread = threading.Thread(target=lambda: receipts.append(ada.send("bob", "one")))
        thread.start()
        found = bob.receive(timeout=PATIENCE_S)
        assert found is not None
        assert (found.text, found.sender.name, found.expects_reply) == ("one", "ada", False)
        assert bob.receive(timeout=0.001) is None, "which confirmed the first"
        thread.join(PATIENCE_S)
        [receipt] = receipts
        assert (receipt.state, receipt.target, receipt.message_id) == ("delivered", "bob", found.id)


def test_groups_and_presence(broker: BrokerProcess) -> None:
    """Protocol 8.4."""
    with blocking.connect("ada", home=broker.home, group="a") as ada:
        assert ada.join("b") == ada.groups == ("a", "b")
        assert [(entry.group, entry.session_count, entry.member) for entry in ada.list_groups()] == [
            ("a", 1, True),
            ("b", 1, True),
        ]
        assert ada.leave() == ("a",)
        ada.set_presence(name="grace", status="busy")
        [view] = ada.list()
        assert (view.name, view.status, ada.name) == ("grace", "busy", "grace")


def test_a_control_session_is_seen_by_nobody(broker: BrokerProcess) -> None:
    """Protocol 6.4."""
    with blocking.connect(home=broker.home, purpose="control") as control_session:
        assert control_session.list() == []


def test_a_message_that_was_not_finished_comes_again(broker: BrokerProcess) -> None:
    """Design section 7, Receipts: leaving by an exception does not confirm."""
    with blocking.connect("ada", home=broker.home) as ada:
        sender = threading.Thread(target=lambda: ada.send("bob", "do it", timeout=60))
        with pytest.raises(ZeroDivisionError), blocking.connect("bob", home=broker.home, return_address="ret") as bob:
            sender.start()
            found = bob.receive(timeout=PATIENCE_S)
            assert found is not None
            raise ZeroDivisionError
        with blocking.connect("bob", home=broker.home, return_address="ret", session_id=bob.id) as again:
            assert again.id == bob.id
            for repeated in again.messages(timeout=PATIENCE_S):
                assert (repeated.id, repeated.text) == (found.id, "do it")
                break
        sender.join(PATIENCE_S)
        assert not sender.is_alive()


def test_the_other_side_leaves(broker: BrokerProcess) -> None:
    """F63, protocol 5.16: the asker is told at once."""
    with blocking.connect("ada", home=broker.home) as ada:

        def leave_with_a_question() -> None:
            with blocking.connect("bob", home=broker.home) as bob:
                ready.set()
                assert bob.receive(timeout=PATIENCE_S) is not None
                assert bob.receive(timeout=0.001) is None

        ready = threading.Event()
        thread = threading.Thread(target=leave_with_a_question)
        thread.start()
        assert ready.wait(PATIENCE_S)
        with pytest.raises(PeerGone):
            ada.ask("bob", "still there?", timeout=60)
        thread.join(PATIENCE_S)


def test_an_answer_that_is_none(broker: BrokerProcess) -> None:
    with blocking.connect("ada", home=broker.home) as ada, blocking.connect("bob", home=broker.home) as bob:

        def decline() -> None:
            found = bob.receive(timeout=PATIENCE_S)
            assert found is not None
            found.reply("no idea", error=True)

        thread = threading.Thread(target=decline)
        thread.start()
        with pytest.raises(ReplyFailed, match="no idea"):
            ada.ask("bob", "when?")
        thread.join(PATIENCE_S)


def test_nobody_waits_for_a_late_answer(broker: BrokerProcess) -> None:
    """Protocol 4.24: an ask that ended is withdrawn, so a late answer is refused and not lost."""
    with blocking.connect("ada", home=broker.home) as ada, blocking.connect("bob", home=broker.home) as bob:
        with pytest.raises(AskTimeout):
            ada.ask("bob", "when?", timeout=0.2)
        found = bob.receive(timeout=PATIENCE_S)
        assert found is not None
        with pytest.raises(SendRefused) as caught:
            found.reply("now")
        assert caught.value.code == "no_open_question"


def test_a_broker_that_dies_is_replaced_and_the_ask_survives(paths: Paths) -> None:
    """Design section 5, Asks survive; F83: both sides come back under their ids."""
    with blocking.connect("ada", home=paths.home) as ada, blocking.connect("bob", home=paths.home) as bob:
        ids = (ada.id, bob.id)

        def answer_after_a_crash() -> None:
            found = bob.receive(timeout=PATIENCE_S)
            assert found is not None
            assert bob.receive(timeout=0.001) is None
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            found.reply("still here")

        thread = threading.Thread(target=answer_after_a_crash)
        thread.start()
        assert ada.ask("bob", "there?", timeout=30).text == "still here"
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert (ada.id, bob.id) == ids


def test_a_stopped_broker_is_busy(broker: BrokerProcess) -> None:
    """F6: not responding, by the deadline; afterwards the next call works."""
    with blocking.connect("ada", home=broker.home) as ada:
        broker.signal(signal.SIGSTOP)
        try:
            silent = pytest.raises(BrokerBusy, match=f"pid {broker.pid}")
            with silent, blocking.connect("bob", home=broker.home, timeout=0.3):
                pass
            with pytest.raises(AskTimeout):
                ada.ask("bob", "there?", timeout=0.3)
        finally:
            broker.signal(signal.SIGCONT)
        assert [view.name for view in ada.list()] == ["ada"]


def test_a_failed_start_poisons_nothing(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: the error, then the repair, then success, in one process and one session."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (10,))
    with blocking.connect("ada", home=paths.home) as ada:
        control.shutdown(paths)
        with monkeypatch.context() as broken:
            broken.setattr(spawning, "command", lambda paths: [sys.executable, "-c", "raise SystemExit(3)"])
            with pytest.raises(StartFailed):
                ada.list()
            with pytest.raises(StartFailed):
                next(ada.messages(timeout=PATIENCE_S))
        assert [view.name for view in ada.list()] == ["ada"]


def test_it_works_inside_a_running_loop(broker: BrokerProcess) -> None:
    """F136."""

    async def main() -> list[str | None]:
        with blocking.connect("ada", home=broker.home) as ada:
            return [view.name for view in ada.list()]

    assert asyncio.run(main()) == ["ada"]


# --- with brokers that do odd things --------------------------------------------------------------------


def test_the_answer_may_come_first(paths: Paths) -> None:
    """F65: before delivered, and without it."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        link.send(
            {
                "type": "question_target",
                "messageId": asked["message"]["id"],
                "attemptId": asked["attemptId"],
                "sessionId": PEER["id"],
            },
            message("r1", "yes", replyTo=asked["message"]["id"]),
        )
        link.expect("received", messageId="r1")

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        assert session.ask("worker", "ok?").text == "yes"


def test_a_lost_connection_is_replaced_and_the_send_repeated(paths: Paths) -> None:
    """F76: the answer never came; the same id goes out again."""
    seen: list[Frame] = []

    def script(link: FakeLink, number: int) -> None:
        registration = link.take_registration("b1")
        seen.extend([registration, link.expect("send")])
        if number == 1:
            link.deliver(seen[-1])
            link.wait_for_end()

    with FakeBroker(paths.socket, script, connections=2), fake_session(paths, session_id="b1") as session:
        assert session.send("worker", "hi").state == "delivered"
    first, sent, second, repeated = seen
    assert second["preferredSessionId"] == "b1"
    assert second["returnAddress"] == first["returnAddress"]
    assert repeated["message"] == sent["message"]
    assert repeated["attemptId"] != sent["attemptId"]


def test_leaving_the_block_confirms_and_says_goodbye(paths: Paths) -> None:
    """Protocol 4.2: unregister, then FIN."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(message("m1"))
        ends.append(link.wait_for_end())

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        for found in session.messages():
            assert found.id == "m1"
            break
    assert ends == [[{"type": "received", "messageId": "m1"}, {"type": "unregister"}]]


def test_an_interrupted_ask_is_withdrawn(paths: Paths) -> None:
    """Design section 9: 130 interrupted, the ask is withdrawn."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        ends.append([asked, *link.wait_for_end()])

    with FakeBroker(paths.socket, script), pytest.raises(KeyboardInterrupt), fake_session(paths) as session:
        session._poll = Interrupted(session._poll)
        session.ask("worker", "ok?")
    [[asked, *rest]] = ends
    assert rest == [{"type": "cancel_ask", "messageId": asked["message"]["id"]}, {"type": "unregister"}]


def test_an_interrupt_while_writing_breaks_the_connection(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: all of a frame, or the connection is broken on purpose."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        if number == 0:
            ends.append(link.wait_for_end())
        else:
            link.deliver(link.expect("send"))
            link.wait_for_end()

    write = os.write

    def interrupted(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:10])
        raise KeyboardInterrupt

    with FakeBroker(paths.socket, script, connections=2), fake_session(paths) as session:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.send("worker", "one")
        assert session.send("worker", "two").state == "delivered"
    assert ends == [[]], "no whole frame, and nothing after the half one"


def test_a_large_message_to_a_slow_reader(paths: Paths) -> None:
    """A frame may be written in many parts, over several calls."""
    text = "x" * (2 << 20)
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        late, listing = link.receive(), link.receive()
        assert (late["message"]["content"]["text"], listing["type"]) == (text, "list")
        link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": [PEER]})
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        with pytest.raises(Exception, match="did not say in time"):
            session.send("worker", text, timeout=0.2)
        go.set()
        assert [view.name for view in session.list()] == ["worker"]


def test_a_broker_that_says_no_before_it_closes(paths: Paths) -> None:
    """Protocol 5.2: registration_failed, then FIN."""

    def script(link: FakeLink, number: int) -> None:
        link.expect("register")
        link.send({"type": "registration_failed", "reason": "not you"})

    with FakeBroker(paths.socket, script), pytest.raises(RegistrationRefused, match="not you"), fake_session(paths):
        pass


def test_a_broker_that_speaks_another_language(paths: Paths) -> None:
    """F42: one clear error."""

    def script(link: FakeLink, number: int) -> None:
        link.receive()
        link.send_bytes(b"HTTP/1.1 400 Bad Request\r\n")
        link.wait_for_end()

    named = pytest.raises(ProtocolViolation, match="48 54 54 50")
    with FakeBroker(paths.socket, script), named, fake_session(paths):
        pass


def test_a_request_that_is_not_answered(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    from intercom.client import commands

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session, pytest.raises(RequestTimeout):
        session._wait(lambda: commands.list_groups(now=blocking.now(), timeout_ms=50))


def test_writing_may_be_forbidden(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F136: DENIED within a second."""

    def script(link: FakeLink, number: int) -> None:
        link.wait_for_end()

    def refuse(descriptor: int, data: bytes) -> int:
        raise PermissionError(1, "Operation not permitted")

    started = time.monotonic()
    with FakeBroker(paths.socket, script), monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        with pytest.raises(AccessDenied), fake_session(paths):
            pass
    assert time.monotonic() - started < 1


def test_no_broker_and_none_to_be_started(paths: Paths) -> None:
    with pytest.raises(NoBroker), fake_session(paths):
        pass
    assert not paths.home.exists()


def test_nothing_arrives(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        assert session.receive(timeout=0.05) is None
        assert list(session.messages(timeout=0.05)) == []


def test_a_closed_session(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        pass
    with pytest.raises(UsageError, match="closed"):
        session.list()
    with pytest.raises(UsageError, match="closed"):
        session.receive()


def test_one_thread_at_a_time_and_one_process(paths: Paths) -> None:
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        link.send(message("m1"))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(session.receive(timeout=PATIENCE_S)))
        thread.start()
        while not session._in_use.locked():
            time.sleep(0.001)
        with pytest.raises(UsageError, match="thread"):
            session.list()
        go.set()
        thread.join(PATIENCE_S)
        assert found[0].id == "m1"

        def use() -> str:
            try:
                session.list()
            except UsageError as error:
                return error.reason
            return ""

        assert "process" in in_child(use)


def test_a_session_that_ends_midway_fails_its_callers(paths: Paths) -> None:
    """A broker that goes for good: the time of the call decides."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()

    told = pytest.raises((BrokerError, OutcomeUnknown))
    with FakeBroker(paths.socket, script), fake_session(paths) as session, told:
        session.send("worker", "hi", timeout=0.3)


# --- importing ------------------------------------------------------------------------------------------


def test_importing_it_is_cheap() -> None:
    """Design section 6: a command uses the blocking client and imports no event loop."""
    code = (
        "import sys, msgspec; before = set(sys.modules); import intercom.client.blocking, intercom.client.control; "
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = {
        "anyio", "asyncio", "concurrent", "dataclasses", "filelock", "hashlib", "inspect", "logging", "platformdirs",
        "random", "rich", "ssl", "subprocess", "sysconfig", "tempfile", "threading", "trio",
    }  # fmt: skip
    assert not unwanted & {name.partition(".")[0] for name in found}
    assert "intercom.client.blocking" in found
