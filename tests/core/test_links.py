"""Test links: claims, readiness, durable events, commands (FE 4; protocol 14)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from intercom.core.link import Stage
from intercom.core.links import Links
from intercom.limits import KIB, Limits
from intercom.wire.links import DurableEvent
from tests.core.harness import World, only, without_announcements
from tests.core.mail import Agent, enter, holder, operator, reattach
from tests.core.test_watches import person, watch
from tests.core.work import COORDINATOR, ask

WORKER = ("session.lifecycle", "push.receipts", "address", "queue", "link.durable")


class Worker:
    """Play a worker with a journal of its own."""

    def __init__(self, agent: Agent, token: str | None = None) -> None:
        self.agent = agent
        self.world = agent.world
        self.token = token or agent.registered.get("ownerToken")
        frames = [*agent.first, *agent.got()]
        self.bootstrap = next((frame for frame in frames if frame["type"] == "link_bootstrap"), {})

    @property
    def link(self) -> str:
        return str(self.bootstrap["linkId"])

    def ready(self, journal: str | None = "J1", last: int = 0, **more: Any) -> list[dict[str, Any]]:
        request = {
            "requestId": "r",
            "linkId": self.link,
            "generation": self.bootstrap["generation"],
            "lastReceivedCommandSeq": last,
            **({} if journal is None else {"journalId": journal}),
            **more,
        }
        return self.write("link_ready", **request)

    def write(self, kind: str, **members: Any) -> list[dict[str, Any]]:
        return without_announcements(self.agent.write(kind, **members))

    def event(self, seq: int, kind: str = "note", event_id: str | None = None, **body: Any) -> list[dict[str, Any]]:
        members = {"seq": seq, "eventId": event_id or f"e{seq}", "occurredAt": 5, "body": {"kind": kind, **body}}
        return self.write("durable_event", linkId=self.link, **members)

    def received(self, command_id: str, seq: int) -> list[dict[str, Any]]:
        return self.write("command_received", commandId=command_id, commandSeq=seq)

    def rejected(self, command_id: str, seq: int) -> list[dict[str, Any]]:
        return self.write("command_rejected", commandId=command_id, commandSeq=seq, errorCode="no", detail="not mine")

    def got(self) -> list[dict[str, Any]]:
        return without_announcements(self.agent.got())

    def await_bootstrap(self) -> None:
        """Take the next bootstrap out of what came."""
        self.bootstrap = next(frame for frame in self.got() if frame["type"] == "link_bootstrap")

    @property
    def is_connected(self) -> bool:
        return self.agent.conn in self.world.open


def worker(world: World, name: str = "w", token: str | None = None, **more: Any) -> Worker:
    """Register a worker under an address."""
    return Worker(holder(world, name, token, features=WORKER, **more))


def again(world: World, old: Worker) -> Worker:
    """Let a worker whose connection is gone come back."""
    agent = reattach(world, old.agent, ownerToken=old.token)
    return Worker(agent, old.token)


def ready(world: World, name: str = "w", journal: str = "J1") -> Worker:
    one = worker(world, name)
    assert only(one.ready(journal), "link_confirmed")["generation"] == one.bootstrap["generation"]
    return one


def send(boss: Agent, one: Worker, command_id: str, **body: Any) -> dict[str, Any]:
    answer = ask(boss, "command_send", commandId=command_id, linkId=one.link, body={"do": command_id, **body})
    assert answer["type"] == "command_stored", answer
    command: dict[str, Any] = answer["command"]
    return command


def commands(frames: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(frame["commandId"], frame["commandSeq"]) for frame in frames if frame["type"] == "command"]


def states(boss: Agent) -> dict[str, str]:
    return {each["commandId"]: each["state"] for each in ask(boss, "commands")["commands"]}


def link_of(boss: Agent, one: Worker) -> dict[str, Any]:
    found: dict[str, Any] = ask(boss, "links", linkId=one.link)["links"][0]
    return found


def stored(world: World) -> list[tuple[str, int, str]]:
    """Return journal, number and id of every durable event on disk."""
    return [(row.journal_id, row.seq, row.event_id) for row in world.disk.events.values()]


def kinds(world: World, one: Worker) -> list[str]:
    return [event.kind for event in world.disk.journal if event.stream == f"link:{one.link}"]


# --- claims and readiness -------------------------------------------------------------------------------


def test_a_worker_gets_its_link_and_is_confirmed() -> None:
    """FE 4.3, 4.10"""
    world = World()
    one = worker(world)
    assert one.bootstrap == {
        "type": "link_bootstrap",
        "linkId": one.link,
        "generation": 1,
        "connectionId": one.bootstrap["connectionId"],
        "commandMode": "individual",
        "brokerJournalId": one.agent.registered["journalId"],
        "eventFloor": 0,
        "body": {"sessionId": one.agent.id},
    }
    assert only(one.ready()) == {
        "type": "link_confirmed",
        "requestId": "r",
        "linkId": one.link,
        "generation": 1,
    }
    assert world.disk.links[one.link].journal_id == "J1"
    assert kinds(world, one) == ["link.dialing", "link.ready"]


def test_a_session_without_a_mailbox_has_no_link() -> None:
    """FE 4.2: a claim needs somebody who comes back."""
    world = World()
    token = worker(world, "w").agent.registered["addressToken"]
    guest = Worker(holder(world, "w", token, hold="none", features=("push.receipts", "address", "link.durable")))
    assert guest.agent.registered["features"] == ["address", "link.durable", "push.receipts"]
    assert guest.bootstrap == {}
    guest.bootstrap = {"linkId": "x", "generation": 1}
    refused = only(guest.ready(), "link_refused")
    assert (refused["code"], refused["requestId"]) == ("generation_stale", "r")


def test_without_the_feature() -> None:
    """FE 0.6: a request is refused in-band, any other frame of the feature is a protocol error."""
    world = World()
    plain = Worker(enter(world, "p"))
    plain.bootstrap = {"linkId": "x", "generation": 1}
    assert only(plain.ready(), "request_failed")["code"] == "feature_not_granted"
    plain.event(1)
    assert "link.durable" in world.destroyed[plain.agent.conn]


def test_the_bootstrap_waits_for_the_claim_to_be_on_disk() -> None:
    """FE 5.1; A4.7: nothing is sent to a connection that is gone meanwhile."""
    world = World()
    world.auto = False
    conn = world.connect()
    request = {"features": list(WORKER), "clientProtocolVersion": "1.0", "kind": "custom", "acknowledgesReceipt": True}
    info = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1}
    world.send(conn, type="register", session=info, returnAddress="r", **request)
    world.take()
    assert world.got(conn) == []
    world.lose(conn)
    world.end(conn)
    world.settle()
    assert [write for write in world.waiting if write.to == conn] == []
    assert world.got(conn) == []


def test_an_event_behind_a_readiness_that_is_not_recorded_is_not_stored() -> None:
    """A4.1"""
    world = World()
    one = worker(world)
    world.auto = False
    one.ready()
    one.event(1)
    world.fail_commit()
    world.settle()
    frames = one.got()
    assert [frame["type"] for frame in frames] == ["link_refused"]
    assert (frames[0]["code"], frames[0]["retryable"], one.is_connected) == ("not_recorded", True, False)
    assert stored(world) == []
    world.auto = True
    two = again(world, one)
    assert two.bootstrap["generation"] == 2
    two.ready()
    assert only(two.event(1)) == {"type": "event_ack", "linkId": one.link, "highWater": 1}
    assert stored(world) == [("J1", 1, "e1")]


def test_a_claim_that_is_not_recorded_is_made_again() -> None:
    """FE 4.3: retryable; the connection stays when only the claim could not be recorded."""
    world = World()
    one = ready(world)
    boss = operator(world)
    world.auto = False
    ask_repin(boss, one, "J2")
    world.commit(1)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert [frame["code"] for frame in one.got()] == ["authority_lost"]
    world.pass_time(1_000)
    one.await_bootstrap()
    assert (one.bootstrap["eventFloor"], one.is_connected) == (0, True)


def ask_repin(boss: Agent, one: Worker, journal: str) -> None:
    boss.write("link_repin", requestId="p", linkId=one.link, journalId=journal)


def test_a_second_readiness_ends_the_connection() -> None:
    """A4.12"""
    world = World()
    one = ready(world)
    refused = only(one.ready(), "link_refused")
    assert (refused["code"], one.is_connected) == ("protocol_error", False)


@pytest.mark.parametrize("change", [{"generation": 7}, {"linkId": "another"}])
def test_a_readiness_for_another_generation(change: dict[str, Any]) -> None:
    """FE 4.6: what belongs to another generation is refused."""
    world = World()
    one = worker(world)
    refused = only(one.ready(**change), "link_refused")
    assert (refused["code"], refused["retryable"], one.is_connected) == ("generation_stale", False, True)


@pytest.mark.parametrize("kind", ["link_ready", "link_rejected"])
@pytest.mark.parametrize("is_ready", [False, True])
def test_a_readiness_that_breaks_its_rules_ends_the_connection(kind: str, is_ready: bool) -> None:
    """FE 4.4, 4.10: bootstrap_invalid, with what is wrong; what was not acknowledged comes again."""
    world = World()
    one = ready(world) if is_ready else worker(world)
    refused = only(one.write(kind, requestId="r", linkId=one.link, generation="first"), "link_refused")
    assert (refused["code"], refused["retryable"], one.is_connected) == ("bootstrap_invalid", True, False)
    assert kind in refused["reason"] and "generation" in refused["reason"]
    two = again(world, one)
    assert only(two.ready(), "link_confirmed")["generation"] == two.bootstrap["generation"] == 2


def test_without_a_link_such_a_readiness_is_a_bad_request() -> None:
    world = World()
    plain = Worker(enter(world, "p"))
    assert only(plain.write("link_ready", requestId="r"), "request_failed")["code"] == "bad_request"
    assert plain.is_connected


def test_a_readiness_that_crossed_with_the_next_bootstrap_decides_nothing() -> None:
    """FE 4.6: frames of older generations are refused; the newer attempt goes on."""
    world = World()
    boss = operator(world)
    one = ready(world)
    one.agent.leave()
    two = again(world, one)
    ask_repin(boss, two, "J2")
    lost, bootstrap = two.got()
    assert (lost["type"], lost["code"]) == ("link_refused", "authority_lost")
    assert only(two.ready("J1"), "link_refused")["code"] == "generation_stale"
    two.bootstrap = bootstrap
    assert only(two.ready("J2"), "link_confirmed")["generation"] == two.bootstrap["generation"] == 3


def test_a_rejection_of_another_generation_decides_nothing() -> None:
    world = World()
    one = worker(world)
    members = {"requestId": "x", "linkId": one.link, "generation": 7, "errorCode": "busy"}
    assert only(one.write("link_rejected", **members), "link_refused")["code"] == "generation_stale"
    assert only(one.ready(), "link_confirmed")["generation"] == 1


def test_a_readiness_without_a_journal() -> None:
    """FE 4.3: journal_identity_missing is final."""
    world = World()
    one = worker(world)
    assert only(one.ready(None), "link_refused")["code"] == "journal_identity_missing"
    assert one.is_connected
    assert one.event(1) == []
    assert stored(world) == []


def test_a_worker_that_is_not_ready_in_time() -> None:
    """FE 4.5: the establishment deadline."""
    world = World()
    one = worker(world)
    world.pass_time(29_999)
    assert one.got() == []
    world.pass_time(1)
    assert [frame["code"] for frame in one.got()] == ["dial_timeout"]
    assert not one.is_connected


def test_a_link_that_fails_again_and_again_rests() -> None:
    """FE 4.5: 10 attempts in 10 minutes; recorded once for this generation."""
    world = World()
    one = worker(world)
    for _ in range(10):
        world.pass_time(30_000)
        assert [frame["code"] for frame in one.got()] == ["dial_timeout"]
        one = again(world, one)
    refused = [frame for frame in [*one.agent.first, *one.got()] if frame["type"] == "link_refused"]
    assert [frame["code"] for frame in refused] == ["exhausted"]
    assert one.is_connected
    assert [event.kind for event in world.disk.journal].count("link.exhausted") == 1
    one = again(world, one)
    assert (one.bootstrap, one.is_connected) == ({}, True)
    assert [event.kind for event in world.disk.journal].count("link.exhausted") == 1
    world.pass_time(600_000)
    assert "link_bootstrap" in [frame["type"] for frame in one.got()]


def test_a_worker_may_reject_its_link() -> None:
    """FE 4.3: the rejection is acknowledged, then the connection is closed."""
    world = World()
    one = worker(world)
    members = {"requestId": "r", "linkId": one.link, "generation": 1, "errorCode": "busy"}
    refused = only(one.write("link_rejected", **members), "link_refused")
    assert (refused["code"], refused["requestId"], one.is_connected) == ("bootstrap_rejected", "r", False)


def test_a_worker_that_rejects_its_link_again_and_again_keeps_its_connection() -> None:
    """FE 4.5: ten attempts; then the link rests, and the session goes on without it."""
    world = World()
    one = worker(world)
    for _ in range(10):
        generation = one.bootstrap["generation"]
        one.write("link_rejected", requestId="r", linkId=one.link, generation=generation, errorCode="busy")
        one = again(world, one)
    assert (one.bootstrap, one.is_connected) == ({}, True)


def test_a_rejection_after_readiness_breaks_the_protocol() -> None:
    """FE 4.3: any second outcome."""
    world = World()
    one = ready(world)
    members = {"requestId": "r", "linkId": one.link, "generation": 1, "errorCode": "busy"}
    assert only(one.write("link_rejected", **members), "link_refused")["code"] == "protocol_error"


def test_a_newer_generation_fences_the_older() -> None:
    """A4.14: writes of the older count no more, and the session is not marked failed."""
    world = World()
    one = ready(world)
    one.agent.write("durable_event", linkId=one.link, seq=1, eventId="e1", occurredAt=5, body={"kind": "note"})
    one.got()
    two = again(world, one)
    assert two.bootstrap["generation"] == 2
    assert [frame["type"] for frame in one.event(2)] == ["replaced"], "nothing but what came before"
    assert [seq for _, seq, _ in stored(world)] == [1]
    two.ready()
    assert only(two.event(2), "event_ack")["highWater"] == 2
    assert world.disk.links[one.link].refused is None
    assert world.disk.known_sessions[one.agent.id].state.value == "active"
    assert "link.authority_lost" in kinds(world, one)
    assert "link.ended" not in kinds(world, one)


# --- durable events -------------------------------------------------------------------------------------


def test_an_event_is_acknowledged_after_it_is_on_disk() -> None:
    """FE 4.1"""
    world = World()
    one = ready(world)
    world.auto = False
    one.event(1)
    world.take()
    assert one.got() == []
    world.commit()
    world.take()
    assert only(one.got()) == {"type": "event_ack", "linkId": one.link, "highWater": 1}


@pytest.mark.parametrize("is_told", [False, True])
def test_an_event_comes_again_after_the_broker_died(is_told: bool) -> None:
    """A4.2: stored, not acknowledged: acknowledged again, its effect exists once."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    world.auto = False
    one.event(1, "command_applied", commandId="c1")
    world.commit()
    if is_told:
        world.take()
    world.crash()
    world.auto = True
    two = Worker(holder(world, "w", one.agent.registered["addressToken"], features=WORKER))
    assert two.bootstrap["eventFloor"] == 1
    two.ready()
    assert only(two.event(1, "command_applied", commandId="c1"), "event_ack")["highWater"] == 1
    assert stored(world) == [("J1", 1, "e1")]
    assert [event.kind for event in world.disk.journal].count("command.applied") == 1


