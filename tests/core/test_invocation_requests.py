"""Test answers to requests about invocations: what they wait for, and what they refuse (protocol 13.2)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.invocation_targets import address_id
from intercom.limits import Limits
from tests.core.harness import World
from tests.core.invoking import INVOKER, invoke, invoker, run_of, snapshot, tasks, update
from tests.core.mail import Agent, enter, holder
from tests.core.work import ask

LIMITS = Limits()


def scene() -> tuple[World, Agent, Agent]:
    """Return a world with somebody who asks, and somebody who is asked."""
    world = World()
    return world, invoker(world), invoker(world, "builder")


def answer(client: Agent) -> dict[str, Any]:
    """Return the one answer that came by now."""
    [found] = [frame for frame in client.got() if frame.get("requestId") == "r"]
    return found


@pytest.mark.parametrize("features", [("invoke",), ("invoke", "queue")])
def test_who_has_no_mailbox_is_told_at_once_why_a_label_led_to_nobody(features: tuple[str, ...]) -> None:
    """FE 3.4: the diagnosis goes to the requester's session; an older client is told by the answer alone"""
    world = World()
    asker = enter(world, "asker", features=features)
    assert "diagnosis" in invoke(asker, "@nobody")
    notices = [frame for frame in asker.got() if frame["type"] == "message"]
    assert len(notices) == ("queue" in features)
    for notice in notices:
        assert notice["notice"]["messageId"] == "inv-1"


def test_a_snapshot_waits_for_what_it_tells_of() -> None:
    """FE 5.1: nothing is told before it is recorded"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    world.auto = False
    builder.write("run_update", requestId="u", invocationId="inv-1", updateId="u", state="completed", output="built")
    asker.write("invocation_get", requestId="r", invocationId="inv-1")
    assert not world.reads
    world.auto = True
    world.settle()
    assert answer(asker)["run"]["output"] == "built"


def test_a_snapshot_of_what_could_not_be_recorded_is_refused() -> None:
    """design 3.6: every answer that rests on a row"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    world.auto = False
    builder.write("run_update", requestId="u", invocationId="inv-1", updateId="u", state="completed")
    asker.write("invocation_get", requestId="r", invocationId="inv-1")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert (answer(asker)["code"], run_of(asker)["state"]) == ("not_recorded", "running")


def test_texts_that_cannot_be_read_now() -> None:
    """FE 5.1: ask again"""
    world, asker, _ = scene()
    invoke(asker)
    world.auto = False
    asker.write("invocation_get", requestId="r", invocationId="inv-1")
    world.read(fails=True)
    world.auto = True
    world.settle()
    refused = answer(asker)
    assert (refused["code"], refused["retryable"]) == ("not_read", True)


