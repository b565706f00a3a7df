"""The examples of the library page that print something do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import intercom
from tests.support.brokers import BrokerProcess, environment
from tests.support.processes import complaints
from tests.support.raw import PATIENCE_S


@pytest.mark.parametrize("heading", ["### Handing it out", "## Workflows"])
def test_an_example_prints_what_the_page_says(broker: BrokerProcess, tmp_path: Path, heading: str) -> None:
    page = (Path(intercom.__file__).parent / "docs" / "library.md").read_text("utf-8")
    section = page[page.index(f"\n{heading}\n") :]
    promised = re.findall(r"```text\n(.*?)```", section, re.DOTALL)[0]
    program = re.findall(r"```python\n(.*?)```", section[: section.index("```text")], re.DOTALL)[-1]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(broker.home),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert (done.stdout, complaints(done.stderr), done.returncode) == (promised, "", 0)
