"""Be a session under anyio, on asyncio or trio.

Any number of tasks may use a session at the same time, and any of them may be cancelled at any point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeAlias

import anyio

from intercom.client import commands
from intercom.client.activity import Activity
from intercom.client.aio_attention import AttentionCalls
from intercom.client.aio_engine import Engine
from intercom.client.aio_flows import FlowCalls, FlowStep
from intercom.client.aio_hosting import LiveStage, Run
from intercom.client.aio_invoke import Invocation as Invocation
from intercom.client.aio_invoke import InvocationCalls
from intercom.client.aio_invoke import Task as Task
from intercom.client.aio_links import Command, Commands, LinkCalls
from intercom.client.aio_mail import MailCalls
from intercom.client.aio_watch import WatchCalls, Watching
from intercom.client.aio_work import Assignment, Assignments, WorkCalls
from intercom.client.asking import OnProgress
from intercom.client.composing import milliseconds
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.flowsteps import FlowStep as _FlowStep
from intercom.client.linkrequests import LinkRequests
from intercom.client.mailing import MailRequests
from intercom.client.owning import new_run
from intercom.client.profile import DEFAULT_KIND, Purpose, Push, TakesFlows, checked_claim
from intercom.client.queueing import AsyncStageQueue, StageQueue
from intercom.client.restoring import release_child, reserve_child
from intercom.client.rosters import PossibleStage, RosterStage
from intercom.client.setup import Setup, new_id, now, prepare, wall
from intercom.client.stage_views import StageView
from intercom.client.staging import new_stage
from intercom.client.views import Attachment, GroupView, Receipt, SessionView
from intercom.client.views import IncomingMessage as _IncomingMessage
from intercom.drains import combined
from intercom.errors import AskError, UsageError
from intercom.limits import ASK_MS, CONNECT_MS, REQUEST_MS, STAGE_LIVE_MS
from intercom.wire.mail import Hold
from intercom.wire.work import ExecutionSurface, WorkMode

__all__ = [
    "Assignment",
    "Assignments",
    "Command",
    "Commands",
    "Connection",
    "Events",
    "FlowCalls",
    "FlowStep",
    "IncomingMessage",
    "LiveStage",
    "Messages",
    "Run",
    "Session",
    "Watching",
    "connect",
]

Attachments: TypeAlias = Iterable[Attachment | Mapping[str, str]]
GroupViews: TypeAlias = list[GroupView]
SessionViews: TypeAlias = list[SessionView]
StageViews: TypeAlias = list[StageView]


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
    address: bool | str = False,
    hold: Hold = "take",
    keep_questions: bool = False,
    kind: str = DEFAULT_KIND,
    push: Push | None = None,
    push_way: str | None = None,
    work_mode: WorkMode | None = None,
    runtime_session_id: str | None = None,
    surface: ExecutionSurface | None = None,
    coordinator: bool = False,
    flows: TakesFlows = False,
    durable: bool = False,
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
        return_address: secret of an earlier session whose unconfirmed messages this one takes over. Such a session has
            no mailbox of its own; ``address`` is the better way to come back.
        session_id: the id that session had.
        cwd: the directory shown to others, else the working directory.
        supervisor: the capability that a supervisor made with ``authorize_child`` for this ``name``.
        owner_token: a secret of the program's own under which capabilities are made, so that it can be restarted.
        address: the address to act under, in the home group; ``True`` for one with the name of the session. Its mail
            waits while nobody receives it, and its token is kept in the home.
        hold: ``"take"`` receives its mail and takes the place of who did before; ``"free"`` does so unless somebody
            does; ``"none"`` receives nothing, and what answers this session later goes to the address.
        keep_questions: at the end of the block, questions that were taken and not answered stay with the address; else
            who asked is told that nobody answers.
        kind: what hosts the session, such as ``claude-code``.
        push: how it is shown a message: ``"now"``, ``"idle"`` when it has nothing else to do, ``"pull"`` when it looks,
            ``"none"`` not at all, so that asking it is refused.
        push_way: by what it is shown one, in a word such as ``monitor`` or ``hooks``; others are told.
        work_mode: take work from the inbox: ``"resident"`` when it comes, ``"managed_turn"`` when this session asks for
            it, as one does that is given turns. Plain messages of others wait in the inbox then.
        runtime_session_id: what the host calls the session; needed for ``"managed_turn"``.
        surface: ``"owner_attached"`` when somebody sits in front of it, else ``"headless"``.
        coordinator: hand work out, and control flows, in the groups of this session.
        flows: take steps of flows and report them; ``"todo"`` when this session also keeps items of a to-do list for
            them.
        durable: keep a journal beside the token of the address, so that what is reported with ``report_event`` is never
            lost and no command of ``commands`` is carried out twice, over restarts of both sides. One session of an
            address at a time can be durable.

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
            supervisor=supervisor,
            owner_token=owner_token,
            address=address,
            hold=hold,
            keep_questions=keep_questions,
            kind=kind,
            push=push,
            push_way=push_way,
            work_mode=work_mode,
            runtime_session_id=runtime_session_id,
            surface=surface,
            coordinator=coordinator,
            flows=flows,
            durable=durable,
            message_kind=IncomingMessage,
            assignment_kind=Assignment,
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
        engine = Engine(self._setup)
        engine.check_caller()
        self._engine = engine
        self._setup = None
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            self._tasks.start_soon(engine.run)
            await engine.open()
        except BaseException:
            await self._end(finished=False)
            raise
        return Session(engine)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say goodbye; the tasks of the session end here. The exception of the block passes through unchanged."""
        if self._engine.is_foreign:
            self._engine.let_go()
            return
        await self._end(finished=kind is None)

    async def _end(self, *, finished: bool) -> None:
        outcomes: list[Exception] = []
        try:
            with anyio.CancelScope(shield=True):
                await self._engine.close(finished=finished)
        except Exception as error:
            outcomes.append(error)
        finally:
            try:
                # Its task has ended by now. Cancelling the group instead would cancel this task too, and where somebody
                # else has cancelled it before, that would come out in place of the exception of the block.
                await self._tasks.__aexit__(None, None, None)
            except Exception as error:
                outcomes.append(error)
        failed = combined(outcomes)
        if failed is not None:
            raise failed


