"""Test what can be asked about sessions, addresses, mailboxes, questions and messages."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire import notices
from tests.core.harness import World, answers, only
from tests.core.mail import Agent, enter, holder, operator, reattach


def ask(client: Agent, kind: str, **members: Any) -> dict[str, Any]:
    return only(client.write(kind, requestId="r", **members))


def test_session_records() -> None:
    world = World()
    person = operator(world)
    one = enter(world, "one", kind="codex", trackingRef="JIRA-1")
    two = enter(world, "two", info={"groups": ["elsewhere"]})
    two.leave()
    records = {entry["sessionId"]: entry for entry in ask(person, "session_records")["sessions"]}
    assert records[one.id]["state"] == "active"
    assert records[one.id]["displayLabel"] == "codex · p · JIRA-1"
    assert records[two.id]["state"] == "reconnecting"
    assert records[two.id]["graceDeadline"] == world.wall + 600_000
    assert [entry["sessionId"] for entry in ask(one, "session_records")["sessions"]] == [one.id]
    assert ask(one, "session_force_close", sessionId=two.id)["code"] == "feature_not_granted"


def test_task_hints_are_cut() -> None:
    """FE 1.2: cut, not refused, at 200 code points."""
    world = World()
    one = enter(world, "one")
    assert ask(one, "task_hint", taskHint="  " + "é" * 300)["taskHint"] == "é" * 200
    assert ask(one, "session_records")["sessions"][0]["taskHint"] == "é" * 200
    ask(one, "task_hint", taskHint="")
    assert "taskHint" not in ask(one, "session_records")["sessions"][0]


def test_who_acts_under_an_address_says_what_its_holder_works_on() -> None:
    """Protocol 4.26: a command speaks for the session that receives; nobody else does"""
    world = World()
    bob = holder(world, "bob", token="t" * 32)
    command = holder(world, "bob", token="t" * 32, hold="none")
    stranger = enter(world, "stranger")
    assert ask(command, "task_hint", taskHint="parsing", sessionId=bob.id)["taskHint"] == "parsing"
    records = {record["sessionId"]: record for record in ask(command, "session_records")["sessions"]}
    assert records[bob.id]["taskHint"] == "parsing" and "taskHint" not in records[command.id]
    assert ask(stranger, "task_hint", taskHint="x", sessionId=bob.id)["code"] == "not_allowed"
    assert ask(command, "task_hint", taskHint="x", sessionId=stranger.id)["code"] == "not_allowed"
    assert ask(command, "task_hint", taskHint="x", sessionId="nobody")["code"] == "unknown_session"


def test_addresses() -> None:
    world = World()
    bob = holder(world, "bob")
    sender = enter(world, "a")
    far = enter(world, "f", info={"groups": ["far"]})
    [entry] = ask(sender, "addresses")["addresses"]
    assert (entry["name"], entry["group"], entry["holder"], entry["holderState"]) == (
        "bob",
        "default",
        bob.id,
        "active",
    )
    bob.leave()
    sender.queue("bob", "m1")
    sender.got()
    [entry] = ask(sender, "addresses")["addresses"]
    assert (entry["holder"], entry["holderState"], entry["mailboxCount"]) == (bob.id, "reconnecting", 1)
    assert entry["oldestAt"] == world.wall
    assert ask(far, "addresses")["addresses"] == []
    assert len(ask(operator(world), "addresses")["addresses"]) == 1


def test_who_acts_under_an_address_without_holding_it_is_not_its_holder() -> None:
    """protocol 5.36"""
    world = World()
    bob = holder(world, "bob")
    helper = holder(world, "bob", bob.registered["addressToken"], "none")
    bob.leave(), helper.leave()
    [entry] = ask(operator(world), "addresses")["addresses"]
    assert entry["holder"] == bob.id
    world.judge(bob.id, is_alive=False)
    [entry] = ask(operator(world), "addresses")["addresses"]
    assert "holder" not in entry


def test_a_mailbox_is_listed_without_its_bodies() -> None:
    world = World()
    bob = holder(world, "bob")
    sender = enter(world, "a")
    bob.write("unregister")
    for number in (1, 2, 3):
        sender.queue("bob", f"m{number}", "secret", validFor=5_000)
    sender.got()
    person = operator(world)
    listed = ask(person, "mailbox", of={"address": "bob"}, limit=2)
    assert (listed["owner"], listed["count"], len(listed["entries"])) == ("bob in default", 3, 2)
    assert "secret" not in str(listed)
    first = listed["entries"][0]
    assert (first["messageId"], first["position"], first["state"], first["offers"]) == ("m1", 1, "queued", 0)
    assert (first["sender"]["name"], first["validUntil"]) == ("a", world.wall + 5_000)
    rest = ask(person, "mailbox", of={"address": "bob"}, after=2)["entries"]
    assert [entry["messageId"] for entry in rest] == ["m3"]
    assert ask(sender, "mailbox", of={"address": "bob"})["code"] == "not_allowed"
    assert ask(person, "mailbox", of={"address": "nobody"})["code"] == "unknown_address"
    assert ask(person, "mailbox", of={"sessionId": "x"})["code"] == "unknown_session"
    assert ask(person, "mailbox", of={})["code"] == "bad_request"
    assert ask(person, "mailbox")["code"] == "unknown_mailbox"
    back = holder(world, "bob", bob.registered["addressToken"])
    assert [entry["state"] for entry in ask(back, "mailbox")["entries"]] == ["offered"] * 3


def test_an_address_in_two_groups_must_be_named_with_its_group() -> None:
    world = World()
    for group in ("one", "two"):
        holder(world, "bob", info={"groups": [group]})
    person = operator(world)
    assert ask(person, "mailbox", of={"address": "bob"})["code"] == "ambiguous_address"
    assert ask(person, "mailbox", of={"address": "bob", "group": "two"})["owner"] == "bob in two"


def test_pending_lists_the_oldest_first() -> None:
    world = World()
    bob = holder(world, "bob")
    helper = holder(world, "bob", bob.registered["addressToken"], "none")
    askers = [enter(world, f"a{number}") for number in range(3)]
    for number, asker in enumerate(askers):
        asker.ask("bob", f"q{number}")
        bob.confirm(f"q{number}")
    askers[1].leave()
    bob.got(), helper.got()
    for who in (bob, helper):
        asks = ask(who, "pending")["asks"]
        assert [entry["messageId"] for entry in asks] == ["q0", "q1", "q2"]
        assert [entry.get("askerHere", True) for entry in asks] == [True, False, True]
        assert asks[0] == {
            "messageId": "q0",
            "askerId": askers[0].id,
            "askerName": "a0",
            "askedAt": world.wall,
            "deadline": world.wall + 600_000,
        }
    helper.reply(askers[0].id, "r0", "q0")
    askers[0].confirm("r0")
    helper.got()
    assert [entry["messageId"] for entry in ask(helper, "pending")["asks"]] == ["q1", "q2"]


def test_a_trace_tells_every_state_of_mail() -> None:
    """No state is claimed before its evidence."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    sender.got()
    queued = ask(sender, "trace", messageId="m1")
    assert (queued["state"], queued["where"]) == ("queued", f"in the mailbox of session {target.id}, at position 1")
    back = reattach(world, target)
    sender.got()
    assert ask(sender, "trace", messageId="m1")["state"] == "offered"
    world.pass_time(5)
    back.confirm("m1")
    done = ask(sender, "trace", messageId="m1")
    assert (done["state"], done["recipient"]) == ("delivered", target.id)
    assert [event["state"] for event in done["events"]] == ["queued", "offered", "delivered"]
    assert done["events"][2]["at"] == world.wall
    assert ask(back, "trace", messageId="m1")["state"] == "delivered"


