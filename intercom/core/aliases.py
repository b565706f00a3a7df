"""Keep which session a live stage's targets lead to (protocol 6.12.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.rosters import Roster
from intercom.core.routes import Route, Routes
from intercom.wire.targets import StageTarget, invocation_group, parse_target, root_run_of

if TYPE_CHECKING:
    from intercom.core.sessions import Session


class Alias:
    """Let one exact target lead to a session, while the run that registered it keeps its route and its secret."""

    __slots__ = ("capability", "run_id", "session", "target", "text")

    def __init__(self, text: str, target: StageTarget, session: Session, run_id: str, capability: str) -> None:
        self.text = text
        self.target = target
        self.session = session
        self.run_id = run_id
        self.capability = capability


class Aliases:
    """Find live stages by exact target.

    While nobody owns its run an alias leads nowhere, and goes on when the owner is back: its stage was told that it is
    live, and is not told anything when the owner comes and goes. One of another secret or group is gone once it was
    looked up.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._by_text: dict[str, Alias] = {}
        self._by_session: dict[str, dict[str, Alias]] = {}
        self._by_run: dict[str, dict[str, Alias]] = {}

    def __len__(self) -> int:
        return len(self._by_text)

    def find(self, text: str) -> Alias | None:
        """Return the valid alias with exactly this text."""
        alias = self._by_text.get(text)
        if alias is None:
            return None
        route = self._routes.get(alias.run_id)
        if route is None:
            return None
        if route.group != alias.target.invocation_group or not route.is_opened_by(alias.capability):
            self._remove(alias)
            return None
        return alias

    def add(self, alias: Alias) -> None:
        """Let a target lead to a session, in the place of any other."""
        earlier = self._by_text.get(alias.text)
        if earlier is not None:
            self._remove(earlier)
        self._by_text[alias.text] = alias
        self._by_session.setdefault(alias.session.id, {})[alias.text] = alias
        self._by_run.setdefault(alias.run_id, {})[alias.text] = alias

    def session_left(self, session: Session) -> bool:
        """Forget all targets that led to a departing session; return whether there were any."""
        mine = list(self._by_session.get(session.id, {}).values())
        for alias in mine:
            self._remove(alias)
        return bool(mine)

    def retire_ambiguous(self, roster: Roster) -> None:
        """Take name aliases from stages that share their name: no occurrence keeps it."""
        for alias in list(self._by_run.get(roster.run_id, {}).values()):
            if alias.target.last in roster.ambiguous and alias.target.last not in roster.by_id:
                self._remove(alias)

    def _remove(self, alias: Alias) -> None:
        del self._by_text[alias.text]
        for index, key in ((self._by_session, alias.session.id), (self._by_run, alias.run_id)):
            del index[key][alias.text]
            if not index[key]:
                del index[key]


def wanted_aliases(keys: tuple[str, ...], route: Route, roster: Roster | None) -> dict[str, StageTarget]:
    """Return the targets, by their text, that a stage with these distinct keys goes live under."""
    registrant = None if roster is None else roster.described_by(keys)
    wanted = {}
    for key in keys:
        if roster is not None and any(stage is not registrant for stage in roster.by_id.get(key, ())):
            continue  # else a stage whose name equals a sibling's id would capture that sibling
        is_id = registrant is not None and key == registrant.id
        if not is_id and roster is not None and key in roster.ambiguous:
            continue
        if registrant is not None:
            text = registrant.text if is_id else registrant.target.with_last(key)
        else:
            root = root_run_of(route.group) or ""
            middle = () if route.run_id == root else (route.run_id,)
            text = "/".join((invocation_group(root), *middle, key))
        target = parse_target(text)
        if target is not None:
            wanted[text] = target
    return wanted
