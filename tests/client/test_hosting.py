"""Runs and stages in both shells, against a broker that does what a test says."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.client.queueing import StageAnswer, StageRequest
from intercom.client.rosters import RosterStage
from intercom.client.views import Receipt
from intercom.errors import RunRefused, StageRefused, UsageError
from intercom.paths import Paths
from intercom.wire import reasons
from tests.support.client import PEER
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.hosting import GROUP, NESTED, ROOT, Host
from tests.support.processes import in_child
from tests.support.raw import PATIENCE_S, Frame

ROSTER = [RosterStage(id="st-1", name="reviewer-a")]


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def take_run(link: FakeLink) -> Frame:
    """Take an announcement and return it."""
    announced = link.expect("register_pending_stage_route")
    link.send({"type": "pending_stage_route_registered", "requestId": announced["requestId"]})
    return announced


def take_stage(link: FakeLink) -> Frame:
    asked = link.expect("register_live_workflow_stage_route")
    link.send({"type": "live_workflow_stage_route_registered", "requestId": asked["requestId"]})
    return asked


def ask(link: FakeLink, message_id: str = "w1", run_id: str = ROOT, **members: Any) -> Frame:
    """Ask the host about a message and return its answer."""
    message = {"id": message_id, "timestamp": 1, "content": {"text": "hi"}, **members}
    asked = {"requestId": f"x-{message_id}", "from": PEER, "runId": run_id, "target": f"{GROUP}/st-1"}
    link.send({"type": "pending_stage_message", **asked, "message": message})
    return link.expect("pending_stage_message_result")


def refuse(link: FakeLink, reason: str, **members: Any) -> None:
    link.send({"type": "registration_failed", "reason": reason, **members})


def blocking_host(paths: Paths, **options: Any) -> Any:
    return blocking.connect(home=paths.home, start=False, group=GROUP, purpose="control", **options)


def async_host(paths: Paths, **options: Any) -> aio.Connection:
    return aio.connect(home=paths.home, start=False, group=GROUP, purpose="control", **options)


# --- a run, blocking ------------------------------------------------------------------------------------


def test_a_host_is_asked_during_any_call(paths: Paths) -> None:
    """Protocol 4.16: what is asked while the host waits for something else is answered too."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        listing = link.expect("list")
        assert ask(link)["position"] == 1
        link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": []})
        assert ask(link, "w2")["position"] == 2
        ended = link.expect("register_pending_stage_route")
        assert (ended["stages"], ended["possibleStages"]) == ([], [])
        assert ask(link, "w3")["outcome"] == "refused"

    queue = Host()
    with FakeBroker(paths.socket, script), blocking_host(paths) as session:
        with session.workflow(ROOT, queue, roster=ROSTER, capability="c") as run:
            assert (run.id, run.group, run.capability, run.lost) == (ROOT, GROUP, "c", None)
            assert run.target("reviewer-*") == f"{GROUP}/reviewer-*"
            assert session.list() == []
            assert queue.kept[:1] == ["w1"]
            while len(queue.kept) < 2:
                run.serve(timeout=0.2)
        assert session.receive(timeout=0.2) is None
    assert queue.kept == ["w1", "w2"]


def test_a_host_that_breaks_ends_the_call_that_ran(paths: Paths) -> None:
    class Broken(Host):
        def admit(self, request: StageRequest) -> StageAnswer:
            raise LookupError("a fault of the host")

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        assert ask(link)["reason"].startswith(reasons.STAGE_REFUSED)

    with FakeBroker(paths.socket, script), blocking_host(paths) as session:
        broken = session.workflow(ROOT, Broken())
        with pytest.raises(LookupError, match="a fault"), broken as run:
            run.serve(timeout=PATIENCE_S)


def test_a_queue_cannot_use_the_session_that_asks_it(paths: Paths) -> None:
    class Nested(Host):
        def admit(self, request: StageRequest) -> StageAnswer:
            session.list()
            raise AssertionError("never reached")

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        assert ask(link)["outcome"] == "refused"

    with FakeBroker(paths.socket, script), blocking_host(paths) as session:
        nested = session.workflow(ROOT, Nested())
        with pytest.raises(UsageError, match="stage queue"), nested as run:
            run.serve(timeout=PATIENCE_S)


