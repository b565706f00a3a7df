"""Keep both ends of a supervisor line over reconnects (protocol 6.6, F94).

A supervisor shows the broker its capabilities again whenever it is back. A child that comes back first is refused,
since the broker does not know its supervisor yet: it tries again for ``SUPERVISOR_RETURN_MS``, then it registers
without a supervisor, so that others reach it, and claims anew when it next has something to say to its supervisor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET

from intercom.client.composing import clean_text
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile, checked_child
from intercom.errors import RegistrationRefused, TargetNotFound, UsageError
from intercom.limits import REQUEST_MS, SUPERVISOR_RETRY_MS, SUPERVISOR_RETURN_MS, Limits
from intercom.wire.frames import AuthorizeSupervisor, Presence, Registered, SupervisorAuthorized

if TYPE_CHECKING:
    from intercom.wire.unions import Request

ANY_CHILD = "*"
"""Child name of a capability that is for whoever shows it first."""
GONE_CODE = "supervisor_gone"
REFUSED_CODE = "supervisor_refused"


class Line:
    """Take both ends of the line up again at each registration; times are monotonic milliseconds."""

    def __init__(self, profile: Profile) -> None:
        self.claims = True
        """Whether the next registration of a child claims its supervisor."""
        self._profile = profile
        self._until: int | None = None

    def registered(self, answer: Registered, ids: Callable[[], str]) -> list[Request]:
        """Take notice of who the supervisor is now; return what is to be written first of all.

        Those are the capabilities of this session's children, and its name where that is not the one it claimed under.
        """
        profile = self._profile
        frames = self.shown_again(ids)
        supervisor_id = answer.supervisor_session_id
        profile.supervisor_id = None if supervisor_id is UNSET else supervisor_id
        if profile.supervisor_id is not None:
            self._until = None
            if profile.name is not None and profile.name != profile.child_name:
                frames.append(Presence(name=profile.name))
        return frames

    def shown_again(self, ids: Callable[[], str]) -> list[Request]:
        """Return what shows the broker the capabilities of this session's children once more."""
        return [authorization(ids(), child, shown) for shown, child in self._profile.children.items()]

    def refused(self, now: int) -> int:
        """Take notice that a returning child's claim was refused; return the pause before the next attempt."""
        if self._until is None:
            self._until = now + SUPERVISOR_RETURN_MS
        if now < self._until:
            return SUPERVISOR_RETRY_MS
        self.claims = False
        return 0

    def begin_anew(self) -> None:
        """Claim again, with patience: a good connection ended, and the supervisor may return as this session does."""
        if not self.claims:
            self.claims = True
            self._until = None

    def try_once(self, now: int) -> None:
        """Claim again, once: the child has something to say."""
        self.claims = True
        self._until = now


def authorize_child(
    profile: Profile, name: str, *, now: int, capability: str | None = None, timeout_ms: int = REQUEST_MS
) -> RequestOperation[str]:
    """Let a child of that name claim this session as its supervisor; the result is its capability.

    ``capability`` is one that was made under the same owner token for the same name. Without it a name that was
    authorised before gets the same one again, and ``*`` always a new one.
    """
    child = checked_child(name)
    if profile.owner_token is None:
        raise UsageError("a control session gets no messages, so it cannot be a supervisor")
    if capability is not None:
        _refuse_foreign(clean_text(capability, "capability"), profile.owner_token, child)
        known: str | None = capability
    elif child == ANY_CHILD:
        known = None
    else:
        known = next((shown for shown, of in profile.children.items() if of == child), None)
    most = Limits().capabilities_per_session
    if known not in profile.children and len(profile.children) >= most:
        raise UsageError(f"this session has authorised {most} children, which is the limit")

    def read(answer: SupervisorAuthorized) -> str:
        profile.children[answer.capability] = child
        return answer.capability

    return RequestOperation(
        lambda request_id: authorization(request_id, child, known), SupervisorAuthorized, read, now + timeout_ms
    )


def _refuse_foreign(capability: str, owner_token: str, child: str) -> None:
    """Refuse what would break the connection: the broker takes no capability of another owner or name."""
    from intercom.wire.capability import is_made_with  # only a supervisor that was restarted pays for it

    if not is_made_with(capability, owner_token, child):
        raise UsageError(
            "the capability was not made under this owner_token for this name",
            hint="Give the owner_token of the session that made it, and the same name.",
        )


def authorization(request_id: str, child: str, capability: str | None) -> AuthorizeSupervisor:
    """Return the frame that asks for a capability, or shows one again."""
    if capability is None:
        return AuthorizeSupervisor(request_id, child)
    return AuthorizeSupervisor(request_id, child, capability)


def refusal_of_claim(reason: str) -> RegistrationRefused:
    """Return the error for a registration whose capability was not accepted."""
    return RegistrationRefused(
        f"The broker refused to register this session: {reason}",
        code=REFUSED_CODE,
        hint="The supervisor must be connected, and the name must be the one it authorised.",
    )


def gone(message_id: str, cause: BaseException | None = None) -> TargetNotFound:
    """Return the error for a message to a supervisor that is not there; nothing took effect (F90)."""
    error = TargetNotFound(
        "The supervisor of this session is not connected",
        code=GONE_CODE,
        hint="Go on without it, or try again once it is back.",
        retry="after",
    )
    error.message_id = message_id
    error.__cause__ = cause
    return error


def claimed(profile: Profile) -> None:
    """Raise ``UsageError`` unless the session was opened with a supervisor."""
    if profile.supervisor is None:
        raise UsageError("this session has no supervisor", hint="Open it with the capability its supervisor made.")
