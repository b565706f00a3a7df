"""Test how the fate of a queued message comes back to its sender (protocol 4.17, 4.18, 5.25, OP-5)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, is_delivered, only, reason, types
from tests.core.runs import CHILD, OTHER, RUN, group_of, host, own, owned

NOBODY = "99999999-9999-4999-8999-999999999999"


def original(world: World, name: str = "sender", **members: Any) -> Client:
    """Connect a session whose home is the invocation; it has the newest protocol."""
    return world.register(name, **{"info": {"group": group_of()}, "returnAddress": f"ret-{name}", **members})


def notify(owner: Client, to: str, message_id: str = "n", text: str = "done", **more: Any) -> list[dict[str, Any]]:
    """Report a fate; members that are None are left out."""
    owner.attempts += 1
    frame = {
        "runId": RUN,
        "capability": "cap",
        "to": to,
        "message": {"id": message_id, "timestamp": 5, "content": {"text": text}},
        "attemptId": f"{owner.conn}.{owner.attempts}",
        **more,
    }
    frame = {name: value for name, value in frame.items() if value is not None}
    return owner.write("send_pending_stage_notification", **frame)


def told(recipient: Client) -> dict[str, Any]:
    return only(recipient.got(), "pending_stage_notification")


def reply(recipient: Client, request: dict[str, Any] | str, delivered: bool = True) -> list[dict[str, Any]]:
    request_id = request if isinstance(request, str) else request["requestId"]
    return recipient.write("pending_stage_notification_result", requestId=request_id, delivered=delivered)


# --- the way of a notification --------------------------------------------------------------------------


def test_it_is_delivered_once_its_recipient_took_it() -> None:
    """protocol 4.17, 4.18, 5.25"""
    world = World()
    owner, sender = owned(world), original(world)
    assert notify(owner, sender.id) == []
    frame = told(sender)
    assert frame["from"]["id"] == owner.id
    assert frame["message"] == {"id": "n", "timestamp": 5, "content": {"text": "done"}}
    reply(sender, frame)
    assert owner.got() == [{"type": "delivered", "messageId": "n", "attemptId": f"{owner.conn}.1"}]
    assert [row.state for row in world.disk.operations.values()] == ["accepted"]
    assert [row.question for row in world.disk.operations.values()] == [None]


def test_it_is_reserved_before_it_is_written_and_accepted_before_it_is_answered() -> None:
    """protocol 4.17.6, 6.9: on disk, without the capability"""
    world = World()
    owner, sender = owned(world), original(world)
    world.auto = False
    notify(owner, sender.id)
    world.take()
    assert sender.got() == []
    world.commit()
    (row,) = world.disk.operations.values()
    assert (row.state, row.target) == ("reserved", None)
    assert "cap" not in repr(row)
    world.take()
    reply(sender, told(sender))
    world.take()
    assert owner.got() == []
    world.settle()
    assert is_delivered(owner.got())


def test_a_refused_one_is_forgotten() -> None:
    """protocol 4.18"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    reply(sender, told(sender), delivered=False)
    assert reason(owner.got()) == reasons.NOTIFICATION_REFUSED
    assert world.disk.operations == {}
    notify(owner, sender.id)
    reply(sender, told(sender))
    assert is_delivered(owner.got())


