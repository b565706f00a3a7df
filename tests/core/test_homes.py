"""Test addresses in a cluster: one home and one holder, mail wherever that is, and the move (protocol 6.13, FE 3.2)."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.letters import SEND, OutcomeLetter, SendLetter
from intercom.core.records import (
    AddressClaimed,
    AddressesKnown,
    AddressHome,
    AddressSeen,
    Arrived,
    Post,
    RemoteName,
)
from intercom.limits import Limits
from intercom.wire import notices, reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import INFO, Client, World, answers, only, reason
from tests.core.test_abroad import QUEUE, client, confirm, message_in

FEATURES = ["address", *QUEUE["features"]]
TOKEN = "t" * 64
OTHER = "o" * 64
AWAY = {"queueIfAway": True}
LIMITS = Limits()


def holder(cluster: Cluster, broker: str, name: str = "bob", token: str = TOKEN, **more: Any) -> Client:
    """Return a session that holds an address, once everybody knows."""
    found = claim(cluster, broker, name, token, **more)
    cluster.run(Limits().announce_ms)
    return found


def claim(cluster: Cluster, broker: str, name: str = "bob", token: str = TOKEN, **more: Any) -> Client:
    """Ask to hold an address and let everything move; the answer is among what came."""
    found = ask_for(cluster, broker, name, token, **more)
    cluster.run()
    found.first += found.got()
    ids = [frame["sessionId"] for frame in found.first if frame["type"] == "registered"]
    found.id = ids[0] if ids else ""
    return found


def ask_for(cluster: Cluster, broker: str, name: str = "bob", token: str = TOKEN, **more: Any) -> Client:
    """Ask to hold an address; the answer comes when it is claimed."""
    world: World = cluster[broker]
    conn = world.connect()
    info = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1, "name": name}
    if "groups" in more:
        info |= {"group": more["groups"][0], "groups": more.pop("groups")}
    features = more.pop("features", FEATURES)
    address = {"name": name, "token": token, **more}
    members = {**QUEUE, "features": features, "returnAddress": f"return-{broker}-{name}-{conn}"}
    frames = world.send(conn, type="register", session=info, acknowledgesReceipt=True, address=address, **members)
    return Client(world, conn, "", frames)


def refusal(who: Client) -> str:
    return str(only([frame for frame in who.first if frame["type"] == "registration_failed"])["code"])


def send(cluster: Cluster, who: Client, message_id: str, to: str = "bob", **more: Any) -> str:
    frames = who.message(to, message_id, message_id, extra={**AWAY, **more})
    cluster.run()
    return str(only(answers([*frames, *who.got()]))["type"])


def home_of(cluster: Cluster, name: str = "bob") -> str:
    [address] = [each for each in cluster.addresses.values() if each.name == name]
    return next(broker for broker, broker_id in IDS.items() if broker_id == address.home)


def asker(cluster: Cluster, broker: str = "a", name: str = "alice") -> Client:
    found = client(cluster, broker, name, **QUEUE)
    found.got()
    return found


# --- one holder in the whole cluster --------------------------------------------------------------------


def test_an_address_is_claimed_for_its_broker_before_its_holder_is_told() -> None:
    """It exists once: its home and the digest of its token are known to all, the token to nobody."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    assert bob.first == []
    held, cluster.held_claims = cluster.held_claims, None
    for node, each in held:
        cluster.decide(node, each)
    cluster.run()
    assert only([f for f in cluster["b"].got(bob.conn) if f["type"] == "registered"])["features"]
    assert home_of(cluster) == "b"
    [address] = cluster.addresses.values()
    assert address.token_hash and TOKEN not in repr(address)


def test_somebody_without_the_token_is_refused_on_every_machine() -> None:
    cluster = Cluster()
    holder(cluster, "b")
    refused = claim(cluster, "a", token=OTHER)
    assert refusal(refused) == "address_taken"
    assert refused.first[0]["reason"] == "The address bob in group 'default' belongs to somebody on machine b"
    here = claim(cluster, "b", token=OTHER)
    assert here.first[0]["reason"] == "The address bob in group 'default' belongs to somebody else"
    assert refusal(claim(cluster, "a", hold="free")) == "address_held"
    assert home_of(cluster) == "b"


@pytest.mark.parametrize("same_token", [False, True])
def test_two_that_register_at_the_same_moment(same_token: bool) -> None:
    """One holder; the other is told ``address_taken``, or becomes the holder with the token."""
    cluster = Cluster()
    cluster.held_claims = []
    first, second = claim(cluster, "a"), claim(cluster, "b", token=TOKEN if same_token else OTHER)
    held, cluster.held_claims = cluster.held_claims, None
    for node, each in held:
        cluster.decide(node, each)
    cluster.run(Limits().announce_ms)
    first.first += first.got()
    second.first += second.got()
    assert [frame["type"] for frame in first.first if frame["type"].startswith("regist")] == ["registered"]
    if same_token:
        # The first had not said yet under which token; the client tries again, and is the newest rightful holder.
        if any(frame["type"] == "registration_failed" for frame in second.first):
            assert refusal(second) == "address_taken"
            second = holder(cluster, "b")
        assert home_of(cluster) == "b"
        assert "replaced" in [frame["type"] for frame in [*first.first, *first.got()]]
    else:
        assert refusal(second) == "address_taken" and home_of(cluster) == "a"


def test_the_newest_rightful_holder_replaces_the_older_one_elsewhere() -> None:
    cluster = Cluster()
    old = holder(cluster, "b")
    old.got()
    holder(cluster, "a")
    assert "replaced" in [frame["type"] for frame in old.got()]
    assert home_of(cluster) == "a"
    holder(cluster, "b")
    assert home_of(cluster) == "b"


def test_nobody_waits_for_the_engine_longer_than_two_seconds() -> None:
    """Held writes (protocol 6.13): then it goes on here, and the address is claimed when the engine is back."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    cluster.run(Limits().claim_ms - 1)
    assert bob.got() == []
    cluster.run(1)
    assert "registered" in [frame["type"] for frame in bob.got()]
    cluster.held_claims = None
    cluster.cut("b")
    cluster.join("b")
    assert home_of(cluster) == "b"


def test_a_claim_that_is_decided_too_late_is_made_once_more() -> None:
    """6.13.6: the registration goes on as that of the newest holder, although the way counts as open all the time."""
    cluster = Cluster()
    old = holder(cluster, "a")
    cluster.held_claims = []
    bob = claim(cluster, "b")
    cluster.run(LIMITS.claim_ms)
    assert [frame["type"] for frame in bob.got()][:1] == ["registered"]
    held, cluster.held_claims = cluster.held_claims, None
    assert [each.address.home for _, each in held] == [IDS["b"]] * 2
    for node, each in held:
        cluster.decide(node, each)
    cluster.run()
    assert home_of(cluster) == "b"
    assert [frame["type"] for frame in old.got()][-1:] == ["replaced"]
    asker(cluster).message("bob", "m1", extra=AWAY)
    cluster.run()
    assert message_in(bob.got())["message"]["id"] == "m1"


def test_a_registration_whose_claim_the_engine_cannot_decide_goes_on_and_asks_no_more() -> None:
    """Another cluster holds the address under the same prefix: this one's holder works here, and the engine rests."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    asked = 0
    while cluster.held_claims and asked < 9:
        node, each = cluster.held_claims.pop()
        node.world.peer_told(AddressClaimed(each.number, False, None))
        asked += 1
        cluster.run()
    assert asked == 1
    assert "registered" in [frame["type"] for frame in bob.got()]


