"""Look at what msgspec does not: encoding, depth, size of numbers, lone surrogates (protocol 1.3, F38, F39)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from intercom.limits import NESTING, NUMBER_DIGITS
from intercom.wire.frames import MessageFrame, Queued
from intercom.wire.jsontext import (
    as_utf8,
    flaw_of,
    read,
    with_whole_characters,
    without_surrogates,
    written,
)

TEXT = st.text(st.characters(codec=None), max_size=8)
"""Any code points, lone surrogates among them."""
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    """Count the levels of a decoded value."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


class TestUtf8:
    """protocol 1.3.4"""

    @pytest.mark.parametrize("payload", [b"", b"plain", "ä€😀\ufffd".encode()])
    def test_what_is_valid_stays_as_it_is(self, payload: bytes) -> None:
        assert as_utf8(payload) is payload

    @pytest.mark.parametrize(
        ("payload", "text"),
        [
            (b"a\xffb", "a\ufffdb"),
            (b"\xe2\x82", "\ufffd"),
            (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
            (b"\xc0\xaf", "\ufffd\ufffd"),
        ],
        ids=["stray", "cut", "surrogate", "overlong"],
    )
    def test_what_is_not_becomes_a_replacement_character(self, payload: bytes, text: str) -> None:
        assert as_utf8(payload).decode() == text


class TestDepth:
    """F38; more levels than NESTING are refused, however they are written"""

    @pytest.mark.parametrize("inside", [b"[%s]", b'{"a":%s}', b'[{"a":%s}]', b'["[[{", %s]', rb'["\\", "\"[", %s]'])
    def test_the_limit_counts_levels_outside_of_strings(self, inside: bytes) -> None:
        text = b"1"
        while depth_of(json.loads(inside.replace(b"%s", text))) <= NESTING:
            text = inside.replace(b"%s", text)
        assert flaw_of(text) is None
        assert flaw_of(inside.replace(b"%s", inside.replace(b"%s", text))) == "it is nested deeper than 256 levels"

    @pytest.mark.parametrize("levels", [900, 10_000, 100_000])
    def test_deep_arrays(self, levels: int) -> None:
        """F38"""
        assert flaw_of(nested(levels)) is not None
        assert flaw_of(b"[" * levels) is not None

    def test_many_brackets_side_by_side_are_no_depth(self) -> None:
        assert flaw_of(b"[" + b",".join([nested(100)] * 1_000) + b"]") is None

    def test_brackets_in_a_string_are_no_depth(self) -> None:
        """Source code in a message has many of them, and escapes around its quotes."""
        assert flaw_of(json.dumps({"text": 'f("[{\\"[{' * 500, "more": "\\" * 101 + "[" * 500}).encode()) is None

    @pytest.mark.parametrize("aside", [0, 63, 127, 128, 129, 5_000, 40_000])
    @pytest.mark.parametrize("filling", [b"[],", b'{"]":["[["]},', rb'"\\\"]]]]",{},'])
    def test_it_is_found_wherever_it_stands(self, aside: int, filling: bytes) -> None:
        before = b"[" + filling * aside
        assert flaw_of(before + nested(NESTING - 1) + b"]") is None
        assert flaw_of(before + nested(NESTING) + b"]") is not None
        assert flaw_of(before + nested(NESTING) + b"," + filling * 300 + b"1]") is not None

    @pytest.mark.parametrize("levels", range(NESTING - 12, NESTING))
    @pytest.mark.parametrize("shift", range(8))
    def test_the_count_is_exact_however_brackets_alternate(self, levels: int, shift: int) -> None:
        """They are counted many at a time"""
        zigzag = b"[" * levels + b"[]," * shift + b"[[]]," + b"[]," * 600 + b"0" + b"]" * levels
        assert (flaw_of(zigzag) is None) is (levels + 2 <= NESTING)

    @given(value=JSON_VALUES)
    @settings(database=None, deadline=None)
    def test_the_count_is_exact(self, value: Any) -> None:
        filling = NESTING - depth_of(value)
        text = json.dumps(value).encode()
        assert flaw_of(b"[" * filling + text + b"]" * filling) is None
        beyond = b"[" * (filling + 1) + text + b"]" * (filling + 1)
        assert flaw_of(beyond) is not None


class TestDigits:
    """F38: Python reads no integer of more than 4 300 digits"""

    @pytest.mark.parametrize("before", [b"[", b"[-", b"[0.", b'["' + b"x" * 777 + b'",', b"[1e"])
    def test_the_limit_counts_digits_in_a_row(self, before: bytes) -> None:
        assert flaw_of(before + b"7" * NUMBER_DIGITS + b"]") is None
        assert flaw_of(before + b"7" * (NUMBER_DIGITS + 1) + b"]") == "a number has more than 4000 digits"
        assert flaw_of(before + b"7" * 50_000 + b"]" + nested(300)) == "a number has more than 4000 digits"

    def test_digits_in_a_string_are_no_number(self) -> None:
        assert flaw_of(b'{"text":"' + b"7" * 50_000 + b'"}') is None

    def test_many_numbers_are_no_long_one(self) -> None:
        assert flaw_of(b"[" + b",".join([b"7" * NUMBER_DIGITS] * 20) + b"]") is None

    @pytest.mark.parametrize("between", [b",", b", ", b",1,"])
    def test_a_list_of_many_digits_is_no_long_number(self, between: bytes) -> None:
        assert flaw_of(b"[" + between.join([b"7"] * 20_000) + b"]") is None
        assert flaw_of(b"[" + between.join([b"7"] * 20_000) + b"7" * NUMBER_DIGITS + b"]") is not None

    @given(before=st.integers(min_value=0, max_value=1_500), digits=st.integers(min_value=3_990, max_value=4_010))
    @settings(database=None, deadline=None)
    def test_the_sample_misses_none(self, before: int, digits: int) -> None:
        text = b'["' + b"x" * before + b'",' + b"7" * digits + b"]"
        assert (flaw_of(text) is not None) == (digits > NUMBER_DIGITS)


class TestRead:
    """protocol 1.3: strict JSON"""

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"NaN",
            b"[Infinity]",
            b"[-Infinity]",
            b"[1e999]",
            b"[-1e999]",
            b"[1" + b"0" * 309 + b"]",
            b"[1" + b"0" * 5_000 + b"]",
            b"[1,]",
            b'{"a":1,}',
            b"[01]",
            b"[.5]",
            b"[+1]",
            b"['a']",
            b"[1] // no",
            b"[1]\x00",
            b'["\x00"]',
            b'["\t"]',
            rb'["\x41"]',
            b"\xef\xbb\xbf[1]",
            b"[1]\xc2\xa0",
            "[1]".encode("utf-16"),
            "[1]".encode("utf-16-le"),
            b"\xff",
        ],
    )
    def test_it_refuses(self, text: bytes) -> None:
        with pytest.raises(ValueError):
            read(text)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (b' {"a" : [1, 2.5, -0.0, 1e5, true, null]}\r\n\t', {"a": [1, 2.5, -0.0, 1e5, True, None]}),
            (b'{"a":1,"a":2}', {"a": 2}),
            (rb'["\u0000\ud83d\ude00\ud83d"]', ["\x00😀\ud83d"]),
            (b"[1" + b"0" * 308 + b"]", [10**308]),
            (b"1e-999", 0.0),
        ],
    )
    def test_it_reads(self, text: bytes, value: object) -> None:
        assert read(text) == value

    @given(value=JSON_VALUES)
    @settings(database=None, deadline=None)
    def test_what_is_written_is_valid_and_the_same_but_for_surrogates(self, value: Any) -> None:
        found = read(json.dumps(value).encode())
        assert json.loads(written(found).decode()) == without_surrogates(found)


