from __future__ import annotations

import os
import signal

import pytest

from tests.support.commands import Shell
from tests.support.raw import Frame, RawClient


def reply(worker: RawClient, content: Frame) -> None:
    """Answer the next question with this content."""
    frame = worker.expect("message")
    question = frame["message"]["id"]
    message = {"replyTo": question, "content": content}
    worker.send_message(frame["from"]["id"], f"reply to {question}", message=message)
    worker.expect("delivered")


def test_the_answer_is_what_is_printed(shell: Shell) -> None:
    shell.listen("worker", "--answer", "tr a-z A-Z")
    result = shell.run("ask", "worker", "is", "it", "loud")
    assert (result.status, result.text, result.errors) == (0, "IS IT LOUD\n", "")


def test_the_document_of_an_answer(shell: Shell) -> None:
    worker = shell.listen("worker", "--answer", "printf 'four words\\n\\n'")
    document = shell.run("ask", "worker", "how many", "--json", "--message-id", "q-1").document
    question = worker.event("message")
    answered = worker.event("answered")
    assert (document["ok"], document["state"], document["messageId"]) == (True, "answered", "q-1")
    answer = document["answer"]
    assert (answer["text"], answer["replyTo"], answer["id"]) == ("four words\n", "q-1", answered["replyId"])
    assert answer["from"]["name"] == "worker"
    assert (question["id"], question["expectsReply"]) == ("q-1", True)
    assert (answered["messageId"], answered["state"], answered["failed"]) == ("q-1", "delivered", False)


def test_an_answer_with_control_characters_and_attachments(shell: Shell) -> None:
    """F110: piped output has no raw ESC; nothing is lost in the document."""
    shell.serve()
    with shell.connect() as worker:
        worker.register("worker")
        attachments = [{"type": "file", "name": "a\nb", "content": "one\ntwo\x1b"}]
        asker = shell.start("ask", "worker", "what")
        reply(worker, {"text": "x\x1b[2Jy\r", "attachments": attachments})
        result = asker.finish()
        assert result.text == "x\\x1b[2Jy\\r\n--- a\\nb\none\ntwo\\x1b\n"
        asker = shell.start("ask", "worker", "what", "--json")
        reply(worker, {"text": "x\x1b", "attachments": attachments})
        answer = asker.finish().document["answer"]
        assert (answer["text"], answer["attachments"]) == ("x\x1b", attachments)


def test_the_other_side_says_that_it_cannot(shell: Shell) -> None:
    shell.listen("worker", "--answer", "echo too hard >&2; exit 3")
    result = shell.run("ask", "worker", "why")
    assert (result.status, result.text) == (1, "")
    assert result.errors == "intercom: the command ended with status 3: too hard\n"
    document = shell.run("ask", "worker", "why", "--json").document
    assert (document["code"], document["reason"]) == ("reply_error", "the command ended with status 3: too hard")


def test_nobody_to_ask(shell: Shell) -> None:
    result = shell.run("ask", "worker", "why", "--json")
    assert (result.status, result.document["code"]) == (3, "not_found")


def test_no_answer_in_time(shell: Shell) -> None:
    """F119: a status of its own; the question is withdrawn."""
    shell.serve()
    with shell.connect() as worker:
        worker.register("worker")
        result = shell.run("ask", "worker", "why", "--timeout", "0.3")
        assert (result.status, result.text) == (6, "")
        document = shell.run("ask", "worker", "why", "--timeout", "0.3", "--json", "--message-id", "q").document
        assert (document["code"], document["messageId"]) == ("ask_timeout", "q")
        with shell.connect() as control:
            assert control.status()["broker"]["openQuestions"] == 0


def test_the_other_side_leaves(shell: Shell) -> None:
    shell.serve({"INTERCOM_RECEIPT_WAIT_MS": "300"})
    worker = shell.listen("worker")
    asker = shell.start("ask", "worker", "why", "--json")
    worker.event("message")
    shell.wait_for_questions(1)
    worker.signal(signal.SIGTERM)
    result = asker.finish()
    assert (result.status, result.document["code"]) == (6, "peer_gone")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_question_is_withdrawn(shell: Shell, number: signal.Signals, status: int) -> None:
    """F120: quiet, its own status, and the broker has no open question any more."""
    worker = shell.listen("worker")
    asker = shell.start("ask", "worker", "why", "--as", "planner")
    worker.event("message")
    with shell.connect() as control:
        shell.wait_for(lambda: control.status()["broker"]["openQuestions"] == 1)
        asker.signal(number)
        assert asker.finish()[:3] == (status, b"", b"")
        assert control.status()["broker"]["openQuestions"] == 0


def test_an_interrupted_question_is_a_document_too(shell: Shell) -> None:
    worker = shell.listen("worker")
    asker = shell.start("ask", "worker", "why", "--json")
    worker.event("message")
    asker.signal(signal.SIGINT)
    result = asker.finish()
    assert (result.status, result.document["code"]) == (130, "interrupted")


def test_the_broker_dies_and_the_answer_comes(shell: Shell) -> None:
    """Design section 5, asks survive: killed between question and answer, asked and answered once."""
    worker = shell.listen("worker", "--answer", "while [ ! -e go ]; do sleep 0.02; done; wc -w")
    asker = shell.start("ask", "worker", "three little words", "--json")
    worker.event("message")
    killed = shell.broker_pid()
    os.kill(killed, signal.SIGKILL)
    shell.wait_for_sessions(2)
    (shell.cwd / "go").touch()
    result = asker.finish()
    assert (result.status, result.document["answer"]["text"].strip()) == (0, "3")
    assert worker.event("answered")["state"] == "delivered"
    assert shell.broker_pid() != killed


def test_a_question_longer_than_allowed(shell: Shell) -> None:
    result = shell.run("ask", "worker", "why", "--timeout", "601", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert result.document["reason"] == "an ask waits at most 600 s, but for one to @me"
    assert not shell.home.exists()
