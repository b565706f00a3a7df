"""Test messages for stages whose run has its owner at another broker (protocol 6.12, 6.13, cluster.md 2 and 4)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.records import RemoteReservation, RemoteRoute
from intercom.limits import RUN_TOLD_BYTES, Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.harness import Client, World, answers, only, reason
from tests.core.runs import CHILD, RUN, asked, decide, group_of, live, member, own, owned, path, possible, stage, worker
from tests.core.test_abroad import QUEUE

LIMITS = Limits()


class Scene:
    """Hold a run whose owner is at ``b``, and a sender at ``a`` who joined the invocation."""

    def __init__(self, **roster: Any) -> None:
        self.cluster = Cluster()
        roster = roster or {"stages": [stage()]}
        self.host = owned(self.cluster["b"], acknowledgesReceipt=True, **roster)
        self.sender = member(self.cluster["a"], acknowledgesReceipt=True)
        self.run()
        self.run(LIMITS.peer_return_ms)
        self.host.got(), self.sender.got()

    def run(self, ms: int = LIMITS.announce_ms) -> None:
        self.cluster.run(ms)

    def live(self, keys: tuple[str, ...] = ("st-1", "reviewer")) -> Client:
        """Let the session of the stage be there."""
        session = worker(self.cluster["b"], acknowledgesReceipt=True)
        live(session, *keys)
        self.run()
        return session

    def send(self, to: str = path("st-1"), message_id: str = "m1", **more: Any) -> list[dict[str, Any]]:
        frames = self.sender.message(to, message_id, **more)
        self.run(0)
        return answers([*frames, *self.sender.got()])

    def told(self) -> list[dict[str, Any]]:
        self.run(0)
        return answers(self.sender.got())

    def rows(self, kind: str = "workflowStages", **members: Any) -> list[dict[str, Any]]:
        listed = only(self.sender.write("list", requestId="l", **members), "sessions")
        found: list[dict[str, Any]] = listed[kind]
        return found


@pytest.mark.parametrize("target", [path("st-1"), path("*"), path("**")])
def test_the_owner_elsewhere_is_asked_and_what_it_says_is_the_answer(target: str) -> None:
    """6.12.4: queued with its position; sent again, its own ledger tells the copy, and the answer is the same."""
    scene = Scene()
    assert scene.send(target) == []
    request = asked(scene.host)
    assert (request["target"], request["from"]["id"], request["from"]["node"]) == (target, scene.sender.id, "a")
    decide(scene.host, request, "queued", position=3)
    answer = only(scene.told())
    assert (answer["type"], answer["target"], answer["position"]) == ("queued", target, 3)
    assert scene.send(target) == []
    decide(scene.host, asked(scene.host), "queued", position=2)
    assert only(scene.told())["position"] == 2


@pytest.mark.parametrize(
    ("outcome", "members", "expected"),
    [
        ("delivered", {}, "delivered"),
        ("refused", {"reason": "no such stage"}, "no such stage"),
        ("refused", {}, reasons.STAGE_REFUSED),
    ],
)
def test_other_decisions_of_the_owner(outcome: str, members: dict[str, str], expected: str) -> None:
    """6.12.4"""
    scene = Scene()
    scene.send()
    decide(scene.host, asked(scene.host), outcome, **members)
    answer = only(scene.told())
    assert expected in (answer["type"], answer.get("reason"))


def test_a_sender_that_knows_no_queued_hears_that_the_queue_of_the_run_has_it() -> None:
    """5.30: older clients drop the connection on frames they do not know."""
    scene = Scene()
    scene.sender = scene.cluster["a"].register("older")
    scene.sender.write("join_group", group=group_of())
    scene.run()
    scene.send()
    decide(scene.host, asked(scene.host), "queued", position=1)
    assert only(scene.told())["type"] == "delivered"


def test_a_live_stage_elsewhere_gets_it_and_answers() -> None:
    """6.12.4 forward, 6.5: an ask by the target; the reply of the session that has it is the answer."""
    scene = Scene()
    session = scene.live()
    assert scene.rows() == [
        {
            "kind": "workflow-stage",
            "runId": RUN,
            "stageId": "st-1",
            "stageName": "reviewer",
            "target": path("st-1"),
            "lifecycle": "running",
            "group": group_of(),
            "sessionId": session.id,
        }
    ]
    assert [stage_of(scene, each) for each in ("st-1", "nobody")] == [session.id, None]
    session.got()
    scene.sender.ask(path("st-1"), "q1", "why?")
    scene.run(0)
    request = asked(scene.host)
    assert request["live"] is True
    decide(scene.host, request, "forward", target=path("st-1"))
    scene.run(0)
    assert [frame["message"]["id"] for frame in session.got() if frame["type"] == "message"] == ["q1"]
    session.write("received", messageId="q1")
    assert only(scene.told())["type"] == "delivered"
    session.reply(scene.sender.id, "r1", "q1", "because")
    scene.run(0)
    [reply] = [frame["message"] for frame in scene.sender.got() if frame["type"] == "message"]
    assert (reply["replyTo"], reply["content"]["text"]) == ("q1", "because")
    scene.sender.write("received", messageId="r1")
    scene.run()
    session.leave()
    scene.run()
    scene.sender.got()
    assert [row["lifecycle"] for row in scene.rows()] == ["pending"]


@pytest.mark.parametrize("spare_ms", [0, 1])
def test_the_time_that_an_owner_elsewhere_takes_counts_for_how_long_a_message_is_valid(spare_ms: int) -> None:
    """9.5.5, 6.13.2: it counts from the send, over the engine and over what the owner takes."""
    scene = Scene()
    session = scene.live()
    session.got()
    scene.sender.message(path("st-1"), "m1", extra={"validFor": 1_000 + spare_ms})
    scene.run(400)
    request = asked(scene.host)
    scene.run(600)
    decide(scene.host, request, "forward", target=path("st-1"))
    scene.run(0)
    assert session.texts() == (["x"] if spare_ms else [])
    if spare_ms:
        session.write("received", messageId="m1")
    assert only(scene.told()).get("reason") == (None if spare_ms else reasons.TOO_LATE)


def stage_of(scene: Scene, stage_id: str) -> str | None:
    """Return the session of a live stage as the other broker is told of it."""
    [route] = [each for each in scene.cluster.nodes["b"].shared.values() if isinstance(each, RemoteRoute)]
    return route.live.get(path(stage_id))


def test_the_rows_of_a_roster_are_shown_everywhere() -> None:
    """6.12.7: stages and possible stages, to those who control the invocation; they go with their owner."""
    scene = Scene(
        stages=[stage()], possibleStages=[possible(path("later", "*"))], parent={"runId": RUN, "stageKeys": []}
    )
    assert [row["lifecycle"] for row in scene.rows()] == ["pending"]
    assert [row["target"] for row in scene.rows("workflowFutureStages")] == [path("later", "*")]
    stranger = scene.cluster["a"].register("stranger")
    assert only(stranger.write("list", requestId="l"), "sessions")["workflowStages"] == []
    own(scene.host, stages=[stage("st-2", "writer")])
    scene.run()
    assert [row["stageId"] for row in scene.rows()] == ["st-2"]
    scene.host.leave()
    scene.run()
    assert scene.rows() == [] == scene.rows("workflowFutureStages")
    assert reason(scene.send()) == reasons.SESSION_NOT_FOUND


def test_the_groups_and_nodes_of_a_run_elsewhere_are_judged_here_too() -> None:
    """6.12.6, 6.12.8, 6.12.9: who is not in the invocation, a node that is no agent, a look into a group of stages."""
    inner = f"{group_of()}/inner"
    scene = Scene(stages=[stage(recipientPurpose="control"), stage("st-2", "inside", group=inner)])
    assert reason(scene.send()) == reasons.NOT_AN_AGENT
    stranger = scene.cluster["a"].register("stranger", returnAddress="ret-stranger")
    scene.run()
    assert reason(answers(stranger.message(path("st-2"), "m2"))) == reasons.DIFFERENT_RUN
    assert asked_nothing(scene.host)
    listed = only(stranger.write("list", requestId="l", group=inner), "sessions")
    assert listed["sessions"] == []


def asked_nothing(owner: Client) -> bool:
    return not [frame for frame in owner.got() if frame["type"] == "pending_stage_message"]


def test_a_nested_run_is_found_by_its_owner_and_one_here_comes_first() -> None:
    """6.12.4: the deepest run with a route; cluster.md 3.1: local first."""
    scene = Scene()
    nested = owned(scene.cluster["b"], CHILD, stages=[])
    own(nested, CHILD, capability="other")
    scene.run()
    near = owned(scene.cluster["a"], stages=[stage()])
    scene.run()
    scene.send(message_id="m1")
    decide(near, asked(near), "delivered")
    assert only(scene.told())["type"] == "delivered" and asked_nothing(scene.host)
    near.leave()
    scene.run()
    assert scene.send(message_id="m2") == []
    asked(scene.host)


@pytest.mark.parametrize("how", ["cut off", "away", "killed"])
def test_an_owner_that_cannot_be_reached_is_said(how: str) -> None:
    """cluster.md 3: what may not wait is refused, retryable, while the engine is away; gone with a broker's lease."""
    scene = Scene()
    if how == "cut off":
        scene.cluster.cut("a", leases_end=False)
        assert reason(scene.send()) == reasons.CLUSTER_UNAVAILABLE
        scene.cluster.join("a")
        assert scene.send() == []
        asked(scene.host)
    else:
        (scene.cluster.cut if how == "away" else scene.cluster.crash)("b")
        scene.run()
        assert scene.rows() == [] and reason(scene.send()) == reasons.SESSION_NOT_FOUND


