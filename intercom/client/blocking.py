"""Be a session over a plain socket: no event loop, no thread, nothing happens between two calls.

A session belongs to one thread at a time. Between calls messages wait in the kernel, unconfirmed; a call reconnects
where that is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from intercom.client import commands
from intercom.client.activity import Activity
from intercom.client.asking import OnProgress
from intercom.client.blocking_engine import Engine
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.profile import Purpose, checked_claim
from intercom.client.setup import milliseconds, now, prepare, wall
from intercom.client.views import Attachment, GroupView, Receipt, SessionView
from intercom.client.views import IncomingMessage as _IncomingMessage
from intercom.limits import ASK_MS, CONNECT_MS, REQUEST_MS

__all__ = ["Events", "IncomingMessage", "Messages", "Session", "connect"]

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]
GroupViews: TypeAlias = list[GroupView]
SessionViews: TypeAlias = list[SessionView]


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
    supervisor: str | None = None,
    owner_token: str | None = None,
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
        supervisor: the capability that a supervisor made with ``authorize_child`` for this ``name``.
        owner_token: a secret of the program's own under which capabilities are made, so that it can be restarted.

    Raises ``BrokerError``, ``RegistrationRefused``, ``HomeError`` or ``UsageError``. Leaving the block confirms the
    message in hand; leaving it by an exception does not, so that the message comes again.
    """
    engine = Engine(
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
            supervisor=supervisor,
            owner_token=owner_token,
            message_kind=IncomingMessage,
        )
    )
    try:
        engine.open()
        yield Session(engine)
    except BaseException:
        engine.close(finished=False)
        raise
    engine.close(finished=True)


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
        return session._engine.wait(
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
        session = self._session
        message = session._engine.next(self, self._timeout_ms)
        if message is None:
            raise StopIteration
        return session._ours(message)


class Events:
    """Iterate over what happens around a session; an event that is not taken in time is dropped, and counted."""

    def __init__(self, session: Session, feed: Feed, timeout_ms: int | None) -> None:
        self._session = session
        self._feed = feed
        self._timeout_ms = timeout_ms

    def __iter__(self) -> Events:
        """Return the iterator itself."""
        return self

    def __next__(self) -> SessionEvent:
        """Wait for the next event; end when none came in time."""
        event = self._session._engine.next_event(self._feed, self._timeout_ms)
        if event is None:
            raise StopIteration
        return event


class Session:
    """Be a session in the broker's table; made by ``connect``."""

    def __init__(self, engine: Engine) -> None:
        """Begin offline."""
        self._engine = engine
        self._core = engine.core
        self._activity = Activity(self.announce)

    @property
    def id(self) -> str:
        """Return the session id the broker granted; it stays the same over reconnects where possible."""
        return self._core.session_id

    @property
    def name(self) -> str | None:
        """Return the present name."""
        return self._core.profile.name

    @property
    def status(self) -> str | None:
        """Return the present status."""
        return self._core.profile.status

    @property
    def model(self) -> str:
        """Return the present model."""
        return self._core.profile.model

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the present memberships."""
        return self._core.profile.groups

    @property
    def supervisor_id(self) -> str | None:
        """Return the session id of the supervisor, or ``None`` without one or while it is gone."""
        return self._core.profile.supervisor_id

    def send(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,
        logical_target: str | None = None,
        progress: bool | str = False,
    ) -> Receipt:
        """Send a message and wait until its fate is known.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the message.
            attachments: files, snippets or contexts beside the text.
            reply_to: id of the message this one refers to.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the outcome, 10 by default, at most 660.
            logical_target: what the user wrote, where the program found out itself that it means ``target``.
            progress: say that this answers no question but tells how far it is; true for the only one that the
                target asked, or the id of the question.

        Returns a receipt: delivered or queued. A message to a session that asked exactly one question which this
        session has taken and not answered is sent as the answer, and the receipt says so (``inferred_reply_to``); with
        several it answers none, and the receipt tells how to (``hint``). Raises ``SendError`` (its ``retry`` says
        whether the same message id may be sent again), ``TooLarge``, ``UsageError``, or ``BrokerError`` when nothing
        left this process.
        """
        return self._engine.wait(
            lambda: commands.send(
                target,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                reply_to=reply_to,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
                logical_target=logical_target,
                progress=progress,
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
        logical_target: str | None = None,
        patience: float | None = None,
        on_progress: Callable[[IncomingMessage], object] | None = None,
    ) -> IncomingMessage:
        """Ask a question and wait for the answer.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the question.
            attachments: files, snippets or contexts beside the text.
            message_id: id of an earlier attempt that is to be repeated.
            logical_target: what the user wrote, where the program found out itself that it means ``target``.
            timeout: seconds for the answer, at most 600; then the question is withdrawn.
            patience: seconds that each sign of progress gives the other side from then on, within 600 in all.
            on_progress: called with each message that tells of progress, at once; it must not wait. What it raises
                ends the ask. Without it such a message is an ordinary one.

        Raises ``AskError`` (``PeerGone``, ``AskTimeout``, ``ReplyFailed``) or what ``send`` raises.
        """
        answer = self._engine.wait(
            lambda: commands.ask(
                target,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                timeout_ms=milliseconds(timeout, "timeout"),
                logical_target=logical_target,
                patience_ms=None if patience is None else milliseconds(patience, "patience"),
                on_progress=self._passing(on_progress),
            )
        )
        return self._ours(answer)

    def authorize_child(self, name: str, *, capability: str | None = None) -> str:
        """Let a session of that name claim this one as its supervisor, and return the capability it has to show.

        It holds as long as this session, over reconnects and broker restarts. The same name gets the same capability;
        ``*`` gets a new one each time, for whoever shows it first. Give it to the child alone. A session opened with
        the ``owner_token`` of an earlier one takes over a ``capability`` that was made for the same ``name``; raises
        ``UsageError`` for any other.
        """
        return self._engine.wait(
            lambda: commands.authorize_child(self._core.profile, name, now=now(), capability=capability)
        )

    def send_supervisor(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Send a message to the supervisor, whatever the groups; arguments and errors as with ``send``.

        Raises ``TargetNotFound`` with the code ``supervisor_gone`` when the supervisor is not connected, and
        ``UsageError`` when this session has none.
        """
        return self._engine.wait(
            lambda: commands.send_supervisor(
                self._core.profile,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                reply_to=reply_to,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )

    def ask_supervisor(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float = ASK_MS / 1000,
        patience: float | None = None,
        on_progress: Callable[[IncomingMessage], object] | None = None,
    ) -> IncomingMessage:
        """Ask the supervisor a question and wait for the answer; else as ``ask`` and ``send_supervisor``."""
        answer = self._engine.wait(
            lambda: commands.ask_supervisor(
                self._core.profile,
                text,
                message_id=self._core.new_id(message_id),
                now=now(),
                wall=wall(),
                attachments=attachments,
                timeout_ms=milliseconds(timeout, "timeout"),
                patience_ms=None if patience is None else milliseconds(patience, "patience"),
                on_progress=self._passing(on_progress),
            )
        )
        return self._ours(answer)

    def events(self, *, timeout: float | None = None) -> Events:
        """Iterate over what happens around this session from now on, for ever, or until nothing came for ``timeout`` s.

        Others in reach join, leave and change; the connection is lost and made again. This never delays messages.
        """
        return Events(self, self._core.feed(), None if timeout is None else milliseconds(timeout, "timeout"))

    def messages(self, *, timeout: float | None = None) -> Messages:
        """Iterate over what arrives, for ever, or until nothing came for ``timeout`` seconds.

        The iterator raises ``BrokerError`` when the broker cannot be reached without somebody's help.
        """
        return Messages(self, None if timeout is None else milliseconds(timeout, "timeout"))

    def receive(self, *, timeout: float | None = None) -> IncomingMessage | None:
        """Return the next message, or ``None`` when none came within ``timeout`` seconds; confirms the one before."""
        message = self._engine.next(self, None if timeout is None else milliseconds(timeout, "timeout"))
        return None if message is None else self._ours(message)

    def list(self, group: str | None = None, *, timeout: float = REQUEST_MS / 1000) -> SessionViews:
        """Return the sessions in reach, this one included, or those of one group; ``timeout`` in seconds."""
        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: commands.list_sessions(group, now=now(), timeout_ms=timeout_ms))

    def list_groups(self, *, timeout: float = REQUEST_MS / 1000) -> GroupViews:
        """Return every group with a session in it; ``timeout`` in seconds."""
        timeout_ms = milliseconds(timeout, "timeout")
        return self._engine.wait(lambda: commands.list_groups(now=now(), timeout_ms=timeout_ms))

    def join(self, group: str) -> tuple[str, ...]:
        """Join a group and return all memberships; raises ``PresenceRefused``."""
        return self._engine.wait(lambda: commands.join(self._core.profile, group, now=now(), wall=wall()))

    def leave(self, group: str | None = None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, and return all memberships; raises ``PresenceRefused``."""
        return self._engine.wait(lambda: commands.leave(self._core.profile, group, now=now(), wall=wall()))

    def set_presence(self, *, name: str | None = None, status: str | None = None, model: str | None = None) -> None:
        """Change what others see; what is ``None`` stays. Raises ``PresenceRefused``."""
        self._engine.wait(
            lambda: commands.set_presence(
                self._core.profile, now=now(), wall=wall(), name=name, status=status, model=model
            )
        )

    def announce(self, status: str) -> None:
        """Tell others what the session is doing; this waits for nobody, and does not fail for want of a broker.

        One that comes later is told when the session registers, with the time of this call.
        """
        self._engine.announce(checked_claim(status, "status"))

    def busy(self, what: str = "") -> AbstractContextManager[None]:
        """Announce ``busy``, or ``busy: WHAT``, for the length of a ``with`` block, and ``idle`` after it.

        Blocks may lie in one another and overlap: what began last counts, and the end of the last one is ``idle``.
        """
        return self._activity.busy(what)

    def _passing(self, on_progress: Callable[[IncomingMessage], object] | None) -> OnProgress | None:
        return None if on_progress is None else lambda message: on_progress(self._ours(message))

    def _ours(self, message: _IncomingMessage) -> IncomingMessage:
        assert isinstance(message, IncomingMessage), "prepare was told the kind"
        message._session = self
        return message
