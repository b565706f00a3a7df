"""Test addresses: durable names, one holder, nothing opened by a name alone (design section 7, Addresses)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.addresses import ME
from intercom.limits import ADDRESS_LEFT_MS, Limits
from intercom.wire import reasons
from tests.core.harness import INFO, World, answers, only, reason, types, without_announcements
from tests.core.mail import AGENT, PEER, Agent, enter, holder, reattach


def claim(world: World, name: str, group: str | None = None, **address: Any) -> dict[str, Any]:
    """Try to register under an address; return the first answer."""
    return claim_later(world, name, group, **address)[0]


def claim_later(world: World, name: str, group: str | None = None, **address: Any) -> list[dict[str, Any]]:
    """Try to register under an address; return what came at once."""
    conn = world.connect(PEER)
    info = {**INFO, "name": name, **({} if group is None else {"groups": [group]})}
    return world.send(
        conn,
        type="register",
        session=info,
        returnAddress=f"return-{conn}",
        acknowledgesReceipt=True,
        features=list(AGENT),
        clientProtocolVersion="1.0",
        kind="custom",
        address={"name": name, **address},
    )


def ids(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def test_the_first_registration_creates_it_and_gets_its_token_once() -> None:
    world = World()
    first = holder(world, "bob")
    token = first.registered["addressToken"]
    assert len(token) == 64
    assert token not in str(world.disk.addresses) + str(world.disk.journal)
    again = holder(world, "bob", token)
    assert "addressToken" not in again.registered
    assert len(world.disk.addresses) == 1


def test_a_wrong_token_is_refused() -> None:
    world = World()
    holder(world, "bob")
    for address in ({}, {"token": "wrong"}, {"hold": "none"}, {"token": "", "hold": "free"}):
        refused = claim(world, "bob", **address)
        assert refused["type"] == "registration_failed"
        assert refused["code"] in ("address_taken", "address_held"), address
    assert claim(world, "BOB", token="wrong")["code"] == "address_taken"


def test_the_newest_rightful_holder_replaces_the_older() -> None:
    world = World()
    older = holder(world, "bob")
    newer = holder(world, "bob", older.registered["addressToken"])
    told = [frame for frame in older.got() if frame["type"] == "replaced"]
    assert told == [{"type": "replaced", "by": "address", "sessionId": newer.id}]
    assert older.conn in world.finished
    sender = enter(world, "a")
    sender.queue("bob", "m1")
    assert ids(newer.got()) == ["m1"]


def test_hold_free_replaces_nobody() -> None:
    world = World()
    older = holder(world, "bob")
    token = older.registered["addressToken"]
    assert claim(world, "bob", token=token, hold="free")["code"] == "address_held"
    older.leave()
    assert claim(world, "bob", token=token, hold="free")["type"] == "registered"


def test_hold_none_acts_under_it_without_its_mail() -> None:
    """Neither name nor mail go to it; what is sent to its id after it left goes to the mailbox."""
    world = World()
    bob = holder(world, "bob")
    token = bob.registered["addressToken"]
    helper = holder(world, "bob", token, "none")
    sender = enter(world, "a")
    sender.queue("bob", "m1")
    assert ids(bob.got()) == ["m1"]
    assert helper.mail() == []
    helper.write("unregister")
    sender.queue(helper.id, "m2")
    assert ids(bob.got()) == ["m2"]
    bob.confirm("m1", "m2")
    bob.write("unregister")
    sender.got()
    assert only(answers(sender.queue(helper.id, "m3")))["type"] == "queued"
    assert ids(holder(world, "bob", token).first) == ["m3"]


def test_two_of_a_name_are_not_ambiguous_when_one_holds_the_address() -> None:
    world = World()
    bob = holder(world, "bob")
    enter(world, "bob")
    sender = enter(world, "a")
    sender.queue("bob", "m1")
    assert ids(bob.got()) == ["m1"]


def test_mail_waits_for_an_address_that_nobody_holds() -> None:
    world = World()
    bob = holder(world, "bob")
    token = bob.registered["addressToken"]
    bob.write("unregister")
    sender = enter(world, "a")
    assert only(answers(sender.queue("BOB", "m1")))["type"] == "queued"
    world.crash()
    assert ids(holder(world, "bob", token).first) == ["m1"]


def test_an_address_is_found_in_the_groups_it_last_had() -> None:
    world = World()
    bob = holder(world, "bob", info={"groups": ["one"]})
    bob.write("join_group", requestId="j", group="two")
    bob.write("unregister")
    in_two = enter(world, "a", info={"groups": ["two"]})
    elsewhere = enter(world, "c", info={"groups": ["three"]})
    assert only(answers(in_two.queue("bob", "m1")))["type"] == "queued"
    assert reason(answers(elsewhere.queue("bob", "m2"))) == reasons.SESSION_NOT_FOUND


def test_two_addresses_that_match_are_ambiguous() -> None:
    world = World()
    for group in ("one", "two"):
        holder(world, "bob", info={"groups": [group]}).write("unregister")
    sender = enter(world, "a", info={"groups": ["one", "two"]})
    assert reason(answers(sender.queue("bob", "m1"))) == reasons.ambiguous_away("bob", ["one", "two"], [])
    alone = enter(world, "b", info={"groups": ["two"]})
    assert only(answers(alone.queue("bob", "m1")))["type"] == "queued", "as it is advised"


def test_an_address_and_a_session_that_are_away_are_ambiguous() -> None:
    """Protocol 9.5.1: each is named so that it can be meant alone"""
    world = World()
    holder(world, "bob", info={"groups": ["one"]}).write("unregister")
    lost = enter(world, "bob", info={"groups": ["two"]})
    lost.leave()
    sender = enter(world, "a", info={"groups": ["one", "two"]})
    told = reason(answers(sender.queue("bob", "m1")))
    assert told == reasons.ambiguous_away("bob", ["one"], [lost.id])
    assert only(answers(sender.queue(lost.id, "m1")))["type"] == "queued"


def test_nobody_opens_a_mailbox_without_its_token() -> None:
    """Design section 7: a session id, name or returnAddress alone never opens a mailbox; before and after a restart."""
    for restarts in (False, True):
        world = World()
        bob = holder(world, "bob", returnAddress="known")
        bob.write("unregister")
        sender = enter(world, "a")
        sender.queue("bob", "m1")
        if restarts:
            world.crash()
        tries = (
            {"session": {**INFO, "name": "bob"}},
            {"session": INFO, "preferredSessionId": bob.id, "returnAddress": "known"},
            {"session": {**INFO, "name": "bob"}, "returnAddress": "known", "preferredSessionId": bob.id},
        )
        for request in tries:
            conn = world.connect()
            frames = world.send(conn, type="register", acknowledgesReceipt=True, **request)
            assert ids(frames) == [], request
            world.end(conn)
        assert len(world.disk.mail) == 1


def test_the_person_is_reachable_from_every_group() -> None:
    """Design section 7: `@me` is the broker's own address, looked up before names."""
    world = World()
    sender = enter(world, "a", info={"groups": ["elsewhere"]})
    enter(world, "@me", info={"groups": ["elsewhere"]})
    assert only(answers(sender.queue(ME, "m1")))["type"] == "queued"
    me = holder(world, ME, info={"groups": ["default"]})
    assert ids(me.first) == ["m1"]
    sender.queue("@ME", "m2")
    assert ids(me.got()) == ["m2"]


