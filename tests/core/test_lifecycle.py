"""Test sessions that outlive their connection: reconnecting, reattach, closed (FE 1.3 with design section 7)."""

from __future__ import annotations

import gc

import pytest

from intercom.core.connections import PeerCredentials
from intercom.core.records import SessionState
from intercom.core.sessions import Session
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import INFO, Client, World, answers, only, reason, without_announcements
from tests.core.mail import AGENT, PEER, enter, operator, reattach


def state(world: World, session_id: str) -> SessionState:
    return world.disk.known_sessions[session_id].state


def test_a_registration_is_committed_before_it_is_told() -> None:
    world = World()
    session = enter(world, "a")
    registered = session.registered
    assert (registered["generation"], registered["epoch"]) == (1, 1)
    assert len(registered["incarnation"]) == 32 and len(registered["ownerToken"]) == 64
    assert {"brokerId", "journalId"} <= registered.keys()
    assert registered["ownerToken"] not in str(world.disk.known_sessions) + str(world.disk.journal)
    assert state(world, session.id) is SessionState.ACTIVE


def test_a_lost_connection_leaves_a_session_that_may_come_back() -> None:
    """FE 1.3: active, connection_lost, process alive."""
    world = World()
    peer, session = enter(world, "p"), enter(world, "a")
    peer.got()
    session.leave()
    assert [frame["type"] for frame in peer.got()] == ["session_left"]
    record = world.disk.known_sessions[session.id]
    assert (record.state, record.grace_deadline) == (SessionState.RECONNECTING, world.wall + 600_000)
    back = reattach(world, session)
    assert back.first[0] == {
        "type": "session_reattached",
        "requestId": "r",
        "sessionId": session.id,
        "incarnation": session.registered["incarnation"],
        "generation": 2,
        "features": ["address", "push.receipts", "queue", "session.lifecycle"],
        "mailboxCount": 0,
    }
    assert [frame["type"] for frame in peer.got()] == ["session_joined"]
    peer.message("a", "m1", "hello")
    assert back.mail()[0]["message"]["id"] == "m1"


def test_what_peers_see_is_kept() -> None:
    world = World()
    session = enter(world, "a", info={"groups": ["one"]})
    session.write("presence", requestId="p", name="b", status="busy", groups=["one", "two"])
    session.leave()
    world.crash()
    reattach(world, session)
    peer = enter(world, "p", info={"groups": ["two"]})
    shown = only(peer.write("list", requestId="l"), "sessions")["sessions"]
    found = next(entry for entry in shown if entry["id"] == session.id)
    assert (found["name"], found["status"], found["groups"]) == ("b", "busy", ["one", "two"])


def test_the_grace_ends() -> None:
    """A1.2."""
    world = World()
    session = enter(world, "a")
    session.leave()
    world.pass_time(599_999)
    assert state(world, session.id) is SessionState.RECONNECTING
    world.pass_time(1)
    assert state(world, session.id) is SessionState.CLOSED
    late = only(reattach(world, session).first)
    assert (late["type"], late["code"], late["retryable"]) == ("request_failed", "session_not_active", False)


def test_a_dead_process_does_not_come_back() -> None:
    """A1.4."""
    world = World()
    session = enter(world, "a")
    session.leave()
    watch = next(iter(world.watched.values()))
    assert (watch.pid, watch.started) == (PEER.pid, PEER.started)
    world.judge(session.id, is_alive=True)
    assert state(world, session.id) is SessionState.RECONNECTING
    world.judge(session.id, is_alive=False)
    assert world.disk.known_sessions[session.id].closed_reason == "process_exit"
    assert world.watched == {}
    assert world.broker.away_count == 0


def test_leaving_closes() -> None:
    world = World()
    session = enter(world, "a")
    session.write("unregister")
    assert world.disk.known_sessions[session.id].closed_reason == "unregister"
    assert world.broker.away_count == 0


