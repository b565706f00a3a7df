"""A question that is taken back before anybody has it, or has confirmed it (protocol 4.24, 5.42, 5.43)."""

from __future__ import annotations

from typing import Any

from tests.core.harness import World
from tests.core.mail import Agent, enter, holder, operator


def traced(world: World, message_id: str) -> dict[str, Any]:
    person = operator(world)
    [answer] = person.write("trace", requestId="t", messageId=message_id)
    return answer


def asked_me(world: World) -> Agent:
    asker = enter(world, "asker")
    [queued] = asker.message("@me", "q1", "may I?", expectsReply=True, extra={"queueIfAway": True})
    assert queued["type"] == "queued"
    return asker


def messages(session: Agent) -> list[str]:
    """Return the ids of all messages that came since the registration, that included, or the last look."""
    frames, session.first = session.first[1:] + session.got(), session.first[:1]
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def withdrawn_frames(session: Agent) -> list[dict[str, Any]]:
    return [frame for frame in session.got() if frame["type"] == "question_withdrawn"]


def test_a_question_that_waits_as_mail_is_not_handed_over() -> None:
    """protocol 4.24: mail that is a question is taken back with it"""
    world = World()
    asker = asked_me(world)
    assert asker.write("cancel_ask", messageId="q1") == []
    person = holder(world, "@me")
    assert messages(person) == [] and person.registered["mailboxCount"] == 0
    [pending] = person.write("pending", requestId="p")
    assert pending["asks"] == []
    told = traced(world, "q1")
    assert told["state"] == "withdrawn" and "took the question back" in told["where"]
    assert [event["state"] for event in told["events"]][-1] == "withdrawn"
    assert asker.mail() == [], "it knows that itself"


def test_it_stays_taken_back_after_a_crash() -> None:
    """design 5: reserve, accept, give up are on disk before anybody is told"""
    world = World()
    asked_me(world).write("cancel_ask", messageId="q1")
    world.crash()
    assert messages(holder(world, "@me")) == []
    assert traced(world, "q1")["state"] == "withdrawn"


def test_what_was_handed_over_and_not_confirmed_is_marked() -> None:
    """protocol 5.42: behind the message, to who received it"""
    world = World()
    asker = asked_me(world)
    person = holder(world, "@me")
    assert messages(person) == ["q1"]
    asker.write("cancel_ask", messageId="q1")
    assert withdrawn_frames(person) == [{"type": "question_withdrawn", "messageId": "q1", "sessionId": asker.id}]
    person.confirm("q1")
    [pending] = person.write("pending", requestId="p")
    assert pending["asks"] == [], "its receipt opens no question"
    assert traced(world, "q1")["state"] == "withdrawn"


def test_who_holds_the_mailbox_is_told_of_a_question_it_confirmed() -> None:
    """protocol 6.5: a question handed over as mail is the address's, so whoever holds it hears that it is over"""
    world = World()
    asker = asked_me(world)
    person = holder(world, "@me")
    person.confirm("q1")
    asker.write("cancel_ask", messageId="q1")
    assert len(withdrawn_frames(person)) == 1
    told = traced(world, "q1")
    assert told["state"] == "withdrawn" and told["where"].startswith("with its recipient")


def test_asking_again_under_the_id_waits_again() -> None:
    """protocol 9.5.6: the message id is free then"""
    world = World()
    asker = asked_me(world)
    asker.write("cancel_ask", messageId="q1")
    [queued] = asker.message("@me", "q1", "may I?", expectsReply=True, extra={"queueIfAway": True})
    assert (queued["type"], queued["position"]) == ("queued", 1)
    person = holder(world, "@me")
    assert messages(person) == ["q1"]
    person.confirm("q1")
    [pending] = person.write("pending", requestId="p")
    assert [ask["messageId"] for ask in pending["asks"]] == ["q1"]


def test_a_taking_back_that_cannot_be_recorded_holds_nevertheless() -> None:
    """protocol 4.24: nobody gets it from this broker, and it is recorded with the next attempt to hand it over"""
    world = World()
    asker = asked_me(world)
    world.auto = False
    asker.write("cancel_ask", messageId="q1")
    world.fail_commit()
    world.auto = True
    person = holder(world, "@me")
    assert messages(person) == []
    world.pass_time(world.limits.mail_retry_ms)
    assert messages(person) == [] and traced(world, "q1")["state"] == "withdrawn"


