"""Serve MCP on standard input and output, for as long as the host lives and not a moment longer.

Both eras of the protocol are served; the first request of the host decides. The end comes with the end of standard
input, a signal, or the end of the host, whichever is first: goodbye to the broker within ``ADAPTER_GOODBYE_MS``, and
then the process is gone, because a thread that reads standard input would keep it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from intercom import __version__
from intercom.client.adapters import AdapterFiles
from intercom.errors import IntercomError
from intercom.limits import ADAPTER_GOODBYE_MS, HOST_LOOK_MS
from intercom.mcp import calls, wording
from intercom.mcp.door import Door
from intercom.mcp.hosts import caller_of, host_of, told_by_plugin
from intercom.mcp.lines import Lines, refusal
from intercom.mcp.ringing import Ringer, Way
from intercom.mcp.seat import HOOKS, TOOLS, Seat
from intercom.mcp.seats import Options, Seats
from intercom.mcp.tools import INSTRUCTIONS, ToolUsage, checked, tools_for
from intercom.mcp.tray import Batch
from intercom.mcp.ways import ClaudeInbox, CodexQueue

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    Context = ServerRequestContext[Any, Any]


USER_CANCELLED = "user-cancel"
"""What Claude Code gives as the reason when its user interrupts a call; other hosts do the same when time runs out."""


def serve(options: Options) -> NoReturn:
    """Serve until the host ends, and end this process."""
    logging.disable(logging.CRITICAL)  # what a library says of a peer's requests is nothing for the host's log
    anyio.run(Adapter(options).run)
    raise AssertionError("an adapter leaves by itself")


class Adapter:
    """Be the MCP server of one host process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._environ: Mapping[str, str] = dict(os.environ)
        self._host_pid = os.getppid()
        self._host = options.host
        self._tools = tools_for(works=options.works)
        self._seats: Seats | None = None
        self._begun = anyio.Event()
        """Set when it is known which host this is, and the seats are there."""
        self._ringers: dict[Seat, Ringer] = {}
        self._door: Door | None = None
        self._handed: dict[object, Batch] = {}
        """Batches in results that are on their way to the host, by the id of the request."""
        self._calls: dict[object, calls.Call] = {}
        """Calls that are at work, by the id of the request."""

    async def run(self) -> None:
        """Serve until the host ends."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._leave_at_a_signal)
            tasks.start_soon(self._leave_after_the_host)
            if self._options.host is not None:
                self._know_host(None)
            await self._speak()
            await self._leave()

    async def _speak(self) -> None:
        server = Server(
            "intercom",
            version=__version__,
            title="intercom",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        server.middleware.append(self._notice_host)
        async with stdio_server(anyio.wrap_file(Lines(sys.stdin.buffer))) as (read, write):
            heard = _Heard(read, write, self._was_heard)
            written = _Written(write, self._was_written)
            await server.run(heard, written, server.create_initialization_options())

    # --- requests of the host ---------------------------------------------------------------------------

    async def _notice_host(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Learn from the first request which host this is, unless it was told at the start."""
        result = await call_next(ctx)
        if not self._begun.is_set() and ctx.request_id is not None and ctx.method != "server/discover":
            self._know_host(_client_of(ctx))
        return result

    async def _list_tools(self, context: Context, params: object) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(
            tools=[
                mcp_types.Tool(
                    name=name,
                    description=tool["description"],
                    input_schema=tool["schema"],
                    annotations=mcp_types.ToolAnnotations(read_only_hint=tool["read_only"], open_world_hint=False),
                )
                for name, tool in self._tools.items()
            ]
        )

    async def _call_tool(self, context: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        try:
            done = await self._call(context, params)
        except IntercomError as error:
            return _result(wording.failure(error), is_error=True)
        except Exception as error:
            return _result(f"error internal: intercom failed: {type(error).__name__}: {error}", is_error=True)
        if done.batch is not None:
            self._handed[context.request_id] = done.batch
        return _result(done.text)

    async def _call(self, context: Context, params: mcp_types.CallToolRequestParams) -> calls.Done:
        if params.name not in self._tools:
            raise ToolUsage(f"there is no tool {params.name!a}", hint=f"The tools are: {', '.join(self._tools)}.")
        self._know_host(_client_of(context))
        host = self._host or "generic"
        given, agent = told_by_plugin(host, params.arguments)
        arguments = checked(params.name, given)
        assert self._seats is not None, "they are made with the knowledge of the host"
        meta = (context.params or {}).get("_meta")
        caller = caller_of(host, meta if isinstance(meta, dict) else {})
        seat = await self._seats.of_call(caller._replace(agent=agent))

        async def progress(seconds: float) -> None:
            await context.session.report_progress(seconds, None, "waiting")

        call = self._calls[context.request_id] = calls.Call(seat, progress)
        try:
            return await calls.call(params.name, call, arguments)
        finally:
            del self._calls[context.request_id]

    # --- what passes on the streams ---------------------------------------------------------------------

    def _was_written(self, message: SessionMessage) -> None:
        """Take notice that an answer was handed to the host: what is in it counts as shown."""
        batch = self._handed.pop(getattr(message.message, "id", None), None)
        if batch is not None:
            batch.done()

    def _was_heard(self, message: SessionMessage) -> None:
        """Take notice of a cancelled call whose answer will not be written: what is in it waits again."""
        note = message.message
        if isinstance(note, mcp_types.JSONRPCNotification) and note.method == "notifications/cancelled":
            params = note.params or {}
            batch = self._handed.pop(params.get("requestId"), None)
            if batch is not None:
                batch.back()
            call = self._calls.get(params.get("requestId"))
            if call is not None and USER_CANCELLED in str(params.get("reason")):
                call.withdraw()

    # --- the host and its end ---------------------------------------------------------------------------

    def _know_host(self, client: str | None) -> None:
        """Make the seats, once it is known which host this is."""
        if self._begun.is_set():
            return
        self._begun.set()
        self._host = self._options.host or host_of(client)
        paths = self._options.paths
        files = AdapterFiles(paths, self._host, self._host_pid, os.getpid())
        self._files = files
        self._seats = Seats(
            self._options,
            self._host,
            self._host_pid,
            files,
            self._environ,
            self._tasks,
            self._made,
            self._on_news,
        )
        self._door = Door(files.socket, self._seats, calls.introduction)
        self._door.changed = self._ways_changed
        self._ways = self._ways_of(self._host, self._door)
        self._tasks.start_soon(self._open_door, self._door)
        self._tasks.start_soon(self._seats.begin)

    def _ways_of(self, host: str, door: Door) -> list[Way]:
        if host == "claude":
            inbox = [ClaudeInbox(self._environ)] if self._options.inbox else []
            return [door.monitor, door.rewake, *inbox]
        if host == "codex":
            return [CodexQueue(self._host_pid)]
        return [door.plugin, door.monitor]

    async def _open_door(self, door: Door) -> None:
        assert self._seats is not None, "a door is made with the seats"
        try:
            self._files.prepare()
            await door.run(self._seats.listens)
        except (OSError, IntercomError):
            return  # without hooks, the tools work

    def _made(self, seat: Seat) -> None:
        ringer = self._ringers[seat] = Ringer(seat, self._ways, self._unrung)
        seat.push, seat.way = ringer.best
        self._tasks.start_soon(self._ring_for, seat, ringer)

    def _unrung(self) -> str:
        return HOOKS if self._seats is not None and self._seats.has_hooks else TOOLS

    async def _ring_for(self, seat: Seat, ringer: Ringer) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ringer.run)
            await seat.ended.wait()
            tasks.cancel_scope.cancel()
        del self._ringers[seat]

    def _on_news(self, seat: Seat) -> None:
        ringer = self._ringers.get(seat)
        if ringer is not None:
            ringer.wake()

    def _ways_changed(self) -> None:
        for ringer in self._ringers.values():
            ringer.wake()

    async def _leave_at_a_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                await self._leave()

    async def _leave_after_the_host(self) -> None:
        """Wait for the end of the parent: by its descriptor where the kernel has one, else by looking."""
        try:
            watched = os.pidfd_open(self._host_pid)
        except (AttributeError, OSError):
            watched = None
        if watched is not None and os.getppid() == self._host_pid:
            await anyio.wait_readable(watched)
        while os.getppid() == self._host_pid:  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(HOST_LOOK_MS / 1000)
        await self._leave()

    async def _leave(self) -> NoReturn:
        """Say goodbye and be gone; what still waits for standard input cannot be waited for."""
        with anyio.move_on_after(ADAPTER_GOODBYE_MS / 1000):
            if self._seats is not None:
                self._files.remove()
                await self._seats.close()
        os._exit(0)


