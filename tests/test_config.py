"""Test the settings: their table, their sources and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from intercom import limits
from intercom.config import ClusterSettings, Settings, SpawnKind, load_settings, settings_table
from intercom.errors import ConfigError
from intercom.paths import Paths

TABLE = settings_table()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def refusal(paths: Paths, environ: dict[str, str] | None = None, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(paths, environ or {}, overrides or {})
    return caught.value.reason


def test_defaults_are_the_documented_limits(paths: Paths) -> None:
    settings = load_settings(paths, {}, {})
    assert settings == Settings()
    assert settings.frame_bytes == limits.FRAME_BYTES
    assert settings.idle_ms == limits.IDLE_MS
    assert settings.durability == "full"
    assert settings.watchdog is True
    assert settings.limits() == limits.Limits()


def test_later_sources_win(paths: Paths) -> None:
    """Design section 2: default < intercom.toml < environment < flag."""
    paths.settings.write_text('idle_ms = 1_000\nask_ms = 2_000\nlog_level = "debug"\nwatchdog = false\n')
    environ = {"INTERCOM_ASK_MS": "3000", "INTERCOM_LOG_LEVEL": "error", "INTERCOM_WATCHDOG": ""}
    settings = load_settings(paths, environ, {"log_level": "warning", "ask_ms": None})
    assert settings == Settings(idle_ms=1_000, ask_ms=3_000, log_level="warning", watchdog=False)


def test_limits_follow_the_settings() -> None:
    chosen = Settings(receipt_wait_ms=100, ask_ms=1_000, inbox_entries=7).limits()
    assert chosen == limits.Limits(receipt_wait_ms=100, ask_ms=1_000, inbox_entries=7)
    assert Settings(loop_guard=False).limits().loop_free_hops > 10**15


def test_a_setting_may_be_a_text() -> None:
    assert TABLE["notify_command"].accepts == "a text"
    assert not TABLE["notify_command"].takes(7)
    assert TABLE["notify_command"].from_text("notify-send -u low") == "notify-send -u low"


def test_table_describes_every_setting() -> None:
    assert (*TABLE, "spawn", "cluster") == Settings.__struct_fields__
    for name, setting in TABLE.items():
        assert setting.name == name
        assert setting.variable == f"INTERCOM_{name.upper()}"
        assert setting.about.meaning.endswith(".")
        assert setting.takes(setting.default)


def test_frames_may_grow_up_to_the_ceiling() -> None:
    """OP-1: configurable up to 64 MiB."""
    assert TABLE["frame_bytes"].takes(64 * 1024 * 1024)
    assert not TABLE["frame_bytes"].takes(64 * 1024 * 1024 + 1)


def test_accepted_values_are_said_in_words() -> None:
    assert TABLE["idle_ms"].accepts == "a whole number of ms from 50 to 604800000"
    assert TABLE["watchdog"].accepts == "true or false"
    assert TABLE["durability"].accepts == 'one of "full", "memory"'


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("idle_ms = 49", "49"),
        ("idle_ms = 604_800_001", "604800001"),
        ("idle_ms = 1000.0", "1000.0"),
        ("idle_ms = true", "True"),
        ('idle_ms = "1000"', "'1000'"),
        ("watchdog = 1", "1"),
        ('watchdog = "true"', "'true'"),
        ('durability = "disk"', "'disk'"),
        ("durability = false", "False"),
        ("durability = ['full']", "['full']"),
        ("log_level = {}", "{}"),
    ],
)
def test_wrong_value_in_the_file_is_refused(paths: Paths, line: str, shown: str) -> None:
    paths.settings.write_text(line)
    key = line.split(" ")[0]
    assert refusal(paths) == f"{paths.settings}: {key} must be {TABLE[key].accepts}, not {shown}"


@pytest.mark.parametrize(
    ("name", "least", "greatest", "default"),
    [
        ("flow_reconcile_ms", 250, 60_000, 2_000),
        ("flow_todo_gate_ms", 1, 86_400_000, 30_000),
        ("flow_end_grace_ms", 1, 300_000, 5_000),
        ("flow_admissions", 1, 100, 5),
    ],
)
def test_times_of_flows_have_their_ranges(paths: Paths, name: str, least: int, greatest: int, default: int) -> None:
    """FE 2.5: what is out of range is refused, and not clamped."""
    assert getattr(load_settings(paths, {}, {}).limits(), name) == default
    for value in (least, greatest):
        paths.settings.write_text(f"{name} = {value}")
        assert getattr(load_settings(paths, {}, {}).limits(), name) == value
    for value in (least - 1, greatest + 1):
        paths.settings.write_text(f"{name} = {value}")
        assert refusal(paths) == f"{paths.settings}: {name} must be {TABLE[name].accepts}, not {value}"


def test_the_limits_of_flows() -> None:
    """FE 2.5."""
    told = limits.Limits()
    assert (told.flows, told.flow_steps, told.flow_attempts) == (32, 64, 10)
    assert (told.flow_prompt_bytes, told.flow_bytes, told.flow_label_characters) == (48 * 1024, 4 * 1024**2, 256)
    assert (told.flow_retention_ms, told.flows_collected, told.flows_listed) == (30 * 24 * 3_600_000, 32, 100)
    assert (limits.FLOW_SUMMARY_BYTES, limits.FLOW_RESOURCES, limits.FLOW_RESOURCE_BYTES) == (8 * 1024, 16, 2 * 1024)
    assert (limits.REPORT_PUMP_MS, limits.REPORT_FILE_BYTES) == (2_000, 256 * 1024)


@pytest.mark.parametrize("line", ["idle = 5", "IDLE_MS = 5", "[idle_ms_]", '"" = 1'])
def test_unknown_key_is_refused_with_its_path(paths: Paths, line: str) -> None:
    paths.settings.write_text(line)
    key = line.split(" ")[0].strip('[]"')
    with pytest.raises(ConfigError) as caught:
        load_settings(paths, {}, {})
    assert caught.value.reason == f"{paths.settings}: {key} is not a setting"
    assert "idle_ms" in caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        b"idle_ms",
        b"idle_ms = 100\nidle_ms = 100",
        b"\xff",
        b"\0",
        b"\xff\xfei\0",
        b"[" * 5_000,
        b"x = " + b"[" * 100_000,
    ],
)
def test_file_that_is_no_toml_is_refused(paths: Paths, content: bytes) -> None:
    paths.settings.write_bytes(content)
    assert refusal(paths).startswith(f"{paths.settings} is not valid TOML: ")


def test_file_that_cannot_be_read_is_refused(paths: Paths) -> None:
    paths.settings.mkdir()
    assert refusal(paths) == f"{paths.settings} cannot be read: it is not an ordinary file"


@pytest.mark.parametrize("content", ["", "# nothing is set\n"])
def test_empty_file_changes_nothing(paths: Paths, content: str) -> None:
    paths.settings.write_text(content)
    assert load_settings(paths, {}, {}) == Settings()


def test_home_that_is_a_file_has_no_settings(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load_settings(Paths(tmp_path / "file"), {}, {}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "shown"),
    [
        ("INTERCOM_IDLE_MS", "5s", "'5s'"),
        ("INTERCOM_IDLE_MS", "1e3", "'1e3'"),
        ("INTERCOM_IDLE_MS", "-1", "-1"),
        ("INTERCOM_WATCHDOG", "perhaps", "'perhaps'"),
        ("INTERCOM_DURABILITY", "Full", "'Full'"),
    ],
)
def test_wrong_variable_is_refused(paths: Paths, variable: str, text: str, shown: str) -> None:
    accepts = TABLE[variable.removeprefix("INTERCOM_").lower()].accepts
    assert refusal(paths, {variable: text}) == f"{variable} must be {accepts}, not {shown}"


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False)]
)
def test_switch_in_the_environment(paths: Paths, text: str, value: bool) -> None:
    assert load_settings(paths, {"INTERCOM_WATCHDOG": text}, {}).watchdog is value


def test_other_variables_are_not_looked_at(paths: Paths) -> None:
    environ = {"INTERCOM_HOME": "/x", "INTERCOM_NAME": "y", "INTERCOM_SOMETHING": "z", "IDLE_MS": "1"}
    assert load_settings(paths, environ, {}) == Settings()


def test_wrong_flag_is_refused(paths: Paths) -> None:
    assert refusal(paths, overrides={"idle_ms": 1}).startswith("--idle-ms must be a whole number of ms")
    assert refusal(paths, overrides={"no_such": 1}) == "--no-such is not a setting"


def test_sessions_that_may_be_started_are_named_in_the_file(paths: Paths) -> None:
    """Design section 7, Trust: spawning is off unless the settings name kinds, and only the file does."""
    assert load_settings(paths, {"INTERCOM_SPAWN": "x", "INTERCOM_SPAWN_TOKEN": "t"}, {}).spawn == {}
    paths.settings.write_text(
        "idle_ms = 1_000\n[spawn.reviewer]\ncommand = ['claude', '-p']\ncwd = '/w'\n[spawn.'a b']\ncommand = ['x']\n"
    )
    settings = load_settings(paths, {}, {})
    assert settings.idle_ms == 1_000
    assert settings.spawn == {"reviewer": SpawnKind(("claude", "-p"), "/w"), "a b": SpawnKind(("x",), "~")}


@pytest.mark.parametrize(
    "text",
    [
        "spawn = 'claude'",
        "[spawn]\nreviewer = 'claude -p'",
        "[spawn.reviewer]\ncwd = '/w'",
        "[spawn.reviewer]\ncommand = 'claude -p'",
        "[spawn.reviewer]\ncommand = []",
        "[spawn.reviewer]\ncommand = ['']",
        "[spawn.reviewer]\ncommand = ['a\\u0000']".replace("'", '"'),
        "[spawn.reviewer]\ncommand = [7]",
        "[spawn.reviewer]\ncommand = ['x']\ncwd = 'here'",
        "[spawn.reviewer]\ncommand = ['x']\nshell = true",
        "[spawn.' ']\ncommand = ['x']",
        "".join(f"[spawn.k{number}]\ncommand = ['x']\n" for number in range(65)),
    ],
)
def test_what_is_no_command_is_refused_with_its_place(paths: Paths, text: str) -> None:
    paths.settings.write_text(text)
    assert f"{paths.settings}: spawn" in refusal(paths)


def test_how_other_machines_are_reached_is_said_in_the_file(paths: Paths) -> None:
    """Off unless `url` is set, and only the file sets it."""
    assert load_settings(paths, {"INTERCOM_CLUSTER": "nats://h"}, {}).cluster == ClusterSettings()
    paths.settings.write_text("[cluster]\nurl = 'nats://h:4222'\nkey_file = '~/mesh.key'\nnode = 'studio'\n")
    found = load_settings(paths, {}, {}).cluster
    assert (found.url, found.key_file, found.node, found.name) == (
        ("nats://h:4222",),
        "~/mesh.key",
        "studio",
        "intercom",
    )
    paths.settings.write_text("[cluster]\nurl = ['nats://a', 'tls://b']\nkey_file = '/k'\nreplicas = 3\n")
    found = load_settings(paths, {}, {}).cluster
    assert (found.url, found.replicas) == (("nats://a", "tls://b"), 3)
    paths.settings.write_text("[cluster]\nurl = ''\n")
    assert load_settings(paths, {}, {}).cluster.url == ()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("urls = 'nats://h'", "urls"),
        ("url = 5", "cluster.url must be a text or an array of texts, not 5"),
        ("url = 'http://h'", "cluster.url must begin with nats:// or tls://"),
        ("url = 7", "url"),
        ("url = 'nats://h'", "cluster.key_file must name"),
        ("name = 'a.b'", "cluster.name must be 1 to 32 letters"),
        ("name = ''", "cluster.name must be 1 to 32 letters"),
        ("name = 'ä'", "cluster.name must hold letters of ASCII"),
        (f"node = '{33 * 'n'}'", "cluster.node must be"),
        ("key_file = 'mesh.key'", "cluster.key_file must be an absolute path"),
        ("tls_ca = 'ca'", "cluster.tls_ca must be an absolute path"),
        ("replicas = 6", "cluster.replicas must be from 0 to 5"),
        ("replicas = -1", "cluster.replicas must be from 0 to 5"),
        ("credentials = '/c'\ntoken_file = '/t'", "credentials or token_file, not both"),
    ],
)
def test_what_does_not_say_how_machines_are_reached_is_refused_with_its_place(
    paths: Paths, line: str, shown: str
) -> None:
    """Wrong values are a clear refusal."""
    paths.settings.write_text(f"[cluster]\n{line}\n")
    told = refusal(paths)
    assert f"{paths.settings}: cluster" in told and shown in told
    paths.settings.write_text("cluster = 'on'\n")
    assert f"{paths.settings}: cluster" in refusal(paths)
