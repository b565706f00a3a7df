"""Define the frames with which sessions follow what happens, and have others started.

None of them is ever written to a connection that was not granted the feature it belongs to (protocol 11, 5.30).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, SPAWN_PROMPT_CHARACTERS, WATCH_SUBJECTS
from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

IdempotencyKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARACTERS)]
Restart: TypeAlias = Literal["ahead", "compacted", "other_journal"]
"""Why nothing can be told from the sequence a client named: the journal is not that far, is shortened, is another."""
End: TypeAlias = Literal[
    "broker_shutdown", "compacted", "not_read", "session_ended", "store_unusable", "too_slow", "unwatched"
]
"""Why a watch is over."""


class WatchSubject(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Name one thing to follow by exactly one member; ``group`` beside ``address`` tells addresses apart."""

    session_id: NonEmpty | UnsetType = UNSET
    address: NonEmpty | UnsetType = UNSET
    group: NonEmpty | UnsetType = UNSET
    message_id: NonEmpty | UnsetType = UNSET
    assignment_id: NonEmpty | UnsetType = UNSET
    flow_id: NonEmpty | UnsetType = UNSET
    invocation_id: NonEmpty | UnsetType = UNSET
    link_id: NonEmpty | UnsetType = UNSET

    def __post_init__(self) -> None:
        named = [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]
        if len(named) != 1 and named != ["address", "group"]:
            raise ValueError("a subject is named by one member, or by address and group")


# --- client to broker -----------------------------------------------------------------------------------


class WatchRequest(FeatureRequest, tag="watch"):
    """Follow what happens from now on, or from a sequence of the journal on (protocol 4.55)."""

    of: Annotated[list[WatchSubject], Meta(min_length=1, max_length=WATCH_SUBJECTS)] | UnsetType = UNSET
    """Left out: everything the requester may see."""
    after_seq: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    journal_id: OptionalText = UNSET
    """The journal ``after_seq`` is a sequence of."""


class UnwatchRequest(FeatureRequest, tag="unwatch"):
    """End a watch (protocol 4.56)."""

    watch_id: str


class SpawnSession(FeatureRequest, tag="spawn_session"):
    """Have a session started by a command that the settings name (protocol 4.57)."""

    idempotency_key: IdempotencyKey
    kind: NonEmpty
    prompt: Annotated[str, Meta(max_length=SPAWN_PROMPT_CHARACTERS)]


FollowingRequest: TypeAlias = WatchRequest | UnwatchRequest | SpawnSession

# --- broker to client -----------------------------------------------------------------------------------


class WatchedState(Struct, rename="camel", omit_defaults=True):
    """Say how one thing is when a watch begins."""

    kind: str
    state: str
    about: dict[str, str]
    detail: dict[str, Any] | UnsetType = UNSET


class WatchedEvent(Struct, rename="camel", omit_defaults=True):
    """Describe one thing that happened; it never holds the text of a message, nor a secret."""

    kind: str
    at: int
    about: dict[str, str]
    detail: dict[str, Any] | UnsetType = UNSET
    kept: bool = True
    """It is in the journal; what is not is told to who follows it just now, and never again."""


class Watching(FeatureAnswer, tag="watching"):
    """Answer ``watch``: how things are at a sequence; what is behind it follows (protocol 5.65)."""

    watch_id: str
    journal_id: str
    seq: int
    snapshot: list[WatchedState] | UnsetType = UNSET
    """Absent when it goes on from the sequence that was named."""
    restarted: Restart | UnsetType = UNSET
    left_out: int = 0
    """How much did not fit into the snapshot."""


class WatchEvent(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="watch_event"):
    """Tell one thing that happened, after it was recorded (protocol 5.66)."""

    watch_id: str
    seq: int
    event: Raw


class WatchAlive(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="watch_alive"):
    """Say that everything up to a sequence was told (protocol 5.67)."""

    watch_id: str
    seq: int


class WatchEnded(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="watch_ended"):
    """Say that a watch is over, why, and up to where everything was told (protocol 5.68)."""

    watch_id: str
    reason: End
    seq: int
    request_id: OptionalText = UNSET
    """Of ``unwatch``."""


class SpawnStatus(FeatureAnswer, tag="spawn_status"):
    """Answer ``spawn_session`` first with *received*, then with what became of it (protocol 5.69)."""

    status: Literal["applied", "failed", "received"]
    session_id: OptionalText = UNSET
    code: OptionalText = UNSET
    reason: OptionalText = UNSET


FollowingAnswer: TypeAlias = Watching | WatchEvent | WatchAlive | WatchEnded | SpawnStatus
