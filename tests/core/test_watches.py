"""Test watches: a snapshot at a sequence, then everything behind it (FE 5.2 P11, protocol 4.55, 5.65 to 5.68)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core import watches
from intercom.core.watches import Watches
from intercom.limits import Limits
from intercom.wire.watching import WatchEvent
from tests.core.harness import World, only
from tests.core.mail import AGENT, Agent, enter, holder, reattach
from tests.core.work import coordinator, parked, push, report, worker

FRAMES = ("watching", "watch_event", "watch_alive", "watch_ended")
WATCHER = (*AGENT, "watch")


def watcher(world: World, name: str = "watcher", **more: Any) -> Agent:
    """Register somebody who may follow what happens."""
    return enter(world, name, features=WATCHER, **more)


def person(world: World) -> Agent:
    """Register the operator."""
    return enter(world, features=("operator", "watch"), info={"recipientPurpose": "control"})


def watch(client: Agent, *of: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Begin a watch and return the answer."""
    return only(client.write("watch", requestId="r", **({"of": list(of)} if of else {}), **more))


def told(client: Agent) -> list[dict[str, Any]]:
    """Return what came for watches since the last look."""
    return [frame for frame in client.got() if frame["type"] in FRAMES]


def kinds(client: Agent) -> list[str]:
    """Return the kinds of the events that came."""
    return [frame["event"]["kind"] for frame in told(client) if frame["type"] == "watch_event"]


# --- what is told ---------------------------------------------------------------------------------------


def test_a_session_is_followed_from_its_snapshot_on() -> None:
    """FE 5.2 P11: a snapshot at N, then what is behind N."""
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    begun = watch(me, {"sessionId": bob.id})
    assert begun["type"] == "watching"
    assert begun["seq"] == world.disk.sequence
    assert begun["journalId"] == world.broker._ground.identity.journal_id
    assert begun["snapshot"] == [
        {
            "kind": "session",
            "state": "active",
            "about": {"sessionId": bob.id, "name": "bob"},
            "detail": {"state": "active"},
        }
    ]
    bob.leave()
    [event] = told(me)
    assert (event["watchId"], event["seq"]) == (begun["watchId"], begun["seq"] + 1)
    assert event["event"]["kind"] == "session.reconnecting"
    assert event["event"]["at"] == world.wall
    assert event["event"]["about"] == {"sessionId": bob.id, "name": "bob"}
    assert event["event"]["detail"] == {"state": "reconnecting", "graceDeadline": world.wall + 600_000}
    reattach(world, bob).write("unregister")
    assert kinds(me) == ["session.active", "session.closed"]


def test_the_way_of_a_message() -> None:
    """A1.1 as its sender sees it; no event holds the text or the name of a secret."""
    world = World()
    bob = holder(world, "bob")
    me = watcher(world)
    bob.leave()
    begun = watch(me, {"messageId": "m1"})
    assert begun["snapshot"] == [{"kind": "message", "state": "unknown", "about": {"messageId": "m1"}}]
    events = [frame for frame in me.queue("bob", "m1", "the text") if frame["type"] in FRAMES]
    again = holder(world, "bob", bob.registered["addressToken"])
    again.confirm("m1")
    events += told(me)
    assert [frame["event"]["kind"] for frame in events] == ["mail.queued", "mail.offered", "mail.delivered"]
    assert events[1]["event"]["detail"] == {"state": "offered", "session": again.id}
    assert {tuple(frame["event"]["about"].items()) for frame in events} == {(("messageId", "m1"), ("target", "bob"))}
    assert "the text" not in str(events)
    assert watch(me, {"messageId": "m1"})["snapshot"][0]["state"] == "delivered"


