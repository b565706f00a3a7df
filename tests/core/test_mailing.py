"""Test the life of mail: put down, handed over in order, confirmed, given up (design section 7, Queueing)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.records import OperationState
from intercom.limits import Limits
from intercom.wire import notices, reasons
from tests.core.harness import INFO, World, answers, only, reason
from tests.core.mail import PEER, Agent, enter, holder, operator, reattach

FULL = Limits(inbox_entries=0)
"""Nothing can be parked."""


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["content"]["text"] for frame in frames if frame["type"] == "message"]


def ids(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def kinds(world: World, message_id: str) -> list[str]:
    return [event.kind for event in world.disk.journal if event.stream == f"mail:{message_id}"]


def away(world: World) -> tuple[Agent, Agent]:
    """Return a sender and a session that has lost its connection."""
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    return sender, target


def test_what_comes_while_a_session_is_away_reaches_it_in_order() -> None:
    """A1.1."""
    world = World()
    sender, target = away(world)
    first = only(answers(sender.queue("b", "m1", "one")))
    second = only(answers(sender.queue(target.id, "m2", "two")))
    assert (first["type"], first["position"], second["position"]) == ("queued", 1, 2)
    assert [record.message_id for record in world.disk.mail.values()] == ["m1", "m2"]
    assert {body.message for body in world.disk.bodies.values()} and len(world.disk.bodies) == 2
    back = reattach(world, target)
    assert back.first[0]["type"] == "session_reattached"
    assert (back.first[0]["mailboxCount"], back.first[0]["generation"]) == (2, 2)
    assert texts(back.first) == ["one", "two"]
    assert [frame["mail"]["offers"] for frame in back.first if frame["type"] == "message"] == [1, 1]
    back.confirm("m1", "m2")
    assert world.disk.mail == {}
    assert {row.state for row in world.disk.operations.values()} == {OperationState.ACCEPTED}
    assert kinds(world, "m1") == ["mail.queued", "mail.offered", "mail.delivered"]


def test_a_retry_is_answered_as_things_stand() -> None:
    """Design section 7, Queueing: a retry is answered `queued` again, then `delivered`; conflict as for accepted."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m0")
    assert only(answers(sender.queue("b", "m1", "one")))["type"] == "queued"
    again = only(answers(sender.queue("b", "m1", "one")))
    assert (again["type"], again["position"]) == ("queued", 2)
    assert reason(answers(sender.queue("b", "m1", "other"))) == reasons.conflict_waiting("m1")
    back = reattach(world, target)
    assert only(answers(sender.queue("b", "m1", "one")))["type"] == "queued"
    back.confirm("m0", "m1")
    assert only(answers(sender.queue("b", "m1", "one")))["type"] == "delivered"
    assert len(back.mail()) == 0


def test_nothing_is_told_before_it_is_committed() -> None:
    """FE 5.1: messages are written to sockets only after that commit."""
    world = World()
    sender, target = away(world)
    world.auto = False
    assert answers(sender.queue("b", "m1")) == []
    world.take()
    assert answers(sender.got()) == []
    world.settle()
    assert only(answers(sender.got()))["type"] == "queued"
    del target


def test_a_failed_commit_leaves_nothing() -> None:
    """Design 3.6, A5.4: new work is refused, nothing is acknowledged."""
    world = World()
    sender, target = away(world)
    world.auto = False
    sender.queue("b", "m1")
    world.fail_commit()
    world.settle()
    assert reason(answers(sender.got())) == reasons.NOT_RECORDED
    world.auto = True
    assert only(answers(sender.queue("b", "m1")))["position"] == 1
    assert texts(reattach(world, target).first) == ["x"]


def test_an_unconfirmed_hand_over_comes_again() -> None:
    """A1.3: everything not yet confirmed, without losing or reordering."""
    world = World()
    sender, target = away(world)
    for number in (1, 2, 3):
        sender.queue("b", f"m{number}", f"{number}")
    back = reattach(world, target)
    assert ids(back.first) == ["m1", "m2", "m3"]
    back.confirm("m1")
    back.leave()
    again = reattach(world, target)
    assert ids(again.first) == ["m2", "m3"]
    assert [frame["mail"]["offers"] for frame in again.first if frame["type"] == "message"] == [2, 2]


