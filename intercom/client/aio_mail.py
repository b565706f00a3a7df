"""Be the part of a session that asks about mail, addresses and sessions, under anyio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from intercom.client import commands
from intercom.client.aio_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.mailing import MailRequests
from intercom.client.mailviews import AddressView, Mailbox, OutboxPage, Peeked, PendingAsk, Purged, SessionRecord, Trace
from intercom.client.session import ClientSession
from intercom.client.setup import now, wall
from intercom.client.views import Attachment, Receipt
from intercom.limits import MAILBOX_PAGE, REQUEST_MS

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]


class MailCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession
    _mail: MailRequests

    @property
    def former_ids(self) -> tuple[str, ...]:
        """Return the ids it had before, oldest first; calls that take an id take them for the present one."""
        return self._core.lifecycle.former_ids

    @property
    def features(self) -> frozenset[str]:
        """Return what the present broker granted; nothing where it is an older one."""
        return self._core.lifecycle.features

    @property
    def waiting(self) -> int:
        """Return how many messages waited for this session when its present connection was made."""
        return self._core.lifecycle.mailbox_count

    async def pending(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> list[PendingAsk]:
        """Return the questions this session, or anybody under its address, owes an answer, oldest first."""
        return await self._engine.wait(self._mail.pending(timeout))

    async def answer(
        self,
        question: PendingAsk,
        text: str,
        *,
        error: bool = False,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Receipt:
        """Answer a question that ``pending`` returned, also one that another session of the address received.

        Arguments and errors are those of ``IncomingMessage.reply``.
        """
        return await self._engine.wait(
            commands.answer(
                question,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                error=error,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )

    async def trace(
        self,
        message_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> Trace:
        """Return what became of a message this session or its address sent or got, and where it is now.

        A control session may trace any message. One that nothing is known of has the state ``unknown``.
        """
        return await self._engine.wait(self._mail.trace(message_id, timeout))

    async def mailbox(
        self,
        address: str | None = None,
        *,
        group: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        limit: int = MAILBOX_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> Mailbox:
        """Return what waits in a mailbox, without the texts; nothing is taken out.

        Args:
            address: an address, else the mailbox of this session; ``group`` tells addresses of one name apart.
            group: the home group of the address.
            session_id: the session, where it has no address.
            after: only entries behind this one.
            limit: most entries to return, up to 1,000.
            timeout: seconds for the answer.

        Raises ``RequestRefused``, with the code ``not_allowed`` for that of another, unless this is a control session.
        """
        return await self._engine.wait(self._mail.mailbox(address, group, session_id, after, limit, timeout))

    async def peek(
        self,
        *,
        after: int = 0,
        limit: int = MAILBOX_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> Peeked:
        """Return what waits in the mailbox of this session, with the texts; nothing is taken out, and nothing counts as
        handed over.

        Args:
            after: only messages behind this entry (``message.mail.entry``).
            limit: most messages to return, up to 1,000.
            timeout: seconds for the answer.

        A message that was read is taken out with ``settle_mail``, or comes to whoever receives next.
        """
        return await self._engine.wait(self._mail.peek(after, limit, timeout))

    async def settle_mail(
        self,
        message_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> str:
        """Say that a message ``peek`` showed was read: it counts as delivered, and a question is open to be answered.

        Raises ``RequestRefused`` with the code ``unknown_message`` when it does not wait any more, ``in_progress``
        while somebody receives it.
        """
        return await self._engine.wait(self._mail.settle(message_id, timeout))

    async def addresses(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> list[AddressView]:
        """Return the addresses: who holds each, and how much waits there."""
        return await self._engine.wait(self._mail.addresses(timeout))

    async def session_records(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> list[SessionRecord]:
        """Return the sessions that are known: here, away with time to return, or closed; for control sessions."""
        return await self._engine.wait(self._mail.session_records(timeout))

    async def force_close(
        self,
        session_id: str,
        reason: str | None = None,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> bool:
        """Close a session for good and return whether it was known; for control sessions."""
        return await self._engine.wait(self._mail.force_close(session_id, reason, timeout))

    async def task_hint(
        self,
        text: str,
        *,
        session_id: str | None = None,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> str:
        """Say in a few words what this session works on, and return what was kept; an empty text takes it back.

        ``session_id`` names another session that acts under the same address.
        """
        return await self._engine.wait(self._mail.task_hint(text, session_id, timeout))

    async def purge(
        self,
        *,
        older_than: float | None = None,
        address: str | None = None,
        group: str | None = None,
        session_id: str | None = None,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> Purged:
        """Delete kept texts and history; for control sessions.

        Args:
            older_than: only what is older than so many seconds.
            address: delete also the mail that waits for this address; ``group`` tells addresses of one name apart.
            group: the home group of the address.
            session_id: delete also the mail that waits for this session.
            timeout: seconds for the answer.
        """
        return await self._engine.wait(self._mail.purge(older_than, address, group, session_id, timeout))

    async def outbox(
        self,
        *,
        peer: str | None = None,
        status: str | None = None,
        delivery_id: str | None = None,
        after: int = 0,
        limit: int = 100,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> OutboxPage:
        """Return what is on its way to other machines, or waits for them, the oldest first; for control sessions.

        Args:
            peer: only what is for this broker, by its id or by what its machine is called.
            status: only entries with it: ``accepted``, ``posted``, ``deferred``, ``peer_acked`` or ``running``.
            delivery_id: only this entry.
            after: only entries behind the one with this number.
            limit: at most so many.
            timeout: seconds for the answer.
        """
        return await self._engine.wait(self._mail.outbox(peer, status, delivery_id, after, limit, timeout))

    async def retry_outbox(
        self,
        delivery_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> str:
        """Bring an entry of the outbox away now, whenever it was to be; for control sessions.

        Raises ``RequestRefused`` with the code ``unknown_delivery`` when nothing of this id is in the outbox.
        """
        return await self._engine.wait(self._mail.outbox_retry(delivery_id, timeout))

    async def cancel_outbox(
        self,
        delivery_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> str:
        """Give up a message in the outbox, which may arrive all the same if it was posted; for control sessions.

        Raises ``RequestRefused`` with the code ``unknown_delivery`` when nothing of this id is in the outbox,
        ``not_a_message`` when it is a task: ``cancel_invocation`` ends that.
        """
        return await self._engine.wait(self._mail.outbox_cancel(delivery_id, timeout))