def test_too_much_at_once_ends_the_connection_and_everything_comes_again() -> None:
    """A4.3: one failure; none of the waiting is stored; after coming back all is stored once, in order."""
    world = World()
    one = ready(world)
    world.auto = False
    for seq in range(1, 130):
        one.event(seq)
    assert not one.is_connected
    world.settle()
    codes = [frame.get("code") for frame in one.got() if frame["type"] == "link_refused"]
    assert codes == ["inbox_overflow"]
    assert [seq for _, seq, _ in stored(world)] == [1]
    assert kinds(world, one).count("link.inbox_overflow") == 1
    world.auto = True
    two = again(world, one)
    two.ready()
    for seq in range(two.bootstrap["eventFloor"] + 1, 130):
        assert only(two.event(seq), "event_ack")["highWater"] == seq
    assert [seq for _, seq, _ in stored(world)] == list(range(1, 130))


@pytest.mark.parametrize("is_blocked", [True, False])
def test_every_kind_of_frame_counts_with_its_size(is_blocked: bool) -> None:
    """A4.4: 3 MiB and 2 MiB while an event is being stored are too much; one after the other they are not."""
    world = World()
    one = ready(world)
    world.auto = not is_blocked
    one.event(1)
    for size in (3, 2):
        one.write("ephemeral_event", occurredAt=5, body={"text": "x" * (size * 1024 * KIB)})
    world.auto = True
    world.settle()
    assert [frame["code"] for frame in one.got() if frame["type"] == "link_refused"] == ["inbox_overflow"] * is_blocked
    assert one.is_connected is not is_blocked


