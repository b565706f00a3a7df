"""Let a supervisor keep the places of its children while they are away, and others write to them meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intercom.client import commands
from intercom.client.notices import Event, Held
from intercom.client.operations import Operation
from intercom.client.restoring import release_child, reserve_child
from intercom.client.sending import SendOperation
from intercom.client.supervision import authorize_child
from intercom.client.views import IncomingMessage
from intercom.errors import IntercomError, OutcomeUnknown, SendError
from intercom.limits import RESTORING_ALIASES
from intercom.wire.reasons import RESTORING_TIMED_OUT
from tests.simulation.account import Broken, Letter, text_of
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role
from tests.simulation.wire import Wire

_LETTERS = 16
_BRINGING = 0.25
"""How likely it is that a child is brought back when there is time for it."""
_UPWARD = 10
"""Letters to the supervisor."""
_LAST = 3
_ASK_MS = 20_000
_TIMEOUT_MS = 20_000
_TOKEN = "the secret of the supervisor"


@dataclass(eq=False)
class Wait:
    """Hold what is known of one letter to a child."""

    operation: SendOperation[Any]
    begun: int
    """When its sender sent it, in monotonic milliseconds."""
    is_patient: bool
    """Its sender said that it knows of holds, so that it may wait for the longest time."""
    number: int
    held_by: Wire | None = None
    """The connection on which its sender was told that it is held."""
    held: int | None = None
    """The moment at which it was."""


@dataclass(frozen=True)
class Return:
    """Say that a child was registered under its capability."""

    child: str
    begun: int
    """The moment at which it began its connection."""
    at: int
    """When it was registered, in monotonic milliseconds."""


class Children(Part):
    """Hold a supervisor, two children of it, one more in another group, and one who writes to the two."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.capabilities: dict[str, str] = {}
        """What the supervisor keeps on disk."""
        self.former: dict[str, list[str]] = {}
        """Ids the children had."""
        self.waits: dict[str, Wait] = {}
        self.said: set[str] = set()
        """Texts with which the supervisor gave up places."""
        self.returns: list[Return] = []
        self.upward = 0
        self.children = [self.add(Role("kid"), Child), self.add(Role("kim"), Child)]
        self.apart = self.add(Role("kit", also=(("group", "below"),)), Child)
        """A child that only writes to its supervisor, and is answered: nobody else sees it."""
        self.supervisor = self.add(Role("sue", address=True), Supervisor)
        self.writer = self.add(Role("hal", address=True), Writer)

    def settled(self, letter: Letter, wait: Wait, error: Exception | None) -> None:
        """Hold what became of a letter against how long it waited, and for whom."""
        waited = self.clock.now.mono - wait.begun
        limits = self.world.limits
        reason = error.reason if isinstance(error, SendError) else ""
        if reason == RESTORING_TIMED_OUT:
            least = limits.hold_ms if wait.is_patient else limits.silent_hold_ms
            if waited < least:
                raise Broken("held-is-true", f"{letter.id} was given up after {waited} ms: {reason}")
            for back in self.returns:
                is_seen = wait.held is not None and back.begun > wait.held and back.at < wait.begun + least
                if back.child == letter.target and is_seen and wait.held_by is self.writer.wire:
                    raise Broken("held-is-true", f"{letter.id} was given up, and {letter.target} was back: {back}")
        if reason.startswith(("gone ", "refused ")) and reason not in self.said:
            raise Broken("held-is-true", f"{letter.id} was refused for what nobody said: {reason}")
        is_first = wait.operation._refusal is None and error is not None and error.__cause__ is None
        is_told_no_more = isinstance(error, OutcomeUnknown) and is_first
        if is_told_no_more and self._is_idle(wait.held_by):
            raise Broken("everything-is-answered", f"{letter.id} was held, and its sender was told no more")

    def shown(self, child: Child, letter: Letter) -> None:
        """Hold that what waited for a child comes in the order in which it was held."""
        wait = self.waits.get(letter.id)
        if wait is None or not self._is_undoubted(wait):
            return
        for other_id, other in self.waits.items():
            later = self.world.account.letters[other_id]
            if (
                other.number > wait.number
                and other.held is not None
                and other.held_by is wait.held_by
                and later.shown == [(child.name, child.pid)]
                and letter.shown == later.shown
            ):
                raise Broken("order-of-held", f"{letter.id} was held first, and shown behind {later.id}")

    def at_rest(self) -> None:
        """Hold that every child that has a supervisor reached it at last."""
        for child in [*self.children, self.apart]:
            if child.has_supervisor and child.last and not child.has_reached_it:
                told = [(each.id, each.outcome, each.refused_for) for each in child.last]
                raise Broken("lines-hold", f"{child.name} did not reach its supervisor: {told}")

    def _is_undoubted(self, wait: Wait) -> bool:
        """Tell whether the first attempt at a letter is under way, on the connection on which it was held."""
        operation = wait.operation
        is_first = operation._refusal is None and operation._doubt is None
        return wait.held_by is not None and wait.held_by is self.writer.wire and is_first

    def _is_idle(self, wire: Wire | None) -> bool:
        """Tell whether a connection is whole, all that was written on it was read, and its broker waits as well."""
        process = self.world.process
        if wire is None or process is None or wire is not self.writer.wire or wire.broker_finished:
            return False
        is_read = not wire.upstream and not wire.downstream
        return is_read and not process.performer.has_uncommitted and not process.steps()


