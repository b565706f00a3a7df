"""An agent of a host that takes work (FE 1.4 by the tools of an adapter)."""

from __future__ import annotations

import anyio
import pytest

from intercom.client import aio
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
