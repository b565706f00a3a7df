"""Kill the real broker right before and right after each of its commits while something is invoked (FE 3.6, A5.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.test_mail_kills import KILLING, Killed
from tests.conformance.test_work_kills import LOOKS, Party
from tests.support.brokers import BrokerProcess
from tests.support.raw import Frame

pytestmark = pytest.mark.long

ANSWERS = (
    "request_failed",
    "invocation_accepted",
    "invocation_snapshot",
    "invocation_cancelled",
    "run_recorded",
)


BESIDE = {"context": "for Friday", "metadata": {"ticket": 7}, "labels": ["release"], "execution": {"model": "opus"}}
"""What goes with a task, and has to outlive the broker with it."""


class Caller(Party):
    """Be a client that invokes, and is invoked."""

    def ask(self, kind: str, **members: object) -> Frame:
        """Make a request until it was recorded, and return its answer."""
        while True:
            self.requests += 1
            request_id = f"r{self.requests}"
            self.write({"type": kind, "requestId": request_id, **members})
            answer = self.next(*ANSWERS, request_id=request_id)
            if answer.get("code") not in ("not_recorded", "not_read"):
                return answer


def play(start: Callable[[], BrokerProcess]) -> tuple[Caller, dict[str, set[str]], int]:
    """Invoke somebody who is away, and who is here; let them report; each step is tried again after a death."""
    boss, builder = Caller("boss", "invoke"), Caller("builder", "invoke")
    broker, deaths = start(), 0
    runs: dict[str, set[str]] = {}

    def come() -> None:
        boss.come(broker)
        builder.come(broker)

    def call(invocation_id: str = "inv-1") -> None:
        answer = boss.ask("invoke", invocationId=invocation_id, target="@builder", task="build it", **BESIDE)
        assert answer["type"] == "invocation_accepted", answer
        runs.setdefault(invocation_id, set()).add(answer["runId"])

    def has_come(invocation_id: str = "inv-1") -> bool:
        return any(f"run:{run_id}" in builder.seen for run_id in runs[invocation_id])

    def invoke() -> None:
        builder.leave()
        call()

    def diagnose() -> None:
        answer = boss.ask("invoke", invocationId="inv-2", target="@nobody", task="build it")
        assert answer["diagnosis"]["kind"] == "unknown", answer

    def take() -> None:
        builder.leave()
        builder.come(broker)
        for _ in range(LOOKS):
            if has_come():
                return
            builder.look()
        raise AssertionError("the task never comes")

    def push() -> None:
        call("inv-3")
        for _ in range(LOOKS):
            if has_come("inv-3"):
                return
            builder.look()
        raise AssertionError("the task of who is here never comes")

    def work() -> None:
        answer = builder.ask("run_update", invocationId="inv-1", updateId="u1", state="waiting", summary="needs a key")
        assert (answer["type"], answer["state"]) == ("run_recorded", "waiting"), answer

    def complete() -> None:
        answer = builder.ask("run_update", invocationId="inv-1", updateId="u2", state="completed", output="built")
        assert (answer["type"], answer["state"]) == ("run_recorded", "completed"), answer

    def check() -> None:
        call()  # once more: the same run
        complete()
        shown = boss.ask("invocation_get", invocationId="inv-1")
        assert (shown["run"]["state"], shown["run"]["output"]) == ("completed", "built")
        assert shown["invocation"]["task"] == "build it"
        assert {name: shown["invocation"][name] for name in BESIDE} == BESIDE
        diagnoses = boss.ask("invocation_get", invocationId="inv-2")["diagnoses"]
        assert {each["kind"] for each in diagnoses} == {"unknown"}
        call("inv-3")
        late = boss.ask("invocation_cancel", invocationId="inv-1")
        assert late["code"] == "run_terminal"

    steps = [come, invoke, diagnose, take, push, work, complete, check]
    while steps:
        try:
            if steps[0] in (complete, check):
                builder.leave()
                builder.come(broker)
            steps[0]()
            steps.pop(0)
        except Killed:
            deaths += 1
            broker.wait()
            broker = start()
            for party in (boss, builder):
                party.leave()
            if steps[0] is not come:
                steps.insert(0, come)
    if broker.process.poll() is None:
        assert broker.stop() == 0
    return builder, runs, deaths


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """FE 3.6, A3.2, A3.3, A5.1: one run, one task under one id, nothing lost and nothing with two ends."""
    commits = 0
    while True:
        commits += 1
        faults = [KILLING.replace("MOMENT", moment).replace("COUNT", str(commits))]

        def start(faults: list[str] = faults, home: Path = tmp_path / str(commits)) -> BrokerProcess:
            return start_broker(home, fault=faults.pop() if faults else "")

        builder, runs, deaths = play(start)
        assert [len(each) for each in runs.values()] == [1, 1], "an invocation that was answered keeps its run"
        expected = {f"run:{run_id}" for each in runs.values() for run_id in each}
        assert {message_id for message_id in builder.seen if message_id.startswith("run:")} == expected
        if deaths == 0:
            break
    assert commits > 8, "every change of an invocation is a commit of its own"
