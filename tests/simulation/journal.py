"""Read the journal a world leaves behind, and object to every move that must not have happened.

The tables here are written from the rules, not taken from the product. The journal holds what was committed, whoever
died meanwhile, in its order; so this sees every state anything was ever in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.json import decode

from intercom.store import schema
from intercom.store.history import TABLES, replay
from intercom.store.pair import read_only
from tests.simulation.account import Broken

_ENDS: dict[str, tuple[str, frozenset[str]]] = {
    "dispatch": ("outcome", frozenset({"completed", "failed", "ambiguous", "retired"})),
    "command": ("state", frozenset({"applied", "failed", "rejected", "ambiguous"})),
    "invocation": ("state", frozenset({"completed", "failed", "cancelled"})),
    "flow": ("state", frozenset({"completed", "cancelled"})),
}
"""The states that nothing leaves, by the kind of row."""
_KEYS = {
    "dispatch": "dispatch_id",
    "command": "command_id",
    "invocation": "invocation_id",
    "flow": "flow_id",
    "assignment": "assignment_id",
    "session": "session_id",
    "link": "link_id",
}
_GROWING = {"link": ("generation", "last_command"), "assignment": ("sequence",), "flow": ("revision",)}
"""Members that only grow."""
_TRANSPORT = ("prepared", "published", "accepted", "rejected")


class Told:
    """Hold one event of the journal."""

    def __init__(self, seq: int, stream: str, kind: str, row: dict[str, Any], is_gone: bool) -> None:
        begins = kind.partition(".")[0]
        self.seq = seq
        self.of = begins if begins in ("inbox", "assignment") else stream.partition(":")[0]
        """What kind of row it is about."""
        self.row = row
        self.is_gone = is_gone

    @property
    def key(self) -> Any:
        """Return which row of its kind."""
        return self.row[_KEYS.get(self.of, "number")]


def examine_journal(database: Path) -> None:
    """Raise ``Broken`` when something in the journal must not be."""
    with closing(read_only(database)) as connection:
        _says_what_the_rows_say(connection)
        events = list(_read(connection))
    for rule in (_each_ends_once, _each_grows, _in_one_place, _one_step_at_a_time, _steps_by_reports, _links_count):
        rule(events)


def closed_sessions(database: Path) -> set[str]:
    """Return the ids of the sessions that were ever closed: one that comes back is another one, with the same id."""
    with closing(read_only(database)) as connection:
        found = connection.execute("SELECT DISTINCT stream FROM journal WHERE kind = 'session.closed'")
        return {stream.partition(":")[2] for (stream,) in found}


def _read(connection: sqlite3.Connection) -> Iterator[Told]:
    found = connection.execute("SELECT seq, stream, kind, row, is_gone FROM journal ORDER BY seq")
    for seq, stream, kind, row, is_gone in found:
        yield Told(seq, stream, kind, decode(row), bool(is_gone))


def _says_what_the_rows_say(connection: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        schema.advance(model, 0)
        copy = "INSERT INTO journal (seq, at, stream, kind, event_id, epoch, row, is_gone, detail) VALUES"
        model.executemany(
            f"{copy} (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            connection.execute("SELECT seq, at, stream, kind, event_id, epoch, row, is_gone, detail FROM journal"),
        )
        replay(model)
        for table in TABLES.values():
            rows, retold = (set(each.execute(table.select)) for each in (connection, model))
            if rows != retold:
                raise Broken(
                    "journal-tells-all", f"{table.name} holds {rows - retold}, the journal tells {retold - rows}"
                )


def _each_ends_once(events: list[Told]) -> None:
    ended: dict[tuple[str, Any], str] = {}
    gone: set[tuple[str, Any]] = set()
    for event in events:
        where = event.of, event.key
        if where in gone and event.of in ("mail", "inbox", "assignment", "dispatch", "command"):
            raise Broken("one-outcome", f"{where} was over, and then: {event.row}")
        if event.is_gone:
            gone.add(where)
        if event.of not in _ENDS:
            continue
        member, ends = _ENDS[event.of]
        state = event.row[member]
        if where in ended and ended[where] != state:
            raise Broken("one-outcome", f"{where} was {ended[where]}, and then {state}")
        if state in ends and not event.row.get("reconciled"):
            ended[where] = state


def _each_grows(events: list[Told]) -> None:
    last: dict[tuple[str, Any, str], Any] = {}
    for event in events:
        for member in _GROWING.get(event.of, ()):
            where = event.of, event.key, member
            value = event.row[member]
            if value < last.get(where, value):
                raise Broken("one-outcome", f"{where} went from {last[where]} back to {value}")
            last[where] = value
        if event.of == "assignment":
            where = event.of, event.key, "accepted"
            if last.get(where) and not event.row.get("accepted"):
                raise Broken("one-outcome", f"{event.key} was accepted, and then it was not")
            last[where] = event.row.get("accepted")
        if event.of == "dispatch":
            where, value = (event.of, event.key, "transport"), _TRANSPORT.index(event.row["transport"])
            if value < last.get(where, value):
                raise Broken("one-outcome", f"{where} went back to {event.row['transport']}")
            last[where] = value


def _in_one_place(events: list[Told]) -> None:
    """FE 1.3: a message is in one mailbox or in the inbox; what brings an assignment is a copy."""
    places: dict[str, set[tuple[str, Any]]] = {}
    workers: dict[str, set[str]] = {}
    for event in events:
        row = event.row
        if event.of == "assignment":
            open_ones = workers.setdefault(row["message_id"], set())
            (open_ones.discard if event.is_gone else open_ones.add)(row["assignment_id"])
            if len(open_ones) > 1:
                raise Broken("in-one-place", f"{row['message_id']} is work of several: {open_ones}")
        elif event.of == "inbox" or (event.of == "mail" and row.get("assignment") is None):
            message_id = row["inbox_id"] if event.of == "inbox" else row["message_id"]
            held = places.setdefault(message_id, set())
            place = event.of, event.key
            (held.discard if event.is_gone else held.add)(place)
    for message_id, held in places.items():
        if len(held) > 1:
            raise Broken("in-one-place", f"{message_id} is in {held}")


def _one_step_at_a_time(events: list[Told]) -> None:
    """A2.11: a flow has one attempt under way, and so has a worker."""
    for whose in (lambda row: row["flow_id"], lambda row: row["identity"]["session_id"]):
        under_way: dict[str, set[str]] = {}
        for event in events:
            if event.of != "dispatch":
                continue
            mine = under_way.setdefault(whose(event.row), set())
            is_open = event.row["outcome"] == "pending" and not event.is_gone
            (mine.add if is_open else mine.discard)(event.key)
            if len(mine) > 1:
                raise Broken("one-step-at-a-time", f"{whose(event.row)} has {mine} under way")


def _steps_by_reports(events: list[Told]) -> None:
    """A2.2: nothing but a report completes a step."""
    reports: dict[str, Any] = {}
    for event in events:
        if event.of == "dispatch":
            report = event.row.get("report")
            reports[event.key] = report
            if event.row["outcome"] == "completed" and (report is None or report["outcome"] != "completed"):
                raise Broken("steps-by-reports", f"{event.key} is completed by {report}")
        elif event.of == "flow":
            for step in event.row["steps"]:
                if step["state"] == "completed" and reports.get(step["current"]) is None:
                    raise Broken("steps-by-reports", f"{event.key} {step['step_id']} is completed without a report")


def _links_count(events: list[Told]) -> None:
    """FE 4.8: events of one journal and commands of one link are numbered without gaps, and none twice."""
    last: dict[tuple[str, ...], int] = {}
    known: set[Any] = set()
    for event in events:
        row = event.row
        if event.is_gone or event.of not in ("event", "command") or (event.of, event.key) in known:
            continue
        known.add((event.of, event.key))
        whose = (event.of, row["link_id"], row["journal_id"] if event.of == "event" else "")
        if row["seq"] != last.get(whose, 0) + 1:
            raise Broken("numbered-without-gaps", f"{whose}: {row['seq']} came after {last.get(whose, 0)}")
        last[whose] = row["seq"]
