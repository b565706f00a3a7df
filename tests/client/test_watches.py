"""Test watches of the client: resumed behind what was told, bounded, ended when nobody takes from them."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking, control, watches
from intercom.client.watches import Watch, WatchEvent, WatchSnapshot, after_of, subjects_of
from intercom.errors import ConnectionLost, RequestRefused, RequestTimeout, UsageError
from intercom.limits import WATCH_SUBJECTS
from intercom.paths import Paths
from intercom.testing import MemoryBroker
from tests.support.brokers import BrokerProcess
from tests.support.client import GRANTED, Frame, Rig
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def online() -> Rig:
    rig = Rig(name="ada")
    rig.register(**{**GRANTED, "features": [*GRANTED["features"]]})
    return rig


def started(rig: Rig, *of: Any, after: tuple[int, str | None] | None = None) -> tuple[Watch, Frame]:
    """Begin a watch and return it with its request."""
    watch = rig.core.watch(list(of), after)
    [request] = rig.written()
    return watch, request


def begun(request: Frame, seq: int = 4, watch_id: str = "w1", **more: Any) -> Frame:
    answer = {"requestId": request["requestId"], "watchId": watch_id, "journalId": "j", "seq": seq}
    return {"type": "watching", **answer, **more}


def event(seq: int, watch_id: str = "w1", **more: Any) -> Frame:
    told = {"kind": "session.closed", "at": 5, "about": {"sessionId": "s"}, **more}
    return {"type": "watch_event", "watchId": watch_id, "seq": seq, "event": told}


def taken(rig: Rig, watch: Watch) -> list[Any]:
    found = []
    while (told := rig.core.take_watched(watch)) is not None:
        found.append(told)
    return found


STATES = [{"kind": "session", "state": "active", "about": {"sessionId": "s"}, "detail": {"state": "active"}}]


def test_a_snapshot_then_events() -> None:
    rig = online()
    watch, request = started(rig, *subjects_of(sessions=["s"]))
    assert request == {"type": "watch", "requestId": request["requestId"], "of": [{"sessionId": "s"}]}
    assert watch.position is None
    rig.feed(begun(request, snapshot=STATES, leftOut=3), event(7, detail={"state": "closed"}))
    assert watch.position is None, "nothing was taken"
    snapshot = rig.core.take_watched(watch)
    assert isinstance(snapshot, WatchSnapshot)
    assert (snapshot.position, snapshot.restarted, snapshot.left_out) == ("4@j", None, 3)
    [state] = snapshot.states
    assert (state.kind, state.state, state.about, state.detail) == (
        "session",
        "active",
        {"sessionId": "s"},
        {"state": "active"},
    )
    assert watch.position == "4@j"
    [told] = taken(rig, watch)
    assert told == WatchEvent(
        position="7@j",
        seq=7,
        kind="session.closed",
        at=5,
        about={"sessionId": "s"},
        detail={"state": "closed"},
    )
    rig.feed({"type": "watch_alive", "watchId": "w1", "seq": 9})
    assert watch.position == "9@j"


def test_it_goes_on_behind_what_came_when_the_connection_was_lost() -> None:
    """issue 7: survives a reconnect by resuming."""
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]), event(5))
    rig.lose()
    again = rig.reattach()
    [request] = [frame for frame in again if frame["type"] == "watch"]
    assert (request["afterSeq"], request["journalId"], "of" in request) == (5, "j", False)
    rig.feed(begun(request, 5, "w1"), event(6, "w1"))
    assert [told.position for told in taken(rig, watch)] == ["4@j", "5@j", "6@j"]


def test_one_that_was_not_answered_is_asked_for_again() -> None:
    rig = online()
    watch, _ = started(rig, after=(9, None))
    rig.lose()
    [request] = [frame for frame in rig.reattach() if frame["type"] == "watch"]
    assert (request["afterSeq"], "journalId" in request) == (9, False)
    rig.feed(begun(request, 9))
    assert (taken(rig, watch), watch.position) == ([], "9@j")


def test_what_cannot_be_gone_on_with_says_so() -> None:
    """protocol 11.1.4"""
    rig = online()
    watch, request = started(rig, after=(9, "old"))
    assert request["journalId"] == "old"
    rig.feed(begun(request, 2, snapshot=[], restarted="other_journal"))
    [snapshot] = taken(rig, watch)
    assert (snapshot.restarted, watch.position) == ("other_journal", "2@j")


@pytest.mark.parametrize("reason", ["too_slow", "compacted"])
def test_one_that_the_broker_ended_is_begun_again_behind_what_came(reason: str) -> None:
    """protocol 11.1.5"""
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]), event(6))
    [again] = rig.feed({"type": "watch_ended", "watchId": "w1", "reason": reason, "seq": 6})
    assert again["afterSeq"] == 6
    rig.feed(begun(again, 6, "w2"), event(7, "w2"))
    assert len(taken(rig, watch)) == 3


def test_at_the_end_of_the_broker_it_waits_for_the_next_one() -> None:
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]))
    assert rig.feed({"type": "watch_ended", "watchId": "w1", "reason": "broker_shutdown", "seq": 4}) == []
    rig.lose()
    assert [frame["type"] for frame in rig.reattach()] == ["watch"]
    assert len(taken(rig, watch)) == 1


@pytest.mark.parametrize(("reason", "retry"), [("not_read", "after"), ("store_unusable", "never")])
def test_what_going_on_does_not_cure_is_told(reason: str, retry: str) -> None:
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]), {"type": "watch_ended", "watchId": "w1", "reason": reason, "seq": 4})
    assert isinstance(rig.core.take_watched(watch), WatchSnapshot), "what came before is taken first"
    for _ in range(2):
        with pytest.raises(RequestRefused) as caught:
            rig.core.take_watched(watch)
        assert (caught.value.code, caught.value.retry) == (reason, retry)


def test_a_refusal_is_told() -> None:
    rig = online()
    watch, request = started(rig)
    refused = {"code": "not_allowed", "reason": "no", "retryable": False}
    rig.feed({"type": "request_failed", "requestId": request["requestId"], **refused})
    with pytest.raises(RequestRefused) as caught:
        rig.core.take_watched(watch)
    assert caught.value.code == "not_allowed"


def test_it_is_not_kept_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not take costs neither its own memory nor the broker's, and loses nothing."""
    monkeypatch.setattr(watches, "WATCHED_KEPT", 3)
    rig = online()
    watch, request = started(rig)
    written = rig.feed(begun(request, snapshot=[]), event(5), event(6), event(7), event(8))
    assert [(frame["type"], frame["watchId"]) for frame in written] == [("unwatch", "w1")]
    rig.feed({"type": "watch_ended", "watchId": "w1", "reason": "unwatched", "seq": 8, "requestId": "x"})
    assert rig.core.take_watched(watch) is not None
    assert rig.written() == []
    assert watch.position == "4@j"
    assert [told.position for told in taken(rig, watch)] == ["5@j", "6@j"]
    [again] = rig.written()
    assert again["afterSeq"] == 6
    rig.feed(begun(again, 6, "w2"), event(7, "w2"))
    assert [told.position for told in taken(rig, watch)] == ["7@j"]


