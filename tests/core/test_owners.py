"""Test what becomes of a message that the owner of a run decides about (protocol 4.16, 5.22, 5.23, 6.12.4, OP-5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode as to_json

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, answers, is_delivered, only, reason, types
from tests.core.runs import (
    CHILD,
    OTHER,
    RUN,
    asked,
    decide,
    group_of,
    host,
    live,
    member,
    own,
    owned,
    path,
    stage,
    went_live,
    worker,
)


def running(world: World, *keys: str, name: str = "worker", **members: Any) -> Client:
    """Connect a stage that is live under these keys."""
    client = worker(world, name, **members)
    assert went_live(live(client, *keys))
    return client


def older(world: World, **members: Any) -> Client:
    """Connect an older client in the invocation: it drops the connection on frames it does not know."""
    return world.register("older", info={"group": group_of()}, **members)


# --- asking (protocol 5.22) -----------------------------------------------------------------------------


def test_the_owner_is_shown_message_sender_and_target() -> None:
    """protocol 5.22: the message byte for byte, the sender with its immutable identity"""
    world = World()
    owner = owned(world)
    sender = member(world, "Ada ")
    sender.write("presence", name="renamed")
    world.feed(
        sender.conn,
        b'{"type":"send","to":" %s ","attemptId":"a","message":{"id":"m","timestamp":1.50,"zz":null,'
        b'"content":{"text":"x"}}}' % path("a").encode(),
    )
    request = asked(owner)
    assert request.pop("requestId")
    shown = request.pop("from")
    assert (shown["id"], shown["name"]) == (sender.id, "renamed")
    assert request == {
        "type": "pending_stage_message",
        "runId": RUN,
        "target": path("a"),
        "message": {"id": "m", "timestamp": 1.5, "zz": None, "content": {"text": "x"}},
        "senderRegistrationName": "Ada",
        "senderReturnAddress": "ret-Ada ",
    }


def test_what_a_sender_does_not_have_is_left_out() -> None:
    """protocol 1.4, 5.22"""
    world = World()
    owner = owned(world)
    sender = world.register(None, info={"group": group_of()})
    sender.message(path("a"), "m")
    assert not {"senderRegistrationName", "senderReturnAddress", "live"} & asked(owner).keys()


def test_nobody_is_told_before_the_owner_decides() -> None:
    """protocol 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    assert sender.message(path("a"), "m") == []
    world.pass_time(9_999)
    assert sender.got() == []
    assert asked(owner)


def test_an_owner_that_is_silent_for_ten_seconds_has_not_acknowledged() -> None:
    """protocol 6.12.4, 7"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    world.pass_time(10_000)
    assert reason(sender.got()) == reasons.STAGE_UNACKNOWLEDGED
    assert decide(owner, asked(owner), "delivered") == []
    assert sender.got() == [], "a late decision is ignored"


def test_an_owner_that_leaves_fails_what_it_was_asked_in_order() -> None:
    """protocol 6.12.4, 6.15.5"""
    world = World()
    owner, sender = owned(world), member(world)
    for message_id in ("m1", "m2", "m3"):
        sender.message(path("a"), message_id)
    owner.leave()
    frames = sender.got()
    assert [frame["messageId"] for frame in frames] == ["m1", "m2", "m3"]
    assert {frame["reason"] for frame in frames} == {reasons.STAGE_OWNER_LEFT}
    world.pass_time(10_000)
    assert sender.got() == []


def test_only_the_owner_that_was_asked_decides_and_only_once() -> None:
    """protocol 4.16: an unknown request id, or one of another owner, is ignored"""
    world = World()
    owner, other, sender = owned(world), owned(world, OTHER), member(world)
    sender.message(path("a"), "m")
    request = asked(owner)
    decide(other, request, "delivered")
    decide(sender, request, "delivered")
    decide(owner, "unknown", "delivered")
    assert sender.got() == []
    decide(owner, request, "delivered")
    assert is_delivered(sender.got())
    decide(owner, request, "delivered")
    assert sender.got() == []


def test_a_former_owner_may_still_decide_what_it_was_asked() -> None:
    """protocol 4.16: from that owner; a takeover ends its route, not its requests"""
    world = World()
    keeper, sender = owned(world, dormant=True, capability="old"), member(world)
    sender.message(path("a"), "m")
    own(host(world), capability="new")
    request, revoked = keeper.got()
    assert revoked["type"] == "pending_stage_route_revoked"
    decide(keeper, request, "queued", position=1)
    assert only(sender.got())["type"] == "queued"


def test_two_attempts_of_one_message_are_two_requests() -> None:
    """protocol 6.8: one answer each, under its own attempt id"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    sender.message(path("a"), "m")
    first, second = owner.got()
    decide(owner, second, "queued", position=1)
    decide(owner, first, "queued", position=1)
    assert [frame["attemptId"] for frame in sender.got()] == [f"{sender.conn}.2", f"{sender.conn}.1"]


