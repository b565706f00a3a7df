"""Run the tests as a user who is not root, with nothing of root's in reach that a user would not have."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

USER = 65_534
"""Owns nothing."""


def main() -> int:
    """Become another user where this one is root, and run pytest with the arguments; return its status."""
    top = Path(__file__).resolve().parent.parent
    if os.geteuid() != 0:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
    home = Path(tempfile.mkdtemp(prefix="ic-user-"))
    os.chown(home, USER, USER)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "CI")}
        temporary = home / "tmp"
        temporary.mkdir()
        kept |= {"HOME": str(home), "TMPDIR": str(temporary), "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis")}
        try:
            os.chdir(top)
            os.execve(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]], kept)
        except OSError as error:
            print(f"this user may not use {error.filename or sys.executable} ({error.strerror})", file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    shutil.rmtree(home, ignore_errors=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
