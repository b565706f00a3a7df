"""Run a command whose standard output is a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.raw import PATIENCE_S


def shown(command: Sequence[str], *, columns: int, cwd: Path, env: Mapping[str, str]) -> list[str]:
    """Return the lines a person sees who runs a command in a terminal of that width, without colours."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=cwd, env=env)
        os.close(theirs)
        written = b""
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # Linux reports the end of a terminal like this
                break
            if not data:
                break
            written += data
        assert process.wait(PATIENCE_S) == 0, written
    finally:
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r\n", "\n").splitlines()
