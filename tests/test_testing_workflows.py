"""Workflows in memory: hosts, stages, held messages and children that come back, without a second of waiting."""

from __future__ import annotations

import pytest

from intercom.client import commands
from intercom.client.queueing import StageAnswer, StageRequest
from intercom.client.rosters import RosterStage
from intercom.errors import NotNow, RunRefused, SendRefused, StageRefused, UsageError
from intercom.limits import STAGE_LIVE_MS, STAGE_RETRY_MS, STAGE_RETURN_MS
from intercom.testing import MemoryBroker, MemorySession
from tests.support.hosting import GROUP, NESTED, ROOT, Host, Router

ROSTER = [RosterStage(id="st-1", name="reviewer-a"), RosterStage(id="st-2", name="reviewer-b")]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def host(broker: MemoryBroker) -> MemorySession:
    return broker.connect(group=GROUP, purpose="control")


@pytest.fixture
def lead(broker: MemoryBroker) -> MemorySession:
    return broker.connect("lead", group=GROUP)


def texts(session: MemorySession) -> list[str]:
    return [message.text for message in session.messages()]


def test_a_whole_workflow(broker: MemoryBroker, host: MemorySession, lead: MemorySession) -> None:
    """Protocol 6.12: asked in vain, queued, live, answered, a broadcast, a report, the end."""
    queue = Router()
    with host.workflow(ROOT, queue, roster=ROSTER, possible=["extra-*"], capability="cap") as run:
        assert (run.id, run.group, run.capability, run.lost) == (ROOT, GROUP, "cap", None)
        assert [stage.state for stage in lead.list_stages()] == ["pending", "pending", "possible"]
        with pytest.raises(SendRefused) as refused:
            lead.ask(run.target("reviewer-a"), "ready?").result()
        assert refused.value.code == "stage_ask"
        receipt = lead.send(run.target("reviewer-a"), "first", message_id="m1").result()
        assert (receipt.state, receipt.position) == ("queued", 1)

        stage = broker.connect("stage", group=GROUP)
        with stage.stage(ROOT, "st-1", "reviewer-a", capability=run.capability) as live:
            assert live.lost is None
            assert [view.state for view in lead.list_stages("workflow:" + ROOT)] == ["running", "pending", "possible"]
            question = lead.ask(run.target("reviewer-a"), "and now?")
            for message in stage.messages():
                message.reply("yes")
            assert question.result().text == "yes"
            queue.running = [run.target("st-1")]
            assert lead.send(run.target("**"), "stop", message_id="m2").result().state == "queued"
            assert texts(stage) == ["stop"]
            run.serve(timeout=1)
            assert queue.told == [("m2", (run.target("st-1"),))]
        assert [view.state for view in lead.list_stages()] == ["pending", "pending", "possible"]

        report = run.notify(lead.id, "it was read", reply_to="m1", message_id="n1")
        [told] = lead.messages()
        assert (told.is_notification, told.reply_to, told.text) == (True, "m1", "it was read")
        assert report.result().state == "delivered"
        run.announce(roster=(), possible=())
        assert lead.list_stages() == []
    with pytest.raises(SendRefused):
        lead.send(run.target("reviewer-a"), "too late").result()


def test_runs_and_stages_survive_the_broker(broker: MemoryBroker, host: MemorySession, lead: MemorySession) -> None:
    """F94: announced again, in whatever order they come back."""
    stage = broker.connect("stage", group=GROUP)
    nested = [RosterStage(id="st-9", name="checker")]
    with (
        host.workflow(ROOT, Router(), roster=ROSTER) as run,
        host.workflow(NESTED, Router(), roster=nested, parent=ROOT, boundary=["child"]) as below,
        stage.stage(NESTED, "st-9", "checker", capability=below.capability),
    ):
        for _ in range(2):
            broker.restart()
            broker.advance(STAGE_RETURN_MS)
            assert {view.target: view.state for view in lead.list_stages()} == {
                run.target("st-1"): "pending",
                run.target("st-2"): "pending",
                below.target("st-9"): "running",
            }
            sent = lead.send(below.target("checker"), "still there?")
            assert texts(stage) == ["still there?"]
            assert sent.result().state == "delivered"


