"""Which addresses give way to new ones, and which never do (protocol 9.3.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from intercom.core.journal import stream_of
from intercom.limits import Limits
from tests.core.flow_play import COORDINATOR, WORKER, Play
from tests.core.harness import INFO, World, answers, only
from tests.core.mail import AGENT, PEER, Agent, enter, holder
from tests.core.test_addresses import claim

IDLE_MS = 30 * 24 * 3_600_000
RESIDENT = {"workMode": "resident"}


def crowded(limit: int = 2, **limits: int) -> World:
    """Return a world with little room; nothing in it ends because of its age."""
    return World(limits=Limits(addresses=limit, mail_ttl_ms=10 * IDLE_MS, ask_ms=10 * IDLE_MS, **limits))


def gone(world: World, name: str) -> str:
    """Let somebody hold a new address and leave for good; return its token."""
    agent = holder(world, name)
    agent.write("unregister")
    token: str = agent.registered["addressToken"]
    return token


def names(world: World) -> set[str]:
    return {record.name for record in world.disk.addresses.values()}


def test_the_one_that_nobody_held_for_longest_gives_way() -> None:
    world = crowded(3)
    gone(world, "old")
    world.pass_time(1)
    gone(world, "older-by-name-only")
    world.pass_time(1)
    gone(world, "newest")
    world.pass_time(IDLE_MS - 3)
    assert claim(world, "early")["code"] == "address_limit"
    world.pass_time(3)
    assert holder(world, "late").registered["addressToken"]
    assert names(world) == {"older-by-name-only", "newest", "late"}
    world.crash()
    assert names(world) == {"older-by-name-only", "newest", "late"}
    kinds = [event.kind for event in world.disk.journal if stream_of(event.row) == "address:1"]
    assert kinds[-1] == "address.forgotten"


def test_a_name_that_was_given_up_is_free() -> None:
    world = crowded()
    token = gone(world, "old")
    gone(world, "newest")
    world.pass_time(IDLE_MS)
    holder(world, "late").write("unregister")
    world.pass_time(IDLE_MS)
    again = holder(world, "old")
    assert again.registered["addressToken"] != token
    assert len({record.number for record in world.disk.addresses.values()} | {1, 2, 3, 4}) == 4


def test_the_newest_stays_so_that_no_number_comes_twice() -> None:
    world = crowded(1)
    gone(world, "only")
    world.pass_time(IDLE_MS)
    assert claim(world, "late")["code"] == "address_limit"


def test_time_counts_from_when_it_was_held_last() -> None:
    """Somebody who held it for a month has just left."""
    world = crowded()
    long = holder(world, "long")
    gone(world, "newest")
    world.pass_time(2 * IDLE_MS)
    long.write("unregister")
    world.crash()
    assert claim(world, "late")["code"] == "address_limit"


def a_holder(world: World, old: Agent) -> None:
    holder(world, "old", old.registered["addressToken"])


def one_that_acts_under_it(world: World, old: Agent) -> None:
    holder(world, "old", old.registered["addressToken"], "none")


def mail(world: World, old: Agent) -> None:
    assert only(answers(enter(world, "sender").queue("old", "m1")))["type"] == "queued"


def sent_mail(world: World, old: Agent) -> None:
    sender = holder(world, "old", old.registered["addressToken"])
    assert only(answers(sender.queue("newest", "m1")))["type"] == "queued"
    sender.write("unregister")


def a_policy(world: World, old: Agent) -> None:
    person = enter(world, features=("operator", "policy"), info={"recipientPurpose": "control"})
    members = {"requestId": "p", "of": {"address": "old"}, "policy": {"rules": [{"action": "quiet"}]}}
    assert only(person.write("policy_set", **members), "policy_stored")


def a_flow(world: World, old: Agent) -> None:
    play = Play.__new__(Play)
    play.world, play.count, play.kept = world, 0, {}
    play.boss = enter(world, "boss", features=COORDINATOR)
    assert play.create(target="old")["type"] == "flow"


def a_flow_it_wrote(world: World, old: Agent) -> None:
    play = Play.__new__(Play)
    play.world, play.count, play.kept = world, 0, {}
    play.boss = holder(world, "old", old.registered["addressToken"], features=COORDINATOR)
    assert play.create(target="somebody")["type"] == "flow"
    play.boss.write("unregister")


def an_open_question(world: World, old: Agent) -> None:
    asked = holder(world, "old", old.registered["addressToken"])
    asker = enter(world, "asker")
    asker.ask("old", "q1")
    asked.confirm("q1")
    asked.write("unregister", keepsQuestions=True)


def parked_work(world: World, old: Agent) -> None:
    old_worker = holder(world, "old", old.registered["addressToken"], features=(*AGENT, "work.assignments"), **RESIDENT)
    assert only(answers(enter(world, "sender").queue("old", "m1")))["type"] == "queued"
    old_worker.write("unregister")


def a_link(world: World, old: Agent) -> None:
    linked = holder(world, "old", old.registered["addressToken"], features=(*AGENT, "link.durable"))
    assert len(world.disk.links) == 1
    linked.write("unregister")


USES: list[Callable[[World, Agent], None]] = [
    a_holder,
    one_that_acts_under_it,
    mail,
    sent_mail,
    a_policy,
    a_flow,
    a_flow_it_wrote,
    parked_work,
    an_open_question,
    a_link,
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_what_something_depends_on_never_gives_way(use: Callable[[World, Agent], None]) -> None:
    world = crowded()
    old = holder(world, "old")
    old.write("unregister")
    gone(world, "newest")
    use(world, old)
    world.pass_time(IDLE_MS)
    claim(world, "late")  # it may take the place of the other one, once the person's address is the newest
    assert claim(world, "later")["code"] == "address_limit"
    assert "old" in names(world)


def test_one_that_may_come_back_keeps_its_address() -> None:
    world = crowded(grace_ms=10 * IDLE_MS)
    old = holder(world, "old", features=(*AGENT, *WORKER))
    gone(world, "newest")
    world.lose(old.conn)
    world.pass_time(IDLE_MS)
    assert claim(world, "late")["code"] == "address_limit"


def test_what_could_not_be_recorded_has_not_happened() -> None:
    world = crowded()
    token = gone(world, "old")
    gone(world, "newest")
    world.pass_time(IDLE_MS)
    world.auto = False
    conn = world.connect(PEER)
    request = {
        "session": {**INFO, "name": "late"},
        "acknowledgesReceipt": True,
        "features": list(AGENT),
        "clientProtocolVersion": "1.0",
        "kind": "custom",
        "address": {"name": "late"},
    }
    world.send(conn, type="register", **request)
    world.fail_commit()
    world.settle()
    assert world.got(conn)[-1]["code"] == "not_recorded"
    world.auto = True
    assert names(world) == {"old", "newest"}
    assert "addressToken" not in holder(world, "old", token).registered