def test_an_address_is_followed() -> None:
    world = World()
    bob = holder(world, "bob")
    me, boss = watcher(world), person(world)
    begun = watch(me, {"address": "bob", "group": "default"})
    watch(boss, {"address": "BOB"})
    assert begun["snapshot"][0]["about"] == {"address": "bob", "group": "default"}
    assert begun["snapshot"][0]["detail"] == {"mailboxCount": 0, "session": bob.id}
    assert begun["snapshot"][0]["state"] == "held"
    bob.leave()
    enter(world, "ann").queue("bob", "m1")
    assert kinds(me) == ["session.reconnecting"], "what waits there concerns its owner and its sender"
    assert kinds(boss) == ["session.reconnecting", "mail.queued"], "the operator sees all"
    assert watch(me, {"address": "bob"})["snapshot"][0]["detail"] == {"mailboxCount": 1}


def test_everything_a_session_may_see_is_what_concerns_its_groups_and_itself() -> None:
    world = World()
    me = watcher(world, info={"groups": ["g"]})
    far = enter(world, "far", info={"groups": ["h"]})
    near = enter(world, "near", info={"groups": ["g", "x"]})
    begun = watch(me)
    assert [state["about"]["sessionId"] for state in begun["snapshot"]] == [me.id, near.id]
    far.leave(), near.leave()
    assert [frame["event"]["about"]["name"] for frame in told(me)] == ["near"]
    me.write("join_group", group="h", requestId="j")
    reattach(world, far), reattach(world, near)
    assert sorted(frame["event"]["about"]["name"] for frame in told(me)) == ["far", "near"]
    me.write("leave_group", group="g", requestId="l")
    enter(world, "late", info={"groups": ["g"]})
    assert kinds(me) == []


def test_the_operator_sees_everything() -> None:
    world = World()
    boss = person(world)
    begun = watch(boss)
    assert begun["snapshot"] == []
    bob = holder(world, "bob", info={"groups": ["g"]})
    assert kinds(boss) == ["address.created", "address.held", "session.active"]
    bob.leave()
    enter(world, "ann", info={"groups": ["g"]}).queue("bob", "m1")
    assert kinds(boss) == ["session.reconnecting", "session.active", "mail.queued"]


def test_a_group_is_followed_by_its_members() -> None:
    world = World()
    me = watcher(world, info={"groups": ["g", "h"]})
    near = enter(world, "near", info={"groups": ["g"]})
    enter(world, "far", info={"groups": ["h"]})
    begun = watch(me, {"group": "g"})
    assert [state["about"]["name"] for state in begun["snapshot"]] == ["watcher", "near"]
    near.leave()
    enter(world, "other", info={"groups": ["h"]})
    assert kinds(me) == ["session.reconnecting"]
    assert watch(me, {"group": "x"})["code"] == "not_allowed"


def test_several_things_in_one_watch_are_told_once_each() -> None:
    world = World()
    bob = holder(world, "bob")
    me = watcher(world)
    begun = watch(me, {"address": "bob"}, {"sessionId": bob.id}, {"sessionId": "nobody"})
    assert [state["state"] for state in begun["snapshot"]] == ["held", "active", "unknown"]
    bob.leave()
    assert kinds(me) == ["session.reconnecting"]


def test_ids_of_sessions_are_the_same_whatever_their_case() -> None:
    world = World()
    me = watcher(world)
    bob = enter(world, "bob", preferredSessionId="ABCDEF00-0000-4000-8000-000000000000")
    watch(me, {"sessionId": bob.id.lower()})
    bob.leave()
    assert kinds(me) == ["session.reconnecting"]


def test_work_is_followed() -> None:
    """FE 1.10, issue 7: filtered by assignment; the text of what is parked is in no event (design 5, Privacy)."""
    world = World()
    boss = person(world)
    target = worker(world)
    parked(world, target, text="the text")
    begun = watch(boss)
    inbox = next(state for state in begun["snapshot"] if state["kind"] == "inbox")
    assert (inbox["state"], inbox["about"]["inboxId"]) == ("parked", "m1")
    assert "the text" not in str(world.disk.journal)
    assignment = push(world, coordinator(world), target)
    assert kinds(boss) == ["session.active", "inbox.assigned", "assignment.assigned"]
    mine = watch(boss, {"assignmentId": assignment["assignmentId"]})
    assert [state["state"] for state in mine["snapshot"]] == ["assigned"]
    told(boss)
    report(target, assignment, "accepted")
    frames = [frame for frame in told(boss) if frame["watchId"] == mine["watchId"]]
    assert [frame["event"]["kind"] for frame in frames] == ["assignment.accepted"]
    assert frames[0]["event"]["detail"]["state"] == "accepted"
    assert frames[0]["event"]["about"]["messageId"] == "m1"


