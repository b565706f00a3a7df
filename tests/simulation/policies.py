"""Let somebody say what is let through to it, and the person say more; hold what becomes of letters against it."""

from __future__ import annotations

from typing import Any

from intercom.client import attending
from intercom.client.attending import Policies as InForce
from intercom.client.attending import PolicyRule
from intercom.client.operations import Operation
from intercom.core.records import PolicyRecord
from intercom.errors import IntercomError, RequestRefused
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_TIMEOUT_MS = 20_000
_ACTIONS = ("", "", "refuse", "refuse", "quiet", "hold")
"""What all senders may get; nothing is said by no rule at all."""
_LET_THROUGH = frozenset({"delivered", "queued"})


class Wishes:
    """Hold what may be in force at each moment, as whoever wished it was told."""

    def __init__(self) -> None:
        self.history: list[tuple[int, frozenset[str]]] = [(0, frozenset({""}))]

    @property
    def now(self) -> frozenset[str]:
        """Return what may be in force."""
        return self.history[-1][1]

    def become(self, moment: int, found: frozenset[str]) -> None:
        """Take notice of what may be in force from a moment on."""
        self.history.append((moment, found))

    def between(self, begin: int, end: int) -> set[str]:
        """Return everything that may have been in force at some moment from one to another."""
        found: set[str] = set()
        for (since, some), (until, _) in zip(self.history, [*self.history[1:], (end + 1, frozenset())], strict=True):
            if since <= end and until > begin:
                found |= some
        return found


class Policies(Part):
    """Hold one who is particular, and the person."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.own, self.by_person = Wishes(), Wishes()
        self.pia = self.add(Role("pia", address=True, is_particular=True), Particular)
        self.add(Role("olga", also=(("purpose", "control"),)), Person)

    def at_rest(self) -> None:
        """Hold that letters were let through or refused by what was in force, and that what is in force is stored."""
        for letter in self.world.account.letters.values():
            if letter.target != self.pia.name or letter.settled is None or letter.begins > 1:
                continue
            person = self.by_person.between(letter.begun, letter.settled)
            own = self.own.between(letter.begun, letter.settled)
            if person == {"refuse"} and letter.outcome in _LET_THROUGH and letter.answers is None:
                raise Broken("policies-hold", f"{letter.id} was {letter.outcome}, and the person refuses everything")
            if letter.refused_for == "refused_by_policy" and "refuse" not in person | own:
                raise Broken("policies-hold", f"{letter.id} was refused by a policy that was not in force")
        stored = [b"refuse" in row.policy or b"quiet" in row.policy or b"hold" in row.policy for row in self._rows()]
        if self.by_person.now == {""} and any(stored):
            raise Broken("policies-hold", f"what the person took back is stored: {self._rows()}")

    def _rows(self) -> list[PolicyRecord]:
        return self.rows(PolicyRecord)


class Wishing(Actor):
    """Say what is let through, one wish after another."""

    part: Policies
    sets_as: str
    """How its policies are marked."""

    @property
    def wishes(self) -> Wishes:
        """Return the account of what it wished."""
        raise NotImplementedError

    def wish(self, action: str, **of: Any) -> None:
        """Say what all senders get."""
        before, account = self.wishes.now, self.account
        self.wishes.become(account.moment(), before | {action})
        self.part.tell(f"{self.name} wishes {action or 'nothing'}")
        rules = [PolicyRule(action=action)] if action else []  # type: ignore[arg-type]  # one of the actions

        attempts: list[object] = []

        def told(operation: Operation[Any]) -> None:
            error = operation.error
            self.part.tell(f"{self.name} is told of its wish {action or 'nothing'}: {error!r}")
            if error is None:
                self.wishes.become(account.moment(), frozenset({action}))
            elif not isinstance(error, IntercomError):
                raise Broken("errors-are-ours", repr(error))
            elif isinstance(error, RequestRefused):
                # The answer to an earlier attempt, which took effect, may have been lost.
                self.wishes.become(account.moment(), before if len(attempts) == 1 else before | {action})
                self.look()

        assert self.core is not None
        now = self.clock.now.mono
        operation = attending.set_policy(self.core.profile, rules, now=now, timeout_ms=_TIMEOUT_MS, **of)
        attempt = operation.attempt

        def counted(*arguments: Any, **members: Any) -> Any:
            attempts.append(arguments)
            return attempt(*arguments, **members)

        operation.attempt = counted  # type: ignore[method-assign]  # nothing else tells how often it was asked for
        self.does(operation, told)

    def look(self) -> None:
        """Look whether what is said to be in force may be that."""
        if self.core is None or self.tasks:
            return
        begun = self.account.moment()
        operation = attending.policies(now=self.clock.now.mono, timeout_ms=_TIMEOUT_MS)
        self.does(operation, lambda operation: self._looked(begun, operation))

    def _looked(self, begun: int, operation: Operation[InForce]) -> None:
        if operation.result is None:
            return
        may_be = self.wishes.between(begun, self.account.moment())
        found = [view.rules for view in operation.result.policies if view.set_by == self.sets_as]
        action = found[0][0].action if found else ""
        self.part.tell(f"{self.name} sees that {action or 'nothing'} is in force")
        if action not in may_be:
            raise Broken("policies-hold", f"{action or 'nothing'} is in force, and {self.name} set one of {may_be}")

    def end_matters(self) -> bool:
        """Let everything through."""
        if self.core is None or self.tasks or not self.part.pia.is_online or self.wishes.now == {""}:
            return False
        self.wish("")
        return True


class Particular(Wishing):
    """Say what is let through to itself."""

    sets_as = "session"
    known_as = ""

    @property
    def wishes(self) -> Wishes:
        """Return the account of its own wishes: what a session wished may end with it."""
        if self.session != self.known_as:
            self.known_as = self.session
            self.part.own.become(self.account.moment(), self.part.own.now | {""})
        return self.part.own

    def act(self) -> bool:
        """Wish something now and then."""
        if self.tasks or self.chance.random() < 0.4:
            return False
        if self.chance.random() < 0.3:
            self.look()
        else:
            self.wish(self.chance.choice(_ACTIONS))
        return True


class Person(Wishing):
    """Say what is let through to somebody else."""

    sets_as = "person"

    @property
    def wishes(self) -> Wishes:
        """Return the account of the person's wishes."""
        return self.part.by_person

    def wish(self, action: str, **of: Any) -> None:
        """Say what all senders to one address get."""
        super().wish(action, address=self.part.pia.name)

    def act(self) -> bool:
        """Wish something now and then."""
        if not self.tasks and self.chance.random() < 0.6:
            self.wish(self.chance.choice(_ACTIONS))
        return True
