"""Be the command: ``python -m intercom`` and the installed script both come in here.

An interrupt while modules are loaded cannot be handled like any other: what it interrupts may turn it into another
error. Until the command has begun its work an interrupt ends the process at once; nothing was done by then.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command of this process and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from intercom.cli.main import main

    sys.exit(main(sys.argv[1:], _interrupt_as_usual))


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
