"""Embed real brokers, in this process and in programs that watch what became of theirs."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import trio

import intercom
from intercom import blocking
from intercom.errors import BrokerError, ConfigError, HomeError, StartFailed, UsageError
from intercom.server import serving
from intercom.server.embedded import EmbeddedBroker
from intercom.server.ownership import HomeLock
from tests.support.brokers import BrokerProcess, environment
from tests.support.commands import Shell
from tests.support.processes import complaints
from tests.support.raw import PATIENCE_S, RawClient

StartBroker = Callable[..., BrokerProcess]


def events(home: Path, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (home / "intercom.log").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


def test_a_program_serves_for_the_length_of_a_block(home: Path) -> None:
    with intercom.serve(home) as broker:
        assert broker.running and broker.home == str(home) and broker.stop_reason is None
        with RawClient(broker.socket) as client:
            report = client.status()
        assert report["pid"] == os.getpid()
        assert report["broker"]["embedded"] is True and report["broker"]["startedBy"]
        with blocking.connect("a", home=home, start=False) as a, blocking.connect("b", home=home, start=False) as b:
            with pytest.raises(intercom.TargetNotFound):
                a.send("nobody", "x")
            asker = threading.Thread(target=lambda: answers.append(a.ask("b", "2+2")))
            answers: list[intercom.IncomingMessage] = []
            asker.start()
            message = b.receive(timeout=PATIENCE_S)
            assert message is not None
            message.reply("4")
            asker.join()
            assert answers[0].text == "4"
    assert not broker.running and broker.stop_reason is not None
    assert {path.name for path in home.iterdir()} & {"broker.sock", "broker.pid"} == set()
    with intercom.serve(home):  # the home is free again
        pass


def test_in_a_program_with_a_thousand_open_files(home: Path) -> None:
    """The descriptor of the loop's selector is then beyond what ``select`` takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    files: list[int] = []
    try:
        while not files or files[-1] < 1_024:
            files.append(os.dup(2))
        with intercom.serve(home) as broker, RawClient(broker.socket) as a, RawClient(broker.socket) as b:
            a.register("a")
            b.register("b")
            a.send_message("b", "m1")
            b.expect("message")
            a.expect("delivered", messageId="m1")
    finally:
        for descriptor in files:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_inside_a_running_loop_of_asyncio_and_of_trio(home: Path) -> None:
    async def converse() -> None:
        async with (
            intercom.serve(home, settings={"durability": "memory"}) as broker,
            intercom.connect("a", home=home, start=False) as a,
            intercom.connect("b", home=home, start=False) as b,
            anyio.create_task_group() as tasks,
        ):

            async def answer() -> None:
                async for message in b.messages():
                    await message.reply("pong")
                    return

            tasks.start_soon(answer)
            assert (await a.ask("b", "ping", timeout=PATIENCE_S)).text == "pong"
            assert broker.running

    asyncio.run(converse())
    trio.run(converse)
    asyncio.run(converse())


def test_in_a_thread_that_is_not_the_first(home: Path) -> None:
    """F136."""
    seen: list[int] = []

    def run() -> None:
        with intercom.serve(home) as broker, RawClient(broker.socket) as client:
            seen.append(client.status()["pid"])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [os.getpid()]


def test_several_homes_in_one_process(short_path: Path) -> None:
    with (
        intercom.serve(short_path / "one") as one,
        intercom.serve(short_path / "two") as two,
        RawClient(one.socket) as first,
        RawClient(two.socket) as second,
    ):
        assert first.health() != second.health()


def test_a_program_that_is_busy_delays_nobody(home: Path) -> None:
    async def block() -> None:
        async with intercom.serve(home) as broker:
            with RawClient(broker.socket) as client:  # blocks the loop of the program until the broker has answered
                client.health()

    asyncio.run(block())


def test_it_stays_while_nobody_is_there(home: Path) -> None:
    """Protocol 3.6 is about a process of its own."""
    with intercom.serve(home, settings={"idle_ms": 50}) as broker:
        with RawClient(broker.socket) as client:
            client.register("a")
        assert not broker.wait(0.5)
        with RawClient(broker.socket) as client:
            client.health()


