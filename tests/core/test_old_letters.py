"""Test that a letter which comes late shows nothing again that was shown where its address was meanwhile (6.13.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from intercom.core.letters import OUTCOME, SEND, OutcomeLetter, SendLetter
from intercom.core.looking import LOOK, LOOKED, LookedLetter, LookLetter
from intercom.core.records import OperationState, Post
from intercom.core.task_letters import INVOKE, INVOKED, InvokedLetter, InvokeLetter
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, REDELIVERY_MS, Cluster, Kept, Node
from tests.core.invoking import invoke, invoker
from tests.core.mail import AGENT
from tests.core.test_abroad import confirm
from tests.core.test_homes import AWAY, ask_for, asker, claim, holder, send
from tests.core.test_in_doubt import shown

LIMITS = Limits()


class Late:
    """Hold an address at ``b``, and let what is written to it elsewhere lie in the engine until it ``comes``."""

    def __init__(self, names: str = "ab", sender: str = "a") -> None:
        self.cluster = Cluster(names)
        self.cluster.run(LIMITS.peer_return_ms)
        self.bob = holder(self.cluster, "b")
        self.sender = sender
        self.alice = asker(self.cluster, sender)
        self.lost: set[tuple[str, str]] = set()
        """What the engine loses: by whom, and of which kind."""
        self.is_held = True
        self.held: list[Kept] = []
        self.posted, self.cluster.post = self.cluster.post, self._post  # type: ignore[method-assign]

    def _post(self, node: Node, post: Post) -> None:
        if (node.name, post.kind) in self.lost:
            return
        self.posted(node, post)
        if self.is_held and (node.name, post.kind, post.peer) == (self.sender, SEND, IDS["b"]):
            self.held.append(self.cluster.nodes["b"].queue.pop())

    def write(self, message_id: str, **more: Any) -> None:
        self.alice.message("bob", message_id, message_id, **more)
        self.cluster.run()

    def moves_in_a_crash(self, message_id: str, **more: Any) -> None:
        """Kill the broker of the sender, let the address come to it, and send a message again."""
        self.cluster.crash(self.sender, "renewed")
        self.bob = claim(self.cluster, self.sender)
        self.alice = asker(self.cluster, self.sender)
        self.write(message_id, **more)
        self.cluster.run(LIMITS.look_ms)

    def shown_at(self, broker: str) -> list[str]:
        """Return what is shown to the next holder of the address, who confirms it."""
        self.bob = claim(self.cluster, broker)
        self.cluster.run(LIMITS.look_ms)
        return self.confirmed()

    def confirmed(self) -> list[str]:
        messages = shown(self.bob)
        for message_id in messages:
            confirm(self.cluster, self.bob, message_id)
        return messages

    def comes(self, change: Callable[[Kept], Kept] = lambda kept: kept) -> list[OutcomeLetter]:
        """Let what is late come after all; return what is said of it."""
        self.is_held, before = False, len(self.cluster.posts)
        self.cluster.nodes["b"].queue.extend(change(kept) for kept in self.held)
        self.cluster.run()
        said = [post for post in self.cluster.posts[before:] if post.kind == OUTCOME]
        return [decode(post.body, type=OutcomeLetter) for post in said if post.peer == self.held[0].by]


def was_shown_at_its_sender() -> Late:
    """Let a message be shown where its sender is whose first letter is late, and the address be back after that."""
    late = Late()
    late.write("m1", extra=AWAY)
    late.moves_in_a_crash("m1", extra=AWAY)
    assert late.confirmed() == ["m1"]
    assert late.shown_at("b") == []
    return late


def test_what_was_shown_at_its_sender_is_not_shown_again() -> None:
    """``shown-once``: the home before is the broker of the sender, which was killed just after it had posted."""
    late = was_shown_at_its_sender()
    assert {said.result for said in late.comes()} == {"delivered"}
    assert shown(late.bob) == []


def test_an_old_question_is_not_asked_again() -> None:
    """It was asked where the address was: who asks it once more, by a new attempt, is brought to where that is now."""
    late = Late()
    late.write("q1", expectsReply=True)
    late.moves_in_a_crash("q1", expectsReply=True)
    assert late.confirmed() == ["q1"]
    assert late.shown_at("b") == []
    assert {said.result for said in late.comes()} == {"delivered"}
    assert shown(late.bob) == []


def test_what_nobody_knows_of_is_refused_for_now() -> None:
    """Nobody says in time what became of it: whoever brings it is told that it is not known, and brings it again."""
    late = was_shown_at_its_sender()
    late.lost = {("a", LOOKED)}
    assert late.comes() == []
    late.cluster.run(LIMITS.look_ms)
    said = [decode(post.body, type=OutcomeLetter) for post in late.cluster.posts if post.kind == OUTCOME][-1]
    assert (said.result, said.reason, said.is_known) == ("failed", reasons.UNCERTAIN_ELSEWHERE, True)
    assert shown(late.bob) == []


def test_what_cannot_be_asked_about_is_refused_at_once() -> None:
    late = was_shown_at_its_sender()
    late.cluster.end_leases("a")
    said = late.comes()[-1]
    assert (said.result, said.reason, said.is_known) == ("failed", reasons.UNCERTAIN_ELSEWHERE, True)
    assert shown(late.bob) == []


def test_what_comes_before_the_holders_are_known_waits_for_them() -> None:
    """6.13.11: the engine is asked who held the address, and cannot be; then nobody can say what became of it."""
    late = was_shown_at_its_sender()
    late.bob.leave()
    late.cluster.run(LIMITS.operation_ttl_ms // 2)
    node = late.cluster.nodes["b"]
    node.is_cut = True
    late.bob = claim(late.cluster, "b")
    node.is_cut = False
    late.cluster.nodes["b"].queue.extend(late.held)
    late.cluster._hand_out(node)
    late.cluster.cut("b")
    late.cluster.run(LIMITS.look_ms)
    assert shown(late.bob) == []


def test_what_nobody_has_shown_is_shown() -> None:
    """The address has been elsewhere for a moment: nobody came to see the message there."""
    late = Late("abc", "c")
    late.write("m1", extra=AWAY)
    late.lost = {("c", SEND)}
    assert late.shown_at("a") == []
    assert late.shown_at("b") == []
    late.lost.clear()
    assert late.comes() == []
    assert late.confirmed() == ["m1"]


@pytest.mark.parametrize(
    ("result", "passed_to", "is_shown"),
    [
        ("nothing", "", True),
        ("queued", "", True),
        ("reserved", "", False),
        ("reserved", IDS["b"], True),
        ("reserved", IDS["c"], True),
        ("another", "", True),
    ],
)
def test_who_had_the_address_says_whether_an_old_letter_counts(result: Any, passed_to: str, *, is_shown: bool) -> None:
    """What somebody has in hand there may be shown there; what comes here, or is whoever's who brings it, is not."""
    late = Late("abc", "c")
    late.write("m1", extra=AWAY)
    late.lost = {("c", SEND)}
    assert late.shown_at("a") == [] and late.shown_at("b") == []

    def says(node: Node, post: Post) -> None:
        if post.kind == LOOKED and node.name == "a":
            heard = decode(post.body, type=LookedLetter)
            post = structs.replace(post, body=encode(structs.replace(heard, result=result, passed_to=passed_to)))
        late._post(node, post)

    late.cluster.post = says  # type: ignore[method-assign]
    late.comes()
    assert (late.confirmed() == ["m1"]) is is_shown