def test_bodies_that_cannot_be_read_refuse_the_reattach() -> None:
    """A1.3: the answer is `mailbox_drain_failed`, retryable, and the session is not active."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.auto = False
    back = reattach(world, target)
    world.read(fails=True)
    world.settle()
    refused = only(back.got())
    assert (refused["type"], refused["code"], refused["retryable"]) == ("request_failed", "mailbox_drain_failed", True)
    assert world.broker.away_count == 1
    world.auto = True
    assert ids(reattach(world, target).first) == ["m1"]


def test_what_comes_during_a_reattach_goes_behind_the_mail() -> None:
    """A1.15."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2", "y")
    world.auto = False
    back = reattach(world, target)
    sender.queue("b", "m3")
    world.settle()
    assert ids(back.got()) == ["m1", "m2", "m3"]
    assert only(answers(sender.got()))["type"] == "queued"


def test_mail_is_handed_over_within_a_window() -> None:
    """Limits mail_offers and mail_offer_bytes; one entry is always admitted."""
    world = World(limits=Limits(mail_offers=2))
    sender, target = away(world)
    for number in range(5):
        sender.queue("b", f"m{number}", f"{number}")
    back = reattach(world, target)
    assert ids(back.first) == ["m0", "m1"]
    assert ids(back.confirm("m0")) == ["m2"]
    assert ids(back.confirm("m1", "m2")) == ["m3", "m4"]


def test_later_sends_that_may_wait_go_behind_older_mail() -> None:
    """Nothing that is sent later and may wait overtakes mail that was not handed over."""
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2", "y")
    back = reattach(world, target)
    behind = only(answers(sender.queue("b", "m3")))
    assert (behind["type"], behind["position"]) == ("queued", 3)
    assert ids(back.first) == ["m1"]
    assert ids(back.confirm("m1", "m2", "m3")) == ["m2", "m3"]
    sender.queue("b", "m4")
    assert ids(back.got()) == ["m4"]


def test_a_full_mailbox_refuses_and_loses_nothing() -> None:
    """Design section 7, Queueing: caps."""
    world = World(limits=Limits(mailbox_entries=1))
    sender, target = away(world)
    sender.queue("b", "m1")
    assert reason(answers(sender.queue("b", "m2"))).startswith(reasons.MAILBOX_FULL)
    assert ids(reattach(world, target).first) == ["m1"]


def test_a_live_send_that_was_not_confirmed_waits_for_the_return() -> None:
    """No message is lost when its recipient goes away before it confirms, and the sender is told the truth."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    assert answers(sender.queue("b", "m1")) == []
    target.got()
    target.leave()
    assert only(answers(sender.got()))["type"] == "queued"
    assert ids(reattach(world, target).first) == ["m1"]


def test_an_older_sender_never_hears_of_a_queue() -> None:
    """A1.18, 5.30: without the feature it is `Session not found`, never `delivered`."""
    world = World()
    target = enter(world, "b")
    older = world.register("old", returnAddress="r")
    target.leave()
    assert reason(answers(older.message("b", "m1", extra={"queueIfAway": True}))) == reasons.SESSION_NOT_FOUND
    assert reason(answers(older.message(target.id, "m2"))) == reasons.SESSION_NOT_FOUND


def test_mail_that_nobody_fetched_is_reported_once() -> None:
    """Design section 7, Queueing: 7 days, then the sender's session or mailbox gets `undeliverable` once."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, target = away(world)
    sender.queue("b", "m1")
    world.pass_time(7 * 24 * 3600 * 1000)
    told = only(sender.mail())
    assert told["notice"] == {
        "kind": "undeliverable",
        "messageId": "m1",
        "target": "b",
        "reason": notices.NEVER_FETCHED,
    }
    assert told["message"]["id"] == "undeliverable:1:m1"
    sender.confirm("undeliverable:1:m1")
    assert world.disk.mail == {}
    world.pass_time(7 * 24 * 3600 * 1000)
    assert sender.mail() == []
    assert ids(reattach(world, target).first) == []


