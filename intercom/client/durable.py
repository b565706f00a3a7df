"""Be the worker's side of a link: report what is on disk here, take commands once (protocol 14).

    no link --link_bootstrap--> trying --link_confirmed--> held
       ^                          |                          |
       +-- link_refused, the connection ends; its time is up +

When the broker is about to leave, no command is begun any more before the next link is had, or refused: what waits is
on disk, and holds nobody up. Events go on, and what is not acknowledged in time is repeated to the next broker.

Events are written behind the floor the broker named, so many ahead of its acknowledgements that neither its inbox nor
the connection is ever full. A command is on disk here before its receipt is written. An answer to an earlier readiness
than the last one decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

from msgspec import UNSET, Raw
from msgspec.json import decode

from intercom.client.attempts import Attempts
from intercom.client.contact import Contact, Link
from intercom.client.linkrequests import checked_name, encoded_body
from intercom.client.notices import Happened, News
from intercom.client.outcomes import again
from intercom.client.workerjournal import Told as Given
from intercom.client.workerjournal import WorkerJournal
from intercom.drains import Told
from intercom.errors import ConnectionLost, IntercomError, RequestRefused, UsageError
from intercom.limits import (
    LINK_AHEAD_BYTES,
    LINK_AHEAD_FRAMES,
    LINK_CONFIRM_MS,
    LINK_DETAIL_CHARACTERS,
    LINK_HEARTBEAT_MS,
)
from intercom.wire import links

AnyCommand = TypeVar("AnyCommand", bound="Command")


BOOTSTRAP_INVALID = "bootstrap_invalid"
"""Why this side rejects its link: what the broker wrote cannot be."""
JOURNAL_UNUSABLE = "journal_unusable"
"""Why this side rejects its link: it could not write down what it is told."""


class Command:
    """Hold a command for this worker, and say what became of it."""

    __slots__ = ("_durable", "_told", "body", "is_over")

    def __init__(self, told: Given, durable: Durable) -> None:
        self._told = told
        self._durable = durable
        self.body: dict[str, Any] = decode(told.body)
        """What is to be done."""
        self.is_over = False
        """It was said what became of it."""

    @property
    def id(self) -> str:
        """Return what its sender calls it."""
        return self._told.command_id

    @property
    def seq(self) -> int:
        """Return its place among the commands of the link."""
        return self._told.seq

    def _settle(self, kind: str, detail: str | None, code: str | None) -> int:
        if self.is_over:
            raise UsageError(f"it was said already what became of the command {self.id}")
        if detail is not None and len(detail) > LINK_DETAIL_CHARACTERS:
            raise UsageError(f"the detail has more than {LINK_DETAIL_CHARACTERS} characters")
        named = None if code is None else checked_name(code, "code")
        seq = self._durable.settle(self._told, kind, detail, named)
        self.is_over = True
        return seq


class Durable:
    """Hold the link of a session; ``clock`` tells the time of day in epoch milliseconds."""

    def __init__(
        self,
        journal: WorkerJournal,
        contact: Contact,
        news: News,
        clock: Callable[[], int],
        ids: Callable[[], str],
    ) -> None:
        self.journal = journal
        self._contact = contact
        self._news = news
        self._clock = clock
        self._ids = ids
        self._attempts: Attempts[str] = Attempts()
        """At having the link, each named by the id of its readiness; what is held is the id of the link."""
        self._generation = 0
        """Of the last bootstrap on this connection."""
        self._heartbeat_due = 0
        self._written = 0
        """Events up to here were written on this connection."""
        self._untaken: deque[Given] = deque()
        self._is_leaving = False
        """The broker said that it leaves."""
        self._draining: list[Told] = []
        self._trouble: IntercomError | None = None
        """Why there is no link, until there is one."""
        self.handlers: dict[type[Any], Callable[[Any, int], None]] = {
            kind: self._guarded(handler)
            for kind, handler in (
                (links.LinkBootstrap, self._on_bootstrap),
                (links.LinkConfirmed, self._on_confirmed),
                (links.LinkRefused, self._on_refused),
                (links.Command, self._on_command),
                (links.EventAck, self._on_ack),
                (links.LinkDrain, self._on_drain),
            )
        }

    def _guarded(self, handler: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """Let the program know when the journal cannot be written; what was not written down comes again."""

        def handle(answer: Any, now: int) -> None:
            try:
                handler(answer, now)
            except IntercomError as error:
                self._in_trouble(error)

        return handle

    def open(self) -> None:
        """Begin with what the journal holds; raises what ``WorkerJournal.open`` does."""
        self.journal.open(self._clock())
        self._untaken = deque(self.journal.waiting)

    # --- the program ------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Tell whether ``take`` would give a command or raise."""
        return self._may_begin or self._trouble is not None

    @property
    def _may_begin(self) -> bool:
        return bool(self._untaken) and not self._is_leaving

    @property
    def unstored(self) -> int:
        """Return how many events the broker has not acknowledged."""
        return len(self.journal.reported)

    def drain(self, told: Told) -> None:
        """Call ``told`` once the broker has all events on its disk, or with why it cannot have them now."""
        self._draining.append(told)
        self._look_whether_drained()

    def _look_whether_drained(self) -> None:
        if self._draining and (not self.journal.reported or self._trouble is not None):
            draining, self._draining = self._draining, []
            for told in draining:
                told(None if self._trouble is None or not self.journal.reported else again(self._trouble))

    def report(self, kind: str, body: Mapping[str, Any]) -> int:
        """Write an event down and bring it to the broker, now or later; return its number."""
        if not isinstance(kind, str) or kind in ("", *links.OUTCOME_KINDS):
            raise UsageError(f"{kind!r} is no kind of an event of your own")
        if not isinstance(body, Mapping):
            raise UsageError(f"a body must be a JSON object, not {type(body).__name__}")
        if body.get("kind", kind) != kind:
            raise UsageError("the member kind of a body is the kind of its event", hint="Name what you mean otherwise.")
        seq = self.journal.report(encoded_body({**body, "kind": kind}), self._clock()).seq
        self._pump()
        return seq

    def settle(self, told: Given, kind: str, detail: str | None, code: str | None) -> int:
        """Write down what became of a command, and bring it to the broker."""
        seq = self.journal.settle(told.command_id, kind, self._clock(), detail=detail, errorCode=code).seq
        self._pump()
        return seq

    def take(self, kind: type[AnyCommand]) -> AnyCommand | None:
        """Give the next command as this kind, begun with that; raise, once, why there can be none."""
        if self._may_begin:
            told = self._untaken[0]
            command = kind(told, self)
            self.journal.begin(told)
            self._untaken.popleft()
            return command
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise again(trouble)
        return None

    # --- the connection ---------------------------------------------------------------------------------

    def lost(self) -> None:
        """Take notice that the connection ended."""
        self._generation = 0
        self._has_no_link()

    def _has_no_link(self) -> None:
        self._attempts.cancel()
        self._attempts.let_go()

    @property
    def due(self) -> int | None:
        """Return when ``tick`` has something to do."""
        return self._heartbeat_due if self._attempts.is_held else self._attempts.due

    def tick(self, now: int) -> None:
        """Show the broker that this side lives; break a connection on which it does not confirm the link."""
        if self._attempts.is_late(now):
            self._too_late()
        elif self._attempts.is_held and now >= self._heartbeat_due and self._contact.link is Link.ONLINE:
            self._heartbeat_due = now + LINK_HEARTBEAT_MS
            self._contact.write(links.EphemeralEvent(self._clock(), {"kind": links.HEARTBEAT_KIND}))

    def _too_late(self) -> None:
        self._contact.break_off(ConnectionLost("The broker did not confirm the link in time", retry="after"))

    def _on_bootstrap(self, answer: links.LinkBootstrap, now: int) -> None:
        self._has_no_link()
        journal, request_id = self.journal, self._ids()
        flaw = self._flaw_of(answer)
        if flaw is not None:
            rejected = links.LinkRejected(request_id, answer.link_id, answer.generation, BOOTSTRAP_INVALID, flaw)
            self._contact.write(rejected)
            return self._in_trouble(RequestRefused(f"The broker broke the protocol: {flaw}", code=BOOTSTRAP_INVALID))
        self._generation = answer.generation
        try:
            if not journal.floor <= answer.event_floor <= journal.last_seq:
                journal.renew()
            else:
                journal.acknowledge(answer.event_floor)
        except IntercomError:
            self._contact.write(links.LinkRejected(request_id, answer.link_id, answer.generation, JOURNAL_UNUSABLE))
            raise
        self._attempts.begin(request_id, now, LINK_CONFIRM_MS)
        self._contact.write(
            links.LinkReady(request_id, answer.link_id, answer.generation, journal.last_received, journal.id)
        )

    def _flaw_of(self, answer: links.LinkBootstrap) -> str | None:
        if answer.generation <= self._generation:
            return f"generation {answer.generation} of the link came after {self._generation}"
        return f"the floor of the events is {answer.event_floor}" if answer.event_floor < 0 else None

    def _on_confirmed(self, answer: links.LinkConfirmed, now: int) -> None:
        is_late = self._attempts.counts(answer.request_id) and self._attempts.is_late(now)
        if is_late:  # a connection on which nothing is tried any more would stay as it is
            self._too_late()
        elif self._attempts.won(answer.request_id, answer.link_id, now):
            self._trouble = None
            self._begin_again()
            self._written = self.journal.floor
            self._heartbeat_due = now
            self.tick(now)
            self._pump()

    def _on_refused(self, answer: links.LinkRefused, now: int) -> None:
        if answer.request_id is UNSET:
            self._has_no_link()
        elif not self._attempts.failed(answer.request_id):
            return
        self._begin_again()
        if not answer.retryable:
            self._in_trouble(RequestRefused(answer.reason, code=answer.code))

    def _in_trouble(self, trouble: IntercomError) -> None:
        self._trouble = trouble
        self._news.add(Happened())
        self._look_whether_drained()

    def _on_command(self, answer: links.Command, now: int) -> None:
        told = self.journal.receive(answer.command_id, answer.command_seq, bytes(answer.body))
        self._contact.write(links.CommandReceived(answer.command_id, answer.command_seq))
        if told is not None:
            self._untaken.append(told)
            self._news.add(Happened())
        if self._is_leaving:
            self._say_what_waits()

    def _on_drain(self, answer: links.LinkDrain, now: int) -> None:
        self._is_leaving = True
        self._say_what_waits()

    def _say_what_waits(self) -> None:
        """Tell the broker for which commands it need not stay."""
        waiting = [told.command_id for told in self._untaken]
        self._contact.write(links.EphemeralEvent(self._clock(), {"kind": links.DRAINING_KIND, "waiting": waiting}))

    def _begin_again(self) -> None:
        if self._is_leaving:
            self._is_leaving = False
            self._news.add(Happened())

    def _on_ack(self, answer: links.EventAck, now: int) -> None:
        try:
            self.journal.acknowledge(answer.high_water)
        finally:
            self._pump()
            self._look_whether_drained()

    def _pump(self) -> None:
        """Write events, as many as may be ahead of the acknowledgements."""
        link_id = self._attempts.thing
        if link_id is None:
            return
        reported, floor = self.journal.reported, self.journal.floor
        ahead = self._written - floor
        size = sum(len(event.body) for event in islice(reported, 0, ahead))
        for event in list(islice(reported, ahead, LINK_AHEAD_FRAMES)):
            size += len(event.body)
            if size > LINK_AHEAD_BYTES and event.seq > floor + 1:
                return
            self._written = event.seq
            self._contact.write(
                links.DurableEvent(link_id, event.seq, event.event_id, event.occurred_at, Raw(event.body))
            )
