"""Commands that are repeated under an id, and questions that are over before somebody has them (F76, protocol 6.9)."""

from __future__ import annotations

import os
import signal
import time

from tests.support.commands import Shell, asked, strict
from tests.support.processes import stop


def test_an_answer_is_repeated_under_its_id(shell: Shell) -> None:
    """F76: the first outcome again, although the question is answered and the command that asked has ended"""
    asker, question = asked(shell)
    reply = ("reply", question, "because", "--as", "worker", "--message-id", "r1", "--json")
    first = shell.run(*reply)
    assert (first.status, first.document["state"]) == (0, "delivered")
    assert strict(asker.finish().text)["answer"]["text"] == "because"
    shell.wait_for_sessions(0)
    again = shell.run(*reply)
    assert (again.status, again.document["state"], again.document["messageId"]) == (0, "delivered", "r1")
    other = shell.run("reply", question, "because", "--as", "worker", "--json")
    assert (other.status, other.document["code"]) == (3, "unknown_question")


def test_an_ask_that_was_answered_is_not_waited_for(shell: Shell) -> None:
    """Protocol 6.9.5: what became of it is said at once, and where an answer may be"""
    listener = shell.listen("worker", "--answer", "echo 4")
    ask = ("ask", "worker", "2+2", "--as", "planner", "--message-id", "q1", "--timeout", "60", "--json")
    assert shell.run(*ask).document["answer"]["text"] == "4"
    began = time.monotonic()
    again = shell.run(*ask)
    assert (again.status, again.document["code"]) == (6, "already_answered")
    assert "intercom receive" in again.document["hint"] and time.monotonic() - began < 30
    assert listener.process.poll() is None


def test_a_question_of_a_command_that_was_killed_is_asked_again(shell: Shell) -> None:
    """Protocol 6.5, 5.43: it ended with its asker; the same id opens it again, and the text need not come twice"""
    shell.serve()
    reader = shell.start("receive", "--as", "worker", "--wait", "--json")
    shell.wait_for_sessions(1)
    asker = shell.start("ask", "worker", "why?", "--as", "planner", "--message-id", "q1", "--json")
    reader.finish()
    asker.process.kill()
    asker.process.wait()
    shell.wait_for_sessions(0)
    refused = shell.run("reply", "q1", "because", "--as", "worker", "--json")
    assert (refused.status, refused.document["code"]) == (3, "unknown_question")
    again = shell.start("ask", "worker", "why?", "--as", "planner", "--message-id", "q1", "--json")
    shell.wait_for_questions(1)
    assert shell.run("reply", "q1", "because", "--as", "worker", "--json").document["state"] == "delivered"
    assert strict(again.finish().text)["answer"]["text"] == "because"


def test_a_question_to_the_person_that_timed_out_is_gone(shell: Shell) -> None:
    """Protocol 4.24: nobody waits, so the person is not bothered; `trace` says what became of it"""
    shell.serve()
    ended = shell.run("ask", "@me", "may I?", "--as", "planner", "--timeout", "0.3", "--message-id", "q1", "--json")
    assert (ended.status, ended.document["code"]) == (6, "ask_timeout")
    assert shell.run("mailbox", "show", "@me", "--json").document["count"] == 0
    traced = shell.run("trace", "q1", "--json").document
    assert (traced["state"], traced["events"][-1]["state"]) == ("withdrawn", "withdrawn")


def test_what_a_stopped_reader_left_is_shown_until_it_is_received(shell: Shell) -> None:
    """Protocol 6.10.7: it may have been read, so it is uncertain; where it is can be seen"""
    shell.serve({"INTERCOM_RECEIPT_WAIT_MS": "200"})
    worker = shell.listen("worker")
    worker.signal(signal.SIGSTOP)
    sent = shell.run(
        "send", "worker", "hi", "--as", "planner", "--no-queue", "--message-id", "m1", "--timeout", "1", "--json"
    )
    assert (sent.status, sent.document["code"]) == (6, "receipt_missing")
    worker.process.kill()
    worker.process.wait()
    shell.wait_for_sessions(0)
    box = shell.run("mailbox", "show", "worker", "--json").document
    assert (box["count"], [entry["messageId"] for entry in box["unconfirmed"]]) == (0, ["m1"])
    assert "m1" in shell.run("mailbox", "show", "worker").text
    traced = shell.run("trace", "m1", "--json").document
    assert traced["state"] == "unconfirmed" and "worker in default left without confirming it" in traced["where"]
    [message] = shell.run("receive", "--as", "worker", "--json").document["messages"]
    assert message["id"] == "m1"
    assert shell.run("trace", "m1", "--json").document["state"] == "delivered"
    assert shell.run("mailbox", "show", "worker", "--json").document["unconfirmed"] == []


def test_who_gave_up_on_a_stopped_broker_takes_no_place_later(shell: Shell) -> None:
    """Protocol 1.6, design 9: 5 says that nothing took effect"""
    worker = shell.listen("worker")
    pid = shell.broker_pid()
    stop(pid)
    try:
        ended = shell.run("receive", "--as", "worker", "--take-over", "--timeout", "0.5", "--json")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ended.status == 5
    assert shell.run("send", "worker", "still there?", "--as", "planner", "--json").document["state"] == "delivered"
    assert worker.event("message")["text"] == "still there?", "it was not replaced"


def test_several_addresses_of_a_name_are_told_apart_by_group(shell: Shell) -> None:
    """Protocol 9.5.1: the advice works as it is written"""
    shell.serve()
    for group in ("one", "two"):
        shell.run("receive", "--as", "bob", "--group", group)
    both = ("--as", "ann", "--group", "one", "--group", "two")
    refused = shell.run("send", "bob", "hi", *both, "--json")
    assert (refused.status, refused.document["code"]) == (4, "ambiguous")
    assert "the address in group one, the address in group two" in refused.document["reason"]
    assert "--group" in refused.document["hint"] and "session id" not in refused.document["hint"]
    assert shell.run("send", "bob", "hi", "--as", "ann", "--group", "two", "--json").document["state"] == "queued"
    assert shell.run("receive", "--as", "bob", "--group", "one", "--json").document["messages"] == []
    assert len(shell.run("receive", "--as", "bob", "--group", "two", "--json").document["messages"]) == 1


def test_a_damaged_identity_says_so(shell: Shell) -> None:
    """Which file, and what it means for the address"""
    shell.serve()
    shell.run("receive", "--as", "worker")
    [file] = (shell.home / "identities" / "addresses").glob("*.json")
    file.write_text("{")
    refused = shell.run("receive", "--as", "worker", "--json")
    assert (refused.status, refused.document["code"]) == (7, "identity_damaged")
    assert str(file) in refused.document["reason"] and "nobody receives there" in refused.document["hint"]


def test_a_conflict_with_what_waits_does_not_claim_a_delivery(shell: Shell) -> None:
    """F71: the id belongs to mail that nobody has"""
    shell.serve()
    shell.run("receive", "--as", "worker")
    sent = ("--as", "planner", "--message-id", "m1", "--json")
    assert shell.run("send", "worker", "one", *sent).document["state"] == "queued"
    refused = shell.run("send", "worker", "two", *sent)
    assert (refused.status, refused.document["code"]) == (4, "conflict")
    assert "waits" in refused.document["reason"] and "delivered" not in refused.document["reason"]
