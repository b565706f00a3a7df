"""Play another broker behind the interface of ``cluster/directory.py``."""

from __future__ import annotations

from intercom.core.records import (
    Follow,
    Forward,
    Forwarded,
    Mirrored,
    PeerLost,
    PeerSeen,
    PeerWork,
    Recall,
    RemoteName,
    RemoteRun,
)
from tests.core.harness import World

PEER = "22222222-2222-4222-8222-222222222222"
FAR = "33333333-3333-4333-8333-333333333333"


class FakePeer:
    """Be a broker on another machine, and the engine between: it takes each task once, and counts its reports.

    ``serve`` does what it was asked; nothing happens before.
    """

    def __init__(self, world: World, *, name: str = "studio", target: str = "builder", refuses: str = "") -> None:
        self.world = world
        self.name = name
        self.names = (RemoteName(FAR, target, ("default",), "active", PEER, harness="codex"),)
        self.refuses = refuses
        self.is_up = True
        self.loses_answers = False
        """What it says of a task does not arrive."""
        self.tasks: list[Forward] = []
        """Every attempt that reached it."""
        self.runs: dict[str, RemoteRun] = {}
        self.reports: dict[str, list[RemoteRun]] = {}
        self.recalled: list[str] = []
        self.follows: list[Follow] = []

    def come(self) -> None:
        """Be seen."""
        self.is_up = True
        self.world.peer_told(PeerSeen(PEER, self.name, "journal-2", self.names))

    def go(self) -> None:
        """Be seen no more."""
        self.is_up = False
        self.world.peer_told(PeerLost(PEER))

    def serve(self) -> list[PeerWork]:
        """Do what was asked, and what that leads to; return it."""
        done: list[PeerWork] = []
        while self.world.peer_work:
            work = self.world.peer_work.pop(0)
            done.append(work)
            self._do(work)
        return done

    def _do(self, work: PeerWork) -> None:
        if isinstance(work, Recall):
            self.recalled.append(work.invocation_id)
        elif isinstance(work, Follow):
            self.follows.append(work)
            for number, run in enumerate(self.reports.get(work.delivery_id, ()), 1):
                if number > work.after:
                    self.world.peer_told(Mirrored(work.delivery_id, number - 1, number, run))
        elif not self.is_up:
            self.world.peer_told(Forwarded(work.delivery_id, work.attempt, "unreachable", reason="no route"))
        else:
            self.tasks.append(work)
            answer = self._take(work)
            if not self.loses_answers:
                self.world.peer_told(answer)

    def _take(self, work: Forward) -> Forwarded:
        if self.refuses:
            return Forwarded(work.delivery_id, work.attempt, "refused", reason=self.refuses)
        verdict = "duplicate" if work.delivery_id in self.runs else "accepted"
        run = self.runs.setdefault(work.delivery_id, RemoteRun(f"run-there-{len(self.runs) + 1}", "queued"))
        return Forwarded(work.delivery_id, work.attempt, verdict, run)  # type: ignore[arg-type]  # one of them

    def report(self, delivery_id: str, state: str, *, is_lost: bool = False, **texts: str) -> None:
        """Let the run go on, and say so unless that is lost."""
        run = RemoteRun(self.runs[delivery_id].run_id, state, **texts)  # type: ignore[arg-type]  # a state
        self.runs[delivery_id] = run
        reports = self.reports.setdefault(delivery_id, [])
        reports.append(run)
        if not is_lost:
            self.world.peer_told(Mirrored(delivery_id, len(reports) - 1, len(reports), run))
