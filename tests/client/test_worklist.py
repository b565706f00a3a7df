"""Work that is handed over: confirmed when it comes, shown once, and not shown when it is too late."""

from __future__ import annotations

import gc

import pytest

from intercom.client.assignment import Assignment
from intercom.errors import RequestRefused, UsageError
from intercom.limits import ACCEPT_MARGIN_MS, ASSIGNMENT_IDS_KEPT, ASSIGNMENTS_KEPT, AWAIT_MS, REQUEST_RETRY_MS
from tests.support.client import GRANTED, WALL, Frame, Rig
from tests.support.work import WORK_FEATURES, granted, info, pushed, recorded, refused, worker


def take(rig: Rig, *, claims: bool = False, wall: int = WALL, until: int | None = None) -> Assignment | None:
    return rig.core.take_work(wall, until, claims=claims)


def taken(rig: Rig, **options: int) -> Assignment:
    work = take(rig, **options)  # type: ignore[arg-type]
    assert work is not None
    return work


def test_work_is_confirmed_when_it_comes_and_shown_once() -> None:
    """FE 1.3, receipts: a hand-over that is not confirmed within 2 s is given up, so the client does not wait."""
    rig = worker()
    assert rig.feed(pushed()) == [{"type": "received", "messageId": "m1", "pushId": "push-as1"}]
    work = taken(rig)
    assert (work.id, work.source_message_id, work.inbox_id, work.text) == ("as1", "m1", "in1", "count the words")
    assert (work.sender.name, work.accepted, work.is_over) == ("worker", False, False)
    assert work.accept_deadline == WALL + 30_000
    assert take(rig) is None
    assert rig.core.take_message(rig, rig.now) is None, "it is no message"


def test_a_copy_is_confirmed_again_and_not_shown_again() -> None:
    """FE 1.7: after push, before receipt, it is offered again with the same ids; the session ignores a duplicate."""
    rig = worker()
    rig.feed(pushed())
    assert rig.feed(pushed()) == [{"type": "received", "messageId": "m1", "pushId": "push-as1"}]
    taken(rig)
    rig.lose()
    rig.reattach(features=WORK_FEATURES)
    assert len(rig.feed(pushed())) == 1
    assert take(rig) is None


def test_what_comes_after_a_reattach_is_still_there() -> None:
    rig = worker()
    rig.feed(pushed("as1"), pushed("as2"))
    rig.lose()
    rig.reattach(features=WORK_FEATURES)
    assert [taken(rig).id, taken(rig).id] == ["as1", "as2"]


def test_a_session_that_registers_anew_has_lost_what_it_had_not_accepted() -> None:
    """FE 1.3: the closing of the session before gave it back."""
    rig = worker()
    rig.feed(pushed("as1"))
    rig.lose()
    first = rig.dial()
    rig.feed({"type": "request_failed", "requestId": first["requestId"], "code": "unknown_session", "reason": "no",
              "retryable": False})  # fmt: skip
    rig.feed({"type": "registered", "sessionId": "me2", "acknowledgesReceipt": True, **GRANTED,
              "features": [*GRANTED["features"], "work.assignments"]})  # fmt: skip
    assert take(rig) is None


def test_the_work_of_an_address_is_there_for_its_next_session() -> None:
    rig = worker(name="ada", address=True)
    rig.feed(pushed("as1"))
    rig.lose()
    first = rig.dial()
    rig.feed({"type": "request_failed", "requestId": first["requestId"], "code": "unknown_session", "reason": "no",
              "retryable": False})  # fmt: skip
    rig.feed({"type": "registered", "sessionId": "me2", "acknowledgesReceipt": True, **GRANTED,
              "features": [*GRANTED["features"], "work.assignments"]})  # fmt: skip
    assert taken(rig).id == "as1"


def test_what_can_hardly_be_accepted_in_time_is_not_shown() -> None:
    """FE 1.3, accept deadline: it goes back to the inbox, and somebody else gets it."""
    rig = worker()
    late = WALL + 30_000 - ACCEPT_MARGIN_MS
    rig.feed(pushed("as1"), pushed("as2", acceptDeadline=WALL + 60_000))
    assert rig.core.has_work(late, claims=False)
    assert taken(rig, wall=late).id == "as2"


def test_what_was_accepted_before_or_has_no_deadline_is_never_late() -> None:
    rig = worker()
    free = pushed("as2")
    del free["assignment"]["acceptDeadline"]
    rig.feed(pushed("as1", accepted=True, state="accepted"), free)
    assert taken(rig, wall=WALL + 10**9).accepted
    assert taken(rig, wall=WALL + 10**9).id == "as2"


def test_what_finds_no_room_is_not_confirmed() -> None:
    rig = worker()
    for number in range(ASSIGNMENTS_KEPT):
        assert len(rig.feed(pushed(f"as{number}"))) == 1
    assert rig.feed(pushed("more")) == []
    taken(rig)
    assert len(rig.feed(pushed("more"))) == 1


def test_the_ids_that_are_remembered_are_bounded() -> None:
    rig = worker()
    for number in range(ASSIGNMENT_IDS_KEPT + 1):
        rig.feed(pushed(f"as{number}"))
        taken(rig)
    rig.feed(pushed("as1"))
    assert take(rig) is None
    rig.feed(pushed("as0"))
    assert taken(rig).id == "as0", "the oldest was forgotten"


def test_a_resident_worker_asks_for_nothing() -> None:
    rig = worker()
    assert take(rig) is None
    assert rig.written() == []


