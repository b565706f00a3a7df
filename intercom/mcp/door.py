"""Answer the hooks of the host on a socket of this adapter: who the session is, what waits, what is still owed.

A request is a JSON object on one line, its ``op`` says what is wanted; the answer is one line, and has ``ok``. What is
wrong with a request is said in the answer. Texts are complete: a hook only puts them into the form of its host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from intercom.client.flowsteps import FlowStep
from intercom.client.peertext import short
from intercom.client.profile import Push
from intercom.client.texts import visible, who
from intercom.errors import IntercomError, UsageError
from intercom.limits import (
    DOOR_CONNECTIONS,
    DOOR_LINE_BYTES,
    STOP_REMINDERS,
    STOPS,
    TOLD_CHARACTERS,
    TOLD_LEAST_CHARACTERS,
)
from intercom.mcp import tasks, wording
from intercom.mcp.seat import Seat
from intercom.mcp.seats import Seats
from intercom.mcp.tray import Batch

Answer = dict[str, Any]


class Listeners:
    """Be the way of a bell to whoever stays connected for it: a monitor, a rewake hook, a plugin.

    The first two are processes that the host turns into text for the model; a plugin is handed the messages themselves.
    """

    def __init__(self, kind: str, push: Push) -> None:
        self.name = kind
        self.open: list[Guest] = []
        self.spares: list[Listeners] = []
        """Ways whose bell would only repeat one that was rung here."""
        self._push = push

    def level(self, seat: Seat) -> Push | None:
        """Return what it gives while somebody listens; subagents are not reached by it."""
        return self._push if self.open and not seat.place.is_subagent else None

    async def ring(self, seat: Seat, text: str) -> bool:
        """Tell the newest that still listens."""
        for guest in reversed(self.open):
            if await guest.bell(seat, text):
                for other in self.spares:
                    await other.dismiss()
                return True
        return False

    async def dismiss(self) -> None:
        """End everybody without a word."""
        for guest in list(self.open):
            await guest.close()


class Guest:
    """Be one connection to the door."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._turn = anyio.Lock()
        self.batches: dict[str, Batch] = {}
        """What was handed to this connection and not reported as shown."""
        self.carries = False
        """Whether bells bring the messages themselves."""
        self.once = False
        """Whether one bell is all it wants."""
        self._numbers = 0

    def keep(self, batch: Batch) -> str:
        """Remember a batch until it was shown, and name it."""
        self._numbers += 1
        name = f"b{self._numbers}"
        self.batches[name] = batch
        return name

    def leave(self) -> None:
        """Let everything wait again that was not reported as shown."""
        for batch in self.batches.values():
            batch.back()
        self.batches.clear()

    async def bell(self, seat: Seat, text: str) -> bool:
        """Write a bell, with what waits if that is wanted; tell whether it could be written."""
        answer: Answer = {"ok": True, "text": text, "messages": len(seat.tray), "questions": seat.tray.questions}
        batch = None
        if self.carries:
            batch = await seat.take(TOLD_CHARACTERS)
            if batch is None:
                return True
            seat.was_carried = True
            answer |= {"text": batch.text, "messages": len(batch.items), "questions": batch.questions}
            answer["batch"] = self.keep(batch)
        if await self.write(answer):
            if self.once:
                await self._stream.aclose()
            return True
        return False

    async def write(self, answer: Answer) -> bool:
        """Write one line; tell whether the other side still reads."""
        async with self._turn:
            try:
                await self._stream.send(json.dumps(answer).encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return False
        return True

    async def close(self) -> None:
        """End the connection without a word."""
        await self._stream.aclose()


class Door:
    """Listen until it is cancelled; ``changed`` is called when a way to the host opened or closed."""

    def __init__(self, place: Path, seats: Seats, introduce: Callable[[Seat], Awaitable[str]]) -> None:
        self._place = place
        self._seats = seats
        self._introduce = introduce
        self.changed: Callable[[], object] = lambda: None
        self.monitor = Listeners("monitor", "now")
        self.rewake = Listeners("rewake", "idle")
        self.plugin = Listeners("plugin", "now")
        self.monitor.spares.append(self.rewake)
        self._guests = anyio.CapacityLimiter(DOOR_CONNECTIONS)

    async def run(self, listening: Callable[[], object]) -> None:
        """Answer whoever comes; a connection that breaks harms nobody else. ``listening`` is called when it begins."""
        with suppress(FileNotFoundError):
            os.unlink(self._place)
        listener = await anyio.create_unix_listener(self._place, mode=0o600)
        async with listener:
            listening()
            await listener.serve(self._serve)

    async def _serve(self, stream: SocketStream) -> None:
        guest = Guest(stream)
        try:
            async with stream, self._guests:
                await self._converse(stream, guest)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
            return  # it left in the middle of something, which is its own affair
        except (anyio.EndOfStream, anyio.DelimiterNotFound):
            return
        finally:
            guest.leave()
            self._forget(guest)

    async def _converse(self, stream: SocketStream, guest: Guest) -> None:
        lines = BufferedByteReceiveStream(stream)
        while True:
            line = await lines.receive_until(b"\n", DOOR_LINE_BYTES)
            try:
                answer = await self._answer(guest, _request(line))
            except IntercomError as error:
                answer = {"ok": False, **error.as_dict()}
            if answer is not None and not await guest.write(answer):
                return

    async def _answer(self, guest: Guest, request: Answer) -> Answer | None:
        wanted = request.get("op")
        operation = _OPERATIONS.get(wanted) if isinstance(wanted, str) else None
        if operation is None:
            raise UsageError("op is none of " + ", ".join(_OPERATIONS))
        return await operation(self, guest, request)

    # --- operations -------------------------------------------------------------------------------------

    async def _hello(self, guest: Guest, request: Answer) -> Answer:
        seat = await self._seats.hello(_needed(request, "session"), _optional(request, "agent"))
        session = seat.session
        return {
            "ok": True,
            "name": seat.place.name,
            "id": None if session is None else session.id,
            "address": seat.address,
            "groups": [] if session is None else list(session.groups),
            "push": seat.push,
            "waiting": len(seat.tray),
            "text": await self._introduce(seat),
        }

    async def _collect(self, guest: Guest, request: Answer) -> Answer:
        seat = await self._seats.of_hook(_optional(request, "session"), _optional(request, "agent"))
        moment = request.get("moment")
        if seat is not None and moment == "prompt":
            seat.stops = 0
        is_free = seat is not None and (moment != "stop" or _may_hold(seat, request))
        batch = await seat.take(_room(request)) if seat is not None and is_free else None
        if seat is None or batch is None:
            return {"ok": True, "text": "", "messages": 0, "questions": 0, "left": 0}
        seat.stops += moment == "stop"
        left = len(seat.tray)
        more = f"\n\n[intercom: {left} more wait; read them with the tool receive]" if left else ""
        return {
            "ok": True,
            "batch": guest.keep(batch),
            "text": batch.text + more,
            "messages": len(batch.items),
            "questions": batch.questions,
            "left": left,
        }

    async def _done(self, guest: Guest, request: Answer) -> Answer:
        batch = guest.batches.pop(_needed(request, "batch"), None)
        if batch is not None:
            batch.done()
        return {"ok": True}

    async def _stop(self, guest: Guest, request: Answer) -> Answer:
        seat = await self._seats.of_hook(_optional(request, "session"), _optional(request, "agent"))
        if seat is None:
            return {"ok": True, "text": "", "questions": 0}
        may_hold = _may_hold(seat, request)
        owed = await owed_by(seat) if may_hold else []
        steps = steps_owed_by(seat) if may_hold else []
        given = await tasks.owed_by(seat) if may_hold else []
        seat.stops += bool(owed or steps or given)
        texts = [reminder(seat, owed)] if owed else []
        texts += [step_reminder(seat, steps)] if steps else []
        texts += [tasks.reminder(seat, given)] if given else []
        return {"ok": True, "text": "\n\n".join(texts), "questions": len(owed)}

    async def _call(self, guest: Guest, request: Answer) -> Answer:
        self._seats.joined(_needed(request, "toolUseId"), _needed(request, "agent"))
        return {"ok": True}

    async def _agent(self, guest: Guest, request: Answer) -> Answer:
        if request.get("what") == "stop":
            await self._seats.subagent_ended(_needed(request, "agent"))
        return {"ok": True}

    async def _bell(self, guest: Guest, request: Answer) -> Answer | None:
        kinds = {"monitor": self.monitor, "rewake": self.rewake, "plugin": self.plugin}
        kind = request.get("kind")
        if kind not in kinds:
            raise UsageError("kind is none of " + ", ".join(kinds))
        guest.carries = request.get("carry") is True
        guest.once = kind == "rewake"
        ways = kinds[kind]
        if guest.once:
            await ways.dismiss()
        ways.open.append(guest)
        self.changed()
        return None

    async def _bye(self, guest: Guest, request: Answer) -> Answer:
        await self._seats.goodbye(_optional(request, "session"))
        return {"ok": True}

    def _forget(self, guest: Guest) -> None:
        for ways in (self.monitor, self.rewake, self.plugin):
            if guest in ways.open:
                ways.open.remove(guest)
                self.changed()


def _may_hold(seat: Seat, request: Answer) -> bool:
    """Tell whether a host may be kept from stopping once more.

    The row ends with a prompt, and with a stop of which the host says that it follows none of ours; a host that was
    never heard to say the opposite means nothing by it.
    """
    is_active = request.get("active") is True
    seat.says_goes_on = seat.says_goes_on or is_active
    if seat.says_goes_on and not is_active:
        seat.stops = 0
    return seat.stops < STOPS


async def owed_by(seat: Seat) -> list[str]:
    """Return the questions that were shown, are open, and were put forward fewer than ``STOP_REMINDERS`` times."""
    if seat.session is None or not seat.questions:
        return []
    try:
        await seat.drop_closed(seat.session)
    except IntercomError:
        return []
    waiting = {item.message.id for item in seat.tray if item.message is not None}
    owed = [message_id for message_id in seat.questions if message_id not in waiting]
    return [message_id for message_id in owed if seat.reminded.get(message_id, 0) < STOP_REMINDERS]


def reminder(seat: Seat, owed: list[str]) -> str:
    """Return what keeps a host from stopping: who waits for an answer, and how to give one."""
    lines = []
    for message_id in owed:
        seat.reminded[message_id] = seat.reminded.get(message_id, 0) + 1
        sender = seat.questions[message_id].sender
        lines.append(f"- question {short(message_id)} from {visible(who(sender.name, sender.id))}")
    questions = "\n".join(lines)
    return (
        f"Other agent sessions still wait for your answer through intercom:\n{questions}\n"
        "Answer with the intercom tool reply, or with its error argument say that you cannot. Then you may stop."
    )


def steps_owed_by(seat: Seat) -> list[FlowStep]:
    """Return the steps of flows that were shown, are not reported, and were put forward seldom enough."""
    steps = [message.flow for message in seat.work.steps.values() if message.flow is not None]
    return [step for step in steps if seat.reminded.get(step.dispatch_id, 0) < STOP_REMINDERS]


def step_reminder(seat: Seat, steps: list[FlowStep]) -> str:
    """Return what keeps a host from stopping while its flow waits for a report."""
    for step in steps:
        seat.reminded[step.dispatch_id] = seat.reminded.get(step.dispatch_id, 0) + 1
    named = "\n".join(wording.step(step) for step in steps)
    return (
        f"Flows wait for your report on steps you were handed through intercom:\n{named}\n"
        "Report each with the intercom tool finish, with its error argument if it will not be done. Then you may stop; "
        "go on first if you are still at it."
    )


def _request(line: bytes) -> Answer:
    try:
        request = json.loads(line)
    except ValueError as error:
        raise UsageError("a request is one JSON object on one line") from error
    if not isinstance(request, dict):
        raise UsageError("a request is one JSON object on one line")
    return request


def _needed(request: Answer, member: str) -> str:
    value = _optional(request, member)
    if value is None:
        raise UsageError(f"{member} is missing")
    return value


def _optional(request: Answer, member: str) -> str | None:
    value = request.get(member)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{member} is no text")
    return value or None


def _room(request: Answer) -> int:
    limit = request.get("limit", TOLD_CHARACTERS)
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise UsageError("limit is no whole number")
    return max(TOLD_LEAST_CHARACTERS, min(limit, TOLD_CHARACTERS))


_OPERATIONS: dict[str, Callable[[Door, Guest, Answer], Awaitable[Answer | None]]] = {
    "hello": Door._hello,
    "collect": Door._collect,
    "done": Door._done,
    "stop": Door._stop,
    "call": Door._call,
    "agent": Door._agent,
    "bell": Door._bell,
    "bye": Door._bye,
}
