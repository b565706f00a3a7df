"""Keep an account of every message by what its sender was told and its readers saw, and object to whatever is untrue.

The account knows nothing of the broker. Each rule has a name, which the page of promises uses too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from intercom.client.inbox import REMEMBERED_MS
from intercom.client.views import IncomingMessage, Receipt
from intercom.errors import AskError, IntercomError, MessageConflict, OutcomeUnknown, SendError
from intercom.wire.notices import SHOWN_LATE, fate

_UNREAD_MS = 60_000
"""How long what a library wrote last may lie unread between it and a broker that stands still."""

Outcome = Literal["open", "delivered", "queued", "refused", "unknown", "late", "answered", "unanswered"]


class Broken(AssertionError):
    """Say which rule does not hold in this world."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass(eq=False)
class Letter:
    """Hold one message, by its id."""

    id: str
    sender: str
    """Who wrote it: a program, whatever its session is at the time."""
    target: str
    """The program it is for."""
    writer: str = ""
    """The session that wrote it; empty when it was not registered."""
    may_be_given_up: bool = False
    """Its recipient has no address, and may end, or it is valid for a limited time."""
    is_for_forgetful: bool = False
    """Its recipient is found again by its return address, and keeps what it is done with in memory only."""
    may_be_told: bool = True
    """Its sender has an address, so that the end of its process changes nothing."""
    is_told_elsewhere: bool = False
    """Another session holds its sender's address, and is told what became of it while that may still be trying."""
    has_mailbox: bool = True
    """Its sender has one while its session lasts."""
    is_ask: bool = False
    queues: bool = False
    """It may wait behind others from the first time on, so it overtakes none of them."""
    begins: int = 0
    """How often its sender sent it; each time the library tries as often as it takes."""
    answers: str | None = None
    begun: int = 0
    """Its place among everything that was begun and settled."""
    begun_wall: int = 0
    """The earliest time of day at which the broker may have taken notice of it."""
    may_be_forgotten: bool = False
    """A broker started by whose time of day it was too old to be remembered."""
    valid_until: int | None = None
    outcome: Outcome = "open"
    settled: int | None = None
    settled_at: int = 0
    shown: list[tuple[str, int]] = field(default_factory=list)
    """Who saw it, and as which incarnation."""
    first_shown: int | None = None
    finished: list[tuple[str, int]] = field(default_factory=list)
    finished_at: int = 0
    is_called_undelivered: bool = False
    noticed: str | None = None
    """The sender was told that it will not arrive."""
    was_delivered: bool = False
    """Its sender was told so, and no broker was started since that may have forgotten it."""
    is_refused: bool = False
    """Nothing its sender was told leaves a chance that it arrives."""
    may_be_under_way: bool = False
    refused_for: str = ""
    """The code with which its sender was told that it was not sent."""
    is_kept: bool = False
    """Its sender was told that it waits on disk."""


