"""Make records for tests, and hypothesis strategies for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from intercom.core.records import OperationRecord, OperationState, QuestionRecord, RetiredIdRecord

NOW = 1_700_000_000_000
"""A wall clock for tests, epoch ms."""

LARGEST = 2**63 - 1
"""Greatest integer a column takes."""


def operation(number: int, message_id: str | None = None, **changes: object) -> OperationRecord:
    """Return a plain send that was reserved just before ``NOW``."""
    values: dict[str, object] = {
        "number": number,
        "message_id": message_id or f"message-{number}",
        "state": OperationState.RESERVED,
        "signature": bytes([number % 256]) * 32,
        "sender": "session:a",
        "target": "session:b",
        "sender_session": "a",
        "recipient_session": "b",
        "reserved_at": NOW - 1,
    }
    return OperationRecord(**{**values, **changes})  # type: ignore[arg-type]


def question(**changes: object) -> QuestionRecord:
    """Return an open question whose deadline lies a second after ``NOW``."""
    values: dict[str, object] = {
        "asker_session": "a",
        "asker_return": None,
        "target_session": "b",
        "sender_groups": "default",
        "deadline": NOW + 1_000,
    }
    return QuestionRecord(**{**values, **changes})  # type: ignore[arg-type]


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
counts = st.integers(0, LARGEST)
questions = st.builds(
    QuestionRecord,
    asker_session=texts,
    asker_return=st.none() | texts,
    target_session=texts,
    sender_groups=texts,
    deadline=counts,
    answered=st.booleans(),
)
operations = st.builds(
    OperationRecord,
    number=counts,
    message_id=st.text(st.characters(codec="utf-8"), max_size=20),
    state=st.sampled_from(OperationState),
    signature=st.binary(min_size=32, max_size=32),
    sender=texts,
    target=st.none() | texts,
    sender_session=texts,
    recipient_session=st.none() | texts,
    reserved_at=counts,
    accepted_at=st.none() | counts,
    position=st.none() | counts,
    question=st.none() | questions,
)
retired_ids = st.builds(RetiredIdRecord, session_id=texts, return_hash=st.none() | texts, number=counts)
