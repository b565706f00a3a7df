"""Have sessions started on behalf of the operator and of coordinators (FE 1.5; design section 7, Trust).

    (none) --spawn_session--> recorded --committed--> starting --register with the token--> applied
      ^                         |                       |  |  +--no registration in time--> timed out
      +--commit failed----------+                       |  +-- the broker ends: nobody knows (the next one says so)
      +--the command failed-----------------------------+

Rule 1: nothing is started before the order is on disk, so that a repetition after a crash starts nothing again. Rule 2:
a token is good for one registration, and nothing but its hash is kept. Rule 3: only a command that is known to have
failed is started again under the same key; after a time-out it may still be at work.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import UNSET
from msgspec.json import encode

from intercom.core import features
from intercom.core.addresses import digest
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadline
from intercom.core.effects import Spawn
from intercom.core.ground import Ground
from intercom.core.idempotency import SPAWNS, Entry, Register, Standing
from intercom.core.membership import Membership
from intercom.core.part import Handler, Part
from intercom.core.sessions import Session
from intercom.limits import SPAWN_TOKEN_CHARACTERS, SPENT_TOKENS
from intercom.wire import reasons
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import SpawnSession, SpawnStatus

MAY_ASK = frozenset({features.COORDINATOR, features.OPERATOR})
"""Features of which one is needed."""
_UNKNOWN = "The broker ended while the session was being started; look whether it is there before you order another one"


class Order:
    """Hold one order that is under way."""

    __slots__ = ("askers", "deadline", "entry", "is_settled", "kind", "prompt", "ref", "ticket", "token_hash")

    def __init__(self, ref: str, entry: Entry, kind: str, prompt: str) -> None:
        self.ref = ref
        self.entry = entry
        self.kind = kind
        self.prompt = prompt
        self.askers: list[tuple[Connection, str]] = []
        """Connections that wait for the outcome, with the ids of their requests."""
        self.ticket = 0
        self.token_hash = ""
        self.deadline: Deadline | None = None
        self.is_settled = False
        """The session has registered, or its time is over; only the commit of that is missing."""


class Spawning(Part):
    """Take orders, and see sessions come.

    Args:
        kinds: what the settings allow.
        keys: the register of keyed requests; takes the scope ``SPAWNS``.
        trouble: tells why the store cannot be used, if it cannot.
    """

    def __init__(
        self,
        kinds: Iterable[str],
        keys: Register,
        ground: Ground,
        membership: Membership,
        trouble: Callable[[], str | None],
    ) -> None:
        self._kinds = sorted(kinds)
        self._keys = keys
        self._ledger = ground.ledger
        self._deadlines = ground.deadlines
        self._outbox = ground.outbox
        self._limits = ground.limits
        self._ids = ground.ids
        self._trouble = trouble
        self._orders: dict[str, Order] = {}
        """Those under way, by their keys."""
        self._by_ref: dict[str, Order] = {}
        self._by_token: dict[str, Order] = {}
        self._spent: OrderedDict[str, None] = OrderedDict()
        """Hashes of tokens that have had their registration; whoever shows one again is not worth a line in the log."""
        self._started: deque[int] = deque()
        """When the newest orders were taken, monotonic ms."""
        membership.registering.on_spawned = self.registered

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes orders."""
        return {SpawnSession: self.answer}

    begins = (SpawnSession,)

    def report(self) -> dict[str, Any]:
        """Return what may be started."""
        return {"spawnKinds": self._kinds}

    # --- orders -----------------------------------------------------------------------------------------

    def answer(self, connection: Connection, frame: SpawnSession, now: Instant) -> None:
        """Take an order, or refuse it (protocol 4.57)."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if not MAY_ASK & session.features:
            names = " or ".join(sorted(MAY_ASK))
            return self._refuse(connection, frame, "feature_not_granted", f"This needs the feature {names}")
        if not self._kinds:
            reason = "The settings name no sessions that may be started"
            return self._refuse(connection, frame, "spawn_unavailable", reason)
        if frame.kind not in self._kinds:
            reason = f"The settings name no such kind; they name {', '.join(self._kinds)}"
            return self._refuse(connection, frame, "unknown_kind", reason)
        trouble = self._trouble()
        if trouble is not None:
            reason = f"The store cannot be used, so no order can be recorded: {trouble}"
            return self._refuse(connection, frame, "store_unusable", reason)
        standing, entry = self._keys.begin(SPAWNS, frame.idempotency_key, _fingerprint(frame), now)
        if standing is Standing.CONFLICT:
            reason = "This key was used for another kind or prompt"
            return self._refuse(connection, frame, "order_key_conflict", reason)
        if standing is Standing.UNKNOWN:
            return self._refuse(connection, frame, "spawn_outcome_unknown", _UNKNOWN, outcome_unknown=True)
        if standing is Standing.NEW:
            return self._take(connection, frame, entry, now)
        order = self._orders.get(entry.key)
        ticket = entry.ticket if order is None else order.ticket
        self._outbox.write(connection, SpawnStatus(frame.request_id, "received"), ticket)
        if order is not None:
            order.askers.append((connection, frame.request_id))
            return None
        self._outbox.write(connection, _status(frame.request_id, entry.result), ticket)
        return None

    def _take(self, connection: Connection, frame: SpawnSession, entry: Entry, now: Instant) -> None:
        wait_ms = self._wait_ms(now)
        if wait_ms:
            self._keys.withdraw(entry)
            reason = (
                f"At most {self._limits.spawns} sessions are started within {self._limits.spawn_window_ms // 1000} s"
            )
            return self._refuse(connection, frame, "spawn_rate_limited", reason, retry_after_ms=wait_ms)
        self._started.append(now.mono)
        order = Order(str(entry.number), entry, frame.kind, frame.prompt)
        order.askers.append((connection, frame.request_id))
        self._orders[entry.key] = self._by_ref[order.ref] = order
        change = self._keys.keep(entry, {"kind": frame.kind}, now)
        order.ticket = self._ledger.append((change,), self._not_taken, order)
        self._ledger.when_committed(order.ticket, self._start, order)
        self._outbox.write(connection, SpawnStatus(frame.request_id, "received"), order.ticket)
        return None

    def _wait_ms(self, now: Instant) -> int:
        """Return how long no further session may be started, 0 for not at all."""
        while self._started and now.mono - self._started[0] >= self._limits.spawn_window_ms:
            self._started.popleft()
        if len(self._started) < self._limits.spawns:
            return 0
        return self._started[0] + self._limits.spawn_window_ms - now.mono

    def _not_taken(self, order: Order, now: Instant) -> None:
        """Take an order back that could not be recorded: nothing was started."""
        self._forget(order)
        self._keys.withdraw(order.entry)
        for connection, request_id in order.askers:
            no = RequestFailed(request_id, "not_recorded", reasons.NOT_STORED, True)
            self._outbox.write(connection, no)

    # --- from start to end ------------------------------------------------------------------------------

    def _start(self, order: Order, now: Instant) -> None:
        token = (self._ids() + self._ids()).replace("-", "")
        order.token_hash = digest(token)
        self._by_token[order.token_hash] = order
        order.deadline = self._deadlines.add(now.mono + self._limits.spawn_ms, self._is_late, order)
        self._outbox.note("spawn_started", kind=order.kind)
        self._outbox.add(Spawn(order.ref, order.kind, order.prompt, token))
        order.prompt = ""

    def registered(self, session: Session, token: Any, now: Instant) -> None:
        """Take notice of a registration that shows a token."""
        if not isinstance(token, str) or len(token) > SPAWN_TOKEN_CHARACTERS:
            return
        token_hash = digest(token)
        order = self._by_token.pop(token_hash, None)
        if order is None:
            if token_hash not in self._spent:
                self._outbox.note("spawn_token_unknown", session=session.id)
            return
        self._deadlines.cancel(order.deadline)
        self._settle(order, {"kind": order.kind, "sessionId": session.id}, now)

    def _settle(self, order: Order, result: dict[str, Any], now: Instant) -> None:
        """Record what became of an order, and tell it once that is on disk."""
        order.is_settled = True
        change = self._keys.done(order.entry, result, now)
        order.ticket = self._ledger.append((change,), self._not_settled, order)
        if not order.ticket:  # the store is closed: the order is not under way any more, whatever the disk says
            return self._end(order, "spawn_outcome_unknown", _UNKNOWN)
        self._keys.settle(order.entry, order.ticket, now)
        self._ledger.when_committed(order.ticket, self._settled, (order, result))
        return None

    def _settled(self, subject: tuple[Order, dict[str, Any]], now: Instant) -> None:
        order, result = subject
        self._forget(order)
        if "sessionId" in result:
            self._spent[order.token_hash] = None
            if len(self._spent) > SPENT_TOKENS:
                self._spent.popitem(last=False)
            self._outbox.note("spawn_applied", kind=order.kind, session=result["sessionId"])
        else:
            self._outbox.note("spawn_failed", kind=order.kind, code=result["code"], reason=result["reason"])
        for connection, request_id in order.askers:
            self._outbox.write(connection, _status(request_id, result))

    def _not_settled(self, order: Order, now: Instant) -> None:
        """Wait for the session again: nobody was told anything, and it shows its token again."""
        order.is_settled = False
        self._keys.reopen(order.entry, now)
        self._by_token[order.token_hash] = order
        order.deadline = self._deadlines.add(now.mono + self._limits.spawn_ms, self._is_late, order)

    def ended(self, ref: str, reason: str, now: Instant) -> None:
        """Take notice that a command could not be started, or failed before its session came."""
        order = self._by_ref.get(ref)
        if order is not None and not order.is_settled:
            self._outbox.note("spawn_failed", kind=order.kind, code="spawn_failed", reason=reason)
            self._end(order, "spawn_failed", reason)
            self._keys.failed(order.entry, {}, now)

    def _is_late(self, order: Order, now: Instant) -> None:
        self._by_token.pop(order.token_hash, None)
        reason = f"No session has registered within {self._limits.spawn_ms // 1000} s; the command may still run"
        self._settle(order, {"kind": order.kind, "code": "spawn_timeout", "reason": reason}, now)

    def drain(self) -> None:
        """Tell those who wait that this broker will not see the end of it."""
        for order in list(self._orders.values()):
            self._end(order, "spawn_outcome_unknown", _UNKNOWN)

    def _end(self, order: Order, code: str, reason: str) -> None:
        self._forget(order)
        for connection, request_id in order.askers:
            self._outbox.write(connection, SpawnStatus(request_id, "failed", UNSET, code, reason))

    def _forget(self, order: Order) -> None:
        self._deadlines.cancel(order.deadline)
        self._orders.pop(order.entry.key, None)
        self._by_ref.pop(order.ref, None)
        self._by_token.pop(order.token_hash, None)

    def _refuse(
        self,
        connection: Connection,
        frame: SpawnSession,
        code: str,
        reason: str,
        *,
        outcome_unknown: bool = False,
        retry_after_ms: int = 0,
    ) -> None:
        no = RequestFailed(
            frame.request_id,
            code,
            reason,
            retry_after_ms > 0,
            True if outcome_unknown else UNSET,
            retry_after_ms=retry_after_ms or UNSET,
        )
        self._outbox.write(connection, no)


def _status(request_id: str, result: dict[str, Any]) -> SpawnStatus:
    """Return what is told of an order that has come to an end."""
    if "sessionId" in result:
        return SpawnStatus(request_id, "applied", result["sessionId"])
    return SpawnStatus(request_id, "failed", UNSET, result["code"], result["reason"])


def _fingerprint(frame: SpawnSession) -> str:
    """Return what stands for everything that makes two orders the same, without their text."""
    return sha256(encode([frame.kind, frame.prompt])).hexdigest()
