"""The supervisor line with the real broker, in both shells."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking, control, recovery
from intercom.errors import RegistrationRefused, SendRefused, TargetNotFound, UsageError
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@contextmanager
def answering(session: blocking.Session, number: int) -> Iterator[list[blocking.IncomingMessage]]:
    """Let another thread take messages of ``session`` and answer them with its name."""
    taken: list[blocking.IncomingMessage] = []

    def run() -> None:
        for _ in range(number):
            found = session.receive(timeout=PATIENCE_S)
            assert found is not None
            taken.append(found)
            found.reply(f"{session.name} to {found.text}")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield taken
    finally:
        thread.join(2 * PATIENCE_S)
        assert not thread.is_alive()


def test_two_parents_of_one_name_have_children_of_their_own(broker: BrokerProcess) -> None:
    """F90: each request reaches only its own parent, whatever the groups; protocol 6.6."""
    with ExitStack() as stack:

        def opened(name: str, group: str, supervisor: str | None = None) -> blocking.Session:
            return stack.enter_context(blocking.connect(name, home=broker.home, group=group, supervisor=supervisor))

        parents = [opened("boss", "g1"), opened("boss", "g2")]
        children = [
            [opened(f"c{number}", f"far{number}", parent.authorize_child(f"c{number}")) for number in range(3)]
            for parent in parents
        ]
        for parent, own in zip(parents, children, strict=True):
            with answering(parent, 2 * len(own)) as taken:
                for child in own:
                    assert child.supervisor_id == parent.id
                    answer = child.ask_supervisor(f"from {child.name}", timeout=PATIENCE_S)
                    assert (answer.text, answer.sender.id) == (f"boss to from {child.name}", parent.id)
                    assert child.send_supervisor("done").target == parent.id
                    reply = child.receive(timeout=PATIENCE_S)
                    assert reply is not None
                    assert (reply.text, reply.channel) == ("boss to done", None)
                    assert child.receive(timeout=0.001) is None, "which confirms the reply"
            assert {message.channel for message in taken} == {"supervisor"}
            assert {message.sender.id for message in taken} == {child.id for child in own}


def test_a_supervisor_that_is_restarted_takes_its_capabilities_over(broker: BrokerProcess) -> None:
    """Protocol 4.11, 6.6: re-authorising points a capability to the session that shows it; F90, F94."""
    with blocking.connect("boss", home=broker.home, owner_token="owner", return_address="boss") as boss:
        known, free = boss.authorize_child("c1"), boss.authorize_child("*")
        before = boss.id
        with (
            blocking.connect("c1", home=broker.home, group="far", supervisor=known) as child,
            pytest.raises(ZeroDivisionError),
            blocking.connect("boss 2", home=broker.home, owner_token="owner") as early,
        ):
            assert early.authorize_child("c1", capability=known) == known
            with blocking.connect("any", home=broker.home, supervisor=free) as other:
                assert other.supervisor_id == boss.id, "what it did not show stays with the one before"
            raise ZeroDivisionError
        del child
    restarted = blocking.connect(
        "boss", home=broker.home, owner_token="owner", return_address="boss", session_id=before
    )
    with blocking.connect("watcher", home=broker.home), restarted as boss:
        assert boss.id == before
        assert (boss.authorize_child("c1", capability=known), boss.authorize_child("*", capability=free)) == (
            known,
            free,
        )
        with (
            blocking.connect("c1", home=broker.home, group="far", supervisor=known) as child,
            blocking.connect("any", home=broker.home, group="far", supervisor=free) as other,
            answering(boss, 2) as taken,
        ):
            assert child.ask_supervisor("1", timeout=PATIENCE_S).text == "boss to 1"
            assert other.ask_supervisor("2", timeout=PATIENCE_S).text == "boss to 2"
        assert [message.channel for message in taken] == ["supervisor"] * 2


def test_a_child_goes_on_without_noticing_that_its_supervisor_was_restarted(broker: BrokerProcess) -> None:
    """Protocol 6.6: the supervisor's id is fixed for the child, and reclaiming it avoids a gap."""
    secrets = {"owner_token": "owner", "return_address": "boss"}
    with blocking.connect("boss", home=broker.home, **secrets) as boss:
        capability, session_id = boss.authorize_child("c1"), boss.id
        child = blocking.connect("c1", home=broker.home, group="far", supervisor=capability)
        session = child.__enter__()
    try:
        with pytest.raises(TargetNotFound) as gone:
            session.send_supervisor("there?")
        assert gone.value.code == "supervisor_gone"
        with blocking.connect("boss", home=broker.home, session_id=session_id, **secrets) as boss:
            assert boss.authorize_child("c1", capability=capability) == capability
            with answering(boss, 1):
                assert session.ask_supervisor("which?", timeout=PATIENCE_S).text == "boss to which?"
    finally:
        child.__exit__(None, None, None)


