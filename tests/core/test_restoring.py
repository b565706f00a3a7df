"""Test the reservations of restoring recipients: who may make them, what they say, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import RESTORING_GROUP_CHARACTERS, Limits
from intercom.wire import reasons
from tests.core.family import (
    CHILD,
    GROUP,
    OLD_ID,
    OTHER_ID,
    Family,
    capability_of,
    hold,
    ids,
    release,
    reserved,
)
from tests.core.harness import World, answers, is_delivered, only, reason, types, without_announcements

ACK = {"type": "restoring_recipient_ack", "requestId": "v"}


def counts(world: World) -> tuple[int, int]:
    """Return how many recipients are reserved and how many sends are held."""
    ours = only(world.send(world.connect(), type="broker_status", requestId="s"))["report"]["broker"]
    return ours["restoringRecipients"], ours["heldSends"]


# --- reserve (4.12) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"requestId": 1},
        {"requestId": None},
        {"capability": ""},
        {"capability": 5},
        {"capability": None},
        {"group": 7},
        {"group": None},
        {"dormant": "yes"},
        {"dormant": None},
        {"aliases": OLD_ID},
        {"aliases": [1]},
        {"aliases": [OLD_ID] * 5},
    ],
)
def test_a_reservation_in_a_wrong_form_is_a_protocol_error(members: dict[str, Any]) -> None:
    """protocol 4.12: form violations; at most 4 aliases"""
    family = Family()
    frame = {"requestId": "v", "capability": family.capability, **members}
    assert family.parent.write("reserve_restoring_recipient", **frame) == []
    assert family.parent.conn in family.world.destroyed


@pytest.mark.parametrize("kind", ["reserve_restoring_recipient", "release_restoring_recipient"])
def test_both_requests_need_a_session(kind: str) -> None:
    """protocol 4.12, 4.13: a session not in the table"""
    world = World()
    conn = world.connect()
    world.send(conn, type=kind, requestId="v", capability="c")
    assert conn in world.destroyed


def test_the_supervisor_reserves_its_child() -> None:
    """protocol 4.12: acknowledged without an error; four aliases are allowed"""
    family = Family()
    aliases = [OLD_ID, OTHER_ID, OLD_ID.upper(), f" {OTHER_ID}\n"]
    got = family.parent.write(
        "reserve_restoring_recipient", requestId="v", capability=family.capability, dormant=False, aliases=aliases
    )
    assert got == [ACK]
    assert counts(family.world) == (1, 0)


def test_only_the_present_supervisor_may_reserve() -> None:
    """protocol 4.12: supervised by this session"""
    family = Family()
    stranger = family.supervisor("stranger", token="another")
    assert reserved(stranger, family.capability) == reasons.RESTORING_NOT_SUPERVISED
    assert reserved(family.parent, "no capability at all") == reasons.RESTORING_NOT_SUPERVISED
    successor = family.supervisor("successor")
    capability_of(successor, capability=family.capability)
    assert reserved(family.parent, family.capability) == reasons.RESTORING_NOT_SUPERVISED
    assert reserved(successor, family.capability) is None


def test_an_alias_is_a_session_id() -> None:
    """protocol 4.12: nobody can reserve another child's name"""
    family = Family()
    for alias in ("", CHILD, OLD_ID[:8], OLD_ID + "0"):
        assert reserved(family.parent, family.capability, aliases=[OLD_ID, alias]) == reasons.RESTORING_INVALID_ALIAS
    assert counts(family.world) == (0, 0)


def test_an_unclaimed_slot_cannot_be_reserved() -> None:
    """protocol OP-12: dynamic slots"""
    family = Family()
    slot = capability_of(family.parent, "*")
    assert reserved(family.parent, slot) == reasons.RESTORING_UNCLAIMED
    family.child(slot, name="helper").leave()
    family.reserve(slot)
    writer = family.sender()
    assert hold(writer, "m1", "helper")["messageId"] == "m1"
    assert reason(writer.message("*", "m2")) == "Session not found"


