"""Test what talks through a broker without a process, a socket or a second of waiting.

A ``MemoryBroker`` is the real core of the broker and the real client between which a fake wire runs. Time stands still
unless it is turned by hand; everything else happens at once and in the same order every time, ids included:

    broker = MemoryBroker()
    planner, worker = broker.connect("planner"), broker.connect("worker")
    question = planner.ask("worker", "2+2")
    for message in worker.messages():
        message.reply("4")
    assert question.result().text == "4"

Nothing blocks. ``send``, ``ask`` and ``reply`` return a ``Pending`` that tells whether the matter is settled and how; a
message is delivered when its reader asks for the next one, as in the library. What can go wrong is one call away: a
commit that fails (``fail_next_commit``), a connection that breaks (``MemorySession.cut``), a broker that dies
(``crash``, ``restart``), time that runs out (``advance``). A client of another make talks through
``MemoryBroker.wire``.
"""

from __future__ import annotations

from intercom.testing.broker import MemoryBroker
from intercom.testing.hosting import LiveStage, Run
from intercom.testing.pending import NotSettled, Pending, Withdrawn
from intercom.testing.session import Events, IncomingMessage, MemorySession
from intercom.testing.wire import Wire
from intercom.testing.working import Assignment

__all__ = [
    "Assignment",
    "Events",
    "IncomingMessage",
    "LiveStage",
    "MemoryBroker",
    "MemorySession",
    "NotSettled",
    "Pending",
    "Run",
    "Wire",
    "Withdrawn",
]
