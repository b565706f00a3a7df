"""Let the stand-ins of sessions elsewhere come, change and go, as their brokers say.

To those here they are sessions like any other: they are told of when they come and when they go. Who has left with its
broker is remembered, so that what may wait for it can be put down here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.core import groups
from intercom.core.clock import Instant
from intercom.core.labels import NODE_SIGN
from intercom.core.peer_records import PeerLost, PeerSeen, RemoteName
from intercom.core.queueing import Away, Several
from intercom.core.resolving import is_prefix, node_of
from intercom.core.sessions import NODE
from intercom.core.standins import RemoteConnection, StandIn, Way, groups_of

if TYPE_CHECKING:
    from intercom.core.addresses import Address
    from intercom.core.deadlines import Deadline
    from intercom.core.delivery import Delivery
    from intercom.core.departing import Departing
    from intercom.core.ground import Ground
    from intercom.core.homes import Homes
    from intercom.core.letters import SendLetter
    from intercom.core.mailboxes import Mailbox
    from intercom.core.messages import Messages
    from intercom.core.post import Post
    from intercom.core.sessions import Session, SessionTable


class _Left(Struct, frozen=True):
    """Remember one that is not there now."""

    away: Away
    node: str


class RemoteSessions:
    """Hold the stand-ins; ``node_of`` tells what the machine of a broker is called."""

    way: Way
    """By which frames get to their sessions."""
    _homes: Homes

    def know(self, homes: Homes) -> None:
        """Take who knows the homes of the addresses."""
        self._homes = homes

    def __init__(
        self,
        ground: Ground,
        sessions: SessionTable,
        messages: Messages,
        post: Post,
        delivery: Delivery,
        departing: Departing,
        node_of: Callable[[str], str],
    ) -> None:
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._sessions = sessions
        self._asking = messages.asking
        self._mailing = post.mailing
        self._boxes = post.boxes
        self._delivery = delivery
        self._departing = departing
        self._node_of = node_of
        self._numbers = count(-1, -1)
        self._of: dict[str, dict[str, StandIn]] = {}
        """By broker and session id."""
        self._epochs: dict[str, int] = {}
        """Of the processes of the brokers that were heard of last."""
        self._returning: dict[str, Deadline] = {}
        """Until when the sessions may come back whose broker has ended, and begins anew, by their ids."""
        self._left: OrderedDict[str, _Left] = OrderedDict()
        self._asking.returns_by = self._returns_by

    def next_number(self) -> int:
        """Return a number for the way to something elsewhere."""
        return next(self._numbers)

    # --- who is there -----------------------------------------------------------------------------------

    def seen(self, fact: PeerSeen, now: Instant) -> None:
        """Let those be here for whom a broker says that it answers, and no others of it."""
        mine = self._of.setdefault(fact.broker_id, {})
        begins_anew = self._epochs.get(fact.broker_id, fact.epoch) != fact.epoch
        self._epochs[fact.broker_id] = fact.epoch
        wanted = {session_id: name for session_id, name in fact.present.items() if name.session}
        for session_id, stand_in in list(mine.items()):
            if self._sessions.get(session_id) is not stand_in:
                del mine[session_id]  # it is at another broker now
            elif session_id not in wanted and stand_in.is_confirmed:
                self._retire(stand_in, now, may_return=begins_anew)
        for session_id, name in list(wanted.items())[: self._limits.peer_sessions]:
            stand_in_here = mine.get(session_id)
            if stand_in_here is not None:
                self._change(stand_in_here, name, fact.broker_id, now)
            elif self._sessions.get(session_id) is None:
                self._enter(self._made(fact.broker_id, name), now)

    def lost(self, fact: PeerLost, now: Instant) -> None:
        """Let all sessions of a broker be gone; one that said goodbye may be replaced at this moment."""
        for stand_in in list(self._of.pop(fact.broker_id, {}).values()):
            if self._sessions.get(stand_in.id) is stand_in:
                self._retire(stand_in, now, may_return=fact.said_goodbye)

    def sender_of(self, peer: str, letter: SendLetter, now: Instant) -> StandIn:
        """Return the stand-in of whoever sent this.

        One that is not known yet is there for its question only as long as its broker does not say that it is; for
        anything else it is not needed beyond the message. One that has joined or left a group is judged as it was when
        it sent this: its broker tells of that a moment later, or did before.
        """
        present = self._sessions.get(letter.sender.target_id)
        if isinstance(present, StandIn) and present.connection.session is present and present.is_at(peer):
            is_the_same = letter.was_forwarded or set(present.groups) == set(letter.sender.groups)
            found = present if is_the_same else self._made(peer, letter.sender)
            self._let_act(found, peer, letter.sender)
            return found
        stand_in = self._made(peer, letter.sender)
        self._let_act(stand_in, peer, letter.sender)
        if letter.was_forwarded:
            if isinstance(present, StandIn):
                stand_in.update(**{NODE: node_of(present, "")})
            return stand_in
        if present is None and letter.is_ask:
            self._enter(stand_in, now, is_confirmed=False)
            self._deadlines.add(now.mono + self._limits.peer_confirm_ms, self._is_confirmed, stand_in)
        return stand_in

    def _let_act(self, stand_in: StandIn, peer: str, name: RemoteName) -> None:
        """Let a sender answer for the address under which it acts: only the home of that knows who may."""
        if not stand_in.holds_address:
            address = None if name.acts_for is None else self._homes.known_as(*name.acts_for)
            stand_in.address = address if address is not None and address.home == peer else None

    def shape_of(self, peer: str, name: RemoteName) -> StandIn:
        """Return a stand-in by which somebody is judged whom a letter names; it is in no table."""
        return self._made(peer, name)

    def _is_confirmed(self, stand_in: StandIn, now: Instant) -> None:
        if not stand_in.is_confirmed and self._sessions.get(stand_in.id) is stand_in:
            self._retire(stand_in, now)

    def _made(self, peer: str, name: RemoteName) -> StandIn:
        connection = RemoteConnection(self.next_number(), peer, self.way)
        stand_in = StandIn(connection, name, self._node_of(peer))
        connection.session = stand_in
        return stand_in

    def _enter(self, stand_in: StandIn, now: Instant, *, is_confirmed: bool = True) -> None:
        connection = stand_in.connection
        assert isinstance(connection, RemoteConnection)
        stand_in.is_confirmed = is_confirmed
        self._deadlines.cancel(self._returning.pop(stand_in.id, None))
        box = self._act(stand_in, connection.peer_id, now)
        self._sessions.enter_remote(stand_in)
        self._of.setdefault(connection.peer_id, {})[stand_in.id] = stand_in
        self._left.pop(stand_in.id, None)
        if box is None:
            box = self._mailing.holder_came(stand_in, stand_in.target_identity)
        groups.announce(stand_in, self._sessions, self._outbox)
        self._delivery.resend_unconfirmed(stand_in, now)
        self._asking.session_returned(stand_in, now)
        self._mailing.offer(box, now)

    def _act(self, stand_in: StandIn, peer: str, now: Instant) -> Mailbox | None:
        """Let a stand-in hold the address that its session holds; return the mailbox of that."""
        wanted = stand_in.wanted_address
        if wanted is None:
            return None
        address = self._homes.at(*wanted, peer, stand_in.groups, now)
        stand_in.claimed = self._homes.known_as(*wanted)
        if address is None or self._is_held_at_home(address, peer):
            return None
        self.release(address, now)
        stand_in.address, stand_in.target_identity = address, address.key
        address.holder = stand_in
        stand_in.mailbox = self._boxes.open(address.key)
        return stand_in.mailbox

    def _is_held_at_home(self, address: Address, peer: str) -> bool:
        """Tell whether somebody holds an address at its home, and this broker is not that.

        Whoever held it before is told of for a moment; and if the home has moved there, that is told in a moment.
        """
        return address.home != peer and address.holder is not None and address.holder.at_peer == address.home

    def aimed(self, address: Address, now: Instant) -> None:
        """Let those act for an address who were announced before it was known here that it is at home there.

        They come anew, the one at its home last: what waits for one of them, or is on its way to it, is for the address
        from now on.
        """
        for peer in sorted(self._of, key=lambda peer: peer == address.home):
            for stand_in in list(self._of[peer].values()):
                if stand_in.claimed is address and stand_in.address is None and stand_in.is_confirmed:
                    self._retire(stand_in, now, may_return=True)
                    self._enter(self._made(peer, stand_in.told), now)

    def release(self, address: Address, now: Instant) -> None:
        """Let a stand-in go that held an address which somebody else holds now; its broker says so in a moment."""
        holder = address.holder
        if isinstance(holder, StandIn):
            self._retire(holder, now)

    def _change(self, stand_in: StandIn, name: RemoteName, peer: str, now: Instant) -> None:
        stand_in.is_confirmed = True
        was_terminal, before = stand_in.is_terminal, stand_in.written()
        stand_in.show(name, self._node_of(peer))
        members, legacy = groups_of(name)
        if name.name != stand_in.name and name.name != stand_in.id:
            self._sessions.rename(stand_in, name.name)
        change = groups.Change(groups=members, legacy_group=legacy)
        if members != stand_in.groups:
            groups.store_memberships(change, stand_in, self._sessions, self._outbox, now)
        elif stand_in.written() != before:
            groups.announce_presence(stand_in, self._sessions, self._outbox)
        if stand_in.is_terminal and not was_terminal:
            self._asking.target_ended(stand_in, now)

    def _retire(self, stand_in: StandIn, now: Instant, *, may_return: bool = False) -> None:
        if may_return:
            due = now.mono + self._limits.dormant_target_ms
            self._returning[stand_in.id] = self._deadlines.add(due, self._stayed_away, stand_in.id)
        connection = stand_in.connection
        assert isinstance(connection, RemoteConnection)
        self._of.get(connection.peer_id, {}).pop(stand_in.id, None)
        self._leave_to_its_address(stand_in, now)
        away = Away(stand_in.target_identity, stand_in.name or stand_in.id, stand_in.id, stand_in.groups)
        if stand_in.is_confirmed and stand_in.address is None:
            self._left[stand_in.id] = _Left(away, str(stand_in.info.get(NODE, "")))
            if len(self._left) > self._limits.peer_sessions:
                self._left.popitem(last=False)
        self._departing.retire(connection, now)

    def _returns_by(self, session_id: str) -> int | None:
        deadline = self._returning.get(session_id)
        return None if deadline is None else deadline.due

    def _stayed_away(self, session_id: str, now: Instant) -> None:
        del self._returning[session_id]
        if self._sessions.get(session_id) is None:
            self._asking.asker_left(session_id)

    def _leave_to_its_address(self, stand_in: StandIn, now: Instant) -> None:
        """Let what waits for a session that held an address wait for that, if it was not known for its holder here."""
        address = stand_in.claimed
        if stand_in.address is not None or address is None:
            return
        stand_in.address = address  # what it has not confirmed follows
        box = self._boxes.get(stand_in.target_identity)
        for mail in [] if box is None else box.in_order():
            self._mailing.readdress(mail, address.key, now)

    # --- who was there ----------------------------------------------------------------------------------

    def nodes_of_those_who_left(self, name: str) -> set[str]:
        """Return the machines on which somebody of this name was that is not there now."""
        return {left.node for left in self._left.values() if left.away.label.lower() == name.lower()}

    def find_away(self, target: str, sender: Session) -> Away | Several | None:
        """Return whom a target means that was on another machine and is not there now."""
        exact = self._left.get(target)
        if exact is not None:
            return exact.away
        wanted = target.lower()
        name, sign, node = wanted.rpartition(NODE_SIGN)
        found: list[Away] = []
        for left in self._left.values():
            label = left.away.label.lower()
            is_meant = (
                label == wanted
                or (bool(sign) and (label, left.node.lower()) == (name, node))
                or (is_prefix(target) and left.away.session_id.lower().startswith(wanted))
            )
            if is_meant and any(group in left.away.groups for group in sender.groups):
                found.append(left.away)
        if len(found) > 1:
            return Several((), tuple(sorted(away.session_id for away in found)))
        return found[0] if found else None
