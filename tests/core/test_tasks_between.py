"""Test invocations between two cores: A3.7 to A3.9 with a broker at each end, and what the authority judges."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.deliveries import delivery_id
from intercom.core.peer_records import RemoteName
from intercom.core.records import Arrived, PeerSeen, Post
from intercom.core.task_letters import FOLLOW, INVOKE, INVOKED, RECALL, RUN
from intercom.core.tasks_in import NOT_KNOWN, TasksIn
from intercom.core.tasks_out import CUT_OFF, TasksOut
from intercom.limits import Limits
from tests.core.cluster import IDS, Cluster, Kept
from tests.core.harness import INFO
from tests.core.invoking import invoke, invoker, run_of, snapshot, task_worker, update
from tests.core.mail import AGENT, Agent, enter, reattach
from tests.core.test_abroad import QUEUE, client
from tests.core.test_homes import holder, send
from tests.core.work import ask

LIMITS = Limits()


class Scene:
    """Hold two brokers, somebody at ``a`` who asks, and a builder at ``b``."""

    def __init__(
        self, *, features: tuple[str, ...] = (), names: str = "ab", limits: Limits = LIMITS, **members: Any
    ) -> None:
        self.cluster = Cluster(names, limits=limits)
        self.asker = invoker(self.cluster["a"])
        if features:
            self.worker = enter(self.cluster["b"], "builder", features=features, **members)
        else:
            self.worker = task_worker(self.cluster["b"], **members)
        self.run(LIMITS.announce_ms)

    def run(self, ms: int = 0) -> None:
        self.cluster.run(ms)

    def invoke(self, *args: Any, **members: Any) -> dict[str, Any]:
        answer = invoke(self.asker, *args, **members)
        self.run()
        return answer

    def update(self, state: str, **texts: Any) -> Any:
        answer = update(self.worker, state, **texts)
        self.run()
        return answer

    @property
    def delivery(self) -> dict[str, Any]:
        [delivery] = snapshot(self.asker)["deliveries"]
        found: dict[str, Any] = delivery
        return found

    @property
    def state(self) -> tuple[str, str]:
        """Return how the run and its delivery are at the broker that was asked."""
        return run_of(self.asker)["state"], self.delivery["status"]

    @property
    def runs_there(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(self.worker, "invocation_list")["invocations"]
        return found

    def posted(self, kind: str) -> list[Post]:
        return [post for post in self.cluster.posts if post.kind == kind]


def close_store(scene: Scene) -> None:
    """Let the store of the authority be lost for the life of its process."""
    world = scene.cluster["b"]
    world.auto = False
    granted = {"features": list(AGENT), "clientProtocolVersion": "1.0", "acknowledgesReceipt": True, "kind": "custom"}
    world.send(world.connect(), type="register", session={**INFO, "name": "other"}, returnAddress="other", **granted)
    world.fail_commit(final=True)
    world.auto = True


def tasks_of(worker: Agent) -> list[str]:
    """Return the texts of the tasks that came, also with the registration; each is confirmed."""
    came = [frame for frame in [*worker.first[1:], *worker.got()] if frame["type"] == "message"]
    worker.first = worker.first[:1]
    found = [frame["message"] for frame in came if frame["message"]["id"].startswith("run:")]
    worker.confirm(*(message["id"] for message in found))
    return [message["content"]["text"] for message in found]


def test_a_task_for_another_machine_is_done_there_and_its_run_is_followed_here() -> None:
    """A2/A3 across brokers: accepted at once, peer_acked, running, completed with the output; every state with it."""
    scene = Scene(features=(*AGENT, "invoke"))
    answer = scene.invoke(context="the roof first", labels=["house"], timeoutMs=60_000)
    assert (answer["state"], answer["targetId"], answer["run"]["placement"]) == ("queued", scene.worker.id, "outbox")
    [frame] = scene.worker.mail()
    assert frame["message"]["content"]["text"] == "build it" and frame["message"]["id"] == f"run:{answer['runId']}"
    assert (frame["from"]["name"], frame["from"]["node"]) == ("asker", "a")
    assert (frame["invocation"]["invocationId"], frame["invocation"]["labels"]) == ("inv-1", ["house"])
    assert scene.state == ("queued", "peer_acked") and scene.delivery["peerRunId"] == answer["runId"]
    scene.worker.confirm(frame["message"]["id"])
    scene.run()
    assert scene.state == ("running", "running")
    scene.update("waiting", summary="needs a key")
    assert (scene.state, run_of(scene.asker)["summary"]) == (("waiting", "running"), "needs a key")
    scene.update("completed", output="built")
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "built")
    assert run_of(scene.worker)["output"] == "built"


def test_labels_with_a_machine_lead_to_who_is_there() -> None:
    """FE 3.4: ``name@node`` and the node dimension pick one; the labels of a diagnosis lead to one each (A3.4)."""
    scene = Scene(names="abc")
    worker = task_worker(scene.cluster["c"])
    scene.run(LIMITS.announce_ms)
    labels = [candidate["label"] for candidate in scene.invoke("builder")["diagnosis"]["candidates"]]
    assert labels == ["@builder.node:b", "@builder.node:c"]
    wordings = [*labels, "builder@b", "Builder@C"]
    found = [ask(scene.asker, "route_resolve", target=wording)["target"]["targetId"] for wording in wordings]
    assert found == [scene.worker.id, worker.id] * 2
    assert scene.invoke("builder@c", "inv-2")["targetId"] == worker.id
    refused = ask(scene.asker, "route_resolve", target="builder@d")["diagnosis"]
    assert (refused["kind"], refused["candidates"]) == ("unknown", [])


def test_an_address_elsewhere_that_nobody_holds_gets_it_when_somebody_does() -> None:
    """FE 3.1, A3.1: accepted whether or not its target is reachable now; the address is the target, wherever it is."""
    scene = Scene()
    depot = holder(scene.cluster, "b", "depot", features=["address", *AGENT, "invoke"])
    held = ask(scene.asker, "route_resolve", target="depot@b")["target"]
    assert held["sessionState"] == "active"
    assert ask(scene.asker, "route_resolve", target=depot.id)["target"] == held, "its session leads to it"
    depot.write("unregister")
    scene.run(2 * LIMITS.announce_ms)
    shown = ask(scene.asker, "route_resolve", target="@depot")["target"]
    assert (shown["sessionState"], shown["node"], shown["scope"]) == ("away", "b", "mesh")
    assert shown["targetId"] == held["targetId"], "the address is the target, held or not"
    assert ask(scene.asker, "route_resolve", target=shown["targetId"])["target"] == shown
    assert ask(scene.worker, "route_resolve", target=shown["targetId"])["target"]["scope"] == "local", (
        "as it is known there"
    )
    answer = scene.invoke("@depot")
    assert scene.state == ("queued", "peer_acked")
    back = holder(scene.cluster, "b", "depot", features=["address", *AGENT, "invoke"])
    [task] = [frame for frame in [*back.first, *back.got()] if frame["type"] == "message"]
    assert task["message"]["id"] == f"run:{answer['runId']}"
    back.write("received", messageId=task["message"]["id"])
    scene.run()
    assert scene.state == ("running", "running")
    stranger = invoker(scene.cluster["a"], "stranger", info={"groups": ["elsewhere"]})
    assert ask(stranger, "route_resolve", target="@depot")["diagnosis"]["kind"] == "unknown"
    assert ask(stranger, "route_resolve", target=shown["targetId"])["diagnosis"]["kind"] in ("unknown", "unparseable")


@pytest.mark.parametrize("wording", ["depot@b", "session id"])
def test_an_address_whose_broker_was_killed_gets_it_when_its_holder_is_back(wording: str) -> None:
    """protocol 6.13.9: its holder has no session there just then, so it waits for the address, whatever was named."""
    scene = Scene()
    features = ["address", *AGENT, "invoke"]
    depot = holder(scene.cluster, "b", "depot", features=features)
    scene.cluster.cut("b", leases_end=False)
    answer = scene.invoke(depot.id if wording == "session id" else wording)
    scene.cluster.crash("b", "renewed")
    assert scene.state == ("queued", "peer_acked")
    back = holder(scene.cluster, "b", "depot", features=features)
    [task] = [frame for frame in [*back.first, *back.got()] if frame["type"] == "message"]
    assert task["message"]["id"] == f"run:{answer['runId']}"
    back.write("received", messageId=task["message"]["id"])
    scene.run()
    assert scene.state == ("running", "running")


def test_a_session_whose_broker_was_killed_gets_it_when_it_is_back() -> None:
    """protocol 6.13.9: one without an address that may come back is waited for, as on its own machine."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.cluster.cut("b", leases_end=False)
    scene.invoke()
    scene.cluster.crash("b", "renewed")
    assert scene.state == ("queued", "peer_acked")
    back = reattach(scene.cluster["b"], scene.worker)
    scene.run()
    assert tasks_of(back) == ["build it"]


