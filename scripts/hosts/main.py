"""Check with real agent hosts that what `intercom install` enters works, and that uninstalling leaves no trace.

Every host gets a throw-away home with settings as a person may have them, and all meet at one broker. Nothing of this
user is read or changed. Where npm or the host lab is missing, one line says so and the check ends with 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from intercom.client import control
from intercom.errors import IntercomError
from intercom.paths import Paths
from scripts.hosts import trials
from scripts.hosts.lab import VARIABLE, Lab, NoLab, folder_of
from scripts.hosts.timing import measure
from scripts.hosts.trials import SETTINGS, WAITING, Failed, Place


class Report:
    """Print a line for each trial, and remember whether one failed."""

    def __init__(self) -> None:
        self.failed = False

    def trial(self, who: str, name: str, run: Callable[[], str]) -> None:
        """Run a trial and say how it ended."""
        try:
            outcome = f"ok    {run()}"
        except (Failed, IntercomError, OSError, subprocess.SubprocessError) as error:
            self.failed = True
            outcome = f"FAIL  {type(error).__name__}: {error}"
        self.line(who, name, outcome)

    def line(self, who: str, name: str, outcome: str) -> None:
        """Print a line."""
        print(f"{who:<20} {name:<10} {outcome}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run all trials with the hosts that were named; return 1 when one failed."""
    options = _parser().parse_args(arguments)
    if options.time_hooks:
        with tempfile.TemporaryDirectory(prefix="ich-") as folder:
            for line in measure(Path(folder).resolve()):
                print(line, flush=True)
        return 0
    try:
        lab = Lab(folder_of(options.lab), Path(options.installed).resolve())
    except NoLab as error:
        print(f"skipped: {error}")
        return 0
    report = Report()
    with tempfile.TemporaryDirectory(prefix="ich-", ignore_cleanup_errors=True) as folder:
        top = Path(folder).resolve()
        places = []
        for host in options.hosts or lab.names:
            version = lab.install(host)
            report.line(host, "version", version)
            places.append(Place(lab, top, host))
        try:
            _try_all(report, places)
        finally:
            with suppress(IntercomError):
                control.shutdown(Paths(top / "ic"))
    return 1 if report.failed else 0


def _try_all(report: Report, places: list[Place]) -> None:
    before = {place.host: _prepared(place) for place in places}
    for place in places:
        report.trial(place.host, "install", partial(_installed, place))
        report.trial(place.host, "start", partial(trials.start, place))
        report.trial(place.host, "busy", partial(trials.busy, place))
        if place.host in WAITING:
            report.trial(place.host, "idle", partial(trials.idle, place))
        else:
            report.line(place.host, "idle", "-     the host has no way to be woken")
        if place.host == "claude":
            report.trial(place.host, "rewake", partial(trials.rewake, place))
        if place.host in trials.SUBAGENTS:
            report.trial(place.host, "subagent", partial(trials.subagent, place))
        else:
            report.line(place.host, "subagent", "-     the host names no subagent to anybody; they share its session")
    for place, other in zip(places, [*places[1:], *places[:1]], strict=True):
        if place is not other:
            report.trial(f"{place.host}, {other.host}", "ask", partial(trials.each_other, place, other))
    for place in places:
        report.trial(place.host, "uninstall", partial(_undone, place, before[place.host]))


def _prepared(place: Place) -> dict[Path, bytes]:
    """Give the host settings of a person and those of the lab, and return what is there before the installation."""
    name, text = SETTINGS[place.host]
    file = place.home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    with place.run([]):
        pass  # it writes what the lab needs
    return _files(place)


def _installed(place: Place) -> str:
    steps = place.install()["steps"]
    return ", ".join(f"{step['action']} {Path(step['path']).relative_to(place.home)}" for step in steps)


def _undone(place: Place, before: dict[Path, bytes]) -> str:
    steps = place.intercom("uninstall", place.host, "--home", str(place.broker))["steps"]
    touched = {Path(step["path"]) for step in steps}
    after = _files(place)
    same = [path for path in touched if before.get(path) == after.get(path)]
    for path in touched - set(same):
        if not _is_only_longer(before.get(path, b""), after.get(path, b"")):
            raise Failed(f"{path} was {before.get(path)!r} and is {after.get(path)!r}")
    left = [path for path in after if path not in before and "intercom" in path.name]
    if left:
        raise Failed(f"left behind: {', '.join(map(str, left))}")
    others = f", {len(touched) - len(same)} but for what the host wrote itself" if len(same) < len(touched) else ""
    return f"{len(same)} files as they were{others}"


def _is_only_longer(before: bytes, after: bytes) -> bool:
    """Tell whether every line of a file is still there in its order, but for those the lab writes, and none of ours."""
    lines = iter(line for line in after.splitlines() if not line.endswith(b"# hostlab"))
    wanted = [line for line in before.splitlines() if not line.endswith(b"# hostlab")]
    return b"intercom" not in after.replace(b"/ich-", b"") and all(line in lines for line in wanted)


def _files(place: Place) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.home.rglob("*") if path.is_file() and not path.is_symlink()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hosts-check", description=__doc__)
    parser.add_argument("hosts", nargs="*", help="which hosts (default: all that the lab knows)")
    parser.add_argument("--lab", metavar="DIR", help=f"the host lab (or {VARIABLE})")
    parser.add_argument("--time-hooks", action="store_true", help="only measure what a hook costs; needs no lab")
    parser.add_argument(
        "--installed",
        metavar="DIR",
        default=os.environ.get("HOSTLAB_HOSTS", os.path.join(tempfile.gettempdir(), "hosts")),
        help="where the hosts are installed, or will be (or HOSTLAB_HOSTS)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