def test_a_question_to_the_person_waits_and_is_answered_from_anywhere() -> None:
    """Design section 7, Queueing: an ask is queued only for an address that answers later, its question opens then."""
    world = World()
    asker = enter(world, "a")
    ask = {"queueIfAway": True}
    assert only(answers(asker.message(ME, "q1", "?", expectsReply=True, extra=ask)))["type"] == "queued"
    me = holder(world, ME)
    token = me.registered["addressToken"]
    assert ids(me.first) == ["q1"]
    me.confirm("q1")
    me.write("unregister")
    helper = holder(world, ME, token, "none")
    pending = only(helper.write("pending", requestId="p"))["asks"]
    assert [entry["messageId"] for entry in pending] == ["q1"]
    assert reason(answers(helper.reply(asker.id, "r0", "q0"))) == reasons.NO_OPEN_QUESTION
    helper.reply(asker.id, "r1", "q1")
    assert ids(asker.got()) == ["r1"]
    asker.confirm("r1")
    assert only(answers(helper.got()))["type"] == "delivered"
    assert only(helper.write("pending", requestId="p"))["asks"] == []


@pytest.mark.parametrize("features", [("queue", "push.receipts"), ("push.receipts",)])
def test_an_asker_is_told_who_answers_in_place_of_the_holder(features: tuple[str, ...]) -> None:
    """protocol 5.15, 5.30"""
    world = World()
    bob = holder(world, "bob")
    helper = holder(world, "bob", bob.registered["addressToken"], "none")
    asker = enter(world, "a", features=features)
    asker.ask("bob", "q1")
    bob.confirm("q1")
    asker.got()
    helper.reply(asker.id, "r1", "q1")
    told = without_announcements(asker.got())
    if "queue" in features:
        assert told.pop(0) == {
            "type": "question_target",
            "messageId": "q1",
            "attemptId": "",
            "sessionId": helper.id,
        }
    assert ids(told) == ["r1"]
    asker.confirm("r1")
    asker.ask("bob", "q2")
    bob.confirm("q2")
    asker.got()
    bob.reply(asker.id, "r2", "q2")
    assert types(without_announcements(asker.got())) == ["message"], "it was asked itself"


