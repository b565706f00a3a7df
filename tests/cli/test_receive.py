from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.support.commands import INTERCOM, Shell


def put(shell: Shell, *texts: str, to: str = "worker") -> list[str]:
    """Leave messages for an address that nobody holds now, and return their ids."""
    shell.serve()
    shell.run("receive", "--as", to)
    ids = []
    for text in texts:
        document = shell.run("send", to, text, "--as", "planner", "--json").document
        assert document["state"] == "queued"
        ids.append(document["messageId"])
    return ids


def texts_of(shell: Shell, name: str = "worker") -> list[str]:
    document = shell.run("receive", "--as", name, "--json").document
    return [message["text"] for message in document["messages"]]


def waiting(shell: Shell, name: str = "worker") -> int:
    count: int = shell.run("mailbox", "--as", name, "--json").document["count"]
    return count


# --- success --------------------------------------------------------------------------------------------


def test_mail_is_printed_in_order_with_the_way_to_answer_it(shell: Shell) -> None:
    put(shell, "one", "two\nlines")
    result = shell.run("receive", "--as", "worker")
    assert (result.status, result.errors) == (0, "")
    lines = result.text.splitlines()
    assert [line[9:16] for line in lines if not line.startswith(" ")] == ["planner", "planner"]
    assert [line for line in lines if line.startswith("    ")] == ["    one", "    two", "    lines"]
    assert lines.count("  answer with: intercom send --as worker planner TEXT") == 2
    assert shell.run("receive", "--as", "worker").text == "no mail\n"
    assert waiting(shell) == 0


def test_the_document_holds_what_was_handed_over_together(shell: Shell) -> None:
    ids = put(shell, "one", "two")
    document = shell.run("receive", "--as", "worker", "--json").document
    assert [message["id"] for message in document["messages"]] == ids
    assert document["left"] == 0
    assert document["messages"][0]["mail"]["offers"] == 1
    assert document["messages"][0]["from"]["name"] == "planner"
    empty = shell.run("receive", "--as", "worker", "--json").document
    assert (empty["messages"], empty["left"]) == ([], 0)


def test_more_than_fits_into_one_document_is_left(shell: Shell) -> None:
    """The broker hands over 32 ahead of their receipts; what was not printed is not taken out."""
    put(shell, *(f"m{number}" for number in range(40)))
    document = shell.run("receive", "--as", "worker", "--json").document
    taken = len(document["messages"])
    assert 0 < taken <= 40
    assert document["left"] == 40 - taken
    rest = [] if taken == 40 else texts_of(shell)
    assert [message["text"] for message in document["messages"]] + rest == [f"m{number}" for number in range(40)]


def test_for_a_person_all_of_it_is_printed(shell: Shell) -> None:
    put(shell, *(f"m{number}" for number in range(40)))
    text = shell.run("receive", "--as", "worker").text
    assert [line.strip() for line in text.splitlines() if line.startswith("    ")] == [f"m{n}" for n in range(40)]


def test_a_limit_leaves_the_rest(shell: Shell) -> None:
    put(shell, "one", "two", "three")
    document = shell.run("receive", "--as", "worker", "--json", "--limit", "1").document
    assert ([message["text"] for message in document["messages"]], document["left"]) == (["one"], 2)
    assert "two" in shell.run("receive", "--as", "worker", "--limit", "1").text
    assert texts_of(shell) == ["three"]


def test_control_characters_of_peers_are_made_visible(shell: Shell) -> None:
    put(shell, "a\x1b[2J\u202eb")
    assert "    a\\x1b[2J\\u202eb\n" in shell.run("receive", "--as", "worker").text


def test_waiting_ends_with_the_first_message(shell: Shell) -> None:
    put(shell)
    running = shell.start("receive", "--as", "worker", "--wait", "--json")
    shell.wait_for_sessions(1)
    shell.run("send", "worker", "here", "--as", "planner")
    result = running.finish()
    assert result.status == 0
    assert [message["text"] for message in json.loads(result.out)["messages"]] == ["here"]


def test_waiting_for_a_person_too(shell: Shell) -> None:
    put(shell)
    running = shell.start("receive", "--as", "worker", "--wait")
    shell.wait_for_sessions(1)
    shell.run("send", "worker", "here", "--as", "planner")
    result = running.finish()
    assert (result.status, "    here\n" in result.text) == (0, True)


def test_following_prints_each_as_a_document(shell: Shell) -> None:
    put(shell, "old")
    running = shell.start("receive", "--as", "worker", "--follow", "--json")
    assert running.event("message", "receive")["text"] == "old"
    shell.run("send", "worker", "new", "--as", "planner")
    assert running.event("message", "receive")["text"] == "new"
    shell.wait_for(lambda: waiting(shell) == 0)
    running.signal(signal.SIGINT)
    result = running.finish()
    assert result.status == 130
    assert json.loads(result.out)["event"] == "ended"


