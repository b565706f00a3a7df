"""Have real sessions do everything a broker is for, and keep the account of what became of it.

Each thing that is begun has an entry in the ledger until it is known what became of it, and each recipient notes what
it was shown. ``faults`` compares the two: what was called delivered was seen, what was refused was not, and nothing was
seen twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from intercom.client import aio
from intercom.errors import (
    AskError,
    BrokerError,
    IntercomError,
    NoBroker,
    NotNow,
    OutcomeUnknown,
    RequestRefused,
    RouteUnclear,
    SendError,
)
from intercom.paths import Paths

PATIENCE_S = 120.0
"""Longest that one thing may take while brokers die one after the other."""
POLL_S = 0.01
VISIT_S = 0.3
"""How long who is mostly away looks into the mailbox."""
DELIVERED, QUEUED, REFUSED, UNKNOWN = "delivered", "queued", "refused", "unknown"
Result = TypeVar("Result")


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    while True:
        if condition():
            return
        await asyncio.sleep(POLL_S)


class Ledger:
    """Keep what was begun and what was seen."""

    def __init__(self) -> None:
        self.fates: dict[str, str] = {}
        self.seen: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._number = 0

    def name(self, kind: str) -> str:
        """Return a text that was never used."""
        self._number += 1
        return f"{kind}-{self._number}"

    def fate(self, text: str, fate: str) -> None:
        """Note what its sender was told of a text."""
        self.fates[text] = fate
        self.done[f"{text.partition('-')[0]} {fate}"] += 1
        if fate == DELIVERED and not self.seen[text]:
            self.wrong.append(f"{text} was called delivered before it was seen")

    def saw(self, text: str) -> None:
        """Note that a recipient has a text."""
        self.seen[text] += 1
        if self.seen[text] > 1:
            self.wrong.append(f"{text} was seen {self.seen[text]} times")
        if self.fates.get(text) == REFUSED:
            self.wrong.append(f"{text} was refused and is seen all the same")

    def faults(self) -> list[str]:
        """Return what is wrong when everything that was begun has come to its end, and begin anew."""
        faults, self.wrong = self.wrong, []
        for text, fate in self.fates.items():
            if fate in (DELIVERED, QUEUED) and not self.seen[text]:
                faults.append(f"{text} was called {fate} and is lost")
            if fate == REFUSED and self.seen[text]:
                faults.append(f"{text} was refused and was seen")
        self.fates.clear()
        self.seen.clear()
        return faults

    def lost(self) -> int:
        """Return how many things that must arrive have not been seen yet."""
        return sum(not self.seen[text] for text, fate in self.fates.items() if fate in (DELIVERED, QUEUED))


class Work:
    """Hold the sessions and what they do, over and over, while ``going`` is set."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.ledger = Ledger()
        self.going = asyncio.Event()
        self.busy = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._last_event = 0
        self._stored: Counter[str] = Counter()
        """How often the broker has the event of each command."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have all sessions here for the length of the block; a broker must be there."""
        async with AsyncExitStack() as stack:

            async def come(name: str, **profile: Any) -> aio.Session:
                return await stack.enter_async_context(self.connect(name, **profile))

            ada, bob = await come("ada", address=True), await come("bob", address=True)
            cyd, lead = await come("cyd"), await come("lead", coordinator=True)
            pat, wes = await come("pat", address=True), await come("wes", work_mode="resident", address=True)
            flo = await come("flo", address=True, flows=True)
            dur = await come("dur", address=True, durable=True)
            person = await come("person", purpose="control")
            async with self.connect("eve", address=True):
                pass  # so that the address is known
            over_and_over: dict[str, Callable[[], Awaitable[None]]] = {
                "send": lambda: self._send(ada, "bob", "plain"),
                "send back": lambda: self._send(pat, "ada", "back"),
                "ask": lambda: self._ask(cyd, "bob"),
                "mail": lambda: self._send(ada, "eve", "mail"),
                "visit": self._visit,
                "work": lambda: self._hand_out(pat, lead, wes),
                "flow": lambda: self._flow(lead),
                "invocation": lambda: self._invoke(cyd, bob),
                "command": lambda: self._command(person),
            }
            self._tasks = [asyncio.create_task(self._again(what, one)) for what, one in over_and_over.items()]
            for session in (bob, ada, pat):
                self._tasks.append(asyncio.create_task(self._listen(session)))
            self._tasks.append(asyncio.create_task(self._labour(wes)))
            self._tasks.append(asyncio.create_task(self._steps(flo)))
            self._tasks.append(asyncio.create_task(self._carry_out(dur)))
            try:
                yield
            finally:
                for task in self._tasks:
                    task.cancel()
                ended = await asyncio.gather(*self._tasks, return_exceptions=True)
                self.ledger.wrong += [
                    f"a session failed: {type(one).__name__}: {one}" for one in ended if isinstance(one, Exception)
                ]

    def connect(self, name: str, **profile: Any) -> Any:
        """Return the block of a session."""
        return aio.connect(name, home=self.paths.home, start=False, timeout=PATIENCE_S, **profile)

    async def settle(self) -> None:
        """Begin nothing new, and wait until everything that was begun has come to its end."""
        self.going.clear()
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await until(lambda: not self.busy)
                while self.ledger.lost():
                    await self._visit()
        except TimeoutError:
            self.ledger.wrong.append(f"{self.busy} things have not come to an end")
        self.ledger.wrong += [
            f"a session failed: {task.exception()!r}" for task in self._tasks if task.done() and not task.cancelled()
        ]

    async def _again(self, what: str, one: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.going.wait()
            self.busy += 1
            try:
                await one()
            except NoBroker:
                self.ledger.done["found nobody"] += 1
                await asyncio.sleep(0.1)
            except (IntercomError, TimeoutError) as error:
                self.ledger.wrong.append(f"{what}: {error!r}")
            finally:
                self.busy -= 1
            await asyncio.sleep(0.002)

    async def _insist(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Do what may be done again until it is done."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await call()
                except (BrokerError, NotNow, RouteUnclear) as error:
                    self.ledger.done[f"again after {error.code}"] += 1
                except RequestRefused as error:
                    if error.retry == "never" and error.code != "store_unusable":  # of who replaced a broker
                        raise
                    self.ledger.done[f"again after {error.code}"] += 1
                await asyncio.sleep(0.05)

    # --- messages

    async def _send(self, session: aio.Session, target: str, kind: str) -> None:
        text = self.ledger.name(kind)
        try:
            receipt = await session.send(target, text, timeout=PATIENCE_S)
        except OutcomeUnknown:
            self.ledger.fate(text, UNKNOWN)
        except (SendError, BrokerError):
            self.ledger.fate(text, REFUSED)
        else:
            self.ledger.fate(text, receipt.state)

    async def _listen(self, session: aio.Session) -> None:
        async for message in session.messages():
            if message.invocation is not None:
                if not message.invocation.is_cancelled:
                    self.ledger.saw(message.text)
                    await self._insist(lambda m=message: m.invocation.complete(output=f"did {m.text}"))  # type: ignore[misc]
                continue
            if message.reply_to is not None:
                self.ledger.saw(f"answer to {message.reply_to}")
                continue
            self.ledger.saw(message.text)
            if message.expects_reply:
                try:
                    await message.reply(f"re {message.text}")
                except (SendError, BrokerError) as error:
                    self.ledger.done[f"reply {error.code}"] += 1

    async def _ask(self, session: aio.Session, target: str) -> None:
        text = self.ledger.name("ask")
        try:
            answer = await session.ask(target, text, timeout=PATIENCE_S)
        except (AskError, SendError, BrokerError) as error:
            self.ledger.done[f"ask {error.code}"] += 1
            if not isinstance(error, OutcomeUnknown | AskError):
                self.ledger.fate(text, REFUSED)
            return
        if answer.text != f"re {text}":
            self.ledger.wrong.append(f"the answer to {text} is {answer.text}")
        self.ledger.fate(text, DELIVERED)

    async def _visit(self) -> None:
        async with self.connect("eve", address=True) as eve:
            try:
                async with asyncio.timeout(VISIT_S):
                    async for message in eve.messages():
                        self.ledger.saw(message.text)
            except TimeoutError:
                return

    # --- work

    async def _hand_out(self, sender: aio.Session, lead: aio.Session, worker: aio.Session) -> None:
        text = self.ledger.name("work")
        receipt = await self._insist(lambda: sender.send("wes", text, message_id=text, timeout=PATIENCE_S))
        if receipt.state != QUEUED:
            self.ledger.wrong.append(f"{text} was {receipt.state}, not parked")
        orders = 0
        async with asyncio.timeout(PATIENCE_S):
            while not self.ledger.seen[f"answer to {text}"]:
                page = await self._insist(lead.inbox)
                for item in page.items:
                    if item.preview == text and item.assignment_id is None:
                        orders += 1
                        await self._order(lead, item.id, worker, f"{text}/{orders}")
                await asyncio.sleep(0.02)
        self.ledger.fate(text, DELIVERED)

    async def _order(self, lead: aio.Session, inbox_id: str, worker: aio.Session, key: str) -> None:
        try:
            await self._insist(lambda: lead.dispatch(inbox_id, worker.id, key=key, timeout=PATIENCE_S))
        except RequestRefused as error:
            self.ledger.done[f"dispatch {error.code}"] += 1

    async def _labour(self, worker: aio.Session) -> None:
        async for work in worker.assignments(accept=True):
            self.ledger.saw(work.text)
            await self._insist(lambda w=work: w.reply(f"did {w.text}"))  # type: ignore[misc]

    async def _flow(self, lead: aio.Session) -> None:
        name = self.ledger.name("flow")
        steps = [(step, f"{name}/{step}") for step in ("one", "two")]
        await self._insist(lambda: lead.flows.create(name, "flo", steps))
        await self._insist(lambda: lead.flows.start(name))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                flow = await self._insist(lambda: lead.flows.status(name))
                if flow.state in ("completed", "failed"):
                    break
                await asyncio.sleep(0.05)
        if flow.state != "completed":
            self.ledger.wrong.append(f"{name} has {flow.state}: {flow.reason}")
        for _, text in steps:
            self.ledger.fate(text, DELIVERED)

    async def _steps(self, worker: aio.Session) -> None:
        async for message in worker.messages():
            if message.flow is None:
                continue
            [text] = [line for line in message.text.split() if line.startswith("flow-")][:1]
            self.ledger.saw(text)
            await self._insist(lambda m=message: m.flow.report("completed", f"did {m.id}"))  # type: ignore[misc]

    async def _invoke(self, session: aio.Session, target: aio.Session) -> None:
        text = self.ledger.name("task")
        invocation = await self._insist(lambda: session.invoke(target.id, text, invocation_id=text))
        async with asyncio.timeout(PATIENCE_S):
            view = await self._insist(invocation.result)
        if view.output != f"did {text}":
            self.ledger.wrong.append(f"{text} has the output {view.output}")
        self.ledger.fate(text, DELIVERED)

    # --- links

    async def _command(self, person: aio.Session) -> None:
        text = self.ledger.name("command")
        stored = await self._insist(lambda: person.send_command({"do": text}, address="dur", command_id=text))
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: self.ledger.seen[text] > 0)
            while not self._stored[text]:
                events = await self._insist(lambda: person.link_events(stored.link_id, after=self._last_event))
                for event in events:
                    self._last_event = event.seq
                    if event.body is not None:
                        self._stored[event.body.get("did", "")] += 1
                await asyncio.sleep(0.02)
        if self._stored[text] > 1:
            self.ledger.wrong.append(f"the event of {text} is stored {self._stored[text]} times")
        self.ledger.fate(text, DELIVERED)

    async def _carry_out(self, worker: aio.Session) -> None:
        async for command in worker.commands():
            text = command.body["do"]
            self.ledger.saw(text)
            async with command:
                await worker.report_event("did", {"did": text})