def test_a_reply_to_a_question_nobody_can_have_open_is_not_queued() -> None:
    """protocol 6.7: a reply to a stale thread does not become an ordinary message"""
    world = World()
    owner, sender = owned(world), member(world)
    frames = sender.reply(path("a"), "r", "q")
    assert only(frames)["reasonCode"] == "session_not_found"
    assert owner.got() == []


# --- bounds (design 7, OP-1) ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        Limits(owner_requests_per_session=2),
        Limits(owner_requests=2),
        Limits(owner_request_bytes_per_session=1_000),
        Limits(owner_request_bytes=1_000),
    ],
)
def test_what_waits_for_owners_is_bounded(limits: Limits) -> None:
    """design 4: every queue is charged; a slot is free again once the owner has decided"""
    world = World(limits=limits)
    owner, sender = owned(world), member(world)
    for message_id in ("m1", "m2"):
        sender.message(path("a"), message_id, "x" * 200)
    assert sender.got() == []
    requests = owner.got()
    assert reason(sender.message(path("a"), "m3", "x" * 200)).startswith(reasons.CAPACITY)
    assert owner.got() == []
    decide(owner, requests[0], "delivered")
    assert is_delivered(sender.got())
    assert sender.message(path("a"), "m3", "x" * 200) == []
    assert asked(owner)["message"]["id"] == "m3"


def test_one_sender_at_its_bound_stands_in_nobodys_way() -> None:
    """design 4: per session"""
    world = World(limits=Limits(owner_requests_per_session=1))
    owner, sender, other = owned(world), member(world), member(world, "other")
    sender.message(path("a"), "m1")
    owner.got()
    assert reason(sender.message(path("a"), "m2")).startswith(reasons.CAPACITY)
    assert other.message(path("a"), "m3") == []
    assert asked(owner)


# --- delivered, queued, refused -------------------------------------------------------------------------


def test_delivered_is_passed_on() -> None:
    """protocol 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    decide(owner, asked(owner), "delivered")
    assert sender.got() == [{"type": "delivered", "messageId": "m", "attemptId": f"{sender.conn}.1"}]


def test_queued_names_the_target_as_it_was_sent() -> None:
    """protocol 5.13, 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(f" {path('reviewer-*')} ", "m")
    assert decide(owner, asked(owner), "queued", position=3, notInKnownSet=True) == []
    assert sender.got() == [
        {
            "type": "queued",
            "messageId": "m",
            "attemptId": f"{sender.conn}.1",
            "target": path("reviewer-*"),
            "position": 3,
            "notInKnownSet": True,
        }
    ]


@pytest.mark.parametrize(("position", "shown"), [(1, 1), (0.25, 1), (2.5, 3), (1e300, 2**53 - 1), (10**30, 2**53 - 1)])
def test_a_position_is_shown_as_a_whole_number(position: float, shown: int) -> None:
    """protocol 5.13: at least 1"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    decide(owner, asked(owner), "queued", position=position)
    assert only(sender.got())["position"] == shown


@pytest.mark.parametrize("more", [{}, {"position": 0}, {"position": -1}])
def test_queued_without_a_positive_position_is_a_refusal(more: dict[str, Any]) -> None:
    """protocol 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    decide(owner, asked(owner), "queued", **more)
    assert reason(sender.got()) == reasons.STAGE_REFUSED