def test_a_refused_reservation_changes_nothing() -> None:
    """protocol 4.12: in-band errors have no effect"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer = family.sender()
    hold(writer, "m1", OLD_ID)
    assert reserved(family.parent, family.capability, aliases=["x"]) == reasons.RESTORING_INVALID_ALIAS
    assert hold(writer, "m2", OLD_ID)["messageId"] == "m2"
    assert counts(family.world) == (1, 2)


def test_a_group_name_without_bound_is_refused() -> None:
    """design 4: charge before you link"""
    family = Family()
    assert reserved(family.parent, family.capability, group="g" * RESTORING_GROUP_CHARACTERS) is None
    long = "g" * (RESTORING_GROUP_CHARACTERS + 1)
    assert reserved(family.parent, family.capability, group=long) == reasons.RESTORING_LONG_GROUP


@pytest.mark.parametrize(
    ("members", "group"),
    [
        ({}, "home"),
        ({"group": "teamB"}, "teamB"),
        ({"group": " teamB\t"}, "teamB"),
        ({"group": " "}, "default"),
    ],
)
def test_the_group_is_the_registration_group_unless_it_is_named(members: dict[str, Any], group: str) -> None:
    """protocol 4.12: default"""
    family = Family()
    parent = family.supervisor("other", info={"group": "elsewhere"}, registrationGroup="home")
    assert reserved(parent, capability_of(parent), **members) is None
    hold(family.sender("insider", group), "m1")
    outsider = family.sender("outsider", "elsewhere")
    extra = {"awaitRestoringRecipient": True}
    assert reason(outsider.message(CHILD, "m2", extra=extra)) == "Session not found"


def test_reserving_again_replaces_the_fields_and_keeps_what_waits() -> None:
    """protocol 6.11: reservation"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer = family.sender()
    hold(writer, "m1", OLD_ID)
    family.reserve(aliases=[OTHER_ID], group="teamB")
    assert counts(family.world) == (1, 1)
    assert reason(writer.message(OLD_ID, "m2")) == "Session not found"
    elsewhere = family.sender("another", "teamB")
    hold(elsewhere, "m3", OTHER_ID)
    release(family.parent, family.capability, refusal="no")
    assert reason(writer.got()) == "no" and reason(elsewhere.got()) == "no"


def test_reserving_again_clears_gone_and_dormant() -> None:
    """protocol 6.11: clears *gone*"""
    family = Family()
    family.reserve()
    release(family.parent, family.capability, gone="cancelled")
    family.reserve(dormant=True)
    writer = family.sender()
    assert reason(writer.message(CHILD, "m1")) == reasons.RESTORING_DORMANT
    family.reserve()
    assert answers(writer.message(CHILD, "m2")) == []
    assert counts(family.world) == (1, 1)


def test_a_supervisor_that_took_the_capability_over_keeps_what_waits() -> None:
    """protocol 6.11: nothing that waits is lost to a change of hands"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    successor = family.supervisor("successor")
    capability_of(successor, capability=family.capability)
    family.reserve(by=successor)
    assert release(family.parent, family.capability, refusal="no") == [ACK]
    family.parent.leave()
    assert answers(writer.got()) == [] and counts(family.world) == (1, 1)
    child = family.child()
    assert ids(child.first + child.got()) == ["m1"]


# --- release (4.13) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"requestId": 1},
        {"capability": None},
        {"capability": 5},
        {"gone": 1},
        {"gone": None},
        {"gone": True},
        {"refusal": 1},
        {"refusal": None},
    ],
)
def test_a_release_in_a_wrong_form_is_a_protocol_error(members: dict[str, Any]) -> None:
    """protocol 4.13: form violations"""
    family = Family()
    family.parent.write("release_restoring_recipient", **{"requestId": "v", "capability": family.capability, **members})
    assert family.parent.conn in family.world.destroyed


def test_a_release_by_somebody_else_is_acknowledged_and_does_nothing() -> None:
    """protocol 4.13, OP-24: strangers and unknown capabilities"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    stranger = family.supervisor("stranger", token="another")
    for members in ({}, {"gone": "away"}, {"refusal": "no"}):
        assert release(stranger, family.capability, **members) == [ACK]
        assert release(family.parent, "unknown", **members) == [ACK]
    assert release(family.parent, "") == [ACK], "an empty capability is merely unknown"
    assert counts(family.world) == (1, 1) and answers(writer.got()) == []


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"gone": "reviewer was cancelled"}, "reviewer was cancelled"),
        ({"gone": ""}, ""),
        ({"gone": "g" * 1_001}, "g" * 1_000),
        ({"refusal": "not now"}, "not now"),
        ({"refusal": "r" * 1_001}, "r" * 1_000),
        ({"gone": "gone", "refusal": "refused"}, "gone"),
        ({"gone": "", "refusal": "refused"}, ""),
    ],
)
def test_what_waits_fails_with_the_text_of_the_release(members: dict[str, Any], text: str) -> None:
    """protocol 4.13: gone before refusal, cut to 1 000 characters, gone counts even when empty"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    assert release(family.parent, family.capability, **members) == [ACK]
    answer = only(writer.got())
    assert answer == {"type": "delivery_failed", "messageId": "m1", "attemptId": f"{writer.conn}.1", "reason": text}


@pytest.mark.parametrize("members", [{}, {"refusal": ""}, {"refusal": " \t\n"}])
def test_a_release_without_text_dispatches_what_waits(members: dict[str, Any]) -> None:
    """protocol 4.13: through ordinary routing; a blank refusal is ignored"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    hold(writer, "m2", text="y")
    namesake = family.sender(CHILD)
    assert types(namesake.first) == ["registered"], "whoever registers without the capability ends no hold"
    assert release(family.parent, family.capability, **members) == [ACK]
    assert ids(namesake.got()) == ["m1", "m2"]
    assert types(answers(writer.got())) == ["delivered", "delivered"]
    assert counts(family.world) == (0, 0)


