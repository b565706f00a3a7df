"""Test what goes with a task: what is taken, refused, stored, handed over, and what makes two requests the same."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode

from intercom.core.invocation_texts import fingerprint, is_same
from intercom.core.records import Forward
from intercom.limits import Limits
from intercom.wire.invocations import Invoke
from tests.core.harness import World
from tests.core.invoking import invoke, invoker, snapshot, task_worker, tasks, update
from tests.core.mail import enter, holder, reattach
from tests.core.peers import FakePeer
from tests.core.work import ask

LIMITS = Limits()
TOLD: dict[str, Any] = {
    "execution": {"kind": "headless", "model": "opus", "session": "existing", "targetSessionId": "t-1"},
    "labels": ["release", "friday"],
    "stream": True,
    "messageId": "m-7",
}
BESIDE: dict[str, Any] = {"context": "for\r\nFriday", "metadata": {"ticket": 7, "deep": [{"a": None}]}, **TOLD}
CARRIED = [{"type": "context", "name": "context", "content": "for\nFriday"}]


def test_whoever_is_handed_the_task_is_told_all_of_it() -> None:
    """FE 3.2; protocol 13.3.1: a session that is here."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    answer = invoke(asker, **BESIDE)
    [task] = tasks(builder)
    assert task["message"]["content"] == {"text": "build it", "attachments": CARRIED}
    assert task["message"]["metadata"] == BESIDE["metadata"]
    ids = {"invocationId": "inv-1", "runId": answer["runId"], "action": "execute"}
    assert task["invocation"] == {**ids, **TOLD}


def test_it_outlives_the_broker_while_the_target_is_away() -> None:
    """FE 3.2, A3.2; protocol 13.3.1"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    builder.leave()
    invoke(asker, **BESIDE)
    world.start()
    asker = reattach(world, asker)
    told = snapshot(asker)["invocation"]
    assert {name: told[name] for name in BESIDE} == {**BESIDE, "context": "for\nFriday"}
    [task] = tasks(reattach(world, builder))
    assert (task["message"]["content"]["attachments"], task["message"]["metadata"]) == (CARRIED, BESIDE["metadata"])
    assert task["invocation"].items() >= TOLD.items()


def test_a_worker_finds_it_with_its_work() -> None:
    """protocol 13.3.1, 5.54"""
    world = World()
    asker, worker = invoker(world), task_worker(world, "builder")
    invoke(asker, **BESIDE)
    granted = ask(worker, "inbox_await", timeoutMs=0, markAttempt=False, claim=True)
    assert granted["invocation"].items() >= TOLD.items()
    assert granted["message"]["content"]["attachments"] == CARRIED


def test_who_knows_nothing_of_invocations_still_reads_the_context() -> None:
    """protocol 13.3.1"""
    world = World()
    asker, builder = invoker(world), holder(world, "builder")
    invoke(asker, **BESIDE)
    [task] = tasks(builder)
    assert "invocation" not in task
    assert task["message"]["content"]["attachments"] == CARRIED


def test_the_wish_to_stop_repeats_nothing_of_it() -> None:
    """protocol 5.9"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    answer = invoke(asker, **BESIDE)
    tasks(builder)
    ask(asker, "invocation_cancel", invocationId="inv-1")
    [notice] = [frame for frame in builder.mail() if frame["type"] == "message"]
    ids = {"invocationId": "inv-1", "runId": answer["runId"], "action": "execute"}
    assert notice["invocation"] == {**ids, "cancelled": True}


def test_lists_hold_what_is_in_the_row_and_no_texts() -> None:
    """protocol 5.81, 5.82"""
    world = World()
    asker = invoker(world)
    invoker(world, "builder")
    invoke(asker, **BESIDE)
    [entry] = ask(asker, "invocation_list")["invocations"]
    assert entry.items() >= TOLD.items()
    assert not {"task", "context", "metadata"} & entry.keys()


