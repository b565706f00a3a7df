"""Define every frame of the base protocol as a typed struct; the frames of features have modules of their own.

Attributes are snake_case, members on the wire camelCase, the tag is the member ``type``. An optional member is
``UNSET`` when absent; JSON ``null`` is never absence. What a struct accepts is exactly what protocol section 4
calls well-formed; the codec turns everything else into a protocol error or a ``Malformed`` frame that is
answered in-band.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, convert, field

from intercom.limits import DRAIN_CEILING_MS, HEALTH_ID_UNITS
from intercom.wire.invocations import InvokedInfo
from intercom.wire.mail import MailInfo, Notice
from intercom.wire.restoring_frames import ReleaseRestoringRecipient as ReleaseRestoringRecipient
from intercom.wire.restoring_frames import ReserveRestoringRecipient as ReserveRestoringRecipient
from intercom.wire.restoring_frames import RestoringRecipientAck as RestoringRecipientAck
from intercom.wire.restoring_frames import SendHeld as SendHeld
from intercom.wire.shapes import WHITE_SPACE as WHITE_SPACE
from intercom.wire.shapes import AnswerFrame, NonEmpty, OptionalText, PushWay, RequestFrame
from intercom.wire.shapes import Attachment as Attachment
from intercom.wire.shapes import Content as Content
from intercom.wire.shapes import Message as Message
from intercom.wire.shapes import SessionInfo as SessionInfo
from intercom.wire.shapes import Source as Source
from intercom.wire.shapes import is_blank as is_blank
from intercom.wire.shapes import trim as trim
from intercom.wire.stage_frames import DeliveryState as DeliveryState
from intercom.wire.stage_frames import FutureStage as FutureStage
from intercom.wire.stage_frames import LiveWorkflowStageRouteRegistered as LiveWorkflowStageRouteRegistered
from intercom.wire.stage_frames import PendingStageMessage as PendingStageMessage
from intercom.wire.stage_frames import PendingStageMessageResult as PendingStageMessageResult
from intercom.wire.stage_frames import PendingStageNotification as PendingStageNotification
from intercom.wire.stage_frames import PendingStageNotificationResult as PendingStageNotificationResult
from intercom.wire.stage_frames import PendingStageRouteRegistered as PendingStageRouteRegistered
from intercom.wire.stage_frames import PendingStageRouteRevoked as PendingStageRouteRevoked
from intercom.wire.stage_frames import RegisterLiveWorkflowStageRoute as RegisterLiveWorkflowStageRoute
from intercom.wire.stage_frames import RegisterPendingStageRoute as RegisterPendingStageRoute
from intercom.wire.stage_frames import SendPendingStageNotification as SendPendingStageNotification
from intercom.wire.stage_frames import StickyLiveDelivered as StickyLiveDelivered
from intercom.wire.stage_frames import WorkflowStage as WorkflowStage
from intercom.wire.work import AssignmentInfo

TRUE = Raw(b"true")

# --- client to broker -----------------------------------------------------------------------------------


class Register(RequestFrame, tag="register"):
    """Enter the session table (protocol 4.1)."""

    session: dict[str, Any]
    registration_group: OptionalText = UNSET
    return_address: NonEmpty | UnsetType = UNSET
    supervisor_owner_token: NonEmpty | UnsetType = UNSET
    preferred_session_id: OptionalText = UNSET
    acknowledges_receipt: bool | UnsetType = UNSET
    supervisor: Any = UNSET
    """Any value, ``null`` included: a wrong one is refused, not a protocol error."""
    session_id: Any = UNSET
    """A wish of the pi-intercom client, by which it is known; never granted."""
    features: Any = UNSET
    """Names of what this client understands beyond the base protocol; whoever names none is an older client."""
    client_protocol_version: Any = UNSET
    kind: Any = UNSET
    """What hosts the session, such as ``claude-code``, ``codex``, ``custom``."""
    address: Any = UNSET
    """An ``AddressClaim``."""
    owner_token: Any = UNSET
    """Of the known session ``preferredSessionId``: proves that this is its owner, who takes its place."""
    runtime_session_id: Any = UNSET
    tracking_ref: Any = UNSET
    spawn_token: Any = UNSET
    """Says that this is the session somebody had started."""
    work_mode: Any = UNSET
    """How it takes work: a ``WorkMode``; with the feature ``work.assignments``."""
    execution_surface: Any = UNSET
    """An ``ExecutionSurface``."""
    workspace: Any = UNSET
    """Where it works: a path, or an object with ``root`` and ``cwd``."""

    def __post_init__(self) -> None:
        convert(self.session, SessionInfo)
        if self.registration_group is not UNSET and is_blank(self.registration_group):
            raise ValidationError("registrationGroup is blank")
        if self.acknowledges_receipt is False:
            raise ValidationError("acknowledgesReceipt may only be true")


class Unregister(RequestFrame, tag="unregister"):
    """Leave the session table and keep the connection (protocol 4.2)."""

    keeps_questions: bool | UnsetType = UNSET
    """The address it holds goes on owing the answers to what it was asked."""


class ListSessions(RequestFrame, tag="list"):
    """Ask for the sessions in reach, or those of one group (protocol 4.3)."""

    request_id: str
    group: OptionalText = UNSET


class ListGroups(RequestFrame, tag="list_groups"):
    """Ask for every group with an agent in it (protocol 4.4)."""

    request_id: str


class Presence(RequestFrame, tag="presence"):
    """Change what peers see of this session (protocol 4.5)."""

    request_id: OptionalText = UNSET
    name: OptionalText = UNSET
    status: OptionalText = UNSET
    model: OptionalText = UNSET
    group: OptionalText = UNSET
    groups: list[str] | UnsetType = UNSET
    reply_capability: Literal["live", "terminal"] | UnsetType = UNSET
    push: Literal["now", "idle", "pull", "none"] | UnsetType = UNSET
    push_way: PushWay | UnsetType = UNSET
    context_tokens: Any = UNSET
    """This and the next two: how full its model's context is, as the pi-intercom client tells it (protocol 15.4)."""
    context_window: Any = UNSET
    context_percent: Any = UNSET


