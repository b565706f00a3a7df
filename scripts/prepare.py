"""Create the virtual environment of this checkout and install what is missing, once at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PLACE = TOP / os.environ.get("INTERCOM_VENV", ".venv")
OTHERS = PLACE / "pythons"
"""Environments of other interpreters, which ``scripts/test --all-pythons`` makes."""
LOCK = PLACE / ".lock"
IGNORE = PLACE / ".gitignore"
INTERPRETER = PLACE / "bin" / "python"


def main() -> int:
    """Return 0 when .venv holds what this checkout asks for."""
    groups = sys.argv[1:]
    PLACE.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        IGNORE.write_text("*\n")
        wanted = _fingerprint(groups)
        if _read(_stamp(groups)) == wanted and _works():
            return 0
        if _read(PLACE / "made-for") != _origin() or not _works():
            _build()
        installed = [(_stamp(done), _fingerprint(done)) for done in ([], groups)]
        try:
            _install(groups)
        except subprocess.CalledProcessError as failed:
            print("the installation into .venv failed; the lines above say why", file=sys.stderr)
            return failed.returncode or 1
        for stamp, asked in installed:
            stamp.write_text(asked)
    return 0


def _stamp(groups: list[str]) -> Path:
    return PLACE / "-".join(["ready", *groups])


def _origin() -> str:
    """Name what a virtual environment cannot survive a change of: its own path and its Python."""
    return f"{PLACE}\n{sys.version}\n"


def _fingerprint(groups: list[str]) -> str:
    project = (TOP / "pyproject.toml").read_bytes()
    return hashlib.sha256(_origin().encode() + project + repr(groups).encode()).hexdigest()


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _works() -> bool:
    try:
        return subprocess.run([INTERPRETER, "-c", "import pip"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _build() -> None:
    for entry in PLACE.iterdir():
        if entry in (LOCK, IGNORE, OTHERS):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    venv.create(PLACE, with_pip=True, symlinks=True)
    # Newer Pythons write their own .gitignore; this one must stay.
    IGNORE.write_text("*\n")
    (PLACE / "made-for").write_text(_origin())


def _install(groups: list[str]) -> None:
    listed = tomllib.loads((TOP / "pyproject.toml").read_text()).get("dependency-groups", {})
    wanted = [requirement for group in groups for requirement in listed[group]]
    command = [str(INTERPRETER), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--editable", str(TOP), *wanted], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
