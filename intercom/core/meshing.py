"""Tell other brokers who is here, and say how the way to them is.

A broker that is in no cluster has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from intercom.core.abroad import Abroad, wording_at_home
from intercom.core.claims import Claims
from intercom.core.clock import Instant
from intercom.core.expected import Expected
from intercom.core.homes import Homes
from intercom.core.in_doubt import AskingAfter, InDoubt
from intercom.core.invocation_targets import address_id
from intercom.core.labels import NODE_SIGN, Candidate
from intercom.core.looking import Looking
from intercom.core.notifications_in import NotificationsIn
from intercom.core.outgoing import OnItsWay, Outgoing, PostAgain
from intercom.core.part import Part, Reader
from intercom.core.parting import Parting
from intercom.core.peer_records import (
    AddressClaimed,
    AddressesKnown,
    AddressHome,
    AddressSeen,
    Announce,
    Arrived,
    ClusterState,
    PeerFact,
    PeerLost,
    PeerSeen,
    Posted,
    RemoteName,
    Settle,
    TargetHeld,
)
from intercom.core.proxies import Proxies
from intercom.core.queueing import Away, Several
from intercom.core.remote_sessions import RemoteSessions
from intercom.core.runs_elsewhere import RunsElsewhere
from intercom.core.standins import PEER
from intercom.core.steps_in import StepsIn
from intercom.core.steps_out import Bringing, StepsOut
from intercom.core.steps_reports import BringingReport
from intercom.core.steps_waiting import StepOnItsWay
from intercom.core.tasks_in import Reporting, TasksIn
from intercom.core.tasks_moving import TasksMoving
from intercom.core.tasks_out import TasksOut
from intercom.wire.targets import parse_target

if TYPE_CHECKING:
    from intercom.core.addresses import Address
    from intercom.core.company import Company
    from intercom.core.deadlines import Deadline
    from intercom.core.flow import Dispatch
    from intercom.core.flows import FlowsOfBroker
    from intercom.core.ground import Ground
    from intercom.core.invoking import Invoking
    from intercom.core.mailboxes import Mailbox
    from intercom.core.membership import Membership
    from intercom.core.messages import Messages
    from intercom.core.operation import Operation
    from intercom.core.post import Post
    from intercom.core.records import Recovered
    from intercom.core.registry import Registry
    from intercom.core.sending import Sending
    from intercom.core.sessions import Session
    from intercom.core.staging import Staging
    from intercom.core.supervising import Supervising
    from intercom.core.work import Work


class Meshing(Part):
    """Know how the cluster is, and hold what deals with other brokers; ``state``: how it is at first."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        supervising: Supervising,
        staging: Staging,
        sending: Sending,
        membership: Membership,
        company: Company,
        flows: FlowsOfBroker,
        invoking: Invoking,
        work: Work,
        node: str,
        state: ClusterState,
        now: Instant,
    ) -> None:
        self._state = state
        self._here = node
        """What this machine is called."""
        self._queueing = post.queueing
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._own = ground.identity.broker_id
        self._sessions = registry.sessions
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._peers = invoking.peers
        self._delivery = sending.delivery
        self._announced: dict[str, bytes] = {}
        """What was said last of each session that is here."""
        self._leaving: set[str] = set()
        self._there: set[str] = set()
        """The brokers that are there."""
        self._not_before = 0
        self._next: Deadline | None = None
        self._is_marked = False
        self._may_begin = True
        """The first opening of the engine may end in the time that somebody waits for it."""
        self._remote = RemoteSessions(
            ground, registry.sessions, messages, post, sending.delivery, membership.departing, self._node
        )
        claims = Claims(self._own)
        self._abroad = Abroad(
            ground,
            registry,
            messages.operations,
            messages.receipts,
            post.boxes,
            post.mailing,
            post.queueing,
            sending.delivery,
            sending.deciding,
            claims,
            lambda session: self._name_of(session, session.written()),
            self._remote.sender_of,
            self._is_cut_off,
            lambda: self._state.status != "on",
            now,
        )
        self._remote.way = self._abroad
        self._looking = Looking(
            ground,
            registry,
            messages.operations,
            post.boxes,
            sending.deciding,
            post.queueing,
            self._abroad,
            self._is_near,
        )
        self._in_doubt = InDoubt(
            ground, registry.addresses, post.boxes, post.mailing, self._abroad, self._looking.holders.homes_before
        )
        self._looking.on_other = self._in_doubt.heard
        self._abroad.on_mail = self._looking.sending_over.changed
        self._tasks_out = TasksOut(self._own, invoking.book, self._abroad, claims, invoking.forwarding.told)
        self._tasks_in = TasksIn(
            ground,
            invoking.book,
            invoking.targets,
            invoking.dispatching,
            self._abroad,
            claims,
            self._remote.shape_of,
            messages.operations.next_number,
        )
        self._steps_out = StepsOut(ground, flows, invoking.peers, self._abroad, node)
        self._steps_in = StepsIn(ground, registry, post, flows, self._abroad, messages.operations.next_number)
        self._epochs: dict[str, int] = {}
        """Of the processes of the brokers that were seen last."""
        self._addresses = registry.addresses
        self._parting = Parting(
            ground, post.boxes, messages.receipts, lambda address, now: self._homes.look_again(address, now)
        )
        self._proxies = Proxies(
            ground,
            post.boxes,
            post.mailing,
            registry.lifecycle,
            membership.departing,
            self._abroad,
            self._remote.next_number,
            self._node,
            self._remote.release,
            self._parting.was_told,
        )
        self._homes = Homes(
            ground,
            registry,
            claims,
            self._parting,
            lambda: self._state.status == "on",
            self._is_near,
            membership.registering.register,
            self._left,
            self._came,
            self._aimed,
            self._noted,
        )
        self._remote.know(self._homes)
        self._moving = TasksMoving(
            ground,
            registry.addresses,
            post,
            work.assignments,
            invoking,
            self._abroad,
            self._homes.home_of,
        )
        self._runs = RunsElsewhere(
            self._own,
            staging.stages,
            self._abroad,
            self._remote.next_number,
            self._node,
            self._mark,
            post.boxes,
            post.mailing,
        )
        self._notifications = NotificationsIn(
            ground, staging.notifications, self._abroad, self._remote.shape_of, self._remote.next_number
        )
        self._expected = Expected(ground, registry.sessions, supervising, self._mark)
        self._told: dict[type, Callable[[Any, Instant], None]] = {
            ClusterState: self._way_changed,
            PeerSeen: self._peer_seen,
            PeerLost: self._peer_lost,
            Posted: self._abroad.posted,
            Arrived: self._arrived,
            AddressSeen: self._homes.seen,
            AddressesKnown: self._homes.known,
            AddressClaimed: self._homes.claimed,
            TargetHeld: self._looking.holders.told,
        }
        self._taken: dict[str, Callable[[Arrived, Instant], None]] = {
            kind: part.arrived
            for part in (
                self._looking,
                self._notifications,
                self._tasks_in,
                self._steps_in,
                self._steps_out,
                self._tasks_out,
            )
            for kind in part.kinds
        }
        """By the kind of a letter; those of all others are of messages."""
        if state.status != "off":
            invoking.targets.addresses_elsewhere = self._addresses_nobody_holds
            sending.deciding.owner_elsewhere = self._runs.owner_of
            self._abroad.is_owned = self._is_owned
            invoking.forwarding.carry = self._tasks_out.carry
            invoking.forwarding.go_on = self._moving.go_on
            self._abroad.takes_task = self._moving.takes
            self._join_flows(flows)
            sending.resolver.node = node
            post.queueing.find_elsewhere = self._find_away
            post.mailing.on_doubt = self._in_doubt.look
            post.queueing.named_by_machine = self._named_by_machine
            post.queueing.know_named = self._homes.named
            membership.registering.hold = self._homes.hold
            membership.departing.on_retiring.append(self._looking.sender_left)
            membership.departing.on_retiring.append(self._parting.left)
            membership.registering.on_arrival.append(self._looking.holders.came)
            registry.addresses.machine_of = self._node
            registry.addresses.on_change = self._homes.changed
            registry.addresses.on_forgotten = self._homes.forgotten
            registry.sessions.on_change.append(self._mark)
            company.on_change.append(self._mark)
            self._deadlines.add(now.mono + self._limits.look_ms, self._begins_too_slowly)
            self._mark()

    def _join_flows(self, flows: FlowsOfBroker) -> None:
        """Let steps of flows cross machines."""
        flows.finder.elsewhere = self._steps_out
        flows.book.is_taken = self._steps_in.turns.is_taken
        flows.book.must_wait = self._steps_in.turns.must_wait
        flows.book.took = self._steps_in.turns.took
        flows.book.on_ended = self._step_ended
        flows.requests.report_elsewhere = self._steps_in.reports.take
        flows.addresses_elsewhere = self._steps_in.addresses
        flows.in_work_elsewhere = self._steps_in.in_work

    def _step_ended(self, dispatch: Dispatch, ticket: int, now: Instant) -> None:
        self._steps_out.ended(dispatch, ticket)
        self._steps_in.ended_here(dispatch, now)

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after letters, or what they are made of, were read."""
        return {
            PostAgain: self._letters_read,
            AskingAfter: self._in_doubt.read,
            Reporting: self._tasks_in.read,
            Bringing: self._steps_out.read,
            BringingReport: self._steps_in.reports.read,
        }

    def _letters_read(
        self, token: PostAgain, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        self._abroad.outgoing.read(token, bodies, now)

    def _find_away(self, target: str, sender: Session) -> Away | Session | Several | None:
        """Return whom a target means that leads to nobody here: ``name@node`` may be an address, too."""
        found = self._remote.find_away(target, sender)
        name, sign, node = target.rpartition(NODE_SIGN)
        if isinstance(found, Several) and not sign:
            return replace(found, alone=self._named_by_machine(target, sender))
        if found is not None or not sign:
            return found
        meant = [
            address
            for address in self._homes.all_named(name)
            if address.is_reachable_from(sender.groups)
            and (self._here if address.home is None else self._node(address.home)).lower() == node.lower()
        ]
        if len(meant) > 1:
            return Several(tuple(sorted(address.group for address in meant)), ())
        return self._queueing.of_address(meant[0]) if meant else None

    def _named_by_machine(self, name: str, sender: Session) -> tuple[str, ...]:
        """Return the wordings ``name@node`` that lead to one each of those of a name who are away."""
        nodes = {
            self._here if address.home is None else self._node(address.home) for address in self._homes.all_named(name)
        }
        nodes |= self._remote.nodes_of_those_who_left(name)
        wordings = sorted(f"{name}{NODE_SIGN}{node}" for node in nodes) if len(nodes) > 1 else []
        return tuple(each for each in wordings if not isinstance(self._find_away(each, sender), Several | None))

    def _addresses_nobody_holds(self, groups: Iterable[str] | None) -> list[Candidate]:
        """Return whom a label may mean that is an address at home elsewhere and not held by anybody now."""
        held = self._peers.held_addresses()
        return [
            Candidate(
                address_id(home.group, home.name),
                home.name,
                "away",
                is_address=True,
                is_local=False,
                authority=home.home,
                node=self._node(home.home),
            )
            for home in self._homes.elsewhere(groups)
            if (home.group, home.name) not in held
        ]

    def _is_owned(self, target: str) -> bool:
        stage = parse_target(target)
        return stage is not None and self._runs.has_owner_here(stage)

    def _left(self, address: Address, now: Instant) -> None:
        self._proxies.left(address, now)
        self._delivery.address_left(address.key)
        self._moving.left(address, now)
        self._looking.left(address, now)

    def _came(self, address: Address, now: Instant) -> None:
        self._proxies.came(address, now)
        self._in_doubt.came(address, now)

    def _noted(self, seen: AddressHome, before: str, now: Instant) -> None:
        if before and before != seen.home:
            self._looking.holders.moved(seen.key, before, now)
        if seen.home == self._own:
            self._in_doubt.is_known(seen.group, seen.name, now)

    def _aimed(self, address: Address, now: Instant) -> None:
        self._proxies.aimed(address, now)
        self._remote.aimed(address, now)
        self._looking.sending_over.changed(address, now)

    @property
    def outgoing(self) -> Outgoing:
        """Return what is on its way to other brokers."""
        return self._abroad.outgoing

    def give_up(self, entry: OnItsWay, now: Instant) -> None:
        """Let go of a message that is on its way; whoever waits for its outcome is told that it is not known."""
        self._abroad.give_up(entry, now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Go on with what an earlier process was sending."""
        for address in self._addresses:
            if address.home is not None:
                self._moving.left(address, now)
                self._proxies.aimed(address, now)
        self._abroad.outgoing.recover(recovered.outbox, now)
        if self._state.status != "off":
            self._in_doubt.recover(now)
        self._steps_in.recover(recovered, now)

    def tidy(self, now: Instant) -> None:
        """Forget what has been over for long."""
        self._steps_in.tidy(now)

    def due_soon(self, now: Instant) -> int:
        """Return how much is on its way: its outcome is heard while the broker stays."""
        if self._state.status != "on":
            return 0
        return len(self._abroad.outgoing) + len(self._steps_in.on_their_way())

    # --- who is here ------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Announce in a moment what has changed."""
        if not self._is_marked:
            self._is_marked = True
            self._deadlines.cancel(self._next)
            self._next = self._deadlines.add(self._not_before, self._announce)

    def _announce(self, subject: None, now: Instant) -> None:
        self._is_marked = False
        self._not_before = now.mono + self._limits.announce_ms
        here = {session.id: session for session in self._sessions if session.is_agent and not session.is_remote}
        changed: dict[str, RemoteName | None] = {}
        for session_id, session in here.items():
            shown = session.written()
            said = shown if session.known is None else shown + session.known.record.incarnation.encode()
            if self._announced.get(session_id) != said:
                self._announced[session_id] = said
                changed[session_id] = self._name_of(session, shown)
        gone = self._announced.keys() - here.keys()
        for session_id in gone & self._leaving:
            del self._announced[session_id]
            changed[session_id] = None
        # What it had confirmed is told before that it has left, and who comes back at once has not left at all.
        self._leaving = gone - changed.keys()
        shared = {**self._expected.changed(now), **self._runs.changed()}
        if changed or shared:
            self._outbox.add(Announce(changed, shared))
        self._looking.holders.here(here, now)
        if self._leaving:
            self._next = self._deadlines.add(self._not_before, self._announce)
        elif here:
            self._next = self._deadlines.add(now.mono + self._limits.announce_again_ms, self._announce)

    def _name_of(self, session: Session, shown: bytes) -> RemoteName:
        info = session.info
        return RemoteName(
            session.id,
            session.name or session.id,
            session.groups,
            "active",
            self._own,
            session.holds_address,
            workspace=_text(str(info.get("cwd", "")).rstrip("/").rpartition("/")[2]),
            branch=_text(info.get("gitBranch")),
            profile=_text(info.get("profile")),
            harness=None if session.known is None else session.known.record.kind,
            model=_text(info.get("model")),
            session=shown,
            identity=session.sender_identity,
            home_group=session.home_group,
            return_hash=session.return_hash,
            features=tuple(sorted(session.features)),
            address=_address_of(session),
            acts_for=wording_at_home(session.address),
            incarnation="" if session.known is None else session.known.record.incarnation,
            runtime_session_id=None if session.known is None else session.known.record.runtime_session_id,
        )

    # --- how the way is ---------------------------------------------------------------------------------

    def peer_told(self, fact: PeerFact, now: Instant) -> None:
        """Take note of what is heard of other brokers."""
        told = self._told.get(type(fact))
        if told is not None:
            told(fact, now)

    def _way_changed(self, fact: ClusterState, now: Instant) -> None:
        was_on, self._state = self._state.status == "on", fact
        if was_on and fact.status != "on":
            self._homes.cut_off(now)
        elif fact.status == "on":
            self._homes.publish(now)
        if not self._is_near():
            self._let_go(now)
        elif fact.status == "on" and not was_on:
            self._looking.holders.joined(now)
            for peer in sorted(self._there):
                self._runs.bring(peer, now)
            for box in self._boxes.all():
                if box.holder is not None and box.holder.is_remote:
                    self._mailing.offer(box, now)

    def _peer_seen(self, fact: PeerSeen, now: Instant) -> None:
        is_back = fact.broker_id not in self._there
        self._there.add(fact.broker_id)
        self._remote.seen(fact, now)
        self._runs.seen(fact.broker_id, fact.shared)
        self._expected.seen(fact.broker_id, fact.shared, now)
        if is_back:
            self._in_doubt.peer_seen(fact.broker_id)
            self._proxies.peer_seen(fact.broker_id, now)
            self._runs.bring(fact.broker_id, now)
        is_another = self._epochs.get(fact.broker_id) != fact.epoch
        self._epochs[fact.broker_id] = fact.epoch
        if is_back or is_another:
            self._steps_in.peer_seen(fact.broker_id, now)
            self._steps_out.peer_seen(fact.broker_id, now)

    def _peer_lost(self, fact: PeerLost, now: Instant) -> None:
        self._there.discard(fact.broker_id)
        self._remote.lost(fact, now)
        self._runs.lost(fact.broker_id)
        self._expected.lost(fact.broker_id, now)
        self._abroad.outgoing.look(fact.broker_id, now)
        self._looking.cut_off(now)

    def _arrived(self, fact: Arrived, now: Instant) -> None:
        taken = self._taken.get(fact.kind)
        if taken is None:
            self._abroad.arrived(fact, now)
            return
        taken(fact, now)
        if fact.kind in TasksOut.kinds:
            self._outbox.add(Settle(fact.arrival))  # what was lost with it is asked for by the next process

    def _is_near(self) -> bool:
        return self._state.status == "on" or (self._state.status == "starting" and self._may_begin)

    def _begins_too_slowly(self, _: None, now: Instant) -> None:
        """Let nobody wait for an engine that has not been opened by now, whoever comes from here on included."""
        self._may_begin = False
        if not self._is_near():
            self._let_go(now)

    def _let_go(self, now: Instant) -> None:
        """Decide about all that waits for what the engine, or another broker, would have said."""
        self._homes.wait_no_longer(now)
        self._looking.holders.cut_off(now)
        self._looking.cut_off(now)

    def _is_cut_off(self, peer: str) -> bool:
        return self._state.status != "on" or not self._peers.is_there(peer)

    def _waiting(self) -> list[int]:
        """Return since when each message waits, or is on its way, that is for another broker (epoch ms)."""
        boxes = [box for box in self._boxes.all() if self._is_of_others(box)]
        mail = [each.record.queued_at for box in boxes for each in box.in_order()]
        steps = [each.since for each in self.steps_on_their_way()]
        return mail + steps + [entry.record.queued_at for entry in self._abroad.outgoing]

    def steps_on_their_way(self) -> list[StepOnItsWay]:
        """Return the steps and reports of flows that cross machines and have not arrived as far as is known."""
        return self._steps_out.on_their_way() + self._steps_in.on_their_way()

    def _is_of_others(self, box: Mailbox) -> bool:
        address = self._addresses.of_key(box.key)
        return box.key.startswith(PEER) or (address is not None and address.home is not None)

    def machine_of(self, mark: str) -> str | None:
        """Return what the machine is called at whose broker a target of this identity is; None: at this one."""
        if mark.startswith(PEER):
            return self._node(mark.removeprefix(PEER).partition(":")[0])
        address = self._addresses.of_key(mark)
        return None if address is None or address.home is None else self._node(address.home)

    def is_on_its_way(self, operation: Operation) -> bool:
        """Tell whether a message is brought to another broker, and what became of it there is not known."""
        return self._abroad.outgoing.has(operation.target or "", operation.message_id)

    def _node(self, peer: str) -> str:
        return self._peers.name_of(peer)

    def multi_node(self) -> Mapping[str, Any]:
        """Return what the status report says of other machines (protocol 6.14)."""
        state = self._state
        told: dict[str, Any] = {"status": state.status}
        if state.reason:
            told["reason"] = state.reason
        if state.status != "off":
            told["node"] = self._here
        if state.adapter:
            told["adapter"], told["prefix"] = state.adapter, state.prefix
        if state.foreign:
            told["foreign"] = state.foreign
        waiting = self._waiting()
        if waiting:
            told["outbox"], told["outboxOldestAt"] = len(waiting), min(waiting)
        if state.status == "on":
            told["peers"] = [
                {"brokerId": peer.broker_id, "node": peer.name, "names": self._peers.name_count(peer.broker_id)}
                for peer in self._peers.there()
            ]
        return told


def _address_of(session: Session) -> tuple[str, str] | None:
    """Return group and name of the address that a session holds, as far as others can send there."""
    address = session.address
    if address is None or not session.holds_address or address.is_of_broker:
        return None
    return address.group, address.name


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
