from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from intercom.cli import answering
from intercom.cli.answering import Answer, RunningAnswer, variables
from intercom.client.flowsteps import FlowStep
from intercom.client.views import IncomingMessage, Invoked, SessionView
from intercom.limits import ANSWER_COMMAND_MS, ANSWER_VARIABLE_CHARACTERS, ATTACHMENTS_BYTES
from intercom.wire.flows import FlowDispatch


def question(text: str = "why", name: str | None = "planner") -> IncomingMessage:
    sender = SessionView(
        id="s-1",
        name=name,
        cwd="/x",
        model="m",
        pid=1,
        peer_pid=1,
        status=None,
        group="default",
        groups=("default",),
        started_at=0,
        last_activity=0,
        raw={},
    )
    return IncomingMessage(id="q-1", text=text, sender=sender, expects_reply=True)


def outcome(running: RunningAnswer, now: Callable[[], int] = lambda: 0) -> Answer:
    """Wait for the command's process and return what becomes of it."""
    os.waitid(os.P_PID, running._process.pid, os.WEXITED | os.WNOWAIT)
    answer = running.poll(now())
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("command", "text", "answer"),
    [
        ("cat", "as it is\n", Answer("as it is", False)),
        ("cat", "two\n\n", Answer("two\n", False)),
        ("cat", "dos\r\n", Answer("dos", False)),
        ("printf '\\377'", "", Answer("\ufffd", False)),
        ("true", "x" * 3_000_000, Answer("", False)),
        ("echo out; echo err >&2; exit 2", "", Answer("the command ended with status 2: err", True)),
    ],
)
def test_what_is_printed_is_the_answer(command: str, text: str, answer: Answer) -> None:
    assert outcome(RunningAnswer(command, question(text), os.environ, 0)) == answer


def test_a_command_may_not_take_longer_than_anybody_waits() -> None:
    running = RunningAnswer("sleep 60", question(), os.environ, 1_000)
    assert running.poll(1_000 + ANSWER_COMMAND_MS - 1) is None
    answer = running.poll(1_000 + ANSWER_COMMAND_MS)
    assert answer == Answer(f"the command did not end within {ANSWER_COMMAND_MS // 1000} s", True)
    assert running._process.returncode == -9


def test_a_command_may_not_print_without_end() -> None:
    running = RunningAnswer(f"head -c {ATTACHMENTS_BYTES + 1} /dev/zero", question(), os.environ, 0)
    assert outcome(running) == Answer(f"the command printed more than {ATTACHMENTS_BYTES} bytes", True)


def test_a_command_can_be_ended() -> None:
    running = RunningAnswer("sleep 60", question(), os.environ, 0)
    running.stop()
    assert running._process.returncode == -9


def test_what_a_peer_wrote_fits_into_an_environment() -> None:
    found = variables(question(name="a\0" + "x" * 5_000), {"PATH": "/bin", "INTERCOM_NAME": "worker"})
    assert found["INTERCOM_SENDER_NAME"] == "a\ufffd" + "x" * (ANSWER_VARIABLE_CHARACTERS - 2)
    assert found["PATH"] == "/bin"
    assert "INTERCOM_NAME" not in found
    assert variables(question(name=None), {})["INTERCOM_SENDER_NAME"] == ""


def test_a_command_knows_the_step_or_the_task_it_works_on() -> None:
    """Protocol 12.4 and 13: it may report by itself, and takes the time it takes."""
    step, task = question(), question()
    step.flow = FlowStep(FlowDispatch("f", "s", "d", 1, "report it", {}))
    task.invoked = Invoked("i", "r", "consult", False)
    found = variables(step, {})
    assert [found[f"INTERCOM_{name}_ID"] for name in ("FLOW", "STEP", "DISPATCH")] == ["f", "s", "d"]
    assert "INTERCOM_INVOCATION_ID" not in found
    found = variables(task, {})
    assert [found[f"INTERCOM_{name}"] for name in ("INVOCATION_ID", "RUN_ID", "ACTION")] == ["i", "r", "consult"]
    for message in (step, task):
        running = RunningAnswer("sleep 60", message, os.environ, 0)
        try:
            assert running.poll(10 * ANSWER_COMMAND_MS) is None
        finally:
            running.stop()


def test_a_shell_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "SHELL", "/nonexistent/sh")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        RunningAnswer("true", question(), os.environ, 0)
    assert os.listdir("/proc/self/fd") == before
