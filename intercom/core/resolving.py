"""Decide what a target means (protocol 6.2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from intercom.core.addresses import RESERVED_SIGN
from intercom.core.clock import Instant
from intercom.core.labels import NODE_SIGN
from intercom.core.questions import Questions
from intercom.core.sessions import NODE, Session, SessionTable, is_uuid
from intercom.core.supervision import Crossings
from intercom.wire.frames import trim

_PREFIX = re.compile(r"[0-9a-fA-F]{8}", re.ASCII)


class Unresolved(Enum):
    """Say why a target leads to no session."""

    NOT_FOUND = "not found"
    AMBIGUOUS_NAME = "ambiguous name"
    AMBIGUOUS_PREFIX = "ambiguous prefix"


def is_prefix(target: str) -> bool:
    """Tell whether ``target`` is exactly eight hexadecimal digits."""
    return _PREFIX.fullmatch(target) is not None


def holders_of(named: list[Session], name: str) -> list[Session]:
    """Return those who hold an address of this name: they have more of it than others who call themselves so.

    An address has one. While it moves several are told of: the one that has its mail as far as is known here is meant,
    else the newest (protocol 6.13.6).
    """
    held: dict[str, Session] = {}
    for peer in named:
        if peer.holds_name(name):
            other = held.get(peer.held_group)
            if other is None or not other.holds_address:
                held[peer.held_group] = peer
    return list(held.values())


def node_of(session: Session, here: str) -> str:
    """Return what the machine of a session is called, where this one is called ``here``."""
    return str(session.info.get(NODE, "")) if session.is_remote else here


class Resolver:
    """Resolve ids, names and prefixes for one sender; never reveals a session the sender may not see."""

    def __init__(self, sessions: SessionTable, questions: Questions, crossings: Crossings) -> None:
        self._sessions = sessions
        self._questions = questions
        self._crossings = crossings
        self.node: str | None = None
        """What this machine is called; None: there is no other."""

    def resolve(self, target: str, sender: Session, *, is_reply: bool, now: Instant) -> Session | Unresolved:
        """Return the one session ``target`` means: exact id first, then name, then prefix (6.2.1, 6.2.2).

        An exact id finds every session, whatever its group or purpose; the rest finds agents in reach only.
        """
        found = self._sessions.get(target)  # most name an id, and no id has a blank around it
        if found is not None:
            return found
        target = trim(target)
        found = self._sessions.get(target)
        if found is not None:
            return found
        if target.startswith(RESERVED_SIGN):
            return Unresolved.NOT_FOUND  # such names belong to the broker, whoever calls itself so
        return self._by_name(target, sender, is_reply, now)

    def _by_name(self, target: str, sender: Session, is_reply: bool, now: Instant) -> Session | Unresolved:
        return self._among_candidates(target, lambda peer: self._is_candidate(peer, sender, is_reply, now))

    def _among_candidates(self, target: str, is_candidate: Callable[[Session], bool]) -> Session | Unresolved:
        named = [peer for peer in self._sessions.named(target) if is_candidate(peer)]
        if len(named) > 1:
            named = holders_of(named, target) or named
        if named:
            return named[0] if len(named) == 1 else Unresolved.AMBIGUOUS_NAME
        if is_prefix(target):
            begun = [peer for peer in self._sessions.with_prefix(target) if is_candidate(peer)]
            if begun:
                return begun[0] if len(begun) == 1 else Unresolved.AMBIGUOUS_PREFIX
        if self.node is not None and NODE_SIGN in target:
            return self._on_node(target, self.node, is_candidate)
        return Unresolved.NOT_FOUND

    def _on_node(self, target: str, here: str, is_candidate: Callable[[Session], bool]) -> Session | Unresolved:
        """Return whom a name means on one machine: ``name@node``."""
        name, _, node = target.rpartition(NODE_SIGN)
        named = [
            peer
            for peer in self._sessions.named(name)
            if is_candidate(peer) and node_of(peer, here).lower() == node.lower()
        ]
        if len(named) > 1:
            named = holders_of(named, name) or named
        if not named:
            return Unresolved.NOT_FOUND
        return named[0] if len(named) == 1 else Unresolved.AMBIGUOUS_NAME

    def named_by_machine(self, name: str, sender: Session, *, is_reply: bool, now: Instant) -> tuple[str, ...]:
        """Return the wordings ``name@node`` that lead to one each of several of a name, where machines differ."""
        if self.node is None:
            return ()
        nodes = {node_of(peer, self.node) for peer in self._sessions.named(name)}
        wordings = sorted(f"{name}{NODE_SIGN}{node}" for node in nodes) if len(nodes) > 1 else []
        return tuple(each for each in wordings if isinstance(self._by_name(each, sender, is_reply, now), Session))

    def wording_still_leads_to(
        self, wording: str, found: Session, to: str, sender: Session, *, is_reply: bool, now: Instant
    ) -> bool:
        """Check a short target that the client resolved itself against the sender's present candidates (6.2.4)."""
        wording, to = trim(wording), trim(to)
        if not is_prefix(wording) or not is_uuid(to) or not to.lower().startswith(wording.lower()):
            return True
        return self.resolve(wording, sender, is_reply=is_reply, now=now) is found

    def names_a_control_session(self, target: str, sender: Session) -> bool:
        """Tell whether only an internal connection in reach has this name (6.2.3)."""
        return any(not peer.is_agent and peer.shares_group_with(sender) for peer in self._sessions.named(trim(target)))

    def _is_candidate(self, peer: Session, sender: Session, is_reply: bool, now: Instant) -> bool:
        if not peer.is_agent:
            return False
        if peer.shares_group_with(sender):
            return True
        return is_reply and (
            peer.id == sender.supervisor_id
            or any(
                question.asker_id == peer.id and not question.is_waiting
                for question in self._questions.owed_by(sender.id)
            )
            or self._crossings.connects(sender.id, peer.id, now)
        )
