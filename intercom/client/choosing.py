"""Find out what a person or a model means by the beginning of an id, or by a name that nobody has.

The wire knows beginnings of exactly eight digits; longer and shorter ones are looked up by the client, among what it
may see (F46).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from intercom.errors import RequestRefused
from intercom.limits import NEAR_NAMES, PREFIX_CHARACTERS, SHORT_ID_CHARACTERS

if TYPE_CHECKING:
    from intercom.client.invoking import InvocationView
    from intercom.client.mailviews import AddressView, PendingAsk
    from intercom.client.views import SessionView

Item = TypeVar("Item")
TASK_PREFIX = "run:"
"""Begins the id of the message that brings a task; the id of its run follows (protocol 13.3)."""


def may_begin_an_id(target: str) -> bool:
    """Tell whether a target may be the beginning of an id that the broker does not know as one."""
    wanted = target.strip().lower()
    digits = wanted.replace("-", "")
    if not digits or set(digits) - set("0123456789abcdef"):
        return False
    return PREFIX_CHARACTERS <= len(digits) < 32 and not (len(wanted) == len(digits) == SHORT_ID_CHARACTERS)


def begun_by(views: Iterable[SessionView], target: str, own_id: str) -> list[SessionView] | None:
    """Return the other sessions whose ids begin with ``target``; ``None`` when it is a name or a whole id."""
    wanted = target.strip().lower()
    found = []
    for view in views:
        if (view.name or "").lower() == wanted or view.id.lower() == wanted:
            return None
        if view.id.lower().startswith(wanted) and view.id != own_id:
            found.append(view)
    return found


def matching(views: Iterable[SessionView], target: str, own_id: str) -> list[SessionView]:
    """Return the other sessions that a target may mean by its name or the beginning of its id."""
    wanted = target.strip().lower()
    return [
        view
        for view in views
        if view.id != own_id
        and (wanted in ((view.name or "").lower(), by_machine(view).lower()) or view.id.lower().startswith(wanted))
    ]


def by_machine(view: SessionView, here: str = "") -> str:
    """Return how a session is named with its machine; one on this machine, called ``here``, only if that is given."""
    node = view.raw.get("node") or here
    return f"{view.name or view.id}@{node}" if isinstance(node, str) and node else ""


def near_names(target: str, views: Iterable[SessionView], addresses: Iterable[AddressView]) -> list[str]:
    """Return names of sessions and addresses that are like one nobody has."""
    from difflib import get_close_matches  # only a name that nobody has pays for it

    names = [name for view in views for name in (view.name, by_machine(view)) if name]
    names += [address.name for address in addresses]
    known = {name.lower(): name for name in names}
    return [known[match] for match in get_close_matches(target.strip().lower(), known, n=NEAR_NAMES)]


def in_reach(addresses: Iterable[AddressView], groups: Iterable[str]) -> list[AddressView]:
    """Return the addresses that can be reached from one of the groups."""
    mine = set(groups)
    return [address for address in addresses if mine & set(address.groups)]


def chosen(
    items: Iterable[Item],
    id_of: Callable[[Item], str],
    wanted: str,
    *,
    none: Callable[[], RequestRefused],
    many: Callable[[int], RequestRefused],
) -> Item:
    """Return the item with this id, or the only one whose id begins so; raise what ``none`` or ``many`` return."""
    plain = wanted.strip().lower()
    found = []
    for item in items:
        item_id = id_of(item).lower()
        if item_id == plain:
            return item
        if len(plain) >= PREFIX_CHARACTERS and item_id.startswith(plain):
            found.append(item)
    if len(found) == 1:
        return found[0]
    raise many(len(found)) if found else none()


def task_called(tasks: Iterable[InvocationView], wanted: str) -> InvocationView:
    """Return the open task that came with this id; raise ``RequestRefused`` when none did, or several."""
    return chosen(
        tasks,
        lambda task: TASK_PREFIX + task.run_id,
        wanted,
        none=lambda: RequestRefused(
            f"No open task of this identity came with the id {wanted}",
            code="unknown_question",
            hint="`intercom pending` shows the open ones; one that has ended is not reported again.",
        ),
        many=lambda count: RequestRefused(
            f"{count} open tasks came with ids that begin with {wanted}",
            code="ambiguous_question",
            hint="Give the whole id.",
        ),
    )


def question_called(questions: Iterable[PendingAsk], wanted: str) -> PendingAsk:
    """Return the open question that is meant; raise ``RequestRefused`` when none is, or several."""
    return chosen(
        questions,
        lambda question: question.message_id,
        wanted,
        none=lambda: RequestRefused(
            f"No open question for this identity has the id {wanted}",
            code="unknown_question",
            hint="`intercom pending` shows the open ones; an ordinary message needs no question.",
        ),
        many=lambda count: RequestRefused(
            f"{count} open questions have ids that begin with {wanted}",
            code="ambiguous_question",
            hint="Give the whole id; `intercom pending` shows it.",
        ),
    )
