"""Test the parts of ``scripts/bench`` that need no engine: what it reads, how it counts, what it prints."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from intercom.limits import Limits
from scripts.bench import comparing, engines, generator, machine, main, measuring, report, running

REPORT: dict[str, Any] = {
    "msgs": 100,
    "msgs_per_s": 50.0,
    "p50_us": 12.5,
    "p99_us": 40.0,
    "cpu_frac": 0.5,
    "early_delivered": 0,
    **dict.fromkeys(generator.FAULTS, 0),
}
BY_KEY = {engine.key: engine for engine in engines.ENGINES}


def results(*entries: tuple[measuring.Measurement, str, list[float]]) -> report.Results:
    return {(one.key, engine): report.Series(values) for one, engine, values in entries}


# --- what the generator reports


def test_a_clean_run_is_read() -> None:
    found = generator.parse(0, json.dumps(REPORT), "")
    assert found == generator.Result(100, 50.0, 12.5, 40.0, 0.5, 0, ())


def test_a_run_that_lost_messages_says_how_many() -> None:
    found = generator.parse(1, json.dumps({**REPORT, "lost": 3, "dup_acks": 1}), "loadgen: two\nlines\n")
    assert found.faults == ("3 lost", "1 answered twice", "loadgen: two lines")


def test_a_bad_status_alone_is_a_fault_too() -> None:
    assert generator.parse(1, json.dumps(REPORT), "").faults == ("the generator ended with status 1",)


@pytest.mark.parametrize(
    ("output", "errors", "said"),
    [
        ("", "loadgen: cannot connect\n", "loadgen: cannot connect"),
        ("{}", "", "status 2"),
        ("[]", "", "status 2"),
        ("null", "", "status 2"),
    ],
)
def test_a_run_without_a_report_failed(output: str, errors: str, said: str) -> None:
    with pytest.raises(running.EngineFailed, match=said):
        generator.parse(2, output, errors)


def test_every_count_of_faults_is_reported_by_the_generator() -> None:
    source = (generator.SOURCES / "loadgen.c").read_text()
    assert [name for name in generator.FAULTS if f'\\"{name}\\":' not in source] == []


# --- figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.8, "1 234 568"),
        (100.4, "100"),
        (12.34, "12.3"),
        (9.876, "9.88"),
        (0.3, "0.30"),
        (9.999, "10.0"),
        (99.96, "100"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_samples_that_were_not_clean_are_no_figures() -> None:
    series = report.Series()
    for sample in (
        measuring.Sample((1.0,), 5.0, 0.2),
        measuring.Sample((9.0,), 9.0, 1.0, faults=("1 lost",)),
        measuring.Sample((3.0, 2.0)),
    ):
        series.add(sample)
    assert (series.values, series.cpu_us, series.median) == ([1.0, 3.0, 2.0], [5.0], 2.0)
    assert not series.is_bounded_by_generator


def test_a_busy_generator_is_told() -> None:
    assert report.Series([1.0], shares=[0.95, 0.2, 0.93]).is_bounded_by_generator


def test_engines_are_compared_with_the_variant_that_promises_the_same() -> None:
    found = results(
        (measuring.PIPELINED, "intercom", [20.0]),
        (measuring.PIPELINED, "intercom-memory", [30.0]),
        (measuring.PIPELINED, "redis-always", [80.0]),
        (measuring.PIPELINED, "nats", [60.0]),
    )
    assert report.ratio(found, measuring.PIPELINED, BY_KEY["redis-always"]) == 0.25
    assert report.ratio(found, measuring.PIPELINED, BY_KEY["nats"]) == 0.5


def test_there_is_no_ratio_without_both_figures_or_with_ourselves() -> None:
    found = results(
        (measuring.AGENTS, "intercom", [20.0]),
        (measuring.AGENTS, "intercom-receipts", [10.0]),
        (measuring.AGENTS, "redis", [80.0]),
        (measuring.AGENTS, "redis-always", []),
    )
    keys = ("intercom", "intercom-receipts", "redis", "redis-always", "jetstream")
    assert [report.ratio(found, measuring.AGENTS, BY_KEY[key]) for key in keys] == [None] * len(keys)


@pytest.mark.parametrize(
    ("aim", "value", "text"),
    [
        (report.Aim(measuring.PIPELINED, 0.3, "redis-always"), 0.3, "at least 0.3 ×: reached"),
        (report.Aim(measuring.PIPELINED, 0.3, "redis-always"), 0.29, "at least 0.3 ×: missed"),
        (report.Aim(measuring.ONE_CPU, 1.4, "redis-always"), 1.4, "at most 1.4 ×: reached"),
        (report.Aim(measuring.ONE_CPU, 1.4, "redis-always"), 1.5, "at most 1.4 ×: missed"),
        (report.Aim(measuring.COLD_START, 250), 249.0, "at most 250 ms: reached"),
        (report.Aim(measuring.LIST, 100), 101.0, "at most 100 ms: missed"),
    ],
)
def test_an_aim_says_whether_it_is_reached(aim: report.Aim, value: float, text: str) -> None:
    assert aim.text(value) == text


def test_invocations_are_compared_with_sends_of_the_same_engine() -> None:
    """FE issue of invocations: accepted per second at least half of ordinary durable sends."""
    key = "intercom-receipts"
    found = results((measuring.ONE_WAY, key, [100.0, 120.0, 80.0]), (measuring.INVOKED, key, [60.0, 40.0, 55.0]))
    assert report.ratio(found, measuring.INVOKED, BY_KEY[key]) == 0.55
    assert report.ratio(found, measuring.ONE_WAY, BY_KEY[key]) is None
    (_, (*_, share, aim)) = report.rows(found, (measuring.ONE_WAY, measuring.INVOKED), [BY_KEY[key]])
    assert (share, aim) == ("0.55 ×", "at least 0.5 × sends/s: reached")
    assert report.ratio({}, measuring.INVOKED, BY_KEY[key]) is None


def test_another_checkout_is_compared_with_ours() -> None:
    """The ordinary send is unchanged: a ratio of at least 0.97."""
    other = engines.other_checkout(Path("/somewhere/before"))
    found = results((measuring.PIPELINED, "intercom", [98.0]), (measuring.PIPELINED, other.key, [100.0]))
    assert report.ratio(found, measuring.PIPELINED, other) == 0.98
    ((_, title, *_, share, aim),) = report.rows(found, (measuring.PIPELINED,), [other])
    assert (title, share, aim) == ("intercom of before", "0.98 ×", "at least 0.97 ×: reached")
    launch = other.launch("python", Path("/place"))
    assert engines.clean_environment({}, launch.environment)["PYTHONPATH"] == "/somewhere/before"


@pytest.mark.parametrize(
    ("script", "is_found"),
    [("mkdir -p .venv/bin && touch .venv/bin/python", True), ("exit 1", False), ("true", False)],
)
def test_another_checkout_runs_with_the_packages_it_needs(tmp_path: Path, script: str, is_found: bool) -> None:
    prepare = tmp_path / "scripts" / "prepare"
    prepare.parent.mkdir()
    prepare.write_text(f"#!/bin/sh\nset -e\ncd {tmp_path}\n{script}\n")
    prepare.chmod(0o755)
    other = engines.other_checkout(tmp_path)
    found = main.find(other, engines.Programs({}))
    assert found == (str(tmp_path / ".venv" / "bin" / "python") if is_found else None)


# --- the table and the page


def test_the_table_has_one_row_for_each_figure() -> None:
    found = results(
        (measuring.ONE_CPU, "intercom", [700.0, 650.0, 900.0]),
        (measuring.ONE_CPU, "redis-always", [400.0, 500.0, 600.0]),
        (measuring.COLD_START, "intercom", [120.0]),
        (measuring.COLD_START, "redis-always", []),
    )
    found[measuring.ONE_CPU.key, "intercom"].cpu_us = [80.0]
    lines = report.rows(found, measuring.MEASUREMENTS, engines.ENGINES)
    title = "round trip on one CPU, µs"
    assert lines == [
        (title, "intercom", "on disk", "700", "650 to 900", "80.0", "-", "-"),
        (
            title,
            "Redis streams, appendfsync always",
            "on disk",
            "500",
            "400 to 600",
            "-",
            "1.40 ×",
            "at most 1.4 ×: reached",
        ),
        ("start to first answer, ms", "intercom", "on disk", "120", "120 to 120", "-", "-", "at most 250 ms: reached"),
    ]
    assert {len(line) for line in lines} == {len(report.HEADINGS)}


def test_a_figure_the_generator_limits_is_marked() -> None:
    found = results((measuring.AGENTS, "forwarder", [5.0]))
    found[measuring.AGENTS.key, "forwarder"].shares = [1.0]
    ((*_, median, _, _, _, _),) = report.rows(found, measuring.MEASUREMENTS, engines.ENGINES)
    assert median == "≥ 5.00"


def test_a_table_is_markdown() -> None:
    assert report.table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_page_holds_table_and_facts() -> None:
    page = report.page(version="1.2", repetitions=5, size=256, table="| T |", facts=["one", "two"], peers=8)
    assert "intercom 1.2: 5 repetitions" in page
    assert "\n\n| T |\n\n" in page
    assert page.endswith("\n- one\n- two\n")
    assert max(len(line) for line in report.PAGE.splitlines()) <= 120


# --- engines


def test_the_aims_and_the_quick_run_name_engines_there_are() -> None:
    named = {aim.engine for aim in report.AIMS if aim.engine not in (None, engines.OTHER)}
    assert named | set(main.QUICK_ENGINES) | {report.OURS, report.OURS_IN_MEMORY} <= set(BY_KEY)


@pytest.mark.parametrize("engine", engines.ENGINES, ids=lambda engine: engine.key)
def test_an_engine_is_reached_on_this_machine_only(engine: engines.Engine, tmp_path: Path) -> None:
    launch = engine.launch("program", tmp_path)
    assert launch.command[0] == "program"
    assert launch.address.startswith(("unix:/", "tcp:127.0.0.1:"))


def test_a_missing_engine_is_named_with_what_holds_it(capsys: pytest.CaptureFixture[str]) -> None:
    missing = dataclasses.replace(
        engines.ENGINES[0],
        title="Engine X",
        source="package x has it",
        program=lambda programs: programs.find("no-such"),
    )
    assert main.find(missing, engines.Programs({})) is None
    assert capsys.readouterr().err == "# Engine X: skipped; package x has it\n"


def test_what_was_built_is_found_first() -> None:
    assert engines.Programs({"forwarder": "/built/forwarder"}).find("forwarder") == "/built/forwarder"


def test_the_settings_of_the_user_do_not_reach_an_engine() -> None:
    given = {"PATH": "/bin", "INTERCOM_HOME": "/mine", "INTERCOM_DURABILITY": "memory", "PYTHONPATH": "/p"}
    environment = engines.clean_environment(given, {"INTERCOM_HOME": "/bench"})
    assert environment == {"PATH": "/bin", "INTERCOM_HOME": "/bench", "PYTHONPATH": f"{engines.TOP}:/p"}


# --- options


def test_a_run_without_options_is_a_whole_one() -> None:
    options = main.parse([])
    assert options.is_whole
    assert options.repetitions == main.REPETITIONS
    assert tuple(options.engines) == engines.ENGINES
    assert tuple(options.measurements) == measuring.MEASUREMENTS


@pytest.mark.parametrize(
    "given", [["--quick"], ["--engines", "intercom,redis"], ["--measure", "list"], ["--size", "1024"]]
)
def test_a_part_is_not_a_whole_run(given: list[str]) -> None:
    assert not main.parse(given).is_whole


def test_engines_and_measurements_can_be_chosen() -> None:
    options = main.parse(["--engines", "redis, intercom", "--measure", "list,one-cpu"])
    assert [engine.key for engine in options.engines] == ["intercom", "redis"]
    assert options.measurements == [measuring.ONE_CPU, measuring.LIST]


@pytest.mark.parametrize(
    "given",
    [
        ["--engines", "intercom,nosuch"],
        ["--measure", ","],
        ["--size", "15"],
        ["--repetitions", "0"],
        ["--against", "/no/such/checkout"],
    ],
)
def test_wrong_options_are_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.parse(given)
    assert ended.value.code == 2


def test_another_checkout_is_measured_beside_ours_alone() -> None:
    options = main.parse(["--against", str(engines.TOP)])
    assert [engine.key for engine in options.engines] == ["intercom", engines.OTHER]
    assert not options.is_whole


def test_invocations_stay_within_what_a_broker_lets_be_open() -> None:
    """Charge before you link: open invocations are bounded."""
    for effort in (measuring.FULL, measuring.QUICK):
        load = effort.one_way(256, "--invoke")
        given = dict(zip(load.options[::2], load.options[1::2], strict=False))
        assert load.mode == "one-way" and "--invoke" in load.options
        assert given["--pairs"] == "8" and effort.requests * 1.1 < Limits().invocations


def test_durable_engines_get_fewer_round_trips() -> None:
    rounds = [measuring.FULL.round_trip(BY_KEY[key], 256).options[1] for key in ("intercom", "redis")]
    assert rounds == ["1500", "4500"]


# --- the machine


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/x/y", "tmpfs"),
        ("/tmpfoo", "ext4"),
        ("/mnt/a b/c", "xfs"),
        ("/over", "btrfs"),
    ],
)
def test_the_file_system_of_a_path_is_found(path: str, kind: str) -> None:
    mounts = "\n".join(
        [
            "/dev/a / ext4 rw 0 0",
            "none /tmp tmpfs rw 0 0",
            "/dev/b /mnt/a\\040b xfs rw 0 0",
            "/dev/c /over ext4 rw 0 0",
            "/dev/d /over btrfs rw 0 0",
            "broken",
        ]
    )
    assert machine.file_system(Path(path), mounts) == kind


def test_the_processor_is_named() -> None:
    assert machine.processor_name("processor\t: 0\nmodel name\t: Some CPU 9\n") == "Some CPU 9"
    assert machine.processor_name("") == "of an unnamed kind"


def test_a_wished_directory_is_taken(tmp_path: Path) -> None:
    assert machine.work_place(str(tmp_path)) == tmp_path.resolve()


# --- what the broker executes


def test_the_path_of_a_message_is_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "scripts.bench.path", "--window", "2", "--rounds", "5"],
        capture_output=True,
        text=True,
        timeout=120,
        env=engines.clean_environment(os.environ, {}),
        check=True,
    )
    first, *functions = done.stdout.splitlines()
    counts = [float(figure) for figure in re.findall(r"[0-9.]+", first)]
    assert len(counts) == 3 and all(count > 1 for count in counts)
    assert any(line.endswith("deciding.py: Deciding._decide_found") for line in functions)


# --- compared with what was recorded


def page_with(found: report.Results) -> str:
    durable = [BY_KEY["intercom"], BY_KEY["redis-always"]]
    measurements = (measuring.PIPELINED, measuring.ONE_CPU)
    table = report.table(report.HEADINGS, report.rows(found, measurements, durable))
    return report.page(version="1", repetitions=5, size=256, table=table, facts=["2 CPUs"], peers=8)


def test_the_ratios_of_a_page_are_read_again() -> None:
    found = results(
        (measuring.PIPELINED, "intercom", [20_000.0]),
        (measuring.PIPELINED, "redis-always", [50_000.0]),
        (measuring.ONE_CPU, "intercom", [900.0]),
        (measuring.ONE_CPU, "redis-always", [0.5]),
    )
    title = BY_KEY["redis-always"].title
    assert comparing.recorded(page_with(found)) == {
        (report.measured(measuring.PIPELINED), title): 0.4,
        (report.measured(measuring.ONE_CPU), title): 1800.0,
    }


@pytest.mark.parametrize(
    ("rate", "time", "warned"),
    [
        (20_000.0, 100.0, []),
        (16_100.0, 119.0, []),
        (15_900.0, 100.0, ["8 pairs, 16 in flight each, messages/s"]),
        (20_000.0, 121.0, ["round trip on one CPU, µs"]),
        (90_000.0, 10.0, []),
    ],
)
def test_a_ratio_that_got_worse_by_more_than_noise_is_told(rate: float, time: float, warned: list[str]) -> None:
    measurements = (measuring.PIPELINED, measuring.ONE_CPU)
    pair = [BY_KEY["intercom"], BY_KEY["redis-always"]]
    theirs = [(measuring.PIPELINED, "redis-always", [50_000.0]), (measuring.ONE_CPU, "redis-always", [50.0])]
    before = comparing.recorded(
        page_with(
            results((measuring.PIPELINED, "intercom", [20_000.0]), (measuring.ONE_CPU, "intercom", [100.0]), *theirs)
        )
    )
    now = results((measuring.PIPELINED, "intercom", [rate]), (measuring.ONE_CPU, "intercom", [time]), *theirs)
    told = comparing.warnings(now, measurements, pair, before)
    assert [sentence.partition(" against ")[0] for sentence in told] == warned
    assert all("was" in sentence for sentence in told)


def test_what_was_never_recorded_is_not_compared() -> None:
    now = results((measuring.PIPELINED, "intercom", [1.0]), (measuring.PIPELINED, "redis-always", [50_000.0]))
    pair = [BY_KEY["intercom"], BY_KEY["redis-always"]]
    assert comparing.warnings(now, (measuring.PIPELINED,), pair, {}) == []