@pytest.mark.parametrize("said", ["completed", "failed"])
def test_what_a_worker_reports_after_its_run_was_given_up_counts_where_it_was_asked_for(said: str) -> None:
    """protocol 13.3: who asked learns of it, too; once it is no assumption any more it stays."""
    scene = Scene()
    features = ["address", *AGENT, "invoke"]
    depot = holder(scene.cluster, "b", "depot", features=features)
    scene.invoke("@depot")
    world = scene.cluster["b"]
    [task] = [frame for frame in depot.got() if frame["type"] == "message"]
    depot.write("received", messageId=task["message"]["id"])
    scene.run()
    assert scene.state == ("running", "running")
    depot.leave()
    world.judge(depot.id, is_alive=False)
    scene.run(LIMITS.run_stale_ms)
    scene.run(2 * LIMITS.job_retry_ms)
    assert (scene.state, run_of(scene.asker)["reconciled"]) == (("failed", "failed"), True)
    back = holder(scene.cluster, "b", "depot", features=features)
    assert update(back, said, output="built")["state"] == said
    scene.run()
    run = run_of(scene.asker)
    assert (scene.state, run["output"], run.get("reconciled", False)) == ((said, said), "built", False)
    assert run.get("error") is None


def test_a_worker_with_an_inbox_gets_it_there_and_a_reply_is_the_result() -> None:
    """FE 3.4 Background dispatch: handed to the session as at home; a reply to the task ends the run (13.4)."""
    scene = Scene()
    answer = scene.invoke()
    assert scene.runs_there[0]["state"] == "queued" and scene.state == ("queued", "peer_acked")
    scene.update("running")
    assert scene.state == ("running", "running")
    scene.worker.message(scene.asker.id, "m-1", "it stands", replyTo=f"run:{answer['runId']}")
    scene.run()
    scene.asker.confirm("m-1")
    scene.run()
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "it stands")


