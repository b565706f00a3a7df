"""Test what is kept for brokers to whom the engine may not be able to hand it out."""

from __future__ import annotations

import asyncio

import pytest

from intercom.cluster.nats import direct as directly
from intercom.cluster.nats.direct import Direct
from intercom.core.records import Post


def post(number: int) -> Post:
    return Post(number, "b", "send", f"d{number}", "1", b"{}")


def given(direct: Direct) -> list[int]:
    """Return what goes in one turn, when each has come at once."""
    numbers: list[int] = []

    async def bring(posts: list[Post]) -> None:
        numbers.append(posts[0].number)

    async def turn() -> None:
        direct.is_silent = True
        await direct.give_all((), bring)
        seen = 0
        while seen < len(numbers):
            seen += 1
            await direct.came("b", numbers[seen - 1], bring)

    asyncio.run(turn())
    return numbers


def test_what_was_stored_long_ago_or_is_too_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for what the engine may not have handed out: given again much later it might not be known any more."""
    monkeypatch.setattr(directly, "CLUSTER_JUST_STORED_BYTES", 5)
    direct = Direct()
    for number in (1, 2, 3):
        direct.stored([post(number)])
    assert given(direct) == [2, 3]
    direct.had(2)
    assert given(direct) == [3]
    monkeypatch.setattr(directly, "CLUSTER_JUST_STORED_MS", 0)
    assert given(direct) == [] and direct._bytes == 0


def test_what_its_broker_has_is_not_given_again_in_the_same_turn() -> None:
    """It may come through the engine while it waits to go directly."""
    direct = Direct()
    numbers: list[int] = []

    async def bring(posts: list[Post]) -> None:
        numbers.append(posts[0].number)

    async def turn() -> None:
        direct.is_silent = True
        await direct.give_all([[post(1)], [post(2)], [post(3)]], bring)
        direct.had(2)
        await direct.came("b", 1, bring)

    asyncio.run(turn())
    assert numbers == [1, 3]
