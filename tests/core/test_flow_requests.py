"""Ask for things that may be refused, twice, or by the wrong one (protocol 4.60 to 4.70, 12.1, 12.7, 12.8)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import KIB, Limits
from tests.core.flow_play import COORDINATOR, Play, gated
from tests.core.harness import World
from tests.core.mail import enter

LIMITS = Limits()
STEP = {"stepId": "one", "prompt": "p"}


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], "invalid_flow"),
        ([STEP, STEP], "invalid_flow"),
        ([{**STEP, "prompt": " \n"}], "invalid_flow"),
        ([{**STEP, "prompt": "x" * (48 * KIB + 1)}], "invalid_flow"),
        ([{**STEP, "prompt": "\u00e9" * (24 * KIB) + "x"}], "invalid_flow"),
        ([{**STEP, "todoBinding": {"label": "x" * 257}}], "invalid_flow"),
        ([{**STEP, "todoBinding": {"label": ""}}], "invalid_flow"),
        ([{"stepId": f"s{n}", "prompt": "p"} for n in range(65)], "flow_limit"),
        ([{**STEP, "colour": "red"}], "bad_request"),
        ([{**STEP, "stepId": ".x"}], "bad_request"),
        ([{**STEP, "stepId": "x\n"}], "bad_request"),
        ([{**STEP, "stepId": "x" * 65}], "bad_request"),
        ([{**STEP, "reportTimeoutMs": 0}], "bad_request"),
    ],
    ids=str,
)
def test_a_flow_that_breaks_a_rule_is_refused_whole(steps: Any, code: str) -> None:
    """FE 2.2, 2.5."""
    play = Play()
    assert play.ask("flow_create", flowId="f", target="worker", steps=steps)["code"] == code
    assert play.ask("flow_list")["flows"] == []


@pytest.mark.parametrize(
    "target", [" ", "session:", "session:zz", "@me", "*", "work*", "workflow:r/x", "a\x1bb", "a\nb"]
)
def test_a_target_that_can_never_take_a_step_is_refused(target: str) -> None:
    """FE 2.2: when it is written down, and when another one is named."""
    play = Play()
    asked = play.ask("flow_create", flowId="f", target=target, steps=[STEP])
    assert asked["code"] == "invalid_flow"
    play.create("f")
    play.ask("flow_start", flowId="f")
    play.ask("flow_pause", flowId="f")
    assert play.ask("flow_resume", flowId="f", target=target)["code"] == "invalid_flow"
    assert play.flow("f")["flow"]["target"] == "worker"


def test_what_is_just_within_the_limits_is_taken() -> None:
    """FE 2.5; CRLF counts as LF."""
    play = Play()
    steps = [{"stepId": f"s{n}", "prompt": "p\r\n" * (24 * KIB)} for n in range(64)]
    assert play.ask("flow_create", flowId="x" * 64, target="worker", steps=steps)["type"] == "flow"
    assert play.flow("x" * 64)["flow"]["steps"][63]["prompt"] == "p\n" * (24 * KIB)


def test_no_more_flows_than_may_be_open() -> None:
    """FE 2.5; one that is over does not count."""
    play = Play(World(limits=Limits(flows=2)))
    for flow_id in "ab":
        play.create(flow_id)
    refused = play.create("c")
    assert (refused["code"], refused["retryable"]) == ("flow_limit", True)
    play.ask("flow_cancel", flowId="a", reason="r")
    assert play.create("c")["type"] == "flow"


def test_a_key_gives_the_flow_again() -> None:
    """FE 2.8."""
    play = Play()
    first = play.create("f", requestKey="k")
    assert first["type"] == "flow"
    again = play.create("f", requestKey="k")
    assert {**again, "requestId": 0} == {**first, "requestId": 0}
    assert play.create("f")["code"] == "flow_exists"
    assert play.create("f", requestKey="l")["code"] == "flow_exists"
    assert play.create("g", requestKey="k")["code"] == "request_key_conflict"


def test_a_key_lets_a_control_request_be_repeated() -> None:
    """FE 2.8: start, pause, resume and cancel with the same key have the same answer, also after a restart."""
    play = Play()
    play.create("f")
    for kind, more in (
        ("flow_start", {}),
        ("flow_pause", {}),
        ("flow_resume", {}),
        ("flow_cancel", {"reason": "r"}),
    ):
        first = play.ask(kind, flowId="f", requestKey=kind, **more)
        assert first["type"] == "flow"
        revision = play.flow()["flow"]["revision"]
        assert play.ask(kind, flowId="f", requestKey=kind, **more)["type"] == "flow"
        assert play.flow()["flow"]["revision"] == revision
    play.restart()
    play.boss = play.back(play.boss)
    assert play.ask("flow_start", flowId="f", requestKey="flow_start")["flow"]["state"] == "cancelled"
    assert play.ask("flow_start", flowId="f")["code"] == "flow_conflict"


def test_a_refused_request_leaves_its_key_free() -> None:
    """P9, rule 2."""
    play = Play()
    play.create("f")
    assert play.ask("flow_pause", flowId="f", requestKey="k")["code"] == "flow_conflict"
    play.ask("flow_start", flowId="f")
    assert play.ask("flow_pause", flowId="f", requestKey="k")["flow"]["state"] == "paused"


@pytest.mark.parametrize("kind", ["start", "pause", "resume", "cancel", "append", "retry", "status"])
def test_whoever_is_in_another_group_knows_of_no_flow(kind: str) -> None:
    """FE 2.7."""
    play = Play()
    play.begin()
    stranger = enter(play.world, "stranger", features=COORDINATOR, info={"group": "far"})
    more: dict[str, Any] = {
        "cancel": {"reason": "r"},
        "append": {"afterStepId": "one", "steps": [STEP]},
        "retry": {"stepId": "one", "reason": "r"},
    }.get(kind, {})
    assert play.ask(f"flow_{kind}", by=stranger, flowId="f", **more)["code"] == "flow_unknown"
    assert play.ask("flow_list", by=stranger)["flows"] == []


def test_a_report_counts_when_no_coordinator_is_there() -> None:
    """FE 2.7: a result is accepted, and the next step handed out: whoever may go home need not come back (12.7)."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    play.boss.write("unregister")
    play.report(dispatch_id)
    play.report(play.take())
    person = play.person()
    assert play.ask("flow_status", by=person, flowId="f")["flow"]["state"] == "completed"


