"""Make the requests of those who look after links and send commands; time-outs are in seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, UnsetType

from intercom.client.composing import clean_id, clean_number, clean_text, milliseconds, object_bytes
from intercom.client.lifecycle import Lifecycle
from intercom.client.linkviews import CommandView, EventView, LinkView, command_of, event_of, link_of
from intercom.client.operations import RequestOperation, Result
from intercom.client.patience import PatientRequest
from intercom.errors import UsageError
from intercom.limits import LINK_BODY_BYTES, LINK_EVENTS_PAGE, LINK_NAME_CHARACTERS, LINK_PAGE_CEILING
from intercom.wire import links
from intercom.wire.mail import MailboxOf

if TYPE_CHECKING:
    from intercom.wire.unions import Request


class LinkRequests:
    """Make them for one session; ``now`` tells the time in monotonic milliseconds, ``ids`` gives new unique ids."""

    def __init__(self, lifecycle: Lifecycle, now: Callable[[], int], ids: Callable[[], str]) -> None:
        self._lifecycle = lifecycle
        self._now = now
        self._ids = ids

    def links(self, link_id: str | None, timeout: float) -> RequestOperation[list[LinkView]]:
        """Ask for the links, or one of them."""
        wanted = _wanted(link_id, "link_id")

        def read(answer: links.Links) -> list[LinkView]:
            return [link_of(entry) for entry in answer.links]

        return self._request(lambda request_id: links.LinksRequest(request_id, wanted), links.Links, read, timeout)

    def repin(self, link_id: str, journal_id: str, timeout: float) -> RequestOperation[list[str]]:
        """Let a link go on with another journal; the result is the ids of the commands that are ambiguous now."""
        wanted, journal = clean_id(link_id, "link_id"), checked_name(journal_id, "journal_id")

        def read(answer: links.LinkRepinned) -> list[str]:
            return answer.ambiguous

        return self._request(
            lambda request_id: links.LinkRepin(request_id, wanted, journal), links.LinkRepinned, read, timeout
        )

    def send(
        self,
        body: Mapping[str, Any],
        address: str | None,
        group: str | None,
        session_id: str | None,
        link_id: str | None,
        command_id: str | None,
        timeout: float,
    ) -> RequestOperation[CommandView]:
        """Store a command; it may be repeated under its id."""
        if sum(target is not None for target in (address, session_id, link_id)) != 1:
            raise UsageError("a command is for one worker", hint="Give one of address, session_id and link_id.")
        if group is not None and address is None:
            raise UsageError("group belongs to an address")
        name = self._ids() if command_id is None else checked_name(command_id, "command_id")
        content = Raw(encoded_body(body))
        link = _wanted(link_id, "link_id")
        of: MailboxOf | UnsetType = UNSET
        if address is not None:
            of = MailboxOf(clean_text(address, "address"), UNSET if group is None else clean_text(group, "group"))
        elif session_id is not None:
            of = MailboxOf(session_id=clean_id(self._lifecycle.present(session_id), "session_id"))

        def read(answer: links.CommandStored) -> CommandView:
            return command_of(answer.command)

        return PatientRequest(
            lambda request_id: links.CommandSend(request_id, name, content, link, of),
            links.CommandStored,
            read,
            self._until(timeout),
        )

    def commands(
        self, link_id: str | None, after: int, limit: int, timeout: float
    ) -> RequestOperation[list[CommandView]]:
        """Ask for the commands, of one link or of all."""
        if not 1 <= limit <= LINK_PAGE_CEILING:
            raise UsageError(f"limit is 1 to {LINK_PAGE_CEILING}, not {limit}")
        wanted, behind = _wanted(link_id, "link_id"), clean_number(after, "after")
        return self._request(
            lambda request_id: links.CommandsRequest(request_id, wanted, UNSET, behind, limit),
            links.Commands,
            _read_commands,
            timeout,
        )

    def command(self, command_id: str, timeout: float) -> RequestOperation[CommandView]:
        """Ask for one command with its body."""
        wanted = clean_id(command_id, "command_id")
        return self._request(
            lambda request_id: links.CommandsRequest(request_id, command_id=wanted),
            links.Commands,
            lambda answer: _read_commands(answer)[0],
            timeout,
        )

    def events(self, link_id: str, after: int, limit: int, timeout: float) -> RequestOperation[list[EventView]]:
        """Ask for the durable events of a link that are kept."""
        if not 1 <= limit <= LINK_EVENTS_PAGE:
            raise UsageError(f"limit is 1 to {LINK_EVENTS_PAGE}, not {limit}")
        wanted, behind = clean_id(link_id, "link_id"), clean_number(after, "after")

        def read(answer: links.LinkEvents) -> list[EventView]:
            return [event_of(entry) for entry in answer.events]

        return self._request(
            lambda request_id: links.LinkEventsRequest(request_id, wanted, behind, limit),
            links.LinkEvents,
            read,
            timeout,
        )

    def _until(self, timeout: float) -> int:
        return self._now() + milliseconds(timeout, "timeout")

    def _request(
        self, make: Callable[[str], Request], answer: type[Any], read: Callable[[Any], Result], timeout: float
    ) -> RequestOperation[Result]:
        return PatientRequest(make, answer, read, self._until(timeout))


def encoded_body(body: Mapping[str, Any]) -> bytes:
    """Return the body of an event or a command as JSON; raise ``UsageError`` for what is none, or is too large."""
    encoded = object_bytes(body, "a body")
    if len(encoded) > LINK_BODY_BYTES:
        raise UsageError(f"the body has {len(encoded)} bytes: at most {LINK_BODY_BYTES} are taken")
    return encoded


def checked_name(name: str, what: str) -> str:
    """Return an id or a code a program chose; raise ``UsageError`` for one that is empty or too long."""
    cleaned = clean_id(name, what)
    if len(cleaned) > LINK_NAME_CHARACTERS:
        raise UsageError(f"{what} has {len(cleaned)} characters: at most {LINK_NAME_CHARACTERS} are taken")
    return cleaned


def _wanted(value: str | None, what: str) -> str | UnsetType:
    return UNSET if value is None else clean_id(value, what)


def _read_commands(answer: links.Commands) -> list[CommandView]:
    return [command_of(entry) for entry in answer.commands]
