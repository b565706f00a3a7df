"""Let the clients of Atomic or pi meet at the same broker as everybody else."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping

from intercom.cli.arguments import Parser, add_home, add_json, clean
from intercom.cli.foreign import HOSTS, Host, runtime_directory
from intercom.cli.identity import paths_of
from intercom.cli.linking import Step, install_steps
from intercom.cli.render import Output, visible
from intercom.errors import HomeError
from intercom.paths import Paths

USAGE = "{atomic,pi}"
DESCRIPTION = """Make the directory in which clients of Atomic or pi look for a broker a link to the home.

What was there is kept beside it, its config.json moves along, and the command in it becomes this one. A broker that
serves there is asked to leave. Doing it again changes nothing; `intercom uninstall` undoes it.
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
}


def configure(parser: Parser) -> None:
    """Add the options of ``install``."""
    parser.add_argument("host", choices=sorted(HOSTS), help="whose clients are meant")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Install and return 0."""
    title = HOSTS[arguments.host].title
    if carry_out(arguments, output, install_steps):
        if not arguments.dry_run:
            output.line(f"Sessions of {title} that run now meet there when they are started again.")
    else:
        output.line(f"nothing to do: clients of {title} meet at the home already")
    return 0


def carry_out(
    arguments: Namespace, output: Output, plan: Callable[[Host, Paths, Mapping[str, str]], list[Step]]
) -> bool:
    """Do the steps of a plan, or only show them; tell whether there were any.

    Raises ``HomeError`` naming the step that could not be done; those before it are done.
    """
    host, paths = HOSTS[arguments.host], paths_of(arguments)
    steps = plan(host, paths, os.environ)
    for step in steps:
        phrase = _PHRASES[step.action].format(path=visible(str(step.path)), to=visible(str(step.to)))
        if not arguments.dry_run:
            try:
                step.do()
            except OSError as error:
                raise HomeError(f"it was not possible to {phrase}: {error.strerror or error}") from error
        output.line(f"would {phrase}" if arguments.dry_run else f"done: {phrase}")
    output.document(
        {
            "ok": True,
            "host": arguments.host,
            "directory": clean(str(runtime_directory(host, os.environ))),
            "home": clean(str(paths.home)),
            "changed": bool(steps) and not arguments.dry_run,
            "dryRun": arguments.dry_run,
            "steps": [_shown(step) for step in steps],
        }
    )
    return bool(steps)


def _shown(step: Step) -> dict[str, str]:
    to = {} if step.to is None else {"to": clean(str(step.to))}
    return {"action": step.action, "path": clean(str(step.path)), **to}
