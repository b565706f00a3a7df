"""Say that a message is done with before the next one is asked for, in both shells (design section 7, Receipts)."""

from __future__ import annotations

import threading

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.client.views import Receipt
from intercom.errors import IntercomError
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


def test_the_sender_of_what_was_passed_on_too_late_is_told_expired(broker: BrokerProcess) -> None:
    """F87: handed over in time, shown late, and labelled; the sender is told what became of it."""
    outcomes: list[object] = []

    def send() -> None:
        with blocking.connect("ada", home=broker.home) as ada:
            try:
                outcomes.append(ada.send("bob", "hi", queue=False, valid_for=1))
            except IntercomError as error:
                outcomes.append(error.code)

    with blocking.connect("bob", home=broker.home) as bob:
        sender = threading.Thread(target=send)
        sender.start()
        found = bob.receive(timeout=PATIENCE_S)
        assert found is not None
        while not found.is_out_of_date:
            threading.Event().wait(0.01)
        found.confirm(out_of_date=True)
        sender.join(PATIENCE_S)
    assert outcomes == ["expired"]


def test_mail_that_is_read_too_late_comes_back_as_a_notice(broker: BrokerProcess) -> None:
    """F87, protocol 9.5.5: as `trace` and a watch tell it, too."""
    with blocking.connect("ada", home=broker.home, address=True) as ada:
        with blocking.connect("bob", home=broker.home, address=True) as bob:
            busy = bob.receive(timeout=0.01)
            assert busy is None
        sent = ada.send("bob", "hi", valid_for=1)
        assert sent.state == "queued"
        with blocking.connect("bob", home=broker.home, address=True) as bob:
            found = bob.receive(timeout=PATIENCE_S)
            assert found is not None and found.mail is not None
            while not found.is_out_of_date:
                threading.Event().wait(0.01)
            found.confirm(out_of_date=True)
        notice = ada.receive(timeout=PATIENCE_S)
        assert notice is not None and notice.notice is not None
        assert (notice.notice.kind, notice.notice.message_id) == ("expired", sent.message_id)
        assert ada.trace(sent.message_id).state == "expired"


def test_what_is_written_again_while_it_waits_is_shown_once(broker: BrokerProcess) -> None:
    """Protocol 15.3.2: with how often, and each send is settled."""
    with blocking.connect("bob", home=broker.home, address=True):
        pass
    with blocking.connect("ada", home=broker.home, address=True) as ada:
        receipts = [ada.send("bob", text) for text in ("status?", "other", "status?", "status?")]
        first = receipts[0].message_id
        assert [receipt.joined for receipt in receipts] == [None, None, first, first]
        with blocking.connect("bob", home=broker.home, address=True) as bob:
            found = [bob.receive(timeout=PATIENCE_S) for _ in range(2)]
            assert [(each.text, each.mail.sends) for each in found if each and each.mail] == [
                ("status?", 3),
                ("other", 1),
            ]
            assert bob.receive(timeout=0.01) is None
        assert {ada.trace(receipt.message_id).state for receipt in receipts} == {"delivered"}
