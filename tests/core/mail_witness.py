"""Keep an account of mail by what its clients wrote and saw and what the disk holds, and object to whatever is not so.

The witness decides nothing by the core's memory; only where it compares memory with disk does it look inside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from msgspec.json import decode as from_json
from msgspec.structs import replace

from intercom.core.addresses import digest
from intercom.core.effects import Append, Write
from intercom.core.records import (
    AcceptOperation,
    Happened,
    KnownSessionRecord,
    MailRecord,
    OperationState,
    Recovered,
    SaveOperation,
    SessionState,
)
from intercom.limits import Limits
from intercom.wire import notices, reasons
from intercom.wire.frames import MessageFrame
from tests.core.harness import Disk, Watcher, World

BASE_TYPES = frozenset(
    {
        "registered",
        "registration_failed",
        "sessions",
        "message",
        "delivered",
        "delivery_failed",
        "session_joined",
        "session_left",
        "presence_update",
        "presence_ack",
        "membership_ack",
        "question_target",
        "peer_disconnected",
    }
)
BASE_REGISTERED = frozenset(
    {"type", "sessionId", "acknowledgesReceipt", "acknowledgesPendingStageRoutes", "brokerStatus"}
)
UNCERTAIN = (
    reasons.UNCERTAIN,
    reasons.UNDER_WAY,
    reasons.NOT_CONFIRMED_DURABLY,
    reasons.RECEIPT_MISSING,
)
ENDS = ("mail.delivered", "mail.expired", "mail.undeliverable", "mail.purged", "mail.withdrawn")


@dataclass(eq=False)
class Actor:
    """Be one client program: what it asks for, and what it keeps between its connections."""

    name: str
    features: tuple[str, ...]
    pid: int
    address: str | None = None
    hold: str = "take"
    visible: str | None = None
    is_thief: bool = False
    is_prompt: bool = True
    """Confirms every message at once."""
    purpose: str = "agent"
    confirms: bool = True
    session_id: str | None = None
    owner_token: str | None = None
    mine: set[str] = field(default_factory=set)
    """All ids it ever had."""
    heard: list[dict[str, Any]] = field(default_factory=list)

    @property
    def return_address(self) -> str:
        return f"return-{self.name}"


@dataclass(eq=False)
class Line:
    """Be one connection as its client sees it."""

    number: int
    actor: Actor
    request: dict[str, Any] = field(default_factory=dict)
    session_id: str | None = None
    """Set once the core has granted it."""
    is_told: bool = False
    """The client knows that it is registered."""
    ended: bool = False
    requests: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Attempt:
    """Be one attempt of a send."""

    line: Line
    number: int
    frame: dict[str, Any]
    wall: int
    mono: int
    life: int
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        message_id: str = self.frame["message"]["id"]
        return message_id

    @property
    def is_owed(self) -> bool:
        return not self.line.ended and not self.answers


class WatchedDisk(Disk):
    """Remember what was ever durable, and object to a journal that does not hold together."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: set[str] = set()
        self.letters: dict[int, MailRecord] = {}
        self.ends: dict[int, str] = {}
        self.waited: set[str] = set()
        self.notices: Counter[str] = Counter()
        self.event_ids: set[str] = set()
        self.last_seq = 0
        self.active: set[tuple[str, str, int]] = set()
        self.closings: list[KnownSessionRecord] = []

    def commit(self, append: Append) -> None:
        super().commit(append)
        for change in append.changes:
            if isinstance(change, SaveOperation) and change.record.state is OperationState.ACCEPTED:
                self.accepted.add(change.record.message_id)
            elif isinstance(change, AcceptOperation) and change.number in self.operations:
                self.accepted.add(self.operations[change.number].message_id)
            elif isinstance(change, Happened):
                self._happened(change)

    def recovered(self, wall: int, limits: Limits) -> Recovered:
        """Read everything; numbers of mail whose history was deleted are not used again, so that they name one mail."""
        recovered = super().recovered(wall, limits)
        return replace(recovered, last_number=max(recovered.last_number, *self.letters, 0))

    def _happened(self, event: Happened) -> None:
        is_repeated = event.event_id is not None and event.event_id in self.event_ids
        assert not is_repeated, f"{event.event_id} happened twice"
        assert event.seq > self.last_seq, "sequences grow"
        self.event_ids.add(event.event_id or f"{event.seq}")
        self.last_seq = event.seq
        row = event.row
        if isinstance(row, KnownSessionRecord):
            if event.kind == "session.active":
                self.active.add((row.session_id, row.incarnation, row.generation))
            if event.kind == "session.closed":
                self.closings.append(row)
        if not isinstance(row, MailRecord):
            return
        if event.kind == "mail.queued":
            assert row.number not in self.letters, "queued twice"
            self.letters[row.number] = row
            if row.notice is None:
                self.waited.add(row.message_id)
            else:
                self.notices[from_json(row.notice)["messageId"]] += 1
        assert row.number not in self.ends, f"{row.message_id} had ended: {event.kind}"
        if event.kind in ENDS:
            self.ends[row.number] = event.kind


