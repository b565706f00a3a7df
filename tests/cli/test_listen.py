from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.support.commands import INTERCOM, Shell
from tests.support.raw import RawClient


def test_a_person_reads_who_says_what(shell: Shell) -> None:
    """F110, F111: a body cannot look like a line of ours, and holds no raw control character."""
    listener = shell.start("listen", "--as", "worker")
    shell.wait_for_sessions(1)
    assert (
        shell.run("send", "worker", "--as", "planner", "--", "one\n12:00:00 boss (00000000) says:\x1b[2J").status == 0
    )
    assert shell.run("send", "worker", "hello").status == 0
    listener.signal(signal.SIGINT)
    result = listener.finish()
    assert result.status == 130
    head, first, second, anonymous, last = result.text.splitlines()
    assert head[8:].startswith(" planner (")
    assert head.endswith(") says:")
    assert (first, second) == ("    one", "    12:00:00 boss (00000000) says:\\x1b[2J")
    assert anonymous.endswith(" says, as a guest whom no reply reaches:")
    assert last == "    hello"
    assert result.errors.startswith("listening as worker (")


def test_the_documents_of_a_stream(shell: Shell) -> None:
    """Design section 9: streams print one document per line, and say when they end."""
    listener = shell.start("listen", "--as", "worker", "--group", "alpha", "--json")
    listening = listener.event("listening")
    assert (listening["ok"], listening["name"], listening["groups"]) == (True, "worker", ["alpha"])
    with shell.connect() as peer:
        peer.register("peer", registrationGroup="alpha", session={"group": "alpha"})
        attachments = [{"type": "snippet", "name": "n", "content": "c", "language": "python"}]
        content = {"text": "see", "attachments": attachments}
        peer.send_message("worker", "m-1", message={"content": content, "replyTo": "m-0"})
        message = listener.event("message")
        assert message["from"]["id"] == peer.session_id
        assert (message["id"], message["text"], message["replyTo"]) == ("m-1", "see", "m-0")
        assert message["attachments"] == attachments
    listener.signal(signal.SIGTERM)
    result = listener.finish()
    assert (result.status, result.errors) == (143, f"listening as worker ({listening['id'][:8]})\n")
    assert result.document == {
        "ok": False,
        "event": "ended",
        "code": "interrupted",
        "reason": "Terminated",
        "retry": "never",
    }


def test_listening_for_a_while(shell: Shell) -> None:
    shell.serve()
    result = shell.run("listen", "--as", "worker", "--timeout", "1", "--json")
    assert result.status == 0
    lines = result.text.splitlines()
    assert len(lines) == 2
    assert lines[1] == '{"ok":true,"event":"ended"}'


def test_a_question_without_a_command_waits(shell: Shell) -> None:
    listener = shell.listen("worker")
    asker = shell.start("ask", "worker", "why", "--timeout", "0.5")
    assert listener.event("message")["expectsReply"] is True
    assert asker.finish().status == 6


def test_the_command_gets_the_text_on_its_input_and_the_rest_in_its_environment(shell: Shell) -> None:
    """Design section 7, Trust: peer text never reaches a command line."""
    report = (
        'cat; echo "|$INTERCOM_MESSAGE_ID|$INTERCOM_SENDER_NAME|$INTERCOM_SENDER_DIRECTORY|$INTERCOM_CHANNEL|'
        '${INTERCOM_NAME-unset}|$INTERCOM_HOME|$#"'
    )
    shell.listen("worker", "--answer", report, env=shell.environment({"INTERCOM_NAME": "worker"}))
    text = "$(touch /tmp/never); `id`\n\"quoted\" 'too'\0"
    result = shell.run("ask", "worker", "-", "--as", "plan ner", "--message-id", "q-1", stdin=text.encode())
    expected = f"{text}|q-1|plan ner|{shell.cwd}||unset|{shell.home}|0\n"
    assert result.text == expected.replace("\0", "\\x00")


def test_what_does_not_fit_into_an_environment_is_made_to_fit(shell: Shell) -> None:
    shell.listen("worker", "--answer", 'printf %s "$INTERCOM_SENDER_NAME" | wc -c')
    with shell.connect() as peer:
        peer.register("a\0" + "x" * 20_000)
        peer.send_message("worker", "q-1", message={"expectsReply": True})
        peer.expect("delivered")
        assert int(peer.expect("message")["message"]["content"]["text"]) == 1_024 + 2


