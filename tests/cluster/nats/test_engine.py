"""Test what connecting to an engine says where the engine itself says nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from pathlib import Path

import pytest
from nats.js.errors import APIError

from intercom.cluster.nats import engine as connecting
from intercom.cluster.nats.access import Access, Unusable
from intercom.cluster.nats.engine import Engine, connected
from intercom.config import ClusterSettings

AT_ONCE = struct.pack("ii", 1, 0)
"""Let a connection end with a reset, which throws away what was not read."""


def refusal_by(server_info: dict[str, object], token_file: str = "") -> str:
    """Return what is said of a server that tells this of itself, and resets the connection when asked to let one in."""

    async def let_nobody_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(server_info).encode() + b"\r\n")
        await reader.readline()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        writer.transport.abort()

    async def ask() -> str:
        async with await asyncio.start_server(let_nobody_in, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            settings = ClusterSettings(url=[f"nats://127.0.0.1:{port}"], key_file="key", token_file=token_file)
            options = {"allow_reconnect": False, "max_reconnect_attempts": 1, "connect_timeout": 5}
            with pytest.raises(Unusable) as refused:
                await connected(settings, Access(bytes(32), options), name="near")
            return str(refused.value)

    return asyncio.run(ask())


def test_a_server_that_asks_who_this_is_and_resets_does_not_take_the_token(tmp_path: Path) -> None:
    """The server's word for no may be lost on the way; the person is told which setting to look at all the same"""
    token = str(tmp_path / "token")
    assert f"it does not take what is in token_file {token}" in refusal_by({"auth_required": True}, token)
    assert "it wants token_file or credentials" in refusal_by({"auth_required": True})


def test_a_server_that_takes_anybody_and_resets_has_another_reason() -> None:
    told = refusal_by({})
    assert "token" not in told and "reset" in told.lower(), told


def test_a_server_that_stands_still_does_not_keep_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5, a server stopped: whoever was connected to it goes to another one, also where it is tried first."""
    monkeypatch.setattr(connecting, "CLUSTER_CONNECT_MS", 600_000)
    monkeypatch.setattr(connecting, "CLUSTER_NEXT_MS", 20)
    monkeypatch.setattr(connecting, "sample", lambda urls, count: list(urls))  # the last one is tried first
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def lets_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"n","max_payload":1024,"proto":1}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        await ends(writer, "lively")

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await ends(writer, "still")

    async def ends(writer: asyncio.StreamWriter, which: str) -> None:
        writer.close()
        await writer.wait_closed()
        ended.put_nowait(which)

    async def connect() -> None:
        async with (
            await asyncio.start_server(lets_in, "127.0.0.1", 0) as lively,
            await asyncio.start_server(says_nothing, "127.0.0.1", 0) as still,
        ):
            urls = [f"nats://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (lively, still)]
            settings = ClusterSettings(url=urls, key_file="key")
            options = {"allow_reconnect": False, "max_reconnect_attempts": 1, "connect_timeout": 600}
            engine = await asyncio.wait_for(connected(settings, Access(bytes(32), options), name="near"), 10)
            assert await asyncio.wait_for(ended.get(), 10) == "still"
            await engine.close()
            assert await asyncio.wait_for(ended.get(), 10) == "lively"

    asyncio.run(connect())


class _Refusing:
    """Be a store that says no to each write, with this code."""

    def __init__(self, err_code: int) -> None:
        self.error = APIError(code=400, description="wrong last sequence", err_code=err_code)

    async def publish(self, subject: str, payload: bytes = b"", headers: object = None) -> object:
        raise self.error


@pytest.mark.parametrize("err_code", [10071, 10164])
def test_a_key_that_somebody_else_is_writing_is_not_written(err_code: int) -> None:
    """Section 2, addresses: two claims at once; several servers say no to one before they have agreed on the other"""
    engine = object.__new__(Engine)
    engine.prefix, engine.js = "p", _Refusing(err_code)  # type: ignore[assignment]
    assert asyncio.run(engine.put_if("addresses", "k", b"", 7)) is None
    asyncio.run(engine.delete_if("addresses", "k", 7))


def test_another_refusal_of_the_engine_is_told() -> None:
    engine = object.__new__(Engine)
    engine.prefix, engine.js = "p", _Refusing(10077)  # type: ignore[assignment]
    with pytest.raises(APIError):
        asyncio.run(engine.put_if("addresses", "k", b"", 7))
    with pytest.raises(APIError):
        asyncio.run(engine.delete_if("addresses", "k", 7))
