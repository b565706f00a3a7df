from __future__ import annotations

import pytest

from intercom.cli.choosing import chosen
from intercom.errors import RequestRefused

IDS = ["abcd-1", "abcd-2", "wxyz-9", "abcd"]


def found(wanted: str, ids: list[str] = IDS) -> str:
    return chosen(
        ids,
        str,
        wanted,
        none=lambda: RequestRefused("none", code="unknown"),
        many=lambda count: RequestRefused(str(count), code="ambiguous"),
    )


@pytest.mark.parametrize(
    ("wanted", "item"),
    [("abcd-1", "abcd-1"), ("ABCD-2", "abcd-2"), (" wxyz-9 ", "wxyz-9"), ("wxyz", "wxyz-9"), ("abcd", "abcd")],
)
def test_an_id_or_the_beginning_that_only_one_has(wanted: str, item: str) -> None:
    assert found(wanted) == item


@pytest.mark.parametrize(("wanted", "code"), [("wxy", "unknown"), ("nothing", "unknown"), ("", "unknown")])
def test_too_short_or_not_there(wanted: str, code: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        found(wanted)
    assert caught.value.code == code


def test_several() -> None:
    with pytest.raises(RequestRefused) as caught:
        found("abcd", IDS[:3])
    assert (caught.value.code, caught.value.reason) == ("ambiguous", "2")
