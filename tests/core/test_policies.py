"""Test what sessions and the person let through (F111, protocol 15.2)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intercom.core.policies import Inbound, Sender
from intercom.limits import Limits
from intercom.wire import notices, reasons
from intercom.wire.attention import Policy, PolicyRule
from tests.core.flow_play import WORKER, Play
from tests.core.harness import World, without_announcements
from tests.core.mail import AGENT, Agent, enter, holder, reattach

FULL = (*AGENT, "policy")


def policy(*rules: str) -> dict[str, Any]:
    """Return rules written as ``action``, ``action:from=name`` or ``action:group=name``."""
    written = []
    for word in rules:
        action, _, condition = word.partition(":")
        key, _, name = condition.partition("=")
        written.append({"action": action, **({} if not key else {"sender" if key == "from" else key: name})})
    return {"rules": written}


def person(world: World) -> Agent:
    return enter(world, features=("operator", "policy"), info={"recipientPurpose": "control"})


def desk(world: World, **more: Any) -> Agent:
    return holder(world, "desk", features=FULL, **more)


def only(frames: list[dict[str, Any]], *kinds: str) -> dict[str, Any]:
    [found] = [frame for frame in frames if frame["type"] in kinds]
    return found


def fate(frames: list[dict[str, Any]]) -> str:
    answer = only(frames, "delivered", "queued", "delivery_failed")
    if answer["type"] == "delivery_failed":
        return reasons.code_of(answer["reason"])
    return str(answer.get("kept", answer["type"]))


def texts(agent: Agent) -> list[str]:
    return [frame["message"]["id"] for frame in agent.mail()]


# --- rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "set_by_person", "expected"),
    [
        ((), (), "accept"),
        (("refuse",), (), "refuse"),
        (("accept:from=ann", "refuse"), (), "accept"),
        (("accept:from=ANN", "refuse"), (), "accept"),
        (("refuse:from=bob",), (), "accept"),
        (("refuse:group=g",), (), "refuse"),
        (("quiet:group=h", "hold"), (), "hold"),
        (("quiet",), ("hold",), "hold"),
        (("refuse",), ("quiet",), "refuse"),
        (("accept",), ("hold:from=id-1",), "hold"),
    ],
)
def test_the_first_rule_that_matches_counts_and_the_stricter_of_two(
    own: tuple[str, ...], set_by_person: tuple[str, ...], expected: str
) -> None:
    """Protocol 15.2.2"""

    def made(rules: tuple[str, ...]) -> Policy | None:
        found = [PolicyRule(**rule) for rule in policy(*rules)["rules"]]
        return Policy(found) if found else None

    sender = Sender(frozenset({"id-1", "ann"}), ("g",))
    assert Inbound(made(own), made(set_by_person)).action_for(sender) == expected


# --- what a sender is told, and what the recipient gets -------------------------------------------------


def test_quiet_messages_wait_and_wake_nobody_until_they_are_fetched() -> None:
    """Protocol 15.2.1"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy("quiet"))
    assert fate(sender.queue("desk", "m1")) == "quiet"
    assert fate(sender.queue("desk", "m2", "y")) == "quiet"
    world.pass_time(3_600_000)
    assert texts(receiver) == []
    frames = receiver.write("mail_fetch", requestId="f")
    assert only(frames, "mail_fetched")["count"] == 2
    assert [frame["message"]["id"] for frame in frames if frame["type"] == "message"] == ["m1", "m2"]
    assert only(receiver.write("mail_fetch", requestId="f"), "mail_fetched")["count"] == 0


def test_what_is_kept_holds_nothing_up() -> None:
    """Protocol 15.2.1: later mail of others is handed over, at once"""
    world = World()
    receiver, loud, other = desk(world), enter(world, "ann", features=FULL), enter(world, "bob", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy("quiet:from=ann"))
    loud.queue("desk", "m1")
    other.queue("desk", "m2")
    assert texts(receiver) == ["m2"]
    receiver.confirm("m2")
    assert fate(other.got()) == "delivered"