def test_a_refusal_carries_the_owners_words_and_code() -> None:
    """protocol 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.ask(path("a"), "q")
    decide(owner, asked(owner), "refused", reason="not yet", reasonCode="message_id_conflict")
    frame = only(sender.got(), "delivery_failed")
    assert (frame["reason"], frame["reasonCode"]) == ("not yet", "message_id_conflict")


def test_an_older_sender_is_told_delivered_instead_of_queued() -> None:
    """protocol 5.30, OP-5: the run's durable queue has the message, and queued would end the connection"""
    world = World()
    owner = owned(world)
    sender = older(world)
    sender.message(path("a"), "m")
    decide(owner, asked(owner), "queued", position=1)
    assert is_delivered(sender.got())


def test_decisions_reach_the_connection_the_send_came_on() -> None:
    """protocol 4.8: all answers go there, also when its session has left; to a closed one nothing is written"""
    world = World()
    owner, sender, gone = owned(world), member(world), member(world, "gone")
    sender.message(path("a"), "m1")
    gone.message(path("a"), "m2")
    first, second = owner.got()
    sender.write("unregister")
    gone.leave()
    decide(owner, first, "queued", position=1)
    decide(owner, second, "queued", position=2)
    assert types(sender.got()) == ["queued"]


# --- forward --------------------------------------------------------------------------------------------


def test_a_forwarded_message_is_an_ordinary_send_from_then_on() -> None:
    """protocol 6.12.4: reserved before it is forwarded, delivered behind the acceptance, and from the copied sender"""
    world = World(auto=False)
    owner, sender, stage_session = owned_world(world)
    sender.message(path("st-1"), "m")
    world.settle()
    request = asked(owner)
    sender.write("presence", name="renamed later")
    decide(owner, request, "forward", target=path("st-1"))
    world.take()
    assert stage_session.got() == [], "not before the reservation is committed"
    world.commit()
    world.take()
    frame = only(stage_session.got(), "message")
    assert (frame["from"]["name"], frame["message"]["id"]) == ("sender", "m")
    assert answers(sender.got()) == []
    world.commit()
    world.take()
    assert is_delivered(sender.got())
    assert [row.state for row in world.disk.operations.values()] == ["accepted"]


@pytest.mark.parametrize("spare_ms", [-1, 0, 1])
def test_the_time_that_an_owner_takes_counts_for_how_long_a_message_is_valid(spare_ms: int) -> None:
    """protocol 9.5.5: it counts from the send."""
    world = World()
    owner, sender, stage_session = owned_world(world)
    world.auto = True
    sender.message(path("st-1"), "m", extra={"validFor": 1_000 + spare_ms})
    request = asked(owner)
    world.pass_time(1_000)
    decide(owner, request, "forward", target=path("st-1"))
    assert stage_session.texts() == (["x"] if spare_ms > 0 else [])
    [answer] = answers(sender.got())
    assert answer.get("reason") == (None if spare_ms > 0 else reasons.TOO_LATE)


def owned_world(world: World) -> tuple[Client, Client, Client]:
    """Return owner, sender and live stage of a world that does nothing by itself."""
    world.auto = True
    owner, sender = owned(world, stages=[stage("st-1")]), member(world)
    stage_session = running(world, "st-1")
    world.auto = False
    return owner, sender, stage_session


def test_a_failed_reservation_of_a_forward_is_taken_back() -> None:
    """design 3.6: not recorded, retry the same id"""
    world = World(auto=False)
    owner, sender, stage_session = owned_world(world)
    sender.message(path("st-1"), "m")
    world.take()
    decide(owner, asked(owner), "forward", target=path("st-1"))
    world.fail_commit()
    world.settle()
    assert reason(sender.got()) == reasons.NOT_RECORDED
    assert stage_session.got() == []
    world.auto = True
    sender.message(path("st-1"), "m")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert stage_session.texts() == ["x"]
    assert is_delivered(sender.got())