def test_a_full_one_is_not_begun_before_it_was_taken_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "WATCHED_KEPT", 1)
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]))
    rig.lose()
    assert rig.reattach() == []
    assert len(taken(rig, watch)) == 1
    assert [frame["afterSeq"] for frame in rig.written()] == [4]


def test_one_that_is_closed_or_dropped_is_ended_at_the_broker() -> None:
    rig = online()
    watch, request = started(rig)
    rig.feed(begun(request, snapshot=[]))
    rig.core.unwatch(watch)
    assert [frame["type"] for frame in rig.written()] == ["unwatch"]
    with pytest.raises(UsageError, match="closed"):
        rig.core.take_watched(watch)
    dropped, request = started(rig)
    rig.feed(begun(request, 4, "w2", snapshot=[]))
    rig.events()
    del dropped
    gc.collect()
    written = rig.feed(event(5, "w2"), event(6, "w2"))
    assert [(frame["type"], frame["watchId"]) for frame in written] == [("unwatch", "w2")]


def test_one_that_is_closed_before_it_began_is_ended_when_it_tells_something() -> None:
    rig = online()
    watch, request = started(rig)
    rig.core.unwatch(watch)
    assert rig.feed(begun(request, snapshot=[])) == []
    written = rig.feed({"type": "watch_alive", "watchId": "w1", "seq": 5})
    assert [frame["type"] for frame in written] == ["unwatch"]