def test_questions_are_answered_in_order_and_messages_are_shown_meanwhile(shell: Shell) -> None:
    """A command at work holds nobody up who only sends."""
    listener = shell.listen("worker", "--answer", "read name; while [ ! -e $name ]; do sleep 0.02; done; echo $name")
    first = shell.start("ask", "worker", "first")
    assert listener.event("message")["text"] == "first"
    second = shell.start("ask", "worker", "second")
    assert listener.event("message")["text"] == "second"
    (shell.cwd / "second").touch()
    assert shell.run("send", "worker", "hello").status == 0
    assert listener.event("message")["text"] == "hello"
    (shell.cwd / "first").touch()
    assert listener.event("answered")["text"] == "first"
    assert listener.event("answered")["text"] == "second"
    assert (first.finish().text, second.finish().text) == ("first\n", "second\n")


def test_a_question_that_was_taken_back_is_not_worked_on(shell: Shell) -> None:
    """Protocol 5.42: it was shown, and nobody waits for its answer when its turn comes"""
    listener = shell.listen("worker", "--answer", "read name; while [ ! -e $name ]; do sleep 0.02; done; echo $name")
    first = shell.start("ask", "worker", "first")
    listener.event("message")
    second = shell.start("ask", "worker", "second")
    assert listener.event("message")["text"] == "second"
    shell.wait_for_questions(2)
    second.signal(signal.SIGINT)
    assert second.finish().status == 130
    shell.wait_for_questions(1)
    third = shell.start("ask", "worker", "third")
    assert listener.event("message")["text"] == "third", "what was written before it has been read"
    for name in ("first", "second", "third"):
        (shell.cwd / name).touch()
    assert [listener.event("answered")["text"] for _ in range(2)] == ["first", "third"]
    assert (first.finish().text, third.finish().text) == ("first\n", "third\n")


def status_of(shell: Shell, name: str) -> tuple[str | None, float]:
    [found] = [each for each in shell.run("list", "--json").document["sessions"] if each.get("name") == name]
    return found.get("status"), found["lastActivity"]


def test_it_is_busy_while_its_command_is_at_work(shell: Shell) -> None:
    """`list` shows it; between two questions that wait it does not become idle.

    F68: a status is not an answer, so the questions stay open meanwhile.
    """
    listener = shell.listen("worker", "--answer", "read name; while [ ! -e $name ]; do sleep 0.02; done; echo $name")
    assert status_of(shell, "worker")[0] == "idle"
    first, second = shell.start("ask", "worker", "first"), None
    listener.event("message")
    shell.wait_for(lambda: status_of(shell, "worker")[0] == "busy")
    since = status_of(shell, "worker")[1]
    second = shell.start("ask", "worker", "second")
    listener.event("message")
    (shell.cwd / "first").touch()
    listener.event("answered")
    first.finish()
    assert status_of(shell, "worker") == ("busy", since)
    (shell.cwd / "second").touch()
    listener.event("answered")
    second.finish()
    shell.wait_for(lambda: status_of(shell, "worker")[0] == "idle")


def test_it_is_still_busy_when_the_broker_is_replaced(shell: Shell) -> None:
    """Neither does the answer wait for a broker that dies, nor is the time lost at which the work began."""
    listener = shell.listen("worker", "--answer", "while [ ! -e go ]; do sleep 0.02; done; echo done")
    before = time.time_ns() // 1_000_000
    asker = shell.start("ask", "worker", "why")
    listener.event("message")
    shell.wait_for(lambda: status_of(shell, "worker")[0] == "busy")
    since = status_of(shell, "worker")[1]
    os.kill(shell.broker_pid(), signal.SIGKILL)
    shell.wait_for_sessions(2)
    status, again = status_of(shell, "worker")
    assert status == "busy"
    assert before <= again <= since, "it said so before the first broker took notice"
    os.kill(shell.broker_pid(), signal.SIGKILL)
    (shell.cwd / "go").touch()
    assert asker.finish().text == "done\n"
    listener.event("answered")
    shell.wait_for(lambda: status_of(shell, "worker")[0] == "idle")


def test_without_a_command_it_says_nothing_of_itself(shell: Shell) -> None:
    shell.listen("worker")
    assert status_of(shell, "worker")[0] is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 7", "the command ended with status 7"),
        ("echo no >&2; exit 1", "the command ended with status 1: no"),
        ("kill -9 $$", "the command ended with signal 9"),
        ("no-such-command-at-all", "the command ended with status 127"),
        ("head -c 4000000 /dev/zero", "the command printed more than 3145728 bytes"),
    ],
)
def test_a_command_that_fails_tells_the_asker(shell: Shell, command: str, reason: str) -> None:
    listener = shell.listen("worker", "--answer", command)
    document = shell.run("ask", "worker", "why", "--json").document
    assert (document["code"], document["reason"][: len(reason)]) == ("reply_error", reason)
    listener.event("message")
    assert listener.event("answered")["failed"] is True


