"""Test that a broker judges steps of others' flows with its own state, and goes on with them whatever comes between."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.flow_records import TargetIdentity
from intercom.core.records import Post
from intercom.core.step_letters import (
    DISPATCH,
    DISPATCHED,
    INQUIRE,
    OVER,
    DispatchedLetter,
    DispatchLetter,
    InquireLetter,
    OverLetter,
)
from intercom.limits import MINUTE_MS, Limits
from tests.core.cluster import IDS
from tests.core.flow_play import TODO_WORKER, gated
from tests.core.flows_between import Between
from tests.core.mail import AGENT, enter, operator

LIMITS = Limits()
PASS = LIMITS.flow_reconcile_ms


def bring(play: Between, letter: DispatchLetter | InquireLetter, by: str = "a") -> DispatchedLetter:
    """Bring a letter to the broker of the worker; return what it says."""
    kind = DISPATCH if isinstance(letter, DispatchLetter) else INQUIRE
    number = len(play.cluster.posts)
    post = Post(number, IDS["b"], kind, letter.dispatch_id, f"brought {number}", encode(letter))
    play.cluster.post(play.cluster.nodes[by], post)
    play.run()
    said = [post for post in play.cluster.posts[number:] if post.kind == DISPATCHED]
    return decode(said[0].body, type=DispatchedLetter)


def step_for(play: Between, dispatch_id: str = "d", *, session: Any = None, **more: Any) -> DispatchLetter:
    """Return a step for the worker, or another session there."""
    whom = session or play.worker
    identity = TargetIdentity(IDS["b"], whom.id, whom.registered.get("incarnation", ""))
    said = {"content": {"text": "do it"}, "flowDispatch": {"dispatchId": dispatch_id}}
    message = Raw(encode({"id": f"flow-dispatch/{dispatch_id}", "timestamp": 1, **said}))
    letter = DispatchLetter(dispatch_id, "f", "one", "default", identity, "worker", message)
    return replace(letter, **more)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("unreadable", "its message cannot be read"),
        ("another id", "its message cannot be read"),
        ("deaf", "its session cannot report: it did not ask for flow.report"),
        ("finished", "its session has finished and takes nothing more"),
        ("group", "its session is not in group secret"),
        ("another start", "its session was replaced or has ended"),
        ("another broker", "its session was replaced or has ended"),
        ("taken id", "another dispatch has its id there"),
    ],
)
def test_what_cannot_be_handed_out_is_refused_with_the_reason(what: str, said: str) -> None:
    """12.11.1 and 2: judged with the state that is here, whatever the other broker saw."""
    play = Between("abc")
    letter = step_for(play)
    if what == "unreadable":
        letter = replace(letter, message=Raw(b"7"))
    elif what == "another id":
        letter = replace(letter, dispatch_id="e")
    elif what == "deaf":
        letter = step_for(play, session=enter(play.cluster["b"], "deaf"))
    elif what == "finished":
        play.worker.write("presence", replyCapability="terminal")
    elif what == "group":
        letter = replace(letter, group="secret")
    elif what == "another start":
        letter = replace(letter, identity=replace(letter.identity, incarnation="0" * 32))
    elif what == "another broker":
        letter = replace(letter, identity=replace(letter.identity, broker_id=IDS["c"]))
    else:
        bring(play, letter, by="c")
    answer = bring(play, letter)
    assert (answer.state, answer.reason) == ("refused", said)
    assert len(play.dispatches()) == (what == "taken id")


def test_a_session_that_may_come_back_is_judged_by_what_is_known_of_it() -> None:
    """12.11.4: its mailbox keeps the step."""
    play = Between()
    play.worker.leave()
    deaf = enter(play.cluster["b"], "deaf")
    deaf.leave()
    assert bring(play, step_for(play)).state == "stored"
    assert bring(play, step_for(play, "e", session=deaf)).state == "refused"


def test_what_was_refused_is_known_for_some_time() -> None:
    """12.11: a copy of a refused one that comes late hears the same; as many as the limit says are known."""
    play = Between(limits=Limits(steps_never_taken=1))
    play.worker.write("presence", group="secret")
    for dispatch_id in ("d", "e"):
        assert bring(play, step_for(play, dispatch_id)).state == "refused"
    play.worker.write("presence", group="default")
    assert bring(play, step_for(play, "d")).state == "stored"
    assert bring(play, step_for(play, "e")).state == "refused" and len(play.dispatches()) == 1
    assert sorted(row.dispatch_id for row in play.cluster["b"].disk.hosted.values()) == ["d", "e"]


def test_what_was_over_before_it_came_is_known_for_some_time() -> None:
    """12.11: of as many as the limit says a copy that comes late is not handed over; an older one is judged anew."""
    play = Between(limits=Limits(steps_never_taken=1))
    for dispatch_id in ("d", "e"):
        letter = OverLetter(dispatch_id, "cancelled")
        play.cluster.post(play.cluster.nodes["a"], Post(1, IDS["b"], OVER, dispatch_id, "over", encode(letter)))
        play.run()
    late = Post(1, IDS["b"], DISPATCH, "e", "late", encode(step_for(play, "e")))
    play.cluster.post(play.cluster.nodes["a"], late)
    play.run()
    assert play.posted(DISPATCHED) == 0 == len(play.dispatches()) and not play.cluster.nodes["b"].handed_out
    assert bring(play, step_for(play, "d")).state == "stored"
    [frame] = play.dispatches()
    assert frame["message"]["flowDispatch"]["dispatchId"] == "d"


def test_a_refusal_holds_also_for_the_next_process_and_who_asks_how_it_is_hears_it() -> None:
    """FE 2.6, 2.8; 12.11: the copy comes again after a crash, and by then the session would take it."""
    play = Between()
    play.worker.write("presence", group="secret")
    refused = bring(play, step_for(play))
    assert (refused.state, refused.reason) == ("refused", "its session is not in group default")
    play.cluster.crash("b")
    play.worker = play.back(play.worker)
    play.run(MINUTE_MS)
    letter = step_for(play)
    assert bring(play, letter) == refused and play.dispatches() == []
    assert bring(play, InquireLetter("d")) == refused
    play.run(2 * LIMITS.bodies_kept_ms)
    assert play.cluster["b"].disk.hosted == {}


def test_a_refusal_that_could_not_be_recorded_is_said_by_nobody() -> None:
    """12.11: what is answered is recorded before; the letter comes again and is judged then."""
    play = Between()
    play.worker.write("presence", group="secret")
    world = play.cluster["b"]
    world.auto = False
    posted = play.posted(DISPATCHED)
    post = Post(1, IDS["b"], DISPATCH, "d", "first", encode(step_for(play)))
    play.cluster.post(play.cluster.nodes["a"], post)
    play.run()
    world.fail_commit()
    world.auto = True
    play.run()
    assert play.posted(DISPATCHED) == posted
    play.worker.write("presence", group="default")
    assert bring(play, step_for(play)).state == "stored" and len(play.dispatches()) == 1


def test_a_broker_that_records_nothing_says_so() -> None:
    """Design 5, fail closed: what it is asked it cannot say, and what it is told is told again to the next one."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    play.cluster["b"].auto = False
    play.worker.write("presence", status="busy")
    play.run(LIMITS.presence_stored_ms)
    play.cluster["b"].fail_commit(final=True)
    play.cluster["b"].auto = True
    assert bring(play, InquireLetter("unheard-of")).state == "unreachable"
    assert bring(play, step_for(play, "e")).state == "unreachable"
    assert play.report(dispatch_id)["code"] == "store_unusable"
    play.control("cancel", reason="enough")
    play.crash("b")
    play.run(MINUTE_MS)
    assert play.report(dispatch_id)["code"] == "dispatch_closed"


