"""Kill broker and worker around every single commit while a link is used (FE 4.6); run by ``scripts/kills``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.test_link_kills import check, check_worker, order_two, play, run_client
from tests.conformance.test_mail_kills import KILLING
from tests.support.brokers import BrokerProcess


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """FE 4.6, A4.2, A4.9, A5.1"""
    for commits in count(1):
        faults = [KILLING.replace("MOMENT", moment).replace("COUNT", str(commits))]

        def start(faults: list[str] = faults, home: Path = tmp_path / str(commits)) -> BrokerProcess:
            return start_broker(home, fault=faults.pop() if faults else "")

        worker, told, events, deaths = play(start)
        check(worker, told, events, deaths)
        if not deaths:
            break
    assert commits > 6, "every step takes a commit at least"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_moment_is_a_bad_one_for_the_worker_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """A4.2, A4.10"""
    broker = start_broker(tmp_path / "home")
    assert not run_client(broker.home, wait=0.01)
    for syncs in count(1):
        names = order_two(broker, syncs)
        has_died = run_client(broker.home, moment, syncs)
        if has_died:
            run_client(broker.home)
        check_worker(broker, names, died=has_died)
        if not has_died:
            break
    assert syncs > 6, "receiving, beginning, reporting and settling are on disk each"
    assert broker.stop() == 0