def test_an_answer_that_json_makes_too_large(shell: Shell) -> None:
    """What fits in bytes may not fit as JSON: then the asker is told so."""
    listener = shell.listen("worker", "--answer", "head -c 1000000 /dev/zero")
    document = shell.run("ask", "worker", "why", "--json").document
    assert document["code"] == "reply_error"
    assert document["reason"].startswith("the answer is too large")
    listener.event("message")
    assert listener.event("answered")["failed"] is True


def test_what_a_command_leaves_running_holds_nobody_up(shell: Shell) -> None:
    shell.listen("worker", "--answer", "sleep 30 & echo $!")
    result = shell.run("ask", "worker", "why")
    try:
        assert result.status == 0
    finally:
        os.kill(int(result.text), signal.SIGKILL)


def test_the_command_ends_with_its_listener(shell: Shell) -> None:
    listener = shell.listen("worker", "--answer", "echo $$ >pid; exec sleep 30")
    asker = shell.start("ask", "worker", "why", "--json")
    listener.event("message")
    shell.wait_for(lambda: (shell.cwd / "pid").exists() and (shell.cwd / "pid").read_text().endswith("\n"))
    shell.wait_for_questions(1)  # before, the message is not confirmed
    listener.signal(signal.SIGINT)
    assert listener.finish().status == 130
    assert asker.finish().document["code"] == "peer_gone"
    with pytest.raises(ProcessLookupError):
        os.kill(int((shell.cwd / "pid").read_text()), 0)


def test_an_asker_that_is_gone_is_reported_and_forgotten(shell: Shell) -> None:
    listener = shell.listen("worker", "--answer", "while [ ! -e go ]; do sleep 0.02; done; echo late")
    asker = shell.start("ask", "worker", "why")
    question = listener.event("message")
    asker.signal(signal.SIGINT)
    asker.finish()
    (shell.cwd / "go").touch()
    unanswered = listener.event("unanswered")
    assert (unanswered["ok"], unanswered["messageId"]) == (False, question["id"])
    assert shell.run("ask", "worker", "again").text == "late\n"


def test_what_nobody_read_comes_again(shell: Shell) -> None:
    """A message printed for a reader that is gone is not confirmed; the next listener of that name gets it."""
    reader, writer = os.pipe()
    listener = subprocess.Popen(
        (*INTERCOM, "listen", "--as", "worker", "--json"),
        stdout=writer,
        stderr=subprocess.PIPE,
        env=shell.environment(),
    )
    try:
        os.close(writer)
        assert b"listening" in os.read(reader, 4_096)
        os.close(reader)
        sender = shell.start("send", "worker", "do not lose me", "--as", "planner")
        _, errors = listener.communicate(timeout=20)
        assert listener.returncode == 0
        assert errors.count(b"\n") == 1
        assert shell.listen("worker").event("message")["text"] == "do not lose me"
        assert sender.finish().status == 0
    finally:
        if listener.poll() is None:
            listener.kill()
            listener.wait()


def test_a_listener_goes_on_when_the_broker_is_replaced(shell: Shell) -> None:
    listener = shell.listen("worker")
    os.kill(shell.broker_pid(), signal.SIGKILL)
    shell.wait_for_sessions(1)
    assert shell.run("send", "worker", "still there", "--as", "planner").status == 0
    assert listener.event("message")["text"] == "still there"
    listener.signal(signal.SIGINT)
    assert len(listener.finish().errors.splitlines()) == 1, "F131: nothing is said but that it listens"


def test_a_guest_may_listen(shell: Shell) -> None:
    listener = shell.start("listen", "--json")
    listening = listener.event("listening")
    assert listening["name"] is None
    assert shell.run("send", listening["id"], "hello", "--as", "planner").status == 0
    assert listener.event("message")["text"] == "hello"


def test_the_connection_ends_with_a_goodbye(shell: Shell) -> None:
    """Who watches sees the session leave at once, not after a time-out."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("peer")
        listener = shell.listen("worker")
        assert peer.expect("session_joined")["session"]["name"] == "worker"
        listener.signal(signal.SIGINT)
        assert left(peer)


def left(peer: RawClient) -> bool:
    """Return whether the next news is that somebody left."""
    return peer.expect("session_left")["type"] == "session_left"
