"""Print a line whenever messages wait in the session of the nearest host, until its adapter is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from intercom.client.adapters import AdapterRecord, Asking, nearest_adapter
from intercom.errors import IntercomError
from intercom.limits import BELL_FIND_MS, BELL_FIND_POLL_MS, DOOR_STEP_MS
from intercom.paths import Paths


class NoAdapter(IntercomError):
    """Say that no adapter belongs to the host that runs this process."""

    code = "no_adapter"
    exit_status = 5
    hint = "The host starts it as the MCP server intercom; `intercom install --list` shows where it is installed."


def ring(paths: Paths, host: str | None, line: Callable[[str], object], is_over: Callable[[], bool]) -> int:
    """Print bells with ``line`` until the adapter is gone or ``is_over``; raises ``NoAdapter`` when there is none."""
    record = _found(paths, host)
    try:
        with Asking(record, DOOR_STEP_MS / 1000) as door:
            door.begin({"op": "bell", "kind": "monitor"})
            door.wait_for_ever()
            while not is_over():
                line(str(door.line().get("text", "")))
    except (OSError, ValueError):
        return 0  # it has gone, as it does with its host
    return 0


def _found(paths: Paths, host: str | None) -> AdapterRecord:
    """Return the adapter; a host starts it at about the same time as this process."""
    until = time.monotonic() + BELL_FIND_MS / 1000
    while (record := nearest_adapter(paths, host)) is None:
        if time.monotonic() >= until:
            raise NoAdapter("No adapter of a host was found among the processes above this one")
        time.sleep(BELL_FIND_POLL_MS / 1000)
    return record
