"""Let agents come, go, wait and write mail in any order, with a disk, a clock and a kernel that fail anywhere.

What is called queued, delivered, expired or undeliverable must be so in every world that hypothesis finds, and every
message that was let wait must come to one end. ``INTERCOM_EXAMPLES`` as in ``test_machine``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.core.connections import PeerCredentials
from intercom.core.records import SessionState
from intercom.limits import Limits
from tests.core.harness import INFO
from tests.core.mail import AGENT
from tests.core.mail_witness import Actor, Attempt, Line, MailWitness

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
STEPS = 40

ROOMY = Limits(
    receipt_wait_ms=4_000,
    busy_ms=1_000,
    operation_ttl_ms=60_000,
    ask_ms=40_000,
    dormant_target_ms=3_000,
    grace_ms=20_000,
    restart_grace_ms=3_000,
    mail_ttl_ms=50_000,
    tombstone_ms=90_000,
    history_kept_ms=80_000,
    bodies_kept_ms=30_000,
    tidy_ms=10_000,
    mail_offers=3,
    inbox_entries=0,
)
TIGHT = Limits(
    receipt_wait_ms=4_000,
    busy_ms=1_000,
    operation_ttl_ms=60_000,
    ask_ms=40_000,
    dormant_target_ms=3_000,
    grace_ms=20_000,
    restart_grace_ms=3_000,
    mail_ttl_ms=30_000,
    tombstone_ms=40_000,
    history_kept_ms=20_000,
    bodies_kept_ms=5_000,
    tidy_ms=10_000,
    mail_offers=1,
    mail_offer_bytes=400,
    mailbox_entries=2,
    mailbox_bytes=900,
    known_sessions=4,
    unconfirmed_frames=2,
    asks=2,
    inbox_entries=0,
)
TIMES_MS = (1, 900, 1_100, 4_000, 9_000, 21_000, 31_000, 61_000)
VALIDITIES_MS = (1, 800, 3_000, 25_000)
FOREVER_MS = 400_000
TOKEN = "t" * 32
index = st.integers(0, 59)
conversation = st.lists(st.tuples(index, index, index), min_size=1, max_size=4)
seldom = st.sampled_from([False, False, False, True])


def actors() -> list[Actor]:
    """Return the client programs of one world."""
    queue = ("queue",)
    return [
        Actor("amy", AGENT, 11, visible="amy"),
        Actor("bob", AGENT, 12, visible="bob", is_prompt=False),
        Actor("box one", AGENT, 13, address="box", visible="box"),
        Actor("box two", AGENT, 14, address="box", visible="box", is_prompt=False),
        Actor("box writer", AGENT, 15, address="box", hold="none"),
        Actor("plain holder", ("push.receipts", "address", "queue"), 16, address="pot", visible="pot"),
        Actor("sender", queue, 17, visible="sender"),
        Actor("thief", AGENT, 18, address="box", visible="bob", is_thief=True),
        Actor("older", (), 19, visible="old"),
        Actor("mute", (), 20, visible="mute", confirms=False),
        Actor("person", AGENT, 21, address="@me"),
    ]


class MailWorld(RuleBasedStateMachine):
    """Choose what happens next; the witness objects when the core breaks a rule."""

    @initialize(is_tight=st.booleans(), first=index)
    def begin(self, is_tight: bool, first: int) -> None:
        self.witness = MailWitness(TIGHT if is_tight else ROOMY)
        self.world = self.witness.world
        self.actors = actors()
        self.commits = self.takes = self.reads = True
        self.count = 0
        self.deeds = 0
        self.since_start = 0
        self.recent: list[Attempt] = []
        for step in range(3):
            self.arrive_as(self.actors[(first + step * 2) % len(self.actors)], 0)

    # --- helpers ----------------------------------------------------------------------------------------

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def lines(self) -> list[Line]:
        return [line for line in self.witness.lines.values() if not line.ended]

    def members(self) -> list[Line]:
        return [line for line in self.lines() if line.is_told]

    def line_of(self, actor: Actor) -> Line | None:
        return next((line for line in reversed(self.lines()) if line.actor is actor), None)

    def connect(self, actor: Actor) -> Line:
        peer = PeerCredentials(pid=actor.pid, uid=1000, gid=1000, started=7)
        number = self.world.connections + 1
        line = self.witness.lines[number] = Line(number, actor)
        assert self.world.connect(peer) == number
        return line

    def write(self, line: Line, type: str, **members: Any) -> None:
        self.deeds += 1
        self.world.send(line.number, type=type, **members)
        self.go_on()

    def request(self, line: Line, type: str, **members: Any) -> None:
        request_id = self.next("r")
        line.requests.add(request_id)
        self.write(line, type, requestId=request_id, **members)

    def go_on(self) -> None:
        """Do what disk, kernel and prompt clients do at once."""
        world = self.world
        for _ in range(200):
            moved = False
            if self.commits and world.appends:
                world.commit()
                moved = True
            if self.reads and world.reads:
                world.read()
                moved = True
            if self.takes:
                world.take()
            due, self.witness.due_receipts = self.witness.due_receipts, []
            for line, message_id in due:
                if not line.ended:
                    self.receive(line, message_id)
                    moved = True
            if not moved:
                return
        raise AssertionError("it never comes to rest")

    def receive(self, line: Line, message_id: str) -> None:
        if line.session_id is not None:
            self.witness.receipts[message_id].add(line.actor)
        self.world.send(line.number, type="received", messageId=message_id)

    # --- sessions come and go ---------------------------------------------------------------------------

    @precondition(lambda self: len(self.lines()) < 7)
    @rule(which=index, how=index)
    def arrive(self, which: int, how: int) -> None:
        self.arrive_as(self.actors[which % len(self.actors)], how)

    def arrive_as(self, actor: Actor, how: int) -> None:
        """Register, or come back; ``how`` chooses among what a client may show."""
        mine = [line for line in self.lines() if line.actor is actor]
        if len(mine) > 1:
            return
        if actor.owner_token is not None and how % 5 in (1, 2, 3):
            self.reattach(actor, how)
            return
        waiting = [line for line in mine if not line.is_told and line.session_id is None]
        line = waiting[0] if waiting and not waiting[0].request else self.connect(actor)
        self.register(line, self.registration(actor, how))

    def registration(self, actor: Actor, how: int) -> dict[str, Any]:
        info = {**INFO, "pid": actor.pid, "recipientPurpose": actor.purpose}
        if actor.visible is not None:
            info["name"] = actor.visible
        request: dict[str, Any] = {"session": info}
        if actor.name != "mute":
            request["returnAddress"] = actor.return_address
        if actor.confirms:
            request["acknowledgesReceipt"] = True
        if not actor.features:
            return request
        request |= {"features": list(actor.features), "clientProtocolVersion": "1.0", "kind": "custom"}
        is_known = any(row.token_hash for row in self.witness.disk.addresses.values() if row.name == actor.address)
        if actor.address is not None and (is_known or not actor.is_thief):
            token = self.witness.tokens.get(actor.address)
            if actor.is_thief:
                token = "x" * 32
            elif token is None and how % 2:
                token = TOKEN
            hold = "free" if actor.hold == "take" and how % 4 == 3 else actor.hold
            request["address"] = {"name": actor.address, "hold": hold}
            if token is not None:
                request["address"]["token"] = token
        if actor.owner_token is not None and how % 3:
            request |= {"preferredSessionId": actor.session_id, "ownerToken": actor.owner_token}
        elif actor.is_thief and self.witness.owners:
            ids = list(self.witness.owners)
            request |= {"preferredSessionId": ids[how % len(ids)], "ownerToken": actor.owner_token or "y" * 64}
        return request

    def register(self, line: Line, request: dict[str, Any]) -> None:
        witness, actor = self.witness, line.actor
        line.request = request
        claim = request.get("address")
        if claim is not None and not actor.is_thief and actor.hold != "none":
            witness.replacements.add(actor.address or "")
        witness.replacements.add(actor.return_address)
        if claim is not None and claim.get("token") == TOKEN and actor.address not in witness.tokens:
            witness.tokens[actor.address or ""] = TOKEN
        self.write(line, "register", **request)

    def reattach(self, actor: Actor, how: int) -> None:
        line = self.connect(actor)
        request = {"sessionId": actor.session_id, "ownerToken": actor.owner_token}
        if actor.is_thief:
            ids = list(self.witness.owners)
            request["sessionId"] = ids[how % len(ids)]
        line.request = request
        self.request(line, "session_reattach", **request)
        if how % 7 == 0:
            self.request(line, "session_reattach", **request)
        if not line.ended and line.session_id is None and not line.requests and how % 2:
            self.register(line, self.registration(actor, how))

    @precondition(lambda self: self.lines())
    @rule(which=index, how=st.sampled_from(["fin", "fin", "reset", "reset unnoticed", "unregister", "nonsense"]))
    def depart(self, which: int, how: str) -> None:
        line = self.lines()[which % len(self.lines())]
        match how:
            case "fin":
                self.world.end(line.number)
            case "reset":
                self.world.break_off(line.number)
                self.world.perform([])
            case "reset unnoticed":
                self.world.break_off(line.number)
            case "nonsense":
                self.world.perform(self.world.broker.protocol_error(line.number, "not JSON", self.world.now))
            case _ if line.is_told and line.session_id is not None:
                self.witness.unregistered.add(line.session_id)
                self.world.send(line.number, type="unregister")
                if not line.ended:
                    self.world.end(line.number)
        self.go_on()

    @precondition(lambda self: self.members())
    @rule(which=index, name=index, group=index)
    def change(self, which: int, name: int, group: int) -> None:
        line = self.members()[which % len(self.members())]
        members: dict[str, Any] = {"status": ("busy", "idle")[name % 2]}
        if group % 3 == 0:
            members["groups"] = [("default", "far")[step] for step in range(1 + group % 2)]
        self.request(line, "presence", **members)

    @precondition(lambda self: self.world.watched)
    @rule(which=index, is_alive=st.booleans())
    def judge(self, which: int, is_alive: bool) -> None:
        refs = list(self.world.watched)
        ref = refs[which % len(refs)]
        if not is_alive:
            self.witness.judged.add(ref.partition("/")[0])
        self.world.perform(self.world.broker.process_judged(ref, is_alive, self.world.now))
        self.go_on()

    # --- messages ---------------------------------------------------------------------------------------

    def target(self, line: Line, number: int) -> str:
        names = ["amy", "bob", "box", "pot", "@me", "old", "mute", "sender", "nobody"]
        ids = [session_id for session_id in self.witness.owners if session_id != line.session_id][-8:]
        some = names[:5] * 2 + ids * 2 + names[5:]
        return some[number % len(some)]

    @precondition(lambda self: self.members())
    @rule(acts=conversation, kind=st.sampled_from("mmmmmsar"))
    def talk_on(self, acts: list[tuple[int, int, int]], kind: str) -> None:
        self.talk(acts, kind)

    @precondition(lambda self: self.members() and self.world.broker.away_count)
    @rule(which=index, to=index, flags=index)
    def write_to_the_absent(self, which: int, to: int, flags: int) -> None:
        lines = [line for line in self.members() if "queue" in line.actor.features]
        away = [row for row in self.witness.disk.known_sessions.values() if row.state is SessionState.RECONNECTING]
        if lines and away:
            message = {"id": self.next("m"), "timestamp": 1, "content": {"text": "x" * (1 + flags % 50)}}
            frame: dict[str, Any] = {"to": away[to % len(away)].session_id, "message": message}
            self.let_wait(frame, flags)
            self.send(lines[which % len(lines)], frame)

    @precondition(lambda self: any(actor.owner_token and self.line_of(actor) is None for actor in self.actors))
    @rule(which=index, how=index)
    def come_back(self, which: int, how: int) -> None:
        gone = [actor for actor in self.actors if actor.owner_token and self.line_of(actor) is None]
        self.arrive_as(gone[which % len(gone)], 1 + how % 3)

    @precondition(lambda self: self.members())
    @rule(acts=conversation, kind=st.sampled_from("smmmmaar"))
    def talk(self, acts: list[tuple[int, int, int]], kind: str) -> None:
        for which, to, flags in acts:
            members = self.members()
            if members:
                line = members[which % len(members)]
                message = {"id": self.next("m"), "timestamp": 1, "content": {"text": "x" * (1 + flags % 50)}}
                frame: dict[str, Any] = {"to": self.target(line, to), "message": message}
                if kind == "a":
                    message["expectsReply"] = True
                elif kind == "r" and line.actor.heard:
                    heard = line.actor.heard[-1 - to % min(len(line.actor.heard), 8)]
                    frame["to"] = heard["from"]["id"] if flags % 3 else frame["to"]
                    message["replyTo"] = heard["message"]["id"]
                    if flags % 2:
                        frame["requirePendingReply"] = True
                if kind != "s":
                    self.let_wait(frame, flags)
                self.send(line, frame)

    def let_wait(self, frame: dict[str, Any], flags: int) -> None:
        frame["queueIfAway"] = True
        if flags % 3 == 0:
            frame["validFor"] = VALIDITIES_MS[flags % len(VALIDITIES_MS)]

    def send(self, line: Line, frame: dict[str, Any]) -> None:
        if "queue" not in line.actor.features and "validFor" in frame:
            del frame["validFor"]
        frame = {**frame, "attemptId": self.next("a")}
        self.witness.attempted(line, frame)
        self.since_start += 1
        self.recent = [*self.recent[-9:], self.witness.attempts[frame["attemptId"]]]
        self.write(line, "send", **frame)

    @precondition(lambda self: self.recent and self.members())
    @rule(which=index, where=index, other=index)
    def retry(self, which: int, where: int, other: int) -> None:
        attempt = self.recent[-1 - which % len(self.recent)]
        members = self.members()
        mine = [line for line in members if line.actor is attempt.line.actor]
        line = (mine or members)[where % len(mine or members)]
        frame = {name: value for name, value in attempt.frame.items() if name != "attemptId"}
        if other % 6 == 1:
            frame["message"] = {**frame["message"], "content": {"text": "another"}}
        elif other % 6 == 2:
            frame["to"] = self.target(line, where)
        elif other % 6 == 3:
            frame.pop("queueIfAway", None)
            frame.pop("validFor", None)
        elif other % 6 == 4:
            self.let_wait(frame, other)
        self.send(line, frame)

    @precondition(lambda self: any(line.actor.heard for line in self.members()))
    @rule(which=index, what=index)
    def confirm(self, which: int, what: int) -> None:
        lines = [line for line in self.members() if line.actor.heard and line.actor.confirms]
        if lines:
            line = lines[which % len(lines)]
            heard = line.actor.heard[-1 - what % min(len(line.actor.heard), 8)]
            self.receive(line, heard["message"]["id"])
            self.go_on()

    @precondition(lambda self: self.recent and self.members())
    @rule(which=index)
    def withdraw(self, which: int) -> None:
        """Take a question back, or what is none; only its sender can."""
        attempt = self.recent[-1 - which % len(self.recent)]
        members = self.members()
        mine = [line for line in members if line.actor is attempt.line.actor]
        line = (mine or members)[which % len(mine or members)]
        self.write(line, "cancel_ask", messageId=attempt.frame["message"]["id"])

    # --- looking, closing, purging ----------------------------------------------------------------------

    @precondition(lambda self: self.members())
    @rule(which=index, what=st.sampled_from(["trace", "trace", "mailbox", "pending", "addresses", "session_records"]))
    def look(self, which: int, what: str) -> None:
        lines = [line for line in self.members() if line.actor.features]
        if lines:
            line = lines[which % len(lines)]
            members = {}
            if what == "trace":
                ids = list(self.witness.of_message) or ["m"]
                members["messageId"] = ids[-1 - which % min(len(ids), 6)]
            self.request(line, what, **members)

    @precondition(lambda self: self.deeds > 4)
    @rule(which=index, what=st.sampled_from(["session_force_close", "purge", "purge of", "trace", "mailbox"]))
    def operate(self, which: int, what: str) -> None:
        """Be the person for one request."""
        person = Actor("operator", ("operator",), 30, purpose="control", is_prompt=False)
        line = self.connect(person)
        pace = self.commits, self.takes, self.reads
        self.commits = self.takes = self.reads = True
        self.register(line, self.registration(person, 0))
        self.commits, self.takes, self.reads = pace
        ids = list(self.witness.owners)
        mails = list(self.witness.of_message) or ["m"]
        if line.ended or not line.is_told:
            return
        match what:
            case "session_force_close":
                session_id = ids[which % len(ids)]
                self.witness.forced.add(session_id)
                self.request(line, what, sessionId=session_id, reason="why not")
            case "purge":
                self.request(line, what, olderThanMs=which * 1_000)
            case "purge of":
                self.witness.was_purged = True
                self.request(line, "purge", of={"address": "box"})
            case "trace":
                self.request(line, what, messageId=mails[-1 - which % len(mails)])
            case _:
                self.request(line, what, of={"address": ("box", "pot", "@me")[which % 3]})

    # --- time, disk and kernel --------------------------------------------------------------------------

    @precondition(lambda self: self.deeds > 0)
    @rule(ms=st.sampled_from(TIMES_MS))
    def pass_time(self, ms: int) -> None:
        self.deeds = 0
        self.world.pass_time(ms)
        self.go_on()

    @precondition(lambda self: self.deeds > 1)
    @rule(ms=st.sampled_from([-3_600_000, -5_000, 5_000, 40_000]), is_wanted=seldom)
    def set_clock(self, ms: int, is_wanted: bool) -> None:
        """Move the wall clock, as a person or a suspended machine does."""
        if is_wanted:
            self.witness.clock_was_set = True
            self.world.wall += ms

    @precondition(lambda self: self.deeds > 1)
    @rule(commits=st.booleans(), takes=st.booleans(), reads=st.booleans())
    def change_pace(self, commits: bool, takes: bool, reads: bool) -> None:
        self.commits, self.takes, self.reads = commits, takes, reads
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.world.commit(count)
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(before=st.integers(0, 5), is_final=st.sampled_from([False] * 7 + [True]))
    def fail_commit(self, before: int, is_final: bool) -> None:
        self.world.commit(before % len(self.world.appends))
        self.witness.store_is_closed = self.witness.store_is_closed or is_final
        self.world.fail_commit(final=is_final)
        self.go_on()

    @precondition(lambda self: self.world.reads)
    @rule(fails=st.booleans())
    def read(self, fails: bool) -> None:
        self.world.read(fails=fails)
        self.go_on()

    @precondition(lambda self: self.witness.disk.mail)
    @rule(which=index, is_wanted=seldom)
    def lose_body(self, which: int, is_wanted: bool) -> None:
        if is_wanted:
            numbers = list(self.witness.disk.mail)
            self.witness.disk.bodies.pop(numbers[which % len(numbers)], None)
            self.witness.was_lost = True

    @precondition(lambda self: self.world.waiting)
    @rule(which=index, count=st.integers(1, 3))
    def take(self, which: int, count: int) -> None:
        self.world.take(self.world.waiting[which % len(self.world.waiting)].to, count)
        self.go_on()

    @precondition(lambda self: self.lines())
    @rule(which=index)
    def turn_deaf_or_hear(self, which: int) -> None:
        self.world.deaf ^= {self.lines()[which % len(self.lines())].number}
        self.go_on()

    # --- ends -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.since_start > 2)
    @rule(is_graceful=st.booleans(), durable=st.integers(0, 5), lucky=st.lists(index, max_size=2), back=index)
    def end_broker(self, is_graceful: bool, durable: int, lucky: list[int], back: int) -> None:
        """Stop the broker, or kill it before it hears of its last commits and of the last frames the kernel took."""
        if is_graceful:
            self.world.stop()
        else:
            for place in lucky:
                if self.world.waiting:
                    self.world.take(self.world.waiting[place % len(self.world.waiting)].to, told=False)
            for append in list(self.world.appends)[:durable]:
                self.world.disk.commit(append)
        self.restart(back)

    def restart(self, back: int) -> None:
        """Start a new broker; some of the clients come back."""
        self.witness.check_replay()
        were_here = [line.actor for line in self.members()]
        self.world.crash()
        self.witness.restarted()
        self.since_start = 0
        for step, actor in enumerate(were_here):
            if back >> step & 1:
                self.arrive_as(actor, 1)

    @precondition(lambda self: self.deeds > 3)
    @rule()
    def rest(self) -> None:
        """Let everything come to an end that can; then nobody may wait for anything."""
        pace = self.commits, self.takes, self.reads
        self.settle()
        self.witness.check_answers()
        self.witness.check_ends()
        self.witness.check_claims()
        self.witness.check_closings()
        if not self.witness.store_is_closed:
            self.witness.check_memory()
            self.witness.check_disk_state()
            self.witness.check_stuck()
        self.witness.check_replay()
        self.commits, self.takes, self.reads = pace

    def settle(self) -> None:
        self.commits = self.takes = self.reads = True
        self.world.perform([])
        self.world.deaf.clear()
        self.go_on()
        self.world.pass_time(self.witness.limits.receipt_wait_ms + self.witness.limits.mail_retry_ms)
        self.go_on()

    @invariant()
    def nothing_is_appended_to_a_closed_store(self) -> None:
        assert not (self.witness.store_is_closed and self.world.appends)

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        """Let everybody come back, fetch everything and leave; then let all time pass: nothing may be left."""
        if self.witness.store_is_closed:
            self.restart(0)
        self.rest()
        self.commits = self.takes = self.reads = True
        for actor in self.actors:
            actor.is_prompt = True
            if self.line_of(actor) is None and not actor.is_thief:
                self.arrive_as(actor, 1)
        for line in self.lines():
            for heard in line.actor.heard:
                self.receive(line, heard["message"]["id"])
            self.go_on()
        self.rest()
        for line in self.lines():
            self.world.end(line.number)
        self.go_on()
        self.world.pass_time(FOREVER_MS)
        self.go_on()
        self.rest()
        disk = self.witness.disk
        assert not disk.mail and not disk.operations
        assert self.witness.clock_was_set or not disk.bodies
        assert all(row.state is SessionState.CLOSED for row in disk.known_sessions.values())
        left = left_in(self.world.broker)
        assert not left, left


def left_in(broker: Any) -> dict[str, int]:
    """Return the sizes of everything that should be empty when all have left and all time has passed."""
    sizes = {
        "boxes": len(broker._post.boxes.all()),
        "away": broker.away_count,
        "processes": len(broker._registry.lifecycle._by_process),
        "reserved ids": len(broker._registry.sessions._reserved),
        "unconfirmed": len(broker._messages.receipts) + len(broker._messages.receipts._by_identity),
        "questions": len(broker._messages.questions),
        "awaiting": len(broker._ledger._awaiting) + len(broker._ledger._uncommitted) + len(broker._ledger._resting),
        "holders": sum(address.holder is not None for address in broker._registry.addresses),
    }
    return {name: size for name, size in sizes.items() if size}


TestMailWorld = MailWorld.TestCase
TestMailWorld.pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.long,
]  # Hundreds of worlds: a loaded machine needs minutes
TestMailWorld.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=STEPS,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)
