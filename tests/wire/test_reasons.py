"""Compare reason texts with the ones clients know (protocol 5.29) and give each its code."""

from __future__ import annotations

import pytest

from intercom.wire import reasons


@pytest.mark.parametrize(
    ("ours", "exact"),
    [
        (reasons.SESSION_NOT_FOUND, "Session not found"),
        (reasons.SENDER_NOT_FOUND, "Sender session not found"),
        (reasons.SELF_TARGET, "Cannot message the current session"),
        (reasons.DIFFERENT_GROUP, "Target session is in a different intercom group"),
        (reasons.INVALID_ATTEMPT_ID, "Invalid attemptId format"),
        (reasons.INVALID_MESSAGE, "Invalid message format"),
        (reasons.INVALID_CHANNEL, "Invalid channel"),
        (reasons.NOT_A_CHILD, "Supervisor channel is not authorized"),
        (reasons.OTHER_SUPERVISOR, "Supervisor target does not match the authorized relationship"),
        (
            reasons.conflict("m-1"),
            "Intercom message ID 'm-1' was already delivered with a different target or payload",
        ),
        (
            reasons.ambiguous_name("bob"),
            'Multiple sessions named "bob" are connected. Use the session ID instead.',
        ),
        (reasons.INVALID_SUPERVISOR, "Invalid supervisor authorization"),
        (reasons.DIFFERENT_RUN, "Target workflow run is in a different intercom group"),
        (reasons.ROUTE_NOT_AUTHORIZED, "Pending-stage route is not authorized"),
        (reasons.INVALID_ROSTER, "Invalid workflow-stage roster"),
        (reasons.INVALID_POSSIBLE_ROSTER, "Invalid workflow possible-stage roster"),
        (reasons.DUPLICATE_LIVE_OWNER, "Live workflow-stage route is owned by another active session"),
        (
            reasons.reserved_group("Auto"),
            'Invalid presence group: Intercom group name "Auto" is reserved; choose another name',
        ),
    ],
)
def test_texts_that_clients_compare_are_exact(ours: str, exact: str) -> None:
    """protocol 5.29"""
    assert ours == exact


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.SESSION_NOT_FOUND, "not_found"),
        (reasons.SENDER_NOT_FOUND, "not_registered"),
        (reasons.SELF_TARGET, "self_target"),
        (reasons.DIFFERENT_GROUP, "different_group"),
        (reasons.NOT_AN_AGENT, "not_an_agent"),
        (reasons.TERMINAL, "terminal"),
        (reasons.OTHER_RECIPIENT, "other_recipient"),
        (reasons.NO_OPEN_QUESTION, "no_open_question"),
        (reasons.UNCERTAIN, "outcome_unknown"),
        (reasons.UNDER_WAY, "under_way"),
        (reasons.ROUTE_LOST, "route_lost"),
        (reasons.ALREADY_ANSWERED, "already_answered"),
        (reasons.conflict_waiting("x"), "conflict"),
        (reasons.ambiguous_away("x", ["g"], []), "ambiguous"),
        (reasons.authority_invalid(None), "store_unusable"),
        (reasons.NOT_RECORDED, "not_recorded"),
        (reasons.NOT_CONFIRMED_DURABLY, "not_confirmed"),
        (reasons.RECEIPT_MISSING, "receipt_missing"),
        (reasons.NOT_A_CHILD, "no_supervisor"),
        (reasons.OTHER_SUPERVISOR, "other_supervisor"),
        (reasons.INVALID_CHANNEL, "invalid"),
        (reasons.RESERVED_MESSAGE_ID, "invalid"),
        (reasons.PENDING_REPLY_FORM, "invalid"),
        (reasons.conflict("x"), "conflict"),
        (reasons.ambiguous_name("x"), "ambiguous"),
        (reasons.ambiguous_prefix("x"), "ambiguous"),
        (reasons.capacity("too many messages of this sender", 1), "capacity"),
        (reasons.DIFFERENT_RUN, "different_group"),
        (reasons.STAGE_ASK, "stage_ask"),
        (reasons.STAGE_UNACKNOWLEDGED, "owner_silent"),
        (reasons.STAGE_OWNER_LEFT, "owner_silent"),
        (reasons.removed_target_form(None), "removed_target_form"),
        (reasons.NOTIFICATION_RECIPIENT_LEFT, "notification_unanswered"),
        (reasons.RESTORING_TIMED_OUT, "not_restored"),
        (reasons.RESTORING_DORMANT, "not_restored"),
        (reasons.RESTORING_WITHDRAWN, "withdrawn"),
        (reasons.RESTORING_CAPACITY, "capacity"),
        (reasons.ambiguous_restoring("x"), "ambiguous"),
        ("Something another broker says", "refused"),
        ("", "refused"),
    ],
)
def test_every_reason_has_its_code(reason: str, code: str) -> None:
    assert reasons.code_of(reason) == code


