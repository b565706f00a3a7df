"""Workers and coordinators with the real broker, which is killed, and with workers that are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking, control
from intercom.errors import AssignmentLost
from intercom.paths import Paths
from tests.support.brokers import environment
from tests.support.commands import listen_to_signals
from tests.support.launching import until
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


LONG_S = 3 * PATIENCE_S
"""Time for a call that has to start another broker first, on a machine that is busy."""


def kill_broker(paths: Paths) -> None:
    """Kill the broker of this home; the next call of any session starts another one."""
    os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)


@pytest.mark.timeout(6 * LONG_S)
@pytest.mark.anyio
async def test_work_goes_on_whenever_the_broker_dies(paths: Paths) -> None:
    """FE 1.7: after assigned, after acceptance, and after the reply was asked for; A1.13, one assignment throughout."""
    with anyio.fail_after(5 * LONG_S):
        async with (
            aio.connect("lead", home=paths.home, coordinator=True) as lead,
            aio.connect("worker", home=paths.home, work_mode="resident") as worker,
            aio.connect("planner", home=paths.home) as planner,
        ):
            sent = await planner.send("worker", "count the words")
            assert sent.state == "queued"
            kill_broker(paths)
            [item] = (await lead.inbox(timeout=LONG_S)).items
            assert item.id == sent.message_id
            order = await lead.dispatch(item.id, worker.id, timeout=LONG_S)
            kill_broker(paths)
            work = await anext(worker.assignments())
            assert work.id == order.assignment_id
            await work.accept()
            kill_broker(paths)
            await work.started()
            assert [(view.id, view.state) for view in await lead.open_assignments(timeout=LONG_S)] == [
                (work.id, "started")
            ]

            async def answer() -> None:
                receipt = await work.reply("3")
                assert receipt.state in ("delivered", "queued")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer)
                await anyio.lowlevel.checkpoint()
                kill_broker(paths)
                reply = await planner.receive()
                assert (reply.text, reply.reply_to) == ("3", sent.message_id)
                with anyio.move_on_after(0.2):
                    await planner.receive()
                    raise AssertionError("one answer, not two")
            assert work.is_over
            assert await lead.open_assignments(timeout=LONG_S) == []
            assert (await lead.inbox(timeout=LONG_S)).items == ()


def test_the_same_without_an_event_loop(paths: Paths) -> None:
    with (
        blocking.connect("lead", home=paths.home, coordinator=True) as lead,
        blocking.connect("planner", home=paths.home) as planner,
        blocking.connect("worker", home=paths.home, work_mode="managed_turn", runtime_session_id="host-1") as worker,
    ):
        sent = planner.send("worker", "count the words")
        order = lead.dispatch(sent.message_id, worker.id)
        assert order.handed_to == "staging"
        kill_broker(paths)
        work = next(worker.assignments(timeout=LONG_S))
        assert work.id == order.assignment_id
        work.accept()
        kill_broker(paths)
        with work:
            assert work.reply("3").state in ("delivered", "queued")
        reply = planner.receive(timeout=LONG_S)
        assert reply is not None
        assert reply.text == "3"


WORKER = """
import sys
from intercom import blocking
with blocking.connect("ada", start=False, work_mode="resident", address=sys.argv[1] == "address") as session:
    print(session.id, flush=True)
    for work in session.assignments(accept=sys.argv[2] == "accept"):
        print(work.id, flush=True)
        sys.stdin.readline()
"""


@contextmanager
def worker_process(paths: Paths, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker as a process of its own; a line on its input lets it go on."""
    process = subprocess.Popen(
        (sys.executable, "-c", WORKER, *arguments),
        env=environment(paths.home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_signals,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("accept", ["accept", "wait"])
def test_a_worker_that_is_killed(paths: Paths, accept: str) -> None:
    """FE 1.3, closing procedure: what it had not accepted is parked again, what it had is over."""
    with (
        blocking.connect("lead", home=paths.home, coordinator=True) as lead,
        blocking.connect("planner", home=paths.home) as planner,
        worker_process(paths, "none", accept) as process,
    ):
        worker_id = line(process)
        sent = planner.send("ada", "count the words")
        order = lead.dispatch(sent.message_id, worker_id)
        assert line(process) == order.assignment_id
        process.kill()
        until(lambda: lead.open_assignments() == [])
        items = lead.inbox().items
        assert [item.id for item in items] == ([] if accept == "accept" else [sent.message_id])


def test_a_worker_with_an_address_that_is_killed_goes_on_as_another_process(paths: Paths) -> None:
    with (
        blocking.connect("lead", home=paths.home, coordinator=True) as lead,
        blocking.connect("planner", home=paths.home) as planner,
    ):
        with worker_process(paths, "address", "accept") as process:
            worker_id = line(process)
            sent = planner.send("ada", "count the words")
            order = lead.dispatch(sent.message_id, worker_id)
            assert line(process) == order.assignment_id
        until(lambda: worker_id not in {view.id for view in lead.list()})
        with blocking.connect("ada", home=paths.home, address=True, work_mode="resident") as worker:
            [view] = worker.open_assignments()
            assert (view.id, view.accepted, view.address) == (order.assignment_id, True, "ada")
            worker.report(view, "started")
            assert worker.reply_to(view, "3").state in ("delivered", "queued")
        reply = planner.receive(timeout=LONG_S)
        assert reply is not None
        assert reply.text == "3"
        assert lead.open_assignments() == []


def test_a_worker_that_is_interrupted_says_so(paths: Paths) -> None:
    """What it had accepted is called interrupted at once, and under its address it is not lost."""
    with (
        blocking.connect("lead", home=paths.home, coordinator=True) as lead,
        blocking.connect("planner", home=paths.home) as planner,
        worker_process(paths, "address", "accept") as process,
    ):
        worker_id = line(process)
        sent = planner.send("ada", "count the words")
        lead.dispatch(sent.message_id, worker_id)
        line(process)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        [view] = lead.open_assignments()
        assert (view.state, view.accepted) == ("interrupted", True)
        with pytest.raises(AssignmentLost):
            lead.assignment("another")
