"""Say whom invocations and diagnoses concern, and what those who follow them are shown."""

from __future__ import annotations

from typing import Any

from intercom.core.concerns import Concern, key
from intercom.core.invocation_records import DiagnosisRecord, InvocationRecord
from intercom.core.peer_records import DeliveryRecord
from intercom.core.records import Happened


def of_invocation(event: Happened) -> Concern:
    """Say it of an invocation: it concerns who asked and who is asked."""
    row = event.row
    assert isinstance(row, InvocationRecord)
    return invocation_concern(row, event.detail)


def invocation_concern(row: InvocationRecord, detail: dict[str, Any]) -> Concern:
    """Say whom an invocation concerns."""
    keys = [key("invocation", row.invocation_id), key("session", row.requester_session), row.requester]
    keys.append(row.target if row.target.startswith("address:") else key("session", row.target))
    keys += [key("session", row.worker)] if row.worker else []
    about = {"invocationId": row.invocation_id, "runId": row.run_id, "targetId": row.target}
    more = {"placement": row.placement, "lastError": row.last_error, "sessionId": row.worker}
    shown: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    shown |= {"state": row.state, "job": row.job, "attempts": row.attempts}
    if "previousState" in detail:
        shown["previousState"] = detail["previousState"]
    if row.reconciled:
        shown["reconciled"] = True
    if row.cancel_asked_at is not None:
        shown["cancelAskedAt"] = row.cancel_asked_at
    return Concern(tuple(dict.fromkeys(keys)), about, (), shown)


def of_diagnosis(event: Happened) -> Concern:
    """Say it of a diagnosis: it concerns who asked."""
    row = event.row
    assert isinstance(row, DiagnosisRecord)
    keys = (key("invocation", row.invocation_id), key("session", row.requester_session), row.requester)
    about = {"invocationId": row.invocation_id, "diagnosisId": row.diagnosis_id}
    return Concern(tuple(dict.fromkeys(keys)), about, (), {"kind": row.kind, "asked": row.asked, "reason": row.detail})


def of_delivery(event: Happened) -> Concern | None:
    """Say it of a delivery: it concerns who asked; that an attempt is under way concerns nobody."""
    row = event.row
    assert isinstance(row, DeliveryRecord)
    if event.kind in ("delivery.leased", "delivery.put_off", "delivery.mirrored"):
        return None
    keys = (key("invocation", row.invocation_id), key("session", row.requester_session), row.requester)
    about = {"invocationId": row.invocation_id, "deliveryId": row.delivery_id}
    more = {"nextAttemptAt": row.next_attempt_at, "failureReason": row.failure, "failureDetail": row.detail}
    shown: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    shown |= {"deliveryStatus": row.status, "attempts": row.attempts, "targetBrokerId": row.peer, **event.detail}
    return Concern(tuple(dict.fromkeys(keys)), about, (), shown)


def of_nobody(event: Happened) -> None:
    """Say of what is known of other machines that it is nobody's to follow."""
