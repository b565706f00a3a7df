"""Find numbers that are beyond a double, and no others (protocol 1.3, F38)."""

from __future__ import annotations

import json
from math import isinf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.limits import GREAT_NUMBERS
from intercom.wire.codec import ProtocolError, decode_request
from intercom.wire.jsontext import read
from intercom.wire.numbers import OUT_OF_RANGE, TOO_MANY, flaw_of_numbers, has_too_many

NUMERALS = st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?0{0,5}[0-9]{1,4})?", fullmatch=True)
LONG_NUMERALS = st.builds(
    lambda head, zeros, tail: f"{head}{'0' * zeros}{tail}",
    st.integers(min_value=-20, max_value=20).filter(bool),
    st.integers(min_value=60, max_value=330),
    st.sampled_from(["", ".5", "e1", "e99", "e+0199", "e200", "E-200"]),
)
STRINGS = st.text('1e+9\\"0 ,[u', max_size=12).map(json.dumps) | NUMERALS.map(json.dumps)
VALUES = STRINGS | NUMERALS | LONG_NUMERALS | st.sampled_from(["true", "false", "null", "[]", "1.7976931348623157e308"])


def holds_beyond_double(text: bytes) -> bool:
    return flaw_of_numbers(text) == OUT_OF_RANGE


def is_refused(text: bytes) -> bool:
    try:
        read(text)
    except ValueError:
        return True
    return False


class TestDoubles:
    """protocol 1.3: a number beyond a double cannot be read by everybody"""

    @pytest.mark.parametrize(
        "number",
        [
            "1e309",
            "-1E+309",
            "9.9e0310",
            "1" + "0" * 309,
            "1" + "0" * 250 + "e60",
            "0.1e999",
            "123456e304",
            "1e1000000",
            "9" * 30 + "e279",
            "9" * 29 + ".5E+0280",
            "8" * 110 + "e199",
        ],
    )
    def test_no_number_beyond_a_double_is_missed(self, number: str) -> None:
        with pytest.raises(ValueError):
            read(b"[%b]" % number.encode())
        assert holds_beyond_double(b'{"x":[%b]}' % number.encode())

    @pytest.mark.parametrize(
        "text",
        [
            "12",
            "1.5e99",
            "1E+12",
            "1e-999",
            "1e199",
            "1.5e279",
            "9" * 27 + "e279",
            "9" * 99,
            '"cafe0"',
            '"a1e10"',
            "[0,0,0]",
        ],
    )
    def test_usual_numbers_and_texts_are_passed_over(self, text: str) -> None:
        assert not holds_beyond_double(text.encode())

    @given(values=st.lists(VALUES, max_size=6), between=st.sampled_from([",", " , ", ",{},", ',"1e999",']))
    @settings(database=None, deadline=None)
    def test_it_finds_what_the_standard_parser_refuses(self, values: list[str], between: str) -> None:
        """Digits and exponents in strings are no numbers, however their quotes are escaped"""
        text = f'{{"a1e999":[{between.join(values)}],"e":1e5}}'.encode()
        try:
            json.loads(text)
        except ValueError:
            return
        assert holds_beyond_double(text) == is_refused(text)

    @pytest.mark.parametrize("many", [b"1.7976931348623157e308,", b'"1e999",', b"1" + b"0" * 308 + b",", b"1E+000200,"])
    @pytest.mark.parametrize("last", [b"1e309", b"1" + b"0" * 309, b"1e308", b'"1e309"'])
    def test_many_of_them_are_told_apart(self, many: bytes, last: bytes) -> None:
        """Those that are just within a double are looked at one by one, up to a few thousand"""
        for count in (1, 100, 1_000):
            text = b"[" + many * count + last + b"]"
            assert holds_beyond_double(text) == (not last.startswith(b'"') and isinf(float(last)))

    def test_each_is_counted_once(self) -> None:
        """protocol 1.3: however many hundreds of digits it has"""
        many = b"[" + (b"-" + b"1" * 308 + b",") * GREAT_NUMBERS
        assert flaw_of_numbers(many + b"0]") is None
        assert flaw_of_numbers(many + b"1e200]") == TOO_MANY

    def test_only_great_ones_are_counted(self) -> None:
        """protocol 1.3: from 1e200 on, or with four digits in their exponent"""
        small = b"[" + b"1e30," * (GREAT_NUMBERS + 1)
        assert flaw_of_numbers(small + b"1e100]") is None
        assert flaw_of_numbers(small + b"1e300]") is None
        assert flaw_of_numbers(small + b"1e310]") == OUT_OF_RANGE
        half = b"[" + (b"1e30," + b"1e0001,") * (GREAT_NUMBERS // 2 + 1)
        assert flaw_of_numbers(half + b"0]") is None
        assert flaw_of_numbers(half + b"1e300," * (GREAT_NUMBERS // 2) + b"0]") == TOO_MANY

    @pytest.mark.parametrize("number", ["1" + "0" * 400 + "e-300", "9" * 120 + "." + "9" * 120, "1e0001", "0e0999"])
    def test_long_numbers_that_a_double_holds_are_fine(self, number: str) -> None:
        assert not holds_beyond_double(b"[%b]" % number.encode())

    @pytest.mark.parametrize("text", ["1e3e999", "1.2.3e300", "--1e300", "-e99999", "1" * 100 + "e"])
    def test_what_looks_like_a_number_in_one_of_many_strings_is_none(self, text: str) -> None:
        """F37: what a person wrote passes whole"""
        strings = b'["%b"%b' % (text.encode(), b',"1e300"' * 100)
        assert flaw_of_numbers(strings + b"]") is None
        assert flaw_of_numbers(strings + b",1e999]") == OUT_OF_RANGE

    def test_so_many_great_ones_in_many_strings_are_fine(self) -> None:
        strings = b"[" + b'"1e300",' * (GREAT_NUMBERS + 1)
        assert flaw_of_numbers(strings + b"0]") is None
        assert not has_too_many(strings)
        assert has_too_many(b"[" + b'1e300,"",' * (GREAT_NUMBERS + 1))

    @pytest.mark.parametrize("great", [b"1.7976931348623157e308,", b"1" + b"0" * 150 + b",", b"-1E+0301,"])
    def test_so_many_great_ones_are_not_read(self, great: bytes) -> None:
        """protocol 1.3: each takes longer than anything else in a frame"""
        few, many = great * GREAT_NUMBERS, great * (GREAT_NUMBERS + 1)
        assert flaw_of_numbers(b"[" + few + b"0]") is None
        assert flaw_of_numbers(b"[" + many + b"0]") == TOO_MANY
        assert flaw_of_numbers(b'["' + many + b'",0]') is None, "what is in strings is no number"
        decode_request(b'{"type":"list","requestId":"r","x":[' + few + b"0]}")
        decode_request(b'{"type":"list","requestId":"r","x":"' + many + b'"}')
        for begin in (b'{"type":"list","requestId":"r","x":[', b'{"type":"register","session":{"x":[', b"["):
            with pytest.raises(ProtocolError, match=f"{GREAT_NUMBERS} numbers"):
                decode_request(begin + many)


def test_a_text_may_be_one_number() -> None:
    """protocol 1.3"""
    assert holds_beyond_double(b"1e400") and not holds_beyond_double(b"1e300")
