"""Test the entrance: which frames may come when, what is answered to whom, and how sessions depart."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.connections import PeerCredentials
from intercom.core.effects import Destroy, Finish, Stop
from tests.core.harness import INFO, Client, World, is_delivered, only, reason, types, without_announcements

MESSAGE = {"id": "m1", "timestamp": 5, "content": {"text": "x"}}

AFTER_REGISTRATION: list[dict[str, Any]] = [
    {"type": "unregister"},
    {"type": "list", "requestId": "q"},
    {"type": "list_groups", "requestId": "q"},
    {"type": "presence", "requestId": "q"},
    {"type": "presence", "requestId": "q", "name": 1},
    {"type": "join_group", "requestId": "q", "group": "g"},
    {"type": "leave_group", "requestId": "q"},
    {"type": "send", "to": "x", "message": MESSAGE},
    {"type": "send"},
    {"type": "supervisor_send", "to": "x", "message": MESSAGE},
    {"type": "received", "messageId": "m"},
    {"type": "authorize_supervisor", "requestId": "q", "childName": "c"},
    {"type": "cancel_ask", "messageId": "m"},
]
CONTROL: list[dict[str, Any]] = [
    {"type": "health", "requestId": "q"},
    {"type": "broker_status", "requestId": "q"},
    {"type": "shutdown", "requestId": "q"},
]


# --- what may come when ---------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", AFTER_REGISTRATION, ids=lambda frame: f"{frame['type']}-{len(frame)}")
def test_before_registration_most_frames_are_protocol_errors(frame: dict[str, Any]) -> None:
    """protocol 4"""
    world = World()
    conn = world.connect()
    assert world.send(conn, **frame) == []
    assert conn in world.destroyed


@pytest.mark.parametrize("frame", AFTER_REGISTRATION, ids=lambda frame: f"{frame['type']}-{len(frame)}")
def test_after_unregister_they_are_protocol_errors_again(frame: dict[str, Any]) -> None:
    """protocol 1.6, 4: the connection is open and unregistered"""
    world = World()
    client = world.register("a")
    assert client.write("unregister") == [] and client.conn in world.open
    assert world.send(client.conn, **frame) == []
    assert client.conn in world.destroyed


@pytest.mark.parametrize("frame", CONTROL, ids=lambda frame: frame["type"])
def test_the_control_frames_work_before_and_after_registration(frame: dict[str, Any]) -> None:
    """protocol 4, 4.19 to 4.21"""
    world = World()
    conn = world.connect()
    answer = only(world.send(conn, **frame))
    assert answer["requestId"] == "q"
    assert only(world.register("a").write(**frame))["type"] == answer["type"]


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "list"},
        {"type": "list", "requestId": 1},
        {"type": "list", "requestId": "q", "group": None},
        {"type": "list_groups"},
        {"type": "list_groups", "requestId": None},
        {"type": "received"},
        {"type": "received", "messageId": 1},
        {"type": "cancel_ask"},
        {"type": "health"},
        {"type": "health", "requestId": "x" * 129},
        {"type": "broker_status"},
        {"type": "shutdown", "requestId": 5},
        {"type": "authorize_supervisor", "requestId": "q"},
        {"type": "authorize_supervisor", "requestId": "q", "childName": " "},
        {"type": "authorize_supervisor", "childName": "c"},
        {"type": "authorize_supervisor", "requestId": "q", "childName": "c", "capability": None},
        {"type": "error", "error": "x"},
        {"type": "sessions"},
        {"type": "ask"},
        {},
    ],
    ids=str,
)
def test_malformed_requests_are_protocol_errors(frame: dict[str, Any]) -> None:
    """protocol 1.3.5, 1.3.6, 4.3, 4.4, 4.10, 4.11, 4.19 to 4.21, OP-6: every other unknown type; F44"""
    world = World()
    client, peer = world.register("a", supervisorOwnerToken="t"), world.register("b")
    assert without_announcements(world.send(client.conn, **frame)) == []
    assert client.conn in world.destroyed and world.broker.session_count == 1
    assert only(peer.got(), "session_left")["sessionId"] == client.id


@pytest.mark.parametrize(
    "change",
    [
        {"session": None},
        {"session": {**INFO, "pid": "1"}},
        {"session": {**INFO, "pid": True}},
        {"session": {key: INFO[key] for key in INFO if key != "cwd"}},
        {"session": {**INFO, "name": None}},
        {"session": {**INFO, "groups": "g"}},
        {"session": {**INFO, "recipientPurpose": "human"}},
        {"session": {**INFO, "replyCapability": "x"}},
        {"registrationGroup": "  "},
        {"registrationGroup": None},
        {"returnAddress": ""},
        {"returnAddress": 1},
        {"supervisorOwnerToken": ""},
        {"supervisorOwnerToken": None},
        {"preferredSessionId": 1},
        {"acknowledgesReceipt": False},
        {"acknowledgesReceipt": 1},
        {"acknowledgesReceipt": None},
    ],
    ids=str,
)
def test_a_malformed_registration_is_a_protocol_error(change: dict[str, Any]) -> None:
    """protocol 4.1: each failure is a protocol error"""
    world = World()
    conn = world.connect()
    assert world.send(conn, **{"type": "register", "session": INFO, **change}) == []
    assert conn in world.destroyed and world.broker.session_count == 0


def test_registering_twice_is_a_protocol_error_and_the_session_departs() -> None:
    """protocol 4.1: already registered on this connection"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    client.got()
    assert client.write("register", session=INFO) == []
    assert client.conn in world.destroyed and world.broker.session_count == 1
    assert only(peer.got(), "session_left")