def test_events_that_wait_are_dealt_with_in_order() -> None:
    """FE 4.3: one frame at a time."""
    world = World()
    one = ready(world)
    world.auto = False
    for seq in (1, 2, 3):
        one.event(seq)
    assert len(world.appends) == 1
    world.settle()
    assert [frame["highWater"] for frame in one.got()] == [1, 2, 3]


def test_the_same_number_with_another_content() -> None:
    """FE 4.6: a protocol error."""
    world = World()
    one = ready(world)
    one.event(1, text="a")
    assert only(one.event(1, text="b"), "link_refused")["code"] == "event_conflict"
    assert (len(stored(world)), one.is_connected) == (1, False)


def test_a_gap_between_events() -> None:
    """FE 4.2: highWater speaks of all events up to it."""
    world = World()
    one = ready(world)
    assert only(one.event(2), "link_refused")["code"] == "event_rejected"
    assert stored(world) == []


@pytest.mark.parametrize("body", [[], "x", {}, {"kind": 5}, {"kind": ""}, {"kind": "k", "text": "x" * 256 * KIB}])
def test_a_body_that_is_none(body: Any) -> None:
    world = World()
    one = ready(world)
    members = {"seq": 1, "eventId": "e", "occurredAt": 1, "body": body}
    assert only(one.write("durable_event", linkId=one.link, **members), "link_refused")["code"] == "event_rejected"


