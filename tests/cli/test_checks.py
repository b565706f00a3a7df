from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

import intercom
from intercom.cli import checks, hostconfig
from intercom.cli.checks import Finding, concluded
from intercom.client.adapters import note_session
from intercom.client.keeping import AddressKeeper
from intercom.client.memberships import change
from intercom.client.program import our_command
from intercom.client.report_files import ReportFiles
from intercom.client.reporting import ReportRecord
from intercom.client.views import IncomingMessage, message_of
from intercom.client.who import Identity
from intercom.errors import HomeError
from intercom.hosts.stops import Stops
from intercom.limits import MIB
from intercom.mcp.answers import AnswerFiles
from intercom.paths import Paths
from intercom.wire.frames import MessageFrame
from tests.support.client import PEER


@pytest.fixture
def paths(home: Path) -> Paths:
    home.mkdir(mode=0o700)
    return Paths(home)


class FreeSpace:
    """Stand for what the system says of a disk."""

    f_frsize = 4_096
    f_files = 100

    def __init__(self, free: int, files: int = 50) -> None:
        self.f_bavail = free // self.f_frsize
        self.f_favail = files


def test_a_check_that_fails_could_not_tell() -> None:
    """F128: *could not tell*, with why."""

    def refuse() -> Finding:
        raise HomeError("no home", hint="make one")

    def fail() -> Finding:
        raise ZeroDivisionError("oops")

    def look() -> Finding:
        raise FileNotFoundError(2, "No such file", "/x")

    def forbidden() -> Finding:
        raise PermissionError(1, "Operation not permitted", "/x")

    assert concluded("a", refuse) == Finding("a", "unknown", "no home", "make one")
    assert concluded("a", fail).state == "unknown"
    assert "oops" in concluded("a", fail).found
    assert concluded("a", look) == Finding("a", "unknown", "/x: No such file")
    assert concluded("a", forbidden).state == "bad"


@pytest.mark.parametrize(
    ("space", "state"),
    [(FreeSpace(63 * MIB), "bad"), (FreeSpace(65 * MIB), "ok"), (FreeSpace(65 * MIB, 0), "bad")],
)
def test_the_disk(paths: Paths, monkeypatch: pytest.MonkeyPatch, space: FreeSpace, state: str) -> None:
    """F102."""
    monkeypatch.setattr(os, "statvfs", lambda place: space)
    assert checks.disk(paths).state == state


def test_the_disk_of_a_home_that_does_not_exist(home: Path) -> None:
    assert checks.disk(Paths(home / "deep" / "er")).state == "ok"


def test_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """F114."""
    assert checks.descriptors(None).state == "ok"
    assert checks.descriptors(os.getpid()).state == "ok"
    assert checks.descriptors(2**22 + 1).state == "unknown"
    monkeypatch.setattr(os, "listdir", lambda place: range(10_000_000))
    assert checks.descriptors(os.getpid()).state == "bad"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (20, 20))
    assert checks.descriptors(None).state == "bad"


