"""Let brokers die, be cut off and joined, and the engine lose or repeat what it holds, while tasks cross machines.

The engine is a model: at least once, a window in which it tells copies, and an end of what it keeps. At the end, when
all are joined: each invocation has one run, which ended the same at both brokers, and nobody was shown a task after
having confirmed it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import Cluster, Kept, Node
from tests.core.invoking import INVOKER
from tests.core.mail import Agent, enter, reattach
from tests.core.work import ask

RUNS, STEPS = 10, 60
LIMITS = Limits()
ENDED = {"completed", "failed", "cancelled"}
WAYS = ["invoke", "again", "cancel", "look", "report", "finish", "run", "part", "wait", "cut", "join", "crash"]
WEIGHTS = [14, 8, 4, 18, 8, 14, 25, 18, 8, 4, 6, 4]
ENGINE = ["copy", "forget", "lose"]
"""What the engine may do: hand out a copy, forget which copies it has seen, and drop what had its time."""


class Person:
    """Be one agent that outlives its broker: it invokes, does tasks, and confirms what it is shown."""

    def __init__(self, cluster: Cluster, name: str, broker: str) -> None:
        self.cluster, self.name, self.broker = cluster, name, broker
        self.agent: Agent = enter(cluster[broker], name, features=INVOKER)
        self.token = self.agent.token
        self.asked: dict[str, str] = {}
        """Whom each invocation is for."""
        self.got: dict[str, dict[str, Any]] = {}
        """The tasks it was shown, by run id."""
        self.confirmed: set[str] = set()
        self.reports = 0

    def come_back(self) -> None:
        self.agent = reattach(self.cluster[self.broker], self.agent, ownerToken=self.token)
        self.agent.first, came = self.agent.first[:1], self.agent.first[1:]
        self.take(came)

    def look(self) -> None:
        self.take(self.agent.got())

    def take(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            invoked = frame.get("invocation") if frame["type"] == "message" else None
            if invoked is None or invoked.get("cancelled"):
                continue
            message_id = frame["message"]["id"]
            assert message_id not in self.confirmed, f"{self.name} was shown {message_id} after it had confirmed it"
            self.got[invoked["runId"]] = invoked
            self.confirmed.add(message_id)
            self.take(self.agent.write("received", messageId=message_id))

    def report(self, run_id: str, state: str) -> None:
        """Say how far a task is; that it ended already is an answer too."""
        self.reports += 1
        invoked, update = self.got[run_id], f"{self.name}{self.reports}"
        request = {"requestId": update, "invocationId": invoked["invocationId"], "updateId": update, "state": state}
        if state == "completed":
            request["output"] = f"done by {self.name}"
        self.take(self.agent.write("run_update", **request))

    def invoke(self, invocation_id: str) -> None:
        request = {"invocationId": invocation_id, "target": f"@{self.asked[invocation_id]}", "task": invocation_id}
        self.take(self.agent.write("invoke", requestId=f"i{invocation_id}", **request))


class Play:
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int, brokers: str = "ab") -> None:
        self.random = random.Random(number)
        self.cluster = Cluster(brokers)
        self.people = [Person(self.cluster, name, broker) for name, broker in self.people_of()]
        self.cluster.run(LIMITS.announce_ms)
        self.count = 0

    def people_of(self) -> list[tuple[str, str]]:
        """Return who there is, and at which broker."""
        return [("ann", "a"), ("ben", "b")]

    def step(self) -> None:
        chance = self.random
        who, node = chance.choice(self.people), self.cluster.nodes[chance.choice("ab")]
        what = chance.choices([*WAYS, *ENGINE], [*WEIGHTS, 4, 2, 2])[0]
        open_tasks = list(who.got)
        if what == "invoke":
            self.count += 1
            other = next(each for each in self.people if each is not who)
            who.asked[f"t{self.count}"] = other.name
            who.invoke(f"t{self.count}")
        elif what == "cancel" and who.asked:
            who.take(who.agent.write("invocation_cancel", requestId="c", invocationId=chance.choice(list(who.asked))))
        elif what == "look":
            who.look()
        elif what in ("report", "finish") and open_tasks:
            who.report(chance.choice(open_tasks), "running" if what == "report" else "completed")
        else:
            self.happen(what, who, node)

    def happen(self, what: str, who: Person, node: Node) -> None:
        """Let something happen that has nothing to do with any one task."""
        chance = self.random
        if what == "again" and who.asked:
            who.invoke(chance.choice(list(who.asked)))
        elif what == "run":
            self.cluster.run()
        elif what == "part":
            (self.cluster._take_work if chance.random() < 0.5 else self.cluster._hand_out)(node)
        elif what == "wait":
            self.cluster.run(chance.choice([100, 1_000, 8_000, 60_000]))
        elif what == "cut" and not node.is_cut:
            self.cluster.cut(node.name, leases_end=chance.random() < 0.5)
        elif what == "join" and node.is_cut:
            self.cluster.join(node.name)
        elif what == "crash":
            self.crash(node.name)
        elif what == "copy" and node.queue:
            kept = chance.choice(list(node.queue))
            node.queue.append(Kept(kept.by, kept.kind, kept.delivery_id, kept.body))
        elif what == "forget":
            self.cluster.seen_ids.clear()
        elif what == "lose":
            node.queue.clear()

    def crash(self, name: str) -> None:
        here = [each for each in self.people if each.broker == name]
        for each in here:
            each.look()
        self.cluster.crash(name)
        for each in here:
            each.come_back()

    def heal(self) -> None:
        """Join all, and let every task be done."""
        for name in "ab":
            if not self.cluster.nodes[name].is_cut:
                self.cluster.cut(name)
        for name in "ab":
            self.cluster.join(name)
        for _ in range(6):
            for each in self.people:
                for invocation_id in each.asked:
                    each.invoke(invocation_id)
            self.cluster.run(LIMITS.peer_retry_most_ms * 2)
            for each in self.people:
                each.look()
                for run_id in list(each.got):
                    each.report(run_id, "completed")
            self.cluster.run(LIMITS.forward_ms)

    def check(self) -> None:
        """Compare what both brokers know of every invocation."""
        for who, other in (self.people, self.people[::-1]):
            there = {each["invocationId"]: each for each in ask(other.agent, "invocation_list")["invocations"]}
            for invocation_id, target in who.asked.items():
                assert target == other.name
                shown = ask(who.agent, "invocation_get", invocationId=invocation_id)
                assert shown["known"], invocation_id
                if "run" not in shown:
                    assert shown["diagnoses"], "nobody of this name was to be seen, and it was said"
                    continue
                run = shown["run"]
                assert run["state"] in ENDED, (invocation_id, run, shown["deliveries"])
                far = there.get(invocation_id)
                if far is not None:
                    assert (far["runId"], far["state"]) == (run["runId"], run["state"]), (far, run)
                    if run["state"] == "completed":
                        assert run["output"] == f"done by {other.name}"
                else:
                    assert run["state"] != "completed", "nobody did it"
        for node in self.cluster.nodes.values():
            assert not node.handed_out and not node.queue, "something is not settled"


@pytest.mark.parametrize("number", range(RUNS))
def test_whatever_fails_every_task_has_one_run_with_one_end(number: int) -> None:
    """Section 4, A3.2, A3.3, A3.9, A3.12: one run for each id, and both brokers come to know the same end."""
    play = Play(number)
    for _ in range(STEPS):
        play.step()
    play.heal()
    play.check()
