"""Watch real broker processes serve and stop."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from intercom.core.records import OperationState, SaveBody, SaveOperation
from intercom.limits import FRAME_BYTES, RECALL_ROWS, UNREGISTERED_FRAME_BYTES
from intercom.paths import Paths
from intercom.store.database import Store
from tests.support.brokers import SERVE, BrokerProcess, patched
from tests.support.processes import OTHER_USER, in_child, needs_root
from tests.support.raw import EndOfStream, RawClient, packed
from tests.support.records import operation

StartBroker = Callable[..., BrokerProcess]

SOON = {"idle_ms": 300}
BOUND_S = 5.0
"""Time in which a broker with that setting must be gone, on a busy machine."""


def events(broker: BrokerProcess, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in broker.log.splitlines()]
    return [line for line in lines if line["event"] == name]


# --- idle (protocol 3.5, 3.6)


def never_used(broker: BrokerProcess) -> None:
    pass


def connect_and_close(broker: BrokerProcess) -> None:
    broker.connect().close()


def half_a_prefix(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.send_bytes(b"\0\0")


def bad_register(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.send({"type": "register"})
        client.expect_end()


def register_and_leave(broker: BrokerProcess) -> None:
    broker.registered("a").close()


def refused(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.send({"type": "register", "session": {**SESSION}, "supervisor": None})
        client.expect("registration_failed")
        client.expect_end()


SESSION = {"cwd": "/", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": "n"}


@pytest.mark.parametrize(
    "use", [never_used, connect_and_close, half_a_prefix, bad_register, register_and_leave, refused]
)
def test_a_broker_nobody_needs_leaves(start_broker: StartBroker, use: Callable[[BrokerProcess], None]) -> None:
    """F2."""
    broker = start_broker(settings=SOON)
    use(broker)
    assert broker.wait(BOUND_S) == 0
    assert not broker.socket.exists() and not (broker.home / "broker.pid").exists()
    assert events(broker, "stopping")[0]["reason"] == "nobody needs the broker"


def test_a_silent_session_keeps_it_and_unregister_lets_it_go(start_broker: StartBroker) -> None:
    """F2, control; protocol 3.6."""
    broker = start_broker(settings=SOON)
    with broker.registered("a", session={"recipientPurpose": "control"}) as client:
        with pytest.raises(subprocess.TimeoutExpired):
            broker.process.wait(3 * SOON["idle_ms"] / 1000)
        client.send({"type": "unregister"})
        assert broker.wait(BOUND_S) == 0
        client.expect_end()


def test_health_probes_do_not_keep_it(start_broker: StartBroker) -> None:
    """Protocol 3.6."""
    broker = start_broker(settings=SOON)
    gone = Event()

    def probe() -> None:
        while not gone.wait(0.02):
            try:
                with broker.connect() as client:
                    client.health()
            except (OSError, EndOfStream):
                return

    prober = Thread(target=probe)
    prober.start()
    try:
        assert broker.wait(BOUND_S) == 0
    finally:
        gone.set()
        prober.join()


# --- ownership (protocol 3.4)


def remove(path: Path) -> None:
    path.unlink()


def replace_with_file(path: Path) -> None:
    path.unlink()
    path.write_text("a successor")


def replace_with_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


@pytest.mark.parametrize("loss", [remove, replace_with_file, replace_with_socket])
def test_a_broker_that_lost_its_socket_leaves_and_touches_nothing(
    broker: BrokerProcess, loss: Callable[[Path], None]
) -> None:
    """Protocol 3.4, 3.8."""
    with broker.registered("a") as client:
        loss(broker.socket)
        left = broker.socket.lstat().st_ino if broker.socket.exists() else None
        client.expect_end()
        assert broker.wait() == 0
    assert (broker.socket.lstat().st_ino if broker.socket.exists() else None) == left
    assert "broker.sock" in events(broker, "stopping")[0]["reason"]


def test_a_broker_whose_home_was_removed_leaves(broker: BrokerProcess) -> None:
    """F17."""
    broker.home.rename(broker.home.with_name("moved"))
    assert broker.wait() == 0


# --- shutdown (protocol 3.8, 4.21; design section 5, Stop)


def test_a_client_may_ask_it_to_leave(broker: BrokerProcess) -> None:
    """Protocol 8.10."""
    with broker.registered("a") as session, broker.connect() as control:
        control.send({"type": "shutdown", "requestId": "3"})
        control.expect("shutdown_ack", requestId="3")
        control.expect_end()
        session.expect_end()
    assert broker.wait() == 0


def test_idle_and_unwilling_clients_do_not_delay_the_end(broker: BrokerProcess) -> None:
    """F31: ten idle clients, one with a full receive buffer, one that is in the middle of a frame."""
    idle = [broker.registered(f"idle-{number}") for number in range(10)]
    broker.registered("deaf")
    sender, halfway = broker.registered("sender"), broker.connect()
    halfway.send_bytes(packed({"type": "list"})[:7])
    for number in range(8):
        sender.send_message("deaf", f"m-{number}", "x" * 200_000)
    sender.send({"type": "health", "requestId": "end"})
    drain(sender, until="health")
    begin = time.monotonic()
    assert broker.stop(3) == 0
    assert time.monotonic() - begin < 3
    for client in idle:
        assert {frame["type"] for frame in drain(client)} <= {"session_joined"}, "nobody is said to have left"
    halfway.expect_end()


def test_what_was_accepted_is_answered_before_the_end_and_no_delivered_lies(start_broker: StartBroker) -> None:
    """Design section 5, Stop: who got no answer retries the same id and gets the one that is right."""
    broker = start_broker()
    sender, target = broker.registered("a", returnAddress="A"), broker.registered("b", returnAddress="B")
    count = 200
    for number in range(count):
        sender.send_message("b", f"m-{number}")
    sender.expect("delivered", messageId="m-0")
    broker.signal(signal.SIGTERM)
    delivered = {"m-0"} | {frame["messageId"] for frame in drain(sender) if frame["type"] == "delivered"}
    arrived = {frame["message"]["id"] for frame in drain(target) if frame["type"] == "message"}
    assert broker.wait() == 0
    assert delivered == arrived, "a stop without a crash leaves nobody in doubt"

    again = start_broker()
    sender, target = again.registered("a", returnAddress="A"), again.registered("b", returnAddress="B")
    for number in range(count):
        sender.send_message("b", f"m-{number}")
        sender.expect("delivered", messageId=f"m-{number}")
    target.send({"type": "health", "requestId": "end"})
    second = [frame["message"]["id"] for frame in drain(target, until="health") if frame["type"] == "message"]
    assert sorted(second) == sorted({f"m-{number}" for number in range(count)} - arrived)
    sender.close()
    target.close()


def drain(client: RawClient, until: str = "") -> list[dict[str, Any]]:
    """Return every frame up to the end of the stream, or up to one of a type."""
    frames: list[dict[str, Any]] = []
    try:
        while not frames or frames[-1]["type"] != until:
            frames.append(client.receive())
    except (EndOfStream, ConnectionResetError):
        client.close()
    return frames


def test_a_message_that_did_not_leave_is_forgotten_at_the_stop(start_broker: StartBroker) -> None:
    """Design section 5, Stop: a restart costs nobody anything."""
    broker = start_broker()
    sender, deaf = broker.registered("a", returnAddress="A"), broker.registered("deaf", returnAddress="D")
    big = "x" * 900_000
    sender.send_message("deaf", "m-1", big)  # fills the kernel's buffer, and leaves only in part
    sender.send_message("deaf", "m-2", "behind it")
    sender.health()
    assert broker.stop() == 0
    sender.expect_end()
    sender.close()
    deaf.close()

    again = start_broker()
    sender, target = again.registered("a", returnAddress="A"), again.registered("deaf", returnAddress="D")
    sender.send_message("deaf", "m-1", big)
    sender.send_message("deaf", "m-2", "behind it")
    assert [target.expect("message")["message"]["id"] for _ in range(2)] == ["m-1", "m-2"]
    sender.expect("delivered", messageId="m-1")
    sender.expect("delivered", messageId="m-2")
    sender.close()
    target.close()


def test_a_disk_that_hangs_does_not_delay_the_end(start_broker: StartBroker) -> None:
    """Design section 5, Stop: gone within 2 s, and not after the hour that the disk takes."""
    hanging = patched(
        "limits.INLINE_SYNC_US = -1\nfrom intercom.store.database import Store\n"
        "def hang():\n    time.sleep(3600 if Path(os.environ['INTERCOM_HOME'], 'hang').exists() else 0)\n"
        "open_store = Store.open\n"
        "def opened(*arguments, **options):\n"
        "    store = open_store(*arguments, **options)\n    store.before_commit = hang\n    return store\n"
        "Store.open = opened"
    )
    broker = start_broker(command=hanging)
    with broker.registered("a") as client, broker.registered("b"):
        client.send_message("b", "m-1")
        client.expect("delivered")
        (broker.home / "hang").touch()
        client.send_message("b", "m-2")
        client.health()  # the event loop goes on
        assert broker.stop() == 0
        client.expect_end()


# --- misuse


@pytest.mark.parametrize(
    "garbage",
    [
        (UNREGISTERED_FRAME_BYTES + 1).to_bytes(4, "big"),
        (2**31).to_bytes(4, "big"),
        (2**32 - 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b'{"type":"list"}\n',
        packed([]),
        b"\0\0\0\0",
        b"\0\0\0\x01{",
        packed({"type": "list", "requestId": "1"}),
    ],
)
def test_garbage_ends_its_own_connection_at_once(broker: BrokerProcess, garbage: bytes) -> None:
    """F35, F38, F42, F29; protocol 1.3."""
    with broker.registered("a") as bystander, broker.connect() as client:
        client.send_bytes(garbage)
        client.expect_end()
        bystander.health()
    destroyed = events(broker, "connection_destroyed")
    assert len(destroyed) == 1
    assert destroyed[0]["peer_pid"] == os.getpid() and destroyed[0]["reason"]


def test_half_sent_frames_cost_no_memory(broker: BrokerProcess) -> None:
    """F35: 200 connections that announce the largest frame and send a little of it."""
    with broker.registered("a") as bystander:
        before = resident_bytes(broker.pid)
        clients = [broker.connect() for _ in range(200)]
        for client in clients:
            client.send_bytes(UNREGISTERED_FRAME_BYTES.to_bytes(4, "big") + b" " * 1_000)
        bystander.health()
        assert resident_bytes(broker.pid) - before < 20_000_000
        for client in clients:
            client.close()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_large_frame_is_taken_after_register_only(broker: BrokerProcess) -> None:
    """Design OP-1."""
    big = packed({"type": "health", "requestId": "1", "x": "y" * (FRAME_BYTES - 1_000)})
    with broker.registered("a") as client:
        client.send_bytes(big)
        client.expect("health")
    with broker.connect() as client:
        client.send_bytes(big[:4])
        client.expect_end()


@needs_root
def test_another_user_is_not_heard(broker: BrokerProcess) -> None:
    """F107: refused before any frame is parsed."""
    for path, mode in ((broker.home.parent, 0o755), (broker.home, 0o755), (broker.socket, 0o777)):
        os.chmod(path, mode)

    def speak() -> str:
        with RawClient(broker.socket) as client:
            with suppress(BrokenPipeError):  # it may be turned away before it spoke
                client.send({"type": "shutdown", "requestId": "1"})
            client.expect_end()
        return "not heard"

    assert in_child(speak, user=OTHER_USER) == "not heard"
    with broker.connect() as client:
        client.health()
    assert events(broker, "peer_refused")[0]["uid"] == OTHER_USER


def test_a_stampede_is_served(broker: BrokerProcess) -> None:
    """F26."""
    clients = [broker.connect() for _ in range(500)]
    for client in clients:
        client.send({"type": "register", "session": {**SESSION, "recipientPurpose": "control"}})
    assert len({client.expect("registered")["sessionId"] for client in clients}) == 500
    for client in clients:
        client.close()


def test_out_of_descriptors_sessions_go_on_and_the_rest_recovers(start_broker: StartBroker) -> None:
    """F114."""
    broker = start_broker(command=("/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *SERVE))
    with broker.registered("a") as session, broker.registered("b"):
        crowd = [broker.connect() for _ in range(200)]
        session.send_message("b", "m-1")
        session.expect("delivered")
        for client in crowd:
            client.close()
        with broker.connect() as late:
            late.health()
    assert len(events(broker, "accept_failed")) <= 2


def test_bad_frames_do_not_fill_the_disk(broker: BrokerProcess) -> None:
    """F115."""
    for _ in range(300):
        with broker.connect() as client:
            client.send_bytes(packed({"type": "nonsense"}))
            client.expect_end()
    assert len(events(broker, "connection_destroyed")) == 1
    (broker.home / "intercom.log").unlink()
    with broker.connect() as client:
        client.send_bytes(packed({"type": "other nonsense"}))
        client.expect_end()
    assert len(events(broker, "connection_destroyed")) == 1
    assert broker.stop() == 0
    assert [line.get("repeated") for line in events(broker, "connection_destroyed")] == [None, 299]


# --- the store


def test_a_broker_whose_store_cannot_be_used_says_so_and_goes_on(start_broker: StartBroker) -> None:
    """Protocol 6.9.4, fail closed; design section 5."""
    first = start_broker()
    assert first.stop() == 0
    database = first.home / "intercom.db"
    database.write_bytes(b"this is no database" * 1_000)
    damaged = database.read_bytes()

    broker = start_broker()
    with broker.registered("a") as sender, broker.registered("b") as target:
        sender.send_message("b", "m-1")
        failed = sender.expect("delivery_failed", messageId="m-1")
        assert failed["reason"].startswith("Accepted-delivery authority is invalid")
        assert {session["name"] for session in sender.list()} == {"a", "b"}
        target.health()
    assert broker.stop() == 0
    assert database.read_bytes() == damaged
    assert events(broker, "store_unusable")[0]["code"] in ("corrupt", "foreign")


def test_a_large_store_that_is_damaged_lets_nobody_send(start_broker: StartBroker) -> None:
    """Fail closed (protocol 6.9.4) also where the look at all pages is left to who reads the operations back."""
    first = start_broker()
    assert first.stop() == 0
    database = first.home / "intercom.db"
    moment = time.time_ns() // 1_000_000
    settled = (
        SaveOperation(operation(number, state=OperationState.ACCEPTED, reserved_at=moment, accepted_at=moment))
        for number in range(2, RECALL_ROWS + 3)
    )
    body = b"x" * 20_000 + b"the middle" + b"x" * 20_000
    store = Store.open(Paths(first.home), moment)
    store.commit([(1, (SaveBody(1, body), *settled))])
    store.close()
    content = database.read_bytes()
    begin = content.index(b"the middle") // 4_096 * 4_096
    database.write_bytes(content[:begin] + bytes(4_096) + content[begin + 4_096 :])

    broker = start_broker()
    with broker.registered("a") as sender, broker.registered("b") as target:
        sender.send_message("b", "m-1")
        failed = sender.expect("delivery_failed", messageId="m-1")
        assert failed["reason"].startswith("Accepted-delivery authority is invalid")
        assert {session["name"] for session in sender.list()} == {"a", "b"}
        assert not target.has_frame
    assert broker.stop() == 0
    assert "is damaged" in events(broker, "store_unread")[0]["reason"]


FULL = (
    "import errno\nfrom intercom.store.database import Store\n"
    "def full():\n"
    "    if Path(os.environ['INTERCOM_HOME'], 'full').exists():\n        raise OSError(errno.ENOSPC, 'full')\n"
    "open_store = Store.open\n"
    "def opened(*arguments, **options):\n"
    "    store = open_store(*arguments, **options)\n    store.before_commit = full\n    return store\n"
    "Store.open = opened"
)


def test_a_full_disk_refuses_and_recovers(start_broker: StartBroker) -> None:
    """Design section 3, step 6."""
    broker = start_broker(fault=FULL)
    with broker.registered("a", returnAddress="A") as sender, broker.registered("b") as target:
        (broker.home / "full").touch()
        for number in range(5):
            sender.send_message("b", f"m-{number}")
        answers = [sender.expect("delivery_failed") for _ in range(5)]
        assert {answer["messageId"] for answer in answers} == {f"m-{number}" for number in range(5)}
        assert all(answer["reason"].startswith("Not recorded") for answer in answers)
        (broker.home / "full").unlink()
        for number in range(5):
            sender.send_message("b", f"m-{number}")
            sender.expect("delivered", messageId=f"m-{number}")
        assert [target.expect("message")["message"]["id"] for _ in range(5)] == [f"m-{number}" for number in range(5)]


def test_a_slow_disk_stops_only_who_floods_it(start_broker: StartBroker) -> None:
    """Design OP-1: a link stops reading, the broker does not."""
    slow = patched(
        "limits.INLINE_SYNC_US = -1\nfrom intercom.store.database import Store\n"
        "def wait():\n    while Path(os.environ['INTERCOM_HOME'], 'wait').exists():\n        time.sleep(0.005)\n"
        "open_store = Store.open\n"
        "def opened(*arguments, **options):\n"
        "    store = open_store(*arguments, **options)\n    store.before_commit = wait\n    return store\n"
        "Store.open = opened"
    )
    broker = start_broker(command=slow)
    with broker.registered("a") as flood, broker.registered("b") as target, broker.registered("c") as other:
        other.send_message("a", "first")
        other.expect("delivered")  # the first syncs are over, and the thread has taken over
        flood.expect("message")
        (broker.home / "wait").touch()
        messages = [{"id": f"m-{number}", "timestamp": 1, "content": {"text": "x"}} for number in range(300)]
        sends = [{"type": "send", "to": "b", "message": message} for message in messages]
        flood.send(*sends, {"type": "list", "requestId": "behind"})
        assert len(other.list()) == 3, "others are served"
        with pytest.raises(TimeoutError):
            flood.receive(0.2)
        (broker.home / "wait").unlink()
        for number in range(300):
            assert target.expect("message")["message"]["id"] == f"m-{number}"
        answers = drain(flood, until="sessions")
        assert answers[-1]["requestId"] == "behind"


def test_durability_memory_delivers_and_keeps_nothing(start_broker: StartBroker) -> None:
    """Design section 5: said in the status report."""
    broker = start_broker(settings={"durability": "memory"})
    with broker.registered("a", returnAddress="A") as sender, broker.registered("b", returnAddress="B") as target:
        sender.send_message("b", "m-1")
        sender.expect("delivered", messageId="m-1")
        target.expect("message")
        assert "memory" in json.dumps(sender.status())
    assert broker.stop() == 0
    again = start_broker(settings={"durability": "memory"})
    with again.registered("a", returnAddress="A") as sender, again.registered("b", returnAddress="B") as target:
        sender.send_message("b", "m-1")
        target.expect("message")


def test_the_status_report_says_who_serves_what(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        report = client.status()
    assert report["pid"] == broker.pid and report["sessions"] == 0
    facts = report["broker"]
    assert facts["home"] == str(broker.home) and facts["socket"] == str(broker.socket)
    assert facts["durability"] == "full" and facts["version"]
    assert abs(facts["startedAt"] - time.time() * 1000) < 60_000


# --- the watchdog (design OP-3)

WATCHED = "limits.WATCHDOG_TICK_MS = 20\nlimits.WATCHDOG_LATE_MS = 200\nlimits.OWNERSHIP_CHECK_MS = 20\n"
STUCK = WATCHED + (
    "from intercom.core.broker import Broker\n"
    "def stand_still(self, *arguments):\n    time.sleep(3600)\n"
    "Broker.frame_received = stand_still"
)


def test_a_broker_whose_loop_stands_still_ends_itself(start_broker: StartBroker) -> None:
    """Design OP-3: all tracebacks to the log, exit 1."""
    broker = start_broker(command=patched(STUCK), wait=False)
    client = connect_when_ready(broker)
    client.send({"type": "health", "requestId": "1"})
    client.expect_end()
    client.close()
    assert broker.wait() == 1
    (stalled,) = events(broker, "stalled")
    assert any("stand_still" in stack for stack in stalled["stacks"])
    assert start_broker().stop() == 0


def test_a_process_that_was_stopped_is_not_judged(start_broker: StartBroker) -> None:
    """Design OP-3; F106."""
    broker = start_broker(command=patched(WATCHED))
    with broker.registered("a") as client:
        broker.signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            client.send({"type": "health", "requestId": "1"})
            client.receive(1.0)
        broker.signal(signal.SIGCONT)
        client.expect("health")
        client.health()


def test_it_can_be_switched_off(start_broker: StartBroker) -> None:
    """Design OP-3."""
    broker = start_broker(settings={"watchdog": False})
    names = [path.joinpath("comm").read_text().strip() for path in Path(f"/proc/{broker.pid}/task").iterdir()]
    assert len(names) == 1


def connect_when_ready(broker: BrokerProcess) -> RawClient:
    for _ in range(2_000):
        try:
            return broker.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.005)
    raise AssertionError("nobody listens")


def test_watches_are_told_that_the_broker_stops(broker: BrokerProcess) -> None:
    """protocol 11.1.5"""
    session = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "recipientPurpose": "control"}
    with broker.connect() as client:
        client.register(session=session, features=["operator", "watch"], clientProtocolVersion="1.0", kind="custom")
        client.send({"type": "watch", "requestId": "r"})
        begun = client.expect("watching", requestId="r")
        assert broker.stop() == 0
        client.expect("watch_ended", watchId=begun["watchId"], reason="broker_shutdown", seq=begun["seq"])
        client.expect_end()
