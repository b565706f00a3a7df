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
        owner_token="secret",
        address=True,
        hold="free",
        kind="custom",
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
        assert_type(await session.authorize_child("c", capability="kept"), str)
        await session.reserve_child("c", aliases=["id"], group="g", dormant=False)
        await session.release_child("c", gone="it was cancelled")
        await session.release_child("c", refusal="not now")
        assert_type(session.former_ids, tuple[str, ...])
        assert_type(session.features, frozenset[str])
        assert_type(session.waiting, int)


async def following(session: intercom.Session, other: blocking.Session) -> None:
    watching = session.watch(sessions=["s"], addresses=["a", ("b", "g")], after="7@j")
    assert_type(watching, intercom.Watching)
    assert_type(watching.position, str | None)
    async for told in watching:
        assert_type(told, intercom.WatchSnapshot | intercom.WatchEvent)
        if isinstance(told, intercom.WatchEvent):
            assert_type(told.about, dict[str, str])
        else:
            assert_type(told.states, tuple[intercom.WatchedState, ...])
    for told in other.watch(messages=["m"], timeout=1.5):
        assert_type(told, intercom.WatchSnapshot | intercom.WatchEvent)
    other.watch("s")  # type: ignore[call-arg]
    assert_type(await session.spawn("reviewer", "look", key="k"), str)
    assert_type(other.spawn("reviewer"), str)


async def work(session: intercom.Session, other: blocking.Session) -> None:
    intercom.connect("ada", work_mode="resident", surface="headless", coordinator=True)
    blocking.connect("ada", work_mode="managed_turn", runtime_session_id="r", surface="owner_attached")
    async for one in session.assignments(accept=True, claim=True):
        assert_type(one, intercom.Assignment)
        assert_type(one.text, str)
        assert_type(one.sender, intercom.SessionView)
        assert_type(one.accept_deadline, int | None)
        async with one as same:
            assert_type(same, intercom.Assignment)
        await one.accept()
        await one.started()
        await one.waiting("for the key", code="key")
        await one.fail("no", retryable=True, code="c")
        assert_type(await one.report("interrupted", "why", event_id="e"), int)
        assert_type(await one.reply("42", attachments=[], reply_id="r", timeout=1), intercom.Receipt)
    for two in other.assignments(timeout=1):
        assert_type(two, blocking.Assignment)
        assert_type(two.reply("42"), intercom.Receipt)
    assert_type(await session.wait_for_assignment(claim=True, timeout=1), intercom.Assignment | None)
    assert_type(await session.claim("in"), intercom.Assignment)
    assert_type(await session.inbox(after=1, limit=2), intercom.InboxPage)
    assert_type((await session.inbox()).items, tuple[intercom.ParkedMessage, ...])
    assert_type(await session.inbox_message("in"), intercom.ParkedMessage)
    assert_type(await session.inbox_presence(), intercom.InboxPresence)
    assert_type(await session.dispatch("in", "w", key="k", accept_within=60), intercom.Dispatched)
    assert_type(await session.open_assignments(), list[intercom.AssignmentView])
    view = await session.assignment("as")
    assert_type(view, intercom.AssignmentView)
    assert_type(await session.report(view, "started"), int)
    assert_type(await session.reply_to(view, "42"), intercom.Receipt)
    await session.settle("in")


