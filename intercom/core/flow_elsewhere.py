"""Say what flows need of whoever knows the sessions of other brokers; a broker that is in no cluster has none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from intercom.core.clock import Instant
    from intercom.core.flow import Dispatch
    from intercom.core.flow_records import TargetIdentity
    from intercom.core.sessions import Session


class Elsewhere(Protocol):
    """Bring steps to the sessions of other brokers."""

    here: str
    """What this machine is called."""

    def is_there(self, node: str) -> bool:
        """Tell whether another machine that is called so can be reached."""

    def unfit(self, session: Session) -> str | None:
        """Return why a session elsewhere cannot be handed a step now."""

    def identity_of(self, session: Session) -> TargetIdentity:
        """Return the exact identity of a session elsewhere."""

    def granted(self, session: Session) -> frozenset[str]:
        """Return the features that its broker granted a session elsewhere."""

    def begun(self, dispatch: Dispatch, now: Instant) -> None:
        """Bring an attempt to its session, once it is recorded."""

    def look_at(self, dispatch: Dispatch, now: Instant) -> None:
        """Go on with an open attempt of which nothing is decided."""

    def ended(self, dispatch: Dispatch, ticket: int) -> None:
        """Let the broker of its session know that an attempt is over, once that is recorded."""