# --- commits --------------------------------------------------------------------------------------------


def test_an_event_is_told_after_its_commit() -> None:
    """design 3, FE 5.1: written to sockets only after the commit."""
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    watch(me, {"sessionId": bob.id})
    world.auto = False
    bob.leave()
    world.take()
    assert told(me) == []
    world.commit()
    world.take()
    assert kinds(me) == ["session.reconnecting"]


def test_an_event_whose_commit_failed_is_never_told() -> None:
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    begun = watch(me, {"sessionId": bob.id})
    world.auto = False
    bob.leave()
    world.fail_commit()
    world.settle()
    assert told(me) == []
    world.auto = True
    world.pass_time(2_000)
    [event] = told(me)
    assert event["event"]["kind"] == "session.reconnecting"
    assert event["seq"] > begun["seq"]


def test_a_snapshot_waits_for_what_it_tells_of() -> None:
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    world.auto = False
    bob.leave()
    me.write("watch", requestId="r", of=[{"sessionId": bob.id}])
    world.take()
    assert told(me) == []
    world.settle()
    [begun] = told(me)
    assert (begun["snapshot"][0]["state"], begun["seq"]) == ("reconnecting", world.disk.sequence)


def test_a_snapshot_that_rests_on_a_failed_commit_is_refused() -> None:
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    world.auto = False
    bob.leave()
    me.write("watch", requestId="r", of=[{"sessionId": bob.id}])
    world.fail_commit()
    world.settle()
    [refused] = [frame for frame in me.got() if frame["type"] == "request_failed"]
    assert (refused["code"], refused["retryable"]) == ("not_recorded", True)
    world.auto = True
    world.pass_time(20_000)
    assert told(me) == [], "there is no watch"


# --- going on from a sequence ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 2, 3, 256])
def test_what_was_missed_is_told_page_by_page_without_gap_or_repeat(page: int) -> None:
    world = World(limits=Limits(watch_page=page))
    boss = person(world)
    first = watch(boss)["seq"]
    others = [enter(world, f"n{number}") for number in range(4)]
    live = [frame["seq"] for frame in told(boss)]
    assert len(live) == 4
    frames = boss.write("watch", requestId="r2", afterSeq=first, journalId=world.broker._ground.identity.journal_id)
    begun, *events = [frame for frame in frames if frame["type"] in FRAMES]
    assert (begun["type"], begun["seq"], "snapshot" in begun) == ("watching", first, False)
    assert [event["seq"] for event in events] == live
    others[0].leave()
    both = [(frame["watchId"], frame["seq"]) for frame in told(boss)]
    assert both == [("w1", live[-1] + 1), (begun["watchId"], live[-1] + 1)]


@pytest.mark.parametrize("page_first", [True, False])
def test_what_happens_while_the_journal_is_read_is_neither_lost_nor_told_twice(page_first: bool) -> None:
    """Whatever the core hears of first: what the disk holds, or that it was committed."""
    world = World(limits=Limits(watch_page=2))
    boss = person(world)
    start = world.disk.sequence
    for number in range(4):
        enter(world, f"n{number}")
    world.auto = False
    boss.write("watch", requestId="r", afterSeq=start)
    seen: list[int] = []
    for _ in range(8):
        enter_again(world)
        if page_first:
            for append in world.appends:
                world.disk.commit(append)
            world.appends.clear()
            world.committed = world.last_ticket
            world.read()
            world.perform(world.broker.committed(world.committed, world.now))
        else:
            world.read()
            world.commit()
        world.take()
        seen += [frame["seq"] for frame in told(boss) if frame["type"] == "watch_event"]
    world.settle()
    seen += [frame["seq"] for frame in told(boss) if frame["type"] == "watch_event"]
    assert seen == list(range(start + 1, world.disk.sequence + 1))
    assert len(seen) == 12


