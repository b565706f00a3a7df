"""Workers in both shells, against a broker that does what a test says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.errors import AssignmentLost, RequestRefused, UsageError
from intercom.paths import Paths
from tests.support.client import GRANTED, WALL
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import PATIENCE_S, Frame
from tests.support.work import WORK_FEATURES, granted, pushed, recorded, refused

FREE: dict[str, Any] = {"acceptDeadline": (WALL + 10**12)}
"""Members of work that is never too late."""


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def take_worker(link: FakeLink) -> Frame:
    """Take the registration of a worker and return it."""
    return link.take_registration(**{**GRANTED, "features": WORK_FEATURES})


def hand_over(link: FakeLink, assignment_id: str = "as1", **members: Any) -> None:
    """Hand work over and see it confirmed."""
    link.send(pushed(assignment_id, **{**FREE, **members}))
    assert link.expect("received")["pushId"] == f"push-{assignment_id}"


def hand_over_two(link: FakeLink) -> None:
    """Hand work over twice; the worker may do something about the first before it confirms the second."""
    link.send(pushed("as1", **FREE))
    link.send(pushed("as2", **FREE))


def next_report(link: FakeLink) -> Frame:
    """Return the next report; what is confirmed meanwhile is passed over."""
    while (frame := link.receive())["type"] == "received":
        pass
    assert frame["type"] == "assignment_report", frame
    return frame


def expect_report(link: FakeLink, state: str, assignment_id: str = "as1") -> Frame:
    """Take a report and record it."""
    report = next_report(link)
    assert (report["state"], report["assignmentId"]) == (state, assignment_id), report
    link.send(recorded(report))
    return report


def expect_reply(link: FakeLink, text: str) -> None:
    """Take an answer and say that its recipient has it."""
    reply = link.expect("assignment_reply")
    assert reply["content"]["text"] == text
    link.send({"type": "assignment_replied", "requestId": reply["requestId"], "messageId": "r1", "status": "sent"})


def blocking_worker(paths: Paths, **options: Any) -> Any:
    return blocking.connect(home=paths.home, start=False, **{"work_mode": "resident", **options})


def async_worker(paths: Paths, **options: Any) -> aio.Connection:
    return aio.connect(home=paths.home, start=False, **{"work_mode": "resident", **options})


Script = Callable[[FakeLink, int], None]


def whole_life(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    assert expect_report(link, "accepted")["stateEventId"] == "accepted"
    expect_report(link, "started")
    expect_reply(link, "3")
    assert [frame["type"] for frame in link.wait_for_end()] == ["unregister"], "nothing is left to say"


def test_the_life_of_an_assignment(paths: Paths) -> None:
    with FakeBroker(paths.socket, whole_life), blocking_worker(paths) as session:
        for work in session.assignments():
            assert work.text == "count the words"
            work.accept()
            work.accept()
            work.started()
            receipt = work.reply("3")
            assert (receipt.state, receipt.target, work.is_over) == ("delivered", "worker", True)
            break


@pytest.mark.anyio
async def test_the_life_of_an_assignment_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, whole_life), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            async for work in session.assignments():
                await work.accept()
                await work.accept()
                await work.started()
                receipt = await work.reply("3")
                assert (receipt.state, receipt.target, work.is_over) == ("delivered", "worker", True)
                break


def answered_at_once(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    expect_report(link, "accepted")
    expect_reply(link, "3")
    link.wait_for_end()


def test_an_answer_accepts(paths: Paths) -> None:
    """FE 1.5: a reply requires acceptance; whoever answers has taken the responsibility."""
    with FakeBroker(paths.socket, answered_at_once), blocking_worker(paths) as session:
        assert next(session.assignments()).reply("3").state == "delivered"


@pytest.mark.anyio
async def test_an_answer_accepts_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, answered_at_once), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            work = await anext(session.assignments())
            assert (await work.reply("3")).state == "delivered"


def left_without_a_word(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    expect_report(link, "accepted")
    assert expect_report(link, "failed")["reasonCode"] == "no_reply"
    link.wait_for_end()


def test_a_block_that_is_left_without_a_word_failed(paths: Paths) -> None:
    with FakeBroker(paths.socket, left_without_a_word), blocking_worker(paths) as session:
        with next(session.assignments()) as work:
            assert work.accepted
        assert work.is_over


@pytest.mark.anyio
async def test_a_block_that_is_left_without_a_word_failed_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, left_without_a_word), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            work = await anext(session.assignments())
            async with work:
                assert work.accepted
            assert work.is_over


def raised(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    expect_report(link, "accepted")
    report = expect_report(link, "failed")
    assert (report["reasonCode"], report["detail"]) == ("exception", "ValueError: no such file")
    assert "retryable" not in report
    link.wait_for_end()


def test_a_block_that_raises_says_so(paths: Paths) -> None:
    with FakeBroker(paths.socket, raised), blocking_worker(paths) as session:
        work = next(session.assignments())
        with pytest.raises(ValueError, match="no such file"), work:
            raise ValueError("no such file")


@pytest.mark.anyio
async def test_a_block_that_raises_says_so_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, raised), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            work = await anext(session.assignments())
            with pytest.raises(ValueError, match="no such file"):
                async with work:
                    raise ValueError("no such file")


def cut_off(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    expect_report(link, "accepted")
    assert expect_report(link, "interrupted")["reasonCode"] == "cancelled"
    link.wait_for_end()


def test_a_block_that_is_broken_off_says_so(paths: Paths) -> None:
    with FakeBroker(paths.socket, cut_off), blocking_worker(paths) as session:
        work = next(session.assignments())
        with pytest.raises(KeyboardInterrupt), work:
            raise KeyboardInterrupt


@pytest.mark.anyio
async def test_a_block_that_is_cancelled_says_so(paths: Paths) -> None:
    with FakeBroker(paths.socket, cut_off), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            work = await anext(session.assignments())
            with anyio.CancelScope() as scope:
                async with work:
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught


def one_is_lost(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over_two(link)
    link.send(refused(next_report(link), "assignment_unknown", category="reply_handle_stale"))
    expect_report(link, "accepted", "as2")
    link.wait_for_end()


def test_what_somebody_else_has_is_passed_over(paths: Paths) -> None:
    with FakeBroker(paths.socket, one_is_lost), blocking_worker(paths) as session:
        assert next(session.assignments(accept=True)).id == "as2"


@pytest.mark.anyio
async def test_what_somebody_else_has_is_passed_over_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, one_is_lost), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            assert (await anext(session.assignments(accept=True))).id == "as2"


def too_late(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over(link)
    link.send(refused(link.expect("assignment_report"), "assignment_unknown"))
    link.wait_for_end()


def test_work_that_is_accepted_too_late_is_lost(paths: Paths) -> None:
    """FE 1.3: a late report changes nothing."""
    with FakeBroker(paths.socket, too_late), blocking_worker(paths) as session:
        work = next(session.assignments())
        with pytest.raises(AssignmentLost):
            work.accept()
        assert not work.accepted


def turns(link: FakeLink, number: int) -> None:
    registered = take_worker(link)
    assert (registered["workMode"], registered["runtimeSessionId"]) == ("managed_turn", "host-1")
    link.send(granted(link.expect("inbox_await")["requestId"], **FREE))
    expect_report(link, "accepted")
    link.wait_for_end()


def test_a_worker_with_turns_comes_for_its_work(paths: Paths) -> None:
    options = {"work_mode": "managed_turn", "runtime_session_id": "host-1"}
    with FakeBroker(paths.socket, turns), blocking_worker(paths, **options) as session:
        next(session.assignments()).accept()


@pytest.mark.anyio
async def test_a_worker_with_turns_comes_for_its_work_under_anyio(paths: Paths) -> None:
    options = {"work_mode": "managed_turn", "runtime_session_id": "host-1"}
    with FakeBroker(paths.socket, turns), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths, **options) as session:
            await (await anext(session.assignments())).accept()


def nothing_in_time(link: FakeLink, number: int) -> None:
    take_worker(link)
    asked = link.expect("inbox_await")
    time.sleep(asked["timeoutMs"] / 1000)  # as a broker does that has nothing
    link.send({"type": "inbox_nothing", "requestId": asked["requestId"]})
    link.wait_for_end()


def test_nothing_comes_in_time(paths: Paths) -> None:
    with FakeBroker(paths.socket, nothing_in_time), blocking_worker(paths) as session:
        assert list(session.assignments(claim=True, timeout=0.05)) == []
    again = Paths(paths.home.with_name("again"))
    with FakeBroker(again.socket, nothing_in_time), blocking_worker(again) as session:
        assert session.wait_for_assignment(timeout=0.05) is None


def dies(link: FakeLink, number: int) -> None:
    """Be gone in the middle of a report, and of an answer; the next one is told the same again."""
    if number == 0:
        take_worker(link)
        hand_over(link)
        expect_report(link, "accepted")
        link.expect("assignment_reply")
        return
    asked = link.expect("session_reattach")
    answer = {"requestId": asked["requestId"], "sessionId": "me", "incarnation": "one", "generation": 2}
    link.send({"type": "session_reattached", **answer, "features": WORK_FEATURES, "mailboxCount": 0})
    expect_reply(link, "3")
    link.wait_for_end()


def test_a_lost_connection_repeats_the_answer(paths: Paths) -> None:
    with FakeBroker(paths.socket, dies, connections=2), blocking_worker(paths) as session:
        work = next(session.assignments())
        with work:
            assert work.reply("3").message_id == "r1"


@pytest.mark.anyio
async def test_a_lost_connection_repeats_the_answer_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, dies, connections=2), anyio.fail_after(2 * PATIENCE_S):
        async with async_worker(paths) as session, await anext(session.assignments()) as work:
            assert (await work.reply("3")).message_id == "r1"


def leaves(link: FakeLink, number: int) -> None:
    take_worker(link)
    hand_over_two(link)
    expect_report(link, "accepted", "as1")
    ended = [frame for frame in link.wait_for_end() if frame["type"] != "received"]
    assert [(frame["type"], frame.get("state"), frame.get("assignmentId")) for frame in ended] == [
        ("assignment_report", "failed", "as2"),
        ("assignment_report", "interrupted", "as1"),
        ("unregister", None, None),
    ]


def test_a_worker_that_leaves_says_so(paths: Paths) -> None:
    with FakeBroker(paths.socket, leaves), blocking_worker(paths) as session:
        work = next(session.assignments())
        work.accept()


@pytest.mark.anyio
async def test_a_worker_that_leaves_by_an_exception_says_so(paths: Paths) -> None:
    with FakeBroker(paths.socket, leaves), anyio.fail_after(PATIENCE_S), pytest.raises(ZeroDivisionError):
        async with async_worker(paths) as session:
            work = await anext(session.assignments())
            await work.accept()
            raise ZeroDivisionError


def no_worker(link: FakeLink, number: int) -> None:
    link.take_registration(**GRANTED)
    link.wait_for_end()


def test_whoever_takes_no_work_is_told(paths: Paths) -> None:
    with FakeBroker(paths.socket, no_worker), blocking.connect(home=paths.home, start=False) as session:
        work = session.assignments()
        with pytest.raises(UsageError):
            next(work)


@pytest.mark.anyio
async def test_a_broker_that_gives_no_work_is_told_under_anyio(paths: Paths) -> None:
    with FakeBroker(paths.socket, no_worker), anyio.fail_after(PATIENCE_S):
        async with async_worker(paths) as session:
            with pytest.raises(RequestRefused) as caught:
                await anext(session.assignments())
            assert caught.value.code == "feature_not_granted"