def test_a_message_that_was_purged_is_lost() -> None:
    """12.4 across machines: given up before it was confirmed, so ambiguous."""
    play = Between()
    play.begin("one")
    person = operator(play.cluster["b"])
    assert play.ask(person, "purge", of={"sessionId": play.worker.id})["mail"] == 1
    assert play.states() == ("active", ["ambiguous"])
    assert "its message was given up" in play.flow()["dispatch"]["reason"]


def test_a_session_that_ends_while_its_report_waits_is_decided_about_by_the_flow() -> None:
    """12.5.1: the gate of its to-do item is over in its own time."""
    play = Between(features=TODO_WORKER)
    play.begin(gated(requireCompleted=True))
    play.report(play.take())
    play.worker.write("unregister")
    play.run(LIMITS.flow_todo_gate_ms - PASS)
    assert play.states() == ("active", ["awaiting_result"])


@pytest.mark.parametrize("lost", ["session", "mail"])
def test_what_a_damaged_store_does_not_hold_any_more_makes_it_ambiguous(lost: str) -> None:
    """12.11.7: after a start it is said how it is."""
    play = Between()
    play.worker.leave()
    play.cluster.nodes["b"].is_cut = True
    play.begin("one")
    play.cluster.nodes["b"].is_cut = False
    play.run()
    disk = play.cluster["b"].disk
    if lost == "session":
        disk.known_sessions.clear()
    else:
        disk.mail.clear()
    play.cluster.crash("b")
    play.run(PASS)
    assert play.states() == ("active", ["ambiguous"])


