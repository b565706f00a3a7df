"""Let owners, stages and senders do anything in any order and leave at any moment (protocol 6.12, 6.15).

A second world beside ``test_machine``: there everything is about sends between sessions, here about runs. What must
hold is in ``stage_witness``; ``INTERCOM_EXAMPLES`` works as it does there.
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
from intercom.wire.targets import parse_target
from tests.core.harness import INFO
from tests.core.runs import CHILD, OTHER, RUN, group_of, path, possible, stage
from tests.core.stage_witness import Actor, Pending, Sent, StageWitness
from tests.core.test_machine import left_in

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
STEPS = 40
LIMITS = Limits(receipt_wait_ms=2_000)
TIMES_MS = (1, 2_000, 6_000, 10_000)
FOREVER_MS = 800_000

SUB = f"{group_of()}/sub"
RUNS = (RUN, RUN, CHILD, OTHER)
TARGETS = (
    path("st-1"),
    path("reviewer"),
    path("twin"),
    path("st-2"),
    path("unknown"),
    path(CHILD, "st-1"),
    path("*"),
    path("st-*"),
    path("**"),
    path("st-1", run=OTHER),
)
KEYS = (("st-1", "reviewer"), ("st-2", "twin"), ("st-3", "twin"), ("unknown",), ("st-1",), ("gate", "x"))
ACTS = (
    ("send",) * 6
    + ("decide",) * 9
    + ("go_live",) * 4
    + ("notify", "take_notice", "retry") * 2
    + ("confirm", "announce", "announce")
)
RARE_ACTS = ("arrive", "depart", "look")
OUTCOMES = ("queued", "queued", "forward", "forward", "forward", "delivered", "refused")

index = st.integers(0, 59)
"""Picks one of what there is at that moment."""
scene = st.lists(st.tuples(st.sampled_from(ACTS * 2 + RARE_ACTS), index, index, index), min_size=2, max_size=6)


def actors() -> list[Actor]:
    """Return the client programs of one world: hosts, stages, senders."""
    root, other = group_of(), group_of(OTHER)
    return [
        Actor(0, "host", root, ("hosts",), capability="cap-0"),
        Actor(1, "host", root, ("hosts",), capability="cap-1"),
        Actor(2, "host", other, ("hosts",), capability="cap-0"),
        Actor(3, "stage", root, ("own-3",)),
        Actor(4, "stage", SUB, ("own-4",), confirms=True),
        Actor(5, "stage", other, ("own-5", root)),
        Actor(6, "stage", root, (root,), is_newest=False),
        Actor(7, "sender", "default", ("default", root)),
        Actor(8, "sender", "default", ("default", root, other)),
        Actor(9, "sender", root, (root,), is_newest=False),
        Actor(10, "sender", "default", ("default",)),
        Actor(11, "stage", root, (root, "own-11"), confirms=True),
        Actor(12, "sender", root, (root,)),
        Actor(13, "host", root, ("hosts",), capability="cap-0"),
    ]


def rosters(run: str, group: str) -> list[dict[str, Any]]:
    """Return what a run may announce."""
    middle = () if group == group_of(run) else (run,)
    root = RUN if group == group_of() else OTHER

    def row(stage_id: str, name: str, **more: Any) -> dict[str, Any]:
        return stage(stage_id, name, target=path(*middle, stage_id, run=root), group=group, **more)

    plain = [row("st-1", "reviewer"), row("st-2", "twin")]
    twins = [*plain, row("st-3", "twin")]
    gate = [row("st-1", "reviewer"), row("gate", "x", recipientPurpose="control")]
    return [
        {},
        {"stages": plain},
        {"stages": twins},
        {"stages": gate, "parent": {"runId": RUN, "stageKeys": ["boundary"]}},
        {"possibleStages": [possible(path("**", run=root))]},
        {"stages": [], "possibleStages": []},
    ]


class StageWorld(RuleBasedStateMachine):
    """Choose what happens next; the witness objects when the core breaks a rule."""

    @initialize(pick=index)
    def begin(self, pick: int) -> None:
        self.witness = StageWitness(LIMITS)
        self.world = self.witness.world
        self.actors = actors()
        self.commits_at_once = self.takes_at_once = True
        self.count = 0
        self.deeds = 0
        self.ledger: dict[str, str] = {}
        """What hosts have decided by message id, in their durable queue."""
        for actor in self.actors:
            if actor.number not in (6, 10):
                self.arrive(actor.number, 0, 0)
        self.announce(0, 0, pick % 12)
        self.announce(2, 3, 1)
        self.go_live(2, 0, 0)
        if pick % 2:
            self.go_live(0, 0, 0)

    # --- helpers ----------------------------------------------------------------------------------------

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def here(self, kind: str = "") -> list[Actor]:
        return [
            actor
            for actor in self.actors
            if actor.conn is not None and self.witness.is_here(actor.conn) and kind in ("", actor.kind)
        ]

    def write(self, actor: Actor, type: str, **members: Any) -> None:
        assert actor.conn is not None
        self.deeds += 1
        self.world.send(actor.conn, type=type, **members)
        self.go_on()

    def go_on(self) -> None:
        """Do what disk and kernel do at once."""
        while True:
            if self.commits_at_once and self.world.appends:
                self.world.commit()
            if self.takes_at_once:
                self.world.take()
            if not (self.commits_at_once and self.world.appends):
                break

    # --- sessions come and go ---------------------------------------------------------------------------

    @rule(acts=scene)
    def play(self, acts: list[tuple[str, int, int, int]]) -> None:
        for act, first, second, third in acts:
            if self.here():
                getattr(self, act)(first, second, third)

    @rule(acts=scene)
    def play_on(self, acts: list[tuple[str, int, int, int]]) -> None:
        self.play(acts)

    @rule(acts=scene)
    def play_more(self, acts: list[tuple[str, int, int, int]]) -> None:
        self.play(acts)

    def arrive(self, which: int, _: int, __: int) -> None:
        actor = self.actors[which % len(self.actors)]
        if actor.conn is not None and actor.conn in self.world.open:
            return
        conn = actor.conn = self.world.connect()
        self.witness.actors[conn] = actor
        info: dict[str, Any] = {**INFO, "name": f"actor-{actor.number}", "groups": list(actor.groups)}
        request: dict[str, Any] = {"session": info, "registrationGroup": actor.home}
        if actor.kind == "host":
            info["recipientPurpose"] = "control"
        if actor.is_newest:
            request["returnAddress"] = f"ret-{actor.number}"
            if actor.last_id is not None:
                request["preferredSessionId"] = actor.last_id
        if actor.confirms:
            request["acknowledgesReceipt"] = True
        self.world.send(conn, type="register", **request)
        actor.notified.clear()
        self.world.take(conn, 1)
        first = self.world.got(conn)[0]
        assert first["type"] == "registered"
        actor.last_id = first["sessionId"]
        self.go_on()

    @precondition(lambda self: len(self.here()) < len(self.actors) - 2)
    @rule(which=index)
    def come(self, which: int) -> None:
        absent = [actor.number for actor in self.actors if actor not in self.here()]
        if absent:
            self.arrive(absent[which % len(absent)], 0, 0)

    def depart(self, which: int, how: int, _: int) -> None:
        actor = self.here()[which % len(self.here())]
        conn = actor.conn
        assert conn is not None
        match ("fin", "reset", "reset unnoticed", "unregister", "nonsense")[how % 5]:
            case "fin":
                self.world.end(conn)
            case "reset":
                self.world.break_off(conn)
                self.world.perform([])
            case "reset unnoticed":
                self.world.break_off(conn)
            case "nonsense":
                self.world.perform(self.world.broker.protocol_error(conn, "not JSON", self.world.now))
            case _:
                self.world.send(conn, type="unregister")
                self.world.end(conn)
        self.go_on()

    # --- runs -------------------------------------------------------------------------------------------

    def announce(self, which: int, run: int, what: int) -> None:
        hosts = self.here("host")
        if not hosts:
            return
        host, is_dormant = hosts[which % len(hosts)], what // 6 % 2 == 1
        assert host.conn is not None
        conn = host.conn
        run_id = (RUN, RUN, CHILD)[run % 3] if host.home == group_of() else OTHER
        if run == 59:
            run_id = OTHER if host.home == group_of() else RUN
        group = group_of(OTHER if run_id == OTHER else RUN)
        choices = rosters(run_id, group)
        is_fine = self.witness.announced(host, conn, run_id, group, is_dormant)
        members = {**choices[what % len(choices)], **({"dormant": True} if is_dormant else {})}
        self.write(
            host,
            "register_pending_stage_route",
            runId=run_id,
            group=group,
            capability=host.capability,
            requestId=self.next("r"),
            **members,
        )
        if conn not in self.world.broken:
            assert is_fine == (conn not in self.world.finished), "authority over a run"

    def go_live(self, which: int, keys: int, odd: int) -> None:
        stages = self.here("stage")
        if not stages:
            return
        actor, chosen = stages[which % len(stages)], KEYS[keys % len(KEYS)]
        run_id = OTHER if actor.home == group_of(OTHER) else (CHILD if odd % 5 == 1 else RUN)
        if odd == 58:
            run_id = OTHER if run_id == RUN else RUN
        route = self.witness.owner(run_id)
        if route is None and odd % 8:
            return
        secret = "wrong" if odd == 59 or route is None else route.capability
        request_id = self.next("l")
        root = OTHER if run_id == OTHER else RUN
        assert actor.conn is not None
        self.witness.waits[actor.conn, request_id] = {
            pending.id
            for pending in self.witness.undecided()
            if pending.sent.target.run_id == root
            and pending.sent.target.kind == "path"
            and pending.sent.target.last in chosen
        }
        conn = actor.conn
        self.write(
            actor,
            "register_live_workflow_stage_route",
            requestId=request_id,
            runId=run_id,
            stageKeys=list(chosen),
            capability=secret,
        )
        if conn in self.world.finished and conn not in self.world.broken:
            return
        assert conn in self.world.broken or (route is not None and secret != "wrong"), "a stage without authority"

    # --- sends ------------------------------------------------------------------------------------------

    def send(self, which: int, to: int, odd: int) -> None:
        senders = self.here("sender") * 2 + self.here("stage")
        if not senders:
            return
        message: dict[str, Any] = {"id": self.next("m"), "timestamp": 5, "content": {"text": "x"}}
        if odd % 4 == 1:
            message["expectsReply"] = True
        self.attempt(senders[which % len(senders)], {"to": TARGETS[to % len(TARGETS)], "message": message})

    def retry(self, which: int, _: int, __: int) -> None:
        known = [attempts[-1] for attempts in self.witness.sent.values() if attempts[-1].actor in self.here()]
        if known:
            earlier = known[-1 - which % min(len(known), 8)]
            self.attempt(earlier.actor, earlier.frame)

    def attempt(self, actor: Actor, frame: dict[str, Any]) -> None:
        assert actor.conn is not None
        sent = Sent(actor, actor.conn, frame["message"]["id"], self.next("a"), frame)
        self.witness.sent.setdefault(sent.id, []).append(sent)
        self.witness.cause = sent
        self.world.send(actor.conn, type="send", attemptId=sent.attempt_id, **frame)
        self.witness.cause = None
        self.deeds += 1
        self.go_on()

    def decide(self, which: int, choice: int, where: int) -> None:
        undecided = self.witness.undecided()
        if not undecided:
            return
        pending: Pending = undecided[which % len(undecided)]
        what = OUTCOMES[choice % len(OUTCOMES)]
        if choice == 59:
            hosts = [host for host in self.here("host") if host.conn != pending.conn]
            for host in hosts[:1]:
                self.write(host, "pending_stage_message_result", requestId=pending.id, outcome="delivered")
            return
        sent = pending.sent
        root = sent.target.run_id
        known = self.ledger.get(sent.id)
        members: dict[str, Any] = {}
        places = [target for target in TARGETS if parse_target(target).kind == "path"]  # type: ignore[union-attr]
        if known is not None and not (known == "forward" and what == "refused"):
            what = known
        if what == "forward":
            members["target"] = places[where % len(places)]
            if where % 3:
                members["target"] = path("st-1", run=root)
        if what == "queued":
            members["position"] = 1 + where % 3
            if known is None:
                members["forwardTargets"] = places
        if what != "refused":
            self.ledger[sent.id] = what
        sent.decided = what
        del self.witness.pending[pending.id]
        self.witness.forwarded = sent if what == "forward" else None
        self.write(
            self.witness.actors[pending.conn],
            "pending_stage_message_result",
            requestId=pending.id,
            outcome=what,
            **members,
        )
        self.witness.forwarded = None

    def confirm(self, which: int, _: int, __: int) -> None:
        stages = [actor for actor in self.here("stage") if actor.unconfirmed]
        if not stages:
            return
        actor = stages[which % len(stages)]
        self.write(actor, "received", messageId=actor.unconfirmed.pop())

    # --- notifications ----------------------------------------------------------------------------------

    def notify(self, which: int, to: int, odd: int) -> None:
        hosts = self.here("host")
        others = [actor for actor in self.here() if actor.home in actor.groups or odd % 8 == 1]
        if not hosts or not others:
            return
        host = hosts[which % len(hosts)]
        recipient = others[to % len(others)]
        known = sorted(self.witness.notifications)
        message_id = known[to % len(known)] if odd % 4 == 0 and known else self.next("n")
        self.witness.notifications.add(message_id)
        self.write(
            host,
            "send_pending_stage_notification",
            runId=OTHER if host.home == group_of(OTHER) else RUN,
            capability=host.capability,
            to=recipient.last_id,
            senderReturnAddress=f"ret-{recipient.number}",
            message={"id": message_id, "timestamp": 5, "content": {"text": "fate"}},
            attemptId=self.next("a"),
        )

    def take_notice(self, which: int, odd: int, _: int) -> None:
        actors = [actor for actor in self.here() if actor.notified]
        if actors:
            actor = actors[which % len(actors)]
            request_id, message_id = actor.notified.pop()
            if odd % 3:
                self.witness.admitted.add(message_id)
            self.write(actor, "pending_stage_notification_result", requestId=request_id, delivered=odd % 3 > 0)

    def look(self, which: int, _: int, __: int) -> None:
        self.write(self.here()[which % len(self.here())], "list", requestId=self.next("r"))

    # --- time, disk and kernel --------------------------------------------------------------------------

    @precondition(lambda self: self.deeds > 4)
    @rule(ms=st.sampled_from(TIMES_MS))
    def pass_time(self, ms: int) -> None:
        self.deeds = 0
        self.world.pass_time(ms)
        self.go_on()

    @precondition(lambda self: self.deeds > 4)
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
    @rule(before=st.integers(0, 3))
    def fail_commit(self, before: int) -> None:
        self.world.commit(before % len(self.world.appends))
        self.world.fail_commit()
        self.go_on()

    @precondition(lambda self: self.world.waiting)
    @rule(which=index, count=st.integers(1, 3))
    def take(self, which: int, count: int) -> None:
        self.world.take(self.world.waiting[which % len(self.world.waiting)].to, count)
        self.go_on()

    # --- what must hold ---------------------------------------------------------------------------------

    @invariant()
    def no_stage_goes_live_too_early(self) -> None:
        self.witness.check_released()

    @invariant()
    def what_is_counted_is_what_there_is(self) -> None:
        broker = self.world.broker
        routes = {run for run in set(RUNS) if self.witness.owner(run) is not None}
        assert len(broker._staging.stages.routes) == len(routes)
        assert len(broker._staging.owners) == len(self.witness.undecided())
        here = {actor.last_id for actor in self.here()}
        assert set(broker._staging.barriers._by_session) <= here
        assert set(broker._staging.stages.aliases._by_session) <= here
        for notification in broker._staging.notifications._by_id.values():
            assert {notification.owner.id, notification.recipient.id} <= here

    @precondition(lambda self: self.deeds > 10)
    @rule()
    def rest(self) -> None:
        """Let everything come to an end that can; then nobody may wait for anything."""
        pace = self.commits_at_once, self.takes_at_once
        self.commits_at_once = self.takes_at_once = True
        self.world.perform([])
        self.go_on()
        self.world.pass_time(LIMITS.owner_answer_ms + LIMITS.receipt_wait_ms)
        self.go_on()
        self.witness.check_answers()
        self.commits_at_once, self.takes_at_once = pace

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        """Let everybody leave and all time pass; nothing may be left of them."""
        self.rest()
        self.commits_at_once = self.takes_at_once = True
        for conn in sorted(self.world.open):
            self.world.end(conn)
        self.go_on()
        self.world.pass_time(FOREVER_MS)
        self.go_on()
        assert not left_in(self.world.broker)
        assert not self.world.disk.operations


TestStageWorld = StageWorld.TestCase
TestStageWorld.pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.long,
]  # Hundreds of worlds: a loaded machine needs minutes
TestStageWorld.settings = settings(
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