def test_a_run_that_is_refused(paths: Paths) -> None:
    """Protocol 4.14: the session goes on, under another connection."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        if number == 0:
            link.expect("register_pending_stage_route")
            refuse(link, reasons.ROUTE_NOT_AUTHORIZED)
        else:
            listing = link.expect("list")
            link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": []})

    with FakeBroker(paths.socket, script, connections=2), blocking_host(paths) as session:
        with pytest.raises(RunRefused) as caught, session.workflow(ROOT, Host()):
            pass
        assert caught.value.code == "run_not_authorized"
        assert session.list() == []


def test_a_run_is_entered_once(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        link.expect("register_pending_stage_route")

    with FakeBroker(paths.socket, script), blocking_host(paths) as session:
        run = session.workflow(ROOT, Host())
        with run:
            pass
        with pytest.raises(UsageError, match="once"), run:
            pass
        with pytest.raises(UsageError, match="UUID"):
            session.workflow("run-1", Host())


# --- a run, under a loop --------------------------------------------------------------------------------


class Slow:
    """Keep messages as a host that awaits its disk."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.told: list[tuple[str, ...]] = []
        self.changed = anyio.Event()

    async def admit(self, request: StageRequest) -> StageAnswer:
        await anyio.lowlevel.checkpoint()
        self.kept.append(request.id)
        return StageAnswer.queued(len(self.kept), forward_to=[f"{GROUP}/st-2"])

    async def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        self.told.append(stages)
        self.changed.set()


@pytest.mark.anyio
async def test_a_host_is_asked_in_the_background(paths: Paths) -> None:
    """Protocol 4.16, 5.23 and 4.14."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert [stage["stageId"] for stage in take_run(link)["stages"]] == ["st-1"]
        take_run(link)
        answer = ask(link)
        assert (answer["position"], answer["forwardTargets"]) == (1, [f"{GROUP}/st-2"])
        told = {"runId": ROOT, "messageId": "w1", "target": f"{GROUP}/**", "deliveredTargets": [f"{GROUP}/st-2"]}
        link.send({"type": "sticky_live_delivered", **told})
        changed = take_run(link)
        assert (changed["stages"], len(changed["possibleStages"])) == ([], 1)
        report = link.expect("send_pending_stage_notification")
        assert (report["to"], report["message"]["replyTo"]) == (PEER["id"], "w1")
        link.deliver(report)
        nested, root = (link.expect("register_pending_stage_route") for _ in range(2))
        assert (nested["runId"], root["runId"]) == (NESTED, ROOT)

    queue = Slow()
    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with async_host(paths) as session:
            outer = session.workflow(ROOT, queue, roster=ROSTER)
            async with outer as run, session.workflow(NESTED, Host(), parent=ROOT, boundary=["b"]):
                await queue.changed.wait()
                assert (queue.kept, queue.told) == (["w1"], [(f"{GROUP}/st-2",)])
                await run.announce(roster=(), possible=["reviewer-*"])
                receipt = await run.notify(PEER["id"], "it was cancelled", reply_to="w1", return_address="ret")
                assert receipt.state == "delivered"


@pytest.mark.anyio
async def test_a_host_that_breaks_ends_its_block(paths: Paths) -> None:
    """Whatever the block waits for is cancelled, and the fault comes out as it is."""

    class Broken(Host):
        def admit(self, request: StageRequest) -> StageAnswer:
            raise LookupError("a fault of the host")

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        assert ask(link)["outcome"] == "refused"

    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with async_host(paths) as session:
            with pytest.raises(LookupError, match="a fault"):
                async with session.workflow(ROOT, Broken()):
                    await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_an_exception_of_the_block_stays_what_it_is(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        link.expect("register_pending_stage_route")

    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with async_host(paths) as session:
            with pytest.raises(ZeroDivisionError):
                async with session.workflow(ROOT, Host()):
                    _ = 1 / 0


@pytest.mark.anyio
async def test_a_run_whose_block_is_cancelled(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        link.expect("register_pending_stage_route")

    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with async_host(paths) as session:
            with anyio.CancelScope() as scope:
                async with session.workflow(ROOT, Host()):
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_run_that_was_taken_over(paths: Paths) -> None:
    """Protocol 5.21."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert take_run(link)["dormant"] is True
        link.send({"type": "pending_stage_route_revoked", "runId": ROOT})
        link.wait_for_end()

    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with async_host(paths) as session:
            events = session.events()
            async with session.workflow(ROOT, Host(), dormant=True) as run:
                event = await events.__anext__()
                assert (event.kind, event.run_id, event.reason) == ("run_lost", ROOT, run.lost)


