"""Progress of a question: it reaches who asked, gives more time where that is wanted, and is never the answer (F93)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.errors import AskTimeout, UsageError
from intercom.limits import ASK_MS
from intercom.testing import IncomingMessage, MemoryBroker, MemorySession
from tests.support.brokers import BrokerProcess
from tests.support.raw import INFO, PATIENCE_S, packed


@pytest.fixture
def memory() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def planner(memory: MemoryBroker) -> MemorySession:
    return memory.connect("planner")


@pytest.fixture
def worker(memory: MemoryBroker) -> MemorySession:
    return memory.connect("worker")


def taken(session: MemorySession) -> IncomingMessage:
    """Return the question that waits; it is confirmed."""
    message = session.receive()
    assert message is not None and session.receive() is None
    return message


@pytest.mark.parametrize("named", [True, "q1"])
def test_who_asked_is_told_and_goes_on_waiting(
    planner: MemorySession, worker: MemorySession, named: bool | str
) -> None:
    told: list[IncomingMessage] = []
    question = planner.ask("worker", "2+2", message_id="q1", on_progress=told.append)
    message = taken(worker)
    sent = worker.send("planner", "half of it", progress=named)
    assert sent.result().state == "delivered", "it is confirmed although nobody takes messages"
    assert [(each.text, each.progress_of, each.reply_to) for each in told] == [("half of it", "q1", None)]
    assert planner.receive() is None and not question.done
    message.reply("4")
    assert question.result().text == "4"


def test_without_somebody_to_tell_it_is_an_ordinary_message(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2", message_id="q1")
    taken(worker)
    worker.send("planner", "half of it", progress=True)
    [message] = planner.messages()
    assert (message.text, message.progress_of) == ("half of it", "q1") and not question.done


def test_which_question_is_meant_must_be_clear(planner: MemorySession, worker: MemorySession) -> None:
    told: list[IncomingMessage] = []
    for name in ("q1", "q2"):
        planner.ask("worker", name, message_id=name, on_progress=told.append)
    assert len(list(worker.messages())) == 2
    worker.send("planner", "some of it", progress=True)
    assert [message.progress_of for message in planner.messages()] == [None] and told == []
    worker.send("planner", "half of it", progress="q2")
    assert [message.progress_of for message in told] == ["q2"]


def test_every_sign_of_progress_gives_more_time(
    memory: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    question = planner.ask("worker", "2+2", timeout=10, patience=30)
    taken(worker)
    memory.advance(9_999)
    worker.send("planner", "half of it", progress=True)
    memory.advance(29_999)
    assert not question.done
    memory.advance(1)
    with pytest.raises(AskTimeout):
        question.result()


def test_less_time_than_there_is_left_takes_none_away(
    memory: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    question = planner.ask("worker", "2+2", timeout=60, patience=1)
    taken(worker)
    worker.send("planner", "half of it", progress=True)
    memory.advance(59_999)
    assert not question.done


def test_nobody_waits_longer_than_an_ask_may(
    memory: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """Design section 5: the deadline of an ask ends it, 10 minutes after it was asked."""
    question = planner.ask("worker", "2+2", message_id="q1", timeout=100, patience=600, on_progress=lambda _: None)
    taken(worker)
    for _ in range(6):
        memory.advance(ASK_MS // 6 - 1)
        assert not question.done
        worker.send("planner", "still at it", progress="q1")
    memory.advance(6)
    assert isinstance(question.error, AskTimeout)


def test_without_patience_a_peer_cannot_make_anybody_wait(
    memory: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    question = planner.ask("worker", "2+2", timeout=10, on_progress=lambda _: None)
    taken(worker)
    worker.send("planner", "half of it", progress=True)
    memory.advance(10_000)
    assert isinstance(question.error, AskTimeout)


def test_what_the_callback_raises_ends_the_ask(planner: MemorySession, worker: MemorySession) -> None:
    def give_up(message: IncomingMessage) -> None:
        raise LookupError(message.text)

    question = planner.ask("worker", "2+2", on_progress=give_up)
    message = taken(worker)
    assert worker.send("planner", "half of it", progress=True).result().state == "delivered"
    with pytest.raises(LookupError, match="half of it"):
        question.result()
    assert message.reply("4").error is not None, "the question was withdrawn"


def test_a_child_hears_from_its_supervisor(memory: MemoryBroker) -> None:
    """F93: the parent says that it still thinks, and the child sees it."""
    boss = memory.connect("boss")
    child = memory.connect("child", supervisor=boss.authorize_child("child"))
    told: list[str] = []
    question = child.ask_supervisor(
        "which?", timeout=5, patience=60, on_progress=lambda message: told.append(message.text)
    )
    message = taken(boss)
    boss.send(message.sender.id, "still thinking", progress=message.id)
    memory.advance(59_000)
    assert told == ["still thinking"] and not question.done
    boss.send("child", "this one")
    assert question.result().text == "this one", "reply and plain send settle it"


def test_what_also_answers_is_the_answer(memory: MemoryBroker, planner: MemorySession) -> None:
    """Protocol 6.5: a message with ``replyTo`` closes the question, so nobody may go on waiting for it."""
    wire = memory.wire()
    wire.write(packed({"type": "register", "session": {**INFO, "name": "odd"}, "returnAddress": "r"}))
    question = planner.ask("odd", "2+2", message_id="q1", on_progress=lambda _: None)
    message = {"id": "m", "timestamp": 1, "content": {"text": "4"}, "replyTo": "q1", "progressOf": "q1"}
    wire.write(packed({"type": "send", "to": "planner", "message": message}))
    assert question.result().text == "4"


def test_what_can_never_work(planner: MemorySession) -> None:
    with pytest.raises(UsageError, match="answers nothing"):
        planner.send("worker", "x", reply_to="q1", progress=True)
    with pytest.raises(UsageError, match="empty id"):
        planner.send("worker", "x", progress="")
    for patience in (0, -1, float("nan")):
        with pytest.raises(UsageError):
            planner.ask("worker", "2+2", patience=patience)


# --- with a real broker, in both shells


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.anyio
async def test_progress_and_an_answer_that_was_sent(broker: BrokerProcess) -> None:
    """F67, F93: the worker never calls ``reply``, as agents do."""
    told: list[aio.IncomingMessage] = []

    async def work(worker: aio.Session) -> None:
        message = await worker.receive()
        progress = await worker.send("planner", "half of it", progress=True)
        answer = await worker.send("planner", "4")
        assert (progress.inferred_reply_to, answer.inferred_reply_to) == (None, message.id)

    with anyio.fail_after(2 * PATIENCE_S):
        async with (
            aio.connect("planner", home=broker.home) as planner,
            aio.connect("worker", home=broker.home) as worker,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(work, worker)
            answer = await planner.ask("worker", "2+2", patience=60, on_progress=told.append)
            assert answer.text == "4"
            [message] = told
            assert message.text == "half of it"
            with pytest.raises(UsageError):
                await planner.ask("worker", "2+2", patience=0)


@pytest.mark.anyio
async def test_what_a_callback_raises_under_a_loop_reaches_who_asked(broker: BrokerProcess) -> None:
    def give_up(message: aio.IncomingMessage) -> None:
        raise LookupError(message.text)

    async def work(worker: aio.Session) -> None:
        message = await worker.receive()
        await worker.send("planner", "half of it", progress=message.id)

    with anyio.fail_after(2 * PATIENCE_S):
        async with (
            aio.connect("planner", home=broker.home) as planner,
            aio.connect("worker", home=broker.home) as worker,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(work, worker)
            with pytest.raises(LookupError, match="half of it"):
                await planner.ask("worker", "2+2", on_progress=give_up)
            assert {view.name for view in await planner.list()} == {"planner", "worker"}, "the session goes on"


def test_the_same_without_a_loop(broker: BrokerProcess) -> None:
    """The message that is handed over can be answered like any other."""
    told: list[str] = []
    with (
        blocking.connect("planner", home=broker.home) as planner,
        ThreadPoolExecutor(1) as pool,
    ):

        def work() -> list[str | None]:
            with blocking.connect("worker", home=broker.home) as worker:
                ready.set()
                message = worker.receive(timeout=PATIENCE_S)
                assert message is not None
                worker.send("planner", "half of it", progress=True)
                receipt = worker.send("planner", "4")
                return [receipt.inferred_reply_to, message.id]

        ready = Event()
        worked = pool.submit(work)
        assert ready.wait(PATIENCE_S)
        answer = planner.ask("worker", "2+2", timeout=PATIENCE_S, on_progress=lambda message: told.append(message.text))
        assert (answer.text, told) == ("4", ["half of it"])
        inferred, asked = worked.result(PATIENCE_S)
        assert inferred == asked