def test_a_message_that_is_sent_again_is_not_told_to_be_given_up() -> None:
    """protocol 9.5.6: its id is free; a notice of the time before that nobody was shown yet would be about this one."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.auto = False
    world.pass_time(1_000)
    sender.queue("b", "m1", validFor=1_000)
    world.auto = True
    world.settle()
    frames = sender.got()
    assert only(answers(frames))["type"] == "queued"
    assert [frame for frame in frames if frame["type"] == "message"] == [] and sender.mail() == []
    assert ids(reattach(world, target).first) == ["m1"]
    assert [record.message_id for record in world.disk.mail.values()] == ["m1"]


def test_a_notice_stays_while_nobody_knows_what_became_of_the_message_that_was_sent_again() -> None:
    """promises `queued-arrives`: the one that was told as queued did not arrive, and its sender hears so."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    world.pass_time(Limits().busy_ms)
    world.auto = False
    world.send(target.conn, type="unregister")
    world.send(world.connect(PEER), type="register", session={**INFO, "name": "b"})
    sender.message("b", "m1")
    assert len(world.appends) > 1
    while world.appends:
        world.commit()
    world.crash()
    world.auto = True
    assert [each.partition(":")[0] for each in ids(reattach(world, sender).first)] == ["undeliverable"]


def test_a_notice_that_was_shown_stays_true_of_its_time() -> None:
    """protocol 9.5.6: who was told, and sends the message again, is told of that one by its answer."""
    world = World(limits=Limits(grace_ms=10**10))
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    assert only(sender.mail())["notice"]["messageId"] == "m1"
    assert only(answers(sender.queue("b", "m1", validFor=1_000)))["type"] == "queued"
    assert sender.confirm("undeliverable:1:m1") == []
    assert ids(reattach(world, target).first) == ["m1"]


def test_mail_is_never_handed_over_after_its_time() -> None:
    """Design section 7, Freshness: expired mail is never handed over and the sender is told `expired`."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    sender.queue("b", "m2", validFor=100_000)
    world.pass_time(1_000)
    assert only(sender.mail())["notice"]["kind"] == "expired"
    assert ids(reattach(world, target).first) == ["m2"]


def test_the_recipient_is_told_how_long_it_is_of_use() -> None:
    """F87, protocol 9.5.5: what waits at its recipient is not shown as fresh after its time."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=60_000)
    sender.queue("b", "m2")
    until = world.wall + 60_000
    world.pass_time(1_000)
    back = reattach(world, target)
    assert [frame.get("validUntil") for frame in back.first if frame["type"] == "message"] == [until, None]
    back.confirm("m1", "m2")
    sender.queue("b", "m3", validFor=5_000)
    assert only(back.mail())["validUntil"] == world.wall + 5_000, "it was never in a mailbox"


def test_an_older_client_is_told_no_validity() -> None:
    world = World()
    sender = enter(world, "a")
    for features in ((), ("session.lifecycle", "push.receipts")):
        old = enter(world, f"old-{len(features)}", features=features)
        sender.queue(f"old-{len(features)}", f"m-{len(features)}", validFor=5_000)
        assert "validUntil" not in only(old.mail())


def test_a_repeated_message_has_its_validity_still() -> None:
    """Protocol 4.1, effect 8."""
    world = World()
    sender = enter(world, "a")
    target = enter(world, "b")
    sender.message("b", "m1", "x", extra={"validFor": 60_000})
    until = world.wall + 60_000
    assert only(target.mail())["validUntil"] == until
    world.lose(target.conn)
    assert [frame["validUntil"] for frame in reattach(world, target).first if frame["type"] == "message"] == [until]


def test_a_message_that_is_not_valid_any_more_is_not_handed_over_by_a_retry() -> None:
    """protocol 4.8 D23: it was given up and its id is free, but its sender had no answer and asks what became of it."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    assert only(sender.mail())["notice"]["kind"] == "expired"
    assert reason(answers(sender.queue("b", "m1", validFor=0))) == reasons.TOO_LATE
    back = reattach(world, target)
    assert reason(answers(sender.queue("b", "m1", validFor=0))) == reasons.TOO_LATE
    assert ids(back.mail()) == []


def test_that_it_was_given_up_is_not_told_of_a_message_that_arrived_after_all() -> None:
    """protocol 4.8 D23, P 8: a notice that waits behind other mail is taken back before anybody sees it."""
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world)
    other = enter(world, "c")
    other.queue("a", "x1")
    sender.queue("b", "m1", validFor=world.limits.busy_ms)
    world.pass_time(world.limits.busy_ms)
    assert [record.notice is None for record in world.disk.mail.values()] == [True, False]
    back = reattach(world, target)
    sender.message("b", "m1")
    back.confirm("m1")
    assert {frame["type"] for frame in answers(sender.got())} == {"delivered"}
    sender.confirm("x1")
    assert sender.mail() == [] and world.disk.mail == {}


def test_a_retry_after_its_time_learns_what_became_of_the_first_attempt() -> None:
    """protocol 4.8 D8, D23"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1", extra={"validFor": 1_000})
    assert reason(answers(sender.message("b", "m1", extra={"validFor": 0}))) == reasons.RECEIPT_MISSING
    assert ids(target.mail()) == ["m1"]
    target.confirm("m1")
    assert {frame["type"] for frame in answers(sender.message("b", "m1", extra={"validFor": 0}))} == {"delivered"}