# --- a stage --------------------------------------------------------------------------------------------


def stage_script(link: FakeLink, number: int) -> None:
    """Take a stage on the first connection, and let it leave."""
    registered = link.take_registration()
    if number == 0:
        assert take_stage(link)["stageKeys"] == ["st-1", "reviewer-a"]
        link.wait_for_end()
    else:
        assert registered["preferredSessionId"] == "me"
        assert [frame["type"] for frame in link.wait_for_end()] == ["unregister"]


def test_a_stage_lives_for_a_block(paths: Paths) -> None:
    """Protocol 4.15; the broker forgets a stage only with its session."""
    with (
        FakeBroker(paths.socket, stage_script, connections=2),
        blocking.connect("ada", home=paths.home, start=False, group=GROUP) as session,
    ):
        with session.stage(ROOT, "st-1", "reviewer-a", capability="c") as stage:
            assert stage.lost is None
            with pytest.raises(UsageError, match="already"):
                session.stage(ROOT, "st-2", capability="c")
        assert session.id == "me"


@pytest.mark.anyio
async def test_a_stage_lives_for_a_block_under_a_loop(paths: Paths) -> None:
    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, stage_script, connections=2):
        async with aio.connect("ada", home=paths.home, start=False, group=GROUP) as session:
            async with session.stage(ROOT, "st-1", "reviewer-a", capability="c") as stage:
                assert stage.lost is None
            assert session.id == "me"


def refusing_script(link: FakeLink, number: int) -> None:
    link.take_registration()
    if number == 0:
        link.expect("register_live_workflow_stage_route")
        refuse(link, reasons.LIVE_NO_OWNER, code="owner_missing")
    elif number == 1:
        link.expect("register_live_workflow_stage_route")
        refuse(link, reasons.LIVE_OTHER_CAPABILITY, code="capability_mismatch")
    else:
        listing = link.expect("list")
        link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": []})
        assert [frame["type"] for frame in link.wait_for_end()] == ["unregister"]


def test_a_stage_that_is_refused(paths: Paths) -> None:
    """Protocol 6.12.5: the first refusal may pass and is tried again, the second is told; the session goes on."""
    with (
        FakeBroker(paths.socket, refusing_script, connections=3),
        blocking.connect("ada", home=paths.home, start=False, group=GROUP) as session,
    ):
        with pytest.raises(StageRefused) as caught, session.stage(ROOT, "st-1", capability="c"):
            pass
        assert caught.value.code == "capability_mismatch"
        assert session.list() == []


@pytest.mark.anyio
async def test_a_stage_that_is_refused_under_a_loop(paths: Paths) -> None:
    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, refusing_script, connections=3):
        async with aio.connect("ada", home=paths.home, start=False, group=GROUP) as session:
            with pytest.raises(StageRefused) as caught:
                async with session.stage(ROOT, "st-1", capability="c"):
                    pass
            assert caught.value.code == "capability_mismatch"
            assert await session.list() == []


# --- held sends -----------------------------------------------------------------------------------------


