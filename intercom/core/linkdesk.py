"""Take the requests about links, commands and durable events (protocol 14.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import decode

from intercom.core import features
from intercom.core.addresses import Address, Addresses
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.giving import Giving, No
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Lifecycle
from intercom.core.link import Command, Link, fingerprint_of
from intercom.core.links import Links
from intercom.core.mailboxes import Mailboxes
from intercom.core.move import Move
from intercom.core.outbox import Outbox
from intercom.core.records import EventRecord, ReadBodies
from intercom.core.sessions import Session
from intercom.limits import Limits
from intercom.wire.links import (
    CommandEntry,
    Commands,
    CommandSend,
    CommandsRequest,
    CommandStored,
    EventEntry,
    LinkEntry,
    LinkEvents,
    LinkEventsRequest,
    LinkRepin,
    LinkRepinned,
    LinksRequest,
)
from intercom.wire.links import Links as LinksAnswer
from intercom.wire.mail import MailboxOf

_SEES = frozenset({features.LINK, features.COORDINATOR, features.OPERATOR})
_NEEDED: dict[type, frozenset[str]] = {
    LinksRequest: _SEES,
    LinkRepin: frozenset({features.OPERATOR}),
    CommandSend: frozenset({features.COORDINATOR, features.OPERATOR}),
    CommandsRequest: _SEES,
    LinkEventsRequest: _SEES,
}
"""Of which features one at least must have been granted."""
REQUESTS = tuple(_NEEDED)
_UNKNOWN_LINK = No("unknown_link", "No link with this id is known that this session may see; ask for links")


class ShowingCommand(Struct, frozen=True):
    """Remember who wants to see which command with its body."""

    connection: Any
    request_id: str
    command: Any


class ShowingEvents(Struct, frozen=True):
    """Remember who wants to see which events with their bodies."""

    connection: Any
    request_id: str
    link_id: str
    events: tuple[EventRecord, ...]


READ_FOR_LINKS = (ShowingCommand, ShowingEvents)
"""For what bodies are read."""


class LinkDesk:
    """Answer requests about links: every one gets exactly one answer."""

    def __init__(
        self,
        links: Links,
        addresses: Addresses,
        lifecycle: Lifecycle,
        boxes: Mailboxes,
        ledger: Ledger,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._links = links
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._boxes = boxes
        self._ledger = ledger
        self._outbox = outbox
        self._limits = limits
        self._giving = Giving(outbox, ledger)

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        needed = _NEEDED[type(frame)]
        if not needed & session.features:
            names = " or ".join(sorted(needed))
            no = No("feature_not_granted", f"This needs the feature {names}")
            return self._giving.refuse(connection, frame.request_id, no)
        if self._ledger.is_closed:
            no = No("store_unusable", "The store cannot be used, so links cannot be used either")
            return self._giving.refuse(connection, frame.request_id, no)
        refused = _HANDLERS[type(frame)](self, connection, session, frame, now)
        if refused is not None:
            self._giving.decline(connection, frame.request_id, refused)
        return None

    def read(self, token: object, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Go on after bodies were read, for one of ``READ_FOR_LINKS``."""
        if isinstance(token, ShowingCommand):
            body = UNSET if bodies is None else _raw(bodies, token.command.record.number)
            entry = _command_entry(token.command, body)
            self._giving.give(token.connection, Commands(token.request_id, [entry]), self._last)
        else:
            assert isinstance(token, ShowingEvents), "it is one of READ_FOR_LINKS"
            entries = [_event_entry(event, _raw(bodies or {}, event.number)) for event in token.events]
            self._outbox.write(token.connection, LinkEvents(token.request_id, token.link_id, entries))

    # --- who may see what -------------------------------------------------------------------------------

    def _address_of(self, link: Link) -> Address | None:
        kind, _, rest = link.record.mailbox.partition(":")
        return self._addresses.get(int(rest)) if kind == "address" else None

    def _rules(self, session: Session, link: Link) -> bool:
        """Tell whether a session speaks for the person, or hands out work where the worker is."""
        if features.OPERATOR in session.features:
            return True
        if features.COORDINATOR not in session.features:
            return False
        address = self._address_of(link)
        if address is not None:
            groups = address.row.groups
        else:
            known = self._lifecycle.get(link.record.mailbox.partition(":")[2])
            groups = () if known is None else known.groups
        return any(group in session.groups for group in groups)

    def _sees(self, session: Session, link: Link) -> bool:
        return link.record.mailbox == session.return_mailbox or self._rules(session, link)

    def _find(self, session: Session, link_id: str) -> Link | No:
        link = self._links.get(link_id)
        return link if link is not None and self._sees(session, link) else _UNKNOWN_LINK

    # --- links ------------------------------------------------------------------------------------------

    def _list(self, connection: Connection, session: Session, frame: LinksRequest, now: Instant) -> No | None:
        if frame.link_id is UNSET:
            found = [link for link in self._links if self._sees(session, link)]
        else:
            link = self._find(session, frame.link_id)
            if isinstance(link, No):
                return link
            found = [link]
        self._giving.give(connection, LinksAnswer(frame.request_id, list(map(self._entry, found))), self._last)
        return None

    @property
    def _last(self) -> int:
        return self._ledger.last_ticket

    def _entry(self, link: Link) -> LinkEntry:
        record, claim, address = link.record, link.claim, self._address_of(link)
        return LinkEntry(
            record.link_id,
            link.state,  # type: ignore[arg-type]  # one of the states
            record.generation,
            record.floor,
            link.open_count,
            0 if claim is None else claim.inbox.frames,
            0 if claim is None else claim.inbox.bytes,
            UNSET if record.journal_id is None else record.journal_id,
            UNSET if address is not None else record.mailbox.partition(":")[2],
            UNSET if address is None else address.name,
            UNSET if address is None else address.group,
            UNSET if link.heartbeat_at is None else link.heartbeat_at,
            UNSET if record.refused is None else record.refused,
            UNSET if claim is None or claim.worker_state is None else claim.worker_state,
            UNSET if link.other_journal is None else link.other_journal,
        )

    def _repin(self, connection: Connection, session: Session, frame: LinkRepin, now: Instant) -> No | None:
        link = self._find(session, frame.link_id)
        if isinstance(link, No):
            return link
        if link.record.journal_id == frame.journal_id:
            return No("already_pinned", "The link belongs to this journal already; nothing was changed")
        move = Move()
        doubtful = self._links.repin(link, frame.journal_id, move, now)
        link.ticket = move.append(self._ledger)
        answer = LinkRepinned(frame.request_id, link.id, frame.journal_id, doubtful)
        self._giving.give(connection, answer, link.ticket)
        box = self._boxes.get(link.record.mailbox)
        if box is not None and box.holder is not None:
            self._links.session_came(box.holder, now)
        return None

    # --- commands ---------------------------------------------------------------------------------------

    def _send(self, connection: Connection, session: Session, frame: CommandSend, now: Instant) -> No | None:
        link = self._named(session, frame)
        if isinstance(link, No):
            return link
        if not self._rules(session, link):
            return No("not_allowed", "Only the operator, or a coordinator in a group of the worker, sends it commands")
        body = bytes(frame.body)
        if len(body) > self._limits.link_body_bytes:
            return No("too_large", f"The body of a command has at most {self._limits.link_body_bytes} bytes")
        if not _is_object(body):
            return No("bad_request", "The body of a command is an object")
        fingerprint = fingerprint_of(body)
        command = self._links.commands.get(frame.command_id)
        if command is None:
            if not self._links.commands.has_room(link, len(body)):
                return No("capacity", "As many commands as are kept are open; send it again later", retryable=True)
            command = self._links.commands.store(link, frame.command_id, body, fingerprint, now)
        elif (command.record.link_id, command.record.fingerprint) != (link.id, fingerprint):
            return No("conflict", "Another command has this id; send it under a new one")
        self._giving.give(connection, CommandStored(frame.request_id, _command_entry(command)), self._last)
        return None

    def _named(self, session: Session, frame: CommandSend) -> Link | No:
        if (frame.link_id is UNSET) is (frame.of is UNSET):
            return No("bad_request", "Name a link by linkId, or by the address or session it belongs to")
        if frame.link_id is not UNSET:
            return self._find(session, frame.link_id)
        assert frame.of is not UNSET
        mailbox = self._mailbox_of(frame.of)
        if isinstance(mailbox, No):
            return mailbox
        link = self._links.of(mailbox)
        return link if link is not None and self._sees(session, link) else _UNKNOWN_LINK

    def _mailbox_of(self, of: MailboxOf) -> str | No:
        if of.session_id is not UNSET:
            known = self._lifecycle.get(of.session_id)
            return _UNKNOWN_LINK if known is None else known.mailbox_key
        if of.address is UNSET:
            return No("bad_request", "Name an address or a sessionId")
        found = [each for each in self._addresses.named(of.address) if of.group in (UNSET, each.group)]
        if len(found) > 1:
            groups = ", ".join(sorted(address.group for address in found))
            return No("ambiguous_address", f"Several addresses are named {of.address}; name the group: {groups}")
        return found[0].key if found else _UNKNOWN_LINK

    def _commands(self, connection: Connection, session: Session, frame: CommandsRequest, now: Instant) -> No | None:
        if frame.command_id is not UNSET:
            return self._show(connection, session, frame.request_id, frame.command_id)
        if frame.link_id is UNSET:
            links = [link for link in self._links if self._sees(session, link)]
        else:
            link = self._find(session, frame.link_id)
            if isinstance(link, No):
                return link
            links = [link]
        found = [command for link in links for command in link.commands.values()]
        found = sorted(
            (each for each in found if each.record.number > frame.after), key=lambda each: each.record.number
        )
        entries = [_command_entry(command) for command in found[: frame.limit]]
        self._giving.give(connection, Commands(frame.request_id, entries), self._last)
        return None

    def _show(self, connection: Connection, session: Session, request_id: str, command_id: str) -> No | None:
        command = self._links.commands.get(command_id)
        link = None if command is None else self._links.get(command.record.link_id)
        if command is None or link is None or not self._sees(session, link):
            return No("unknown_command", "No command with this id is known that this session may see; ask for commands")
        if not self._ledger.is_committed(command.ticket):
            return self._giving.not_read
        self._outbox.add(ReadBodies(ShowingCommand(connection, request_id, command), (command.record.number,)))
        return None

    # --- events -----------------------------------------------------------------------------------------

    def _events(self, connection: Connection, session: Session, frame: LinkEventsRequest, now: Instant) -> No | None:
        link = self._find(session, frame.link_id)
        if isinstance(link, No):
            return link
        if not self._ledger.is_committed(link.ticket):
            return self._giving.not_read
        found = tuple(event for event in link.events.values() if event.seq > frame.after)[: frame.limit]
        numbers = tuple(event.number for event in found)
        self._outbox.add(ReadBodies(ShowingEvents(connection, frame.request_id, link.id, found), numbers))
        return None


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(decode(body), dict)
    except DecodeError:
        return False


def _raw(bodies: dict[int, bytes], number: int) -> Raw | UnsetType:
    body = bodies.get(number)
    return UNSET if body is None else Raw(body)


def _command_entry(command: Command, body: Raw | UnsetType = UNSET) -> CommandEntry:
    record = command.record
    return CommandEntry(
        record.command_id,
        record.number,
        record.link_id,
        record.seq,
        record.state,  # type: ignore[arg-type]  # one of the states
        record.created_at,
        record.changed_at,
        UNSET if record.error_code is None else record.error_code,
        UNSET if record.detail is None else record.detail,
        body,
    )


def _event_entry(event: EventRecord, body: Raw | UnsetType) -> EventEntry:
    return EventEntry(event.seq, event.event_id, event.occurred_at, event.stored_at, event.kind, body)


_HANDLERS: dict[type, Callable[..., No | None]] = {
    LinksRequest: LinkDesk._list,
    LinkRepin: LinkDesk._repin,
    CommandSend: LinkDesk._send,
    CommandsRequest: LinkDesk._commands,
    LinkEventsRequest: LinkDesk._events,
}
