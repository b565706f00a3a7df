"""Test that an old copy of a letter brings nothing home that another broker has had since (protocol 6.13.7)."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from intercom.core.effects import Append
from intercom.core.letters import OUTCOME, SEND, OutcomeLetter
from intercom.core.looking import LOOKED, LookedLetter
from intercom.core.records import AddressSeen, Happened, MailRecord, OperationState, Post
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster, Node
from tests.core.harness import Client
from tests.core.test_abroad import confirm
from tests.core.test_homes import asker, claim, holder, send
from tests.core.test_in_doubt import shown

LIMITS = Limits()


class Moves:
    """Hold an address that nobody holds for long, and hand out again what a broker was sent."""

    def __init__(self, home: str = "a") -> None:
        self.cluster = Cluster("abc")
        self.lost: set[tuple[str, str, str]] = set()
        """What the engine loses: by whom, of which kind, and for whom."""
        self.never_came: list[tuple[Node, Post]] = []
        self.posted, self.cluster.post = self.cluster.post, self._post  # type: ignore[method-assign]
        self.leave(holder(self.cluster, home))

    def _post(self, node: Node, post: Post) -> None:
        if (node.name, post.kind, post.peer[0]) not in self.lost:
            self.posted(node, post)
        else:
            self.never_came.append((node, post))

    def leave(self, bob: Client) -> None:
        bob.leave()
        self.cluster.run(2 * LIMITS.announce_ms)

    def move(self, to: str) -> None:
        """Let somebody hold the address there who has left when the others hear of that: its mail waits there."""
        unheard: list[AddressSeen] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.cluster, "_tell_all", unheard.append)
            bob = claim(self.cluster, to)
            assert shown(bob) == []
            self.leave(bob)
        for fact in unheard:
            self.cluster._tell_all(fact)
        self.cluster.run()

    def shown_at(self, broker: str) -> list[str]:
        """Return what is shown to who holds the address there, confirms it, and leaves."""
        bob = claim(self.cluster, broker)
        messages = shown(bob)
        for message_id in messages:
            confirm(self.cluster, bob, message_id)
        self.leave(bob)
        return messages

    def hand_out_again(self, by: str, to: str) -> None:
        """Hand out again all messages that a broker has sent to another one."""
        node = self.cluster.nodes[to]
        letters = [k for target, k in self.cluster.kept if (target, k.kind, k.by) == (node, SEND, IDS[by])]
        assert letters
        node.queue.extend(letters)
        self.cluster.run()

    def comes_again(self, by: str, to: str) -> OutcomeLetter:
        """Hand out again all messages that a broker has sent to another one; return what that says of the last one."""
        self.hand_out_again(by, to)
        self.cluster.run(LIMITS.look_ms)
        said = [post for post in self.cluster.posts if (post.peer, post.kind) == (IDS[by], OUTCOME)]
        return decode(said[-1].body, type=OutcomeLetter)


@pytest.fixture
def moves() -> Moves:
    """Let a message wait at ``a`` that somebody at ``c`` wrote, and then at ``b``."""
    found = Moves()
    assert send(found.cluster, asker(found.cluster, "c"), "m1") == "queued"
    found.move("b")
    assert [bool(found.cluster[name].disk.mail) for name in "abc"] == [False, True, False]
    return found


def test_what_was_handed_on_does_not_come_home_with_a_copy_of_its_sender(moves: Moves) -> None:
    """Protocol 6.13.7, ``shown-once``: the engine hands out again what was brought here before the address left."""
    assert moves.shown_at("b") == ["m1"]
    bob = claim(moves.cluster, "a")
    assert moves.comes_again("c", "a").result == "delivered"
    assert shown(bob) == [] and not moves.cluster["a"].disk.mail


@pytest.mark.parametrize("is_away", [False, True])
def test_whether_it_is_a_copy_is_not_known_while_who_has_it_says_nothing(moves: Moves, is_away: bool) -> None:
    """Protocol 6.13.7: it is shown nowhere else, and whoever brings it may do so again."""
    assert moves.shown_at("b") == ["m1"]
    bob = claim(moves.cluster, "a")
    moves.lost = {("b", LOOKED, "a")}
    if is_away:
        moves.cluster.cut("b")
    said = moves.comes_again("c", "a")
    assert (said.result, said.reason, said.is_known) == ("failed", reasons.UNCERTAIN_ELSEWHERE, True)
    assert shown(bob) == []


def test_what_went_all_the_way_round_comes_from_its_sender() -> None:
    """Protocol 6.13.7, ``queued-arrives``: who had it says that it was sent over to the broker that brings it now."""
    moves = Moves()
    moves.lost = {("a", OUTCOME, "c"), ("b", OUTCOME, "c")}
    assert send(moves.cluster, asker(moves.cluster, "c"), "m1") == "queued"
    moves.move("b")
    assert [bool(moves.cluster[name].disk.mail) for name in "abc"] == [False, True, True]
    moves.move("c")
    moves.lost.clear()
    assert [bool(moves.cluster[name].disk.mail) for name in "abc"] == [False, False, True]
    assert moves.shown_at("a") == ["m1"]
    assert not any(moves.cluster[name].disk.mail for name in "abc")


def test_what_came_home_while_it_was_asked_for_stays(moves: Moves) -> None:
    """Protocol 6.13.7, ``shown-once``: it was sent over and shown before the answer, which says where it was then."""
    moves.lost = {("b", LOOKED, "a")}
    moves.hand_out_again("c", "a")
    bob = claim(moves.cluster, "a")
    assert shown(bob) == ["m1"]
    [(node, post)] = [(node, post) for node, post in moves.never_came if post.kind == LOOKED]
    was_at_c = structs.replace(decode(post.body, type=LookedLetter), result="reserved", passed_to=IDS["c"])
    moves.posted(node, structs.replace(post, body=encode(was_at_c)))
    moves.cluster.run()
    assert shown(bob) == []
    [mail] = moves.cluster["a"].disk.mail.values()
    operation = moves.cluster["a"].disk.operations[mail.number]
    assert (operation.state, operation.target) == (OperationState.QUEUED, mail.mailbox)


def test_what_was_handed_on_does_not_come_home_with_a_copy_of_who_has_it(moves: Moves) -> None:
    """Protocol 6.13.7, ``shown-once``: to and fro, and what it came with the first time, also before, comes again."""
    moves.lost = {("a", OUTCOME, "b")}
    moves.move("a")
    moves.lost.clear()
    moves.cluster.run(LIMITS.peer_outcome_ms)
    assert [bool(moves.cluster[name].disk.mail) for name in "abc"] == [True, False, False]
    moves.move("b")
    assert moves.shown_at("b") == ["m1"]
    bob = claim(moves.cluster, "a")
    assert moves.comes_again("b", "a").reason == reasons.UNCERTAIN_ELSEWHERE
    assert shown(bob) == []


def test_a_copy_does_not_say_that_it_was_sent_back(moves: Moves) -> None:
    """Protocol 6.13.7: it is in doubt here since it was posted there again, and shown there."""
    moves.move("a")
    moves.lost = {("b", OUTCOME, "a"), ("b", LOOKED, "a")}
    moves.move("b")
    assert moves.shown_at("b") == ["m1"]
    bob = claim(moves.cluster, "a")
    assert moves.comes_again("b", "a").result == "queued"
    assert shown(bob) == []
    moves.lost.clear()
    moves.cluster.run(LIMITS.peer_absent_ms)
    assert shown(bob) == [] and not moves.cluster["a"].disk.mail


def test_the_journal_tells_of_each_time_that_a_message_waits(moves: Moves, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 5: its id names an event that happens once; one under an id that is there already is not told."""
    told: list[Happened] = []
    disk = moves.cluster["a"].disk
    commit = disk.commit

    def watched(append: Append) -> None:
        told.extend(each for each in append.changes if isinstance(each, Happened) and isinstance(each.row, MailRecord))
        commit(append)

    monkeypatch.setattr(disk, "commit", watched)
    for broker in "abab":
        moves.move(broker)
    assert moves.shown_at("a") == ["m1"]
    to_and_fro = ["queued", "offered", "handed_on"]
    kinds = [event.kind.removeprefix("mail.") for event in told]
    assert kinds == [*to_and_fro, *to_and_fro, "queued", "offered", "delivered"]
    assert [event.event_id for event in told if event.event_id] == [f"mail:{told[0].row.number}:delivered"]
