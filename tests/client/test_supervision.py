"""The supervisor line without a broker: capabilities shown again, claims made again, messages up the line."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.client.session import Link
from intercom.errors import AskTimeout, OutcomeUnknown, PeerGone, RegistrationRefused, TargetNotFound, UsageError
from intercom.limits import STABLE_MS, SUPERVISOR_RETRY_MS, SUPERVISOR_RETURN_MS, Limits
from intercom.wire import reasons
from tests.support.client import OTHER, PEER, WALL, Frame, Rig, message

BOSS = PEER["id"]


def refused(rig: Rig) -> None:
    """Let a registration be refused as that of a child whose supervisor is not there."""
    rig.feed({"type": "registration_failed", "reason": reasons.INVALID_SUPERVISOR})
    assert rig.is_broken
    rig.lose()


def child(**profile: Any) -> Rig:
    rig = Rig(**{"name": "reviewer", "supervisor": "n.mac", **profile})
    rig.register(supervisorSessionId=BOSS)
    return rig


def upward(rig: Rig, message_id: str = "m1", **options: Any) -> Any:
    return commands.send_supervisor(rig.core.profile, "stuck", message_id=message_id, now=rig.now, wall=WALL, **options)


def authorised(rig: Rig, name: str, capability: str) -> Frame:
    """Authorise a child and return the frame that asked for it."""
    operation = commands.authorize_child(rig.core.profile, name, now=rig.now)
    [asked] = rig.begin(operation)
    answer = {"requestId": asked["requestId"], "childName": name, "supervisorSessionId": "me"}
    rig.feed({"type": "supervisor_authorized", **answer, "capability": capability})
    assert operation.result == capability
    return asked


# --- the supervisor -------------------------------------------------------------------------------------


def test_a_child_is_authorised() -> None:
    """Protocol 4.11 and 5.8."""
    rig = Rig()
    rig.register()
    asked = authorised(rig, "reviewer", "c1")
    assert {key: asked[key] for key in asked if key != "requestId"} == {
        "type": "authorize_supervisor",
        "childName": "reviewer",
    }
    assert authorised(rig, "reviewer", "c1")["capability"] == "c1", "the same name has the same capability"


def test_whoever_comes_first_gets_a_capability_of_its_own() -> None:
    """Protocol 4.11: * is a dynamic slot."""
    rig = Rig()
    rig.register()
    assert "capability" not in authorised(rig, "*", "c1")
    assert "capability" not in authorised(rig, "*", "c2")
    assert rig.core.profile.children == {"c1": "*", "c2": "*"}


def test_capabilities_are_shown_again_before_anything_else() -> None:
    """F94: the parent presents its capabilities again when it reconnects."""
    rig = Rig()
    rig.register()
    authorised(rig, "reviewer", "c1")
    authorised(rig, "*", "c2")
    rig.lose()
    rig.begin(commands.send("worker", "hi", message_id="m1", now=rig.now, wall=WALL))
    first, second, sent = rig.register()
    assert (first["type"], first["childName"], first["capability"]) == ("authorize_supervisor", "reviewer", "c1")
    assert (second["childName"], second["capability"]) == ("*", "c2")
    assert sent["type"] == "send"
    answer = {"requestId": first["requestId"], "childName": "reviewer", "supervisorSessionId": "me"}
    assert rig.feed({"type": "supervisor_authorized", **answer, "capability": "c1"}) == []


@pytest.mark.parametrize("name", ["", " ", "me", "broker", "../x", 5])
def test_names_that_no_child_can_have(name: Any) -> None:
    rig = Rig()
    with pytest.raises(UsageError):
        commands.authorize_child(rig.core.profile, name, now=rig.now)


def test_a_control_session_supervises_nobody() -> None:
    rig = Rig(purpose="control")
    with pytest.raises(UsageError, match="control session"):
        commands.authorize_child(rig.core.profile, "reviewer", now=rig.now)


def test_the_limit_of_capabilities_is_kept_on_this_side() -> None:
    """Beyond it the broker ends the connection, which would repeat for ever."""
    rig = Rig()
    rig.core.profile.children = {f"c{number}": "*" for number in range(Limits().capabilities_per_session)}
    with pytest.raises(UsageError, match="limit"):
        commands.authorize_child(rig.core.profile, "*", now=rig.now)


# --- the child ------------------------------------------------------------------------------------------


def test_a_message_goes_up_the_line() -> None:
    """Protocol 4.9: to is the supervisor's id."""
    rig = child()
    [sent] = rig.begin(operation := upward(rig))
    assert (sent["type"], sent["to"], sent["message"]["content"]) == ("supervisor_send", BOSS, {"text": "stuck"})
    assert "requirePendingReply" not in sent, "protocol 4.8 A7"
    rig.feed({"type": "delivered", "messageId": "m1", "attemptId": sent["attemptId"]})
    assert operation.result.target == BOSS


