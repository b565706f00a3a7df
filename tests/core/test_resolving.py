"""Test what a target means: ids, names, prefixes, and who may be found by whom."""

from __future__ import annotations

import pytest

from intercom.wire import reasons
from tests.core.harness import Client, World, is_delivered, only, reason, without_announcements

TWIN_IDS = ("abcdef12-0000-4000-8000-000000000001", "ABCDEF12-0000-4000-8000-000000000002")


def send_to(sender: Client, to: str, **more: object) -> str | None:
    """Send a fresh message; return why it failed, or None."""
    answer = only(sender.message(to, f"m-{sender.conn}-{sender.attempts}", **more))
    return None if answer["type"] == "delivered" else str(answer["reason"])


# --- ids, names, prefixes (6.2.1) -----------------------------------------------------------------------


@pytest.mark.parametrize("target", ["engineer", "ENGINEER", " engineer ", "\tEngineer\u3000", "\ufeffengineer"])
def test_a_name_is_found_whatever_its_case_and_white_space_around(target: str) -> None:
    """protocol 6.2.1, OP-18; F50"""
    world = World()
    sender, engineer = world.register("sender"), world.register("Engineer")
    assert send_to(sender, target) is None
    assert engineer.texts() == ["x"]


@pytest.mark.parametrize("target", ["enginer", "engineers", "", "  ", "../x", "e" * 10_000, "engineer\0", "*"])
def test_anything_else_is_not_found(target: str) -> None:
    """protocol 4.8 E6; F50, F53"""
    world = World()
    sender, engineer = world.register("sender"), world.register("engineer")
    assert send_to(sender, target) == "Session not found"
    assert engineer.texts() == []


def test_the_stored_name_is_not_trimmed() -> None:
    """protocol 6.2.1: whole name"""
    world = World()
    sender, _ = world.register("sender"), world.register(" padded ")
    assert send_to(sender, " padded ") == "Session not found"


def test_an_exact_id_is_compared_by_case_and_wins_over_a_name() -> None:
    """protocol 6.2.1"""
    world = World()
    sender = world.register("sender")
    target = world.register("target", preferredSessionId=TWIN_IDS[0])
    liar = world.register(TWIN_IDS[0])
    assert send_to(sender, f" {TWIN_IDS[0]} ") is None and target.texts() == ["x"]
    assert send_to(sender, TWIN_IDS[0].upper()) is None
    assert liar.texts() == ["x"], "the id is another one in capitals; the name is the same"


def test_two_sessions_with_one_name_are_ambiguous() -> None:
    """protocol 4.8 E5, 5.29 exact text; F45: never guess"""
    world = World()
    sender = world.register("sender")
    twins = [world.register("Twin"), world.register("tWIN")]
    assert send_to(sender, " twin ") == 'Multiple sessions named "twin" are connected. Use the session ID instead.'
    assert [send_to(sender, twin.id) for twin in twins] == [None, None]
    assert [twin.texts() for twin in twins] == [["x"], ["x"]]


def test_eight_digits_find_the_id_that_begins_with_them() -> None:
    """protocol 6.2.1 rule 4"""
    world = World()
    sender, target = world.register("sender"), world.register("target", preferredSessionId=TWIN_IDS[0])
    assert send_to(sender, "abcdef12") is None
    assert send_to(sender, "ABCDEF12") is None
    assert target.texts() == ["x", "x"]
    for target_text in ("abcdef1", "abcdef12-", "abcdef12-0000", "abcdef1g", "\u0661bcdef12"):
        assert send_to(sender, target_text) == "Session not found", target_text


def test_two_ids_with_one_beginning_are_ambiguous_and_a_name_beats_a_prefix() -> None:
    """protocol 6.2.1, 4.8 E5; F46"""
    world = World()
    sender = world.register("sender")
    for wish in TWIN_IDS:
        world.register("n", preferredSessionId=wish)
    refusal = send_to(sender, "abcdef12")
    assert refusal == reasons.ambiguous_prefix("abcdef12")
    assert "full session ID" in str(refusal) and not any(wish[9:] in str(refusal) for wish in TWIN_IDS)
    named = world.register("ABCDEF12")
    assert send_to(sender, "abcdef12") is None and named.texts() == ["x"]
    world.register("abcdef12")
    assert "Multiple sessions named" in str(send_to(sender, "abcdef12"))


