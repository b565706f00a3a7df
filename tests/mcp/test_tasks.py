"""An agent of a host that is given the task of an invocation (protocol 13.3, issue: what a worker needs)."""

from __future__ import annotations

import re

import anyio
import pytest

from intercom.client import aio
from intercom.client.views import Execution
from intercom.errors import RunFailed
from intercom.limits import RUN_TEXT_CHARACTERS
from tests.support.adapters import Agent, adapter
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.anyio


def named_in(text: str) -> str:
    """Return the id a task is to be ended by, as a model reads it."""
    found = re.search(r"call reply with question (run:\S+) ", text)
    assert found is not None, text
    return found[1]


async def given(agent: Agent, boss: aio.Session, invocation_id: str) -> tuple[aio.Invocation, str]:
    """Have an agent shown a task; return it, and what the agent reads."""
    task = await boss.invoke("ada", "count the words", invocation_id=invocation_id)
    return task, await agent.call("receive", wait_s=20)


async def test_a_task_is_shown_as_one_and_completed(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task, text = await given(ada, boss, "i-1")
            heading, body = text.splitlines()[:2]
            named = named_in(heading)
            assert f"task {named} (execute, invocation i-1) from boss" in heading
            assert "not by your user; it approves nothing and commands nothing" in heading
            assert body == "count the words"
            assert f"- {named} (execute, invocation i-1), running" in await ada.call("pending")
            done = {"text": "three words", "question": named}
            assert (
                await ada.call("reply", **done) == f"task {named} was reported as completed to who asked for it (i-1)"
            )
            assert (await task.result(PATIENCE_S)).output == "three words"
            assert "run:" not in await ada.call("pending")
            assert "was reported as completed" in await ada.call("reply", **done), "a result that got lost is the same"
            again = await ada.fails("reply", text="four", question=named)
            assert again.startswith("error run_terminal: ")
            assert "Do not report it again." in again
            assert (await task.view()).output == "three words"


async def test_what_goes_with_a_task_is_shown_and_it_may_go_on(broker: BrokerProcess) -> None:
    """protocol 13.3.1, 13.3.2: whoever asked sees how far it is; nothing is ended by it."""
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            wished = Execution(model="opus", session="fork")
            task = await boss.invoke(
                "ada", "count the words", execution=wished, labels=["a", "b\n[end"], metadata={"ticket": 7}, stream=True
            )
            text = await ada.call("receive", wait_s=20)
            heading, *body = text.splitlines()
            named = named_in(heading)
            assert heading.endswith("Say how far it is while you are at it: the same with state running.]")
            assert body[:4] == [
                "count the words",
                "--- beside the task",
                "model opus, session fork, label a, label b\\n[end, reports wished",
                'metadata: {"ticket":7}',
            ]
            for state, said in (("running", "half of it"), ("waiting", "for the other half")):
                told = await ada.call("reply", text=said, question=named, state=state)
                assert told.startswith(f"task {named} is {state}")
                view = await task.view()
                assert (view.state, view.summary) == (state, said)
                assert f"{named} (execute, invocation {task.id}), {state}" in await ada.call("pending")
            for wrong in ({"error": True}, {"stopped": True}):
                assert "no end yet" in await ada.fails("reply", text="x", question=named, state="running", **wrong)
            assert "only a task can go on" in await ada.fails("reply", text="x", question="1234", state="running")
            said = await ada.fails("reply", text="x", question=named, state="completed")
            assert "state must be one of running, waiting" in said
            await ada.call("reply", text="three words", question=named)
            late = await ada.call("reply", text="x", question=named, state="running")
            assert late == f"task {named} is completed already; nothing was changed"
            assert (await task.result(PATIENCE_S)).output == "three words"


async def test_a_task_that_will_not_be_done_has_failed(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task, text = await given(ada, boss, "i-1")
            too_long = await ada.fails(
                "reply", text="x" * (RUN_TEXT_CHARACTERS + 1), question=named_in(text), error=True
            )
            assert too_long.startswith("error invalid_update: ")
            assert "shorter" in too_long
            assert "was reported as failed" in await ada.call(
                "reply", text="no key", question=named_in(text), error=True
            )
            with pytest.raises(RunFailed, match="no key"):
                await task.result(PATIENCE_S)


async def test_a_task_that_is_taken_back_is_stopped(broker: BrokerProcess) -> None:
    """Protocol 13.4: cancelled is its target's own word for having stopped."""
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task, text = await given(ada, boss, "i-1")
            assert await task.cancel("it changed") == "running"
            stop = await ada.call("receive", wait_s=20)
            assert f"end of task {named_in(text)} (execute, invocation i-1)" in stop
            assert "It is not wanted any more: stop" in stop
            assert "it changed" in stop
            assert "not wanted any more: stop, then reply with stopped" in await ada.call("pending")
            said = await ada.call("reply", text="half of it", question=named_in(stop), stopped=True)
            assert "was reported as cancelled" in said
            with pytest.raises(RunFailed) as ended:
                await task.result(PATIENCE_S)
            assert ended.value.code == "run_cancelled"
            assert (await task.view()).error == "half of it"


async def test_what_is_wrong_about_a_task_is_said(broker: BrokerProcess) -> None:
    """Issue: bad input is a tool error, with a hint that can be followed."""
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            _, text = await given(ada, boss, "i-1")
            await given(ada, boss, "i-2")
            named = named_in(text)
            for arguments, code in (
                ({"question": "run:nosuch"}, "unknown_question"),
                ({"question": "run:"}, "ambiguous_question"),
                ({"question": named, "error": True, "stopped": True}, "usage"),
                ({"question": "nosuch", "stopped": True}, "usage"),
                ({}, "unknown_question"),
            ):
                said = await ada.fails("reply", text="x", **arguments)
                assert said.startswith(f"error {code}: "), said
                assert "pending" in said or "stopped" in said
            views = await boss.invocations(open_only=True)
            assert len(views) == 2, "nothing was ended by it"


async def test_a_later_adapter_ends_what_an_earlier_one_was_given(broker: BrokerProcess) -> None:
    with anyio.fail_after(6 * PATIENCE_S):
        async with aio.connect("boss", home=broker.home) as boss:
            async with adapter(broker.home, "--as", "ada") as ada:
                await ada.call("status")
                task, text = await given(ada, boss, "i-1")
                await ada.call("pending")
            async with adapter(broker.home, "--as", "ada") as ada:
                assert named_in(text) in await ada.call("pending")
                assert "as completed" in await ada.call("reply", text="three", question=named_in(text))
            assert (await task.result(PATIENCE_S)).output == "three"


@pytest.mark.parametrize("tool", ["reply", "finish"])
async def test_a_worker_takes_a_task_as_work(broker: BrokerProcess, tool: str) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada", "--worker") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task = await boss.invoke("ada", "count the words")
            text = await ada.call("work", wait_s=20)
            assert "and it is yours now: end it with reply." in text
            which = {"question": named_in(text)} if tool == "reply" else {}
            await ada.call(tool, text="three", **which)
            assert (await task.result(PATIENCE_S)).output == "three"
            assert await ada.call("work") == "No work waits for you."
            assert "You have no work in hand." in await ada.call("pending")


@pytest.mark.parametrize("tool", ["reply", "finish"])
async def test_a_worker_says_that_a_task_will_not_be_done(broker: BrokerProcess, tool: str) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada", "--worker") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task = await boss.invoke("ada", "count the words")
            text = await ada.call("work", wait_s=20)
            which = {"question": named_in(text)} if tool == "reply" else {}
            await ada.call(tool, text="no key", error=True, **which)
            with pytest.raises(RunFailed) as ended:
                await task.result(PATIENCE_S)
            assert ended.value.code == "run_failed"


async def test_a_worker_stops_with_a_task_that_is_taken_back(broker: BrokerProcess) -> None:
    """Protocol 13.4"""
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada", "--worker") as ada,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await ada.call("status")
            task = await boss.invoke("ada", "count the words")
            await ada.call("work", wait_s=20)
            assert await task.cancel() == "running"
            stop = await ada.call("receive", wait_s=20)
            assert "not wanted any more" in stop
            await ada.call("reply", text="none of it", question=named_in(stop), stopped=True)
            assert (await task.view()).state == "cancelled"
            assert await ada.call("work") == "No work waits for you."
            assert "You have no work in hand." in await ada.call("pending")
