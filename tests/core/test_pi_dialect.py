"""Test what recent pi-intercom clients send and read (protocol 15.4)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.pi_dialect import OUTCOME_UNKNOWN, RETRYABLE, dressed
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import Queued
from tests.core.harness import Client, World

EXTRA = {"delivery", "retryable", "outcomeKnown"}


def pi(world: World, name: str = "pi", **members: Any) -> Client:
    return world.register(name, **{"sessionId": "wish", **members})


def answer(frames: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [frame for frame in frames if frame["type"] in ("delivered", "delivery_failed")]
    return found


def test_only_its_own_kind_reads_more() -> None:
    world = World()
    client, other = pi(world), world.register("other", returnAddress="r")
    told = answer(client.message("other", "m1"))
    assert {name: told[name] for name in EXTRA} == {"delivery": "delivered", "retryable": False, "outcomeKnown": True}
    told = answer(client.message("nobody", "m2"))
    assert {name: told[name] for name in EXTRA} == {"delivery": "failed", "retryable": False, "outcomeKnown": True}
    assert not EXTRA & set(answer(other.message("pi", "m3")))


@pytest.mark.parametrize(
    "members",
    [
        {"returnAddress": "r", "sessionId": "x"},
        {"preferredSessionId": "p", "sessionId": "x"},
        {"sessionId": 7},
        {},
    ],
    ids=str,
)
def test_who_does_not_show_to_be_of_its_kind_is_not(members: dict[str, Any]) -> None:
    world = World()
    world.register("other")
    client = world.register("some", **members)
    assert not EXTRA & set(answer(client.message("other", "m1")))


@pytest.mark.parametrize("kind", ["message_receipt", "cancel_message"])
def test_a_frame_of_its_own_shows_it_too(kind: str) -> None:
    world = World()
    world.register("other")
    client = world.register("some")
    client.write(kind, messageId="unknown")
    assert set(answer(client.message("other", "m1"))) >= EXTRA


@pytest.mark.parametrize("message_id", [None, 7, [], {}, "", "unknown"], ids=repr)
@pytest.mark.parametrize("kind", ["message_receipt", "cancel_message"])
def test_nothing_it_sends_ends_the_connection(kind: str, message_id: Any) -> None:
    world = World()
    client = pi(world)
    assert client.write(kind, messageId=message_id, more={"a": 1}) == []
    assert client.write(kind) == []
    assert client.write("presence", status="busy", contextTokens=5, contextWindow=9.5, contextPercent=None) == []
    assert not world.destroyed and not world.finished


@pytest.mark.parametrize("features", [["receipts", "cancel"], {"receipts": True}, "receipts", 7, None, []], ids=repr)
def test_features_of_its_own_are_none_of_ours(features: Any) -> None:
    """FE 0.6: a list of ours without kind and version is a fault; another client's is not about us"""
    client = pi(World(), features=features)
    assert "features" not in client.first[0]


def test_its_receipts_are_receipts_from_the_first_on() -> None:
    """Protocol 15.4, 6.10"""
    world = World()
    client, sender = pi(world), world.register("sender", returnAddress="r")
    assert answer(sender.message("pi", "m1"))["type"] == "delivered", "nobody knows yet that it confirms"
    client.write("message_receipt", messageId="m1")
    assert sender.message("pi", "m2") == [], "it waits for the receipt"
    client.write("message_receipt", messageId="m2")
    assert answer(sender.got())["messageId"] == "m2"


def test_a_message_it_does_not_confirm_counts_as_before() -> None:
    """Protocol 15.4: never worse than without receipts"""
    world = World()
    client, sender = pi(world), world.register("sender", returnAddress="r")
    client.write("message_receipt", messageId="unknown")
    assert sender.message("pi", "m1") == []
    world.pass_time(Limits().busy_ms)
    assert answer(sender.got())["type"] == "delivered"
    assert answer(sender.message("pi", "m2"))["type"] == "delivered", "it is not waited for again"
    client.write("message_receipt", messageId="m2")
    assert sender.message("pi", "m3") == []


def test_what_the_kernel_does_not_take_is_not_delivered() -> None:
    """Protocol 15.4, 5.11: the outcome stays unknown while the frame is still being written"""
    world = World()
    client, sender = pi(world), world.register("sender", returnAddress="r")
    client.write("message_receipt", messageId="unknown")
    world.deaf.add(client.conn)
    sender.message("pi", "m1")
    world.pass_time(Limits().busy_ms)
    assert reasons.code_of(answer(sender.got())["reason"]) == "receipt_missing"


def test_a_question_it_takes_back_is_closed() -> None:
    world = World()
    client, other = pi(world), world.register("other", returnAddress="r")
    client.ask("other", "q1")
    client.write("cancel_message", messageId="q1")
    assert reasons.code_of(answer(other.reply("pi", "r1", "q1"))["reason"]) == "no_open_question"


def test_the_codes_are_codes() -> None:
    known = {code for _, code in reasons._CODES}
    assert known >= OUTCOME_UNKNOWN and known >= RETRYABLE


def test_how_full_its_context_is_can_be_seen() -> None:
    """Protocol 15.4: numbers are kept and shown to peers with when they came; null takes one back."""
    world = World()
    other, client = world.register("other"), pi(world)
    other.got()
    client.write("presence", contextTokens=13_000, contextWindow=200_000, contextPercent=6.5)
    [update] = [frame["session"] for frame in other.got() if frame["type"] == "presence_update"]
    shown = {member: value for member, value in update.items() if member.startswith("context")}
    assert shown == {
        "contextTokens": 13_000,
        "contextWindow": 200_000,
        "contextPercent": 6.5,
        "contextAt": world.wall,
    }
    client.write("presence", contextTokens=None, contextWindow="big", contextPercent=-1)
    [update] = [frame["session"] for frame in other.got() if frame["type"] == "presence_update"]
    assert ("contextTokens" in update, update["contextWindow"], update["contextPercent"]) == (False, 200_000, 6.5)
    client.write("presence", contextWindow=None, contextPercent=None)
    [update] = [frame["session"] for frame in other.got() if frame["type"] == "presence_update"]
    assert not any(member.startswith("context") for member in update)
    assert not world.destroyed


def test_a_presence_that_says_nothing_of_it_changes_nothing_of_it() -> None:
    """Protocol 15.4."""
    world = World()
    other, client = world.register("other"), pi(world)
    client.write("presence", contextTokens=5)
    at = world.wall
    world.pass_time(1_000)
    other.got()
    client.write("presence", status="busy")
    [update] = [frame["session"] for frame in other.got() if frame["type"] == "presence_update"]
    assert (update["contextTokens"], update["contextAt"]) == (5, at)


def test_what_waits_is_told_to_it_as_queued() -> None:
    """Protocol 15.4: in the words it reads for a message that has not arrived and is not lost."""
    told = dressed(Queued("m1", "other", 1, "a"))
    assert (told.delivery, told.retryable, told.outcome_known) == ("queued", False, True)
    assert (told.message_id, told.target, told.position, told.attempt_id) == ("m1", "other", 1, "a")
