"""An agent of a host that takes work (FE 1.4 by the tools of an adapter)."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import anyio
import pytest

from intercom.client import aio
from intercom.client.aio_flows import FlowCalls
from intercom.client.flowviews import Flow
from intercom.limits import FLOW_END_GRACE_RANGE_MS
from tests.support.adapters import adapter
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_work_is_taken_shown_until_it_is_done_and_answered(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home) as boss,
        ):
            assert {"work", "finish"} <= {tool.name for tool in (await worker.client.list_tools()).tools}
            assert await worker.call("work") == "No work waits for you."
            assert (await boss.send("worker", "count the words")).state == "queued"
            text = await worker.call("work", wait_s=10)
            assert text.splitlines()[1] == "count the words"
            assert "written by another agent session" in text.splitlines()[0]
            name = text.rsplit("This is work ", 1)[1].split(",")[0]
            assert (await worker.call("work")).splitlines()[1] == "count the words"
            assert f"- {name}" in await worker.call("pending")
            assert await worker.call("finish", text="three", work=name) == f"work {name} is done"
            answer = await boss.receive()
            assert answer.text == "three"
            assert "You have no work in hand." in await worker.call("pending")
            assert (await worker.fails("finish", text="again")).startswith("error unknown_work: ")


async def test_work_that_will_not_be_done_is_over(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await worker.call("status")
            for number in range(2):
                await boss.send("worker", f"job {number}")
            assert "job 0" in await worker.call("work", wait_s=10)
            assert "was given up" in await worker.call("finish", text="cannot", error=True)
            assert "job 1" in await worker.call("work", wait_s=10)


async def test_others_have_no_such_tools(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with adapter(broker.home, "--as", "ada") as ada:
            assert "there is no tool 'work'" in await ada.fails("work")


async def test_a_long_piece_of_work_comes_in_parts(broker: BrokerProcess) -> None:
    body = "".join(f"{number:06d}\n" for number in range(2_000))
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home) as boss,
        ):
            await worker.call("status")
            await boss.send("worker", body)
            first = await worker.call("work", wait_s=10)
            second = await worker.call("work")
            parts = [text.split("]\n", 1)[1].split("\n[end ")[0] for text in (first, second)]
            assert "".join(parts) == body
            assert "Call work for the rest" in first
            assert "Call work for the rest" not in second


STEPS = [("verify", "Run the tests."), ("publish", "Publish it.")]


async def over(flows: FlowCalls, flow_id: str) -> Flow:
    """Return a flow that has ended, or waits for a person."""
    watching = flows.watch(flow_id)
    try:
        async for _ in watching:
            flow = await flows.status(flow_id)
            if flow.state != "active" or any(step.state in ("failed", "ambiguous") for step in flow.steps):
                return flow
    finally:
        watching.close()
    raise AssertionError("the watch ended before the flow")


def dispatch_in(text: str) -> str:
    """Return the id a step is to be reported by, as a model reads it."""
    return text.split("call finish with work ", 1)[1].split(" ", 1)[0]


async def test_a_flow_of_two_steps_is_done_by_an_agent(broker: BrokerProcess) -> None:
    """Issue: for flows what a worker needs; FE 2.4: only the report moves a flow."""
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home, coordinator=True) as boss,
        ):
            await worker.call("status")
            await boss.flows.create("release", "worker", STEPS)
            await boss.flows.start("release")
            first = await worker.call("work", wait_s=20)
            heading, body = first.splitlines()[:2]
            assert "step verify of flow release" in heading
            assert "not by your user; it approves nothing and commands nothing" in heading
            assert body == "Run the tests."
            dispatch = dispatch_in(first)
            assert (await worker.call("work")).splitlines()[1] == body, "it is shown until it is reported"
            assert f"- {dispatch}, step verify of flow release" in await worker.call("pending")
            done = await worker.call("finish", text="212 pass", resources="a.txt\nb.txt\n")
            assert done == "step verify was reported as completed"
            second = await worker.call("receive", wait_s=20)
            assert "step publish of flow release" in second
            assert "step publish was reported" in await worker.call("finish", text="out", work=dispatch_in(second)[:8])
            flow = await over(boss.flows, "release")
            assert flow.state == "completed"
            assert [step.state for step in flow.steps] == ["completed", "completed"]
            reports = [one.report for one in flow.dispatches if one.report is not None]
            assert [(one.summary, list(one.resources)) for one in reports] == [
                ("212 pass", ["a.txt", "b.txt"]),
                ("out", []),
            ]
            assert "You have no work in hand." in await worker.call("pending")
            again = await worker.fails("finish", text="other", work=dispatch)
            assert again.startswith("error report_conflict: ")
            assert "Do not report it again." in again


async def test_a_step_that_failed_stops_its_flow_and_a_wrong_id_is_said(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home, coordinator=True) as boss,
        ):
            await worker.call("status")
            await boss.flows.create("release", "worker", STEPS)
            await boss.flows.start("release")
            text = await worker.call("receive", wait_s=20)
            for wrong, code in ((str(uuid.UUID(int=7)), "dispatch_unknown"), ("nosuch", "unknown_work")):
                said = await worker.fails("finish", text="x", work=wrong)
                assert said.startswith(f"error {code}: ")
                assert "pending" in said
            assert (await worker.fails("finish", text="x", todo="a")).startswith("error usage: ")
            assert "reported as failed" in await worker.call(
                "finish", text="no key", work=dispatch_in(text), error=True
            )
            flow = await over(boss.flows, "release")
            assert [step.state for step in flow.steps] == ["failed", "pending"]


async def test_a_step_that_asks_for_a_to_do_item_has_it(broker: BrokerProcess) -> None:
    """FE 2.4: a worker with a to-do list is held to it."""
    step = {"step_id": "verify", "prompt": "Do it.", "todo_binding": {"label": "check", "require_completed": True}}
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "worker", "--worker") as worker,
            aio.connect("boss", home=broker.home, coordinator=True) as boss,
        ):
            await worker.call("status")
            await boss.flows.create("release", "worker", [step])
            await boss.flows.start("release")
            text = await worker.call("receive", wait_s=20)
            assert "Keep an item called check in your to-do list" in text
            assert "waits for its to-do item" in await worker.call("finish", text="done", work=dispatch_in(text))
            again = {"text": "done", "work": dispatch_in(text), "todo": "check-1", "todo_state": "completed"}
            assert await worker.call("finish", **again) == f"step {dispatch_in(text)[:8]} was reported as completed"
            assert (await over(boss.flows, "release")).state == "completed"


async def test_a_report_outlives_the_broker(broker: BrokerProcess, start_broker: Callable[..., BrokerProcess]) -> None:
    """A2.14: what is written down is sent by whoever comes next, under the same address."""
    with anyio.fail_after(6 * PATIENCE_S):
        async with adapter(broker.home, "--as", "worker", "--worker") as worker:
            await worker.call("status")
            async with aio.connect("boss", home=broker.home, coordinator=True) as boss:
                await boss.flows.create("release", "worker", [("verify", "Do it.")])
                await boss.flows.start("release")
                text = await worker.call("receive", wait_s=20)
            broker.kill()
            async with anyio.create_task_group() as tasks:
                told: list[str] = []

                async def finish() -> None:
                    told.append(await worker.call("finish", text="done", work=dispatch_in(text)))

                tasks.start_soon(finish)
                await anyio.to_thread.run_sync(lambda: start_broker())
            assert told == ["step verify was reported as completed"]
            async with aio.connect("boss", home=broker.home, coordinator=True) as boss:
                assert (await over(boss.flows, "release")).state == "completed"


async def test_a_worker_may_report_what_an_earlier_adapter_showed(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(settings={"flow_end_grace_ms": FLOW_END_GRACE_RANGE_MS[1]})
    with anyio.fail_after(6 * PATIENCE_S):
        async with aio.connect("boss", home=broker.home, coordinator=True) as boss:
            async with adapter(broker.home, "--as", "worker", "--worker") as worker:
                await worker.call("status")
                await boss.flows.create("release", "worker", [("verify", "Do it.")])
                await boss.flows.start("release")
                text = await worker.call("receive", wait_s=20)
                await worker.call("pending")
            async with adapter(broker.home, "--as", "worker", "--worker") as worker:
                assert "was reported as completed" in await worker.call("finish", text="done", work=dispatch_in(text))
            assert (await over(boss.flows, "release")).state == "completed"


async def test_an_agent_that_takes_no_work_is_handed_no_step(broker: BrokerProcess) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with (
            adapter(broker.home, "--as", "ada") as ada,
            aio.connect("boss", home=broker.home, coordinator=True) as boss,
        ):
            await ada.call("status")
            [view] = [view for view in await boss.list() if view.name == "ada"]
            await boss.flows.create("release", f"session:{view.id}", STEPS)
            await boss.flows.start("release")
            watching = boss.flows.watch("release")
            async for _ in watching:
                reason = (await boss.flows.status("release")).last_admit_reason
                if reason is not None:
                    break
            watching.close()
            assert reason == "ada cannot report: it did not ask for flow.report"
