from __future__ import annotations

import pytest

from intercom.cli.inbox import chosen, worker
from intercom.client.mailviews import SessionRecord, SessionState
from intercom.client.views import SessionView
from intercom.client.workviews import ParkedMessage
from intercom.errors import RequestRefused
from tests.support.commands import Shell, strict
from tests.support.raw import RawClient
from tests.support.schemas import assert_described
from tests.support.working import desk, handed, park, waiting


def test_what_waits(shell: Shell) -> None:
    """FE 1.11: inbox_items."""
    with desk(shell) as session:
        first, second = park(shell, "one"), park(shell, "two")
        document = shell.run("inbox", "list", "--json").document
        assert [item["inboxId"] for item in document["items"]] == [first, second]
        assert (document["count"], document["capacity"], document["underPressure"]) == (2, 256, False)
        item = document["items"][0]
        assert (item["preview"], item["target"], item["claimPolicy"], item["targetSessionId"]) == (
            "one", "desk", "bound_session", session.id,
        )  # fmt: skip
        assert item["from"]["name"] == "planner"
        head, line, _ = shell.run("inbox", "list").text.splitlines()
        assert head.split()[:2] == ["ID", "WAITS"]
        assert first in line


def test_nothing_waits(shell: Shell) -> None:
    shell.serve()
    assert shell.run("inbox", "list").text == "nothing waits\n"
    result = shell.run("inbox", "show", "abcd1234", "--json")
    assert (result.status, result.document["code"]) == (3, "inbox_unknown")


def test_one_with_its_text(shell: Shell) -> None:
    with desk(shell):
        inbox_id = park(shell, "count the words\nof this\x1b[31m page")
        item = shell.run("inbox", "show", inbox_id[:8], "--json").document["item"]
        assert item["text"] == "count the words\nof this\x1b[31m page"
        shown = shell.run("inbox", "show", inbox_id).text
        assert "    of this\\x1b[31m page" in shown.splitlines(), "nothing of a peer reaches a terminal raw"
        assert "\x1b" not in shell.run("inbox", "list").text


def test_work_goes_to_a_command_that_waits(shell: Shell) -> None:
    """FE 1.5: dispatch to a worker with turns, staged delivery."""
    with desk(shell):
        document = handed(shell)
        assert_described(document, "inbox")
        assert (document["message"]["text"], document["message"]["from"]["name"]) == ("count the words", "planner")
        assert (document["assignment"]["address"], document["assignment"]["accepted"]) == ("ada", False)


def test_what_is_printed_for_people_can_be_followed(shell: Shell) -> None:
    with desk(shell):
        inbox_id = park(shell)
        running = shell.start("inbox", "wait", "--as", "ada")
        shell.wait_for(
            lambda: any(one["name"] == "ada" for one in shell.run("session", "list", "--json").document["sessions"])
        )
        said = shell.run("inbox", "dispatch", inbox_id, "ada").text
        assert "comes for it" in said
        lines = running.finish().text.splitlines()
        assert "    count the words" in lines
        [accept] = [line.partition("with: ")[2] for line in lines if line.strip().startswith("accept it")]
        assert shell.run(*accept.split()[1:]).text == "recorded: accepted\n"
        [answer] = [line.partition("with: ")[2] for line in lines if line.strip().startswith("answer it")]
        assert shell.run(*answer.replace("TEXT", "three").split()[1:]).text.startswith(("queued", "delivered"))


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_sent_to_a_command_that_takes_work_is_its_work(shell: Shell, is_there: bool) -> None:
    """Protocol 10.2.1, A1.5: by its name, while it waits and between two times that it waits."""
    shell.serve()
    takes = ("--claim", "--accept")
    if is_there:
        running = waiting(shell, "ada", *takes)
        shell.run("send", "ada", "count the words", "--as", "planner")
        ended = running.finish()
    else:
        assert shell.run("inbox", "wait", "--as", "ada", "--timeout", "0.1").status == 6
        shell.run("send", "ada", "count the words", "--as", "planner")
        [item] = shell.run("inbox", "list", "--json").document["items"]
        assert (item["target"], item["claimPolicy"]) == ("ada", "bound_session")
        ended = shell.run("inbox", "wait", "--as", "ada", "--json", *takes)  # it does not wait, nor stay
    assert ended.status == 0, ended
    document = strict(ended.text)
    assert (document["message"]["text"], document["assignment"]["accepted"]) == ("count the words", True)
    shell.run("assignment", "reply", document["assignment"]["assignmentId"], "three", "--as", "ada")
    assert "three" in shell.run("receive", "--as", "planner", "--wait").text


def test_accepting_at_once(shell: Shell) -> None:
    with desk(shell):
        document = handed(shell, "--accept")
        assert (document["assignment"]["accepted"], document["assignment"]["state"]) == (True, "accepted")
        shown = shell.run("assignment", "show", document["assignment"]["assignmentId"], "--json").document
        assert shown["assignment"] == document["assignment"], "as it is after it was accepted"
        assert "acceptDeadline" not in document["assignment"]