def test_without_the_engine_a_new_address_is_given_at_once_and_claimed_later() -> None:
    cluster = Cluster()
    cluster.cut("b")
    assert claim(cluster, "b").id
    assert not cluster.addresses
    cluster.join("b")
    assert home_of(cluster) == "b"


def test_an_address_begun_on_both_sides_of_a_cut_has_one_holder_when_that_ends() -> None:
    """Whoever was claimed first holds it; the other is told, and its token opens nothing any more."""
    cluster = Cluster()
    cluster.cut("b")
    first = holder(cluster, "a")
    claim(cluster, "b", token=OTHER).leave()
    near = asker(cluster, "b", "near")
    assert send(cluster, near, "m1") == "queued"
    second = claim(cluster, "b", token=OTHER)
    assert second.id
    first.got()
    cluster.join("b")
    cluster.run(2 * Limits().announce_ms)
    assert home_of(cluster) == "a"
    assert [frame["by"] for frame in second.got() if frame["type"] == "replaced"] == ["address"]
    assert refusal(claim(cluster, "b", token=OTHER)) == "address_taken"
    near.message("bob", "m2", "m2", extra=AWAY)
    cluster.run()
    assert first.texts() == ["m1", "m2"]
    cluster.crash("b")
    assert refusal(claim(cluster, "b", token=OTHER)) == "address_taken"
    assert holder(cluster, "b").id and home_of(cluster) == "b", "its token opens it there, too"


def test_of_two_that_are_claimed_at_once_when_the_engine_is_back_one_holds() -> None:
    """Cluster, section 5: the same address registered at two machines while the engine was down."""
    cluster = Cluster()
    cluster.cut("a")
    cluster.cut("b")
    both = {"a": claim(cluster, "a"), "b": claim(cluster, "b", token=OTHER)}
    cluster.held_claims = []
    cluster.join("a")
    cluster.join("b")
    held, cluster.held_claims = cluster.held_claims, None
    assert len(held) == len(both)
    for node, each in reversed(held):
        cluster.decide(node, each)
    cluster.run(2 * Limits().announce_ms)
    assert home_of(cluster) == "b"
    ends = {name: [f["type"] for f in who.got() if f["type"] == "replaced"] for name, who in both.items()}
    assert ends == {"a": ["replaced"], "b": []}
    alice = asker(cluster)
    alice.message("bob", "m1", "m1", extra=AWAY)
    cluster.run()
    assert both["b"].texts() == ["m1"]


def test_a_holder_that_came_while_the_engine_was_away_is_the_newest_one() -> None:
    cluster = Cluster()
    old = holder(cluster, "a")
    old.got()
    cluster.run()
    cluster.cut("b")
    bob = claim(cluster, "b")
    assert bob.id
    cluster.join("b")
    assert home_of(cluster) == "b" and "replaced" in [frame["type"] for frame in old.got()]


# --- mail -----------------------------------------------------------------------------------------------


def test_mail_for_an_address_elsewhere_whose_holder_is_away_waits_at_its_home() -> None:
    """Also when nobody has held it since that broker was started."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.crash("b")
    alice = asker(cluster)
    assert send(cluster, alice, "m1") == "queued"
    assert [mail.message_id for mail in cluster["b"].disk.mail.values()] == ["m1"]
    assert not cluster["a"].disk.mail
    bob = holder(cluster, "b")
    assert "m1" in [f["message"]["id"] for f in [*bob.first, *bob.got()] if f["type"] == "message"]


def traced(who: Client, message_id: str) -> tuple[str, str]:
    frame = only(who.write("trace", requestId="t", messageId=message_id), "trace")
    return frame["state"], frame["where"]


def test_a_trace_tells_at_which_machine_mail_waits() -> None:
    """Protocol 9.6.3: what another broker keeps is not uncertain; also once this one was killed."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert send(cluster, alice, "m1") == "queued"
    state, where = traced(alice, "m1")
    assert (state, where.partition(",")[0]) == ("handed_on", "handed over to b")
    cluster.crash("a")
    alice = asker(cluster)
    assert traced(alice, "m1") == (state, where)
    confirm(cluster, holder(cluster, "b"), "m1")
    assert send(cluster, alice, "m1") == "delivered"
    assert traced(alice, "m1")[0] == "delivered"


