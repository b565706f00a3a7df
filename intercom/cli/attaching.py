"""Read the files that go with a message."""

from __future__ import annotations

import errno
import os
import select
import stat
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, clean
from intercom.errors import AccessDenied, IntercomError, TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES, READ_BYTES

if TYPE_CHECKING:
    from intercom.wire.frames import Attachment


def add_attach(parser: Parser) -> None:
    """Add ``--attach``."""
    parser.add_argument(
        "--attach",
        dest="files",
        metavar="FILE",
        action="append",
        help="send this text file, or what a pipe such as <(COMMAND) brings, along; repeat it for several, "
        f"{ATTACHMENTS_BYTES // 1_048_576} MiB with the text",
    )


def attachments_of(arguments: Namespace) -> list[Attachment]:
    """Return the files named by ``--attach``, each under the last part of its path.

    A pipe is read to its end, however long its writers take. Raises ``UsageError`` for what is no file or no text,
    ``AccessDenied``, and ``TooLarge`` before more is read than a message can hold.
    """
    if not arguments.files:
        return []
    from intercom.wire.frames import Attachment

    left = ATTACHMENTS_BYTES
    carried = []
    for given in arguments.files:
        text = text_of_file(given, left)
        left -= len(text.encode())
        carried.append(Attachment("file", clean(Path(given).name or given), text))
    return carried


def text_of_file(given: str, most: int) -> str:
    """Return the text in a file or a pipe of at most ``most`` bytes; raises as ``attachments_of`` does."""
    try:
        return _content(given, most).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(
            f"{clean(given)} is not text in UTF-8", hint="Send its path instead, or a text made of it."
        ) from None


def _content(given: str, left: int) -> bytes:
    try:
        descriptor = os.open(given, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(kind):
                raise UsageError(f"{clean(given)} is a directory", hint="Attach the files in it one by one.")
            if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
                raise UsageError(f"{clean(given)} is neither a file nor a pipe", hint="Attach a file with its content.")
            return b"".join(_parts(descriptor, left))
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise _refused(given, error) from error


def _parts(descriptor: int, left: int) -> Iterator[bytes]:
    """Yield what a file holds or the writers of a pipe write, at most ``left`` bytes; a pipe is waited for."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        poll.poll()  # of a pipe that nobody has opened yet, a read would see the end
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        left -= len(data)
        if left < 0:
            raise TooLarge(f"the attached files have more than {ATTACHMENTS_BYTES} bytes; nothing was sent")
        yield data


def _refused(given: str, error: OSError | ValueError) -> IntercomError:
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"{clean(given)} cannot be read: {error.strerror}", hint="Attach a file you may read.")
    why = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"{clean(given)} cannot be attached: {why}")