def test_a_worker_may_only_report() -> None:
    """FE 2.7."""
    play = Play()
    play.begin()
    refused = play.ask("flow_cancel", by=play.worker, flowId="f", reason="r")
    assert refused["code"] == "feature_not_granted"
    assert play.ask("flow_list", by=play.worker)["code"] == "feature_not_granted"
    assert play.report("x", by=play.boss)["code"] == "feature_not_granted"


def test_a_person_controls_every_flow() -> None:
    """FE 2.7."""
    play = Play()
    play.begin()
    person = play.person()
    assert play.ask("flow_list", by=person)["total"] == 1
    assert play.ask("flow_pause", by=person, flowId="f")["flow"]["state"] == "paused"


def test_who_leaves_the_group_while_texts_are_read_is_refused() -> None:
    """FE 2.7: authority is looked at again after every wait."""
    play = Play()
    play.create("f")
    play.world.auto = False
    play.boss.write("flow_status", requestId="s", flowId="f")
    play.boss.write("presence", groups=["far"])
    play.world.auto = True
    play.world.settle()
    failed = [frame for frame in play.boss.got() if frame["type"] == "request_failed"]
    assert [frame["code"] for frame in failed] == ["authority_changed"]


def test_a_flow_nobody_was_reachable_for_may_be_resumed() -> None:
    """Open point 9: with another target, too; its texts are kept on then."""
    play = Play()
    play.begin(target="nobody")
    play.world.pass_time(60_000)
    assert play.states()[0] == "failed"
    play.world.pass_time(LIMITS.bodies_kept_ms - 120_000)
    resumed = play.ask("flow_resume", flowId="f", target="worker")
    assert (resumed["flow"]["state"], resumed["flow"]["target"]) == ("active", "worker")
    assert "reason" not in resumed["flow"]
    play.world.pass_time(10 * LIMITS.tidy_ms)
    play.report(play.take())
    play.report(play.take())
    assert play.states()[0] == "completed"