def test_a_session_that_is_away_there_gets_it_once_when_it_is_back() -> None:
    """A3.1 across brokers: accepted and a run id at once; the task comes once."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.worker.leave()
    answer = scene.invoke(ensureAwake=True)
    assert "runId" in answer
    back = reattach(scene.worker.world, scene.worker)
    scene.run()
    assert tasks_of(back) == ["build it"]
    scene.run()
    assert scene.state == ("running", "running")


# --- A3.7 to A3.9 ---------------------------------------------------------------------------------------


def test_a_peer_that_is_down_gets_it_at_once_when_it_is_seen() -> None:
    """A3.7: accepted -> deferred with growing nextAttemptAt; after 10 minutes it comes up: sent at once, followed."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.cluster.cut("b", leases_end=False)
    scene.invoke()
    pauses: list[int] = []
    waited = 0
    while waited < 600_000:
        before = scene.delivery.get("nextAttemptAt")
        scene.run(1_000)
        waited += 1_000
        if waited == 30_000:
            scene.cluster.end_leases("b")
        now = scene.delivery.get("nextAttemptAt")
        if now is not None and now != before:
            pauses.append(now - scene.asker.world.wall)
    assert scene.state == ("queued", "deferred") and scene.delivery["failureReason"] == "peer_unreachable"
    early = [pause for pause in pauses if pause < LIMITS.peer_retry_most_ms]
    assert len(early) > 1 and early[0] >= LIMITS.peer_retry_ms - 1_000
    scene.cluster.join("b")
    assert scene.state == ("queued", "peer_acked")
    assert tasks_of(scene.worker) == ["build it"]
    scene.run()
    assert scene.state == ("running", "running") and len(scene.runs_there) == 1


