"""Keep who owns the messages to a run's stages, and say who may speak into an invocation (protocol 6.12.3, 6.12.6)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from intercom.wire.targets import SCHEME, StageTarget, is_run_id

if TYPE_CHECKING:
    from intercom.core.sessions import Session


class Route:
    """Hold the route of one run; its owner is connected, for a route ends with its owner."""

    __slots__ = ("_capability", "group", "is_dormant", "owner", "run_id")

    group: str

    def __init__(self, run_id: str, owner: Session, group: str, capability: str, is_dormant: bool) -> None:
        self.run_id = run_id
        self.owner = owner
        self.group = group
        self._capability = capability
        self.is_dormant = is_dormant

    def is_opened_by(self, capability: str) -> bool:
        """Compare a capability with this run's secret in constant time."""
        return hmac.compare_digest(_utf8(capability), _utf8(self._capability))


class Routes:
    """Find routes by run and by owner."""

    def __init__(self) -> None:
        self._by_run: dict[str, Route] = {}
        self._by_owner: dict[str, dict[str, Route]] = {}

    def __len__(self) -> int:
        return len(self._by_run)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._by_run.values())

    def get(self, run_id: str) -> Route | None:
        """Return the route of this run."""
        return self._by_run.get(run_id)

    def owned_by(self, session: Session) -> list[Route]:
        """Return the routes of this session in the order in which it got them."""
        return list(self._by_owner.get(session.id, {}).values())

    def put(self, route: Route) -> None:
        """Set the route of a run in the place of any other."""
        self.drop(route.run_id)
        self._by_run[route.run_id] = route
        self._by_owner.setdefault(route.owner.id, {})[route.run_id] = route

    def drop(self, run_id: str) -> None:
        """End the route of a run; a run without one is fine."""
        route = self._by_run.pop(run_id, None)
        if route is not None:
            owned = self._by_owner[route.owner.id]
            del owned[run_id]
            if not owned:
                del self._by_owner[route.owner.id]

    def owner_of(self, target: StageTarget) -> Route | None:
        """Return the route whose owner decides about messages to ``target`` (protocol 6.12.4).

        Of a path the deepest run that is named in it and has a route in this invocation wins; the root's route counts
        whatever its group, since the sender's control of that group is checked.
        """
        return deepest(self._by_run.get, target)


class InGroup(Protocol):
    """Be what a run is known by, in the group of its owner."""

    @property
    def group(self) -> str:
        """Return the group."""


Known = TypeVar("Known", bound=InGroup)


def deepest(get: Callable[[str], Known | None], target: StageTarget) -> Known | None:
    """Return what is known of the run whose owner decides about messages to ``target``."""
    route = get(target.run_id)
    group = target.invocation_group
    if target.kind != "path":
        return route if route is not None and route.group == group else None
    for segment in target.segments[:-1]:
        nested = get(segment) if is_run_id(segment) else None
        if nested is not None and nested.group == group:
            route = nested
    return route


def controls(sender: Session, group: str) -> bool:
    """Tell whether a session may speak into the invocation of this group (protocol 6.12.6).

    Those that joined it may, unless they belong to another invocation or to a subgroup of this one.
    """
    return group in sender.groups and (sender.home_group == group or not sender.home_group.startswith(SCHEME))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
