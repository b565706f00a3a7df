"""Test the look for an earlier acceptance at other brokers, of a message for one who has moved (protocol D13, 6.13)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode

from intercom.core.letters import OUTCOME, SEND, OutcomeLetter, SendLetter
from intercom.core.looking import LOOK, LOOKED, LookedLetter, LookLetter
from intercom.core.peer_records import TargetHeld
from intercom.core.records import Arrived, Post, RemoteName, Settle
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster, Node
from tests.core.harness import Client, answers, only, reason
from tests.core.test_abroad import QUEUE, client, confirm
from tests.core.test_homes import holder
from tests.core.test_supervision import CHILD, TOKEN, capability_of, claim

LIMITS = Limits()


class Scene:
    """Hold alice at ``a`` and bob at ``b``, each with a return address, and a third broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.cluster = Cluster("abc", **more)
        self.lost: set[str] = set()
        """Kinds of letters that the engine loses."""
        self.dropped: list[Post] = []
        """Those it has lost."""
        posted = self.cluster.post
        monkeypatch.setattr(self.cluster, "post", lambda node, post: self._post(posted, node, post))
        self.alice = client(self.cluster, "a", "alice")
        self.bob = client(self.cluster, "b", "bob")
        self.cluster.run(LIMITS.peer_return_ms)

    def _post(self, posted: Any, node: Node, post: Any) -> None:
        if post.kind in self.lost:
            self.dropped.append(post)
        else:
            posted(node, post)

    def moves(self, who: Client, name: str, to: str) -> Client:
        """Let somebody leave, and come at another broker."""
        who.leave()
        self.cluster.run(2 * LIMITS.announce_ms)
        return client(self.cluster, to, name)

    def send(self, who: Client, message_id: str, text: str = "x", to: str = "bob") -> list[dict[str, Any]]:
        frames = who.message(to, message_id, text)
        self.cluster.run()
        return answers([*frames, *who.got()])

    def looks(self) -> int:
        return sum(post.kind == LOOK for post in self.cluster.posts)

    def shown(self) -> list[str]:
        self.cluster.run()
        return [frame["message"]["id"] for frame in self.bob.got() if frame["type"] == "message"]


def test_what_arrived_before_its_target_moved_is_found_where_it_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: its outcome was lost, and bob is at a third broker by now."""
    scene = Scene(monkeypatch)
    scene.lost = {OUTCOME}
    assert scene.send(scene.alice, "m1") == []
    confirm(scene.cluster, scene.bob, "m1")
    scene.cluster.run(LIMITS.receipt_wait_ms)
    assert reason(scene.alice.got()) == reasons.RECEIPT_MISSING
    scene.lost = set()
    scene.bob = scene.moves(scene.bob, "bob", "c")
    assert only(scene.send(scene.alice, "m1"))["type"] == "delivered"
    assert scene.looks() == 1 and scene.shown() == []
    assert only(scene.send(scene.alice, "m1"))["type"] == "delivered" and scene.looks() == 1
    assert scene.cluster["a"].disk.outbox == {}, "nothing is on its way any more"


def test_what_arrived_nowhere_goes_where_its_target_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, then D15: nowhere else is it, and so it is sent, once."""
    scene = Scene(monkeypatch)
    scene.lost = {SEND}
    assert scene.send(scene.alice, "m1") == []
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.lost = set()
    assert scene.send(scene.alice, "m1") == []
    assert scene.shown() == ["m1"]
    assert scene.looks() == 2, "the broker that has bob now is the authority, and looks itself"
    confirm(scene.cluster, scene.bob, "m1")
    assert only(answers(scene.alice.got()))["type"] == "delivered"