class Account:
    """Hold all letters of one world; ``now`` tells the time in monotonic milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.letters: dict[str, Letter] = {}
        self.story: list[str] = []
        """What happened, for who looks into a world that broke a rule."""
        self._moment = 0
        self._seen: dict[str, list[tuple[str, int]]] = {}
        self._done: dict[str, list[tuple[str, int]]] = {}
        """Messages that are no letters: who saw them, and who was done with them."""
        self._done_at: dict[str, int] = {}
        """When somebody was done with each of them last."""

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(line)

    def begun(self, letter: Letter, wall: int) -> None:
        """Take notice that a program sends something, for the first time or again under its id."""
        known = self.letters.setdefault(letter.id, letter)
        assert known is letter, "an id is used for one letter"
        if not letter.begins:
            letter.begun, letter.begun_wall = self.moment(), wall
        known.outcome = "open"
        known.begins += 1
        self.tell(f"{letter.sender} begins {letter.id} for {letter.target}{' (ask)' if letter.is_ask else ''}")
        if known.noticed is not None:
            known.noticed, known.is_kept, known.is_called_undelivered = None, False, False
        known.is_refused = False

    def clock_moved(self, wall: int) -> None:
        """Take notice that it is another time of day."""
        for letter in self.letters.values():
            letter.begun_wall = min(letter.begun_wall, wall)

    def broker_starts(self, wall: int, kept_ms: int) -> None:
        """Take notice that a broker reads the disk, which leaves out what it takes for older than it is kept.

        Nothing but the time of day tells it how long ago something was that another process wrote. ``kept_ms`` is 0
        where the account of plain sends is in memory only.
        """
        for letter in self.letters.values():
            if not kept_ms or letter.begun_wall + kept_ms < wall:
                letter.may_be_forgotten, letter.was_delivered = True, False

    def settled(self, letter: Letter, result: object, error: Exception | None) -> None:
        """Take notice of what a sender was told, and hold it against what happened."""
        before, told = letter.outcome, _outcome(result, error)
        if letter.is_ask and told == "refused" and not isinstance(error, SendError):
            told = "unanswered"
        letter.outcome = told
        self.tell(f"{letter.sender} is told of {letter.id}: {told} {'' if error is None else repr(error)}")
        letter.settled, letter.settled_at = self.moment(), self._now()
        letter.refused_for = error.code if isinstance(error, SendError) else ""
        letter.is_kept |= told == "queued"
        letter.was_delivered |= told == "delivered"
        if error is not None and not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", f"{letter.id}: {error!r}")
        if isinstance(error, MessageConflict) and not letter.may_be_given_up:
            raise Broken("one-id-one-message", f"{letter.id} was never used for anything else: {error.reason}")
        if isinstance(error, MessageConflict) and "already delivered" in error.reason and not letter.finished:
            raise Broken(
                "delivered-is-true", f"{letter.id} for {letter.target} was confirmed by nobody: {error.reason}"
            )
        if told == "delivered" and not letter.finished:
            raise Broken("delivered-is-true", f"{letter.id} for {letter.target} was confirmed by nobody")
        letter.is_refused = told == "refused" and not letter.may_be_under_way and not letter.may_be_forgotten
        letter.may_be_under_way |= told != "refused"
        if letter.is_refused and letter.shown:
            raise Broken("refused-is-true", f"{letter.id} was shown to {letter.shown}, and then: {error!r}")
        if told == "late" and not letter.finished:
            raise Broken("delivered-is-true", f"{letter.id} for {letter.target} was shown late to nobody")
        if told == "answered":
            assert isinstance(result, IncomingMessage)
            self._answered(letter, result)
        assert before == "open"

    def shown(self, program: str, incarnation: int, message: IncomingMessage) -> Letter | None:
        """Take notice that a program sees a message."""
        self.tell(f"{program} {incarnation} sees {message.id} {message.notice or ''}")
        if message.notice is not None:
            self._noticed(program, message)
            return None
        letter = self.letters.get(message.id)
        if letter is None or message.text != text_of(letter):
            raise Broken("as-it-was-sent", f"{program} saw {message.id} {message.text!r}")
        if letter.target != program:
            raise Broken("only-its-recipient", f"{letter.id} for {letter.target} was shown to {program}")
        if letter.finished and letter.may_be_given_up and self._is_forgotten(letter.finished_at):
            letter.shown.clear()
            letter.finished.clear()
        if (program, incarnation) in letter.shown:
            raise Broken("shown-once", f"{letter.id} was shown twice to {program} {incarnation}")
        is_tried_again = letter.begins > 1 or letter.may_be_forgotten
        # The id of what was given up is free: whoever is still trying sends it anew, to the successor of who ended.
        is_unread = letter.outcome == "unknown" and self._now() - letter.settled_at <= _UNREAD_MS
        is_tried_still = is_tried_again or is_unread or letter.outcome == "open"
        may_come_again = letter.may_be_given_up and (is_tried_still or letter.is_for_forgetful)
        if letter.finished and (not may_come_again or letter.was_delivered):
            raise Broken("effect-once", f"{letter.id} was finished by {letter.finished}, then shown to {incarnation}")
        if letter.is_refused:
            raise Broken("refused-is-true", f"{letter.id} was refused and then shown")
        if letter.is_called_undelivered and not (is_tried_again or is_unread or letter.is_told_elsewhere):
            raise Broken("given-up-is-true", f"{letter.id} was given up ({letter.noticed}) and then shown")
        if message.reply_to is None:
            self._keeps_order(letter)
        letter.shown.append((program, incarnation))
        if letter.first_shown is None:
            letter.first_shown = self.moment()
        return letter

    def finished(self, program: str, incarnation: int, message_id: str) -> None:
        """Take notice that a program is done with a message."""
        letter = self.letters.get(message_id)
        self.tell(f"{program} {incarnation} is done with {message_id}")
        if letter is None:
            self._done.setdefault(message_id, []).append((program, incarnation))
            self._done_at[message_id] = self._now()
        elif (program, incarnation) not in letter.finished:
            letter.finished.append((program, incarnation))
            letter.finished_at = self._now()

    def handed(self, program: str, incarnation: int, message_id: str, *, has_address: bool) -> None:
        """Take notice that a program sees a message the broker wrote for it, and may ask for something with."""
        self.tell(f"{program} {incarnation} is handed {message_id}")
        if message_id in self._done and not has_address and self._is_forgotten(self._done_at[message_id]):
            del self._done[message_id], self._seen[message_id]
        seen = self._seen.setdefault(message_id, [])
        if (program, incarnation) in seen:
            raise Broken("shown-once", f"{message_id} was shown twice to {program} {incarnation}")
        if message_id in self._done:
            raise Broken("effect-once", f"{message_id} was finished by {self._done[message_id]}, now {incarnation}")
        seen.append((program, incarnation))

    def at_rest(self, living: set[str]) -> None:
        """Look at everything once nothing is under way, everybody is here and has read what there is.

        ``living`` are the sessions that are here.
        """
        for letter in self.letters.values():
            is_told = letter.may_be_told or (letter.has_mailbox and letter.writer != "" and letter.writer in living)
            is_lost = letter.is_kept and not letter.finished and letter.noticed is None
            if is_lost and (is_told or not letter.may_be_given_up):
                raise Broken("queued-arrives", f"{letter.id} from {letter.sender} to {letter.target} is lost")

    # --- rules of their own

    def _is_forgotten(self, finished_at: int) -> bool:
        """Tell whether a program without an address has forgotten what it was done with then: it has no file."""
        return self._now() - finished_at > REMEMBERED_MS

    def _answered(self, letter: Letter, answer: IncomingMessage) -> None:
        reply = self.letters.get(answer.id)
        is_meant = reply is not None and reply.answers in (None, letter.id) and reply.target == letter.sender
        if reply is None or not is_meant or reply.sender != letter.target:
            raise Broken("answers-are-answers", f"{letter.id} was answered by {answer.id}")

    def _noticed(self, program: str, message: IncomingMessage) -> None:
        assert message.notice is not None
        letter = self.letters.get(message.notice.message_id)
        if letter is None or letter.sender != program:
            raise Broken("as-it-was-sent", f"{program} was told of {message.notice.message_id}")
        if message.notice.reason == SHOWN_LATE and not letter.finished:
            raise Broken("given-up-is-true", f"{letter.id} was shown late to nobody")
        is_late = message.notice.reason == SHOWN_LATE
        if (
            letter.begins == 1
            and not letter.may_be_forgotten
            and not letter.is_told_elsewhere
            and letter.finished
            and not is_late
            and fate("", message.notice.reason) == "was not delivered"
        ):
            raise Broken("given-up-is-true", f"{letter.id} was finished, and then: {message.notice.reason}")
        letter.noticed = message.notice.reason
        letter.is_called_undelivered = fate("", letter.noticed) == "was not delivered"

    def _keeps_order(self, letter: Letter) -> None:
        """Hold that nothing overtakes what was sent before it, once that was settled as kept (9.5.3)."""
        if letter.first_shown is not None or not letter.queues or letter.may_be_given_up:
            return
        for other in self.letters.values():
            if (
                other.sender == letter.sender
                and other.target == letter.target
                and other is not letter
                and other.is_kept
                and not other.is_ask
                and other.answers is None
                and other.settled is not None
                and other.settled < letter.begun
                and other.first_shown is None
                and other.noticed is None
                and other.valid_until is None
            ):
                raise Broken("order-of-mail", f"{letter.id} overtook {other.id}")

    def moment(self) -> int:
        """Return the next place among everything that was begun and settled."""
        self._moment += 1
        return self._moment


def text_of(letter: Letter) -> str:
    """Return the text a letter has."""
    return f"{letter.id} from {letter.sender} to {letter.target}"


def _outcome(result: object, error: Exception | None) -> Outcome:
    if isinstance(result, Receipt):
        return "delivered" if result.state == "delivered" else "queued"
    if isinstance(result, IncomingMessage):
        return "answered"
    if isinstance(error, SendError) and error.code == "expired":
        return "late"
    if isinstance(error, OutcomeUnknown | MessageConflict):
        return "unknown"
    return "unanswered" if isinstance(error, AskError) else "refused"
