"""Run the short forms of what is in ``scripts/strain``; test how a soak and a flood judge, and who may damage."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.strain import damage, flood
from scripts.strain.soak import CHURN_DESCRIPTORS, SLACK_KIB, Sample, judge
from tests.support.brokers import TOP, environment
from tests.support.processes import OTHER_USER, complaints, in_child

pytestmark = pytest.mark.long

LONGEST_S = 150
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="what notes writes is compiled first")
FLAT = Sample(
    second=0,
    memory=30_000,
    descriptors=64,
    threads=3,
    sessions=51,
    rows=100,
    allowed_rows=100,
    remembered=0,
    unconfirmed=0,
    questions=0,
    own_memory=40_000,
    own_descriptors=56,
)


@pytest.mark.timeout(2 * LONGEST_S)
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("stampede", ("--rounds", "2")),
        ("stampede", ("--rounds", "1", "--late-ms", "200")),
        ("stampede", ("--rounds", "1", "--clients", "10", "--starts", "0", "--late-ms", "6000")),
        ("idle_race", ("--rounds", "10")),
        ("flow_pass", ("--passes", "2", "--bound-ms", "inf")),
        ("soak", ("--minutes", "0.2")),
        ("flood", ("--clients", "60", "--groups", "12", "--deaf", "3", "--churn", "20", "--messages", "600")),
        ("crash", ("--kills", "4")),
        pytest.param("power", ("--rounds", "1", "--failures", "10", "--whole", "1"), marks=needs_compiler),
        ("damage", ("--most", "3")),
        ("cluster_faults", ("--short",)),
    ],
    ids=[
        *("stampede", "late stampede", "slow stampede", "idle race", "flow pass", "soak", "flood"),
        *("crash", "power", "damage", "three servers"),
    ],
)
def test_a_short_form_passes(script: str, arguments: tuple[str, ...]) -> None:
    """F1, F2, F4, F7, F10, F26; soak: F8, F63, F77, F83; crash: F72, F76, F78; power, damage: F100.

    Three servers: cluster 5.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"scripts.strain.{script}", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=TOP,
        env={name: value for name, value in environment(TOP).items() if name != "INTERCOM_HOME"},
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert complaints(done.stderr) == ""
    assert done.stdout.endswith("\npassed\n")


def test_that_a_step_takes_long_is_no_complaint() -> None:
    """What asyncio says of it in its debug mode; all else is one."""
    code = "import asyncio, sys, time\nasync def main():\n    time.sleep(0.2)\nasyncio.run(main())\nsys.exit('wrong')"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, timeout=30, check=False)
    assert done.stderr.startswith(b"Executing <")
    assert complaints(done.stderr) == "wrong\n"


def test_a_home_is_damaged_in_every_way_without_being_root(short_path: Path) -> None:
    """What has mode 0 is read all the same, keeps its mode, and is replaced by the next copy."""

    def look() -> tuple[dict[str, bytes | None], int]:
        template, place = short_path / "template", short_path / "place"
        (template / "identities").mkdir(parents=True)
        (template / "intercom.db").write_bytes(b"rows")
        (template / "identities" / "eve").write_bytes(b"proof")
        for shut in ("identities", "intercom.db"):
            damage._copy(template, place)
            (place / shut).chmod(0)
        return damage.contents(place), (place / "intercom.db").stat().st_mode & 0o777

    if os.geteuid() == 0:
        os.chown(short_path, OTHER_USER, OTHER_USER)
    assert in_child(look, user=OTHER_USER if os.geteuid() == 0 else None) == ({"intercom.db": b"rows"}, 0)


def grown(**growth: int) -> list[Sample]:
    """Return a run in which these values grow by so much from the second quarter to the last one."""
    late = {name: getattr(FLAT, name) + amount for name, amount in growth.items()}
    return [FLAT] * 6 + [dataclasses.replace(FLAT, **late)] * 2


@pytest.mark.parametrize(
    "growth",
    [
        {},
        {"memory": SLACK_KIB},
        {"memory": SLACK_KIB + 2_000, "rows": 1_000, "allowed_rows": 1_000},
        {"descriptors": 10, "sessions": 10},
        {"own_descriptors": CHURN_DESCRIPTORS},
    ],
)
def test_what_is_flat_passes(growth: dict[str, int]) -> None:
    assert judge(grown(**growth)) == []


@pytest.mark.parametrize(
    ("growth", "said"),
    [
        ({"memory": SLACK_KIB + 1}, "memory of the broker"),
        ({"own_memory": 2 * SLACK_KIB + 1}, "memory of the library"),
        ({"descriptors": CHURN_DESCRIPTORS + 1}, "descriptors more"),
        ({"own_descriptors": CHURN_DESCRIPTORS + 1}, "this process holds"),
        ({"threads": CHURN_DESCRIPTORS + 1}, "threads grew"),
        ({"rows": 1_000}, "1100 rows, 100 sent"),
    ],
)
def test_what_grows_does_not(growth: dict[str, int], said: str) -> None:
    faults = judge(grown(**growth))
    assert faults and all(said in fault for fault in faults)


def test_too_short_a_run_is_none() -> None:
    assert judge([FLAT] * 3) == ["there are too few samples to judge"]


BEFORE = flood.Sample(pid=1, memory=30_000, descriptors=14, threads=3, operations=0)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({}, None),
        ({"memory": 30_000 + flood.SLACK_KIB + 50, "operations": 50}, None),
        ({"pid": 2}, "served at first"),
        ({"memory": 30_001 + flood.SLACK_KIB}, "memory of the broker grew"),
        ({"descriptors": 15 + flood.SLACK}, "descriptors"),
        ({"threads": 4 + flood.SLACK}, "threads"),
        ({"operations": 101}, "101 rows, 100 messages were sent"),
    ],
)
def test_a_flood_says_what_is_not_where_it_was(after: dict[str, int], said: str | None) -> None:
    faults = flood.judge(BEFORE, dataclasses.replace(BEFORE, **after), 100)
    assert [said in fault for fault in faults] == ([] if said is None else [True])