class JoinGroup(RequestFrame, tag="join_group"):
    """Add one group (protocol 4.6)."""

    group: str
    request_id: OptionalText = UNSET
    name: OptionalText = UNSET
    status: OptionalText = UNSET
    model: OptionalText = UNSET
    reply_capability: Literal["live", "terminal"] | UnsetType = UNSET


class LeaveGroup(RequestFrame, tag="leave_group"):
    """Remove one group, or all but the home group (protocol 4.7)."""

    request_id: OptionalText = UNSET
    group: OptionalText = UNSET
    name: OptionalText = UNSET
    status: OptionalText = UNSET
    model: OptionalText = UNSET
    reply_capability: Literal["live", "terminal"] | UnsetType = UNSET


class Send(RequestFrame, tag="send"):
    """Send a message to one target (protocol 4.8)."""

    to: str
    message: Raw
    attempt_id: OptionalText = UNSET
    logical_target: OptionalText = UNSET
    require_pending_reply: bool | UnsetType = UNSET
    expected_recipient_id: OptionalText = UNSET
    resolve_reply_target: bool | UnsetType = UNSET
    await_restoring_recipient: Raw | UnsetType = UNSET
    """Any value; only ``TRUE`` says that the sender understands ``send_held``."""
    channel: Raw | UnsetType = UNSET
    """Clients may not claim the supervisor channel: any value is refused."""
    queue_if_away: bool | UnsetType = UNSET
    """The sender takes ``queued`` for an answer (feature ``queue``)."""
    valid_for: int | UnsetType = UNSET
    """Milliseconds from now after which the message must not be handed over any more (feature ``queue``)."""


class SupervisorSend(Send, tag="supervisor_send"):
    """Send a message up the supervisor line (protocol 4.9)."""


class Received(RequestFrame, tag="received"):
    """Confirm that a message was saved (protocol 4.10)."""

    message_id: str
    push_id: OptionalText = UNSET
    """Of the hand-over that is confirmed, when the message had one."""
    out_of_date: bool | UnsetType = UNSET
    """Its reader was shown it after its time, and told so (protocol 9.5.5)."""


class AuthorizeSupervisor(RequestFrame, tag="authorize_supervisor"):
    """Issue or restore the capability for one child (protocol 4.11)."""

    request_id: str
    child_name: str
    capability: OptionalText = UNSET

    def __post_init__(self) -> None:
        if is_blank(self.child_name):
            raise ValidationError("childName is blank")


