"""Tell other brokers which runs have owners here, and bring messages for stages elsewhere to the broker of the owner.

What becomes of such a message is decided there, as if it had been sent there (protocol 6.12.4, 6.13): that broker knows
the live stages, asks the owner and judges the group again. Rule 1: the capability of a run stays at its broker. Rule 2:
a run that has an owner here is never looked for elsewhere. Rule 3: what may wait while the engine cannot be reached
waits here in one mailbox for each run, and what comes later waits behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.json import encode
from msgspec.structs import replace

from intercom.core.attempts import Refusal
from intercom.core.clock import Instant
from intercom.core.mailboxes import Mailbox
from intercom.core.peer_records import RemoteName, RemoteReservation, RemoteRoute, Shelf
from intercom.core.rosters import Roster, announced, read_possible, read_stages
from intercom.core.routes import controls, deepest
from intercom.core.standins import RemoteConnection, RunOwner, Way, mark_of_run
from intercom.limits import RUN_TOLD_BYTES
from intercom.wire import reasons
from intercom.wire.targets import StageTarget, invocation_group, is_run_id, root_run_of

if TYPE_CHECKING:
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.mailing import Mailing
    from intercom.core.sessions import Session
    from intercom.core.stages import Stages


class RunsElsewhere:
    """Hold what is told and heard of runs.

    Args:
        own: id of this broker.
        stages: the runs that are known here.
        way: by which what is for an owner elsewhere gets to its broker.
        next_number: numbers such ways.
        node_of: tells what the machine of a broker is called.
        mark: lets what has changed be announced.
        boxes, mailing: where what is for a run waits that cannot be reached.
    """

    def __init__(
        self,
        own: str,
        stages: Stages,
        way: Way,
        next_number: Callable[[], int],
        node_of: Callable[[str], str],
        mark: Callable[[], None],
        boxes: Mailboxes,
        mailing: Mailing,
    ) -> None:
        self._boxes = boxes
        self._mailing = mailing
        self._own = own
        self._stages = stages
        self._way = way
        self._next_number = next_number
        self._node_of = node_of
        self._told: dict[str, tuple[str, Roster | None, dict[str, str]]] = {}
        """Group, roster and live stages of the runs here as they were told last."""
        self._of: dict[str, dict[str, RemoteRoute]] = {}
        """By broker and run."""
        self._by_run: dict[str, RemoteRoute] = {}
        self._mark = mark
        self._is_changed = True
        stages.on_change = self._change

    def _change(self) -> None:
        self._is_changed = True
        self._mark()

    # --- here -------------------------------------------------------------------------------------------

    def changed(self) -> dict[tuple[Shelf, str], RemoteRoute | None]:
        """Return what is to be told of runs here."""
        changed: dict[tuple[Shelf, str], RemoteRoute | None] = {}
        if not self._is_changed:
            return changed
        self._is_changed = False
        now = {route.run_id: route for route in self._stages.routes}
        for run_id in sorted(self._told.keys() - now.keys()):
            changed["routes", _key_of(run_id, self._told.pop(run_id)[0])] = None
        for run_id, route in now.items():
            roster = self._stages.rosters.get(run_id)
            if roster is not None and roster.is_elsewhere:
                roster = None
            live = {} if roster is None else self._live_in(roster)
            before = self._told.get(run_id)
            if before is None or before[0] != route.group or before[1] is not roster or before[2] != live:
                self._told[run_id] = (route.group, roster, live)
                changed["routes", _key_of(run_id, route.group)] = self._described(run_id, route.group, roster, live)
        return changed

    def _live_in(self, roster: Roster) -> dict[str, str]:
        found = ((stage.text, self._stages.live(stage.text)) for stage in roster.stages)
        return {text: alias.session.id for text, alias in found if alias is not None}

    def _described(self, run_id: str, group: str, roster: Roster | None, live: dict[str, str]) -> RemoteRoute:
        route = RemoteRoute(run_id, self._own, group)
        if roster is None:
            return route
        whole = replace(route, stages=announced(roster), possible=roster.possible, parent=roster.parent, live=live)
        return whole if len(encode(whole)) <= RUN_TOLD_BYTES else route

    # --- elsewhere --------------------------------------------------------------------------------------

    def seen(self, peer: str, shared: Iterable[RemoteReservation | RemoteRoute]) -> None:
        """Take note of which runs have owners at a broker, and of no others there."""
        mine = self._of.setdefault(peer, {})
        told = {each.run_id: each for each in shared if isinstance(each, RemoteRoute) and each.home == peer}
        for run_id in mine.keys() - told.keys():
            self._drop(mine.pop(run_id))
        for run_id, route in told.items():
            if mine.get(run_id) != route:
                mine[run_id] = self._by_run[run_id] = route
                self._put_roster(route)

    def lost(self, peer: str) -> None:
        """Take note that a broker is away, and with it the owners there."""
        for route in self._of.pop(peer, {}).values():
            self._drop(route)

    def _drop(self, route: RemoteRoute) -> None:
        if self._by_run.get(route.run_id) is route:
            del self._by_run[route.run_id]
            roster = self._stages.rosters.get(route.run_id)
            if roster is not None and roster.is_elsewhere:
                self._stages.rosters.drop(route.run_id)

    def _put_roster(self, route: RemoteRoute) -> None:
        known = self._stages.rosters.get(route.run_id)
        if self._stages.routes.get(route.run_id) is not None or (known is not None and not known.is_elsewhere):
            return
        self._stages.rosters.drop(route.run_id)
        stages = None if route.stages is None else read_stages(list(route.stages), route.run_id, route.group)
        if stages is None:
            return
        possible = None if route.possible is None else read_possible(list(route.possible), route.run_id, route.group)
        roster = Roster(route.run_id, route.group, stages, possible, route.parent)
        roster.is_elsewhere, roster.live = True, route.live
        self._stages.rosters.put(roster)

    # --- what is for a stage ----------------------------------------------------------------------------

    def has_owner_here(self, target: StageTarget) -> bool:
        """Tell whether messages to a stage are decided about here."""
        return self._stages.routes.owner_of(target) is not None

    def owner_of(self, text: str, target: StageTarget, sender: Session, now: Instant) -> Session | Refusal | None:
        """Return what stands for a stage, or a pattern, whose owner is elsewhere; None: nobody owns it there."""
        route = deepest(self._by_run.get, target)
        if route is None:
            return None
        if not controls(sender, route.group):
            return Refusal("E2", reasons.DIFFERENT_RUN)
        owner = self._stand_in(route.home, text, route.run_id, route.group)
        is_cut_off = self._way.is_cut_off(route.home)
        owner.mailbox = Mailbox(owner.target_identity) if is_cut_off else self._boxes.get(owner.target_identity)
        return owner

    def _stand_in(self, peer: str, target_id: str, run_id: str, group: str) -> RunOwner:
        name = RemoteName(target_id, target_id, (group,), "active", peer, home_group=group)
        connection = RemoteConnection(self._next_number(), peer, self._way)
        owner = RunOwner(connection, name, self._node_of(peer), mark_of_run(peer, run_id))
        connection.session = owner
        return owner

    def bring(self, peer: str, now: Instant) -> None:
        """Post what waits here for the runs of a broker that can be reached again; it says which it has no more."""
        prefix = mark_of_run(peer, "")
        for box in self._boxes.all():
            if not box.key.startswith(prefix):
                continue
            owner = box.holder
            if owner is None:
                run_id = box.key.removeprefix(prefix)
                owner = self._stand_in(peer, run_id, run_id, invocation_group(run_id))
                self._mailing.holder_came(owner, box.key)
            elif not box.entries:
                self._mailing.holder_left(owner, now)
                continue
            for mail in box.in_order():
                if mail.is_offered:
                    self._mailing.keep_for_later(mail, 0, now)
            self._mailing.offer(box, now)


def _key_of(run_id: str, group: str) -> str:
    """Return where the route of a run lies: its root and itself, in characters that a key may have."""
    parts = (root_run_of(group) or run_id, run_id)
    return ".".join(each if is_run_id(each) else sha256(each.encode()).hexdigest()[:40] for each in parts)
