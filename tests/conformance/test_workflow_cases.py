"""What went wrong for users of stages and of children that are brought back, with a real broker."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking, control, recovery
from intercom.client.rosters import RosterStage
from intercom.client.views import Receipt
from intercom.errors import BrokerError, NotNow, SendError, TargetNotFound
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.hosting import GROUP, ROOT, Router, hosting
from tests.support.raw import PATIENCE_S

ROSTER = [RosterStage(id="st-1", name="reviewer-a"), RosterStage(id="st-2", name="reviewer-b")]


@pytest.fixture
def anyio_backend() -> Any:
    return ("asyncio", {"debug": True})


@pytest.fixture
def paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Give a home in which sessions start brokers themselves, and come back quickly."""
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (20,))
    return Paths(home)


class Broken(Exception):
    """Stand for a fault of a stage."""


def test_a_stage_that_fails_in_the_middle_of_a_message(broker: BrokerProcess) -> None:
    """F95: not called delivered before the stage has finished with it; it comes again under the same id."""
    outcome: list[Any] = []
    with hosting(broker.home, Router(), ROSTER) as run, ExitStack() as stack:
        lead = stack.enter_context(blocking.connect("lead", home=broker.home, group=GROUP))

        def stage(session_id: str | None = None) -> Any:
            return blocking.connect(
                "stage", home=broker.home, group=GROUP, return_address="secret", session_id=session_id
            )

        with (
            pytest.raises(Broken),
            stage() as session,
            session.stage(ROOT, "st-1", "reviewer-a", capability=run.capability),
        ):
            target = run.target("reviewer-a")
            sending = threading.Thread(target=lambda: outcome.append(lead.send(target, "go", timeout=60)))
            sending.start()
            taken = session.receive(timeout=PATIENCE_S)
            assert taken is not None
            raise Broken
        assert not outcome
        with stage(session.id) as session, session.stage(ROOT, "st-1", "reviewer-a", capability=run.capability):
            again = session.receive(timeout=PATIENCE_S)
            assert again is not None
            assert (again.id, again.text) == (taken.id, "go")
            assert session.receive(timeout=0.01) is None
        sending.join(2 * PATIENCE_S)
        assert [receipt.state for receipt in outcome] == ["delivered"]


@pytest.mark.anyio
async def test_a_stage_that_never_starts(paths: Paths) -> None:
    """F96: every sender is told once, although the broker dies in between and one report is repeated."""
    told: dict[str, list[tuple[str | None, str]]] = {name: [] for name in ("a", "b", "c")}

    async def read(session: aio.Session) -> None:
        async for message in session.messages():
            assert message.is_notification
            told[session.name or ""].append((message.reply_to, message.text))

    with anyio.fail_after(6 * PATIENCE_S):
        async with (
            aio.connect(home=paths.home, group=GROUP, purpose="control") as host,
            host.workflow(ROOT, Router(), roster=ROSTER) as run,
            aio.connect("a", home=paths.home, group=GROUP, return_address="ret-a") as a,
            aio.connect("b", home=paths.home, group=GROUP, return_address="ret-b") as b,
            aio.connect("c", home=paths.home, group=GROUP, return_address="ret-c") as c,
            anyio.create_task_group() as reading,
        ):

            async def report(session: aio.Session) -> None:
                """Report until it is taken, as a host does that keeps on disk what it has to report."""
                while True:
                    try:
                        await run.notify(
                            session.id,
                            "the run was cancelled",
                            reply_to=f"to-{session.name}",
                            return_address=f"ret-{session.name}",
                            message_id=f"about-{session.name}",
                        )
                    except (SendError, BrokerError):
                        await anyio.sleep(0.02)
                    else:
                        return

            for session in (a, b, c):
                receipt = await session.send(run.target("reviewer-b"), "x", message_id=f"to-{session.name}")
                assert receipt.state == "queued"
            await run.announce(roster=ROSTER[:1])
            for session in (a, b, c):
                reading.start_soon(read, session)
            await report(a)
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            for session in (b, c, a):
                await report(session)
            reading.cancel_scope.cancel()
    assert told == {name: [(f"to-{name}", "the run was cancelled")] for name in ("a", "b", "c")}