def test_a_trace_of_a_plain_send() -> None:
    """Design section 5: `trace` of a plain send reads `operations` while the row lives."""
    world = World()
    sender, target, other = enter(world, "a"), enter(world, "b"), enter(world, "c")
    sender.queue("b", "m1")
    assert ask(sender, "trace", messageId="m1")["state"] == "unconfirmed"
    target.confirm("m1")
    sender.got(), other.got()
    traced = ask(sender, "trace", messageId="m1")
    assert [event["state"] for event in traced["events"]] == ["reserved", "delivered"]
    assert ask(other, "trace", messageId="m1")["code"] == "not_allowed"
    assert ask(other, "trace", messageId="m9")["state"] == "unknown"
    assert ask(operator(world), "trace", messageId="m1")["state"] == "delivered"


def test_a_trace_of_what_is_being_decided() -> None:
    """protocol 9.6.3: reserved, while nothing was written to anybody"""
    world = World()
    sender, person = enter(world, "a"), operator(world)
    world.deaf.add(world.register("b").conn)
    sender.queue("b", "m1")
    assert ask(person, "trace", messageId="m1")["state"] == "reserved"


def test_a_trace_tells_that_a_question_was_answered() -> None:
    world = World()
    asker, target = enter(world, "a"), enter(world, "b")
    asker.ask("b", "q1")
    target.confirm("q1")
    target.reply(asker.id, "r1", "q1")
    asker.confirm("r1")
    asker.got()
    assert ask(asker, "trace", messageId="q1")["state"] == "answered"