def test_an_event_that_cannot_be_recorded_ends_the_connection() -> None:
    """FE 4.3: refused by the store; neither stored nor acknowledged, and it comes again."""
    world = World()
    one = ready(world)
    world.auto = False
    one.event(1)
    world.fail_commit()
    world.settle()
    assert [frame["code"] for frame in one.got()] == ["not_recorded"]
    world.auto = True
    two = again(world, one)
    assert two.bootstrap["eventFloor"] == 0
    two.ready()
    assert only(two.event(1), "event_ack")["highWater"] == 1


def test_the_oldest_events_are_forgotten() -> None:
    world = World(limits=Limits(link_events=2))
    one = ready(world)
    for seq in (1, 2, 3):
        one.event(seq)
    assert [seq for _, seq, _ in stored(world)] == [2, 3]
    assert only(one.event(1, text="who knows"), "event_ack")["highWater"] == 3


def test_events_are_shown_with_their_bodies() -> None:
    world = World()
    one = ready(world)
    for seq in (1, 2, 3):
        one.event(seq, text=f"t{seq}")
    boss = operator(world)
    answer = ask(boss, "link_events", linkId=one.link, after=1, limit=1)
    assert answer["events"] == [
        {
            "seq": 2,
            "eventId": "e2",
            "occurredAt": 5,
            "storedAt": world.wall,
            "kind": "note",
            "body": {"kind": "note", "text": "t2"},
        }
    ]
    world.pass_time(25 * 60 * 60_000)
    assert "body" not in ask(boss, "link_events", linkId=one.link)["events"][0]


