"""Take away from a running broker what it stands on, and see what users are told."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from intercom.cli.main import main
from tests.support.brokers import TOP, BrokerProcess, environment
from tests.support.commands import Result, Shell
from tests.support.forking import forked_broker
from tests.support.launching import is_alive, until
from tests.support.processes import OTHER_USER, in_child, needs_root
from tests.support.raw import PATIENCE_S, RawClient, packed

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def shell(home: Path, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(home, tmp_path)
    yield made
    made.close()


def fate(sender: RawClient, message_id: str) -> str:
    """Send to ``b`` and return ``delivered``, or why it was refused."""
    sender.send_message("b", message_id)
    while (frame := sender.receive())["type"] not in ("delivered", "delivery_failed"):
        pass
    assert frame["messageId"] == message_id
    return str(frame.get("reason", "delivered"))


# --- the disk


@pytest.fixture
def small_disk(short_path: Path) -> Iterator[Path]:
    """Give a directory on a file system of one mebibyte."""
    place = short_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this system lets nobody mount anything")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    with open(place / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(4096))


def test_a_disk_that_is_full_costs_nothing_but_the_sends_of_that_time(
    small_disk: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    """F102, F115: refused and told so, everything else goes on; it recovers without a restart."""
    home = small_disk / "home"
    broker = start_broker(home)
    shell = Shell(home, tmp_path)
    with broker.registered("a", returnAddress="A") as sender, broker.registered("b"):
        assert fate(sender, "before") == "delivered"
        fill(small_disk)
        fates = {fate(sender, f"full-{number}") for number in range(40)}
        assert {each.partition(":")[0] for each in fates} <= {"Not recorded", "delivered"}
        assert fate(sender, "full").startswith("Not recorded")
        assert {session["name"] for session in sender.list()} == {"a", "b"}
        with broker.connect() as other:
            other.send_bytes(packed([]))
            other.expect_end()
        refused = shell.run("send", "b", "hello", "--as", "c", "--json")
        assert (refused.status, refused.document["code"]) == (5, "not_recorded")
        assert "disk is full" in shell.run("status").text
        (small_disk / "filler").unlink()
        assert fate(sender, "full") == "delivered"
    assert broker.stop() == 0
    fill(small_disk)
    cannot = shell.run("list", "--json")
    assert (cannot.status, cannot.document["code"]) == (5, "start_failed")
    assert "is full" in cannot.document["reason"] and "room" in cannot.document["hint"]
    (small_disk / "filler").unlink()
    assert shell.run("list").status == 0
    assert shell.run("stop").status == 0


# --- the home


def test_sessions_of_a_home_that_was_deleted_meet_again(shell: Shell, home: Path) -> None:
    """F17: the broker leaves within moments, and everybody finds the next one."""
    listener = shell.listen("worker", "--answer", "cat")
    pid = shell.broker_pid()
    shutil.rmtree(home)
    assert shell.run("ask", "worker", "are you there?").text == "are you there?\n"
    until(lambda: not is_alive(pid))
    assert shell.broker_pid() != pid
    assert listener.process.poll() is None


def test_another_home_in_the_place_of_the_old_one_is_served_by_another_broker(
    broker: BrokerProcess, shell: Shell, home: Path
) -> None:
    """F4, F17: the old broker goes when it notices, and touches nothing there."""
    with broker.registered("a"):
        home.rename(home.with_name("moved"))
        assert shell.run("list", "--json").document["sessions"] == []
        successor = shell.broker_pid()
        assert successor != broker.pid
        assert broker.wait() == 0
    assert shell.broker_pid() == successor


@needs_root
def test_a_home_that_nobody_may_write_or_see(short_path: Path) -> None:
    """F27, F102, F128: in a process without root's rights; the broker goes on, and all is well when it is over."""
    short_path.chmod(0o777)
    home = short_path / "home"
    environ = {**environment(home), "INTERCOM_IDLE_MS": "60000"}

    def run(*arguments: str) -> Result:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main([*arguments, "--json"])
        return Result(status, out.getvalue().encode(), err.getvalue().encode(), arguments[0])

    def play() -> None:
        os.chdir("/")
        os.environ.clear()
        os.environ.update(environ)
        for verb in ("list", "send", "status", "doctor", "stop"):
            run(verb, "--home", "/dev/null/none")  # this user may be unable to read the files of the interpreter
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        pid = forked_broker(home, environ)
        until((home / "broker.pid").exists)
        with RawClient(home / "broker.sock") as sender, RawClient(home / "broker.sock") as target:
            sender.register("a", returnAddress="A")
            target.register("b")
            home.chmod(0o500)
            assert fate(sender, "m-1") == "delivered"
            assert run("status").document["pid"] == pid
            home.chmod(0)
            assert fate(sender, "m-2").partition(":")[0] in ("delivered", "Not recorded")
            for verb in (("list",), ("send", "b", "x"), ("status",), ("stop",)):
                told = run(*verb)
                assert (told.status, told.document["code"]) in ((7, "denied"), (7, "home")), told
            assert run("doctor").status == 1
            home.chmod(0o700)
            assert fate(sender, "m-3") == "delivered"
        assert run("stop").document["pid"] == pid
        os.waitpid(pid, 0)

    in_child(play)