# --- ownership: errors instead of exit statuses


def test_who_finds_a_broker_is_told_and_touches_nothing(broker: BrokerProcess) -> None:
    """Protocol 3.1."""
    before = sorted((path.name, path.stat().st_ino) for path in broker.home.iterdir())
    with pytest.raises(StartFailed) as refused, intercom.serve(broker.home):
        pass
    assert refused.value.code == "already_served"
    assert sorted((path.name, path.stat().st_ino) for path in broker.home.iterdir()) == before
    with broker.connect() as client:
        client.health()


def test_twice_in_one_process_is_refused_too(home: Path) -> None:
    with intercom.serve(home) as first:
        with pytest.raises(StartFailed) as refused, intercom.serve(home):
            pass
        assert refused.value.code == "already_served"
        assert first.running
        with RawClient(first.socket) as client:
            client.health()


def test_another_process_finds_the_embedded_broker(home: Path, start_broker: StartBroker) -> None:
    """Design section 7, Locks."""
    with intercom.serve(home):
        assert start_broker(wait=False).wait() == 0


def test_a_lock_held_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from intercom.server import ownership

    home.mkdir()
    lock = HomeLock(home / "broker.replace.lock")
    assert lock.try_acquire()
    take_lock = ownership.take_lock
    monkeypatch.setattr(ownership, "take_lock", lambda paths, gave_up: take_lock(paths, wait_ms=50, gave_up=gave_up))
    with pytest.raises(StartFailed) as refused, intercom.serve(home):
        pass
    assert (refused.value.code, refused.value.retry, refused.value.exit_status) == ("held_elsewhere", "after", 5)
    lock.release()


def test_something_else_at_the_path_is_kept(home: Path) -> None:
    """F24."""
    home.mkdir()
    (home / "broker.sock").write_text("precious")
    with pytest.raises(StartFailed, match="is not a socket") as refused, intercom.serve(home):
        pass
    assert refused.value.code == "cannot_serve"
    assert (home / "broker.sock").read_text() == "precious"


def test_settings_and_homes_that_are_none(home: Path) -> None:
    for wrong in ({"idle": 3}, {"idle_ms": "soon"}, {"durability": "maybe"}):
        with pytest.raises(ConfigError, match="settings: "):
            intercom.serve(home, settings=wrong)
    with pytest.raises(HomeError), intercom.serve("/tmp"):
        pass
    home.mkdir()
    (home / "intercom.toml").write_text("idle = 3\n")
    with pytest.raises(ConfigError, match="idle"), intercom.serve(home):
        pass


def test_one_block_each(home: Path) -> None:
    broker = intercom.serve(home)
    with broker:
        pass
    with pytest.raises(UsageError), broker:
        pass


# --- ends


def test_a_stop_from_outside_is_obeyed_and_seen(home: Path, tmp_path: Path) -> None:
    """The command returns when the broker is gone, although its process is not."""
    shell = Shell(home, tmp_path)
    with intercom.serve(home) as broker:
        done = shell.run("stop", "--json")
        assert (done.status, done.document["pid"]) == (0, os.getpid())
        assert broker.wait(PATIENCE_S)
        assert not broker.running and broker.stop_reason == "a client asked for it"
        assert shell.run("status").status == 5
    shell.close()


def test_a_restart_moves_the_sessions_to_a_process(home: Path, tmp_path: Path) -> None:
    shell = Shell(home, tmp_path)
    with intercom.serve(home):
        listener = shell.listen("worker")
        done = shell.run("restart", "--json")
        assert done.status == 0, done
        assert done.document["old"]["pid"] == os.getpid() != done.document["new"]["pid"]
        assert [session["state"] for session in done.document["sessions"]] == ["back"]
        listener.close()
        shell.close()


