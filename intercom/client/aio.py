"""Run a session under anyio, on asyncio or trio.

Two tasks of the session's own do all the waiting: one holds the connection, one keeps time. A caller's task only
begins an operation and waits for its event, so cancelling a caller never cuts a frame: what was begun is written
entirely, or the connection is broken on purpose. The socket is a plain one; both shells share everything below.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel

from intercom.client import commands
from intercom.client.dialing import not_answering, told
from intercom.client.operations import Operation
from intercom.client.profile import Purpose
from intercom.client.session import Arrived, Link, Settled, Troubled
from intercom.client.setup import Setup, milliseconds, now, prepare, wall
from intercom.client.views import Attachment, GroupView, Receipt, SessionView
from intercom.client.views import IncomingMessage as _IncomingMessage
from intercom.errors import AccessDenied, IntercomError, UsageError
from intercom.limits import ASK_MS, CONNECT_MS, DISCONNECT_MS, READ_BYTES

__all__ = ["Connection", "IncomingMessage", "Messages", "Session", "connect"]

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]
GroupViews: TypeAlias = list[GroupView]
SessionViews: TypeAlias = list[SessionView]
Result = TypeVar("Result")


def connect(
    name: str | None = None,
    *,
    group: str | None = None,
    groups: Iterable[str] | None = None,
    home: str | os.PathLike[str] | None = None,
    model: str = "",
    status: str | None = None,
    purpose: Purpose = "agent",
    start: bool = True,
    timeout: float = CONNECT_MS / 1000,
    return_address: str | None = None,
    session_id: str | None = None,
    cwd: str | None = None,
) -> Connection:
    """Register a session for the length of an ``async with`` block, starting a broker if none answers.

    Args:
        name: what others call this session.
        group: the home group, else the first of ``groups``, else ``default``.
        groups: further groups to be in from the start.
        home: the directory of the broker, else ``INTERCOM_HOME``, else the user's state directory.
        model: the model behind the session, shown to others.
        status: what the session is doing, shown to others.
        purpose: ``"control"`` for a session that is not listed and gets no messages.
        start: whether to start a broker when none answers.
        timeout: seconds for connecting and registering.
        return_address: secret of an earlier session whose unconfirmed messages this one takes over.
        session_id: the id that session had.
        cwd: the directory shown to others, else the working directory.

    Raises ``UsageError`` or ``HomeError`` at once, ``BrokerError`` or ``RegistrationRefused`` on entering. Leaving
    the block confirms the message in hand; leaving it by an exception does not, so that the message comes again.
    """
    return Connection(
        prepare(
            name,
            group=group,
            groups=groups,
            home=home,
            model=model,
            status=status,
            purpose=purpose,
            start=start,
            timeout=timeout,
            return_address=return_address,
            session_id=session_id,
            cwd=cwd,
            message_kind=IncomingMessage,
        )
    )


class Connection:
    """Be the block in which a session lives; made by ``connect``, used once."""

    def __init__(self, setup: Setup) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._setup: Setup | None = setup

    async def __aenter__(self) -> Session:
        """Connect and register."""
        if self._setup is None:
            raise UsageError("a connection can be entered once", hint="Call connect again.")
        self._session = session = Session(self._setup)
        self._setup = None
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            self._tasks.start_soon(session._hold_connection)
            self._tasks.start_soon(session._keep_time)
            await session._open()
        except BaseException:
            await self._end(finished=False)
            raise
        return session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say goodbye; the tasks of the session end here. The exception of the block passes through unchanged."""
        await self._end(finished=kind is None)

    async def _end(self, *, finished: bool) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._session._close(finished=finished)
        finally:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)


