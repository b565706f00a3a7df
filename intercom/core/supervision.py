"""Keep supervisor capabilities and the crossings they open (protocol 6.6)."""

from __future__ import annotations

import hmac
from collections import OrderedDict

from intercom.core.clock import Instant
from intercom.limits import Limits
from intercom.wire.capability import utf8
from intercom.wire.frames import trim

ANY_CHILD = "*"
"""Child name of a dynamic slot: the first child that claims it gives it its name."""


class _Capability:
    __slots__ = ("bound_name", "child_name", "owner_token", "supervisor_id")

    def __init__(self, supervisor_id: str, child_name: str, owner_token: str) -> None:
        self.supervisor_id = supervisor_id
        self.child_name = child_name
        self.owner_token = owner_token
        self.bound_name: str | None = None


class Capabilities:
    """Remember who supervises whom; the oldest issued or refreshed one goes first when there are too many."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[str, _Capability] = OrderedDict()
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def has_room(self, supervisor_id: str, capability: str | None) -> bool:
        """Tell whether this session may hold one more; refreshing one it holds always fits."""
        if capability is not None:
            known = self._known.get(capability)
            if known is not None and known.supervisor_id == supervisor_id:
                return True
        return self._held.get(supervisor_id, 0) < self._limits.capabilities_per_session

    def authorize(self, capability: str, supervisor_id: str, child_name: str, owner_token: str) -> bool:
        """Point a capability to this session; False when it is bound to another owner or name."""
        known = self._known.get(capability)
        if known is None:
            known = _Capability(supervisor_id, child_name, owner_token)
        elif known.child_name != child_name or not hmac.compare_digest(utf8(known.owner_token), utf8(owner_token)):
            return False
        else:
            self._let_go(known)
            known.supervisor_id = supervisor_id
        self._held[supervisor_id] = self._held.get(supervisor_id, 0) + 1
        self._known[capability] = known
        self._known.move_to_end(capability)
        while len(self._known) > self._limits.capabilities:
            self._let_go(self._known.popitem(last=False)[1])
        return True

    def claim(self, capability: str, child_name: str) -> str | None:
        """Return the supervisor's session id if a child of this name may claim the capability, else None.

        Claiming binds a dynamic slot only in ``bind``, once the supervisor proved to be here.
        """
        known = self._known.get(capability)
        if known is None:
            return None
        wanted = known.child_name if known.child_name != ANY_CHILD else known.bound_name or child_name
        return known.supervisor_id if wanted == child_name else None

    def bind(self, capability: str, child_name: str) -> None:
        """Give a dynamic slot the name of the first child that claimed it."""
        known = self._known[capability]
        if known.child_name == ANY_CHILD and known.bound_name is None:
            known.bound_name = trim(child_name)

    def supervised_child(self, capability: str, supervisor_id: str) -> str | None:
        """Return the child's name if this session is the capability's present supervisor, else None.

        ``ANY_CHILD`` stands for a dynamic slot that no child has claimed.
        """
        known = self._known.get(capability)
        if known is None or known.supervisor_id != supervisor_id:
            return None
        return known.bound_name or known.child_name

    def _let_go(self, known: _Capability) -> None:
        left = self._held[known.supervisor_id] - 1
        if left:
            self._held[known.supervisor_id] = left
        else:
            del self._held[known.supervisor_id]


class Crossings:
    """Remember messages that went up the supervisor line, so that their replies may come back down."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def record(self, message_id: str, child_id: str, supervisor_id: str, now: Instant) -> None:
        """Let the supervisor answer this message to this child for the crossing time."""
        key = (message_id, child_id, supervisor_id)
        self._known[key] = now.mono + self._limits.crossing_ms
        self._known.move_to_end(key)
        while len(self._known) > self._limits.crossings:
            self._known.popitem(last=False)

    def withdraw(self, message_id: str, child_id: str, supervisor_id: str) -> None:
        """Take a crossing back; one that is gone is fine."""
        self._known.pop((message_id, child_id, supervisor_id), None)

    def allows(self, reply_to: str, supervisor_id: str, child_id: str, now: Instant) -> bool:
        """Tell whether this supervisor may answer that message to this child."""
        self._expire(now)
        return (reply_to, child_id, supervisor_id) in self._known

    def connects(self, supervisor_id: str, child_id: str, now: Instant) -> bool:
        """Tell whether any crossing lets this supervisor write to this child."""
        self._expire(now)
        return any(key[1] == child_id and key[2] == supervisor_id for key in self._known)

    def _expire(self, now: Instant) -> None:
        known = self._known
        while known and next(iter(known.values())) <= now.mono:
            known.popitem(last=False)
