"""What a user gets: close a lid, restart an agent or the broker, and no message is lost, none is shown twice."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from intercom import blocking
from tests.support.brokers import BrokerProcess
from tests.support.commands import Running, Shell, is_alive

pytestmark = pytest.mark.long


def send(shell: Shell, text: str, to: str = "worker") -> str:
    """Send a message under an address and return what became of it."""
    state: str = shell.run("send", to, text, "--as", "planner", "--json").document["state"]
    return state


def next_text(worker: Running) -> str:
    text: str = worker.event("message")["text"]
    return text


def restarted(shell: Shell, name: str) -> Running:
    """Start a listener of an address and return once it listens."""
    running = shell.start("listen", "--as", name, "--json")
    running.event("listening")
    return running


def settled(shell: Shell, name: str = "worker") -> None:
    """Wait until nothing waits in a mailbox any more."""
    shell.wait_for(lambda: shell.run("mailbox", "--as", name, "--json").document["count"] == 0)


def test_an_agent_restarts(shell: Shell) -> None:
    """FE 1.1: what came meanwhile is there, in order, once."""
    worker = shell.listen("worker")
    assert send(shell, "0") == "delivered"
    assert next_text(worker) == "0"
    shell.run("send", "worker", "is confirmed by now", "--as", "planner")
    next_text(worker)
    settled(shell)
    worker.process.kill()
    worker.process.wait()
    shell.wait_for_sessions(0)
    assert [send(shell, str(number)) for number in (1, 2, 3)] == ["queued"] * 3
    worker = restarted(shell, "worker")
    assert [next_text(worker) for _ in range(3)] == ["1", "2", "3"]
    settled(shell)
    assert send(shell, "4") == "delivered"
    assert next_text(worker) == "4"


def test_a_lid_is_closed(shell: Shell) -> None:
    """A process that is stopped confirms nothing: the message waits and comes when it goes on."""
    shell.serve({"INTERCOM_RECEIPT_WAIT_MS": "200"})
    worker = shell.listen("worker")
    worker.signal(signal.SIGSTOP)
    states = [send(shell, str(number)) for number in range(3)]
    assert set(states) == {"queued"}, "nobody has them"
    worker.signal(signal.SIGCONT)
    assert [next_text(worker) for _ in range(3)] == ["0", "1", "2"]
    settled(shell)
    assert send(shell, "3") == "delivered"
    assert next_text(worker) == "3"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_broker_restarts_while_mail_waits(shell: Shell, number: int) -> None:
    shell.serve()
    shell.run("receive", "--as", "worker")
    assert [send(shell, str(place)) for place in range(3)] == ["queued"] * 3
    end_broker(shell, number)
    assert send(shell, "3") == "queued", "a new broker knows the address and its mail"
    received = shell.run("receive", "--as", "worker", "--json").document["messages"]
    assert [message["text"] for message in received] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_broker_restarts_while_somebody_listens(shell: Shell, number: int) -> None:
    """The listener is the same session again; what comes before it is back waits."""
    worker = shell.listen("worker")
    [before] = shell.run("session", "list", "--json").document["sessions"]
    for place in range(4):
        assert send(shell, str(place)) in ("delivered", "queued")
        assert next_text(worker) == str(place)
        end_broker(shell, number)
    assert send(shell, "last") in ("delivered", "queued")
    assert next_text(worker) == "last"
    # A command whose goodbye was lost with the broker may be listed for the moment in which its process is judged.
    found = shell.run("session", "list", "--json").document["sessions"]
    assert [session["id"] for session in found if session["name"] == "worker"] == [before["id"]]


def test_agent_and_broker_die_together(shell: Shell) -> None:
    worker = shell.listen("worker")
    assert send(shell, "0") == "delivered"
    assert next_text(worker) == "0"
    for place in range(1, 4):
        worker.process.kill()
        worker.process.wait()
        end_broker(shell, signal.SIGKILL)
        assert send(shell, str(place)) == "queued"
        end_broker(shell, signal.SIGKILL)
        worker = restarted(shell, "worker")
        found: dict[str, Any] = worker.event("message")
        if found["text"] == str(place - 1):
            assert found["mail"]["offers"] > 1, "killed between printing and confirming: it comes again and says so"
            found = worker.event("message")
        assert found["text"] == str(place)


def test_a_message_that_was_confirmed_is_never_shown_again(shell: Shell) -> None:
    """The receipt may be lost with the broker; what the listener is done with is known by its file."""
    worker = shell.listen("worker")
    for place in range(5):
        send(shell, str(place))
        assert next_text(worker) == str(place)
        if place % 2:
            end_broker(shell, signal.SIGKILL)
    settled(shell)
    worker.process.kill()
    worker.process.wait()
    worker = restarted(shell, "worker")
    send(shell, "end")
    assert next_text(worker) == "end"


def test_whatever_is_killed_and_whenever(shell: Shell) -> None:
    """No message lost, order kept, none shown twice but what the listener was killed with."""
    shell.serve()
    chance = random.Random(11)
    worker = restarted(shell, "worker")
    shown: list[dict[str, Any]] = []
    kills = 0

    def drain() -> None:
        """Take what a killed listener had printed before."""
        rest, _ = worker.process.communicate()
        lines = (worker.rest + rest).decode().splitlines()
        shown.extend(json.loads(line) for line in lines)

    with blocking.connect("planner", home=shell.home, address=True) as planner:
        for number in range(16):
            planner.send("worker", str(number), timeout=30)
            fate = chance.random()
            if fate < 0.2:
                end_broker(shell, signal.SIGKILL)
            if fate > 0.75:
                worker.process.kill()
                drain()
                kills += 1
                worker = restarted(shell, "worker")
        planner.send("worker", "end", timeout=30)
        while not shown or shown[-1]["text"] != "end":
            shown.append(worker.event("message"))
    texts = [document["text"] for document in shown]
    firsts = list(dict.fromkeys(texts))
    assert firsts == [*map(str, range(16)), "end"]
    again = [document for place, document in enumerate(shown) if document["text"] in texts[:place]]
    assert len(again) <= kills * 2
    assert all(document["mail"]["offers"] > 1 for document in again), "a copy says that it was handed over before"


def test_everybody_gets_his_own_mail_in_order(shell: Shell) -> None:
    """Twenty identities, one broker that dies before any of them is back."""
    shell.serve()
    names = [f"agent-{number}" for number in range(20)]
    for name in names:
        shell.run("receive", "--as", name)
    for text in ("a", "b"):
        for name in names:
            assert send(shell, f"{text} for {name}", name) == "queued"
    end_broker(shell, signal.SIGKILL)
    for name in names:
        received = shell.run("receive", "--as", name, "--json").document["messages"]
        assert [message["text"] for message in received] == [f"a for {name}", f"b for {name}"]


def test_a_reply_to_a_command_that_has_ended_waits_for_its_identity(shell: Shell) -> None:
    """F58: the replier's answer does not go into the void."""
    worker = shell.listen("worker")
    send(shell, "please")
    sender = worker.event("message")["from"]
    answer = shell.run("send", sender["id"], "done", "--as", "worker", "--json").document
    assert answer["state"] == "queued"
    received = shell.run("receive", "--as", "planner", "--json").document["messages"]
    assert [message["text"] for message in received] == ["done"]


def test_sending_under_a_name_does_not_get_in_the_way_of_who_listens_under_it(shell: Shell) -> None:
    """Design section 7: a command acts under the address, and only ``listen`` and ``receive`` hold it."""
    worker = shell.listen("worker")
    other = shell.listen("other")
    asker = shell.start("ask", "other", "still there?", "--as", "worker", "--json")
    other.event("message")
    assert send(shell, "for the listener") == "delivered"
    assert next_text(worker) == "for the listener"
    asker.close()


def test_the_idle_broker_leaves_although_mail_waits(shell: Shell, start_broker: Callable[..., BrokerProcess]) -> None:
    """A5.8: only parked messages and no session keep nobody alive; a later start has them."""
    broker = start_broker(settings={"idle_ms": 200})
    shell.run("receive", "--as", "worker")
    assert send(shell, "0") == "queued"
    assert broker.wait() == 0
    received = shell.run("receive", "--as", "worker", "--json").document["messages"]
    assert [message["text"] for message in received] == ["0"]


def end_broker(shell: Shell, number: int) -> None:
    """End the broker that answers and wait until its process is gone; whoever calls next starts another."""
    pid = shell.broker_pid()
    os.kill(pid, number)

    shell.wait_for(lambda: not is_alive(pid))