@pytest.mark.parametrize("lost", [OUTCOME, SEND])
def test_what_an_earlier_process_sent_is_looked_for_by_the_next_one(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """D13: nobody waits for it here any more; its row says to whom it went."""
    scene = Scene(monkeypatch)
    scene.lost = {lost}
    assert scene.send(scene.alice, "m1") == []
    if lost == OUTCOME:
        confirm(scene.cluster, scene.bob, "m1")
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.cluster.crash("a")
    scene.alice = client(scene.cluster, "a", "alice", preferredSessionId=scene.alice.id)
    scene.lost = set()
    told = scene.send(scene.alice, "m1")
    if lost == SEND:
        assert told == [] and scene.shown() == ["m1"]
        confirm(scene.cluster, scene.bob, "m1")
        told = answers(scene.alice.got())
    assert only(told)["type"] == "delivered" and scene.shown() == []


def test_what_is_uncertain_elsewhere_stays_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: that broker wrote it to bob, who went before he confirmed it; whether he has it only he knows."""
    scene = Scene(monkeypatch)
    assert scene.send(scene.alice, "m1") == [] and scene.shown() == ["m1"]
    scene.bob = scene.moves(scene.bob, "bob", "c")
    assert reason(scene.send(scene.alice, "m1")) == reasons.UNCERTAIN_ELSEWHERE and scene.looks() == 1


def moved(scene: Scene) -> None:
    """Let alice have sent, and both be at the third broker then."""
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.alice = scene.moves(scene.alice, "alice", "c")


def test_a_target_on_this_machine_is_looked_for_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """P 6.13, local target present: also where its sender has moved, so that no row is here; another text conflicts."""
    scene = Scene(monkeypatch)
    moved(scene)
    assert only(scene.send(scene.alice, "m1"))["type"] == "delivered" and scene.shown() == []
    assert only(scene.send(scene.alice, "m1", "another"))["reasonCode"] == "message_id_conflict"
    assert scene.send(scene.alice, "m2") == [] and scene.shown() == ["m2"]
    confirm(scene.cluster, scene.bob, "m2")
    assert only(answers(scene.alice.got()))["type"] == "delivered"
    assert scene.looks() == 3
    scene.cluster.run(LIMITS.operation_ttl_ms)
    assert scene.send(scene.alice, "m3") == [] and scene.shown() == ["m3"] and scene.looks() == 3


def test_a_message_that_comes_from_a_third_broker_is_looked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: accepted where both were; the target's new broker asks there, by what the sender had called it."""
    scene = Scene(monkeypatch)
    carol = client(scene.cluster, "b", "carol")
    carol.message("bob", "m1", "x")
    scene.bob.write("received", messageId="m1")
    scene.bob = scene.moves(scene.bob, "bob", "c")
    carol = scene.moves(carol, "carol", "a")
    assert only(scene.send(carol, "m1"))["type"] == "delivered" and scene.shown() == []


def test_an_address_is_looked_for_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """cluster.md 2, targets: the address is the target, whoever holds it."""
    scene = Scene(monkeypatch)
    depot = holder(scene.cluster, "b", "depot")
    scene.send(scene.alice, "m1", to="depot")
    confirm(scene.cluster, depot, "m1")
    there = holder(scene.cluster, "c", "depot")
    scene.alice = scene.moves(scene.alice, "alice", "c")
    assert only(scene.send(scene.alice, "m1", to="depot"))["type"] == "delivered"
    assert [frame for frame in there.got() if frame["type"] == "message"] == []


def test_nobody_waits_longer_than_the_bound_nor_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """cluster.md 2 and 3: 2 s; local delivery never waits for an engine that cannot be reached."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.cluster.cut("b", leases_end=False)
    assert scene.send(scene.alice, "m1") == [] and scene.shown() == []
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == ["m1"], "it is decided as if there was nobody else"
    scene.cluster.end_leases("b")
    scene.alice.message("bob", "m2", "x")
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m2"]
    scene.cluster.cut("c", leases_end=False)
    scene.alice.message("bob", "m3", "x")
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m3"]


@pytest.mark.parametrize("is_engine_lost", [True, False])
def test_what_waits_is_let_go_once_nobody_who_was_asked_can_be_heard(
    monkeypatch: pytest.MonkeyPatch, is_engine_lost: bool
) -> None:
    """cluster.md 3: local delivery waits for no engine that is lost, and for no broker that is; in its order."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.lost = {LOOK}
    scene.send(scene.alice, "m1"), scene.send(scene.alice, "m2")
    assert scene.shown() == []
    if is_engine_lost:
        scene.cluster.cut("c", leases_end=False)
    else:
        scene.cluster.end_leases("a")
        assert scene.shown() == [], "another one went, which was not asked"
        scene.cluster.end_leases("b")
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m1", "m2"]
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == []


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_one_that_has_gone_is_not_waited_for_once_the_others_have_answered(
    monkeypatch: pytest.MonkeyPatch, is_lost_first: bool
) -> None:
    """cluster.md 3: two held the target before; of one that went nothing is heard any more."""
    scene = Scene(monkeypatch)
    for place in "acb":
        scene.bob = scene.moves(scene.bob, "bob", place)
    scene.alice = scene.moves(scene.alice, "alice", "b")
    scene.lost = {LOOKED}
    assert scene.send(scene.alice, "m1") == [] and scene.looks() == 2
    answered = {each.peer: each for each in scene.dropped}
    assert len(scene.dropped) == 2 and answered.keys() == {IDS["b"]}
    letter = next(decode(each.body, type=LookedLetter) for each in scene.dropped)
    said = Arrived(99, IDS["c"], LOOKED, "x", encode(letter))
    if is_lost_first:
        scene.cluster.end_leases("a")
        assert scene.shown() == [], "the other one can answer"
        scene.cluster["b"].peer_told(said)
    else:
        scene.cluster["b"].peer_told(said)
        assert scene.shown() == [], "the other one can answer"
        scene.cluster.end_leases("a")
    assert scene.shown() == ["m1"]


@pytest.mark.parametrize("spare_ms", [-1, 0, 1])
def test_the_time_that_a_message_is_looked_for_counts_for_how_long_it_is_valid(
    monkeypatch: pytest.MonkeyPatch, spare_ms: int
) -> None:
    """protocol 9.5.5: it counts from the send."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.lost = {LOOK}
    scene.alice.message("bob", "m1", "x", extra={"validFor": LIMITS.look_ms + spare_ms})
    scene.cluster.run(LIMITS.look_ms)
    told = [frame["reason"] for frame in scene.alice.got() if frame["type"] == "delivery_failed"]
    assert (scene.shown(), told) == ((["m1"], []) if spare_ms > 0 else ([], [reasons.TOO_LATE]))


def test_a_retry_takes_the_place_of_what_is_looked_for_and_who_has_left_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """6.9: one answer, for the newest attempt; a sender that has gone has nothing delivered."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.lost = {LOOK}
    scene.alice.message("bob", "m1", "x")
    scene.alice.message("bob", "m1", "x")
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    assert only(answers(scene.alice.got()))["attemptId"].endswith(".2")
    scene.alice.message("bob", "m2", "x")
    scene.alice.leave()
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == []


FEW = Limits(looks_per_session=2, look_bytes_per_session=5_000, looks=3, look_bytes=8_000)


def waiting(who: Client, message_id: str, size: int = 1, to: str = "bob") -> bool:
    """Send a message of this size; tell whether it waits, and was not refused for want of room."""
    told = answers(who.message(to, message_id, "x" * size))
    if told:
        assert only(told)["reason"].startswith(f"{reasons.CAPACITY}: too many messages")
    return not told


@pytest.mark.parametrize(("size", "room"), [(1, 2), (2_000, 2), (3_000, 1), (6_000, 0)])
def test_what_waits_is_charged_to_whoever_sent_it(monkeypatch: pytest.MonkeyPatch, size: int, room: int) -> None:
    """Design 4, charge before you link: by number and by weight; whoever sends too much is refused, nobody else is."""
    scene = Scene(monkeypatch, limits=FEW)
    moved(scene)
    other = client(scene.cluster, "c", "other")
    scene.lost = {LOOK}
    assert [waiting(scene.alice, f"m{n}", size) for n in range(2, 5)] == [n < room for n in range(3)]
    assert waiting(scene.alice, "m2", size) is (room > 0), "a retry takes the place of what waits"
    assert waiting(other, "o1")
    scene.cluster.run(LIMITS.look_ms)
    assert sorted(scene.shown()) == [*(f"m{n}" for n in range(2, 2 + room)), "o1"]
    assert waiting(scene.alice, "m9"), "what was decided is charged to nobody any more"


@pytest.mark.parametrize("size", [1, 2_700])
def test_all_that_wait_are_bounded_too(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Design 4: by number and by weight; a sender that leaves takes with it what it wanted to send."""
    scene = Scene(monkeypatch, limits=FEW)
    moved(scene)
    senders = [client(scene.cluster, "c", f"s{n}") for n in range(4)]
    scene.lost = {LOOK}
    room = 3 if size == 1 else 2
    assert [waiting(who, f"m-{who.id}", size) for who in senders] == [n < room for n in range(4)]
    senders[0].leave()
    assert waiting(senders[3], "again", size)
    scene.cluster.run(LIMITS.look_ms)
    assert len(scene.shown()) == room and waiting(senders[1], "later", size)


@pytest.mark.parametrize("is_there_still", [True, False])
def test_what_another_broker_brought_is_charged_and_decided(
    monkeypatch: pytest.MonkeyPatch, is_there_still: bool
) -> None:
    """Rule 1 of abroad: also where its sender has gone meanwhile, so that it has an outcome."""
    scene = Scene(monkeypatch, limits=FEW)
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.lost = {LOOK}
    told = [scene.send(scene.alice, f"m{n}") for n in range(3)]
    assert told[:2] == [[], []]
    assert only(told[2])["reason"].startswith(f"{reasons.CAPACITY}: too many messages of this sender")
    if not is_there_still:
        scene.alice.leave()
        scene.cluster.run(3 * LIMITS.announce_ms)
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == ["m0", "m1"]
    confirm(scene.cluster, scene.bob, "m0")
    confirm(scene.cluster, scene.bob, "m1")
    assert not [kept for node in scene.cluster.nodes.values() for kept in node.handed_out.values()]


def test_what_was_refused_when_it_was_brought_again_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2 of abroad: its target left while it was looked for; the newest attempt is answered, no other one."""
    scene = Scene(monkeypatch)
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.lost = {LOOK}
    assert scene.send(scene.alice, "m1") == []
    assert [post.kind for post in scene.dropped] == [LOOK]
    scene.bob.leave()
    assert reason(scene.send(scene.alice, "m1")) == reasons.SESSION_NOT_FOUND, "of whom it is not heard yet who left"
    said = len(scene.cluster.posts)
    scene.bob = client(scene.cluster, "c", "bob")
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == [] and answers(scene.alice.got()) == []
    assert [post.kind for post in scene.cluster.posts[said:]] == []
    assert not scene.cluster.nodes["c"].handed_out and not scene.cluster["a"].disk.operations


def test_an_ask_is_asked_where_its_target_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.9.5: whoever confirms receipts and has it ignores the copy, and answers where it is."""
    scene = Scene(monkeypatch)
    scene.alice.ask("bob", "q", "why?")
    scene.cluster.run()
    confirm(scene.cluster, scene.bob, "q")
    scene.bob = scene.moves(scene.bob, "bob", "c")
    scene.alice = scene.moves(scene.alice, "alice", "c")
    scene.alice.ask("bob", "q", "why?")
    scene.cluster.run()
    assert scene.shown() == ["q"]
    confirm(scene.cluster, scene.bob, "q")
    scene.bob.reply(scene.alice.id, "r", "q", "because")
    scene.cluster.run()
    assert [frame["message"]["replyTo"] for frame in scene.alice.got() if frame["type"] == "message"] == ["q"]


def test_what_waits_as_mail_where_its_target_was_is_said_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, queued: it is there, and comes when its target is there again."""
    scene = Scene(monkeypatch)
    scene.bob.leave()
    bob = client(scene.cluster, "b", "bob", **QUEUE)
    scene.alice.leave()
    alice = client(scene.cluster, "a", "alice", **QUEUE)
    alice.message("bob", "m1", "x", extra={"queueIfAway": True})
    scene.cluster.run()
    bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.bob = client(scene.cluster, "c", "bob", **QUEUE)
    alice = client(scene.cluster, "c", "alice", **QUEUE)
    assert only(scene.send(alice, "m1"))["type"] == "queued" and scene.shown() == []


def test_a_sender_without_a_return_address_is_known_by_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.9.1: ids of sessions are each broker's own, and told with it; a third broker tells whose session it is."""
    scene = Scene(monkeypatch)
    scene.alice.leave()
    scene.alice = scene.cluster["a"].register("plain", acknowledgesReceipt=True)
    scene.lost = {OUTCOME}
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.lost = {SEND}
    scene.send(scene.alice, "m2")
    scene.lost = set()
    scene.bob = scene.moves(scene.bob, "bob", "c")
    assert only(scene.send(scene.alice, "m1"))["type"] == "delivered" and scene.shown() == []
    assert scene.send(scene.alice, "m2") == [] and scene.shown() == ["m2"]


def test_what_has_come_and_is_not_decided_is_uncertain_and_what_cannot_be_read_is_let_go_of() -> None:
    """6.13: a message waits for a session that may be on its way back; letters of another make cost nobody anything."""
    cluster = Cluster()
    world = cluster["b"]
    message = Raw(encode({"id": "m1", "timestamp": 1, "content": {"text": "x"}}))
    sender = RemoteName("x", "alice", ("default",), "active", IDS["a"], session=b"{}", identity="return:alice")
    letter = SendLetter("m1", "b9000000-0000-4000-8000-000000000009", "m", "1", sender, message)
    world.peer_told(Arrived(90, IDS["a"], SEND, "x", encode(letter)))
    look = LookLetter("7", "m1", "return:alice", "bob", message)
    world.peer_told(Arrived(91, IDS["a"], LOOK, "y", encode(look)))
    [answer] = [each for each in world.peer_work if isinstance(each, Post) and each.kind == LOOKED]
    assert decode(answer.body, type=LookedLetter) == LookedLetter("7", "reserved")
    for number, body in enumerate((b"{", b"{}", encode(LookedLetter("99", "accepted")))):
        world.peer_told(Arrived(92 + number, IDS["a"], LOOKED if number else LOOK, "z", body))
    assert [each.arrival for each in world.peer_work if isinstance(each, Settle)] == [91, 92, 93, 94]


def test_an_answer_to_an_earlier_process_says_nothing_of_another_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked before a broker was killed is not what is asked now, in whatever order answers come."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.lost = {LOOKED}
    scene.alice.message("bob", "m1", "x")
    scene.cluster.run()
    [late] = [post for post in scene.cluster.posts if post.kind == LOOK]
    name = decode(late.body, type=LookLetter).look
    scene.cluster.crash("c")
    scene.alice, scene.bob = client(scene.cluster, "c", "alice"), client(scene.cluster, "c", "bob")
    scene.alice.message("bob", "m2", "y")
    scene.cluster.run()
    body = encode(LookedLetter(name, "accepted"))
    scene.cluster["c"].peer_told(Arrived(999, IDS["b"], LOOKED, "x", body))
    assert answers(scene.alice.got()) == []
    scene.cluster.run(LIMITS.look_ms)
    assert scene.shown() == ["m2"]


# --- letters and news at a bad moment ------------------------------------------------------------------


def looked(cluster: Cluster, what: LookLetter) -> LookedLetter:
    """Ask the first broker, as the third one does; return what it says."""
    world = cluster["a"]
    world.peer_told(Arrived(99, IDS["c"], LOOK, "x", encode(what)))
    posted = [work for work in world.peer_work if isinstance(work, Post) and work.kind == LOOKED]
    return decode(posted[-1].body, type=LookedLetter)


def look_for(message_id: str, text: str = "x", identity: str = "session:x", wording: str = "alice") -> LookLetter:
    message = {"id": message_id, "timestamp": 1, "content": {"text": text}}
    return LookLetter("1", message_id, identity, wording, Raw(encode(message)))


def test_of_a_message_of_somebody_else_nothing_is_said() -> None:
    """cluster.md 2: an id is no proof; of a message that cannot be read nothing is said either"""
    cluster = Cluster("abc")
    alice, near = client(cluster, "a", "alice"), client(cluster, "a", "near")
    near.message("alice", "m1", "x")
    alice.write("received", messageId="m1")
    assert looked(cluster, look_for("m1")).result == "nothing"
    assert looked(cluster, look_for("m1", identity=f"peer:{IDS['b']}:session:x")).result == "nothing"
    assert looked(cluster, LookLetter("2", "m1", "session:x", "alice", Raw(b"{}"))).result == "nothing"


@pytest.mark.parametrize("kind", [LOOK, LOOKED])
@pytest.mark.parametrize("body", [b"{", b"{}"])
def test_a_letter_that_cannot_be_read_is_let_go_of(kind: str, body: bytes) -> None:
    """design section 4: a broken peer costs nobody anything"""
    cluster = Cluster("abc")
    world = cluster["a"]
    world.peer_told(Arrived(99, IDS["c"], kind, "x", body))
    assert [work for work in world.peer_work if isinstance(work, Settle)] == [Settle(99)]


def test_what_nobody_asked_says_nothing() -> None:
    """F127: forged, or too late"""
    cluster = Cluster("abc")
    world = cluster["a"]
    world.peer_told(Arrived(99, IDS["c"], LOOKED, "x", encode(LookedLetter("7", "accepted", 1))))
    assert [type(work) for work in world.peer_work] == [Settle]


@pytest.mark.parametrize("brokers", [(), ("a",), ("c",)])
def test_who_held_a_target_that_nobody_asked_about_says_nothing(brokers: tuple[str, ...]) -> None:
    """cluster.md 2: the target has gone by then"""
    cluster = Cluster("abc")
    client(cluster, "a", "alice")
    cluster["a"].peer_told(TargetHeld("no such key", tuple(IDS[broker] for broker in brokers)))
    cluster.run()
    assert not [post for post in cluster.posts if post.kind == LOOK]


# --- what else becomes of a message while it is looked for ---------------------------------------------


def held_back(scene: Scene, message_id: str = "m1") -> LookedLetter:
    """Let alice send a message once more, of which her broker asks and does not hear; return what it does not hear."""
    scene.lost.add(LOOKED)
    scene.alice.message("bob", message_id, "x")
    scene.cluster.run()
    scene.lost.discard(LOOKED)
    [answer] = [post for post in scene.dropped if post.kind == LOOKED]
    return decode(answer.body, type=LookedLetter)


def tell(scene: Scene, kind: str, letter: Any, message_id: str = "m1") -> list[dict[str, Any]]:
    """Let the broker where bob was say something to alice's; return her answers."""
    scene.cluster["a"].peer_told(Arrived(999, IDS["b"], kind, first_sent(scene).delivery_id, encode(letter)))
    scene.cluster.run()
    return answers(scene.alice.got())


def first_sent(scene: Scene) -> Post:
    return next(post for post in (*scene.dropped, *scene.cluster.posts) if post.kind == SEND)


def outcome_of(scene: Scene, result: Any, **more: Any) -> OutcomeLetter:
    """Return what a broker says of the first message that it was sent."""
    sent = decode(first_sent(scene).body, type=SendLetter)
    [operation] = scene.cluster["a"].disk.operations.values()
    return OutcomeLetter(sent.message_id, operation.target, sent.attempt, result, **more)


@pytest.mark.parametrize("crashes", [False, True])
def test_an_outcome_that_comes_while_a_message_is_looked_for(monkeypatch: pytest.MonkeyPatch, crashes: bool) -> None:
    """6.9: one final answer, for the newest attempt, though two letters say that it arrived."""
    scene = Scene(monkeypatch)
    scene.lost = {OUTCOME}
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob = scene.moves(scene.bob, "bob", "c")
    if crashes:
        scene.cluster.crash("a")
        scene.alice = client(scene.cluster, "a", "alice", preferredSessionId=scene.alice.id)
    held = held_back(scene)
    told = tell(scene, OUTCOME, outcome_of(scene, "delivered", recipient=scene.bob.id))
    told += tell(scene, LOOKED, held)
    assert (only(told)["type"], only(told)["attemptId"][-2:]) == ("delivered", ".1" if crashes else ".2")
    assert scene.shown() == [] and only(scene.send(scene.alice, "m1"))["type"] == "delivered"


def test_a_refusal_that_comes_while_a_message_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.9: it is of an earlier attempt; the newest one goes where its target is now."""
    scene = Scene(monkeypatch)
    scene.lost = {SEND}
    scene.send(scene.alice, "m1")
    scene.lost = set()
    scene.bob = scene.moves(scene.bob, "bob", "c")
    held = held_back(scene)
    assert tell(scene, OUTCOME, outcome_of(scene, "failed", reason=reasons.SESSION_NOT_FOUND)) == []
    assert tell(scene, LOOKED, held) == [] and scene.shown() == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    told = only(answers(scene.alice.got()))
    assert (told["type"], told["attemptId"][-2:]) == ("delivered", ".2")


def test_who_reconnects_at_once_is_looked_for_where_it_was_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: its session is another one then, of which the others have not even heard that it left."""
    scene = Scene(monkeypatch)
    moved(scene)
    scene.bob.leave()
    scene.bob = client(scene.cluster, "c", "bob", preferredSessionId=scene.bob.id)
    scene.cluster.run(LIMITS.announce_ms)
    assert only(scene.send(scene.alice, "m1"))["type"] == "delivered" and scene.shown() == []
    scene.cluster.run(LIMITS.operation_ttl_ms)
    assert scene.send(scene.alice, "m3") == [] and scene.shown() == ["m3"]


def test_what_a_child_tells_its_supervisor_is_looked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, 4.9: both were elsewhere; no group is theirs in common, here as little as there."""
    scene = Scene(monkeypatch)
    same: dict[str, Any] = {}
    for node in "bc":
        parent = client(scene.cluster, node, "parent", supervisorOwnerToken=TOKEN, **same)
        same = {"preferredSessionId": parent.id}
        child = scene.cluster[node].register(
            CHILD,
            info={"group": "far"},
            **claim(capability_of(parent)),
            acknowledgesReceipt=True,
            returnAddress="ret-child",
        )
        scene.cluster.run(LIMITS.peer_return_ms)
        told = answers([*child.message(parent.id, "m1", kind="supervisor_send"), *child.got()])
        scene.cluster.run()
        shown = [frame["message"]["id"] for frame in parent.got() if frame["type"] == "message"]
        if node == "b":
            assert shown == ["m1"]
            parent.write("received", messageId="m1")
            parent.leave(), child.leave()
            scene.cluster.run(2 * LIMITS.announce_ms)
    assert shown == [] and only([*told, *answers(child.got())])["type"] == "delivered"


def test_what_went_to_somebody_here_is_asked_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, rule 1: another one has the name of its target by now, on the same machine."""
    scene = Scene(monkeypatch)
    near = client(scene.cluster, "a", "near")
    assert scene.send(scene.alice, "m1", to="near") == []
    near.leave()
    scene.cluster["a"].register("near", returnAddress="another", acknowledgesReceipt=True)
    assert only(scene.send(scene.alice, "m1", to="near"))["type"] == "delivery_failed"
    assert scene.looks() == 0