def test_a_dispatch_without_a_recipient_fails_as_any_send() -> None:
    """protocol 4.13: ordinary routing finds nobody"""
    family = Family()
    family.reserve()
    writer = family.sender()
    hold(writer, "m1")
    release(family.parent, family.capability)
    assert reason(writer.got()) == "Session not found"


def test_the_release_is_acknowledged_before_what_waits_is_settled() -> None:
    """protocol 4.13: order; a supervisor that waits itself sees its answers behind the acknowledgement"""
    family = Family()
    family.reserve(group="default")
    for number in (1, 2, 3):
        hold(family.parent, f"m{number}")
    got = release(family.parent, family.capability, gone="cancelled")
    assert types(got) == ["restoring_recipient_ack", *["delivery_failed"] * 3]
    assert [frame["messageId"] for frame in got[1:]] == ["m1", "m2", "m3"]


def test_a_marker_answers_for_who_is_gone() -> None:
    """protocol 6.11: later sends fail too, until the marker is released"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    release(family.parent, family.capability, gone="cancelled")
    writer = family.sender()
    for number, target in enumerate((CHILD, CHILD.upper(), OLD_ID)):
        assert reason(writer.message(target, f"m{number}", extra={"awaitRestoringRecipient": True})) == "cancelled"
    assert counts(family.world) == (1, 0)
    release(family.parent, family.capability)
    assert reason(writer.message(CHILD, "m9")) == "Session not found"
    assert counts(family.world) == (0, 0)


def test_a_refusal_leaves_no_marker() -> None:
    """protocol 6.11: reservation removed"""
    family = Family()
    family.reserve()
    release(family.parent, family.capability, refusal="not now")
    assert reason(family.sender().message(CHILD, "m1")) == "Session not found"


def test_who_is_expected_answers_before_who_is_gone() -> None:
    """protocol 6.11: a child started anew under the name of one that is gone"""
    family = Family()
    family.reserve()
    release(family.parent, family.capability, gone="cancelled")
    family.reserve(capability_of(family.parent))
    writer = family.sender()
    hold(writer, "m1")
    assert counts(family.world) == (2, 1)


# --- the child returns (consume) ------------------------------------------------------------------------


def test_a_return_ends_the_reservation() -> None:
    """protocol 6.11: consume, gone markers included"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    release(family.parent, family.capability, gone="cancelled")
    child = family.child()
    assert types(child.first) == ["registered"]
    assert counts(family.world) == (0, 0)
    child.leave()
    assert reason(family.sender().message(OLD_ID, "m1")) == "Session not found"


def test_a_return_ends_the_supervisors_other_reservations_of_that_name() -> None:
    """protocol OP-12: same owner, same name, a group of the session that came back; in arrival order"""
    family = Family()
    family.reserve()
    again = capability_of(family.parent, CHILD)
    writers = [family.sender("one"), family.sender("two", "teamB")]
    family.reserve(again, group="teamB")
    for number in range(4):
        hold(writers[number % 2], f"m{number}")
    child = family.child(again, group="teamB", returnAddress="ret-c")
    assert ids(child.first + child.got()) == ["m1", "m3"], "only teamB is among its groups"
    assert counts(family.world) == (1, 2)
    child.leave()
    family.reserve(again, group="teamB")
    hold(writers[1], "m4")
    child = family.child(again, group="teamB", returnAddress="ret-c", preferredSessionId=child.id)
    assert ids(child.first + child.got()) == ["m4"]
    child.leave()
    family.reserve(again, group="teamB")
    hold(writers[1], "m5")
    hold(writers[0], "m6")
    hold(writers[1], "m7")
    claim = {"capability": again, "supervisorSessionId": "x"}
    both = family.world.register(CHILD, info={"groups": [GROUP, "teamB"]}, supervisor=claim)
    assert ids(both.first + both.got()) == ["m0", "m2", "m5", "m6", "m7"]
    assert counts(family.world) == (0, 0)