def test_a_new_registration_may_follow_unregister_on_the_same_connection() -> None:
    """protocol 1.6"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    client.got()
    client.write("unregister")
    assert not world.broker.is_registered(client.conn)
    answer = only(client.write("register", session={**INFO, "name": "a2"}), "registered")
    assert answer["sessionId"] != client.id and world.broker.is_registered(client.conn)
    assert types(peer.got()) == ["session_left", "session_joined"]


def test_legacy_members_and_unknown_members_are_ignored() -> None:
    """protocol 4.1 legacy pi client, OP-6: register.sessionId; 1.3"""
    world = World()
    client = world.register("a", sessionId="wish", colour="red")
    assert client.id != "wish"
    assert only(client.write("list", requestId="q", extra=1), "sessions")


def test_a_legacy_client_may_cancel_an_ask() -> None:
    """protocol 4.24, OP-6: accepted and never answered"""
    world = World()
    client = world.register("a")
    assert client.write("cancel_ask", messageId="none") == []
    assert only(client.write("list", requestId="q"), "sessions")


# --- ends -----------------------------------------------------------------------------------------------


def test_the_first_end_counts_and_the_others_do_nothing() -> None:
    """protocol 1.6: retirement is idempotent, its broadcasts are sent once"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    effects = world.broker.connection_ended(client.conn, world.now)
    assert isinstance(effects[-1], Finish) and effects[-1].to == client.conn
    world.perform(effects)
    assert world.broker.connection_ended(client.conn, world.now) == []
    assert world.broker.protocol_error(client.conn, "x", world.now) == []
    assert types(peer.got()) == ["session_left"]


def test_frames_behind_an_end_are_ignored() -> None:
    """protocol 0 "refuse and end", 1.3.2"""
    world = World()
    client = world.register("a")
    client.leave()
    assert client.write("list", requestId="q") == [] and client.write("register", session=INFO) == []
    assert world.broker.session_count == 0


def test_a_protocol_error_destroys_at_once_and_retires_the_session() -> None:
    """protocol 0 "protocol error": nothing is written"""
    world = World()
    client, peer = world.register("a"), world.register("b")
    effects = world.broker.protocol_error(client.conn, "bad bytes", world.now)
    assert effects[0] == Destroy(client.conn, "bad bytes")
    world.perform(effects)
    assert only(peer.got(), "session_left") == {"type": "session_left", "sessionId": client.id}
    assert world.broker.session_count == 1


def test_frames_behind_a_protocol_error_are_ignored() -> None:
    """protocol 1.3.2, 1.3.3"""
    world = World()
    client = world.register("a")
    client.write("nonsense")
    assert client.conn in world.destroyed
    assert client.write("register", session=INFO) == [] and client.write("health", requestId="q") == []
    assert world.broker.session_count == 0
    assert world.broker.connection_ended(client.conn, world.now) == []


def test_a_destroyed_sender_gets_no_answer_any_more() -> None:
    """protocol 0 "protocol error": nothing is written"""
    world = World()
    a, t = world.register("a"), world.register("t", acknowledgesReceipt=True)
    a.message("t", "m1")
    a.got()
    a.write("nonsense")
    t.write("received", messageId="m1")
    assert a.got() == []


def test_an_unregistered_connection_ends_silently() -> None:
    """protocol 1.6"""
    world = World()
    peer = world.register("b")
    conn = world.connect()
    world.end(conn)
    assert conn in world.finished and peer.got() == []