def test_a_page_that_is_older_than_the_news_of_a_commit_is_not_the_last() -> None:
    """The reader's thread looked, then the commit was told, then its page came."""
    world = World()
    boss = person(world)
    start = world.disk.sequence
    world.auto = False
    boss.write("watch", requestId="r", afterSeq=start)
    read = world.reads.popleft()
    page = world.disk.read_page(start, 10)
    enter_again(world)
    world.commit()
    world.perform(world.broker.journal_read(read.token, page, world.now))
    world.settle()
    assert [frame["seq"] for frame in told(boss) if frame["type"] == "watch_event"] == [start + 1]


def enter_again(world: World) -> Agent:
    """Register one more session while nothing is committed by itself."""
    conn = world.connect()
    request = {
        "type": "register",
        "session": {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1},
        "returnAddress": f"return-{conn}",
        "acknowledgesReceipt": True,
        "features": list(AGENT),
        "clientProtocolVersion": "1.0",
        "kind": "custom",
    }
    world.send(conn, **request)
    return Agent(world, conn, "", [])


def test_a_slow_reader_that_catches_up_is_read_for_no_faster_than_it_takes() -> None:
    world = World(limits=Limits(watch_page=2))
    boss = person(world)
    for number in range(7):
        enter(world, f"n{number}")
    world.deaf.add(boss.conn)
    world.send(boss.conn, type="watch", requestId="r", afterSeq=0)
    written = [write.frame for write in world.waiting if write.to == boss.conn]
    assert sum(isinstance(frame, WatchEvent) for frame in written) == 2, "one page"
    world.deaf.clear()
    world.settle()
    assert len(kinds(boss)) == 7


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"afterSeq": 3, "journalId": "another"}, "other_journal"),
        ({"afterSeq": 1_000}, "ahead"),
        ({"afterSeq": 0}, "compacted"),
    ],
)
def test_a_sequence_from_which_nothing_can_be_told_begins_anew(more: dict[str, Any], why: str) -> None:
    world = World(limits=Limits(tidy_ms=1_000_000, history_kept_ms=10, tombstone_ms=1))
    bob = enter(world, "bob")
    me = watcher(world)
    bob.write("unregister")
    world.pass_time(1_000_000)
    assert world.disk.compacted > 0
    begun = watch(me, {"sessionId": me.id}, **more)
    assert (begun["restarted"], begun["seq"]) == (why, world.disk.sequence)
    assert begun["snapshot"][0]["state"] == "active"
    me.write("presence", status="s")
    world.pass_time(10_000)
    assert [frame["seq"] for frame in told(me) if frame["type"] == "watch_event"] == [begun["seq"] + 1]


def test_a_restart_goes_on_where_the_watch_was() -> None:
    """A watch is of one connection; the sequence is of the journal."""
    world = World()
    boss = person(world)
    enter(world, "bob")
    last = watch(boss)["seq"]
    enter(world, "ann")
    world.crash()
    boss = person(world)
    frames = boss.write("watch", requestId="r", afterSeq=last)
    assert [frame["event"]["kind"] for frame in frames if frame["type"] == "watch_event"] == [
        "session.active",
        "session.reconnecting",
        "session.reconnecting",
    ]


def test_a_journal_that_cannot_be_read_refuses_the_watch_or_ends_it() -> None:
    world = World(limits=Limits(watch_page=1))
    boss = person(world)
    enter(world, "bob"), enter(world, "ann")
    world.auto = False
    boss.write("watch", requestId="r", afterSeq=0)
    world.read(fails=True)
    world.take()
    refused = only(boss.got())
    assert (refused["code"], refused["retryable"]) == ("not_read", True)
    boss.write("watch", requestId="r", afterSeq=0)
    world.read()
    world.take()
    world.read(fails=True)
    world.take()
    _, event, ended = told(boss)
    assert (ended["reason"], ended["seq"]) == ("not_read", event["seq"])
    assert len(world.broker._following.watches) == 0


