"""Test envelopes that are longer than the engine takes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.cluster import parts as module
from intercom.cluster.parts import Odd, Parts, cut, header_of


@pytest.fixture(autouse=True, scope="module")
def small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CLUSTER_PART_BYTES", 4)
        patch.setattr(module, "CLUSTER_PARTS", 8)
        yield


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.randoms())
def test_whatever_comes_in_whatever_order_each_is_put_together_once(texts: list[bytes], chance: random.Random) -> None:
    sent = [
        (header_of(number, len(cut(text)), f"e{place}"), part, f"{place}.{number}")
        for place, text in enumerate(texts)
        for number, part in enumerate(cut(text))
    ]
    chance.shuffle(sent)
    parts, whole = Parts(), []
    for header, part, reply in sent:
        found = parts.add(header, part, reply)
        if found is not None:
            whole.append(found.data)
            assert len(found.came_with) == len(cut(found.data))
    assert sorted(whole) == sorted(texts) and not len(parts)


def test_a_part_that_comes_again_takes_the_place_of_the_earlier_one() -> None:
    """The engine hands out again what was not settled: only the newest way to settle it counts."""
    parts = Parts()
    for reply in ("old", "new"):
        assert parts.add("0/2/e", b"ab", reply) is None
    found = parts.add("1/2/e", b"cd", "other")
    assert found is not None and (found.data, found.came_with) == (b"abcd", ("new", "other"))


@pytest.mark.parametrize("header", ["", "0", "0/2", "0/2/", "a/2/e", "-1/2/e", "2/2/e", "0/9/e", "0/0/e"])
def test_what_is_no_part_is_told(header: str) -> None:
    with pytest.raises(Odd):
        Parts().add(header, b"", "reply")
    with pytest.raises(Odd):
        Parts().add("0/2/e", b"12345", "reply")


def test_what_is_never_whole_costs_no_more_than_a_bound() -> None:
    parts = Parts()
    for number in range(30):
        parts.add(f"0/2/e{number}", b"", "reply")
    assert len(parts) == 8
