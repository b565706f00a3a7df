"""Test ``intercom invoke``, ``invocation`` and ``resolve`` with a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom import InvocationDelivery, InvocationView
from intercom.cli.invoked import described, show_asked
from intercom.cli.render import Output
from intercom.client import blocking
from tests.support.brokers import TOP
from tests.support.commands import Running, Shell
from tests.support.schemas import assert_described

WORKER = """
import sys
from intercom.client import blocking
with blocking.connect("builder", address=True, group="default", home=sys.argv[1], start=False) as session:
    for message in session.messages():
        task = message.invocation
        if not task.is_cancelled:
            print("begun", task.id, flush=True)
            sys.stdin.readline()
            task.complete("built")
"""


@pytest.fixture
def worker(shell: Shell) -> Iterator[Running]:
    """Give a worker that carries tasks out as the documentation says, each when it is told to."""
    shell.serve()
    process = subprocess.Popen(
        (sys.executable, "-c", WORKER, str(shell.home)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=TOP,
        env=shell.environment(),
    )
    running = Running(process)
    shell.wait_for_sessions(1)
    yield running
    running.close()


def do_one(shell: Shell, name: str = "builder") -> Any:
    """Open a session that may be invoked."""
    return blocking.connect(name, home=shell.home, address=True, group="default")


def invoke(shell: Shell, *words: str, **more: Any) -> Any:
    return shell.run("invoke", *words, "--as", "boss", "--json", **more)


def test_it_is_recorded_and_done_later(shell: Shell) -> None:
    """FE 3.11, A3.1"""
    with do_one(shell):
        pass
    accepted = invoke(shell, "@builder", "build", "it")
    assert (accepted.status, accepted.document["state"]) == (0, "queued")
    found = accepted.document["invocationId"]
    with do_one(shell) as builder:
        message = builder.receive(timeout=20)
        assert message is not None and message.text == "build it"
        assert message.invocation is not None and message.invocation.id == found
        message.invocation.complete("it is built")
    shown = shell.run("invocation", "show", found, "--json").document["invocation"]
    assert (shown["state"], shown["output"], shown["task"]) == ("completed", "it is built", "build it")
    assert "it is built" in shell.run("invocation", "show", found).text
    assert found in shell.run("invocation", "list").text
    watched = shell.run("invocation", "watch", found, "--json")
    assert (watched.status, watched.documents[-1]["invocation"]["state"]) == (0, "completed")


def test_what_goes_with_a_task(shell: Shell, tmp_path: Path) -> None:
    """FE 3.2; protocol 13.3.1"""
    known = tmp_path / "known.txt"
    known.write_text("for Friday\n")
    with do_one(shell):
        pass
    more = ("--context", str(known), "--model", "opus", "--session", "fork", "--label", "a", "--label", "b")
    accepted = invoke(shell, "builder", "build", "--about", "m-7", "--stream", *more)
    assert accepted.status == 0
    found = accepted.document["invocationId"]
    shown = shell.run("invocation", "show", found, "--json").document["invocation"]
    assert (shown["context"], shown["execution"]) == ("for Friday\n", {"model": "opus", "session": "fork"})
    assert (shown["labels"], shown["messageId"], shown["stream"]) == (["a", "b"], "m-7", True)
    text = shell.run("invocation", "show", found).text
    assert "context: for Friday" in text
    assert "with: model opus, session fork, label a, label b, about m-7, reports wished" in text
    listed = shell.run("invocation", "list", "--label", "b", "--label", "a", "--json").document["invocations"]
    assert [each["invocationId"] for each in listed] == [found]
    assert shell.run("invocation", "list", "--label", "b", "--label", "c").text == "no invocations\n"
    with do_one(shell) as builder:
        message = builder.receive(timeout=20)
        assert message is not None and message.invocation is not None
        assert (message.invocation.context, message.invocation.labels) == ("for Friday\n", ("a", "b"))
    assert invoke(shell, "builder", "build", "--context", str(tmp_path / "none")).status == 2


def test_who_gets_it_by_a_command_reports_by_one(shell: Shell) -> None:
    """protocol 13.3.2; design section 9: 4 conflict, 2 called wrongly."""
    with do_one(shell):
        pass
    found = invoke(shell, "builder", "build", "--model", "opus", "--label", "a").document["invocationId"]
    who = ("--as", "builder", "--group", "default")
    told = shell.run("receive", *who)
    assert f"task of invocation {found} (execute), with model opus, label a" in told.text
    assert f"intercom invocation report --as builder --group default {found} completed" in told.text
    assert shell.run("invocation", "report", found, "waiting", "a", "key", *who).text == f"waiting: {found}\n"
    assert shell.run("invocation", "report", found, "done", *who, "--json").status == 2
    done = shell.run("invocation", "report", found, "completed", "-", *who, "--json", stdin=b"built\n")
    assert done.document == {"ok": True, "invocationId": found, "state": "completed"}
    late = shell.run("invocation", "report", found, "failed", "no", *who, "--json")
    assert (late.status, late.document["code"]) == (4, "run_terminal")
    shown = shell.run("invocation", "show", found, "--json").document["invocation"]
    assert (shown["output"].strip(), shown["state"]) == ("built", "completed")
    other = shell.run("invocation", "report", found, "completed", "x", "--as", "other", "--json")
    assert (other.status, other.document["code"]) == (3, "invocation_unknown")


def test_a_received_task_is_described(shell: Shell) -> None:
    with do_one(shell):
        pass
    accepted = invoke(shell, "builder", "build", "--session", "new", "--stream", "--about", "m-7").document
    received = shell.run("receive", "--as", "builder", "--group", "default", "--json")
    [message] = received.document["messages"]
    assert message["invocation"] == {
        "invocationId": accepted["invocationId"],
        "runId": accepted["runId"],
        "action": "execute",
        "execution": {"session": "new"},
        "stream": True,
        "messageId": "m-7",
    }


def test_how_it_gets_to_another_machine_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """protocol 13.7; FE 3.4 Snapshot"""
    waits = InvocationDelivery(
        id="d", broker_id="b", status="deferred", attempts=2, first_queued_at=1, failure_detail="no answer"
    )
    view = InvocationView(
        id="i",
        number=1,
        run_id="r",
        state="queued",
        action="execute",
        target="@far",
        target_id="t",
        target_name="far",
        requester_id="s",
        created_at=1,
        metadata={"ticket": 7},
        deliveries=(waits,),
    )
    told = described(view)
    assert told["metadata"] == {"ticket": 7}
    assert told["deliveries"] == [
        {
            "deliveryId": "d",
            "targetBrokerId": "b",
            "status": "deferred",
            "attempts": 2,
            "firstQueuedAt": 1,
            "failureDetail": "no answer",
        }
    ]
    assert_described({"ok": True, "invocation": told}, "invocation")
    show_asked(view, Output(as_json=False))
    assert capsys.readouterr().out.splitlines() == [
        'metadata: {"ticket":7}',
        "delivery: deferred after 2 attempts: no answer",
    ]


def test_waiting_prints_the_result(shell: Shell) -> None:
    """FE 3.11: --wait prints the final run."""
    with do_one(shell) as builder:
        running = shell.start("invoke", "builder", "add", "--wait", "--as", "boss", "--action", "consult", "--json")
        message = builder.receive(timeout=20)
        assert message is not None and message.invocation is not None
        message.invocation.update("running", summary="adding")
        message.invocation.complete("42")
        finished = running.finish()
    assert finished.status == 0
    assert finished.document["invocation"]["output"] == "42"


def test_a_wait_that_ends_first_says_that_the_work_goes_on(shell: Shell) -> None:
    """design section 9: 6 still going on, what to look at is printed."""
    with do_one(shell):
        late = invoke(shell, "builder", "build", "--wait", "--timeout", "1.5")
        assert (late.status, late.document["code"]) == (6, "run_unfinished")
        found = late.document["invocationId"]
        assert f"intercom invocation show {found}" in late.document["hint"]
        assert shell.run("invocation", "show", found, "--json").status == 0
        watched = shell.run("invocation", "watch", found, "--timeout", "0.3", "--json")
        assert (watched.status, watched.documents[-1]["code"]) == (6, "run_unfinished")


def test_a_run_that_failed(shell: Shell) -> None:
    with do_one(shell) as builder:
        running = shell.start("invoke", "builder", "build", "--watch", "--as", "boss", "--json")
        message = builder.receive(timeout=20)
        assert message is not None and message.invocation is not None
        message.invocation.fail("no compiler")
        finished = running.finish()._replace(verb="invoke")
    *events, end = finished.documents
    assert (finished.status, end["code"]) == (1, "run_failed")
    assert "no compiler" in end["reason"]
    assert [event["state"] for event in events][-1] == "failed"


def test_labels_that_lead_to_nobody(shell: Shell) -> None:
    """A3.4, A3.5; design section 9: 3 no such target, 4 ambiguous, 2 called wrongly."""
    assert invoke(shell, "@nobody", "x").status == 3
    assert invoke(shell, "@a.b.c.d", "x").document["code"] == "route_unparseable"
    with blocking.connect("twin", home=shell.home) as one, blocking.connect("twin", home=shell.home) as two:
        refused = invoke(shell, "twin", "x")
        assert (refused.status, refused.document["code"]) == (4, "route_ambiguous")
        assert refused.document["labels"] == [one.id, two.id]
        meant = shell.run("resolve", refused.document["labels"][1], "--json").document["target"]
        assert meant["targetId"] == two.id
        assert shell.run("resolve", "twin").status == 4


def test_it_is_repeated_and_cancelled(shell: Shell) -> None:
    """A3.3, FE 3.4 Cancel"""
    with do_one(shell):
        pass
    first = invoke(shell, "builder", "build", "--id", "i-1").document
    assert invoke(shell, "builder", "build", "--id", "i-1").document == first
    other = invoke(shell, "builder", "else", "--id", "i-1")
    assert (other.status, other.document["code"]) == (4, "invocation_conflict")
    strange = shell.run("invocation", "cancel", "i-1", "--as", "other", "--json")
    assert (strange.status, strange.document["code"]) == (7, "not_a_person")
    cancelled = shell.run("invocation", "cancel", "i-1", "--reason", "enough", "--as", "boss", "--json")
    assert cancelled.document == {"ok": True, "invocationId": "i-1", "state": "cancelled"}
    again = shell.run("invocation", "cancel", "i-1", "--as", "boss", "--json")
    assert (again.status, again.document["code"]) == (4, "run_terminal")
    assert shell.run("invocation", "list", "--open", "--json").document["invocations"] == []
    assert shell.run("invocation", "show", "i-none", "--json").status == 3


def shown(shell: Shell, invocation_id: str) -> Any:
    return shell.run("invocation", "show", invocation_id, "--json").document["invocation"]


def test_what_a_killed_worker_had_is_cancelled_and_carried_out_by_nobody(shell: Shell, worker: Running) -> None:
    """protocol 13.4: while nobody has a task, its run is cancelled with its message, wherever it had been."""
    for name in ("i-1", "i-2", "i-3", "i-4"):
        invoke(shell, "builder", "build", "--id", name)
    assert worker.line() == "begun i-1"
    asked = shell.run("invocation", "cancel", "i-2", "--as", "boss", "--json")
    assert asked.document["state"] == "queued", "whoever has it was asked to stop"
    worker.signal(signal.SIGKILL)
    assert worker.finish().status == -signal.SIGKILL
    shell.wait_for_sessions(0)
    for name in ("i-1", "i-3"):
        cancelled = shell.run("invocation", "cancel", name, "--as", "boss", "--json")
        assert cancelled.document["state"] == "cancelled"
    with do_one(shell) as builder:
        message = builder.receive(timeout=20)
        assert message is not None and message.invocation is not None
        assert (message.invocation.id, message.invocation.is_cancelled) == ("i-4", False)
        message.invocation.complete("built")
        assert shell.run("send", "builder", "that was all").status == 0
        following = builder.receive(timeout=20)
        assert following is not None and following.text == "that was all"
    states = {name: shown(shell, name)["state"] for name in ("i-1", "i-2", "i-3", "i-4")}
    assert states == {"i-1": "cancelled", "i-2": "cancelled", "i-3": "cancelled", "i-4": "completed"}


def test_a_task_that_is_carried_out_is_running_and_the_broker_stays_for_it(shell: Shell, worker: Running) -> None:
    """FE 3.3: a session takes it -> running; protocol 3.10: what was handed over may end, confirmed or not."""
    invoke(shell, "builder", "build", "--id", "i-1")
    assert worker.line() == "begun i-1"
    shell.wait_for(lambda: shown(shell, "i-1")["state"] == "running")
    assert shown(shell, "i-1")["startedAt"] > 0
    left = shell.run("broker", "drain", "--timeout", "0.3", "--json")
    assert (left.status, left.document["open"]) == (6, {"runs": 1})
    assert worker.process.stdin is not None
    worker.process.stdin.write(b"\n")
    worker.process.stdin.flush()
    shell.wait_for(lambda: shown(shell, "i-1")["state"] == "completed")


@pytest.mark.parametrize(
    "words",
    [
        ("invoke", "builder", "x", "--id", ""),
        ("invoke", "builder", "x", "--id", "a\nb"),
        ("invoke", "builder", "x", "--id", "x" * 2_000),
        ("invoke",),
        ("invoke", "builder"),
        ("invocation",),
        ("invocation", "show"),
        ("resolve",),
    ],
)
def test_wrong_words(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.run(*words, "--json").status == 2


def test_a_task_that_no_frame_holds(shell: Shell) -> None:
    """OP-1: it is refused at once and for good, and who asked stays connected."""
    with do_one(shell):
        refused = invoke(shell, "builder", "-", stdin=b"x" * 5_000_000)
    assert (refused.status, refused.document["code"], refused.document["retry"]) == (1, "too_large", "never")
