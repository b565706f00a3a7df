"""Test where the home is, what it is called, and whom it lets in."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs
import pytest

from intercom import paths as paths_module
from intercom.errors import HomeError
from intercom.paths import (
    HOME_VARIABLE,
    NETWORK_FILE_SYSTEMS,
    Paths,
    check_socket_directory,
    drafted,
    file_system_of,
    make_private_directory,
    open_private_file,
    prepare_home,
    read_ordinary_file,
    resolve_home,
)
from tests.support.processes import OTHER_USER, in_child, needs_root

UNKNOWN_USER = 61_234
"""A number no system gives a name to."""
UMASKS = (0o000, 0o022, 0o077, 0o777)


def mode(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Give a directory that another user may reach and that belongs to nobody in particular."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


# --- which home -----------------------------------------------------------------------------------------


def test_flag_comes_before_variable(tmp_path: Path) -> None:
    """Design section 7, home."""
    environ = {HOME_VARIABLE: str(tmp_path / "variable")}
    assert resolve_home(str(tmp_path / "flag"), environ) == tmp_path / "flag"
    assert resolve_home(None, environ) == tmp_path / "variable"


@pytest.mark.parametrize("spelling", ["{home}", "{link}", "{home}/", "{home}/../home", "{home}/.", "home", "./home/"])
def test_every_spelling_is_one_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    """F22."""
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    monkeypatch.chdir(tmp_path)
    spelled = spelling.format(home=home, link=link)
    assert resolve_home(spelled, {}) == home
    assert resolve_home(None, {HOME_VARIABLE: spelled}) == home


def test_home_that_does_not_exist_is_a_real_path_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("real/later")
    assert resolve_home(str(tmp_path / "link" / "a" / "b"), {}) == tmp_path / "real" / "a" / "b"
    assert resolve_home(str(tmp_path / "dangling"), {}) == tmp_path / "real" / "later"


def test_tilde_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_home(None, {HOME_VARIABLE: "~/x"}) == tmp_path / "x"


@pytest.mark.parametrize("value", ["", "a\0b", "~there-is-no-such-user/x"])
def test_flag_that_is_no_path_is_refused(value: str) -> None:
    with pytest.raises(HomeError, match="--home"):
        resolve_home(value, {})


def test_relative_path_in_a_deleted_directory_is_refused(tmp_path: Path) -> None:
    """F17."""

    def attempt() -> str:
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        with pytest.raises(HomeError) as caught:
            resolve_home("x", {})
        return caught.value.code

    assert in_child(attempt) == "home"


@pytest.mark.skipif(sys.platform != "linux", reason="the place differs by platform")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "{home}/.local/state/intercom"),
        ({HOME_VARIABLE: ""}, "{home}/.local/state/intercom"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, "{home}/.local/state/intercom"),
        ({"XDG_RUNTIME_DIR": "relative"}, "{home}/.local/state/intercom"),
        ({"ATOMIC_CODING_AGENT_DIR": "/x", "PI_CODING_AGENT_DIR": "/y"}, "{home}/.local/state/intercom"),
        ({"XDG_STATE_HOME": ""}, "{home}/.local/state/intercom"),
        ({"XDG_STATE_HOME": "relative"}, "{home}/.local/state/intercom"),
        ({"XDG_STATE_HOME": "{home}/state"}, "{home}/state/intercom"),
    ],
)
def test_default_home(tmp_path: Path, environ: dict[str, str], expected: str) -> None:
    """F20: a terminal, cron and ssh come to one place."""
    variables = {name: value.format(home=tmp_path) for name, value in environ.items()}
    program = "import os; from intercom.paths import resolve_home; print(resolve_home(None, os.environ))"
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(tmp_path), "PYTHONPATH": str(Path(paths_module.__file__).parents[1]), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.strip()
    assert printed == expected.format(home=tmp_path)


# --- what is where --------------------------------------------------------------------------------------


def test_names_in_the_home() -> None:
    """Protocol 2.2, design sections 5 and 7."""
    paths = Paths(Path("/h"))
    assert {name: str(getattr(paths, name)) for name in Paths.__slots__ if name != "socket_is_elsewhere"} == {
        "home": "/h",
        "socket": "/h/broker.sock",
        "pid": "/h/broker.pid",
        "lock": "/h/broker.replace.lock",
        "spawn_lock": "/h/intercom.spawn.lock",
        "database": "/h/intercom.db",
        "head": "/h/intercom.head",
        "key": "/h/intercom.key",
        "log": "/h/intercom.log",
        "stderr_log": "/h/broker.log",
        "start_failure": "/h/broker.failed",
        "settings": "/h/intercom.toml",
        "identities": "/h/identities",
        "addresses": "/h/identities/addresses",
        "answers": "/h/identities/answers",
        "groups": "/h/identities/groups",
        "reports": "/h/identities/reports",
        "adapters": "/h/adapters",
        "stops": "/h/stops",
    }
    assert not paths.socket_is_elsewhere
    assert repr(paths) == "Paths('/h')"


def home_with_socket_path_of(length: int, filler: str = "x") -> Path:
    """Return a home in /tmp whose own socket path has this many bytes."""
    rest = length - len("/tmp/") - len("/broker.sock")
    width = len(filler.encode())
    return Path("/tmp", filler * (rest // width) + "y" * (rest % width))


@pytest.mark.parametrize("length", [102, 103, 104, 107])
def test_socket_that_fits_lies_in_the_home(length: int) -> None:
    """F19."""
    paths = Paths(home_with_socket_path_of(length))
    assert len(os.fsencode(paths.socket)) == length
    assert paths.socket == paths.home / "broker.sock"


@pytest.mark.parametrize("length", [108, 200])
@pytest.mark.parametrize("filler", ["x", "\u20ac"])
def test_socket_that_does_not_fit_lies_in_a_short_directory(length: int, filler: str) -> None:
    """F19: the limit is one of bytes."""
    paths = Paths(home_with_socket_path_of(length, filler))
    assert paths.socket_is_elsewhere
    assert paths.socket.parent == Path(os.path.realpath("/tmp"), f"intercom-{os.geteuid()}")
    assert len(os.fsencode(paths.socket)) <= 103
    assert Paths(paths.home).socket == paths.socket
    assert Paths(paths.home / "other").socket != paths.socket


def test_limit_of_macos_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """F19."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not Paths(home_with_socket_path_of(103)).socket_is_elsewhere
    assert Paths(home_with_socket_path_of(104)).socket_is_elsewhere