class BrokerStatusRequest(RequestFrame, tag="broker_status"):
    """Ask for the status report (protocol 4.19)."""

    request_id: str


class HealthRequest(RequestFrame, tag="health"):
    """Ask whether the event loop turns; not activity (protocol 4.20)."""

    request_id: str

    def __post_init__(self) -> None:
        if len(self.request_id.encode("utf-16-le", "surrogatepass")) // 2 > HEALTH_ID_UNITS:
            raise ValidationError("requestId is too long")


class Shutdown(RequestFrame, tag="shutdown"):
    """Ask the broker to leave (protocol 4.21)."""

    request_id: str


class BrokerDrain(RequestFrame, tag="broker_drain"):
    """Ask the broker to take nothing new, finish what is open, and leave (protocol 4.120)."""

    request_id: str
    timeout_ms: Annotated[int, Meta(ge=0, le=DRAIN_CEILING_MS)]


class CancelAsk(RequestFrame, tag="cancel_ask"):
    """Withdraw an open question; known to legacy pi clients (protocol 4.24)."""

    message_id: str


class MessageReceipt(RequestFrame, tag="message_receipt"):
    """Confirm a message as the pi-intercom client does (protocol 4.95)."""

    message_id: Any = UNSET
    """Any value; one that is no text confirms nothing."""


class CancelMessage(RequestFrame, tag="cancel_message"):
    """Take a message back as the pi-intercom client does (protocol 4.96)."""

    message_id: Any = UNSET
    """Any value; one that is no text takes nothing back."""


class Malformed(Struct):
    """Stand for a frame that is answered in-band although a member has the wrong form.

    ``fields`` holds the members as they came; the core names the first rule they break.
    """

    type: Literal["send", "supervisor_send", "presence", "join_group", "leave_group", "send_pending_stage_notification"]
    fields: dict[str, Any]


class BadRequest(Struct):
    """Stand for a request of a feature whose members have the wrong form; it is refused in-band."""

    type: str
    request_id: str
    reason: str


# --- broker to client -----------------------------------------------------------------------------------


class Registered(AnswerFrame, tag="registered"):
    """Begin every session (protocol 5.1)."""

    session_id: str
    supervisor_session_id: OptionalText = UNSET
    acknowledges_receipt: bool | UnsetType = UNSET
    acknowledges_pending_stage_routes: bool | UnsetType = UNSET
    broker_status: bool | UnsetType = UNSET
    features: list[str] | UnsetType = UNSET
    """Of those asked for, the ones this connection has; only for clients that asked."""
    broker_id: OptionalText = UNSET
    journal_id: OptionalText = UNSET
    epoch: int | UnsetType = UNSET
    incarnation: OptionalText = UNSET
    generation: int | UnsetType = UNSET
    owner_token: OptionalText = UNSET
    address_token: OptionalText = UNSET
    """Told once, to whoever created the address."""
    mailbox_count: int | UnsetType = UNSET


class RegistrationFailed(AnswerFrame, tag="registration_failed"):
    """Refuse a registration; FIN follows (protocol 5.2)."""

    reason: str
    code: OptionalText = UNSET


class Sessions(AnswerFrame, tag="sessions"):
    """Answer ``list`` (protocol 5.3)."""

    request_id: str
    sessions: list[Raw]
    workflow_stages: list[WorkflowStage] | UnsetType = UNSET
    workflow_future_stages: list[FutureStage] | UnsetType = UNSET


class GroupEntry(Struct, rename="camel", frozen=True):
    """Describe one group in ``groups``."""

    group: str
    session_count: int
    member: bool


class Groups(AnswerFrame, tag="groups"):
    """Answer ``list_groups`` (protocol 5.4)."""

    request_id: str
    groups: list[GroupEntry]


class MembershipAck(AnswerFrame, tag="membership_ack"):
    """Answer ``join_group`` and ``leave_group`` (protocol 5.5)."""

    request_id: str
    groups: list[str]


class PresenceAck(AnswerFrame, tag="presence_ack"):
    """Answer ``presence`` (protocol 5.6)."""

    request_id: str
    group: str


class PresenceFailed(AnswerFrame, tag="presence_failed"):
    """Refuse a presence or membership change (protocol 5.7)."""

    request_id: str
    reason: str