class _Heard:
    """Pass on what the host says, after a look at it; what cannot be read is answered here."""

    def __init__(self, stream: Any, answers: Any, look: Any) -> None:
        self._stream = stream
        self._answers = answers
        self._look = look

    @property
    def last_context(self) -> Any:
        """Return the context of the message that was read last, as the SDK wants it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        message = await self._stream.receive()
        if not isinstance(message, Exception):
            self._look(message)
        elif (answer := refusal(message)) is not None:
            await self._answers.send(SessionMessage(answer))
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Heard:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Heard:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Written:
    """Pass on what the host is told, and tell afterwards."""

    def __init__(self, stream: Any, tell: Any) -> None:
        self._stream = stream
        self._tell = tell

    async def send(self, message: Any) -> None:
        await self._stream.send(message)
        self._tell(message)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Written:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _client_of(context: Context) -> str | None:
    """Return what the host calls its MCP client: said at the handshake, or with each request."""
    params = context.session.client_params
    if params is not None:
        return params.client_info.name
    raw = context.params or {}
    if context.method == "initialize":
        info = raw.get("clientInfo")
    else:
        meta = raw.get("_meta")
        info = meta.get("io.modelcontextprotocol/clientInfo") if isinstance(meta, Mapping) else None
    name = info.get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else None


def _result(text: str, *, is_error: bool = False) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)], is_error=is_error)