def test_a_trace_of_what_was_given_up() -> None:
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    sender.got()
    traced = ask(sender, "trace", messageId="m1")
    assert traced["state"] == "expired"
    assert traced["events"][-1]["detail"]["reason"] == notices.NO_LONGER_VALID


def test_after_a_crash_a_trace_does_not_claim_more_than_is_known() -> None:
    world = World()
    sender = enter(world, "a")
    world.register("plain", returnAddress="r")
    world.auto = False
    sender.message("plain", "m1")
    world.commit()
    world.crash()
    world.auto = True
    person = operator(world)
    assert ask(person, "trace", messageId="m1")["state"] == "uncertain"


def test_a_history_that_cannot_be_read() -> None:
    world = World()
    person = operator(world)
    world.auto = False
    person.write("trace", requestId="r", messageId="m1")
    world.read(fails=True)
    world.settle()
    refused = only(person.got())
    assert (refused["code"], refused["retryable"]) == ("not_read", True)


def test_purge_deletes_what_is_over() -> None:
    """Design section 5, Privacy."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    sender.queue("b", "m2", "y")
    back = reattach(world, target)
    back.confirm("m1")
    person = operator(world)
    assert len(world.disk.bodies) == 2
    world.pass_time(10)
    assert ask(person, "purge")["mail"] == 0
    assert len(world.disk.bodies) == 1, "that of m1 is over, that of m2 is needed"
    assert [event.stream for event in world.disk.journal if event.stream == "mail:m1"] == []
    assert ask(person, "purge", of={"sessionId": target.id})["mail"] == 1
    sender.confirm("undeliverable:2:m2")


def test_bodies_go_after_a_day() -> None:
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    reattach(world, target).confirm("m1")
    world.pass_time(23 * 3600 * 1000)
    assert len(world.disk.bodies) == 1
    world.crash()
    world.pass_time(2 * 3600 * 1000)
    assert world.disk.bodies == {}


def test_a_mailbox_purged_tells_its_senders() -> None:
    world = World()
    sender, bob = enter(world, "a"), holder(world, "bob")
    bob.write("unregister")
    sender.queue("bob", "m1")
    sender.got()
    assert ask(operator(world), "purge", of={"address": "bob"})["mail"] == 1
    assert only(sender.mail())["notice"]["reason"] == notices.PURGED
    traced = ask(sender, "trace", messageId="m1")
    assert (traced["state"], traced["where"].startswith("nowhere any more: its mailbox was emptied")) == (
        "purged",
        True,
    )
    assert answers(sender.got()) == []


@pytest.mark.parametrize("kind", ["session_records", "addresses", "mailbox", "pending", "trace", "purge", "task_hint"])
def test_what_an_unusable_store_keeps_is_not_denied(kind: str) -> None:
    """protocol 9.6.2, design 5 "Fail closed": that nothing waits would be a lie."""
    world = World(store_trouble="the key is missing")
    members = {"trace": {"messageId": "m1"}, "task_hint": {"taskHint": "x"}}.get(kind, {})
    for asked in (enter(world, "one"), operator(world)):
        refused = ask(asked, kind, **members)
        assert (refused["type"], refused["code"]) == ("request_failed", "store_unusable")
        assert refused["reason"].endswith(": the key is missing") and not refused["retryable"]


def test_with_an_unusable_store_nobody_is_said_not_to_exist() -> None:
    """protocol 4.8 E6: who is away is not known; older clients are told what they know"""
    world = World(store_trouble="the key is missing")
    refused = only(enter(world, "one").queue("away", "m1"))
    assert refused["reason"] == "Accepted-delivery authority is invalid: the key is missing"
    assert only(world.register("old").message("away", "m2"))["reason"] == "Session not found"


def test_a_task_hint_that_could_not_be_recorded_is_taken_back() -> None:
    """Design section 3.6: it is not stored later either, for its session was told that it is not"""
    world = World()
    one = enter(world, "one")
    ask(one, "task_hint", taskHint="reading")
    world.auto = False
    one.write("task_hint", requestId="t", taskHint="writing")
    world.fail_commit()
    world.auto = True
    world.settle()
    [refused] = [frame for frame in one.got() if frame["type"] in ("task_hint_stored", "request_failed")]
    assert refused["code"] == "not_recorded"
    world.pass_time(60_000)
    world.crash()
    one = reattach(world, one)
    [entry] = ask(one, "session_records")["sessions"]
    assert entry["taskHint"] == "reading"
