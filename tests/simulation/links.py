"""Let a durable worker report what happens, and somebody send it commands.

Its journal is the real file, in a directory that loses what was not synced when its machine loses its power.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.json import decode

from intercom.client.durable import Command
from intercom.client.journalfile import SUFFIX, JournalFile
from intercom.client.linkrequests import LinkRequests
from intercom.client.linkviews import CommandView
from intercom.client.operations import Operation
from intercom.core.records import CommandRecord, EventRecord, LinkRecord
from intercom.errors import HomeError, IntercomError
from intercom.paths import Paths
from intercom.store.history import read_bodies
from intercom.store.pair import read_only
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_COMMANDS = 8
_EVENTS = 20
_TIMEOUT = 30.0
_KEY = "lana"
_OPEN = frozenset({"pending", "received"})


class Notebook(JournalFile):
    """Keep the journal, and know how much of its file a loss of power leaves."""

    def __init__(self, paths: Paths, ids: Callable[[], str], part: Links) -> None:
        super().__init__(paths, _KEY, ids)
        self._part = part

    def _append(self, fact: dict[str, Any], *, is_synced: bool = True) -> None:
        if self._part.disk_is_full:
            raise HomeError("the disk is full")
        super()._append(fact, is_synced=is_synced)
        if is_synced:
            self._part.synced = self._size

    def _rewrite(self) -> None:
        super()._rewrite()
        self._part.synced = self._size


class Links(Part):
    """Hold one durable worker, and one who commands it."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.home = world.place / "worker"
        self.home.mkdir(mode=0o700)
        self.synced = 0
        """Bytes of the journal that no loss of power takes back."""
        self.disk_is_full = False
        self.reported: list[int] = []
        """Events whose report returned, in order."""
        self.sent: dict[str, int] = {}
        """Commands of which their sender was told that they are stored, with their places."""
        self.taken: list[tuple[str, int]] = []
        self.said: dict[str, str] = {}
        """What the worker said became of each, from the moment it was written down."""
        self.seen: dict[str, str] = {}
        """What its sender was told last, of what is over."""
        self.worker = self.add(Role("lana", address=True, also=(("durable", True),)), Worker)
        self.sender = self.add(Role("carl", address=True, also=(("coordinator", True),)), Sender)

    @property
    def file(self) -> Path:
        """Return the file of the journal."""
        return Paths(self.home).identities / "addresses" / f"{_KEY}{SUFFIX}"

    def worker_died(self) -> None:
        """Leave of the journal what a killed process leaves, or a machine that lost its power."""
        if not self.file.exists():
            return
        size = self.file.stat().st_size
        if self.chance.random() < 0.4:
            left = self.chance.randint(min(self.synced, size), size)
            os.truncate(self.file, left)
        elif self.chance.random() < 0.3:
            with self.file.open("ab") as file:  # it was killed while it wrote a line, and nobody was told
                file.write(b'{"e":999,"id":"torn"'[: self.chance.randint(1, 20)])

    def looked(self, command: CommandView) -> None:
        """Take notice of what is said of a command."""
        if self.seen.get(command.id, command.state) != command.state:
            raise Broken("one-outcome", f"{command.id} was {self.seen[command.id]}, and is {command.state}")
        if command.state not in _OPEN:
            self.seen[command.id] = command.state
            self._became(command.id, command.state)

    def _became(self, command_id: str, state: str) -> None:
        said = self.said.get(command_id)
        if state != said and not (state == "failed" and said is None):
            raise Broken("done-is-true", f"the command {command_id} is {state}, and its worker said {said}")

    def at_rest(self) -> None:
        """Hold that every event arrived once and in order, and that every command was carried out once, or failed."""
        links = self.rows(LinkRecord)
        if any(link.refused for link in links):
            raise Broken("accepted-is-kept", f"the link is refused: {links}")
        commands = {row.command_id: row for row in self.rows(CommandRecord)}
        for command_id in self.sent.keys() - commands.keys():
            raise Broken("accepted-is-kept", f"the command {command_id} is lost")
        for row in commands.values():
            if row.state in _OPEN:
                raise Broken("comes-to-rest", f"the command {row.command_id} is {row.state} for ever")
            self._became(row.command_id, row.state)
        events = sorted(self.rows(EventRecord), key=lambda row: row.seq)
        with closing(read_only(self.world.disk.paths.database)) as connection:
            bodies = read_bodies(connection, [event.number for event in events])
        told = [decode(bodies[event.number])["n"] for event in events if event.kind == "note"]
        if told != self.reported:
            raise Broken("events-arrive-once", f"reported were {self.reported}, and there are {told}")