def test_a_question_to_the_person_survives_a_restart() -> None:
    world = World()
    asker = enter(world, "a")
    asker.message(ME, "q1", "?", expectsReply=True, extra={"queueIfAway": True})
    me = holder(world, ME)
    me.confirm("q1")
    world.crash()
    helper = holder(world, ME, me.registered["addressToken"], "none")
    assert [entry["messageId"] for entry in only(helper.write("pending", requestId="p"))["asks"]] == ["q1"]
    assert only(answers(helper.message(asker.id, "r1", "!", replyTo="q1", extra={"queueIfAway": True})))["type"] == (
        "queued"
    )


def test_anybody_else_who_is_away_cannot_be_asked() -> None:
    world = World()
    bob = holder(world, "bob")
    bob.write("unregister")
    asker = enter(world, "a")
    refused = only(answers(asker.message("bob", "q1", "?", expectsReply=True, extra={"queueIfAway": True})))
    assert (refused["reason"], refused["reasonCode"]) == (reasons.away("bob"), "away")
    unqueued = only(answers(asker.message("bob", "m1")))
    assert (unqueued["reason"], unqueued["reasonCode"]) == (reasons.away_unqueued("bob"), "away")


@pytest.mark.parametrize("name", ["@you", "@", "  ", "@intercom"])
def test_names_of_the_broker_are_nobody_elses(name: str) -> None:
    assert claim(World(), name)["code"] == "bad_request"


@pytest.mark.parametrize("address", [{"hold": "steal"}, {"token": 5}, {"more": 1}])
def test_a_wrong_claim_is_refused(address: dict[str, Any]) -> None:
    assert claim(World(), "bob", **address)["code"] == "bad_request"


def test_their_number_is_limited() -> None:
    world = World(limits=Limits(addresses=1))
    holder(world, "bob")
    assert claim(world, "carol")["code"] == "address_limit"


def claim_unanswered(world: World, conn: int) -> None:
    """Register whoever claims ``bob``, and wait for no answer."""
    request = {
        "session": {**INFO, "name": "bob"},
        "acknowledgesReceipt": True,
        "features": list(AGENT),
        "clientProtocolVersion": "1.0",
        "kind": "custom",
        "address": {"name": "bob"},
    }
    world.send(conn, type="register", **request)


