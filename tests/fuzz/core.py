"""Throw frames of every type at the core while two witnesses talk; whatever comes, it costs the two nothing.

One number decides a world: who comes, what is written by whom, what of it is spoilt, and when time passes. Frames are
whole, spoilt in their members, or spoilt in their bytes. They name what their senders were shown, so they are about
something that is there. An operator may rightly do anything to anybody, so one does not get to know the witnesses.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from msgspec.json import decode as from_json
from msgspec.json import encode as to_json

from intercom.core.clock import Instant
from intercom.limits import HEADER_BYTES, Limits
from intercom.wire.codec import BadRequest, ProtocolError, decode_answer, decode_request, encode
from intercom.wire.frames import Delivered, DeliveryFailed, MessageFrame, Queued
from intercom.wire.shapes import FeatureRequest
from tests.core.harness import INFO, World
from tests.fuzz.mutations import encoded, mutated, spoilt_bytes
from tests.fuzz.shapes import ALL_FEATURES, GROUPS, Known, makers
from tests.fuzz.tally import Tally
from tests.simulation.leaks import differences, held_by

FRAMES = 1_000
"""Frames in one world."""
WITNESS_EVERY = 20
TIME_PASSES_EVERY = 40
RESTART_EVERY = 700
LONGEST_S = 1.0
"""What one frame may take."""
LEARNT = 0.5
"""Share of what is shown to a stranger that it takes note of."""
BUSY = (4, 4, 3, 3, 3, 2, 2, 1, 2)
"""How much of all is written by each of the strangers."""
FAVOURED = 0.25
FLOWS = ("flow_create", "flow_start", "flow_report", "flow_append", "flow_retry", "flow_resume", "invoke", "run_update")
WORK = ("inbox_list", "inbox_dispatch", "assignment_report", "assignment_reply", "authorize_supervisor", "send")
STAGES = (
    "register_pending_stage_route",
    "register_live_workflow_stage_route",
    "send_pending_stage_notification",
    "authorize_supervisor",
)
BROADCASTS = ("SessionJoined", "SessionLeft", "PresenceUpdate")
TODO = 6
"""So many of the last things a stranger thought of are not forgotten."""
FAILING_COMMIT_EVERY = 300
FAILING_READ = 0.03
ANSWERED_MS = 120_000
"""After so long every request has an answer."""
FOREVER_MS = 12 * 24 * 3_600_000
"""Three times as long everything has ended that anybody had."""
ENDS_OF_ALL = 0.1
"""Share of the worlds that are lived through to that end, which takes longer than all the frames."""
ENDING = ("shutdown", "broker_drain")
WEIGHTS = {"send": 12, "received": 3, "register": 1, "unregister": 1, "supervisor_send": 3}
MAKERS = makers()
KINDS = [kind for kind in MAKERS if kind not in ENDING]
CUMULATED = list(accumulate(WEIGHTS.get(kind, 1) for kind in KINDS))
STEPS_MS = (1, 50, 1_000, 2_500, 11_000, 70_000, 700_000, 4_000_000)
ROOMY = Limits(tidy_ms=5 * 24 * 3_600_000)
"""What had its time is looked for seldom: worlds are about frames, and nobody waits that long for a test."""
TIGHT = Limits(
    tidy_ms=ROOMY.tidy_ms,
    asks=2, groups=3, unconfirmed_frames=3, unconfirmed_bytes=2_000, capabilities_per_session=1, capabilities=2,
    crossings=1, reservations_per_session=1, reservations=2, held_per_session=1, held=2, routes_per_session=1,
    owner_requests_per_session=1, owner_requests=2, notifications=1, retired_ids=3, operations=40,
    operation_bytes=40_000, sender_share=2,
    mailbox_entries=3, mailbox_bytes=3_000, mail_offers=1, addresses=3, known_sessions=4, policies=2,
    inbox_entries=3, loop_entries=3,
)  # fmt: skip
"""With these the witnesses are refused now and then, as everybody is; what must hold is that nothing breaks."""


class Objection(AssertionError):
    """Say what went wrong in a world that no exception tells."""


@dataclass
class Stranger:
    """Be one of those who write whatever comes to mind."""

    profile: dict[str, Any]
    info: dict[str, Any]
    known: Known
    favours: tuple[str, ...] = ()
    """Types of frames it writes more often than others."""
    is_operator: bool = False
    conn: int | None = None
    todo: list[dict[str, Any]] = field(default_factory=list)
    """What follows from what it was shown."""
    invitations: list[dict[str, Any]] = field(default_factory=list)
    """Members by which it can register as somebody: with a capability, or as who it was before."""


class Witness:
    """Be one of the two who must get everything that was meant for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.conn = -1
        self.session_id = ""
        self.texts: list[str] = []
        self.outcomes: dict[str, list[str]] = {}


