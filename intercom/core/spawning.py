"""Have sessions started on behalf of the operator and of coordinators (FE 1.5; design section 7, Trust)."""

from __future__ import annotations

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.outbox import Outbox
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import SpawnSession

_MAY_ASK = frozenset({features.OPERATOR})


class Spawning:
    """Judge orders to start sessions."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def answer(self, connection: Connection, frame: SpawnSession, now: Instant) -> None:
        """Take an order, or refuse it (protocol 4.57)."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if not _MAY_ASK & session.features:
            names = " or ".join(sorted(_MAY_ASK))
            return self._refuse(connection, frame, "feature_not_granted", f"This needs the feature {names}")
        return self._refuse(connection, frame, "spawn_unavailable", "The settings name no sessions that may be started")

    def _refuse(self, connection: Connection, frame: SpawnSession, code: str, reason: str) -> None:
        self._outbox.write(connection, RequestFailed(frame.request_id, code, reason, False))
