"""Bring tasks to the brokers that answer for their targets, as letters, and turn what those say into facts.

What is sent when, and what follows from an answer, is ``forwarding``'s; nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, DecodeError, Raw, Struct
from msgspec.json import decode

from intercom.core.claims import Claims
from intercom.core.clock import Instant
from intercom.core.invocation_targets import is_address_id, key_of_address
from intercom.core.peer_records import (
    Arrived,
    Follow,
    Forward,
    Forwarded,
    Mirrored,
    PeerFact,
    Recall,
    RemoteName,
)
from intercom.core.task_letters import (
    FOLLOW,
    INVOKE,
    INVOKED,
    RECALL,
    RUN,
    FollowLetter,
    InvokedLetter,
    InvokeLetter,
    RecallLetter,
    RunLetter,
)

if TYPE_CHECKING:
    from intercom.core.invocation_records import InvocationRecord
    from intercom.core.invocations import Invocation, Invocations

CUT_OFF = "the way to other machines is cut off"


class Postman(Protocol):
    """Post letters."""

    def post(
        self, peer: str, kind: str, delivery_id: str, letter: Struct, after: int, *, attempt: str = "", settles: int = 0
    ) -> int:
        """Post a letter once the append with ticket ``after`` is committed."""

    def is_cut_off(self, peer: str) -> bool:
        """Tell whether nothing reaches this broker now."""


class TasksOut:
    """Post tasks.

    Args:
        own: id of this broker.
        told: takes what the letters of others say.
    """

    kinds = frozenset({INVOKED, RUN})
    """The letters it takes."""

    def __init__(
        self,
        own: str,
        book: Invocations,
        postman: Postman,
        claims: Claims,
        told: Callable[[PeerFact, Instant], None],
    ) -> None:
        self._own = own
        self._book = book
        self._postman = postman
        self._claims = claims
        self._told = told

    def carry(self, work: Forward | Follow | Recall, now: Instant) -> None:
        """Post what is for a peer; a task that cannot leave now is said to have reached nobody."""
        if isinstance(work, Follow):
            self._post(work, FOLLOW, FollowLetter(work.invocation_id, work.after))
        elif isinstance(work, Recall):
            self._post(work, RECALL, RecallLetter(work.invocation_id, work.reason))
        elif self._postman.is_cut_off(work.peer):
            self._told(Forwarded(work.delivery_id, work.attempt, "unreachable", reason=CUT_OFF), now)
        else:
            invocation = self._book.get(work.task.invocation_id)
            assert invocation is not None, "only an open one is sent"
            self._post(work, INVOKE, self._letter(work, invocation, now))

    def _post(self, work: Forward | Follow | Recall, kind: str, letter: Struct) -> None:
        after = work.after if isinstance(work, Forward) else 0
        self._postman.post(work.peer, kind, work.delivery_id, letter, after)

    def _letter(self, work: Forward, invocation: Invocation, now: Instant) -> InvokeLetter:
        record = invocation.record
        return InvokeLetter(
            work.attempt,
            record.invocation_id,
            record.target,
            record.asked,
            record.action,  # type: ignore[arg-type]  # an action
            requester_of(record, invocation.info, self._own),
            record.fingerprint,
            record.run_id,
            Raw(work.task.message),
            record.ensure_awake,
            None if record.take_until is None else max(0, record.take_until - now.wall),
            UNSET if record.wishes is None else Raw(record.wishes),
            record.turn,
            self._claims.newest(key_of_address(record.target)) if is_address_id(record.target) else None,
        )

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what a peer says of a task; what cannot be read says nothing."""
        try:
            if fact.kind == INVOKED:
                answer = decode(fact.body, type=InvokedLetter)
                heard: PeerFact = Forwarded(
                    fact.delivery_id,
                    answer.attempt,
                    answer.verdict,
                    answer.run,
                    answer.reason,
                    fact.peer,
                    answer.turn,
                    answer.is_elsewhere,
                )
            else:
                report = decode(fact.body, type=RunLetter)
                heard = Mirrored(fact.delivery_id, report.after, report.seq, report.run, fact.peer)
        except DecodeError:
            return
        self._told(heard, now)


def requester_of(record: InvocationRecord, asker: bytes, own: str) -> RemoteName:
    """Return whoever asked for a task, as it was then; ``asker`` is its session object, JSON."""
    info = decode(asker)
    name = info.get("name")
    return RemoteName(
        record.requester_session,
        name if isinstance(name, str) and name else record.requester_session,
        tuple(info.get("groups", ())),
        "active",
        own,
        session=asker,
        identity=record.requester,
        home_group=str(info.get("group", "")),
    )