async def invocations(session: intercom.Session, other: blocking.Session) -> None:
    invocation = await session.invoke(
        "@b", "do", action="consult", ensure_awake=True, take_within=1.5, invocation_id="i", timeout=1
    )
    assert_type(invocation, intercom.Invocation)
    wished = intercom.Execution(kind="headless", model="m", session="existing", target_session_id="t")
    await session.invoke(
        "@b", "do", context="c", execution=wished, labels=("a", "b"), metadata={"n": 1}, stream=True, about="m"
    )
    other.invoke("@b", "do", context="c", execution=wished, labels=["a"], metadata={}, stream=False, about=None)
    assert_type(invocation.id, str)
    async for event in invocation:
        assert_type(event, intercom.WatchEvent)
    view = await invocation.result(1.5)
    assert_type(view, intercom.InvocationView)
    assert_type(view.output, str | None)
    assert_type(view.diagnoses, tuple[intercom.Diagnosis, ...])
    assert_type(view.deliveries, tuple[intercom.InvocationDelivery, ...])
    assert_type(
        (view.context, view.execution, view.labels), tuple[str | None, intercom.Execution | None, tuple[str, ...]]
    )
    assert_type((view.metadata, view.stream, view.about), tuple[dict[str, Any] | None, bool, str | None])
    await invocation.cancel("enough")
    assert_type(await session.resolve("@b"), intercom.Route)
    assert_type(await session.invocations(open_only=True), list[intercom.InvocationView])
    assert_type(await session.invocation("i"), intercom.InvocationView)
    async for message in session.messages():
        assert_type(message.invoked, intercom.Invoked | None)
        assert_type(message.invocation, intercom.Task | None)
        if message.invocation is not None:
            assert_type(message.invocation.execution, intercom.Execution | None)
            assert_type(message.invocation.context, str | None)
            await message.invocation.update("running", summary="s")
            await message.invocation.complete("42")
            await message.invocation.fail("no")
    assert_type(other.invoke("@b", "do").result(), intercom.InvocationView)
    for event in other.invoke("@b", "do"):
        assert_type(event, intercom.WatchEvent)


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
    assert_type(receipt.state, Literal["delivered", "queued", "held"])
    assert_type(receipt.message_id, str)
    assert_type(receipt.target, str)
    assert_type(receipt.position, int | None)
    assert_type(receipt.is_known, bool)
    assert_type(receipt.held_ms, int | None)
    held = await session.send("bob", "hi", hold=True)
    assert_type(await session.outcome(held, timeout=1.5), intercom.Receipt)
    assert_type(receipt.inferred_reply_to, str | None)
    assert_type(receipt.hint, str)
    assert_type(await session.send_supervisor("hi"), intercom.Receipt)
    answer = await session.ask("bob", "?", attachments=[{"type": "file", "name": "n", "content": "c"}], timeout=60)
    assert_type(answer, intercom.IncomingMessage)
    assert_type(await session.ask("bob", "?", on_held=lambda receipt: None), intercom.IncomingMessage)
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
        assert_type(message.is_notification, bool)
        assert_type(await message.reply("ok", error=False, attachments=[]), intercom.Receipt)


async def mail(session: intercom.Session, message: intercom.IncomingMessage) -> None:
    assert_type(await session.send("bob", "hi", queue=False, valid_for=60), intercom.Receipt)
    assert_type(message.mail, intercom.Mail | None)
    assert_type(message.notice, intercom.Notice | None)
    assert_type(message.age, float)
    asks = await session.pending()
    assert_type(asks, list[intercom.PendingAsk])
    assert_type(await session.answer(asks[0], "yes", error=False), intercom.Receipt)
    trace = await session.trace("m")
    assert_type(trace, intercom.Trace)
    assert_type(trace.state, str)
    assert_type(trace.events, tuple[intercom.TraceEvent, ...])
    box = await session.mailbox("bob", group="g", after=1, limit=10)
    assert_type(box, intercom.Mailbox)
    assert_type(box.entries, tuple[intercom.MailboxEntry, ...])
    assert_type(box.entries[0].state, Literal["queued", "offered"])
    assert_type(await session.addresses(), list[intercom.AddressView])
    records = await session.session_records()
    assert_type(records, list[intercom.SessionRecord])
    assert_type(records[0].state, Literal["active", "reconnecting", "closed"])
    assert_type(await session.force_close("s", "why"), bool)
    assert_type(await session.task_hint("reviews"), str)
    assert_type(await session.outbox(peer="studio", status="posted", limit=10), intercom.OutboxPage)
    assert_type((await session.outbox(delivery_id="d")).entries[0].next_attempt_at, int | None)
    assert_type(await session.retry_outbox("d"), str)
    assert_type(await session.cancel_outbox("d"), str)
    assert_type(await session.purge(older_than=60, address="bob"), intercom.Purged)


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
    assert_type(view.state, Literal["active", "reconnecting"])
    assert_type(group.group, str)
    assert_type(group.session_count, int)
    assert_type(group.member, bool)


async def events(session: intercom.Session) -> None:
    assert_type(session.events(), intercom.Events)
    async for event in session.events():
        assert_type(event, intercom.SessionEvent)
        assert_type(
            event.kind,
            Literal[
                "joined",
                "left",
                "presence",
                "disconnected",
                "reconnected",
                "run_lost",
                "stage_lost",
                "report_prepared",
                "report_published",
                "report_accepted",
                "report_refused",
                "missed",
            ],
        )
        assert_type(event.run_id, str | None)
        assert_type(event.session_id, str | None)
        assert_type(event.session, intercom.SessionView | None)
        assert_type(event.reason, str | None)
        assert_type(event.count, int)


