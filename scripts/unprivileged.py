"""Run the tests as a user who is not root, with nothing of root's in reach that a user would not have.

The checkout stays root's. What git asks of the owner of one, and what tools keep beside the tests, is in the home of
that user, which is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.pythons import PATIENCE_S, candidates, newest

TOP = Path(__file__).resolve().parent.parent
PLACE = TOP / ".venv" / "pythons" / "unprivileged"
"""The environment of an interpreter that the other user may use, where that of this one is none."""
USER = 65_534
"""Owns nothing."""


def main() -> int:
    """Become another user where this one is root, and run pytest with the arguments; return its status."""
    if os.geteuid() != 0:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
    python = interpreter()
    if python is None:
        print(f"another user may not use {sys.executable} nor another CPython from here", file=sys.stderr)
        return 1
    home = Path(tempfile.mkdtemp(prefix="ic-user-"))
    os.chown(home, USER, USER)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        environment = settle(home)
        try:
            os.chdir(TOP)
            os.execve(python, [str(python), "-m", "pytest", *sys.argv[1:]], environment)
        except OSError as error:
            print(f"this user may not use {error.filename or python} ({error.strerror})", file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    shutil.rmtree(home, ignore_errors=True)
    return os.waitstatus_to_exitcode(status)


def interpreter() -> Path | None:
    """Return the interpreter to run the tests with: this one, or else the newest that the other user may use."""
    this = Path(sys.executable)
    if usable(this):
        return this
    found = newest(path for path in candidates() if usable(path))
    if not found:
        return None
    subprocess.run(
        [found[-1], TOP / "scripts" / "prepare.py", "dev"], env={**os.environ, "INTERCOM_VENV": str(PLACE)}, check=True
    )
    prepared = PLACE / "bin" / "python"
    return prepared if usable(prepared) else None


def usable(python: Path) -> bool:
    """Tell whether the other user may run an interpreter. One in the home of root they may not."""
    try:
        command = [python, "-c", ""]
        subprocess.run(
            command, user=USER, group=USER, extra_groups=[], capture_output=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def settle(home: Path) -> dict[str, str]:
    """Make an empty home one to run the tests from; return the environment that goes with it."""
    temporary = home / "tmp"
    temporary.mkdir()
    # Git takes nothing from a checkout of somebody else unless told to.
    (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "CI")}
    return kept | {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
        "MYPY_CACHE_DIR": str(home / "mypy"),
        "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
    }


if __name__ == "__main__":
    sys.exit(main())