def test_a_question_goes_up_the_line() -> None:
    """Protocol 6.6: only the supervisor's reply answers."""
    rig = child()
    asked = commands.ask_supervisor(rig.core.profile, "which?", message_id="q1", now=rig.now, wall=WALL)
    [sent] = rig.begin(asked)
    assert sent["type"] == "supervisor_send"
    assert sent["message"]["expectsReply"] is sent["resolveReplyTarget"] is True
    rig.feed({"type": "delivered", "messageId": "q1", "attemptId": sent["attemptId"]})
    rig.feed(message("x", sender=OTHER, replyTo="q1"))
    assert not asked.done
    rig.feed(message("r1", "the first", replyTo="q1"))
    assert asked.result is not None
    assert asked.result.text == "the first"


def test_a_question_nobody_answers() -> None:
    rig = child()
    asked = commands.ask_supervisor(rig.core.profile, "which?", message_id="q1", now=rig.now, wall=WALL, timeout_ms=900)
    [sent] = rig.begin(asked)
    rig.feed({"type": "delivered", "messageId": "q1", "attemptId": sent["attemptId"]})
    assert rig.pass_time(900)[-1] == {"type": "cancel_ask", "messageId": "q1"}
    assert isinstance(asked.error, AskTimeout)
    assert str(asked.error) == "The supervisor did not answer in time"


def test_a_question_that_is_given_up_is_withdrawn() -> None:
    rig = child()
    asked = commands.ask_supervisor(rig.core.profile, "which?", message_id="q1", now=rig.now, wall=WALL)
    rig.begin(asked)
    rig.core.withdraw(asked, rig.now)
    assert rig.written() == [{"type": "cancel_ask", "messageId": "q1"}]


def test_without_a_supervisor_it_is_said_at_once() -> None:
    rig = Rig(name="reviewer")
    with pytest.raises(UsageError, match="no supervisor"):
        upward(rig)
    with pytest.raises(UsageError, match="no supervisor"):
        commands.ask_supervisor(rig.core.profile, "?", message_id="q1", now=rig.now, wall=WALL)


def test_a_supervisor_that_left() -> None:
    """F90: told at once, and never another session."""
    rig = child()
    [sent] = rig.begin(operation := upward(rig))
    answered = {"messageId": "m1", "attemptId": sent["attemptId"]}
    rig.feed({"type": "delivery_failed", **answered, "reason": reasons.SESSION_NOT_FOUND})
    assert isinstance(operation.error, TargetNotFound)
    assert (operation.error.code, operation.error.retry, operation.error.message_id) == (
        "supervisor_gone",
        "after",
        "m1",
    )


def test_doubt_is_kept_when_the_supervisor_leaves() -> None:
    """What may have arrived is not called undelivered."""
    rig = child()
    [sent] = rig.begin(operation := upward(rig))
    answered = {"messageId": "m1", "attemptId": sent["attemptId"]}
    rig.feed({"type": "delivery_failed", **answered, "reason": reasons.RECEIPT_MISSING})
    [again] = rig.pass_time(1_000)
    answered["attemptId"] = again["attemptId"]
    rig.feed({"type": "delivery_failed", **answered, "reason": reasons.SESSION_NOT_FOUND})
    assert isinstance(operation.error, OutcomeUnknown)


def test_a_capability_that_is_refused_at_first_is_an_error() -> None:
    """Protocol 4.1: refused and ended."""
    rig = Rig(name="reviewer", supervisor="n.mac")
    rig.begin(opening := rig.core.opening(rig.now, 10_000))
    rig.connect()
    refused(rig)
    assert isinstance(opening.error, RegistrationRefused)
    assert opening.error.code == "supervisor_refused"