class Worker(Actor):
    """Carry out commands, and report."""

    part: Links
    in_work: Command | None = None

    def places(self, ids: Any) -> dict[str, Any]:
        """Keep the journal."""
        return {"journal": Notebook(Paths(self.part.home), ids, self.part)}

    def start(self) -> None:
        """Begin with nothing in work; what an earlier process had is reported as interrupted."""
        self.in_work = None
        self.part.disk_is_full = False
        super().start()

    def die(self) -> None:
        """Be gone, and leave a journal."""
        core = self.core
        super().die()
        if core is not None and core._durable is not None:
            core._durable.journal.close()
            self.part.worker_died()

    def act(self) -> bool:
        """Report something, take a command, or say what became of one."""
        luck = self.chance.random()
        if luck < 0.1:
            return False
        if luck < 0.13:
            self.part.disk_is_full = not self.part.disk_is_full
        elif luck < 0.5 and len(self.part.reported) < _EVENTS:
            self._report()
        else:
            self._work()
        return True

    def end_matters(self) -> bool:
        """Carry out everything."""
        self.part.disk_is_full = False
        return self.core is not None and (self.in_work is not None or self.core.durable.has_news) and self._work()

    def _report(self) -> None:
        assert self.core is not None
        number = int(self.part.name("e")[1:])
        try:
            self.core.durable.report("note", {"n": number})
        except HomeError:
            return
        self.part.tell(f"{self.name} {self.pid} reported {number}")
        self.part.reported.append(number)
        self._look()

    def _work(self) -> bool:
        assert self.core is not None
        try:
            if self.in_work is None:
                self._take()
            else:
                self._say(self.in_work)
        except HomeError:
            pass
        except IntercomError as error:
            self.part.tell(f"{self.name} is told: {error!r}")
        self._look()
        return True

    def _take(self) -> None:
        assert self.core is not None
        command = self.core.take_command(Command)
        if command is None:
            return
        self.part.tell(f"{self.name} {self.pid} takes {command.id}")
        if command.id in [each for each, _ in self.part.taken]:
            raise Broken("effect-once", f"the command {command.id} was begun before: {self.part.taken}")
        if self.part.taken and self.part.taken[-1][1] >= command.seq:
            raise Broken("order-of-mail", f"the command {command.id}, {command.seq}, came after {self.part.taken}")
        if command.body != {"do": command.id}:
            raise Broken("as-it-was-sent", f"the command {command.id} says {command.body}")
        self.part.taken.append((command.id, command.seq))
        self.in_work = command

    def _say(self, command: Command) -> None:
        kind = self.chance.choice(("command_applied", "command_applied", "command_failed"))
        command._settle(kind, "it is over", None)
        self.part.tell(f"{self.name} {self.pid} says {kind} of {command.id}")
        self.part.said[command.id] = kind.removeprefix("command_")
        self.in_work = None


class Sender(Actor):
    """Send commands, and look what became of them."""

    part: Links

    def act(self) -> bool:
        """Send one, or one again, or look at one."""
        assert self.core is not None
        luck = self.chance.random()
        if luck < 0.2:
            return False
        requests = LinkRequests(self.core.lifecycle, lambda: self.clock.now.mono, self.core._ids)
        known = sorted(self.part.sent)
        if luck < 0.6 and len(known) < _COMMANDS:
            self._send(requests, self.part.name("c"))
        elif known and luck < 0.75:
            self._send(requests, self.chance.choice(known))
        elif known:
            command_id = self.chance.choice(known)
            self.does(requests.command(command_id, _TIMEOUT), lambda operation: self._told(command_id, operation))
        return True

    def _send(self, requests: LinkRequests, command_id: str) -> None:
        self.part.tell(f"{self.name} sends the command {command_id}")
        operation = requests.send({"do": command_id}, self.part.worker.name, None, None, None, command_id, _TIMEOUT)
        self.does(operation, lambda operation: self._told(command_id, operation))

    def _told(self, command_id: str, operation: Operation[CommandView]) -> None:
        command, error = operation.result, operation.error
        self.part.tell(f"{self.name} is told of {command_id}: {command.state if command is not None else repr(error)}")
        if command is not None:
            if self.part.sent.setdefault(command_id, command.seq) != command.seq:
                raise Broken("one-id-one-message", f"{command_id} was {self.part.sent[command_id]}, now {command.seq}")
            self.part.looked(command)
        elif not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        elif error.code in ("command_unknown", "unknown_command", "command_conflict") and command_id in self.part.sent:
            raise Broken("accepted-is-kept", f"{command_id} was stored, and then: {error}")
