"""Read and replace the files of hosts: whole or not at all, with their mode, and through symbolic links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from intercom.errors import ConfigError, HomeError
from intercom.limits import HOST_FILE_BYTES
from intercom.paths import PRIVATE_FILE, open_private_file, read_ordinary_file

KEPT = ".before-intercom"
"""What is added to the name of a file for the copy of what it was before."""
MADE = ".made-for-intercom"
"""Name of the empty file that marks a directory as made by an installation."""
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_PRIVATE_DIRECTORY = 0o700


def kept(path: Path) -> Path:
    """Return where the copy of a file lies."""
    return path.with_name(path.name + KEPT)


def mentions(path: Path, word: str) -> bool:
    """Tell whether a word stands in a file, whatever else that holds; raises ``HomeError`` when it cannot be read."""
    try:
        return word.encode() in read_ordinary_file(path)
    except PermissionError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}") from error
    except OSError:
        return False  # no file, or something that is none


def load(path: Path) -> str | None:
    """Return the text of a file, ``None`` when there is none; raises ``ConfigError`` or ``HomeError``."""
    try:
        content = read_ordinary_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        if path.is_dir():
            raise ConfigError(f"{path} is a directory; it was left as it is", hint="Move it away first.") from error
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > HOST_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {HOST_FILE_BYTES} bytes; it was left as it is")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8; it was left as it is", hint="Mend it first.") from None


def check_writable(path: Path) -> None:
    """Raise ``HomeError`` when a file says that nobody is to change it, or it could not be put in its directory."""
    real = Path(os.path.realpath(path))
    with suppress(FileNotFoundError, NotADirectoryError):
        # asked of the mode and not of the system, which lets root do everything
        if not os.stat(real).st_mode & _WRITABLE or not os.access(real, os.W_OK):
            raise HomeError(f"{path} is read-only; it was left as it is", hint=f"Run `chmod u+w {path}` first.")
    directory = next((above for above in real.parents if os.path.lexists(above)), Path("/"))
    if not directory.is_dir():
        raise HomeError(f"{directory} is not a directory; nothing was changed", hint="Move it away first.")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise HomeError(f"{directory} cannot be written by this process; nothing was changed")


def replace(path: Path, text: str) -> None:
    """Put a text in the place of a file; whoever reads it sees the old or the new one.

    Its mode stays, a new one has 0600. A symbolic link stays one: what it leads to is replaced.
    """
    real = Path(os.path.realpath(path))
    real.parent.mkdir(_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    mode = PRIVATE_FILE
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(real).st_mode)
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    descriptor = open_private_file(draft, os.O_WRONLY | os.O_TRUNC)
    try:
        data = text.encode()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        draft.unlink()
        raise
    finally:
        os.close(descriptor)
    os.replace(draft, real)


def check_free(path: Path) -> None:
    """Raise ``HomeError`` when the name for the copy of a file is taken: what has it is not ours."""
    if os.path.lexists(kept(path)):
        raise HomeError(
            f"{kept(path)} is there already, and the copy of {path} is to have that name; nothing was changed",
            hint="Give it another name, or remove it if it is not needed.",
        )


def keep(path: Path) -> None:
    """Keep a copy of a file beside it, byte for byte and with its mode; raises ``OSError`` when the name is taken."""
    import shutil

    content = read_ordinary_file(path)
    copy = kept(path)
    with open(open_private_file(copy, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
    shutil.copystat(path, copy)


def directory_of(path: Path) -> Path:
    """Return the directory a file is in; that of a symbolic link is where it leads to."""
    return Path(os.path.realpath(path)).parent


def missing(directory: Path) -> Path | None:
    """Return the uppermost directory that has to be made for one, ``None`` when that is there."""
    absent = [each for each in (directory, *directory.parents) if not os.path.lexists(each)]
    return absent[-1] if absent else None


def make_directory(directory: Path) -> None:
    """Make a directory with a mark by which it is known later that it was made here."""
    directory.mkdir(_PRIVATE_DIRECTORY, exist_ok=True)
    os.close(open_private_file(directory / MADE, os.O_WRONLY))


def made(directory: Path) -> Path | None:
    """Return the nearest directory, the given one or above it, that was made here with all that is in it."""
    return next((each for each in (directory, *directory.parents) if os.path.lexists(each / MADE)), None)


def remove(path: Path) -> None:
    """Remove a file; of a symbolic link what it leads to is removed."""
    Path(os.path.realpath(path)).unlink()


def tidy(directory: Path, below: Iterable[Path]) -> None:
    """Take the mark out of a directory that was made here.

    It is removed if it is empty then, and so are the directories ``below`` and those between.
    """
    (directory / MADE).unlink(missing_ok=True)
    for each in below:
        for above in (each, *each.parents):
            if above != directory and directory not in above.parents:
                break
            with suppress(OSError):  # something is in it, or it is gone
                above.rmdir()
