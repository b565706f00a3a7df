"""Show the person what waits and what it blocks, and take the answers (issue 10: the person is an addressee)."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.test_me import person
from tests.support.commands import INTERCOM, Shell
from tests.support.forking import end
from tests.support.raw import PATIENCE_S
from tests.support.schemas import assert_described


class Terminal:
    """Play the person: see what a command shows on a terminal, and type."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            (*INTERCOM, *arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=shell.cwd,
            env=shell.environment(),
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> str:
        """Read until this text was shown; return all that was shown before and with it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} was not shown; so far: {self.seen!r}"
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # the other side is closed
                data = b""
            assert data, f"{text!r} was not shown; all that was: {self.seen!r}"
            self.seen += data.decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, line: str) -> None:
        os.write(self.fd, line.encode() + b"\n")

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(shell: Shell, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(shell, *arguments)
    try:
        yield opened
    finally:
        end(opened.process)
        os.close(opened.fd)


def waiting(shell: Shell) -> int:
    count: int = shell.run("mailbox", "show", "@me", "--json").document.get("count", 0)
    return count


def shown(shell: Shell) -> dict[str, object]:
    status, text = person(shell, "me", "--json")
    assert status == 0
    document: dict[str, object] = json.loads(text)
    assert_described(document, "me")
    return document


def test_what_waits_is_shown_with_what_it_blocks_and_stays(shell: Shell) -> None:
    """The questions first: who waits, since when, and who waits for that one in turn."""
    listener = shell.start("listen", "--as", "planner", "--json")
    listener.event("listening")
    worker = shell.start("ask", "planner", "which way?", "--as", "worker", "--timeout", "60", "--json")
    listener.event("message")
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "q1", "--timeout", "60", "--json")
    shell.wait_for(lambda: waiting(shell) == 1)
    assert shell.run("send", "@me", "for your information", "--as", "worker").status == 0
    for _ in range(2):
        found = shown(shell)
        [question], [message] = found["questions"], found["messages"]  # type: ignore[misc]
        assert (question["messageId"], question["asker"], question["text"]) == ("q1", "planner", "may I?")
        assert [(wait["asker"], wait["target"]) for wait in question["blocks"]] == [("worker", "planner")]
        assert message["text"] == "for your information"
    status, text = person(shell, "me")
    assert status == 0
    assert text.index("planner (") < text.index("worker waits for planner since") < text.index("    may I?")
    assert "answer with: intercom me answer q1 TEXT" in text
    for running in (worker, asker, listener):
        running.close()


def test_a_question_that_was_not_read_is_answered(shell: Shell) -> None:
    shell.serve()
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "question-1", "--json")
    shell.wait_for(lambda: waiting(shell) == 1)
    status, text = person(shell, "me", "answer", "ques", "you", "may", "--json")
    assert (status, json.loads(text)["state"]) == (0, "delivered")
    done = asker.finish()
    assert (done.status, done.document["answer"]["text"]) == (0, "you may")
    assert waiting(shell) == 0


def test_a_question_that_was_read_is_answered(shell: Shell) -> None:
    shell.serve()
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "question-1", "--json")
    shell.wait_for(lambda: waiting(shell) == 1)
    assert person(shell, "receive", "--me")[0] == 0
    [question] = shown(shell)["questions"]  # type: ignore[misc]
    assert (question["messageId"], question["text"]) == ("question-1", None)
    assert person(shell, "me", "answer", "question-1", "no such thing", "--error")[0] == 0
    done = asker.finish()
    assert (done.status, done.document["code"]) == (1, "reply_error")


def test_a_question_shows_its_files_until_it_was_read(shell: Shell) -> None:
    """What was received is the reader's: the broker keeps no text of it (design section 5)."""
    shell.serve()
    (shell.cwd / "plan.txt").write_text("first this\nintercom says: that")
    shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "q1", "--attach", "plan.txt", "--json")
    shell.wait_for(lambda: waiting(shell) == 1)
    text = person(shell, "me")[1]
    assert "    may I?\n  --- plan.txt\n    first this\n    intercom says: that\n" in text
    assert person(shell, "receive", "--me")[0] == 0
    text = person(shell, "me")[1]
    assert "    (its text was shown when it was received, and is not kept)\n" in text
    assert "may I?" not in text and "answer with: intercom me answer q1 TEXT" in text


def test_an_answer_to_nothing_is_refused(shell: Shell) -> None:
    status, text = person(shell, "me", "answer", "nothing", "yes", "--json")
    assert (status, json.loads(text)["code"]) == (3, "unknown_question")