def test_a_peer_that_stays_away_for_the_window_fails_it() -> None:
    """A3.8: down for 30 minutes: delivery failed(peer_unreachable), run failed with the attempt count."""
    scene = Scene()
    scene.cluster.cut("b", leases_end=False)
    scene.invoke()
    scene.cluster.end_leases("b")
    for _ in range(32):
        scene.run(60_000)
    assert scene.state == ("failed", "failed") and scene.delivery["failureReason"] == "peer_unreachable"
    assert "attempts" in run_of(scene.asker)["error"]


@pytest.mark.parametrize("why", ["group", "gone", "conflict"])
def test_an_authority_that_refuses_is_asked_once(why: str) -> None:
    """A3.8, FE 3.4: a peer that refuses, by its own state: failed(peer_rejected) after one attempt."""
    scene = Scene()
    scene.cluster.cut("b", leases_end=False)
    if why == "group":
        scene.worker.write("presence", group="secret")
    elif why == "gone":
        scene.worker.write("unregister")
    else:
        other = invoker(scene.cluster["b"], "other")
        invoke(other, task="another")
    scene.invoke()
    scene.cluster.nodes["b"].is_cut = False
    scene.run()
    scene.run(60_000)
    assert scene.state == ("failed", "failed") and scene.delivery["failureReason"] == "peer_rejected"
    assert len(scene.posted(INVOKE)) == 1


def test_a_policy_that_lets_nothing_through_fails_the_run_there() -> None:
    """Section 3.4: the authority judges policies again, with its own state."""
    scene = Scene(features=(*AGENT, "invoke", "policy"))
    ask(scene.worker, "policy_set", policy={"rules": [{"action": "refuse"}]})
    scene.invoke()
    assert scene.state == ("failed", "failed") and "not handed over" in run_of(scene.asker)["error"]
    assert tasks_of(scene.worker) == []


@pytest.mark.parametrize("crashed", ["a", "b"])
@pytest.mark.parametrize("steps", range(8))
def test_a_broker_that_dies_at_any_point_leaves_one_run_and_its_truth(crashed: str, steps: int) -> None:
    """A3.9: the second forward is answered duplicate, the peer has one run, and the delivery is peer_acked."""
    scene = Scene(features=(*AGENT, "invoke"))
    world = scene.cluster[crashed]
    invoke(scene.asker)
    world.auto = False
    for _ in range(steps):
        for node in scene.cluster.nodes.values():
            node.world.pass_time(0)
            if node.world.reads:
                node.world.read()
            scene.cluster._take_work(node) or scene.cluster._hand_out(node)
        world.commit(1)
    world.auto = True
    scene.cluster.crash(crashed)
    scene.asker = reattach(scene.asker.world, scene.asker) if crashed == "a" else scene.asker
    if crashed == "b":
        scene.worker = reattach(scene.worker.world, scene.worker)
    scene.run(LIMITS.forward_ms + LIMITS.peer_retry_most_ms)
    assert scene.delivery["status"] in ("peer_acked", "running")
    assert set(tasks_of(scene.worker)) == {"build it"}
    scene.run(LIMITS.forward_ms)
    assert scene.state == ("running", "running") and len(scene.runs_there) == 1
    scene.update("completed", output="built")
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "built")


