"""Let an address go to and fro between brokers that are killed at any moment, and keep a ledger.

Who was killed may reach the engine at once or later, so that the address comes before what was under way is posted
again. At the end, when both are joined: the holder was shown everything, and nothing that it had confirmed before,
wherever that was.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import REDELIVERY_MS, Cluster
from tests.core.harness import Client
from tests.core.test_abroad_machine import FEATURES, FINAL, Person
from tests.core.test_homes import claim

RUNS, STEPS = 10, 60
ONCE = (52, 126, 134, 430, 436, 523, 534, 537, 629, 666)
"""Worlds in which something was shown twice as long as only a process knew to whom it had posted."""
ONCE_LATE = (137, 138, 162, 202, 285, 311, 314, 346, 355, 631, 5734)
ONCE_OF_THREE = (97, 157, 264, 289, 291, 1324, 8148)
"""Worlds in which it was so as long as no letter said since when its broker knew the home, and who else had it."""
LIMITS = Limits()
LAST_COPIES = 20
WAYS = {"send": 20, "settle": 9, "leave": 6, "confirm": 18, "run": 14, "part": 22, "wait": 5, "kill": 8, "join": 9}
COPIES = {**WAYS, "delay": 10, "again": 6, "late": 3}
"""What happens where letters are handed out late, in another order, and again."""


class Holder:
    """Be whoever holds the address, on either machine."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client: Client | None = None
        self.broker = ""
        self.shown: set[str] = set()
        self.confirmed: dict[str, str] = {}
        """Where each message was confirmed."""
        self.unconfirmed: dict[str, None] = {}

    def settle(self, broker: str) -> None:
        self.look()
        self.confirm()  # what it has in hand is done with where it is
        self.client, self.broker = claim(self.cluster, broker, "depot"), broker
        self.take(self.client.first)

    def leave(self) -> None:
        self.confirm()
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
            if frame["type"] == "message" and "notice" not in frame:
                message_id = frame["message"]["id"]
                where = self.confirmed.get(message_id)
                assert where is None, f"{message_id} at {self.broker} after it was confirmed at {where}"
                self.shown.add(message_id)
                self.unconfirmed[message_id] = None
            elif frame["type"] in ("replaced", "registration_failed"):
                self.client = None
                self.unconfirmed.clear()

    def confirm(self) -> None:
        self.look()
        unconfirmed, self.unconfirmed = self.unconfirmed, {}
        for message_id in unconfirmed if self.client is not None else ():
            assert self.client is not None
            self.confirmed[message_id] = self.broker
            self.take(self.client.write("received", messageId=message_id))


class World:
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int, names: str = "ab", ways: dict[str, int] = WAYS) -> None:
        self.random = random.Random(number)
        self.names, self.ways = names, ways
        self.cluster = Cluster(names)
        self.holder = Holder(self.cluster)
        self.people = [Person(self, f"from-{name}", name, **FEATURES) for name in names]  # type: ignore[arg-type]
        self.count = 0
        self.holder.settle(self.random.choice(names))
        self.cluster.run(200)

    def step(self) -> None:
        chance, holder, cluster = self.random, self.holder, self.cluster
        what = chance.choices(list(self.ways), list(self.ways.values()))[0]
        node = cluster.nodes[chance.choice(self.names)]
        if what == "send":
            who = chance.choice(self.people)
            who.look()
            self.count += 1
            who.sent[f"d{self.count}"] = ("depot", True)
            who.send(f"d{self.count}")
        elif what == "settle":
            holder.settle(node.name)
        elif what == "leave":
            holder.leave()
        elif what == "confirm":
            holder.confirm()
        elif what == "run":
            cluster.run()
        elif what == "part":
            if chance.random() < 0.5:
                cluster._take_work(node)
            else:
                cluster._hand_out(node)
        elif what == "wait":
            cluster.run(chance.choice([100, 1_000, 8_000]))
        elif what == "kill":
            holder.look()
            [who] = [each for each in self.people if each.broker == node.name]
            who.look()
            cluster.crash(node.name, chance.choice(["expired", "renewed"]), is_starting=chance.random() < 0.6)
            who.come()
        elif what == "delay":
            cluster.delay(node.name, chance.randint(1, 5))
        elif what == "again":
            cluster.give_again(node.name, chance.randrange(LAST_COPIES))
        elif what == "late":
            cluster.run(REDELIVERY_MS)
        elif node.is_cut:
            cluster.join(node.name)

    def finish(self) -> None:
        """Join both, and send again what is not known, until nothing waits."""
        for name, node in self.cluster.nodes.items():
            if node.is_cut:
                self.cluster.join(name)
        self.cluster.run(LIMITS.claim_ms)
        self.holder.settle(self.random.choice(self.names))
        for wait_ms in (*[LIMITS.peer_outcome_ms] * 4, LIMITS.operation_ttl_ms):
            # What was written to a session whose broker was killed then is uncertain there for as long as the last one.
            self.cluster.run(wait_ms)
            self.holder.confirm()
            for who in self.people:
                who.look()
                who.confirm()
            self.cluster.run()
            for who in self.people:
                who.look()
                for message_id in who.sent:
                    if who.told.get(message_id, {}).get("type") not in FINAL:
                        who.send(message_id)
            self.cluster.run()
            self.holder.confirm()


@pytest.mark.parametrize("number", [*range(RUNS), *ONCE])
def test_nothing_is_shown_after_it_was_confirmed_wherever_its_address_goes(number: int) -> None:
    """Protocol 6.13, ``shown-once``: also when the broker of its sender is killed between post and outcome."""
    roam(number, STEPS)


@pytest.mark.parametrize("number", [*range(RUNS), *ONCE_LATE])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_nothing_is_shown_again_that_comes_late_or_again(names: str, number: int) -> None:
    """Protocol 6.13.7, ``shown-once``: the engine hands out again what was not, or was, settled."""
    roam(number, STEPS, names, COPIES)


@pytest.mark.parametrize("number", [*range(RUNS), *ONCE_OF_THREE])
def test_nothing_is_shown_again_by_a_third_broker(number: int) -> None:
    """Protocol 6.13.7, ``shown-once``: who has it says who else may."""
    roam(number, STEPS, "abc")


def roam(number: int, steps: int, names: str = "ab", ways: dict[str, int] = WAYS) -> None:
    """Let so much happen, and hold the ledger."""
    world = World(number, names, ways)
    for _ in range(steps):
        world.step()
    world.finish()
    check(world)


def check(world: World) -> None:
    for who in world.people:
        who.look()
        for message_id in who.sent:
            told = who.told.get(message_id, {})
            assert told.get("type") in FINAL, f"{message_id}: {told}"
            assert message_id in world.holder.shown, f"{message_id} was {told['type']} and never shown"
    for name, node in world.cluster.nodes.items():
        left = [mail.message_id for mail in node.world.disk.mail.values() if mail.message_id.startswith("d")]
        assert not left, f"{left} wait at {name}"
