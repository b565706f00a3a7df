from __future__ import annotations

import os
import pty
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from intercom import errors
from intercom.cli.docs import ORDER, pages
from intercom.cli.main import VERBS
from intercom.errors import IntercomError
from intercom.wire import reasons
from tests.cli.test_main import read_all
from tests.support.brokers import TOP
from tests.support.commands import INTERCOM, Shell

PAGES = {name: page.read_text("utf-8") for name, page in pages().items()}


def test_the_pages_are_listed(shell: Shell) -> None:
    result = shell.run("docs")
    assert (result.status, result.errors) == (0, "")
    assert [line.split()[0] for line in result.text.splitlines()] == list(PAGES)
    [first, *_] = shell.run("docs", "--json").document["pages"]
    assert first == {"page": "index", "title": "intercom"}
    assert not shell.home.exists()


def test_a_page_is_printed_as_it_stands(shell: Shell) -> None:
    for name in ("concepts", "concepts.md"):
        assert shell.run("docs", name).text == PAGES["concepts"]
    document = shell.run("docs", "concepts", "--json").document
    assert (document["page"], document["text"]) == ("concepts", PAGES["concepts"])


def test_a_page_is_laid_out_for_a_person(shell: Shell) -> None:
    leader, follower = pty.openpty()
    environ = shell.environment({"TERM": "xterm-256color", "COLUMNS": "100", "PYTHONUTF8": "1"})
    process = subprocess.Popen(
        (*INTERCOM, "docs", "index"), stdin=follower, stdout=follower, stderr=follower, env=environ
    )
    os.close(follower)
    shown = read_all(leader)
    assert process.wait(10) == 0
    assert b"\x1b[" in shown
    assert b"starts by itself" in shown


def test_a_page_that_is_not_there(shell: Shell) -> None:
    result = shell.run("docs", "changlog", "--json")
    assert (result.status, result.document["code"], result.document["hint"]) == (
        3,
        "no_page",
        "Did you mean changelog?",
    )
    assert shell.run("docs", "../x").status == 3
    assert shell.run("docs", "a", "b", "c").status == 2


@pytest.mark.parametrize(
    ("section", "first", "last"),
    [
        ("4.10", "### 4.10 `received`", "(6.10)."),
        ("send", "### 4.8 `send`", "what may have arrived: 6.9.2 |"),
        ("Attachment", "#### Attachment", "for highlighting |"),
        ("6.2", "### 6.2 Targets", "would reach a namesake."),
        ("7", "## 7. Numbers", "`DISCONNECT_MS` |"),
    ],
)
def test_a_section_of_a_page_is_printed(shell: Shell, section: str, first: str, last: str) -> None:
    text = shell.run("docs", "protocol", section).text
    assert text.splitlines()[0] == first
    assert text.endswith(last + "\n")
    assert shell.run("docs", "protocol", section, "--json").document["text"] == text


def test_a_section_that_is_not_there(shell: Shell) -> None:
    result = shell.run("docs", "protocol", "4.999", "--json")
    assert (result.status, result.document["code"]) == (3, "no_page")
    assert "4. From client to broker" in result.document["hint"]


def test_the_pages_that_are_there_are_in_order() -> None:
    assert list(PAGES) == [name for name in ORDER if name in PAGES] + sorted(set(PAGES) - set(ORDER))
    assert {
        "index",
        "first-steps",
        "concepts",
        "commands",
        "library",
        "configuration",
        "files",
        "troubleshooting",
    } <= set(PAGES)


def slugs(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    return {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
        for line in text.splitlines()
        if line[:1] == "#"
    }


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        if "://" in link:
            continue
        page, _, anchor = link.partition("#")
        target = page.removesuffix(".md") or name
        assert target in PAGES, link
        assert not anchor or anchor in slugs(PAGES[target]), link


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_is_shown_exists(name: str) -> None:
    """F7: agents follow what a text advises."""
    shown = re.findall(r"(?:^    |`|\$ )intercom (?:--\S+ )*([a-z][a-z-]*)", PAGES[name], re.MULTILINE)
    assert set(shown) <= set(VERBS), set(shown) - set(VERBS)


def codes() -> set[str]:
    """Return every code a person can meet: of the errors, of the broker's reasons, and of what verbs print."""
    for verb in VERBS:
        import_module(f"intercom.cli.{verb}")
    found = {code for _, code in reasons._CODES}
    families = [IntercomError]
    for family in families:
        families += family.__subclasses__()
        if family.__module__.startswith("intercom."):
            found.add(family.code)
    tree = (errors.__doc__ or "").split("Each has ``code``")[0]
    found |= set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", tree))
    for part in ("client", "cli", "mcp"):
        for path in (TOP / "intercom" / part).glob("*.py"):
            found |= set(re.findall(r"""(?:\bcode|_CODE)["']?(?: =|[=:]) ?["']([a-z_]+)["']""", path.read_text()))
    return found


def test_every_code_is_explained() -> None:
    explained = set()
    for line in PAGES["troubleshooting"].splitlines():
        if line.startswith("| `"):
            explained |= set(re.findall(r"`([a-z_]+)`", line.split("|")[1]))
    assert codes() - explained == set()
    assert explained - codes() <= {
        *("already_served", "cannot_serve", "held_elsewhere", "not_told", "unhealthy"),
        *("expired", "undeliverable", "invocation_conflict", "not_a_message"),
    }


def test_both_ends_of_a_question_without_an_answer_are_told() -> None:
    rows = [line for line in PAGES["troubleshooting"].splitlines() if line.startswith("| `ask_timeout`")]
    assert [re.findall(r"retry `([a-z_]+)`", row) for row in rows] == [["never"], ["same_id"]]


def test_every_file_of_a_home_is_explained() -> None:
    from intercom.paths import Paths

    paths = Paths(Path("/home/of/nobody"))
    for name in Paths.__slots__:
        path = getattr(paths, name)
        if isinstance(path, Path) and name != "home":
            assert f"`{path.relative_to(paths.home)}" in PAGES["files"], path