# --- the mirror -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashed", ["a", "b"])
def test_a_report_that_was_lost_is_asked_for_after_a_crash(crashed: str) -> None:
    """Section 4: A asks for a refill from its last one after a gap or a restart."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    tasks_of(scene.worker)
    scene.run()
    update(scene.worker, "completed", output="built")
    for node in scene.cluster.nodes.values():
        node.queue.clear()
        node.world.peer_work.clear()
        node.world.reads.clear()
    assert scene.state == ("running", "running")
    scene.cluster.crash(crashed)
    if crashed == "a":
        scene.asker = reattach(scene.asker.world, scene.asker)
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "built")


def test_a_gap_is_filled_by_asking() -> None:
    """Section 4, FE 3.3 Mirror: with B's sequence; each report names the one before."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    tasks_of(scene.worker)
    scene.run()
    update(scene.worker, "waiting", summary="lost")
    scene.cluster["b"].pass_time(0)
    scene.cluster["b"].read()
    scene.cluster["b"].peer_work.clear()
    scene.update("running", summary="on")
    assert len(scene.posted(FOLLOW)) == 2
    assert (scene.state, run_of(scene.asker)["summary"]) == (("running", "running"), "on")


def test_a_run_that_its_broker_does_not_know_any_more_has_failed() -> None:
    """Section 5, a restored old copy: what is not there any more is said, not waited for."""
    scene = Scene(features=(*AGENT, "invoke"))
    earlier = deepcopy(scene.cluster["b"].disk)
    scene.invoke()
    scene.cluster["b"].disk = earlier
    scene.cluster.crash("b")
    assert scene.state == ("failed", "failed") and run_of(scene.asker)["error"] == NOT_KNOWN


def test_nobody_but_its_peer_has_a_say_in_a_delivery() -> None:
    """FE 3.7: peers may not change what is another's."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    [report] = [{"after": 0, "seq": 99, "run": {"run_id": "x", "state": "completed"}}]
    scene.cluster["a"].peer_told(Arrived(99, IDS["c"], RUN, scene.delivery["deliveryId"], encode(report)))
    assert scene.state == ("queued", "peer_acked")
    recall = encode({"invocation_id": "inv-1", "reason": "no"})
    scene.cluster["b"].peer_told(Arrived(99, IDS["c"], RECALL, scene.delivery["deliveryId"], recall))
    scene.run()
    assert scene.state == ("queued", "peer_acked")


# --- cancel ---------------------------------------------------------------------------------------------


def test_what_nobody_has_there_is_cancelled_there() -> None:
    """FE 3.4 Cancel: nothing handed over: cancelled, and it never comes."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.worker.leave()
    scene.invoke()
    assert ask(scene.asker, "invocation_cancel", invocationId="inv-1", reason="no need")["state"] == "queued"
    scene.run()
    assert scene.state == ("cancelled", "cancelled") and run_of(scene.asker)["error"] == "no need"
    assert tasks_of(reattach(scene.worker.world, scene.worker)) == []


def test_whoever_has_it_there_is_told_once_to_stop() -> None:
    """FE 3.4 Cancel: a cancel notice is sent once, and the run stays until the target reports."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    tasks_of(scene.worker)
    scene.run()
    for _ in range(2):
        ask(scene.asker, "invocation_cancel", invocationId="inv-1", reason="no need")
        scene.run()
    [notice] = scene.worker.mail()
    assert notice["invocation"]["cancelled"] is True and "no need" in notice["message"]["content"]["text"]
    assert scene.state == ("running", "running")
    scene.update("cancelled")
    assert scene.state == ("cancelled", "cancelled")


# --- retries and what is odd ----------------------------------------------------------------------------


def test_every_copy_of_a_letter_is_known_and_answered_with_the_same_run() -> None:
    """Section 4: ids as in FE, so every retry is recognised; also once the run has ended, with its texts."""
    scene = Scene(features=(*AGENT, "invoke"))
    answer = scene.invoke()
    [letter] = scene.posted(INVOKE)
    tasks_of(scene.worker)
    scene.update("completed", output="built")
    node = scene.cluster.nodes["b"]
    node.queue.append(Kept(IDS["a"], INVOKE, letter.delivery_id, letter.body))
    scene.run()
    last = decode(scene.posted(INVOKED)[-1].body)
    assert (last["verdict"], last["run"]["run_id"], last["run"]["output"]) == ("duplicate", answer["runId"], "built")
    assert tasks_of(scene.worker) == [] and len(scene.runs_there) == 1 and node.handed_out == {}
    changed = decode(letter.body) | {"fingerprint": "other"}
    node.queue.append(Kept(IDS["a"], INVOKE, letter.delivery_id, encode(changed)))
    scene.run()
    assert decode(scene.posted(INVOKED)[-1].body)["verdict"] == "refused"


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "another"},
        {"message": {"id": "run:x"}},
        {"invocation_id": "other"},
        {"requester": encode(RemoteName("x", "x", (), "active", "elsewhere"))},
    ],
)
def test_a_letter_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    """FE 3.7: bad input costs nobody else anything."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.cluster.cut("b", leases_end=False)
    scene.invoke()
    [letter] = scene.posted(INVOKE)
    node = scene.cluster.nodes["b"]
    node.queue.clear()
    change = {key: decode(value) if isinstance(value, bytes) else value for key, value in change.items()}
    body = encode(decode(letter.body) | change)
    node.is_cut = False
    node.queue.append(Kept(IDS["a"], INVOKE, letter.delivery_id, body))
    scene.run()
    assert decode(scene.posted(INVOKED)[-1].body)["verdict"] == "refused"
    assert scene.state == ("failed", "failed") and scene.runs_there == []


