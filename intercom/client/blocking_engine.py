"""Hold the connection of a session with nothing but calls: no event loop, no thread.

Every call that waits turns the crank: it reads, writes, reconnects and keeps time until it has what it was called
for; nothing happens between two calls. Whatever is decided is decided in ``ClientSession``.
"""

from __future__ import annotations

import os
import select
import socket
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from intercom.client.assignment import Assignment
from intercom.client.attempts import Attempts
from intercom.client.dialing import not_answering, told
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.launch import Launch, Steps
from intercom.client.operations import Operation
from intercom.client.sending import SendOperation
from intercom.client.session import Link
from intercom.client.setup import Setup, now, wall
from intercom.client.unsent import Unsent
from intercom.client.views import IncomingMessage, Receipt
from intercom.client.watches import Watch, Watched
from intercom.errors import AccessDenied, IntercomError, UsageError
from intercom.limits import CLIENT_READ_BYTES, DISCONNECT_MS, STARTING_MS

if TYPE_CHECKING:
    from intercom.client.durable import AnyCommand
    from intercom.client.queueing import StageQueue

Result = TypeVar("Result")


class Engine:
    """Run one session for one caller at a time."""

    def __init__(self, setup: Setup) -> None:
        """Begin offline."""
        self._setup = setup
        self.core = setup.core
        self._dial: Attempts[socket.socket] = Attempts(socket.socket.close)
        self._link: socket.socket | None = None
        """What the dial brought, while it is used."""
        self._poll = select.poll()
        self._unsent = Unsent()
        self._input = memoryview(bytearray(CLIENT_READ_BYTES))
        self._launch: Launch | None = None
        self._steps: Steps | None = None
        self._in_use = allocate_lock()
        self._user: int | None = None
        """The thread that uses it."""
        self.queues: dict[str, StageQueue] = {}
        """What the hosts of this session's runs answer with, by run id."""

    def open(self) -> None:
        """Wait until the session is registered; raise why it cannot be."""
        self.core.prepare(wall())
        self.wait(lambda: self.core.opening(now(), self._setup.timeout_ms))

    def wait(self, make: Callable[[], Operation[Result]], on_held: Callable[[Receipt], None] | None = None) -> Result:
        """Begin an operation and turn until it is settled; withdraw it when that is interrupted.

        ``on_held`` is called once, if the broker holds the message meanwhile.
        """
        with self._used():
            operation = make()

            def done() -> bool:
                nonlocal on_held
                if on_held is not None and isinstance(operation, SendOperation) and operation.held is not None:
                    on_held(operation.held)
                    on_held = None
                return operation.done

            self._begin(operation, done)
            return self._result(operation)

    def wait_or_held(self, make: Callable[[], SendOperation[Receipt]]) -> Receipt:
        """Begin a send and turn until it is settled or held; then it goes on in later calls."""
        with self._used():
            operation = make()
            self._begin(operation, lambda: operation.done or operation.held is not None)
            if operation.done or operation.held is None:
                return self._result(operation)
            self.core.held.keep(operation)
            return operation.held

    def outcome(self, message_id: str, timeout_ms: int | None, held: Receipt) -> Receipt:
        """Turn until a send that was held is settled; return ``held`` when time is up before."""
        with self._used():
            operation = self.core.held.find(message_id)
            self._turn_until(lambda: operation.done, None if timeout_ms is None else now() + timeout_ms)
            if not operation.done:
                return held
            self.core.held.forget(operation)
            return cast("Receipt", self._result(operation))

    def serve(self, done: Callable[[], bool], timeout_ms: int | None) -> None:
        """Turn until ``done`` or until time is up, so that hosts are asked."""
        with self._used():
            self._turn_until(done, None if timeout_ms is None else now() + timeout_ms)
            self._flush()

    def flush(self) -> None:
        """Write what a call that does not wait has left."""
        with self._used():
            self._flush()

    def _begin(self, operation: Operation[Any], done: Callable[[], bool]) -> None:
        try:
            self.core.begin(operation, now())
            self._turn_until(done)
            if operation.done:
                self.core.taken(operation, now())
                self._flush()
        except BaseException:
            self.core.withdraw(operation, now())
            self._flush()
            raise

    def _result(self, operation: Operation[Result]) -> Result:
        if operation.error is not None:
            raise operation.error
        return cast("Result", operation.result)

    def next(self, consumer: object, timeout_ms: int | None) -> IncomingMessage | None:
        """Return the next message for a consumer, or ``None`` when time is up; raise what it has to be told."""
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                message = self.core.take_message(consumer, now())
                if message is not None:
                    self._flush()
                    return message
                trouble = self.core.take_trouble()
                if trouble is not None:
                    raise trouble
                if until is not None and now() >= until:
                    self._flush()
                    return None
                self._turn_until(lambda: self.core.has_news, until)

    def next_work(self, timeout_ms: int | None, *, claims: bool) -> Assignment | None:
        """Return the next assignment, or ``None`` when time is up; raise what its worker has to be told."""
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                work = self.core.take_work(wall(), until, claims=claims)
                if work is not None or (until is not None and now() >= until):
                    self._flush()
                    return work
                self._turn_until(lambda: self.core.has_work(wall(), claims=claims), until)

    def next_event(self, feed: Feed, timeout_ms: int | None) -> SessionEvent | None:
        """Return the next event of a feed, or ``None`` when time is up."""
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                event = feed.take()
                if event is not None or (until is not None and now() >= until):
                    return event
                self._turn_until(lambda: feed.has_news, until)

    def next_watched(self, watch: Watch, timeout_ms: int | None) -> Watched | None:
        """Return the next thing a watch was told, or ``None`` when time is up; raise why there is none any more."""
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                told = self.core.take_watched(watch)
                if told is not None or (until is not None and now() >= until):
                    self._flush()
                    return told
                self._turn_until(lambda: watch.has_news, until)

    def next_command(self, kind: type[AnyCommand], timeout_ms: int | None) -> AnyCommand | None:
        """Return the next command, or ``None`` when time is up; raise what its worker has to be told."""
        with self._used():
            until = None if timeout_ms is None else now() + timeout_ms
            while True:
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                command = self.core.take_command(kind)
                if command is not None or (until is not None and now() >= until):
                    self._flush()
                    return command
                self._turn_until(lambda: self.core.has_command, until)

    def act(self, action: Callable[[], Result]) -> Result:
        """Return what an action comes to that waits for nobody, and write what it has left."""
        with self._used():
            result = action()
            self._flush()
            return result

    def announce(self, status: str) -> None:
        """Tell others a status; nothing is waited for."""
        with self._used():
            self.core.announce(status, wall())
            self._flush()

    def confirm(self, message_id: str, *, is_late: bool = False) -> None:
        """Confirm a message that was taken; nothing is waited for. ``is_late``: it was shown after its time."""
        with self._used():
            self.core.confirm(message_id, now(), is_late=is_late)
            self._flush()

    @property
    def is_foreign(self) -> bool:
        """Tell whether this is a forked child: the connection belongs to the process that opened it."""
        return self.core.profile.pid != os.getpid()

    @contextmanager
    def _used(self) -> Iterator[None]:
        if self.is_foreign:
            raise UsageError("the session belongs to the process that opened it", hint="Open one in each process.")
        if not self._in_use.acquire(blocking=False):
            if self._user == get_ident():
                raise UsageError("a stage queue used the session that asked it", hint="Use it when the call is over.")
            raise UsageError("the session is being used by another thread", hint="Open one in each thread.")
        self._user = get_ident()
        try:
            yield
        finally:
            self._user = None
            self._in_use.release()

    def _turn_until(self, done: Callable[[], bool], until: int | None = None) -> None:
        """Read, write, reconnect and keep time until ``done`` or, if given, until a monotonic time."""
        try:
            while not done():
                if self.core.link is Link.CLOSED:
                    raise self.core.over()
                if self.core.link is Link.BROKEN:
                    self._drop()
                wake = min((time for time in (self.core.deadline(), until) if time is not None), default=None)
                if self._link is None:
                    self._turn_offline(wake)
                else:
                    self._turn_online(self._link, wake)
                self.core.tick(now())
                self.core.events()
                self._ask_hosts()
                if until is not None and now() >= until:
                    return
        finally:
            self._give_up_launch()

    def _ask_hosts(self) -> None:
        if not self.queues:
            return
        from intercom.client.owning import ask_host  # loaded already, with the first run

        runs = self.core.commitments.runs
        for run in runs.waiting():
            queue = self.queues.get(run.id)
            if queue is not None:
                try:
                    ask_host(runs, run, queue)
                finally:
                    self._flush()

    def _turn_offline(self, wake: int | None) -> None:
        if self._steps is None:
            at = self.core.recovery.at
            assert at is not None, "an open session that is offline always has a next attempt"
            if at > now():
                _sleep_until(at if wake is None else min(at, wake))
                return
            self.core.connecting()
            self._launch = self._setup.launch()
            self._dial.begin(self._launch, now(), STARTING_MS)
            self._steps = self._launch.steps()
        assert self._launch is not None
        try:
            pause = next(self._steps)
        except StopIteration as found:
            launch, self._launch, self._steps = self._launch, None, None
            if not self._dial.won(launch, found.value, now()):
                self.core.connect_failed(launch.standing, now())
                return
            self._link = found.value
            self.core.connected(now(), wall(), not_answering(self._setup.paths), self._setup.young_until())
            return
        except IntercomError as error:
            self._launch = self._steps = None
            self._dial.cancel()
            self.core.connect_failed(error, now())
            return
        self.core.standing(self._launch.standing)
        then = now() + round(pause * 1000)
        _sleep_until(then if wake is None else min(then, wake))

    def _turn_online(self, link: socket.socket, wake: int | None) -> None:
        self._flush()
        if self._link is None:
            return
        wanted = (select.POLLIN if self.core.wants_data else 0) | (select.POLLOUT if self._unsent else 0)
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
            # Into one buffer: a new one each time, of which little is kept, breaks the heap into pieces.
            data = bytes(self._input[: os.readv(link.fileno(), (self._input,))])
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(error)
            return
        if not data:
            self._drop()
            return
        self.core.receive(data, now())
        if self.core.link in (Link.BROKEN, Link.CLOSED):
            self._drop()

    def _flush(self) -> None:
        """Write as much as the kernel takes now; what it does not take stays in ``_unsent``."""
        if self._link is None:
            return
        try:
            self._unsent.add(self.core.outgoing())
            self._unsent.write_to(self._link.fileno())
        except PermissionError as error:
            self._drop(error)
        except OSError:
            # What the broker said last is still to be read; then comes the end of the connection.
            self._unsent.clear()
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
        self._dial.let_go()
        self._unsent.clear()
        cause = None if error is None else told(error, self._setup.paths)
        self.core.eof(now(), cause if isinstance(cause, AccessDenied) else None)

    def _give_up_launch(self) -> None:
        """Stop waiting for a broker; one that is being started goes on by itself."""
        if self._steps is not None and self._launch is not None:
            steps, launch, self._steps, self._launch = self._steps, self._launch, None, None
            self._dial.cancel()
            steps.close()
            self.core.connect_failed(launch.standing, now())

    # --- the end ----------------------------------------------------------------------------------------

    def close(self, *, finished: bool) -> None:
        """Say goodbye and wait up to ``DISCONNECT_MS`` until the broker has taken everything.

        A forked child closes its copy of the connection, which the parent does not notice.
        """
        if self.is_foreign:
            if self._link is not None:
                self._link.close()
            return
        was_online = self.core.link is Link.ONLINE
        self.core.close(now(), finished=finished)
        try:
            if was_online and self._link is not None:
                self._say_goodbye(self._link, now() + DISCONNECT_MS)
            else:
                self._flush()
        finally:
            self._dial.let_go()
            self._link = None
            self.core.release()
            self._input.release()  # whoever keeps a session that has ended keeps no room for what it cannot read

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
                if not os.readv(link.fileno(), (self._input,)):
                    return


def _sleep_until(time_ms: int) -> None:
    time.sleep(max(0, time_ms - now()) / 1000)
