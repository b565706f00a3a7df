"""Let brokers die, be cut off and joined, and the engine lose or repeat what it holds, while flows cross machines.

The engine is a model: at least once, a window in which it tells copies, and an end of what it keeps. A worker never has
two steps at once. At the end, when all are joined and every step that is ambiguous was tried again: each flow is
completed or cancelled, each step because its worker said so about that attempt, and each report was answered truly.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from intercom.core.connections import PeerCredentials
from intercom.core.flow import Dispatch
from intercom.limits import MINUTE_MS, Limits
from tests.core.cluster import Cluster
from tests.core.flow_play import COORDINATOR, WORKER, steps_of
from tests.core.harness import World
from tests.core.mail import PEER, Agent, enter, reattach

RUNS, STEPS = 6, 70
FOUND = (500035,)
"""A flow whose worker was cut off until it failed; only the play was wrong, which did not resume it."""
LIMITS = Limits(flow_admissions=100)
WAYS = ["begin", "halt", "cancel", "look", "report", "again", "run", "part", "wait", "cut", "join"]
WEIGHTS = [10, 4, 5, 18, 14, 8, 14, 30, 8, 4, 6]
FAULTS = ["crash", "die", "disk"]
ENGINE = ["copy", "forget", "lose"]
"""What the engine may do: hand out a copy, forget which copies it has seen, and drop what had its time."""
COPIED = 12
"""How many letters back a copy may be of."""


class Person:
    """Be one session that outlives its broker."""

    def __init__(self, cluster: Cluster, name: str, broker: str, features: tuple[str, ...]) -> None:
        self.cluster, self.name, self.broker, self.features = cluster, name, broker, features
        self.agent: Agent = enter(cluster[broker], name, features=features)
        self.token = self.agent.token
        self.peer = PEER

    def come_back(self) -> None:
        self.agent = reattach(self.cluster[self.broker], self.agent, ownerToken=self.token, peer=self.peer)
        self.agent.first, came = self.agent.first[:1], self.agent.first[1:]
        self.take(came)

    def look(self) -> None:
        self.take(self.agent.got())

    def take(self, frames: list[dict[str, Any]]) -> None:
        """Take what came."""


class Boss(Person):
    """Write flows and control them."""

    def __init__(self, cluster: Cluster, name: str, broker: str) -> None:
        super().__init__(cluster, name, broker, COORDINATOR)
        self.flows: list[str] = []

    def ask(self, kind: str, **members: Any) -> None:
        self.take(self.agent.write(f"flow_{kind}", requestId=kind, **members))

    def begin(self, flow_id: str, target: str, count: int) -> None:
        self.flows.append(flow_id)
        self.ask("create", flowId=flow_id, target=target, steps=steps_of(*(f"s{n}" for n in range(count))))
        self.ask("start", flowId=flow_id)

    def status(self, flow_id: str) -> dict[str, Any] | None:
        """Return how a flow is; None: it was never recorded."""
        frames = self.agent.write("flow_status", requestId="status", flowId=flow_id)
        frames += self.agent.got()
        answer = next(frame for frame in frames if frame.get("requestId") == "status")
        if answer["type"] == "flow":
            return answer
        assert answer["code"] == "flow_unknown", answer
        return None


class Worker(Person):
    """Do steps, and write down what was reported and what was answered."""

    def __init__(self, cluster: Cluster, name: str, broker: str) -> None:
        super().__init__(cluster, name, broker, WORKER)
        self.open: list[str] = []
        """The steps that this start of it was shown and has not reported."""
        self.shown: set[str] = set()
        self.confirmed: set[str] = set()
        self.reported: dict[str, str] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        """The newest answer to each report, by dispatch."""

    def take(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if frame.get("requestId", "").startswith("report "):
                self.answers[frame["requestId"].removeprefix("report ")] = frame
            if frame["type"] != "message" or "flowDispatch" not in frame["message"]:
                continue
            dispatch_id = frame["message"]["flowDispatch"]["dispatchId"]
            assert dispatch_id not in self.confirmed, f"{self.name} was shown {dispatch_id} after it had confirmed it"
            self.shown.add(dispatch_id)
            if dispatch_id not in self.open:
                self.open.append(dispatch_id)

    def confirm(self) -> None:
        for dispatch_id in set(self.open) - self.confirmed:
            self.has(dispatch_id)
            self.take(self.agent.write("received", messageId=f"flow-dispatch/{dispatch_id}"))

    def has(self, dispatch_id: str) -> None:
        """Note that a step was taken, unless the broker may die before it has recorded that."""
        if self.agent.world.auto:
            self.confirmed.add(dispatch_id)

    def report(self, dispatch_id: str, outcome: str = "completed") -> None:
        said = self.reported.setdefault(dispatch_id, outcome)
        if dispatch_id in self.open:
            self.open.remove(dispatch_id)
        self.has(dispatch_id)
        request = {"dispatchId": dispatch_id, "outcome": said, "summary": f"by {self.name}"}
        self.take(self.agent.write("flow_report", requestId=f"report {dispatch_id}", **request))

    def die(self) -> None:
        """Start again under the same id, with nothing in memory, once that can be recorded."""
        self.cluster[self.broker].auto = True
        self.cluster[self.broker].settle()
        self.look()
        self.peer = PeerCredentials(pid=self.peer.pid + 1, uid=1000, gid=1000, started=8)
        again: dict[str, Any] = {"preferredSessionId": self.agent.id, "ownerToken": self.token}
        self.open, self.confirmed, self.reported = [], set(), {}
        self.agent = enter(self.cluster[self.broker], self.name, features=WORKER, peer=self.peer, **again)
        self.token = self.agent.token


class Play:
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.cluster = Cluster("abc", limits=LIMITS)
        self.bosses = [Boss(self.cluster, f"boss-{name}", name) for name in "abc"]
        self.workers = [Worker(self.cluster, f"work-{name}", name) for name in "bc"]
        self.people: list[Person] = [*self.bosses, *self.workers]
        self.cluster.run(LIMITS.announce_ms)
        self.count = 0

    def step(self) -> None:
        chance = self.random
        boss, worker = chance.choice(self.bosses), chance.choice(self.workers)
        node = self.cluster.nodes[chance.choice("abc")]
        what = chance.choices([*WAYS, *FAULTS, *ENGINE], [*WEIGHTS, 4, 2, 12, 8, 2, 4])[0]
        if what == "begin":
            self.count += 1
            target = worker.name if chance.random() < 0.7 else f"{worker.name}@{worker.broker}"
            boss.begin(f"f{self.count}", target, chance.randint(1, 3))
        elif what == "halt" and boss.flows:
            boss.ask(chance.choice(["pause", "resume"]), flowId=chance.choice(boss.flows))
        elif what == "cancel" and boss.flows:
            boss.ask("cancel", flowId=chance.choice(boss.flows), reason="enough")
        elif what == "look":
            worker.look()
            if chance.random() < 0.7:
                worker.confirm()
        elif what == "report" and worker.open:
            worker.report(chance.choice(worker.open), "completed" if chance.random() < 0.8 else "failed")
        elif what == "again" and worker.reported:
            worker.report(chance.choice(list(worker.reported)))
        elif what == "run":
            self.cluster.run()
        elif what == "part":
            (self.cluster._take_work if chance.random() < 0.5 else self.cluster._hand_out)(node)
        elif what == "wait":
            self.cluster.run(chance.choice([100, 2_000, 8_000, 60_000]))
        elif what == "cut" and not node.is_cut:
            self.cluster.cut(node.name, leases_end=chance.random() < 0.5)
        elif what == "join" and node.is_cut:
            self.cluster.join(node.name)
        elif what == "crash":
            self.crash(node.name)
        elif what == "die":
            worker.look()
            worker.die()
        elif what == "disk":
            self.let_disk(node.world, chance.choice(["wait", "go on", "go on", "commit one", "fail"]))
        elif what == "copy" and self.cluster.kept:
            to, kept = chance.choice(self.cluster.kept[-COPIED:])
            to.queue.append(kept)
        elif what == "forget":
            self.cluster.seen_ids.clear()
        elif what == "lose":
            node.queue.clear()
        self.check_turns()

    def let_disk(self, world: World, what: str) -> None:
        """Let commits wait, so that a crash finds them undone, or go on, or fail."""
        if what == "wait":
            world.auto = False
        elif what == "go on":
            world.auto = True
            world.settle()
        elif what == "commit one":
            world.commit(1)
        elif world.appends:
            world.fail_commit()

    def crash(self, name: str) -> None:
        here = [each for each in self.people if each.broker == name]
        for each in here:
            each.look()
        self.cluster[name].auto = True
        self.cluster.crash(name, self.random.choice(["expired", "renewed", "given back"]))
        for each in here:
            each.come_back()

    def check_turns(self) -> None:
        """Find one step at most under way at each worker, as its broker knows."""
        for worker in self.workers:
            broker = self.cluster[worker.broker].broker
            assert broker._meshing is not None
            there = broker._meshing._steps_in._hosting
            own: Dispatch | None = broker._flows.book.open_at(worker.agent.id)
            others = [each.id for each in there if each.session_id == worker.agent.id and each.occupies]
            assert len(others) + (own is not None) <= 1, (worker.name, own and own.id, others)

    def heal(self) -> None:
        """Join all, and go on until every flow is over."""
        for name in "abc":
            node = self.cluster.nodes[name]
            self.let_disk(node.world, "go on")
            node.queue.extendleft(reversed(node.handed_out.values()))  # what no broker said it has done with
            node.handed_out.clear()
            if not self.cluster.nodes[name].is_cut:
                self.cluster.cut(name)
        for name in "abc":
            self.cluster.join(name)
        for _ in range(60):
            self.cluster.run(2_000)
            for worker in self.workers:
                worker.look()
                for dispatch_id in list(worker.open):
                    worker.report(dispatch_id)
                for dispatch_id in list(worker.reported):
                    worker.report(dispatch_id)
            self.cluster.run()
            for worker in self.workers:
                worker.look()
            if not self.go_on():
                return
        self.cluster.run(MINUTE_MS)

    def go_on(self) -> bool:
        """Let what was halted go on, and try what can be; return whether something is not over."""
        is_open = False
        for boss in self.bosses:
            boss.look()
            for flow_id in boss.flows:
                shown = boss.status(flow_id)
                if shown is None or (flow := shown["flow"])["state"] in ("completed", "cancelled"):
                    continue
                is_open = True
                if flow["state"] == "draft":
                    boss.ask("start", flowId=flow_id)
                if "resume" in flow["nextActions"]:  # paused, or its target was away for so long that it failed
                    boss.ask("resume", flowId=flow_id)
                for step in flow["steps"]:
                    if step["state"] in ("ambiguous", "failed"):
                        boss.ask("retry", flowId=flow_id, stepId=step["stepId"], reason="once more")
                        if len(step["attempts"]) == LIMITS.flow_attempts:
                            boss.ask("cancel", flowId=flow_id, reason="tried often")
        return is_open

    def check(self) -> None:
        """Hold what became of every attempt against what its worker knows."""
        reported = {key: said for worker in self.workers for key, said in worker.reported.items()}
        answers = {key: answer for worker in self.workers for key, answer in worker.answers.items()}
        known: dict[str, dict[str, Any]] = {}
        taken_back: set[str] = set()
        for boss in self.bosses:
            for flow_id in boss.flows:
                shown = boss.status(flow_id)
                if shown is None:
                    continue
                assert shown["flow"]["state"] in ("completed", "cancelled"), shown["flow"]
                known |= {one["dispatchId"]: one for one in shown["dispatches"]}
                attempts = {each for step in shown["flow"]["steps"] for each in step["attempts"]}
                taken_back |= {one["dispatchId"] for one in shown["dispatches"]} - attempts
        for dispatch_id, said in reported.items():
            outcome = known[dispatch_id]["outcome"]
            answer = answers[dispatch_id]
            if answer["type"] == "flow_report_recorded":
                assert (answer["state"], outcome) == ("accepted", said), answer
            else:
                assert answer["code"] in ("dispatch_closed", "dispatch_unknown"), answer
                assert outcome in ("ambiguous", "retired") and "report" not in known[dispatch_id], known[dispatch_id]
        for worker in self.workers:
            assert worker.shown <= known.keys(), "nothing was handed out of which no flow knows"
            assert not worker.shown & taken_back, "what does not count was handed to nobody"
        for one in known.values():
            assert ("report" in one) == (one["outcome"] in ("completed", "failed")), one
            if one["transport"] == "accepted":
                assert any(one["dispatchId"] in worker.shown for worker in self.workers)
        for node in self.cluster.nodes.values():
            assert not node.handed_out and not node.queue, "something is not settled"


@pytest.mark.parametrize("number", [*range(RUNS), *FOUND])
def test_whatever_fails_every_step_ends_as_its_worker_said(number: int) -> None:
    """Section 4, A2.4 to A2.6, A2.9, A2.11, A2.14 across machines."""
    play = Play(number)
    for _ in range(STEPS):
        play.step()
    play.heal()
    play.check()
