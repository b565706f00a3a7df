"""Stand in for the adapter of a host session: answer hooks as a test says, and remember what they asked."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from intercom.client.adapters import AdapterFiles, SeatRecord
from intercom.paths import Paths
from tests.support.raw import PATIENCE_S

Answer = Callable[[dict[str, Any]], "dict[str, Any] | bytes | None"]
"""Returns the answer to a request, raw bytes, or nothing to close the connection."""


class FakeAdapter:
    """Listen as an adapter whose host is this process, or its parent, until it is closed."""

    def __init__(self, home: Path, host: str, answer: Answer, *, session: str = "s-1", host_pid: int | None = None):
        self.requests: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._answer = answer
        self._files = AdapterFiles(Paths(home), host, os.getpid() if host_pid is None else host_pid, os.getpid())
        self._files.prepare()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(self._files.socket))
        self._listener.listen()
        self._files.listens = True
        self._files.write("/", [SeatRecord(session, "host-1", "name")])
        self.gone = threading.Event()
        """Set when a connection was ended by the hook."""
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FakeAdapter:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._files.remove()

    @property
    def asked(self) -> list[str]:
        """Return the operations that were asked, in their order."""
        return [request["op"] for request in self.requests]

    def wait_for(self, op: str) -> dict[str, Any]:
        """Return the first request of a kind, once it was made."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        with self._news:
            while True:
                found = [request for request in self.requests if request["op"] == op]
                if found:
                    return found[0]
                assert self._news.wait(max(0, deadline - time.monotonic())), f"{op} was not asked: {self.asked}"

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(link,), daemon=True).start()

    def _converse(self, link: socket.socket) -> None:
        # the other side may go in the middle of anything
        with suppress(ConnectionError), link, link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                with self._news:
                    self.requests.append(request)
                    self._news.notify_all()
                answer = self._answer(request)
                if answer is None:
                    return
                link.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")
            self.gone.set()
