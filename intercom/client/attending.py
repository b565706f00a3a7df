"""Ask who waits for whom, and say what is let through; ``now`` is monotonic, in milliseconds.

Times in what is returned are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert, to_builtins

from intercom.client.composing import clean_id, clean_text
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile
from intercom.client.views import SessionView, view_of
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS, WAITS_TOLD
from intercom.wire import attention
from intercom.wire.mail import MailboxOf

__all__ = ["KeptMessage", "Policies", "PolicyRule", "PolicyView", "Wait", "Waits"]

PolicyAction: TypeAlias = attention.PolicyAction
POLICY_MEMBERS = ("inboundPolicy", "personPolicy")
"""Members of a session object that show its policies: its own, and the person's."""
Value = TypeVar("Value")


class PolicyRule(Struct, frozen=True):
    """Say what becomes of messages: of one sender, of those in one group, or of all.

    ``action`` is ``"accept"``, ``"quiet"`` (the message waits and wakes nobody), ``"hold"`` (it waits for the person to
    let it through) or ``"refuse"``; ``sender`` is a name, without regard to case, or a session id.
    """

    action: PolicyAction
    sender: str | None = None
    group: str | None = None


class Wait(Struct, frozen=True, kw_only=True):
    """Describe a question that somebody waits for.

    ``state`` is ``"open"`` when the other side has it, ``"under_way"`` before that, ``"queued"`` while it waits in a
    mailbox, ``"asker_away"`` while its asker has still to return.
    """

    message_id: str
    state: attention.WaitState
    asker: str
    target: str
    asker_id: str
    target_id: str | None
    since: int
    deadline: int | None


class Waits(Struct, frozen=True):
    """Say who waits for whom, the longest wait first; ``total`` may be more than are told."""

    waits: tuple[Wait, ...]
    total: int


class PolicyView(Struct, frozen=True, kw_only=True):
    """Describe a policy in force: whose messages it is about, and who has set it."""

    owner: str
    set_by: Literal["session", "person"]
    rules: tuple[PolicyRule, ...]
    set_at: int | None


class KeptMessage(Struct, frozen=True, kw_only=True):
    """Describe a message that a policy keeps from being handed over."""

    message_id: str
    action: Literal["quiet", "hold"]
    owner: str
    """Whose mailbox it waits in."""
    sender: SessionView
    queued_at: int
    expires_at: int
    size: int
    sends: int = 1
    """How often its sender wrote it, word for word; what is done about one is done about all."""


class Policies(Struct, frozen=True):
    """Say which policies are in force, and which messages they keep, oldest first."""

    policies: tuple[PolicyView, ...]
    kept: tuple[KeptMessage, ...]