def test_what_failed_too_long_ago_is_not_resumed() -> None:
    """Design section 5, Privacy: texts are kept 24 h."""
    play = Play()
    play.begin(target="nobody")
    play.world.pass_time(LIMITS.bodies_kept_ms + LIMITS.tidy_ms + 60_000)
    refused = play.ask("flow_resume", flowId="f", target="worker")
    assert (refused["code"], "too long ago" in refused["reason"]) == ("flow_conflict", True)
    assert "prompt" not in play.flow()["flow"]["steps"][0]


def test_a_target_changes_only_between_attempts() -> None:
    """FE 2.3: resume with another target needs no open dispatch."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    play.ask("flow_pause", flowId="f")
    other = play.work_as("other")
    assert play.ask("flow_resume", flowId="f", target="other")["code"] == "flow_conflict"
    play.report(dispatch_id)
    assert play.ask("flow_resume", flowId="f", target="other")["flow"]["target"] == "other"
    play.report(play.take(other), by=other)
    assert play.states()[0] == "completed"


def test_a_step_is_not_tried_for_ever() -> None:
    """FE 2.3: a retry beyond the limit is refused at once."""
    play = Play(World(limits=Limits(flow_attempts=2)))
    play.begin("f", "one")
    play.report(play.take(), "failed")
    assert play.flow()["flow"]["nextActions"] == ["pause", "retry one", "append", "cancel"]
    play.ask("flow_retry", flowId="f", stepId="one", reason="r")
    play.report(play.take(), "failed")
    assert play.ask("flow_retry", flowId="f", stepId="one", reason="r")["code"] == "step_attempt_limit"
    assert play.flow()["flow"]["nextActions"] == ["pause", "append", "cancel"]


@pytest.mark.parametrize("kind", ["retry", "cancel"])
def test_a_reason_has_its_length(kind: str) -> None:
    """FE 2.5: at most 8 KiB of UTF-8."""
    play = Play()
    play.begin()
    play.report(play.take(), "failed")
    more = {"stepId": "one"} if kind == "retry" else {}
    too_long = play.ask(f"flow_{kind}", flowId="f", reason="\u00e9" * (4 * KIB) + "x", **more)
    assert too_long["code"] == "invalid_flow"
    assert play.ask(f"flow_{kind}", flowId="f", reason="\u00e9" * (4 * KIB), **more)["type"] == "flow"


def test_the_same_target_is_a_plain_resume() -> None:
    """FE 2.3: also while a step is under way, and its identity is kept."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    play.ask("flow_pause", flowId="f")
    resumed = play.ask("flow_resume", flowId="f", target=" worker ")
    assert (resumed["flow"]["state"], resumed["flow"]["targetIdentity"]["sessionId"]) == ("active", play.worker.id)
    play.report(dispatch_id)
    assert play.states() == ("active", ["completed", "dispatching"])


def test_only_what_failed_or_is_ambiguous_is_retried() -> None:
    """FE 2.3."""
    play = Play()
    play.begin()
    assert play.ask("flow_retry", flowId="f", stepId="one", reason="r")["code"] == "flow_conflict"
    assert play.ask("flow_retry", flowId="f", stepId="none", reason="r")["code"] == "step_unknown"
    assert play.ask("flow_retry", flowId="f", stepId="one", reason=" ")["code"] == "invalid_flow"


def test_flows_that_are_over_for_long_are_deleted() -> None:
    """FE 2.5: by the broker itself, or when somebody asks; a dry run only tells."""
    play = Play()
    play.begin("f", "one")
    play.report(play.take())
    play.create("g")
    assert play.ask("flow_collect")["flowIds"] == []
    play.world.wall += LIMITS.flow_retention_ms
    assert play.ask("flow_collect", dryRun=True)["flowIds"] == ["f"]
    assert play.ask("flow_status", flowId="f")["type"] == "flow"
    assert play.ask("flow_collect")["flowIds"] == ["f"]
    assert play.ask("flow_status", flowId="f")["code"] == "flow_unknown"
    assert ([row.flow_id for row in play.world.disk.flows.values()], play.world.disk.dispatches) == (["g"], {})
    assert play.create("f")["type"] == "flow"