def test_a_capability_of_another_owner_or_name_is_refused_before_it_breaks_the_connection(
    broker: BrokerProcess,
) -> None:
    """Protocol 4.11: the broker ends the connection of whoever shows one."""
    with blocking.connect("boss", home=broker.home, owner_token="owner") as boss:
        capability = boss.authorize_child("c1")
        for name, shown in (("c2", capability), ("*", capability), ("c1", "made.up"), ("c1", "")):
            with pytest.raises(UsageError, match="was not made under this owner_token"):
                boss.authorize_child(name, capability=shown)
        with (
            blocking.connect("other", home=broker.home) as other,
            pytest.raises(UsageError, match="was not made under this owner_token"),
        ):
            other.authorize_child("c1", capability=capability)
    for options in ({"owner_token": ""}, {"owner_token": "t", "purpose": "control"}):
        with pytest.raises(UsageError), blocking.connect("boss", home=broker.home, **options):  # type: ignore[arg-type]
            raise AssertionError


def test_what_cannot_be_claimed(broker: BrokerProcess) -> None:
    """Protocol 6.6: the capability is for one name; a dynamic slot is for the first who shows it."""
    with blocking.connect("boss", home=broker.home) as boss:
        capability, free = boss.authorize_child("c1"), boss.authorize_child("*")
        assert boss.authorize_child("c1") == capability
        for name, shown in [("c2", capability), ("c1", "made.up")]:
            refused = pytest.raises(RegistrationRefused)
            with refused as caught, blocking.connect(name, home=broker.home, supervisor=shown):
                pass
            assert caught.value.code == "supervisor_refused"
        with blocking.connect("any", home=broker.home, supervisor=free) as first:
            assert first.supervisor_id == boss.id
        with pytest.raises(RegistrationRefused), blocking.connect("other", home=broker.home, supervisor=free):
            pass
        with pytest.raises(UsageError, match="no supervisor"):
            boss.ask_supervisor("anybody?")


def test_a_parent_that_left(broker: BrokerProcess) -> None:
    """F90: told at once, and never another session of that name."""
    with ExitStack() as stack:
        with blocking.connect("boss", home=broker.home) as boss:
            capability = boss.authorize_child("c1")
            child = stack.enter_context(blocking.connect("c1", home=broker.home, supervisor=capability))
        stack.enter_context(blocking.connect("boss", home=broker.home))
        with pytest.raises(TargetNotFound) as caught:
            child.ask_supervisor("still there?", timeout=PATIENCE_S)
        assert (caught.value.code, caught.value.retry) == ("supervisor_gone", "after")


def test_children_that_leave_take_nobody_with_them(broker: BrokerProcess) -> None:
    """F92."""
    with blocking.connect("boss", home=broker.home) as boss, ExitStack() as stack:
        names = [f"c{number}" for number in range(4)]
        sessions = {}
        for name in names:
            own = stack.enter_context(ExitStack())
            capability = boss.authorize_child(name)
            sessions[name] = own, own.enter_context(blocking.connect(name, home=broker.home, supervisor=capability))
        for leaving in ("c2", "c0", "c3"):
            sessions.pop(leaving)[0].close()
            with answering(boss, len(sessions)):
                for name, (_, child) in sessions.items():
                    assert child.ask_supervisor(name, timeout=PATIENCE_S).text == f"boss to {name}"


