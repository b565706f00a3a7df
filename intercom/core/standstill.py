"""Tell since when a session confirms nothing of what was written to it: it may be at work, stopped, or deaf (F81)."""

from __future__ import annotations

from msgspec import Raw
from msgspec.json import encode

from intercom.core.clock import Instant
from intercom.core.receipts import Receipts
from intercom.core.sessions import Session
from intercom.limits import Limits


def unconfirmed_since(session: Session, receipts: Receipts, now: Instant, limits: Limits) -> int | None:
    """Return since when the session owes its oldest receipt, in epoch ms; ``None`` while that is short."""
    times = []
    oldest = receipts.oldest_from(session.target_identity)
    if oldest is not None:
        times.append(Instant(oldest.operation.born, oldest.operation.reserved_at))
    if session.mailbox is not None and (offered := session.mailbox.offered_since()) is not None:
        times.append(offered)
    first = min(times, key=lambda time: time.mono, default=now)
    return first.wall if now.mono - first.mono >= limits.standstill_ms else None


def shown(session: Session, receipts: Receipts, now: Instant, limits: Limits) -> Raw:
    """Return the session as a list shows it to who knows of receipts."""
    since = unconfirmed_since(session, receipts, now, limits)
    return session.encoded() if since is None else Raw(encode({**session.info, "unconfirmedSince": since}))
