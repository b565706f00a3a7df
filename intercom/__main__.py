"""Be the command: ``python -m intercom`` and the installed script both come in here.

An interrupt while modules are loaded cannot be handled like any other: what it interrupts may turn it into another
error. Until the command has begun its work an interrupt ends the process at once; nothing was done by then.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from intercom.loading import later, without

INTERRUPTED = 130
LASTING = {"serve", "mcp"}
"""Verbs whose processes go on."""
YOUNG_OBJECTS = 50_000
"""New objects after which a command looks for garbage in cycles: more than it makes, unless it stays."""


def run() -> NoReturn:
    """Run the command of this process and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    make_haste(sys.argv[1:])
    from intercom.cli.main import main

    _leave(main(sys.argv[1:], _interrupt_as_usual))


def make_haste(words: Sequence[str]) -> None:
    """Spare this process work at its start that it would not profit from; only for a process of our own.

    ``words`` are its command line.
    """
    gc.set_threshold(YOUNG_OBJECTS)
    if "_hashlib" not in sys.modules and not LASTING & set(words):
        # OpenSSL's digests; loading the library takes 2 ms and 4 MB, for the few short texts a command digests.
        sys.modules["_hashlib"] = None  # type: ignore[assignment]  # how the import system marks "not there"
    # msgspec prefers typing_extensions to what typing has itself since Python 3.11; loading it takes a seventh of a
    # command's time. The others take a tenth, and half a megabyte: what imports them uses them in rare cases, but for
    # the name of the system, and for texts of argparse that would be looked for in the user's language.
    with (
        without("typing_extensions"),
        later("platform", system=lambda: os.uname().sysname),
        later("gettext", gettext=str, ngettext=lambda one, many, count: one if count == 1 else many),
        later("textwrap"),
        later("ipaddress"),
    ):
        import argparse  # noqa: F401
        import pathlib  # noqa: F401
        import uuid  # noqa: F401

        import msgspec  # noqa: F401


def _leave(status: int) -> NoReturn:
    """End at once: taking the interpreter apart takes a tenth of a command's time, and nothing is waiting for it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            with suppress(OSError):  # its reader has gone
                stream.flush()
    os._exit(status)


def _end(_number: int, _frame: object) -> NoReturn:
    words = sys.argv[1:]
    if "--json" in words[: words.index("--") if "--" in words else len(words)]:
        os.write(1, b'{"ok":false,"code":"interrupted","reason":"Interrupted","retry":"never"}\n')
    os._exit(INTERRUPTED)


def _interrupt_as_usual() -> None:
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    run()
