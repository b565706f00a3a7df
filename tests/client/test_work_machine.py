"""Let everything happen to a worker in any order: work comes, comes again, is granted, connections end, time passes."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.client.assignment import Assignment
from intercom.client.notices import Settled
from intercom.client.operations import Operation
from intercom.client.session import Link
from intercom.errors import AssignmentLost, IntercomError
from intercom.limits import ACCEPT_MARGIN_MS
from tests.support.client import GRANTED, WALL, Frame, Rig
from tests.support.work import WORK_FEATURES, granted, pushed, recorded, refused

SPOKEN = ("assignment_report", "assignment_reply")
TOLD: dict[str, Any] = {**GRANTED, "features": WORK_FEATURES}


class Worker(RuleBasedStateMachine):
    """Be a worker that takes what is pushed and asks for more.

    An assignment is shown once, and never when it can hardly be accepted any more. One search is under way at a time.
    What is said of work is repeated under its own id until it is answered, and settled no later than its deadline.
    What was written and never answered is never told as not said.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(work_mode="managed_turn", runtime_session_id="host-1")
        self.began = self.rig.now
        self.shown: list[Assignment] = []
        self.deadlines: dict[str, int] = {}
        self.searches: list[Frame] = []
        self.said: dict[str, Frame] = {}
        """The last frame of everything that was said, by the id it names itself with."""
        self.written: set[str] = set()
        """What the present operation of that name has written at least once."""
        self.answered: set[str] = set()
        self.begun: dict[str, Operation[Any]] = {}
        self.settled: list[Operation[Any]] = []

    @property
    def wall(self) -> int:
        return WALL + self.rig.now - self.began

    def after(self, frames: list[Frame]) -> None:
        searches = [frame for frame in frames if frame["type"] == "inbox_await"]
        assert len(self.searches) + len(searches) <= 1
        self.searches += searches
        for frame in frames:
            if frame["type"] in SPOKEN:
                name = f"{frame['assignmentId']} {frame.get('stateEventId') or frame.get('replyRequestId')}"
                before = self.said.get(name)
                assert before is None or {**before, "requestId": ""} == {**frame, "requestId": ""}
                self.said[name] = frame
                self.written.add(name)
        for event in self.rig.events():
            if isinstance(event, Settled) and event.operation in self.begun.values():
                assert event.operation not in self.settled
                self.settled.append(event.operation)

    def online(self) -> bool:
        return self.rig.core.link is Link.ONLINE

    @initialize()
    def begin(self) -> None:
        self.after(self.rig.register(**TOLD))

    @precondition(lambda self: self.rig.core.link is Link.OFFLINE)
    @rule(is_taken_back=st.booleans())
    def connect(self, is_taken_back: bool) -> None:
        first = self.rig.dial()
        if first["type"] == "register":
            self.after(self.rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, **TOLD}))
            return
        if is_taken_back:
            told = {"sessionId": self.rig.core.session_id, "incarnation": "one", "generation": 2, "mailboxCount": 0}
            frame = {"type": "session_reattached", "requestId": first["requestId"], **told}
            self.after(self.rig.feed({**frame, "features": WORK_FEATURES}))
            return
        self.after(self.rig.feed(refused(first, "unknown_session")))
        self.after(self.rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True, **TOLD}))

    @precondition(lambda self: self.online())
    @rule()
    def connection_ends(self) -> None:
        self.searches.clear()
        self.rig.lose()
        self.after([])

    def deadline_of(self, number: int) -> int:
        return self.deadlines.setdefault(f"as{number}", self.wall + 30_000)

    @precondition(lambda self: self.online())
    @rule(number=st.integers(1, 6))
    def work_is_pushed(self, number: int) -> None:
        frames = self.rig.feed(pushed(f"as{number}", acceptDeadline=self.deadline_of(number)))
        assert [frame["type"] for frame in frames].count("received") == 1
        self.after(frames)

    @precondition(lambda self: self.searches and self.online())
    @rule(number=st.integers(1, 6))
    def work_is_granted(self, number: int) -> None:
        search = self.searches.pop()
        self.after(self.rig.feed(granted(search["requestId"], f"as{number}", acceptDeadline=self.deadline_of(number))))

    @precondition(lambda self: self.searches and self.online())
    @rule()
    def nothing_came(self) -> None:
        self.after(self.rig.feed({"type": "inbox_nothing", "requestId": self.searches.pop()["requestId"]}))

    @precondition(lambda self: self.searches and self.online())
    @rule(code=st.sampled_from(["not_recorded", "broker_draining", "store_unusable"]))
    def search_is_refused(self, code: str) -> None:
        self.after(self.rig.feed(refused(self.searches.pop(), code, retryable=code != "store_unusable")))

    @rule()
    def take(self) -> None:
        try:
            work = self.rig.core.take_work(self.wall, None, claims=False)
        except IntercomError as error:
            assert error.code == "store_unusable"
            work = None
        if work is not None:
            assert work.id not in [shown.id for shown in self.shown]
            assert self.deadlines[work.id] - self.wall > ACCEPT_MARGIN_MS
            self.shown.append(work)
        self.after(self.rig.written())

    @precondition(lambda self: self.shown)
    @rule(data=st.data(), state=st.sampled_from(["accepted", "failed", "reply"]), seconds=st.integers(1, 60))
    def say(self, data: st.DataObject, state: str, seconds: int) -> None:
        work = data.draw(st.sampled_from(self.shown))
        name = f"{work.id} {state}"
        if name in self.begun and not self.begun[name].done:
            return
        make = self.rig.core.work
        operation: Operation[Any] = (
            make.reply(work, "42", (), None, seconds)
            if state == "reply"
            else make.report(work, state, None, None, False, None, seconds)
        )
        self.begun[name] = operation
        self.written.discard(name)
        self.after(self.rig.begin(operation))

    @precondition(lambda self: self.said and self.online())
    @rule(data=st.data(), answer=st.sampled_from(["done", "lost", "again"]))
    def answer(self, data: st.DataObject, answer: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.said)))
        frame = self.said[name]
        if answer == "again":
            self.after(self.rig.feed(refused(frame, "not_recorded", retryable=True)))
            return
        self.answered.add(name)
        if answer == "lost":
            self.after(self.rig.feed(refused(frame, "assignment_unknown")))
        elif frame["type"] == "assignment_report":
            self.after(self.rig.feed(recorded(frame)))
        else:
            done = {"requestId": frame["requestId"], "messageId": "r1", "status": "sent"}
            self.after(self.rig.feed({"type": "assignment_replied", **done}))

    @rule(milliseconds=st.sampled_from([1, 1_000, 5_000, 29_500, 60_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.after(self.rig.pass_time(milliseconds))

    @invariant()
    def everything_is_settled_in_time(self) -> None:
        for operation in self.begun.values():
            assert operation.done or operation.deadline is None or self.rig.now < operation.deadline

    @invariant()
    def what_was_said_and_not_answered_is_never_called_unsaid(self) -> None:
        for name, operation in self.begun.items():
            if isinstance(operation.error, AssignmentLost):
                assert name in self.answered
            elif isinstance(operation.error, IntercomError) and name in self.written - self.answered:
                assert operation.error.code in ("request_timeout", "not_recorded")

    def teardown(self) -> None:
        """What the program holds and nobody has ended is named once, in the goodbye."""
        if not self.online():
            return
        self.rig.core.close(self.rig.now, finished=True)
        last = [frame for frame in self.rig.written() if frame["type"] == "assignment_report"]
        named = [frame["assignmentId"] for frame in last]
        assert len(named) == len(set(named))
        assert {work.id for work in self.shown if not work.is_over} <= set(named)


TestWorker = Worker.TestCase
TestWorker.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
