"""Speak the wire of protocol 1 by hand: a blocking socket, JSON frames, and nothing of the package under test."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

PATIENCE_S = 10.0
"""Longest wait for anything that is bound to come; a test that fails pays it, one that passes does not."""
BROADCASTS = frozenset({"session_joined", "presence_update", "session_left"})

INFO: Frame = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}


class EndOfStream(Exception):
    """Say that the broker closed the connection while a frame was expected."""


class RawClient:
    """Hold one connection to a broker.

    Args:
        path: the broker's socket.
        timeout: longest wait for anything, in seconds.
    """

    def __init__(self, path: Path | str, *, timeout: float = PATIENCE_S) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(os.fspath(path))
        except OSError:
            self.socket.close()
            raise
        self.session_id = ""
        self._timeout = timeout
        self._buffer = bytearray()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; doing it again is fine."""
        self.socket.close()

    def send(self, *frames: Frame) -> None:
        """Write frames in one piece."""
        self.send_bytes(b"".join(packed(frame) for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.socket.settimeout(self._timeout)
        self.socket.sendall(data)

    def half_close(self) -> None:
        """Send FIN and go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def receive(self, timeout: float | None = None) -> Frame:
        """Return the next frame; raise ``TimeoutError`` or ``EndOfStream`` when none comes."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while (frame := self._cut()) is None:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self.socket.recv(1 << 18)
            if not data:
                raise EndOfStream
            self._buffer += data
        return frame

    def expect(self, type: str, **members: Any) -> Frame:
        """Return the next frame and fail unless it has this type and these members.

        News about other sessions is passed over unless it is what is expected.
        """
        frame = self.receive()
        while frame["type"] in BROADCASTS and frame["type"] != type:
            frame = self.receive()
        assert frame["type"] == type, frame
        for name, value in members.items():
            assert frame.get(name) == value, frame
        return frame

    def expect_end(self) -> None:
        """Fail unless the broker closes this connection without another frame but news about other sessions."""
        try:
            while (frame := self.receive())["type"] in BROADCASTS:
                pass
        except (EndOfStream, ConnectionResetError):
            return
        raise AssertionError(f"a frame instead of the end: {frame}")

    def register(self, name: str | None = None, **extra: Any) -> Frame:
        """Register and return the ``registered`` frame; ``session`` among the members adds to the session object."""
        session = {**INFO, **extra.pop("session", {})}
        if name is not None:
            session["name"] = name
        self.send({"type": "register", "session": session, **extra})
        registered = self.expect("registered")
        self.session_id = registered["sessionId"]
        return registered

    def send_message(self, to: str, message_id: str, text: str = "hello", **extra: Any) -> None:
        """Write a ``send``; ``message`` among the members adds to the message object."""
        message = {"id": message_id, "timestamp": 1, "content": {"text": text}, **extra.pop("message", {})}
        self.send({"type": "send", "to": to, "message": message, **extra})

    def list(self, request_id: str = "list", **members: Any) -> list[Frame]:
        """Return the sessions the broker lists."""
        self.send({"type": "list", "requestId": request_id, **members})
        sessions: list[Frame] = self.expect("sessions", requestId=request_id)["sessions"]
        return sessions

    def health(self) -> str:
        """Return the broker's instance id."""
        self.send({"type": "health", "requestId": "h"})
        instance: str = self.expect("health", requestId="h")["instanceId"]
        return instance

    def status(self) -> Frame:
        """Return the status report."""
        self.send({"type": "broker_status", "requestId": "st"})
        report: Frame = self.expect("broker_status", requestId="st")["report"]
        return report

    @property
    def has_frame(self) -> bool:
        """Tell whether ``receive`` would return without reading."""
        if len(self._buffer) < 4:
            return False
        (length,) = struct.unpack_from(">I", self._buffer)
        return len(self._buffer) >= 4 + int(length)

    def _cut(self) -> Frame | None:
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from(">I", self._buffer)
        if len(self._buffer) < 4 + length:
            return None
        payload = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        frame: Frame = json.loads(payload)
        return frame


def packed(frame: Any) -> bytes:
    """Return the bytes of a frame, header included."""
    payload = json.dumps(frame).encode()
    return struct.pack(">I", len(payload)) + payload