@pytest.mark.parametrize("length", [107, 108])
def test_socket_can_be_bound(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """F19: nothing appears at a shortened name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(paths_module, "_SHORT_ROOT", short)
        base = Path(os.path.realpath(directory))
        home = base / ("x" * (length - len(os.fsencode(base)) - len("//broker.sock")))
        paths = Paths(home)
        prepare_home(paths)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(paths.socket))
        assert stat.S_ISSOCK(os.lstat(paths.socket).st_mode)
        assert os.listdir(base) == [home.name]
        assert paths.socket_is_elsewhere == (length > 107)


# --- creating the home ----------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("umask", UMASKS)
def test_home_is_private_whatever_the_umask(open_directory: Path, umask: int) -> None:
    """F108, protocol 2.2: recursively, 0700."""
    paths = Paths(open_directory / "a" / "b" / "home")
    in_child(lambda: prepare_home(paths), user=OTHER_USER, umask=umask)
    assert [mode(path) for path in (paths.home, paths.home.parent, paths.home.parent.parent)] == [0o700] * 3
    assert os.stat(paths.home).st_uid == OTHER_USER


@pytest.mark.parametrize("wrong", [0o777, 0o755, 0o500, 0o000])
def test_mode_of_our_home_is_set_again(tmp_path: Path, wrong: int) -> None:
    """Protocol 2.2, F108."""
    paths = Paths(tmp_path / "home")
    paths.home.mkdir()
    paths.home.chmod(wrong)
    prepare_home(paths)
    assert mode(paths.home) == 0o700


@needs_root
@pytest.mark.parametrize("wrong", [0o777, 0o000])
def test_mode_of_a_users_home_is_set_again(open_directory: Path, wrong: int) -> None:
    paths = Paths(open_directory / "home")
    paths.home.mkdir()
    os.chown(paths.home, OTHER_USER, OTHER_USER)
    paths.home.chmod(wrong)
    in_child(lambda: prepare_home(paths), user=OTHER_USER)
    assert mode(paths.home) == 0o700


@needs_root
def test_home_of_another_user_is_refused_with_the_fix(open_directory: Path) -> None:
    """F108."""
    paths = Paths(open_directory / "home")
    paths.home.mkdir(mode=0o755)

    def attempt() -> tuple[str, str]:
        with pytest.raises(HomeError) as caught:
            prepare_home(paths)
        return caught.value.reason, caught.value.hint

    reason, hint = in_child(attempt, user=OTHER_USER)
    assert reason == f"{paths.home} belongs to user 0, not to user {OTHER_USER} who runs this"
    assert hint == "Run this as user 0, or choose another home with --home or INTERCOM_HOME."
    assert mode(paths.home) == 0o755


@needs_root
def test_root_does_not_take_over_the_home_of_a_user(open_directory: Path) -> None:
    paths = Paths(open_directory / "home")
    paths.home.mkdir(mode=0o755)
    os.chown(paths.home, OTHER_USER, OTHER_USER)
    with pytest.raises(HomeError, match=f"belongs to user {OTHER_USER}"):
        prepare_home(paths)
    assert mode(paths.home) == 0o755


@needs_root
def test_home_that_cannot_be_created_is_refused(open_directory: Path) -> None:
    open_directory.chmod(0o755)
    paths = Paths(open_directory / "home")

    def attempt() -> str:
        with pytest.raises(HomeError) as caught:
            prepare_home(paths)
        return caught.value.reason

    assert in_child(attempt, user=OTHER_USER) == f"{paths.home} cannot be used as a directory: Permission denied"


@pytest.mark.parametrize("kind", ["file", "dangling link", "link", "loop", "below a file"])
def test_what_is_no_directory_is_refused_untouched(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    if kind == "link":
        (tmp_path / "target").mkdir()
        home.symlink_to("target")
    elif kind == "dangling link":
        home.symlink_to("target")
    elif kind == "loop":
        home.symlink_to("home")
    else:
        home.write_text("content")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(HomeError):
        make_private_directory(home / "below" if kind == "below a file" else home)
    assert sorted(os.listdir(tmp_path)) == before
    assert kind not in ("file", "below a file") or home.read_text() == "content"


def test_directories_that_others_need_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "users" / "somebody"
    user.mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("HOME", str(user))
    for home in (user, user.parent, Path("/tmp"), Path("/")):
        before = mode(home)
        with pytest.raises(HomeError, match="used by more than intercom"):
            prepare_home(Paths(home))
        assert mode(home) == before
    prepare_home(Paths(user / "intercom"))


@needs_root
def test_user_without_a_home_directory_names_one(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    # Loaded here: the other user may not be allowed to read where this Python is installed.
    platformdirs.user_state_path("intercom")

    def attempt() -> str:
        os.chdir(open_directory)
        with pytest.raises(HomeError, match="the state directory does not name a directory") as caught:
            resolve_home(None, {})
        os.mkdir("home")
        os.chdir("home")
        prepare_home(Paths(open_directory / "home"))
        return caught.value.hint

    assert in_child(attempt, user=UNKNOWN_USER) == "Choose another home with --home or INTERCOM_HOME."


# --- the short directory --------------------------------------------------------------------------------


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Give a home whose socket lies elsewhere, below a directory of this test."""
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(paths_module, "_SHORT_ROOT", str(tmp_path / "t"))
    paths = Paths(tmp_path / ("x" * 100))
    assert paths.socket_is_elsewhere
    return paths


def test_short_directory_is_created_private(far: Paths) -> None:
    """F19."""
    check_socket_directory(far)
    prepare_home(far)
    check_socket_directory(far)
    assert mode(far.socket.parent) == mode(far.home) == 0o700


def test_short_directory_of_ours_is_repaired_by_the_broker_only(far: Paths) -> None:
    far.socket.parent.mkdir()
    far.socket.parent.chmod(0o777)
    check_socket_directory(far)
    far.socket.touch()
    with pytest.raises(HomeError, match="can be written by other users"):
        check_socket_directory(far)
    assert mode(far.socket.parent) == 0o777
    prepare_home(far)
    check_socket_directory(far)


@needs_root
def test_short_directory_of_another_user_is_refused(far: Paths) -> None:
    """F19, F20: somebody may have been there first."""
    far.socket.parent.mkdir(mode=0o700)
    os.chown(far.socket.parent, OTHER_USER, OTHER_USER)
    for attempt in (check_socket_directory, prepare_home):
        with pytest.raises(HomeError, match=f"belongs to user {OTHER_USER}"):
            attempt(far)
    assert os.listdir(far.socket.parent) == []


@pytest.mark.parametrize("kind", ["link", "file"])
def test_short_directory_that_is_none_is_refused(far: Paths, kind: str) -> None:
    if kind == "link":
        (far.home.parent / "elsewhere").mkdir(mode=0o700)
        far.socket.parent.symlink_to(far.home.parent / "elsewhere")
    else:
        far.socket.parent.touch()
    for attempt in (check_socket_directory, prepare_home):
        with pytest.raises(HomeError):
            attempt(far)


@needs_root
def test_socket_directory_out_of_sight_is_left_to_the_connect(open_directory: Path) -> None:
    """F27: there it is told apart from a home that is not fit."""
    closed = open_directory / "closed"
    closed.mkdir(mode=0o700)
    in_child(lambda: check_socket_directory(Paths(closed / "home")), user=OTHER_USER)


# --- files ----------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("umask", UMASKS)
def test_files_are_private_whatever_the_umask(open_directory: Path, umask: int) -> None:
    """F108."""
    path = open_directory / "file"
    in_child(lambda: os.close(open_private_file(path, os.O_WRONLY)), user=OTHER_USER, umask=umask)
    assert mode(path) == 0o600


def test_existing_file_is_made_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    path.chmod(0o644)
    descriptor = open_private_file(path, os.O_RDONLY)
    try:
        assert not os.get_inheritable(descriptor)
        assert os.read(descriptor, 100) == b"content"
    finally:
        os.close(descriptor)
    assert mode(path) == 0o600


def test_file_behind_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(OSError, match="symbolic link"):
        open_private_file(tmp_path / "link", os.O_WRONLY)
    assert not (tmp_path / "target").exists()


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    before = os.listdir("/proc/self/fd")
    for flags in (os.O_WRONLY, os.O_RDONLY, os.O_RDWR):
        with pytest.raises(OSError, match="not an ordinary file"):
            open_private_file(path, flags)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_only_an_ordinary_file_is_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Whoever reads waits for nobody, and for nothing that never ends."""
    make(tmp_path / "place")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not an ordinary file"):
        read_ordinary_file(tmp_path / "place")
    assert os.listdir("/proc/self/fd") == before


def test_a_file_is_read_whole_also_behind_a_link(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1_000
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "link").symlink_to("file")
    assert read_ordinary_file(tmp_path / "link") == content


def test_a_socket_is_no_file(short_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(short_path / "s"))
        with pytest.raises(OSError, match="not an ordinary file"):
            read_ordinary_file(short_path / "s")


@needs_root
def test_file_whose_mode_cannot_be_set_is_not_left_open(open_directory: Path) -> None:
    path = open_directory / "file"
    path.touch()
    path.chmod(0o666)

    def attempt() -> bool:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(PermissionError):
            open_private_file(path, os.O_WRONLY)
        return os.listdir("/proc/self/fd") == before

    assert in_child(attempt, user=OTHER_USER)


# --- network file systems -------------------------------------------------------------------------------

MOUNTS = rb"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:2 - nfs4 server:/home rw
31 30 0:41 / /home/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/with\040space rw master:3 propagate_from:2 - fuse.sshfs host: rw
33 22 0:43 / /mnt/twice rw - cifs //server/share rw
34 33 0:44 / /mnt/twice rw - tmpfs tmpfs rw
a line that is none
""".splitlines()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/u/intercom", "nfs4"),
        ("/homes/u", "ext4"),
        ("/home/local", "xfs"),
        ("/home/local/u", "xfs"),
        ("/home/locality", "nfs4"),
        ("/mnt/with space/u", "fuse.sshfs"),
        ("/mnt/twice/u", "tmpfs"),
    ],
)
def test_file_system_of_a_path(path: str, kind: str) -> None:
    assert file_system_of(path.encode(), MOUNTS) == kind