def test_only_the_owner_comes_back() -> None:
    world = World()
    session = enter(world, "a")
    session.leave()
    assert only(reattach(world, session, ownerToken="0" * 64).first)["code"] == "not_owner"
    assert only(reattach(world, session, sessionId="x").first)["code"] == "unknown_session"
    stranger = PeerCredentials(pid=11, uid=1000, gid=1000)
    assert only(reattach(world, session, peer=stranger).first)["code"] == "reattach_pid_mismatch"
    assert reattach(world, session).first[0]["type"] == "session_reattached"


def test_a_refused_reattach_may_register() -> None:
    world = World()
    session = enter(world, "a")
    session.leave()
    refused = reattach(world, session, ownerToken="wrong")
    frames = refused.write("register", session=INFO, preferredSessionId=session.id, returnAddress="return-1")
    assert frames[0]["type"] == "registered"
    assert frames[0]["sessionId"] != session.id, "it belongs to the session that may come back"


def test_reattach_on_the_same_connection_changes_nothing() -> None:
    """FE 1.9: session_not_reconnecting."""
    world = World()
    session = enter(world, "a")
    answer = only(session.write("session_reattach", requestId="r", sessionId=session.id, ownerToken=session.token))
    assert answer["code"] == "session_not_reconnecting"
    assert world.disk.known_sessions[session.id].generation == 1


def test_a_second_connection_of_the_process_replaces_the_first() -> None:
    """A1.16."""
    world = World()
    session, sender = enter(world, "a"), enter(world, "s")
    again = reattach(world, session)
    assert again.first[0]["generation"] == 2
    told = [frame for frame in session.got() if frame["type"] == "replaced"]
    assert told == [{"type": "replaced", "by": "connection", "sessionId": session.id}]
    assert session.conn in world.finished
    assert world.broker.away_count == 0
    sender.queue("a", "m1")
    assert [frame["message"]["id"] for frame in again.mail()] == ["m1"]
    session.write("received", messageId="m1")
    assert answers(sender.got()) == []
    again.confirm("m1")
    assert only(answers(sender.got()))["type"] == "delivered"


def test_after_a_restart_everybody_may_come_back() -> None:
    """FE 1.7, sessions at restart."""
    world = World()
    active, lost = enter(world, "a"), enter(world, "b")
    lost.leave()
    world.pass_time(595_000)
    world.crash()
    assert world.broker.away_count == 2
    assert {watch.pid for watch in world.watched.values()} == {PEER.pid}
    world.pass_time(29_000)
    assert reattach(world, lost).first[0]["type"] == "session_reattached"
    world.pass_time(570_000)
    assert reattach(world, active).first[0]["type"] == "session_reattached"


def test_a_registration_with_the_owner_token_is_the_session_again() -> None:
    """The mailbox belongs to (session id, owner token)."""
    world = World()
    session, sender = enter(world, "a", supervisorOwnerToken="o"), enter(world, "s")
    session.leave()
    sender.queue("a", "m1")
    world.crash()
    assert only(reattach(world, session).first)["code"] == "register_again"
    again = enter(world, "a", preferredSessionId=session.id, ownerToken=session.token)
    assert again.id == session.id
    assert again.registered["mailboxCount"] == 1
    assert again.registered["incarnation"] == session.registered["incarnation"], "the same process, which was told to"
    assert again.registered["generation"] == session.registered["generation"] + 1
    assert [frame["message"]["id"] for frame in again.first if frame["type"] == "message"] == ["m1"]


def test_another_process_is_another_incarnation() -> None:
    """FE 0.4; protocol 9.2: also when the broker has forgotten what makes a session register again."""
    world = World()
    session = enter(world, "a", supervisorOwnerToken="o")
    world.crash()
    peer = PeerCredentials(pid=PEER.pid, uid=1000, gid=1000, started=8)
    again = enter(world, "a", peer=peer, preferredSessionId=session.id, ownerToken=session.token)
    assert again.id == session.id
    assert again.registered["incarnation"] != session.registered["incarnation"]


