"""Be sessions that write their frames by hand: one that talks, and many that are only there."""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from scripts.bench.running import ANSWER_S, EngineFailed, enter, reach

HEADER = struct.Struct(">I")
READ_BYTES = 1 << 18
WAIT_S = 30.0
"""Longest wait for what is bound to come to all of a crowd."""


class Peer:
    """Be one session of the broker at ``place``; ``members`` are added to its registration."""

    def __init__(self, place: str, name: str, **members: Any) -> None:
        self._connection = reach(place)
        try:
            self._buffer = enter(self._connection, name, **members)
        except BaseException:
            self._connection.close()
            raise
        self._place = 0
        """Where the next frame begins in the buffer."""
        self.registered = self.read("registered", 1)[0]

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):  # the broker may have closed it
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def write(self, frames: Sequence[dict[str, Any]]) -> None:
        """Write frames at once."""
        self.write_bytes([json.dumps(frame, separators=(",", ":")).encode() for frame in frames])

    def write_bytes(self, payloads: Sequence[bytes]) -> None:
        """Write the payloads of frames at once."""
        self._connection.sendall(b"".join(HEADER.pack(len(payload)) + payload for payload in payloads))

    def read(self, kind: str, count: int) -> list[dict[str, Any]]:
        """Return the next ``count`` frames of one type, passing over others."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            frame: dict[str, Any] = json.loads(self.read_bytes())
            if frame["type"] in ("delivery_failed", "request_failed", "error"):
                raise RuntimeError(frame.get("reason") or frame.get("error"))
            if frame["type"] == kind:
                found.append(frame)
        return found

    def read_bytes(self) -> bytes:
        """Return the payload of the next frame."""
        while (end := self._end()) is None:
            self._read_more()
        begin, self._place = self._place + HEADER.size, end
        return self._buffer[begin:end]

    def confirm_all(self, count: int, mark: bytes) -> int:
        """Confirm messages until ``count`` have come; return how many different ones there were.

        What follows ``mark`` in a frame, up to the next quote, is the message's id. Frames are not parsed: the broker
        is measured here.
        """
        seen: set[bytes] = set()
        arrived = 0
        while arrived < count:
            receipts = []
            while (end := self._end()) is not None:
                begin = self._buffer.find(mark, self._place, end)
                if begin >= 0:
                    begin += len(mark)
                    message_id = self._buffer[begin : self._buffer.index(b'"', begin)]
                    seen.add(message_id)
                    receipts.append(b'{"type":"received","messageId":"%b"}' % message_id)
                self._place = end
            arrived += len(receipts)
            if receipts:
                self.write_bytes(receipts)
            if arrived < count:
                self._read_more()
        return len(seen)

    def _end(self) -> int | None:
        """Return where the next frame ends in the buffer, or None while it is not whole."""
        if len(self._buffer) - self._place < HEADER.size:
            return None
        end: int = self._place + HEADER.size + HEADER.unpack_from(self._buffer, self._place)[0]
        return end if end <= len(self._buffer) else None

    def _read_more(self) -> None:
        data = self._connection.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._buffer, self._place = self._buffer[self._place :] + data, 0


class Member(NamedTuple):
    """Say who is in a crowd, and in which group."""

    name: str
    group: str


class Crowd:
    """Be many sessions that read what comes and say nothing; a context manager."""

    def __init__(self, address: str, members: Sequence[Member]) -> None:
        room = len(members) + 256
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < room:
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
        self._sockets: dict[int, socket.socket] = {}
        self._selector = select.epoll()
        try:
            for member in members:
                connection = reach(address)
                self._sockets[connection.fileno()] = connection
                enter(connection, member.name, group=member.group)
                self._selector.register(connection, select.EPOLLIN)
            self.drop()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        self._selector.close()
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def write(self, place: int, frame: dict[str, Any]) -> None:
        """Let the member at ``place`` write a frame."""
        payload = json.dumps(frame).encode()
        list(self._sockets.values())[place].sendall(HEADER.pack(len(payload)) + payload)

    def drop(self) -> None:
        """Read until nothing came for a moment."""
        while ready := self._selector.poll(0.1, 1024):
            for number, _ in ready:
                self._sockets[number].recv(READ_BYTES)

    def drop_at_once(self) -> None:
        """Read what is there already."""
        for number, _ in self._selector.poll(0, 1024):
            self._sockets[number].recv(READ_BYTES)

    def wait_for_all(self) -> None:
        """Return when every member has read something; raises ``EngineFailed``."""
        missing = set(self._sockets)
        deadline = time.monotonic() + WAIT_S
        while missing:
            ready = self._selector.poll(ANSWER_S, 1024)
            if not ready or time.monotonic() > deadline:
                raise EngineFailed(f"{len(missing)} of {len(self._sockets)} sessions were told nothing")
            for number, _ in ready:
                if not self._sockets[number].recv(READ_BYTES):
                    raise EngineFailed("a session was thrown out")
                missing.discard(number)
