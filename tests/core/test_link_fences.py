"""Test that every frame of a worker is judged by the claim its connection has now (FE 4.4, 4.6, 4.7; protocol 14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.harness import World, only
from tests.core.mail import Agent, operator
from tests.core.test_links import Worker, again, link_of, ready, send, states, stored
from tests.core.work import ask


class Scene:
    """Hold a worker with one stored event, one command it received, and one that is offered."""

    def __init__(self) -> None:
        self.world = World()
        self.boss: Agent = operator(self.world)
        self.worker = ready(self.world)
        for command_id in ("c1", "c2"):
            send(self.boss, self.worker, command_id)
        self.worker.received("c1", 1)
        self.worker.event(1)
        self.worker.got()

    def frame(self, kind: str) -> dict[str, Any]:
        """Return what the worker could have written while it had its first claim."""
        first = {"linkId": self.worker.link, "generation": 1}
        body = {"kind": "command_applied", "commandId": "c1"}
        members: dict[str, dict[str, Any]] = {
            "link_ready": {"requestId": "x", **first, "lastReceivedCommandSeq": 0, "journalId": "J1"},
            "link_rejected": {"requestId": "x", **first, "errorCode": "busy"},
            "durable_event": {"linkId": self.worker.link, "seq": 2, "eventId": "e2", "occurredAt": 5, "body": body},
            "ephemeral_event": {"occurredAt": 5, "body": {"kind": "heartbeat"}},
            "command_received": {"commandId": "c2", "commandSeq": 2},
            "command_rejected": {"commandId": "c2", "commandSeq": 2, "errorCode": "no"},
        }
        return members[kind]

    def facts(self) -> Any:
        """Return everything a frame of a worker may change."""
        link = link_of(self.boss, self.worker)
        return self.world.disk.links[self.worker.link], stored(self.world), states(self.boss), link.get("heartbeatAt")


KINDS = ("link_ready", "link_rejected", "durable_event", "ephemeral_event", "command_received", "command_rejected")


def superseded(scene: Scene) -> tuple[Worker, Worker]:
    """Let a newer connection of the worker have the link, and the older one write."""
    newer = again(scene.world, scene.worker)
    newer.ready()
    scene.worker.got()
    return scene.worker, newer


def refused(scene: Scene) -> tuple[Worker, Worker]:
    """Let the worker come with another journal, so that its connection has no link."""
    scene.worker.agent.leave()
    newer = again(scene.world, scene.worker)
    assert only(newer.ready("J2"), "link_refused")["code"] == "journal_identity_changed"
    return newer, newer


def repinned(scene: Scene) -> tuple[Worker, Worker]:
    """Let the operator take the link away from the connection that had it; it is to be ready again."""
    ask(scene.boss, "link_repin", linkId=scene.worker.link, journalId="J2")
    scene.worker.await_bootstrap()
    return scene.worker, scene.worker


def another(scene: Scene) -> tuple[Worker, Worker]:
    """Let a worker that is ready for a link of its own write about this one."""
    return ready(scene.world, "other", "J9"), scene.worker


def unready(scene: Scene) -> tuple[Worker, Worker]:
    """Let a newer connection write before it is ready, as if it were the older one."""
    newer = again(scene.world, scene.worker)
    return newer, newer


STALE = "generation_stale"
BROKEN = "protocol_error"
ANSWERS: dict[Callable[[Scene], tuple[Worker, Worker]], tuple[str | None, ...]] = {
    superseded: (None, None, None, None, None, None),
    refused: (STALE, STALE, None, None, None, None),
    repinned: (STALE, STALE, None, None, None, None),
    another: (BROKEN, BROKEN, STALE, None, None, None),
    unready: (STALE, STALE, None, None, None, None),
}
"""With which code each kind of frame is refused; None: it is left aside, and comes again where it counts."""
PROVES_LIFE = {repinned, unready}
"""Where the connection has the link, and a heartbeat says that its worker lives."""


@pytest.mark.parametrize(
    ("situation", "kind", "code"),
    [(situation, kind, code) for situation, codes in ANSWERS.items() for kind, code in zip(KINDS, codes, strict=True)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_frame_without_the_claim_changes_nothing(
    situation: Callable[[Scene], tuple[Worker, Worker]], kind: str, code: str | None
) -> None:
    """FE 4.7: events and receipts count only from the connection that holds the claim, and decide nothing before."""
    scene = Scene()
    writer, _ = situation(scene)
    before = scene.facts()
    frames = writer.write(kind, **scene.frame(kind))
    assert [frame.get("code") for frame in frames] == ([] if code is None else [code])
    after = scene.facts()
    if kind == "ephemeral_event" and situation in PROVES_LIFE:
        before, after = before[:3], after[:3]
    assert after == before


@pytest.mark.parametrize("situation", [superseded, another, unready], ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_the_claim_goes_on(situation: Callable[[Scene], tuple[Worker, Worker]], kind: str) -> None:
    """A4.14: whatever others write, the connection that has the link reports and takes commands."""
    scene = Scene()
    writer, rightful = situation(scene)
    writer.write(kind, **scene.frame(kind))
    if situation is unready:
        assert "link_confirmed" in [frame["type"] for frame in rightful.ready()]
    assert only(rightful.event(2, "command_applied", commandId="c1"), "event_ack")["highWater"] == 2
    rightful.received("c2", 2)
    assert states(scene.boss) == {"c1": "applied", "c2": "received"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_its_turn_ends_with_the_claim(kind: str) -> None:
    """FE 4.7: a frame that came in time and waits for a commit is judged again when its turn comes."""
    scene = Scene()
    world, worker = scene.world, scene.worker
    world.auto = False
    worker.event(2)
    worker.write(kind, **{**scene.frame(kind), **({"seq": 3} if kind == "durable_event" else {})})
    newer = again(world, worker)
    world.auto = True
    world.settle()
    assert [seq for _, seq, _ in stored(world)] == [1, 2], "what was begun is on disk"
    assert states(scene.boss) == {"c1": "received", "c2": "pending"}
    assert "heartbeatAt" not in link_of(scene.boss, worker)
    newer.await_bootstrap()
    assert (newer.bootstrap["generation"], newer.bootstrap["eventFloor"]) == (2, 2)
    assert "link_confirmed" in [frame["type"] for frame in newer.ready()]
