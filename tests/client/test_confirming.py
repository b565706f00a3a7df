"""Say that a message is done with before the next one is asked for, in both shells (design section 7, Receipts)."""

from __future__ import annotations

import threading

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.client.views import Receipt
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_message_is_confirmed_at_once(broker: BrokerProcess) -> None:
    receipts: list[Receipt] = []
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("ada", home=broker.home) as ada, aio.connect("bob", home=broker.home) as bob:

            async def send() -> None:
                receipts.append(await ada.send("bob", "hi", queue=False))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                found = await bob.receive()
                assert receipts == [], "reading is not confirming"
                found.confirm()
                found.confirm()
            assert [receipt.state for receipt in receipts] == ["delivered"]
            receipt = await ada.send("bob", "again")
            assert receipt.state == "queued", "the next one is not confirmed with it"


def test_a_message_is_confirmed_at_once_without_a_loop(broker: BrokerProcess) -> None:
    receipts: list[Receipt] = []

    def send() -> None:
        with blocking.connect("ada", home=broker.home) as ada:
            receipts.append(ada.send("bob", "hi", queue=False))

    with blocking.connect("bob", home=broker.home) as bob:
        sender = threading.Thread(target=send)
        sender.start()
        found = bob.receive(timeout=PATIENCE_S)
        assert found is not None
        assert receipts == [], "reading is not confirming"
        found.confirm()
        found.confirm()
        sender.join(PATIENCE_S)
        assert [receipt.state for receipt in receipts] == ["delivered"]


def test_what_was_confirmed_does_not_come_again(broker: BrokerProcess) -> None:
    """A block that is left by an exception confirms nothing else."""
    with blocking.connect("ada", home=broker.home) as ada:
        with pytest.raises(ZeroDivisionError), blocking.connect("bob", home=broker.home, address=True) as bob:
            for text in ("one", "two"):
                assert ada.send("bob", text).state == "queued"
            hands = [bob.messages(timeout=PATIENCE_S) for _ in range(2)]
            first, _ = (next(hand) for hand in hands)
            first.confirm()
            raise ZeroDivisionError
        with blocking.connect("bob", home=broker.home, address=True) as bob:
            again = bob.receive(timeout=PATIENCE_S)
            assert again is not None
            assert again.text == "two"