WAITS = {"extra": {"queueIfAway": True}}


def queueing(scene: Scene) -> Client:
    """Let the sender be one that understands `queued` and lets its messages wait."""
    scene.sender = scene.cluster["a"].register(
        "writer", info={"groups": ["default", group_of()]}, acknowledgesReceipt=True, **QUEUE
    )
    scene.run(2 * LIMITS.announce_ms)
    return scene.sender


def decided(scene: Scene) -> list[str]:
    """Let the owner take whatever it is asked about; return the ids, in order."""
    scene.run(0)
    asked_about = [frame for frame in scene.host.got() if frame["type"] == "pending_stage_message"]
    for request in asked_about:
        decide(scene.host, request, "delivered")
    return [request["message"]["id"] for request in asked_about]


@pytest.mark.parametrize("crashed", [False, True])
def test_what_may_wait_waits_while_the_engine_is_away_and_is_decided_by_the_owner_then(crashed: bool) -> None:
    """cluster.md 3: engine unreachable, `queueIfAway`: answered `queued`; in order, over the death of this broker."""
    scene = Scene(stages=[stage(), stage("st-2", "writer")])
    queueing(scene)
    scene.cluster.cut("a", leases_end=False)
    told = [scene.send(path(target), f"m{n}", **WAITS) for n, target in enumerate(("st-1", "st-2", "*"))]
    assert [(only(each)["type"], only(each)["position"]) for each in told] == [("queued", n) for n in (1, 2, 3)]
    assert only(scene.send(path("st-2"), "m1", **WAITS))["position"] == 2, "sent again it waits where it did"
    assert reason(scene.send(message_id="q", expectsReply=True, **WAITS)) == reasons.CLUSTER_UNAVAILABLE_TO_ASK
    assert reason(scene.send(message_id="n")) == reasons.CLUSTER_UNAVAILABLE
    assert only(scene.send(path("st-1"), "m1", **WAITS))["reasonCode"] == "message_id_conflict"
    if crashed:
        scene.cluster.crash("a")
        queueing(scene)
    else:
        scene.cluster.join("a")
        assert only(scene.send(message_id="m3", **WAITS))["position"] == 4, "behind what waits"
    came: list[str] = []
    for _ in range(4):
        came += decided(scene)
        scene.run()
    assert came == (["m0", "m1", "m2"] if crashed else ["m0", "m1", "m2", "m3"])
    assert scene.cluster["a"].disk.mail == {}
    assert scene.send(message_id="m4", **WAITS) == [] and decided(scene) == ["m4"]
    assert only(scene.told())["type"] == "delivered", "nothing waits any more"
    scene.cluster.cut("b")
    scene.cluster.join("b")
    boxes = scene.cluster["a"].broker._post.boxes.all()
    assert not [box for box in boxes if box.key.startswith("peer:")], "and nobody is there to receive it"


