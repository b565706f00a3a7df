from __future__ import annotations

import os

import pytest

from intercom import __version__
from intercom.cli import restart
from intercom.cli.restart import LEAVING_HINT
from intercom.errors import ConnectionLost, IntercomError, NoBroker
from tests.support.commands import Shell, is_alive
from tests.support.processes import stop


def test_sessions_of_all_groups_move_to_the_new_broker(shell: Shell) -> None:
    """F18: drain and replace."""
    listeners = [shell.listen("worker"), shell.listen("other", "--group", "alpha")]
    old = shell.broker_pid()
    ids = {
        listed["name"]: listed["id"] for listed in shell.run("list", "--group", "alpha", "--json").document["sessions"]
    }
    result = shell.run("restart", "--json")
    assert result.status == 0, result
    document = result.document
    assert document["old"] == {"pid": old, "version": __version__}
    assert document["new"]["pid"] == shell.broker_pid() != old
    assert not is_alive(old)
    assert sorted((each["name"], each["state"]) for each in document["sessions"]) == [
        ("other", "back"),
        ("worker", "back"),
    ]
    assert ids["other"] in [each["id"] for each in document["sessions"]]
    assert shell.run("send", "worker", "hello").status == 0
    assert listeners[0].event("message")["text"] == "hello"


def test_what_a_person_sees(shell: Shell) -> None:
    shell.listen("worker")
    old = shell.broker_pid()
    result = shell.run("restart")
    lines = result.text.splitlines()
    assert lines[0] == f"old broker  pid {old}, intercom {__version__}"
    assert lines[1] == f"new broker  pid {shell.broker_pid()}, intercom {__version__}"
    assert lines[2].startswith("back        worker (")


def test_a_session_that_does_not_come_back_is_said(shell: Shell) -> None:
    """Exit 6: what to look at is printed."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("mute", session={"pid": os.getpid()})
        result = shell.run("restart", "--timeout", "0.3", "--json")
        assert (result.status, result.document["code"]) == (6, "not_back")
        assert [(each["name"], each["state"]) for each in result.document["sessions"]] == [("mute", "missing")]
        shell.serve()
    with shell.connect() as peer:
        peer.register("mute", session={"pid": os.getpid()})
        plain = shell.run("restart", "--timeout", "0.3")
        assert plain.status == 6
        assert plain.errors.startswith("intercom: 1 of 1 sessions are not back yet. `intercom list`")


def test_a_session_whose_process_ended_is_not_missed(shell: Shell) -> None:
    listener = shell.listen("worker")
    stop(listener.process.pid)
    restarting = shell.start("restart", "--json")
    shell.wait_for(lambda: "stopped" in (shell.home / "intercom.log").read_text())
    listener.process.kill()
    listener.process.wait()
    ended = restarting.finish()
    assert ended.status == 0, ended
    assert b'"state":"ended"' in ended.out


def test_where_no_broker_runs_one_is_started_and_that_is_said(shell: Shell) -> None:
    """The lines of `intercom docs cluster` work on a machine on which nothing ran before."""
    result = shell.run("restart", "--json")
    assert result.status == 0, result
    assert result.document["old"] is None and result.document["sessions"] == []
    assert result.document["new"] == {"pid": shell.broker_pid(), "version": __version__}
    shell.run("stop")
    assert shell.run("restart").text.splitlines()[0] == "old broker  none ran"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("quiet_report", ConnectionLost("The broker closed the connection")),
        ("_everybody", ConnectionLost("The broker closed the connection")),
        ("_everybody", NoBroker("No broker answers")),
    ],
)
def test_a_broker_that_somebody_else_restarts_just_now(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: IntercomError, step: str
) -> None:
    """Of two restarts at the same time the second did nothing, and is told what to do."""

    def leaves(*_: object) -> None:
        raise error

    monkeypatch.setattr(restart, "quiet_report", lambda *_: {"pid": os.getpid()})
    monkeypatch.setattr(restart, step, leaves)
    document = shell.run("restart", "--json").document
    assert (document["code"], document["hint"]) == (error.code, LEAVING_HINT)
    assert shell.run("restart").status == error.exit_status
