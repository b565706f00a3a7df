from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from intercom.client.choosing import begun_by, chosen, in_reach, matching, may_begin_an_id, near_names, question_called
from intercom.client.mailviews import PendingAsk
from intercom.errors import RequestRefused


def ask(message_id: str) -> PendingAsk:
    return PendingAsk(message_id=message_id, asker_id="a", asker_name=None, asker_is_here=True, asked_at=0, deadline=1)


def test_which_question_is_meant() -> None:
    questions = [ask("abcd-1"), ask("abcd-2"), ask("abcd")]
    assert question_called(questions, "abcd").message_id == "abcd"
    assert question_called(questions, "abcd-2").message_id == "abcd-2"
    with pytest.raises(RequestRefused) as caught:
        question_called(questions, "abcd-")
    assert (caught.value.code, caught.value.exit_status) == ("ambiguous_question", 4)
    with pytest.raises(RequestRefused):
        question_called([ask("abc1")], "abc")


def view(session_id: str, name: str | None = None) -> Any:
    return SimpleNamespace(id=session_id, name=name, raw={})


@pytest.mark.parametrize(
    ("target", "may"),
    [
        ("1a2b", True),
        (" 1A2B3 ", True),
        ("1a2b3c4d", False),
        ("1a2b3c4d-5", True),
        ("1a2", False),
        ("worker", False),
        ("", False),
        ("1a2b3c4d-0000-4000-8000-000000000001", False),
    ],
)
def test_what_may_be_the_beginning_of_an_id(target: str, may: bool) -> None:
    """F46; protocol 6.2.1: exactly eight digits are the broker's to look up."""
    assert may_begin_an_id(target) is may


def test_a_beginning_means_the_others_it_fits() -> None:
    views = [view("1a2b3c", "x"), view("1A2Bff"), view("1a2bown"), view("9")]
    assert [found.id for found in begun_by(views, "1a2b", "1a2bown") or ()] == ["1a2b3c", "1A2Bff"]
    assert begun_by([*views, view("7", "1a2b")], "1A2B", "own") is None, "a name comes first"
    assert [found.id for found in matching(views, " X ", "own")] == ["1a2b3c"]


def test_names_that_are_like_it() -> None:
    """F50."""
    away = SimpleNamespace(name="tester", groups=("default",))
    walled = SimpleNamespace(name="testor", groups=("other",))
    addresses: Any = [away, walled]
    assert near_names("testr", [view("1", "Test"), view("2")], in_reach(addresses, ["default"])) == ["tester", "Test"]


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
