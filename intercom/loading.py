"""Load modules without what they would bring along for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(name: str) -> Iterator[None]:
    """Let imports in the block do without an optional module, as if it were not installed, unless it is there already.

    Only for a process of our own: what is imported in the block does without it for good. After the block the module
    itself can be imported as ever.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how the import system marks "not there"
    try:
        yield
    finally:
        del sys.modules[name]
