"""Write flows, control them, look at them, and report steps of them."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from intercom.cli import watch
from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.flow_files import read_flow
from intercom.cli.flow_shown import show_all, show_flow, show_reports
from intercom.cli.identity import groups_of, opened, paths_of, time_left
from intercom.cli.messages import same_identity
from intercom.cli.person import NotAPerson, require_person
from intercom.cli.render import Output, visible
from intercom.cli.who import identity_of
from intercom.client.flowviews import Flow
from intercom.client.profile import DEFAULT_GROUP
from intercom.errors import IntercomError, UsageError
from intercom.limits import REQUEST_MS, WORK_REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session

USAGE = (
    "create FILE | start ID | list | status ID | append ID --after STEP | pause ID | resume ID | retry ID STEP | "
    "cancel ID | report DISPATCH completed|failed | reports | watch ID | gc"
)
DESCRIPTION = """Write a list of steps for one worker session, and come back to a list in which every word is true: the
broker hands over one step at a time, and goes on only when the worker itself has reported the outcome.

    create FILE          write a flow down from a TOML or JSON file, or from --id, --target and --step
    start ID             begin it
    list                 all flows, the newest first
    status ID            one of them: steps, attempts, what it waits for and since when, what you may do next
    append ID            insert the steps of --step behind the one that --after names
    pause ID, resume ID  hand out no further step; go on, with --target for another worker
    retry ID STEP        try a step again that failed or is ambiguous; say why with --reason
    cancel ID            end it for good; say why with --reason (one that others wrote: for the person)
    report DISPATCH completed|failed
                         report a step that this identity (`intercom whoami`) was handed, with --summary
    reports              what this identity has reported, and what of it the broker does not have yet
    watch ID             follow it; an id that nobody has used is waited for
    gc                   delete what has been over for 30 days; with --dry-run only tell what that is