def test_history_that_is_deleted_before_it_was_read_ends_the_watch() -> None:
    world = World(limits=Limits(watch_page=1))
    boss = person(world)
    enter(world, "bob"), enter(world, "ann")
    world.auto = False
    boss.write("watch", requestId="r", afterSeq=0)
    world.read()
    world.take()
    world.disk.compacted = world.disk.sequence
    world.read()
    world.take()
    assert told(boss)[-1]["reason"] == "compacted"


# --- limits and ends ------------------------------------------------------------------------------------


def test_a_watcher_that_does_not_read_is_ended_and_told_why() -> None:
    """issue 7: a slow one is ended, not buffered without bound."""
    for limits in (Limits(watch_unsent_frames=3), Limits(watch_unsent_bytes=400)):
        world = World(limits=limits)
        boss, other = person(world), person(world)
        watch(boss), watch(other)
        world.deaf.add(boss.conn)
        for number in range(9):
            enter(world, f"n{number}")
        assert len(kinds(other)) == 9, "others go on"
        unsent = [write.frame for write in world.waiting if write.to == boss.conn]
        assert sum(isinstance(frame, WatchEvent) for frame in unsent) <= 3
        world.deaf.clear()
        world.settle()
        *events, ended = told(boss)
        assert (ended["type"], ended["reason"], ended["seq"]) == ("watch_ended", "too_slow", events[-1]["seq"])
        frames = boss.write("watch", requestId="r", afterSeq=ended["seq"])
        missed = [frame["seq"] for frame in frames if frame["type"] == "watch_event"]
        assert missed == list(range(ended["seq"] + 1, world.disk.sequence + 1))


def test_one_event_that_is_larger_than_the_limit_passes() -> None:
    world = World(limits=Limits(watch_unsent_bytes=1))
    boss = person(world)
    watch(boss)
    enter(world, "bob")
    assert kinds(boss) == ["session.active"]


def test_so_many_watches_and_no_more() -> None:
    """design 4, Charge before you link: 64 of a session, and a limit in all."""
    world = World()
    me = watcher(world)
    for _ in range(64):
        assert watch(me)["type"] == "watching"
    refused = watch(me)
    assert (refused["code"], refused["retryable"]) == ("watch_limit", True)
    me.write("unwatch", requestId="u", watchId="w1")
    assert watch(me)["type"] == "watching"
    world = World(limits=Limits(watches=2))
    assert [watch(watcher(world, f"n{number}"))["type"] for number in range(3)] == [
        "watching",
        "watching",
        "request_failed",
    ]


def test_a_snapshot_is_bounded_and_says_so() -> None:
    world = World(limits=Limits(watch_snapshot=2))
    for number in range(5):
        enter(world, f"n{number}")
    begun = watch(person(world))
    assert (len(begun["snapshot"]), begun["leftOut"]) == (2, 3)


def test_an_event_costs_its_own_watchers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """issue 7: of 1,000 watchers an event looks at those it concerns."""
    world = World(limits=Limits(known_sessions=5_000))
    targets = [enter(world, f"t{number}", info={"groups": [f"g{number}"]}) for number in range(20)]
    watchers = [watcher(world, f"w{number}", info={"groups": [f"g{number % 20}"]}) for number in range(20)]
    for number, each in enumerate(watchers):
        for _ in range(49):
            watch(each, {"sessionId": targets[number].id})
        watch(each)
    assert len(world.broker._following.watches) == 1_000
    looked_at = 0
    may_see = Watches._may_see

    def counted(self: Watches, *arguments: Any) -> bool:
        nonlocal looked_at
        looked_at += 1
        return may_see(self, *arguments)

    monkeypatch.setattr(Watches, "_may_see", counted)
    shown = 0
    show = watches._shown_event

    def once(*arguments: Any) -> Any:
        nonlocal shown
        shown += 1
        return show(*arguments)

    monkeypatch.setattr(watches, "_shown_event", once)
    targets[7].leave()
    assert looked_at == 50
    assert shown == 1, "it is encoded once, whoever follows"
    assert len(kinds(watchers[7])) == 50
    assert kinds(watchers[8]) == []


