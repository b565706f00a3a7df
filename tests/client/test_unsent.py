"""Bytes on their way to the kernel."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.client.unsent import Unsent


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.integers(1, 7), min_size=200, max_size=200))
def test_everything_arrives_in_order_however_little_is_taken(chunks: list[bytes], portions: list[int]) -> None:
    taken = bytearray()
    sizes = iter(portions)

    def write(descriptor: int, data: bytes) -> int:
        size = next(sizes)
        if size == 7:
            raise BlockingIOError
        taken.extend(data[:size])
        return min(size, len(data))

    unsent = Unsent()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", write)
        for chunk in chunks:
            unsent.add(chunk)
            unsent.write_to(1)
        while portions and not unsent.write_to(1):
            sizes = iter([3] * 400)
    assert bytes(taken) == b"".join(chunks)
    assert not unsent


def test_a_full_pipe_is_no_error() -> None:
    read, write = os.pipe()
    try:
        os.set_blocking(write, False)
        unsent = Unsent()
        unsent.add(b"x" * 1_000_000)
        assert not unsent.write_to(write)
        assert unsent
        unsent.clear()
        assert unsent.write_to(write)
    finally:
        os.close(read)
        os.close(write)


def test_a_broken_pipe_is_an_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        unsent = Unsent()
        unsent.add(b"x")
        with pytest.raises(BrokenPipeError):
            unsent.write_to(write)
    finally:
        os.close(write)
