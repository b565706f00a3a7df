"""Test the look at a cluster from outside, and the command line on it, against a real NATS server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.cluster.nats.access import access_to
from intercom.cluster.nats.engine import Engine, connected
from intercom.cluster.nats.inspection import run_check
from intercom.config import ClusterSettings
from tests.cli.conftest import shell
from tests.support.brokers import BrokerProcess
from tests.support.commands import Shell
from tests.support.engines import NatsServer, one_server
from tests.support.raw import PATIENCE_S

__all__ = ["shell"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    running = one_server(tmp_path_factory.mktemp("nats"))
    yield running
    running.close()


def secret(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def configured(home: Path, url: str, key: Path, **more: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    lines = [f'{name} = "{value}"' for name, value in {"url": url, "key_file": str(key), **more}.items()]
    (home / "intercom.toml").write_text("\n".join(["[cluster]", *lines]))


def test_the_verbs_about_other_machines(shell: Shell, server: NatsServer, tmp_path: Path) -> None:
    """``cluster check``, ``peer list`` and ``ping``, ``status`` and ``doctor``, with two brokers that are there."""
    key = secret(tmp_path / "mesh.key", bytes(range(32)))
    configured(shell.home, server.url, key, node="laptop")
    configured(tmp_path / "far", server.url, key, node="studio")
    far = BrokerProcess(tmp_path / "far")
    away = far.registered("bob")
    try:
        shell.serve({"INTERCOM_IDLE_MS": "60000"})
        shell.wait_for(lambda: bool(shell.run("peer", "list", "--json").document["peers"]))
        [peer] = shell.run("peer", "list", "--json").document["peers"]
        assert peer["node"] == "studio"
        assert "studio" in shell.run("peer", "list").text
        answer = shell.run("peer", "ping", "studio", "--json").document
        assert (answer["brokerId"], answer["node"]) == (peer["brokerId"], "studio")
        assert shell.run("peer", "ping", peer["brokerId"][:8]).status == 0
        unknown = shell.run("peer", "ping", "attic", "--json")
        assert (unknown.status, unknown.document["code"]) == (3, "unknown_peer")
        checked = shell.run("cluster", "check", "--json").document
        assert [each["id"] for each in checked["checks"]] == ["files", "engine", "stream", "key", "clock", "lag"]
        assert {each["state"] for each in checked["checks"]} == {"ok"}
        assert "laptop, studio" in checked["checks"][3]["found"]
        assert "on, through nats, as laptop; studio there" in shell.run("status").text
        shell.wait_for(lambda: "bob" in shell.run("list").text)
        assert "studio:/" in shell.run("list").text and "(here)" not in shell.run("list").text
        near = shell.connect()
        near.register("bob")
        assert all(f" {machine}:/" in shell.run("list").text for machine in ("laptop", "studio")), "F45"
        several = shell.run("send", "bob", "hello")
        assert several.status == 4 and "bob@laptop" in several.errors and "bob@studio" in several.errors
        assert shell.run("send", "bob@laptop", "hello").status == 0
        near.close()
        [found] = [each for each in shell.run("doctor", "--json").documents[0]["checks"] if each["id"] == "cluster"]
        assert found["state"] == "ok"
    finally:
        away.close()
        far.close()


def test_what_is_wrong_is_said(shell: Shell, server: NatsServer, tmp_path: Path) -> None:
    """The check names what a person has to mend; without the setting there is nothing to check."""
    assert shell.run("cluster", "check", "--json").document["checks"][0]["found"].startswith("off")
    refused = shell.run("peer", "ping", "x", "--json")
    assert (refused.status, refused.document["code"]) == (1, "no_cluster")
    configured(shell.home, server.url, tmp_path / "none")
    result = shell.run("cluster", "check", "--json")
    assert (result.status, result.document["code"]) == (1, "cluster_unavailable")
    assert f"key_file {tmp_path}/none cannot be read" in result.document["reason"]
    configured(shell.home, "nats://127.0.0.1:1", secret(tmp_path / "mesh.key", bytes(32)))
    result = shell.run("cluster", "check", "--json")
    assert "no server of nats://127.0.0.1:1 can be used" in result.document["reason"]
    result = shell.run("peer", "ping", "x", "--json")
    assert (result.status, result.document["code"]) == (5, "cluster_unavailable")


def test_a_check_makes_nothing_and_says_what_is_not_there_yet(shell: Shell, server: NatsServer, tmp_path: Path) -> None:
    """It only looks: the first broker decides how many copies are held."""
    key = secret(tmp_path / "mesh.key", bytes(range(32)))
    configured(shell.home, server.url, key, name="bare")
    result = shell.run("cluster", "check", "--json")
    found = {each["id"]: each for each in result.document["checks"]}
    assert (result.status, found["stream"]["state"]) == (0, "unknown")
    assert (
        "bare_mail, bare_brokers, bare_sessions, bare_addresses, bare_targets, bare_restoring, bare_routes"
        in found["stream"]["found"]
    )
    assert re.search(r"nats-server \d+\.\d+\.\d+ answers", found["engine"]["found"])
    unknown = shell.run("peer", "ping", "attic", "--json")
    assert (unknown.status, unknown.document["code"]) == (3, "unknown_peer")
    settings = ClusterSettings(url=(server.url,), key_file=str(key), name="bare")

    async def names() -> list[str]:
        engine = await connected(settings, access_to(settings), name="test")
        try:
            return [name for name in await engine.find() if name.startswith("bare_")]
        finally:
            await engine.close()

    assert len(asyncio.run(names())) == len(
        ("mail", "brokers", "sessions", "addresses", "targets", "restoring", "routes")
    )


def test_a_stream_that_was_changed_and_a_key_of_others(server: NatsServer, tmp_path: Path) -> None:
    """Stream and bucket configuration, and the mac."""
    settings = [
        ClusterSettings(url=(server.url,), key_file=str(secret(tmp_path / f"{n}", bytes([n]) * 32)), name="odd")
        for n in range(2)
    ]

    async def spoil() -> None:
        from nats.js import api

        from intercom.cluster.envelope import seal

        engine = await connected(settings[0], access_to(settings[0]), name="test")
        await engine.js.add_stream(api.StreamConfig(name="odd_mail", subjects=["odd.mail.*"]))
        await engine.prepare()
        await engine.leases.put("b", seal(bytes(32), "lease", b"{}", from_broker="b", epoch=1))
        await engine.close()

    asyncio.run(spoil())
    found = {each.id: each for each in run_check(settings[1], PATIENCE_S)}
    assert found["stream"].state == "bad" and "workqueue" in found["stream"].found
    assert found["key"].state == "bad" and "1 brokers under this prefix have another key" in found["key"].found
    assert found["clock"].state == "unknown"


def test_an_engine_that_answers_and_stores_nothing_is_no_engine_in_order(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F128: with most servers lost what was stored can be read for a while, and nothing more be stored."""
    key = secret(tmp_path / "mesh.key", bytes(range(32)))
    settings = ClusterSettings(url=[server.url], key_file=str(key), name="leaderless")

    async def prepared() -> None:
        engine = await connected(settings, access_to(settings), name="test")
        await engine.prepare()
        await engine.close()

    asyncio.run(prepared())
    assert {each.id: each.state for each in run_check(settings, PATIENCE_S)}["stream"] == "ok"

    async def times_out(self: Engine, what: str, key: str, value: bytes) -> None:
        raise TimeoutError

    monkeypatch.setattr(Engine, "put", times_out)
    [stream] = [each for each in run_check(settings, PATIENCE_S) if each.id == "stream"]
    assert stream.state == "bad" and "the engine does not answer" in stream.found