def test_a_token_that_was_never_committed_opens_nothing() -> None:
    world = World()
    world.auto = False
    conn = world.connect(PEER)
    claim_unanswered(world, conn)
    world.fail_commit()
    world.settle()
    refused = world.got(conn)[-1]
    assert (refused["type"], refused["code"]) == ("registration_failed", "not_recorded")
    world.auto = True
    assert "addressToken" in holder(world, "bob").registered


@pytest.mark.parametrize("leaves", [False, True])
def test_who_could_not_be_recorded_hears_nothing_but_that(leaves: bool) -> None:
    """Protocol 4.1: `registered` or a refusal comes first, whatever was written behind it meanwhile."""
    world = World()
    sender = world.register("a")
    world.auto = False
    conn = world.connect(PEER)
    claim_unanswered(world, conn)
    world.send(world.connect(PEER), type="register", session={**INFO, "name": "c"})
    sender.message("bob", "m1")
    if leaves:
        world.send(conn, type="unregister")
    world.fail_commit()
    world.settle()
    assert types(world.got(conn)) == ([] if leaves else ["registration_failed"])
    assert answers(sender.got())[0]["type"] == "delivery_failed"


def test_a_reply_to_a_command_that_has_ended_reaches_its_mailbox() -> None:
    """Design section 7, Identity of a command: later replies reach whoever acts under the address."""
    world = World()
    command = holder(world, "terminal-1", hold="none")
    listener = enter(world, "b")
    command.queue("b", "m1")
    listener.confirm("m1")
    command.write("unregister")
    assert only(answers(listener.queue(command.id, "m2")))["type"] == "queued"
    reader: Agent = holder(world, "terminal-1", command.registered["addressToken"])
    assert ids(reader.first) == ["m2"]


def test_a_token_of_the_clients_own_survives_a_broker_that_dies_before_its_answer() -> None:
    """A5.1: between commit and answer nobody is locked out."""
    world = World()
    token = "t" * 32
    first = holder(world, "bob", token)
    assert "addressToken" not in first.registered
    world.crash()
    assert holder(world, "bob", token).registered["mailboxCount"] == 0
    assert claim(world, "bob", token="u" * 32)["code"] == "address_taken"
    assert "addressToken" in claim(world, "short", token="t" * 31)


def test_a_question_is_owed_by_the_address_when_its_reader_has_ended() -> None:
    """A command that reads a question ends before an agent answers it; the answer comes from another one."""
    for restarts in (False, True):
        world = World()
        asker, reader = enter(world, "a"), holder(world, "bob")
        token = reader.registered["addressToken"]
        asker.ask("bob", "q1")
        reader.confirm("q1")
        asker.got()
        reader.write("unregister", keepsQuestions=True)
        assert without_announcements(asker.got()) == [], "nobody is told that it will not be answered"
        if restarts:
            world.crash()
            asker = reattach(world, asker)
        helper = holder(world, "bob", token, "none")
        assert [entry["messageId"] for entry in only(helper.write("pending", requestId="p"))["asks"]] == ["q1"]
        asker.got()
        helper.reply(asker.id, "r1", "q1")
        told = without_announcements(asker.got())
        assert told[0] == {"type": "question_target", "messageId": "q1", "attemptId": "", "sessionId": helper.id}
        assert told[1]["message"]["id"] == "r1"
        asker.confirm("r1")
        assert only(answers(helper.got()))["type"] == "delivered"
        assert reason(answers(helper.reply(asker.id, "r2", "q1"))) == reasons.NO_OPEN_QUESTION


@pytest.mark.parametrize("how", ["crash", "unregister"])
def test_the_asker_of_a_reader_that_is_gone_is_told(how: str) -> None:
    """Nobody waits in silence for a process that crashed, or left without saying that it will be answered."""
    world = World()
    asker, reader = enter(world, "a"), holder(world, "bob")
    asker.ask("bob", "q1")
    reader.confirm("q1")
    asker.got()
    if how == "crash":
        reader.leave()
    else:
        reader.write("unregister")
    assert [frame["type"] for frame in without_announcements(asker.got())] == ["peer_disconnected"]


