"""What arrives is shown once, in order, and confirmed when its consumer is done with it."""

from __future__ import annotations

from typing import Any

from intercom.client import commands
from intercom.client.notices import Arrived
from intercom.limits import INCOMING_MESSAGES
from tests.support.client import WALL, Rig, message


class Consumer:
    """Take messages."""


def online(**profile: Any) -> Rig:
    rig = Rig(**profile)
    rig.register()
    return rig


def shown(rig: Rig, consumer: object) -> str | None:
    found = rig.core.take_message(consumer, rig.now)
    return None if found is None else found.id


def test_a_message_is_confirmed_when_the_next_one_is_asked_for() -> None:
    """Design section 7, Receipts; protocol 4.10."""
    rig, consumer = online(), Consumer()
    assert rig.feed(message("m1"), message("m2")) == []
    assert [type(event) for event in rig.events()] == [Arrived, Arrived]
    assert shown(rig, consumer) == "m1"
    assert rig.written() == []
    assert shown(rig, consumer) == "m2"
    assert rig.written() == [{"type": "received", "messageId": "m1"}]
    assert shown(rig, consumer) is None
    assert rig.written() == [{"type": "received", "messageId": "m2"}]


def test_a_task_is_said_to_be_under_way_when_its_consumer_has_it_and_confirmed_when_it_is_done() -> None:
    """FE 3.3: a session takes it -> running; protocol 13.3.2. What waits here, or is cancelled, nobody begins."""
    rig, consumer = online(), Consumer()
    tasks = [
        {**message(f"run:{name}"), "invocation": {"invocationId": name, "runId": name, "action": "execute", **more}}
        for name, more in (("a", {}), ("b", {"cancelled": True}), ("c", {}))
    ]
    assert rig.feed(*tasks) == []
    assert shown(rig, consumer) == "run:a"
    [begun] = rig.written()
    assert (begun["type"], begun["invocationId"], begun["state"]) == ("run_update", "a", "running")
    refusal = {"code": "run_terminal", "reason": "over", "retryable": False}
    assert rig.feed({"type": "request_failed", "requestId": begun["requestId"], **refusal}) == []
    assert shown(rig, consumer) == "run:b"
    assert rig.written() == [{"type": "received", "messageId": "run:a"}]
    rig.lose()
    assert shown(rig, consumer) == "run:c"
    assert rig.written() == []


def test_a_copy_is_confirmed_again_and_not_shown_again() -> None:
    """Protocol 6.10: a client ignores copies of messages it already saved."""
    rig, consumer = online(), Consumer()
    rig.feed(message("m1"))
    assert rig.feed(message("m1")) == [], "not yet confirmed, so the copy is not either"
    assert shown(rig, consumer) == "m1"
    assert rig.feed(message("m1")) == []
    assert shown(rig, consumer) is None
    assert rig.written() == [{"type": "received", "messageId": "m1"}]
    assert rig.feed(message("m1")) == [{"type": "received", "messageId": "m1"}]
    assert shown(rig, consumer) is None


def test_a_message_confirmed_while_offline_is_confirmed_when_it_comes_again() -> None:
    """Protocol 6.10.7 and 8.9: after registering again every unconfirmed frame comes again."""
    rig, consumer = online(), Consumer()
    rig.feed(message("m1"), message("m2"))
    assert shown(rig, consumer) == "m1"
    rig.lose()
    assert shown(rig, consumer) == "m2"
    assert rig.written() == []
    rig.register()
    assert rig.feed(message("m1"), message("m2")) == [{"type": "received", "messageId": "m1"}]
    assert shown(rig, consumer) is None
    assert rig.written() == [{"type": "received", "messageId": "m2"}]


def test_without_receipts_nothing_is_confirmed() -> None:
    """Protocol 5.1: received is written only where it is understood."""
    rig, consumer = Rig(), Consumer()
    rig.connect()
    rig.feed({"type": "registered", "sessionId": "me"}, message("m1"))
    assert shown(rig, consumer) == "m1"
    assert shown(rig, consumer) is None
    assert rig.written() == []


def test_reading_stops_when_nobody_takes_messages() -> None:
    rig, consumer = online(), Consumer()
    rig.feed(*(message(f"m{number}") for number in range(INCOMING_MESSAGES)))
    assert not rig.core.wants_data
    shown(rig, consumer)
    assert rig.core.wants_data
    rig.feed(message("one more"))
    assert not rig.core.wants_data
    rig.core.close(rig.now, finished=True)
    assert rig.core.wants_data, "the end of the connection is still to be seen"


def test_an_answer_does_not_wait_behind_unread_messages() -> None:
    """What finds no room is not confirmed, so it comes again; the answer is seen."""
    rig, consumer = online(), Consumer()
    rig.feed(*(message(f"m{number}") for number in range(2 * INCOMING_MESSAGES)))
    asked = commands.ask("worker", "ok?", message_id="q1", now=rig.now, wall=WALL)
    rig.begin(asked)
    assert rig.core.wants_data
    rig.feed(message("late"), message("r1", replyTo="q1"))
    assert asked.done
    rig.core.taken(asked, rig.now)
    assert rig.written() == [{"type": "received", "messageId": "r1"}]
    for number in range(2 * INCOMING_MESSAGES):
        assert shown(rig, consumer) == f"m{number}"
    assert shown(rig, consumer) is None
    rig.feed(message("late"))
    assert shown(rig, consumer) == "late"


def test_without_receipts_nothing_is_dropped() -> None:
    rig = Rig()
    rig.connect()
    rig.feed({"type": "registered", "sessionId": "me"})
    rig.feed(*(message(f"m{number}") for number in range(INCOMING_MESSAGES)))
    rig.begin(commands.ask("worker", "ok?", message_id="q1", now=rig.now, wall=WALL))
    assert not rig.core.wants_data


def test_a_message_that_breaks_the_protocol_breaks_the_connection() -> None:
    rig = online()
    rig.feed({**message("m1"), "message": {"id": "m1"}})
    assert rig.is_broken


def test_the_receipt_of_what_was_shown_after_its_time_says_so() -> None:
    """F87, protocol 4.10: judged when its consumer gets it, not when it is done with it; a copy is confirmed alike."""
    rig, consumer = online(), Consumer()
    rig.feed({**message("m1"), "validUntil": 1}, {**message("m2"), "validUntil": 9_999_999_999_999})
    assert shown(rig, consumer) == "m1"
    assert shown(rig, consumer) == "m2"
    late = {"type": "received", "messageId": "m1", "outOfDate": True}
    assert rig.written() == [late]
    assert shown(rig, consumer) is None
    assert rig.written() == [{"type": "received", "messageId": "m2"}]
    assert rig.feed({**message("m1"), "validUntil": 1}) == [late]


def test_whoever_passes_a_message_on_may_say_that_it_was_shown_late() -> None:
    """F87: an adapter took it in time, and its model was shown it later."""
    rig, consumer = online(), Consumer()
    rig.feed(message("m1"))
    assert shown(rig, consumer) == "m1"
    rig.core.confirm("m1", rig.now, is_late=True)
    assert rig.written() == [{"type": "received", "messageId": "m1", "outOfDate": True}]
