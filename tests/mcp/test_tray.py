from __future__ import annotations

from typing import Any, cast

from msgspec import Raw
from msgspec.json import encode

from intercom.client.aio import IncomingMessage
from intercom.client.views import view_of
from intercom.limits import OLD_MAIL_MS, TOLD_LEAST_CHARACTERS
from intercom.mcp.tray import Item, Tray
from tests.support.client import PEER


class Rig:
    """Hold a tray, and what it told."""

    def __init__(self) -> None:
        self.news = 0
        self.shown: list[str] = []
        self.tray = Tray(self._heard, self._saw)

    def _heard(self) -> None:
        self.news += 1

    def _saw(self, item: Item) -> None:
        assert item.message is not None
        self.shown.append(item.message.id)

    def put(self, message_id: str, text: str = "hi", **members: Any) -> None:
        sender = view_of(Raw(encode(PEER)))
        self.tray.put(Item(IncomingMessage(id=message_id, text=text, sender=sender, **members), ""))


def ids(items: list[Item]) -> list[str]:
    return [cast(IncomingMessage, item.message).id for item in items]


def test_what_was_shown_is_confirmed_and_not_before() -> None:
    """design section 7, Receipts."""
    rig = Rig()
    rig.put("m1")
    rig.put("m2")
    batch = rig.tray.take()
    assert batch is not None
    assert (ids(batch.items), len(rig.tray), rig.shown) == (["m1", "m2"], 0, [])
    batch.done()
    batch.done()
    batch.back()
    assert (rig.shown, len(rig.tray)) == (["m1", "m2"], 0)


def test_what_was_not_shown_waits_again_in_its_order_and_is_news() -> None:
    rig = Rig()
    rig.put("m1")
    rig.put("m2")
    batch = rig.tray.take()
    rig.put("m3")
    assert batch is not None
    assert [item.bells for item in batch.items] == [1, 1]
    news = rig.news
    batch.back()
    assert rig.news == news + 1
    assert [item.bells for item in rig.tray] == [0, 0, 0]
    again = rig.tray.take()
    assert again is not None
    assert ids(again.items) == ["m1", "m2", "m3"]


def test_a_batch_holds_what_fits_and_no_splinters() -> None:
    rig = Rig()
    for number in range(4):
        rig.put(f"m{number}", "x" * 500)
    batch = rig.tray.take(1_700)
    assert batch is not None
    assert ids(batch.items) == ["m0", "m1"]
    assert len(batch.text) <= 1_700
    assert len(rig.tray) == 2


def test_a_long_message_leaves_its_rest_and_is_confirmed_with_the_last_part() -> None:
    rig = Rig()
    rig.put("m1", "x" * 3_000)
    rig.put("m2")
    parts = 0
    while rig.shown != ["m1", "m2"]:
        batch = rig.tray.take(1_500)
        assert batch is not None
        assert "m2" not in rig.shown or "m1" in rig.shown
        batch.done()
        parts += 1
        assert parts < 10
    assert parts == 3, "the last part leaves room for the next message"


def test_there_is_always_room_for_a_beginning() -> None:
    rig = Rig()
    rig.put("m1", "x" * 3_000)
    batch = rig.tray.take(1)
    assert batch is not None
    assert "x" * TOLD_LEAST_CHARACTERS in batch.text


def test_what_waited_here_says_how_long() -> None:
    """F87: a stale message is labelled with its age, wherever it waited."""
    rig = Rig()
    rig.put("m1")
    [item] = rig.tray
    item.since -= OLD_MAIL_MS / 1000
    batch = rig.tray.take()
    assert batch is not None
    assert "sent 5 min 0 s ago: check whether it still matters" in batch.text


def test_questions_are_counted_and_can_be_withdrawn() -> None:
    rig = Rig()
    rig.put("m1")
    rig.put("q1", expects_reply=True)
    assert rig.tray.questions == 1
    assert rig.tray.drop("q1") is not None
    assert rig.tray.drop("q1") is None
    assert (rig.tray.questions, len(rig.tray)) == (0, 1)


def test_a_sentence_of_ours_has_no_wrapper() -> None:
    rig = Rig()
    rig.tray.put(Item(None, "[intercom: nobody answered]"))
    batch = rig.tray.take()
    assert batch is not None
    assert (batch.text, batch.questions) == ("[intercom: nobody answered]", 0)


def test_nothing_waits() -> None:
    assert Rig().tray.take() is None


def test_what_is_shown_after_its_time_is_known_to_be() -> None:
    """F87: its sender is told expired."""
    rig = Rig()
    rig.put("m1", valid_until=1)
    rig.put("m2", valid_until=9_999_999_999_999)
    batch = rig.tray.take()
    assert batch is not None
    assert [item.was_out_of_date for item in batch.items] == [True, False]