def test_what_waited_and_is_refused_then_is_told_to_its_sender() -> None:
    """cluster.md 3: the owner has gone meanwhile, and its broker says so."""
    scene = Scene()
    queueing(scene)
    scene.cluster.cut("a", leases_end=False)
    assert only(scene.send(**WAITS))["type"] == "queued"
    scene.host.leave()
    scene.cluster.join("a")
    scene.run(LIMITS.peer_return_ms)
    [notice] = [frame["notice"] for frame in scene.sender.got() if "notice" in frame]
    assert (notice["kind"], notice["messageId"]) == ("undeliverable", "m1")
    assert [row for row in scene.cluster["a"].disk.mail.values() if row.message_id == "m1"] == []


def test_what_was_posted_and_lost_with_its_broker_is_posted_again_when_that_is_back() -> None:
    """cluster.md 5: the machine of the owner was away for longer than the engine keeps anything."""
    scene = Scene()
    queueing(scene)
    scene.cluster.cut("a", leases_end=False)
    assert only(scene.send(**WAITS))["type"] == "queued"
    scene.cluster.nodes["b"].is_cut = True
    scene.cluster.join("a")
    scene.cluster.nodes["b"].queue.clear()
    scene.cluster.crash("b")
    scene.host = owned(scene.cluster["b"], acknowledgesReceipt=True, stages=[stage()])
    scene.run()
    came = decided(scene)
    scene.run(2 * LIMITS.peer_return_ms)
    assert came + decided(scene) == ["m1"]
    assert scene.cluster["a"].disk.mail == {}


