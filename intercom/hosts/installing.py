"""Enter what belongs to a host into its files, and take it out again.

Everything is examined first and becomes a list of steps; only then the steps are done, in order. So a dry run shows
what would happen, and what cannot be done changes nothing. A file that was there is kept beside itself; when nobody has
changed it since, undoing puts the copy back, else only what is ours is taken out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from difflib import unified_diff
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
    for part in facts.parts(wish):
        text = files.load(part.path)
        wanted = _told(part, part.put, text)
        if wanted == text:
            continue
        files.check_writable(part.path)
        if text is not None and not isinstance(part, OwnFile):
            if part.state(text) is False:  # else what it was before is kept already, or it was not there
                steps.append(Step("copy", part.path, files.kept(part.path), _keeping(part.path)))
            steps.append(Step("edit", part.path, None, _writing(part.path, wanted), _diff(part.path, text, wanted)))
        else:
            steps.append(Step("write", part.path, None, _writing(part.path, wanted)))
    return steps


def uninstall_steps(facts: Facts, wish: Wish) -> list[Step]:
    """Return what takes everything out again, however much of it was wished; nothing when nothing is there.

    Raises as ``install_steps`` does.
    """
    steps: list[Step] = []
    for path, parts in _by_file(facts, wish).items():
        text = files.load(path)
        if text is None:
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
                steps.append(Step("remove", path, None, _removing(path, wish.user)))
            else:
                steps.append(Step("edit", path, None, _writing(path, wanted), _diff(path, text, wanted)))
        if before is not None:
            steps.append(Step("remove", kept, None, kept.unlink))
    return steps


def standing(facts: Facts, wish: Wish) -> Standing:
    """Say how a host stands; nothing is changed."""
    path = wish.environ.get("PATH")
    is_found = facts.directory(wish).is_dir() or (
        facts.program is not None and shutil.which(facts.program, path=path) is not None
    )
    states: set[bool | None] = set()
    places = []
    for place, parts in _by_file(facts, wish).items():
        try:
            text = files.load(place)
            found = {_told(part, part.state, text) for part in parts}
        except IntercomError as error:
            return Standing(is_found, "no", (place,), error.reason)
        state = True if True in found else None if None in found else False
        if state is not False:
            places.append(place)
        if len(parts) > 1:  # what is there only if it was wished tells nothing by its absence
            states.add(state)
    installed: Installed = "yes" if states == {True} else "no" if states == {False} else "partly"
    return Standing(is_found, installed, tuple(places))


def _by_file(facts: Facts, wish: Wish) -> dict[Path, list[Part]]:
    """Return for each file what may have been entered there, what is always entered and more as it may be wished."""
    found: dict[Path, list[Part]] = {}
    for approve in (True, False):
        for part in facts.parts(wish._replace(approve=approve)):
            found.setdefault(part.path, []).append(part)
    return found


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


def _keeping(path: Path) -> Callable[[], None]:
    return lambda: files.keep(path)


def _writing(path: Path, text: str) -> Callable[[], None]:
    return lambda: files.replace(path, text)


def _removing(path: Path, top: Path) -> Callable[[], None]:
    return lambda: files.remove(path, top)


def _diff(path: Path, text: str, wanted: str) -> str:
    lines = unified_diff(text.splitlines(), wanted.splitlines(), str(path), str(path), lineterm="", n=1)
    return "\n".join(lines)