def test_a_run_that_went_on_while_its_texts_were_read_is_read_anew() -> None:
    """FE 3.3: the answer tells one moment"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    world.auto = False
    asker.write("invocation_get", requestId="r", invocationId="inv-1")
    assert len(world.reads) == 1
    builder.write("run_update", requestId="u", invocationId="inv-1", updateId="u", state="completed", output="built")
    world.auto = True
    world.settle()
    run = answer(asker)["run"]
    assert (run["state"], run["output"]) == ("completed", "built")


@pytest.mark.parametrize(
    "texts",
    [
        {"output": "x" * (LIMITS.run_result_bytes + 1)},
        {"output": "é" * (LIMITS.run_result_bytes // 2 + 1)},
        {"summary": "x" * (LIMITS.run_text_characters + 1)},
        {"error": "x" * (LIMITS.run_text_characters + 1)},
    ],
    ids=["output", "bytes of output", "summary", "error"],
)
def test_texts_of_an_update_are_bounded(texts: dict[str, str]) -> None:
    """FE 3.4, protocol 13.2"""
    _, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    assert update(builder, "completed", **texts)["code"] == "invalid_update"
    assert run_of(asker)["state"] == "running"


def test_texts_of_a_run_that_goes_on_give_way_to_newer_ones() -> None:
    """design section 5, Privacy: no body is kept that nothing shows any more"""
    world, asker, builder = scene()
    invoke(asker)
    tasks(builder)
    update(builder, "running", summary="half")
    bodies = len(world.disk.bodies)
    update(builder, "running", summary="nearly all")
    world.pass_time(2 * LIMITS.tidy_ms)
    assert len(world.disk.bodies) == bodies and run_of(asker)["summary"] == "nearly all"


def test_the_oldest_diagnosis_gives_way_and_comes_back_when_the_newest_could_not_be_recorded() -> None:
    """design 3.6, FE open point 24"""
    world = World(limits=Limits(diagnoses=1))
    asker = invoker(world)
    invoke(asker, "@one", "i1")
    world.auto = False
    asker.write("invoke", requestId="r", invocationId="i2", target="@two", task="t")
    world.fail_commit()
    world.auto = True
    world.settle()
    assert len(snapshot(asker, "i1")["diagnoses"]) == 1
    invoke(asker, "@two", "i2")
    assert snapshot(asker, "i1")["diagnoses"] == [] and len(snapshot(asker, "i2")["diagnoses"]) == 1
    assert len(world.disk.diagnoses) == 1


def test_more_than_are_kept_may_be_open() -> None:
    """Charge before you link: only what has ended gives way"""
    world = World(limits=Limits(invocations_kept=1))
    asker = invoker(world)
    invoker(world, "builder").leave()
    for number in range(3):
        assert invoke(asker, invocation_id=f"i{number}")["type"] == "invocation_accepted"
    assert [each["invocationId"] for each in ask(asker, "invocation_list")["invocations"]] == ["i2", "i1", "i0"]


def test_the_id_of_a_holder_that_is_away_is_nobodys() -> None:
    """Design section 7: what is its own is its address's, which has an id of its own"""
    world = World()
    asker, desk = invoker(world), holder(world, "desk", features=INVOKER)
    desk.leave()
    assert "diagnosis" in invoke(asker, desk.id)
    assert invoke(asker, "@desk", "inv-2")["targetId"].startswith("address:")


def test_the_id_of_an_address_leads_to_none_of_the_others() -> None:
    """protocol 6.13.9: all brokers know an address by it"""
    world = World()
    asker = invoker(world)
    for name in ("attic", "depot", "desk"):
        holder(world, name, features=INVOKER)
    found = {name: address_id("default", name) for name in ("desk", "attic", "depot")}
    for name, target in found.items():
        assert invoke(asker, target, name)["targetId"] == invoke(asker, f"@{name}", f"again-{name}")["targetId"]
    assert "diagnosis" in invoke(asker, address_id("default", "cellar"), "nobody")


@pytest.mark.parametrize("by", ["terminal", "push"])
def test_the_id_of_a_session_that_takes_nothing_more_leads_to_nobody(by: str) -> None:
    """Protocol 13.2.2.5: terminal, or its host says it can be shown nothing: it is never meant, by its id neither"""
    world = World()
    asker, builder = invoker(world), invoker(world, "builder")
    assert invoke(asker, builder.id)["targetId"] == builder.id
    builder.write("presence", **({"replyCapability": "terminal"} if by == "terminal" else {"push": "none"}))
    assert invoke(asker, builder.id, "inv-2")["diagnosis"]["kind"] == "unknown", "nobody has that name"
    assert invoke(asker, "@builder", "inv-3")["diagnosis"]["kind"] == "unavailable"


def test_who_only_acts_under_an_address_has_an_id_of_its_own() -> None:
    """Protocol 13.2.2.1, 9.3: its id means that session alone; the name means the address, whoever holds it"""
    world = World()
    asker = invoker(world)
    desk = holder(world, "desk", token="t" * 32, features=INVOKER)
    helper = holder(world, "desk", token="t" * 32, hold="none", features=INVOKER)
    stranger = invoker(world, "stranger", info={"groups": ["far"]})
    assert invoke(asker, helper.id)["targetId"] == helper.id
    assert (len(tasks(helper)), tasks(desk)) == (1, [])
    assert invoke(asker, "@desk", "inv-2")["targetId"].startswith("address:")
    assert (tasks(helper), len(tasks(desk))) == ([], 1)
    assert "diagnosis" in invoke(stranger, helper.id, "inv-3")
