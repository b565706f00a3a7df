"""The person's own address: any agent may send there and ask there, only the person reads and answers."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

from tests.support.commands import INTERCOM, Shell


def person(shell: Shell, *arguments: str) -> tuple[int, str]:
    """Run a command as the person does: standard input is a terminal, no agent host around."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            (*INTERCOM, *arguments),
            stdin=theirs,
            capture_output=True,
            cwd=shell.cwd,
            env=shell.environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    sys.stderr.write(done.stderr.decode())
    return done.returncode, done.stdout.decode()


def mail_of_the_person(shell: Shell) -> list[dict[str, Any]]:
    status, text = person(shell, "receive", "--me", "--json")
    assert status == 0
    found: list[dict[str, Any]] = json.loads(text)["messages"]
    return found


def test_a_message_to_the_person_waits_whatever_the_group(shell: Shell) -> None:
    """Design section 7: @me is the broker's own, reachable from every group."""
    shell.serve()
    document = shell.run("send", "@me", "look at this", "--as", "planner", "--group", "far", "--json").document
    assert (document["state"], document["position"]) == ("queued", 1)
    status, text = person(shell, "receive", "--me")
    assert status == 0
    assert "    look at this\n" in text
    assert "answer with: intercom send planner TEXT" in text
    assert mail_of_the_person(shell) == []


def test_a_question_to_the_person_waits_until_it_is_answered(shell: Shell) -> None:
    """Design section 7, Queueing: an ask is queued only for an address that answers later."""
    shell.serve()
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--timeout", "3600", "--json")
    shell.wait_for(lambda: shell.run("mailbox", "show", "@me", "--json").document.get("count") == 1)
    status, text = person(shell, "receive", "--me")
    assert status == 0
    [answer] = [line for line in text.splitlines() if "answer with" in line]
    question = answer.split()[-2]
    assert answer.strip() == f"answer with: intercom reply --me {question} TEXT"
    status, text = person(shell, "pending", "--me", "--json")
    assert [ask["messageId"] for ask in json.loads(text)["questions"]] == [question]
    status, text = person(shell, "reply", "--me", question, "yes")
    assert status == 0
    result = asker.finish()
    document = json.loads(result.out)
    assert (document["state"], document["answer"]["text"]) == ("answered", "yes")


def test_agents_do_not_act_as_the_person(shell: Shell) -> None:
    """Design section 7, Trust."""
    shell.serve()
    for verb in (("receive",), ("pending",), ("reply", "m", "x")):
        result = shell.run(*verb, "--me", "--as", "planner", "--json")
        assert (result.status, result.document["code"]) == (7, "not_a_person")


def test_no_session_is_called_like_the_person(shell: Shell) -> None:
    for name in ("@me", "me", "@intercom"):
        assert shell.run("listen", "--as", name).status == 2


def test_a_question_that_waits_for_the_person_survives_the_broker(shell: Shell) -> None:
    """Design section 5, asks survive: it opens when the person gets it, however often the broker was killed."""
    shell.serve()
    asker = shell.start("ask", "@me", "may I?", "--as", "planner", "--message-id", "q1", "--timeout", "60", "--json")
    shell.wait_for(lambda: shell.run("mailbox", "show", "@me", "--json").document.get("count") == 1)
    os.kill(shell.broker_pid(), signal.SIGKILL)
    assert [message["text"] for message in mail_of_the_person(shell)] == ["may I?"]
    status, _ = person(shell, "reply", "--me", "q1", "you may")
    assert status == 0
    done = asker.finish()
    assert (done.status, done.document["answer"]["text"]) == (0, "you may")
