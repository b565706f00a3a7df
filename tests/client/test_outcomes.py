"""What each refusal becomes, and what it says about a retry."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from intercom.client.outcomes import again, refusal, refusal_of, unknown
from intercom.errors import (
    AmbiguousTarget,
    BrokerBusy,
    MessageConflict,
    NotNow,
    OutcomeUnknown,
    SendError,
    SendRefused,
    TargetAway,
    TargetNotFound,
)
from intercom.wire import reasons
from intercom.wire.frames import DeliveryFailed
from intercom.wire.mail import RequestFailed


def refused(reason: str) -> SendError:
    return refusal(DeliveryFailed("m1", reason))


@pytest.mark.parametrize(
    ("reason", "kind", "code", "retry", "status"),
    [
        (reasons.SESSION_NOT_FOUND, TargetNotFound, "not_found", "never", 3),
        (reasons.away("worker"), TargetAway, "away", "after", 5),
        (reasons.away_unqueued("worker"), TargetAway, "away", "after", 5),
        (reasons.ambiguous_name("twin"), AmbiguousTarget, "ambiguous", "never", 4),
        (reasons.conflict("m1"), MessageConflict, "conflict", "never", 4),
        (reasons.capacity("too many", 3_000), NotNow, "capacity", "after", 5),
        (reasons.NOT_RECORDED, NotNow, "not_recorded", "after", 5),
        (reasons.UNCERTAIN, OutcomeUnknown, "outcome_unknown", "never", 6),
        (reasons.RECEIPT_MISSING, OutcomeUnknown, "receipt_missing", "same_id", 6),
        (reasons.NOT_CONFIRMED_DURABLY, OutcomeUnknown, "not_confirmed", "same_id", 6),
        (reasons.UNDER_WAY, OutcomeUnknown, "under_way", "same_id", 6),
        (reasons.SELF_TARGET, SendRefused, "self_target", "never", 1),
        (reasons.DIFFERENT_GROUP, SendRefused, "different_group", "never", 1),
        (reasons.NOT_AN_AGENT, SendRefused, "not_an_agent", "never", 1),
        (reasons.TERMINAL, SendRefused, "terminal", "never", 1),
        (reasons.OTHER_RECIPIENT, SendRefused, "other_recipient", "never", 1),
        (reasons.NO_OPEN_QUESTION, SendRefused, "no_open_question", "never", 1),
        (reasons.ROUTE_LOST, SendRefused, "route_lost", "never", 1),
        ("a sentence of another broker", SendRefused, "refused", "never", 1),
    ],
)
def test_every_reason_has_its_error(reason: str, kind: type[SendError], code: str, retry: str, status: int) -> None:
    """Design section 9: outcomes sharing a status differ in code; retry says whether the same id may be sent."""
    error = refused(reason)
    assert (type(error), error.code, error.retry, error.exit_status) == (kind, code, retry, status)
    assert error.reason == reason
    assert error.message_id == "m1"


def test_reason_codes_win_over_texts() -> None:
    """Protocol 5.29: codes are what programs compare."""
    assert refusal(DeliveryFailed("m1", "gone", reason_code="session_not_found")).code == "not_found"
    assert refusal(DeliveryFailed("m1", "other", reason_code="message_id_conflict")).code == "conflict"
    assert refusal(DeliveryFailed("m1", reasons.SESSION_NOT_FOUND, UNSET)).code == "not_found"


def test_capacity_says_when_a_retry_may_pass() -> None:
    assert refused(reasons.capacity("too many", 2_001)).retry_after_ms == 3_000
    assert refused(reasons.NOT_RECORDED).retry_after_ms is None


def test_an_unknown_outcome_names_the_id_to_retry_with() -> None:
    """F76: on give-up the id is there, so that a script can retry."""
    cause = BrokerBusy("no answer")
    error = unknown("It may have arrived", "m7", code="send_timeout", cause=cause)
    assert error.message_id == "m7"
    assert "m7" in error.hint
    assert (error.code, error.retry, error.__cause__) == ("send_timeout", "same_id", cause)


def test_a_copy_is_equal_and_not_the_same() -> None:
    error = refused(reasons.capacity("too many", 3_000))
    copy = again(error)
    assert copy is not error
    assert copy.as_dict() == error.as_dict()
    assert str(copy) == str(error)


@pytest.mark.parametrize(
    ("code", "retryable", "status", "retry"),
    [
        ("unknown_session", False, 3, "never"),
        ("unknown_address", False, 3, "never"),
        ("ambiguous_address", False, 4, "never"),
        ("not_allowed", False, 7, "never"),
        ("feature_not_granted", False, 1, "never"),
        ("starting", True, 5, "after"),
        ("something_new", False, 1, "never"),
    ],
)
def test_a_refused_request(code: str, retryable: bool, status: int, retry: str) -> None:
    """Design section 9; FE 0.3: retryable means that nothing took effect."""
    error = refusal_of(RequestFailed("r", code, "because", retryable))
    assert (error.code, error.reason, error.exit_status, error.retry) == (code, "because", status, retry)
    copy = again(error)
    assert (copy.code, copy.hint, copy.exit_status) == (error.code, error.hint, error.exit_status)


def test_away_is_told_by_its_code_whatever_the_words_are() -> None:
    error = refusal(DeliveryFailed("m1", "He is out", reason_code="away"))
    assert isinstance(error, TargetAway)
    assert "`send`" in error.hint
