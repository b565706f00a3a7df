"""Hold the reasons the broker gives when mail was not delivered; each completes a sentence."""

from __future__ import annotations

BODY_LOST = "its text cannot be read from the store any more"
NEVER_FETCHED = "nobody fetched it in time"
NO_LONGER_VALID = "it was valid for a limited time, and that is over"
SHOWN_LATE = "its reader was shown it after the time it was valid for, and told so"
TIME_OVER = "its time is over"
NOT_LET_THROUGH = "its recipient, or the person, does not let messages of its sender through"
NEVER_LET_THROUGH = "the person did not let it through in time"
NEVER_TAKEN = "nobody took it out of the inbox in time"
PURGED = "the mailbox was emptied by its owner"
GIVEN_UP = "the person gave it up before it left for the machine of its recipient"
GIVEN_UP_ON_ITS_WAY = (
    "the person gave it up, but it may have left for its recipient before, and may arrive all the same"
)


_WRITTEN = "it was written to its recipient, which never confirmed it"


def never_confirmed(reason: str) -> str:
    """Say that mail which its recipient may have seen was given up for this reason."""
    return f"{_WRITTEN}, and {reason}"


def fate(kind: str, reason: str) -> str:
    """Say what became of a message that was given up, as far as it is known; the reason follows."""
    if reason.startswith(_WRITTEN) or reason == GIVEN_UP_ON_ITS_WAY:
        return "may not have been delivered"
    return "has expired" if kind == "expired" else "was not delivered"


def session_closed(reason: str) -> str:
    """Say why mail of a session that will not come back was given up."""
    return f"the session it was for has ended ({reason})"