def test_other_mail_is_left_alone_by_a_start() -> None:
    """9.5: it waits as ever, beside the step, and so does a step of the broker's own flow."""
    play = Between()
    near, own = enter(play.cluster["b"], "near"), play.coordinator("b", "own")
    second = play.work_as("b", "second")
    play.begin("one", target="second", flow_id="g", by=own)
    play.begin("one")
    play.take()
    play.worker.leave()
    near.queue("worker", "m1")
    play.run(0)
    play.cluster.crash("b")
    play.worker = play.back(play.worker)
    play.run(MINUTE_MS)
    came = [*play.kept[play.worker.world, play.worker.conn], *play.worker.got()]
    assert [frame["message"]["id"] for frame in came if frame["type"] == "message"] == ["m1"]
    assert len(play.dispatches(play.back(second))) == 1
    assert play.states() == ("active", ["awaiting_result"])


def test_a_receipt_that_was_recorded_in_part_is_a_receipt() -> None:
    """12.4: the worker confirmed it, the broker ended before the mail was: it is not handed out once more."""
    play = Between()
    play.begin("one")
    (frame,) = play.dispatches()
    b = play.cluster["b"]
    b.auto = False
    play.worker.write("received", messageId=frame["message"]["id"])
    b.commit(1)
    b.auto = True
    play.crash("b")
    play.run(MINUTE_MS)
    assert play.dispatches() == [] and play.states() == ("active", ["awaiting_result"])


def test_the_address_of_a_worker_is_needed_while_its_step_is() -> None:
    """9.3: an address is not forgotten under which something is to be reported."""
    play = Between(address={"name": "worker", "hold": "take"})
    play.begin("one")
    play.take()
    [record] = play.cluster["b"].disk.hosted.values()
    assert play.cluster["b"].broker._flows.addresses() == {record.address}


def test_what_nobody_ever_ended_is_forgotten_in_the_end() -> None:
    """Design 5, bounds: the broker of the flow never came back, and the session is gone."""
    play = Between()
    play.begin("one")
    play.take()
    play.cluster.cut("a")
    play.worker.write("unregister")
    play.run(LIMITS.mail_ttl_ms + 2 * LIMITS.tidy_ms)
    assert play.cluster["b"].disk.hosted == {}


def test_a_change_that_cannot_be_recorded_is_taken_back() -> None:
    """Design 3.6: what was over is not, and is told again; what was forgotten is known."""
    play = Between()
    play.begin("one")
    dispatch_id = play.take()
    b = play.cluster["b"]
    b.auto = False
    play.control("cancel", reason="enough")
    b.fail_commit()
    b.auto = True
    b.settle()
    play.cluster.crash("a")
    play.run(MINUTE_MS)
    assert play.report(dispatch_id)["code"] == "dispatch_closed"
    b.auto = False
    b.pass_time(LIMITS.bodies_kept_ms + LIMITS.tidy_ms)
    while b.appends:
        b.fail_commit()
    b.auto = True
    b.settle()
    assert play.report(dispatch_id)["code"] == "dispatch_closed"


