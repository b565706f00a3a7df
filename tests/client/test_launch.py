"""Find the broker or start one: one winner, nobody fails, every kind of trouble by its name."""

from __future__ import annotations

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

import pytest

from intercom.client import control, spawning
from intercom.client.launch import Launch
from intercom.client.setup import now
from intercom.errors import AccessDenied, BrokerBusy, BrokerError, BrokerStarting, HomeError, NoBroker, StartFailed
from intercom.locks import FileLock
from intercom.paths import Paths, prepare_home
from tests.support.commands import listen_to_signals
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.launching import has_text, is_alive, run, until

PATIENCE_MS = 10_000

CLIENT = """
import sys
from intercom.client import blocking
with blocking.connect(sys.argv[2], home=sys.argv[1]) as session:
    print(session.id, flush=True)
    sys.stdin.read()
"""


def runs(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let every broker that is started be this code."""
    monkeypatch.setattr(spawning, "command", lambda paths: [sys.executable, "-c", code])


def answers_health(link: FakeLink, number: int) -> None:
    try:
        request = link.receive()
        link.send({"type": "health", "requestId": request["requestId"], "instanceId": "fake"})
        link.wait_for_end()
    except Exception:
        return


@contextmanager
def held(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    assert lock.try_acquire()
    try:
        yield
    finally:
        lock.release()


def closed(descriptor: int) -> None:
    os.close(descriptor)


def client(paths: Paths, name: str, **options: object) -> subprocess.Popen[str]:
    started: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(paths.home), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_signals,
        **options,  # type: ignore[call-overload]
    )
    return started


def test_a_broker_that_is_there_is_used(paths: Paths) -> None:
    with FakeBroker(paths.socket, lambda link, number: None):
        closed(run(Launch(paths, start=False, now=now)))
    assert not paths.spawn_lock.exists()


def test_without_a_broker_and_without_starting(paths: Paths) -> None:
    with pytest.raises(NoBroker):
        run(Launch(paths, start=False, now=now))
    assert not paths.home.exists(), "looking creates nothing"


def test_a_broker_is_started_and_answers(paths: Paths) -> None:
    """F6: readiness is an answer; the home is made 0700, and no child is left."""
    closed(run(Launch(paths, start=True, now=now)))
    assert control.health(paths)
    assert paths.home.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_full_backlog_starts_nothing(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F26: busy is not dead; no unlink, no second broker."""
    prepare_home(paths)
    runs(monkeypatch, "raise SystemExit(9)")
    waiting = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(paths.socket))
        listener.listen(0)
        try:
            with pytest.raises(BrokerBusy):
                while True:
                    waiting.append(run(Launch(paths, start=True, now=now, wait_ms=100)))
        finally:
            for descriptor in waiting:
                os.close(descriptor)
        assert paths.socket.exists()
        assert not paths.stderr_log.exists()


def test_a_broker_that_is_there_and_silent_is_never_replaced(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """F6, F26: whoever has the right to start one looks first, and only an absent broker is started."""
    prepare_home(paths)
    mark = short_path / "mark"
    runs(monkeypatch, f"open({str(mark)!r}, 'w')")
    launch = Launch(paths, start=True, now=now, wait_ms=1_500)
    with held(paths.spawn_lock):
        steps = launch.steps()
        time.sleep(next(steps))

    def silent(link: FakeLink, number: int) -> None:
        link.wait_for_end()

    with FakeBroker(paths.socket, silent, connections=1), pytest.raises(BrokerBusy):
        while True:
            time.sleep(next(steps))
    assert not mark.exists()


def test_a_denial_starts_nothing(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F27: no spawn, no retry loop."""

    def refuse(*arguments: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    started = time.monotonic()
    with pytest.raises(AccessDenied):
        run(Launch(paths, start=True, now=now))
    assert time.monotonic() - started < 1
    assert not paths.home.exists()


def test_a_home_that_cannot_be_made(paths: Paths) -> None:
    paths.home.write_text("in the way")
    with pytest.raises(HomeError):
        run(Launch(paths, start=True, now=now))


def test_a_home_that_cannot_be_locked(paths: Paths) -> None:
    prepare_home(paths)
    paths.spawn_lock.mkdir()
    with pytest.raises(HomeError, match="spawn"):
        run(Launch(paths, start=True, now=now))


def test_a_broker_that_dies_is_told_with_its_words(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F7: one clear error with the reason."""
    runs(monkeypatch, "import sys; sys.stderr.write('no room\\n'); raise SystemExit(3)")
    with pytest.raises(StartFailed, match=r"status 3 [\s\S]*no room"):
        run(Launch(paths, start=True, now=now))


def test_a_crowd_shares_a_failed_start(paths: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """F7: those who wait for a start that fails fail with it; not one broker after the other is started."""
    count, gate = short_path / "count", short_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    runs(monkeypatch, f"open({str(count)!r}, 'a').write('x\\n')\n{waits}raise SystemExit('no room')")
    crowd = [Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS).steps() for _ in range(4)]
    while not has_text(count):
        time.sleep(next(crowd[0]))
    for steps in crowd[1:]:
        time.sleep(next(steps))
        next(steps)
    gate.touch()
    for steps in crowd:
        with pytest.raises(StartFailed, match="no room"):
            while True:
                time.sleep(next(steps))
    assert count.read_text() == "x\n"
    with pytest.raises(StartFailed):
        run(Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS))
    assert count.read_text() == "x\nx\n", "who comes later tries anew"


def test_a_slow_broker_is_starting(paths: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """F7: while the spawned pid is alive it is starting, and the text never suggests a restart."""
    file = short_path / "pid"
    runs(monkeypatch, f"import os, signal; print(os.getpid(), file=open({str(file)!r}, 'w')); signal.pause()")
    launch = Launch(paths, start=True, now=now, wait_ms=400)
    with pytest.raises(BrokerStarting) as caught:
        run(launch)
    assert "restart" not in f"{caught.value.reason} {caught.value.hint}"
    until(lambda: has_text(file))
    pid = int(file.read_text())
    assert is_alive(pid), "giving up does not end it"
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))


