"""Flood a broker from a thousand connections in many groups, while sessions come and go and some never read.

At the end all have left, and memory, descriptors, threads, rows and files of the broker are where they were. It fails
when they are not, when a message between two who take part rightly is lost, doubled or refused, or when the broker is
another process than at first. It ends by itself, and ends nothing but what it started.
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from intercom.client import blocking, control
from intercom.limits import Limits
from intercom.paths import Paths
from intercom.wire import reasons
from scripts.strain.processes import brokers_of, descriptors, left_over, own_home, resident_kib, threads, until

CLIENTS = 1_000
GROUPS = 200
CHURN = 50
"""Sessions that come and go each second."""
DEAF = 20
"""Sessions that never read what is written to them."""
TO_THE_DEAF = 0.001
MESSAGES = 1_000_000
MINUTES = 10.0
AT_ONCE = 4
"""Messages a client may have under way."""
TURN_S = 0.02
READ_BYTES = 1 << 16
LEFT_OVER_S = 30.0
"""What is under way when time is up has this long to arrive."""
SLACK_KIB = 24_576
"""Growth of memory that is taken for what allocators keep after a thousand connections."""
SLACK = 4
OPERATION_KIB = 1
"""What a remembered message may cost."""
FORGOTTEN_S = Limits().operation_ttl_ms / 1000 + 60
FAULTS_SHOWN = 20
LOG_LINES = 20
INFO = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}


@dataclass
class Client:
    """Hold one connection, what is to be written to it, and what was read of it."""

    number: int
    sock: socket.socket
    group: str
    is_deaf: bool = False
    is_brief: bool = False
    session_id: str = ""
    unread: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    under_way: dict[str, Client] = field(default_factory=dict)
    leaves_at: float = 0.0


class Flood:
    """Write and read for all of them, in one loop."""

    def __init__(self, paths: Paths, options: argparse.Namespace) -> None:
        self.paths = paths
        self.options = options
        self.chance = random.Random(options.chance)
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, Client] = {}
        self.groups: dict[str, list[Client]] = {}
        self.heard: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self.waiting: deque[Client] = deque()
        """Who may write again."""
        self.lonely: deque[Client] = deque()
        """Who had nobody to write to."""
        self.dirty: dict[int, Client] = {}
        """Who has something to write."""
        self.deaf: list[Client] = []
        self.uncertain: set[str] = set()
        self.count = 0
        self.is_over = False

    def run(self) -> None:
        """Do it all; faults are in ``faults`` afterwards."""
        begun = time.monotonic()
        end = begun + self.options.minutes * 60
        for number in range(self.options.clients):
            self._come(f"g{number % self.options.groups}", is_deaf=number < self.options.deaf)
        due, step = time.monotonic(), 1 / max(self.options.churn, 0.001)
        while time.monotonic() < end and self.done["sent"] < self.options.messages:
            now = time.monotonic()
            while self.options.churn and due <= now:
                due += step
                self._come(f"g{self.chance.randrange(self.options.groups)}", leaves_at=now + 1.0)
            self._turn(now)
        self.is_over = True
        limit = time.monotonic() + LEFT_OVER_S
        while time.monotonic() < limit and any(client.under_way for client in self.clients.values()):
            self._turn(time.monotonic())
        lost = sum(len(client.under_way) for client in self.clients.values() if not client.is_brief)
        if lost:
            self.faults.append(f"{lost} messages without an answer")
        for message_id in self.uncertain:
            if self.heard[message_id] < 2:
                del self.heard[message_id]
        if self.heard:
            self.faults.append(f"{len(self.heard)} messages arrived again, {next(iter(self.heard))} among them")
        for client in list(self.clients.values()):
            self._go(client)
        seconds = time.monotonic() - begun
        self.done["messages a second"] = int(self.done["delivered"] / seconds)

    # --- clients ----------------------------------------------------------------------------------------

    def _come(self, group: str, *, is_deaf: bool = False, leaves_at: float = 0.0) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.paths.socket))
        sock.setblocking(False)
        self.count += 1
        client = Client(self.count, sock, group, is_deaf, leaves_at > 0, leaves_at=leaves_at)
        self.clients[client.number] = client
        session = {**INFO, "name": f"c{client.number}", "group": group}
        register = {"type": "register", "session": session, "registrationGroup": group, "acknowledgesReceipt": True}
        self._write(client, register)
        if is_deaf:
            self.deaf.append(client)
        else:
            self.selector.register(sock, selectors.EVENT_READ, client)
        self.done["sessions"] += 1

    def _go(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        with suppress(ValueError):
            self.groups.get(client.group, []).remove(client)
        with suppress(KeyError):
            self.selector.unregister(client.sock)
        client.sock.close()

    def _turn(self, now: float) -> None:
        for key, _ in self.selector.select(TURN_S if not self.dirty else 0):
            self._guarded(self._read, key.data)
        dirty, self.dirty = self.dirty, {}
        for client in dirty.values():
            self._guarded(self._flush, client)
        for client in [client for client in self.clients.values() if client.leaves_at and client.leaves_at <= now]:
            if not client.under_way:
                self._go(client)
                self.done["left"] += 1
        waiting, self.waiting = self.waiting, self.lonely
        self.lonely = deque()
        for client in waiting:
            if client.number in self.clients and not self.is_over:
                self._send(client)

    def _guarded(self, action: Callable[[Client], None], client: Client) -> None:
        if client.number not in self.clients:
            return
        try:
            action(client)
        except OSError as error:
            if not client.is_deaf:
                self.faults.append(f"c{client.number} lost its connection: {error}")
            self._go(client)

    def _send(self, client: Client) -> None:
        """Write to somebody of the same group who stays; now and then to one who never reads, if there is one."""
        peers = self.groups[client.group]
        peer = self.chance.choice(peers) if peers else client
        to = peer.session_id
        if self.chance.random() < TO_THE_DEAF and (deaf := [each for each in self.deaf if each.group == client.group]):
            peer, to = deaf[0], f"c{deaf[0].number}"
        if peer is client:
            self.lonely.append(client)
            return
        self.done["sent"] += 1
        message_id = f"m-{self.done['sent']}"
        message = {"id": message_id, "timestamp": 1, "content": {"text": message_id}}
        client.under_way[message_id] = peer
        self._write(client, {"type": "send", "to": to, "message": message, "attemptId": message_id})

    def _read(self, client: Client) -> None:
        data = client.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the broker ended it")
        client.unread += data
        at = 0
        while len(client.unread) - at >= 4:
            (length,) = struct.unpack_from(">I", client.unread, at)
            if len(client.unread) - at < 4 + length:
                break
            self._take(client, json.loads(client.unread[at + 4 : at + 4 + length]))
            at += 4 + length
        del client.unread[:at]

    def _take(self, client: Client, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind == "registered":
            client.session_id = frame["sessionId"]
            if not client.is_brief:
                self.groups.setdefault(client.group, []).append(client)
            self.waiting.extend([client] * AT_ONCE)
        elif kind == "message":
            message_id = frame["message"]["id"]
            self.heard[message_id] += 1
            self._write(client, {"type": "received", "messageId": message_id})
        elif kind in ("delivered", "delivery_failed", "queued"):
            peer = client.under_way.pop(frame["messageId"], None)
            if peer is None:
                self.faults.append(f"{frame['messageId']} was answered twice")
                return
            self._judge(frame, peer)
            self.waiting.append(client)
        elif kind in ("error", "registration_failed"):
            self.faults.append(f"c{client.number} was told {frame}")

    def _judge(self, frame: dict[str, Any], peer: Client) -> None:
        if peer.is_deaf:
            self.done["given up for who never reads"] += 1
            if frame["type"] == "delivered":
                self.faults.append(f"{frame['messageId']} was called delivered to one who never reads")
        elif frame["type"] == "delivered":
            self.done["delivered"] += 1
            if not self.heard.pop(frame["messageId"], 0):
                self.faults.append(f"{frame['messageId']} was called delivered and never arrived")
        elif frame.get("reason") == reasons.RECEIPT_MISSING:
            self.done["not confirmed in time"] += 1  # the machine is slower than so many can wait for
            self.uncertain.add(frame["messageId"])
        else:
            self.faults.append(f"{frame['messageId']} was refused: {frame.get('reason')}")

    def _write(self, client: Client, frame: dict[str, Any]) -> None:
        payload = json.dumps(frame, separators=(",", ":")).encode()
        client.unsent += struct.pack(">I", len(payload)) + payload
        self.dirty[client.number] = client

    def _flush(self, client: Client) -> None:
        with suppress(BlockingIOError):
            del client.unsent[: client.sock.send(client.unsent)]
        if client.unsent:
            self.dirty[client.number] = client


@dataclass
class Sample:
    """Hold what a broker that serves nobody but its watcher has; memory in KiB."""

    pid: int
    memory: int
    descriptors: int
    threads: int
    operations: int

    @classmethod
    def of(cls, paths: Paths) -> Sample:
        """Look at the broker of a home."""
        status = control.broker_status(paths)
        pid = status["pid"]
        rows = status["broker"]["store"]["operations"]
        return cls(pid, resident_kib(pid), descriptors(pid), threads(pid), rows)


def judge(before: Sample, after: Sample, sent: int) -> list[str]:
    """Say what is not where it was; messages are remembered for a while, and what that costs is allowed."""
    if before.pid != after.pid:
        return [f"process {before.pid} served at first, {after.pid} at last"]
    faults = []
    grown = after.memory - before.memory - OPERATION_KIB * after.operations
    if grown > SLACK_KIB:
        faults.append(f"the memory of the broker grew by {grown} KiB beside what it remembers")
    if after.descriptors > before.descriptors + SLACK:
        faults.append(f"it holds {after.descriptors} descriptors, {before.descriptors} before")
    if after.threads > before.threads + SLACK:
        faults.append(f"it has {after.threads} threads, {before.threads} before")
    if after.operations > before.operations + sent:
        faults.append(f"{after.operations} rows, {sent} messages were sent")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when everything is where it was and nothing was lost."""
    parser = argparse.ArgumentParser(
        prog="scripts/flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=CLIENTS, help="connections that stay (default %(default)s)")
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups they are in (default %(default)s)")
    parser.add_argument("--churn", type=float, default=CHURN, help="others that come each second (default %(default)s)")
    parser.add_argument("--deaf", type=int, default=DEAF, help="of those that stay, never read (default %(default)s)")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="end after so many (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="end after so long (default %(default)s)")
    parser.add_argument("--forgotten", action="store_true", help="wait until the broker remembers no message, and look")
    parser.add_argument("--chance", type=int, default=0, help="number that decides who writes to whom (default 0)")
    options = parser.parse_args(arguments)
    with own_home() as paths:
        with blocking.connect("watcher", home=paths.home, purpose="control"):
            before = Sample.of(paths)
            flood = Flood(paths, options)
            try:
                flood.run()
            except OSError as error:
                log = paths.log.read_text().splitlines()[-LOG_LINES:]
                print(f"the broker is not there any more ({error}); the last it said:", *log, "failed", sep="\n")
                return 1
            if not until(lambda: control.broker_status(paths)["sessions"] == 1):
                flood.faults.append("sessions are left when all have gone")
            if options.forgotten:
                deadline = time.monotonic() + FORGOTTEN_S
                while (rows := Sample.of(paths).operations) and time.monotonic() < deadline:
                    time.sleep(1.0)
                if rows:
                    flood.faults.append(f"{rows} messages are still remembered")
            after = Sample.of(paths)
            flood.faults += judge(before, after, flood.done["sent"])
        if not until(lambda: not brokers_of(paths)):
            flood.faults.append("the broker did not leave when nobody needed it any more")
        flood.faults += left_over(paths)
    print(before, after, sep="\n")
    print(", ".join(f"{number} {what}" for what, number in sorted(flood.done.items())))
    for fault in flood.faults[:FAULTS_SHOWN]:
        print(fault)
    print("failed" if flood.faults else "passed")
    return 1 if flood.faults else 0


if __name__ == "__main__":
    sys.exit(main())