def test_an_ambiguous_target_carries_no_code() -> None:
    """protocol 5.12: only two codes exist"""
    world = World()
    sender = world.register("sender")
    world.register("twin"), world.register("twin")
    assert "reasonCode" not in only(sender.message("twin", "m1"))


# --- who may be found (6.2.2) ---------------------------------------------------------------------------


def test_a_foreign_id_is_another_group_and_a_foreign_name_is_not_found() -> None:
    """protocol 6.2.2: hence"""
    world = World()
    sender = world.register("sender")
    world.register("far", info={"group": "g"}, preferredSessionId=TWIN_IDS[0])
    assert send_to(sender, TWIN_IDS[0]) == "Target session is in a different intercom group"
    assert send_to(sender, "far") == send_to(sender, "abcdef12") == "Session not found"


def test_namesakes_out_of_reach_do_not_matter() -> None:
    """protocol 6.2.2, 4.8 E5: sessions the sender may not see are never hinted at; F58"""
    world = World()
    sender, near = world.register("sender"), world.register("twin", preferredSessionId=TWIN_IDS[0])
    world.register("twin", info={"group": "g"}, preferredSessionId=TWIN_IDS[1])
    assert send_to(sender, "twin") is None and send_to(sender, "abcdef12") is None
    assert near.texts() == ["x", "x"]


def test_a_peer_in_two_common_groups_counts_once() -> None:
    """protocol 6.2.2"""
    world = World()
    sender = world.register("sender", info={"groups": ["g", "h"]})
    world.register("peer", info={"groups": ["h", "g"]})
    assert send_to(sender, "peer") is None


def test_internal_connections_are_no_candidates() -> None:
    """protocol 6.2.3, 4.8 D2, E1; F61"""
    world = World()
    sender = world.register("sender")
    control = world.register("Host", info={"recipientPurpose": "control"}, preferredSessionId=TWIN_IDS[0])
    world.register("far", info={"recipientPurpose": "control", "group": "g"})
    for target in (control.id, "host", " HOST "):
        assert send_to(sender, target) == reasons.NOT_AN_AGENT, target
    assert send_to(sender, "abcdef12") == "Session not found", "never by prefix"
    assert send_to(sender, "far") == "Session not found", "not even that it exists"
    agent = world.register("host")
    assert send_to(sender, "host") is None and agent.texts() == ["x"]
    assert without_announcements(control.got()) == []


def test_a_reply_finds_an_asker_in_another_group_by_name() -> None:
    """protocol OP-9, 6.2.2: an open question asked by that session to the sender"""
    world = World()
    asker = world.register("asker", info={"groups": ["g"]})
    target = world.register("target", info={"groups": ["g"]})
    assert is_delivered(asker.ask("target", "q1"))
    target.write("presence", group="h")
    assert send_to(target, "asker") == "Session not found"
    assert send_to(target, "asker", replyTo="made-up") == "Target session is in a different intercom group"
    assert send_to(target, asker.id[:8], replyTo="q1") is None
    assert asker.texts() == ["x"]
    assert send_to(target, "asker", replyTo="q1") == "Session not found", "the question is closed"


def test_a_reply_finds_nobody_else_in_another_group() -> None:
    """protocol OP-9: the narrowed set does not reveal names"""
    world = World()
    sender = world.register("sender")
    world.register("far", info={"group": "g"})
    world.register("host", info={"group": "g", "recipientPurpose": "control"})
    assert send_to(sender, "far", replyTo="q1") == "Session not found"
    assert send_to(sender, "host", replyTo="q1") == "Session not found"


def test_an_asker_out_of_reach_does_not_hide_a_namesake_in_reach() -> None:
    """protocol 6.2.1: several are ambiguous, also among the candidates of a reply"""
    world = World()
    asker = world.register("asker", info={"groups": ["g"]})
    target = world.register("target", info={"groups": ["g"]})
    asker.ask("target", "q1")
    target.write("presence", group="h")
    world.register("asker", info={"groups": ["h"]})
    assert "Multiple sessions named" in str(send_to(target, "asker", replyTo="q1"))
    assert send_to(target, "asker") is None


# --- logicalTarget and expectedRecipientId (6.2.4, D4) --------------------------------------------------