def test_a_trace_tells_that_mail_waits_here_for_another_machine() -> None:
    """Protocol 9.6.3: in the engine nobody has it, so it is not called offered; then its home keeps it."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    alice = asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1") == "queued"
    state, where = traced(alice, "m1")
    assert state == "queued" and "kept here until b says that it has it" in where
    cluster.join("b")
    cluster.run(Limits().peer_window_ms)
    assert traced(alice, "m1")[0] == "handed_on"


def passed_on() -> tuple[Cluster, Client, Client]:
    """Return alice at ``a``, whose message was kept at ``c`` until the address it is for came to ``b``."""
    cluster = Cluster("abc")
    holder(cluster, "c").leave()
    cluster.run(2 * LIMITS.announce_ms)
    alice = asker(cluster)
    assert send(cluster, alice, "m1") == "queued"
    assert [mail.message_id for mail in cluster["c"].disk.mail.values()] == ["m1"]
    bob = holder(cluster, "b")
    cluster.run(LIMITS.peer_outcome_ms)
    assert [mail.message_id for mail in cluster["b"].disk.mail.values()] == ["m1"]
    assert not cluster["a"].disk.mail and not cluster["c"].disk.mail
    return cluster, alice, bob


@pytest.mark.parametrize("now_at", "ac")
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_passed_on_is_looked_for_where_it_is(now_at: str, is_killed: bool) -> None:
    """D13: whoever kept it for a while says who has it now, wherever the address is when it is sent again."""
    cluster, alice, bob = passed_on()
    confirm(cluster, bob, "m1")
    if is_killed:
        cluster.crash("c")
    bob = holder(cluster, now_at)
    assert send(cluster, alice, "m1") == "delivered"
    assert [frame for frame in [*bob.first, *bob.got()] if frame["type"] == "message"] == []
    assert traced(alice, "m1")[0] == "delivered"


def test_what_was_passed_on_is_uncertain_as_long_as_nobody_can_be_asked() -> None:
    """D13: it may have been confirmed where it is; joined again that broker passes it on to where the holder is."""
    cluster, alice, bob = passed_on()
    assert [frame["message"]["id"] for frame in bob.first if frame["type"] == "message"] == ["m1"]
    bob.leave()
    cluster.cut("b")
    bob = holder(cluster, "a")
    alice.message("bob", "m1", "m1", extra=AWAY)
    cluster.run()
    assert reason(alice.got()) == reasons.UNCERTAIN_ELSEWHERE
    cluster.join("b")
    cluster.run(2 * LIMITS.announce_ms)
    assert send(cluster, alice, "m1") == "queued"
    confirm(cluster, bob, "m1")
    assert send(cluster, alice, "m1") == "delivered"


def test_a_trace_does_not_say_that_what_is_on_its_way_was_written() -> None:
    """Protocol 9.6.3: `unconfirmed` is what was written; the broker elsewhere has not said that."""
    cluster = Cluster()
    holder(cluster, "b")
    alice = asker(cluster)
    cluster.cut("b", leases_end=False)
    alice.message("bob", "m1")
    assert traced(alice, "m1") == ("reserved", "on its way to b, which has not said what became of it")


def test_who_comes_back_to_its_address_gets_what_was_sent_from_elsewhere_once_and_in_order() -> None:
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert [send(cluster, alice, f"m{number}") for number in range(3)] == ["queued"] * 3
    bob = holder(cluster, "b")
    frames = [*bob.first, *bob.got()]
    assert [f["message"]["content"]["text"] for f in frames if f["type"] == "message"] == ["m0", "m1", "m2"]
    for number in range(3):
        confirm(cluster, bob, f"m{number}")
    assert not cluster["a"].disk.mail and not cluster["b"].disk.mail


def test_mail_for_an_address_whose_broker_is_away_waits_in_the_engine() -> None:
    """``queued`` at once; it is brought there also when the sender's broker has ended meanwhile."""
    cluster = Cluster()
    holder(cluster, "b")
    alice = asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1") == "queued"
    assert [kept.kind for kept in cluster.nodes["b"].queue if kept.kind == "send"] == ["send"]
    cluster.cut("a")
    cluster.join("b")
    bob = holder(cluster, "b")
    assert [f["message"]["content"]["text"] for f in [*bob.first, *bob.got()] if f["type"] == "message"] == ["m1"]
    confirm(cluster, bob, "m1")
    cluster.join("a")
    assert not cluster["a"].disk.mail and bob.texts() == []


def test_what_the_engine_gave_up_is_posted_again_when_the_broker_is_back() -> None:
    cluster = Cluster()
    holder(cluster, "b").leave()
    alice = asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1") == "queued"
    cluster.nodes["b"].queue.clear()
    cluster.join("b")
    cluster.run(Limits().announce_ms)
    bob = holder(cluster, "b")
    assert [f["message"]["content"]["text"] for f in [*bob.first, *bob.got()] if f["type"] == "message"] == ["m1"]


def test_what_is_valid_for_a_time_only_never_lies_in_the_engine() -> None:
    """Clocks of two machines are not compared: it expires here, and its sender is told."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    alice = asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1", validFor=60_000) == "queued"
    assert not [kept for kept in cluster.nodes["b"].queue if kept.kind == "send"]
    cluster.run(60_000 + Limits().peer_absent_ms)
    assert not cluster["a"].disk.mail or all(mail.notice for mail in cluster["a"].disk.mail.values())
    assert [f["notice"]["kind"] for f in alice.got() if f["type"] == "message"] == ["expired"]


def test_mail_that_its_home_refuses_since_its_time_is_over_is_told_to_have_expired() -> None:
    """protocol 6.13.2, 9.5.6: it lay in the engine while its home stood still; told once, and as on one machine."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(Limits().dormant_target_ms + Limits().peer_absent_ms)
    alice = asker(cluster)
    cluster.nodes["b"].is_up = False
    assert send(cluster, alice, "m1", validFor=4_000) == "queued"
    cluster.run(5_000)
    assert alice.got() == []
    cluster.nodes["b"].is_up = True
    cluster.run()
    [notice] = [frame["notice"] for frame in alice.got() if frame["type"] == "message"]
    assert (notice["kind"], notice["reason"]) == ("expired", notices.NO_LONGER_VALID)
    later = holder(cluster, "b")
    assert not [frame for frame in [*later.first, *later.got()] if frame["type"] == "message"]


def test_a_live_holder_elsewhere_is_sent_to_as_ever_and_what_it_does_not_confirm_follows_its_address() -> None:
    cluster = Cluster()
    bob = holder(cluster, "b")
    alice = asker(cluster)
    alice.message("bob", "m1", "one", extra=AWAY)
    cluster.run()
    assert bob.texts() == ["one"]
    cluster.end_leases("b")
    cluster.nodes["b"].is_cut = True
    cluster.run()
    assert only(answers(alice.got()))["type"] == "queued"
    bob.leave()
    cluster.join("b")
    again = holder(cluster, "b")
    cluster.run(Limits().peer_absent_ms)
    shown = [f["message"]["content"]["text"] for f in [*again.first, *again.got()] if f["type"] == "message"]
    assert shown == ["one"]
    confirm(cluster, again, "m1")
    assert not cluster["a"].disk.mail and not cluster["b"].disk.mail and again.texts() == []


def test_without_leave_to_wait_a_send_to_an_address_that_is_away_fails_at_once() -> None:
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert reason(alice.message("bob", "m1")) == reasons.away_unqueued("bob")
    assert reason(alice.ask("bob", "q", extra=AWAY)) == reasons.away("bob")


def test_groups_wall_an_address_off_on_every_machine() -> None:
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    eve = client(cluster, "a", "eve", info={"groups": ["other"]}, **QUEUE)
    eve.got()
    assert reason(eve.message("bob", "m1", extra=AWAY)) == reasons.SESSION_NOT_FOUND


# --- the move -------------------------------------------------------------------------------------------


