from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from intercom.cli.naming import AmbiguousAmong, helpful, resolved
from intercom.client.blocking import Session
from intercom.client.stage_views import StageView
from intercom.client.views import SessionView
from intercom.errors import AmbiguousTarget, NoBroker, SendRefused, TargetNotFound


def view(session_id: str, name: str | None) -> SessionView:
    return SessionView(
        id=session_id,
        name=name,
        cwd="/x",
        model="m",
        pid=1,
        peer_pid=1,
        status=None,
        group="default",
        groups=("default",),
        started_at=0,
        last_activity=0,
        raw={"id": session_id, "name": name},
    )


class Lists:
    """Stand for a session that can list."""

    id = "own"
    groups = ("default",)

    def __init__(self, *views: SessionView, error: Exception | None = None) -> None:
        self._views = list(views)
        self._addresses: list[Any] = []
        self._error = error

    def addresses(self) -> list[Any]:
        return self._addresses

    def list(self, *, timeout: float = 5) -> list[SessionView]:
        if self._error is not None:
            raise self._error
        return self._views


def session(*views: SessionView, error: Exception | None = None) -> Session:
    return cast(Session, Lists(*views, error=error))


def test_candidates_are_those_that_the_target_can_mean() -> None:
    """F45."""
    here = session(view("a-1", "Twin"), view("b-2", "twin"), view("c-3", "other"))
    with pytest.raises(AmbiguousAmong) as caught, helpful(here, " TWIN "):
        raise AmbiguousTarget("several")
    document: dict[str, Any] = caught.value.as_dict()
    assert [candidate["id"] for candidate in document["candidates"]] == ["a-1", "b-2"]
    assert [line.split()[0] for line in caught.value.lines] == ["ID", "a-1", "b-2"]


def elsewhere(session_id: str, name: str, node: str) -> SessionView:
    found = view(session_id, name)
    found.raw["node"] = node
    return found


def test_candidates_on_other_machines_are_shown_by_names_that_lead_to_one_alone() -> None:
    """F45: what is shown can be copied, and is meant alone."""
    views = [view("a-1", "twin"), elsewhere("b-2", "Twin", "studio"), elsewhere("c-3", "twin", "attic")]
    here = session(*views, elsewhere("d-4", "twin", "attic"))
    with pytest.raises(AmbiguousAmong) as caught, helpful(here, "twin"):
        raise AmbiguousTarget("several")
    assert [line.split()[:2] for line in caught.value.lines] == [
        ["ID", "NAME"],
        ["a-1", "-"],
        ["b-2", "Twin@studio"],
        ["c-3", "-"],
        ["d-4", "-"],
    ]
    with pytest.raises(AmbiguousAmong) as caught, helpful(here, "twin@attic"):
        raise AmbiguousTarget("several")
    assert [candidate.id for candidate in caught.value.candidates] == ["c-3", "d-4"]


def test_those_here_are_named_with_this_machine_beside_those_elsewhere() -> None:
    """F45: `name@node` leads to one here, too; the broker is asked what this machine is called only for that."""
    views = [view("a-1", "twin"), view("a-2", "twins"), elsewhere("b-2", "twin", "studio")]
    asked: list[int] = []

    def machine(found: Sequence[SessionView]) -> str:
        asked.append(len(found))
        return "laptop"

    with pytest.raises(AmbiguousAmong) as caught, helpful(session(*views), "twin", machine):
        raise AmbiguousTarget("several")
    assert [line.split()[:2] for line in caught.value.lines] == [
        ["ID", "NAME"],
        ["a-1", "twin@laptop"],
        ["b-2", "twin@studio"],
    ]
    few = session(view("abcd-1", "x"), elsewhere("abcd-2", "x", "studio"))
    with pytest.raises(AmbiguousAmong) as caught:
        resolved(few, "abcd", 1, machine)
    assert [line.split()[1] for line in caught.value.lines] == ["NAME", "x@laptop", "x@studio"]
    assert asked == [2, 2]


def test_the_session_that_asks_is_no_candidate() -> None:
    """``send --as X X``: the command's own session is gone before its id could be used."""
    here = session(view("a-1", "X"), view("own", "X"), view("b-2", "X"))
    with pytest.raises(AmbiguousAmong) as caught, helpful(here, "X"):
        raise AmbiguousTarget("several")
    assert [candidate.id for candidate in caught.value.candidates] == ["a-1", "b-2"]


