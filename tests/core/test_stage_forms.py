"""Write stage frames with anything in them: it may cost the writer its connection, and nobody else anything (F38)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.harness import World, is_delivered
from tests.core.runs import CHILD, OTHER, RUN, group_of, host, live, member, own, path, possible, stage, worker
from tests.support.wire import MESSAGE

TARGETS = [path("st-1"), path("*"), path(CHILD, "a"), path("x", run=OTHER), f"{RUN}:a", "workflow:"]
TEXTS = st.sampled_from(
    ["", " ", "a", "*", "**", "a/b", RUN, CHILD, OTHER, "cap", "st-1", "reviewer", "team", "\ud800", "ret", *TARGETS]
) | st.sampled_from([group_of(), group_of(OTHER)])
ROWS = st.builds(stage, TEXTS, TEXTS, target=TEXTS, group=TEXTS) | st.builds(possible, TEXTS)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS | ROWS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MEMBERS = {
    "register_pending_stage_route": (
        "runId", "group", "capability", "requestId", "dormant", "stages", "possibleStages", "parent",
    ),
    "register_live_workflow_stage_route": ("requestId", "runId", "stageKeys", "capability"),
    "pending_stage_message_result": (
        "requestId", "outcome", "position", "target", "reason", "reasonCode", "notInKnownSet", "forwardTargets",
    ),
    "send_pending_stage_notification": (
        "runId", "capability", "to", "message", "attemptId", "senderRegistrationName", "senderReturnAddress",
    ),
    "pending_stage_notification_result": ("requestId", "delivered"),
    "send": ("to", "message", "attemptId", "logicalTarget", "requirePendingReply", "expectedRecipientId"),
    "list": ("requestId", "group"),
}  # fmt: skip
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "runId": st.sampled_from([RUN, CHILD]),
    "group": st.just(group_of()),
    "capability": st.just("cap"),
    "requestId": st.just("q"),
    "stages": st.lists(ROWS, max_size=3),
    "possibleStages": st.lists(ROWS, max_size=2),
    "stageKeys": st.lists(TEXTS, min_size=1, max_size=2),
    "outcome": st.sampled_from(["queued", "forward", "delivered", "refused"]),
    "target": TEXTS,
    "to": TEXTS,
    "message": st.just(MESSAGE),
}


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(MEMBERS)))
    names = draw(st.lists(st.sampled_from(MEMBERS[kind]), unique=True))
    needed = [name for name in MEMBERS[kind] if name in GOOD]
    values = {name: draw(GOOD[name]) for name in needed}
    values.update({name: draw(ANYTHING) for name in names if draw(st.integers(0, 2)) == 0 or name not in GOOD})
    return {"type": kind, **values}


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(written=st.lists(st.tuples(st.integers(0, 2), frames()), max_size=8))
def test_whatever_is_written_others_go_on(written: list[tuple[int, dict[str, Any]]]) -> None:
    """F38: bad input never costs anybody else anything"""
    world = World()
    owner, sender, stage_session = host(world), member(world), worker(world)
    bystander, peer = world.register("bystander", info={"group": "g"}), world.register("peer", info={"group": "g"})
    own(owner, stages=[stage()])
    live(stage_session, "st-1")
    for which, frame in written:
        client = (owner, sender, stage_session)[which]
        if client.conn in world.open:
            world.feed(client.conn, json.dumps(frame).encode())
    bystander.got()
    assert is_delivered(bystander.message("peer", "last"))
    assert peer.texts() == ["x"]
    for client in (owner, sender, stage_session):
        if client.conn in world.open:
            world.end(client.conn)
    world.pass_time(10_000)
    status = bystander.write("broker_status", requestId="q")[-1]["report"]["broker"]
    assert [status[name] for name in ("workflowRuns", "liveStageTargets", "ownerRequests", "notifications")] == [0] * 4