def test_a_live_stage_is_asked_about_with_a_mark() -> None:
    """protocol 4.8 D14, 5.22"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    sender.message(path("st-1"), "m")
    assert asked(owner)["live"] is True
    assert stage_session.got() == []


def test_a_known_message_is_answered_without_asking_the_owner() -> None:
    """protocol 4.8 D8 and D9 come before D14"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    sender.message(path("st-1"), "m")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert stage_session.texts() == ["x"]
    sender.got()
    assert is_delivered(sender.message(path("st-1"), "m"))
    assert only(sender.message(path("st-1"), "m", "other"))["reasonCode"] == "message_id_conflict"
    assert owner.got() == []


def test_the_second_forward_of_one_message_is_not_sent_again() -> None:
    """protocol 6.12.4: as D8 to D18, by the original signature"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    sender.message(path("a"), "m")
    stage_session = worker(world)
    live(stage_session, "a")
    for request in owner.got():
        decide(owner, request, "forward", target=path("a"))
    assert stage_session.texts() == ["x"]
    assert types(sender.got()) == ["delivered", "delivered"]


@pytest.mark.parametrize(
    "target",
    ["nobody", path("nobody"), path("st-1", run=OTHER), "workflow:st-1", path("*"), ""],
)
def test_a_forward_to_what_is_no_live_stage_of_the_invocation_fails(target: str) -> None:
    """protocol 6.12.4: an owner cannot move a message into another invocation"""
    world = World()
    owner, sender = owned(world), member(world)
    owned(world, OTHER)
    foreign = worker(world, home=group_of(OTHER))
    assert went_live(live(foreign, "st-1", run=OTHER))
    sender.message(path("a"), "m")
    decide(owner, asked(owner), "forward", target=target)
    assert reason(sender.got()) == reasons.SESSION_NOT_FOUND
    assert foreign.got() == []


def test_a_forward_after_the_sender_left_goes_nowhere() -> None:
    """protocol 6.12.4: the sender must still be connected"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    sender.message(path("st-1"), "m")
    sender.write("unregister")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert stage_session.got() == []
    assert reason(sender.got()) == reasons.SESSION_NOT_FOUND


def test_a_forward_leads_to_the_stage_the_send_had_found() -> None:
    """protocol 6.12.4: if the send had found a live session, it must be that same session"""
    world = World()
    owner, sender = owned(world), member(world)
    first = running(world, "st-1", name="first")
    sender.message(path("st-1"), "m")
    first.leave()
    second = worker(world, "second")
    live(second, "st-1")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert second.texts() == []
    assert reason(sender.got()) == reasons.SESSION_NOT_FOUND


def test_a_pending_message_may_be_forwarded_to_whoever_is_live_then() -> None:
    """protocol 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    stage_session = worker(world)
    live(stage_session, "st-9")
    decide(owner, asked(owner), "forward", target=path("st-9"))
    assert stage_session.texts() == ["x"]
    assert is_delivered(sender.got())


def test_a_stage_never_gets_its_own_message() -> None:
    """protocol 4.8 D3"""
    world = World()
    owner = owned(world)
    sender = worker(world)
    sender.write("join_group", group=group_of())
    sender.message(path("a"), "m")
    live(sender, "a")
    decide(owner, asked(owner), "forward", target=path("a"))
    assert reason(sender.got()[-1:]) == reasons.SELF_TARGET
    assert reason(sender.message(path("a"), "m2")) == reasons.SELF_TARGET


def test_an_expected_recipient_holds_for_a_forward_too() -> None:
    """protocol 6.2.4, D4"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m", extra={"expectedRecipientId": "somebody"})
    stage_session = worker(world)
    live(stage_session, "a")
    decide(owner, asked(owner), "forward", target=path("a"))
    assert reason(sender.got()) == reasons.OTHER_RECIPIENT
    assert stage_session.texts() == []