class IncomingMessage(_IncomingMessage):
    """Hold a message somebody sent to this session, and answer it."""

    __slots__ = ("_session",)

    _session: Session

    async def reply(
        self,
        text: str,
        *,
        error: bool = False,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Receipt:
        """Answer the message, which confirms it.

        Args:
            text: the answer.
            error: say that there will be no answer, with ``text`` as the reason.
            attachments: files, snippets or contexts beside the text.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the outcome.

        Raises ``SendError``; the code ``no_open_question`` says that nobody waits for the answer any more.
        """
        session = self._session
        return await session._wait(
            commands.reply(
                self,
                text,
                message_id=session._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                error=error,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )


class Messages:
    """Iterate over the messages of a session; asking for the next one confirms the one before."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __aiter__(self) -> Messages:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> IncomingMessage:
        """Wait for the next message."""
        return await self._session._next(self)


class Session:
    """Be a session in the broker's table; made by ``connect``.

    Any number of tasks may use it at the same time, all in the event loop that opened it.
    """

    def __init__(self, setup: Setup) -> None:
        """Begin offline."""
        self._setup = setup
        self._core = setup.core
        self._link: socket.socket | None = None
        self._link_scope = anyio.CancelScope()
        self._refused: OSError | None = None
        self._unsent = b""
        self._blocked = anyio.Event()
        """Set when the kernel does not take more and the connection's task has to wait for it."""
        self._drained = anyio.Event()
        """Set when nothing is left to write."""
        self._roomier = anyio.Event()
        """Set when the connection may be wanted to be read again."""
        self._hurried = anyio.Event()
        """Set when the next attempt to connect may have become due."""
        self._earlier = anyio.Event()
        """Set when something became due earlier than ``_alarm``."""
        self._alarm: int | None = None
        self._news = anyio.Event()
        """Set, and replaced, when a message or trouble came."""
        self._ended = anyio.Event()
        """Set when the connection ended after the session was closed."""

    # --- what a session can do --------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the session id the broker granted; it stays the same over reconnects where possible."""
        return self._core.session_id

    @property
    def name(self) -> str | None:
        """Return the present name."""
        return self._core.profile.name

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the present memberships."""
        return self._core.profile.groups

    async def send(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Receipt:
        """Send a message and wait until its fate is known.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the message.
            attachments: files, snippets or contexts beside the text.
            reply_to: id of the message this one refers to.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the outcome, 10 by default, at most 660.

        Returns a receipt: delivered or queued. Raises ``SendError`` (its ``retry`` says whether the same message id
        may be sent again), ``TooLarge``, ``UsageError``, or ``BrokerError`` when nothing left this process. A
        cancelled send may have taken effect.
        """
        return await self._wait(
            commands.send(
                target,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                reply_to=reply_to,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )

    async def ask(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float = ASK_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> IncomingMessage:
        """Ask a question and wait for the answer; any number of asks may be under way.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the question.
            attachments: files, snippets or contexts beside the text.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the answer, at most 600; then the question is withdrawn, as on cancellation.

        Raises ``AskError`` (``PeerGone``, ``AskTimeout``, ``ReplyFailed``) or what ``send`` raises.
        """
        answer = await self._wait(
            commands.ask(
                target,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                timeout_ms=milliseconds(timeout, "timeout"),
            )
        )
        return self._ours(answer)

    def messages(self) -> Messages:
        """Iterate over what arrives, for ever.

        The iterator raises ``BrokerError`` when the broker cannot be reached without somebody's help.
        """
        return Messages(self)

    async def receive(self) -> IncomingMessage:
        """Return the next message and confirm the one before."""
        return await self._next(self)

    async def list(self, group: str | None = None) -> SessionViews:
        """Return the sessions in reach, this one included, or those of one group."""
        return await self._wait(commands.list_sessions(group, now=now()))

    async def list_groups(self) -> GroupViews:
        """Return every group with a session in it."""
        return await self._wait(commands.list_groups(now=now()))

    async def join(self, group: str) -> tuple[str, ...]:
        """Join a group and return all memberships; raises ``PresenceRefused``."""
        return await self._wait(commands.join(self._core.profile, group, now=now()))

    async def leave(self, group: str | None = None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, and return all memberships; raises ``PresenceRefused``."""
        return await self._wait(commands.leave(self._core.profile, group, now=now()))

    async def set_presence(
        self, *, name: str | None = None, status: str | None = None, model: str | None = None
    ) -> None:
        """Change what others see; what is ``None`` stays. Raises ``PresenceRefused``."""
        await self._wait(commands.set_presence(self._core.profile, now=now(), name=name, status=status, model=model))

    @property
    def _is_closed(self) -> bool:
        return self._core.link is Link.CLOSED

    # --- callers ----------------------------------------------------------------------------------------

    async def _open(self) -> None:
        await self._wait(self._core.opening(now(), self._setup.timeout_ms))

    async def _wait(self, operation: Operation[Result]) -> Result:
        """Begin an operation and wait until it is settled; withdraw it when the caller is cancelled."""
        operation.token = settled = anyio.Event()
        self._core.begin(operation, now())
        self._hurried.set()
        self._roomier.set()
        self._act()
        try:
            await settled.wait()
        except BaseException:
            self._core.withdraw(operation, now())
            self._act()
            raise
        self._core.taken(operation, now())
        self._act()
        if operation.error is not None:
            raise operation.error
        return cast("Result", operation.result)

    async def _next(self, consumer: object) -> IncomingMessage:
        await anyio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._is_closed:
                raise UsageError("the session is closed")
            message = self._core.take_message(consumer, now())
            self._roomier.set()
            self._act()
            if message is not None:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                return self._ours(message)
            trouble = self._core.take_trouble()
            if trouble is not None:
                raise trouble
            await self._news.wait()

    def _ours(self, message: _IncomingMessage) -> IncomingMessage:
        assert isinstance(message, IncomingMessage), "prepare was told the kind"
        message._session = self
        return message

    # --- after every call of the core -------------------------------------------------------------------

    def _act(self) -> None:
        """Write what is to be written, wake who is to be woken, and break a connection that is to be broken."""
        self._write()
        for event in self._core.events():
            match event:
                case Settled(operation):
                    if operation.token is not None:
                        operation.token.set()
                case Arrived() | Troubled():
                    self._news.set()
                    self._news = anyio.Event()
        if self._core.link is Link.BROKEN:
            self._link_scope.cancel()
        due = self._core.deadline()
        if due is not None and (self._alarm is None or due < self._alarm):
            self._earlier.set()

    def _write(self) -> None:
        """Write as much as the kernel takes now; this never waits, so no cancellation comes in between."""
        data = self._core.outgoing()
        if self._link is None:
            return
        self._unsent = self._unsent + data if self._unsent else data
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._link.fileno(), self._unsent) :]
        except BlockingIOError:
            self._blocked.set()
            return
        except PermissionError as error:
            self._refused = error
            self._link_scope.cancel()
        except OSError:
            # What the broker said last is still to be read; then comes the end of the connection.
            self._unsent = b""
        self._drained.set()

    # --- the tasks of the session -----------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            self._earlier = anyio.Event()
            self._alarm = due = self._core.deadline()
            with anyio.move_on_after(None if due is None else max(0, due - now()) / 1000):
                await self._earlier.wait()
            self._core.tick(now())
            self._act()

    async def _hold_connection(self) -> None:
        while not self._is_closed:
            await self._until_due()
            self._core.connecting()
            try:
                link = await self._find_broker()
            except IntercomError as error:
                if not self._is_closed:
                    self._core.connect_failed(error, now())
                    self._act()
                continue
            with link:
                await self._converse(link)

    async def _until_due(self) -> None:
        while True:
            self._hurried = anyio.Event()
            at = self._core.recovery.at
            left = 0 if at is None else at - now()
            if left <= 0:
                return
            with anyio.move_on_after(left / 1000):
                await self._hurried.wait()

    async def _find_broker(self) -> socket.socket:
        launch = self._setup.launch()
        steps = launch.steps()
        try:
            while True:
                try:
                    pause = next(steps)
                except StopIteration as found:
                    return cast("socket.socket", found.value)
                self._core.standing(launch.standing)
                await anyio.sleep(pause)
        finally:
            steps.close()

    async def _converse(self, link: socket.socket) -> None:
        """Register and read until the connection ends; ``_act`` writes."""
        if self._is_closed:
            return
        self._link = link
        self._link_scope = anyio.CancelScope()
        self._core.connected(now(), wall(), not_answering(self._setup.paths))
        try:
            with self._link_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write_what_waits, link)
                    self._act()
                    await self._read_all(link)
                    tasks.cancel_scope.cancel()
        finally:
            self._link = None
            self._unsent = b""
            self._drained.set()
            self._ended.set()
        refused, self._refused = self._refused, None
        cause = None if refused is None else told(refused, self._setup.paths)
        self._core.eof(now(), cause if isinstance(cause, AccessDenied) else None)
        self._act()

    async def _read_all(self, link: socket.socket) -> None:
        while True:
            while not self._core.wants_data:
                self._roomier = anyio.Event()
                await self._roomier.wait()
            try:
                data = os.read(link.fileno(), READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(link)
                continue
            except OSError as error:
                self._refused = error
                return
            if not data:
                return
            self._core.receive(data, now())
            self._act()
            if self._core.link is Link.BROKEN:
                return
            await anyio.lowlevel.checkpoint()

    async def _write_what_waits(self, link: socket.socket) -> None:
        while True:
            self._blocked = anyio.Event()
            if self._unsent:
                await anyio.wait_writable(link)
                self._act()
            else:
                await self._blocked.wait()

    # --- the end ----------------------------------------------------------------------------------------

    async def _close(self, *, finished: bool) -> None:
        """Say goodbye and wait up to ``DISCONNECT_MS`` until the broker has taken everything."""
        was_online = self._core.link is Link.ONLINE
        self._core.close(now(), finished=finished)
        self._ended = anyio.Event()
        self._drained = anyio.Event()
        self._act()
        self._news.set()
        link = self._link
        if link is None or not was_online:
            return
        with anyio.move_on_after(DISCONNECT_MS / 1000):
            await self._drained.wait()
            self._roomier.set()
            try:
                link.shutdown(socket.SHUT_WR)
            except OSError:
                return
            await self._ended.wait()
