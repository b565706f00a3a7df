"""Remember which groups an identity joined, for the commands that come after this one.

One small file an identity, under ``identities/groups`` in the home, readable by the user alone. The first of the groups
is the home group. What is in no file is in ``default`` only.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intercom.client.profile import DEFAULT_GROUP
from intercom.client.who import Identity
from intercom.errors import AccessDenied, HomeError, IntercomError
from intercom.limits import REMEMBERED_IDENTITIES
from intercom.paths import Paths, make_private_directory, open_private_file, prepare_home, read_ordinary_file


def remembered(paths: Paths, identity: Identity) -> tuple[str, ...]:
    """Return the groups this identity joined; none when it joined no other than ``default``.

    Raises ``AccessDenied`` or ``HomeError`` when that cannot be read: acting in the wrong groups would be worse.
    """
    place = paths.groups
    if identity.key is None or not os.path.isdir(place):
        return ()
    file = _file(place, identity.key)
    try:
        content = read_ordinary_file(file)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise _refused(error, file) from error
    try:
        groups = json.loads(content)["groups"]
    except (ValueError, KeyError, TypeError, RecursionError):
        groups = None
    if not (isinstance(groups, list) and groups and all(isinstance(group, str) for group in groups)):
        raise HomeError(f"{file} does not hold a list of groups", hint=f"Delete it and join again: `rm {file}`.")
    return tuple(groups)


def change(paths: Paths, identity: Identity, what: Callable[[tuple[str, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Replace the groups of an identity by what ``what`` makes of them, and return them.

    ``what`` gets at least one group and returns at least one. Raises ``AccessDenied`` or ``HomeError``.
    """
    assert identity.key is not None, "nothing is remembered of a guest"
    place = paths.groups
    prepare_home(paths)
    make_private_directory(paths.identities)
    make_private_directory(place)
    file = _file(place, identity.key)
    try:
        with _alone(place):
            groups = what(remembered(paths, identity) or (DEFAULT_GROUP,))
            if groups == (DEFAULT_GROUP,):
                with suppress(FileNotFoundError):
                    file.unlink()
            else:
                _write(file, json.dumps({"identity": identity.about, "groups": groups}).encode())
                _forget_the_oldest(place)
    except OSError as error:
        raise _refused(error, file) from error
    return groups


def _file(place: Path, key: str) -> Path:
    from hashlib import sha256  # only identities of a home in which somebody joined a group pay for it

    return place / f"{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


def _refused(error: OSError, path: Path) -> IntercomError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"This process may not use {path} ({error.strerror})")
    return HomeError(f"{path} cannot be used: {error.strerror or error}")


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other commands from changing memberships meanwhile."""
    import fcntl

    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".new")
    descriptor = open_private_file(draft, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.replace(file)


def _forget_the_oldest(place: Path) -> None:
    """Keep the number of files bounded: terminals and agent sessions come and never come back."""
    files = sorted(place.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(0, len(files) - REMEMBERED_IDENTITIES)]:
        file.unlink()
