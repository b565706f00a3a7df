"""Let the clients of Atomic and pi meet at the home: make their directory a link to it, and undo that.

Everything is examined first and becomes a list of steps; only then the steps are done, in order. So a dry run shows
what would happen, and what cannot be done changes nothing. Nothing is ever deleted that was not made here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from intercom.cli import hostconfig
from intercom.cli.foreign import Host, known_directories, runtime_directory
from intercom.client.control import Exchange
from intercom.client.dialing import dial
from intercom.client.program import our_command
from intercom.errors import HomeError, IntercomError, NoBroker
from intercom.hosts import files
from intercom.limits import REQUEST_MS
from intercom.paths import Paths, prepare_home
from intercom.wire.frames import Shutdown, ShutdownAck

_BACKUP = "intercom.before-intercom"
_PRIVATE = 0o700


class Step(NamedTuple):
    """Hold one thing to do: its name, what it is done to, where that goes, and how it is done."""

    action: str
    path: Path
    to: Path | None
    do: Callable[[], object]


def install_steps(host: Host, paths: Paths, environ: Mapping[str, str]) -> list[Step]:
    """Return what makes the clients of a host meet at this home; nothing when they do already.

    Raises ``HomeError`` or ``ConfigError`` when that cannot be; nothing was changed then.
    """
    directory = runtime_directory(host, environ)
    _check(directory, paths)
    steps: list[Step] = []
    is_there = _leads_to(directory, paths.home)
    found = None if is_there else hostconfig.read(directory / hostconfig.NAME)
    if not paths.home.is_dir():
        steps.append(Step("make", paths.home, None, lambda: prepare_home(paths)))
    is_kept = not is_there and os.path.lexists(directory)
    backup = _free(directory.with_name(_BACKUP))
    # what an installation that was broken off has kept already is what has to come back
    name = backup.name if is_kept else _Record.read(paths).backups.get(str(directory))
    backups = {} if is_there else {str(directory): name}
    steps += _configure(paths, found or {}, backups)
    if is_there:
        return steps
    missing = files.missing(directory.parent)
    if missing is not None:
        steps.append(Step("make", directory.parent, None, lambda: _make(missing, directory.parent)))
    if not is_kept:
        return [*steps, Step("link", directory, paths.home, lambda: _link(directory, paths.home, None))]
    leaving = _Leaving(directory)
    steps.append(Step("keep", directory, backup, lambda: leaving.while_reached(lambda: directory.rename(backup))))
    steps.append(Step("link", directory, paths.home, lambda: _link(directory, paths.home, backup)))
    if leaving.is_answered():
        steps.append(Step("stop", directory / "broker.sock", None, leaving.ask))
    return steps


def uninstall_steps(host: Host, paths: Paths, environ: Mapping[str, str]) -> list[Step]:
    """Return what undoes ``install_steps``; nothing when nothing is installed.

    Raises ``ConfigError`` or ``HomeError``.
    """
    directory = runtime_directory(host, environ)
    try:
        os.stat(directory)
    except PermissionError as error:
        raise HomeError(f"{directory} cannot be looked at: {error.strerror}") from error
    except OSError:
        pass  # whether it is there is asked below
    if not _leads_to(directory, paths.home):
        return []
    settings = hostconfig.read(paths.home / hostconfig.NAME)
    record = _Record.read(paths)
    if directory == paths.home:
        return [*_take_out(paths, settings, record, belongs_here=True), *_forget(paths, record)]
    backup = _backup_of(directory, record)
    steps = [Step("unlink", directory, None, directory.unlink)]
    if backup is not None:
        steps.append(Step("put_back", backup, directory, partial(_put_back, backup, directory)))
    others = {*known_directories(environ), *map(Path, record.backups)} - {directory}
    if any(_leads_to(other, paths.home) for other in others):
        # the clients of another host still read the settings in the home
        return steps + _write_record(paths, record, record.without(directory)) + _tidy(directory)
    if settings is not None and not (paths.home / hostconfig.KEPT).exists():
        steps += _carry_over(directory, backup, settings, record.written)
    steps += [*_take_out(paths, settings, record, belongs_here=False), *_forget(paths, record)]
    return steps + _tidy(directory)


def is_linked(host: Host, paths: Paths, environ: Mapping[str, str]) -> bool:
    """Tell whether the clients of a host meet at this home."""
    return _leads_to(runtime_directory(host, environ), paths.home)


def _check(directory: Path, paths: Paths) -> None:
    if paths.socket_is_elsewhere:
        raise HomeError(
            f"the socket of {paths.home} lies elsewhere, because its path is too long, and would not be found",
            hint="Choose a home with a shorter path.",
        )
    if directory in paths.home.parents and not _leads_to(directory, paths.home):
        raise HomeError(f"{paths.home} lies in {directory}, which would become a link", hint="Choose another home.")
    if os.path.lexists(directory) and not directory.is_dir() and not directory.is_symlink():
        raise HomeError(f"{directory} exists and is not a directory; it was left as it is")


class _Record(NamedTuple):
    """Hold what ``install`` found and wrote, as it is kept in the home."""

    backups: dict[str, str | None]
    """By directory: the name under which it is kept, ``None`` when nothing was there."""
    written: dict[str, Any] | None
    """The settings in the home as they were written, ``None`` when that is not known."""

    @classmethod
    def read(cls, paths: Paths) -> _Record:
        """Return the record in a home; raises as ``hostconfig.read`` does."""
        found = hostconfig.read(paths.home / hostconfig.RECORD) or {}
        backups, written = found.get("backups"), found.get("written")
        return cls(backups if isinstance(backups, dict) else {}, written if isinstance(written, dict) else None)

    def without(self, directory: Path) -> _Record:
        """Return the record of the other directories."""
        return self._replace(backups={key: name for key, name in self.backups.items() if key != str(directory)})


def _write_record(paths: Paths, present: _Record, wanted: _Record) -> list[Step]:
    if wanted == present:
        return []
    place = paths.home / hostconfig.RECORD
    return [Step("record", place, None, lambda: hostconfig.write(place, wanted._asdict()))]


def _forget(paths: Paths, record: _Record) -> list[Step]:
    place = paths.home / hostconfig.RECORD
    return [] if record == _Record({}, None) else [Step("remove", place, None, place.unlink)]


def _backup_of(directory: Path, record: _Record) -> Path | None:
    """Return what was kept of a directory; where nothing is recorded it is what has the usual name."""
    name = record.backups.get(str(directory), _BACKUP)
    return directory.with_name(name) if name is not None and os.path.lexists(directory.with_name(name)) else None


def _configure(paths: Paths, found: dict[str, Any], backups: dict[str, str | None]) -> list[Step]:
    """Return what makes the settings in the home those found elsewhere and there, with our broker in them.

    ``backups`` is recorded before, together with the settings.
    """
    place, kept = paths.home / hostconfig.NAME, paths.home / hostconfig.KEPT
    present, record = hostconfig.read(place), _Record.read(paths)
    command, arguments = our_command("serve")
    ours = {hostconfig.COMMAND: command, hostconfig.ARGUMENTS: arguments}
    wanted, written = {**found, **(present or {}), **ours}, record.written
    if not hostconfig.is_ours(present):
        written = wanted
    elif written is not None:
        # what was changed since the first host was installed still differs from this when the second one comes
        written = {**found, **written, **ours}
    steps = _write_record(paths, record, _Record({**record.backups, **backups}, written))
    if wanted == present:
        return steps
    if present is not None and not hostconfig.is_ours(present) and not kept.exists():
        steps.append(Step("copy", place, kept, lambda: hostconfig.copy(place, kept)))
    steps.append(Step("configure", place, None, lambda: hostconfig.write(place, wanted)))
    return steps


def _carry_over(
    directory: Path, backup: Path | None, settings: dict[str, Any], written: dict[str, Any] | None
) -> list[Step]:
    """Return what gives a directory the settings that were changed in the home; its own file stays without any."""
    if backup is not None and backup.is_symlink():
        return []
    if written is not None and not hostconfig.differs(settings, written):
        return []
    original = None if backup is None else hostconfig.read(backup / hostconfig.NAME)
    restored = hostconfig.with_changes(original, written, settings)
    if restored == (original or {}):
        return []
    place = directory / hostconfig.NAME
    return [Step("configure", place, None, lambda: _write_below(place, restored))]


def _take_out(paths: Paths, settings: dict[str, Any] | None, record: _Record, *, belongs_here: bool) -> list[Step]:
    """Return what leaves the settings in the home as they would be without us.

    ``belongs_here`` tells whether the home is the directory of the host itself.
    """
    place, kept = paths.home / hostconfig.NAME, paths.home / hostconfig.KEPT
    if settings is None or not hostconfig.is_ours(settings):
        return []
    original = hostconfig.read(kept)
    restored = hostconfig.with_changes(original, record.written, settings)
    if original is not None and restored == original:
        return [Step("put_back", kept, place, lambda: os.replace(kept, place))]
    if original is not None:
        return [
            Step("configure", place, None, lambda: hostconfig.write(place, restored)),
            Step("remove", kept, None, kept.unlink),
        ]
    if belongs_here and restored:
        return [Step("configure", place, None, lambda: hostconfig.write(place, restored))]
    return [Step("remove", place, None, place.unlink)]


def _leads_to(directory: Path, home: Path) -> bool:
    return os.path.lexists(directory) and os.path.realpath(directory) == str(home)


def _free(path: Path) -> Path:
    number = 1
    candidate = path
    while os.path.lexists(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}.{number}")
    return candidate


def _link(directory: Path, home: Path, backup: Path | None) -> None:
    try:
        directory.symlink_to(home, target_is_directory=True)
    except OSError:
        if backup is not None and not os.path.lexists(directory):
            backup.rename(directory)
        raise


def _put_back(backup: Path, directory: Path) -> None:
    """Give a directory its name back, without the socket and the process id of a broker that has left."""
    backup.rename(directory)
    paths = Paths(directory)
    if directory.is_symlink() or paths.socket_is_elsewhere:
        return
    try:
        dial(paths).close()
    except NoBroker:
        for stale in (paths.socket, paths.pid):
            with suppress(OSError):
                stale.unlink()
    except IntercomError:
        return  # somebody may still serve there


def _write_below(place: Path, settings: dict[str, Any]) -> None:
    place.parent.mkdir(_PRIVATE, exist_ok=True)
    hostconfig.write(place, settings)


def _make(uppermost: Path, directory: Path) -> None:
    files.make_directory(uppermost)
    directory.mkdir(_PRIVATE, parents=True, exist_ok=True)


def _tidy(directory: Path) -> list[Step]:
    """Return what removes the agent directory and its parent where they were made and nothing is in them."""
    made = files.made(directory.parent)
    return [] if made is None else [Step("tidy", made, None, lambda: files.tidy(made, [directory.parent]))]


class _Leaving:
    """Ask the broker of a directory to leave once its clients are sure to find another one there.

    It is reached before the directory gets another name and asked afterwards: its clients come back at once.
    """

    def __init__(self, directory: Path) -> None:
        self._paths = Paths(directory)
        self._exchange: Exchange | None = None

    def is_answered(self) -> bool:
        """Tell whether somebody listens there."""
        try:
            Exchange(self._paths, REQUEST_MS / 1000).__exit__()
        except IntercomError:
            return False
        return True

    def while_reached(self, do: Callable[[], object]) -> None:
        """Connect, then do something; a broker that has left meanwhile is no error."""
        with suppress(IntercomError):
            self._exchange = Exchange(self._paths, REQUEST_MS / 1000)
        do()

    def ask(self) -> None:
        """Ask it to leave; one that is too old to know how goes when its sessions have gone."""
        if self._exchange is None:
            return
        with suppress(IntercomError), self._exchange as exchange:
            exchange.ask(Shutdown, ShutdownAck)
            exchange.wait_for_end()
