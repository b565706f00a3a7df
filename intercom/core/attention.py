"""Answer who waits for whom, keep policies, and settle what they hold back (protocol 15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw, to_builtins

from intercom.core import features, groups
from intercom.core.addresses import ME
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.giving import No
from intercom.core.ground import Ground
from intercom.core.inquiries import Inquiries
from intercom.core.lifecycle import Known
from intercom.core.mailboxes import Mail, Mailbox
from intercom.core.mailing import Kept
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part
from intercom.core.policies import OWN_MEMBER, Inbound, sender_in
from intercom.core.post import Post
from intercom.core.registry import Registry
from intercom.core.sessions import Session
from intercom.limits import WAITS_TOLD
from intercom.wire.attention import (
    HeldEntry,
    HeldSettle,
    HeldSettled,
    MailFetch,
    MailFetched,
    PoliciesRequest,
    Policy,
    PolicyEntry,
    PolicySet,
    PolicyStored,
    WaitEntry,
    WaitsRequest,
    WaitsTold,
)
from intercom.wire.attention import Policies as PoliciesAnswer

NEEDED: dict[type, frozenset[str]] = {
    WaitsRequest: frozenset({features.WAITS}),
    PolicySet: frozenset({features.POLICY}),
    PoliciesRequest: frozenset({features.POLICY}),
    HeldSettle: frozenset({features.POLICY}),
    MailFetch: frozenset({features.POLICY}),
}
"""Which feature must have been granted."""
EVERYTHING = Policy([])


class Attention(Part):
    """Answer the requests of the features ``waits`` and ``policy``."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        membership: Membership,
        inquiries: Inquiries,
    ) -> None:
        self._sessions = registry.sessions
        self._lifecycle = registry.lifecycle
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._asking = messages.asking
        self._policies = registry.policies
        self._inquiries = inquiries
        self._giving = inquiries.giving
        self._outbox = ground.outbox
        self._limits = ground.limits
        membership.registering.on_arrival.append(self.arrived)
        registry.policies.on_undone = self._attach

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes these requests."""
        return dict.fromkeys(_HANDLERS, self.answer)

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        needed = NEEDED[type(frame)]
        if not needed & session.features:
            no = No("feature_not_granted", f"This needs the feature {', '.join(sorted(needed))}")
            return self._giving.refuse(connection, frame.request_id, no)
        trouble = self._inquiries.store_trouble
        if trouble is not None and not isinstance(frame, WaitsRequest):
            no = No("store_unusable", f"The store cannot be used, so nothing it keeps is shown or changed: {trouble}")
            return self._giving.refuse(connection, frame.request_id, no)
        refused = _HANDLERS[type(frame)](self, connection, session, frame, now)
        return None if refused is None else self._giving.decline(connection, frame.request_id, refused)

    # --- who waits for whom -----------------------------------------------------------------------------

    def _waits(self, connection: Connection, session: Session, frame: WaitsRequest, now: Instant) -> No | None:
        found = [*self._asked(session, now), *self._queued(session)]
        found.sort(key=lambda entry: (entry.since, entry.message_id))
        self._outbox.write(connection, WaitsTold(frame.request_id, found[: frame.limit], len(found)))
        return None

    def _asked(self, viewer: Session, now: Instant) -> list[WaitEntry]:
        entries = []
        for wait in self._asking.waits:
            if not (self._sees(viewer, wait.asker_id) and self._sees(viewer, wait.target_id)):
                continue
            operation = wait.operation
            assert operation is not None, "an ask that is under way is reserved"
            entries.append(
                WaitEntry(
                    wait.message_id,
                    "asker_away" if wait.dormant else "open" if wait.is_open else "under_way",
                    self._asking.name_of(wait.asker_id, viewer),
                    self._asking.name_of(wait.target_id, viewer),
                    operation.reserved_at,
                    wait.asker_id,
                    target_id=UNSET if wait.target_id.startswith("address:") else wait.target_id,
                    deadline=now.wall + max(0, operation.question_due - now.mono),
                )
            )
        return entries

    def _queued(self, viewer: Session) -> list[WaitEntry]:
        """Return the asks that wait in a mailbox and have not been read."""
        return [
            WaitEntry(
                mail.message_id,
                "queued",
                self._asking.name_of(mail.record.sender_session, viewer),
                self._asking.name_of(box.key, viewer),
                mail.record.queued_at,
                mail.record.sender_session,
                deadline=mail.record.expires_at,
            )
            for box in self._boxes.all()
            for mail in box.entries.values()
            if mail.record.is_ask and self._sees(viewer, mail.record.sender_session)
        ]

    def _sees(self, viewer: Session, identity: str) -> bool:
        """Tell whether a session may know of a party: itself, who shares a group with it, and everybody's person."""
        if features.OPERATOR in viewer.features:
            return True
        session = self._sessions.get(identity)
        if session is not None:
            return session.party == viewer.party or session.shares_group_with(viewer)
        return self._sessions.party_of(identity) == viewer.party or self._asking.is_reached(identity, viewer)

    # --- policies ---------------------------------------------------------------------------------------

    def _set(self, connection: Connection, session: Session, frame: PolicySet, now: Instant) -> No | None:
        policy = EVERYTHING if frame.policy is UNSET else frame.policy
        if frame.of is UNSET:
            return self._set_own(connection, session, frame, policy, now)
        if features.OPERATOR not in session.features:
            return No("not_allowed", "Only the person may say what somebody else lets through")
        party = self._party_of(frame)
        if isinstance(party, No):
            return party
        if party == self._inquiries.person_key(now):
            return No("not_allowed", f"{ME} lets everything through: the person reads it when there is time")
        if policy.rules and self._policies.of_person(party) is None and self._policies.is_full:
            return No("capacity", f"The person may set at most {self._limits.policies} policies; remove one first")
        answer = PolicyStored(frame.request_id, self._owner_of(party, session), policy)
        ticket = self._policies.ticket_of(party, policy)
        if ticket is not None:  # its answer may have been lost
            self._giving.give(connection, answer, ticket)
            return None
        self._policies.set(party, policy if policy.rules else None, now)
        self._attach(party)
        for peer in self._sessions.of_party(party):
            if peer.mailbox is not None:
                self._judge_again(peer.mailbox, peer.inbound, now)
        box = self._boxes.get(party)
        if box is not None and box.holder is None:
            self._judge_again(box, self._policies.of_party(party, None), now)
        self._giving.promise(connection, answer)
        return None

    def _attach(self, party: str) -> None:
        """Let a party that is here have what is set for it now, and its peers see it."""
        for peer in self._sessions.of_party(party):
            self._policies.attach(peer)
            groups.announce_presence(peer, self._sessions, self._outbox)

    def _set_own(
        self, connection: Connection, session: Session, frame: PolicySet, policy: Policy, now: Instant
    ) -> No | None:
        if not session.is_agent:
            return No("not_allowed", "A control session receives no messages, so it has no policy")
        if session.mailbox is None and any(rule.action in ("quiet", "hold") for rule in policy.rules):
            return No("no_mailbox", "Without a mailbox nothing can wait; this session can only accept or refuse")
        before = session.info.get(OWN_MEMBER)
        wanted = to_builtins(policy) if policy.rules else None
        if wanted != before:
            self._have_own(session, wanted)
            if session.known is not None:
                known = session.known
                self._lifecycle.asked(known, "session.changed", self._take_own_back, (known, before), now)
        if session.mailbox is not None:
            self._judge_again(session.mailbox, session.inbound, now)
        answer = PolicyStored(frame.request_id, session.name or session.id, policy)
        if session.known is None and session.mailbox is None:
            self._giving.give(connection, answer, 0)  # nothing of it is recorded
        else:
            self._giving.promise(connection, answer)
        return None

    def _have_own(self, session: Session, wanted: Any) -> None:
        """Let a session have a policy of its own, or none, and its peers see it."""
        if wanted is None:
            session.drop(OWN_MEMBER)
        else:
            session.update(**{OWN_MEMBER: wanted})
        self._policies.attach(session)
        groups.announce_presence(session, self._sessions, self._outbox)

    def _take_own_back(self, subject: tuple[Known, Any], now: Instant) -> None:
        known, before = subject
        self._lifecycle.put_back(known, OWN_MEMBER, before)
        if known.session is not None:
            self._have_own(known.session, before)

    def _party_of(self, frame: PolicySet) -> str | No:
        assert frame.of is not UNSET
        of = frame.of
        if of.session_id is not UNSET:
            session = self._sessions.get(of.session_id)
            if session is not None:
                return session.party
            known = self._lifecycle.get(of.session_id)
            if known is None:
                return No("unknown_session", f"No session {of.session_id} is known")
            return self._sessions.party_of(known.id)
        found = self._inquiries.address_named(of)
        return found if isinstance(found, No) else found.key

    def _policies_told(
        self, connection: Connection, session: Session, frame: PoliciesRequest, now: Instant
    ) -> No | None:
        sees_all = features.OPERATOR in session.features
        entries = [
            PolicyEntry(self._owner_of(each.record.party, session), "person", each.policy, each.record.set_at)
            for each in self._policies
            if sees_all or each.record.party == session.party
        ]
        for peer in self._sessions:
            inbound = peer.inbound
            if inbound is not None and inbound.own is not None and (sees_all or peer is session):
                entries.append(PolicyEntry(peer.name or peer.id, "session", inbound.own))
        kept: list[HeldEntry] = []
        for box in self._boxes.all():
            if not box.kept or not (sees_all or box is session.mailbox):
                continue
            told: set[Mail] = set()
            for mail in box.in_order():
                if not mail.record.is_kept or mail in told:
                    continue
                copies = list(box.copies_of(mail))
                told.update(copies)
                entry = HeldEntry(
                    mail.message_id,
                    "quiet" if mail.record.kept == "quiet" else "hold",
                    self._asking.name_of(self._identity_of(box), session),
                    Raw(mail.record.sender_info),
                    mail.record.queued_at,
                    mail.record.expires_at,
                    mail.record.size,
                    len(copies) if len(copies) > 1 else UNSET,
                )
                kept.append(entry)
        self._outbox.write(connection, PoliciesAnswer(frame.request_id, entries, kept[:WAITS_TOLD]))
        return None

    def _owner_of(self, party: str, viewer: Session) -> str:
        peer = next(iter(self._sessions.of_party(party)), None)
        return self._asking.name_of(party if peer is None else peer.id, viewer)

    def _identity_of(self, box: Mailbox) -> str:
        return box.key if box.key.startswith("address:") else box.key.partition(":")[2]

    # --- what a policy holds back -----------------------------------------------------------------------

    def arrived(self, session: Session, now: Instant) -> None:
        """Judge the mail of a session that came by what holds for it now, before it is offered."""
        if session.mailbox is not None and (session.inbound is not None or session.mailbox.kept):
            self._judge_again(session.mailbox, session.inbound, now)

    def _judge_again(self, box: Mailbox, inbound: Inbound | None, now: Instant) -> None:
        """Keep, let go or refuse what waits, by a policy that has changed; an answer and an ask always pass."""
        changed: list[tuple[Mail, Kept | None]] = []
        refused: list[Mail] = []
        for mail in box.in_order():
            record = mail.record
            if mail.is_offered or mail.confirmed_by is not None or record.notice is not None:
                continue
            if record.is_ask or record.reply_to is not None or record.kept == "released":
                continue
            if not record.sender_session:
                continue  # the broker itself wrote it: a step of a flow
            action = "accept" if inbound is None else inbound.action_for(sender_in(record.sender_info))
            if action == "refuse":
                refused.append(mail)
            elif (kept := None if action == "accept" else action) != record.kept:
                changed.append((mail, kept))
        if changed and self._mailing.can_promise:
            self._mailing.keep(box, changed, now)
        if refused and self._mailing.can_promise:
            self._mailing.refuse(refused, now)

    def _settle(self, connection: Connection, session: Session, frame: HeldSettle, now: Instant) -> No | None:
        if features.OPERATOR not in session.features:
            return No("not_allowed", "Only the person may let a held message through")
        found = [
            (box, mail)
            for box in self._boxes.all()
            if box.kept
            for mail in box.in_order()
            if mail.record.kept == "hold" and mail.message_id == frame.message_id
        ]
        if not found:
            return No("unknown_message", f"No message {frame.message_id} is held for the person")
        box, mail = found[0]
        copies = list(box.copies_of(mail)) or [mail]
        if frame.action == "release":
            self._mailing.keep(box, [(each, "released") for each in copies], now)
        else:
            self._mailing.refuse(copies, now)
        self._giving.promise(connection, HeldSettled(frame.request_id, frame.message_id))
        return None

    def _fetch(self, connection: Connection, session: Session, frame: MailFetch, now: Instant) -> No | None:
        box = session.mailbox
        if box is None:
            return No("no_mailbox", "This session receives the mail of no mailbox")
        quiet: list[tuple[Mail, Kept | None]] = []
        if box.kept:
            quiet = [(mail, "released") for mail in box.in_order() if mail.record.kept == "quiet"]
        if quiet:
            self._mailing.keep(box, quiet, now)
        self._giving.promise(connection, MailFetched(frame.request_id, len(quiet)))
        return None


_HANDLERS: dict[type, Callable[..., No | None]] = {
    WaitsRequest: Attention._waits,
    PolicySet: Attention._set,
    PoliciesRequest: Attention._policies_told,
    HeldSettle: Attention._settle,
    MailFetch: Attention._fetch,
}
"""The types of frames that ``Attention`` answers."""
