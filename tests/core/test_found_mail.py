"""Keep the cases in which mail, addresses or sessions that come back went wrong once."""

from __future__ import annotations

import pytest

from intercom.core.records import SessionState
from intercom.limits import Limits
from intercom.wire import notices, reasons
from tests.core.harness import INFO, World, answers, only, reason
from tests.core.mail import AGENT, PEER, Agent, enter, holder, operator, reattach


def ids(frames: list[dict[str, object]]) -> list[str]:
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]  # type: ignore[index]


def away(world: World) -> tuple[Agent, Agent]:
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    return sender, target


def try_to_enter(world: World, **members: object) -> int:
    """Register and leave the answer for ``got``; return the connection."""
    conn = world.connect(PEER)
    request = {"features": list(AGENT), "clientProtocolVersion": "1.0", "kind": "custom", "acknowledgesReceipt": True}
    answers = world.send(conn, type="register", session={**INFO, "name": "x"}, **{**request, **members})
    world.received[conn] = answers
    return conn


# --- commits that fail ----------------------------------------------------------------------------------


def test_an_address_is_free_again_when_nobody_could_be_told_its_token() -> None:
    world = World()
    enter(world, "a").queue("@me", "m1")
    world.auto = False
    conn = try_to_enter(world, address={"name": "@me"})
    world.fail_commit()
    world.settle()
    assert only(world.got(conn), "registration_failed")["code"] == "not_recorded"
    world.auto = True
    assert holder(world, "@me").registered["addressToken"]


def test_a_refused_registration_creates_no_address() -> None:
    world = World()
    conn = try_to_enter(world, address={"name": "box"}, supervisor={"capability": "no", "supervisorSessionId": "x"})
    assert only(world.got(conn), "registration_failed")["reason"] == reasons.INVALID_SUPERVISOR
    assert holder(world, "box").registered["addressToken"]


@pytest.mark.parametrize("features", [AGENT, ("push.receipts", "address", "queue")])
def test_every_registration_with_an_address_is_answered_when_it_cannot_be_recorded(features: tuple[str, ...]) -> None:
    world = World()
    world.auto = False
    conn = try_to_enter(world, address={"name": "box"}, features=list(features))
    world.fail_commit()
    world.settle()
    assert only(world.got(conn), "registration_failed")["code"] == "not_recorded"
    assert world.broker.session_count == 0 and world.disk.addresses == {}


def test_a_failed_commit_at_the_return_costs_no_mail() -> None:
    """The token that was not told counts for nothing, the one before it still does."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.auto = False
    conn = try_to_enter(world, preferredSessionId=target.id, ownerToken=target.token)
    world.fail_commit()
    world.settle()
    assert only(world.got(conn), "registration_failed")["code"] == "not_recorded"
    world.auto = True
    assert ids(reattach(world, target).first) == ["m1"]
    assert ids(sender.got()) == []


def test_an_answer_that_gets_lost_locks_no_owner_out() -> None:
    """The return was recorded, and its client never heard of it: the token it has still opens its mailbox."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.auto = False
    conn = try_to_enter(world, preferredSessionId=target.id, ownerToken=target.token)
    world.commit()
    world.break_off(conn)
    world.perform([])
    world.auto = True
    world.settle()
    assert ids(reattach(world, target).first) == ["m1"]


def test_a_reattach_that_could_not_be_recorded_is_answered() -> None:
    world = World()
    sender, target = away(world)
    world.auto = False
    back = reattach(world, target)
    world.send(world.connect(PEER), type="register", session={**INFO, "name": "c"})
    world.fail_commit()
    world.settle()
    (refused,) = back.got()
    assert (refused["type"], refused["code"], refused["retryable"]) == ("request_failed", "not_recorded", True)
    assert back.conn in world.finished and world.broker.away_count == 1
    world.auto = True
    assert reattach(world, target).first[0]["type"] == "session_reattached"
    assert world.disk.known_sessions[target.id].state is SessionState.ACTIVE
    del sender


