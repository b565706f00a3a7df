from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.cli.completion import is_plain
from intercom.cli.main import VERBS
from tests.support.commands import Shell

EVIL = "$(touch pwned)"


@pytest.fixture
def path(shell: Shell) -> str:
    """Put a command ``intercom`` before all others on a search path."""
    place = shell.cwd / "bin"
    place.mkdir()
    command = place / "intercom"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m intercom "$@"\n')
    command.chmod(0o755)
    return f"{place}{os.pathsep}{os.environ['PATH']}"


def script(shell: Shell, name: str) -> Path:
    result = shell.run("completion", name)
    assert (result.status, result.errors) == (0, "")
    file = shell.cwd / f"completion.{name}"
    file.write_text(result.text)
    return file


def complete(shell: Shell, path: str, name: str, *words: str) -> list[str]:
    """Return what a shell offers for the last of the words after ``intercom``."""
    file = script(shell, name)
    # In the shells a word of the line is still as it was typed: a tilde is not expanded.
    quoted = " ".join(f"'{word}'" for word in ("intercom", *words))
    code = {
        "bash": f"source '{file}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _intercom; "
        'printf "%s\\n" "${COMPREPLY[@]}"',
        "zsh": f'compdef() {{ :; }}; compadd() {{ shift; print -l -- "$@"; }}; '
        f"_describe() {{ print -l -- \"${{verbs[@]%%:*}}\"; }}; _files() {{ print files; }}; source '{file}'; "
        f"words=({quoted}); CURRENT={len(words) + 1}; _intercom",
        "fish": f"source '{file}'; complete -C \"intercom {' '.join(words)}\"",
    }[name]
    done = subprocess.run(
        [name, "-c", code],
        env=shell.environment({"PATH": path, "HOME": str(shell.home.parent)}),
        cwd=shell.cwd,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


def installed(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))


SHELLS = [installed("bash"), installed("zsh"), installed("fish")]


@pytest.mark.parametrize("name", SHELLS)
def test_verbs_options_and_fixed_words(shell: Shell, path: str, name: str) -> None:
    assert set(complete(shell, path, name, "")) >= set(VERBS)
    assert "--attach" in complete(shell, path, name, "send", "--")
    assert set(complete(shell, path, name, "store", "")) >= {"check", "rebuild", "move-aside"}
    assert "concepts" in complete(shell, path, name, "docs", "")


@pytest.mark.parametrize("name", SHELLS)
def test_sessions_that_are_there(shell: Shell, path: str, name: str) -> None:
    """F58: only those in reach; nothing a peer wrote is run or expanded."""
    shell.listen("worker")
    shell.listen("hidden", "--group", "alpha")
    with shell.connect() as peer:
        peer.register(EVIL)
        offered = complete(shell, path, name, "send", "")
        assert {"worker", peer.session_id} <= set(offered)
        assert not {"hidden", EVIL} & set(offered)
    assert not (shell.cwd / "pwned").exists()
    assert "worker" in complete(shell, path, name, "ask", "wor")


@pytest.mark.parametrize("name", SHELLS)
def test_what_the_line_says_of_group_home_and_name_counts(shell: Shell, path: str, name: str) -> None:
    shell.listen("hidden", "--group", "alpha")
    shell.listen("worker")
    assert "hidden" in complete(shell, path, name, "send", "--group", "alpha", "")
    assert "worker" not in complete(shell, path, name, "send", "--group", "alpha", "")
    assert "hidden" in complete(shell, path, name, "--group=alpha", "send", "")
    assert "worker" not in complete(shell, path, name, "send", "--home", f"{shell.cwd}/other", "")
    assert "hidden" in complete(shell, path, name, "send", "--home", f"~/{shell.home.name}", "--group", "alpha", "")
    assert shell.run("join", "alpha", "--as", "planner").status == 0
    assert "hidden" in complete(shell, path, name, "ask", "--as", "planner", "")


@pytest.mark.parametrize("name", SHELLS)
def test_values_of_which_there_are_few(shell: Shell, path: str, name: str) -> None:
    assert complete(shell, path, name, "serve", "--durability", "m") in (["memory"], ["full", "memory"])
    assert set(complete(shell, path, name, "serve", "--log-level", "")) == {"debug", "info", "warning", "error"}
    assert set(complete(shell, path, name, "serve", "--watchdog", "")) == {"true", "false"}


def test_in_bash_an_equals_sign_is_a_word_of_its_own(shell: Shell, path: str) -> None:
    shell.listen("hidden", "--group", "alpha")
    assert complete(shell, path, "bash", "send", "--group", "=", "alpha", "hid") == ["hidden"]


def test_the_words_are_given_to_other_programs_too(shell: Shell) -> None:
    shell.listen("worker")
    assert shell.run("completion", "words").text == "worker\n"
    assert shell.run("completion", "words", "--json").document == {"ok": True, "words": ["worker"]}


def test_without_a_broker_there_are_none(shell: Shell) -> None:
    """F130: no spawn, no word of trouble in the middle of somebody's typing."""
    result = shell.run("completion", "words")
    assert result == (0, b"", b"", "completion")
    assert not shell.home.exists()


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    result = shell.run("completion", *arguments, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_the_document(shell: Shell) -> None:
    document = shell.run("completion", "fish", "--json").document
    assert (document["shell"], "complete -c intercom" in document["script"]) == ("fish", True)


@pytest.mark.parametrize("name", ["a b", "$x", "`x`", "a;b", "-x", "a'b", "~", "*", "x\n", "\u202e", "a/b", "\x1b"])
def test_names_a_shell_could_misread_are_not_plain(name: str) -> None:
    assert not is_plain(name)


@pytest.mark.parametrize("name", ["worker", "Wörker-2", "a_b.c@d", "日本"])
def test_other_names_are(name: str) -> None:
    assert is_plain(name)