def test_a_return_leaves_the_reservations_of_other_supervisors_and_names_alone() -> None:
    """protocol OP-12: same owner, same child name"""
    family = Family()
    other = family.supervisor("other", token="another")
    family.reserve(capability_of(other), by=other)
    family.reserve(capability_of(family.parent, "tester"))
    family.reserve()
    writer = family.sender()
    hold(writer, "m1", "tester")
    family.child()
    assert counts(family.world) == (2, 1)


def test_what_was_meant_for_a_namesake_by_its_id_does_not_reach_the_child_that_returned() -> None:
    """protocol 6.11, F90: an alias stands for the child of its own capability only"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    family.reserve(capability_of(family.parent), aliases=[OTHER_ID])
    writer = family.sender()
    hold(writer, "m1", OTHER_ID)
    hold(writer, "m2", OLD_ID)
    child = family.child()
    assert ids(child.first + child.got()) == ["m2"]
    assert [(a["messageId"], a.get("reason")) for a in answers(writer.got())] == [
        ("m1", "Session not found"),
        ("m2", None),
    ]


# --- the owner leaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leave", "unregister", "violation"])
def test_all_of_an_owner_disappears_with_it(how: str) -> None:
    """protocol 6.11, 6.15.1: reservations and gone markers; what waits is dispatched"""
    family = Family()
    family.reserve()
    family.reserve(capability_of(family.parent, "tester"))
    release(family.parent, capability_of(family.parent, "cook"))
    cook = capability_of(family.parent, "cook")
    family.reserve(cook)
    release(family.parent, cook, gone="no cook any more")
    writer = family.sender()
    hold(writer, "m1")
    hold(writer, "m2", "tester")
    if how == "leave":
        family.parent.leave()
    else:
        family.parent.write("unregister" if how == "unregister" else "nonsense")
    assert [(answer["messageId"], answer["reason"]) for answer in answers(writer.got())] == [
        ("m1", "Session not found"),
        ("m2", "Session not found"),
    ]
    assert reason(writer.message("cook", "m3")) == "Session not found"
    assert counts(family.world) == (0, 0)


def test_what_waits_is_dispatched_after_its_owner_has_left_completely() -> None:
    """protocol 6.15: 9 before 10"""
    family = Family()
    family.reserve(group="default")
    writer = family.sender(group="default")
    hold(writer, "m1")
    writer.got()
    family.parent.leave()
    assert types(writer.got()) == ["session_left", "delivery_failed"]


# --- limits ---------------------------------------------------------------------------------------------


def test_one_session_reserves_so_many() -> None:
    """protocol 6.11: limits; the oldest gone marker gives way"""
    family = Family(Limits(reservations_per_session=2))
    names = [capability_of(family.parent, name) for name in ("a", "b", "c", "d")]
    family.reserve(names[0])
    family.reserve(names[1])
    assert reserved(family.parent, names[2]) == reasons.RESTORING_CAPACITY
    family.reserve(names[1], aliases=[OLD_ID])
    for capability in names[:2]:
        release(family.parent, capability, gone="cancelled")
    family.reserve(names[2])
    writer = family.sender()
    assert reason(writer.message("a", "m1")) == "Session not found", "the oldest marker is gone"
    assert reason(writer.message("b", "m2")) == "cancelled"
    family.reserve(names[3])
    assert reserved(family.parent, names[0]) == reasons.RESTORING_CAPACITY
    other = family.supervisor("other", token="another")
    family.reserve(capability_of(other), by=other)


def test_all_sessions_reserve_so_many() -> None:
    """protocol 6.11: limits"""
    family = Family(Limits(reservations=2))
    other = family.supervisor("other", token="another")
    family.reserve()
    family.reserve(capability_of(other), by=other)
    third = capability_of(other, "third")
    assert reserved(other, third) == reasons.RESTORING_CAPACITY
    release(family.parent, family.capability, gone="cancelled")
    family.reserve(third, by=other)
    assert counts(family.world) == (2, 0)


# --- nobody else notices --------------------------------------------------------------------------------


def test_a_reservation_does_not_stand_in_the_way_of_who_is_there() -> None:
    """protocol 4.8: E3 comes after C"""
    family = Family()
    family.reserve(aliases=[OLD_ID])
    writer, namesake = family.sender(), family.sender(CHILD)
    assert is_delivered(writer.message(CHILD, "m1")) and ids(namesake.got()) == ["m1"]
    listed = without_announcements(writer.write("list", requestId="l"))[0]["sessions"]
    assert [session["id"] for session in listed] == [writer.id, namesake.id], "who is expected is not listed"