def test_what_happened_is_recorded_again_after_a_failed_commit() -> None:
    world = World()
    session = enter(world, "a")
    world.auto = False
    session.leave()
    world.fail_commit()
    world.auto = True
    assert world.disk.known_sessions[session.id].state is SessionState.ACTIVE
    world.pass_time(world.limits.mail_retry_ms)
    assert world.disk.known_sessions[session.id].state is SessionState.RECONNECTING


def test_a_closing_that_could_not_be_recorded_is_recorded_with_its_mail() -> None:
    world = World(limits=Limits(inbox_entries=0))
    sender, target = away(world)
    sender.queue("b", "m1")
    world.auto = False
    world.pass_time(world.limits.grace_ms)
    world.fail_commit()
    world.auto = True
    assert world.disk.known_sessions[target.id].state is SessionState.RECONNECTING
    assert list(world.disk.mail) and ids(sender.got()) == []
    world.pass_time(world.limits.mail_retry_ms)
    assert world.disk.known_sessions[target.id].closed_reason == "grace_timeout"
    assert only(sender.mail())["notice"]["reason"] == notices.session_closed("grace_timeout")


def test_a_request_that_could_not_be_recorded_is_answered() -> None:
    world = World()
    person, target = operator(world), enter(world, "b")
    world.auto = False
    person.write("session_force_close", requestId="r", sessionId=target.id)
    world.fail_commit()
    world.settle()
    assert only(person.got(), "request_failed")["code"] == "not_recorded"


def test_a_closed_store_promises_nothing_for_who_leaves() -> None:
    """`queued` is told of what is on disk, and nothing is on a disk that takes nothing any more."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    world.auto = False
    sender.write("task_hint", requestId="t", taskHint="x")
    world.fail_commit(final=True)
    world.auto = True
    target.leave()
    world.pass_time(10_000)
    assert all(frame["type"] != "queued" for frame in sender.got())


def test_a_closed_store_calls_nothing_expired() -> None:
    world = World()
    sender, _ = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.auto = False
    sender.write("task_hint", requestId="t", taskHint="x")
    world.fail_commit(final=True)
    world.auto = True
    world.pass_time(2_000)
    assert ids(sender.got()) == []


def test_a_second_attempt_that_could_not_be_recorded_does_not_deny_the_first() -> None:
    """The first copy may have arrived: `Not recorded` would say that nothing was sent."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    assert ids(target.got()) == ["m1"]
    target.leave()
    world.auto = False
    sender.queue("b", "m1")
    world.fail_commit()
    world.settle()
    assert reasons.NOT_RECORDED not in [answer.get("reason") for answer in answers(sender.got())]


def test_mail_behind_one_that_could_not_be_recorded_is_handed_over() -> None:
    """It had to wait for its turn, and the turn of the one before it never came."""
    world = World()
    sender, target, absent = enter(world, "a"), enter(world, "b"), enter(world, "c")
    absent.leave()
    sender.message("b", "m1")
    target.queue("c", "m2", validFor=10_000)
    target.got()
    world.auto = False
    world.pass_time(10_000)
    sender.queue("b", "m1")
    world.commit(1)
    world.fail_commit()
    world.auto = True
    world.pass_time(world.limits.mail_retry_ms)
    assert ids(target.got()) == ["undeliverable:2:m2"]


# --- what is not recorded yet ---------------------------------------------------------------------------


def test_mail_that_is_not_recorded_yet_is_not_lost_at_a_reattach() -> None:
    """Its body cannot be read before it is there."""
    world = World()
    sender, target = away(world)
    world.auto = False
    sender.queue("b", "m1")
    back = reattach(world, target)
    world.read()
    world.settle()
    assert ids(back.got()) == ["m1"]
    assert only(answers(sender.got()))["type"] == "queued"


def test_a_trace_waits_for_what_it_tells() -> None:
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    world.auto = False
    back.confirm("m1")
    sender.write("trace", requestId="t", messageId="m1")
    world.read()
    world.take()
    assert [frame for frame in sender.got() if frame["type"] == "trace"] == []
    world.settle()
    assert only(sender.got(), "trace")["state"] == "delivered"


