"""Start a broker process that belongs to nobody: own session, no descriptors of ours, no zombie, safe directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from intercom.errors import HomeError, StartFailed
from intercom.limits import DISCONNECT_MS, DISK_FULL_BYTES, LOG_TAIL_BYTES, LOG_TAIL_LINES
from intercom.paths import Paths, open_private_file, read_ordinary_file

PACKAGE_ROOT = Path(__file__).resolve().parent.parent.parent
"""The directory from which ``intercom`` is imported."""


class Starting:
    """Hold a broker that was started and whose answer is awaited; ``let_go`` must be called."""

    def __init__(self, paths: Paths, environ: Mapping[str, str]) -> None:
        """Start the broker of a home.

        Its error output goes to ``broker.log``, which is emptied. Raises ``HomeError`` when that cannot be written
        and ``StartFailed`` when no process can be started.
        """
        self._paths = paths
        if not sys.executable:
            raise StartFailed("No broker can be started: it is not known which Python this is")
        try:
            log = open_private_file(paths.stderr_log, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
        except OSError as error:
            raise HomeError(f"{paths.stderr_log} cannot be written: {error.strerror}") from error
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("detach.py")), *command(paths)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=environment(environ),
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(f"No broker can be started: {error.strerror or error}") from error
        finally:
            os.close(log)

    def ended(self) -> int | None:
        """Return the exit status of the broker, or ``None`` while it lives."""
        return self._process.poll()

    def failure(self, status: int) -> StartFailed:
        """Return the error for a broker that ended with ``status``, quoting what it said last."""
        said = tail(self._paths.stderr_log)
        reason = f"The broker that was started ended with status {status} before it answered"
        if said:
            return StartFailed(f"{reason}; it said:\n{said}")
        if _is_full(self._paths.home):
            return StartFailed(
                f"{reason}; the disk of {self._paths.home} is full", hint="Make room on it, or choose another home."
            )
        return StartFailed(f"{reason}, without a word")

    def let_go(self) -> None:
        """Wait for the broker no longer; it goes on if it lives."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(DISCONNECT_MS / 1000)
        except subprocess.TimeoutExpired:
            # Only the helper between us and the broker: a stopped machine may keep it from seeing the closed pipe.
            process.kill()
            process.wait()


def command(paths: Paths) -> list[str]:
    """Return the command line of a broker for this home; ``-P`` keeps the working directory off the import path."""
    return [sys.executable, "-P", "-m", "intercom", "serve", "--home", str(paths.home)]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a broker: ours, with this package importable from any directory.

    Relative entries of ``PYTHONPATH`` are made absolute, because the broker works elsewhere. An interpreter that was
    told to ignore its environment starts one without the variables it ignored.
    """
    result = dict(environ)
    if sys.flags.ignore_environment:
        result = {name: value for name, value in result.items() if not name.startswith("PYTHON")}
    entries = [os.path.abspath(entry) for entry in result.get("PYTHONPATH", "").split(os.pathsep) if entry]
    root = str(PACKAGE_ROOT)
    if root not in entries and not _is_found_anyway(root):
        entries.insert(0, root)
    if entries:
        result["PYTHONPATH"] = os.pathsep.join(entries)
    return result


def tail(log: Path) -> str:
    """Return the last lines of a file, at most ``LOG_TAIL_BYTES``; empty when there are none."""
    try:
        text = read_ordinary_file(log)[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-LOG_TAIL_LINES:])


def _is_full(home: Path) -> bool:
    """Tell whether this user can put nothing more on the disk of the home: what ends a broker there ends mute."""
    try:
        disk = os.statvfs(home)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < DISK_FULL_BYTES or (disk.f_files > 0 and disk.f_favail == 0)


def _is_found_anyway(root: str) -> bool:
    """Tell whether every interpreter of this installation looks there; put first it would hide standard modules."""
    from sysconfig import get_paths

    places = get_paths()
    return root in {os.path.realpath(places[place]) for place in ("purelib", "platlib")}
