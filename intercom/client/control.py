"""Ask a broker about itself, or to leave, without registering and without ever starting one (F130).

Every call makes its own connection and ends within its time-out. The three ways not to get an answer stay apart:
``NoBroker``, ``BrokerBusy`` (it accepts, or its backlog is full, and does not answer), ``AccessDenied``.
"""

from __future__ import annotations

import os
import select
import socket
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from intercom.client.composing import milliseconds
from intercom.client.dialing import dial, not_answering, told
from intercom.client.setup import now
from intercom.errors import AccessDenied, BrokerBusy, ConnectionLost, NoBroker, ProtocolViolation
from intercom.limits import CONTROL_TALKS, FRAME_CEILING_BYTES, PROBE_MS, READ_BYTES, READY_POLL_MS, REQUEST_MS
from intercom.paths import Paths
from intercom.wire.codec import ProtocolError, decode_answer, encode
from intercom.wire.frames import (
    BrokerDrain,
    BrokerDrained,
    BrokerStatus,
    BrokerStatusRequest,
    Health,
    HealthRequest,
    Shutdown,
    ShutdownAck,
)
from intercom.wire.framing import FrameReader

if TYPE_CHECKING:
    from intercom.wire.unions import Answer, Request

Result = TypeVar("Result")
Wanted = TypeVar("Wanted", Health, BrokerStatus, ShutdownAck, BrokerDrained)


def health(paths: Paths, *, timeout: float = PROBE_MS / 1000) -> str:
    """Return the instance id of the broker, a new one for every process.

    Args:
        paths: the files of the home.
        timeout: seconds to wait.

    Raises ``NoBroker``, ``BrokerBusy``, ``AccessDenied``, ``HomeError``, ``ConnectionLost`` or ``ProtocolViolation``.
    """
    return converse(paths, timeout, lambda exchange: exchange.ask(HealthRequest, Health)).instance_id


def broker_status(paths: Paths, *, timeout: float = REQUEST_MS / 1000) -> dict[str, Any]:
    """Return the broker's report about itself; arguments and errors as ``health``."""
    return converse(paths, timeout, lambda exchange: exchange.ask(BrokerStatusRequest, BrokerStatus)).report


def shutdown(paths: Paths, *, timeout: float = REQUEST_MS / 1000) -> None:
    """Ask the broker to leave and return once it has said that it will and closed the connection.

    Its process may live a moment longer. Arguments and errors as ``health``; ``ConnectionLost`` may also mean that it
    left by itself before it answered.
    """
    with Exchange(paths, timeout) as exchange:
        exchange.ask(Shutdown, ShutdownAck)
        exchange.wait_for_end()


def drain(paths: Paths, seconds: float) -> BrokerDrained:
    """Have the broker finish what is open within ``seconds`` and leave; return what it says once it does.

    It is not begun anew on another connection: the next broker is not meant. Errors as ``health``; ``ConnectionLost``
    also when the broker leaves for another reason meanwhile, or is too old to know this.
    """
    within_ms = milliseconds(seconds, "seconds")
    with Exchange(paths, seconds + REQUEST_MS / 1000) as exchange:
        return exchange.ask(lambda request_id: BrokerDrain(request_id, within_ms), BrokerDrained)


def converse(paths: Paths, timeout: float, talk: Callable[[Exchange], Result]) -> Result:
    """Return what comes of a talk with the broker; arguments and errors as ``health``.

    A talk whose connection ends before the answer is begun anew on another one, so ``talk`` must be one that may be
    repeated: a broker that leaves takes its socket with it, and then nobody is there. One that crashed leaves its
    socket behind; that is ``ConnectionLost``.
    """
    until = now() + milliseconds(timeout, "timeout")
    lost: ConnectionLost | None = None
    for _ in range(CONTROL_TALKS):
        try:
            with Exchange(paths, max(1, until - now()) / 1000) as exchange:
                return talk(exchange)
        except ConnectionLost as error:
            lost = error
        except NoBroker:
            if lost is None or not os.path.lexists(paths.socket):
                raise
            break
        select.select((), (), (), READY_POLL_MS / 1000)
    assert lost is not None, "only a lost connection leads here"
    raise lost


class Exchange:
    """Hold one connection for requests that need no session."""

    def __init__(self, paths: Paths, timeout: float) -> None:
        """Connect; ``timeout`` in seconds bounds everything that follows."""
        self._paths = paths
        self._until = now() + milliseconds(timeout, "timeout")
        self._reader = FrameReader(FRAME_CEILING_BYTES)
        self._poll = select.poll()
        self._link = self._dial()

    def __enter__(self) -> Exchange:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self._link.close()

    def ask(self, make: Callable[[str], Request], wanted: type[Wanted]) -> Wanted:
        """Write a request and return its answer."""
        request_id = str(uuid.uuid4())
        self._write(encode(make(request_id)))
        while True:
            answer = self._next_answer()
            if isinstance(answer, wanted) and answer.request_id == request_id:
                return answer

    def wait_for_end(self) -> None:
        """Read until the broker closes the connection or time is up."""
        try:
            while self._read():
                pass
        except (BrokerBusy, ConnectionLost):
            return

    def _dial(self) -> socket.socket:
        while True:
            try:
                return dial(self._paths)
            except BrokerBusy:
                if now() >= self._until:
                    raise
            select.select((), (), (), min(READY_POLL_MS, max(0, self._until - now())) / 1000)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._link.fileno(), data) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except OSError as error:
                raise self._lost(error) from error

    def _next_answer(self) -> Answer:
        try:
            while (payload := self._reader.next_frame()) is None:
                data = self._read()
                if not data:
                    raise ConnectionLost("The broker ended the connection before it answered", retry="after")
                self._reader.feed(data)
            return decode_answer(payload)
        except ProtocolError as error:
            raise ProtocolViolation(f"The broker broke the protocol: {error}") from error

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._link.fileno(), READ_BYTES)
            except BlockingIOError:
                self._wait(select.POLLIN)
            except OSError as error:
                raise self._lost(error) from error

    def _wait(self, wanted: int) -> None:
        self._poll.register(self._link, wanted)
        if not self._poll.poll(max(0, self._until - now())):
            raise not_answering(self._paths)

    def _lost(self, error: OSError) -> AccessDenied | ConnectionLost:
        denied = told(error, self._paths)
        if isinstance(denied, AccessDenied):
            return denied
        return ConnectionLost(f"The connection to the broker broke: {error.strerror or error}", retry="after")
