"""Be the directory of a broker whose peers are reached through NATS JetStream.

Rule 1: one connection after the other, and each begins with everything anew; so nothing rests on what a connection that
ended may have missed. Rule 2: no rule of the broker is known here.
"""

from __future__ import annotations

import asyncio
import os
import platform
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from intercom.cluster.envelope import Envelope, Foreign, seal, unseal, writer_of
from intercom.cluster.nats.access import Access, NotNow, Unusable, access_to
from intercom.cluster.nats.consumer import Consumer
from intercom.cluster.nats.direct import time_told
from intercom.cluster.nats.engine import Engine, connected, refusals
from intercom.cluster.nats.engine import passed_ms as _passed_ms
from intercom.cluster.nats.homekeys import HomeKeys
from intercom.cluster.nats.leftbehind import LeftBehind
from intercom.cluster.nats.mirror import Lease, Mirror
from intercom.cluster.nats.pump import NotStored, Pump
from intercom.cluster.nats.targetkeys import TargetKeys
from intercom.config import ClusterSettings
from intercom.core.records import (
    Announce,
    Arrived,
    ClaimAddress,
    ClusterState,
    DropAddress,
    HoldTargets,
    PeerFact,
    PeerWork,
    Post,
    Posted,
    RemoteName,
    RemoteReservation,
    RemoteRoute,
    Settle,
    Shelf,
    StoreIdentity,
)
from intercom.limits import (
    CLUSTER_CALL_MS,
    CLUSTER_END_MS,
    CLUSTER_GONE_LOOK_MS,
    CLUSTER_LEASE_MS,
    CLUSTER_LOOK_MS,
    CLUSTER_NAME_CHARACTERS,
    CLUSTER_PAUSE_MOST_MS,
    CLUSTER_PAUSE_MS,
    CLUSTER_RENEW_MS,
    CLUSTER_STAND_IN_MS,
)

ADAPTER = "nats"
_SHELVES: dict[Shelf, Any] = {"restoring": RemoteReservation, "routes": RemoteRoute}
"""What lies where beside leases, sessions and addresses."""


def node_name(settings: ClusterSettings) -> str:
    """Return what this machine is called."""
    host = platform.node().partition(".")[0]
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in host)
    return settings.node or plain[:CLUSTER_NAME_CHARACTERS] or "local"


