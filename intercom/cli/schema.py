"""Describe the JSON documents of a verb, or the frames on the wire."""

from __future__ import annotations

import json
from argparse import Namespace
from difflib import get_close_matches

from intercom.cli.arguments import Parser, add_home, add_json
from intercom.cli.render import Output
from intercom.errors import UsageError

USAGE = "[VERB | wire]"
DESCRIPTION = """Print the JSON Schema of what a verb prints with --json, or of the frames between client and broker.

Without VERB it prints one schema for the documents of all verbs. Members that a schema does not name may appear, and
are to be ignored.
"""
WIRE = "wire"


def configure(parser: Parser) -> None:
    """Add the options of ``schema``."""
    parser.add_argument("words", nargs="*", metavar="VERB", help="whose documents; `wire` for the frames")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print the schema and return 0."""
    from intercom.cli.documents import DIALECT, schema_of
    from intercom.cli.main import VERBS

    if len(arguments.words) > 1:
        raise UsageError("name one verb", hint="`intercom schema` prints the schema of all.")
    wanted = arguments.words[0] if arguments.words else None
    if wanted == WIRE:
        from intercom.wire.schema import schema as schema_of_the_wire

        schema = schema_of_the_wire()
    elif wanted is None:
        schemas = {verb: schema_of(verb, summary) for verb, summary in VERBS.items()}
        definitions = {name: rule for schema in schemas.values() for name, rule in schema.pop("$defs").items()}
        for each in schemas.values():
            del each["$schema"]
        schema = {
            "$schema": DIALECT,
            "title": "A document of the command intercom",
            "anyOf": [{"$ref": f"#/$defs/{verb}"} for verb in schemas],
            "$defs": {**schemas, **definitions},
        }
    elif wanted in VERBS:
        schema = schema_of(wanted, VERBS[wanted])
    else:
        near = get_close_matches(wanted, [*VERBS, WIRE], n=1)
        hint = f"Did you mean {near[0]}?" if near else "`intercom --help` lists the verbs."
        raise UsageError(f"there is no verb {wanted!r}", hint=hint)
    output.document({"ok": True, "schema": schema})
    output.line(json.dumps(schema, indent=2))
    return 0
