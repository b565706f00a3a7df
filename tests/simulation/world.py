"""Let programs talk over a broker that dies, on a disk that fails, by wires that break, as one number decides.

``World(number, place).run()`` does the same every time. First come steps in any order, with as much trouble as the
number's mood brings; then the trouble ends, everybody comes back and reads what there is, and the account must balance;
at last all leave, time passes, and the broker must be as empty as one that has just started.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from math import gcd
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from intercom.limits import Limits
from intercom.testing.keeping import MemoryKeeper
from tests.simulation.account import Account, Broken, Letter
from tests.simulation.cast import cast_of
from tests.simulation.disk import Disk, HandWriter, hand_made_times
from tests.simulation.journal import closed_sessions, examine_journal
from tests.simulation.leaks import differences, holdings
from tests.simulation.machine import Clock, Doom, Killed
from tests.simulation.process import Process
from tests.simulation.programs import Program, Role
from tests.simulation.wire import Wire

LIMITS = Limits(inbox_entries=0, grace_ms=60_000, restart_grace_ms=10_000, mail_ttl_ms=86_400_000)
AnyProgram = TypeVar("AnyProgram", bound=Program)
_STEPS = 400
_MORE_STEPS = 150
"""As many more where there are more programs."""
_REST_STEPS = 20_000
_SETTLING_MS = 4_000
"""Time in which a broker that has started does what it has to do after a start."""
_PATIENCE_MS = 240_000
"""Time after which everything that anybody waits for has come to an end."""


class World:
    """Hold one world."""

    def __init__(self, number: int, place: Path, *, limits: Limits = LIMITS, steps: int = _STEPS) -> None:
        self.number = number
        self.place = place
        self.chance = random.Random(number)
        self.clock = Clock()
        self.doom = Doom()
        self.disk = Disk(place, self.clock, self.chance)
        self.account = Account(lambda: self.clock.now.mono)
        self.process: Process | None = None
        self.wires: list[Wire] = []
        self.pids: set[int] = set()
        self.digest = sha256()
        self._ids = self.clock.ids(random.Random(self.chance.getrandbits(64)))
        self._steps = steps
        self._count = self._connections = 0
        self.is_calm = False
        """All trouble is over."""
        chance = self.chance
        self._trouble = chance.choice((0.0, 0.01, 0.03, 0.06))
        self._deeds = chance.choice((0.08, 0.15, 0.3))
        self._kinds = [kind for kind in _TROUBLES if chance.random() < 0.6]
        self._keepers: dict[str, MemoryKeeper] = {}
        cast = cast_of(number)
        self.durability = cast.durability
        self.limits = replace(limits, inbox_entries=cast.inbox_entries)
        self.programs: list[Program] = [self.program(role, Program) for role in cast.roles]
        self.parts = [part(self) for part in cast.parts]
        self._actors = self.programs[len(cast.roles) :]
        if self._actors:
            self._deeds *= 1.5

    def run(self) -> str:
        """Live; return what tells this world from others. Raises ``Broken``, and whatever the product raises."""
        with hand_made_times(self.clock):
            try:
                self._start_broker()
                for program in self._actors + self.programs[: self.chance.randint(2, len(cast_of(self.number).roles))]:
                    program.start()
                for _ in range(self._steps + (_MORE_STEPS if self._actors else 0)):
                    self._guarded(self._step)
                self._come_to_rest()
                self._leave()
            finally:
                if self.process is not None:
                    self.process.die(power_fails=False)
        return self.digest.hexdigest()

    # --- one step

    def _step(self) -> None:
        chance = self.chance
        luck = chance.random()
        if luck < self._trouble and self._kinds:
            kind = chance.choice(self._kinds)
            self.account.tell(f"--- {kind.__name__}")
            kind(self)
        elif luck < self._trouble + self._deeds:
            self._deed(chance.choice(self._actors if self._actors and chance.random() < 0.8 else self.programs))
        elif luck < 0.93 and (step := self._next()) is not None:
            step()
        else:
            self._let_time_pass()

    def _next(self) -> Callable[[], object] | None:
        """Return what somebody could do next, ``None`` when everybody waits."""
        actors: list[Program | Process] = [*self.programs]
        if self.process is not None:
            actors += [self.process] * len(actors)
        first = self.chance.randrange(len(actors))
        stride = self.chance.choice([each for each in (1, 5, 7) if gcd(each, len(actors)) == 1])
        is_idle = False
        for place in range(len(actors)):
            actor = actors[(first + place * stride) % len(actors)]
            if actor is self.process and is_idle:
                continue
            if steps := actor.steps():
                return self.chance.choice(steps)
            is_idle |= actor is self.process
        return None

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Killed:
            self._kill()
        if self.process is not None and self.process.stop_reason is not None:
            self._leave_broker()
        self._trace()

    def _trace(self) -> None:
        """Note what can be seen from outside, so that two runs can be compared."""
        seen, is_over = [], False
        for wire in self.wires:
            seen.append(b"%d %d %d;" % (wire.number, len(wire.upstream), len(wire.downstream)))
            is_over |= wire.client_gone and wire.broker_gone
        self.digest.update(b"%b%d\n" % (b"".join(seen), self.clock.now.mono))
        if is_over:
            self.wires = [wire for wire in self.wires if not (wire.client_gone and wire.broker_gone)]

    def _let_time_pass(self, most: int | None = None) -> None:
        self.account.tell(f"... {self.clock.now.mono}")
        now = self.clock.now.mono
        dues = [program.next_due() for program in self.programs]
        dues.append(None if self.process is None else self.process.next_due())
        due = min((due for due in dues if due is not None), default=None)
        if most is None and self.chance.random() < 0.4:
            self.clock.advance(self.chance.choice((1, 20, 300, 1_500, 4_000, 11_000)))
        elif due is not None and (most is None or due - now <= most):
            self.clock.advance(max(0, due - now))
        else:
            self.clock.advance(most or 1_000)

    # --- what programs do

    def _deed(self, program: Program) -> None:
        chance = self.chance
        if program.core is None:
            program.start()
            return
        if program.act():
            return
        if program.role.is_apart:
            program.take()
            return
        luck = chance.random()
        message = program.in_hand
        if message is not None and message.expects_reply and luck < 0.5:
            letter = self.letter(program, self._owner_of(message.id))
            letter.answers = message.id
            letter.may_be_given_up = True  # it is for the session that asked, which may end
            program.reply(letter)
        elif luck < 0.55:
            self._write(program)
        elif luck < 0.95:
            program.take()
        else:
            program.close(finished=chance.random() < 0.7)

    def _write(self, program: Program) -> None:
        chance = self.chance
        under_way = set(program.letters.values())
        again = [(letter, wall) for letter, wall in program.past if letter not in under_way and not letter.is_ask]
        again = [(letter, wall) for letter, wall in again if letter.answers is None and letter.valid_until is None]
        if again and chance.random() < 0.25:
            letter, wall = chance.choice(again)
            program.send(letter, queue=True, valid_for_ms=None, wall=wall)
            return
        others = [other.name for other in self.programs if other is not program and other.role.takes_letters]
        others = [other for other in others if other != program.role.address]
        letter = self.letter(program, chance.choice(others))
        if chance.random() < 0.3:
            letter.is_ask = True
            program.ask(letter, chance.choice((2_000, 20_000, 60_000)))
        else:
            valid_for_ms = chance.choice((None, None, None, 3_000, 60_000))
            letter.valid_until = None if valid_for_ms is None else self.clock.now.mono + valid_for_ms
            letter.may_be_given_up |= valid_for_ms is not None
            letter.queues = chance.random() < 0.8
            program.send(letter, queue=letter.queues, valid_for_ms=valid_for_ms, wall=self.clock.now.wall)

    def letter(self, program: Program, target: str) -> Letter:
        """Return a letter that nobody has sent yet."""
        self._count += 1
        return Letter(
            f"m{self._count}",
            program.mailbox,
            target,
            writer=program.session,
            may_be_told=program.role.address is not False,
            is_told_elsewhere=program.role.hold == "none",
            is_for_forgetful=self._role_of(target).is_retaken,
            has_mailbox=not program.role.is_retaken,
            may_be_given_up=self._role_of(target).address is not True or self._role_of(target).is_particular,
        )

    def _role_of(self, name: str) -> Role:
        (role,) = [program.role for program in self.programs if program.name == name]
        return role

    def _owner_of(self, message_id: str) -> str:
        letter = self.account.letters.get(message_id)
        assert letter is not None, "only asks are answered"
        return letter.sender

    # --- trouble

    def _cut(self) -> None:
        wires = [wire for wire in self.wires if not wire.client_gone]
        if wires:
            self.chance.choice(wires).cut()

    def _half_close(self) -> None:
        wires = [wire for wire in self.wires if not wire.client_gone]
        if wires:
            self.chance.choice(wires).finish()

    def _stop_reading(self) -> None:
        program = self.chance.choice(self.programs)
        program.is_reading = not program.is_reading

    def _end_program(self) -> None:
        program = self.chance.choice(self.programs)
        if program.in_hand is not None and self.chance.random() < 0.6:
            program.take()
        if program.wire is not None and self.chance.random() < 0.5:
            program.wire.cut()
        program.die()

    def _doom_broker(self) -> None:
        if self.process is not None:
            self.doom.set(self.chance.choice((0, 0, 1, 2, 3, 5, 9, 20)))
        else:
            self._start_broker()

    def _end_broker(self) -> None:
        if self.process is None:
            self._start_broker()
        elif self.chance.random() < 0.5:
            self._leave_broker()
        else:
            self._kill()

    def _spoil_disk(self) -> None:
        self.disk.trouble = self.chance.choice(("none", "none", "full", "full", "failing"))

    def _slow_disk(self) -> None:
        if self.process is not None and isinstance(self.process.writer, HandWriter):
            self.process.writer.is_fast = self.chance.random() < 0.5

    def _move_clock(self) -> None:
        self.clock.set_wall(self.chance.choice((-3_600_000, -2_000, 5_000, 3_600_000)))
        self.account.clock_moved(self.clock.now.wall)

    def _sleep(self) -> None:
        self.clock.advance(self.chance.choice((11_000, 50_000, 130_000, 700_000)))

    # --- brokers

    def _start_broker(self) -> None:
        self.account.tell("+++ a broker starts")
        kept_ms = self.limits.operation_ttl_ms if self.durability == "full" else 0
        self.account.broker_starts(self.clock.now.wall, kept_ms)
        self.doom = self.disk.renew_doom()
        self.process = Process(
            self.disk, self.clock, self.doom, self.chance, self.pids.__contains__, self.limits, self.durability
        )

    def _kill(self) -> None:
        process, self.process = self.process, None
        self.account.tell(f"+++ the broker dies at {self.clock.now.mono}")
        if process is not None:
            process.die(power_fails=self.chance.random() < 0.5)
        if self.is_calm or self.chance.random() < 0.6:
            self._start_broker()

    def _leave_broker(self) -> None:
        process = self.process
        assert process is not None
        self.account.tell("+++ the broker leaves")
        try:
            process.leave()
        except Killed:
            self._kill()
            return
        self.process = None
        if self.is_calm or self.chance.random() < 0.6:
            self._start_broker()

    # --- the end

    def _come_to_rest(self) -> None:
        """End the trouble, and let everything come to its end."""
        self.is_calm = True
        self.disk.trouble = "none"
        if self.process is None or self.process.is_closed or self.doom.is_set:
            self._kill()
        assert self.process is not None
        if isinstance(self.process.writer, HandWriter):
            self.process.writer.is_fast = True
        for wire in self.wires:
            wire.capacity = 1_000_000
        end = self.clock.now.mono + _PATIENCE_MS
        for _ in range(_REST_STEPS):
            if self.process is not None and self.process.is_closed:
                self._kill()
            for program in self.programs:
                program.is_reading = True
                if program.core is None:
                    program.start()
            if (step := self._next()) is not None:
                self._guarded(step)
            elif readers := [program for program in self.programs if program.has_something_to_read]:
                self._guarded(self.chance.choice(readers).take)
            elif self._end_matters():
                continue
            elif self.clock.now.mono < end:
                self._let_time_pass(30_000)
            else:
                break
        else:
            raise Broken("comes-to-rest", "it goes on for ever")
        for program in self.programs:
            if waiting := program.waits_for:
                raise Broken("everything-is-answered", f"{program.name} still waits for {waiting}")
        ended = closed_sessions(self.disk.paths.database)
        self.account.at_rest({each.session for each in self.programs if each.session.partition(" ")[0] not in ended})
        for part in self.parts:
            part.at_rest()

    def _end_matters(self) -> bool:
        found: list[bool] = []
        self._guarded(lambda: found.append(any(program.end_matters() for program in self.programs)))
        return any(found)

    def _leave(self) -> None:
        """Let all go, and look whether anything is left of them."""
        for program in self.programs:
            if program.core is not None:
                program.close(finished=True)
        self._idle(60, LIMITS.tidy_ms * 24)
        assert self.process is not None
        before = holdings(self.process)
        self._leave_broker()
        self._idle(3, _SETTLING_MS)
        assert self.process is not None
        if found := differences(before, holdings(self.process)):
            raise Broken("nothing-is-left", "; ".join(found))
        examine_journal(self.disk.paths.database)

    def _idle(self, times: int, milliseconds: int) -> None:
        for _ in range(times):
            while (step := self._next()) is not None:
                self._guarded(step)
            self.clock.advance(milliseconds)

    def program(self, role: Role, kind: type[AnyProgram]) -> AnyProgram:
        """Return a program that plays a role, and is known to nobody yet."""
        name = role.name if role.address is True else role.address
        keeper = self._keepers.setdefault(name, MemoryKeeper(self._ids)) if isinstance(name, str) else None
        return kind(
            role,
            self.clock,
            self.account,
            self.chance,
            keeper,
            self._new_wire,
            lambda: self.process,
            self.pids,
        )

    def _new_wire(self, pid: int) -> Wire:
        self._connections += 1
        wire = Wire(self._connections, self.chance, self.doom, pid)
        self.wires.append(wire)
        assert self.process is not None
        self.process.accept(wire)
        return wire


_TROUBLES: tuple[Callable[[World], None], ...] = (
    World._cut,
    World._half_close,
    World._stop_reading,
    World._end_program,
    World._doom_broker,
    World._end_broker,
    World._spoil_disk,
    World._slow_disk,
    World._move_clock,
    World._sleep,
)
