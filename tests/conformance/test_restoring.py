"""Children that are brought back after a restart, with a real broker process and clients that speak by hand."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGTERM
from typing import Any

from intercom.wire import reasons
from tests.support.brokers import BrokerProcess, patched
from tests.support.raw import PATIENCE_S, RawClient

TOKEN, GROUP, CHILD = "owner-token", "team", "reviewer"
SHORT_HOLDS = patched(
    "import functools\nlimits.Limits = functools.partial(limits.Limits, hold_ms=900, silent_hold_ms=300)"
)
"""A broker whose sends are held for less than a second."""


class Team:
    """Hold a supervisor, its child and those who write to it, over several brokers."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.ids: dict[str, str] = {}
        self.capability = ""
        self.attempts = 0
        self.come_to(broker)

    def come_to(self, broker: BrokerProcess) -> None:
        """Register the supervisor, which restores what it holds, and three writers, one of an older generation."""
        self.broker = broker
        self.parent = self.join("parent", group="elsewhere", supervisorOwnerToken=TOKEN)
        known = {"capability": self.capability} if self.capability else {}
        self.parent.send({"type": "authorize_supervisor", "requestId": "s", "childName": CHILD, **known})
        self.capability = self.parent.expect("supervisor_authorized", **known)["capability"]
        self.writers = [self.join("one"), self.join("two"), self.join("old", is_newest=False)]

    def join(self, name: str, group: str = GROUP, *, is_newest: bool = True, **members: Any) -> RawClient:
        client = self.broker.connect()
        if is_newest:
            members["returnAddress"] = f"return-{name}"
            if name in self.ids:
                members["preferredSessionId"] = self.ids[name]
        client.register(name, session={"group": group}, **members)
        assert not is_newest or self.ids.setdefault(name, client.session_id) == client.session_id
        return client

    def child_joins(self, **members: Any) -> RawClient:
        claim = {"capability": self.capability, "supervisorSessionId": self.ids["parent"]}
        return self.join(CHILD, supervisor=claim, **members)

    def reserve(self, **members: Any) -> None:
        frame = {"type": "reserve_restoring_recipient", "requestId": "v", "capability": self.capability}
        self.parent.send({**frame, "group": GROUP, **members})
        assert "error" not in self.parent.expect("restoring_recipient_ack", requestId="v")

    def write(self, writer: RawClient, to: str, message_id: str, *, understands: bool = True, **message: Any) -> None:
        self.attempts += 1
        flag: dict[str, Any] = {"awaitRestoringRecipient": True} if understands else {}
        writer.send_message(to, message_id, message=message, attemptId=f"a{self.attempts}", **flag)

    def waits(self, writer: RawClient, to: str, message_id: str, **message: Any) -> None:
        self.write(writer, to, message_id, **message)
        assert writer.expect("send_held", messageId=message_id)["timeoutMs"] == 120_000


def in_silence(client: RawClient) -> None:
    """Fail if anything but news came for this client."""
    client.list("silence")


def arrivals(client: RawClient, count: int) -> list[str]:
    return [client.expect("message")["message"]["id"] for _ in range(count)]