def test_a_supervisor_line_is_kept_while_the_broker_lives() -> None:
    world = World()
    boss = enter(world, "boss", supervisorOwnerToken="o")
    granted = only(boss.write("authorize_supervisor", requestId="r", childName="kid"))
    claim = {"capability": granted["capability"], "supervisorSessionId": boss.id}
    kid = enter(world, "kid", info={"groups": ["far"]}, supervisor=claim)
    kid.leave()
    back = reattach(world, kid)
    back.message(boss.id, "m1", "report", kind="supervisor_send")
    assert boss.mail()[0]["channel"] == "supervisor"


def test_questions_of_a_session_that_comes_back_stay_open() -> None:
    """Design section 5, Asks survive; a reply to somebody who is away is queued and counts as the answer."""
    world = World()
    asker, target = enter(world, "a"), enter(world, "b")
    asker.ask("b", "q1")
    target.confirm("q1")
    asker.leave()
    extra = {"queueIfAway": True, "requirePendingReply": True}
    assert reason(answers(target.message(asker.id, "r0", replyTo="q0", extra=extra))) == reasons.NO_OPEN_QUESTION
    assert only(answers(target.message(asker.id, "r1", replyTo="q1", extra=extra)))["type"] == "queued"
    assert reason(answers(target.message(asker.id, "r2", replyTo="q1", extra=extra))) == reasons.NO_OPEN_QUESTION
    back = reattach(world, asker)
    assert [frame["message"]["id"] for frame in back.first if frame["type"] == "message"] == ["r1"]


def test_a_live_reply_finds_the_question_of_a_session_that_came_back() -> None:
    world = World()
    asker, target = enter(world, "a"), enter(world, "b")
    asker.ask("b", "q1")
    target.confirm("q1")
    asker.leave()
    back = reattach(world, asker)
    target.reply(asker.id, "r1", "q1")
    back.confirm("r1")
    assert only(answers(target.got()))["type"] == "delivered"


def test_a_forced_close_ends_it_for_good() -> None:
    world = World()
    person, session = operator(world), enter(world, "a")
    answer = only(person.write("session_force_close", requestId="r", sessionId=session.id, reason="gone mad"))
    assert answer == {"type": "session_force_closed", "requestId": "r", "sessionId": session.id, "wasKnown": True}
    assert session.conn in world.finished
    assert world.disk.known_sessions[session.id].closed_reason == "force_close: gone mad"
    again = only(person.write("session_force_close", requestId="r", sessionId=session.id))
    assert again["wasKnown"] is False


@pytest.mark.parametrize("members", [{}, {"reason": "lost"}], ids=str)
def test_whom_the_operator_closed_is_told_not_to_come_back(members: dict[str, str]) -> None:
    """protocol 9.4.2"""
    world = World()
    agent = enter(world, "a")
    agent.leave()
    operator(world).write("session_force_close", requestId="f", sessionId=agent.id, **members)
    assert reattach(world, agent).first[0]["code"] == "force_closed"


def test_closed_sessions_are_remembered_for_a_while() -> None:
    """FE 1.2: closed is kept as a tombstone, retention 7 days."""
    world = World(limits=Limits(known_sessions=2))
    gone = [enter(world, f"s{number}") for number in range(3)]
    for session in gone:
        session.write("unregister")
    enter(world, "new")
    assert len(world.disk.known_sessions) == 2
    other = World()
    old = enter(other, "old")
    old.write("unregister")
    other.pass_time(7 * 24 * 3600 * 1000 + 1)
    enter(other, "new")
    assert old.id not in other.disk.known_sessions


def test_of_a_closed_session_only_its_row_is_kept() -> None:
    """F77: ten thousand closed ones are remembered."""
    world = World()
    for number in range(3):
        session = enter(world, f"a{number}")
        session.write("unregister")
        session.leave()
    assert len([record for record in world.disk.known_sessions.values() if record.state is SessionState.CLOSED]) == 3
    del session
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Session) and thing.name in ("a0", "a1", "a2")]


