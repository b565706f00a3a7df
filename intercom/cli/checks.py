"""Look at what a broker and its clients need from the system; nothing is changed, made or started.

Every check ends with what it found: ``ok``, ``bad``, or ``unknown`` when it could not tell, with the reason.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from intercom.cli import hostconfig
from intercom.cli.foreign import HOSTS, runtime_directory
from intercom.config import load_settings
from intercom.errors import AccessDenied, HomeError, IntercomError
from intercom.limits import DESCRIPTORS_LOW, DISK_LOW_BYTES, LOG_BYTES, MIB, SOCKET_PATH_BYTES
from intercom.paths import PRIVATE_DIRECTORY, PRIVATE_FILE, Paths, refuse_network_file_system

State: TypeAlias = Literal["ok", "bad", "unknown"]


class Finding(NamedTuple):
    """Hold the result of one check: in one sentence, with a hint that can be followed literally."""

    id: str
    state: State
    found: str
    hint: str = ""


def concluded(check_id: str, check: Callable[[], Finding]) -> Finding:
    """Return what a check found; one that fails could not tell."""
    try:
        return check()
    except IntercomError as error:
        return Finding(check_id, "unknown", error.reason, error.hint)
    except OSError as error:
        return refused(check_id, str(error.filename or "the check"), error)
    except Exception as error:
        return Finding(check_id, "unknown", f"the check failed: {error!r}")


def home(paths: Paths) -> Finding:
    """Look whether the home is a directory of this user in which files can be made."""
    try:
        status = os.lstat(paths.home)
        os.scandir(paths.home).close()
    except FileNotFoundError:
        return Finding("home", "ok", f"{paths.home} does not exist yet; the first broker makes it")
    except NotADirectoryError:
        return Finding("home", "bad", f"{paths.home} is not a directory", "Choose another home with --home.")
    except OSError as error:
        return refused("home", f"{paths.home} cannot be read", error)
    if status.st_uid != os.geteuid():
        return Finding(
            "home",
            "bad",
            f"{paths.home} belongs to user {status.st_uid}, this is user {os.geteuid()}",
            f"Run this as user {status.st_uid}, or choose another home with --home.",
        )
    return Finding("home", "ok", f"{paths.home}")


def permissions(paths: Paths) -> Finding:
    """Look whether others could read or replace what is in the home."""
    if paths.home.exists() and not paths.home.is_dir():
        return Finding("permissions", "ok", "there is no home whose files could be open")
    wrong = []
    directories = (*paths.kept_directories, *_each_of(paths.reports))
    wanted = [(place, PRIVATE_DIRECTORY) for place in (paths.home, *directories)]
    if paths.socket_is_elsewhere:
        wanted.append((paths.socket.parent, PRIVATE_DIRECTORY))
    files = (
        paths.lock,
        paths.spawn_lock,
        paths.pid,
        paths.database,
        paths.key,
        paths.head,
        paths.log,
        paths.stderr_log,
        paths.start_failure,
    )
    wanted += [(path, PRIVATE_FILE) for path in (*files, *_kept(directories))]
    for path, mode in wanted:
        try:
            found = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return refused("permissions", f"{path} cannot be examined", error)
        if mode == PRIVATE_DIRECTORY and not stat.S_ISDIR(found):
            return Finding("permissions", "bad", f"{path} is not a directory", f"Move {path} away.")
        if mode == PRIVATE_FILE and not stat.S_ISREG(found):
            return Finding("permissions", "bad", f"{path} is not a regular file", f"Move {path} away.")
        present = stat.S_IMODE(found)
        if present & ~mode:
            wrong.append((path, mode, present))
    settings = paths.home / hostconfig.NAME  # the user's own, which may be a link and which others may read
    if settings.exists() and not settings.is_file():
        return Finding("permissions", "bad", f"{settings} is not a regular file", f"Move {settings} away.")
    if wrong:
        path, mode, present = wrong[0]
        others = f", and {len(wrong) - 1} others are" if len(wrong) > 1 else ""
        return Finding(
            "permissions",
            "bad",
            f"{path} has mode {present:04o}{others} open to others",
            f"Run `chmod {mode:o} {path}`.",
        )
    return Finding("permissions", "ok", "nobody else can use the files of the home")


def _kept(directories: tuple[Path, ...]) -> list[Path]:
    """Return what else lies in these directories; only ordinary files belong there."""
    return [path for directory in directories for path in _each_of(directory) if path not in directories]


def _each_of(directory: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [directory / name for name in sorted(os.listdir(directory))]
    return []


def file_system(paths: Paths) -> Finding:
    """Look whether the home lies on a disk of this machine alone."""
    try:
        refuse_network_file_system(paths.home)
    except HomeError as error:
        return Finding("filesystem", "bad", error.reason, error.hint)
    if not os.path.exists("/proc/self/mountinfo"):
        return Finding("filesystem", "unknown", "this system does not publish a table of its file systems")
    return Finding("filesystem", "ok", "the home is on a file system of this machine")


def socket_path(paths: Paths) -> Finding:
    """Look at the length of the socket's path and at what is there."""
    length = len(os.fsencode(paths.socket))
    where = f"{paths.socket} ({length} bytes)"
    if paths.socket_is_elsewhere:
        where += ", elsewhere because the path of the home is too long for a socket"
    if length > SOCKET_PATH_BYTES:
        return Finding("socket_path", "bad", f"{where} is too long for a socket", "Choose a shorter home with --home.")
    try:
        status = os.lstat(paths.socket)
    except (FileNotFoundError, NotADirectoryError):
        return Finding("socket_path", "ok", f"{where}; nothing is there")
    except OSError as error:
        return refused("socket_path", f"{paths.socket} cannot be examined", error)
    if not stat.S_ISSOCK(status.st_mode):
        return Finding(
            "socket_path",
            "bad",
            f"{paths.socket} exists and is not a socket",
            "Move it away; brokers leave it as it is.",
        )
    if status.st_uid != os.geteuid():
        return Finding("socket_path", "bad", f"{paths.socket} is a socket of user {status.st_uid}")
    return Finding("socket_path", "ok", where)


