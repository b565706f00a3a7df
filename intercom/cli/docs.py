"""Show the documentation that is shipped with the package."""

from __future__ import annotations

from argparse import Namespace
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable

from intercom.cli.arguments import Parser, add_home, add_json
from intercom.cli.render import Output
from intercom.errors import IntercomError, UsageError

USAGE = "[PAGE]"
DESCRIPTION = """List the pages of the documentation, or print one.

At a terminal a page is laid out, elsewhere it is Markdown as it stands. Ends with 3 when there is no such page.
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
    "embedding",
    "protocol",
    "changelog",
)
"""The pages in the order in which a new user may want them; others follow by name."""


class NoPage(IntercomError):
    """Say that there is no such page, and which ones are like it."""

    code = "no_page"
    exit_status = 3


def configure(parser: Parser) -> None:
    """Add the options of ``docs``."""
    parser.add_argument("words", nargs="*", metavar="PAGE", help="the page to print")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print a page, or the list of all, and return 0."""
    found = pages()
    if len(arguments.words) > 1:
        raise UsageError("name one page", hint="`intercom docs` lists them.")
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
    output.document({"ok": True, "page": wanted, "text": text})
    if output.fancy():
        _lay_out(text)
    else:
        output.line(text.rstrip("\n"))
    return 0


def pages() -> dict[str, Traversable]:
    """Return the pages by name."""
    place = files("intercom") / "docs"
    found = {page.name.removesuffix(".md"): page for page in place.iterdir() if page.name.endswith(".md")}
    rank = {name: number for number, name in enumerate(ORDER)}
    return {name: found[name] for name in sorted(found, key=lambda name: (rank.get(name, len(rank)), name))}


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("#").strip()


def _lay_out(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
