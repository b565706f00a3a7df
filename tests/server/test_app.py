"""Start and end real broker processes: who serves a home, what they leave behind, how they exit."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.limits import STDERR_BYTES
from intercom.paths import Paths
from intercom.server.ownership import HomeLock
from tests.support.brokers import SERVE, TOP, BrokerProcess, environment, patched
from tests.support.holding import database_held
from tests.support.raw import RawClient

StartBroker = Callable[..., BrokerProcess]

QUICKLY = patched("limits.LOCK_WAIT_MS = 300\nlimits.PROBE_MS = 100")
BUG = patched(
    "from intercom.core.broker import Broker\n"
    "def broken(self, *arguments):\n    raise ZeroDivisionError('x' * 100_000)\n"
    "Broker.frame_received = broken"
)


def inodes(home: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in home.iterdir()}


# --- start


def test_a_broker_serves_its_home_and_leaves_only_what_lasts(broker: BrokerProcess) -> None:
    """Protocol 2.2, 3.1, 3.8."""
    files = {path.name for path in broker.home.iterdir()}
    assert {"broker.sock", "broker.pid", "broker.replace.lock", "intercom.db", "intercom.key", "intercom.log"} <= files
    assert (broker.home / "broker.pid").read_bytes() == str(broker.pid).encode()
    assert broker.stop() == 0
    assert broker.errors == ""
    left = {path.name for path in broker.home.iterdir()}
    assert left == {"broker.replace.lock", "intercom.db", "intercom.key", "intercom.log"}


@pytest.mark.parametrize("umask", ["000", "022", "077", "777"])
def test_every_file_of_a_full_run_is_private(start_broker: StartBroker, umask: str) -> None:
    """F108."""
    broker = start_broker(command=("/bin/sh", "-c", f'umask {umask}; exec "$@"', "sh", *SERVE))
    with broker.registered("a") as sender, broker.registered("b"):
        sender.send_message("b", "m-1")
        sender.expect("delivered")
        modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in broker.home.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert stat.S_IMODE(broker.home.stat().st_mode) == 0o700


def test_a_home_of_any_length_can_be_served(start_broker: StartBroker, short_path: Path) -> None:
    """F19: 102 to 200 bytes, and characters of three bytes."""
    for length in (102, 103, 104, 107, 108, 200):
        missing = length - len(os.fsencode(short_path / "h" / "broker.sock"))
        home = short_path / ("h" * (1 + missing))
        assert len(os.fsencode(home / "broker.sock")) == length
        broker = start_broker(home)
        assert broker.stop() == 0
        assert not broker.socket.exists()
    broker = start_broker(short_path / ("\u4e2d" * 60))
    assert broker.socket.exists() and broker.stop() == 0


def test_the_process_keeps_no_directory_and_no_inheritable_descriptor(start_broker: StartBroker, home: Path) -> None:
    """F13, F17."""
    start = home.parent / "start"
    start.mkdir()
    broker = start_broker(command=("/bin/sh", "-c", f'cd "{start}"; rmdir "{start}"; exec "$@"', "sh", *SERVE))
    with broker.registered("a"):
        assert os.readlink(f"/proc/{broker.pid}/cwd") == "/"
        for entry in Path(f"/proc/{broker.pid}/fdinfo").iterdir():
            flags = int(re.search(r"flags:\s+(\d+)", entry.read_text())[1], 8)  # type: ignore[index]
            assert int(entry.name) <= 2 or flags & os.O_CLOEXEC, os.readlink(f"/proc/{broker.pid}/fd/{entry.name}")
    assert broker.stop() == 0


def test_it_needs_no_standard_descriptors(start_broker: StartBroker) -> None:
    """F14: whatever a spawner did with them."""
    broker = start_broker(command=("/bin/sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *SERVE))
    opened = {number: os.readlink(f"/proc/{broker.pid}/fd/{number}") for number in (0, 1, 2)}
    assert opened == {0: "/dev/null", 1: "/dev/null", 2: "/dev/null"}
    assert broker.stop() == 0


def test_a_trailing_script_path_is_ignored(start_broker: StartBroker, home: Path) -> None:
    """Protocol 2.3."""
    broker = start_broker(arguments=("--home", str(home), "/x/broker.ts"))
    assert broker.stop() == 0


def test_a_home_that_cannot_be_one_is_refused_in_words(start_broker: StartBroker, home: Path) -> None:
    home.write_text("precious")
    broker = start_broker(wait=False)
    assert broker.wait() == 1
    assert str(home) in broker.errors
    assert home.read_text() == "precious"


# --- one broker a home


def test_who_finds_a_broker_ends_well_and_touches_nothing(broker: BrokerProcess, start_broker: StartBroker) -> None:
    """Protocol 3.1; F4: whatever became of the pid file."""
    with broker.connect() as client:
        pid_file = broker.home / "broker.pid"
        for damage in (lambda: None, lambda: pid_file.write_text("garbage"), lambda: os.utime(pid_file, (1, 1))):
            damage()
            before = inodes(broker.home)
            second = start_broker(wait=False)
            assert second.wait() == 0
            assert "answers" in second.errors
            assert inodes(broker.home) == before
        pid_file.unlink()
        assert start_broker(wait=False).wait() == 0
        client.health()


def test_another_spelling_of_the_home_is_the_same_home(broker: BrokerProcess, start_broker: StartBroker) -> None:
    """F5, F22."""
    link = broker.home.with_name("link")
    link.symlink_to(broker.home)
    before = inodes(broker.home)
    for spelling in (link, broker.home / ".." / broker.home.name):
        assert start_broker(spelling, wait=False).wait() == 0
    assert inodes(broker.home) == before


def test_a_crowd_of_starts_leaves_one_broker(start_broker: StartBroker, home: Path) -> None:
    """F1: after a crash, with its socket and pid file left behind."""
    first = start_broker()
    first.kill()
    assert first.socket.exists()
    crowd = [start_broker(wait=False) for _ in range(8)]
    with RawClientWhenReady(crowd[0].socket) as client:
        serving = client.status()["pid"]
    losers = [broker for broker in crowd if broker.pid != serving]
    assert len(losers) == 7
    assert [broker.wait() for broker in losers] == [0] * 7
    (winner,) = [broker for broker in crowd if broker.pid == serving]
    assert (home / "broker.pid").read_text() == str(serving)
    assert winner.stop() == 0


class RawClientWhenReady(RawClient):
    """Connect as soon as somebody listens."""

    def __init__(self, path: Path) -> None:
        for _ in range(2_000):
            try:
                super().__init__(path)
            except (FileNotFoundError, ConnectionRefusedError):
                self.socket.close()
                with subprocess.Popen(["sleep", "0.005"]):
                    pass
            else:
                return
        raise AssertionError("nobody listens")


def test_a_lock_held_elsewhere_ends_the_start_with_its_holder(start_broker: StartBroker, home: Path) -> None:
    """Design section 7, Locks; F5."""
    home.mkdir()
    lock = HomeLock(home / "broker.replace.lock")
    assert lock.try_acquire()
    (home / "broker.pid").write_text("4242")
    before = inodes(home)
    broker = start_broker(command=QUICKLY, wait=False)
    assert broker.wait() == 5
    assert "4242" in broker.errors and str(broker.socket) in broker.errors
    assert inodes(home) == before
    lock.release()


def test_a_store_held_elsewhere_ends_the_start_too(start_broker: StartBroker, home: Path) -> None:
    """F5, F7: who began all the same would refuse for as long as it lives; who wanted a broker tries again."""
    assert start_broker().stop() == 0
    with database_held(home / "intercom.db") as holder:
        before = {path.name for path in home.iterdir()}
        broker = start_broker(fault="from intercom.store import database\ndatabase.OPEN_BUSY_MS = 1", wait=False)
        assert broker.wait() == 5
        assert f"{home / 'intercom.db'} is held by process {holder}" in broker.errors
        assert {path.name for path in home.iterdir()} == before
    assert start_broker().stop() == 0


def test_a_stopped_broker_is_busy_and_stays_the_broker(broker: BrokerProcess, start_broker: StartBroker) -> None:
    """F6, F26: no unlink, no second broker; it goes on when it is continued."""
    with broker.registered("a") as client:
        broker.signal(signal.SIGSTOP)
        before = inodes(broker.home)
        assert start_broker(command=QUICKLY, wait=False).wait() == 5
        assert inodes(broker.home) == before
        broker.signal(signal.SIGCONT)
        client.health()


@pytest.mark.parametrize("content", ["", "abc", "-1", "0", "999999999999", "\0\0", "x" * (1 << 20)])
def test_leftover_files_mean_nothing(start_broker: StartBroker, home: Path, content: str) -> None:
    """F10, F11."""
    home.mkdir()
    (home / "broker.pid").write_text(content or str(os.getpid()))
    (home / "broker.replace.lock").write_text(content)
    broker = start_broker()
    assert (home / "broker.pid").read_text() == str(broker.pid)


@pytest.mark.parametrize("name", ["broker.sock", "broker.pid", "broker.replace.lock"])
def test_a_directory_in_the_way_is_named_and_kept(start_broker: StartBroker, home: Path, name: str) -> None:
    """F11, F24."""
    (home / name).mkdir(parents=True)
    broker = start_broker(wait=False)
    assert broker.wait() == 1
    assert str(home / name) in broker.errors
    assert (home / name).is_dir()
    assert not broker.socket.is_socket()
    (home / name).rmdir()
    assert start_broker().stop() == 0


def test_a_file_at_the_path_of_the_socket_is_kept(start_broker: StartBroker, home: Path) -> None:
    """F24."""
    home.mkdir()
    (home / "broker.sock").write_text("precious")
    broker = start_broker(wait=False)
    assert broker.wait() == 1
    assert "is not a socket" in broker.errors
    assert (home / "broker.sock").read_text() == "precious"


def test_the_library_never_binds_or_unlinks_for_us() -> None:
    """F23."""
    for source in (TOP / "intercom").rglob("*.py"):
        assert "unix_server" not in source.read_text(), source


# --- end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_is_obeyed(broker: BrokerProcess, number: int) -> None:
    """Protocol 3.1, 3.9."""
    broker.signal(number)
    assert broker.wait() == 0
    stopping = [json.loads(line) for line in broker.log.splitlines() if '"stopping"' in line]
    assert [line["reason"] for line in stopping] == [signal.Signals(number).name]


def test_a_hangup_is_ignored(broker: BrokerProcess) -> None:
    """F15."""
    broker.signal(signal.SIGHUP)
    with broker.connect() as client:
        assert client.status()["pid"] == broker.pid


def test_a_signal_during_the_start_ends_it_cleanly(start_broker: StartBroker, home: Path) -> None:
    """F15: a half-started broker either completes or cleans up."""
    slow = patched(
        "import signal\nfrom intercom.server import ownership\nbind = ownership.bind\n"
        "def told(path):\n    sock = bind(path)\n    os.kill(os.getpid(), signal.SIGTERM)\n    return sock\n"
        "ownership.bind = told"
    )
    broker = start_broker(command=slow, wait=False)
    assert broker.wait() == 0
    assert not broker.socket.exists() and not (home / "broker.pid").exists()


def test_a_bug_ends_the_process_at_once_with_its_traceback(start_broker: StartBroker, home: Path) -> None:
    """Protocol 2.2, 3.9: exit 1, within the cap of standard error."""
    broker = start_broker(command=BUG, wait=False)
    with RawClientWhenReady(broker.socket) as client:
        client.send({"type": "health", "requestId": "1"})
        client.expect_end()
    assert broker.wait() == 1
    assert broker.errors.startswith("Traceback") and len(broker.errors.encode()) == STDERR_BYTES
    fatal = [json.loads(line) for line in broker.log.splitlines() if '"fatal"' in line]
    assert "ZeroDivisionError" in fatal[0]["reason"]
    assert not broker.socket.exists() and not (home / "broker.pid").exists()
    assert start_broker().stop() == 0


@pytest.mark.parametrize(("limit", "told"), [("-n 24", "only 24 files"), ("-f 1000", "only 512000 bytes")])
def test_a_process_that_may_have_too_little_says_so(
    start_broker: StartBroker, home: Path, limit: str, told: str
) -> None:
    """F102, F114: it would look like one that starts and serve nobody, or refuse every send after a while."""
    broker = start_broker(command=("/bin/sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *SERVE), wait=False)
    assert broker.wait() == 1
    assert told in broker.errors
    assert not broker.socket.exists() and not (home / "broker.pid").exists()


def test_a_limit_that_may_be_lifted_is_lifted(start_broker: StartBroker) -> None:
    """F102, F114."""
    broker = start_broker(command=("/bin/sh", "-c", 'ulimit -S -f 1000 -n 24; exec "$@"', "sh", *SERVE))
    table = Path(f"/proc/{broker.pid}/limits").read_text().splitlines()
    soft = {line[:25].strip(): int(line[25:].split()[0]) for line in table if line.startswith("Max open files")}
    assert soft["Max open files"] > 24
    assert not any(line.startswith("Max file size") and line.split()[3] == "512000" for line in table)


def test_settings_that_are_none_are_refused(start_broker: StartBroker, home: Path) -> None:
    home.mkdir()
    (home / "intercom.toml").write_text("idle = 3\n")
    broker = start_broker(wait=False)
    assert broker.wait() == 1
    assert "intercom.toml" in broker.errors and "idle" in broker.errors


@pytest.mark.loads
def test_a_loser_loads_neither_event_loop_nor_store(broker: BrokerProcess) -> None:
    """Many clients may start a broker at once; those that find one must be gone quickly."""
    code = (
        "import sys; from pathlib import Path; from intercom.server.app import main\n"
        "status = main(Path(sys.argv[1]))\n"
        "sys.exit(status or len({'asyncio', 'sqlite3', 'anyio', 'rich'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(broker.home)]
    result = subprocess.run(command, env=environment(broker.home), capture_output=True, check=False, timeout=20)
    assert result.returncode == 0, result.stderr


def test_the_paths_of_the_tests_are_those_of_the_package(broker: BrokerProcess) -> None:
    assert broker.socket == Paths(broker.home).socket
