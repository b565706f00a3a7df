"""Test which features a registration gets (FE 0.6)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.features import Refused, grant
from intercom.wire.frames import Register
from tests.core.harness import INFO, World, without_announcements
from tests.core.mail import AGENT, enter, operator, reattach


def register(features: Any, *, control: bool = False, **members: Any) -> Register:
    info = {**INFO, **({"recipientPurpose": "control"} if control else {})}
    return Register(info, features=features, **{"kind": "custom", "client_protocol_version": "1.0", **members})


def test_who_asks_for_nothing_gets_nothing() -> None:
    assert grant(Register(dict(INFO)), is_durable=True) == frozenset()


def test_everything_an_agent_may_ask_for() -> None:
    granted = grant(register([*AGENT, "operator", "future"], acknowledges_receipt=True), is_durable=True)
    assert granted == frozenset(AGENT)


def test_what_outlives_a_connection_needs_receipts_and_a_store() -> None:
    assert grant(register(list(AGENT)), is_durable=True) == {"queue"}
    no_receipts = register(["session.lifecycle", "address"], acknowledges_receipt=True)
    assert grant(no_receipts, is_durable=True) == frozenset()
    assert grant(register(list(AGENT), acknowledges_receipt=True), is_durable=False) == {"queue", "push.receipts"}


def test_control_sessions_may_operate_and_own_nothing() -> None:
    asked = register([*AGENT, "operator"], control=True, acknowledges_receipt=True)
    assert grant(asked, is_durable=True) == {"operator", "queue", "push.receipts"}


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"features": "queue"}, "bad_request"),
        ({"features": [1]}, "bad_request"),
        ({"features": None}, "bad_request"),
        ({"kind": ""}, "bad_request"),
        ({"kind": 5}, "bad_request"),
        ({"client_protocol_version": None}, "bad_request"),
        ({"client_protocol_version": "one"}, "bad_request"),
        ({"client_protocol_version": "2.0"}, "protocol_version_mismatch"),
    ],
)
def test_a_wrong_request_is_refused(members: dict[str, Any], code: str) -> None:
    """FE 1.6, handshake; F18: a version that is newer, or none."""
    refused = grant(register(**{"features": ["queue"], **members}), is_durable=True)
    assert isinstance(refused, Refused)
    assert refused.code == code


@pytest.mark.parametrize(
    "wrong",
    [
        {"work_mode": "sometimes"},
        {"work_mode": "managed_turn"},
        {"work_mode": "managed_turn", "runtime_session_id": " "},
        {"execution_surface": "elsewhere"},
        {"workspace": {"root": "/w"}},
        {"workspace": {"root": "/w", "cwd": ""}},
        {"workspace": 5},
    ],
)
def test_a_worker_says_how_it_works(wrong: dict[str, Any]) -> None:
    """protocol 10.1: a worker that breaks the rules for one of its members is no worker of another kind"""
    asked = {"features": [*AGENT, "work.assignments"], "acknowledges_receipt": True, "work_mode": "resident"}
    assert "work.assignments" in grant(register(**asked), is_durable=True)
    refused = grant(register(**{**asked, **wrong}), is_durable=True)
    assert isinstance(refused, Refused)
    assert refused.code == "bad_request"


def test_a_refusal_ends_the_connection() -> None:
    world = World()
    conn = world.connect()
    frames = world.send(conn, type="register", session=INFO, features=["queue"], kind="custom")
    assert (frames[0]["type"], frames[0]["code"]) == ("registration_failed", "bad_request")
    assert conn in world.finished


def test_an_older_client_sees_nothing_new() -> None:
    """A1.18: neither frames nor members."""
    world = World()
    older = world.register("old", returnAddress="r", acknowledgesReceipt=True)
    assert older.first[0].keys() == {
        "type",
        "sessionId",
        "acknowledgesReceipt",
        "acknowledgesPendingStageRoutes",
        "brokerStatus",
    }
    agent = enter(world, "a")
    agent.queue("old", "m1")
    message = next(frame for frame in older.got() if frame["type"] == "message")
    assert message.keys() == {"type", "from", "message"}
    agent.leave()
    reattach(world, agent)
    assert [frame["type"] for frame in older.got()] == ["session_left", "session_joined"]
    for kind in ("trace", "pending", "addresses", "mailbox", "session_records", "purge", "task_hint"):
        more = {"trace": {"messageId": "m1"}, "task_hint": {"taskHint": "x"}}.get(kind, {})
        answer = without_announcements(older.write(kind, requestId="r", **more))[0]
        assert (answer["type"], answer["code"]) == ("request_failed", "feature_not_granted")


def test_a_request_with_wrong_members_is_refused_by_name() -> None:
    """FE 0.3: unknown fields are refused and named in the reason."""
    world = World()
    person = operator(world)
    refused = person.write("trace", requestId="r", messageId="m", depth=3)[0]
    assert refused["code"] == "bad_request"
    assert "depth" in refused["reason"]
