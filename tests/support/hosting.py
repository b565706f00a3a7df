"""Own workflow runs in tests: the ids, a host that keeps messages, and a session without a broker that owns runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

from intercom.client import blocking
from intercom.client.owning import Announcement, Run, new_run
from intercom.client.queueing import StageAnswer, StageQueue, StageRequest
from intercom.client.rosters import RosterStage
from intercom.limits import REQUEST_MS
from tests.support.client import Frame, Rig
from tests.support.raw import PATIENCE_S

ROOT = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
NESTED = "1d2e3f40-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
GROUP = f"workflow:{ROOT}"


class Host:
    """Answer every message with the number of messages before it, and note what it was told."""

    def __init__(self, answer: StageAnswer | None = None) -> None:
        self.kept: list[str] = []
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self._answer = answer

    def admit(self, request: StageRequest) -> StageAnswer:
        """Keep a message."""
        self.kept.append(request.id)
        return self._answer or StageAnswer.queued(len(self.kept))

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        """Note it."""
        self.told.append((message_id, stages))


def host() -> Rig:
    """Return a session that may own runs."""
    rig = Rig(group=GROUP, purpose="control")
    rig.register()
    return rig


def run_of(rig: Rig, run_id: str = ROOT, **options: Any) -> Run:
    """Return a run that is not announced yet; its capability begins as its id does."""
    given: dict[str, Any] = {"capability": f"cap-{run_id[:2]}", "dormant": False, "parent": None, "boundary": ()}
    runs = rig.core.commitments.runs
    return new_run(rig.core.profile, runs, run_id, ids=rig.core.new_id, **{**given, **options})


def announcing(rig: Rig, run: Run, *names: str) -> Announcement:
    """Return the operation that announces a run with stages of these names."""
    roster = [RosterStage(id=name, name=name) for name in names]
    runs = rig.core.commitments.runs
    return Announcement(runs, run, run.changed(roster, None), rig.now + REQUEST_MS)


def acknowledge(rig: Rig, frame: Frame) -> list[Frame]:
    """Have an announcement taken, and return what the session writes then."""
    return rig.feed({"type": "pending_stage_route_registered", "requestId": frame["requestId"]})


def owned(rig: Rig, run_id: str = ROOT, *names: str, **options: Any) -> Run:
    """Announce a run, and have that taken."""
    run = run_of(rig, run_id, **options)
    operation = announcing(rig, run, *names)
    [frame] = rig.begin(operation)
    assert acknowledge(rig, frame) == []
    assert operation.done and operation.error is None
    return run


class Router(Host):
    """Forward to stages that run, refuse to be asked for the others, and queue what they are sent."""

    def __init__(self, *running: str) -> None:
        super().__init__()
        self.running = list(running)

    def admit(self, request: StageRequest) -> StageAnswer:
        """Decide; a broadcast goes to ``running`` too."""
        if request.is_live:
            return StageAnswer.forward(request.target)
        if request.expects_reply:
            return StageAnswer.not_started()
        self.kept.append(request.id)
        is_broadcast = "*" in request.target
        known = any(stage in request.target for stage in ("st-", "reviewer")) or is_broadcast
        return StageAnswer.queued(len(self.kept), forward_to=self.running if is_broadcast else (), is_known=known)


@contextmanager
def hosting(home: Path, queue: StageQueue, roster: Iterable[RosterStage], **options: Any) -> Iterator[blocking.Run]:
    """Own the root run in a thread of its own, which answers until the block is left."""
    ready: Queue[blocking.Run | BaseException] = Queue()
    ended = threading.Event()

    def serve() -> None:
        try:
            with (
                blocking.connect(home=home, group=GROUP, purpose="control", start=False) as session,
                session.workflow(ROOT, queue, roster=roster, **options) as run,
            ):
                ready.put(run)
                while not ended.is_set():
                    run.serve(timeout=0.02)
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        run = ready.get(timeout=PATIENCE_S)
        if isinstance(run, BaseException):
            raise run
        yield run
    finally:
        ended.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