def test_signs_of_life() -> None:
    """protocol 5.67: every 15 s, with how far everything was told."""
    world = World()
    me = watcher(world, info={"groups": ["g"]})
    begun = watch(me)
    enter(world, "far", info={"groups": ["h"]})
    world.pass_time(14_999)
    assert told(me) == []
    world.pass_time(1)
    [alive] = told(me)
    assert alive == {"type": "watch_alive", "watchId": begun["watchId"], "seq": world.disk.sequence}
    assert alive["seq"] > begun["seq"]
    world.pass_time(30_000)
    assert len(told(me)) == 2
    me.write("unwatch", requestId="u", watchId=begun["watchId"])
    world.pass_time(60_000)
    assert told(me) == []


def test_the_end_of_a_watch_is_answered_also_when_it_is_over() -> None:
    world = World()
    me = watcher(world)
    begun = watch(me)
    ended = only(me.write("unwatch", requestId="u", watchId=begun["watchId"]))
    assert ended == {
        "type": "watch_ended",
        "watchId": begun["watchId"],
        "reason": "unwatched",
        "seq": begun["seq"],
        "requestId": "u",
    }
    assert only(me.write("unwatch", requestId="u", watchId="w99"))["reason"] == "unwatched"
    enter(world, "bob")
    assert told(me) == []


def test_the_broker_says_that_it_stops() -> None:
    world = World()
    me = watcher(world)
    begun = watch(me)
    world.stop()
    [ended] = told(me)
    assert (ended["reason"], ended["watchId"]) == ("broker_shutdown", begun["watchId"])


def test_a_store_that_is_closed_ends_all_and_takes_no_more() -> None:
    world = World()
    bob = enter(world, "bob")
    me = watcher(world)
    watch(me)
    world.auto = False
    bob.leave()
    world.fail_commit(final=True)
    world.settle()
    assert [frame["reason"] for frame in told(me)] == ["store_unusable"]
    world.auto = True
    assert watch(me)["code"] == "store_unusable"


def test_a_watch_ends_with_its_session() -> None:
    world = World()
    me = watcher(world)
    begun = watch(me)
    [ended] = me.write("unregister")
    assert (ended["reason"], ended["watchId"]) == ("session_ended", begun["watchId"])
    you = watcher(world, "you")
    watch(you)
    you.leave()
    assert len(world.broker._following.watches) == 0
    again = reattach(world, you)
    enter(world, "bob")
    assert told(again) == [], "a watch is of one connection"


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "code"),
    [
        ([], "bad_request"),
        ([{}], "bad_request"),
        ([{"sessionId": "a", "messageId": "b"}], "bad_request"),
        ([{"sessionId": ""}], "bad_request"),
        ([{"colour": "red"}], "bad_request"),
        ([{"sessionId": "a"}] * 65, "bad_request"),
        ([{"address": "nobody"}], "unknown_address"),
        ([{"address": "desk"}], "ambiguous_address"),
        ([{"messageId": "theirs"}], "not_allowed"),
    ],
)
def test_it_is_refused(of: list[dict[str, Any]], code: str) -> None:
    world = World()
    holder(world, "desk", info={"groups": ["g"]}), holder(world, "desk", info={"groups": ["h"]})
    ann, _ = enter(world, "ann"), enter(world, "bob")
    ann.message("bob", "theirs")
    me = watcher(world)
    assert only(me.write("watch", requestId="r", of=of))["code"] == code
    assert len(world.broker._following.watches) == 0


def test_without_the_feature() -> None:
    """protocol 5.30"""
    world = World()
    bob = enter(world, "bob")
    for kind, more in (("watch", {}), ("unwatch", {"watchId": "w1"})):
        assert only(bob.write(kind, requestId="r", **more))["code"] == "feature_not_granted"
    without_store = World(store_trouble="it is damaged")
    assert "watch" not in enter(without_store, "ann", features=("watch", "queue")).registered["features"]


