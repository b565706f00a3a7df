"""Define how the broker reaches brokers on other machines.

The core decides what has to happen elsewhere and emits it as work; an implementation of ``Directory`` carries it there
and brings back facts. It knows no rule: what is sent, how often, and what follows from an answer is the core's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from intercom.core.records import PeerFact, PeerWork


class Directory(Protocol):
    """Carry work to other brokers, and know which there are.

    All methods are called in the event loop's thread and return at once. Whoever makes one hands it a function that it
    calls, in that thread, when ``done`` has something. It keeps no work over its own end: the core asks again.

    What it owes the core:

    - ``PeerSeen`` for every broker that is reachable, again whenever its names change, and ``PeerLost`` when it is not
      any more. Both only for brokers whose messages it has found genuine.
    - One ``Forwarded`` for every ``Forward``, or none: the core waits ``Limits.forward_ms`` for it. *accepted* and
      *duplicate* only once the peer has stored the task; *unreachable* whenever that is not known.
    - After ``Follow``, every report behind its ``after`` as ``Mirrored``, in order, each naming the one before it;
      once more from the new ``after`` when it is asked again.
    - ``Recall`` is told to the peer, as long as it is there.
    """

    def submit(self, work: PeerWork) -> None:
        """Queue work for a peer."""

    def done(self) -> Sequence[PeerFact]:
        """Return what was heard since the last call, in order."""

    def close(self, timeout_s: float) -> None:
        """End all contact, within ``timeout_s`` seconds."""
