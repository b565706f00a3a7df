"""Play the field cases about coming back, mailboxes and the truth of states."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import notices, reasons
from tests.core.harness import World, answers, only, reason
from tests.core.mail import AGENT, Agent, enter, holder, operator, reattach

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def ids(frames: list[dict[str, object]]) -> list[str]:
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]  # type: ignore[index]


def told(session: Agent, **request: object) -> dict[str, object]:
    return only(session.write(requestId="q", **request))  # type: ignore[arg-type]


def away(world: World, *message_ids: str) -> tuple[Agent, Agent]:
    """Return a sender and a session that is away and for which these messages wait."""
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    for message_id in message_ids:
        sender.queue("b", message_id, message_id)
    return sender, target


@pytest.mark.parametrize("where", ["here", "away", "closed", "never"])
def test_f77_list_and_send_tell_the_same(where: str) -> None:
    """F77: one source of truth for presence; a connected target is never offline."""
    world = World()
    sender = enter(world, "a")
    target = None if where == "never" else enter(world, "b")
    if target is not None and where == "away":
        target.leave()
    if target is not None and where == "closed":
        target.write("unregister")
    sender.got()
    listed = only(sender.write("list", requestId="l"), "sessions")["sessions"]
    states = [session.get("state", "active") for session in listed if session.get("name") == "b"]
    sender.queue("b", "m1")
    if target is not None and where == "here":
        target.confirm("m1")
    answer = only(answers(sender.got() or sender.queue("b", "m1")))
    expected = {"here": ("active", "delivered"), "away": ("reconnecting", "queued")}
    assert (states[0] if states else None, answer["type"]) == expected.get(where, (None, "delivery_failed"))
    if where == "away":
        entry = only(operator(world).write("mailbox", requestId="m", of={"sessionId": listed[-1]["id"]}))["entries"][0]
        assert entry["expiresAt"] == entry["queuedAt"] + world.limits.mail_ttl_ms


def test_f39_half_a_character_blocks_no_mailbox() -> None:
    """F39: what is stored can always be read again, so a mailbox drains after a restart and the next message comes."""
    world = World()
    sender, desk = enter(world, "a"), holder(world, "desk", token="t" * 32)
    desk.write("unregister")
    half = b'{"type":"send","to":"desk","queueIfAway":true,"attemptId":"h","message":{"id":"m1","timestamp":1,'
    half += b'"content":{"text":"half \\ud83d"}}}'
    assert only(answers(world.feed(sender.conn, half)))["type"] == "queued"
    sender.queue("desk", "m2")
    world.crash()
    desk = holder(world, "desk", token="t" * 32)
    texts = [frame["message"]["content"]["text"] for frame in desk.first if frame["type"] == "message"]
    assert texts == ["half \ufffd", "x"]


@pytest.mark.parametrize("pause_ms", [5_000, 10 * MINUTE_MS - 1])
def test_f78_mail_survives_the_restart_of_its_recipient(pause_ms: int) -> None:
    """F78: once, in order, with the original time."""
    world = World()
    _, target = away(world, "m1", "m2")
    queued_at = world.wall
    world.pass_time(pause_ms)
    back = reattach(world, target)
    assert ids(back.first) == ["m1", "m2"]
    assert {frame["mail"]["queuedAt"] for frame in back.first if frame["type"] == "message"} == {queued_at}
    back.confirm("m1", "m2")
    back.leave()
    assert ids(reattach(world, target).first) == []


def test_f78_the_mail_of_an_address_waits_for_days() -> None:
    """F78: it belongs to the identity, which is proven by a token and not by a name or a directory."""
    world = World()
    first, sender = holder(world, "box"), enter(world, "a")
    first.write("unregister")
    sender.queue("box", "m1")
    world.pass_time(6 * 24 * HOUR_MS)
    assert enter(world, "box").registered["mailboxCount"] == 0
    assert ids(holder(world, "box", first.registered["addressToken"]).first) == ["m1"]


def test_f78_mail_of_somebody_who_never_returns_is_told_to_its_sender() -> None:
    """F78: expiry notifies the sender, once it was neither fetched nor taken out of the inbox."""
    world = World()
    first, sender = holder(world, "box"), enter(world, "a")
    first.write("unregister")
    sender.queue("box", "m1")
    world.pass_time(world.limits.mail_ttl_ms)
    assert sender.mail() == []
    world.pass_time(world.limits.mail_ttl_ms)
    assert only(sender.mail())["notice"]["reason"] == notices.NEVER_TAKEN


def test_f78_mail_that_can_wait_nowhere_else_is_told_to_its_sender() -> None:
    """F78: expiry notifies the sender; here the inbox takes nothing more."""
    world = World(limits=Limits(inbox_entries=0))
    first, sender = holder(world, "box"), enter(world, "a")
    first.write("unregister")
    sender.queue("box", "m1")
    world.pass_time(world.limits.mail_ttl_ms)
    assert only(sender.mail())["notice"]["reason"] == notices.NEVER_FETCHED


def test_f80_a_reply_reaches_a_command_that_has_exited() -> None:
    """F80: queued for its identity; whoever is that identity next gets it."""
    world = World()
    first, receiver = holder(world, "me"), enter(world, "b")
    token = first.registered["addressToken"]
    first.write("unregister")
    command = holder(world, "me", token, "none")
    command.queue("b", "m1")
    receiver.confirm("m1")
    command.write("unregister")
    world.pass_time(MINUTE_MS)
    extra = {"queueIfAway": True}
    assert only(answers(receiver.message(command.id, "r1", replyTo="m1", extra=extra)))["type"] == "queued"
    again = holder(world, "me", token)
    assert ids(again.first) == ["r1"]
    again.confirm("r1")
    receiver.message(command.id, "r2", replyTo="m1", extra=extra)
    assert ids(again.got()) == ["r2"], "also while the one after it is here already"
    newest = holder(world, "me", token)
    assert ids(newest.first) == ["r2"], "and to one of two, the newest"


def test_f80_mailboxes_are_bounded() -> None:
    """F80: bounded count."""
    world = World(limits=Limits(mailbox_entries=2))
    sender, _ = away(world, "m1", "m2")
    assert reason(answers(sender.queue("b", "m3"))).startswith(reasons.MAILBOX_FULL)


def test_f81_who_never_confirms_is_seen() -> None:
    """F81: its sender is never told `delivered`, and the mailbox shows what it has and does not confirm."""
    world = World()
    sender, deaf = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    world.pass_time(HOUR_MS)
    assert [answer["type"] for answer in answers(sender.got())] == ["queued"]
    entry = told(operator(world), type="mailbox", of={"sessionId": deaf.id})["entries"][0]  # type: ignore[index]
    assert (entry["state"], entry["offers"]) == ("offered", 1)
    assert told(sender, type="trace", messageId="m1")["where"] == (
        f"written to who receives the mail of session {deaf.id}, which has not confirmed it"
    )


@pytest.mark.parametrize("waits", [True, False], ids=["as mail", "in memory"])
def test_f81_a_list_says_who_confirms_nothing(waits: bool) -> None:
    """F81: a session that goes deaf is told apart, until it confirms; older clients are told what they know."""
    world = World()
    sender, deaf, older = enter(world, "a"), enter(world, "b"), world.register("c", returnAddress="c")

    def standing(client: Any) -> object:
        [row] = [row for row in only(client.write("list", requestId="l"))["sessions"] if row.get("name") == "b"]
        return row.get("unconfirmedSince")

    began = world.wall
    sender.message("b", "m1", extra={"queueIfAway": waits})
    world.pass_time(world.limits.standstill_ms - 1)
    sender.got(), older.got()
    assert standing(sender) is None
    world.pass_time(world.limits.busy_ms + 1)
    sender.got(), older.got()
    assert began <= standing(sender) <= began + world.limits.busy_ms  # type: ignore[operator]
    assert standing(older) is None
    deaf.confirm("m1")
    sender.got()
    assert standing(sender) is None


def test_f85_what_cannot_be_handed_over_blocks_nothing() -> None:
    """F85: [lost, expired, larger than the window, ok]."""
    world = World(limits=Limits(mail_offer_bytes=300))
    sender, target = away(world, "m1")
    sender.queue("b", "m2", validFor=1)
    sender.queue("b", "m3", "x" * 1_000)
    sender.queue("b", "m4")
    del world.disk.bodies[min(world.disk.bodies)]
    world.wall += 10  # the machine slept, and nobody has noticed that m2 is over
    back = reattach(world, target)
    assert ids(back.first) == ["m3"]
    assert ids(back.confirm("m3", "m4")) == ["m4"]
    notes = sender.got()
    notes += sender.confirm("undeliverable:1:m1", "undeliverable:2:m2")
    assert ids(notes) == ["undeliverable:1:m1", "undeliverable:2:m2"]
    assert world.disk.mail == {}


def test_f86_two_readers_share_no_mailbox() -> None:
    """F86: the holder consumes; who lost its place does not, and who is killed is followed by another."""
    world = World()
    first = holder(world, "box")
    token = first.registered["addressToken"]
    first.write("unregister")
    sender = enter(world, "a")
    names = [f"m{number}" for number in range(200)]
    for name in names:
        sender.queue("box", name, name)
    one = holder(world, "box", token)
    seen = ids(one.first)
    late = ids(one.confirm(*seen))
    two = holder(world, "box", token)
    assert one.got()[-1]["type"] == "replaced"
    assert one.confirm(*late) == []
    assert ids(two.first) == late and len(late) == world.limits.mail_offers
    two.leave()
    again = reattach(world, two)
    pending = ids(again.first)
    while pending:
        seen += pending
        pending = ids(again.confirm(*pending))
    assert seen == names


def test_f87_mail_says_how_old_it_is_and_stale_mail_stays_away() -> None:
    """F87: an adapter that was busy for ten minutes gets nothing that was of use for one."""
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world, "m1")
    sender.queue("b", "m2", validFor=MINUTE_MS)
    sender.queue("b", "m3")
    back = reattach(world, target)
    assert ids(back.first) == ["m1"]
    world.pass_time(10 * MINUTE_MS)
    assert only(sender.mail())["notice"]["kind"] == "expired"
    last = only(back.confirm("m1"))
    assert (last["message"]["id"], last["mail"]["ageMs"]) == ("m3", 10 * MINUTE_MS)


def test_f89_a_send_may_name_the_session_it_means() -> None:
    """F89: what was meant for the one before is not handed to the one after it."""
    world = World()
    sender, before = enter(world, "a"), enter(world, "b")
    before.write("unregister")
    before.leave()
    enter(world, "b")
    assert reason(answers(sender.queue("b", "m1", expectedRecipientId=before.id))) == reasons.OTHER_RECIPIENT
    sender.got()
    assert reason(answers(sender.queue("b", "m1", expectedRecipientId=before.id))) == reasons.OTHER_RECIPIENT


def test_f128_the_status_report_tells_of_mail() -> None:
    """F128: queue depths, the oldest queued message."""
    world = World()
    began = world.wall
    away(world, "m1", "m2")
    world.pass_time(1_000)
    report = only(world.send(world.connect(), type="broker_status", requestId="s"))["report"]
    mail = report["broker"]["mail"]
    assert mail == {
        "waiting": 2,
        "bytes": sum(row.size for row in world.disk.mail.values()),
        "mailboxes": 1,
        "oldestAt": began,
        "addresses": 0,
        "sessionsAway": 1,
        "sessionsRemembered": 0,
    }


@pytest.mark.parametrize(
    "request_frame",
    [
        {"type": "mailbox", "of": {"address": "box"}},
        {"type": "session_records"},
        {"type": "addresses"},
        {"type": "trace", "messageId": "m1"},
    ],
)
def test_f130_looking_changes_nothing(request_frame: dict[str, object]) -> None:
    """F130: no mailbox is drained, nothing is recorded."""
    world = World()
    first, sender = holder(world, "box"), enter(world, "a", features=AGENT)
    first.write("unregister")
    sender.queue("box", "m1")
    person = operator(world)
    before = (list(world.disk.journal), dict(world.disk.mail))
    for _ in range(3):
        assert told(person, **request_frame)["type"] == request_frame["type"]
    assert (list(world.disk.journal), dict(world.disk.mail)) == before