def test_an_unanswered_one_is_forgotten_after_ten_seconds() -> None:
    """protocol 4.17.7, 4.17.8"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    world.pass_time(9_999)
    assert owner.got() == []
    world.pass_time(1)
    assert reason(owner.got()) == reasons.NOTIFICATION_UNACKNOWLEDGED
    assert world.disk.operations == {}
    reply(sender, told(sender))
    assert owner.got() == [], "a late answer is ignored"


def test_only_its_recipient_answers_it() -> None:
    """protocol 4.18: ignored otherwise"""
    world = World()
    owner, sender, other = owned(world), original(world), original(world, "other")
    sender.got()
    notify(owner, sender.id)
    frame = told(sender)
    reply(other, frame)
    reply(owner, frame)
    reply(sender, "unknown")
    assert owner.got() == []
    reply(sender, frame)
    assert is_delivered(owner.got())
    reply(sender, frame, delivered=False)
    assert owner.got() == []


# --- form and authority (protocol 4.17.1, 4.17.2) -------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message": {"id": "n"}}, ("n", "Invalid message format")),
        ({"message": None}, ("unknown", "Invalid message format")),
        ({"message": {"id": 7}}, ("unknown", "Invalid message format")),
        (
            {"message": {"id": "flow-dispatch/d", "timestamp": 5, "content": {"text": "x"}}},
            ("flow-dispatch/d", "Invalid message id: those that begin with flow-dispatch/ are the broker's own"),
        ),
        ({"runId": 1}, ("n", "Invalid message format")),
        ({"capability": None}, ("n", "Invalid message format")),
        ({"senderReturnAddress": ""}, ("n", "Invalid message format")),
        ({"senderRegistrationName": 1}, ("n", "Invalid message format")),
        ({"attemptId": 1}, ("n", "Invalid attemptId format")),
    ],
)
def test_a_wrong_form_is_answered_in_band(change: dict[str, Any], expected: tuple[str, str]) -> None:
    """protocol 4.17.1"""
    world = World()
    owner, sender = owned(world), original(world)
    frame = only(notify(owner, sender.id, **change), "delivery_failed")
    assert (frame["messageId"], frame["reason"]) == expected
    assert ("attemptId" in frame) is (change != {"attemptId": 1})
    assert sender.got() == []


def test_only_the_runs_owner_with_its_capability_may_notify() -> None:
    """protocol 4.17.2"""
    world = World()
    owner, sender, stranger = owned(world), original(world), host(world)
    for client, more in ((owner, {"capability": "x"}), (owner, {"runId": OTHER}), (stranger, {}), (sender, {})):
        assert reason(notify(client, sender.id, **more)) == reasons.NOT_THE_ROUTE_OWNER
    assert sender.got() == []


def test_authority_comes_before_what_is_known() -> None:
    """protocol 4.17, order of 2 and 3"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    reply(sender, told(sender))
    owner.got()
    assert reason(notify(owner, sender.id, capability="x")) == reasons.NOT_THE_ROUTE_OWNER


# --- idempotency (protocol 4.17.3, 6.9.1) ---------------------------------------------------------------


def test_a_known_one_is_not_sent_again() -> None:
    """protocol 4.17.3: accepted, also when nobody is there any more"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    reply(sender, told(sender))
    owner.got()
    sender.leave()
    assert is_delivered(notify(owner, sender.id))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "other"},
        {"to": NOBODY},
        {"senderReturnAddress": "ret-sender"},
        {"senderRegistrationName": "sender"},
    ],
)
def test_the_same_id_for_something_else_is_a_conflict(change: dict[str, Any]) -> None:
    """protocol 6.9.1, notification signature"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    reply(sender, told(sender))
    owner.got()
    frame = only(notify(owner, **{"to": sender.id, **change}), "delivery_failed")
    assert frame["reasonCode"] == "message_id_conflict"


def test_another_run_is_another_notification() -> None:
    """protocol 6.9.1: run id and capability are in the signature"""
    world = World()
    owner, sender = owned(world), original(world)
    own(owner, CHILD)
    notify(owner, sender.id)
    reply(sender, told(sender))
    owner.got()
    assert only(notify(owner, sender.id, runId=CHILD))["reasonCode"] == "message_id_conflict"


def test_one_under_way_is_not_sent_a_second_time() -> None:
    """protocol 4.17.3: uncertain"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    assert reason(notify(owner, sender.id)) == reasons.UNDER_WAY
    reply(sender, told(sender))
    assert is_delivered(owner.got())


def test_one_that_a_crash_interrupted_is_uncertain() -> None:
    """protocol 6.9.2"""
    world = World()
    owner = owned(world)
    original(world)
    notify(owner, NOBODY, senderReturnAddress="ret-sender")
    world.crash()
    owner = owned(world)
    original(world)
    assert reason(notify(owner, NOBODY, senderReturnAddress="ret-sender")) == reasons.UNCERTAIN


def test_without_a_store_nothing_is_sent() -> None:
    """protocol 4.17.3, 6.9.4: invalid"""
    world = World(store_trouble="the key file is missing")
    owner, sender = owned(world), original(world)
    assert reason(notify(owner, sender.id)) == reasons.authority_invalid("the key file is missing")
    assert sender.got() == []


# --- the recipient (protocol 4.17.4, 4.17.5) ------------------------------------------------------------


def reaches(owner: Client, recipient: Client, to: str = NOBODY, **more: Any) -> bool:
    frames = notify(owner, to, f"n{owner.attempts}", **more)
    if frames:
        assert reason(frames) == "Session not found"
        assert "reasonCode" not in frames[0]
        assert recipient.got() == []
        return False
    return told(recipient)["type"] == "pending_stage_notification"


def test_a_sender_that_came_back_is_found_by_its_return_address() -> None:
    """protocol 4.17.4"""
    world = World()
    owner, sender = owned(world), original(world, "back")
    assert reaches(owner, sender, senderReturnAddress="ret-back")
    assert not reaches(owner, sender, senderReturnAddress="ret-other")
    assert not reaches(owner, sender, senderReturnAddress="ret-other", senderRegistrationName="back")


def test_the_only_session_with_that_address_is_meant() -> None:
    """protocol 4.17.4: the only one in the route's group"""
    world = World()
    owner, sender = owned(world), original(world, "back")
    world.register("elsewhere", info={"group": group_of()}, returnAddress="ret-back", registrationGroup="team")
    sender.got()
    assert reaches(owner, sender, senderReturnAddress="ret-back")
    original(world, "twin", returnAddress="ret-back")
    sender.got()
    assert not reaches(owner, sender, senderReturnAddress="ret-back")


