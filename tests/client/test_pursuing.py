"""What callers wait for is written, written again after a lost connection, and settled by its answer."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.errors import IntercomError, PresenceRefused, TooLarge, UsageError
from intercom.limits import FRAME_BYTES, REQUEST_MS
from intercom.wire import reasons
from tests.support.client import OTHER, PEER, WALL, Rig


def online(**profile: Any) -> Rig:
    rig = Rig(**profile)
    rig.register()
    return rig


def error_of(rig: Rig) -> IntercomError:
    [operation] = rig.settled()
    assert operation.error is not None
    return operation.error


def test_requests_and_their_answers() -> None:
    """Protocol 8.1 and 8.4."""
    rig = online(group="a")
    profile, now = rig.core.profile, rig.now
    operations: list[Any] = [
        commands.list_sessions(None, now=now),
        commands.list_sessions("b", now=now),
        commands.list_groups(now=now),
        commands.join(profile, " b ", now=now, wall=WALL),
        commands.leave(profile, None, now=now, wall=WALL),
        commands.set_presence(profile, now=now, wall=WALL, name="ada", status="busy", model="m2"),
    ]
    frames = [frame for operation in operations for frame in rig.begin(operation)]
    asked = [{name: value for name, value in frame.items() if name != "requestId"} for frame in frames]
    assert asked == [
        {"type": "list"},
        {"type": "list", "group": "b"},
        {"type": "list_groups"},
        {"type": "join_group", "group": "b"},
        {"type": "leave_group"},
        {"type": "presence", "name": "ada", "status": "busy", "model": "m2"},
    ]
    ids = [frame["requestId"] for frame in frames]
    rig.feed(
        {"type": "presence_ack", "requestId": ids[5], "group": "a"},
        {"type": "membership_ack", "requestId": ids[3], "groups": ["a", "b"]},
        {"type": "membership_ack", "requestId": ids[4], "groups": ["a"]},
        {"type": "groups", "requestId": ids[2], "groups": [{"group": "a", "sessionCount": 1, "member": True}]},
        {"type": "sessions", "requestId": ids[1], "sessions": []},
        {"type": "sessions", "requestId": ids[0], "sessions": [PEER, OTHER], "workflowStages": []},
    )
    assert len(rig.settled()) == 6
    assert [view.name for view in operations[0].result] == ["worker", "other"]
    assert operations[1].result == []
    assert (operations[2].result[0].group, operations[2].result[0].session_count) == ("a", 1)
    assert operations[3].result == ("a", "b")
    assert operations[4].result == ("a",)
    assert (profile.name, profile.status, profile.model) == ("ada", "busy", "m2")


def test_changes_survive_a_reconnect() -> None:
    """Protocol 4.1: registering again tells the present name, groups and home group, and wishes the former id."""
    rig = online(group="a", name="ada")
    [join] = rig.begin(commands.join(rig.core.profile, "b", now=rig.now, wall=WALL))
    rig.feed({"type": "membership_ack", "requestId": join["requestId"], "groups": ["a", "b"]})
    [rename] = rig.begin(commands.set_presence(rig.core.profile, now=rig.now, wall=WALL, name="grace"))
    rig.feed({"type": "presence_ack", "requestId": rename["requestId"], "group": "a"})
    rig.lose()
    frame = rig.connect()
    assert (frame["preferredSessionId"], frame["returnAddress"], frame["registrationGroup"]) == ("me", "ret", "a")
    assert (frame["session"]["name"], frame["session"]["groups"]) == ("grace", ["a", "b"])


def test_a_refused_change() -> None:
    """Protocol 5.7: presence_failed also answers joins."""
    rig = online()
    [frame] = rig.begin(commands.join(rig.core.profile, "b", now=rig.now, wall=WALL))
    rig.feed({"type": "presence_failed", "requestId": frame["requestId"], "reason": "no"})
    error = error_of(rig)
    assert isinstance(error, PresenceRefused)
    assert error.reason == "no"


def test_a_change_of_a_session_the_broker_does_not_know_registers_anew() -> None:
    """F83: once, then it is told."""
    rig = online()
    [frame] = rig.begin(commands.join(rig.core.profile, "b", now=rig.now, wall=WALL))
    rig.feed({"type": "presence_failed", "requestId": frame["requestId"], "reason": reasons.SESSION_NOT_FOUND})
    assert rig.is_broken
    rig.lose()
    [frame] = rig.register()
    rig.feed({"type": "presence_failed", "requestId": frame["requestId"], "reason": reasons.SESSION_NOT_FOUND})
    assert isinstance(error_of(rig), PresenceRefused)


def test_an_answer_of_another_kind_breaks_the_connection() -> None:
    rig = online()
    [frame] = rig.begin(commands.list_groups(now=rig.now))
    rig.feed({"type": "presence_ack", "requestId": frame["requestId"], "group": "a"})
    assert rig.is_broken


def test_an_answer_nobody_waits_for_is_ignored() -> None:
    rig = online()
    assert rig.feed({"type": "groups", "requestId": "unknown", "groups": []}) == []
    assert not rig.is_broken


def test_a_request_is_repeated_after_a_reconnect() -> None:
    rig = online()
    [first] = rig.begin(commands.list_groups(now=rig.now))
    rig.lose()
    [second] = rig.register()
    assert second["type"] == "list_groups"
    assert second["requestId"] != first["requestId"]
    rig.feed({"type": "groups", "requestId": first["requestId"], "groups": []})
    assert rig.settled() == []
    rig.feed({"type": "groups", "requestId": second["requestId"], "groups": []})
    assert len(rig.settled()) == 1


def test_a_request_gives_up_in_time() -> None:
    rig = online()
    rig.begin(commands.list_groups(now=rig.now))
    rig.pass_time(REQUEST_MS)
    assert error_of(rig).code == "request_timeout"


def test_an_empty_change_is_refused() -> None:
    with pytest.raises(UsageError):
        commands.set_presence(Rig().core.profile, now=0, wall=WALL)


def test_what_no_frame_holds_is_refused_here_and_for_good() -> None:
    """OP-1: whatever is asked for; the connection goes on, and nothing of it is tried again."""
    rig = Rig()
    rig.register(features=["invoke"])
    big, now = "x" * FRAME_BYTES, rig.now
    operations: list[Any] = [
        commands.list_sessions(big, now=now),
        commands.send(big, "hi", message_id="m-1", now=now, wall=WALL),
        commands.ask(big, "why?", message_id="m-2", now=now, wall=WALL),
        rig.core.invoking.update("i-1", "completed", None, big, None, None, 5.0),
    ]
    for operation in operations:
        assert [frame for frame in rig.begin(operation) if frame["type"] != "cancel_ask"] == []
        error = error_of(rig)
        assert isinstance(error, TooLarge)
        assert (error.retry, error.code) == ("never", "too_large")
    assert not rig.is_broken
    rig.lose()
    assert rig.register(features=["invoke"]) == []
