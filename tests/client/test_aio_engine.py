"""The anyio engine on asyncio and trio, against brokers that do odd things."""

from __future__ import annotations

import os
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from intercom.client import aio
from intercom.errors import (
    AccessDenied,
    NoBroker,
    OutcomeUnknown,
    ProtocolViolation,
    RegistrationRefused,
    SessionReplaced,
    UsageError,
)
from intercom.limits import INCOMING_MESSAGES
from intercom.paths import Paths
from tests.support.client import GRANTED, OTHER, PEER, message
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import PATIENCE_S, Frame

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def fake_session(paths: Paths, **options: Any) -> aio.Connection:
    return aio.connect("ada", home=paths.home, start=False, **options)


def bound(sent: Frame) -> Frame:
    answered = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
    return {"type": "question_target", **answered, "sessionId": PEER["id"]}


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

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
        async with fake_session(paths) as session:
            assert (await session.ask("worker", "ok?")).text == "yes"
            assert (await session.receive()).id == "m0"


async def test_reading_goes_on_when_messages_are_taken(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(*(message(f"m{place}") for place in range(3 * INCOMING_MESSAGES)))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
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

    with FakeBroker(paths.socket, script, connections=2), anyio.fail_after(3 * PATIENCE_S):
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

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
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

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
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


async def test_a_closed_session_keeps_no_room_for_what_it_cannot_read(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script):
        async with fake_session(paths) as session:
            pass
    with pytest.raises(UsageError, match="closed"):
        await session.list()
    with pytest.raises(ValueError, match="released"):
        bytes(session._engine._input)


async def test_cancelling_the_block_ends_it(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script):
        with anyio.CancelScope() as scope:
            async with fake_session(paths) as session:
                scope.deadline = anyio.current_time() + 0.01  # it is registered
                await session.receive()
        assert scope.cancelled_caught


async def test_a_cancelled_consumer_loses_nothing(paths: Paths) -> None:
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        link.send(message("m1"))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
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

    with FakeBroker(paths.socket, script), anyio.fail_after(3 * PATIENCE_S):
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


async def test_a_replaced_session_ends_with_why(paths: Paths) -> None:
    """It does not connect again, and whoever waits is told."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration(**GRANTED)
        sent = link.expect("send")
        assert sent["queueIfAway"] is True
        link.send({"type": "replaced", "by": "address", "sessionId": "other"})
        link.wait_for_end()

    told = []

    async def wait_for_messages(session: aio.Session) -> None:
        with pytest.raises(SessionReplaced):
            await session.receive()
        told.append("messages")

    with FakeBroker(paths.socket, script):
        async with fake_session(paths, address=True) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_messages, session)
            with pytest.raises(OutcomeUnknown) as caught:
                await session.send("worker", "hi")
            assert isinstance(caught.value.__cause__, SessionReplaced)
        with pytest.raises(SessionReplaced):
            await session.pending()
    assert told == ["messages"]


async def test_a_lost_connection_is_taken_back(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        if number == 0:
            link.take_registration(**GRANTED)
            return
        first = link.expect("session_reattach", sessionId="me", ownerToken="owner")
        told = {"sessionId": "me", "incarnation": "one", "generation": 2, "mailboxCount": 0}
        answer = {"type": "session_reattached", "requestId": first["requestId"], **told}
        link.send({**answer, "features": GRANTED["features"]}, message("m1"))
        link.expect("received", messageId="m1")
        link.wait_for_end()

    with FakeBroker(paths.socket, script, connections=2):
        async with fake_session(paths) as session:
            assert (await session.receive()).id == "m1"
            assert session.id == "me"