def test_a_commit_that_fails_at_the_registration_ends_it() -> None:
    world = World()
    world.auto = False
    conn = world.connect(PEER)
    request = {
        "session": {**INFO, "name": "a"},
        "acknowledgesReceipt": True,
        "features": ["session.lifecycle", "push.receipts"],
        "clientProtocolVersion": "1.0",
        "kind": "custom",
    }
    world.send(conn, type="register", **request)
    world.fail_commit()
    world.settle()
    refused = only(without_announcements(world.got(conn)))
    assert (refused["type"], refused["code"]) == ("registration_failed", "not_recorded")
    assert conn in world.finished
    assert world.broker.session_count == 0


@pytest.mark.parametrize("frame", [{"type": "list", "requestId": "l"}, {"type": "trace", "requestId": "t"}])
def test_nothing_but_a_reattach_comes_before_a_registration(frame: dict[str, str]) -> None:
    world = World()
    conn = world.connect()
    world.send(conn, **frame)
    assert conn in world.destroyed


def test_a_registration_that_was_never_told_leaves_nobody_behind() -> None:
    """A5.1: the client registers again; what an earlier broker began for it is closed."""
    world = World()
    ghost = enter(world, "a", returnAddress="same")
    world.crash()
    again = enter(world, "a", returnAddress="same")
    assert state(world, ghost.id) is SessionState.CLOSED
    assert world.broker.away_count == 0
    other = enter(world, "b", returnAddress="same", peer=PeerCredentials(pid=99, uid=1000, gid=1000))
    again.leave()
    assert state(world, again.id) is SessionState.RECONNECTING
    del other


def test_who_is_away_is_listed_for_those_who_know_what_that_is() -> None:
    """FE 0.6: `list` shows it, marked, only to requesters with `session.lifecycle`."""
    world = World()
    agent, older = enter(world, "p"), world.register("old", returnAddress="r")
    gone, far = enter(world, "a"), enter(world, "f", info={"groups": ["far"]})
    gone.leave(), far.leave()

    def listed(client: Client, **members: str) -> dict[str, dict[str, object]]:
        sessions = only(without_announcements(client.write("list", requestId="l", **members)), "sessions")["sessions"]
        return {entry["name"]: entry for entry in sessions}

    agent.got(), older.got()
    assert listed(older).keys() == {"p", "old"}
    shown = listed(agent)
    assert shown.keys() == {"p", "old", "a"}
    assert (shown["a"]["state"], shown["a"]["graceDeadline"]) == ("reconnecting", world.wall + 600_000)
    assert "state" not in shown["p"]
    assert listed(agent, group="far").keys() == {"f"}
    assert listed(operator(world)).keys() == {"p", "old", "a"}


def test_what_peers_see_is_not_stored_at_every_change() -> None:
    """Somebody who says what it does many times a second must not fill the disk."""
    world = World()
    session = enter(world, "a")
    before = len(world.disk.journal)
    for number in range(50):
        session.write("presence", requestId="p", status=f"step {number}")
    assert len(world.disk.journal) == before
    world.pass_time(10_000)
    assert [event.kind for event in world.disk.journal[before:]] == ["session.changed"]
    session.write("presence", requestId="p", status="last")
    session.leave()
    assert b'"last"' in world.disk.known_sessions[session.id].info


def test_the_owner_may_register_on_another_connection_at_any_time() -> None:
    """Its mailbox stays its own, and nobody who asked it hears that it left."""
    world = World()
    sender, session = enter(world, "s"), enter(world, "a")
    sender.ask("a", "q1")
    session.confirm("q1")
    sender.queue("a", "m1")
    session.got(), sender.got()
    again = enter(world, "a", preferredSessionId=session.id, ownerToken=session.token)
    assert again.id == session.id
    assert {"type": "replaced", "by": "connection", "sessionId": session.id} in session.got()
    assert [frame["message"]["id"] for frame in again.first if frame["type"] == "message"] == ["m1"]
    assert [frame["type"] for frame in sender.got() if frame["type"] in ("peer_disconnected", "message")] == []
    again.confirm("m1")
    again.reply(sender.id, "r1", "q1")
    assert sender.mail()[0]["message"]["id"] == "r1"


