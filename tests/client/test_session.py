"""The session as a whole: messages and receipts, requests, reconnects, the end; and chaos."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.client import commands
from intercom.client.feeds import Feed, SessionEvent
from intercom.client.inbox import REMEMBERED_MS
from intercom.client.operations import Operation
from intercom.client.owning import Announcement, ask_host
from intercom.client.sending import SendOperation
from intercom.client.session import Happened, Link, Settled, Troubled
from intercom.client.staging import GoingLive, LiveStage
from intercom.errors import (
    AccessDenied,
    BrokerBusy,
    ConnectionLost,
    IntercomError,
    NoBroker,
    ProtocolViolation,
    RegistrationRefused,
    StartFailed,
    UsageError,
)
from intercom.limits import (
    CONNECT_MS,
    HEARTBEAT_LOOK_MS,
    HEARTBEAT_LOOKS,
    HEARTBEAT_MS,
    INCOMING_MESSAGES,
    REQUEST_MS,
    STAGE_LIVE_MS,
)
from intercom.wire import reasons
from tests.support.client import GRANTED, OTHER, PEER, UNANSWERED, WALL, Frame, Rig, message
from tests.support.hosting import GROUP, ROOT, Host, run_of
from tests.support.raw import packed


class Consumer:
    """Take messages."""


def online(**profile: Any) -> Rig:
    rig = Rig(**profile)
    rig.register()
    return rig


def error_of(rig: Rig) -> IntercomError:
    [operation] = rig.settled()
    assert operation.error is not None
    return operation.error


def shown(rig: Rig, consumer: object) -> str | None:
    found = rig.core.take_message(consumer, rig.now)
    return None if found is None else found.id


# --- connecting -----------------------------------------------------------------------------------------


def test_opening() -> None:
    rig = Rig()
    opening = rig.core.opening(rig.now, 10_000)
    rig.begin(opening)
    rig.register("b1")
    assert rig.settled() == [opening]
    assert (rig.core.session_id, rig.core.link) == ("b1", Link.ONLINE)


def test_opening_goes_on_while_it_only_looks_for_a_broker() -> None:
    """Two that died while this session registered are no reason to give up before one may be started."""
    rig = Rig()
    opening = rig.core.opening(rig.now, 10_000)
    rig.begin(opening)
    for _ in range(2):
        rig.connect()
        rig.lose()
    could_start = []
    while not opening.done:
        at = rig.core.recovery.at
        assert at is not None
        rig.pass_time(at - rig.now)
        could_start.append(rig.core.recovery.may_start)
        rig.fail(NoBroker("none"))
    assert could_start[0] is False
    assert could_start[-1] is True
    assert isinstance(opening.error, NoBroker)


def test_opening_an_open_session() -> None:
    rig = online()
    opening = rig.core.opening(rig.now, 10_000)
    rig.begin(opening)
    assert opening.done


@pytest.mark.parametrize("error", [NoBroker("no"), StartFailed("no"), AccessDenied("no")])
def test_opening_fails_at_once_when_waiting_does_not_help(error: IntercomError) -> None:
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.fail(error)
    assert type(error_of(rig)) is type(error)


def test_opening_waits_for_a_busy_broker() -> None:
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 3_000))
    rig.fail(BrokerBusy("full"))
    assert rig.settled() == []
    rig.pass_time(3_000)
    assert isinstance(error_of(rig), BrokerBusy)


def test_a_broker_that_stays_silent_is_named_busy() -> None:
    """F6: not responding, and not: no broker."""
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 3_000))
    rig.connect()
    rig.pass_time(3_000)
    error = error_of(rig)
    assert isinstance(error, BrokerBusy)
    assert error.reason == UNANSWERED


def test_a_silent_connection_is_given_up() -> None:
    """Protocol 7: connect and register 10 s."""
    rig = Rig()
    rig.connect()
    rig.pass_time(CONNECT_MS)
    assert rig.is_broken


def test_a_refused_registration() -> None:
    """Protocol 5.2."""
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.connect()
    rig.feed({"type": "registration_failed", "reason": "no"})
    assert rig.is_broken
    rig.lose()
    assert isinstance(error_of(rig), RegistrationRefused)


def test_a_connection_that_ends_before_it_registered_is_made_again() -> None:
    """A broker that shuts down may still accept."""
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.connect()
    rig.lose()
    assert rig.core.recovery.at == rig.now
    rig.register()
    assert rig.settled()[0].error is None


def test_what_an_attempt_stands_at_is_told_when_time_is_up() -> None:
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 1_000))
    rig.core.connecting()
    rig.core.standing(BrokerBusy("full"))
    rig.pass_time(1_000)
    assert isinstance(error_of(rig), BrokerBusy)


def test_the_system_may_refuse_to_go_on() -> None:
    """F136: writing is forbidden by a sandbox."""
    rig = Rig()
    rig.begin(rig.core.opening(rig.now, 10_000))
    rig.connect()
    rig.core.eof(rig.now, AccessDenied("not here"))
    assert isinstance(error_of(rig), AccessDenied)


def test_a_call_forces_an_attempt_now() -> None:
    """F8."""
    rig = online()
    rig.lose()
    rig.fail(BrokerBusy("full"))
    assert rig.core.recovery.at is not None and rig.core.recovery.at > rig.now
    rig.begin(commands.list_groups(now=rig.now))
    assert rig.core.recovery.at == rig.now


def test_consumers_are_told_once_when_no_broker_will_come() -> None:
    """F131: broker kept down, exactly one report."""
    rig = online()
    rig.lose()
    for _ in range(2):
        rig.fail(StartFailed("it ends"))
        assert rig.events() == []
    rig.fail(StartFailed("it ends"))
    assert [type(event) for event in rig.events()] == [Troubled]
    assert rig.core.has_news
    assert isinstance(rig.core.take_trouble(), StartFailed)
    assert rig.core.take_trouble() is None
    assert not rig.core.has_news
    assert rig.core.recovery.at is not None, "exactly one timer owns recovery (F8)"
    rig.fail(AccessDenied("no"))
    assert rig.core.take_trouble() is None
    rig.register()
    rig.lose()
    rig.fail(AccessDenied("no"))
    assert isinstance(rig.core.take_trouble(), AccessDenied)


def test_repeated_violations_are_told() -> None:
    rig = online()
    listing = commands.list_groups(now=rig.now, timeout_ms=60_000)
    rig.begin(listing)
    for _ in range(3):
        rig.core.receive(packed({"type": "surprise"}), rig.now)
        assert rig.is_broken
        rig.lose()
        if not listing.done:
            rig.register()
    assert isinstance(listing.error, ProtocolViolation)


# --- the end --------------------------------------------------------------------------------------------


def test_leaving_confirms_and_says_goodbye() -> None:
    """Protocol 4.2; design section 7, Receipts."""
    rig, consumer = online(), Consumer()
    rig.feed(message("m1"), message("m2"))
    shown(rig, consumer)
    listing = commands.list_groups(now=rig.now)
    rig.begin(listing)
    rig.core.close(rig.now, finished=True)
    assert rig.written() == [{"type": "received", "messageId": "m1"}, {"type": "unregister"}]
    assert isinstance(listing.error, ConnectionLost)
    rig.core.close(rig.now, finished=True)
    assert rig.written() == []


def test_leaving_by_an_exception_does_not_confirm() -> None:
    rig, consumer = online(), Consumer()
    rig.feed(message("m1"))
    shown(rig, consumer)
    rig.core.close(rig.now, finished=False)
    assert rig.written() == [{"type": "unregister"}]


def test_a_closed_session_does_nothing_more() -> None:
    rig = online()
    rig.core.close(rig.now, finished=True)
    rig.written()
    rig.core.receive(packed(message("m1")), rig.now)
    rig.core.eof(rig.now)
    assert (rig.core.link, rig.core.recovery.at) == (Link.CLOSED, None)
    with pytest.raises(UsageError):
        rig.begin(commands.list_groups(now=rig.now))


# --- what happens around it -----------------------------------------------------------------------------


def taken(feed: Feed) -> list[SessionEvent]:
    events = []
    while (event := feed.take()) is not None:
        events.append(event)
    return events


def test_others_come_change_and_go() -> None:
    """Protocol 5.17 to 5.19."""
    rig = online()
    feed = rig.core.feed()
    rig.feed(
        {"type": "session_joined", "session": PEER},
        {"type": "presence_update", "session": {**PEER, "status": "busy"}},
        {"type": "session_left", "sessionId": PEER["id"]},
    )
    assert [type(event) for event in rig.events()] == [Happened] * 3
    joined, changed, left = taken(feed)
    assert (joined.kind, joined.session_id) == ("joined", PEER["id"])
    assert joined.session is not None
    assert joined.session.name == "worker"
    assert (changed.kind, changed.session and changed.session.status) == ("presence", "busy")
    assert left == SessionEvent(kind="left", session_id=PEER["id"])


def test_news_about_others_changes_nothing() -> None:
    rig = online()
    written = rig.feed(
        {"type": "session_joined", "session": OTHER},
        {"type": "presence_update", "session": OTHER},
        {"type": "session_left", "sessionId": OTHER["id"]},
    )
    assert (written, rig.events()) == ([], [])


def test_what_nobody_listens_to_is_not_looked_at() -> None:
    rig = online()
    rig.feed({"type": "session_joined", "session": {"id": 5}})
    assert rig.events() == []
    assert rig.core.link is Link.ONLINE
    feed = rig.core.feed()
    rig.feed({"type": "session_joined", "session": {"id": 5}})
    assert rig.is_broken
    assert taken(feed) == []


def test_a_connection_that_is_lost_and_made_again_is_told_once_each() -> None:
    rig = online()
    feed = rig.core.feed()
    rig.lose()
    rig.fail(BrokerBusy("full"))
    rig.connect()
    rig.lose()
    assert taken(feed) == [SessionEvent(kind="disconnected", reason="The connection to the broker ended")]
    rig.register("me2")
    assert taken(feed) == [SessionEvent(kind="reconnected", session_id="me2")]
    rig.core.close(rig.now, finished=True)
    rig.lose()
    assert taken(feed) == []


# --- heartbeat ------------------------------------------------------------------------------------------

ANSWERING: dict[str, Any] = {"brokerStatus": True}


def test_a_silent_broker_is_asked_and_then_left() -> None:
    """Protocol 4.20; design section 9: a broker that does not answer is busy."""
    rig = Rig()
    rig.register(**ANSWERING)
    feed = rig.core.feed()
    [asked] = rig.pass_time(HEARTBEAT_MS)
    assert asked["type"] == "health"
    assert len(asked["requestId"]) <= 128
    assert rig.feed({"type": "health", "requestId": asked["requestId"], "instanceId": "i"}) == []
    assert rig.pass_time(HEARTBEAT_MS - 1) == []
    assert [frame["type"] for frame in rig.pass_time(1)] == ["health"]
    assert rig.pass_time(HEARTBEAT_LOOKS * HEARTBEAT_LOOK_MS - 1) == []
    assert not rig.is_broken
    rig.pass_time(1)
    assert rig.is_broken
    rig.lose()
    assert taken(feed) == [SessionEvent(kind="disconnected", reason=UNANSWERED)]
    assert rig.core.recovery.at is not None
    assert not rig.core.has_news, "nobody has to look"
    assert rig.pass_time(HEARTBEAT_MS) == []


def test_a_broker_that_knows_no_health_is_not_asked() -> None:
    """Protocol 4.20 is new: to an older broker it is a protocol error."""
    rig = online()
    assert rig.pass_time(10 * HEARTBEAT_MS) == []


def test_a_process_that_was_stopped_does_not_leave_its_broker() -> None:
    """F106: the answer may lie unread in the kernel."""
    rig = Rig()
    rig.register(**ANSWERING)
    rig.pass_time(HEARTBEAT_MS)
    rig.now += 600_000
    rig.core.tick(rig.now)
    assert not rig.is_broken
    rig.feed({"type": "health", "requestId": "id1", "instanceId": "i"})
    assert rig.core.deadline() == rig.now + HEARTBEAT_MS


def test_a_session_that_stopped_reading_does_not_judge() -> None:
    rig = Rig()
    rig.register(**ANSWERING)
    rig.feed(*(message(f"m{number}") for number in range(INCOMING_MESSAGES)))
    rig.pass_time(10 * HEARTBEAT_MS)
    assert not rig.is_broken


# --- chaos ----------------------------------------------------------------------------------------------


PROMISED = {
    "register_pending_stage_route": "pending_stage_route_registered",
    "register_live_workflow_stage_route": "live_workflow_stage_route_registered",
}
"""What a session promises, and how the broker takes it."""


class Chaos(RuleBasedStateMachine):
    """Let everything happen in any order.

    No move is illegal, only whole frames are written, every operation is settled once and not later than its
    deadline, what was written and never answered is never told as not sent, and no message is shown twice for as long
    as the broker may see it repeated.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(group=GROUP)
        self.run = run_of(self.rig)
        self.promises: list[Frame] = []
        self.consumer = Consumer()
        self.begun: list[Operation[Any]] = []
        self.settled: list[Operation[Any]] = []
        self.withdrawn: list[Operation[Any]] = []
        self.sent: list[Frame] = []
        self.requests: list[Frame] = []
        self.shown: dict[str, int] = {}
        self.questions: list[Any] = []
        self.known_not_sent: set[str] = set()
        self.numbers = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def after(self, frames: list[Frame]) -> None:
        self.sent += [frame for frame in frames if frame["type"] == "send"]
        self.requests += [frame for frame in frames if frame["type"] == "list_groups"]
        self.promises += [frame for frame in frames if frame["type"] in PROMISED]
        for event in self.rig.events():
            if isinstance(event, Settled):
                assert event.operation not in self.settled
                self.settled.append(event.operation)

    def online(self) -> bool:
        return self.rig.core.link is Link.ONLINE

    @initialize()
    def begin(self) -> None:
        self.after(self.rig.register(**ANSWERING))

    @precondition(lambda self: self.rig.core.link is Link.OFFLINE)
    @rule()
    def connect(self) -> None:
        self.after(self.rig.register(**ANSWERING))

    @precondition(lambda self: self.rig.core.link is Link.OFFLINE)
    @rule(error=st.sampled_from([BrokerBusy("b"), StartFailed("s"), NoBroker("n"), AccessDenied("a")]))
    def attempt_fails(self, error: IntercomError) -> None:
        self.rig.fail(error)
        self.after([])

    @rule()
    def process_is_stopped(self) -> None:
        self.rig.now += 600_000
        is_online = self.online()
        self.rig.core.tick(self.rig.now)
        self.after(self.rig.written())
        assert self.online() == is_online, "F106"

    @precondition(lambda self: self.rig.core.link in (Link.ONLINE, Link.BROKEN))
    @rule()
    def connection_ends(self) -> None:
        self.rig.lose()
        self.after([])

    @rule(timeout=st.integers(1, 30_000))
    def send(self, timeout: int) -> None:
        self.start(
            commands.send(
                "worker", "hi", message_id=f"m{self.number()}", now=self.rig.now, wall=WALL, timeout_ms=timeout
            )
        )

    @rule(timeout=st.integers(1, 100_000))
    def ask(self, timeout: int) -> None:
        self.start(
            commands.ask(
                "worker", "hi", message_id=f"q{self.number()}", now=self.rig.now, wall=WALL, timeout_ms=timeout
            )
        )

    @rule()
    def request(self) -> None:
        self.start(commands.list_groups(now=self.rig.now))

    @rule()
    def announce(self) -> None:
        announced = self.run.changed([], None)
        runs = self.rig.core.commitments.runs
        self.start(Announcement(runs, self.run, announced, self.rig.now + REQUEST_MS))

    @rule()
    def go_live(self) -> None:
        place = self.rig.core.commitments.stage
        if place.stage is None and (place.operation is None or place.operation.done):
            stage = LiveStage(run_id=ROOT, keys=("st-1",), capability="cap")
            self.start(GoingLive(place, stage, self.rig.now + STAGE_LIVE_MS))

    @rule()
    def leave_stage(self) -> None:
        stage = self.rig.core.commitments.stage.stage
        if stage is not None:
            self.rig.core.leave_stage(stage)
            self.after(self.rig.written())

    @precondition(lambda self: self.promises and self.online())
    @rule(data=st.data())
    def promise_is_taken(self, data: st.DataObject) -> None:
        promise = data.draw(st.sampled_from(self.promises))
        self.after(self.rig.feed({"type": PROMISED[promise["type"]], "requestId": promise["requestId"]}))

    @precondition(lambda self: self.online())
    @rule(code=st.sampled_from([None, "owner_missing", "duplicate_live_owner", "capability_mismatch"]))
    def promise_is_refused(self, code: str | None) -> None:
        refusal = {"type": "registration_failed", "reason": reasons.ROUTE_NOT_AUTHORIZED}
        self.after(self.rig.feed(refusal if code is None else {**refusal, "code": code}))
        assert self.rig.is_broken

    @precondition(lambda self: self.online())
    @rule(number=st.integers(1, 3))
    def host_is_asked(self, number: int) -> None:
        asked = {"requestId": f"x{number}", "from": PEER, "runId": ROOT, "target": f"{GROUP}/st-1"}
        message = {"id": f"w{number}", "timestamp": 1, "content": {"text": "hi"}}
        self.after(self.rig.feed({"type": "pending_stage_message", **asked, "message": message}))

    @rule()
    def host_answers(self) -> None:
        runs = self.rig.core.commitments.runs
        waiting = sum(len(run.waiting) for run in runs.waiting())
        for run in runs.waiting():
            ask_host(runs, run, Host())
        frames = self.rig.written()
        self.after(frames)
        answers = [frame for frame in frames if frame["type"] == "pending_stage_message_result"]
        assert len(answers) == (waiting if self.online() else 0)

    @precondition(lambda self: self.questions)
    @rule()
    def reply(self) -> None:
        question = self.questions.pop()
        self.start(commands.reply(question, "yes", message_id=f"r{self.number()}", now=self.rig.now, wall=WALL))

    def start(self, operation: Operation[Any]) -> None:
        self.begun.append(operation)
        self.after(self.rig.begin(operation))

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        operation = data.draw(st.sampled_from(self.begun))
        if not operation.done:
            self.withdrawn.append(operation)
        self.rig.core.withdraw(operation, self.rig.now)
        self.after(self.rig.written())

    @rule(milliseconds=st.sampled_from([1, 200, 5_000, 20_000, 60_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.after(self.rig.pass_time(milliseconds))

    @precondition(lambda self: self.sent and self.online())
    @rule(
        data=st.data(), answer=st.sampled_from(["delivered", "queued", "held", "target", "reply", "gone", "terminal"])
    )
    def answer(self, data: st.DataObject, answer: str) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        message_id, attempt = sent["message"]["id"], sent["attemptId"]
        answered: Frame = {"messageId": message_id, "attemptId": attempt}
        frames: dict[str, Frame] = {
            "delivered": {"type": "delivered", **answered},
            "queued": {"type": "queued", **answered, "target": "worker", "position": 1},
            "held": {"type": "send_held", **answered, "timeoutMs": 30_000},
            "target": {"type": "question_target", **answered, "sessionId": PEER["id"]},
            "reply": message(f"a{self.number()}", replyTo=message_id),
            "gone": {"type": "peer_disconnected", "replyTo": message_id, "peerSessionId": PEER["id"]},
            "terminal": message(f"terminal:{message_id}", replyTo=message_id, replyError="no"),
        }
        self.after(self.rig.feed(frames[answer]))

    @precondition(lambda self: self.sent and self.online())
    @rule(
        data=st.data(),
        reason=st.sampled_from(
            [
                reasons.SESSION_NOT_FOUND,
                reasons.NO_OPEN_QUESTION,
                reasons.SENDER_NOT_FOUND,
                reasons.RECEIPT_MISSING,
                reasons.NOT_RECORDED,
                reasons.UNCERTAIN,
                reasons.DIFFERENT_GROUP,
            ]
        ),
    )
    def refuse(self, data: st.DataObject, reason: str) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        answered = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        if reason not in (reasons.RECEIPT_MISSING, reasons.UNCERTAIN):
            self.known_not_sent.add(sent["message"]["id"])
        self.after(self.rig.feed({"type": "delivery_failed", **answered, "reason": reason}))

    @precondition(lambda self: self.requests and self.online())
    @rule(data=st.data())
    def answer_request(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        self.after(self.rig.feed({"type": "groups", "requestId": request["requestId"], "groups": []}))

    @precondition(lambda self: self.online())
    @rule(number=st.integers(1, 5), asks=st.booleans())
    def message_comes(self, number: int, asks: bool) -> None:
        self.after(self.rig.feed(message(f"x{number}", expectsReply=asks)))

    @rule()
    def take(self) -> None:
        found = self.rig.core.take_message(self.consumer, self.rig.now)
        if found is not None:
            before = self.shown.get(found.id)
            assert before is None or self.rig.now - before >= REMEMBERED_MS
            self.shown[found.id] = self.rig.now
            if found.expects_reply:
                self.questions.append(found)
        self.after(self.rig.written())

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def result_is_taken(self, data: st.DataObject) -> None:
        self.rig.core.taken(data.draw(st.sampled_from(self.settled)), self.rig.now)
        self.after(self.rig.written())

    @invariant()
    def everything_is_settled_in_time(self) -> None:
        for operation in self.begun:
            assert operation.done or operation.deadline is None or self.rig.now < operation.deadline
            assert not operation.done or operation in self.settled or operation in self.withdrawn

    @invariant()
    def recovery_is_owned(self) -> None:
        """F8: at all times connected, or one timer."""
        assert (self.rig.core.link is Link.OFFLINE) == (self.rig.core.recovery.at is not None)

    @invariant()
    def nothing_is_kept_for_what_is_settled(self) -> None:
        assert len(self.rig.core._pursuit) == sum(not operation.done for operation in self.begun)

    def teardown(self) -> None:
        self.rig.core.close(self.rig.now, finished=True)
        self.after(self.rig.written())
        self.everything_is_settled_in_time()
        written = {frame["message"]["id"] for frame in self.sent} - self.known_not_sent
        for operation in self.settled:
            if type(operation) is SendOperation and operation.message_id in written:
                assert not isinstance(operation.error, ConnectionLost | BrokerBusy | StartFailed | NoBroker)


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class ChaosWithLifecycle(Chaos):
    """Let the broker grant features, and take a session back or not: the promises are the same."""

    @initialize()
    def begin(self) -> None:
        self.after(self.rig.register(**ANSWERING, **GRANTED))

    @precondition(lambda self: self.rig.core.link is Link.OFFLINE)
    @rule(answer=st.sampled_from(["taken back", "refused", "not ready", "ends"]), session_id=st.sampled_from("abc"))
    def connect(self, answer: str = "taken back", session_id: str = "a") -> None:
        first = self.rig.dial()
        registered = {"type": "registered", "sessionId": session_id, **ANSWERING, **GRANTED}
        if answer == "ends":
            self.rig.lose()
            self.after([])
        elif first["type"] == "register":
            self.after(self.rig.feed(registered))
        elif answer == "taken back":
            told = {"sessionId": self.rig.core.session_id, "incarnation": "one", "generation": 2, "mailboxCount": 0}
            frame = {"type": "session_reattached", "requestId": first["requestId"], **told}
            self.after(self.rig.feed({**frame, "features": GRANTED["features"]}))
        else:
            refused = {"requestId": first["requestId"], "code": "c", "reason": "r", "retryable": answer == "not ready"}
            self.after(self.rig.feed({"type": "request_failed", **refused}))
            if answer == "refused":
                self.after(self.rig.feed(registered))
        assert self.rig.core.link in (Link.OFFLINE, Link.ONLINE, Link.BROKEN)

    @rule()
    def ask_what_is_owed(self) -> None:
        self.start(self.rig.mail.pending(REQUEST_MS / 1000))

    @precondition(lambda self: self.online())
    @rule(number=st.integers(1, 5), offers=st.integers(1, 3))
    def mail_comes(self, number: int, offers: int) -> None:
        mail = {"entry": number, "queuedAt": 1, "ageMs": 5, "offers": offers}
        self.after(self.rig.feed({**message(f"x{number}"), "mail": mail}))


TestChaosWithLifecycle = ChaosWithLifecycle.TestCase
TestChaosWithLifecycle.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
