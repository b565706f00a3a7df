"""Report to the original sender what became of a message that was queued for a stage (protocol 4.17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from intercom.client.composing import clean_target, clean_text, compose
from intercom.client.owning import Run
from intercom.client.sending import SendOperation
from intercom.client.views import Receipt
from intercom.errors import UsageError
from intercom.limits import RETRY_IDENTITY_MS, SEND_MS
from intercom.wire.frames import SendPendingStageNotification

if TYPE_CHECKING:
    from intercom.wire.unions import Request


class Notification(SendOperation[Receipt]):
    """Wait until the original sender has taken the report; one id, as many attempts as it takes."""

    def __init__(
        self,
        run: Run,
        message_id: str,
        target: str,
        message: Raw,
        *,
        deadline: int,
        sender_name: str | None,
        return_address: str | None,
    ) -> None:
        super().__init__(message_id, target, message, deadline=deadline)
        self._run = run
        self._sender_name = sender_name
        self._return_address = return_address

    @property
    def _may_return(self) -> bool:
        """Tell, always, that a sender that is not there shortly after a reconnect may only be slower."""
        return True

    def _frame(self, attempt_id: str) -> Request:
        return SendPendingStageNotification(
            run_id=self._run.id,
            capability=self._run.capability,
            to=self.target,
            message=self._message,
            attempt_id=attempt_id,
            sender_registration_name=UNSET if self._sender_name is None else self._sender_name,
            sender_return_address=UNSET if self._return_address is None else self._return_address,
        )


def notify(
    run: Run,
    session_id: str,
    text: str,
    *,
    message_id: str,
    now: int,
    wall: int,
    reply_to: str | None = None,
    sender_name: str | None = None,
    return_address: str | None = None,
    timeout_ms: int | None = None,
) -> Notification:
    """Report to the session with this id, or to the same sender under the id it has now; the result is a ``Receipt``.

    The time-out is at most ``RETRY_IDENTITY_MS``, by default ``SEND_MS``.
    """
    longest = SEND_MS if timeout_ms is None else timeout_ms
    if not 0 < longest <= RETRY_IDENTITY_MS:
        raise UsageError(f"a notification waits at most {RETRY_IDENTITY_MS // 1000} s, and more than 0")
    if return_address == "":
        raise UsageError("return_address is empty", hint="Leave it out.")
    return Notification(
        run,
        message_id,
        clean_target(session_id),
        compose(message_id=message_id, timestamp=wall, text=text, reply_to=reply_to),
        deadline=now + longest,
        sender_name=None if sender_name is None else clean_text(sender_name, "sender_name"),
        return_address=None if return_address is None else clean_text(return_address, "return_address"),
    )
