"""Test ``intercom broker drain`` with real processes (FE 4.11)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from intercom.cli import broker
from intercom.client import blocking
from intercom.client.control import shutdown
from intercom.limits import Limits
from intercom.paths import Paths
from intercom.wire.frames import BrokerDrained
from tests.support.brokers import TOP
from tests.support.commands import Running, Shell, is_alive

WORKER = """
import sys
from intercom.client import blocking
with blocking.connect("w", address=True, durable=True, home=sys.argv[1], start=False) as session:
    for command in session.commands(timeout=20):
        print("begun", command.id, flush=True)
        sys.stdin.readline()
        command.done()
        session.drain(timeout=20)
        print("done", flush=True)
        break
"""

BUSY_BLOCKING = """
import select, sys
from pathlib import Path
from intercom.client import blocking
home = Path(sys.argv[1])
with blocking.connect("w", address=True, durable=True, home=home, start=False) as session:
    for command in session.commands(timeout=40):
        print("begun", command.id, (home / "broker.pid").read_text().strip(), flush=True)
        reported = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            session.receive(timeout=0.002)
            session.report_event("progress", {"of": command.id, "n": reported})
            reported += 1
        sys.stdin.readline()
        command.done(str(reported))
        print("done", command.id, reported, flush=True)
"""
BUSY_ANYIO = """
import anyio, sys
from pathlib import Path
from intercom.client import aio

async def main():
    home = Path(sys.argv[1])
    async with aio.connect("w", address=True, durable=True, home=home, start=False) as session:
        async for command in session.commands():
            print("begun", command.id, (home / "broker.pid").read_text().strip(), flush=True)
            reported = 0
            async with anyio.create_task_group() as group:
                async def stop():
                    await anyio.to_thread.run_sync(sys.stdin.readline)
                    group.cancel_scope.cancel()

                group.start_soon(stop)
                while True:
                    await session.report_event("progress", {"of": command.id, "n": reported})
                    reported += 1
                    await anyio.sleep(0.002)
            await command.done(str(reported))
            print("done", command.id, reported, flush=True)