def test_waiting_in_vain(shell: Shell) -> None:
    shell.serve()
    result = shell.run("inbox", "wait", "--as", "ada", "--timeout", "0.3", "--json")
    assert (result.status, result.document["code"], result.document["retry"]) == (6, "no_work", "after")
    assert "--claim" in result.document["hint"]


def left_behind(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of a message whose target was away and is closed now: anybody may take it."""
    shell.serve()
    monkeypatch.setattr("intercom.cli.session.require_person", lambda _: None)
    gone = RawClient(shell.home / "broker.sock")
    gone.send(
        {
            "type": "register",
            "session": {"cwd": "/", "model": "", "pid": 1, "startedAt": 1, "lastActivity": 1, "name": "gone"},
            "returnAddress": "r-gone",
            "acknowledgesReceipt": True,
            "kind": "custom",
            "clientProtocolVersion": "1.0",
            "features": ["session.lifecycle", "push.receipts", "queue"],
        }
    )
    session_id = gone.expect("registered")["sessionId"]
    gone.close()
    shell.wait_for(lambda: state_of(shell, session_id) == "reconnecting")
    sent = shell.run("send", session_id, "count the words", "--as", "planner", "--json").document
    shell.run("session", "close", session_id)
    inbox_id: str = sent["messageId"]
    return inbox_id


def state_of(shell: Shell, session_id: str) -> str | None:
    states: dict[str, str] = {
        one["id"]: one["state"] for one in shell.run("session", "list", "--json").document["sessions"]
    }
    return states.get(session_id)


def test_what_a_closed_session_left_behind_is_for_anybody(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 1.3, closing procedure: unsent mail moves to the inbox."""
    inbox_id = left_behind(shell, monkeypatch)
    [item] = shell.run("inbox", "list", "--json").document["items"]
    assert (item["inboxId"], item["reason"], item["claimPolicy"]) == (
        inbox_id, "closed_session_continuation", "any_session",
    )  # fmt: skip
    claimed = shell.run("inbox", "claim", inbox_id[:8], "--as", "ada", "--json").document
    again = shell.run("inbox", "claim", inbox_id, "--as", "ada", "--json").document
    assert claimed["assignment"]["assignmentId"] == again["assignment"]["assignmentId"], "it is the address's"
    taken = shell.run("inbox", "claim", inbox_id, "--as", "bob", "--json")
    assert (taken.status, taken.document["code"]) == (4, "assignment_in_progress")


def test_waiting_for_what_may_be_claimed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox_id = left_behind(shell, monkeypatch)
    document = shell.run("inbox", "wait", "--claim", "--accept", "--as", "ada", "--json").document
    assert (document["message"]["id"], document["assignment"]["accepted"]) == (inbox_id, True)


def test_taking_one_out(shell: Shell) -> None:
    with desk(shell):
        inbox_id = park(shell)
        assert shell.run("inbox", "settle", inbox_id, "--json").document["inboxId"] == inbox_id
        assert shell.run("inbox", "list", "--json").document["items"] == []
        result = shell.run("inbox", "settle", inbox_id, "--json")
        assert (result.status, result.document["code"]) == (3, "inbox_unknown")


def test_an_order_that_cannot_be_carried_out(shell: Shell) -> None:
    with desk(shell):
        inbox_id = park(shell)
        shell.listen("talker")
        for name, status, code in [("talker", 1, "target_not_capable"), ("nobody", 3, "unknown_session")]:
            result = shell.run("inbox", "dispatch", inbox_id, name, "--json")
            assert (result.status, result.document["code"]) == (status, code)
        assert len(shell.run("inbox", "list", "--json").document["items"]) == 1


def test_an_order_under_a_key_is_carried_out_once(shell: Shell) -> None:
    """A1.9."""
    with desk(shell):
        inbox_id = park(shell)
        running = waiting(shell)
        options = ("--key", "k", "--within", "60", "--json")
        order = shell.run("inbox", "dispatch", inbox_id, "ada", *options).document
        assert running.finish().status == 0
        again = shell.run("inbox", "dispatch", inbox_id, order["sessionId"], *options).document
        assert again == order, "also when the worker has left"
        other = shell.run("inbox", "dispatch", inbox_id, "desk", *options)
        assert (other.status, other.document["code"]) == (4, "order_key_conflict")


def test_an_order_is_repeated_when_its_work_has_ended(shell: Shell) -> None:
    """FE 1.9, protocol 10.5: whoever lost the answer repeats the command as it was."""
    with desk(shell):
        inbox_id = park(shell)
        running = waiting(shell, "ada", "--accept")
        command = ("inbox", "dispatch", inbox_id, "ada", "--key", "k", "--json")
        order = shell.run(*command).document
        assert running.finish().status == 0
        shell.run("assignment", "reply", order["assignmentId"], "three", "--as", "ada")
        assert shell.run("inbox", "list", "--json").document["items"] == []
        again = shell.run(*command).document
        assert (again["assignmentId"], again["handedTo"]) == (order["assignmentId"], "staging")
        other = waiting(shell, "ada", "--timeout", "30")
        again = shell.run(*command)
        assert (again.status, again.document["assignmentId"]) == (0, order["assignmentId"])
        park(shell, "something else")
        wrong = shell.run("inbox", "dispatch", inbox_id[:8], "ada", "--key", "k", "--json")
        assert (wrong.status, wrong.document["code"]) == (3, "inbox_unknown")
        assert "whole id" in wrong.document["hint"]
        never = shell.run("inbox", "dispatch", "never-sent", "ada", "--key", "other", "--json")
        assert (never.status, never.document["code"]) == (3, "inbox_unknown")
        [left] = shell.run("inbox", "list", "--json").document["items"]
        shell.run("inbox", "dispatch", left["inboxId"], "ada")
        assert other.finish().status == 0


def test_what_cannot_be_claimed_says_why(shell: Shell) -> None:
    """FE 1.3: what the list shows is not called unknown."""
    with desk(shell):
        inbox_id = park(shell)
        bound = shell.run("inbox", "claim", inbox_id[:8], "--as", "ada", "--json")
        assert (bound.status, bound.document["code"]) == (7, "not_allowed")
        assert bound.document["reason"] == f"The message {inbox_id} is there, but only desk may claim it"
    shell.wait_for(
        lambda: shell.run("inbox", "list", "--json").document["items"][0]["claimPolicy"] == "session_unavailable"
    )
    gone = shell.run("inbox", "claim", inbox_id, "--as", "ada", "--json")
    assert gone.document["reason"] == f"The message {inbox_id} is there, but nobody may claim it: its target is gone"
    assert f"inbox dispatch {inbox_id} SESSION" in gone.document["hint"]
    unknown = shell.run("inbox", "claim", "never-sent", "--as", "ada", "--json")
    assert (unknown.status, unknown.document["code"]) == (3, "inbox_unknown")


def test_a_guest_takes_no_work(shell: Shell) -> None:
    """Design section 7, identity 4."""
    shell.serve()
    result = shell.run("inbox", "wait", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert "--as" in result.document["hint"]


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("list", "x"),
        ("show",),
        ("dispatch", "a"),
        ("claim",),
        ("wait", "x"),
        ("give", "a"),
        ("settle", "b", "c"),
    ],
)
def test_called_wrongly(shell: Shell, wrong: tuple[str, ...]) -> None:
    result = shell.run("inbox", *wrong, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


@pytest.mark.parametrize("within", ["-1", "soon", "86401"])
def test_times_that_are_none(shell: Shell, within: str) -> None:
    assert shell.run("inbox", "dispatch", "a", "b", "--within", within, "--json").status == 2


# --- what is meant


SENDER = SessionView(
    id="p", name="planner", cwd="", model="", pid=1, peer_pid=None, status=None, group=None, groups=(), started_at=0,
    last_activity=0, raw={},
)  # fmt: skip


def item(inbox_id: str) -> ParkedMessage:
    return ParkedMessage(
        id=inbox_id, place=1, sender=SENDER, target="t", reason="unaddressed", claim_policy="any_session", parked_at=1,
        preview="", size=1, groups=(), target_session_id=None, target_address=None, assignment_id=None,
        expires_at=None, returns=0, return_reason=None,
    )  # fmt: skip


def record(session_id: str, name: str | None, state: SessionState = "active") -> SessionRecord:
    return SessionRecord(
        id=session_id, name=name, state=state, since=1, groups=(), pid=1, kind=None, address=None, mailbox_count=0,
        task_hint=None, grace_deadline=None, closed_reason=None, generation=1, incarnation="i", label="l",
    )  # fmt: skip


def test_a_message_by_its_beginning() -> None:
    items = [item("abcd-1"), item("abcd-2"), item("wxyz-3")]
    assert chosen(items, "wxyz").id == "wxyz-3"
    with pytest.raises(RequestRefused) as caught:
        chosen(items, "abcd")
    assert caught.value.code == "ambiguous_inbox"


def test_a_worker_by_its_name_or_id() -> None:
    here, away, closed = record("id-1111", "ada"), record("id-2222", "bob"), record("id-3333", "ada", state="closed")
    records = [here, away, closed]
    assert worker(records, "ADA") is here
    assert worker(records, "id-2") is away
    assert worker([away, closed], "ada", may_be_gone=True) is closed, "an order is repeated also when it has left"
    with pytest.raises(RequestRefused):
        worker([away, closed], "ada")
    with pytest.raises(RequestRefused) as caught:
        worker([here, record("id-4444", "ada")], "ada")
    assert (caught.value.code, caught.value.exit_status) == ("ambiguous_session", 4)
    assert worker(records, "id-3333") is closed