def test_a_letter_under_the_run_of_another_invocation_is_refused() -> None:
    """FE 3.7: a run is that of one invocation."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    [letter] = scene.posted(INVOKE)
    body = decode(letter.body) | {"invocation_id": "inv-2"}
    identity = body["requester"]["identity"]
    node = scene.cluster.nodes["b"]
    node.queue.append(Kept(IDS["a"], INVOKE, delivery_id(identity, "inv-2", IDS["b"]), encode(body)))
    scene.run()
    answer = decode(scene.posted(INVOKED)[-1].body)
    assert (answer["verdict"], answer["reason"]) == ("refused", "its run is one of another invocation")
    assert len(scene.runs_there) == 1 and scene.state == ("queued", "peer_acked")


def test_a_broker_that_lost_its_store_says_nothing_of_a_run_it_does_not_know() -> None:
    """FE 3.6: that it does not know it may be the fault of the store; who asked asks its successor."""
    scene = Scene()
    scene.invoke()
    world = scene.cluster["b"]
    close_store(scene)
    before = len(scene.posted(RUN))
    scene.cluster.nodes["b"].queue.append(Kept(IDS["a"], FOLLOW, "d1", encode({"invocation_id": "inv-9", "after": 0})))
    scene.run()
    assert len(scene.posted(RUN)) == before and world.broker


def test_a_report_whose_texts_cannot_be_read_is_read_again() -> None:
    """FE 3.3 Mirror: nothing is reported without its text."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    tasks_of(scene.worker)
    scene.run()
    world = scene.cluster["b"]
    world.auto = False
    scene.worker.write(
        "run_update", requestId="1", invocationId="inv-1", updateId="1", state="completed", output="built"
    )
    while not world.reads:
        world.commit()
        world.pass_time(0)
    world.read(fails=True)
    world.auto = True
    scene.run()
    assert scene.state == ("running", "running")
    scene.run(LIMITS.job_retry_ms)
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "built")


@pytest.mark.parametrize("kind", sorted(TasksIn.kinds | TasksOut.kinds))
def test_what_cannot_be_read_is_let_go_of(kind: str) -> None:
    """design section 4: a broken peer costs nobody anything."""
    cluster = Cluster()
    for number, body in enumerate((b"{", b"[]", b'{"attempt":"x"}'), 1):
        cluster.nodes["b"].queue.append(Kept(IDS["a"], kind, f"d{number}", body))
    cluster.run()
    assert cluster.nodes["b"].handed_out == {}