class SupervisorAuthorized(AnswerFrame, tag="supervisor_authorized"):
    """Answer ``authorize_supervisor`` (protocol 5.8)."""

    request_id: str
    capability: str
    supervisor_session_id: str
    child_name: str


class MessageFrame(AnswerFrame, tag="message"):
    """Bring a message to its recipient (protocol 5.10)."""

    sender: Raw = field(name="from")
    message: Raw
    channel: Literal["supervisor"] | UnsetType = UNSET
    mail: MailInfo | UnsetType = UNSET
    notice: Notice | UnsetType = UNSET
    push_id: OptionalText = UNSET
    """Of this hand-over; the same at every repetition of it."""
    assignment: AssignmentInfo | UnsetType = UNSET
    valid_until: int | UnsetType = UNSET
    """Until when it is of use (epoch ms); told to connections with the feature ``queue``."""
    invocation: InvokedInfo | UnsetType = UNSET


class Delivered(AnswerFrame, tag="delivered"):
    """Say that the recipient has the message (protocol 5.11)."""

    message_id: str
    attempt_id: OptionalText = UNSET
    delivery: Literal["delivered"] | UnsetType = UNSET
    """This and the next two are told to the pi-intercom client only."""
    retryable: bool | UnsetType = UNSET
    outcome_known: bool | UnsetType = UNSET


class DeliveryFailed(AnswerFrame, tag="delivery_failed"):
    """Say that a send was refused or failed (protocol 5.12)."""

    message_id: str
    reason: str
    attempt_id: OptionalText = UNSET
    reason_code: Literal["message_id_conflict", "session_not_found", "away"] | UnsetType = UNSET
    delivery: Literal["failed"] | UnsetType = UNSET
    """This and the next two are told to the pi-intercom client only."""
    retryable: bool | UnsetType = UNSET
    outcome_known: bool | UnsetType = UNSET


class Queued(AnswerFrame, tag="queued"):
    """Say that the message waits durably (protocol 5.13)."""

    message_id: str
    target: str
    position: int
    attempt_id: OptionalText = UNSET
    not_in_known_set: bool | UnsetType = UNSET
    kept: Literal["quiet", "hold"] | UnsetType = UNSET
    """A policy keeps it; told to whoever was granted ``policy``."""
    joined: OptionalText = UNSET
    """Id of an older message of the same sender that waits there and says the same (protocol 15.3.2)."""
    delivery: Literal["queued"] | UnsetType = UNSET
    """This and the next two are told to the pi-intercom client only."""
    retryable: bool | UnsetType = UNSET
    outcome_known: bool | UnsetType = UNSET


class QuestionTarget(AnswerFrame, tag="question_target"):
    """Tell an asker whose reply will answer (protocol 5.15)."""

    message_id: str
    attempt_id: str
    session_id: str


class PeerDisconnected(AnswerFrame, tag="peer_disconnected"):
    """Tell an asker that the other side left (protocol 5.16)."""

    reply_to: str
    peer_session_id: str
    peer_name: OptionalText = UNSET


class SessionJoined(AnswerFrame, tag="session_joined"):
    """Announce a session that came into reach (protocol 5.17)."""

    session: Raw


class PresenceUpdate(AnswerFrame, tag="presence_update"):
    """Announce a change of a session in reach (protocol 5.18)."""

    session: Raw


class SessionLeft(AnswerFrame, tag="session_left"):
    """Announce a session that went out of reach (protocol 5.19)."""

    session_id: str


class Health(AnswerFrame, tag="health"):
    """Answer ``health`` (protocol 5.26)."""

    request_id: str
    instance_id: str


class BrokerStatus(AnswerFrame, tag="broker_status"):
    """Answer ``broker_status`` (protocol 5.27)."""

    request_id: str
    report: dict[str, Any]


class ShutdownAck(AnswerFrame, tag="shutdown_ack"):
    """Answer ``shutdown`` (protocol 5.28)."""

    request_id: str


class BrokerDrained(AnswerFrame, tag="broker_drained"):
    """Answer ``broker_drain``: the broker leaves now (protocol 5.120)."""

    request_id: str
    finished: bool
    open: dict[str, int]
    """How much of each kind was not finished in time."""
    failed: list[str]
    """What went wrong with links."""


class ErrorFrame(AnswerFrame, tag="error"):
    """Report an error; known to every client, never written by this broker (protocol 5.28)."""

    error: str