def test_an_ask_of_a_live_stage_opens_a_question() -> None:
    """protocol 6.12.4: question_target and all that follows from an ask; the reply crosses groups"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1", acknowledgesReceipt=True)
    sender.ask(path("st-1"), "q", extra={"resolveReplyTarget": True})
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert only(sender.got(), "question_target")["sessionId"] == stage_session.id
    assert stage_session.texts() == ["?"]
    stage_session.write("received", messageId="q")
    assert is_delivered(sender.got())
    assert is_delivered(stage_session.reply(sender.id, "r", "q"))
    assert sender.texts() == ["!"]


def test_an_ask_of_a_stage_that_has_ended_is_refused_at_the_forward() -> None:
    """protocol 4.8 D12, 6.12.4"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    sender.ask(path("st-1"), "q")
    stage_session.write("presence", replyCapability="terminal")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert reason(sender.got()) == reasons.TERMINAL


def test_a_reply_whose_question_closed_meanwhile_is_not_forwarded() -> None:
    """protocol 6.7, D6: the owner's decision takes time"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    stage_session.write("join_group", group=group_of())
    assert is_delivered(stage_session.ask(sender.id, "q1"))
    sender.got()
    sender.reply(path("st-1"), "r1", "q1")
    request = asked(owner)
    assert is_delivered(sender.reply(stage_session.id, "r2", "q1"))
    decide(owner, request, "forward", target=path("st-1"))
    assert reason(sender.got()) == reasons.NO_OPEN_QUESTION


def test_a_withdrawn_ask_opens_no_question_when_it_is_forwarded() -> None:
    """protocol 4.24, OP-6"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1")
    sender.ask(path("st-1"), "q")
    sender.write("cancel_ask", messageId="q")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert is_delivered(sender.got())
    assert reason(stage_session.reply(sender.id, "r", "q")) == reasons.NO_OPEN_QUESTION


def test_what_is_withdrawn_is_that_question_alone() -> None:
    """protocol 4.24, OP-6"""
    world = World()
    owner, sender = owned(world), member(world)
    running(world, "st-1")
    requests = []
    for message_id in ("q1", "q2"):
        sender.ask(path("st-1"), message_id)
        requests.append(asked(owner))
    sender.write("cancel_ask", messageId="q1")
    for request in requests:
        decide(owner, request, "forward", target=path("st-1"))
    assert world.broker._messages.questions.count_asked_by(sender.id) == 1


def test_an_uncertain_forward_to_a_stage_without_receipts_is_refused() -> None:
    """protocol 6.9.2, D11: the same rule as for any send"""
    world = World(auto=False)
    owner, sender, stage_session = owned_world(world)
    sender.message(path("st-1"), "m")
    world.settle()
    decide(owner, asked(owner), "forward", target=path("st-1"))
    world.commit()
    sender.message(path("st-1"), "m")
    world.take(sender.conn)
    assert reason(sender.got()) == reasons.UNDER_WAY
    world.settle()
    assert stage_session.texts() == ["x"]


def test_an_earlier_attempt_that_is_decided_late_takes_nothing_from_the_newest() -> None:
    """protocol 6.10.8, design 4: the one final answer is the newest attempt's, in whatever order the owner decides"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "st-1", acknowledgesReceipt=True)
    sender.message(path("st-1"), "m")
    sender.message(path("st-1"), "m")
    first, second = owner.got()
    for request in (second, first):
        decide(owner, request, "forward", target=path("st-1"))
    assert stage_session.texts() == ["x"]
    stage_session.write("received", messageId="m")
    assert [frame["attemptId"] for frame in sender.got()] == [f"{sender.conn}.2"]


# --- sticky broadcast (protocol 5.23, 6.12.4) -----------------------------------------------------------


def test_a_broadcast_reaches_every_live_stage_once() -> None:
    """protocol 6.12.4: two targets of one stage are one stage"""
    world = World()
    owner, sender = owned(world, stages=[stage("st-1", "a"), stage("st-2", "b")]), member(world)
    first, second = running(world, "st-1", "a", name="first"), running(world, "st-2", "b", name="second")
    sender.message(path("*"), "m")
    request = asked(owner)
    sender.write("presence", name="renamed later")
    targets = [path("a"), path("st-1"), path("nobody"), path("st-2"), path("st-2")]
    frames = decide(owner, request, "queued", position=1, forwardTargets=targets)
    assert frames == [
        {
            "type": "sticky_live_delivered",
            "runId": RUN,
            "messageId": "m",
            "target": path("*"),
            "deliveredTargets": [path("a"), path("st-1"), path("st-2")],
        }
    ]
    assert only(first.got())["from"]["name"] == "sender"
    assert second.texts() == ["x"]
    assert only(sender.got(), "queued")["target"] == path("*")
    assert world.disk.operations == {}, "not recorded (protocol 6.9.6)"


def test_a_broadcast_that_reached_nobody_is_not_reported() -> None:
    """protocol 6.12.4: if any was reached"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("*"), "m")
    assert decide(owner, asked(owner), "queued", position=1, forwardTargets=[path("a")]) == []
    assert only(sender.got(), "queued")