def holding_script(answered: threading.Event) -> Any:
    """Return the script of a broker that holds a message until it is told to deliver it."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        sent = link.expect("send")
        held = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        link.send({"type": "send_held", **held, "timeoutMs": 120_000})
        assert answered.wait(PATIENCE_S)
        link.deliver(sent)
        link.wait_for_end()

    return script


def test_a_held_send_has_an_outcome_later(paths: Paths) -> None:
    """Protocol 5.14."""
    answered = threading.Event()
    with (
        FakeBroker(paths.socket, holding_script(answered)),
        blocking.connect("ada", home=paths.home, start=False) as session,
    ):
        held = session.send("worker", "hi", hold=True)
        assert (held.state, held.held_ms) == ("held", 120_000)
        assert session.outcome(held, timeout=0.01) is held
        answered.set()
        assert session.outcome(held).state == "delivered"
        with pytest.raises(UsageError, match="was held"):
            session.outcome(held)


@pytest.mark.anyio
async def test_a_held_send_has_an_outcome_later_under_a_loop(paths: Paths) -> None:
    answered = threading.Event()
    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, holding_script(answered)):
        async with aio.connect("ada", home=paths.home, start=False) as session:
            held = await session.send("worker", "hi", hold=True)
            assert (held.state, held.held_ms) == ("held", 120_000)
            assert await session.outcome(held, timeout=0.01) is held
            answered.set()
            assert (await session.outcome(held)).state == "delivered"


@pytest.mark.anyio
async def test_a_held_send_is_not_withdrawn_by_its_reader(paths: Paths) -> None:
    """Who stops waiting for the outcome can ask for it again."""
    answered = threading.Event()
    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, holding_script(answered)):
        async with aio.connect("ada", home=paths.home, start=False) as session:
            held = await session.send("worker", "hi", hold=True)
            with anyio.move_on_after(0.01):
                await session.outcome(held)
            answered.set()
            assert (await session.outcome(held)).state == "delivered"


def test_a_send_that_is_not_held_returns_as_ever(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.deliver(link.expect("send"))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), blocking.connect("ada", home=paths.home, start=False) as session:
        assert session.send("worker", "hi", hold=True).state == "delivered"


@pytest.mark.anyio
async def test_an_asker_is_told_that_its_question_is_held(paths: Paths) -> None:
    """Nobody waits for minutes without knowing why."""
    answered = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        sent = link.expect("send")
        held = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        link.send({"type": "send_held", **held, "timeoutMs": 120_000})
        assert answered.wait(PATIENCE_S)
        link.deliver(sent)
        reply = {"id": "r1", "timestamp": 1, "replyTo": sent["message"]["id"], "content": {"text": "yes"}}
        link.send({"type": "message", "from": PEER, "message": reply})
        link.wait_for_end()

    told: list[int | None] = []

    def note(receipt: Receipt) -> None:
        told.append(receipt.held_ms)
        answered.set()

    with anyio.fail_after(3 * PATIENCE_S), FakeBroker(paths.socket, script):
        async with aio.connect("ada", home=paths.home, start=False) as session:
            answer = await session.ask("worker", "?", on_held=note)
    assert (answer.text, told) == ("yes", [120_000])


# --- a forked child -------------------------------------------------------------------------------------


def test_a_forked_child_neither_ends_the_run_nor_leaves_the_stage(paths: Paths) -> None:
    """Both belong to the process that opened the session; leaving the blocks in the child is no goodbye."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        take_run(link)
        take_stage(link)
        listing = link.expect("list")
        link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": []})
        link.wait_for_end()

    def leave(session: Any, run: Any, stage: Any) -> None:
        for call in (lambda: run.serve(timeout=0.01), run.announce, lambda: run.notify("s", "x")):
            with pytest.raises(UsageError, match="process"):
                call()
        stage.__exit__(None, None, None)
        run.__exit__(None, None, None)

    with (
        FakeBroker(paths.socket, script),
        blocking.connect("ada", home=paths.home, start=False, group=GROUP) as session,
    ):
        run = session.workflow(ROOT, Host(), roster=ROSTER)
        run.__enter__()
        stage = session.stage(ROOT, "st-1", capability=run.capability)
        stage.__enter__()
        in_child(lambda: leave(session, run, stage))
        assert session.list() == []
