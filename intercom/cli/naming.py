"""Tell whoever named a target that is not there, or that several are, which ones there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from intercom.cli.tables import Fit, table
from intercom.client.choosing import begun_by, by_machine, in_reach, matching, may_begin_an_id, near_names
from intercom.errors import AmbiguousTarget, IntercomError, TargetNotFound
from intercom.limits import NEAR_NAMES
from intercom.wire.targets import SCHEME

if TYPE_CHECKING:
    from argparse import Namespace

    from intercom.client.blocking import Session
    from intercom.client.mailviews import AddressView
    from intercom.client.views import SessionView


Naming: TypeAlias = "Callable[[Sequence[SessionView]], str]"
"""Tells what this machine is called."""


def named_beside(arguments: Namespace, default_ms: int) -> Naming:
    """Return what tells the name of this machine, and asks the broker for that only where others are shown."""

    def machine(views: Sequence[SessionView]) -> str:
        if not any(view.raw.get("node") for view in views):
            return ""
        from intercom.cli.machines import machine_here

        return machine_here(arguments, default_ms)

    return machine


def _nowhere(views: Sequence[SessionView]) -> str:
    return ""


class AmbiguousAmong(AmbiguousTarget):
    """Say that several sessions match, and which; ``candidates`` holds those this session may see.

    ``machine`` is what this one is called, if some are on others.
    """

    def __init__(self, error: AmbiguousTarget, candidates: Sequence[SessionView], machine: str = "") -> None:
        super().__init__(error.reason, hint=error.hint, retry=error.retry)
        self.message_id = error.message_id
        self.candidates = tuple(candidates)
        self._machine = machine

    def as_dict(self) -> dict[str, Any]:
        """Add ``candidates`` to the JSON form."""
        return {**super().as_dict(), "candidates": [dict(candidate.raw) for candidate in self.candidates]}

    @property
    def lines(self) -> list[str]:
        """Return the candidates as lines for a person; ids, and names with a machine, can be copied."""
        head = ["ID", "STATUS", "GROUPS", "DIRECTORY"]
        cells = [[view.id, view.status or "-", ",".join(view.groups), view.cwd] for view in self.candidates]
        names = [by_machine(view, self._machine) for view in self.candidates]
        if any(names):
            head.insert(1, "NAME")
            for row, name in zip(cells, names, strict=True):
                row.insert(1, name if name and names.count(name) == 1 else "-")
        return table(head, cells, Fit(whole=tuple(head[:-3]))) if cells else []


@contextmanager
def helpful(session: Session, target: str, machine: Naming = _nowhere) -> Iterator[None]:
    """Add to a refusal of ``target`` what the caller needs to name it better.

    ``machine`` tells what this machine is called, of sessions some of which are on others.

    Raises ``AmbiguousAmong`` instead of ``AmbiguousTarget``, and ``TargetNotFound`` with similar names in its hint.
    """
    try:
        yield
    except AmbiguousTarget as error:
        found = matching(_in_reach(session), target, session.id)
        raise AmbiguousAmong(error, found, machine(found)) from error
    except TargetNotFound as error:
        if target.startswith(SCHEME):
            near = _near_stages(session, target)
            error.hint = "`intercom list --group workflow:RUN` shows the stages of a run."
        else:
            near = near_names(target, _in_reach(session), _addresses(session))
        if near:
            error.hint = f"Did you mean {' or '.join(near)}? {error.hint}".rstrip()
        raise


def resolved(session: Session, target: str, seconds: float, machine: Naming = _nowhere) -> str:
    """Return what to write as the target: a full id for the beginning of one, else ``target`` as it is.

    The wire knows beginnings of exactly eight digits; longer and shorter ones are looked up here, among the sessions
    this one may see (F46), for which the broker has ``seconds``. A name that is there comes first. Raises
    ``AmbiguousAmong`` when several ids begin so, and what ``Session.list`` raises.
    """
    if not may_begin_an_id(target):
        return target
    found = begun_by(session.list(timeout=seconds), target, session.id)
    if found is None:
        return target
    if len(found) > 1:
        wanted = target.strip().lower()
        error = AmbiguousTarget(f"{len(found)} sessions have ids that begin with {wanted}")
        raise AmbiguousAmong(error, found, machine(found))
    return found[0].id if found else target


def _in_reach(session: Session) -> list[SessionView]:
    try:
        return session.list()
    except IntercomError:
        return []


def _near_stages(session: Session, target: str) -> list[str]:
    """Return the targets, by id and by name, that are like one of which nothing is known."""
    from difflib import get_close_matches

    try:
        stages = [stage for stage in session.list_stages() if stage.state != "possible"]
    except IntercomError:
        return []
    known = [f"{stage.target.rpartition('/')[0]}/{stage.name}" for stage in stages] + [stage.target for stage in stages]
    return get_close_matches(target, dict.fromkeys(known), n=NEAR_NAMES)


def _addresses(session: Session) -> list[AddressView]:
    """Return the names for which mail would wait, as far as this session could reach them."""
    try:
        return in_reach(session.addresses(), session.groups)
    except IntercomError:
        return []
