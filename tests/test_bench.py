"""Test the parts of ``scripts/bench`` that need no engine: what it reads, how it counts, what it prints."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from intercom.limits import Limits
from intercom.paths import Paths
from intercom.store.database import Store
from scripts.bench import (
    across,
    commands,
    comparing,
    effort,
    engines,
    generator,
    machine,
    main,
    measuring,
    peers,
    report,
    running,
    stalls,
    stores,
    turns,
)

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


def results(*entries: tuple[effort.Measurement, str, list[float]]) -> report.Results:
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
        effort.Sample((1.0,), 5.0, 0.2),
        effort.Sample((9.0,), 9.0, 1.0, faults=("1 lost",)),
        effort.Sample((3.0, 2.0)),
    ):
        series.add(sample)
    assert (series.values, series.cpu_us, series.median) == ([1.0, 3.0, 2.0], [5.0], 2.0)
    assert not series.is_bounded_by_generator


def test_a_busy_generator_is_told() -> None:
    assert report.Series([1.0], shares=[0.95, 0.2, 0.93]).is_bounded_by_generator


def test_engines_are_compared_with_the_variant_that_promises_the_same() -> None:
    found = results(
        (effort.PIPELINED, "intercom", [20.0]),
        (effort.PIPELINED, "intercom-memory", [30.0]),
        (effort.PIPELINED, "redis-always", [80.0]),
        (effort.PIPELINED, "nats", [60.0]),
    )
    assert report.ratio(found, effort.PIPELINED, BY_KEY["redis-always"]) == 0.25
    assert report.ratio(found, effort.PIPELINED, BY_KEY["nats"]) == 0.5


def test_there_is_no_ratio_without_both_figures_or_with_ourselves() -> None:
    found = results(
        (effort.AGENTS, "intercom", [20.0]),
        (effort.AGENTS, "intercom-receipts", [10.0]),
        (effort.AGENTS, "redis", [80.0]),
        (effort.AGENTS, "redis-always", []),
    )
    keys = ("intercom", "intercom-receipts", "redis", "redis-always", "jetstream")
    assert [report.ratio(found, effort.AGENTS, BY_KEY[key]) for key in keys] == [None] * len(keys)


@pytest.mark.parametrize(
    ("aim", "value", "texts"),
    [
        (
            report.Aim(effort.PIPELINED, 0.3, 0.4, "redis-always"),
            0.3,
            ("at least 0.3 ×: reached", "at least 0.4 ×: missed"),
        ),
        (report.Aim(effort.ONE_CPU, 1.4, None, "redis-always"), 1.5, ("at most 1.4 ×: missed", "-")),
        (
            report.Aim(effort.ONE_CPU, 1.4, 1.0, "intercom-receipts", beside="redis-always"),
            1.2,
            ("at most 1.4 × redis-always: reached", "at most 1 × redis-always: missed"),
        ),
        (report.Aim(effort.COLD_START, 250, 110), 109.0, ("at most 250 ms: reached", "at most 110 ms: reached")),
        (report.Aim(effort.LIST, 100, 60), 101.0, ("at most 100 ms: missed", "at most 60 ms: missed")),
        (
            report.Aim(effort.CROWDED, 0.9, 0.97, of=effort.FEW),
            0.95,
            ("at least 0.9 × few: reached", "at least 0.97 × few: missed"),
        ),
    ],
)
def test_an_aim_says_whether_it_is_reached(aim: report.Aim, value: float, texts: tuple[str, str]) -> None:
    assert aim.texts(value) == texts


def test_there_is_one_aim_for_each_row() -> None:
    rows = [(aim.measurement, aim.engine) for aim in report.AIMS]
    assert len(set(rows)) == len(rows)
    assert {aim.measurement for aim in report.AIMS} <= set(effort.MEASUREMENTS)


def test_a_figure_of_our_own_is_a_share_of_another_one() -> None:
    found = results((effort.FEW, "intercom", [100.0]), (effort.CROWDED, "intercom", [95.0]))
    assert report.ratio(found, effort.CROWDED, BY_KEY["intercom"]) == 0.95
    ((*_, share, must, aim),) = report.rows(found, (effort.CROWDED,), [BY_KEY["intercom"]])
    assert (share, must, aim) == ("0.95 ×", "at least 0.9 × few: reached", "at least 0.97 × few: missed")


def test_those_who_confirm_are_compared_in_their_own_row() -> None:
    found = results(
        (effort.ONE_CPU, "intercom-receipts", [120.0]),
        (effort.ONE_CPU, "intercom", [110.0]),
        (effort.ONE_CPU, "redis-always", [100.0]),
    )
    shown = [BY_KEY[key] for key in ("intercom-receipts", "redis-always")]
    assert [row[6:] for row in report.rows(found, (effort.ONE_CPU,), shown)] == [
        ("1.20 ×", "at most 1.4 × redis-always: reached", "at most 1 × redis-always: missed"),
        ("1.10 ×", "at most 1.15 ×: reached", "at most 0.9 ×: missed"),
    ]


def test_invocations_are_compared_with_sends_of_the_same_engine() -> None:
    """FE issue of invocations: accepted per second at least half of ordinary durable sends."""
    key = "intercom-receipts"
    found = results((effort.ONE_WAY, key, [100.0, 120.0, 80.0]), (effort.INVOKED, key, [60.0, 40.0, 55.0]))
    assert report.ratio(found, effort.INVOKED, BY_KEY[key]) == 0.55
    assert report.ratio(found, effort.ONE_WAY, BY_KEY[key]) is None
    (_, (*_, share, must, aim)) = report.rows(found, (effort.ONE_WAY, effort.INVOKED), [BY_KEY[key]])
    assert (share, must, aim) == ("0.55 ×", "at least 0.5 × one-way: reached", "-")
    assert report.ratio({}, effort.INVOKED, BY_KEY[key]) is None


def test_another_checkout_is_compared_with_ours() -> None:
    """The ordinary send is unchanged: a ratio of at least 0.97."""
    other = engines.other_checkout(Path("/somewhere/before"))
    found = results((effort.PIPELINED, "intercom", [98.0]), (effort.PIPELINED, other.key, [100.0]))
    assert report.ratio(found, effort.PIPELINED, other) == 0.98
    ((_, title, *_, share, must, _),) = report.rows(found, (effort.PIPELINED,), [other])
    assert (title, share, must) == ("intercom of before", "0.98 ×", "at least 0.97 ×: reached")
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
        (effort.ONE_CPU, "intercom", [700.0, 650.0, 900.0]),
        (effort.ONE_CPU, "redis-always", [400.0, 500.0, 600.0]),
        (effort.COLD_START, "intercom", [120.0]),
        (effort.COLD_START, "redis-always", []),
    )
    found[effort.ONE_CPU.key, "intercom"].cpu_us = [80.0]
    lines = report.rows(found, effort.MEASUREMENTS, engines.ENGINES)
    title = "round trip on one CPU, µs"
    assert lines == [
        (title, "intercom", "on disk", "700", "650 to 900", "80.0", "-", "-", "-"),
        (
            title,
            "Redis streams, appendfsync always",
            "on disk",
            "500",
            "400 to 600",
            "-",
            "1.40 ×",
            "at most 1.15 ×: missed",
            "at most 0.9 ×: missed",
        ),
        (
            "start to first answer, ms",
            "intercom",
            "on disk",
            "120",
            "120 to 120",
            "-",
            "-",
            "at most 170 ms: reached",
            "at most 110 ms: missed",
        ),
    ]
    assert {len(line) for line in lines} == {len(report.HEADINGS)}


def test_a_figure_the_generator_limits_is_marked() -> None:
    found = results((effort.AGENTS, "forwarder", [5.0]))
    found[effort.AGENTS.key, "forwarder"].shares = [1.0]
    ((*_, median, _, _, _, _, _),) = report.rows(found, effort.MEASUREMENTS, engines.ENGINES)
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
    named = {aim.engine for aim in report.AIMS if aim.engine != engines.OTHER}
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
    assert tuple(options.measurements) == effort.MEASUREMENTS


@pytest.mark.parametrize(
    "given", [["--quick"], ["--engines", "intercom,redis"], ["--measure", "list"], ["--size", "1024"]]
)
def test_a_part_is_not_a_whole_run(given: list[str]) -> None:
    assert not main.parse(given).is_whole


def test_a_quick_run_takes_all_that_something_is_aimed_at_for() -> None:
    quick = main.parse(["--quick"])
    assert {aim.measurement for aim in report.AIMS} <= set(quick.measurements)
    assert main.parse(["--quick", "--measure", "round-trip"]).measurements == [effort.ROUND_TRIP]


def test_engines_and_measurements_can_be_chosen() -> None:
    options = main.parse(["--engines", "redis, intercom", "--measure", "list,one-cpu"])
    assert [engine.key for engine in options.engines] == ["intercom", "redis"]
    assert options.measurements == [effort.ONE_CPU, effort.LIST]


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
    for one in (effort.FULL, effort.QUICK):
        load = one.one_way(256, "--invoke")
        given = dict(zip(load.options[::2], load.options[1::2], strict=False))
        assert load.mode == "one-way" and "--invoke" in load.options
        assert given["--pairs"] == "8" and one.requests * 1.1 < Limits().invocations


def test_durable_engines_get_fewer_round_trips() -> None:
    rounds = [effort.FULL.round_trip(BY_KEY[key], 256).options[1] for key in ("intercom", "redis")]
    assert rounds == ["1200", "3600"]


# --- what our broker is measured in alone


def test_all_that_concerns_our_broker_alone_is_known_and_measured_once() -> None:
    alone = [one for _, measurements, _ in measuring.SCENES for one in measurements]
    assert len(set(alone)) == len(alone) and set(alone) <= set(effort.MEASUREMENTS)


@pytest.mark.parametrize("form", [*stalls.FORMS, *stalls.REFUSED_FORMS])
def test_each_large_frame_is_a_frame_of_its_size(form: str) -> None:
    payload = {**stalls.FORMS, **stalls.REFUSED_FORMS}[form](7)
    assert stalls.FRAME_BYTES <= len(payload) < stalls.FRAME_BYTES * 1.01
    frame = json.loads(payload)
    assert (frame["type"], frame["message"]["id"]) == ("send", "m-7")


def test_the_longest_turn_is_kept_until_it_is_taken(tmp_path: Path) -> None:
    noting, asking = turns.Turns(tmp_path / "turns"), turns.Turns(tmp_path / "turns")
    for wall_ns, busy_ns in ((1_000_000, 900_000), (3_500_000, 500_000), (2_000_000, 800_000)):
        noting.note(wall_ns, busy_ns)
    assert (asking.take(), asking.take()) == ((3.5, 0.9), (0.0, 0.0))


def test_a_command_is_run_with_its_input_and_its_end_is_told(tmp_path: Path) -> None:
    timed = generator.build(tmp_path)["timed"]
    (tmp_path / "input").write_text("3")
    command = [timed, "2", str(tmp_path / "input"), sys.executable, "-I", "-c", "raise SystemExit(int(input()))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert [status for status, _, _ in lines] == [3, 3]
    assert all(wall_us > 1_000 and 1_000 < kib < 100_000 for _, wall_us, kib in lines)


def test_a_store_is_filled_with_operations_that_a_broker_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "OPERATIONS", 40)
    monkeypatch.setattr(stores, "BATCH", 20)
    paths = Paths(tmp_path / "home")
    stores.fill(paths)
    store = Store.open(paths, time.time_ns() // 1_000_000)
    try:
        assert len({one.message_id for one in store.recovered.operations if one.is_settled}) == 40
    finally:
        store.close()


def test_mail_that_comes_in_pieces_is_confirmed_once_each() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames = [json.dumps(frame, separators=(",", ":")).encode() for frame in map(_mail, "aba")]
        data = b"".join(peers.HEADER.pack(len(frame)) + frame for frame in frames)
        peer = peers.Peer.__new__(peers.Peer)
        peer._connection, peer._buffer, peer._place = ours, data[:10], 0
        theirs.sendall(data[10:])
        assert peer.confirm_all(3, b'"message":{"id":"') == 2
        receipts = theirs.recv(1_000)
    assert receipts.count(b'{"type":"received","messageId":"a"}') == 2
    assert receipts.count(b'{"type":"received","messageId":"b"}') == 1


def _mail(message_id: str) -> dict[str, Any]:
    return {"type": "message", "from": {}, "message": {"id": message_id, "content": {"text": "x"}}}


def test_the_commands_that_are_measured_are_those_of_the_table() -> None:
    assert [words[0] for _, _, words in commands.CALLS] == ["list", "send", "hook"]


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
    measurements = (effort.PIPELINED, effort.ONE_CPU)
    table = report.table(report.HEADINGS, report.rows(found, measurements, durable))
    return report.page(version="1", repetitions=5, size=256, table=table, facts=["2 CPUs"], peers=8)


def test_the_ratios_of_a_page_are_read_again() -> None:
    found = results(
        (effort.PIPELINED, "intercom", [20_000.0]),
        (effort.PIPELINED, "redis-always", [50_000.0]),
        (effort.ONE_CPU, "intercom", [900.0]),
        (effort.ONE_CPU, "redis-always", [0.5]),
    )
    title = BY_KEY["redis-always"].title
    assert comparing.recorded(page_with(found)) == {
        (report.measured(effort.PIPELINED), title): 0.4,
        (report.measured(effort.ONE_CPU), title): 1800.0,
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
    measurements = (effort.PIPELINED, effort.ONE_CPU)
    pair = [BY_KEY["intercom"], BY_KEY["redis-always"]]
    theirs = [(effort.PIPELINED, "redis-always", [50_000.0]), (effort.ONE_CPU, "redis-always", [50.0])]
    before = comparing.recorded(
        page_with(results((effort.PIPELINED, "intercom", [20_000.0]), (effort.ONE_CPU, "intercom", [100.0]), *theirs))
    )
    now = results((effort.PIPELINED, "intercom", [rate]), (effort.ONE_CPU, "intercom", [time]), *theirs)
    told = comparing.warnings(now, measurements, pair, before)
    assert [sentence.partition(" against ")[0] for sentence in told] == warned
    assert all("was" in sentence for sentence in told)


def test_what_was_never_recorded_is_not_compared() -> None:
    now = results((effort.PIPELINED, "intercom", [1.0]), (effort.PIPELINED, "redis-always", [50_000.0]))
    pair = [BY_KEY["intercom"], BY_KEY["redis-always"]]
    assert comparing.warnings(now, (effort.PIPELINED,), pair, {}) == []


@pytest.mark.parametrize(("held", "told"), [(18.5, []), (23.0, ["23.0 MB, was 18.0 MB"])])
def test_memory_is_compared_as_it_is(held: float, told: list[str]) -> None:
    ours = [BY_KEY["intercom"]]
    table = report.table(
        report.HEADINGS, report.rows(results((effort.LIST_MEMORY, "intercom", [18.0])), effort.MEASUREMENTS, ours)
    )
    before = comparing.recorded(table)
    now = results((effort.LIST_MEMORY, "intercom", [held]))
    sentences = comparing.warnings(now, effort.MEASUREMENTS, ours, before)
    assert [sentence.partition(": ")[2] for sentence in sentences] == told


# --- between machines


@pytest.mark.parametrize(
    ("ratios", "is_most", "said"),
    [
        ([0.96, 0.95, 1.2], False, "reached"),
        ([0.94, 0.9], False, "missed"),
        ([0.96, 0.9, 0.95], False, "not settled"),
        ([0.95, 0.1], True, "reached"),
        ([1.0, 0.9], True, "not settled"),
        ([0.9] * 5 + [1.0] * 15, False, "reached"),
        ([0.9] * 6 + [1.0] * 14, False, "not settled"),
        ([0.9] * 15 + [1.0] * 5, False, "missed"),
    ],
)
def test_a_bound_is_reached_when_the_median_is_on_its_side_for_sure(
    ratios: list[float], is_most: bool, said: str
) -> None:
    assert across.verdict(ratios, 0.95, is_most=is_most) == said


@pytest.mark.parametrize(("count", "left_out"), [(1, 0), (4, 0), (8, 0), (9, 1), (20, 5)])
def test_the_interval_of_the_median_leaves_out_as_many_as_chance_allows(count: int, left_out: int) -> None:
    """From 2 P(X <= left_out) <= 1/16, X binomial with one half."""
    assert across.interval([float(one) for one in range(count)]) == (left_out, count - 1 - left_out)


def test_what_takes_turns_is_compared_block_by_block() -> None:
    """A block in which the machine was slow for both sides says as much as any other."""
    assert across.compared([(10.0, 20.0), (5.0, 11.0), (30.0, 50.0)]) == across.Compared(10.0, 20.0, 0.5)


def test_sides_that_are_compared_begin_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(across, "WARM_S", 0.0)
    monkeypatch.setattr(across, "BLOCKS", 3)
    order: list[float] = []

    async def side(value: float) -> float:
        order.append(value)
        return value

    found = asyncio.run(across.in_turns(lambda: side(1.0), lambda: side(2.0)))
    assert found == [(1.0, 2.0)] * 3 and order == [2.0, 1.0, 1.0, 2.0, 2.0, 1.0]


def test_the_table_of_what_crosses_says_what_must_be_reached() -> None:
    each = [across.Compared(1000.0 * place, 500.0, 2.0 * place) for place in (1, 2)]
    one_way, trip, local = across.lines(dict.fromkeys(across.TITLES, each))[2:]
    assert "| 1 500 (1 000 to 2 000) | 500 (500 to 500) JetStream" in one_way
    assert one_way.endswith("| 3.00 × (2.00 to 4.00) | at least 0.4 ×: reached |")
    assert trip.endswith("| at most 3 ×: not settled |")
    assert local.endswith("| at least 0.95 ×: reached |")
