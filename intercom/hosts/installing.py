"""Enter what belongs to a host into its files, and take it out again.

Everything is examined first and becomes a list of steps; only then the steps are done, in order. So a dry run shows
what would happen, and what cannot be done changes nothing. A file that was there is kept beside itself; when nobody has
changed it since, undoing puts the copy back, else only what is ours is taken out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from intercom.errors import ConfigError, IntercomError
from intercom.hosts import files
from intercom.hosts.facts import Facts, Wish
from intercom.hosts.jsonedit import Taken
from intercom.hosts.jsontext import Malformed
from intercom.hosts.parts import OwnFile, Part

Result = TypeVar("Result")
Installed: TypeAlias = Literal["yes", "partly", "no"]


class Step(NamedTuple):
    """Hold one thing to do: its name, what it is done to, where that goes, and how it is done."""

    action: str
    path: Path
    to: Path | None
    do: Callable[[], object]
    change: str = ""
    """What becomes different in a file of the person, as a unified diff."""


class Standing(NamedTuple):
    """Say how a host stands: whether it is found here, and whether what is ours is in its files."""

    found: bool
    installed: Installed
    places: tuple[Path, ...]
    trouble: str = ""
    """Why it cannot be told."""


def install_steps(facts: Facts, wish: Wish) -> list[Step]:
    """Return what enters everything; nothing when it is there already.

    Raises ``ConfigError`` or ``HomeError`` naming the file when that cannot be; nothing was changed then.
    """
    steps: list[Step] = []
    made: set[Path] = set()
    for part in facts.parts(wish):
        text = files.load(part.path)
        wanted = _told(part, part.put, text)
        if wanted == text:
            continue
        files.check_writable(part.path)
        missing = files.missing(files.directory_of(part.path))
        if missing is not None and missing not in made:
            made.add(missing)
            steps.append(Step("make", missing, None, partial(files.make_directory, missing)))
        is_new = not isinstance(part, OwnFile) and part.state(text) is False
        if is_new:  # else the copy of what it was before is ours
            files.check_free(part.path)
        is_kept = is_new and text is not None
        if is_kept:
            steps.append(Step("copy", part.path, files.kept(part.path), partial(files.keep, part.path)))
        action = "write" if text is None or isinstance(part, OwnFile) else "edit"
        do = partial(_write, part.path, wanted, is_kept)
        steps.append(Step(action, part.path, None, do, _diff(part.path, text or "", wanted)))
    return steps


def uninstall_steps(facts: Facts, wish: Wish) -> list[Step]:
    """Return what takes everything out again, however much of it was wished; nothing when nothing is there.

    A file in which nothing of ours can stand is not looked at further, however broken it is. Raises as
    ``install_steps`` does.
    """
    steps: list[Step] = []
    made: dict[Path, list[Path]] = {}
    for path, parts in _by_file(facts, wish).items():
        directory = files.directory_of(path)
        if (uppermost := files.made(directory)) is not None:
            made.setdefault(uppermost, []).append(directory)
        if not files.mentions(path, parts[0].trace):
            continue
        text = files.load(path)
        if text is None or not any(_told(part, part.state, text) is not False for part in parts):
            continue
        kept = files.kept(path)
        is_own = isinstance(parts[0], OwnFile)
        before = None if is_own else files.load(kept)
        if before is not None and any(_told(part, part.put, before) == text for part in parts):
            wanted = before
        else:
            wanted = _told(parts[0], parts[0].take_out, text, before)
        if wanted != text:
            files.check_writable(path)
            if before is None and parts[0].is_empty(wanted):
                steps.append(Step("remove", path, None, partial(files.remove, path)))
            else:
                steps.append(Step("edit", path, None, partial(_write, path, wanted), _diff(path, text, wanted)))
        if before is not None:
            steps.append(Step("remove", kept, None, kept.unlink))
    deepest_first = sorted(made, key=lambda each: -len(each.parts))
    return steps + [Step("tidy", each, None, partial(files.tidy, each, made[each])) for each in deepest_first]


def standing(facts: Facts, wish: Wish) -> Standing:
    """Say how a host stands; nothing is changed.

    What cannot be read is told as trouble; whether something of ours is in it counts as not known, unless no trace is.
    """
    path = wish.environ.get("PATH")
    is_found = facts.directory(wish).is_dir() or (
        facts.program is not None and shutil.which(facts.program, path=path) is not None
    )
    states: set[bool | None] = set()
    places = []
    trouble = ""
    for place, parts in _by_file(facts, wish).items():
        is_always = len(parts) > 1  # what is there only if it was wished tells nothing by its absence
        try:
            text = files.load(place)
            found = {_told(part, part.state, text) for part in parts}
        except IntercomError as error:
            trouble = trouble or error.reason
            found = {None if _may_hold(place, parts[0]) else False}
        state = True if True in found else None if None in found else False
        if state is not False:
            places.append(place)
        if is_always:
            states.add(state)
    installed: Installed = "yes" if states == {True} else "no" if states == {False} else "partly"
    return Standing(is_found, installed, tuple(places), trouble)


def _by_file(facts: Facts, wish: Wish) -> dict[Path, list[Part]]:
    """Return for each file what may have been entered there, what is always entered and more as it may be wished."""
    found: dict[Path, list[Part]] = {}
    for approve in (True, False):
        for part in facts.parts(wish._replace(approve=approve)):
            found.setdefault(part.path, []).append(part)
    return found


def _may_hold(path: Path, part: Part) -> bool:
    try:
        return files.mentions(path, part.trace)
    except IntercomError:
        return True


def _told(part: Part, edit: Callable[..., Result], *texts: str | None) -> Result:
    """Return what an edit makes of texts; what a file does not allow is told with its name."""
    try:
        return edit(*texts)
    except Malformed as error:
        raise ConfigError(f"{part.path} was left as it is: {error}", hint="Mend it first.") from None
    except Taken as error:
        raise ConfigError(
            f"{part.path} was left as it is: {error}", hint="Rename it or move it away if it is not needed."
        ) from None


def _write(path: Path, text: str, is_kept: bool = False) -> None:
    """Put a text in the place of a file; when that cannot be, the copy that was just made goes."""
    try:
        files.replace(path, text)
    except BaseException:
        if is_kept:
            files.kept(path).unlink()
        raise


def _diff(path: Path, text: str, wanted: str) -> str:
    lines = unified_diff(text.splitlines(), wanted.splitlines(), str(path), str(path), lineterm="", n=1)
    return "\n".join(lines)