def test_a_departing_target_is_reported_to_its_askers_before_it_leaves_the_lists() -> None:
    """protocol 6.15: order 2, 3, 8, 9"""
    world = World()
    asker, target = world.register("asker", returnAddress="r"), world.register("target")
    third = world.register("third", returnAddress="r3")
    assert is_delivered(asker.ask("target", "q1"))
    assert is_delivered(target.ask("third", "q2"))
    for client in (asker, target, third):
        client.got()
    target.leave()
    told = asker.got()
    assert types(told) == ["peer_disconnected", "session_left"]
    assert told[0] == {
        "type": "peer_disconnected",
        "replyTo": "q1",
        "peerSessionId": target.id,
        "peerName": "target",
    }
    assert types(third.got()) == ["session_left"]
    assert reason(third.reply(target.id, "r2", "q2")) == "Session not found"


def test_what_the_broker_counts_as_sessions() -> None:
    """protocol 6.14: control ones included"""
    world = World()
    assert world.broker.session_count == 0 and not world.broker.is_registered(1)
    client = world.register("a")
    world.register("c", info={"recipientPurpose": "control"})
    assert world.broker.session_count == 2 and world.broker.is_registered(client.conn)
    client.leave()
    assert world.broker.session_count == 1 and not world.broker.is_registered(client.conn)


# --- lists ----------------------------------------------------------------------------------------------


def names(frames: list[dict[str, Any]]) -> list[str]:
    return [session["name"] for session in only(frames, "sessions")["sessions"]]


def test_list_shows_the_agents_in_reach_in_registration_order() -> None:
    """protocol 4.3; F61: internal connections are hidden"""
    world = World()
    first = world.register("first", info={"group": "h"})
    asking = world.register("asking", info={"groups": ["g", "h"]})
    world.register("both", info={"groups": ["h", "g"]})
    world.register("elsewhere", info={"group": "x"})
    control = world.register("control", info={"recipientPurpose": "control", "groups": ["g", "h"]})
    world.register("last", info={"group": "g"})
    assert names(asking.write("list", requestId="q")) == ["first", "asking", "both", "last"]
    assert names(control.write("list", requestId="q")) == ["first", "asking", "both", "last"]
    assert names(first.write("list", requestId="q")) == ["first", "asking", "both"]


def test_list_of_a_group_is_open_to_everybody() -> None:
    """protocol 4.3, 6.12.8; F58: the protocol wins; the name is normalised"""
    world = World()
    outsider = world.register("outsider")
    world.register("a", info={"groups": ["g", "h"]})
    world.register("c", info={"recipientPurpose": "control", "group": "g"})
    assert names(outsider.write("list", requestId="q", group=" g ")) == ["a"]
    assert names(outsider.write("list", requestId="q", group="")) == ["outsider"]
    assert names(outsider.write("list", requestId="q", group="nobody")) == []


def test_list_tells_of_no_stages() -> None:
    """protocol 5.3"""
    answer = only(World().register("a").write("list", requestId="q"))
    assert answer["workflowStages"] == answer["workflowFutureStages"] == [] and answer["requestId"] == "q"


def test_list_groups_counts_agents_and_sorts_without_case() -> None:
    """protocol 4.4, OP-17"""
    world = World()
    asking = world.register("asking", info={"groups": ["b", "A"]})
    world.register("x", info={"groups": ["B", "a", "c"]})
    world.register("y", info={"groups": ["c"]})
    world.register("control", info={"recipientPurpose": "control", "groups": ["internal", "c"]})
    assert only(asking.write("list_groups", requestId="q"), "groups") == {
        "type": "groups",
        "requestId": "q",
        "groups": [
            {"group": "A", "sessionCount": 1, "member": True},
            {"group": "a", "sessionCount": 1, "member": False},
            {"group": "B", "sessionCount": 1, "member": False},
            {"group": "b", "sessionCount": 1, "member": True},
            {"group": "c", "sessionCount": 2, "member": False},
        ],
    }


def test_an_empty_group_disappears() -> None:
    """protocol 4.4: at least one agent"""
    world = World()
    asking, other = world.register("asking"), world.register("x", info={"group": "g"})
    other.leave()
    assert [entry["group"] for entry in only(asking.write("list_groups", requestId="q"))["groups"]] == ["default"]


# --- control --------------------------------------------------------------------------------------------


def test_health_tells_the_instance() -> None:
    """protocol 4.20, 5.26"""
    world = World()
    request_id = "x" * 128
    assert only(world.send(world.connect(), type="health", requestId=request_id)) == {
        "type": "health",
        "requestId": request_id,
        "instanceId": "11111111-1111-4111-8111-111111111111",
    }


