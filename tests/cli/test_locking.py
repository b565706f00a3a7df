from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from intercom.cli.locking import InUse, holder, is_held, locked
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess


@pytest.fixture
def paths(home: Path) -> Paths:
    home.mkdir(mode=0o700)
    return Paths(home)


def test_the_broker_that_holds_it_is_named(broker: BrokerProcess) -> None:
    """F128: who holds the lock, by the kernel and not by a file."""
    paths = Paths(broker.home)
    paths.pid.unlink()
    assert is_held(paths.lock)
    assert holder(paths.lock) in (broker.pid, None)
    with pytest.raises(InUse), locked(paths, create=False):
        pass


def test_a_free_lock_is_taken_for_the_block_only(paths: Paths) -> None:
    with locked(paths, create=True):
        assert is_held(paths.lock)
        with pytest.raises(InUse), locked(paths, create=True):
            pass
    assert not is_held(paths.lock)
    assert holder(paths.lock) is None
    assert paths.lock.stat().st_mode & 0o777 == 0o600


def test_looking_makes_no_lock(paths: Paths) -> None:
    with pytest.raises(FileNotFoundError), locked(paths, create=False):
        pass
    with pytest.raises(FileNotFoundError):
        is_held(paths.lock)
    assert list(paths.home.iterdir()) == []


def test_without_a_table_of_the_kernel_the_lock_is_tried(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.cli.locking.holder", lambda lock: None)
    paths.lock.touch(0o600)
    assert not is_held(paths.lock)
    descriptor = os.open(paths.lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert is_held(paths.lock)
    finally:
        os.close(descriptor)