def test_a_session_that_came_back_may_be_shown_no_old_letter_either() -> None:
    """The letter names a session that holds the address here again."""
    late = was_shown_at_its_sender()

    def to_bob(kept: Kept) -> Kept:
        letter = decode(kept.body, type=SendLetter)
        return structs.replace(kept, body=encode(structs.replace(letter, to=late.bob.id)))

    assert {said.result for said in late.comes(to_bob)} == {"delivered"}
    assert shown(late.bob) == []


def test_a_letter_of_an_earlier_version_is_taken_as_before() -> None:
    """6.13.17: it says no claim."""
    late = was_shown_at_its_sender()

    def without_claim(kept: Kept) -> Kept:
        return structs.replace(kept, body=encode(structs.replace(decode(kept.body, type=SendLetter), claim=None)))

    late.comes(without_claim)
    assert set(shown(late.bob)) == {"m1"}


def test_an_old_letter_says_nothing_of_what_is_in_doubt() -> None:
    """6.13.7: it was posted before the message was brought to the broker that has shown it."""
    late = Late()
    late.write("m1", extra=AWAY)
    late.moves_in_a_crash("m1", extra=AWAY)
    late.lost = {("a", OUTCOME), ("a", LOOKED), ("b", OUTCOME)}
    assert shown(late.bob) == ["m1"]
    late.bob.leave()
    late.cluster.run(2 * LIMITS.announce_ms)
    late.bob = claim(late.cluster, "b")
    late.comes()
    late.cluster.run(LIMITS.look_ms)
    first = shown(late.bob)
    late.lost.clear()
    late.cluster.run(LIMITS.peer_outcome_ms)
    assert [*first, *late.confirmed()] == ["m1"]