def test_empty_mount_table_says_nothing() -> None:
    assert file_system_of(b"/", []) is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_home_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Design section 7, home."""
    assert kind in NETWORK_FILE_SYSTEMS
    table = tmp_path / "mounts"
    table.write_text(f"30 22 0:40 / {tmp_path} rw - {kind} server:/home rw\n")
    monkeypatch.setattr(paths_module, "_MOUNT_TABLE", table)
    with pytest.raises(HomeError, match=rf"lies on a network file system \({kind}\)"):
        prepare_home(Paths(tmp_path / "home"))
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay", "btrfs", "9p", "virtiofs", "fuse.other"])
def test_home_on_another_file_system_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"30 22 0:40 / / rw - {kind} disk rw\n")
    monkeypatch.setattr(paths_module, "_MOUNT_TABLE", table)
    prepare_home(Paths(tmp_path / "home"))


def test_kernel_without_a_mount_table_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "_MOUNT_TABLE", tmp_path / "missing")
    prepare_home(Paths(tmp_path / "home"))


# --- start-up time --------------------------------------------------------------------------------------


@pytest.mark.loads
def test_importing_paths_and_settings_loads_little(tmp_path: Path) -> None:
    program = (
        "import sys, os; from pathlib import Path; before = set(sys.modules);"
        "from intercom.paths import *; from intercom.config import *;"
        "paths = Paths(resolve_home(sys.argv[1], {})); load_settings(paths, {}, {});"
        "print(*(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={"PYTHONPATH": str(Path(paths_module.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    heavy = {"dataclasses", "platformdirs", "tomllib", "hashlib", "asyncio", "logging", "sqlite3", "anyio", "json"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("blank", ["", " ", "\t "])
def test_a_blank_variable_is_no_home(blank: str) -> None:
    """A directory named by a blank would be made wherever the command happens to run."""
    assert resolve_home(None, {"INTERCOM_HOME": blank}) == resolve_home(None, {})
    with pytest.raises(HomeError):
        resolve_home(blank, {})


def test_no_draft_stays_behind(tmp_path: Path) -> None:
    """Neither when it was put in its place, nor when the disk was full."""
    draft, place = tmp_path / "place.1", tmp_path / "place"
    with drafted(draft) as descriptor:
        os.write(descriptor, b"x")
        draft.replace(place)
    with pytest.raises(OSError, match="full"), drafted(draft):
        raise OSError("the disk is full")
    with drafted(draft):
        pass
    assert list(tmp_path.iterdir()) == [place]
    assert place.read_bytes() == b"x" and place.stat().st_mode & 0o777 == 0o600