class Supervisor(Actor):
    """Keep places, and give them up."""

    part: Children

    def claims(self) -> dict[str, Any]:
        """Show the secret that capabilities are made with."""
        return {"owner_token": _TOKEN}

    def act(self) -> bool:
        """Authorise a child, keep its place, or give it up."""
        assert self.core is not None
        if not self.is_online or self.tasks or self.chance.random() < 0.1:
            return False
        known = self.core.profile.children.values()
        child = self.chance.choice(self.part.children)
        if self.part.apart.name not in known and self.chance.random() < 0.3:
            self._authorise(self.part.apart.name)
        elif child.name not in known:
            self._authorise(child.name)
        elif self.chance.random() < (0.5 if child.name in self.kept else 0.9):
            self._keep(child)
        else:
            self._give_up(child.name)
        return True

    def end_matters(self) -> bool:
        """Authorise every child, so that it can be back, and leave what is kept to that."""
        if self.core is None or not self.is_online or self.tasks:
            return False
        children = [*self.part.children, self.part.apart]
        missing = [each.name for each in children if each.name not in self.core.profile.children.values()]
        if missing:
            self._authorise(missing[0])
        return bool(missing)

    def take(self) -> None:
        """Answer what a child asked before reading on, once all trouble is over."""
        if self.part.world.is_calm and self.in_hand is not None and self.in_hand.expects_reply:
            letter = self.part.world.letter(self, self.account.letters[self.in_hand.id].sender)
            letter.answers, letter.may_be_given_up = self.in_hand.id, True
            self.reply(letter)
        super().take()

    @property
    def kept(self) -> set[str]:
        """Return the names of the children whose places it keeps."""
        if self.core is None:
            return set()
        return {self.core.profile.children[capability] for capability in self.core.commitments.places}

    def _authorise(self, child: str) -> None:
        assert self.core is not None
        known = self.part.capabilities.get(child)
        operation = authorize_child(
            self.core.profile, child, now=self.clock.now.mono, capability=known, timeout_ms=_TIMEOUT_MS
        )

        def told(operation: Operation[str]) -> None:
            self._told(f"the authority of {child}", operation)
            if operation.result is not None:
                self.part.capabilities[child] = operation.result

        self.does(operation, told)

    def _keep(self, child: Child) -> None:
        assert self.core is not None
        aliases = self.part.former.get(child.name, [])[-RESTORING_ALIASES:]
        is_dormant = self.chance.random() < 0.15
        self.part.tell(f"{self.name} keeps the place of {child.name}{' (dormant)' if is_dormant else ''}")
        operation = reserve_child(
            self.core.profile,
            self.core.commitments.places,
            child.name,
            now=self.clock.now.mono,
            aliases=aliases,
            dormant=is_dormant,
            timeout_ms=_TIMEOUT_MS,
        )
        self.does(operation, lambda operation: self._told(f"the place of {child.name}", operation))
        if self.chance.random() < 0.6 and child.core is not None:
            child.close(finished=True)

    def _give_up(self, child: str) -> None:
        assert self.core is not None
        text = self.part.name(self.chance.choice(("gone ", "refused ", "")))
        how: dict[str, str] = {}
        if " " in text:
            self.part.said.add(text)
            how = {"gone" if text.startswith("gone") else "refusal": text}
        self.part.tell(f"{self.name} gives up the place of {child}: {how}")
        operation = release_child(
            self.core.profile,
            self.core.commitments.places,
            child,
            now=self.clock.now.mono,
            timeout_ms=_TIMEOUT_MS,
            **how,
        )
        self.does(operation, lambda operation: self._told(f"giving up {child}", operation))

    def _told(self, of: str, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} is told of {of}: {operation.error!r}")
        if operation.error is not None and not isinstance(operation.error, IntercomError):
            raise Broken("errors-are-ours", repr(operation.error))


