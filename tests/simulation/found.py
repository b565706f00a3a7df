"""Name the worlds that found something, and what it was; every suite lives through them again.

What a number stands for changes with every change of the worlds themselves, so each fault has a test of its own too.
"""

from __future__ import annotations

FOUND: dict[int, str] = {
    29: "a retry whose name meant another session by then was told that it was delivered",
    78: "a message that was given up twice was told once: the second notice had the id of the first, as a copy has",
    244: "a notice said `not delivered` of mail that was done with, whose receipt was lost before its session ended",
    260: "a send that was tried again arrived, while a notice said that it had not",
    101765: "a message was shown to the successor of who was done with it, when the clock was set forward",
    448: "the text of a step was called lost, for good, while its commit was under way or another one was read",
    931: "a link that was confirmed too late was tried no more, on a connection that worked",
    1362: "whoever was looked for when the last open invocation was given up was remembered for ever",
    20343: "events were numbered in another order than they were written, so that a watch could miss one",
    3001276: "a run was refused as ended whose end was never recorded, so that its worker said nothing more of it",
    3004124: "a task waited in the mailbox of a session that was never told that it is one",
    3004376: "a message that had been the answer to a question went out as a plain one under its id",
    5001159: "a flow was shown whose commit had failed while its texts were read",
    54: "the row of a message that waited stayed on disk for ever when its deletion failed, with durability in memory",
    7007104: "no fault but of the account: a broker whose clock was set forward had forgotten that it was delivered",
    10001410: "no fault but of the account: a task came again to who has no address, and had long forgotten it",
    10003946: "a run whose end could not be recorded was never looked at again, as nothing else was open",
    10002619: "an address whose creation had failed was recorded when its holder went, beside its successor",
    60010631: "a notice that a message was given up reached its sender after that was accepted anew",
    73007786: "a notice that a message was given up was taken back for an attempt of which nothing was ever known",
    73002011: "no fault but of the account: whoever was a stage keeps what was written to it when another one is that",
    72000317: "a policy that was in force was refused when it was set again, as nothing could be recorded just then",
    71002306: "a task whose hand-over was not recorded waited for a time of day, which had been set back meanwhile",
    70001088: "no fault but of the account: what was given up came after all, out of a wire that the broker read late",
    70001556: "whoever could not be registered, as that was not recorded, was told of others before it was told so",
    60003252: "no fault but of the account: a message was given up and sent anew by a library that was trying still",
    50000180: "no fault but of the account: who held an address heard of what another session under it tried once more",
    50000691: "a command was shown as failed, and sent again as such, before that was recorded",
    10004177: "no fault but of the account: work was given back whose acceptance had been heard, and failed with that",
    7008424: "a grace that began behind a standstill of the broker was longer by that: a step was under way for ever",
    81001627: "no fault but of the account: a stage was back, and written to for the last time, before its owner was",
    81009333: "a message to a supervisor was refused as another one when that had been started anew meanwhile",
}
