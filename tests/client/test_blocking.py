"""The blocking shell with the real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.client import blocking, control, recovery, spawning
from intercom.errors import (
    AddressHeld,
    AddressTaken,
    AskTimeout,
    BrokerBusy,
    PeerGone,
    ReplyFailed,
    RequestRefused,
    SendRefused,
    SessionReplaced,
    StartFailed,
    TargetAway,
    TargetNotFound,
)
from intercom.limits import REATTACH_ATTEMPTS
from intercom.paths import Paths
from tests.support.brokers import TOP, BrokerProcess
from tests.support.raw import PATIENCE_S


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
        assert found is not None
        with blocking.connect("bob", home=broker.home, return_address="ret", session_id=bob.id) as again:
            assert again.id == bob.id
            repeated = again.receive(timeout=PATIENCE_S)
            assert repeated is not None
            assert (repeated.id, repeated.text) == (found.id, "do it")
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
        with pytest.raises(ReplyFailed, match="no idea") as raised:
            ada.ask("bob", "when?")
        assert raised.value.answer.sender.name == "bob"
        raised.value.answer.confirm()
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


def test_brokers_that_die_before_they_answer_cost_a_session_nothing(paths: Paths) -> None:
    """FE 1.6, F83: however often its return is cut off, it is the same session at the broker that lives."""
    with blocking.connect("ada", home=paths.home) as ada, socket.socket(socket.AF_UNIX) as dying:
        first = ada.id
        os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
        paths.socket.unlink()
        dying.bind(str(paths.socket))
        dying.listen()
        dying.settimeout(PATIENCE_S)
        call = threading.Thread(target=ada.list)
        call.start()
        for _ in range(REATTACH_ATTEMPTS):
            connection, _ = dying.accept()
            with connection:
                assert b"session_reattach" in connection.recv(4096)
        paths.socket.unlink()
        dying.close()
        call.join(PATIENCE_S)
        assert not call.is_alive()
        assert [(view.name, view.id) for view in ada.list()] == [("ada", first)]
        assert ada.id == first


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


@pytest.mark.loads
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


def test_mail_between_two_programs(broker: BrokerProcess) -> None:
    """Design section 7: an address, mail in order, its age, and where it is."""
    with blocking.connect("bob", home=broker.home, address=True):
        pass
    with blocking.connect("ada", home=broker.home, address=True) as ada:
        receipts = [ada.send("bob", str(number)) for number in range(3)]
        assert [(receipt.state, receipt.position) for receipt in receipts] == [("queued", n) for n in (1, 2, 3)]
        assert ada.trace(receipts[0].message_id).state == "queued"
        with pytest.raises(TargetAway):
            ada.send("bob", "now or never", queue=False)
        with pytest.raises(TargetAway):
            ada.ask("bob", "why?")
        with blocking.connect("bob", home=broker.home, address=True) as bob:
            assert bob.waiting == 3
            taken = [bob.receive(timeout=PATIENCE_S) for _ in range(3)]
            assert [message.text for message in taken if message] == ["0", "1", "2"]
            assert all(message and message.mail and message.mail.offers == 1 for message in taken)
            bob.receive(timeout=0.05)
            assert bob.mailbox().count == 0
        assert ada.trace(receipts[0].message_id).state == "delivered"


def test_what_a_consumer_did_not_finish_comes_again_under_its_address(broker: BrokerProcess) -> None:
    with blocking.connect("bob", home=broker.home, address=True):
        pass
    with blocking.connect("ada", home=broker.home) as ada:
        ada.send("bob", "0")
        ada.send("bob", "1")
    with pytest.raises(ZeroDivisionError), blocking.connect("bob", home=broker.home, address=True) as bob:
        assert bob.receive(timeout=PATIENCE_S) is not None
        raise ZeroDivisionError
    with blocking.connect("bob", home=broker.home, address=True) as bob:
        again = [bob.receive(timeout=PATIENCE_S) for _ in range(2)]
        assert [(m.text, m.mail.offers) for m in again if m and m.mail] == [("0", 2), ("1", 2)]


def test_the_newest_holder_receives(broker: BrokerProcess) -> None:
    with blocking.connect("bob", home=broker.home, address=True) as old:
        with pytest.raises(AddressHeld):
            blocking.connect("bob", home=broker.home, address=True, hold="free").__enter__()
        with blocking.connect("bob", home=broker.home, address=True) as new:
            with pytest.raises(SessionReplaced):
                old.receive(timeout=PATIENCE_S)
            with blocking.connect("ada", home=broker.home) as ada:
                assert ada.send("bob", "hi").state in ("delivered", "queued")
            found = new.receive(timeout=PATIENCE_S)
            assert found is not None
            assert found.text == "hi"


@pytest.mark.parametrize("knowledge", ["name", "id", "return address"])
def test_nobody_opens_a_mailbox_by_what_peers_know(broker: BrokerProcess, short_path: Path, knowledge: str) -> None:
    """Design section 7, Addresses: not by a name, an id or a return address alone, before or after a restart."""
    with blocking.connect("bob", home=broker.home, address=True, return_address="ret") as bob:
        session_id = bob.id
    with blocking.connect("ada", home=broker.home) as ada:
        assert ada.send("bob", "secret").state == "queued"
    options: dict[str, Any] = {
        "name": {},
        "id": {"session_id": session_id},
        "return address": {"session_id": session_id, "return_address": "ret"},
    }[knowledge]
    with blocking.connect("bob", home=broker.home, **options) as thief:
        assert thief.receive(timeout=0.2) is None
        with pytest.raises(RequestRefused):
            thief.mailbox("bob")
    token = next((broker.home / "identities" / "addresses").glob("*.json"))
    token.write_text(token.read_text().replace('"token": "', '"token": "x'))
    with pytest.raises(AddressTaken), blocking.connect("bob", home=broker.home, address=True, **options):
        pass


def test_a_connection_that_is_cut_costs_nothing(broker: BrokerProcess) -> None:
    """FE 1.3: the session takes itself back; what came meanwhile is there in order."""
    with blocking.connect("bob", home=broker.home) as bob, blocking.connect("ada", home=broker.home) as ada:
        before = bob.id
        assert bob.session_records()[0].generation == 1
        bob._engine._drop()
        deadline = time.monotonic() + PATIENCE_S
        while {view.name: view.state for view in ada.list()} != {"ada": "active", "bob": "reconnecting"}:
            assert time.monotonic() < deadline, "peers see that it is away"
        assert [ada.send(target, "hi").state for target in ("bob", before)] == ["queued", "queued"]
        found = [bob.receive(timeout=PATIENCE_S) for _ in range(2)]
        assert [message.text for message in found if message] == ["hi", "hi"]
        assert (bob.id, bob.former_ids, bob.waiting) == (before, (), 2)
        assert [record.generation for record in bob.session_records() if record.id == before] == [2]


def test_a_session_that_ends_without_goodbye_is_closed_when_its_process_has_ended(broker: BrokerProcess) -> None:
    """A1.4: straight to closed; nobody waits for a grace of ten minutes."""
    code = f"""
import os
from intercom import blocking
connection = blocking.connect("bob", home={str(broker.home)!r})
session = connection.__enter__()
print(session.id, flush=True)
os._exit(9)
"""
    env = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 9
    with blocking.connect(home=broker.home, purpose="control") as control_session:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            [record] = control_session.session_records()
            if record.state == "closed":
                break
            assert time.monotonic() < deadline
    assert (record.id, record.closed_reason) == (done.stdout.strip(), "process_exit")