def test_an_owner_that_is_silent_leaves_it_uncertain_and_the_same_id_may_be_sent_again() -> None:
    """6.12.4, the timer; 6.10.6"""
    scene = Scene()
    scene.send()
    scene.run(LIMITS.receipt_wait_ms)
    assert reason(scene.told()) == reasons.RECEIPT_MISSING
    asked(scene.host)
    assert scene.send() == []
    decide(scene.host, asked(scene.host), "delivered")
    assert only(scene.told())["type"] == "delivered"


def test_a_roster_that_is_too_large_is_not_told_and_its_owner_is_found_all_the_same() -> None:
    """Charge before you link: the engine takes no more than so much."""
    rows = [stage(f"st-{number}", "n" * 200) for number in range(RUN_TOLD_BYTES // 200)]
    scene = Scene(stages=rows)
    assert scene.rows() == []
    assert scene.send() == []
    asked(scene.host)


def test_nobody_speaks_for_another_broker_nor_for_stages_of_another_group() -> None:
    """6.12.2; cluster.md 2"""
    scene = Scene()
    node = scene.cluster.nodes["b"]
    [known] = [each for each in node.shared.values() if isinstance(each, RemoteRoute)]
    assert "cap" not in str(known).replace("capability", "")
    node.shared["routes", "x"] = RemoteRoute(CHILD, IDS["c"], group_of(CHILD))
    wrong = own(scene.host, stages=[])
    assert not answers(wrong)
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    other = member(scene.cluster["a"], "other", CHILD)
    assert reason(answers(other.message(path("st-1", run=CHILD), "m1"))) == reasons.SESSION_NOT_FOUND
    assert not [each for each in node.shared.values() if isinstance(each, RemoteReservation)]


def test_a_run_here_that_announced_nothing_yet_has_nothing_of_the_one_elsewhere() -> None:
    """6.12.3: a roster is what its owner announced."""
    scene = Scene()
    near = owned(scene.cluster["a"])
    scene.run()
    [told] = [each for each in scene.cluster.nodes["a"].shared.values() if isinstance(each, RemoteRoute)]
    assert (told.run_id, told.stages) == (RUN, None)
    own(near, stages=[stage("st-9", "nine")])
    scene.run()
    assert [row["stageId"] for row in scene.rows()] == ["st-9"]


def test_a_broker_that_has_just_started_asks_an_owner_that_is_back_at_once() -> None:
    """6.13.2: what comes for sessions that may return waits; a stage whose owner is here is not such a one."""
    scene = Scene()
    scene.cluster.crash("b")
    host = owned(scene.cluster["b"], stages=[stage()])
    scene.run()
    assert scene.send() == []
    asked(host)


def test_without_a_cluster_nobody_else_is_looked_for() -> None:
    """Off without the setting."""
    world = World()
    owned(world, stages=[stage()]).leave()
    assert reason(answers(member(world).message(path("st-1"), "m1"))) == reasons.SESSION_NOT_FOUND
    world.pass_time(10_000)
    assert world.peer_work == []


def test_the_end_of_an_owner_does_not_end_a_newer_one_at_a_third_broker() -> None:
    """6.12.3: the owner that was told of last is asked; what another one leaves behind is not taken from it."""
    cluster = Cluster("abc")
    older = owned(cluster["b"], acknowledgesReceipt=True, stages=[stage("st-1")])
    cluster.run(LIMITS.announce_ms)
    newer = owned(cluster["c"], acknowledgesReceipt=True, stages=[stage("st-2", "writer")])
    sender = member(cluster["a"], acknowledgesReceipt=True)
    cluster.run(LIMITS.announce_ms)
    older.leave()
    cluster.run(LIMITS.announce_ms)
    listed = only(sender.write("list", requestId="l"), "sessions")
    assert [row["stageId"] for row in listed["workflowStages"]] == ["st-2"]
    sender.message(path("st-2"), "m1")
    cluster.run()
    asked(newer)


def test_a_stage_that_has_just_moved_does_not_see_itself() -> None:
    """6.12.7: the session of the stage is here by now, and the broker of its owner does not know it yet."""
    scene = Scene(stages=[stage(), stage("st-2", "writer")])
    there = scene.live()
    scene.cluster.cut("b", leases_end=False)
    here = worker(scene.cluster["a"], preferredSessionId=there.id)
    here.write("join_group", group=group_of())
    assert here.id == there.id
    listed = only(here.write("list", requestId="l"), "sessions")
    assert [row["stageId"] for row in listed["workflowStages"]] == ["st-2"]
    assert [row["stageId"] for row in scene.rows()] == ["st-1", "st-2"]
