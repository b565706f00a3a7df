"""Test that the owner of a workflow run reaches the sender of a message on another machine (protocol 4.17, 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.core.letters import NOTIFIED, NOTIFY, NotifiedLetter, NotifyLetter
from intercom.core.records import Arrived, Post, RemoteName, Settle
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import answers, only, reason
from tests.core.runs import group_of, owned, stage
from tests.core.test_notifications import NOBODY, notify, original, reply, told

LIMITS = Limits()
REFUSED, LATE = reasons.NOTIFICATION_REFUSED, reasons.NOTIFICATION_UNACKNOWLEDGED


class Scene:
    """Hold the owner of a run at ``b``, and the sender of a message to it at ``a``."""

    def __init__(self, **more: Any) -> None:
        self.cluster = Cluster("abc")
        self.owner = owned(self.cluster["b"], stages=[stage()])
        self.sender = original(self.cluster["a"], **more)
        self.run(LIMITS.peer_return_ms)
        self.owner.got(), self.sender.got()

    def run(self, ms: int = 0) -> None:
        self.cluster.run(ms)

    def notify(self, to: str = "", message_id: str = "n", text: str = "done", **more: Any) -> list[dict[str, Any]]:
        frames = notify(self.owner, to or self.sender.id, message_id, text, **more)
        self.run()
        return answers([*frames, *self.owner.got()])

    def heard(self) -> list[dict[str, Any]]:
        """Return what the owner was answered."""
        self.run()
        return answers(self.owner.got())

    def posted(self, kind: str) -> list[Post]:
        return [post for post in self.cluster.posts if post.kind == kind]


@pytest.mark.parametrize(
    "found_by",
    [{}, {"to": NOBODY, "senderReturnAddress": "ret-sender"}, {"to": NOBODY, "senderRegistrationName": " Sender "}],
)
def test_it_is_delivered_once_its_recipient_elsewhere_took_it(found_by: dict[str, str]) -> None:
    """4.17, 4.18: found by its id, its return address or its name; again under its id it is `delivered`, once shown."""
    scene = Scene()
    assert scene.notify(**found_by) == []
    frame = told(scene.sender)
    assert (frame["from"]["id"], frame["from"]["node"]) == (scene.owner.id, "b")
    assert frame["message"] == {"id": "n", "timestamp": 5, "content": {"text": "done"}}
    reply(scene.sender, frame)
    assert only(scene.heard()) == {"type": "delivered", "messageId": "n", "attemptId": f"{scene.owner.conn}.1"}
    assert only(scene.notify(**found_by))["type"] == "delivered" and scene.sender.got() == []
    assert only(scene.notify(text="other", **found_by))["reasonCode"] == "message_id_conflict"
    assert len(scene.posted(NOTIFY)) == 1
    assert not [each for node in scene.cluster.nodes.values() for each in node.handed_out.values()]


def test_one_here_comes_before_one_elsewhere() -> None:
    """cluster.md 3.1"""
    scene = Scene()
    near = original(scene.cluster["b"])
    scene.run(LIMITS.announce_ms)
    scene.notify(NOBODY, senderReturnAddress="ret-sender")
    reply(near, told(near))
    assert only(scene.heard())["type"] == "delivered" and scene.posted(NOTIFY) == []


def test_of_several_elsewhere_none_is_meant() -> None:
    """4.17.4: the only one"""
    scene = Scene()
    original(scene.cluster["c"])
    scene.run(LIMITS.announce_ms)
    assert reason(scene.notify(NOBODY, senderReturnAddress="ret-sender")) == reasons.SESSION_NOT_FOUND


@pytest.mark.parametrize("members", [{"info": {"group": "elsewhere"}}, {"info": {"recipientPurpose": "control"}}])
def test_who_may_not_be_told_is_not_found(members: dict[str, Any]) -> None:
    """4.17.5: a member of the run's group, at home in it, and no control session"""
    scene = Scene(**members)
    assert reason(scene.notify()) == reasons.SESSION_NOT_FOUND


@pytest.mark.parametrize(
    ("how", "expected"),
    [("refuses", REFUSED), ("leaves", reasons.NOTIFICATION_RECIPIENT_LEFT), ("is silent", LATE), ("is cut off", LATE)],
)
def test_one_that_does_not_take_it_is_said_and_it_may_be_sent_again(how: str, expected: str) -> None:
    """4.17.7, 4.17.8, 4.18, 6.15.6: what its own broker says of it, or the time limit"""
    scene = Scene()
    if how == "is cut off":
        scene.cluster.cut("a", leases_end=False)
    assert scene.notify() == []
    if how == "refuses":
        reply(scene.sender, told(scene.sender), delivered=False)
    elif how == "leaves":
        scene.sender.leave()
    else:
        scene.run(LIMITS.notification_answer_ms)
    assert reason(scene.heard()) == expected
    if how == "leaves":
        scene.sender = original(scene.cluster["a"])
        scene.run(2 * LIMITS.announce_ms)
    elif how == "is cut off":
        scene.cluster.join("a")
        reply(scene.sender, told(scene.sender))
        scene.run()
    scene.sender.got()
    again = scene.notify()
    if how != "is cut off":
        assert again == []
        reply(scene.sender, told(scene.sender))
        again = scene.heard()
    assert only(again)["type"] == "delivered" and scene.sender.got() == []


