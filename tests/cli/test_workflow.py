"""Workflow stages and children that come back, from the command line."""

from __future__ import annotations

from intercom.client import blocking
from intercom.client.rosters import RosterStage
from tests.support.commands import INTERCOM, Running, Shell
from tests.support.hosting import GROUP, ROOT, Router, hosting
from tests.support.raw import PATIENCE_S
from tests.support.terminals import shown

ROSTER = [RosterStage(id="st-1", name="reviewer-a"), RosterStage(id="st-2", name="reviewer-b")]
MEMBER = ("--group", GROUP, "--as", "lead")


HELD = "held: reviewer is being brought back; waiting up to 120 s\n"


def first_note(command: Running) -> str:
    """Return the first line of standard error of a command that goes on running."""
    assert command.process.stderr is not None
    return command.process.stderr.readline().decode()


def test_stages_are_listed_as_a_tree(shell: Shell) -> None:
    """Protocol 6.12.7: pending, running and possible, for those in the group of the run."""
    shell.serve()
    with hosting(shell.home, Router(), ROSTER, possible=["extra-*"]) as run:
        with (
            blocking.connect("worker", home=shell.home, group=GROUP) as worker,
            worker.stage(ROOT, "st-1", "reviewer-a", capability=run.capability),
        ):
            lines = [line.split() for line in shell.run("list", "--group", GROUP).text.splitlines()]
            document = shell.run("list", "--group", GROUP, "--json").document
        assert lines[2:] == [
            [],
            ["STAGE", "NAME", "STATE", "WAITING", "SESSION"],
            [GROUP],
            ["st-1", "reviewer-a", "running", "-", worker.id[:8]],
            ["st-2", "reviewer-b", "pending", "-", "-"],
            ["extra-*", "-", "possible", "0", "-"],
        ]
        assert [stage["lifecycle"] for stage in document["stages"]] == ["running", "pending"]
        assert document["stages"][0]["sessionId"] == worker.id
        assert [stage["target"] for stage in document["possibleStages"]] == [f"{GROUP}/extra-*"]
        assert shell.run("list").text == "nobody is here\n", "others see nothing of it"
        assert shell.run("list", "--json").document["stages"] == []


