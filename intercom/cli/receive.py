"""Read the mail of an identity: print each message, and only then take it out."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError, Namespace
from contextlib import suppress
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import opened
from intercom.cli.messages import described, how_to_answer, same_identity, shown
from intercom.cli.person import add_me, address_of
from intercom.cli.render import Output
from intercom.errors import AddressHeld, IntercomError
from intercom.limits import REQUEST_MS, Limits

if TYPE_CHECKING:
    from intercom.client.blocking import IncomingMessage, Messages, Session
    from intercom.wire.mail import Hold

USAGE = ""
DESCRIPTION = f"""Print the messages that wait for the identity of this command (`intercom whoami`), the oldest first.

A message is taken out once it was printed. If the command ends before, or nobody reads what it prints, the message
stays and is printed again by the next one. Mail older than 5 minutes is printed with its age, and each message with the
command that answers it.

While another session receives for the address, such as `intercom listen`, the command ends with 4 and says which;
--take-over takes its place. With --wait it waits until something is there, with --follow it goes on for ever. --me
reads the mail of the person, which is for the person to do.

With --json one document holds the messages that were handed over together, of the waiting ones at most
{Limits().mail_offers}, and the number `left` that still wait; with --follow each line is a document with an `event`:
`message`, and at last `ended`.

Starts a broker when none runs. Ends with 6 when --wait was given and nothing came in time.
"""

LOOK_S = 0.001
"""Time in which what the broker has written already is read."""


class NothingCame(IntercomError):
    """Say that no message came while the command waited."""

    code = "no_mail"
    exit_status = 6


class ReaderGone(Exception):
    """Say that nobody reads standard output any more."""


def configure(parser: Parser) -> None:
    """Add the options of ``receive``."""
    parser.add_argument("--wait", action="store_true", help="wait until there is a message")
    parser.add_argument("--follow", action="store_true", help="go on with what comes later")
    parser.add_argument("--limit", metavar="N", type=_count, help="print at most N messages (default: all)")
    parser.add_argument("--take-over", action="store_true", help="take the place of whoever receives now")
    add_me(parser)
    add_common(parser, timeout=f"how long to wait or follow (else for ever; {REQUEST_MS // 1000} for the broker)")


def run(arguments: Namespace, output: Output) -> int:
    """Print the mail and return 0."""
    address = address_of(arguments)
    if arguments.follow:
        output.marks["event"] = "ended"
    hold: Hold = "take" if arguments.take_over else "free"
    try:
        # What was printed for nobody must not be confirmed, so the block is left by the exception.
        with (
            suppress(ReaderGone),
            opened(arguments, "receive", hold=hold, address=address, keep_questions=True) as session,
        ):
            Receiving(arguments, output, session).run()
    except AddressHeld as error:
        error.hint = "It gets the messages. With --take-over this command takes its place and the other one ends."
        raise
    return 0


class Receiving:
    """Take what waits and what comes; nothing is confirmed before it was printed."""

    def __init__(self, arguments: Namespace, output: Output, session: Session) -> None:
        self._output = output
        self._session = session
        self._follow: bool = arguments.follow
        self._wait: bool = arguments.wait
        self._most: int | None = arguments.limit
        self._options = same_identity(arguments)
        self._until = None if arguments.timeout is None else arguments.began + arguments.timeout
        self._printed = 0
        self._hands: list[Messages] = []
        """Who holds the messages of one document: each has a consumer of its own, so none is confirmed for another."""

    def run(self) -> None:
        """Print until there is nothing more to print; raise ``ReaderGone`` when nobody reads it."""
        if "policy" in self._session.features:
            self._session.fetch()  # whoever reads wants what must not wake anybody, too
        if self._output.as_json and not self._follow:
            self._print_together()
            return
        self._print_waiting()
        if self._follow:
            while self._has_room() and (message := self._session.receive(timeout=self._patience())) is not None:
                self._show(message)
            self._say({"ok": True, "event": "ended"}, None)
        elif not self._printed and self._wait:
            message = self._session.receive(timeout=self._patience())
            if message is None:
                raise NothingCame("No message came in time")
            self._show(message)
            self._print_waiting()
        elif not self._printed:
            self._output.line("no mail")

    def _print_waiting(self) -> None:
        """Print what is there, until the broker says that nothing is left."""
        while self._has_room():
            message = self._session.receive(timeout=LOOK_S)
            if message is None:
                left = self._left()
                message = self._session.receive(timeout=REQUEST_MS / 1000 if left else LOOK_S)
                if message is None:
                    if left:
                        self._output.note(f"{left} messages still wait and were not handed over; try again later")
                    return
            self._show(message)

    def _print_together(self) -> None:
        """Print one document with all that was handed over before the first of it is confirmed."""
        messages: list[IncomingMessage] = []
        while self._most is None or len(messages) < self._most:
            message = self._hold(LOOK_S)
            if message is None:
                left = self._left()
                patience: float | None = LOOK_S
                if not messages:
                    patience = REQUEST_MS / 1000 if left else self._patience() if self._wait else LOOK_S
                message = self._hold(patience)
                if message is None:
                    break
            messages.append(message)
        if self._wait and not messages:
            raise NothingCame("No message came in time")
        left = self._left() - sum(message.mail is not None for message in messages)
        self._say({"ok": True, "messages": [described(message) for message in messages], "left": max(0, left)}, None)

    def _hold(self, seconds: float | None) -> IncomingMessage | None:
        hand = self._session.messages(timeout=seconds)
        message = next(hand, None)
        if message is not None:
            self._hands.append(hand)
        return message

    def _left(self) -> int:
        """Return how many messages wait for a reader; what was offered before the answer is here then."""
        box = self._session.mailbox(limit=1)
        return box.count - box.kept

    def _has_room(self) -> bool:
        return self._most is None or self._printed < self._most

    def _patience(self) -> float | None:
        """Return how many seconds there are left to wait, ``None`` for ever."""
        return None if self._until is None else max(LOOK_S, self._until - time.monotonic())

    def _show(self, message: IncomingMessage) -> None:
        answer = how_to_answer(message, self._options)
        text = shown(message, self._options)
        if answer is not None:
            text += f"\n  answer with: {answer}"
        self._printed += 1
        self._say({"ok": True, "event": "message", **described(message)}, text)

    def _say(self, document: dict[str, object], text: str | None) -> None:
        self._output.document(document)
        if text is not None:
            self._output.line(text)
        if self._output.closed:
            raise ReaderGone


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number <= 0:
        raise ArgumentTypeError(f"not a whole number above 0: {clean(text)}")
    return number