def test_a_child_that_is_back_first_waits_for_its_supervisor() -> None:
    """F94: in any order; what is asked in the gap is kept."""
    rig = child()
    rig.lose()
    rig.begin(operation := upward(rig))
    assert "supervisor" in rig.connect()
    refused(rig)
    assert rig.core.recovery.at == rig.now + SUPERVISOR_RETRY_MS
    assert not operation.done
    rig.pass_time(SUPERVISOR_RETRY_MS)
    assert "supervisor" in rig.connect()
    [sent] = rig.feed(
        {"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, "supervisorSessionId": OTHER["id"]}
    )
    assert (sent["type"], sent["to"]) == ("supervisor_send", OTHER["id"]), "where the supervisor is now"


def test_what_goes_to_a_supervisor_that_was_started_anew_stays_the_same_message() -> None:
    """Protocol 6.2.4: its id is another one by then; the message id is bound to whom it was sent to first."""
    rig = child()
    [first] = rig.begin(upward(rig))
    rig.lose()
    rig.connect()
    [again] = rig.feed(
        {"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, "supervisorSessionId": OTHER["id"]}
    )
    assert "logicalTarget" not in first
    assert (again["to"], again["logicalTarget"]) == (OTHER["id"], first["to"])


def without_supervisor() -> Rig:
    """Return a child that came back and waited in vain."""
    rig = child()
    rig.lose()
    waited = 0
    while "supervisor" in rig.connect():
        refused(rig)
        pause = rig.core.recovery.at
        assert pause is not None
        waited += pause - rig.now
        rig.pass_time(pause - rig.now)
    assert waited == SUPERVISOR_RETURN_MS
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True})
    return rig


def test_a_child_whose_supervisor_stays_away_can_be_reached() -> None:
    rig = without_supervisor()
    assert rig.core.link is Link.ONLINE
    assert rig.core.profile.supervisor_id is None


def test_a_child_claims_again_when_it_has_something_to_say() -> None:
    rig = without_supervisor()
    rig.pass_time(STABLE_MS)
    assert rig.begin(operation := upward(rig)) == []
    assert rig.is_broken
    rig.lose()
    assert rig.core.recovery.at == rig.now
    assert "supervisor" in rig.connect()
    [sent] = rig.feed({"type": "registered", "sessionId": "me", "supervisorSessionId": BOSS})
    assert (sent["type"], sent["to"]) == ("supervisor_send", BOSS)
    assert not operation.done


def test_and_is_told_when_that_is_in_vain() -> None:
    rig = without_supervisor()
    rig.begin(operation := upward(rig))
    rig.lose()
    assert "supervisor" in rig.connect()
    refused(rig)
    assert rig.core.recovery.at == rig.now
    assert "supervisor" not in rig.connect()
    rig.feed({"type": "registered", "sessionId": "me"})
    assert isinstance(operation.error, TargetNotFound)
    assert operation.error.code == "supervisor_gone"
    assert rig.core.link is Link.ONLINE, "it is not tried over and over"


def test_an_open_question_ends_with_the_supervisor() -> None:
    """The broker keeps questions over its own death, so this one is taken back."""
    rig = child()
    asked = commands.ask_supervisor(rig.core.profile, "which?", message_id="q1", now=rig.now, wall=WALL)
    [sent] = rig.begin(asked)
    answered = {"messageId": "q1", "attemptId": sent["attemptId"]}
    rig.feed({"type": "question_target", **answered, "sessionId": BOSS}, {"type": "delivered", **answered})
    rig.lose()
    while "supervisor" in rig.connect():
        refused(rig)
        pause = rig.core.recovery.at
        assert pause is not None
        rig.pass_time(pause - rig.now)
    assert rig.feed({"type": "registered", "sessionId": "me"}) == [{"type": "cancel_ask", "messageId": "q1"}]
    assert isinstance(asked.error, PeerGone)
    assert "The supervisor is not there any more" in asked.error.reason


def test_the_next_connection_claims_with_patience_again() -> None:
    rig = without_supervisor()
    rig.lose()
    assert "supervisor" in rig.connect()
    refused(rig)
    assert rig.core.recovery.at == rig.now + SUPERVISOR_RETRY_MS


def test_a_child_that_took_another_name_takes_it_again() -> None:
    """The capability is for the name at registration (protocol 6.6)."""
    rig = child()
    [frame] = rig.begin(commands.set_presence(rig.core.profile, now=rig.now, wall=WALL, name="judge"))
    rig.feed({"type": "presence_ack", "requestId": frame["requestId"], "group": "default"})
    rig.lose()
    assert rig.connect()["session"]["name"] == "reviewer"
    assert rig.feed({"type": "registered", "sessionId": "me", "supervisorSessionId": BOSS}) == [
        {"type": "presence", "name": "judge"}
    ]


def test_a_broker_that_knows_no_supervisors_is_not_tried_over_and_over() -> None:
    rig = Rig(name="reviewer", supervisor="n.mac")
    rig.register()
    other = commands.list_groups(now=rig.now)
    rig.begin(operation := upward(rig))
    rig.core.begin(other, rig.now)
    assert rig.written() == [], "nothing goes out on a connection that is being broken"
    rig.lose()
    frames = rig.register()
    assert [frame["type"] for frame in frames] == ["list_groups"]
    assert operation.done
