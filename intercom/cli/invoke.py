"""Have something done by somebody, now or when they can."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError, Namespace
from typing import get_args

from intercom.cli.arguments import Parser, add_common, clean, words_of
from intercom.cli.attaching import text_of_file
from intercom.cli.identity import opened, time_left
from intercom.cli.invoked import described, follow, show
from intercom.cli.render import Output, visible
from intercom.client.setup import new_id
from intercom.client.views import Execution
from intercom.errors import BrokerError
from intercom.limits import ATTACHMENTS_BYTES, WORK_REQUEST_MS
from intercom.wire.invocations import Action

USAGE = "TARGET TASK... | TARGET -"
DESCRIPTION = f"""Have something done by somebody: it is recorded at once, and handed over now or when they are there.
They get it as work, as mail or as a message, by how they take part; what they answer, or report, is the result.

TARGET is a label or an id: `builder`, `@builder.main` for one that works in a directory `main`, `@builder#codex` for
one that runs in Codex, `@builder?opus` for one with that model, `builder@studio` for one on that machine;
`intercom resolve LABEL` tells whom it means. TASK may be several words; `-` alone reads standard input. With --action
consult a run without an answer has failed; the others are {", ".join(sorted(set(get_args(Action)) - {"consult"}))}.

--context, --model, --session, --label, --about and --stream are told to whoever gets it; the broker does nothing by
them.

Prints the id under which `intercom invocation show` finds it. With --wait it waits for the end, for --timeout seconds
if that is given, and prints the result; with --watch also what happens meanwhile. Repeating it with the same --id and
words begins nothing twice.

Ends with 0 when it is recorded, or with --wait when it was done; 1 when it failed, 3 when nobody is called so, 4 when
several are, and 6 when the wait ended first: the work goes on. Starts a broker when none runs.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``invoke``."""
    parser.add_argument("words", nargs="*", metavar="TARGET", help="whom, and what is to be done")
    parser.add_argument(
        "--id", dest="invocation_id", metavar="ID", type=clean, help="name it, so that it can be repeated"
    )
    parser.add_argument("--action", choices=sorted(get_args(Action)), default="execute", help="what kind of task it is")
    parser.add_argument("--ensure-awake", action="store_true", help="call the run waking while nobody is there")
    parser.add_argument(
        "--context", metavar="FILE", help="send this text file along, or what a pipe brings, as what to know for it"
    )
    parser.add_argument("--model", metavar="NAME", type=clean, help="wish that it is done with this model")
    parser.add_argument(
        "--session",
        choices=("new", "reuse", "fork"),
        help="wish that it is done in such a session of their host",
    )
    parser.add_argument(
        "--label", dest="labels", metavar="WORD", type=clean, action="append", help="a word to know it by; repeatable"
    )
    parser.add_argument("--about", metavar="ID", type=clean, help="id of the message out of which it came")
    parser.add_argument("--stream", action="store_true", help="wish reports while it goes on")
    parser.add_argument("--within", metavar="SECONDS", type=_seconds, help="do not hand it over later than this")
    parser.add_argument("--wait", action="store_true", help="wait for the end, and print the result")
    parser.add_argument("--watch", action="store_true", help="the same, and print what happens meanwhile")
    add_common(parser, timeout=f"longest wait: for the end (else for ever), or the broker ({WORK_REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Invoke, wait where that is wished, and return 0."""
    target, task = words_of(arguments.words, first="a target", usage="invoke TARGET TASK")
    context = None if arguments.context is None else text_of_file(arguments.context, ATTACHMENTS_BYTES)
    arguments.began = time.monotonic()  # what standard input and pipes took is nobody's time but the caller's
    invocation_id = new_id() if arguments.invocation_id is None else arguments.invocation_id
    with opened(
        arguments, "invoke", occasion=invocation_id, default_ms=WORK_REQUEST_MS, hold="none", status="invokes"
    ) as session:
        try:
            invocation = session.invoke(
                target,
                task,
                action=arguments.action,
                ensure_awake=arguments.ensure_awake,
                take_within=arguments.within,
                invocation_id=invocation_id,
                context=context,
                execution=_execution(arguments),
                labels=arguments.labels or (),
                stream=arguments.stream,
                about=arguments.about,
                timeout=time_left(arguments, WORK_REQUEST_MS),
            )
        except BrokerError as error:
            error.hint = f"Repeat it with --id {visible(invocation_id)}: it begins once."
            raise
        output.marks["invocationId"] = invocation.id
        if not (arguments.wait or arguments.watch):
            output.document(
                {
                    "ok": True,
                    "invocationId": invocation.id,
                    "runId": invocation.run_id,
                    "targetId": invocation.target_id,
                    "state": invocation.state,
                }
            )
            output.line(f"{invocation.state}: {visible(invocation.id)}")
            if invocation.detail is not None:
                output.note(visible(invocation.detail))
            return 0
        if arguments.watch:
            follow(session, invocation, arguments, output)
        left = None if arguments.timeout is None else time_left(arguments, WORK_REQUEST_MS)
        view = invocation.result(left)
    output.document({"ok": True, "invocation": described(view)})
    show(view, output)
    return 0


def _execution(arguments: Namespace) -> Execution | None:
    """Return how the target is wished to do it."""
    if arguments.model is None and arguments.session is None:
        return None
    return Execution(model=arguments.model, session=arguments.session)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
