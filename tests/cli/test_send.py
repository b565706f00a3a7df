from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from intercom.cli.send import how_to_answer, repeatable
from intercom.client import blocking
from intercom.errors import NotNow
from tests.support.commands import INTERCOM, Shell


def test_delivered_means_that_the_other_side_has_it(shell: Shell) -> None:
    worker = shell.listen("worker")
    result = shell.run("send", "worker", "--as", "planner", "two", "words")
    arrived = worker.event("message")
    assert result.text == f"delivered to worker (message {arrived['id']})\n"
    assert (result.status, result.errors) == (0, "")
    assert (arrived["text"], arrived["from"]["name"], arrived["expectsReply"]) == ("two words", "planner", False)


def test_the_document_of_a_delivery(shell: Shell) -> None:
    worker = shell.listen("worker")
    document = shell.run("send", "worker", "hello", "--as", "planner", "--json").document
    assert document == {
        "ok": True,
        "state": "delivered",
        "messageId": worker.event("message")["id"],
        "target": "worker",
        "guest": False,
    }


def test_a_guest_is_told_that_nobody_can_reply(shell: Shell) -> None:
    """F55: nothing is guessed from the directory; the sender is an unnamed command."""
    worker = shell.listen("worker")
    result = shell.run("send", "worker", "hello")
    assert result.status == 0
    assert "--as" in result.errors
    sender = worker.event("message")["from"]
    assert "name" not in sender
    assert sender["model"] == "intercom send"
    assert sender["cwd"] == str(shell.cwd)
    assert shell.run("send", "worker", "hello", "--json").document["guest"] is True


def test_the_name_may_come_from_the_environment(shell: Shell) -> None:
    worker = shell.listen("worker")
    assert shell.run("send", "worker", "hello", env={"INTERCOM_NAME": "planner"}).errors == ""
    assert worker.event("message")["from"]["name"] == "planner"
    shell.run("send", "worker", "hello", "--as", "other", env={"INTERCOM_NAME": "planner"})
    assert worker.event("message")["from"]["name"] == "other"


def test_nobody_of_that_name(shell: Shell) -> None:
    """F50, F119: a status of its own, one line, similar names."""
    shell.listen("engineer")
    result = shell.run("send", "enginer", "hello")
    assert (result.status, result.text) == (3, "")
    assert result.errors == (
        "intercom: Session not found. Did you mean engineer? `intercom list` shows who can be reached.\n"
    )
    document = shell.run("send", "enginer", "hello", "--json").document
    assert (document["ok"], document["code"], document["retry"]) == (False, "not_found", "never")


def test_a_target_is_a_name_and_never_a_path(shell: Shell) -> None:
    """F50, F120: names are trimmed and compared without case; what is nobody's name is nobody."""
    shell.listen("engineer")
    for target in ("engineer ", " ENGINEER"):
        assert shell.run("send", target, "hello").status == 0
    for target in ("../x", "a/b", "CON", ".", "x" * 300):
        assert shell.run("send", target, "hello").status == 3


def test_two_of_one_name_are_both_shown_with_ids_that_work(shell: Shell) -> None:
    """F45; an address belongs to a group, so in one group there is one of a name."""
    twins = [shell.listen("twin", "--group", group) for group in ("a", "b")]
    both = ("--as", "planner", "--group", "a", "--group", "b")
    result = shell.run("send", "twin", "hello", *both)
    assert (result.status, result.text) == (4, "")
    ids = [line.split()[0] for line in result.errors.splitlines()[2:]]
    assert len(set(ids)) == 2
    document = shell.run("send", "twin", "hello", *both, "--json").document
    assert document["code"] == "ambiguous"
    assert [candidate["id"] for candidate in document["candidates"]] == ids
    for number, session_id in enumerate(ids):
        assert shell.run("send", session_id, f"for {number}", *both).status == 0
    assert sorted(twin.event("message")["text"] for twin in twins) == ["for 0", "for 1"]


def test_who_shares_no_group_is_not_reached(shell: Shell) -> None:
    worker = shell.listen("worker", "--group", "alpha")
    assert shell.run("send", "worker", "hello").status == 3
    assert shell.run("send", "worker", "hello", "--group", "beta", "--group", "alpha", "--as", "planner").status == 0
    assert worker.event("message")["from"]["groups"] == ["beta", "alpha"]


