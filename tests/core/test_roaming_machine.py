"""Let an address with tasks roam between brokers that are killed, cut off and joined at any moment.

At the end, when all are joined: every task has one run, which ended where it was asked for as its worker said; nobody
was shown one after it had been confirmed, wherever that was; and nothing waits anywhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import REDELIVERY_MS, Cluster
from tests.core.harness import Client
from tests.core.mail import AGENT
from tests.core.test_homes import claim
from tests.core.test_tasks_machine import ENDED, Play
from tests.core.work import ask

RUNS, STEPS = 15, 60
LONG, LONG_STEPS = (1040, 2043), 300
LIMITS = Limits()
DEPOT = [*AGENT, "invoke"]
WAYS = {
    "invoke": 14,
    "again": 6,
    "cancel": 2,
    "settle": 9,
    "leave": 5,
    "look": 10,
    "confirm": 12,
    "finish": 10,
    "run": 20,
    "part": 18,
    "wait": 8,
    "cut": 4,
    "join": 6,
    "crash": 4,
    "copy": 3,
    "forget": 2,
    "lose": 1,
}
LATE = {**WAYS, "delay": 8, "late": 3}
"""What happens where letters are handed out late, and in another order."""


class Depot:
    """Be whoever holds the address, wherever that is, and does its tasks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client: Client | None = None
        self.broker = ""
        self.unconfirmed: dict[str, str] = {}
        """Invocation ids of the tasks that were shown here and not confirmed, by message."""
        self.taken: dict[str, tuple[str, str]] = {}
        """Where each message was confirmed, and its invocation id."""
        self.done: set[str] = set()
        self.asked_to_stop: set[str] = set()
        self.reports = 0

    def settle(self, broker: str, **more: Any) -> None:
        self.look()
        self.unconfirmed.clear()
        self.client, self.broker = claim(self.cluster, broker, "depot", features=DEPOT, **more), broker
        self.take(self.client.first)

    def leave(self) -> None:
        self.look()
        if self.client is not None:
            self.client.leave()
            self.client = None

    def look(self) -> None:
        if self.client is not None and self.client.conn not in self.client.world.received:
            self.client = None  # its broker was killed
            self.unconfirmed.clear()
        if self.client is not None:
            self.take(self.client.got())

    def take(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if frame["type"] in ("replaced", "registration_failed"):
                self.client = None
            invoked = frame.get("invocation") if frame["type"] == "message" else None
            if frame["type"] == "message" and frame["message"]["id"].startswith(("run:", "cancel:")):
                assert invoked is not None, f"{frame['message']['id']} came as a mere message"
            if invoked is None:
                continue
            message_id = frame["message"]["id"]
            if invoked.get("cancelled"):
                self.asked_to_stop.add(invoked["invocationId"])
                assert self.client is not None
                self.client.write("received", messageId=message_id)
                continue
            assert message_id not in self.taken, f"{message_id} at {self.broker} after {self.taken[message_id]}"
            self.unconfirmed[message_id] = invoked["invocationId"]

    def confirm(self) -> None:
        self.look()
        unconfirmed, self.unconfirmed = self.unconfirmed, {}
        for message_id, invocation_id in unconfirmed.items() if self.client is not None else ():
            assert self.client is not None
            self.taken[message_id] = self.broker, invocation_id
            self.take(self.client.write("received", messageId=message_id))

    def report(self) -> None:
        """Say of all that was taken here that it is done."""
        self.look()
        for broker, invocation_id in self.taken.values():
            if self.client is not None and broker == self.broker and invocation_id not in self.done:
                self.reports += 1
                update = f"u{self.reports}"
                request = {"requestId": update, "invocationId": invocation_id, "updateId": update}
                frames = self.client.write("run_update", **request, state="completed", output=f"done at {broker}")
                [answer] = [frame for frame in frames if frame.get("requestId") == update]
                assert answer["type"] == "run_recorded" or answer["code"] == "run_terminal", answer
                self.done.add(invocation_id)
                self.take([frame for frame in frames if frame is not answer])


class Roaming(Play):
    """Hold one run."""

    def __init__(self, number: int, ways: dict[str, int]) -> None:
        super().__init__(number, "abc")
        self.ways = ways
        self.depot = Depot(self.cluster)
        self.depot.settle(self.random.choice("abc"))
        self.cluster.run(LIMITS.announce_ms)
        self.cancelled: set[str] = set()

    def people_of(self) -> list[tuple[str, str]]:
        return [(f"from-{name}", name) for name in "abc"]

    def step(self) -> None:
        chance, depot = self.random, self.depot
        who, node = chance.choice(self.people), self.cluster.nodes[chance.choice("abc")]
        what = chance.choices(list(self.ways), list(self.ways.values()))[0]
        if what == "invoke":
            self.count += 1
            who.asked[f"t{self.count}"] = "depot"
            who.invoke(f"t{self.count}")
        elif what == "cancel" and who.asked:
            invocation_id = chance.choice(list(who.asked))
            self.cancelled.add(invocation_id)
            who.take(who.agent.write("invocation_cancel", requestId="c", invocationId=invocation_id))
        elif what == "settle":
            depot.settle(node.name)
        elif what == "leave":
            depot.leave()
        elif what == "look":
            depot.look()
        elif what == "confirm":
            depot.confirm()
        elif what == "finish":
            depot.report()
        elif what == "delay":
            self.cluster.delay(node.name, chance.randint(1, 5))
        elif what == "late":
            self.cluster.run(REDELIVERY_MS)
        else:
            self.happen(what, who, node)

    def heal(self) -> None:
        """Join all, and let every task be done where it was taken, or where the address is in the end."""
        for name in "abc":
            if not self.cluster.nodes[name].is_cut:
                self.cluster.cut(name)
        for name in "abc":
            self.cluster.join(name)
        self.cluster.run(LIMITS.claim_ms)
        last = self.random.choice("abc")
        for _ in range(3):
            for each in self.people:
                for invocation_id in each.asked:
                    each.invoke(invocation_id)
            for name in "abc":
                self.depot.settle(name, hold="none")
                self.depot.report()
                self.depot.leave()
            self.depot.settle(last)
            assert self.depot.client is not None, "it shows the token"
            for _ in range(3):
                self.cluster.run(LIMITS.peer_retry_most_ms * 2)
                self.depot.confirm()
                self.depot.report()
            self.cluster.run(LIMITS.forward_ms)

    def check(self) -> None:
        """Look at every run where it was asked for."""
        done = {invocation_id: broker for broker, invocation_id in self.depot.taken.values()}
        assert len(done) == len(self.depot.taken), "one run for each"
        for who in self.people:
            for invocation_id in who.asked:
                shown = ask(who.agent, "invocation_get", invocationId=invocation_id)
                if "run" not in shown:
                    assert shown["diagnoses"], invocation_id
                    continue
                run = shown["run"]
                assert run["state"] in ENDED, (invocation_id, run, shown.get("deliveries"))
                if run["state"] == "completed":
                    assert run["output"] == f"done at {done[invocation_id]}"
                elif run["state"] == "cancelled":
                    assert invocation_id in self.cancelled and invocation_id not in done, (invocation_id, run)
                else:
                    raise AssertionError((invocation_id, run, shown.get("deliveries")))
        for node in self.cluster.nodes.values():
            assert not node.handed_out and not node.queue, "something is not settled"
            left = [mail.message_id for mail in node.world.disk.mail.values() if mail.sender_session]
            assert not left, f"{left} wait at {node.name}"


@pytest.mark.parametrize("number", range(RUNS))
def test_whatever_fails_every_task_finds_its_address(number: int) -> None:
    """13.7: partitions, crashes and moves cost nothing, and do nothing twice."""
    roam(number, STEPS)


@pytest.mark.parametrize("number", LONG)
def test_long_worlds_that_went_wrong_once(number: int) -> None:
    """The same, for longer: the report of what was given up is lost on its way."""
    roam(number, LONG_STEPS)


@pytest.mark.parametrize(("number", "steps"), [*((number, STEPS) for number in range(RUNS)), (103, 150), (154, 150)])
def test_tasks_that_come_late_are_done_once(number: int, steps: int) -> None:
    """The same, with letters that the engine hands out again when their address may have been elsewhere meanwhile."""
    roam(number, steps, LATE)


def roam(number: int, steps: int, ways: dict[str, int] = WAYS) -> None:
    """Let so much happen, and hold the ledger."""
    play = Roaming(number, ways)
    for _ in range(steps):
        play.step()
    play.heal()
    play.check()
