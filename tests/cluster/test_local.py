"""Test the directory of a broker without other machines."""

from __future__ import annotations

from intercom.cluster.directory import Directory
from intercom.cluster.local import Alone
from intercom.core.records import Follow, Forward, Forwarded, Recall, RemoteTask

TASK = RemoteTask("i", "t", "@t", "execute", False, "session:a", b"{}", b"{}", 1, None)


def test_a_task_for_elsewhere_reaches_nobody_and_that_is_told() -> None:
    """design section 2, cluster: ``local.py``, no other machine."""
    notified: list[None] = []
    alone: Directory = Alone(lambda: notified.append(None))
    alone.submit(Forward("b", "d", 3, TASK))
    alone.submit(Follow("b", "d", "i", 0))
    alone.submit(Recall("b", "d", "i", ""))
    [fact] = alone.done()
    assert isinstance(fact, Forwarded)
    assert (fact.delivery_id, fact.attempt, fact.verdict) == ("d", 3, "unreachable")
    assert len(notified) == 1 and list(alone.done()) == []
    alone.close(0.0)