def test_following_ends_when_its_time_is_over(shell: Shell) -> None:
    put(shell, "old")
    documents = shell.run("receive", "--as", "worker", "--follow", "--timeout", "0.3", "--json").documents
    assert [document["event"] for document in documents] == ["message", "ended"]


# --- nothing is lost ------------------------------------------------------------------------------------


def test_what_nobody_read_stays(shell: Shell) -> None:
    """F62: the reader of standard output is gone; nothing was confirmed."""
    put(shell, "one", "two")
    for options in ((), ("--json",), ("--follow", "--json", "--timeout", "5")):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.Popen(
            (*INTERCOM, "receive", "--as", "worker", *options),
            stdout=writer,
            stderr=subprocess.DEVNULL,
            env=shell.environment(),
            cwd=shell.cwd,
        )
        os.close(writer)
        assert process.wait(30) == 0
    assert texts_of(shell) == ["one", "two"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_was_read_in_part_stays(shell: Shell, unbuffered: str) -> None:
    """F62: a reader that goes after the first bytes has not read the message, however the interpreter writes."""
    long = "x" * 300_000
    put(shell, long)
    for options in ((), ("--json",)):
        reader, writer = os.pipe()
        process = subprocess.Popen(
            (*INTERCOM, "receive", "--as", "worker", *options),
            stdout=writer,
            stderr=subprocess.DEVNULL,
            env=shell.environment({"PYTHONUNBUFFERED": unbuffered}),
            cwd=shell.cwd,
        )
        os.close(writer)
        assert len(os.read(reader, 10)) == 10
        os.close(reader)
        assert process.wait(30) == 0
    assert texts_of(shell) == [long]


def test_what_is_printed_nowhere_stays(shell: Shell) -> None:
    """A command without standard output has no reader."""
    put(shell, "one")
    for verb in ("receive", "listen"):
        closed = subprocess.run(
            ("sh", "-c", 'exec "$@" >&-', "sh", *INTERCOM, verb, "--as", "worker", "--timeout", "5"),
            stderr=subprocess.DEVNULL,
            env=shell.environment(),
            cwd=shell.cwd,
            timeout=60,
            check=False,
        )
        assert closed.returncode == 0
    assert texts_of(shell) == ["one"]


def test_what_was_printed_when_the_command_was_killed_comes_again_and_says_so(shell: Shell) -> None:
    """It may have been read, or not: whoever reads it again is told."""
    put(shell, "one")
    reader, writer = os.pipe()
    os.set_blocking(writer, True)
    blocked = b"x" * 65536
    os.write(writer, blocked)  # the pipe is full, so printing waits
    process = subprocess.Popen(
        (*INTERCOM, "receive", "--as", "worker"),
        stdout=writer,
        stderr=subprocess.DEVNULL,
        env=shell.environment(),
        cwd=shell.cwd,
    )
    os.close(writer)
    shell.wait_for_sessions(1)
    shell.wait_for(lambda: _state(shell) == "offered")
    process.kill()
    process.wait()
    os.close(reader)
    shell.wait_for_sessions(0)
    result = shell.run("receive", "--as", "worker")
    assert "    one\n" in result.text
    assert "handed over for the 2nd time" in result.text


def _state(shell: Shell) -> str:
    [entry] = shell.run("mailbox", "--as", "worker", "--json").document["entries"]
    state: str = entry["state"]
    return state


# --- refusals -------------------------------------------------------------------------------------------


def test_nothing_came_in_time(shell: Shell) -> None:
    put(shell)
    for options in ((), ("--json",)):
        result = shell.run("receive", "--as", "worker", "--wait", "--timeout", "0.2", *options)
        assert result.status == 6
    assert result.document["code"] == "no_mail"


def test_a_guest_has_no_mail(shell: Shell) -> None:
    result = shell.run("receive", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert "--as" in result.document["hint"]


def test_somebody_else_receives_already(shell: Shell) -> None:
    """It says who, and takes the place only when it is told to."""
    shell.serve()
    listener = shell.start("listen", "--as", "worker", "--json")
    session_id = listener.event("listening")["id"]
    result = shell.run("receive", "--as", "worker", "--json")
    assert (result.status, result.document["code"]) == (4, "address_held")
    assert session_id in result.document["reason"]
    assert "--take-over" in result.document["hint"]
    assert shell.run("receive", "--as", "worker", "--take-over").text == "no mail\n"
    ended = listener.finish()
    document = json.loads(ended.out)
    assert (ended.status, document["code"], document["event"]) == (4, "replaced", "ended")


def test_the_mail_of_the_person_is_for_the_person(shell: Shell) -> None:
    """Design section 7, Trust."""
    result = shell.run("receive", "--me", "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_a_limit_is_a_number(shell: Shell, limit: str) -> None:
    assert shell.run("receive", "--as", "worker", "--limit", limit).status == 2
