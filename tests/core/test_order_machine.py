"""Let an address hop between brokers under mail of one sender at each, and hold it against the order of each sender.

No broker is killed or cut off: what a sender wrote is shown in its order, wherever the address is, and once confirmed
nowhere again.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import Client, answers
from tests.core.test_abroad import QUEUE, client
from tests.core.test_homes import AWAY, ask_for, claim

RUNS, STEPS = 12, 80
LIMITS = Limits()


class Hopping:
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int, names: str, *, is_slow: bool = False) -> None:
        self.random = random.Random(number)
        self.names = names
        self.cluster = Cluster(names, is_slow=is_slow)
        self.bob = claim(self.cluster, names[0])
        self.where, self.is_here, self.is_registered = names[0], True, True
        self.senders = {name: client(self.cluster, name, f"from-{name}", **QUEUE) for name in names}
        self.cluster.run(LIMITS.announce_ms)
        self.sent = dict.fromkeys(names, 0)
        self.newest = dict.fromkeys(names, 0)
        self.unconfirmed: list[str] = []
        self.confirmed: dict[str, str] = {}
        self.shown: set[str] = set()
        self.told: dict[str, str] = {}

    def send(self, name: str) -> None:
        self.sent[name] += 1
        message_id = f"{name}{self.sent[name]}"
        self.heard(self.senders[name].message("bob", message_id, message_id, extra=AWAY))

    def heard(self, frames: list[dict[str, Any]]) -> None:
        for answer in answers(frames):
            self.told[answer["messageId"]] = answer.get("reason", answer["type"])

    def look(self) -> None:
        if not self.is_here:
            return
        frames, self.bob.first = [*self.bob.first, *self.bob.got()], []
        self.take(frames)

    def take(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            self.is_registered |= frame["type"] == "registered"
            self.is_here &= frame["type"] != "replaced"
            if frame["type"] == "message" and "notice" not in frame:
                self.show(frame["message"]["id"])

    def show(self, message_id: str) -> None:
        assert message_id not in self.confirmed, f"{message_id} at {self.where} after {self.confirmed[message_id]}"
        name, number = message_id[0], int(message_id[1:])
        if message_id not in self.shown:
            assert number > self.newest[name], f"{message_id} at {self.where} after {name}{self.newest[name]}"
            self.newest[name] = number
            self.shown.add(message_id)
        self.unconfirmed.append(message_id)

    def confirm(self, count: int) -> None:
        self.look()
        if not (self.is_registered and self.is_here):
            return
        confirmed, self.unconfirmed = self.unconfirmed[:count], self.unconfirmed[count:]
        for message_id in confirmed:
            self.confirmed[message_id] = self.where
            self.take(self.bob.write("received", messageId=message_id))

    def hop(self, name: str) -> None:
        self.look()
        self.unconfirmed.clear()
        self.is_registered = not self.cluster.is_slow
        self.bob, self.where, self.is_here = self.register(name), name, True

    def register(self, name: str) -> Client:
        """Claim the address, with as little beside that as can be."""
        return ask_for(self.cluster, name) if self.cluster.is_slow else claim(self.cluster, name)

    def step(self) -> None:
        chance, name = self.random, self.random.choice(self.names)
        what = chance.choices(["send", "hop", "leave", "confirm", "run", "part", "wait"], [40, 8, 2, 20, 10, 40, 4])[0]
        if what == "send":
            for _ in range(chance.choice([1, 1, 3, 80])):
                self.send(name)
        elif what == "hop" and (self.is_registered or not self.is_here):
            self.hop(name)
        elif what == "leave":
            self.look()
            self.unconfirmed.clear()
            if self.is_here:
                self.bob.leave()
            self.is_here = False
        elif what == "confirm":
            self.confirm(chance.choice([1, 2, 1000]))
        elif what == "run":
            self.cluster.run()
        elif what == "part":
            node = self.cluster.nodes[name]
            for _ in range(chance.choice([1, 3])):
                if self.cluster.is_slow and chance.random() < 0.3:
                    self.cluster.hear(node)
                elif chance.random() < 0.5:
                    self.cluster._take_work(node)
                else:
                    self.cluster._hand_out(node)
        else:
            self.cluster.run(chance.choice([1, LIMITS.announce_ms]))
        self.look()

    def finish(self) -> None:
        self.hop(self.random.choice(self.names))
        for _ in range(60):
            self.cluster.run(LIMITS.look_ms)
            self.confirm(1000)
            if not self.is_here:  # of two that came at the same time the other one holds it
                self.hop(self.random.choice(self.names))
        for who in self.senders.values():
            self.heard(who.got())
        for message_id, told in self.told.items():
            was_taken = told in ("delivered", "queued")
            assert was_taken == (message_id in self.shown), f"{message_id} was {told}"
        assert len(self.told) == sum(self.sent.values()), "all are answered"
        for node in self.cluster.nodes.values():
            assert not node.world.disk.mail, "something waits"


@pytest.mark.parametrize("number", range(RUNS))
def test_mail_of_one_sender_keeps_its_order_wherever_its_address_goes(number: int) -> None:
    """Protocol 6.13.7: what waits where the address was goes ahead of what its sender writes after the move."""
    play = Hopping(number, "ab")
    for _ in range(STEPS):
        play.step()
    play.finish()


@pytest.mark.parametrize("number", [*range(10), 111, 220])
def test_it_keeps_its_order_where_each_broker_hears_of_the_moves_at_its_time(number: int) -> None:
    """The same, where letters overtake the news of where the address is, and claims take their time."""
    play = Hopping(number, "ab", is_slow=True)
    for _ in range(STEPS):
        play.step()
    play.finish()
