"""Commit what was appended, many appends with one sync, without letting a slow disk stop the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import TypeAlias

from msgspec import Struct

from intercom.core.records import Change
from intercom.limits import APPEND_US, INLINE_SYNC_US, LONG_SYNC_SAMPLES, LONG_SYNC_US, SYNC_SAMPLES
from intercom.store.database import Store
from intercom.store.failures import CommitFailed


class Committed(Struct, frozen=True):
    """Say that every append up to this ticket is durable."""

    ticket: int


class Failed(Struct, frozen=True):
    """Say that this append and all later ones were not committed; ``final`` when none will be any more."""

    first: int
    reason: str
    final: bool


Outcome: TypeAlias = Committed | Failed


class Writer:
    """Queue appends and commit all that are there with one sync.

    All methods are called from one thread, the event loop's. While the disk is fast ``kick`` commits in that thread;
    else in one worker thread, which calls ``notify`` after each commit. After a failure everything queued and
    everything submitted is dropped until ``resume``.

    ``opening_us`` says how long the commit took with which the store was opened; ``committed`` is called after every
    commit with the number of its appends, in the thread that made it.
    """

    def __init__(
        self,
        store: Store,
        notify: Callable[[], None],
        opening_us: int = 0,
        committed: Callable[[int], None] = lambda appends: None,
    ) -> None:
        self._store = store
        self._notify = notify
        self._committed = committed
        self._condition = Condition()
        self._submitted: list[tuple[int, tuple[Change, ...]]] = []
        """Touched by the event loop's thread alone, so that an append needs no lock."""
        self._outcomes: list[Outcome] = []
        self._dropping = False
        self._syncs: deque[bool] = deque(maxlen=SYNC_SAMPLES)
        """Whether each of the last syncs was quick; their median is, when more than half of them were."""
        self._quick = 0
        self._long: deque[bool] = deque(maxlen=LONG_SYNC_SAMPLES)
        """Whether each of the very last syncs was so long that the loop must not wait for another one."""
        self._fast = opening_us < LONG_SYNC_US
        self._handed_over = False
        """The worker has something to do. While it has, everything here is guarded by the condition; else it is this
        thread's alone."""
        self._queue: list[tuple[int, tuple[Change, ...]]] = []
        self._wanted = False
        """The worker is to commit what is queued."""
        self._closing = False
        self._worker: Thread | None = None

    def submit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        """Queue an append; tickets only grow. Dropped between a failure and ``resume``."""
        if self._closing:
            raise RuntimeError("the writer is closed")
        self._submitted.append((ticket, changes))

    def kick(self) -> None:
        """Start committing all that is queued; on a fast disk it is committed when this returns."""
        if not self._submitted:
            return
        if self._fast and not self._handed_over:
            batch, self._submitted = self._submitted, []
            if not self._dropping:
                self._note(self._commit(batch))
            return
        with self._condition:
            self._enqueue()
            if self._queue:
                self._hand_over()

    def outcomes(self) -> list[Outcome]:
        """Return what has become of appends since the last call, oldest first."""
        if not self._handed_over:
            outcomes, self._outcomes = self._outcomes, []
            return outcomes
        with self._condition:
            outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def resume(self) -> None:
        """Take appends again after a failure that was not final, once all that were dropped are undone."""
        with self._condition:
            self._submitted.clear()
            self._dropping = False

    def close(self, timeout_s: float) -> bool:
        """Commit what is queued and end the worker; the last ``outcomes`` can be taken afterwards.

        Returns False when the disk did not answer within ``timeout_s`` seconds: then the worker still uses the store,
        which must not be closed, and the process should end.
        """
        with self._condition:
            self._closing = True
            self._enqueue()
            if self._queue or self._worker is not None:
                self._hand_over()  # also on a fast disk: it may have become slow, and this call is bounded
            worker = self._worker
        if worker is None:
            return True
        worker.join(timeout_s)
        return not worker.is_alive()

    def _enqueue(self) -> None:
        if not self._dropping:
            self._queue += self._submitted
        self._submitted.clear()

    def _hand_over(self) -> None:
        self._handed_over = self._wanted = True
        self._wake_worker()

    def _wake_worker(self) -> None:
        if self._worker is None:
            # A daemon, so that a disk that never answers cannot keep the process from ending.
            self._worker = Thread(target=self._work, name="intercom-store", daemon=True)
            self._worker.start()
        self._condition.notify()

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._wanted:
                    self._condition.wait()
            if not self._commit_queued():
                return

    def _commit_queued(self) -> bool:
        """Commit what was handed over; tell whether the worker stays."""
        with self._condition:
            self._wanted = False
            batch, self._queue = self._queue, []
        outcome = self._commit(batch) if batch else None
        with self._condition:
            if outcome is not None:
                self._note(outcome)
            closing = self._closing
            if closing and not self._queue:
                return False
            self._handed_over = self._wanted
        if outcome is not None and not closing:
            self._notify()
        return True

    def _commit(self, batch: list[tuple[int, tuple[Change, ...]]]) -> Outcome:
        try:
            sync_us = self._store.commit(batch)
        except CommitFailed as failure:
            return Failed(batch[0][0], failure.reason, failure.final)
        self._committed(len(batch))
        if sync_us:
            # A commit of many appends takes longer without the disk being slower.
            if len(self._syncs) == SYNC_SAMPLES:
                self._quick -= self._syncs[0]
            self._syncs.append(sync_us - APPEND_US * len(batch) < INLINE_SYNC_US)
            self._quick += self._syncs[-1]
            self._long.append(sync_us >= LONG_SYNC_US)
            if self._long.count(True) > 1:  # one alone is a checkpoint, or a busy machine
                self._syncs.extend([False] * SYNC_SAMPLES)
                self._quick = 0
                self._long.clear()
            self._fast = self._quick > len(self._syncs) // 2
        return Committed(batch[-1][0])

    def _note(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if isinstance(outcome, Failed):
            self._dropping = True
            self._fast = False  # what failed may hang next; the worker finds out
            self._queue.clear()