def test_children_of_one_name_stay_with_their_own(broker: BrokerProcess) -> None:
    """F90: two supervisors bring back children of one name; what is held reaches the one of the sender's group."""
    with ExitStack() as stack:

        def opened(name: str, group: str, **options: Any) -> blocking.Session:
            return stack.enter_context(blocking.connect(name, home=broker.home, group=group, **options))

        parents = {group: opened("boss", group) for group in ("left", "right")}
        capabilities = {group: parent.authorize_child("reviewer") for group, parent in parents.items()}
        held = {}
        for group, parent in parents.items():
            parent.reserve_child("reviewer")
            sender = opened("sender", group)
            held[group] = sender, sender.send("reviewer", f"for {group}", hold=True)
        with pytest.raises(TargetNotFound):
            opened("stranger", "elsewhere").send("reviewer", "for whom?", hold=True)
        for group in ("right", "left"):
            child = opened("reviewer", group, supervisor=capabilities[group])
            found = child.receive(timeout=PATIENCE_S)
            assert found is not None
            assert found.text == f"for {group}"
            assert child.receive(timeout=0.01) is None
            sender, receipt = held[group]
            assert sender.outcome(receipt, timeout=PATIENCE_S).state == "delivered"


@pytest.mark.anyio
async def test_places_survive_the_broker(paths: Paths) -> None:
    """F94: the supervisor keeps the place again when it is back, and what was held is sent again and arrives once."""
    with anyio.fail_after(6 * PATIENCE_S):
        async with (
            aio.connect("boss", home=paths.home) as boss,
            aio.connect("lead", home=paths.home) as lead,
        ):
            capability = await boss.authorize_child("reviewer")
            await boss.reserve_child("reviewer")
            held = await lead.send("reviewer", "are you back?", hold=True)
            assert held.state == "held"
            back = boss.events()
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            async for event in back:
                if event.kind == "reconnected":
                    break
            assert await lead.outcome(held, timeout=0.01) is held
            again = await lead.send("reviewer", "and one more", hold=True)
            assert again.state == "held"
            async with aio.connect("reviewer", home=paths.home, supervisor=capability) as child:
                texts = {(await child.receive()).text for _ in range(2)}
                assert texts == {"are you back?", "and one more"}
                with anyio.move_on_after(0.05):
                    await child.receive()
            assert (await lead.outcome(held)).state == (await lead.outcome(again)).state == "delivered"


def test_a_sender_to_a_child_of_an_interrupted_run(broker: BrokerProcess) -> None:
    """Protocol 6.11: refused at once, unless it can wait."""
    with blocking.connect("boss", home=broker.home) as boss, blocking.connect("lead", home=broker.home) as lead:
        boss.authorize_child("reviewer")
        boss.reserve_child("reviewer", dormant=True)
        with pytest.raises(NotNow) as caught:
            lead.send("reviewer", "hello?")
        assert (caught.value.code, caught.value.retry) == ("not_restored", "after")
        assert lead.send("reviewer", "hello?", hold=True).state == "held"


