"""Name the moments at which a broker may die, and let one die, or stand still, at one of them.

A moment is before or after a call that the broker makes anyway, so the product has no hooks for it: ``arm`` wraps the
call in the process that is to die, which ``scripts/strain/crash.py`` starts as a fork of its own.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

BEFORE, AFTER = "before", "after"


class Point(NamedTuple):
    """Hold one moment.

    Args:
        name: what it is called; the part before the dot is its group.
        what: the call, as module and names in it.
        side: whether it is before or after the call.
        most: up to which call of its kind it is worth while to wait; the first one is meant where it is 1.
    """

    name: str
    what: str
    side: str
    most: int = 1

    @property
    def group(self) -> str:
        """Return what the moment belongs to."""
        return self.name.partition(".")[0]


SERVER = "intercom.server."
STORE = "intercom.store."
POINTS = (
    Point("start.looked-for-another", f"{SERVER}ownership:probe", AFTER),
    Point("start.home-prepared", f"{SERVER}app:prepare_home", AFTER),
    Point("start.settings-read", f"{SERVER}app:load_settings", AFTER),
    Point("start.lock-taken", f"{SERVER}ownership:take_lock", AFTER),
    Point("start.bound-and-deaf", "socket:socket.listen", BEFORE),
    Point("start.listening", f"{SERVER}ownership:bind", AFTER),
    Point("start.pid-file-empty", "os:fchmod", BEFORE),
    Point("start.pid-file-unnamed", "pathlib:Path.replace", BEFORE),
    Point("start.pid-file-written", f"{SERVER}ownership:write_pid", AFTER),
    Point("start.log-opened", f"{SERVER}log:Log.__init__", AFTER),
    Point("start.recovered", f"{SERVER}serving:Serving.__init__", AFTER),
    Point("start.ready", f"{SERVER}serving:Serving._tick", BEFORE),
    Point("takeover.before", f"{SERVER}ownership:_clear", BEFORE),
    Point("takeover.found-stale", "pathlib:Path.unlink", BEFORE),
    Point("takeover.removed", f"{SERVER}ownership:_clear", AFTER),
    Point("open.pair-found", f"{STORE}database:obtain_pair", AFTER),
    Point("open.examined", f"{STORE}database:examine", AFTER),
    Point("open.connected", f"{STORE}database:_connect", AFTER),
    Point("open.read", f"{STORE}database:load", AFTER),
    Point("open.opened", f"{SERVER}serving:open_store", AFTER),
    Point("commit.appended", f"{STORE}writer:Writer.submit", AFTER, 60),
    Point("commit.wanted", f"{STORE}writer:Writer.kick", BEFORE, 60),
    Point("commit.begun", f"{STORE}merging:Merged.write", BEFORE, 60),
    Point("commit.written", f"{STORE}merging:Merged.write", AFTER, 60),
    Point("commit.history-written", f"{STORE}database:write", AFTER, 30),
    Point("commit.committed", f"{STORE}database:Store._commit", AFTER, 60),
    Point("commit.head-unwritten", f"{STORE}head:HeadFile.write", BEFORE, 2),
    Point("commit.head-written", f"{STORE}head:HeadFile.write", AFTER, 2),
    Point("answer.core-untold", f"{SERVER}perform:Performer._commit", BEFORE, 60),
    Point("answer.core-told", f"{SERVER}perform:Performer._commit", AFTER, 60),
    Point("answer.unsent", f"{SERVER}link:Link.flush", BEFORE, 120),
    Point("answer.sent", f"{SERVER}link:Link.flush", AFTER, 120),
    Point("answer.read", f"{SERVER}intake:Intake.handle", AFTER, 120),
    Point("drain.asked", "intercom.core.draining:Draining._begin", AFTER),
    Point("drain.reading-ended", f"{SERVER}intake:Intake.stop", AFTER),
    Point("drain.core-told", "intercom.core.broker:Broker.draining", AFTER),
    Point("drain.said", f"{SERVER}perform:Performer.fall_silent", BEFORE),
    Point("shutdown.begun", f"{SERVER}serving:Serving.stop", AFTER),
    Point("shutdown.reading-ended", f"{SERVER}intake:Intake.stop", AFTER),
    Point("shutdown.silent", f"{SERVER}perform:Performer.fall_silent", AFTER),
    Point("shutdown.said-goodbye", f"{SERVER}link:Link.shut_down", AFTER),
    Point("shutdown.loop-ended", f"{SERVER}serving:Serving._close", BEFORE),
    Point("shutdown.given-back", f"{SERVER}ownership:Territory.give_back", AFTER),
    Point("shutdown.deaf", f"{SERVER}listener:Listener.close", AFTER),
    Point("shutdown.writer-ended", f"{STORE}writer:Writer.close", AFTER),
    Point("shutdown.store-closed", f"{STORE}database:Store.close", AFTER),
    Point("shutdown.lock-held", f"{SERVER}ownership:HomeLock.release", BEFORE),
    Point("shutdown.lock-free", f"{SERVER}ownership:HomeLock.release", AFTER),
    Point("idle.decided", f"{SERVER}serving:Serving.stop", BEFORE),
    Point("idle.reading-ended", f"{SERVER}intake:Intake.stop", AFTER),
    Point("idle.silent", f"{SERVER}perform:Performer.fall_silent", AFTER),
    Point("idle.loop-ended", f"{SERVER}serving:Serving._close", BEFORE),
    Point("idle.given-back", f"{SERVER}ownership:Territory.give_back", AFTER),
    Point("idle.store-closed", f"{STORE}database:Store.close", AFTER),
    Point("idle.lock-held", f"{SERVER}ownership:HomeLock.release", BEFORE),
    Point("migration.before", f"{STORE}schema:advance", BEFORE),
    Point("migration.tables-made", f"{STORE}schema:fingerprint", BEFORE),
    Point("migration.uncommitted", f"{STORE}schema:advance", AFTER),
    Point("migration.committed", f"{SERVER}serving:open_store", AFTER),
    Point("first.key-written", f"{STORE}pair:write_new", AFTER),
    Point("first.tables-made", f"{STORE}pair:create_identity", AFTER),
    Point("first.all-written", f"{STORE}pair:sync", AFTER),
    Point("first.key-named", "os:rename", AFTER),
    Point("first.half-a-pair", f"{STORE}pair:_rename_database", BEFORE),
    Point("first.pair-named", f"{STORE}pair:_rename_database", AFTER),
)
"""Every named moment of a broker's life."""


def strike(signal_name: str) -> None:
    """Send this process a signal that it cannot catch."""
    os.kill(os.getpid(), getattr(signal, signal_name))


def arm(name: str, signal_name: str, call: int = 1) -> None:
    """Let this process get ``SIGKILL`` or ``SIGSTOP`` at a moment, when it comes for the ``call``-th time."""
    [point] = [point for point in POINTS if point.name == name]
    owner, attribute = _place(point.what)
    left = [call]

    def struck() -> None:
        left[0] -= 1
        if left[0] == 0:
            strike(signal_name)

    _wrap(owner, attribute, point.side, struck)


def _place(what: str) -> tuple[Any, str]:
    module, _, path = what.partition(":")
    owner: Any = importlib.import_module(module)
    *above, attribute = path.split(".")
    for name in above:
        owner = getattr(owner, name)
    return owner, attribute


def _wrap(owner: Any, attribute: str, side: str, struck: Callable[[], None]) -> None:
    real = getattr(owner, attribute)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if side == BEFORE:
            struck()
            return real(*arguments, **options)
        result = real(*arguments, **options)
        struck()
        return result

    setattr(owner, attribute, wrapped)
