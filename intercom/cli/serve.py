"""Be the broker in the foreground; what a client starts, and what a person runs to see why it ends."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intercom.cli.arguments import Parser, add_home, clean
from intercom.cli.foreign import foreign_directory
from intercom.cli.render import Output
from intercom.config import settings_table
from intercom.errors import ConfigError
from intercom.paths import resolve_home

USAGE = "[SCRIPT]"
DESCRIPTION = """Be the broker of a home until nobody needs it. Clients start it by themselves; there is no need to.

Ends with 0 when it was stopped or when another broker answers already, with 1 when it cannot listen, with 5 when
another process holds the home.

Programs that start a broker of their own add the path of a script as the last argument. It is ignored, but without
--home the broker then lives where such a program looks for it: in `intercom` below its agent directory.
`intercom install` makes that directory a link to the home.
"""
ENDINGS = {1: "cannot_serve", 5: "held_elsewhere"}


def configure(parser: Parser) -> None:
    """Add the options of ``serve``: one for each setting."""
    parser.add_argument("script", nargs="?", help="ignored; see above")
    parser.add_argument("--json", action="store_true", help="print a JSON document when it ends")
    add_home(parser)
    for name, setting in settings_table().items():
        parser.add_argument(
            _flag(name),
            dest=name,
            metavar="VALUE",
            type=clean,
            help=f"{setting.about.meaning} Takes {setting.accepts}; default {_shown(setting.default)}.",
        )


def run(arguments: Namespace, output: Output) -> int:
    """Serve, and return the exit status of the broker."""
    overrides = _overrides(vars(arguments))
    home = resolve_home(arguments.home, os.environ)
    foreign = False
    if arguments.script is not None and arguments.home is None:
        directory = foreign_directory(os.environ)
        chosen = Path(os.path.realpath(directory))
        foreign = chosen != home and not directory.is_symlink()  # a link was made by the user, with `install`
        home = chosen
    from intercom.server.app import main  # only now: a system that cannot have a home cannot load it either

    status = main(home, overrides=overrides, foreign=foreign)
    if status:
        reason = "The broker could not serve; standard error says why"
        output.failure({"code": ENDINGS.get(status, "cannot_serve"), "reason": reason, "retry": "after"})
    else:
        output.document({"ok": True})
    return status


def _overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for name, setting in settings_table().items():
        text = given[name]
        if text is None:
            continue
        value = setting.from_text(text)
        if not setting.takes(value):
            raise ConfigError(f"{_flag(name)} must be {setting.accepts}, not {text!r}")
        overrides[name] = value
    return overrides


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