def test_a_child_is_brought_back_under_its_capability_while_three_senders_wait(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """protocol 4.12, 6.11, 8.8, F94: nothing written in the gap is dropped, and it arrives in order, once"""
    first = start_broker()
    team = Team(first)
    child = team.child_joins()
    team.write(child, team.ids["one"], "q1", expectsReply=True)
    assert arrivals(team.writers[0], 1) == ["q1"]
    child.expect("delivered", messageId="q1")
    first.kill()

    team.come_to(start_broker())
    one, two, old = team.writers
    team.reserve(aliases=[team.ids[CHILD]])
    team.waits(one, CHILD, "m1")
    team.write(old, CHILD.upper(), "m2", understands=False)
    in_silence(old)
    team.waits(two, team.ids[CHILD], "m3", expectsReply=True)
    team.waits(one, team.ids[CHILD], "m4", replyTo="q1")
    team.write(two, CHILD, "m1")
    two.expect("delivery_failed", messageId="m1", reasonCode="message_id_conflict")

    child = team.child_joins()
    assert arrivals(child, 4) == ["m1", "m2", "m3", "m4"]
    for writer, message_id in ((one, "m1"), (old, "m2"), (two, "m3"), (one, "m4")):
        writer.expect("delivered", messageId=message_id)
    team.write(child, team.ids["two"], "r1", replyTo="m3")
    assert arrivals(two, 1) == ["r1"]
    child.expect("delivered", messageId="r1")
    for client in (one, two, old, child):
        in_silence(client)
    assert one.status()["broker"]["heldSends"] == 0


def test_a_child_that_does_not_come_back_is_gone_for_all(broker: BrokerProcess) -> None:
    """protocol 4.13: what waits fails with the supervisor's text, and so does what comes later"""
    team = Team(broker)
    one, two, old = team.writers
    team.reserve()
    team.waits(one, CHILD, "m1")
    team.write(old, CHILD, "m2", understands=False)
    in_silence(old)
    gone = {"capability": team.capability, "gone": "reviewer was cancelled"}
    team.parent.send({"type": "release_restoring_recipient", "requestId": "v2", **gone})
    team.parent.expect("restoring_recipient_ack", requestId="v2")
    one.expect("delivery_failed", messageId="m1", reason="reviewer was cancelled")
    old.expect("delivery_failed", messageId="m2", reason="reviewer was cancelled")
    team.write(two, CHILD, "m3")
    two.expect("delivery_failed", messageId="m3", reason="reviewer was cancelled")


def test_a_supervisor_that_dies_lets_go_what_waits_for_its_child(broker: BrokerProcess) -> None:
    """protocol 6.15: the sends kept aside are dispatched last"""
    team = Team(broker)
    one, two, _ = team.writers
    team.parent.send({"type": "join_group", "requestId": "j", "group": GROUP})
    team.parent.expect("membership_ack", requestId="j")
    team.reserve()
    team.waits(one, CHILD, "m1")
    team.waits(two, CHILD, "m2")
    two.close()
    one.expect("session_left", sessionId=team.ids["two"])
    team.parent.close()
    one.expect("session_left", sessionId=team.ids["parent"])
    one.expect("delivery_failed", messageId="m1", reason="Session not found")
    assert one.status()["broker"]["heldSends"] == 0


def test_a_hold_ends_in_time(start_broker: Callable[..., BrokerProcess]) -> None:
    """protocol 6.11: the time limit, with and without the flag"""
    team = Team(start_broker(command=SHORT_HOLDS))
    one, _, old = team.writers
    team.reserve()
    team.write(one, CHILD, "m1")
    assert one.expect("send_held")["timeoutMs"] == 900
    team.write(old, CHILD, "m2", understands=False)
    one.expect("delivery_failed", messageId="m1", reason=reasons.RESTORING_TIMED_OUT)
    old.expect("delivery_failed", messageId="m2", attemptId="a2", reason=reasons.RESTORING_TIMED_OUT)


def test_a_broker_stops_whoever_waits(broker: BrokerProcess) -> None:
    """protocol 6.11, 3.8: shutdown drops what waits silently, within its time"""
    team = Team(broker)
    one = team.writers[0]
    team.reserve()
    team.waits(one, CHILD, "m1")
    broker.signal(SIGTERM)
    one.expect_end()
    assert broker.wait(PATIENCE_S) == 0


def test_a_thousand_held_sends_leave_in_order(broker: BrokerProcess) -> None:
    """protocol 6.11: arrival order, up to the bounds of ten senders and ten children"""
    team = Team(broker)
    capabilities = []
    for number in range(10):
        team.parent.send({"type": "authorize_supervisor", "requestId": "s", "childName": f"child-{number}"})
        capabilities.append(team.parent.expect("supervisor_authorized")["capability"])
        team.capability = capabilities[-1]
        team.reserve()
    writers = [team.join(f"writer-{number}") for number in range(10)]
    for step in range(100):
        for number, writer in enumerate(writers):
            team.waits(writer, f"child-{step % 10}", f"m{step}.{number}")
    team.write(writers[0], "child-0", "one-more")
    refusal = writers[0].expect("delivery_failed", messageId="one-more")["reason"]
    assert reasons.code_of(refusal) == "capacity"
    for number, capability in enumerate(capabilities):
        claim = {"capability": capability, "supervisorSessionId": "x"}
        child = team.join(f"child-{number}", supervisor=claim)
        expected = [f"m{step}.{writer}" for step in range(number, 100, 10) for writer in range(10)]
        assert arrivals(child, 100) == expected
    for number, writer in enumerate(writers):
        delivered = [writer.expect("delivered")["messageId"] for _ in range(100)]
        assert delivered == [f"m{step}.{number}" for child in range(10) for step in range(child, 100, 10)]