def test_a_retry_whose_name_means_another_session_by_now_is_no_conflict() -> None:
    """protocol 6.9.2: nobody knows whether the first one has it, so nobody says that it was delivered there."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    assert ids(target.mail()) == ["m1"]
    target.write("presence", name="other")
    enter(world, "b")
    [failed] = answers(sender.message("b", "m1"))
    assert (failed["reason"], failed.get("reasonCode")) == (reasons.UNCERTAIN_ELSEWHERE, None)


def test_mail_made_of_a_message_that_had_left_may_have_been_seen() -> None:
    """protocol 9.5.6: it was written to its recipient before it began to wait."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    target.leave()
    assert {frame["type"] for frame in answers(sender.queue("b", "m1", validFor=1_000))} == {"queued"}
    world.pass_time(1_000)
    assert only(sender.mail())["notice"]["reason"] == notices.never_confirmed(notices.TIME_OVER)


def test_the_age_of_mail_is_told() -> None:
    """Design section 7, Freshness: handed over with its age."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.pass_time(301_000)
    back = reattach(world, target)
    mail = back.first[1]["mail"]
    assert (mail["ageMs"], mail["queuedAt"]) == (301_000, world.wall - 301_000)


@pytest.mark.parametrize("value", [-1, 1.5, "1", True, 10**15])
def test_a_wrong_validity_is_refused(value: Any) -> None:
    world = World()
    sender, _ = away(world)
    assert reason(answers(sender.queue("b", "m1", validFor=value))) == reasons.INVALID_QUEUEING


def test_a_crash_loses_no_mail() -> None:
    """A5.1: after restart no item is lost, and none is done twice."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2", "y")
    back = reattach(world, target)
    back.confirm("m1")
    world.crash()
    again = reattach(world, target)
    assert ids(again.first) == ["m2"]
    assert again.first[1]["mail"]["offers"] == 2


def test_mail_of_a_closed_session_goes_back_to_its_senders() -> None:
    """A1.2 as far as mailboxes go, when the inbox is full: closed with grace_timeout, in one transaction."""
    world = World(limits=FULL)
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    world.pass_time(600_000)
    told = sender.mail()
    assert [frame["notice"]["messageId"] for frame in told] == ["m1", "m2"]
    assert world.disk.known_sessions[target.id].closed_reason == "grace_timeout"
    assert reason(answers(sender.queue("b", "m3"))) == reasons.SESSION_NOT_FOUND


def test_a_sender_that_is_away_finds_the_notice_in_its_mailbox() -> None:
    world = World(limits=FULL)
    sender, target = holder(world, "a"), enter(world, "b")
    token = sender.registered["addressToken"]
    target.leave()
    sender.queue("b", "m1")
    sender.write("unregister")
    world.pass_time(600_000)
    back = holder(world, "a", token)
    assert [frame["notice"]["messageId"] for frame in back.first if frame["type"] == "message"] == ["m1"]


def test_a_receipt_that_could_not_be_recorded_is_recorded_later() -> None:
    """The holder has the message: it is not handed over again, and never called expired."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    world.auto = False
    back.confirm("m1")
    world.fail_commit()
    world.auto = True
    assert only(answers(sender.queue("b", "m1")))["type"] == "queued"
    world.pass_time(2_000)
    assert ids(back.got()) == []
    assert world.disk.mail == {}
    assert only(answers(sender.queue("b", "m1")))["type"] == "delivered"


def test_a_failed_giving_up_is_tried_again() -> None:
    world = World(limits=Limits(grace_ms=10**10))
    sender, _target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.auto = False
    world.pass_time(1_000)
    world.fail_commit()
    world.auto = True
    world.pass_time(1_000)
    assert only(sender.mail())["notice"]["kind"] == "expired"


def test_a_lost_body_is_told_to_the_sender() -> None:
    """FE 1.2: a damaged entry is skipped, not fatal."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    del world.disk.bodies[min(world.disk.bodies)]
    assert ids(reattach(world, target).first) == ["m2"]
    assert only(sender.mail())["notice"]["reason"] == notices.BODY_LOST


