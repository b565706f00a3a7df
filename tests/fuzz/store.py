"""Change what is in a real store, row by row and column by column, and let a broker serve what it then finds.

The store is one that many sessions have used. After the damage it is refused with a reason, or the broker works: who
is new can talk, whatever is asked about what is damaged is answered, and no deadline brings it down.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from intercom.core.broker import Broker
from intercom.core.effects import Append
from intercom.core.records import ReadBodies, ReadJournal, ReadOperations, StoreIdentity
from intercom.paths import Paths, prepare_home
from intercom.store.database import Store
from intercom.store.failures import CommitFailed, StoreUnusable
from intercom.store.loading import text_or_bytes
from intercom.store.reader import _answer
from intercom.wire.codec import encode
from intercom.wire.frames import Registered, RegistrationFailed
from tests.core.harness import INFO, INSTANCE
from tests.fuzz.chance import ODD_NUMBERS, odd_text
from tests.fuzz.core import ROOMY, Fuzz, FuzzWorld
from tests.fuzz.mutations import spoilt_bytes
from tests.fuzz.shapes import ALL_FEATURES, NAMES
from tests.fuzz.tally import Tally

STORES = 8
LONGEST_S = 10.0
LIVED = (3, 11, 15)
"""Numbers of the worlds that leave stores behind."""
FRAMES = 700
ASKED = (
    "session_records", "addresses", "mailbox", "pending", "inbox_list", "inbox_presence", "assignment_list",
    "flow_list", "flow_collect", "links", "commands", "invocation_list", "policies", "waits", "mail_peek", "mail_fetch",
)  # fmt: skip
MEMORY = Path("/dev/shm")


def play(number: int) -> Tally:
    """Damage stores, each in its own way."""
    chance, tally = random.Random(number), Tally()
    with tempfile.TemporaryDirectory(prefix="ic-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        whole = Path(place, "whole").resolve()
        lived = chance.choice(LIVED)
        appends = _lived(lived)
        _write(Paths(whole), appends[1], appends[0])
        for _ in range(STORES):
            home = Path(place, "home").resolve()
            shutil.copytree(whole, home)
            said = _damage(Paths(home).database, chance)
            begun = time.thread_time()
            try:
                _serve(Paths(home), appends[0])
            except Exception as error:
                raise AssertionError(f"after {said}") from error
            tally.count(time.thread_time() - begun, said, LONGEST_S)
            shutil.rmtree(home)
    return tally


class _Recording(Fuzz):
    """Live through a world and keep what was committed in it."""

    def __init__(self, number: int) -> None:
        super().__init__(number, FRAMES)
        self.committed: list[Append] = []
        commit = self.world.disk.commit
        self.is_tight = True  # the witnesses are no matter here

        def record(append: Append) -> None:
            self.committed.append(append)
            commit(append)

        self.world.disk.commit = record  # type: ignore[method-assign]

    def _restart(self) -> None:
        """Go on with the same broker: the appends of one are wanted."""
        self.world.stopped.clear()

    def _say_last_orders(self) -> None:
        """Leave the sessions where they are."""

    def _leave(self) -> None:
        """Leave everything open."""


@cache
def _lived(number: int) -> tuple[int, list[Append]]:
    world = _Recording(number)
    world.play()
    return world.world.wall, world.committed


def _write(paths: Paths, appends: list[Append], wall: int) -> None:
    prepare_home(paths)
    store = Store.open(paths, wall)
    for append in appends:
        store.commit([(append.ticket, append.changes)])
    store.close()


def _damage(database: Path, chance: random.Random) -> str:
    """Change one to three places; return what was done."""
    said = []
    connection = sqlite3.connect(database, isolation_level=None)
    connection.text_factory = text_or_bytes
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [name for name in tables if connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone()]
        for _ in range(chance.choice((1, 1, 2, 3))):
            table = chance.choice(filled)
            try:
                said.append(_damage_table(connection, table, chance))
            except sqlite3.Error as error:
                said.append(f"{table}: {error}")
    finally:
        connection.close()
    return "; ".join(said)


def _damage_table(connection: sqlite3.Connection, table: str, chance: random.Random) -> str:
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    keys = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")') if row[5]]
    (count,) = connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
    at = chance.randrange(max(count, 1))
    found = connection.execute(f'SELECT "{keys[0]}" FROM "{table}" ORDER BY 1 LIMIT 1 OFFSET {at}').fetchone()
    if found is None:
        return f"{table} is empty"
    draw = chance.random()
    if draw < 0.1:
        connection.execute(f'DELETE FROM "{table}" WHERE "{keys[0]}" = ?', found)
        return f"{table} {found} deleted"
    if draw < 0.13:
        connection.execute(f'DELETE FROM "{table}"')
        return f"{table} emptied"
    if draw < 0.15:
        connection.execute(f'DROP TABLE "{table}"')
        return f"{table} dropped"
    if draw < 0.17:
        column = chance.choice(columns)
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        return f"{table}.{column} dropped"
    column = chance.choice(columns)
    (old,) = connection.execute(f'SELECT "{column}" FROM "{table}" WHERE "{keys[0]}" = ?', found).fetchone()
    new = _other(old, chance)
    if draw < 0.3:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (new,))
        return f"{table}.{column} is {new!r:.100} everywhere"
    if draw < 0.4:
        listed = ", ".join(f'"{each}"' for each in columns)
        values = ", ".join("?" if each == column else f'"{each}"' for each in columns)
        connection.execute(
            f'INSERT OR IGNORE INTO "{table}" ({listed}) SELECT {values} FROM "{table}" WHERE "{keys[0]}" = ?',
            (new, *found),
        )
        return f"{table} {found} doubled with {column} {new!r:.100}"
    connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{keys[0]}" = ?', (new, *found))
    return f"{table}.{column} of {found} was {old!r:.100} and is {new!r:.100}"


def _other(old: Any, chance: random.Random) -> Any:
    draw = chance.random()
    if draw < 0.15:
        return None
    if draw < 0.4 and isinstance(old, (str, bytes)):
        content = spoilt_bytes(old if isinstance(old, bytes) else old.encode(), chance)
        return content if isinstance(old, bytes) else content.decode(errors="replace")
    if draw < 0.5 and isinstance(old, int):
        return old + chance.choice((-1, 1, 10**6))
    if draw < 0.7:
        return chance.choice([each for each in ODD_NUMBERS if abs(each) < 2**63])
    if draw < 0.8:
        return chance.randbytes(chance.choice((0, 5, 32)))
    return chance.choice((odd_text(chance), "mail:1", "session:1", "[]", "{}", '[{"a":1}]', "null", "accepted", "gone"))


class _StoredWorld(FuzzWorld):
    """Play everything around a broker that found a store, and commit to it."""

    def __init__(self, fuzz: Any, store: Store, wall: int) -> None:
        self.store = store
        self.first_wall = wall
        super().__init__(fuzz, ROOMY)

    def start(self) -> None:
        super().start()
        self.last_sequence = self.store.recovered.last_sequence
        self.wall = self.first_wall
        store = self.store
        self.broker = Broker(
            key=store.key,
            ids=self.ids,
            instance_id=INSTANCE,
            pid=77,
            limits=self.limits,
            recovered=store.recovered,
            now=self.now,
            identity=StoreIdentity(store.broker_id, store.journal_id, store.epoch),
        )
        self.perform(self.broker.started())

    def commit(self, count: int | None = None) -> None:
        """Commit to the store; what it does not take, the core hears of."""
        if not self.appends:
            return
        batch = [(append.ticket, append.changes) for append in self.appends]
        self.appends.clear()
        auto, self.auto = self.auto, False
        try:
            self.store.commit(batch)
        except CommitFailed as failure:
            for write in [write for write in self.waiting if write.after >= batch[0][0]]:
                self.waiting.remove(write)
            self.committed = self.last_ticket
            self.perform(self.broker.commit_failed(batch[0][0], failure.reason, failure.final, self.now))
        else:
            self.committed = batch[-1][0]
            self.perform(self.broker.committed(self.committed, self.now))
        self.auto = auto

    def read(self, *, fails: bool = False) -> None:
        """Read from the store."""
        auto, self.auto = self.auto, False
        for _ in range(len(self.reads)):
            request = self.reads.popleft()
            try:
                result = _answer(self.store._connection, request)
            except (sqlite3.Error, StoreUnusable):
                result = None
            if isinstance(request, ReadBodies):
                self.perform(self.broker.bodies_read(request.token, request.numbers, result, self.now))
            elif isinstance(request, ReadJournal):
                self.perform(self.broker.journal_read(request.token, result, self.now))
            elif isinstance(request, ReadOperations):
                self.perform(self.broker.operations_read(result, self.now))
            else:
                self.perform(self.broker.history_read(request.token, result, self.now))
        self.auto = auto


class _Shown:
    """Keep what is shown to anybody."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def show(self, conn: int, frame: Any) -> None:
        """Take note, and see that it can be written."""
        encode(frame)
        self.frames.append(frame)

    def has_answer(self, request_id: str) -> bool:
        """Tell whether a request was answered."""
        return any(getattr(frame, "request_id", None) == request_id for frame in self.frames)