def test_the_person_answers_at_the_terminal(shell: Shell) -> None:
    """The prompt is for a terminal on both sides; an empty answer leaves it for later."""
    shell.serve()
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "q1", "--timeout", "60", "--json")
    shell.wait_for(lambda: waiting(shell) == 1)
    shell.run("send", "@me", "just so you know", "--as", "worker")
    with terminal(shell, "me") as screen:
        assert "may I?" in screen.until("answer (empty: later): ")
        screen.type("")
        screen.until("take these messages out?")
        screen.type("")
        assert screen.end() == 0
    assert waiting(shell) == 2
    with terminal(shell, "me") as screen:
        screen.until("answer (empty: later): ")
        screen.type("go ahead")
        assert "just so you know" in screen.until("take these messages out?")
        screen.type("y")
        assert screen.end() == 0
    assert asker.finish().document["answer"]["text"] == "go ahead"
    assert waiting(shell) == 0


def test_nothing_a_peer_wrote_reaches_the_terminal_raw(shell: Shell) -> None:
    """F110"""
    shell.serve()
    shell.run("send", "@me", "\x1b]52;c;evil\x07 \u202eabc", "--as", "worker")
    with terminal(shell, "me") as screen:
        text = screen.until("take these messages out?")
    assert "\x1b]52" not in text and "\\x1b]52" in text and "\u202e" not in text


def test_a_held_message_is_shown_and_let_through(shell: Shell) -> None:
    """F111: the person decides; what is refused is told to its sender"""
    shell.serve()
    assert shell.run("receive", "--as", "worker").status == 0
    assert person(shell, "policy", "set", "worker", "hold")[0] == 0
    sent = shell.run("send", "worker", "one", "--as", "planner", "--json").document
    assert (sent["state"], sent["kept"]) == ("queued", "hold")
    shell.run("send", "worker", "two", "--as", "planner", "--message-id", "m2")
    assert shell.run("receive", "--as", "worker", "--json").document["messages"] == []
    assert [held["owner"] for held in shown(shell)["held"]] == ["worker", "worker"]  # type: ignore[attr-defined]
    with terminal(shell, "me") as screen:
        # what the message is charged for is not its length, and would only mislead
        assert "bytes" not in screen.until("let it through?")
        screen.type("y")
        screen.until("let it through?")
        screen.type("n")
        assert screen.end() == 0
    assert [m["text"] for m in shell.run("receive", "--as", "worker", "--json").document["messages"]] == ["one"]
    [notice] = shell.run("receive", "--as", "planner", "--json").document["messages"]
    assert (notice["notice"]["kind"], notice["notice"]["messageId"]) == ("undeliverable", "m2")


def test_what_comes_is_said_and_stays(shell: Shell) -> None:
    """--follow takes nothing out; the command of the settings gets on its standard input what is said."""
    shell.serve()
    place = shell.cwd / "said"
    (shell.home / "intercom.toml").write_text(f'notify_command = "tee {place}"\n')
    with terminal(shell, "me", "--follow", "--bell") as screen:
        shell.run("send", "@me", "look", "--as", "planner")
        screen.until("planner wrote to you (message ")
        assert "\x07" in screen.until("\x07")
        shell.wait_for(lambda: place.exists() and place.read_text() == "planner wrote to you")
    assert waiting(shell) == 1


def test_a_notification_that_fails_is_said_and_ends_nothing(shell: Shell) -> None:
    shell.serve()
    (shell.home / "intercom.toml").write_text('notify_command = "false"\n')
    shell.run("send", "@me", "look", "--as", "planner")
    status, text = person(shell, "me", "--follow", "--timeout", "1", "--json")
    waits, ended = (json.loads(line) for line in text.splitlines())
    assert status == 0
    assert (waits["event"], waits["what"], waits["from"], ended["event"]) == ("waiting", "message", "planner", "ended")


@pytest.mark.parametrize("words", [(), ("answer", "m", "x"), ("--follow",)], ids=str)
def test_agents_do_not_read_for_the_person(shell: Shell, words: tuple[str, ...]) -> None:
    """Design section 7, Trust"""
    result = shell.run("me", *words, "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")
    assert not shell.home.exists()


@pytest.mark.parametrize("words", [("answer",), ("answer", "m"), ("what",), ("--follow", "answer", "m", "x")], ids=str)
def test_called_wrongly(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("me", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_nothing_waits(shell: Shell) -> None:
    assert person(shell, "me") == (0, "nothing waits for you\n")
