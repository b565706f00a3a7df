"""Test what comes of letters that lack what was added to them since they were first written (protocol 6.13).

Broker ``b`` is an earlier one here: what it writes, of its sessions too, lacks those members, and it takes no notice of
them in what others write.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.letters import (
    NOTICE,
    NOTIFIED,
    NOTIFY,
    OUTCOME,
    SEND,
    WITHDRAWN,
    NoticeLetter,
    NotifiedLetter,
    NotifyLetter,
    OutcomeLetter,
    SendLetter,
    WithdrawnLetter,
)
from intercom.core.looking import LOOK, LOOKED, LookedLetter, LookLetter
from intercom.core.peer_records import PeerSeen, Post, RemoteName
from intercom.core.step_letters import (
    DISPATCH,
    DISPATCHED,
    INQUIRE,
    OVER,
    REPORT,
    REPORTED,
    DispatchedLetter,
    DispatchLetter,
    InquireLetter,
    OverLetter,
    ReportedLetter,
    ReportLetter,
)
from intercom.core.task_letters import (
    FOLLOW,
    INVOKE,
    INVOKED,
    RECALL,
    RUN,
    FollowLetter,
    InvokedLetter,
    InvokeLetter,
    RecallLetter,
    RunLetter,
)
from intercom.limits import MINUTE_MS, Limits
from intercom.wire import reasons
from tests.core.cluster import Cluster, Node
from tests.core.flows_between import Between
from tests.core.harness import answers, only
from tests.core.invoking import invoke, invoker, run_of, task_worker, update
from tests.core.test_abroad import client, confirm, message_in, sent
from tests.core.test_homes import asker, holder, send

LIMITS = Limits()
NAME = {"target_id": "s", "name": "s", "groups": [], "state": "active", "home": "h"}
RUN_THERE = {"run_id": "r", "state": "queued"}
IDENTITY = {"broker_id": "b", "session_id": "s", "incarnation": "i"}
FIRST: dict[str, tuple[type, dict[str, Any]]] = {
    SEND: (SendLetter, {"message_id": "m", "to": "s", "mark": "k", "attempt": "1", "sender": NAME, "message": {}}),
    OUTCOME: (OutcomeLetter, {"message_id": "m", "mark": "k", "attempt": "1", "result": "failed"}),
    WITHDRAWN: (WithdrawnLetter, {"message_id": "m", "asker": "s"}),
    NOTICE: (NoticeLetter, {"to": "s", "sender": {}, "message": {}, "notice": {}}),
    NOTIFY: (
        NotifyLetter,
        {"request": "q", "to": "s", "group": "g", "owner": NAME, "message": {}, "signature": "00"},
    ),
    NOTIFIED: (NotifiedLetter, {"request": "q", "is_delivered": True}),
    LOOK: (LookLetter, {"look": "l", "message_id": "m", "identity": "i", "wording": "w", "message": {}}),
    LOOKED: (LookedLetter, {"look": "l", "result": "nothing"}),
    INVOKE: (
        InvokeLetter,
        {
            "attempt": 1,
            "invocation_id": "i",
            "to": "s",
            "asked": "s",
            "action": "execute",
            "requester": NAME,
            "fingerprint": "00",
            "run_id": "r",
            "message": {},
        },
    ),
    INVOKED: (InvokedLetter, {"attempt": 1, "verdict": "accepted", "run": RUN_THERE}),
    RUN: (RunLetter, {"after": 0, "seq": 1, "run": RUN_THERE}),
    FOLLOW: (FollowLetter, {"invocation_id": "i", "after": 0}),
    RECALL: (RecallLetter, {"invocation_id": "i", "reason": "r"}),
    DISPATCH: (
        DispatchLetter,
        {
            "dispatch_id": "d",
            "flow_id": "f",
            "step_id": "1",
            "group": "g",
            "identity": IDENTITY,
            "target": "s",
            "message": {},
        },
    ),
    INQUIRE: (InquireLetter, {"dispatch_id": "d"}),
    DISPATCHED: (DispatchedLetter, {"dispatch_id": "d", "state": "stored"}),
    OVER: (OverLetter, {"dispatch_id": "d", "outcome": "completed"}),
    REPORT: (
        ReportLetter,
        {"dispatch_id": "d", "outcome": "completed", "summary": "s", "resources": [], "version": "v", "by": "s"},
    ),
    REPORTED: (ReportedLetter, {"dispatch_id": "d", "version": "v"}),
}
"""The least that each kind of letter has to say."""
LATER: dict[str, tuple[str, ...]] = {
    SEND: ("address", "was_forwarded", "wording"),
    OUTCOME: ("recipient",),
    INVOKE: ("turn",),
    INVOKED: ("turn", "is_elsewhere"),
    LOOKED: ("passed_to",),
}
"""What was added."""
LATER_NAME = ("address", "acts_for", "incarnation", "runtime_session_id")
LATER_RUN = ("reconciled", "is_let_go", "turn")


@pytest.mark.parametrize("kind", FIRST)
def test_a_letter_that_says_the_least_is_read_and_so_is_one_that_says_more_than_is_known(kind: str) -> None:
    """protocol 6.13.17: a member that is not there means what it meant before there was one."""
    letter, least = FIRST[kind]
    found = decode(encode(least), type=letter)
    assert decode(encode({**least, "of a later broker": {"any": 1}}), type=letter) == found
    assert not {*LATER.get(kind, ())} & least.keys()


def without(letter: Any, members: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in letter.items() if name not in members}


def as_first_written(kind: str, body: bytes) -> bytes:
    """Return a letter as a broker writes it, or reads it, that knows nothing of what was added."""
    letter = without(decode(body), LATER.get(kind, ()))
    for member, later in (("sender", LATER_NAME), ("requester", LATER_NAME), ("owner", LATER_NAME), ("run", LATER_RUN)):
        if isinstance(letter.get(member), dict) and kind != NOTICE:
            letter[member] = without(letter[member], later)
    return encode(letter)


class Mixed(Cluster):
    """Join brokers of which ``b`` is an earlier one, as long as it ``is_mixed``."""

    is_mixed = True

    def post(self, node: Node, post: Post) -> None:
        if self.is_mixed and "b" in (node.name, self.node_of(post.peer).name):
            post = replace(post, body=as_first_written(post.kind, post.body), valid_until=None)
        super().post(node, post)

    def _tell(self, node: Node, other: Node) -> None:
        if self.is_mixed and "b" in (node.name, other.name):
            names = tuple(decode(encode(without_later(name)), type=RemoteName) for name in other.names.values())
            node.world.peer_told(PeerSeen(other.broker_id, other.name, None, names, other.world.epoch))
        else:
            super()._tell(node, other)

    def node_of(self, broker_id: str) -> Node:
        return next(node for node in self.nodes.values() if node.broker_id == broker_id)


def without_later(name: RemoteName) -> dict[str, Any]:
    found: dict[str, Any] = decode(encode(name))
    return without(found, LATER_NAME)


@pytest.mark.parametrize(("here", "there"), [("a", "b"), ("b", "a")])
def test_messages_questions_and_answers_cross(here: str, there: str) -> None:
    """6.13.1 to 6.13.3"""
    cluster = Mixed()
    alice, bob = client(cluster, here, "alice"), client(cluster, there, "bob")
    bob.got()
    assert sent(cluster, alice, "bob", "m1", "hello") == [] and bob.texts() == ["hello"]
    confirm(cluster, bob, "m1")
    assert only(answers(alice.got()))["type"] == "delivered"
    alice.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, bob, "q")
    assert only(answers(alice.got()))["type"] == "delivered"
    bob.reply(alice.id, "r", "q", "because")
    cluster.run()
    assert message_in(alice.got())["message"]["content"]["text"] == "because"


@pytest.mark.parametrize(("here", "there"), [("a", "b"), ("b", "a")])
def test_a_message_that_is_valid_for_a_time_is_refused_as_too_late(here: str, there: str) -> None:
    """6.13.2: when its time is over was not said, so nothing is shown after it; without a limit it is brought."""
    cluster = Mixed()
    alice, bob = client(cluster, here, "alice"), client(cluster, there, "bob")
    bob.got()
    [answer] = sent(cluster, alice, "bob", "m1", "hello", extra={"validFor": LIMITS.mail_ttl_ms})
    assert (answer["type"], answer["reason"]) == ("delivery_failed", reasons.TOO_LATE)
    assert bob.texts() == []


@pytest.mark.parametrize(("here", "there"), [("a", "b"), ("b", "a")])
def test_mail_for_an_address_waits_until_the_earlier_broker_is_updated(here: str, there: str) -> None:
    """6.13.7: to a broker that knows no addresses elsewhere it is for nobody; it is brought again and again."""
    cluster = Mixed()
    alice = asker(cluster, here)
    holder(cluster, there).leave()
    cluster.run(2 * LIMITS.announce_ms)
    assert send(cluster, alice, "m1") == "queued"
    cluster.run(LIMITS.peer_outcome_ms)
    bob = holder(cluster, there)
    cluster.run(LIMITS.peer_outcome_ms)
    assert bob.texts() == []
    cluster.is_mixed = False
    cluster.run(LIMITS.peer_outcome_ms)
    assert bob.texts()[:1] == ["m1"]


@pytest.mark.parametrize(("here", "there"), [("a", "b"), ("b", "a")])
def test_a_task_crosses_and_its_end_is_told(here: str, there: str) -> None:
    """6.13.9, 6.13.10: without a turn it is the first one, and a run that is not said to be let go of is there."""
    cluster = Mixed()
    asks, worker = invoker(cluster[here]), task_worker(cluster[there])
    cluster.run(LIMITS.announce_ms)
    invoke(asks)
    cluster.run()
    worker.mail()
    assert run_of(asks)["state"] == "queued"
    update(worker, "completed", output="built")
    cluster.run()
    assert (run_of(asks)["state"], run_of(asks)["output"]) == ("completed", "built")


def test_a_step_of_a_flow_for_a_session_there_fails_the_flow_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """12.11.1: a session of which it is not said what tells it from its next start is handed nothing."""
    monkeypatch.setattr("tests.core.flows_between.Cluster", Mixed)
    play = Between()
    play.begin("one")
    assert "cannot be told from its next start" in str(play.flow())
    play.run(60 * MINUTE_MS)
    assert play.states() == ("failed", ["pending"]) and play.posted(DISPATCH) == 0
