"""Run a session over a plain socket: no event loop, no thread, nothing happens between two calls.

Every call that waits turns the crank: it reads, writes, reconnects and keeps time until it has what it was called
for. A session belongs to one thread at a time. Between calls messages wait in the kernel, unconfirmed.
"""

from __future__ import annotations

import os
import select
import socket
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar, cast

from intercom.client import commands
from intercom.client.dialing import not_answering, told
from intercom.client.launch import Launch, Steps
from intercom.client.operations import Operation
from intercom.client.profile import Purpose
from intercom.client.session import Link
from intercom.client.setup import Setup, milliseconds, now, prepare, wall
from intercom.client.views import Attachment, GroupView, Receipt, SessionView
from intercom.client.views import IncomingMessage as _IncomingMessage
from intercom.errors import AccessDenied, IntercomError, UsageError
from intercom.limits import ASK_MS, CONNECT_MS, DISCONNECT_MS, READ_BYTES

__all__ = ["IncomingMessage", "Messages", "Session", "connect"]

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]
GroupViews: TypeAlias = list[GroupView]
SessionViews: TypeAlias = list[SessionView]
Result = TypeVar("Result")


@contextmanager
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
) -> Iterator[Session]:
    """Register a session for the length of a ``with`` block, starting a broker if none answers.

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

    Raises ``BrokerError``, ``RegistrationRefused``, ``HomeError`` or ``UsageError``. Leaving the block confirms the
    message in hand; leaving it by an exception does not, so that the message comes again.
    """
    session = Session(
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
    try:
        session._open()
        yield session
    except BaseException:
        session._close(finished=False)
        raise
    session._close(finished=True)


class IncomingMessage(_IncomingMessage):
    """Hold a message somebody sent to this session, and answer it."""

    __slots__ = ("_session",)

    _session: Session

    def reply(
        self,
        text: str,
        *,
        error: bool = False,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float | None = None,
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
        return session._wait(
            lambda: commands.reply(
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

    def __init__(self, session: Session, timeout_ms: int | None) -> None:
        self._session = session
        self._timeout_ms = timeout_ms

    def __iter__(self) -> Messages:
        """Return the iterator itself."""
        return self

    def __next__(self) -> IncomingMessage:
        """Wait for the next message; end when none came in time."""
        message = self._session._next(self, self._timeout_ms)
        if message is None:
            raise StopIteration
        return message


class Session:
    """Be a session in the broker's table; made by ``connect``."""

    def __init__(self, setup: Setup) -> None:
        """Begin offline."""
        self._setup = setup
        self._core = setup.core
        self._link: socket.socket | None = None
        self._poll = select.poll()
        self._unsent = b""
        self._launch: Launch | None = None
        self._steps: Steps | None = None
        self._in_use = allocate_lock()

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

    def send(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,
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
        may be sent again), ``TooLarge``, ``UsageError``, or ``BrokerError`` when nothing left this process.
        """
        return self._wait(
            lambda: commands.send(
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

    def ask(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float = ASK_MS / 1000,
    ) -> IncomingMessage:
        """Ask a question and wait for the answer.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the question.
            attachments: files, snippets or contexts beside the text.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the answer, at most 600; then the question is withdrawn.

        Raises ``AskError`` (``PeerGone``, ``AskTimeout``, ``ReplyFailed``) or what ``send`` raises.
        """
        answer = self._wait(
            lambda: commands.ask(
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

    def messages(self, *, timeout: float | None = None) -> Messages:
        """Iterate over what arrives, for ever, or until nothing came for ``timeout`` seconds.

        The iterator raises ``BrokerError`` when the broker cannot be reached without somebody's help.
        """
        return Messages(self, None if timeout is None else milliseconds(timeout, "timeout"))

    def receive(self, *, timeout: float | None = None) -> IncomingMessage | None:
        """Return the next message, or ``None`` when none came within ``timeout`` seconds; confirms the one before."""
        return self._next(self, None if timeout is None else milliseconds(timeout, "timeout"))

    def list(self, group: str | None = None) -> SessionViews:
        """Return the sessions in reach, this one included, or those of one group."""
        return self._wait(lambda: commands.list_sessions(group, now=now()))

    def list_groups(self) -> GroupViews:
        """Return every group with a session in it."""
        return self._wait(lambda: commands.list_groups(now=now()))

    def join(self, group: str) -> tuple[str, ...]:
        """Join a group and return all memberships; raises ``PresenceRefused``."""
        return self._wait(lambda: commands.join(self._core.profile, group, now=now()))

    def leave(self, group: str | None = None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, and return all memberships; raises ``PresenceRefused``."""
        return self._wait(lambda: commands.leave(self._core.profile, group, now=now()))

    def set_presence(self, *, name: str | None = None, status: str | None = None, model: str | None = None) -> None:
        """Change what others see; what is ``None`` stays. Raises ``PresenceRefused``."""
        self._wait(lambda: commands.set_presence(self._core.profile, now=now(), name=name, status=status, model=model))

    # --- turning the crank ------------------------------------------------------------------------------

    def _open(self) -> None:
        self._wait(lambda: self._core.opening(now(), self._setup.timeout_ms))

    def _wait(self, make: Callable[[], Operation[Result]]) -> Result:
        """Begin an operation and turn until it is settled; withdraw it when that is interrupted."""
        with self._used():
            operation = make()
            try:
                self._core.begin(operation, now())
                self._turn_until(lambda: operation.done)
                self._core.taken(operation, now())
                self._flush()
            except BaseException:
                self._core.withdraw(operation, now())
                self._flush()
                raise
        if operation.error is not None:
            raise operation.error
        return cast("Result", operation.result)

    def _next(self, consumer: object, timeout_ms: int | None) -> IncomingMessage | None:
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                message = self._core.take_message(consumer, now())
                if message is not None:
                    self._flush()
                    return self._ours(message)
                trouble = self._core.take_trouble()
                if trouble is not None:
                    raise trouble
                if until is not None and now() >= until:
                    self._flush()
                    return None
                self._turn_until(lambda: self._core.has_news, until)

    def _ours(self, message: _IncomingMessage) -> IncomingMessage:
        assert isinstance(message, IncomingMessage), "prepare was told the kind"
        message._session = self
        return message

    @contextmanager
    def _used(self) -> Iterator[None]:
        if self._core.profile.pid != os.getpid():
            raise UsageError("the session belongs to the process that opened it", hint="Open one in each process.")
        if not self._in_use.acquire(blocking=False):
            raise UsageError("the session is being used by another thread", hint="Open one in each thread.")
        try:
            yield
        finally:
            self._in_use.release()

    def _turn_until(self, done: Callable[[], bool], until: int | None = None) -> None:
        """Read, write, reconnect and keep time until ``done`` or, if given, until a monotonic time."""
        try:
            while not done():
                if self._core.link is Link.CLOSED:
                    raise UsageError("the session is closed")
                wake = min((time for time in (self._core.deadline(), until) if time is not None), default=None)
                if self._link is None:
                    self._turn_offline(wake)
                else:
                    self._turn_online(self._link, wake)
                self._core.tick(now())
                self._core.events()
                if self._link is not None and self._core.link is Link.BROKEN:
                    self._drop()
                if until is not None and now() >= until:
                    return
        finally:
            self._give_up_launch()

    def _turn_offline(self, wake: int | None) -> None:
        if self._steps is None:
            at = self._core.recovery.at
            assert at is not None, "an open session that is offline always has a next attempt"
            if at > now():
                _sleep_until(at if wake is None else min(at, wake))
                return
            self._core.connecting()
            self._launch = self._setup.launch()
            self._steps = self._launch.steps()
        assert self._launch is not None
        try:
            pause = next(self._steps)
        except StopIteration as found:
            self._launch = self._steps = None
            self._link = found.value
            self._core.connected(now(), wall(), not_answering(self._setup.paths))
            return
        except IntercomError as error:
            self._launch = self._steps = None
            self._core.connect_failed(error, now())
            return
        self._core.standing(self._launch.standing)
        then = now() + round(pause * 1000)
        _sleep_until(then if wake is None else min(then, wake))

    def _turn_online(self, link: socket.socket, wake: int | None) -> None:
        self._flush()
        if self._link is None:
            return
        wanted = (select.POLLIN if self._core.wants_data else 0) | (select.POLLOUT if self._unsent else 0)
        self._poll.register(link, wanted)
        # An exception out of a signal handler is harmless here and nowhere else below.
        ready = self._poll.poll(None if wake is None else max(0, wake - now()))
        try:
            if ready and ready[0][1] & ~select.POLLOUT:
                self._read(link)
            self._flush()
        except Exception:
            raise
        except BaseException:
            self._drop()
            raise

    def _read(self, link: socket.socket) -> None:
        try:
            data = os.read(link.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(error)
            return
        if not data:
            self._drop()
            return
        self._core.receive(data, now())
        if self._core.link is Link.BROKEN:
            self._drop()

    def _flush(self) -> None:
        """Write as much as the kernel takes now; what it does not take stays in ``_unsent``."""
        if self._link is None:
            return
        try:
            self._unsent += self._core.outgoing()
            while self._unsent:
                self._unsent = self._unsent[os.write(self._link.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except PermissionError as error:
            self._drop(error)
        except OSError:
            # What the broker said last is still to be read; then comes the end of the connection.
            self._unsent = b""
        except BaseException:
            # It is not known how much the kernel took, and half a frame must not be followed by another.
            self._drop()
            raise

    def _drop(self, error: OSError | None = None) -> None:
        """Close the connection; the session goes on with another one."""
        if self._link is None:
            return
        link, self._link = self._link, None
        with suppress(KeyError, OSError, ValueError):
            self._poll.unregister(link)
        link.close()
        self._unsent = b""
        cause = None if error is None else told(error, self._setup.paths)
        self._core.eof(now(), cause if isinstance(cause, AccessDenied) else None)

    def _give_up_launch(self) -> None:
        """Stop waiting for a broker; one that is being started goes on by itself."""
        if self._steps is not None and self._launch is not None:
            steps, launch, self._steps, self._launch = self._steps, self._launch, None, None
            steps.close()
            self._core.connect_failed(launch.standing, now())

    # --- the end ----------------------------------------------------------------------------------------

    def _close(self, *, finished: bool) -> None:
        """Say goodbye and wait up to ``DISCONNECT_MS`` until the broker has taken everything."""
        was_online = self._core.link is Link.ONLINE
        self._core.close(now(), finished=finished)
        try:
            if was_online and self._link is not None:
                self._say_goodbye(self._link, now() + DISCONNECT_MS)
        finally:
            if self._link is not None:
                self._link.close()
                self._link = None

    def _say_goodbye(self, link: socket.socket, until: int) -> None:
        self._flush()
        while self._unsent and now() < until:
            self._poll.register(link, select.POLLOUT)
            self._poll.poll(max(0, until - now()))
            self._flush()
        with suppress(OSError):
            link.shutdown(socket.SHUT_WR)
            self._poll.register(link, select.POLLIN)
            while now() < until and self._poll.poll(max(0, until - now())):
                if not os.read(link.fileno(), READ_BYTES):
                    return


def _sleep_until(time_ms: int) -> None:
    time.sleep(max(0, time_ms - now()) / 1000)
