"""Let mail live through what happens to real processes: killed clients, stopped brokers, full disks, old copies."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from intercom.server.ownership import LockHeld
from tests.support.brokers import TOP, BrokerProcess, environment, limited
from tests.support.raw import EndOfStream, Frame, RawClient

StartBroker = Callable[..., BrokerProcess]

AGENT: Frame = {
    "features": ["session.lifecycle", "push.receipts", "address", "queue"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
    "acknowledgesReceipt": True,
}
PERSON: Frame = {
    "session": {"recipientPurpose": "control"},
    "features": ["operator"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
}
TOKEN = "t" * 64
TAKES_NOTHING = """
import sqlite3
from intercom.store import database
original = database.Store._commit
def commit(store, batch):
    if Path(os.environ["INTERCOM_HOME"], "takes-nothing").exists():
        error = sqlite3.OperationalError("TROUBLE")
        error.sqlite_errorcode = sqlite3.CODE
        raise error
    return original(store, batch)
database.Store._commit = commit
"""
MEMBER = """
import sys, json
from tests.support.raw import RawClient
client = RawClient(sys.argv[1])
print(json.dumps(client.register("member", **json.loads(sys.argv[2]))), flush=True)
sys.stdin.read()
"""


def enter(broker: BrokerProcess, name: str, **members: Any) -> tuple[RawClient, Frame]:
    """Return a new session and what it was told."""
    client = broker.connect()
    return client, client.register(name, returnAddress=f"return-{name}", **{**AGENT, **members})


def reattach(broker: BrokerProcess, registered: Frame) -> tuple[RawClient, Frame]:
    client = broker.connect()
    request = {"sessionId": registered["sessionId"], "ownerToken": registered["ownerToken"]}
    client.send({"type": "session_reattach", "requestId": "r", **request})
    return client, client.expect("session_reattached")


def queue(client: RawClient, target: str, message_id: str, text: str = "hello", **members: Any) -> Frame:
    """Send a message that may wait, with a text of its own; return the answer."""
    client.send_message(target, message_id, f"{message_id} {text}", queueIfAway=True, attemptId=message_id, **members)
    return answer_of(client)


def answer_of(client: RawClient) -> Frame:
    while (frame := client.receive())["type"] not in ("queued", "delivered", "delivery_failed"):
        pass
    return frame


def fetch(client: RawClient, count: int) -> list[str]:
    """Take and confirm so many messages; return their ids in order."""
    found = []
    while len(found) < count:
        frame = client.receive()
        if frame["type"] == "message":
            found.append(frame["message"]["id"])
            client.send({"type": "received", "messageId": found[-1]})
    return found


def ask(client: RawClient, type: str, answer: str, **members: Any) -> Frame:
    client.send({"type": type, "requestId": "q", **members})
    return client.expect(answer, requestId="q")


def settle(client: RawClient) -> None:
    """Return when the broker has dealt with everything this client wrote."""
    client.send({"type": "health", "requestId": "settle"})
    while client.receive().get("requestId") != "settle":
        pass


def events(broker: BrokerProcess, name: str) -> int:
    return broker.log.count(f'"{name}"')


# --- sessions -------------------------------------------------------------------------------------------


@pytest.fixture
def member(start_broker: StartBroker) -> Any:
    """Give a broker and a function that starts a process which is registered with it."""
    broker = start_broker()
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Frame]:
        command = (sys.executable, "-c", MEMBER, str(broker.socket), json.dumps({**AGENT, "returnAddress": "member"}))
        process = subprocess.Popen(
            command, env=environment(broker.home), cwd=TOP, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        registered: Frame = json.loads(process.stdout.readline())
        return process, registered

    yield broker, start
    for process in started:
        process.kill()
        process.communicate()


def record_of(person: RawClient, session_id: str) -> Frame:
    records = ask(person, "session_records", "session_records")["sessions"]
    return next(record for record in records if record["sessionId"] == session_id)


def test_a_killed_process_does_not_come_back(member: Any) -> None:
    """A1.4: straight to closed(process_exit)."""
    broker, start = member
    process, registered = start()
    sender, _ = enter(broker, "sender")
    person = broker.connect()
    person.register(**PERSON)
    assert record_of(person, registered["sessionId"])["state"] == "active"
    process.send_signal(signal.SIGKILL)
    process.wait()
    sender.expect("session_left", sessionId=registered["sessionId"])
    for _ in range(100_000):
        record = record_of(person, registered["sessionId"])
        if record["state"] == "closed":
            break
    assert record["closedReason"] == "process_exit"


def test_a_process_that_lives_may_come_back(start_broker: StartBroker) -> None:
    """A1.1, A1.4."""
    broker = start_broker()
    target, registered = enter(broker, "target")
    sender, _ = enter(broker, "sender")
    target.close()
    sender.expect("session_left")
    assert queue(sender, "target", "m1")["type"] == "queued"
    assert queue(sender, registered["sessionId"], "m2")["position"] == 2
    back, answer = reattach(broker, registered)
    assert (answer["generation"], answer["mailboxCount"]) == (2, 2)
    assert fetch(back, 2) == ["m1", "m2"]
    settle(back)
    assert broker.connect().status()["broker"]["mail"]["waiting"] == 0


def test_a_second_connection_of_the_process_replaces_the_first(start_broker: StartBroker) -> None:
    """A1.16."""
    broker = start_broker()
    first, registered = enter(broker, "target")
    second, answer = reattach(broker, registered)
    assert answer["generation"] == 2
    assert first.expect("replaced")["by"] == "connection"
    first.expect_end()
    settle(second)
    assert broker.connect().status()["broker"]["mail"]["sessionsAway"] == 0


def test_an_older_client_sees_nothing_of_all_this(start_broker: StartBroker) -> None:
    """A1.18."""
    broker = start_broker()
    older = broker.connect()
    told = older.register("older", returnAddress="older")
    assert told.keys() == {"type", "sessionId", "acknowledgesPendingStageRoutes", "brokerStatus"}
    target, registered = enter(broker, "target")
    older.expect("session_joined")
    target.close()
    older.expect("session_left")
    older.send_message("target", "m1", queueIfAway=True)
    assert older.expect("delivery_failed")["reason"] == "Session not found"
    older.send({"type": "list", "requestId": "l"})
    assert [session["id"] for session in older.expect("sessions")["sessions"]] == [told["sessionId"]]
    back, _ = reattach(broker, registered)
    older.expect("session_joined")
    back.send_message("older", "m2", queueIfAway=True)
    assert older.expect("message").keys() == {"type", "from", "message"}
    assert answer_of(back)["type"] == "delivered"


def test_twenty_sessions_come_back_at_once(start_broker: StartBroker) -> None:
    """Each gets its own mail, in order."""
    broker = start_broker()
    told = [enter(broker, f"agent{number}")[1] for number in range(20)]
    broker.kill()
    broker = start_broker()
    sender, _ = enter(broker, "sender")
    for place in range(3):
        for number, registered in enumerate(told):
            assert queue(sender, registered["sessionId"], f"m{number}.{place}")["type"] == "queued"
    clients = [broker.connect() for _ in told]
    for client, registered in zip(clients, told, strict=True):
        request = {"sessionId": registered["sessionId"], "ownerToken": registered["ownerToken"]}
        client.send({"type": "session_reattach", "requestId": "r", **request})
    for number, client in enumerate(clients):
        assert client.expect("session_reattached")["mailboxCount"] == 3
        assert fetch(client, 3) == [f"m{number}.{place}" for place in range(3)]


def test_a_broker_that_was_stopped_gives_sessions_time_to_come_back(start_broker: StartBroker) -> None:
    """F106, laptop lid: the grace ended while the broker stood still."""
    broker = start_broker(fault=limited(grace_ms=300, late_ms=100))
    target, registered = enter(broker, "target")
    sender, _ = enter(broker, "sender")
    target.close()
    sender.expect("session_left")
    assert queue(sender, "target", "m1")["type"] == "queued"
    broker.signal(signal.SIGSTOP)
    client = broker.connect()
    with pytest.raises(TimeoutError):
        client.receive(1.0)
    broker.signal(signal.SIGCONT)
    back, _ = reattach(broker, registered)
    assert fetch(back, 1) == ["m1"]


# --- two brokers, old copies, full disks ----------------------------------------------------------------


def test_a_stopped_broker_that_wakes_up_promises_nothing_it_does_not_keep(start_broker: StartBroker) -> None:
    """A5.2: somebody took its lock away. The database is still its own, so a second broker does not begin.

    The one that wakes up leaves once it sees that; what it was sent before, it refuses, or the database has it.
    """
    first = start_broker(settings={"watchdog": False})
    holder, registered = enter(first, "target", address={"name": "box", "token": TOKEN})
    holder.send({"type": "unregister"})
    sender, _ = enter(first, "sender")
    assert queue(sender, "box", "m1")["type"] == "queued"
    first.signal(signal.SIGSTOP)
    first.socket.unlink()
    for lock in first.home.glob("*.lock"):
        lock.unlink()
    assert start_broker(wait=False).wait() == LockHeld.exit_status
    sender.send_message("box", "m2", queueIfAway=True)
    first.signal(signal.SIGCONT)
    answer = "not known"
    with suppress(EndOfStream, ConnectionResetError):
        answer = answer_of(sender)["type"]
    assert first.wait() == 0
    third = start_broker()
    _, told = enter(third, "target", address={"name": "box", "token": TOKEN})
    assert told["mailboxCount"] in {"queued": [2], "delivery_failed": [1], "not known": [1, 2]}[answer]
    assert told["epoch"] == registered["epoch"] + 1


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_takes_nothing_loses_nothing(start_broker: StartBroker, trouble: str) -> None:
    """A5.4: new work is refused, retryable; running sessions stay connected; nothing is acknowledged."""
    code = {"full": "SQLITE_FULL", "read-only": "SQLITE_READONLY"}[trouble]
    broker = start_broker(fault=TAKES_NOTHING.replace("CODE", code).replace("TROUBLE", trouble))
    target, registered = enter(broker, "target")
    sender, _ = enter(broker, "sender")
    target.close()
    sender.expect("session_left")
    queued = []
    for number in range(5):
        if number == 3:
            (broker.home / "takes-nothing").touch()
        answer = queue(sender, "target", f"m{number}", "x" * 30_000)
        if answer["type"] != "queued":
            break
        queued.append(answer["messageId"])
    assert answer["type"] == "delivery_failed" and queued
    if trouble == "full":
        assert answer["reason"].startswith("Not recorded"), answer
    else:
        assert answer["reason"].startswith(("Not recorded", "Accepted-delivery authority is invalid")), answer
    assert sender.list() is not None, "lists go on"
    assert queue(sender, "target", "later", "x" * 30_000)["type"] == "delivery_failed"
    assert broker.stop() == 0
    (broker.home / "takes-nothing").unlink()
    broker = start_broker()
    back, answer = reattach(broker, registered)
    assert answer["mailboxCount"] == len(queued)
    assert fetch(back, len(queued)) == queued


def test_an_older_copy_of_the_store_is_noticed(start_broker: StartBroker, tmp_path: Path) -> None:
    """A5.7: a new journalId, a line in the log, a member of the status report."""
    broker = start_broker()
    holder, before = enter(broker, "target", address={"name": "box", "token": TOKEN})
    holder.send({"type": "unregister"})
    settle(holder)
    assert broker.stop() == 0
    shutil.copy(broker.home / "intercom.db", tmp_path / "copy")
    broker = start_broker()
    sender, told = enter(broker, "sender")
    assert told["journalId"] == before["journalId"]
    assert queue(sender, "box", "m1")["type"] == "queued"
    assert broker.stop() == 0
    assert events(broker, "store_restored") == 0
    for left in broker.home.glob("intercom.db-*"):
        left.unlink()
    shutil.copy(tmp_path / "copy", broker.home / "intercom.db")
    broker = start_broker()
    _, told = enter(broker, "target", address={"name": "box", "token": TOKEN})
    assert told["journalId"] != before["journalId"]
    assert told["brokerId"] == before["brokerId"] and told["mailboxCount"] == 0
    assert events(broker, "store_restored") == 1
    assert broker.connect().status()["broker"]["journalRestored"] is True


def test_a_purge_is_not_taken_for_an_older_copy(start_broker: StartBroker) -> None:
    """A5.7: numbers go on although the newest events are deleted."""
    broker = start_broker()
    holder, before = enter(broker, "target", address={"name": "box", "token": TOKEN})
    sender, _ = enter(broker, "sender")
    holder.send({"type": "unregister"})
    settle(holder)
    assert queue(sender, "box", "m1")["type"] == "queued"
    again, _ = enter(broker, "target", address={"name": "box", "token": TOKEN})
    assert fetch(again, 1) == ["m1"]
    settle(again)
    person = broker.connect()
    person.register(**PERSON)
    ask(person, "purge", "purged")
    assert broker.stop() == 0
    broker = start_broker()
    _, told = enter(broker, "target", address={"name": "box", "token": TOKEN})
    assert told["journalId"] == before["journalId"]
    assert events(broker, "store_restored") == 0


# --- how much, how long ---------------------------------------------------------------------------------


def test_a_broker_with_nothing_but_mail_leaves_and_a_later_one_hands_it_over(start_broker: StartBroker) -> None:
    """A5.8."""
    broker = start_broker(settings={"idle_ms": 200})
    holder, _ = enter(broker, "target", address={"name": "box", "token": TOKEN})
    sender, _ = enter(broker, "sender")
    holder.send({"type": "unregister"})
    settle(holder)
    holder.close()
    assert queue(sender, "box", "m1")["type"] == "queued"
    sender.send({"type": "unregister"})
    settle(sender)
    sender.close()
    assert broker.wait() == 0
    assert "nobody needs the broker" in broker.log
    again, told = enter(start_broker(), "target", address={"name": "box", "token": TOKEN})
    assert told["mailboxCount"] == 1
    assert fetch(again, 1) == ["m1"]


def test_a_session_that_is_away_keeps_the_broker(start_broker: StartBroker) -> None:
    """FE 5.5, idle exit: postponed while any session is reconnecting."""
    broker = start_broker(settings={"idle_ms": 200})
    target, registered = enter(broker, "target")
    target.close()
    with pytest.raises(AssertionError, match="still there"):
        broker.wait(1.0)
    back, _ = reattach(broker, registered)
    back.send({"type": "unregister"})
    settle(back)
    back.close()
    assert broker.wait() == 0


def test_thousands_of_messages_wait_and_come_in_order(start_broker: StartBroker) -> None:
    """A5.6: they survive a restart, and are handed over as fast as they are confirmed."""
    count = 1_500
    broker = start_broker()
    target, registered = enter(broker, "target")
    sender, _ = enter(broker, "sender")
    target.close()
    sender.expect("session_left")
    for begin in range(0, count, 100):
        for number in range(begin, begin + 100):
            sender.send_message("target", f"m{number}", f"text {number}", queueIfAway=True)
        for number in range(begin, begin + 100):
            assert sender.expect("queued")["position"] == number + 1
    broker.kill()
    broker = start_broker()
    assert broker.connect().status()["broker"]["mail"]["waiting"] == count
    back, answer = reattach(broker, registered)
    assert answer["mailboxCount"] == count
    assert fetch(back, count) == [f"m{number}" for number in range(count)]
