"""Keep an account of children that are brought back and of what waits for them; object when the core departs from it.

The account sees every event that enters a core and the effects that leave it. It knows the rules of protocol 4.12, 4.13
and 6.11 and nothing of how the core keeps them; what becomes of a message once it has left its hold is judged by the
larger machine, and here only by "once" and "one final answer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import UNSET
from msgspec.json import decode as from_json

from intercom.core.broker import Broker
from intercom.core.effects import Broadcast, Effect, Write
from intercom.limits import Limits
from intercom.wire import frames as wire
from intercom.wire import reasons
from tests.core.harness import Disk, Watcher, World

EVENTS = frozenset(
    {
        "connection_opened",
        "frame_received",
        "protocol_error",
        "connection_ended",
        "frames_taken",
        "frame_lost",
        "committed",
        "commit_failed",
        "deadline_passed",
    }
)
Sent = list[tuple[int, Any]]
"""What one event wrote: connections and frames, in order."""


@dataclass(eq=False)
class Member:
    """Be one registered session."""

    conn: int
    id: str
    name: str
    groups: list[str]
    home: str
    address: str | None
    confirms: bool


@dataclass(eq=False)
class Slot:
    """Be one capability."""

    supervisor_id: str
    child_name: str
    bound: str | None = None


@dataclass(eq=False)
class Place:
    """Be one reservation."""

    capability: str
    owner_id: str
    name: str
    group: str
    aliases: frozenset[str]
    is_dormant: bool
    gone: str | None = None


@dataclass(eq=False)
class Attempt:
    """Be one attempt of a send."""

    conn: int
    member: Member
    frame: dict[str, Any]
    order: int
    content: tuple[Any, ...]
    answers: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False
    """Replaced by a retry while it was held, or dropped: it gets no answer."""
    place: Place | None = None
    """What it waits for."""
    due: int = 0
    is_by_alias: bool = False

    @property
    def id(self) -> str:
        message_id: str = self.frame["message"]["id"]
        return message_id

    @property
    def name(self) -> str:
        attempt_id: str = self.frame["attemptId"]
        return attempt_id

    @property
    def understands(self) -> bool:
        return self.frame.get("awaitRestoringRecipient") is True


class Recorder:
    """Stand before a broker and show every event with its effects."""

    def __init__(self, broker: Broker, saw: Callable[[str, tuple[Any, ...], list[Effect]], None]) -> None:
        self._broker = broker
        self._saw = saw

    def __getattr__(self, name: str) -> Any:
        what = getattr(self._broker, name)
        if name not in EVENTS:
            return what

        def call(*arguments: Any) -> list[Effect]:
            effects: list[Effect] = what(*arguments)
            self._saw(name, arguments, effects)
            return effects

        return call


class RestoringAccount(Watcher):
    """Watch one broker and its successors over one disk."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.members: dict[int, Member] = {}
        self.slots: dict[str, Slot] = {}
        self.places: list[Place] = []
        """The reservations, the newest last."""
        self.held: list[Attempt] = []
        """What waits, in the order of arrival."""
        self.attempts: dict[str, list[Attempt]] = {}
        self.by_name: dict[str, Attempt] = {}
        self.decided: dict[str, set[tuple[Any, ...]]] = {}
        """Contents under which a message id went beyond a hold: a row may stand for it."""
        self.arrived: dict[str, tuple[int, Member]] = {}
        """When and at whom a message arrived that cannot be recognised as a copy."""
        self.attempted: Attempt | None = None
        self.order = 0
        self.world = World(limits=limits, auto=False, disk=Disk(), watcher=self)
        self._watch()

    def restart(self) -> None:
        """Kill the broker; the next one knows of no session, capability, reservation or held send."""
        for attempt in self.held:
            attempt.is_over, attempt.place = True, None
        self.members.clear()
        self.slots.clear()
        self.places.clear()
        self.held.clear()
        self.world.crash()
        self._watch()

    def _watch(self) -> None:
        self.core = self.world.broker
        self.world.broker = Recorder(self.core, self.saw)  # type: ignore[assignment]  # it stands for one

    @property
    def mono(self) -> int:
        return self.world.mono

    # --- clients write ----------------------------------------------------------------------------------

    def about_to_send(self, member: Member, frame: dict[str, Any]) -> Attempt:
        """Note an attempt that is made next."""
        self.order += 1
        message = frame["message"]
        wording = frame.get("logicalTarget", frame["to"])
        content = (wording, message["content"]["text"], message.get("expectsReply") is True, member.address)
        attempt = Attempt(member.conn, member, frame, self.order, content)
        self.attempts.setdefault(attempt.id, []).append(attempt)
        self.by_name[attempt.name] = attempt
        self.attempted = attempt
        return attempt

    # --- the core answers -------------------------------------------------------------------------------

    def saw(self, event: str, arguments: tuple[Any, ...], effects: list[Effect]) -> None:
        """Judge one event."""
        sent: Sent = []
        for effect in effects:
            if isinstance(effect, Write):
                sent.append((effect.to, effect.frame))
            elif isinstance(effect, Broadcast):
                sent.extend((number, effect.frame) for number in effect.to)
        if event == "frame_received":
            judge = self._JUDGES.get(type(arguments[1]))
            if judge is not None:
                judge(self, arguments[0], arguments[1], sent)
        elif event in ("connection_ended", "protocol_error"):
            self._leave(arguments[0], sent)
        elif event == "deadline_passed":
            self._time_passed(sent)
        else:
            assert not [frame for _, frame in sent if isinstance(frame, wire.SendHeld)], "held out of nothing"

    def _registered(self, conn: int, frame: wire.Register, sent: Sent) -> None:
        answer = next(answer for number, answer in sent if number == conn)
        if not isinstance(answer, wire.Registered):
            return
        info = frame.session
        groups = list(info.get("groups", [info.get("group", "default")]))
        home = info.get("group", groups[0])
        address = None if frame.return_address is UNSET else frame.return_address
        confirms = frame.acknowledges_receipt is True
        member = Member(conn, answer.session_id, info.get("name", ""), groups, home, address, confirms)
        self.members[conn] = member
        if answer.supervisor_session_id is UNSET:
            return
        capability = frame.supervisor["capability"]
        slot = self.slots[capability]
        assert slot.supervisor_id == answer.supervisor_session_id
        if slot.child_name == "*":
            slot.bound = member.name
        own = [place for place in self.places if place.capability == capability]
        ended = list(own)
        ended += [
            place
            for place in self.places
            if place.capability != capability
            and place.owner_id == slot.supervisor_id
            and place.name == member.name
            and place.group in member.groups
        ]
        self._dispatch(ended, sent, member if own else None)

    def _authorized(self, conn: int, frame: wire.AuthorizeSupervisor, sent: Sent) -> None:
        for number, answer in sent:
            if number == conn and isinstance(answer, wire.SupervisorAuthorized):
                slot = self.slots.setdefault(answer.capability, Slot("", answer.child_name))
                slot.supervisor_id = answer.supervisor_session_id
                return
        self._leave(conn, sent)

    def _reserved(self, conn: int, frame: wire.ReserveRestoringRecipient, sent: Sent) -> None:
        member = self.members[conn]
        slot = self.slots.get(frame.capability)
        aliases = frozenset(() if frame.aliases is UNSET else (alias.lower() for alias in frame.aliases))
        is_allowed = (
            slot is not None
            and slot.supervisor_id == member.id
            and (slot.bound or slot.child_name) != "*"
            and "no-uuid" not in aliases
        )
        if is_allowed:
            is_allowed = self._make_room(member, frame.capability)
        assert [(number, type(answer)) for number, answer in sent] == [(conn, wire.RestoringRecipientAck)]
        assert (sent[0][1].error is UNSET) == is_allowed, sent
        if not is_allowed or slot is None:
            return
        group = member.home if frame.group is UNSET else frame.group
        name = slot.bound or slot.child_name
        fresh = Place(frame.capability, member.id, name, group, aliases, frame.dormant is True)
        for place in [place for place in self.places if place.capability == frame.capability]:
            self.places.remove(place)
            for attempt in self.held:
                attempt.place = fresh if attempt.place is place else attempt.place
        self.places.append(fresh)

    def _make_room(self, member: Member, capability: str) -> bool:
        mine = [place for place in self.places if place.owner_id == member.id]
        if any(place.capability == capability for place in mine):
            return True
        if len(mine) >= self.limits.reservations_per_session and not self._drop_marker(mine):
            return False
        is_known = any(place.capability == capability for place in self.places)
        return is_known or len(self.places) < self.limits.reservations or self._drop_marker(self.places)

    def _drop_marker(self, among: list[Place]) -> bool:
        oldest = next((place for place in among if place.gone is not None), None)
        if oldest is not None:
            self.places.remove(oldest)
        return oldest is not None

    def _released(self, conn: int, frame: wire.ReleaseRestoringRecipient, sent: Sent) -> None:
        member = self.members[conn]
        assert sent[0] == (conn, wire.RestoringRecipientAck(frame.request_id)), "acknowledged first, without an error"
        place = next((place for place in self.places if place.capability == frame.capability), None)
        if place is None or place.owner_id != member.id:
            assert len(sent) == 1, "a stranger's release did something"
            return
        text = None if frame.refusal is UNSET or not frame.refusal.strip() else frame.refusal
        if frame.gone is not UNSET:
            place.gone = text = frame.gone
            self.places.remove(place)
            self.places.append(place)
        if text is None:
            self._dispatch([place], sent)
            return
        if frame.gone is UNSET:
            self.places.remove(place)
        expected = []
        for attempt in [attempt for attempt in self.held if attempt.place is place]:
            self.held.remove(attempt)
            attempt.place = None
            expected.append((attempt.conn, wire.DeliveryFailed(attempt.id, text, attempt.name)))
        assert sent[1:] == expected, "all that waited, in the order of arrival"

    def _dispatch(self, ended: Iterable[Place], sent: Sent, returned: Member | None = None) -> None:
        """Expect everything that waited for these to be decided anew, in the order of arrival.

        ``returned`` is the child of the first of them; who meant it by an id it had means it under its new one.
        """
        gone = list(ended)
        for place in gone:
            self.places.remove(place)
        waiting = [attempt for attempt in self.held if attempt.place in gone]
        own = [attempt for attempt in waiting if attempt.place is gone[0]]
        for attempt in waiting:
            self.held.remove(attempt)
            attempt.place = None
        last = -1
        for attempt in waiting:
            to = attempt.frame["to"]
            if returned is not None and attempt.is_by_alias and attempt in own:
                to = returned.id
            self._decide(attempt, to, sent, attempt)
            if attempt.place is None:
                here = [number for number, (_, frame) in enumerate(sent) if message_id_of(frame) == attempt.id]
                assert here, f"{attempt.id} left its hold without a trace"
                assert here[-1] > last, f"{attempt.id} left before what had come before it"
                last = here[-1]

    def _sent(self, conn: int, frame: wire.Send, sent: Sent) -> None:
        attempt, self.attempted = self.attempted, None
        assert attempt is not None and attempt.id == from_json(frame.message)["id"]
        earlier = next((other for other in self.held if other.id == attempt.id), None)
        if earlier is not None:
            if earlier.content != attempt.content:
                self._expect_failure(attempt, sent, reasons.conflict(attempt.id))
                return
            earlier.is_over, earlier.place = True, None
            self.held.remove(earlier)
        self._decide(attempt, attempt.frame["to"], sent, earlier)

    def _decide(self, attempt: Attempt, to: str, sent: Sent, earlier: Attempt | None) -> None:
        """Go through C and E of protocol 4.8 and compare what was written about this attempt."""
        member = attempt.member
        found = [peer for peer in self.members.values() if peer.id == to] or [
            peer
            for peer in self.members.values()
            if peer.name.lower() == to.lower() and set(peer.groups) & set(member.groups)
        ]
        if len(found) > 1:
            self._expect_failure(attempt, sent, reasons.ambiguous_name(to))
        elif found:
            self._expect_beyond(attempt, sent, found[0])
        else:
            self._expect_hold(attempt, to, sent, earlier)

    def _expect_hold(self, attempt: Attempt, to: str, sent: Sent, earlier: Attempt | None) -> None:
        key, groups = to.lower(), attempt.member.groups
        matching = [
            place
            for place in self.places
            if place.group in groups and (key in place.aliases or key == place.name.lower())
        ]
        matching = [place for place in matching if place.gone is None] or matching
        if not matching:
            self._expect_failure(attempt, sent, reasons.SESSION_NOT_FOUND)
        elif len(matching) > 1:
            self._expect_failure(attempt, sent, reasons.ambiguous_restoring(to))
        elif matching[0].gone is not None:
            self._expect_failure(attempt, sent, matching[0].gone)
        elif matching[0].is_dormant and not attempt.understands:
            self._expect_failure(attempt, sent, reasons.RESTORING_DORMANT)
        elif self._has_conflict(attempt, sent):
            self._expect_failure(attempt, sent, reasons.conflict(attempt.id))
        elif not self._has_room(attempt, matching[0]):
            self._expect_failure(attempt, sent, None)
        else:
            self._expect_held(attempt, matching[0], key, sent, earlier)

    def _has_conflict(self, attempt: Attempt, sent: Sent) -> bool:
        """Tell whether a row of other content stood in the way; only the core knows which rows there still are."""
        told = [frame for _, frame in sent if isinstance(frame, wire.DeliveryFailed)]
        refused = any(
            frame.attempt_id == attempt.name and frame.reason == reasons.conflict(attempt.id) for frame in told
        )
        others = self.decided.get(attempt.id, set()) - {attempt.content}
        return refused and bool(others)

    def _has_room(self, attempt: Attempt, place: Place) -> bool:
        return (
            sum(other.member is attempt.member for other in self.held) < self.limits.held_per_session
            and sum(other.place is place for other in self.held) < self.limits.held_per_reservation
            and len(self.held) < self.limits.held
        )

    def _expect_held(self, attempt: Attempt, place: Place, key: str, sent: Sent, earlier: Attempt | None) -> None:
        due = self.mono + (self.limits.hold_ms if attempt.understands else self.limits.silent_hold_ms)
        if earlier is not None:
            attempt.order, due = earlier.order, min(due, earlier.due)
        attempt.place, attempt.due, attempt.is_by_alias = place, due, key in place.aliases
        self.held = sorted([*self.held, attempt], key=lambda other: other.order)
        expected = []
        if attempt.understands and earlier is not attempt:
            expected = [(attempt.conn, wire.SendHeld(attempt.id, due - self.mono, attempt.name))]
        told = [entry for entry in sent if getattr(entry[1], "attempt_id", None) == attempt.name]
        assert told == expected, told

    def _expect_failure(self, attempt: Attempt, sent: Sent, reason: str | None) -> None:
        told = [entry for entry in sent if getattr(entry[1], "attempt_id", None) == attempt.name]
        assert [(number, type(frame)) for number, frame in told] == [(attempt.conn, wire.DeliveryFailed)], told
        assert reason is None or told[0][1].reason == reason, told[0][1].reason
        if reason is None:
            assert reasons.code_of(told[0][1].reason) == "capacity"

    def _expect_beyond(self, attempt: Attempt, sent: Sent, target: Member) -> None:
        self.decided.setdefault(attempt.id, set()).add(attempt.content)
        mine = [entry for entry in sent if message_id_of(entry[1]) == attempt.id]
        assert mine, f"nothing became of {attempt.id}"
        assert not [frame for _, frame in mine if isinstance(frame, wire.SendHeld)], "held although somebody was found"
        number, frame = mine[-1]
        if isinstance(frame, wire.MessageFrame):
            assert number == target.conn, "it went to somebody else"
        else:
            assert (number, frame.attempt_id) == (attempt.conn, attempt.name)
            if isinstance(frame, wire.DeliveryFailed):
                code = reasons.code_of(frame.reason)
                assert code not in ("not_found", "not_restored", "ambiguous"), f"{target.id} was not found: {code}"

    def _changed(self, conn: int, frame: wire.JoinGroup | wire.LeaveGroup, sent: Sent) -> None:
        for number, answer in sent:
            if number == conn and isinstance(answer, wire.MembershipAck):
                self.members[conn].groups = list(answer.groups)

    def _cancelled(self, conn: int, frame: wire.CancelAsk, sent: Sent) -> None:
        attempt = next((other for other in self.held if other.id == frame.message_id), None)
        is_mine = attempt is not None and attempt.conn == conn
        if attempt is not None and is_mine and attempt.frame["message"].get("expectsReply"):
            self.held.remove(attempt)
            attempt.place = None
            self._expect_failure(attempt, sent, reasons.RESTORING_WITHDRAWN)

    def _left(self, conn: int, frame: wire.Unregister, sent: Sent) -> None:
        self._leave(conn, sent)

    def _leave(self, conn: int, sent: Sent) -> None:
        """Expect the departure of protocol 6.15: its sends dropped first, what waits for its children last."""
        member = self.members.pop(conn, None)
        if member is None:
            return
        for attempt in [attempt for attempt in self.held if attempt.member is member]:
            self.held.remove(attempt)
            attempt.place, attempt.is_over = None, True
        self._dispatch([place for place in self.places if place.owner_id == member.id], sent)
        kinds = [isinstance(frame, wire.SessionLeft) for _, frame in sent]
        about = [number for number, (_, frame) in enumerate(sent) if message_id_of(frame) is not None]
        assert not any(kinds[about[0] :] if about else ()), "a dispatch before the departure was complete"

    def _time_passed(self, sent: Sent) -> None:
        over = sorted((attempt for attempt in self.held if attempt.due <= self.mono), key=lambda other: other.due)
        for attempt in over:
            self.held.remove(attempt)
            attempt.place = None
            self._expect_failure(attempt, sent, reasons.RESTORING_TIMED_OUT)
        told = [frame for _, frame in sent if isinstance(frame, wire.DeliveryFailed)]
        assert sum(frame.reason == reasons.RESTORING_TIMED_OUT for frame in told) == len(over), "failed too early"

    _JUDGES: ClassVar[dict[type, Callable[..., None]]] = {
        wire.Register: _registered,
        wire.Unregister: _left,
        wire.AuthorizeSupervisor: _authorized,
        wire.ReserveRestoringRecipient: _reserved,
        wire.ReleaseRestoringRecipient: _released,
        wire.Send: _sent,
        wire.JoinGroup: _changed,
        wire.LeaveGroup: _changed,
        wire.CancelAsk: _cancelled,
    }

    # --- the kernel takes -------------------------------------------------------------------------------

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        """Judge what reached a client: one final answer per attempt, one copy per message."""
        if frame["type"] in ("delivered", "delivery_failed"):
            attempt = self.by_name[frame["attemptId"]]
            assert not attempt.answers, f"two final answers: {attempt.answers} and {frame}"
            assert not attempt.is_over, f"an answer to an attempt that is over: {frame}"
            assert attempt.place is None, f"a final answer to a held send: {frame}"
            attempt.answers.append(frame)
        elif frame["type"] == "message" and write.to in self.members:
            self._arrived(frame["message"]["id"], self.members[write.to])

    def _arrived(self, message_id: str, member: Member) -> None:
        assert all(attempt.place is None for attempt in self.attempts[message_id]), "arrived while it is held"
        known = self.arrived.get(message_id)
        if known is not None and self.mono < known[0] + self.limits.operation_ttl_ms:
            assert member.confirms and member.address == known[1].address, f"{message_id} arrived twice"
            return
        self.arrived[message_id] = self.mono, member

    # --- at rest ----------------------------------------------------------------------------------------

    def check_rest(self) -> None:
        """Object when somebody has no answer and waits for nothing."""
        for attempts in self.attempts.values():
            newest = attempts[-1]
            if self.members.get(newest.conn) is newest.member and not newest.is_over and newest.place is None:
                assert newest.answers, f"no answer to {newest.frame}"
        assert {attempt.id for attempt in self.held} == set(self.core._supervising.holding._held)
        assert {place.capability for place in self.places} == set(self.core._supervising.restoring._known)


def message_id_of(frame: Any) -> str | None:
    """Return the id of the message a frame carries or answers."""
    if isinstance(frame, wire.MessageFrame):
        message_id: str = from_json(frame.message)["id"]
        return message_id
    if isinstance(frame, wire.Delivered | wire.DeliveryFailed | wire.SendHeld):
        return frame.message_id
    return None
