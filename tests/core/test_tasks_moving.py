"""Test that tasks follow the address they are for: whoever asked, wherever it moves, and whatever fails (13.7)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.records import Mirrored, Post, RemoteRun
from intercom.core.task_letters import INVOKE
from intercom.core.tasks_out import CUT_OFF
from intercom.limits import Limits
from intercom.wire import notices
from tests.core.cluster import IDS, Cluster, Node
from tests.core.flows_between import Between
from tests.core.harness import World
from tests.core.invoking import invoke, invoker, run_of, snapshot, tasks, update
from tests.core.mail import AGENT, Agent, enter
from tests.core.test_homes import asker as sender_at
from tests.core.test_homes import claim, send, traced
from tests.core.work import WORKER, ask, begin, items, reply, report, worker

LIMITS = Limits()
TOKEN = "t" * 64
TASKS = (*AGENT, "invoke")
WORK = (*WORKER, "address", "invoke")


class Scene:
    """Hold three brokers, an address ``depot`` at home at ``a``, and somebody at ``by`` who asks.

    Where ``is_late``, that broker is cut off meanwhile.
    """

    def __init__(
        self,
        by: str = "a",
        *,
        features: tuple[str, ...] = TASKS,
        is_late: bool = False,
        limits: Limits = LIMITS,
        **members: Any,
    ) -> None:
        self.cluster = Cluster("abc", limits=limits)
        if is_late:
            self.cluster.cut(by)
        self.by = by
        self.asker = invoker(self.cluster[by])
        self.token = self.asker.token
        self.depot = self.hold("a", features=features, **members)

    def run(self, ms: int = 0) -> None:
        self.cluster.run(ms)

    def hold(self, broker: str, *, features: tuple[str, ...] = TASKS, hold: str = "take", **members: Any) -> Agent:
        """Let somebody register under the address at a broker, once everybody knows."""
        world: World = self.cluster[broker]
        address = {"name": "depot", "token": TOKEN, "hold": hold}
        info = {"name": "depot"} if hold != "none" else {}
        conn = world.connect()
        registered = world.send(
            conn,
            type="register",
            session={"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1, **info},
            returnAddress=f"return-{broker}-{conn}",
            acknowledgesReceipt=True,
            features=list(features),
            clientProtocolVersion="1.0",
            kind="custom",
            address=address,
            **members,
        )
        self.run()
        registered += world.got(conn)
        [first] = [frame for frame in registered if frame["type"].startswith("registered")]
        rest = [frame for frame in registered if frame is not first]
        found = Agent(world, conn, first["sessionId"], [first, *rest])
        self.run(LIMITS.announce_ms)
        self.run(LIMITS.mail_retry_ms)
        return found

    def leave(self) -> None:
        self.depot.leave()
        self.run(2 * LIMITS.announce_ms)

    def ask(self, invocation_id: str = "inv-1", **members: Any) -> dict[str, Any]:
        answer = invoke(self.asker, "@depot", invocation_id, **members)
        self.run()
        assert "runId" in answer, answer
        return answer

    def asker_is_back(self) -> None:
        """Register again after the broker of whoever asked was killed."""
        conn = self.cluster[self.by].connect()
        answers = self.cluster[self.by].send(
            conn, type="session_reattach", requestId="r", sessionId=self.asker.id, ownerToken=self.token
        )
        assert answers[0]["type"] == "session_reattached", answers
        self.asker = Agent(self.cluster[self.by], conn, self.asker.id, answers)

    def state(self, invocation_id: str = "inv-1") -> str:
        return str(run_of(self.asker, invocation_id)["state"])

    def is_done_at(self, worker: Agent, invocation_id: str = "inv-1") -> None:
        """Let a holder that has the task report on it, and see the run end where it was asked for."""
        self.run()
        assert self.state(invocation_id) == "running"
        assert update(worker, "completed", invocation_id, output="built")["state"] == "completed"
        self.run()
        run = run_of(self.asker, invocation_id)
        assert (run["state"], run["output"]) == ("completed", "built")

    def nothing_is_left(self) -> None:
        for node in self.cluster.nodes.values():
            world = node.world
            assert not world.disk.mail and not world.disk.inbox, f"something waits at {node.name}"
            assert not node.handed_out and not node.queue, "something is not settled"


def texts(worker: Agent) -> list[str]:
    return [frame["message"]["content"]["text"] for frame in tasks(worker)]


@pytest.mark.parametrize("by", ["a", "b", "c"])
def test_a_task_that_waits_in_the_mailbox_moves_with_it(by: str) -> None:
    """13.7: asked for on the old machine, the new one, or a third; the new holder is told that it is a task."""
    scene = Scene(by)
    scene.leave()
    answer = scene.ask()
    there = scene.hold("b")
    [task] = tasks(there)
    assert task["message"]["id"] == f"run:{answer['runId']}" and task["invocation"]["invocationId"] == "inv-1"
    scene.is_done_at(there)
    scene.nothing_is_left()
    scene.run(60_000)
    assert tasks(there) == []


@pytest.mark.parametrize("by", ["a", "b", "c"])
def test_a_task_that_was_shown_and_not_confirmed_moves(by: str) -> None:
    """13.3: who has not confirmed it has not taken it; whoever holds the address next is given it."""
    scene = Scene(by)
    scene.ask()
    assert [frame["type"] for frame in scene.depot.mail()] == ["message"]
    there = scene.hold("b")
    assert texts(there) == ["build it"]
    scene.is_done_at(there)
    scene.nothing_is_left()


@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_task_that_waits_in_the_inbox_moves(by: str, is_pushed: bool) -> None:
    """10.2.1, 10.4.1: parked, or assigned and not accepted; the new holder takes it out of the inbox there."""
    scene = Scene(by, features=WORK, workMode="resident")
    scene.ask()
    if is_pushed:
        begin(scene.depot, "inbox_claim", inboxId=items(scene.depot)[0]["inboxId"])
    there = scene.hold("b", features=WORK, workMode="resident")
    [frame] = [each for each in [*there.first, *there.mail()] if each["type"] == "message"] or [None]
    if frame is not None:
        there.confirm(frame["message"]["id"])
    else:
        granted = ask(there, "inbox_claim", inboxId=items(there)[0]["inboxId"])
        report(there, granted["assignment"], "accepted")
    scene.is_done_at(there)
    scene.nothing_is_left()


def test_mail_and_tasks_keep_their_order() -> None:
    """13.7: what moves arrives in the order of its mailbox, messages and tasks alike."""
    scene = Scene("a")
    scene.leave()
    near, far = sender_at(scene.cluster, "a", "near"), invoker(scene.cluster["b"], "far")
    for number in range(1, 6):
        assert send(scene.cluster, near, f"m{number}", "depot") == "queued"
        scene.ask(f"t{number}", task=f"t{number}")
        if number == 3:
            invoke(far, "@depot", "t3b", task="t3b")
            scene.run()
    there = scene.hold("b")
    shown = [frame for frame in [*there.first, *there.got()] if frame["type"] == "message"]
    wanted = [each for number in range(1, 6) for each in (f"m{number}", f"t{number}")]
    assert [frame["message"]["content"]["text"] for frame in shown if "t3b" not in str(frame)] == wanted
    assert any("t3b" in str(frame) for frame in shown)


@pytest.mark.parametrize("by", ["a", "b", "c"])
def test_a_task_that_was_taken_stays_with_whoever_took_it(by: str) -> None:
    """FE 1.3, 13.3: it is shown to nobody else, and who acts under the address on that machine reports on it."""
    scene = Scene(by)
    scene.ask()
    assert texts(scene.depot) == ["build it"]
    there = scene.hold("b")
    assert texts(there) == []
    assert ask(there, "invocation_list", asTarget=True)["invocations"] == []
    helper = scene.hold("a", hold="none")
    scene.run(2 * LIMITS.run_stale_ms)
    assert scene.state() == "running", "somebody is there who may know"
    scene.is_done_at(helper)


@pytest.mark.parametrize("by", ["a", "b", "c"])
def test_a_task_whose_worker_lost_its_address_to_another_machine_does_not_stay_open(by: str) -> None:
    """13.3: the broker assumes after a while that nobody does it; a report that comes after all counts."""
    scene = Scene(by)
    scene.ask()
    assert texts(scene.depot) == ["build it"]
    scene.hold("b")
    assert scene.state() == "running"
    scene.run(LIMITS.run_stale_ms)
    scene.run(2 * LIMITS.job_retry_ms)
    scene.run()
    run = run_of(scene.asker)
    assert (run["state"], run["reconciled"]) == ("failed", True)
    assert update(scene.hold("a", hold="none"), "completed", output="built")["state"] == "completed"
    scene.run()
    assert scene.state() == "completed"


@pytest.mark.parametrize("by", ["a", "b", "c"])
def test_an_assignment_that_was_accepted_ends_with_the_session_that_accepted_it(by: str) -> None:
    """FE 1.3: accepted, and its session closed: interrupted, and it is not known how far it came."""
    scene = Scene(by, features=WORK, workMode="resident")
    scene.ask()
    granted = ask(scene.depot, "inbox_claim", inboxId=items(scene.depot)[0]["inboxId"])
    report(scene.depot, granted["assignment"], "accepted")
    scene.run()
    assert scene.state() == "running"
    there = scene.hold("b", features=WORK, workMode="resident")
    assert texts(there) == [] and items(there) == []
    run = run_of(scene.asker)
    assert (run["state"], run["reconciled"]) == ("failed", True) and "how far" in run["error"]
    scene.nothing_is_left()


def test_what_is_parked_for_an_address_that_is_no_task_moves_too() -> None:
    """10.2.1: it is as good as mail of the address; its sender learns that somebody got it."""
    scene = Scene("a", features=WORK, workMode="resident")
    near = sender_at(scene.cluster, "a", "near")
    assert send(scene.cluster, near, "m1", "depot") == "queued"
    assert len(items(scene.depot)) == 1
    there = scene.hold("b", features=WORK, workMode="resident")
    [item] = items(there)
    granted = ask(there, "inbox_claim", inboxId=item["inboxId"])
    assert granted["message"]["content"]["text"] == "m1"
    assert traced(near, "m1")[0] == "handed_on"
    assert not scene.cluster["a"].disk.inbox and not scene.cluster["a"].disk.mail


@pytest.mark.parametrize("killed", ["a", "b", "c"])
@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("steps", [2, 3, 4, 6])
def test_a_broker_that_is_killed_on_the_way(by: str, killed: str, steps: int) -> None:
    """13.7: at any moment of the move; the task is shown once to whoever holds the address in the end."""
    scene = Scene(by)
    scene.leave()
    scene.ask()
    cluster = scene.cluster
    conn = cluster["b"].connect()
    address = {"name": "depot", "token": TOKEN}
    info = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1, "name": "depot"}
    members = {"returnAddress": "return-b", "features": list(TASKS), "clientProtocolVersion": "1.0", "kind": "custom"}
    cluster["b"].send(conn, type="register", session=info, acknowledgesReceipt=True, address=address, **members)
    lease: Any = ("expired", "renewed", "given back")[steps % 3]
    for _ in range(steps):
        for node in cluster.nodes.values():
            node.world.pass_time(0)
            while node.world.reads:
                node.world.read()
            cluster._take_work(node)
            cluster._hand_out(node)
    cluster.crash(killed, lease)
    if killed == by:
        scene.asker_is_back()
    scene.run(LIMITS.announce_ms)
    there = scene.hold("b")
    for _ in range(12):
        scene.run(LIMITS.forward_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)
    for _ in range(3):
        scene.run(LIMITS.peer_retry_most_ms)
    assert texts(there) == []
    scene.nothing_is_left()


def test_a_task_on_its_way_that_cannot_leave_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """13.7: what never left is not waited for; it is known at once that it has reached nobody."""
    scene = Scene("a")
    scene.leave()
    scene.ask()
    cluster, bring = scene.cluster, scene.cluster.post

    def bring_and_break(node: Node, post: Post) -> None:
        bring(node, post)
        if post.kind == INVOKE:
            cluster.cut("a", leases_end=False)

    monkeypatch.setattr(cluster, "post", bring_and_break)
    scene.hold("b")
    for _ in range(2):
        scene.run(LIMITS.forward_ms)
    [delivery] = snapshot(scene.asker)["deliveries"]
    assert (delivery["attempts"], delivery["failureDetail"]) == (2, CUT_OFF)


@pytest.mark.parametrize("by", ["a", "c"])
@pytest.mark.parametrize("features", [TASKS, WORK])
@pytest.mark.parametrize("goes_on", [0, 1, 2])
def test_what_of_the_move_cannot_be_recorded_is_done_again(by: str, features: tuple[str, ...], goes_on: int) -> None:
    """13.7, design 3.6: nothing leaves before the commit behind it, and one that fails changes nothing."""
    more = {"workMode": "resident"} if features == WORK else {}
    scene = Scene(by, features=features, **more)
    scene.ask()
    old = scene.cluster["a"]
    there = scene.cluster["b"]
    conn = there.connect()
    address = {"name": "depot", "token": TOKEN}
    info = {"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1, "name": "depot"}
    members = {"returnAddress": "return-b", "features": list(TASKS), "clientProtocolVersion": "1.0", "kind": "custom"}
    there.send(conn, type="register", session=info, acknowledgesReceipt=True, address=address, **members)
    old.auto = False
    scene.run()
    for _ in range(goes_on):
        old.commit(1)
        scene.run()
    old.fail_commit()
    old.auto = True
    old.settle()
    scene.run(LIMITS.job_lease_ms)
    depot = scene.hold("b")
    for _ in range(4):
        scene.run(LIMITS.forward_ms)
    assert texts(depot) == ["build it"]
    scene.is_done_at(depot)
    scene.nothing_is_left()


def test_a_step_of_a_flow_ends_with_the_session_that_had_it() -> None:
    """12.4, 12.11: it is for that one alone; nobody on the new machine is shown it, and it is ambiguous."""
    play = Between("abc")
    address = {"name": "depot", "token": TOKEN, "hold": "take"}
    here, there = (
        play.work_as("a", "depot", address=address),
        play.work_as("b", "far", address={**address, "name": "f"}),
    )
    play.run(LIMITS.announce_ms)
    play.begin(target="depot")
    play.begin(target="far", flow_id="g")
    assert [len(play.dispatches(who)) for who in (here, there)] == [1, 1]
    new = [
        play.work_as("c", name, address={**address, "name": key}) for name, key in (("depot", "depot"), ("far", "f"))
    ]
    play.run(LIMITS.flow_end_grace_ms)
    assert [play.states(flow_id=flow)[1] for flow in "fg"] == [["ambiguous", "pending"]] * 2
    assert [play.dispatches(who) for who in new] == [[], []]


@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("cut", ["a", "b", "c"])
def test_a_broker_that_is_cut_off_meanwhile(by: str, cut: str) -> None:
    """13.7: it moves when its machines see each other again, and once."""
    scene = Scene(by)
    scene.leave()
    scene.ask()
    scene.cluster.cut(cut)
    scene.hold("b")
    scene.run(60_000)
    scene.cluster.join(cut)
    there = scene.hold("b")
    for _ in range(6):
        scene.run(LIMITS.peer_retry_most_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)
    scene.nothing_is_left()


@pytest.mark.parametrize("way", ["bc", "ba", "bca", "bab", "cbac"])
@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("is_quick", [False, True])
def test_an_address_that_roams_takes_its_tasks_along(by: str, way: str, is_quick: bool) -> None:
    """13.7: on, and back again: always one place that has it, and one run."""
    scene = Scene(by)
    scene.leave()
    scene.ask()
    for broker in way[:-1]:
        if is_quick:
            scene.cluster.cut(broker)
            scene.hold(broker).leave()
            scene.cluster.join(broker)
        else:
            scene.hold(broker)
    there = scene.hold(way[-1])
    for _ in range(6):
        scene.run(LIMITS.peer_retry_most_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)
    scene.nothing_is_left()


@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("when", ["before", "cut", "after"])
def test_a_task_that_is_cancelled_while_it_moves(by: str, when: str) -> None:
    """FE 3.4 Cancel: nobody is given it, or whoever has it is told."""
    scene = Scene(by)
    scene.leave()
    scene.ask()
    if when == "after":
        there = scene.hold("b")
        assert texts(there) == ["build it"]
        scene.run()
    elif when == "cut":
        scene.cluster.cut("a")
    ask(scene.asker, "invocation_cancel", invocationId="inv-1")
    scene.run()
    if when == "cut":
        scene.cluster.join("a")
    if when != "after":
        there = scene.hold("b")
    for _ in range(4):
        scene.run(LIMITS.peer_retry_most_ms)
    came = [frame["message"]["id"].partition(":")[0] for frame in [*there.first, *there.mail()] if "message" in frame]
    if when == "after":
        assert came == ["cancel"] and scene.state() == "running"
        update(there, "cancelled")
        scene.run()
        assert scene.state() == "cancelled"
    else:
        assert scene.state() == "cancelled" and came == []
        scene.nothing_is_left()


def test_what_says_that_a_task_is_not_wanted_does_not_move() -> None:
    """FE 3.4 Cancel: who had taken it is told, and nobody on the new machine, where it is not known."""
    scene = Scene("a")
    scene.ask()
    assert texts(scene.depot) == ["build it"]
    scene.leave()
    ask(scene.asker, "invocation_cancel", invocationId="inv-1")
    assert [mail.message_id.partition(":")[0] for mail in scene.cluster["a"].disk.mail.values()] == ["cancel"]
    there = scene.hold("b")
    assert [*there.first[1:], *there.mail()] == []
    scene.nothing_is_left()
    helper = scene.hold("a", hold="none")
    update(helper, "cancelled")
    assert scene.state() == "cancelled"


@pytest.mark.parametrize("by", ["a", "b", "c"])
@pytest.mark.parametrize("goes_on", [0, 1])
def test_a_task_takes_what_says_that_it_is_not_wanted_out_of_the_mailbox_with_it(by: str, goes_on: int) -> None:
    """FE 3.4 Cancel, 13.7: its end could not be recorded when its holder went, so it moves; nobody is shown either."""
    scene = Scene(by)
    scene.leave()
    scene.ask()
    scene.depot = scene.hold("a")
    ask(scene.asker, "invocation_cancel", invocationId="inv-1")
    scene.run()
    old = scene.cluster["a"]
    assert [mail.message_id.partition(":")[0] for mail in old.disk.mail.values()] == ["run", "cancel"]
    old.auto = False
    claim(scene.cluster, "b", "depot", features=list(TASKS))
    old.take()  # its holder hears that it is not it any more, and leaves
    scene.run()
    for _ in range(goes_on):
        old.commit(1)
        scene.run()
    old.fail_commit()
    old.auto = True
    old.settle()
    scene.run(LIMITS.job_lease_ms)
    there = scene.hold("b")
    for _ in range(4):
        scene.run(LIMITS.forward_ms)
    assert [*there.first[1:], *there.mail()] == [] and scene.state() == "cancelled"
    scene.nothing_is_left()


def test_nobody_is_told_where_the_address_is_that_a_task_taken_elsewhere_is_not_wanted() -> None:
    """FE 3.4 Cancel: the same when it is cancelled after the move."""
    scene = Scene("a")
    scene.ask()
    assert texts(scene.depot) == ["build it"]
    there = scene.hold("b")
    ask(scene.asker, "invocation_cancel", invocationId="inv-1")
    scene.run(LIMITS.mail_retry_ms)
    assert there.mail() == []
    scene.nothing_is_left()


@pytest.mark.parametrize("is_mail", [True, False])
def test_a_task_that_has_ended_does_not_move(is_mail: bool) -> None:
    """13.3: its message was not confirmed, and its end was told all the same."""
    scene = Scene("a")
    if is_mail:
        scene.leave()
    scene.ask()
    if is_mail:
        scene.depot = scene.hold("a")
    assert update(scene.depot, "completed", output="built")["state"] == "completed"
    there = scene.hold("b")
    assert texts(there) == [] and scene.state() == "completed"
    scene.nothing_is_left()


def test_what_comes_once_more_after_a_move_changes_nothing() -> None:
    """13.7: what is said of an earlier turn counts no more, whatever it says."""
    scene = Scene("c")
    scene.leave()
    scene.ask()
    for broker in "bab":
        there = scene.hold(broker)
    assert texts(there) == ["build it"]
    scene.run()
    for _ in range(2):
        for node, kept in list(scene.cluster.kept):
            node.queue.append(kept)
        scene.run(LIMITS.forward_ms)
        assert tasks(there) == []
        if scene.state() == "running":
            scene.is_done_at(there)
    assert scene.state() == "completed"


@pytest.mark.parametrize(
    "run", [RemoteRun("r", "cancelled", turn=1), RemoteRun("r", "cancelled", None, None, None, False, True, 1)]
)
def test_a_report_from_an_earlier_turn_changes_nothing(run: RemoteRun) -> None:
    """13.7: the address was on that machine before, and is there again."""
    scene = Scene("c")
    scene.leave()
    scene.ask()
    for broker in "bab":
        there = scene.hold(broker)
    delivery_id = snapshot(scene.asker)["deliveries"][0]["deliveryId"]
    scene.cluster["c"].peer_told(Mirrored(delivery_id, 0, 1_000_000, run, IDS["b"]))
    scene.run(LIMITS.forward_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)


def test_who_asked_and_heard_nothing_learns_that_a_task_was_let_go_when_it_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """13.7: the answer to the first attempt and the report of the move are lost; the second attempt is told."""
    scene = Scene("c")
    scene.leave()
    cluster, bring = scene.cluster, scene.cluster.post

    def bring_and_break(node: Node, post: Post) -> None:
        bring(node, post)
        if post.kind == INVOKE and node.name == "c" and not cluster.nodes["c"].is_cut:
            cluster.cut("c", leases_end=False)

    monkeypatch.setattr(cluster, "post", bring_and_break)
    scene.ask()
    there = scene.hold("b")
    monkeypatch.undo()
    cluster.nodes["c"].queue.clear()
    cluster.join("c")
    for _ in range(4):
        scene.run(LIMITS.forward_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)


@pytest.mark.parametrize("is_early", [True, False])
def test_who_has_not_heard_where_the_address_is_by_now_tries_the_old_home_again(is_early: bool) -> None:
    """13.7: nothing is passed on from broker to broker; what is let go, or refused, waits until that is known."""
    scene = Scene("c")
    scene.leave()
    if is_early:
        scene.ask()
    late = scene.cluster.nodes["c"]
    late.is_cut = True
    there = scene.hold("b")
    late.is_cut = False
    if not is_early:
        scene.ask()
    scene.run()
    assert scene.state() == "queued"
    scene.run(LIMITS.forward_ms)
    assert texts(there) == [] and snapshot(scene.asker)["deliveries"][0]["status"] == "deferred"
    scene.cluster.join("c")
    for _ in range(3):
        scene.run(LIMITS.forward_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)


def test_a_task_for_an_address_elsewhere_is_taken_before_anything_is_heard_of_that() -> None:
    """13.2, cluster.md 3: it is as well known as for a message; the engine is away, and this broker just began."""
    scene = Scene("a")
    scene.depot.write("unregister")
    there = scene.hold("b")
    scene.cluster.crash("a", is_cut=True)
    scene.asker_is_back()
    assert scene.ask()["state"] == "queued"
    scene.cluster.join("a")
    scene.run(LIMITS.peer_absent_ms)
    assert texts(there) == ["build it"]
    scene.is_done_at(there)


def test_a_broker_whose_store_is_lost_moves_nothing() -> None:
    """Design 3.6: it can record nothing, so what waits there stays for the next process."""
    scene = Scene("a", features=WORK, workMode="resident")
    scene.ask()
    old = scene.cluster["a"]
    near = sender_at(scene.cluster, "a", "near")
    old.auto = False
    near.message("depot", "m1", "m1")
    old.fail_commit(final=True)
    old.auto = True
    there = scene.hold("b")
    assert texts(there) == []
    scene.cluster.crash("a")
    scene.asker_is_back()
    scene.run(LIMITS.mail_retry_ms)
    assert texts(there) == ["build it"]


def test_a_task_waits_here_for_a_machine_that_took_its_address_and_is_away() -> None:
    """13.7: it may wait as long as mail; it is handed on once that machine is there."""
    scene = Scene("a", features=WORK, workMode="resident")
    cluster = scene.cluster
    near = sender_at(cluster, "a", "near")
    assert send(cluster, near, "m1", "depot") == "queued"
    scene.ask()
    cluster.held_claims = []
    claim(cluster, "b", "depot", features=list(TASKS))
    [(node, claimed)] = cluster.held_claims
    cluster.held_claims = None
    cluster.cut("b")
    cluster.decide(node, claimed)
    scene.run()
    where = traced(near, "m1")[1]
    assert "kept here until b says that it has it" in where
    for _ in range(40):
        scene.run(60_000)
    assert scene.state() == "queued" and traced(near, "m1") == ("queued", where)
    cluster.join("b")
    there = scene.hold("b")
    assert texts(there) == ["build it"]
    scene.is_done_at(there)


@pytest.mark.parametrize("by", ["a", "c"])
@pytest.mark.parametrize("returns", [True, False])
def test_a_task_that_follows_its_address_waits_for_a_machine_as_long_as_mail_does(
    monkeypatch: pytest.MonkeyPatch, by: str, returns: bool
) -> None:
    """13.7: it waited for the address before, and goes on waiting for it where that is at home and is away now."""
    limits = Limits(mail_ttl_ms=2 * LIMITS.peer_window_ms)
    scene = Scene(by, limits=limits)
    scene.leave()
    scene.ask()
    cluster, bring = scene.cluster, scene.cluster.post

    def bring_or_lose(node: Node, post: Post) -> None:
        if post.kind != INVOKE or cluster.nodes["b"].is_cut:
            bring(node, post)
        else:
            cluster.cut("b")

    monkeypatch.setattr(cluster, "post", bring_or_lose)
    scene.hold("b").leave()
    assert cluster.nodes["b"].is_cut
    monkeypatch.undo()
    cluster.nodes["b"].queue.clear()
    scene.run(LIMITS.peer_window_ms)
    scene.run(LIMITS.peer_absent_ms)
    assert scene.state() == "queued"
    if returns:
        cluster.join("b")
        there = scene.hold("b")
        assert texts(there) == ["build it"]
        scene.is_done_at(there)
    else:
        scene.run(limits.mail_ttl_ms)
        found = run_of(scene.asker)
        assert (found["state"], found["reconciled"]) == ("failed", True) and "b was not reached with" in found["error"]


def test_a_task_that_was_let_go_and_is_not_wanted_any_more_is_over() -> None:
    """FE 3.4 Cancel: nobody has it, so nobody is given it."""
    scene = Scene("c")
    scene.leave()
    scene.ask()
    scene.cluster.cut("c")
    there = scene.hold("b")
    ask(scene.asker, "invocation_cancel", invocationId="inv-1")
    assert scene.state() == "queued"
    scene.cluster.join("c")
    scene.run(LIMITS.forward_ms)
    assert scene.state() == "cancelled" and texts(there) == []
    assert snapshot(scene.asker)["deliveries"][0]["status"] == "cancelled"
    scene.nothing_is_left()


def test_what_is_parked_for_others_and_what_somebody_works_on_stays() -> None:
    """13.7, FE 1.3: an assignment stays with its executor, also where that only acts under the address."""
    scene = Scene("a", features=WORK, workMode="resident")
    old = scene.cluster["a"]
    helper = scene.hold("a", features=WORK, hold="none", workMode="resident")
    other, free = worker(old, "other"), worker(old, "free")
    near = sender_at(scene.cluster, "a", "near")
    for message_id, to in (("m1", other.id), ("m2", free.id), ("m3", "depot"), ("m4", "depot")):
        assert send(scene.cluster, near, message_id, to) == "queued"
    ask(other, "inbox_claim", inboxId="m1")
    mine = ask(helper, "inbox_claim", inboxId="m3")["assignment"]
    report(helper, mine, "accepted")
    there = scene.hold("b", features=WORK, workMode="resident")
    assert [item["inboxId"] for item in items(there)] == ["m4"]
    assert [len(items(who)) for who in (other, free)] == [1, 1]
    assert reply(helper, mine)["type"] == "assignment_replied"


def test_what_could_not_be_recorded_of_a_move_that_is_undone_is_left_alone() -> None:
    """13.7: the address is at home here again by then, and so is what is parked for it."""
    scene = Scene("a", features=WORK, workMode="resident")
    scene.ask()
    old = scene.cluster["a"]
    old.auto = False
    claim(scene.cluster, "b", "depot", features=list(TASKS))
    old.fail_commit()
    old.auto = True
    claim(scene.cluster, "a", "depot", features=list(TASKS))
    scene.run(LIMITS.mail_retry_ms)
    back = scene.hold("a", features=WORK, workMode="resident")
    assert len(items(back)) == 1


def test_a_task_for_an_address_that_nobody_held_since_its_machine_is_seen_moves() -> None:
    """13.2.2, 13.7: where it is at home is known of the engine alone, and the task goes there as ever."""
    scene = Scene("c", is_late=True)
    scene.leave()
    scene.cluster.join("c")
    scene.ask()
    assert not scene.cluster["c"].disk.addresses and scene.cluster["a"].disk.mail
    there = scene.hold("b")
    assert texts(there) == ["build it"]
    scene.is_done_at(there)
    scene.nothing_is_left()


def test_a_task_that_comes_home_to_a_holder_who_refuses_it_has_failed() -> None:
    """15.2.1, 13.7: it is judged with what holds where it is by then, and whoever asked learns why."""
    scene = Scene("b")
    scene.leave()
    scene.ask()
    scene.cluster.cut("a")
    there = scene.hold("b", features=(*TASKS, "policy"))
    ask(there, "policy_set", policy={"rules": [{"action": "refuse"}]})
    assert scene.state() == "queued"
    scene.cluster.join("a")
    scene.run(LIMITS.mail_retry_ms)
    run = run_of(scene.asker)
    assert run["state"] == "failed" and notices.NOT_LET_THROUGH in run["error"]
    assert [frame for frame in [*there.first, *there.mail()] if frame["type"] == "message"] == []
    [told] = scene.asker.mail()
    assert told["notice"]["reason"] == notices.NOT_LET_THROUGH
    scene.asker.confirm(told["message"]["id"])
    scene.nothing_is_left()


@pytest.mark.parametrize("action", ["quiet", "hold"])
def test_what_a_policy_kept_moves_when_it_may(action: str) -> None:
    """6.13.7, 15.2.1: what must wake nobody is judged on the new machine; the person lets the rest through."""
    scene = Scene("a", features=(*TASKS, "policy"))
    ask(scene.depot, "policy_set", policy={"rules": [{"action": action}]})
    near = sender_at(scene.cluster, "a", "near")
    assert send(scene.cluster, near, "m1", "depot") == "queued"
    answer = scene.ask()
    there = scene.hold("b")
    if action == "hold":
        assert there.mail() == []
        granted = ("operator", "policy")
        person = enter(scene.cluster["a"], features=granted, info={"recipientPurpose": "control"})
        for message_id in ("m1", f"run:{answer['runId']}"):
            assert ask(person, "held_settle", messageId=message_id, action="release")["type"] == "held_settled"
        scene.run(LIMITS.mail_retry_ms)
    shown = [frame for frame in [*there.first, *there.mail()] if frame["type"] == "message"]
    assert [frame["message"]["content"]["text"] for frame in shown] == ["m1", "build it"]
    there.confirm(*(frame["message"]["id"] for frame in shown))
    scene.is_done_at(there)
    scene.nothing_is_left()
