"""Show the documentation that is shipped with the package."""

from __future__ import annotations

import re
from argparse import Namespace
from difflib import get_close_matches
from pathlib import Path

from intercom.cli.arguments import Parser, add_home, add_json
from intercom.cli.render import Output
from intercom.errors import IntercomError, UsageError

USAGE = "[PAGE [SECTION]]"
DESCRIPTION = """List the pages of the documentation, or print one, or one section of it.

A section is named by its number, or by the beginning of its heading; those below it are printed too. At a terminal a
page is laid out, elsewhere it is Markdown as it stands. Ends with 3 when there is no such page or section.
"""
ORDER = (
    "index",
    "first-steps",
    "concepts",
    "commands",
    "library",
    "configuration",
    "files",
    "troubleshooting",
    "flows",
    "embedding",
    "protocol",
    "promises",
    "field-cases",
    "changelog",
)
"""The pages in the order in which a new user may want them; others follow by name."""


_PLACE = Path(__file__).resolve().parent.parent / "docs"


class NoPage(IntercomError):
    """Say that there is no such page or section, and which ones are like it."""

    code = "no_page"
    exit_status = 3


def configure(parser: Parser) -> None:
    """Add the options of ``docs``."""
    parser.add_argument("words", nargs="*", metavar="PAGE", help="the page to print, and a section of it")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print a page, a section of one, or the list of all pages, and return 0."""
    found = pages()
    if len(arguments.words) > 2:
        raise UsageError("name one page, and one section of it", hint="`intercom docs` lists the pages.")
    if not arguments.words:
        titles = {name: _title(page.read_text("utf-8")) for name, page in found.items()}
        output.document({"ok": True, "pages": [{"page": name, "title": title} for name, title in titles.items()]})
        for name, title in titles.items():
            output.line(f"{name:<16} {title}")
        return 0
    wanted = arguments.words[0].removesuffix(".md")
    if wanted not in found:
        near = get_close_matches(wanted, found, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`intercom docs` lists the pages."
        raise NoPage(f"There is no page {wanted!r}", hint=hint)
    text = found[wanted].read_text("utf-8")
    if len(arguments.words) == 2:
        text = _section(wanted, text, arguments.words[1])
    output.document({"ok": True, "page": wanted, "text": text})
    if output.fancy():
        _lay_out(text)
    else:
        output.line(text.rstrip("\n"))
    return 0


def pages() -> dict[str, Path]:
    """Return the pages by name."""
    found = {page.stem: page for page in _PLACE.glob("*.md")}
    rank = {name: number for number, name in enumerate(ORDER)}
    return {name: found[name] for name in sorted(found, key=lambda name: (rank.get(name, len(rank)), name))}


def _section(page: str, text: str, wanted: str) -> str:
    """Return the section of a page with this number or beginning of a heading, and those below it."""
    headings = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    for number, heading in enumerate(headings):
        if _is_called(heading[2], wanted):
            later = (other.start() for other in headings[number + 1 :] if len(other[1]) <= len(heading[1]))
            return text[heading.start() : next(later, len(text))].rstrip() + "\n"
    top = [heading[2] for heading in headings if len(heading[1]) == 2]
    raise NoPage(f"The page {page!r} has no section {wanted!r}", hint="Its sections are: " + "; ".join(top))


def _is_called(heading: str, wanted: str) -> bool:
    number = re.fullmatch(r"\d[\d.]*", wanted)
    if number is not None:
        return heading.split()[0].rstrip(".") == wanted.rstrip(".")
    words = re.sub(r"^\d[\d.]* |`", "", heading)
    return words.lower().startswith(wanted.lower())


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("#").strip()


def _lay_out(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
