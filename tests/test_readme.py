"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.cli.conftest import shell
from tests.support.brokers import TOP
from tests.support.commands import Shell

__all__ = ["shell"]

README = (TOP / "README.md").read_text()


def test_the_conversation(shell: Shell) -> None:
    worker = shell.listen("worker", "--answer", "wc -w")
    assert shell.run("ask", "worker", "how", "many", "words", "is", "this").text.strip() == "5"
    assert worker.event("message")["text"] == "how many words is this"
    assert shell.run("send", "worker", "--as", "planner", "thank", "you").text.startswith(
        "delivered to worker (message "
    )
    for shown in ("intercom listen --as worker --answer 'wc -w'", "$ intercom ask worker how many words is this"):
        assert shown in README


def test_the_program(shell: Shell) -> None:
    shell.listen("worker", "--answer", "wc -w")
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("timeout=60", "timeout=0.1")],
        capture_output=True,
        text=True,
        env=shell.environment(),
        timeout=20,
        check=True,
    )
    assert done.stderr == ""
    listed, itself, state, answer = done.stdout.splitlines()
    assert (listed.split()[0], itself.split()[0], state) == ("worker", "planner", "delivered")
    assert answer.split() == ["worker", "5"]


def test_the_exit_statuses_are_those_of_the_command() -> None:
    from intercom.cli.main import STATUSES

    table = dict(re.findall(r"^\| (\d+) \| (.*) \|$", README, re.MULTILINE))
    assert [int(status) for status in table] == list(STATUSES)
