"""The anyio shell on asyncio and trio, against brokers that do odd things and against the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from intercom.client import aio, control, recovery, spawning
from intercom.errors import (
    AccessDenied,
    AskTimeout,
    BrokerBusy,
    NoBroker,
    OutcomeUnknown,
    PeerGone,
    ProtocolViolation,
    RegistrationRefused,
    ReplyFailed,
    SendRefused,
    StartFailed,
    UsageError,
)
from intercom.limits import INCOMING_MESSAGES
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.client import OTHER, PEER, message
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import PATIENCE_S, Frame

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def fake_session(paths: Paths, **options: Any) -> aio.Connection:
    return aio.connect("ada", home=paths.home, start=False, **options)


async def answer_all(session: aio.Session) -> None:
    async for found in session.messages():
        if found.expects_reply:
            await found.reply(f"answer to {found.text}")


def bound(sent: Frame) -> Frame:
    answered = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
    return {"type": "question_target", **answered, "sessionId": PEER["id"]}


# --- with the real broker -------------------------------------------------------------------------------


async def test_two_sessions_talk(broker: BrokerProcess) -> None:
    """Protocol 8.1 to 8.4."""
    with anyio.fail_after(PATIENCE_S):
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

    with anyio.fail_after(2 * PATIENCE_S):
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
    with anyio.fail_after(4 * PATIENCE_S):
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
    with anyio.fail_after(PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada, aio.connect("bob", home=broker.home) as bob:
            with pytest.raises(AskTimeout):
                await ada.ask("bob", "when?", timeout=0.2)
            late = await bob.receive()
            with pytest.raises(SendRefused):
                await late.reply("now")


async def test_an_answer_that_is_none(broker: BrokerProcess) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with (
            aio.connect("ada", home=broker.home) as ada,
            aio.connect("bob", home=broker.home) as bob,
            anyio.create_task_group() as tasks,
        ):

            async def decline() -> None:
                await (await bob.receive()).reply("no idea", error=True)

            tasks.start_soon(decline)
            with pytest.raises(ReplyFailed, match="no idea"):
                await ada.ask("bob", "when?")


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


# --- with brokers that do odd things --------------------------------------------------------------------


async def test_the_answer_may_come_first_and_only_from_the_right_session(paths: Paths) -> None:
    """F65 and F70."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        question = asked["message"]["id"]
        link.send(
            bound(asked),
            message("x1", "no", sender=OTHER, replyTo=question),
            message("x2", "no"),
            message("r1", "yes", replyTo=question),
        )
        link.expect("received", messageId="r1")
        link.wait_for_end()

    with FakeBroker(paths.socket, script):
        async with fake_session(paths) as session:
            assert (await session.ask("worker", "ok?")).text == "yes"
            assert [(await session.receive()).id for _ in range(2)] == ["x1", "x2"]


