"""Let somebody follow everything that happens, over lost connections and over its own restarts."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from intercom.client.watches import Watch, WatchEvent, WatchSnapshot, after_of
from intercom.errors import IntercomError
from intercom.store.pair import read_only
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role


class Watching(Part):
    """Hold one who follows everything."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.since: int | None = None
        """Everything behind this sequence is to be told."""
        self.told: list[int] = []
        self.position: str | None = None
        """Where the next process goes on."""
        self.watcher = self.add(Role("wanda", also=(("purpose", "control"),)), Watcher)

    def snapshot(self, snapshot: WatchSnapshot) -> None:
        """Take notice of how things are said to be."""
        if snapshot.restarted is not None or self.since is not None:
            raise Broken("watchers-see-all", f"the watch began anew behind {self.position}: {snapshot.restarted}")
        self.since = after_of(snapshot.position)[0]  # type: ignore[index]  # it has one
        self.position = snapshot.position

    def event(self, event: WatchEvent) -> None:
        """Take notice of something that happened."""
        assert self.since is not None, "a watch begins with a snapshot"
        if event.kept:
            if event.seq <= (self.told[-1] if self.told else self.since):
                raise Broken("watchers-see-all", f"{event.seq} {event.kind} was told behind {self.told[-3:]}")
            self.told.append(event.seq)
        self.position = event.position

    def at_rest(self) -> None:
        """Hold that it was told everything the journal holds, and nothing else."""
        if self.since is None:
            raise Broken("watchers-see-all", "the watch never began")
        with closing(read_only(self.world.disk.paths.database)) as connection:
            found = connection.execute("SELECT seq, stream, kind FROM journal WHERE seq > ?", (self.since,)).fetchall()
        if untrue := set(self.told) - {seq for seq, _, _ in found}:
            raise Broken("watchers-see-all", f"{untrue} never happened")
        told = set(self.told)
        missed = [row for row in found if row[0] not in told and row[2] not in _OF_OTHERS]
        if missed := [row for row in missed if not row[1].startswith(_UNTOLD)]:
            raise Broken("watchers-see-all", f"{missed} were not told")


class Watcher(Actor):
    """Follow, and take what is told now and then."""

    part: Watching
    watch: Watch | None = None

    def start(self) -> None:
        """Begin where an earlier process was."""
        super().start()
        self.watch = None

    def act(self) -> bool:
        """Take some of what was told."""
        for _ in range(self.chance.choice((1, 5, 40))):
            if not self._take():
                break
        return True

    def end_matters(self) -> bool:
        """Take everything."""
        return self.core is not None and (self.watch is None or self.watch.has_news) and self._take()

    def _take(self) -> bool:
        assert self.core is not None
        try:
            if self.watch is None:
                self.watch = self.core.watch([], after_of(self.part.position))
            told = self.core.take_watched(self.watch)
        except IntercomError as error:
            self.part.tell(f"{self.name} is told: {error!r}")
            self.watch = None
            return False
        self._look()
        if isinstance(told, WatchSnapshot):
            self.part.snapshot(told)
        elif told is not None:
            self.part.event(told)
        return told is not None


_UNTOLD = ("idempotency:", "peer:")
"""The beginnings of streams that tell nothing to anybody."""
_OF_OTHERS = ("link.advanced", "link.commanded")
"""What goes with an event that is told: that of the command, or of the worker."""
