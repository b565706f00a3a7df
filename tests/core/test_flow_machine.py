"""Let flows be written, controlled, worked on and cut off in any order, with a disk, a clock and a kernel that fail.

Whatever hypothesis finds: at most one attempt is under way for a flow and at a session, an outcome never changes, a
worker sees one message for one attempt, a step ends only as its worker reported, the past of a flow stays as it was.
``INTERCOM_EXAMPLES`` as in ``test_machine``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from intercom.core.connections import PeerCredentials
from intercom.limits import Limits
from tests.core.flow_play import COORDINATOR, TODO_WORKER, WORKER
from tests.core.flow_witness import FlowWitness
from tests.core.harness import INFO

pytestmark = pytest.mark.long

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
LIMITS = Limits(
    flows=3,
    flow_steps=4,
    flow_attempts=3,
    flow_todo_gate_ms=9_000,
    flow_admissions=3,
    flow_retention_ms=120_000,
    flows_collected=2,
    grace_ms=20_000,
    restart_grace_ms=4_000,
    mail_ttl_ms=40_000,
    bodies_kept_ms=50_000,
    tidy_ms=15_000,
    ask_ms=30_000,
    history_kept_ms=300_000,
)
TIMES_MS = (1, 1_000, 2_000, 5_000, 9_000, 21_000, 41_000)
FLOWS = ("a", "b", "c", "d")
index = st.integers(0, 59)
TOKEN = "t" * 32


class Program:
    """Be one client program over all its connections."""

    def __init__(self, name: str, features: tuple[str, ...], pid: int, *, address: str | None = None) -> None:
        self.name = name
        self.features = features
        self.pid = pid
        self.address = address
        self.conn: int | None = None
        self.session_id: str | None = None
        self.token: str | None = None
        self.dispatches: list[str] = []
        """What it was handed, over all its lives."""
        self.waiting: list[str] = []
        """Messages it has not confirmed."""
        self.is_terminal = False


class FlowWorld(RuleBasedStateMachine):
    """Choose what happens next; the witness objects when the core breaks a rule."""

    @initialize(numbers=st.lists(index, min_size=2, max_size=2))
    def begin(self, numbers: list[int]) -> None:
        self.witness = FlowWitness(LIMITS)
        self.world = self.witness.world
        self.programs = [
            Program("boss", COORDINATOR, 11),
            Program("plain", WORKER, 12),
            Program("desk", TODO_WORKER, 13, address="desk"),
            Program("stranger", WORKER, 14),
        ]
        self.count = 0
        self.commits = self.takes = self.reads = True
        for program in self.programs[:3]:
            self.arrive(program, 0)
        for place, number in enumerate(numbers):
            self.create(FLOWS[place], number, place, True)

    # --- helpers ----------------------------------------------------------------------------------------

    def here(self) -> list[Program]:
        return [program for program in self.programs if program.conn in self.world.open]

    def write(self, program: Program, type: str, **members: Any) -> None:
        if program.conn in self.world.open:
            assert program.conn is not None
            self.world.send(program.conn, type=type, **members)
            self.go_on()

    def request(self, program: Program, type: str, **members: Any) -> None:
        self.count += 1
        self.write(program, type, requestId=f"r{self.count}", **members)

    def go_on(self) -> None:
        """Do what disk, kernel and clock do at once."""
        world = self.world
        for _ in range(300):
            moved = False
            due = world.broker.next_deadline()
            if due is not None and due <= world.mono:
                world.perform(world.broker.deadline_passed(world.now))
                moved = True
            if self.commits and world.appends:
                world.commit()
                moved = True
            if self.reads and world.reads:
                world.read()
                moved = True
            if self.takes:
                world.take()
            self.hear()
            if not moved:
                return
        raise AssertionError("it never comes to rest")

    def hear(self) -> None:
        for program in self.programs:
            if program.conn is None:
                continue
            for frame in self.world.got(program.conn):
                if frame["type"] in ("registered", "session_reattached"):
                    program.session_id = frame["sessionId"]
                    program.token = frame.get("ownerToken", program.token)
                elif frame["type"] == "message":
                    program.waiting.append(frame["message"]["id"])
                    if "flowDispatch" in frame["message"]:
                        program.dispatches.append(frame["message"]["flowDispatch"]["dispatchId"])

    # --- sessions ---------------------------------------------------------------------------------------

    @rule(which=index, how=index)
    def come(self, which: int, how: int) -> None:
        absent = [program for program in self.programs if program not in self.here()]
        if absent:
            self.arrive(absent[which % len(absent)], how)

    def arrive(self, program: Program, how: int) -> None:
        """Reattach, register again as the same session, or be a new one; ``how`` chooses."""
        is_reborn = how % 4 == 2
        if is_reborn:
            program.pid += 100
        conn = self.world.connect(PeerCredentials(pid=program.pid, uid=1000, gid=1000, started=7))
        program.conn, program.waiting = conn, []
        program.is_terminal = False
        if program.address is not None:
            self.witness.under[conn] = program.address
        if program.token is not None and how % 4 in (0, 1):
            self.request(program, "session_reattach", sessionId=program.session_id, ownerToken=program.token)
            if self.witness.told_of.get(conn) is not None or not self.commits:
                return
        members: dict[str, Any] = {
            "session": {**INFO, "pid": program.pid, "name": program.name},
            "returnAddress": f"return-{program.name}",
            "acknowledgesReceipt": True,
            "features": list(program.features),
            "clientProtocolVersion": "1.0",
            "kind": "custom",
        }
        if program.address is not None:
            members["address"] = {"name": program.address, "token": TOKEN}
        if program.token is not None and is_reborn:
            members |= {"preferredSessionId": program.session_id, "ownerToken": program.token}
        self.write(program, "register", **members)

    @rule()
    def all_come(self) -> None:
        for program in self.programs[:3]:
            if program not in self.here():
                self.arrive(program, 0)

    @rule(which=index, how=st.sampled_from(["fin", "reset", "unregister", "killed"]))
    def go(self, which: int, how: str) -> None:
        here = self.here()
        if not here:
            return
        program = here[which % len(here)]
        assert program.conn is not None
        match how:
            case "reset":
                self.world.break_off(program.conn)
                self.world.perform([])
            case "unregister":
                self.write(program, "unregister")
                if program.conn in self.world.open:
                    self.world.end(program.conn)
            case _:
                self.world.end(program.conn)
                if how == "killed" and program.session_id is not None:
                    self.world.judge(program.session_id, is_alive=False)
        self.go_on()

    @rule(which=index)
    def finish_working(self, which: int) -> None:
        workers = [program for program in self.here() if program.name != "boss" and not program.is_terminal]
        if workers:
            worker = workers[which % len(workers)]
            worker.is_terminal = True
            self.request(worker, "presence", replyCapability="terminal")

    @rule(which=index)
    def confirm(self, which: int) -> None:
        waiting = [(program, message_id) for program in self.here() for message_id in program.waiting]
        if waiting:
            program, message_id = waiting[which % len(waiting)]
            program.waiting.remove(message_id)
            self.write(program, "received", messageId=message_id)

    # --- flows ------------------------------------------------------------------------------------------

    def steps(self, number: int, prefix: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for place in range(1 + number % 3):
            step: dict[str, Any] = {"stepId": f"{prefix}{place}", "prompt": f"p{place}"}
            if number % 5 == 0:
                step["todoBinding"] = {"requireCompleted": number % 2 == 0, "conflictCheck": number % 3 == 0}
            if number % 7 == 1:
                step["reportTimeoutMs"] = 8_000
            steps.append(step)
        return steps

    def target(self, number: int) -> str:
        names = ["plain", "desk", "plain", "desk", "nobody"]
        ids = [f"session:{program.session_id}" for program in self.programs[1:] if program.session_id]
        return (names + ids)[number % (len(names) + len(ids))]

    @rule(flow=st.sampled_from(FLOWS), number=index, whom=index, starts=st.booleans())
    def create(self, flow: str, number: int, whom: int, starts: bool) -> None:
        boss = self.programs[0]
        self.request(boss, "flow_create", flowId=flow, target=self.target(whom), steps=self.steps(number, "s"))
        if starts:
            self.request(boss, "flow_start", flowId=flow)

    @rule(flow=st.sampled_from(FLOWS), what=st.sampled_from(["start", "pause", "resume", "status"]))
    def control(self, flow: str, what: str) -> None:
        self.request(self.programs[0], f"flow_{what}", flowId=flow)

    @rule(flow=st.sampled_from(FLOWS), whom=index)
    def resume_elsewhere(self, flow: str, whom: int) -> None:
        self.request(self.programs[0], "flow_pause", flowId=flow)
        self.request(self.programs[0], "flow_resume", flowId=flow, target=self.target(whom))

    @rule(flow=st.sampled_from(FLOWS), after=st.integers(0, 3), number=index)
    def append(self, flow: str, after: int, number: int) -> None:
        self.count += 1
        steps = self.steps(number, f"x{self.count}.")
        self.request(self.programs[0], "flow_append", flowId=flow, afterStepId=f"s{after}", steps=steps)

    @rule(flow=st.sampled_from(FLOWS))
    def retry(self, flow: str) -> None:
        for step in ("s0", "s1", "s2"):
            self.request(self.programs[0], "flow_retry", flowId=flow, stepId=step, reason="again")

    @rule(flow=st.sampled_from(FLOWS))
    def cancel(self, flow: str) -> None:
        self.request(self.programs[0], "flow_cancel", flowId=flow, reason="no more")

    @rule(dry=st.booleans())
    def collect(self, dry: bool) -> None:
        self.request(self.programs[0], "flow_collect", dryRun=dry)

    # --- reports ----------------------------------------------------------------------------------------

    @rule(times=st.integers(1, 4))
    def do_what_is_handed_out(self, times: int) -> None:
        """Let every worker that is here confirm what it got and report it as done."""
        for _ in range(times):
            for worker in self.here():
                for message_id in list(worker.waiting):
                    worker.waiting.remove(message_id)
                    self.write(worker, "received", messageId=message_id)
                if worker.dispatches:
                    self.say(worker, worker.dispatches[-1], "x", 1, 6)
            self.pass_time(1_000)

    @rule(which=index, text=st.sampled_from(["x", "x", "x", "y"]), outcome=index, todo=index)
    def report(self, which: int, text: str, outcome: int, todo: int) -> None:
        """Report what was handed over: the newest or an older one, again, otherwise, with an item."""
        able = [program for program in self.here() if program.dispatches]
        if able:
            worker = able[which % len(able)]
            self.say(worker, worker.dispatches[-1 - (which // 7) % min(2, len(worker.dispatches))], text, outcome, todo)

    @rule(which=index, by=index)
    def report_as_somebody_else(self, which: int, by: int) -> None:
        handed = [dispatch_id for program in self.programs for dispatch_id in program.dispatches]
        here = [program for program in self.here() if program.name != "boss"]
        if handed and here:
            self.say(here[by % len(here)], handed[which % len(handed)], "x", 0, 0)

    def say(self, worker: Program, dispatch_id: str, text: str, outcome: int, todo: int) -> None:
        assert worker.conn is not None
        frame: dict[str, Any] = {
            "dispatchId": dispatch_id,
            "outcome": "failed" if outcome % 5 == 0 else "completed",
            "summary": text,
        }
        if todo % 3 == 0 and "flow.todo_mutation" in worker.features:
            status = ("completed", "in_progress", "blocked")[todo % 7 % 3]
            frame["todoOutcome"] = {"todoId": f"t{todo % 2}", "todoStatus": status}
        self.witness.said[dispatch_id].append((worker.conn, frame))
        self.request(worker, "flow_report", **frame)

    @rule(which=index, is_answer=st.booleans())
    def ask_and_answer(self, which: int, is_answer: bool) -> None:
        """Open the one question whose answer is a sign that the work has ended, or answer it."""
        boss, worker = self.programs[0], self.programs[1 + which % 2]
        if worker not in self.here() or boss not in self.here():
            return
        if is_answer:
            asked = [message_id for message_id in worker.waiting if message_id.startswith("q")]
            for message_id in asked[:1]:
                worker.waiting.remove(message_id)
                self.write(worker, "received", messageId=message_id)
                self.count += 1
                message = {"id": f"a{self.count}", "timestamp": 1, "content": {"text": "."}, "replyTo": message_id}
                self.write(worker, "send", to=boss.session_id, message=message, attemptId=f"t{self.count}")
        else:
            self.count += 1
            message = {"id": f"q{self.count}", "timestamp": 1, "content": {"text": "?"}, "expectsReply": True}
            self.write(boss, "send", to=worker.session_id, message=message, attemptId=f"t{self.count}")

    # --- time, disk, kernel -----------------------------------------------------------------------------

    @rule(ms=st.sampled_from(TIMES_MS))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)
        self.go_on()

    @rule(ms=st.sampled_from([-7_200_000, -3_000, 3_000, 86_400_000]))
    def turn_the_clock(self, ms: int) -> None:
        self.world.wall += ms

    @rule(ms=st.sampled_from([3_000, 600_000]))
    def stand_still(self, ms: int) -> None:
        """Let the process be stopped for a while."""
        self.world.mono += ms
        self.world.wall += ms
        self.go_on()

    @rule(commits=st.booleans(), takes=st.booleans(), reads=st.booleans())
    def change_pace(self, commits: bool, takes: bool, reads: bool) -> None:
        self.commits, self.takes, self.reads = commits, takes, reads
        self.go_on()

    @precondition(lambda self: self.world.appends)
    @rule(before=st.integers(0, 5))
    def fail_commit(self, before: int) -> None:
        self.world.commit(before % len(self.world.appends))
        self.world.fail_commit()
        self.go_on()

    @precondition(lambda self: self.world.reads)
    @rule(fails=st.booleans())
    def read(self, fails: bool) -> None:
        self.world.read(fails=fails)
        self.go_on()

    @rule(durable=st.integers(0, 5), is_told=st.booleans(), back=index)
    def kill_broker(self, durable: int, is_told: bool, back: int) -> None:
        """Kill the broker with some of its last commits done and nobody told of them; some clients come back."""
        self.world.take(told=is_told)
        self.hear()
        for append in list(self.world.appends)[:durable]:
            self.world.disk.commit(append)
        were_here = self.here()
        self.world.crash()
        for program in self.programs:
            program.conn = None
        for place, program in enumerate(were_here):
            if back >> place & 1:
                self.arrive(program, 0)
        self.go_on()

    @rule()
    def rest(self) -> None:
        """Let everything come to an end that can by itself now."""
        pace = self.commits, self.takes, self.reads
        self.settle()
        self.witness.check_disk()
        self.witness.check_memory()
        self.commits, self.takes, self.reads = pace

    def settle(self) -> None:
        self.commits = self.takes = self.reads = True
        self.world.perform([])
        self.go_on()
        self.world.pass_time(LIMITS.mail_retry_ms)
        self.go_on()

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "witness"):
            self.finish()

    def finish(self) -> None:
        """Let everybody leave and all time pass: no attempt may be under way for ever, and no text be kept."""
        self.rest()
        for program in self.here():
            assert program.conn is not None
            self.write(program, "unregister")
            if program.conn in self.world.open:
                self.world.end(program.conn)
        self.world.pass_time(LIMITS.grace_ms + LIMITS.mail_ttl_ms + 30_000)
        self.rest()
        disk = self.witness.disk
        assert not [row for row in disk.dispatches.values() if row.outcome == "pending" and row.report is None]


TestFlowWorld = FlowWorld.TestCase
TestFlowWorld.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)