def test_a_flow_never_has_the_history_of_an_earlier_one() -> None:
    """FE 2.2, journal streams: one per flow; also when every earlier one was deleted before the broker was started."""
    play = Play()
    play.begin("f", "one")
    play.report(play.take())
    play.world.wall += LIMITS.flow_retention_ms
    play.ask("flow_collect")
    play.restart()
    play.boss, play.worker = play.back(play.boss), play.back(play.worker)
    play.begin("g", "one")
    play.report(play.take())
    events = [event for event in play.world.disk.journal if event.stream.startswith(("flow:", "dispatch:"))]
    assert len({event.event_id for event in events}) == len(events)
    streams: dict[str, set[str]] = {}
    for event in events:
        streams.setdefault(event.stream, set()).add(event.row.flow_id)
    assert all(len(flows) == 1 for flows in streams.values())


def test_a_journal_that_was_begun_anew_costs_no_flow_its_row() -> None:
    """Design section 5: a rebuilt store may have lost its journal, and its sequences begin again."""
    play = Play()
    for flow_id in "ab":
        play.create(flow_id)
    play.world.disk.journal.clear()
    play.world.disk.sequence = 0
    play.restart()
    play.boss = play.back(play.boss)
    for flow_id in "cd":
        play.create(flow_id)
    assert [flow["flowId"] for flow in play.ask("flow_list")["flows"]] == ["d", "c", "b", "a"]
    assert [row.flow_id for row in play.world.disk.flows.values()] == ["a", "b", "c", "d"]


def test_the_broker_deletes_them_by_itself() -> None:
    """FE 2.5."""
    play = Play()
    play.create("f")
    play.ask("flow_cancel", flowId="f", reason="r")
    play.world.wall += LIMITS.flow_retention_ms
    play.world.pass_time(LIMITS.tidy_ms)
    assert play.world.disk.flows == {}


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"summary": " "}, "invalid_flow"),
        ({"summary": "x" * (8 * KIB + 1)}, "invalid_flow"),
        ({"resources": ["r"] * 17}, "invalid_flow"),
        ({"resources": ["x" * (2 * KIB + 1)]}, "invalid_flow"),
        ({"resources": [""]}, "invalid_flow"),
        ({"outcome": "fine"}, "bad_request"),
        ({"todoOutcome": {"todoId": "t", "todoStatus": "fine"}}, "bad_request"),
        ({"todoOutcome": {"todoId": "a b", "todoStatus": "completed"}}, "bad_request"),
        ({"to": "somebody"}, "bad_request"),
        ({"replyTo": "m"}, "bad_request"),
        ({"attempt": 0}, "bad_request"),
    ],
    ids=str,
)
def test_a_report_that_breaks_a_rule_records_nothing(members: dict[str, Any], code: str) -> None:
    """FE 2.2."""
    play = Play()
    play.begin()
    dispatch_id = play.take()
    request = {"dispatchId": dispatch_id, "outcome": "completed", "summary": "s", **members}
    assert play.ask("flow_report", by=play.worker, **request)["code"] == code
    assert play.states() == ("active", ["awaiting_result", "pending"])


def test_what_cannot_be_recorded_did_not_happen() -> None:
    """Design section 3.6: the answer is a refusal that invites a retry, and all is as before."""
    play = Play()
    play.create("f")
    play.world.auto = False
    play.boss.write("flow_start", requestId="s", flowId="f", requestKey="k")
    play.world.fail_commit()
    play.world.auto = True
    play.world.settle()
    failed = [frame for frame in play.boss.got() if frame.get("requestId") == "s"]
    assert [(frame["code"], frame["retryable"]) for frame in failed] == [("not_recorded", True)]
    assert play.states()[0] == "draft"
    assert play.ask("flow_start", flowId="f", requestKey="k")["flow"]["state"] == "active"


def test_a_store_that_cannot_be_used_is_said() -> None:
    """Design section 5, fail closed."""
    world = World(store_trouble="no key")
    boss = enter(world, "boss", features=(*COORDINATOR, "operator"), info={"recipientPurpose": "control"})
    (refused,) = boss.write("flow_list", requestId="r")
    assert (refused["code"], refused["reason"].endswith("no key")) == ("store_unusable", True)