def test_a_terminal_shows_the_tree(shell: Shell) -> None:
    """F46: whole targets whatever the width."""
    shell.serve()
    with hosting(shell.home, Router(), ROSTER):
        for columns in (60, 100):
            for extra, branch in (({}, "├─ st-1"), ({"NO_COLOR": "1"}, "  st-1")):
                env = {**shell.environment(extra), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
                lines = shown((*INTERCOM, "list", "--group", GROUP), columns=columns, cwd=shell.cwd, env=env)
                assert any(line.split()[:1] == [GROUP] for line in lines)
                assert any(line.startswith(branch) for line in lines)
                assert all("..." not in line for line in lines)


def test_a_message_to_a_stage_that_has_not_started(shell: Shell) -> None:
    """F119: queued is not delivered; the place in the queue is said."""
    shell.serve()
    with hosting(shell.home, Router(), ROSTER):
        target = f"{GROUP}/reviewer-a"
        result = shell.run("send", *MEMBER, target, "first", "--message-id", "m1")
        assert result.text == f"queued to {target}, at place 1 (message m1)\n"
        assert (result.status, result.errors) == (0, "")
        result = shell.run("send", *MEMBER, f"{GROUP}/reviewer-*", "second", "--message-id", "m2", "--json")
        assert (result.status, result.document) == (
            0,
            {
                "ok": True,
                "state": "queued",
                "messageId": "m2",
                "target": f"{GROUP}/reviewer-*",
                "guest": False,
                "position": 2,
                "known": True,
            },
        )
        result = shell.run("send", *MEMBER, f"{GROUP}/unheard-of", "third", "--message-id", "m3")
        assert result.text.endswith("at place 3, although no known stage matches (message m3)\n")


def test_a_stage_that_has_not_started_cannot_be_asked(shell: Shell) -> None:
    """F96: refused at once, with advice that can be followed literally."""
    shell.serve()
    with hosting(shell.home, Router(), ROSTER):
        for target in (f"{GROUP}/reviewer-a", f"{GROUP}/**"):
            result = shell.run("ask", *MEMBER, target, "ready?")
            assert (result.status, result.text) == (1, "")
            assert "Send it as a message instead of asking" in result.errors
            assert shell.run("ask", *MEMBER, target, "ready?", "--json").document["code"] == "stage_ask"


def test_a_stage_that_is_not_there(shell: Shell) -> None:
    """F50: what is like it is said; and who is outside of the run learns where to go."""
    shell.serve()
    missing = f"workflow:{ROOT[:-1]}e/reviewer-a"
    result = shell.run("send", *MEMBER, missing, "hello")
    assert result.status == 3
    assert "`intercom list --group workflow:RUN` shows the stages" in result.errors
    with hosting(shell.home, Router(), ROSTER):
        result = shell.run("send", *MEMBER, missing, "hello")
        assert (result.status, f"Did you mean {GROUP}/reviewer-a" in result.errors) == (3, True)
        result = shell.run("send", "--as", "stranger", f"{GROUP}/reviewer-a", "hello")
        assert (result.status, "workflow:<root run id>" in result.errors) == (1, True)


def test_a_report_is_shown_as_one(shell: Shell) -> None:
    """Protocol 4.17: to the original sender, which is found by its name again."""
    worker = shell.listen("lead", "--group", GROUP)
    person = shell.start("listen", "--as", "reader", "--group", GROUP)
    shell.wait_for_sessions(2)
    with (
        blocking.connect(home=shell.home, group=GROUP, purpose="control") as host,
        host.workflow(ROOT, Router(), roster=ROSTER) as run,
    ):
        for number, name in enumerate(("lead", "reader")):
            about = {"reply_to": "m1", "sender_name": name, "message_id": f"n{number}"}
            assert run.notify("left-already", "it was read", **about).state == "delivered"
    event = worker.event("message")
    assert (event["notification"], event["replyTo"], event["text"]) == (True, "m1", "it was read")
    assert "reports:" in person.line()


def test_a_child_that_is_being_brought_back(shell: Shell) -> None:
    """Protocol 6.11: the command says that it waits, and then what became of it."""
    shell.serve()
    with blocking.connect("boss", home=shell.home) as boss:
        capability = boss.authorize_child("reviewer")
        boss.reserve_child("reviewer")
        command = shell.start("send", "--as", "lead", "reviewer", "are you back?", "--message-id", "m1")
        assert first_note(command) == HELD
        with blocking.connect("reviewer", home=shell.home, supervisor=capability) as child:
            found = child.receive(timeout=PATIENCE_S)
            assert found is not None
            assert found.text == "are you back?"
            assert child.receive(timeout=0.01) is None
            result = command.finish()
        assert (result.status, result.text) == (0, "delivered to reviewer (message m1)\n")
        assert result.errors == ""
        boss.reserve_child("reviewer")
        boss.release_child("reviewer", gone="it was cancelled")
        result = shell.run("send", "--as", "lead", "reviewer", "hello")
        assert (result.status, result.errors) == (1, "intercom: it was cancelled\n")


def test_waiting_for_a_child_no_longer_than_allowed(shell: Shell) -> None:
    """What is held is dropped with the command, which does not claim that it knows."""
    shell.serve()
    with blocking.connect("boss", home=shell.home) as boss:
        boss.authorize_child("reviewer")
        boss.reserve_child("reviewer")
        result = shell.run("send", "--as", "lead", "reviewer", "hi", "--timeout", "2", "--message-id", "m1", "--json")
        assert (result.status, result.document["code"], result.document["messageId"]) == (6, "still_held", "m1")
        assert "--message-id m1" in result.document["hint"]


def test_a_question_that_waits_for_a_child_says_so(shell: Shell) -> None:
    """Nobody waits for minutes without knowing why."""
    shell.serve()
    with blocking.connect("boss", home=shell.home) as boss:
        capability = boss.authorize_child("reviewer")
        boss.reserve_child("reviewer")
        command = shell.start("ask", "--as", "lead", "reviewer", "are you back?")
        assert first_note(command) == HELD
        with blocking.connect("reviewer", home=shell.home, supervisor=capability) as child:
            found = child.receive(timeout=PATIENCE_S)
            assert found is not None
            found.reply("yes")
            result = command.finish()
        assert (result.status, result.text) == (0, "yes\n")
        assert result.errors == ""
