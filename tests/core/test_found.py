"""What the machine of ``test_machine`` found, one small conversation each."""

from __future__ import annotations

from typing import Any

from intercom.core.records import OperationState
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, answers, only, reason


def newest(world: World, name: str, *, confirms: bool = False, **members: Any) -> Client:
    receipts = {"acknowledgesReceipt": True} if confirms else {}
    return world.register(name, returnAddress=f"address of {name}", **receipts, **members)


def states(world: World) -> list[OperationState]:
    return [row.state for row in world.disk.operations.values()]


def test_a_row_whose_deletion_failed_is_deleted_later() -> None:
    """Design 5: operations stay until their TTL, and are then gone from the disk too; a full disk is tried again."""
    world = World(limits=Limits(operation_ttl_ms=60_000))
    amy, bob = world.register("amy"), world.register("bob")
    amy.message(bob.id, "m")
    world.auto = False
    world.pass_time(60_000)
    world.fail_commit()
    assert states(world) == [OperationState.ACCEPTED]
    world.auto = True
    world.pass_time(2_000)
    assert not world.disk.operations


def test_a_reservation_that_was_forgotten_stays_forgotten_when_its_deletion_fails() -> None:
    """Design 5, Stop: a message that never left costs its sender nothing; protocol 4.8 D17."""
    world = World()
    amy, bob = world.register("amy"), world.register("bob", returnAddress="b")
    world.auto = False
    world.deaf.add(bob.conn)
    amy.message(bob.id, "m")
    world.commit()
    bob.leave()
    world.fail_commit()
    world.auto = True
    world.settle()
    assert reason(amy.got()) == reasons.SESSION_NOT_FOUND
    again = world.register("bob", returnAddress="b", preferredSessionId=bob.id)
    assert only(answers(amy.message(bob.id, "m")))["type"] == "delivered"
    assert again.texts() == ["x"]
    world.pass_time(2_000)
    assert states(world) == [OperationState.ACCEPTED]


def test_a_deletion_that_failed_is_made_up_for_by_a_graceful_stop() -> None:
    """Design 5, Stop: in one last commit forget every reservation whose frame did not leave."""
    world = World()
    amy, bob = world.register("amy"), world.register("bob")
    world.auto = False
    world.deaf.add(bob.conn)
    amy.message(bob.id, "m")
    world.commit()
    bob.leave()
    world.fail_commit()
    world.stop()
    assert not world.disk.operations


def test_a_reservation_is_forgotten_when_all_copies_of_its_frame_are_lost() -> None:
    """Protocol 6.10.3 and 6.10.8: a retry waits in the same queue as the first copy, and both go down with the link."""
    world = World()
    amy, bob = world.register("amy"), newest(world, "bob", confirms=True)
    world.auto = False
    world.deaf.add(bob.conn)
    for _ in range(2):
        amy.message(bob.id, "m")
        world.commit()
    bob.leave()
    world.settle()
    assert only(answers(amy.got()))["reason"] == reasons.SESSION_NOT_FOUND
    assert not world.disk.operations


def test_a_lost_copy_does_not_end_the_wait_for_one_that_was_taken() -> None:
    """Protocol 6.10.9: the recipient may have the message, so its departure does not end the wait."""
    world = World()
    amy, bob = world.register("amy"), newest(world, "bob", confirms=True)
    amy.message(bob.id, "m")
    world.deaf.add(bob.conn)
    amy.message(bob.id, "m")
    bob.leave()
    assert not answers(amy.got())
    again = newest(world, "bob", confirms=True, preferredSessionId=bob.id)
    assert [frame["message"]["id"] for frame in again.first if frame["type"] == "message"] == ["m"]
    again.write("received", messageId="m")
    assert only(answers(amy.got()))["type"] == "delivered"


def test_a_copy_written_again_at_a_registration_counts_as_one_that_may_arrive() -> None:
    """Protocol 6.10.7: what a recipient got when it came back is not forgotten when its earlier link dies at last."""
    world = World()
    amy, bob = world.register("amy"), newest(world, "bob", confirms=True)
    world.deaf.add(bob.conn)
    amy.message(bob.id, "m")
    world.end(bob.conn)
    again = newest(world, "bob", confirms=True, preferredSessionId=bob.id)
    assert [frame["message"]["id"] for frame in again.first if frame["type"] == "message"] == ["m"]
    world.lose(bob.conn)
    assert states(world) == [OperationState.RESERVED]
    assert not answers(amy.got())