A flow that was written by a command belongs to its group. `intercom listen` takes steps; with --answer its command does
them. `intercom docs flows` explains the rest. Starts a broker when none runs.
"""
WORDS = {
    "create": (0, 1),
    "start": (1, 1),
    "list": (0, 0),
    "status": (1, 1),
    "append": (1, 1),
    "pause": (1, 1),
    "resume": (1, 1),
    "retry": (2, 2),
    "cancel": (1, 1),
    "report": (2, 2),
    "reports": (0, 0),
    "watch": (1, 1),
    "gc": (0, 0),
}
"""What may be done, with the least and the greatest number of words behind it."""
LOOKS = frozenset({"list", "status", "gc"})
"""What is done as a control session, which sees all groups."""


def configure(parser: Parser) -> None:
    """Add the options of ``flow``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", type=clean, help="what to do, and with which flow")
    parser.add_argument("--id", dest="flow_id", metavar="ID", type=clean, help="create: the name of the flow")
    parser.add_argument(
        "--target", metavar="TARGET", type=clean, help="create, resume: a name, name@node, or session:ID"
    )
    parser.add_argument(
        "--step", dest="steps", metavar="ID=TEXT", type=_step, action="append", help="create, append: a step; repeat it"
    )
    parser.add_argument("--start", action="store_true", help="create: begin it at once")
    parser.add_argument(
        "--after", metavar="STEP", type=clean, help="append: the step behind which; watch: the position"
    )
    parser.add_argument("--reason", metavar="TEXT", type=clean, help="retry, cancel: why")
    parser.add_argument("--summary", metavar="TEXT", type=clean, help="report: what was done, or why it could not be")
    parser.add_argument(
        "--resource", dest="resources", metavar="REF", type=clean, action="append", help="report: what came of it"
    )
    parser.add_argument("--todo", metavar="ID=STATUS", type=_todo, help="report: the to-do item the step is bound to")
    parser.add_argument(
        "--key", metavar="KEY", type=clean, help="name the request, so that repeating it changes nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="gc: only tell what would be deleted")
    add_common(parser, timeout=f"longest wait for the broker (default {WORK_REQUEST_MS // 1000}); watch: how long")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    least, most = WORDS.get(what, (1, 0))
    if not least <= len(rest) <= most:
        raise UsageError("say what to do", hint="`intercom flow --help` lists it, such as `intercom flow status ID`.")
    if what == "watch":
        return _watch(rest[0], arguments, output)
    if what == "report":
        return _report(rest[0], rest[1], arguments, output)
    if what == "reports":
        return _reports(arguments, output)
    if what in LOOKS:
        return _look(what, rest, arguments, output)
    do = _CHANGES[what](rest, arguments)
    if arguments.key is not None and identity_of(arguments).address is None:
        raise UsageError(
            "the key of a guest names nothing, for its next command is another guest",
            hint="Name yourself with --as NAME, or leave --key out.",
        )
    with opened(arguments, "flow", default_ms=WORK_REQUEST_MS, hold="none", coordinates=True) as session:
        flow = do(session, lambda: time_left(arguments, WORK_REQUEST_MS))
        if not output.as_json:
            # The answer to a change holds no texts; what was done is done, also when they cannot be had.
            with suppress(IntercomError):
                flow = session.flows.status(flow.flow_id, timeout=time_left(arguments, WORK_REQUEST_MS))
        _tell(flow, arguments, output)
    return 0


Left = Callable[[], float]
Change = Callable[["Session", Left], Flow]


def _create(rest: list[str], arguments: Namespace) -> Change:
    written = read_flow(rest[0]) if rest else {}
    flow_id, target = arguments.flow_id or written.get("id"), arguments.target or written.get("target")
    steps = [*written.get("steps", ()), *(arguments.steps or ())]
    if flow_id is None or target is None or not steps:
        missing = "an id" if flow_id is None else "a target" if target is None else "a step"
        hint = "A file with id, target and steps, or --id ID --target NAME --step ID=TEXT; see `intercom docs flows`."
        raise UsageError(f"{missing} is missing", hint=hint)
    group = written.get("group")
    if arguments.groups:
        group = arguments.groups[0]

    def do(session: Session, left: Left) -> Flow:
        flow = session.flows.create(flow_id, target, steps, group=group, key=arguments.key, timeout=left())
        if not arguments.start:
            return flow
        key = None if arguments.key is None else f"{arguments.key}/start"
        return session.flows.start(flow_id, key=key, timeout=left())

    return do


def _start(rest: list[str], arguments: Namespace) -> Change:
    return lambda session, left: session.flows.start(rest[0], key=arguments.key, timeout=left())


def _pause(rest: list[str], arguments: Namespace) -> Change:
    return lambda session, left: session.flows.pause(rest[0], key=arguments.key, timeout=left())


def _resume(rest: list[str], arguments: Namespace) -> Change:
    return lambda session, left: session.flows.resume(
        rest[0], target=arguments.target, key=arguments.key, timeout=left()
    )


def _append(rest: list[str], arguments: Namespace) -> Change:
    if arguments.after is None or not arguments.steps:
        raise UsageError("say what to insert, and where", hint="`intercom flow append ID --after STEP --step ID=TEXT`.")
    return lambda session, left: session.flows.append(
        rest[0], arguments.after, arguments.steps, key=arguments.key, timeout=left()
    )


def _retry(rest: list[str], arguments: Namespace) -> Change:
    reason = _reason(arguments, "retry ID STEP")
    return lambda session, left: session.flows.retry(rest[0], rest[1], reason, key=arguments.key, timeout=left())


def _cancel(rest: list[str], arguments: Namespace) -> Change:
    reason = _reason(arguments, "cancel ID")

    def do(session: Session, left: Left) -> Flow:
        if not session.flows.status(rest[0], timeout=left()).is_yours:
            require_person("cancelling what others have written")
        return session.flows.cancel(rest[0], reason, key=arguments.key, timeout=left())

    return do


_CHANGES: dict[str, Callable[[list[str], Namespace], Change]] = {
    "create": _create,
    "start": _start,
    "pause": _pause,
    "resume": _resume,
    "append": _append,
    "retry": _retry,
    "cancel": _cancel,
}


def _look(what: str, rest: list[str], arguments: Namespace, output: Output) -> int:
    with opened(arguments, "flow", purpose="control", default_ms=REQUEST_MS) as session:
        left = time_left(arguments, REQUEST_MS)
        if what == "list":
            listed = session.flows.list(timeout=left)
            output.document({"ok": True, **members_of(listed)})
            if not output.as_json:
                show_all(listed, output)
        elif what == "status":
            _tell(session.flows.status(rest[0], timeout=left), arguments, output)
        else:
            gone = session.flows.collect(dry_run=arguments.dry_run, timeout=left)
            output.document({"ok": True, "flowIds": list(gone), "dryRun": arguments.dry_run})
            done = "would be deleted" if arguments.dry_run else "deleted"
            output.line(f"{done}: {visible(', '.join(gone))}" if gone else "nothing has been over for 30 days")
    return 0


def _report(dispatch_id: str, outcome: str, arguments: Namespace, output: Output) -> int:
    if arguments.summary is None:
        usage = "`intercom flow report DISPATCH completed|failed --summary TEXT`."
        raise UsageError("a summary is missing", hint=usage)
    if identity_of(arguments).address is None:
        raise UsageError("a guest was handed no step", hint="Act as the worker: --as NAME, the name it listens under.")
    with opened(arguments, "flow", default_ms=WORK_REQUEST_MS, hold="none", takes_steps=True) as session:
        reported = session.flows.report(
            dispatch_id,
            outcome,
            arguments.summary,
            arguments.resources or (),
            todo=arguments.todo,
            timeout=time_left(arguments, WORK_REQUEST_MS),
        )
    document = {"dispatchId": dispatch_id, "reportMessageId": reported.report_message_id}
    output.document({"ok": True, **document, "state": reported.state, "stepState": reported.step_state})
    waits = "; it waits for its to-do item" if reported.step_state == "awaiting_result" else ""
    if reported.state == "stored":
        output.line("stored: it is brought to the machine of the flow once that answers; it need not be repeated")
    else:
        output.line(f"reported: the step is {reported.step_state}{waits}")
    return 0


def _reports(arguments: Namespace, output: Output) -> int:
    """Show what is written down in the home under the identity; no broker is asked."""
    from msgspec import to_builtins

    from intercom.client.report_files import ReportFiles

    address = identity_of(arguments).address
    if address is None:
        raise UsageError("a guest has no reports", hint="Act as the worker: --as NAME, the name it listens under.")
    reports = ReportFiles(paths_of(arguments), address, _groups(arguments)[0]).load()
    output.document({"ok": True, "reports": [_without_nothing(to_builtins(report)) for report in reports]})
    if not output.as_json:
        show_reports(reports, output)
    return 0


def _watch(flow_id: str, arguments: Namespace, output: Output) -> int:
    for _, dest, _, _ in watch.OPTIONS:
        setattr(arguments, f"followed_{dest}", [])
    arguments.followed_flows = [flow_id]
    return watch.run(arguments, output)


def _tell(flow: Flow, arguments: Namespace, output: Output) -> None:
    from msgspec.structs import replace

    flow = replace(flow, is_yours=_is_own(flow, arguments))
    if not flow.is_yours and not _is_person():
        flow = replace(flow, next_actions=tuple(action for action in flow.next_actions if action != "cancel"))
    members = members_of(flow)
    target = members.pop("targetState")
    more: dict[str, Any] = {name: members.pop(name) for name in ("dispatch", "dispatches") if name in members}
    output.document({"ok": True, "flow": members, "target": target, **more})
    if not output.as_json:
        show_flow(flow, output, _options(flow, arguments))


def _is_own(flow: Flow, arguments: Namespace) -> bool:
    """Tell whether a command with the options that are shown acts under the address that has written a flow."""
    address, creator = identity_of(arguments).address, flow.creator_address
    if address is None or creator is None:
        return False
    return (address.lower(), _home_group(flow, arguments)) == (creator.name.lower(), creator.group)


def _is_person() -> bool:
    """Tell whether the reader may cancel what others have written."""
    try:
        require_person("cancelling what others have written")
    except NotAPerson:
        return False
    return True


def _home_group(flow: Flow, arguments: Namespace) -> str:
    """Return the home group of a command with the options that are shown."""
    groups = _groups(arguments)
    return groups[0] if flow.group in groups else flow.group


def _groups(arguments: Namespace) -> tuple[str, ...]:
    return groups_of(arguments, paths_of(arguments)) or (DEFAULT_GROUP,)


def _options(flow: Flow, arguments: Namespace) -> str:
    """Return the options a command about a flow needs to act as this one does, in the group of the flow."""
    is_inside = flow.group in _groups(arguments)
    groups = arguments.groups if is_inside else [flow.group]
    return same_identity(Namespace(name=arguments.name, groups=groups, home=arguments.home, me=False))


def members_of(view: Any) -> dict[str, Any]:
    """Return what was told as it is on the wire: what is absent there is left out."""
    from msgspec import to_builtins

    return _without_nothing(to_builtins(view))  # type: ignore[no-any-return]  # a struct becomes an object


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nothing(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [_without_nothing(member) for member in value]
    return value


def _reason(arguments: Namespace, usage: str) -> str:
    if arguments.reason is None:
        raise UsageError("a reason is missing", hint=f"`intercom flow {usage} --reason TEXT`.")
    return str(arguments.reason)


def _step(text: str) -> tuple[str, str]:
    step_id, sign, prompt = clean(text).partition("=")
    if not sign:
        raise ArgumentTypeError(f"not an id, =, and what is to be done: {clean(text)}")
    return step_id, prompt


def _todo(text: str) -> tuple[str, str]:
    item, sign, status = clean(text).partition("=")
    if not sign:
        raise ArgumentTypeError(f"not an id, =, and its status: {clean(text)}")
    return item, status
