"""Let brokers be killed, cut off and joined at any moment while sessions talk across them, and keep a ledger.

At the end, when all are joined and every sender has sent again what it does not know: each message has one true
outcome, each recipient was shown each message that counts as delivered, and nothing once it had confirmed it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import Client, answers

RUNS, STEPS = 25, 70
FEATURES = {
    "features": ["queue", "session.lifecycle", "push.receipts"],
    "clientProtocolVersion": "1.0",
    "kind": "custom",
}
FINAL = {"delivered", "queued"}


class Person:
    """Be one session that outlives its broker, sends again what it does not know, and confirms what it is shown."""

    def __init__(self, play: Play, name: str, broker: str, **more: Any) -> None:
        self.play, self.name, self.broker, self.more = play, name, broker, more
        self.session_id: str | None = None
        self.owner_token: str | None = None
        self.client: Client
        self.shown: dict[str, int] = {}
        self.unconfirmed: list[str] = []
        self.confirmed: set[str] = set()
        self.sent: dict[str, tuple[str, bool]] = {}
        """What was sent to whom under each id, and whether it may wait."""
        self.told: dict[str, dict[str, Any]] = {}
        """The newest answer to each."""
        self.come()

    def come(self) -> None:
        """Be registered with the broker that is there now."""
        again: dict[str, Any] = {} if self.session_id is None else {"preferredSessionId": self.session_id}
        if self.owner_token is not None:
            again["ownerToken"] = self.owner_token
        self.unconfirmed.clear()  # a receipt is for the process of the broker that wrote the message
        world = self.play.cluster[self.broker]
        self.client = world.register(
            self.name, returnAddress=f"return-{self.name}", acknowledgesReceipt=True, **self.more, **again
        )
        self.session_id = self.client.id
        self.owner_token = self.client.first[0].get("ownerToken")
        self.take(self.client.first)

    def send(self, message_id: str) -> None:
        """Send a message, for the first time or again."""
        to, may_wait = self.sent[message_id]
        extra = {"queueIfAway": True} if may_wait else {}
        self.take(self.client.message(to, message_id, f"text of {message_id}", extra=extra))

    def may_repeat(self, message_id: str) -> bool:
        """Tell whether a repetition says something: older clients are not told again of what has arrived."""
        return "features" in self.more or self.told.get(message_id, {}).get("type") != "delivered"

    def look(self) -> None:
        """Take what has come."""
        self.take(self.client.got())

    def take(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if frame["type"] == "message" and "notice" not in frame:
                message_id = frame["message"]["id"]
                assert message_id not in self.confirmed, f"{self.name} was shown {message_id} after it had confirmed it"
                self.shown[message_id] = self.shown.get(message_id, 0) + 1
                self.unconfirmed.append(message_id)
        for answer in answers(frames):
            message_id = answer["messageId"]
            before = self.told.get(message_id, {}).get("type")
            assert before != "delivered" or answer["type"] == "delivered", (message_id, answer)
            self.told[message_id] = answer

    def confirm(self) -> None:
        """Confirm what was shown."""
        unconfirmed, self.unconfirmed = dict.fromkeys(self.unconfirmed), []
        for message_id in unconfirmed:
            self.confirmed.add(message_id)
            self.take(self.client.write("received", messageId=message_id))


class Play:
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.cluster = Cluster("abc")
        self.people = [
            Person(self, "alice", "a", **FEATURES),
            Person(self, "adam", "a"),
            Person(self, "bob", "b", **FEATURES),
            Person(self, "bea", "b"),
            Person(self, "carl", "c"),
        ]
        self.count = 0
        self.cluster.run(200)

    def step(self) -> None:
        """Let one thing happen."""
        chance = self.random
        who = chance.choice(self.people)
        who.look()
        what = chance.choices(
            ["send", "again", "confirm", "run", "part", "wait", "cut", "join", "crash"],
            [30, 15, 25, 25, 15, 8, 3, 5, 3],
        )[0]
        name = chance.choice("abc")
        if what == "send":
            self.count += 1
            other = chance.choice([each for each in self.people if each is not who])
            who.sent[f"m{self.count}"] = (other.name, chance.random() < 0.5)
            who.send(f"m{self.count}")
        elif what == "again" and (again := [each for each in who.sent if who.may_repeat(each)]):
            who.send(chance.choice(again))
        elif what == "confirm":
            who.confirm()
        elif what == "run":
            self.cluster.run()
        elif what == "part":
            node = self.cluster.nodes[name]
            if chance.random() < 0.5:
                self.cluster._take_work(node)
            else:
                self.cluster._hand_out(node)
        elif what == "wait":
            self.cluster.run(chance.choice([100, 1_000, 8_000]))
        elif what == "cut" and not self.cluster.nodes[name].is_cut:
            self.cluster.cut(name, leases_end=chance.random() < 0.5)
        elif what == "join" and self.cluster.nodes[name].is_cut:
            self.cluster.join(name)
        elif what == "crash":
            for each in self.people:
                if each.broker == name:
                    each.look()
            self.cluster.crash(name)
            for each in self.people:
                if each.broker == name:
                    each.come()

    def heal(self) -> None:
        """Join all, and let everybody send again until everything is known."""
        for name, node in self.cluster.nodes.items():
            if node.is_cut:
                self.cluster.join(name)
        for _ in range(12):
            self.cluster.run(Limits().receipt_wait_ms)
            for each in self.people:
                each.look()
                each.confirm()
            self.cluster.run()
            for each in self.people:
                each.look()
                for message_id in each.sent:
                    if each.told.get(message_id, {}).get("type") != "delivered":
                        each.send(message_id)
            self.cluster.run()

    def check(self) -> None:
        """Hold the ledger against what everybody saw."""
        people = {each.name: each for each in self.people}
        for each in self.people:
            for message_id, (to, _) in each.sent.items():
                assert each.told[message_id]["type"] == "delivered", (message_id, each.told[message_id])
                assert people[to].shown.get(message_id), f"{message_id} was told as delivered and never shown"
        for node in self.cluster.nodes.values():
            assert not node.world.disk.mail, "something waits still"
            assert not node.handed_out and not node.queue, "something is not settled"


@pytest.mark.parametrize("number", range(RUNS))
def test_whatever_fails_every_message_has_one_true_outcome(number: int) -> None:
    """Partitions and crashes between brokers cost nothing, and nothing comes twice."""
    play = Play(number)
    for _ in range(STEPS):
        play.step()
    play.heal()
    play.check()
