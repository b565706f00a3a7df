"""Check the broker's files, or put them aside; the broker must not be using them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.identity import paths_of, time_left
from intercom.cli.locking import InUse, locked
from intercom.cli.person import require_person
from intercom.cli.render import Output, visible
from intercom.cli.status import quiet_report
from intercom.errors import AccessDenied, BrokerError, HomeError, IntercomError, UsageError
from intercom.limits import REQUEST_MS
from intercom.paths import Paths

if TYPE_CHECKING:
    from intercom.store.failures import StoreUnusable
    from intercom.store.inspection import Inspection
    from intercom.store.rebuilding import Rescued

USAGE = "check | rebuild --yes | move-aside --yes"
DESCRIPTION = """Look after the files in which the broker keeps what became of every message id.

`check` says whether a broker can use them, and what they hold; it changes nothing. While a broker runs, the broker is
asked. Ends with 1 when the files cannot be used.

`rebuild --yes` saves what can be read of files that cannot be used into new ones, and says what is lost. The old ones
are kept in a new directory in the home. Where their key is lost, nobody can tell any more what a message id was used
for: repeating such a message is refused, and its question gets no answer.

`move-aside --yes` puts them into a new directory in the home, whole, so that the next broker begins with an empty one.
What that forgets is printed: ids of messages that are repeated arrive twice, open questions get no answer, and what
waited for somebody never arrives.

Without --yes these two only say what would be lost. They need the files for themselves, so they end with 5 while a
broker runs. They are for the person: they need a terminal, and end with 7 when an agent runs them.
"""


class StoreTrouble(IntercomError):
    """Say that the files of the store cannot be used, and why."""

    code = "store_unusable"
    hint = "Nothing is delivered until they are whole. After `intercom stop`, `intercom store check` says what to do."


_REBUILD = "Nothing is delivered until they are whole. A person can run `intercom store rebuild` to save what is left."
_NO_REBUILDING = {
    "newer": "A newer intercom wrote them: use that one, or one newer still.",
    "held": "End that program, or wait until it is done.",
    "unwritable": "Nothing is delivered until they can be written; end what prevents it and start the broker again.",
}
"""What to do about troubles that rebuilding does not mend, by their codes."""


def _trouble(of: StoreUnusable) -> StoreTrouble:
    """Return the error for a store that cannot be used; rebuilding is advised only where it helps."""
    from intercom.store.rebuilding import MENDED

    other = _NO_REBUILDING.get(of.code, "Nothing is delivered until they can be used; see to what is named.")
    return StoreTrouble(of.reason, hint=_REBUILD if of.code in MENDED else other)


def configure(parser: Parser) -> None:
    """Add the options of ``store``."""
    parser.add_argument("words", nargs="*", metavar="check | rebuild | move-aside", help="what to do")
    parser.add_argument("--yes", action="store_true", help="really do it")
    add_json(parser)
    add_timeout(parser, f"longest wait for a broker that runs (default {REQUEST_MS // 1000})")
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Do it and return 0 when all is well."""
    paths = paths_of(arguments)
    if arguments.words == ["check"]:
        return _check(paths, arguments, output)
    if arguments.words == ["move-aside"]:
        require_person("`intercom store move-aside`")
        return _move_aside(paths, arguments, output)
    if arguments.words == ["rebuild"]:
        require_person("`intercom store rebuild`")
        return _rebuild(paths, arguments, output)
    raise UsageError("say `check`, `rebuild` or `move-aside`", hint="`intercom store --help` tells what they do.")


def _check(paths: Paths, arguments: Namespace, output: Output) -> int:
    from intercom.store.inspection import inspect

    try:
        with _alone(paths):
            found = inspect(paths)
    except InUse:
        return _ask_the_broker(paths, arguments, output)
    document = described(found)
    if found.trouble is not None:
        error = _trouble(found.trouble)
        output.failure({**error.as_dict(), "trouble": found.trouble.code, "askedBroker": False, **document})
        if not output.as_json:
            output.note(f"intercom: {visible(error.reason)}. {error.hint}")
        return error.exit_status
    output.document({"ok": True, "askedBroker": False, **document})
    output.line("there is no store yet" if not found.files else f"in order: {_losses(found)}")
    for name, size in found.files.items():
        output.line(f"{size:>12} {name}")
    return 0


def _ask_the_broker(paths: Paths, arguments: Namespace, output: Output) -> int:
    report = quiet_report(paths, time_left(arguments, REQUEST_MS))
    ours = report.get("broker")
    store: Any = ours.get("store") if isinstance(ours, dict) else None
    if not isinstance(store, dict):
        raise BrokerError("The broker uses the files and does not tell how they are", code="not_told", retry="never")
    document = {"askedBroker": True, "pid": report.get("pid"), "operations": store.get("operations", 0)}
    if not store.get("usable"):
        error = StoreTrouble(str(store.get("trouble", "The broker cannot use the store")))
        output.failure({**error.as_dict(), **document})
        if not output.as_json:
            output.note(f"intercom: {visible(error.reason)}. {error.hint}")
        return error.exit_status
    output.document({"ok": True, **document})
    output.line(f"in order, says the broker (pid {report.get('pid')}) that uses it: {_many(document['operations'])}")
    return 0


