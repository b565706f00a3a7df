"""Who waits and what is let through, as the library asks and tells (protocol 15)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec import to_builtins

from intercom.client import aio, attending
from intercom.client.attending import PolicyRule
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile
from intercom.errors import RequestRefused, SendRefused, TargetAway, UsageError
from intercom.testing import MemoryBroker
from intercom.wire.attention import Policy, PolicyStored
from intercom.wire.attention import PolicyRule as Rule
from tests.support.brokers import BrokerProcess
from tests.support.raw import PATIENCE_S


def frame(operation: RequestOperation[Any]) -> dict[str, Any]:
    assert operation.needs_feature is not None, "a broker that did not grant it would not know it"
    written: dict[str, Any] = to_builtins(operation.attempt("r1"))
    assert written.pop("requestId") == "r1"
    return written


RULES = [PolicyRule("accept", sender="ann\udfff"), PolicyRule("hold", group="g")]
WRITTEN = {"rules": [{"action": "accept", "sender": "ann\ufffd"}, {"action": "hold", "group": "g"}]}


@pytest.mark.parametrize(
    ("operation", "written"),
    [
        (attending.waits(now=1), {"type": "waits"}),
        (attending.waits(limit=3, now=1), {"type": "waits", "limit": 3}),
        (attending.policies(now=1), {"type": "policies"}),
        (attending.fetch(now=1), {"type": "mail_fetch"}),
        (attending.settle_held("m", "release", now=1), {"type": "held_settle", "messageId": "m", "action": "release"}),
        (attending.set_policy(Profile("worker"), RULES, now=1), {"type": "policy_set", "policy": WRITTEN}),
        (
            attending.set_policy(Profile("worker"), [], address="a", group="g", now=1),
            {"type": "policy_set", "policy": {"rules": []}, "of": {"address": "a", "group": "g"}},
        ),
        (
            attending.set_policy(Profile("worker"), [], session_id="s", now=1),
            {"type": "policy_set", "policy": {"rules": []}, "of": {"sessionId": "s"}},
        ),
    ],
)
def test_what_is_written(operation: RequestOperation[Any], written: dict[str, Any]) -> None:
    assert frame(operation) == written


@pytest.mark.parametrize(
    "call",
    [
        lambda: attending.waits(limit=0, now=1),
        lambda: attending.settle_held("", "release", now=1),
        lambda: attending.settle_held("m", "drop", now=1),  # type: ignore[arg-type]
        lambda: attending.set_policy(Profile("worker"), [PolicyRule("shout")], now=1),  # type: ignore[arg-type]
        lambda: attending.set_policy(Profile("worker"), [PolicyRule("hold", sender="")], now=1),
        lambda: attending.set_policy(Profile("worker"), [], address="a", session_id="s", now=1),
        lambda: attending.set_policy(Profile("worker"), [], group="g", now=1),
    ],
)
def test_what_can_never_work_is_refused_before_anything_is_sent(call: Any) -> None:
    with pytest.raises(UsageError):
        call()


def test_what_was_stored_for_a_session_goes_into_its_profile() -> None:
    """Protocol 15.2.2: a broker that forgot the session is told it again; what the person sets is not its own"""
    profile = Profile("worker")
    stored = PolicyStored("r1", "worker", Policy([Rule("hold")]))
    for operation in (
        attending.set_policy(profile, [PolicyRule("hold")], now=1),
        attending.set_policy(profile, [PolicyRule("refuse")], address="a", now=1),
    ):
        operation.attempt("r1")
        operation.answered(stored)
    assert profile.policy == {"rules": [{"action": "hold"}]}
    operation = attending.set_policy(profile, [], now=1)
    operation.attempt("r2")
    operation.answered(PolicyStored("r2", "worker", Policy([])))
    assert profile.policy is None


def test_who_waits_for_whom() -> None:
    """Protocol 15.1, F64"""
    broker = MemoryBroker()
    planner, worker = broker.connect("planner"), broker.connect("worker")
    asked = planner.ask("worker", "?")
    [question] = worker.messages()
    [wait] = worker.waits().waits
    assert (wait.asker, wait.target, wait.state, wait.asker_id) == ("planner", "worker", "open", planner.id)
    refused = worker.ask("planner", "what?")
    with pytest.raises(SendRefused) as caught:
        refused.result()
    assert caught.value.code == "would_deadlock" and "planner, which waits for you" in caught.value.reason
    question.reply("!")
    assert asked.result().text == "!"
    assert planner.waits().total == 0


def test_a_policy_stays_over_a_registration_anew() -> None:
    """Protocol 15.2.2: the broker that knew it was killed, and the session registers again"""
    broker = MemoryBroker()
    worker, planner = broker.connect("worker", address=True), broker.connect("planner")
    view = worker.set_policy([PolicyRule("quiet")])
    assert (view.set_by, view.rules) == ("session", (PolicyRule("quiet"),))
    broker.crash()
    broker.restart()
    broker.advance(10_000)
    sent = planner.send("worker", "hello").result()
    assert (sent.state, sent.kept) == ("queued", "quiet")
    assert [message.text for message in worker.messages()] == []
    with pytest.raises(TargetAway) as caught:
        planner.ask("worker", "?").result()
    assert caught.value.code == "undisturbed"
    assert worker.fetch() == 1
    assert [message.text for message in worker.messages()] == ["hello"]
    worker.set_policy([])
    sent_again = planner.send("worker", "hello again")
    assert [message.text for message in worker.messages()] == ["hello again"]
    assert sent_again.result().state == "delivered"


def test_what_the_person_lets_through() -> None:
    """F111"""
    broker = MemoryBroker()
    worker, planner = broker.connect("worker", address=True), broker.connect("planner")
    person = broker.connect(purpose="control")
    person.set_policy([PolicyRule("hold", sender="planner")], address="worker")
    sent = planner.send("worker", "hello").result()
    assert sent.kept == "hold"
    found = person.policies()
    assert [(policy.owner, policy.set_by) for policy in found.policies] == [("worker", "person")]
    assert [(kept.message_id, kept.action, kept.sender.name) for kept in found.kept] == [
        (sent.message_id, "hold", "planner")
    ]
    assert person.mailbox("worker").kept == 1
    with pytest.raises(RequestRefused) as caught:
        planner.settle_held(sent.message_id, "release")
    assert caught.value.code == "not_allowed"
    assert person.settle_held(sent.message_id, "release") == sent.message_id
    assert [message.text for message in worker.messages()] == ["hello"]


def test_a_loop_ends_and_says_how_to_go_on() -> None:
    """F113: an echo, and a program that says what caused each of its messages"""
    broker = MemoryBroker()
    ann, bob = broker.connect("ann"), broker.connect("bob")
    ann.send("bob", "thanks")
    talking, passed = (bob, ann), 0
    with pytest.raises(SendRefused) as caught:
        while passed < 100:
            speaker, listener = talking
            [message] = speaker.messages()
            sent = speaker.send(listener.name or "", "thanks", caused_by=message.id)
            broker.advance(2_000)
            assert sent.result().state in ("delivered", "queued")
            talking, passed = (listener, speaker), passed + 1
    assert caught.value.code == "loop"
    assert 9 < passed < 20
    assert "new message" not in caught.value.hint and "`intercom send @me TEXT`" in caught.value.hint


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_who_waits_and_what_is_kept_under_anyio(broker: BrokerProcess) -> None:
    """Protocol 15.1 and 15.2, over a socket."""
    home = broker.home
    async with (
        aio.connect("worker", home=home, address=True) as worker,
        aio.connect("planner", home=home) as planner,
        aio.connect(home=home, purpose="control") as person,
    ):
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(planner.ask, "worker", "?")
                question = await worker.receive()
                [wait] = (await person.waits()).waits
                assert (wait.asker_id, wait.target) == (planner.id, "worker")
                await question.reply("!")
            await person.set_policy([PolicyRule("hold", sender="planner")], address="worker")
            held = await planner.send("worker", "held")
            [kept] = (await person.policies()).kept
            assert (held.kept, kept.message_id, kept.action) == ("hold", held.message_id, "hold")
            assert await person.settle_held(held.message_id, "release") == held.message_id
            assert (await worker.receive()).text == "held"
            await person.set_policy([PolicyRule("quiet")], session_id=worker.id)
            assert (await planner.send("worker", "quiet")).kept == "quiet"
            assert await worker.fetch() == 1
            assert (await worker.receive()).text == "quiet"
