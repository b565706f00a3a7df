"""Let work be sent, handed out, claimed, reported, answered and lost in any order, with a disk and a clock that fail.

Whatever happens: a message of the inbox is in exactly one place, nothing has two ends, a return never fails for lack of
room, and a late report moves nothing. ``INTERCOM_EXAMPLES`` as in ``test_machine``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.core.connections import PeerCredentials
from intercom.core.records import AssignmentRecord, Happened, InboxRecord, MailRecord, SessionState
from intercom.limits import Limits
from tests.core.harness import INFO, Disk, World
from tests.core.mail import AGENT
from tests.core.work import COORDINATOR, WORKER

pytestmark = pytest.mark.long

EXAMPLES = os.environ.get("INTERCOM_EXAMPLES")
LIMITS = Limits(
    inbox_entries=3,
    accept_ms=5_000,
    grace_ms=9_000,
    restart_grace_ms=3_000,
    mail_ttl_ms=40_000,
    mailbox_entries=3,
    order_ttl_ms=60_000,
    operation_ttl_ms=60_000,
    history_kept_ms=30_000,
    bodies_kept_ms=5_000,
    tidy_ms=10_000,
    receipt_wait_ms=4_000,
    busy_ms=1_000,
    inbox_hold_ms=3_000,
)
TIMES_MS = (1, 1_100, 2_100, 5_100, 9_100, 41_000, 61_000)
ENDS = {
    "inbox.answered",
    "inbox.settled",
    "inbox.failed",
    "inbox.expired",
    "inbox.ambiguous",
    "inbox.undeliverable",
}
WORKERS = ("resident", "managed", "box")
index = st.integers(0, 59)


class Player:
    """Be one client program that comes back; what it was told stays true for it."""

    def __init__(self, name: str, features: tuple[str, ...], pid: int, **members: Any) -> None:
        self.name = name
        self.features = features
        self.pid = pid
        self.members = members
        self.conn: int | None = None
        self.session_id: str | None = None
        self.token: str | None = None
        self.known: list[tuple[str, str]] = []
        """Assignments it was handed, with their messages."""
        self.pushed: list[dict[str, Any]] = []
        """Messages it has not confirmed."""
        self.received: Counter[str] = Counter()


class WorkWorld(RuleBasedStateMachine):
    """Choose what happens next, and look at disk and memory after everything."""

    @initialize()
    def begin(self) -> None:
        self.world = World(limits=LIMITS, disk=Disk(), auto=False)
        self.players = [
            Player("boss", COORDINATOR, 11),
            Player("resident", WORKER, 12, workMode="resident", executionSurface="headless"),
            Player("managed", WORKER, 13, workMode="managed_turn", runtimeSessionId="m"),
            Player("box", (*AGENT, "work.assignments"), 14, workMode="resident", address={"name": "box"}),
            Player("sender", AGENT, 15),
            Player("passing", ("push.receipts", "queue"), 16),
        ]
        self.sent: list[str] = []
        self.count = 0
        self.deeds = 0
        self.seen_events = 0
        self.ends: Counter[str] = Counter()
        self.places: dict[str, int] = {}
        self.replies: dict[tuple[str, str], set[str]] = {}
        self.asked: dict[str, tuple[str, str]] = {}
        self.refused_for_room = 0
        for player in self.players:
            self.come(player)

    # --- clients ----------------------------------------------------------------------------------------

    def come(self, player: Player, *, again: bool = True) -> None:
        peer = PeerCredentials(pid=player.pid, uid=1000, gid=1000, started=7)
        player.conn = self.world.connect(peer)
        player.pushed = []
        if player.token is not None and again:
            self.write(player, "session_reattach", requestId="re", sessionId=player.session_id, ownerToken=player.token)
            return
        self.register(player)

    def register(self, player: Player) -> None:
        wish = {}
        if player.token is not None:
            wish = {"preferredSessionId": player.session_id, "ownerToken": player.token}
        self.write(
            player,
            "register",
            session={**INFO, "name": player.name},
            returnAddress=f"return-{player.name}",
            acknowledgesReceipt=True,
            features=list(player.features),
            clientProtocolVersion="1.0",
            kind="custom",
            **{**player.members, **self.claim(player)},
            **wish,
        )

    def claim(self, player: Player) -> dict[str, Any]:
        if "address" not in player.members:
            return {}
        return {"address": {"name": "box", "token": "t" * 40}}

    def write(self, player: Player, type: str, **members: Any) -> None:
        assert player.conn is not None
        self.deeds += 1
        self.feed(player, type, members)
        self.settle()

    def feed(self, player: Player, type: str, members: dict[str, Any]) -> None:
        assert player.conn is not None
        frames = self.world.send(player.conn, type=type, **members)
        self.read(player, frames)

    def settle(self) -> None:
        for _ in range(200):
            if not (self.world.appends or self.world.reads or self.world.waiting):
                return
            self.world.commit()
            self.world.take()
            self.world.read()
            for player in self.players:
                if player.conn is not None:
                    self.read(player, self.world.got(player.conn))
        raise AssertionError("it never comes to rest")

    def read(self, player: Player, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            kind = frame["type"]
            if kind in ("registered", "session_reattached"):
                player.session_id = frame["sessionId"]
                player.token = frame.get("ownerToken", player.token)
            elif kind == "message":
                player.pushed.append(frame)
                player.received[frame["message"]["id"]] += 1
                if "assignment" in frame:
                    self.handed(player, frame["assignment"])
            elif kind == "assignment_granted":
                self.handed(player, frame["assignment"])
            elif kind == "assignment_replied":
                key = self.asked.get(frame["requestId"])
                if key is not None:
                    self.replies.setdefault(key, set()).add(frame["messageId"])
            elif kind == "delivery_failed" and frame["reason"].startswith("Inbox full"):
                self.refused_for_room += 1
                assert len(self.world.disk.inbox) >= LIMITS.inbox_entries or self.world.appends
            elif kind == "request_failed" and frame["requestId"] == "re":
                self.world.end(player.conn)  # type: ignore[arg-type]  # it just wrote there
                player.conn = player.token = None

    def handed(self, player: Player, info: dict[str, Any]) -> None:
        pair = (info["assignmentId"], info["sourceMessageId"])
        if pair not in player.known:
            player.known.append(pair)

    def here(self, *names: str) -> list[Player]:
        return [player for player in self.players if player.conn is not None and (not names or player.name in names)]

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # --- rules ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.here("sender", "passing"))
    @rule(which=index, to=index, valid=st.sampled_from([None, None, 4_000]), plain=st.booleans())
    def send(self, which: int, to: int, valid: int | None, plain: bool) -> None:
        players = self.here("sender", "passing")
        player = players[which % len(players)]
        target = ("resident", "managed", "box", "resident", "managed")[to % 5]
        message_id = self.next("m")
        self.sent.append(message_id)
        extra: dict[str, Any] = {} if valid is None else {"validFor": valid}
        message = {"id": message_id, "timestamp": 5, "content": {"text": "do it"}}
        if plain and to % 3 == 0 and player.received:
            message["replyTo"] = next(iter(player.received))
        self.write(player, "send", to=target, message=message, attemptId=message_id, queueIfAway=True, **extra)

    @precondition(lambda self: self.here("boss") and self.here("sender", "passing"))
    @rule(sender=index, to=index, until=st.integers(1, 6), state=index)
    def work(self, sender: int, to: int, until: int, state: int) -> None:
        """Go some steps of the way that work usually goes."""
        worker = self.players[1 + to % 3]
        steps = (
            lambda: self.send(sender, (1, 2, 3)[to % 3] - 1, None, False),
            lambda: self.dispatch(0 if to % 2 else 5, to % 3, 1, None),
            lambda: worker.pushed and self.confirm_last(worker),
            lambda: worker.known and self.report_last(worker, "accepted"),
            lambda: (
                worker.known and self.report_last(worker, ("started", "failed", "started", "interrupted")[state % 4])
            ),
            lambda: worker.known and self.reply(self.here(*WORKERS).index(worker), 0, "q1", "done"),
        )
        for step in steps[:until]:
            if worker.conn is None and step is not steps[0] and step is not steps[1]:
                return
            if worker.members.get("workMode") == "managed_turn" and step is steps[2] and worker.conn is not None:
                self.write(worker, "inbox_await", requestId=self.next("r"), timeoutMs=0, claim=bool(state % 2))
            if not self.here("boss") or not self.here("sender", "passing"):
                return
            step()

    def confirm_last(self, player: Player) -> None:
        frame = player.pushed.pop()
        self.write(player, "received", messageId=frame["message"]["id"])

    def report_last(self, player: Player, state: str) -> None:
        assignment_id, message_id = player.known[-1]
        self.write(
            player,
            "assignment_report",
            requestId=self.next("r"),
            sourceMessageId=message_id,
            assignmentId=assignment_id,
            stateEventId=self.next("e"),
            state=state,
        )

    @precondition(lambda self: self.here("boss") and self.sent)
    @rule(which=index, to=index, key=index, deadline=st.sampled_from([None, None, 0, 20_000]))
    def dispatch(self, which: int, to: int, key: int, deadline: int | None) -> None:
        target = self.players[1 + to % 4]
        parked = list(self.world.disk.inbox.values())
        chosen = parked[which % len(parked)].inbox_id if parked and which % 5 else self.sent[which % len(self.sent)]
        extra: dict[str, Any] = {} if deadline is None else {"acceptWithinMs": deadline}
        if key % 3 == 0:
            extra["idempotencyKey"] = f"k{key}"
        [boss] = self.here("boss")
        self.write(
            boss,
            "inbox_dispatch",
            requestId=self.next("r"),
            inboxId=chosen,
            targetSessionId=target.session_id or "nobody",
            **extra,
        )

    @precondition(lambda self: self.here(*WORKERS))
    @rule(which=index, how=index)
    def take_work(self, which: int, how: int) -> None:
        players = self.here(*WORKERS)
        player = players[which % len(players)]
        if how % 3 == 0 and self.sent:
            parked = list(self.world.disk.inbox.values())
            chosen = parked[how % len(parked)].inbox_id if parked else self.sent[-1]
            self.write(player, "inbox_claim", requestId=self.next("r"), inboxId=chosen)
        else:
            timeout = (0, 2_000)[how % 2]
            self.write(player, "inbox_await", requestId=self.next("r"), timeoutMs=timeout, claim=how % 4 < 2)

    @precondition(lambda self: any(player.known for player in self.here()))
    @rule(which=index, what=index, state=index, retryable=st.booleans(), repeats=st.booleans())
    def report(self, which: int, what: int, state: int, retryable: bool, repeats: bool) -> None:
        players = [player for player in self.here() if player.known]
        player = players[which % len(players)]
        assignment_id, message_id = player.known[-1 - what % min(len(player.known), 4)]
        states = (
            "accepted",
            "accepted",
            "accepted",
            "started",
            "failed",
            "expired",
            "waiting_for_capability",
            "interrupted",
        )
        open_before = set(self.world.disk.assignments)
        members = {
            "sourceMessageId": message_id,
            "assignmentId": assignment_id,
            "stateEventId": "same" if repeats else self.next("e"),
            "state": states[state % len(states)],
            "retryable": retryable,
        }
        before = (dict(self.world.disk.inbox), dict(self.world.disk.assignments))
        self.write(player, "assignment_report", requestId=self.next("r"), **members)
        if assignment_id not in open_before:
            assert (dict(self.world.disk.inbox), dict(self.world.disk.assignments)) == before, (
                "a late report moved something"
            )

    @precondition(lambda self: any(player.known for player in self.here()))
    @rule(
        which=index,
        what=index,
        key=st.sampled_from(["q1", "q1", "q2"]),
        text=st.sampled_from(["done", "done", "other"]),
    )
    def reply(self, which: int, what: int, key: str, text: str) -> None:
        players = self.here(*WORKERS)
        player = players[which % len(players)]
        if not player.known:
            return
        assignment_id, message_id = player.known[-1 - what % min(len(player.known), 4)]
        request_id = self.next("r")
        self.asked[request_id] = (assignment_id, key)
        self.write(
            player,
            "assignment_reply",
            requestId=request_id,
            sourceMessageId=message_id,
            assignmentId=assignment_id,
            replyRequestId=key,
            content={"text": text},
        )

    @precondition(lambda self: self.here("boss", "resident") and self.sent)
    @rule(which=index, who=index)
    def settle_item(self, which: int, who: int) -> None:
        players = self.here("boss", "resident")
        chosen = self.sent[-1 - which % min(len(self.sent), 6)]
        self.write(players[who % len(players)], "inbox_settle", requestId=self.next("r"), inboxId=chosen)

    @precondition(lambda self: any(player.pushed for player in self.here()))
    @rule(which=index, what=index)
    def confirm(self, which: int, what: int) -> None:
        players = [player for player in self.here() if player.pushed]
        player = players[which % len(players)]
        frame = player.pushed.pop(what % len(player.pushed))
        extra = {"pushId": frame["pushId"]} if what % 2 and "pushId" in frame else {}
        self.write(player, "received", messageId=frame["message"]["id"], **extra)

    @precondition(lambda self: self.here())
    @rule(which=index, how=st.sampled_from(["lost", "lost", "unregister"]))
    def leave(self, which: int, how: str) -> None:
        players = self.here()
        player = players[which % len(players)]
        if how == "unregister":
            self.feed(player, "unregister", {})
        assert player.conn is not None
        self.world.lose(player.conn)
        self.world.end(player.conn)
        player.conn = None
        self.settle()

    @rule(which=index, again=st.booleans())
    def return_(self, which: int, again: bool) -> None:
        gone = [player for player in self.players if player.conn is None]
        if gone:
            self.come(gone[which % len(gone)], again=again)

    @precondition(lambda self: self.world.watched)
    @rule(which=index)
    def die(self, which: int) -> None:
        refs = list(self.world.watched)
        self.world.perform(self.world.broker.process_judged(refs[which % len(refs)], False, self.world.now))
        self.settle()

    @precondition(lambda self: self.deeds > 9)
    @rule(ms=st.sampled_from(TIMES_MS))
    def wait(self, ms: int) -> None:
        self.pass_time(ms)

    def pass_time(self, ms: int) -> None:
        end = self.world.mono + ms
        while self.world.mono < end:
            due = self.world.broker.next_deadline()
            step = end if due is None else min(end, max(due, self.world.mono + 1))
            self.world.pass_time(step - self.world.mono)
            self.settle()

    @precondition(lambda self: self.here() and self.sent)
    @rule(which=index, deed=index, keep=st.integers(0, 2), dies=st.booleans())
    def fail(self, which: int, deed: int, keep: int, dies: bool) -> None:
        """Let a commit fail, or the broker die around one."""
        players = self.here("boss", "resident", "managed", "box")
        if not players:
            return
        player = players[which % len(players)]
        assert player.conn is not None
        request_id = self.next("r")
        frame: dict[str, Any] = {"type": "inbox_await", "requestId": request_id, "timeoutMs": 0, "claim": True}
        if player.name == "boss":
            chosen = self.sent[-1 - deed % min(len(self.sent), 6)]
            target = self.players[1 + deed % 3].session_id or "nobody"
            frame = {"type": "inbox_dispatch", "requestId": request_id, "inboxId": chosen, "targetSessionId": target}
        elif player.known and deed % 2:
            assignment_id, message_id = player.known[-1]
            frame = {
                "type": ("assignment_report", "assignment_reply")[deed // 2 % 2],
                "requestId": request_id,
                "sourceMessageId": message_id,
                "assignmentId": assignment_id,
            }
            if frame["type"] == "assignment_report":
                frame |= {"stateEventId": self.next("e"), "state": "accepted"}
            else:
                frame |= {"replyRequestId": "q1", "content": {"text": "done"}}
                self.asked[request_id] = (assignment_id, "q1")
        self.read(player, self.world.send(player.conn, **frame))
        if self.world.appends:
            self.world.commit(keep % (len(self.world.appends) + 1))
            if self.world.appends and not dies:
                self.world.fail_commit()
        if dies:
            self.restart()
        else:
            self.settle()

    @precondition(lambda self: self.deeds > 4)
    @rule(is_graceful=st.booleans())
    def end_broker(self, is_graceful: bool) -> None:
        if is_graceful:
            self.world.stop()
        self.restart()

    def restart(self) -> None:
        were_here = self.here()
        self.world.crash()
        for player in self.players:
            player.conn = None
        self.settle()
        for player in were_here:
            self.come(player)

    # --- what must hold ---------------------------------------------------------------------------------

    @invariant()
    def a_message_is_in_one_place(self) -> None:
        """An inbox message is parked or in the hands of one worker; and in at most one mailbox, of that one."""
        disk = self.world.disk
        by_message = Counter(record.inbox for record in disk.assignments.values())
        assert all(count == 1 for count in by_message.values()), by_message
        for row in disk.inbox.values():
            held = [record for record in disk.assignments.values() if record.inbox == row.number]
            assert [record.assignment_id for record in held] == ([row.assignment] if row.assignment else [])
            assert row.number in disk.bodies and disk.bodies[row.number].until is None
        inboxes = {record.inbox for record in disk.assignments.values()}
        assert inboxes <= set(disk.inbox)
        parked_ids = Counter(row.inbox_id for row in disk.inbox.values())
        assert all(count == 1 for count in parked_ids.values())
        carried = Counter(mail.assignment for mail in disk.mail.values() if mail.assignment is not None)
        assert all(count == 1 for count in carried.values())
        assert set(carried) <= set(disk.assignments)
        for mail in disk.mail.values():
            if mail.assignment is None and mail.notice is None:
                assert mail.message_id not in parked_ids, "it waits in two places"

    @invariant()
    def nothing_ends_twice(self) -> None:
        journal = self.world.disk.journal
        for event in journal:
            if event.seq > self.seen_events:
                self.seen_events = event.seq
                if event.kind in ENDS:
                    self.ends[event.row.inbox_id] += 1  # type: ignore[union-attr]  # of the inbox
                if isinstance(event.row, InboxRecord) and not event.is_gone:
                    place = self.places.setdefault(event.row.inbox_id, event.row.number)
                    assert place == event.row.number, "it lost its place"
        assert all(count <= 1 for count in self.ends.values()), self.ends

    @invariant()
    def memory_and_disk_agree_at_rest(self) -> None:
        broker, disk = self.world.broker, self.world.disk
        if self.world.appends or self.world.reads or self.world.waiting:
            return
        inbox = {parked.record.number: parked.record for parked in broker._post.inbox.in_order()}
        assert inbox == disk.inbox
        assignments = {one.id: one.record for one in broker._work.assignments.all()}
        assert assignments == disk.assignments
        assert all(parked.deadline is not None or not parked.is_free for parked in broker._post.inbox.in_order())
        for one in broker._work.assignments.all():
            waits = one.record.accept_deadline is not None and not one.record.accepted
            assert (one.deadline is not None) == waits

    @invariant()
    def a_reply_request_has_one_message(self) -> None:
        assert all(len(ids) == 1 for ids in self.replies.values()), self.replies

    @invariant()
    def replay_tells_the_rows(self) -> None:
        """A5.5 for the rows of this chapter."""
        rows: dict[tuple[type, Any], Any] = {}
        for event in self.world.disk.journal:
            assert isinstance(event, Happened)
            row = event.row
            if isinstance(row, InboxRecord | MailRecord):
                key: tuple[type, Any] = (type(row), row.number)
            elif isinstance(row, AssignmentRecord):
                key = (type(row), row.assignment_id)
            else:
                continue
            if event.is_gone:
                rows.pop(key, None)
            else:
                rows[key] = row
        disk = self.world.disk
        assert {key[1] for key in rows if key[0] is InboxRecord} == set(disk.inbox)
        assert {key[1] for key in rows if key[0] is AssignmentRecord} == set(disk.assignments)
        assert {key[1] for key in rows if key[0] is MailRecord} == set(disk.mail)

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        """Let everybody leave and all time pass: nothing is left, and every message has come to one end."""
        self.settle()
        for player in self.here():
            assert player.conn is not None
            self.world.lose(player.conn)
            self.world.end(player.conn)
            player.conn = None
            self.settle()
        self.pass_time(300_000)
        self.a_message_is_in_one_place()
        self.nothing_ends_twice()
        self.memory_and_disk_agree_at_rest()
        disk = self.world.disk
        assert all(row.state is SessionState.CLOSED for row in disk.known_sessions.values())
        kept = [record for record in disk.assignments.values() if not record.accepted]
        assert not [record for record in kept if record.accept_deadline is not None]
        left = [row for row in disk.inbox.values() if row.assignment is None]
        assert not left, left
        assert not disk.idempotency and not len(self.world.broker._work.register)
        assert len(self.world.broker._sending.offers) == 0
        assert not self.world.broker._work.handing._waiting


TestWorkWorld = WorkWorld.TestCase
TestWorkWorld.settings = settings(
    max_examples=int(EXAMPLES or 60),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)