def test_a_closed_store_takes_no_mail() -> None:
    world = World()
    sender, _target = away(world)
    world.auto = False
    sender.queue("b", "m1")
    world.fail_commit(final=True)
    world.settle()
    assert answers(sender.got())[0]["type"] == "delivery_failed"
    world.auto = True
    assert reason(answers(sender.queue("b", "m2"))).startswith("Accepted-delivery authority is invalid")


def test_a_message_to_somebody_busy_waits_as_mail() -> None:
    """A recipient confirms when it is done with a message; until then a sender that lets it wait is told so."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    assert ids(target.got()) == ["m1"]
    world.pass_time(2_000)
    assert only(answers(sender.got()))["type"] == "queued"
    assert ids(target.got()) == [], "it has the message"
    sender.queue("b", "m2")
    assert ids(target.got()) == ["m2"]
    target.confirm("m1", "m2")
    assert world.disk.mail == {}
    assert only(answers(sender.queue("b", "m1")))["type"] == "delivered"
    assert kinds(world, "m1") == ["mail.queued", "mail.offered", "mail.delivered"]


def test_a_busy_recipient_that_dies_gets_it_again() -> None:
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    world.pass_time(8_000)
    target.leave()
    world.crash()
    back = reattach(world, target)
    assert ids(back.first) == ["m1"]
    assert back.first[1]["mail"]["offers"] == 2


def test_an_older_sender_is_told_that_the_outcome_is_uncertain() -> None:
    """Protocol 6.10.6."""
    world = World()
    target = enter(world, "b")
    older = world.register("old", returnAddress="r")
    older.message("b", "m1")
    world.pass_time(8_000)
    assert reason(answers(older.got())) == reasons.RECEIPT_MISSING
    assert world.disk.mail == {}
    assert ids(target.got()) == ["m1"]


# --- shown after its time (F87) -------------------------------------------------------------------------


def test_the_sender_of_mail_that_was_shown_late_is_told_expired() -> None:
    """F87, protocol 9.5.5: it was handed over in time; its reader was shown it as out of date."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1", validFor=1_000)
    back = reattach(world, target)
    world.pass_time(1_000)
    back.write("received", messageId="m1", outOfDate=True)
    notice = only(sender.mail())["notice"]
    assert (notice["kind"], notice["messageId"], notice["reason"]) == ("expired", "m1", notices.SHOWN_LATE)
    assert kinds(world, "m1") == ["mail.queued", "mail.offered", "mail.expired"]
    assert [mail.message_id for mail in world.disk.mail.values()] == ["undeliverable:1:m1"]
    assert world.disk.operations == {}


def test_the_sender_of_a_live_message_that_was_shown_late_is_told_expired() -> None:
    """F87: it waited in an adapter, and never was mail."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1", extra={"validFor": 1_000})
    world.pass_time(1_500)
    target.write("received", messageId="m1", outOfDate=True)
    told = only(answers(sender.got()))
    assert (told["type"], told["reason"]) == ("delivery_failed", reasons.OUT_OF_DATE)
    assert reasons.code_of(told["reason"]) == "expired"
    assert world.disk.operations == {}, "a retry would be a new message, and find its reader again"


@pytest.mark.parametrize("validity", [{}, {"validFor": 60_000}])
def test_a_reader_cannot_call_out_of_date_what_is_not(validity: dict[str, int]) -> None:
    """Protocol 4.10: the broker's clock and what the sender said decide."""
    world = World()
    sender, target = away(world)
    live = enter(world, "c")
    sender.queue("b", "m1", **validity)
    sender.message("c", "m2", extra=validity)
    back = reattach(world, target)
    back.write("received", messageId="m1", outOfDate=True)
    live.write("received", messageId="m2", outOfDate=True)
    assert only(answers(sender.got()))["type"] == "delivered"
    assert kinds(world, "m1")[-1] == "mail.delivered"


def test_an_ask_has_its_own_end() -> None:
    """Protocol 9.5.5: who asked waits for the answer, and not for the reading."""
    world = World()
    asker, target = enter(world, "a"), enter(world, "b")
    asker.ask("b", "q1", extra={"validFor": 1_000})
    world.pass_time(1_500)
    target.write("received", messageId="q1", outOfDate=True)
    assert only(answers(asker.got()))["type"] == "delivered"


