"""Test what ``scripts/test --unprivileged`` prepares for the user it runs the tests as."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.unprivileged import USER, settle, usable
from tests.support.processes import OTHER_USER, in_child, needs_root

pytestmark = needs_root


def test_an_interpreter_in_a_private_place_is_none_for_others(short_path: Path) -> None:
    program = short_path / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert not usable(program)
    short_path.chmod(0o755)
    assert usable(program)


def test_one_that_does_not_run_is_none(short_path: Path) -> None:
    short_path.chmod(0o755)
    program = short_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert not usable(program)
    assert not usable(short_path / "nothing")


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_checkout_of_root_can_be_cloned(short_path: Path) -> None:
    short_path.chmod(0o755)
    checkout, home = short_path / "checkout", short_path / "home"
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True, timeout=60)
    home.mkdir()
    os.chown(home, USER, USER)

    def clone() -> int:
        command = ["git", "clone", "--quiet", str(checkout), str(home / "clone")]
        return subprocess.run(command, env=settle(home), cwd=home, timeout=60, check=False).returncode

    assert in_child(clone, user=OTHER_USER) == 0
