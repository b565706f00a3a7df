"""Run real adapters: under the SDK's client, as a host that dies, and with hooks beside them."""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp
import mcp_types
from mcp.shared.message import SessionMessage

from intercom.client.adapters import AdapterRecord, Asking, records
from intercom.mcp import server  # noqa: F401 - what an adapter needs is to be there before a fork
from intercom.paths import Paths
from tests.support.brokers import POLL_S, environment
from tests.support.forking import Child, command_child, end
from tests.support.raw import PATIENCE_S

COMMAND = (sys.executable, "-m", "intercom", "mcp")
HOSTS_VARIABLES = {"HOME", "LOGNAME", "SHELL", "TERM", "USER"}


class ToolFailed(Exception):
    """Hold the text of a tool error."""


class Agent:
    """Be the model of a host: call tools, and read their text."""

    def __init__(self, client: mcp.Client) -> None:
        self.client = client

    async def call(self, tool: str, /, *, meta: Mapping[str, Any] | None = None, **arguments: Any) -> str:
        """Return the text of a result; raise ``ToolFailed`` for a tool error."""
        options: Any = {} if meta is None else {"meta": dict(meta)}
        result = await self.client.call_tool(tool, arguments, **options)
        assert isinstance(result, mcp_types.CallToolResult)
        [content] = result.content
        assert isinstance(content, mcp_types.TextContent)
        assert result.structured_content is None
        if result.is_error:
            raise ToolFailed(content.text)
        return content.text

    async def fails(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of the tool error."""
        try:
            text = await self.call(tool, **arguments)
        except ToolFailed as error:
            return str(error)
        raise AssertionError(f"{tool} worked: {text}")


@asynccontextmanager
async def adapter(
    home: Path,
    *options: str,
    mode: str = "legacy",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    apart: bool = False,
    fault: str = "",
) -> AsyncIterator[Agent]:
    """Run an adapter under the SDK's client for the length of the block.

    ``apart`` lets the SDK start it as hosts do; else it is a fork, in which the code ``fault`` is run before.
    """
    how: Any
    if apart:
        command, *arguments = (*COMMAND, *options)
        place = str(cwd or home.parent)
        how = mcp.StdioServerParameters(command=command, args=arguments, env=environment(home, env), cwd=place)
    else:
        how = _pipes(command_child(("mcp", *options), environment(home, env), cwd or home.parent, fault))
    async with mcp.Client(how, mode=mode) as client:  # type: ignore[arg-type]  # a literal
        yield Agent(client)


@asynccontextmanager
async def _pipes(child: Child) -> AsyncIterator[Any]:
    """Carry messages between the SDK's client and a fork, line by line; end it as the SDK ends a process."""
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    arrived, receiving = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    sending, leaving = anyio.create_memory_object_stream[SessionMessage](math.inf)

    async def read() -> None:
        assert child.stdout is not None
        buffer = b""
        async with arrived:
            while True:
                await anyio.wait_readable(child.stdout.fileno())
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await arrived.send(SessionMessage(message))

    async def write() -> None:
        assert child.stdin is not None
        async for message in leaving:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            data = text.encode() + b"\n"
            while data:
                await anyio.wait_writable(child.stdin.fileno())
                data = data[os.write(child.stdin.fileno(), data[: select.PIPE_BUF]) :]

    try:
        async with anyio.create_task_group() as tasks, receiving, sending, leaving:
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield receiving, sending
            tasks.cancel_scope.cancel()
    finally:
        child.stdin.close()
        try:
            await anyio.to_thread.run_sync(child.wait, PATIENCE_S)
        finally:
            child.kill()
            for stream in (child.stdout, child.stderr):
                stream.close()
            child.wait()


class RawHost:
    """Be a host that speaks JSON-RPC by hand: what the SDK's client would never send or do."""

    def __init__(self, home: Path, *options: str, env: Mapping[str, str] | None = None, fault: str = "") -> None:
        self.process = command_child(("mcp", *options), environment(home, env), home.parent, fault)
        self._read = b""
        self._ids = 0

    def write(self, line: bytes) -> None:
        """Write a line as it is."""
        assert self.process.stdin is not None
        rest = line + b"\n"
        while rest:
            rest = rest[self.process.stdin.write(rest) or 0 :]

    def say(self, method: str, params: Mapping[str, Any] | None = None, *, id: int | None = None) -> None:
        """Write a request or, without ``id``, a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if id is not None:
            message["id"] = id
        self.write(json.dumps(message).encode())

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request; what else comes is passed over."""
        self._ids += 1
        self.say(method, params, id=self._ids)
        return self.answer_to(self._ids)

    def answer_to(self, id: int) -> dict[str, Any]:
        """Return the answer with this id."""
        while True:
            message = self.line()
            if message.get("id") == id and "method" not in message:
                return message

    def line(self, timeout: float = 2 * PATIENCE_S) -> dict[str, Any]:
        """Return the next message the adapter wrote."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no line within {timeout} s"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, "the adapter ended"
            self._read += data
        line, self._read = self._read.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def shake_hands(self, client: str = "test-host", version: str = "2025-11-25") -> dict[str, Any]:
        """Do the handshake and return what the server said of itself."""
        about = {"name": client, "version": "1"}
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": about})
        self.say("notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result

    def tool(self, name: str, arguments: Mapping[str, Any] | None = None, **meta: Any) -> str:
        """Call a tool and return its text."""
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        if meta:
            params["_meta"] = meta
        answer = self.ask("tools/call", params)
        text: str = answer["result"]["content"][0]["text"]
        return text

    def wait(self, timeout: float = 2 * PATIENCE_S) -> int:
        """Return the exit status."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """End it if it still runs."""
        end(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def record_of(home: Path, ready: Any = lambda record: bool(record.seats)) -> AdapterRecord:
    """Return the record of the one adapter in a home, once it is there and ``ready``."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    paths = Paths(home.resolve())
    while time.monotonic() < deadline:
        found = [record for record in records(paths) if ready(record)]
        if len(found) == 1:
            return found[0]
        time.sleep(POLL_S)
    raise AssertionError("there is no adapter")


def hook(record: AdapterRecord) -> Asking:
    """Return a connection as a hook has one."""
    return Asking(record, PATIENCE_S)
