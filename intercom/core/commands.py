"""Bring commands to the worker of a link, one receipt at a time (protocol 14.4).

    pending --received--> received --event applied / failed--> applied / failed
       |                      +--the operator gives the link to another journal--> ambiguous
       +--rejected--> rejected        +--its body is lost--> failed

Rule 1: the lowest place without a receipt is offered, and the next one only after that receipt is on disk; whatever
else a worker says decides nothing. Rule 2: only a durable event says that a command was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.link import Claim, Command, Link, Stage
from intercom.core.move import Move
from intercom.core.outbox import Outbox
from intercom.core.records import CommandRecord, Happened, ReadBodies, ReleaseBody, SaveBody
from intercom.limits import LINK_DETAIL_CHARACTERS, Limits
from intercom.wire.links import Command as CommandFrame
from intercom.wire.links import CommandReceived, CommandRejected, RefusalCode

if TYPE_CHECKING:
    from intercom.core.operations import Operations

BODY_LOST = "body_lost"


class Offering(Struct, frozen=True):
    """Remember for which connection the body of which command is read."""

    claim: Any
    command: Any


class Commands:
    """Keep the commands of every link."""

    def __init__(
        self,
        operations: Operations,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        links: dict[str, Link],
        fail: Callable[[Claim, RefusalCode, str, Instant], None],
    ) -> None:
        self._operations = operations
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._links = links
        self._fail = fail
        self._by_id: dict[str, Command] = {}
        self.open = 0
        """Open commands of all links."""
        self.open_bytes = 0

    def recover(self, records: Iterable[CommandRecord]) -> None:
        """Enter what the store held; what was offered is offered again."""
        for record in records:
            link = self._links.get(record.link_id)
            if link is not None:
                self._enter(link, Command(record))

    def get(self, command_id: str) -> Command | None:
        """Return the command with this id."""
        return self._by_id.get(command_id)

    def find(self, link: Link, command_id: str) -> Command | None:
        """Return the command of a link with this id."""
        command = self._by_id.get(command_id)
        return command if command is not None and command.record.link_id == link.id else None

    def has_room(self, link: Link, size: int) -> bool:
        """Tell whether one more command of this size may be open."""
        return (
            link.open_count < self._limits.link_commands
            and self.open < self._limits.commands
            and self.open_bytes + size <= self._limits.commands_bytes
        )

    def _enter(self, link: Link, command: Command) -> None:
        link.commands[command.record.seq] = command
        self._by_id[command.record.command_id] = command
        if command.is_open:
            self._count(command, 1)

    def _leave(self, link: Link, command: Command) -> None:
        del link.commands[command.record.seq]
        del self._by_id[command.record.command_id]
        if command.is_open:
            self._count(command, -1)

    def _count(self, command: Command, sign: int) -> None:
        self.open += sign
        self.open_bytes += sign * command.record.size

    # --- storing ----------------------------------------------------------------------------------------

    def store(self, link: Link, command_id: str, body: bytes, fingerprint: str, now: Instant) -> Command:
        """Store a command for the worker of a link; it is offered once it is on disk."""
        move = Move()
        before = link.record
        link.record = replace(before, last_command=before.last_command + 1)

        def take_back(now: Instant) -> None:
            link.record = before

        move.inverse(take_back)
        number = self._operations.next_number()
        record = CommandRecord(
            command_id, number, link.id, link.record.last_command, "pending", fingerprint, len(body), now.wall, now.wall
        )
        command = Command(record)
        self._enter(link, command)
        move.inverse(lambda now: self._leave(link, command))
        self._forget_oldest(link, move, now)
        move.changes += [
            SaveBody(number, body),
            self._journal.event("link.commanded", link.record, now),
            self._event("command.pending", record, now),
        ]
        link.ticket = command.ticket = move.append(self._ledger)
        self._ledger.when_committed(command.ticket, self._stored, link)
        return command

    def _stored(self, link: Link, now: Instant) -> None:
        if link.claim is not None:
            self.pump(link.claim, now)

    def _forget_oldest(self, link: Link, move: Move, now: Instant) -> None:
        settled = [command for command in link.commands.values() if not command.is_open]
        for command in settled[: max(0, len(settled) - self._limits.link_commands)]:
            self._forget(link, command, move, now)

    def _forget(self, link: Link, command: Command, move: Move, now: Instant) -> None:
        self._leave(link, command)
        move.inverse(lambda now: self._come_back(link, command))
        move.changes.append(self._event("command.forgotten", command.record, now, is_gone=True))

    def _come_back(self, link: Link, command: Command) -> None:
        self._enter(link, command)
        link.commands = dict(sorted(link.commands.items()))

    def forget(self, link: Link, move: Move, now: Instant) -> None:
        """Forget all commands of a link that has none that is open."""
        for command in list(link.commands.values()):
            self._forget(link, command, move, now)

    # --- offering ---------------------------------------------------------------------------------------

    def pump(self, claim: Claim, now: Instant) -> None:
        """Offer the command with the lowest place that has no receipt, unless one is offered already."""
        if claim.stage is not Stage.READY or claim.offered is not None or claim.is_draining:
            return
        waiting = (command for command in claim.link.commands.values() if command.record.state == "pending")
        command = next(waiting, None)
        if command is not None and self._ledger.is_committed(command.ticket):
            claim.offered = command
            self._outbox.add(ReadBodies(Offering(claim, command), (command.record.number,)))

    def read(self, token: Offering, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Offer a command whose body was read."""
        claim, command = token.claim, token.command
        if claim.stage is not Stage.READY or claim.offered is not command:
            return
        if claim.is_draining:
            claim.offered = None
            claim.look_whether_drained()
            return
        if bodies is None:
            claim.offered = None
            claim.look_whether_drained()
            self._deadlines.add(now.mono + self._limits.link_retry_ms, self.pump, claim)
            return
        body = bodies.get(command.record.number)
        if body is None:
            claim.offered = None
            claim.look_whether_drained()
            move = Move()
            self._settle(command, "failed", move, now, error_code=BODY_LOST)
            command.ticket = move.append(self._ledger)
            self._ledger.when_committed(command.ticket, self._stored, claim.link)
            return
        frame = CommandFrame(command.record.command_id, command.record.seq, Raw(body))
        self._ledger.append((self._event("command.offered", command.record, now),))
        self._outbox.write(claim.connection, frame)
        claim.deadline = self._deadlines.add(now.mono + self._limits.link_receipt_ms, self._no_receipt, claim)

    def _no_receipt(self, claim: Claim, now: Instant) -> None:
        limit = self._limits.link_receipt_ms
        self._fail(claim, "command_ack_timeout", f"A command had no receipt within {limit} ms", now)

    def receipt(
        self, claim: Claim, command: Command, frame: CommandReceived | CommandRejected, move: Move, now: Instant
    ) -> None:
        """Take the receipt of a command that has none."""
        self._has_answer(claim, command)
        if isinstance(frame, CommandReceived):
            self._settle(command, "received", move, now)
        else:
            detail = None if frame.detail is UNSET else frame.detail
            self._settle(command, "rejected", move, now, error_code=frame.error_code, detail=detail)

    def _has_answer(self, claim: Claim, command: Command) -> None:
        """Wait for no receipt of this command any more."""
        if claim.offered is command:
            self._deadlines.cancel(claim.deadline)
            claim.deadline = claim.offered = None

    # --- outcomes ---------------------------------------------------------------------------------------

    def settle(self, link: Link, content: dict[str, Any], outcome: str, move: Move, now: Instant) -> None:
        """Let an event say what became of a command; the first outcome counts."""
        command = self.find(link, str(content.get("commandId")))
        if command is None:
            self._outbox.note("unknown_command", link=link.id)
        elif command.is_open:
            assert link.claim is not None, "events come under a claim"
            self._has_answer(link.claim, command)
            self._settle(
                command, outcome, move, now, error_code=_text(content, "errorCode"), detail=_text(content, "detail")
            )

    def doubt(self, link: Link, move: Move, now: Instant) -> list[str]:
        """Let nobody know any more what became of the commands that were received; return their ids."""
        doubtful = [command for command in link.commands.values() if command.record.state == "received"]
        for command in doubtful:
            self._settle(command, "ambiguous", move, now)
        return [command.record.command_id for command in doubtful]

    def _settle(self, command: Command, state: str, move: Move, now: Instant, **members: Any) -> None:
        before = command.record
        was_open = command.is_open
        command.record = replace(before, state=state, changed_at=now.wall, **members)
        is_over = was_open and not command.is_open
        if is_over:
            self._count(command, -1)
            move.changes.append(ReleaseBody(before.number, now.wall + self._limits.bodies_kept_ms))

        def take_back(now: Instant) -> None:
            command.record = before
            if is_over:
                self._count(command, 1)

        move.inverse(take_back)
        move.changes.append(self._event(f"command.{state}", command.record, now))

    def _event(self, kind: str, record: CommandRecord, now: Instant, *, is_gone: bool = False) -> Happened:
        mailbox = self._links[record.link_id].record.mailbox
        return self._journal.event(kind, record, now, is_gone=is_gone, mailbox=mailbox)


def _text(content: dict[str, Any], name: str) -> str | None:
    value = content.get(name)
    return value[:LINK_DETAIL_CHARACTERS] if isinstance(value, str) else None