# --- the process


KILLED = """
import os, signal
from intercom.server import app, ownership, serving
from intercom.store import database
def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
def before(place, name):
    setattr(place, name, die)
def after(place, name):
    real = getattr(place, name)
    def real_then_die(*arguments, **options):
        real(*arguments, **options)
        die()
    setattr(place, name, real_then_die)
{moment}
"""


@pytest.mark.parametrize(
    "moment",
    [
        "after(ownership.HomeLock, 'try_acquire')",
        "after(ownership, 'bind')",
        "before(os, 'fchmod')",
        "after(ownership, 'write_pid')",
        "before(database, 'examine')",
        "after(serving, 'open_store')",
        "before(serving.Serving, 'run')",
        "before(serving.Serving, '_close')",
        "after(ownership.Territory, 'give_back')",
        "after(serving.Listener, 'close')",
        "before(ownership.HomeLock, 'release')",
    ],
)
def test_a_broker_killed_at_any_moment_of_its_start_or_end_is_in_nobodys_way(
    start_broker: StartBroker, home: Path, moment: str
) -> None:
    """F1, F10, F11: the next one starts at once, and what it leaves is what every broker leaves."""
    assert start_broker().stop() == 0
    usual = {path.name for path in home.iterdir()}
    killed = start_broker(fault=KILLED.format(moment=moment), settings={"idle_ms": 50}, wait=False)
    assert killed.wait() == -signal.SIGKILL
    broker = start_broker()
    with broker.registered("a", returnAddress="A") as sender, broker.registered("b"):
        assert fate(sender, "m") == "delivered"
    assert broker.stop() == 0
    assert {path.name for path in home.iterdir()} == usual


def test_a_broker_stopped_between_lock_and_socket_is_starting(start_broker: StartBroker, shell: Shell) -> None:
    """F6, F7: nobody takes its place, nobody advises a restart, and it serves when it goes on."""
    stopping = (
        "import signal\nfrom intercom.server import ownership\nbind = ownership.bind\n"
        "def stopped(path):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return bind(path)\nownership.bind = stopped"
    )
    broker = start_broker(fault=stopping, wait=False)
    until(lambda: _is_stopped(broker.pid))
    told = shell.run("list", "--json", "--timeout", "1")
    assert (told.status, told.document["code"]) == (5, "starting")
    assert "restart" not in told.document["hint"]
    broker.signal(signal.SIGCONT)
    broker.wait_until_it_answers()
    assert shell.run("list").status == 0
    assert shell.broker_pid() == broker.pid


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_package_that_is_replaced_under_a_running_broker(short_path: Path, start_broker: StartBroker) -> None:
    """F18: everything it will ever need is loaded once it serves."""
    place = short_path / "package"
    shutil.copytree(TOP / "intercom", place / "intercom", ignore=shutil.ignore_patterns("__pycache__"))
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from intercom.__main__ import run; run()"
    broker = start_broker(command=(sys.executable, "-P", "-c", program, str(place), "serve"))
    shutil.rmtree(place)
    with broker.connect() as sender, broker.registered("b", acknowledgesReceipt=True) as b:
        sender.register("a", returnAddress="A", supervisorOwnerToken="T")
        sender.send_message("b", "m-1", message={"expectsReply": True})
        b.expect("message")
        b.send({"type": "received", "messageId": "m-1"})
        sender.expect("delivered", messageId="m-1")
        sender.send({"type": "cancel_ask", "messageId": "m-1"})
        sender.send({"type": "join_group", "requestId": "1", "group": "g"})
        sender.expect("membership_ack")
        sender.send({"type": "list_groups", "requestId": "2"})
        sender.expect("groups")
        sender.send({"type": "authorize_supervisor", "requestId": "3", "childName": "c"})
        sender.expect("supervisor_authorized")
        sender.send({"type": "presence", "requestId": "4", "name": "\ud83d"})
        sender.expect("presence_ack")
        assert sender.status()["pid"] == broker.pid
    for garbage in (b"\xff\xff\xff\xff", packed({"type": "nonsense"}), b"\0\0\0\1{", b"\0\0\0\2\xff\xff"):
        with broker.connect() as client:
            client.send_bytes(garbage)
            client.expect_end()
    assert broker.stop(PATIENCE_S) == 0
    assert broker.errors == "" and "fatal" not in broker.log
