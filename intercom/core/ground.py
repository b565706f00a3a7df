"""Hold what every part of the core stands on: what it decides by, where its effects go, and how things are recorded."""

from __future__ import annotations

from collections.abc import Callable

from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadlines
from intercom.core.journal import Journal
from intercom.core.keeping import Keeping
from intercom.core.ledger import Ledger
from intercom.core.mailing import broker_info
from intercom.core.outbox import Outbox
from intercom.core.records import StoreIdentity
from intercom.limits import Limits


class Ground:
    """Hold it for one broker.

    Args:
        ids: gives a new UUID v4 string at every call.
        limits: the numbers to decide by.
        identity: of the store, its journal and this process on it.
        pid: of this process.
        last_sequence: of the newest entry in the journal.
        now: the moment of start.
    """

    def __init__(
        self,
        ids: Callable[[], str],
        limits: Limits,
        identity: StoreIdentity,
        pid: int,
        last_sequence: int,
        now: Instant,
    ) -> None:
        self.ids = ids
        self.limits = limits
        self.identity = identity
        self.outbox = Outbox()
        self.journal = Journal(last_sequence)
        self.ledger = Ledger(self.outbox, self.journal)
        self.deadlines = Deadlines()
        self.keeping = Keeping(self.ledger, self.journal, self.deadlines, limits.mail_retry_ms)
        self.connections: dict[int, Connection] = {}
        """Those that are open, by their numbers."""
        self.broker_info = broker_info(identity.broker_id, pid, now)
        """The session object under which the broker itself writes."""