def test_the_same_message_id_arrives_once(shell: Shell) -> None:
    """F76: another process may repeat it; with other content it is a conflict."""
    worker = shell.listen("worker")
    first = shell.run("send", "worker", "once", "--message-id", "m-1", "--as", "planner", "--json")
    again = shell.run("send", "worker", "once", "--message-id", "m-1", "--as", "planner", "--json")
    assert first.document == again.document
    other = shell.run("send", "worker", "twice", "--message-id", "m-1", "--as", "planner", "--json")
    assert (other.status, other.document["code"], other.document["messageId"]) == (4, "conflict", "m-1")
    shell.run("send", "worker", "the end", "--as", "planner")
    assert [worker.event("message")["text"] for _ in range(2)] == ["once", "the end"]


def test_a_guest_may_repeat_a_message_too(shell: Shell) -> None:
    shell.listen("worker")
    for _ in range(2):
        assert shell.run("send", "worker", "once", "--message-id", "m-1").status == 0


def test_what_is_not_known_can_be_repeated(shell: Shell) -> None:
    """F76: on giving up the command prints the id with which a script can go on."""
    shell.serve()
    with shell.connect() as mute:
        mute.register("mute", acknowledgesReceipt=True, returnAddress="r")
        result = shell.run("send", "mute", "hello", "--timeout", "0.5", "--message-id", "m-1")
        assert (result.status, result.text) == (6, "")
        assert "--message-id m-1" in result.errors
        document = shell.run("send", "mute", "hello", "--timeout", "0.5", "--message-id", "m-1", "--json").document
        assert (document["ok"], document["retry"], document["messageId"]) == (False, "same_id", "m-1")
        while mute.receive()["type"] != "message":
            pass
        mute.send({"type": "received", "messageId": "m-1"})
        assert shell.run("send", "mute", "hello", "--message-id", "m-1").status == 0


def test_bodies_that_look_like_options(shell: Shell) -> None:
    """F120."""
    worker = shell.listen("worker")
    for body in ("--json", "", " ", "\n", "--", "-x", "--as", "{}", "one\r\ntwo"):
        assert shell.run("send", "--as", "planner", "--", "worker", body).status == 0
        assert worker.event("message")["text"] == body


def test_standard_input_is_read_for_a_dash(shell: Shell) -> None:
    """F120: what is too long for an argument goes this way; one line break at the end is dropped."""
    worker = shell.listen("worker")
    source = shell.cwd / "text"
    for given, text in (
        (b"one\ntwo\n", "one\ntwo"),
        (b"nul \0, carriage return \r\n", "nul \0, carriage return "),
        (b"broken \xff\xfe", "broken \ufffd\ufffd"),
        (b"x" * 500_000 + b"\n", "x" * 500_000),
        (b"", ""),
    ):
        source.write_bytes(given)
        with source.open("rb") as stdin:
            sender = shell.start("send", "worker", "-", "--as", "planner", stdin=stdin)
        assert worker.event("message")["text"] == text
        assert sender.finish().status == 0


def test_texts_of_any_size_arrive_whole(shell: Shell) -> None:
    """F37: all or nothing, as an argument, through standard input and as a file, whatever buffers hold on the way."""
    worker = shell.listen("worker")
    for size in (1_000, 4_096, 5_000, 8_192, 65_536, 1_000_000):
        text = "\u00e9" + "x" * (size - 2)
        file = shell.cwd / f"{size}.txt"
        file.write_text(text, "utf-8")
        if size < 100_000:  # what one argument may hold
            assert shell.run("send", "worker", text, "--as", "planner").status == 0
            assert worker.event("message")["text"] == text
        assert shell.run("send", "worker", "-", "--as", "planner", stdin=text.encode()).status == 0
        assert worker.event("message")["text"] == text
        assert shell.run("send", "worker", "see", "--attach", str(file), "--as", "planner").status == 0
        assert worker.event("message")["attachments"][0]["content"] == text


def test_bytes_that_are_no_text_arrive_as_the_replacement_character(shell: Shell) -> None:
    """F117."""
    worker = shell.listen("worker")
    for extra in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        assert shell.run("send", "worker", b"caf\xe9 \xc3\xa9", "--as", "planner", env=extra).status == 0
        assert worker.event("message")["text"] == "caf\ufffd é"


