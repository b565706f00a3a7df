"""Define the frames of who waits for whom, and of what a session lets through to it (protocol 15).

None of them is ever written to a connection that was not granted the feature ``waits`` or ``policy``.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from intercom.limits import POLICY_RULES, POLICY_TEXT_CHARACTERS, REQUEST_ID_CHARACTERS, WAITS_TOLD
from intercom.wire.mail import MailboxOf
from intercom.wire.shapes import NonEmpty, OptionalText

RequestId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=REQUEST_ID_CHARACTERS)]
RuleText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=POLICY_TEXT_CHARACTERS)]

PolicyAction: TypeAlias = Literal["accept", "quiet", "hold", "refuse"]
"""Hand a message over; let it wait without waking; let it wait for the person; refuse it. From open to shut."""
WaitState: TypeAlias = Literal["open", "under_way", "queued", "asker_away"]


class PolicyRule(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Say what becomes of the messages of some senders; without a sender and a group it is about all."""

    action: PolicyAction
    sender: RuleText | UnsetType = UNSET
    """A name, without regard to case, or a session id."""
    group: RuleText | UnsetType = UNSET
    """The sender is in it."""


class Policy(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Say what a session lets through; the first rule that matches counts, and without one ``accept``."""

    rules: Annotated[list[PolicyRule], Meta(max_length=POLICY_RULES)]


# --- client to broker -----------------------------------------------------------------------------------


class _Request(Struct, tag_field="type", rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Give all frames their tag and naming; an unknown member is refused by name."""

    request_id: RequestId


class WaitsRequest(_Request, tag="waits"):
    """Ask who waits for whom (protocol 4.90)."""

    limit: Annotated[int, Meta(ge=1, le=WAITS_TOLD)] = WAITS_TOLD


class PolicySet(_Request, tag="policy_set"):
    """Set what the requester, or as the operator somebody else, lets through (protocol 4.91)."""

    policy: Policy | UnsetType = UNSET
    """Left out: everything again."""
    of: MailboxOf | UnsetType = UNSET
    """Left out: the requester itself."""


class PoliciesRequest(_Request, tag="policies"):
    """Ask for the policies in force, and what they keep from being handed over (protocol 4.92)."""


class HeldSettle(_Request, tag="held_settle"):
    """Let a held message through, or refuse it; for the operator (protocol 4.93)."""

    message_id: NonEmpty
    action: Literal["release", "refuse"]


class MailFetch(_Request, tag="mail_fetch"):
    """Ask for the mail that waits without waking (protocol 4.94)."""


AttentionRequest: TypeAlias = WaitsRequest | PolicySet | PoliciesRequest | HeldSettle | MailFetch

# --- broker to client -----------------------------------------------------------------------------------


class _Answer(Struct, tag_field="type", rename="camel", omit_defaults=True):
    """Give all frames their tag and naming; optional members that are absent are left out."""

    request_id: str


class WaitEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one wait: somebody asked somebody, and there is no answer yet."""

    message_id: str
    state: WaitState
    asker: str
    """How the requester may call who asked."""
    target: str
    """The same of who was asked."""
    since: int
    asker_id: str
    target_id: OptionalText = UNSET
    deadline: int | UnsetType = UNSET


class WaitsTold(_Answer, tag="waits"):
    """Answer ``waits``, the longest wait first (protocol 5.95)."""

    waits: list[WaitEntry]
    total: int


class PolicyStored(_Answer, tag="policy_stored"):
    """Answer ``policy_set`` (protocol 5.96)."""

    owner: str
    policy: Policy


class PolicyEntry(Struct, rename="camel", omit_defaults=True):
    """Describe a policy in force."""

    owner: str
    """How the requester may call whose it is."""
    set_by: Literal["session", "person"]
    policy: Policy
    set_at: int | UnsetType = UNSET


class HeldEntry(Struct, rename="camel", omit_defaults=True):
    """Describe a message that waits for the person, or waits without waking."""

    message_id: str
    action: Literal["hold", "quiet"]
    owner: str
    sender: Raw
    queued_at: int
    expires_at: int
    size: int
    sends: int | UnsetType = UNSET
    """How many it stands for, which say the same and are settled together (15.3.2)."""


class Policies(_Answer, tag="policies"):
    """Answer ``policies`` (protocol 5.97)."""

    policies: list[PolicyEntry]
    kept: list[HeldEntry]


class HeldSettled(_Answer, tag="held_settled"):
    """Answer ``held_settle`` (protocol 5.98)."""

    message_id: str


class MailFetched(_Answer, tag="mail_fetched"):
    """Answer ``mail_fetch``; the mail follows (protocol 5.99)."""

    count: int


AttentionAnswer: TypeAlias = WaitsTold | PolicyStored | Policies | HeldSettled | MailFetched
