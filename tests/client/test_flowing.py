"""Flows in the library: what is asked, what is written down before it is sent, and the same calls in every shell."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import convert

from intercom.client import aio, aio_flows, blocking, blocking_flows
from intercom.client.feeds import Feed
from intercom.client.flowing import step_of
from intercom.client.flowviews import FlowList, FlowSummary
from intercom.client.report_files import ReportFiles
from intercom.client.reporting import Nowhere, Outbox, ReportRecord
from intercom.errors import RequestRefused, UsageError
from intercom.limits import FLOW_SUMMARY_BYTES, REPORT_PUMP_MS, REPORTS_KEPT
from intercom.paths import Paths
from intercom.testing import MemoryBroker
from intercom.testing.flowing import FlowCalls as MemoryFlows
from intercom.wire.flows import TodoOutcome
from tests.support.brokers import BrokerProcess
from tests.support.client import GRANTED, Frame, Rig, message
from tests.support.raw import PATIENCE_S

IN = 5.0


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Shelf(Nowhere):
    """Keep records as files would, over several outboxes."""

    def __init__(self) -> None:
        self.records: dict[str, ReportRecord] = {}
        self.saves: list[tuple[str, str]] = []

    def load(self) -> list[ReportRecord]:
        return list(self.records.values())

    def save(self, record: ReportRecord) -> None:
        self.records[record.dispatch_id] = record
        self.saves.append((record.dispatch_id, record.state))

    def drop(self, dispatch_id: str) -> None:
        self.records.pop(dispatch_id, None)


def worker(shelf: Shelf | None = None) -> Rig:
    """Return a session that takes steps and is registered."""
    rig = Rig(name="ada", flows=True)
    rig.core._reports = shelf or Shelf()
    rig.core.flows.outbox._place = shelf or Shelf()
    rig.register(**{**GRANTED, "features": [*GRANTED["features"], "flow.report"]})
    return rig


def said(rig: Rig, dispatch_id: str = "d1", summary: str = "done", **more: Any) -> Any:
    operation = rig.core.flows.report(dispatch_id, "completed", summary, [], more.pop("todo", None), IN)
    rig.core.begin(operation, rig.now)
    return operation


def let_pass(rig: Rig, ms: int) -> None:
    """Let time pass."""
    rig.now += ms
    rig.core.tick(rig.now)


def recorded(request: Frame, state: str = "completed") -> Frame:
    answer = {"requestId": request["requestId"], "reportMessageId": f"flow-report/{request['dispatchId']}"}
    return {"type": "flow_report_recorded", **answer, "state": "accepted", "stepState": state}


# --- reports


def test_a_report_is_written_down_before_it_is_sent() -> None:
    """FE 2.4, A2.14."""
    shelf = Shelf()
    rig = worker(shelf)
    operation = rig.core.flows.report("d1", "completed", "done", ["r"], ("t1", "completed"), IN)
    assert shelf.saves == [("d1", "prepared")]
    assert rig.written() == []
    rig.core.begin(operation, rig.now)
    [request] = rig.written()
    assert request["type"] == "flow_report"
    assert request["todoOutcome"] == {"todoId": "t1", "todoStatus": "completed"}
    assert shelf.saves[-1] == ("d1", "published")
    rig.feed(recorded(request))
    assert operation.result.step_state == "completed"
    assert shelf.saves[-1] == ("d1", "accepted")


def events(feed: Feed) -> list[tuple[str, str | None, str | None]]:
    found = []
    while (event := feed.take()) is not None:
        found.append((event.kind, event.dispatch_id, event.reason))
    return found


def test_a_program_hears_what_becomes_of_its_report() -> None:
    """FE 2.9: prepared, published for each time it is sent, accepted; the broker is told when and how often."""
    shelf = Shelf()
    rig = worker(shelf)
    feed = rig.core.feed()
    said(rig)
    [first] = rig.written()
    assert "attempt" not in first
    assert events(feed) == [("report_prepared", "d1", None), ("report_published", "d1", None)]
    let_pass(rig, 6_000)
    let_pass(rig, REPORT_PUMP_MS)
    [again] = [frame for frame in rig.written() if frame["type"] == "flow_report"]
    assert (again["attempt"], again.get("preparedAt")) == (2, first.get("preparedAt"))
    rig.feed(recorded(again))
    assert events(feed) == [("report_published", "d1", None), ("report_accepted", "d1", None)]
    kept = shelf.records["d1"]
    assert kept.published_at is not None and kept.accepted_at is not None
    assert kept.prepared_at <= kept.published_at <= kept.accepted_at


@pytest.mark.parametrize(("code", "is_kept"), [("dispatch_closed", False), ("store_unusable", True)])
def test_a_program_hears_that_its_report_was_refused(code: str, is_kept: bool) -> None:
    shelf = Shelf()
    rig = worker(shelf)
    feed = rig.core.feed()
    said(rig)
    [request] = rig.written()
    answer = {"requestId": request["requestId"], "code": code, "reason": "over", "retryable": False}
    rig.feed({"type": "request_failed", **answer})
    assert events(feed)[-1] == ("report_refused", "d1", code)
    assert [record.last_error for record in shelf.records.values()] == ([code] if is_kept else [])


def test_what_was_written_down_is_sent_by_the_next_session() -> None:
    """A2.14: stored, died before sending; when it is back the same report is sent once and accepted."""
    shelf = Shelf()
    first = worker(shelf)
    first.core.flows.report("d1", "failed", "no key", [], None, IN)
    again = worker(shelf)
    assert again.written() == []
    let_pass(again, 0)
    [request] = again.written()
    assert (request["dispatchId"], request["outcome"], request["summary"]) == ("d1", "failed", "no key")
    again.feed(recorded(request, "failed"))
    let_pass(again, 10 * REPORT_PUMP_MS)
    assert [frame for frame in again.written() if frame["type"] == "flow_report"] == []


def test_a_repeated_report_is_answered_without_sending() -> None:
    """A2.14: same content sends nothing; other content is report_conflict."""
    rig = worker()
    operation = said(rig)
    rig.feed(recorded(rig.written()[0]))
    again = said(rig)
    assert rig.written() == []
    assert again.result == operation.result
    with pytest.raises(RequestRefused) as refused:
        said(rig, summary="something else")
    assert refused.value.code == "report_conflict"


def test_evidence_that_follows_is_sent() -> None:
    """Open point 8."""
    rig = worker()
    said(rig)
    rig.feed(recorded(rig.written()[0], "awaiting_result"))
    said(rig, todo=("t1", "completed"))
    [request] = rig.written()
    assert request["todoOutcome"]["todoStatus"] == "completed"


def test_who_does_not_wait_any_longer_leaves_the_report_to_the_session() -> None:
    """FE 2.4: pending records are sent again every two seconds."""
    rig = worker()
    operation = said(rig)
    [request] = rig.written()
    let_pass(rig, 6_000)
    assert operation.error is not None
    let_pass(rig, REPORT_PUMP_MS)
    [again] = [frame for frame in rig.written() if frame["type"] == "flow_report"]
    assert again["dispatchId"] == request["dispatchId"]


def test_what_the_broker_will_never_take_is_dropped() -> None:
    shelf = Shelf()
    rig = worker(shelf)
    operation = said(rig)
    [request] = rig.written()
    answer = {"requestId": request["requestId"], "code": "dispatch_closed", "reason": "over", "retryable": False}
    rig.feed({"type": "request_failed", **answer})
    assert operation.error.code == "dispatch_closed"
    assert shelf.records == {}


def test_records_are_sent_in_the_order_in_which_they_were_written() -> None:
    """FE 2.4: oldest first."""
    shelf = Shelf()
    first = worker(shelf)
    for name in ("d3", "d1", "d2"):
        first.core.flows.report(name, "completed", "x", [], None, IN)
    again = worker(shelf)
    let_pass(again, 0)
    assert [frame["dispatchId"] for frame in again.written()] == ["d3", "d1", "d2"]


def test_an_address_remembers_its_last_reports_only() -> None:
    shelf = Shelf()
    outbox = Outbox(shelf)
    for number in range(REPORTS_KEPT + 3):
        record = outbox.prepare(f"d{number}", "completed", "x", [], None)
        assert record is not None
        outbox.sent(record)
        outbox.accepted(record, "completed")
    assert len(shelf.records) == REPORTS_KEPT
    assert "d2" not in shelf.records and "d3" in shelf.records


def test_files_of_reports(tmp_path: Path) -> None:
    """Design section 5: what is kept is for the user alone; what cannot be read is left out."""
    files = ReportFiles(Paths(tmp_path / "home"), "Desk", "default")
    assert files.load() == []
    record = ReportRecord("d1", "completed", "done", ["r"], todo_id="t", todo_status="completed", written_at=2)
    files.save(record)
    files.save(ReportRecord("d0", "failed", "no", [], written_at=1))
    again = ReportFiles(Paths(tmp_path / "home"), "desk", "default")
    assert [one.dispatch_id for one in again.load()] == ["d0", "d1"]
    assert again.load()[1] == record
    [place] = (tmp_path / "home" / "identities" / "reports").iterdir()
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    (place / "torn.report").write_bytes(b"{")
    assert len(again.load()) == 2
    again.drop("d0")
    again.drop("d0")
    assert [one.dispatch_id for one in files.load()] == ["d1"]
    assert ReportFiles(Paths(tmp_path / "home"), "desk", "other").load() == []


# --- requests


@pytest.mark.parametrize(
    "step",
    [
        {"step_id": "a"},
        {"step_id": "a b", "prompt": "p"},
        {"step_id": "a", "prompt": "p", "colour": "red"},
        {"step_id": "a", "prompt": "p", "todo_binding": {"colour": "red"}},
        {"step_id": "a", "prompt": "p", "report_timeout_ms": 0},
        "a",
        ("a",),
        ("a", "p", "q"),
        None,
    ],
    ids=str,
)
def test_a_step_that_breaks_a_rule_is_a_usage_error(step: Any) -> None:
    with pytest.raises(UsageError):
        step_of(step)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([("a b", "p")], "the id of a step 'a b' is no id"),
        ([("a", " ")], "the prompt of step a is blank"),
        ([("a", "p"), ("a", "q")], "two steps have the id a"),
        ([("a", "p\ud800")], "the prompt of step a holds half a character, which no UTF-8 can carry"),
        ([{"step_id": "a", "prompt": "p", "colour": 1}], "a step has no colour"),
        ([{"step_id": "a", "prompt": "p", "report_timeout_ms": 0}], "report_timeout_ms or todo_binding of step a"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_in_our_words(steps: Any, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        worker().core.flows.create("f", "t", steps, None, None, IN)
    assert refused.value.reason.startswith(reason)


def test_a_target_that_is_blank_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        worker().core.flows.create("f", " ", [("a", "p")], None, None, IN)
    with pytest.raises(UsageError):
        worker().core.flows.resume("f", "", None, IN)


def test_line_ends_make_no_other_report() -> None:
    """Protocol 12.6: what is stored is compared."""
    rig = worker()
    first = said(rig, summary="one\r\ntwo")
    [request] = rig.written()
    assert request["summary"] == "one\ntwo"
    rig.feed(recorded(request))
    assert said(rig, summary="one\ntwo").result == first.result


def test_who_may_not_ask_is_told_how_to_connect() -> None:
    rig = worker()
    operation = rig.core.flows.start("f", None, IN)
    rig.core.begin(operation, rig.now)
    [request] = rig.written()
    refused = {"requestId": request["requestId"], "code": "feature_not_granted", "reason": "no", "retryable": False}
    rig.feed({"type": "request_failed", **refused})
    assert operation.error is not None
    assert "coordinator=True" in operation.error.hint


def test_a_list_of_flows_is_looped_over() -> None:
    told = {"flowId": "f", "target": "w", "state": "draft", "group": "g", "createdBy": "b", "createdAt": 1}
    summary = convert({**told, "updatedAt": 1, "stepsCompleted": 0, "steps": 1}, FlowSummary)
    assert [flow.flow_id for flow in FlowList(flows=(summary,), total=1)] == ["f"]


def test_steps_by_either_names() -> None:
    ours = step_of({"step_id": "a", "prompt": "p", "todo_binding": {"require_completed": True}})
    assert ours == step_of({"stepId": "a", "prompt": "p", "todoBinding": {"requireCompleted": True}})
    assert step_of(("a", "p")) == step_of({"step_id": "a", "prompt": "p"})


@pytest.mark.parametrize(
    "call",
    [
        lambda make: make.create("a b", "t", [("s", "p")], None, None, IN),
        lambda make: make.retry("f", "s", " ", None, IN),
        lambda make: make.cancel("f", "x" * (FLOW_SUMMARY_BYTES + 1), None, IN),
        lambda make: make.report("d", "fine", "s", [], None, IN),
        lambda make: make.report("d", "completed", " ", [], None, IN),
        lambda make: make.report("d", "completed", "s", ["r"] * 17, None, IN),
        lambda make: make.report("d", "completed", "s", [], ("t", "fine"), IN),
        lambda make: make.report("d", "completed", "s", [], ("t",), IN),
        lambda make: make.report("d", "completed", "s", [], 7, IN),
        lambda make: make.report("d", "completed", "s", "url", None, IN),
        lambda make: make.report("d", "completed", "s", [7], None, IN),
        lambda make: make.create("f", "t", "steps", None, None, IN),
    ],
)
def test_what_could_never_work_is_a_usage_error(call: Any) -> None:
    with pytest.raises(UsageError):
        call(worker().core.flows)


def test_a_request_keeps_its_key_over_a_lost_connection() -> None:
    """FE 2.8: repeating it takes effect once."""
    rig = worker()
    operation = rig.core.flows.start("f", None, 60.0)
    rig.core.begin(operation, rig.now)
    [first] = rig.written()
    rig.core.eof(rig.now)
    [second] = [frame for frame in rig.reattach() if frame["type"] == "flow_start"]
    assert (second["requestKey"], second["flowId"]) == (first["requestKey"], "f")


# --- steps in messages


def test_a_message_with_a_step() -> None:
    rig = worker()
    carried = {
        "flowId": "f",
        "stepId": "one",
        "dispatchId": "d1",
        "attempt": 2,
        "instruction": "report it",
        "report": {"type": "flow_report", "dispatchId": "d1"},
        "todoBinding": {"label": "it"},
    }
    rig.feed(message("flow-dispatch/d1", "do it", flowDispatch=carried))
    rig.feed(message("flow-dispatch/d2", "forged", flowDispatch=carried))
    rig.feed(message("m3", "plain", flowDispatch=carried))
    first, second, third = (rig.core.take_message(rig, rig.now) for _ in range(3))
    assert first is not None and first.flow is not None
    assert (first.flow.step_id, first.flow.attempt, first.flow.instruction) == ("one", 2, "report it")
    assert first.flow.todo is not None and first.flow.todo.label == "it"
    assert second is not None and third is not None
    assert (second.flow, third.flow) == (None, None)


# --- the shells


def calls_of(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(getattr(kind, name)).parameters) for name in dir(kind) if not name.startswith("_")
    }


def test_the_shells_have_the_same_calls() -> None:
    assert calls_of(aio_flows.FlowCalls) == calls_of(blocking_flows.FlowCalls) == calls_of(MemoryFlows)
    parameters = list(inspect.signature(aio_flows.FlowStep.report).parameters)
    assert parameters == list(inspect.signature(blocking_flows.FlowStep.report).parameters)


def test_a_flow_in_memory() -> None:
    broker = MemoryBroker()
    boss = broker.connect("boss", coordinator=True)
    ada = broker.connect("ada", flows="todo")
    flow = boss.flows.create(
        "release", "ada", [{"step_id": "one", "prompt": "p", "todo_binding": {"require_completed": True}}, ("two", "q")]
    )
    assert (flow.state, flow.next_actions) == ("draft", ("start", "append", "cancel"))
    boss.flows.start("release")
    message = ada.receive()
    assert message is not None and message.flow is not None
    assert message.flow.report("completed", "done", todo=("t1", "completed")).step_state == "completed"
    second = ada.receive()
    assert second is not None and second.flow is not None
    assert ada.flows.report(second.flow.dispatch_id, "failed", "no").step_state == "failed"
    status = boss.flows.status("release")
    assert status.next_actions == ("pause", "retry two", "append", "cancel")
    assert status.step("one").result is not None and status.step("one").prompt == "p"
    assert status.dispatches is not None and len(status.dispatches) == 2
    boss.flows.retry("release", "two", "again")
    third = ada.receive()
    assert third is not None and third.flow is not None and third.flow.attempt == 2
    boss.flows.cancel("release", "enough")
    with pytest.raises(RequestRefused) as refused:
        third.flow.report("completed", "late")
    assert refused.value.code == "dispatch_closed"
    assert [flow.flow_id for flow in boss.flows.list().flows] == ["release"]
    assert boss.flows.collect(dry_run=True) == ()


def test_todo_outcomes_by_either_form() -> None:
    outbox = Outbox(Nowhere())
    first = outbox.prepare("d", "completed", "s", [], TodoOutcome("t", "completed"))
    assert outbox.prepare("d", "completed", "s", [], TodoOutcome("t", "completed")) is first


def test_a_flow_over_sockets(paths: Paths) -> None:
    """The blocking shell against a broker of its own; the coordinator watches."""
    home = paths.home
    with (
        blocking.connect("boss", home=home, coordinator=True) as boss,
        blocking.connect("ada", home=home, flows=True, address=True) as ada,
    ):
        boss.flows.create("f", "ada", [("one", "p")])
        watching = boss.flows.watch("f")
        boss.flows.start("f")
        message = ada.receive(timeout=PATIENCE_S)
        assert message is not None and message.flow is not None
        assert message.flow.report("completed", "done", ["file:a"]).step_state == "completed"
        kinds = []
        for told in watching:
            kinds.append(getattr(told, "kind", "snapshot"))
            if kinds[-1] == "flow.dispatch_completed":
                break
        assert kinds[0] == "snapshot" and "dispatch.published" in kinds
        status = boss.flows.status("f")
        assert status.state == "completed"
        result = status.step("one").result
        assert result is not None and result.resources == ("file:a",)
        assert list((home / "identities" / "reports").rglob("*.report"))


async def test_a_flow_under_anyio(paths: Paths, anyio_backend: Any) -> None:
    home = paths.home
    async with (
        aio.connect("boss", home=home, coordinator=True) as boss,
        aio.connect("ada", home=home, flows=True) as ada,
    ):
        await boss.flows.create("f", f"session:{ada.id}", [("one", "p")])
        await boss.flows.start("f")
        with anyio.fail_after(PATIENCE_S):
            message = await ada.receive()
        assert message.flow is not None
        reported = await message.flow.report("completed", "done")
        assert reported.step_state == "completed"
        assert (await boss.flows.status("f")).state == "completed"


async def test_a_flow_is_controlled_under_anyio(broker: BrokerProcess, anyio_backend: Any) -> None:
    """Protocol 12.5: what holds a flow up, goes on with it, makes it longer and ends it; 12.6, how old it is to go."""
    home = broker.home
    async with (
        aio.connect("boss", home=home, coordinator=True) as boss,
        aio.connect("ada", home=home, flows=True) as ada,
    ):
        flows = boss.flows
        await flows.create("f", f"session:{ada.id}", [("one", "p"), ("three", "r")])
        await flows.start("f")
        with anyio.fail_after(PATIENCE_S):
            first = await ada.receive()
            assert first.flow is not None
            assert (await flows.pause("f")).state == "paused"
            await first.flow.report("failed", "no")
            assert (await flows.resume("f")).state == "active"
            appended = await flows.append("f", "one", [("two", "q")])
            assert [step.step_id for step in appended.steps] == ["one", "two", "three"]
            await flows.retry("f", "one", "again")
            again = await ada.receive()
        assert again.flow is not None and (again.flow.step_id, again.flow.attempt) == ("one", 2)
        assert (await flows.cancel("f", "enough")).state == "cancelled"
        assert [(flow.flow_id, flow.state) for flow in (await flows.list()).flows] == [("f", "cancelled")]
        assert await flows.collect(dry_run=True) == ()