@pytest.mark.parametrize(
    "arguments",
    [
        ["send"],
        ["send", "worker"],
        ["send", "", "text"],
        ["send", "worker", "text", "--no-such-option"],
        ["send", "worker", "text", "--timeout", "soon"],
        ["send", "worker", "text", "--as", " "],
        ["send", "worker", "text", "--as", "system"],
        ["send", "worker", "text", "--as", "x" * 300],
        ["send", "worker", "text", "--group", " "],
    ],
)
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    """F53, F110, F118: usage errors are documents too, and nothing is started for them."""
    result = shell.run(*arguments)
    assert (result.status, result.text) == (2, "")
    assert result.errors.startswith("intercom: ")
    assert result.errors.count("\n") == 1
    document = shell.run(*arguments, "--json").document
    assert (document["ok"], document["code"]) == (False, "usage")
    assert not (shell.home / "broker.sock").exists()


def test_a_message_above_the_limit_is_refused_before_it_leaves(shell: Shell) -> None:
    shell.listen("worker")
    result = shell.run("send", "worker", "-", "--json", stdin=b"x" * (3 * 1024 * 1024 + 1))
    assert (result.status, result.document["code"]) == (1, "too_large")


def test_nobody_reads_the_result(shell: Shell) -> None:
    """F117, closed pipes: no traceback, and the status says what became of the message."""
    worker = shell.listen("worker")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            (*INTERCOM, "send", "worker", "hello", "--as", "planner"),
            stdout=writer,
            stderr=subprocess.PIPE,
            env=shell.environment(),
            timeout=20,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert worker.event("message")["text"] == "hello"


def test_closed_standard_streams_become_no_sockets(shell: Shell) -> None:
    worker = shell.listen("worker")
    command = f"{INTERCOM[0]} -m intercom send worker hello --as planner <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=shell.environment(), timeout=20, check=False)
    assert done.returncode == 0
    assert worker.event("message")["text"] == "hello"


