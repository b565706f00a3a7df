"""Let sessions inside agent hosts meet at the same broker as everybody else."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from intercom.cli.arguments import Parser, add_home, add_json, clean
from intercom.cli.foreign import HOSTS, runtime_directory
from intercom.cli.identity import paths_of
from intercom.cli.linking import install_steps as link_steps
from intercom.cli.linking import is_linked
from intercom.cli.render import Output, visible
from intercom.cli.tables import Fit, show_table
from intercom.client.program import our_command
from intercom.errors import HomeError, IntercomError, UsageError
from intercom.hosts import facts
from intercom.hosts.facts import Wish

USAGE = "HOST"
ALL = tuple(sorted((*HOSTS, *facts.NAMES)))
DESCRIPTION = """Enter intercom into the files of an agent host, so that its sessions can reach others and be reached.

HOST is claude, codex, opencode, gemini, pi, atomic, or mcp for any other host that reads "mcpServers" from a JSON file,
which --file names. Into Claude Code goes one folder that it loads as a plugin; into the others entries for the MCP
server, the hooks or a plugin, and a skill. Of pi and Atomic the directory in which their clients look for a broker
becomes a link to the home, and the command in their config.json becomes this one.

Only entries of ours are written, with absolute paths; everything else in a file stays byte for byte. A file that was
there is kept beside itself, with `.before-intercom` added to its name. Doing it again changes nothing;
`intercom uninstall HOST` undoes it. A file that the host itself could not read, that is read-only, or in which the name
is used for something else is left as it is, and so is one that has the name for the copy; nothing is done then.

--list shows which hosts are found here and which are installed.
"""

_PHRASES = {
    "make": "make the directory {path}",
    "configure": "write {path}",
    "copy": "copy {path} to {to}",
    "record": "note in {path} what was found and written",
    "keep": "keep {path} as {to}",
    "link": "make {path} a link to {to}",
    "stop": "ask the broker on {path} to leave",
    "unlink": "remove the link {path}",
    "put_back": "put {path} back as {to}",
    "remove": "remove {path}",
    "tidy": "remove {path} if it is empty",
    "edit": "edit {path}",
    "write": "write {path}",
}
HEAD = ("HOST", "FOUND", "INSTALLED", "WHERE")


class Step(Protocol):
    """Be one thing to do, of either kind of installation."""

    @property
    def action(self) -> str:
        """Return its name."""

    @property
    def path(self) -> Path:
        """Return what it is done to."""

    @property
    def to(self) -> Path | None:
        """Return where that goes."""

    @property
    def do(self) -> Callable[[], object]:
        """Return what does it."""


def configure(parser: Parser) -> None:
    """Add the options of ``install``."""
    add_host(parser)
    parser.add_argument("--list", dest="wants_list", action="store_true", help="show what is found and installed")
    parser.add_argument(
        "--approve", action="store_true", help="have the host call the tools of intercom without asking"
    )
    add_rest(parser)


def add_host(parser: Parser) -> None:
    """Add the host and the file it may need."""
    parser.add_argument("host", nargs="?", choices=ALL, metavar="HOST", help=", ".join(ALL))
    parser.add_argument("--file", metavar="FILE", help="the settings file of the host, with mcp")


def add_rest(parser: Parser) -> None:
    """Add what ``install`` and ``uninstall`` have in common besides."""
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Install and return 0."""
    if arguments.wants_list:
        _list(arguments, output)
        return 0
    host = host_of(arguments)
    if host in HOSTS:
        link = HOSTS[host]
        is_done = carry_out(arguments, output, link_steps(link, paths_of(arguments), os.environ), link_place(arguments))
        if not is_done:
            output.line(f"nothing to do: clients of {link.title} meet at the home already")
        elif not arguments.dry_run:
            output.line(f"Sessions of {link.title} that run now meet there when they are started again.")
        return 0
    from intercom.hosts.installing import install_steps

    found, wish = facts.facts(host), wish_of(arguments)
    if not carry_out(arguments, output, install_steps(found, wish), found.directory(wish)):
        output.line(f"nothing to do: {found.title} is installed already")
    elif not arguments.dry_run:
        output.line(found.after)
        if not _has_server():
            output.note(
                "intercom: the MCP server needs the extra `mcp`, which is not installed here: "
                "install intercom-broker[mcp] into the Python that runs this."
            )
    return 0