def test_while_nothing_reaches_the_engine_a_task_waits_and_leaves_when_it_can() -> None:
    """Section 3, engine unreachable: what may wait waits in the outbox; nothing is posted that would only pile up."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.cluster.cut("a", leases_end=False)
    scene.invoke()
    assert (scene.delivery["status"], scene.delivery["failureDetail"]) == ("deferred", CUT_OFF)
    assert scene.posted(INVOKE) == [] and scene.cluster.nodes["a"].held == []
    scene.cluster.join("a")
    scene.run(LIMITS.peer_retry_most_ms)
    assert scene.state == ("queued", "peer_acked") and tasks_of(scene.worker) == ["build it"]


def test_one_local_goes_before_others_and_labels_with_the_node_tell_them_apart() -> None:
    """A3.4, FE 3.4: one local candidate wins; two remote ones are told apart by labels that name their machines."""
    cluster = Cluster("abc")
    asker = invoker(cluster["a"])
    for name in "bc":
        task_worker(cluster[name])
    cluster.run(LIMITS.announce_ms)
    diagnosis = invoke(asker)["diagnosis"]
    assert diagnosis["kind"] == "ambiguous"
    labels = [candidate["label"] for candidate in diagnosis["candidates"]]
    assert labels == ["@builder.node:b", "@builder.node:c"]
    for label, name in zip(labels, "bc", strict=True):
        found = ask(asker, "route_resolve", target=label)["target"]
        assert (found["authorityBrokerId"], found["scope"], found["node"]) == (IDS[name], "mesh", name)
    near = task_worker(cluster["a"])
    assert invoke(asker, "@builder", "inv-2")["targetId"] == near.id


def test_a_peer_whose_process_is_another_one_is_asked_again() -> None:
    """FE 3.6: mirror lost: re-opened; also where its lease never ended."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    follows = len(scene.posted(FOLLOW))
    node = scene.cluster.nodes["b"]
    for epoch in (7, 7, 8):
        scene.cluster["a"].peer_told(PeerSeen(IDS["b"], "b", None, tuple(node.names.values()), epoch))
        scene.run()
    assert len(scene.posted(FOLLOW)) == follows + 2


def test_a_reply_ends_the_run_where_its_authority_is() -> None:
    """FE 3.2: the authority over a run is the broker of its target; here it is only mirrored."""
    scene = Scene()
    answer = scene.invoke()
    scene.update("running")
    scene.worker.message(scene.asker.id, "m-1", "it stands", replyTo=f"run:{answer['runId']}")
    scene.run()
    scene.cluster.cut("b", leases_end=False)
    scene.asker.confirm("m-1")
    scene.cluster["b"].peer_work.clear()
    assert scene.state == ("running", "running")


def test_a_report_has_the_texts_also_of_what_is_still_being_recorded() -> None:
    """design section 4: texts are read up to what was committed when they were asked for."""
    scene = Scene(features=(*AGENT, "invoke"))
    scene.invoke()
    tasks_of(scene.worker)
    scene.run()
    world = scene.cluster["b"]
    world.auto = False
    scene.worker.write("run_update", requestId="1", invocationId="inv-1", updateId="1", state="waiting")
    world.pass_time(0)
    scene.worker.write(
        "run_update", requestId="2", invocationId="inv-1", updateId="2", state="completed", output="built"
    )
    world.commit(1)
    world.read()
    world.commit()
    world.auto = True
    scene.run()
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "built")


@pytest.mark.parametrize("why", ["full", "closed", "leaving"])
def test_an_authority_that_cannot_take_it_now_is_asked_again(why: str) -> None:
    """FE 3.3: what may pass is no refusal: deferred, and tried again."""
    scene = Scene(features=(*AGENT, "invoke"), limits=replace(LIMITS, invocations=1))
    world = scene.cluster["b"]
    if why == "full":
        assert "runId" in invoke(invoker(world, "other"), invocation_id="inv-0")
    elif why == "closed":
        close_store(scene)
    else:
        world.broker._invoking.shut(60_000)
    scene.invoke()
    expected = {"full": "open there", "closed": "store", "leaving": "about to leave"}[why]
    assert scene.state == ("queued", "deferred") and expected in scene.delivery["failureDetail"]
    if why == "full":
        update(scene.worker, "completed", "inv-0", output="done")
        scene.run(LIMITS.peer_retry_most_ms)
        assert scene.delivery["status"] == "peer_acked"


def test_the_key_of_an_address_at_home_elsewhere_names_nobody_here() -> None:
    """FE 3.2: its keys are those of its own broker; its label leads to it"""
    scene = Scene(features=(*AGENT, "invoke"))
    holder(scene.cluster, "b", "depot").leave()
    scene.run(2 * LIMITS.announce_ms)
    near = client(scene.cluster, "a", "near", **QUEUE)
    assert send(scene.cluster, near, "m1", "depot") == "queued"
    [address] = scene.cluster["a"].broker._registry.addresses
    assert "diagnosis" in invoke(scene.asker, address.key, invocation_id="inv-2")


