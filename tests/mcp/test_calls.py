"""What tools do with outcomes that no broker brings about at will."""

from __future__ import annotations

from typing import Any, cast

import pytest

from intercom.client.mailviews import PendingAsk
from intercom.client.views import Receipt
from intercom.errors import IntercomError, OutcomeUnknown, RequestRefused
from intercom.mcp import calls, wording
from intercom.mcp.calls import Call
from intercom.mcp.repeating import Known, Repeats
from intercom.mcp.seat import Seat

pytestmark = pytest.mark.anyio


class Session:
    """Take what is sent, and say of the first ones what the test wants."""

    def __init__(self, *outcomes: IntercomError) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[dict[str, Any]] = []
        self.asks: list[PendingAsk] = []

    async def send(self, target: str, text: str, **members: Any) -> Receipt:
        self.sent.append(members)
        if self.outcomes:
            raise self.outcomes.pop(0)
        return Receipt("delivered", members["message_id"], target)

    async def answer(self, question: PendingAsk, text: str, **members: Any) -> Receipt:
        return await self.send(question.asker_id, text, **members)

    async def fetch(self) -> int:
        return 0

    async def pending(self) -> list[PendingAsk]:
        return self.asks


class Chair:
    """Be as much of a seat as sending needs."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.repeats = Repeats()
        self.known_ids = Known()
        self.replied: dict[object, PendingAsk] = {}
        self.was_carried = False
        self.tray: tuple[()] = ()

    async def take(self, room: int) -> None:
        return None

    def note_reply(self, what: object, question: PendingAsk) -> None:
        self.replied[what] = question

    def closed_question(self, message_id: str) -> None:
        return None

    async def ready(self) -> Session:
        return self.session

    def cause(self) -> None:
        return None


async def tool(chair: Chair, name: str, **arguments: Any) -> str:
    async def progress(seconds: float) -> None:
        return None

    return (await calls.call(name, Call(cast("Seat", chair), progress), arguments)).text


async def test_a_message_that_may_have_arrived_is_sent_again_under_its_id() -> None:
    """Protocol 6.9: the hint of the error can be followed with this tool, and makes no second message."""
    session = Session(OutcomeUnknown("The broker did not say", code="send_timeout"))
    chair = Chair(session)
    with pytest.raises(OutcomeUnknown) as raised:
        await tool(chair, "send", to="bob", text="once")
    said = wording.failure(raised.value)
    assert said.startswith("error send_timeout: ")
    assert "again with the same arguments" in said
    assert "message id" not in said
    await tool(chair, "send", to="bob", text="another")
    await tool(chair, "send", to="bob", text="once")
    await tool(chair, "send", to="bob", text="once")
    first, another, again, new = (members["message_id"] for members in session.sent)
    assert again == first
    assert len({first, another, new}) == 3


async def test_a_message_refers_to_one_that_the_model_can_have_seen() -> None:
    """The ids a model sees are beginnings; on the wire stands the whole one."""
    session = Session()
    chair = Chair(session)
    session.asks = [
        PendingAsk(message_id="0c0ffee0-1", asker_id="b", asker_name="bob", asker_is_here=True, asked_at=0, deadline=0)
    ]
    chair.known_ids.add("5e1c09d2-whole")
    for wanted, whole in (("5e1c09d2", "5e1c09d2-whole"), ("0c0ffee0", "0c0ffee0-1")):
        await tool(chair, "send", to="bob", text="about that", reply_to=wanted)
        assert session.sent[-1]["reply_to"] == whole
    own = session.sent[0]["message_id"]
    await tool(chair, "send", to="bob", text="about mine", reply_to=own[:8])
    assert session.sent[-1]["reply_to"] == own
    count = len(session.sent)
    chair.known_ids.add("5e1c09d2-other")
    for wanted, code in (("zzzz", "unknown_message"), ("5e1c09d2", "ambiguous_message"), ("5e", "unknown_message")):
        with pytest.raises(RequestRefused) as raised:
            await tool(chair, "send", to="bob", text="x", reply_to=wanted)
        assert raised.value.code == code
        assert "reply_to" in wording.failure(raised.value)
    assert len(session.sent) == count


async def test_an_answer_that_may_have_arrived_is_given_again_under_its_id() -> None:
    """Protocol 6.9: the question is not open any more then, and the hint can be followed all the same."""
    session = Session(OutcomeUnknown("The broker did not say", code="send_timeout"))
    chair = Chair(session)
    session.asks = [question("0c0ffee0-1")]
    with pytest.raises(OutcomeUnknown) as raised:
        await tool(chair, "reply", question="0c0ffee0", text="yes")
    assert "again with the same arguments" in wording.failure(raised.value)
    session.asks = []  # it did arrive
    with pytest.raises(IntercomError) as other:
        await tool(chair, "reply", question="0c0ffee0", text="another answer")
    assert other.value.code == "unknown_question"
    assert "has your answer to question 0c0ffee0" in await tool(chair, "reply", question="0c0ffee0", text="yes")
    first, again = (members["message_id"] for members in session.sent)
    assert first == again
    with pytest.raises(IntercomError) as known:
        await tool(chair, "reply", question="0c0ffee0", text="yes")
    assert known.value.code == "unknown_question", "its fate is known by now"


async def test_what_a_plugin_was_handed_is_not_waited_for() -> None:
    """A host shows it when the tool has ended, so a tool that waited for it would wait in vain."""
    session = Session()
    chair = Chair(session)
    chair.was_carried = True
    assert await tool(chair, "receive", wait_s=60) == calls.CARRIED
    assert not chair.was_carried
    assert await tool(chair, "receive") == "No messages."


def question(message_id: str) -> PendingAsk:
    return PendingAsk(message_id=message_id, asker_id="b", asker_name="bob", asker_is_here=True, asked_at=0, deadline=0)
