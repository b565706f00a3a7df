"""Sessions in several places of one process, and in a forked child."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from intercom.client import aio, blocking
from intercom.errors import UsageError
from tests.support.brokers import TOP, BrokerProcess, environment
from tests.support.processes import complaints
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


BLOCKING = """
import os, sys
from intercom import UsageError, blocking

with blocking.connect("ada") as ada, blocking.connect("bob") as bob:
    events = bob.events(timeout=0.2)
    child = os.fork()
    if child == 0:
        calls = [
            lambda: ada.list(), lambda: ada.send("bob", "hi"), lambda: ada.receive(timeout=1),
            lambda: next(ada.messages()), lambda: next(ada.events(timeout=1)), lambda: ada.authorize_child("c"),
        ]
        for call in calls:
            try:
                call()
            except UsageError as error:
                print(error.reason, flush=True)
    else:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert sorted(view.name for view in ada.list()) == ["ada", "bob"]
        assert list(events) == [], "the child's leaving of the block is no goodbye"
        print("undisturbed", flush=True)
"""

ASYNC = """
import os, sys
import anyio
import intercom

def refused(coroutine):
    try:
        coroutine.send(None)
    except intercom.UsageError as error:
        print(error.reason, flush=True)
    coroutine.close()

async def main():
    connection = intercom.connect("ada")
    unused = intercom.connect("eve")
    async with connection as ada, intercom.connect("bob") as bob:
        child = os.fork()
        if child == 0:
            for coroutine in [ada.list(), ada.send("bob", "hi"), ada.receive(), ada.events().__anext__(),
                              ada.messages().__anext__(), unused.__aenter__()]:
                refused(coroutine)
            leaving = connection.__aexit__(None, None, None)
            try:
                leaving.send(None)
            except StopIteration:
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        events = bob.events()
        assert sorted([view.name for view in await ada.list()]) == ["ada", "bob"]
        await ada.set_presence(status="here")
        event = await events.__anext__()
        assert (event.kind, event.session.status) == ("presence", "here"), event
        print("undisturbed", flush=True)

anyio.run(main, backend=sys.argv[1])
"""


def run(broker: BrokerProcess, code: str, *arguments: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment(broker.home),
        cwd=TOP,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert (found.returncode, complaints(found.stderr)) == (0, ""), found
    return found.stdout.splitlines()


REFUSED = "the session belongs to the process that opened it"


def test_a_forked_child_is_refused_and_its_parent_undisturbed(broker: BrokerProcess) -> None:
    """The child even leaves the blocks of both sessions."""
    assert run(broker, BLOCKING) == [REFUSED] * 6 + ["undisturbed"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_under_a_loop(broker: BrokerProcess, backend: str) -> None:
    assert run(broker, ASYNC, backend) == [REFUSED] * 6 + ["undisturbed"]


@pytest.mark.anyio
async def test_another_thread_is_refused_and_can_come_back(broker: BrokerProcess) -> None:
    """F136: what would wait for ever in the wrong loop is said at once."""
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada:

            def elsewhere() -> list[str | None]:
                with pytest.raises(UsageError, match="event loop"):
                    anyio.run(ada.list)
                return [view.name for view in anyio.from_thread.run(ada.list)]

            assert await anyio.to_thread.run_sync(elsewhere) == ["ada"]


@pytest.mark.anyio
async def test_several_sessions_of_all_kinds_in_one_process(broker: BrokerProcess) -> None:
    """F134, F136: two under this loop, one in a thread beside it, and one in this thread; each ends alone."""

    def in_thread() -> str:
        with blocking.connect("carl", home=broker.home) as carl:
            return carl.ask("ada", "from a thread", timeout=2 * PATIENCE_S).text

    async def answer(session: aio.Session) -> None:
        async for found in session.messages():
            await found.reply(f"answer to {found.text}")

    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            aio.connect("ada", home=broker.home) as ada,
            aio.connect("bob", home=broker.home) as bob,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(answer, ada)
            assert (await bob.ask("ada", "from a task")).text == "answer to from a task"
            assert await anyio.to_thread.run_sync(in_thread) == "answer to from a thread"
            with blocking.connect("dora", home=broker.home) as dora:
                assert {view.name for view in dora.list()} == {"ada", "bob", "dora"}
            tasks.cancel_scope.cancel()
