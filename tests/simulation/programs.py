"""Be the programs that talk: the real client session of the library, one process after another under one name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intercom.client import commands
from intercom.client.notices import Event, Settled
from intercom.client.operations import Opening, Operation
from intercom.client.profile import Profile
from intercom.client.session import ClientSession, Link
from intercom.client.views import IncomingMessage
from intercom.errors import BrokerBusy, NoBroker, ProtocolViolation
from intercom.limits import COMING_BACK_MS, CONNECT_MS
from intercom.testing.keeping import MemoryKeeper
from intercom.wire.mail import Hold
from tests.simulation.account import Account, Broken, Letter, text_of
from tests.simulation.machine import Clock
from tests.simulation.process import Process
from tests.simulation.wire import Wire

Told = Callable[[Operation[Any]], None]


@dataclass(frozen=True)
class Role:
    """Say how a program registers."""

    name: str
    address: bool | str = False
    hold: Hold = "take"
    is_retaken: bool = False
    """It shows the same return address in every life, as older clients do."""
    takes_work: bool = False
    """Messages to it are work, which is parked until somebody takes it."""
    is_particular: bool = False
    """What it lets through changes, so that messages to it may be given up, or overtake each other."""
    also: tuple[tuple[str, Any], ...] = ()
    """What else it says of itself when it registers."""

    @property
    def is_agent(self) -> bool:
        """Tell whether it is one to whom others may write, and no control session."""
        return dict(self.also).get("purpose") != "control"

    @property
    def takes_letters(self) -> bool:
        """Tell whether others write to it."""
        return self.hold != "none" and not self.takes_work and self.is_agent and not self.is_apart

    @property
    def is_apart(self) -> bool:
        """Tell whether it is in another group than those who write letters to each other."""
        return "group" in dict(self.also)


@dataclass(eq=False)
class Program:
    """Run one process after another under one name, each with one session."""

    role: Role
    clock: Clock
    account: Account
    chance: random.Random
    keeper: MemoryKeeper | None
    new_wire: Callable[[int], Wire]
    process: Callable[[], Process | None]
    pids: set[int]
    """Of processes that live."""
    incarnation: int = 0
    core: ClientSession | None = None
    wire: Wire | None = None
    letters: dict[Operation[Any], Letter] = field(default_factory=dict)
    """Of what it sent and was not told of yet."""
    tasks: dict[Operation[Any], Told] = field(default_factory=dict)
    """Whom to tell of the end of whatever else it asked for."""
    past: list[tuple[Letter, int]] = field(default_factory=list)
    """What this process sent before, with the time of day it was written at."""
    in_hand: IncomingMessage | None = None
    is_reading: bool = True
    pid: int = 0

    @property
    def name(self) -> str:
        """Return the name, which is also that of its address."""
        return self.role.name

    @property
    def mailbox(self) -> str:
        """Return under whose name it gets what is for it."""
        return self.role.address if isinstance(self.role.address, str) else self.role.name

    @property
    def session(self) -> str:
        """Name its session, for as long as the broker keeps its place; one that registers anew is another one."""
        if self.core is None or self.core.lifecycle._owner_token is None:
            return ""
        return f"{self.core.session_id} {self.core.lifecycle._owner_token}"

    @property
    def has_something_to_read(self) -> bool:
        """Tell whether taking a message does something."""
        return self.core is not None and (self.core.has_news or self.in_hand is not None)

    @property
    def waits_for(self) -> list[str]:
        """Name what it asked for and was not told of."""
        return [letter.id for letter in self.letters.values()] + [type(each).__name__ for each in self.tasks]

    @property
    def is_online(self) -> bool:
        """Tell whether its session is registered."""
        return self.core is not None and self.core.link is Link.ONLINE

    # --- its life

    def start(self) -> None:
        """Begin a process, which opens a session."""
        self.incarnation += 1
        ids = self.clock.ids(random.Random(self.chance.getrandbits(64)))
        role = self.role
        profile = Profile(
            role.name,
            address=role.address,
            hold=role.hold,
            return_address=f"return-{role.name}" if role.is_retaken else None,
            cwd="/",
            **{"owner_token": ids() if role.is_agent else None, **self.claims()},
        )
        self.pid = profile.pid = 10_000 + sum(map(ord, role.name)) * 1_000 + self.incarnation
        self.pids.add(self.pid)
        profile.started_at = self.clock.now.wall
        if not role.is_retaken:
            profile.return_address = ids()
        chance = random.Random(self.chance.getrandbits(64))
        self.core = ClientSession(
            profile,
            ids=ids,
            chance=chance.random,
            clock=lambda: self.clock.now.mono,
            keeper=self.keeper,
            **self.places(ids),
        )
        self.account.tell(f"{self.name} {self.pid} starts")
        self.core.prepare(self.clock.now.wall)
        self.is_reading = True
        self._begin(self.core.opening(self.clock.now.mono, CONNECT_MS))

    def claims(self) -> dict[str, Any]:
        """Return what else it says of itself when it registers."""
        return dict(self.role.also)

    def places(self, ids: Callable[[], str]) -> dict[str, Any]:
        """Return what of its session it keeps in files; ``ids`` gives new unique ids."""
        return {}

    def die(self) -> None:
        """Be gone without a word; what was written is still read by others."""
        if self.core is not None:
            self.account.tell(f"{self.name} {self.pid} ends ({self.core.link})")
        self.core = None
        self.pids.discard(self.pid)
        self.letters.clear()
        self.tasks.clear()
        self.past.clear()
        self.in_hand = None
        if self.wire is not None:
            self.wire.leave()
            self.wire = None

    def close(self, *, finished: bool) -> None:
        """Leave in order."""
        assert self.core is not None
        if finished:
            self._finish_in_hand()
        self.core.close(self.clock.now.mono, finished=finished)
        if self.wire is not None:
            self.wire.write(self.core.outgoing())
        self._look()
        self.die()

    # --- what it does when its turn comes

    def steps(self) -> list[Callable[[], object]]:
        """Return what its process could do next, whatever its user does."""
        core, now = self.core, self.clock.now.mono
        if core is None:
            return []
        found: list[Callable[[], object]] = []
        if self.wire is None and core.recovery.at is not None and core.recovery.at <= now:
            found.append(self._connect)
        wire = self.wire
        if wire is not None and (wire.downstream or wire.broker_finished) and core.wants_data and self.is_reading:
            found.append(self._read)
        due = core.deadline()
        if due is not None and due <= now:
            found.append(self._tick)
        return found

    def next_due(self) -> int | None:
        """Return when time alone makes it do something."""
        if self.core is None:
            return None
        dues = [self.core.deadline()]
        if self.wire is None:
            dues.append(self.core.recovery.at)
        return min((due for due in dues if due is not None), default=None)

    def _connect(self) -> None:
        assert self.core is not None
        now = self.clock.now
        self.core.connecting()
        process = self.process()
        if process is None:
            self.core.connect_failed(NoBroker("Nothing answers"), now.mono)
        else:
            self.wire = self.new_wire(self.pid)
            young_until = process.started_at + COMING_BACK_MS
            self.core.connected(
                now.mono, now.wall, BrokerBusy("It is silent"), young_until if now.mono < young_until else None
            )
        self._look()

    def _read(self) -> None:
        assert self.core is not None and self.wire is not None
        data = self.wire.read()
        if data:
            self.core.receive(data, self.clock.now.mono)
        elif data is None:
            self.wire.leave()
            self.wire = None
            self.core.eof(self.clock.now.mono)
        self._look()

    def _tick(self) -> None:
        assert self.core is not None
        self.core.tick(self.clock.now.mono)
        self._look()

    # --- what its user does

    def send(self, letter: Letter, *, queue: bool, valid_for_ms: int | None, wall: int) -> None:
        """Send a message, or a message again."""
        assert self.core is not None
        now = self.clock.now.mono
        operation = commands.send(
            letter.target,
            text_of(letter),
            message_id=self.core.new_id(letter.id),
            now=now,
            wall=wall,
            queue=queue,
            valid_for_ms=valid_for_ms,
        )
        self._begin(operation, letter)

    def ask(self, letter: Letter, timeout_ms: int) -> None:
        """Ask a question."""
        assert self.core is not None
        now = self.clock.now
        operation = commands.ask(
            letter.target,
            text_of(letter),
            message_id=self.core.new_id(letter.id),
            now=now.mono,
            wall=now.wall,
            timeout_ms=timeout_ms,
        )
        self._begin(operation, letter)

    def reply(self, letter: Letter) -> None:
        """Answer the message in hand, which finishes it."""
        assert self.core is not None and self.in_hand is not None
        now = self.clock.now
        operation = commands.reply(
            self.in_hand, text_of(letter), message_id=self.core.new_id(letter.id), now=now.mono, wall=now.wall
        )
        self._finish_in_hand()
        self._begin(operation, letter)

    def take(self) -> None:
        """Ask for the next message, which finishes the one before."""
        assert self.core is not None
        self._finish_in_hand()
        message = self.core.take_message(self, self.clock.now.mono)
        if message is not None:
            self.sees(message)
            self.in_hand = message
        self.core.take_trouble()
        self._look()

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a message."""
        self.account.shown(self.mailbox, self.pid, message)

    def is_handed(self, message: IncomingMessage) -> None:
        """Be shown a message that is no letter."""
        self.account.handed(self.mailbox, self.pid, message.id, has_address=self.role.address is not False)

    def is_done_with(self, message: IncomingMessage) -> None:
        """Need a message no longer."""
        self.account.finished(self.mailbox, self.pid, message.id)

    def does(self, operation: Operation[Any], told: Told) -> None:
        """Ask for something, and go on with its result."""
        assert self.core is not None
        self.tasks[operation] = told
        self.core.begin(operation, self.clock.now.mono)
        self._look()

    def heard(self, event: Event) -> None:
        """Take notice of something that its process is told, beside how what it asked for ended."""

    def act(self) -> bool:
        """Let its user do something of its own; tell whether there was anything to do, else it only writes and reads.

        A program of no special kind has nothing else to do.
        """
        return False

    def end_matters(self) -> bool:
        """Do the next of what it has to do once all trouble is over; tell whether there was anything beside reading."""
        return False

    def _finish_in_hand(self) -> None:
        if self.in_hand is not None:
            self.is_done_with(self.in_hand)
            self.in_hand = None

    def _begin(self, operation: Operation[Any], letter: Letter | None = None) -> None:
        assert self.core is not None
        if letter is not None:
            self.account.begun(letter, self.clock.now.wall)
            self.letters[operation] = letter
            self.past.append((letter, self.clock.now.wall))
        self.core.begin(operation, self.clock.now.mono)
        self._look()

    # --- after every call

    def _look(self) -> None:
        core = self.core
        if core is None:
            return
        if self.wire is not None:
            self.wire.write(core.outgoing())
        for event in core.events():
            if isinstance(event, Settled):
                self._settled(event.operation)
                if self.core is None:
                    return
            else:
                self.heard(event)
        if core.link is Link.BROKEN:
            self._drop_wire()
            core.eof(self.clock.now.mono)
            self._look()
        elif core.was_ended:
            self.die()

    def _drop_wire(self) -> None:
        if self.wire is not None:
            self.wire.leave()
            self.wire = None

    def _settled(self, operation: Operation[Any]) -> None:
        assert self.core is not None
        if isinstance(operation.error, ProtocolViolation):
            raise Broken("errors-are-ours", f"{self.name}: {operation.error!r}")
        if (told := self.tasks.pop(operation, None)) is not None:
            told(operation)
            return
        letter = self.letters.pop(operation, None)
        if letter is None:
            if (
                isinstance(operation, Opening) and operation.error is not None
            ):  # opening failed: the program has no session, and ends
                self.die()
            return
        answer = operation.result
        if isinstance(answer, IncomingMessage):
            self.account.shown(self.mailbox, self.pid, answer)
            self.account.finished(self.mailbox, self.pid, answer.id)
        self.account.settled(letter, operation.result, operation.error)
        self.core.taken(operation, self.clock.now.mono)
        if self.wire is not None:
            self.wire.write(self.core.outgoing())
