"""End the tasks of invocations that a model was given, by the id of the message that brought each.

The broker knows which are open, so one that an earlier adapter of this session was given can be ended as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard

from intercom.client.choosing import TASK_PREFIX, task_called
from intercom.client.invoking import ENDED, InvocationView
from intercom.client.lifecycle import INVOKE
from intercom.client.peertext import short
from intercom.client.texts import visible
from intercom.errors import IntercomError
from intercom.limits import STOP_REMINDERS, WORK_PAGE_CEILING
from intercom.mcp import wording

if TYPE_CHECKING:
    from intercom.client.aio import Session
    from intercom.mcp.seat import Seat

GoesOn: TypeAlias = Literal["running", "waiting"]
END = "end"
"""Names the update that ends a run: called again with the same words it is the same one."""


def may_name_one(wanted: str | None) -> TypeGuard[str]:
    """Tell whether an id is that of a message that brought a task, or its beginning."""
    return wanted is not None and wanted.strip().lower().startswith(TASK_PREFIX)


def outcome(is_error: bool, is_stopped: bool) -> str:
    """Return the state a run is ended with."""
    return "failed" if is_error else "cancelled" if is_stopped else "completed"


async def open_ones(session: Session) -> list[InvocationView]:
    """Return what a session, or its address, was given to do and has not ended; none of a broker without them."""
    if INVOKE not in session.features:
        return []
    found: list[InvocationView] = []
    while True:
        below = found[-1].number if found else None
        page = await session.invocations(before=below, limit=WORK_PAGE_CEILING, open_only=True, as_target=True)
        found += page
        if len(page) < WORK_PAGE_CEILING:
            return found


async def lines(seat: Seat, session: Session) -> list[str]:
    """Return a line for each task that is open."""
    return _lines(seat, await open_ones(session))


async def owed_by(seat: Seat) -> list[InvocationView]:
    """Return the tasks that were shown as messages, are open, and were put forward seldom enough.

    One that waits for something by the word of the model is no reason to go on.
    """
    known = set(seat.known_ids)
    if seat.session is None or not any(map(may_name_one, known)):
        return []
    try:
        given = await open_ones(seat.session)
    except IntercomError:
        return []
    shown = [one for one in given if TASK_PREFIX + one.run_id in known]
    urgent = [one for one in shown if one.state != "waiting"]
    return [one for one in urgent if seat.reminded.get(TASK_PREFIX + one.run_id, 0) < STOP_REMINDERS]


def reminder(seat: Seat, owed: list[InvocationView]) -> str:
    """Return what keeps a host from stopping while somebody waits for the end of a task."""
    for one in owed:
        message_id = TASK_PREFIX + one.run_id
        seat.reminded[message_id] = seat.reminded.get(message_id, 0) + 1
    named = "\n".join(_lines(seat, owed))
    return (
        f"Tasks you were given through intercom wait for your report:\n{named}\n"
        "End each with the intercom tool reply, with its error argument if it will not be done, or say with state "
        "waiting what it waits for. Then you may stop; go on first if you are still at it."
    )


def _lines(seat: Seat, given: list[InvocationView]) -> list[str]:
    return [wording.task(one, is_taken_back=one.run_id in seat.work.taken_back) for one in given]


async def end(seat: Seat, session: Session, wanted: str, text: str, state: str) -> str:
    """End a task, and say what that led to; the broker refuses with ``run_terminal`` when it had ended otherwise."""
    task = await _called(session, wanted)
    output, error = (text, None) if state == "completed" else (None, text)
    reached = await session.update_run(task.id, state, output=output, error=error, update_id=END)
    seat.work.task_ended(task.run_id)
    named = f"task {TASK_PREFIX}{short(task.run_id)}"
    if reached != state:
        return f"{named} is {reached} already; nothing was changed"
    return f"{named} was reported as {state} to who asked for it ({visible(task.id)})"


async def go_on(session: Session, wanted: str, text: str, state: GoesOn) -> str:
    """Say how far a task is that goes on, and say what that led to."""
    task = await _called(session, wanted)
    reached = await session.update_run(task.id, state, summary=text)
    named = f"task {TASK_PREFIX}{short(task.run_id)}"
    if reached != state:
        return f"{named} is {reached} already; nothing was changed"
    return f"{named} is {state}; {visible(task.id)} shows what you said of it to who asked. End it when it is over."


async def _called(session: Session, wanted: str) -> InvocationView:
    """Return the task that is meant: an open one, else one that ended, of which the broker says so."""
    given = await open_ones(session)
    plain = wanted.strip().lower()
    if INVOKE in session.features and not any((TASK_PREFIX + one.run_id).lower().startswith(plain) for one in given):
        newest = await session.invocations(limit=WORK_PAGE_CEILING, as_target=True)
        given = [one for one in newest if one.state in ENDED]
    return task_called(given, wanted)
