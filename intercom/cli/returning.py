"""Look again for what a broker that has just started may not know yet: who makes it known is on the way back."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import TypeVar

from intercom.cli.identity import paths_of
from intercom.client.setup import now, young_until
from intercom.errors import RequestRefused
from intercom.limits import SEND_RETRY_MS

Found = TypeVar("Found")


def look_until_known(look: Callable[[], Found], unknown: str, arguments: Namespace) -> Found:
    """Return what ``look`` finds, which raises ``RequestRefused`` with the code ``unknown`` when there is none.

    With a broker that has just started it is called again until that one counts as started.
    """
    while True:
        try:
            return look()
        except RequestRefused as refused:
            until = young_until(paths_of(arguments))
            if refused.code != unknown or until is None:
                raise
            time.sleep(min(SEND_RETRY_MS, until - now()) / 1000 if until > now() else 0)