def test_without_an_address_the_registration_name_decides() -> None:
    """protocol 4.17.4: trimmed and case-insensitive, the name at registration"""
    world = World()
    owner, sender = owned(world), original(world, " Back ", returnAddress="r")
    sender.write("presence", name="renamed")
    assert reaches(owner, sender, senderRegistrationName="bACK  ")
    assert not reaches(owner, sender, senderRegistrationName="renamed")
    assert not reaches(owner, sender)
    original(world, "back")
    sender.got()
    assert not reaches(owner, sender, senderRegistrationName="back")


def test_an_id_that_is_here_is_looked_at_alone() -> None:
    """protocol 4.17.4, 4.17.5: the session with id ``to`` comes first, whether it may get it or not"""
    world = World()
    owner, sender = owned(world), original(world, "back")
    stranger = world.register("stranger")
    assert not reaches(owner, sender, stranger.id, senderReturnAddress="ret-back")


def test_a_recipient_is_an_agent_at_home_and_present_in_the_group() -> None:
    """protocol 4.17.5"""
    world = World()
    owner = owned(world)
    control = host(world)
    guest = world.register("guest", info={"group": group_of()}, registrationGroup="team", returnAddress="r1")
    absent = world.register("absent", info={"group": "away"}, registrationGroup=group_of(), returnAddress="r2")
    guest.got()
    for client in (control, guest, absent, owner):
        assert not reaches(owner, client, client.id)
    absent.write("join_group", group=group_of())
    absent.got()
    assert reaches(owner, absent, absent.id)


def test_an_agent_that_owns_a_run_does_not_notify_itself() -> None:
    """protocol 4.17.5"""
    world = World()
    owner = original(world, "owner")
    own(owner)
    assert reason(notify(owner, owner.id)) == reasons.SESSION_NOT_FOUND


def test_an_older_recipient_gets_a_plain_message() -> None:
    """protocol 5.30, OP-5: a successful write counts as admitted"""
    world = World()
    owner = owned(world)
    sender = world.register("older", info={"group": group_of()})
    world.auto = False
    notify(owner, sender.id)
    world.commit()
    assert owner.got() == []
    world.take(sender.conn)
    assert only(sender.got(), "message")["from"]["id"] == owner.id
    world.settle()
    assert is_delivered(owner.got())


def test_the_kernel_taking_it_proves_nothing_for_a_newer_recipient() -> None:
    """protocol 4.17: it answers"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    assert told(sender) and owner.got() == []


# --- departure, bounds, commits -------------------------------------------------------------------------


def test_a_recipient_that_leaves_fails_it() -> None:
    """protocol 6.15.6: forgotten, and the owner is told"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    sender.leave()
    assert reason(owner.got()) == reasons.NOTIFICATION_RECIPIENT_LEFT
    assert world.disk.operations == {}
    assert world.broker.next_deadline() is None or world.broker.next_deadline() > world.mono + 10_000