def test_what_is_handed_over_together_is_numbered_behind_what_its_listeners_record() -> None:
    """Design section 4: numbers of the journal are given at append, so that nobody who follows it misses one.

    Found by the simulator: a step of a flow was handed over behind other mail, and its event came before that mail's.
    """
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    ground, mailing = world.broker._ground, world.broker._post.mailing
    row = next(iter(world.disk.known_sessions.values()))

    def record(mail: Any, kind: str, reason: str, now: Any) -> None:
        ground.ledger.append((ground.journal.event("session.active", row, now),))

    mailing.on_moving.append(record)
    reattach(world, target)
    offered = [event.seq for event in world.disk.journal if event.kind == "mail.offered"]
    assert len(offered) == 2 and offered == sorted(offered)
    assert [event.seq for event in world.disk.journal] == sorted(event.seq for event in world.disk.journal)


# --- what fails on the way ------------------------------------------------------------------------------


def window_of_one() -> tuple[World, Agent, Agent, Agent]:
    """Return a world in which two messages wait for a session that has come back, and has the first of them.

    The session is there twice: as it registered, and as it is now.
    """
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world)
    sender.queue("b", "m1", "one")
    sender.queue("b", "m2", "two")
    back = reattach(world, target)
    assert ids(back.first) == ["m1"]
    return world, sender, target, back


def test_bodies_that_cannot_be_read_now_are_read_a_little_later() -> None:
    """FE 1.2: nothing is handed over that could not be read, and nothing is lost by that"""
    world, _, _, target = window_of_one()
    world.auto = False
    target.confirm("m1")
    world.commit()
    world.read(fails=True)
    world.auto = True
    assert ids(target.mail()) == []
    world.pass_time(world.limits.mail_retry_ms)
    assert ids(target.mail()) == ["m2"]


def test_a_store_that_closed_while_bodies_were_read_hands_nothing_over() -> None:
    """design 5 "Fail closed": what cannot be recorded is not offered"""
    world, sender, _, target = window_of_one()
    world.auto = False
    target.confirm("m1")
    world.commit()
    assert world.reads
    sender.message("b", "m3")
    world.fail_commit(final=True)
    world.auto = True
    world.settle()
    assert ids(target.mail()) == []
    assert [record.message_id for record in world.disk.mail.values()] == ["m2"]


def test_an_offer_that_was_not_recorded_is_made_again_though_its_mailbox_was_emptied_meanwhile() -> None:
    """design 3.6: a failed commit takes back every change behind it, the newest first"""
    world, _, before, target = window_of_one()
    person = operator(world)
    world.auto = False
    target.confirm("m1")
    world.commit()
    world.read()
    target.leave()
    person.write("purge", requestId="p", of={"sessionId": target.id})
    assert world.broker._post.boxes.get(f"session:{target.id}") is None
    world.fail_commit()
    world.auto = True
    world.pass_time(world.limits.mail_retry_ms)
    assert ids(reattach(world, before).first) == ["m2"]


def test_a_notice_whose_receipt_could_not_be_recorded_does_not_come_again() -> None:
    """The sender has the notice, whatever the disk says"""
    world = World()
    sender, _ = away(world)
    sender.queue("b", "m1", validFor=1_000)
    world.pass_time(1_000)
    [notice] = sender.mail()
    world.auto = False
    sender.confirm(notice["message"]["id"])
    world.fail_commit()
    world.auto = True
    world.pass_time(world.limits.mail_retry_ms)
    assert sender.mail() == [] and world.disk.mail == {}


def test_a_receipt_is_not_recorded_once_the_store_is_closed() -> None:
    """design 5 "Fail closed" """
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    world.auto = False
    back.confirm("m1")
    world.fail_commit()
    sender.message("b", "m2")
    world.fail_commit(final=True)
    world.auto = True
    world.pass_time(world.limits.mail_retry_ms)
    assert [record.message_id for record in world.disk.mail.values()] == ["m1"]


def test_to_purge_an_empty_mailbox_changes_nothing() -> None:
    """FE 1.7"""
    world = World()
    desk = holder(world, "desk")
    before = len(world.disk.journal)
    purged = only(operator(world).write("purge", requestId="p", of={"address": "desk"}, olderThanMs=0))
    assert (purged["type"], purged.get("mail", 0)) == ("purged", 0)
    assert len(world.disk.journal) == before and desk.mail() == []