class TestHalfCharacters:
    """F39: Node clients cut emoji in half"""

    @pytest.mark.parametrize(
        ("text", "mended"),
        [
            (rb'"\ud83d"', rb'"\ufffd"'),
            (rb'"\uDE00x"', rb'"\ufffdx"'),
            (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
            (rb'"\uD83D", "?\ud83d"', rb'"\ufffd", "?\ufffd"'),
            (rb'"\uD83D\uD83D\uDE00"', rb'"\ufffd' + "😀".encode() + b'"'),
            (rb'"\ude00\ud83d"', rb'"\ufffd\ufffd"'),
            (rb'"\\ud83d"', rb'"\\ud83d"'),
            (rb'"\\\ud83d"', rb'"\\\ufffd"'),
            (rb'"\ud83d\\ude00"', rb'"\ufffd\\ude00"'),
            (rb'"\u00e4\ud7ff\ue000"', rb'"\u00e4\ud7ff\ue000"'),
            (rb'"\n\ud83d\n"', rb'"\n\ufffd\n"'),
            (rb'"\ud83d?\"\u003f"', rb'"\ufffd?\"\u003f"'),
            (b'"\\ud83d\x03n\\ud83d"', b'"\\ud83d\x03n\\ud83d"'),
            (b'"' + b"\\" * 100 + rb'\ud83d"', b'"' + b"\\" * 100 + rb'\ufffd"'),
            (b'"' + b"\\" * 101 + rb'\ud83d"', b'"' + b"\\" * 101 + rb'\ud83d"'),
            (rb'"\ud83d", "\ud8"', rb'"\ud83d", "\ud8"'),
        ],
    )
    def test_only_halves_are_replaced(self, text: bytes, mended: bytes) -> None:
        assert with_whole_characters(text) == mended

    @given(value=JSON_VALUES)
    @settings(database=None, deadline=None)
    def test_it_reads_as_the_standard_parser_does_but_for_halves(self, value: Any) -> None:
        text = json.dumps(value).encode()
        assert read(with_whole_characters(text)) == read(written(read(text)))


class TestSurrogates:
    """F39: replaced once, at one place"""

    def test_a_struct_is_copied_with_all_that_is_in_it(self) -> None:
        frame = Queued(message_id="\udc80", target="a\ud83d", position=1)
        assert without_surrogates(frame) == Queued(message_id="\ufffd", target="a\ufffd", position=1)
        assert frame.target == "a\ud83d"

    def test_containers_and_keys(self) -> None:
        value = {"\ud800": ["\udfff", ("x", None, 1.5)]}
        assert without_surrogates(value) == {"\ufffd": ["\ufffd", ["x", None, 1.5]]}

    def test_bytes_that_are_json_already_stay(self) -> None:
        raw = Raw(b'"x"')
        copy = without_surrogates(MessageFrame(sender=raw, message=raw))
        assert copy.sender is raw
        assert copy.channel is UNSET