def test_an_ephemeral_event_is_not_stored() -> None:
    """FE 4.2: a heartbeat only proves life."""
    world = World()
    one = ready(world)
    assert one.write("ephemeral_event", occurredAt=1, body={"kind": "heartbeat"}) == []
    assert stored(world) == []
    assert link_of(operator(world), one)["heartbeatAt"] == world.wall


# --- commands -------------------------------------------------------------------------------------------


def test_commands_are_offered_one_receipt_at_a_time() -> None:
    """A4.9: 3 is offered after 2's rejection is stored; 2 never again, also after a restart; the session stays."""
    world = World()
    one = ready(world)
    boss = operator(world)
    for name in ("c1", "c2", "c3"):
        send(boss, one, name)
    assert commands(one.got()) == [("c1", 1)]
    assert commands(one.received("c1", 1)) == [("c2", 2)]
    world.auto = False
    one.rejected("c2", 2)
    world.take()
    assert commands(one.got()) == [], "the rejection is not stored yet"
    world.auto = True
    world.settle()
    assert commands(one.got()) == [("c3", 3)]
    assert one.is_connected
    assert states(boss) == {"c1": "received", "c2": "rejected", "c3": "pending"}
    world.crash()
    two = Worker(holder(world, "w", one.agent.registered["addressToken"], features=WORKER))
    assert commands(two.ready(last=1)) == [("c3", 3)]
    assert commands(two.received("c3", 3)) == []


def test_a_received_command_is_not_applied_before_an_event_says_so() -> None:
    """A4.10: and applied once when the event comes twice."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    world.pass_time(3_600_000)
    assert states(boss) == {"c1": "received"}
    two = again(world, one)
    two.ready(last=1)
    assert states(boss) == {"c1": "received"}, "the end of a link settles nothing"
    for _ in range(2):
        two.event(1, "command_applied", commandId="c1", detail="done")
    shown = ask(boss, "commands", commandId="c1")["commands"][0]
    assert (shown["state"], shown["detail"], shown["body"]) == ("applied", "done", {"do": "c1"})
    assert [event.kind for event in world.disk.journal].count("command.applied") == 1
    two.event(2, "command_failed", commandId="c1", errorCode="late")
    assert states(boss) == {"c1": "applied"}, "the first outcome counts"


def test_a_missing_receipt_counts_whatever_the_worker_says() -> None:
    """A4.11: ready up to 41 while receipt 40 is missing: 40 is offered again."""
    world = World()
    one = ready(world)
    boss = operator(world)
    for name in ("c1", "c2"):
        send(boss, one, name)
    one.agent.leave()
    two = again(world, one)
    assert commands(two.ready(last=2)) == [("c1", 1)]
    assert commands(two.received("c1", 1)) == [("c2", 2)]


def test_a_command_without_a_receipt_ends_the_connection_and_comes_again() -> None:
    """FE 4.3, 4.5: command_ack_timeout; offered again under the same id and number."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    assert commands(one.got()) == [("c1", 1)]
    world.pass_time(10_000)
    assert [frame["code"] for frame in one.got()] == ["command_ack_timeout"]
    two = again(world, one)
    assert commands(two.ready()) == [("c1", 1)]


