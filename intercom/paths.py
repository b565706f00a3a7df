"""Find the home, name the files in it, and keep other users out of it.

One home is one broker. It is always named by its real path, so that every spelling of it leads to the same lock
and the same socket (F22).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from intercom.errors import HomeError
from intercom.limits import SOCKET_PATH_BYTES, SOCKET_PATH_BYTES_MACOS

HOME_VARIABLE = "INTERCOM_HOME"
PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600

_NETWORK = {"afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
_NETWORK |= {"ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs"}
_NETWORK_FUSE = {"blobfuse", "blobfuse2", "ceph", "ceph-fuse", "cephfs", "curlftpfs", "davfs", "davfs2", "gcsfuse"}
_NETWORK_FUSE |= {"glusterfs", "goofys", "juicefs", "mfs", "moosefs", "mount-s3", "rclone", "s3fs", "s3ql", "smbnetfs"}
_NETWORK_FUSE |= {"sshfs"}

NETWORK_FILE_SYSTEMS = frozenset(_NETWORK | {f"fuse.{name}" for name in _NETWORK_FUSE})
"""Types on which two machines may see one home.

``9p`` and ``virtiofs`` are not among them: they are how virtual machines and some container sandboxes mount a disk of
their own. Where such a mount cannot hold a socket or a shared memory file, listening or opening the store says so.
"""


class Paths:
    """Name every file of one home; nothing is created or looked at.

    ``socket`` lies in the home, or, when that path is too long for a socket, in a directory of this user alone under
    ``/tmp`` (F19); ``socket_is_elsewhere`` tells which. The short path is derived from the real path of the home
    only, so that every process finds the same one.
    """

    __slots__ = (
        "adapters",
        "addresses",
        "answers",
        "database",
        "groups",
        "head",
        "home",
        "identities",
        "key",
        "lock",
        "log",
        "pid",
        "reports",
        "settings",
        "socket",
        "socket_is_elsewhere",
        "spawn_lock",
        "start_failure",
        "stderr_log",
        "stops",
    )

    def __init__(self, home: Path) -> None:
        self.home = home
        self.pid = home / "broker.pid"
        self.lock = home / "broker.replace.lock"
        self.spawn_lock = home / "intercom.spawn.lock"
        self.database = home / "intercom.db"
        self.key = home / "intercom.key"
        self.head = home / "intercom.head"
        self.log = home / "intercom.log"
        self.stderr_log = home / "broker.log"
        self.start_failure = home / "broker.failed"
        self.settings = home / "intercom.toml"
        self.identities = home / "identities"
        self.addresses = self.identities / "addresses"
        self.answers = self.identities / "answers"
        self.groups = self.identities / "groups"
        self.reports = self.identities / "reports"
        self.adapters = home / "adapters"
        self.stops = home / "stops"
        self.socket = home / "broker.sock"
        self.socket_is_elsewhere = len(os.fsencode(self.socket)) > _socket_limit()
        if self.socket_is_elsewhere:
            self.socket = _short_directory() / f"{_digest(home)}.sock"

    def __repr__(self) -> str:
        return f"Paths({str(self.home)!r})"

    @property
    def kept_directories(self) -> tuple[Path, ...]:
        """Every directory that clients keep files in, those above others first; ``reports`` holds one an address."""
        beside = (self.addresses, self.answers, self.groups, self.reports)
        return (self.identities, *beside, self.adapters, self.stops)


def resolve_home(explicit: str | None, environ: Mapping[str, str]) -> Path:
    """Return the real path of the home; it need not exist.

    ``explicit`` (the flag ``--home``) comes before ``INTERCOM_HOME``, then the platform's per-user state directory.
    A leading ``~`` is expanded, because agent hosts hand variables over as they are written in their settings.
    Raises ``HomeError`` when the value cannot be a path, and on a system that can have no home at all: whatever needs
    one begins here, so this is where such a system gets its one clear line.
    """
    if not hasattr(os, "geteuid"):
        raise HomeError(
            "intercom needs Unix sockets and Unix users, which this system does not have",
            hint="On Windows, run it inside the Windows Subsystem for Linux.",
        )
    if explicit is not None:
        chosen, origin = explicit, "--home"
    else:
        chosen, origin = environ.get(HOME_VARIABLE, ""), HOME_VARIABLE
        if not chosen.strip():
            chosen, origin = _state_directory(), "the state directory"
    expanded = os.path.expanduser(chosen)
    if not expanded.strip() or expanded.startswith("~"):
        raise HomeError(f"{origin} does not name a directory: {chosen!r}", hint=_OTHER_HOME)
    try:
        return Path(os.path.realpath(expanded))
    except (OSError, ValueError) as error:
        raise HomeError(f"{origin} cannot be used as a path: {chosen!r} ({error})") from error


def prepare_home(paths: Paths) -> None:
    """Create the home and, where it is needed, the short directory for its socket, both 0700.

    A directory of ours with another mode is set to 0700 (protocol 2.2). Raises ``HomeError`` when the home lies on a
    network file system, belongs to another user, is a directory that others need, or cannot be created.
    """
    refuse_network_file_system(paths.home)
    _refuse_shared_directory(paths.home)
    make_private_directory(paths.home)
    if paths.socket_is_elsewhere:
        make_private_directory(paths.socket.parent)


def check_socket_directory(paths: Paths) -> None:
    """Raise ``HomeError`` when somebody else may have put the socket where it is.

    For whoever connects: anybody may create a directory under ``/tmp``, and a socket in it would be an impostor's. A
    directory that is missing or out of reach is left to ``connect``, which says so in its own way; one of ours that is
    too open holds no danger before there is a socket in it, and the broker that makes one closes the directory first.
    """
    directory = paths.socket.parent
    try:
        status = os.lstat(directory)
    except OSError:
        return
    _refuse_foreign(directory, status)
    if status.st_mode & _WRITABLE_BY_OTHERS and os.path.lexists(paths.socket):
        raise HomeError(f"{directory} can be written by other users", hint=f"Run `chmod 700 {directory}`.")


def make_private_directory(directory: Path) -> None:
    """Create a directory of mode 0700 with its parents, whatever the umask, or give an existing one of ours that mode.

    Raises ``HomeError`` when it belongs to another user, is a symbolic link or no directory, or cannot be created.
    """
    try:
        for missing in reversed(_missing(directory)):
            try:
                os.mkdir(missing, PRIVATE_DIRECTORY)
            except FileExistsError:
                continue  # another process of ours came first
            os.chmod(missing, PRIVATE_DIRECTORY)
        status = os.lstat(directory)
        _refuse_foreign(directory, status)
        if stat.S_IMODE(status.st_mode) != PRIVATE_DIRECTORY:
            os.chmod(directory, PRIVATE_DIRECTORY)
    except OSError as error:
        raise HomeError(f"{directory} cannot be used as a directory: {error.strerror}", hint=_OTHER_HOME) from error


def open_private_file(path: Path, flags: int) -> int:
    """Open a file, creating it with mode 0600 whatever the umask; return the descriptor.

    ``flags`` are those of ``os.open``; ``O_CREAT``, ``O_CLOEXEC`` and ``O_NOFOLLOW`` are added. An existing file of
    another mode is set to 0600. Raises ``OSError``, also when the last part of the path is a symbolic link, a pipe or
    anything else that is no ordinary file; it never waits for the other end of a pipe.
    """
    always = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | always, PRIVATE_FILE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise not_ordinary(path) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_ordinary(path)
        if stat.S_IMODE(status.st_mode) != PRIVATE_FILE:
            os.fchmod(descriptor, PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def drafted(draft: Path) -> Iterator[int]:
    """Open a private file that the block writes and renames or links; nothing of it is left under its own name after.

    Yields the descriptor, for writing, of an empty file. Raises ``OSError`` as ``open_private_file`` does. A draft that
    cannot be written, on a full disk, would stay for good: its name is that of a process.
    """
    descriptor = open_private_file(draft, os.O_WRONLY | os.O_TRUNC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            draft.unlink()


def sync_directories(*directories: Path) -> None:
    """Wait until the names in these directories are on disk: a file that is synced may still lose its name.

    Raises ``OSError``.
    """
    for directory in directories:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_ordinary_file(path: Path) -> bytes:
    """Return the content of an ordinary file; a symbolic link to one is followed.

    Raises ``OSError``, also when the path leads to a pipe or anything else that is no ordinary file: whoever reads
    must not wait for somebody to write.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise not_ordinary(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise not_ordinary(path)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def not_ordinary(path: Path) -> OSError:
    """Return the error for something at ``path`` that is no ordinary file."""
    return OSError(errno.EINVAL, "it is not an ordinary file", str(path))


def refuse_network_file_system(home: Path) -> None:
    """Raise ``HomeError`` when the home lies, or would lie, on a file system that other machines may share.

    Locks, sockets and the store belong to one kernel. Where the kernel publishes no mount table, nothing is refused.
    """
    try:
        table = _MOUNT_TABLE.read_bytes()
    except OSError:
        return
    kind = file_system_of(os.fsencode(home), table.split(b"\n"))
    if kind in NETWORK_FILE_SYSTEMS:
        raise HomeError(f"{home} lies on a network file system ({kind})", hint=_OTHER_HOME)


def file_system_of(path: bytes, mounts: Iterable[bytes]) -> str | None:
    """Return the type of the file system that holds ``path``, by the lines of a Linux ``mountinfo`` table.

    ``path`` is a real path and need not exist. Of several mounts on one point the last covers the others.
    """
    found: str | None = None
    longest = -1
    for line in mounts:
        before, separator, after = line.partition(b" - ")
        fields = before.split(b" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4]).rstrip(b"/")
        if len(point) >= longest and (path == point or path.startswith(point + b"/")):
            longest = len(point)
            found = after.split(b" ")[0].decode("ascii", "replace")
    return found


_WRITABLE_BY_OTHERS = 0o022
_MOUNT_TABLE = Path("/proc/self/mountinfo")
_OTHER_HOME = f"Choose another home with --home or {HOME_VARIABLE}."
_ALWAYS_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/usr", "/etc")
_SHORT_ROOT = "/tmp"  # not TMPDIR: it differs between the sessions of one user


def _state_directory() -> str:
    from platformdirs import user_state_path  # costs milliseconds, and a home that is named needs none of it

    try:
        directory = str(user_state_path("intercom"))
    except RuntimeError:  # of a user without a home directory
        directory = ""
    # Relative only by a variable, and the XDG specification says that such a value is to be ignored.
    return directory if os.path.isabs(directory) else "~/.local/state/intercom"


def _socket_limit() -> int:
    return SOCKET_PATH_BYTES_MACOS if sys.platform == "darwin" else SOCKET_PATH_BYTES


def _short_directory() -> Path:
    return Path(os.path.realpath(_SHORT_ROOT), f"intercom-{os.geteuid()}")


def _digest(home: Path) -> str:
    from hashlib import sha256  # only long homes pay for it

    return sha256(os.fsencode(home)).hexdigest()[:32]


def _unescape(field: bytes) -> bytes:
    """Undo the octal escapes of a mount table."""
    return re.sub(rb"\\([0-3][0-7]{2})", lambda escape: bytes([int(escape[1], 8)]), field)


def _missing(directory: Path) -> list[Path]:
    """Return the directory and its parents as far as they do not exist, the deepest first."""
    missing = []
    for candidate in (directory, *directory.parents):
        if os.path.lexists(candidate):
            break
        missing.append(candidate)
    return missing


def _refuse_shared_directory(home: Path) -> None:
    """Refuse directories that would be useless to everybody else once they are 0700."""
    users = os.path.expanduser("~")  # stays as it is for a user whom the system does not know
    for other in (*_ALWAYS_SHARED, *([users] if os.path.isabs(users) else [])):
        real = Path(os.path.realpath(other))
        if home == real or home in real.parents:
            raise HomeError(f"{home} is used by more than intercom", hint="Name a directory below it.")


def _refuse_foreign(directory: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise HomeError(f"{directory} is a symbolic link", hint=_OTHER_HOME)
    if not stat.S_ISDIR(status.st_mode):
        raise HomeError(f"{directory} exists and is not a directory", hint=_OTHER_HOME)
    if status.st_uid != os.geteuid():
        raise HomeError(
            f"{directory} belongs to user {status.st_uid}, not to user {os.geteuid()} who runs this",
            hint=f"Run this as user {status.st_uid}, or choose another home with --home or {HOME_VARIABLE}.",
        )