class MailWitness(Watcher):
    """Watch one broker and its successors over one disk."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.disk = WatchedDisk()
        self.lines: dict[int, Line] = {}
        self.attempts: dict[str, Attempt] = {}
        self.of_message: dict[str, list[Attempt]] = defaultdict(list)
        self.owners: dict[str, Actor] = {}
        """Who was granted a session id first, with a lifecycle or not."""
        self.tokens: dict[str, str] = {}
        """Of addresses, as those who share a home know them."""
        self.told_tokens: set[str] = set()
        self.told_sessions: set[str] = set()
        """Sessions whose clients heard of them."""
        self.receipts: dict[str, set[Actor]] = defaultdict(set)
        self.taken_live: set[str] = set()
        self.direct_notices: Counter[str] = Counter()
        self.due_receipts: list[tuple[Line, str]] = []
        self.life = 0
        self.clock_was_set = False
        self.store_is_closed = False
        self.was_purged = self.was_lost = False
        self.unregistered: set[str] = set()
        self.forced: set[str] = set()
        self.judged: set[str] = set()
        self.left_at: dict[str, int] = {}
        self.replacements: set[str] = set()
        """Home-address names that were taken, and return addresses that registered anew."""
        self.world = World(limits=limits, auto=False, disk=self.disk, watcher=self)

    # --- help -------------------------------------------------------------------------------------------

    def owner_of_box(self, key: str) -> set[Actor] | str:
        """Return who may open a mailbox: the owner of a session, or the name of an address."""
        kind, _, rest = key.partition(":")
        if kind == "session":
            return {self.owners[rest]}
        return self.disk.addresses[int(rest)].name

    def may_open(self, line: Line, key: str) -> bool:
        owner = self.owner_of_box(key)
        if isinstance(owner, str):
            return line.actor.address == owner and not line.actor.is_thief and line.actor.hold != "none"
        return line.actor in owner

    # --- the core writes --------------------------------------------------------------------------------

    def written(self, write: Write) -> None:
        line, frame = self.lines[write.to], write.frame
        kind = frame.__struct_config__.tag
        if not line.actor.features:
            assert kind in BASE_TYPES, f"{kind} to an older client"
        if kind == "registered":
            self._registered(line, frame.session_id)
        elif kind == "session_reattached":
            assert self.owners[frame.session_id] is line.actor, "somebody else came back"
            assert line.request["ownerToken"] == line.actor.owner_token
            line.session_id = frame.session_id
        elif isinstance(frame, MessageFrame):
            self._message_written(line, write, frame)
        elif kind == "queued":
            assert "queue" in line.actor.features, "queued to somebody who does not know it"
            assert frame.position >= 1

    def _registered(self, line: Line, session_id: str) -> None:
        owner = self.owners.setdefault(session_id, line.actor)
        assert owner is line.actor, "an id went to a stranger"
        line.session_id = session_id
        line.actor.mine.add(session_id)

    def _message_written(self, line: Line, write: Write, frame: MessageFrame) -> None:
        if not line.actor.features:
            assert frame.mail is UNSET and frame.notice is UNSET, "members of a feature to an older client"
        message = from_json(frame.message)
        if frame.notice is not UNSET and frame.mail is UNSET:
            senders = {attempt.line.actor for attempt in self.of_message[frame.notice.message_id]}
            assert line.actor in senders, "a notice to a stranger"
            return
        if frame.mail is UNSET:
            if message["id"] in self.of_message:
                self._check_live(line, message["id"])
            return
        number = frame.mail.entry
        assert number in self.disk.letters, "mail was offered before it was durable"
        row = self.disk.letters[number]
        assert number not in self.disk.ends, "mail was offered after its end"
        assert row.message_id == message["id"]
        assert self.may_open(line, row.mailbox), f"mail of {row.mailbox} to {line.actor}"
        wall, mono = self.world.wall, self.world.mono
        assert row.expires_at > wall and (row.valid_until is None or row.valid_until > wall), "offered after its time"
        if row.notice is None and row.valid_until is not None:
            valid = [a for a in self.of_message[row.message_id] if "validFor" in a.frame]
            fresh = [a for a in valid if a.life != self.life or mono < a.mono + a.frame["validFor"]]
            assert fresh, "offered after its validity"
        box = self.world.broker._post.boxes.get(row.mailbox)
        assert box is not None
        for mail in box.in_order():
            if mail.number >= number:
                break
            assert mail.is_offered or mail.confirmed_by is not None, f"{row.message_id} overtakes {mail.message_id}"

    def _check_live(self, line: Line, message_id: str) -> None:
        """Object to a live copy for somebody whom no attempt can have meant."""
        assert line.session_id is not None
        name = line.actor.visible
        for attempt in self.of_message[message_id]:
            target = attempt.frame["to"]
            if target in line.actor.mine or (name is not None and target.lower() == name.lower()):
                return
            if line.actor.address is not None and not line.actor.is_thief:
                owner = self.owners.get(target)
                if owner is not None and owner.address == line.actor.address and not owner.is_thief:
                    return
                if target.lower() == line.actor.address.lower():
                    return
        raise AssertionError(f"{message_id} to {line.actor}")

    # --- the kernel takes -------------------------------------------------------------------------------

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        line = self.lines[write.to]
        actor = line.actor
        kind = frame["type"]
        request_id = frame.get("requestId")
        if request_id is not None:
            assert request_id in line.requests, f"two answers, or one nobody waits for: {frame}"
            line.requests.discard(request_id)
        if kind == "registered":
            self._registered_taken(line, frame)
        elif kind == "session_reattached":
            line.is_told = True
            self._check_active(frame)
        elif kind == "message":
            self._message_taken(line, frame)
        elif kind in ("queued", "delivered", "delivery_failed"):
            self._answered(line, frame)
        elif kind == "trace":
            self._traced(frame)
        elif kind == "request_failed" and frame["code"] == "not_owner":
            assert actor.is_thief, "the owner was locked out"
        elif kind == "registration_failed" and frame.get("code") == "address_taken":
            rows = [row for row in self.disk.addresses.values() if row.name == actor.address]
            shown = line.request["address"].get("token")
            assert shown is None or not rows or rows[0].token_hash != digest(shown), "the right token was refused"

    def _check_active(self, frame: dict[str, Any]) -> None:
        key = frame["sessionId"], frame["incarnation"], frame["generation"]
        assert self.store_is_closed or key in self.disk.active, "told of a session that is not recorded"

    def _registered_taken(self, line: Line, frame: dict[str, Any]) -> None:
        actor = line.actor
        line.is_told = True
        actor.session_id = frame["sessionId"]
        self.told_sessions.add(frame["sessionId"])
        if not actor.features:
            assert frame.keys() <= BASE_REGISTERED, frame
        if "ownerToken" in frame:
            actor.owner_token = frame["ownerToken"]
            self._check_active(frame)
        if "addressToken" in frame:
            assert actor.address is not None and actor.address not in self.told_tokens, "a token was told twice"
            self.told_tokens.add(actor.address)
            self.tokens[actor.address] = frame["addressToken"]
        if "address" in line.request and "address" in frame["features"]:
            names = [row.name for row in self.disk.addresses.values() if row.token_hash is not None]
            assert actor.address in names, "told of an address that is not recorded"

    def _message_taken(self, line: Line, frame: dict[str, Any]) -> None:
        message_id = frame["message"]["id"]
        line.actor.heard.append(frame)
        if "mail" not in frame:
            self.taken_live.add(message_id)
        if "notice" in frame and "mail" not in frame:
            self.direct_notices[frame["notice"]["messageId"]] += 1
        if line.actor.confirms and line.actor.is_prompt:
            self.due_receipts.append((line, message_id))

    def _answered(self, line: Line, frame: dict[str, Any]) -> None:
        attempt = self.attempts[frame["attemptId"]]
        assert attempt.line is line, "an answer to somebody else's attempt"
        assert not attempt.answers, f"two final answers: {attempt.answers} and {frame}"
        attempt.answers.append(frame)
        message_id = attempt.id
        match frame["type"]:
            case "queued":
                assert message_id in self.disk.waited, "queued, and not on disk"
                others = self.of_message[message_id]
                assert any(other.frame.get("queueIfAway") for other in others), "queued without leave"
            case "delivered":
                assert message_id in self.disk.accepted, "delivered, and not on disk"
                assert message_id in self.receipts or message_id in self.taken_live, "delivered to nobody"
            case _:
                assert "queue" in line.actor.features or frame.get("reasonCode") != "away"

    def _traced(self, frame: dict[str, Any]) -> None:
        message_id, state = frame["messageId"], frame["state"]
        kinds = {event for number, event in self.disk.ends.items() if self._is_of(number, message_id)}
        match state:
            case "queued" | "offered":
                assert message_id in self.disk.waited
            case "delivered" | "answered":
                assert message_id in self.disk.accepted or "mail.delivered" in kinds, "traced before it was recorded"
            case "expired" | "undeliverable" | "purged":
                assert f"mail.{state}" in kinds, "traced before it was recorded"

    def _is_of(self, number: int, message_id: str) -> bool:
        row = self.disk.letters.get(number)
        return row is not None and row.message_id == message_id

    def ended(self, conn: int) -> None:
        line = self.lines[conn]
        line.ended = True
        if line.session_id is not None:
            self.left_at[line.session_id] = self.world.mono

    def restarted(self) -> None:
        """Note that a new broker reads what the disk holds."""
        for line in self.lines.values():
            line.ended = True
        self.due_receipts.clear()
        self.store_is_closed = False
        self.life += 1

    # --- clients write ----------------------------------------------------------------------------------

    def attempted(self, line: Line, frame: dict[str, Any]) -> None:
        number = len(self.attempts) + 1
        attempt = Attempt(line, number, frame, self.world.wall, self.world.mono, self.life)
        self.attempts[frame["attemptId"]] = attempt
        self.of_message[attempt.id].append(attempt)

    # --- at rest ----------------------------------------------------------------------------------------

    def check_replay(self) -> None:
        """A5.5: whoever replays the journal gets the rows."""
        rows: dict[tuple[str, Any], Any] = {}
        for event in self.disk.journal:
            key = (type(event.row).__name__, self.disk._place_of(event.row)[1])
            if event.is_gone:
                rows.pop(key, None)
            else:
                rows[key] = event.row
        disk = self.disk
        live = [*disk.addresses.values(), *disk.known_sessions.values(), *disk.mail.values()]
        there = {(type(row).__name__, disk._place_of(row)[1]): row for row in live}
        assert rows == there, set(rows.items()) ^ set(there.items())

    def check_memory(self) -> None:
        """Object to memory that says something else than the disk although nothing is under way."""
        broker: Any = self.world.broker
        assert not self.world.appends
        known = {one.record.session_id: one.record for one in broker._registry.lifecycle}
        assert known == self.disk.known_sessions
        assert {one.number: one.row for one in broker._registry.addresses} == self.disk.addresses
        boxes = broker._post.boxes.all()
        assert {mail.number: mail.record for box in boxes for mail in box.in_order()} == self.disk.mail
        operations = {one.number: one.record() for one in broker._messages.operations._rows.values()}
        assert operations == self.disk.operations
        assert all(number in self.disk.bodies or self.was_lost for number in self.disk.mail)
        for box in boxes:
            entries = box.in_order()
            offered = [mail for mail in entries if mail.is_offered]
            assert box.bytes == sum(mail.record.size for mail in entries)
            assert (box.offered, box.offered_bytes) == (len(offered), sum(mail.record.size for mail in offered))
            assert not offered or box.holder is not None
            assert entries or box.holder is not None, "an empty mailbox that nobody needs"

    def check_ends(self) -> None:
        """Object when mail ended twice, in silence, for no reason, or by somebody who is not its holder."""
        gone: Counter[str] = Counter()
        for number, kind in self.disk.ends.items():
            row = self.disk.letters[number]
            if kind == "mail.delivered":
                actors = self.receipts[row.message_id]
                owner = self.owner_of_box(row.mailbox)
                mine = {actor for actor in actors if actor.address == owner} if isinstance(owner, str) else owner
                assert actors & mine, f"{row.message_id} counts as delivered and nobody confirmed it"
            elif kind == "mail.withdrawn":
                assert row.is_ask, "only a question is taken back"
            elif row.notice is None:
                gone[row.message_id] += 1
        for message_id, count in gone.items():
            told = self.disk.notices[message_id] + self.direct_notices[message_id]
            assert told <= count, f"the end of {message_id} was told more than once"
            letters = [row for row in self.disk.letters.values() if row.message_id == message_id]
            if count == len(letters) and all((row.sender_mailbox or "").startswith("address:") for row in letters):
                assert told == count, f"the end of {message_id} was not told"
        for number in self.disk.letters:
            assert number in self.disk.ends or number in self.disk.mail, "mail is gone without an end"

    def check_closings(self) -> None:
        """Object to a session that was closed for no reason: its mail is given up with it."""
        for row in self.disk.closings:
            session_id = row.session_id
            reason = (row.closed_reason or "").partition(":")[0]
            match reason:
                case "unregister":
                    assert session_id in self.unregistered, f"{session_id} did not leave"
                case "force_close":
                    assert session_id in self.forced
                case "process_exit":
                    assert session_id in self.judged
                case "grace_timeout":
                    assert session_id in self.left_at or self.life
                case "never_told":
                    assert session_id not in self.told_sessions, f"{session_id} could come back"
                case "replaced":
                    actor = self.owners[session_id]
                    place = actor.address if row.holds_address else actor.return_address
                    assert place in self.replacements, f"nobody took the place of {session_id}"
                case "never_told":
                    told = [line for line in self.lines.values() if line.session_id == session_id and line.is_told]
                    assert not told, f"{session_id} was told of itself"
                case _:
                    raise AssertionError(f"closed: {reason}")

    def check_answers(self) -> None:
        """Object when somebody still waits for an answer although nothing moves any more."""
        for attempts in self.of_message.values():
            waiting = [attempt for attempt in attempts if attempt.is_owed and attempt.life == self.life]
            for attempt in waiting:
                newer = [other for other in attempts if other.number > attempt.number]
                assert newer, f"no answer to {attempt.frame}"
        for line in self.lines.values():
            assert line.ended or not line.requests, f"no answer to {line.requests}"

    def check_claims(self) -> None:
        """Object to mail of a message whose sender was told for sure that nothing was recorded."""
        for row in self.disk.mail.values():
            attempts = self.of_message.get(row.message_id, [])
            if row.notice is not None or not attempts:
                continue
            sure = [
                attempt.answers
                and attempt.answers[0]["type"] == "delivery_failed"
                and not attempt.answers[0]["reason"].startswith(UNCERTAIN)
                for attempt in attempts
            ]
            assert not all(sure), f"{row.message_id} waits although its sender was told that it does not"

    def check_stuck(self) -> None:
        """Object to mail that waits although its holder is here and confirms everything."""
        for box in self.world.broker._post.boxes.all():
            holder = box.holder
            if holder is not None:
                line = self.lines[holder.connection.number]
                if line.actor.is_prompt:
                    assert not len(box), f"{[mail.message_id for mail in box.in_order()]} are not handed over"

    def check_disk_state(self) -> None:
        """Object to rows that contradict each other."""
        queued = {row.message_id for row in self.disk.operations.values() if row.state is OperationState.QUEUED}
        waiting = {row.message_id for row in self.disk.mail.values() if row.notice is None}
        assert queued <= waiting, f"{queued - waiting} are called queued and no mail is there"
        for row in self.disk.mail.values():
            if row.mailbox.startswith("session:"):
                known = self.disk.known_sessions[row.mailbox.partition(":")[2].lower()]
                assert known.state is not SessionState.CLOSED, "mail that nobody can open"


__all__ = ["Actor", "Attempt", "Line", "MailWitness", "notices"]