def test_a_stage_that_waits_for_its_host(broker: MemoryBroker, host: MemorySession) -> None:
    """Protocol 5.29: owner_missing passes by itself, or is told when time is up."""
    stage = broker.connect("stage", group=GROUP)
    before = broker.now.mono
    waiting = stage.stage(ROOT, "st-1", capability="cap")
    with pytest.raises(StageRefused) as refused, waiting:
        pass
    assert refused.value.code == "owner_missing"
    assert broker.now.mono - before == STAGE_LIVE_MS
    broker.advance(STAGE_RETRY_MS)
    with host.workflow(ROOT, Router(), roster=ROSTER, capability="cap"):
        with stage.stage(ROOT, "st-1", capability="cap") as live:
            assert live.lost is None
        with pytest.raises(StageRefused) as refused, stage.stage(ROOT, "st-1", capability="other"):
            pass
        assert refused.value.code == "capability_mismatch"


def test_every_refusal_to_go_live(broker: MemoryBroker, host: MemorySession) -> None:
    """Protocol 6.12.5: by the broker's own word; what cannot be wrong in this client is refused before."""
    roster = [*ROSTER, RosterStage(id="st-3", name="script", agent=False)]
    stage, other = broker.connect("stage", group=GROUP), broker.connect("other", group=GROUP)
    stranger = broker.connect("stranger", group="default")
    control = broker.connect(group=GROUP, purpose="control")
    with host.workflow(ROOT, Router(), roster=roster, capability="cap"):
        with stage.stage(ROOT, "st-1", "reviewer-a", capability="cap"):
            for session, key, code in [
                (other, "st-1", "duplicate_live_owner"),
                (other, "st-3", "non_agent_stage_key"),
                (stranger, "st-2", "group_mismatch"),
            ]:
                with pytest.raises(StageRefused) as refused, session.stage(ROOT, key, capability="cap", timeout=1):
                    pass
                assert refused.value.code == code
        for session, key in [(other, "a/b"), (control, "st-1")]:
            with pytest.raises(UsageError):
                session.stage(ROOT, key, capability="cap")


def test_a_run_has_one_owner(broker: MemoryBroker, host: MemorySession) -> None:
    """Protocol 4.14 and 6.12.3: refused, unless the other one is dormant and the capability is another."""
    second = broker.connect(group=GROUP, purpose="control")
    with host.workflow(ROOT, Router(), roster=ROSTER, capability="cap") as run:
        with pytest.raises(RunRefused) as refused, second.workflow(ROOT, Router(), capability="another"):
            pass
        assert refused.value.code == "run_not_authorized"
        assert second.online and run.lost is None
    third = broker.connect(group=f"workflow:{NESTED}", purpose="control")
    with third.workflow(NESTED, Router(), capability="cap", dormant=True) as dormant:
        fourth = broker.connect(group=f"workflow:{NESTED}", purpose="control")
        with fourth.workflow(NESTED, Router(), capability="another") as resumed:
            assert dormant.lost and resumed.lost is None
        third.cut()
        broker.advance(1_000)
        assert third.online, "it does not announce again what is another's"


def test_a_run_is_entered_once(host: MemorySession) -> None:
    run = host.workflow(ROOT, Router())
    with run:
        pass
    with pytest.raises(UsageError, match="once"), run:
        pass


def test_a_host_that_breaks(host: MemorySession, lead: MemorySession) -> None:
    class Broken(Host):
        def admit(self, request: StageRequest) -> StageAnswer:
            raise LookupError("a fault of the host")

    with host.workflow(ROOT, Broken(), roster=ROSTER) as run:
        with pytest.raises(LookupError, match="a fault"):
            lead.send(run.target("reviewer-a"), "hi", message_id="m1")
        lead.receive()
        assert lead.list_stages() != []


def test_a_child_that_is_brought_back(broker: MemoryBroker, lead: MemorySession) -> None:
    """Protocol 6.11: held in the order of arrival, handed over once, or failed with the owner's words."""
    boss = broker.connect("boss", group=GROUP)
    boss._now(commands.authorize_child(boss._core.profile, "reviewer", now=broker.now.mono))
    boss.reserve_child("reviewer")
    sent = lead.send("reviewer", "are you back?", hold=True)
    assert not sent.done
    assert sent.held is not None and sent.held.state == "held"
    assert lead.outcome(sent.held, timeout=1) is sent.held
    boss.release_child("reviewer", gone="it was cancelled")
    with pytest.raises(SendRefused, match="it was cancelled"):
        lead.outcome(sent.held)
    boss.reserve_child("reviewer")
    late = lead.send("reviewer", "and now?", hold=True)
    assert late.held is not None and late.held.held_ms is not None
    broker.advance(late.held.held_ms)
    assert isinstance(late.error, NotNow)
    assert lead.send("lead2", "x", hold=True).held is None
    told: list[str] = []
    boss.reserve_child("reviewer")
    lead.ask("reviewer", "and this?", on_held=lambda receipt: told.append(receipt.state))
    assert told == ["held"]