def test_the_old_home_sends_the_mailbox_over() -> None:
    """Everything that waited comes once, in order, and nothing stays behind."""
    cluster = Cluster("abc")
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    near, far = asker(cluster, "b", "near"), asker(cluster, "c", "far")
    assert [send(cluster, near, "m1"), send(cluster, far, "m2"), send(cluster, near, "m3")] == ["queued"] * 3
    bob = holder(cluster, "a")
    cluster.run(Limits().mail_retry_ms)
    frames = [*bob.first, *bob.got()]
    assert [f["message"]["content"]["text"] for f in frames if f["type"] == "message"] == ["m1", "m2", "m3"]
    for number in (1, 2, 3):
        confirm(cluster, bob, f"m{number}")
    assert not cluster["a"].disk.mail and not cluster["b"].disk.mail and bob.texts() == []
    near.got()
    assert send(cluster, near, "m1") == "delivered"


def test_while_the_move_goes_on_the_old_home_forwards() -> None:
    """F122, F123: who has not heard of the move posts to the old home, which passes it on, once."""
    cluster = Cluster("abc")
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    far = asker(cluster, "c", "far")
    cluster.cut("b", leases_end=False)
    assert far.message("bob", "m1", "m1", extra=AWAY)
    cluster.run()
    bob = holder(cluster, "a")
    assert bob.id and home_of(cluster) == "a"
    cluster.join("b")
    cluster.run(Limits().peer_absent_ms)
    shown = [f["message"]["content"]["text"] for f in [*bob.first, *bob.got()] if f["type"] == "message"]
    assert set(shown) == {"m1"}, "it may be shown again under its id until it was confirmed"
    confirm(cluster, bob, "m1")
    cluster.run(Limits().peer_outcome_ms)
    assert bob.texts() == []
    assert not any(cluster[name].disk.mail for name in "abc")


def test_two_that_take_each_other_for_the_home_do_not_pass_mail_round() -> None:
    """F122: what was passed on once is kept by whoever has it, never sent back to where it came from."""
    cluster = Cluster("abc")
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    far = asker(cluster, "c", "far")
    row = next(iter(cluster["b"].broker._registry.addresses))
    row.home = IDS["a"]
    assert send(cluster, far, "m1") == "queued"
    cluster.run(10 * Limits().peer_absent_ms)
    letters = [post for post in cluster.posts if post.kind == "send"]
    assert not [post for post in letters if post.peer == IDS["c"]]
    held = [mail.message_id for name in "abc" for mail in cluster[name].disk.mail.values()]
    assert held == ["m1"], "it waits in one place"


@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_broker_that_is_killed_during_the_move(killed: str) -> None:
    cluster = Cluster()
    holder(cluster, "b").leave()
    near = asker(cluster, "b", "near")
    assert [send(cluster, near, f"m{number}") for number in range(3)] == ["queued"] * 3
    world = cluster["a"]
    claim(cluster, "a")
    cluster.crash(killed)
    assert home_of(cluster) == "a"
    bob = holder(cluster, "a")
    cluster.run(Limits().peer_absent_ms)
    shown = [f["message"]["content"]["text"] for f in [*bob.first, *bob.got()] if f["type"] == "message"]
    assert sorted(set(shown)) == ["m0", "m1", "m2"] and world is cluster["a"]
    for number in range(3):
        confirm(cluster, bob, f"m{number}")
    cluster.run(Limits().peer_absent_ms)
    assert not cluster["a"].disk.mail and not cluster["b"].disk.mail


def test_a_question_to_an_address_elsewhere_is_answered_by_whoever_holds_it() -> None:
    cluster = Cluster()
    bob = holder(cluster, "b")
    alice = asker(cluster)
    alice.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, bob, "q")
    assert only(answers(alice.got()))["type"] == "delivered"
    bob.got()
    bob.reply(alice.id, "r", "q", "because")
    cluster.run()
    reply = message_in(alice.got())
    assert (reply["message"]["replyTo"], reply["message"]["content"]["text"]) == ("q", "because")


def asked(names: str = "ab") -> tuple[Cluster, Client, Client]:
    """Return an asker and the holder of an address on another machine that has its question."""
    cluster = Cluster(names)
    bob = holder(cluster, "b")
    alice = asker(cluster)
    alice.ask("bob", "q", "why?")
    cluster.run()
    confirm(cluster, bob, "q")
    alice.got(), bob.got()
    return cluster, alice, bob


def replied(cluster: Cluster, who: Client, asker_id: str, message_id: str) -> list[dict[str, Any]]:
    """Answer the question, as ``intercom reply`` does; return what came by then."""
    frames = who.reply(asker_id, message_id, "q", "because")
    cluster.run()
    return [*frames, *who.got()]


@pytest.mark.parametrize("is_known_for_long", [True, False])
def test_who_acts_under_the_address_that_was_asked_answers_across_machines(is_known_for_long: bool) -> None:
    """protocol 6.13.7, 6.5: as on one machine; a command is gone before other brokers hear of it."""
    cluster, alice, bob = asked()
    command = claim(cluster, "b", hold="none")
    if is_known_for_long:
        cluster.run(Limits().announce_ms)
        alice.got()
    replied(cluster, command, alice.id, "r")
    frames = alice.got()
    told = only([frame for frame in frames if frame["type"] == "question_target"])
    assert (told["messageId"], told["sessionId"]) == ("q", command.id)
    reply = message_in(frames)["message"]
    assert (reply["replyTo"], reply["content"]["text"]) == ("q", "because")
    confirm(cluster, alice, "r")
    assert only(answers(command.got()))["type"] == "delivered"
    assert reason(replied(cluster, bob, alice.id, "r2")) == reasons.NO_OPEN_QUESTION


def test_a_command_answers_for_an_address_while_the_engine_is_gone() -> None:
    """protocol 6.13.3, 6.13.4: it has ended by the time its answer arrives, which closes the question all the same"""
    cluster, alice, _ = asked()
    cluster.cut("b", leases_end=False)
    command = claim(cluster, "b", hold="none")
    may_wait = {"requirePendingReply": True, **AWAY}
    frames = command.message(alice.id, "r", "because", extra=may_wait, replyTo="q")
    assert only(answers(frames))["type"] == "queued"
    command.leave()
    cluster.join("b")
    assert message_in(alice.got())["message"]["replyTo"] == "q"
    confirm(cluster, alice, "r")
    assert reason(alice.ask("bob", "q", "why?")) == reasons.ALREADY_ANSWERED