async def test_answers_do_not_wait_behind_unread_messages(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(*(message(f"m{place}") for place in range(3 * INCOMING_MESSAGES)))
        asked = link.expect("send")
        link.send(bound(asked), message("r1", "yes", replyTo=asked["message"]["id"]))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session:
            assert (await session.ask("worker", "ok?")).text == "yes"
            assert (await session.receive()).id == "m0"


async def test_reading_goes_on_when_messages_are_taken(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(*(message(f"m{place}") for place in range(3 * INCOMING_MESSAGES)))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session:
            place = 0
            async for found in session.messages():
                assert found.id == f"m{place}"
                place += 1
                if place == 3 * INCOMING_MESSAGES:
                    break


async def test_a_lost_connection_is_replaced_and_the_send_repeated(paths: Paths) -> None:
    """F76."""
    seen: list[Frame] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        seen.append(link.expect("send"))
        if number == 1:
            link.deliver(seen[-1])
            link.wait_for_end()

    with FakeBroker(paths.socket, script, connections=2), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session:
            assert (await session.send("worker", "hi")).state == "delivered"
    assert seen[0]["message"] == seen[1]["message"]
    assert seen[0]["attemptId"] != seen[1]["attemptId"]


async def test_a_cancelled_ask_is_withdrawn(paths: Paths) -> None:
    ends: list[list[Frame]] = []
    asked_once = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        asked_once.set()
        ends.append([asked, *link.wait_for_end()])

    with FakeBroker(paths.socket, script), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "worker", "ok?")
            await anyio.to_thread.run_sync(asked_once.wait, PATIENCE_S)
            tasks.cancel_scope.cancel()
    [[asked, *rest]] = ends
    assert rest == [{"type": "cancel_ask", "messageId": asked["message"]["id"]}, {"type": "unregister"}]


async def test_cancelled_sends_never_leave_half_a_frame(paths: Paths) -> None:
    """F42: large sends cancelled at many points of a slow write; what arrives is whole frames, nobody's twice."""
    texts: list[str] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        sent = [frame for frame in link.wait_for_end() if frame["type"] == "send"]
        texts.extend(frame["message"]["content"]["text"] for frame in sent)

    with FakeBroker(paths.socket, script), anyio.fail_after(2 * PATIENCE_S):
        async with fake_session(paths) as session:
            for place in range(40):
                with anyio.move_on_after(0.0005 * (place % 5)):
                    await session.send("worker", f"{place} " + "x" * 300_000)
    assert all(len(text) > 300_000 for text in texts)
    assert len({text.split()[0] for text in texts}) == len(texts)


async def test_the_exception_of_the_block_passes_unchanged(paths: Paths) -> None:
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(message("m1"))
        ends.append(link.wait_for_end())

    with FakeBroker(paths.socket, script), pytest.raises(ZeroDivisionError):
        async with fake_session(paths) as session:
            await session.receive()
            raise ZeroDivisionError
    assert ends == [[{"type": "unregister"}]], "an exception does not confirm"


async def test_leaving_the_block_confirms_and_says_goodbye(paths: Paths) -> None:
    """Protocol 4.2."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(message("m1"))
        ends.append(link.wait_for_end())

    with FakeBroker(paths.socket, script):
        async with fake_session(paths) as session:
            async for found in session.messages():
                assert found.id == "m1"
                break
    assert ends == [[{"type": "received", "messageId": "m1"}, {"type": "unregister"}]]


async def test_cancelling_the_block_ends_it(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script):
        with anyio.move_on_after(0.1) as scope:
            async with fake_session(paths) as session:
                await session.receive()
        assert scope.cancelled_caught


async def test_a_cancelled_consumer_loses_nothing(paths: Paths) -> None:
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        link.send(message("m1"))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session:
            with anyio.move_on_after(0.01):
                await session.receive()
            go.set()
            assert (await session.receive()).id == "m1"


async def test_a_consumer_that_never_waits_can_be_cancelled(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(*(message(f"m{place}") for place in range(100)))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(PATIENCE_S):
        async with fake_session(paths) as session:
            with anyio.CancelScope() as scope:
                async for found in session.messages():
                    assert found.id == "m0", "not after it was cancelled"
                    scope.cancel()
            assert scope.cancelled_caught


async def test_a_broker_that_refuses(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.expect("register")
        link.send({"type": "registration_failed", "reason": "not you"})

    with FakeBroker(paths.socket, script), pytest.raises(RegistrationRefused, match="not you"):
        async with fake_session(paths):
            pass


async def test_a_broker_that_speaks_another_language(paths: Paths) -> None:
    """F42: one clear error."""

    def script(link: FakeLink, number: int) -> None:
        link.receive()
        link.send_bytes(b"HTTP/1.1 400 Bad Request\r\n")
        link.wait_for_end()

    with FakeBroker(paths.socket, script), pytest.raises(ProtocolViolation):
        async with fake_session(paths):
            pass


async def test_writing_may_be_forbidden(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F136."""

    def script(link: FakeLink, number: int) -> None:
        link.wait_for_end()

    write = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        if len(data) > 50:
            raise PermissionError(1, "Operation not permitted")
        return write(descriptor, data)

    with FakeBroker(paths.socket, script), monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        with pytest.raises(AccessDenied):
            async with fake_session(paths):
                pass


async def test_no_broker_and_none_to_be_started(paths: Paths) -> None:
    with pytest.raises(NoBroker):
        async with fake_session(paths):
            pass
    assert not paths.home.exists()


async def test_a_broker_that_goes_for_good(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.expect("send")

    with FakeBroker(paths.socket, script):
        async with fake_session(paths) as session:
            with pytest.raises(OutcomeUnknown) as caught:
                await session.send("worker", "hi", timeout=0.3, message_id="m9")
            assert caught.value.message_id == "m9"


async def test_a_connection_is_entered_once(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    connection = fake_session(paths)
    with FakeBroker(paths.socket, script):
        async with connection as session:
            pass
    with pytest.raises(UsageError):
        async with connection:
            pass
    with pytest.raises(UsageError, match="closed"):
        await session.list()
    with pytest.raises(UsageError, match="closed"):
        await session.receive()


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
    assert sorted(names) == [["one"], ["two"]]  # type: ignore[type-var]
