"""Write the pages of the documentation that are made from the program itself.

``python -m intercom.cli.reference`` writes them into the checkout; a test compares them.
"""

from __future__ import annotations

import os
import sys
from argparse import Action
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from intercom.cli.arguments import Parser
from intercom.cli.main import STATUSES, VERBS
from intercom.config import settings_table
from intercom.limits import MESH_KEY_BYTES, SPAWN_KINDS
from intercom.paths import HOME_VARIABLE


def parser_of(verb: str) -> Parser:
    """Return the parser of a verb with all its options."""
    module = import_module(f"intercom.cli.{verb}")
    parser = Parser(verb, module.USAGE, module.DESCRIPTION)
    module.configure(parser)
    return parser


def options_of(parser: Parser) -> list[Action]:
    """Return the options of a verb in the order of its help, without ``--help``."""
    return [action for action in parser._actions if action.option_strings and action.dest != "help"]


def commands_page() -> str:
    """Return the reference of all verbs, in Markdown."""
    lines = [
        "# Command reference",
        "",
        "`intercom VERB --help` prints the part of one verb. Options may also stand before the verb; after `--`",
        "nothing is an option.",
        "",
        "| verb | what it does |",
        "|---|---|",
        *(f"| [{verb}](#{verb}) | {summary} |" for verb, summary in VERBS.items()),
        "",
        "## Exit statuses",
        "",
        "| status | meaning |",
        "|---|---|",
        *(f"| {status} | {meaning} |" for status, meaning in STATUSES.items()),
        "",
        "What has the same status differs in the `code` of the document: see [troubleshooting](troubleshooting.md).",
    ]
    for verb in VERBS:
        lines += ["", *_part(verb)]
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """Return the page about the settings, in Markdown."""
    lines = [
        "# Configuration",
        "",
        "Nothing has to be configured. A broker takes each setting from, the later over the earlier: its default; the",
        "file `intercom.toml` in the home; a variable; a flag of `intercom serve`. It reads them when it starts, so a",
        "change counts after `intercom restart`. Variables are those of the process that starts the broker, which is",
        "the first command or session that needs one: what is to hold whoever starts it belongs into the file.",
        "",
        "A name that is no setting and a value of the wrong type or out of range are refused with the place where they",
        "stand; `intercom doctor` tells without starting a broker. An empty variable counts as not set.",
        "",
        "    # intercom.toml",
        *(f"    {name} = {_toml(setting.default)}" for name, setting in settings_table().items()),
        "",
        "These are the defaults.",
    ]
    for name, setting in settings_table().items():
        lines += [
            "",
            f"## {name}",
            "",
            setting.about.meaning,
            "",
            f"- takes {setting.accepts}; the default is `{_toml(setting.default)}`",
            f"- variable `{setting.variable}`, flag `--{name.replace('_', '-')}`",
        ]
    lines += [
        "",
        "## spawn",
        "",
        "Which sessions `intercom spawn` and the library's `spawn` may have started; there is neither a variable nor a",
        "flag for it. Without this table, as is the default, none. Each kind is a table of its own in the file: the",
        "words of the command, and the directory in which it runs, absolute or beginning with `~`; the default is the",
        "home of the user.",
        "",
        "```toml",
        "[spawn.reviewer]",
        'command = ["claude", "-p", "--permission-mode", "plan"]',
        'cwd = "~/work/project"',
        "```",
        "",
        "The command finds the prompt on its standard input, the home in `INTERCOM_HOME` and a token in",
        "`INTERCOM_SPAWN_TOKEN`, which the session that it opens shows once; what it prints goes nowhere. It runs as",
        f"you, with what the environment of the broker has. At most {SPAWN_KINDS} kinds.",
        "",
        "## cluster",
        "",
        "How brokers on other machines are found and reached; there is neither a variable nor a flag for it. Without",
        "this table, as is the default, they are not. [More than one machine](cluster.md) shows it whole.",
        "",
        "```toml",
        "[cluster]",
        'url = "tls://nats.example.org:4222"',
        'key_file = "~/.config/intercom/mesh.key"',
        "```",
        "",
        "| key | meaning | default |",
        "|---|---|---|",
        "| `url` | a server of the engine, or a list of several | none: off |",
        f"| `key_file` | {MESH_KEY_BYTES} bytes that the brokers share; readable by you alone | needed |",
        "| `credentials` | file with credentials of an account of the engine | none |",
        "| `token_file` | file with a token in their place | none |",
        "| `tls_ca` | file with the certificates servers are checked against | those of the system |",
        "| `name` | prefix of what the brokers keep in the engine | `intercom` |",
        "| `replicas` | on how many servers a copy is held; 0: three if there are so many, else one | 0 |",
        "| `node` | what this machine is called | the host name |",
        "",
        "## Variables that are no settings",
        "",
        "| variable | meaning |",
        "|---|---|",
        f"| `{HOME_VARIABLE}` | the home, unless `--home` names one |",
        "| `INTERCOM_NAME` | the name commands act under, unless `--as` gives one |",
        "| `INTERCOM_SPAWN_TOKEN` | set for what the broker starts; the first session of it shows the token |",
        "| `NO_COLOR` | no colours and no laid out tables, also at a terminal |",
    ]
    return "\n".join(lines) + "\n"


PAGES = {"commands": commands_page, "configuration": configuration_page}
"""What makes each generated page."""


def _part(verb: str) -> Iterator[str]:
    parser = parser_of(verb)
    module = import_module(f"intercom.cli.{verb}")
    yield f"## {verb}"
    yield ""
    yield f"    intercom {verb} [options] {module.USAGE}".rstrip()
    yield ""
    yield module.DESCRIPTION.strip()
    yield ""
    yield "| option | meaning |"
    yield "|---|---|"
    for option in options_of(parser):
        shown = ", ".join(option.option_strings) + (f" {option.metavar}" if option.metavar else "")
        yield f"| `{shown}` | {str(option.help).replace('|', chr(92) + '|')} |"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def main() -> int:
    """Write every generated page into the package and return 0."""
    place = Path(__file__).resolve().parents[1] / "docs"
    for name, page in PAGES.items():
        (place / f"{name}.md").write_text(page(), "utf-8")
        sys.stdout.write(f"{name}.md{os.linesep}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