def test_nobody_else_answers_what_an_address_elsewhere_was_asked() -> None:
    """protocol 6.13.7: another session there does not, nor one whose broker is not the home of the address."""
    cluster, alice, _ = asked("abc")
    near_bob = client(cluster, "b", "carol", **QUEUE)
    assert reason(replied(cluster, near_bob, alice.id, "r1")) == reasons.NO_OPEN_QUESTION
    sender = RemoteName("x", "bob", ("default",), "active", IDS["c"], session=b"{}", acts_for=("default", "bob"))
    message = Raw(encode({"id": "r2", "timestamp": 1, "replyTo": "q", "content": {"text": "forged"}}))
    letter = SendLetter("r2", alice.id, "m", "1", sender, message, pending_reply=True)
    cluster["a"].peer_told(Arrived(99, IDS["c"], SEND, "x", encode(letter)))
    [posted] = [post for post in cluster["a"].peer_work if isinstance(post, Post)]
    assert decode(posted.body, type=OutcomeLetter).reason == reasons.NO_OPEN_QUESTION
    assert alice.texts() == []


def test_mail_that_comes_back_to_the_broker_of_its_sender_is_its_own() -> None:
    """It was handed to another home, and that has moved here since: it waits here again, and arrives once."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert [send(cluster, alice, f"m{number}") for number in range(2)] == ["queued"] * 2
    assert not cluster["a"].disk.mail
    bob = holder(cluster, "a")
    cluster.run(Limits().mail_retry_ms)
    shown = [f["message"]["content"]["text"] for f in [*bob.first, *bob.got()] if f["type"] == "message"]
    assert shown == ["m0", "m1"]
    assert not cluster["b"].disk.mail
    for number in range(2):
        confirm(cluster, bob, f"m{number}")
    assert not cluster["a"].disk.mail
    assert send(cluster, alice, "m0") == "delivered"


def test_a_name_and_a_machine_pick_one_address() -> None:
    """FE 3.4, ``name@node``: also while its holder is away; a machine it is not at home on leads to nobody."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    holder(cluster, "a", "depot").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert send(cluster, alice, "m1", "bob@b") == "queued"
    assert send(cluster, alice, "m2", "Depot@A") == "queued"
    assert reason(alice.message("bob@a", "m3", extra=AWAY)) == reasons.SESSION_NOT_FOUND
    assert [mail.message_id for mail in cluster["b"].disk.mail.values()] == ["m1"]
    assert [mail.message_id for mail in cluster["a"].disk.mail.values()] == ["m2"]
    holder(cluster, "a", groups=["other", "default"]).leave()
    cluster.run(2 * Limits().announce_ms)
    said = reason(alice.message("bob", "m4", extra=AWAY))
    assert reasons.code_of(said) == "ambiguous"
    assert "name bob@a or bob@b or send from only one" in said, said


def test_a_name_and_a_machine_that_mean_several_addresses_pick_none() -> None:
    """protocol 4.8 E2, addresses of two groups, both of them within reach."""
    cluster = Cluster()
    for group in ("g", "h"):
        world, address = cluster["b"], {"name": "bob", "token": TOKEN}
        members = {**QUEUE, "features": FEATURES, "returnAddress": f"return-{group}", "acknowledgesReceipt": True}
        conn = world.connect()
        world.send(
            conn, type="register", session={**INFO, "name": "bob", "groups": [group]}, address=address, **members
        )
        cluster.run(Limits().announce_ms)
        world.send(conn, type="unregister")
    cluster.run(2 * Limits().announce_ms)
    far = client(cluster, "a", "far", info={"groups": ["g", "h"]}, **QUEUE)
    assert reason(far.message("bob@b", "m1", extra=AWAY)).startswith("Several are away that can be meant by")
    assert not cluster["b"].disk.mail
    near = client(cluster, "a", "near", info={"groups": ["h"]}, **QUEUE)
    assert send(cluster, near, "m2", "bob@b") == "queued"


def test_a_claim_that_is_decided_after_nobody_waits_for_it_is_completed() -> None:
    """Others can take the address over by its token, although its first holder was registered before it was claimed."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    cluster.run(Limits().claim_ms)
    assert "registered" in [frame["type"] for frame in bob.got()]
    held, cluster.held_claims = cluster.held_claims, None
    for node, each in held:
        cluster.decide(node, each)
    cluster.run(Limits().announce_ms)
    holder(cluster, "a")
    assert home_of(cluster) == "a"


def test_an_address_nobody_came_for_is_given_back() -> None:
    """Its registration was refused, or its connection ended, after it was claimed."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    bob.world.end(bob.conn)
    held, cluster.held_claims = cluster.held_claims, None
    for node, each in held:
        cluster.decide(node, each)
    cluster.run(Limits().announce_ms)
    assert not cluster.addresses


# --- a session is announced before it is known that its address has moved --------------------------------


class Late:
    """Let a session at ``b`` hold an address that, as ``a`` believes, is at home at ``a``; alice writes there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster = Cluster()
        holder(cluster, "a", "depot").leave()
        self.alice = asker(cluster)
        cluster.run(2 * Limits().announce_ms)
        self.untold: list[Any] = []
        monkeypatch.setattr(cluster, "_tell_all", self._tell)
        self.depot = holder(cluster, "b", "depot")
        assert home_of(cluster, "depot") == "b" and self.untold

    def _tell(self, fact: Any) -> None:
        self.untold.append(fact)
        self.cluster["b"].peer_told(fact)

    def tell(self) -> None:
        """Let ``a`` know where the address is at home."""
        for fact in self.untold:
            self.cluster["a"].peer_told(fact)
        self.cluster.run(Limits().announce_ms)

    def shown(self) -> list[str]:
        frames = [*self.depot.first, *self.depot.got()]
        self.depot.first = []
        return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def test_a_retry_by_the_address_finds_what_arrived_by_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """D8 and D13 across machines: one message, whatever its target is known by when it is sent again."""
    late = Late(monkeypatch)
    late.alice.message("depot", "m1", "m1", extra=AWAY)
    late.alice.message("depot", "m2", "m2", extra=AWAY)
    late.cluster.run()
    assert late.shown() == ["m1", "m2"]
    confirm(late.cluster, late.depot, "m1")
    late.tell()
    assert only(answers(late.alice.got())[:1])["type"] == "delivered"
    assert send(late.cluster, late.alice, "m1", "depot") == "delivered"
    confirm(late.cluster, late.depot, "m2")
    late.cluster.run(Limits().peer_outcome_ms)
    assert send(late.cluster, late.alice, "m2", "depot") == "delivered"
    assert set(late.shown()) <= {"m2"} and not late.cluster["a"].disk.mail, "nothing comes that was confirmed"


def test_a_retry_before_it_is_known_where_the_address_is_finds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: delivered to the holder here; its name means one on another machine now, which holds the same address."""
    cluster = Cluster()
    depot, alice = holder(cluster, "a", "depot"), asker(cluster)
    alice.message("depot", "m1", "m1", extra=AWAY)
    assert "delivered" in [frame["type"] for frame in [*depot.write("received", messageId="m1"), *alice.got()]]
    depot.leave()
    cluster.run(2 * Limits().announce_ms)
    monkeypatch.setattr(cluster, "_tell_all", lambda fact: cluster["b"].peer_told(fact))
    there = holder(cluster, "b", "depot")
    assert send(cluster, alice, "m1", "depot") == "delivered"
    assert [frame for frame in [*there.first, *there.got()] if frame["type"] == "message"] == []


