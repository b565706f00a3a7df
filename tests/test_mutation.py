"""Read what a mutation tool has written: which small change of which function no test noticed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from scripts.mutation.main import LISTED, TOP, survivors

MUTATED = """
class Meter:
    @_mutmut_mutated(mutants_of_read)
    def read(self, at: int, more: bool = False) -> int:
        return self._sum + at

    def xǁMeterǁread__mutmut_orig(self, at: int, more: bool = False) -> int:
        return self._sum + at

    def xǁMeterǁread__mutmut_1(self, at: int, more: bool = True) -> int:
        return self._sum + at

    def xǁMeterǁread__mutmut_2(self, at: int, more: bool = False) -> int:
        return self._sum - at

    # --- what is below ---

def x_double__mutmut_orig(
    at: int,
) -> int:
    if at:
        return 2 * at
    return 0

def x_double__mutmut_1(
    at: int,
) -> int:
    if at:
        return 3 * at
    return 0
"""


def test_what_no_test_noticed_is_named_by_its_lines(tmp_path: Path) -> None:
    """Numbers of variants change with every line above them; what is changed into what does not."""
    mutated = tmp_path / "meter.py"
    mutated.write_text(MUTATED)
    statuses = {
        "intercom.meter.xǁMeterǁread__mutmut_1": 0,
        "intercom.meter.xǁMeterǁread__mutmut_2": 1,
        "intercom.meter.x_double__mutmut_1": 33,
    }
    mutated.with_name("meter.py.meta").write_text(json.dumps({"exit_code_by_key": statuses}))
    signature = "def xǁMeterǁread(self, at: int, more: bool = {}) -> int:"
    assert survivors(mutated) == [
        ("read", signature.format(False), signature.format(True)),
        ("double", "return 2 * at", "return 3 * at"),
    ]


def test_what_is_listed_is_of_files_that_are_there_and_has_a_reason() -> None:
    for module, changes in tomllib.loads(LISTED.read_text()).items():
        assert (TOP / module).is_file()
        assert all(set(change) == {"function", "line", "becomes", "why"} and change["why"] for change in changes)
