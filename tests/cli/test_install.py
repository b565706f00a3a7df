"""Make and undo the links to the home, with the real command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.cli import hostconfig
from intercom.cli.foreign import HOSTS, foreign_directory, known_directories, runtime_directory
from intercom.client.program import our_command
from tests.support.brokers import TOP, BrokerProcess
from tests.support.commands import Shell

StartBroker = Callable[..., BrokerProcess]

OF_USERS = {"confirmSend": True, "brokerCommand": "npx", "brokerArgs": ["--no-install", "tsx"], "replyHint": "höflich"}
CONFIG_OF_ATOMIC = os.path.join(".atomic", "agent", "intercom", "config.json")


@pytest.fixture
def atomic(home: Path) -> Path:
    """Give the directory where Atomic looks; it does not exist."""
    return home.parent / ".atomic" / "agent" / "intercom"


@pytest.fixture
def pi(home: Path) -> Path:
    return home.parent / ".pi" / "agent" / "intercom"


def fill(directory: Path, settings: dict[str, Any] | None = None) -> None:
    directory.mkdir(parents=True)
    (directory / "delivered-messages.sqlite").write_bytes(b"precious")
    if settings is not None:
        (directory / "config.json").write_text(json.dumps(settings))


def tree(top: Path) -> dict[str, str | bytes]:
    """Return everything below a directory: where links lead, what files hold."""
    return {
        str(path.relative_to(top)): os.readlink(path)
        if path.is_symlink()
        else "directory"
        if path.is_dir()
        else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


def settings_in(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return found


def test_a_host_that_was_never_here(shell: Shell, home: Path, atomic: Path) -> None:
    done = shell.run("install", "atomic", "--json")
    assert done.status == 0
    document = done.document
    assert (document["host"], document["changed"], document["dryRun"]) == ("atomic", True, False)
    assert (document["directory"], document["home"]) == (str(atomic), str(home))
    assert atomic.is_symlink() and os.path.realpath(atomic) == str(home)
    command, *arguments = settings_in(home)["brokerCommand"], *settings_in(home)["brokerArgs"]
    assert os.path.isabs(command) and arguments[-1] == "serve"
    assert set(settings_in(home)) == {"brokerCommand", "brokerArgs"}
    assert (home / "config.json").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_again_changes_nothing(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    shell.run("install", "atomic")
    before = tree(home.parent)
    again = shell.run("install", "atomic", "--json")
    assert (again.status, again.document["changed"], again.document["steps"]) == (0, False, [])
    assert "nothing to do" in shell.run("install", "atomic").text
    assert tree(home.parent) == before


def test_what_was_there_is_kept_and_its_settings_move_along(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    before = tree(atomic)
    done = shell.run("install", "atomic", "--json")
    backup = atomic.with_name("intercom.before-intercom")
    assert tree(backup) == before
    assert {**settings_in(home), **{key: OF_USERS[key] for key in ("brokerCommand", "brokerArgs")}} == OF_USERS
    assert settings_in(home)["brokerArgs"][-1] == "serve"
    assert {"action": "keep", "path": str(atomic), "to": str(backup)} in done.document["steps"]


@pytest.mark.parametrize("settings", [None, {}, OF_USERS, {"enabled": False}])
@pytest.mark.parametrize("host", ["atomic", "pi"])
def test_it_is_undone_cleanly(
    shell: Shell, home: Path, atomic: Path, pi: Path, host: str, settings: dict[str, Any] | None
) -> None:
    fill({"atomic": atomic, "pi": pi}[host], settings)
    before = tree(home.parent)
    assert shell.run("install", host).status == 0
    done = shell.run("uninstall", host)
    assert (done.status, done.errors) == (0, "")
    home.rmdir()  # it was made, and nothing is left in it
    assert tree(home.parent) == before
    assert "nothing to undo" in shell.run("uninstall", host).text


def test_where_nothing_was_nothing_is_left(shell: Shell, home: Path) -> None:
    shell.run("install", "atomic")
    shell.run("uninstall", "atomic")
    home.rmdir()
    assert tree(home.parent) == {}


@pytest.mark.parametrize("levels", [1, 2])
def test_empty_directories_that_were_there_stay(shell: Shell, home: Path, atomic: Path, levels: int) -> None:
    """Whether a directory was made is marked in it, and not taken from its being empty."""
    atomic.parents[2 - levels].mkdir(parents=True)
    before = tree(home.parent)
    shell.run("install", "atomic")
    shell.run("uninstall", "atomic")
    home.rmdir()
    assert tree(home.parent) == before


def test_settings_that_were_changed_since_move_back(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    shell.run("install", "atomic")
    hostconfig.write(home / "config.json", {**settings_in(home), "replyHint": "kurz", "status": "new"})
    shell.run("uninstall", "atomic")
    assert settings_in(atomic) == {**OF_USERS, "replyHint": "kurz", "status": "new"}
    assert not (home / "config.json").exists()


@pytest.mark.parametrize("order", [("atomic", "pi"), ("pi", "atomic")])
def test_both_hosts_share_the_home(shell: Shell, home: Path, atomic: Path, pi: Path, order: tuple[str, str]) -> None:
    fill(atomic, {"replyHint": "a", "confirmSend": True})
    fill(pi, {"replyHint": "p", "stableId": "x"})
    for host in order:
        assert shell.run("install", host).status == 0
    assert os.path.realpath(atomic) == os.path.realpath(pi) == str(home)
    shared = settings_in(home)
    assert (shared["replyHint"], shared["confirmSend"], shared["stableId"]) == (order[0][0], True, "x")
    shell.run("uninstall", order[0])
    assert hostconfig.is_ours(settings_in(home))
    shell.run("uninstall", order[1])
    assert not atomic.is_symlink() and not pi.is_symlink()
    assert not (home / "config.json").exists()
    for directory in (atomic, pi):
        assert (directory / "delivered-messages.sqlite").read_bytes() == b"precious"
        assert "brokerCommand" not in settings_in(directory)


def test_a_dry_run_shows_the_same_steps_and_does_nothing(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    before = tree(home.parent)
    shown = shell.run("install", "atomic", "--dry-run", "--json").document
    assert (shown["changed"], shown["dryRun"]) == (False, True)
    text = shell.run("install", "atomic", "--dry-run").text
    assert text.splitlines() and all(line.startswith("would ") for line in text.splitlines())
    assert tree(home.parent) == before
    assert shell.run("install", "atomic", "--json").document["steps"] == shown["steps"]
    before = tree(home.parent)
    shown = shell.run("uninstall", "atomic", "--dry-run", "--json").document
    assert tree(home.parent) == before
    assert shell.run("uninstall", "atomic", "--json").document["steps"] == shown["steps"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"x"', "\xff", "[" * 100_000, "// comment\n{}"])
def test_settings_that_cannot_be_read_stop_everything(shell: Shell, home: Path, atomic: Path, content: str) -> None:
    fill(atomic)
    (atomic / "config.json").write_bytes(content.encode("latin-1"))
    before = tree(home.parent)
    done = shell.run("install", "atomic", "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert "config.json" in done.document["reason"]
    assert tree(home.parent) == before


def test_a_link_to_somewhere_else_is_kept_too(shell: Shell, home: Path, atomic: Path) -> None:
    other = home.parent / "other"
    fill(other, OF_USERS)
    atomic.parent.mkdir(parents=True)
    atomic.symlink_to(other)
    before = tree(home.parent)
    shell.run("install", "atomic")
    assert os.path.realpath(atomic) == str(home)
    assert settings_in(home)["confirmSend"] is True
    shell.run("uninstall", "atomic")
    home.rmdir()
    assert tree(home.parent) == before


def test_a_file_in_the_way_is_named_and_kept(shell: Shell, home: Path, atomic: Path) -> None:
    atomic.parent.mkdir(parents=True)
    atomic.write_text("precious")
    done = shell.run("install", "atomic", "--json")
    assert (done.status, done.document["code"]) == (7, "home")
    assert atomic.read_text() == "precious" and not home.exists()


def test_backups_do_not_cover_each_other(shell: Shell, atomic: Path) -> None:
    fill(atomic)
    shell.run("install", "atomic")
    atomic.unlink()
    atomic.mkdir()
    (atomic / "broker.log").touch()
    shell.run("install", "atomic")
    assert {path.name for path in atomic.parent.iterdir()} == {
        "intercom", "intercom.before-intercom", "intercom.before-intercom.2"
    }  # fmt: skip
    shell.run("uninstall", "atomic")
    assert [path.name for path in atomic.iterdir()] == ["broker.log"]
    assert (atomic.with_name("intercom.before-intercom") / "delivered-messages.sqlite").exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_a_stale_backup_does_not_matter(shell: Shell, home: Path, atomic: Path, was_there: bool) -> None:
    """What comes back is what was there at the installation, whatever lies under the usual name of a backup."""
    stale = atomic.with_name("intercom.before-intercom")
    stale.mkdir(parents=True)
    (stale / "config.json").write_text("not JSON")
    if was_there:
        fill(atomic, OF_USERS)
    before = tree(home.parent)
    assert shell.run("install", "atomic").status == 0
    hostconfig.write(home / "config.json", {**settings_in(home), "replyHint": "kurz"})
    assert shell.run("uninstall", "atomic").status == 0
    assert settings_in(atomic) == ({**OF_USERS, "replyHint": "kurz"} if was_there else {"replyHint": "kurz"})
    (atomic / "config.json").unlink()
    if not was_there:
        atomic.rmdir()
    home.rmdir()
    assert tree(home.parent) == {path: held for path, held in before.items() if path != CONFIG_OF_ATOMIC}


def test_an_installation_that_was_broken_off_goes_on(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    before = tree(home.parent)
    shell.run("install", "atomic")
    atomic.unlink()  # as if it had ended between keeping the directory and making the link
    assert shell.run("install", "atomic").status == 0
    assert shell.run("uninstall", "atomic").status == 0
    home.rmdir()
    assert tree(home.parent) == before


def test_a_link_made_before_there_were_records_is_undone(shell: Shell, home: Path, atomic: Path) -> None:
    fill(atomic, OF_USERS)
    before = tree(home.parent)
    shell.run("install", "atomic")
    (home / "installed.json").unlink()
    assert shell.run("install", "atomic", "--json").document["steps"] == []
    assert shell.run("uninstall", "atomic").status == 0
    home.rmdir()
    assert tree(home.parent) == before


@pytest.mark.parametrize("last", ["atomic", "pi"])
@pytest.mark.parametrize("of_home", [None, b'{"theme" : "h"}'])
def test_each_host_gets_its_own_file_back(
    shell: Shell, home: Path, atomic: Path, pi: Path, last: str, of_home: bytes | None
) -> None:
    places = {atomic / "config.json": b'{"theme":"a"}', pi / "config.json": b'{"other":1,\t"theme":"b"}'}
    if of_home is not None:
        home.mkdir(mode=0o700)
        places[home / "config.json"] = of_home
    for place, content in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o640)
    before = tree(home.parent)
    for arguments in (["install", "atomic"], ["install", "pi"]):
        assert shell.run(*arguments).status == 0
    for host in sorted(["atomic", "pi"], key=lambda host: host == last):
        assert shell.run("uninstall", host).status == 0
    if of_home is None:
        home.rmdir()
    assert tree(home.parent) == before
    assert {place.stat().st_mode & 0o777 for place in places} == {0o640}


def test_only_what_was_changed_is_carried_over(shell: Shell, home: Path, atomic: Path, pi: Path) -> None:
    fill(atomic, {"theme": "a", "gone": 1})
    fill(pi, {"other": 1, "theme": "b", "gone": 2})
    shell.run("install", "atomic")
    hostconfig.write(home / "config.json", {**settings_in(home), "early": True})
    shell.run("install", "pi")
    changed = {**settings_in(home), "late": True}
    del changed["gone"]
    hostconfig.write(home / "config.json", changed)
    shell.run("uninstall", "atomic")
    shell.run("uninstall", "pi")
    assert settings_in(atomic) == {"theme": "a", "gone": 1}
    assert settings_in(pi) == {"other": 1, "theme": "b", "early": True, "late": True}
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("is_alive", [True, False])
def test_what_a_broker_left_behind_does_not_come_back(shell: Shell, atomic: Path, is_alive: bool) -> None:
    fill(atomic)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(atomic / "broker.sock"))
        listener.listen()
        (atomic / "broker.pid").write_text("1")
        atomic.rename(atomic.with_name("moved"))  # nobody is to be asked to leave
        shell.run("install", "atomic")
        atomic.with_name("moved").rename(atomic.with_name("intercom.before-intercom"))
        _name_backup(atomic, "intercom.before-intercom")
        if not is_alive:
            listener.close()
        assert shell.run("uninstall", "atomic").status == 0
    left = {"broker.sock", "broker.pid"} if is_alive else set()
    assert {path.name for path in atomic.iterdir()} == {"delivered-messages.sqlite"} | left


def _name_backup(directory: Path, name: str) -> None:
    place = Path(os.path.realpath(directory), hostconfig.RECORD)
    record = hostconfig.read(place) or {}
    hostconfig.write(place, {**record, "backups": {str(directory): name}})


def test_a_home_that_is_the_directory_of_the_host_itself(shell: Shell, atomic: Path) -> None:
    """Who has always run this broker in there keeps the place; only the command is set."""
    fill(atomic, OF_USERS)
    before = tree(atomic.parent)
    done = shell.run("install", "atomic", "--home", str(atomic))
    assert done.status == 0 and not atomic.is_symlink()
    assert hostconfig.is_ours(settings_in(atomic))
    shell.run("uninstall", "atomic", "--home", str(atomic))
    assert tree(atomic.parent) == before


def test_a_home_inside_what_would_become_a_link(shell: Shell, atomic: Path) -> None:
    fill(atomic)
    done = shell.run("install", "atomic", "--json", "--home", str(atomic / "home"))
    assert (done.status, done.document["code"]) == (7, "home")
    assert atomic.is_dir() and not atomic.is_symlink()


def test_a_home_whose_socket_would_not_be_found(shell: Shell, home: Path, atomic: Path) -> None:
    """F19: such a socket lies elsewhere, where a foreign client does not look."""
    done = shell.run("install", "atomic", "--json", "--home", str(home / ("x" * 100)))
    assert (done.status, done.document["code"]) == (7, "home")
    assert not os.path.lexists(atomic)


def test_only_known_hosts(shell: Shell) -> None:
    for arguments in ([], ["emacs"], ["atomic", "pi"]):
        assert shell.run("install", *arguments, "--json").document["code"] == "usage"


def test_variables_move_the_link(shell: Shell, home: Path, short_path: Path) -> None:
    """Protocol 2.1."""
    shell.run("install", "atomic", env={"ATOMIC_CODING_AGENT_DIR": str(short_path / "a"), "PI_CODING_AGENT_DIR": "/x"})
    assert (short_path / "a" / "intercom").is_symlink()
    shell.run("install", "pi", env={"PI_CODING_AGENT_DIR": "~/p"})
    assert (home.parent / "p" / "intercom").is_symlink()


def test_the_command_works_from_anywhere(shell: Shell, home: Path, tmp_path: Path) -> None:
    """Protocol 2.3: one more argument, another directory, an environment that knows nothing of this one."""
    shell.run("install", "atomic")
    (tmp_path / "intercom").mkdir()
    (tmp_path / "intercom" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    settings = settings_in(home)
    done = subprocess.run(
        [settings["brokerCommand"], *settings["brokerArgs"], "--help", "/ext/broker.ts"],
        cwd=tmp_path,
        env={"HOME": str(home.parent)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: intercom serve")


def test_a_broker_that_serves_there_is_asked_to_leave(
    shell: Shell, home: Path, atomic: Path, start_broker: StartBroker
) -> None:
    atomic.parent.mkdir(parents=True)
    old = start_broker(atomic)
    with old.registered("a") as client:
        done = shell.run("install", "atomic", "--json")
        assert [step["action"] for step in done.document["steps"]][-1] == "stop"
        client.expect_end()
    assert old.wait() == 0
    assert atomic.is_symlink()
    new = start_broker(home)
    with new.connect() as client:
        assert client.status()["pid"] == new.pid
    assert shell.run("uninstall", "atomic").status == 0
    assert not {"broker.sock", "broker.pid"} & {path.name for path in atomic.iterdir()}


# --- where clients look


@pytest.mark.parametrize(
    ("host", "environ", "directory"),
    [
        ("atomic", {"HOME": "/u"}, "/u/.atomic/agent/intercom"),
        ("atomic", {"HOME": "/u", "PI_CODING_AGENT_DIR": "/p"}, "/p/intercom"),
        ("atomic", {"HOME": "/u", "PI_CODING_AGENT_DIR": "/p", "ATOMIC_CODING_AGENT_DIR": "~"}, "/u/intercom"),
        ("pi", {"HOME": "/u"}, "/u/.pi/agent/intercom"),
        ("pi", {"HOME": "/u", "PI_CODING_AGENT_DIR": "~/p", "ATOMIC_CODING_AGENT_DIR": "/a"}, "/u/p/intercom"),
    ],
)
def test_the_directory_of_a_host(host: str, environ: dict[str, str], directory: str) -> None:
    """Protocol 2.1; hosts 7.3, 7.4."""
    assert runtime_directory(HOSTS[host], environ) == Path(directory)


def test_the_client_that_started_it_is_known_by_its_log(short_path: Path) -> None:
    """Protocol 2.2: the file it hands over as standard error."""
    environ = {"HOME": str(short_path), "ATOMIC_CODING_AGENT_DIR": str(short_path / "a")}
    for directory in known_directories(environ):
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "broker.log", "wb") as log:
            assert foreign_directory(environ, log.fileno()) == directory
    with open(short_path / "broker.log", "wb") as log:
        assert foreign_directory(environ, log.fileno()) == short_path / "a" / "intercom"
    assert foreign_directory(environ, -1) == short_path / "a" / "intercom"


def test_what_is_written_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    hostconfig.write(path, OF_USERS)
    assert hostconfig.read(path) == OF_USERS
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]
    command, arguments = our_command("serve")
    assert hostconfig.is_ours({"brokerCommand": command, "brokerArgs": arguments})
    assert hostconfig.is_ours({"brokerCommand": str(TOP / "intercom"), "brokerArgs": ["serve"]})
    for other in ({}, OF_USERS, {"brokerArgs": "serve"}, {"brokerCommand": "tsx", "brokerArgs": ["serve"]}):
        assert not hostconfig.is_ours(other)
