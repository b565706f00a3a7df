from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys

import pytest

from intercom import __version__
from intercom.cli import main as command
from intercom.errors import BrokerBusy, ConnectionLost
from tests.support.commands import INTERCOM, Shell, listen_to_signals


def test_what_to_do_next_is_told_and_leads_on() -> None:
    """Exit 6 always says what to look at; the hint of ``status`` does not send back to ``status``."""
    assert "`intercom status`" in ConnectionLost.hint
    assert "message id" in ConnectionLost.hint
    assert "`intercom doctor`" in BrokerBusy.hint
    assert "status" not in BrokerBusy.hint


def test_the_version(shell: Shell) -> None:
    for option in ("--version", "-V"):
        result = shell.run(option)
        assert (result.status, result.text, result.errors) == (0, f"intercom {__version__}\n", "")
    assert shell.run("--version", "--json").document == {"ok": True, "version": __version__}


def test_the_help_names_every_verb_and_every_status(shell: Shell) -> None:
    result = shell.run("--help")
    assert result.status == 0
    for verb in command.VERBS:
        assert f"\n  {verb} " in result.text
    for status in (0, 1, 2, 3, 4, 5, 6, 7, 130):
        assert f"\n  {status} " in result.text
    assert shell.run("--help", "--json").document["verbs"] == command.VERBS


@pytest.mark.parametrize("verb", command.VERBS)
def test_every_verb_explains_itself_to_any_stream(shell: Shell, verb: str) -> None:
    """F117."""
    run = shell.run_apart if verb == "list" else shell.run
    result = run(verb, "--help", env={"PYTHONIOENCODING": "ascii"})
    assert result.text.isascii()
    assert (result.status, result.errors) == (0, "")
    assert result.text.startswith(f"usage: intercom {verb} [options]")
    for option in ("--json", "--home"):
        assert option in result.text


@pytest.mark.parametrize(
    "arguments",
    [[], ["--json"], ["no-such-verb"], ["list", "extra"], ["list", "--", "x"], ["--no-such-option", "list"]],
)
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    result = shell.run(*arguments, "--json") if "--" not in arguments else shell.run("--json", *arguments)
    assert result.status == 2
    assert (result.document["ok"], result.document["code"]) == (False, "usage")
    assert result.errors == ""


def test_a_verb_that_is_no_text(shell: Shell) -> None:
    """F117."""
    result = shell.run(b"\xff\x1b[2J")
    assert result.status == 2
    assert "\x1b" not in result.errors
    assert "Traceback" not in result.errors


def test_options_may_stand_before_the_verb(shell: Shell) -> None:
    result = shell.run("--json", "--home", str(shell.home), "status", env={"INTERCOM_HOME": "/nowhere"})
    assert (result.status, result.document["code"]) == (5, "no_broker")
    assert result.document["home"] == str(shell.home)


def test_nobody_reads_the_help(shell: Shell) -> None:
    for arguments in (["--help"], ["list", "--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                (*INTERCOM, *arguments),
                stdout=writer,
                stderr=subprocess.PIPE,
                env=shell.environment(),
                timeout=20,
                check=False,
            )
        finally:
            os.close(writer)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_fault_of_ours_is_a_document_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """F118: standard output is one document whatever happens."""

    def fail(*_: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(command, "_dispatch", fail)
    assert command.main(["list", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["code"] == "internal"
    assert "ZeroDivisionError" in captured.err


def test_words_after_dashes_do_not_ask_for_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["no-such-verb", "--", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("intercom: there is no verb 'no-such-verb'")


@pytest.mark.parametrize(("extra", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_person_at_a_terminal_gets_a_table(shell: Shell, extra: dict[str, str], coloured: bool) -> None:
    """F110, F117: colours only on a terminal that wants them, and never a peer's control characters."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("evil\x1b]0;title\x07", session={"cwd": "/x"})
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            (*INTERCOM, "list"),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=shell.environment({"TERM": "xterm-256color", "COLUMNS": "120", "PYTHONUTF8": "1", **extra}),
        )
        os.close(follower)
        shown = read_all(leader)
        assert process.wait(10) == 0
    assert b"evil\\x1b]0;title\\x07" in shown
    assert b"\x1b]0" not in shown
    assert (b"\x1b[" in shown) is coloured


def read_all(descriptor: int) -> bytes:
    """Read a terminal until its other side is closed."""
    shown = b""
    try:
        while select.select([descriptor], [], [], 20)[0]:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # Linux says so when the other side is closed
                break
            if not data:
                break
            shown += data
    finally:
        os.close(descriptor)
    return shown


def test_the_package_can_be_run(shell: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import intercom.__main__"], env=shell.environment(), capture_output=True, check=True
    )
    assert done.stdout == b""


INTERRUPTED = """
import builtins, os, signal, sys
load = builtins.__import__
def interrupted(name, *rest, **more):
    if name == WHEN:
        builtins.__import__ = load
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *rest, **more)
sys.argv = ["intercom", "list", *sys.argv[1:]]
from intercom.__main__ import run
builtins.__import__ = interrupted
run()
"""


@pytest.mark.parametrize(
    "when", ["intercom.cli.arguments", "msgspec", "intercom.client.launch", "intercom.client.spawning"]
)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_an_interrupt_while_modules_are_loaded(shell: Shell, when: str, arguments: list[str]) -> None:
    """Design section 9: 130, at the first moment too."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.replace("WHEN", repr(when)), *arguments],
        capture_output=True,
        env=shell.environment(),
        preexec_fn=listen_to_signals,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"")
    document = b'{"ok":false,"code":"interrupted","reason":"Interrupted","retry":"never"}\n'
    assert done.stdout == (document if arguments else b"")


def test_an_interrupt_that_was_turned_into_another_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("could not be loaded") from error

    monkeypatch.setattr(command, "_dispatch", fail)
    assert command.main(["list"]) == 130
    assert capsys.readouterr().err == ""