def test_an_answer_out_of_a_mailbox_says_whose_it_is() -> None:
    world = World()
    asker, reader = enter(world, "a"), holder(world, "bob")
    asker.ask("bob", "q1")
    reader.confirm("q1")
    reader.write("unregister", keepsQuestions=True)
    asker.leave()
    helper = holder(world, "bob", reader.registered["addressToken"], "none")
    extra = {"queueIfAway": True, "requirePendingReply": True}
    assert only(answers(helper.message(asker.id, "r1", "!", replyTo="q1", extra=extra)))["type"] == "queued"
    back = reattach(world, asker)
    assert back.first[1] == {"type": "question_target", "messageId": "q1", "attemptId": "", "sessionId": helper.id}
    assert back.first[2]["message"]["id"] == "r1"


@pytest.mark.parametrize("confirms", [False, True])
def test_who_was_asked_is_told_that_a_question_was_withdrawn(confirms: bool) -> None:
    """F67, protocol 5.42: what nobody waits for any more is owed by nobody; older clients are told nothing."""
    world = World()
    asker, asked, older = enter(world, "a"), enter(world, "b"), world.register("old", returnAddress="r")
    asker.ask("b", "q1")
    asker.ask("old", "q2")
    if confirms:
        asked.confirm("q1")
    asked.got(), older.got()
    asker.write("cancel_ask", messageId="q1")
    asker.write("cancel_ask", messageId="q2")
    assert asked.got() == [{"type": "question_withdrawn", "messageId": "q1", "sessionId": asker.id}]
    assert older.got() == []


def test_peers_see_who_is_the_person_and_nobody_says_so_of_itself() -> None:
    """Protocol 5 and 9.3.4."""
    world = World()
    ann, liar, person = enter(world, "ann"), enter(world, "liar", info={"person": True}), holder(world, "@me")

    def said_by(sender: Agent, message_id: str) -> object:
        ann.got()
        sender.message(ann.id, message_id, "hello")
        return only(without_announcements(ann.got()))["from"].get("person")

    assert said_by(liar, "m1") is None
    assert said_by(person, "m2") is True
    person.leave()
    person = reattach(world, person)
    assert said_by(person, "m3") is True


def test_one_of_two_addresses_of_a_name_is_taken_back_and_the_other_stays() -> None:
    """design 3.6: an address that was not recorded was never there"""
    world = World()
    first = claim(world, "desk", group="one")
    world.auto = False
    claim_later(world, "desk", "two")
    assert {address.group for address in world.broker._registry.addresses.named("desk")} == {"one", "two"}
    world.fail_commit()
    world.settle()
    assert {address.group for address in world.broker._registry.addresses.named("desk")} == {"one"}
    world.auto = True
    assert claim(world, "desk", group="one", token=first["addressToken"])["type"] == "registered"


def test_an_address_that_was_not_recorded_is_not_recorded_either_when_its_holder_goes() -> None:
    """design 3.6: its row would stand beside that of the address which its name gets next"""
    world = World()
    world.auto = False
    claim_later(world, "desk")
    world.pass_time(ADDRESS_LEFT_MS)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert world.disk.addresses == {}
    assert claim(world, "desk")["type"] == "registered"
    assert len(world.disk.addresses) == 1


def test_the_groups_of_a_holder_are_recorded_a_little_later_when_they_could_not_be_at_once() -> None:
    """design 3.6: where somebody is has happened, whatever the disk says"""
    world = World()
    desk = holder(world, "desk")
    world.auto = False
    desk.write("presence", requestId="p", groups=["default", "more"])
    world.fail_commit()
    world.auto = True
    [record] = world.disk.addresses.values()
    assert record.groups == ("default",)
    world.pass_time(world.limits.mail_retry_ms)
    [record] = world.disk.addresses.values()
    assert record.groups == ("default", "more")
