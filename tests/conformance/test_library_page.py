"""The example of the library page on workflows does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import intercom
from tests.support.brokers import BrokerProcess, environment
from tests.support.raw import PATIENCE_S


def test_the_example_of_a_workflow_prints_what_the_page_says(broker: BrokerProcess, tmp_path: Path) -> None:
    page = (Path(intercom.__file__).parent / "docs" / "library.md").read_text("utf-8")
    section = page[page.index("## Workflows") :]
    program = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    promised = re.findall(r"```text\n(.*?)```", section, re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(broker.home),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (promised, "", 0)
