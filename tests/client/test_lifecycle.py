"""One session over many connections: features, reattach, addresses, being replaced."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.client.feeds import SessionEvent
from intercom.client.lifecycle import AGENT_FEATURES
from intercom.client.session import Arrived, Link
from intercom.errors import (
    AddressHeld,
    AddressTaken,
    HomeError,
    IntercomError,
    NoBroker,
    OutcomeUnknown,
    RequestRefused,
    SessionClosed,
    SessionReplaced,
)
from intercom.limits import FORMER_IDS, REATTACH_ATTEMPTS, RECONNECT_DELAYS_MS
from tests.support.client import GRANTED, WALL, Frame, Keeps, Rig, message


def granted(keeper: Keeps | None = None, **profile: Any) -> Rig:
    rig = Rig(keeper=keeper, **profile)
    rig.register(**GRANTED)
    return rig


def refuse(code: str, reason: str = "because") -> Frame:
    return {"type": "registration_failed", "code": code, "reason": reason}


def failed(first: Frame, code: str, *, retryable: bool = False) -> Frame:
    answer = {"requestId": first["requestId"], "code": code, "reason": "because", "retryable": retryable}
    return {"type": "request_failed", **answer}


def error_of(rig: Rig) -> IntercomError:
    [operation] = rig.settled()
    assert operation.error is not None
    return operation.error


# --- features -------------------------------------------------------------------------------------------


def test_an_agent_asks_for_everything_it_understands() -> None:
    """FE 0.6."""
    frame = Rig().connect()
    assert frame["features"] == list(AGENT_FEATURES)
    assert (frame["clientProtocolVersion"], frame["kind"]) == ("1.0", "custom")
    assert Rig(kind="codex").connect()["kind"] == "codex"


def test_whoever_returns_by_its_return_address_has_no_lifecycle() -> None:
    """A lifecycle rules out that somebody takes a session by that alone (design section 7, Addresses)."""
    rig = Rig(return_address="ret")
    assert "session.lifecycle" not in rig.connect()["features"]
    assert "session.lifecycle" in Rig(keeper=Keeps("t"), return_address="ret", address="desk").connect()["features"]


def test_a_control_session_asks_to_see_what_belongs_to_others() -> None:
    assert Rig(purpose="control").connect()["features"] == ["operator", "watch", "waits", "policy", "invoke"]


def test_an_older_broker_gets_nothing_it_does_not_know() -> None:
    """FE 0.6: it answers without features; then no frame or member of one is written."""
    rig = Rig()
    rig.register()
    sent = commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL, valid_for_ms=5)
    [frame] = rig.begin(sent)
    assert {"queueIfAway", "validFor"} & set(frame) == set()
    assert rig.begin(rig.mail.pending(5)) == []
    error = error_of(rig)
    assert isinstance(error, RequestRefused)
    assert (error.code, error.retry, error.exit_status) == ("feature_not_granted", "never", 1)
    rig.lose()
    assert rig.dial()["type"] == "register"


def test_features_are_those_of_the_present_broker() -> None:
    """One that came in the place of a newer one may know less."""
    rig = granted()
    rig.lose()
    first = rig.dial()
    rig.feed(failed(first, "unknown_session"))
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True})
    assert rig.core.lifecycle.features == frozenset()


# --- coming back ----------------------------------------------------------------------------------------


def test_a_lost_session_is_taken_back_before_anything_else() -> None:
    """FE 1.11: session_reattach takes the place of register."""
    rig = granted()
    rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    rig.lose()
    feed = rig.core.feed()
    first = rig.dial()
    assert first == {"type": "session_reattach", "requestId": "id2", "sessionId": "me", "ownerToken": "owner"}
    answer = {"requestId": "id2", "sessionId": "me", "incarnation": "one", "generation": 2, "mailboxCount": 3}
    [again] = rig.feed({"type": "session_reattached", "features": GRANTED["features"], **answer})
    assert (again["type"], again["message"]["id"]) == ("send", "m1")
    assert feed.take() == SessionEvent(kind="reconnected", session_id="me")
    assert (rig.core.lifecycle.generation, rig.core.lifecycle.mailbox_count) == (2, 3)
    assert rig.core.link is Link.ONLINE


def test_messages_are_confirmed_after_a_reattach() -> None:
    rig = granted()
    rig.lose()
    rig.reattach()
    rig.feed(message("m1"))
    assert rig.core.take_message(rig, rig.now) is not None
    rig.core.take_message(rig, rig.now)
    assert rig.written() == [{"type": "received", "messageId": "m1"}]


@pytest.mark.parametrize("code", ["unknown_session", "not_owner", "session_not_active", "register_again"])
def test_whoever_cannot_be_taken_back_registers_on_the_same_connection(code: str) -> None:
    rig = granted()
    rig.lose()
    [register] = rig.feed(failed(rig.dial(), code))
    assert register["type"] == "register"
    assert (register["preferredSessionId"], register["ownerToken"]) == ("me", "owner")
    assert register["session"]["lastActivity"] == WALL
    rig.feed({"type": "registered", "sessionId": "new", "acknowledgesReceipt": True, **GRANTED, "ownerToken": "other"})
    rig.lose()
    assert rig.dial()["ownerToken"] == "other"


def test_a_broker_that_is_not_ready_is_asked_again() -> None:
    """A1.3: mailbox_drain_failed is retryable; the session stays what it is."""
    rig = granted()
    for _ in range(3):
        rig.lose()
        assert rig.feed(failed(rig.dial(), "mailbox_drain_failed", retryable=True)) == []
        assert rig.is_broken
    rig.lose()
    rig.reattach()
    assert rig.core.session_id == "me"


def test_a_broker_of_an_older_version_ends_the_connection_instead() -> None:
    """It does not know the frame; then the session registers, as what it was if it was a broker that died each time."""
    rig = granted()
    for _ in range(2):
        for _ in range(REATTACH_ATTEMPTS):
            rig.lose()
            assert rig.dial()["type"] == "session_reattach"
        rig.lose()
        register = rig.dial()
        assert (register["type"], register["preferredSessionId"]) == ("register", "me")
        assert register["ownerToken"] == "owner"
        rig.feed(
            {"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, **GRANTED, "ownerToken": "owner"}
        )


def test_a_broker_that_is_silent_does_not_count_as_an_older_one() -> None:
    rig = granted()
    for _ in range(REATTACH_ATTEMPTS + 1):
        rig.lose()
        assert rig.dial()["type"] == "session_reattach"
        rig.pass_time(RECONNECT_DELAYS_MS[-1])
        assert rig.is_broken


def test_children_are_shown_again_after_a_reattach() -> None:
    """Protocol 6.6: a supervisor shows its capabilities whenever it is back."""
    rig = granted(name="boss")
    [asked] = rig.begin(commands.authorize_child(rig.core.profile, "kid", now=rig.now))
    told = {"capability": "cap", "supervisorSessionId": "me", "childName": "kid"}
    rig.feed({"type": "supervisor_authorized", "requestId": asked["requestId"], **told})
    rig.lose()
    [shown] = rig.reattach()
    assert (shown["type"], shown["childName"], shown["capability"]) == ("authorize_supervisor", "kid", "cap")


def test_a_session_the_broker_forgot_registers_although_it_has_a_token() -> None:
    rig = granted()
    [sent] = rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    answered = {"messageId": "m1", "attemptId": sent["attemptId"], "reason": "Sender session not found"}
    rig.feed({"type": "delivery_failed", **answered})
    assert rig.is_broken
    rig.lose()
    assert rig.dial()["type"] == "register"


def test_former_ids_stay_usable() -> None:
    """FE 1.7: a map from old ids to the present one."""
    rig = granted()
    for number in range(FORMER_IDS + 2):
        rig.lose()
        rig.feed(failed(rig.dial(), "unknown_session"))
        rig.feed({"type": "registered", "sessionId": f"s{number}", "acknowledgesReceipt": True, **GRANTED})
    lifecycle = rig.core.lifecycle
    assert len(lifecycle.former_ids) == FORMER_IDS
    assert lifecycle.former_ids[-1] == f"s{FORMER_IDS}"
    assert lifecycle.present(lifecycle.former_ids[0]) == rig.core.session_id
    assert lifecycle.present("somebody else") == "somebody else"


# --- what is sent ---------------------------------------------------------------------------------------


def test_a_send_may_wait_unless_it_is_told_not_to() -> None:
    rig = granted()
    [frame] = rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    assert frame["queueIfAway"] is True
    [frame] = rig.begin(commands.send("worker", "hi", message_id="m2", now=rig.now, wall=WALL, queue=False))
    assert "queueIfAway" not in frame


def test_what_is_left_of_the_validity_is_said_at_each_attempt() -> None:
    """Design section 7, Freshness: it is counted from the first call, not from the last attempt."""
    rig = granted()
    sent = commands.send("w", "hi", message_id="m1", now=rig.now, wall=WALL, valid_for_ms=5_000, timeout_ms=60_000)
    [frame] = rig.begin(sent)
    assert frame["validFor"] == 5_000
    rig.lose()
    rig.now += 2_000
    [frame] = rig.reattach()
    assert frame["validFor"] == 3_000
    rig.lose()
    rig.now += 9_000
    [frame] = rig.reattach()
    assert frame["validFor"] == 0, "the broker says what became of it, and hands it over no more"


# --- addresses ------------------------------------------------------------------------------------------


def test_an_address_is_created_and_its_token_shown_ever_after() -> None:
    """Design section 7, Addresses."""
    keeper = Keeps()
    rig = Rig(keeper=keeper, name="ada", address=True, group="g")
    assert rig.connect()["address"] == {"name": "ada"}
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, **GRANTED, "addressToken": "t"})
    assert keeper.held == "t"
    assert Rig(keeper=keeper, name="ada", address=True).connect()["address"] == {"name": "ada", "token": "t"}
    assert Rig(keeper=keeper, address="desk", hold="none").connect()["address"]["hold"] == "none"


def test_whoever_returns_takes_no_address_from_its_present_holder() -> None:
    """The newest holder is the rightful one; an older one does not come back by itself."""
    rig = granted(Keeps("t"), name="ada", address=True)
    rig.lose()
    [register] = rig.feed(failed(rig.dial(), "unknown_session"))
    assert register["address"]["hold"] == "free"
    rig.feed(refuse("address_held", "Session x receives the mail of ada"))
    rig.lose()
    assert rig.core.link is Link.CLOSED
    error = rig.core.over()
    assert isinstance(error, SessionReplaced)
    assert "ada" in error.reason


def test_a_wrong_token_is_said_at_once() -> None:
    rig = Rig(keeper=Keeps("wrong"), name="ada", address=True)
    opening = rig.core.opening(rig.now, 10_000)
    rig.begin(opening)
    rig.connect()
    rig.feed(refuse("address_taken"))
    rig.lose()
    error = error_of(rig)
    assert isinstance(error, AddressTaken)
    assert (error.code, error.retry, error.exit_status) == ("address_taken", "never", 4)


def test_a_held_address_is_said_at_once() -> None:
    rig = Rig(keeper=Keeps("t"), name="ada", address=True, hold="free")
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.connect()
    rig.feed(refuse("address_held", "Session x receives the mail of ada"))
    rig.lose()
    error = error_of(rig)
    assert isinstance(error, AddressHeld)
    assert "Session x" in error.reason


def test_a_token_that_came_meanwhile_is_shown_at_once() -> None:
    keeper = Keeps("old")
    rig = Rig(keeper=keeper, name="ada", address=True)
    rig.connect()
    keeper.held = "new"
    rig.feed(refuse("address_taken"))
    rig.lose()
    assert rig.core.recovery.at == rig.now
    assert rig.connect()["address"]["token"] == "new"


def test_a_token_that_cannot_be_kept_ends_the_attempt() -> None:
    class Full(Keeps):
        def keep_token(self, token: str) -> None:
            raise HomeError("no space left")

    rig = Rig(keeper=Full(), name="ada", address=True)
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.connect()
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, **GRANTED, "addressToken": "t"})
    rig.lose()
    assert isinstance(error_of(rig), HomeError)


def test_a_copy_that_an_earlier_process_was_done_with_is_only_confirmed() -> None:
    """Design section 7, Receipts: seen ids are known over restarts of an address, written before the receipt."""
    keeper = Keeps("t")
    rig = granted(keeper, name="ada", address=True)
    rig.feed(message("m1"))
    assert rig.events()
    assert keeper.seen == set(), "what was not confirmed comes again"
    rig.core.take_message(rig, rig.now)
    rig.core.take_message(rig, rig.now)
    assert keeper.seen == {"m1"}
    after = granted(keeper, name="ada", address=True)
    assert after.feed(message("m1")) == [{"type": "received", "messageId": "m1"}]
    assert after.events() == []


# --- being replaced -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["address", "connection"])
def test_a_replaced_session_is_over(by: str) -> None:
    rig = granted(Keeps("t"), name="ada", address=True)
    rig.feed(message("m1"))
    [sent] = rig.begin(commands.send("worker", "hi", message_id="m2", now=rig.now, wall=WALL))
    assert sent["type"] == "send"
    rig.events()
    rig.feed({"type": "replaced", "by": by, "sessionId": "other"})
    error = error_of(rig)
    assert isinstance(error, OutcomeUnknown), "it may have arrived"
    assert isinstance(error.__cause__, SessionReplaced)
    rig.core.eof(rig.now)
    assert rig.core.link is Link.CLOSED
    assert rig.core.recovery.at is None, "it does not come back by itself"
    over = rig.core.over()
    assert isinstance(over, SessionReplaced)
    assert "other" in over.reason
    assert (over.code, over.exit_status) == ("replaced", 4)
    with pytest.raises(SessionReplaced):
        rig.begin(commands.send("worker", "hi", message_id="m3", now=rig.now, wall=WALL))


@pytest.mark.parametrize(("code", "kind"), [("replaced", SessionReplaced), ("force_closed", SessionClosed)])
def test_whoever_was_ended_while_away_stays_away(code: str, kind: type[IntercomError]) -> None:
    rig = granted(Keeps("t"), name="ada", address=True)
    rig.lose()
    assert rig.feed(failed(rig.dial(), code)) == []
    assert rig.core.link is Link.CLOSED
    assert isinstance(rig.core.over(), kind)


def test_leaving_says_goodbye_so_that_nothing_waits_in_grace() -> None:
    rig = granted()
    rig.core.close(rig.now, finished=True)
    assert rig.written() == [{"type": "unregister"}]


# --- what the broker itself writes ----------------------------------------------------------------------

NOTICE = {"kind": "undeliverable", "messageId": "m1", "target": "worker", "reason": "nobody came"}


def notice(**members: Any) -> Frame:
    frame = message("undeliverable:m1", sender={"name": "@intercom", "id": "broker"})
    return {**frame, "notice": {**NOTICE, **members}}


def test_a_notice_is_a_message_that_says_what_it_is_about() -> None:
    rig = granted()
    rig.feed(notice())
    assert [type(event) for event in rig.events()] == [Arrived]
    found = rig.core.take_message(rig, rig.now)
    assert found is not None
    assert found.notice is not None
    assert (found.notice.kind, found.notice.message_id, found.notice.target) == ("undeliverable", "m1", "worker")
    assert (found.sender.name, found.sender.raw) == ("@intercom", {"name": "@intercom", "id": "broker"})
    rig.core.take_message(rig, rig.now)
    assert rig.written() == [{"type": "received", "messageId": "undeliverable:m1"}]


def test_a_notice_about_a_send_that_is_tried_again_waits_for_its_end() -> None:
    """Protocol 9.5.6: its answer was lost, its target ended, and the next attempt may find another of that name."""
    rig = granted()
    [sent] = rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    rig.lose()
    [sent] = rig.reattach()
    assert rig.feed(notice()) == [] and not rig.core.has_news
    answer = {"messageId": "m1", "attemptId": sent["attemptId"]}
    assert rig.feed({"type": "delivered", **answer}) == [{"type": "received", "messageId": "undeliverable:m1"}]
    assert not rig.core.has_news


def test_a_notice_about_a_send_that_fails_after_all_is_shown() -> None:
    rig = granted()
    [sent] = rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    assert rig.feed(notice()) == []
    answer = {"messageId": "m1", "attemptId": sent["attemptId"], "reason": "Refused by the recipient's policy"}
    assert rig.feed({"type": "delivery_failed", **answer}) == []
    found = rig.core.take_message(rig, rig.now)
    assert found is not None and found.notice is not None


def test_a_notice_about_a_send_whose_caller_has_gone_is_shown() -> None:
    rig = granted()
    operation = commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL)
    rig.begin(operation)
    rig.feed(notice())
    rig.core.withdraw(operation, rig.now)
    assert rig.core.has_news


def test_a_notice_ends_the_ask_it_is_about() -> None:
    """An ask to the person waits on after ``queued``, and ends when it is given up."""
    rig = granted()
    asked = commands.ask("@me", "may I?", message_id="m1", now=rig.now, wall=WALL, timeout_ms=3_600_000)
    [sent] = rig.begin(asked)
    assert sent["queueIfAway"] is True
    answer = {"messageId": "m1", "attemptId": sent["attemptId"], "target": "@me", "position": 1}
    assert rig.feed({"type": "queued", **answer}) == []
    assert rig.settled() == []
    assert rig.feed(notice(kind="expired")) == [{"type": "received", "messageId": "undeliverable:m1"}]
    error = error_of(rig)
    assert (error.code, error.exit_status) == ("expired", 6)


def test_a_reply_of_another_session_of_the_identity_answers() -> None:
    """F70: the broker names it first; a message of anybody else does not."""
    from tests.support.client import OTHER, PEER

    rig = granted()
    [sent] = rig.begin(commands.ask("worker", "why?", message_id="m1", now=rig.now, wall=WALL))
    about = {"type": "question_target", "messageId": "m1"}
    rig.feed({**about, "attemptId": sent["attemptId"], "sessionId": PEER["id"]})
    rig.feed({"type": "delivered", "messageId": "m1", "attemptId": sent["attemptId"]})
    rig.feed(message("r1", sender=OTHER, replyTo="m1"))
    assert rig.settled() == []
    rig.feed({**about, "attemptId": "", "sessionId": OTHER["id"]})
    rig.feed(message("r2", "because", sender=OTHER, replyTo="m1"))
    [asked] = rig.settled()
    assert asked.result.text == "because"


def test_nobody_there_is_not_being_replaced() -> None:
    rig = granted(Keeps("t"), name="ada", address=True)
    rig.lose()
    rig.fail(NoBroker("none"))
    assert rig.core.link is Link.OFFLINE
    assert rig.core.recovery.at is not None


def test_a_spawn_token_is_shown_until_a_broker_took_it_and_never_again() -> None:
    """FE 1.5, client library: never resends a spawn token."""
    rig = Rig(name="child")
    rig.core.profile.spawn_token = "secret"
    assert rig.connect()["spawnToken"] == "secret"
    rig.lose()
    first = rig.dial()
    assert first["spawnToken"] == "secret", "nobody has seen it yet"
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True})
    rig.lose()
    assert "spawnToken" not in rig.dial()
