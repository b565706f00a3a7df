"""Be the part of a session that asks who waits and says what is let through, with nothing but calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from intercom.client.blocking_engine import Engine
from intercom.client.session import ClientSession
from intercom.client.setup import milliseconds, now
from intercom.limits import REQUEST_MS, WAITS_TOLD

if TYPE_CHECKING:  # each call loads what it needs: most sessions make none of them
    from intercom.client.attending import Policies, PolicyRule, PolicyView, Waits


class AttentionCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    def waits(
        self,
        *,
        limit: int = WAITS_TOLD,
        timeout: float = REQUEST_MS / 1000,
    ) -> Waits:
        """Return who waits for whose answer, the longest wait first, as far as this session may see both.

        A control session sees all. An ask that would close a circle of such waits is refused (``would_deadlock``).
        """
        from intercom.client import attending

        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: attending.waits(limit=limit, now=now(), timeout_ms=timeout_ms))

    def set_policy(
        self,
        rules: Iterable[PolicyRule],
        *,
        address: str | None = None,
        group: str | None = None,
        session_id: str | None = None,
        timeout: float = REQUEST_MS / 1000,
    ) -> PolicyView:
        """Say what is let through to this session; without rules everything again.

        Args:
            rules: the first that matches a sender counts; without one the message is handed over.
            address: for the person: of whom, by an address; ``group`` tells addresses of one name apart.
            group: the home group of the address.
            session_id: for the person: of whom, by a session.
            timeout: seconds for the answer.

        Answers to questions and messages up a supervisor line always pass. Asks are refused where a message would wait.
        Raises ``RequestRefused``, with the code ``not_allowed`` for somebody else unless this is a control session.
        """
        from intercom.client import attending

        timeout_ms = milliseconds(timeout, "timeout")
        whose = None if session_id is None else self._core.lifecycle.present(session_id)
        return self._engine.wait(
            lambda: attending.set_policy(
                self._core.profile,
                rules,
                address=address,
                group=group,
                session_id=whose,
                now=now(),
                timeout_ms=timeout_ms,
            )
        )

    def policies(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> Policies:
        """Return the policies in force and the messages they keep; a control session sees all of them."""
        from intercom.client import attending

        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: attending.policies(now=now(), timeout_ms=timeout_ms))

    def settle_held(
        self,
        message_id: str,
        action: Literal["release", "refuse"],
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> str:
        """Let a held message through, or refuse it so that its sender is told; for control sessions.

        Raises ``RequestRefused`` with the code ``unknown_message`` when no such message is held.
        """
        from intercom.client import attending

        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: attending.settle_held(message_id, action, now=now(), timeout_ms=timeout_ms))

    def fetch(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> int:
        """Have the mail handed over that waits without waking, and return how many messages that are."""
        from intercom.client import attending

        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: attending.fetch(now=now(), timeout_ms=timeout_ms))