class IncomingMessage(_IncomingMessage):
    """Hold a message somebody sent to this session, and answer it."""

    __slots__ = ("_session",)

    _session: Session
    flow: FlowStep | None

    @property
    def invocation(self) -> Task | None:
        """Return the task the message brings, to say how far it is; ``None`` for any other message."""
        return None if self.invoked is None else Task(self._session, self.invoked)

    def confirm(self, *, out_of_date: bool = False) -> None:
        """Say that the message is done with, before its consumer asks for the next one; this waits for nobody.

        ``out_of_date`` says that whoever it was passed on to was shown it after ``valid_until`` and told so: its sender
        is told ``expired`` then. A message that was taken after that time is confirmed so by itself.
        A message whose connection ended before the broker heard of it comes again, and is not shown again.
        """
        self._session._engine.check_caller()
        self._session._core.confirm(self.id, now(), is_late=out_of_date)
        self._session._engine.flush()

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
        return await session._engine.wait(
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
        session = self._session
        return session._ours(await session._engine.next(self))


class Events:
    """Iterate over what happens around a session; an event that is not taken in time is dropped, and counted."""

    def __init__(self, session: Session, feed: Feed) -> None:
        self._session = session
        self._feed = feed

    def __aiter__(self) -> Events:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> SessionEvent:
        """Wait for the next event."""
        return await self._session._engine.next_event(self._feed)


class Session(MailCalls, AttentionCalls, WorkCalls, InvocationCalls, WatchCalls, LinkCalls):
    """Be a session in the broker's table; made by ``connect``.

    Any number of tasks may use it at the same time, all in the event loop that opened it.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin offline."""
        self._engine = engine
        self._core = engine.core
        self._mail = MailRequests(engine.core.lifecycle, now)
        self._link_requests = LinkRequests(engine.core.lifecycle, now, new_id)
        self._activity = Activity(self.announce)

    def _watching(self, invocation_id: str) -> Watching:
        return self.watch(invocations=[invocation_id])

    def _task(self, work: Assignment) -> Task:
        assert work.message.invoked is not None, "only of work that brings a task"
        return Task(self, work.message.invoked, work)

    @property
    def flows(self) -> FlowCalls:
        """Return the calls about flows."""
        return FlowCalls(self._engine, self._core, self)

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

    async def send(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
        logical_target: str | None = None,
        hold: bool = False,
        queue: bool = True,
        valid_for: float | None = None,
        progress: bool | str = False,
        caused_by: str | None = None,
    ) -> Receipt:
        """Send a message and wait until its fate is known.

        Args:
            target: a name, a session id, the first eight digits of one, or the target of a workflow stage.
            text: the message.
            attachments: files, snippets or contexts beside the text.
            reply_to: id of the message this one refers to.
            message_id: id of an earlier attempt that is to be repeated.
            timeout: seconds for the outcome, 10 by default, at most 660.
            logical_target: what the user wrote, where the program found out itself that it means ``target``.
            hold: let it wait longer for a target that is being brought back, and return at once when it does.
            queue: whether the message may wait for a target that is known and away.
            valid_for: seconds after which it must not be handed over any more; then this session is told.
            progress: say that this answers no question but tells how far it is; true for the only one that the
                target asked, or the id of the question.
            caused_by: id of the message the sender was at work on, by which the broker knows loops; answers need none.

        Returns a receipt: delivered, queued at a ``position``, or with ``hold`` perhaps held. A message to a session
        that asked exactly one question which this session has taken and not answered is sent as the answer, and the
        receipt says so (``inferred_reply_to``); with several it answers none, and the receipt tells how to (``hint``).
        A message to a stage never is one. Raises ``SendError`` (its ``retry`` says whether the same message id may be
        sent again), ``TooLarge``, ``UsageError``, or ``BrokerError`` when nothing left this process. A cancelled send
        may have taken effect.
        """
        operation = commands.send(
            target,
            text,
            message_id=self._core.new_id(message_id),
            now=now(),
            wall=wall(),
            attachments=attachments,
            reply_to=reply_to,
            timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            logical_target=logical_target,
            hold=hold,
            queue=queue,
            valid_for_ms=None if valid_for is None else milliseconds(valid_for, "valid_for"),
            progress=progress,
            caused_by=caused_by,
        )
        return await (self._engine.wait_or_held(operation) if hold else self._engine.wait(operation))

    async def outcome(
        self,
        held: Receipt,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the other shell
    ) -> Receipt:
        """Return what became of a send that was held, or ``held`` again when ``timeout`` seconds were not enough.

        Raises what ``send`` raises. A message that is held is lost with this session: it is not on disk yet.
        """
        timeout_ms = None if timeout is None else milliseconds(timeout, "timeout")
        return await self._engine.outcome(self._core.held.find(held.message_id), timeout_ms, held)

    async def ask(
        self,
        target: str,
        text: str,
        *,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float = ASK_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
        logical_target: str | None = None,
        patience: float | None = None,
        on_progress: Callable[[IncomingMessage], object] | None = None,
        on_held: Callable[[Receipt], None] | None = None,
        on_open: Callable[[], object] | None = None,
        confirm: bool = True,
    ) -> IncomingMessage:
        """Ask a question and wait for the answer; any number of asks may be under way.

        Args:
            target: a name, a session id, or the first eight digits of one.
            text: the question.
            attachments: files, snippets or contexts beside the text.
            message_id: id of an earlier attempt that is to be repeated.
            logical_target: what the user wrote, where the program found out itself that it means ``target``.
            timeout: seconds for the answer, at most 600; then the question is withdrawn, as on cancellation. The person
                (``@me``) may be given any time.
            patience: seconds that each sign of progress gives the other side from then on, within 600 in all.
            on_progress: called with each message that tells of progress, at once; it must not wait. What it raises
                ends the ask. Without it such a message is an ordinary one.
            on_held: called once if the target is being brought back, so that the question waits for it in the broker.
            on_open: called once when the other side has the question, or will get it: it was not refused. It must not
                wait, nor raise.
            confirm: false when this program calls ``confirm`` of the answer once it is done with it; until then it
                waits, and comes to the next session of the address, if there is one, as an ordinary message.

        Raises ``AskError`` (``PeerGone``, ``AskTimeout``, ``ReplyFailed``) or what ``send`` raises; ``TargetAway`` for
        somebody who is known and not here: only a message, and a question to the person, waits.
        """
        with self._owning_refusal():
            answer = await self._engine.wait(
                commands.ask(
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
                    on_open=on_open,
                    confirm=confirm,
                ),
                on_held,
            )
        return self._ours(answer)

    async def authorize_child(self, name: str, *, capability: str | None = None) -> str:
        """Let a session of that name claim this one as its supervisor, and return the capability it has to show.

        It holds as long as this session, over reconnects and broker restarts. The same name gets the same capability;
        ``*`` gets a new one each time, for whoever shows it first. Give it to the child alone. A session opened with
        the ``owner_token`` of an earlier one takes over a ``capability`` that was made for the same ``name``; raises
        ``UsageError`` for any other.
        """
        return await self._engine.wait(
            commands.authorize_child(self._core.profile, name, now=now(), capability=capability)
        )

    async def reserve_child(
        self, child: str, *, aliases: Iterable[str] = (), group: str | None = None, dormant: bool = False
    ) -> None:
        """Let messages to a child wait while it is being brought back; a child that registers gets them.

        Args:
            child: the name this session authorised it under, or its capability.
            aliases: session ids it had, at most 4; messages to them wait too.
            group: whose members' messages wait, else those of the home group of this session.
            dormant: it is not being brought back right now: only senders that can wait for long do.

        It is kept over reconnects until ``release_child``, also after the child is back. Raises ``ReservationRefused``
        (protocol 4.12).
        """
        await self._engine.wait(
            reserve_child(
                self._core.profile,
                self._core.commitments.places,
                child,
                now=now(),
                group=group,
                aliases=aliases,
                dormant=dormant,
            )
        )

    async def release_child(self, child: str, *, gone: str | None = None, refusal: str | None = None) -> None:
        """Keep a child's place no longer; what still waits for it is looked up anew.

        With ``refusal`` that fails with this text instead. With ``gone`` it does too, and so do later messages to a
        child that has not come back, as long as this session holds. Texts are cut to 1,000 characters (protocol 4.13).
        """
        await self._engine.wait(
            release_child(
                self._core.profile, self._core.commitments.places, child, now=now(), gone=gone, refusal=refusal
            )
        )

    def workflow(
        self,
        run_id: str,
        queue: StageQueue | AsyncStageQueue,
        *,
        roster: Iterable[RosterStage] = (),
        possible: Iterable[PossibleStage | str] = (),
        parent: str | None = None,
        boundary: Sequence[str] = (),
        capability: str | None = None,
        dormant: bool = False,
        timeout: float = REQUEST_MS / 1000,
    ) -> Run:
        """Own a workflow run for an ``async with`` block: its stages are listed, messages to them come to this session.

        Args:
            run_id: a UUID; of the root run, or of one below it.
            queue: says what is to become of each message to a stage.
            roster: the stages the run has.
            possible: the stages it may still have, as ``PossibleStage`` or as targets.
            parent: id of the run above.
            boundary: the names that lead from that run to this one.
            capability: the secret of the run, else a new one; a host that is restarted passes the one it had.
            dormant: the run is interrupted: another session may take it over, with another capability.
            timeout: seconds for the broker's answer.

        The home group of the session must be ``workflow:<id of the root run>``; ``purpose="control"`` keeps it out of
        sight. A session may own many runs of one root. Raises ``UsageError`` at once, ``RunRefused`` on entering
        (protocol 4.14).
        """
        run = new_run(
            self._core.profile,
            self._core.commitments.runs,
            run_id,
            capability=capability,
            dormant=dormant,
            parent=parent,
            boundary=boundary,
            ids=self._core.new_id,
        )
        return Run(self._engine, run, queue, roster, possible, milliseconds(timeout, "timeout"))

    def stage(
        self,
        run_id: str,
        stage_id: str,
        name: str | None = None,
        *,
        capability: str,
        timeout: float = STAGE_LIVE_MS / 1000,
    ) -> LiveStage:
        """Be live as a stage of a run for an ``async with`` block: messages to the stage reach this session.

        Args:
            run_id: id of the run.
            stage_id: id of the stage in the run's roster.
            name: its name there.
            capability: the secret of the run.
            timeout: seconds in all; while the run has no owner yet, or the stage is still taken, it is tried again.

        The home group must be that of the run, or lie below it. When the block begins, everything sent to the stage
        before is settled: queued by the host, or handed to this session. A session is one stage at a time; after the
        block it is registered anew, under the same id. Raises ``StageRefused`` on entering (protocol 4.15).
        """
        stage = new_stage(self._core.profile, self._core.commitments.stage, run_id, stage_id, name, capability)
        return LiveStage(self._engine, stage, milliseconds(timeout, "timeout"))

    async def send_supervisor(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Receipt:
        """Send a message to the supervisor, whatever the groups; arguments and errors as with ``send``.

        Raises ``TargetNotFound`` with the code ``supervisor_gone`` when the supervisor is not connected, and
        ``UsageError`` when this session has none.
        """
        return await self._engine.wait(
            commands.send_supervisor(
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

    async def ask_supervisor(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float = ASK_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
        patience: float | None = None,
        on_progress: Callable[[IncomingMessage], object] | None = None,
    ) -> IncomingMessage:
        """Ask the supervisor a question and wait for the answer; else as ``ask`` and ``send_supervisor``."""
        with self._owning_refusal():
            answer = await self._engine.wait(
                commands.ask_supervisor(
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

    def events(self) -> Events:
        """Iterate over what happens around this session from now on, for ever; this never delays messages.

        Others in reach join, leave and change; the connection is lost and made again.
        """
        return Events(self, self._core.feed())

    def messages(self) -> Messages:
        """Iterate over what arrives, for ever.

        The iterator raises ``BrokerError`` when the broker cannot be reached without somebody's help.
        """
        return Messages(self)

    async def receive(self) -> IncomingMessage:
        """Return the next message and confirm the one before."""
        return self._ours(await self._engine.next(self))

    async def list(
        self,
        group: str | None = None,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> SessionViews:
        """Return the sessions in reach, this one included, or those of one group; ``timeout`` in seconds."""
        timeout_ms = milliseconds(timeout, "timeout")
        return await self._engine.wait(commands.list_sessions(group, now=now(), timeout_ms=timeout_ms))

    async def list_stages(
        self,
        group: str | None = None,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> StageViews:
        """Return the workflow stages this session may see, or those of one group; ``timeout`` in seconds."""
        timeout_ms = milliseconds(timeout, "timeout")
        return await self._engine.wait(commands.list_stages(group, now=now(), timeout_ms=timeout_ms))

    async def list_groups(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> GroupViews:
        """Return every group with a session in it; ``timeout`` in seconds."""
        return await self._engine.wait(commands.list_groups(now=now(), timeout_ms=milliseconds(timeout, "timeout")))

    async def join(self, group: str) -> tuple[str, ...]:
        """Join a group and return all memberships; raises ``PresenceRefused``."""
        return await self._engine.wait(commands.join(self._core.profile, group, now=now(), wall=wall()))

    async def leave(self, group: str | None = None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, and return all memberships; raises ``PresenceRefused``."""
        return await self._engine.wait(commands.leave(self._core.profile, group, now=now(), wall=wall()))

    async def set_presence(
        self,
        *,
        name: str | None = None,
        status: str | None = None,
        model: str | None = None,
        push: Push | None = None,
        push_way: str | None = None,
    ) -> None:
        """Change what others see; what is ``None`` stays. Raises ``PresenceRefused``.

        A new ``push`` without a ``push_way`` takes the former one away.
        """
        await self._engine.wait(
            commands.set_presence(
                self._core.profile,
                now=now(),
                wall=wall(),
                name=name,
                status=status,
                model=model,
                push=push,
                push_way=push_way,
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

    @contextmanager
    def _owning_refusal(self) -> Iterator[None]:
        """Make the answer that an error of the block carries a message of this session."""
        try:
            yield
        except AskError as error:
            if error.answer is not None:
                self._ours(error.answer)
            raise

    def _ours(self, message: _IncomingMessage) -> IncomingMessage:
        assert isinstance(message, IncomingMessage), "prepare was told the kind"
        message._session = self
        if type(message.flow) is _FlowStep:
            message.flow = self.flows.step(message.flow)
        return message
