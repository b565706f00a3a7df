"""The blocking engine, against brokers that do odd things."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from intercom.client import blocking, setup
from intercom.errors import (
    AccessDenied,
    BrokerError,
    NoBroker,
    OutcomeUnknown,
    ProtocolViolation,
    RegistrationRefused,
    RequestRefused,
    RequestTimeout,
    SessionReplaced,
    UsageError,
)
from intercom.paths import Paths
from tests.support.client import GRANTED, PEER, message
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.processes import in_child
from tests.support.raw import PATIENCE_S, Frame


class Interrupted:
    """Be the poll during which Ctrl-C comes, once."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll
        self._came = False

    def poll(self, timeout: float | None) -> Any:
        if not self._came:
            self._came = True
            raise KeyboardInterrupt
        return self._poll.poll(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)


def fake_session(paths: Paths, **options: Any) -> Any:
    return blocking.connect("ada", home=paths.home, start=False, **options)


def test_the_answer_may_come_first(paths: Paths) -> None:
    """F65: before delivered, and without it."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        link.send(
            {
                "type": "question_target",
                "messageId": asked["message"]["id"],
                "attemptId": asked["attemptId"],
                "sessionId": PEER["id"],
            },
            message("r1", "yes", replyTo=asked["message"]["id"]),
        )
        link.expect("received", messageId="r1")

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        assert session.ask("worker", "ok?").text == "yes"


def test_a_lost_connection_is_replaced_and_the_send_repeated(paths: Paths) -> None:
    """F76: the answer never came; the same id goes out again."""
    seen: list[Frame] = []

    def script(link: FakeLink, number: int) -> None:
        registration = link.take_registration("b1")
        seen.extend([registration, link.expect("send")])
        if number == 1:
            link.deliver(seen[-1])
            link.wait_for_end()

    with FakeBroker(paths.socket, script, connections=2), fake_session(paths, session_id="b1") as session:
        assert session.send("worker", "hi").state == "delivered"
    first, sent, second, repeated = seen
    assert second["preferredSessionId"] == "b1"
    assert second["returnAddress"] == first["returnAddress"]
    assert repeated["message"] == sent["message"]
    assert repeated["attemptId"] != sent["attemptId"]


def test_leaving_the_block_confirms_and_says_goodbye(paths: Paths) -> None:
    """Protocol 4.2: unregister, then FIN."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.send(message("m1"))
        ends.append(link.wait_for_end())

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        for found in session.messages():
            assert found.id == "m1"
            break
    assert ends == [[{"type": "received", "messageId": "m1"}, {"type": "unregister"}]]


def test_an_interrupted_ask_is_withdrawn(paths: Paths) -> None:
    """Design section 9: 130 interrupted, the ask is withdrawn."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        asked = link.expect("send")
        ends.append([asked, *link.wait_for_end()])

    with FakeBroker(paths.socket, script), pytest.raises(KeyboardInterrupt), fake_session(paths) as session:
        session._engine._poll = Interrupted(session._engine._poll)
        session.ask("worker", "ok?")
    [[asked, *rest]] = ends
    assert rest == [{"type": "cancel_ask", "messageId": asked["message"]["id"]}, {"type": "unregister"}]


def test_an_interrupt_while_writing_breaks_the_connection(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: all of a frame, or the connection is broken on purpose."""
    ends: list[list[Frame]] = []

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        if number == 0:
            ends.append(link.wait_for_end())
        else:
            link.deliver(link.expect("send"))
            link.wait_for_end()

    write = os.write

    def interrupted(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:10])
        raise KeyboardInterrupt

    with FakeBroker(paths.socket, script, connections=2), fake_session(paths) as session:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.send("worker", "one")
        assert session.send("worker", "two").state == "delivered"
    assert ends == [[]], "no whole frame, and nothing after the half one"


def test_a_large_message_to_a_slow_reader(paths: Paths) -> None:
    """A frame may be written in many parts, over several calls."""
    text = "x" * (2 << 20)
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        late, listing = link.receive(), link.receive()
        assert (late["message"]["content"]["text"], listing["type"]) == (text, "list")
        link.send({"type": "sessions", "requestId": listing["requestId"], "sessions": [PEER]})
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        with pytest.raises(Exception, match="did not say in time"):
            session.send("worker", text, timeout=0.2)
        go.set()
        assert [view.name for view in session.list()] == ["worker"]