anyio.run(main)
"""


def working(shell: Shell, program: str) -> Running:
    """Start a program that is a durable worker."""
    process = subprocess.Popen(
        (sys.executable, "-c", program, str(shell.home)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=TOP,
        env=shell.environment(),
    )
    return Running(process)


def go_on(worker: Running) -> None:
    """Let a worker finish the command it is at."""
    assert worker.process.stdin is not None
    worker.process.stdin.write(b"\n")
    worker.process.stdin.flush()


@pytest.fixture
def worker(shell: Shell) -> Iterator[Running]:
    """Give a durable worker that carries one command out when it is told to."""
    shell.serve()
    running = working(shell, WORKER)
    shell.wait_for_sessions(1)
    yield running
    running.close()


def wait_for_draining(shell: Shell, **is_open: int) -> None:
    """Wait until the broker drains and this is open."""

    def drains() -> bool:
        with shell.connect() as client:
            draining: dict[str, Any] | None = client.status()["broker"].get("draining")
            return draining is not None and draining["open"] == is_open

    shell.wait_for(drains)


def asked(shell: Shell) -> tuple[Running, Running, str]:
    """Ask who listens; return both, and the id of the question once it is open."""
    listener = shell.listen("worker")
    asking = shell.start("ask", "worker", "ready?", "--as", "planner", "--json")
    question = listener.event("message")["id"]
    shell.wait_for_questions(1)
    return listener, asking, question


def answer(shell: Shell, question: str, text: str) -> None:
    assert shell.run("reply", question, text, "--as", "worker").status == 0


def test_nothing_to_drain(shell: Shell) -> None:
    """Design section 9: no broker is 5, and none is started."""
    result = shell.run("broker", "drain", "--json")
    assert (result.status, result.document["code"]) == (5, "no_broker")
    assert not shell.home.exists()


@pytest.mark.parametrize("words", [(), ("boil",), ("drain", "now")])
def test_it_says_what_it_can_do(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("broker", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_an_idle_broker_is_gone_when_it_returns(shell: Shell) -> None:
    shell.serve()
    pid = shell.broker_pid()
    result = shell.run("broker", "drain", "--json")
    assert result.document == {"ok": True, "pid": pid, "finished": True, "open": {}, "failed": []}
    assert result.status == 0
    assert not is_alive(pid)
    assert not (shell.home / "broker.sock").exists()


def test_a_question_is_answered_first(shell: Shell) -> None:
    """What is open may end, nothing new begins; then the broker leaves, and sessions go on with a new one."""
    listener, asking, question = asked(shell)
    pid = shell.broker_pid()
    draining = shell.start("broker", "drain", "--timeout", "60")
    wait_for_draining(shell, questions=1)
    assert "open: questions 1" in shell.run("status").text
    late = shell.start("ask", "worker", "and now?", "--as", "other", "--json")
    assert shell.run("send", "worker", "a message goes through").status == 0
    assert listener.event("message")["text"] == "a message goes through"
    answer(shell, question, "yes")
    assert asking.finish().document["answer"]["text"] == "yes"
    done = draining.finish()
    assert (done.status, done.text) == (0, f"stopped the broker (pid {pid}); everything had ended\n")
    assert f"draining the broker (pid {pid}) for at most 60 s" in done.errors
    assert not is_alive(pid)
    answer(shell, listener.event("message")["id"], "still")
    assert late.finish().document["answer"]["text"] == "still", "it was asked of the next broker"


def test_what_is_left_is_said(shell: Shell) -> None:
    """6: still going on; what it is is printed, and the next broker goes on with it."""
    _, asking, question = asked(shell)
    pid = shell.broker_pid()
    result = shell.run("broker", "drain", "--timeout", "0.3", "--json")
    document = result.document
    assert (result.status, document["code"], document["open"]) == (6, "not_finished", {"questions": 1})
    assert f"(pid {pid}) has stopped; still open: 1 question" in document["reason"]
    assert not is_alive(pid)
    shell.wait_for_sessions(2)
    answer(shell, question, "yes")
    assert asking.finish().document["answer"]["text"] == "yes"


def test_ending_the_wait_does_not_end_the_draining(shell: Shell) -> None:
    _, asking, question = asked(shell)
    pid = shell.broker_pid()
    draining = shell.start("broker", "drain", "--timeout", "60", "--json")
    wait_for_draining(shell, questions=1)
    draining.signal(signal.SIGINT)
    assert draining.finish().status == 130
    assert is_alive(pid)
    answer(shell, question, "yes")
    asking.finish()
    shell.wait_for(lambda: not is_alive(pid))


def test_a_command_is_carried_out_first(shell: Shell, worker: Running) -> None:
    """FE 4.5: a worker that is at work reports before the broker leaves."""
    pid = shell.broker_pid()
    assert shell.run("command", "send", "w", '{"do": "build"}', "--id", "c1").status == 0
    assert worker.line() == "begun c1"
    draining = shell.start("broker", "drain", "--timeout", "60", "--json")
    wait_for_draining(shell, commands=1)
    go_on(worker)
    assert worker.line() == "done"
    assert draining.finish().document == {"ok": True, "pid": pid, "finished": True, "open": {}, "failed": []}
    assert shell.run("command", "show", "c1", "--json").document["command"]["state"] == "applied"


@pytest.mark.parametrize("program", [BUSY_BLOCKING, BUSY_ANYIO], ids=["blocking", "anyio"])
def test_a_worker_that_reports_goes_on_with_the_next_broker(shell: Shell, program: str) -> None:
    """FE 4.10, link_drain: what was begun ends, the rest is begun with the next broker, and no event is lost."""
    shell.serve()
    worker = working(shell, program)
    try:
        shell.wait_for_sessions(1)
        pid = shell.broker_pid()
        for command_id in ("c1", "c2"):
            assert shell.run("command", "send", "w", "{}", "--id", command_id).status == 0
        assert worker.line() == f"begun c1 {pid}"

        def is_received() -> bool:
            command = shell.run("command", "show", "c2", "--json").document["command"]
            return bool(command["state"] == "received")

        shell.wait_for(is_received)
        draining = shell.start("broker", "drain", "--timeout", "60", "--json")
        wait_for_draining(shell, commands=1)
        go_on(worker)
        first = int(worker.line().removeprefix("done c1 "))
        assert draining.finish().document == {"ok": True, "pid": pid, "finished": True, "open": {}, "failed": []}
        shell.serve()
        assert shell.broker_pid() != pid
        assert worker.line() == f"begun c2 {shell.broker_pid()}", "it waited for the next broker"
        go_on(worker)
        second = int(worker.line().removeprefix("done c2 "))

        def is_applied() -> bool:
            command = shell.run("command", "show", "c2", "--json").document["command"]
            return bool(command["state"] == "applied")

        shell.wait_for(is_applied)
        with blocking.connect(purpose="control", home=shell.home, start=False) as person:
            [link] = person.links()
            assert link.event_floor < Limits().link_events, "the broker has all of them still"
            events = person.link_events(link.id)
            while events[-1].seq < link.event_floor:
                events += person.link_events(link.id, after=events[-1].seq)
            told = [(event.body["of"], event.body["n"]) for event in events if event.body and "of" in event.body]
        everything = [("c1", number) for number in range(first)] + [("c2", number) for number in range(second)]
        assert told == everything
        assert link.event_floor == first + second + 2, "and what became of both"
    finally:
        worker.close()


def test_a_broker_that_leaves_before_it_is_drained(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 3.10; design section 9: 6 not known, what to look at is printed; 5 would say that nobody was there."""
    shell.serve()
    drain = broker.drain

    def too_late(paths: Paths, seconds: float) -> BrokerDrained:
        shutdown(paths)
        return drain(paths, seconds)

    monkeypatch.setattr(broker, "drain", too_late)
    left = shell.run("broker", "drain", "--json")
    assert (left.status, left.document["code"]) == (6, "left_meanwhile")
    assert shell.run("broker", "drain", "--json").status == 5