def test_a_trace_tells_where_mail_is_now() -> None:
    """It was written to somebody who left without confirming it: it waits."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    assert only(sender.write("trace", requestId="t", messageId="m1"), "trace")["state"] == "offered"
    back.leave()
    sender.got()
    assert only(sender.write("trace", requestId="t", messageId="m1"), "trace")["state"] == "queued"


def test_every_reattach_is_answered() -> None:
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.auto = False
    back = reattach(world, target)
    back.write("session_reattach", requestId="again", sessionId=target.id, ownerToken=target.token)
    world.settle()
    told = {frame["requestId"]: frame for frame in back.got() if "requestId" in frame}
    assert told["r"]["type"] == "session_reattached"
    assert told["again"]["code"] == "session_not_reconnecting"


# --- time -----------------------------------------------------------------------------------------------


def test_validity_counts_from_the_send() -> None:
    """Design section 7, Freshness: not from the moment in which its recipient left."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1", validFor=1_500)
    world.pass_time(1_000)
    target.leave()
    world.pass_time(500)
    assert only(sender.mail())["notice"]["kind"] == "expired"
    assert ids(reattach(world, target).first) == []


def test_a_live_message_is_not_written_again_after_its_time() -> None:
    """Design section 7, Freshness: checked at every hand-over."""
    world = World()
    target = enter(world, "b", features=("push.receipts", "queue"), returnAddress="same")
    sender = enter(world, "a")
    sender.message("b", "m1", extra={"validFor": 1_000})
    sender.message("b", "m2", extra={"validFor": 100_000})
    assert ids(target.got()) == ["m1", "m2"]
    target.leave()
    world.pass_time(1_000)
    back = enter(world, "b", features=("push.receipts", "queue"), returnAddress="same")
    assert ids(back.first) == ["m2"]


def test_a_clock_that_is_set_back_makes_nothing_valid_for_longer() -> None:
    """A5.3."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, target = away(world)
    sender.queue("b", "m1", validFor=10_000)
    world.wall -= 3_600_000
    world.pass_time(10_000)
    assert only(sender.mail())["notice"]["kind"] == "expired"
    world.pass_time(3_600_000)
    assert ids(sender.got()) == [], "no deadline fires twice"
    sequence = [event.seq for event in world.disk.journal]
    assert sequence == sorted(set(sequence))
    del target


def test_a_clock_that_is_set_back_over_a_restart_makes_nothing_valid_for_longer() -> None:
    """A5.3."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, target = away(world)
    sender.queue("b", "m1", validFor=10_000)
    world.wall -= 3_600_000
    world.crash()
    back = reattach(world, sender)
    world.pass_time(10_000)
    assert only(back.mail())["notice"]["kind"] == "expired"
    del target


def test_a_clock_that_is_set_back_brings_no_row_back() -> None:
    """A5.3 with A5.5: what is left of a history must not say that something is there which is gone."""
    world = World(limits=Limits(history_kept_ms=1_000))
    sender, target = away(world)
    sender.queue("b", "m1")
    world.wall -= 3_600_000
    reattach(world, target).confirm("m1")
    world.pass_time(world.limits.tidy_ms)
    events = [event for event in world.disk.journal if event.stream == "mail:m1"]
    assert not events or events[-1].is_gone


def test_a_process_that_stood_still_lets_sessions_come_back() -> None:
    """F106, laptop lid: their grace passed while nobody could have answered them."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world._turn(world.mono + world.limits.grace_ms + 5_000)
    world.perform(world.broker.deadline_passed(world.now))
    assert ids(reattach(world, target).first) == ["m1"]
    late = enter(world, "late")
    late.leave()
    world._turn(world.mono + world.limits.grace_ms + 5_000)
    world.perform(world.broker.deadline_passed(world.now))
    world.pass_time(world.limits.restart_grace_ms)
    assert world.disk.known_sessions[late.id].closed_reason == "grace_timeout"


def test_mail_that_was_written_to_somebody_is_not_called_unfetched() -> None:
    """Nobody knows whether its recipient acted on it: the reason says so."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    back = reattach(world, target)
    assert ids(back.first) == ["m1"]
    world.pass_time(2_000)
    back.leave()
    assert only(sender.mail())["notice"]["reason"] == notices.never_confirmed(notices.TIME_OVER)


