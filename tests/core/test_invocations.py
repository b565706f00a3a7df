"""Test the tables of runs and jobs, and that a move and its row are one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.core.clock import Instant
from intercom.core.invocation_records import InvocationRecord
from intercom.core.invocations import ENDED, JOB, NOBODY, RUN, IllegalMove, Invocation, Invocations, Texts, texts_of
from intercom.core.journal import Journal
from intercom.core.move import Move, take_back
from intercom.core.records import Happened, ReleaseBody, SaveBody
from intercom.limits import Limits

NOW = Instant(1_000, 1_700_000_000_000)


def record(**members: Any) -> InvocationRecord:
    values: dict[str, Any] = {
        "number": 7,
        "invocation_id": "i",
        "run_id": "r",
        "requester": "session:a",
        "target": "b",
        "target_name": "b",
        "action": "execute",
        "ensure_awake": False,
        "fingerprint": "f",
        "size": 2,
        "created_at": NOW.wall,
        "state": "queued",
        "asked_as": "@b",
        **members,
    }
    return InvocationRecord(**values)


def book(**members: Any) -> tuple[Invocations, Invocation]:
    found = Invocations(Journal(0), Limits())
    return found, found.recover(record(**members), NOBODY)


@pytest.mark.parametrize("state", RUN)
@pytest.mark.parametrize("to", [*RUN])
def test_a_run_goes_only_where_its_table_says(state: str, to: str) -> None:
    """FE 3.3; rule 2 of the core: an illegal move raises and changes nothing."""
    found, invocation = book(state=state)
    before, move = invocation.record, Move()
    if to in RUN[state]:
        found.change(invocation, "run.updated", move, NOW, state=to)
        assert invocation.record.state == to and len(move.changes) == 1
    elif to != state:
        with pytest.raises(IllegalMove):
            found.change(invocation, "run.updated", move, NOW, state=to)
        assert invocation.record is before and move.changes == []


@pytest.mark.parametrize("job", JOB)
@pytest.mark.parametrize("to", [*JOB])
def test_a_job_goes_only_where_its_table_says(job: str, to: str) -> None:
    """FE 3.3: terminal states never run."""
    found, invocation = book(job=job)
    if to in JOB[job] or to == job:
        found.change(invocation, "run.updated", Move(), NOW, job=to)
        assert invocation.record.job == to
    else:
        with pytest.raises(IllegalMove):
            found.change(invocation, "run.updated", Move(), NOW, job=to)
        assert invocation.record.job == job


def test_what_the_broker_assumed_gives_way() -> None:
    """FE 3.3: a later real update may undo only a reconciled failure."""
    _, real = book(state="failed")
    _, assumed = book(state="failed", reconciled=True)
    assert not real.allows("completed") and assumed.allows("completed") and assumed.allows("running")


def test_an_equal_row_is_not_written() -> None:
    """A3.13"""
    found, invocation = book()
    move = Move()
    found.change(invocation, "run.updated", move, NOW, attempts=0, last_error=None)
    assert move.changes == [] and move.inverses == []


def test_an_end_stores_its_texts_and_lets_them_go_later() -> None:
    """FE 3.4 Fail accepted: keeps runId and startedAt; design section 5, Privacy: 24 h."""
    found, invocation = book(state="running", started_at=5, job="completed")
    move = Move()
    found.end(invocation, "failed", Texts(error="no"), move, NOW, 9)
    row = invocation.record
    assert (row.run_id, row.started_at, row.completed_at, row.result) == ("r", 5, NOW.wall, 9)
    event, saved, *released = move.changes
    assert isinstance(event, Happened) and event.detail == {"previousState": "running"}
    assert isinstance(saved, SaveBody) and texts_of(saved.message) == Texts(error="no")
    until = NOW.wall + Limits().bodies_kept_ms
    assert released == [ReleaseBody(9, until), ReleaseBody(7, until)]
    assert found.open_ones() == []
    take_back(move, NOW)
    assert [one.record.state for one in found.open_ones()] == ["running"]


@given(
    st.lists(st.tuples(st.sampled_from(["take", "wait", "end", "fail", "keep", "undo"]), st.booleans()), max_size=20)
)
def test_any_moves_leave_one_end_and_can_be_taken_back(steps: list[tuple[str, bool]]) -> None:
    """FE 5.3: the first terminal outcome wins; design section 3.6: each append carries its inverse."""
    found, invocation = book()
    ends = 0
    for number, (step, fails) in enumerate(steps, 20):
        before, move = invocation.record, Move()
        try:
            if step == "take":
                found.take(invocation, "w", move, NOW)
            elif step == "wait":
                found.take(invocation, "w", move, NOW, "waiting")
            elif step == "keep":
                found.keep_texts(invocation, Texts(summary=str(number)), move, NOW, number)
            elif step in ("end", "fail"):
                found.end(invocation, "completed" if step == "end" else "failed", Texts(), move, NOW, number)
        except IllegalMove:
            assert invocation.record is before
            continue
        if fails or step == "undo":
            take_back(move, NOW)
            assert invocation.record == before
        elif invocation.record.state in ENDED and before.state not in ENDED:
            ends += 1
        record = invocation.record
        assert (invocation in found.open_ones()) is (record.state not in ENDED)
        is_going = record.state not in ENDED and bool(JOB[record.job])
        assert found.going_ones() == [invocation] * is_going
        holders = [(record.target, record.worker)] if record.state not in ENDED and not is_going else []
        assert found.held() == holders and [found.held_by(each) for each in holders] == [[invocation]] * len(holders)
    assert ends <= 1


def test_a_run_ends_once() -> None:
    """FE 3.3: the first end counts"""
    found, invocation = book(state="completed", job="completed")
    before, move = invocation.record, Move()
    with pytest.raises(IllegalMove, match="ends once"):
        found.end(invocation, "completed", Texts(output="again"), move, NOW, 9)
    assert invocation.record is before and not move.changes


def test_what_has_left_is_found_nowhere_whatever_is_said_of_it() -> None:
    """Rule 1: a row that was taken back is not entered again by what rested on it"""
    found, invocation = book()
    found.leave(invocation)
    found.change(invocation, "run.updated", Move(), NOW, state="running", held_by="w")
    assert found.get("i") is None and found.open_count == 0 and found.held() == []
