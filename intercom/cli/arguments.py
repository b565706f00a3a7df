"""Read the command line: options every verb shares, words that may look like options, text from standard input."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from intercom.cli.render import Output
from intercom.errors import UsageError
from intercom.limits import LONGEST_VALIDITY_MS, NAME_CHARACTERS, WAIT_CEILING_S, WHOLE_NUMBER_MAX

VALUED = ("--as", "--group", "--timeout", "--home")
"""Shared options that take a value; they may also stand before the verb."""
HELP_COLUMNS = 80
"""Width of a help that is not shown on a terminal."""
JOINERS = "\u200c\u200d"
"""Characters that take no room and belong to words and emoji."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Know its width: argparse makes a formatter for every option, and finding the width imports half of ``shutil``."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=(Output(as_json=False).columns() or HELP_COLUMNS) - 2)


class Parser(argparse.ArgumentParser):
    """Parse the arguments of one verb; a mistake raises ``UsageError`` instead of ending the process."""

    def __init__(self, verb: str, usage: str, description: str) -> None:
        super().__init__(
            prog=f"intercom {verb}",
            usage=f"intercom {verb} [options] {usage}".rstrip(),
            description=description,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.verb = verb
        self.usage_status: int | None = None
        """Exit status for a mistake, where the usual one would be misunderstood."""

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` with what argparse found wrong."""
        error = UsageError(message, hint=f"`intercom {self.verb} --help` shows how it is used.")
        error.exit_status = self.usage_status or error.exit_status
        raise error

    def print_help(self, file: Any = None) -> None:
        """Write the help to standard output; a reader that has gone is no error."""
        Output(as_json=False).line(self.format_help().rstrip())

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse ``arguments``; words after ``--`` are never options. They end up in ``.words``."""
        before, after = split_at_dashes(arguments)
        takes_words = any(action.dest == "words" for action in self._actions)
        if after and not takes_words:
            self.error(f"unexpected argument: {clean(after[0])}")
        found = self.parse_intermixed_args(before)
        found.began = time.monotonic()
        if takes_words:
            found.words = [clean(word) for word in [*found.words, *after]]
        return found


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what stands before and after the first ``--``."""
    if "--" not in arguments:
        return list(arguments), []
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


def split_verb(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the verb and all other arguments; options before the verb are moved behind it."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] in VALUED else 1
    if place >= len(arguments):
        return None, list(arguments)
    return arguments[place], [*arguments[:place], *arguments[place + 1 :]]


def clean(word: str) -> str:
    """Return an argument as valid text: bytes the command line could not decode become U+FFFD."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def add_common(parser: Parser, *, timeout: str, most_s: int = WAIT_CEILING_S) -> None:
    """Add the options every verb has; ``timeout`` says what ``--timeout`` bounds, ``most_s`` how much it may be."""
    add_json(parser)
    add_name(parser)
    add_group(parser)
    add_timeout(parser, timeout, most_s)
    add_home(parser)


def add_json(parser: Parser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON documents on standard output")


def add_name(parser: Parser) -> None:
    """Add ``--as``."""
    parser.add_argument("--as", dest="name", metavar="NAME", type=clean, help="act under this name (or INTERCOM_NAME)")


def add_group(parser: Parser) -> None:
    """Add ``--group``."""
    parser.add_argument(
        "--group",
        dest="groups",
        metavar="GROUP",
        type=group_name,
        action="append",
        help="act in this group; repeat it for several",
    )


def group_name(word: str) -> str:
    """Return a group given on the command line, trimmed.

    Raises ``UsageError`` for a blank or reserved one, and for what a name may not be either: too long, or with
    characters that cannot be seen. Those that join emoji may be there.
    """
    from unicodedata import category  # only who names a group pays for it

    from intercom.client.profile import checked_group

    group = checked_group(clean(word))
    if len(group) > NAME_CHARACTERS:
        raise UsageError(f"the group name has {len(group)} characters; at most {NAME_CHARACTERS} are allowed")
    if not group.isprintable() and any(
        category(character) in ("Cc", "Cf", "Zl", "Zp") and character not in JOINERS for character in group
    ):
        raise UsageError(f"the group name {group!a} has a character that cannot be seen", hint="Choose another name.")
    return group


def add_timeout(parser: Parser, meaning: str, most_s: int = WAIT_CEILING_S) -> None:
    """Add ``--timeout``; ``meaning`` says what it bounds, ``most_s`` how many seconds it may name."""
    parser.add_argument("--timeout", metavar="SECONDS", type=lambda text: seconds(text, most_s), help=meaning)


def add_span(parser: Parser, option: str, meaning: str) -> None:
    """Add an option that takes a length of time such as ``90``, ``10m``, ``2h`` or ``7d``; the value is in seconds."""
    parser.add_argument(option, metavar="TIME", type=_span, help=f"{meaning} (such as 90s, 10m, 2h, 7d)")


def add_home(parser: Parser) -> None:
    """Add ``--home``."""
    parser.add_argument("--home", metavar="DIRECTORY", help="where the broker lives (or INTERCOM_HOME)")


def seconds(text: str, most_s: int) -> float:
    """Return a time given on the command line, above 0 and at most ``most_s`` s."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most_s:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0 and up to {most_s}: {clean(text)}")
    return value


_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _span(text: str) -> float:
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _SPANS else (text, "s")
    try:
        value = float(number) * _SPANS[unit]
    except ValueError:
        value = math.nan
    if not 0 < value <= LONGEST_VALIDITY_MS / 1000:
        raise argparse.ArgumentTypeError(f"not a length of time such as 90s, 10m, 2h or 7d: {clean(text)}")
    return value


def target_and_text(words: Sequence[str], *, verb: str) -> tuple[str, str]:
    """Return the target and the text of ``intercom send TARGET TEXT``; ``-`` as the text reads standard input.

    Several words of text are joined with a space. Of standard input one trailing line break is removed and bytes that
    are not UTF-8 become U+FFFD. Raise ``UsageError`` when either is missing.
    """
    if not words:
        raise UsageError("a target is missing", hint=f"`intercom {verb} TARGET TEXT`; `intercom list` shows targets.")
    if not words[0].strip():
        raise UsageError("the target is empty", hint="`intercom list` shows who can be reached.")
    return words_of(words, first="a target", usage=f"{verb} TARGET TEXT")


def position(text: str) -> int:
    """Return the number behind which a list begins."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(WHOLE_NUMBER_MAX)) else -1
    if not 0 <= number <= WHOLE_NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"not a whole number from 0 on: {clean(text)}")
    return number


def words_of(words: Sequence[str], *, first: str, usage: str) -> tuple[str, str]:
    """Return the first word and the text behind it; ``first`` and ``usage`` say what is missing, when it is."""
    if not words or not words[0].strip():
        raise UsageError(f"{first} is missing", hint=f"`intercom {usage}`.")
    beginning, *text = words
    if not text:
        raise UsageError("a text is missing", hint=f"`intercom {usage}`, or `-` to read standard input.")
    return beginning, _standard_input() if text == ["-"] else " ".join(text)


def _standard_input() -> str:
    if sys.stdin is None:
        raise UsageError("standard input is closed, there is no text to read")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    for ending in ("\r\n", "\n"):
        if text.endswith(ending):
            return text.removesuffix(ending)
    return text