def test_what_waits_for_a_session_that_claims_an_address_waits_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 3.2: this broker is cut off, and dies before it hears of the move; the mail finds the address all the same."""
    late = Late(monkeypatch)
    cluster = late.cluster
    cluster.cut("a", leases_end=False)
    assert send(cluster, late.alice, "m1", "depot") == "queued"
    [mail] = cluster["a"].disk.mail.values()
    assert mail.mailbox.startswith("address:")
    cluster.crash("a")
    late.tell()
    cluster.run(Limits().peer_outcome_ms)
    assert late.shown() == ["m1"]


def test_by_what_a_message_arrives_makes_no_other_message_of_it() -> None:
    """protocol 6.9.1, 6.13: to the session first, then for its address; another text makes one."""
    cluster = Cluster()
    depot = holder(cluster, "b", "depot")
    sender = RemoteName("x", "alice", ("default",), "active", IDS["a"], session=b"{}", identity="return:alice")

    def arrives(number: int, text: str = "m1", **by: Any) -> OutcomeLetter:
        message = Raw(encode({"id": "m1", "timestamp": 1, "content": {"text": text}}))
        letter = SendLetter("m1", depot.id, "m", str(number), sender, message, may_queue=True, **by)
        cluster["b"].peer_told(Arrived(90 + number, IDS["a"], SEND, "x", encode(letter)))
        if number == 1:
            depot.write("received", messageId="m1")
        posted = [each for each in cluster["b"].peer_work if isinstance(each, Post) and each.kind == "outcome"]
        return decode(posted[-1].body, type=OutcomeLetter)

    assert arrives(1).result == "delivered"
    assert arrives(2, address=("default", "depot")).result == "delivered"
    assert arrives(3, text="another").code == "message_id_conflict"


def test_of_too_much_that_has_no_outcome_the_oldest_is_told_by_any() -> None:
    """Charge before you link: what was posted first is forgotten, and what became of it counts all the same."""
    cluster = Cluster(limits=Limits(unconfirmed_total_frames=2))
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    cluster.cut("b")
    assert [send(cluster, alice, f"m{number}") for number in range(4)] == ["queued"] * 4
    cluster.join("b")
    bob = holder(cluster, "b")
    frames = [*bob.first, *bob.got()]
    assert [f["message"]["content"]["text"] for f in frames if f["type"] == "message"] == ["m0", "m1", "m2", "m3"]
    for number in range(4):
        confirm(cluster, bob, f"m{number}")
    assert not cluster["a"].disk.mail and not cluster["b"].disk.mail


# --- what the engine says, in every order ---------------------------------------------------------------


def known_address(cluster: Cluster, name: str = "bob") -> AddressHome:
    """Return an address as the engine holds it."""
    [address] = [each for each in cluster.addresses.values() if each.name == name]
    return address


def is_here(cluster: Cluster, broker: str, name: str = "bob") -> bool:
    """Tell whether a broker takes itself for the home of an address."""
    found = cluster[broker].broker._registry.addresses.at("default", name)
    return found is not None and found.home is None


def test_news_of_an_address_that_is_older_than_what_was_won_says_nothing() -> None:
    """protocol 6.13.3: what a broker won it knows before the engine tells it what was there before."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    before = known_address(cluster)
    bob = holder(cluster, "a")
    cluster["a"].peer_told(AddressSeen(before.key, before))
    cluster.run(Limits().announce_ms)
    assert is_here(cluster, "a") and "replaced" not in [frame["type"] for frame in bob.got()]


def test_an_address_that_the_engine_lost_is_claimed_once_more() -> None:
    """F124: whatever is deleted there is put there again by whoever has it."""
    cluster = Cluster()
    holder(cluster, "b")
    address = known_address(cluster)
    for is_told_at_once in (True, False):
        cluster.addresses.clear()
        told = AddressSeen(address.key, None) if is_told_at_once else AddressesKnown(frozenset())
        for name in "ab":
            cluster[name].peer_told(told)
        cluster.run()
        assert home_of(cluster) == "b"


def test_what_an_earlier_process_won_and_did_not_hear_of_is_at_home_here() -> None:
    """protocol 6.13.3: the engine says so when it is back."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    asker(cluster, "a")
    cluster.run(2 * Limits().announce_ms)
    assert not is_here(cluster, "a")
    won = replace(known_address(cluster), home=IDS["a"], revision=99)
    cluster.addresses[won.key] = won
    for name in "ab":
        cluster[name].peer_told(AddressSeen(won.key, won))
    cluster.run()
    assert is_here(cluster, "a") and not is_here(cluster, "b")
    assert holder(cluster, "a").id


def test_an_address_whose_token_is_not_told_yet_changes_nothing_here() -> None:
    """protocol 6.13.3: whose it is will be told."""
    cluster = Cluster()
    bob = holder(cluster, "b")
    unnamed = replace(known_address(cluster), home=IDS["a"], token_hash="", revision=99)
    cluster["b"].peer_told(AddressSeen(unnamed.key, unnamed))
    assert is_here(cluster, "b") and "replaced" not in [frame["type"] for frame in bob.got()]


def test_an_address_that_is_not_here_any_more_is_dropped_from_the_engine() -> None:
    """protocol 6.13.3: after a store was put aside its broker answers for none of it."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    disk = cluster["b"].disk
    disk.addresses.clear()
    cluster.crash("b")
    assert not cluster.addresses
    assert cluster["a"].broker


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_address_that_gives_way_is_forgotten_everywhere(is_cut: bool) -> None:
    """protocol 6.13.3, design 7 (addresses): what nobody uses gives way when there are too many."""
    cluster = Cluster(limits=Limits(addresses=3))
    holder(cluster, "b", "one").leave()
    holder(cluster, "b", "two").leave()
    cluster.run(Limits().address_idle_ms)
    if is_cut:
        cluster.cut("b")
    names = set()
    for name in ("three", "four"):
        assert claim(cluster, "b", name).id
    names = {address.name for address in cluster["b"].broker._registry.addresses}
    assert "one" not in names
    if is_cut:
        cluster.join("b")
    assert "one" not in {address.name for address in cluster.addresses.values()}


def ahead(cluster: Cluster) -> Client:
    """Return a holder that came to the second broker while the address was at home at the first, unheard of."""
    holder(cluster, "a").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.cut("b")
    bob = claim(cluster, "b")
    assert bob.id and is_here(cluster, "b")
    return bob