def test_a_broker_that_is_not_the_authority_says_who_is() -> None:
    """FE 3.4 Receive from a peer: refused ``not_authority``, naming the owner; nothing is passed on."""
    scene = Scene(features=(*AGENT, "invoke"), names="abc")
    third = task_worker(scene.cluster["c"], "third")
    scene.run(LIMITS.announce_ms)
    scene.cluster.cut("b", leases_end=False)
    scene.invoke()
    [letter] = scene.posted(INVOKE)
    node = scene.cluster.nodes["b"]
    node.queue.clear()
    node.is_cut = False
    body = encode(decode(letter.body) | {"to": third.id})
    node.queue.append(Kept(IDS["a"], INVOKE, letter.delivery_id, body))
    scene.run()
    assert scene.state == ("failed", "failed")
    assert f"not_authority: broker {IDS['c']}" in run_of(scene.asker)["error"]


def come_unrecorded(scene: Scene) -> None:
    """Let the broker of the worker record one thing more, which has nothing to do with any task."""
    world = scene.cluster["b"]
    granted = {"features": list(AGENT), "clientProtocolVersion": "1.0", "acknowledgesReceipt": True, "kind": "custom"}
    world.send(world.connect(), type="register", session={**INFO, "name": "other"}, returnAddress="other", **granted)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_report_that_rested_on_an_append_that_failed_is_made_once_more(is_read: bool) -> None:
    """FE 3.3 Mirror, design 3.6: the end of the run is recorded, what came after it is not; nobody would ask again."""
    scene = Scene()
    scene.invoke()
    world = scene.cluster["b"]
    world.auto = False
    scene.worker.write("run_update", invocationId="inv-1", updateId="u", requestId="r", state="completed", output="o")
    if is_read:
        world.pass_time(0)
        world.commit(len(world.appends))
        assert world.reads, "its text is asked for once it is recorded"
        come_unrecorded(scene)
        world.read()
    else:
        come_unrecorded(scene)
        world.pass_time(0)
        world.commit(1)
    assert scene.state == ("queued", "peer_acked")
    world.fail_commit()
    world.auto = True
    scene.run()
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "o")


def test_a_report_that_a_lost_store_kept_back_is_made_by_the_next_process() -> None:
    """FE 3.6: the end of the run is on the disk; what can be recorded no more numbers no report either."""
    scene = Scene()
    scene.invoke()
    world = scene.cluster["b"]
    world.auto = False
    scene.worker.write("run_update", invocationId="inv-1", updateId="u", requestId="r", state="completed", output="o")
    come_unrecorded(scene)
    world.pass_time(0)
    world.commit(1)
    reports = len(scene.posted(RUN))
    world.fail_commit(final=True)
    world.auto = True
    scene.run(LIMITS.job_lease_ms)
    assert (len(scene.posted(RUN)), scene.state) == (reports, ("queued", "peer_acked"))
    scene.cluster.crash("b")
    scene.run()
    assert (scene.state, run_of(scene.asker)["output"]) == (("completed", "completed"), "o")


def test_what_could_not_be_recorded_is_not_said_to_be_known() -> None:
    """FE 3.2, 3.3: a second attempt that came before the first was recorded is judged anew when that fails."""
    scene = Scene(features=(*AGENT, "invoke"))
    world = scene.cluster["b"]
    world.auto = False
    scene.invoke()
    scene.run(LIMITS.forward_ms)
    scene.run(LIMITS.peer_retry_most_ms)
    assert len(scene.posted(INVOKE)) >= 2 and scene.posted(INVOKED) == []
    world.fail_commit()
    scene.run()
    assert scene.posted(INVOKED) == []
    world.auto = True
    for _ in range(4):
        scene.run(LIMITS.peer_retry_most_ms)
    assert tasks_of(scene.worker) == ["build it"] and len(scene.runs_there) == 1