class FuzzWorld(World):
    """Play everything around a broker, faster than a test of one rule needs it, and pass on what it writes."""

    def __init__(self, fuzz: Fuzz, limits: Limits) -> None:
        self.fuzz = fuzz
        self.fails_next = False
        super().__init__(limits=limits, spawn_kinds=("custom", "codex"))

    def commit(self, count: int | None = None) -> None:
        """Commit everything, unless it is to fail now."""
        if self.fails_next and self.appends:
            self.fails_next = False
            self.fail_commit()
        else:
            super().commit(count)

    def read(self, *, fails: bool = False) -> None:
        """Read what was asked for; now and then it cannot be read."""
        super().read(fails=self.fuzz.chance.random() < FAILING_READ)

    def take(self, conn: int | None = None, count: int | None = None, *, told: bool = True) -> None:
        """Let every client take what is for it; everything is committed by then."""
        auto, self.auto = self.auto, False
        while self.waiting:
            write = self.waiting.popleft()
            self.fuzz.show(write.to, write.frame)
            if write.token is not None:
                self.perform(self.broker.frames_taken((write.token,), self.now))
            if self.appends:
                self.commit()
        self.auto = auto


class Fuzz:
    """Live through one world.

    Args:
        number: decides everything.
        frames: so many are written.
    """

    def __init__(self, number: int, frames: int = FRAMES) -> None:
        self.chance = random.Random(number)
        self.frames = frames
        self.is_tight = self.chance.random() < 0.2
        self.tally = Tally()
        self.owed: dict[tuple[int, str], bytes] = {}
        """Requests without an answer so far, by connection and id."""
        self.receipts: list[tuple[int, str]] = []
        self.strangers: list[Stranger] = []
        self.of: dict[int, Stranger] = {}
        self.witnesses = (Witness("wit-a"), Witness("wit-b"))
        self.said = 0
        self.world = FuzzWorld(self, TIGHT if self.is_tight else ROOMY)

    def play(self) -> Tally:
        """Do it all; raise what is wrong."""
        self.strangers = self._strangers()
        self._come_in()
        for step in range(self.frames):
            self._step()
            if step % WITNESS_EVERY == 0:
                self._let_witnesses_talk()
            if self.chance.random() < 1 / TIME_PASSES_EVERY:
                self.world.pass_time(self.chance.choice(STEPS_MS[: self.chance.randrange(1, len(STEPS_MS))]))
                self._confirm()
                self._end_processes()
            if self.chance.random() < 1 / RESTART_EVERY or self.world.stopped:
                self._restart()
        self._expect_answers()
        self._say_last_orders()
        self._let_witnesses_talk()
        if self.chance.random() < ENDS_OF_ALL:
            self._leave()
        return self.tally

    # --- who is there -----------------------------------------------------------------------------------

    def _strangers(self) -> list[Stranger]:
        ours, theirs = Known(), Known()
        newest = {
            "acknowledgesReceipt": True,
            "clientProtocolVersion": "1.0",
            "kind": "custom",
            "features": list(ALL_FEATURES),
        }
        worker = {**newest, "workMode": "resident", "executionSurface": "headless"}
        control = {"recipientPurpose": "control"}
        token = {"supervisorOwnerToken": "t-1"}
        return [
            Stranger({**worker, **token, "address": {"name": "mal"}}, {"name": "mal"}, theirs, FLOWS),
            Stranger(
                {**worker, **token, "workspace": "/p"}, {"name": "eve", "groups": ["default", "red"]}, theirs, WORK
            ),
            Stranger({**worker, "returnAddress": "r-1"}, {"name": "trudy", "group": "red"}, theirs),
            Stranger({**worker, **token, "registrationGroup": GROUPS[3]}, {"name": "host"}, theirs, STAGES),
            Stranger({**worker, "registrationGroup": GROUPS[3]}, {"name": "stage"}, theirs),
            Stranger({"returnAddress": "r-2", "acknowledgesReceipt": True}, {"name": "mallory"}, theirs),
            Stranger({}, {"name": "MAL", "replyCapability": "live", "groups": list(GROUPS)}, theirs),
            Stranger({"sessionId": "pi"}, {}, theirs),
            Stranger({"features": ["operator", "watch", "inbox"], **newest}, control, ours, is_operator=True),
        ]

    def _come_in(self) -> None:
        """Register the witnesses, and whoever else wants to be there from the beginning."""
        for witness in self.witnesses:
            witness.conn = self.world.connect()
            session = {**INFO, "name": witness.name}
            secrets = {"acknowledgesReceipt": True, "returnAddress": f"secret of {witness.name}"}
            self._feed(witness.conn, {"type": "register", "session": session, **secrets})
            if not witness.session_id:
                raise Objection(f"{witness.name} was not registered")
        for stranger in self.strangers:
            stranger.conn = None
            self._arrive(stranger)

    def _arrive(self, stranger: Stranger) -> None:
        conn = stranger.conn = self.world.connect()
        self.of[conn] = stranger
        draw = self.chance.random()
        if draw < 0.85:
            session = {**INFO, **stranger.info}
            invited = self.chance.choice(stranger.invitations) if stranger.invitations and draw < 0.4 else {}
            if "childName" in invited:
                session["name"] = invited["childName"]
                invited = {"supervisor": invited["supervisor"]}
            self._feed(conn, {"type": "register", "session": session, **stranger.profile, **invited})

    # --- what is written --------------------------------------------------------------------------------

    def _step(self) -> None:
        stranger = self.chance.choices(self.strangers, BUSY)[0]
        if stranger.conn is None or stranger.conn not in self.world.open:
            self._arrive(stranger)
        assert stranger.conn is not None
        self.world.fails_next = self.chance.random() < 1 / FAILING_COMMIT_EVERY
        if stranger.todo and self.chance.random() < 0.5:
            self._write(stranger, stranger.todo.pop(self.chance.randrange(len(stranger.todo))))
            return
        draw = self.chance.random()
        if draw < 0.01:
            if draw < 0.003:
                self.world.break_off(stranger.conn)
            elif draw < 0.006:
                self.world.lose(stranger.conn)
                self.world.end(stranger.conn)
            else:
                self.world.end(stranger.conn)
            return
        if stranger.favours and draw < FAVOURED:
            kind = self.chance.choice(stranger.favours)
        else:
            kind = self.chance.choices(KINDS, cum_weights=CUMULATED)[0]
        self._write(stranger, MAKERS[kind](self.chance, stranger.known))

    def _write(self, stranger: Stranger, frame: dict[str, Any]) -> None:
        assert stranger.conn is not None
        draw = self.chance.random()
        if draw < 0.35:
            frame = mutated(frame, self.chance, stranger.known)
        payload = encoded(frame)
        if draw > 0.92:
            payload = spoilt_bytes(payload, self.chance)
        if stranger.is_operator and any(mark in payload for mark in self._marks()):
            return
        self._feed_bytes(stranger.conn, payload)

    def _marks(self) -> list[bytes]:
        """Return what an operator would have to say to mean a witness."""
        return [mark.encode() for witness in self.witnesses for mark in (witness.name, witness.session_id)]

    def _feed(self, conn: int, frame: dict[str, Any]) -> None:
        self._feed_bytes(conn, to_json(frame))

    def _feed_bytes(self, conn: int, payload: bytes) -> None:
        begun = time.thread_time()
        world = self.world
        now = Instant(world.mono, world.wall)
        try:
            frame = decode_request(payload)
        except ProtocolError as error:
            world.perform(world.broker.protocol_error(conn, str(error), now))
        else:
            if isinstance(frame, (FeatureRequest, BadRequest)) and world.broker.is_registered(conn):
                self.owed[conn, frame.request_id] = payload
            world.perform(world.broker.frame_received(conn, frame, now))
        self._confirm()
        self.tally.count(time.thread_time() - begun, payload, LONGEST_S)

    def _confirm(self) -> None:
        """Let the witnesses confirm what they got."""
        while self.receipts:
            conn, message_id = self.receipts.pop()
            if conn in self.world.open:
                self.world.perform(
                    self.world.broker.frame_received(
                        conn, decode_request(to_json({"type": "received", "messageId": message_id})), self.world.now
                    )
                )

    # --- what is shown ----------------------------------------------------------------------------------

    def show(self, conn: int, frame: Any) -> None:
        """Show a frame to whom it is for."""
        if (request_id := getattr(frame, "request_id", None)) is not None:
            self.owed.pop((conn, request_id), None)
        witness = next((each for each in self.witnesses if each.conn == conn), None)
        if witness is None:
            stranger = self.of.get(conn)
            is_news = frame.__class__.__name__ in BROADCASTS
            if stranger is not None and not (is_news and self.chance.random() > LEARNT):
                self._show_stranger(stranger, encode(frame)[HEADER_BYTES:])
            return
        if isinstance(frame, MessageFrame):
            shown = from_json(encode(frame)[HEADER_BYTES:])
            witness.texts.append(shown["message"]["content"]["text"])
            self.receipts.append((conn, shown["message"]["id"]))
        elif isinstance(frame, Delivered | DeliveryFailed | Queued):
            witness.outcomes.setdefault(frame.message_id, []).append(frame.__class__.__name__)
        elif frame.__class__.__name__ == "Registered":
            witness.session_id = frame.session_id

    def _show_stranger(self, stranger: Stranger, payload: bytes) -> None:
        decode_answer(payload)
        shown = from_json(payload)
        stranger.known.learn(shown)
        kind = shown["type"]
        if "addressToken" in shown:
            # The profile may be another one by the time it is registered.
            stranger.profile["address"] = {**stranger.profile.get("address", {}), "token": shown["addressToken"]}
        if kind == "registered" and "ownerToken" in shown:
            again = {"preferredSessionId": shown["sessionId"], "ownerToken": shown["ownerToken"]}
            stranger.invitations = [*stranger.invitations[-2:], again]
        elif kind == "supervisor_authorized":
            supervisor = {name: shown[name] for name in ("capability", "supervisorSessionId")}
            invitation = {"supervisor": supervisor, "childName": shown["childName"]}
            other = self.chance.choice(self.strangers)
            other.invitations = [*other.invitations[-2:], invitation]
        if (following := FOLLOWING.get(kind)) is not None:
            follow = MAKERS[self.chance.choice(following)](self.chance, stranger.known)
            stranger.todo = [*stranger.todo[1 - TODO :], meant(follow, shown)]

    def _end_processes(self) -> None:
        """Judge of some whose connection was lost whether they live, and let what was started arrive or fail."""
        for ref in list(self.world.watched):
            if self.chance.random() < 0.5:
                self.world.perform(self.world.broker.process_judged(ref, self.chance.random() < 0.5, self.world.now))
        for spawn in self.world.spawned:
            if self.chance.random() < 0.5:
                self.world.perform(self.world.broker.spawn_ended(spawn.ref, "it ended", self.world.now))
            else:
                self.strangers[1].invitations.append({"spawnToken": spawn.token})
        self.world.spawned.clear()

    def _let_witnesses_talk(self) -> None:
        self.world.fails_next = False
        for sender, target in (self.witnesses, self.witnesses[::-1]):
            if sender.conn not in self.world.open or target.conn not in self.world.open:
                raise Objection("a witness lost its connection")
            self.said += 1
            text = f"witnessed-{self.said}"
            target.texts.clear()
            sender.outcomes.clear()
            message = {"id": text, "timestamp": 1, "content": {"text": text}}
            self._feed(sender.conn, {"type": "send", "to": target.session_id, "message": message, "attemptId": text})
            heard, outcomes = target.texts.count(text), sender.outcomes.get(text, [])
            if (heard, outcomes) != (1, ["Delivered"]) and not (
                self.is_tight and (heard, outcomes) == (0, ["DeliveryFailed"])
            ):
                raise Objection(f"{target.name} got {text} {heard} times, {sender.name} was told {outcomes}")

    # --- ends -------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        if self.chance.random() < 0.5:
            self.world.stop()
            self.world.auto = True
        self.of.clear()
        self.owed.clear()
        self.receipts.clear()
        self.world.start()
        self._come_in()

    def _expect_answers(self) -> None:
        """Object if somebody who is still there waits for ever."""
        self.world.pass_time(ANSWERED_MS)
        left = {payload for (conn, _), payload in self.owed.items() if conn in self.world.open}
        if left:
            raise Objection(f"no answer to {left}")

    def _say_last_orders(self) -> None:
        """Let somebody ask the broker to leave, in odd ways; whoever comes next finds the next broker."""
        stranger = self.strangers[0]
        self._arrive(stranger)
        self._write(stranger, MAKERS[self.chance.choice(ENDING)](self.chance, stranger.known))
        self.world.pass_time(2_000)
        self._restart()

    def _leave(self) -> None:
        """Let everybody go, and everything end; what the broker holds then is what the disk tells the next one."""
        for conn in list(self.world.open):
            self.world.lose(conn)
            self.world.end(conn)
        for _ in range(3):
            self.world.pass_time(FOREVER_MS)
        before = held_by(self.world.broker, "broker")
        self.world.start()
        self.world.pass_time(1_000)
        if found := differences(before, held_by(self.world.broker, "broker")):
            raise Objection("; ".join(found))