def _move_aside(paths: Paths, arguments: Namespace, output: Output) -> int:
    from intercom.store.inspection import inspect, move_aside

    with _alone(paths):
        found = inspect(paths)
        document = described(found)
        if not found.files:
            output.document({"ok": True, "movedTo": None, **document})
            output.line("there is no store, nothing was moved")
            return 0
        if not arguments.yes:
            raise UsageError(
                f"nothing was moved. It would forget: {_losses(found)}",
                hint="`intercom store move-aside --yes` does it; the old files are kept.",
            )
        try:
            place = move_aside(paths, time.strftime("store-aside-%Y%m%d-%H%M%S", time.gmtime()))
        except OSError as error:
            raise HomeError(f"The files could not be moved: {error.strerror or error}") from error
    output.document({"ok": True, "movedTo": clean(str(place)), **document})
    files = "1 file" if len(found.files) == 1 else f"{len(found.files)} files"
    output.line(f"moved {files} to {visible(str(place))}")
    output.line(f"forgotten by the next broker: {_losses(found)}")
    return 0


def _rebuild(paths: Paths, arguments: Namespace, output: Output) -> int:
    import sqlite3

    from intercom.store.inspection import inspect
    from intercom.store.rebuilding import MENDED, rebuild, rescue

    with _alone(paths):
        found = inspect(paths)
        if found.trouble is None:
            output.document({"ok": True, "rebuilt": False, **described(found)})
            output.line("there is no store yet" if not found.files else "in order: there is nothing to rebuild")
            return 0
        if found.trouble.code not in MENDED:
            error = _trouble(found.trouble)
            error.hint = f"Rebuilding does not mend that. {error.hint}"
            raise error
        saved = rescue(paths)
        if not arguments.yes:
            raise UsageError(
                f"nothing was rebuilt. It would save {_saved(saved)}; {_lost(saved)}",
                hint="`intercom store rebuild --yes` does it; the old files are kept.",
            )
        try:
            place, saved = rebuild(paths, time.strftime("store-aside-%Y%m%d-%H%M%S", time.gmtime()))
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise HomeError(f"The files could not be written or moved: {why or error}") from error
        made = inspect(paths)
    losses = {
        "savedKey": saved.key is not None,
        "lostRows": [name for name, part in saved.tables.items() if not part.is_whole],
    }
    output.document({"ok": True, "rebuilt": True, "movedTo": clean(str(place)), **losses, **described(made)})
    output.line(f"saved {_saved(saved)}; {_lost(saved)}")
    output.line(f"the old files are in {visible(str(place))}")
    return 0


def _saved(saved: Rescued) -> str:
    return (
        f"{_many(saved.count('operations'))}, {saved.count('retired_ids')} former session ids, "
        f"{saved.count('addresses')} addresses and {saved.count('mail')} waiting messages"
    )


def _lost(saved: Rescued) -> str:
    """Say what rebuilding loses."""
    losses = []
    if not saved.tables or not all(table.is_whole for table in saved.tables.values()):
        losses.append("what cannot be read is lost")
    if saved.key is None:
        losses.append("the key is lost, so that repeating one of these message ids is refused")
    return " and ".join(losses) or "nothing is lost"


def described(found: Inspection) -> dict[str, Any]:
    """Return what was found as members of a JSON document."""
    members: dict[str, Any] = {
        "files": [{"name": name, "bytes": size} for name, size in found.files.items()],
        "operations": found.operations,
        "unfinished": found.unfinished,
        "openQuestions": found.open_questions,
        "retiredIds": found.retired_ids,
        "addresses": found.addresses,
        "mail": found.mail,
    }
    if found.identity is not None:
        members["brokerId"] = found.identity.broker_id
        members["journalId"] = found.identity.journal_id
    return members


@contextmanager
def _alone(paths: Paths) -> Iterator[None]:
    """Hold the lock of the home, if there is a home; raises ``InUse``, ``AccessDenied`` or ``HomeError``."""
    try:
        with locked(paths, create=True) if paths.home.exists() else nullcontext():
            yield
    except PermissionError as error:
        raise AccessDenied(f"This process may not use {paths.lock} ({error.strerror})") from error
    except OSError as error:
        raise HomeError(f"{paths.lock} cannot be used: {error.strerror or error}") from error


def _losses(found: Inspection) -> str:
    if found.identity is None:
        return "nothing that could be read" if found.trouble is not None else "nothing yet"
    return (
        f"{_many(found.operations)}, {found.unfinished} of them unsettled and {found.open_questions} open questions, "
        f"{found.retired_ids} former session ids, {found.addresses} addresses, {found.mail} waiting messages"
    )


def _many(operations: object) -> str:
    return f"{operations} message ids"