def test_one_that_comes_twice_is_shown_once() -> None:
    """6.13.5: the engine hands out again what was not settled; a broker that began anew knows its row."""
    scene = Scene()
    scene.notify()
    frame = told(scene.sender)
    node = scene.cluster.nodes["a"]
    [kept] = node.handed_out.values()
    node.world.peer_told(Arrived(90, kept.by, kept.kind, kept.delivery_id, kept.body))
    assert scene.sender.got() == []
    reply(scene.sender, frame)
    assert only(scene.heard())["type"] == "delivered"
    node.world.peer_told(Arrived(91, kept.by, kept.kind, kept.delivery_id, kept.body))
    scene.run()
    assert scene.sender.got() == [] and scene.heard() == []
    assert [post.settles for post in scene.posted(NOTIFIED)] == [90, 91]


def test_what_another_broker_says_or_nobody_can_read_counts_as_nothing() -> None:
    """6.13: only the broker of the recipient can say what became of it; a broken peer costs nobody anything."""
    scene = Scene()
    scene.notify()
    request = NotifiedLetter("no such", is_delivered=True)
    [letter] = scene.posted(NOTIFY)
    forged = NotifiedLetter(letter.delivery_id.partition(" ")[2], is_delivered=True)
    world = scene.cluster["b"]
    world.peer_told(Arrived(90, IDS["c"], NOTIFIED, "x", encode(forged)))
    world.peer_told(Arrived(91, IDS["a"], NOTIFIED, "x", encode(request)))
    world.peer_told(Arrived(92, IDS["a"], NOTIFIED, "x", b"{"))
    owner = RemoteName("x", "host", (), "active", IDS["c"], session=b"{}")
    for number, message in enumerate(({"id": "n"}, {"id": "n", "timestamp": 1, "content": {"text": "x"}})):
        bad = NotifyLetter("r", "x", group_of(), owner, Raw(encode(message)), "")
        world.peer_told(Arrived(93 + number, IDS["a"], NOTIFY, "x", encode(bad)))
    near = original(scene.cluster["b"], "near")
    notify(scene.owner, near.id, "local")
    here = NotifiedLetter(told(near)["requestId"], is_delivered=True)
    world.peer_told(Arrived(95, IDS["a"], NOTIFIED, "x", encode(here)))
    assert [work.arrival for work in world.peer_work if isinstance(work, Settle)] == [90, 91, 92, 93, 94, 95]
    assert answers(scene.owner.got()) == []


def test_an_acceptance_that_is_lost_again_does_not_reach_the_owner() -> None:
    """6.9: what was said rests on the commit; the owner hears at the end of its time that it is not known."""
    scene = Scene()
    scene.notify()
    frame = told(scene.sender)
    world = scene.cluster["a"]
    world.auto = False
    reply(scene.sender, frame)
    world.fail_commit()
    world.auto = True
    scene.run(LIMITS.notification_answer_ms)
    assert reason(scene.heard()) == LATE


def test_what_its_recipient_took_after_the_owner_had_gone_is_delivered_to_the_next_one() -> None:
    """6.15.6: the owner that left is told nothing; the row at the recipient's broker knows the copy."""
    scene = Scene()
    scene.notify()
    frame = told(scene.sender)
    scene.owner.leave()
    scene.run(LIMITS.announce_ms)
    reply(scene.sender, frame)
    scene.run()
    scene.owner = owned(scene.cluster["b"], stages=[stage()])
    scene.run(LIMITS.announce_ms)
    assert only(scene.notify())["type"] == "delivered" and scene.sender.got() == []


def test_what_its_broker_cannot_record_is_not_shown() -> None:
    """4.17.6, 6.9: reserved before it is written; the owner hears that it may be sent again."""
    scene = Scene()
    world = scene.cluster["a"]
    world.auto = False
    scene.notify()
    world.fail_commit()
    world.auto = True
    assert reason(scene.heard()) == reasons.NOT_RECORDED and scene.sender.got() == []
    assert scene.notify() == []
    reply(scene.sender, told(scene.sender))
    assert only(scene.heard())["type"] == "delivered"


def test_one_that_has_left_and_is_still_seen_is_not_found_by_its_broker() -> None:
    """4.17.5: its own broker is the authority over it; that it has gone is told a moment later."""
    scene = Scene()
    scene.sender.leave()
    assert reason(scene.notify()) == reasons.SESSION_NOT_FOUND
    assert len(scene.posted(NOTIFY)) == 1 == len(scene.posted(NOTIFIED))
