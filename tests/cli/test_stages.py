"""Stages as a person and a program see them in ``intercom list``."""

from __future__ import annotations

from typing import Any

from intercom.cli.stages import DRAWN, FIT, HEAD, documents_of, rows_of
from intercom.cli.tables import table
from intercom.client.stage_views import StageView
from intercom.wire.stage_frames import DeliveryState

ROOT = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
NESTED = "1d2e3f40-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
GROUP = f"workflow:{ROOT}"
SESSION = "b1111111-1111-4111-8111-111111111111"


def stage(path: str, **members: Any) -> StageView:
    given: dict[str, Any] = {"state": "pending", "run_id": ROOT, "group": GROUP, "raw": {"target": path}}
    return StageView(target=f"{GROUP}/{path}", **{**given, **members})


STAGES = [
    stage("st-1", id="st-1", name="reviewer-a", state="running", session_id=SESSION),
    stage("st-2", id="st-2", name="reviewer-b"),
    stage(f"{NESTED}/st-9", id="st-9", name="checker", run_id=NESTED),
    stage("reviewer-*", state="possible", queued=3),
]


def test_a_tree_of_stages() -> None:
    """Pending, running and possible; run and stage joined with a slash are the target."""
    lines = table(HEAD, rows_of(STAGES, {SESSION: "b1111111"}), FIT)
    assert [line.split() for line in lines] == [
        ["STAGE", "NAME", "STATE", "WAITING", "SESSION"],
        [GROUP],
        ["st-1", "reviewer-a", "running", "-", "b1111111"],
        ["st-2", "reviewer-b", "pending", "-", "-"],
        [NESTED],
        ["st-9", "checker", "pending", "-", "-"],
        ["reviewer-*", "-", "possible", "3", "-"],
    ]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 0, 2, 2, 2, 4, 2]


def test_the_tree_is_drawn_where_it_can_be() -> None:
    first = [row[0] for row in rows_of(STAGES, {}, DRAWN)]
    assert first == [GROUP, "├─ st-1", "├─ st-2", f"├─ {NESTED}", "│  └─ st-9", "└─ reviewer-*"]


def test_a_session_that_is_not_in_reach_is_shown_whole() -> None:
    assert rows_of(STAGES, {})[1][-1] == SESSION


def test_runs_stay_apart() -> None:
    other = f"workflow:{NESTED}"
    rows = rows_of([STAGES[0], StageView(state="pending", run_id=NESTED, target=f"{other}/a", group=other, raw={})], {})
    assert [row[0] for row in rows] == [GROUP, "  st-1", other, "  a"]


def test_stages_of_one_name_and_entries_that_only_report() -> None:
    told = DeliveryState("m", ROOT, "st-1", "delivered", "it started")
    only = stage("st-1", state="possible", is_delivery_only=True, deliveries=(told,))
    rows = rows_of([STAGES[0], only], {})
    assert [(row[0].strip(), row[2]) for row in rows[1:]] == [("st-1", "running"), ("st-1", "1 reported")]


def test_documents_keep_what_the_broker_told() -> None:
    documents = documents_of(STAGES)
    assert [each["target"] for each in documents["stages"]] == ["st-1", "st-2", f"{NESTED}/st-9"]
    assert [each["target"] for each in documents["possibleStages"]] == ["reviewer-*"]


def test_what_hosts_write_is_one_line_a_stage() -> None:
    """F110: nothing that steers a terminal."""
    evil = stage("st-1", id="st-1", name="a\x1b[2J\n\u202e" + "x" * 200)
    lines = table(HEAD, rows_of([evil], {}), FIT)
    assert len(lines) == 3
    assert not {"\x1b", "\n", "\u202e"} & set("".join(lines))