def test_a_broadcast_stays_in_its_invocation_and_passes_its_sender_by() -> None:
    """protocol 6.12.4: no message crosses into another invocation"""
    world = World()
    owner = owned(world)
    owned(world, OTHER)
    foreign = worker(world, "foreign", home=group_of(OTHER))
    assert went_live(live(foreign, "a", run=OTHER))
    below = worker(world, "below", home=f"{group_of()}/sub")
    assert went_live(live(below, "b"))
    sender = worker(world, "sender")
    assert went_live(live(sender, "c"))
    sender.write("join_group", group=group_of())
    sender.message(path("**"), "m")
    targets = [path("a", run=OTHER), path("b"), path("c")]
    told = decide(owner, asked(owner), "queued", position=1, forwardTargets=targets)
    assert only(told)["deliveredTargets"] == [path("b")]
    assert foreign.got() == []
    assert below.texts() == ["x"]
    assert types(sender.got()) == ["queued"]


def test_a_refused_broadcast_reaches_nobody() -> None:
    """protocol 6.12.4: sticky only with queued"""
    world = World()
    owner, sender = owned(world), member(world)
    stage_session = running(world, "a")
    for outcome, more in (("refused", {}), ("delivered", {}), ("queued", {"position": 0})):
        sender.message(path("*"), outcome)
        assert decide(owner, asked(owner), outcome, forwardTargets=[path("a")], **more) == []
    assert stage_session.got() == []


# --- an owner among its own stages ----------------------------------------------------------------------


def test_an_owner_may_ask_itself() -> None:
    """protocol 6.12.4: nothing excludes the owner as a sender"""
    world = World()
    owner = host(world, returnAddress="ret-host")
    own(owner)
    owner.write("join_group", group=group_of())
    request = only(owner.message(path("a"), "m"), "pending_stage_message")
    assert only(decide(owner, request, "queued", position=1))["type"] == "queued"


def test_an_owner_that_leaves_while_it_asks_itself_leaves_nothing_behind() -> None:
    """protocol 6.15"""
    world = World()
    owner = owned(world)
    owner.write("join_group", group=group_of())
    assert types(owner.message(path("a"), "m")) == ["pending_stage_message"]
    assert reason(owner.write("unregister")) == reasons.STAGE_OWNER_LEFT
    assert world.broker.next_deadline() is None


def test_a_protocol_error_of_an_owner_counts_as_its_departure() -> None:
    """protocol 0: the broker retires the session"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    world.feed(owner.conn, to_json({"type": "pending_stage_message_result", "requestId": "x", "outcome": "lost"}))
    assert owner.conn in world.destroyed
    assert reason(sender.got()) == reasons.STAGE_OWNER_LEFT


def test_a_live_stage_without_an_owner_of_its_path_is_written_to_at_once() -> None:
    """protocol 6.12.4: nobody decides about it"""
    world = World()
    own(host(world, CHILD, group=group_of()), CHILD, group=group_of(), stages=[stage("st-1", target=path("b", "st-1"))])
    client = worker(world)
    assert went_live(live(client, "st-1", run=CHILD))
    sender = world.register("sender", info={"groups": ["default", "own-worker"]})
    assert is_delivered(sender.message(path("b", "st-1"), "m1")) and client.texts() == ["x"]
