"""Test the field cases about supervisors as far as their children are brought back."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from intercom.wire import reasons
from tests.core.family import GROUP, Family, capability_of, hold, ids, release
from tests.core.harness import INFO, Client, answers, is_delivered, only, reason, types, without_announcements

NAMES = ("ann", "bea", "cal", "dan", "eve")


def child_of(family: Family, capability: str, name: str, **members: Any) -> Client:
    return family.child(capability, name=name, returnAddress=f"ret-{capability}", **members)


def restart(family: Family, capabilities: dict[str, str]) -> None:
    """Kill the broker; the supervisor comes back and presents its capabilities again."""
    family.world.crash()
    family.parent = family.supervisor("parent", returnAddress="ret-parent", preferredSessionId=family.parent.id)
    for name, capability in capabilities.items():
        assert capability_of(family.parent, name, capability=capability) == capability


def test_f90_messages_reach_the_child_of_the_parent_they_were_meant_for() -> None:
    """F90: two parents with one name, three children each with the same names, parents restarting"""
    family = Family()
    groups = ("team-0", "team-1")
    parents = [
        family.supervisor("lead", token=f"token-{number}", returnAddress=f"ret-lead-{number}") for number in range(2)
    ]
    capabilities = [[capability_of(parent, name) for name in NAMES[:3]] for parent in parents]
    children = [
        [child_of(family, capabilities[side][place], NAMES[place], group=groups[side]) for place in range(3)]
        for side in range(2)
    ]
    writers = [family.sender(f"writer-{side}", groups[side]) for side in range(2)]
    for request in range(100):
        side, place = request % 2, request % 3
        name, capability = NAMES[place], capabilities[side][place]
        child = children[side][place]
        if request % 10 == 4:
            parents[side].leave()
            assert reason(child.message(parents[side].id, f"gone{request}", kind="supervisor_send")) == (
                "Session not found"
            )
            parents[side] = family.supervisor(
                "lead",
                token=f"token-{side}",
                returnAddress=f"ret-lead-{side}",
                preferredSessionId=parents[side].id,
            )
            for again, known in zip(NAMES, capabilities[side], strict=False):
                capability_of(parents[side], again, capability=known)
        for parent in parents:
            parent.got()
        child.got()
        assert is_delivered(child.message(parents[side].id, f"up{request}", kind="supervisor_send"))
        assert ids(parents[side].got()) == [f"up{request}"] and ids(parents[1 - side].got()) == []
        child.leave()
        family.reserve(capability, by=parents[side], group=groups[side], aliases=[child.id])
        hold(writers[side], f"name{request}", name)
        hold(writers[side], f"id{request}", child.id)
        writers[1 - side].got()
        assert reason(writers[1 - side].message(child.id, f"foreign{request}")) == "Session not found"
        children[side][place] = child = child_of(family, capability, name, group=groups[side])
        assert ids(child.first + child.got()) == [f"name{request}", f"id{request}"]
        assert ids(children[1 - side][place].got()) == []


@pytest.mark.parametrize("how", ["returns", "gone", "refusal"])
def test_f92_one_sibling_ends_only_its_own_entry(how: str) -> None:
    """F92: five children, an end in every order; the remaining ones are still waited for"""
    for number, order in enumerate(permutations(range(5))):
        if number % 7:
            continue
        family = Family()
        capabilities = [capability_of(family.parent, name) for name in NAMES]
        for capability in capabilities:
            family.reserve(capability)
        writer = family.sender()
        for place in range(5):
            hold(writer, f"m{place}", NAMES[place])
        writer.got()
        waiting = set(range(5))
        for place in order:
            waiting.remove(place)
            if how == "returns":
                child = family.child(capabilities[place], name=NAMES[place])
                assert ids(child.first + child.got()) == [f"m{place}"]
                child.leave()
            else:
                release(family.parent, capabilities[place], **{how: "no"})
            assert [answer["messageId"] for answer in answers(writer.got())] == [f"m{place}"]
            for other in range(5):
                extra = {"awaitRestoringRecipient": True}
                got = without_announcements(writer.message(NAMES[other], f"n{place}.{other}", extra=extra))
                assert types(got) == (["send_held"] if other in waiting else ["delivery_failed"])
            for other in waiting:
                release(family.parent, capabilities[other], refusal="for the next round")
                family.reserve(capabilities[other])
                writer.got()
                hold(writer, f"m{other}", NAMES[other])


def test_f94_authority_is_restored_in_any_order_after_a_broker_restart() -> None:
    """F94: one parent, five children, children first; what is asked in the gap is refused or waits, never dropped"""
    family = Family()
    family.parent.leave()
    family.parent = family.supervisor("parent", returnAddress="ret-parent")
    capabilities = {name: capability_of(family.parent, name) for name in NAMES}
    children = {name: child_of(family, capability, name) for name, capability in capabilities.items()}
    family.world.crash()
    for name, capability in capabilities.items():
        conn = family.world.connect()
        claim = {"capability": capability, "supervisorSessionId": family.parent.id}
        got = family.world.send(conn, type="register", session={**INFO, "name": name}, supervisor=claim)
        assert only(got)["reason"] == reasons.INVALID_SUPERVISOR, "told at once, to be tried again"
    writer = family.sender()
    assert reason(writer.message("ann", "m0")) == "Session not found"
    restart(family, capabilities)
    writer = family.sender()
    for name, capability in capabilities.items():
        family.reserve(capability, aliases=[children[name].id])
    for place, name in enumerate(NAMES):
        hold(writer, f"m{place}", children[name].id, expectsReply=True)
    for place, name in reversed(list(enumerate(NAMES))):
        child = child_of(family, capabilities[name], name, preferredSessionId=children[name].id)
        assert child.id == children[name].id and ids(child.first + child.got()) == [f"m{place}"]
        assert is_delivered(writer.got())
        family.parent.got()
        assert is_delivered(child.message(family.parent.id, f"up{place}", kind="supervisor_send", expectsReply=True))
        assert ids(family.parent.got()) == [f"up{place}"]
        child.got()
        assert is_delivered(family.parent.reply(child.id, f"down{place}", f"up{place}"))
        assert ids(child.got()) == [f"down{place}"]
        assert is_delivered(child.reply(writer.id, f"answer{place}", f"m{place}"))
        assert ids(writer.got()) == [f"answer{place}"]


def test_f95_nothing_held_is_called_delivered() -> None:
    """F95: delivered only after the recipient took it, also out of a hold"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    family.world.auto = False
    conn = family.world.connect()
    claim = {"capability": family.capability, "supervisorSessionId": "x"}
    info = {**INFO, "name": "reviewer", "group": GROUP}
    family.world.send(conn, type="register", session=info, supervisor=claim)
    family.world.deaf.add(conn)
    family.world.settle()
    assert answers(writer.got()) == []
    family.world.deaf.clear()
    family.world.settle()
    assert ids(family.world.got(conn)) == ["m1"] and is_delivered(writer.got())
