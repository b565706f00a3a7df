"""The public types, as mypy in strict mode sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]


@pytest.mark.timeout(600)
def test_the_public_types() -> None:
    """Every wrong use in the file is marked, and strict mode reports a mark that is not needed."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(HERE / "api.py")]
    found = subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=540, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_package_says_that_it_is_typed() -> None:
    """PEP 561."""
    assert (TOP / "intercom" / "py.typed").exists()
