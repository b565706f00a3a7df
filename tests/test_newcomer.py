"""Go the way of somebody new: clone, do what the README says, in its order, in two shells, and see what it shows.

The clone runs on the dependencies of these tests, so that no network is needed. With ``INTERCOM_TEST_INSTALL=1`` its
own environment is set up with ``scripts/run``, as the README says.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import TOP
from tests.support.commands import Running, listen_to_signals

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("git") is None or not (TOP / ".git").exists(), reason="this is no checkout that can be cloned"
    ),
]
VARYING = {
    "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}": "[0-9a-f-]{36}",
    "[0-9a-f]{8}": "[0-9a-f]{8}",
    r"\d+ s": r"\d+ s",
    r"\d{4,}": r"\d+",
    " {2,}": " {2,}",
}
"""What differs from run to run in what the README shows, and what must stand there."""


class Newcomer:
    """Hold a clone, a user who has nothing yet, and two shells in one project."""

    def __init__(self, place: Path) -> None:
        self.clone = place / "clone"
        self.project = place / "project"
        (place / "bin").mkdir()
        self.project.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(TOP), str(self.clone)], check=True, timeout=60)
        self._take_what_is_not_committed_yet()
        self.environ = {"HOME": str(place), "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        command = place / "bin" / "intercom"
        if os.environ.get("INTERCOM_TEST_INSTALL"):
            subprocess.run([self.clone / "scripts" / "run", "--version"], check=True, timeout=600)
            command.symlink_to(self.clone / ".venv" / "bin" / "intercom")
        else:
            command.write_text(f'#!/bin/sh\nPYTHONPATH={self.clone} exec {sys.executable} -P -m intercom "$@"\n')
            command.chmod(0o755)
        self.readme = (self.clone / "README.md").read_text()

    def _take_what_is_not_committed_yet(self) -> None:
        for listing in (["diff", "--name-only", "-z", "HEAD"], ["ls-files", "--others", "--exclude-standard", "-z"]):
            listed = subprocess.run(["git", *listing], cwd=TOP, capture_output=True, check=True, timeout=60).stdout
            for name in filter(None, os.fsdecode(listed).split("\0")):
                if (TOP / name).is_file():
                    (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(TOP / name, self.clone / name)
                else:
                    (self.clone / name).unlink(missing_ok=True)

    def start(self, line: str) -> Running:
        """Type a line into the first shell and leave it running."""
        return Running(
            subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                env=self.environ,
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=listen_to_signals,
            )
        )

    def type(self, line: str) -> str:
        """Type a line into the second shell and return what is printed; it must succeed."""
        done = subprocess.run(
            ["sh", "-c", line],
            env=self.environ,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, (line, done)
        return done.stdout


@pytest.fixture
def newcomer(short_path: Path) -> Iterator[Newcomer]:
    made = Newcomer(short_path)
    yield made
    subprocess.run(["intercom", "stop"], env=made.environ, capture_output=True, timeout=30, check=False)


def blocks(readme: str) -> list[list[str]]:
    """Return the indented blocks of the part about the first conversation, as lines."""
    [part] = re.findall(r"^## A first conversation\n(.*?)^## ", readme, re.DOTALL | re.MULTILINE)
    return [
        block.replace("    ", "", 1).split("\n    ") for block in re.findall(r"(?:^    .*\n?)+", part, re.MULTILINE)
    ]


def typed(block: list[str]) -> list[tuple[str, list[str]]]:
    """Return what is typed in a transcript, each with the lines it shows as the answer."""
    found: list[tuple[str, list[str]]] = []
    for line in block:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line.rstrip())
    return found


def pattern(line: str, project: Path) -> str:
    """Return what a line of the README matches, whatever the ids, numbers and widths are."""
    taken = ""
    for part in re.split("(" + "|".join(VARYING) + ")", line.replace("/home/me/project", str(project))):
        matching = (pattern for shown, pattern in VARYING.items() if re.fullmatch(shown, part))
        taken += next(matching, re.escape(part))
    return taken


def test_the_first_conversation(newcomer: Newcomer) -> None:
    first, second = blocks(newcomer.readme)
    [listening] = first[:1]
    worker = newcomer.start(listening.strip())
    try:
        assert worker.process.stderr is not None
        assert worker.process.stderr.readline().startswith(b"listening as worker (")
        steps = typed(second)
        assert [line.split()[1] for line, _ in steps] == ["list", "ask", "send"]
        for line, shown in steps:
            printed = newcomer.type(line).rstrip("\n").split("\n")
            assert len(printed) == len(shown), (line, printed)
            for have, wanted in zip(printed, shown, strict=True):
                assert re.fullmatch(pattern(wanted, newcomer.project), have.strip()), (have, wanted)
        assert "/.local/state/intercom" in newcomer.type("intercom status")
        newcomer.type("intercom doctor")
        worker.signal(signal.SIGINT)
        ended = worker.finish()
        assert ended.status == 130
        assert "thank you" in ended.text
    finally:
        worker.close()


def test_what_else_is_named_works(newcomer: Newcomer) -> None:
    """Every command the README has in its sentences, as far as it stands there whole."""
    named = set(re.findall(r"`(intercom (?:docs|doctor|status|install|uninstall)(?: [a-z-]+)*)`", newcomer.readme))
    assert {"intercom docs", "intercom docs atomic-and-pi", "intercom docs embedding", "intercom doctor"} <= named
    assert {"intercom install atomic", "intercom install pi", "intercom uninstall atomic"} <= named
    listener = newcomer.start("intercom listen --as somebody")  # the broker stays for as long as it does
    try:
        assert listener.process.stderr is not None
        assert listener.process.stderr.readline().startswith(b"listening as somebody (")
        for line in sorted(named):
            newcomer.type(f"{line} --dry-run" if "install" in line else line)
    finally:
        listener.close()
    assert newcomer.type(f"intercom demo {newcomer.clone}").splitlines()[-1].startswith("checked: 3 questions")