class Mesh:
    """Hold the way to other brokers.

    Args:
        settings: with at least one server.
        identity: of the store and this process.
        version: of the program.
        started_at: of this process, epoch ms.
        loop: in which everything happens; it need not run yet.
        notify: called when ``done`` has something.
        log: writes a line to the log.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        identity: StoreIdentity,
        version: str,
        started_at: int,
        *,
        loop: asyncio.AbstractEventLoop,
        notify: Callable[[], object],
        log: Callable[..., object],
    ) -> None:
        self._settings = settings
        self._own = identity.broker_id
        self._epoch = identity.epoch
        self._lease = Lease(
            node_name(settings), identity.journal_id, identity.epoch, platform.node(), os.getpid(), version, started_at
        )
        self._loop = loop
        self._notify = notify
        self._log = log
        self._facts: list[PeerFact] = []
        self._mirror = Mirror(self._own)
        self._left_behind = LeftBehind(self._own)
        self._homes = HomeKeys(self._tell, self._sealed, self._address_opened, self._is_foreign)
        self._targets = TargetKeys(self._own, self._tell, self._sealed, self._target_opened)
        self._names: dict[str, RemoteName] = {}
        """For whom this broker answers."""
        self._unwritten: set[str] = set()
        self._shared: dict[tuple[Shelf, str], RemoteReservation | RemoteRoute] = {}
        """What else is said to the others, by where it lies."""
        self._unwritten_shared: set[tuple[Shelf, str]] = set()
        self._must_write = asyncio.Event()
        self._is_filled: set[str] = set()
        self._are_homes_known = asyncio.Event()
        self._leased_at = -CLUSTER_LEASE_MS
        """When the lease was given away last that the engine has (ms, as time passes for others)."""
        self._foreign = 0
        """What came under another key, until nothing of that came for as long as a lease holds."""
        self._foreign_at = 0
        self._foreign_leases: dict[str, int] = {}
        """When each broker was seen last that has a lease under another key (monotonic ms)."""
        self._state = ClusterState("starting", adapter=ADAPTER, prefix=settings.name)
        self._pump: Pump | None = None
        self._consumer: Consumer | None = None
        self._early: list[Post] = []
        """What is to be brought away and came before the key was read."""
        self._was_on = False
        """In this process."""
        self._is_refused = False
        """The last connection ended because the engine stored nothing; it is not called on before it does."""
        self._engine: Engine | None = None
        self._is_closed = False
        self._key = b""
        self._task = loop.create_task(self._run())
        self._facts.append(self._state)
        loop.call_soon(notify)

    # --- what the core asks -----------------------------------------------------------------------------

    def submit(self, work: PeerWork) -> None:
        """Queue work for a peer."""
        if isinstance(work, Post):
            if self._pump is None:
                self._early.append(work)
            else:
                self._pump.submit(work)
        elif isinstance(work, Settle):
            self._settle(work.arrival)
        elif isinstance(work, Announce):
            for name_id, name in work.names.items():
                self._unwritten.add(name_id)
                if name is None:
                    self._names.pop(name_id, None)
                else:
                    self._names[name_id] = name
            for place, shared in work.shared.items():
                self._unwritten_shared.add(place)
                if shared is None:
                    self._shared.pop(place, None)
                else:
                    self._shared[place] = shared
            self._must_write.set()
        elif isinstance(work, ClaimAddress | DropAddress):
            self._homes.submit(work)
        elif isinstance(work, HoldTargets):
            self._targets.submit(work)

    def done(self) -> Sequence[PeerFact]:
        """Return what was heard since the last call, in order."""
        facts, self._facts = self._facts, []
        return facts

    def close(self, timeout_s: float) -> None:
        """Give the lease back, so that others know at once, and end all contact."""
        if self._task.done():
            return
        self._is_closed = True
        self._loop.run_until_complete(self._end(timeout_s))

    async def _end(self, timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._say_goodbye()
        # More than once: the client library takes some cancellations for an error of its own while it connects.
        while not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLUSTER_END_MS / 1000)
            if monotonic() >= deadline:
                return

    # --- life -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_ms = CLUSTER_PAUSE_MS
        looking = asyncio.get_running_loop().create_task(self._look())
        try:
            while not self._is_closed:
                began = monotonic()
                try:
                    reason = await self._live()
                except Unusable as error:
                    reason = str(error)
                except Exception as error:  # a bug here must not cost those on this machine anything
                    reason = f"an internal error: {error!r}"
                    self._log("cluster_error", level="error", reason=reason, traceback=traceback.format_exc())
                if self._state.status == "on" or monotonic() - began > CLUSTER_PAUSE_MOST_MS / 1000:
                    pause_ms = CLUSTER_PAUSE_MS
                self._set_state("unavailable", reason)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, CLUSTER_PAUSE_MOST_MS)
        finally:
            looking.cancel()

    async def _live(self) -> str:
        """Use one connection from its beginning to its end; return why it ended."""
        access = access_to(self._settings)
        self._begin(access)
        assert self._pump is not None and self._consumer is not None
        engine = await connected(self._settings, access, name=f"intercom {self._lease.node}")
        self._engine = engine
        try:
            self._consumer.begin_anew()
            self._is_filled.clear()
            self._are_homes_known.clear()
            await self._prepare_or_stand_in(engine)
            self._must_write.set()
            self._mirror.begin_anew()
            self._left_behind.begin_anew()
            self._homes.begin_anew()
            return await self._first_to_end(
                engine,
                self._wait_for_loss(engine),
                self._renew(engine),
                self._write_names(engine),
                engine.watch("brokers", self._lease_told, lambda: self._filled("leases")),
                engine.watch("sessions", self._name_told, lambda: self._filled("sessions")),
                *(engine.watch(shelf, self._told_of(shelf), partial(self._filled, shelf)) for shelf in _SHELVES),
                engine.watch("addresses", self._homes.told, self._homes_known),
                self._homes.run(engine),
                self._targets.run(engine),
                self._answer_pings(engine),
                self._hear_calls(engine),
                self._tell_time(engine),
                self._take_out(engine),
                self._pump.run(engine),
                self._fetch(engine, self._consumer),
                self._listen(engine, self._consumer),
                self._consumer.tell_settled(engine),
            )
        finally:
            self._engine = None
            await engine.close()

    async def _prepare_or_stand_in(self, engine: Engine) -> None:
        """Make what is needed in the engine; for as long as that cannot be, stand in for it.

        Whoever leads in the engine may be lost, and the next one is elected within seconds. For others this broker is
        there meanwhile, as they are for it: letters go to them directly, by what this broker knew last of them. Not
        while they are not told yet who is expected back here: that is known before the way is said to be on.
        """
        is_told = all(shelf != "restoring" for shelf, _ in self._unwritten_shared)
        may_stand_in = self._was_on and self._is_leased() and is_told
        preparing = asyncio.get_running_loop().create_task(self._prepare(engine))
        helping: list[asyncio.Task[None]] = []
        try:
            if may_stand_in:
                done, _ = await asyncio.wait({preparing}, timeout=CLUSTER_STAND_IN_MS / 1000)
                if not done:
                    assert self._pump is not None and self._consumer is not None
                    helps = (
                        self._pump.run(engine, stores=False),
                        self._consumer.listen(engine),
                        self._consumer.tell_settled(engine),
                        self._call(engine),
                        self._hear_calls(engine),
                        self._tell_time(engine),
                        self._answer_pings(engine),
                        self._keep_lease(engine),
                        self._wait_for_loss(engine),
                    )
                    helping = [asyncio.get_running_loop().create_task(each) for each in helps]
                    self._set_state("on", "the engine stores nothing just now, letters go to other brokers directly")
                    done, _ = await asyncio.wait({preparing, *helping}, return_when=asyncio.FIRST_COMPLETED)
                    if preparing not in done:
                        with refusals():
                            for task in done:
                                await task
                        raise Unusable("the connection to the engine was lost")
            await preparing
        finally:
            await _end_all([preparing, *helping])
            for task in (preparing, *helping):
                _noticed(task)

    async def _prepare(self, engine: Engine) -> None:
        """Make what is needed in the engine, and write what others have to know before the way is said to be on."""
        assert self._consumer is not None
        while True:
            try:
                await engine.prepare()
                with refusals():
                    await self._consumer.prepare(engine)
                    await self._write_lease(engine)
                self._unwritten.update(self._names)
                self._unwritten_shared.update(self._shared)
                with refusals():
                    await self._write_shared(engine)
                return
            except NotNow:
                if not self._is_leased():
                    raise
                await asyncio.sleep(CLUSTER_PAUSE_MS / 1000)

    def _begin(self, access: Access) -> None:
        """Take the key, when it is read for the first time or has changed."""
        if self._pump is None or access.key != self._key:
            waiting = self._early if self._pump is None else self._pump.waiting()
            self._early = []
            self._key = access.key
            self._pump = Pump(access.key, self._own, self._epoch, self._posted)
            self._consumer = Consumer(access.key, self._own, self._arrived, self._dropped)
            for post in waiting:
                self._pump.submit(post)

    async def _first_to_end(self, engine: Engine, *running: Coroutine[Any, Any, None]) -> str:
        from nats.errors import Error

        tasks = [asyncio.get_running_loop().create_task(each) for each in running]
        for task in tasks:
            task.add_done_callback(_noticed)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end_all(tasks)
        for task in done:
            error = task.exception()
            if isinstance(error, Unusable):
                self._is_refused = isinstance(error, NotStored)
                return str(error)
            if error is not None and not isinstance(error, Error | OSError | TimeoutError):
                raise error
            if error is not None and not engine.lost.is_set():
                return f"the engine failed: {error or type(error).__name__}"
        return f"the connection to the engine was lost{': ' + engine.trouble if engine.trouble else ''}"

    async def _fetch(self, engine: Engine, consumer: Consumer) -> None:
        """Fetch once it is known where the addresses are at home: what was left here for one may have moved with it."""
        await self._are_homes_known.wait()
        await consumer.run(engine)

    async def _listen(self, engine: Engine, consumer: Consumer) -> None:
        """Take what is brought directly, from the same moment on."""
        await self._are_homes_known.wait()
        await consumer.listen(engine)

    async def _wait_for_loss(self, engine: Engine) -> None:
        await engine.lost.wait()

    async def _look(self) -> None:
        """Let leases end, whether there is a connection or not."""
        while True:
            await asyncio.sleep(CLUSTER_LOOK_MS / 1000)
            self._tell_of_peers()
            self._forget_foreign()

    # --- the lease, and for whom this broker answers ----------------------------------------------------

    async def _renew(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(CLUSTER_RENEW_MS / 1000)
            self._require_lease()
            await self._write_lease(engine)

    async def _write_lease(self, engine: Engine) -> None:
        now = _passed_ms()
        await engine.put("brokers", self._own, self._sealed("lease", self._lease))
        self._leased_at = now

    async def _keep_lease(self, engine: Engine) -> None:
        """Renew the lease while not all can be prepared: whoever leads there may be elected before others are."""
        while True:
            with suppress(Unusable), refusals():
                await self._write_lease(engine)
            await asyncio.sleep(CLUSTER_LOOK_MS / 1000)

    def _require_lease(self) -> None:
        """Raise ``Unusable`` once others may have taken this broker for away, and its addresses to other machines.

        What is on its way on this connection may be older than what is to be heard of that: the next one begins anew.
        """
        if not self._is_leased():
            raise Unusable("this machine, or the broker, stood still for longer than its lease holds")

    def _is_leased(self) -> bool:
        return _passed_ms() - self._leased_at < CLUSTER_LEASE_MS

    async def _write_names(self, engine: Engine) -> None:
        while True:
            await self._must_write.wait()
            self._must_write.clear()
            unwritten, self._unwritten = self._unwritten, set()
            try:
                while unwritten:
                    name_id = min(unwritten)
                    name, key = self._names.get(name_id), f"{self._own}.{name_id}"
                    if name is None:
                        await engine.sessions.purge(key)
                    else:
                        await engine.sessions.put(key, self._sealed("name", name))
                    unwritten.discard(name_id)
            finally:
                self._unwritten |= unwritten
            await self._write_shared(engine)

    async def _write_shared(self, engine: Engine) -> None:
        """Write what else is said; before the way is said to be on all of it is known to the others."""
        while self._unwritten_shared:
            shelf, key = place = min(self._unwritten_shared)
            shared = self._shared.get(place)
            if shared is None:
                await engine.shelves[shelf].purge(key)
            else:
                await engine.shelves[shelf].put(key, self._sealed(shelf, shared))
            self._unwritten_shared.discard(place)

    def _sealed(self, kind: str, value: Any) -> bytes:
        return seal(self._key, kind, encode(value), from_broker=self._own, epoch=self._epoch)

    async def _say_goodbye(self) -> None:
        engine = self._engine
        if engine is None or engine.lost.is_set():
            return
        with suppress(Exception):  # whatever is wrong: the lease ends by itself
            await engine.leases.delete(self._own)
            await asyncio.gather(
                *(engine.sessions.purge(f"{self._own}.{name_id}") for name_id in self._names),
                *(engine.shelves[shelf].purge(key) for shelf, key in self._shared),
            )

    async def _answer_pings(self, engine: Engine) -> None:
        await self._answer(engine, engine.ping_subject(self._own), lambda asked: self._sealed("pong", self._lease))

    async def _tell_time(self, engine: Engine) -> None:
        """Tell what time it is here: what comes directly from this broker is of use until a time by its clock."""
        await self._answer(
            engine, engine.clock_subject(self._own), lambda asked: time_told(self._key, self._own, asked)
        )

    async def _answer(self, engine: Engine, subject: str, answer: Callable[[bytes], bytes]) -> None:
        questions = await engine.client.subscribe(subject)
        try:
            async for question in questions.messages:
                await question.respond(answer(question.data))
        finally:
            with suppress(Exception):  # the connection may have ended
                await questions.unsubscribe()

    async def _call(self, engine: Engine) -> None:
        """Ask the others to give directly what is for this broker, as the engine may store it and hand nothing out."""
        while True:
            await engine.client.publish(engine.call_subject, self._sealed("call", self._own))
            await asyncio.sleep(CLUSTER_CALL_MS / 1000)

    async def _hear_calls(self, engine: Engine) -> None:
        calls = await engine.client.subscribe(engine.call_subject)
        try:
            async for call in calls.messages:
                with suppress(Foreign):
                    caller = unseal(self._key, call.data).from_broker
                    if self._pump is not None and caller != self._own:
                        self._mirror.is_there(caller, _now())
                        self._pump.call(caller)
        finally:
            with suppress(Exception):  # the connection may have ended
                await calls.unsubscribe()

    async def _take_out(self, engine: Engine) -> None:
        """Take out what brokers have left that have been away for long, for the life of the connection."""
        while True:
            await asyncio.sleep(CLUSTER_GONE_LOOK_MS / 1000)
            for left in self._left_behind.due(self._mirror, _now()):
                with suppress(Unusable), refusals():
                    _, lease = await engine.get("brokers", left.broker_id)
                    if lease is None:
                        await engine.delete_if(left.bucket, left.key, left.revision)

    # --- what is heard ----------------------------------------------------------------------------------

    def _lease_told(self, broker_id: str, data: bytes | None, revision: int) -> None:
        self._foreign_leases.pop(broker_id, None)
        if data is None:
            self._mirror.lease_ended(broker_id)
        else:
            envelope = self._opened(data, broker_id, "lease")
            if envelope is None:
                self._foreign_leases[broker_id] = _now()
            else:
                with suppress(DecodeError):
                    self._mirror.lease_seen(broker_id, decode(envelope.body, type=Lease), _now())
        self._tell_of_peers()

    def _name_told(self, key: str, data: bytes | None, revision: int) -> None:
        broker_id, _, name_id = key.partition(".")
        self._left_behind.seen("sessions", key, None if data is None else broker_id, revision)
        if data is None:
            self._mirror.name_seen(broker_id, name_id, 0, None)
            if broker_id == self._own and name_id in self._names:
                self._unwritten.add(name_id)  # somebody took this one for gone, or it has come back meanwhile
                self._must_write.set()
        else:
            envelope = self._opened(data, broker_id, "name", is_told=self._is_foreign(broker_id))
            if envelope is not None:
                if broker_id == self._own and name_id not in self._names:
                    self._unwritten.add(name_id)  # of an earlier process, or it left while there was no connection
                    self._must_write.set()
                with suppress(DecodeError):
                    name = decode(envelope.body, type=RemoteName)
                    self._mirror.name_seen(broker_id, name_id, envelope.epoch, name)
        self._tell_of_peers()

    def _told_of(self, shelf: Shelf) -> Callable[[str, bytes | None, int], None]:
        return lambda key, data, revision: self._shared_told(shelf, key, data, revision)

    def _shared_told(self, shelf: Shelf, key: str, data: bytes | None, revision: int) -> None:
        envelope = None
        if data is not None:
            envelope = self._opened(data, "", shelf, is_told=self._is_foreign(writer_of(data)))
        elif (shelf, key) in self._shared:
            self._unwritten_shared.add((shelf, key))  # as with sessions
            self._must_write.set()
        self._left_behind.seen(shelf, key, None if envelope is None else envelope.from_broker, revision)
        if envelope is None or envelope.from_broker == self._own:
            if envelope is not None and (shelf, key) not in self._shared:
                self._unwritten_shared.add((shelf, key))  # of an earlier process, or it ended while it was cut off
                self._must_write.set()
            self._mirror.shared_seen(shelf, key, None, 0, None)
        else:
            with suppress(DecodeError):
                shared = decode(envelope.body, type=_SHELVES[shelf])
                self._mirror.shared_seen(shelf, key, envelope.from_broker, envelope.epoch, shared)
        self._tell_of_peers()

    def _address_opened(self, data: bytes) -> Envelope | None:
        return self._opened(data, "", "address", is_told=self._is_foreign(writer_of(data)))

    def _target_opened(self, data: bytes) -> Envelope | None:
        return self._opened(data, "", "target", is_told=self._is_foreign(writer_of(data)))

    def _opened(self, data: bytes, broker_id: str, kind: str, *, is_told: bool = True) -> Envelope | None:
        """Return what a broker wrote; the id is empty where any may have.

        What lies there of a broker that is not there under another key is of a mistake long mended: nobody is told.
        """
        try:
            envelope = unseal(self._key, data)
            if (broker_id and envelope.from_broker != broker_id) or envelope.kind != kind:
                raise Foreign("it is in another's place")
        except Foreign as why:
            if is_told:
                self._dropped(str(why))
            return None
        return envelope

    def _is_foreign(self, broker_id: str) -> bool:
        seen = self._foreign_leases.get(broker_id)
        return seen is not None and _now() - seen < CLUSTER_LEASE_MS

    def _forget_foreign(self) -> None:
        if self._foreign and _now() - self._foreign_at >= CLUSTER_LEASE_MS:
            self._foreign = 0
            self._set_state(self._state.status, self._state.reason)

    def _homes_known(self) -> None:
        self._homes.is_whole()
        self._filled("addresses")
        self._are_homes_known.set()

    def _filled(self, what: Any) -> None:
        self._is_filled.add(what)
        if what == "sessions":
            self._mirror.is_whole()
        elif what in _SHELVES:
            self._mirror.shelf_is_whole(what)
        self._tell_whether_on()

    def _tell_whether_on(self) -> None:
        is_refused = self._is_refused and self._pump is not None and len(self._pump) > 0
        if self._is_filled == {"leases", "sessions", "addresses", *_SHELVES} and not is_refused:
            self._is_refused = False
            self._was_on = True
            self._tell_of_peers()
            self._set_state("on", "")

    def _tell_of_peers(self) -> None:
        if facts := self._mirror.facts(_now()):
            self._tell(*facts)

    def _posted(self, post: Post) -> None:
        if self._is_refused:
            self._is_refused = False
            self._tell_whether_on()
        self._tell(Posted(post.number))
        if post.settles:
            self._settle(post.settles)

    def _settle(self, arrival: int) -> None:
        if self._consumer is not None:
            self._consumer.settle(arrival)

    def _arrived(self, arrival: int, envelope: Envelope, valid_until: int | None) -> None:
        self._require_lease()
        body = bytes(envelope.body)
        self._tell(Arrived(arrival, envelope.from_broker, envelope.kind, envelope.delivery_id, body, valid_until))

    def _dropped(self, why: str) -> None:
        self._foreign += 1
        self._foreign_at = _now()
        self._log("cluster_foreign", level="warning", reason=why)
        self._set_state(self._state.status, self._state.reason)

    def _set_state(self, status: Any, reason: str) -> None:
        state = ClusterState(status, reason, ADAPTER, self._settings.name, self._foreign)
        if state != self._state:
            if (status, reason) != (self._state.status, self._state.reason):
                self._log("cluster", status=status, **({"reason": reason} if reason else {}))
            self._state = state
            self._tell(state)

    def _tell(self, *facts: PeerFact) -> None:
        if not self._facts:
            self._loop.call_soon(self._notify)
        self._facts.extend(facts)


def _noticed(task: asyncio.Task[None]) -> None:
    """Take note that a task has ended: once the connection is given up it does not matter how."""
    if not task.cancelled():
        task.exception()


async def _end_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: where something comes at the moment of its cancellation, that can be lost."""
    while waiting := [task for task in tasks if not task.done()]:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=CLUSTER_END_MS / 1000)


def _now() -> int:
    return int(monotonic() * 1000)
