from __future__ import annotations

import pytest

from intercom.client.texts import clipped, columns_of, duration, short_ids, visible, visible_block, who
from intercom.limits import CELL_COLUMNS

FIRST = "1a2b3c4d-0000-4000-8000-000000000001"
LIKE_FIRST = "1A2B3C4D-0000-4000-8000-000000000002"
OTHER = "99999999-0000-4000-8000-000000000003"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("日本 é 🙂", "日本 é 🙂"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("\x1b]52;c;Zm9v\x07", "\\x1b]52;c;Zm9v\\x07"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("del\x7f c1\x9b31m", "del\\x7f c1\\x9b31m"),
        ("rtl\u202egnp.exe", "rtl\\u202egnp.exe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("line\u2028end", "line\\u2028end"),
        ("hard\u00a0space", "hard\u00a0space"),
    ],
)
def test_what_steers_a_terminal_or_hides_is_spelled_out(raw: str, shown: str) -> None:
    """F110."""
    assert visible(raw) == shown


def test_a_body_keeps_its_lines_and_nothing_else_that_moves_the_cursor() -> None:
    """F110: a lone carriage return could overwrite the line above."""
    assert visible_block("one\r\ntwo\n\tthree\rfour\x1b[0m") == "one\ntwo\n\tthree\\rfour\\x1b[0m"


def test_width_counts_wide_characters_twice_and_marks_not_at_all() -> None:
    assert columns_of("ab") == 2
    assert columns_of("日本") == 4
    assert columns_of("e\u0301") == 1


def test_long_cells_are_cut_even_when_they_are_all_combining_marks() -> None:
    """F110: 4 000 combining marks stay one short cell."""
    assert clipped("short") == "short"
    assert clipped("x" * 100, 10) == "xxxxxxx..."
    assert clipped("日" * 100, 10) == "日日日..."
    assert len(clipped("e" + "\u0301" * 4_000)) <= CELL_COLUMNS + 3


def test_ids_are_shown_as_short_as_a_send_accepts_them() -> None:
    """F46: what is printed works when pasted."""
    assert short_ids([FIRST, OTHER, "custom"]) == {FIRST: "1a2b3c4d", OTHER: "99999999", "custom": "custom"}
    assert short_ids([FIRST, LIKE_FIRST]) == {FIRST: FIRST, LIKE_FIRST: LIKE_FIRST}


def test_a_session_in_a_sentence() -> None:
    assert who("worker", FIRST) == "worker (1a2b3c4d)"
    assert who(None, FIRST) == "1a2b3c4d"
    assert who("wor\x1bker", "custom") == "wor\\x1bker (custom)"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 s"),
        (3_900, "3 s"),
        (250_000, "4 min 10 s"),
        (7_500_000, "2 h 5 min"),
        (262_800_000, "3 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_durations(milliseconds: int, shown: str) -> None:
    assert duration(milliseconds) == shown
