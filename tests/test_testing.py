"""Use the broker in memory as the author of an adapter would."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import intercom.testing
from intercom import blocking
from intercom.errors import (
    AddressHeld,
    AskTimeout,
    MessageConflict,
    NoBroker,
    NotNow,
    OutcomeUnknown,
    PeerGone,
    ReplyFailed,
    RequestRefused,
    SendRefused,
    SessionReplaced,
    TargetNotFound,
    UsageError,
)
from intercom.limits import ASK_MS, SEND_MS, SEND_RETRY_MS, Limits
from intercom.testing import IncomingMessage, MemoryBroker, MemorySession, NotSettled, Pending, Withdrawn
from tests.support.client import unpacked
from tests.support.raw import INFO, packed

HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def planner(broker: MemoryBroker) -> MemorySession:
    return broker.connect("planner")


@pytest.fixture
def worker(broker: MemoryBroker) -> MemorySession:
    return broker.connect("worker")


def texts(session: MemorySession) -> list[str]:
    return [message.text for message in session.messages()]


def test_the_public_names() -> None:
    assert set(intercom.testing.__all__) <= set(dir(intercom.testing))


def test_the_example_of_the_docstring() -> None:
    text = intercom.testing.__doc__ or ""
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    exec("\n".join(["from intercom.testing import MemoryBroker", *lines]), {})


# --- conversations


def test_a_message_is_delivered_when_its_reader_asks_for_the_next(
    planner: MemorySession, worker: MemorySession
) -> None:
    """Protocol 6.10; design section 7, Receipts."""
    sent = planner.send("worker", "hello")
    message = worker.receive()
    assert message is not None and (message.text, message.sender.name) == ("hello", "planner")
    assert not sent.done
    with pytest.raises(NotSettled):
        sent.result()
    assert worker.receive() is None
    assert sent.result().state == "delivered"
    assert sent.result().target == "worker"


def test_a_question_and_its_answer(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    for message in worker.messages():
        assert message.expects_reply
        assert not question.done
        reply = message.reply("4")
    assert question.result().text == "4"
    assert reply.result().state == "delivered"
    assert planner.receive() is None


def test_an_answer_that_there_is_none(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    for message in worker.messages():
        message.reply("I cannot count", error=True)
    with pytest.raises(ReplyFailed, match="I cannot count"):
        question.result()
    assert isinstance(question.error, ReplyFailed)


def test_a_peer_that_answers_by_itself(broker: MemoryBroker, planner: MemorySession) -> None:
    seen: list[str] = []

    def answer(message: IncomingMessage) -> str | None:
        seen.append(message.text)
        return message.text.upper() if message.expects_reply else None

    broker.connect("echo", answer=answer)
    assert planner.ask("echo", "abc").result().text == "ABC"
    assert planner.send("echo", "bye").result().state == "delivered"
    assert seen == ["abc", "bye"]


def test_answers_that_ask_others(broker: MemoryBroker, planner: MemorySession) -> None:
    broker.connect("adder", answer=lambda message: "4")
    clerk = broker.connect("clerk")
    first = planner.ask("clerk", "2+2")
    for message in clerk.messages():
        message.reply(clerk.ask("adder", message.text).result().text)
    assert first.result().text == "4"


def test_refusals_are_those_of_the_library(planner: MemorySession, worker: MemorySession) -> None:
    with pytest.raises(TargetNotFound):
        planner.send("nobody", "x").result()
    with pytest.raises(SendRefused) as refused:
        planner.send("planner", "x").result()
    assert refused.value.code == "self_target"
    with pytest.raises(UsageError):
        planner.send(" ", "x")
    assert planner.send("worker", "x", message_id="m").error is None
    assert texts(worker) == ["x"]
    with pytest.raises(MessageConflict):
        planner.send("worker", "y", message_id="m").result()


def test_groups_and_presence(broker: MemoryBroker, planner: MemorySession) -> None:
    other = broker.connect("other", group="apart", status="busy", model="m")
    with pytest.raises(SendRefused) as refused:
        planner.send(other.id, "x").result()
    assert refused.value.code == "different_group"
    assert planner.join("apart") == ("default", "apart") == planner.groups
    assert {view.name for view in planner.list("apart")} == {"planner", "other"}
    assert {entry.group for entry in planner.list_groups()} == {"default", "apart"}
    other.set_presence(name="renamed", status="idle")
    assert {view.name: view.status for view in planner.list()} == {"planner": None, "renamed": "idle"}
    assert other.name == "renamed"
    assert planner.leave("apart") == ("default",)


def test_who_leaves_owes_no_answer(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    worker.close()
    with pytest.raises(PeerGone):
        question.result()
    assert message is not None
    assert [view.name for view in planner.list()] == ["planner"]


def test_a_withdrawn_question_cannot_be_answered(planner: MemorySession, worker: MemorySession) -> None:
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    assert message is not None
    assert worker.receive() is None  # takes it, and opens the question
    question.withdraw()
    with pytest.raises(SendRefused) as refused:
        message.reply("4").result()
    assert refused.value.code == "no_open_question"


def test_what_was_withdrawn_says_so(planner: MemorySession, worker: MemorySession) -> None:
    question, sent = planner.ask("worker", "y"), planner.send("worker", "z")
    for pending in (question, sent):
        pending.withdraw()
        pending.withdraw()
        assert pending.done and isinstance(pending.error, Withdrawn)
        with pytest.raises(Withdrawn, match="was withdrawn"):
            pending.result()


def test_what_is_settled_is_not_withdrawn(planner: MemorySession, worker: MemorySession) -> None:
    sent = planner.send("worker", "x")
    assert texts(worker) == ["x"]
    sent.withdraw()
    assert sent.error is None and sent.result().state == "delivered"
    refused = planner.send("nobody", "x")
    refused.withdraw()
    assert isinstance(refused.error, TargetNotFound)


def test_a_message_may_be_confirmed_before_the_next_one_is_asked_for(
    planner: MemorySession, worker: MemorySession
) -> None:
    """Design section 7, Receipts."""
    sent = planner.send("worker", "hello")
    message = worker.receive()
    assert message is not None
    assert not sent.done
    message.confirm()
    assert sent.result().state == "delivered"


# --- the calls


def parameters(call: Callable[..., object]) -> set[str]:
    return set(inspect.signature(call).parameters)


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_page_tells_which_calls_there_are() -> None:
    """Every call and every argument is in the text, and so is what the library has beyond it."""
    page = (Path(intercom.__file__).parent / "docs" / "embedding.md").read_text("utf-8")
    page = page[page.index("## Testing without a broker") :]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    library = blocking.Session
    assert public(MemorySession) | public(library) | public(MemoryBroker) | public(Pending) <= words
    for ours, theirs in [
        (MemoryBroker.connect, blocking.connect),
        *(
            (getattr(MemorySession, name), getattr(library, name))
            for name in public(library)
            if callable(getattr(library, name))
        ),
        (IncomingMessage.reply, blocking.IncomingMessage.reply),
    ]:
        assert (parameters(ours) | parameters(theirs)) - {"self"} <= words


def test_whatever_the_library_has_is_there() -> None:
    """A program that is tested with it uses nothing that is missing: every call, with every argument."""
    library = blocking.Session
    assert public(library) <= public(MemorySession)
    assert public(blocking.IncomingMessage) <= public(IncomingMessage)
    for name in public(library):
        call = getattr(library, name)
        if callable(call):
            assert parameters(call) == parameters(getattr(MemorySession, name)), name
    assert parameters(blocking.IncomingMessage.reply) == parameters(IncomingMessage.reply)
    elsewhere = {"home", "start", "timeout"}
    assert parameters(blocking.connect) - elsewhere == parameters(MemoryBroker.connect) - {"self", "answer"}


# --- supervisors, events, presence


def test_a_supervisor_and_its_child(broker: MemoryBroker) -> None:
    """Protocol 6.6: whatever the groups."""
    boss = broker.connect("boss", group="a")
    capability = boss.authorize_child("reviewer")
    child = broker.connect("reviewer", group="b", supervisor=capability)
    assert (child.supervisor_id, boss.supervisor_id) == (boss.id, None)
    question = child.ask_supervisor("which?")
    for message in boss.messages():
        assert message.channel == "supervisor"
        message.reply("this one")
    assert question.result().text == "this one"
    sent = child.send_supervisor("done")
    assert texts(boss) == ["done"] and sent.result().target == boss.id
    with pytest.raises(UsageError):
        boss.send_supervisor("up")
    boss.close()
    with pytest.raises(TargetNotFound) as gone:
        child.send_supervisor("there?").result()
    assert gone.value.code == "supervisor_gone"


def test_a_line_that_is_taken_up_again(broker: MemoryBroker) -> None:
    """F94: broker and children come back in any order."""
    boss = broker.connect("boss")
    child = broker.connect("reviewer", supervisor=boss.authorize_child("reviewer"))
    broker.restart()
    broker.advance(SEND_MS)
    sent = child.send_supervisor("still here")
    assert texts(boss) == ["still here"] and sent.result().state == "delivered"


def test_what_happens_around_a_session(broker: MemoryBroker, planner: MemorySession) -> None:
    events = planner.events()
    assert next(events, None) is None
    other = broker.connect("other", status="idle")
    other.announce("busy")
    other.close()
    broker.restart()
    told = [(event.kind, event.session.status if event.session else None) for event in events]
    assert told[:3] == [("joined", "idle"), ("presence", "busy"), ("left", None)]
    assert [kind for kind, _ in told[3:]] == ["disconnected", "reconnected"]
    broker.connect("late")
    assert [event.kind for event in events] == ["joined"], "it goes on where it ended"


def test_idle_and_busy(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    def seen() -> tuple[str | None, float]:
        [found] = [view for view in planner.list() if view.name == "worker"]
        return found.status, found.last_activity

    broker.advance(1_000)
    began = broker.now.wall
    with worker.busy("counting"):
        assert seen() == ("busy: counting", began)
        broker.advance(60_000)
        broker.restart()
        broker.advance(SEND_MS)
        assert seen() == ("busy: counting", began), "since when is not forgotten with the broker"
    assert seen() == ("idle", broker.now.wall)
    assert worker.status == "idle" and worker.model == ""


# --- time that a call may take


def test_time_passes_until_something_is_there(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    broker.fail_next_commit()
    planner.send("worker", "x")
    before = broker.now.mono
    assert worker.receive() is None
    message = worker.receive(timeout=60)
    assert message is not None and message.text == "x"
    assert broker.now.mono - before == SEND_RETRY_MS
    assert worker.receive(timeout=1.5) is None
    assert broker.now.mono - before == SEND_RETRY_MS + 1_500
    assert [message.text for message in worker.messages(timeout=1)] == []
    assert [event.kind for event in worker.events(timeout=1)] == []


def test_limits_of_time_are_in_seconds(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    question, sent = planner.ask("worker", "2+2", timeout=2), planner.send("worker", "x", timeout=1)
    broker.advance(999)
    assert not sent.done
    broker.advance(1)
    assert isinstance(sent.error, OutcomeUnknown) and not question.done
    broker.advance(1_000)
    assert isinstance(question.error, AskTimeout)
    with pytest.raises(UsageError):
        planner.send("worker", "x", timeout=0)


def test_a_target_in_other_words(planner: MemorySession, worker: MemorySession) -> None:
    """Protocol 6.2.4: a receipt names what the user wrote."""
    sent = planner.send(worker.id, "x", logical_target=worker.id[:6])
    assert texts(worker) == ["x"] and sent.result().target == worker.id[:6]


# --- the clock


@pytest.mark.parametrize("milliseconds", [-1, -HOUR_MS])
def test_time_does_not_run_backwards(broker: MemoryBroker, milliseconds: int) -> None:
    before = broker.now
    with pytest.raises(UsageError, match="backwards"):
        broker.advance(milliseconds)
    assert broker.now == before
    broker.advance(0)
    assert broker.now == before


def test_time_stands_still_unless_it_is_turned(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    before = broker.now
    question = planner.ask("worker", "2+2")
    assert broker.now == before
    assert texts(worker) == ["2+2"]
    broker.advance(ASK_MS - 1)
    assert not question.done
    broker.advance(1)
    with pytest.raises(AskTimeout):
        question.result()
    assert (broker.now.mono - before.mono, broker.now.wall - before.wall) == (ASK_MS, ASK_MS)


def test_a_receipt_that_never_comes(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    """Protocol 6.10.6: the outcome is not known, and a retry under the id is safe.

    F81, F82: a session that takes nothing is never said to have the message.
    """
    sent = planner.send("worker", "x", queue=False)
    broker.advance(SEND_MS)
    error = sent.error
    assert isinstance(error, OutcomeUnknown) and error.retry == "same_id"
    again = planner.send("worker", "x", message_id=error.message_id, queue=False)
    assert texts(worker) == ["x"]
    assert again.result().state == "delivered"


def test_a_message_to_somebody_busy_waits(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    """Design section 7, Queueing: queued is said, not delivered, while nobody confirmed it."""
    sent = planner.send("worker", "x")
    broker.advance(SEND_MS)
    assert (sent.result().state, sent.result().position) == ("queued", 1)
    assert planner.trace(sent.result().message_id).state == "offered"
    assert texts(worker) == ["x"]
    assert planner.trace(sent.result().message_id).state == "delivered"


def test_mail_for_an_address(broker: MemoryBroker, planner: MemorySession) -> None:
    """Design section 7, Addresses; it outlives sessions and brokers."""
    broker.connect("desk", address=True).close()
    sent = [planner.send("desk", text) for text in ("a", "b")]
    assert [pending.result().state for pending in sent] == ["queued", "queued"]
    broker.crash()
    broker.restart()
    broker.advance(SEND_MS)
    desk = broker.connect("desk", address=True)
    assert (desk.waiting, "queue" in desk.features) == (2, True)
    assert [entry.message_id for entry in desk.mailbox().entries] == [pending.result().message_id for pending in sent]
    assert texts(desk) == ["a", "b"]
    assert [(address.name, address.holder) for address in planner.addresses()] == [("desk", desk.id)]
    assert {record.name for record in planner.session_records()} == {"planner", "desk"}
    with pytest.raises(AddressHeld):
        broker.connect("desk", address=True, hold="free")
    newer = broker.connect("desk", address=True)
    with pytest.raises(SessionReplaced):
        desk.send("planner", "x")
    assert newer.online and not desk.online


def test_mail_in_memory_is_read_where_it_waits_and_given_up(broker: MemoryBroker, planner: MemorySession) -> None:
    """As with a real broker (protocol 9.5): what is looked at stays until it is settled."""
    broker.connect("desk", address=True).close()
    sent = [planner.send("desk", text).result().message_id for text in ("a", "b", "c")]
    desk = broker.connect("desk", address=True, hold="none")
    for _ in range(2):
        assert [message.text for message in desk.peek(limit=2).messages] == ["a", "b"]
    assert desk.settle_mail(sent[0]) == sent[0]
    assert planner.trace(sent[0]).state == "delivered"
    assert desk.task_hint("reads") == "reads"
    control = broker.connect(purpose="control")
    assert control.purge(address="desk").mail == 2
    assert desk.peek().messages == ()
    assert control.force_close(desk.id, "enough") is True
    assert control.force_close("never-there") is False
    assert control.outbox().entries == ()
    for ask in (control.retry_outbox, control.cancel_outbox):
        with pytest.raises(RequestRefused) as refused:
            ask("never-there")
        assert refused.value.code == "unknown_delivery"


def test_a_message_expires(broker: MemoryBroker, planner: MemorySession) -> None:
    broker.connect("desk", address=True).close()
    planner.send("desk", "x", valid_for=5).result()
    broker.advance(6_000)
    [notice] = planner.messages()
    assert notice.notice is not None and notice.notice.kind == "expired"
    assert texts(broker.connect("desk", address=True)) == []


def test_a_question_that_another_session_of_the_address_answers(broker: MemoryBroker, planner: MemorySession) -> None:
    desk = broker.connect("desk", address=True)
    asked = planner.ask("desk", "2+2")
    assert texts(desk) == ["2+2"]
    helper = broker.connect(address="desk", hold="none")
    [question] = helper.pending()
    assert helper.answer(question, "4").result().state == "delivered"
    assert asked.result().text == "4"


def test_the_same_calls_give_the_same_ids() -> None:
    def play() -> list[str]:
        broker = MemoryBroker()
        planner, worker = broker.connect("planner"), broker.connect("worker")
        planner.send("worker", "x")
        return [planner.id, worker.id, *(message.id for message in worker.messages())]

    assert play() == play()


def test_limits_are_given(broker: MemoryBroker) -> None:
    """Protocol 6.9.3."""
    small = MemoryBroker(limits=Limits(unconfirmed_frames=1))
    sender, reader = small.connect("a"), small.connect("b")
    sender.send("b", "1")
    with pytest.raises(NotNow):
        sender.send("b", "2").result()
    assert texts(reader) == ["1"]


# --- commits that fail


def test_a_commit_that_fails_is_tried_again(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """Design section 3, step 6: not recorded, retry the same id; the library does."""
    broker.fail_next_commit("the disk is full")
    sent = planner.send("worker", "x")
    assert not sent.done
    assert worker.receive() is None
    broker.advance(SEND_RETRY_MS)
    assert texts(worker) == ["x"]
    assert sent.result().state == "delivered"


def test_a_disk_that_stays_full(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    for _ in range(100):
        broker.fail_next_commit()
    sent = planner.send("worker", "x")
    broker.advance(SEND_MS)
    assert isinstance(sent.error, NotNow) and sent.error.code == "not_recorded"
    assert worker.receive() is None


def test_a_store_that_closes_for_good(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    broker.fail_next_commit("a failed sync", final=True)
    sent = planner.send("worker", "x")
    broker.advance(SEND_MS)
    assert sent.error is not None
    with pytest.raises(SendRefused) as refused:
        planner.send("worker", "y").result()
    assert refused.value.code == "store_unusable"
    assert len(planner.list()) == 2
    broker.restart()
    assert planner.online
    sent = planner.send("worker", "z")
    assert texts(worker) == ["z"] and sent.result().state == "delivered"


# --- connections and brokers that die


def test_a_connection_that_breaks_is_made_again(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    session_id = worker.id
    sent = planner.send("worker", "x")
    worker.cut()
    assert worker.online and worker.id == session_id
    assert texts(worker) == ["x"]
    broker.advance(SEND_MS)
    assert sent.done


def test_a_message_in_hand_comes_again_to_who_returns(broker: MemoryBroker, planner: MemorySession) -> None:
    """Design section 7, Receipts: a program that dies in the middle of a message gets it again."""
    worker = broker.connect("worker", return_address="secret")
    sent = planner.send("worker", "x")
    assert worker.receive() is not None
    worker.close(finished=False)
    again = broker.connect("worker", return_address="secret", session_id=worker.id)
    assert again.id == worker.id
    assert texts(again) == ["x"]
    assert sent.result().state == "delivered"


def test_a_question_survives_the_death_of_the_broker(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    """Design section 5, Asks survive."""
    question = planner.ask("worker", "2+2")
    message = worker.receive()
    assert message is not None and worker.receive() is None
    broker.crash()
    assert not broker.running and not planner.online
    with pytest.raises(NoBroker):
        broker.connect("late")
    broker.restart()
    broker.advance(HOUR_MS // 60)
    assert planner.online and worker.online
    message.reply("4")
    broker.advance(SEND_MS)
    assert question.result().text == "4"
    assert texts(worker) == []


def test_what_was_not_committed_is_lost_with_the_broker_and_sent_again(
    broker: MemoryBroker, planner: MemorySession, worker: MemorySession
) -> None:
    sent = planner.send("worker", "x")
    broker.restart()
    assert planner.online and worker.online
    assert texts(worker) == ["x"]
    broker.advance(SEND_MS)
    assert sent.result().state == "delivered"


def test_an_orderly_stop(broker: MemoryBroker, planner: MemorySession, worker: MemorySession) -> None:
    broker.stop()
    broker.stop()
    assert not broker.running
    sent = planner.send("worker", "x", queue=False)
    broker.restart()
    broker.advance(SEND_MS // 2)
    assert texts(worker) == ["x"]
    broker.advance(1)
    assert sent.result().state == "delivered"


# --- bytes


def test_a_client_of_another_make(broker: MemoryBroker, worker: MemorySession) -> None:
    """Protocol 4.1, 4.8: an older client, which never sends ``returnAddress`` and confirms nothing."""
    wire = broker.wire()
    register = packed({"type": "register", "session": {**INFO, "name": "old"}})
    wire.write(register[:5])
    assert wire.read() == b""
    wire.write(register[5:])
    (registered, *_) = unpacked(wire.read())
    assert registered["type"] == "registered"
    message = {"id": "m", "timestamp": 1, "content": {"text": "x"}}
    wire.write(packed({"type": "send", "to": "worker", "message": message}))
    assert texts(worker) == ["x"]
    assert unpacked(wire.read())[-1] == {"type": "delivered", "messageId": "m"}
    worker.send("old", "y")
    assert unpacked(wire.read())[-1]["message"]["content"]["text"] == "y"
    wire.close()
    wire.close()
    assert [view.name for view in worker.list()] == ["worker"]


@pytest.mark.parametrize("data", [packed({"type": "list", "requestId": "1"}), b"\xff\xff\xff\xff", packed([])])
def test_who_breaks_the_protocol_is_cut_off(broker: MemoryBroker, data: bytes) -> None:
    """Protocol 1.3."""
    wire = broker.wire()
    wire.write(data)
    assert not wire.is_open and wire.read() == b""
    wire.write(data)


def test_a_broker_that_is_asked_to_leave(broker: MemoryBroker, planner: MemorySession) -> None:
    """Protocol 4.22."""
    wire = broker.wire()
    wire.write(packed({"type": "shutdown", "requestId": "s"}))
    assert unpacked(wire.read())[-1]["type"] == "shutdown_ack"
    assert not broker.running
    broker.advance(1)
    assert not planner.online


@pytest.mark.loads
def test_neither_sockets_nor_processes_are_needed() -> None:
    code = (
        "import sys; from intercom.testing import MemoryBroker; broker = MemoryBroker()\n"
        "a, b = broker.connect('a'), broker.connect('b'); a.send('b', 'x')\n"
        "print({'asyncio', 'anyio', 'sqlite3', 'intercom.server', 'intercom.store'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("milliseconds", [1.5, float("nan"), True, "1"])
def test_time_passes_in_whole_milliseconds(milliseconds: object) -> None:
    with pytest.raises(UsageError):
        MemoryBroker().advance(milliseconds)  # type: ignore[arg-type]
