"""Take the requests about inbox, assignments and replies, and refuse those whose feature was not granted."""

from __future__ import annotations

from typing import Any

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.outbox import Outbox
from intercom.wire.mail import RequestFailed
from intercom.wire.work import (
    AssignmentList,
    AssignmentReply,
    AssignmentReport,
    AssignmentShow,
    InboxAwait,
    InboxClaim,
    InboxDispatch,
    InboxList,
    InboxPresence,
    InboxSettle,
    InboxShow,
)

_SEES = frozenset({features.INBOX, features.WORK, features.COORDINATOR, features.OPERATOR})
_WORKS = frozenset({features.WORK})
_NEEDED: dict[type, frozenset[str]] = {
    InboxList: _SEES,
    InboxShow: _SEES,
    InboxPresence: _SEES,
    InboxDispatch: frozenset({features.COORDINATOR, features.OPERATOR}),
    InboxClaim: _WORKS,
    InboxAwait: _WORKS,
    InboxSettle: _SEES,
    AssignmentReport: _WORKS,
    AssignmentReply: _WORKS,
    AssignmentList: _SEES,
    AssignmentShow: _SEES,
}
"""Of which features one at least must have been granted (protocol 10)."""
WORK_REQUESTS = tuple(_NEEDED)
"""The types of frames that ``Desk`` answers."""


class Desk:
    """Answer requests about work."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        needed = _NEEDED[type(frame)]
        names = " or ".join(sorted(needed))
        refusal = RequestFailed(frame.request_id, "feature_not_granted", f"This needs the feature {names}", False)
        self._outbox.write(connection, refusal)
