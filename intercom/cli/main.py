"""Find the verb, run it, and turn every end into the exit status and the one document or line it deserves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from intercom import __version__
from intercom.cli.arguments import Parser, clean, split_at_dashes, split_verb
from intercom.cli.render import Output, visible, visible_block
from intercom.errors import IntercomError, StartFailed, UsageError

VERBS = {
    "list": "show who can be reached",
    "send": "send a message",
    "ask": "ask a question and wait for the answer",
    "listen": "print what arrives, or answer questions with a command",
    "receive": "print the mail that waits, and take it out",
    "reply": "answer a question that was received",
    "pending": "show which questions wait for an answer",
    "waits": "show who waits for whom",
    "me": "show what waits for the person, and answer it",
    "policy": "say what is let through to a session",
    "trace": "show what became of a message, and where it is",
    "watch": "follow what happens",
    "mailbox": "show what waits, without taking it out",
    "addresses": "show the addresses at which mail waits",
    "inbox": "show what waits to be taken as work, hand it out, or take it",
    "assignment": "show work that was handed out, report on it, or answer it",
    "flow": "write, control and look at durable lists of steps, and report them",
    "link": "show what durable workers and the broker have on disk of each other",
    "command": "tell a durable worker to do something, once",
    "invoke": "have something done by somebody, now or when they can",
    "invocation": "look at what was invoked, follow it, cancel it, or report on it",
    "resolve": "tell whom a label means",
    "session": "show the known sessions, also those that are away",
    "spawn": "have a session started by a command that the settings name",
    "join": "have later commands act in a group",
    "leave": "have them act in it no more",
    "groups": "show which groups there are",
    "whoami": "show as whom commands act here",
    "outbox": "show what is on its way to other machines, hurry it, or give it up",
    "peer": "show the brokers of other machines, and ask one for a sign of life",
    "cluster": "find out whether other machines can be reached, and change nothing",
    "status": "show the broker, without starting one",
    "doctor": "find out what is wrong, and change nothing",
    "log": "show what the broker wrote down",
    "restart": "replace the broker and see the sessions come back",
    "stop": "stop the broker",
    "broker": "let the broker finish what is open, then stop it",
    "store": "check the broker's files, or put them aside",
    "purge": "delete texts and history that are kept",
    "serve": "be the broker, in the foreground",
    "mcp": "be the MCP server of an agent host",
    "install": "enter intercom into an agent host",
    "uninstall": "undo that",
    "skill": "print what an agent is to know about intercom",
    "hook": "be what an agent host runs at its events",
    "demo": "watch a worker answer a planner while the broker is killed",
    "docs": "read the documentation",
    "schema": "describe the JSON that verbs print",
    "completion": "complete verbs, options and names in a shell",
}

INTERRUPTED = 130
STATUSES = {
    0: "done: delivered, answered, or queued where that was allowed",
    1: "refused, or the other side cannot answer",
    2: "called wrongly",
    3: "no such target, message, session, assignment, flow, page or log",
    4: "several match, the id was used for something else, or another session holds the address or has the work",
    5: "not now, and nothing took effect: no broker, busy, starting, capacity, away",
    6: "not known, no answer, or nothing came in time; what to do next is printed",
    7: "not allowed here: permissions, a sandbox, or a verb that is for the person",
    INTERRUPTED: "interrupted; a question is withdrawn",
}


class Terminated(BaseException):
    """Say that a signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(argv: Sequence[str], ready: Callable[[], None] = lambda: None) -> int:
    """Run one command line and return its exit status; ``ready`` is called when all is loaded and the work begins."""
    _keep_standard_streams_apart()
    output = Output(as_json="--json" in split_at_dashes(argv)[0])
    try:
        return _dispatch(argv, output, ready)
    except IntercomError as error:
        report(error, output)
        return error.exit_status
    except KeyboardInterrupt:
        output.failure({"code": "interrupted", "reason": "Interrupted", "retry": "never"})
        return INTERRUPTED
    except Terminated as end:
        output.failure({"code": "interrupted", "reason": "Terminated", "retry": "never"})
        return 128 + end.number
    except Exception as error:
        if _comes_from_an_interrupt(error):
            output.failure({"code": "interrupted", "reason": "Interrupted", "retry": "never"})
            return INTERRUPTED
        output.failure({"code": "internal", "reason": f"Internal error: {error!r}", "retry": "never"})
        import traceback

        output.note(f"intercom: internal error, please report it\n{traceback.format_exc()}")
        return 1


def report(error: IntercomError, output: Output) -> None:
    """Say what went wrong: the JSON document on standard output, or one line on standard error."""
    output.failure(error.as_dict())
    if not output.as_json:
        text = error.reason if not error.hint else f"{error.reason.rstrip('.')}. {error.hint}"
        # What a broker said when it failed to start has several lines and comes from no peer.
        output.note(f"intercom: {visible_block(text) if isinstance(error, StartFailed) else visible(text)}")
        for line in getattr(error, "lines", ()):
            output.note(line)


def _comes_from_an_interrupt(error: BaseException | None) -> bool:
    """Tell whether an interrupt was turned into another error on its way, as extension modules do while they load."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _dispatch(argv: Sequence[str], output: Output, ready: Callable[[], None]) -> int:
    verb, rest = split_verb(argv)
    if verb is None:
        return _without_verb(rest, output)
    if verb not in VERBS:
        raise UsageError(f"there is no verb {clean(verb)!r}", hint="`intercom --help` lists the verbs.")
    module = import_module(f"intercom.cli.{verb}")
    parser = Parser(verb, module.USAGE, module.DESCRIPTION)
    module.configure(parser)
    arguments = parser.parse(rest)
    if verb != "serve":
        _end_politely_on_signals()
    ready()
    status: int = module.run(arguments, output)
    return status


def _without_verb(options: Sequence[str], output: Output) -> int:
    if "--version" in options or "-V" in options:
        output.document({"ok": True, "version": __version__})
        output.line(f"intercom {__version__}")
        return 0
    if "--help" in options or "-h" in options:
        output.document({"ok": True, "verbs": VERBS})
        output.line(_help())
        return 0
    raise UsageError("a verb is missing", hint="`intercom --help` lists the verbs.")


def _help() -> str:
    verbs = "\n".join(f"  {verb:<10} {summary}" for verb, summary in VERBS.items())
    statuses = "\n".join(f"  {status:<10} {meaning}" for status, meaning in STATUSES.items())
    return (
        "usage: intercom VERB [options] ...\n\n"
        "Coding-agent sessions on one machine find each other and talk.\n\n"
        f"{verbs}\n\nexit status:\n{statuses}\n\n"
        "`intercom VERB --help` explains one of them. Every verb takes --json and --home;\n"
        "`intercom --version` prints the version."
    )


def _keep_standard_streams_apart() -> None:
    """Fill closed descriptors 0 to 2 with nothing, so that no socket or file ends up as a standard stream."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _end_politely_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the stack, unless whoever started this process has them ignored."""

    def end(number: int, _frame: object) -> NoReturn:
        raise Terminated(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)
