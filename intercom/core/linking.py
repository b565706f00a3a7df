"""Put together what deals with links (protocol 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from intercom.core import concerns
from intercom.core.clock import Instant
from intercom.core.commands import Offering
from intercom.core.concerns import State
from intercom.core.following import Following
from intercom.core.ground import Ground
from intercom.core.inquiries import Inquiries
from intercom.core.link import Link
from intercom.core.linkdesk import READ_FOR_LINKS, REQUESTS, LinkDesk
from intercom.core.links import FROM_WORKERS, READINESS, Links
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, Reader
from intercom.core.post import Post
from intercom.core.records import CommandRecord, EventRecord, LinkRecord, Recovered
from intercom.core.registry import Registry
from intercom.core.watches import Watches
from intercom.wire.links import CommandSend


class Linking(Part):
    """Hold the parts that deal with links."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        membership: Membership,
        following: Following,
        inquiries: Inquiries,
    ) -> None:
        departing = membership.departing
        self._drain_ms = ground.limits.link_drain_ms
        self.links = Links(
            messages.operations,
            ground.journal,
            ground.ledger,
            ground.deadlines,
            ground.outbox,
            ground.limits,
            ground.ids,
            ground.identity.journal_id,
            departing.hang_up,
            departing.violation,
        )
        self._desk = LinkDesk(
            self.links,
            registry.addresses,
            registry.lifecycle,
            post.boxes,
            ground.ledger,
            ground.outbox,
            ground.limits,
        )
        membership.registering.on_arrived.append(self.links.session_came)
        membership.arrivals.on_departed.append(self.links.session_left)
        inquiries.on_unreadable |= dict.fromkeys(READINESS, self.links.unreadable)
        self._let_follow(following.watches)

    def _let_follow(self, watches: Watches) -> None:
        """Let watches tell of links, commands and events."""
        watches.follow(LinkRecord, concerns.of_link)
        watches.follow(CommandRecord, concerns.of_command)
        watches.follow(EventRecord, concerns.of_event)

        def state_of(link: Link) -> State:
            detail = {} if link.record.refused is None else {"code": link.record.refused}
            return State("link", link.state, concerns.link_concern(link.record, detail))

        watches.describe(
            "link",
            lambda link_id: None if (link := self.links.get(link_id)) is None else state_of(link),
            lambda: map(state_of, self.links),
        )

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes what workers write about their links, and the requests about links."""
        return {**dict.fromkeys(FROM_WORKERS, self.links.received), **dict.fromkeys(REQUESTS, self._desk.answer)}

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after bodies of commands and events were read."""
        return {Offering: self._offer_read, **dict.fromkeys(READ_FOR_LINKS, self._desk.read)}

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what the store held."""
        self.links.recover(recovered)

    begins = (CommandSend,)

    def shut(self, within_ms: int) -> None:
        """Say goodbye to the workers, and offer them nothing any more."""
        self.links.leave(within_ms)

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how many commands were received and not reported on."""
        return {"commands": self.links.count_in_work()}

    def drain(self) -> None:
        """Say goodbye to the workers, unless that was done."""
        self.links.leave(self._drain_ms)

    def report(self) -> dict[str, Any]:
        """Return how many links there are, and how much is open."""
        links = self.links
        return {
            "links": {"known": len(links), "ready": links.ready_count, "openCommands": links.commands.open},
        }

    def _offer_read(
        self, token: Offering, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        self.links.commands.read(token, bodies, now)
