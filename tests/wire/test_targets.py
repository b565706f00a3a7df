"""Read and match the targets of workflow stages (protocol 6.12.1)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.limits import STAGE_TARGET_CHARACTERS
from intercom.wire.targets import (
    StageTarget,
    invocation_group,
    owns_group,
    parse_target,
    removed_form,
    root_run_of,
    segment_matches,
)

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
OTHER_RUN = "11111111-2222-4333-8444-555555555555"


def target(path: str, run_id: str = RUN) -> StageTarget:
    parsed = parse_target(f"workflow:{run_id}/{path}")
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("reviewer-a", "path"),
        ("child-boundary/reviewer-a", "path"),
        (" ", "path"),
        ("reviewer-*", "pattern"),
        ("*/reviewer", "pattern"),
        ("a**", "pattern"),
        ("**", "deep-pattern"),
        ("a/**/b", "deep-pattern"),
        ("*/**", "deep-pattern"),
    ],
)
def test_the_kind_follows_from_the_segments(path: str, kind: str) -> None:
    """protocol 6.12.1, the table of kinds"""
    assert target(path).kind == kind
    assert target(path).segments == tuple(path.split("/"))


@pytest.mark.parametrize(
    "text",
    [
        f"workflow:{RUN}",
        f"workflow:{RUN}/",
        f"workflow:{RUN}//b",
        f"workflow:{RUN}/a//b",
        f"workflow:{RUN}/a/",
        "workflow:run-1/x",
        f"Workflow:{RUN}/x",
        f"workflow: {RUN}/x",
        f" workflow:{RUN}/x",
        f"{RUN}/x",
        f"{RUN}:x",
        "",
        "workflow:7f0c2f5e-3b1a-0c6d-9e21-5a4b3c2d1e0f/x",
        "workflow:7f0c2f5e-3b1a-9c6d-9e21-5a4b3c2d1e0f/x",
        "workflow:7f0c2f5e-3b1a-4c6d-7e21-5a4b3c2d1e0f/x",
        "workflow:7f0c2f5e-3b1a-4c6d-ce21-5a4b3c2d1e0f/x",
        f"workflow:{RUN}/{'x' * STAGE_TARGET_CHARACTERS}",
    ],
)
def test_what_does_not_parse_is_no_target(text: str) -> None:
    """protocol 6.12.1"""
    assert parse_target(text) is None


def test_a_run_id_is_written_in_any_case() -> None:
    """protocol 6.12.1"""
    assert target("x", RUN.upper()).run_id == RUN.upper()


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("reviewer-*", "reviewer-a", True),
        ("reviewer-*", "reviewer-", True),
        ("reviewer-*", "reviewer", False),
        ("reviewer-*", "Reviewer-a", False),
        ("reviewer-*", "reviewer-a/b", False),
        ("*", "anything", True),
        ("*", "two/segments", False),
        ("a**", "abc", True),
        ("a**", "a/b", False),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "aXc", False),
        ("a*a", "a", False),
        ("*aa*aa", "aaa", False),
        ("*aa*aa", "aaaa", True),
        ("*.[x]?", "n.[x]?", True),
        ("*.[x]?", "n.x", False),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("**/reviewer", "reviewer", True),
        ("**/reviewer", "a/b/reviewer", True),
        ("**/reviewer", "a/reviewer/b", False),
        ("a/**", "a", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "b/z", False),
        ("**/a/**/a", "a", False),
        ("**/a/**/a", "b/a/a", True),
        ("a/b", "a/b", True),
        ("a/b", "a", False),
    ],
)
def test_a_pattern_uses_up_both_sides(pattern: str, path: str, expected: bool) -> None:
    """protocol 6.12.1: ``**`` takes any number of segments, ``*`` any run of characters, all else is literal"""
    assert target(pattern).matches(target(path)) is expected


def test_stars_of_a_candidate_are_ordinary_characters() -> None:
    assert target("a*").matches(target("a*"))
    assert not target("b*").matches(target("*"))


def test_a_pattern_never_leaves_its_run() -> None:
    """protocol 6.12.1: the run is no segment"""
    assert not target("**").matches(target("a", OTHER_RUN))


LETTERS = st.text("ab*", min_size=1, max_size=6)


@given(pattern=st.lists(LETTERS, min_size=1, max_size=5), path=st.lists(st.text("ab", min_size=1), min_size=1))
def test_matching_agrees_with_a_regular_expression(pattern: list[str], path: list[str]) -> None:
    """protocol 6.12.1"""
    expression = ""
    for segment in pattern:
        if segment == "**":
            expression += "(?:/[^/]+)*"
        else:
            expression += "/" + "".join("[^/]*" if char == "*" else char for char in segment)
    found = re.fullmatch(expression, "/" + "/".join(path)) is not None
    assert target("/".join(pattern)).matches(target("/".join(path))) is found


def test_a_hostile_pattern_costs_no_time() -> None:
    """F38: bad input never costs anybody else anything; a backtracking matcher would not come to an end here"""
    assert not target("/".join(["**", "a"] * 600)).matches(target("/".join(["a"] * 1_500 + ["b"])))
    assert not segment_matches("*a" * 1_500 + "*b", "a" * 3_000)


def test_a_target_gets_another_last_segment() -> None:
    assert target("child/st-1").with_last("reviewer") == f"workflow:{RUN}/child/reviewer"
    assert target("child/st-1").last == "st-1"
    assert target("child/st-1").invocation_group == invocation_group(RUN) == f"workflow:{RUN}"


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("g", True),
        ("g/sub", True),
        ("g/sub/deeper", True),
        ("g-other", False),
        ("", False),
        ("sub/g", False),
    ],
)
def test_a_group_owns_itself_and_its_subgroups(group: str, expected: bool) -> None:
    """protocol 6.12.1, ownership of groups"""
    assert owns_group("g", group) is expected


@pytest.mark.parametrize(
    ("group", "run_id"),
    [("workflow:R", "R"), ("workflow:R/sub/x", "R"), ("workflow:", None), ("workflow:/x", None), ("team", None)],
)
def test_an_invocation_group_names_its_run(group: str, run_id: str | None) -> None:
    """protocol 6.3"""
    assert root_run_of(group) == run_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{RUN}:reviewer", (RUN, "reviewer")),
        (f"{RUN}:a:b/c", (RUN, "a:b/c")),
        (f"{RUN}:", None),
        (RUN, None),
        ("bob:reviewer", None),
        (f"workflow:{RUN}/reviewer", None),
    ],
)
def test_the_removed_form_is_recognised(text: str, expected: tuple[str, str] | None) -> None:
    """protocol 4.8 B5"""
    assert removed_form(text) == expected
