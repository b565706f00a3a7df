"""Let an address roam between brokers that are killed, cut off and joined at any moment, and keep a ledger.

At the end, when all are joined, every sender has sent again what it does not know and the holder has settled down: it
was shown everything that was delivered or queued, nothing that it had confirmed, wherever that was, and nothing waits.
"""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import Client
from tests.core.test_abroad_machine import FEATURES, FINAL, Person, Play
from tests.core.test_homes import claim

RUNS, STEPS = 15, 60
LONG, LONG_STEPS = (1000, 1010, 1020, 1085, 1271, 1499, 2031, 5028, 9149, 9203, 9474, 20034, 20293, 30278, 400030), 300


class Holder:
    """Be whoever holds the address, wherever that is."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client: Client | None = None
        self.broker = ""
        self.shown: set[str] = set()
        self.confirmed: dict[str, str] = {}
        """Where each message was confirmed."""
        self.unconfirmed: list[str] = []

    def settle(self, broker: str) -> None:
        """Register at a broker; the session before, if it is still there, is replaced."""
        self.look()
        self.unconfirmed.clear()
        self.client, self.broker = claim(self.cluster, broker, "depot"), broker
        self.take(self.client.first)

    def leave(self) -> None:
        if self.client is not None:
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
            if frame["type"] == "message" and "notice" not in frame:
                message_id = frame["message"]["id"]
                where = self.confirmed.get(message_id)
                assert where is None, f"{message_id} at {self.broker} after it was confirmed at {where}"
                self.shown.add(message_id)
                self.unconfirmed.append(message_id)
            elif frame["type"] in ("replaced", "registration_failed"):
                self.client = None

    def confirm(self) -> None:
        self.look()
        unconfirmed, self.unconfirmed = dict.fromkeys(self.unconfirmed), []
        for message_id in unconfirmed if self.client is not None else ():
            assert self.client is not None
            self.confirmed[message_id] = self.broker
            self.take(self.client.write("received", messageId=message_id))


class Roaming(Play):
    """Hold one run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.holder = Holder(self.cluster)
        self.people = [Person(self, f"from-{name}", name, **FEATURES) for name in "abc"]
        self.holder.settle(self.random.choice("abc"))
        self.cluster.run(200)

    def step(self) -> None:
        chance, holder = self.random, self.holder
        what = chance.choices(["else", "send", "settle", "leave", "confirm"], [50, 25, 8, 6, 15])[0]
        name = chance.choice("abc")
        if what == "send":
            who = chance.choice(self.people)
            who.look()
            self.count += 1
            who.sent[f"d{self.count}"] = ("depot", True)
            who.send(f"d{self.count}")
        elif what == "settle":
            holder.settle(name)
        elif what == "leave":
            holder.leave()
        elif what == "confirm":
            holder.confirm()
        else:
            super().step()

    def finish(self) -> None:
        """Join all, let the holder settle down, and send again what is not known."""
        cluster, holder = self.cluster, self.holder
        for name, node in cluster.nodes.items():
            if node.is_cut:
                cluster.join(name)
        cluster.run(Limits().claim_ms)
        holder.settle(self.random.choice("abc"))
        assert holder.client is not None, "it shows the token"
        for _ in range(4):
            cluster.run(Limits().peer_outcome_ms)
            holder.confirm()
            for who in self.people:
                who.look()
                who.confirm()
            cluster.run()
            for who in self.people:
                who.look()
                for message_id in who.sent:
                    if who.told.get(message_id, {}).get("type") not in FINAL:
                        who.send(message_id)
            cluster.run()
            holder.confirm()


@pytest.mark.parametrize("number", range(RUNS))
def test_whatever_fails_mail_finds_its_address_wherever_that_is(number: int) -> None:
    """Partitions, crashes and moves cost nothing: everything that was taken is shown to the holder."""
    roam(number, STEPS)


@pytest.mark.parametrize("number", LONG)
def test_long_worlds_that_went_wrong_once(number: int) -> None:
    """The same, for longer: retries while the address is somewhere else each time, and letters that overtake news."""
    roam(number, LONG_STEPS)


def roam(number: int, steps: int) -> None:
    """Let so much happen, and hold the ledger."""
    play = Roaming(number)
    for _ in range(steps):
        play.step()
    play.finish()
    check(play)


def check(play: Roaming) -> None:
    for who in play.people:
        who.look()
        for message_id, (to, _) in who.sent.items():
            told = who.told.get(message_id, {})
            assert told.get("type") in FINAL, f"{message_id} to {to}: {told}"
            if to == "depot":
                assert message_id in play.holder.shown, f"{message_id} was {told['type']} and never shown"
    for name, node in play.cluster.nodes.items():
        left = [mail.message_id for mail in node.world.disk.mail.values() if mail.message_id.startswith("d")]
        assert not left, f"{left} wait at {name}"
        assert not node.world.disk.outbox, f"something is on its way at {name}"
    assert len(play.cluster.addresses) == 1