def test_mail_that_was_written_to_a_session_that_ended_is_not_called_undelivered() -> None:
    """protocol 9.5.6: its receipt may have been lost, and its sender must not believe that nothing happened."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    assert ids(back.first) == ["m1"]
    back.write("unregister")
    told = only(sender.mail())
    assert told["notice"]["reason"] == notices.never_confirmed(notices.session_closed("unregister"))
    assert "was not delivered" not in told["message"]["content"]["text"]


def test_a_broker_that_began_with_nothing_tidies_too() -> None:
    """Design section 5, Privacy: bodies are kept 24 h."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    reattach(world, target).confirm("m1")
    assert world.disk.bodies
    world.pass_time(world.limits.bodies_kept_ms + world.limits.tidy_ms)
    assert world.disk.bodies == {}


# --- ids ------------------------------------------------------------------------------------------------


def test_a_peer_may_choose_the_id_of_a_notice() -> None:
    """Two entries of a mailbox under one id: each has its receipt, and nobody's broker falls over."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    peer = enter(world, "p")
    assert ids(sender.got()) == ["undeliverable:1:m1"]
    sender.leave()
    peer.queue("a", "undeliverable:1:m1")
    back = reattach(world, sender)
    assert ids(back.first) == ["undeliverable:1:m1", "undeliverable:1:m1"]
    back.confirm("undeliverable:1:m1", "undeliverable:1:m1")
    assert world.disk.mail == {}
    del target


def test_an_id_that_was_sent_again_after_its_end_has_an_end_of_its_own() -> None:
    """Protocol 9.5.6: the notice has another id than the first one, which a client would take for a copy of it."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, _ = away(world)
    told = []
    for _attempt in range(2):
        assert ids(sender.queue("b", "m1", validFor=1_000)) == []
        world.pass_time(1_000)
        told += ids(sender.got())
    assert told == ["undeliverable:1:m1", "undeliverable:3:m1"]
    sender.confirm(*told)
    assert world.disk.mail == {}


def test_an_id_that_is_used_without_an_address_leads_to_none() -> None:
    world = World()
    first = holder(world, "box", returnAddress="same")
    first.write("unregister")
    first.leave()
    plain = world.register("plain", returnAddress="same", preferredSessionId=first.id)
    assert plain.id == first.id
    plain.leave()
    sender = enter(world, "a")
    assert reason(answers(sender.queue(first.id, "m1"))) == reasons.SESSION_NOT_FOUND


def test_who_acts_under_an_address_still_does_after_a_reattach() -> None:
    world = World()
    first = holder(world, "box")
    token = first.registered["addressToken"]
    writer = holder(world, "box", token, "none")
    writer.leave()
    world.crash()
    back = reattach(world, writer)
    sender = enter(world, "a")
    back.queue("a", "m1")
    sender.confirm("m1")
    back.write("unregister")
    back.leave()
    assert only(answers(sender.queue(writer.id, "m2")))["type"] == "queued"
    assert ids(reattach(world, first).first) == ["m2"]


def test_an_asker_that_leaves_while_it_waits_for_the_return_of_its_target() -> None:
    """The broker fell over when the wait ended and nobody was there to be told."""
    world = World()
    asker, target = enter(world, "a"), enter(world, "b", peer=None)
    asker.ask("b", "q1")
    target.confirm("q1")
    world.crash()
    back = reattach(world, asker)
    back.leave()
    world.pass_time(world.limits.dormant_target_ms)
    again = reattach(world, asker)
    world.pass_time(world.limits.dormant_target_ms)
    assert [frame["type"] for frame in again.got()].count("peer_disconnected") == 1


def test_a_registration_that_was_never_recorded_reserves_no_id() -> None:
    world = World()
    world.auto = False
    conn = try_to_enter(world)
    world.end(conn)
    world.fail_commit()
    world.settle()
    assert not world.broker._registry.sessions._reserved
    assert world.broker.away_count == 0
