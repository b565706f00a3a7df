"""Let the clients of Atomic and pi meet at the home: make their directory a link to it, and undo that.

Everything is examined first and becomes a list of steps; only then the steps are done, in order. So a dry run shows
what would happen, and what cannot be done changes nothing. Nothing is ever deleted that was not made here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from intercom.cli import hostconfig
from intercom.cli.foreign import Host, known_directories, runtime_directory
from intercom.client.control import Exchange
from intercom.errors import HomeError, IntercomError
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
    steps += _configure(paths, found or {})
    if is_there:
        return steps
    if not directory.parent.is_dir():
        steps.append(Step("make", directory.parent, None, lambda: os.makedirs(directory.parent, _PRIVATE)))
    if not os.path.lexists(directory):
        return [*steps, Step("link", directory, paths.home, lambda: _link(directory, paths.home, None))]
    backup, leaving = _free(directory.with_name(_BACKUP)), _Leaving(directory)
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
    if directory == paths.home:
        return _take_out(paths, settings, belongs_here=True)
    backup = directory.with_name(_BACKUP)
    has_backup = os.path.lexists(backup)
    steps = [Step("unlink", directory, None, directory.unlink)]
    if has_backup:
        steps.append(Step("put_back", backup, directory, lambda: backup.rename(directory)))
    if any(_leads_to(other, paths.home) for other in known_directories(environ) if other != directory):
        return steps  # the clients of another host still read the settings in the home
    if settings is not None and not (paths.home / hostconfig.KEPT).exists() and not backup.is_symlink():
        original = hostconfig.read(backup / hostconfig.NAME)
        restored = hostconfig.with_broker_of(settings, original)
        if restored != (original or {}):
            place = directory / hostconfig.NAME
            steps.append(Step("configure", place, None, lambda: _write_below(place, restored)))
    steps += _take_out(paths, settings, belongs_here=False)
    if not has_backup:
        steps.append(Step("tidy", directory.parent, None, lambda: _tidy(directory.parent)))
    return steps


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


def _configure(paths: Paths, found: dict[str, Any]) -> list[Step]:
    """Return what makes the settings in the home those found elsewhere and there, with our broker in them."""
    place, kept = paths.home / hostconfig.NAME, paths.home / hostconfig.KEPT
    present = hostconfig.read(place)
    command, arguments = hostconfig.our_command()
    wanted = {**found, **(present or {}), hostconfig.COMMAND: command, hostconfig.ARGUMENTS: arguments}
    if wanted == present:
        return []
    steps = []
    if present is not None and not hostconfig.is_ours(present) and not kept.exists():
        steps.append(Step("copy", place, kept, lambda: hostconfig.write(kept, present)))
    steps.append(Step("configure", place, None, lambda: hostconfig.write(place, wanted)))
    return steps


def _take_out(paths: Paths, settings: dict[str, Any] | None, *, belongs_here: bool) -> list[Step]:
    """Return what leaves the settings in the home as they would be without us.

    ``belongs_here`` tells whether the home is the directory of the host itself.
    """
    place, kept = paths.home / hostconfig.NAME, paths.home / hostconfig.KEPT
    if settings is None or not hostconfig.is_ours(settings):
        return []
    original = hostconfig.read(kept)
    restored = hostconfig.with_broker_of(settings, original)
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


def _write_below(place: Path, settings: dict[str, Any]) -> None:
    place.parent.mkdir(_PRIVATE, exist_ok=True)
    hostconfig.write(place, settings)


def _tidy(directory: Path) -> None:
    """Remove an agent directory and its parent if nothing is in them: this is how they were made."""
    with suppress(OSError):
        directory.rmdir()
        directory.parent.rmdir()


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
