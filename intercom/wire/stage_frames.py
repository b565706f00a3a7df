"""Define the frames of workflow stages: routes, live aliases, messages and notifications (protocol 4.14 to 4.18)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, field

from intercom.limits import STAGE_KEYS, WHOLE_NUMBER_MAX
from intercom.wire.shapes import AnswerFrame, NonEmpty, Number, OptionalText, RequestFrame

# --- objects inside frames ------------------------------------------------------------------------------


class StageAnnouncement(Struct, rename="camel", omit_defaults=True):
    """Describe one stage a run has (protocol 6.12.2); which targets and groups are allowed is the core's rule."""

    stage_id: str
    stage_name: str
    target: str
    lifecycle: Literal["pending", "running"]
    route_eligible: bool
    group: str
    recipient_purpose: Literal["agent", "control"] | UnsetType = UNSET


class DeliveryState(Struct, rename="camel", omit_defaults=True):
    """Say what became of one message queued for a possible stage."""

    message_id: str
    run_id: str
    stage_id: str
    state: str
    reason: str
    session_id: OptionalText = UNSET


class PossibleStage(Struct, rename="camel", omit_defaults=True):
    """Describe stages a run may still have (protocol 6.12.2)."""

    target: str
    queued_count: Number
    delivery_only: Literal[True] | UnsetType = UNSET
    delivery_states: list[DeliveryState] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not 0 <= self.queued_count <= WHOLE_NUMBER_MAX or self.queued_count != int(self.queued_count):
            raise ValidationError("queuedCount is no integer of at least 0")
        self.queued_count = int(self.queued_count)


class ParentRun(Struct, rename="camel", omit_defaults=True):
    """Name the run above a run, and the boundary names that lead from it to this run."""

    run_id: str
    stage_keys: list[str]


class WorkflowStage(Struct, tag_field="kind", tag="workflow-stage", rename="camel", omit_defaults=True):
    """Show one stage of a run in ``sessions`` (protocol 6.12.7)."""

    run_id: str
    stage_id: str
    stage_name: str
    target: str
    lifecycle: Literal["pending", "running"]
    group: str
    session_id: OptionalText = UNSET


class FutureStage(Struct, tag_field="kind", tag="workflow-future-stage", rename="camel", omit_defaults=True):
    """Show stages a run may still have in ``sessions`` (protocol 6.12.7)."""

    run_id: str
    target: str
    queued_count: Number
    group: str
    delivery_states: list[DeliveryState] | UnsetType = UNSET
    delivery_only: Literal[True] | UnsetType = UNSET


# --- client to broker -----------------------------------------------------------------------------------


class RegisterPendingStageRoute(RequestFrame, tag="register_pending_stage_route"):
    """Own the messages to a run's stages, and announce the stages (protocol 4.14).

    Members that are any value are judged by the core: a wrong roster ends the connection with a sentence, a wrong
    parent is ignored, and of ``dormant`` only ``true`` counts.
    """

    run_id: NonEmpty
    group: str
    capability: NonEmpty
    request_id: OptionalText = UNSET
    dormant: Any = UNSET
    stages: Any = UNSET
    possible_stages: Any = UNSET
    parent: Any = UNSET


class RegisterLiveWorkflowStageRoute(RequestFrame, tag="register_live_workflow_stage_route"):
    """Go live: let the canonical targets of a stage lead to this session (protocol 4.15)."""

    request_id: str
    run_id: str
    stage_keys: Annotated[list[NonEmpty], Meta(min_length=1, max_length=STAGE_KEYS)]
    capability: NonEmpty


class PendingStageMessageResult(RequestFrame, tag="pending_stage_message_result"):
    """Say what the owner of a run did with a message (protocol 4.16)."""

    request_id: str
    outcome: Literal["queued", "delivered", "forward", "refused"]
    position: Number | UnsetType = UNSET
    target: OptionalText = UNSET
    reason: OptionalText = UNSET
    reason_code: Literal["message_id_conflict"] | UnsetType = UNSET
    not_in_known_set: bool | UnsetType = UNSET
    forward_targets: list[str] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.outcome == "forward" and self.target is UNSET:
            raise ValidationError("forward names no target")
        if self.not_in_known_set is False:
            raise ValidationError("notInKnownSet may only be true")


class SendPendingStageNotification(RequestFrame, tag="send_pending_stage_notification"):
    """Report the fate of a queued message to its original sender (protocol 4.17)."""

    run_id: str
    capability: str
    to: str
    message: Raw
    attempt_id: OptionalText = UNSET
    sender_registration_name: OptionalText = UNSET
    sender_return_address: NonEmpty | UnsetType = UNSET


class PendingStageNotificationResult(RequestFrame, tag="pending_stage_notification_result"):
    """Say whether the original sender took the report (protocol 4.18)."""

    request_id: str
    delivered: bool


# --- broker to client -----------------------------------------------------------------------------------


class PendingStageRouteRegistered(AnswerFrame, tag="pending_stage_route_registered"):
    """Answer ``register_pending_stage_route`` (protocol 5.20)."""

    request_id: str


class PendingStageRouteRevoked(AnswerFrame, tag="pending_stage_route_revoked"):
    """Tell a dormant owner that another one took its run over (protocol 5.21)."""

    run_id: str


class PendingStageMessage(AnswerFrame, tag="pending_stage_message"):
    """Ask the owner of a run what is to become of a message (protocol 5.22)."""

    request_id: str
    sender: Raw = field(name="from")
    run_id: str
    target: str
    message: Raw
    sender_registration_name: OptionalText = UNSET
    sender_return_address: OptionalText = UNSET
    live: Literal[True] | UnsetType = UNSET


class StickyLiveDelivered(AnswerFrame, tag="sticky_live_delivered"):
    """Tell an owner which live stages a broadcast was written to (protocol 5.23)."""

    run_id: str
    message_id: str
    target: str
    delivered_targets: list[str]


class LiveWorkflowStageRouteRegistered(AnswerFrame, tag="live_workflow_stage_route_registered"):
    """Answer ``register_live_workflow_stage_route`` (protocol 5.24)."""

    request_id: str


class PendingStageNotification(AnswerFrame, tag="pending_stage_notification"):
    """Bring the original sender the fate of its message (protocol 5.25)."""

    request_id: str
    sender: Raw = field(name="from")
    message: Raw