def _serve(paths: Paths, wall: int) -> None:
    """Open a store as a broker does, and do with it what sessions do."""
    try:
        store = Store.open(paths, wall)
    except StoreUnusable as error:
        assert error.code and error.reason
        return
    shown = _Shown()
    try:
        world = _StoredWorld(shown, store, wall)
        _use(world, shown)
    finally:
        store.close()


def _use(world: _StoredWorld, shown: _Shown) -> None:
    profile = {"acknowledgesReceipt": True, "clientProtocolVersion": "1.0", "kind": "custom", "workMode": "resident"}
    worker = {**profile, "features": list(ALL_FEATURES)}
    sessions = []
    for name, more in (("new-a", {}), ("new-b", {}), ("op", {"recipientPurpose": "control"})):
        conn = world.connect()
        world.send(conn, type="register", session={**INFO, "name": name, **more}, **worker)
        told = [frame for frame in shown.frames if isinstance(frame, (Registered, RegistrationFailed))]
        assert len(told) == len(sessions) + 1, "no answer to a registration"
        registered = told[-1]
        sessions.append((conn, getattr(registered, "session_id", "")))
    for (conn, _), (other, target) in (sessions[:2], sessions[1::-1]):
        if conn in world.open and other in world.open:
            message = {"id": f"new-{conn}", "timestamp": 1, "content": {"text": "x"}}
            world.send(conn, type="send", to=target, message=message, attemptId="a")
            world.send(other, type="received", messageId=f"new-{conn}")
            assert any(getattr(frame, "attempt_id", None) == "a" for frame in shown.frames), "no answer to a send"
    for conn, _ in sessions:
        for kind in ASKED:
            _ask(world, shown, conn, kind)
        for message_id in [record.message_id for record in world.store.recovered.mail][:3]:
            _ask(world, shown, conn, "trace", messageId=message_id)
        _ask(world, shown, conn, "watch", afterSeq=0, journalId=world.store.journal_id)
        for flow in world.store.recovered.flows[:3]:
            _ask(world, shown, conn, "flow_status", flowId=flow.flow_id)
        for invocation in world.store.recovered.invocations[:3]:
            _ask(world, shown, conn, "invocation_get", invocationId=invocation.invocation_id)
        for link in world.store.recovered.links[:3]:
            _ask(world, shown, conn, "link_events", linkId=link.link_id)
    for name in NAMES[:5]:
        conn = world.connect()
        world.send(conn, type="register", session={**INFO, "name": name}, **worker)
    world.pass_time(130_000)
    world.pass_time(600_000)


def _ask(world: _StoredWorld, shown: _Shown, conn: int, kind: str, **members: Any) -> None:
    if conn not in world.open:
        return
    request_id = f"{kind} {conn} {members}"[:60]
    world.send(conn, type=kind, requestId=request_id, **members)
    assert shown.has_answer(request_id), f"no answer to {kind}"