def test_a_step_that_cannot_be_recorded_takes_no_other_of_its_session_with_it() -> None:
    """Design 3.6: the one before it is known as it was, and this one is handed over once it is there."""
    play = Between()
    play.begin("one")
    earlier = play.take()
    play.report(earlier)
    b = play.cluster["b"]
    b.auto = False
    letter = step_for(play)
    play.cluster.post(play.cluster.nodes["a"], Post(1, IDS["b"], DISPATCH, "d", "brought", encode(letter)))
    play.run()
    b.fail_commit()
    b.auto = True
    b.settle()
    assert play.dispatches() == []
    assert play.report(earlier)["stepState"] == "completed"
    assert bring(play, letter).state == "stored"
    [frame] = play.dispatches()
    assert frame["message"]["flowDispatch"]["dispatchId"] == "d"


def test_what_an_attempt_has_come_to_is_said_though_what_followed_could_not_be_recorded() -> None:
    """12.11.4, design 3.6: nobody else would ask again before it sees this broker anew."""
    play = Between()
    play.begin("one")
    [_] = play.dispatches()
    b = play.cluster["b"]
    b.auto = False
    play.worker.write("unregister")
    assert len(b.appends) > 1, "that it is gone, and then what becomes of its message"
    b.commit(1)
    b.fail_commit()
    b.auto = True
    b.settle()
    play.run(LIMITS.receipt_wait_ms)
    assert play.states()[1] == ["ambiguous"]


@pytest.mark.parametrize("final", [False, True])
def test_that_a_session_is_free_is_said_though_something_could_not_be_recorded(final: bool) -> None:
    """12.11.3, design 3.6: who is in line is told once more, unless nothing can be recorded any more."""
    play = Between("abc")
    play.begin("one")
    dispatch_id = play.take()
    other = play.coordinator("c", "other boss")
    play.run(LIMITS.announce_ms)
    play.begin("one", flow_id="g", by=other)
    b = play.cluster["b"]
    b.auto = False
    play.write(play.worker, "flow_report", dispatchId=dispatch_id, outcome="completed", summary="done")
    b.fail_commit(final=final)
    play.cluster.run()
    states = [decode(post.body)["state"] for post in play.cluster.posts if post.kind == DISPATCHED]
    assert states.count("free") == (0 if final else 1)
    if not final:
        b.auto = True
        b.settle()
        assert play.report(dispatch_id)["stepState"] == "completed"
        play.run(MINUTE_MS)
        assert play.report(play.take())["stepState"] == "completed"
        assert play.states("g", other) == ("completed", ["completed"])


def test_how_an_attempt_is_that_could_not_be_stored_is_said_by_nobody() -> None:
    """12.11.1, design 3.6: its letter comes again, and is judged then."""
    play = Between()
    b = play.cluster["b"]
    b.auto = False
    play.cluster.post(play.cluster.nodes["a"], Post(1, IDS["b"], DISPATCH, "d", "brought", encode(step_for(play))))
    play.run()
    play.worker.write("unregister")
    b.fail_commit()
    play.cluster.run()
    assert play.posted(DISPATCHED) == 0


def test_who_follows_a_worker_is_told_of_a_step_of_a_flow_elsewhere() -> None:
    """12.9: here it concerns its worker, live and out of the journal, with the broker of its flow."""
    play = Between("abc")
    world = play.cluster["b"]
    watcher = enter(world, "watcher", features=(*AGENT, "watch"))
    begun = watcher.write("watch", requestId="w", of=[{"sessionId": play.worker.id}])
    journal_id = next(frame["journalId"] for frame in [*begun, *watcher.got()] if "journalId" in frame)
    assert bring(play, step_for(play)).state == "stored"
    play.worker.leave()
    play.run(LIMITS.mail_ttl_ms)

    def told(session: Any, *before: Any) -> list[dict[str, Any]]:
        frames = [frame for frame in [*before, *session.got()] if frame["type"] == "watch_event"]
        return [frame["event"] for frame in frames if frame["event"].get("about", {}).get("dispatchId") == "d"]

    live = told(watcher)
    assert live[0]["about"]["sessionId"] == play.worker.id and live[0]["detail"]["brokerId"] == IDS["a"]
    assert live[-1]["detail"].get("reason"), "why it ended"
    later = enter(world, "later", features=(*AGENT, "watch"))
    begun = later.write("watch", requestId="w", of=[{"sessionId": play.worker.id}], afterSeq=0, journalId=journal_id)
    play.run()
    assert [event["kind"] for event in told(later, *begun)] == [event["kind"] for event in live]