def test_a_list_shows_the_newest_first() -> None:
    """protocol 5.71"""
    play = Play(World(limits=Limits(flows_listed=2)))
    for flow_id in "abc":
        play.create(flow_id, gated(), "two")
    listed = play.ask("flow_list")
    assert ([flow["flowId"] for flow in listed["flows"]], listed["total"]) == (["c", "b"], 3)
    assert (listed["flows"][0]["stepsCompleted"], listed["flows"][0]["steps"]) == (0, 2)


def test_prompts_of_a_flow_are_bounded_together() -> None:
    """FE 2.1: each may be allowed, and all of them too much"""
    play = Play(World(limits=Limits(flow_bytes=1_000)))
    steps = [{"stepId": step, "prompt": "p" * 600} for step in ("one", "two")]
    refused = play.create("f", *steps)
    assert (refused["type"], refused["code"]) == ("request_failed", "flow_limit")
    assert play.create("g", steps[0])["type"] == "flow"


def test_a_repeated_request_tells_nothing_to_who_may_not_see_the_flow_any_more() -> None:
    """FE 0.5: a coordinator of its group"""
    play = Play()
    play.begin("f")
    assert play.ask("flow_pause", flowId="f", requestKey="k")["type"] == "flow"
    play.boss.write("presence", requestId="p", groups=["elsewhere"])
    assert play.ask("flow_pause", flowId="f", requestKey="k")["type"] == "request_failed"


@pytest.mark.parametrize("what", ["fails", "left"])
def test_texts_of_a_flow_that_cannot_be_shown(what: str) -> None:
    """FE 2.1: not read now, or nobody is there who asked"""
    play = Play()
    play.create("f")
    play.world.auto = False
    play.boss.write("flow_status", requestId="s", flowId="f")
    assert len(play.world.reads) == 1
    if what == "left":
        play.boss.leave()
    play.world.read(fails=what == "fails")
    play.world.auto = True
    play.world.settle()
    told = [(frame["code"], frame["retryable"]) for frame in play.boss.got() if frame.get("requestId") == "s"]
    assert told == ([("not_read", True)] if what == "fails" else [])


def test_a_flow_that_was_never_recorded_is_shown_to_nobody() -> None:
    """Design section 3.6: its texts are read once it is recorded, which it never was."""
    play = Play()
    play.world.auto = False
    steps = [{"stepId": "one", "prompt": "do it"}]
    play.boss.write("flow_create", requestId="c", flowId="f", target="worker", steps=steps)
    play.boss.write("flow_status", requestId="s", flowId="f")
    play.world.fail_commit()
    play.world.auto = True
    play.world.settle()
    told = {frame["requestId"]: frame["code"] for frame in play.boss.got() if "requestId" in frame}
    assert told == {"c": "not_recorded", "s": "not_recorded"}
    assert play.ask("flow_status", flowId="f")["code"] == "flow_unknown"


def test_a_flow_that_is_deleted_while_it_is_read_is_shown_to_nobody() -> None:
    """5.70: what it shows is there."""
    play = Play(World(limits=Limits(flow_retention_ms=1)))
    play.create("f")
    play.ask("flow_cancel", flowId="f", reason="enough")
    play.world.pass_time(1)
    play.world.auto = False
    play.boss.write("flow_status", requestId="s", flowId="f")
    play.boss.write("flow_collect", requestId="c")
    play.world.auto = True
    play.world.settle()
    told = {frame["requestId"]: frame.get("code") for frame in play.boss.got() if "requestId" in frame}
    assert told == {"s": "not_read", "c": None}


def test_a_report_that_comes_while_a_flow_is_read_is_shown_with_its_text() -> None:
    """5.70: a text that was not on disk when the others were read is not taken for one that had its time."""
    play = Play()
    play.begin("f", "one")
    dispatch_id = play.take()
    play.world.auto = False
    play.boss.write("flow_status", requestId="s", flowId="f")
    play.worker.write("flow_report", requestId="r", dispatchId=dispatch_id, outcome="completed", summary="sung")
    play.world.read()
    play.world.auto = True
    play.world.settle()
    (answer,) = [frame for frame in play.boss.got() if frame.get("requestId") == "s"]
    assert answer["flow"]["steps"][0]["result"]["summary"] == "sung"