def test_similar_names_are_offered() -> None:
    """F50."""
    here: Any = session(view("a-1", "Engineer"), view("b-2", "planner"), view("c-3", None))
    with pytest.raises(TargetNotFound) as caught, helpful(here, "enginer"):
        raise TargetNotFound("Session not found")
    assert caught.value.hint == "Did you mean Engineer? `intercom list` shows who can be reached."
    here._addresses = [SimpleNamespace(name="tester", groups=("default",)), SimpleNamespace(name="texter", groups=())]
    with pytest.raises(TargetNotFound) as caught, helpful(here, "teste"):
        raise TargetNotFound("Session not found")
    assert caught.value.hint.startswith("Did you mean tester? "), "an address in reach, for which mail would wait"
    here._views.append(elsewhere("d-4", "writer", "studio"))
    with pytest.raises(TargetNotFound) as caught, helpful(here, "writer@studoi"):
        raise TargetNotFound("Session not found")
    assert caught.value.hint.startswith("Did you mean writer@studio or ")
    with pytest.raises(TargetNotFound) as caught, helpful(here, "xyz"):
        raise TargetNotFound("Session not found")
    assert caught.value.hint == TargetNotFound.hint


def test_help_that_cannot_be_had_is_left_out() -> None:
    here = session(error=NoBroker("gone"))
    with pytest.raises(AmbiguousAmong) as caught, helpful(here, "twin"):
        raise AmbiguousTarget("several")
    assert caught.value.lines == []
    with pytest.raises(SendRefused), helpful(here, "twin"):
        raise SendRefused("no")


def here_as(own: str, *views: SessionView) -> Session:
    found = Lists(*views)
    found.id = own  # type: ignore[attr-defined]
    return cast(Session, found)


ONE = "1a2b3c4d-0000-4000-8000-000000000001"
TWO = "1a2b3c4d-ffff-4000-8000-000000000002"


@pytest.mark.parametrize("target", ["1a2b", "1A2B3C4D-0", " 1a2b3c4d-00 ", ONE[:-1]])
def test_the_beginning_of_one_id_is_that_session(target: str) -> None:
    """F46: beginnings of any length; the wire itself knows eight digits only (protocol 6.2)."""
    views = [view(ONE, "a"), view("ffff0000-0000-4000-8000-000000000003", "b")]
    assert resolved(here_as("me", *views), target, 1) == ONE


@pytest.mark.parametrize("target", ["1a2", "1a2b3c4d", "worker", "", "-", ONE, "1a2g", "9999"])
def test_all_else_is_left_to_the_broker(target: str) -> None:
    assert resolved(here_as("me", view(ONE, "a")), target, 1) == target


def test_a_name_comes_before_a_beginning() -> None:
    assert resolved(here_as("me", view(ONE, "a"), view("x-1", "1A2B")), "1a2b", 1) == "1a2b"


def test_several_ids_that_begin_so_are_all_shown() -> None:
    """F46: a prefix that matches two lists both longer."""
    here = here_as("me", view(ONE, "a"), view(TWO, "b"))
    with pytest.raises(AmbiguousAmong) as caught:
        resolved(here, "1a2b3c4d-", 1)
    assert [line.split()[0] for line in caught.value.lines] == ["ID", ONE, TWO]
    assert resolved(here, "1a2b3c4d-f", 1) == TWO


def test_nobody_is_the_target_of_its_own_message() -> None:
    assert resolved(here_as(ONE, view(ONE, "a"), view(TWO, "b")), "1a2b3", 1) == TWO


def test_stages_that_are_like_the_target() -> None:
    """F50: a stage is named by its id or its name; nothing about sessions is said."""
    group = "workflow:7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"

    class ListsStages(Lists):
        def list_stages(self) -> list[StageView]:
            if self._error is not None:
                raise self._error
            given: dict[str, Any] = {"run_id": "r", "group": group, "raw": {}}
            return [
                StageView(state="pending", target=f"{group}/st-1", id="st-1", name="reviewer-a", **given),
                StageView(state="possible", target=f"{group}/reviewer-b", **given),
            ]

    hints = []
    for error in (None, NoBroker("gone")):
        here = cast(Session, ListsStages(view("a-1", "reviewer-a"), error=error))
        with pytest.raises(TargetNotFound) as caught, helpful(here, f"{group}/reviewer-x"):
            raise TargetNotFound("Session not found")
        hints.append(caught.value.hint)
    assert hints[0].startswith(f"Did you mean {group}/reviewer-a")
    assert f"{group}/reviewer-b" not in hints[0]
    assert hints[1] == "`intercom list --group workflow:RUN` shows the stages of a run."
