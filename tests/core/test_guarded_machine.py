"""Let brokers be killed and cut off while sessions shut each other out, and strangers write into the engine.

Who is shut out hears so from the broker of the recipient, and nothing of what was refused is shown, whatever becomes of
letters; what cannot be read, or names what nobody has, costs nobody anything.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode

from intercom.core.letters import NOTICE, OUTCOME, SEND, WITHDRAWN
from intercom.core.looking import LOOK, LOOKED
from intercom.core.task_letters import FOLLOW, INVOKE, INVOKED, RECALL, RUN
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster, Kept
from tests.core.test_abroad_machine import FEATURES, Person, Play
from tests.core.test_policies import policy

RUNS, STEPS = 15, 70
GUARDED: dict[str, Any] = {**FEATURES, "features": [*FEATURES["features"], "policy"]}
KINDS = (SEND, OUTCOME, WITHDRAWN, NOTICE, LOOK, LOOKED, INVOKE, INVOKED, RUN, FOLLOW, RECALL, "unheard-of")
JUNK = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'{"message_id":7}',
    b"\xff\xfe",
    encode({"attempt": "x", "message_id": "m1"}),
)


class Guest(Person):
    """Be one session that may shut others out."""

    def __init__(self, play: Play, name: str, broker: str, **more: Any) -> None:
        self.refused: dict[str, str] = {}
        """What was refused at once, and is not sent again, and for whom it was."""
        super().__init__(play, name, broker, **more)

    def let_in(self, *rules: str) -> None:
        self.take(self.client.write("policy_set", requestId="p", policy=policy(*rules)))

    def take(self, frames: list[dict[str, Any]]) -> None:
        before = {message_id: answer["type"] for message_id, answer in self.told.items()}
        super().take(frames)
        for message_id, answer in self.told.items():
            is_refusal = reasons.code_of(str(answer.get("reason", ""))) == "refused_by_policy"
            if is_refusal and message_id not in before:
                self.refused[message_id] = self.sent.pop(message_id)[0]


class Guarded(Play):
    """Hold one run; ``number`` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.cluster = Cluster("abc")
        crash = self.cluster.crash

        def crash_and_forget(name: str) -> None:
            crash(name)
            self.crashed(name)

        self.cluster.crash = crash_and_forget  # type: ignore[method-assign, assignment]
        places = [("alice", "a"), ("bob", "b"), ("bea", "b"), ("carl", "c")]
        self.people = [Guest(self, name, broker, **GUARDED) for name, broker in places]
        self.cluster.run(200)

    def step(self) -> None:
        chance = self.random
        what = chance.choices(["else", "shut", "open", "junk", "copy"], [60, 4, 4, 6, 3])[0]
        who = chance.choice(self.people)
        assert isinstance(who, Guest)
        node = self.cluster.nodes[chance.choice("abc")]
        if what == "shut":
            other = chance.choice([each for each in self.people if each is not who])
            who.let_in(*chance.choice([("refuse",), (f"refuse:from={other.name}", "accept")]))
        elif what == "open":
            who.let_in("accept")
        elif what == "junk":
            by = IDS[chance.choice("abc")] if chance.random() < 0.7 else "somebody-unheard-of"
            node.queue.append(Kept(by, chance.choice(KINDS), "d", chance.choice(JUNK)))
        elif what == "copy":
            self.cluster.give_again(node.name, chance.randrange(20))
        else:
            super().step()

    def crashed(self, name: str) -> None:
        """Take notice that a process has ended, which alone knew what it had refused."""
        gone = {each.name for each in self.people if each.broker == name}
        for who in self.people:
            assert isinstance(who, Guest)
            who.refused = {message_id: to for message_id, to in who.refused.items() if to not in gone}

    def heal(self) -> None:
        for who in self.people:
            assert isinstance(who, Guest)
            who.look()
            who.let_in("accept")
        super().heal()

    def check(self) -> None:
        for node in self.cluster.nodes.values():  # what was given up is told in mail that nobody here reads
            notices = [mail for mail in node.world.disk.mail.values() if mail.notice is not None]
            for mail in notices:
                del node.world.disk.mail[mail.number]
        super().check()
        for who in self.people:
            assert isinstance(who, Guest)
            for message_id in who.refused:
                for each in self.people:
                    assert message_id not in each.shown, f"{message_id} was refused, and shown to {each.name}"


@pytest.mark.parametrize("number", range(RUNS))
def test_nobody_is_shown_what_was_refused_and_junk_costs_nothing(number: int) -> None:
    """Protocol 15.2, 6.13.2: the broker of the recipient judges, and bad letters are let go of."""
    roam(number, STEPS)


def roam(number: int, steps: int) -> None:
    """Let so much happen, and hold the ledger."""
    play = Guarded(number)
    for _ in range(steps):
        play.step()
    play.heal()
    play.check()
