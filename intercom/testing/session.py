"""Be a session of a broker in memory: the client of the library, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from intercom.client import commands
from intercom.client.activity import Activity
from intercom.client.asking import AskOperation
from intercom.client.commands import Attachments
from intercom.client.composing import milliseconds
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.flowsteps import FlowStep as _FlowStep
from intercom.client.lifecycle import Keeper
from intercom.client.linkrequests import LinkRequests
from intercom.client.mailing import MailRequests
from intercom.client.mailviews import PendingAsk
from intercom.client.notices import Held
from intercom.client.operations import Operation
from intercom.client.owning import ask_host, new_run
from intercom.client.profile import Profile, Push, checked_claim
from intercom.client.queueing import StageQueue
from intercom.client.restoring import release_child, reserve_child
from intercom.client.rosters import PossibleStage, RosterStage
from intercom.client.session import ClientSession, Link, Settled
from intercom.client.stage_views import StageView
from intercom.client.staging import new_stage
from intercom.client.views import GroupView, Receipt, SessionView
from intercom.client.views import IncomingMessage as _IncomingMessage
from intercom.client.workerjournal import WorkerJournal
from intercom.errors import BrokerBusy, NoBroker
from intercom.limits import ASK_MS, REQUEST_MS, STAGE_LIVE_MS
from intercom.testing.attending import AttentionCalls
from intercom.testing.flowing import FlowCalls, FlowStep
from intercom.testing.following import Following, Watching
from intercom.testing.hosting import LiveStage, Run
from intercom.testing.inquiring import Inquiries
from intercom.testing.invoking import InvocationCalls, Task
from intercom.testing.linking import Linking
from intercom.testing.pending import NotSettled as NotSettled
from intercom.testing.pending import Pending
from intercom.testing.pending import Withdrawn as Withdrawn
from intercom.testing.wire import Wire
from intercom.testing.working import Assignment, Work

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker

Result = TypeVar("Result")
Other = TypeVar("Other")
SessionViews: TypeAlias = list[SessionView]
GroupViews: TypeAlias = list[GroupView]
StageViews: TypeAlias = list[StageView]


class IncomingMessage(_IncomingMessage):
    """Hold a message somebody sent to this session, and answer it."""

    __slots__ = ("_session",)

    _session: MemorySession
    flow: FlowStep | None

    def confirm(self, *, out_of_date: bool = False) -> None:
        """Say that the message is done with, before its consumer asks for the next one.

        ``out_of_date`` says that whoever it was passed on to was shown it after ``valid_until``, and told so.
        """
        self._session._core.confirm(self.id, self._session._broker.now.mono, is_late=out_of_date)
        self._session._broker._turn()

    @property
    def invocation(self) -> Task | None:
        """Return the task the message brings, to say how far it is; ``None`` for any other message."""
        return None if self.invoked is None else Task(self._session, self.invoked)

    def reply(
        self,
        text: str,
        *,
        error: bool = False,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float | None = None,
    ) -> Pending[Receipt]:
        """Answer the message, which confirms it; ``error`` says that there will be no answer, ``text`` why."""
        session = self._session
        return session._begin(
            commands.reply(
                self,
                text,
                message_id=session._core.new_id(message_id),
                now=session._broker.now.mono,
                wall=session._broker.now.wall,
                attachments=attachments,
                error=error,
                timeout_ms=_milliseconds(timeout),
            )
        )


class Events:
    """Iterate over what happened around a session; it ends when nothing is there, and may be gone on with later."""

    def __init__(self, session: MemorySession, feed: Feed, timeout_ms: int) -> None:
        self._session = session
        self._feed = feed
        self._timeout_ms = timeout_ms

    def __iter__(self) -> Events:
        """Return the iterator itself."""
        return self

    def __next__(self) -> SessionEvent:
        """Return the next event; time passes for as long as the iterator may wait for it."""
        self._session._broker._advance(self._timeout_ms, lambda: self._feed.has_news)
        event = self._feed.take()
        if event is None:
            raise StopIteration
        return event


class MemorySession(Inquiries, AttentionCalls, Work, InvocationCalls, Following, Linking):
    """Be a session of a ``MemoryBroker``; made by ``connect``.

    It has all calls of the library's sessions, and they mean the same. Those that send return a ``Pending``; everything
    else has its result at once. A ``timeout`` is in seconds of the broker's clock.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        profile: Profile,
        ids: Callable[[], str],
        answer: Callable[[IncomingMessage], str | None] | None,
        keeper: Keeper | None = None,
        journal: WorkerJournal | None = None,
    ) -> None:
        """Begin offline."""
        self._broker = broker
        self._answer_with = answer
        self._core = ClientSession(
            profile,
            ids=ids,
            chance=lambda: 0.0,
            clock=lambda: broker.now.mono,
            message_kind=IncomingMessage,
            assignment_kind=Assignment,
            keeper=keeper,
            journal=journal,
        )
        self._mail = MailRequests(self._core.lifecycle, lambda: broker.now.mono)
        self._link_requests = LinkRequests(self._core.lifecycle, lambda: broker.now.mono, ids)
        self._wire: Wire | None = None
        self._activity = Activity(self.announce)
        self._queues: dict[str, StageQueue] = {}

    def _watching(self, invocation_id: str) -> Watching:
        return self.watch(invocations=[invocation_id])

    def _task(self, work: Assignment) -> Task:
        assert work.message.invoked is not None, "only of work that brings a task"
        return Task(self, work.message.invoked, work)

    @property
    def flows(self) -> FlowCalls:
        """Return the calls about flows."""
        return FlowCalls(self)

    @property
    def id(self) -> str:
        """Return the session id the broker granted."""
        return self._core.session_id

    @property
    def former_ids(self) -> tuple[str, ...]:
        """Return the ids it had before, oldest first; calls that take an id take them for the present one."""
        return self._core.lifecycle.former_ids

    @property
    def features(self) -> frozenset[str]:
        """Return what the present broker granted."""
        return self._core.lifecycle.features

    @property
    def waiting(self) -> int:
        """Return how many messages waited for this session when its present connection was made."""
        return self._core.lifecycle.mailbox_count

    @property
    def name(self) -> str | None:
        """Return the present name."""
        return self._core.profile.name

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the present memberships."""
        return self._core.profile.groups

    @property
    def status(self) -> str | None:
        """Return the present status."""
        return self._core.profile.status

    @property
    def model(self) -> str:
        """Return the present model."""
        return self._core.profile.model

    @property
    def supervisor_id(self) -> str | None:
        """Return the session id of the supervisor, or ``None`` without one or while it is gone."""
        return self._core.profile.supervisor_id

    @property
    def online(self) -> bool:
        """Tell whether the session is registered now."""
        return self._core.link is Link.ONLINE

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
        hold: bool = False,
        queue: bool = True,
        valid_for: float | None = None,
        progress: bool | str = False,
        caused_by: str | None = None,
    ) -> Pending[Receipt]:
        """Send a message; it is delivered when its reader asks for the next one, answers it, or closes.

        It is queued when its target is away, or confirms nothing for 2 s, unless ``queue`` is false. With ``hold`` it
        may wait for a target that is being brought back; then ``held`` of what is returned tells so.
        """
        return self._begin(
            commands.send(
                target,
                text,
                message_id=self._core.new_id(message_id),
                now=self._broker.now.mono,
                wall=self._broker.now.wall,
                attachments=attachments,
                reply_to=reply_to,
                timeout_ms=_milliseconds(timeout),
                logical_target=logical_target,
                hold=hold,
                queue=queue,
                valid_for_ms=_milliseconds(valid_for, "valid_for"),
                progress=progress,
                caused_by=caused_by,
            )
        )

    def outcome(self, held: Receipt, *, timeout: float | None = None) -> Receipt:
        """Return what became of a send that was held, or ``held`` again when it still is; a timeout passes first."""
        operation = self._core.held.find(held.message_id)
        if timeout is not None and not operation.done:
            self._broker._advance(milliseconds(timeout, "timeout"), lambda: operation.done)
        if not operation.done:
            return held
        self._core.held.forget(operation)
        return cast("Receipt", Pending(self, operation).result())

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
        on_held: Callable[[Receipt], None] | None = None,
        on_open: Callable[[], object] | None = None,
        confirm: bool = True,
    ) -> Pending[IncomingMessage]:
        """Ask a question; the result is the answer.

        ``on_held`` is called at once when the broker holds it, ``on_open`` when the other side has it or will get it.
        """
        operation = commands.ask(
            target,
            text,
            message_id=self._core.new_id(message_id),
            now=self._broker.now.mono,
            wall=self._broker.now.wall,
            attachments=attachments,
            timeout_ms=milliseconds(timeout, "timeout"),
            logical_target=logical_target,
            patience_ms=_milliseconds(patience, "patience"),
            on_progress=None if on_progress is None else lambda message: on_progress(self._ours(message)),
            on_open=on_open,
            confirm=confirm,
        )
        asked = self._begin(operation)
        if on_held is not None and asked.held is not None:
            on_held(asked.held)
        return cast("Pending[IncomingMessage]", asked)

    def authorize_child(self, name: str, *, capability: str | None = None) -> str:
        """Let a session of that name claim this one as its supervisor, and return the capability it has to show."""
        now = self._broker.now.mono
        return self._now(commands.authorize_child(self._core.profile, name, now=now, capability=capability))

    def send_supervisor(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        reply_to: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,
    ) -> Pending[Receipt]:
        """Send a message to the supervisor, whatever the groups."""
        return self._begin(
            commands.send_supervisor(
                self._core.profile,
                text,
                message_id=self._core.new_id(message_id),
                now=self._broker.now.mono,
                wall=self._broker.now.wall,
                attachments=attachments,
                reply_to=reply_to,
                timeout_ms=_milliseconds(timeout),
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
    ) -> Pending[IncomingMessage]:
        """Ask the supervisor a question; the result is the answer."""
        operation = commands.ask_supervisor(
            self._core.profile,
            text,
            message_id=self._core.new_id(message_id),
            now=self._broker.now.mono,
            wall=self._broker.now.wall,
            attachments=attachments,
            timeout_ms=milliseconds(timeout, "timeout"),
            patience_ms=_milliseconds(patience, "patience"),
            on_progress=None if on_progress is None else lambda message: on_progress(self._ours(message)),
        )
        return cast("Pending[IncomingMessage]", self._begin(operation))

    def events(self, *, timeout: float | None = None) -> Events:
        """Iterate over what happens around this session from now on; with a timeout, time passes until it comes."""
        return Events(self, self._core.feed(), _milliseconds(timeout) or 0)

    def receive(self, *, timeout: float | None = None) -> IncomingMessage | None:
        """Return the next message, ``None`` when none is there; either way the one before is confirmed.

        With a timeout, time passes until one is there. Raises ``SessionReplaced`` or ``SessionClosed`` after that.
        """
        if self._core.was_ended:
            raise self._core.over()
        message = self._core.take_message(self, self._broker.now.mono)
        self._broker._turn()
        if message is None and timeout is not None:
            self._broker._advance(milliseconds(timeout, "timeout"), lambda: self._core.has_news)
            message = self._core.take_message(self, self._broker.now.mono)
        if message is None and (trouble := self._core.take_trouble()) is not None:
            raise trouble
        return None if message is None else self._ours(message)

    def messages(self, *, timeout: float | None = None) -> Iterator[IncomingMessage]:
        """Iterate over what is there now, and over what comes meanwhile; the last one is confirmed at the end.

        With a timeout, time passes until the next one is there, and the end comes when none came for so long.
        """
        while (message := self.receive(timeout=timeout)) is not None:
            yield message

    def list(self, group: str | None = None, *, timeout: float = REQUEST_MS / 1000) -> SessionViews:
        """Return the sessions in reach, this one included, or those of one group."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(commands.list_sessions(group, now=now, timeout_ms=timeout_ms))

    def list_groups(self, *, timeout: float = REQUEST_MS / 1000) -> GroupViews:
        """Return every group with a session in it."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(commands.list_groups(now=now, timeout_ms=timeout_ms))

    def join(self, group: str) -> tuple[str, ...]:
        """Join a group and return all memberships."""
        return self._now(
            commands.join(self._core.profile, group, now=self._broker.now.mono, wall=self._broker.now.wall)
        )

    def leave(self, group: str | None = None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, and return all memberships."""
        return self._now(
            commands.leave(self._core.profile, group, now=self._broker.now.mono, wall=self._broker.now.wall)
        )

    def set_presence(
        self,
        *,
        name: str | None = None,
        status: str | None = None,
        model: str | None = None,
        push: Push | None = None,
        push_way: str | None = None,
    ) -> None:
        """Change what others see; what is ``None`` stays."""
        now = self._broker.now
        self._now(
            commands.set_presence(
                self._core.profile,
                now=now.mono,
                wall=now.wall,
                name=name,
                status=status,
                model=model,
                push=push,
                push_way=push_way,
            )
        )

    def announce(self, status: str) -> None:
        """Tell others what the session is doing, now or with its next registration."""
        self._core.announce(checked_claim(status, "status"), self._broker.now.wall)
        self._broker._turn()

    def busy(self, what: str = "") -> AbstractContextManager[None]:
        """Announce ``busy``, or ``busy: WHAT``, for the length of a ``with`` block, and ``idle`` after it."""
        return self._activity.busy(what)

    def list_stages(self, group: str | None = None, *, timeout: float = REQUEST_MS / 1000) -> StageViews:
        """Return the workflow stages this session may see, or those of one group."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(commands.list_stages(group, now=now, timeout_ms=timeout_ms))

    def reserve_child(
        self, child: str, *, aliases: Iterable[str] = (), group: str | None = None, dormant: bool = False
    ) -> None:
        """Let messages to a child wait while it is being brought back."""
        places, now = self._core.commitments.places, self._broker.now.mono
        self._now(
            reserve_child(self._core.profile, places, child, now=now, aliases=aliases, group=group, dormant=dormant)
        )

    def release_child(self, child: str, *, gone: str | None = None, refusal: str | None = None) -> None:
        """Keep a child's place no longer."""
        places, now = self._core.commitments.places, self._broker.now.mono
        self._now(release_child(self._core.profile, places, child, now=now, gone=gone, refusal=refusal))

    def workflow(
        self,
        run_id: str,
        queue: StageQueue,
        *,
        roster: Iterable[RosterStage] = (),
        possible: Iterable[PossibleStage | str] = (),
        parent: str | None = None,
        boundary: Sequence[str] = (),
        capability: str | None = None,
        dormant: bool = False,
        timeout: float = REQUEST_MS / 1000,
    ) -> Run:
        """Own a workflow run for a ``with`` block; its queue is asked as soon as a message comes."""
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
        return Run(self, run, queue, roster, possible, milliseconds(timeout, "timeout"))

    def stage(
        self,
        run_id: str,
        stage_id: str,
        name: str | None = None,
        *,
        capability: str,
        timeout: float = STAGE_LIVE_MS / 1000,
    ) -> LiveStage:
        """Be live as a stage of a run for a ``with`` block; while the run has no owner, time passes on entering."""
        stage = new_stage(self._core.profile, self._core.commitments.stage, run_id, stage_id, name, capability)
        return LiveStage(self, stage, milliseconds(timeout, "timeout"))

    def answer(
        self,
        question: PendingAsk,
        text: str,
        *,
        error: bool = False,
        attachments: Attachments = (),
        message_id: str | None = None,
        timeout: float | None = None,
    ) -> Pending[Receipt]:
        """Answer a question that ``pending`` returned, also one that another session of the address received."""
        return self._begin(
            commands.answer(
                question,
                text,
                message_id=self._core.new_id(message_id),
                now=self._broker.now.mono,
                wall=self._broker.now.wall,
                attachments=attachments,
                error=error,
                timeout_ms=_milliseconds(timeout),
            )
        )

    def drain(self, *, timeout: float | None = None) -> Pending[None]:
        """Wait until what this session has said has arrived: events on the broker's disk, held messages settled.

        It ends with what went wrong, an ``ExceptionGroup`` when that was several things, and with ``RequestTimeout``
        after ``timeout`` seconds. Nothing is lost by that.
        """
        return self._begin(self._core.draining(_milliseconds(timeout)))

    def cut(self) -> None:
        """Break the connection; the session makes another one as soon as it is due, at the first time at once."""
        if self._wire is not None:
            self._wire.close()

    def close(self, *, finished: bool = True) -> None:
        """End the session; ``finished`` tells whether the message in hand is confirmed, or is to come again."""
        now = self._broker.now.mono
        self._core.close(now, finished=finished)
        self._core.release()
        if self._wire is not None:
            self._wire.write(self._core.outgoing())
            self._wire.close()
            self._wire = None
        if self in self._broker._sessions:
            self._broker._sessions.remove(self)

    # --- inner works ------------------------------------------------------------------------------------

    def _begin(self, operation: Operation[Other]) -> Pending[Other]:
        self._core.begin(operation, self._broker.now.mono)
        self._broker._turn()
        return Pending(self, operation)

    def _now(self, operation: Operation[Other]) -> Other:
        return self._begin(operation).result()

    def _withdraw(self, operation: Operation[Any]) -> None:
        self._core.withdraw(operation, self._broker.now.mono)
        self._broker._turn()

    def _ours(self, message: _IncomingMessage) -> IncomingMessage:
        ours = cast("IncomingMessage", message)
        ours._session = self
        if type(ours.flow) is _FlowStep:
            ours.flow = self.flows.step(ours.flow)
        return ours

    def _next_due(self) -> int | None:
        dues = [self._core.deadline(), self._core.recovery.at if self._wire is None else None]
        return min((due for due in dues if due is not None), default=None)

    def _drive(self) -> bool:
        """Do once what is to be done; tell whether there was anything."""
        now = self._broker.now.mono
        moved = self._connect(now) if self._wire is None else self._listen(self._wire, now)
        for event in self._core.events():
            moved = True
            if isinstance(event, Settled):
                if isinstance(event.operation.result, _IncomingMessage):
                    self._ours(event.operation.result)
                self._core.taken(event.operation, now)
            elif isinstance(event, Held) and not isinstance(event.operation, AskOperation):
                self._core.held.keep(event.operation)
        runs = self._core.commitments.runs
        for run in runs.waiting():
            moved = True
            ask_host(runs, run, self._queues[run.id])
        if self._answer_with is not None and (message := self._core.take_message(self, now)) is not None:
            moved = True
            text = self._answer_with(self._ours(message))
            if text is not None:
                self._ours(message).reply(text)
        if self._wire is not None and (outgoing := self._core.outgoing()):
            moved = True
            self._wire.write(outgoing)
        return moved

    def _connect(self, now: int) -> bool:
        at = self._core.recovery.at
        if at is None or at > now or self._core.link is Link.CLOSED:
            return False
        self._core.connecting()
        try:
            self._wire = self._broker.wire()
        except NoBroker as error:
            self._core.connect_failed(error, now)
        else:
            self._core.connected(now, self._broker.now.wall, BrokerBusy("The broker in memory does not answer"))
        return True

    def _listen(self, wire: Wire, now: int) -> bool:
        moved = False
        if self._core.wants_data and (data := wire.read()):
            moved = True
            self._core.receive(data, now)
        if self._core.link is Link.BROKEN or self._core.was_ended:
            wire.close()
            wire.read()
        if not wire.is_open and not wire.has_data:
            moved = True
            self._wire = None
            self._core.eof(now)
        return moved


def _milliseconds(seconds: float | None, what: str = "timeout") -> int | None:
    return None if seconds is None else milliseconds(seconds, what)