def test_waiting_for_the_end_may_be_cancelled(home: Path) -> None:
    async def wait() -> None:
        async with intercom.serve(home) as broker:
            with anyio.move_on_after(0.01) as scope:
                await broker.wait_ended()
            assert scope.cancelled_caught
            with RawClient(broker.socket) as client:
                client.send({"type": "shutdown", "requestId": "s"})
            with anyio.fail_after(PATIENCE_S):
                await broker.wait_ended()

    asyncio.run(wait())
    trio.run(wait)


def test_a_cancelled_block_gives_the_home_back(home: Path) -> None:
    async def cancelled() -> None:
        with anyio.move_on_after(0) as scope:
            async with intercom.serve(home):
                await anyio.sleep_forever()
        assert scope.cancelled_caught

    for backend in ("asyncio", "trio"):
        anyio.run(cancelled, backend=backend)
        assert not (home / "broker.sock").exists()
        with intercom.serve(home):
            pass


def test_a_cancelled_start_waits_for_no_lock(home: Path) -> None:
    home.mkdir()
    lock = HomeLock(home / "broker.replace.lock")
    assert lock.try_acquire()

    async def start() -> None:
        with anyio.move_on_after(0.05) as scope:
            async with intercom.serve(home):
                raise AssertionError("the lock was held")
        assert scope.cancelled_caught

    began = time.monotonic()
    asyncio.run(start())
    assert time.monotonic() - began < 5  # the lock would be waited for 10 s
    lock.release()


def test_an_error_of_the_block_is_the_one_that_is_raised(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), intercom.serve(home):
        _ = 1 / 0