# --- who else may have it -------------------------------------------------------------------------------


class Round:
    """Let ``c`` write to an address at ``b``, which passes it on to ``a``; what ``a`` says of it is lost."""

    def __init__(self) -> None:
        self.cluster = Cluster("abc")
        self.carol = asker(self.cluster, "c", "carol")
        holder(self.cluster, "b").leave()
        self.cluster.run(2 * LIMITS.announce_ms)
        self.lost: set[tuple[str, str]] = set()
        self.posted, self.cluster.post = self.cluster.post, self._post  # type: ignore[method-assign]
        assert send(self.cluster, self.carol, "m1") == "queued"
        self.lost = {("a", OUTCOME)}
        self.bob = claim(self.cluster, "a")
        self.cluster.run()
        assert shown(self.bob) == ["m1"]

    def _post(self, node: Node, post: Post) -> None:
        if (node.name, post.kind) not in self.lost:
            self.posted(node, post)

    def letters_to(self, broker: str) -> list[SendLetter]:
        posts = [post for post in self.cluster.posts if (post.kind, post.peer) == (SEND, IDS[broker])]
        return [decode(post.body, type=SendLetter) for post in posts]


def test_a_letter_says_who_else_may_have_the_message() -> None:
    """``shown-once``: it is asked there, although its sender is where the address is now, and knows a row of it."""
    scene = Round()
    confirm(scene.cluster, scene.bob, "m1")
    bob = claim(scene.cluster, "c")
    scene.cluster.run(LIMITS.look_ms)
    assert [letter.maybe_at for letter in scene.letters_to("c")] == [(IDS["a"],)]
    assert shown(bob) == []
    [row] = [each for each in scene.cluster["c"].disk.operations.values() if each.message_id == "m1"]
    assert row.state is OperationState.ACCEPTED


def test_while_who_may_have_it_is_silent_it_is_shown_to_nobody() -> None:
    scene = Round()
    confirm(scene.cluster, scene.bob, "m1")
    scene.lost = {("a", OUTCOME), ("a", LOOKED)}
    bob = claim(scene.cluster, "c")
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == []
    scene.lost.clear()
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert shown(bob) == []
    assert not any(scene.cluster[name].disk.mail for name in "abc")


