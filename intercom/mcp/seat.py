"""Be one session of a host towards the broker: registered, receiving, asking, and coming back.

A seat is opened once it is known who it is, and lives until its host session ends or another one takes its place. What
it receives waits in its tray; a bell is rung for it (``ringing``). Mail is confirmed when the model was shown it, so a
sender learns ``queued`` while it waits here, and mail that nobody was shown comes again in the next life of the seat.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.abc import TaskGroup

from intercom.client.aio import Session, connect
from intercom.client.memberships import change, remembered
from intercom.client.profile import DEFAULT_GROUP, Push
from intercom.client.texts import visible
from intercom.client.who import Identity
from intercom.errors import (
    AddressHeld,
    BrokerError,
    BrokerStarting,
    ConnectionLost,
    IntercomError,
    RegistrationRefused,
    RequestRefused,
    SessionClosed,
    SessionReplaced,
)
from intercom.limits import ADAPTER_OPEN_MS, ADAPTER_RETRY_MS, CAUSE_MS, INCOMING_MESSAGES, SEAT_LOOK_MS, TOOL_REPEATS
from intercom.mcp.answers import AnswerFiles
from intercom.mcp.asking import Asking, OpenQuestion
from intercom.mcp.repeating import Known, Repeats
from intercom.mcp.tasks import open_ones
from intercom.mcp.tray import Batch, Item, Tray
from intercom.mcp.working import Workplace
from intercom.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from intercom.client.aio import IncomingMessage
    from intercom.client.mailviews import PendingAsk


HOOKS = "hooks"
"""By what a model sees messages into whose host nothing can be pushed: the host runs our hooks,"""
TOOLS = "tools"
"""or else the model calls ``receive``."""


class Place(NamedTuple):
    """Say who a seat is and where."""

    identity: Identity | None
    """Whose memberships and, if it can come back, whose address it has; ``None`` for a subagent."""
    name: str
    kind: str
    groups: tuple[str, ...]
    """Groups that were given; else those the identity joined."""
    paths: Paths
    directory: str
    session: str | None = None
    """Its id in the host, where that is known."""
    works: bool = False
    """Whether it takes work from the inbox, and steps of flows."""

    @property
    def is_subagent(self) -> bool:
        """Tell whether it belongs to another session of the host, which is the one that is pushed to."""
        return self.identity is None

    @property
    def address(self) -> str | None:
        """Return the name of its address; none for what ends with the process of its host, and leaves nobody behind."""
        return None if self.identity is None or self.identity.is_of_process else self.identity.address


class Seat:
    """Hold one session of a host; ``open`` begins its life, ``close`` ends it."""

    def __init__(self, place: Place, tasks: TaskGroup, on_news: Callable[[Seat], object]) -> None:
        """Begin closed. ``on_news`` is called when something waits that did not before."""
        self.place = place
        self.push: Push = "pull"
        """How the host can be reached, as others are told."""
        self.way = TOOLS
        """By what."""
        self.tray = Tray(lambda: self._news(), self._was_shown)
        self._answers = None if place.address is None else _answers_of(place, place.address)
        self.repeats = Repeats()
        self.replied: OrderedDict[Hashable, PendingAsk] = OrderedDict()
        """Questions whose answers may have arrived, by what was answered."""
        self.asking = Asking(self.tray, self._answers, self.repeats)
        self.questions: dict[str, IncomingMessage] = {}
        """Questions that were received and are not known to be closed."""
        self.reminded: dict[str, int] = {}
        """How often the host was kept from stopping because of a question."""
        self.work = Workplace()
        self.known_ids = Known()
        """Messages the model may speak of: it was shown them, or sent them."""
        self.stops = 0
        self.says_goes_on = False
        """Whether the host was ever heard to say that it goes on because of us: such a one says when it does not."""
        """How often in a row the host was kept from stopping."""
        self.was_carried = False
        """A plugin was handed messages since the model looked last: its host shows them when the running tool ends."""
        self.takers = 0
        """Tool calls that wait for a message, so that no bell is needed."""
        self.news = anyio.Event()
        self._tasks = tasks
        self._on_news = on_news
        self._scope: anyio.CancelScope | None = None
        self._work: TaskGroup | None = None
        self._session: Session | None = None
        self._moved = anyio.Event()
        self._trouble: IntercomError | None = None
        self._is_over = False
        self._has_place = True
        """Whether it may take its address from who holds it: not once another process took it."""
        self.ended = anyio.Event()
        """Set when it is closed for good."""
        self._told: tuple[Push, str] | None = None
        """What others were told last of how the host can be reached."""
        self._cause: str | None = None
        self._cause_until = 0.0
        self._gone = anyio.Event()

    @property
    def session(self) -> Session | None:
        """Return the session while there is one."""
        return self._session

    @property
    def is_closed(self) -> bool:
        """Tell whether the seat has ended, or never began."""
        return self._scope is None

    @property
    def address(self) -> str | None:
        """Return the name of its address."""
        return self.place.address

    def open(self) -> None:
        """Begin to live, unless it does; the session comes when the broker answers."""
        if self._scope is None and not self._is_over:
            self._trouble = None
            self._scope = anyio.CancelScope()
            self._gone = anyio.Event()
            self._tasks.start_soon(self._live, self._scope)

    async def close(self) -> None:
        """Say goodbye and end; who waits for an answer of it is told that none comes."""
        self._is_over = True
        self.ended.set()
        if self._scope is not None:
            self._scope.cancel()
            await self._gone.wait()

    async def ready(self) -> Session:
        """Return the session, waiting for it if need be; raise why there is none.

        One that lost its place to another process does not take it back, which would cost the other one its questions;
        it is there again once the other one has ended.
        """
        self.open()
        with anyio.move_on_after(ADAPTER_OPEN_MS / 1000):
            while self._session is None:
                if self._trouble is not None and (self._is_over or self._scope is None):
                    raise self._trouble
                await self._moved.wait()
        if self._session is None:
            raise self._trouble or BrokerStarting("The session of this adapter is not open yet")
        return self._session

    async def ask(self, question: OpenQuestion, target: str, text: str) -> None:
        """Ask in a task of the seat, which goes on when the call that asked has ended."""
        session = await self.ready()
        assert self._work is not None, "a session that is there has its tasks"
        self._work.start_soon(self.asking.ask, session, question, target, text)

    async def is_needed(self) -> bool:
        """Tell whether its end would cost somebody something: mail nobody was shown, open questions, work in hand.

        What the broker holds for it counts, on its way or handed to a hook; one that cannot be asked counts as needed.
        """
        if len(self.tray) or self.asking.open or self.work.steps or self.work.now is not None:
            return True
        session = self._session
        if session is None:
            return False
        with anyio.move_on_after(SEAT_LOOK_MS / 1000):
            try:
                return bool((await session.mailbox()).count or await session.pending() or await open_ones(session))
            except RequestRefused:
                return False  # a broker that keeps nothing
            except IntercomError:
                return True
        return True

    async def step_came(self) -> None:
        """Return when a step of a flow waits."""
        while not self.tray.has_step:
            await self.news.wait()

    async def take(self, room: int) -> Batch | None:
        """Return what is to be put before the model now, without questions that were withdrawn meanwhile."""
        if self.tray.questions and self._session is not None:
            with suppress(IntercomError):
                await self.drop_closed(self._session)
        return self.tray.take(room)

    async def drop_closed(self, session: Session) -> None:
        """Forget the questions that nobody waits for any more; raises ``IntercomError`` when that cannot be found out.

        A question that comes while the broker is asked is not in its answer, and is open all the same.
        """
        asked = set(self.questions)
        open_ids = {ask.message_id for ask in await session.pending()}
        for message_id in asked - open_ids:
            self.closed_question(message_id)

    def closed_question(self, message_id: str) -> None:
        """Take notice that nobody waits for this answer any more."""
        self.questions.pop(message_id, None)
        self.reminded.pop(message_id, None)
        self.tray.drop(message_id)

    def note_reply(self, what: Hashable, question: PendingAsk) -> None:
        """Remember which question is being answered: called again with the same words it is the same answer."""
        self.replied[what] = question
        if len(self.replied) > TOOL_REPEATS:
            self.replied.popitem(last=False)

    def cause(self) -> str | None:
        """Return the message the model was shown last, if that is not long ago: what it sends now comes of it.

        By that the broker knows messages that cause each other for ever (protocol 15.3).
        """
        return self._cause if time.monotonic() < self._cause_until else None

    def renamed(self, name: str | None) -> None:
        """Keep a new visible name for later lives of the seat."""
        if name is not None:
            self.place = self.place._replace(name=name)

    async def set_push(self, push: Push, way: str) -> None:
        """Tell others how the host can be reached from now on, and by what."""
        self.push, self.way = push, way
        if self._session is not None and self._told != (push, way):
            try:
                await self._session.set_presence(push=push, push_way=way)
            except IntercomError:
                return  # the next registration tells it, or the next news
            self._told = (push, way)

    async def join(self, group: str) -> tuple[str, ...]:
        """Join a group, now and in later lives of the identity."""
        groups = await (await self.ready()).join(group)
        self._remember(groups)
        return groups

    async def leave(self, group: str | None) -> tuple[str, ...]:
        """Leave a group, or all but the home group, likewise."""
        groups = await (await self.ready()).leave(group)
        self._remember(groups)
        return groups

    # --- its life ---------------------------------------------------------------------------------------

    async def _live(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while True:
                    try:
                        await self._be_here()
                    except (SessionReplaced, AddressHeld):
                        self._has_place = False
                        self._set_trouble(SessionReplaced(f"Another process is {visible(self.place.name)} by now"))
                        return
                    except SessionClosed as error:
                        self._set_trouble(error)
                        return
                    except RegistrationRefused as error:
                        self._set_trouble(error)
                        if error.code != "address_limit":
                            return
                        self.place = self.place._replace(identity=None)
                        continue
                    except IntercomError as error:
                        self._set_trouble(error)
                    await anyio.sleep(ADAPTER_RETRY_MS / 1000)
        finally:
            self._scope = None
            self._gone.set()
            self._move()

    async def _be_here(self) -> None:
        """Be registered until the session is over; leaving by an exception confirms nothing that was not shown."""
        place = self.place
        groups = place.groups or self._remembered()
        told = (self.push, self.way)
        async with connect(
            place.name,
            groups=groups or None,
            home=place.paths.home,
            model=place.kind,
            address=self.address or False,
            hold="take" if self._has_place else "free",
            kind=place.kind,
            cwd=place.directory,
            push=self.push,
            push_way=self.way,
            work_mode="managed_turn" if place.works else None,
            runtime_session_id=(place.session or place.name) if place.works else None,
            flows="todo" if place.works else False,
        ) as session:
            ended: IntercomError | None = None
            try:
                async with anyio.create_task_group() as work:
                    self._work = work
                    self._session = session
                    self._told = told
                    self._has_place = True
                    self._trouble = None
                    self._move()
                    self._find_answers()
                    self._on_news(self)
                    try:
                        await self._receive(session)
                    except IntercomError as error:
                        ended = error
                    finally:
                        self.asking.end(ended or ConnectionLost("This session ended before an answer came"))
                        work.cancel_scope.cancel()
            finally:
                self._session = None
                self._work = None
                self._forget()
            if ended is not None:
                raise ended

    async def _receive(self, session: Session) -> None:
        while True:
            hand = session.messages()
            try:
                message = await anext(hand)
            except BrokerError as error:
                self._set_trouble(error)  # told once; the session goes on trying
                continue
            self._trouble = None
            if self._answers is not None and message.reply_to is not None and self._answers.has(message.id):
                message.confirm()  # it was written down, and the process ended before it could say so
                continue
            if message.expects_reply:
                message.confirm()
                self.questions[message.id] = message
                if len(self.questions) > INCOMING_MESSAGES:
                    self.closed_question(next(iter(self.questions)))
            self.tray.put(Item(message, "", hand))

    def _find_answers(self) -> None:
        """Let answers wait that an earlier process had and nobody was shown."""
        for answer in () if self._answers is None else self._answers.load():
            self.tray.put(Item(answer, ""))

    def _forget(self) -> None:
        """Forget what belongs to the session that ended: its mail comes again, its questions were told so."""
        self.questions.clear()
        self.reminded.clear()
        self.tray.forget_messages()

    def _was_shown(self, item: Item) -> None:
        item.hand = None
        if item.message is not None:
            self.known_ids.add(item.message.id)
            self.work.was_shown(item.message)
        if item.message is not None and item.message.notice is None:
            self._cause = item.message.id
            self._cause_until = time.monotonic() + CAUSE_MS / 1000
        if item.message is not None:
            if self._answers is not None and item.message.reply_to is not None:
                self._answers.drop(item.message.id)
            with suppress(IntercomError):  # the session it came to may be over; then it comes again
                item.message.confirm(out_of_date=item.was_out_of_date)

    def _news(self) -> None:
        self.news.set()
        self.news = anyio.Event()
        self._on_news(self)

    def _set_trouble(self, error: IntercomError) -> None:
        self._trouble = error
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    def _remembered(self) -> tuple[str, ...]:
        if self.place.identity is None:
            return ()
        return remembered(self.place.paths, self.place.identity)

    def _remember(self, groups: tuple[str, ...]) -> None:
        identity = self.place.identity
        if identity is not None:
            change(self.place.paths, identity, lambda _: tuple(groups) or (DEFAULT_GROUP,))


def _answers_of(place: Place, address: str) -> AnswerFiles:
    return AnswerFiles(place.paths, address, place.groups[0] if place.groups else "")