def test_a_holder_that_came_and_left_while_the_engine_was_away_leaves_the_address_where_it_was() -> None:
    """protocol 6.13.3: only somebody who holds it moves it."""
    cluster = Cluster()
    ahead(cluster).leave()
    cluster.join("b")
    assert home_of(cluster) == "a" and not is_here(cluster, "b")


def test_a_holder_that_came_while_the_engine_was_away_yields_to_another_token() -> None:
    """protocol 6.13.3: the address was given up and begun anew elsewhere meanwhile."""
    cluster = Cluster()
    bob = ahead(cluster)
    known = known_address(cluster)
    cluster.addresses[known.key] = replace(known, token_hash=sha256(OTHER.encode()).hexdigest(), revision=99)
    cluster.join("b")
    assert home_of(cluster) == "a" and not is_here(cluster, "b")
    assert [frame["by"] for frame in bob.got() if frame["type"] == "replaced"] == ["address"]


def test_what_was_being_claimed_when_the_engine_goes_away_is_claimed_once_more() -> None:
    """protocol 6.13.3"""
    cluster = Cluster()
    cluster.cut("b")
    assert claim(cluster, "b").id
    cluster.held_claims = []
    cluster.join("b")
    assert len(cluster.held_claims) == 1
    cluster.cut("b")
    cluster.held_claims = None
    assert not cluster.addresses
    cluster.join("b")
    assert home_of(cluster) == "b"


@pytest.mark.parametrize("ends", [False, True])
def test_who_waits_for_the_engine_when_it_goes_away_goes_on_here(ends: bool) -> None:
    """protocol 6.13.3: nobody waits for what it would have said; who has gone meanwhile is not let in."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    again = {"name": "bob", "token": TOKEN}
    assert cluster["b"].send(bob.conn, type="register", session=INFO, features=FEATURES, address=again) == []
    assert len(cluster.held_claims) == 1
    if ends:
        cluster["b"].end(bob.conn)
    cluster.cut("b")
    assert [frame["type"] for frame in bob.got() if frame["type"] == "registered"] == ([] if ends else ["registered"])


def test_who_waits_for_an_address_elsewhere_when_the_engine_goes_away_holds_it_here() -> None:
    """protocol 6.13.3: it showed the token; the others hear of it later."""
    cluster = Cluster()
    holder(cluster, "a").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.held_claims = []
    bob = claim(cluster, "b")
    assert bob.first == []
    cluster.cut("b")
    assert "registered" in [frame["type"] for frame in bob.got()] and is_here(cluster, "b")
    cluster.held_claims = None
    cluster.join("b")
    assert home_of(cluster) == "b"


def test_a_claim_of_an_address_that_the_engine_cannot_decide_is_left_alone() -> None:
    """protocol 6.13.3: the engine holds something under its key that is not of this cluster."""
    cluster = Cluster()
    cluster.cut("b")
    bob = claim(cluster, "b")
    cluster.held_claims = []
    cluster.join("b")
    [(node, each)] = cluster.held_claims
    cluster.held_claims = []
    node.world.peer_told(AddressClaimed(each.number, False, None))
    cluster.run()
    assert cluster.held_claims == [] and is_here(cluster, "b") and bob.id


def test_a_claim_from_before_everything_was_told_anew_does_not_count_as_the_newest() -> None:
    """protocol 6.13.3: the engine was told once more; each claim is answered, the newest says how it is."""
    cluster = Cluster()
    cluster.cut("b")
    claim(cluster, "b")
    cluster.held_claims = []
    cluster.join("b")
    cluster["b"].peer_told(AddressesKnown(frozenset()))
    cluster.run()
    held, cluster.held_claims = cluster.held_claims, None
    assert len(held) == 2
    for node, each in held:
        cluster.decide(node, each)
    cluster.run()
    assert home_of(cluster) == "b" and is_here(cluster, "b")


def test_news_of_a_claim_may_come_before_its_answer() -> None:
    """protocol 6.13.3: who waits for it goes on when it is answered."""
    cluster = Cluster()
    holder(cluster, "a").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.held_claims = []
    bob = claim(cluster, "b")
    [(_, each)] = cluster.held_claims
    cluster.held_claims = None
    cluster.revision += 1
    cluster.addresses[each.address.key] = won = replace(each.address, revision=cluster.revision)
    cluster["b"].peer_told(AddressSeen(won.key, won))
    assert bob.got() == []
    cluster["b"].peer_told(AddressClaimed(each.number, True, won))
    cluster.run()
    assert "registered" in [frame["type"] for frame in bob.got()] and home_of(cluster) == "b"


def test_what_waits_for_another_machine_beside_what_was_posted_comes_when_that_is_seen_again() -> None:
    """protocol 6.13: of much mail only some is posted at a time."""
    cluster = Cluster(limits=Limits(mail_offers=1))
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    cluster.cut("b")
    assert [send(cluster, alice, f"m{number}") for number in range(3)] == ["queued"] * 3
    assert len([kept for kept in cluster.nodes["b"].queue if kept.kind == "send"]) == 1
    cluster.join("b")
    bob = holder(cluster, "b")
    shown: list[str] = []
    came = [*bob.first, *bob.got()]
    for frame in came:
        if frame["type"] == "message":
            shown.append(frame["message"]["id"])
            came += bob.write("received", messageId=shown[-1])
            cluster.run()
            came += bob.got()
    assert shown == ["m0", "m1", "m2"]


def test_mail_that_its_home_knows_nothing_of_waits_until_it_does() -> None:
    """protocol 6.13: the address may have moved, and that home has not heard of it; nothing is given up."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1") == "queued"
    cluster["b"].disk.addresses.clear()
    held, cluster.addresses = cluster.addresses, {}
    cluster.crash("b")
    assert alice.got() == [] and len(cluster["a"].disk.mail) == 1 and held
    bob = holder(cluster, "b")
    cluster.run(2 * Limits().peer_absent_ms)
    frames = [*bob.first, *bob.got()]
    assert [f["message"]["content"]["text"] for f in frames if f["type"] == "message"] == ["m1"]


def moved_here(room: int) -> tuple[Cluster, Client, SendLetter]:
    """Return a cluster in which an address has moved to its sender's broker, and what its old home sends over."""
    cluster = Cluster(limits=Limits(mailbox_entries=room))
    holder(cluster, "b").leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    assert send(cluster, alice, "m1") == "queued"
    cluster.cut("b", leases_end=False)
    claim(cluster, "a").leave()
    cluster.run(2 * Limits().announce_ms)
    assert is_here(cluster, "a")
    body = {"id": "m1", "timestamp": 1, "content": {"text": "m1"}}
    name = RemoteName(alice.id, "alice", ("default",), "active", IDS["b"], session=b"{}")
    return cluster, alice, SendLetter("m1", "", "k", "b.1", name, Raw(encode(body)), True, address=("default", "bob"))