def test_a_copy_shows_its_sender_as_it_is_now() -> None:
    """Protocol 5.10: ``from`` of a frame that is written again leads a reply to the session its sender has now."""
    world = World()
    amy, bob = newest(world, "amy"), newest(world, "bob", confirms=True)
    amy.message(bob.id, "m")
    bob.got()
    amy.leave()
    again = newest(world, "amy")
    assert again.id != amy.id
    again.message(bob.id, "m")
    assert only(bob.got(), "message")["from"]["id"] == again.id


def test_an_ask_that_found_its_target_under_another_id_is_not_called_lost() -> None:
    """Protocol 6.9.5, design 5: after a restart the question moves to the target's new id and waits for no other."""
    world = World()
    amy, bob = newest(world, "amy"), newest(world, "bob")
    amy.ask(bob.id, "q")
    world.crash()
    again, elsewhere = newest(world, "amy", preferredSessionId=amy.id), newest(world, "bob")
    assert elsewhere.id != bob.id
    assert only(answers(again.ask(elsewhere.id, "q", extra={"logicalTarget": bob.id})))["type"] == "delivered"
    world.pass_time(Limits().dormant_target_ms)
    assert not [frame for frame in again.got() if frame["type"] == "peer_disconnected"]


def test_a_question_is_not_opened_after_its_deadline() -> None:
    """Design 5: the ask's deadline ends the question; a reply that proves a late arrival does not open it for once."""
    world = World(limits=Limits(ask_ms=40_000))
    amy = newest(world, "amy", info={"group": "a"})
    bob = newest(world, "bob", confirms=True, info={"groups": ["a", "b"]})
    amy.ask(bob.id, "q")
    bob.write("presence", requestId="p", groups=["b"])
    world.pass_time(40_001)
    assert reason(bob.reply(amy.id, "r", "q")) == reasons.NO_OPEN_QUESTION


def test_an_ask_that_was_withdrawn_and_sent_again_before_its_receipt_asks_again() -> None:
    """Protocol OP-6: withdrawing ends the question; the same ask sent again opens it, whatever its row says."""
    world = World()
    amy, bob = newest(world, "amy"), newest(world, "bob", confirms=True)
    amy.ask(bob.id, "q")
    amy.write("cancel_ask", messageId="q")
    amy.ask(bob.id, "q")
    bob.write("received", messageId="q")
    assert only(answers(amy.got()))["type"] == "delivered"
    assert only(answers(bob.reply(amy.id, "r", "q")))["type"] == "delivered"


def test_a_stranger_who_got_the_id_of_a_target_after_a_restart_cannot_answer_for_it() -> None:
    """Protocol 6.5: an answer crosses groups only from the session that was asked, not from who holds its id now."""
    world = World(limits=Limits(retired_ids=1))
    amy, bob = newest(world, "amy", info={"group": "a"}), newest(world, "bob", info={"group": "a"})
    amy.ask(bob.id, "q")
    newest(world, "cid")
    world.crash()
    stranger = newest(world, "dan", preferredSessionId=bob.id, info={"group": "b"})
    assert stranger.id == bob.id, "the bound of remembered ids let go of it"
    again = newest(world, "amy", preferredSessionId=amy.id, info={"group": "a"})
    assert again.id == amy.id
    assert reason(stranger.reply(again.id, "r", "q")) == reasons.NO_OPEN_QUESTION
    world.pass_time(Limits().dormant_target_ms)
    assert [frame["replyTo"] for frame in again.got() if frame["type"] == "peer_disconnected"] == ["q"]


def test_a_session_without_an_address_withdraws_what_it_sent_again_after_a_reconnect() -> None:
    """Protocol OP-6, OP-7: the row names the earlier session, but the attempt that waits is this one's."""
    world = World()
    amy, bob = world.register("amy"), newest(world, "bob", confirms=True)
    amy.ask(bob.id, "q")
    amy.leave()
    again = world.register("amy")
    again.ask(bob.id, "q")
    again.write("cancel_ask", messageId="q")
    assert reason(bob.reply(again.id, "r", "q")) == reasons.NO_OPEN_QUESTION


def test_nothing_is_kept_of_a_row_whose_answer_was_taken_after_its_time() -> None:
    """No state is left when all have left and all time has passed: a sender may be slow to take its answer."""
    world = World(limits=Limits(operation_ttl_ms=60_000))
    amy, bob = world.register("amy"), world.register("bob")
    world.deaf.add(amy.conn)
    amy.message(bob.id, "m")
    world.pass_time(60_000)
    world.deaf.clear()
    world.settle()
    assert only(answers(amy.got()))["type"] == "delivered"
    assert not world.broker._messages.operations._evictable