def test_what_waits_here_waits_for_whoever_else_may_have_it() -> None:
    """It has come home with one letter, and another one says who may have it, too."""
    scene = Round()
    confirm(scene.cluster, scene.bob, "m1")
    scene.lost = {("a", OUTCOME), ("a", LOOKED)}
    [first] = [post for post in scene.cluster.posts if (post.kind, post.peer) == (SEND, IDS["a"])][-1:]
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    bob = claim(scene.cluster, "c")
    assert shown(bob) == [] and first.peer == IDS["a"]
    scene.lost.clear()
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert shown(bob) == []


def test_what_is_passed_on_is_known_by_what_its_sender_called_the_target() -> None:
    """6.13.11: who is asked for it tells by that whether it is the same message."""
    scene = Round()
    confirm(scene.cluster, scene.bob, "m1")
    claim(scene.cluster, "c")
    scene.cluster.run(LIMITS.look_ms)
    looks = [decode(post.body, type=LookLetter) for post in scene.cluster.posts if post.kind == LOOK]
    assert {letter.wording for letter in looks if letter.message_id == "m1"} == {"bob"}


# --- what is passed on ----------------------------------------------------------------------------------


def test_nothing_is_passed_on_where_the_address_has_moved_twice() -> None:
    """Its sender's broker hears that it is not known, and brings it itself."""
    late = Late("abc", "c")
    late.write("m1", extra=AWAY)
    assert late.shown_at("a") == ["m1"]
    late.shown_at("b")
    late.is_held = True
    assert late.shown_at("a") == []
    said = late.comes()[-1]
    assert (said.result, said.reason, said.is_known) == ("failed", reasons.UNCERTAIN_ELSEWHERE, True)
    late.cluster.run(REDELIVERY_MS)
    assert shown(late.bob) == []


def test_what_was_accepted_is_so_wherever_its_address_is() -> None:
    """6.13.11: the broker that has the row says so, also when the address has left."""
    late = Late("abc", "c")
    late.is_held, late.lost = False, {("b", OUTCOME)}
    late.write("m1", extra=AWAY)
    assert late.confirmed() == ["m1"]
    late.held = [kept for node, kept in late.cluster.kept if (node.name, kept.kind) == ("b", SEND)]
    assert late.shown_at("a") == []
    late.lost.clear()
    assert {said.result for said in late.comes()} == {"delivered"}


def test_a_refusal_says_that_another_copy_waits() -> None:
    """6.13.8: the first one waits for a session that may return, and may be shown to it."""
    cluster = Cluster()
    bob = holder(cluster, "b")
    alice = asker(cluster)
    cluster.nodes["b"].is_cut = True
    alice.message("bob", "m1", "m1", extra=AWAY)
    cluster.run()
    [kept] = [each for each in cluster.nodes["b"].queue if each.kind == SEND]
    cluster.nodes["b"].queue.clear()
    cluster.crash("b", "renewed")
    letter = decode(kept.body, type=SendLetter)
    to_session = structs.replace(letter, address=None, to=bob.id)
    claim(cluster, "a")
    cluster.nodes["b"].queue.append(structs.replace(kept, body=encode(to_session)))
    cluster.run()
    cluster.nodes["b"].queue.append(structs.replace(kept, body=encode(structs.replace(letter, attempt="x.2", to=""))))
    cluster.run()
    said = [decode(post.body, type=OutcomeLetter) for post in cluster.posts if post.kind == OUTCOME][-1]
    assert (said.attempt, said.code, said.is_known) == ("x.2", "away", True)


# --- what comes before the news ---------------------------------------------------------------------------


