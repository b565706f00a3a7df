"""Let supervisors lose and bring back their children while others write to them, with departures at every moment.

``INTERCOM_EXAMPLES`` sets how many worlds are tried and makes them new ones in every run.
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
from tests.core.harness import INFO
from tests.core.restoring_account import Attempt, Member, Place, RestoringAccount

pytestmark = pytest.mark.long

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
STEPS = 45
ROOMY = Limits(receipt_wait_ms=2_000)
TIGHT = Limits(
    receipt_wait_ms=2_000,
    held_per_session=2,
    held_per_reservation=3,
    held=4,
    reservations_per_session=2,
    reservations=3,
)
TIMES_MS = (1, 2_000, 7_999, 8_000, 60_000, 119_999, 120_000)
FOREVER_MS = 1_500_000
CHILD_NAMES = ("amy", "bob", "bob", "*")
GROUPS = ("g1", "g1", "g1", "g1", "g1", "g2")
OLD_IDS = tuple(f"e{number}000000-0000-4000-8000-00000000000{number}" for number in range(4))
MOST_LINES = 8
RECENT = 8

index = st.integers(0, 59)
seldom = st.sampled_from([False, False, False, True])


class Restorations(RuleBasedStateMachine):
    """Choose what happens next; the account objects when the core breaks a rule."""

    @initialize(is_tight=seldom)
    def begin(self, is_tight: bool) -> None:
        self.account = RestoringAccount(TIGHT if is_tight else ROOMY)
        self.world = self.account.world
        self.commits_at_once = self.takes_at_once = True
        self.count = 0
        self.recent: list[Attempt] = []
        self.known: dict[str, tuple[str, str]] = {}
        """(token, child name) by capability; supervisors remember them over restarts."""
        self.child_ids: dict[str, str] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Let supervisors and writers come; the supervisors present what they hold and expect their children back."""
        for kind in range(5):
            self.arrive(kind, 0)
        if not self.known:
            for whose, child in ((0, 0), (0, 1), (0, 1), (1, 1)):
                self.authorize(whose, child, 0)
        for place, boss in enumerate(self.supervisors()):
            for number, (capability, (token, name)) in enumerate(list(self.known.items())):
                if token[-1] == (boss.address or "")[-1]:
                    claim = {"childName": name, "capability": capability}
                    self.write(boss.conn, "authorize_supervisor", requestId=self.next("r"), **claim)
                    self.reserve(place, number, 1 if number < 2 else 5, False, [number + 1])

    # --- helpers ----------------------------------------------------------------------------------------

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def members(self) -> list[Member]:
        return list(self.account.members.values())

    def member(self, number: int) -> Member:
        return self.members()[number % len(self.members())]

    def supervisors(self) -> list[Member]:
        return [member for member in self.members() if (member.address or "").startswith("boss")]

    def write(self, conn: int, type: str, **members: Any) -> None:
        self.world.send(conn, type=type, **members)
        self.go_on()

    def go_on(self) -> None:
        """Do what disk and kernel do at once."""
        while True:
            if self.commits_at_once:
                self.world.commit()
            if self.takes_at_once:
                self.world.take()
            if not (self.commits_at_once and self.world.appends):
                break

    # --- sessions come and go ---------------------------------------------------------------------------

    def register(self, name: str, address: str | None, group: str, **members: Any) -> None:
        if address is not None:
            members["returnAddress"] = address
        self.write(self.world.connect(), "register", session={**INFO, "name": name, "group": group}, **members)

    @precondition(lambda self: len(self.members()) < MOST_LINES)
    @rule(which=index, group=index)
    def arrive(self, which: int, group: int) -> None:
        """Let a supervisor, a newest or an older writer come; sometimes one that has a child's name by chance."""
        kind = which % 7
        if kind < 2:
            address = f"boss-{kind}"
            if all(member.address != address for member in self.members()):
                self.register(f"boss-{kind}", address, GROUPS[group % 6], supervisorOwnerToken=f"token-{kind}")
        elif kind < 6 and sum(member.name == f"writer-{kind}" for member in self.members()) < 1 + group % 2:
            self.register(f"writer-{kind}", f"ret-{kind}" if kind < 4 else None, GROUPS[group % 6])
        elif kind == 6 and group % 3 == 0:
            self.register("Amy", None, GROUPS[group % 6])

    @precondition(lambda self: self.known)
    @rule(which=index, group=index, name=index)
    def child_arrives(self, which: int, group: int, name: int) -> None:
        """Let a child come back, or come for the first time, under its old id or another."""
        number = which % len(self.known)
        capability = list(self.known)[number]
        child_name = self.known[capability][1]
        members: dict[str, Any] = {"supervisor": {"capability": capability, "supervisorSessionId": "x"}}
        if number % 2:
            members["acknowledgesReceipt"] = True
        if capability in self.child_ids and which % 3:
            members["preferredSessionId"] = self.child_ids[capability]
        child_name = ("amy", "bob")[name % 2] if child_name == "*" else child_name
        address = f"child-{number}"
        if all(member.address != address for member in self.members()):
            self.register(child_name, address, GROUPS[group % 6], **members)
            for member in self.members():
                if member.address == address:
                    self.child_ids[capability] = member.id

    @precondition(lambda self: len(self.members()) > 3)
    @rule(which=index, how=st.sampled_from(["end", "unregister", "violate", "break"]))
    def leave(self, which: int, how: str) -> None:
        self.depart(self.member(which), how)

    def depart(self, member: Member, how: str) -> None:
        conn = member.conn
        if how == "unregister":
            self.write(conn, "unregister")
        elif how == "violate":
            self.write(conn, "nonsense")
        elif how == "end":
            self.world.end(conn)
        else:
            self.world.break_off(conn)
            self.world.perform([])
        self.go_on()

    @precondition(lambda self: self.members())
    @rule(which=index, group=index, kind=st.sampled_from(["join_group", "leave_group"]))
    def change(self, which: int, group: int, kind: str) -> None:
        self.write(self.member(which).conn, kind, requestId=self.next("r"), group=("g1", "g2")[group % 2])

    # --- supervisors ------------------------------------------------------------------------------------

    @precondition(lambda self: self.supervisors())
    @rule(which=index, child=index, again=index)
    def authorize(self, which: int, child: int, again: int) -> None:
        boss = self.supervisors()[which % len(self.supervisors())]
        token = f"token-{(boss.address or '')[-1]}"
        mine = [capability for capability, (owner, _) in self.known.items() if owner == token]
        members: dict[str, Any] = {"childName": CHILD_NAMES[child % 4]}
        if mine and again % 3:
            capability = mine[again % len(mine)]
            members = {"childName": self.known[capability][1], "capability": capability}
        elif len(self.known) > 4:
            return
        self.write(boss.conn, "authorize_supervisor", requestId=self.next("r"), **members)
        for capability, slot in self.account.slots.items():
            self.known.setdefault(capability, (token, slot.child_name))

    @precondition(lambda self: self.supervisors() and self.known)
    @rule(which=index, what=index, group=index, dormant=seldom, aliases=st.lists(index, max_size=3))
    def reserve(self, which: int, what: int, group: int, dormant: bool, aliases: list[int]) -> None:
        boss = self.supervisors()[which % len(self.supervisors())]
        capability = list(self.known)[what % len(self.known)]
        members: dict[str, Any] = {} if group % 5 == 0 else {"group": GROUPS[group % 6]}
        if dormant:
            members["dormant"] = True
        if aliases:
            some = [*OLD_IDS, *self.child_ids.values()]
            members["aliases"] = [some[number % len(some)] if number else "no-uuid" for number in aliases]
        if capability in self.child_ids:
            members["aliases"] = [*members.get("aliases", []), self.child_ids[capability]]
        self.write(boss.conn, "reserve_restoring_recipient", requestId=self.next("r"), capability=capability, **members)

    @precondition(lambda self: self.members() and self.account.places)
    @rule(which=index, what=index, how=st.sampled_from(["release", "release", "gone", "refusal", "blank"]))
    def release(self, which: int, what: int, how: str) -> None:
        place = self.account.places[what % len(self.account.places)]
        owner = [member for member in self.members() if member.id == place.owner_id]
        member = owner[0] if owner and which % 3 else self.member(which)
        members = {
            "release": {},
            "gone": {"gone": "it is gone"},
            "refusal": {"refusal": "not now"},
            "blank": {"refusal": " "},
        }
        self.write(
            member.conn,
            "release_restoring_recipient",
            requestId=self.next("r"),
            capability=place.capability,
            **members[how],
        )

    @precondition(lambda self: self.account.places and len(self.members()) > 1)
    @rule(
        what=index,
        writers=st.lists(index, min_size=1, max_size=5),
        flags=index,
        end=st.sampled_from(["return", "return", "return", "release", "gone", "refusal", "owner leaves", "wait", ""]),
        how=st.sampled_from(["end", "unregister", "violate", "break"]),
    )
    def bring_back(self, what: int, writers: list[int], flags: int, end: str, how: str) -> None:
        """Lose a child that is expected, write to it, and let its waiting end in one of all ways."""
        place = self.account.places[what % len(self.account.places)]
        if place.gone is not None and flags % 4:
            place = self.reserve_again(place)
        for member in self.members():
            if member.id == self.child_ids.get(place.capability):
                self.depart(member, how)
        for step, writer in enumerate(writers):
            if self.members():
                near = [member for member in self.members() if place.group in member.groups] or self.members()
                names = [place.name, place.name, *sorted(place.aliases)]
                self.send_to(near[writer % len(near)], names[(flags + step) % len(names)], flags + step)
                if writer % 7 == 6:
                    self.retry(writer, flags)
        if flags % 6 == 5:
            self.reserve_another(place, flags + 1)
        owner = [member for member in self.members() if member.id == place.owner_id]
        if end == "return":
            self.child_arrives(list(self.known).index(place.capability), flags, flags)
        elif end == "owner leaves" and owner:
            self.depart(owner[0], how)
        elif end == "wait":
            self.pass_time(TIMES_MS[flags % len(TIMES_MS)])
        elif end and place in self.account.places and self.members():
            self.release(1, self.account.places.index(place), end)

    def reserve_again(self, place: Place) -> Place:
        """Expect a child back that was called gone."""
        capability = place.capability
        for number, boss in enumerate(self.supervisors()):
            if boss.id == place.owner_id:
                self.reserve(number, list(self.known).index(capability), 1, False, [1])
        return next(known for known in self.account.places if known.capability == capability)

    def reserve_another(self, first: Place, flags: int) -> None:
        """Reserve a second child of this name, for which waits what the first lets go."""
        for number, (capability, (token, name)) in enumerate(self.known.items()):
            for place, boss in enumerate(self.supervisors()):
                mine = name == first.name and (boss.address or "")[-1] == token[-1]
                if mine and capability != first.capability:
                    self.reserve(place, number, flags, False, [])

    # --- messages ---------------------------------------------------------------------------------------

    def attempt(self, member: Member, frame: dict[str, Any]) -> None:
        frame = {**frame, "attemptId": self.next("a")}
        attempt = self.account.about_to_send(member, frame)
        self.recent = [*self.recent[-RECENT:], attempt]
        self.write(member.conn, "send", **frame)

    def message(self, ask: bool) -> dict[str, Any]:
        message = {"id": self.next("m"), "timestamp": self.world.wall, "content": {"text": "x"}}
        return {**message, "expectsReply": True} if ask else message

    def target(self, number: int) -> str:
        names = [place.name for place in self.account.places] * 3 + ["amy", "AMY", "bob"]
        aliases = [alias for place in self.account.places for alias in sorted(place.aliases)]
        some = [*names, *aliases, *aliases, *self.child_ids.values(), OLD_IDS[0].upper()]
        return some[number % len(some)]

    @precondition(lambda self: self.members())
    @rule(which=index, to=st.lists(index, min_size=1, max_size=4), flags=index)
    def send(self, which: int, to: list[int], flags: int) -> None:
        for step, target in enumerate(to):
            if not self.members():
                return
            self.send_to(self.member(which + step * (flags % 3)), self.target(target), flags + step)

    def send_to(self, member: Member, target: str, flags: int) -> None:
        frame: dict[str, Any] = {"to": target, "message": self.message(flags % 5 == 4)}
        if member.address is not None and flags % 3:
            frame["awaitRestoringRecipient"] = True
        self.attempt(member, frame)

    @precondition(lambda self: self.recent and self.members())
    @rule(which=index, other=index)
    def retry(self, which: int, other: int) -> None:
        """Send again what was sent: the same, with other content, by somebody else, or by its sender come back."""
        waiting = [attempt for attempt in self.recent if attempt.place is not None]
        some = waiting if waiting and other % 4 else self.recent
        earlier = some[which % len(some)]
        frame = {name: value for name, value in earlier.frame.items() if name != "attemptId"}
        mine = [member for member in self.members() if member is earlier.member]
        mine += [m for m in self.members() if m.address is not None and m.address == earlier.member.address]
        member = mine[which % len(mine)] if mine and other % 9 else self.member(which)
        if other % 7 == 1:
            frame["message"] = {**frame["message"], "content": {"text": "another"}}
        elif other % 7 == 2:
            frame["to"] = self.target(which)
        elif other % 7 == 3 and member.address is not None:
            frame["awaitRestoringRecipient"] = "awaitRestoringRecipient" not in frame
        if member.address is None:
            frame.pop("awaitRestoringRecipient", None)
        self.attempt(member, frame)

    @precondition(lambda self: self.recent)
    @rule(which=index)
    def cancel(self, which: int) -> None:
        attempt = self.recent[which % len(self.recent)]
        if self.account.members.get(attempt.conn) is attempt.member:
            self.write(attempt.conn, "cancel_ask", messageId=attempt.id)

    @precondition(lambda self: self.account.arrived)
    @rule(which=index)
    def confirm(self, which: int) -> None:
        ids = list(self.account.arrived)
        for member in self.members():
            if member.confirms:
                self.write(member.conn, "received", messageId=ids[-1 - which % min(len(ids), RECENT)])

    # --- time, disk and kernel --------------------------------------------------------------------------

    @rule(ms=st.sampled_from(TIMES_MS))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)
        self.go_on()

    @rule(commits=st.booleans(), takes=st.booleans())
    def change_pace(self, commits: bool, takes: bool) -> None:
        self.commits_at_once, self.takes_at_once = commits, takes
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(before=st.integers(0, 5))
    def fail_commit(self, before: int) -> None:
        self.world.commit(before % len(self.world.appends))
        self.world.fail_commit()
        self.go_on()

    @precondition(lambda self: self.world.waiting)
    @rule(which=index, count=st.integers(1, 3))
    def take(self, which: int, count: int) -> None:
        self.world.commit(count)
        self.world.take(self.world.waiting[which % len(self.world.waiting)].to, count)
        self.go_on()

    @precondition(lambda self: self.members())
    @rule(which=index)
    def turn_deaf_or_hear(self, which: int) -> None:
        self.world.deaf ^= {self.member(which).conn}
        self.go_on()

    @precondition(lambda self: len(self.recent) > 3)
    @rule(durable=st.integers(0, 5), back=index)
    def restart(self, durable: int, back: int) -> None:
        """Kill the broker; the supervisors and writers come back and restore what they hold."""
        for append in list(self.world.appends)[:durable]:
            self.world.disk.commit(append)
        self.account.restart()
        self.recent.clear()
        self.begin_again()

    # --- invariants -------------------------------------------------------------------------------------

    @rule()
    def rest(self) -> None:
        """Let disk and kernel catch up and receipts be missed; then everybody has an answer or waits."""
        pace = self.commits_at_once, self.takes_at_once
        self.commits_at_once = self.takes_at_once = True
        self.world.perform([])
        self.world.deaf.clear()
        self.go_on()
        self.world.pass_time(self.account.limits.receipt_wait_ms)
        self.go_on()
        self.account.check_rest()
        self.commits_at_once, self.takes_at_once = pace

    @invariant()
    def nothing_survives_what_it_belongs_to(self) -> None:
        here = set(self.account.core._registry.sessions._by_id)
        for held in self.account.core._supervising.holding._held.values():
            assert held.sender.id in here and held.connection.session is held.sender
            assert self.account.core._supervising.restoring._known[held.reservation.capability] is held.reservation
        assert set(self.account.core._supervising.restoring._by_owner) <= here

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        """Let everybody leave and all time pass; nothing may be left."""
        self.rest()
        for member in self.members():
            self.world.end(member.conn)
        assert not left_of(self.account.core), "something survived the departure of everybody"
        self.commits_at_once = self.takes_at_once = True
        self.go_on()
        self.world.pass_time(FOREVER_MS)
        self.go_on()
        assert len(self.account.core._deadlines) == 0
        assert not self.world.disk.operations


def left_of(core: Any) -> dict[str, int]:
    """Return the sizes of everything about restoring that should be empty when all have left."""
    restoring, holding = core._supervising.restoring, core._supervising.holding
    sizes = {
        "reservations": len(restoring),
        "owners": len(restoring._by_owner),
        "keys": len(restoring._by_key),
        "held": len(holding),
        "senders": len(holding._by_sender),
        "waited for": len(holding._by_reservation),
        "bytes": holding._bytes,
    }
    return {name: size for name, size in sizes.items() if size}


TestRestorations = Restorations.TestCase
TestRestorations.settings = settings(
    max_examples=int(EXAMPLES or 70),
    stateful_step_count=STEPS,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)
