"""Hold the connection of a session under anyio: two tasks that wait, and callers that only wait for events.

One task holds the connection, one keeps time. A caller's task begins an operation and waits for its event, so
cancelling a caller never cuts a frame: what was begun is written entirely, or the connection is broken on purpose.
The socket is a plain one; whatever is decided is decided in ``ClientSession``.
"""

from __future__ import annotations

import os
import socket
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel

from intercom.client.assignment import Assignment
from intercom.client.attempts import Attempts
from intercom.client.dialing import not_answering, told
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.operations import Operation
from intercom.client.owning import Run
from intercom.client.queueing import Asked, Reached
from intercom.client.sending import SendOperation
from intercom.client.session import Arrived, Happened, Held, HostAsked, Link, Settled, Troubled
from intercom.client.setup import Setup, now, wall
from intercom.client.unsent import Unsent
from intercom.client.views import IncomingMessage, Receipt
from intercom.client.watches import Watch, Watched
from intercom.errors import AccessDenied, IntercomError, UsageError
from intercom.limits import CLIENT_READ_BYTES, DISCONNECT_MS, STARTING_MS

if TYPE_CHECKING:
    from intercom.client.durable import AnyCommand
    from intercom.client.launch import Launch

Result = TypeVar("Result")


class Engine:
    """Run one session; ``run`` is a task of its own from before ``open`` until ``close`` has ended it."""

    def __init__(self, setup: Setup) -> None:
        """Begin offline."""
        self._setup = setup
        self._thread: int | None = None
        """The thread whose event loop runs the session, once it is entered."""
        self.core = setup.core
        self._dial: Attempts[socket.socket] = Attempts(socket.socket.close)
        self._link: socket.socket | None = None
        """What the dial brought, while it is used."""
        self._link_scope = anyio.CancelScope()
        self._refused: OSError | None = None
        self._unsent = Unsent()
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
        self._input = memoryview(bytearray(CLIENT_READ_BYTES))
        """Set, and replaced, when a message or trouble came."""
        self._asked = anyio.Event()
        """Set, and replaced, when the host of a run has something to look at."""
        self._ended = anyio.Event()
        """Set when the connection ended after the session was closed."""
        self._run_scope = anyio.CancelScope(shield=True)
        """Around the tasks of the session: whoever cancels the block wants it to end with a goodbye, too."""
        self._finished = anyio.Event()
        """Set when they have ended."""

    @property
    def _is_closed(self) -> bool:
        return self.core.link is Link.CLOSED

    @property
    def is_foreign(self) -> bool:
        """Tell whether this is a forked child: the connection belongs to the process that opened it."""
        return self.core.profile.pid != os.getpid()

    def check_caller(self) -> None:
        """Raise ``UsageError`` in a forked child and in another thread than the one of the session's event loop."""
        if self.is_foreign:
            raise UsageError("the session belongs to the process that opened it", hint="Open one in each process.")
        if self._thread not in (None, get_ident()):
            hint = "Open one in each event loop, or come back to this one with anyio.from_thread.run."
            raise UsageError("the session belongs to the event loop that opened it", hint=hint)

    def let_go(self) -> None:
        """Close a forked child's copy of the connection, which the parent does not notice."""
        if self._link is not None:
            self._link.close()

    # --- callers ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Wait until the session is registered; raise why it cannot be."""
        self._thread = get_ident()
        self.core.prepare(wall())
        await self.wait(self.core.opening(now(), self._setup.timeout_ms))

    async def wait(self, operation: Operation[Result], on_held: Callable[[Receipt], None] | None = None) -> Result:
        """Begin an operation and wait until it is settled; withdraw it when the caller is cancelled.

        ``on_held`` is called once, if the broker holds the message meanwhile.
        """
        self._begin(operation)
        try:
            while not operation.done:
                if on_held is not None and isinstance(operation, SendOperation) and operation.held is not None:
                    on_held(operation.held)
                    on_held = None
                await self._move_of(operation)
        except BaseException:
            self.core.withdraw(operation, now())
            self._act()
            raise
        return self._result(operation)

    async def wait_or_held(self, operation: SendOperation[Receipt]) -> Receipt:
        """Begin a send and wait until it is settled or held; then it goes on, and ``outcome`` waits for the end."""
        self._begin(operation)
        try:
            while not operation.done and operation.held is None:
                await self._move_of(operation)
        except BaseException:
            self.core.withdraw(operation, now())
            self._act()
            raise
        if operation.done or operation.held is None:
            return self._result(operation)
        self.core.held.keep(operation)
        return operation.held

    async def outcome(self, operation: SendOperation[Receipt], timeout_ms: int | None, held: Receipt) -> Receipt:
        """Wait until a send that was held is settled; return ``held`` when time is up before."""
        self.check_caller()
        with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
            while not operation.done:
                await self._move_of(operation)
        if not operation.done:
            return held
        self.core.held.forget(operation)
        return self._result(operation)

    async def next_asked(self, run: Run) -> Asked | Reached:
        """Return what the host of a run is to look at next."""
        while not run.waiting:
            await self._asked.wait()
        return run.waiting.popleft()

    def _begin(self, operation: Operation[Any]) -> None:
        self.check_caller()
        self.core.begin(operation, now())
        self._hurried.set()
        self._roomier.set()
        self._act()

    async def _move_of(self, operation: Operation[Any]) -> None:
        operation.token = moved = anyio.Event()
        await moved.wait()

    def _result(self, operation: Operation[Result]) -> Result:
        self.core.taken(operation, now())
        self._act()
        if operation.error is not None:
            raise operation.error
        return cast("Result", operation.result)

    async def next(self, consumer: object) -> IncomingMessage:
        """Return the next message for a consumer; raise what it has to be told."""
        self.check_caller()
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.core.finish_message(consumer, now())
        self._act()
        # Whatever is taken is returned without another pause: who is cancelled in one, and be it by asyncio itself,
        # which no shield holds off, would be taken for having had it.
        await anyio.lowlevel.checkpoint()
        while True:
            if self._is_closed:
                raise self.core.over()
            message = self.core.take_message(consumer, now())
            self._roomier.set()
            self._act()
            if message is not None:
                return message
            trouble = self.core.take_trouble()
            if trouble is not None:
                raise trouble
            await self._news.wait()

    async def next_work(self, *, claims: bool) -> Assignment:
        """Return the next assignment; raise what its worker has to be told."""
        self.check_caller()
        await anyio.lowlevel.checkpoint()
        while True:
            if self._is_closed:
                raise self.core.over()
            work = self.core.take_work(wall(), None, claims=claims)
            self._hurried.set()
            self._act()
            if work is not None:
                return work
            await self._news.wait()

    async def next_event(self, feed: Feed) -> SessionEvent:
        """Return the next event of a feed."""
        self.check_caller()
        await anyio.lowlevel.checkpoint()
        while True:
            if self._is_closed:
                raise self.core.over()
            event = feed.take()
            if event is not None:
                return event
            await self._news.wait()

    async def next_watched(self, watch: Watch) -> Watched:
        """Return the next thing a watch was told; raise why there is none any more."""
        self.check_caller()
        await anyio.lowlevel.checkpoint()
        while True:
            if self._is_closed:
                raise self.core.over()
            told = self.core.take_watched(watch)
            self._act()
            if told is not None:
                return told
            await self._news.wait()

    async def next_command(self, kind: type[AnyCommand]) -> AnyCommand:
        """Return the next command for a durable session; raise what its worker has to be told."""
        self.check_caller()
        await anyio.lowlevel.checkpoint()
        while True:
            if self._is_closed:
                raise self.core.over()
            command = self.core.take_command(kind)
            self._act()
            if command is not None:
                return command
            await self._news.wait()

    def act(self, action: Callable[[], Result]) -> Result:
        """Return what an action comes to that waits for nobody, and write what it has left."""
        self.check_caller()
        result = action()
        self._act()
        return result

    def flush(self) -> None:
        """Write and wake what a call that does not wait has left."""
        self._act()

    def announce(self, status: str) -> None:
        """Tell others a status; nothing is waited for."""
        self.check_caller()
        self.core.announce(status, wall())
        self._act()

    # --- after every call of the core -------------------------------------------------------------------

    def _act(self) -> None:
        """Write what is to be written, wake who is to be woken, and break a connection that is to be broken."""
        self._write()
        for event in self.core.events():
            match event:
                case Settled(operation) | Held(operation):
                    if operation.token is not None:
                        operation.token.set()
                case HostAsked():
                    self._asked.set()
                    self._asked = anyio.Event()
                case Arrived() | Happened() | Troubled():
                    self._news.set()
                    self._news = anyio.Event()
        if self.core.link is Link.BROKEN:
            self._link_scope.cancel()
        due = self.core.deadline()
        if due is not None and (self._alarm is None or due < self._alarm):
            self._earlier.set()

    def _write(self) -> None:
        """Write as much as the kernel takes now; this never waits, so no cancellation comes in between."""
        data = self.core.outgoing()
        if self._link is None:
            return
        self._unsent.add(data)
        try:
            if not self._unsent.write_to(self._link.fileno()):
                self._blocked.set()
                return
        except PermissionError as error:
            self._refused = error
            self._link_scope.cancel()
        except OSError:
            # What the broker said last is still to be read; then comes the end of the connection.
            self._unsent.clear()
        self._drained.set()

    # --- the tasks of the session -----------------------------------------------------------------------

    async def run(self) -> None:
        """Hold the connection and keep time until ``close`` ends it."""
        try:
            with self._run_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._keep_time)
                    tasks.start_soon(self._hold_connection)
        finally:
            self._finished.set()

    async def _keep_time(self) -> None:
        """Do what is due, for ever."""
        while True:
            self._earlier = anyio.Event()
            self._alarm = due = self.core.deadline()
            with anyio.move_on_after(None if due is None else max(0, due - now()) / 1000):
                await self._earlier.wait()
            self.core.tick(now())
            self._act()

    async def _hold_connection(self) -> None:
        """Connect, and connect again, until the session is closed."""
        while not self._is_closed:
            await self._until_due()
            self.core.connecting()
            launch = self._setup.launch()
            self._dial.begin(launch, now(), STARTING_MS)
            try:
                link = await self._find_broker(launch)
            except IntercomError as error:
                if self._dial.failed(launch):
                    self._dial_failed(error)
                continue
            if self._dial.won(launch, link, now()):
                await self._converse(link)
            elif not self._is_closed:
                self._dial_failed(launch.standing)

    def _dial_failed(self, error: IntercomError) -> None:
        self.core.connect_failed(error, now())
        self._act()

    async def _until_due(self) -> None:
        while True:
            self._hurried = anyio.Event()
            at = self.core.recovery.at
            left = 0 if at is None else at - now()
            if left <= 0:
                return
            with anyio.move_on_after(left / 1000):
                await self._hurried.wait()

    async def _find_broker(self, launch: Launch) -> socket.socket:
        steps = launch.steps()
        try:
            while True:
                try:
                    pause = next(steps)
                except StopIteration as found:
                    return cast("socket.socket", found.value)
                self.core.standing(launch.standing)
                await anyio.sleep(pause)
        finally:
            steps.close()

    async def _converse(self, link: socket.socket) -> None:
        """Register and read until the connection ends; ``_act`` writes."""
        self._link = link
        self._link_scope = anyio.CancelScope()
        self.core.connected(now(), wall(), not_answering(self._setup.paths), self._setup.young_until())
        try:
            with self._link_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write_what_waits, link)
                    self._act()
                    await self._read_all(link)
                    tasks.cancel_scope.cancel()
        finally:
            self._dial.let_go()
            self._link = None
            self._unsent.clear()
            self._drained.set()
            self._ended.set()
        refused, self._refused = self._refused, None
        cause = None if refused is None else told(refused, self._setup.paths)
        self.core.eof(now(), cause if isinstance(cause, AccessDenied) else None)
        self._act()

    async def _read_all(self, link: socket.socket) -> None:
        while True:
            while not self.core.wants_data:
                self._roomier = anyio.Event()
                await self._roomier.wait()
            try:
                # Into one buffer: a new one each time, of which little is kept, breaks the heap into pieces.
                data = bytes(self._input[: os.readv(link.fileno(), (self._input,))])
            except BlockingIOError:
                await anyio.wait_readable(link)
                continue
            except OSError as error:
                self._refused = error
                return
            if not data:
                return
            self.core.receive(data, now())
            self._act()
            if self.core.link is Link.BROKEN or self.core.was_ended:
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

    async def close(self, *, finished: bool) -> None:
        """Say goodbye, wait up to ``DISCONNECT_MS`` until the broker has taken everything, and end ``run``."""
        try:
            await self._say_goodbye(finished=finished)
        finally:
            self._run_scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._finished.wait()
            self.core.release()
            self._input.release()  # whoever keeps a session that has ended keeps no room for what it cannot read

    async def _say_goodbye(self, *, finished: bool) -> None:
        was_online = self.core.link is Link.ONLINE
        self.core.close(now(), finished=finished)
        self._dial.cancel()
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
