from __future__ import annotations

import os
import sys

import pytest

from intercom.limits import STDERR_BYTES
from intercom.server.stderr import CappedStderr, cap_stderr, secure_standard_descriptors
from tests.support.processes import in_child


def test_the_cap_counts_bytes_and_drops_the_rest_silently() -> None:
    """Protocol 2.2."""
    read, write = os.pipe()
    capped = CappedStderr(write, 10)
    assert capped.write("éé") == 2
    assert capped.write("abcdefgh") == 8
    assert capped.write("never") == 5
    os.close(write)
    assert os.read(read, 100) == "éé".encode() + b"abcdef"
    os.close(read)


def test_what_cannot_be_encoded_is_escaped() -> None:
    read, write = os.pipe()
    CappedStderr(write).write("\ud83d")
    assert os.read(read, 100) == b"\\ud83d"
    os.close(read)
    os.close(write)


def test_a_closed_descriptor_takes_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    capped = CappedStderr(write)
    assert capped.write("x") == 1
    os.close(write)
    assert capped.write("x") == 1
    assert capped.writable() and capped.fileno() == write


def test_a_traceback_goes_through_the_cap() -> None:
    def child() -> tuple[int, bool]:
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        cap_stderr()
        for _ in range(100):
            sys.excepthook(ValueError, ValueError("x" * 1_000), None)
        os.close(2)
        data = b""
        while part := os.read(read, 100_000):
            data += part
        return len(data), data.startswith(b"ValueError: xxx")

    assert in_child(child) == (STDERR_BYTES, True)


@pytest.mark.parametrize("closed", [(), (0,), (1, 2), (0, 1, 2)])
def test_closed_standard_descriptors_are_filled(closed: tuple[int, ...]) -> None:
    """Design: nothing of ours may get the number of a standard descriptor."""

    def child() -> tuple[int, list[bool]]:
        for descriptor in closed:
            os.close(descriptor)
        secure_standard_descriptors()
        opened = os.open(os.devnull, os.O_RDONLY)
        return opened, [os.get_inheritable(descriptor) for descriptor in (0, 1, 2)]

    opened, inheritable = in_child(child)
    assert opened > 2
    assert inheritable == [True, True, True]