def test_an_event_that_is_none_breaks_the_connection() -> None:
    rig = online()
    _, request = started(rig)
    rig.feed(begun(request, snapshot=[]), {"type": "watch_event", "watchId": "w1", "seq": 5, "event": {"kind": 7}})
    assert rig.is_broken


def test_when_the_session_is_over_the_watch_is() -> None:
    rig = online()
    watch, _ = started(rig)
    rig.core.close(rig.now, finished=True)
    with pytest.raises(ConnectionLost):
        rig.core.take_watched(watch)
    with pytest.raises(UsageError, match="closed"):
        rig.core.watch([], None)


def test_an_older_broker_cannot() -> None:
    rig = Rig(name="ada")
    rig.register()
    watch = rig.core.watch([], None)
    with pytest.raises(RequestRefused) as caught:
        rig.core.take_watched(watch)
    assert caught.value.code == "feature_not_granted"


def test_what_is_followed_is_named() -> None:
    found = subjects_of(addresses=["a", ("b", "g")], groups=["g"], messages=["m"], assignments=["w"])
    found += subjects_of(flows=["f"], invocations=["i"], links=["l"])
    assert [{name: value for name, value in zip(each.__struct_encode_fields__, [
        getattr(each, field) for field in each.__struct_fields__
    ], strict=True) if isinstance(value, str)} for each in found] == [
        {"address": "a"},
        {"address": "b", "group": "g"},
        {"group": "g"},
        {"messageId": "m"},
        {"assignmentId": "w"},
        {"flowId": "f"},
        {"invocationId": "i"},
        {"linkId": "l"},
    ]  # fmt: skip
    for wrong in ({"sessions": "s"}, {"sessions": [" "]}, {"addresses": [("a", "")]}, {"messages": ["m"] * 65}):
        with pytest.raises(UsageError):
            subjects_of(**wrong)  # type: ignore[arg-type]
    assert WATCH_SUBJECTS == 64


def test_positions() -> None:
    assert after_of(None) is None
    assert after_of(7) == (7, None)
    assert after_of("7@j") == (7, "j")
    for wrong in ("", "x", "-1", True, "7.5", "1" * 19):
        with pytest.raises(UsageError):
            after_of(wrong)


# --- with a broker --------------------------------------------------------------------------------------


def test_a_person_follows_everything(broker: BrokerProcess) -> None:
    """From the library's shell without a loop to the real broker and back."""
    with blocking.connect(home=broker.home, purpose="control") as boss:
        follows = boss.watch(timeout=PATIENCE_S)
        first = next(follows)
        assert isinstance(first, WatchSnapshot)
        with blocking.connect("ada", home=broker.home) as ada:
            active = next(follows)
            assert isinstance(active, WatchEvent)
            assert (active.kind, active.about) == ("session.active", {"sessionId": ada.id, "name": "ada"})
            mine = ada.watch(sessions=[ada.id], timeout=PATIENCE_S)
            assert [state.state for state in next(mine).states] == ["active"]  # type: ignore[union-attr]
        closed = next(follows)
        assert isinstance(closed, WatchEvent)
        assert (closed.kind, closed.detail["reason"]) == ("session.closed", "unregister")
        follows.close()
        later = boss.watch(after=first.position, timeout=0.2)
        assert [told.position for told in later] == [active.position, closed.position]
        assert later.position == closed.position


@pytest.mark.anyio
async def test_a_watch_goes_on_over_the_death_of_the_broker(paths: Paths) -> None:
    with anyio.fail_after(4 * PATIENCE_S):
        async with aio.connect("ada", home=paths.home) as ada, aio.connect(home=paths.home, purpose="control") as boss:
            follows = boss.watch(sessions=[ada.id])
            assert isinstance(await anext(follows), WatchSnapshot)
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            seen: list[str] = []
            while seen[-1:] != ["session.active"]:
                told = await anext(follows)
                assert isinstance(told, WatchEvent)
                seen.append(told.kind)
            assert seen == ["session.reconnecting", "session.active"]
            follows.close()
            with pytest.raises(UsageError):
                await anext(follows)


