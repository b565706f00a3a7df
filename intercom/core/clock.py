"""Give the two times the core is told with every call."""

from __future__ import annotations

from msgspec import Struct


class Instant(Struct, frozen=True, gc=False):
    """Hold one moment on both clocks."""

    mono: int
    """Monotonic milliseconds; every interval is measured with them."""
    wall: int
    """Milliseconds since the Unix epoch; what goes on the wire and on disk."""