def test_a_question_waits_for_a_child_that_comes_back(broker: BrokerProcess) -> None:
    """Protocol 6.11 and 6.5: the question opens when it is handed over, and is answered by who came back."""
    answers: list[Any] = []
    with ExitStack() as stack:
        boss = stack.enter_context(blocking.connect("boss", home=broker.home))
        lead = stack.enter_context(blocking.connect("lead", home=broker.home))
        capability = boss.authorize_child("reviewer")
        boss.reserve_child("reviewer")
        held: list[Receipt] = []
        waits = threading.Event()

        def noted(receipt: Receipt) -> None:
            held.append(receipt)
            waits.set()

        def ask() -> None:
            answers.append(lead.ask("reviewer", "are you back?", timeout=60, on_held=noted))

        asking = threading.Thread(target=ask)
        asking.start()
        assert waits.wait(PATIENCE_S)
        child = stack.enter_context(blocking.connect("reviewer", home=broker.home, supervisor=capability))
        question = child.receive(timeout=PATIENCE_S)
        assert question is not None and question.expects_reply
        question.reply("yes")
        asking.join(2 * PATIENCE_S)
        assert [answer.text for answer in answers] == ["yes"]
        assert [(receipt.state, receipt.target) for receipt in held] == [("held", "reviewer")]


def test_what_each_attempt_of_a_stage_sees(broker: BrokerProcess) -> None:
    """F99: what a failed attempt had not finished comes again; what came in between is queued; nothing comes twice."""
    outcome: list[Any] = []
    queue = Router()
    with hosting(broker.home, queue, ROSTER) as run, ExitStack() as stack:
        lead = stack.enter_context(blocking.connect("lead", home=broker.home, group=GROUP))
        other = stack.enter_context(blocking.connect("other", home=broker.home, group=GROUP))
        target = run.target("reviewer-a")

        def stage(session_id: str | None = None) -> Any:
            return blocking.connect("stage", home=broker.home, group=GROUP, return_address="s", session_id=session_id)

        with (
            pytest.raises(Broken),
            stage() as session,
            session.stage(ROOT, "st-1", "reviewer-a", capability=run.capability),
        ):
            assert lead_sends(lead, session, target, "finished") == "finished"
            sending = threading.Thread(target=lambda: outcome.append(lead.send(target, "begun", timeout=60)))
            sending.start()
            begun = session.receive(timeout=PATIENCE_S)
            assert begun is not None
            assert begun.text == "begun"
            raise Broken
        between = other.send(target, "in between", message_id="m2")
        assert (between.state, between.position) == ("queued", 1)
        with stage(session.id) as session, session.stage(ROOT, "st-1", "reviewer-a", capability=run.capability):
            assert queue.kept == ["m2"], "what the host has for the first turn"
            again = session.receive(timeout=PATIENCE_S)
            assert again is not None
            assert (again.id, again.text) == (begun.id, "begun")
            assert session.receive(timeout=0.01) is None
        sending.join(2 * PATIENCE_S)
        assert [receipt.state for receipt in outcome] == ["delivered"]


def lead_sends(lead: blocking.Session, session: blocking.Session, target: str, text: str) -> str:
    """Send a message to a stage, and return what the stage got and finished."""
    sending = threading.Thread(target=lambda: lead.send(target, text, timeout=60))
    sending.start()
    found = session.receive(timeout=PATIENCE_S)
    assert found is not None
    assert session.receive(timeout=0.01) is None
    sending.join(2 * PATIENCE_S)
    assert not sending.is_alive()
    return found.text


def test_a_session_that_was_a_stage(broker: BrokerProcess) -> None:
    """Protocol 6.12.5: the aliases go with the session's connection; the session itself goes on under its id."""
    with hosting(broker.home, Router(), ROSTER) as run, ExitStack() as stack:
        lead = stack.enter_context(blocking.connect("lead", home=broker.home, group=GROUP))
        session = stack.enter_context(blocking.connect("worker", home=broker.home, group=GROUP))
        before = session.id
        for _ in range(2):
            with session.stage(ROOT, "st-1", "reviewer-a", capability=run.capability):
                assert [view.state for view in lead.list_stages()] == ["running", "pending"]
                assert lead_sends(lead, session, run.target("reviewer-a"), "to the stage") == "to the stage"
            assert session.id == before
            assert [view.state for view in lead.list_stages()] == ["pending", "pending"]
            assert lead.send(run.target("reviewer-a"), "to nobody yet").state == "queued"
            assert lead_sends(lead, session, "worker", "to the session") == "to the session"
