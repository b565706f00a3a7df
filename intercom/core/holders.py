"""Know which brokers held the identity of a target before it came here (protocol D13, 6.13.11).

    comes here --asked of the engine--> told: no other, or these others, for as long as a row is remembered
                                   +--> nothing told in ``Limits.look_ms``, or engine away: nobody, until it tells

Rule 1: while the engine is asked it is not known that nobody held it; who wants to know waits, never longer than that.
Rule 2: about an address that nobody holds it is asked when somebody writes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.json import encode

from intercom.core.clock import Instant
from intercom.core.homes import key_of
from intercom.core.peer_records import HoldTargets, TargetHeld

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.queueing import Away
    from intercom.core.registry import Registry
    from intercom.core.sessions import Session, SessionTable


class _Here:
    """Hold by what the target that a session is here is known to all, and when that is told again (monotonic ms)."""

    __slots__ = ("due", "key")

    def __init__(self, key: str | None, due: int) -> None:
        self.key = key
        self.due = due


class _Unheard:
    """Hold a target of which the engine has not told yet who held it before."""

    __slots__ = ("deadline", "sessions")

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        """Ids of the sessions here that are it."""
        self.deadline: Deadline | None = None
        """Set while somebody may wait for it."""


class Holders:
    """Hold what is known of each target here.

    Args:
        is_near: tells whether the engine can be asked, as far as is known.
        on_known: is told of each key about which nobody has to wait any more.
    """

    def __init__(
        self, ground: Ground, registry: Registry, is_near: Callable[[], bool], on_known: Callable[[str, Instant], None]
    ) -> None:
        self._own = ground.identity.broker_id
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._sessions: SessionTable = registry.sessions
        self._addresses: Addresses = registry.addresses
        self._is_near = is_near
        self._on_known = on_known
        self._here: dict[str, _Here] = {}
        """By session id."""
        self._unheard: dict[str, _Unheard] = {}
        self._others: dict[str, tuple[str, ...]] = {}
        """The other brokers that lately held a target, by its key."""
        self._homes: dict[str, dict[str, Deadline]] = {}
        """The other brokers at which an address lately was at home, by its key, and when each is forgotten."""

    # --- who is here ------------------------------------------------------------------------------------

    def came(self, session: Session, now: Instant) -> None:
        """Ask who held the target that a session is which has come or come back."""
        if session.is_agent:
            self._begin(session, now)

    def here(self, sessions: dict[str, Session], now: Instant) -> None:
        """Let others know which targets are still here, or just were."""
        keys: list[str] = []
        for session_id in sessions:
            here = self._here.get(session_id)
            if here is not None and here.key is not None and here.due <= now.mono:
                here.due = now.mono + self._limits.target_told_ms
                keys.append(here.key)
        for session_id in sorted(self._here.keys() - sessions.keys()):
            key = self._here.pop(session_id).key
            if key is not None:
                unheard = self._unheard.get(key)
                if unheard is not None:
                    unheard.sessions.discard(session_id)
                    self._drop_unwanted(key, unheard)
                keys.append(key)
        if keys:
            self._outbox.add(HoldTargets(tuple(keys)))

    def _begin(self, session: Session, now: Instant) -> None:
        key = key_of_session(session)
        self._here[session.id] = _Here(key, now.mono + self._limits.target_told_ms)
        if key is not None:
            self._ask(key, now).sessions.add(session.id)
            session.was_at = None if self._is_near() else ()

    def _ask(self, key: str, now: Instant) -> _Unheard:
        unheard = self._unheard.setdefault(key, _Unheard())
        self._let_wait(key, unheard, now)
        self._outbox.add(HoldTargets((key,)))
        return unheard

    def _let_wait(self, key: str, unheard: _Unheard, now: Instant) -> None:
        if unheard.deadline is None and self._is_near():
            unheard.deadline = self._deadlines.add(now.mono + self._limits.look_ms, self._stays_unheard, key)

    def _drop_unwanted(self, key: str, unheard: _Unheard) -> None:
        if not unheard.sessions and unheard.deadline is None:
            del self._unheard[key]

    # --- who held it ------------------------------------------------------------------------------------

    def of(self, key: str, now: Instant) -> tuple[str, ...] | None:
        """Return the other brokers that lately held a target; None: the engine is asked, and tells in a moment."""
        unheard = self._unheard.get(key)
        if unheard is None and key not in self._others and self._is_near():
            unheard = self._ask(key, now)
        if unheard is not None and unheard.deadline is not None:
            return None
        return self._others.get(key, ())

    def key_of_away(self, away: Away) -> str | None:
        """Return by what all brokers know somebody who is away and whose mailbox is here; None: nobody else can be."""
        address = self._addresses.of_key(away.key)
        if address is not None:
            return None if address.home is not None or address.is_of_broker else key_of(address.group, address.name)
        if away.known is None or away.known.record.return_hash is None:
            return None
        return _key_of_return(away.known.record.return_hash, away.known.record.home_group)

    def told(self, fact: TargetHeld, now: Instant) -> None:
        """Take note of who held a target that was asked about."""
        unheard = self._unheard.pop(fact.key, None)
        if unheard is None:
            return
        self._deadlines.cancel(unheard.deadline)
        heard = (broker for broker in fact.brokers if broker != self._own)
        others = tuple(dict.fromkeys((*heard, *self.homes_before(fact.key))))
        self._others.pop(fact.key, None)
        if others or not unheard.sessions:
            self._remember(fact.key, others, now)
        self._know(unheard, others)
        self._on_known(fact.key, now)

    def _remember(self, key: str, others: tuple[str, ...], now: Instant) -> None:
        self._others[key] = others
        self._deadlines.add(now.mono + self._limits.operation_ttl_ms, self._forget, (key, others))

    def _know(self, unheard: _Unheard, others: tuple[str, ...]) -> None:
        for session_id in unheard.sessions:
            session = self._sessions.get(session_id)
            if session is not None:
                session.was_at = others

    def _stays_unheard(self, key: str, now: Instant) -> None:
        """Let nobody wait any longer; what the engine tells after all counts from then on."""
        unheard = self._unheard[key]
        unheard.deadline = None
        others = self.homes_before(key)
        if others:
            self._remember(key, others, now)
        self._know(unheard, others)
        self._drop_unwanted(key, unheard)
        self._on_known(key, now)

    def _forget(self, subject: tuple[str, tuple[str, ...]], now: Instant) -> None:
        key, others = subject
        if self._others.get(key) is not others:
            return
        del self._others[key]
        for session_id, here in self._here.items() if others else ():
            session = self._sessions.get(session_id) if here.key == key else None
            if session is not None and session.was_at is others:
                session.was_at = ()

    # --- where an address was at home -------------------------------------------------------------------

    def moved(self, key: str, home: str, now: Instant) -> None:
        """Take note that an address is not at home at this broker any more, which may have mail for it still."""
        if home == self._own:
            return
        self._deadlines.cancel(self._homes.setdefault(key, {}).pop(home, None))
        forgotten_at = now.mono + self._limits.operation_ttl_ms
        self._homes[key][home] = self._deadlines.add(forgotten_at, self._forget_home, (key, home))

    def homes_before(self, key: str) -> tuple[str, ...]:
        """Return the other brokers at which an address lately was at home."""
        return tuple(self._homes.get(key, ()))

    def _forget_home(self, subject: tuple[str, str], now: Instant) -> None:
        key, home = subject
        del self._homes[key][home]
        if not self._homes[key]:
            del self._homes[key]

    # --- how the way is ---------------------------------------------------------------------------------

    def cut_off(self, now: Instant) -> None:
        """Let nobody wait for what the engine would have told."""
        for key, unheard in list(self._unheard.items()):
            if unheard.deadline is not None:
                self._deadlines.cancel(unheard.deadline)
                self._stays_unheard(key, now)

    def joined(self, now: Instant) -> None:
        """Ask once more about what is not known: whoever came meanwhile may have been elsewhere before."""
        for key, unheard in self._unheard.items():
            self._let_wait(key, unheard, now)
            for session_id in unheard.sessions:
                session = self._sessions.get(session_id)
                if session is not None:
                    session.was_at = None
        if self._unheard:
            self._outbox.add(HoldTargets(tuple(self._unheard)))


def key_of_session(session: Session) -> str | None:
    """Return by what all brokers know the target that a session is; None: nobody elsewhere can be the same one."""
    address = session.address
    if address is not None and session.holds_address:
        return None if address.is_of_broker else key_of(address.group, address.name)
    return None if session.return_hash is None else _key_of_return(session.return_hash, session.home_group)


def _key_of_return(return_hash: str, home_group: str) -> str:
    return sha256(encode(["return", return_hash, home_group])).hexdigest()[:40]
