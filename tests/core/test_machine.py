"""Let clients of all generations do anything in any order, with a disk and a kernel that fail anywhere.

The rules of the core must hold in every world that hypothesis finds. ``INTERCOM_EXAMPLES`` sets how many worlds are
tried and makes them new ones in every run; without it the same few are tried every time.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.limits import Limits
from tests.core.actors import Attempt, Generation, Heard, Line, Member, Program
from tests.core.harness import INFO
from tests.core.waiting import assert_no_circle
from tests.core.witness import Witness

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
STEPS = 50

ROOMY = Limits(
    receipt_wait_ms=2_000,
    operation_ttl_ms=60_000,
    evictable_after_ms=5_000,
    ask_ms=40_000,
    dormant_target_ms=3_000,
    crossing_ms=10_000,
)
TIGHT = Limits(
    receipt_wait_ms=2_000,
    operation_ttl_ms=60_000,
    evictable_after_ms=5_000,
    ask_ms=90_000,
    dormant_target_ms=3_000,
    crossing_ms=10_000,
    asks=2,
    groups=2,
    unconfirmed_frames=2,
    unconfirmed_bytes=1_500,
    unconfirmed_total_frames=3,
    unconfirmed_total_bytes=2_000,
    capabilities_per_session=1,
    capabilities=2,
    crossings=1,
    retired_ids=3,
    operations=6,
    operation_bytes=3_000,
    sender_share=2,
)
TIMES_MS = (1, 900, 2_000, 6_000, 20_000, 59_000, 61_000)
FOREVER_MS = 200_000
NAMES = (None, "amy", "AMY", "bob")
GROUPS = ("g1", "g2", "default")
CHILD_NAMES = ("amy", "bob", "*")
MOST_LINES = 7
RECENT = 12

index = st.integers(0, 59)
"""Picks one of what there is at that moment."""
ACTS = ("send", "ask", "ask", "send_up", "reply", "reply", "retry", "retry", "retry", "confirm")
RARE_ACTS = ("reply_to_a_stranger", "cancel")
conversation = st.lists(st.tuples(st.sampled_from(ACTS * 2 + RARE_ACTS), index, index, index), min_size=1, max_size=4)
seldom = st.sampled_from([False, False, False, True])


def programs() -> list[Program]:
    """Return the client programs of one world; each may be connected twice at a time."""
    newest, older, legacy = Generation.NEWEST, Generation.OLDER, Generation.LEGACY_PI
    return [
        Program(0, newest, confirms=True, prompt=True, home=None, supervises=True),
        Program(1, newest, confirms=True, prompt=False, home="g1", supervises=False),
        Program(2, newest, confirms=False, prompt=False, home=None, supervises=True),
        Program(3, newest, confirms=False, prompt=False, home="g2", supervises=False),
        Program(4, older, confirms=False, prompt=False, home=None, supervises=True),
        Program(5, older, confirms=False, prompt=False, home=None, supervises=False),
        Program(6, legacy, confirms=False, prompt=False, home=None, supervises=False),
    ]


class BrokerWorld(RuleBasedStateMachine):
    """Choose what happens next; the witness objects when the core breaks a rule."""

    @initialize(is_tight=st.booleans(), first=index, pick=index)
    def begin(self, is_tight: bool, first: int, pick: int) -> None:
        self.witness = Witness(TIGHT if is_tight else ROOMY, bounds_are_hit=is_tight)
        self.world = self.witness.world
        self.programs = programs()
        self.commits_at_once = self.takes_at_once = True
        self.count = 0
        self.recent: list[Attempt] = []
        self.departed: list[str] = []
        self.attempts_since_start = 0
        self.deeds = 0
        """Frames written since time last passed; keeps worlds from being mostly about waiting."""
        for step in range(4):
            self.arrive_with(first + step, pick + step, (pick % 4) * (step + 1), False, 0, 0, 0)

    # --- helpers ----------------------------------------------------------------------------------------

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def lines(self) -> list[Line]:
        return [line for line in self.witness.lines.values() if not line.ended]

    def members(self) -> list[Member]:
        return self.witness.members

    def member(self, number: int) -> Member:
        return self.members()[number % len(self.members())]

    def write(self, line: Line, type: str, cause: Any = None, **members: Any) -> None:
        self.witness.cause = cause
        self.deeds += 1
        self.world.send(line.number, type=type, **members)
        self.witness.cause = None
        self.go_on()

    def request(self, line: Line, type: str, answers: tuple[str, ...], **members: Any) -> None:
        request_id = self.next("r") + "@" + str(members.get("group", ""))
        line.requests[request_id] = answers
        self.write(line, type, requestId=request_id, **members)

    def attempt(self, line: Line, kind: str, frame: dict[str, Any]) -> None:
        if line.program.generation is not Generation.LEGACY_PI:
            frame = {**frame, "attemptId": self.next("a")}
        attempt = self.witness.attempted(line, kind, frame)
        self.attempts_since_start += 1
        self.recent = [*self.recent[-RECENT:], attempt]
        self.write(line, kind, attempt, **frame)

    def message(self, text: str = "x", **members: Any) -> dict[str, Any]:
        return {"id": self.next("m"), "timestamp": self.world.wall, "content": {"text": text}, **members}

    def go_on(self) -> None:
        """Do what disk, kernel and prompt clients do at once."""
        while True:
            if self.commits_at_once and self.world.appends:
                self.world.commit()
            if self.takes_at_once:
                self.world.take()
            receipts, self.witness.due_receipts = self.witness.due_receipts, []
            for line, message_id in receipts:
                if line.member is not None:
                    self.receive(line, message_id)
            if not receipts and not (self.commits_at_once and self.world.appends):
                break

    def receive(self, line: Line, message_id: str) -> None:
        self.witness.confirmed(line, message_id)
        self.world.send(line.number, type="received", messageId=message_id)

    # --- sessions come and go ---------------------------------------------------------------------------

    @precondition(lambda self: len(self.lines()) < MOST_LINES)
    @rule(which=index, name=index, group=index, more_groups=st.booleans(), wish=index, odd=index, claim=index)
    def arrive(self, which: int, name: int, group: int, more_groups: bool, wish: int, odd: int, claim: int) -> None:
        self.arrive_with(which, name, group, more_groups, wish, odd, claim)

    def arrive_with(
        self, which: int, name: int, group: int, more_groups: bool, wish: int, odd: int, claim: int
    ) -> None:
        program = self.programs[which % len(self.programs)]
        mine = [line for line in self.lines() if line.program is program]
        line = next((line for line in mine if line.member is None), None)
        if line is None:
            if len(mine) > 1:
                return
            line = Line(self.world.connect(), program)
            self.witness.lines[line.number] = line
        info: dict[str, Any] = {**INFO}
        request: dict[str, Any] = {"session": info}
        if NAMES[name % len(NAMES)] is not None:
            info["name"] = NAMES[name % len(NAMES)]
        if group % 4:
            info["group"] = GROUPS[group % 3]
        if program.token is not None:
            request["supervisorOwnerToken"] = program.token
        if program.generation is Generation.NEWEST:
            if more_groups:
                info["groups"] = [GROUPS[(group + step) % 3] for step in range(1 + group % 2)]
            if program.home is not None:
                request["registrationGroup"] = program.home
            if odd == 1:
                info["recipientPurpose"] = "control"
            if odd == 2:
                info["replyCapability"] = "terminal"
            request["returnAddress"] = program.address
            if program.confirms:
                request["acknowledgesReceipt"] = True
            others = ["no-uuid", *(gone for gone in self.departed if self.witness.find(gone) is None)]
            wished = program.last_id if wish % 4 else others[wish % len(others)]
            if wished is not None and wish != 0:
                request["preferredSessionId"] = wished
        if program.generation is not Generation.LEGACY_PI and claim % 3 == 0:
            known = [entry for other in self.programs for entry in other.capabilities]
            if known:
                child_name, capability = known[claim % len(known)]
                info.setdefault("name", "amy" if child_name == "*" else child_name)
                request["supervisor"] = {"capability": capability, "supervisorSessionId": "whoever"}
        self.register(line, request)

    def register(self, line: Line, request: dict[str, Any]) -> None:
        self.witness.pending_registration = request
        self.witness.cause = line
        self.world.send(line.number, type="register", **request)
        self.witness.cause = None
        if line.member is not None and line.member.confirms:
            self.witness.check_written_again(line.member)
        self.go_on()
        if line.member is not None:
            self.departed.append(line.member.id)
        elif line.number not in self.world.broken and not self.witness.bounds_are_hit:
            claim = self.witness.capabilities.get(request["supervisor"]["capability"])
            name = request["session"]["name"]
            assert claim is None or self.witness.find(claim[0]) is None or name != (claim[2] or claim[1]), "refused"

    @precondition(lambda self: self.lines())
    @rule(which=index, how=st.sampled_from(["fin", "reset", "reset unnoticed", "unregister", "nonsense"]))
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
            case _ if line.member is not None:
                self.world.send(line.number, type="unregister")
                self.witness.leave(line)
        self.go_on()

    @precondition(lambda self: any(write.to in self.world.finished for write in self.world.waiting))
    @rule()
    def vanish_after_fin(self) -> None:
        for conn in {write.to for write in self.world.waiting} & self.world.finished:
            self.world.break_off(conn)
        self.world.perform([])
        self.go_on()

    @precondition(lambda self: self.members())
    @rule(which=index, what=st.sampled_from(["list", "list", "list_groups", "health"]), group=index)
    def look(self, which: int, what: str, group: int) -> None:
        line = self.member(which).line
        if what == "list" and group % 3:
            self.request(line, "list", ("sessions",), group=GROUPS[group % 3])
        elif what == "list":
            self.request(line, "list", ("sessions",))
        elif line.program.generation is Generation.NEWEST:
            self.request(line, what, ("groups", "health"))

    # --- presence ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.members())
    @rule(
        which=index, kind=st.sampled_from(["presence", "presence", "join_group", "leave_group"]), group=index, odd=index
    )
    def change(self, which: int, kind: str, group: int, odd: int) -> None:
        member = self.member(which)
        generation = member.program.generation
        fields: dict[str, Any] = {"status": "busy"} if odd % 2 else {}
        if generation is not Generation.NEWEST:
            kind = "presence"
        if odd % 5 == 0 and group % len(NAMES):
            fields["name"] = NAMES[group % len(NAMES)]
        if kind == "join_group" or group % 3 == 0:
            fields["group"] = ("true", *GROUPS)[min(odd % 9, 1) * (1 + group % 3)]
        elif kind == "presence" and generation is Generation.NEWEST and group % 3 == 1:
            fields["groups"] = [GROUPS[(group + step) % 3] for step in range(odd % 3)]
        if odd % 6 == 3 and generation is Generation.NEWEST:
            fields["replyCapability"] = "live" if odd == 3 else "terminal"
        is_fine = self.expect_change(member, kind, fields)
        good, bad = ("presence_ack" if kind == "presence" else "membership_ack"), "presence_failed"
        if generation is Generation.LEGACY_PI:
            self.write(member.line, kind, **fields)
            assert is_fine == (member.line.number not in self.world.destroyed)
        else:
            self.request(member.line, kind, (good if is_fine else bad,), **fields)

    def expect_change(self, member: Member, kind: str, fields: dict[str, Any]) -> bool:
        """Change the account as protocol 4.5 to 4.7 say; return whether the request is well-formed."""
        asked = fields.get("groups", [fields["group"]] if "group" in fields else [])
        if "true" in asked or (fields.get("replyCapability") == "live" and member.is_terminal):
            return False
        groups, legacy = list(member.groups), member.legacy
        if kind == "join_group":
            groups += [group for group in asked if group not in groups]
        elif kind == "leave_group" and asked:
            groups = [group for group in groups if group not in asked] or ["default"]
            legacy = legacy if legacy in groups else groups[0]
        elif kind == "leave_group":
            groups, legacy = [member.home], member.home
        elif "groups" in fields or "group" in fields:
            groups = list(dict.fromkeys(asked)) or ["default"]
            legacy = groups[0]
        if len(groups) > self.witness.limits.groups:
            return False
        member.groups, member.legacy = groups, legacy
        member.name = fields.get("name", member.name)
        member.is_terminal = fields.get("replyCapability", "terminal" if member.is_terminal else "live") == "terminal"
        member.view = self.witness.snapshot(member)
        return True

    # --- messages ---------------------------------------------------------------------------------------

    @rule(acts=conversation)
    def talk(self, acts: list[tuple[str, int, int, int]]) -> None:
        for act, first, second, third in acts:
            if self.members():
                getattr(self, act)(first, second, third)

    @precondition(lambda self: self.recent)
    @rule(acts=conversation)
    def talk_on(self, acts: list[tuple[str, int, int, int]]) -> None:
        self.talk(acts)

    def target(self, sender: Member, number: int) -> str:
        others = [member for member in self.members() if member is not sender]
        near = [member.id for member in others if member.shares_group_with(sender)]
        some = near * 5 + [member.id for member in others] + [str(member.name) for member in others]
        some += [member.id[:8] for member in others[:1]] + ["nobody", sender.id, *self.departed[-1:]]
        return some[number % len(some)]

    def send(self, which: int, to: int, flags: int) -> None:
        self.send_message(which, to, flags, {})

    def ask(self, which: int, to: int, flags: int) -> None:
        self.send_message(which, to, flags, {"expectsReply": True})

    def send_message(self, which: int, to: int, flags: int, members: dict[str, Any]) -> None:
        sender = self.member(which)
        frame: dict[str, Any] = {"to": self.target(sender, to), "message": self.message(**members)}
        if sender.program.generation is Generation.NEWEST:
            if members and flags % 2:
                frame["resolveReplyTarget"] = True
            if flags % 12 == 3:
                frame["expectedRecipientId"] = self.target(sender, flags)
        self.attempt(sender.line, "send", frame)

    def send_up(self, which: int, kind: int, astray: int) -> None:
        children = [member for member in self.members() if member.supervisor]
        if children:
            child = self.member(which) if astray == 1 else children[which % len(children)]
            frame = {"to": child.supervisor or "nobody", "message": self.message(expectsReply=kind % 2 == 1)}
            self.attempt(child.line, "supervisor_send", frame)

    def retry(self, which: int, where: int, other: int) -> None:
        if not self.recent:
            return
        earlier = self.recent[-1 - which % len(self.recent)]
        places = [earlier.line] if earlier.member.here else []
        places += [m.line for m in self.members() if m.program is earlier.member.program and m.line not in places]
        if not places or other == 1:
            places = [member.line for member in self.members()]
        line = places[where % len(places)]
        frame = {name: value for name, value in earlier.frame.items() if name != "attemptId"}
        if other == 2:
            frame["message"] = {**frame["message"], "content": {"text": "another"}}
        elif other == 3:
            frame["to"] = self.target(earlier.member, where)
        elif other > 50:
            # The client found the session again under a new id and kept the wording (protocol 6.2.4).
            frame.setdefault("logicalTarget", frame["to"])
            frame["to"] = self.target(earlier.member, where)
        self.attempt(line, earlier.kind, frame)

    def reply(self, which: int, what: int, odd: int) -> None:
        members = [member for member in self.members() if member.program.heard]
        if not members:
            return
        member = members[which % len(members)]
        heard = member.program.heard[-1 - what % min(len(member.program.heard), 4)]
        frame: dict[str, Any] = {"to": heard.sender_id, "message": self.message(replyTo=heard.message_id)}
        if odd % 2 and member.program.generation is Generation.NEWEST:
            frame["requirePendingReply"] = True
        elif odd % 8 == 2:
            frame["message"]["expectsReply"] = True
        if odd == 5:
            frame["to"] = self.target(member, what)
        self.attempt(member.line, "send", frame)

    def reply_to_a_stranger(self, which: int, what: int, to: int) -> None:
        if not self.recent:
            return
        member, asked = self.member(which), self.recent[-1 - what % len(self.recent)]
        target = asked.member.id if to % 4 else self.target(member, to)
        frame: dict[str, Any] = {"to": target, "message": self.message(replyTo=asked.id)}
        if to % 2 and member.program.generation is Generation.NEWEST:
            frame["requirePendingReply"] = True
        self.attempt(member.line, "send", frame)

    def confirm(self, which: int, what: int, _: int) -> None:
        members = [member for member in self.members() if member.program.heard and member.confirms]
        if members:
            member = members[which % len(members)]
            heard: Heard = member.program.heard[-1 - what % len(member.program.heard)]
            self.receive(member.line, heard.message_id)
            self.go_on()

    def cancel(self, what: int, _: int, __: int) -> None:
        if self.recent:
            attempt = self.recent[-1 - what % len(self.recent)]
            if attempt.member.here:
                self.witness.cancelled[attempt.member, attempt.id] = self.witness.tick()
                self.write(attempt.line, "cancel_ask", messageId=attempt.id)

    @precondition(lambda self: any(member.program.token for member in self.members()))
    @rule(which=index, child=index, again=st.booleans())
    def authorize(self, which: int, child: int, again: bool) -> None:
        supervisors = [member for member in self.members() if member.program.token]
        member = supervisors[which % len(supervisors)]
        child_name, known = CHILD_NAMES[child % 3], member.program.capabilities
        members: dict[str, Any] = {}
        if again and known:
            child_name, members["capability"] = known[child % len(known)]
        self.request(member.line, "authorize_supervisor", ("supervisor_authorized",), childName=child_name, **members)

    # --- time, disk and kernel --------------------------------------------------------------------------

    @precondition(lambda self: self.deeds > 0)
    @rule(ms=st.sampled_from(TIMES_MS))
    def pass_time(self, ms: int) -> None:
        self.deeds = 0
        self.world.pass_time(ms)
        self.go_on()

    @precondition(lambda self: self.deeds > 1)
    @rule(commits=st.booleans(), takes=st.booleans())
    def change_pace(self, commits: bool, takes: bool) -> None:
        self.commits_at_once, self.takes_at_once = commits, takes
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.world.commit(count)
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(before=st.integers(0, 5), is_final=seldom)
    def fail_commit(self, before: int, is_final: bool) -> None:
        self.world.commit(before % len(self.world.appends))
        self.witness.store_is_closed = self.witness.store_is_closed or is_final
        self.world.fail_commit(final=is_final)
        self.go_on()

    @precondition(lambda self: self.world.waiting)
    @rule(which=index, count=st.integers(1, 3))
    def take(self, which: int, count: int) -> None:
        self.world.take(self.world.waiting[which % len(self.world.waiting)].to, count)
        self.go_on()

    @precondition(lambda self: self.lines())
    @rule(which=index)
    def turn_deaf_or_hear(self, which: int) -> None:
        line = self.lines()[which % len(self.lines())]
        self.world.deaf ^= {line.number}
        self.go_on()

    # --- ends -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.attempts_since_start > 2)
    @rule(is_graceful=st.booleans(), durable=st.integers(0, 5), lucky=st.lists(index, max_size=2), back=index)
    def end_broker(self, is_graceful: bool, durable: int, lucky: list[int], back: int) -> None:
        """Stop the broker, or kill it before it hears of its last commits and of the last frames the kernel took."""
        if is_graceful:
            self.world.stop()
            if not self.witness.store_is_closed:
                self.witness.check_stopped()
        else:
            for place in lucky:
                if self.world.waiting:
                    self.world.take(self.world.waiting[place % len(self.world.waiting)].to, told=False)
            for append in list(self.world.appends)[:durable]:
                self.world.disk.commit(append)
        self.restart(back)

    def restart(self, back: int) -> None:
        """Start a new broker; some of the clients come back, under their old ids where they may."""
        self.witness.check_disk()
        names = [(member.program, member.name) for member in self.members()]
        self.world.crash()
        self.witness.restarted()
        self.witness.due_receipts.clear()
        self.attempts_since_start = 0
        for step, (program, name) in enumerate(names):
            if back >> step & 1:
                self.arrive_with(program.number, NAMES.index(name), program.number % 2, False, 1, 0, 1)

    @precondition(lambda self: self.deeds > 2)
    @rule()
    def rest(self) -> None:
        """Let everything come to an end that can; then nobody may wait for anything."""
        pace = self.commits_at_once, self.takes_at_once
        self.commits_at_once = self.takes_at_once = True
        self.world.perform([])
        self.world.deaf.clear()
        self.go_on()
        self.world.pass_time(self.witness.limits.receipt_wait_ms)
        self.go_on()
        self.witness.check_answers()
        self.witness.check_silence()
        self.witness.check_disk()
        self.commits_at_once, self.takes_at_once = pace

    @invariant()
    def nobody_sees_too_much_or_too_little(self) -> None:
        self.witness.check_views()
        assert not (self.witness.store_is_closed and self.world.appends), "an append to a closed store"

    @invariant()
    def nobody_waits_for_itself(self) -> None:
        """F64, protocol 15.1: of the questions whose asker is here none is part of a circle."""
        assert_no_circle(self.world)

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        """Let everybody leave and all time pass; nothing may be left of them."""
        if self.witness.store_is_closed:
            self.restart(0)
        self.rest()
        assert not any(session.asks_under_way for session in self.world.broker._registry.sessions._by_id.values())
        self.commits_at_once = self.takes_at_once = True
        for line in self.lines():
            self.world.end(line.number)
        self.go_on()
        self.world.pass_time(FOREVER_MS)
        self.go_on()
        assert not left_in(self.world.broker)
        assert not self.world.disk.operations


def left_in(broker: Any) -> dict[str, int]:
    """Return the sizes of everything in the core that should be empty when all have left and all time has passed."""
    sessions, questions, receipts = broker._registry.sessions, broker._messages.questions, broker._messages.receipts
    operations, stages, owners = broker._messages.operations, broker._staging.stages, broker._staging.owners
    sizes = {
        "connections": len(broker._connections),
        "sessions": len(sessions),
        "names": len(sessions._by_name),
        "prefixes": len(sessions._by_prefix),
        "groups": len(sessions._by_group),
        "identities": len(sessions._by_target_identity),
        "askers": len(questions._by_asker),
        "asked": len(questions._by_target),
        "unconfirmed": len(receipts) + len(receipts._by_identity) + len(receipts._bytes_of) + receipts._bytes,
        "deadlines": len(broker._deadlines),
        "operations": len(operations) + operations.charged_bytes,
        "shares": len(operations._shares),
        "evictable": len(operations._evictable),
        "uncommitted": len(broker._ledger._uncommitted),
        "routes": len(stages.routes) + len(stages.routes._by_owner),
        "rosters": len(stages.rosters._by_run) + len(stages.rosters._by_group) + len(stages.rosters._below),
        "aliases": len(stages.aliases) + len(stages.aliases._by_session) + len(stages.aliases._by_run),
        "owner requests": len(owners) + len(owners._by_owner) + len(owners._by_root) + len(owners._by_sender),
        "owner request bytes": owners._bytes,
        "barriers": len(broker._staging.barriers),
        "notifications": len(broker._staging.notifications),
    }
    return {name: size for name, size in sizes.items() if size}


TestBrokerWorld = BrokerWorld.TestCase
TestBrokerWorld.pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.long,
]  # Hundreds of worlds: a loaded machine needs minutes
TestBrokerWorld.settings = settings(
    max_examples=int(EXAMPLES or 150),
    stateful_step_count=STEPS,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)
