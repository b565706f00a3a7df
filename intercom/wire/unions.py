"""Name every frame that a client may write, and every frame that the broker may write.

Loading this module loads the frames of all features, and a decoder for it takes long to make: the codec does both only
when something else came than everybody uses.
"""

from __future__ import annotations

from typing import TypeAlias

from intercom.wire.attention import AttentionAnswer, AttentionRequest
from intercom.wire.flows import FlowAnswer, FlowRequest
from intercom.wire.frames import (
    AuthorizeSupervisor,
    BrokerDrain,
    BrokerDrained,
    BrokerStatus,
    BrokerStatusRequest,
    CancelAsk,
    CancelMessage,
    Delivered,
    DeliveryFailed,
    ErrorFrame,
    Groups,
    Health,
    HealthRequest,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSessions,
    LiveWorkflowStageRouteRegistered,
    MembershipAck,
    MessageFrame,
    MessageReceipt,
    PeerDisconnected,
    PendingStageMessage,
    PendingStageMessageResult,
    PendingStageNotification,
    PendingStageNotificationResult,
    PendingStageRouteRegistered,
    PendingStageRouteRevoked,
    Presence,
    PresenceAck,
    PresenceFailed,
    PresenceUpdate,
    QuestionTarget,
    Queued,
    Received,
    Register,
    Registered,
    RegisterLiveWorkflowStageRoute,
    RegisterPendingStageRoute,
    RegistrationFailed,
    ReleaseRestoringRecipient,
    ReserveRestoringRecipient,
    RestoringRecipientAck,
    Send,
    SendHeld,
    SendPendingStageNotification,
    SessionJoined,
    SessionLeft,
    Sessions,
    Shutdown,
    ShutdownAck,
    StickyLiveDelivered,
    SupervisorAuthorized,
    SupervisorSend,
    Unregister,
)
from intercom.wire.invocations import InvocationAnswer, InvocationRequest
from intercom.wire.links import LinkAnswer, LinkReport, LinkRequest
from intercom.wire.mail import MailAnswer, MailRequest
from intercom.wire.outbox import OutboxAnswer, OutboxRequest
from intercom.wire.watching import FollowingAnswer, FollowingRequest
from intercom.wire.work import WorkAnswer, WorkRequest

FeatureRequests: TypeAlias = (
    MailRequest
    | WorkRequest
    | FollowingRequest
    | AttentionRequest
    | FlowRequest
    | LinkRequest
    | InvocationRequest
    | OutboxRequest
)
"""Every frame that belongs to a feature: it is refused in-band when a member is wrong."""

Request: TypeAlias = (
    Register
    | Unregister
    | ListSessions
    | ListGroups
    | Presence
    | JoinGroup
    | LeaveGroup
    | Send
    | SupervisorSend
    | Received
    | AuthorizeSupervisor
    | ReserveRestoringRecipient
    | ReleaseRestoringRecipient
    | RegisterPendingStageRoute
    | RegisterLiveWorkflowStageRoute
    | PendingStageMessageResult
    | SendPendingStageNotification
    | PendingStageNotificationResult
    | BrokerStatusRequest
    | HealthRequest
    | Shutdown
    | BrokerDrain
    | CancelAsk
    | FeatureRequests
    | MessageReceipt
    | CancelMessage
    | LinkReport
)
"""Every frame a client may write."""

Answer: TypeAlias = (
    Registered
    | RegistrationFailed
    | Sessions
    | Groups
    | MembershipAck
    | PresenceAck
    | PresenceFailed
    | SupervisorAuthorized
    | RestoringRecipientAck
    | MessageFrame
    | Delivered
    | DeliveryFailed
    | Queued
    | SendHeld
    | QuestionTarget
    | PeerDisconnected
    | SessionJoined
    | PresenceUpdate
    | SessionLeft
    | PendingStageRouteRegistered
    | PendingStageRouteRevoked
    | PendingStageMessage
    | StickyLiveDelivered
    | LiveWorkflowStageRouteRegistered
    | PendingStageNotification
    | Health
    | BrokerStatus
    | ShutdownAck
    | BrokerDrained
    | ErrorFrame
    | MailAnswer
    | FollowingAnswer
    | WorkAnswer
    | FlowAnswer
    | AttentionAnswer
    | LinkAnswer
    | InvocationAnswer
    | OutboxAnswer
)
"""Every frame the broker may write."""