def test_a_broker_in_memory_can_be_followed() -> None:
    broker = MemoryBroker()
    boss = broker.connect(purpose="control")
    ada = broker.connect("ada")
    follows = boss.watch(sessions=[ada.id], timeout=10)
    [snapshot] = follows
    assert isinstance(snapshot, WatchSnapshot)
    assert [state.state for state in snapshot.states] == ["active"]
    ada.cut()
    assert [told.kind for told in follows if isinstance(told, WatchEvent)] == ["session.reconnecting", "session.active"]
    broker.restart()
    assert [told.kind for told in follows if isinstance(told, WatchEvent)] == ["session.reconnecting", "session.active"]
    broker.stop()
    assert list(follows) == []
    with pytest.raises(RequestRefused) as caught:
        broker.restart()
        boss.spawn("reviewer").result()
    assert caught.value.code == "spawn_unavailable"
    follows.close()


# --- orders ---------------------------------------------------------------------------------------------


def test_an_order_is_repeated_under_its_key(home: Path) -> None:
    """FE 1.5: received, then applied; what is sent again starts nothing again."""
    from intercom.client.ordering import spawn

    rig = online()
    order = spawn("reviewer", "look", key="k", timeout=40, now=rig.now)
    [request] = rig.begin(order)
    assert (request["type"], request["kind"], request["prompt"]) == ("spawn_session", "reviewer", "look")
    rig.feed({"type": "spawn_status", "requestId": request["requestId"], "status": "received"})
    assert not order.done
    rig.lose()
    [again] = rig.reattach()
    assert (again["idempotencyKey"], request["idempotencyKey"]) == ("k", "k")
    status = {"type": "spawn_status", "requestId": again["requestId"]}
    rig.feed({**status, "status": "received"}, {**status, "status": "applied", "sessionId": "s"})
    assert order.result == "s"


def test_an_order_that_takes_longer_than_its_caller_waits(home: Path) -> None:
    """Protocol 11.2.3, FE 1.9: what can be repeated is named, or repeating it would start a second one."""
    from intercom.client.ordering import spawn

    rig = online()
    order = spawn("reviewer", "", key="k", timeout=2, now=rig.now)
    [request] = rig.begin(order)
    rig.feed({"type": "spawn_status", "requestId": request["requestId"], "status": "received"})
    rig.pass_time(2_000)
    assert isinstance(order.error, RequestTimeout)
    assert order.error.as_dict() == {
        "code": "request_timeout",
        "reason": "The command was started, and no session has come yet",
        "retry": "same_id",
        "hint": "Repeat it with the key k: nothing is started twice.",
        "key": "k",
    }


def test_an_order_that_failed(home: Path) -> None:
    from intercom.client.ordering import spawn

    rig = online()
    order = spawn("reviewer", "", key="k", timeout=40, now=rig.now)
    [request] = rig.begin(order)
    failed = {"status": "failed", "code": "spawn_timeout", "reason": "No session came"}
    rig.feed({"type": "spawn_status", "requestId": request["requestId"], **failed})
    assert isinstance(order.error, RequestRefused)
    assert (order.error.code, order.error.reason, order.error.exit_status) == ("spawn_timeout", "No session came", 6)
    order = spawn("reviewer", "", key="k", timeout=40, now=rig.now)
    [request] = rig.begin(order)
    limited = {"code": "spawn_rate_limited", "reason": "no", "retryable": True, "retryAfterMs": 27_000}
    rig.feed({"type": "request_failed", "requestId": request["requestId"], **limited})
    assert isinstance(order.error, RequestRefused)
    assert (order.error.retry, order.error.retry_after_ms, order.error.exit_status) == ("after", 27_000, 5)
    silent = spawn("reviewer", "", key="k", timeout=40, now=rig.now)
    rig.begin(silent)
    rig.pass_time(40_000)
    assert isinstance(silent.error, RequestTimeout)
    assert (silent.error.key, silent.error.retry) == ("k", "same_id")
    assert "key k" in silent.error.hint
    for wrong in ({"kind": " "}, {"prompt": "x" * 262_145}, {"key": ""}, {"key": "x" * 129}):
        with pytest.raises(UsageError):
            spawn(**{"kind": "k", "prompt": "", "key": "k", "timeout": 1, "now": 0, **wrong})  # type: ignore[arg-type]