def test_broker_status_reports_what_the_protocol_names_and_more_of_ours() -> None:
    """protocol 6.14"""
    world = World(facts={"version": "9"})
    asker, target = world.register("asker"), world.register("target", acknowledgesReceipt=True)
    asker.ask("target", "q1")
    target.write("received", messageId="q1")
    asker.message("target", "m1")
    report = only(world.send(world.connect(), type="broker_status", requestId="s"))["report"]
    assert report["pid"] == 77 and report["sessions"] == 2
    assert report["multiNode"]["status"] == "off" and isinstance(report["multiNode"]["reason"], str)
    assert "storage" not in report
    ours = report["broker"]
    assert ours["version"] == "9" and ours["instanceId"] == "11111111-1111-4111-8111-111111111111"
    assert (ours["openQuestions"], ours["unconfirmedFrames"]) == (1, 1)
    assert ours["store"] == {"usable": True, "operations": 2}


def test_broker_status_names_the_trouble_of_the_store() -> None:
    """design 5 "Fail closed": a clear reason"""
    world = World(store_trouble="the key is missing")
    store = only(world.send(world.connect(), type="broker_status", requestId="s"))["report"]["broker"]["store"]
    assert store == {"usable": False, "operations": 0, "trouble": "the key is missing"}


@pytest.mark.parametrize("is_taken", [True, False])
def test_shutdown_stops_once_its_answer_is_settled(is_taken: bool) -> None:
    """protocol 4.21: successfully or not"""
    world = World(auto=False)
    conn = world.connect(PeerCredentials(5, 1000, 1000))
    assert world.send(conn, type="shutdown", requestId="bye") == [] and world.stopped == []
    if is_taken:
        world.take()
        assert only(world.got(conn)) == {"type": "shutdown_ack", "requestId": "bye"}
    else:
        world.lose(conn)
    assert len(world.stopped) == 1
    assert [note.fields["byPid"] for note in world.notes if note.event == "shutdown_requested"] == [5]


def test_shutdown_of_an_unknown_peer_is_noted_too() -> None:
    """protocol 4.21: the broker logs"""
    world = World()
    world.send(world.connect(), type="shutdown", requestId="bye")
    assert [note.event for note in world.notes] == ["shutdown_requested"]


def test_a_lost_answer_that_nobody_waits_for_is_nothing() -> None:
    """effects: the core is told the fate of every frame with a token"""
    world = World()
    sender, _ = world.register("a"), world.register("b")
    world.deaf.add(sender.conn)
    sender.message("b", "m1")
    token = next(write.token for write in world.waiting if write.token is not None)
    assert world.broker.frame_lost(token, world.now) == []


# --- stopping -------------------------------------------------------------------------------------------


def test_a_stopping_broker_tells_nobody_anything() -> None:
    """protocol 3.8.1: no departure broadcast, no peer_disconnected, no delivery_failed"""
    world = World()
    asker, target = world.register("asker", returnAddress="r"), world.register("target")
    asker.ask("target", "q1")
    asker.got()
    assert world.broker.stop(world.now) == []
    target.leave()
    assert asker.got() == [] and not any(isinstance(write, Stop) for write in world.waiting)


def test_a_stopping_broker_forgets_what_did_not_leave() -> None:
    """design 5 "Stop": a restart without a crash costs nobody anything"""
    world = World()
    sender, target = world.register("a", returnAddress="r"), world.register("b", returnAddress="t")
    world.deaf.add(target.conn)
    sender.message("b", "m1")
    assert [record.message_id for record in world.disk.operations.values()] == ["m1"]
    world.stop()
    assert world.disk.operations == {} and without_announcements(sender.got()) == []
    world.auto = True
    world.crash()
    sender, target = world.register("a", returnAddress="r"), world.register("b", returnAddress="t")
    assert is_delivered(sender.message("b", "m1"))


def test_a_send_that_still_reaches_a_stopping_broker_leaves_no_reservation() -> None:
    """design 5 "Stop"; protocol 4.8 D17: not written, forget"""
    world = World()
    sender, target = world.register("a"), world.register("b")
    world.perform(world.broker.stop(world.now))
    assert without_announcements(sender.message("b", "m1")) == [] and target.got() == []
    assert world.disk.operations == {}


# --- who may be sent what (protocol 5.30) ---------------------------------------------------------------

OLDER_KNOWS = {
    *("registered", "registration_failed", "sessions", "message", "delivered", "delivery_failed", "presence_ack"),
    *("presence_failed", "supervisor_authorized", "session_joined", "session_left", "presence_update"),
}