def test_a_session_whose_client_was_never_told_does_not_wait_for_it() -> None:
    """A client that gave up registers anew; what it never heard of must not catch its mail."""
    world = World()
    world.auto = False
    conn = world.connect(PEER)
    request = {
        "session": {**INFO, "name": "a"},
        "acknowledgesReceipt": True,
        "features": ["session.lifecycle", "push.receipts"],
        "clientProtocolVersion": "1.0",
        "kind": "custom",
    }
    world.send(conn, type="register", **request)
    world.break_off(conn)
    world.lose(conn)
    world.auto = True
    world.settle()
    assert world.broker.away_count == 0
    assert [record.closed_reason for record in world.disk.known_sessions.values()] == ["never_told"]


def test_a_session_the_operator_closed_does_not_come_back() -> None:
    world = World()
    person, session = operator(world), enter(world, "a")
    person.write("session_force_close", requestId="r", sessionId=session.id)
    assert only(reattach(world, session).first)["code"] == "force_closed"
    conn = world.connect(PEER)
    request = {
        "session": {**INFO, "name": "a"},
        "acknowledgesReceipt": True,
        "features": ["session.lifecycle", "push.receipts"],
        "clientProtocolVersion": "1.0",
        "kind": "custom",
        "preferredSessionId": session.id,
        "ownerToken": session.token,
    }
    refused = world.send(conn, type="register", **request)[0]
    assert (refused["type"], refused["code"]) == ("registration_failed", "force_closed")


# --- commits that fail, and reads that come too late ----------------------------------------------------


def register_later(world: World, name: str = "a", **members: object) -> int:
    """Register a session whose answer comes later; return its connection."""
    conn = world.connect(PEER)
    request = {
        "session": {**INFO, "name": name},
        "acknowledgesReceipt": True,
        "returnAddress": f"return-{conn}",
        "features": ["session.lifecycle", "push.receipts", "queue"],
        "clientProtocolVersion": "1.0",
        "kind": "custom",
        **members,
    }
    world.send(conn, type="register", **request)
    return conn


def test_what_a_session_said_of_itself_goes_with_its_registration() -> None:
    """design 3.6: a session that could not be recorded was never there, whatever it said behind its registration"""
    world = World()
    world.auto = False
    conn = register_later(world)
    world.send(conn, type="presence", requestId="p", status="busy")
    world.fail_commit()
    world.auto = True
    world.settle()
    world.pass_time(world.limits.presence_stored_ms)
    assert world.disk.known_sessions == {}


def test_a_registration_that_could_not_be_recorded_leaves_its_session_as_away_as_it_was() -> None:
    """FE 1.3: nobody was told of it, so the grace goes on"""
    world = World()
    session = enter(world, "a")
    session.leave()
    world.pass_time(60_000)
    world.auto = False
    conn = register_later(world, preferredSessionId=session.id, ownerToken=session.token)
    world.end(conn)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert state(world, session.id) is SessionState.RECONNECTING
    assert reattach(world, session).first[0]["type"] == "session_reattached"


def test_one_the_operator_closed_stays_closed_by_the_operator() -> None:
    """FE 1.3: closed is for good"""
    world = World()
    person = operator(world)
    world.auto = False
    conn = register_later(world)
    world.commit()
    [record] = world.disk.known_sessions.values()
    person.write("session_force_close", requestId="r", sessionId=record.session_id)
    world.break_off(conn)
    world.lose(conn)
    world.auto = True
    world.settle()
    [record] = world.disk.known_sessions.values()
    assert record.state is SessionState.CLOSED and record.closed_reason != "never_told"