def test_asks_are_refused_where_messages_wait_and_told_what_to_do() -> None:
    """Protocol 15.2.1: nobody would answer soon, so the asker is not left waiting"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    for action in ("quiet", "hold"):
        receiver.write("policy_set", requestId="p", policy=policy(action))
        answer = only(sender.ask("desk", f"q-{action}"), "delivery_failed")
        assert reasons.code_of(answer["reason"]) == "undisturbed"
        assert "send it a message that expects no reply" in answer["reason"]
    assert texts(receiver) == []


def test_answers_always_pass() -> None:
    """Protocol 15.2.1: who asked wants the answer"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy("refuse"))
    receiver.ask("ann", "q1")
    sender.confirm("q1")
    sender.reply("desk", "r1", "q1")
    assert texts(receiver) == ["r1"]


def test_a_refusal_says_so_and_nothing_waits() -> None:
    """F111: refused, with a code"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy("accept:from=bob", "refuse"))
    assert fate(sender.queue("desk", "m1")) == "refused_by_policy"
    assert fate(sender.ask("desk", "q1")) == "refused_by_policy"
    box = only(receiver.write("mailbox", requestId="b"), "mailbox")
    assert (box["count"], box["kept"]) == (0, 0)


@pytest.mark.parametrize("members", [{}, {"returnAddress": "r"}], ids=["older", "newest"])
def test_who_does_not_understand_that_a_message_waits_is_told_that_it_was_not_sent(members: dict[str, Any]) -> None:
    """Protocol 15.2.1: `queued` is for who has the feature"""
    world = World()
    receiver, sender = desk(world), world.register("old", **members)
    receiver.write("policy_set", requestId="p", policy=policy("quiet"))
    answer = only(sender.message("desk", "m1"), "delivery_failed")
    assert reasons.code_of(answer["reason"]) == "undisturbed" and "reasonCode" not in answer


def test_without_the_feature_a_sender_is_told_queued_and_nothing_more() -> None:
    """Protocol 5.30"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann")
    receiver.write("policy_set", requestId="p", policy=policy("hold"))
    assert "kept" not in only(sender.queue("desk", "m1"), "queued")