class Kept:
    def admit(self, request: intercom.StageRequest) -> intercom.StageAnswer:
        assert_type(request.id, str)
        assert_type(request.run_id, str)
        assert_type(request.target, str)
        assert_type(request.text, str)
        assert_type(request.attachments, tuple[intercom.Attachment, ...])
        assert_type(request.sender, intercom.SessionView)
        assert_type(request.sender_name, str | None)
        assert_type(request.return_address, str | None)
        assert_type(request.expects_reply, bool)
        assert_type(request.is_live, bool)
        if request.expects_reply:
            return intercom.StageAnswer.not_started()
        return intercom.StageAnswer.queued(1, forward_to=["t"], is_known=False)

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        pass


class Awaited:
    async def admit(self, request: intercom.StageRequest) -> intercom.StageAnswer:
        return intercom.StageAnswer.forward("t") if request.is_live else intercom.StageAnswer.delivered()

    async def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        pass


async def workflows(session: intercom.Session, stage: intercom.StageView) -> None:
    roster = [intercom.RosterStage(id="s", name="n", running=True, agent=True, listed=True)]
    possible: list[intercom.PossibleStage | str] = ["reviewer-*", intercom.PossibleStage(target="t", queued=1)]
    run = session.workflow(
        "r", Kept(), roster=roster, possible=possible, parent="p", boundary=["b"], capability="c", dormant=True
    )
    assert_type(run, intercom.Run)
    async with run as entered, session.workflow("r2", Awaited()):
        assert_type(entered, intercom.Run)
        assert_type(run.id, str)
        assert_type(run.group, str)
        assert_type(run.capability, str)
        assert_type(run.lost, str | None)
        assert_type(run.target("a", "b"), str)
        await run.announce(roster=roster, possible=())
        receipt = await run.notify("s", "done", reply_to="m", sender_name="n", return_address="r", message_id="i")
        assert_type(receipt, intercom.Receipt)
    async with session.stage("r", "s", "n", capability="c", timeout=3) as live:
        assert_type(live, intercom.LiveStage)
        assert_type(live.lost, str | None)
    assert_type(await session.list_stages("g"), list[intercom.StageView])
    assert_type(stage.state, Literal["pending", "running", "possible"])
    assert_type(stage.id, str | None)
    assert_type(stage.target, str)
    assert_type(stage.queued, int)
    assert_type(stage.deliveries, tuple[intercom.DeliveryState, ...])


def workflows_without_a_loop(session: blocking.Session, queue: intercom.StageQueue) -> None:
    with session.workflow("r", queue, roster=[], possible=[]) as run:
        assert_type(run, blocking.Run)
        run.serve(timeout=1)
        run.announce(possible=["**"])
        assert_type(run.notify("s", "done"), intercom.Receipt)
    with session.stage("r", "s", capability="c") as live:
        assert_type(live, blocking.LiveStage)
    assert_type(session.list_stages(), list[intercom.StageView])
    assert_type(session.outcome(session.send("bob", "hi", hold=True)), intercom.Receipt)
    session.reserve_child("c")
    session.release_child("c")
    session.workflow("r", Awaited())  # type: ignore[arg-type]


def without_a_loop() -> None:
    with blocking.connect("ada", supervisor="capability") as session:
        assert_type(session, blocking.Session)
        assert_type(session.supervisor_id, str | None)
        assert_type(session.send("bob", "hi", logical_target="b"), intercom.Receipt)
        assert_type(session.ask("bob", "?"), blocking.IncomingMessage)
        assert_type(session.send_supervisor("hi"), intercom.Receipt)
        assert_type(session.ask_supervisor("?"), blocking.IncomingMessage)
        assert_type(session.authorize_child("c"), str)
        assert_type(session.pending(), list[intercom.PendingAsk])
        assert_type(session.trace("m"), intercom.Trace)
        assert_type(session.mailbox(), intercom.Mailbox)
        assert_type(session.session_records(), list[intercom.SessionRecord])
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
    intercom.connect(hold="other")  # type: ignore[arg-type]
    intercom.connect("ada", "g")  # type: ignore[call-arg]
    session.name = "n"  # type: ignore[misc]
    receipt.state = "queued"  # type: ignore[misc]
    await session.send("bob", b"bytes")  # type: ignore[arg-type]
    await session.send("bob", "hi", attachments=[3])  # type: ignore[list-item]
    with session:  # type: ignore[attr-defined]
        pass
