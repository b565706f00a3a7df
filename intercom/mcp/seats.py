"""Find the seat a call belongs to: one for each session of the host, and one for a subagent the host lets us tell.

Which session that is comes from where it can be known best: from the call itself (Codex), from a hook (``hello``), from
a note that a hook left before this process listened, from what the host says of its own process, and last from the
environment. Hosts that name no session have one seat for their process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup

from intercom.client.adapters import AdapterFiles, Note, SeatRecord
from intercom.client.who import HOST_VARIABLES, Identity, host_identity, named_identity, process_identity, seat_name
from intercom.errors import IntercomError
from intercom.limits import (
    JOINED_CALLS,
    SESSION_LOOK_MS,
    SESSION_NOTE_POLL_MS,
    SESSION_NOTE_WAIT_MS,
    SUBAGENT_CHARACTERS,
    SUBAGENTS,
)
from intercom.mcp.hosts import Caller, claude_session, directory_of, kind_of, names_sessions_itself
from intercom.mcp.seat import Place, Seat
from intercom.paths import Paths


class Options(NamedTuple):
    """Hold what the adapter was told at its start."""

    paths: Paths
    host: str | None = None
    name: str | None = None
    groups: tuple[str, ...] = ()
    inbox: bool = True
    works: bool = False


class NoSeat(IntercomError):
    """Say that it is not known in which session of the host a tool was called."""

    code = "no_session"
    hint = "Call the tool again in the session itself."


class Seats:
    """Hold the seats of one host process.

    ``made`` is called with each seat before it is opened; ``changed`` after any of them came, went or moved.
    """

    def __init__(
        self,
        options: Options,
        host: str,
        host_pid: int,
        files: AdapterFiles,
        environ: Mapping[str, str],
        tasks: TaskGroup,
        made: Callable[[Seat], object],
        on_news: Callable[[Seat], object],
    ) -> None:
        self.host = host
        self.host_pid = host_pid
        self._options = options
        self._files = files
        self._environ = environ
        self._tasks = tasks
        self._made = made
        self._on_news = on_news
        self._directory = directory_of(host, environ)
        self._is_told_by_calls = names_sessions_itself(host) and options.name is None
        self._main: Seat | None = None
        self._threads: dict[str, Seat] = {}
        self._subagents: OrderedDict[str, Seat] = OrderedDict()
        self._calls: OrderedDict[str, str] = OrderedDict()
        """Subagents by the tool call that a hook said was theirs."""
        self._name: str | None = None
        """The visible name of the main seat; it stays when the host begins a new session in the same process."""
        self._told: str | None = None
        """The session that a hook or the host named last."""
        self._note: Note | None = None
        """The last note of a hook that was looked at; what a hook said later counts more."""
        self._said: str | None = None
        """What Claude Code said of its process at the last look."""
        self.has_hooks = False
        """Whether the host runs our hooks, as far as any was seen."""
        self._turn = anyio.Lock()

    @property
    def main(self) -> Seat | None:
        """Return the seat of the host session, the one that is pushed to; ``None`` while it is not known."""
        return self._main

    @property
    def all(self) -> list[Seat]:
        """Return all seats."""
        mains = [] if self._main is None else [self._main]
        return list(dict.fromkeys([*mains, *self._threads.values(), *self._subagents.values()]))

    async def begin(self) -> None:
        """Open the seat of the host session as soon as it is known which one it is, and follow the host."""
        if self._is_told_by_calls:
            return  # the first call tells, or a hook
        if self.host in HOST_VARIABLES:
            with anyio.move_on_after(SESSION_NOTE_WAIT_MS / 1000):
                while self._files.note() is None:  # noqa: ASYNC110 - another process writes it
                    await anyio.sleep(SESSION_NOTE_POLL_MS / 1000)
        async with self._turn:
            await self._move_main(self._session_now())
        while self.host == "claude" and self._options.name is None:
            await anyio.sleep(SESSION_LOOK_MS / 1000)
            await self._follow()

    async def _follow(self) -> None:
        """Be in the session the host is in now: it begins new ones in the same process, and may tell only its files.

        Else a message would be announced to a session that is another one by the time it looks.
        """
        async with self._turn:
            session = self._session_now()
            if self._main is not None and session not in (None, self._main.place.session):
                await self._move_main(session)

    async def of_call(self, caller: Caller) -> Seat:
        """Return the seat on whose behalf a tool was called."""
        async with self._turn:
            agent = caller.agent or self._calls.get(caller.tool_use or "")
            if agent is not None:
                return await self._subagent(agent)
            if self._is_told_by_calls and caller.session is not None:
                return await self._thread(caller.session)
            if self._is_told_by_calls and self._main is None:
                raise NoSeat("The host did not say in which session this tool was called")
            await self._move_main(self._session_now())
            assert self._main is not None, "moving it makes it"
            return self._main

    async def of_hook(self, session: str | None, agent: str | None) -> Seat | None:
        """Return the seat a hook speaks of; ``None`` where there is none yet."""
        async with self._turn:
            self._hook_was_seen()
            if self._is_told_by_calls:
                return self._threads.get(agent or session or "")
            if agent is not None:
                return self._subagents.get(agent)
            is_news = session != self._told or self._is_of_process
            if self.host in HOST_VARIABLES and session is not None and is_news:
                self._told = session
                await self._move_main(session)
            return self._main

    async def hello(self, session: str, agent: str | None = None) -> Seat:
        """Take notice of a session that a hook or a plugin names, and return its seat."""
        async with self._turn:
            if self._is_told_by_calls or self.host in HOST_VARIABLES:
                self._hook_was_seen()
            if self._is_told_by_calls:
                return await self._thread(agent or session)
            self._told = session
            await self._move_main(session if self.host in HOST_VARIABLES else None)
            assert self._main is not None, "moving it makes it"
            return self._main

    async def goodbye(self, session: str | None) -> None:
        """Take notice that a session has ended."""
        async with self._turn:
            if self._is_told_by_calls:
                await self._end_thread(session or "")
            elif self._main is not None and (
                session in (None, self._main.place.session) or (self._is_of_process and session == self._told)
            ):
                await self._end(self._main)
                self._main = None
            self._keep()

    def joined(self, tool_use: str, agent: str) -> None:
        """Take notice that a call will come from a subagent."""
        self._calls[tool_use] = agent
        if len(self._calls) > JOINED_CALLS:
            self._calls.popitem(last=False)

    async def subagent_ended(self, agent: str) -> None:
        """Say goodbye for a subagent."""
        async with self._turn:
            if self._is_told_by_calls:
                await self._end_thread(agent)
            seat = self._subagents.pop(agent, None)
            for call in [call for call, whose in self._calls.items() if whose == agent]:
                del self._calls[call]
            if seat is not None:
                await self._end(seat)
                self._keep()

    async def close(self) -> None:
        """Say goodbye for all."""
        async with anyio.create_task_group() as tasks:
            for seat in self.all:
                tasks.start_soon(self._end, seat)

    def listens(self) -> None:
        """Take notice that hooks can be answered now."""
        self._files.listens = True
        self._keep()

    # --- who is it --------------------------------------------------------------------------------------

    def _session_now(self) -> str | None:
        """Return the id of the host session, as far as it can be known now."""
        note = self._files.note()
        if note is not None and note != self._note:
            self._hook_was_seen()
            self._note = note
            self._told = note.session
        said = claude_session(self._environ, self.host_pid) if self.host == "claude" else None
        if said is not None and said != self._said:
            # A change is news. What the host says at first may be older than what a hook said.
            if self._said is not None or self._told is None:
                self._told = said
            self._said = said
        variable = HOST_VARIABLES.get(self.host)
        return self._told or (None if variable is None else self._environ.get(variable))

    @property
    def _is_of_process(self) -> bool:
        """Tell whether the main seat began before it was known which session of the host it is in."""
        return self.host in HOST_VARIABLES and self._main is not None and self._main.place.session is None

    def _hook_was_seen(self) -> None:
        if not self.has_hooks:
            self.has_hooks = True
            for seat in self.all:
                self._on_news(seat)

    async def _move_main(self, session: str | None) -> None:
        """Let the main seat be that of ``session``; one of another session says goodbye first.

        One that began before its session was known is the seat of the first that is named. It moves to the address of
        that session when nothing waits for it and nobody waits for its answer, which would be lost else.
        """
        main = self._main
        if main is not None and (main.place.session == session or self._options.name is not None or session is None):
            main.open()
            return
        if main is not None:
            if main.place.session is None and await main.is_needed():
                return
            await self._end(main)
        self._main = self._make(self._identity(session), session, self._name)
        self._name = self._main.place.name
        self._keep()

    async def _thread(self, thread: str) -> Seat:
        seat = self._threads.get(thread)
        if seat is None:
            seat = self._threads[thread] = self._make(self._identity(thread), thread, None)
            if self._main is None:
                self._main = seat
            self._keep()
        return seat

    async def _subagent(self, agent: str) -> Seat:
        seat = self._subagents.get(agent)
        if seat is None:
            main = "session" if self._main is None else self._main.place.name
            name = f"{main}-agent-{agent[:SUBAGENT_CHARACTERS]}"
            seat = self._subagents[agent] = self._make(None, None, name)
            if len(self._subagents) > SUBAGENTS:
                await self._end(self._subagents.popitem(last=False)[1])
            self._keep()
        return seat

    def _identity(self, session: str | None) -> Identity | None:
        if self._options.name is not None:
            return named_identity(self._options.name, "--as")
        if session is not None and self.host in HOST_VARIABLES:
            return host_identity(self.host, session)
        return process_identity(self.host, self.host_pid)

    def _make(self, identity: Identity | None, session: str | None, name: str | None) -> Seat:
        own = None if identity is None else identity.address
        visible = (identity.name if identity is not None else None) or name or seat_name(self._directory, own or "")
        groups = self._options.groups
        place = Place(
            identity,
            visible,
            kind_of(self.host),
            groups,
            self._options.paths,
            self._directory,
            session,
            works=self._options.works and identity is not None,
        )
        seat = Seat(place, self._tasks, self._on_news)
        self._made(seat)
        seat.open()
        return seat

    async def _end_thread(self, thread: str) -> None:
        seat = self._threads.pop(thread, None)
        if seat is not None:
            await self._end(seat)
            self._main = None if self._main is seat else self._main
            self._keep()

    async def _end(self, seat: Seat) -> None:
        await seat.close()

    def _keep(self) -> None:
        seats = [SeatRecord(seat.place.session, seat.address, seat.place.name) for seat in self.all]
        try:
            self._files.write(self._directory, seats)
        except OSError:
            return  # hooks do not find it then; the tools work