def test_a_retry_of_what_is_kept_is_answered_the_same() -> None:
    """Protocol 6.9"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy("hold"))
    sender.queue("desk", "m1")
    assert only(sender.queue("desk", "m1"), "queued")["position"] == 1
    assert only(receiver.write("mailbox", requestId="b"), "mailbox")["count"] == 1


# --- the person -----------------------------------------------------------------------------------------


def test_the_person_lets_a_held_message_through_or_refuses_it() -> None:
    """F111: held, released, refused; the sender of a refused one is told"""
    world = World()
    receiver, sender, operator = desk(world), enter(world, "ann", features=FULL), person(world)
    operator.write("policy_set", requestId="p", policy=policy("hold"), of={"address": "desk"})
    receiver.got()
    assert fate(sender.queue("desk", "m1")) == fate(sender.queue("desk", "m2", "y")) == "hold"
    told = only(operator.write("policies", requestId="p"), "policies")
    assert [(kept["messageId"], kept["action"], kept["owner"]) for kept in told["kept"]] == [
        ("m1", "hold", "desk"),
        ("m2", "hold", "desk"),
    ]
    assert only(receiver.write("mail_fetch", requestId="f"), "mail_fetched")["count"] == 0, "only the person may"
    operator.write("held_settle", requestId="h", messageId="m2", action="release")
    assert texts(receiver) == ["m2"]
    operator.write("held_settle", requestId="h", messageId="m1", action="refuse")
    [notice] = [frame["notice"] for frame in sender.got() if frame["type"] == "message"]
    assert (notice["kind"], notice["messageId"], notice["reason"]) == ("undeliverable", "m1", notices.NOT_LET_THROUGH)


def test_what_nobody_let_through_expires_and_its_sender_is_told() -> None:
    """F111: expired"""
    world = World()
    desk(world)
    sender, operator = enter(world, "ann", features=FULL), person(world)
    operator.write("policy_set", requestId="p", policy=policy("hold"), of={"address": "desk"})
    sender.queue("desk", "m1")
    sender.queue("desk", "m2", validFor=5_000)
    world.pass_time(5_000)
    assert [frame["notice"]["kind"] for frame in sender.got() if frame["type"] == "message"] == ["expired"]
    sender.confirm("undeliverable:2:m2")
    world.pass_time(Limits().mail_ttl_ms)
    [notice] = [frame["notice"] for frame in sender.got() if frame["type"] == "message"]
    assert notice["reason"] == notices.NEVER_LET_THROUGH


def test_what_the_person_sets_holds_for_who_is_away_and_outlives_the_broker() -> None:
    """Protocol 15.2.2"""
    world = World()
    receiver = desk(world)
    token = receiver.registered["addressToken"]
    person(world).write(
        "policy_set", requestId="p", policy=policy("hold:from=ann", "refuse:group=far"), of={"address": "desk"}
    )
    receiver.write("unregister")
    world.crash()
    ann = enter(world, "ann", features=FULL)
    far = enter(world, "bob", features=FULL, info={"groups": ["far", "default"]})
    assert fate(ann.queue("desk", "m1")) == "hold"
    assert fate(far.queue("desk", "m2")) == "refused_by_policy"
    assert fate(enter(world, "cleo", features=FULL).queue("desk", "m3")) == "queued"
    world.crash()
    back = holder(world, "desk", token, features=FULL)
    assert [frame["message"]["id"] for frame in back.first if frame["type"] == "message"] == ["m3"]
    person(world).write("held_settle", requestId="h", messageId="m1", action="release")
    back.confirm("m3")
    assert only(back.write("mailbox", requestId="b"), "mailbox")["kept"] == 0


def test_a_policy_that_changes_is_applied_to_what_waits() -> None:
    """F111: policy change while messages are held"""
    world = World()
    receiver, ann, bob, operator = (
        desk(world),
        enter(world, "ann", features=FULL),
        enter(world, "bob", features=FULL),
        person(world),
    )
    of = {"address": "desk"}
    operator.write("policy_set", requestId="p", policy=policy("hold"), of=of)
    ann.queue("desk", "m1")
    bob.queue("desk", "m2")
    receiver.got()
    operator.write("policy_set", requestId="p", policy=policy("quiet:from=ann", "refuse"), of=of)
    assert [frame["notice"]["messageId"] for frame in bob.got() if frame["type"] == "message"] == ["m2"]
    assert texts(receiver) == []
    operator.write("policy_set", requestId="p", of=of)
    assert texts(receiver) == ["m1"]


def test_peers_see_both_policies_and_nobody_writes_that_of_the_person() -> None:
    """Protocol 15.2.2"""
    world = World()
    viewer = enter(world, "viewer")
    forged = {"personPolicy": policy("accept"), "inboundPolicy": policy("quiet")}
    desk(world, info=forged)
    [joined] = [frame for frame in viewer.got() if frame["type"] == "session_joined"]
    assert joined["session"]["inboundPolicy"] == policy("quiet") and "personPolicy" not in joined["session"]
    person(world).write("policy_set", requestId="p", policy=policy("hold"), of={"address": "desk"})
    [seen] = [frame for frame in viewer.got() if frame["type"] == "presence_update"]
    assert seen["session"]["personPolicy"] == policy("hold")
    assert only(viewer.write("list", requestId="l"), "sessions")["sessions"][1]["personPolicy"] == policy("hold")


def test_a_policy_at_registration_counts_and_comes_back() -> None:
    """Protocol 15.2.2"""
    world = World()
    receiver = desk(world, info={"inboundPolicy": policy("quiet")})
    sender = enter(world, "ann", features=FULL)
    assert fate(sender.queue("desk", "m1")) == "quiet"
    receiver.leave()
    assert fate(sender.queue("desk", "m2")) == "quiet", "also while it is away"
    back = reattach(world, receiver)
    assert [frame for frame in back.first if frame["type"] == "message"] == []
    assert fate(sender.queue("desk", "m3")) == "quiet"


def test_a_policy_of_the_wrong_form_is_refused_at_registration() -> None:
    world = World()
    conn = world.connect()
    session = {"cwd": "/", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, "inboundPolicy": {"rules": 7}}
    [answer] = world.send(
        conn,
        type="register",
        session=session,
        returnAddress="r",
        features=["policy"],
        kind="x",
        clientProtocolVersion="1.0",
    )
    assert (answer["type"], answer["code"]) == ("registration_failed", "bad_request")
    assert "inboundPolicy" in answer["reason"]


def test_an_older_client_may_have_a_member_of_that_name() -> None:
    """Protocol 5.30: without the feature it means nothing"""
    world = World()
    world.register("old", info={"inboundPolicy": "whatever"})
    assert fate(world.register("other").message("old", "m1")) == "delivered"


def test_the_person_may_refuse_for_a_session_without_features() -> None:
    """Protocol 15.2.2: whoever a session is, over its reconnects"""
    world = World()
    old = world.register("old", returnAddress="r")
    operator = person(world)
    operator.write("policy_set", requestId="p", policy=policy("refuse"), of={"sessionId": old.id})
    other = world.register("other")
    assert fate(other.message("old", "m1")) == "refused_by_policy"
    old.leave()
    world.register("old", returnAddress="r")
    assert fate(other.message("old", "m1")) == "refused_by_policy"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"of": {"address": "@me"}, "policy": {"rules": [{"action": "refuse"}]}}, "not_allowed"),
        ({"of": {"address": "nobody"}}, "unknown_address"),
        ({"of": {"sessionId": "nobody"}}, "unknown_session"),
        ({"of": {}}, "bad_request"),
        ({"policy": {"rules": []}}, "not_allowed"),
        ({"policy": {"rules": [{"action": "refuse", "sender": ""}]}}, "bad_request"),
        ({"policy": {"rules": [{"action": "refuse"}] * 65}}, "bad_request"),
    ],
    ids=str,
)
def test_what_the_person_cannot_set(members: dict[str, Any], code: str) -> None:
    world = World()
    enter(world, "ann").queue("@me", "m0")
    assert only(person(world).write("policy_set", requestId="p", **members), "request_failed")["code"] == code


def test_only_so_many_policies_are_kept() -> None:
    """Design section 4: charge before you link"""
    world = World(limits=Limits(policies=1))
    desk(world)
    other, operator = holder(world, "other"), person(world)
    assert other.id
    for name, expected in (("desk", "policy_stored"), ("other", "request_failed"), ("desk", "policy_stored")):
        frames = operator.write("policy_set", requestId="p", policy=policy("refuse"), of={"address": name})
        assert only(frames, "policy_stored", "request_failed")["type"] == expected


def test_a_session_without_a_mailbox_can_only_accept_or_refuse() -> None:
    world = World()
    bare = enter(world, "bare", features=("queue", "policy"))
    assert (
        only(bare.write("policy_set", requestId="p", policy=policy("hold")), "request_failed")["code"] == "no_mailbox"
    )
    assert only(bare.write("mail_fetch", requestId="f"), "request_failed")["code"] == "no_mailbox"
    only(bare.write("policy_set", requestId="p", policy=policy("refuse")), "policy_stored")
    assert fate(enter(world, "ann", features=FULL).queue("bare", "m1")) == "refused_by_policy"


def test_a_commit_that_fails_takes_it_back() -> None:
    """Design section 3.6"""
    world = World()
    receiver, sender, operator = desk(world), enter(world, "ann", features=FULL), person(world)
    operator.write("policy_set", requestId="p", policy=policy("hold"), of={"address": "desk"})
    sender.queue("desk", "m1")
    receiver.got()
    world.auto = False
    operator.write("held_settle", requestId="h", messageId="m1", action="release")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(operator.got(), "request_failed")["code"] == "not_recorded"
    assert texts(receiver) == []
    world.auto = False
    operator.write("policy_set", requestId="p", of={"address": "desk"})
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(operator.got(), "request_failed")["code"] == "not_recorded"
    told = only(operator.write("policies", requestId="p"), "policies")
    assert [entry["policy"] for entry in told["policies"]] == [policy("hold")]


def test_what_is_in_force_can_be_set_again_while_nothing_can_be_recorded() -> None:
    """Protocol 15.2: an answer that was lost is given again; it rests on what recorded the policy."""
    world = World()
    operator, sender = person(world), enter(world, "ann", features=FULL)
    desk(world)
    enter(world, "bob", features=FULL)
    world.auto = False
    operator.write("policy_set", requestId="p1", policy=policy("refuse"), of={"address": "desk"})
    operator.write("policy_set", requestId="p2", policy=policy("refuse"), of={"address": "desk"})
    assert operator.got() == []
    world.commit()
    operator.write("policy_set", requestId="p3", policy=policy("hold"), of={"address": "desk"})
    world.fail_commit()
    world.auto = True
    world.settle()
    told = [(frame["requestId"], frame["type"]) for frame in without_announcements(operator.got())]
    assert told == [("p1", "policy_stored"), ("p2", "policy_stored"), ("p3", "request_failed")]
    world.auto = False
    sender.message("bob", "m1")
    operator.write("policy_set", requestId="p4", policy=policy("refuse"), of={"address": "desk"})
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(operator.got(), "policy_stored")["requestId"] == "p4"


def test_a_policy_that_cannot_be_read_any_more_is_shut() -> None:
    """Protocol 15.2: a later version may have written it; shut is safer than open."""
    world = World()
    receiver, operator = desk(world), person(world)
    operator.write("policy_set", requestId="p", policy=policy("accept"), of={"address": "desk"})
    for number, record in world.disk.policies.items():
        world.disk.policies[number] = replace(record, policy=b'{"rules":[{"action":"from the future"}]}')
    world.crash()
    receiver = reattach(world, receiver)
    assert fate(enter(world, "ann", features=FULL).queue("desk", "m1")) == "hold"
    assert texts(receiver) == []


def test_a_first_policy_that_could_not_be_recorded_is_not_in_force() -> None:
    """Design section 3.6"""
    world = World()
    receiver, operator = desk(world), person(world)
    world.auto = False
    operator.write("policy_set", requestId="p", policy=policy("refuse"), of={"address": "desk"})
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(operator.got(), "request_failed")["code"] == "not_recorded"
    sender = enter(world, "ann", features=FULL)
    shown = only(sender.write("list", requestId="l"), "sessions")["sessions"]
    assert [entry.get("personPolicy") for entry in shown if entry.get("name") == "desk"] == [None]
    sender.queue("desk", "m1")
    assert texts(receiver) == ["m1"]


def test_taking_back_what_was_never_set_changes_nothing() -> None:
    """Protocol 15.2"""
    world = World()
    desk(world)
    operator = person(world)
    before = len(world.disk.journal)
    only(operator.write("policy_set", requestId="p", of={"address": "desk"}), "policy_stored")
    assert "policy.removed" not in [event.kind for event in world.disk.journal[before:]]


def test_rules_name_a_sender_by_its_address_too() -> None:
    """Protocol 15.2: a command under an address has no name that peers see, and is meant all the same."""
    world = World()
    receiver, box = desk(world), holder(world, "box")
    receiver.write("policy_set", requestId="p", policy=policy("refuse:from=box"))
    command = holder(
        world, "box", box.registered["addressToken"], "none", features=("push.receipts", "address", "queue")
    )
    assert fate(command.queue("desk", "m1")) == "refused_by_policy"
    enter(world, "ann", features=FULL).queue("desk", "m2")
    assert texts(receiver) == ["m2"]


def test_what_the_broker_wrote_is_not_judged() -> None:
    """Protocol 15.2: an answer, an ask and what the broker itself wrote always pass."""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.leave()
    sender.queue("desk", "m1", validFor=1_000)
    operator = person(world)
    operator.write("policy_set", requestId="p", policy=policy("hold"), of={"address": "desk"})
    assert [mail.kept for mail in world.disk.mail.values()] == ["hold"]
    operator.write("held_settle", requestId="h", messageId="m1", action="release")
    operator.write("policy_set", requestId="p", policy=policy("refuse"), of={"address": "desk"})
    assert [mail.kept for mail in world.disk.mail.values()] == ["released"], "the person let it through"


def test_a_policy_of_a_session_that_is_away_is_set_by_its_id() -> None:
    """Protocol 15.2"""
    world = World()
    receiver, operator = enter(world, "bob", features=FULL), person(world)
    receiver.leave()
    members = {"policy": policy("refuse"), "of": {"sessionId": receiver.id}}
    only(operator.write("policy_set", requestId="p", **members), "policy_stored")
    assert fate(enter(world, "ann", features=FULL).queue("bob", "m1")) == "refused_by_policy"


def test_what_the_recipient_has_already_is_not_judged_again() -> None:
    """Protocol 15.2: it may be done with it"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.leave()
    sender.queue("desk", "m1")
    back = desk_again(world, receiver)
    receiver_has = [frame["message"]["id"] for frame in back.first if frame["type"] == "message"]
    assert receiver_has == ["m1"]
    back.write("policy_set", requestId="p", policy=policy("refuse"))
    assert [mail.kept for mail in world.disk.mail.values()] == [None]
    back.confirm("m1")
    assert world.disk.mail == {}


