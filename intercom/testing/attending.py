"""Ask a broker in memory who waits for whom, and say what is let through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeVar

from intercom.client import attending
from intercom.client.attending import Policies, PolicyRule, PolicyView, Waits
from intercom.client.operations import Operation
from intercom.client.session import ClientSession
from intercom.client.setup import milliseconds
from intercom.limits import REQUEST_MS, WAITS_TOLD

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker

Result = TypeVar("Result")


class AttentionCalls:
    """Hold the calls; each has its result at once."""

    _broker: MemoryBroker
    _core: ClientSession

    def _now(self, operation: Operation[Result]) -> Result:
        """Return what an operation comes to."""
        raise NotImplementedError

    def waits(
        self,
        *,
        limit: int = WAITS_TOLD,
        timeout: float = REQUEST_MS / 1000,
    ) -> Waits:
        """Return who waits for whose answer, the longest wait first, as far as this session may see both.

        A control session sees all. An ask that would close a circle of such waits is refused (``would_deadlock``).
        """
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(attending.waits(limit=limit, now=now, timeout_ms=timeout_ms))

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
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        whose = None if session_id is None else self._core.lifecycle.present(session_id)
        return self._now(
            attending.set_policy(
                self._core.profile,
                rules,
                address=address,
                group=group,
                session_id=whose,
                now=now,
                timeout_ms=timeout_ms,
            )
        )

    def policies(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> Policies:
        """Return the policies in force and the messages they keep; a control session sees all of them."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(attending.policies(now=now, timeout_ms=timeout_ms))

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
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(attending.settle_held(message_id, action, now=now, timeout_ms=timeout_ms))

    def fetch(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> int:
        """Have the mail handed over that waits without waking, and return how many messages that are."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(attending.fetch(now=now, timeout_ms=timeout_ms))