# --- what crosses ---------------------------------------------------------------------------------------


def catching_up(limits: Limits) -> tuple[World, Agent]:
    """Return a world in which somebody has asked for everything from the beginning on, and the journal is being read.

    Nothing moves by itself from then on.
    """
    world = World(limits=limits)
    enter(world, "bob").leave()
    me = person(world)
    world.auto = False
    me.write("watch", requestId="r", afterSeq=0, journalId=world.broker._ground.identity.journal_id)
    assert len(world.reads) == 1
    return world, me


def test_who_left_is_not_told_that_its_snapshot_could_not_be_recorded() -> None:
    """design 3.6: every answer that rests on a row"""
    world = World()
    bob, me = enter(world, "bob"), person(world)
    world.auto = False
    bob.leave()
    me.write("watch", requestId="r")
    world.end(me.conn)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert told(me) == []


def test_who_reads_nothing_is_shown_no_life() -> None:
    """protocol 5.67: it would only wait behind what waits already"""
    world = World()
    bob, me = enter(world, "bob"), person(world)
    watch(me)
    world.deaf.add(me.conn)
    bob.leave()
    world.pass_time(3 * world.limits.watch_alive_ms)
    world.deaf.clear()
    world.settle()
    assert [frame["type"] for frame in told(me)] == ["watch_event"]


def test_who_catches_up_is_shown_life_at_the_place_it_has_come_to() -> None:
    """protocol 5.67: a client may go on from there"""
    world, me = catching_up(Limits(watch_page=1))
    world.read()
    world.take()
    assert len(world.reads) == 1, "the next page"
    world.pass_time(world.limits.watch_alive_ms)
    world.take()
    assert [(frame["type"], frame["seq"]) for frame in told(me)] == [
        ("watching", 0),
        ("watch_event", 1),
        ("watch_alive", 1),
    ]


def test_what_is_read_for_a_watch_that_was_ended_is_told_to_nobody() -> None:
    """protocol 4.56: nothing comes behind the answer"""
    world, me = catching_up(Limits(watch_page=1))
    world.read()
    world.take()
    [begun, _] = told(me)
    me.write("unwatch", requestId="u", watchId=begun["watchId"])
    world.take()
    assert [frame["type"] for frame in told(me)] == ["watch_ended"]
    world.read()
    world.take()
    assert told(me) == []


def test_a_watch_that_is_not_answered_yet_is_refused_when_the_store_is_lost() -> None:
    """protocol 5.65: every request has an answer"""
    world, me = catching_up(Limits())
    world.perform(world.broker.operations_read(None, world.now))
    world.take()
    refused = only(me.got())
    assert (refused["type"], refused["code"], refused["retryable"]) == ("request_failed", "not_read", True)


def test_a_stop_is_followed_by_no_event() -> None:
    """protocol 3.8: nobody is told anything any more"""
    world = World()
    bob, me = enter(world, "bob"), person(world)
    watch(me)
    world.auto = False
    bob.leave()
    world.perform(world.broker.stop(world.now))
    world.commit()
    world.take()
    assert "watch_event" not in [frame["type"] for frame in told(me)]


def test_a_message_that_waits_is_shown_to_who_may_open_its_mailbox() -> None:
    """protocol 11.1: it concerns its sender and its recipient"""
    world = World()
    sender, desk = enter(world, "a", features=WATCHER), holder(world, "desk", features=WATCHER)
    desk.write("unregister")
    sender.queue("desk", "m1")
    again = holder(world, "desk", desk.registered["addressToken"], "none", features=WATCHER)
    for each in (sender, again):
        [state] = watch(each, {"messageId": "m1"})["snapshot"]
        assert (state["kind"], state["state"]) == ("message", "queued")
    assert watch(watcher(world, "other"), {"messageId": "m1"})["code"] == "not_allowed"