def test_a_receipt_that_is_not_stored_is_asked_for_again() -> None:
    """FE 4.6: receipt arrived, not stored."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    one.got()
    world.auto = False
    one.received("c1", 1)
    world.fail_commit()
    world.settle()
    world.auto = True
    two = again(world, one)
    assert commands(two.ready(last=1)) == [("c1", 1)]


def test_receipts_of_what_is_not_known_or_has_another_number() -> None:
    """FE 4.3: ignored with a warning; a protocol error."""
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    one.got()
    assert one.received("foreign", 1) == []
    assert [note.event for note in world.notes].count("unknown_command") == 1
    assert only(one.received("c1", 2), "link_refused")["code"] == "protocol_error"
    assert states(boss) == {"c1": "pending"}


def test_a_receipt_that_comes_again_changes_nothing() -> None:
    """FE 4.6: at least once, from both sides"""
    world = World()
    one, boss = ready(world), operator(world)
    send(boss, one, "c1")
    one.received("c1", 1)
    before = len(world.disk.journal)
    one.received("c1", 1)
    assert (states(boss), len(world.disk.journal), one.is_connected) == ({"c1": "received"}, before, True)


def test_a_command_is_stored_once() -> None:
    """FE 4.8: commands by commandId."""
    world = World()
    one = ready(world)
    boss = operator(world)
    first = send(boss, one, "c1")
    assert send(boss, one, "c1") == {**first, "state": "pending"}
    answer = ask(boss, "command_send", commandId="c1", linkId=one.link, body={"do": "another"})
    assert answer["code"] == "conflict"
    assert len(world.disk.commands) == 1


def test_a_command_waits_for_a_worker_that_is_away() -> None:
    world = World()
    one = ready(world)
    one.agent.leave()
    boss = operator(world)
    of = {"address": "w"}
    assert ask(boss, "command_send", commandId="c1", of=of, body={})["type"] == "command_stored"
    assert link_of(boss, one)["openCommands"] == 1
    two = again(world, one)
    assert commands(two.ready()) == [("c1", 1)]


def test_a_command_that_is_not_recorded_is_refused_and_not_offered() -> None:
    world = World()
    one = ready(world)
    boss = operator(world)
    world.auto = False
    boss.write("command_send", requestId="r", commandId="c1", linkId=one.link, body={})
    world.fail_commit()
    world.settle()
    [refused] = boss.got()
    assert (refused["code"], refused["retryable"]) == ("not_recorded", True)
    assert commands(one.got()) == []
    world.auto = True
    assert send(boss, one, "c1")["commandSeq"] == 1


def test_who_may_send_commands() -> None:
    """FE 0.5, design section 7"""
    world = World()
    one = ready(world)
    there = enter(world, "boss", features=COORDINATOR)
    elsewhere = enter(world, "other", features=COORDINATOR, info={"group": "far"})
    assert ask(there, "command_send", commandId="a", linkId=one.link, body={})["type"] == "command_stored"
    assert ask(elsewhere, "command_send", commandId="b", linkId=one.link, body={})["code"] == "unknown_link"
    assert ask(one.agent, "command_send", commandId="c", linkId=one.link, body={})["code"] == "feature_not_granted"
    assert ask(there, "link_repin", linkId=one.link, journalId="J2")["code"] == "feature_not_granted"
    assert ask(one.agent, "links")["links"][0]["linkId"] == one.link
    assert ask(elsewhere, "links")["links"] == []


def test_who_acts_for_a_worker_from_other_groups_sees_its_link_and_does_not_rule_it() -> None:
    """FE 0.5: a coordinator hands out work in the groups it is in"""
    world = World()
    one = ready(world)
    address = {"name": "w", "hold": "none", "token": one.agent.registered["addressToken"]}
    members = {"info": {"groups": ["far"]}, "registrationGroup": "default", "address": address}
    command = enter(world, "c", features=(*COORDINATOR, "address"), **members)
    assert [link["linkId"] for link in ask(command, "links")["links"]] == [one.link]
    assert ask(command, "command_send", commandId="a", linkId=one.link, body={})["code"] == "not_allowed"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({}, "bad_request"),
        ({"linkId": "L", "of": {"address": "w"}}, "bad_request"),
        ({"linkId": "L"}, "unknown_link"),
        ({"of": {}}, "bad_request"),
        ({"of": {"address": "nobody"}}, "unknown_link"),
        ({"of": {"sessionId": "nobody"}}, "unknown_link"),
        ({"of": {"address": "w"}, "body": []}, "bad_request"),
        ({"of": {"address": "w"}, "body": {"x": "y" * 256 * KIB}}, "too_large"),
    ],
)
def test_commands_that_are_refused(members: dict[str, Any], code: str) -> None:
    world = World()
    ready(world)
    answer = ask(operator(world), "command_send", **{"commandId": "c", "body": {}, **members})
    assert (answer["type"], answer["code"]) == ("request_failed", code)


def test_open_commands_are_bounded() -> None:
    world = World(limits=Limits(link_commands=2))
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    send(boss, one, "c2")
    answer = ask(boss, "command_send", commandId="c3", linkId=one.link, body={})
    assert (answer["code"], answer["retryable"]) == ("capacity", True)
    one.got()
    for seq, name in enumerate(("c1", "c2", "c3", "c4", "c5"), 1):
        send(boss, one, name)
        one.rejected(name, seq)
    assert states(boss) == {"c3": "rejected", "c4": "rejected", "c5": "rejected"}


def test_a_command_whose_body_is_lost() -> None:
    """Design section 5: rebuilding restores states, not bodies."""
    world = World()
    one = ready(world)
    one.agent.leave()
    boss = operator(world)
    send(boss, one, "c1")
    send(boss, one, "c2")
    world.disk.bodies.pop(world.broker._linking.links.commands.get("c1").record.number)  # type: ignore[union-attr]
    two = again(world, one)
    assert commands(two.ready()) == [("c2", 2)]
    assert ask(boss, "commands", commandId="c1")["commands"][0]["errorCode"] == "body_lost"


def test_bodies_that_cannot_be_read_now_are_read_later() -> None:
    world = World()
    one = ready(world)
    boss = operator(world)
    world.auto = False
    boss.write("command_send", requestId="r", commandId="c1", linkId=one.link, body={})
    world.commit()
    world.read(fails=True)
    world.auto = True
    world.settle()
    assert commands(one.got()) == []
    world.pass_time(1_000)
    assert commands(one.got()) == [("c1", 1)]


# --- the journal of the worker --------------------------------------------------------------------------


def test_another_journal_is_refused_until_the_operator_takes_it() -> None:
    """A4.8: no command is offered, no event stored; after that it works from floor zero, and what was received is
    ambiguous."""
    world = World()
    one = ready(world)
    boss = operator(world)
    one.event(1)
    send(boss, one, "c1")
    one.received("c1", 1)
    send(boss, one, "c2")
    one.agent.leave()
    two = again(world, one)
    two.ready("J2")
    refused = only(two.ready("J2"), "link_refused")
    assert refused["code"] == "generation_stale", "the first one was refused already"
    assert two.event(1) == []
    assert stored(world) == [("J1", 1, "e1")]
    shown = link_of(boss, one)
    assert (shown["state"], shown["refused"], shown["journalId"]) == ("refused", "journal_identity_changed", "J1")
    assert shown["otherJournalId"] == "J2"
    answer = ask(boss, "link_repin", linkId=one.link, journalId="J2")
    assert answer["ambiguous"] == ["c1"]
    assert states(boss) == {"c1": "ambiguous", "c2": "pending"}
    two.await_bootstrap()
    assert two.bootstrap["eventFloor"] == 0
    assert commands(two.ready("J2")) == [("c2", 2)]
    assert only(two.event(1), "event_ack")["highWater"] == 1
    assert stored(world) == [("J2", 1, "e1")]
    assert ask(boss, "link_repin", linkId=one.link, journalId="J2")["code"] == "already_pinned"
    assert "otherJournalId" not in link_of(boss, one)


def test_the_refusal_says_what_the_operator_can_do() -> None:
    world = World()
    one = ready(world)
    one.agent.leave()
    refused = only(again(world, one).ready("J2"), "link_refused")
    assert refused["code"] == "journal_identity_changed"
    assert f"intercom link repin {one.link} --journal J2 --yes" in refused["reason"]


def test_a_pinned_journal_stays_over_a_crash() -> None:
    """FE 4.6: readiness accepted, crash before the gate."""
    world = World()
    one = worker(world)
    world.auto = False
    one.ready()
    world.commit()
    world.crash()
    world.auto = True
    two = Worker(holder(world, "w", one.agent.registered["addressToken"], features=WORKER))
    assert (two.link, two.bootstrap["generation"]) == (one.link, 2)
    assert only(two.ready(), "link_confirmed")["generation"] == 2


# --- the rest -------------------------------------------------------------------------------------------


def test_a_worker_is_told_that_the_broker_stops() -> None:
    """FE 4.10, 5.5"""
    world = World()
    one = ready(world)
    world.perform(world.broker.draining(world.now))
    assert only(one.got()) == {"type": "link_drain", "deadlineMs": 5_000, "reason": "broker_shutdown"}
    boss = operator(world)
    send(boss, one, "c1")
    assert commands(one.got()) == [], "nothing is offered any more"


def test_an_unused_link_makes_room() -> None:
    world = World(limits=Limits(links=1))
    one = ready(world, "a")
    one.event(1)
    two = worker(world, "b")
    assert two.bootstrap == {}
    assert [frame["code"] for frame in two.agent.first if frame["type"] == "link_refused"] == ["capacity"]
    one.agent.write("unregister")
    three = worker(world, "c")
    assert three.bootstrap["generation"] == 1
    assert (list(world.disk.links), stored(world)) == ([three.link], [])


def test_links_can_be_followed() -> None:
    """FE 4.9"""
    world = World()
    one = ready(world)
    boss = person(world)
    watch(boss, of=[{"linkId": one.link}])
    send(boss, one, "c1")
    one.received("c1", 1)
    one.event(1, "command_applied", commandId="c1")
    told = [frame["event"] for frame in boss.got() if frame["type"] == "watch_event"]
    assert [event["kind"] for event in told] == [
        "command.pending",
        "command.offered",
        "command.received",
        "event.stored",
        "command.applied",
    ]
    assert all(event["about"]["linkId"] == one.link for event in told)


def test_the_status_counts_links() -> None:
    world = World()
    one = ready(world)
    boss = operator(world)
    send(boss, one, "c1")
    report = only(boss.write("broker_status", requestId="s"), "broker_status")["report"]
    assert report["broker"]["links"] == {"known": 1, "ready": 1, "openCommands": 1}


def test_a_closed_store_ends_links() -> None:
    world = World()
    one = ready(world)
    world.auto = False
    one.event(1)
    world.fail_commit(final=True)
    world.auto = True
    world.settle()
    assert [frame["code"] for frame in one.got()] == ["not_recorded"]
    assert ask(operator(world), "links")["code"] == "store_unusable"


def test_a_buffer_that_is_used_again() -> None:
    """A4.15: what waits for its turn keeps the bytes it came with."""
    world = World()
    one = ready(world)
    world.auto = False
    one.event(1)
    came = b'{"kind":"note","text":"first"}'
    buffer = bytearray(came)
    frame = DurableEvent(one.link, 2, "e2", 5, Raw(memoryview(buffer)))
    world.perform(world.broker.frame_received(one.agent.conn, frame, world.now))
    buffer[:] = b"x" * len(came)
    world.settle()
    [second] = [row for row in world.disk.events.values() if row.seq == 2]
    assert world.disk.bodies[second.number].message == came


# --- commits and ends that cross ------------------------------------------------------------------------


def test_a_claim_that_is_not_recorded_of_a_worker_that_has_left_is_not_made_again() -> None:
    """FE 4.3: nobody is there to have the link"""
    world = World()
    one = ready(world)
    one.agent.leave()
    world.auto = False
    two = reattach(world, one.agent)
    world.end(two.conn)
    world.fail_commit()
    world.auto = True
    world.settle()
    world.pass_time(world.limits.link_retry_ms)
    assert world.disk.links[one.link].generation == 1
    assert again(world, one).bootstrap["generation"] == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_that_left_is_not_told_what_became_of_its_readiness(fails: bool) -> None:
    """FE 4.6: what belongs to a claim ends with it"""
    world = World()
    one = worker(world)
    world.auto = False
    one.ready()
    one.agent.leave()
    if fails:
        world.fail_commit()
    world.auto = True
    world.settle()
    two = again(world, one)
    assert [frame["type"] for frame in two.ready()] == ["link_confirmed"]


def test_a_refusal_stands_though_it_could_not_be_recorded() -> None:
    """FE 4.4: a readiness without a journal is refused either way"""
    world = World()
    one = worker(world)
    world.auto = False
    one.ready(journal=None)
    world.fail_commit()
    world.auto = True
    world.settle()
    assert [frame["code"] for frame in one.got() if frame["type"] == "link_refused"] == ["journal_identity_missing"]


def test_events_are_there_again_when_another_journal_could_not_be_recorded() -> None:
    """A4.8, design 3.6"""
    world = World()
    one, boss = ready(world), operator(world)
    one.event(1)
    world.auto = False
    ask_repin(boss, one, "J2")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert stored(world) == [("J1", 1, "e1")]
    events = ask(boss, "link_events", linkId=one.link)["events"]
    assert [event["seq"] for event in events] == [1]


def test_events_of_another_journal_are_left_on_the_disk() -> None:
    """A4.8: a number counts in its journal only"""
    world = World()
    one = ready(world)
    one.event(1)
    [event] = world.disk.events.values()
    world.disk.events[event.number + 1] = replace(event, number=event.number + 1, journal_id="J0", seq=2)
    world.crash()
    boss = operator(world)
    assert [each["seq"] for each in ask(boss, "link_events", linkId=one.link)["events"]] == [1]


def test_a_broker_that_stops_after_it_drained_says_so_once() -> None:
    """Protocol 5.100: link_drain comes once"""
    world = World()
    one = ready(world)
    person = world.connect()
    world.send(person, type="broker_drain", requestId="d", timeoutMs=9_000)
    assert [frame["type"] for frame in one.got()] == ["link_drain"]
    world.perform(world.broker.draining(world.now))
    assert one.got() == []


def test_while_the_store_is_shut_every_frame_of_a_worker_ends_its_link() -> None:
    """design 5 "Fail closed": what is not recorded comes again"""
    world = World()
    one = ready(world)
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    refused = only([frame for frame in one.event(1) if frame["type"] == "link_refused"])
    assert (refused["code"], refused["retryable"]) == ("not_recorded", True)
    assert not one.is_connected


def test_a_fault_of_the_broker_is_no_fault_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """design 4: an exception is a bug; it is raised, and takes the link of that connection with it only"""
    world = World()
    one = ready(world)

    def broken(*_: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Links, "_event", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        one.event(1)
    monkeypatch.undo()
    two = again(world, one)
    assert [frame["type"] for frame in two.ready()] == ["link_confirmed"]


def test_a_claim_goes_only_where_its_table_says() -> None:
    """Rule 2 of the core: an illegal move raises and changes nothing"""
    world = World()
    one = worker(world)
    claim = world.broker._linking.links._claims[one.agent.conn]
    with pytest.raises(ValueError, match="does not go from"):
        claim.move(Stage.READY)
    assert claim.stage is Stage.AWAITING