def meant(frame: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Let a frame be about what was shown: members of the same name say the same."""
    message = shown.get("message", {})
    told = {
        **shown,
        **message.get("flowDispatch", {}),
        **shown.get("assignment", {}),
        **shown.get("invocation", {}),
        **shown.get("flow", {}),
    }
    if frame["type"] == "send":
        frame["to"] = told["from"]["id"]
        frame["message"]["replyTo"] = message["id"]
        frame["requirePendingReply"] = frame.get("requirePendingReply", True)
        return frame
    if frame["type"] == "received":
        frame["messageId"] = message["id"]
    if frame["type"] == "link_ready":
        frame["journalId"] = "j-1"
        if isinstance(frame["lastReceivedCommandSeq"], int):
            frame["lastReceivedCommandSeq"] = min(frame["lastReceivedCommandSeq"], 3)
    if frame["type"] == "assignment_report":
        frame.pop("stateSequence", None)
    for name in frame:
        if name != "type" and name in told:
            frame[name] = told[name]
    return frame


FOLLOWING = {
    "message": (
        "received",
        "received",
        "send",
        "send",
        "flow_report",
        "assignment_report",
        "assignment_reply",
        "run_update",
    ),
    "pending_stage_message": ("pending_stage_message_result",),
    "pending_stage_notification": ("pending_stage_notification_result",),
    "link_bootstrap": ("link_ready", "link_ready", "link_rejected"),
    "link_confirmed": ("durable_event", "command_send", "links"),
    "command": ("command_received", "command_received", "command_rejected"),
    "command_stored": ("commands", "durable_event"),
    "flow": ("flow_start", "flow_pause", "flow_append", "flow_status"),
    "assignment_granted": ("assignment_report", "assignment_report", "assignment_reply"),
    "send_held": ("release_restoring_recipient",),
    "inbox_items": ("inbox_dispatch", "inbox_claim", "inbox_settle"),
    "supervisor_authorized": ("reserve_restoring_recipient", "register"),
    "invocation_accepted": ("invocation_get", "invocation_cancel"),
}
"""What may follow from a frame that was shown."""


def play(number: int) -> Tally:
    """Live through the world of this number."""
    return Fuzz(number).play()
