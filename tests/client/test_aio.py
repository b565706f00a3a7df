"""The anyio shell on asyncio and trio, with the real broker."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio

from intercom.client import aio, control, recovery, spawning
from intercom.errors import (
    AskTimeout,
    BrokerBusy,
    PeerGone,
    ReplyFailed,
    RequestRefused,
    SendRefused,
    StartFailed,
    UsageError,
)
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def answer_all(session: aio.Session) -> None:
    async for found in session.messages():
        if found.expects_reply:
            await found.reply(f"answer to {found.text}")


async def test_two_sessions_talk(broker: BrokerProcess) -> None:
    """Protocol 8.1 to 8.4."""
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada, aio.connect("bob", home=broker.home) as bob:
            assert {view.name for view in await ada.list()} == {"ada", "bob"}
            assert await ada.join("x") == ada.groups == ("default", "x")
            assert len(await ada.list_groups()) == 2
            assert await ada.leave() == ("default",)
            await ada.set_presence(name="grace")
            assert ada.name == "grace"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer_all, bob)
                receipt = await ada.send("bob", "hi")
                assert (receipt.state, receipt.target) == ("delivered", "bob")
                reply = await ada.ask("bob", "when?")
                assert (reply.text, reply.sender.id) == ("answer to when?", bob.id)
                tasks.cancel_scope.cancel()


async def test_any_number_of_asks_at_once(broker: BrokerProcess) -> None:
    """F63: ten asks to three peers, replies in reverse order, one peer leaves, one ask is cancelled."""
    answers: dict[str, str] = {}
    gone: list[str] = []
    cancelled = anyio.CancelScope()

    async def ask(asker: aio.Session, target: str, text: str) -> None:
        try:
            answers[text] = (await asker.ask(target, text)).text
        except PeerGone:
            gone.append(text)

    async def ask_and_cancel(asker: aio.Session) -> None:
        with cancelled:
            await ask(asker, "p0", "cancelled")

    async def collect(session: aio.Session, number: int) -> list[aio.IncomingMessage]:
        """Take questions and confirm them all, answering none."""
        found = [await session.receive() for _ in range(number)]
        with anyio.move_on_after(0.001):
            await session.receive()
        return found

    with anyio.fail_after(3 * PATIENCE_S):
        async with (
            aio.connect("ada", home=broker.home) as ada,
            aio.connect("p0", home=broker.home) as p0,
            aio.connect("p1", home=broker.home) as p1,
            anyio.create_task_group() as tasks,
        ):
            async with aio.connect("p2", home=broker.home) as p2:
                tasks.start_soon(ask_and_cancel, ada)
                for number in range(9):
                    tasks.start_soon(ask, ada, f"p{number % 3}", f"q{number}")
                questions = await collect(p0, 4) + await collect(p1, 3)
                await collect(p2, 3)
                cancelled.cancel()
            for question in reversed(questions):
                try:
                    await question.reply(f"answer to {question.text}")
                except SendRefused as error:
                    assert (question.text, error.code) == ("cancelled", "no_open_question")
    assert sorted(gone) == ["q2", "q5", "q8"]
    assert answers == {text: f"answer to {text}" for text in ("q0", "q1", "q3", "q4", "q6", "q7")}


async def test_broker_deaths_are_survived(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """F8, F131: kill the broker again and again; sessions come back under their ids, and nothing is printed."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (20,))
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=paths.home) as ada, aio.connect("bob", home=paths.home) as bob:
            ids = (ada.id, bob.id)
            for round_number in range(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(kill_and_answer, paths, bob)
                    assert (await ada.ask("bob", f"{round_number}")).text == f"{round_number}!"
            assert (ada.id, bob.id) == ids
    assert capfd.readouterr() == ("", "")


async def kill_and_answer(paths: Paths, session: aio.Session) -> None:
    question = await session.receive()
    with anyio.move_on_after(0.001):
        await session.receive()
    os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
    await question.reply(f"{question.text}!")


async def test_an_ask_whose_time_is_up(broker: BrokerProcess) -> None:
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada, aio.connect("bob", home=broker.home) as bob:
            with pytest.raises(AskTimeout):
                await ada.ask("bob", "when?", timeout=0.2)
            late = await bob.receive()
            with pytest.raises(SendRefused):
                await late.reply("now")


async def test_an_answer_that_is_none(broker: BrokerProcess) -> None:
    with anyio.fail_after(3 * PATIENCE_S):
        async with (
            aio.connect("ada", home=broker.home) as ada,
            aio.connect("bob", home=broker.home) as bob,
            anyio.create_task_group() as tasks,
        ):

            async def decline() -> None:
                await (await bob.receive()).reply("no idea", error=True)

            tasks.start_soon(decline)
            with pytest.raises(ReplyFailed, match="no idea") as raised:
                await ada.ask("bob", "when?")
            assert raised.value.answer.sender.name == "bob"
            raised.value.answer.confirm()


async def test_a_failed_start_poisons_nothing(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8; F131: consumers of messages are told once."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (10,))
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=paths.home) as ada:
            with monkeypatch.context() as broken:
                broken.setattr(spawning, "command", lambda paths: [sys.executable, "-c", "raise SystemExit(3)"])
                control.shutdown(paths)
                with pytest.raises(StartFailed):
                    await ada.receive()
                with pytest.raises(StartFailed):
                    await ada.list()
            assert [view.name for view in await ada.list()] == ["ada"]


async def test_a_stopped_broker_is_busy(broker: BrokerProcess) -> None:
    """F6."""
    broker.signal(signal.SIGSTOP)
    try:
        with pytest.raises(BrokerBusy, match=f"pid {broker.pid}"):
            async with aio.connect("bob", home=broker.home, timeout=0.3):
                pass
    finally:
        broker.signal(signal.SIGCONT)


async def test_what_can_never_work_is_said_before_anything_happens(paths: Paths) -> None:
    with pytest.raises(UsageError):
        aio.connect("broker", home=paths.home)
    with pytest.raises(UsageError):
        aio.connect("ada", home=paths.home, timeout=-1)


def test_two_loops_in_two_threads(broker: BrokerProcess) -> None:
    """F136."""
    names: list[list[str | None]] = []

    async def main(name: str) -> None:
        async with aio.connect(name, home=broker.home, group=name) as session:
            names.append([view.name for view in await session.list()])

    threads = [
        threading.Thread(target=lambda: asyncio.run(main("one"))),
        threading.Thread(target=lambda: trio.run(main, "two")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(names) == [["one"], ["two"]]


async def test_a_large_text_arrives_whole_at_a_reader_that_takes_little(broker: BrokerProcess) -> None:
    """F32, F37: the hash of what arrives is the hash of what was sent."""
    text = "".join(chr(0x20 + number * 7 % 0x5F) for number in range(2_500_000))
    reader = broker.registered("reader")
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("writer", home=broker.home) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(session.send, reader.session_id, text)
            frame = await anyio.to_thread.run_sync(lambda: reader.expect("message"))
    assert sha256(frame["message"]["content"]["text"].encode()).digest() == sha256(text.encode()).digest()
    reader.close()


async def test_the_exception_of_the_block_passes_through(broker: BrokerProcess) -> None:
    """F32: also in a scope that was cancelled meanwhile."""
    with anyio.fail_after(3 * PATIENCE_S):
        with anyio.CancelScope() as scope, pytest.raises(ValueError, match="mine"):
            async with aio.connect("ada", home=broker.home):
                scope.cancel()
                raise ValueError("mine")
        async with aio.connect("bob", home=broker.home) as bob:
            assert [view.name for view in await bob.list()] == ["bob"]


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": True})], ids=["asyncio"])
async def test_the_exception_passes_through_a_task_that_was_cancelled(broker: BrokerProcess) -> None:
    """F32: a task of asyncio stays marked as cancelled when its code makes something else of it; so do task groups."""
    task = asyncio.current_task()
    assert task is not None
    with anyio.fail_after(3 * PATIENCE_S):
        with pytest.raises(ValueError, match="mine"):
            async with aio.connect("ada", home=broker.home):
                task.cancel()
                try:
                    await asyncio.sleep(PATIENCE_S)
                except asyncio.CancelledError:
                    raise ValueError("mine") from None
        assert task.uncancel() == 0


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": True})], ids=["asyncio"])
async def test_whoever_is_cancelled_by_asyncio_took_nothing(broker: BrokerProcess) -> None:
    """F77, F85: no shield holds off ``Task.cancel``, ``asyncio.timeout`` and the like; what waited is still there."""
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada, aio.connect("bob", home=broker.home) as bob:
            sent = asyncio.create_task(ada.send("bob", "hello"))
            await bob._engine._news.wait()
            for turns in range(4):
                reader = asyncio.create_task(bob.receive())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if reader.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await reader
                elif reader.done():
                    break
            else:
                reader = asyncio.create_task(bob.receive())
            found = await reader
            assert found.text == "hello"
            found.confirm()
            await sent


async def test_readers_cancelled_while_the_session_closes_end_quietly(broker: BrokerProcess) -> None:
    """F32: a close during a cancel ends in "closed", never in an error of the loop."""
    chance = random.Random(32)
    with anyio.fail_after(3 * PATIENCE_S):
        async with anyio.create_task_group() as tasks, aio.connect("reader", home=broker.home) as session:
            for _ in range(300):
                with anyio.move_on_after(chance.random() / 1_000):
                    async for _ in session.messages():
                        raise AssertionError("nobody wrote")

            async def read() -> None:
                with suppress(UsageError):
                    async for _ in session.messages():
                        raise AssertionError("nobody wrote")

            for _ in range(50):
                tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()


async def test_mail_between_two_programs(broker: BrokerProcess) -> None:
    """Design section 7: an address, mail in order, what became of it."""
    async with aio.connect("bob", home=broker.home, address=True):
        pass
    async with aio.connect("ada", home=broker.home, address=True) as ada:
        receipts = [await ada.send("bob", str(number)) for number in range(3)]
        assert [(receipt.state, receipt.position) for receipt in receipts] == [("queued", n) for n in (1, 2, 3)]
        async with aio.connect("bob", home=broker.home, address=True) as bob:
            assert (bob.waiting, "queue" in bob.features) == (3, True)
            assert [(await bob.receive()).text for _ in range(3)] == ["0", "1", "2"]
            assert (await bob.mailbox()).count == 1, "the one in hand is not confirmed"
            assert await bob.task_hint("reads") == "reads"
            assert [record.name for record in await bob.session_records() if record.task_hint] == ["bob"]
        assert (await ada.trace(receipts[2].message_id)).state == "delivered"
        assert {address.name for address in await ada.addresses()} == {"ada", "bob"}


async def test_mail_is_read_where_it_waits_and_given_up(broker: BrokerProcess) -> None:
    """Protocol 9.5: what was peeked at stays until it is settled; a control session deletes what nobody will read."""
    async with aio.connect("bob", home=broker.home, address=True) as bob:
        gone = bob.id
    async with (
        aio.connect("ada", home=broker.home) as ada,
        aio.connect(home=broker.home, purpose="control") as control,
    ):
        sent = [(await ada.send("bob", str(number))).message_id for number in range(3)]
        async with aio.connect("bob", home=broker.home, address=True, hold="none") as reader:
            assert reader.former_ids == ()
            for _ in range(2):
                peeked = await reader.peek(limit=2)
                assert ([message.text for message in peeked.messages], peeked.left) == (["0", "1"], 1)
            assert await reader.settle_mail(sent[0]) == sent[0]
            assert [message.id for message in (await reader.peek()).messages] == sent[1:]
            with pytest.raises(RequestRefused) as refused:
                await reader.settle_mail(sent[0])
            assert refused.value.code == "unknown_message"
        assert (await ada.trace(sent[0])).state == "delivered"
        assert (await control.purge(address="bob")).mail == 2
        assert [entry.mailbox_count for entry in await control.addresses() if entry.name == "bob"] == [0]
        assert await control.force_close(gone, "enough") in (True, False)
        assert await control.force_close("never-there") is False
        assert ((await control.outbox()).entries, (await control.outbox()).left) == ((), 0)
        for ask in (control.retry_outbox, control.cancel_outbox):
            with pytest.raises(RequestRefused) as refused:
                await ask("never-there")
            assert refused.value.code == "unknown_delivery"


async def test_a_question_another_session_of_the_address_may_answer(broker: BrokerProcess) -> None:
    async with aio.connect("bob", home=broker.home, address=True) as bob:
        async with anyio.create_task_group() as tasks:
            answers = []

            async def ask() -> None:
                async with aio.connect("ada", home=broker.home) as ada:
                    answers.append((await ada.ask("bob", "why?", timeout=PATIENCE_S)).text)

            tasks.start_soon(ask)
            await bob.receive()
            with anyio.move_on_after(0.05):
                await bob.receive()
            async with aio.connect("bob", home=broker.home, address=True, hold="none") as other:
                [question] = await other.pending()
                assert (await other.answer(question, "because")).state == "delivered"
        assert answers == ["because"]


async def test_many_sessions_come_back_at_once_and_each_gets_its_own(broker: BrokerProcess) -> None:
    """Twenty connections are cut together; what is sent meanwhile comes to whom it is for, in order, once."""
    count, texts = 20, ["a", "b", "c"]
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(aio.connect("ada", home=broker.home))
        sessions = [
            await stack.enter_async_context(aio.connect(f"s{number}", home=broker.home)) for number in range(count)
        ]
        ids = [session.id for session in sessions]
        taken: dict[str, list[str]] = {session_id: [] for session_id in ids}

        complete = anyio.Event()

        async def consume(session: aio.Session) -> None:
            async for found in session.messages():
                taken[session.id].append(found.text)
                if sum(map(len, taken.values())) == count * len(texts):
                    complete.set()

        with anyio.fail_after(3 * PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(consume, session)
                    assert session._engine._link is not None
                    session._engine._link.shutdown(socket.SHUT_RDWR)
                for text in texts:
                    for session_id in ids:
                        await ada.send(session_id, f"{text} for {session_id}", timeout=PATIENCE_S)
                await complete.wait()
                tasks.cancel_scope.cancel()
        assert taken == {session_id: [f"{text} for {session_id}" for text in texts] for session_id in ids}
        assert [session.id for session in sessions] == ids