def sandbox() -> Finding:
    """Look whether this process may use Unix sockets at all."""
    try:
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM):
            end.close()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect("/dev/null/none")
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EACCES):
                    raise
    except OSError as error:
        return refused("sandbox", "this process may not use Unix sockets", error)
    return Finding("sandbox", "ok", "this process may use Unix sockets")


def disk(paths: Paths) -> Finding:
    """Look at the space and the number of files left on the home's disk."""
    place = paths.home
    while not place.exists() and place != place.parent:
        place = place.parent
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < DISK_LOW_BYTES:
        return Finding(
            "disk",
            "bad",
            f"{free // MIB} MiB are free on the disk of {place}",
            "Free some space: sends will be refused.",
        )
    if found.f_files and not found.f_favail:
        return Finding(
            "disk", "bad", f"no more files can be made on the disk of {place}", "Delete files you do not need."
        )
    return Finding("disk", "ok", f"{free // MIB} MiB are free")


def descriptors(pid: int | None) -> Finding:
    """Look at the open files this process may have, and at those the broker has."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < DESCRIPTORS_LOW:
        return Finding("descriptors", "bad", f"a process from here may open only {hard} files", "Raise `ulimit -n`.")
    shown = "any number of" if soft == resource.RLIM_INFINITY else f"{soft}"
    if pid is None:
        return Finding("descriptors", "ok", f"this process may open {shown} files")
    try:
        used = len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/limits", encoding="ascii") as table:
            limit = next(int(line.split()[3]) for line in table if line.startswith("Max open files"))
    except (OSError, ValueError, StopIteration):
        return Finding("descriptors", "unknown", f"how many files the broker (pid {pid}) has open cannot be seen")
    if used > limit * 0.9:
        return Finding(
            "descriptors",
            "bad",
            f"the broker (pid {pid}) has {used} of {limit} files open",
            "Close sessions, or raise the hard limit of `ulimit -n` and run `intercom restart`.",
        )
    return Finding("descriptors", "ok", f"the broker (pid {pid}) has {used} of {limit} files open")


def settings(paths: Paths, environ: Mapping[str, str]) -> Finding:
    """Look whether a broker would accept the settings."""
    try:
        load_settings(paths, environ, {})
    except IntercomError as error:
        return Finding(
            "settings", "bad", error.reason, error.hint or "Correct it; `intercom docs configuration` helps."
        )
    where = f"{paths.settings} is in order" if paths.settings.exists() else f"there is no {paths.settings}"
    return Finding("settings", "ok", where)


def links(paths: Paths, environ: Mapping[str, str]) -> Finding:
    """Look whether clients of Atomic and pi whose directory is a link to the home find this broker there."""
    told = []
    for name, host in HOSTS.items():
        directory = runtime_directory(host, environ)
        if not os.path.lexists(directory):
            told.append(f"no {host.title} here")
            continue
        if not directory.is_symlink() and directory != paths.home:
            told.append(f"{host.title} is not linked to the home")
            continue
        if not directory.exists():
            return Finding(
                "links",
                "bad",
                f"{directory}, where {host.title} looks, is a link to {os.readlink(directory)}, which does not exist",
                f"Run `intercom install {name}`.",
            )
        if os.path.realpath(directory) != str(paths.home):
            told.append(f"{host.title} is linked to {os.path.realpath(directory)}")
            continue
        settings = hostconfig.read(paths.home / hostconfig.NAME)
        command = (settings or {}).get(hostconfig.COMMAND)
        if not hostconfig.is_ours(settings) or not isinstance(command, str) or shutil.which(command) is None:
            return Finding(
                "links",
                "bad",
                f"{paths.home / hostconfig.NAME} does not tell {host.title} how to start this broker",
                f"Run `intercom install {name}`.",
            )
        told.append(f"{host.title} is linked to the home")
    return Finding("links", "ok", "; ".join(told))


def log(paths: Paths) -> Finding:
    """Look for errors since the last start, and whether the log can be written."""
    try:
        if not stat.S_ISREG(os.lstat(paths.log).st_mode):
            return Finding("log", "bad", f"{paths.log} is not a regular file", f"Move {paths.log} away.")
        with open(paths.log, "rb", opener=_without_waiting) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            lines = file.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return Finding("log", "ok", "there is no log yet")
    except OSError as error:
        return refused("log", f"{paths.log} cannot be read", error)
    if not os.access(paths.log, os.W_OK):
        return Finding("log", "bad", f"{paths.log} cannot be written", f"Run `chmod 600 {paths.log}`.")
    errors = [entry for entry in _since_start(lines) if entry.get("level") == "error"]
    if errors:
        last = errors[-1]
        return Finding(
            "log",
            "bad",
            f"{len(errors)} errors since the last start, the last at {last.get('time')}: "
            f"{last.get('event')} {last.get('reason', '')}".rstrip(),
            "`intercom log` shows them.",
        )
    return Finding("log", "ok", "no errors since the last start")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file that may turn out to be a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _since_start(lines: list[bytes]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    starts = [place for place, entry in enumerate(entries) if entry.get("event") == "started"]
    first = starts[-1] if starts else 0
    # Of a store that cannot be used the broker tells just before it says that it has started.
    while first > 0 and entries[first - 1].get("pid") == entries[first].get("pid"):
        first -= 1
    return entries[first:]


def refused(check_id: str, what: str, error: OSError) -> Finding:
    """Return the finding for an error of the system while looking: forbidden is bad, all else is not known."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return Finding(check_id, "bad", f"{what}: {error.strerror}", AccessDenied.hint)
    return Finding(check_id, "unknown", f"{what}: {error.strerror or error}")