def test_a_broker_that_says_no_before_it_closes(paths: Paths) -> None:
    """Protocol 5.2: registration_failed, then FIN."""

    def script(link: FakeLink, number: int) -> None:
        link.expect("register")
        link.send({"type": "registration_failed", "reason": "not you"})

    with FakeBroker(paths.socket, script), pytest.raises(RegistrationRefused, match="not you"), fake_session(paths):
        pass


def test_a_broker_that_speaks_another_language(paths: Paths) -> None:
    """F42: one clear error."""

    def script(link: FakeLink, number: int) -> None:
        link.receive()
        link.send_bytes(b"HTTP/1.1 400 Bad Request\r\n")
        link.wait_for_end()

    named = pytest.raises(ProtocolViolation, match="48 54 54 50")
    with FakeBroker(paths.socket, script), named, fake_session(paths):
        pass


def test_a_request_that_is_not_answered(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    from intercom.client import commands

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session, pytest.raises(RequestTimeout):
        session._engine.wait(lambda: commands.list_groups(now=setup.now(), timeout_ms=50))


def test_writing_may_be_forbidden(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F136: DENIED within a second."""

    def script(link: FakeLink, number: int) -> None:
        link.wait_for_end()

    def refuse(descriptor: int, data: bytes) -> int:
        raise PermissionError(1, "Operation not permitted")

    started = time.monotonic()
    with FakeBroker(paths.socket, script), monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        with pytest.raises(AccessDenied), fake_session(paths):
            pass
    assert time.monotonic() - started < 1


def test_no_broker_and_none_to_be_started(paths: Paths) -> None:
    with pytest.raises(NoBroker), fake_session(paths):
        pass
    assert not paths.home.exists()


def test_nothing_arrives(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        assert session.receive(timeout=0.05) is None
        assert list(session.messages(timeout=0.05)) == []


def test_a_closed_session(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        pass
    with pytest.raises(UsageError, match="closed"):
        session.list()
    with pytest.raises(UsageError, match="closed"):
        session.receive()
    with pytest.raises(ValueError, match="released"):
        bytes(session._engine._input)  # nobody is to pay for the room of a session that is over


def test_one_thread_at_a_time_and_one_process(paths: Paths) -> None:
    go = threading.Event()

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()
        assert go.wait(PATIENCE_S)
        link.send(message("m1"))
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(session.receive(timeout=PATIENCE_S)))
        thread.start()
        while not session._engine._in_use.locked():
            time.sleep(0.001)
        with pytest.raises(UsageError, match="thread"):
            session.list()
        go.set()
        thread.join(PATIENCE_S)
        assert found[0].id == "m1"

        def use() -> str:
            try:
                session.list()
            except UsageError as error:
                return error.reason
            return ""

        assert "process" in in_child(use)


def test_a_session_that_ends_midway_fails_its_callers(paths: Paths) -> None:
    """A broker that goes for good: the time of the call decides."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration()

    told = pytest.raises((BrokerError, OutcomeUnknown))
    with FakeBroker(paths.socket, script), fake_session(paths) as session, told:
        session.send("worker", "hi", timeout=0.3)


def test_a_replaced_session_ends_with_why(paths: Paths) -> None:
    """It does not connect again, and gives out nothing that the other one gets now."""

    def script(link: FakeLink, number: int) -> None:
        link.take_registration(**GRANTED)
        link.send(message("m1"), {"type": "replaced", "by": "address", "sessionId": "other"})
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths, address=True) as session:
        with pytest.raises(SessionReplaced):
            session.receive(timeout=PATIENCE_S)
        for call in (lambda: session.send("worker", "hi"), lambda: session.pending(), lambda: session.receive()):
            with pytest.raises(SessionReplaced):
                call()


def test_a_lost_connection_is_taken_back_with_what_was_under_way(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        if number == 0:
            link.take_registration(**GRANTED)
            assert link.expect("send")["queueIfAway"] is True
            return
        first = link.expect("session_reattach", sessionId="me", ownerToken="owner")
        told = {"sessionId": "me", "incarnation": "one", "generation": 2, "mailboxCount": 1}
        answer = {"type": "session_reattached", "requestId": first["requestId"], **told}
        link.send({**answer, "features": GRANTED["features"]})
        sent = link.expect("send")
        mail = {"entry": 1, "queuedAt": 1, "ageMs": 600_000, "offers": 2}
        link.send({**message("m1"), "mail": mail}, {**queued(sent), "position": 7})
        link.expect("received", messageId="m1")
        link.expect("unregister")
        link.wait_for_end()

    def queued(sent: Frame) -> Frame:
        answered = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        return {"type": "queued", "target": "worker", **answered}

    with FakeBroker(paths.socket, script, connections=2), fake_session(paths) as session:
        receipt = session.send("worker", "hi")
        assert (receipt.state, receipt.position) == ("queued", 7)
        assert (session.id, session.waiting) == ("me", 1)
        message_ = session.receive(timeout=PATIENCE_S)
        assert (message_.age, message_.mail.offers) == (600.0, 2)


def test_requests_about_mail(paths: Paths) -> None:
    """What each answer of the broker becomes."""
    entry = {"entry": 4, "messageId": "m1", "position": 1, "sender": {"name": "@intercom", "id": "b"}}
    times = {"queuedAt": 1, "expiresAt": 9, "size": 3, "offers": 0, "state": "queued"}
    answers: dict[str, Frame] = {
        "pending": {"type": "pending", "asks": [{"messageId": "q", "askerId": "a", "askedAt": 1, "deadline": 2}]},
        "trace": {
            "type": "trace",
            "messageId": "m1",
            "state": "queued",
            "where": "w",
            "events": [{"at": 1, "state": "s"}],
        },
        "mailbox": {"type": "mailbox", "owner": "o", "count": 1, "bytes": 3, "entries": [{**entry, **times}]},
        "addresses": {"type": "addresses", "addresses": []},
        "session_records": {"type": "session_records", "sessions": []},
        "session_force_close": {"type": "session_force_closed", "sessionId": "s", "wasKnown": True},
        "task_hint": {"type": "task_hint_stored", "taskHint": "h"},
        "purge": {"type": "purged", "mail": 2},
    }
    asked: dict[str, Frame] = {}

    def script(link: FakeLink, number: int) -> None:
        link.take_registration(**GRANTED)
        for _ in answers:
            frame = link.receive()
            asked[frame["type"]] = frame
            link.send({**answers[frame["type"]], "requestId": frame["requestId"]})
        refused = link.receive()
        link.send({
            "type": "request_failed", "requestId": refused["requestId"], "code": "not_allowed", "reason": "no",
            "retryable": False,
        })  # fmt: skip
        link.wait_for_end()

    with FakeBroker(paths.socket, script), fake_session(paths) as session:
        [ask] = session.pending()
        assert (ask.message_id, ask.asker_name, ask.asker_is_here) == ("q", None, True)
        trace = session.trace("m1")
        assert (trace.state, trace.sender, [(event.at, event.state) for event in trace.events]) == (
            "queued", None, [(1, "s")],
        )  # fmt: skip
        box = session.mailbox("bob", group="g", after=2, limit=7)
        assert (box.count, box.entries[0].sender.name, box.entries[0].valid_until) == (1, "@intercom", None)
        assert asked["mailbox"]["of"] == {"address": "bob", "group": "g"}
        assert (asked["mailbox"]["after"], asked["mailbox"]["limit"]) == (2, 7)
        assert session.addresses() == session.session_records() == []
        assert session.force_close("s", "why") is True
        assert (asked["session_force_close"]["sessionId"], asked["session_force_close"]["reason"]) == ("s", "why")
        assert session.task_hint("h") == "h"
        assert session.purge(older_than=2, session_id="s").mail == 2
        assert (asked["purge"]["olderThanMs"], asked["purge"]["of"]) == (2_000, {"sessionId": "s"})
        with pytest.raises(RequestRefused) as caught:
            session.pending()
        assert (caught.value.code, caught.value.exit_status) == ("not_allowed", 7)


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.mailbox("a", session_id="b"),
        lambda session: session.mailbox(group="g"),
        lambda session: session.mailbox(limit=0),
        lambda session: session.mailbox(limit=1_001),
        lambda session: session.mailbox(" "),
        lambda session: session.force_close(""),
        lambda session: session.trace(""),
        lambda session: session.purge(older_than=0),
        lambda session: session.send("worker", "hi", valid_for=-1),
    ],
)
def test_requests_that_can_never_work(paths: Paths, call: Any) -> None:
    def script(link: FakeLink, number: int) -> None:
        link.take_registration(**GRANTED)
        assert link.wait_for_end() == [{"type": "unregister"}]

    with FakeBroker(paths.socket, script), fake_session(paths) as session, pytest.raises(UsageError):
        call(session)