def desk_again(world: World, before: Agent) -> Agent:
    """Let the holder of the address come again."""
    return holder(world, "desk", before.registered["addressToken"], features=FULL)


@pytest.mark.parametrize(
    ("action", "where"), [("hold", "until the person lets it through"), ("quiet", "must not wake")]
)
def test_a_sender_is_told_where_its_message_is_kept(action: str, where: str) -> None:
    """Protocol 4.32: where a message is"""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy=policy(action))
    sender.queue("desk", "m1")
    assert where in only(sender.write("trace", requestId="t", messageId="m1"), "trace")["where"]


def test_a_step_of_a_flow_is_not_judged() -> None:
    """Protocol 15.2: what the broker itself wrote always passes"""
    play = Play(features=(*WORKER, "policy"))
    play.begin("f", "one")
    play.worker.leave()
    members = {"policy": policy("refuse"), "of": {"sessionId": play.worker.id}}
    only(person(play.world).write("policy_set", requestId="p", **members), "policy_stored")
    assert play.states() == ("active", ["dispatching"])
    assert len(play.dispatches(play.back(play.worker))) == 1


def test_nobody_is_told_what_a_person_lets_through_to_itself() -> None:
    """Protocol 15.2: a control session is seen by nobody"""
    world = World()
    peer, boss = enter(world, "peer"), person(world)
    peer.got()
    refused = only(boss.write("policy_set", requestId="p", policy=policy("refuse")), "request_failed")
    assert refused["code"] == "not_allowed"
    boss.write("policy_set", requestId="p", policy=policy("refuse"), of={"sessionId": boss.id})
    assert peer.got() == []


