"""Send a marked message through the adapters of a host, and see whether it is shown to a model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from intercom.cli.checks import Finding
from intercom.client import blocking
from intercom.client.adapters import AdapterRecord, SeatRecord, records
from intercom.errors import IntercomError
from intercom.limits import HOST_PROBE_POLL_MS
from intercom.paths import Paths

HOSTS = ("claude", "codex", "opencode", "gemini", "pi", "atomic", "generic")
"""What an adapter may say it is in."""
WAYS = {
    "now": "it can be told at once",
    "idle": "it can be told when it is idle",
    "pull": "it is told when it looks, or by a hook at its next step",
    "none": "it cannot be told",
}
"""What a session declares about how messages reach its model."""


def probe(paths: Paths, host: str, seconds: float) -> list[Finding]:
    """Return a finding for each session of a host that has an adapter here; ``seconds`` bounds the wait for all.

    A message that was confirmed was put before the model: an adapter confirms nothing else.
    """
    seats = [(record, seat) for record in records(paths) if record.host == host for seat in record.seats]
    reachable = [(record, seat) for record, seat in seats if seat.address or seat.name]
    if not reachable:
        return [
            Finding(
                f"probe:{host}",
                "bad",
                f"no session of {host} with an adapter runs at {paths.home}",
                f"Start one after `intercom install {host}`, let it answer one prompt, and run this again beside it.",
            )
        ]
    try:
        with blocking.connect(
            f"doctor-{os.getpid()}", home=paths.home, start=False, timeout=seconds, kind="command"
        ) as session:
            until = time.monotonic() + seconds
            return [_one(session, record, seat, until) for record, seat in reachable]
    except IntercomError as error:
        return [Finding(f"probe:{host}", "bad", error.reason, error.hint)]


def _one(session: blocking.Session, record: AdapterRecord, seat: SeatRecord, until: float) -> Finding:
    name = seat.name or seat.address or ""
    check = f"probe:{name}"
    mark = os.urandom(4).hex()
    text = (
        f"Probe {mark}: `intercom doctor --probe {record.host}` looks whether messages are shown in this session. "
        "Nothing is to be done about it, and no answer is needed."
    )
    way = _way(session, name)
    began = time.monotonic()
    try:
        receipt = session.send(seat.address or name, text)
    except IntercomError as error:
        return Finding(check, "bad", f"the message was refused: {error.reason}", error.hint)
    state: str = receipt.state
    for _ in _looks(until):
        if state == "delivered":
            break
        with suppress(IntercomError):
            state = session.trace(receipt.message_id).state
    waited = f"{time.monotonic() - began:.1f} s"
    if state == "delivered":
        return Finding(check, "ok", f"probe {mark} was shown to the model within {waited}; {way}")
    return Finding(
        check,
        "unknown",
        f"probe {mark} is {state} and was not shown within {waited}; {way}",
        "Prompt the session once: a host without a way to be woken shows it then. "
        f"`intercom trace {receipt.message_id}` tells whether it was.",
    )


def _looks(until: float) -> Iterator[None]:
    """Yield until time is up, with pauses between."""
    yield
    while time.monotonic() < until:
        time.sleep(HOST_PROBE_POLL_MS / 1000)
        yield


def _way(session: blocking.Session, name: str) -> str:
    with suppress(IntercomError):
        for view in session.list():
            if view.name == name:
                push = view.raw.get("push")
                return WAYS.get(push if isinstance(push, str) else "", "it does not say how it can be told")
    return "it is not listed"
