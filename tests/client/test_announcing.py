"""What a session is doing is told without waiting for anybody, with the time of the change."""

from __future__ import annotations

import pytest

from intercom.client import commands
from tests.support.client import GRANTED, WALL, Rig


def test_an_announcement_asks_for_no_answer() -> None:
    """Protocol 4.5: without a request id there is neither an answer nor a refusal."""
    rig = Rig(status="idle")
    rig.register()
    rig.core.announce("busy", WALL + 5)
    assert rig.written() == [{"type": "presence", "status": "busy"}]
    assert rig.core.profile.status == "busy"
    assert rig.events() == []


def test_the_time_of_the_last_change_is_told_again_after_a_reconnect() -> None:
    """``lastActivity`` is what others read since when a session is what it is; registering anew is nothing new."""
    rig = Rig(status="idle")
    assert rig.connect()["session"]["lastActivity"] == WALL
    rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True})
    rig.core.announce("busy", WALL - 5_000)
    rig.written()
    rig.lose()
    session = rig.connect()["session"]
    assert (session["status"], session["lastActivity"]) == ("busy", WALL - 5_000)


@pytest.mark.parametrize("kind", ["presence", "join", "leave"])
def test_every_change_that_was_acknowledged_counts(kind: str) -> None:
    """Protocol 4.5 to 4.7: the broker puts ``lastActivity`` to the time of each."""
    rig = Rig()
    rig.register()
    profile, now, at = rig.core.profile, rig.now, WALL - 7_000
    operation = {
        "presence": lambda: commands.set_presence(profile, now=now, wall=at, status="busy"),
        "join": lambda: commands.join(profile, "b", now=now, wall=at),
        "leave": lambda: commands.leave(profile, "b", now=now, wall=at),
    }[kind]()
    [frame] = rig.begin(operation)
    assert profile.last_activity == WALL
    answer = {"type": "presence_ack", "group": "default"}
    if kind != "presence":
        answer = {"type": "membership_ack", "groups": ["default"]}  # type: ignore[dict-item]
    rig.feed({**answer, "requestId": frame["requestId"]})
    assert profile.last_activity == at


def test_while_offline_it_is_told_with_the_next_registration() -> None:
    rig = Rig()
    rig.core.announce("busy", WALL - 9)
    assert rig.written() == []
    session = rig.connect()["session"]
    assert (session["status"], session["lastActivity"]) == ("busy", WALL - 9)


def test_a_change_under_way_does_not_undo_what_was_announced_after_it() -> None:
    """The broker has the later one; so must whoever registers again."""
    rig = Rig()
    rig.register()
    [frame] = rig.begin(commands.set_presence(rig.core.profile, now=rig.now, wall=WALL, status="first"))
    rig.core.announce("second", WALL)
    rig.feed({"type": "presence_ack", "requestId": frame["requestId"], "group": "default"})
    assert rig.core.profile.status == "second"


def test_a_closed_session_has_nothing_to_say() -> None:
    rig = Rig()
    rig.register()
    rig.core.close(rig.now, finished=True)
    rig.written()
    rig.core.announce("busy", WALL)
    assert rig.written() == []


def test_a_session_taken_back_says_again_what_may_be_lost() -> None:
    """Protocol 4.25: ``session_reattach`` tells nothing of the session."""
    rig = Rig()
    rig.register(**GRANTED)
    rig.core.announce("busy", WALL)
    [told] = rig.written()
    rig.lose()
    [again] = rig.reattach()
    assert (again["status"], again["requestId"] != told["requestId"]) == ("busy", True)
    rig.feed({"type": "presence_ack", "requestId": again["requestId"], "group": "default"})
    rig.lose()
    assert rig.reattach() == []
