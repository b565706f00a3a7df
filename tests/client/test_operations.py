"""The table of moves: what is legal happens, what is not changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client.operations import MOVES, Opening, Operation, RequestOperation, Stage
from intercom.errors import BrokerBusy, ConnectionLost, RequestTimeout
from intercom.wire.frames import Groups, ListGroups


def request() -> RequestOperation[Any]:
    return RequestOperation(ListGroups, Groups, lambda answer: answer.groups, deadline=1_000)


@pytest.mark.parametrize("start", Stage)
@pytest.mark.parametrize("end", Stage)
def test_every_move(start: Stage, end: Stage) -> None:
    """Rules 1 and 2 of the module."""
    operation: Operation[Any] = Operation(None)
    operation.stage = start
    if end in MOVES[start]:
        operation._move(end)
        assert operation.stage is end
    else:
        with pytest.raises(RuntimeError):
            operation._move(end)
        assert operation.stage is start


def test_nothing_leaves_done() -> None:
    assert not MOVES[Stage.DONE]


def test_an_operation_is_settled_once() -> None:
    operation = request()
    operation.succeed([])
    with pytest.raises(RuntimeError):
        operation.fail(ConnectionLost("late"))
    assert (operation.result, operation.error, operation.due) == ([], None, None)


def test_a_request_that_is_not_answered() -> None:
    operation = request()
    operation.attempt("r1")
    operation.tick(999, None)
    assert not operation.done
    operation.tick(1_000, None)
    assert isinstance(operation.error, RequestTimeout)


def test_a_request_that_could_not_be_written_says_why() -> None:
    operation = request()
    trouble = BrokerBusy("full")
    operation.tick(1_000, trouble)
    assert isinstance(operation.error, BrokerBusy)
    assert operation.error is not trouble


def test_opening_says_why_it_took_too_long() -> None:
    opening, silent = Opening(1_000), Opening(1_000)
    opening.tick(1_000, BrokerBusy("full"))
    assert isinstance(opening.error, BrokerBusy)
    silent.tick(1_000, None)
    assert isinstance(silent.error, ConnectionLost)


def test_a_lost_request_waits_again() -> None:
    operation = request()
    operation.lost()
    assert operation.stage is Stage.WAITING
    operation.attempt("r1")
    operation.lost()
    assert operation.stage is Stage.WAITING
    assert operation.attempt("r2") == ListGroups("r2")