def test_a_loser_attaches_to_the_winner(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: the own child exits 0 because another broker answers, a little later."""
    runs(monkeypatch, "raise SystemExit(0)")
    launch = Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS)
    steps = launch.steps()
    while not paths.stderr_log.exists():
        time.sleep(next(steps))
    with FakeBroker(paths.socket, answers_health):
        try:
            while True:
                time.sleep(next(steps))
        except StopIteration as found:
            found.value.close()


def test_a_broker_that_left_for_one_that_is_gone_is_started_again_and_not_for_ever(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """F7: at most N spawns."""
    count = short_path / "count"
    runs(monkeypatch, f"open({str(count)!r}, 'a').write('x')")
    with pytest.raises(BrokerStarting):
        run(Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS))
    assert count.read_text() == "xxx"


def test_a_home_held_by_another_process_is_busy(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 9: serve ends with 5 when the lock is held elsewhere."""
    runs(monkeypatch, "import sys; sys.stderr.write('held by pid 1\\n'); raise SystemExit(5)")
    with pytest.raises(BrokerBusy, match="held by pid 1"):
        run(Launch(paths, start=True, now=now, wait_ms=400))


def test_while_another_starts_one_it_waits(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F7: later callers join the same attempt."""
    prepare_home(paths)
    runs(monkeypatch, "raise SystemExit(9)")
    with held(paths.spawn_lock):
        with pytest.raises(BrokerStarting):
            run(Launch(paths, start=True, now=now, wait_ms=200))
        launch = Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS)
        steps = launch.steps()
        time.sleep(next(steps))
        with FakeBroker(paths.socket, answers_health):
            try:
                while True:
                    time.sleep(next(steps))
            except StopIteration as found:
                found.value.close()


def test_when_the_other_gives_up_it_starts_one_itself(paths: Paths) -> None:
    prepare_home(paths)
    lock = FileLock(paths.spawn_lock)
    assert lock.try_acquire()
    launch = Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS)
    steps = launch.steps()
    for _ in range(3):
        time.sleep(next(steps))
    lock.release()
    try:
        while True:
            time.sleep(next(steps))
    except StopIteration as found:
        found.value.close()
    assert control.health(paths)


def test_an_accepting_broker_that_stays_silent_is_not_ready(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """F6: a connection is no answer."""
    file = short_path / "pid"
    runs(monkeypatch, f"import os, signal; print(os.getpid(), file=open({str(file)!r}, 'w')); signal.pause()")
    launch = Launch(paths, start=True, now=now, wait_ms=2_500)
    steps = launch.steps()
    while not paths.stderr_log.exists():
        time.sleep(next(steps))

    def silent(link: FakeLink, number: int) -> None:
        link.wait_for_end()

    with FakeBroker(paths.socket, silent), pytest.raises(BrokerBusy):
        while True:
            time.sleep(next(steps))
    until(lambda: has_text(file))
    os.kill(int(file.read_text()), signal.SIGKILL)


def test_stopping_midway_lets_everything_go(paths: Paths) -> None:
    """The lock is free again, no child is left, and what was started goes on."""
    launch = Launch(paths, start=True, now=now, wait_ms=PATIENCE_MS)
    steps = launch.steps()
    while not paths.stderr_log.exists():
        time.sleep(next(steps))
    steps.close()
    with held(paths.spawn_lock):
        pass
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    until(lambda: answers(paths))


def answers(paths: Paths) -> bool:
    try:
        return bool(control.health(paths))
    except BrokerError:
        return False


def test_many_clients_start_one_broker(paths: Paths) -> None:
    """F1: one winner among any number of clients, the losers attach to it; a stale socket lies there."""
    prepare_home(paths)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(paths.socket))
    clients = [client(paths, f"c{number}x") for number in range(6)]
    try:
        for started in clients:
            assert started.stdout is not None
            assert started.stdout.readline().strip(), started.communicate()
        report = control.broker_status(paths)
        assert report["sessions"] == 6
    finally:
        for started in clients:
            started.communicate("")
    assert [started.returncode for started in clients] == [0] * 6


def test_threads_of_one_process_start_one_broker(paths: Paths) -> None:
    found: list[int] = []

    def find() -> None:
        found.append(run(Launch(paths, start=True, now=now)))

    threads = [threading.Thread(target=find) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_MS / 1000)
    assert len(found) == 4
    for descriptor in found:
        os.close(descriptor)


def test_the_first_client_ends_although_the_broker_stays(paths: Paths) -> None:
    """F14: whoever reads the client's output to its end is not kept by the broker."""
    read, write = os.pipe()
    started = client(paths, "first", pass_fds=[write])
    os.close(write)
    with os.fdopen(read, "rb") as extra:
        output, errors = started.communicate("", timeout=20)
        assert extra.read() == b""
    assert (started.returncode, errors) == (0, "")
    assert output
    assert control.health(paths)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_signals_to_the_group_of_the_client_do_not_reach_the_broker(paths: Paths, number: int) -> None:
    """F15: Ctrl-C and a closed terminal end the client only."""
    started = client(paths, "first", start_new_session=True)
    assert started.stdout is not None
    assert started.stdout.readline().strip()
    pid = control.broker_status(paths)["pid"]
    os.killpg(started.pid, number)
    started.communicate()
    assert started.returncode != 0
    assert control.broker_status(paths)["pid"] == pid