def test_the_expected_recipient_must_be_the_one_found() -> None:
    """protocol D4, OP-8; F51, F89: a reply addressed by name never reaches a namesake"""
    world = World()
    sender, first = world.register("sender"), world.register("peer")
    assert is_delivered(sender.message("peer", "m1", extra={"expectedRecipientId": first.id}))
    first.leave()
    second = world.register("peer")
    answer = only(sender.message("peer", "m2", extra={"expectedRecipientId": first.id}))
    assert answer["reason"] == reasons.OTHER_RECIPIENT and "reasonCode" not in answer
    assert is_delivered(sender.message("peer", "m2", extra={"expectedRecipientId": second.id}))
    assert second.texts() == ["x"]


def test_a_prefix_that_became_ambiguous_is_refused() -> None:
    """protocol 6.2.4: unless it leads to exactly that session"""
    world = World()
    sender, target = world.register("sender"), world.register("target", preferredSessionId=TWIN_IDS[0])
    wording = {"logicalTarget": " abcdef12"}
    assert is_delivered(sender.message(target.id, "m1", extra=wording))
    world.register("other", preferredSessionId=TWIN_IDS[1])
    refusal = reason(sender.message(target.id, "m2", extra=wording))
    assert refusal == reasons.OTHER_RECIPIENT and TWIN_IDS[1] not in refusal
    assert is_delivered(sender.message(target.id, "m3"))


def test_a_prefix_that_is_somebodys_name_by_now_is_refused() -> None:
    """protocol 6.2.4, 6.2.1: names come first"""
    world = World()
    sender, target = world.register("sender"), world.register("target", preferredSessionId=TWIN_IDS[0])
    world.register("ABCDEF12")
    assert reason(sender.message(target.id, "m1", extra={"logicalTarget": "abcdef12"})) == reasons.OTHER_RECIPIENT


def test_sessions_out_of_reach_do_not_make_a_prefix_ambiguous() -> None:
    """protocol 6.2.4: the sender's current candidates"""
    world = World()
    sender, target = world.register("sender"), world.register("target", preferredSessionId=TWIN_IDS[0])
    world.register("other", info={"group": "g"}, preferredSessionId=TWIN_IDS[1])
    assert is_delivered(sender.message(target.id, "m1", extra={"logicalTarget": "abcdef12"}))


@pytest.mark.parametrize("wording", ["target", "the one from yesterday", "12345678", "abcdef1", ""])
def test_any_other_wording_is_not_looked_at(wording: str) -> None:
    """protocol 6.2.4: only an 8-digit prefix of `to` is checked"""
    world = World()
    sender, target = world.register("sender"), world.register("target", preferredSessionId=TWIN_IDS[0])
    assert is_delivered(sender.message(target.id, "m1", extra={"logicalTarget": wording}))


def test_a_wording_beside_a_name_is_not_looked_at() -> None:
    """protocol 6.2.4: `to` is the full id the client resolved"""
    world = World()
    sender, _ = world.register("sender"), world.register("abcdef12")
    assert is_delivered(sender.message("abcdef12", "m1", extra={"logicalTarget": "abcdef12"}))


def test_a_reply_across_groups_may_be_worded_as_a_prefix() -> None:
    """protocol 6.2.4, 6.2.2: the candidates of a reply"""
    world = World()
    asker = world.register("asker", info={"groups": ["g"]}, preferredSessionId=TWIN_IDS[0])
    target = world.register("target", info={"groups": ["g"]})
    asker.ask("target", "q1")
    target.write("presence", group="h")
    assert is_delivered(target.message(asker.id, "r1", replyTo="q1", extra={"logicalTarget": "abcdef12"}))


# --- yourself (D3) --------------------------------------------------------------------------------------


def test_nobody_can_write_to_itself() -> None:
    """protocol D3, 5.29; F51: by id, name and prefix"""
    world = World()
    client = world.register("me", preferredSessionId=TWIN_IDS[0])
    for target in (client.id, "me", "ME", "abcdef12"):
        assert send_to(client, target) == "Cannot message the current session"
    assert client.texts() == []


def test_a_reply_by_id_reaches_the_sender_whatever_it_is_called_now() -> None:
    """F51"""
    world = World()
    sender, target = world.register("sender"), world.register("target")
    assert is_delivered(sender.ask("target", "q1"))
    handle = without_announcements(target.got())[0]["from"]["id"]
    sender.write("presence", name="renamed")
    impostor = world.register("sender")
    assert is_delivered(target.reply(handle, "r1", "q1"))
    assert sender.texts() == ["!"] and impostor.texts() == []
