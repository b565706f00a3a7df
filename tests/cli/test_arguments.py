from __future__ import annotations

import io
import sys

import pytest

from intercom.cli.arguments import Parser, add_common, clean, group_name, split_at_dashes, split_verb, target_and_text
from intercom.errors import UsageError
from intercom.limits import NAME_CHARACTERS


def parser() -> Parser:
    made = Parser("send", "TARGET TEXT...", "Send.")
    made.add_argument("words", nargs="*")
    add_common(made, timeout="longest wait")
    return made


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["worker", "hello"], ["worker", "hello"]),
        (["worker", "--json", "hello", "there"], ["worker", "hello", "there"]),
        (["--as", "me", "worker", "--", "--json"], ["worker", "--json"]),
        (["--", "worker", "--as", "--", "x"], ["worker", "--as", "--", "x"]),
        (["worker", "-"], ["worker", "-"]),
        (["worker", "-5"], ["worker", "-5"]),
        (["worker", ""], ["worker", ""]),
        ([], []),
    ],
)
def test_words_are_what_no_option_took(arguments: list[str], words: list[str]) -> None:
    """F120: after ``--`` nothing is an option."""
    assert parser().parse(arguments).words == words


@pytest.mark.parametrize("group", ["", " ", "a\nb", "a\x1b[2J", "g" * (NAME_CHARACTERS + 1), "a\u2028x", "a\u202ex"])
def test_groups_nobody_should_have(group: str) -> None:
    with pytest.raises(UsageError):
        parser().parse(["--group", group, "worker"])
    with pytest.raises(UsageError):
        group_name(group)


@pytest.mark.parametrize("group", ["alpha", "g" * NAME_CHARACTERS, "日本", "a b", " x ", "\U0001f469\u200d\U0001f4bb"])
def test_groups_that_can_be_named(group: str) -> None:
    assert parser().parse(["--group", group, "worker"]).groups == [group.strip()]


def test_options_are_found_among_the_words() -> None:
    found = parser().parse(["worker", "--json", "hi", "--as", "me", "--group", "a", "--group", "b", "--timeout", "2.5"])
    assert (found.json, found.name, found.groups, found.timeout) == (True, "me", ["a", "b"], 2.5)


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "soon", "1e9", ""])
def test_a_time_must_be_one(wrong: str) -> None:
    with pytest.raises(UsageError):
        parser().parse(["worker", "hi", f"--timeout={wrong}"])


def test_a_mistake_is_an_error_of_ours_and_not_the_end_of_the_process() -> None:
    with pytest.raises(UsageError, match="unrecognized arguments: --jsn"):
        parser().parse(["worker", "--jsn"])
    lone = Parser("list", "", "List.")
    with pytest.raises(UsageError, match="unexpected argument: x"):
        lone.parse(["--", "x"])


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    assert clean("caf\udce9 \udcff") == "caf\ufffd \ufffd"
    assert clean("\udcc3\udca9") == "é"
    assert parser().parse(["worker", "x\udcff"]).words == ["worker", "x\ufffd"]


@pytest.mark.parametrize(
    ("arguments", "verb", "rest"),
    [
        (["list"], "list", []),
        (["--json", "list", "--as", "x"], "list", ["--json", "--as", "x"]),
        (["--home", "/h", "send", "a", "b"], "send", ["--home", "/h", "a", "b"]),
        (["--home=/h", "send"], "send", ["--home=/h"]),
        (["--version"], None, ["--version"]),
        (["--home"], None, ["--home"]),
        ([], None, []),
    ],
)
def test_options_may_stand_before_the_verb(arguments: list[str], verb: str | None, rest: list[str]) -> None:
    assert split_verb(arguments) == (verb, rest)


def test_only_the_first_dashes_divide() -> None:
    assert split_at_dashes(["a", "--", "b", "--", "c"]) == (["a"], ["b", "--", "c"])
    assert split_at_dashes(["a"]) == (["a"], [])


def test_text_is_joined_from_words() -> None:
    assert target_and_text(["worker", "two", "words"], verb="send") == ("worker", "two words")
    assert target_and_text(["worker", ""], verb="send") == ("worker", "")


@pytest.mark.parametrize("words", [[], ["worker"], ["", "text"], ["  ", "text"]])
def test_target_and_text_are_needed(words: list[str]) -> None:
    with pytest.raises(UsageError):
        target_and_text(words, verb="send")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"one\ntwo\n", "one\ntwo"),
        (b"dos\r\n", "dos"),
        (b"two breaks\n\n", "two breaks\n"),
        (b"", ""),
        (b"nul\0 latin\xe9", "nul\0 latin\ufffd"),
        (b"-\n", "-"),
    ],
)
def test_a_dash_reads_standard_input_and_drops_one_line_break(
    monkeypatch: pytest.MonkeyPatch, given: bytes, text: str
) -> None:
    """F120."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert target_and_text(["worker", "-"], verb="send") == ("worker", text)


def test_without_standard_input_a_dash_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError):
        target_and_text(["worker", "-"], verb="send")
