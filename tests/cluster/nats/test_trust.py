"""Test what opens the engine: tokens, credentials and TLS, with a real server; what is wrong is refused clearly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom import blocking
from tests.support.brokers import POLL_S, BrokerProcess
from tests.support.certificates import Accounts, authority
from tests.support.engines import NatsServer, free_ports
from tests.support.raw import PATIENCE_S


class Trust:
    """Hold a server, and a broker that is to get into it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: list[Any] = []
        self._key = self.secret("mesh.key", bytes(range(32)))

    def secret(self, name: str, content: bytes) -> Path:
        """Write a file that only this user can read."""
        path = self._directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def server(self, more: str) -> NatsServer:
        """Start a server with further settings."""
        found = NatsServer(self._directory / "nats", free_ports(1)[0], more=more)
        self._open.append(found)
        return found

    def broker(self, server: NatsServer, *, scheme: str = "nats", **settings: Path) -> BrokerProcess:
        """Start a broker with these files in its settings."""
        home = self._directory / f"home{len(self._open)}"
        home.mkdir(mode=0o700)
        lines = [f'url = "{scheme}://127.0.0.1:{server.port}"', f'key_file = "{self._key}"']
        lines += [f'{name} = "{path}"' for name, path in settings.items()]
        (home / "intercom.toml").write_text("[cluster]\n" + "\n".join(lines) + "\n")
        found = BrokerProcess(home)
        self._open.append(found)
        return found

    def close(self) -> None:
        """End everything."""
        for each in reversed(self._open):
            each.close()


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[Trust]:
    made = Trust(tmp_path)
    yield made
    made.close()


def state_of(broker: BrokerProcess, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return how the way to other machines is, once that is as wanted."""
    import time

    deadline = time.monotonic() + PATIENCE_S
    with broker.connect() as client:
        while not is_so(state := client.status()["multiNode"]):
            assert time.monotonic() < deadline, state
            time.sleep(POLL_S)
    return dict(state)


def is_on(broker: BrokerProcess) -> None:
    state_of(broker, lambda state: state["status"] == "on")


def is_refused(broker: BrokerProcess, why: str) -> None:
    """The broker says why it does not get in, and is a broker all the same."""
    state = state_of(broker, lambda state: state["status"] == "unavailable")
    assert why in state["reason"], state
    with blocking.connect("near", home=broker.home, start=False) as session:
        assert session.send("@me", "hello", timeout=PATIENCE_S).state == "queued"


def test_a_token_opens_the_engine_and_a_wrong_one_does_not(trust: Trust) -> None:
    server = trust.server('authorization { token: "open sesame" }\n')
    right, wrong = trust.secret("right", b"open sesame\n"), trust.secret("wrong", b"open barley\n")
    is_on(trust.broker(server, token_file=right))
    is_refused(trust.broker(server, token_file=wrong), f"it does not take what is in token_file {wrong}")
    is_refused(trust.broker(server), "it wants token_file or credentials")


def test_credentials_open_the_engine_and_those_of_another_account_do_not(trust: Trust, tmp_path: Path) -> None:
    accounts = Accounts()
    server = trust.server(accounts.settings)
    is_on(trust.broker(server, credentials=accounts.credentials(tmp_path / "right.creds")))
    wrong = accounts.credentials(tmp_path / "wrong.creds", of=Accounts())
    is_refused(trust.broker(server, credentials=wrong), f"it does not take what is in credentials {wrong}")


def test_a_server_speaks_tls_under_an_authority_that_the_settings_name(trust: Trust, tmp_path: Path) -> None:
    """A certificate of another authority is refused, and so is one of nobody that this system knows."""
    ours, certificate, key = authority(tmp_path, "ours")
    others, _, _ = authority(tmp_path, "others")
    server = trust.server(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n')
    is_on(trust.broker(server, scheme="tls", tls_ca=ours))
    is_on(trust.broker(server, tls_ca=ours))
    is_refused(trust.broker(server, scheme="tls", tls_ca=others), "certificate verify failed")
    is_refused(trust.broker(server, scheme="tls"), "certificate verify failed")