class Child(Actor):
    """Be away and come back, under the capability it was given, and write to the supervisor."""

    part: Children
    last: list[Letter]
    """What it wrote to its supervisor once all trouble was over."""
    connecting: int = 0
    """The moment at which its present connection began."""
    returned_by: Wire | None = None

    def claims(self) -> dict[str, Any]:
        """Claim its supervisor, once there is a capability for it."""
        capability = self.part.capabilities.get(self.name)
        return super().claims() | ({} if capability is None else {"supervisor": capability})

    def start(self) -> None:
        """Begin, once its supervisor has said that it is its child, and brings it back."""
        core = self.part.supervisor.core
        is_known = core is not None and core.is_online and self.name in core.profile.children.values()
        self.last = []
        if is_known and (self.part.world.is_calm or self.chance.random() < _BRINGING):
            super().start()

    def _connect(self) -> None:
        self.connecting = self.account.moment()
        super()._connect()

    def _look(self) -> None:
        super()._look()
        core = self.core
        if core is None or not self.is_online or self.returned_by is self.wire:
            return
        self.returned_by = self.wire
        former = self.part.former.setdefault(self.name, [])
        if core.session_id not in former:
            former.append(core.session_id)
        if core.profile.supervisor_id is not None:
            self.part.tell(f"{self.name} {self.pid} is back")
            self.part.returns.append(Return(self.name, self.connecting, self.clock.now.mono))

    @property
    def has_supervisor(self) -> bool:
        """Tell whether it was told who its supervisor is, and that is here."""
        core = self.core
        is_known = core is not None and self.is_online and core.profile.supervisor_id is not None
        return is_known and self.part.supervisor.is_online

    def act(self) -> bool:
        """Read, write to the supervisor, and be gone now and then."""
        luck = self.chance.random()
        if luck < 0.15:
            self.close(finished=True)
            return True
        if luck < 0.35 and self.part.upward < _UPWARD and self._claims_one:
            self.part.upward += 1
            self._write_up(self._letter("up"), asks=luck < 0.25)
            return True
        return False

    def end_matters(self) -> bool:
        """Ask the supervisor something, or where that is no time for questions say it."""
        if self.letters or not self.has_supervisor or len(self.last) >= _LAST or self.has_reached_it:
            return False
        self.last.append(self._letter("last"))
        self._write_up(self.last[-1], asks=len(self.last) == 1)
        return True

    @property
    def has_reached_it(self) -> bool:
        """Tell whether something of that arrived."""
        return any(letter.outcome in ("answered", "delivered") for letter in self.last)

    @property
    def _claims_one(self) -> bool:
        return self.core is not None and self.core.profile.supervisor is not None

    def _letter(self, name: str) -> Letter:
        supervisor = self.part.supervisor.name
        return Letter(self.part.name(name), self.mailbox, supervisor, writer=self.session, may_be_given_up=True)

    def _write_up(self, letter: Letter, *, asks: bool) -> None:
        assert self.core is not None
        now, message_id, text = self.clock.now, self.core.new_id(letter.id), text_of(letter)
        profile = self.core.profile
        operation: Operation[Any]
        if asks:
            letter.is_ask = True
            operation = commands.ask_supervisor(
                profile, text, message_id=message_id, now=now.mono, wall=now.wall, timeout_ms=_ASK_MS
            )
        else:
            operation = commands.send_supervisor(profile, text, message_id=message_id, now=now.mono, wall=now.wall)
        self._begin(operation, letter)
        self.past = [each for each in self.past if each[0] is not letter]  # it goes up the line, or not at all

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a letter."""
        super().sees(message)
        if (letter := self.account.letters.get(message.id)) is not None:
            self.part.shown(self, letter)


class Writer(Actor):
    """Write to children, by their names and by the ids they had."""

    part: Children

    def act(self) -> bool:
        """Write something."""
        part = self.part
        if self.chance.random() < 0.1 or len(part.waits) >= _LETTERS:
            return False
        away = [child.name for child in part.children if child.name in part.supervisor.kept and not child.is_online]
        for _ in range(self.chance.randint(1, 4) if away else 1):
            child = self.chance.choice(away or [each.name for each in part.children])
            former = part.former.get(child, [])
            target = self.chance.choice(former) if former and self.chance.random() < 0.3 else child
            letter = Letter(part.name("h"), self.mailbox, child, writer=self.session, may_be_given_up=True)
            self._write(letter, target)
        return True

    def heard(self, event: Event) -> None:
        """Note that something is held."""
        if isinstance(event, Held):
            wait = self.part.waits.get(event.operation.message_id)
            if wait is not None and wait.operation is event.operation and wait.held is None:
                self.part.tell(f"{self.name} is told that {event.operation.message_id} is held")
                wait.held_by, wait.held = self.wire, self.account.moment()

    def _write(self, letter: Letter, target: str) -> None:
        assert self.core is not None
        now = self.clock.now
        is_patient = self.chance.random() < 0.8
        operation = commands.send(
            target,
            text_of(letter),
            message_id=self.core.new_id(letter.id),
            now=now.mono,
            wall=now.wall,
            hold=is_patient,
            queue=self.chance.random() < 0.4,
        )
        self.part.waits[letter.id] = Wait(operation, now.mono, is_patient, len(self.part.waits))
        self._begin(operation, letter)
        self.past = [each for each in self.past if each[0] is not letter]  # what it meant may mean another one by then

    def _settled(self, operation: Operation[Any]) -> None:
        letter = self.letters.get(operation)
        super()._settled(operation)
        wait = None if letter is None else self.part.waits.get(letter.id)
        if letter is not None and wait is not None:
            self.part.settled(letter, wait, operation.error)