def test_a_worker_with_turns_comes_for_its_work() -> None:
    """FE 1.5, staged delivery: a wait longer than the broker holds is several requests."""
    rig = worker("managed_turn")
    assert take(rig) is None
    [first] = rig.written()
    assert first == {"type": "inbox_await", "requestId": first["requestId"], "timeoutMs": AWAIT_MS}
    assert take(rig) is None
    assert rig.written() == [], "one request at a time"
    rig.pass_time(AWAIT_MS)
    [second] = rig.feed({"type": "inbox_nothing", "requestId": first["requestId"]})
    assert (second["type"], second["timeoutMs"]) == ("inbox_await", AWAIT_MS)
    rig.feed(granted(second["requestId"]))
    assert rig.core.has_work(WALL, claims=False)
    assert taken(rig).id == "as1"


def test_work_that_is_not_accepted_yet_is_given_again_and_not_shown_again() -> None:
    """FE 1.5: staged work is dropped on acceptance only; a worker that waits for more does not ask without end."""
    rig = worker("managed_turn")
    take(rig)
    [first] = rig.written()
    rig.feed(granted(first["requestId"]))
    taken(rig)
    assert take(rig) is None
    [second] = rig.written()
    assert rig.feed(granted(second["requestId"])) == []
    [third] = rig.pass_time(REQUEST_RETRY_MS)
    rig.feed(granted(third["requestId"], "as2"))
    assert taken(rig).id == "as2"


def test_a_broker_that_answers_at_once_is_asked_again_after_a_pause() -> None:
    rig = worker("managed_turn")
    take(rig)
    [first] = rig.written()
    assert rig.feed({"type": "inbox_nothing", "requestId": first["requestId"]}) == []
    assert [frame["type"] for frame in rig.pass_time(REQUEST_RETRY_MS)] == ["inbox_await"]


def test_a_search_goes_on_after_a_reconnect() -> None:
    rig = worker("managed_turn")
    take(rig)
    rig.written()
    rig.lose()
    [again] = rig.reattach(features=WORK_FEATURES)
    assert again["type"] == "inbox_await"


def test_whoever_claims_says_so() -> None:
    rig = worker()
    take(rig, claims=True)
    [frame] = rig.written()
    assert frame["claim"] is True


def test_a_search_ends_with_the_time_of_who_waits() -> None:
    rig = worker("managed_turn")
    take(rig, until=rig.now + 5_000)
    [frame] = rig.written()
    assert frame["timeoutMs"] == 5_000
    rig.pass_time(5_000)
    rig.feed({"type": "inbox_nothing", "requestId": frame["requestId"]})
    assert rig.core.has_work(WALL, claims=False), "the next look begins a search again"
    take(rig)
    assert len(rig.written()) == 1


def test_why_there_is_no_work_is_told_once() -> None:
    rig = worker("managed_turn")
    take(rig)
    [frame] = rig.written()
    rig.feed(refused(frame, "store_unusable"))
    with pytest.raises(RequestRefused) as caught:
        take(rig)
    assert caught.value.code == "store_unusable"
    assert take(rig) is None


def test_a_session_that_takes_no_work_is_told() -> None:
    rig = Rig()
    rig.register(**GRANTED)
    with pytest.raises(UsageError):
        take(rig)


def test_a_broker_that_gives_no_work_is_told() -> None:
    """FE 0.6: a feature that was not granted."""
    rig = Rig(work_mode="resident")
    rig.register(**GRANTED)
    with pytest.raises(RequestRefused) as caught:
        take(rig)
    assert caught.value.code == "feature_not_granted"


# --- the end


def last_words(rig: Rig) -> list[Frame]:
    rig.core.close(rig.now, finished=True)
    return [
        {name: frame.get(name) for name in ("assignmentId", "state", "retryable", "reasonCode")}
        for frame in rig.written()
        if frame["type"] == "assignment_report"
    ]


def test_a_worker_that_leaves_gives_back_what_it_has_not_accepted() -> None:
    """At once, not when the deadline comes; what it accepted was cut off at a point nobody knows."""
    rig = worker()
    rig.feed(pushed("as1"), pushed("as2"), pushed("as3"), pushed("as4"))
    kept = [taken(rig), taken(rig), taken(rig)]
    [frame] = rig.begin(rig.core.work.report(kept[0], "accepted", None, None, False, None, 30))
    rig.feed(recorded(frame))
    [frame] = rig.begin(rig.core.work.report(kept[1], "failed", None, None, False, None, 30))
    rig.feed(recorded(frame))
    told = {frame["assignmentId"]: frame for frame in last_words(rig)}
    assert set(told) == {"as1", "as3", "as4"}
    assert (told["as1"]["state"], told["as1"]["retryable"]) == ("interrupted", None)
    assert {(told[name]["state"], told[name]["retryable"]) for name in ("as3", "as4")} == {("failed", True)}
    assert {frame["reasonCode"] for frame in told.values()} == {"worker_left"}


def test_what_the_program_holds_no_more_is_left_to_the_broker() -> None:
    rig = worker()
    rig.feed(pushed("as1"))
    taken(rig)
    gc.collect()
    assert last_words(rig) == []


def test_claimed_work_outlives_the_session() -> None:
    """Design section 7, identity of a command: later commands of the identity go on with it."""
    rig = worker()
    [frame] = rig.begin(rig.core.work.claim("in1", 30))
    rig.feed({**granted(frame["requestId"]), "assignment": info()})
    [operation] = rig.settled()
    assert isinstance(operation.result, Assignment)
    assert last_words(rig) == []