def test_no_text_of_ours_goes_without_a_code() -> None:
    texts = {
        name: text
        for name, text in vars(reasons).items()
        if name.isupper() and name[0] != "_" and isinstance(text, str)
    }
    assert "SESSION_NOT_FOUND" in texts
    assert [name for name, text in texts.items() if reasons.code_of(text) == "refused"] == []


@pytest.mark.parametrize(
    ("wait_ms", "shown"), [(0, "1 s"), (1, "1 s"), (1_000, "1 s"), (1_001, "2 s"), (9_999, "10 s")]
)
def test_capacity_names_a_pause_in_whole_seconds(wait_ms: int, shown: str) -> None:
    """design 5, bounds: capacity, retry after N"""
    assert reasons.capacity("full", wait_ms) == (
        f"Capacity reached: full; retry with the same message id after {shown}"
    )


def test_an_unusable_store_is_named_with_its_trouble() -> None:
    """protocol 4.8 D10"""
    assert reasons.authority_invalid("the key file is missing") == (
        "Accepted-delivery authority is invalid: the key file is missing"
    )


def test_an_ambiguous_target_never_names_other_sessions() -> None:
    """protocol 4.8 E5"""
    assert reasons.ambiguous_prefix("0f8fad5b") == (
        'Multiple session IDs begin with "0f8fad5b". Use the full session ID instead.'
    )


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.SESSION_NOT_FOUND, "receipt_missing"),
        (reasons.CLUSTER_UNAVAILABLE, "receipt_missing"),
        (reasons.CLUSTER_UNAVAILABLE_TO_ASK, "receipt_missing"),
        (reasons.away("bob"), "receipt_missing"),
        (reasons.RESTORING_TIMED_OUT, "receipt_missing"),
        (reasons.kept_unqueued("hold"), "receipt_missing"),
        (reasons.loop_too_fast(5_000), "receipt_missing"),
        (reasons.capacity("full", 5_000), "receipt_missing"),
        (reasons.DIFFERENT_GROUP, "outcome_unknown"),
        (reasons.NO_OPEN_QUESTION, "outcome_unknown"),
        (reasons.REFUSED_BY_POLICY, "outcome_unknown"),
        ("Something another broker says", "outcome_unknown"),
    ],
)
def test_no_refusal_of_a_repetition_says_that_its_message_did_not_arrive(reason: str, code: str) -> None:
    """protocol 6.9.2: what may have arrived is uncertain, whatever keeps its repetition from going out"""
    told = reasons.in_doubt(reason)
    assert reasons.code_of(told) == code
    assert told.endswith(reason) == (reason != reasons.SESSION_NOT_FOUND)


@pytest.mark.parametrize(
    "reason",
    [
        reasons.UNCERTAIN,
        reasons.UNDER_WAY,
        reasons.RECEIPT_MISSING,
        reasons.NOT_CONFIRMED_DURABLY,
        reasons.NOT_RECORDED,
        reasons.OUT_OF_DATE,
        reasons.ALREADY_ANSWERED,
        reasons.RESTORING_WITHDRAWN,
        reasons.conflict("m1"),
    ],
)
def test_what_tells_of_an_earlier_attempt_is_told_as_it_is(reason: str) -> None:
    """protocol 6.9.2"""
    assert reasons.in_doubt(reason) == reason


@pytest.mark.parametrize("reason", [reasons.SESSION_NOT_FOUND, reasons.away("bob")])
def test_nobody_is_to_wait_for_the_answer_of_who_may_be_gone(reason: str) -> None:
    """protocol 6.9.2: an asker would wait as long as for its answer"""
    told = reasons.in_doubt(reason, is_left_ask=True)
    assert (reasons.code_of(told), told.endswith(reason)) == ("outcome_unknown", True)
