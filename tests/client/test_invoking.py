"""Test invocations in programs: in memory, and under both kinds of session with a real broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import intercom
from intercom.client import aio, blocking
from intercom.client.invoking import InvocationRequests
from intercom.errors import RequestRefused, RouteUnclear, RunFailed, RunUnfinished, UsageError
from intercom.paths import Paths
from intercom.testing import MemoryBroker
from intercom.wire import invocations as wire
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


BESIDE: dict[str, Any] = {
    "context": "for Friday",
    "execution": intercom.Execution(model="opus", session="existing", target_session_id="t-1"),
    "labels": ("release", "friday"),
    "metadata": {"ticket": 7},
    "stream": True,
    "about": "m-7",
}
"""What may go with a task."""


def told_of(task: Any) -> dict[str, Any]:
    """Return what a task, or a view, tells of it."""
    return {name: getattr(task, name) for name in BESIDE}


def test_what_goes_with_a_task(broker: MemoryBroker) -> None:
    """FE 3.2; protocol 13.3.1"""
    boss, builder, worker = (
        broker.connect("boss"),
        broker.connect("builder"),
        broker.connect("worker", work_mode="resident"),
    )
    invocation = boss.invoke("builder", "build", invocation_id="i", **BESIDE)
    message = builder.receive()
    assert message is not None and message.invocation is not None
    assert told_of(message.invocation) == told_of(invocation.view()) == BESIDE
    assert [(each.type, each.content) for each in message.attachments] == [("context", "for Friday")]
    assert told_of(boss.invocations()[0]) == {**BESIDE, "context": None, "metadata": None}
    assert boss.invoke("builder", "build", invocation_id="i", **BESIDE).run_id == invocation.run_id
    with pytest.raises(RequestRefused) as other:
        boss.invoke("builder", "build", invocation_id="i", **{**BESIDE, "stream": False})
    assert other.value.code == "invocation_conflict"
    boss.invoke("worker", "test", **BESIDE)
    work = worker.claim(worker.inbox().items[0].id)
    assert work.invocation is not None and told_of(work.invocation) == BESIDE
    message.invocation.update("running")
    invocation.cancel()
    notice = builder.receive()
    assert notice is not None and notice.invocation is not None and notice.invocation.is_cancelled
    nothing = {"context": None, "execution": None, "labels": (), "metadata": None, "stream": False, "about": None}
    assert told_of(notice.invocation) == nothing


@pytest.mark.parametrize(
    "wrong",
    [
        {"context": " "},
        {"labels": "release"},
        {"labels": [" "]},
        {"metadata": {"a": object()}},
        {"metadata": {"a": [float("nan")]}},
        {"about": ""},
        {"execution": intercom.Execution(model=" ")},
        {"execution": intercom.Execution(session="old")},  # type: ignore[arg-type]  # that is what is wrong
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_cannot_go_with_a_task(broker: MemoryBroker, wrong: dict[str, Any]) -> None:
    boss = broker.connect("boss")
    broker.connect("builder")
    with pytest.raises((UsageError, RequestRefused)):
        boss.invoke("builder", "build", **wrong)
    assert boss.invocations() == []


def test_how_it_gets_to_another_machine() -> None:
    """FE 3.4 Snapshot; protocol 5.81"""
    info = wire.InvocationInfo(
        "i", 4, "r", "s", "@far", "t", "far", "execute", False, 1_700_000_000_000, "queued", task="build"
    )
    waits = wire.DeliveryInfo("d", "b", "deferred", 2, 1, 5, failure_reason="timeout", failure_detail="no answer")
    answer = wire.InvocationSnapshot("q", "i", True, "j", 9, [], info, deliveries=[waits])
    lifecycle: Any = SimpleNamespace()
    operation = InvocationRequests(lifecycle, lambda: 0, lambda: "q").invocation("i", 1)
    operation.attempt("q")
    operation.answered(answer)
    view = operation.result
    assert isinstance(view, intercom.InvocationView)
    told = intercom.InvocationDelivery(
        id="d",
        broker_id="b",
        status="deferred",
        attempts=2,
        first_queued_at=1,
        next_attempt_at=5,
        failure="timeout",
        failure_detail="no answer",
    )
    assert view.deliveries == (told,)


def test_a_task_and_its_result(broker: MemoryBroker) -> None:
    boss, builder = broker.connect("boss"), broker.connect("builder")
    invocation = boss.invoke("@builder", "build", action="consult", invocation_id="i")
    assert (invocation.id, invocation.state, invocation.detail) == ("i", "queued", None)
    message = builder.receive()
    assert message is not None and message.invocation is not None
    assert (message.text, message.invocation.action, message.invocation.is_cancelled) == ("build", "consult", False)
    assert message.invocation.update("waiting", summary="key") == "waiting"
    with pytest.raises(RunUnfinished) as unfinished:
        invocation.result(1)
    assert (unfinished.value.exit_status, unfinished.value.invocation_id) == (6, "i")
    assert "intercom invocation show i" in unfinished.value.hint
    assert message.invocation.complete("built", summary="ok") == "completed"
    view = invocation.result()
    assert (view.output, view.summary, view.task, view.is_over) == ("built", "ok", "build", True)
    assert [each.state for each in invocation] == []
    assert boss.invoke("@builder", "build", action="consult", invocation_id="i").state == "completed"
    assert message.invocation.update("running") == "completed", "the first end counts"
    with pytest.raises(RequestRefused) as ended:
        message.invocation.fail("no")
    assert ended.value.code == "run_terminal"


def test_what_happens_to_a_run_is_told(broker: MemoryBroker) -> None:
    """A3.11"""
    boss, builder = broker.connect("boss"), broker.connect("builder")
    invocation = boss.invoke("builder", "build")
    message = builder.receive()
    assert message is not None and message.invocation is not None
    message.invocation.update("waiting")
    kinds = [(event.kind, invocation.state) for event in invocation]
    assert invocation.state == "waiting" and all(kind == "run.updated" for kind, _ in kinds)
    message.invocation.fail("no compiler")
    with pytest.raises(RunFailed) as failed:
        invocation.result()
    assert (failed.value.code, "no compiler" in failed.value.reason) == ("run_failed", True)
    assert failed.value.as_dict()["invocationId"] == invocation.id


def test_a_label_that_leads_to_nobody(broker: MemoryBroker) -> None:
    """A3.4, A3.5"""
    boss = broker.connect("boss")
    one, two = broker.connect("twin", cwd="/a/main"), broker.connect("twin", cwd="/a/side")
    with pytest.raises(RouteUnclear) as unclear:
        boss.invoke("twin", "x", invocation_id="i")
    assert (unclear.value.code, unclear.value.labels) == ("route_ambiguous", ("@twin.main", "@twin.side"))
    assert boss.resolve("@twin.side").target_id == two.id
    assert one.id != two.id
    with pytest.raises(RouteUnclear) as known:
        boss.invocation("i")
    assert known.value.code == "route_ambiguous"
    with pytest.raises(RequestRefused) as unknown:
        boss.invocation("never")
    assert not isinstance(unknown.value, RouteUnclear), "it is no label"
    assert (unknown.value.code, unknown.value.exit_status) == ("invocation_unknown", 3)
    with pytest.raises(UsageError):
        boss.invoke("twin", "x", action="sing")
    assert unclear.value.reason == "'twin' leads to several: 2 are called @twin", "the hint says the rest"
    assert unclear.value.hint == "Name one of them: @twin.main, @twin.side."
    for wrong in ("", "a\nb", "x" * 129, "\x1b[2J"):
        with pytest.raises(UsageError):
            boss.invoke("@twin.side", "x", invocation_id=wrong)
    with pytest.raises(UsageError):
        boss.invocations(before=-1)


@pytest.mark.parametrize("name", ["a.b", "x#y?z", "ask me:now"])
def test_a_name_that_no_label_can_say_is_taken_as_it_is_listed(broker: MemoryBroker, name: str) -> None:
    """Protocol 13.2.2; design section 1: what one command prints another takes."""
    boss, one = broker.connect("boss"), broker.connect(name)
    for target in (name, f"@{name}", name.upper(), one.id[:8]):
        assert boss.resolve(target).target_id == one.id
    broker.connect(name)
    with pytest.raises(RouteUnclear) as unclear:
        boss.resolve(name)
    assert unclear.value.code == "route_ambiguous"
    meant = [boss.resolve(label).target_id for label in unclear.value.labels]
    assert one.id in meant and len(set(meant)) == 2


def test_a_label_goes_before_a_name_that_looks_like_one(broker: MemoryBroker) -> None:
    boss = broker.connect("boss")
    one, other = broker.connect("a", cwd="/src/b"), broker.connect("a.b")
    assert boss.resolve("a.b").target_id == one.id
    assert boss.resolve(boss.resolve(other.id).label).target_id == other.id


def test_who_has_it_is_told_to_stop(broker: MemoryBroker) -> None:
    boss, builder = broker.connect("boss"), broker.connect("builder")
    invocation = boss.invoke("builder", "build")
    task = builder.receive()
    assert task is not None and task.invocation is not None
    task.invocation.update("running")
    assert invocation.cancel("enough") == "running"
    notice = builder.receive()
    assert notice is not None and notice.invocation is not None and notice.invocation.is_cancelled
    assert notice.invocation.update("cancelled") == "cancelled"
    assert [view.state for view in boss.invocations()] == ["cancelled"]
    assert [view.state for view in builder.invocations(as_target=True)] == ["cancelled"]
    assert boss.invocations(as_target=True) == [], "it is not its to do"
    assert boss.invocations(open_only=True) == []
    assert boss.invocations(labels=["release"]) == []
    with pytest.raises(UsageError, match="several texts"):
        boss.invocations(labels="release")
    assert boss.cancel_invocation.__name__ == "cancel_invocation"


def test_a_worker_has_it_as_an_assignment(broker: MemoryBroker) -> None:
    boss, worker = broker.connect("boss"), broker.connect("worker", work_mode="resident")
    invocation = boss.invoke("worker", "build")
    assert invocation.view().placement == "inbox"
    work = worker.claim(worker.inbox().items[0].id)
    assert work.invocation is not None and work.invocation.id == invocation.id
    work.invocation.update("running")
    assert work.accepted
    work.invocation.complete("built")
    assert work.is_over and invocation.result().output == "built"


def test_an_ordinary_message_brings_no_task(broker: MemoryBroker) -> None:
    boss, builder = broker.connect("boss"), broker.connect("builder")
    boss.send("builder", "hi")
    message = builder.receive()
    assert message is not None and message.invocation is None


@pytest.mark.anyio
async def test_tasks_under_anyio(paths: Paths) -> None:
    with anyio.fail_after(3 * PATIENCE_S):
        async with aio.connect("boss", home=paths.home) as boss, aio.connect("builder", home=paths.home) as builder:
            invocation = await boss.invoke("builder", "build", **BESIDE)
            message = await anext(builder.messages())
            assert message.invocation is not None
            assert told_of(message.invocation) == told_of(await invocation.view()) == BESIDE
            with pytest.raises(RunUnfinished):
                await invocation.result(0.05)
            await message.invocation.update("waiting", summary="key")
            async with anyio.create_task_group() as tasks:

                async def end() -> None:
                    assert message.invocation is not None
                    await message.invocation.complete("built")

                tasks.start_soon(end)
                states = [(event.kind, invocation.state) async for event in invocation]
            assert all(kind == "run.updated" for kind, _ in states)
            assert (await invocation.result(PATIENCE_S)).output == "built"
            assert (await boss.resolve("builder")).target_id == builder.id
            assert [view.state for view in await boss.invocations(labels=BESIDE["labels"])] == ["completed"]
            assert await boss.invocations(labels=["another"]) == []


def test_tasks_without_an_event_loop(paths: Paths) -> None:
    with blocking.connect("boss", home=paths.home) as boss, blocking.connect("builder", home=paths.home) as builder:
        invocation = boss.invoke("builder", "build", **BESIDE)
        message = builder.receive(timeout=PATIENCE_S)
        assert message is not None and message.invocation is not None
        assert told_of(message.invocation) == told_of(invocation.view()) == BESIDE
        with pytest.raises(RunUnfinished):
            invocation.result(0.05)
        message.invocation.update("waiting", summary="key")
        with ThreadPoolExecutor(1) as others:
            ending = others.submit(message.invocation.complete, "built")
            kinds = [event.kind for event in invocation]
            assert ending.result() == invocation.state == "completed"
        assert set(kinds) <= {"run.updated"}
        assert invocation.result(PATIENCE_S).output == "built"
        with pytest.raises(RequestRefused) as late:
            invocation.cancel("late")
        assert late.value.code == "run_terminal"
        assert [view.id for view in boss.invocations(labels=BESIDE["labels"][:1])] == [invocation.id]
        assert isinstance(boss.invocation(invocation.id), intercom.InvocationView)