@pytest.mark.anyio
async def test_the_line_survives_the_broker(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F94: one parent and five children, the broker dies; whoever is back first, every child's question arrives."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (20,))
    names = [f"c{number}" for number in range(5)]
    with anyio.fail_after(5 * PATIENCE_S):
        async with aio.connect("boss", home=paths.home) as boss:
            capabilities = {name: await boss.authorize_child(name) for name in names}

            async def answer() -> None:
                async for found in boss.messages():
                    await found.reply(f"yes, {found.sender.name}")

            async def live(name: str, *, task_status: anyio.abc.TaskStatus[aio.Session]) -> None:
                connection = aio.connect(name, home=paths.home, group=f"of {name}", supervisor=capabilities[name])
                async with connection as session:
                    task_status.started(session)
                    await anyio.sleep_forever()

            answers = {}

            async def ask(session: aio.Session) -> None:
                answers[session.name] = (await session.ask_supervisor("go on?", timeout=3 * PATIENCE_S)).text

            async with anyio.create_task_group() as living:
                living.start_soon(answer)
                children = [await living.start(live, name) for name in names]
                for _ in range(2):
                    answers.clear()
                    os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
                    async with anyio.create_task_group() as asking:
                        for child in children:
                            asking.start_soon(ask, child)
                    assert answers == {name: f"yes, {name}" for name in names}
                assert [await boss.authorize_child(name) for name in names] == list(capabilities.values())
                living.cancel_scope.cancel()


@pytest.mark.anyio
async def test_up_and_down_under_a_loop(broker: BrokerProcess) -> None:
    """Protocol 6.6: the supervisor's reply crosses groups, and so does nothing else."""
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("boss", home=broker.home, group="a") as boss:
            shown = await boss.authorize_child("c1")
            assert boss.supervisor_id is None
            async with aio.connect("c1", home=broker.home, group="b", supervisor=shown) as child:
                assert child.supervisor_id == boss.id
                receipts = []

                async def report() -> None:
                    receipts.append(await child.send_supervisor("done", message_id="m1"))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(report)
                    found = await boss.receive()
                    assert (found.text, found.channel, found.sender.id) == ("done", "supervisor", child.id)
                    tasks.start_soon(found.reply, "thanks")
                    assert (await child.receive()).text == "thanks"
                    with anyio.move_on_after(0.01):
                        await child.receive()
                assert receipts[0].target == boss.id
                with pytest.raises(SendRefused) as caught:
                    await boss.send(child.id, "and another thing")
                assert caught.value.code == "different_group"


def test_children_that_are_back_first(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F94: a blocking parent comes back only when it is used; its child can be reached, and is told, until then."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (20,))
    with blocking.connect("boss", home=paths.home) as boss:
        capability = boss.authorize_child("c1")
        with blocking.connect("c1", home=paths.home, supervisor=capability) as child:
            events = child.events(timeout=3 * PATIENCE_S)
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            assert [next(events).kind, next(events).kind] == ["disconnected", "reconnected"]
            assert child.supervisor_id is None
            with pytest.raises(TargetNotFound) as caught:
                child.send_supervisor("anybody?", timeout=30)
            assert caught.value.code == "supervisor_gone"
            here = [view.name for view in child.list() if view.state == "active"]
            assert here == ["c1"], "others reach it meanwhile"
            assert {view.name for view in boss.list()} == {"boss", "c1"}
            with answering(boss, 1):
                assert child.ask_supervisor("now?", timeout=30).text == "boss to now?"


def test_a_wording_that_was_looked_up(broker: BrokerProcess) -> None:
    """Protocol 6.2.4: a retry under the same wording is the same operation; a short id is checked again."""
    with blocking.connect("ada", home=broker.home) as ada, blocking.connect("bob", home=broker.home) as bob:
        taken = threading.Thread(target=lambda: list(bob.messages(timeout=1)))
        taken.start()
        receipt = ada.send(bob.id, "hi", logical_target=bob.id[:4], timeout=PATIENCE_S)
        assert receipt.target == bob.id[:4]
        again = ada.send(bob.id, "hi", logical_target=bob.id[:4], message_id=receipt.message_id)
        assert again.state == "delivered"
        taken.join(PATIENCE_S)
        with pytest.raises(SendRefused):
            ada.send(ada.id, "hi", logical_target=ada.id[:8])