def test_an_older_client_never_gets_a_frame_that_makes_it_drop_the_connection() -> None:
    """protocol 5.30, OP-5: every event an older client can be part of"""
    world = World()
    older = world.register("older", supervisorOwnerToken="t")
    seen = list(older.first)
    seen += older.write("authorize_supervisor", requestId="q", childName="child")
    child = world.register(
        "child",
        info={"group": "far"},
        returnAddress="c",
        acknowledgesReceipt=True,
        supervisor={"capability": seen[-1]["capability"], "supervisorSessionId": older.id},
    )
    newest = world.register("newest", info={"groups": ["default", "g"]}, returnAddress="n", acknowledgesReceipt=True)
    third = world.register("third", returnAddress="r3")
    seen += older.write("list", requestId="q")
    seen += older.write("presence", requestId="q", status="s")
    seen += older.write("presence", requestId="q", group="auto")
    seen += older.ask("newest", "q1")
    newest.write("received", messageId="q1")
    seen += older.ask("newest", "q1")
    seen += older.ask("newest", "q2")
    newest.write("received", messageId="q2")
    newest.reply(older.id, "r2", "q2")
    seen += older.message("nobody", "m1")
    seen += older.message("newest", "q1", "other")
    seen += older.message("newest", "m2")
    child.message(older.id, "k1", kind="supervisor_send")
    seen += older.message(child.id, "k2", replyTo="k1")
    newest.write("presence", replyCapability="terminal")
    newest.write("presence", group="g")
    newest.write("presence", group="default")
    seen += older.ask("third", "q3")
    third.leave()
    newest.leave()
    child.leave()
    world.pass_time(world.limits.receipt_wait_ms + world.limits.ask_ms)
    seen += older.got()
    assert {frame["type"] for frame in seen} == OLDER_KNOWS - {"registration_failed"}
    assert older.conn in world.open


def test_an_older_asker_is_not_told_that_its_peer_left() -> None:
    """protocol OP-5: without returnAddress peer_disconnected is suppressed"""
    world = World()
    older, newest = world.register("older"), world.register("newest", returnAddress="r")
    target = world.register("target")
    assert is_delivered(older.ask("target", "q1")) and is_delivered(newest.ask("target", "q2"))
    target.leave()
    told = types(older.got())
    assert told[-1] == "session_left" and "peer_disconnected" not in told
    assert "peer_disconnected" in types(newest.got())


def test_a_message_comes_as_the_bytes_that_were_sent_with_the_sender_as_it_is_now() -> None:
    """protocol 4, 5.10; design 3.1: unknown keys included"""
    world = World()
    sender, target = world.register("sender"), world.register("target")
    sender.write("presence", status="now")
    target.got()
    payload = (
        b'{"type":"send","to":"target","message":{"x":[1.0,{"y":null}],"id":"m1","timestamp":5,'
        b'"content":{"text":"\xc3\xa9","z":1e2},"expectsReply":false}}'
    )
    assert is_delivered(world.feed(sender.conn, payload))
    frame = only(target.got())
    assert frame["message"] == {
        "x": [1.0, {"y": None}],
        "id": "m1",
        "timestamp": 5,
        "content": {"text": "\u00e9", "z": 100.0},
        "expectsReply": False,
    }
    assert frame["from"]["id"] == sender.id and frame["from"]["status"] == "now" and "channel" not in frame


def test_half_an_emoji_does_no_harm() -> None:
    """F39: replaced once, at the codec; what goes on is always readable"""
    world = World()
    sender, target = world.register("sender"), world.register("target")
    world.feed(sender.conn, b'{"type":"presence","name":"\\udfff"}')
    payload = b'{"type":"send","to":"target","message":{"id":"m1","timestamp":5,"content":{"text":"\\ud83d"}}}'
    assert is_delivered(world.feed(sender.conn, payload))
    frame = without_announcements(target.got())[0]
    assert frame["message"]["content"]["text"] == "\ufffd" and frame["from"]["name"] == "\ufffd"
    assert sender.conn not in world.destroyed


def test_two_clients_can_share_a_name_but_never_an_id() -> None:
    """protocol 6.1; F45"""
    world = World()
    twins: list[Client] = [world.register("twin"), world.register("twin")]
    assert twins[0].id != twins[1].id
    assert names(twins[0].write("list", requestId="q")) == ["twin", "twin"]


def test_the_server_is_told_which_append_was_the_last() -> None:
    """Design section 5, Memory and disk: what is read reaches up to it."""
    world = World()
    before = world.broker.last_ticket
    a = world.register("a")
    world.register("b")
    a.message("b", "m1")
    assert world.broker.last_ticket == world.last_ticket > before
