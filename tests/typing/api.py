"""What a type checker must find in the public names; it is checked and never run."""

from __future__ import annotations

from typing import Any, Literal, assert_type

import intercom
from intercom import blocking


async def sessions() -> None:
    connection = intercom.connect(
        "ada",
        group="g",
        groups=["a", "b"],
        home="/h",
        model="m",
        status="idle",
        purpose="agent",
        start=False,
        timeout=1.5,
        return_address="r",
        session_id="s",
        cwd="/p",
        supervisor="capability",
        owner_token="token",
    )
    assert_type(connection, intercom.Connection)
    async with connection as session:
        assert_type(session, intercom.Session)
        assert_type(session.id, str)
        assert_type(session.name, str | None)
        assert_type(session.status, str | None)
        assert_type(session.model, str)
        assert_type(session.groups, tuple[str, ...])
        assert_type(session.supervisor_id, str | None)
        assert_type(await session.list(), list[intercom.SessionView])
        assert_type(await session.list("g"), list[intercom.SessionView])
        assert_type(await session.list_groups(), list[intercom.GroupView])
        assert_type(await session.join("g"), tuple[str, ...])
        assert_type(await session.leave(), tuple[str, ...])
        await session.set_presence(name="n", status="s", model="m")
        session.announce("busy")
        with session.busy("w"), session.busy() as nothing:
            assert_type(nothing, None)
        assert_type(await session.authorize_child("c"), str)
        assert_type(await session.authorize_child("c", capability="k"), str)


async def messages(session: intercom.Session) -> None:
    attachment = intercom.Attachment("file", "a.txt", "text", "plain")
    receipt = await session.send(
        "bob",
        "hi",
        attachments=[attachment],
        reply_to="q",
        message_id="m",
        timeout=1,
        logical_target="b",
        progress=True,
    )
    assert_type(receipt, intercom.Receipt)
    assert_type(receipt.state, Literal["delivered", "queued"])
    assert_type(receipt.message_id, str)
    assert_type(receipt.target, str)
    assert_type(receipt.position, int | None)
    assert_type(receipt.inferred_reply_to, str | None)
    assert_type(receipt.hint, str)
    assert_type(await session.send_supervisor("hi"), intercom.Receipt)
    answer = await session.ask("bob", "?", attachments=[{"type": "file", "name": "n", "content": "c"}], timeout=60)
    assert_type(answer, intercom.IncomingMessage)
    assert_type(await session.ask_supervisor("?"), intercom.IncomingMessage)
    await session.ask(
        "bob", "?", patience=5, on_progress=lambda message: assert_type(message, intercom.IncomingMessage)
    )
    await session.send("bob", "half", progress=answer.id)
    assert_type(await session.receive(), intercom.IncomingMessage)
    assert_type(session.messages(), intercom.Messages)
    async for message in session.messages():
        assert_type(message, intercom.IncomingMessage)
        assert_type(message.id, str)
        assert_type(message.text, str)
        assert_type(message.attachments, tuple[intercom.Attachment, ...])
        assert_type(message.sender, intercom.SessionView)
        assert_type(message.expects_reply, bool)
        assert_type(message.reply_to, str | None)
        assert_type(message.reply_error, str | None)
        assert_type(message.timestamp, int | float)
        assert_type(message.channel, Literal["supervisor"] | None)
        assert_type(message.progress_of, str | None)
        assert_type(message.raw, dict[str, Any])
        assert_type(await message.reply("ok", error=False, attachments=[]), intercom.Receipt)


def views(view: intercom.SessionView, group: intercom.GroupView) -> None:
    assert_type(view.id, str)
    assert_type(view.name, str | None)
    assert_type(view.cwd, str)
    assert_type(view.model, str)
    assert_type(view.pid, int | float)
    assert_type(view.peer_pid, int | None)
    assert_type(view.status, str | None)
    assert_type(view.group, str | None)
    assert_type(view.groups, tuple[str, ...])
    assert_type(view.started_at, int | float)
    assert_type(view.last_activity, int | float)
    assert_type(view.raw, dict[str, Any])
    assert_type(group.group, str)
    assert_type(group.session_count, int)
    assert_type(group.member, bool)


async def events(session: intercom.Session) -> None:
    assert_type(session.events(), intercom.Events)
    async for event in session.events():
        assert_type(event, intercom.SessionEvent)
        assert_type(event.kind, Literal["joined", "left", "presence", "disconnected", "reconnected", "missed"])
        assert_type(event.session_id, str | None)
        assert_type(event.session, intercom.SessionView | None)
        assert_type(event.reason, str | None)
        assert_type(event.count, int)


def without_a_loop() -> None:
    with blocking.connect("ada", supervisor="capability") as session:
        assert_type(session, blocking.Session)
        assert_type(session.supervisor_id, str | None)
        assert_type(session.send("bob", "hi", logical_target="b"), intercom.Receipt)
        assert_type(session.ask("bob", "?"), blocking.IncomingMessage)
        assert_type(session.send_supervisor("hi"), intercom.Receipt)
        assert_type(session.ask_supervisor("?"), blocking.IncomingMessage)
        assert_type(session.authorize_child("c"), str)
        assert_type(session.receive(), blocking.IncomingMessage | None)
        assert_type(session.list(), list[intercom.SessionView])
        assert_type(session.list_groups(), list[intercom.GroupView])
        assert_type(session.join("g"), tuple[str, ...])
        session.set_presence(status="s")
        session.announce("busy")
        with session.busy("w") as nothing:
            assert_type(nothing, None)
        for message in session.messages(timeout=1):
            assert_type(message, blocking.IncomingMessage)
            assert_type(message.reply("ok"), intercom.Receipt)
        for event in session.events(timeout=1):
            assert_type(event, intercom.SessionEvent)


def errors(error: intercom.IntercomError, refused: intercom.SendError, ended: intercom.AskError) -> None:
    assert_type(error.code, str)
    assert_type(error.reason, str)
    assert_type(error.hint, str)
    assert_type(error.retry, Literal["never", "same_id", "after"])
    assert_type(error.retry_after_ms, int | None)
    assert_type(error.as_dict(), dict[str, Any])
    assert_type(refused.message_id, str)
    assert_type(ended.message_id, str)


async def brokers() -> None:
    with intercom.serve("/h") as broker:
        assert_type(broker, intercom.EmbeddedBroker)
    async with intercom.serve() as broker:
        assert_type(broker, intercom.EmbeddedBroker)


async def mistakes(session: intercom.Session, receipt: intercom.Receipt) -> None:
    assert intercom.surprise  # type: ignore[attr-defined]
    intercom.connect(purpose="other")  # type: ignore[arg-type]
    intercom.connect("ada", "g")  # type: ignore[call-arg]
    session.name = "n"  # type: ignore[misc]
    receipt.state = "queued"  # type: ignore[misc]
    await session.send("bob", b"bytes")  # type: ignore[arg-type]
    await session.send("bob", "hi", attachments=[3])  # type: ignore[list-item]
    with session:  # type: ignore[attr-defined]
        pass