def brought(cluster: Cluster, letter: SendLetter) -> OutcomeLetter:
    """Bring a letter from the old home, and return what is said of it."""
    cluster["a"].peer_told(Arrived(99, IDS["b"], SEND, "x", encode(letter)))
    posted = [work for work in cluster["a"].peer_work if isinstance(work, Post) and work.delivery_id == "x"]
    return decode(posted[-1].body, type=OutcomeLetter)


@pytest.mark.parametrize("why", ["full", "closed"])
def test_mail_that_comes_back_and_cannot_be_taken_is_refused_for_now(why: str) -> None:
    """protocol 6.13: its old home keeps it."""
    cluster, alice, letter = moved_here(1 if why == "full" else 9)
    other = asker(cluster, "a", "other")
    if why == "full":
        other.message("bob", "m2", extra=AWAY)
        cluster.run(Limits().look_ms)  # its old home is asked first, and cannot be heard
        assert only(answers(other.got()))["type"] == "queued"
    else:
        cluster["a"].auto = False
        other.message(alice.id, "m2")
        cluster["a"].fail_commit(final=True)
        cluster["a"].auto = True
    assert brought(cluster, letter).result == "failed"
    assert [row.message_id for row in cluster["a"].disk.mail.values()] == (["m2"] if why == "full" else [])


def test_mail_for_a_session_elsewhere_follows_the_address_under_which_it_comes_back() -> None:
    """protocol 6.13: that broker sends over what waited there, and the address has moved to where it was written."""
    cluster = Cluster()
    bob, alice = client(cluster, "b", "bob", **QUEUE), asker(cluster)
    cluster.cut("b")
    assert send(cluster, alice, "m1") == "queued"
    cluster.addresses.clear()
    claim(cluster, "a").leave()
    [mark] = [row.mailbox for row in cluster["a"].disk.mail.values()]
    assert mark.endswith(bob.id)
    body = {"id": "m1", "timestamp": 1, "content": {"text": "m1"}}
    name = RemoteName(alice.id, "alice", ("default",), "active", IDS["b"], session=b"{}")
    letter = SendLetter("m1", "", "k", "b.1", name, Raw(encode(body)), True, address=("default", "bob"))
    assert brought(cluster, letter).result == "queued"
    [row] = cluster["a"].disk.mail.values()
    address = cluster["a"].broker._registry.addresses.at("default", "bob")
    assert address is not None and (row.message_id, row.mailbox) == ("m1", address.key)


def test_the_answer_to_a_claim_says_less_than_what_was_heard_since() -> None:
    """protocol 6.13.3: revisions tell which is newer."""
    cluster = Cluster()
    cluster.held_claims = []
    bob = claim(cluster, "b")
    [(_, each)] = cluster.held_claims
    cluster.held_claims = None
    won = replace(each.address, revision=1)
    newer = replace(each.address, home=IDS["a"], token_hash=sha256(TOKEN.encode()).hexdigest(), revision=2)
    cluster.revision = 2
    cluster.addresses[newer.key] = newer
    cluster["b"].peer_told(AddressSeen(newer.key, newer))
    cluster["b"].peer_told(AddressClaimed(each.number, True, won))
    cluster.run()
    assert "registered" in [frame["type"] for frame in bob.got()]
    assert home_of(cluster) == "b", "whoever showed the token last"


def test_the_mailbox_of_an_address_elsewhere_is_said_to_be_there() -> None:
    """FE 3.7: peers see nothing of each other's mail; what waits here to be brought there is shown as that."""
    cluster = Cluster()
    holder(cluster, "b", "depot").leave()
    cluster.run(2 * Limits().announce_ms)
    cluster.cut("a")
    alice = asker(cluster)
    assert send(cluster, alice, "m1", "depot") == "queued"
    info = {"recipientPurpose": "control"}
    boss = cluster["a"].register("op", info=info, **{**QUEUE, "features": ["operator"]})
    [told] = [frame for frame in boss.write("mailbox", requestId="m", of={"address": "depot"}) if "owner" in frame]
    assert told["owner"] == "depot in default (at home on b; here waits only what is to be brought there)"
    assert [entry["messageId"] for entry in told["entries"]] == ["m1"]


def test_nothing_overtakes_what_is_valid_for_a_time_while_its_machine_is_away() -> None:
    """Cluster 3, Order per sender and target: what may not lie in the engine holds up what its sender wrote later."""
    cluster = Cluster()
    holder(cluster, "b").leave()
    alice, near = asker(cluster), asker(cluster, "a", "near")
    cluster.cut("b")
    assert send(cluster, alice, "m1") == send(cluster, alice, "m2", validFor=600_000) == "queued"
    assert send(cluster, alice, "m3") == send(cluster, alice, "m4", validFor=10_000) == "queued"
    assert send(cluster, near, "n1") == send(cluster, alice, "m5") == "queued"
    in_engine = [decode(kept.body)["message_id"] for kept in cluster.nodes["b"].queue if kept.kind == "send"]
    assert in_engine == ["m1", "n1"], "nobody else is held up"
    cluster.run(10_000 + Limits().peer_absent_ms)
    cluster.nodes["b"].queue.clear()
    cluster.join("b")
    bob = holder(cluster, "b")
    cluster.run(Limits().peer_absent_ms)
    cluster.run(Limits().peer_absent_ms)
    shown = [f["message"]["id"] for f in [*bob.first, *bob.got()] if f["type"] == "message"]
    assert [message_id for message_id in shown if message_id != "n1"] == ["m1", "m2", "m3", "m5"]
    assert sorted(shown) == ["m1", "m2", "m3", "m5", "n1"]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_nothing_overtakes_it_when_its_machine_is_back(is_noticed: bool) -> None:
    """The same where the way was cut for so short that nobody was seen to leave, and while it is tried again."""
    cluster = Cluster()
    bob = holder(cluster, "b")
    bob.leave()
    cluster.run(2 * Limits().announce_ms)
    alice = asker(cluster)
    cluster.cut("a", leases_end=is_noticed)
    assert send(cluster, alice, "m1", validFor=600_000) == "queued"
    cluster.run(1_000)
    cluster.join("a")
    assert send(cluster, alice, "m2") == "queued"
    cluster.run(Limits().peer_absent_ms)
    cluster.run(Limits().peer_absent_ms)
    bob = holder(cluster, "b")
    assert [f["message"]["id"] for f in [*bob.first, *bob.got()] if f["type"] == "message"] == ["m1", "m2"]
