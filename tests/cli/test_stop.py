from __future__ import annotations

import os
import signal

from tests.support.commands import Shell, is_alive
from tests.support.processes import stop


def test_nothing_to_stop(shell: Shell) -> None:
    """Design section 9: no broker is 5, and none is started."""
    result = shell.run("stop", "--json")
    assert (result.status, result.document["code"]) == (5, "no_broker")
    assert shell.run("stop").errors.startswith("intercom: No broker answers on ")
    assert not shell.home.exists()


def test_the_process_is_gone_when_it_returns(shell: Shell) -> None:
    shell.serve()
    pid = shell.broker_pid()
    assert shell.run("stop").text == f"stopped the broker (pid {pid})\n"
    assert not is_alive(pid)
    assert not (shell.home / "broker.sock").exists()
    assert not (shell.home / "broker.pid").exists()


def test_the_document(shell: Shell) -> None:
    shell.serve()
    pid = shell.broker_pid()
    result = shell.run("stop", "--json")
    assert (result.status, result.document) == (0, {"ok": True, "pid": pid})


def test_sessions_go_on_with_a_new_broker(shell: Shell) -> None:
    listener = shell.listen("worker")
    pid = shell.broker_pid()
    assert shell.run("stop").status == 0
    shell.wait_for_sessions(1)
    assert shell.broker_pid() != pid
    assert shell.run("send", "worker", "hello").status == 0
    assert listener.event("message")["text"] == "hello"


def test_a_broker_that_does_not_answer_is_not_stopped(shell: Shell) -> None:
    """No process is ever signalled on the evidence of a file."""
    shell.serve()
    pid = shell.broker_pid()
    stop(pid)
    try:
        result = shell.run("stop", "--json", "--timeout", "0.3")
        assert (result.status, result.document["code"]) == (5, "busy")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert shell.broker_pid() == pid