def test_texts_go_with_the_task() -> None:
    """protocol 13.5: what has ended is remembered longer than its texts."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    invoke(asker, **BESIDE)
    tasks(builder)
    update(builder, "completed", output="built")
    world.start()
    world.pass_time(LIMITS.bodies_kept_ms + 2 * LIMITS.tidy_ms)
    person = enter(world, features=("operator", "invoke"), info={"recipientPurpose": "control"})
    told = snapshot(person)["invocation"]
    assert not {"task", "context", "metadata"} & told.keys()
    assert told["labels"] == TOLD["labels"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, ["plain", "both", "one"]),
        (["release"], ["both", "one"]),
        (["friday", "release"], ["both"]),
        (["release", "release"], ["both", "one"]),
        (["Release"], []),
        (["rel"], []),
    ],
)
def test_a_list_holds_those_that_were_given_all_of_the_labels(wanted: list[str] | None, found: list[str]) -> None:
    """protocol 4.77: whole words; a page holds as many of them as it may."""
    world = World()
    asker = invoker(world)
    invoker(world, "builder")
    invoke(asker, invocation_id="one", labels=["release"])
    invoke(asker, invocation_id="both", labels=["release", "friday"])
    invoke(asker, invocation_id="plain")
    asked = {} if wanted is None else {"labels": wanted}
    listed = ask(asker, "invocation_list", **asked)["invocations"]
    assert [each["invocationId"] for each in listed] == found
    first = ask(asker, "invocation_list", limit=1, **asked)["invocations"]
    assert [each["invocationId"] for each in first] == found[:1]


@pytest.mark.parametrize(
    "other",
    [
        {"context": "for Monday"},
        {"metadata": {"ticket": 8}},
        {"execution": {"model": "haiku"}},
        {"labels": ["friday", "release"]},
        {"stream": False},
        {"messageId": "m-8"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_one_under_the_same_id_is_a_conflict(other: dict[str, Any]) -> None:
    """FE 3.8, A3.3"""
    world = World()
    asker = invoker(world)
    invoker(world, "builder")
    first = invoke(asker, **BESIDE)
    reordered = {"deep": BESIDE["metadata"]["deep"], "ticket": 7}
    again = invoke(asker, **{**BESIDE, "context": "for\nFriday", "metadata": reordered})
    assert again["runId"] == first["runId"]
    assert invoke(asker, **{**BESIDE, **other})["code"] == "invocation_conflict"


def test_a_request_without_any_of_it_has_the_fingerprint_it_always_had() -> None:
    """FE 3.8: a store written by an earlier version still knows its repetitions."""
    plain = Invoke("r", "i", "build it", "@builder")
    before = "212946907251528226e1863b1cc4a88d22fa451b0aeacb004559f4a790700782"
    assert is_same(before, fingerprint("session:a", plain, None))
    assert is_same(fingerprint("session:a", plain, None), before)
    assert not is_same(before, fingerprint("session:b", plain, None))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"context": " \n"}, "context is empty"),
        ({"context": "é" * (LIMITS.invocation_context_bytes // 2 + 1)}, f"{LIMITS.invocation_context_bytes} bytes"),
        ({"metadata": {"a": "x" * LIMITS.invocation_metadata_bytes}}, f"{LIMITS.invocation_metadata_bytes} bytes"),
        ({"metadata": {"a": 10**400}}, "a number that not every program can read"),
        ({"labels": ["x"] * (LIMITS.invocation_labels + 1)}, f"{LIMITS.invocation_labels} labels"),
        ({"labels": [" "]}, "is blank"),
        ({"labels": ["x" * (LIMITS.invocation_word_characters + 1)]}, f"{LIMITS.invocation_word_characters} char"),
        ({"messageId": "x" * (LIMITS.invocation_word_characters + 1)}, f"{LIMITS.invocation_word_characters} char"),
        ({"execution": {"model": "\t"}}, "is blank"),
        ({"execution": {"session": "existing"}}, "needs targetSessionId"),
        ({"execution": {"session": "new", "targetSessionId": "t"}}, "leaves no room for targetSessionId"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_begins(members: dict[str, Any], said: str) -> None:
    """protocol 4.75, 13.6"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    refused = invoke(asker, **members)
    assert (refused["type"], refused["code"], refused["retryable"]) == ("request_failed", "invalid_invocation", False)
    assert said in refused["reason"]
    assert tasks(builder) == [] and snapshot(asker)["known"] is False
    assert invoke(asker)["state"] == "queued", "the id is free"


@pytest.mark.parametrize(
    "members",
    [
        {"conversationId": "c"},
        {"targetBrokerId": "b"},
        {"execution": {"where": "here"}},
        {"execution": {"session": "old"}},
        {"labels": [""]},
        {"labels": "release"},
        {"metadata": []},
        {"stream": 1},
        {"messageId": ""},
    ],
    ids=str,
)
def test_what_has_no_such_form_is_refused_by_name(members: dict[str, Any]) -> None:
    """FE 0.3, design section 7 (0.3, 3.4); protocol 9.6.2, 13.3.1"""
    world = World()
    asker = invoker(world)
    invoker(world, "builder")
    refused = invoke(asker, **members)
    assert (refused["type"], refused["code"]) == ("request_failed", "bad_request")
    assert any(name in refused["reason"] for name in (*members, "where", "session"))
    assert snapshot(asker)["known"] is False


def test_the_largest_one_is_taken() -> None:
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    word = "x" * LIMITS.invocation_word_characters
    text = {"task": "t" * LIMITS.invocation_bytes, "context": "c" * LIMITS.invocation_context_bytes}
    labels = [word] * LIMITS.invocation_labels
    metadata = {"a": "m" * (LIMITS.invocation_metadata_bytes - len('{"a":""}'))}
    assert invoke(asker, **text, labels=labels, metadata=metadata, messageId=word)["state"] == "queued"
    [task] = tasks(builder)
    assert task["invocation"]["labels"] == labels


def test_a_peer_is_sent_it_too() -> None:
    """protocol 13.7"""
    world = World()
    peer = FakePeer(world)
    peer.come()
    invoke(invoker(world), **BESIDE)
    [forward, _] = peer.serve()
    assert isinstance(forward, Forward) and forward.task.wishes is not None
    assert decode(forward.task.wishes) == TOLD
    assert decode(forward.task.message)["metadata"] == BESIDE["metadata"]


def test_half_an_emoji_costs_nobody_anything() -> None:
    """Design section 3.1: lone surrogates become U+FFFD."""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    payload = (
        r'{"type":"invoke","requestId":"r","invocationId":"inv-1","target":"@builder","task":"t\ud83d",'
        r'"context":"a\ud83d","metadata":{"k\ud83d":["\ud83d"]},"labels":["l\ud83d"],"execution":{"model":"m\ud83d"}}'
    )
    world.feed(asker.conn, payload.encode())
    [task] = tasks(builder)
    assert task["message"]["content"] == {
        "text": "t\ufffd",
        "attachments": [{"type": "context", "name": "context", "content": "a\ufffd"}],
    }
    assert task["message"]["metadata"] == {"k\ufffd": ["\ufffd"]}
    assert (task["invocation"]["labels"], task["invocation"]["execution"]) == (["l\ufffd"], {"model": "m\ufffd"})