def host_of(arguments: Namespace) -> str:
    """Return the host that was named; raise ``UsageError`` without one, or with a file it does not take."""
    if arguments.host is None:
        raise UsageError("which host is meant is missing", hint=f"Name one of {', '.join(ALL)}.")
    if arguments.file is not None and arguments.host != "mcp":
        raise UsageError(f"--file goes with mcp, not with {arguments.host}")
    host: str = arguments.host
    return host


def wish_of(arguments: Namespace) -> Wish:
    """Return how a host is to be installed into."""
    home = None if arguments.home is None else str(paths_of(arguments).home)
    file = None if arguments.file is None else Path(os.path.abspath(os.path.expanduser(arguments.file)))
    return Wish(os.environ, our_command, home, getattr(arguments, "approve", False), file)


def link_place(arguments: Namespace) -> Path:
    """Return the directory that becomes a link."""
    return runtime_directory(HOSTS[arguments.host], os.environ)


def carry_out(arguments: Namespace, output: Output, steps: Sequence[Step], directory: Path) -> bool:
    """Do steps, or only show them; tell whether there were any.

    Raises ``HomeError`` naming the step that could not be done; those before it are done.
    """
    for step in steps:
        phrase = _PHRASES[step.action].format(path=visible(str(step.path)), to=visible(str(step.to)))
        if not arguments.dry_run:
            try:
                step.do()
            except OSError as error:
                raise HomeError(f"it was not possible to {phrase}: {error.strerror or error}") from error
        output.line(f"would {phrase}" if arguments.dry_run else f"done: {phrase}")
        if arguments.dry_run:
            for line in _change(step).splitlines():
                output.line(f"    {visible(line)}")
    output.document(
        {
            "ok": True,
            "host": arguments.host,
            "directory": clean(str(directory)),
            "home": clean(str(paths_of(arguments).home)),
            "changed": bool(steps) and not arguments.dry_run,
            "dryRun": arguments.dry_run,
            "steps": [_shown(step) for step in steps],
        }
    )
    return bool(steps)


def _change(step: Step) -> str:
    change: str = getattr(step, "change", "")
    return change


def _shown(step: Step) -> dict[str, str]:
    to = {} if step.to is None else {"to": clean(str(step.to))}
    change = {"change": _change(step)} if _change(step) else {}
    return {"action": step.action, "path": clean(str(step.path)), **to, **change}


def _list(arguments: Namespace, output: Output) -> None:
    from intercom.hosts.installing import Standing, standing

    def stands(host: str) -> Standing:
        try:
            if host in HOSTS:
                place = runtime_directory(HOSTS[host], os.environ)
                is_here = is_linked(HOSTS[host], paths_of(arguments), os.environ)
                return Standing(place.parent.is_dir(), "yes" if is_here else "no", (place,) if is_here else ())
            return standing(facts.facts(host), wish_of(arguments))
        except IntercomError as error:
            return Standing(False, "no", (), error.reason)

    hosts = [host for host in ALL if host != "mcp" or arguments.file is not None]
    found = {host: stands(host) for host in hosts}
    output.document(
        {
            "ok": True,
            "hosts": [
                {
                    "host": host,
                    "found": each.found,
                    "installed": each.installed,
                    "places": [clean(str(place)) for place in each.places],
                    **({"trouble": clean(each.trouble)} if each.trouble else {}),
                }
                for host, each in found.items()
            ],
        }
    )
    rows = [
        (host, "yes" if each.found else "no", each.installed, each.trouble or ", ".join(map(str, each.places)) or "-")
        for host, each in found.items()
    ]
    if not output.as_json:
        show_table(output, HEAD, rows, Fit(whole=("HOST", "FOUND", "INSTALLED")))


def _has_server() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is not None