def test_the_end_of_a_session_that_is_forgotten_meanwhile_is_not_recorded_again() -> None:
    """FE 1.3: a tombstone is kept as long as there is room"""
    world = World(limits=Limits(known_sessions=1))
    session = enter(world, "a")
    world.auto = False
    session.write("unregister")
    world.fail_commit()
    world.auto = True
    world.settle()
    enter(world, "b")
    enter(world, "c")
    world.pass_time(world.limits.mail_retry_ms)
    assert session.id not in world.disk.known_sessions
    kinds = [event.kind for event in world.disk.journal if event.stream == f"session:{session.id}"]
    assert "session.closed" not in kinds


def test_what_a_session_asked_for_before_it_left_for_good_and_was_not_recorded_changes_nothing() -> None:
    """design 3.6: of a closed session only its row is kept, and it stays closed"""
    world = World()
    session = enter(world, "a", features=(*AGENT, "policy"))
    world.auto = False
    session.write("policy_set", requestId="p", policy={"rules": [{"action": "quiet"}]})
    session.write("unregister")
    world.fail_commit()
    world.auto = True
    world.settle()
    world.pass_time(world.limits.mail_retry_ms)
    [record] = world.disk.known_sessions.values()
    assert record.state is SessionState.CLOSED and b"quiet" not in record.info


def test_what_has_not_changed_is_not_stored() -> None:
    """Somebody who says the same again must not fill the disk"""
    world = World()
    session = enter(world, "a", features=(*AGENT, "policy"))
    session.write("task_hint", requestId="t", taskHint="fix it")
    session.write("presence", requestId="p", status="busy")
    session.write("policy_set", requestId="p", policy={"rules": [{"action": "quiet"}]})
    before = len(world.disk.journal)
    session.write("task_hint", requestId="t", taskHint="fix it")
    session.write("presence", requestId="p", status="idle")
    session.write("presence", requestId="p", status="busy")
    again = session.write("policy_set", requestId="again", policy={"rules": [{"action": "quiet"}]})
    assert [frame["requestId"] for frame in again if frame["type"] == "policy_stored"] == ["again"]
    world.pass_time(world.limits.presence_stored_ms)
    assert len(world.disk.journal) == before


def test_a_process_without_a_number_is_not_watched() -> None:
    """FE 1.3: only the grace ends such a session"""
    world = World()
    session = enter(world, "a", peer=None, info={"pid": 0})
    session.leave()
    assert world.watched == {}
    assert reattach(world, session, peer=None).first[0]["type"] == "session_reattached"


def test_a_forgotten_session_whose_end_could_not_be_recorded_is_remembered() -> None:
    """design 3.6"""
    world = World(limits=Limits(known_sessions=1))
    session = enter(world, "a")
    session.write("unregister")
    world.auto = False
    conn = register_later(world, "b")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(reattach(world, session).first)["code"] == "session_not_active"
    assert conn in world.finished


@pytest.mark.parametrize("what", ["left", "registered", "closed"])
def test_mail_that_is_read_too_late_is_handed_to_nobody(what: str) -> None:
    """A1.3: meanwhile the connection ended, is somebody, or the session is closed"""
    world = World()
    sender, session, person = enter(world, "s"), enter(world, "a"), operator(world)
    session.leave()
    sender.queue("a", "m1")
    world.auto = False
    back = reattach(world, session)
    assert len(world.reads) == 1
    if what == "left":
        world.end(back.conn)
    elif what == "registered":
        world.send(back.conn, type="register", session={**INFO, "name": "x"})
    else:
        person.write("session_force_close", requestId="r", sessionId=session.id)
    world.auto = True
    world.settle()
    answers_ = [frame for frame in back.got() if frame["type"] == "request_failed"]
    codes = {"left": [], "registered": ["session_not_reconnecting"], "closed": ["force_closed"]}
    assert [frame["code"] for frame in answers_] == codes[what]
    assert state(world, session.id) is (SessionState.CLOSED if what == "closed" else SessionState.RECONNECTING)
