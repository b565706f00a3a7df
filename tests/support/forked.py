"""Measure in forks of the tests what they run of the package: brokers, adapters, pieces of tests.

A pytest plugin for ``scripts/test --coverage``: ``-p tests.support.forked``. Programs that tests start are measured
by what ``COVERAGE_PROCESS_START`` names, and so is each process of the tests themselves; but a fork would go on with
what its parent has counted, and write all of that again at its end.
"""

from __future__ import annotations

import os

from coverage import Coverage, process_startup


def begin_anew() -> None:
    """Let a fork count for itself alone, if its parent counts."""
    parent = Coverage.current()
    if parent is None:
        return
    parent.stop()
    parent.save = _nothing  # type: ignore[method-assign]  # it is called at every end of the process
    parent._auto_save = False
    process_startup(force=True)


def _nothing() -> None:
    """Leave to the parent what it has counted."""


os.register_at_fork(after_in_child=begin_anew)
