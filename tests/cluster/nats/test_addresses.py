"""Test addresses on two machines with real brokers and a real NATS server: mail, the move, two at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from intercom import blocking
from intercom.errors import IntercomError
from tests.support.hazards import Machines, until_gone, until_seen
from tests.support.raw import PATIENCE_S


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    made.until_joined()
    yield made
    made.close()


def bob_at(machines: Machines, where: str) -> Any:
    """Return a session that holds the address ``bob`` on a machine."""
    return blocking.connect("bob", address="bob", home=machines.home(where), start=False)


def carry_token(machines: Machines, source: str, to: str) -> None:
    """Bring what opens the addresses of one machine to another, as a person does who works on both."""
    shutil.copytree(machines.home(source) / "identities", machines.home(to) / "identities", dirs_exist_ok=True)


def texts(session: Any, count: int) -> list[str]:
    """Return what comes next, confirmed."""
    found = []
    for message in session.messages(timeout=PATIENCE_S):
        found.append(message.text)
        if len(found) == count:
            break
    return found


def test_mail_for_an_address_elsewhere_waits_at_its_home_and_moves_with_it(machines: Machines) -> None:
    """Its holder is away, then its broker; then it registers on the other machine, and gets everything once."""
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        with bob_at(machines, "studio"):
            until_seen(alice, "bob")
        until_gone(alice, "bob")
        assert alice.send("bob", "while you were away").state == "queued"
        with bob_at(machines, "studio") as bob:
            assert texts(bob, 1) == ["while you were away"]
        until_gone(alice, "bob")
        assert alice.send("bob", "at your home").state == "queued"
        machines.brokers["studio"].kill()
        assert alice.send("bob", "in the engine").state == "queued"
        machines.start("studio")
        machines.until("studio", lambda found: found["status"] == "on")
        carry_token(machines, "studio", "laptop")
        with bob_at(machines, "laptop") as bob:
            assert sorted(texts(bob, 2)) == ["at your home", "in the engine"]
            assert alice.send("bob", "here").state in ("delivered", "queued")
            assert texts(bob, 1) == ["here"]


def test_the_same_address_registered_at_two_machines_at_once(machines: Machines) -> None:
    """One holder in the whole cluster; the other is told ``address_taken``."""
    found: dict[str, str] = {}

    def register(where: str) -> None:
        try:
            with bob_at(machines, where):
                found[where] = "held"
                done[where].wait(PATIENCE_S)
        except IntercomError as error:
            found[where] = error.code

    done = {where: Event() for where in ("laptop", "studio")}
    threads = [Thread(target=register, args=(where,)) for where in done]
    for thread in threads:
        thread.start()
    while len(found) < 2:
        for thread in threads:
            thread.join(0.01)
    for event in done.values():
        event.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(found.values()) == ["address_taken", "held"]


def test_who_shows_the_token_elsewhere_becomes_the_holder(machines: Machines) -> None:
    """The newest rightful holder replaces the older one, on whatever machine that is; no one else can."""
    with bob_at(machines, "studio") as old:
        with pytest.raises(IntercomError) as refused, bob_at(machines, "laptop"):
            pass
        assert refused.value.code == "address_taken"
        shutil.rmtree(machines.home("laptop") / "identities", ignore_errors=True)
        carry_token(machines, "studio", "laptop")
        with bob_at(machines, "laptop") as new:
            assert new.id != old.id
            with pytest.raises(IntercomError) as replaced:
                for _ in old.messages(timeout=PATIENCE_S):
                    pass
            assert replaced.value.code == "replaced"