class Early:
    """Let an address move from ``b``, where mail waits for it, to ``a``, which hears last that it has it."""

    def __init__(self, *messages: str) -> None:
        self.cluster = Cluster()
        holder(self.cluster, "b").leave()
        self.cluster.run(2 * LIMITS.announce_ms)
        self.alice = asker(self.cluster, "b")
        for message_id in messages or ("m1",):
            assert send(self.cluster, self.alice, message_id) == "queued"
        self.cluster.is_slow = True
        self.bob = ask_for(self.cluster, "a")
        self.here, self.old = self.cluster.nodes["a"], self.cluster.nodes["b"]
        while not self.here.news:
            self.cluster._take_work(self.here)
        assert self.cluster.hear(self.old)
        self.cluster["b"].pass_time(0)
        self.cluster["b"].read()
        self.cluster._take_work(self.old)

    def letter_comes(self) -> None:
        while self.cluster._hand_out(self.here):
            pass

    def outcomes(self) -> list[str]:
        posts = [post for post in self.here.world.peer_work if isinstance(post, Post) and post.kind == OUTCOME]
        return [decode(post.body, type=OutcomeLetter).result for post in posts]


def test_what_comes_before_the_news_of_the_move_waits_for_that() -> None:
    """6.13.7: its broker knew of the newer claim, and brings what waited there at once; nothing is refused, or late."""
    early = Early()
    early.letter_comes()
    assert early.outcomes() == []
    early.cluster.run()
    assert shown(early.bob) == ["m1"]


def test_what_comes_with_the_news_does_not_overtake_what_waited_for_them() -> None:
    """``order-of-mail``: what waited is decided first."""
    early = Early("m1", "m2")
    assert early.cluster._hand_out(early.here)
    while early.cluster.hear(early.here):
        pass
    early.letter_comes()
    early.cluster.run()
    assert shown(early.bob) == ["m1", "m2"]


def test_what_comes_before_news_that_never_come_is_decided() -> None:
    """``Limits.look_ms``: as is known here then; the registration has waited as long, and goes on."""
    early = Early()
    early.letter_comes()
    early.here.news.clear()
    early.cluster["a"].pass_time(LIMITS.look_ms - 1)
    assert early.outcomes() == []
    assert shown(early.bob) == []
    early.cluster["a"].pass_time(1)
    early.cluster.run()
    assert shown(early.bob) == ["m1"]


def test_of_two_attempts_that_wait_for_news_the_newest_is_answered() -> None:
    early = Early()
    early.letter_comes()
    [kept] = [kept for node, kept in early.cluster.kept if node is early.here and kept.kind == SEND]
    letter = decode(kept.body, type=SendLetter)
    early.here.queue.append(structs.replace(kept, body=encode(structs.replace(letter, attempt="1.journal-.99"))))
    early.letter_comes()
    early.cluster.run()
    confirm(early.cluster, early.bob, "m1")
    said = [decode(post.body, type=OutcomeLetter) for post in early.cluster.posts if post.kind == OUTCOME]
    assert [each.attempt for each in said if each.message_id == "m1"] == ["1.journal-.99"]


# --- tasks ----------------------------------------------------------------------------------------------


def test_an_old_task_is_not_taken() -> None:
    """13.7: it may have been done where its address was meanwhile; whoever still wants it brings it again."""
    cluster = Cluster()
    holder(cluster, "b", features=[*AGENT, "invoke"])
    asks = invoker(cluster["a"])
    cluster.run(LIMITS.announce_ms)
    node, posted = cluster.nodes["b"], cluster.post
    held: list[Kept] = []

    def hold(by: Node, post: Post) -> None:
        posted(by, post)
        if post.kind == INVOKE and not held:
            held.append(node.queue.pop())

    cluster.post = hold  # type: ignore[method-assign]
    invoke(asks, "@bob")
    cluster.run()
    assert decode(held[0].body, type=InvokeLetter).claim == 1
    claim(cluster, "a", features=[*AGENT, "invoke"])
    bob = claim(cluster, "b", features=[*AGENT, "invoke"])
    node.queue.append(held[0])
    cluster.run()
    answers = [decode(post.body, type=InvokedLetter) for post in cluster.posts if post.kind == INVOKED]
    assert [answer.verdict for answer in answers] == ["unreachable"]
    assert shown(bob) == []
    cluster.run(LIMITS.forward_ms)
    cluster.run(2 * LIMITS.peer_retry_ms)
    assert len(shown(bob)) == 1