def test_a_full_disk_is_said(shell: Shell) -> None:
    shell.listen("worker")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            (*INTERCOM, "send", "worker", "hello", "--as", "planner"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=shell.environment(),
            timeout=20,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"intercom: standard output cannot be written: No space left on device\n"


def test_any_clear_beginning_of_an_id_is_a_target(shell: Shell) -> None:
    """F46: whatever is printed is accepted, and longer and shorter beginnings too."""
    worker = shell.listen("worker")
    [session] = shell.run("list", "--json").document["sessions"]
    for length in (4, 8, 9, 20, 36):
        document = shell.run("send", session["id"][:length], f"{length}", "--as", "planner", "--json").document
        assert document["state"] == "delivered"
        assert worker.event("message")["text"] == f"{length}"
    assert shell.run("send", session["id"][:3], "x").status == 3


def test_a_file_goes_along(shell: Shell) -> None:
    worker = shell.listen("worker")
    (shell.cwd / "notes é.txt").write_text("one\ntwo\n")
    (shell.cwd / "empty").touch()
    assert shell.run("send", "worker", "see", "--attach", "notes é.txt", "--attach", "empty").status == 0
    attached = worker.event("message")["attachments"]
    assert [(each["type"], each["name"], each["content"]) for each in attached] == [
        ("file", "notes é.txt", "one\ntwo\n"),
        ("file", "empty", ""),
    ]


def test_a_file_that_cannot_be_attached(shell: Shell) -> None:
    (shell.cwd / "binary").write_bytes(b"\xff\xfe")
    (shell.cwd / "large").write_bytes(b"x" * (3 * 1024 * 1024 + 1))
    for name, status, code in (
        ("missing", 2, "usage"),
        (".", 2, "usage"),
        ("binary", 2, "usage"),
        ("large", 1, "too_large"),
    ):
        result = shell.run("send", "worker", "see", "--attach", name, "--json")
        assert (result.status, result.document["code"]) == (status, code)
    assert not (shell.home / "broker.sock").exists()


def test_what_was_sent_to_a_beginning_is_known_by_the_words_it_was_sent_with(shell: Shell) -> None:
    """Protocol 6.2.4: idempotency is bound to the caller's wording."""
    worker = shell.listen("worker")
    [session] = shell.run("list", "--json").document["sessions"]
    sent = ("once", "--as", "planner", "--message-id", "m-1", "--json")
    first = shell.run("send", session["id"][:6], *sent).document
    assert (first["state"], first["target"]) == ("delivered", session["id"][:6])
    assert shell.run("send", session["id"][:6], *sent).document == first
    assert shell.run("send", session["id"], *sent).document["code"] == "conflict"
    shell.run("send", "worker", "the end", "--as", "planner")
    assert [worker.event("message")["text"] for _ in range(2)] == ["once", "the end"]


def away(shell: Shell) -> None:
    """Have an address that nobody holds."""
    shell.serve()
    shell.run("receive", "--as", "worker")


def test_a_message_to_somebody_away_waits(shell: Shell) -> None:
    """Design section 9: queued where queueing was allowed is done, and says that nobody has it."""
    away(shell)
    result = shell.run("send", "worker", "hello", "--as", "planner", "--message-id", "m-1")
    assert (result.status, result.text) == (0, "queued to worker, at place 1 (message m-1)\n")
    assert "`intercom trace m-1`" in result.errors
    document = shell.run("send", "worker", "hello", "--as", "planner", "--json").document
    assert (document["state"], document["position"]) == ("queued", 2)
    again = shell.run("send", "worker", "hello", "--as", "planner", "--message-id", "m-1", "--json").document
    assert (again["state"], again["position"]) == ("queued", 1)


def test_without_queueing_nothing_took_effect(shell: Shell) -> None:
    away(shell)
    result = shell.run("send", "worker", "hello", "--no-queue", "--as", "planner", "--json")
    assert (result.status, result.document["code"], result.document["retry"]) == (5, "away", "after")
    assert "--no-queue" in result.document["hint"]
    assert shell.run("mailbox", "--as", "worker", "--json").document["count"] == 0


def test_a_misspelt_name_has_no_mailbox(shell: Shell) -> None:
    """F50: nothing waits for somebody who never was."""
    away(shell)
    result = shell.run("send", "worket", "hello", "--as", "planner", "--json")
    assert (result.status, result.document["code"]) == (3, "not_found")
    assert "worker" in result.document["hint"], "an address that mail would wait for"


@pytest.mark.parametrize("span", ["0", "-1s", "x", "10w", "s", "nan"])
def test_how_long_a_message_is_valid(shell: Shell, span: str) -> None:
    result = shell.run("send", "worker", "hello", "--valid-for", span, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_a_command_that_cannot_keep_a_token_speaks_without_an_address(shell: Shell) -> None:
    """In a sandbox that may use the socket and write nothing: what it says matters more than what answers later."""
    worker = shell.listen("worker")
    place = shell.home / "identities" / "addresses"
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    place.write_text("in the way")
    assert shell.run("send", "worker", "hello", "--as", "planner").status == 0
    assert worker.event("message")["from"]["name"] == "planner"
    result = shell.run("receive", "--as", "planner", "--json")
    assert (result.status, result.document["code"]) == (7, "home")


ASKED = {"INTERCOM_MESSAGE_ID": "q-1", "INTERCOM_SENDER_ID": "0123456789", "INTERCOM_SENDER_NAME": "Worker"}


def test_a_command_that_sends_its_answer_is_told_how_to_give_it(shell: Shell) -> None:
    """F67: the question belongs to the listener, so this process cannot answer it; it can say who does."""
    shell.listen("worker")
    told = shell.run("send", "worker", "4", env=ASKED)
    assert (told.status, "no answer to the question q-1" in told.errors) == (0, True)
    assert "q-1" in shell.run("send", "worker", "4", "--json", env=ASKED).document["hint"]
    for arguments, env in ((("--progress",), ASKED), ((), {**ASKED, "INTERCOM_SENDER_NAME": "other"}), ((), {})):
        assert "hint" not in shell.run("send", "worker", "4", "--json", *arguments, env=env).document


def test_whom_a_hint_is_for() -> None:
    for target in ("worker", " WORKER", "0123456789", "0123"):
        assert how_to_answer(target, ASKED), target
    for target in ("", "w", "012", "01234567890", "work"):
        assert not how_to_answer(target, ASKED), target
    assert not how_to_answer("worker", {"INTERCOM_SENDER_NAME": "worker"})


def test_who_asks_sees_the_progress(shell: Shell) -> None:
    """F67, F93: on standard error, spelled out, and confirmed; the answer is what the command prints."""
    send = f"{shlex.join(INTERCOM)} send"
    tell = f'printf "half\\033[2J\\n." | {send} "$INTERCOM_SENDER_ID" - --progress >&2'
    shell.listen("worker", "--answer", f"{tell}; while [ ! -e go ]; do sleep 0.02; done; echo 4")
    asker = shell.start("ask", "worker", "2+2", "--patience", "60", "--json")
    assert asker.process.stderr is not None
    told = asker.process.stderr.readline().decode()
    assert told.endswith(": half\\x1b[2J\\n.\n")
    (shell.cwd / "go").touch()
    assert asker.finish().document["answer"]["text"] == "4"


def test_progress_of_a_command_leaves_the_question_open(shell: Shell) -> None:
    """F67: as the page about the first steps says."""
    send = f"{shlex.join(INTERCOM)} send"
    command = (
        f'{send} "$INTERCOM_SENDER_ID" --progress "half of it" >&2; {send} "$INTERCOM_SENDER_ID" ready >&2; echo 4'
    )
    shell.listen("worker", "--answer", command)
    with shell.connect() as asker:
        asker.register("asker", returnAddress="secret")
        asker.send_message("worker", "q-1", message={"expectsReply": True})
        brought = []
        while len(brought) < 3:
            frame = asker.receive()
            brought += [frame["message"]] if frame["type"] == "message" else []
    assert [message["content"]["text"] for message in brought] == ["half of it", "ready", "4"]
    assert [message.get("replyTo") for message in brought] == [None, None, "q-1"]
    assert [message.get("progressOf") for message in brought] == ["q-1", None, None]


def test_every_outcome_has_a_status_and_a_code_of_its_own(shell: Shell) -> None:
    """F119; design section 9: status 0 only when the target has it, and what the target has is what was said."""
    worker = shell.listen("worker")
    with shell.connect() as twin, shell.connect() as other, shell.connect() as hidden, shell.connect() as ended:
        twin.register("twin")
        other.register("twin")
        hidden.register("hidden", session={"recipientPurpose": "control"})
        ended.register("ended", session={"replyCapability": "terminal"})
        outcomes = {
            ("send", "worker", "a", "--message-id", "m-1"): (0, None),
            ("send", "worker", "b", "--message-id", "m-1"): (4, "conflict"),
            ("send", "nobody", "x"): (3, "not_found"),
            ("send", "twin", "x"): (4, "ambiguous"),
            ("send", "hidden", "x"): (1, "not_an_agent"),
            ("send", "worker", "x", "--group", "apart"): (3, "not_found"),
            ("ask", "ended", "x"): (1, "terminal"),
            ("ask", "worker", "x", "--timeout", "0.3"): (6, "ask_timeout"),
            ("send", "", "x"): (2, "usage"),
        }
        for call, (status, code) in outcomes.items():
            result = shell.run(*call, "--json")
            assert (result.status, result.document.get("code")) == (status, code), call
            assert result.document["ok"] is (status == 0)
        assert [worker.event("message")["text"] for _ in range(2)] == ["a", "x"]


def test_who_looks_later_is_said_to(shell: Shell) -> None:
    """Protocol 6.4, issue: how soon a session sees messages stands in receipts, too."""
    shell.serve()
    with blocking.connect("agent", home=shell.home, address=True, push="pull", start=False) as session:
        assert session.features
        first = shell.run("send", "agent", "one", "--as", "peer", "--json")
        second = shell.run("send", "agent", "two", "--as", "peer")
        assert (first.document["state"], first.document["sees"]) == ("queued", "pull")
        assert "nobody has it yet; it sees messages when it looks" in second.errors


@pytest.mark.parametrize(("is_again", "hint"), [(False, "Nothing was sent."), (True, "Nothing was sent this time.")])
def test_a_repetition_that_was_refused_says_nothing_of_the_attempt_before(is_again: bool, hint: str) -> None:
    """F76: only of this attempt it is known what came of it."""
    with pytest.raises(NotNow) as refused, repeatable("m1", is_again=is_again):
        raise NotNow("Capacity reached", code="capacity")
    assert refused.value.hint == f"{hint} Repeat the command a little later, with --message-id m1."
