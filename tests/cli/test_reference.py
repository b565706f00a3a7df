from __future__ import annotations

import re
import subprocess
import sys

import pytest

from intercom.cli.docs import pages
from intercom.cli.main import STATUSES, VERBS
from intercom.cli.reference import PAGES, options_of, parser_of
from intercom.config import ClusterSettings, load_settings, settings_table
from intercom.paths import Paths
from tests.support.brokers import TOP


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_program_says(name: str) -> None:
    """After a change of an option or a setting: ``python -m intercom.cli.reference``."""
    assert pages()[name].read_text("utf-8") == PAGES[name]()


def test_every_verb_option_and_status_is_in_the_reference() -> None:
    page = PAGES["commands"]()
    for verb in VERBS:
        part = page.split(f"\n## {verb}\n")[1].split("\n## ")[0]
        for option in options_of(parser_of(verb)):
            assert f"`{option.option_strings[-1]}" in part
            assert option.help
    for status, meaning in STATUSES.items():
        assert f"| {status} | {meaning} |" in page


def test_the_settings_that_are_shown_are_taken(tmp_path: object) -> None:
    from pathlib import Path

    home = Path(str(tmp_path))
    page = PAGES["configuration"]()
    example = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    (home / "intercom.toml").write_text("\n".join(example))
    assert load_settings(Paths(home), {}, {}) == load_settings(Paths(home / "none"), {}, {})
    assert [line.split(" = ")[0] for line in example[1:]] == list(settings_table())
    for setting in settings_table().values():
        assert f"`{setting.variable}`" in page


def test_the_example_of_a_kind_is_taken(tmp_path: object) -> None:
    from pathlib import Path

    home = Path(str(tmp_path))
    example, _ = re.findall(r"```toml\n(.*?)```", PAGES["configuration"](), re.DOTALL)
    (home / "intercom.toml").write_text(example)
    found = load_settings(Paths(home), {}, {}).spawn["reviewer"]
    assert (found.command[0], found.cwd) == ("claude", "~/work/project")


def test_the_example_of_a_cluster_is_taken(tmp_path: object) -> None:
    from pathlib import Path

    home = Path(str(tmp_path))
    page = PAGES["configuration"]()
    _, example = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (home / "intercom.toml").write_text(example)
    found = load_settings(Paths(home), {}, {}).cluster
    assert found.url == ("tls://nats.example.org:4222",)
    assert all(f"| `{key}` |" in page for key in ClusterSettings.__struct_fields__)


def test_writing_them_changes_nothing() -> None:
    """The pages in the checkout are what the writer writes."""
    code = "from intercom.cli import reference; reference.Path.write_text = lambda *a: None; reference.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(TOP)}
    )
    assert done.stdout.split() == [f"{name}.md" for name in PAGES]