def waits(*, limit: int = WAITS_TOLD, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[Waits]:
    """Ask who waits for whom."""
    if not 0 < limit <= WAITS_TOLD:
        raise UsageError(f"limit must be a number from 1 to {WAITS_TOLD}, not {limit!r}")

    def read(answer: attention.WaitsTold) -> Waits:
        return Waits(tuple(_wait_of(entry) for entry in answer.waits), answer.total)

    return RequestOperation(
        lambda request_id: attention.WaitsRequest(request_id, limit),
        attention.WaitsTold,
        read,
        now + timeout_ms,
        needs_feature="waits",
    )


def set_policy(
    profile: Profile,
    rules: Iterable[PolicyRule],
    *,
    address: str | None = None,
    group: str | None = None,
    session_id: str | None = None,
    now: int,
    timeout_ms: int = REQUEST_MS,
) -> RequestOperation[PolicyView]:
    """Say what is let through to this session or, as the person, to an address or a session; no rules: everything.

    What was stored for this session goes into its ``profile``: a broker that forgot the session is told it again.
    """
    wanted = policy_of(rules)
    of: MailboxOf | UnsetType = UNSET
    if address is not None and session_id is not None:
        raise UsageError("a policy is for an address or for a session, not for both")
    if address is not None:
        of = MailboxOf(
            address=clean_text(address, "address"), group=UNSET if group is None else clean_text(group, "group")
        )
    elif session_id is not None:
        of = MailboxOf(session_id=clean_text(session_id, "session_id"))
    elif group is not None:
        raise UsageError("a group names nobody", hint="Name an address in it.")

    def read(answer: attention.PolicyStored) -> PolicyView:
        view = PolicyView(
            owner=answer.owner,
            set_by="session" if of is UNSET else "person",
            rules=_rules_of(answer.policy),
            set_at=None,
        )
        if of is UNSET:
            profile.policy = as_member(view.rules) if view.rules else None
        return view

    return RequestOperation(
        lambda request_id: attention.PolicySet(request_id, wanted, of),
        attention.PolicyStored,
        read,
        now + timeout_ms,
        needs_feature="policy",
    )


def policies(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[Policies]:
    """Ask for the policies in force and for what they keep."""

    def read(answer: attention.Policies) -> Policies:
        return Policies(
            tuple(
                PolicyView(
                    owner=entry.owner,
                    set_by=entry.set_by,
                    rules=_rules_of(entry.policy),
                    set_at=_known(entry.set_at),
                )
                for entry in answer.policies
            ),
            tuple(
                KeptMessage(
                    message_id=entry.message_id,
                    action=entry.action,
                    owner=entry.owner,
                    sender=view_of(entry.sender, is_partial=True),
                    queued_at=entry.queued_at,
                    expires_at=entry.expires_at,
                    size=entry.size,
                    sends=1 if entry.sends is UNSET else entry.sends,
                )
                for entry in answer.kept
            ),
        )

    return RequestOperation(
        attention.PoliciesRequest, attention.Policies, read, now + timeout_ms, needs_feature="policy"
    )


def settle_held(
    message_id: str, action: Literal["release", "refuse"], *, now: int, timeout_ms: int = REQUEST_MS
) -> RequestOperation[str]:
    """Let a held message through, or refuse it; the result is its id."""
    wanted = clean_id(message_id)
    if action not in ("release", "refuse"):
        raise UsageError(f"action must be 'release' or 'refuse', not {action!r}")

    def read(answer: attention.HeldSettled) -> str:
        return answer.message_id

    return RequestOperation(
        lambda request_id: attention.HeldSettle(request_id, wanted, action),
        attention.HeldSettled,
        read,
        now + timeout_ms,
        needs_feature="policy",
    )


def fetch(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[int]:
    """Ask for the mail that waits without waking; the result is how much that is, and it follows."""

    def read(answer: attention.MailFetched) -> int:
        return answer.count

    return RequestOperation(attention.MailFetch, attention.MailFetched, read, now + timeout_ms, needs_feature="policy")


def policy_of(rules: Iterable[PolicyRule]) -> attention.Policy:
    """Return rules as they go on the wire; raise ``UsageError`` for what breaks the protocol."""
    given = [
        {
            "action": rule.action,
            **({} if rule.sender is None else {"sender": clean_text(rule.sender, "sender")}),
            **({} if rule.group is None else {"group": clean_text(rule.group, "group")}),
        }
        for rule in rules
    ]
    try:
        return convert({"rules": given}, attention.Policy)
    except ValidationError as error:
        raise UsageError(f"the policy has the wrong form: {error}") from error


def policy_in(raw: dict[str, Any], member: str) -> tuple[PolicyRule, ...]:
    """Return the rules that a session object shows under ``member``; none when it has no policy there."""
    try:
        return _rules_of(convert(raw.get(member, {"rules": []}), attention.Policy))
    except ValidationError:
        return ()


def as_member(rules: Iterable[PolicyRule]) -> dict[str, Any]:
    """Return rules as the member of a session object."""
    built: dict[str, Any] = to_builtins(policy_of(rules))
    return built


def _rules_of(policy: attention.Policy) -> tuple[PolicyRule, ...]:
    return tuple(PolicyRule(rule.action, _known(rule.sender), _known(rule.group)) for rule in policy.rules)


def _wait_of(entry: attention.WaitEntry) -> Wait:
    return Wait(
        message_id=entry.message_id,
        state=entry.state,
        asker=entry.asker,
        target=entry.target,
        asker_id=entry.asker_id,
        target_id=_known(entry.target_id),
        since=entry.since,
        deadline=_known(entry.deadline),
    )


def _known(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value