def test_an_unconfirmed_question_is_not_written_to_the_next_holder() -> None:
    """protocol 6.10.7: but for questions that were taken back"""
    world = World()
    asker = enter(world, "asker")
    reader = holder(world, "worker")
    token = reader.registered["addressToken"]
    asker.message("worker", "q1", "ok?", expectsReply=True)
    assert messages(reader) == ["q1"]
    told = traced(world, "q1")
    assert told["state"] == "unconfirmed" and told["where"].startswith("written to worker in default")
    asker.write("cancel_ask", messageId="q1")
    assert len(withdrawn_frames(reader)) == 1
    assert traced(world, "q1")["state"] == "withdrawn"
    world.end(reader.conn)
    assert messages(holder(world, "worker", token)) == []


def test_asked_again_it_is_written_to_the_next_holder() -> None:
    """protocol 4.24: the same ask sent again asks again"""
    world = World()
    asker = enter(world, "asker")
    reader = holder(world, "worker")
    token = reader.registered["addressToken"]
    asker.message("worker", "q1", "ok?", expectsReply=True)
    asker.write("cancel_ask", messageId="q1")
    world.end(reader.conn)
    later = holder(world, "worker", token)
    assert messages(later) == []
    asker.message("worker", "q1", "ok?", expectsReply=True)
    assert messages(later) == ["q1"]
    later.confirm("q1")
    later.message(asker.id, "r1", "yes", replyTo="q1", extra={"requirePendingReply": True})
    assert messages(asker) == ["r1"]


def test_who_gets_the_question_of_an_asker_that_left_is_told_so() -> None:
    """protocol 5.42: who asked has left for good; 6.10.7: the message comes again all the same"""
    world = World()
    asker = enter(world, "asker")
    reader = holder(world, "worker")
    token = reader.registered["addressToken"]
    asker.message("worker", "q1", "ok?", expectsReply=True)
    world.end(reader.conn)
    asker.write("unregister")
    later = holder(world, "worker", token)
    kinds = [frame["type"] for frame in later.first if frame["type"] in ("message", "question_withdrawn")]
    assert kinds == ["message", "question_withdrawn"]


def test_who_was_asked_hears_that_the_asker_left() -> None:
    """protocol 6.5: the asker departs"""
    world = World()
    asker = enter(world, "asker")
    worker = enter(world, "worker")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    asker.write("unregister")
    assert [frame["messageId"] for frame in withdrawn_frames(worker)] == ["q1"]


def test_who_has_a_question_hears_that_it_is_asked_again() -> None:
    """protocol 5.43, 6.9.5"""
    world = World()
    asker = enter(world, "asker")
    worker = enter(world, "worker")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.mail()
    worker.confirm("q1")
    asker.write("cancel_ask", messageId="q1")
    worker.got()
    asker.message("worker", "q1", "ok?", expectsReply=True)
    assert worker.got() == [{"type": "question_reopened", "messageId": "q1", "sessionId": asker.id}]
    asker.message("worker", "q1", "ok?", expectsReply=True)
    assert worker.got() == [], "it was open"


def test_the_mailbox_shows_what_comes_again() -> None:
    """protocol 5.37, 6.10.7: what was not to wait, and was written to a reader that left without confirming it"""
    world = World()
    sender = enter(world, "sender")
    reader = holder(world, "worker")
    token = reader.registered["addressToken"]
    sender.message("worker", "m1", "hello")
    world.end(reader.conn)
    person = operator(world)
    world.pass_time(world.limits.receipt_wait_ms)
    [box] = person.write("mailbox", requestId="b", of={"address": "worker"})
    assert (box["count"], box["entries"]) == (0, [])
    [entry] = box["unconfirmed"]
    assert (entry["messageId"], entry["sender"]["name"], entry["size"] > 0) == ("m1", "sender", True)
    [told] = person.write("trace", requestId="t", messageId="m1")
    assert told["state"] == "unconfirmed"
    assert told["where"].startswith("in the memory of this broker: worker in default left without confirming it")
    later = holder(world, "worker", token)
    assert messages(later) == ["m1"]
    later.confirm("m1")
    person.got()
    [box] = person.write("mailbox", requestId="b", of={"address": "worker"})
    assert "unconfirmed" not in box
    assert traced(world, "m1")["state"] == "delivered"