@pytest.mark.parametrize("number", [1, 13])
def test_a_sandbox_without_unix_sockets(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """F27: EPERM and EACCES are the system's no, not a broker's absence."""
    assert checks.sandbox().state == "ok"

    def refuse(*_: object) -> None:
        raise OSError(number, "not permitted")

    monkeypatch.setattr(socket, "socketpair", refuse)
    found = checks.sandbox()
    assert (found.state, "sandbox" in found.hint) == ("bad", True)


def test_a_network_file_system(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F33, F124."""

    def refuse(home: Path) -> None:
        raise HomeError(f"{home} lies on a network file system (nfs)", hint="Choose another.")

    monkeypatch.setattr(checks, "refuse_network_file_system", refuse)
    assert checks.file_system(paths) == Finding(
        "filesystem", "bad", f"{paths.home} lies on a network file system (nfs)", "Choose another."
    )


def test_a_path_too_long_for_a_socket_is_said(home: Path) -> None:
    """F19."""
    found = checks.socket_path(Paths(home / ("long" * 30)))
    assert found.state == "ok"
    assert "too long for a socket" in found.found


def test_only_errors_since_the_last_start_count(paths: Paths) -> None:
    lines = [
        '{"event": "started", "pid": 1}',
        '{"event": "fatal", "pid": 1, "level": "error"}',
        "broken",
        '{"event": "store_unusable", "pid": 2, "level": "error", "reason": "r", "time": "now"}',
        '{"event": "started", "pid": 2}',
        '{"event": "accept_failed", "pid": 2, "level": "warning"}',
    ]
    paths.log.write_text("\n".join(lines) + "\n")
    found = checks.log(paths)
    assert (found.state, found.found) == ("bad", "1 errors since the last start, the last at now: store_unusable r")
    paths.log.write_text("\n".join(lines[:2] + lines[4:]) + "\n")
    assert checks.log(paths).state == "ok"


def test_a_variable_that_no_broker_would_accept(paths: Paths) -> None:
    found = checks.settings(paths, {"INTERCOM_IDLE_MS": "soon"})
    assert found.state == "bad"
    assert "INTERCOM_IDLE_MS" in found.found
    assert checks.settings(paths, {}).state == "ok"


@pytest.fixture
def linked(short_path: Path, home: Path) -> dict[str, str]:
    """Let the directory of Atomic be a link to the home, with settings that start this broker."""
    environ = {"HOME": str(short_path)}
    home.mkdir()
    (short_path / ".atomic" / "agent").mkdir(parents=True)
    (short_path / ".atomic" / "agent" / "intercom").symlink_to(home)
    command, arguments = our_command("serve")
    hostconfig.write(home / hostconfig.NAME, {hostconfig.COMMAND: command, hostconfig.ARGUMENTS: arguments})
    return environ


def test_hosts_that_are_linked_or_not(short_path: Path, home: Path, linked: dict[str, str]) -> None:
    assert checks.links(Paths(home), {"HOME": "/nonexistent"})[1:3] == ("ok", "no Atomic here; no pi here")
    (short_path / ".pi" / "agent" / "intercom").mkdir(parents=True)
    found = checks.links(Paths(home), linked)
    assert found[1:3] == ("ok", "Atomic is linked to the home; pi is not linked to the home")
    assert "is linked to" in checks.links(Paths(short_path), linked).found


@pytest.mark.parametrize("settings", [None, {}, {"brokerCommand": "/nonexistent/intercom", "brokerArgs": ["serve"]}])
def test_a_link_that_starts_no_broker(home: Path, linked: dict[str, str], settings: dict[str, Any] | None) -> None:
    if settings is None:
        (home / hostconfig.NAME).unlink()
    else:
        hostconfig.write(home / hostconfig.NAME, settings)
    found = checks.links(Paths(home), linked)
    assert (found.state, found.hint) == ("bad", "Run `intercom install atomic`.")


def test_a_link_to_nothing(short_path: Path, home: Path, linked: dict[str, str]) -> None:
    home.rename(short_path / "gone")
    assert checks.links(Paths(home), linked).state == "bad"


@pytest.mark.parametrize("name", ["intercom.log", "intercom.key"])
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_is_no_file_is_to_be_moved_away(home: Path, name: str, kind: str) -> None:
    """Another mode would not mend it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = home / name
    if kind == "directory":
        place.mkdir()
    else:
        place.symlink_to(home / "elsewhere")
    found = [checks.permissions(Paths(home))]
    if name == "intercom.log":
        found.append(checks.log(Paths(home)))
    for finding in found:
        assert (finding.state, finding.found) == ("bad", f"{place} is not a regular file")
        assert finding.hint == f"Move {place} away."


def test_a_pipe_in_place_of_the_settings(home: Path) -> None:
    """Nobody waits for its other end."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.mkfifo(home / "intercom.toml")
    finding = checks.settings(Paths(home), {})
    assert (finding.state, finding.found) == (
        "bad",
        f"{home / 'intercom.toml'} cannot be read: it is not an ordinary file",
    )


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "identities",
        "identities/command.key",
        "identities/groups",
        "identities/addresses",
        "identities/addresses/a.json",
        "identities/answers",
        "identities/reports",
        "identities/reports/a",
        "identities/reports/a/b.report",
        "adapters",
        "stops",
        "stops/a",
    ],
)
def test_a_pipe_in_place_of_what_commands_read(home: Path, name: str) -> None:
    (home / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    os.mkfifo(home / name)
    finding = checks.permissions(Paths(home))
    directories = {path.relative_to(home).as_posix() for path in Paths(home).kept_directories}
    kind = "a directory" if name in directories | {"identities/reports/a"} else "a regular file"
    assert (finding.state, finding.found) == ("bad", f"{home / name} is not {kind}")
    assert finding.hint == f"Move {home / name} away."


def test_what_clients_keep_is_in_order(home: Path) -> None:
    """Whoever followed a hint to move such a directory away would lose what is in it."""
    paths = Paths(home)
    ReportFiles(paths, "desk", "default").save(ReportRecord("d1", "completed", "done", [], written_at=1))
    message = message_of(
        MessageFrame(
            Raw(encode(PEER)),
            Raw(b'{"id":"a","timestamp":1,"content":{"text":"x"}}'),
        ),
        IncomingMessage,
    )
    assert AnswerFiles(paths, "desk", "default").save(message)
    change(paths, Identity("name", "name\0me", "me", "the name"), lambda present: (*present, "team"))
    AddressKeeper(paths, "desk", "default").keep_token("t" * 43)
    note_session(paths, "claude", os.getppid(), "s-1", "startup")
    assert Stops(paths, "codex", "s-1").may_hold()
    made = {path for path in home.rglob("*") if path.is_dir()}
    assert made == {*paths.kept_directories, *paths.reports.iterdir()}
    assert checks.permissions(paths).state == "ok"
    [directory] = paths.reports.iterdir()
    for path in (directory, next(directory.iterdir()), next(paths.stops.iterdir())):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o040)
        finding = checks.permissions(paths)
        assert (finding.state, finding.hint) == ("bad", f"Run `chmod {mode:o} {path}`.")
        path.chmod(mode)


def test_every_directory_that_is_kept_is_in_the_documentation(home: Path) -> None:
    told = (Path(intercom.__file__).parent / "docs" / "files.md").read_text(encoding="utf-8")
    for path in Paths(home).kept_directories:
        assert f"`{path.relative_to(home)}/" in told


def test_a_pipe_in_place_of_the_log(home: Path) -> None:
    """Looking waits for nobody."""
    home.mkdir()
    os.mkfifo(Paths(home).log)
    assert checks.concluded("log", lambda: checks.log(Paths(home))).state == "bad"