def test_an_owner_that_leaves_is_told_nothing() -> None:
    """protocol 6.15.6"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    frame = told(sender)
    owner.write("unregister")
    reply(sender, frame)
    assert owner.got() == []
    assert world.disk.operations == {}


def test_a_recipient_whose_connection_broke_unnoticed_is_not_found() -> None:
    """protocol 4.17.7: not written"""
    world = World()
    owner, sender = owned(world), original(world)
    world.auto = False
    notify(owner, sender.id)
    world.commit()
    world.lose(sender.conn)
    world.settle()
    assert reason(owner.got()) == "Session not found"
    assert world.disk.operations == {}
    world.end(sender.conn)
    assert owner.got() == []


def test_a_failed_reservation_is_taken_back() -> None:
    """design 3.6"""
    world = World()
    owner, sender = owned(world), original(world)
    world.auto = False
    notify(owner, sender.id)
    world.fail_commit()
    world.settle()
    assert reason(owner.got()) == reasons.NOT_RECORDED
    assert sender.got() == []
    world.auto = True
    assert notify(owner, sender.id) == []
    reply(sender, told(sender))
    assert is_delivered(owner.got())


def test_what_was_answered_before_its_commit_failed_is_not_answered_again() -> None:
    """design 4: one final answer"""
    world = World()
    owner, sender = owned(world), original(world)
    world.auto = False
    notify(owner, sender.id)
    world.end(sender.conn)
    world.take()
    assert reason(owner.got()) == reasons.NOTIFICATION_RECIPIENT_LEFT
    world.fail_commit()
    world.settle()
    assert owner.got() == []


def test_a_failed_acceptance_is_not_called_delivered() -> None:
    """protocol 4.18: failed if acceptance fails"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    frame = told(sender)
    world.auto = False
    reply(sender, frame)
    world.fail_commit()
    world.settle()
    assert reason(owner.got()) == reasons.NOT_CONFIRMED_DURABLY


def test_a_store_that_closed_meanwhile_confirms_nothing() -> None:
    """protocol 4.18"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    frame = told(sender)
    world.auto = False
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    reply(sender, frame)
    world.settle()
    assert reason(owner.got()) == reasons.NOT_CONFIRMED_DURABLY


def test_what_waits_for_recipients_is_bounded() -> None:
    """design 4: charge before you link"""
    world = World(limits=Limits(notifications=1))
    owner, sender = owned(world), original(world)
    notify(owner, sender.id, "n1")
    assert reason(notify(owner, sender.id, "n2")).startswith(reasons.CAPACITY)
    reply(sender, told(sender))
    assert types(owner.got()) == ["delivered"]
    assert notify(owner, sender.id, "n2") == []


def test_notifications_are_charged_to_their_owner() -> None:
    """design 5, bounds"""
    world = World(limits=Limits(operations=4, sender_share=4))
    owner, sender = owned(world), original(world)
    notify(owner, sender.id, "n1")
    reply(sender, told(sender))
    owner.got()
    assert reason(notify(owner, sender.id, "n2")).startswith(reasons.CAPACITY)


def test_a_stop_forgets_what_did_not_leave() -> None:
    """design 5, stop"""
    world = World()
    owner, sender = owned(world), original(world)
    world.auto = False
    world.deaf.add(sender.conn)
    notify(owner, sender.id)
    world.stop()
    assert world.disk.operations == {}


def test_its_answer_needs_both_members() -> None:
    """protocol 4.18: violations are protocol errors"""
    world = World()
    sender = original(world)
    sender.write("pending_stage_notification_result", requestId="q")
    assert sender.conn in world.destroyed


def test_others_that_leave_do_not_matter() -> None:
    """protocol 6.15.6: only a departing owner or recipient ends a notification"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    world.register("passer-by").leave()
    reply(sender, told(sender))
    assert is_delivered(owner.got())


def test_a_frame_that_is_lost_after_its_owner_left_is_told_to_nobody() -> None:
    """protocol 6.15.6, design 4: one final answer"""
    world = World()
    owner, sender = owned(world), original(world)
    world.deaf.add(sender.conn)
    notify(owner, sender.id)
    owner.write("unregister")
    world.lose(sender.conn)
    assert owner.got() == [] and world.disk.operations == {}


def test_an_answer_that_was_given_again_is_taken_back_with_the_acceptance_it_rests_on() -> None:
    """design 3.6: every answer that rests on a row carries its ticket"""
    world = World()
    owner, sender = owned(world), original(world)
    notify(owner, sender.id)
    frame = told(sender)
    world.auto = False
    reply(sender, frame)
    notify(owner, sender.id)
    world.fail_commit()
    world.settle()
    told_of = [answer for answer in owner.got() if answer["type"] == "delivery_failed"]
    assert [answer["reason"] for answer in told_of] == [reasons.NOT_CONFIRMED_DURABLY] * 2
    assert len({answer["attemptId"] for answer in told_of}) == 2