def test_a_bug_ends_the_broker_and_not_the_program(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Protocol 3.9 is about a process of its own; the traceback is in the log, not on the program's standard error."""

    def fails(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(serving.Broker, "frame_received", fails)
    with pytest.raises(BrokerError) as ended, intercom.serve(home) as broker:
        with RawClient(broker.socket) as client:
            client.send({"type": "health", "requestId": "1"})
            client.expect_end()
        assert broker.wait(PATIENCE_S)
    assert ended.value.code == "internal"
    assert "ZeroDivisionError" in str(events(home, "fatal")[0]["traceback"])
    assert capfd.readouterr() == ("", "")
    assert not (home / "broker.sock").exists()


def test_a_loop_that_stands_still_is_told_and_survives(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design OP-3, in a process that is another's: the watchdog writes tracebacks and ends nothing."""
    from intercom.server import watchdog

    monkeypatch.setattr(watchdog, "WATCHDOG_TICK_MS", 10)
    monkeypatch.setattr(watchdog, "WATCHDOG_LATE_MS", 1_000)
    stuck, let_go = threading.Event(), threading.Event()
    connection_opened = serving.Broker.connection_opened

    def stand_still(self: serving.Broker, *arguments: object) -> object:
        stuck.set()
        let_go.wait(PATIENCE_S)
        return connection_opened(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(serving.Broker, "connection_opened", stand_still)
    with intercom.serve(home) as broker:
        with RawClient(broker.socket) as client:
            assert stuck.wait(PATIENCE_S)
            deadline = time.monotonic() + PATIENCE_S
            while not events(home, "stalled"):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            let_go.set()
            client.health()
        assert broker.running
    assert "stand_still" in str(events(home, "stalled")[0]["stacks"])


def test_a_disk_that_does_not_answer_keeps_the_lock(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores must never be open at once, so a successor waits; the program is told and goes on."""
    from intercom.server import embedded
    from intercom.store.database import Store

    monkeypatch.setattr(embedded, "STOP_WAIT_MS", 2_500)
    armed, hangs, answers = threading.Event(), threading.Event(), threading.Event()
    commit = Store.commit

    def hang(self: Store, batch: object) -> int:
        if armed.is_set():
            hangs.set()
            answers.wait(6 * PATIENCE_S)
        commit(self, batch)  # type: ignore[arg-type]
        return 1_000_000  # a slow disk, so that the next commit is the business of the writer's thread

    monkeypatch.setattr(Store, "commit", hang)
    broker = intercom.serve(home)
    with pytest.raises(intercom.RequestTimeout), broker, RawClient(broker.socket) as a, RawClient(broker.socket) as b:
        a.register("a")
        b.register("b")
        a.send_message("b", "m1")
        a.expect("delivered")
        armed.set()
        a.send_message("b", "m2")
        assert hangs.wait(PATIENCE_S)
    assert not (home / "broker.sock").exists()
    assert not HomeLock(home / "broker.replace.lock").try_acquire()
    answers.set()
    assert broker.wait(PATIENCE_S)
    lock = HomeLock(home / "broker.replace.lock")
    assert lock.try_acquire()
    lock.release()


# --- what belongs to the process


GUEST = """
import asyncio, gc, json, logging, os, resource, signal, socket, sys, threading
import intercom

class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        raise RuntimeError("the policy of the program is for the loops of the program")

def handler(*_): pass
signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
asyncio.set_event_loop_policy(policy := Policy())
resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
logging.getLogger().addHandler(logging.StreamHandler())
os.umask(0o027)

def state():
    mask = os.umask(0o027)
    return {
        "signals": {n: str(signal.getsignal(n)) for n in range(1, 32) if n not in (9, 19)},
        "wakeup": signal.set_wakeup_fd(-1),
        "logging": [len(logging.root.handlers), logging.root.level, logging.root.manager.disable],
        "policy": asyncio.get_event_loop_policy() is policy,
        "cwd": os.getcwd(),
        "umask": mask,
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "stderr": sys.stderr is sys.__stderr__,
        "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
    }

before = state()
with intercom.serve(sys.argv[1]) as broker:
    during = state()
    for _ in range(20):  # peers that vanish while they are written to
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(broker.socket)
        info = {"cwd": "/", "model": "", "pid": 1, "startedAt": 1, "lastActivity": 1}
        frame = json.dumps({"type": "register", "session": info}).encode()
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        peer.close()
    descriptors = len(os.listdir("/proc/self/fd"))
after = state()
print(json.dumps([before == during == after, before, during, after]))
print(len(threading.enumerate()), os.listdir("/proc/self/fd").__len__() <= descriptors)
"""


def test_what_belongs_to_the_process_is_left_alone(home: Path) -> None:
    """Signals, logging, loop policy, directory, mode, limits, collector, standard error."""
    done = subprocess.run(
        [sys.executable, "-c", GUEST, str(home)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, ""), done
    first, second = done.stdout.splitlines()
    same, *states = json.loads(first)
    assert same, states
    assert second == "1 True"


def test_a_program_that_ends_without_leaving_the_block_crashes_like_a_broker(home: Path) -> None:
    """Nothing hangs at the end of the interpreter, and the next broker takes over."""
    code = "import intercom, sys; broker = intercom.serve(sys.argv[1]); broker.__enter__(); print(flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)], env=environment(home), capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    with intercom.serve(home) as broker, RawClient(broker.socket) as client:
        client.health()


def test_a_forked_child_leaves_the_block_alone(home: Path) -> None:
    with intercom.serve(home) as broker:
        code = (
            "import os, sys, intercom, warnings\n"
            "warnings.simplefilter('ignore')\n"
            "with intercom.serve(sys.argv[1]) as broker:\n"
            "    child = os.fork()\n"
            "    if child:\n"
            "        assert os.waitpid(child, 0)[1] == 0\n"
            "        assert broker.running\n"
        )
        other = home.with_name("other")
        done = subprocess.run(
            [sys.executable, "-c", code, str(other)], env=environment(home), capture_output=True, timeout=9, check=False
        )
        assert (done.returncode, complaints(done.stderr)) == (0, "")
        assert broker.running
    assert not (other / "broker.sock").exists()


@pytest.mark.loads
def test_nothing_of_it_is_loaded_before_it_is_used() -> None:
    code = "import sys, intercom; intercom.connect; print({'sqlite3', 'intercom.server'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_public_type_is_the_one_that_is_returned(home: Path) -> None:
    assert isinstance(intercom.serve(home), EmbeddedBroker)
    assert intercom.EmbeddedBroker is EmbeddedBroker
