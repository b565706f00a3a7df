"""Find every CPython of this machine that intercom supports; print one a minor version, the newest of each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)
PLACES = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/opt/python/*/bin",
    "/usr/local/bin",
    "/usr/bin",
)
"""Where interpreters lie that are not on the path, beside those that are."""
ASKED = "import sys, ensurepip, venv; print(sys.implementation.name, *sys.version_info[:3], sys.executable)"
"""What is on the path may only lead to an interpreter; it says itself where it lies."""
PATIENCE_S = 30.0


def main() -> int:
    """Print the paths, the oldest version first; return 1 when there is none."""
    found = newest(candidates())
    for path in found:
        print(path)
    return 0 if found else 1


def candidates() -> Iterator[Path]:
    """Return programs that are called like an interpreter; one program has several names."""
    directories = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    for place in PLACES:
        above, _, name = os.path.expanduser(place).partition("/*/")
        directories += sorted(Path(above).glob(f"*/{name}")) if name else [Path(above)]
    seen = set()
    for directory in directories:
        for path in sorted(directory.glob("python3.[0-9]*")):
            real = path.resolve()
            if path.name.removeprefix("python3.").isdigit() and real not in seen and os.access(real, os.X_OK):
                seen.add(real)
                yield path


def newest(paths: Iterator[Path]) -> list[Path]:
    """Return the newest of each minor version that is a CPython and has what a virtual environment needs."""
    best: dict[tuple[int, ...], tuple[tuple[int, ...], Path]] = {}
    for path in paths:
        try:
            told = subprocess.run([path, "-c", ASKED], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            name, *numbers, itself = told.stdout.split(maxsplit=4)
            version = tuple(map(int, numbers))
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        if name == "cpython" and version >= OLDEST and version > best.get(version[:2], ((), path))[0]:
            best[version[:2]] = (version, Path(itself.strip()))
    return [path for _, (_, path) in sorted(best.items())]


if __name__ == "__main__":
    sys.exit(main())