def test_what_a_session_set_itself_and_could_not_be_recorded_is_not_in_force() -> None:
    """Design section 3.6: what was refused as not recorded is taken back, and the policy before holds again."""
    world = World()
    receiver, sender = desk(world), enter(world, "ann", features=FULL)
    for number, before in enumerate((None, policy("refuse:from=bob"), policy("refuse"))):
        if before is not None:
            receiver.write("policy_set", requestId="p", policy=before)
        sender.got()
        world.auto = False
        receiver.write("policy_set", requestId="p", policy=policy("hold"))
        world.fail_commit()
        world.auto = True
        world.settle()
        assert only(receiver.got(), "request_failed", "policy_stored")["code"] == "not_recorded"
        shown = [frame["session"] for frame in sender.got() if frame["type"] == "presence_update"]
        assert shown[-1].get("inboundPolicy") == before
        told = sender.queue("desk", f"m{number}")
        if before == policy("refuse"):
            assert fate(told) == "refused_by_policy"
        else:
            assert texts(receiver) == [f"m{number}"]
            receiver.confirm(f"m{number}")


@pytest.mark.parametrize("is_back", [False, True], ids=["away", "back"])
def test_a_policy_that_could_not_be_recorded_is_gone_though_its_session_moved_meanwhile(is_back: bool) -> None:
    """Design section 3.6"""
    world = World()
    receiver = desk(world)
    world.auto = False
    receiver.write("policy_set", requestId="p", policy=policy("hold"))
    world.end(receiver.conn)
    if is_back:
        reattach(world, receiver)
    world.fail_commit()
    world.auto = True
    world.settle()
    world.crash()
    receiver = reattach(world, receiver)
    enter(world, "bob", features=FULL).queue("desk", "m1")
    assert texts(receiver) == ["m1"]


def test_a_policy_without_a_session_that_lasts_rests_on_nothing() -> None:
    """Protocol 15.2: nothing of it is recorded, so the commit of others that fails takes nothing of it back"""
    world = World()
    bare, sender = enter(world, "bare", features=("policy",)), enter(world, "ann", features=FULL)
    world.auto = False
    sender.message("bare", "m0")
    bare.write("policy_set", requestId="p", policy=policy("refuse"))
    world.fail_commit()
    world.auto = True
    world.settle()
    assert only(bare.got(), "policy_stored", "request_failed")["type"] == "policy_stored"
