"""Say what starts this program from any directory and in any environment, for files that others start it from."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from intercom.errors import StartFailed
from intercom.limits import REQUEST_MS


def our_command(*words: str) -> tuple[str, list[str]]:
    """Return the program and the arguments that run ``intercom WORDS``: absolute paths only, no launcher between."""
    from intercom.client.spawning import PACKAGE_ROOT

    if not sys.executable:
        raise StartFailed("It is not known which Python this is")
    if _is_found_by_name(sys.executable, PACKAGE_ROOT):
        return sys.executable, ["-P", "-m", "intercom", *words]
    program = f"import sys; sys.path.insert(0, {str(PACKAGE_ROOT)!r}); from intercom.__main__ import run; run()"
    return sys.executable, ["-P", "-c", program, *words]


def this_command(verb: str) -> list[str]:
    """Return what started this process, up to ``verb``; ``intercom`` where it was started as something else."""
    line = [sys.executable, *sys.orig_argv[1:]]
    return line[: line.index(verb)] if verb in line else ["intercom"]


@cache
def _is_found_by_name(python: str, root: Path) -> bool:
    """Tell whether this Python finds the package below ``root`` without a variable that only this shell may have.

    An entry of a host names the command many times, and each look takes an interpreter.
    """
    import subprocess

    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = "import intercom; print(intercom.__path__[0])"
    try:
        done = subprocess.run(
            [python, "-P", "-c", program],
            capture_output=True,
            cwd="/",
            env=environ,
            timeout=REQUEST_MS / 1000,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return os.fsdecode(done.stdout).strip() == str(root / "intercom")
