"""Be a broker that does what a test says: a thread, plain sockets, frames as dicts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.raw import PATIENCE_S, EndOfStream, Frame, RawClient

Script = Callable[["FakeLink", int], None]


class FakeLink(RawClient):
    """Hold one accepted connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.session_id = ""
        self._timeout = PATIENCE_S
        self._buffer = bytearray()

    def take_registration(self, session_id: str = "me", **members: Any) -> Frame:
        """Answer a registration and return it; a ``health`` request before it is answered too."""
        frame = self.receive()
        if frame["type"] == "health":
            self.send({"type": "health", "requestId": frame["requestId"], "instanceId": "fake"})
            frame = self.receive()
        assert frame["type"] == "register", frame
        self.send({"type": "registered", "sessionId": session_id, "acknowledgesReceipt": True, **members})
        return frame

    def deliver(self, sent: Frame) -> None:
        """Answer ``delivered`` to a send."""
        self.send({"type": "delivered", "messageId": sent["message"]["id"], "attemptId": sent["attemptId"]})

    def refuse(self, sent: Frame, reason: str) -> None:
        """Answer ``delivery_failed`` to a send."""
        answered = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        self.send({"type": "delivery_failed", **answered, "reason": reason})

    def wait_for_end(self) -> list[Frame]:
        """Return the frames that come until the client closes the connection."""
        frames = []
        while True:
            try:
                frames.append(self.receive())
            except (EndOfStream, ConnectionResetError):
                return frames


class FakeBroker:
    """Listen on a path and run ``script(link, number)`` for each connection, one after the other.

    Leaving the block waits for the script and raises what it raised.
    """

    def __init__(self, path: Path, script: Script, *, connections: int = 1) -> None:
        self._script = script
        self._connections = connections
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(PATIENCE_S)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fake broker")

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive(), "the script of the fake broker did not end"
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            for number in range(self._connections):
                accepted, _ = self._listener.accept()
                link = FakeLink(accepted)
                with link:
                    self._script(link, number)
        except BaseException as error:
            self._error = error
